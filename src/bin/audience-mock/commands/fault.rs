//! The command that adds and removes faults.

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Map, Value};

use super::Target;
use super::output::Output;

#[derive(Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct FaultOptions {
    #[command(subcommand)]
    clear: Option<Clear>,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    modifiers: Modifiers,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum Clear {
    /// Remove all faults
    Clear,
}

/// What goes wrong.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Kind {
    /// Respond with this status
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=999))]
    #[arg(conflicts_with_all = ["close", "garbage"])]
    status: Option<u16>,
    /// Close the connection
    #[arg(long, value_name = "WHEN", value_enum, conflicts_with = "garbage")]
    close: Option<Close>,
    /// Send bytes that are not HTTP
    #[arg(long)]
    garbage: bool,
    /// Delay the response by this many milliseconds
    #[arg(long, value_name = "MILLISECONDS")]
    delay_ms: Option<u64>,
    /// Respond with this body
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Close {
    /// Before the request is applied
    Before,
    /// After the request is applied
    After,
    /// In the middle of the response body
    MidBody,
    /// In the middle of the response body, by a reset
    Reset,
}

/// Which requests it affects.
#[derive(Args)]
struct Modifiers {
    /// Number of requests that fail [default: no limit]
    #[arg(long, value_name = "N")]
    times: Option<u64>,
    /// Number of requests that succeed first
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Only requests with this method
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Only requests to this path; `*` stands for anything
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// `Retry-After` of the response: seconds, or a date
    #[arg(long, value_name = "SECONDS")]
    retry_after: Option<String>,
    /// Header of the response; can be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
}

/// Adds a fault, or removes all.
pub(super) async fn fault(options: FaultOptions) -> Result<(), String> {
    let target = &options.target;
    let output = Output::new(target.json);
    let json = options.json();
    if let Some(Clear::Clear) = options.clear {
        if !json.is_empty() {
            return Err("`fault clear` removes all faults; leave out the other options".into());
        }
        let response = target.url.call(Method::DELETE, "faults", None).await?;
        return output.done(&response, "there are no faults");
    }
    let body = Value::Object(json).to_string().into();
    let response = target.url.call(Method::POST, "faults", Some(body)).await?;
    output.done(&response, "the fault was added")
}

impl FaultOptions {
    /// Returns the fault as the control plane reads it.
    fn json(&self) -> Map<String, Value> {
        let (kind, modifiers) = (&self.kind, &self.modifiers);
        let close = kind.close.map(|close| match close {
            Close::Before => "before",
            Close::After => "after",
            Close::MidBody => "mid_body",
            Close::Reset => "reset",
        });
        let retry_after = modifiers
            .retry_after
            .as_ref()
            .map(|text| match text.parse::<u64>() {
                Ok(seconds) => Value::from(seconds),
                Err(_) => Value::from(text.as_str()),
            });
        let headers: Map<String, Value> = modifiers
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        let members = [
            ("status", kind.status.map(Value::from)),
            ("close", close.map(Value::from)),
            ("garbage", kind.garbage.then_some(Value::Bool(true))),
            ("delay_ms", kind.delay_ms.map(Value::from)),
            ("body", kind.body.as_deref().map(Value::from)),
            ("times", modifiers.times.map(Value::from)),
            ("after", modifiers.after.map(Value::from)),
            ("method", modifiers.method.as_deref().map(Value::from)),
            ("path", modifiers.path.as_deref().map(Value::from)),
            ("retry_after", retry_after),
            (
                "headers",
                (!headers.is_empty()).then_some(Value::Object(headers)),
            ),
        ];
        let given = members
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("it is not of the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
