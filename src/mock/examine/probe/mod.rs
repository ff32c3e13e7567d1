//! Asks the application how often it acted on an event.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::checks::VERIFY_FIRST;
use super::exchange::{self, Outcome, Outgoing};
use super::report::{Check, Effect, Expectation, Finding, Grade};
use crate::mock::http::HttpUrl;

/// How long the probe has at least to respond.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long after the first effect a duplicate effect may follow.
const GRACE: Duration = Duration::from_millis(300);
/// How long all requests to the probe may take, beside the time for the application to act.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

const PROTOCOL: &str = "Respond to `GET PROBE?event=ID` with the status 200 and JSON such as {\"count\": 1}. `count` is how \
    often the application acted on the event with this id, or 0 if the id is unknown.";

/// The response of the probe about one event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct EventCount {
    count: u64,
    /// The type that the application acted on.
    #[serde(default, rename = "type")]
    event_type: Option<String>,
}

/// Asks for each expectation of each grade and adds what is wrong to it. Returns the grade of [`Check::Probe`].
///
/// An application may act after it has responded: it has the time `settle` for that.
pub(super) async fn ask(
    url: &HttpUrl,
    timeout: Duration,
    settle: Duration,
    grades: &mut [(Check, Grade)],
) -> Grade {
    let probe = Probe {
        url,
        timeout: timeout.max(TIMEOUT),
    };
    let limit = TIME_LIMIT + settle;
    let asked = tokio::time::timeout(limit, probe.ask_all(settle, grades)).await;
    asked.unwrap_or_else(|_| {
        unusable(format!(
            "The probe did not respond to all requests within {limit:?}."
        ))
    })
}

struct Probe<'a> {
    url: &'a HttpUrl,
    timeout: Duration,
}

impl Probe<'_> {
    async fn ask_all(&self, settle: Duration, grades: &mut [(Check, Grade)]) -> Grade {
        // Wait for effects that are missing, then for duplicate ones.
        let until = Instant::now() + settle;
        for (_, grade) in grades.iter() {
            for expectation in &grade.expected {
                loop {
                    let counted = match self.event_count(&expectation.event_id).await {
                        Ok(counted) => counted,
                        Err(problem) => return unusable(problem),
                    };
                    if is_settled(expectation.effect, counted.count, Instant::now(), until) {
                        break;
                    }
                    tokio::time::sleep(POLL).await;
                }
            }
        }
        tokio::time::sleep(GRACE).await;

        let mut counts = Vec::new();
        for (place, (_, grade)) in grades.iter_mut().enumerate() {
            for expectation in std::mem::take(&mut grade.expected) {
                match self.event_count(&expectation.event_id).await {
                    Ok(counted) => counts.push((place, expectation, counted)),
                    Err(problem) => return unusable(problem),
                }
            }
        }
        let counts_of = |check| {
            let of_check = counts
                .iter()
                .filter(|(place, ..)| grades[*place].0 == check);
            of_check.map(|(.., counted)| counted).collect()
        };
        let identity = Identity::of(counts_of);
        let lost = counts
            .iter()
            .filter(|(place, _, counted)| grades[*place].0 == Check::Genuine && counted.count == 0);
        let lost_types: Vec<_> = lost
            .map(|(_, expectation, _)| expectation.event_type.clone())
            .collect();
        let asked = counts.len();
        for (place, mut expectation, counted) in counts {
            let (check, grade) = &mut grades[place];
            // The check of genuine deliveries reports this loss. The header is not its cause.
            if *check == Check::EventHeader && lost_types.contains(&expectation.event_type) {
                expectation.effect = Effect::AtMostOnce;
            }
            let judged = judge(*check, &expectation, &counted, identity);
            *grade = grade.clone().and(judged);
        }
        Grade::passed(format!("asked about {asked} events"))
    }

    async fn event_count(&self, event_id: &str) -> Result<EventCount, String> {
        let mut url = self.url.clone();
        let separator = if url.path_and_query.contains('?') {
            '&'
        } else {
            '?'
        };
        url.path_and_query = format!("{}{separator}event={event_id}", url.path_and_query);
        match exchange::send(&url, Outgoing::get(), self.timeout).await {
            Outcome::Response(response) if response.status == 200 => {
                serde_json::from_slice(&response.body).map_err(|_| {
                    "The probe responded with something other than JSON such as {\"count\": 1}."
                        .to_owned()
                })
            }
            outcome => Err(format!("The probe did not return a count: {outcome}.")),
        }
    }
}

