use std::fmt;

use crate::webhooks::error::VerifyError;

/// The likely reason why a delivery was rejected; see
/// [`Verifier::diagnose`](crate::webhooks::Verifier::diagnose).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Diagnosis {
    /// The delivery was not rejected: the verifier accepts it.
    Accepted,

    /// The error itself states the reason: a header, the length of the body, or a genuine body that
    /// is not an event envelope.
    Rejected(VerifyError),

    /// The delivery is genuine, but too late or too early. Compare this machine's clock with
    /// another one, or look for a proxy or a queue that delayed the delivery.
    OutsideWindow(VerifyError),

    /// The timestamp is in milliseconds; the service sends seconds. The delivery is from a test tool, or
    /// something on its way changed the header.
    TimestampInMilliseconds,

    /// The delivery is signed by the Standard Webhooks scheme, which uses the same header names: it
    /// is from another service, or from a test tool for that scheme.
    StandardWebhooks,

    /// The delivery is signed with one of the given secrets, which this verifier does not have: the
    /// secret of another endpoint, or one that is being rotated.
    AnotherSecret {
        /// The name of the given secret.
        name: String,
    },

    /// The delivery is signed with another form of a given secret. Use that form in the verifier.
    SecretInAnotherForm {
        /// The name of the given secret.
        name: String,
        /// The form that it was signed with.
        form: SecretForm,
    },

    /// The body was changed between the service and the verifier. The secret of the verifier is right, or one of the given
    /// secrets is. After a change that is a guess, see [`BodyChange`], both may be wrong.
    BodyChanged(BodyChange),

    /// No other variant applies: the delivery is forged, its secret was not given, or its body was
    /// changed in a way that cannot be undone.
    Unexplained,

    /// The search stopped at its limit and found no reason. Diagnose a delivery with a shorter body, or
    /// pass fewer secrets.
    Incomplete,
}

/// One line for the operator.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("the delivery is accepted"),
            Self::Rejected(error) => write!(f, "{error}"),
            Self::OutsideWindow(error) => {
                write!(f, "{error}; compare this machine's clock with another")
            }
            Self::TimestampInMilliseconds => {
                f.write_str("the timestamp is in milliseconds, but the service sends seconds")
            }
            Self::StandardWebhooks => f.write_str(
                "the delivery is signed by the Standard Webhooks scheme, which the service does not use",
            ),
            Self::AnotherSecret { name } => write!(
                f,
                "the delivery is signed with the secret {name:?}, which this verifier does not have"
            ),
            Self::SecretInAnotherForm { name, form } => {
                write!(f, "the delivery is signed with the secret {name:?} {form}")
            }
            Self::BodyChanged(change) => write!(f, "the delivery was changed in transit: {change}"),
            Self::Unexplained => f.write_str(
                "no known change explains the mismatch: the delivery is forged, or its secret was not given",
            ),
            Self::Incomplete => f.write_str(
                "the search stopped at its limit and found no reason; \
                 diagnose a shorter delivery or pass fewer secrets",
            ),
        }
    }
}

/// How a body was changed between the service and the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyChange {
    /// It was parsed as JSON and serialized again. Verify the raw bytes, before any parsing.
    Reserialized,
    /// A byte-order mark was added at the start.
    MarkAdded,
    /// The byte-order mark at the start was removed.
    MarkRemoved,
    /// A newline was added at the end.
    NewlineAdded,
    /// The newline at the end was removed.
    NewlineRemoved,
    /// LF was converted to CRLF, or CRLF to LF.
    LineEndings,
    /// Its UTF-8 was decoded as Latin-1 and encoded again.
    DecodedAsLatin1,
    /// It is encoded as base64, as some gateways pass it on. Decode it first.
    Base64Encoded,
    /// It is quoted as a JSON string. Parse the string first.
    QuotedAsString,
    /// Bytes that are not UTF-8 were replaced by U+FFFD. This cannot be undone, so it is a guess
    /// from the characters in the body.
    DecodedLossily,
    /// The body is empty: something read it before the verifier. This is a guess, too.
    Emptied,
}

impl fmt::Display for BodyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserialized => "the body was parsed as JSON and serialized again",
            Self::MarkAdded => "a byte-order mark was added at the start of the body",
            Self::MarkRemoved => "the byte-order mark at the start of the body was removed",
            Self::NewlineAdded => "a newline was added at the end of the body",
            Self::NewlineRemoved => "the newline at the end of the body was removed",
            Self::LineEndings => "the line endings of the body were converted",
            Self::DecodedAsLatin1 => "the UTF-8 of the body was decoded as Latin-1",
            Self::Base64Encoded => "the body is encoded as base64, so decode it first",
            Self::QuotedAsString => {
                "the body is quoted as a JSON string, so parse the string first"
            }
            Self::DecodedLossily => {
                "the body was probably decoded as text, and invalid bytes were replaced"
            }
            Self::Emptied => "the body is empty, so it was probably read before it was verified",
        })
    }
}

/// The form of a given secret that a delivery was signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SecretForm {
    /// The given secret without the white space around it.
    Trimmed,
    /// The given secret followed by a newline.
    WithNewline,
    /// The given secret decoded from hex.
    HexDecoded,
    /// The given secret encoded as hex: it was decoded, but should not have been.
    HexEncoded,
    /// The given secret decoded from base64.
    Base64Decoded,
    /// The given secret encoded as base64: it was decoded, but should not have been.
    Base64Encoded,
    /// The given secret without `whsec_`, decoded from base64, as in Standard Webhooks.
    Base64DecodedWithoutPrefix,
    /// The given secret without `whsec_`.
    WithoutPrefix,
    /// The given secret with `whsec_` in front.
    WithPrefix,
}

impl fmt::Display for SecretForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trimmed => "without the white space around it",
            Self::WithNewline => "followed by a newline",
            Self::HexDecoded => "decoded from hex",
            Self::HexEncoded => "encoded as hex",
            Self::Base64Decoded => "decoded from base64",
            Self::Base64Encoded => "encoded as base64",
            Self::Base64DecodedWithoutPrefix => "without the prefix whsec_, decoded from base64",
            Self::WithoutPrefix => "without the prefix whsec_",
            Self::WithPrefix => "with the prefix whsec_",
        })
    }
}
