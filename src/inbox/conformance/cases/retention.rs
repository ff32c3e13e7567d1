//! How long entries are remembered.

use std::time::Duration;

use super::super::case::cases;
use super::super::pace::{LONG, SHORT};
use super::super::subject::{Subject, ids};
use super::super::verdict::{Failed, Verdict, expect_eq};
use crate::inbox::store::{AcceptState, ClaimState, Release};
use crate::inbox::token::{Fingerprint, Token};

cases! { Nothing:
    a_done_event_is_new_after_its_retention,
    a_done_event_is_new_to_accept_after_its_retention,
    the_retention_of_a_done_event_is_that_of_its_completion,
    a_claim_that_was_given_up_is_forgotten_after_its_retention,
    a_released_event_is_forgotten_after_its_retention,
    extending_a_lease_puts_off_its_retention,
    an_accepted_event_is_not_forgotten,
    a_parked_event_is_not_forgotten,
    a_forgotten_event_conflicts_with_no_body,
}

async fn a_done_event_is_new_after_its_retention(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    item.release(token, Duration::ZERO).await?;
    let token = Token::random();
    item.claim(token).await?;
    item.complete_for(token, SHORT).await?;

    let state = item.claim_when_forgotten(Token::random(), None).await?;

    expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })
}

async fn a_done_event_is_new_to_accept_after_its_retention(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"first").await?;
    let token = Token::random();
    subject.take(token).await?;
    item.complete_for(token, SHORT).await?;
    subject.pass(SHORT).await;

    let accepted = item.accept(b"second").await?;

    expect_eq("accepting again", accepted, AcceptState::Accepted)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 1)?;
    let is_second = taken[0].body == b"second"[..];
    expect_eq("its body is the second", is_second, true)
}

async fn the_retention_of_a_done_event_is_that_of_its_completion(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_with(token, LONG, SHORT, None).await?;
    item.complete(token).await?;
    subject.pass(SHORT).await;

    let state = item.claim(Token::random()).await?;

    expect_eq("a claim of a done event", state, ClaimState::Done)
}

async fn a_claim_that_was_given_up_is_forgotten_after_its_retention(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.claim_with(Token::random(), SHORT, SHORT, None).await?;
    subject.pass(SHORT * 2).await;

    let state = item.claim(Token::random()).await?;

    expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })
}

async fn a_released_event_is_forgotten_after_its_retention(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    let release = Release {
        delay: SHORT,
        retention: SHORT,
        reason: "no",
    };
    item.store.release(item.held(token), release).await?;
    subject.pass(SHORT * 2).await;

    let state = item.claim(Token::random()).await?;

    expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })
}

async fn extending_a_lease_puts_off_its_retention(subject: Subject) -> Verdict {
    for round in 0..10 {
        let item = subject.item(&format!("evt_{round}"));
        let token = Token::random();
        let time = SHORT * 2_u32.pow(round);
        item.claim_with(token, time, time, None).await?;
        if !item.extend(token, LONG).await? {
            // On a machine this slow the event may be forgotten by now.
            continue;
        }

        subject.pass(time * 2).await;
        subject.store().purge(1_000).await?;

        return expect_eq("completing", item.complete(token).await?, true);
    }
    Err(Failed(
        "extending a new claim: expected true, got false".to_owned(),
    ))
}

async fn a_parked_event_is_not_forgotten(subject: Subject) -> Verdict {
    for round in 0..10 {
        let item = subject.item(&format!("evt_{round}"));
        let token = Token::random();
        let time = SHORT * 2_u32.pow(round);
        item.claim_with(token, time, time, None).await?;
        if !item.park(token, "no").await? {
            // On a machine this slow the event may be forgotten by now.
            continue;
        }

        subject.pass(time * 2).await;
        subject.store().purge(1_000).await?;

        let state = item.claim(Token::random()).await?;
        return expect_eq("a claim", state, ClaimState::Parked);
    }
    Err(Failed(
        "parking a new claim: expected true, got false".to_owned(),
    ))
}

async fn an_accepted_event_is_not_forgotten(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_with(token, Duration::ZERO, LONG, None).await?;
    item.accept(b"body").await?;
    subject.take(token).await?;
    let release = Release {
        delay: Duration::ZERO,
        retention: Duration::ZERO,
        reason: "no",
    };
    item.store.release(item.held(token), release).await?;
    subject.pass(SHORT).await;
    subject.store().purge(1_000).await?;

    let taken = subject.take(Token::random()).await?;

    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 3)
}

async fn a_forgotten_event_conflicts_with_no_body(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_body(token, b"first").await?;
    item.complete_for(token, SHORT).await?;

    let second = Some(Fingerprint::of(b"second"));
    let state = item.claim_when_forgotten(Token::random(), second).await?;

    expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })
}
