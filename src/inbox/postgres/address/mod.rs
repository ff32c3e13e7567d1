//! Reads the address of a database, and opens connections to it.

use std::collections::HashSet;
use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool};
use percent_encoding::percent_decode_str;
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, Config, NoTls};

#[cfg(feature = "inbox-postgres-rustls")]
use super::tls;
use crate::inbox::error::StoreError;

/// The longest that one of several hosts, or of several addresses of a host, may take before the next one is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How much later than the store the database gives up a statement. It only has to if the request to cancel the
/// statement is lost.
const GRACE: Duration = Duration::from_secs(1);

/// The address of a database, with the options for TLS.
pub(super) struct Address {
    config: Config,
    tls: Tls,
    mode: TlsMode,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let (rest, options) = take_tls_options(text)?;
        // The driver's error may quote a part of the address, and so of the password.
        let mut config: Config = rest
            .parse()
            .map_err(|_| StoreError::unusable(INVALID_ADDRESS))?;
        let is_direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        let tls = Tls::of_options(&options, is_direct)?;
        config.ssl_mode(options.mode().of_driver());
        if config.get_application_name().is_none() {
            config.application_name("audience inbox");
        }
        config.keepalives_idle(config.get_keepalives_idle().min(KEEPALIVE));
        let mode = options.mode();
        Ok(Self { config, tls, mode })
    }

    /// # Errors
    ///
    /// `Unusable` if connections may be made to a server whose certificate is not verified.
    pub(super) fn require_verified_tls(&self) -> Result<(), StoreError> {
        match self.mode {
            TlsMode::VerifyCa | TlsMode::VerifyFull => Ok(()),
            TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => Err(StoreError::unusable(
                "the program requires verified TLS: the address of the database needs `sslmode=verify-full` or `verify-ca`",
            )),
        }
    }

    /// Returns a pool that has no connection yet, and its TLS. The database gives up a statement of these connections
    /// some time after this timeout.
    pub(super) fn pool(
        mut self,
        max_connections: usize,
        timeout: Duration,
    ) -> Result<(Pool, Tls), StoreError> {
        if self.config.get_connect_timeout().is_none() {
            // Hosts that do not respond must leave time for the last one.
            let hosts = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX);
            let each = timeout / hosts.saturating_add(1);
            self.config.connect_timeout(CONNECT_TIMEOUT.min(each));
        }
        let limited = limit_statements(self.config.clone(), timeout);
        let connector = Connector {
            unlimited: self.config,
            tls: self.tls.clone(),
        };
        let manager = Manager::from_connect(limited, connector, ManagerConfig::default());
        let pool = Pool::builder(manager).max_size(max_connections).build();
        Ok((pool.map_err(StoreError::unusable)?, self.tls))
    }
}

/// Sets when the database gives up a statement by itself, unless the address does.
fn limit_statements(mut config: Config, timeout: Duration) -> Config {
    let milliseconds = timeout.saturating_add(GRACE).as_millis();
    let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    let mut options = config.get_options().unwrap_or_default().to_owned();
    for name in ["statement_timeout", "lock_timeout"] {
        if !sets(&options, name) {
            options += &format!(" -c {name}={milliseconds}");
        }
    }
    config.options(options.trim_start());
    config
}

/// Returns whether these options set a parameter: as `-c name=value`, `-cname=value` or `--name=value`. Postgres takes
/// `-` for `_`, and ignores case.
fn sets(options: &str, parameter: &str) -> bool {
    options.split_whitespace().any(|word| {
        let word = word
            .strip_prefix("-c")
            .or_else(|| word.strip_prefix("--"))
            .unwrap_or(word);
        word.split_once('=')
            .is_some_and(|(name, _)| name.replace('-', "_").eq_ignore_ascii_case(parameter))
    })
}

/// How connections and requests to cancel a statement are encrypted.
#[derive(Clone)]
pub(super) enum Tls {
    None,
    #[cfg(feature = "inbox-postgres-rustls")]
    Rustls(tokio_postgres_rustls::MakeRustlsConnect),
}

type Connected = (Client, JoinHandle<()>);

