//! The page at `/_mock/`: one file of HTML, styles and a script, which needs nothing from elsewhere.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue};

use super::response::MockResponse;

const PAGE: &str = include_str!("index.html");

/// Stands in a page for the nonce of its script and its style.
const NONCE: &str = "{{nonce}}";

/// Returns the page.
pub(super) fn response() -> MockResponse {
    html(PAGE)
}

/// Returns a page with a new nonce.
///
/// Its policy lets it load and run nothing but its own text, speak to this server only, and be shown in no frame: a web
/// page around it could lead a person to click its buttons.
pub(super) fn html(page: &str) -> MockResponse {
    let nonce = nonce();
    let policy = HeaderValue::from_str(&policy(&nonce)).expect("a nonce has only hex digits");
    let fixed = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));

    MockResponse {
        status: 200,
        headers: vec![
            fixed(CONTENT_TYPE, "text/html; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, policy),
            fixed(CACHE_CONTROL, "no-store"),
            fixed(REFERRER_POLICY, "no-referrer"),
            fixed(X_CONTENT_TYPE_OPTIONS, "nosniff"),
            fixed(X_FRAME_OPTIONS, "DENY"),
            fixed(
                HeaderName::from_static("cross-origin-opener-policy"),
                "same-origin",
            ),
            fixed(
                HeaderName::from_static("cross-origin-resource-policy"),
                "same-origin",
            ),
        ],
        body: page.replace(NONCE, &nonce).into(),
    }
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
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_new_nonce_each_time_which_its_script_and_its_style_carry() {
        let policy = |page: &MockResponse| page.headers[1].1.clone();
        let (first, second) = (response(), response());

        assert_ne!(policy(&first), policy(&second));
        let text = String::from_utf8(first.body).unwrap();
        assert_eq!(text.matches(" nonce=\"").count(), 2);
        assert!(!text.contains(NONCE));
    }

    #[test]
    fn the_page_has_one_script_and_one_style_and_names_no_other_address() {
        for tag in ["<script", "<style"] {
            assert_eq!(PAGE.matches(tag).count(), 1, "{tag}");
        }
        for address in ["http://", "https://", "src=", "@import", "url("] {
            let found: Vec<_> = PAGE
                .lines()
                // The name of SVG elements is no address that anything loads.
                .map(|line| line.replace("http://www.w3.org/2000/svg", ""))
                .filter(|line| line.contains(address))
                .collect();
            assert!(found.is_empty(), "{address}: {found:?}");
        }
    }

    #[test]
    fn the_page_offers_every_event_type() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/events");
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read(file.unwrap().path()).unwrap();
            let event: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let event_type = event["type"].to_string();
            assert!(PAGE.contains(&event_type), "{event_type}");
        }
    }

    #[test]
    fn the_script_never_parses_text_as_html_or_code() {
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ] {
            assert!(!PAGE.contains(sink), "{sink}");
        }
    }
}
