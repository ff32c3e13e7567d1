//! The mock that a command controls, and how the command prints its responses.

use std::io::{ErrorKind, Write as _};
use std::str::FromStr;

use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value};

use crate::Timestamp;
use crate::mock::http::{self as client, HttpUrl, error_chain};
use crate::mock::text::printable;

/// The mock that a command controls, and how it prints the response.
#[derive(Args)]
pub(super) struct Target {
    /// Control the mock at this URL
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:4010"
    )]
    #[arg(env = "AUDIENCE_MOCK_URL")]
    pub(super) url: MockUrl,
    /// Print JSON instead of a table
    #[arg(long, global = true)]
    pub(super) json: bool,
}

impl Target {
    /// Requests a list that has the newest first, and returns it with the oldest first.
    ///
    /// # Errors
    ///
    /// The same as [`MockUrl::call`].
    pub(super) async fn oldest_first(&self, path: &str) -> Result<Value, String> {
        let mut list = self.url.call(Method::GET, path, None).await?;
        if let Some(items) = list["data"].as_array_mut() {
            items.reverse();
        }
        Ok(list)
    }
}

/// The URL of a mock, such as `http://127.0.0.1:4010`.
#[derive(Clone, Debug)]
pub(super) struct MockUrl(HttpUrl);

impl FromStr for MockUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = HttpUrl::parse(text)?;
        if url.path_and_query != "/" {
            return Err("the URL has a path; leave it out".into());
        }
        Ok(Self(url))
    }
}

impl MockUrl {
    /// Calls a path below `/_mock/`, and returns the JSON of the response. `Null` if it has none.
    ///
    /// # Errors
    ///
    /// Fails if no mock listens there, or if it refuses the call. The message has the reason.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Value, String> {
        let response = self.send(method, path, body).await?;
        let status = response.status();
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let json = serde_json::from_slice::<Value>(response.body()).ok();
        let refusal = json
            .as_ref()
            .and_then(|json| json.pointer("/error/message"))
            .and_then(Value::as_str);
        match (status.is_success(), json.as_ref(), refusal) {
            (true, Some(json), _) => Ok(json.clone()),
            (false, _, Some(refusal)) => Err(format!("the mock refused this: {refusal}")),
            _ => Err(format!(
                "http://{} responded with status {status}, but not as a mock does; is it another program?",
                self.0.authority
            )),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<http::Response<Bytes>, String> {
        let mut headers = HeaderMap::new();
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let url = HttpUrl {
            path_and_query: format!("/_mock/{path}"),
            ..self.0.clone()
        };
        let request = url
            .request(method, headers, Full::new(body.unwrap_or_default()))
            .map_err(|error| format!("could not send the request: {error}"))?;
        let authority = &url.authority;
        let stream = url.connect().await.map_err(|error| {
            format!(
                "no mock listens at http://{authority}: {error}; start one with `audience-mock`, or choose another with --url"
            )
        })?;
        client::exchange(stream, request, usize::MAX, usize::MAX)
            .await
            .map_err(|error| {
                format!(
                    "http://{authority} did not respond as a mock does: {}",
                    error_chain(&*error)
                )
            })
    }
}

/// How results are printed.
#[derive(Clone, Copy)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a result: its JSON, or its text.
    ///
    /// # Errors
    ///
    /// Fails if standard output cannot be written.
    pub(super) fn result(
        self,
        json: &Value,
        text: impl FnOnce(&Value) -> String,
    ) -> Result<(), String> {
        let text = if self.json {
            format!("{json:#}\n")
        } else {
            text(json)
        };
        print(&text).map(drop)
    }

    /// Prints that something was done. As JSON, that is an empty object unless the response has more.
    ///
    /// # Errors
    ///
    /// Fails if standard output cannot be written.
    pub(super) fn done(self, response: &Value, text: &str) -> Result<(), String> {
        let empty = Value::Object(Map::new());
        let json = if response.is_null() { &empty } else { response };
        self.result(json, |_| format!("{text}\n"))
    }
}

/// Prints text to standard output. Returns `false` if its reader, such as `head`, has stopped reading.
///
/// # Errors
///
/// Fails if standard output cannot be written for another reason.
pub(super) fn print(text: &str) -> Result<bool, String> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("could not print the result: {error}")),
    }
}

/// Rows with the same number of cells, under a heading.
pub(super) struct Table {
    /// The widest cell of each column, in characters.
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heading: &[&str]) -> Self {
        let mut table = Self {
            widths: vec![0; heading.len()],
            rows: Vec::new(),
        };
        table.row(heading.iter().map(|name| (*name).to_owned()));
        table
    }

    /// Adds a row. An empty cell is shown as `-`.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| shown(&cell)).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Returns a row for which no other sets the widths.
    pub(super) fn line(cells: impl IntoIterator<Item = String>) -> String {
        let cells: Vec<String> = cells.into_iter().map(|cell| shown(&cell)).collect();
        cells.join("  ")
    }

    /// Returns the lines. The last column is not padded.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in self.widths.iter().zip(row) {
                line += cell;
                let padding = width - cell.chars().count() + 2;
                line.extend(std::iter::repeat_n(' ', padding));
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Returns a cell as a terminal can show it: one line without control characters, not too long.
fn shown(cell: &str) -> String {
    const MAX_CHARACTERS: usize = 100;
    if cell.is_empty() {
        return "-".to_owned();
    }
    match cell.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", printable(&cell[..end])),
        None => printable(cell),
    }
}

/// Returns a JSON value as a cell: text without quotation marks, and nothing for `null`.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Returns Unix seconds as a readable time.
pub(super) fn readable(value: &Value) -> String {
    value.as_i64().map_or_else(String::new, |seconds| {
        Timestamp::from_unix(seconds).to_string()
    })
}