impl Tls {
    #[cfg(feature = "inbox-postgres-rustls")]
    fn of_options(options: &TlsOptions, is_direct: bool) -> Result<Self, StoreError> {
        Ok(match tls::connector(options, is_direct)? {
            Some(connector) => Self::Rustls(connector),
            None => Self::None,
        })
    }

    #[cfg(not(feature = "inbox-postgres-rustls"))]
    fn of_options(options: &TlsOptions, is_direct: bool) -> Result<Self, StoreError> {
        let needs_none = matches!(options.mode(), TlsMode::Disable | TlsMode::Prefer);
        let has_files = [&options.root, &options.certificate, &options.key]
            .iter()
            .any(|file| file.is_some());
        if needs_none && !has_files && !is_direct {
            return Ok(Self::None);
        }
        Err(StoreError::unusable(TLS_REQUIRED))
    }

    async fn connect(&self, config: &Config) -> Result<Connected, tokio_postgres::Error> {
        match self {
            Self::None => {
                let (client, connection) = config.connect(NoTls).await?;
                Ok((client, tokio::spawn(async move { drop(connection.await) })))
            }
            #[cfg(feature = "inbox-postgres-rustls")]
            Self::Rustls(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                Ok((client, tokio::spawn(async move { drop(connection.await) })))
            }
        }
    }

    pub(super) async fn cancel(&self, token: &CancelToken) -> Result<(), tokio_postgres::Error> {
        match self {
            Self::None => token.cancel_query(NoTls).await,
            #[cfg(feature = "inbox-postgres-rustls")]
            Self::Rustls(tls) => token.cancel_query(tls.clone()).await,
        }
    }
}

/// Returns whether a pooler may have refused the `options` of a connection, as `PgBouncer` and RDS Proxy do.
fn refuses_options(code: &SqlState) -> bool {
    [
        SqlState::PROTOCOL_VIOLATION,
        SqlState::FEATURE_NOT_SUPPORTED,
    ]
    .contains(code)
}

struct Connector {
    /// The settings without limits for statements.
    unlimited: Config,
    tls: Tls,
}

impl Connect for Connector {
    fn connect(
        &self,
        limited: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<Connected, tokio_postgres::Error>> + Send + '_>> {
        let limited = limited.clone();
        Box::pin(async move {
            match self.tls.connect(&limited).await {
                // Some poolers refuse a connection that sets them. The store's own timeout still holds.
                Err(error) if error.code().is_some_and(refuses_options) => {
                    self.tls.connect(&self.unlimited).await
                }
                result => result,
            }
        })
    }
}

/// The options of an address that the driver does not understand, or understands differently than libpq.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TlsOptions {
    mode: Option<TlsMode>,
    /// A file of certificates, or `system`.
    pub(super) root: Option<String>,
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
}

/// How a connection is encrypted, and how the certificate of the server is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl TlsMode {
    fn of_driver(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => SslMode::Require,
        }
    }
}

impl TlsOptions {
    pub(super) fn mode(&self) -> TlsMode {
        self.mode.unwrap_or(match self.root.as_deref() {
            Some("system") => TlsMode::VerifyFull,
            _ => TlsMode::Prefer,
        })
    }

