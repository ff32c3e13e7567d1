//! How an error names the target of a redirect. The service chooses the `Location`, so it may repeat the
//! key or an address, which must not be printed.

use http::header::LOCATION;
use percent_encoding::percent_decode_str;
use url::Url;

use super::request::Request;
use super::response::HttpResponse;
use crate::secret::Secret;

/// Returns how an error names a redirect's target; `None` if the response is not a redirect to a host.
///
/// A plain host name is returned as it is. If it contains the key or an address of the request, or is not
/// plain, only the scheme is named. A relative location is resolved against the base URL.
pub(super) fn target(
    response: &HttpResponse,
    base: &Url,
    request: &Request,
    key: &Secret,
) -> Option<String> {
    if !response.status.is_redirection() {
        return None;
    }
    let location = response.headers.get(LOCATION)?.to_str().ok()?;
    let url = base.join(location).ok()?;
    let host = url.host_str()?;
    Some(if may_be_named(host, request, key) {
        host.to_owned()
    } else if matches!(url.scheme(), "http" | "https") {
        format!("another host over {}", url.scheme())
    } else {
        "another host".to_owned()
    })
}

fn may_be_named(host: &str, request: &Request, key: &Secret) -> bool {
    let is_plain = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let host = letters_and_digits(host);
    let holds = |secret: &str| !secret.is_empty() && host.contains(secret);
    is_plain
        && !holds(&letters_and_digits(key.expose()))
        && !addresses(request).iter().any(|address| {
            holds(&letters_and_digits(address))
                || holds(&letters_and_digits(&address.replace('@', "at")))
        })
}

/// Returns everything in the path, the query and the body that looks like an address.
fn addresses(request: &Request) -> Vec<String> {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let body = request.body.as_deref().unwrap_or_default();
    [
        decode(&request.path),
        decode(&request.query),
        String::from_utf8_lossy(body).into_owned(),
    ]
    .iter()
    .flat_map(|text| text.split(|c: char| c.is_whitespace() || "/=&\"'<>()[]{},;:\\".contains(c)))
    .filter(|word| word.contains('@'))
    .map(str::to_owned)
    .collect()
}

/// Returns the text without punctuation, in lower case: `ada.example.com` and `ada@example.com` are alike.
fn letters_and_digits(text: &str) -> String {
    text.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}
