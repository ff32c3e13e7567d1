use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes the enum, and both directions between slug and variant, from one list.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $slug:literal,)*) => {
        /// The slug by which the service says why it refused (interface section 7).
        ///
        /// It stands on the [`ApiError`](crate::ApiError) of a whole request, and on a single entry of
        /// a batch. A slug that this version does not know is kept as [`ErrorCode::Other`].
        ///
        /// # Example: slug and variant
        ///
        /// ```
        /// use audience::ErrorCode;
        ///
        /// assert_eq!(ErrorCode::from("quota_exceeded"), ErrorCode::QuotaExceeded);
        /// assert_eq!(ErrorCode::QuotaExceeded.as_str(), "quota_exceeded");
        /// assert_eq!(ErrorCode::from("on_holiday").as_str(), "on_holiday");
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
            /// A slug that the interface document does not name, as it came.
            Other(Box<str>),
        }

        impl ErrorCode {
            /// The slug as it stands on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $slug,)*
                    Self::Other(slug) => slug,
                }
            }
        }

        impl From<&str> for ErrorCode {
            fn from(slug: &str) -> Self {
                match slug {
                    $($slug => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }
        }

        #[cfg(test)]
        const KNOWN: &[(&str, ErrorCode)] = &[$(($slug, ErrorCode::$variant),)*];
    };
}

error_codes! {
    /// 422: the address is no email address, the properties are no JSON object, or a complaint was
    /// declared by the sender. Mend the input; the message says which.
    ValidationError = "validation_error",
    /// 409: the address exists, and the create call said
    /// [`OnConflict::Error`](crate::contacts::OnConflict::Error).
    AlreadyExists = "already_exists",
    /// 402: the write crosses the plan's ceiling of stored contacts. Waiting does not help.
    QuotaExceeded = "quota_exceeded",
    /// 403: a sending-access key was used on the audience; these calls take a full-access key.
    KeyNotPermitted = "key_not_permitted",
    /// 404: the address is no contact of the caller, or the topic does not exist.
    NotFound = "not_found",
    /// 422: a subscribe for a contact who reported spam. It cannot be recorded through the service.
    FailedPrecondition = "failed_precondition",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|slug| Self::from(slug.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slug_of_section_7_reads_as_its_variant_and_writes_as_itself() {
        assert_eq!(KNOWN.len(), 6);
        for (slug, code) in KNOWN {
            assert_eq!(&ErrorCode::from(*slug), code);
            assert_eq!(code.as_str(), *slug);
            assert_eq!(serde_json::to_value(code).unwrap(), *slug);
        }
    }

    #[test]
    fn an_unknown_slug_is_kept() {
        let code: ErrorCode = serde_json::from_str("\"brand_new\"").unwrap();

        assert_eq!(code, ErrorCode::Other("brand_new".into()));
        assert_eq!(code.to_string(), "brand_new");
    }
}