/// Returns whether to stop waiting for the effect of an event, of which the application showed `count` at `now`.
fn is_settled(effect: Effect, count: u64, now: Instant, until: Instant) -> bool {
    let is_missing = effect == Effect::Once && count == 0;
    !is_missing || now >= until
}

/// How the application recognizes a duplicate, as far as the counts of all events show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// By the id, or the counts do not show it.
    Id,
    /// By the timestamp alone.
    Timestamp,
    /// By members other than the id.
    OtherMembers,
    /// By the id, but without its case.
    IdWithoutCase,
    /// By the id, together with the timestamp or the signature.
    IdOfAttempt,
    /// By the id, but the application remembers only the last ids.
    LastIds,
}

impl Identity {
    fn of<'a>(counts_of: impl Fn(Check) -> Vec<&'a EventCount>) -> Self {
        if let [first, second, third, fourth] = counts_of(Check::DistinctIds)[..] {
            // The fourth event has the third one's id in another case, and the second one's type.
            let is_lost = second.count > 0 && fourth.count == 0;
            let is_the_third =
                fourth.event_type == third.event_type && third.event_type != second.event_type;
            // The second event differs from the first by its id, and the third by all but its timestamp.
            match [first, second, third].map(|counted| counted.count) {
                [first, 0, 0] if first > 0 => return Self::Timestamp,
                [first, 0, _] if first > 0 => return Self::OtherMembers,
                [_, _, third] if third > 0 && (is_lost || is_the_third) => {
                    return Self::IdWithoutCase;
                }
                _ => {}
            }
        }
        let duplicates = [
            Check::Duplicate,
            Check::DuplicateAfterMany,
            Check::LaterDuplicate,
        ];
        let total = |check| {
            let counts = counts_of(check).into_iter();
            counts.map(|counted| counted.count).sum::<u64>()
        };
        match duplicates.map(total) {
            [1, 1, later] if later > 1 => Self::IdOfAttempt,
            [1, after_many, _] if after_many > 1 => Self::LastIds,
            _ => Self::Id,
        }
    }
}

/// Grades the response of the probe about one event.
fn judge(
    check: Check,
    expectation: &Expectation,
    counted: &EventCount,
    identity: Identity,
) -> Grade {
    let acted = match counted.count {
        0 => "did not act".to_owned(),
        1 => "acted once".to_owned(),
        count => format!("acted {count} times"),
    };
    match (expectation.effect, counted.count) {
        (Effect::Never, 0) => Grade::passed(""),
        (Effect::Never, _) => Grade::failed(
            acted,
            Finding::new(
                "The receiver rejected the delivery, and yet the application acted on it.",
                "A rejected delivery is forged or incomplete, so its effects are wrong.",
                "Verify a delivery before you do anything else with it.",
            ),
        ),
        (Effect::Once, 0) => Grade::failed(acted, lost(check, identity)),
        (_, 0) => Grade::passed(""),
        (_, 1) => match &counted.event_type {
            Some(of_application) if *of_application != expectation.event_type => {
                let finding = match (identity, check) {
                    (Identity::IdWithoutCase, Check::DistinctIds) => lost(check, identity),
                    _ => wrong_type(of_application, &expectation.event_type),
                };
                Grade::failed(acted, finding)
            }
            None if check == Check::EventHeader => Grade::not_seen(
                "the probe's response has no `type`, so the type that the application acted on is unknown",
            ),
            _ => Grade::passed(""),
        },
        (_, count) => Grade::failed(acted, acted_again(check, count, identity)),
    }
}

