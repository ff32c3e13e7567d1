use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::inbox::{AcceptState, ClaimState, RedisStore, Release, Store, Token};
use audience::webhooks::EventId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{RETENTION, claim, delivery, held, id, key, release, take};
use support::redis::server;

type Meanwhile = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Forwards to a server, and can cut a connection when the server's next response arrives.
struct Proxy {
    url: String,
    cut: Arc<Mutex<Option<Meanwhile>>>,
}

impl Proxy {
    async fn start(server: &str) -> Self {
        let server = server.trim_start_matches("redis://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let cut = Arc::new(Mutex::new(None));
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
        self.lose_next_response_and(std::future::ready(()));
    }

    /// The same, and this happens before the caller notices.
    fn lose_next_response_and(&self, meanwhile: impl Future<Output = ()> + Send + 'static) {
        *self.cut.lock().unwrap() = Some(Box::pin(meanwhile));
    }

    fn assert_lost(&self) {
        assert!(self.cut.lock().unwrap().is_none(), "a response was lost");
    }
}

async fn forward(client: TcpStream, server: TcpStream, cut: Arc<Mutex<Option<Meanwhile>>>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
        // A server that does not know a script yet has not run it.
        let has_run = !buffer.starts_with(b"-NOSCRIPT");
        let meanwhile = has_run.then(|| cut.lock().unwrap().take()).flatten();
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
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

/// Who else acts on the event before a call whose response was lost is made again.
struct Other {
    store: RedisStore,
    event: EventId,
    token: Token,
}

impl Other {
    async fn take(&self) {
        assert_eq!(self.store.take(take(self.token)).await.unwrap().len(), 1);
    }

    async fn complete(&self) {
        let held = held(&self.event, self.token);
        assert!(self.store.complete(held, RETENTION).await.unwrap());
    }

    async fn park(&self) {
        let held = held(&self.event, self.token);
        assert!(self.store.park(held, "it failed").await.unwrap());
    }

    async fn replay(&self) {
        assert!(self.store.replay(key(&self.event)).await.unwrap());
    }

    async fn discard(&self) {
        let discarded = self.store.discard(key(&self.event), RETENTION).await;
        assert!(discarded.unwrap());
    }
}

#[tokio::test]
async fn a_call_whose_response_was_lost_succeeded_whatever_others_did_to_the_event_since() {
    let Some(server) = server().await else { return };
    let proxy = Proxy::start(&server.url).await;
    let prefix = server.prefix();
    let store = super::connect_with_prefix(&proxy.url, &prefix).await;
    let direct = super::connect_with_prefix(&server.url, &prefix).await;
    let others = |event: &EventId| {
        let (store, token) = (direct.clone(), Token::random());
        let event = event.clone();
        Other {
            store,
            event,
            token,
        }
    };
    let new_event = async |name: &str| {
        let event = id(name);
        direct.accept(delivery(&event, b"body")).await.unwrap();
        let token = Token::random();
        assert_eq!(store.take(take(token)).await.unwrap().len(), 1);
        (event, token)
    };
    let now = Release::new(Duration::ZERO, RETENTION, "it failed");
    // The server knows the scripts, so that each response below is the one of a script that ran.
    let (event, token) = new_event("first").await;
    assert!(store.release(held(&event, token), now).await.unwrap());
    assert_eq!(store.take(take(token)).await.unwrap().len(), 1);
    assert!(store.park(held(&event, token), "it failed").await.unwrap());
    assert!(store.replay(key(&event)).await.unwrap());
    assert_eq!(store.take(take(token)).await.unwrap().len(), 1);
    assert!(store.park(held(&event, token), "it failed").await.unwrap());
    assert!(store.discard(key(&event), RETENTION).await.unwrap());

    // Released, then taken and completed.
    let (event, token) = new_event("released").await;
    let other = others(&event);
    proxy.lose_next_response_and(async move {
        other.take().await;
        other.complete().await;
    });
    assert!(store.release(held(&event, token), now).await.unwrap());
    proxy.assert_lost();

    // Parked, then replayed, taken and parked by another worker.
    let (event, token) = new_event("parked").await;
    let other = others(&event);
    proxy.lose_next_response_and(async move {
        other.replay().await;
        other.take().await;
        other.park().await;
    });
    assert!(store.park(held(&event, token), "it failed").await.unwrap());
    proxy.assert_lost();

    // Replayed, then taken and parked again: it is not replayed a second time.
    let other = others(&event);
    proxy.lose_next_response_and(async move {
        other.take().await;
        other.park().await;
    });
    assert!(store.replay(key(&event)).await.unwrap());
    proxy.assert_lost();
    let parked = store.parked(super::ENDPOINT, None, 10).await.unwrap();
    assert_eq!(parked.len(), 1);

    // Discarded by another caller before this one: only that one did it.
    let other = others(&event);
    other.discard().await;
    proxy.lose_next_response();
    assert!(!store.discard(key(&event), RETENTION).await.unwrap());
    proxy.assert_lost();
}
