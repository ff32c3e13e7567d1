//! What a response says about the receiver, given what was delivered. Pure.

use std::time::Duration;

use super::delivery::Outcome;
use super::event_bodies::SampleEvent;
use super::grade::{Effect, Finding, Grade};

/// Why every response that is not a 2xx loses events.
const LOST: &str = "Every response but a 2xx is a failed attempt. The service makes ten attempts over about five hours, and \
    then the event is lost (interface section 6.5).";

/// Grades the response to a delivery that has to be accepted.
///
/// `delivery` names it, as the subject of a sentence. `remedy` is what to do about a refusal.
pub(super) fn accepted(
    outcome: &Outcome,
    delivery: &str,
    remedy: &str,
    timeout: Duration,
) -> Grade {
    let observed = outcome.to_string();
    if outcome.is_success() {
        return Grade::passed(observed);
    }
    Grade::failed(observed, not_accepted(outcome, delivery, remedy, timeout))
}

/// Returns what is wrong with a response to a genuine delivery that is not a success.
pub(super) fn not_accepted(
    outcome: &Outcome,
    delivery: &str,
    remedy: &str,
    timeout: Duration,
) -> Finding {
    let problem = match outcome {
        Outcome::Response(response) => {
            format!("{delivery} got the response {}.", response.status)
        }
        Outcome::TimedOut => format!("{delivery} got no complete response within {timeout:?}."),
        Outcome::NotConnected(_, reason) => {
            format!("{delivery} could not be sent, because there was no connection: {reason}.")
        }
        Outcome::Broken(reason) => format!("{delivery} got no complete response: {reason}."),
    };
    let (reason, remedy) = match outcome {
        Outcome::TimedOut => (
            "The service waits 10 s for a complete response. A later one is a failed attempt, although the application \
             did the work (interface section 6.5).",
            "Put the event into a queue or a table and respond at once. Do the work afterwards.",
        ),
        Outcome::Response(response) if (300..400).contains(&response.status) => (
            "The service posts to this URL only. It is not known to follow redirects, and a redirected POST often \
             becomes a GET without a body.",
            "Give the service the final URL. Look for a missing or extra slash at its end, for http instead of https, \
             and for a login in front of it.",
        ),
        Outcome::Response(response) if response.status == 410 => (
            "410 means that the endpoint is gone for good. Senders may stop delivering to it.",
            "Respond with a 2xx to what you accept and with a 4xx other than 410 to what you refuse.",
        ),
        Outcome::NotConnected(..) | Outcome::Broken(_) => (
            LOST,
            "Look for a crash or an unhandled error in the receiver's log, and for a limit in a proxy in front of it.",
        ),
        Outcome::Response(_) => (LOST, remedy),
    };
    Finding::new(problem, reason, remedy)
}

/// Grades the response to a delivery that has to be refused.
///
/// `delivery` names it, as the object of "accepted".
pub(super) fn refused(
    outcome: &Outcome,
    event: &SampleEvent,
    delivery: &str,
    reason: &str,
    remedy: &str,
) -> Grade {
    let observed = outcome.to_string();
    if outcome.is_success() {
        let problem = format!("The receiver accepted {delivery}.");
        return Grade::failed(observed, Finding::new(problem, reason, remedy));
    }
    let grade = match odd_refusal(outcome, delivery) {
        None => Grade::passed(observed),
        Some(finding) if matches!(outcome, Outcome::NotConnected(..)) => {
            Grade::failed(observed, finding)
        }
        Some(finding) => Grade::warning(observed, finding),
    };
    grade.expect(event.expect(Effect::Never))
}

/// Returns what is wrong with a refusal, unless it is a 4xx other than 410.
pub(super) fn odd_refusal(outcome: &Outcome, delivery: &str) -> Option<Finding> {
    let (happened, reason, remedy) = match outcome {
        Outcome::Response(response) => match response.status {
            410 => (
                "410",
                "410 means that the endpoint is gone for good. If a genuine delivery is ever refused by mistake, the \
                 sender may stop delivering.",
                "Respond with 400 or 401.",
            ),
            status @ 300..400 => (
                if status == 304 { "304" } else { "a redirect" },
                "A redirect is no refusal: it tells the sender to post elsewhere. It often comes from a login page, \
                 which then hides real errors.",
                "Respond with 400 or 401, without a redirect.",
            ),
            500.. => (
                "a server error",
                "The delivery was not accepted, but by an error that nobody handles. Every stranger can cause it: it \
                 fills the log, sets off alarms, and hides real errors.",
                "Find the error in the receiver's log and respond with 400 or 401 instead. Comparing signatures of \
                 different lengths and reading a missing header are common causes.",
            ),
            _ => return None,
        },
        Outcome::TimedOut => (
            "no response",
            "A stranger who can make the receiver wait can use up its connections.",
            "Refuse what is not genuine at once, with 400 or 401.",
        ),
        Outcome::NotConnected(..) => (
            "no connection",
            "The receiver takes no connections any more. A stranger may have been able to stop it.",
            "Look for a crash in the receiver's log.",
        ),
        Outcome::Broken(_) => (
            "no complete response",
            "The connection was closed instead, which is what a crash of the handler looks like.",
            "Find the error in the receiver's log and respond with 400 or 401 instead.",
        ),
    };
    let problem = format!("The receiver refused {delivery} with {happened}.");
    Some(Finding::new(problem, reason, remedy))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::mock::examine::delivery::Received;
    use crate::mock::examine::grade::Verdict;
    use crate::webhooks::EventType;

    fn response(status: u16) -> Outcome {
        Outcome::Response(Received {
            status,
            elapsed: Duration::ZERO,
            retry_after: None,
            date: None,
            body: Bytes::new(),
        })
    }

    #[test]
    fn a_genuine_delivery_needs_a_2xx_in_time() {
        let verdict = |outcome: &Outcome| {
            let grade = accepted(outcome, "It", "do", Duration::from_secs(10));
            assert_eq!(grade.findings.is_empty(), grade.verdict == Verdict::Passed);
            grade.verdict
        };

        for status in [200, 202, 204, 299] {
            assert_eq!(verdict(&response(status)), Verdict::Passed, "{status}");
        }
        for status in [100, 199, 301, 400, 401, 404, 410, 429, 500, 503, 999] {
            assert_eq!(verdict(&response(status)), Verdict::Failed, "{status}");
        }
        assert_eq!(verdict(&Outcome::TimedOut), Verdict::Failed);
        assert_eq!(verdict(&Outcome::Broken("x".into())), Verdict::Failed);
    }

    #[test]
    fn a_forged_delivery_needs_a_4xx_and_an_error_of_the_server_is_a_warning() {
        let event = SampleEvent::new("evt_1".into(), EventType::Sent, 0);
        let grade = |outcome: &Outcome| refused(outcome, &event, "it", "why", "do");

        for (status, verdict) in [
            (200, Verdict::Failed),
            (204, Verdict::Failed),
            (302, Verdict::Warning),
            (400, Verdict::Passed),
            (401, Verdict::Passed),
            (410, Verdict::Warning),
            (422, Verdict::Passed),
            (500, Verdict::Warning),
            (503, Verdict::Warning),
        ] {
            let grade = grade(&response(status));

            assert_eq!(grade.verdict, verdict, "{status}");
            let is_refused = verdict != Verdict::Failed;
            assert_eq!(grade.expected.len(), usize::from(is_refused), "{status}");
        }
        assert_eq!(grade(&Outcome::TimedOut).verdict, Verdict::Warning);
        assert_eq!(
            grade(&Outcome::Broken("x".into())).verdict,
            Verdict::Warning
        );
    }
}
