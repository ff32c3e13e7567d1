//! A store without room.

use super::super::case::cases;
use super::super::pace::{LONG, SHORT};
use super::super::subject::{Subject, ids};
use super::super::verdict::{Failed, Verdict, expect, expect_eq};
use crate::inbox::error::{StoreError, StoreErrorKind};
use crate::inbox::store::{AcceptState, ClaimState};
use crate::inbox::token::Token;

cases! { Filling:
    a_full_store_refuses_new_events_and_forgets_none,
}

async fn a_full_store_refuses_new_events_and_forgets_none(subject: Subject) -> Verdict {
    let Some((store, room)) = subject.capabilities.filling.clone() else {
        return Ok(());
    };
    let subject = Subject {
        handles: vec![store],
        ..subject
    };
    let token = Token::random();
    for number in 0..room {
        let item = subject.item(&format!("evt_{number}"));
        if number == 0 {
            let accepted = item.accept(b"body").await?;
            expect_eq("accepting", accepted, AcceptState::Accepted)?;
        } else {
            let state = item.claim(token).await?;
            expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })?;
            expect_eq("completing", item.complete(token).await?, true)?;
        }
    }

    let (accepted, claimed) = (
        subject.item("accepted too much"),
        subject.item("claimed too much"),
    );
    expect_full("accepting", accepted.accept(b"body").await)?;
    expect_full("a claim", claimed.claim(token).await)?;

    for number in 1..room {
        let state = subject.item(&format!("evt_{number}")).claim(token).await?;
        expect_eq("a claim of a done event", state, ClaimState::Done)?;
    }
    let repeated = subject.item("evt_0").accept(b"body").await?;
    expect_eq("accepting a waiting event", repeated, AcceptState::Repeated)?;
    let taken = subject.take_for(token, LONG, 10).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_0"])?;
    let completed = subject.item("evt_0").complete_for(token, SHORT).await?;
    expect_eq("completing", completed, true)?;

    subject.pass(SHORT).await;
    subject.store().purge(1_000).await?;

    let accepted = accepted.accept(b"body").await?;
    expect_eq("accepting after a purge", accepted, AcceptState::Accepted)
}

fn expect_full<T: std::fmt::Debug>(what: &str, result: Result<T, StoreError>) -> Verdict {
    match result {
        Ok(state) => Err(Failed(format!(
            "{what} without room: expected an error of kind Full, got {state:?}"
        ))),
        Err(error) => expect(error.kind() == StoreErrorKind::Full, || {
            let kind = error.kind();
            format!("{what} without room: expected an error of kind Full, got {kind:?}")
        }),
    }
}
