//! The first deliveries: whether there is a receiver at the URL, and whether it accepts anything.

use std::io;

use super::check::Check;
use super::delivery::Outcome;
use super::grade::{Effect, Finding, Grade};
use super::opening_result::Opening;
use super::refused_everything::explain;
use super::response_grade::not_accepted;
use super::run::Run;
use crate::webhooks::EventType;

/// Delivers an event of each type. Sets a type that the receiver accepts as the type of all that follows.
pub(super) async fn open(run: &mut Run) -> Opening {
    let mut accepted = Grade::passed("");
    let mut refused: Vec<(EventType, Outcome)> = Vec::new();
    let mut first_accepted = None;
    for event_type in types() {
        let event = run.event_of(event_type.clone());
        let outcome = run.deliver(&event).await;
        if outcome.is_success() {
            accepted = accepted
                .and(Grade::passed(outcome.to_string()))
                .expect(event.expect(Effect::Once));
            first_accepted.get_or_insert(event_type);
            continue;
        }
        refused.push((event_type, outcome));
        if first_accepted.is_none()
            && let Some(end) = hopeless(&refused, run)
        {
            return end;
        }
    }
    let Some(basis) = first_accepted else {
        return explain(run, &refused).await;
    };
    run.basis = basis;
    let reachable = Grade::passed("it responds");
    Opening {
        grades: vec![
            (Check::Reachable, reachable),
            (Check::Genuine, some_refused(accepted, &refused, run)),
        ],
        goes_on: true,
    }
}

/// The type that every application has to do with comes first.
fn types() -> impl Iterator<Item = EventType> {
    let others = EventType::KNOWN.iter().cloned();
    std::iter::once(EventType::Delivered)
        .chain(others.filter(|event_type| *event_type != EventType::Delivered))
}

/// Returns the result if nothing can be accepted any more: there is no connection, or two deliveries got no response.
fn hopeless(refused: &[(EventType, Outcome)], run: &Run) -> Option<Opening> {
    let is_second = refused.len() > 1;
    let (_, outcome) = refused.last()?;
    match outcome {
        Outcome::NotConnected(kind, reason) => {
            let finding = not_connected(*kind, reason, run);
            let grade = Grade::failed(outcome.to_string(), finding);
            Some(Opening::end([(Check::Reachable, grade)]))
        }
        Outcome::Broken(reason) if is_second => {
            let finding = Finding::new(
                format!(
                    "Something accepts connections, but sends no complete HTTP response: {reason}."
                ),
                "The service posts over HTTP/1.1.",
                "Check the port: it may be that of TLS or of another program. If it is the receiver's, look for a crash in \
                 its log.",
            );
            let grade = Grade::failed(outcome.to_string(), finding);
            Some(Opening::end([(Check::Reachable, grade)]))
        }
        Outcome::TimedOut if is_second => {
            let finding = not_accepted(outcome, "A genuine delivery", "", run.timeout);
            Some(Opening::end([
                (Check::Reachable, Grade::passed("it takes connections")),
                (
                    Check::ResponseTime,
                    Grade::failed(outcome.to_string(), finding),
                ),
            ]))
        }
        _ => None,
    }
}

fn not_connected(kind: io::ErrorKind, reason: &str, run: &Run) -> Finding {
    let address = format!("{} port {}", run.url.host, run.url.port);
    let (problem, remedy) = match kind {
        io::ErrorKind::ConnectionRefused => (
            format!("Nothing listens at {address}: {reason}."),
            "Start the receiver and check the port. In a container, `localhost` is the container itself: the receiver has to \
             listen on 0.0.0.0, and the URL needs its host name.",
        ),
        io::ErrorKind::TimedOut => (
            format!("No connection to {address} in time."),
            "Check the host and the port, and whether a firewall is in between.",
        ),
        _ => (
            format!("No connection to {address}: {reason}."),
            "Check the spelling of the host name and the port.",
        ),
    };
    let reason = "Without a connection, nothing can be examined.";
    Finding::new(problem, reason, remedy)
}

/// Adds the types that were refused, by the response that they got.
fn some_refused(accepted: Grade, refused: &[(EventType, Outcome)], run: &Run) -> Grade {
    let mut grade = accepted;
    let mut reported: Vec<String> = Vec::new();
    for (_, outcome) in refused {
        let response = outcome.to_string();
        if reported.contains(&response) {
            continue;
        }
        let types: Vec<_> = refused
            .iter()
            .filter(|(_, other)| other.to_string() == response)
            .map(|(event_type, _)| event_type.as_str())
            .collect();
        let delivery = format!("A genuine delivery of {}", types.join(", "));
        let remedy = "Respond with a 2xx to every genuine delivery, also if there is nothing to do for its type.";
        let finding = not_accepted(outcome, &delivery, remedy, run.timeout);
        grade = grade.and(Grade::failed(response.clone(), finding));
        reported.push(response);
    }
    grade
}
