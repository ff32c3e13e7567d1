//! A receiver of webhooks that notes what it is sent, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// A request as it came.
#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Delivery {
    /// The value of a header that must be there once.
    #[track_caller]
    pub(super) fn header(&self, name: &str) -> String {
        let values: Vec<&str> = self
            .head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect();
        assert_eq!(values.len(), 1, "{name} in {}", self.head);
        values[0].to_owned()
    }

    pub(super) fn timestamp(&self) -> i64 {
        self.header("webhook-timestamp").parse().expect("seconds")
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

pub(super) struct Receiver {
    url: String,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
}

impl Receiver {
    /// A receiver that answers with these statuses in turn, and with the last one from then on. 0 is no answer in time.
    pub(super) fn answering(statuses: &[u16]) -> Self {
        Self::redirecting(statuses, "http://127.0.0.1:9/")
    }

    /// The same, and each answer names this location.
    pub(super) fn redirecting(statuses: &[u16], location: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let deliveries = Arc::new(Mutex::new(Vec::new()));
        let (noted, statuses, location) = (
            Arc::clone(&deliveries),
            statuses.to_vec(),
            location.to_owned(),
        );
        thread::spawn(move || {
            for connection in listener.incoming() {
                let Some((connection, delivery)) = connection.ok().and_then(read) else {
                    continue;
                };
                let mut noted = noted.lock().expect("no test panics while it looks");
                let status = statuses
                    .get(noted.len())
                    .or(statuses.last())
                    .copied()
                    .expect("a status");
                noted.push(delivery);
                drop(noted);
                answer(connection, status, &location);
            }
        });
        Self { url, deliveries }
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    pub(super) fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().expect("no receiver panics").clone()
    }

    /// The envelopes, in the order they came.
    pub(super) fn events(&self) -> Vec<Value> {
        self.deliveries().iter().map(Delivery::json).collect()
    }
}

fn read(connection: TcpStream) -> Option<(TcpStream, Delivery)> {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        })
        .expect("a length");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((reader.into_inner(), Delivery { head, body }))
}

fn answer(mut connection: TcpStream, status: u16, location: &str) {
    if status == 0 {
        // Kept open beside the loop, so that later deliveries are answered.
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(2));
            drop(connection);
        });
        return;
    }
    let head = format!(
        "HTTP/1.1 {status} Answer\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    // The mock may have gone already, with the test.
    let _ = connection.write_all(head.as_bytes());
}
