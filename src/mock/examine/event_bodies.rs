//! The bodies of the deliveries.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::mock::delivery::event::NewEvent;
use crate::webhooks::EventType;

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
        let event = NewEvent::parse(json).expect("a type of the table and an object are an event");
        let sample = Self {
            body: event.envelope(&id, created_at),
            id,
            event_type,
        };
        sample.spelled(Spelling::Documented)
    }

    /// Creates an event whose text is as long as makes a body of `length` bytes.
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
    /// The document's order, with tabs, newlines, blanks and escapes where nobody expects them.
    OddlySpaced,
    /// Compact, members in alphabetical order: what many serializers write.
    Sorted,
    /// The service's own, with white space around it.
    Padded,
    /// A blank after each comma and colon: what Python's `json.dumps` writes.
    Python,
    /// The same, with sorted members.
    SortedPython,
    /// Indented by two blanks, in the document's order.
    Indented,
}

impl Spelling {
    /// What a receiver may make of a body that it parses and serializes again.
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

    /// Returns what the members of an object are sorted by.
    fn rank(self, name: &str) -> (usize, String) {
        let place = match self {
            Self::Sorted | Self::SortedPython => None,
            _ => MEMBERS.iter().position(|member| *member == name),
        };
        (place.unwrap_or(MEMBERS.len()), name.to_owned())
    }

    fn comma(self) -> &'static str {
        match self {
            Self::OddlySpaced => " ,\t",
            Self::Python | Self::SortedPython => ", ",
            _ => ",",
        }
    }

    fn colon(self) -> &'static str {
        match self {
            Self::OddlySpaced => "  :\r\n ",
            Self::Python | Self::SortedPython | Self::Indented => ": ",
            _ => ":",
        }
    }

    fn break_line(self, depth: usize, text: &mut String) {
        match self {
            Self::OddlySpaced => text.push_str("\n\t "),
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
            Self::OddlySpaced => plain.replace('@', "\\u0040").replace('/', "\\/"),
            _ => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
