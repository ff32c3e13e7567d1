//! The JSON bodies of the control plane.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::mock::journal::RecordedRequest;
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
    })
}
