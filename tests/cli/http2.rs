//! A service over HTTP/2, whose connections may die without being closed, as after a change of the network.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use support::{ADA, contact};

use super::{Folder, audience, ended};

/// A server whose first connection is dead: it is open, but no request and no ping gets a response.
struct Server {
    url: String,
    /// The file with its certificate.
    certificate: String,
    /// How many connections the client has begun to use. One whose start took too long is not among them.
    connections: Arc<AtomicUsize>,
    _folder: Folder,
}

impl Server {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (config, count) = (Arc::clone(&config), Arc::clone(&count));
                // An error means that the client has disconnected.
                thread::spawn(move || serve(socket?, config, &count));
            }
        });
        Self {
            url: format!("https://localhost:{port}"),
            certificate: folder.file("certificate.pem", certificate.pem()),
            connections,
            _folder: folder,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = audience(arguments);
        command
            .env("AUDIENCE_URL", &self.url)
            .env("AUDIENCE_KEY", "key")
            .env("SSL_CERT_FILE", &self.certificate)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

const ACKNOWLEDGED: u8 = 1;
const END_OF_STREAM: u8 = 1;
const END_OF_HEADERS: u8 = 4;

/// Responds to each request with Ada.
fn serve(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    connections: &AtomicUsize,
) -> io::Result<()> {
    let connection = ServerConnection::new(config).unwrap();
    let mut tls = StreamOwned::new(connection, socket);
    tls.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()])?;
    let is_dead = connections.fetch_add(1, Ordering::Relaxed) == 0;
    tls.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    loop {
        let mut head = [0; 9];
        tls.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        tls.read_exact(&mut payload)?;
        let response = match kind {
            _ if is_dead => continue,
            SETTINGS | PING if flags & ACKNOWLEDGED == 0 => {
                let payload = if kind == PING { &*payload } else { &[] };
                frame(kind, ACKNOWLEDGED, 0, payload)
            }
            HEADERS => {
                let stream = u32::from_be_bytes(stream);
                // `:status: 200` in the static table.
                let head = frame(HEADERS, END_OF_HEADERS, stream, &[0x88]);
                let body = contact().to_string();
                let body = frame(DATA, END_OF_STREAM, stream, body.as_bytes());
                [head, body].concat()
            }
            _ => continue,
        };
        tls.write_all(&response)?;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&*head, payload].concat()
}

/// Both take ten seconds, in which the program finds out that the connection is dead.
#[test]
fn a_retry_does_not_use_a_dead_connection_and_an_opt_in_that_may_have_been_sent_is_not_retried() {
    let (first, second) = (Server::start("http2-show"), Server::start("http2-opt-in"));
    let opt_in = ["contacts", "subscribe", ADA, "--topic", "news", "--yes"];
    let shown = first.command(&["contacts", "show", ADA]).spawn().unwrap();
    let opted_in = second.command(&opt_in).spawn().unwrap();

    let shown = ended(shown.wait_with_output().unwrap());
    let opted_in = ended(opted_in.wait_with_output().unwrap());

    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains(ADA), "{shown:?}");
    // On a busy machine, another one may seem to be dead, too.
    assert!(first.connections.load(Ordering::Relaxed) >= 2);
    assert_eq!(opted_in.code, Some(1), "{opted_in:?}");
    assert!(second.connections.load(Ordering::Relaxed) <= 1);
    let said = "audience: ada@example.com: the connection broke before the response arrived; the opt-in may have been";
    assert!(opted_in.stderr.starts_with(said), "{opted_in:?}");
}
