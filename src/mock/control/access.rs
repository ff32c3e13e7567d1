//! Decides which callers may use the server.
//!
//! The control plane needs no key, and the default keys of the service are public. So a web page that a developer
//! visits must not reach them under a name that the page's owner points to this server (DNS rebinding), and must not
//! reach the control plane from another origin.

use std::net::IpAddr;

use http::HeaderValue;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;

use crate::mock::service::Refusal;

/// The hosts under which the server can be called, besides the loopback ones.
#[derive(Clone, Debug, Default)]
pub(in crate::mock) struct AllowedHosts {
    /// Lowercase, without a port.
    names: Vec<String>,
}

impl AllowedHosts {
    /// Adds a host, and ignores a port after it. Returns a message for the test's author if it is not a host.
    pub(in crate::mock) fn add(&mut self, host: &str) -> Result<(), String> {
        let name = host_name(host)
            .ok_or_else(|| format!("{host:?} is not a valid host name or IP address"))?;
        self.names.push(name);
        Ok(())
    }

    /// Refuses a request to the service under a host that is not allowed. `server_ips` are the addresses of the server.
    ///
    /// A request without a host is allowed: no browser sends one.
    ///
    /// # Errors
    ///
    /// A 403 if a host is not allowed.
    pub(in crate::mock) fn check_host(
        &self,
        head: &Parts,
        server_ips: &[IpAddr],
    ) -> Result<(), Refusal> {
        match hosts(head).find(|host| !self.allows(host, server_ips)) {
            None => Ok(()),
            Some(host) => Err(forbidden(format!(
                "the mock does not allow the host {host:?}; call it by a loopback address, or start it with \
                 `allowed_host` (`--allowed-host`)"
            ))),
        }
    }

    /// Refuses a call of the control plane that a web page of another origin may have sent.
    ///
    /// # Errors
    ///
    /// A 403 if a host is missing or not allowed, if the origin is not the server itself, or if the call is embedded in
    /// a page of another origin.
    pub(in crate::mock) fn check_control(
        &self,
        head: &Parts,
        server_ips: &[IpAddr],
    ) -> Result<(), Refusal> {
        let Some(host) = hosts(head).next() else {
            return Err(forbidden("the control plane needs a `Host` header"));
        };
        self.check_host(head, server_ips)?;
        let origins = head.headers.get_all(ORIGIN);
        let other_origin = origins
            .iter()
            .map(|origin| origin.to_str().unwrap_or_default())
            .find(|origin| !is_origin_of(host, origin));
        if let Some(origin) = other_origin {
            return Err(forbidden(format!(
                "the control plane does not allow requests from web pages of the origin {origin:?}"
            )));
        }
        if is_part_of_another_page(head) {
            return Err(forbidden(
                "the control plane does not allow requests from web pages of another origin",
            ));
        }
        Ok(())
    }

    fn allows(&self, host: &str, server_ips: &[IpAddr]) -> bool {
        let Some(name) = host_name(host) else {
            return false;
        };
        let is_known_ip = name.parse::<IpAddr>().is_ok_and(|ip| {
            let ip = ip.to_canonical();
            ip.is_loopback() || server_ips.iter().any(|known| known.to_canonical() == ip)
        });
        is_known_ip || name == "localhost" || self.names.contains(&name)
    }
}

/// Returns the hosts that a request names: in its URL, and in its headers.
fn hosts(head: &Parts) -> impl Iterator<Item = &str> {
    let headers = head.headers.get_all(HOST).iter();
    let headers = headers.map(|host| host.to_str().unwrap_or_default());
    let url = head.uri.authority().map(Authority::as_str);
    url.into_iter().chain(headers)
}

/// Returns a host in lowercase, without a port and without the brackets of an IPv6 address.
fn host_name(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    let name = authority.host().trim_matches(['[', ']']);
    let is_valid = !name.is_empty() && !host.contains('@');
    is_valid.then(|| name.to_ascii_lowercase())
}

