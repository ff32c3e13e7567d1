//! A server below HTTP: it reads a request and plays back bytes, whatever they are.

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

use super::{ADA, client};

/// One answer of a [`Script`]: bytes, and what becomes of the connection after them.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Keep,
    Close,
    Reset,
    Hang,
}

/// These bytes; the connection stays open.
pub(crate) fn bytes(bytes: impl Into<Vec<u8>>) -> Act {
    Act {
        bytes: bytes.into(),
        then: Then::Keep,
    }
}

/// A whole and proper answer; the connection stays open.
pub(crate) fn answer(status: u16, body: impl AsRef<[u8]>) -> Act {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    bytes([head.as_bytes(), body].concat())
}

/// No answer: the connection is closed.
pub(crate) fn close() -> Act {
    bytes("").then_close()
}

impl Act {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn then_close(self) -> Self {
        let then = Then::Close;
        Self { then, ..self }
    }

    /// By an `RST`, as of a process that dies.
    pub(crate) fn then_reset(self) -> Self {
        let then = Then::Reset;
        Self { then, ..self }
    }

    /// Says nothing more, and keeps the connection open.
    pub(crate) fn then_hang(self) -> Self {
        let then = Then::Hang;
        Self { then, ..self }
    }
}

/// What came in.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Counted from 0 in the order the connections were made.
    pub(crate) connection: usize,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(have, _)| have == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// Plays one act for each request, whichever connection it comes by, until it is dropped. A request
/// beyond the last act is answered with 599.
pub(crate) struct Script {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    listening: JoinHandle<()>,
}

impl Script {
    pub(crate) async fn play(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let acts: VecDeque<Act> = acts.into_iter().collect();
        let (acts, received) = (Arc::new(Mutex::new(acts)), Arc::default());
        let log = Arc::clone(&received);
        let listening = tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let (acts, log) = (Arc::clone(&acts), Arc::clone(&log));
                // An error means that the client is gone: nobody is left to play for.
                tokio::spawn(async move { converse(stream, connection, &acts, &log).await.ok() });
            }
        });
        Self {
            url: format!("http://{address}"),
            received,
            listening,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no holder panics").clone()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn converse(
    stream: TcpStream,
    connection: usize,
    acts: &Mutex<VecDeque<Act>>,
    log: &Mutex<Vec<Received>>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream, connection).await? {
        log.lock().expect("no holder panics").push(request);
        let act = acts.lock().expect("no holder panics").pop_front();
        let act = act.unwrap_or_else(|| answer(599, "the script is over"));
        stream.get_mut().write_all(&act.bytes).await?;
        match act.then {
            Then::Keep => {}
            Then::Close => return stream.get_mut().shutdown().await,
            Then::Reset => {
                // What was written has to arrive before the reset throws it away.
                tokio::time::sleep(std::time::Duration::from_millis(30)).await;
                return stream.get_mut().set_zero_linger();
            }
            Then::Hang => std::future::pending().await,
        }
    }
    Ok(())
}

async fn read(
    stream: &mut BufReader<TcpStream>,
    connection: usize,
) -> io::Result<Option<Received>> {
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
    Ok(Some(Received {
        method: method.unwrap_or_default(),
        target: target.unwrap_or_default(),
        headers,
        body,
        connection,
    }))
}

/// What a retrieve that is sent once makes of this answer.
pub(crate) async fn retrieve_once(act: Act) -> Result<Contact, Error> {
    let server = Script::play([act]).await;
    let result = client(server.url())
        .contacts()
        .retrieve(ADA)
        .retry(RetryPolicy::none())
        .await;
    assert_eq!(server.received().len(), 1);
    result
}

pub(crate) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// A whole and proper answer that is compressed.
pub(crate) fn gzipped(body: &[u8]) -> Act {
    let body = gzip(body);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    bytes([head.into_bytes(), body].concat())
}
