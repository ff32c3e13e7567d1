//! Connections to a server whose certificate the system does not know.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use audience::{Client, ErrorKind, Outcome, RetryPolicy};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

/// Takes one connection. Returns the server's URL, its certificate as PEM, and what the client sent through TLS.
fn serve_once() -> (String, String, thread::JoinHandle<Vec<u8>>) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        let mut received = vec![0; 4096];
        // An alert of the client is an error here. The socket is closed at the end of this thread.
        let length = Stream::new(&mut connection, &mut socket)
            .read(&mut received)
            .unwrap_or(0);
        received.truncate(length);
        received
    });
    (url, certificate.pem(), server)
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_before_the_key_is_sent() {
    let (url, _, server) = serve_once();
    let client = Client::new(url, "key-of-the-test").unwrap();

    let error = client
        .contacts()
        .retrieve("ada@example.com")
        .await
        .unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Connect);
    assert_eq!(server.join().unwrap(), b"");
    // A retry would only be refused again.
    assert!(!error.is_retryable(), "{error:?}");
    assert_eq!((error.attempts(), error.outcome()), (1, Outcome::NotSent));
    assert!(error.to_string().contains("the certificate of localhost"));
}

#[tokio::test]
async fn a_server_without_tls_is_named_and_not_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 4096]).unwrap();
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let client = Client::new(format!("https://localhost:{port}"), "key-of-the-test").unwrap();

    let error = client.contacts().list().await.unwrap_err();

    let name = format!("localhost:{port} responded without TLS");
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(!error.is_retryable(), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!("list: {name}; check the base URL")
    );
    assert_eq!(error.explanation(), format!("{name}; tell your developers"));
    server.join().unwrap();
}

#[tokio::test]
async fn a_connection_that_breaks_during_the_handshake_is_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = thread::spawn(move || {
        for _ in 0..2 {
            drop(listener.accept().unwrap());
        }
    });
    let client = Client::builder(format!("https://localhost:{port}"), "key-of-the-test")
        .retry(RetryPolicy::exponential().max_attempts(2))
        .build()
        .unwrap();

    let error = client.contacts().list().await.unwrap_err();

    assert!(error.is_retryable(), "{error:?}");
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Connect, 2));
    accepted.join().unwrap();
}

/// The server of the test above is a correct one.
#[tokio::test]
async fn with_its_authority_as_root_the_same_server_gets_the_request() {
    let (url, certificate, server) = serve_once();
    let root = reqwest::Certificate::from_pem(certificate.as_bytes()).unwrap();
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .tls_certs_only([root])
        .build()
        .unwrap();
    let client = Client::builder(url, "key-of-the-test")
        .retry(RetryPolicy::none())
        .http_client(http)
        .build()
        .unwrap();

    let unanswered = client.contacts().retrieve("ada@example.com").await;

    assert!(unanswered.is_err());
    assert!(!server.join().unwrap().is_empty());
}
