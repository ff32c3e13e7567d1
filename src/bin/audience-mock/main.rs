//! The mock service as a program, for tests in any language.
//!
//! ```text
//! audience-mock --port 4010 --full-key K --sending-key K
//! ```
//!
//! Prints `listening on http://127.0.0.1:4010` and serves until it is interrupted. Tests control it through the calls
//! below `/_mock/`; the docs of `audience::mock` list them.
#![expect(
    clippy::print_stderr,
    reason = "a command-line program prints its messages"
)]

mod examine;

use std::ffi::OsStr;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use audience::mock::{MockServer, MockServerBuilder, SigningClock};
use audience::webhooks::Signer;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Parser, ValueEnum};
use http::uri::Authority;
use http::{HeaderName, Uri};

/// A mock of the service, for tests in any language
#[derive(Parser)]
#[command(name = "audience-mock", version, args_override_self = true, after_help = CONTROL)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<Subcommands>,
    /// Port to listen on; 0 takes any free port
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = Ipv4Addr::LOCALHOST.into())]
    host: IpAddr,
    /// Host name by which /_mock/ can be called, besides loopback and --host; can be repeated
    #[arg(long = "allowed-host", value_name = "HOST", value_parser = host_name)]
    allowed_hosts: Vec<Authority>,
    /// Key for every endpoint [default: mock-full-access-key]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    full_key: Option<String>,
    /// Key for sending mail only [default: mock-sending-access-key]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    sending_key: Option<String>,
    /// Header that holds the bare key [default: `Authorization: Bearer`]
    #[arg(long, value_name = "NAME")]
    auth_header: Option<HeaderName>,
    /// Number of contacts that can be stored [default: no limit]
    #[arg(long, value_name = "N")]
    contact_ceiling: Option<u64>,
    /// Stop the clock at this Unix time; only /_mock/clock moves it
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    clock: Option<i64>,
    /// Clock that deliveries are signed by
    #[arg(long, value_name = "CLOCK", value_enum, default_value_t = Signing::Mock)]
    signing_clock: Signing,
    /// Add a topic with its default answer, true or false; can be repeated
    #[arg(long = "topic", value_name = "NAME=BOOL", value_parser = topic)]
    topics: Vec<(String, bool)>,
    /// Start with the topics, contacts and more in this JSON file; can be repeated
    #[arg(long = "seed", value_name = "FILE")]
    seeds: Vec<PathBuf>,
    /// Deliver events to this http URL without a query, signed with SECRET; can be repeated
    #[arg(long = "webhook", value_name = "URL=SECRET", value_parser = WebhookParser)]
    webhooks: Vec<Webhook>,
}

#[derive(clap::Subcommand)]
enum Subcommands {
    /// Examine a receiver of webhooks: send it deliveries, genuine and forged, and grade the responses
    Examine(examine::ExamineOptions),
}

const CONTROL: &str = "\
The first line of the output is `listening on URL`. The mock runs until it is interrupted. Tests control it through the
calls below /_mock/, which need no key.";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut options = Options::parse();
    if let Some(Subcommands::Examine(options)) = options.command.take() {
        return examine::examine(options).await;
    }
    let builder = options.into_builder();
    let server = match builder.try_start().await {
        Ok(server) => server,
        Err(error) => {
            eprintln!("audience-mock: could not start: {error}");
            return ExitCode::FAILURE;
        }
    };

    if let Err(error) = writeln!(std::io::stdout(), "listening on {}", server.url()) {
        eprintln!("audience-mock: could not print the URL: {error}");
        return ExitCode::FAILURE;
    }
    match tokio::signal::ctrl_c().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("audience-mock: could not wait for an interrupt: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn into_builder(self) -> MockServerBuilder {
        let mut builder = MockServer::builder().port(self.port).host(self.host);
        if let Some(key) = self.full_key {
            builder = builder.full_key(key);
        }
        if let Some(key) = self.sending_key {
            builder = builder.sending_key(key);
        }
        if let Some(name) = self.auth_header {
            builder = builder.auth_header(name.as_str());
        }
        if let Some(contacts) = self.contact_ceiling {
            builder = builder.contact_ceiling(contacts);
        }
        if let Some(at) = self.clock {
            builder = builder.clock(at);
        }
        builder = builder.signing_clock(match self.signing_clock {
            Signing::Mock => SigningClock::Mock,
            Signing::Wall => SigningClock::Wall,
        });
        for host in self.allowed_hosts {
            builder = builder.allowed_host(host.as_str());
        }
        for (name, default) in self.topics {
            builder = builder.topic(name, default);
        }
        for file in self.seeds {
            builder = builder.seed_file(file);
        }
        for webhook in self.webhooks {
            builder = builder.webhook_endpoint(webhook.url, webhook.secret);
        }
        builder
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Signing {
    /// The mock's clock
    Mock,
    /// The system's clock, for a receiver that cannot use the mock's
    Wall,
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

#[derive(Clone)]
struct Webhook {
    url: String,
    secret: String,
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
        command: &Command,
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
