//! The checks: the deliveries of each, and the grades of the responses.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Barrier, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::exchange::{self, Outcome, Outgoing, Pace, describe_skew};
use super::report::{Check, Effect, Finding, Grade, Verdict};
use super::sample_events::{SampleEvent, Spelling, signed_as};
use super::{NO_PROBE, Run, Settings, has_grade, now};
use crate::webhooks::{EVENT_HEADER, EventType, SIGNATURE_HEADER, TIMESTAMP_HEADER};

/// Runs every selected check that has no grade yet.
///
/// The slow body takes 3 s. The other checks run while it is sent if the receiver responds to a delivery in that time.
/// A receiver may serve one connection at a time; then the other checks run afterwards.
pub(super) async fn run_all(settings: &Settings, run: &Run, grades: &mut Vec<(Check, Grade)>) {
    let first_attempts = first_attempts(settings, run).await;
    let needs_many = first_attempts
        .iter()
        .any(|(check, first)| *check == Check::DuplicateAfterMany && first.is_ok());
    let is_beside = |check: &Check| !matches!(check, Check::SlowBody | Check::CutConnection);
    let beside = Check::ALL.iter().copied().filter(is_beside);
    let has_slow_body = settings.selects(Check::SlowBody);
    let has_others = needs_many
        || beside
            .clone()
            .any(|check| settings.selects(check) && deliveries(check, run).is_some());

    let mut of_slow_body = Vec::new();
    let (body_is_sent, sent) = oneshot::channel::<()>();
    let slow_body = async {
        run_in_turn([Check::SlowBody], settings, run, &mut of_slow_body).await;
        drop(body_is_sent);
    };
    let others = async {
        if has_slow_body && has_others && !another_is_served(run).await {
            // The sender is dropped, never used.
            let _ = sent.await;
        }
        run_in_turn(beside, settings, run, grades).await;
        // These deliveries may reach a rate limit, which must not affect the checks above.
        match needs_many {
            true => deliver_many(settings, run).await,
            false => 0,
        }
    };
    let ((), between) = tokio::join!(slow_body, others);
    grades.extend(of_slow_body);
    // This check may leave a receiver stuck, which must not affect the checks above.
    run_in_turn([Check::CutConnection], settings, run, grades).await;

    for (check, first) in first_attempts {
        let grade = match (first, run.stop_reason()) {
            (Err(grade), _) => grade,
            (_, Some(reason)) => Grade::not_seen(reason),
            (Ok(first), _) if check == Check::LaterDuplicate => later_duplicate(run, first).await,
            (Ok(first), _) => duplicate_after_many(run, first, between).await,
        };
        grades.push((check, grade));
    }
    if run.has_probe {
        deliver_last(run, grades).await;
    }
}

/// Delivers one more event, which the application has to act on.
///
/// A worker that acts on the events in their order has then also acted on the duplicates before it.
async fn deliver_last(run: &Run, grades: &mut [(Check, Grade)]) {
    let genuine = grades
        .iter_mut()
        .find(|(check, _)| *check == Check::Genuine);
    if let Some((_, grade)) = genuine
        && run.stop_reason().is_none()
    {
        let event = run.event();
        // If the receiver does not accept it, other checks have said why.
        if run.deliver(&event).await.is_success() {
            grade.expected.push(event.expect(Effect::Once));
        }
    }
}

async fn run_in_turn(
    checks: impl IntoIterator<Item = Check>,
    settings: &Settings,
    run: &Run,
    grades: &mut Vec<(Check, Grade)>,
) {
    for check in checks {
        if !settings.selects(check) || has_grade(grades, check) {
            continue;
        }
        let Some(deliveries) = deliveries(check, run) else {
            continue;
        };
        settings.started(check);
        let grade = match run.stop_reason() {
            Some(reason) => Grade::not_seen(reason),
            None => deliveries.await,
        };
        grades.push((check, grade));
    }
}

/// Returns the deliveries of a check, which grade it. The checks without any grade the responses to all deliveries.
fn deliveries<'a>(check: Check, run: &'a Run) -> Option<Pin<Box<dyn Future<Output = Grade> + 'a>>> {
    Some(match check {
        Check::Reachable
        | Check::Genuine
        | Check::ResponseTime
        | Check::Clock
        | Check::LaterDuplicate
        | Check::DuplicateAfterMany
        | Check::Probe => return None,
        Check::UnknownType => Box::pin(unknown_type(run)),
        Check::RawBody => Box::pin(raw_body(run)),
        Check::NonAscii => Box::pin(non_ascii(run)),
        Check::LargeBody => Box::pin(large_body(run)),
        Check::ExtraMembers => Box::pin(extra_members(run)),
        Check::OldEvent => Box::pin(old_event(run)),
        Check::EventHeader => Box::pin(event_header(run)),
        Check::Duplicate => Box::pin(duplicate(run)),
        Check::ConcurrentDuplicates => Box::pin(concurrent_duplicates(run)),
        Check::DistinctIds => Box::pin(distinct_ids(run)),
        Check::OtherSecret => Box::pin(other_secret(run)),
        Check::ForgedId => Box::pin(forged_id(run)),
        Check::TamperedBody => Box::pin(tampered_body(run)),
        Check::MissingSignature => Box::pin(missing_signature(run)),
        Check::MissingEventHeader => Box::pin(missing_event_header(run)),
        Check::OtherContentType => Box::pin(other_content_type(run)),
        Check::EmptySignature => Box::pin(empty_signature(run)),
        Check::CutSignature => Box::pin(cut_signature(run)),
        Check::UppercaseSignature => Box::pin(uppercase_signature(run)),
        Check::TwoSignatures => Box::pin(two_signatures(run)),
        Check::MissingTimestamp => Box::pin(missing_timestamp(run)),
        Check::MalformedTimestamp => Box::pin(malformed_timestamp(run)),
        Check::Stale => Box::pin(stale(run)),
        Check::Early => Box::pin(early(run)),
        Check::WindowEdge => Box::pin(edge(run)),
        Check::NotJson => Box::pin(not_json(run)),
        Check::SlowBody => Box::pin(slow_body(run)),
        Check::CutConnection => Box::pin(cut_connection(run)),
    })
}

/// Why every response that is not a 2xx loses events.
const LOST: &str = "Any response other than a 2xx is a failed attempt. After ten attempts in about five hours, the \
    service gives up and the event is lost (interface section 6.5, Delivery).";

