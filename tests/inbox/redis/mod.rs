//! The store in Redis.

use std::time::Duration;

use audience::inbox::{
    EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery, RedisStore, Release, Take, Token,
};
use audience::webhooks::EventId;
use redis::aio::MultiplexedConnection;

use support::redis::Redis;

mod cluster;
mod conformance;
mod full;
mod keys;
mod lost_response;
mod outage;
mod setup;
mod tls;

const ENDPOINT: &str = "main";
const LEASE: Duration = Duration::from_secs(600);
const RETENTION: Duration = Duration::from_secs(72 * 3_600);

/// A store on the shared server, with keys of its own.
async fn store(server: &Redis) -> RedisStore {
    connect_with_prefix(&server.url, server.prefix()).await
}

async fn connect(url: &str) -> RedisStore {
    RedisStore::connect(url).await.expect("the server runs")
}

async fn connect_with_prefix(url: &str, prefix: impl AsRef<str>) -> RedisStore {
    let builder = RedisStore::builder().prefix(prefix);
    builder.connect(url).await.expect("the server runs")
}

/// A connection beside the store, to look at the server.
async fn commands(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

fn id(text: &str) -> EventId {
    EventId::try_from(text).unwrap()
}

fn key(id: &EventId) -> EventKey<'_> {
    EventKey::new(ENDPOINT, id)
}

fn claim(id: &EventId, token: Token) -> NewClaim<'_> {
    NewClaim::new(key(id), token, LEASE, RETENTION)
}

fn held(id: &EventId, token: Token) -> HeldClaim<'_> {
    HeldClaim::new(key(id), token)
}

fn release() -> Release<'static> {
    Release::new(LEASE, RETENTION, "it failed")
}

fn delivery<'a>(id: &'a EventId, body: &'a [u8]) -> NewDelivery<'a> {
    NewDelivery::new(key(id), body, Fingerprint::of(body))
}

fn take(token: Token) -> Take<'static> {
    Take::new(ENDPOINT, token, LEASE, 1_000)
}
