//! The mock that a command controls, and how the command prints its responses.

use std::env;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value};

use super::DEFAULT_PORT;
use crate::Timestamp;
use crate::causes::with_causes;
use crate::mock::http::{self as client, HttpUrl};
use crate::terminal::{print, printable_json};

/// The mock that a command controls, and how it prints the response.
#[derive(Args)]
pub(super) struct Target {
    /// Control the mock at this URL; the default has the port of `AUDIENCE_MOCK_PORT`
    #[arg(long, global = true, value_name = "URL", default_value_t = MockUrl::on_this_machine())]
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

impl fmt::Display for MockUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0.authority)
    }
}

impl MockUrl {
    /// Returns the URL of a mock that runs here with the same variables, such as the one in a container.
    fn on_this_machine() -> Self {
        let port = env::var("AUDIENCE_MOCK_PORT").ok();
        let port = port.and_then(|port| port.parse::<u16>().ok());
        // A mock with the port 0 chooses another one.
        let port = port.filter(|port| *port > 0).unwrap_or(DEFAULT_PORT);
        let url = format!("http://127.0.0.1:{port}").parse();
        url.expect("an address and a port are a URL")
    }

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
                    with_causes(&*error)
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
            printable_json(&format!("{json:#}\n"))
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

/// Returns Unix seconds as a readable time.
pub(super) fn readable(value: &Value) -> String {
    value.as_i64().map_or_else(String::new, |seconds| {
        Timestamp::from_unix(seconds).to_string()
    })
}
