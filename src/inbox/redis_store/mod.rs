//! A store in Redis. Each call is one Lua script, in `scripts/`.

mod call;
mod keys;

pub use redis;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{
    Client, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError, RedisResult, Value,
};

use self::call::{
    ACCEPT, BACKLOG, CLAIM, COMPLETE, Call, DISCARD, EXTEND, PARK, PARKED, RELEASE, REPLAY, Script,
    TAKE, is_refused_command, store_error,
};
use self::keys::{Keys, escape_prefix};
use crate::inbox::error::StoreError;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Release, Store, Take, TakenEvent,
};
use crate::webhooks::EventId;

const DEFAULT_PREFIX: &str = "audience:inbox";
/// A call waits for a connection this long, twice at most, and then for the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_millis(1_500);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const RECONNECT_DELAY: Duration = Duration::from_millis(50);

/// A store in Redis or Valkey, for receivers on any number of machines (feature `inbox-redis`).
///
/// Clones share their connection. The server needs Redis 5 or newer, or Valkey.
///
/// # What a failover can lose
///
/// Redis confirms a write before its replicas have it. **If a primary fails and a replica takes its place, the
/// newest writes may be lost**, mostly those of less than a second:
///
/// | lost | what follows |
/// |---|---|
/// | a completion | the event is handled again if it is delivered again, or when its lease ends |
/// | a claim | two receivers may handle the event at the same time |
/// | an accepted event | **it is never handled**: the service was told that it arrived |
///
/// The same happens if the server itself restarts without having written everything to its disk:
///
/// | setting of the server | a crash of Redis loses | a crash of the machine loses |
/// |---|---|---|
/// | `appendonly no` (Redis's default) | everything since the last snapshot | the same |
/// | `appendonly yes`, `appendfsync everysec` | nothing, or little | up to 2 s |
/// | `appendonly yes`, `appendfsync always` | nothing | nothing |
///
/// If no accepted event may be lost, use `PostgresStore` or `SqliteStore`, or
/// [`handle`](crate::inbox::Inbox::handle) events instead of accepting them. If no event may be handled twice, use
/// the `claim_in` of those stores. **This store has no `claim_in`**: your effects and the claim would be in two
/// databases that cannot commit together.
///
/// # What the server must be set to
///
/// `maxmemory-policy noeviction`, which is Redis's default. With every other policy, a server that runs short
/// of memory deletes remembered events, and they are handled again, and accepted ones, which are lost.
/// [`connect`](Self::connect) refuses such a server. With `noeviction`, a full server refuses new events with
/// [`StoreErrorKind::Full`](crate::inbox::StoreErrorKind::Full), and the service delivers them again later;
/// events that it has can still be taken and completed, which makes room.
///
/// A user of the server needs the keys `{audience:inbox:*` and the permissions
/// `+@read +@write +@scripting +time +info`.
///
/// # What is stored
///
/// Each call is one Lua script, which compares the token and uses the server's clock. A first claim is a
/// `SET NX PX` in its script, so that it compares the body's fingerprint in the same step.
///
/// A remembered event is one key that expires by itself, of about 200 bytes with a short id. Accepted events
/// do not expire, and parked ones do not either. Bodies hold personal data: they are deleted when the event is
/// done, and end up in snapshots, append-only files and replicas until those are rewritten.
///
/// A duration of more than 100 years counts as 100 years.
///
/// # In a cluster
///
/// All keys of one endpoint have the hash tag `{prefix:endpoint}`, so **one endpoint lives in one slot**, on one
/// server of the cluster. [`connect`](Self::connect) is for a single server; for a cluster, give
/// [`new`](Self::new) a cluster connection (feature `cluster-async` of the `redis` crate), and call
/// [`check`](Self::check).
///
/// # Example: connect
///
/// ```no_run
/// use audience::inbox::{Inbox, RedisStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// let inbox = Inbox::builder(store).build()?;
/// # let _ = inbox;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisStore<C = ConnectionManager> {
    connection: C,
    /// Escaped.
    prefix: Arc<str>,
}

/// Builds a [`RedisStore`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is connected or built"]
pub struct RedisStoreBuilder {
    /// Escaped.
    prefix: Arc<str>,
}

impl RedisStore {
    /// Connects to a server, for example `redis://user:password@host:6379/0`.
    ///
    /// For `rediss://` (TLS), turn on a TLS feature of the `redis` crate, such as `tls-rustls`, in your own
    /// `Cargo.toml`. A `redis::ConnectionInfo` is an address, too.
    ///
    /// The connection is made again whenever it is lost. A call fails after about 5 s if the server does not
    /// respond, at once if it refuses connections.
    ///
    /// # Errors
    ///
    /// - [`StoreErrorKind::Unavailable`](crate::inbox::StoreErrorKind::Unavailable) if the server cannot be reached.
    /// - [`StoreErrorKind::Unusable`](crate::inbox::StoreErrorKind::Unusable) if the address is invalid, the
    ///   password is wrong, or [`check`](Self::check) refuses the server.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn connect(address: impl IntoConnectionInfo) -> Result<Self, StoreError> {
        Self::builder().connect(address).await
    }

    /// Starts building a store.
    ///
    /// # Example: keys of your own
    ///
    /// ```no_run
    /// use audience::inbox::RedisStore;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder()
    ///     .prefix("shop:webhooks")
    ///     .connect("redis://127.0.0.1:6379")
    ///     .await?;
    /// # let _ = store;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder {
            prefix: DEFAULT_PREFIX.into(),
        }
    }
}

