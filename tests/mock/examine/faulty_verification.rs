//! How a receiver verifies deliveries by hand, with at most one fault.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audience::webhooks::{EventType, Signer};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::mac;
use super::planted::Planted;
use crate::receiver::SECRET;

pub(super) struct FaultyVerification {
    fault: Option<Planted>,
    signer: Signer,
    right_signatures: Mutex<HashSet<String>>,
}

impl FaultyVerification {
    pub(super) fn new(fault: Option<Planted>) -> Self {
        let secret = match fault {
            Some(Planted::HasAnotherSecret) => "another secret of the test",
            _ => SECRET,
        };
        Self {
            fault,
            signer: Signer::new(secret).unwrap(),
            right_signatures: Mutex::default(),
        }
    }

    fn has(&self, fault: Planted) -> bool {
        self.fault == Some(fault)
    }

    pub(super) fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), StatusCode> {
        const REFUSED: StatusCode = StatusCode::UNAUTHORIZED;
        const CRASH: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());

        if self.has(Planted::AcceptsEverything) {
            return Ok(());
        }
        if self.has(Planted::SkipsWithoutAJsonType)
            && text("content-type") != Some("application/json")
        {
            return Ok(());
        }
        let are_missing = |names: &[&str]| names.iter().all(|name| !headers.contains_key(*name));
        let skipped = match self.fault {
            Some(Planted::SkipsWithoutAnEventHeader) => &["webhook-event"][..],
            Some(Planted::SkipsWithoutAnyHeader) => {
                &["webhook-event", "webhook-signature", "webhook-timestamp"]
            }
            _ => &[],
        };
        if !skipped.is_empty() && are_missing(skipped) {
            return Ok(());
        }
        let Some(signature) = text("webhook-signature") else {
            return match self.fault {
                Some(Planted::SkipsAMissingSignature) => Ok(()),
                Some(Planted::CrashesWithoutASignature) => Err(CRASH),
                _ => Err(REFUSED),
            };
        };
        if headers.get_all("webhook-signature").iter().count() > 1
            && !self.has(Planted::TakesTheFirstSignature)
        {
            return Err(REFUSED);
        }
        let Some(timestamp) = text("webhook-timestamp") else {
            return match self.fault {
                Some(Planted::CrashesWithoutATimestamp) => Err(CRASH),
                _ => Err(REFUSED),
            };
        };
        if self.has(Planted::ComparesTimestampsWithNan) {
            let signed = [timestamp.as_bytes(), b".", body].concat();
            let age = now() as f64 - timestamp.parse().unwrap_or(f64::NAN);
            if signature != mac(SECRET, &signed) || age.abs() > 300.0 {
                return Err(REFUSED);
            }
            return Ok(());
        }
        let seconds: u64 = timestamp.parse().map_err(|_| REFUSED)?;
        let expected = self.signature(seconds, body);
        let is_right = match self.fault {
            Some(Planted::SkipsAnEmptySignature) => signature.is_empty() || signature == expected,
            Some(Planted::ComparesAPrefix) => {
                signature.len() >= 16 && expected.starts_with(signature)
            }
            Some(Planted::IgnoresCase) => expected.eq_ignore_ascii_case(signature),
            Some(Planted::AlsoAcceptsNoSecret) => {
                signature == expected || signature == without_secret(seconds, body)
            }
            Some(Planted::RemembersSignatures) => {
                let mut known = self.right_signatures.lock().unwrap();
                known.contains(signature)
                    || signature == expected && known.insert(signature.to_owned())
            }
            _ => signature == expected,
        };
        if !is_right || !self.is_recent(seconds) {
            return Err(REFUSED);
        }
        if self.has(Planted::MeasuresCreatedAtToo) || self.has(Planted::MeasuresCreatedAtInstead) {
            let event: Value = serde_json::from_slice(body).unwrap_or_default();
            let created_at = event["created_at"].as_u64().unwrap_or(now());
            if now().abs_diff(created_at) > 300 {
                return Err(REFUSED);
            }
        }
        Ok(())
    }

    fn is_recent(&self, timestamp: u64) -> bool {
        let now = now();
        match self.fault {
            Some(Planted::IgnoresTheTimestamp | Planted::MeasuresCreatedAtInstead) => true,
            Some(Planted::IgnoresTimestampsAhead) => now.saturating_sub(timestamp) <= 300,
            // A slow machine may need a minute until it sends an event once more.
            Some(Planted::HasANarrowWindow) => now.abs_diff(timestamp) <= 270,
            Some(Planted::HasANarrowWindowBehind) => {
                timestamp >= now - 270 && timestamp <= now + 300
            }
            Some(Planted::HasAWideWindow) => now.abs_diff(timestamp) <= 600,
            Some(Planted::HasASlowClock) => false,
            _ => now.abs_diff(timestamp) <= 300,
        }
    }

    /// The signature that the receiver computes.
    fn signature(&self, timestamp: u64, body: &[u8]) -> String {
        let sign = |body: &[u8]| {
            let time = UNIX_EPOCH + Duration::from_secs(timestamp.min(1 << 40));
            let headers = self.signer.sign(&EventType::Sent, time, body);
            headers["webhook-signature"].to_str().unwrap().to_owned()
        };
        match self.fault {
            Some(Planted::SerializesAgain) => match serde_json::from_slice::<Envelope>(body) {
                Ok(event) => sign(&serde_json::to_vec(&event).unwrap()),
                Err(_) => String::new(),
            },
            Some(Planted::SerializesAgainSorted) => {
                match serde_json::from_slice::<BTreeMap<String, Value>>(body) {
                    Ok(event) => sign(&serde_json::to_vec(&event).unwrap()),
                    Err(_) => String::new(),
                }
            }
            Some(Planted::DecodesAsAscii) => {
                let ascii = body
                    .iter()
                    .map(|byte| if byte.is_ascii() { *byte } else { b'?' });
                sign(&ascii.collect::<Vec<_>>())
            }
            Some(Planted::SignsTheBodyAlone) => mac(SECRET, body),
            Some(Planted::HasNoSecret) => without_secret(timestamp, body),
            Some(Planted::TrimsTheBody) => sign(body.trim_ascii()),
            Some(Planted::ChangesLineEndings) => {
                let text = String::from_utf8_lossy(body);
                sign(text.replace("\r\n", "\n").as_bytes())
            }
            Some(Planted::ExpectsBase64) => base64(&sign(body)),
            _ => sign(body),
        }
    }
}

/// The signature with an empty secret, which anyone can compute.
fn without_secret(timestamp: u64, body: &[u8]) -> String {
    mac("", &[format!("{timestamp}.").as_bytes(), body].concat())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// The envelope with its members in the order of the document.
#[derive(Deserialize, Serialize)]
struct Envelope {
    id: Value,
    #[serde(rename = "type")]
    event_type: Value,
    created_at: Value,
    data: Data,
}

#[derive(Deserialize, Serialize)]
struct Data {
    #[serde(skip_serializing_if = "Option::is_none")]
    email_id: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inbound_id: Option<Value>,
    from: Option<Value>,
    to: Option<Value>,
    subject: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bounce_type: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_results: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

fn base64(hex: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = hex
        .chars()
        .map(|digit| format!("{:04b}", digit.to_digit(16).unwrap()))
        .collect();
    let mut text: String = bits
        .as_bytes()
        .chunks(6)
        .map(|group| {
            let group = format!("{:0<6}", str::from_utf8(group).unwrap());
            char::from(DIGITS[usize::from_str_radix(&group, 2).unwrap()])
        })
        .collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}
