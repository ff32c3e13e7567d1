//! Deliveries that are not from the service, or not as it sends them (interface section 5).

use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::delivery::{Outcome, Outgoing};
use super::event_bodies::SampleEvent;
use super::genuine::with_expectation;
use super::grade::{Effect, Finding, Grade, Verdict};
use super::response_grade::{accepted, odd_refusal, refused};
use super::run::Run;
use crate::webhooks::{SIGNATURE_HEADER, TIMESTAMP_HEADER};

const FORGED: &str = "Everybody who knows the URL can make the application believe anything: that mail bounced, that somebody \
    complained, that a mail was received.";
const COMPARE: &str = "Compute HMAC-SHA256 over the timestamp, a period and the raw body, compare all of its lowercase hex digits with \
    webhook-signature in constant time, and respond with 401 unless they are equal.";
/// What to do if a forged delivery hides a genuine one.
pub(super) const VERIFY_FIRST: &str = "Verify a delivery before you look for its id among those that were received, and before you \
    remember it.";
const SAME_FAULT: &str = "not examined: a receiver that accepts another secret accepts this, too";

/// A forged delivery, and one whose event is delivered by the service afterwards.
pub(super) async fn other_secret(run: &Run) -> Grade {
    let event = run.event();
    let outcome = post(run, signed_by_a_stranger(run, &event), &event.body).await;
    run.accepts_forgeries.set(outcome.is_success());
    let what = "a delivery that is signed with another secret";
    let grade = refused(&outcome, &event, what, FORGED, COMPARE);
    if !grade.findings.is_empty() {
        return grade;
    }

    let event = run.event();
    post(run, signed_by_a_stranger(run, &event), &event.body).await;
    let genuine = run.deliver(&event).await;
    let delivery = "A genuine delivery, after a forged one with the same id,";
    let genuine = accepted(&genuine, delivery, VERIFY_FIRST, run.timeout);
    let genuine = with_expectation(genuine, &event, Effect::Once);
    grade.and(Grade {
        observed: String::new(),
        ..genuine
    })
}

fn signed_by_a_stranger(run: &Run, event: &SampleEvent) -> HeaderMap {
    let now = SystemTime::now();
    run.other_signer.sign(&event.event_type, now, &event.body)
}

/// A changed body under fresh headers, and under headers that the receiver accepted with another body.
pub(super) async fn tampered_body(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let reason = "Everybody on the way can change what happened, and to whom.";
    let remedy = "Compute the signature over the body of this very request, all of it. Do not remember signatures that were \
        right before.";
    let genuine = run.event();
    let headers = run.signed(&genuine);
    let fresh = renamed(run, &genuine);
    let outcome = post(run, headers.clone(), &fresh.body).await;
    let what = "a body that was changed after it was signed";
    let grade = refused(&outcome, &fresh, what, reason, remedy);

    let accepted_before = post(run, headers.clone(), &genuine.body).await;
    if !accepted_before.is_success() {
        return grade;
    }
    let reused = renamed(run, &genuine);
    let outcome = post(run, headers, &reused.body).await;
    let what = "a changed body under the headers of a delivery that it had accepted";
    grade.and(refused(&outcome, &reused, what, reason, remedy))
}

/// Returns the event with another id in its body. Its length is the same, or one more.
fn renamed(run: &Run, event: &SampleEvent) -> SampleEvent {
    let id = run.id();
    let body = String::from_utf8_lossy(&event.body).replace(&event.id, &id);
    SampleEvent {
        id,
        event_type: event.event_type.clone(),
        body: Bytes::from(body),
    }
}

pub(super) async fn missing_signature(run: &Run) -> Grade {
    let remedy =
        "Respond with 400 or 401 if webhook-signature is missing. Do not skip the verification.";
    forged(run, "a delivery without a signature", remedy, |headers| {
        headers.remove(SIGNATURE_HEADER);
    })
    .await
}

pub(super) async fn empty_signature(run: &Run) -> Grade {
    let remedy = "Do not treat an empty webhook-signature as none that has to be verified. Compare all 64 digits.";
    forged(
        run,
        "a delivery with an empty signature",
        remedy,
        |headers| {
            headers.insert(SIGNATURE_HEADER, HeaderValue::from_static(""));
        },
    )
    .await
}

pub(super) async fn cut_signature(run: &Run) -> Grade {
    let remedy =
        "Compare all 64 digits. Compare the lengths first, or use a comparison that does so.";
    let what = "a delivery with the first half of its signature";
    forged(run, what, remedy, |headers| {
        change_signature(headers, |text| text[..text.len() / 2].to_owned());
    })
    .await
}

