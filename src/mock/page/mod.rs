//! The page at `/_mock/`, the description of the service, and the page that shows it. A page is one file of HTML,
//! styles and a script, which needs nothing from elsewhere.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response};

const PAGE: &str = include_str!("index.html");
const DESCRIPTION: &str = include_str!("../../../openapi/audience.json");
const DESCRIPTION_PAGE: &str = include_str!("description.html");

/// The placeholder in a page for the nonce of its script and its style.
const NONCE: &str = "{{nonce}}";

/// Returns the mock's web page.
pub(super) fn response() -> Response<Bytes> {
    html(PAGE)
}

/// Returns the description of the service in OpenAPI 3.1.
///
/// `openapi/audience.json` is written by hand, from the interface document. Nothing in the mock is generated from it,
/// and it is generated from nothing: tests compare the two.
pub(super) fn description() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(DESCRIPTION.as_bytes()));
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the page that shows the description.
pub(super) fn description_page() -> Response<Bytes> {
    html(DESCRIPTION_PAGE)
}

/// Returns a page with a new nonce.
///
/// Its policy allows only its own script and style, requests to this server only, and no frame around it: a web page
/// around it could lead a person to click its buttons.
fn html(page: &str) -> Response<Bytes> {
    let nonce = nonce();
    let policy = HeaderValue::from_str(&policy(&nonce)).expect("a nonce has only hex digits");
    let mut response = Response::new(page.replace(NONCE, &nonce).into());
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(CONTENT_TYPE, html);
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the Content-Security-Policy of a page. `require-trusted-types-for` makes a browser refuse to parse text as
/// HTML.
fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    )
}

/// Returns a number that a script in the page could not guess, in hex: each new [`RandomState`] has random keys.
fn nonce() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests;
