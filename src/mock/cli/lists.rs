//! The lists of a running mock: contacts, mail, endpoints, events, attempts and requests.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::target::{Output, Target, readable};
use crate::mock::service::CONSENTS;
use crate::terminal::{Table, print, printable_json, text};
use crate::webhooks::EventType;

/// How often `requests --follow` asks for new requests.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// How many requests it asks for, unless more have arrived in the meantime.
const FOLLOW_LIMIT: u64 = 100;

/// Accepts the types of the interface: no event has a misspelled one.
pub(super) fn event_types() -> PossibleValuesParser {
    EventType::KNOWN.iter().map(EventType::as_str).into()
}

#[derive(Args)]
pub(super) struct ContactsOptions {
    /// List only contacts with this text in the address or a name
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// List only contacts with this consent
    #[arg(long, value_name = "CONSENT", value_parser = PossibleValuesParser::new(CONSENTS))]
    consent: Option<String>,
    /// List only contacts in this segment
    #[arg(long, value_name = "ID")]
    segment: Option<String>,
    #[command(flatten)]
    limit: Limit,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct EmailsOptions {
    /// List only mail with this text in a member or a recipient
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    #[command(flatten)]
    limit: Limit,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct EndpointsOptions {
    #[command(subcommand)]
    change: Option<EndpointChange>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum EndpointChange {
    /// Add an endpoint, or change its URL and secret
    Add {
        /// Give it this name, which fault and attempt lists show
        #[arg(value_name = "NAME")]
        name: String,
        /// Deliver events to this URL, which must start with http://
        #[arg(value_name = "ENDPOINT_URL")]
        endpoint_url: String,
        /// Sign deliveries with this secret of a test; other users of the machine can see arguments, but not the
        /// variable
        #[arg(long, value_name = "SECRET", allow_hyphen_values = true)]
        #[arg(env = "AUDIENCE_WEBHOOK_SECRET", hide_env_values = true)]
        secret: String,
    },
    /// Remove an endpoint and its pending attempts
    Remove {
        /// Remove the endpoint with this name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Args)]
pub(super) struct EventsOptions {
    /// List only events with this text
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// List only events of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = event_types())]
    event_type: Option<String>,
    /// List only events in this state
    #[arg(long, value_name = "STATE")]
    #[arg(value_parser = ["pending", "delivered", "failed", "given_up", "unsent"])]
    state: Option<String>,
    #[command(flatten)]
    limit: Limit,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct AttemptsOptions {
    /// List only attempts to deliver the event with this id
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// List only attempts at the endpoint with this name
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    #[command(flatten)]
    limit: Limit,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct RequestsOptions {
    /// List only requests with this text in the path, the body or the reason
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// List only these requests
    #[arg(long, value_name = "STATUS", value_enum)]
    status: Option<RequestStatus>,
    #[command(flatten)]
    limit: Limit,
    /// Continue with each new request until interrupted
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, ValueEnum)]
enum RequestStatus {
    /// The status is below 400
    Accepted,
    /// The status is 400 or above, or the client got no status
    Refused,
}

/// How many items a list has at most.
#[derive(Args)]
struct Limit {
    /// List at most this number, the newest [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

impl Limit {
    fn text(&self) -> Option<String> {
        self.limit.map(|limit| limit.to_string())
    }
}

/// Lists the contacts, newest first, as the service does.
pub(super) async fn contacts(options: ContactsOptions) -> Result<(), String> {
    let parameters = [
        ("query", options.query),
        ("consent", options.consent),
        ("segment_id", options.segment),
        ("limit", options.limit.text()),
    ];
    let path = with_query("contacts", parameters);
    let contacts = options.target.url.call(Method::GET, &path, None).await?;
    show(
        &options.target,
        &contacts,
        "there are no contacts",
        |contacts| {
            let mut table = Table::new(&["address", "name", "consent", "created", "id"]);
            for contact in contacts {
                let names = [&contact["first_name"], &contact["last_name"]].map(text);
                let consent = match (
                    &contact["unsubscribed"],
                    text(&contact["unsubscribe_reason"]),
                ) {
                    (Value::Bool(true), reason) if reason.is_empty() => "unsubscribed".to_owned(),
                    (Value::Bool(true), reason) => format!("unsubscribed: {reason}"),
                    _ => "subscribed".to_owned(),
                };
                table.row([
                    text(&contact["email"]),
                    names.join(" ").trim().to_owned(),
                    consent,
                    readable(&contact["created_at"]),
                    text(&contact["id"]),
                ]);
            }
            table
        },
    )
}

/// Lists the mail that was sent, oldest first.
pub(super) async fn emails(options: EmailsOptions) -> Result<(), String> {
    let parameters = [("query", options.query), ("limit", options.limit.text())];
    let path = newest("emails", parameters);
    let emails = options.target.oldest_first(&path).await?;
    show(&options.target, &emails, "there is no mail", |emails| {
        let mut table = Table::new(&["id", "at", "from", "to", "subject"]);
        for email in emails {
            let recipients = email["recipients"].as_array().into_iter().flatten();
            let recipients = recipients.map(|recipient| {
                format!("{} ({})", text(&recipient["to"]), text(&recipient["state"]))
            });
            table.row([
                text(&email["id"]),
                readable(&email["at"]),
                text(&email["from"]),
                recipients.collect::<Vec<_>>().join(", "),
                text(&email["subject"]),
            ]);
        }
        table
    })
}

/// Lists, adds or removes endpoints.
pub(super) async fn endpoints(options: EndpointsOptions) -> Result<(), String> {
    let Target { url, json } = &options.target;
    let path = |name: &str| format!("endpoints/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
    let (response, done) = match options.change {
        None => {
            let endpoints = url.call(Method::GET, "endpoints", None).await?;
            return show(
                &options.target,
                &endpoints,
                "there are no endpoints",
                |endpoints| {
                    let mut table = Table::new(&["name", "url"]);
                    for endpoint in endpoints {
                        table.row([text(&endpoint["name"]), text(&endpoint["url"])]);
                    }
                    table
                },
            );
        }
        Some(EndpointChange::Add {
            name,
            endpoint_url,
            secret,
        }) => {
            let body = json!({"url": endpoint_url, "secret": secret}).to_string();
            let response = url
                .call(Method::PUT, &path(&name), Some(body.into()))
                .await?;
            (response, "the mock has the endpoint")
        }
        Some(EndpointChange::Remove { name }) => {
            let response = url.call(Method::DELETE, &path(&name), None).await?;
            (response, "the endpoint was removed")
        }
    };
    Output::new(*json).done(&response, done)
}

/// Lists the events, oldest first.
pub(super) async fn events(options: EventsOptions) -> Result<(), String> {
    let parameters = [
        ("query", options.query),
        ("type", options.event_type),
        ("state", options.state),
        ("limit", options.limit.text()),
    ];
    let events = options
        .target
        .oldest_first(&newest("events", parameters))
        .await?;
    show(&options.target, &events, "there are no events", |events| {
        let mut table = Table::new(&["id", "type", "created", "to", "state"]);
        for event in events {
            let to = event.pointer("/data/to").unwrap_or(&Value::Null);
            table.row([
                text(&event["id"]),
                text(&event["type"]),
                readable(&event["created_at"]),
                text(to),
                text(&event["state"]),
            ]);
        }
        table
    })
}

/// Lists the delivery attempts, oldest first.
pub(super) async fn attempts(options: AttemptsOptions) -> Result<(), String> {
    let mut log = options
        .target
        .url
        .call(Method::GET, "attempts", None)
        .await?;
    if let Some(attempts) = log["data"].as_array_mut() {
        let is = |value: &Value, wanted: &Option<String>| {
            wanted
                .as_ref()
                .is_none_or(|wanted| value == wanted.as_str())
        };
        attempts.retain(|attempt| {
            is(&attempt["event_id"], &options.event) && is(&attempt["endpoint"], &options.endpoint)
        });
        let limit = options
            .limit
            .limit
            .and_then(|limit| usize::try_from(limit).ok());
        let surplus = limit.map_or(0, |limit| attempts.len().saturating_sub(limit));
        attempts.drain(..surplus);
    }
    show(&options.target, &log, "there are no attempts", |attempts| {
        attempts_table(attempts)
    })
}

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
            readable(&attempt["at"]),
            result,
            readable(&attempt["next_at"]),
            text(&attempt["fault"]),
            text(&attempt["endpoint"]),
        ]);
    }
    table
}

/// Lists the requests, oldest first, and follows them if it is asked to.
pub(super) async fn requests(options: RequestsOptions) -> Result<(), String> {
    if options.follow {
        return follow(&options).await;
    }
    let target = &options.target;
    let requests = match options {
        // Only the list without parameters has the whole bodies.
        RequestsOptions {
            query: None,
            status: None,
            limit: Limit { limit: None },
            ..
        } => target.url.call(Method::GET, "requests", None).await?,
        _ => {
            target
                .oldest_first(&options.path(options.limit.limit))
                .await?
        }
    };
    show(target, &requests, "there are no requests", |requests| {
        let mut table = Table::new(&["method", "path", "status", "reason"]);
        for request in requests {
            table.row(request_cells(request));
        }
        table
    })
}

impl RequestsOptions {
    fn path(&self, limit: Option<u64>) -> String {
        let status = self.status.map(|status| match status {
            RequestStatus::Accepted => "accepted".to_owned(),
            RequestStatus::Refused => "refused".to_owned(),
        });
        let limit = limit.map(|limit| limit.to_string());
        let parameters = [
            ("query", self.query.clone()),
            ("status", status),
            ("limit", limit),
        ];
        newest("requests", parameters)
    }
}

/// Prints a line for each request, and for each that follows. Ends without an error when nobody reads the lines.
async fn follow(options: &RequestsOptions) -> Result<(), String> {
    let target = &options.target;
    let mut requests = target
        .oldest_first(&options.path(options.limit.limit))
        .await?;
    let mut last = 0;
    loop {
        let printed = last;
        let is_new = |request: &&Value| request["number"].as_u64() > Some(printed);
        for request in items(&requests).iter().filter(is_new) {
            let line = if target.json {
                printable_json(&request.to_string())
            } else {
                Table::line(request_cells(request))
            };
            if !print(&format!("{line}\n"))? {
                return Ok(());
            }
            last = request["number"].as_u64().unwrap_or(last);
        }
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        requests = target
            .oldest_first(&options.path(Some(FOLLOW_LIMIT)))
            .await?;
        // If even the oldest of these is new, there may be new ones before it.
        if items(&requests)
            .first()
            .is_some_and(|request| request["number"].as_u64() > Some(last))
        {
            requests = target.oldest_first(&options.path(None)).await?;
        }
    }
}

fn request_cells(request: &Value) -> [String; 4] {
    let path = match request["query"].as_str() {
        None => text(&request["path"]),
        Some(query) => format!("{}?{query}", text(&request["path"])),
    };
    [
        text(&request["method"]),
        path,
        text(&request["status"]),
        text(&request["reason"]),
    ]
}

/// Prints a list, or `empty` if it has no items.
pub(super) fn show(
    target: &Target,
    response: &Value,
    empty: &str,
    table: impl FnOnce(&[Value]) -> Table,
) -> Result<(), String> {
    Output::new(target.json).result(response, |response| match items(response) {
        [] => format!("{empty}\n"),
        data => table(data).text(),
    })
}

fn items(list: &Value) -> &[Value] {
    list["data"].as_array().map_or(&[], Vec::as_slice)
}

fn newest<const N: usize>(list: &str, parameters: [(&str, Option<String>); N]) -> String {
    let order = ("order", Some("newest".to_owned()));
    with_query(list, std::iter::once(order).chain(parameters))
}

/// Returns the path of a list with the parameters that have a value.
fn with_query<'a>(
    list: &str,
    parameters: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> String {
    let given: Vec<String> = parameters
        .into_iter()
        .filter_map(|(name, value)| {
            Some(format!(
                "{name}={}",
                utf8_percent_encode(&value?, NON_ALPHANUMERIC)
            ))
        })
        .collect();
    if given.is_empty() {
        return list.to_owned();
    }
    format!("{list}?{}", given.join("&"))
}
