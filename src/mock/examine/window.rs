//! The window for timestamps: 300 s around the receiver's clock (interface section 5).
//!
//! Time passes on the way. A response is judged only if the delivery was on the same side of the edge when the response
//! was there as when it was signed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::delivery::{Outcome, Outgoing};
use super::event_bodies::SampleEvent;
use super::genuine::with_expectation;
use super::grade::{Effect, Finding, Grade};
use super::receiver_clock::describe_skew;
use super::response_grade::{accepted, refused};
use super::run::Run;

const WINDOW: f64 = 300.0;
/// A window that nobody would call "a few minutes" does not have its edge here.
const FAR: i64 = 900;
/// How far the edge may be from 300 s by the receiver's clock, in seconds: clocks differ a little.
const TOLERANCE: i64 = 5;
/// How far into a second a delivery is signed. A receiver that counts whole seconds, with a clock a little behind, would
/// otherwise still be in the second before.
const INTO_SECOND: Duration = Duration::from_millis(250);
/// How often a delivery is repeated whose response took too long to tell.
const ATTEMPTS: usize = 4;
/// The longest wait for a receiver that asks for patience.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

const REPLAY: &str = "Everybody who has seen one genuine delivery, in a log for example, can send it again as long as the window \
    lasts, and the application acts on old news (interface section 5).";
const CHECK: &str = "After the signature, compare webhook-timestamp with the current time, and respond with 401 if they differ by more \
    than 300 s in either direction.";

pub(super) async fn stale(run: &Run) -> Grade {
    let what = "a delivery that was signed 301 s ago";
    outside(run, -301, -FAR, what).await
}

pub(super) async fn early(run: &Run) -> Grade {
    let what = "a delivery that is dated 301 s ahead";
    outside(run, 301, FAR, what).await
}

/// A delivery just outside the window, and one far outside if that is accepted.
async fn outside(run: &Run, near: i64, far: i64, what: &str) -> Grade {
    let Some((event, outcome)) = at_the_edge(run, near, Outcome::is_success).await else {
        return Grade::not_seen(SLOW);
    };
    let grade = refused(&outcome, &event, what, REPLAY, CHECK);
    if !outcome.is_success() {
        return grade;
    }
    if let Some(grade) = clocks_differ(run) {
        return grade;
    }
    let further = run.event();
    let outcome = deliver(run, &further, near + near.signum() * TOLERANCE).await;
    if !outcome.is_success() {
        return Grade::not_seen(NEAR).expect(further.expect(Effect::Never));
    }
    let event = run.event();
    let outcome = deliver(run, &event, far).await;
    if outcome.is_success() {
        return grade;
    }
    let problem = format!(
        "The receiver accepted {what}: its window is wider than 300 s, or its clock differs."
    );
    Grade::warning("accepted", Finding::new(problem, REPLAY, CHECK))
        .expect(event.expect(Effect::Never))
}

/// Deliveries just inside the window.
pub(super) async fn edge(run: &Run) -> Grade {
    let mut grade = Grade::passed("");
    for (offset, what) in [(-299, "299 s old"), (299, "dated 299 s ahead")] {
        let is_refused = |outcome: &Outcome| !outcome.is_success();
        let Some((event, outcome)) = at_the_edge(run, offset, is_refused).await else {
            grade = grade.and(Grade::not_seen(SLOW));
            continue;
        };
        let delivery = format!("A genuine delivery that was {what}");
        let next = accepted(&outcome, &delivery, "", run.timeout);
        if next.findings.is_empty() {
            grade = grade.and(with_expectation(next, &event, Effect::Once));
            continue;
        }
        if let Some(unclear) = clocks_differ(run) {
            grade = grade.and(unclear);
            continue;
        }
        let event = run.event();
        let closer = deliver(run, &event, offset - offset.signum() * TOLERANCE).await;
        grade = grade.and(if closer.is_success() {
            with_expectation(Grade::not_seen(NEAR), &event, Effect::Once)
        } else {
            Grade::warning(outcome.to_string(), narrow(&delivery, &outcome))
        });
    }
    grade
}

fn narrow(delivery: &str, outcome: &Outcome) -> Finding {
    Finding::new(
        format!(
            "{delivery} got {outcome}: the window is narrower than 300 s, or the clock differs."
        ),
        "A delivery that waits in a queue, or a clock that is a little wrong, makes the receiver refuse genuine deliveries.",
        "Accept timestamps up to 300 s from the current time, in both directions.",
    )
}

