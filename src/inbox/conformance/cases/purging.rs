//! Deleting what may be forgotten.

use std::time::Duration;

use super::super::case::cases;
use super::super::pace::{ROUNDS, SHORT};
use super::super::subject::{Subject, ids};
use super::super::verdict::{Failed, Verdict, expect, expect_eq};
use crate::inbox::store::{ClaimState, Release};
use crate::inbox::token::Token;

cases! { Purge:
    a_purge_deletes_forgotten_events_in_portions_and_counts_them,
    a_purge_deletes_what_is_forgotten_at_all_endpoints,
    a_purge_keeps_what_is_not_forgotten,
}

async fn a_purge_deletes_forgotten_events_in_portions_and_counts_them(subject: Subject) -> Verdict {
    purge_all(&subject).await?;
    let token = Token::random();
    let ids = ["evt_1", "evt_2", "evt_3", "evt_4"];
    let given_up = subject.item("evt_5");
    // All claims come first: a store may delete what is forgotten with each claim.
    for id in ids {
        subject.item(id).claim(token).await?;
    }
    given_up.claim(token).await?;
    for id in ids {
        subject.item(id).complete_for(token, SHORT).await?;
    }
    let release = Release {
        delay: Duration::ZERO,
        retention: SHORT,
        reason: "no",
    };
    given_up
        .store
        .release(given_up.held(token), release)
        .await?;
    subject.pass(SHORT).await;

    let mut portions = Vec::new();
    for _ in 0..4 {
        portions.push(subject.store().purge(2).await?);
    }

    expect_eq("the portions of a purge", portions, vec![2, 2, 1, 0])
}

async fn a_purge_deletes_what_is_forgotten_at_all_endpoints(subject: Subject) -> Verdict {
    purge_all(&subject).await?;
    let token = Token::random();
    let items = ["one", "two", "three"].map(|endpoint| {
        let endpoint = format!("{}, {endpoint}", subject.endpoint);
        subject.endpoint(&endpoint).item("evt_1")
    });
    for item in &items {
        item.claim(token).await?;
    }
    for item in &items {
        item.complete_for(token, SHORT).await?;
    }
    subject.pass(SHORT).await;

    let purged = subject.store().purge(100).await?;

    expect_eq("deleted", purged, 3)
}

async fn a_purge_keeps_what_is_not_forgotten(subject: Subject) -> Verdict {
    purge_all(&subject).await?;
    let (done, open) = (subject.item("done"), subject.item("open"));
    let (parked, taken) = (subject.item("parked"), subject.item("taken"));
    let token = Token::random();
    done.claim(token).await?;
    done.complete(token).await?;
    open.claim_for(token, Duration::ZERO).await?;
    parked.claim(token).await?;
    parked.park(token, "no").await?;
    taken.accept(b"body").await?;
    subject.take_for(token, Duration::ZERO, 1).await?;
    subject.item("waiting").accept(b"body").await?;
    subject.pass(SHORT).await;

    expect_eq("deleted", subject.store().purge(100).await?, 0)?;

    let state = done.claim(Token::random()).await?;
    expect_eq("the done event", state, ClaimState::Done)?;
    let state = open.claim(Token::random()).await?;
    expect_eq("the open event", state, ClaimState::Fresh { attempt: 2 })?;
    let state = parked.claim(Token::random()).await?;
    expect_eq("the parked event", state, ClaimState::Parked)?;
    let events = subject.take(Token::random()).await?;
    let mut events = ids(&events);
    events.sort_unstable();
    expect_eq("events to take", events, vec!["taken", "waiting"])
}

/// Deletes what earlier cases and runs left.
async fn purge_all(subject: &Subject) -> Verdict {
    // What other cases left is forgotten by then.
    subject.pass(SHORT * 2).await;
    for _ in 0..ROUNDS {
        let purged = subject.store().purge(1_000).await?;
        expect(purged <= 1_000, || {
            format!("a purge of at most 1,000 entries deleted {purged}")
        })?;
        if purged < 1_000 {
            return Ok(());
        }
    }
    Err(Failed(
        "purging 1,000 entries at a time does not end".to_owned(),
    ))
}