    /// Takes an option if it is about TLS. Returns whether it is.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, StoreError> {
        match name {
            "sslmode" => {
                self.mode = Some(match value {
                    "disable" => TlsMode::Disable,
                    "prefer" => TlsMode::Prefer,
                    "require" => TlsMode::Require,
                    "verify-ca" => TlsMode::VerifyCa,
                    "verify-full" => TlsMode::VerifyFull,
                    _ => return Err(StoreError::unusable(INVALID_MODE)),
                });
            }
            "sslrootcert" => self.root = Some(value.to_owned()),
            "sslcert" => self.certificate = Some(value.to_owned()),
            "sslkey" => self.key = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The options that [`TlsOptions`] reads.
const TLS_OPTIONS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

/// The options that the driver reads.
const DRIVER_OPTIONS: [&str; 18] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// Returns the address without its options for TLS, and these options.
fn take_tls_options(address: &str) -> Result<(String, TlsOptions), StoreError> {
    let is_url = ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| address.starts_with(scheme));
    let options = if is_url {
        url_options(address)
    } else {
        word_options(address)
    };
    let (mut rest, options) = options.ok_or_else(|| StoreError::unusable(INVALID_ADDRESS))?;
    let mut tls = TlsOptions::default();
    let mut separator = if is_url { '?' } else { ' ' };
    let mut seen = HashSet::new();
    for ParsedOption { text, name, value } in options {
        // The last one would win, so that `sslmode=disable` at the end turns off what is demanded before it.
        if !seen.insert(name.clone()) && TLS_OPTIONS.contains(&name.as_str()) {
            return Err(StoreError::unusable(format!(
                "the address of the database has the option `{name}` twice: remove one of them"
            )));
        }
        if tls.take(&name, &value)? {
            continue;
        }
        if !DRIVER_OPTIONS.contains(&name.as_str()) {
            return Err(unknown_option(address, &name));
        }
        rest.push(separator);
        rest += text;
        separator = if is_url { '&' } else { ' ' };
    }
    Ok((rest, tls))
}

struct ParsedOption<'a> {
    text: &'a str,
    name: String,
    value: String,
}

/// Splits a URL before its query, and reads the query.
fn url_options(url: &str) -> Option<(String, Vec<ParsedOption<'_>>)> {
    // A password may contain a question mark.
    let host = url.find('@').map_or(0, |at| at + 1);
    let Some(query) = url[host..].find('?').map(|at| host + at) else {
        return Some((url.to_owned(), Vec::new()));
    };
    let decode = |text| Some(percent_decode_str(text).decode_utf8().ok()?.into_owned());
    let pairs = url[query + 1..].split('&').filter(|pair| !pair.is_empty());
    let options = pairs.map(|text| {
        let (name, value) = text.split_once('=')?;
        Some(ParsedOption {
            text,
            name: decode(name)?,
            value: decode(value)?,
        })
    });
    Some((url[..query].to_owned(), options.collect::<Option<_>>()?))
}

/// Reads the other form of an address, such as `host=localhost password='a b'`.
fn word_options(address: &str) -> Option<(String, Vec<ParsedOption<'_>>)> {
    let mut options = Vec::new();
    let mut rest = address.trim();
    while !rest.is_empty() {
        let start = rest;
        let (name, value) = rest.split_once('=')?;
        let (value, after) = word_value(value.trim_start())?;
        options.push(ParsedOption {
            text: &start[..start.len() - after.len()],
            name: name.trim_end().to_owned(),
            value,
        });
        rest = after.trim_start();
    }
    Some((String::new(), options))
}

/// Reads a value, which may be quoted and have escapes. Returns the text after it, too.
fn word_value(text: &str) -> Option<(String, &str)> {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.push(characters.next()?.1),
            '\'' if is_quoted => return Some((value, &text[at + 1..])),
            _ if !is_quoted && character.is_whitespace() => return Some((value, &text[at..])),
            _ => value.push(character),
        }
    }
    (!is_quoted).then_some((value, ""))
}

/// Names an option, unless it may be a part of a password that is not percent-encoded.
fn unknown_option(address: &str, name: &str) -> StoreError {
    let is_word = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-'));
    if !is_word || address.matches('@').count() > 1 {
        return StoreError::unusable(INVALID_ADDRESS);
    }
    StoreError::unusable(format!(
        "the address of the database has the option `{name}`, which is not supported: remove it"
    ))
}

const INVALID_ADDRESS: &str = "the address of the database is invalid: it must be \
    postgres://user:password@host:port/database with special characters of the password percent-encoded, and \
    without options that tokio-postgres does not know";

const INVALID_MODE: &str = "the address of the database has an invalid `sslmode`: it must be disable, prefer, require, \
    verify-ca or verify-full";

#[cfg(not(feature = "inbox-postgres-rustls"))]
const TLS_REQUIRED: &str = "the address of the database requires TLS: turn on the feature `inbox-postgres-rustls`, or \
    build a deadpool_postgres::Pool with a TLS connector and use PostgresStore::new";

#[cfg(test)]
mod tests;
