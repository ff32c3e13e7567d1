//! A TCP server that reads requests and responds with prepared bytes, valid HTTP or not.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use audience::contacts::Contact;
use audience::{Error, RetryPolicy};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::{ADA, client};

/// A response of a [`ScriptedServer`]: the bytes to write, and what happens to the connection afterwards.
#[derive(Clone, Debug)]
pub struct ScriptedResponse {
    bytes: Vec<u8>,
    then: ConnectionEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    KeepOpen,
    Close,
    Reset,
    Hang,
}

/// Writes these bytes and keeps the connection open.
pub fn bytes(bytes: impl Into<Vec<u8>>) -> ScriptedResponse {
    ScriptedResponse {
        bytes: bytes.into(),
        then: ConnectionEnd::KeepOpen,
    }
}

/// Writes a complete, valid response and keeps the connection open.
pub fn response(status: u16, body: impl AsRef<[u8]>) -> ScriptedResponse {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    bytes([head.as_bytes(), body].concat())
}

/// Closes the connection without a response.
pub fn close_connection() -> ScriptedResponse {
    bytes("").then_close()
}

impl ScriptedResponse {
    /// Returns how many bytes it has.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Closes the connection afterwards.
    pub fn then_close(self) -> Self {
        let then = ConnectionEnd::Close;
        Self { then, ..self }
    }

    /// Resets the connection (TCP `RST`) afterwards, as when a process crashes.
    pub fn then_reset(self) -> Self {
        let then = ConnectionEnd::Reset;
        Self { then, ..self }
    }

    /// Keeps the connection open afterwards, but neither reads nor writes.
    pub fn then_hang(self) -> Self {
        let then = ConnectionEnd::Hang;
        Self { then, ..self }
    }
}

/// A request as the server read it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The number of its connection, counted from 0 in the order of arrival.
    pub connection: usize,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(have, _)| have == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// Sends one prepared response per request, in turn and across all connections, then 501, which no
/// call retries. Stops when dropped.
pub struct ScriptedServer {
    url: String,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
}

impl ScriptedServer {
    pub async fn start(responses: impl IntoIterator<Item = ScriptedResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let responses: VecDeque<ScriptedResponse> = responses.into_iter().collect();
        let (responses, received) = (Arc::new(Mutex::new(responses)), Arc::default());
        let log = Arc::clone(&received);
        let task = tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let (responses, log) = (Arc::clone(&responses), Arc::clone(&log));
                // An error means that the client has disconnected.
                tokio::spawn(async move {
                    serve_connection(stream, connection, &responses, &log)
                        .await
                        .ok()
                });
            }
        });
        Self {
            url: format!("http://{address}"),
            received,
            task,
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().expect("no holder panics").clone()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve_connection(
    stream: TcpStream,
    connection: usize,
    responses: &Mutex<VecDeque<ScriptedResponse>>,
    log: &Mutex<Vec<ReceivedRequest>>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream, connection).await? {
        log.lock().expect("no holder panics").push(request);
        let next = responses.lock().expect("no holder panics").pop_front();
        let next = next.unwrap_or_else(|| response(501, "no response left"));
        stream.get_mut().write_all(&next.bytes).await?;
        match next.then {
            ConnectionEnd::KeepOpen => {}
            ConnectionEnd::Close => return stream.get_mut().shutdown().await,
            ConnectionEnd::Reset => {
                // The reset discards what has not arrived yet.
                tokio::time::sleep(std::time::Duration::from_millis(30)).await;
                return stream.get_mut().set_zero_linger();
            }
            ConnectionEnd::Hang => std::future::pending().await,
        }
    }
    Ok(())
}

async fn read_request(
    stream: &mut BufReader<TcpStream>,
    connection: usize,
) -> io::Result<Option<ReceivedRequest>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut request_line = lines[0].split(' ').map(str::to_owned);
    let (method, target) = (request_line.next(), request_line.next());
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(ReceivedRequest {
        method: method.unwrap_or_default(),
        target: target.unwrap_or_default(),
        headers,
        body,
        connection,
    }))
}

/// Retrieves a contact, without retries, from a server that sends this response.
pub async fn retrieve_once(response: ScriptedResponse) -> Result<Contact, Error> {
    let server = ScriptedServer::start([response]).await;
    let result = client(server.url())
        .contacts()
        .retrieve(ADA)
        .retry(RetryPolicy::none())
        .await;
    assert_eq!(server.received().len(), 1);
    result
}

pub fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// Writes a complete, valid response with a gzip body and keeps the connection open.
pub fn gzipped_response(body: &[u8]) -> ScriptedResponse {
    let body = gzip(body);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    bytes([head.into_bytes(), body].concat())
}
