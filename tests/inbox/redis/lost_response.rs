use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use audience::inbox::{AcceptState, ClaimState, Store, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{RETENTION, claim, delivery, held, id, key, release, take};
use support::redis::server;

/// Forwards to a server, and can cut a connection when the server's next response arrives.
struct Proxy {
    url: String,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(server: &str) -> Self {
        let server = server.trim_start_matches("redis://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let cut = Arc::new(AtomicBool::new(false));
        let cuts = Arc::clone(&cut);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(forward(client, server, Arc::clone(&cuts)));
            }
        });
        Self { url, cut }
    }

    /// The server executes the next call, and its response is lost.
    fn lose_next_response(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    fn assert_lost(&self) {
        assert!(!self.cut.load(Ordering::SeqCst), "a response was lost");
    }
}

async fn forward(client: TcpStream, server: TcpStream, cut: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
        // A server that does not know a script yet has not run it.
        let has_run = !buffer.starts_with(b"-NOSCRIPT");
        if has_run && cut.swap(false, Ordering::SeqCst) {
            break;
        }
        if to_client.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    requests.abort();
}

#[tokio::test]
async fn a_call_whose_response_was_lost_has_the_result_that_it_would_have_had() {
    let Some(server) = server().await else { return };
    let proxy = Proxy::start(&server.url).await;
    let store = super::connect_with_prefix(&proxy.url, server.prefix()).await;
    let (event, token) = (id("event"), Token::random());
    let (other, other_token) = (id("other"), Token::random());
    let lose = || proxy.lose_next_response();

    lose();
    let state = store.claim(claim(&event, token)).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    lose();
    assert!(store.extend(held(&event, token), RETENTION).await.unwrap());
    lose();
    assert!(store.release(held(&event, token), release()).await.unwrap());
    lose();
    assert!(
        !store
            .release(held(&event, other_token), release())
            .await
            .unwrap()
    );

    lose();
    let state = store.accept(delivery(&other, b"body")).await.unwrap();
    assert!(matches!(
        state,
        AcceptState::Accepted | AcceptState::Duplicate
    ));
    store.take(take(other_token)).await.unwrap();
    lose();
    assert!(
        store
            .park(held(&other, other_token), "it failed")
            .await
            .unwrap()
    );
    lose();
    assert_eq!(
        store.parked(super::ENDPOINT, None, 10).await.unwrap().len(),
        1
    );
    lose();
    assert!(store.replay(key(&other)).await.unwrap());
    store.take(take(token)).await.unwrap();
    lose();
    assert!(
        !store
            .park(held(&other, other_token), "it failed")
            .await
            .unwrap()
    );
    assert!(store.park(held(&other, token), "it failed").await.unwrap());
    lose();
    assert!(store.discard(key(&other), RETENTION).await.unwrap());
    proxy.assert_lost();

    // Without a lost response, the same calls again change nothing.
    assert!(!store.release(held(&event, token), release()).await.unwrap());
    assert!(!store.discard(key(&other), RETENTION).await.unwrap());
    assert!(!store.replay(key(&other)).await.unwrap());
}
