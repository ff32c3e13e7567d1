use crate::string_enum::string_enum;

string_enum! {
    /// The slug by which the service says why it refused (interface section 7).
    ///
    /// It stands on the [`ApiError`](crate::ApiError) of a whole request, and on a single entry of a
    /// batch. A slug that this version does not know is kept as [`ErrorCode::Other`].
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
    pub enum ErrorCode {
        /// `validation_error`, 422: the address is no email address, the properties are no JSON
        /// object, or a complaint was declared by the sender. Mend the input; the message says which.
        ValidationError = "validation_error",
        /// `already_exists`, 409: the address exists, and the create call said
        /// [`OnConflict::Error`](crate::contacts::OnConflict::Error).
        AlreadyExists = "already_exists",
        /// `quota_exceeded`, 402: the write crosses the plan's ceiling of stored contacts. Waiting
        /// does not help.
        QuotaExceeded = "quota_exceeded",
        /// `key_not_permitted`, 403: a sending-access key was used on the audience; these calls take
        /// a full-access key.
        KeyNotPermitted = "key_not_permitted",
        /// `not_found`, 404: the address is no contact of the caller, or the topic does not exist.
        NotFound = "not_found",
        /// `failed_precondition`, 422: a subscribe for a contact who reported spam. It cannot be
        /// recorded through the service.
        FailedPrecondition = "failed_precondition",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slugs_are_those_of_section_7() {
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
