//! The mock service as a program, for tests in any language.
//!
//! ```text
//! cargo run --example mock_server -- --port 4010 --full-key K --sending-key K
//! ```
//!
//! Prints `listening on http://127.0.0.1:4010` and serves until it is interrupted. Tests control it through the calls
//! below `/_mock/`; the docs of `audience::mock` list them.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program prints its messages"
)]

use std::net::{IpAddr, Ipv6Addr};
use std::process::ExitCode;
use std::str::FromStr;

use audience::mock::{MockServer, MockServerBuilder, SigningClock};
use audience::webhooks::Signer;
use http::uri::Authority;
use http::{HeaderName, Uri};

const USAGE: &str = "\
usage: mock_server [OPTION]...

  --port N              port to listen on [default: 0, any free port]
  --host IP             address to listen on [default: 127.0.0.1]
  --allowed-host HOST   host name by which /_mock/ can be called, besides loopback and --host; can be repeated
  --full-key KEY        key for every endpoint [default: mock-full-access-key]
  --sending-key KEY     key for sending mail only [default: mock-sending-access-key]
  --auth-header NAME    header that holds the bare key [default: `Authorization: Bearer`]
  --contact-ceiling N   number of contacts that can be stored [default: no limit]
  --clock SECONDS       stop the clock at this Unix time; only /_mock/clock moves it
  --signing-clock CLOCK sign deliveries by the `mock` clock or the `wall` clock [default: mock]
  --topic NAME=BOOL     add a topic with its default answer; can be repeated
  --seed FILE           start with the topics, contacts and more in this JSON file; can be repeated
  --webhook URL=SECRET  deliver events to this http URL without a query, signed with SECRET; can be repeated
  --help                print this help";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .iter()
        .any(|argument| argument == "--help" || argument == "-h")
    {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let builder = match configure(MockServer::builder(), arguments.into_iter()) {
        Ok(builder) => builder,
        Err(problem) => {
            eprintln!("mock_server: {problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let server = match builder.try_start().await {
        Ok(server) => server,
        Err(error) => {
            eprintln!("mock_server: could not start: {error}");
            return ExitCode::FAILURE;
        }
    };

    println!("listening on {}", server.url());
    match tokio::signal::ctrl_c().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mock_server: could not wait for an interrupt: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Applies the command-line arguments to `builder`, or returns what is wrong with them.
pub(crate) fn configure(
    mut builder: MockServerBuilder,
    mut arguments: impl Iterator<Item = String>,
) -> Result<MockServerBuilder, String> {
    while let Some(argument) = arguments.next() {
        // Accepts `--port 4010` and `--port=4010`.
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with("--") => {
                (option.to_owned(), Some(value.to_owned()))
            }
            _ => (argument, None),
        };
        if !OPTIONS.contains(&option.as_str()) {
            return Err(format!("unknown option {option:?}"));
        }
        let value = value
            .or_else(|| arguments.next())
            .ok_or_else(|| format!("{option} needs a value"))?;
        builder = match option.as_str() {
            "--port" => builder.port(parse(&option, &value)?),
            "--host" => builder.host(parse::<IpAddr>(&option, &value)?),
            "--allowed-host" => {
                let host: Authority = parse(&option, &value)?;
                if host.as_str().contains('@') || host.host().is_empty() {
                    return Err(format!("{option}: {value:?} is not a host name"));
                }
                builder.allowed_host(host.as_str())
            }
            "--full-key" => builder.full_key(value),
            "--sending-key" => builder.sending_key(value),
            "--auth-header" => {
                let name: HeaderName = parse(&option, &value)?;
                builder.auth_header(name.as_str())
            }
            "--contact-ceiling" => builder.contact_ceiling(parse(&option, &value)?),
            "--clock" => builder.clock(parse::<i64>(&option, &value)?),
            "--signing-clock" => builder.signing_clock(match value.as_str() {
                "mock" => SigningClock::Mock,
                "wall" => SigningClock::Wall,
                _ => return Err(format!("{option}: {value:?} is neither `mock` nor `wall`")),
            }),
            "--topic" => {
                let (name, default) = pair(&option, &value, "NAME=true or NAME=false")?;
                builder.topic(name, parse(&option, default)?)
            }
            "--seed" => builder.seed_file(value),
            _ => {
                let (url, secret) = pair(&option, &value, "URL=SECRET")?;
                check_url(url).map_err(|problem| format!("--webhook: {url:?} {problem}"))?;
                Signer::new(secret).map_err(|error| format!("--webhook: {error}"))?;
                builder.webhook_endpoint(url, secret)
            }
        };
    }
    Ok(builder)
}

const OPTIONS: [&str; 12] = [
    "--port",
    "--host",
    "--allowed-host",
    "--full-key",
    "--sending-key",
    "--auth-header",
    "--contact-ceiling",
    "--clock",
    "--signing-clock",
    "--topic",
    "--seed",
    "--webhook",
];

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

fn parse<T: FromStr>(option: &str, value: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    value
        .parse()
        .map_err(|error| format!("{option}: {value:?}: {error}"))
}

fn pair<'a>(option: &str, value: &'a str, form: &str) -> Result<(&'a str, &'a str), String> {
    value
        .split_once('=')
        .ok_or_else(|| format!("{option}: {value:?} is not of the form {form}"))
}
