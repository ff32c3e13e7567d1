//! The settings of a service.

use std::fmt;

use super::dialect::Dialect;
use super::key::{DEFAULT_FULL_KEY, DEFAULT_SENDING_KEY};

/// The settings of a service.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// The key for every endpoint. Default: `None`, which means [`DEFAULT_FULL_KEY`].
    pub(crate) full_key: Option<String>,
    /// The key for `POST /emails` only. Default: `None`, which means [`DEFAULT_SENDING_KEY`].
    pub(crate) sending_key: Option<String>,
    /// How many contacts may be stored (section 8). Default: no ceiling.
    pub(crate) ceiling: Option<u64>,
    /// The header that holds the bare key. Default: `None`, which means `Authorization: Bearer <key>`.
    pub(crate) key_header: Option<String>,
    /// The choices that the document leaves open. Default: `None`, which means [`Dialect::default`].
    pub(crate) dialect: Option<Dialect>,
}

impl Settings {
    /// Returns the key for every endpoint.
    pub(crate) fn full_key(&self) -> &str {
        self.full_key.as_deref().unwrap_or(DEFAULT_FULL_KEY)
    }

    /// Returns the key for `POST /emails` only.
    pub(crate) fn sending_key(&self) -> &str {
        self.sending_key.as_deref().unwrap_or(DEFAULT_SENDING_KEY)
    }
}

/// Leaves out the keys. A test may use a real one, so they are never printed.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("ceiling", &self.ceiling)
            .field("key_header", &self.key_header)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}
