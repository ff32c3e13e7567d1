//! The same event more than once, and two events that look the same (interface section 6.5).

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::delivery::{self, Outcome, Outgoing};
use super::event_bodies::SampleEvent;
use super::genuine::with_expectation;
use super::grade::{Effect, Finding, Grade};
use super::response_grade::{accepted, not_accepted};
use super::run::Run;
use crate::webhooks::EventType;

const AT_ONCE: usize = 20;
/// How long the connections have before everything is sent at once.
const HEAD_START: Duration = Duration::from_millis(300);
/// How long after the first attempt the later one is made. Timestamps have whole seconds, so it differs.
const LATER: Duration = Duration::from_millis(2_200);

/// How long a receiver may be at an event after it has responded to one of its deliveries.
const BUSY: Duration = Duration::from_secs(2);

const REMEDY: &str = "Respond with a 2xx to an event that was handled before, and do nothing else.";

/// The same headers and body again, as soon as the first response is there.
pub(super) async fn duplicate(run: &Run) -> Grade {
    let event = run.event();
    let headers = run.signed(&event);
    let request = || Outgoing::post(headers.clone(), event.body.clone());
    let first = run.post_patiently(request).await;
    let first = accepted(&first, "A genuine delivery", REMEDY, run.timeout);
    if !first.findings.is_empty() {
        return first;
    }

    let again = once_more(run, request).await;

    let grade = accepted(&again, "The same delivery again", REMEDY, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

/// The first of two attempts for one event.
pub(super) struct FirstAttempt {
    event: SampleEvent,
    grade: Grade,
    later: Instant,
}

/// Delivers an event that [`later_duplicate`] delivers again. What is done in between saves its wait.
pub(super) async fn first_attempt(run: &Run) -> FirstAttempt {
    let event = run.event();
    let first = run.deliver(&event).await;
    FirstAttempt {
        event,
        grade: accepted(&first, "A genuine delivery", REMEDY, run.timeout),
        later: Instant::now() + LATER,
    }
}

/// The same event with another timestamp and signature.
pub(super) async fn later_duplicate(run: &Run, first: FirstAttempt) -> Grade {
    let FirstAttempt {
        event,
        grade,
        later,
    } = first;
    if !grade.findings.is_empty() {
        return grade;
    }
    tokio::time::sleep_until(later).await;

    let again = run.deliver(&event).await;

    let grade = accepted(
        &again,
        "A second attempt for the same event",
        REMEDY,
        run.timeout,
    );
    with_expectation(grade, &event, Effect::Once)
}

/// Many attempts for one event at the same time, then one more.
pub(super) async fn concurrent_duplicates(run: &Run) -> Grade {
    let event = run.event();
    // Signed once: whether another timestamp makes another event of it is for `later_duplicate` to see.
    let headers = run.signed(&event);
    let outcomes = at_once(run, &event, &headers).await;
    let request = || Outgoing::post(headers.clone(), event.body.clone());
    let afterwards = once_more(run, request).await;

    let summary = summarize(&outcomes);
    let bad = outcomes
        .iter()
        .find(|outcome| !outcome.is_success() && !is_busy(outcome) && !is_cut(outcome));
    if let Some(outcome) = bad {
        let delivery = format!("One of {AT_ONCE} simultaneous deliveries of the same event");
        let remedy = "Let the store decide who was first, with a unique key on the event's id, and respond to the others with a \
            2xx if the event is handled, or with 503 and Retry-After while the first is still at it.";
        let finding = not_accepted(outcome, &delivery, remedy, run.timeout);
        return Grade::failed(summary, finding);
    }
    let delivery = format!("The same event once more, after {AT_ONCE} simultaneous deliveries,");
    let afterwards = accepted(&afterwards, &delivery, REMEDY, run.timeout);
    let cut = outcomes.iter().filter(|outcome| is_cut(outcome)).count();
    let grade = match cut {
        0 => Grade::passed(summary),
        _ => Grade::warning(summary, connections_cut(cut)),
    };
    let expected = event.expect(Effect::Once);
    match afterwards.findings.is_empty() {
        true => grade.and(afterwards).expect(expected),
        false => grade.and(afterwards),
    }
}

fn connections_cut(count: usize) -> Finding {
    Finding::new(
        format!(
            "{count} of {AT_ONCE} simultaneous deliveries of the same event got no response: their connections ended."
        ),
        "Each is a failed attempt. The service makes another one later, unless it was the last (interface section 6.5).",
        "Look at the receiver's log: a crash is an error to fix. If the receiver or a proxy limits the number of connections, let \
         further ones wait, or respond with 503 and Retry-After.",
    )
}

async fn at_once(run: &Run, event: &SampleEvent, headers: &HeaderMap) -> Vec<Outcome> {
    let start = Instant::now() + HEAD_START;
    let mut deliveries = JoinSet::new();
    for _ in 0..AT_ONCE {
        let mut request = Outgoing::post(headers.clone(), event.body.clone());
        request.not_before = Some(start);
        let (url, timeout) = (run.url.clone(), run.timeout);
        deliveries.spawn(async move { delivery::send(&url, request, timeout).await });
    }
    deliveries.join_all().await
}

/// Writes how often each response came, such as `18 × 200, 2 × 503`.
fn summarize(outcomes: &[Outcome]) -> String {
    let mut responses: Vec<_> = outcomes.iter().map(Outcome::to_string).collect();
    responses.sort();
    let groups: Vec<_> = responses
        .chunk_by(|one, other| one == other)
        .map(|group| format!("{} × {}", group.len(), group[0]))
        .collect();
    groups.join(", ")
}

/// Repeats a delivery. The receiver may still be at the one before.
async fn once_more(run: &Run, request: impl Fn() -> Outgoing) -> Outcome {
    let outcome = run.post_patiently(&request).await;
    if !is_busy(&outcome) {
        return outcome;
    }
    tokio::time::sleep(BUSY).await;
    run.post_patiently(request).await
}

/// Whether the receiver says that another attempt is still at it, or that it gets too many at once.
fn is_busy(outcome: &Outcome) -> bool {
    matches!(outcome.status(), Some(429 | 503))
}

/// Whether a connection was refused or ended early, as by a limit of connections.
fn is_cut(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotConnected(..) | Outcome::Broken(_))
}

/// Two opens in the same second by the same recipient, with the same signed time.
pub(super) async fn distinct_ids(run: &Run) -> Grade {
    let first = run.event_of(EventType::Opened);
    let id = run.id();
    let text = String::from_utf8_lossy(&first.body);
    let (new_member, member) = (
        format!("\"id\":\"{id}\""),
        format!("\"id\":\"{}\"", first.id),
    );
    let second = SampleEvent {
        body: Bytes::from(text.replacen(&member, &new_member, 1)),
        id,
        event_type: first.event_type.clone(),
    };
    let mut grade = Grade::passed("");
    for event in [first, second] {
        let outcome = run.deliver(&event).await;
        let remedy = "Recognize an event by its `id` alone.";
        let delivery = "One of two email.opened events that differ by their id alone";
        let accepted = accepted(&outcome, delivery, remedy, run.timeout);
        grade = grade.and(with_expectation(accepted, &event, Effect::Once));
    }
    grade
}

/// Says that the application acted more than once.
pub(super) fn acted_again(count: u64) -> Finding {
    Finding::new(
        format!("The application acted {count} times on one event."),
        "Delivery is at-least-once: the service repeats an event whose response was late or lost. Everything that the \
         application does then happens twice (interface section 6.5).",
        "Remember the `id` of each event for a day, in the same transaction as its effects, and do nothing for one that is \
         known. Neither the timestamp nor a hash of the body is an id.",
    )
}
