//! The bodies of the deliveries.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use sha2::Sha256;

use super::report::{Effect, Expectation};
use crate::mock::service::NewEvent;
use crate::webhooks::{EVENT_HEADER, EventType, SIGNATURE_HEADER, TIMESTAMP_HEADER};

/// An event to deliver. Its mail is between addresses that no mail reaches.
#[derive(Clone, Debug)]
pub(super) struct SampleEvent {
    pub(super) id: String,
    pub(super) event_type: EventType,
    pub(super) body: Bytes,
}

impl SampleEvent {
    /// Creates an event as the service writes it.
    pub(super) fn new(id: String, event_type: EventType, created_at: i64) -> Self {
        // Without the id, no two of them could be told apart.
        let data = json!({"subject": format!("Message {id}")});
        Self::with_data(id, event_type, created_at, &data)
    }

    /// Creates an event with these members in its data, and the usual others.
    pub(super) fn with_data(
        id: String,
        event_type: EventType,
        created_at: i64,
        data: &Value,
    ) -> Self {
        let json = json!({"type": event_type.as_str(), "data": data});
        let mut event =
            NewEvent::parse(json).expect("a type of the table and an object are an event");
        // All are about the same sent mail: two events may differ only in their ids (interface section 6.5). But a mail
        // is received once, so a receiver may have its id as a key.
        match event_type {
            EventType::Received => event.identify(&id),
            _ => event.identify("sample"),
        }
        let sample = Self {
            body: event.envelope(&id, created_at),
            id,
            event_type,
        };
        sample.spelled(Spelling::Documented)
    }

    /// Creates an event whose body is `length` bytes long.
    pub(super) fn long(id: &str, created_at: i64, length: usize) -> Self {
        let with_text = |text: String| {
            let data = json!({"text": text});
            Self::with_data(id.to_owned(), EventType::Received, created_at, &data)
        };
        let empty = with_text(String::new()).body.len();
        let text = "A line of text. ".chars().cycle();
        with_text(text.take(length.saturating_sub(empty)).collect())
    }

    /// Returns the event with this body.
    pub(super) fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Returns the event in another spelling of the same JSON.
    pub(super) fn spelled(self, spelling: Spelling) -> Self {
        let event: Value = serde_json::from_slice(&self.body).expect("the body is JSON of ours");
        let body = spelling.write(&event);
        self.with_body(body)
    }

    /// Returns the event with another member in its envelope.
    pub(super) fn with_member(self, name: &str, value: Value) -> Self {
        let mut event: Value =
            serde_json::from_slice(&self.body).expect("the body is JSON of ours");
        event[name] = value;
        self.with_body(Spelling::Documented.write(&event))
    }

    /// Returns what the probe has to show of this event.
    pub(super) fn expect(&self, effect: Effect) -> Expectation {
        Expectation {
            event_id: self.id.clone(),
            event_type: self.event_type.as_str().to_owned(),
            effect,
        }
    }
}

/// The members of the envelope and of `data`, in the order of interface section 6.
const MEMBERS: [&str; 14] = [
    "id",
    "type",
    "created_at",
    "email_id",
    "inbound_id",
    "from",
    "to",
    "subject",
    "bounce_type",
    "detail",
    "in_reply_to_email_id",
    "text",
    "authentication_results",
    "data",
];

/// A way to write the same JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Compact, members in the order of the document.
    Documented,
    /// Compact, members in the reverse of the document's order.
    Reordered,
    /// The document's order, with tabs, newlines, spaces and escapes in unusual places.
    OddlySpaced,
    /// Like `OddlySpaced`, but without line breaks.
    OddlySpacedLine,
    /// Compact, members in alphabetical order, as many serializers write JSON.
    Sorted,
    /// The service's spelling, with white space around it.
    Padded,
    /// A space after each comma and colon, as Python's `json.dumps` writes JSON.
    Python,
    /// Like `Python`, with sorted members.
    SortedPython,
    /// Indented by two blanks, in the document's order.
    Indented,
}

impl Spelling {
    /// The forms in which a receiver may serialize a body again.
    pub(super) const SERIALIZED_AGAIN: [Self; 4] = [
        Self::Sorted,
        Self::Python,
        Self::SortedPython,
        Self::Indented,
    ];

    fn write(self, event: &Value) -> String {
        let mut text = String::new();
        self.write_value(event, 0, &mut text);
        match self {
            Self::Padded => format!("\n {text} \r\n"),
            _ => text,
        }
    }

