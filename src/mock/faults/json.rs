//! The JSON form of a fault, for the control plane.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::fault::{Fault, FaultKind};
use super::header::response_header;

/// A [`Fault`] as JSON.
///
/// `status`, `close` and `garbage` exclude each other; `delay_ms` and `body` go alone or with one of them. Each member
/// has the meaning and the default of the method of the same name.
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
    after: Option<u64>,
    method: Option<String>,
    path: Option<String>,
}

/// When the connection ends.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Close {
    /// Before the request is applied.
    Before,
    /// After the request is applied, before the response.
    After,
    /// In the middle of the response body.
    MidBody,
    /// In the middle of the response body, by a reset.
    Reset,
}

impl FaultJson {
    /// Converts the JSON to a fault.
    ///
    /// # Errors
    ///
    /// A message for the test's author, if a member is invalid or the members do not go together.
    pub(in crate::mock) fn into_fault(self) -> Result<Fault, String> {
        let mut fault = self
            .without_modifiers()?
            .delayed_by(Duration::from_millis(self.delay_ms.unwrap_or(0)));
        match self.body {
            None => {}
            Some(Value::String(text)) => fault = fault.body(text),
            Some(json) => fault = fault.body(json.to_string()),
        }
        let retry_after = self.retry_after.map(retry_after_text).transpose()?;
        let retry_after = retry_after.map(|text| ("retry-after".to_owned(), text));
        for (name, value) in self.headers.into_iter().chain(retry_after) {
            response_header(&name, &value)?;
            fault = fault.header(name, value);
        }
        if let Some(times) = self.times {
            fault = fault.times(times);
        }
        if let Some(after) = self.after {
            fault = fault.after(after);
        }
        if let Some(method) = self.method {
            fault = fault.method(method);
        }
        if let Some(path) = self.path {
            fault = fault.path(path);
        }
        Ok(fault)
    }

    fn without_modifiers(&self) -> Result<Fault, String> {
        let kinds = [
            ("status", self.status.map(status_fault)),
            ("close", self.close.map(|close| Ok(close.fault()))),
            ("garbage", self.garbage.then(|| Ok(Fault::garbage()))),
        ];
        let names = kinds.each_ref().map(|(name, _)| *name);
        let mut given = kinds.into_iter().filter_map(|(_, fault)| fault);
        match (given.next(), given.next()) {
            (Some(fault), None) => fault,
            (Some(_), Some(_)) => Err(format!(
                "a fault can have only one of {}",
                quoted_and_list(&names)
            )),
            (None, _) if self.delay_ms.is_some() || self.body.is_some() => {
                Ok(Fault::delay(Duration::ZERO))
            }
            (None, _) => Err(format!(
                "a fault needs one of {}",
                quoted_and_list(&[&names[..], &["delay_ms", "body"]].concat())
            )),
        }
    }
}

impl Close {
    fn fault(self) -> Fault {
        match self {
            Self::Before => Fault::close_before(),
            Self::After => Fault::close_after(),
            Self::MidBody => Fault::cut_body(),
            Self::Reset => Fault::reset_body(),
        }
    }
}

fn status_fault(status: u16) -> Result<Fault, String> {
    if (200..=999).contains(&status) {
        Ok(Fault::status(status))
    } else {
        Err(format!(
            "`status` must be between 200 and 999, not {status}"
        ))
    }
}

/// Returns names in backticks: "`a`, `b` and `c`".
fn quoted_and_list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

fn retry_after_text(value: Value) -> Result<String, String> {
    match value {
        Value::Number(seconds) if seconds.is_u64() => Ok(seconds.to_string()),
        Value::String(date) => Ok(date),
        other => Err(format!(
            "`retry_after` must be whole seconds or the text of a date, not {other}"
        )),
    }
}

/// Returns a fault in the form that [`FaultJson`] reads, with the counts that are left.
pub(in crate::mock) fn fault_json(fault: &Fault) -> Value {
    let mut json = Map::new();
    let mut add = |name: &str, value: Value| drop(json.insert(name.to_owned(), value));
    match fault.kind {
        FaultKind::Status(status) => add("status", status.into()),
        FaultKind::CloseBefore => add("close", "before".into()),
        FaultKind::CloseAfter => add("close", "after".into()),
        FaultKind::CutBody => add("close", "mid_body".into()),
        FaultKind::ResetBody => add("close", "reset".into()),
        FaultKind::Garbage => add("garbage", true.into()),
        FaultKind::AlteredResponse => {}
    }
    let delay = u64::try_from(fault.delay.as_millis()).unwrap_or(u64::MAX);
    if delay > 0 || (fault.kind == FaultKind::AlteredResponse && fault.body.is_none()) {
        add("delay_ms", delay.into());
    }
    if let Some(body) = &fault.body {
        add("body", String::from_utf8_lossy(body).into());
    }
    let headers = fault.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        (name.as_str().to_owned(), Value::from(value))
    });
    let headers: Map<String, Value> = headers.collect();
    if !headers.is_empty() {
        add("headers", headers.into());
    }
    if fault.after > 0 {
        add("after", fault.after.into());
    }
    if let Some(times) = fault.times {
        add("times", times.into());
    }
    if let Some(method) = &fault.method {
        add("method", method.as_str().into());
    }
    if let Some(path) = &fault.path {
        add("path", path.as_str().into());
    }
    json.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fault_is_shown_in_the_form_that_adds_it() {
        for json in [
            json!({
                "status": 503, "headers": {"retry-after": "1"}, "times": 2, "after": 1, "method": "POST",
                "path": "/a*",
            }),
            json!({"close": "before"}),
            json!({"close": "after", "delay_ms": 5}),
            json!({"close": "mid_body"}),
            json!({"close": "reset"}),
            json!({"garbage": true}),
            json!({"delay_ms": 0}),
            json!({"body": "<html>"}),
        ] {
            let parsed: FaultJson = serde_json::from_value(json.clone()).unwrap();

            assert_eq!(fault_json(&parsed.into_fault().unwrap()), json);
        }
    }

    #[test]
    fn the_error_for_members_that_do_not_go_together_lists_those_that_do() {
        for (json, message) in [
            (
                json!({"times": 1}),
                "a fault needs one of `status`, `close`, `garbage`, `delay_ms` and `body`",
            ),
            (
                json!({"status": 42, "garbage": true}),
                "a fault can have only one of `status`, `close` and `garbage`",
            ),
            (
                json!({"status": 42}),
                "`status` must be between 200 and 999, not 42",
            ),
        ] {
            let fault: FaultJson = serde_json::from_value(json).unwrap();

            assert_eq!(fault.into_fault().unwrap_err(), message);
        }
    }
}
