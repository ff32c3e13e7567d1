use redis::{ErrorKind, RedisError};

use crate::inbox::error::StoreError;

/// A server of a cluster was addressed as if it were alone.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server is part of a cluster: give `RedisStore::new` a cluster connection of the redis crate"
)]
struct NeedsClusterConnection(#[source] RedisError);

/// Tells by an error of the driver whether a later call may succeed.
pub(super) fn store_error(error: RedisError) -> StoreError {
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
        _ => StoreError::unavailable(error),
    }
}

/// Returns whether the server does not tell about itself, because it does not know the command or the user
/// may not run it.
pub(super) fn is_refused_command(error: &RedisError) -> bool {
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

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use super::*;
    use crate::inbox::error::StoreErrorKind::{self, Full, Unavailable, Unusable};

    /// The error that a client makes of this response.
    fn response(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn a_response_of_the_server_tells_whether_a_later_call_may_succeed() {
        let cases: [(&str, StoreErrorKind); 24] = [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Full,
            ),
            (
                "ERR Error running script (call to f_0a1b): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.",
                Full,
            ),
            (
                "ERR Error running script (call to f_0a1b): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica.",
                Unavailable,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                Unavailable,
            ),
            ("CLUSTERDOWN The cluster is down", Unavailable),
            ("CLUSTERDOWN Hash slot not served", Unavailable),
            (
                "READONLY You can't write against a read only replica.",
                Unavailable,
            ),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Unavailable,
            ),
            ("MASTERDOWN Link with MASTER is down", Unavailable),
            ("BUSY Redis is busy running a script.", Unavailable),
            (
                "MISCONF Redis is configured to save RDB snapshots",
                Unavailable,
            ),
            ("NOREPLICAS Not enough good replicas to write.", Unavailable),
            ("NOSCRIPT No matching script.", Unavailable),
            ("ASK 3999 127.0.0.1:6381", Unavailable),
            ("ERR max number of clients reached", Unavailable),
            ("SOMETHINGNEW that no client knows", Unavailable),
            ("NOAUTH Authentication required.", Unusable),
            ("WRONGPASS invalid username-password pair", Unusable),
            ("NOPERM this user has no permissions", Unusable),
            ("ERR unknown command 'EVALSHA'", Unusable),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                Unusable,
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                Unusable,
            ),
            ("DENIED Redis is running in protected mode", Unusable),
            ("MOVED 3999 127.0.0.1:6381", Unusable),
        ];
        for (line, kind) in cases {
            assert_eq!(store_error(response(line)).kind(), kind, "{line}");
        }
    }

    #[test]
    fn a_connection_that_fails_may_succeed_later() {
        for kind in [
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::TimedOut,
            io::ErrorKind::UnexpectedEof,
        ] {
            let error = RedisError::from(io::Error::from(kind));

            assert_eq!(store_error(error).kind(), Unavailable, "{kind}");
        }
    }

    #[test]
    fn a_server_of_a_cluster_is_told_with_what_to_use_instead() {
        let error = store_error(response("MOVED 3999 127.0.0.1:6381"));

        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("cluster connection"), "{cause}");
    }
}
