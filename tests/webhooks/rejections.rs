//! What a handler learns about a delivery that an extractor refused.

use std::sync::Arc;
use std::time::SystemTime;

use audience::webhooks::{BodyChange, Diagnosis, EventType, Signer, Verifier, VerifyError};
use audience::webhooks::{Rejection, VerifiedEvent};
use axum::extract::{FromRef, FromRequest};
use static_assertions::assert_impl_all;

use super::{BODY, SECRET};
use support::receivers::{Framework, Middleware, Receiver};
use support::requests::Request;

/// Returns the head of a request that was signed with `secret` for `body`.
fn signed_with(secret: &str, body: &str) -> Request {
    let signer = Signer::new(secret).unwrap();
    let headers = signer.sign(&EventType::Bounced, SystemTime::now(), body);
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes().to_vec()));
    Request::post().headers(pairs)
}

#[test]
fn a_rejection_finds_out_why_the_delivery_was_refused() {
    for framework in Framework::ALL {
        let receiver = Receiver::start(framework, Some(Verifier::new(SECRET).unwrap()));
        let parsed: serde_json::Value = serde_json::from_str(BODY).unwrap();
        let spaced = format!("{parsed:#}");
        for (signed_by, given, seen, expected) in [
            (
                SECRET.to_owned(),
                "unused",
                spaced.as_str(),
                Diagnosis::BodyChanged(BodyChange::Reserialized),
            ),
            (
                "another".to_owned(),
                "another",
                BODY,
                Diagnosis::AnotherSecret {
                    name: "orders".to_owned(),
                },
            ),
            ("forged".to_owned(), "unused", BODY, Diagnosis::Unexplained),
        ] {
            let request = signed_with(&signed_by, BODY).body(seen.as_bytes());

            assert_eq!(receiver.send(&request).status, 401, "{framework:?}");

            let rejection = receiver.take_refused().pop().unwrap();
            let diagnosis = rejection.diagnose([("orders", given)]);
            assert_eq!(diagnosis, Some(expected), "{framework:?}");
            assert!(!format!("{rejection:?} {rejection}").contains("ada@example.com"));
        }
    }
}

#[test]
fn a_rejection_before_the_body_is_read_names_the_scheme_or_the_error() {
    for framework in Framework::ALL {
        let receiver = Receiver::start(framework, Some(Verifier::new(SECRET).unwrap()));
        let standard = Request::post()
            .header("webhook-signature", "v1,c2lnbmF0dXJl")
            .header("webhook-timestamp", "1700000000");
        let missing = VerifyError::MissingHeader {
            header: "webhook-signature",
        };
        for (request, expected) in [
            (standard, Diagnosis::StandardWebhooks),
            (Request::post(), Diagnosis::Rejected(missing)),
        ] {
            assert_eq!(receiver.send(&request.body(b"{}")).status, 400);

            let rejection = receiver.take_refused().pop().unwrap();
            let diagnosis = rejection.diagnose([("main", SECRET)]);
            assert_eq!(diagnosis, Some(expected), "{framework:?}");
        }
    }
}

#[test]
fn a_body_that_was_consumed_before_is_reported_as_that() {
    for framework in Framework::ALL {
        let verifier = Verifier::new(SECRET).unwrap();
        let receiver = Receiver::start_behind(Middleware::ReadsBody, framework, Some(verifier));
        let request = signed_with(SECRET, BODY);
        for request in [
            request.clone().body(BODY.as_bytes()),
            request.chunked(10, BODY.as_bytes()),
        ] {
            let response = receiver.send(&request);

            assert_eq!((response.status, &response.body[..]), (500, &b""[..]));
            let rejection = receiver.take_refused().pop().unwrap();
            assert!(
                matches!(rejection, Rejection::BodyConsumed),
                "{framework:?}: {rejection:?}"
            );
            assert_eq!(rejection.diagnose([("main", SECRET)]), None);
        }
    }
}

#[test]
fn an_empty_body_of_a_stranger_is_not_reported_as_consumed() {
    for framework in Framework::ALL {
        let receiver = Receiver::start(framework, Some(Verifier::new(SECRET).unwrap()));
        let request = signed_with(SECRET, BODY);
        for request in [
            request.clone(),
            request.clone().body(b""),
            request.chunked(1, b""),
        ] {
            let response = receiver.send(&request);

            assert_eq!(response.status, 401, "{framework:?}");
            let rejection = receiver.take_refused().pop().unwrap();
            let emptied = Diagnosis::BodyChanged(BodyChange::Emptied);
            assert_eq!(rejection.diagnose([("main", SECRET)]), Some(emptied));
        }
    }
}

/// The state of an application, not `Clone`.
struct App {
    verifier: Verifier,
}

impl FromRef<App> for Verifier {
    fn from_ref(app: &App) -> Self {
        app.verifier.clone()
    }
}

#[test]
fn the_state_of_a_router_may_be_an_arc() {
    assert_impl_all!(VerifiedEvent: FromRequest<Verifier>, FromRequest<Arc<Verifier>>);
    assert_impl_all!(VerifiedEvent: FromRequest<App>, FromRequest<Arc<App>>);
    let app = Arc::new(App {
        verifier: Verifier::new(SECRET).unwrap(),
    });

    let verifier = Verifier::from_ref(&app);

    assert_eq!(verifier.body_limit(), app.verifier.body_limit());
}

#[test]
fn a_body_as_another_language_spells_it_was_reserialized() {
    let spell =
        |start: &str, end: &str| format!(r#"{{"id":"evt_1","detail":"5\" \\\"{start}ada/{end}"}}"#);
    let received = spell("<ä>", "😀");
    let python = spell(r"<\u00e4>", r"\ud83d\ude00").replace(r#"",""#, r#"", ""#);
    let python = python.replace(r#"":""#, r#"": ""#);
    let php = spell(r"<\u00e4>", r"\ud83d\ude00").replace('/', r"\/");
    let go = spell(r"\u003cä\u003e", "😀");
    let verifier = Verifier::new(SECRET).unwrap();
    for original in [python, php, go] {
        let headers = Signer::new(SECRET).unwrap();
        let headers = headers.sign(&EventType::Bounced, SystemTime::now(), &original);

        let diagnosis = verifier.diagnose(&headers, received.as_bytes(), [("main", SECRET)]);

        let expected = Diagnosis::BodyChanged(BodyChange::Reserialized);
        assert_eq!(diagnosis, expected, "{original}");
    }
}
