//! The store in Redis.

use std::time::Duration;

use audience::inbox::{
    EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery, RedisStore, RedisStoreBuilder,
    Release, Take, Token,
};
use audience::webhooks::EventId;
use redis::AsyncConnectionConfig;
use redis::aio::{ConnectionManagerConfig, MultiplexedConnection};

use support::PATIENCE;
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
    connect_with_builder(&RedisStore::builder(), url).await
}

async fn connect_with_prefix(url: &str, prefix: impl AsRef<str>) -> RedisStore {
    connect_with_builder(&RedisStore::builder().prefix(prefix), url).await
}

/// Connects to a server that runs. The connection is like the store's own, but it waits for a slow machine.
async fn connect_with_builder(builder: &RedisStoreBuilder, url: &str) -> RedisStore {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(50));
    let client = redis::Client::open(url).unwrap();
    let connection = client.get_connection_manager_with_config(config).await;
    let store = builder.clone().build(connection.unwrap());
    store.check().await.unwrap();
    store
}

/// A connection beside the store, to look at the server.
async fn commands(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    // By default, it waits 500 ms for a response.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.unwrap()
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
