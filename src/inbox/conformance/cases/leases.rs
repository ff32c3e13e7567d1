//! Leases: their end, and who holds a claim then.

use std::time::Duration;

use super::super::case::cases;
use super::super::pace::{LONG, SHORT};
use super::super::subject::Subject;
use super::super::verdict::{Verdict, expect, expect_eq};
use crate::inbox::store::ClaimState;
use crate::inbox::token::Token;

cases! { Nothing:
    an_event_can_be_claimed_again_after_its_lease,
    a_lease_of_zero_ends_at_once,
    the_same_token_after_the_lease_is_another_attempt,
    a_holder_that_was_replaced_changes_nothing,
    a_late_holder_that_nobody_replaced_completes,
    a_late_holder_that_nobody_replaced_releases,
    a_late_holder_that_nobody_replaced_parks,
    a_late_holder_that_nobody_replaced_extends_and_is_alone_again,
    extending_prolongs_a_lease,
    extending_can_shorten_a_lease,
    releasing_without_delay_makes_an_event_claimable_at_once,
    releasing_with_a_delay_makes_an_event_claimable_after_it,
    a_released_claim_is_no_longer_held,
    attempts_are_counted_over_releases_and_ended_leases,
}

async fn an_event_can_be_claimed_again_after_its_lease(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.claim_for(Token::random(), SHORT).await?;

    let state = item.claim_when_free(Token::random()).await?;

    expect_eq("the next claim", state, ClaimState::Fresh { attempt: 2 })
}

async fn a_lease_of_zero_ends_at_once(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let state = item.claim_for(Token::random(), Duration::ZERO).await?;
    expect_eq("the claim", state, ClaimState::Fresh { attempt: 1 })?;

    let state = item.claim(Token::random()).await?;

    expect_eq("the next claim", state, ClaimState::Fresh { attempt: 2 })
}

async fn the_same_token_after_the_lease_is_another_attempt(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_for(token, Duration::ZERO).await?;

    let state = item.claim(token).await?;

    expect_eq("the next claim", state, ClaimState::Fresh { attempt: 2 })
}

async fn a_holder_that_was_replaced_changes_nothing(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let (late, holder) = (Token::random(), Token::random());
    item.claim_for(late, SHORT).await?;
    item.claim_when_free(holder).await?;

    expect_eq("completing late", item.complete(late).await?, false)?;
    let extended = item.extend(late, Duration::ZERO).await?;
    expect_eq("extending late", extended, false)?;
    let released = item.release(late, Duration::ZERO).await?;
    expect_eq("releasing late", released, false)?;
    expect_eq("parking late", item.park(late, "no").await?, false)?;

    let state = item.claim(Token::random()).await?;
    expect_in_progress("a claim afterwards", state)?;
    let state = item.claim(holder).await?;
    let fresh = ClaimState::Fresh { attempt: 2 };
    expect_eq("the holder claiming again", state, fresh)?;
    expect_eq("the holder completing", item.complete(holder).await?, true)?;
    expect_eq("completing late again", item.complete(late).await?, false)
}

async fn a_late_holder_that_nobody_replaced_completes(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_for(token, SHORT).await?;
    subject.pass(SHORT).await;

    expect_eq("completing", item.complete(token).await?, true)?;

    let state = item.claim(Token::random()).await?;
    expect_eq("a claim afterwards", state, ClaimState::Done)
}

async fn a_late_holder_that_nobody_replaced_releases(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_for(token, SHORT).await?;
    subject.pass(SHORT).await;

    expect_eq("releasing", item.release(token, LONG).await?, true)?;

    let state = item.claim(Token::random()).await?;
    expect_in_progress("a claim during the delay", state)
}

async fn a_late_holder_that_nobody_replaced_parks(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_for(token, SHORT).await?;
    subject.pass(SHORT).await;

    expect_eq("parking", item.park(token, "no").await?, true)?;

    let state = item.claim(Token::random()).await?;
    expect_eq("a claim afterwards", state, ClaimState::Parked)
}

async fn a_late_holder_that_nobody_replaced_extends_and_is_alone_again(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_for(token, SHORT).await?;
    subject.pass(SHORT).await;

    expect_eq("extending", item.extend(token, LONG).await?, true)?;

    let state = item.claim(Token::random()).await?;
    expect_in_progress("a claim afterwards", state)?;
    expect_eq("completing", item.complete(token).await?, true)
}

async fn extending_prolongs_a_lease(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_for(token, SHORT).await?;

    expect_eq("extending", item.extend(token, LONG).await?, true)?;
    subject.pass(SHORT).await;

    let state = item.claim(Token::random()).await?;
    expect_in_progress("a claim after the first lease", state)?;
    let state = item.claim(token).await?;
    let fresh = ClaimState::Fresh { attempt: 1 };
    expect_eq("the holder claiming again", state, fresh)
}

async fn extending_can_shorten_a_lease(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;

    expect_eq("extending", item.extend(token, SHORT).await?, true)?;

    let state = item.claim_when_free(Token::random()).await?;
    expect_eq("the next claim", state, ClaimState::Fresh { attempt: 2 })
}

async fn releasing_without_delay_makes_an_event_claimable_at_once(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;

    let released = item.release(token, Duration::ZERO).await?;
    expect_eq("releasing", released, true)?;

    let state = item.claim(Token::random()).await?;
    expect_eq("the next claim", state, ClaimState::Fresh { attempt: 2 })
}

async fn releasing_with_a_delay_makes_an_event_claimable_after_it(subject: Subject) -> Verdict {
    let (slow, quick) = (subject.item("evt_1"), subject.item("evt_2"));
    let token = Token::random();
    slow.claim(token).await?;
    quick.claim(token).await?;

    slow.release(token, LONG).await?;
    quick.release(token, SHORT).await?;

    let state = slow.claim(Token::random()).await?;
    expect_in_progress("a claim during the delay", state)?;
    let state = quick.claim_when_free(Token::random()).await?;
    let fresh = ClaimState::Fresh { attempt: 2 };
    expect_eq("a claim after the delay", state, fresh)
}

async fn a_released_claim_is_no_longer_held(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    item.release(token, LONG).await?;

    expect_eq("completing", item.complete(token).await?, false)?;
    expect_eq("extending", item.extend(token, LONG).await?, false)?;
    let released = item.release(token, Duration::ZERO).await?;
    expect_eq("releasing again", released, false)?;
    expect_eq("parking", item.park(token, "no").await?, false)?;

    let state = item.claim(token).await?;
    expect_in_progress("a claim with its token during the delay", state)
}

async fn attempts_are_counted_over_releases_and_ended_leases(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    for round in 0..5 {
        let token = Token::random();
        let state = item.claim_for(token, Duration::ZERO).await?;
        let attempt = round * 2 + 1;
        expect_eq("a claim", state, ClaimState::Fresh { attempt })?;

        let token = Token::random();
        let state = item.claim(token).await?;
        let attempt = round * 2 + 2;
        let fresh = ClaimState::Fresh { attempt };
        expect_eq("a claim after an ended lease", state, fresh)?;
        item.release(token, Duration::ZERO).await?;
    }
    Ok(())
}

/// Expects that an event is in progress for a long time.
fn expect_in_progress(what: &str, state: ClaimState) -> Verdict {
    let is_long = matches!(state, ClaimState::InProgress { remaining } if remaining > LONG / 2);
    expect(is_long, || {
        format!("{what}: expected to be in progress for about {LONG:?}, got {state:?}")
    })
}
