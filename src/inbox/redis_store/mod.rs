//! A store in Redis. Each call is one Lua script, in `scripts/`.

pub use redis;

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{
    Arg, Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisResult, ServerErrorKind, ToRedisArgs, Value,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::inbox::error::{StoreError, StoreErrorKind};
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Release, Store, Take, TakenEvent,
};
use crate::sync::lock;
use crate::webhooks::EventId;

const DEFAULT_PREFIX: &str = "audience:inbox";
// Together these are about 5 s: half of the time that the service waits for a response.

/// A call waits for a connection this long, twice at most, and then for the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long sent bytes may stay unacknowledged before the connection counts as lost.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// How long after a new connection that failed another one is tried.
const RENEWAL_DELAY: Duration = Duration::from_secs(1);

/// A store in Redis or Valkey, for receivers on any number of machines (feature `inbox-redis`).
///
/// Clones share their connection. It belongs to the tokio runtime that opened it, and works only while that one runs: in
/// another runtime, connect another store. The server needs Redis 5 or newer, or Valkey.
///
/// # Data loss after a failover
///
/// Redis confirms a write before its replicas have it. **If a primary fails and a replica takes its place, the
/// newest writes may be lost**, mostly the writes of less than a second:
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
/// # Settings of the server
///
/// Set `maxmemory-policy noeviction`, which is Redis's default. With every other policy, a server that runs short of
/// memory deletes events: handled events are then handled again, and accepted events are lost.
/// [`connect`](Self::connect) refuses such a server. With `noeviction`, a full server refuses new events with
/// [`StoreErrorKind::Full`](crate::inbox::StoreErrorKind::Full), and the service delivers them again later. The
/// stored events can still be taken and completed, which makes room.
///
/// A user of the server needs the keys `{audience:inbox:*` and the permissions
/// `+@read +@write +@scripting +time +info`.
///
/// # Stored data
///
/// Each call is one Lua script, which compares the token and uses the server's clock. A first claim is a
/// `SET NX PX` in its script, so that it compares the body's fingerprint in the same step.
///
/// A remembered event is one key that expires by itself, of about 200 bytes with a short id. Accepted and parked events
/// do not expire. A call that releases, parks, replays or discards an event leaves a key for 30 s: if its response is
/// lost and it is made again, it returns the same result, whatever happened to the event since. Bodies hold personal
/// data: they are deleted when the event is done, but stay in snapshots, append-only files and replicas until those are
/// rewritten.
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
    connection: Arc<Connection<C>>,
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
    /// For TLS, turn on the feature `inbox-redis-rustls`, and write `rediss://`. The certificate of the server must be
    /// valid for the host name, and come from an authority that the operating system trusts, or one in the file that
    /// the environment variable `SSL_CERT_FILE` names. rustls uses the provider that the program installed by
    /// [`CryptoProvider::install_default`](https://docs.rs/rustls/0.23/rustls/crypto/struct.CryptoProvider.html#method.install_default).
    /// If there is none, this call installs AWS-LC.
    ///
    /// A `redis::ConnectionInfo` is an address, too. For another authority or a certificate of your own, pass the one of
    /// `redis::Client::build_with_tls`.
    ///
    /// The connection is made again whenever it is lost. A call fails after about 5 s if the server does not
    /// respond, and immediately if it refuses connections.
    ///
    /// # Errors
    ///
    /// - [`StoreErrorKind::Unavailable`](crate::inbox::StoreErrorKind::Unavailable) if the server cannot be reached.
    /// - [`StoreErrorKind::Unusable`](crate::inbox::StoreErrorKind::Unusable) if the address is invalid, needs TLS that
    ///   is not turned on, the password is wrong, the certificate is not trusted, or [`check`](Self::check) refuses the
    ///   server.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: tell an outage from a wrong address
    ///
    /// ```
    /// use audience::inbox::{RedisStore, StoreErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let outage = RedisStore::connect("redis://127.0.0.1:1").await.unwrap_err();
    /// assert_eq!(outage.kind(), StoreErrorKind::Unavailable); // a later call may succeed
    ///
    /// let wrong = RedisStore::connect("127.0.0.1").await.unwrap_err();
    /// assert_eq!(wrong.kind(), StoreErrorKind::Unusable); // it is no `redis://` URL
    /// # Ok(()) }
    /// ```
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
    /// Sets the prefix of all keys, which follows an opening brace. Default: `audience:inbox`.
    ///
    /// Braces and percent signs in it are escaped. Two programs that share a server and have the same endpoint names
    /// need different prefixes.
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
        let address = address.into_connection_info().map_err(|error| {
            match error.to_string().contains("can't connect with TLS") {
                true => StoreError::unusable(
                    "the address of the server requires TLS: turn on the feature `inbox-redis-rustls`",
                ),
                false => store_error(error),
            }
        })?;
        let renewal = Renewal::new(move || Box::pin(connect(address.clone())));
        let connection = (renewal.connect)().await.map_err(store_error)?;
        let store = self.build_with(connection, Some(renewal));
        // A server with another policy fails here, not with the first event that it evicts.
        store.check().await?;
        Ok(store)
    }

    /// Builds a store on a connection of your own, like [`RedisStore::new`].
    #[must_use]
    pub fn build<C>(self, connection: C) -> RedisStore<C>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.build_with(connection, None)
    }

    fn build_with<C>(self, current: C, renewal: Option<Renewal<C>>) -> RedisStore<C> {
        RedisStore {
            connection: Arc::new(Connection {
                current: Mutex::new(current),
                renewal,
            }),
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
    /// crate is 500 ms. Clones of it are used simultaneously.
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

    /// Checks that the server never evicts keys: its `maxmemory-policy` must be `noeviction`.
    ///
    /// If the user may not run `INFO`, the check succeeds. An inbox repeats the check every minute, when it would
    /// delete forgotten entries from another store, and reports a failure by `tracing`.
    ///
    /// # Errors
    ///
    /// - [`StoreErrorKind::Unusable`](crate::inbox::StoreErrorKind::Unusable) if the server has another policy.
    /// - Other kinds if the call failed.
    ///
    /// # Example: the nodes of a cluster
    ///
    /// ```no_run
    /// use audience::inbox::{RedisStore, redis};
    ///
    /// # async fn start(connection: impl redis::aio::ConnectionLike + Clone + Send + Sync + 'static) -> Result<(), audience::inbox::StoreError> {
    /// let store = RedisStore::new(connection); // of `redis::cluster::ClusterClient`
    /// store.check().await?;
    /// # Ok(()) }
    /// ```
    pub async fn check(&self) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let command = redis::cmd("INFO").arg("memory").take();
        let info: RedisResult<Value> = command.query_async(&mut connection).await;
        match info {
            Ok(info) => check_eviction(&info).map_err(StoreError::unusable),
            // Managed servers refuse it, and must be usable all the same.
            Err(error) if is_refused_command(&error) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn connection(&self) -> C {
        // A clone shares the connection: calls that run simultaneously do not wait for each other.
        lock(&self.connection.current).clone()
    }

    /// Converts an error of the driver, and makes another connection if this one may be of no use any more.
    fn failed(&self, error: RedisError) -> StoreError {
        let error = store_error(error);
        if error.kind() == StoreErrorKind::Unusable {
            self.connection.renew();
        }
        error
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

/// The connection of a store.
struct Connection<C> {
    current: Mutex<C>,
    /// `None` if the connection is the caller's.
    renewal: Option<Renewal<C>>,
}

/// Makes another connection. A [`ConnectionManager`] does so after an error of the network only: if the server refuses the
/// password or the database once, when the connection is made again, it returns this error for ever.
struct Renewal<C> {
    connect: Box<dyn Fn() -> Connecting<C> + Send + Sync>,
    runtime: Handle,
    due: Mutex<Instant>,
}

type Connecting<C> = Pin<Box<dyn Future<Output = RedisResult<C>> + Send>>;

impl<C> Renewal<C> {
    fn new(connect: impl Fn() -> Connecting<C> + Send + Sync + 'static) -> Self {
        Self {
            connect: Box::new(connect),
            runtime: Handle::current(),
            due: Mutex::new(Instant::now()),
        }
    }
}

impl<C: Send + 'static> Connection<C> {
    /// Tries to make another connection for later calls, unless that was tried in the last second.
    fn renew(self: &Arc<Self>) {
        let Some(renewal) = &self.renewal else {
            return;
        };
        let now = Instant::now();
        let mut due = lock(&renewal.due);
        if now < *due {
            return;
        }
        *due = now + RENEWAL_DELAY;
        let (connection, connecting) = (Arc::clone(self), (renewal.connect)());
        renewal.runtime.spawn(async move {
            if let Ok(new) = connecting.await {
                *lock(&connection.current) = new;
            }
        });
    }
}

async fn connect(address: ConnectionInfo) -> RedisResult<ConnectionManager> {
    #[cfg(feature = "inbox-redis-rustls")]
    if matches!(address.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // `redis` panics without one if two are compiled. An error means that another thread was faster.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
    }
    // Otherwise, a connection to a server that lost its power fails each call until Linux gives up, after 15 minutes.
    #[cfg(target_os = "linux")]
    let address = {
        let settings = address.tcp_settings().clone();
        address.set_tcp_settings(settings.set_user_timeout(UNACKNOWLEDGED_TIMEOUT))
    };
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
        let keys = self.keys(claim.key.endpoint);
        let call = |keys: &[&str]| {
            Call::new(&CLAIM, keys)
                .arg(claim.token.as_bytes())
                .arg(&fingerprint(claim.fingerprint))
                .arg(micros(claim.lease))
                .arg(micros(claim.retention))
                .arg(millis(claim.lease.saturating_add(claim.retention)).max(1))
        };
        let entry = keys.of_event(claim.key.id);
        let mut reply: Value = self.run(call(&[&entry])).await?;
        // This is rare: somebody claims an event that was accepted or parked.
        if matches!(&reply, Value::BulkString(state) if state == b"kept") {
            let [events, bodies, claimed, waiting, _] = &keys.of_endpoint();
            reply = self
                .run(call(&[&entry, events, bodies, claimed, waiting]))
                .await?;
        }
        claim_state(&reply)
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        let call = self
            .entry_call(&EXTEND, held.key)
            .arg(held.token.as_bytes())
            .arg(micros(lease));
        self.run(call).await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let keys = self.keys(held.key.endpoint);
        let [events, bodies, claimed, ..] = &keys.of_endpoint();
        let entry = keys.of_event(held.key.id);
        let call = Call::new(&COMPLETE, &[&entry, events, bodies, claimed])
            .arg(held.token.as_bytes())
            .arg(millis(retention));
        self.run(call).await
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let call = self
            .entry_call(&RELEASE, held.key)
            .arg(held.token.as_bytes())
            .arg(micros(release.delay))
            .arg(micros(release.retention))
            .arg(release.reason);
        self.run(call).await
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let call = self
            .entry_call(&PARK, held.key)
            .arg(held.token.as_bytes())
            .arg(reason);
        self.run(call).await
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let keys = self.keys(delivery.key.endpoint);
        let [events, bodies, claimed, waiting, _] = &keys.of_endpoint();
        let entry = keys.of_event(delivery.key.id);
        let call = Call::new(&ACCEPT, &[&entry, events, bodies, claimed, waiting])
            .arg(&fingerprint(Some(delivery.fingerprint)))
            .arg(delivery.body);
        match self.run(call).await? {
            Value::Int(remaining) => Ok(AcceptState::InProgress {
                remaining: Duration::from_micros(remaining.unsigned_abs()),
            }),
            Value::BulkString(state) => match &*state {
                b"accepted" => Ok(AcceptState::Accepted),
                b"duplicate" => Ok(AcceptState::Duplicate),
                b"conflict" => Ok(AcceptState::Conflict),
                _ => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let [events, bodies, claimed, waiting, _] = &self.keys(take.endpoint).of_endpoint();
        let call = Call::new(&TAKE, &[events, bodies, claimed, waiting])
            .arg(take.token.as_bytes())
            .arg(micros(take.lease))
            .arg(limit(take.limit));
        // This is not retried: a second run would take other events, and count another attempt at events whose lease
        // ended.
        let taken = call.run_once(&mut self.connection()).await;
        let taken: Vec<(String, Vec<u8>, u64, u64)> = taken.map_err(|error| self.failed(error))?;
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
        at_most: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let [events, bodies, claimed, waiting, parked] = &self.keys(endpoint).of_endpoint();
        let call = Call::new(&PARKED, &[events, bodies, claimed, waiting, parked])
            .arg(after.map_or("", EventId::as_str))
            .arg(limit(at_most));
        let parked: Vec<ParkedReply> = self.run(call).await?;
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
        self.run(self.entry_call(&REPLAY, key)).await
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        let call = self.entry_call(&DISCARD, key).arg(millis(retention));
        self.run(call).await
    }

    /// The server itself deletes forgotten entries. This checks instead that it deletes nothing else.
    async fn purge(&self, _limit: usize) -> Result<usize, StoreError> {
        self.check().await?;
        Ok(0)
    }

    async fn state(
        &self,
        key: EventKey<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<ClaimState, StoreError> {
        let call = self.entry_call(&STATE, key);
        let call = call.arg(&self::fingerprint(fingerprint));
        claim_state(&self.run(call).await?)
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let [events, bodies, claimed, waiting, parked] = &self.keys(endpoint).of_endpoint();
        let call = Call::new(&BACKLOG, &[events, bodies, claimed, waiting, parked]);
        let (waiting, in_progress, parked, lag) = self.run(call).await?;
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
    /// Calls a script that begins with `scripts/entry.lua`.
    fn entry_call(&self, script: &'static Script, key: EventKey<'_>) -> Call {
        let keys = self.keys(key.endpoint);
        let [events, bodies, claimed, waiting, parked] = &keys.of_endpoint();
        let (entry, this) = (keys.of_event(key.id), keys.of_new_call());
        let keys = [&entry, events, bodies, claimed, waiting, parked, &this];
        Call::new(script, &keys.map(String::as_str))
    }

    async fn run<T: FromRedisValue>(&self, call: Call) -> Result<T, StoreError> {
        let result = call.run(&mut self.connection()).await;
        result.map_err(|error| self.failed(error))
    }
}

fn claim_state(reply: &Value) -> Result<ClaimState, StoreError> {
    match reply {
        Value::Int(attempt @ 1..) => Ok(ClaimState::Fresh {
            attempt: attempts(attempt.unsigned_abs()),
        }),
        Value::Int(remaining) => Ok(ClaimState::InProgress {
            remaining: Duration::from_micros(remaining.unsigned_abs()),
        }),
        Value::BulkString(state) => match &**state {
            b"done" => Ok(ClaimState::Done),
            b"parked" => Ok(ClaimState::Parked),
            b"conflict" => Ok(ClaimState::Conflict),
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

/// Returns a fingerprint as the scripts write it.
fn fingerprint(fingerprint: Option<Fingerprint>) -> [u8; 17] {
    let mut text = [b'-'; 17];
    if let Some(fingerprint) = fingerprint {
        text[0] = b'f';
        text[1..].copy_from_slice(fingerprint.as_bytes());
    }
    text
}

/// Returns microseconds, rounded up: a lease is never shorter than the caller wants it.
fn micros(duration: Duration) -> u64 {
    let micros = duration.as_nanos().div_ceil(1_000);
    u64::try_from(micros).map_or(LONGEST_MICROS, |micros| micros.min(LONGEST_MICROS))
}

fn millis(duration: Duration) -> u64 {
    micros(duration).div_ceil(1_000)
}

fn limit(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
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
        // A cluster connection returns the responses of all its servers.
        Value::Map(nodes) => nodes.iter().flat_map(|(_, info)| texts(info)).collect(),
        Value::Array(nodes) => nodes.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// A longer duration counts as this one: 100 years, in microseconds. Lua counts exactly up to three times as
/// far from now.
const LONGEST_MICROS: u64 = 100 * 365 * 24 * 3_600 * 1_000_000;

/// A call of a script.
struct Call {
    script: &'static Script,
    command: Cmd,
}

impl Call {
    fn new(script: &'static Script, keys: &[&str]) -> Self {
        let mut command = Cmd::with_capacity(16, 512);
        command.arg("EVALSHA").arg(&script.hash);
        command.arg(keys.len()).arg(keys);
        Self { script, command }
    }

    fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// Runs the script. Servers and proxies drop idle connections, so if the connection was dropped, runs it once more
    /// on a new one.
    async fn run<T: FromRedisValue>(&self, connection: &mut impl ConnectionLike) -> RedisResult<T> {
        match self.run_once(connection).await {
            // The first run may have succeeded. The scripts notice that by the token of the claim, or by the key of the
            // call.
            Err(error) if error.is_connection_dropped() => self.run_once(connection).await,
            result => result,
        }
    }

    async fn run_once<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<T> {
        let result = match self.command.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                // A server forgets its scripts when it restarts, and a new primary may never have had them.
                self.in_full().query_async(connection).await
            }
            result => result,
        };
        if matches!(&result, Err(error) if code(error) == "READONLY") {
            // The server has become a replica, and keeps its connections. The next call shall make a new one, to the
            // server that the address names by then.
            let _: RedisResult<Value> = redis::cmd("QUIT").query_async(connection).await;
        }
        result
    }

    /// Returns the command with the code of the script instead of its hash.
    fn in_full(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script.code);
        for arg in self.command.args_iter().skip(2) {
            if let Arg::Simple(arg) = arg {
                command.arg(arg);
            }
        }
        command
    }
}

/// A Lua script, and the hash by which a server knows it.
struct Script {
    code: &'static str,
    hash: String,
}

macro_rules! scripts {
    ($($name:ident = $($file:literal)+;)+) => {
        $(static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!($(include_str!($file)),+))
        });)+
    };
}

scripts! {
    ACCEPT = "scripts/accept.lua";
    BACKLOG = "scripts/backlog.lua";
    CLAIM = "scripts/claim.lua";
    COMPLETE = "scripts/complete.lua";
    DISCARD = "scripts/entry.lua" "scripts/discard.lua";
    EXTEND = "scripts/entry.lua" "scripts/extend.lua";
    PARK = "scripts/entry.lua" "scripts/park.lua";
    PARKED = "scripts/parked.lua";
    RELEASE = "scripts/entry.lua" "scripts/release.lua";
    REPLAY = "scripts/entry.lua" "scripts/replay.lua";
    STATE = "scripts/entry.lua" "scripts/state.lua";
    TAKE = "scripts/take.lua";
}

impl Script {
    fn new(code: &'static str) -> Self {
        let hash = redis::Script::new(code).get_hash().to_owned();
        Self { code, hash }
    }
}

/// A server of a cluster was addressed as if it were alone.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server is part of a cluster: give `RedisStore::new` a cluster connection of the redis crate"
)]
struct NeedsClusterConnection(#[source] RedisError);

/// Converts an error of the driver. Its kind says whether a later call may succeed.
fn store_error(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::Client
        | ErrorKind::EmptySentinelList
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Parse
        | ErrorKind::RESP3NotSupported
        | ErrorKind::UnexpectedReturnType => StoreError::unusable(error),
        ErrorKind::Server(_) | ErrorKind::Extension => match code(&error) {
            "OOM" => StoreError::full(error),
            "MOVED" => StoreError::unusable(NeedsClusterConnection(error)),
            "ERR" if is_short_of_connections(&error) => StoreError::unavailable(error),
            "CROSSSLOT" | "DENIED" | "ERR" | "NOAUTH" | "NOPERM" | "NOPROTO" | "WRONGPASS"
            | "WRONGTYPE" => StoreError::unusable(error),
            // BUSY, CLUSTERDOWN, LOADING, MASTERDOWN, MISCONF, NOREPLICAS, READONLY, TRYAGAIN and the like.
            _ => StoreError::unavailable(error),
        },
        _ if is_refused_by_tls(&error) => StoreError::unusable(error),
        _ => StoreError::unavailable(error),
    }
}

/// Returns whether one side did not accept the certificate or the version of the other one.
#[cfg(feature = "inbox-redis-rustls")]
fn is_refused_by_tls(error: &RedisError) -> bool {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Shared>());
    let cause = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let cause = cause.and_then(std::io::Error::get_ref);
    cause
        .and_then(|cause| cause.downcast_ref::<rustls::Error>())
        .is_some()
}

#[cfg(not(feature = "inbox-redis-rustls"))]
fn is_refused_by_tls(_: &RedisError) -> bool {
    false
}

/// Returns whether the server refuses the command, because it does not know it or the user may not run it.
fn is_refused_command(error: &RedisError) -> bool {
    matches!(code(error), "NOPERM") || detail(error).starts_with("unknown command")
}

fn code(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    // Before Redis 7, the error of a command in a script is part of the text of a general error:
    // "ERR Error running script (call to f_…): @user_script:9: -OOM command not allowed …".
    match detail(error).rsplit_once(": -") {
        Some((_, inner)) if code == "ERR" => inner.split(' ').next().unwrap_or(code),
        _ => code,
    }
}

fn is_short_of_connections(error: &RedisError) -> bool {
    detail(error).contains("max number of clients")
}

fn detail(error: &RedisError) -> &str {
    error.detail().unwrap_or_default()
}

/// The keys of one endpoint. All begin with the same hash tag, so a cluster keeps them in one slot.
struct Keys {
    tag: String,
}

impl Keys {
    /// Returns the keys of an endpoint. The prefix was escaped by [`escape_prefix`].
    fn new(prefix: &str, endpoint: &str) -> Self {
        let endpoint = escape(endpoint, &['{', '}', '%', ':']);
        Self {
            tag: format!("{{{prefix}:{endpoint}}}"),
        }
    }

    /// Returns the keys that all events share: events, bodies, claimed, waiting, parked.
    fn of_endpoint(&self) -> [String; 5] {
        ["events", "bodies", "claimed", "waiting", "parked"].map(|name| self.key([":", name]))
    }

    /// Returns the key of the entry of one event. The scripts read the id from it.
    fn of_event(&self, id: &EventId) -> String {
        self.key([":id:", id.as_str()])
    }

    /// Returns the key by which a call is known if it is made again.
    fn of_new_call(&self) -> String {
        self.key([":call:", &format!("{:032x}", fastrand::u128(..))])
    }

    fn key(&self, end: [&str; 2]) -> String {
        let mut key = String::with_capacity(self.tag.len() + end[0].len() + end[1].len());
        key.extend([&self.tag, end[0], end[1]]);
        key
    }
}

/// Escapes the braces that would begin or end a hash tag.
fn escape_prefix(prefix: &str) -> String {
    escape(prefix, &['{', '}', '%'])
}

fn escape(text: &str, special: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match special.contains(&c) {
            true => escaped += &format!("%{:02X}", u32::from(c)),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
