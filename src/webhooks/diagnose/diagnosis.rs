use std::fmt;

use super::body_change::BodyChange;
use super::secret_form::SecretForm;
use crate::webhooks::error::VerifyError;

/// The likely reason why a delivery was refused; see
/// [`Verifier::diagnose`](crate::webhooks::Verifier::diagnose).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Diagnosis {
    /// The delivery was not refused: the verifier accepts it.
    Accepted,

    /// The error itself states the reason: a header, the length of the body, or a genuine body that
    /// is not an event envelope.
    Refused(VerifyError),

    /// The delivery is genuine, but too late or too early: compare this machine's clock with
    /// another one, and find out what delayed the delivery.
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

    /// The secret is right; the body was changed between the service and the verifier.
    BodyChanged(BodyChange),

    /// No other variant applies: the delivery is forged, its secret was not given, or its body was
    /// changed in a way that cannot be undone.
    Unexplained,

    /// No reason was found before the limit of the work was reached. Diagnose a delivery with a shorter
    /// body, or pass fewer secrets.
    Incomplete,
}

/// One line for the operator.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("the delivery is accepted"),
            Self::Refused(error) => write!(f, "{error}"),
            Self::OutsideWindow(error) => {
                write!(f, "{error}; compare this machine's clock with another")
            }
            Self::TimestampInMilliseconds => {
                f.write_str("its timestamp is in milliseconds, but the service sends seconds")
            }
            Self::StandardWebhooks => f.write_str(
                "it is signed by the Standard Webhooks scheme, which the service does not use",
            ),
            Self::AnotherSecret { name } => write!(
                f,
                "it is signed with the secret {name:?}, which this verifier does not have"
            ),
            Self::SecretInAnotherForm { name, form } => {
                write!(f, "it is signed with the secret {name:?} {form}")
            }
            Self::BodyChanged(change) => write!(f, "the body was changed in transit: {change}"),
            Self::Unexplained => f.write_str(
                "no known change explains the mismatch: it is forged, or its secret was not given",
            ),
            Self::Incomplete => f.write_str(
                "no reason was found before the limit of the work was reached; \
                 diagnose a shorter delivery or pass fewer secrets",
            ),
        }
    }
}
