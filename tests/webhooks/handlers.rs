//! The axum and actix-web extractors and the tower layer over real sockets: the whole corpus, and cases of HTTP itself.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use audience::webhooks::{EventType, Rejection, Signer, Verifier, VerifyError};

use support::PATIENCE;
use support::deliveries::{self, Delivery, error_name, event_as_json};
use support::receivers::{Framework, Receiver, TestClock};
use support::requests::{Request, Response};

const SECRET: &str = "Tm4 the handlers are tested with this";

#[test]
fn axum_responds_to_every_delivery_of_the_corpus_as_expected() {
    run_the_corpus(Framework::Axum);
}

#[test]
fn actix_responds_to_every_delivery_of_the_corpus_as_expected() {
    run_the_corpus(Framework::Actix);
}

#[test]
fn the_tower_layer_responds_to_every_delivery_of_the_corpus_as_expected() {
    run_the_corpus(Framework::Tower);
}

fn run_the_corpus(framework: Framework) {
    let mut receivers = BTreeMap::new();
    let mut wrong = Vec::new();

    for delivery in deliveries::all().iter().filter(|delivery| delivery.http) {
        let settings = (
            delivery.secrets.clone(),
            delivery.tolerance,
            delivery.body_limit,
        );
        let (receiver, clock) = receivers.entry(settings).or_insert_with(|| {
            let clock = TestClock::default();
            let verifier = delivery.verifier(clock.as_fn());
            (Receiver::start(framework, Some(verifier)), clock)
        });
        clock.set(delivery.now);
        if let Err(difference) = check(delivery, receiver) {
            wrong.push(format!("{}: {difference}", delivery.name));
        }
    }

    assert!(wrong.is_empty(), "{framework:?}:\n{}", wrong.join("\n"));
}

fn check(delivery: &Delivery, receiver: &Receiver) -> Result<(), String> {
    let body = delivery.body();
    let request = Request::post().headers(delivery.headers()).body(&body);
    let expect = &delivery.expect;

    let response = receiver.send(&request);

    let accepted = receiver.take_accepted();
    let refused = receiver.take_refused();
    if response.status != expect.status || !response.body.is_empty() {
        return Err(format!(
            "responded {response:?}, expected {}",
            expect.status
        ));
    }
    match (&accepted[..], &refused[..]) {
        ([signed], []) => {
            assert_eq!(signed.body(), &body);
            let found = (Some(event_as_json(signed)), Some(signed.secret_name()));
            let expected = (expect.event.clone(), expect.secret.as_deref());
            if found == expected {
                Ok(())
            } else {
                Err(format!("handled {found:?}, expected {expected:?}"))
            }
        }
        ([], [Rejection::Verify { error, .. }]) if Some(error_name(error)) == expect.error => {
            Ok(())
        }
        other => Err(format!(
            "resulted in {other:?}, expected {:?}",
            expect.error
        )),
    }
}

/// Starts a receiver with default settings, and returns a delivery that it accepts.
fn genuine(framework: Framework) -> (Receiver, Request, Vec<u8>) {
    let (request, body) = signed(&SystemTime::now(), 0);
    (Receiver::start(framework, Some(verifier())), request, body)
}

/// Returns a verifier with default settings, but for the time that a body may take on a slow machine.
fn verifier() -> Verifier {
    let builder = Verifier::builder().secret("default", SECRET);
    builder.body_timeout(PATIENCE).build().unwrap()
}

/// Returns a signed request without its body, and the body with `spaces` at its end.
fn signed(moment: &SystemTime, spaces: usize) -> (Request, Vec<u8>) {
    let mut body = br#"{"id":"evt_1","type":"email.opened","created_at":1,"data":{}}"#.to_vec();
    body.resize(body.len() + spaces, b' ');
    (signed_as(Request::post(), moment, &body), body)
}

fn signed_as(request: Request, moment: &SystemTime, body: &[u8]) -> Request {
    let headers = Signer::new(SECRET)
        .unwrap()
        .sign(&EventType::Opened, *moment, body);
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes().to_vec()));
    request.headers(pairs)
}

fn assert_refused(receiver: &Receiver, response: &Response, status: u16) -> Rejection {
    assert_eq!(
        (response.status, &response.body[..]),
        (status, &b""[..]),
        "{response:?}"
    );
    assert!(receiver.take_accepted().is_empty());
    receiver
        .take_refused()
        .pop()
        .expect("the refusal was recorded")
}

#[test]
fn a_signed_request_with_another_method_than_post_is_refused_before_its_body_arrives() {
    for framework in Framework::ALL {
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
            let (receiver, _, body) = genuine(framework);
            let request = signed_as(Request::new(method), &SystemTime::now(), &body);

            for request in [request.clone().body(&body), request.stated(1_000_000, b"")] {
                let response = receiver.send(&request);

                let rejection = assert_refused(&receiver, &response, 405);
                assert!(
                    matches!(rejection, Rejection::MethodNotAllowed),
                    "{framework:?} {method}"
                );
                assert!(
                    response.head.contains("\r\nallow: post\r\n"),
                    "{response:?}"
                );
            }
        }
    }
}

