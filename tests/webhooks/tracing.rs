//! The events of the verifier, as the table in the docs of `webhooks` says.

use std::collections::BTreeMap;
use std::convert::Infallible;

use actix_web::FromRequest;
use audience::webhooks::tower::{BytesBody, VerifyLayer};
use audience::webhooks::{Signer, TIMESTAMP_HEADER, VerifiedEvent, Verifier};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::StreamBody;
use tower::ServiceExt;
use tracing::Level;

use super::{BODY, NOW, SECRET, at, signed, signed_at, verifier};
use support::trace_log::{Entry, Log};

/// Returns the fields of the only event, whose text and level must be these.
fn only_event(log: &Log, text: &str, level: Level) -> BTreeMap<String, String> {
    let [event] = &log.events()[..] else {
        panic!("{}", log.text())
    };
    let Entry { fields, .. } = event;
    assert_eq!(fields["message"], text);
    assert_eq!(event.level, level, "{fields:?}");
    fields.clone()
}

fn fields<'a>(pairs: &[(&'a str, &'a str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn assert_is_documented(cause: &str) {
    let docs = include_str!("../../src/webhooks/mod.rs");
    assert!(
        docs.contains(&format!("`{cause}`")),
        "{cause} is missing in the docs"
    );
}

#[test]
fn an_accepted_delivery_is_traced_with_its_secret_and_skew() {
    let log = Log::start();

    let headers = signed_at(NOW - 7, BODY);
    verifier().verify(&headers, BODY.as_bytes()).unwrap();

    let text = "webhook delivery authenticated";
    let found = only_event(&log, text, Level::DEBUG);
    let expected = fields(&[("message", text), ("secret", "main"), ("skew", "7")]);
    assert_eq!(found, expected);
}

#[test]
fn a_refused_delivery_is_traced_with_its_cause_and_status() {
    let mut malformed = signed(BODY);
    malformed.insert(TIMESTAMP_HEADER, "soon".parse().unwrap());
    let mut twice = signed(BODY);
    twice.append(TIMESTAMP_HEADER, "1".parse().unwrap());
    let mut short = signed(BODY);
    short.insert("webhook-signature", "abc".parse().unwrap());
    let long = vec![b'x'; 2 * 1024 * 1024 + 1];
    for (headers, body, cause, status, level) in [
        (
            HeaderMap::new(),
            BODY.as_bytes(),
            "missing_header",
            "400",
            Level::DEBUG,
        ),
        (
            twice,
            BODY.as_bytes(),
            "duplicate_header",
            "400",
            Level::DEBUG,
        ),
        (
            malformed,
            BODY.as_bytes(),
            "malformed_timestamp",
            "400",
            Level::DEBUG,
        ),
        (
            short,
            BODY.as_bytes(),
            "malformed_signature",
            "400",
            Level::DEBUG,
        ),
        (signed(BODY), &long, "body_too_large", "413", Level::WARN),
        (
            signed(BODY),
            b"{}",
            "signature_mismatch",
            "401",
            Level::WARN,
        ),
        (signed("{}"), b"{}", "invalid_envelope", "400", Level::WARN),
    ] {
        let log = Log::start();

        verifier().verify(&headers, body).unwrap_err();

        let events = log.events();
        let refused = events.last().unwrap();
        assert_eq!(refused.fields["message"], "webhook delivery rejected");
        assert_eq!(refused.fields["cause"], cause);
        assert_is_documented(cause);
        assert_eq!(refused.fields["status"], status, "{cause}");
        assert_eq!(refused.level, level, "{cause}");
        // An envelope is parsed only after the delivery was authenticated.
        let before = usize::from(cause == "invalid_envelope");
        assert_eq!(events.len(), 1 + before, "{cause}");
        assert!(!refused.fields.contains_key("skew"), "{cause}");
    }
}

