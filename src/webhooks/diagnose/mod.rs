//! Finds out why a delivery was rejected that should have been accepted.

mod diagnosis;
mod search;
mod spellings;

use http::HeaderMap;

pub use self::diagnosis::{BodyChange, Diagnosis, SecretForm};
use self::search::{Given, Search, seconds_of_milliseconds};
use super::error::SignatureHint;
use super::error::VerifyError;
use super::signature::DeliveryHeaders;
use super::verifier::Verifier;

/// Each secret costs work, and hardly any operator has more endpoints.
const MAX_SECRETS: usize = 16;
/// How many bytes are hashed and rewritten at most: about a second for the most expensive bodies.
const MAX_WORK: usize = 128 * 1024 * 1024;

impl Verifier {
    /// Returns the likely reason why a delivery was rejected, for an operator's log.
    ///
    /// It undoes each common change of bodies and secrets in turn, and checks whether the signature matches
    /// then.
    ///
    /// `secrets` are the secrets you have, as configured, each with a name of your choice: the secret of this
    /// endpoint and the secrets of your other endpoints. At most 16 are tried. The verifier's own secrets are
    /// tried, too, for a body that was changed. If you pass none, no wrong or misspelled secret is found.
    ///
    /// The result contains no secret, MAC or body. Still, write it only to a log, never into the response. For
    /// each secret, a mismatch costs about fifty times as much as a verification, so call this during setup,
    /// not for every request to a public endpoint.
    ///
    /// The work is limited: after 128 MiB of data are hashed or rewritten, the result is
    /// [`Diagnosis::Incomplete`]. A stranger can choose a body for which that takes about a second. A body of
    /// 30 KiB is examined completely with 16 secrets.
    ///
    /// If the rejection came from an extractor, use `Rejection::diagnose`, which has the headers and the
    /// body.
    ///
    /// # Example: middleware that parsed the body and serialized it again
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use audience::webhooks::{BodyChange, Diagnosis, EventType, Signer, Verifier};
    ///
    /// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// let sent = br#"{"id":"evt_1","type":"email.sent","created_at":1700000000,"data":{}}"#;
    /// let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, SystemTime::now(), sent);
    ///
    /// let seen = br#"{"created_at": 1700000000, "data": {}, "id": "evt_1", "type": "email.sent"}"#;
    /// let diagnosis = verifier.diagnose(&headers, seen, [("", ""); 0]);
    ///
    /// assert_eq!(diagnosis, Diagnosis::BodyChanged(BodyChange::Reserialized));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn diagnose<N, S>(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        secrets: impl IntoIterator<Item = (N, S)>,
    ) -> Diagnosis
    where
        N: Into<String>,
        S: AsRef<[u8]>,
    {
        let parsed = DeliveryHeaders::from_map(headers);
        // Not `verify`: the metrics and the log have this delivery already.
        let checked = match &parsed {
            Ok(headers) => self.check(headers, body, self.clock()),
            Err(error) => Err(error.clone()),
        };
        match checked.and_then(|(delivery, _)| delivery.parse()) {
            Ok(_) => Diagnosis::Accepted,
            Err(rejection) => {
                let delivery = parsed.as_ref().ok().map(|headers| (self, headers, body));
                explain(&rejection, delivery, secrets)
            }
        }
    }
}

/// Returns the likely reason of a rejection. `delivery` is the rejected delivery, or `None` if its headers are invalid.
pub(super) fn explain<N, S>(
    rejection: &VerifyError,
    delivery: Option<(&Verifier, &DeliveryHeaders<'_>, &[u8])>,
    secrets: impl IntoIterator<Item = (N, S)>,
) -> Diagnosis
where
    N: Into<String>,
    S: AsRef<[u8]>,
{
    match (rejection, delivery) {
        (
            VerifyError::MalformedSignature {
                hint: SignatureHint::StandardWebhooks,
            },
            _,
        ) => Diagnosis::StandardWebhooks,
        (VerifyError::TooLate { .. } | VerifyError::TooEarly { .. }, Some((_, headers, _)))
            // The signature covers the milliseconds, so no clock is wrong, although the delivery looks early by
            // thousands of years.
            if seconds_of_milliseconds(headers.timestamp).is_some() =>
        {
            Diagnosis::TimestampInMilliseconds
        }
        (VerifyError::TooLate { .. } | VerifyError::TooEarly { .. }, _) => {
            Diagnosis::OutsideWindow(rejection.clone())
        }
        (VerifyError::SignatureMismatch, Some((verifier, headers, body))) => {
            let mut secrets = secrets.into_iter();
            let given: Vec<Given> = secrets
                .by_ref()
                .take(MAX_SECRETS)
                .map(|(name, secret)| Given::new(name.into(), secret.as_ref()))
                .collect();
            let mut search = Search::new(headers, body, MAX_WORK);
            match search.explain_mismatch(verifier, &given) {
                Diagnosis::Unexplained if secrets.next().is_some() => Diagnosis::Incomplete,
                diagnosis => diagnosis,
            }
        }
        _ => Diagnosis::Rejected(rejection.clone()),
    }
}

#[cfg(test)]
mod tests;
