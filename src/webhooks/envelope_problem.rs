/// Why a body is not an event envelope. The text contains nothing of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeProblem {
    /// The bytes are not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,

    /// The text is not JSON.
    #[error("it is not JSON, at line {line} column {column}")]
    NotJson {
        /// The line of the error, from 1.
        line: usize,
        /// The column of the error, in bytes.
        column: usize,
    },

    /// The JSON is not an object.
    #[error("it is not a JSON object")]
    NotAnObject,

    /// A required member is missing.
    #[error("it has no {member:?}")]
    Missing {
        /// `id`, `type` or `created_at`.
        member: &'static str,
    },

    /// A member occurs more than once, so it is unclear which one is meant.
    #[error("it has more than one {member:?}")]
    Duplicate {
        /// `id`, `type`, `created_at` or `data`.
        member: &'static str,
    },

    /// A member has an invalid value: an `id` that is not 1 to 255 bytes of text without control
    /// characters, a `type` that is not text, or a `created_at` that is not an integer.
    #[error("its {member:?} is invalid")]
    Invalid {
        /// `id`, `type` or `created_at`.
        member: &'static str,
    },
}
