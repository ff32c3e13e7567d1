use crate::string_enum::string_enum;

string_enum! {
    /// The slug with which the service says why it refused (interface section 7).
    ///
    /// A refused request has it on its [`ApiError`](crate::ApiError); a failed batch entry has its own.
    /// A slug that this version of the crate does not know is kept verbatim as [`ErrorCode::Other`]. In
    /// a response, a known slug is recognized in any case, and with `-` for `_`.
    ///
    /// # Example: slugs and variants
    ///
    /// ```
    /// use audience::ErrorCode;
    ///
    /// assert_eq!(ErrorCode::from("quota_exceeded"), ErrorCode::QuotaExceeded);
    /// assert_eq!(ErrorCode::QuotaExceeded.as_str(), "quota_exceeded");
    /// assert_eq!(ErrorCode::from("on_holiday").as_str(), "on_holiday");
    /// ```
    pub enum ErrorCode {
        /// `validation_error`, 422: the address is not an email address, the properties are not a
        /// JSON object, or the sender declared a complaint. Fix the input; the message says which.
        ValidationError = "validation_error",
        /// `already_exists`, 409: the address already exists, and the create call set
        /// [`OnConflict::Error`](crate::contacts::OnConflict::Error).
        AlreadyExists = "already_exists",
        /// `quota_exceeded`, 402: the write would exceed the plan's ceiling of stored contacts.
        /// Waiting does not help.
        QuotaExceeded = "quota_exceeded",
        /// `key_not_permitted`, 403: a sending-access key was used on the audience. Use a full-access
        /// key.
        KeyNotPermitted = "key_not_permitted",
        /// `not_found`, 404: the address is not a contact of the caller, or the topic does not exist.
        NotFound = "not_found",
        /// `failed_precondition`, 422: a subscribe for a contact who reported spam. The service does
        /// not let a sender subscribe the contact again.
        FailedPrecondition = "failed_precondition",
    }
}

impl ErrorCode {
    /// Reads a slug as services write it: case does not matter, and `-` stands for `_`. A slug that is
    /// not known is kept verbatim.
    pub(crate) fn from_slug(text: &str) -> Self {
        let snake_case = text.to_ascii_lowercase().replace('-', "_");
        let known = Self::KNOWN.iter().find(|code| code.as_str() == snake_case);
        known.cloned().unwrap_or_else(|| Self::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_read_without_regard_to_case_and_with_hyphens() {
        for text in ["not_found", "not-found", "NOT_FOUND", "Not-Found"] {
            assert_eq!(ErrorCode::from_slug(text), ErrorCode::NotFound);
        }
        assert_eq!(ErrorCode::from_slug("On-Holiday").as_str(), "On-Holiday");
    }

    #[test]
    fn the_known_slugs_are_those_of_section_7() {
        let slugs = ErrorCode::KNOWN.iter().map(ErrorCode::as_str);

        assert!(slugs.eq([
            "validation_error",
            "already_exists",
            "quota_exceeded",
            "key_not_permitted",
            "not_found",
            "failed_precondition",
        ]));
    }
}
