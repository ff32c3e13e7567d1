//! Genuine deliveries that are out of the ordinary.

use http::HeaderValue;
use serde_json::json;

use super::delivery::Outgoing;
use super::event_bodies::{SampleEvent, Spelling};
use super::grade::{Effect, Finding, Grade};
use super::refused_everything::serialized_again;
use super::response_grade::{accepted, not_accepted};
use super::run::{Run, now};
use crate::webhooks::{EVENT_HEADER, EventType};

/// The body of [`large_body`], in bytes.
const LARGE: usize = 1_000_000;

/// An event of a type that the receiver cannot know.
pub(super) async fn unknown_type(run: &Run) -> Grade {
    // A new type of mail that the sender sent would have this shape (interface section 6.3).
    let data = json!({
        "email_id": "eml_examine",
        "from": "sender@example.com",
        "to": "recipient@example.com",
        "subject": "A message of the examination",
        "bounce_type": "",
        "detail": "",
    });
    let event_type = EventType::from("email.snoozed");
    let event = SampleEvent::with_data(run.id(), event_type, now(), &data);
    let outcome = run.deliver(&event).await;
    let remedy = "Respond with a 2xx to a type that you do not know, and ignore it: the service may add types.";
    let grade = accepted(
        &outcome,
        "An event of the unknown type email.snoozed",
        remedy,
        run.timeout,
    );
    // An application may well ignore it.
    with_expectation(grade, &event, Effect::AtMostOnce)
}

/// The same JSON in spellings that no serializer writes.
pub(super) async fn raw_body(run: &Run) -> Grade {
    let mut grade = Grade::passed("");
    for (spelling, refusal) in [
        (Spelling::Reordered, serialized_again()),
        (Spelling::OddlySpaced, serialized_again()),
        (Spelling::Padded, trimmed()),
    ] {
        let event = run.event().spelled(spelling);
        let outcome = run.deliver(&event).await;
        let next = match outcome.status() {
            // A serializer leaves out the white space, too.
            Some(400..500) if !grade.findings.is_empty() => Grade::passed(outcome.to_string()),
            Some(400..500) => Grade::failed(outcome.to_string(), refusal),
            _ => {
                let delivery = "A genuine delivery with reordered or oddly spaced JSON";
                let remedy = "Parse the body with a JSON parser, and verify its raw bytes before.";
                let grade = accepted(&outcome, delivery, remedy, run.timeout);
                with_expectation(grade, &event, Effect::Once)
            }
        };
        grade = grade.and(next);
    }
    grade
}

fn trimmed() -> Finding {
    Finding::new(
        "The receiver removes the white space around the body before it verifies the signature.",
        "The signature covers the bytes of the body as sent, and white space is part of them. Without it, a genuine delivery \
         looks forged (interface section 5).",
        "Verify the raw body as it was received. Trim and parse it afterwards.",
    )
}

pub(super) async fn non_ascii(run: &Run) -> Grade {
    let data = json!({"subject": "Grüße, 你好, مرحبا, 👋🏽 e\u{301}"});
    let event = SampleEvent::with_data(run.id(), run.basis.clone(), now(), &data);
    let outcome = run.deliver(&event).await;
    let remedy = "Verify the raw bytes of the body. Do not decode them to text first, at least not as anything but UTF-8.";
    let delivery = "A genuine delivery with text beyond ASCII";
    let grade = accepted(&outcome, delivery, remedy, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

pub(super) async fn large_body(run: &Run) -> Grade {
    let event = SampleEvent::long(&run.id(), now(), LARGE);
    let outcome = run.deliver(&event).await;
    let remedy = "Raise the limit for the length of a body, in the receiver and in proxies in front of it, to at least \
        1 MiB. An email.received event has the text of a whole mail.";
    let delivery = "A genuine email.received event of 1 MB";
    let grade = accepted(&outcome, delivery, remedy, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

/// Genuine deliveries whose unsigned header names another type than the body.
pub(super) async fn event_header(run: &Run) -> Grade {
    let mut grade = Grade::passed("");
    for (of_body, of_header) in [
        (EventType::Bounced, "email.received"),
        (EventType::Received, "email.bounced"),
    ] {
        let event = run.event_of(of_body);
        let mut headers = run.signed(&event);
        headers.insert(EVENT_HEADER, HeaderValue::from_static(of_header));
        let outcome = run.post(Outgoing::post(headers, event.body.clone())).await;
        let remedy =
            "Decide by the `type` of the body. Do not read webhook-event, or use it for logs only.";
        let reason = "The header is not signed, so anybody on the way can change it. The body's `type` decides the shape of \
            `data` (interface sections 5 and 6.2).";
        let delivery = format!(
            "A genuine delivery of {} whose webhook-event header says {of_header}",
            event.event_type
        );
        let finding = || Finding {
            reason: reason.into(),
            ..not_accepted(&outcome, &delivery, remedy, run.timeout)
        };
        grade = grade.and(match outcome.status() {
            Some(200..300) => {
                let seen = Grade::passed(outcome.to_string());
                with_expectation(seen, &event, Effect::AtMostOnce)
            }
            // It may compare the two, which is safe.
            Some(400..500) => Grade::warning(outcome.to_string(), finding()),
            _ => Grade::failed(outcome.to_string(), finding()),
        });
    }
    grade
}

/// Adds what the probe has to show, if the delivery was accepted.
pub(super) fn with_expectation(grade: Grade, event: &SampleEvent, effect: Effect) -> Grade {
    if grade.findings.is_empty() {
        grade.expect(event.expect(effect))
    } else {
        grade
    }
}
