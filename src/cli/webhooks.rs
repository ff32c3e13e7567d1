//! The commands for webhook deliveries.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::contacts::by_line;
use super::output::{Failure, Output};
use crate::Timestamp;
use crate::client::post_to;
use crate::secret::read_secret;
use crate::terminal::{printable, text};
use crate::webhooks::{Diagnosis, EventType, Signer, Verifier, VerifierBuilder, secrets_from_env};

#[derive(Args)]
#[command(
    after_help = "Example:\n  audience webhooks send http://127.0.0.1:8080/hook email.bounced"
)]
pub(super) struct WebhooksOptions {
    #[command(subcommand)]
    command: WebhooksCommand,
}

#[derive(Subcommand)]
enum WebhooksCommand {
    /// Verify a delivery that was saved, and show its event
    #[command(after_help = "\
Exit status: 0 if the delivery is genuine, 1 if it is not.

Example:
  audience webhooks verify body.json --headers headers.txt --any-age")]
    Verify {
        #[command(flatten)]
        delivery: Delivery,
        #[command(flatten)]
        secret: SigningSecret,
    },
    /// Find out why a delivery was rejected that should have been accepted
    #[command(after_help = "\
Exit status: 0 if the delivery is accepted, 1 if it is not.

Example:
  audience webhooks diagnose body.json --headers headers.txt --other-secret-file old-secret.txt")]
    Diagnose {
        #[command(flatten)]
        delivery: Delivery,
        #[command(flatten)]
        secret: SigningSecret,
        /// Also try the secret in this file, such as one that was replaced; can be repeated
        #[arg(long = "other-secret-file", value_name = "FILE")]
        others: Vec<PathBuf>,
    },
    /// Sign an event and post it to a webhook endpoint, as the service does
    Send(Send),
}

pub(super) async fn run(options: WebhooksOptions, output: Output) -> Result<ExitCode, Failure> {
    match options.command {
        WebhooksCommand::Verify { delivery, secret } => verify(&delivery, &secret, output),
        WebhooksCommand::Diagnose {
            delivery,
            secret,
            others,
        } => diagnose(&delivery, &secret, &others, output),
        WebhooksCommand::Send(send) => send.run(output).await,
    }
}

#[derive(Args)]
struct SigningSecret {
    /// Read the signing secret from this file [default: from the variables that audience --help lists]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SigningSecret {
    /// Returns the secret, and the old one if the environment has it: what a receiver accepts.
    fn read(&self) -> Result<(String, Option<String>), Failure> {
        if let Some(file) = &self.secret_file {
            let secret = read_secret(file).map_err(|error| unreadable(file, &error))?;
            return Ok((secret, None));
        }
        secrets_from_env().map_err(|error| {
            Failure::usage(error.to_string())
                .note("--secret-file FILE is read instead of the variables")
        })
    }
}

/// A delivery that was saved.
#[derive(Args)]
struct Delivery {
    /// Read the body from this file, unchanged; - reads standard input
    #[arg(value_name = "BODY")]
    body: PathBuf,
    /// Read the headers from this file, one per line
    #[arg(long, value_name = "FILE", required_unless_present = "header")]
    headers: Option<PathBuf>,
    /// Add a header; can be repeated
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Accept a delivery however old it is
    #[arg(long)]
    any_age: bool,
}

impl Delivery {
    /// Builds a verifier with these secrets.
    fn verifier(
        &self,
        builder: VerifierBuilder,
        secret: &str,
        old: Option<&str>,
    ) -> Result<Verifier, Failure> {
        let mut builder = builder.secret("default", secret);
        if let Some(old) = old {
            builder = builder.secret("old", old);
        }
        if self.any_age {
            builder = builder.tolerance(Duration::MAX);
        }
        builder
            .build()
            .map_err(|error| Failure::usage(error.to_string()))
    }