/// Grades the response to a delivery that has to be accepted.
///
/// `delivery` names it, as the subject of a sentence. `remedy` says how to fix a receiver that rejects it.
fn accepted(outcome: &Outcome, delivery: &str, remedy: &str, timeout: Duration) -> Grade {
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
            "The service waits 10 s for a complete response. A later response is a failed attempt, even if the \
             application has done the work (interface section 6.5, Delivery).",
            "Store the event in a queue or a table and respond immediately. Do the work afterwards.",
        ),
        Outcome::Response(response) if (300..400).contains(&response.status) => (
            "The service posts to this URL only. Nothing says that it follows redirects, and a redirected POST often \
             becomes a GET without a body.",
            "Configure the final URL at the service. Look for a missing or extra slash at the end of the URL, for http \
             instead of https, and for a login page in front of the receiver.",
        ),
        Outcome::Response(response) if response.status == 410 => (
            "410 means that the endpoint is gone permanently. The sender may stop delivering to it.",
            "Respond with a 2xx to a delivery that you accept, and with a 4xx other than 410 to one that you reject.",
        ),
        Outcome::Response(response) if response.status == 429 => (
            LOST,
            "Raise the rate limit of the receiver, or of the proxy in front of it. If the 429 has Retry-After, the examiner \
             waits, at most 5 s each time.",
        ),
        Outcome::NotConnected(..) | Outcome::Broken(_) => (
            LOST,
            "Look for a crash or an unhandled error in the receiver's log, and for a limit in a proxy in front of it.",
        ),
        Outcome::Response(_) => (LOST, remedy),
    };
    Finding::new(problem, reason, remedy)
}

/// Grades the response to a delivery that has to be rejected.
///
/// `delivery` names it, as the object of "accepted".
fn refused(
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
        _ if is_limited(outcome) => Grade::not_seen(LIMITED),
        None => Grade::passed(observed),
        Some(finding) if matches!(outcome, Outcome::NotConnected(..)) => {
            Grade::failed(observed, finding)
        }
        Some(finding) => Grade::warning(observed, finding),
    };
    grade.expect(event.expect(Effect::Never))
}

/// Grades like [`refused`], but accepting the delivery is only a warning, because it needs the secret.
fn preferably_refused(
    outcome: &Outcome,
    event: &SampleEvent,
    delivery: &str,
    reason: &str,
    remedy: &str,
) -> Grade {
    let mut grade = refused(outcome, event, delivery, reason, remedy);
    if outcome.is_success() {
        grade.verdict = Verdict::Warning;
    }
    grade
}

const LIMITED: &str =
    "not examined: the receiver responds 429, or 503 with Retry-After, to this delivery";

/// Whether the receiver did not look at the delivery, because it limits the rate or is busy.
fn is_limited(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Response(response) => {
            response.status == 429 || response.status == 503 && response.has_retry_after
        }
        _ => false,
    }
}

/// Whether the receiver rejected the delivery because of what it contains.
fn is_rejected(outcome: &Outcome) -> bool {
    matches!(outcome.status(), Some(400..500)) && !is_limited(outcome)
}

/// Returns what is wrong with the response to a rejected delivery, unless it is a 4xx other than 410.
fn odd_refusal(outcome: &Outcome, delivery: &str) -> Option<Finding> {
    let (happened, reason, remedy) = match outcome {
        Outcome::Response(response) => match response.status {
            410 => (
                "410",
                "410 means that the endpoint is gone permanently. If the receiver rejects a genuine delivery by mistake, \
                 the sender may stop delivering.",
                "Respond with 400 or 401.",
            ),
            status @ 300..400 => (
                if status == 304 { "304" } else { "a redirect" },
                "A redirect does not reject the delivery: it tells the sender to post to another URL. It often comes \
                 from a login page, which then hides real errors.",
                "Respond with 400 or 401, without a redirect.",
            ),
            500.. => (
                "a server error",
                "The receiver did not accept the delivery, but only because of an unhandled error. Anyone can cause this \
                 error: it fills the log, sets off alarms, and hides real errors.",
                "Find the error in the receiver's log and respond with 400 or 401 instead. Common causes are a comparison \
                 of signatures of different lengths, and a missing header.",
            ),
            _ => return None,
        },
        Outcome::TimedOut => (
            "no response",
            "Anyone who can make the receiver wait can use up its connections.",
            "Reject a forged delivery immediately, with 400 or 401.",
        ),
        Outcome::NotConnected(..) => (
            "no connection",
            "The receiver no longer accepts connections. Perhaps anyone can stop it with such a delivery.",
            "Look for a crash in the receiver's log.",
        ),
        Outcome::Broken(_) => (
            "no complete response",
            "The receiver closed the connection instead. That is how a crash of the handler looks to the sender.",
            "Find the error in the receiver's log and respond with 400 or 401 instead.",
        ),
    };
    let problem = format!("The receiver rejected {delivery} with {happened}.");
    Some(Finding::new(problem, reason, remedy))
}

/// The body of [`large_body`], in bytes.
const LARGE: usize = 1_000_000;

/// An event of a type that the receiver cannot know.
async fn unknown_type(run: &Run) -> Grade {
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
    let remedy =
        "Respond with a 2xx to an unknown type, and ignore the event: the service may add types.";
    let grade = accepted(
        &outcome,
        "An event of the unknown type email.snoozed",
        remedy,
        run.timeout,
    );
    // An application may well ignore it.
    with_expectation(grade, &event, Effect::AtMostOnce)
}

/// The same JSON in forms that no serializer writes.
async fn raw_body(run: &Run) -> Grade {
    let mut grade = Grade::passed("");
    for spelling in [Spelling::Reordered, Spelling::OddlySpaced, Spelling::Padded] {
        let event = run.event().spelled(spelling);
        let outcome = run.deliver(&event).await;
        let next = if !is_rejected(&outcome) {
            let delivery = "A genuine delivery with reordered or oddly spaced JSON";
            let remedy = "Verify the raw bytes of the body. Then parse them with a JSON parser.";
            let grade = accepted(&outcome, delivery, remedy, run.timeout);
            with_expectation(grade, &event, Effect::Once)
        } else if !grade.findings.is_empty() {
            // A serializer leaves out the white space, too.
            Grade::passed(outcome.to_string())
        } else {
            let finding = match spelling {
                Spelling::OddlySpaced if accepts_one_line(run).await => line_endings(),
                Spelling::Padded => trimmed(),
                _ => serialized_again(),
            };
            Grade::failed(outcome.to_string(), finding)
        };
        grade = grade.and(next);
    }
    grade
}

/// Returns whether the receiver changes only the line breaks.
async fn accepts_one_line(run: &Run) -> bool {
    let event = run.event().spelled(Spelling::OddlySpacedLine);
    run.deliver(&event).await.is_success()
}

