//! Finds out why a delivery was refused that should have been accepted.

mod body_change;
mod diagnosis;
mod json_spellings;
mod secret_form;

use http::HeaderMap;

pub use body_change::BodyChange;
pub use diagnosis::Diagnosis;
pub use secret_form::SecretForm;

use self::body_change::{irreversible_change, possible_originals};
use self::secret_form::other_forms;
use super::delivery_headers::DeliveryHeaders;
use super::error::VerifyError;
use super::signature::{SignatureHint, SigningKey};
use super::verifier::Verifier;

/// Limits the work; no operator has more endpoints.
const MAX_SECRETS: usize = 16;

impl Verifier {
    /// Returns the likely reason why a delivery was refused, for an operator's log.
    ///
    /// It undoes, one at a time, the changes that commonly happen to bodies and secrets, and checks
    /// whether the signature matches then.
    ///
    /// `secrets` are the secrets you have, as configured, each with a name of your choice: this
    /// endpoint's and those of other endpoints. At most 16 are tried. Without any, only headers, body
    /// and clock are examined.
    ///
    /// The result contains no secret, MAC or body, but write it to a log only, never into the
    /// response. For each secret, a mismatch costs about fifty times as much as a verification: call
    /// this during setup, not for every request to a public endpoint.
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
        match self.verify(headers, body) {
            Ok(_) => Diagnosis::Accepted,
            Err(VerifyError::MalformedSignature {
                hint: SignatureHint::StandardWebhooks,
            }) => Diagnosis::StandardWebhooks,
            Err(refusal @ (VerifyError::TooLate { .. } | VerifyError::TooEarly { .. })) => {
                Diagnosis::OutsideWindow(refusal)
            }
            Err(VerifyError::SignatureMismatch) => self
                .explain_mismatch(headers, body, secrets)
                .unwrap_or(Diagnosis::Unexplained),
            Err(refusal) => Diagnosis::Refused(refusal),
        }
    }

    fn explain_mismatch<N, S>(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        secrets: impl IntoIterator<Item = (N, S)>,
    ) -> Option<Diagnosis>
    where
        N: Into<String>,
        S: AsRef<[u8]>,
    {
        let headers = DeliveryHeaders::from_map(headers).ok()?;
        let matches = |key: &SigningKey, body: &[u8]| {
            bool::from(key.verify(&headers.tag, headers.timestamp_text, body))
        };

        let mut keys: Vec<SigningKey> = self.keys().cloned().collect();
        for (name, secret) in secrets.into_iter().take(MAX_SECRETS) {
            let (name, secret) = (name.into(), secret.as_ref());
            let key = SigningKey::new(secret);
            if matches(&key, body) {
                return Some(Diagnosis::AnotherSecret { name });
            }
            for (form, other) in other_forms(secret) {
                if matches(&SigningKey::new(&other), body) {
                    return Some(Diagnosis::SecretInAnotherForm { name, form });
                }
            }
            keys.push(key);
        }

        possible_originals(body)
            .find(|(_, other)| keys.iter().any(|key| matches(key, other)))
            .map(|(change, _)| change)
            .or_else(|| irreversible_change(body))
            .map(Diagnosis::BodyChanged)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::webhooks::{EventType, Signer};

    const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
    const NO_SECRETS: [(&str, &str); 0] = [];
    const BODY: &str = "{\"id\":\"evt_1\",\"type\":\"email.sent\",\"created_at\":1700000000,\
        \"data\":{\"subject\":\"Grüße & <b>/\\n\",\"list\":[1,{}]}}";

    const BOUNCE: &str = "{\"id\": \"evt_1\", \"type\": \"email.bounced\", \
        \"created_at\": 1700000000, \"data\": {\"email_id\": \"em_1\", \"from\": \"us@example.com\", \
        \"to\": \"ada@example.com\", \"subject\": \"Hi\", \"bounce_type\": \"Permanent\", \
        \"detail\": \"\"}}";

    fn signed_with(secret: &str, body: &str) -> HeaderMap {
        let key = SigningKey::new(secret.as_bytes());
        let mut headers = Signer::new("any other secret").unwrap().sign(
            &EventType::Sent,
            SystemTime::now(),
            body,
        );
        let signature = key.sign(headers["webhook-timestamp"].as_bytes(), body.as_bytes());
        headers.insert("webhook-signature", signature.parse().unwrap());
        headers
    }

    #[test]
    fn each_change_of_the_body_is_named() {
        let verifier = Verifier::new(SECRET).unwrap();
        let python = r#"{"created_at": 1700000000, "data": {"list": [1, {}], "subject": "Gr\u00fc\u00dfe & <b>/\n"}, "id": "evt_1", "type": "email.sent"}"#;
        let value: serde_json::Value = serde_json::from_str(BODY).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let ordered = serde_json::to_string(&value).unwrap();
        let mojibake: String = BODY.bytes().map(char::from).collect();
        let bounce: serde_json::Value = serde_json::from_str(BOUNCE).unwrap();
        let sorted = serde_json::to_string(&bounce).unwrap();
        let marked = format!("\u{feff}{BODY}");
        let ended = format!("{BODY}\n");
        let ended_dos = format!("{BODY}\r\n");
        let pretty_dos = pretty.replace('\n', "\r\n");
        let spaced = BODY.replace(':', ": ");
        let lossy = BODY.replace('ü', "\u{fffd}");

        for (sent, seen, expected) in [
            (BODY, spaced.as_str(), BodyChange::Reserialized),
            (BOUNCE, &sorted, BodyChange::Reserialized),
            (&ordered, &pretty, BodyChange::Reserialized),
            (&ordered, python, BodyChange::Reserialized),
            (python, &ordered, BodyChange::Reserialized),
            (&pretty, &ordered, BodyChange::Reserialized),
            (BODY, &marked, BodyChange::MarkAdded),
            (&marked, BODY, BodyChange::MarkRemoved),
            (BODY, &ended, BodyChange::NewlineAdded),
            (&ended, BODY, BodyChange::NewlineRemoved),
            (&ended_dos, BODY, BodyChange::NewlineRemoved),
            (&pretty, &pretty_dos, BodyChange::LineEndings),
            (&pretty_dos, &pretty, BodyChange::LineEndings),
            (BODY, &mojibake, BodyChange::DecodedAsLatin1),
            (BODY, "", BodyChange::Emptied),
            (BODY, &lossy, BodyChange::DecodedLossily),
        ] {
            let headers = signed_with(SECRET, sent);

            let diagnosis = verifier.diagnose(&headers, seen.as_bytes(), NO_SECRETS);

            assert_eq!(diagnosis, Diagnosis::BodyChanged(expected), "{seen}");
        }
    }

    #[test]
    fn each_form_of_the_secret_is_named() {
        let verifier = Verifier::new("another endpoint's").unwrap();
        for (signed, given, expected) in [
            ("abc", "abc\n", SecretForm::Trimmed),
            ("abc\n", "abc", SecretForm::WithNewline),
            ("abc", "616263", SecretForm::HexDecoded),
            ("616263", "abc", SecretForm::HexEncoded),
            ("abcd", "YWJjZA==", SecretForm::Base64Decoded),
            ("abcd", "YWJjZA", SecretForm::Base64Decoded),
            ("YWJjZA==", "abcd", SecretForm::Base64Encoded),
            (
                "abcd",
                "whsec_YWJjZA==",
                SecretForm::Base64DecodedWithoutPrefix,
            ),
            ("abcd", "whsec_abcd", SecretForm::WithoutPrefix),
            ("whsec_abcd", "abcd", SecretForm::WithPrefix),
        ] {
            let headers = signed_with(signed, BODY);

            let diagnosis = verifier.diagnose(&headers, BODY.as_bytes(), [("main", given)]);

            let name = "main".to_owned();
            let form = expected;
            assert_eq!(diagnosis, Diagnosis::SecretInAnotherForm { name, form });
        }
    }

    #[test]
    fn another_endpoints_secret_another_scheme_and_a_forgery_are_told_apart() {
        let verifier = Verifier::new(SECRET).unwrap();
        let headers = signed_with("other", BODY);
        let mut standard = headers.clone();
        standard.insert("webhook-signature", "v1,abc=".parse().unwrap());
        let diagnose = |headers: &HeaderMap| {
            verifier.diagnose(headers, BODY.as_bytes(), [("orders", "other")])
        };

        assert_eq!(
            diagnose(&headers),
            Diagnosis::AnotherSecret {
                name: "orders".to_owned()
            }
        );
        assert_eq!(diagnose(&standard), Diagnosis::StandardWebhooks);
        assert_eq!(
            diagnose(&signed_with("unknown", BODY)),
            Diagnosis::Unexplained
        );
        assert_eq!(diagnose(&signed_with(SECRET, BODY)), Diagnosis::Accepted);
    }
}
