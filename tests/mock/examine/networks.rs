//! Right receivers behind slow networks and unusual servers. None of them has a fault.

use std::future::IntoFuture;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use audience::mock::{Check, Examination, Verdict};
use audience::webhooks::Verifier;
use http::{HeaderMap, HeaderName, HeaderValue};
use httpdate::fmt_http_date;

use super::{examine, found, text};
use crate::receiver::SECRET;
use support::PATIENCE;

/// How a server differs from others.
#[derive(Clone)]
struct Habits {
    version: &'static str,
    /// Before it reads, and again before it responds.
    delay: Duration,
    /// In seconds. Positive is ahead.
    clock: i64,
    has_date: bool,
    /// Verifies the signature alone.
    ignores_timestamps: bool,
    /// Closes connections that are more than this.
    connections: usize,
    is_single_threaded: bool,
    keeps_connections: bool,
    /// Refuses what lacks a header before it has read the body.
    reads_headers_only: bool,
    status: &'static str,
    response_body: usize,
}

const PLAIN: Habits = Habits {
    version: "HTTP/1.1",
    delay: Duration::ZERO,
    clock: 0,
    has_date: true,
    ignores_timestamps: false,
    connections: usize::MAX,
    is_single_threaded: false,
    keeps_connections: true,
    reads_headers_only: false,
    status: "200 OK",
    response_body: 0,
};

struct Server {
    habits: Habits,
    verifier: Verifier,
    open: AtomicUsize,
}

/// Serves until the test process ends. Returns the URL.
fn start(habits: Habits) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let server = Arc::new(Server {
        habits,
        verifier: Verifier::new(SECRET).unwrap(),
        open: AtomicUsize::new(0),
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            if server.habits.is_single_threaded {
                server.serve(&stream);
            } else {
                thread::spawn(move || server.serve(&stream));
            }
        }
    });
    url
}

impl Server {
    fn serve(&self, stream: &TcpStream) {
        if self.open.fetch_add(1, Ordering::SeqCst) < self.habits.connections {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let mut reader = BufReader::new(stream);
            while self.respond(&mut reader, stream).is_ok() && self.habits.keeps_connections {}
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    fn respond(&self, reader: &mut impl BufRead, mut stream: &TcpStream) -> io::Result<()> {
        thread::sleep(self.habits.delay);
        let headers = read_head(reader)?;
        let lacks_signature = !headers.contains_key("webhook-signature");
        let status = if self.habits.reads_headers_only && lacks_signature {
            "401 Unauthorized"
        } else {
            let mut body = vec![0; content_length(&headers)];
            reader.read_exact(&mut body)?;
            self.status(&headers, &body)
        };
        thread::sleep(self.habits.delay);
        let date = match self.habits.has_date {
            true => format!("date: {}\r\n", fmt_http_date(self.now())),
            false => String::new(),
        };
        let connection = match self.habits.keeps_connections {
            true => "",
            false => "connection: close\r\n",
        };
        let (version, length) = (self.habits.version, self.habits.response_body);
        let head =
            format!("{version} {status}\r\n{date}{connection}content-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&vec![b'x'; length])
    }

    fn now(&self) -> SystemTime {
        let distance = Duration::from_secs(self.habits.clock.unsigned_abs());
        match self.habits.clock < 0 {
            true => SystemTime::now() - distance,
            false => SystemTime::now() + distance,
        }
    }

    fn status(&self, headers: &HeaderMap, body: &[u8]) -> &'static str {
        let now = match (self.habits.ignores_timestamps, timestamp(headers)) {
            (true, Some(signed)) => signed,
            _ => self.now(),
        };
        match self.verifier.verify_at(headers, body, now) {
            Ok(_) => self.habits.status,
            Err(error) if error.status() == 400 => "400 Bad Request",
            Err(_) => "401 Unauthorized",
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> io::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut is_first = true;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(':') {
            _ if std::mem::take(&mut is_first) => {}
            Some((name, value)) => {
                let name: HeaderName = name.parse().unwrap();
                headers.append(name, HeaderValue::from_str(value.trim()).unwrap());
            }
            None => return Ok(headers),
        }
    }
}

fn timestamp(headers: &HeaderMap) -> Option<SystemTime> {
    let text = headers.get("webhook-timestamp")?.to_str().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(text.parse().ok()?))
}

fn content_length(headers: &HeaderMap) -> usize {
    headers["content-length"].to_str().unwrap().parse().unwrap()
}

/// A proxy that passes on complete requests only, each over a connection of its own.
fn buffering_proxy(to: &str) -> String {
    let to = to.strip_prefix("http://").unwrap();
    let to = to.strip_suffix("/hook").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let to = to.clone();
            thread::spawn(move || forward(&stream, &to));
        }
    });
    url
}

