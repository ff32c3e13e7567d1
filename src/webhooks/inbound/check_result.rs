use std::fmt;

/// The result of one check, by the names of RFC 8601.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CheckResult {
    /// `pass`: the check was made and passed.
    Pass,
    /// `fail`: the check was made and failed.
    Fail,
    /// `softfail`: the domain's owner thinks it is probably not theirs.
    SoftFail,
    /// `neutral`: the domain's owner does not say.
    Neutral,
    /// `none`: there was nothing to check against.
    None,
    /// `temperror`: the check could not be made just then.
    TempError,
    /// `permerror`: the check cannot be made, whenever it is tried.
    PermError,
    /// `not-evaluated`: the service does not make this check. It says nothing about the message.
    NotEvaluated,
    /// Another result, as it came.
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

    /// The result's name.
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

/// Upper and lower case are the same in a result, as RFC 8601 has it.
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
