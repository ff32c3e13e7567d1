//! A fault as the control plane is told of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Fault, answerable};

/// Members that say what goes wrong (`status`, `close`, `garbage`; `delay_ms` and `body` alone or with another), when,
/// and how often. Whatever is left out is as in [`Fault`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mock) struct FaultJson {
    status: Option<u16>,
    close: Option<Close>,
    #[serde(default)]
    garbage: bool,
    delay_ms: Option<u64>,
    body: Option<Value>,
    retry_after: Option<Value>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    times: Option<u64>,
    method: Option<String>,
    path: Option<String>,
}

/// Where the connection ends.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Close {
    /// Before the request is applied.
    Before,
    /// After it is applied, before the answer.
    After,
    /// In the middle of the answer's body.
    MidBody,
    /// In the middle of the answer's body, by a reset.
    Reset,
}

impl FaultJson {
    /// The fault, or why it cannot be one.
    pub(in crate::mock) fn fault(self) -> Result<Fault, String> {
        let mut fault = match (self.status, self.close, self.garbage) {
            (Some(status), None, false) if (200..=999).contains(&status) => Fault::status(status),
            (Some(status), None, false) => {
                return Err(format!("`status` is between 200 and 999, not {status}"));
            }
            (None, Some(Close::Before), false) => Fault::close_before(),
            (None, Some(Close::After), false) => Fault::close_after(),
            (None, Some(Close::MidBody), false) => Fault::cut_body(),
            (None, Some(Close::Reset), false) => Fault::reset_body(),
            (None, None, true) => Fault::garbage(),
            (None, None, false) if self.delay_ms.is_some() || self.body.is_some() => {
                Fault::delay(Duration::ZERO)
            }
            (None, None, false) => {
                return Err(
                    "a fault has one of `status`, `close`, `garbage`, `delay_ms` and `body`".into(),
                );
            }
            _ => return Err("a fault has only one of `status`, `close` and `garbage`".into()),
        };

        fault = fault.late_by(Duration::from_millis(self.delay_ms.unwrap_or(0)));
        match self.body {
            None => {}
            Some(Value::String(text)) => fault = fault.body(text),
            Some(json) => fault = fault.body(json.to_string()),
        }
        let retry_after = match self.retry_after {
            None => None,
            Some(Value::Number(seconds)) if seconds.is_u64() => Some(seconds.to_string()),
            Some(Value::String(date)) => Some(date),
            Some(other) => {
                return Err(format!(
                    "`retry_after` is seconds or the text of a date, not {other}"
                ));
            }
        };
        let retry_after = retry_after.map(|after| ("retry-after".to_owned(), after));
        for (name, value) in self.headers.into_iter().chain(retry_after) {
            answerable(&name, &value)?;
            fault = fault.header(name, value);
        }
        if let Some(times) = self.times {
            fault = fault.times(times);
        }
        if let Some(method) = self.method {
            fault = fault.method(method);
        }
        if let Some(path) = self.path {
            fault = fault.path(path);
        }
        Ok(fault)
    }
}
