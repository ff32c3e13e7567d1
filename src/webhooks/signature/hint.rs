use std::fmt;

/// The form that a malformed `webhook-signature` seems to have, instead of 64 lowercase hex digits.
///
/// Other webhook schemes use the same header names, so a delivery of another scheme, or code
/// written for one, is easily mistaken for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SignatureHint {
    /// The header is empty.
    Empty,
    /// There is white space around or within the signature.
    Whitespace,
    /// `v1,…` or `v1a,…`: the Standard Webhooks scheme, which uses the same header names. Its
    /// libraries cannot verify this service's signatures.
    StandardWebhooks,
    /// `sha256=…`, or the name of another algorithm and an equals sign.
    AlgorithmPrefix,
    /// 64 hex digits, some of them uppercase.
    UpperCase,
    /// Base64 of 32 bytes.
    Base64,
    /// Hex digits, but not 64 of them.
    WrongLength,
    /// None of the other variants.
    Unrecognized,
}

impl SignatureHint {
    /// Classifies a signature that was found to be malformed.
    pub(super) fn for_malformed(text: &[u8]) -> Self {
        let algorithms = ["sha256", "sha1", "sha512", "hmac-sha256", "v0", "v1"];
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);

        if text.is_empty() {
            Self::Empty
        } else if starts_with_name(text, &["v1", "v1a"], b',') {
            Self::StandardWebhooks
        } else if starts_with_name(text, &algorithms, b'=') {
            Self::AlgorithmPrefix
        } else if text.iter().any(u8::is_ascii_whitespace) {
            Self::Whitespace
        } else if text.iter().all(u8::is_ascii_hexdigit) {
            if text.len() == 64 {
                Self::UpperCase
            } else {
                Self::WrongLength
            }
        } else if matches!(text, [digits @ .., b'='] | digits if digits.len() == 43 && digits.iter().all(is_base64))
        {
            Self::Base64
        } else {
            Self::Unrecognized
        }
    }
}

/// Whether `text` starts with one of `names`, in any case, followed by `separator`.
fn starts_with_name(text: &[u8], names: &[&str], separator: u8) -> bool {
    names.iter().any(|name| {
        text.get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
            && text.get(name.len()) == Some(&separator)
    })
}

impl fmt::Display for SignatureHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::Whitespace => "it contains white space",
            Self::StandardWebhooks => "it looks like the Standard Webhooks scheme",
            Self::AlgorithmPrefix => "it starts with the name of an algorithm",
            Self::UpperCase => "it has uppercase digits",
            Self::Base64 => "it looks like base64",
            Self::WrongLength => "it is hex of the wrong length",
            Self::Unrecognized => "it is not hex",
        })
    }
}
