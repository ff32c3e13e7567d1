//! The store in Redis.

use audience::inbox::RedisStore;

use crate::support::redis::Redis;

mod conformance;

/// A store on the shared server, with keys of its own.
async fn store(server: &Redis) -> RedisStore {
    let store = RedisStore::connect(server.url.as_str()).await;
    store.expect("the server runs").prefix(server.prefix())
}
