use std::io;
use std::sync::atomic::Ordering;

use futures_util::{FutureExt, StreamExt, stream};

use super::*;

fn verifier(body_limit: usize) -> Verifier {
    let builder = Verifier::builder().secret("2026", "6Jm0nFq2pXvZk4Tt");
    builder.body_limit(body_limit).build().unwrap()
}

fn incoming<S>(content_length: Option<&[u8]>, chunks: S) -> IncomingBody<'_, S> {
    IncomingBody {
        content_length,
        is_consumed: false,
        chunks,
    }
}

fn chunks(sizes: impl IntoIterator<Item = usize>) -> Vec<io::Result<Bytes>> {
    let filled = |size| Ok(Bytes::from(vec![b'x'; size]));
    sizes.into_iter().map(filled).collect()
}

#[test]
fn nothing_is_read_after_the_chunk_that_exceeds_the_limit() {
    let mut polled = 0;
    let body = stream::iter(chunks([4, 4, 4, 4])).inspect(|_| polled += 1);

    let verifier = verifier(10);
    let outcome = incoming(None, body).read(&verifier).now_or_never().unwrap();

    let rejection = outcome.map(|(body, _)| body).unwrap_err();
    assert_eq!(rejection.status(), 413);
    let limit = 10;
    let error = VerifyError::BodyTooLarge { limit };
    assert_eq!(rejection.verify_error(), Some(&error));
    assert_eq!(polled, 3);
}

#[tokio::test]
async fn a_body_as_long_as_the_limit_is_read() {
    for sizes in [vec![10], vec![4, 6], vec![0, 9, 0, 1, 0]] {
        let body = stream::iter(chunks(sizes));

        let verifier = verifier(10);
        let outcome = incoming(None, body).read(&verifier).await;

        assert_eq!(outcome.map(|(body, _)| body).unwrap(), vec![b'x'; 10]);
    }
}

#[test]
fn a_small_body_in_several_chunks_may_use_the_memory_that_long_bodies_may_not() {
    let verifier = Verifier::builder().secret("2026", "6Jm0nFq2pXvZk4Tt");
    let verifier = verifier.body_memory(4 * SMALL_BODY).build().unwrap();
    let mut long_bodies = verifier.read_limits().reserve(verifier.body_limit());
    assert!(long_bodies.grow_to(2 * SMALL_BODY));
    let read = |sizes| {
        let body = incoming(None, stream::iter(chunks(sizes)));
        let outcome = body.read(&verifier).now_or_never().unwrap();
        outcome.map(|(body, _)| body.len())
    };

    let small = read([SMALL_BODY - 1, 1]);
    let long = read([SMALL_BODY, 1]);

    assert_eq!(small.unwrap(), SMALL_BODY);
    assert_eq!(long.unwrap_err().status(), 503);
}

#[test]
fn a_broken_stream_is_rejected_with_its_cause() {
    let mut broken = chunks([4]);
    broken.push(Err(io::ErrorKind::ConnectionReset.into()));

    let verifier = verifier(10);
    let body = incoming(None, stream::iter(broken));
    let outcome = body.read(&verifier).now_or_never().unwrap();

    let rejection = outcome.map(|(body, _)| body).unwrap_err();
    assert_eq!(rejection.status(), 400);
    assert_eq!(rejection.verify_error(), None);
    let cause = rejection.source().unwrap().to_string();
    assert_eq!(cause, "connection reset");
}

#[test]
fn a_body_that_keeps_its_reader_waiting_outside_a_tokio_runtime_does_not_panic() {
    let verifier = verifier(10);
    let body = incoming(None, stream::pending::<io::Result<Bytes>>());

    assert!(body.read(&verifier).now_or_never().is_none());
}

#[test]
fn an_absurd_or_unreadable_length_reserves_no_memory_and_does_not_panic() {
    let verifier = verifier(10);
    let headers = || DeliveryHeaders::from_parts(Some(&[b'0'; 64]), Some(b"1700000000"));
    for (stated, status) in [
        (&b"18446744073709551615"[..], 413),
        (b"11", 413),
        (b"10", 401),
        (b"18446744073709551616", 401),
        (b"-1", 401),
        (b"ten", 401),
        (b"\xff", 401),
    ] {
        let body = stream::iter(chunks([10]));

        let body = incoming(Some(stated), body);
        let outcome = receive(&verifier, headers(), body).now_or_never();

        assert_eq!(outcome.unwrap().unwrap_err().status(), status, "{stated:?}");
    }
}

#[test]
fn the_body_of_a_rejection_takes_memory_until_the_rejection_is_dropped() {
    let verifier = Verifier::builder().secret("2026", "6Jm0nFq2pXvZk4Tt");
    let verifier = verifier.body_memory(10).build().unwrap();
    let receive_forged = || {
        let headers = DeliveryHeaders::from_parts(Some(&[b'0'; 64]), Some(b"1700000000"));
        let body = incoming(None, stream::iter(chunks([10])));
        let outcome = receive(&verifier, headers, body).now_or_never();
        outcome.unwrap().unwrap_err()
    };

    let rejection = receive_forged();
    let clone = rejection.clone();
    drop(rejection);
    let meanwhile = receive_forged().status();
    drop(clone);
    let afterwards = receive_forged().status();

    assert_eq!((meanwhile.as_u16(), afterwards.as_u16()), (503, 401));
}

const LONG: usize = SMALL_BODY + 1;

#[test]
fn long_bodies_leave_half_of_the_memory_to_small_ones() {
    let limits = ReadLimits {
        memory: Some(4 * LONG),
        ..ReadLimits::default()
    };
    let [mut first, mut second, mut third, mut small] = [0; 4].map(|_| limits.reserve(LONG));

    assert!(first.grow_to(LONG) && second.grow_to(LONG));
    assert!(!third.grow_to(LONG));
    assert!(small.grow_to(SMALL_BODY));
    assert_eq!(limits.held.load(Ordering::Relaxed), 2 * LONG + SMALL_BODY);

    drop((first, second));
    assert!(third.grow_to(LONG));
    drop((third, small));
    assert_eq!(limits.held.load(Ordering::Relaxed), 0);
}

#[test]
fn the_default_memory_has_room_for_the_longest_body() {
    for (body_limit, memory) in [
        (2 * 1024 * 1024, DEFAULT_MEMORY),
        (DEFAULT_MEMORY, 4 * DEFAULT_MEMORY),
        (usize::MAX, usize::MAX),
    ] {
        let reservation = ReadLimits::default().reserve(body_limit);

        assert_eq!(reservation.limit, memory);
    }
}
