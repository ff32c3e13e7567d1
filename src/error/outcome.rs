use http::{Method, StatusCode};

/// Whether a write that failed may have been applied anyway.
///
/// If a call made several attempts, the least certain one counts. For example, if the first attempt
/// got no response and the second was refused, the outcome is [`Unknown`](Outcome::Unknown).
///
/// # Example: when to check before calling again
///
/// ```
/// # #[cfg(feature = "mock")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::Outcome;
/// use audience::contacts::NewContact;
///
/// if let Err(error) = contacts.create(NewContact::new("not an address")).await {
///     match error.outcome() {
///         Outcome::NotSent => println!("nothing was sent: call again"),
///         Outcome::Refused => println!("not applied: fix the contact first"),
///         Outcome::Unknown => println!("retrieve the contact to find out"),
///     }
/// #   assert_eq!(error.outcome(), Outcome::Refused);
/// }
/// # Ok(()) }
/// # #[cfg(not(feature = "mock"))] fn main() {}
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// No request reached the service. Calling again is safe.
    NotSent,
    /// The service responded, and did not apply the write.
    Refused,
    /// The write may or may not have been applied: there was no response, the response could not be
    /// read, or its status was 408 or 5xx, or 303 in response to a write.
    ///
    /// [`retrieve`](crate::contacts::Contacts::retrieve) shows which.
    Unknown,
}

impl Outcome {
    /// Returns what a status other than 2xx says about a write.
    ///
    /// A 408 or a 5xx may come from a proxy that forwarded the request and then stopped waiting. A 303 to
    /// a write says that it was processed, and where to read the result.
    pub(crate) fn from_status(status: StatusCode, method: &Method) -> Self {
        let is_processed = status == StatusCode::SEE_OTHER && !method.is_safe();
        if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT || is_processed {
            Self::Unknown
        } else {
            Self::Refused
        }
    }
}

/// Returns whether a status says that the service cannot respond now, but may do so later.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_408_a_5xx_or_a_303_to_a_write_leaves_the_outcome_unknown() {
        for (status, outcome) in [
            (302, Outcome::Refused),
            (303, Outcome::Unknown),
            (408, Outcome::Unknown),
            (422, Outcome::Refused),
            (429, Outcome::Refused),
            (500, Outcome::Unknown),
            (503, Outcome::Unknown),
        ] {
            let status = StatusCode::from_u16(status).unwrap();

            assert_eq!(
                Outcome::from_status(status, &Method::PATCH),
                outcome,
                "{status}"
            );
        }
        let read = Outcome::from_status(StatusCode::SEE_OTHER, &Method::GET);
        assert_eq!(read, Outcome::Refused);
    }
}