    fn body(&self) -> Result<Vec<u8>, Failure> {
        let read = if self.body.as_os_str() == "-" {
            let mut body = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut body);
            read.map(|_| body)
        } else {
            std::fs::read(&self.body)
        };
        read.map_err(|error| unreadable(&self.body, &error))
    }

    fn headers(&self) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        if let Some(file) = &self.headers {
            let text = std::fs::read(file).map_err(|error| unreadable(file, &error))?;
            let text = String::from_utf8_lossy(&text);
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            for (number, line) in text.lines().enumerate() {
                match header(line) {
                    Some((name, value)) => {
                        headers.append(name, value);
                    }
                    // This is the request line, or the line before the body.
                    None if number == 0 || line.trim().is_empty() => {}
                    None => {
                        return Err(Failure::usage(format!(
                            "line {} of {} is not a header such as `webhook-timestamp: 1700000000`",
                            number + 1,
                            file.display()
                        )));
                    }
                }
            }
        }
        for line in &self.header {
            let (name, value) = header(line).ok_or_else(|| {
                Failure::usage("--header is not of the form `webhook-timestamp: 1700000000`")
            })?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

fn unreadable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("could not read {}: {error}", file.display()))
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let name = name.trim().parse().ok()?;
    // Other headers may have letters that are not ASCII.
    let value = HeaderValue::from_bytes(value.trim().as_bytes()).ok()?;
    Some((name, value))
}

