//! The deliveries of `fixtures/webhooks`, whose README explains the format.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use audience::webhooks::{BounceType, Event, EventData, MailEvent, Verifier, VerifyError};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    theme: String,
    cases: Vec<Delivery>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delivery {
    pub(crate) name: String,
    #[serde(rename = "why")]
    _why: String,
    headers: Vec<(String, String)>,
    body: String,
    #[serde(default)]
    spaces: usize,
    pub(crate) now: u64,
    pub(crate) secrets: Vec<(String, String)>,
    #[serde(default = "default_tolerance")]
    pub(crate) tolerance: u64,
    #[serde(default = "default_body_limit")]
    pub(crate) body_limit: usize,
    #[serde(default = "yes")]
    pub(crate) http: bool,
    pub(crate) expect: Expected,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    pub(crate) status: u16,
    pub(crate) error: Option<String>,
    pub(crate) seconds_apart: Option<u64>,
    pub(crate) secret: Option<String>,
    pub(crate) age: Option<i64>,
    pub(crate) event: Option<Value>,
}

fn default_tolerance() -> u64 {
    300
}

fn default_body_limit() -> usize {
    2 * 1024 * 1024
}

fn yes() -> bool {
    true
}

pub(crate) fn fixtures(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(directory);
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    files
}

/// Returns all deliveries of all files. The file's theme precedes each name.
pub(crate) fn all() -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    for path in fixtures("webhooks") {
        let file: File = serde_json::from_slice(&fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(path.file_stem().unwrap(), file.theme.as_str());
        deliveries.extend(file.cases.into_iter().map(|mut delivery| {
            delivery.name = format!("{}: {}", file.theme, delivery.name);
            delivery
        }));
    }
    deliveries
}

impl Delivery {
    /// Returns the headers as bytes: one character of a value is one byte.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        self.headers.iter().map(|(name, value)| {
            let bytes = value.chars().map(|c| u8::try_from(c).unwrap()).collect();
            (name.as_str(), bytes)
        })
    }

    pub(crate) fn header_map(&self) -> HeaderMap {
        self.headers()
            .map(|(name, value)| {
                let name = HeaderName::try_from(name).unwrap();
                (name, HeaderValue::try_from(value).unwrap())
            })
            .collect()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body: Vec<u8> = (0..self.body.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&self.body[at..at + 2], 16).unwrap())
            .collect();
        body.resize(body.len() + self.spaces, b' ');
        body
    }

    pub(crate) fn moment(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.now)
    }

    pub(crate) fn verifier(
        &self,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Verifier {
        self.secrets
            .iter()
            .fold(Verifier::builder(), |builder, (name, secret)| {
                builder.secret(name, secret)
            })
            .tolerance(Duration::from_secs(self.tolerance))
            .body_limit(self.body_limit)
            .clock(clock)
            .build()
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// Returns the variant's name, which the corpus uses for the error.
pub(crate) fn error_name(error: &VerifyError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(', '{']).next().unwrap().to_owned()
}

/// Returns the event in the form of the corpus.
pub(crate) fn event_as_json(event: &Event) -> Value {
    let (shape, data) = match &event.data {
        EventData::Received(mail) => (
            "inbound",
            json!({
                "inbound_id": mail.inbound_id,
                "from": mail.from,
                "to": mail.to,
                "subject": mail.subject,
                "in_reply_to_email_id": mail.in_reply_to_email_id,
                "text": mail.text,
                "authentication_results": mail.authentication_results.as_str(),
            }),
        ),
        EventData::Unknown { data, .. } => ("other", data.clone()),
        _ => ("mail", mail_as_json(event.mail().unwrap())),
    };
    json!({
        "id": event.id.as_str(),
        "type": event.event_type().as_str(),
        "created_at": event.created_at.as_unix(),
        "shape": shape,
        "data": data,
    })
}

fn mail_as_json(mail: &MailEvent) -> Value {
    json!({
        "email_id": mail.email_id,
        "from": mail.from,
        "to": mail.to,
        "subject": mail.subject,
        "bounce_type": mail.bounce_type.as_ref().map(BounceType::as_str),
        "detail": mail.detail,
    })
}
