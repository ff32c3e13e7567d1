use std::fmt;

/// Where a call failed, and so who can fix it.
///
/// # Example: what to log and what to report
///
/// ```
/// # #[cfg(feature = "mock")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::ErrorKind;
///
/// let error = contacts.create_batch(Vec::<String>::new()).await.unwrap_err();
///
/// match error.kind() {
///     ErrorKind::Input | ErrorKind::Config => println!("fix the program: {error}"),
///     ErrorKind::Api => println!("the service refused: {:?}", error.code()),
///     _ if error.is_retryable() => println!("try again later: {error}"),
///     _ => println!("report a fault: {error}"),
/// }
/// # assert_eq!(error.kind(), ErrorKind::Input);
/// # }
/// # #[cfg(not(feature = "mock"))] fn main() {}
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The service responded with a status other than 2xx, or an earlier 429 still holds back the client
    /// (see [`RetryPolicy`](crate::RetryPolicy#retry-after)).
    ///
    /// [`Error::api`](super::Error::api) has the response. What to do depends on its
    /// [code](super::ApiError::code).
    Api,
    /// The client cannot be built: the base URL, the key or the HTTP client is invalid.
    ///
    /// Fix the configuration. Nothing was sent.
    Config,
    /// The client could not connect: the host name was not found, the connection was refused, or the
    /// TLS handshake failed.
    ///
    /// This attempt sent nothing; [`Error::outcome`](super::Error::outcome) covers earlier ones too. Check
    /// the base URL, the network, the proxy, and the error's [`source`](std::error::Error::source).
    Connect,
    /// The service responded with 2xx, but the body cannot be used: it is not the expected JSON, does not
    /// decompress, or exceeds the [`body_limit`](crate::ClientBuilder::body_limit).
    ///
    /// The message says which, with the JSON path if there is one, and [`Error::body`](super::Error::body) has
    /// the body if it was read. A write was most likely applied.
    Decode,
    /// The request cannot be sent because an argument is invalid: for example an address that would
    /// reach another endpoint, an empty batch, a number that JSON cannot represent, or a rule that makes
    /// the URL longer than 65,534 bytes.
    ///
    /// Fix the argument. Nothing was sent.
    Input,
    /// The service repeated a cursor, so listing stopped to avoid an endless loop; or it sent a cursor
    /// that is too long for a URL.
    ///
    /// All items returned before the error are valid, but contacts on repeated pages may have been
    /// returned twice.
    Pagination,
    /// An attempt took longer than its timeout, or the whole call took longer than its deadline.
    ///
    /// Unless [`Error::outcome`](super::Error::outcome) says otherwise, a write may have been applied.
    Timeout,
    /// The connection broke, the response was not valid HTTP, or a client passed to
    /// [`http_client`](crate::ClientBuilder::http_client) followed a redirect.
    ///
    /// A write may have been applied.
    Transport,
}

/// Writes the kind as one lowercase word, such as `timeout`, for logs and metrics.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Api => "api",
            Self::Config => "config",
            Self::Connect => "connect",
            Self::Decode => "decode",
            Self::Input => "input",
            Self::Pagination => "pagination",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_written_as_one_lowercase_word() {
        assert_eq!(ErrorKind::Timeout.to_string(), "timeout");
        assert_eq!(format!("{:>7}|", ErrorKind::Api), "    api|");
    }
}
