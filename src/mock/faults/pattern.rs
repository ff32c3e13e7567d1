//! Matches request paths against the path pattern of a fault.

use percent_encoding::percent_decode_str;

/// Returns whether `path` matches `pattern`, in which `*` matches any text, including none.
///
/// Both are percent-decoded first, so it does not matter how they are encoded.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let mut parts = pattern
        .split('*')
        .map(|part| percent_decode_str(part).decode_utf8_lossy());
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = decoded.strip_prefix(&*first) else {
        return false;
    };
    let Some(mut part) = parts.next() else {
        return rest.is_empty();
    };
    // Between stars the first match is as good as any other. Only the last part must match at the end.
    for next in parts {
        let Some(at) = rest.find(&*part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        part = next;
    }
    rest.ends_with(&*part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, path, expected) in [
            ("/contacts", "/contacts", true),
            ("/contacts", "/contacts/", false),
            ("/contacts/*", "/contacts/ada", true),
            ("/contacts/*", "/contacts", false),
            (
                "/contacts/*/subscribe",
                "/contacts/ada%40x.io/subscribe",
                true,
            ),
            (
                "/contacts/*/subscribe",
                "/contacts/ada%40x.io/unsubscribe/",
                false,
            ),
            ("*/*scribe", "/contacts/ada/subscribe", true),
            ("/a*a", "/a", false),
            ("*", "/", true),
            ("/contacts/ada@x.io", "/contacts/ada%40x.io", true),
            ("/contacts/ada%40x.io", "/contacts/ada@x.io", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} on {path}");
        }
    }
}
