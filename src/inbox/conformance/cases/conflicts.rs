//! One id with two bodies.

use std::time::Duration;

use super::super::case::cases;
use super::super::pace::LONG;
use super::super::subject::{Subject, ids};
use super::super::verdict::{Verdict, expect_eq};
use crate::inbox::store::{AcceptState, ClaimState};
use crate::inbox::token::Token;

cases! { Nothing:
    another_body_conflicts_with_a_claimed_event,
    another_body_conflicts_with_a_released_event,
    another_body_conflicts_with_a_done_event,
    another_body_conflicts_with_a_parked_event,
    another_body_conflicts_with_a_waiting_event,
    the_same_body_never_conflicts,
    an_unknown_fingerprint_never_conflicts_and_is_learned_by_the_next_claim,
    an_unknown_fingerprint_is_learned_when_the_event_is_accepted,
    a_claim_without_a_fingerprint_keeps_the_one_that_is_known,
}

async fn another_body_conflicts_with_a_claimed_event(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_body(token, b"first").await?;

    expect_conflict(&subject).await?;

    expect_eq("the holder completing", item.complete(token).await?, true)
}

async fn another_body_conflicts_with_a_released_event(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_body(token, b"first").await?;
    item.release(token, Duration::ZERO).await?;

    expect_conflict(&subject).await?;

    let state = item.claim_body(Token::random(), b"first").await?;
    expect_eq("the first body", state, ClaimState::Fresh { attempt: 2 })
}

async fn another_body_conflicts_with_a_done_event(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"first").await?;
    let token = Token::random();
    subject.take(token).await?;
    item.complete(token).await?;

    expect_conflict(&subject).await?;

    let state = item.claim_body(Token::random(), b"first").await?;
    expect_eq("the first body", state, ClaimState::Done)
}

async fn another_body_conflicts_with_a_parked_event(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"first").await?;
    let token = Token::random();
    subject.take(token).await?;
    item.park(token, "no").await?;

    expect_conflict(&subject).await?;

    let state = item.claim_body(Token::random(), b"first").await?;
    expect_eq("the first body", state, ClaimState::Parked)
}

async fn another_body_conflicts_with_a_waiting_event(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"first").await?;

    expect_conflict(&subject).await?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    let is_first = taken[0].body == b"first"[..];
    expect_eq("its body is the first", is_first, true)
}

async fn the_same_body_never_conflicts(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.accept(b"first").await?;
    subject.take(token).await?;

    let repeated = item.accept(b"first").await?;
    expect_eq(
        "accepting while it is handled",
        repeated,
        AcceptState::Repeated,
    )?;
    item.complete(token).await?;

    let state = item.claim_body(Token::random(), b"first").await?;
    expect_eq("claiming when it is done", state, ClaimState::Done)?;
    let repeated = item.accept(b"first").await?;
    expect_eq("accepting when it is done", repeated, AcceptState::Repeated)
}

async fn an_unknown_fingerprint_never_conflicts_and_is_learned_by_the_next_claim(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    item.claim_for(Token::random(), Duration::ZERO).await?;

    let token = Token::random();
    let state = item.claim_body(token, b"first").await?;
    let fresh = ClaimState::Fresh { attempt: 2 };
    expect_eq("the first claim with a body", state, fresh)?;

    expect_conflict(&subject).await?;
    expect_eq("the holder completing", item.complete(token).await?, true)
}

async fn an_unknown_fingerprint_is_learned_when_the_event_is_accepted(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.claim_for(Token::random(), Duration::ZERO).await?;

    let accepted = item.accept(b"first").await?;

    expect_eq("accepting", accepted, AcceptState::Accepted)?;
    expect_conflict(&subject).await
}

async fn a_claim_without_a_fingerprint_keeps_the_one_that_is_known(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_body(token, b"first").await?;
    item.release(token, Duration::ZERO).await?;

    let token = Token::random();
    let state = item.claim(token).await?;
    let fresh = ClaimState::Fresh { attempt: 2 };
    expect_eq("a claim without a body", state, fresh)?;
    item.complete_for(token, LONG).await?;

    expect_conflict(&subject).await
}

/// Claims and accepts `evt_1` with another body.
async fn expect_conflict(subject: &Subject) -> Verdict {
    let item = subject.item("evt_1");
    let state = item.claim_body(Token::random(), b"second").await?;
    expect_eq("claiming with another body", state, ClaimState::Conflict)?;
    let state = item.accept(b"second").await?;
    expect_eq("accepting another body", state, AcceptState::Conflict)
}
