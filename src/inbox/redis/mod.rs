//! A store in Redis. Each call is one Lua script, in `scripts/`.

mod call;
mod error;
mod eviction;
mod keys;
mod operations;
mod scripts;
mod store;

pub use self::store::RedisStore;
