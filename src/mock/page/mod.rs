//! The page at `/_mock/`: one file of HTML, styles and a script, which needs nothing from elsewhere.

use std::sync::OnceLock;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::response::MockResponse;

const PAGE: &str = include_str!("index.html");

/// Returns the page.
///
/// Its policy lets it load and run nothing but its own text, speak to this server only, and be shown in no frame: a web
/// page around it could lead a person to click its buttons.
pub(super) fn response() -> MockResponse {
    static POLICY: OnceLock<HeaderValue> = OnceLock::new();
    let policy = POLICY.get_or_init(|| {
        HeaderValue::from_str(&policy()).expect("the policy is made of visible ASCII characters")
    });
    let fixed = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));

    MockResponse {
        status: 200,
        headers: vec![
            fixed(CONTENT_TYPE, "text/html; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, policy.clone()),
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
        body: PAGE.into(),
    }
}

/// Returns the page's Content-Security-Policy. `require-trusted-types-for` makes a browser refuse to parse text as HTML.
fn policy() -> String {
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
        hash_of("script"),
        hash_of("style"),
    )
}

/// Returns the hash of the text of the only element with this tag.
fn hash_of(tag: &str) -> String {
    let text = PAGE
        .split_once(&format!("<{tag}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")))
        .map(|(text, _)| text)
        .expect("the page has this element, without attributes");
    base64(&Sha256::digest(text))
}

/// Encodes bytes as base64, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                let value = bits >> (18 - 6 * digit) & 63;
                text.push(char::from(DIGITS[value as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, section 10.
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
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
