//! Calls of the Lua scripts, and what the errors of Redis mean for an inbox.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind};

use super::keys::Keys;
use crate::inbox::error::StoreError;
use crate::webhooks::EventId;

/// A longer duration counts as this one: 100 years, in microseconds. Lua counts exactly up to three times as
/// far from now.
const LONGEST_MICROS: u128 = 100 * 365 * 24 * 3_600 * 1_000_000;

/// One call of a script.
pub(super) struct Call<'a> {
    script: &'a Script,
    keys: Keys,
    id: Option<&'a EventId>,
    args: Vec<Cow<'a, [u8]>>,
}

impl<'a> Call<'a> {
    pub(super) fn new(script: &'a Script, keys: Keys, id: Option<&'a EventId>) -> Self {
        Self {
            script,
            keys,
            id,
            args: Vec::new(),
        }
    }

    pub(super) fn bytes(mut self, bytes: &'a [u8]) -> Self {
        self.args.push(bytes.into());
        self
    }

    pub(super) fn duration(self, duration: Duration) -> Self {
        // Rounded up: a lease is never shorter than asked for.
        let micros = duration.as_nanos().div_ceil(1_000).min(LONGEST_MICROS);
        self.text(micros.to_string())
    }

    pub(super) fn limit(self, limit: usize) -> Self {
        self.text(i32::try_from(limit).unwrap_or(i32::MAX).to_string())
    }

    fn text(mut self, text: String) -> Self {
        self.args.push(text.into_bytes().into());
        self
    }

    /// Runs the script. If the connection was dropped, which a server and what lies before it do to idle
    /// connections, runs it once more on a new one.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<T> {
        match self.run_once(connection, false).await {
            Err(error) if error.is_connection_dropped() => self.run_once(connection, true).await,
            result => result,
        }
    }

    async fn run_once<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        is_repeat: bool,
    ) -> RedisResult<T> {
        let by_hash = self.command("EVALSHA", &self.script.hash, is_repeat);
        match by_hash.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let in_full = self.command("EVAL", self.script.code, is_repeat);
                in_full.query_async(connection).await
            }
            result => result,
        }
    }

    fn command(&self, name: &str, script: &str, is_repeat: bool) -> Cmd {
        let mut keys: Vec<_> = self.keys.of_endpoint().collect();
        keys.extend(self.id.map(|id| self.keys.of_event(id)));
        let mut command = redis::cmd(name);
        command.arg(script).arg(keys.len()).arg(keys);
        command.arg(self.id.map_or("", EventId::as_str));
        command.arg(u8::from(is_repeat));
        for arg in &self.args {
            command.arg(&**arg);
        }
        command
    }
}

/// A Lua script, and the hash by which a server knows it.
pub(super) struct Script {
    pub(super) code: &'static str,
    pub(super) hash: String,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("scripts/entry.lua"), include_str!($file)))
        });)+
    };
}

scripts! {
    ACCEPT = "scripts/accept.lua";
    BACKLOG = "scripts/backlog.lua";
    CLAIM = "scripts/claim.lua";
    COMPLETE = "scripts/complete.lua";
    DISCARD = "scripts/discard.lua";
    EXTEND = "scripts/extend.lua";
    PARK = "scripts/park.lua";
    PARKED = "scripts/parked.lua";
    RELEASE = "scripts/release.lua";
    REPLAY = "scripts/replay.lua";
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
