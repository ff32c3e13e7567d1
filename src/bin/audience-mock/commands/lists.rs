//! The commands that list what happened.

use audience::Timestamp;
use http::Method;
use serde_json::Value;

use super::Target;
use super::output::Output;
use crate::table::Table;

/// Lists the events.
pub(super) async fn events(target: &Target) -> Result<(), String> {
    list(target, "events", "there are no events", |events| {
        let mut table = Table::new(&["id", "type", "created", "to"]);
        for event in events {
            let to = event.pointer("/data/to").unwrap_or(&Value::Null);
            table.row([
                text(&event["id"]),
                text(&event["type"]),
                time(&event["created_at"]),
                text(to),
            ]);
        }
        table
    })
    .await
}

/// Lists the delivery attempts.
pub(super) async fn attempts(target: &Target) -> Result<(), String> {
    list(target, "attempts", "there are no attempts", |attempts| {
        attempts_table(attempts)
    })
    .await
}

/// Returns a table of delivery attempts.
pub(super) fn attempts_table<'a>(attempts: impl IntoIterator<Item = &'a Value>) -> Table {
    let mut table = Table::new(&[
        "event", "attempt", "at", "result", "next", "fault", "endpoint",
    ]);
    for attempt in attempts {
        let result = match &attempt["status"] {
            Value::Null => text(&attempt["error"]),
            status => text(status),
        };
        table.row([
            text(&attempt["event_id"]),
            text(&attempt["attempt"]),
            time(&attempt["at"]),
            result,
            time(&attempt["next_at"]),
            text(&attempt["fault"]),
            text(&attempt["endpoint"]),
        ]);
    }
    table
}

/// Lists the requests.
pub(super) async fn requests(target: &Target) -> Result<(), String> {
    list(target, "requests", "there are no requests", |requests| {
        let mut table = Table::new(&["method", "path", "status", "reason"]);
        for request in requests {
            let path = match request["query"].as_str() {
                None => text(&request["path"]),
                Some(query) => format!("{}?{query}", text(&request["path"])),
            };
            table.row([
                text(&request["method"]),
                path,
                text(&request["status"]),
                text(&request["reason"]),
            ]);
        }
        table
    })
    .await
}

async fn list(
    target: &Target,
    path: &str,
    empty: &str,
    table: impl FnOnce(&[Value]) -> Table,
) -> Result<(), String> {
    let response = target.url.call(Method::GET, path, None).await?;
    Output::new(target.json).result(&response, |response| {
        match response["data"].as_array().map(Vec::as_slice) {
            None | Some([]) => format!("{empty}\n"),
            Some(data) => table(data).text(),
        }
    })
}

/// Returns a JSON value as a cell: text without quotation marks, and nothing for `null`.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Returns Unix seconds as a readable time.
fn time(value: &Value) -> String {
    value.as_i64().map_or_else(String::new, |seconds| {
        Timestamp::from_unix(seconds).to_string()
    })
}
