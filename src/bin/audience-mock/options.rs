//! The command line.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use audience::mock::Dialect;
use audience::webhooks::Signer;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Parser, ValueEnum};
use http::uri::Authority;
use http::{HeaderName, Uri};

use crate::commands::Command;

/// A mock of the service, for tests in any language
#[derive(Parser)]
#[command(name = "audience-mock", version, args_override_self = true, after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) serve: ServeOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const AFTER_HELP: &str = "\
Without a command, the mock runs until it is interrupted. The first line of the output is `listening on URL`. The
commands talk to a mock that runs, by the calls below /_mock/ that any HTTP client can make, too. They need no key.
Only schema and examine need no mock.

Exit status: 0 on success, 1 if it failed, 2 if the command line is invalid.";

/// The options of a mock that is started.
#[derive(Args)]
pub(crate) struct ServeOptions {
    /// Port to listen on; 0 takes any free port
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4010,
        env = "AUDIENCE_MOCK_PORT"
    )]
    pub(crate) port: u16,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = Ipv4Addr::LOCALHOST.into(), env = "AUDIENCE_MOCK_HOST")]
    pub(crate) host: IpAddr,
    /// Host name by which /_mock/ can be called, besides loopback and --host; can be repeated
    #[arg(long = "allowed-host", value_name = "HOST", value_parser = host_name, value_delimiter = ',')]
    #[arg(env = "AUDIENCE_MOCK_ALLOWED_HOST")]
    pub(crate) allowed_hosts: Vec<Authority>,
    /// Key for every endpoint [default: mock-full-access-key]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    #[arg(env = "AUDIENCE_MOCK_FULL_KEY", hide_env_values = true)]
    pub(crate) full_key: Option<String>,
    /// Key for sending mail only [default: mock-sending-access-key]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    #[arg(env = "AUDIENCE_MOCK_SENDING_KEY", hide_env_values = true)]
    pub(crate) sending_key: Option<String>,
    /// Header that holds the bare key [default: `Authorization: Bearer`]
    #[arg(long, value_name = "NAME", env = "AUDIENCE_MOCK_AUTH_HEADER")]
    pub(crate) auth_header: Option<HeaderName>,
    /// Number of contacts that can be stored [default: no limit]
    #[arg(long, value_name = "N", env = "AUDIENCE_MOCK_CONTACT_CEILING")]
    pub(crate) contact_ceiling: Option<u64>,
    /// Stop the clock at this Unix time; only /_mock/clock moves it
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    #[arg(env = "AUDIENCE_MOCK_CLOCK")]
    pub(crate) clock: Option<i64>,
    /// Clock that deliveries are signed by
    #[arg(long, value_name = "CLOCK", value_enum, default_value_t = Signing::Mock)]
    #[arg(env = "AUDIENCE_MOCK_SIGNING_CLOCK")]
    pub(crate) signing_clock: Signing,
    /// Add a topic with its default answer, true or false; can be repeated
    #[arg(long = "topic", value_name = "NAME=BOOL", value_parser = topic, value_delimiter = ',')]
    #[arg(env = "AUDIENCE_MOCK_TOPIC")]
    pub(crate) topics: Vec<(String, bool)>,
    /// Start with the keys, topics, contacts and more in this JSON file; can be repeated
    #[arg(long = "seed", value_name = "FILE", env = "AUDIENCE_MOCK_SEED")]
    pub(crate) seeds: Vec<PathBuf>,
    /// Deliver events to this http URL without a query, signed with SECRET; can be repeated
    #[arg(long = "webhook", value_name = "URL=SECRET", value_parser = WebhookParser)]
    #[arg(env = "AUDIENCE_MOCK_WEBHOOK", hide_env_values = true)]
    pub(crate) webhooks: Vec<Webhook>,
    /// Choose what the interface document leaves open; can be repeated, and --help lists the choices
    #[arg(long = "dialect", value_name = "NAME=CHOICE", value_parser = choice, value_delimiter = ',')]
    #[arg(env = "AUDIENCE_MOCK_DIALECT", long_help = dialect_help())]
    pub(crate) dialect: Vec<(String, String)>,
    /// Print a line for each request to standard error [default: pretty on a terminal, otherwise off]
    #[arg(long, value_name = "FORMAT", value_enum, env = "AUDIENCE_MOCK_LOG")]
    pub(crate) log: Option<LogFormat>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Signing {
    /// The mock's clock
    Mock,
    /// The system's clock, for a receiver that cannot use the mock's
    Wall,
}

