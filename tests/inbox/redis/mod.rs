//! The store in Redis.

use std::time::Duration;

use audience::inbox::{
    EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery, RedisStore, Release, Take, Token,
};
use audience::webhooks::EventId;
use redis::aio::MultiplexedConnection;

use crate::support::redis::Redis;

mod cluster;
mod conformance;
mod full;
mod keys;
mod lost_response;
mod outage;
mod setup;

const ENDPOINT: &str = "main";
const LEASE: Duration = Duration::from_secs(600);
const RETENTION: Duration = Duration::from_secs(72 * 3_600);

/// A store on the shared server, with keys of its own.
async fn store(server: &Redis) -> RedisStore {
    connect(&server.url).await.prefix(server.prefix())
}

async fn connect(url: &str) -> RedisStore {
    RedisStore::connect(url).await.expect("the server runs")
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
    EventKey {
        endpoint: ENDPOINT,
        id,
    }
}

fn claim(id: &EventId, token: Token) -> NewClaim<'_> {
    NewClaim {
        key: key(id),
        token,
        lease: LEASE,
        retention: RETENTION,
        fingerprint: None,
    }
}

fn held(id: &EventId, token: Token) -> HeldClaim<'_> {
    HeldClaim {
        key: key(id),
        token,
    }
}

fn release() -> Release<'static> {
    Release {
        delay: LEASE,
        retention: RETENTION,
        reason: "it failed",
    }
}

fn delivery<'a>(id: &'a EventId, body: &'a [u8]) -> NewDelivery<'a> {
    NewDelivery {
        key: key(id),
        body,
        fingerprint: Fingerprint::of(body),
    }
}

fn take(token: Token) -> Take<'static> {
    Take {
        endpoint: ENDPOINT,
        token,
        lease: LEASE,
        limit: 1_000,
    }
}
