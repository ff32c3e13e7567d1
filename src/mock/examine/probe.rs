//! Asks the application how often it acted on an event.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::checks::{VERIFY_FIRST, acted_again};
use super::exchange::{self, Outcome, Outgoing};
use super::report::{Check, Effect, Expectation, Finding, Grade};
use crate::mock::http::HttpUrl;

const TIMEOUT: Duration = Duration::from_secs(5);
/// How long an application may take to act on what it accepted.
const SETTLING: Duration = Duration::from_secs(5);
/// How long after the first effect a duplicate effect may follow.
const GRACE: Duration = Duration::from_millis(300);
/// How long all requests to the probe may take.
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
pub(super) async fn ask(url: &HttpUrl, grades: &mut [(Check, Grade)]) -> Grade {
    let asked = tokio::time::timeout(TIME_LIMIT, ask_all(url, grades)).await;
    asked.unwrap_or_else(|_| {
        unusable(format!(
            "The probe did not respond to all requests within {TIME_LIMIT:?}."
        ))
    })
}

async fn ask_all(url: &HttpUrl, grades: &mut [(Check, Grade)]) -> Grade {
    // An application may act after it has responded: wait for effects that are missing, then for duplicate ones.
    let until = Instant::now() + SETTLING;
    for (_, grade) in grades.iter() {
        for expectation in &grade.expected {
            loop {
                let counted = match event_count(url, &expectation.event_id).await {
                    Ok(counted) => counted,
                    Err(problem) => return unusable(problem),
                };
                let is_missing = expectation.effect == Effect::Once && counted.count == 0;
                if !is_missing || Instant::now() >= until {
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
        }
    }
    tokio::time::sleep(GRACE).await;

    let mut asked = 0;
    for (check, grade) in grades {
        for expectation in std::mem::take(&mut grade.expected) {
            let counted = match event_count(url, &expectation.event_id).await {
                Ok(counted) => counted,
                Err(problem) => return unusable(problem),
            };
            asked += 1;
            let judged = judge(*check, &expectation, &counted);
            *grade = grade.clone().and(judged);
        }
    }
    Grade::passed(format!("asked about {asked} events"))
}

/// Grades the response of the probe about one event.
fn judge(check: Check, expectation: &Expectation, counted: &EventCount) -> Grade {
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
        (Effect::Once, 0) => Grade::failed(acted, lost(check)),
        (_, 0) => Grade::passed(""),
        (_, 1) => match &counted.event_type {
            Some(of_application) if *of_application != expectation.event_type => {
                Grade::failed(acted, wrong_type(of_application, &expectation.event_type))
            }
            None if check == Check::EventHeader => Grade::not_seen(
                "the probe's response has no `type`, so the type that the application acted on is unknown",
            ),
            _ => Grade::passed(""),
        },
        (_, count) => Grade::failed(acted, acted_again(count)),
    }
}

const LOST: &str =
    "The receiver accepted an event, and the application did not act on it within 5 s.";

fn lost(check: Check) -> Finding {
    let reason = "After a 2xx, the service does not deliver the event again, so the event is lost (interface section 6.5, \
        Delivery).";
    let (problem, remedy) = match check {
        Check::OtherSecret => (
            "The receiver accepted an event after a forged delivery with the same id, and the application did not act on it \
             within 5 s.",
            VERIFY_FIRST,
        ),
        Check::DistinctIds => (
            LOST,
            "Recognize a duplicate by the event's `id` alone. With a hash of other members, or the timestamp, different \
             events look like duplicates: two opens in the same second differ only by their id (interface section 6.5, \
             Delivery).",
        ),
        _ => (
            LOST,
            "Respond with a 2xx only after the event is stored. If the application ignores events of this type, count the \
             event in the probe anyway.",
        ),
    };
    Finding::new(problem, reason, remedy)
}

fn wrong_type(of_application: &str, of_body: &str) -> Finding {
    Finding::new(
        format!(
            "The application handled an event of the type {of_body} as one of the type {of_application:?}."
        ),
        "The body's `type` decides the shape of `data`. The webhook-event header is not signed, so anyone on the network path \
         can change it (interface sections 5, Signatures of webhooks, and 6.2, Envelope).",
        "Read the event's type from `type` in the body.",
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

async fn event_count(url: &HttpUrl, event_id: &str) -> Result<EventCount, String> {
    let mut url = url.clone();
    let separator = if url.path_and_query.contains('?') {
        '&'
    } else {
        '?'
    };
    url.path_and_query = format!("{}{separator}event={event_id}", url.path_and_query);
    match exchange::send(&url, Outgoing::get(), TIMEOUT).await {
        Outcome::Response(response) if response.status == 200 => {
            serde_json::from_slice(&response.body).map_err(|_| {
                "The probe responded with something other than JSON such as {\"count\": 1}."
                    .to_owned()
            })
        }
        outcome => Err(format!("The probe did not return a count: {outcome}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::examine::report::Verdict;

    #[test]
    fn each_count_is_judged_by_what_may_happen_to_the_event() {
        for (effect, count, verdict) in [
            (Effect::Once, 0, Verdict::Failed),
            (Effect::Once, 1, Verdict::Passed),
            (Effect::Once, 2, Verdict::Failed),
            (Effect::AtMostOnce, 0, Verdict::Passed),
            (Effect::AtMostOnce, 1, Verdict::Passed),
            (Effect::AtMostOnce, 2, Verdict::Failed),
            (Effect::Never, 0, Verdict::Passed),
            (Effect::Never, 1, Verdict::Failed),
        ] {
            let expectation = Expectation {
                event_id: "evt_1".into(),
                event_type: "email.sent".into(),
                effect,
            };
            let counted = EventCount {
                count,
                event_type: None,
            };

            let judged = judge(Check::Duplicate, &expectation, &counted);

            assert_eq!(judged.verdict, verdict, "{effect:?} {count}");
        }
    }
}