/// How a request is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Method, path, status, duration, and why the request was refused
    Pretty,
    /// The same as a JSON object
    Json,
    /// Nothing
    Off,
}

fn dialect_help() -> String {
    let mut help = "\
Choose what the interface document leaves open; can be repeated. The first choice of each name is the default:
"
    .to_owned();
    for (name, choices) in Dialect::choices() {
        help += &format!("\n  {name}={}", choices.join("|"));
    }
    help
}

fn host_name(text: &str) -> Result<Authority, String> {
    let host: Authority = text
        .parse()
        .map_err(|error: http::uri::InvalidUri| error.to_string())?;
    if host.as_str().contains('@') || host.host().is_empty() {
        return Err("it is not a host name".into());
    }
    Ok(host)
}

fn topic(text: &str) -> Result<(String, bool), String> {
    let form = "it is not of the form NAME=true or NAME=false";
    let (name, default) = text.split_once('=').ok_or(form)?;
    let default = default.parse().map_err(|_| form)?;
    Ok((name.to_owned(), default))
}

fn choice(text: &str) -> Result<(String, String), String> {
    let (name, choice) = text.split_once('=').unwrap_or((text, ""));
    let (name, choice) = (name.replace('-', "_"), choice.replace('-', "_"));
    Dialect::default()
        .choose(&name, &choice)
        .map_err(|error| error.to_string())?;
    Ok((name, choice))
}

/// A webhook endpoint that the mock starts with.
#[derive(Clone)]
pub(crate) struct Webhook {
    pub(crate) url: String,
    pub(crate) secret: String,
}

impl Webhook {
    fn parse(text: &str) -> Result<Self, String> {
        let (url, secret) = text
            .split_once('=')
            .ok_or("the value is not of the form URL=SECRET")?;
        check_url(url).map_err(|problem| format!("{url:?} {problem}"))?;
        Signer::new(secret).map_err(|error| error.to_string())?;
        Ok(Self {
            url: url.to_owned(),
            secret: secret.to_owned(),
        })
    }
}

/// Parses the value of `--webhook`. Clap would print a value that a function refuses, and this one contains a secret.
#[derive(Clone)]
struct WebhookParser;

impl TypedValueParser for WebhookParser {
    type Value = Webhook;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Webhook, clap::Error> {
        let webhook = value.to_str().ok_or("the value is not UTF-8".to_owned());
        webhook.and_then(Webhook::parse).map_err(|problem| {
            let mut command = command.clone();
            command.error(ErrorKind::ValueValidation, format!("--webhook: {problem}"))
        })
    }
}

/// Refuses the URLs that `webhook_endpoint` panics on, and a query: its `=` could be the one before the secret.
fn check_url(url: &str) -> Result<(), String> {
    if url.contains('?') {
        return Err("has a query; add this URL with PUT /_mock/endpoints/{name}".into());
    }
    let parsed: Uri = url
        .parse()
        .map_err(|error| format!("is not a valid URL: {error}"))?;
    if parsed.scheme_str() != Some("http") {
        return Err("does not start with http://".into());
    }
    let Some(authority) = parsed
        .authority()
        .filter(|authority| !authority.as_str().contains('@'))
    else {
        return Err("has a user name".into());
    };
    let has_port = authority.as_str() != authority.host();
    if has_port && authority.port_u16().is_none_or(|port| port == 0) {
        return Err("has an invalid port".into());
    }
    let ipv6_address = authority.host().strip_prefix('[');
    if ipv6_address
        .is_some_and(|address| address.trim_end_matches(']').parse::<Ipv6Addr>().is_err())
    {
        return Err("has an invalid IPv6 address".into());
    }
    Ok(())
}
