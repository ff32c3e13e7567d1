//! The mock service as a program, for tests in any language.
//!
//! ```text
//! audience-mock --seed seed.json
//! audience-mock send-event email.bounced --to ada@example.com
//! ```
//!
//! Without a subcommand, it prints `listening on http://127.0.0.1:4010` and serves until it is interrupted. The
//! subcommands call a running mock below `/_mock/`; `docs/mock-over-http.md` lists these calls.

mod commands;
mod lists;
mod serve;
mod target;

use std::ffi::OsStr;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Parser, ValueEnum};
use http::HeaderName;

use self::commands::{Command, time};
use super::Dialect;
use super::control::access::AllowedHosts;
use super::http::HttpUrl;
use crate::terminal::printable;
use crate::webhooks::Signer;

/// Runs the program `audience-mock` with the arguments and variables of this process.
#[must_use]
pub fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(options)),
        Err(error) => Err(format!("could not start a runtime: {error}")),
    };
    result.unwrap_or_else(|problem| {
        // Fails only if standard error is closed. Then the exit status is all that is left.
        let problem = printable(&problem);
        let _ = writeln!(std::io::stderr(), "audience-mock: {problem}");
        ExitCode::FAILURE
    })
}

async fn run(options: Options) -> Result<ExitCode, String> {
    match options.command {
        None => serve::serve(options.serve)
            .await
            .map(|()| ExitCode::SUCCESS),
        Some(command) => commands::run(command).await,
    }
}

/// Run a mock of the service, for tests in any language
#[derive(Parser)]
#[command(name = "audience-mock", version, args_override_self = true, after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(flatten)]
    serve: ServeOptions,
    #[command(subcommand)]
    command: Option<Command>,
}

const AFTER_HELP: &str = "\
Without a command, the mock runs until it is interrupted. The first line of the output is `listening on URL`. The
commands control a running mock through its HTTP calls below /_mock/, without a key. Only schema, completions
and examine need no mock.

Exit status: 0 on success, 1 if it failed, 2 if the command line is invalid.";

const DEFAULT_PORT: u16 = 4010;

/// The options of a mock that is started.
#[derive(Args)]
struct ServeOptions {
    /// Listen on this port; 0 chooses a free port
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_PORT,
        env = "AUDIENCE_MOCK_PORT"
    )]
    port: u16,
    /// Listen on this address
    #[arg(long, value_name = "IP", default_value_t = Ipv4Addr::LOCALHOST.into(), env = "AUDIENCE_MOCK_HOST")]
    host: IpAddr,
    /// Allow requests under this host name, in addition to loopback and --host; can be repeated
    #[arg(long = "allowed-host", value_name = "HOST", value_parser = host_name, value_delimiter = ',')]
    #[arg(env = "AUDIENCE_MOCK_ALLOWED_HOST")]
    allowed_hosts: Vec<String>,
    /// Accept this key for every endpoint [default: mock-full-access-key]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    #[arg(env = "AUDIENCE_MOCK_FULL_KEY", hide_env_values = true)]
    full_key: Option<String>,
    /// Accept this key for sending mail only [default: mock-sending-access-key]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    #[arg(env = "AUDIENCE_MOCK_SENDING_KEY", hide_env_values = true)]
    sending_key: Option<String>,
    /// Read the bare key from this header [default: `Authorization: Bearer`]
    #[arg(long, value_name = "NAME", env = "AUDIENCE_MOCK_AUTH_HEADER")]
    auth_header: Option<HeaderName>,
    /// Limit the number of contacts [default: no limit]
    #[arg(long, value_name = "N", env = "AUDIENCE_MOCK_CONTACT_CEILING")]
    contact_ceiling: Option<u64>,
    /// Stop the clock at this time; then only /_mock/clock moves it: Unix seconds, or 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time, allow_negative_numbers = true)]
    #[arg(env = "AUDIENCE_MOCK_CLOCK")]
    clock: Option<i64>,
    /// Sign deliveries by this clock
    #[arg(long, value_name = "CLOCK", value_enum, default_value_t = Signing::Mock)]
    #[arg(env = "AUDIENCE_MOCK_SIGNING_CLOCK")]
    signing_clock: Signing,
    /// Add a topic with its default, true or false; can be repeated
    #[arg(long = "topic", value_name = "NAME=BOOL", value_parser = topic, value_delimiter = ',')]
    #[arg(env = "AUDIENCE_MOCK_TOPIC")]
    topics: Vec<(String, bool)>,
    /// Start with the keys, topics, contacts and more in this JSON file; can be repeated
    #[arg(long = "seed", value_name = "FILE", env = "AUDIENCE_MOCK_SEED")]
    seeds: Vec<PathBuf>,
    /// Deliver events to this http URL, signed with SECRET; the URL has no query and no `=`; can be repeated
    #[arg(long = "webhook", value_name = "URL=SECRET", value_parser = WebhookParser)]
    #[arg(env = "AUDIENCE_MOCK_WEBHOOK", hide_env_values = true)]
    webhooks: Vec<Webhook>,
    /// Choose a behavior that the service's document leaves open; can be repeated, and --help lists the choices
    #[arg(long = "dialect", value_name = "NAME=CHOICE", value_parser = choice, value_delimiter = ',')]
    #[arg(env = "AUDIENCE_MOCK_DIALECT", long_help = dialect_help())]
    dialect: Vec<(String, String)>,
    /// Print a line for each request to standard error [default: pretty on a terminal, otherwise off]
    #[arg(long, value_name = "FORMAT", value_enum, env = "AUDIENCE_MOCK_LOG")]
    log: Option<LogFormat>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Signing {
    /// Use the mock's clock
    Mock,
    /// Use the system's clock, for a receiver in another process
    Wall,
}

/// How a request is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Print the method, path, status, duration, and why the request was refused
    Pretty,
    /// Print them as a JSON object
    Json,
    /// Print nothing
    Off,
}

fn dialect_help() -> String {
    let mut help = "\
Choose a behavior that the service's document leaves open; can be repeated. The first choice of each name is the default:
"
    .to_owned();
    for (name, choices) in Dialect::choices() {
        help += &format!("\n  {name}={}", choices.join("|"));
    }
    help
}

fn host_name(text: &str) -> Result<String, String> {
    AllowedHosts::default().add(text)?;
    Ok(text.to_owned())
}

fn topic(text: &str) -> Result<(String, bool), String> {
    let form = "the value is not of the form NAME=true or NAME=false";
    // A topic may have a `=` in its name.
    let named = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, default) = named.ok_or(form)?;
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
struct Webhook {
    url: String,
    secret: String,
}

impl Webhook {
    fn parse(text: &str) -> Result<Self, String> {
        // The errors below print the URL, and this could be a secret.
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Err(
                "the value does not start with http:// or https://; write URL=SECRET".to_owned(),
            );
        }
        let (url, secret) = text
            .split_once('=')
            .ok_or("the value is not of the form URL=SECRET")?;
        // Its `=` could be the one before the secret.
        if url.contains('?') {
            return Err(format!(
                "{url:?} has a query; add this URL with PUT /_mock/endpoints/{{name}}"
            ));
        }
        HttpUrl::parse(url)?;
        // Base64 ends with `=`. Any other one could also be before the secret.
        if secret.trim_end_matches('=').contains('=') {
            return Err(
                "the value has several `=`, so it is not certain which one is before the secret; write those of the \
                 URL as %3D, or add the endpoint with a seed or `audience-mock endpoints add`"
                    .to_owned(),
            );
        }
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
