//! A receiver written by hand, as people write them, with at most one fault.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audience::webhooks::{EventType, Signer};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use super::event_of;
use crate::support::enum_with_all;
use crate::support::receiver::SECRET;

enum_with_all! {
    pub(crate) enum Planted {
        AcceptsEverything,
        SkipsAMissingSignature,
        SkipsAnEmptySignature,
        ComparesAPrefix,
        IgnoresCase,
        TakesTheFirstSignature,
        RemembersSignatures,
        CrashesWithoutASignature,
        CrashesWithoutATimestamp,
        RedirectsToALogin,
        IgnoresTheTimestamp,
        IgnoresTimestampsAhead,
        HasANarrowWindow,
        HasAWideWindow,
        SerializesAgain,
        SerializesAgainSorted,
        DecodesAsAscii,
        LimitsBodiesTo100Kilobytes,
        RefusesUnknownTypes,
        RefusesOneType,
        BelievesTheEventHeader,
        CrashesWithoutJson,
        ActsOnDuplicates,
        ComparesIdAndTimestamp,
        ComparesABodyWithoutItsId,
        RefusesDuplicates,
        ChecksThenActs,
        LosesOneType,
        ActsBeforeItVerifies,
        ReadsOneChunk,
        AcceptsHalfABody,
        HasAnotherSecret,
        SignsTheBodyAlone,
        ExpectsBase64,
        HasASlowClock,
    }
}

pub(crate) struct FaultyReceiver {
    pub(crate) url: String,
    pub(crate) probe: String,
}

struct App {
    fault: Option<Planted>,
    signer: Signer,
    seen: Mutex<HashSet<String>>,
    right_signatures: Mutex<HashSet<String>>,
    effects: Mutex<HashMap<String, (u64, String)>>,
}

impl FaultyReceiver {
    pub(crate) async fn start(fault: Option<Planted>) -> Self {
        let secret = match fault {
            Some(Planted::HasAnotherSecret) => "another secret of the test",
            _ => SECRET,
        };
        let app = Arc::new(App {
            fault,
            signer: Signer::new(secret).unwrap(),
            seen: Mutex::default(),
            right_signatures: Mutex::default(),
            effects: Mutex::default(),
        });
        let router = axum::Router::new()
            .route("/hook", post(hook))
            .route("/count", get(count))
            .with_state(app);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            url: format!("http://{address}/hook"),
            probe: format!("http://{address}/count"),
        }
    }
}

async fn count(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Json<Value> {
    match app.effects.lock().unwrap().get(event_of(query.as_deref())) {
        Some((count, event_type)) => Json(json!({"count": count, "type": event_type})),
        None => Json(json!({"count": 0})),
    }
}

async fn hook(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    match app.handle(&headers, body).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(StatusCode::UNAUTHORIZED) if app.has(Planted::RedirectsToALogin) => {
            (StatusCode::SEE_OTHER, [("location", "/login")]).into_response()
        }
        Err(StatusCode::UNAUTHORIZED) if app.has(Planted::HasASlowClock) => {
            let date = [("date", "Sun, 06 Nov 1994 08:49:37 GMT")];
            (StatusCode::UNAUTHORIZED, date).into_response()
        }
        Err(status) => status.into_response(),
    }
}

impl App {
    fn has(&self, fault: Planted) -> bool {
        self.fault == Some(fault)
    }

