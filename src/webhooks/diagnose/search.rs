use super::body_change::{irreversible_change, possible_originals};
use super::diagnosis::Diagnosis;
use super::secret_form::other_forms;
use crate::webhooks::delivery_headers::DeliveryHeaders;
use crate::webhooks::signature::SigningKey;
use crate::webhooks::verifier::Verifier;

/// Added to the work of each signature, for its key and its short messages.
const WORK_PER_SIGNATURE: usize = 256;

/// A secret that the caller of `diagnose` has.
pub(super) struct Given {
    name: String,
    secret: Vec<u8>,
    key: SigningKey,
}

impl Given {
    pub(super) fn new(name: String, secret: &[u8]) -> Self {
        Self {
            name,
            secret: secret.to_vec(),
            key: SigningKey::new(secret),
        }
    }
}

/// The search for a secret and a body that the signature of a delivery matches.
pub(super) struct Search<'d> {
    headers: &'d DeliveryHeaders<'d>,
    body: &'d [u8],
    /// How many more bytes may be hashed or rewritten.
    work_left: usize,
    is_complete: bool,
}

impl<'d> Search<'d> {
    pub(super) fn new(headers: &'d DeliveryHeaders<'d>, body: &'d [u8], max_work: usize) -> Self {
        Self {
            headers,
            body,
            work_left: max_work,
            is_complete: true,
        }
    }

    /// Tries the most frequent causes first, in case the work ends early.
    pub(super) fn explain_mismatch(&mut self, verifier: &Verifier, given: &[Given]) -> Diagnosis {
        let own: Vec<&SigningKey> = verifier.keys().collect();
        let theirs: Vec<&SigningKey> = given.iter().map(|given| &given.key).collect();

        self.another_secret(given)
            .or_else(|| self.other_timestamp(own.iter().chain(&theirs)))
            .or_else(|| self.other_body(&own))
            .or_else(|| self.other_form(given))
            .or_else(|| self.other_body(&theirs))
            .or_else(|| irreversible_change(self.body).map(Diagnosis::BodyChanged))
            .unwrap_or(if self.is_complete {
                Diagnosis::Unexplained
            } else {
                Diagnosis::Incomplete
            })
    }

    fn another_secret(&mut self, given: &[Given]) -> Option<Diagnosis> {
        let found = given
            .iter()
            .find(|given| self.matches(&given.key, self.headers.timestamp_text, self.body))?;
        let name = found.name.clone();
        Some(Diagnosis::AnotherSecret { name })
    }

    fn other_timestamp<'k>(
        &mut self,
        mut keys: impl Iterator<Item = &'k &'k SigningKey>,
    ) -> Option<Diagnosis> {
        let seconds = seconds_of_milliseconds(self.headers.timestamp)?.to_string();
        keys.any(|key| self.matches(key, seconds.as_bytes(), self.body))
            .then_some(Diagnosis::TimestampInMilliseconds)
    }

    fn other_form(&mut self, given: &[Given]) -> Option<Diagnosis> {
        for given in given {
            for (form, other) in other_forms(&given.secret) {
                let key = SigningKey::new(&other);
                if self.matches(&key, self.headers.timestamp_text, self.body) {
                    let name = given.name.clone();
                    return Some(Diagnosis::SecretInAnotherForm { name, form });
                }
            }
        }
        None
    }

    fn other_body(&mut self, keys: &[&SigningKey]) -> Option<Diagnosis> {
        let mut originals = possible_originals(self.body);
        while !keys.is_empty() && self.is_complete {
            let (change, original) = originals.next()?;
            let timestamp = self.headers.timestamp_text;
            if self.can_afford(original.len())
                && keys
                    .iter()
                    .any(|key| self.matches(key, timestamp, &original))
            {
                return Some(Diagnosis::BodyChanged(change));
            }
        }
        None
    }

    fn matches(&mut self, key: &SigningKey, timestamp: &[u8], body: &[u8]) -> bool {
        self.can_afford(body.len() + WORK_PER_SIGNATURE)
            && bool::from(key.verify(&self.headers.tag, timestamp, body))
    }

    fn can_afford(&mut self, work: usize) -> bool {
        match self.work_left.checked_sub(work) {
            Some(left) => self.work_left = left,
            None => self.is_complete = false,
        }
        self.is_complete
    }
}

/// Returns the seconds of a timestamp that must be in milliseconds: as seconds it would be after the
/// year 5000.
pub(super) fn seconds_of_milliseconds(timestamp: u64) -> Option<u64> {
    (100_000_000_000..100_000_000_000_000)
        .contains(&timestamp)
        .then_some(timestamp / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_limited_and_the_result_says_so() {
        let body = br#"{"id":"evt_1","type":"email.sent","created_at":1700000000,"data":{}}"#;
        let signature = SigningKey::new(b"a stranger's").sign(b"1700000000", body);
        let headers = DeliveryHeaders::from_parts(Some(signature.as_bytes()), Some(b"1700000000"));
        let headers = headers.unwrap();
        let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let given: Vec<Given> = (0..16)
            .map(|n| Given::new(n.to_string(), format!("secret {n}").as_bytes()))
            .collect();

        for (max_work, expected) in [
            (0, Diagnosis::Incomplete),
            (10_000, Diagnosis::Incomplete),
            (1_000_000, Diagnosis::Unexplained),
        ] {
            let mut search = Search::new(&headers, body, max_work);

            assert_eq!(search.explain_mismatch(&verifier, &given), expected);
        }
    }
}
