//! Many callers at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;

use super::super::case::cases;
use super::super::item::Item;
use super::super::pace::SHORT;
use super::super::subject::Subject;
use super::super::verdict::{Failed, Verdict, expect, expect_eq};
use crate::inbox::store::{AcceptState, ClaimState};
use crate::inbox::token::Token;
use crate::webhooks::EventId;

cases! { Nothing:
    of_64_claimers_at_once_one_wins,
    of_64_claimers_at_the_end_of_a_lease_one_wins,
    of_64_claimers_of_a_released_event_one_wins,
    of_64_acceptors_at_once_one_stores_the_event,
    of_64_replays_at_once_one_succeeds,
    of_a_holder_and_a_claimer_that_race_at_most_one_goes_on,
}

const RACERS: usize = 64;

async fn of_64_claimers_at_once_one_wins(subject: Subject) -> Verdict {
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

async fn of_64_acceptors_at_once_one_stores_the_event(subject: Subject) -> Verdict {
    let states = race(&subject, "evt_1", |item| async move {
        item.accept(b"body").await.map_err(Failed::from)
    })
    .await?;

    let accepted = count(&states, |state| *state == AcceptState::Accepted);
    let repeated = count(&states, |state| *state == AcceptState::Repeated);
    expect_eq(
        "accepted and repeated",
        (accepted, repeated),
        (1, RACERS - 1),
    )?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 1)
}

async fn of_64_replays_at_once_one_succeeds(subject: Subject) -> Verdict {
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

async fn of_a_holder_and_a_claimer_that_race_at_most_one_goes_on(subject: Subject) -> Verdict {
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

/// Calls a closure in 64 tasks at once, through all handles.
async fn race<F, Fut, T>(subject: &Subject, id: &str, call: F) -> Result<Vec<T>, Failed>
where
    F: Fn(Item) -> Fut,
    Fut: Future<Output = Result<T, Failed>> + Send + 'static,
    T: Send + 'static,
{
    let id = EventId::try_from(id).expect("the ids of the cases are valid");
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
