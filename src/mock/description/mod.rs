//! The description of the service in OpenAPI 3.1, and a page that shows it.
//!
//! `openapi/audience.json` is written by hand, from the interface document. Nothing in the mock is generated from it,
//! and it is generated from nothing: tests compare the two.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue};

use super::response::MockResponse;

const DOCUMENT: &str = include_str!("../../../openapi/audience.json");
const PAGE: &str = include_str!("page.html");

/// Stands in [`PAGE`] for the nonce of its script and its style.
const NONCE: &str = "{{nonce}}";

/// Returns the description as JSON.
pub(super) fn document() -> MockResponse {
    response("application/json", DOCUMENT.into(), Vec::new())
}

/// Returns the page that shows the description. It loads nothing from other hosts.
pub(super) fn page() -> MockResponse {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::from_str(&policy).expect("a nonce has only hex digits");
    response(
        "text/html; charset=utf-8",
        PAGE.replace(NONCE, &nonce).into_bytes(),
        vec![
            (CONTENT_SECURITY_POLICY, policy),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        ],
    )
}

fn response(
    content_type: &'static str,
    body: Vec<u8>,
    mut headers: Vec<(HeaderName, HeaderValue)>,
) -> MockResponse {
    headers.push((CONTENT_TYPE, HeaderValue::from_static(content_type)));
    headers.push((CACHE_CONTROL, HeaderValue::from_static("no-cache")));
    headers.push((X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")));
    MockResponse {
        status: 200,
        headers,
        body,
    }
}

/// Returns a number that a script in the page could not guess, in hex: each new [`RandomState`] has random keys.
fn nonce() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::service::router;
    use super::*;

    #[test]
    fn the_description_has_exactly_the_endpoints_of_the_mock() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap();

        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, item)| {
                let members = item.as_object().unwrap().keys();
                members
                    .filter(|member| *member != "parameters")
                    .map(|method| (method.to_uppercase(), path.clone()))
            })
            .collect();

        let routed: BTreeSet<_> = router::endpoints()
            .map(|(method, path)| (method.to_owned(), path.to_owned()))
            .collect();
        assert_eq!(described, routed);
    }

    #[test]
    fn the_page_has_a_new_nonce_each_time() {
        let policy = |page: &MockResponse| page.headers[0].1.clone();
        let (first, second) = (page(), page());

        assert_ne!(policy(&first), policy(&second));
        assert!(!String::from_utf8(first.body).unwrap().contains(NONCE));
    }
}
