//! A server executes a call, and its response is lost.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Meanwhile = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Forwards to a server, and can cut a connection when the server's next response arrives.
pub(crate) struct LossyProxy {
    address: SocketAddr,
    cut: Arc<Mutex<Option<Meanwhile>>>,
}

impl LossyProxy {
    /// Starts a proxy for the server at this address, such as `127.0.0.1:80`. Only responses that `may_be_lost` are lost.
    pub(crate) async fn start(server: &str, may_be_lost: fn(&[u8]) -> bool) -> Self {
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Arc::new(Mutex::new(None));
        let cuts = Arc::clone(&cut);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(forward(client, server, Arc::clone(&cuts), may_be_lost));
            }
        });
        Self { address, cut }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server executes the next call, and its response is lost.
    pub(crate) fn lose_next_response(&self) {
        self.lose_next_response_and(std::future::ready(()));
    }

    /// The same, and this happens before the caller notices.
    pub(crate) fn lose_next_response_and(
        &self,
        meanwhile: impl Future<Output = ()> + Send + 'static,
    ) {
        *self.cut.lock().unwrap() = Some(Box::pin(meanwhile));
    }

    pub(crate) fn assert_lost(&self) {
        assert!(self.cut.lock().unwrap().is_none(), "a response was lost");
    }
}

async fn forward(
    client: TcpStream,
    server: TcpStream,
    cut: Arc<Mutex<Option<Meanwhile>>>,
    may_be_lost: fn(&[u8]) -> bool,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
        let response = &buffer[..length];
        let meanwhile = may_be_lost(response).then(|| cut.lock().unwrap().take());
        if let Some(meanwhile) = meanwhile.flatten() {
            meanwhile.await;
            break;
        }
        if to_client.write_all(response).await.is_err() {
            break;
        }
    }
    requests.abort();
}
