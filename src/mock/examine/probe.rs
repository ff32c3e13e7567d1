//! Asks the application how often it acted on an event.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::checks::{VERIFY_FIRST, acted_again};
use super::report::{Check, Effect, Expectation, Finding, Grade};
use super::run::{self, Outcome, Outgoing};
use crate::mock::http::HttpUrl;

const TIMEOUT: Duration = Duration::from_secs(5);
/// How long an application may take to act on what it accepted.
const SETTLING: Duration = Duration::from_secs(5);
/// How long a double may come after the first.
const GRACE: Duration = Duration::from_millis(300);
/// How long all questions may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

const PROTOCOL: &str = "Respond to `GET PROBE?event=ID` with the status 200 and JSON such as {\"count\": 1}: how often the application \
    acted on the event with this id, 0 if it does not know it.";

/// What the application says about an event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Answer {
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
            "The probe did not answer all questions within {TIME_LIMIT:?}."
        ))
    })
}

async fn ask_all(url: &HttpUrl, grades: &mut [(Check, Grade)]) -> Grade {
    // An application may act after it has responded: wait for what is missing, then for what is too much.
    let until = Instant::now() + SETTLING;
    for (_, grade) in grades.iter() {
        for expectation in &grade.expected {
            loop {
                let answer = match answer(url, &expectation.event_id).await {
                    Ok(answer) => answer,
                    Err(problem) => return unusable(problem),
                };
                let is_missing = expectation.effect == Effect::Once && answer.count == 0;
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
            let answer = match answer(url, &expectation.event_id).await {
                Ok(answer) => answer,
                Err(problem) => return unusable(problem),
            };
            asked += 1;
            let judged = judge(*check, &expectation, &answer);
            *grade = grade.clone().and(judged);
        }
    }
    Grade::passed(format!("asked about {asked} events"))
}

/// Says what an answer means. Pure.
fn judge(check: Check, expectation: &Expectation, answer: &Answer) -> Grade {
    let acted = match answer.count {
        0 => "did not act".to_owned(),
        1 => "acted once".to_owned(),
        count => format!("acted {count} times"),
    };
    match (expectation.effect, answer.count) {
        (Effect::Never, 0) => Grade::passed(""),
        (Effect::Never, _) => Grade::failed(
            acted,
            Finding::new(
                "The receiver refused the delivery, and yet the application acted on it.",
                "What was refused is not genuine or not complete. Its effects are wrong.",
                "Verify the delivery before anything else is done with it.",
            ),
        ),
        (Effect::Once, 0) => Grade::failed(acted, lost(check)),
        (_, 0) => Grade::passed(""),
        (_, 1) => match &answer.event_type {
            Some(of_application) if *of_application != expectation.event_type => {
                Grade::failed(acted, wrong_type(of_application, &expectation.event_type))
            }
            None if check == Check::EventHeader => Grade::not_seen(
                "the probe's answer has no `type`, so it could not be seen which type the application acted on",
            ),
            _ => Grade::passed(""),
        },
        (_, count) => Grade::failed(acted, acted_again(count)),
    }
}

const LOST: &str =
    "The receiver accepted an event, and the application did not act on it within 5 s.";

fn lost(check: Check) -> Finding {
    let reason = "After a 2xx, the service does not deliver the event again. It is lost.";
    let (problem, remedy) = match check {
        Check::OtherSecret => (
            "The receiver accepted an event after a forged delivery with the same id, and the application did not act on it \
             within 5 s.",
            VERIFY_FIRST,
        ),
        Check::DistinctIds => (
            LOST,
            "Recognize a duplicate by the `id` of the event alone. A hash of other members, or the timestamp, makes \
             different events look the same: two opens in the same second differ by nothing but the id (interface \
             section 6.5).",
        ),
        _ => (
            LOST,
            "Respond with a 2xx only when the event is stored. If it is an event of a type that the application ignores, let \
             the probe count it all the same.",
        ),
    };
    Finding::new(problem, reason, remedy)
}

fn wrong_type(of_application: &str, of_body: &str) -> Finding {
    Finding::new(
        format!(
            "The application took an event of the type {of_body} for one of the type {of_application:?}."
        ),
        "The `type` of the body decides the shape of `data`. The webhook-event header is not signed, so anybody on the way can \
         change it (interface sections 5 and 6.2).",
        "Decide by the `type` of the body.",
    )
}

fn unusable(problem: String) -> Grade {
    Grade::failed(
        "no answer",
        Finding::new(
            problem,
            "Without the probe, lost events, doubles and forged events that the application acted on cannot be seen.",
            PROTOCOL,
        ),
    )
}

async fn answer(url: &HttpUrl, event_id: &str) -> Result<Answer, String> {
    let mut url = url.clone();
    let separator = if url.path_and_query.contains('?') {
        '&'
    } else {
        '?'
    };
    url.path_and_query = format!("{}{separator}event={event_id}", url.path_and_query);
    match run::send(&url, Outgoing::get(), TIMEOUT).await {
        Outcome::Response(response) if response.status == 200 => {
            serde_json::from_slice(&response.body).map_err(|_| {
                "The probe responded with something other than JSON such as {\"count\": 1}."
                    .to_owned()
            })
        }
        outcome => Err(format!("The probe gave no answer: {outcome}.")),
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
            let answer = Answer {
                count,
                event_type: None,
            };

            let judged = judge(Check::Duplicate, &expectation, &answer);

            assert_eq!(judged.verdict, verdict, "{effect:?} {count}");
        }
    }
}