fn verify(
    delivery: &Delivery,
    secret: &SigningSecret,
    output: Output,
) -> Result<ExitCode, Failure> {
    let (secret, old) = secret.read()?;
    // The receiver may have a higher limit than the default.
    let builder = Verifier::builder().body_limit(usize::MAX);
    let verifier = delivery.verifier(builder, &secret, old.as_deref())?;
    let (headers, body) = (delivery.headers()?, delivery.body()?);
    let verified = verifier.verify(&headers, &body).map_err(|error| {
        let failure = Failure::failed(error.to_string()).code("rejected");
        failure.status(error.status().as_u16())
    })?;
    // The body has all members. The verifier also reads bodies that a `Value` cannot hold, such as one with half a
    // surrogate pair or a number that is out of range.
    let event = serde_json::from_slice(&body).or_else(|_| serde_json::to_value(&verified));
    let event: Value = event.map_err(|error| Failure::failed(error.to_string()))?;
    output.result(&event, |event| {
        let mut members = Vec::new();
        for (name, value) in event.as_object().into_iter().flatten() {
            match value.as_object() {
                Some(data) if name == "data" => members.extend(
                    data.iter()
                        .map(|(name, value)| (format!("data.{name}"), text(value))),
                ),
                _ if name == "created_at" => {
                    let time = value.as_i64().map(Timestamp::from_unix);
                    members.push((
                        name.clone(),
                        time.map_or_else(|| text(value), |time| time.to_string()),
                    ));
                }
                _ => members.push((name.clone(), text(value))),
            }
        }
        by_line(members)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn diagnose(
    delivery: &Delivery,
    secret: &SigningSecret,
    others: &[PathBuf],
    output: Output,
) -> Result<ExitCode, Failure> {
    let (secret, old) = secret.read()?;
    let mut secrets = vec![("default".to_owned(), secret.clone())];
    secrets.extend(old.clone().map(|old| ("old".to_owned(), old)));
    for file in others {
        let other = read_secret(file).map_err(|error| unreadable(file, &error))?;
        secrets.push((file.display().to_string(), other));
    }
    let (headers, body) = (delivery.headers()?, delivery.body()?);
    let diagnose = |builder| {
        let verifier = delivery.verifier(builder, &secret, old.as_deref())?;
        Ok::<_, Failure>(verifier.diagnose(&headers, &body, secrets.clone()))
    };
    // The receiver may have a higher limit than the default. So the limit is the reason only if there is no other.
    let mut diagnosis = diagnose(Verifier::builder().body_limit(usize::MAX))?;
    if diagnosis == Diagnosis::Accepted {
        diagnosis = diagnose(Verifier::builder())?;
    }
    let is_accepted = diagnosis == Diagnosis::Accepted;
    let json = json!({"accepted": is_accepted, "diagnosis": diagnosis.to_string()});
    output.result(&json, |_| {
        format!("{}\n", printable(&diagnosis.to_string()))
    })?;
    Ok(match is_accepted {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

#[derive(Args)]
#[command(after_help = "\
Like the service, it waits 10 seconds for the response and does not follow redirects.

Exit status: 0 if the endpoint accepted the event, 1 if the service would retry it.

Example:
  audience webhooks send http://127.0.0.1:8080/hook email.bounced --to ada@example.com")]
struct Send {
    /// Post to this URL
    #[arg(value_name = "URL")]
    url: String,
    /// Send an event of this type, such as email.bounced; it may be one that does not exist yet
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// Any other argument. Clap would print it, and it may be a secret
    #[arg(hide = true)]
    rest: Vec<String>,
    /// Set the recipient of the mail
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Set the id of the event [default: a new one]; the same id in a later run is refused with 409: the body has another time
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Set the data of the event from this JSON object [default: sample data of the type]
    #[arg(long, value_name = "JSON", value_parser = object, conflicts_with = "to")]
    data: Option<Map<String, Value>>,
    #[command(flatten)]
    secret: SigningSecret,
}

impl Send {
    /// Posts the event, and prints the status of the response.
    async fn run(self, output: Output) -> Result<ExitCode, Failure> {
        // What is wrong may be a secret, so it is not printed.
        if !is_event_type(&self.event_type) {
            let problem = "TYPE is not an event type such as email.bounced";
            return Err(Failure::usage(problem));
        }
        if !self.rest.is_empty() {
            let problem = "there are arguments after TYPE; set AUDIENCE_WEBHOOK_SECRET to the secret, or pass --secret-file FILE";
            return Err(Failure::usage(problem));
        }
        let event_type = EventType::from(self.event_type.as_str());
        let (secret, _) = self.secret.read()?;
        let signer = Signer::new(secret);
        let signer = signer.map_err(|error| Failure::usage(error.to_string()))?;
        let now = SystemTime::now();
        let id = self.id.clone().unwrap_or_else(|| new_id(now));
        let body = json!({
            "id": id,
            "type": event_type,
            "created_at": Timestamp::from(now),
            "data": self.data(&event_type),
        });
        let body = body.to_string();
        let mut headers = signer.sign(&event_type, now, &body);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));

        let request = post_to(&self.url)
            .map_err(|error| Failure::usage(crate::causes::with_causes(&error)))?
            .headers(headers)
            .body(body)
            .timeout(Duration::from_secs(10));
        let response = request.send().await.map_err(|error| {
            // The rest of the URL may have a token, and the message may be kept in a log.
            let place = error.url().and_then(|url| {
                Some(format!(
                    "{}:{}",
                    url.host_str()?,
                    url.port_or_known_default()?
                ))
            });
            let place = place.unwrap_or_else(|| "the URL".to_owned());
            let failure = Failure::causes(&error.without_url()).code("connect");
            failure.after(&format!("could not post to {place}"))
        })?;
        let status = response.status();
        let json = json!({"id": id, "type": event_type, "status": status.as_u16()});
        output.result(&json, |_| {
            printable(&format!("sent {event_type} {id}: {status}")) + "\n"
        })?;
        if status.is_success() {
            Ok(ExitCode::SUCCESS)
        } else {
            let failure = Failure::failed("not a success: the service would retry this event");
            Err(failure.status(status.as_u16()))
        }
    }

    /// Returns the data that was given, or sample data with the members that the interface document shows for this
    /// type.
    fn data(&self, event_type: &EventType) -> Value {
        if let Some(data) = &self.data {
            return data.clone().into();
        }
        let to = self.to.as_deref();
        if *event_type == EventType::Received {
            return json!({
                "inbound_id": "in_1",
                "from": "ada@example.net",
                "to": [to.unwrap_or("support@example.com")],
                "subject": "Where is my parcel?",
                "text": "It should have arrived on Monday.",
                "authentication_results": "mx.example.com; spf=pass smtp.mailfrom=example.net; \
                    dkim=not-evaluated; dmarc=not-evaluated",
            });
        }
        let (bounce_type, detail) = match event_type {
            EventType::Bounced => ("Permanent", "550 5.1.1 User unknown"),
            EventType::DeliveryDelayed => ("", "451 4.7.1 Greylisted, try again later"),
            EventType::Failed => ("", "no mail exchanger found"),
            EventType::Refused => ("", "the address is on the suppression list"),
            _ => ("", ""),
        };
        json!({
            "email_id": "email_1",
            "from": "shop@example.com",
            "to": to.unwrap_or("ada@example.net"),
            "subject": "Your receipt",
            "bounce_type": bounce_type,
            "detail": detail,
        })
    }
}

/// Returns whether the text consists of lowercase words with periods between them.
fn is_event_type(text: &str) -> bool {
    let is_letter = |letter: u8| letter.is_ascii_lowercase() || letter == b'_';
    text.contains('.')
        && text
            .split('.')
            .all(|word| !word.is_empty() && word.bytes().all(is_letter))
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("the value is not a JSON object".into()),
        Err(error) => Err(format!("the value is not JSON: {error}")),
    }
}

fn new_id(now: SystemTime) -> String {
    let since_epoch = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    format!("evt_{:x}", since_epoch.as_nanos())
}
