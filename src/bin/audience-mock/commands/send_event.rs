//! The command that sends an event.

use clap::Args;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::Target;
use super::lists::attempts_table;
use super::output::Output;

#[derive(Args)]
pub(crate) struct SendEventOptions {
    /// Type of the event, such as email.bounced
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// Recipient of the mail that the event is about
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// A mail that was sent through this mock: the event happens to it, as if the mailbox provider had reported it
    #[arg(long, value_name = "ID")]
    email_id: Option<String>,
    /// Members of `data`, as a JSON object; the others get plausible values
    #[arg(long, value_name = "JSON", value_parser = object)]
    data: Option<Map<String, Value>>,
    #[command(flatten)]
    target: Target,
}

/// Sends an event, and prints its first attempts.
pub(super) async fn send_event(options: SendEventOptions) -> Result<(), String> {
    let url = &options.target.url;
    let (path, body) = options.call();
    let sent = url
        .call(Method::POST, &path, Some(body.to_string().into()))
        .await?;
    let id = sent["id"].as_str().unwrap_or_default().to_owned();
    let log = url.call(Method::GET, "attempts", None).await?;
    let all = log["data"].as_array().map_or(&[][..], Vec::as_slice);
    let attempts: Vec<&Value> = all
        .iter()
        .filter(|attempt| attempt["event_id"] == id.as_str())
        .collect();

    let result = json!({"id": id, "attempts": attempts});
    Output::new(options.target.json).result(&result, |_| {
        if attempts.is_empty() {
            return format!("{id} was sent to no endpoint; add one with --webhook, a seed, or PUT /_mock/endpoints/NAME\n");
        }
        attempts_table(attempts.iter().copied()).text()
    })
}

impl SendEventOptions {
    /// Returns the path and the body of the call.
    fn call(&self) -> (String, Value) {
        let mut data = self.data.clone().unwrap_or_default();
        if let Some(id) = &self.email_id {
            let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
            let mut body = json!({"type": self.event_type, "data": data});
            if let Some(to) = &self.to {
                body["to"] = to.as_str().into();
            }
            return (format!("emails/{id}/outcome"), body);
        }
        if let Some(to) = &self.to {
            // Mail that was received can have several recipients (interface section 6.4).
            let to = match self.event_type.as_str() {
                "email.received" => json!([to]),
                _ => json!(to),
            };
            data.insert("to".to_owned(), to);
        }
        (
            "events".to_owned(),
            json!({"type": self.event_type, "data": data}),
        )
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("it is not a JSON object".into()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}
