//! Events that are stored for a worker.

use std::time::Duration;

use super::super::case::cases;
use super::super::pace::{LONG, SHORT};
use super::super::subject::{Subject, ids};
use super::super::verdict::{Verdict, expect, expect_body, expect_eq};
use crate::inbox::store::{AcceptState, ClaimState};
use crate::inbox::token::Token;

cases! { Nothing:
    an_accepted_event_is_taken_with_its_body_as_attempt_1,
    an_event_that_is_accepted_again_is_repeated_and_taken_once,
    accepting_is_repeated_while_the_event_is_taken_done_or_parked,
    accepting_a_claimed_event_is_in_progress_and_stores_nothing,
    accepting_after_an_ended_lease_stores_the_event_and_keeps_its_attempts,
    accepting_after_an_ended_lease_ends_the_claim,
    an_accepted_event_can_be_claimed_by_its_id_and_is_then_not_taken,
    a_completed_event_has_no_body_any_more,
}

async fn an_accepted_event_is_taken_with_its_body_as_attempt_1(subject: Subject) -> Verdict {
    let accepted = subject.item("evt_1").accept(b"body").await?;
    expect_eq("accepting", accepted, AcceptState::Accepted)?;

    let taken = subject.take(Token::random()).await?;

    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 1)?;
    expect_body("its body", &taken[0].body, b"body")
}

async fn an_event_that_is_accepted_again_is_repeated_and_taken_once(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;

    let repeated = item.accept(b"body").await?;

    expect_eq("accepting again", repeated, AcceptState::Repeated)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take afterwards", taken.len(), 0)
}

async fn accepting_is_repeated_while_the_event_is_taken_done_or_parked(
    subject: Subject,
) -> Verdict {
    let (done, parked) = (subject.item("evt_1"), subject.item("evt_2"));
    done.accept(b"body").await?;
    parked.accept(b"body").await?;
    let token = Token::random();
    subject.take(token).await?;

    let repeated = done.accept(b"body").await?;
    expect_eq("accepting a taken event", repeated, AcceptState::Repeated)?;
    done.complete(token).await?;
    let repeated = done.accept(b"body").await?;
    expect_eq("accepting a done event", repeated, AcceptState::Repeated)?;
    parked.park(token, "no").await?;
    let repeated = parked.accept(b"body").await?;
    expect_eq("accepting a parked event", repeated, AcceptState::Repeated)?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)
}

async fn accepting_a_claimed_event_is_in_progress_and_stores_nothing(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;

    let state = item.accept(b"body").await?;
    let waits = matches!(state, AcceptState::InProgress { remaining } if remaining > LONG / 2);
    expect(waits, || {
        format!("accepting: expected to be in progress for about {LONG:?}, got {state:?}")
    })?;

    item.release(token, Duration::ZERO).await?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take after the release", taken.len(), 0)?;
    let state = item.claim(Token::random()).await?;
    expect_eq("a claim", state, ClaimState::Fresh { attempt: 2 })
}

async fn accepting_after_an_ended_lease_stores_the_event_and_keeps_its_attempts(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    item.claim_for(Token::random(), SHORT).await?;
    subject.pass(SHORT).await;

    let accepted = item.accept(b"body").await?;

    expect_eq("accepting", accepted, AcceptState::Accepted)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 2)
}

async fn accepting_after_an_ended_lease_ends_the_claim(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_for(token, Duration::ZERO).await?;
    item.accept(b"body").await?;

    expect_eq("completing late", item.complete(token).await?, false)?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])
}

async fn an_accepted_event_can_be_claimed_by_its_id_and_is_then_not_taken(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;

    let state = item.claim(Token::random()).await?;

    expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)?;
    let repeated = item.accept(b"body").await?;
    expect_eq("accepting again", repeated, AcceptState::Repeated)
}

async fn a_completed_event_has_no_body_any_more(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;
    let token = Token::random();
    subject.take(token).await?;
    item.complete_for(token, SHORT).await?;

    // A body that was kept shows when the id is used anew: the event would still be stored.
    let other = Token::random();
    item.claim_when_forgotten(other, None).await?;
    item.release(other, Duration::ZERO).await?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)?;
    item.claim(other).await?;
    item.park(other, "no").await?;
    let parked = subject.parked().await?;
    let has_body = parked.iter().any(|event| event.body.is_some());
    expect_eq("a stored body", has_body, false)
}
