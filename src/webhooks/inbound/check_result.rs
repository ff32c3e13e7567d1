use std::fmt;

/// The result of an SPF, DKIM or DMARC check, named as in RFC 8601.
///
/// # Example: results are compared without case
///
/// ```
/// use audience::webhooks::CheckResult;
///
/// assert_eq!(CheckResult::from("Pass"), CheckResult::Pass);
/// assert_eq!(CheckResult::SoftFail.as_str(), "softfail");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CheckResult {
    /// `pass`: the check passed.
    Pass,
    /// `fail`: the check failed.
    Fail,
    /// `softfail`: the message is probably not from this domain, by its owner's policy.
    SoftFail,
    /// `neutral`: the domain's owner makes no statement.
    Neutral,
    /// `none`: the domain publishes nothing to check against.
    None,
    /// `temperror`: a temporary error prevented the check.
    TempError,
    /// `permerror`: a permanent error prevents the check.
    PermError,
    /// `not-evaluated`: the service does not perform this check. It means nothing for the message.
    NotEvaluated,
    /// Another result, unchanged.
    Other(String),
}

impl CheckResult {
    const NAMES: [(&'static str, Self); 8] = [
        ("pass", Self::Pass),
        ("fail", Self::Fail),
        ("softfail", Self::SoftFail),
        ("neutral", Self::Neutral),
        ("none", Self::None),
        ("temperror", Self::TempError),
        ("permerror", Self::PermError),
        ("not-evaluated", Self::NotEvaluated),
    ];

    /// Returns the name of the result.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(text) => text,
            known => Self::NAMES
                .iter()
                .find(|(_, result)| result == known)
                .map_or("", |(name, _)| name),
        }
    }
}

/// Ignores case, as in RFC 8601.
impl From<&str> for CheckResult {
    fn from(text: &str) -> Self {
        Self::NAMES
            .into_iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map_or_else(|| Self::Other(text.to_owned()), |(_, result)| result)
    }
}

impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
