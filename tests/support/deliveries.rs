//! The deliveries of `fixtures/webhooks`, whose README explains the format. `tests/wasm` uses this file too.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use audience::webhooks::{
    BounceType, Event, EventData, MailEvent, VerifiedDelivery, Verifier, VerifierBuilder,
    VerifyError,
};
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
pub struct Delivery {
    pub name: String,
    #[serde(rename = "why")]
    _why: String,
    headers: Vec<(String, String)>,
    body: String,
    #[serde(default)]
    spaces: usize,
    pub now: i64,
    pub secrets: Vec<(String, String)>,
    #[serde(default = "default_tolerance")]
    pub tolerance: u64,
    #[serde(default = "default_body_limit")]
    pub body_limit: usize,
    #[serde(default = "yes")]
    pub http: bool,
    pub expect: Verdict,
}

/// The outcome of a delivery, in the form of the corpus.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    pub status: u16,
    pub error: Option<String>,
    pub seconds_apart: Option<u64>,
    pub secret: Option<String>,
    pub age: Option<i64>,
    pub event: Option<Value>,
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

pub fn fixtures(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
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

/// Returns all deliveries of all files.
pub fn all() -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    for path in fixtures("webhooks") {
        let read = read(&fs::read(&path).unwrap());
        let prefix = format!("{}: ", path.file_stem().unwrap().display());
        let has_theme = |delivery: &Delivery| delivery.name.starts_with(&prefix);
        assert!(read.iter().all(has_theme), "the theme is not {prefix}");
        deliveries.extend(read);
    }
    deliveries
}

/// Returns the deliveries of one file. The file's theme precedes each name.
pub fn read(file: &[u8]) -> Vec<Delivery> {
    let file: File = serde_json::from_slice(file).unwrap();
    let with_theme = |mut delivery: Delivery| {
        delivery.name = format!("{}: {}", file.theme, delivery.name);
        delivery
    };
    file.cases.into_iter().map(with_theme).collect()
}

impl Delivery {
    /// Returns the headers as bytes: one character of a value is one byte.
    pub fn headers(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        self.headers.iter().map(|(name, value)| {
            let bytes = value.chars().map(|c| u8::try_from(c).unwrap()).collect();
            (name.as_str(), bytes)
        })
    }

    pub fn header_map(&self) -> HeaderMap {
        self.headers()
            .map(|(name, value)| {
                let name = HeaderName::try_from(name).unwrap();
                (name, HeaderValue::try_from(value).unwrap())
            })
            .collect()
    }

    pub fn body(&self) -> Vec<u8> {
        let mut body: Vec<u8> = (0..self.body.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&self.body[at..at + 2], 16).unwrap())
            .collect();
        body.resize(body.len() + self.spaces, b' ');
        body
    }

    pub fn moment(&self) -> SystemTime {
        moment(self.now)
    }

    pub fn verifier(&self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Verifier {
        self.verifier_builder().clock(clock).build().unwrap()
    }

    /// Returns a verifier with these settings, and with the clock of the operating system.
    pub fn verifier_builder(&self) -> VerifierBuilder {
        self.secrets
            .iter()
            .fold(Verifier::builder(), |builder, (name, secret)| {
                builder.secret(name, secret)
            })
            .tolerance(Duration::from_secs(self.tolerance))
            .body_limit(self.body_limit)
    }

    /// Verifies the delivery.
    pub fn verdict(&self, verifier: &Verifier) -> Verdict {
        let (headers, body) = (self.header_map(), self.body());
        let authenticated = verifier.authenticate(&headers, &body);
        match authenticated.and_then(|genuine| Ok((genuine.event()?, genuine))) {
            Ok((event, genuine)) => Verdict {
                status: 200,
                secret: Some(genuine.secret_name().to_owned()),
                age: Some(seconds_old(&genuine)),
                event: Some(event_as_json(&event)),
                ..Verdict::default()
            },
            Err(error) => Verdict {
                status: error.status().as_u16(),
                seconds_apart: error
                    .skew()
                    .map(|skew| skew.as_secs())
                    .filter(fits_a_double),
                error: Some(error_name(&error)),
                ..Verdict::default()
            },
        }
    }

    /// Verifies the delivery, and returns how the outcome differs from the expected one.
    pub fn check(&self, verifier: &Verifier) -> Result<(), String> {
        let found = self.verdict(verifier);
        let expected = &self.expect;
        if found == *expected {
            Ok(())
        } else {
            Err(format!("{}: {found:?}, expected {expected:?}", self.name))
        }
    }
}

/// Returns the time that is this many seconds after 1970, or before it.
pub fn moment(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        SystemTime::UNIX_EPOCH - distance
    } else {
        SystemTime::UNIX_EPOCH + distance
    }
}

/// Returns how many seconds the delivery is behind the clock, negative if it is ahead.
fn seconds_old(delivery: &VerifiedDelivery<'_>) -> i64 {
    let seconds = i64::try_from(delivery.skew().as_secs()).unwrap_or(i64::MAX);
    if delivery.is_early() {
        -seconds
    } else {
        seconds
    }
}

fn fits_a_double(seconds: &u64) -> bool {
    *seconds < 1 << 53
}

/// Returns the variant's name, which the corpus uses for the error.
pub fn error_name(error: &VerifyError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(', '{']).next().unwrap().to_owned()
}

/// Returns the event in the form of the corpus.
pub fn event_as_json(event: &Event) -> Value {
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
