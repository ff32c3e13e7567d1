use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::{Config, NoTls};

use crate::inbox::error::StoreError;

const MAX_CONNECTIONS: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Creates a pool without TLS. Connects to nothing.
pub(super) fn pool(url: &str) -> Result<Pool, StoreError> {
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
    Pool::builder(Manager::new(config, NoTls))
        .max_size(MAX_CONNECTIONS)
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
        let error = pool(url).map(drop).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unusable);
        error.source().unwrap().to_string()
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
