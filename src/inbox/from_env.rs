//! Opens the store that the environment names.

use std::sync::Arc;

use super::error::StoreError;
use super::store::{DynStore, Store, delegate_store};
#[cfg(feature = "inbox-postgres")]
use super::{PostgresStore, PostgresStoreBuilder};
use crate::ConfigError;
use crate::secret::{VariableError, secret_from_variables};

/// Opens the store whose address is in the environment: in `AUDIENCE_INBOX_URL`, or in the file that
/// `AUDIENCE_INBOX_URL_FILE` names, such as a secret that Docker or Kubernetes mounts.
///
/// | address | feature | store |
/// |---|---|---|
/// | `sqlite:inbox.db`, `sqlite:/var/lib/app/inbox.db` | `inbox-sqlite` | `SqliteStore::open`, which creates the file if it is absent |
/// | `postgres://USER:PASSWORD@HOST/DATABASE` | `inbox-postgres`; for TLS `inbox-postgres-rustls` | `PostgresStore::connect` and `migrate`, which creates the tables if they are absent |
/// | `redis://USER:PASSWORD@HOST` | `inbox-redis`; for `rediss://` `inbox-redis-rustls` | `RedisStore::connect` |
///
/// The program `audience inbox` reads the same variables. Open the store by its own type if you need the methods of
/// that type, such as `handle_in`, or other settings. `PostgresStore::from_env` also reads these variables, but connects
/// with the first call.
///
/// # Errors
///
/// Returns a [`StoreError`] if no address is set, if the program was built without its store, or if the store cannot
/// be opened. The texts contain no address.
///
/// # Example: a program that gets its store from outside
///
/// ```no_run
/// use audience::inbox::{Inbox, store_from_env};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let inbox = Inbox::builder(store_from_env().await?).build()?;
/// # let _ = inbox;
/// # Ok(()) }
/// ```
pub async fn store_from_env() -> Result<impl Store + Clone, StoreError> {
    let address = StoreAddress::from_env().map_err(StoreError::unusable)?;
    address.open().await
}

fn address_from_env() -> Result<String, ConfigError> {
    let (url, file) = ("AUDIENCE_INBOX_URL", "AUDIENCE_INBOX_URL_FILE");
    let address = secret_from_variables(std::env::var, url, file);
    address.map_err(VariableError::into_config_error)
}

#[cfg(feature = "inbox-postgres")]
impl PostgresStore {
    /// Checks the address in `AUDIENCE_INBOX_URL`, or in the file that `AUDIENCE_INBOX_URL_FILE` names, such as a secret
    /// that Docker or Kubernetes mounts, and connects with the first call: see [`connect_lazy`](Self::connect_lazy).
    ///
    /// It has up to 20 connections, which is enough for one worker with [`handler_in`](Self::handler_in) and for an endpoint
    /// beside it. For other settings, see
    /// [`PostgresStoreBuilder::connect_lazy_from_env`](super::PostgresStoreBuilder::connect_lazy_from_env).
    /// [`store_from_env`] connects immediately, takes the addresses of other databases, and creates the tables.
    ///
    /// # Errors
    ///
    /// Returns [`Unusable`](crate::inbox::StoreErrorKind::Unusable) if no address is set, if the address is invalid, or
    /// if one of its certificates cannot be read. The text contains no address.
    ///
    /// # Example: a program that gets its database from outside
    ///
    /// ```no_run
    /// use audience::inbox::{Inbox, PostgresStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::from_env()?;
    /// store.migrate().await?;
    /// let inbox = Inbox::builder(store).build()?;
    /// # let _ = inbox;
    /// # Ok(()) }
    /// ```
    pub fn from_env() -> Result<Self, StoreError> {
        Self::builder().connect_lazy_from_env()
    }
}

#[cfg(feature = "inbox-postgres")]
impl PostgresStoreBuilder {
    /// Checks the address in the environment, and connects with the first call. It reads the variables of
    /// [`PostgresStore::from_env`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`PostgresStore::from_env`] and, after [`require_verified_tls`](Self::require_verified_tls),
    /// `Unusable` for an address that does not check the certificate.
    ///
    /// # Example: connections for two workers
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use audience::inbox::{Inbox, PostgresStore};
    ///
    /// let store = PostgresStore::builder().max_connections(36).connect_lazy_from_env()?;
    /// store.migrate().await?;
    /// let inbox = Inbox::builder(store).build()?;
    /// # let _ = inbox;
    /// # Ok(()) }
    /// ```
    pub fn connect_lazy_from_env(self) -> Result<PostgresStore, StoreError> {
        self.connect_lazy(&address_from_env().map_err(StoreError::unusable)?)
    }
}

/// The address of a store.
pub(crate) enum StoreAddress {
    #[cfg(feature = "inbox-sqlite")]
    Sqlite(String),
    #[cfg(feature = "inbox-postgres")]
    Postgres(String),
    #[cfg(feature = "inbox-redis")]
    Redis(String),
}

impl StoreAddress {
    pub(crate) fn from_env() -> Result<Self, ConfigError> {
        Self::parse(&address_from_env()?)
    }

