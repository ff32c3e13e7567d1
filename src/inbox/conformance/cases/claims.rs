//! Claims, and their completion.

use super::super::case::cases;
use super::super::pace::LONG;
use super::super::subject::Subject;
use super::super::verdict::{Failed, Verdict, expect, expect_eq};
use crate::inbox::store::ClaimState;
use crate::inbox::token::Token;

cases! { Nothing:
    the_first_claim_of_an_event_is_fresh_with_attempt_1,
    a_claimed_event_is_in_progress_for_others_for_as_long_as_its_lease,
    claiming_again_with_the_same_token_is_fresh_with_the_same_attempt,
    a_completed_event_is_done_for_everybody,
    completing_twice_with_the_same_token_is_no_error,
    another_token_cannot_complete_a_done_event,
    a_done_event_can_no_longer_be_extended_released_or_parked,
    another_token_cannot_change_a_claimed_event,
    an_event_that_was_never_claimed_cannot_be_changed,
    a_claim_changes_no_other_event,
    a_claim_changes_no_other_endpoint,
}

async fn the_first_claim_of_an_event_is_fresh_with_attempt_1(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");

    let state = item.claim(Token::random()).await?;

    expect_eq("a first claim", state, ClaimState::Fresh { attempt: 1 })
}

async fn a_claimed_event_is_in_progress_for_others_for_as_long_as_its_lease(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    item.claim(Token::random()).await?;

    let state = item.claim(Token::random()).await?;

    expect_long_wait("a second claim", state)
}

async fn claiming_again_with_the_same_token_is_fresh_with_the_same_attempt(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();

    for _ in 0..3 {
        let state = item.claim(token).await?;
        expect_eq(
            "a claim that is asked for again",
            state,
            ClaimState::Fresh { attempt: 1 },
        )?;
    }

    expect_eq("completing it", item.complete(token).await?, true)
}

async fn a_completed_event_is_done_for_everybody(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;

    expect_eq("completing", item.complete(token).await?, true)?;

    for token in [token, Token::random()] {
        let state = item.claim(token).await?;
        expect_eq("a claim of a done event", state, ClaimState::Done)?;
    }
    Ok(())
}

async fn completing_twice_with_the_same_token_is_no_error(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;

    for _ in 0..3 {
        expect_eq("completing", item.complete(token).await?, true)?;
    }
    Ok(())
}

async fn another_token_cannot_complete_a_done_event(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    item.complete(token).await?;

    let completed = item.complete(Token::random()).await?;

    expect_eq("completing with another token", completed, false)?;
    expect_eq(
        "the holder completing again",
        item.complete(token).await?,
        true,
    )
}

async fn a_done_event_can_no_longer_be_extended_released_or_parked(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    item.complete(token).await?;

    expect_eq("extending", item.extend(token, LONG).await?, false)?;
    expect_eq("releasing", item.release(token, LONG).await?, false)?;
    expect_eq("parking", item.park(token, "no").await?, false)?;
    let state = item.claim(Token::random()).await?;
    expect_eq("a claim afterwards", state, ClaimState::Done)
}

async fn another_token_cannot_change_a_claimed_event(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let (token, other) = (Token::random(), Token::random());
    item.claim(token).await?;

    expect_eq("completing", item.complete(other).await?, false)?;
    expect_eq("releasing", item.release(other, LONG).await?, false)?;
    expect_eq("parking", item.park(other, "no").await?, false)?;
    let extended = item.extend(other, std::time::Duration::ZERO).await?;
    expect_eq("extending", extended, false)?;
    expect_eq("replaying", item.replay().await?, false)?;
    expect_eq("discarding", item.discard().await?, false)?;

    expect_long_wait("a claim afterwards", item.claim(other).await?)?;
    expect_eq("the holder completing", item.complete(token).await?, true)
}

async fn an_event_that_was_never_claimed_cannot_be_changed(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();

    expect_eq("completing", item.complete(token).await?, false)?;
    expect_eq("extending", item.extend(token, LONG).await?, false)?;
    expect_eq("releasing", item.release(token, LONG).await?, false)?;
    expect_eq("parking", item.park(token, "no").await?, false)?;
    expect_eq("replaying", item.replay().await?, false)?;
    expect_eq("discarding", item.discard().await?, false)?;

    let state = item.claim(Token::random()).await?;
    expect_eq(
        "a claim afterwards",
        state,
        ClaimState::Fresh { attempt: 1 },
    )
}

async fn a_claim_changes_no_other_event(subject: Subject) -> Verdict {
    let (one, two) = (subject.item("evt_1"), subject.item("evt_2"));
    let token = Token::random();
    one.claim(token).await?;

    expect_eq("the other completing", two.complete(token).await?, false)?;
    let state = two.claim(token).await?;
    expect_eq("the other claim", state, ClaimState::Fresh { attempt: 1 })?;
    one.complete(token).await?;

    expect_long_wait("the other afterwards", two.claim(Token::random()).await?)
}

async fn a_claim_changes_no_other_endpoint(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let elsewhere = subject
        .endpoint(&format!("{}, elsewhere", subject.endpoint))
        .item("evt_1");
    let token = Token::random();
    item.claim(token).await?;

    let completed = elsewhere.complete(token).await?;
    expect_eq("completing at the other endpoint", completed, false)?;
    let state = elsewhere.claim(token).await?;
    let fresh = ClaimState::Fresh { attempt: 1 };
    expect_eq("a claim at the other endpoint", state, fresh)?;
    item.complete(token).await?;

    expect_long_wait(
        "the other endpoint",
        elsewhere.claim(Token::random()).await?,
    )
}

/// Expects that an event is in progress for about the long time.
fn expect_long_wait(what: &str, state: ClaimState) -> Result<(), Failed> {
    let slack = std::time::Duration::from_secs(1);
    let waits = matches!(state, ClaimState::InProgress { remaining }
        if remaining > LONG / 2 && remaining <= LONG + slack);
    expect(waits, || {
        format!("{what}: expected to be in progress for at most {LONG:?}, got {state:?}")
    })
}
