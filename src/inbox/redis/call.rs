use std::borrow::Cow;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind};

use super::keys::Keys;
use super::scripts::Script;
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
