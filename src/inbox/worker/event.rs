//! Handles one event that a worker took.

use std::error::Error;
use std::time::Duration;

use super::report::EventOutcome;
use super::settings::WorkerSettings;
use crate::inbox::attempt::Attempt;
use crate::inbox::error::{Failure, StoreError};
use crate::inbox::held;
use crate::inbox::shared::Shared;
use crate::inbox::store::{HeldClaim, Release, TakenEvent};
use crate::inbox::token::Token;
use crate::inbox::trace;
use crate::webhooks::Event;

pub(super) async fn handle<F, Fut, E>(
    shared: &Shared,
    settings: &WorkerSettings,
    taken: TakenEvent,
    token: Token,
    handler: &F,
) -> EventOutcome
where
    F: Fn(Event, Attempt) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let held = HeldClaim {
        key: shared.key(&taken.id),
        token,
    };
    let attempt = Attempt::new(taken.attempt, settings.attempts);
    if attempt.number() > settings.attempts {
        // An attempt that ends parks the event if it is the last, so this one ended with its process, or the store
        // was down then, or another worker makes more attempts.
        let reason = format!(
            "{} attempts were made without success, and the last may have ended with its process",
            attempt.number() - 1
        );
        return park(shared, held, &reason).await;
    }
    let event = match Event::from_unverified_json(&taken.body) {
        Ok(event) => event,
        Err(problem) => {
            let reason = format!("the stored body is not an event: {problem}");
            return park(shared, held, &reason).await;
        }
    };
    drop(taken.body);

    let handled = held::run(shared, held, async move { handler(event, attempt).await }).await;
    match handled {
        Ok(()) => complete(shared, held).await,
        Err(failure) => {
            shared.counters.failed.add_one();
            trace::failed(&shared.settings.endpoint, attempt, &failure);
            if attempt.is_last() {
                return park(shared, held, failure.reason()).await;
            }
            let delay = settings.backoff.after(attempt.number(), fastrand::f64());
            release(shared, held, delay, &failure).await
        }
    }
}

async fn complete(shared: &Shared, held: HeldClaim<'_>) -> EventOutcome {
    let outcome = match held::complete(shared, held).await {
        Ok(is_held) => held_or_lost(shared, is_held, EventOutcome::Handled),
        Err(_) => EventOutcome::Lost,
    };
    if matches!(outcome, EventOutcome::Handled) {
        shared.counters.handled.add_one();
    }
    outcome
}

async fn release(
    shared: &Shared,
    held: HeldClaim<'_>,
    delay: Duration,
    failure: &Failure,
) -> EventOutcome {
    let release = Release {
        delay,
        retention: shared.settings.retention,
        reason: failure.reason(),
    };
    let released = shared.store.release(held, release).await;
    ended(shared, "release", released, EventOutcome::Failed)
}

async fn park(shared: &Shared, held: HeldClaim<'_>, reason: &str) -> EventOutcome {
    let parked = shared.store.park(held, reason).await;
    let outcome = ended(shared, "park", parked, EventOutcome::Parked);
    if matches!(outcome, EventOutcome::Parked) {
        shared.counters.parked.add_one();
        trace::parked(&shared.settings.endpoint);
    }
    outcome
}

/// If the store failed, the claim ends with its lease.
fn ended(
    shared: &Shared,
    operation: &'static str,
    is_held: Result<bool, StoreError>,
    outcome: EventOutcome,
) -> EventOutcome {
    match is_held {
        Ok(is_held) => held_or_lost(shared, is_held, outcome),
        Err(error) => {
            shared.store_failed(operation, &error);
            EventOutcome::Lost
        }
    }
}

fn held_or_lost(shared: &Shared, is_held: bool, outcome: EventOutcome) -> EventOutcome {
    if is_held {
        return outcome;
    }
    shared.lease_lost();
    EventOutcome::Lost
}