    async fn handle(&self, headers: &HeaderMap, body: Body) -> Result<(), StatusCode> {
        let body = self.read(body).await?;
        if self.has(Planted::ActsBeforeItVerifies)
            && let Ok(event) = serde_json::from_slice::<Value>(&body)
        {
            self.act(&event, headers);
        }
        self.verify(headers, &body)?;
        let event: Value = serde_json::from_slice(&body).map_err(|_| {
            if self.has(Planted::CrashesWithoutJson) {
                StatusCode::INTERNAL_SERVER_ERROR
            } else {
                StatusCode::BAD_REQUEST
            }
        })?;
        if !event["id"].is_string() {
            return Err(StatusCode::BAD_REQUEST);
        }
        let event_type = event["type"].as_str().ok_or(StatusCode::BAD_REQUEST)?;
        let is_known = EventType::KNOWN.contains(&EventType::from(event_type));
        if self.has(Planted::RefusesUnknownTypes) && !is_known
            || self.has(Planted::RefusesOneType) && event_type == "email.clicked"
        {
            return Err(StatusCode::UNPROCESSABLE_ENTITY);
        }
        if self.has(Planted::LosesOneType) && event_type == "email.failed" {
            return Ok(());
        }
        let key = self.key(&event, headers);
        if self.has(Planted::ChecksThenActs) {
            if self.seen.lock().unwrap().contains(&key) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.act(&event, headers);
            self.seen.lock().unwrap().insert(key);
            return Ok(());
        }
        if self.seen.lock().unwrap().insert(key) || self.has(Planted::ActsOnDuplicates) {
            if !self.has(Planted::ActsBeforeItVerifies) {
                self.act(&event, headers);
            }
            Ok(())
        } else if self.has(Planted::RefusesDuplicates) {
            Err(StatusCode::CONFLICT)
        } else {
            Ok(())
        }
    }

    async fn read(&self, mut body: Body) -> Result<Bytes, StatusCode> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return match self.has(Planted::AcceptsHalfABody) {
                    true => Err(StatusCode::OK),
                    false => Err(StatusCode::BAD_REQUEST),
                };
            };
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if bytes.len() > 100_000 && self.has(Planted::LimitsBodiesTo100Kilobytes) {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            // What a first read returns, for a body that arrives slowly. A long one takes several.
            if self.has(Planted::ReadsOneChunk) && bytes.len() < 100 {
                break;
            }
        }
        Ok(bytes.into())
    }

    fn key(&self, event: &Value, headers: &HeaderMap) -> String {
        if self.has(Planted::ComparesIdAndTimestamp) {
            return format!("{} {:?}", event["id"], headers.get("webhook-timestamp"));
        }
        if self.has(Planted::ComparesABodyWithoutItsId) {
            let mut event = event.clone();
            event["id"] = Value::Null;
            return event.to_string();
        }
        event["id"].to_string()
    }

    fn act(&self, event: &Value, headers: &HeaderMap) {
        let of_header = headers
            .get("webhook-event")
            .and_then(|value| value.to_str().ok());
        let event_type = match of_header {
            Some(name) if self.has(Planted::BelievesTheEventHeader) => name,
            _ => event["type"].as_str().unwrap_or_default(),
        };
        let id = event["id"].as_str().unwrap_or_default().to_owned();
        let mut effects = self.effects.lock().unwrap();
        let effect = effects.entry(id).or_default();
        effect.0 += 1;
        effect.1 = event_type.to_owned();
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), StatusCode> {
        const REFUSED: StatusCode = StatusCode::UNAUTHORIZED;
        const CRASH: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());

        if self.has(Planted::AcceptsEverything) {
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
        let seconds: u64 = timestamp.parse().map_err(|_| REFUSED)?;
        let expected = self.signature(seconds, body);
        let is_right = match self.fault {
            Some(Planted::SkipsAnEmptySignature) => signature.is_empty() || signature == expected,
            Some(Planted::ComparesAPrefix) => {
                signature.len() >= 16 && expected.starts_with(signature)
            }
            Some(Planted::IgnoresCase) => expected.eq_ignore_ascii_case(signature),
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
        Ok(())
    }

    fn is_recent(&self, timestamp: u64) -> bool {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        match self.fault {
            Some(Planted::IgnoresTheTimestamp) => true,
            Some(Planted::IgnoresTimestampsAhead) => now.saturating_sub(timestamp) <= 300,
            Some(Planted::HasANarrowWindow) => now.abs_diff(timestamp) <= 60,
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
                match serde_json::from_slice::<std::collections::BTreeMap<String, Value>>(body) {
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
            Some(Planted::SignsTheBodyAlone) => super::mac(SECRET, body),
            Some(Planted::ExpectsBase64) => base64(&sign(body)),
            _ => sign(body),
        }
    }
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
