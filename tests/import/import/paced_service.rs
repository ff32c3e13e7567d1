//! A service that applies every batch and counts how many are in flight.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How the service responds to a batch: a status, and the seconds of a `Retry-After`.
pub(super) type Response = (u16, Option<u64>);

/// A batch that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    /// How many batches were in flight, this one included.
    pub(super) in_flight: usize,
}

/// The service. Its tasks end with the runtime of the test.
pub(super) struct PacedService {
    pub(super) url: String,
    state: Arc<State>,
}

struct State {
    arrivals: Mutex<Vec<Arrival>>,
    in_flight: Mutex<usize>,
    delay: Duration,
    respond: Box<dyn Fn(usize, usize) -> Response + Send + Sync>,
}

impl PacedService {
    /// Starts the service. `respond` gets the number of the batch, counted from 0, and how many are in flight.
    pub(super) async fn start(
        delay: Duration,
        respond: impl Fn(usize, usize) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            arrivals: Mutex::default(),
            in_flight: Mutex::default(),
            delay,
            respond: Box::new(respond),
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { url, state }
    }

    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.state.arrivals.lock().unwrap().clone()
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let response = state.handle(&body).await;
        stream.get_mut().write_all(response.as_bytes()).await?;
    }
}

impl State {
    async fn handle(&self, body: &[u8]) -> String {
        let in_flight = {
            let mut in_flight = self.in_flight.lock().unwrap();
            *in_flight += 1;
            *in_flight
        };
        let number = {
            let mut arrivals = self.arrivals.lock().unwrap();
            let at = Instant::now();
            arrivals.push(Arrival { at, in_flight });
            arrivals.len() - 1
        };
        let (status, retry_after) = (self.respond)(number, in_flight);
        if status == 200 {
            tokio::time::sleep(self.delay).await;
        }
        *self.in_flight.lock().unwrap() -= 1;
        let entries: Vec<Value> = serde_json::from_slice(body).unwrap();
        let created = |entry: &Value| json!({"email": entry["email"], "status": "created"});
        let results: Vec<_> = entries.iter().map(created).collect();
        let body = match status {
            200 => json!({"data": results}).to_string(),
            _ => "{}".to_owned(),
        };
        let wait = retry_after
            .map(|wait| format!("retry-after: {wait}\r\n"))
            .unwrap_or_default();
        let length = body.len();
        format!("HTTP/1.1 {status} X\r\n{wait}content-length: {length}\r\n\r\n{body}")
    }
}
