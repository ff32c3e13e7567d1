//! The calls that the page shows a server with: the page itself, its stream of changes, and what is set up.

use serde_json::{Value, json};

use super::call::{Call, CallResult, ok};
use super::change_stream::ChangeStream;
use crate::mock::delivery::SigningClock;
use crate::mock::page;
use crate::mock::service::refusal::Refusal;
use crate::mock::state::State;

pub(super) fn page(_call: &Call<'_>) -> CallResult {
    Ok(page::response())
}

pub(super) fn stream(call: &Call<'_>) -> Result<ChangeStream, Refusal> {
    match call.shared.changes.watch() {
        Some(changes) => Ok(ChangeStream::new(changes)),
        None => {
            let message = "too many streams are open; close one";
            Err(Refusal::new(503, "service_unavailable", message))
        }
    }
}

/// Returns the clock, the settings, the faults, and how many items each list has.
pub(super) fn overview(call: &Call<'_>) -> CallResult {
    let clock = &call.shared.clock;
    let state = call.shared.lock();
    let (events, attempts) = state.deliveries.counts();
    let signing_clock = match state.deliveries.signing_clock {
        SigningClock::Mock => "mock",
        SigningClock::Wall => "wall",
    };
    Ok(ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": clock.now(),
        "clock": if clock.is_stopped() { "stopped" } else { "running" },
        "signing_clock": signing_clock,
        "key_header": state.audience.key_header(),
        "ceiling": state.audience.ceiling(),
        "counts": {
            "contacts": state.audience.contact_count(),
            "topics": state.audience.topics().count(),
            "emails": state.audience.mail_count(),
            "events": events,
            "attempts": attempts,
            "requests": state.journal.len(),
        },
        "endpoints": endpoints(&state),
        "faults": state.faults,
        "delivery_faults": state.deliveries.faults,
    })))
}

pub(super) fn list_topics(call: &Call<'_>) -> CallResult {
    let state = call.shared.lock();
    let topics = state.audience.topics();
    let data: Vec<_> = topics
        .map(|(name, default)| json!({"name": name, "default": default}))
        .collect();
    Ok(ok(&json!({"data": data})))
}

pub(super) fn list_segments(call: &Call<'_>) -> CallResult {
    let segments = call.shared.lock().audience.segments();
    Ok(ok(&json!({"data": segments})))
}

pub(super) fn list_endpoints(call: &Call<'_>) -> CallResult {
    let endpoints = endpoints(&call.shared.lock());
    Ok(ok(&json!({"data": endpoints})))
}

pub(super) fn list_faults(call: &Call<'_>) -> CallResult {
    Ok(ok(&json!({"data": call.shared.lock().faults})))
}

pub(super) fn list_delivery_faults(call: &Call<'_>) -> CallResult {
    Ok(ok(&json!({"data": call.shared.lock().deliveries.faults})))
}

/// Returns the endpoints without their secrets.
fn endpoints(state: &State) -> Vec<Value> {
    let endpoints = state.deliveries.endpoints.iter();
    endpoints
        .map(|endpoint| json!({"name": endpoint.name, "url": endpoint.target.url()}))
        .collect()
}
