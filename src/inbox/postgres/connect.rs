use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::{Config, NoTls};

use crate::inbox::error::StoreError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How much later than the store the database gives up a statement. It only has to if the request to cancel the
/// statement is lost.
const GRACE: Duration = Duration::from_secs(1);

/// Reads an address, and sets what it leaves open.
pub(super) fn config(url: &str) -> Result<Config, StoreError> {
    // The driver's error may quote a part of the address, and so of the password.
    let mut config: Config = url.parse().map_err(|_| StoreError::unusable(INVALID_URL))?;
    let is_tls_required = config.get_ssl_mode() == SslMode::Require
        || config.get_ssl_negotiation() == SslNegotiation::Direct;
    if is_tls_required {
        return Err(StoreError::unusable(TLS_REQUIRED));
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("audience inbox");
    }
    config.keepalives_idle(config.get_keepalives_idle().min(KEEPALIVE));
    Ok(config)
}

/// Lets the database give up its statements by itself, unless the address says when.
pub(super) fn limit_statements(mut config: Config, timeout: Duration) -> Config {
    let milliseconds = timeout.saturating_add(GRACE).as_millis();
    let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    let mut options = config.get_options().unwrap_or_default().to_owned();
    for name in ["statement_timeout", "lock_timeout"] {
        if !options.contains(name) {
            options += &format!(" -c {name}={milliseconds}");
        }
    }
    config.options(options.trim_start());
    config
}

/// Creates a pool without TLS. Connects to nothing.
pub(super) fn pool(config: Config, max_connections: usize) -> Result<Pool, StoreError> {
    Pool::builder(Manager::new(config, NoTls))
        .max_size(max_connections)
        .build()
        .map_err(StoreError::unusable)
}

const INVALID_URL: &str = "the address of the database is invalid: it must be \
    postgres://user:password@host:port/database with special characters of the password percent-encoded, and \
    without options that tokio-postgres does not know";

const TLS_REQUIRED: &str = "the address of the database requires TLS: build a deadpool_postgres::Pool with a TLS \
    connector, and use PostgresStore::new";

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::inbox::error::StoreErrorKind;

    fn refusal(url: &str) -> String {
        let error = config(url).map(drop).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unusable);
        error.source().unwrap().to_string()
    }

    #[test]
    fn the_database_gives_up_a_statement_soon_after_the_store_unless_the_address_says_otherwise() {
        let options = |url: &str| {
            let limited = limit_statements(config(url).unwrap(), Duration::from_secs(2));
            limited.get_options().unwrap().to_owned()
        };

        assert_eq!(
            options("postgres://localhost/db"),
            "-c statement_timeout=3000 -c lock_timeout=3000"
        );
        assert_eq!(
            options("postgres://localhost/db?options=-cstatement_timeout%3D7s"),
            "-cstatement_timeout=7s -c lock_timeout=3000"
        );
    }

    #[test]
    fn an_address_that_requires_tls_is_refused_with_what_to_do() {
        for option in ["sslmode=require", "sslmode=require&sslnegotiation=direct"] {
            let text = refusal(&format!("postgres://inbox@localhost/db?{option}"));

            assert!(text.contains("PostgresStore::new"), "{text}");
        }
    }

    #[test]
    fn the_error_of_an_invalid_address_holds_nothing_of_its_password() {
        for url in [
            "postgres://inbox:hunter2@localhost:hunter2/db",
            "postgres://localhost/db?hunter2=1",
            "host=localhost port=hunter2",
            "hunter2",
        ] {
            let text = refusal(url);

            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains("percent-encoded"), "{text}");
        }
    }
}