    fn parse(address: &str) -> Result<Self, ConfigError> {
        #[cfg(feature = "inbox-sqlite")]
        if let Some(file) = address.strip_prefix("sqlite:") {
            // Another program would read a URL here. Read as a path, it names a file that nobody has in mind.
            // A path of Windows may begin with `\\?\`.
            let plain = file.strip_prefix(r"\\?\").unwrap_or(file);
            if file.starts_with("//") || plain.contains('?') {
                return Err(ConfigError::new(
                    "the address of an inbox in SQLite is `sqlite:` and the path of the file, such as `sqlite:inbox.db` \
                     or `sqlite:/var/lib/app/inbox.db`; it must not have `//` after `sqlite:`, nor a `?`",
                ));
            }
            return Ok(Self::Sqlite(file.to_owned()));
        }
        #[cfg(feature = "inbox-postgres")]
        if address.starts_with("postgres://") || address.starts_with("postgresql://") {
            return Ok(Self::Postgres(address.to_owned()));
        }
        #[cfg(feature = "inbox-redis")]
        if address.starts_with("redis://") || address.starts_with("rediss://") {
            return Ok(Self::Redis(address.to_owned()));
        }
        // The address may contain a password, so it is not printed.
        let supported = [
            #[cfg(feature = "inbox-sqlite")]
            "sqlite:",
            #[cfg(feature = "inbox-postgres")]
            "postgres:",
            #[cfg(feature = "inbox-redis")]
            "redis:",
        ];
        Err(ConfigError::new(format!(
            "the address of the inbox must start with one of: {}. This program was built without other stores",
            supported.join(", ")
        )))
    }

    async fn open(self) -> Result<OpenedStore, StoreError> {
        match self {
            #[cfg(feature = "inbox-postgres")]
            Self::Postgres(url) => {
                let store = PostgresStore::connect(&url).await?;
                store.migrate().await?;
                Ok(OpenedStore::new(store))
            }
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(file) => Ok(OpenedStore::new(super::SqliteStore::open(file)?)),
            #[cfg(feature = "inbox-redis")]
            address @ Self::Redis(_) => address.open_existing().await,
        }
    }

    /// Opens the store with one connection, and creates no tables.
    #[cfg(any(feature = "cli", feature = "inbox-redis"))]
    pub(crate) async fn open_existing(self) -> Result<OpenedStore, StoreError> {
        match self {
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(file) => {
                let builder = super::SqliteStore::builder().must_exist();
                Ok(OpenedStore::new(builder.open(file)?))
            }
            #[cfg(feature = "inbox-postgres")]
            Self::Postgres(url) => {
                let builder = PostgresStore::builder().max_connections(1);
                Ok(OpenedStore::new(builder.connect(&url).await?))
            }
            #[cfg(feature = "inbox-redis")]
            Self::Redis(url) => {
                let store = super::RedisStore::connect(url.as_str()).await?;
                Ok(OpenedStore::new(store))
            }
        }
    }
}

/// A store of any type.
#[derive(Clone)]
pub(crate) struct OpenedStore {
    store: Arc<dyn DynStore>,
}

impl OpenedStore {
    fn new(store: impl Store) -> Self {
        let store = Arc::new(store);
        Self { store }
    }
}

delegate_store!(OpenedStore, store);

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "inbox-sqlite")]
    use crate::inbox::store::{AcceptState, EventKey, Fingerprint, NewDelivery};

    #[test]
    fn an_address_of_another_database_is_refused_without_its_password() {
        let error = StoreAddress::parse("mysql://u:hunter2@h/d").err().unwrap();

        let text = error.to_string();
        assert!(text.contains("must start with one of"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[cfg(feature = "inbox-postgres")]
    #[test]
    fn a_postgres_store_has_enough_connections_for_a_worker_with_transactions_and_an_endpoint() {
        let store = PostgresStore::connect_lazy("postgres://inbox@localhost/app").unwrap();

        // Eight handlers, each with a transaction and a call of the inbox, and four requests.
        assert_eq!(store.pool().status().max_size, 2 * 8 + 4);
    }

    #[cfg(all(feature = "inbox-postgres", feature = "inbox-redis"))]
    #[test]
    fn each_scheme_chooses_its_store() {
        for address in ["postgres://h/d", "postgresql://h/d"] {
            let parsed = StoreAddress::parse(address);

            assert!(matches!(parsed, Ok(StoreAddress::Postgres(_))), "{address}");
        }
        for address in ["redis://h", "rediss://h"] {
            let parsed = StoreAddress::parse(address);

            assert!(matches!(parsed, Ok(StoreAddress::Redis(_))), "{address}");
        }
    }

    #[cfg(feature = "inbox-sqlite")]
    #[test]
    fn an_address_of_sqlite_in_the_form_of_a_url_is_refused() {
        for address in [
            "sqlite://inbox.db",
            "sqlite:///srv/inbox.db",
            "sqlite:inbox.db?mode=rwc",
        ] {
            let error = StoreAddress::parse(address).err().expect(address);

            let text = error.to_string();
            assert!(text.contains("such as `sqlite:inbox.db`"), "{text}");
        }
        for file in ["inbox.db", "/srv/inbox.db", "./a//b", r"\\?\C:\a.db"] {
            let parsed = StoreAddress::parse(&format!("sqlite:{file}"));

            assert!(matches!(parsed, Ok(StoreAddress::Sqlite(path)) if path == file));
        }
    }

    #[cfg(feature = "inbox-sqlite")]
    #[tokio::test]
    async fn the_store_of_an_address_works_as_the_store_itself() {
        let file = std::env::temp_dir().join(format!("from-env-{:016x}.db", fastrand::u64(..)));
        let address = StoreAddress::parse(&format!("sqlite:{}", file.display()));
        let store = address.unwrap().open().await.unwrap();

        let id = crate::webhooks::EventId::try_from("evt_1").unwrap();
        let fingerprint = Fingerprint::of(b"{}");
        let delivery = NewDelivery::new(EventKey::new("main", &id), b"{}", fingerprint);
        let accepted = Store::accept(&store, delivery).await.unwrap();
        assert_eq!(accepted, AcceptState::Accepted);

        let same = crate::inbox::SqliteStore::open(&file).unwrap();
        let backlog = Store::backlog(&same, "main").await.unwrap();
        assert_eq!(backlog.waiting, 1);
        for suffix in ["", "-wal", "-shm", "-reserve"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
    }
}
