//! The `Content-Type` of a request with a body. Section 4 says that bodies are JSON.

use super::dialect::OtherContentType;
use super::message::Request;
use super::printable::visible;
use super::refusal::Refusal;

/// Checks that the `Content-Type` of a request with a body is one for JSON.
///
/// A body without a `Content-Type` is accepted: the document names no header for bodies.
///
/// # Errors
///
/// The dialect's choice of status and slug if the content type is another one.
pub(super) fn check(request: &Request<'_>, choice: OtherContentType) -> Result<(), Refusal> {
    if request.body.is_empty() {
        return Ok(());
    }
    let mut types = request
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        .map(|(_, value)| value);
    let Some(other) = types.find(|value| !is_json(value)) else {
        return Ok(());
    };
    let message = format!(
        "the content type of the body must be `application/json`, not `{}`",
        visible(other)
    );
    match choice {
        OtherContentType::Unprocessable => Err(Refusal::invalid(message)),
        OtherContentType::UnsupportedMediaType => {
            Err(Refusal::new(415, "unsupported_media_type", message))
        }
        OtherContentType::Ignored => Ok(()),
    }
}

/// Returns whether a content type means JSON: `application/json`, or `application/…+json`, with any parameters.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let suffix = subtype.rsplit_once('+').map(|(_, suffix)| suffix);
    kind.eq_ignore_ascii_case("application")
        && suffix.unwrap_or(subtype).eq_ignore_ascii_case("json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(content_types: &[&str], body: &[u8], choice: OtherContentType) -> Option<u16> {
        let header = |value: &&str| ("content-type".to_owned(), (*value).to_owned());
        let headers: Vec<_> = content_types.iter().map(header).collect();
        let request = Request {
            method: "POST",
            path: "/contacts",
            query: None,
            headers: &headers,
            body,
        };
        check(&request, choice).err().map(|refusal| refusal.status)
    }

    #[test]
    fn only_json_is_accepted_as_the_content_type_of_a_body() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/merge-patch+json",
        ] {
            assert_eq!(status(&[json], b"{}", OtherContentType::default()), None);
        }
        for other in [
            "",
            "json",
            "text/plain",
            "text/json",
            "application/jsonp",
            "application/x-www-form-urlencoded",
            "application/json, text/plain",
        ] {
            let found = status(&[other], b"{}", OtherContentType::default());
            assert_eq!(found, Some(422), "{other}");
        }
        let both = ["application/json", "text/plain"];
        assert_eq!(status(&both, b"{}", OtherContentType::default()), Some(422));
    }

    #[test]
    fn a_request_without_a_body_or_without_a_content_type_is_accepted() {
        let choice = OtherContentType::default();

        assert_eq!(status(&["text/plain"], b"", choice), None);
        assert_eq!(status(&[], b"{}", choice), None);
    }

    #[test]
    fn the_dialect_decides_the_refusal() {
        let plain = |choice| status(&["text/plain"], b"{}", choice);

        assert_eq!(plain(OtherContentType::UnsupportedMediaType), Some(415));
        assert_eq!(plain(OtherContentType::Ignored), None);
    }
}