#[test]
fn an_event_without_the_members_that_identify_it_is_a_warning() {
    let unidentified = BODY.replace(r#""to":"ada@example.com","#, "");
    let unknown_type = unidentified.replace("email.bounced", "email.snoozed");
    for (body, expected) in [
        (unidentified.as_str(), Some("email.bounced")),
        (&unknown_type, None),
        (BODY, None),
    ] {
        let log = Log::start();

        verifier().verify(&signed(body), body.as_bytes()).unwrap();

        let text = "webhook event without the members that identify it";
        let mut events = log.events().into_iter();
        let warning = events.find(|event| event.level == Level::WARN);
        let found = warning.map(|event| event.fields);
        assert_eq!(
            found,
            expected.map(|name| fields(&[("message", text), ("type", name), ("id", "evt_1")]))
        );
        assert!(include_str!("../../src/webhooks/mod.rs").contains(text));
    }
}

#[test]
fn a_genuine_delivery_outside_the_window_is_a_warning_with_its_skew() {
    for (signed_at_second, cause, skew, error) in [
        (
            NOW - 301,
            "too_late",
            "301",
            "the delivery is genuine but 301 seconds old",
        ),
        (
            NOW + 400,
            "too_early",
            "-400",
            "the delivery is genuine but dated 400 seconds in the future",
        ),
    ] {
        let log = Log::start();

        let headers = signed_at(signed_at_second, BODY);
        verifier().verify(&headers, BODY.as_bytes()).unwrap_err();

        let text = "webhook delivery rejected";
        let found = only_event(&log, text, Level::WARN);
        let expected = fields(&[
            ("message", text),
            ("cause", cause),
            ("status", "401"),
            ("skew", skew),
            ("error", error),
        ]);
        assert_eq!(found, expected);
        assert_is_documented(cause);
    }
}

#[test]
fn an_unusable_clock_is_an_error() {
    let log = Log::start();
    let before_1970 = at(0) - std::time::Duration::from_secs(1);
    let verifier = Verifier::builder()
        .secret("main", SECRET)
        .clock(move || before_1970)
        .build()
        .unwrap();

    verifier.verify(&signed(BODY), BODY.as_bytes()).unwrap_err();

    let found = only_event(&log, "webhook delivery rejected", Level::ERROR);
    assert_eq!(found["cause"], "clock_unusable");
    assert_is_documented("clock_unusable");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_traced_once() {
    let small = Verifier::builder().secret("main", SECRET).body_memory(1);
    let impatient = Verifier::builder()
        .secret("main", SECRET)
        .body_timeout(std::time::Duration::ZERO);
    let frame = |bytes: &'static [u8]| Ok(http_body::Frame::data(Bytes::from_static(bytes)));
    let broken = || Err(std::io::Error::other("broken"));
    for (builder, frames, ends, cause, status, level) in [
        (
            small,
            vec![frame(b"{}")],
            true,
            "body_memory",
            "503",
            Level::WARN,
        ),
        (
            impatient,
            vec![frame(b"{")],
            false,
            "body_timeout",
            "408",
            Level::DEBUG,
        ),
        (
            Verifier::builder().secret("main", SECRET),
            vec![broken()],
            true,
            "body",
            "400",
            Level::DEBUG,
        ),
        (
            Verifier::builder().secret("main", SECRET),
            vec![],
            true,
            "body_consumed",
            "500",
            Level::ERROR,
        ),
    ] {
        use futures_util::StreamExt;
        let log = Log::start();
        let rest = if ends {
            stream::empty().left_stream()
        } else {
            stream::pending().right_stream()
        };
        let body = StreamBody::new(stream::iter(frames).chain(rest));
        let mut request = Request::post("/").body(body).unwrap();
        *request.headers_mut() = signed(BODY);
        request
            .headers_mut()
            .insert("content-length", "2".parse().unwrap());
        let service = VerifyLayer::new(builder.build().unwrap())
            .handler(async |_: VerifiedEvent| StatusCode::OK);

        let response: Result<http::Response<BytesBody>, Infallible> =
            service.oneshot(request).await;

        let response = response.unwrap();
        let found = only_event(&log, "webhook delivery rejected", level);
        assert_eq!(found["cause"], cause);
        assert_is_documented(cause);
        assert_eq!(found["status"], status);
        assert_eq!(response.status().as_str(), status);
    }
}

#[tokio::test]
async fn a_request_with_another_method_than_post_is_traced() {
    let log = Log::start();
    let request = actix_web::test::TestRequest::get().to_http_request();

    let delivery = VerifiedEvent::extract(&request).await;

    assert_eq!(delivery.unwrap_err().status(), 405);
    let found = only_event(&log, "webhook delivery rejected", Level::DEBUG);
    assert_eq!(
        (found["cause"].as_str(), found["status"].as_str()),
        ("method", "405")
    );
    assert_is_documented("method");
}

#[tokio::test]
async fn actix_without_a_verifier_is_an_error() {
    let log = Log::start();
    let request = actix_web::test::TestRequest::post().to_http_request();

    let delivery = VerifiedEvent::extract(&request).await;

    assert_eq!(delivery.unwrap_err().status(), 500);
    let found = only_event(&log, "webhook delivery rejected", Level::ERROR);
    assert_eq!(found["cause"], "no_verifier");
    assert_is_documented("no_verifier");
}

#[test]
fn no_event_has_an_address_a_body_a_secret_or_a_mac() {
    let log = Log::start();
    let forged = Signer::new("another secret").unwrap();
    let forged = forged.sign(&"email.sent".into(), at(NOW), BODY);

    verifier().verify(&signed(BODY), BODY.as_bytes()).unwrap();
    verifier().verify(&forged, BODY.as_bytes()).unwrap_err();
    let late = signed_at(NOW - 301, BODY);
    verifier().verify(&late, BODY.as_bytes()).unwrap_err();
    let odd = BODY.replace("evt_1", "");
    verifier()
        .verify(&signed(&odd), odd.as_bytes())
        .unwrap_err();

    let printed = log.text();
    assert_eq!(log.events().len(), 5, "{printed}");
    let mac = signed(BODY)["webhook-signature"]
        .to_str()
        .unwrap()
        .to_owned();
    for hidden in [
        "ada@",
        "example.com",
        "evt_1",
        "550 no",
        SECRET,
        &mac,
        "another secret",
    ] {
        assert!(!printed.contains(hidden), "{hidden:?} in {printed}");
    }
}
