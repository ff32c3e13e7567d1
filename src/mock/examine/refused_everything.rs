//! Why a receiver refuses every genuine delivery.

use std::time::SystemTime;

use super::check::Check;
use super::delivery::{Outcome, Outgoing};
use super::event_bodies::Spelling;
use super::grade::{Finding, Grade};
use super::misreadings;
use super::opening_result::Opening;
use super::receiver_clock::describe_skew;
use super::response_grade::not_accepted;
use super::run::Run;
use crate::webhooks::EventType;

/// How far the clocks can differ before every delivery is outside the window (interface section 5).
const WINDOW: u64 = 300;

/// Finds out why nothing was accepted.
pub(super) async fn explain(run: &Run, refused: &[(EventType, Outcome)]) -> Opening {
    let Some((_, outcome)) = refused.first() else {
        return Opening::end([]);
    };
    if let Some(finding) = wrong_path(outcome) {
        let grade = Grade::failed(outcome.to_string(), finding);
        return Opening::end([(Check::Reachable, grade)]);
    }
    let observed = outcome.to_string();
    let failed = |finding| Grade::failed(observed.clone(), finding);
    let reachable = (Check::Reachable, Grade::passed("it responds"));

    if let Some(finding) = wrong_clock(run) {
        return Opening::end([reachable, (Check::Clock, failed(finding))]);
    }
    if accepts_json_serialized_again(run).await {
        return Opening::end([reachable, (Check::RawBody, failed(serialized_again()))]);
    }
    if let Some(finding) = misreading(run).await {
        return Opening::end([reachable, (Check::Genuine, failed(finding))]);
    }
    let finding = match outcome.status() {
        Some(400 | 401 | 403 | 422) => wrong_secret(outcome),
        _ => {
            let remedy = "Look at the receiver's log: it may say that the secret is not set, or which error nobody handles. \
                Look for a limit or a rule of a proxy in front of it, too.";
            not_accepted(outcome, "Every genuine delivery", remedy, run.timeout)
        }
    };
    Opening::end([reachable, (Check::Genuine, failed(finding))])
}

/// Returns what is wrong if the response is one to a wrong URL.
fn wrong_path(outcome: &Outcome) -> Option<Finding> {
    let (problem, remedy) = match outcome.status()? {
        404 => (
            "There is a server, but nothing at this path: it responds with 404.",
            "Check the path of the URL, also for a missing or extra slash at its end.",
        ),
        405 | 501 => (
            "The server does not take a POST at this path.",
            "Check the path of the URL, and that the route of the receiver is one for POST.",
        ),
        300..400 => (
            "The server redirects to another URL.",
            "Use the final URL. Look for a missing or extra slash at the end of the path, for http instead of https, and for a \
             login in front of the receiver.",
        ),
        410 => (
            "The server says that this endpoint is gone: 410.",
            "Check the path of the URL.",
        ),
        _ => return None,
    };
    let reason = "The service posts every event to this one URL and does not look for another.";
    Some(Finding::new(problem, reason, remedy))
}

fn wrong_clock(run: &Run) -> Option<Finding> {
    let skew = run.clock_skew.get()?;
    (skew.unsigned_abs() > WINDOW).then(|| {
        Finding::new(
            format!(
                "The receiver refuses genuine deliveries, and its clock is {}.",
                describe_skew(skew)
            ),
            "A receiver refuses what is dated more than 300 s from its own clock, so a wrong clock refuses everything \
             (interface section 5).",
            "Set the clocks of both machines, with NTP.",
        )
    })
}

/// Delivers events whose bytes do not change if they are parsed and serialized again.
async fn accepts_json_serialized_again(run: &Run) -> bool {
    for spelling in Spelling::SERIALIZED_AGAIN {
        if run.stop_reason().is_some() {
            return false;
        }
        let event = run.event().spelled(spelling);
        if run.deliver(&event).await.is_success() {
            return true;
        }
    }
    false
}

/// Says that the receiver does not verify the bytes that it received.
pub(super) fn serialized_again() -> Finding {
    Finding::new(
        "The receiver parses the JSON and serializes it again before it verifies the signature. It accepts only deliveries \
         that happen to be spelled as its own serializer spells them.",
        "The signature covers the bytes of the body as sent. Another order of members, a blank or an escape that the \
         serializer would not choose makes a genuine delivery look forged (interface section 5).",
        "Verify the raw body, before any JSON parsing. In Express, use `express.raw` for this route; in Flask, \
         `request.get_data()`; in Django, `request.body`.",
    )
}

async fn misreading(run: &Run) -> Option<Finding> {
    let event = run.event();
    for misreading in misreadings::of(&event, &run.secret, SystemTime::now()) {
        if run.stop_reason().is_some() {
            return None;
        }
        let request = Outgoing::post(misreading.headers, event.body.clone());
        if run.post(request).await.is_success() {
            return Some(Finding::new(
                format!(
                    "The receiver refuses every genuine delivery, because it {}.",
                    misreading.mistake
                ),
                "The signature is HMAC-SHA256 over the timestamp's text, a period and the raw body, with the secret's text as \
                 the key, in lowercase hex (interface section 5).",
                misreading.remedy,
            ));
        }
    }
    None
}

fn wrong_secret(outcome: &Outcome) -> Finding {
    Finding::new(
        format!("The receiver refuses every genuine delivery, with {outcome}."),
        "It loses every event. Most likely, it has another secret than the one given here. It is not JSON that is serialized \
         again: common spellings of it were refused, too.",
        "Compare the secret of the receiver with that given here, also for blanks and quotation marks around it. If they are \
         equal, verify HMAC-SHA256 over the timestamp's text, a period and the raw body, in lowercase hex, and make sure \
         that nothing in front of the receiver changes the body or removes the three headers.",
    )
}
