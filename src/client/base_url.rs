use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use url::{Host, Url};

use crate::Error;

/// The one host name that always is this machine.
pub(super) const LOCALHOST: &str = "localhost";

/// The addresses of [`LOCALHOST`]. Port 0 stands for the port of the URL.
pub(super) const LOOPBACK: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0),
];

/// Parses a base URL and removes the slashes at its end.
///
/// # Errors
///
/// `ErrorKind::Config` if the URL cannot be used. The error does not quote it: it may contain a
/// password.
pub(super) fn parse(text: &str, allow_http: bool) -> Result<Url, Error> {
    let mut url = Url::parse(text).map_err(|error| {
        Error::config("the base URL is invalid; use a URL like `https://api.example.com/v1`")
            .caused_by(error)
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::config(
            "the base URL must start with `https://` or `http://`",
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::config(
            "the base URL contains a user name or a password; remove it and pass the key separately",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Error::config(
            "the base URL contains a query or a fragment; remove it",
        ));
    }
    if url.scheme() == "http" && !allow_http && !is_loopback(&url) {
        return Err(Error::config(
            "the base URL would send the key in clear text; use `https`, or call `allow_http()` if this is intended",
        ));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Returns whether the host of the URL is this machine.
///
/// Only `localhost` itself counts, because the HTTP client connects it to [`LOOPBACK`]. DNS may resolve
/// any other name, such as `a.localhost`, to another machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == LOCALHOST,
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_unusable_base_url_is_refused_without_being_quoted() {
        for url in [
            "",
            "api.example.com",
            "ftp://api.example.com",
            "mailto:hunter2@example.com",
            "https://user:hunter2@api.example.com",
            "https://hunter2@api.example.com",
            "https://api.example.com/?hunter2",
            "https://api.example.com/#hunter2",
            "http://api.example.com/hunter2",
            "http://10.0.0.1",
            "http://localhost.example.com",
            "http://a.localhost",
            "http://localhost.",
        ] {
            let error = parse(url, false).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}");
        }
    }

    #[test]
    fn http_is_accepted_for_loopback_hosts_or_if_allowed() {
        for url in [
            "http://localhost:1",
            "http://127.0.0.9",
            "http://[::1]:80/",
            "http://[::ffff:127.0.0.1]",
            "http://LOCALHOST",
        ] {
            assert!(parse(url, false).is_ok(), "{url}");
        }
        assert!(parse("http://api.example.com", true).is_ok());
    }
}