fn forward(mut stream: &TcpStream, to: &str) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let headers = read_head(&mut reader)?;
    let mut body = vec![0; content_length(&headers)];
    reader.read_exact(&mut body)?;
    let mut request = b"POST /hook HTTP/1.0\r\n".to_vec();
    for (name, value) in &headers {
        request.extend_from_slice(format!("{name}: ").as_bytes());
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let mut upstream = TcpStream::connect(to)?;
    upstream.write_all(&[request, body].concat())?;
    upstream.shutdown(Shutdown::Write)?;
    io::copy(&mut upstream, &mut stream)?;
    Ok(())
}

async fn examined(habits: Habits) -> Examination {
    examine(start(habits)).await
}

#[track_caller]
fn assert_no_findings(examination: &Examination) {
    assert_eq!(found(examination), [], "{examination}");
}

#[tokio::test]
async fn a_slow_network_is_no_fault() {
    let delay = Duration::from_millis(100);

    let examination = examined(Habits { delay, ..PLAIN }).await;

    assert_no_findings(&examination);
    assert_eq!(examination.verdict(Check::Stale), Some(Verdict::Passed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_differs_by_4_s_is_no_fault() {
    let servers = [(-4, true), (4, true), (-4, false), (4, false), (-1, false)];
    let examinations = servers.map(|(clock, has_date)| {
        examined(Habits {
            clock,
            has_date,
            ..PLAIN
        })
    });

    for examination in futures_util::future::join_all(examinations).await {
        assert_no_findings(&examination);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_differs_by_20_s_is_a_fault_of_the_clock_and_not_of_the_window() {
    let examinations = [-20, 20].map(|clock| examined(Habits { clock, ..PLAIN }));

    for examination in futures_util::future::join_all(examinations).await {
        assert_eq!(found(&examination), [Check::Clock], "{examination}");
        let edge = examination.verdict(Check::WindowEdge);
        assert_eq!(edge, Some(Verdict::NotSeen), "{examination}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_ignores_the_time_fails_although_its_clock_differs() {
    let examinations = [-20, -3, 3, 20].map(|clock| {
        let url = start(Habits {
            clock,
            ignores_timestamps: true,
            ..PLAIN
        });
        examine(url)
            .only([Check::Stale, Check::Early])
            .into_future()
    });

    for examination in futures_util::future::join_all(examinations).await {
        for check in [Check::Stale, Check::Early] {
            let verdict = examination.verdict(check);
            assert_eq!(verdict, Some(Verdict::Failed), "{examination}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_servers_are_no_fault() {
    let servers = [
        (
            "status 202",
            Habits {
                status: "202 Accepted",
                ..PLAIN
            },
        ),
        (
            "status 204",
            Habits {
                status: "204 No Content",
                ..PLAIN
            },
        ),
        (
            "no keep-alive",
            Habits {
                keeps_connections: false,
                ..PLAIN
            },
        ),
        (
            "HTTP/1.0",
            Habits {
                version: "HTTP/1.0",
                keeps_connections: false,
                ..PLAIN
            },
        ),
        (
            "a response of 2 MB",
            Habits {
                response_body: 2_000_000,
                ..PLAIN
            },
        ),
        (
            "one thread",
            Habits {
                is_single_threaded: true,
                ..PLAIN
            },
        ),
        (
            "a response before the body was read",
            Habits {
                reads_headers_only: true,
                keeps_connections: false,
                ..PLAIN
            },
        ),
    ];
    let examinations = servers.map(async |(name, habits)| (name, examined(habits).await));

    for (name, examination) in futures_util::future::join_all(examinations).await {
        println!("{name}");
        assert_no_findings(&examination);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_thread_is_enough_even_if_the_time_is_short() {
    let url = start(Habits {
        is_single_threaded: true,
        ..PLAIN
    });

    let end = Instant::now() + PATIENCE;
    loop {
        let examination = examine(&url).timeout(Duration::from_secs(2)).await;

        let mut found = found(&examination);
        // A busy machine may take more than half of that time.
        found.retain(|check| *check != Check::ResponseTime);
        if found.is_empty() {
            return;
        }
        // Or even more than all of it, now and then.
        assert!(Instant::now() < end, "{examination}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_buffers_is_no_fault() {
    let proxy = buffering_proxy(&start(PLAIN));

    let examination = examine(proxy).await;

    assert_no_findings(&examination);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_connections_is_a_warning() {
    let url = start(Habits {
        // Less than the 20 simultaneous ones, and more than a busy machine leaves open for a moment.
        connections: 12,
        // So that a busy machine has all 20 open before the first one ends.
        delay: Duration::from_millis(500),
        ..PLAIN
    });

    // Even then, the first one may end before the last one begins, or none may have ended when the examiner continues.
    for attempt in 1.. {
        let examination = examine(&url).only([Check::ConcurrentDuplicates]).await;

        let text = text(&examination);
        let none_had_ended = text.contains("simultaneous deliveries, got no complete response");
        let was_slow = found(&examination).is_empty() || none_had_ended;
        if was_slow && attempt < 5 {
            continue;
        }
        assert_eq!(found(&examination), [Check::ConcurrentDuplicates]);
        assert!(examination.passed(), "{examination}");
        let words = "simultaneous deliveries of the same event got no response";
        assert!(text.contains(words), "{examination}");
        return;
    }
}
