//! The value of `--webhook`.

use std::ffi::OsStr;
use std::net::Ipv6Addr;

use audience::webhooks::Signer;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};
use http::Uri;

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
pub(crate) struct WebhookParser;

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
