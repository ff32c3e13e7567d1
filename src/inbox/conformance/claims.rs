//! Claims: who gets them, how long they last, and what is remembered of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;

use super::{Failed, Item, LONG, SHORT, Subject, Verdict, expect, expect_eq, ids};
use crate::inbox::store::{AcceptState, ClaimState, Fingerprint, Release, Token};
use crate::webhooks::EventId;

cases! { CLAIMS, Nothing:
    the_first_claim_of_an_event_is_fresh_with_attempt_1,
    a_claimed_event_is_in_progress_for_others_for_as_long_as_its_lease,
    claiming_again_with_the_same_token_is_fresh_with_the_same_attempt,
    a_completed_event_is_done_for_all_callers,
    completing_twice_with_the_same_token_is_no_error,
    another_token_cannot_complete_a_done_event,
    a_done_event_can_no_longer_be_extended_released_or_parked,
    another_token_cannot_change_a_claimed_event,
    an_event_that_was_never_claimed_cannot_be_changed,
    a_claim_changes_no_other_event,
    a_claim_changes_no_other_endpoint,
    the_state_of_an_event_is_what_a_claim_would_find,
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

async fn a_completed_event_is_done_for_all_callers(subject: Subject) -> Verdict {
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
    let extended = item.extend(other, Duration::ZERO).await?;
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

async fn the_state_of_an_event_is_what_a_claim_would_find(subject: Subject) -> Verdict {
    let fresh = |attempt| ClaimState::Fresh { attempt };
    let token = Token::random();

    let item = subject.item("evt_1");
    for _ in 0..2 {
        expect_eq("a new event", item.state(None).await?, fresh(1))?;
    }
    expect_eq(
        "its claim",
        item.claim_body(token, b"body").await?,
        fresh(1),
    )?;
    expect_long_wait("a claimed event", item.state(None).await?)?;
    let elsewhere = subject.endpoint(&format!("{}, elsewhere", subject.endpoint));
    let state = elsewhere.item("evt_1").state(None).await?;
    expect_eq("the same id at another endpoint", state, fresh(1))?;
    expect_eq("completing", item.complete(token).await?, true)?;
    for (body, expected) in [
        (None, ClaimState::Done),
        (Some(&b"body"[..]), ClaimState::Done),
        (Some(&b"another body"[..]), ClaimState::Conflict),
    ] {
        expect_eq("a done event", item.state(body).await?, expected)?;
    }

    let waiting = subject.item("evt_2");
    waiting.accept(b"body").await?;
    let state = waiting.state(Some(b"another body")).await?;
    expect_eq("another body", state, ClaimState::Conflict)?;
    let state = waiting.state(Some(b"body")).await?;
    expect_eq("an accepted event", state, fresh(1))?;

    let parked = subject.item("evt_3");
    parked.claim(token).await?;
    parked.park(token, "no").await?;
    let state = parked.state(None).await?;
    expect_eq("a parked event", state, ClaimState::Parked)?;

    let late = subject.item("evt_4");
    let first = Some(Fingerprint::of(b"body"));
    late.claim_with(token, Duration::ZERO, LONG, first).await?;
    let state = late.state(Some(b"another body")).await?;
    expect_eq("an ended lease", state, fresh(2))?;

    let forgotten = subject.item("evt_5");
    forgotten.claim(token).await?;
    forgotten.complete_for(token, Duration::ZERO).await?;
    expect_eq("a forgotten event", forgotten.state(None).await?, fresh(1))
}

/// Expects that an event is in progress for about the long time.
fn expect_long_wait(what: &str, state: ClaimState) -> Result<(), Failed> {
    let slack = Duration::from_secs(1);
    let waits = matches!(state, ClaimState::InProgress { remaining }
        if remaining > LONG / 2 && remaining <= LONG + slack);
    expect(waits, || {
        format!("{what}: expected to be in progress for at most {LONG:?}, got {state:?}")
    })
}

cases! { LEASES, Nothing:
    an_event_can_be_claimed_again_after_its_lease,
    a_lease_of_zero_ends_immediately,
    the_same_token_after_the_lease_is_another_attempt,
    a_holder_that_was_replaced_changes_nothing,
    a_late_holder_that_nobody_replaced_completes,
    a_late_holder_that_nobody_replaced_releases,
    a_late_holder_that_nobody_replaced_parks,
    a_late_holder_that_nobody_replaced_extends_and_is_alone_again,
    extending_prolongs_a_lease,
    extending_can_shorten_a_lease,
    releasing_without_delay_makes_an_event_claimable_immediately,
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

async fn a_lease_of_zero_ends_immediately(subject: Subject) -> Verdict {
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

async fn releasing_without_delay_makes_an_event_claimable_immediately(subject: Subject) -> Verdict {
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

cases! { RACES, Nothing:
    of_64_simultaneous_claimers_one_wins,
    of_64_claimers_at_the_end_of_a_lease_one_wins,
    of_64_claimers_of_a_released_event_one_wins,
    of_64_bodies_of_a_released_event_one_is_claimed,
    of_64_bodies_of_a_released_event_one_is_stored,
    of_64_simultaneous_acceptors_one_stores_the_event,
    of_64_simultaneous_replays_one_succeeds,
    of_a_holder_and_a_claimer_that_race_at_most_one_succeeds,
}

const RACERS: usize = 64;

async fn of_64_simultaneous_claimers_one_wins(subject: Subject) -> Verdict {
    for round in 0..5 {
        let id = format!("evt_{round}");
        let states = race(&subject, &id, |item| async move {
            item.claim(Token::random()).await.map_err(Failed::from)
        })
        .await?;

        expect_one_fresh(&states, 1)?;
    }
    Ok(())
}

async fn of_64_claimers_at_the_end_of_a_lease_one_wins(subject: Subject) -> Verdict {
    for round in 0..3 {
        let id = format!("evt_{round}");
        subject.item(&id).claim_for(Token::random(), SHORT).await?;

        let states = race(&subject, &id, |item| async move {
            let token = Token::random();
            item.claim_when_free(token).await.map_err(Failed::from)
        })
        .await?;

        expect_one_fresh(&states, 2)?;
    }
    Ok(())
}

async fn of_64_claimers_of_a_released_event_one_wins(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    item.release(token, Duration::ZERO).await?;

    let states = race(&subject, "evt_1", |item| async move {
        item.claim(Token::random()).await.map_err(Failed::from)
    })
    .await?;

    expect_one_fresh(&states, 2)
}

async fn of_64_bodies_of_a_released_event_one_is_claimed(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_body(token, b"body").await?;
    item.release(token, Duration::ZERO).await?;

    let states = race(&subject, "evt_1", |item| async move {
        let token = Token::random();
        let claimed = item.claim_body(token, token.as_bytes()).await;
        claimed.map_err(Failed::from)
    })
    .await?;

    let fresh = count(&states, |state| *state == ClaimState::Fresh { attempt: 2 });
    let conflicts = count(&states, |state| *state == ClaimState::Conflict);
    let expected = (1, RACERS - 1);
    expect_eq("claims and conflicts", (fresh, conflicts), expected)
}

async fn of_64_bodies_of_a_released_event_one_is_stored(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_body(token, b"body").await?;
    item.release(token, Duration::ZERO).await?;

    let states = race(&subject, "evt_1", |item| async move {
        let accepted = item.accept(Token::random().as_bytes()).await;
        accepted.map_err(Failed::from)
    })
    .await?;

    let accepted = count(&states, |state| *state == AcceptState::Accepted);
    let conflicts = count(&states, |state| *state == AcceptState::Conflict);
    let expected = (1, RACERS - 1);
    expect_eq("accepted and conflicts", (accepted, conflicts), expected)
}

async fn of_64_simultaneous_acceptors_one_stores_the_event(subject: Subject) -> Verdict {
    let states = race(&subject, "evt_1", |item| async move {
        item.accept(b"body").await.map_err(Failed::from)
    })
    .await?;

    let accepted = count(&states, |state| *state == AcceptState::Accepted);
    let duplicate = count(&states, |state| *state == AcceptState::Duplicate);
    expect_eq(
        "accepted and duplicate",
        (accepted, duplicate),
        (1, RACERS - 1),
    )?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 1)
}

async fn of_64_simultaneous_replays_one_succeeds(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    item.park(token, "no").await?;

    let replayed = race(&subject, "evt_1", |item| async move {
        item.replay().await.map_err(Failed::from)
    })
    .await?;

    let succeeded = count(&replayed, |replayed| *replayed);
    expect_eq("replays that found a parked event", succeeded, 1)
}

async fn of_a_holder_and_a_claimer_that_race_at_most_one_succeeds(subject: Subject) -> Verdict {
    for round in 0..20 {
        let id = format!("evt_{round}");
        let token = Token::random();
        subject.item(&id).claim_for(token, Duration::ZERO).await?;

        let id = EventId::try_from(id).expect("the ids of the cases are valid");
        let (holder, claimer) = (subject.item_through(0, &id), subject.item_through(1, &id));
        let completing = tokio::spawn(async move { holder.complete(token).await });
        let claiming = tokio::spawn(async move { claimer.claim(Token::random()).await });
        let completed = completing.await.map_err(panicked)??;
        let claimed = claiming.await.map_err(panicked)??;

        let is_one = match claimed {
            ClaimState::Fresh { attempt: 2 } => !completed,
            ClaimState::Done => completed,
            _ => false,
        };
        expect(is_one, || {
            format!("the holder completed: {completed}; the other claim: {claimed:?}")
        })?;
    }
    Ok(())
}

/// Calls a closure in 64 tasks simultaneously, through all handles.
async fn race<F, Fut, T>(subject: &Subject, id: &str, call: F) -> Result<Vec<T>, Failed>
where
    F: Fn(Item) -> Fut,
    Fut: Future<Output = Result<T, Failed>> + Send + 'static,
    T: Send + 'static,
{
    let id = EventId::try_from(id).expect("the ids of the cases are valid");
    // Without the barrier, the first call would end before the last one begins.
    let start = Arc::new(Barrier::new(RACERS));
    let mut racers = Vec::with_capacity(RACERS);
    for racer in 0..RACERS {
        let call = call(subject.item_through(racer, &id));
        let start = Arc::clone(&start);
        racers.push(tokio::spawn(async move {
            start.wait().await;
            call.await
        }));
    }
    let mut results = Vec::with_capacity(RACERS);
    for racer in racers {
        results.push(racer.await.map_err(panicked)??);
    }
    Ok(results)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn panicked(error: tokio::task::JoinError) -> Failed {
    Failed(format!("a call panicked: {error}"))
}

fn expect_one_fresh(states: &[ClaimState], attempt: u32) -> Verdict {
    let fresh = count(states, |state| *state == ClaimState::Fresh { attempt });
    let in_progress = count(states, |state| {
        matches!(state, ClaimState::InProgress { .. })
    });
    expect_eq(
        format!("claims fresh with attempt {attempt}, and in progress"),
        (fresh, in_progress),
        (1, RACERS - 1),
    )
}

fn count<T>(results: &[T], is_counted: impl Fn(&T) -> bool) -> usize {
    results.iter().filter(|result| is_counted(result)).count()
}

cases! { RETENTION, Nothing:
    a_done_event_is_new_after_its_retention,
    a_done_event_is_new_to_accept_after_its_retention,
    a_done_event_is_kept_for_the_retention_of_its_completion,
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

async fn a_done_event_is_kept_for_the_retention_of_its_completion(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_with(token, LONG, SHORT, None).await?;
    item.complete(token).await?;
    // This changes nothing: a holder that lost its response completes again, whenever that is.
    item.complete_for(token, SHORT).await?;
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

cases! { CONFLICTS, Nothing:
    another_body_conflicts_with_a_claimed_event,
    another_body_conflicts_with_a_delayed_event,
    another_body_conflicts_with_a_done_event,
    another_body_conflicts_with_a_parked_event,
    another_body_conflicts_with_a_waiting_event,
    another_body_of_a_released_event_is_claimed_and_counts_from_then_on,
    another_body_of_an_event_whose_lease_ended_is_claimed_and_counts_from_then_on,
    another_body_of_an_event_whose_lease_ended_is_accepted_and_counts_from_then_on,
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

async fn another_body_conflicts_with_a_delayed_event(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_body(token, b"first").await?;
    item.release(token, LONG).await?;

    expect_conflict(&subject).await?;

    let state = item.claim_body(Token::random(), b"first").await?;
    expect_in_progress("the first body", state)
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

async fn another_body_of_a_released_event_is_claimed_and_counts_from_then_on(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_body(token, b"zeroth").await?;
    item.release(token, Duration::ZERO).await?;

    expect_first_claimed(&subject).await
}

async fn another_body_of_an_event_whose_lease_ended_is_claimed_and_counts_from_then_on(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    let zeroth = Some(Fingerprint::of(b"zeroth"));
    let late = Token::random();
    item.claim_with(late, Duration::ZERO, LONG, zeroth).await?;

    expect_first_claimed(&subject).await?;

    expect_eq("completing late", item.complete(late).await?, false)
}

async fn another_body_of_an_event_whose_lease_ended_is_accepted_and_counts_from_then_on(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    let zeroth = Some(Fingerprint::of(b"zeroth"));
    let late = Token::random();
    item.claim_with(late, Duration::ZERO, LONG, zeroth).await?;

    let accepted = item.accept(b"first").await?;

    expect_eq("accepting", accepted, AcceptState::Accepted)?;
    expect_conflict(&subject).await?;
    let duplicate = item.accept(b"first").await?;
    expect_eq("accepting again", duplicate, AcceptState::Duplicate)?;
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

    let duplicate = item.accept(b"first").await?;
    expect_eq(
        "accepting while it is handled",
        duplicate,
        AcceptState::Duplicate,
    )?;
    item.complete(token).await?;

    let state = item.claim_body(Token::random(), b"first").await?;
    expect_eq("claiming when it is done", state, ClaimState::Done)?;
    let duplicate = item.accept(b"first").await?;
    expect_eq(
        "accepting when it is done",
        duplicate,
        AcceptState::Duplicate,
    )
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

/// Claims `evt_1` with a body that is not the one of its first attempt, and completes it.
async fn expect_first_claimed(subject: &Subject) -> Verdict {
    let (item, token) = (subject.item("evt_1"), Token::random());

    for _ in 0..2 {
        let state = item.claim_body(token, b"first").await?;
        let fresh = ClaimState::Fresh { attempt: 2 };
        expect_eq("a claim with the next body", state, fresh)?;
    }

    expect_conflict(subject).await?;
    expect_eq("the holder completing", item.complete(token).await?, true)?;
    expect_conflict(subject).await?;
    let state = item.claim_body(Token::random(), b"first").await?;
    expect_eq("the handled body", state, ClaimState::Done)
}

/// Claims and accepts `evt_1` with another body.
async fn expect_conflict(subject: &Subject) -> Verdict {
    let item = subject.item("evt_1");
    let state = item.claim_body(Token::random(), b"second").await?;
    expect_eq("claiming with another body", state, ClaimState::Conflict)?;
    let state = item.accept(b"second").await?;
    expect_eq("accepting another body", state, AcceptState::Conflict)
}