    fn write_value(self, value: &Value, depth: usize, text: &mut String) {
        let (open, close, members) = match value {
            Value::Object(object) => {
                let mut members: Vec<_> = object
                    .iter()
                    .map(|(name, value)| (Some(name.as_str()), value))
                    .collect();
                members.sort_by_key(|(name, _)| self.rank(name.unwrap_or_default()));
                if self == Self::Reordered {
                    members.reverse();
                }
                ('{', '}', members)
            }
            Value::Array(array) => ('[', ']', array.iter().map(|value| (None, value)).collect()),
            Value::String(string) => return text.push_str(&self.string(string)),
            other => return text.push_str(&other.to_string()),
        };
        text.push(open);
        for (index, (name, value)) in members.into_iter().enumerate() {
            if index > 0 {
                text.push_str(self.comma());
            }
            self.break_line(depth + 1, text);
            if let Some(name) = name {
                text.push_str(&json!(name).to_string());
                text.push_str(self.colon());
            }
            self.write_value(value, depth + 1, text);
        }
        self.break_line(depth, text);
        text.push(close);
    }

    /// Returns the sort key of a member.
    fn rank(self, name: &str) -> (usize, String) {
        let place = match self {
            Self::Sorted | Self::SortedPython => None,
            _ => MEMBERS.iter().position(|member| *member == name),
        };
        (place.unwrap_or(MEMBERS.len()), name.to_owned())
    }

    fn comma(self) -> &'static str {
        match self {
            Self::OddlySpaced | Self::OddlySpacedLine => " ,\t",
            Self::Python | Self::SortedPython => ", ",
            _ => ",",
        }
    }

    fn colon(self) -> &'static str {
        match self {
            Self::OddlySpaced => "  :\r\n ",
            Self::OddlySpacedLine => "  :\t ",
            Self::Python | Self::SortedPython | Self::Indented => ": ",
            _ => ":",
        }
    }

    fn break_line(self, depth: usize, text: &mut String) {
        match self {
            Self::OddlySpaced => text.push_str("\n\t "),
            Self::OddlySpacedLine => text.push_str("\t "),
            Self::Indented => {
                text.push('\n');
                text.push_str(&"  ".repeat(depth));
            }
            _ => {}
        }
    }

    fn string(self, string: &str) -> String {
        let plain = json!(string).to_string();
        match self {
            // The same text: `\u0040` is `@`, and `\/` is `/`.
            Self::OddlySpaced | Self::OddlySpacedLine => {
                plain.replace('@', "\\u0040").replace('/', "\\/")
            }
            _ => plain,
        }
    }
}

/// A delivery that is signed as a receiver may expect it by mistake.
pub(super) struct Misreading {
    /// The mistake, as the end of "The receiver …".
    pub(super) mistake: &'static str,
    pub(super) remedy: &'static str,
    pub(super) headers: HeaderMap,
}

