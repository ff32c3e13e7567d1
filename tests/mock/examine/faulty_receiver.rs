//! A receiver written by hand, as people write them, with at most one fault.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::webhooks::EventType;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::event_of;
use super::faulty_verification::FaultyVerification;
use super::planted::Planted;

pub(crate) struct FaultyReceiver {
    pub(crate) url: String,
    pub(crate) probe: String,
}

struct App {
    fault: Option<Planted>,
    verification: FaultyVerification,
    /// The oldest first.
    seen: Mutex<Vec<String>>,
    effects: Arc<Mutex<HashMap<String, (u64, String)>>>,
    /// How long after a delivery the application acts.
    work: Duration,
}

impl FaultyReceiver {
    pub(crate) async fn start(fault: Option<Planted>) -> Self {
        Self::start_with_work(fault, Duration::ZERO).await
    }

    pub(crate) async fn start_with_work(fault: Option<Planted>, work: Duration) -> Self {
        let app = Arc::new(App {
            fault,
            verification: FaultyVerification::new(fault),
            seen: Mutex::default(),
            effects: Arc::default(),
            work,
        });
        let router = axum::Router::new()
            .route("/hook", post(hook))
            .route("/count", get(count))
            .with_state(app);
        let address = support::serve(router).await;
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
        if self.has(Planted::RemembersForgedIds)
            && let Err(refused) = self.verification.verify(headers, &body)
        {
            let event = serde_json::from_slice(&body).unwrap_or_default();
            self.is_new(self.key(&event, headers));
            return Err(refused);
        }
        self.verification.verify(headers, &body)?;
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
        if self.refuses_members_of(&event) {
            return Err(StatusCode::UNPROCESSABLE_ENTITY);
        }
        let is_known = EventType::KNOWN.contains(&EventType::from(event_type));
        if self.has(Planted::RefusesUnknownTypes) && !is_known
            || self.has(Planted::RefusesOneType) && event_type == "email.clicked"
        {
            return Err(StatusCode::UNPROCESSABLE_ENTITY);
        }
        if self.has(Planted::LosesOneType) && event_type == "email.failed"
            || self.has(Planted::LosesBounces) && event_type == "email.bounced"
            || self.has(Planted::DropsAWrongEventHeader) && headers["webhook-event"] != event_type
        {
            return Ok(());
        }
        let key = self.key(&event, headers);
        if self.has(Planted::ChecksThenActs) {
            if self.seen.lock().unwrap().contains(&key) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.act(&event, headers);
            self.is_new(key);
            return Ok(());
        }
        if self.is_new(key) || self.has(Planted::ActsOnDuplicates) {
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

    /// Whether a strict schema of the receiver lacks a member.
    fn refuses_members_of(&self, event: &Value) -> bool {
        const ENVELOPE: [&str; 4] = ["id", "type", "created_at", "data"];
        const DATA: [&str; 9] = [
            "email_id",
            "inbound_id",
            "from",
            "to",
            "subject",
            "bounce_type",
            "detail",
            "text",
            "authentication_results",
        ];
        let (members, known) = match self.fault {
            Some(Planted::RefusesNewMembersOfData) => (&event["data"], &DATA[..]),
            Some(Planted::RefusesNewMembersOfTheEnvelope) => (event, &ENVELOPE[..]),
            _ => return false,
        };
        let mut names = members.as_object().unwrap().keys();
        names.any(|name| !known.contains(&name.as_str()))
    }

    fn is_new(&self, key: String) -> bool {
        let mut seen = self.seen.lock().unwrap();
        if seen.contains(&key) {
            return false;
        }
        if self.has(Planted::RemembersFewIds) && seen.len() == 100 {
            seen.remove(0);
        }
        seen.push(key);
        true
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
        if self.has(Planted::ComparesTimestamps) {
            return format!("{:?}", headers.get("webhook-timestamp"));
        }
        if self.has(Planted::ComparesABodyWithoutItsId) {
            let mut event = event.clone();
            event["id"] = Value::Null;
            return event.to_string();
        }
        if self.has(Planted::ComparesIdsWithoutCase) {
            return event["id"].to_string().to_lowercase();
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
        let event_type = event_type.to_owned();
        let effects = Arc::clone(&self.effects);
        let act = move || {
            let mut effects = effects.lock().unwrap();
            let effect = effects.entry(id).or_default();
            effect.0 += 1;
            effect.1 = event_type;
        };
        if self.work.is_zero() {
            return act();
        }
        let done = tokio::time::sleep(self.work);
        tokio::spawn(async {
            done.await;
            act();
        });
    }
}
