//! The JSON bodies of the control plane.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::mock::delivery::SigningClock;
use crate::mock::recorded_request::RecordedRequest;
use crate::mock::service::mail_outcome::{MailOutcome, OutcomeKind};
use crate::mock::service::refusal::Refusal;
use crate::mock::service::segment::SegmentKind;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicBody {
    pub(super) default: bool,
}

/// Either a list of addresses or a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SegmentBody {
    contacts: Option<Vec<String>>,
    rule: Option<Value>,
}

impl SegmentBody {
    pub(super) fn into_kind(self) -> Result<SegmentKind, Refusal> {
        match (self.contacts, self.rule) {
            (Some(contacts), None) => Ok(SegmentKind::Contacts(contacts)),
            (None, Some(rule)) => Ok(SegmentKind::Rule(rule)),
            _ => Err(Refusal::invalid(
                "a segment needs either `contacts` or a `rule`",
            )),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngagementBody {
    pub(super) what: String,
    /// In Unix seconds. Default: now.
    pub(super) at: Option<i64>,
}

/// How to move the clock.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClockBody {
    /// Forward by this many seconds.
    Advance(u64),
    /// To this Unix time.
    Set(i64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CeilingBody {
    // A plain `Option` could be left out. `null` must be written.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) contacts: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointBody {
    pub(super) url: String,
    pub(super) secret: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SigningClockBody {
    pub(super) clock: SigningClockName,
}

/// The name of a [`SigningClock`].
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SigningClockName {
    Mock,
    Wall,
}

impl From<SigningClockName> for SigningClock {
    fn from(name: SigningClockName) -> Self {
        match name {
            SigningClockName::Mock => Self::Mock,
            SigningClockName::Wall => Self::Wall,
        }
    }
}

/// What happens to a sent mail.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutcomeBody {
    #[serde(rename = "type")]
    event_type: String,
    /// Default: the only recipient of the mail.
    to: Option<String>,
    /// The form of [`OutcomeData`]. A map first: `serde` would accept an array in place of the struct.
    #[serde(default)]
    data: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeData {
    bounce_type: Option<String>,
    detail: Option<String>,
}

impl OutcomeBody {
    pub(super) fn into_outcome(self) -> Result<MailOutcome, Refusal> {
        let kind = OutcomeKind::from_event_type(&self.event_type).map_err(Refusal::invalid)?;
        let data: OutcomeData = serde_json::from_value(self.data.into())
            .map_err(|error| Refusal::invalid(format!("`data` is invalid: {error}")))?;
        let mut outcome = MailOutcome::new(kind);
        if let Some(to) = self.to {
            outcome = outcome.to(to);
        }
        if let Some(bounce_type) = data.bounce_type {
            outcome = outcome.bounce_type(bounce_type);
        }
        if let Some(detail) = data.detail {
            outcome = outcome.detail(detail);
        }
        Ok(outcome)
    }
}

/// Returns a recorded request as JSON. The values of a repeated header are joined by `, `, as HTTP allows.
pub(super) fn request_json(request: &RecordedRequest) -> Value {
    let mut headers = Map::new();
    for (name, value) in &request.headers {
        match headers.get_mut(name) {
            Some(Value::String(joined)) => {
                joined.push_str(", ");
                joined.push_str(value);
            }
            _ => {
                headers.insert(name.clone(), value.as_str().into());
            }
        }
    }
    json!({
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "headers": headers,
        "body": String::from_utf8_lossy(&request.body),
        "status": request.status,
        "reason": request.reason,
        "at": request.at,
    })
}
