//! The settings of a service.

use std::fmt;

use super::dialect::Dialect;
use super::key::{DEFAULT_FULL_KEY, DEFAULT_SENDING_KEY};

/// The settings of a service.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The key for every endpoint. Default: [`DEFAULT_FULL_KEY`].
    pub(crate) full_key: String,
    /// The key for `POST /emails` only. Default: [`DEFAULT_SENDING_KEY`].
    pub(crate) sending_key: String,
    /// How many contacts may be stored (section 8). Default: no ceiling.
    pub(crate) ceiling: Option<u64>,
    /// The header that holds the bare key. Default: `None`, which means `Authorization: Bearer <key>`.
    pub(crate) key_header: Option<String>,
    /// The choices that the document leaves open.
    pub(crate) dialect: Dialect,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            full_key: DEFAULT_FULL_KEY.to_owned(),
            sending_key: DEFAULT_SENDING_KEY.to_owned(),
            ceiling: None,
            key_header: None,
            dialect: Dialect::default(),
        }
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