impl RedisStoreBuilder {
    /// Sets what the keys begin with, after an opening brace. Default: `audience:inbox`.
    ///
    /// Braces and percent signs in it are escaped.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.prefix = escape_prefix(prefix.as_ref()).into();
        self
    }

    /// Connects to a server, for example `redis://user:password@host:6379/0`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`RedisStore::connect`].
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn connect(self, address: impl IntoConnectionInfo) -> Result<RedisStore, StoreError> {
        let connection = connection(address).await.map_err(store_error)?;
        let store = self.build(connection);
        store.check().await?;
        Ok(store)
    }

    /// Builds a store on a connection of your own, like [`RedisStore::new`].
    #[must_use]
    pub fn build<C>(self, connection: C) -> RedisStore<C>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        RedisStore {
            connection,
            prefix: self.prefix,
        }
    }
}

impl<C> RedisStore<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    /// Creates a store on a connection of your own, for example of a cluster.
    ///
    /// Limit how long the connection waits for a response: the default of most connections of the `redis`
    /// crate is 500 ms. Clones of it are used at the same time.
    ///
    /// # Example: a connection of your own
    ///
    /// ```no_run
    /// use audience::inbox::{RedisStore, redis};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1:6379")?;
    /// let connection = client.get_connection_manager().await?;
    /// let store = RedisStore::new(connection);
    /// store.check().await?;
    /// # Ok(()) }
    /// ```
    pub fn new(connection: C) -> Self {
        RedisStore::builder().build(connection)
    }

    /// Checks that the server keeps what it is told to keep: its `maxmemory-policy` must be `noeviction`.
    ///
    /// A server that does not tell, because the user may not run `INFO`, is not refused. An inbox checks this
    /// again every minute, when it would delete what may be forgotten in another store, and reports it by
    /// `tracing`.
    ///
    /// # Errors
    ///
    /// - [`StoreErrorKind::Unusable`](crate::inbox::StoreErrorKind::Unusable) if the server has another policy.
    /// - Other kinds if the call failed.
    pub async fn check(&self) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let command = redis::cmd("INFO").arg("memory").take();
        let info: RedisResult<Value> = command.query_async(&mut connection).await;
        match info {
            Ok(info) => check_eviction(&info).map_err(StoreError::unusable),
            Err(error) if is_refused_command(&error) => Ok(()),
            Err(error) => Err(store_error(error)),
        }
    }

    fn connection(&self) -> C {
        self.connection.clone()
    }

    fn keys(&self, endpoint: &str) -> Keys {
        Keys::new(&self.prefix, endpoint)
    }
}

impl<C> fmt::Debug for RedisStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

async fn connection(address: impl IntoConnectionInfo) -> RedisResult<ConnectionManager> {
    let client = Client::open(address)?;
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(CONNECTION_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_number_of_retries(1)
        .set_min_delay(RECONNECT_DELAY);
    ConnectionManager::new_with_config(client, config).await
}

/// The id, body, attempts, reason and age of a parked event.
type ParkedReply = (String, Option<Vec<u8>>, u64, String, u64);

impl<C> Store for RedisStore<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        let fingerprint = claim.fingerprint.as_ref().map(Fingerprint::as_bytes);
        let call = self
            .event_call(&CLAIM, claim.key)
            .bytes(claim.token.as_bytes())
            .bytes(fingerprint.map_or(&[], |bytes| bytes.as_slice()))
            .duration(claim.lease)
            .duration(claim.retention);
        let (state, number): (String, u64) = self.run(&call).await?;
        match state.as_str() {
            "fresh" => Ok(ClaimState::Fresh {
                attempt: attempts(number),
            }),
            "in progress" => Ok(ClaimState::InProgress {
                remaining: Duration::from_micros(number),
            }),
            "done" => Ok(ClaimState::Done),
            "parked" => Ok(ClaimState::Parked),
            "conflict" => Ok(ClaimState::Conflict),
            _ => Err(unexpected()),
        }
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        let call = self.held_call(&EXTEND, &held).duration(lease);
        self.run(&call).await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let call = self.held_call(&COMPLETE, &held).duration(retention);
        self.run(&call).await
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let call = self
            .held_call(&RELEASE, &held)
            .duration(release.delay)
            .duration(release.retention)
            .bytes(release.reason.as_bytes());
        self.run(&call).await
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let call = self.held_call(&PARK, &held).bytes(reason.as_bytes());
        self.run(&call).await
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let call = self
            .event_call(&ACCEPT, delivery.key)
            .bytes(delivery.fingerprint.as_bytes())
            .bytes(delivery.body);
        let (state, number): (String, u64) = self.run(&call).await?;
        match state.as_str() {
            "accepted" => Ok(AcceptState::Accepted),
            "repeated" => Ok(AcceptState::Repeated),
            "in progress" => Ok(AcceptState::InProgress {
                remaining: Duration::from_micros(number),
            }),
            "conflict" => Ok(AcceptState::Conflict),
            _ => Err(unexpected()),
        }
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let call = Call::new(&TAKE, self.keys(take.endpoint), None)
            .bytes(take.token.as_bytes())
            .duration(take.lease)
            .limit(take.limit);
        let taken: Vec<(String, Vec<u8>, u64, u64)> = self.run(&call).await?;
        taken
            .into_iter()
            .map(|(id, body, attempt, overdue)| {
                Ok(TakenEvent {
                    id: event_id(id)?,
                    body: Bytes::from(body),
                    attempt: attempts(attempt),
                    overdue: Duration::from_micros(overdue),
                })
            })
            .collect()
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let call = Call::new(&PARKED, self.keys(endpoint), None)
            .bytes(after.map_or("", EventId::as_str).as_bytes())
            .limit(limit);
        let parked: Vec<ParkedReply> = self.run(&call).await?;
        parked
            .into_iter()
            .map(|(id, body, attempted, reason, age)| {
                Ok(ParkedEvent::new(
                    event_id(id)?,
                    body.map(Bytes::from),
                    attempts(attempted),
                    reason,
                    Duration::from_micros(age),
                ))
            })
            .collect()
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        self.run(&self.event_call(&REPLAY, key)).await
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        let call = self.event_call(&DISCARD, key).duration(retention);
        self.run(&call).await
    }

    /// The server deletes by itself what may be forgotten. This checks instead that it deletes nothing else.
    async fn purge(&self, _limit: usize) -> Result<usize, StoreError> {
        self.check().await?;
        Ok(0)
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let call = Call::new(&BACKLOG, self.keys(endpoint), None);
        let (waiting, in_progress, parked, lag) = self.run(&call).await?;
        Ok(Backlog::new(
            waiting,
            in_progress,
            parked,
            Duration::from_micros(lag),
        ))
    }
}

