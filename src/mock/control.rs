//! The control plane, `/_mock/…`: the same levers as the Rust face has, for programs in any language.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::ALLOW;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::delivery::event::NewEvent;
use super::delivery::post::Target;
use super::exchange::Answer;
use super::faults::json::FaultJson;
use super::journal::RecordedRequest;
use super::service::segment::SegmentKind;
use super::state::Shared;

/// Whether a request is one to the control plane, and so none to the service.
pub(super) fn is_control(path: &str) -> bool {
    path.strip_prefix("/_mock")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a call of the control plane.
pub(super) async fn answer(shared: &Arc<Shared>, request: &RecordedRequest) -> Answer {
    let mut segments = Vec::new();
    for segment in request.path.split('/').skip(2) {
        match percent_decode_str(segment).decode_utf8() {
            Ok(segment) => segments.push(segment),
            Err(_) => return Refusal::Invalid("the path is not UTF-8".into()).into(),
        }
    }
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();

    act(shared, &request.method, &segments, &request.body)
        .await
        .unwrap_or_else(Answer::from)
}

/// One row of the control plane's table for each arm; a path that is in the table knows its methods.
async fn act(
    shared: &Arc<Shared>,
    method: &str,
    path: &[&str],
    body: &[u8],
) -> Result<Answer, Refusal> {
    match (path, method) {
        (["health"], "GET") => Ok(ok(&json!({"status": "ok"}))),
        (["health"], _) => Err(Refusal::Method("GET")),

        (["reset"], "POST") => {
            shared.reset();
            Ok(done())
        }
        (["reset"], _) => Err(Refusal::Method("POST")),

        (["topics", name], "PUT") => {
            let Topic { default } = read(body)?;
            shared.lock().audience.put_topic(name, default);
            Ok(done())
        }
        (["topics", _], _) => Err(Refusal::Method("PUT")),

        (["segments", id], "PUT") => {
            let kind = read::<Segment>(body)?.kind()?;
            shared
                .lock()
                .audience
                .put_segment(id, kind)
                .map_err(Refusal::Invalid)?;
            Ok(done())
        }
        (["segments", _], _) => Err(Refusal::Method("PUT")),

        (["contacts", address, "complaint"], "POST") => {
            shared.report_spam(address);
            Ok(done())
        }
        (["contacts", _, "complaint"], _) => Err(Refusal::Method("POST")),

        (["contacts", address, "engagement"], "POST") => {
            let Engagement { what, at } = read(body)?;
            let at = at.unwrap_or_else(|| shared.clock.unix());
            let engaged = shared.lock().audience.record_engagement(address, &what, at);
            engaged.map_err(Refusal::Invalid)?;
            Ok(done())
        }
        (["contacts", _, "engagement"], _) => Err(Refusal::Method("POST")),

        (["clock"], "GET") => Ok(now(shared)),
        (["clock"], "POST") => {
            let passage = match read(body)? {
                TimeJson::Advance(seconds) => shared.advance(Duration::from_secs(seconds)),
                TimeJson::Set(to) => shared.set_clock(to),
            };
            shared.arrived(passage).await;
            Ok(now(shared))
        }
        (["clock"], _) => Err(Refusal::Method("GET, POST")),

        (["ceiling"], "PUT") => {
            let Ceiling { contacts } = read(body)?;
            shared.lock().audience.set_ceiling(contacts);
            Ok(done())
        }
        (["ceiling"], _) => Err(Refusal::Method("PUT")),

        (["faults"], "POST") => {
            let fault = read::<FaultJson>(body)?.fault().map_err(Refusal::Invalid)?;
            shared.lock().faults.add(fault);
            Ok(done())
        }
        (["faults"], "DELETE") => {
            shared.lock().faults.clear();
            Ok(done())
        }
        (["faults"], _) => Err(Refusal::Method("POST, DELETE")),

        (["requests"], "GET") => {
            let requests = shared.lock().journal.entries();
            let data: Vec<_> = requests.iter().map(request_json).collect();
            Ok(ok(&json!({"data": data})))
        }
        (["requests"], "DELETE") => {
            shared.lock().journal.clear();
            Ok(done())
        }
        (["requests"], _) => Err(Refusal::Method("GET, DELETE")),

        (["endpoints", name], "PUT") => {
            let Endpoint { url, secret } = read(body)?;
            let target = Target::new(&url, &secret).map_err(Refusal::Invalid)?;
            shared.lock().deliveries.put_endpoint(name, target);
            Ok(done())
        }
        (["endpoints", name], "DELETE") => {
            if shared.lock().deliveries.remove_endpoint(name) {
                Ok(done())
            } else {
                Err(Refusal::NotFound(format!("there is no endpoint {name:?}")))
            }
        }
        (["endpoints", _], _) => Err(Refusal::Method("PUT, DELETE")),

        (["events"], "POST") => {
            let event = NewEvent::parse(read(body)?).map_err(Refusal::Invalid)?;
            let id = shared.send_event(event).await;
            Ok(ok(&json!({"id": id})))
        }
        (["events"], _) => Err(Refusal::Method("POST")),

        (["events", id, "redeliver"], "POST") => {
            if shared.redeliver(id).await {
                Ok(done())
            } else {
                Err(Refusal::NotFound(format!("there is no event {id:?}")))
            }
        }
        (["events", _, "redeliver"], _) => Err(Refusal::Method("POST")),

        (["attempts"], "GET") => {
            let attempts = shared.lock().deliveries.attempts();
            Ok(ok(&json!({"data": attempts})))
        }
        (["attempts"], _) => Err(Refusal::Method("GET")),

        _ => Err(Refusal::NotFound(format!(
            "there is no /_mock/{} in the control plane",
            path.join("/")
        ))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Topic {
    default: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Segment {
    contacts: Option<Vec<String>>,
    rule: Option<Value>,
}

impl Segment {
    fn kind(self) -> Result<SegmentKind, Refusal> {
        match (self.contacts, self.rule) {
            (Some(contacts), None) => Ok(SegmentKind::Contacts(contacts)),
            (None, Some(rule)) => Ok(SegmentKind::Rule(rule)),
            _ => Err(Refusal::Invalid(
                "a segment has either `contacts` or a `rule`".into(),
            )),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Engagement {
    what: String,
    at: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum TimeJson {
    Advance(u64),
    Set(i64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ceiling {
    // Not simply an `Option`, which may be left out.
    #[serde(deserialize_with = "Option::deserialize")]
    contacts: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoint {
    url: String,
    secret: String,
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    if body.is_empty() {
        return Err(Refusal::Invalid("this call needs a JSON body".into()));
    }
    serde_json::from_slice(body)
        .map_err(|error| Refusal::Invalid(format!("the body cannot be used: {error}")))
}

fn now(shared: &Shared) -> Answer {
    ok(&json!({"now": shared.clock.now()}))
}

/// A header that came more than once stands there once, its values joined as HTTP joins them.
fn request_json(request: &RecordedRequest) -> Value {
    let mut headers = Map::new();
    for (name, value) in &request.headers {
        match headers.get_mut(name) {
            Some(Value::String(have)) => {
                have.push_str(", ");
                have.push_str(value);
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

fn ok(body: &Value) -> Answer {
    Answer {
        status: 200,
        headers: Vec::new(),
        body: body.to_string().into_bytes(),
    }
}

fn done() -> Answer {
    Answer {
        status: 204,
        ..Answer::default()
    }
}

enum Refusal {
    NotFound(String),
    /// The methods that there are.
    Method(&'static str),
    Invalid(String),
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound(message) => Self::error(404, "not_found", &message),
            Refusal::Method(allowed) => {
                let message = format!("the methods here are: {allowed}");
                let mut answer = Self::error(405, "method_not_allowed", &message);
                answer
                    .headers
                    .push((ALLOW, HeaderValue::from_static(allowed)));
                answer
            }
            Refusal::Invalid(message) => Self::error(422, "validation_error", &message),
        }
    }
}