fn line_endings() -> Finding {
    Finding::new(
        "The receiver changes the line endings of the body before it verifies the signature.",
        "The signature covers the bytes of the body as sent. If a CR LF becomes an LF, or an LF a CR LF, a genuine delivery \
         looks forged (interface section 5, Signatures of webhooks).",
        "Verify the raw body as it was received. Read it as bytes: reading it as text may change its line endings.",
    )
}

fn trimmed() -> Finding {
    Finding::new(
        "The receiver removes the white space around the body before it verifies the signature.",
        "The signature covers the bytes of the body as sent, including white space. If white space is removed, a genuine \
         delivery looks forged (interface section 5, Signatures of webhooks).",
        "Verify the raw body as it was received. Trim and parse it afterwards.",
    )
}

async fn non_ascii(run: &Run) -> Grade {
    let data = json!({"subject": "Grüße, 你好, مرحبا, 👋🏽 e\u{301}"});
    let event = SampleEvent::with_data(run.id(), run.basis.clone(), now(), &data);
    let outcome = run.deliver(&event).await;
    let remedy = "Verify the raw bytes of the body, before you decode them. The text is UTF-8.";
    let delivery = "A genuine delivery with text beyond ASCII";
    let grade = accepted(&outcome, delivery, remedy, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

async fn large_body(run: &Run) -> Grade {
    let event = SampleEvent::long(&run.id(), now(), LARGE);
    let outcome = run.deliver(&event).await;
    let remedy = "Raise the body limit of the receiver, and of any proxy in front of it, to at least 1 MiB. An \
        email.received event contains the text of a whole mail.";
    let delivery = "A genuine email.received event of 1 MB";
    let grade = accepted(&outcome, delivery, remedy, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

/// Events with members of a later version of the interface.
async fn extra_members(run: &Run) -> Grade {
    let data = json!({"subject": "A new member", "tags": ["welcome"], "campaign": {"id": 7}});
    let in_data = SampleEvent::with_data(run.id(), run.basis.clone(), now(), &data);
    let in_envelope = run.event().with_member("api_version", json!("2"));
    let mut grade = Grade::passed("");
    for (event, place) in [(in_data, "`data`"), (in_envelope, "the envelope")] {
        let outcome = run.deliver(&event).await;
        let remedy = "Ignore members that you do not know: the service may add some. If a schema or a model reads the event, \
            make it allow further members.";
        let delivery = format!("A genuine event with a new member in {place}");
        let next = accepted(&outcome, &delivery, remedy, run.timeout);
        grade = grade.and(with_expectation(next, &event, Effect::Once));
    }
    grade
}

/// How old an event can be at its last attempt, in seconds (interface section 6.5).
const OLD: i64 = 5 * 60 * 60;

/// An event that is delivered hours after it was created, as after failed attempts.
async fn old_event(run: &Run) -> Grade {
    let (event, outcome) = deliver_old_event(run).await;
    let delivery = "A genuine delivery, signed now, of an event that was created 5 h ago";
    let remedy = "Compare the current time with webhook-timestamp alone, which each attempt has anew. Accept an event whatever \
        its `created_at` is.";
    let grade = accepted(&outcome, delivery, remedy, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

async fn deliver_old_event(run: &Run) -> (SampleEvent, Outcome) {
    let event = SampleEvent::new(run.id(), run.basis.clone(), now() - OLD);
    let outcome = run.deliver(&event).await;
    (event, outcome)
}

/// Genuine deliveries whose unsigned header names another type than the body.
async fn event_header(run: &Run) -> Grade {
    let mut grade = Grade::passed("");
    for (of_body, of_header) in [
        (EventType::Bounced, "email.received"),
        (EventType::Received, "email.bounced"),
    ] {
        let event = run.event_of(of_body);
        let mut headers = run.signed(&event);
        headers.insert(EVENT_HEADER, HeaderValue::from_static(of_header));
        let outcome = post(run, headers, &event.body).await;
        let remedy =
            "Read the event's type from `type` in the body. Use webhook-event at most for logs.";
        let reason = "The header is not signed, so anyone on the network path can change it. The body's `type` decides \
            the shape of `data` (interface sections 5, Signatures of webhooks, and 6.2, Envelope).";
        let delivery = format!(
            "A genuine delivery of {} whose webhook-event header says {of_header}",
            event.event_type
        );
        let finding = || Finding {
            reason: reason.into(),
            ..not_accepted(&outcome, &delivery, remedy, run.timeout)
        };
        grade = grade.and(match outcome.status() {
            _ if is_limited(&outcome) => accepted(&outcome, &delivery, remedy, run.timeout),
            Some(200..300) => {
                let seen = Grade::passed(outcome.to_string());
                with_expectation(seen, &event, Effect::Once)
            }
            // A receiver may compare the two. That is safe.
            Some(400..500) => Grade::warning(outcome.to_string(), finding()),
            _ => Grade::failed(outcome.to_string(), finding()),
        });
    }
    grade
}

/// Adds what the probe has to show, if the delivery was accepted.
fn with_expectation(grade: Grade, event: &SampleEvent, effect: Effect) -> Grade {
    if grade.findings.is_empty() {
        grade.expect(event.expect(effect))
    } else {
        grade
    }
}

const SIMULTANEOUS: usize = 20;

/// The time between the first attempt and the later one. It is more than a second, so that their timestamps differ.
const LATER: Duration = Duration::from_millis(2_200);

/// How long a receiver may still handle an event after it has responded to one of its deliveries.
const BUSY: Duration = Duration::from_secs(2);

const REMEDY: &str =
    "Respond with a 2xx to an event that was already handled, and do nothing else.";

/// The same headers and body again, as soon as the first response is there.
async fn duplicate(run: &Run) -> Grade {
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
struct FirstAttempt {
    event: SampleEvent,
    headers: HeaderMap,
    sent: Instant,
}

/// Delivers an event for each selected check whose second attempt is made later. Other checks run in between, so
/// nothing waits for it. Returns the grade instead if there is nothing to deliver later.
async fn first_attempts(
    settings: &Settings,
    run: &Run,
) -> Vec<(Check, Result<FirstAttempt, Grade>)> {
    let mut attempts = Vec::new();
    for check in [Check::LaterDuplicate, Check::DuplicateAfterMany] {
        if !settings.selects(check) {
            continue;
        }
        settings.started(check);
        let first = match run.stop_reason() {
            Some(reason) => Err(Grade::not_seen(reason)),
            // Only a probe can show the result of this check, so its many events are not delivered without one.
            None if check == Check::DuplicateAfterMany && !run.has_probe => {
                Err(Grade::not_seen(NO_PROBE))
            }
            None => first_attempt(run).await,
        };
        attempts.push((check, first));
    }
    attempts
}

async fn first_attempt(run: &Run) -> Result<FirstAttempt, Grade> {
    let event = run.event();
    let headers = run.signed(&event);
    let request = || Outgoing::post(headers.clone(), event.body.clone());
    let outcome = run.post_patiently(request).await;
    let grade = accepted(&outcome, "A genuine delivery", REMEDY, run.timeout);
    if !grade.findings.is_empty() {
        return Err(grade);
    }
    Ok(FirstAttempt {
        event,
        headers,
        sent: Instant::now(),
    })
}

/// The same event with another timestamp and signature.
async fn later_duplicate(run: &Run, first: FirstAttempt) -> Grade {
    tokio::time::sleep_until(first.sent + LATER).await;

    let again = run.deliver(&first.event).await;

    let delivery = "A second attempt for the same event";
    let grade = accepted(&again, delivery, REMEDY, run.timeout);
    with_expectation(grade, &first.event, Effect::Once)
}

/// More than a small cache holds; 128 is a common default.
const MANY: usize = 130;
/// How many of these events are delivered simultaneously. Some servers queue only a few connections, for example 5.
const LANES: usize = 4;

/// The same headers and body again, after many other events.
///
/// The time since the first attempt is the same as in [`later_duplicate`]. So the two checks show whether a receiver
/// forgets events, or takes another attempt for another event.
async fn duplicate_after_many(run: &Run, first: FirstAttempt, between: usize) -> Grade {
    if between < MANY {
        let reason = "the receiver is too slow, or it limits the rate";
        return Grade::not_seen(format!("{between} other events were accepted: {reason}"));
    }
    // Later, the same delivery may be outside a narrow window.
    let fresh = run.timeout * 3;
    if first.sent.elapsed() > fresh {
        return Grade::not_seen(format!("the other deliveries took longer than {fresh:?}"));
    }
    tokio::time::sleep_until(first.sent + LATER).await;

    let request = || Outgoing::post(first.headers.clone(), first.event.body.clone());
    let again = run.post_patiently(request).await;

    let delivery = format!("The same delivery again, after {MANY} other events,");
    let grade = accepted(&again, &delivery, REMEDY, run.timeout);
    with_expectation(grade, &first.event, Effect::Once)
}

/// Delivers many events. Returns how many the receiver accepted before the first that it did not.
async fn deliver_many(settings: &Settings, run: &Run) -> usize {
    settings.started(Check::DuplicateAfterMany);
    let until = Instant::now() + run.timeout / 2;
    let mut deliveries = JoinSet::new();
    let (mut sent, mut accepted) = (0, 0);
    loop {
        while sent < MANY && deliveries.len() < LANES && Instant::now() < until {
            let event = run.event();
            let request = Outgoing::post(run.signed(&event), event.body.clone());
            let (url, timeout) = (run.url.clone(), run.timeout);
            deliveries.spawn(async move { exchange::send(&url, request, timeout).await });
            sent += 1;
        }
        match deliveries.join_next().await {
            Some(Ok(outcome)) if outcome.is_success() => accepted += 1,
            None => return accepted,
            Some(_) => {
                deliveries.shutdown().await;
                tokio::time::sleep(CLOSING).await;
                return accepted;
            }
        }
    }
}

/// Many attempts for one event at the same time, then one more.
async fn concurrent_duplicates(run: &Run) -> Grade {
    let event = run.event();
    // Signed once, because `later_duplicate` checks another timestamp.
    let headers = run.signed(&event);
    let outcomes = deliver_simultaneously(run, &event, &headers).await;
    if outcomes.iter().any(is_cut) {
        tokio::time::sleep(CLOSING).await;
    }
    let request = || Outgoing::post(headers.clone(), event.body.clone());
    let afterwards = once_more(run, request).await;

    let summary = summarize(&outcomes);
    let bad = outcomes
        .iter()
        .find(|outcome| !outcome.is_success() && !is_busy(outcome) && !is_cut(outcome));
    if let Some(outcome) = bad {
        let delivery = format!("One of {SIMULTANEOUS} simultaneous deliveries of the same event");
        let remedy = "Put a unique key on the event's id, so that the store accepts only the first delivery. Respond to \
            the others with a 2xx if the event is already handled, or with 503 and Retry-After while the first delivery \
            is still being handled.";
        let finding = not_accepted(outcome, &delivery, remedy, run.timeout);
        return Grade::failed(summary, finding);
    }
    let delivery =
        format!("The same event once more, after {SIMULTANEOUS} simultaneous deliveries,");
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
            "{count} of {SIMULTANEOUS} simultaneous deliveries of the same event got no response: their connections ended."
        ),
        "Each of them is a failed attempt, which the service retries later, unless it was the last one (interface section \
         6.5, Delivery).",
        "Look at the receiver's log: if the handler crashed, fix that error. If the receiver or a proxy limits the number \
         of connections, make further ones wait, or respond with 503 and Retry-After.",
    )
}

async fn deliver_simultaneously(
    run: &Run,
    event: &SampleEvent,
    headers: &HeaderMap,
) -> Vec<Outcome> {
    let together = Arc::new(Barrier::new(SIMULTANEOUS));
    let mut deliveries = JoinSet::new();
    for _ in 0..SIMULTANEOUS {
        let mut request = Outgoing::post(headers.clone(), event.body.clone());
        // All connect first, so that the requests arrive together.
        request.together = Some(Arc::clone(&together));
        let (url, timeout) = (run.url.clone(), run.timeout);
        deliveries.spawn(async move { exchange::send(&url, request, timeout).await });
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

/// Repeats a delivery. The receiver may still be handling the previous one.
async fn once_more(run: &Run, request: impl Fn() -> Outgoing) -> Outcome {
    let outcome = run.post_patiently(&request).await;
    if !is_busy(&outcome) {
        return outcome;
    }
    tokio::time::sleep(BUSY).await;
    run.post_patiently(request).await
}

/// Whether the receiver asks for a retry: it is handling the event, or it has too many requests.
fn is_busy(outcome: &Outcome) -> bool {
    matches!(outcome.status(), Some(429 | 503))
}

/// Whether a connection was refused or ended early, as by a limit of connections.
fn is_cut(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotConnected(..) | Outcome::Broken(_))
}

/// Two opens in the same second by the same recipient, and two other events whose ids differ only in case, all with the
/// same signed time.
///
/// The counts of these four events show how a receiver recognizes an event. If it recognizes events by their timestamp,
/// it acts only on the first of the four. So no delivery before or after them has their timestamp. Only a second attempt
/// of [`slow_body`], which runs simultaneously, may have it.
async fn distinct_ids(run: &Run) -> Grade {
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
    let id = run.id();
    let third = SampleEvent::new(format!("{id}_a"), run.basis.clone(), now());
    // Its type shows which of the two a probe tells about, if the probe does not compare the case either.
    let fourth = SampleEvent::new(format!("{id}_A"), EventType::Opened, now());
    into_next_second().await;
    let signed = SystemTime::now();
    let mut grade = Grade::passed("");
    for event in [first, second, third, fourth] {
        let headers = run.signer.sign(&event.event_type, signed, &event.body);
        let request = || Outgoing::post(headers.clone(), event.body.clone());
        let outcome = run.post_patiently(request).await;
        let remedy = "Recognize an event by its `id` alone.";
        let delivery = "One of four events with the same timestamp and different ids";
        let accepted = accepted(&outcome, delivery, remedy, run.timeout);
        grade = grade.and(with_expectation(accepted, &event, Effect::Once));
    }
    let is_over = signed
        .elapsed()
        .is_ok_and(|elapsed| elapsed >= ENTIRE_SECOND);
    if !is_over {
        into_next_second().await;
    }
    grade
}

const FORGED: &str = "Anyone who knows the URL can forge events: a bounce, a spam report, or a received mail. The \
    application acts on them.";
const COMPARE: &str = "Compute HMAC-SHA256 over the timestamp, a period and the raw body. Compare all of its lowercase hex \
    digits with webhook-signature in constant time, and respond with 401 unless they are equal.";
/// The remedy if a forged delivery hides a genuine one.
pub(super) const VERIFY_FIRST: &str =
    "Verify a delivery before you look up its id, and before you store its id.";
const SAME_FAULT: &str = "not examined: a receiver that accepts another secret accepts this too";

const BY_A_STRANGER: &str = "a delivery that is signed with another secret";

async fn other_secret(run: &Run) -> Grade {
    let event = run.event();
    let outcome = post(run, signed_by_a_stranger(run, &event), &event.body).await;
    run.accepts_forgeries.set(outcome.is_success());
    let grade = refused(&outcome, &event, BY_A_STRANGER, FORGED, COMPARE);
    if outcome.is_success() {
        return grade;
    }
    grade.and(no_secret(run).await)
}

/// A receiver that takes several secrets may take an empty one for a secret that is not set.
async fn no_secret(run: &Run) -> Grade {
    let event = run.event();
    let headers = signed_as(&event, "", &now().to_string());
    let outcome = post(run, headers, &event.body).await;
    let what = "a delivery that is signed with an empty secret";
    let remedy = "Look for a secret that is not set, such as the old one of a rotation. Leave it out, or make the receiver \
        fail to start.";
    refused(&outcome, &event, what, FORGED, remedy)
}

/// A forged delivery, and then its event as the service delivers it.
///
/// A receiver that stores an id before it verifies the delivery takes the genuine event for a duplicate.
async fn forged_id(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let event = run.event();
    let forged = post(run, signed_by_a_stranger(run, &event), &event.body).await;
    if forged.is_success() || is_limited(&forged) {
        return refused(&forged, &event, BY_A_STRANGER, FORGED, COMPARE);
    }
    let genuine = run.deliver(&event).await;
    let delivery = "A genuine delivery, after a forged one with the same id,";
    let grade = accepted(&genuine, delivery, VERIFY_FIRST, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

fn signed_by_a_stranger(run: &Run, event: &SampleEvent) -> HeaderMap {
    let now = SystemTime::now();
    run.other_signer.sign(&event.event_type, now, &event.body)
}

/// A changed body under fresh headers, and under headers that the receiver accepted with another body.
async fn tampered_body(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let reason =
        "Anyone on the network path can change an event: its type, its recipient, or its text.";
    let remedy = "For each request, compute the signature over the whole body of that request. Do not cache signatures \
        that were valid before.";
    let genuine = run.event();
    let headers = run.signed(&genuine);
    let fresh = renamed(run, &genuine);
    let outcome = post(run, headers.clone(), &fresh.body).await;
    let what = "a body that was changed after it was signed";
    let grade = refused(&outcome, &fresh, what, reason, remedy);

    // A receiver that caches valid signatures accepts them for another body, too.
    let accepted_before = post(run, headers.clone(), &genuine.body).await;
    if is_limited(&accepted_before) {
        return grade.and(Grade::not_seen(LIMITED));
    }
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

async fn missing_signature(run: &Run) -> Grade {
    let remedy =
        "Respond with 400 or 401 if webhook-signature is missing. Do not skip the verification.";
    let unsigned = forged(run, "a delivery without a signature", remedy, |headers| {
        headers.remove(SIGNATURE_HEADER);
    });
    let what = "an event without any of the three headers";
    let bare = forged(run, what, remedy, HeaderMap::clear);
    unsigned.await.and(bare.await)
}

/// Without this header, a receiver may take the request for one of another sender, and handle it without verification.
async fn missing_event_header(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let event = run.event();
    let mut headers = signed_by_a_stranger(run, &event);
    headers.remove(EVENT_HEADER);
    let outcome = post(run, headers, &event.body).await;
    let what = "a forged delivery without a webhook-event header";
    let remedy = "Verify the signature of every request to this URL, whatever other headers it has. Use webhook-event at most \
        for logs.";
    refused(&outcome, &event, what, FORGED, remedy)
}

/// Forged deliveries that are not declared as JSON. A receiver that verifies the signature while it parses JSON may not
/// verify theirs.
async fn other_content_type(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let form = run.event();
    let fields = format!("id={}&type={}&data[to]=a", form.id, form.event_type);
    let form = form.with_body(fields);
    let mut grade = Grade::passed("");
    for (event, content_type, what) in [
        (
            run.event(),
            Some("text/plain"),
            "a forged delivery with the content type text/plain",
        ),
        (
            run.event(),
            None,
            "a forged delivery without a content type",
        ),
        (
            form,
            Some("application/x-www-form-urlencoded"),
            "a forged delivery that is a form",
        ),
    ] {
        let headers = signed_by_a_stranger(run, &event);
        let request = || {
            let mut request = Outgoing::post(headers.clone(), event.body.clone());
            request.content_type = content_type;
            request
        };
        let outcome = run.post_patiently(request).await;
        let remedy = "Verify the signature of every request to this URL, whatever its content type. In Express, \
            `express.json({verify})` verifies only JSON: use `express.raw({type: () => true})` for this route, and verify in \
            the handler.";
        grade = grade.and(refused(&outcome, &event, what, FORGED, remedy));
    }
    grade
}

async fn empty_signature(run: &Run) -> Grade {
    let remedy = "Reject an empty webhook-signature. Compare all 64 digits.";
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

async fn cut_signature(run: &Run) -> Grade {
    let remedy = "Compare all 64 digits: compare the lengths first, or use a function that does.";
    let what = "a delivery with the first half of its signature";
    forged(run, what, remedy, |headers| {
        change_signature(headers, |text| text[..text.len() / 2].to_owned());
    })
    .await
}

/// Without the secret, such a signature cannot be computed, so accepting it is a warning.
async fn uppercase_signature(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let event = run.event();
    let mut headers = run.signed(&event);
    change_signature(&mut headers, str::to_ascii_uppercase);
    let outcome = post(run, headers, &event.body).await;
    let what = "a signature in upper case";
    let reason = "This is not dangerous, because only the service can compute the signature. But the service writes \
        lowercase digits (interface section 5, Signatures of webhooks), and a receiver that accepts only that form is \
        easier to check.";
    let remedy = "Compare the text of webhook-signature with lowercase hex digits, without changing its case.";
    preferably_refused(&outcome, &event, what, reason, remedy)
}

/// A wrong signature and the right one, in both orders, and two wrong ones.
async fn two_signatures(run: &Run) -> Grade {
    if run.accepts_forgeries.get() {
        return Grade::not_seen(SAME_FAULT);
    }
    let reason = "This is not dangerous as long as one of the signatures has to be right. But the service sends only one, \
        and a proxy may read the other.";
    let remedy = "Reject a delivery that has webhook-signature twice.";
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
        grade = grade.and(preferably_refused(&outcome, &event, what, reason, remedy));
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

/// Well-formed, so that only its value is wrong.
const WRONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

async fn missing_timestamp(run: &Run) -> Grade {
    let remedy = "Respond with 400 or 401 if webhook-timestamp is missing.";
    forged(run, "a delivery without a timestamp", remedy, |headers| {
        headers.remove(TIMESTAMP_HEADER);
    })
    .await
}

async fn malformed_timestamp(run: &Run) -> Grade {
    let remedy = "Respond with 400 or 401 if webhook-timestamp is anything but digits.";
    let mut grade = Grade::passed("");
    // The last one does not fit into 64 bits.
    for timestamp in ["soon", "", "99999999999999999999999999"] {
        let value = HeaderValue::from_static(timestamp);
        let what = "a delivery whose timestamp is not a number of seconds";
        let next = forged(run, what, remedy, |headers| {
            headers.insert(TIMESTAMP_HEADER, value);
        });
        grade = grade.and(next.await);
        // Every receiver that verifies the signature rejects that one for its signature.
        if grade.verdict == Verdict::Passed {
            grade = grade.and(signed_malformed_timestamp(run, timestamp, remedy).await);
        }
    }
    grade
}

/// A timestamp that is not a number, with the right signature.
async fn signed_malformed_timestamp(run: &Run, timestamp: &'static str, remedy: &str) -> Grade {
    let event = run.event();
    let headers = signed_as(&event, &run.secret, timestamp);
    let outcome = post(run, headers, &event.body).await;
    let what = "a correctly signed delivery whose timestamp is not a number of seconds";
    let reason = "This is not dangerous, because only the service can compute the signature. But the receiver does not check \
        how old such a delivery is. In JavaScript, for example, no comparison with NaN is true.";
    preferably_refused(&outcome, &event, what, reason, remedy)
}

/// A signed body that is not an event. Any response that is not an error of the receiver is right.
async fn not_json(run: &Run) -> Grade {
    let mut grade = Grade::passed("");
    for body in [&b"this is not JSON"[..], b"", b"[]", b"{\"id\": \xff}"] {
        let event = run.event().with_body(body);
        let outcome = post(run, run.signed(&event), body).await;
        let observed = outcome.to_string();
        let next = match odd_refusal(&outcome, "a signed body that is not an event") {
            _ if is_limited(&outcome) => Grade::not_seen(LIMITED),
            None => Grade::passed(observed),
            Some(finding) if matches!(outcome, Outcome::NotConnected(..)) => {
                Grade::failed(observed, finding)
            }
            Some(finding) => Grade::warning(
                observed,
                Finding {
                    reason: "The receiver does not handle this error. The service delivers the same body ten times, and each \
                        attempt sets off the same alarm."
                        .into(),
                    remedy: "Respond with 400 to a body that is not JSON or has no id, or store the body for a person to read \
                        and respond with 200."
                        .into(),
                    ..finding
                },
            ),
        };
        grade = grade.and(next);
    }
    grade
}

/// Sends a delivery whose signed headers are changed, so that it has to be rejected.
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
    run.post_patiently(|| Outgoing::post(headers.clone(), body.clone()))
        .await
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

const WINDOW: f64 = 300.0;
/// A receiver that accepts a delivery this far from now has no window of a few minutes.
const FAR: i64 = 900;
/// How far the edge may be from 300 s by the receiver's clock, in seconds: clocks differ a little.
const TOLERANCE: i64 = 5;
/// By how many seconds a delivery may come nearer to the edge on its way. The rest of its distance is for a clock that is
/// wrong.
const BESIDE: i64 = 2;
/// How far into a second a delivery is signed. A receiver that counts whole seconds, with a clock a little behind,
/// would otherwise still be in the second before.
const INTO_SECOND: Duration = Duration::from_millis(250);
const HALF_A_SECOND: Duration = Duration::from_millis(500);
const ENTIRE_SECOND: Duration = Duration::from_secs(1);
/// How often a delivery is attempted, at least, if the response took so long that the delivery may have crossed the
/// edge. Within the response timeout, it is attempted more often.
const ATTEMPTS: usize = 4;
/// The longest wait for a receiver that asks for patience.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

const REPLAY: &str = "Anyone who has seen one genuine delivery, for example in a log, can send it again for as long as the \
    window lasts, and the application acts on an old event (interface section 5, Signatures of webhooks).";
const CHECK: &str = "After you have verified the signature, compare webhook-timestamp with the current time. Respond with \
    401 if they differ by more than 300 s in either direction.";

async fn stale(run: &Run) -> Grade {
    let what = "a delivery that was signed 301 s ago";
    outside(run, -301, what).await
}

async fn early(run: &Run) -> Grade {
    let what = "a delivery that is dated 301 s ahead";
    outside(run, 301, what).await
}

/// A delivery just outside the window, and one far outside if that is accepted.
async fn outside(run: &Run, near: i64, what: &str) -> Grade {
    let Some((event, outcome)) = at_the_edge(run, near, Outcome::is_success).await else {
        return Grade::not_seen(SLOW);
    };
    let grade = refused(&outcome, &event, what, REPLAY, CHECK);
    if !outcome.is_success() {
        return grade;
    }
    let unclear = clocks_differ(run);
    if unclear.is_none() {
        let further = near + near.signum() * TOLERANCE;
        let Some((event, outcome)) = at_the_edge(run, further, Outcome::is_success).await else {
            return Grade::not_seen(SLOW);
        };
        if !outcome.is_success() {
            let reason = if is_limited(&outcome) { LIMITED } else { NEAR };
            return Grade::not_seen(reason).expect(event.expect(Effect::Never));
        }
    }
    // By the receiver's clock, too, this is at least FAR from now.
    let skew = run.clock_skew.get().unwrap_or_default();
    let far = FAR.saturating_add(skew.saturating_abs());
    let event = run.event();
    let outcome = deliver(run, &event, near.signum() * far).await;
    if outcome.is_success() {
        return without_window(run, grade, &outcome, what).await;
    }
    let problem = format!(
        "The receiver accepted {what}. Its window is wider than 300 s, or its clock is wrong."
    );
    let grade = match unclear {
        _ if is_limited(&outcome) => Grade::not_seen(LIMITED),
        Some(unclear) => unclear,
        None => Grade::warning("accepted", Finding::new(problem, REPLAY, CHECK)),
    };
    grade.expect(event.expect(Effect::Never))
}

/// Grades a receiver that accepted a delivery from far outside the window, with the outcome `far`.
///
/// Returns `grade`, unless the receiver measures the age of the event instead.
async fn without_window(run: &Run, grade: Grade, far: &Outcome, what: &str) -> Grade {
    let (_, of_old_event) = deliver_old_event(run).await;
    match is_rejected(&of_old_event) {
        true => Grade::failed(far.to_string(), by_created_at(what)),
        false => grade,
    }
}

fn by_created_at(what: &str) -> Finding {
    let problem = format!(
        "The receiver accepted {what}: it measures the age of a delivery by `created_at` in the body instead of \
         webhook-timestamp."
    );
    Finding::new(problem, REPLAY, CHECK)
}

/// Deliveries just inside the window.
async fn edge(run: &Run) -> Grade {
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
        if is_limited(&outcome) {
            grade = grade.and(Grade::not_seen(LIMITED));
            continue;
        }
        if let Some(unclear) = clocks_differ(run) {
            grade = grade.and(unclear);
            continue;
        }
        let offset = offset - offset.signum() * TOLERANCE;
        let Some((event, closer)) = at_the_edge(run, offset, is_refused).await else {
            grade = grade.and(Grade::not_seen(SLOW));
            continue;
        };
        grade = grade.and(if closer.is_success() {
            with_expectation(Grade::not_seen(NEAR), &event, Effect::Once)
        } else if is_limited(&closer) {
            Grade::not_seen(LIMITED)
        } else {
            Grade::warning(outcome.to_string(), narrow(&delivery, &outcome))
        });
    }
    grade
}

fn narrow(delivery: &str, outcome: &Outcome) -> Finding {
    Finding::new(
        format!(
            "{delivery} got the response {outcome}. The receiver's window is narrower than 300 s, or its clock is wrong."
        ),
        "The receiver rejects genuine deliveries that waited in a queue, or that were signed while a clock was a little \
         wrong.",
        "Accept timestamps up to 300 s from the current time, in both directions.",
    )
}

const NEAR: &str = "the window ends within 6 s of 300 s; the clocks may differ by the rest";
const SLOW: &str =
    "the responses took too long to tell whether the deliveries arrived inside the window";

/// Returns why the edge cannot be judged if the clocks differ.
fn clocks_differ(run: &Run) -> Option<Grade> {
    let skew = run.clock_skew.get().filter(|skew| *skew != 0)?;
    Some(Grade::not_seen(format!(
        "the receiver's clock is {}, so its window does not end at 300 s from here",
        describe_skew(skew)
    )))
}

/// Delivers an event whose timestamp is `offset` seconds from now.
///
/// A response that is `unexpected` counts only if the delivery cannot have crossed the edge on its way. Returns `None`
/// if each delivery may have crossed it. If the receiver asked for patience, returns the last such response instead.
async fn at_the_edge(
    run: &Run,
    offset: i64,
    unexpected: impl Fn(&Outcome) -> bool,
) -> Option<(SampleEvent, Outcome)> {
    let started = Instant::now();
    let mut limited = None;
    for attempt in 0.. {
        let is_over = run.stop_reason().is_some();
        if is_over || is_given_up(attempt, started.elapsed(), run.timeout) {
            break;
        }
        let event = run.event();
        // At least half of a second is left until the difference changes.
        let now = SystemTime::now();
        let rest = until_next_second(now);
        if attempt > 0 || !(HALF_A_SECOND..=ENTIRE_SECOND - INTO_SECOND).contains(&rest) {
            tokio::time::sleep(rest + INTO_SECOND).await;
        }
        let signed = SystemTime::now();
        let outcome = run.post(dated(run, &event, signed, offset)).await;
        let arrived = SystemTime::now();
        if let Some(wait) = outcome.asked_delay() {
            tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
            limited = Some((event, outcome));
            continue;
        }
        if !unexpected(&outcome) || stayed_on_its_side(signed, arrived, beside_the_edge(offset)) {
            return Some((event, outcome));
        }
    }
    limited
}

/// Returns the offset, or one that is [`BESIDE`] from 300 s on the same side, if that is nearer to 300 s.
fn beside_the_edge(offset: i64) -> i64 {
    let distance = (offset.abs() - 300).clamp(-BESIDE, BESIDE);
    offset.signum() * (300 + distance)
}

/// Returns whether to end after this many attempts, which took this long together.
fn is_given_up(attempts: usize, elapsed: Duration, timeout: Duration) -> bool {
    attempts >= ATTEMPTS && elapsed > timeout
}

async fn deliver(run: &Run, event: &SampleEvent, offset: i64) -> Outcome {
    run.post_patiently(|| dated(run, event, SystemTime::now(), offset))
        .await
}

/// Returns the delivery of an event that is signed for `offset` seconds from `now`.
fn dated(run: &Run, event: &SampleEvent, now: SystemTime, offset: i64) -> Outgoing {
    let time = shifted(now, offset);
    let headers = run.signer.sign(&event.event_type, time, &event.body);
    Outgoing::post(headers, event.body.clone())
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

/// Waits until no delivery so far was signed in the current second.
async fn into_next_second() {
    tokio::time::sleep(until_next_second(SystemTime::now()) + INTO_SECOND).await;
}

fn until_next_second(now: SystemTime) -> Duration {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_nanos(1_000_000_000 - u64::from(since.subsec_nanos()))
}

/// Returns whether a delivery signed for `offset` seconds from `signed` stayed on the same side of the window's edge
/// until `arrived`, both for a receiver whose clock has fractions of seconds and for one that counts whole seconds.
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

/// The pace of [`slow_body`]: 3 s in all.
const PIECES: Pace = Pace::Pieces(7, Duration::from_millis(500));
/// How soon a receiver responds that serves several connections.
const SOON: Duration = Duration::from_millis(500);
/// How often an event with a slow body is delivered, at most.
const SLOW_ATTEMPTS: usize = 3;
/// How long a receiver has at least to respond to half of a body. How long it has to wait for a whole one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a receiver has to notice that connections have ended.
const CLOSING: Duration = Duration::from_millis(500);
/// How many bytes of a response are read to find its headers.
const LONGEST_HEAD: usize = 64 * 1024;

async fn slow_body(run: &Run) -> Grade {
    let event = run.event();
    let outcome = deliver_in_time(async || run.deliver_slowly(&event, PIECES).await).await;
    let remedy = "Read until all Content-Length bytes of the body have arrived: one read may return only a part of them. Allow \
        at least 5 s for a body.";
    let delivery = "A genuine delivery whose body arrived in pieces over 3 s";
    let grade = accepted(&outcome, delivery, remedy, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

/// Calls `deliver` until the body did not arrive too slowly, or [`SLOW_ATTEMPTS`] times. Returns the last outcome.
async fn deliver_in_time(deliver: impl AsyncFn() -> Outcome) -> Outcome {
    for _ in 1..SLOW_ATTEMPTS {
        let start = Instant::now();
        let outcome = deliver().await;
        if !was_too_slow(&outcome, start.elapsed()) {
            return outcome;
        }
    }
    deliver().await
}

/// Returns whether the receiver may have given up on a body, because it took longer than a receiver has to allow. That
/// happens if this program had to wait for the processor.
fn was_too_slow(outcome: &Outcome, elapsed: Duration) -> bool {
    let was_cut = matches!(outcome, Outcome::Response(_) | Outcome::Broken(_));
    elapsed >= PATIENCE && was_cut && !outcome.is_success()
}

/// Delivers an event while the body of [`slow_body`] is on its way. Returns whether the receiver accepts it soon.
async fn another_is_served(run: &Run) -> bool {
    let event = run.event();
    let request = Outgoing::post(run.signed(&event), event.body.clone());
    // A receiver that serves one connection at a time responds after that body.
    let outcome = exchange::send(&run.url, request, run.timeout.max(PATIENCE)).await;
    matches!(outcome, Outcome::Response(response) if (200..300).contains(&response.status) && response.elapsed < SOON)
}

/// Sends half of a body and ends the connection. Then the receiver has to accept the next delivery.
async fn cut_connection(run: &Run) -> Grade {
    let cut = run.event();
    let response = send_half(run, &cut).await;
    let event = run.event();
    let afterwards = run.deliver(&event).await;

    let grade = match response {
        Some((status @ 200..300, _)) => Grade::failed(
            status.to_string(),
            Finding::new(
                "The receiver accepted a delivery although only half of its body had arrived when the connection ended.",
                "The signature cannot match half of a body, so the receiver does not verify the body that it received.",
                "Reject a body that is shorter than its Content-Length, and verify the signature over the bytes that arrived.",
            ),
        ),
        Some((429, _) | (503, true)) => Grade::not_seen(LIMITED).expect(cut.expect(Effect::Never)),
        Some((status, _)) => Grade::passed(status.to_string()).expect(cut.expect(Effect::Never)),
        None => Grade::passed("closed").expect(cut.expect(Effect::Never)),
    };
    let remedy = "Look at the receiver's log: the interrupted request left the receiver stuck, or crashed it. Handle the error \
        from reading the body.";
    let delivery = "A genuine delivery after a connection that ended in the middle of a body";
    let accepted = accepted(&afterwards, delivery, remedy, run.timeout);
    grade.and(with_expectation(accepted, &event, Effect::Once))
}

/// Sends the headers and half of the body, and ends the sending side. Returns the status of the response, if there is
/// one, and whether it has `Retry-After`. The connection is closed after that.
async fn send_half(run: &Run, event: &SampleEvent) -> Option<(u16, bool)> {
    let mut head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        run.url.path_and_query,
        run.url.authority,
        event.body.len(),
    )
    .into_bytes();
    for (name, value) in &run.signed(event) {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(&event.body[..event.body.len() / 2]);

    let mut response = Vec::new();
    let exchange = async {
        let address = (run.url.host.as_str(), run.url.port);
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&head).await?;
        stream.shutdown().await?;
        while !has_headers(&response) && response.len() < LONGEST_HEAD {
            if stream.read_buf(&mut response).await? == 0 {
                break;
            }
        }
        // A connection that is closed before the receiver has written everything is an error in its log.
        let mut nowhere = tokio::io::sink();
        let rest = tokio::io::copy(&mut stream, &mut nowhere);
        let _ = tokio::time::timeout(CLOSING, rest).await;
        std::io::Result::Ok(())
    };
    // A part of a response counts, too.
    let _ = tokio::time::timeout(PATIENCE.max(run.timeout / 2), exchange).await;
    Some((status_of(&response)?, has_retry_after(&response)))
}

/// Returns whether a response that starts with these bytes has arrived up to its body.
fn has_headers(response: &[u8]) -> bool {
    response.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}

fn has_retry_after(response: &[u8]) -> bool {
    let head = String::from_utf8_lossy(response).to_ascii_lowercase();
    let mut lines = head.lines().take_while(|line| !line.is_empty());
    lines.any(|line| line.starts_with("retry-after:"))
}

/// Returns the status of a response that starts with these bytes.
fn status_of(response: &[u8]) -> Option<u16> {
    let rest = response.strip_prefix(b"HTTP/1.")?;
    let code = rest.get(2..5)?;
    str::from_utf8(code).ok()?.parse().ok()
}

/// Says that the receiver does not verify the bytes that it received.
pub(super) fn serialized_again() -> Finding {
    Finding::new(
        "The receiver parses the JSON and serializes it again before it verifies the signature. It accepts a delivery only \
         if its own serializer writes the same bytes.",
        "The signature covers the bytes of the body as sent. If the members have another order, or the JSON contains white \
         space or an escape that the serializer does not write, a genuine delivery looks forged (interface section 5, \
         Signatures of webhooks).",
        "Verify the raw body, before any JSON parsing. In Express, use `express.raw` for this route; in Flask, \
         `request.get_data()`; in Django, `request.body`.",
    )
}

#[cfg(test)]
mod tests;