/// Returns whether `origin` is the origin of pages that were loaded from `host`.
fn is_origin_of(host: &str, origin: &str) -> bool {
    origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"))
        .is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

/// Returns whether a browser sends this request for something in a page of another origin, such as an image.
///
/// Such a request has no `Origin`. A link that a person follows is not such a request, but a frame is: a person could
/// be led to click the buttons of the mock's page in it.
fn is_part_of_another_page(head: &Parts) -> bool {
    let value = |name| head.headers.get(name).map(HeaderValue::as_bytes);
    let is_own = matches!(
        value("sec-fetch-site"),
        None | Some(b"same-origin" | b"none")
    );
    let is_link = value("sec-fetch-mode") == Some(b"navigate")
        && matches!(value("sec-fetch-dest"), None | Some(b"document"));
    !is_own && !is_link
}

fn forbidden(message: impl Into<String>) -> Refusal {
    Refusal::new(403, "forbidden", message)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const SERVER_IP: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7))];

    fn check(uri: &str, headers: &[(&str, &str)]) -> Result<(), u16> {
        let mut hosts = AllowedHosts::default();
        hosts.add("Mock:4010").unwrap();
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();

        hosts
            .check_control(&head, &SERVER_IP)
            .map_err(|refusal| refusal.status)
    }

    #[test]
    fn only_known_hosts_are_allowed() {
        for host in [
            "localhost",
            "LOCALHOST:4010",
            "127.0.0.1:4010",
            "127.1.2.3",
            "[::1]:4010",
            "[::ffff:127.0.0.1]",
            "192.0.2.7:4010",
            "mock",
            "MOCK:80",
        ] {
            assert_eq!(check("/_mock/reset", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.localhost",
            "localhost@evil.example",
            "evil@localhost",
            "192.0.2.8",
            "0.0.0.0",
            "::1",
            "mock, evil.example",
        ] {
            assert_eq!(check("/_mock/reset", &[("host", host)]), Err(403), "{host}");
        }
        assert_eq!(check("/_mock/reset", &[]), Err(403));
    }

    #[test]
    fn every_named_host_must_be_allowed() {
        let local = ("host", "localhost");

        assert_eq!(check("http://mock/_mock/reset", &[local]), Ok(()));
        assert_eq!(check("http://evil.example/_mock/reset", &[local]), Err(403));
        assert_eq!(
            check("/_mock/reset", &[local, ("host", "evil.example")]),
            Err(403)
        );
    }

    #[test]
    fn an_origin_must_be_the_server_itself() {
        let from = |origin| {
            let host = ("host", "localhost:4010");
            check("/_mock/reset", &[host, ("origin", origin)])
        };

        assert_eq!(from("http://localhost:4010"), Ok(()));
        for other in [
            "http://localhost:3000",
            "http://localhost",
            "http://127.0.0.1:4010",
            "http://evil.example",
            "null",
            "",
        ] {
            assert_eq!(from(other), Err(403), "{other}");
        }
    }

    #[test]
    fn a_page_of_another_origin_cannot_embed_a_call_but_a_link_can_lead_to_it() {
        let fetch = |site, mode| {
            let host = ("host", "localhost:4010");
            let headers = [host, ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
            check("/_mock/requests", &headers)
        };

        assert_eq!(fetch("cross-site", "no-cors"), Err(403));
        assert_eq!(fetch("same-site", "no-cors"), Err(403));
        assert_eq!(fetch("cross-site", "navigate"), Ok(()));
        assert_eq!(fetch("same-origin", "cors"), Ok(()));
        assert_eq!(fetch("none", "navigate"), Ok(()));
    }

    #[test]
    fn an_invalid_host_cannot_be_added() {
        let mut hosts = AllowedHosts::default();

        for host in ["", "a b", "me@mock", "http://mock", ":4010", "[]"] {
            assert!(hosts.add(host).is_err(), "{host}");
        }
    }
}
