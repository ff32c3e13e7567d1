use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{Client, IntoConnectionInfo, RedisResult, Value};

use super::error::{is_refused_command, store_error};
use super::eviction;
use super::keys::{Keys, escape_prefix};
use crate::inbox::error::StoreError;

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
        let connection = connection(address).await.map_err(store_error)?;
        let store = Self::new(connection);
        store.check().await?;
        Ok(store)
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
    /// # Example: keys of your own
    ///
    /// ```no_run
    /// use audience::inbox::RedisStore;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1:6379")?;
    /// let connection = client.get_connection_manager().await?;
    /// let store = RedisStore::new(connection).prefix("shop:webhooks");
    /// store.check().await?;
    /// # Ok(()) }
    /// ```
    pub fn new(connection: C) -> Self {
        Self {
            connection,
            prefix: DEFAULT_PREFIX.into(),
        }
    }

    /// Sets what the keys begin with, after an opening brace. Default: `audience:inbox`.
    ///
    /// Braces and percent signs in it are escaped.
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.prefix = escape_prefix(prefix.as_ref()).into();
        self
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
            Ok(info) => eviction::check(&info).map_err(StoreError::unusable),
            Err(error) if is_refused_command(&error) => Ok(()),
            Err(error) => Err(store_error(error)),
        }
    }

    pub(super) fn connection(&self) -> C {
        self.connection.clone()
    }

    pub(super) fn keys(&self, endpoint: &str) -> Keys {
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