/// Returns all misreadings of an event.
pub(super) fn misreadings(event: &SampleEvent, secret: &str, now: SystemTime) -> Vec<Misreading> {
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
            "computes the signature over the body alone, without the timestamp",
            "Compute the signature over the timestamp's text, a period and the raw body.",
            &seconds,
            hex::encode(mac(key, &[body])),
        ),
        (
            "leaves out the period between timestamp and body",
            "Compute the signature over the timestamp's text, a period and the raw body.",
            &seconds,
            hex::encode(mac(key, &[seconds.as_bytes(), body])),
        ),
        (
            "expects the signature in base64",
            "Compare lowercase hex digits.",
            &seconds,
            STANDARD.encode(right),
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
            "expects the timestamp in milliseconds",
            "Compare webhook-timestamp, which is in seconds, with the current time in seconds.",
            &milliseconds,
            hex::encode(mac(key, &[milliseconds.as_bytes(), b".", body])),
        ),
        (
            "uses a secret with a newline at its end",
            "Remove the newline from the file or variable that contains the secret.",
            &seconds,
            hex::encode(mac(
                format!("{secret}\n").as_bytes(),
                &[signed.as_bytes(), body],
            )),
        ),
        (
            "has no secret: it computes signatures with an empty one, as anyone can",
            "Set the secret, and make the receiver fail to start without one.",
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
        // The secret is not hex.
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

/// Returns the headers of a delivery whose timestamp is any text, and whose signature is right.
pub(super) fn signed_as(event: &SampleEvent, secret: &str, timestamp: &str) -> HeaderMap {
    let parts = [timestamp.as_bytes(), b".", &event.body];
    let signature = hex::encode(mac(secret.as_bytes(), &parts));
    headers(event, timestamp, &signature).expect("the texts of this program are valid in a header")
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::webhooks::{EventType, Signer};

    fn event() -> SampleEvent {
        SampleEvent::new("evt_1".into(), EventType::Received, 1_700_000_000)
    }

    #[test]
    fn every_spelling_is_the_same_json_in_other_bytes() {
        let genuine: Value = serde_json::from_slice(&event().body).unwrap();
        let mut bodies = vec![event().body];

        for spelling in [
            Spelling::Reordered,
            Spelling::OddlySpaced,
            Spelling::OddlySpacedLine,
            Spelling::Padded,
            Spelling::Sorted,
            Spelling::Python,
            Spelling::SortedPython,
            Spelling::Indented,
        ] {
            let body = event().spelled(spelling).body;

            assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), genuine);
            assert!(!bodies.contains(&body), "{spelling:?}");
            bodies.push(body);
        }
    }

    #[test]
    fn each_spelling_has_its_own_white_space_and_escapes() {
        let event = json!({"id": [1, 2], "data": "a@b/c"});
        for (spelling, text) in [
            (Spelling::Documented, r#"{"id":[1,2],"data":"a@b/c"}"#),
            (Spelling::Reordered, r#"{"data":"a@b/c","id":[1,2]}"#),
            (
                Spelling::OddlySpaced,
                "{\n\t \"id\"  :\r\n [\n\t 1 ,\t\n\t 2\n\t ] ,\t\n\t \"data\"  :\r\n \"a\\u0040b\\/c\"\n\t }",
            ),
            (
                Spelling::OddlySpacedLine,
                "{\t \"id\"  :\t [\t 1 ,\t\t 2\t ] ,\t\t \"data\"  :\t \"a\\u0040b\\/c\"\t }",
            ),
            (Spelling::Sorted, r#"{"data":"a@b/c","id":[1,2]}"#),
            (
                Spelling::Padded,
                "\n {\"id\":[1,2],\"data\":\"a@b/c\"} \r\n",
            ),
            (Spelling::Python, r#"{"id": [1, 2], "data": "a@b/c"}"#),
            (Spelling::SortedPython, r#"{"data": "a@b/c", "id": [1, 2]}"#),
            (
                Spelling::Indented,
                "{\n  \"id\": [\n    1,\n    2\n  ],\n  \"data\": \"a@b/c\"\n}",
            ),
        ] {
            assert_eq!(spelling.write(&event), text, "{spelling:?}");
        }
    }

    #[test]
    fn reordered_members_are_in_no_order_that_a_serializer_would_choose() {
        let body = event().spelled(Spelling::Reordered).body;

        assert!(
            body.starts_with(br#"{"data":{"authentication_results":"#),
            "{body:?}"
        );
        assert!(body.ends_with(br#""id":"evt_1"}"#), "{body:?}");
    }

    #[test]
    fn a_long_event_has_exactly_the_length() {
        let event = SampleEvent::long("evt_1", 1_700_000_000, 1_000_000);

        assert_eq!(event.body.len(), 1_000_000);
        assert!(serde_json::from_slice::<Value>(&event.body).is_ok());
    }

    #[test]
    fn no_misreading_is_signed_like_a_genuine_delivery() {
        let now = SystemTime::now();
        let event = SampleEvent::new("evt_1".into(), EventType::Sent, 0);
        let genuine = Signer::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let genuine = genuine.sign(&event.event_type, now, &event.body);
        let hex_secret = "00112233445566778899aabbccddeeff";

        assert_eq!(misreadings(&event, "6Jm0nFq2pXvZk4Tt", now).len(), 8);
        assert_eq!(misreadings(&event, hex_secret, now).len(), 9);
        for misreading in misreadings(&event, "6Jm0nFq2pXvZk4Tt", now) {
            assert_ne!(misreading.headers, genuine, "{}", misreading.mistake);
        }
    }

    #[test]
    fn a_text_of_digits_is_signed_like_the_timestamp_of_a_genuine_delivery() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let genuine = Signer::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let genuine = genuine.sign(&event().event_type, now, &event().body);

        let headers = signed_as(&event(), "6Jm0nFq2pXvZk4Tt", "1700000000");

        assert_eq!(headers, genuine);
    }

    #[test]
    fn a_misreading_of_the_prefix_differs_from_a_genuine_delivery_by_nothing_else() {
        let now = SystemTime::now();
        let genuine = Signer::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let genuine = genuine.sign(&event().event_type, now, &event().body);

        let misreadings = misreadings(&event(), "6Jm0nFq2pXvZk4Tt", now);

        for prefix in ["sha256=", "v1="] {
            let is_about = |misreading: &&Misreading| misreading.mistake.contains(prefix);
            let headers = &misreadings.iter().find(is_about).unwrap().headers;
            let signature = genuine[SIGNATURE_HEADER].to_str().unwrap();
            assert_eq!(headers[SIGNATURE_HEADER], format!("{prefix}{signature}"));
            for name in [TIMESTAMP_HEADER, EVENT_HEADER] {
                assert_eq!(headers[name], genuine[name]);
            }
        }
    }
}