const NEAR: &str = "the edge is within 6 s of 300 s; the rest may be a difference of the clocks";
const SLOW: &str =
    "the responses took too long to tell on which side of the edge the deliveries arrived";

/// Returns why the edge cannot be judged if the clocks differ.
fn clocks_differ(run: &Run) -> Option<Grade> {
    let skew = run.clock_skew.get().filter(|skew| *skew != 0)?;
    Some(Grade::not_seen(format!(
        "the receiver's clock is {}, so the edge is elsewhere",
        describe_skew(skew)
    )))
}

/// Delivers an event whose timestamp is `offset` seconds from now.
///
/// A response that is `unexpected` counts only if the delivery cannot have crossed the edge on its way. Returns `None`
/// if every one may have.
async fn at_the_edge(
    run: &Run,
    offset: i64,
    unexpected: impl Fn(&Outcome) -> bool,
) -> Option<(SampleEvent, Outcome)> {
    for _ in 0..ATTEMPTS {
        let event = run.event();
        // Most of a second is left until the difference changes.
        tokio::time::sleep(until_next_second(SystemTime::now()) + INTO_SECOND).await;
        let signed = SystemTime::now();
        let outcome = deliver_at(run, &event, signed, offset).await;
        let arrived = SystemTime::now();
        if let Some(wait) = outcome.asked_delay() {
            tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
            continue;
        }
        if !unexpected(&outcome) || stayed_on_its_side(signed, arrived, offset) {
            return Some((event, outcome));
        }
        if run.stop_reason().is_some() {
            return None;
        }
    }
    None
}

async fn deliver(run: &Run, event: &SampleEvent, offset: i64) -> Outcome {
    deliver_at(run, event, SystemTime::now(), offset).await
}

async fn deliver_at(run: &Run, event: &SampleEvent, now: SystemTime, offset: i64) -> Outcome {
    let time = shifted(now, offset);
    let headers = run.signer.sign(&event.event_type, time, &event.body);
    run.post(Outgoing::post(headers, event.body.clone())).await
}

fn shifted(time: SystemTime, seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let shifted = if seconds < 0 {
        time.checked_sub(distance)
    } else {
        time.checked_add(distance)
    };
    shifted.unwrap_or(time)
}

fn until_next_second(now: SystemTime) -> Duration {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_nanos(1_000_000_000 - u64::from(since.subsec_nanos()))
}

/// Whether a delivery signed for `offset` seconds from `signed` was inside or outside the window all the time until
/// `arrived`, for a receiver whose clock has fractions of seconds as well as for one that counts whole seconds.
fn stayed_on_its_side(signed: SystemTime, arrived: SystemTime, offset: i64) -> bool {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = seconds(shifted(signed, offset)).as_secs();
    let age = |at: Duration| {
        let timestamp = Duration::from_secs(timestamp);
        at.as_secs_f64() - timestamp.as_secs_f64()
    };
    let is_outside = |at: Duration| age(at).abs() > WINDOW;
    let (start, end) = (seconds(signed), seconds(arrived));
    let whole = |at: Duration| Duration::from_secs(at.as_secs());
    let expected = offset.unsigned_abs() > 300;
    start <= end
        && [start, whole(start), end, whole(end)]
            .into_iter()
            .all(|at| is_outside(at) == expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_judged_only_if_no_edge_was_crossed_on_the_way() {
        let start = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for (offset, signed, arrived, is_judged) in [
            (-301, 0, 5_000, true),
            (301, 0, 900, true),
            (301, 0, 1_000, false),
            (301, 500, 600, true),
            (301, 999, 1_001, false),
            (-299, 0, 900, true),
            (-299, 0, 1_000, true),
            (-299, 0, 1_001, false),
            (299, 0, 9_000, true),
            // The clock was set back in between.
            (299, 500, 400, false),
        ] {
            let at = |milliseconds| start + Duration::from_millis(milliseconds);

            let judged = stayed_on_its_side(at(signed), at(arrived), offset);

            assert_eq!(judged, is_judged, "{offset}: {signed} to {arrived}");
        }
    }

    #[test]
    fn times_near_the_ends_of_the_clock_do_not_panic() {
        assert!(!stayed_on_its_side(UNIX_EPOCH, UNIX_EPOCH, -301));
        assert!(until_next_second(UNIX_EPOCH) <= Duration::from_secs(1));
    }
}