impl<C> RedisStore<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn event_call<'a>(&self, script: &'a Script, key: EventKey<'a>) -> Call<'a> {
        Call::new(script, self.keys(key.endpoint), Some(key.id))
    }

    fn held_call<'a>(&self, script: &'a Script, held: &'a HeldClaim<'a>) -> Call<'a> {
        self.event_call(script, held.key)
            .bytes(held.token.as_bytes())
    }

    async fn run<T: FromRedisValue>(&self, call: &Call<'_>) -> Result<T, StoreError> {
        let mut connection = self.connection();
        call.run(&mut connection).await.map_err(store_error)
    }
}

fn attempts(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn event_id(text: String) -> Result<EventId, StoreError> {
    EventId::try_from(text).map_err(StoreError::unusable)
}

fn unexpected() -> StoreError {
    store_error(RedisError::from((
        ErrorKind::UnexpectedReturnType,
        "a script returned an unknown state",
    )))
}

/// A server that deletes what it was told to keep.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server's maxmemory-policy is {policy}, which deletes remembered events when memory runs short: set it to noeviction"
)]
struct EvictsKeys {
    policy: String,
}

/// Reads the response to `INFO memory`, of one server or of all servers of a cluster.
fn check_eviction(info: &Value) -> Result<(), EvictsKeys> {
    let mut policies = texts(info).into_iter().filter_map(|text| {
        let policy = text
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"))?;
        Some(policy.trim().to_owned())
    });
    match policies.find(|policy| policy != "noeviction") {
        Some(policy) => Err(EvictsKeys { policy }),
        None => Ok(()),
    }
}

fn texts(value: &Value) -> Vec<Cow<'_, str>> {
    match value {
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(bytes)],
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => vec![text.into()],
        Value::Map(nodes) => nodes.iter().flat_map(|(_, info)| texts(info)).collect(),
        Value::Array(nodes) => nodes.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(policy: &str) -> Value {
        Value::BulkString(
            format!("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{policy}\r\nx:1\r\n").into_bytes(),
        )
    }

    #[test]
    fn a_server_that_evicts_keys_is_refused_with_what_to_set() {
        let error = check_eviction(&info("volatile-lru"))
            .unwrap_err()
            .to_string();

        assert!(
            error.contains("volatile-lru") && error.contains("noeviction"),
            "{error}"
        );
        check_eviction(&info("noeviction")).unwrap();
    }

    #[test]
    fn one_server_of_a_cluster_that_evicts_keys_is_noticed() {
        let node = |policy| (Value::SimpleString("10.0.0.1:6379".into()), info(policy));

        assert!(
            check_eviction(&Value::Map(vec![node("noeviction"), node("allkeys-lfu")])).is_err()
        );
        assert!(check_eviction(&Value::Map(vec![node("noeviction"), node("noeviction")])).is_ok());
    }

    #[test]
    fn a_server_that_does_not_say_is_not_refused() {
        assert!(check_eviction(&Value::BulkString(b"# Memory\r\n".to_vec())).is_ok());
        assert!(check_eviction(&Value::Nil).is_ok());
    }
}
