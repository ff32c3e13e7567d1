//! Searches for the secret and the body that the signature of a delivery matches.

use std::iter;

use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

use super::diagnosis::{BodyChange, Diagnosis, SecretForm};
use super::spellings::json_spellings;
use crate::secret::trim;
use crate::webhooks::signature::DeliveryHeaders;
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

        // A given secret costs one MAC, and a changed body one for each spelling of its JSON. So the cheap causes come
        // before the expensive ones.
        self.another_secret(given)
            .or_else(|| self.other_timestamp(own.iter().chain(&theirs)))
            .or_else(|| self.other_body(&own))
            .or_else(|| self.other_form(given))
            .or_else(|| self.other_body(&theirs))
            // Last: it is a guess from the look of the body, without a signature that matches.
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
        // The header was changed on the way: the service signed seconds.
        let seconds = seconds_of_milliseconds(self.headers.timestamp)?.to_string();
        keys.any(|key| self.matches(key, seconds.as_bytes(), self.body))
            .then_some(Diagnosis::TimestampInMilliseconds)
    }

    fn other_form(&mut self, given: &[Given]) -> Option<Diagnosis> {
        for given in given {
            // Only with the body as received. Two changes together would multiply the work.
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
        // The candidates are made one at a time: a long body and all its spellings would take much memory.
        while !keys.is_empty() && self.is_complete {
            let (change, original) = originals.next()?;
            let timestamp = self.headers.timestamp_text;
            // Computing the candidate took work too, so it counts.
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
            // The search stops here. Not everything was tried, so the result is `Incomplete`, not `Unexplained`.
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

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns the possible original bodies, each with the change that turns it into `body`. Computed lazily.
fn possible_originals(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let text = str::from_utf8(body).unwrap_or_default();
    let spellings = iter::once(text).flat_map(json_spellings);

    iter::empty()
        .chain(iter::once(body).flat_map(without_mark_or_newline))
        .chain(iter::once(body).flat_map(with_mark_or_newline))
        .chain(iter::once(body).flat_map(decoded))
        .chain(iter::once(text).flat_map(other_line_endings))
        .chain(spellings.map(|other| (BodyChange::Reserialized, other.into_bytes())))
}

fn without_mark_or_newline(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let without_mark = body.strip_prefix(BYTE_ORDER_MARK);
    let without_newline = [b"\r\n".as_slice(), b"\n"].map(|newline| body.strip_suffix(newline));

    iter::once((BodyChange::MarkAdded, without_mark))
        .chain(without_newline.map(|other| (BodyChange::NewlineAdded, other)))
        .filter_map(|(change, other)| Some((change, other?.to_vec())))
}

fn with_mark_or_newline(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    [
        (BodyChange::MarkRemoved, [BYTE_ORDER_MARK, body]),
        (BodyChange::NewlineRemoved, [body, b"\r\n"]),
        (BodyChange::NewlineRemoved, [body, b"\n"]),
    ]
    .into_iter()
    .map(|(change, parts)| (change, parts.concat()))
}

fn decoded(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let text = str::from_utf8(body).unwrap_or_default();
    // Only if each character fits into a byte. Otherwise the body was never decoded as Latin-1.
    let latin1 = text.chars().map(|c| u8::try_from(c).ok()).collect();
    // Encoders of mail put line breaks into base64.
    let digits = body.iter().filter(|byte| !byte.is_ascii_whitespace());
    let string = serde_json::from_str::<String>(text).ok();

    [
        (BodyChange::DecodedAsLatin1, latin1),
        (BodyChange::Base64Encoded, decode_base64(digits)),
        (BodyChange::QuotedAsString, string.map(String::into_bytes)),
    ]
    .into_iter()
    .filter_map(|(change, other)| Some((change, other?)))
}

fn other_line_endings(text: &str) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    // First to LF everywhere, so that a body with both endings does not get a CR twice.
    let unix = text.replace("\r\n", "\n");
    [unix.replace('\n', "\r\n"), unix]
        .into_iter()
        .map(|other| (BodyChange::LineEndings, other.into_bytes()))
}

/// Returns a change that is visible in the body but cannot be undone.
fn irreversible_change(body: &[u8]) -> Option<BodyChange> {
    if body.is_empty() {
        Some(BodyChange::Emptied)
    } else if str::from_utf8(body).is_ok_and(|text| text.contains('\u{fffd}')) {
        Some(BodyChange::DecodedLossily)
    } else {
        None
    }
}

const PREFIX: &[u8] = b"whsec_";

/// Returns the secret in every other form.
fn other_forms(secret: &[u8]) -> impl Iterator<Item = (SecretForm, Vec<u8>)> {
    let text = str::from_utf8(secret).unwrap_or_default();
    let trimmed = trim(text).as_bytes();
    let stripped = secret.strip_prefix(PREFIX);

    [
        (
            SecretForm::Trimmed,
            (trimmed.len() < text.len()).then(|| trimmed.to_vec()),
        ),
        (SecretForm::WithNewline, Some([secret, b"\n"].concat())),
        (
            SecretForm::HexDecoded,
            hex::decode(trimmed).ok().filter(|bytes| !bytes.is_empty()),
        ),
        (SecretForm::HexEncoded, Some(hex::encode(secret).into())),
        (SecretForm::Base64Decoded, decode_base64(trimmed)),
        (
            SecretForm::Base64Encoded,
            Some(STANDARD.encode(secret).into()),
        ),
        (
            SecretForm::Base64DecodedWithoutPrefix,
            stripped.and_then(decode_base64),
        ),
        (SecretForm::WithoutPrefix, stripped.map(<[u8]>::to_vec)),
        (SecretForm::WithPrefix, Some([PREFIX, secret].concat())),
    ]
    .into_iter()
    .filter_map(|(form, secret)| Some((form, secret?)))
}

/// Decodes either alphabet, with or without padding.
fn decode_base64<'a>(text: impl IntoIterator<Item = &'a u8>) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        // Some encoders do not clear the bits after the last byte.
        .with_decode_allow_trailing_bits(true);
    let digits = text.into_iter().map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => *other,
    });
    let digits: Vec<u8> = digits.collect();
    let decoded = GeneralPurpose::new(&alphabet::STANDARD, config).decode(digits);
    decoded.ok().filter(|decoded| !decoded.is_empty())
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