/// A stranger cannot make such a signature, so accepting it is a warning.
pub(super) async fn uppercase_signature(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let event = run.event();
    let mut headers = run.signed(&event);
    change_signature(&mut headers, str::to_ascii_uppercase);
    let outcome = post(run, headers, &event.body).await;
    let what = "a signature in upper case";
    let reason = "It is no danger, because only the service can compute it. But the service writes lowercase, and a receiver that \
        takes more forms than it has to is harder to reason about (interface section 5).";
    let remedy = "Compare the text of webhook-signature with lowercase hex digits.";
    at_most_warning(refused(&outcome, &event, what, reason, remedy))
}

/// A wrong signature and the right one, in both orders, and two wrong ones.
pub(super) async fn two_signatures(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let reason = "It is no danger, because one of them has to be right. But the service sends one, and proxies may read the other.";
    let remedy = "Refuse a delivery that has webhook-signature twice.";
    let mut grade = Grade::passed("");
    for genuine_first in [true, false] {
        let event = run.event();
        let mut headers = run.signed(&event);
        let wrong = HeaderValue::from_static(WRONG);
        let right = headers.insert(SIGNATURE_HEADER, wrong.clone());
        if let Some(right) = right {
            if genuine_first {
                headers.insert(SIGNATURE_HEADER, right);
                headers.append(SIGNATURE_HEADER, wrong);
            } else {
                headers.append(SIGNATURE_HEADER, right);
            }
        }
        let outcome = post(run, headers, &event.body).await;
        let what = "a delivery with two signatures, one of them wrong";
        let next = refused(&outcome, &event, what, reason, remedy);
        grade = grade.and(at_most_warning(next));
    }
    let both_wrong = forged(
        run,
        "a delivery with two wrong signatures",
        COMPARE,
        |headers| {
            headers.insert(SIGNATURE_HEADER, HeaderValue::from_static(WRONG));
            headers.append(SIGNATURE_HEADER, HeaderValue::from_static(WRONG));
        },
    );
    grade.and(both_wrong.await)
}

const WRONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(super) async fn missing_timestamp(run: &Run) -> Grade {
    let remedy = "Respond with 400 or 401 if webhook-timestamp is missing.";
    forged(run, "a delivery without a timestamp", remedy, |headers| {
        headers.remove(TIMESTAMP_HEADER);
    })
    .await
}

pub(super) async fn malformed_timestamp(run: &Run) -> Grade {
    let remedy = "Respond with 400 or 401 if webhook-timestamp is anything but digits.";
    let mut grade = Grade::passed("");
    for timestamp in ["soon", "", "99999999999999999999999999"] {
        let value = HeaderValue::from_static(timestamp);
        let what = "a delivery whose timestamp is not a number of seconds";
        let next = forged(run, what, remedy, |headers| {
            headers.insert(TIMESTAMP_HEADER, value);
        });
        grade = grade.and(next.await);
    }
    grade
}

/// A body of the service's that is no event. Nothing is said about what to do with it, except that it is no surprise.
pub(super) async fn not_json(run: &Run) -> Grade {
    let mut grade = Grade::passed("");
    for body in [&b"this is not JSON"[..], b"", b"[]", b"{\"id\": \xff}"] {
        let event = run.event().with_body(body);
        let outcome = post(run, run.signed(&event), body).await;
        let observed = outcome.to_string();
        let next = match odd_refusal(&outcome, "a signed body that is not an event") {
            None => Grade::passed(observed),
            Some(finding) if matches!(outcome, Outcome::NotConnected(..)) => {
                Grade::failed(observed, finding)
            }
            Some(finding) => Grade::warning(
                observed,
                Finding {
                    reason: "It is an error that nobody handles. The service delivers the same body ten times, and each time it \
                        sets off the same alarm."
                        .into(),
                    remedy: "Respond with 400 to a body that is not JSON or has no id, or set it aside and respond with 200."
                        .into(),
                    ..finding
                },
            ),
        };
        grade = grade.and(next);
    }
    grade
}

/// Sends a delivery whose signed headers are changed, and that has to be refused.
async fn forged(run: &Run, what: &str, remedy: &str, change: impl FnOnce(&mut HeaderMap)) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let event = run.event();
    let mut headers = run.signed(&event);
    change(&mut headers);
    let outcome = post(run, headers, &event.body).await;
    refused(&outcome, &event, what, FORGED, remedy)
}

async fn post(run: &Run, headers: HeaderMap, body: &[u8]) -> Outcome {
    let body = Bytes::copy_from_slice(body);
    run.post(Outgoing::post(headers, body)).await
}

fn change_signature(headers: &mut HeaderMap, change: impl FnOnce(&str) -> String) {
    let name = HeaderName::from_static(SIGNATURE_HEADER);
    let changed = headers
        .get(&name)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| HeaderValue::from_str(&change(text)).ok());
    if let Some(value) = changed {
        headers.insert(name, value);
    }
}

fn at_most_warning(mut grade: Grade) -> Grade {
    grade.verdict = grade.verdict.min(Verdict::Warning);
    grade
}
