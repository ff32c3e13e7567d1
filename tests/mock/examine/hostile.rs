//! Receivers that are not there, that respond with anything, or not at all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use audience::mock::{Check, Examination, Verdict, examine};

use super::{found, text};
use crate::receiver::SECRET;
use support::{PATIENCE, closed_url, in_time};

async fn examined(url: impl Into<String>) -> Examination {
    in_time(examine(url, SECRET).timeout(PATIENCE)).await
}

/// Serves each connection on a thread of its own.
fn serve(handle: impl Fn(TcpStream) + Copy + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || handle(stream));
        }
    });
    format!("http://{address}/hook")
}

/// Responds with these bytes as soon as something arrives.
fn respond(response: &'static [u8]) -> String {
    serve(move |mut stream| {
        let _ = stream.read(&mut [0; 64 * 1024]);
        let _ = stream.write_all(response);
    })
}

#[tokio::test]
async fn a_port_that_nothing_listens_on_is_named() {
    let examination = examined(closed_url()).await;

    assert_eq!(found(&examination), [Check::Reachable]);
    assert!(!examination.passed() && !examination.reached());
    assert_eq!(examination.checks().len(), Check::ALL.len());
    let words = "Nothing listens at 127.0.0.1 port";
    assert!(text(&examination).contains(words), "{examination}");
    let others = examination.with_verdict(Verdict::NotSeen).count();
    assert_eq!(others, Check::ALL.len() - 1);
}

#[tokio::test]
async fn a_wrong_path_a_wrong_method_and_a_redirect_are_named() {
    for (response, words) in [
        (
            &b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"[..],
            "nothing at this path",
        ),
        (
            b"HTTP/1.1 405 Not Allowed\r\ncontent-length: 0\r\n\r\n",
            "does not accept POST",
        ),
        (
            b"HTTP/1.1 301 Moved\r\nlocation: /hook/\r\ncontent-length: 0\r\n\r\n",
            "redirects to another URL",
        ),
        (
            b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
            "this endpoint is gone",
        ),
    ] {
        let examination = examined(respond(response)).await;

        assert_eq!(found(&examination), [Check::Reachable]);
        assert!(text(&examination).contains(words), "{examination}");
    }
}

#[tokio::test]
async fn a_receiver_that_always_fails_is_one_that_accepts_nothing_genuine() {
    let response = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

    let examination = examined(respond(response)).await;

    assert_eq!(found(&examination), [Check::Genuine]);
    assert!(examination.reached());
}

#[tokio::test]
async fn what_is_not_http_is_named() {
    for url in [
        respond(b"SSH-2.0-OpenSSH_9.6\r\n"),
        respond(b""),
        respond(b"\x15\x03\x01\x00\x02\x02\x50"),
        respond(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf"),
    ] {
        let examination = examined(url).await;

        assert_eq!(found(&examination), [Check::Reachable], "{examination}");
        assert!(text(&examination).contains("no complete HTTP response"));
    }
}

#[tokio::test]
async fn a_receiver_that_never_responds_is_given_up_soon() {
    let url = serve(|stream| {
        thread::sleep(2 * PATIENCE);
        drop(stream);
    });

    let examination = in_time(examine(url, SECRET).timeout(Duration::from_secs(2))).await;

    assert_eq!(found(&examination), [Check::ResponseTime]);
}

#[tokio::test]
async fn a_response_without_an_end_is_not_read_for_ever() {
    let url = serve(|mut stream| {
        let _ = stream.read(&mut [0; 64 * 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        while stream.write_all(&[b'x'; 64 * 1024]).is_ok() {}
    });

    let examination = examined(url).await;

    assert_eq!(found(&examination), [Check::Reachable]);
    assert!(text(&examination).contains("longer than 16777216 bytes"));
}

#[tokio::test]
async fn control_characters_of_a_receiver_do_not_reach_the_terminal() {
    let url = respond(b"HTTP/1.1 200 \x1b[31mOK\r\nwebhook\x1b[0m: 1\r\n\r\n\x1b[2J");

    let examination = examined(url).await;

    assert!(
        !format!("{examination}").contains('\u{1b}'),
        "{examination:?}"
    );
}

#[tokio::test]
async fn an_unusable_url_or_secret_is_a_finding_and_not_a_panic() {
    for (url, secret, words) in [
        ("https://example.com/hook", SECRET, "over http only"),
        ("", SECRET, "is not a valid URL"),
        ("http://me@localhost/", SECRET, "user name"),
        ("http://localhost:0/", SECRET, "from 1 to 65535"),
        ("http://localhost/", "", "secret"),
        ("http://localhost/", "<SIGNING_SECRET>", "placeholder"),
    ] {
        let examination = examine(url, secret).await;

        assert!(!examination.reached());
        assert_eq!(found(&examination), [Check::Reachable]);
        assert!(text(&examination).contains(words), "{examination}");
    }
    let unusable_probe = examine("http://127.0.0.1:9/", SECRET)
        .probe("ftp://x")
        .await;
    assert!(text(&unusable_probe).contains("the probe"));
}

#[tokio::test]
async fn an_examination_that_is_dropped_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let examination = tokio::spawn(examine(url, SECRET).into_future());
    let (mut stream, _) = tokio::task::spawn_blocking(move || listener.accept())
        .await
        .unwrap()
        .unwrap();

    examination.abort();

    let rest = tokio::task::spawn_blocking(move || stream.read_to_end(&mut Vec::new()));
    in_time(rest).await.unwrap().ok();
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_of_the_caller_does_not_disturb_an_examination() {
    let examination = examine(closed_url(), SECRET).await;

    assert_eq!(found(&examination), [Check::Reachable]);
}