const LOST: &str = "The receiver accepted an event, and the application did not act on it in time.";
const BY_ID: &str = "Recognize a duplicate by the event's `id` alone. With a hash of other members, or the timestamp, different \
    events look like duplicates: two opens in the same second differ only by their id (interface section 6.5, Delivery).";
const BODY_TYPE: &str = "Read the event's type from `type` in the body.";

fn lost(check: Check, identity: Identity) -> Finding {
    let reason = "After a 2xx, the service does not deliver the event again, so the event is lost (interface section 6.5, \
        Delivery).";
    let (problem, remedy) = match (identity, check) {
        (Identity::Timestamp, _) => (
            "The receiver accepted an event, and the application took it for a duplicate of another event, because both have \
             the same webhook-timestamp.",
            BY_ID,
        ),
        (Identity::OtherMembers, _) => (
            "The receiver accepted an event, and the application took it for a duplicate of another event. Both have different \
             ids.",
            BY_ID,
        ),
        (Identity::IdWithoutCase, Check::DistinctIds) => (
            "The receiver accepted an event, and the application took it for a duplicate of another event. Their ids differ in \
             the case of a letter.",
            "Compare each character of the ids, with its case. Some databases ignore the case by default: in MySQL, give the \
             column of the ids a binary collation such as utf8mb4_bin.",
        ),
        (_, Check::ForgedId) => (
            "The receiver accepted an event after a forged delivery with the same id, and the application did not act on it \
             in time.",
            VERIFY_FIRST,
        ),
        (_, Check::EventHeader) => (
            "The receiver accepted an event whose webhook-event header names another type than its body, and the application \
             did not act on it in time.",
            BODY_TYPE,
        ),
        (_, Check::DistinctIds) => (LOST, BY_ID),
        _ => (
            LOST,
            "Respond with a 2xx only after the event is stored. If the application ignores events of this type, count the \
             event in the probe anyway. If its jobs are slow, give them more time than the default of 5 s, by `settle`.",
        ),
    };
    Finding::new(problem, reason, remedy)
}

/// Says that the application acted more than once.
fn acted_again(check: Check, count: u64, identity: Identity) -> Finding {
    let cause = match (identity, check) {
        (Identity::IdOfAttempt, Check::LaterDuplicate) => {
            " It takes the event for another one if webhook-timestamp and webhook-signature are new, as in each attempt."
        }
        (Identity::LastIds, Check::DuplicateAfterMany | Check::LaterDuplicate) => {
            " It had forgotten the event a few seconds and 130 other events later."
        }
        _ => "",
    };
    Finding::new(
        format!("The application acted {count} times on one event.{cause}"),
        "The service delivers an event again if the response was late or lost. Then everything that the application does \
         for this event happens twice (interface section 6.5, Delivery).",
        "Store the `id` of each event in the same transaction as its effects, keep it for a day, and do nothing for an \
         event whose `id` is stored. Use neither the timestamp nor a hash of the body as an id.",
    )
}

fn wrong_type(of_application: &str, of_body: &str) -> Finding {
    Finding::new(
        format!(
            "The application handled an event of the type {of_body} as one of the type {of_application:?}."
        ),
        "The body's `type` decides the shape of `data`. The webhook-event header is not signed, so anyone on the network path \
         can change it (interface sections 5, Signatures of webhooks, and 6.2, Envelope).",
        BODY_TYPE,
    )
}

fn unusable(problem: String) -> Grade {
    Grade::failed(
        "no count",
        Finding::new(
            problem,
            "Without the probe, the examination does not see which events the application lost, acted on twice, or acted on \
             although they were forged.",
            PROTOCOL,
        ),
    )
}

#[cfg(test)]
mod tests;
