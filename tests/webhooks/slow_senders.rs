//! Strangers who send bodies slowly, or many of them simultaneously.
//!
//! `cargo test slow_senders -- --nocapture` also prints the memory and the latency.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use audience::webhooks::{EventType, Rejection, Signer, Verifier};

use super::{BODY, SECRET};
use support::receivers::{Framework, Receiver};
use support::requests::{Request, Response};

const STRANGERS: usize = 2_000;

fn genuine(body: &[u8]) -> Request {
    let signer = Signer::new(SECRET).unwrap();
    let headers = signer.sign(&EventType::Bounced, SystemTime::now(), body);
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes().to_vec()));
    Request::post().headers(pairs).body(body)
}

/// Returns a request with well-formed headers and only a part of its body.
fn unfinished(stated: usize, sent: usize) -> Vec<u8> {
    Request::post()
        .header("webhook-signature", "0".repeat(64))
        .header("webhook-timestamp", "1700000000")
        .stated(stated, &vec![b'x'; sent])
        .bytes()
}

/// Opens many connections and sends `bytes` on each of them.
fn connect(receiver: &Receiver, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    (0..count)
        .map(|_| {
            let mut stream = receiver.connect();
            // The server may have refused the request already.
            let _ = stream.write_all(bytes);
            stream
        })
        .collect()
}

/// Returns the status of the response, after the server has closed the connection.
fn status_at_the_end(mut stream: TcpStream) -> u16 {
    let response = Response::read(&mut stream);
    let mut rest = [0; 1024];
    match stream.read(&mut rest) {
        Ok(0) => {}
        Ok(length) => panic!(
            "more after the response: {:?}",
            String::from_utf8_lossy(&rest[..length])
        ),
        Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "it stays open"),
    }
    response.status
}

/// Each connection has two ends, and other tests run at the same time.
fn affordable_connections() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|line| line.split_whitespace().next())
        .map_or(256, |soft| soft.parse().unwrap_or(usize::MAX));
    let count = (files / 4).min(STRANGERS);
    if count < STRANGERS {
        println!("{count} connections only: this process may open {files} files");
    }
    count
}

/// Returns the memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.split_whitespace().next())
        .map_or(0, |kib| kib.parse().unwrap())
}

#[test]
fn slow_bodies_are_released_by_axum_and_a_genuine_delivery_is_answered_meanwhile() {
    slow_bodies_are_released(Framework::Axum);
}

#[test]
fn slow_bodies_are_released_by_actix_and_a_genuine_delivery_is_answered_meanwhile() {
    slow_bodies_are_released(Framework::Actix);
}

#[test]
fn slow_bodies_are_released_by_the_tower_layer_and_a_genuine_delivery_is_answered_meanwhile() {
    slow_bodies_are_released(Framework::Tower);
}

fn slow_bodies_are_released(framework: Framework) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let verifier = Verifier::builder()
        .secret("main", SECRET)
        .body_timeout(Duration::from_secs(3))
        .build();
    let receiver = Receiver::start(framework, Some(verifier.unwrap()));
    let request = genuine(BODY.as_bytes());
    assert_eq!(receiver.send(&request).status, 200);
    let resident = resident_kib();

    let strangers = connect(
        &receiver,
        affordable_connections(),
        &unfinished(20_000, 10_000),
    );
    let count = strangers.len();
    let start = Instant::now();
    let response = receiver.send(&request);
    let latency = start.elapsed();
    let resident_meanwhile = resident_kib();
    let statuses: Vec<u16> = strangers.into_iter().map(status_at_the_end).collect();

    assert_eq!(response.status, 200, "{framework:?}");
    assert_eq!(statuses, vec![408; count], "{framework:?}");
    let refused = receiver.take_refused();
    let timed_out = |rejection: &Rejection| matches!(rejection, Rejection::BodyTimeout { .. });
    assert!(refused.len() == count && refused.iter().all(timed_out));
    println!(
        "{framework:?}: {count} slow bodies, all released; a genuine delivery took {latency:?}; \
         resident {resident} KiB before, {resident_meanwhile} KiB meanwhile, {} KiB after",
        resident_kib()
    );
}

#[test]
fn long_bodies_share_a_bounded_memory_with_axum_and_leave_room_for_a_genuine_delivery() {
    long_bodies_are_bounded(Framework::Axum);
}

#[test]
fn long_bodies_share_a_bounded_memory_with_actix_and_leave_room_for_a_genuine_delivery() {
    long_bodies_are_bounded(Framework::Actix);
}

#[test]
fn long_bodies_share_a_bounded_memory_with_the_tower_layer_and_leave_room_for_a_genuine_delivery() {
    long_bodies_are_bounded(Framework::Tower);
}

fn long_bodies_are_bounded(framework: Framework) {
    // In less, a slow machine may not even begin to read all bodies.
    const BODY_SECONDS: u64 = 20;
    let verifier = Verifier::builder()
        .secret("main", SECRET)
        .body_memory(8 * 1024 * 1024)
        .body_timeout(Duration::from_secs(BODY_SECONDS))
        .build();
    let receiver = Receiver::start(framework, Some(verifier.unwrap()));

    let start = Instant::now();
    let strangers = connect(&receiver, 20, &unfinished(1_500_000, 1_400_000));
    let response = receiver.send(&genuine(BODY.as_bytes()));
    let statuses: Vec<u16> = strangers.into_iter().map(status_at_the_end).collect();
    let seconds = start.elapsed().as_secs();

    assert_eq!(response.status, 200, "{framework:?}");
    // A response may be lost, because its sender is still writing.
    let expected = |status: &u16| [0, 408, 503].contains(status);
    assert!(statuses.iter().all(expected), "{framework:?}: {statuses:?}");
    let refused = receiver.take_refused();
    let timed_out = |rejection: &&Rejection| matches!(rejection, Rejection::BodyTimeout { .. });
    let held = refused.iter().filter(timed_out).count();
    // Three bodies of 1.4 MB fit into 4 MiB. On a slow machine, they time out before the last ones are sent, and leave their
    // memory to three others. All have timed out by now.
    let most = 3 * usize::try_from(seconds / BODY_SECONDS).unwrap();
    assert!(held <= most, "{framework:?}: {held} in {seconds} s");
    let full = |rejection: &&Rejection| {
        matches!(rejection, Rejection::BodyMemory { limit: 8_388_608 }) && rejection.status() == 503
    };
    assert_eq!(
        refused.iter().filter(full).count(),
        20 - held,
        "{framework:?}"
    );

    let mut long = BODY.as_bytes().to_vec();
    long.resize(2_000_000, b' ');
    let send = || receiver.send(&genuine(&long)).status;
    // On a slow machine, it may time out.
    let sent = (0..9).map(|_| send()).find(|status| *status != 408);
    assert_eq!(sent, Some(200), "{framework:?}: all is released");
}
