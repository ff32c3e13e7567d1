//! The mock service as a program, for tests in any language.
//!
//! ```text
//! cargo run --example mock_server -- --port 4010 --full-key K --sending-key K
//! ```
//!
//! Prints `listening on http://127.0.0.1:4010` and serves until it is interrupted. Whatever a test wants of it beside the
//! interface itself it asks for at `/_mock/…`: the docs of `audience::mock` have the table.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program talks to its user"
)]

use std::net::IpAddr;
use std::process::ExitCode;
use std::str::FromStr;

use audience::mock::{MockServer, MockServerBuilder};
use audience::webhooks::Signer;
use http::Uri;

const USAGE: &str = "\
usage: mock_server [option]…

  --port N             listen on this port; 0, the default, takes a free one
  --host IP            listen on this address instead of 127.0.0.1
  --full-key K         the key that may do everything [mock-full-access-key]
  --sending-key K      the key that may send mail only [mock-sending-access-key]
  --auth-header NAME   expect the bare key in this header instead of `Authorization: Bearer`
  --contact-ceiling N  refuse contacts beyond this number
  --clock SECONDS      stop the clock at this Unix time; only /_mock/clock moves it
  --topic NAME=BOOL    a topic and its default answer; may be repeated
  --webhook URL=SECRET deliver events to URL (http, without a query), signed with SECRET; may be repeated
  --help               print this";

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
            eprintln!("mock_server: cannot listen: {error}");
            return ExitCode::FAILURE;
        }
    };

    println!("listening on {}", server.url());
    match tokio::signal::ctrl_c().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mock_server: cannot wait for an interrupt: {error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn configure(
    mut builder: MockServerBuilder,
    mut arguments: impl Iterator<Item = String>,
) -> Result<MockServerBuilder, String> {
    while let Some(argument) = arguments.next() {
        // Both `--port 4010` and `--port=4010`.
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with("--") => {
                (option.to_owned(), Some(value.to_owned()))
            }
            _ => (argument, None),
        };
        if !OPTIONS.contains(&option.as_str()) {
            return Err(format!("there is no option {option:?}"));
        }
        let value = value
            .or_else(|| arguments.next())
            .ok_or_else(|| format!("{option} needs a value"))?;
        builder = match option.as_str() {
            "--port" => builder.port(parse(&option, &value)?),
            "--host" => builder.host(parse::<IpAddr>(&option, &value)?),
            "--full-key" => builder.full_key(value),
            "--sending-key" => builder.sending_key(value),
            "--auth-header" => builder.auth_header(value),
            "--contact-ceiling" => builder.contact_ceiling(parse(&option, &value)?),
            "--clock" => builder.clock(parse::<i64>(&option, &value)?),
            "--topic" => {
                let (name, default) = pair(&option, &value, "NAME=true or NAME=false")?;
                builder.topic(name, parse(&option, default)?)
            }
            _ => {
                let (url, secret) = pair(&option, &value, "URL=SECRET")?;
                deliverable(url).map_err(|problem| format!("--webhook: {url:?} {problem}"))?;
                Signer::new(secret).map_err(|error| format!("--webhook: {error}"))?;
                builder.webhook_endpoint(url, secret)
            }
        };
    }
    Ok(builder)
}

const OPTIONS: [&str; 9] = [
    "--port",
    "--host",
    "--full-key",
    "--sending-key",
    "--auth-header",
    "--contact-ceiling",
    "--clock",
    "--topic",
    "--webhook",
];

/// What `webhook_endpoint` would panic over, and a query, whose `=` cannot be told from the one before the secret.
fn deliverable(url: &str) -> Result<(), String> {
    if url.contains('?') {
        return Err("has a query: give such a URL to PUT /_mock/endpoints/{name}".into());
    }
    let parsed: Uri = url.parse().map_err(|error| format!("is no URL: {error}"))?;
    if parsed.scheme_str() != Some("http") {
        return Err("does not start with http://".into());
    }
    if parsed
        .authority()
        .is_none_or(|host| host.as_str().contains('@'))
    {
        return Err("names a user".into());
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
