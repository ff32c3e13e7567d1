//! Ways in which a receiver may have misread how a delivery is signed (interface section 5).
//!
//! If a receiver refuses all genuine deliveries, it gets these. The one that it accepts says what is wrong.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderValue};
use sha2::Sha256;

use super::event_bodies::SampleEvent;
use crate::webhooks::{EVENT_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A delivery that is signed as a receiver may expect it by mistake.
pub(super) struct Misreading {
    /// The mistake, as the end of "The receiver …".
    pub(super) mistake: &'static str,
    pub(super) remedy: &'static str,
    pub(super) headers: HeaderMap,
}

/// Returns all misreadings of an event.
pub(super) fn of(event: &SampleEvent, secret: &str, now: SystemTime) -> Vec<Misreading> {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().to_string();
    let milliseconds = since.as_millis().to_string();
    let key = secret.as_bytes();
    let body: &[u8] = &event.body;
    let signed = format!("{seconds}.");
    let right = mac(key, &[signed.as_bytes(), body]);
    let hex_signature = hex::encode(right);
    let all = [
        (
            "signs the body alone, without the timestamp",
            "Sign the timestamp's text, a period and the raw body.",
            &seconds,
            hex::encode(mac(key, &[body])),
        ),
        (
            "leaves out the period between timestamp and body",
            "Sign the timestamp's text, a period and the raw body.",
            &seconds,
            hex::encode(mac(key, &[seconds.as_bytes(), body])),
        ),
        (
            "expects the signature in base64",
            "Compare lowercase hex digits.",
            &seconds,
            base64(&right),
        ),
        (
            "expects `sha256=` before the signature",
            "Compare the whole header with the hex digits. It has no prefix.",
            &seconds,
            format!("sha256={hex_signature}"),
        ),
        (
            "expects `v1=` before the signature",
            "Compare the whole header with the hex digits. It has no prefix.",
            &seconds,
            format!("v1={hex_signature}"),
        ),
        (
            "takes the timestamp for milliseconds",
            "webhook-timestamp has seconds. Compare it with the time in seconds.",
            &milliseconds,
            hex::encode(mac(key, &[milliseconds.as_bytes(), b".", body])),
        ),
        (
            "uses a secret with a newline at its end",
            "Remove the newline from the file or variable that has the secret.",
            &seconds,
            hex::encode(mac(
                format!("{secret}\n").as_bytes(),
                &[signed.as_bytes(), body],
            )),
        ),
        (
            "has no secret: it computes signatures with an empty one, as everybody can",
            "Set the secret, and let the receiver refuse to start without one.",
            &seconds,
            hex::encode(mac(b"", &[signed.as_bytes(), body])),
        ),
        (
            "decodes the secret from hex",
            "Use the bytes of the secret's text as the key.",
            &seconds,
            hex::decode(secret).map_or_else(
                |_| String::new(),
                |key| hex::encode(mac(&key, &[signed.as_bytes(), body])),
            ),
        ),
    ];
    all.into_iter()
        .filter(|(.., signature)| !signature.is_empty())
        .filter_map(|(mistake, remedy, timestamp, signature)| {
            let headers = headers(event, timestamp, &signature)?;
            Some(Misreading {
                mistake,
                remedy,
                headers,
            })
        })
        .collect()
}

fn headers(event: &SampleEvent, timestamp: &str, signature: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (SIGNATURE_HEADER, signature),
        (TIMESTAMP_HEADER, timestamp),
        (EVENT_HEADER, event.event_type.as_str()),
    ] {
        headers.insert(name, HeaderValue::from_str(value).ok()?);
    }
    Some(headers)
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| group.get(index).copied().unwrap_or(0);
        let bits = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]);
        for place in 0..4 {
            let index = (bits >> (18 - 6 * place)) & 63;
            let digit = ALPHABET[index as usize];
            text.push(if place > group.len() {
                '='
            } else {
                digit.into()
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhooks::{EventType, Signer};

    #[test]
    fn no_misreading_is_signed_like_a_genuine_delivery() {
        let now = SystemTime::now();
        let event = SampleEvent::new("evt_1".into(), EventType::Sent, 0);
        let genuine = Signer::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let genuine = genuine.sign(&event.event_type, now, &event.body);
        let hex_secret = "00112233445566778899aabbccddeeff";

        assert_eq!(of(&event, "6Jm0nFq2pXvZk4Tt", now).len(), 8);
        assert_eq!(of(&event, hex_secret, now).len(), 9);
        for misreading in of(&event, "6Jm0nFq2pXvZk4Tt", now) {
            assert_ne!(misreading.headers, genuine, "{}", misreading.mistake);
        }
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