#[test]
fn only_a_refusal_of_the_method_names_the_allowed_one() {
    for framework in Framework::ALL {
        let (receiver, request, body) = genuine(framework);

        let accepted = receiver.send(&request.clone().body(&body));
        let forged = receiver.send(&request.body(b"{}"));

        assert_eq!((accepted.status, forged.status), (200, 401));
        for response in [accepted, forged] {
            assert!(!response.head.contains("allow:"), "{response:?}");
        }
    }
}

#[test]
fn a_chunked_body_is_verified_as_a_whole() {
    for framework in Framework::ALL {
        for size in [1, 7, 64 * 1024] {
            let (receiver, request, body) = genuine(framework);

            let response = receiver.send(&request.chunked(size, &body));

            assert_eq!(response.status, 200, "{framework:?} in chunks of {size}");
            assert_eq!(receiver.take_accepted()[0].body(), &body);
        }
    }
}

#[test]
fn headers_that_describe_the_body_do_not_change_its_bytes() {
    for framework in Framework::ALL {
        for (name, value) in [
            ("content-encoding", "gzip"),
            ("content-type", "text/plain; charset=utf-16"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("content-length-hint", "1"),
        ] {
            let (receiver, request, body) = genuine(framework);

            let response = receiver.send(&request.header(name, value).body(&body));

            assert_eq!(response.status, 200, "{framework:?} {name}: {value}");
            assert_eq!(receiver.take_accepted()[0].body(), &body);
        }
    }
}

#[test]
fn a_genuine_chunked_body_over_256_kib_is_accepted() {
    for framework in Framework::ALL {
        let (receiver, _, _) = genuine(framework);
        let (request, body) = signed(&SystemTime::now(), 1_500_000);

        let response = receiver.send(&request.chunked(10_000, &body));

        assert_eq!(response.status, 200, "{framework:?}");
    }
}

#[test]
fn a_chunked_body_over_the_limit_is_refused() {
    for framework in Framework::ALL {
        let (receiver, _, _) = genuine(framework);
        let (request, body) = signed(&SystemTime::now(), 3 * 1024 * 1024);

        let response = receiver.send(&request.chunked(100_000, &body));

        let rejection = assert_refused(&receiver, &response, 413);
        let limit = 2 * 1024 * 1024;
        assert_eq!(
            rejection.verify_error(),
            Some(&VerifyError::BodyTooLarge { limit }),
            "{framework:?}"
        );
    }
}

#[test]
fn a_content_length_over_the_limit_is_refused_before_the_body_arrives() {
    for framework in Framework::ALL {
        for length in [2 * 1024 * 1024 + 1, usize::MAX / 2] {
            let (receiver, request, _) = genuine(framework);

            let response = receiver.send(&request.stated(length, b""));

            assert_refused(&receiver, &response, 413);
        }
    }
}

#[test]
fn a_body_over_the_limit_is_counted() {
    for framework in Framework::ALL {
        let verifier = verifier();
        let receiver = Receiver::start(framework, Some(verifier.clone()));
        let (limit, now) = (verifier.body_limit(), SystemTime::now());
        let (request, body) = signed(&now, limit);
        let headers = Signer::new(SECRET).unwrap();
        let headers = headers.sign(&EventType::Opened, now, &body);
        let (short_request, short) = signed(&now, 0);

        receiver.send(&request.clone().stated(limit + 1, b""));
        receiver.send(&request.chunked(100_000, &body));
        verifier.verify(&headers, &body).unwrap_err();
        receiver.send(&short_request.body(&short));

        let metrics = verifier.metrics();
        assert_eq!(metrics.too_large, 3, "{framework:?}");
        assert_eq!(metrics.accepted["default"], 1);
        let text = metrics.to_prometheus();
        assert!(text.ends_with("\naudience_webhooks_too_large_total 3\n"));
    }
}

#[test]
fn a_request_without_a_signature_is_counted_and_one_that_breaks_off_is_not() {
    for framework in Framework::ALL {
        let verifier = Verifier::new(SECRET).unwrap();
        let receiver = Receiver::start(framework, Some(verifier.clone()));
        let (request, body) = signed(&SystemTime::now(), 0);

        receiver.send(&Request::post().body(&body));
        receiver.send(&request.stated(body.len() + 1, &body).cut());

        let metrics = verifier.metrics();
        assert_eq!(
            (metrics.malformed, metrics.unauthorized),
            (1, 0),
            "{framework:?}"
        );
    }
}

#[test]
fn malformed_headers_are_refused_before_the_body_arrives() {
    for framework in Framework::ALL {
        let (receiver, _, _) = genuine(framework);
        let request = Request::post()
            .header("webhook-signature", "v1,c2lnbmF0dXJl")
            .header("webhook-timestamp", "1700000000");

        let response = receiver.send(&request.stated(1_000_000, b""));

        let rejection = assert_refused(&receiver, &response, 400);
        let error = rejection.verify_error();
        assert!(
            matches!(error, Some(VerifyError::MalformedSignature { .. })),
            "{rejection:?}"
        );
    }
}

#[test]
fn a_content_length_reserves_no_memory() {
    for framework in Framework::ALL {
        let clock = TestClock::default();
        let verifier = Verifier::builder()
            .secret("huge", SECRET)
            .body_limit(usize::MAX)
            .clock(clock.as_fn())
            .build();
        let receiver = Receiver::start(framework, Some(verifier.unwrap()));
        let (request, body) = signed(&SystemTime::now(), 0);

        let response = receiver.send(&request.stated(usize::MAX / 4, &body).cut());

        // Content-Length promises four exabytes, which could not be reserved. Then the body ends early.
        assert!(
            matches!(response.status, 400 | 0),
            "{framework:?}: {response:?}"
        );
        assert!(receiver.take_accepted().is_empty());
        let (request, body) = signed(&SystemTime::UNIX_EPOCH, 0);
        let response = receiver.send(&request.body(&body));
        assert_eq!(response.status, 200, "{framework:?} still responds");
    }
}

#[test]
fn a_content_length_shorter_than_the_body_truncates_the_body() {
    for framework in Framework::ALL {
        let (receiver, request, body) = genuine(framework);

        let response = receiver.send(&request.stated(body.len() - 1, &body));

        let rejection = assert_refused(&receiver, &response, 401);
        assert_eq!(
            rejection.verify_error(),
            Some(&VerifyError::SignatureMismatch)
        );
    }
}

#[test]
fn a_truncated_body_is_refused() {
    for framework in Framework::ALL {
        let (receiver, request, body) = genuine(framework);

        let response = receiver.send(&request.stated(body.len() + 1, &body).cut());

        // The connection may be closed before the response is sent.
        assert!(
            matches!(response.status, 400 | 0),
            "{framework:?}: {response:?}"
        );
        assert!(receiver.take_accepted().is_empty());
    }
}

#[test]
fn invalid_chunks_are_refused_with_400() {
    for framework in Framework::ALL {
        for garbage in ["xyz\r\nmore", "5\r\nabcdefg\r\n", "ffffffffffffffffff\r\n"] {
            let (receiver, request, _) = genuine(framework);

            let response = receiver.send(&request.broken_chunks(garbage.as_bytes()).cut());

            assert_eq!(
                response.status, 400,
                "{framework:?} {garbage:?}: {response:?}"
            );
            assert!(receiver.take_accepted().is_empty());
        }
    }
}

#[test]
fn each_delivery_of_a_kept_alive_connection_is_verified() {
    for framework in Framework::ALL {
        let (receiver, request, body) = genuine(framework);
        let keep_alive = |request: Request| {
            let text = request.bytes();
            let close = b"connection: close\r\n";
            let at = text
                .windows(close.len())
                .position(|window| window == close)
                .unwrap();
            [&text[..at], &text[at + close.len()..]].concat()
        };
        let forged: Vec<u8> = body
            .iter()
            .map(|byte| if *byte == b'1' { b'2' } else { *byte })
            .collect();
        let mut stream = receiver.connect();

        stream
            .write_all(&keep_alive(request.clone().body(&body)))
            .unwrap();
        stream
            .write_all(&keep_alive(request.clone().body(&forged)))
            .unwrap();
        stream.write_all(&request.body(&body).bytes()).unwrap();
        let statuses = [(); 3].map(|()| Response::read(&mut stream).status);

        assert_eq!(statuses, [200, 401, 200], "{framework:?}");
        assert_eq!(receiver.take_accepted().len(), 2);
    }
}

#[test]
fn a_slow_body_is_read_completely() {
    for framework in Framework::ALL {
        let (receiver, request, body) = genuine(framework);
        let bytes = request.body(&body).bytes();
        let (early, late) = bytes.split_at(bytes.len() - body.len() / 2);
        let mut stream = receiver.connect();
        let start = Instant::now();

        stream.write_all(early).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(late).unwrap();
        let response = Response::read(&mut stream);

        assert_eq!(response.status, 200, "{framework:?}");
        assert!(start.elapsed() >= Duration::from_millis(100));
    }
}

#[test]
fn actix_without_a_verifier_responds_500_to_every_delivery() {
    let receiver = Receiver::start(Framework::Actix, None);
    let (request, body) = signed(&SystemTime::now(), 0);

    for _ in 0..2 {
        let response = receiver.send(&request.clone().body(&body));

        let rejection = assert_refused(&receiver, &response, 500);
        assert!(matches!(rejection, Rejection::NoVerifier), "{rejection:?}");
    }
}
