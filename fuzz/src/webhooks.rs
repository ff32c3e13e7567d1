//! Deliveries: their headers, their envelope, and the results of the sender checks.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audience::webhooks::{
    AuthenticationResults, CheckResult, Event, EventData, EventType, Signer, VerifiedDelivery,
    Verifier, VerifyError,
};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use sha2::Sha256;

const SECRETS: [(&str, &str); 2] = [("new", "6Jm0nFq2pXvZk4Tt"), ("old", "Wb8cQe1sLr5uYh7o")];
const NOW: u64 = 1_700_000_000;
const TOLERANCE: u64 = 300;
const BODY_LIMIT: usize = 2048;

static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| {
    let builder = SECRETS
        .into_iter()
        .fold(Verifier::builder(), |builder, (name, secret)| {
            builder.secret(name, secret)
        });
    let builder = builder.tolerance(Duration::from_secs(TOLERANCE));
    let builder = builder.body_limit(BODY_LIMIT).clock(now);
    builder.build().expect("both secrets are valid")
});

static SIGNER: LazyLock<Signer> =
    LazyLock::new(|| Signer::new(SECRETS[1].1).expect("the secret is valid"));

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// Verifies any headers and body, as the verifier does and by the words of section 5.
///
/// Input: header lines `name: value`, an empty line, the body. In a value, `%new` and `%old` stand for the signature
/// with that secret, so that genuine deliveries are found too.
pub fn delivery(input: &[u8]) {
    let (headers, body) = headers_and_body(input);

    let verified = VERIFIER.authenticate(&headers, body);
    let secret = plain_secret(&headers, body);
    assert_eq!(
        verified.as_ref().ok().map(VerifiedDelivery::secret_name),
        secret
    );
    if verified.is_err() || body.len() % 16 == 0 {
        let _ = VERIFIER.diagnose(&headers, body, [("odd", "YWJj")]);
    }

    let signed = SIGNER.sign(&EventType::Sent, now(), body);
    match VERIFIER.authenticate(&signed, body) {
        Ok(delivery) => {
            assert_eq!(delivery.secret_name(), "old");
            assert!(body.len() <= BODY_LIMIT);
            let _ = delivery.event_header_agrees();
        }
        Err(error) => assert!(matches!(error, VerifyError::BodyTooLarge { .. })),
    }
}

fn headers_and_body(input: &[u8]) -> (HeaderMap, &[u8]) {
    let mut lines = Vec::new();
    let mut rest = input;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        lines.extend(colon.map(|colon| (&line[..colon], line[colon + 1..].trim_ascii_start())));
    }
    let timestamp = lines.iter().find(|(name, _)| *name == b"webhook-timestamp");
    let timestamp = timestamp.map(|(_, value)| *value).unwrap_or_default();
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let value = match value.strip_prefix(b"%") {
            Some(b"new") => plain_signature(SECRETS[0].1, timestamp, rest).into_bytes(),
            Some(b"old") => plain_signature(SECRETS[1].1, timestamp, rest).into_bytes(),
            _ => value.to_vec(),
        };
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name),
            HeaderValue::from_bytes(&value),
        ) {
            headers.append(name, value);
        }
    }
    (headers, rest)
}

/// HMAC-SHA256 over the timestamp, a period and the body, in lowercase hex.
fn plain_signature(secret: &str, timestamp: &[u8], body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(&[timestamp, b".", body].concat());
    mac.finalize()
        .into_bytes()
        .iter()
        .fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a `String` takes any text");
            hex
        })
}

/// Returns the name of the secret that a delivery is signed with, if it is genuine.
fn plain_secret(headers: &HeaderMap, body: &[u8]) -> Option<&'static str> {
    let one = |name| match headers.get_all(name).iter().collect::<Vec<_>>()[..] {
        [value] => value.to_str().ok(),
        _ => None,
    };
    let (signature, timestamp) = (one("webhook-signature")?, one("webhook-timestamp")?);
    let signed_at: u64 = timestamp.parse().ok()?;
    let is_plain = signed_at.to_string() == timestamp;
    let is_fresh = signed_at.abs_diff(NOW) <= TOLERANCE;
    let found = SECRETS
        .into_iter()
        .find(|(_, secret)| plain_signature(secret, timestamp.as_bytes(), body) == signature);
    let (name, _) = found.filter(|_| is_plain && is_fresh && body.len() <= BODY_LIMIT)?;
    Some(name)
}

/// Parses any authenticated body. Input: the body.
///
/// A body that parses as an event has the members that `serde_json` finds in it. Serializing the event and parsing it
/// again gives the same event.
pub fn envelope(body: &[u8]) {
    let Ok(event) = Event::from_unverified_json(body) else {
        return;
    };

    assert!((1..=255).contains(&event.id.as_str().len()));
    let written = serde_json::to_vec(&event).expect("an event can be serialized");
    let again = Event::from_unverified_json(&written).expect("a serialized event can be parsed");
    // If a member of unknown data is repeated, the last one is kept, and the result may have a known shape.
    if !matches!(event.data, EventData::Unknown { .. }) {
        assert_eq!(again, event);
    }
    assert_eq!(
        (&again.id, again.event_type(), again.created_at),
        (&event.id, event.event_type(), event.created_at)
    );

    // A number that is too large for `serde_json` may stand in a member that the event does not keep.
    let Ok(plain) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    assert_eq!(plain["id"], event.id.as_str());
    assert_eq!(plain["type"], event.event_type().as_str());
    assert_eq!(plain["created_at"], event.created_at.as_unix());
    let data = &plain["data"];
    if let Some(mail) = event.mail() {
        assert_eq!(data["email_id"], *mail.email_id);
        assert_eq!(data["to"], *mail.to);
        let bounce_type = mail.bounce_type.as_ref().map_or("", |kind| kind.as_str());
        assert_eq!(
            data["bounce_type"].as_str().unwrap_or_default(),
            bounce_type
        );
    } else if let EventData::Received(mail) = &event.data {
        assert_eq!(data["inbound_id"], *mail.inbound_id);
        assert_eq!(data["to"], Value::from(mail.to.clone()));
    }
}

/// Parses any `authentication_results`, and reads them once more character by character. Input: the text.
pub fn authentication_results(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let results = AuthenticationResults::from(text);
    let plain = plain_sections(text);

    assert_eq!(results.as_str(), text);
    let first = plain[0].first().filter(|token| !token.contains('='));
    assert_eq!(results.authserv_id(), first.map(String::as_str));
    for (name, result) in [
        ("spf", results.spf()),
        ("dkim", results.dkim()),
        ("dmarc", results.dmarc()),
    ] {
        let found = methods(&plain, name).map(|(result, _)| CheckResult::from(result));
        assert_eq!(result, the_only(found), "{name}");
    }
    let senders = methods(&plain, "spf").flat_map(|(_, properties)| properties);
    let senders = senders.filter_map(|token| {
        let (name, value) = token.split_once('=')?;
        let is_quoted = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
        let value = if is_quoted {
            &value[1..value.len() - 1]
        } else {
            value
        };
        name.eq_ignore_ascii_case("smtp.mailfrom").then_some(value)
    });
    let domain =
        the_only(senders).map(|sender| &sender[sender.rfind('@').map_or(0, |at| at + 1)..]);
    assert_eq!(
        results.mail_from_domain(),
        domain.filter(|domain| !domain.is_empty())
    );
}

/// Returns the value that all have, if there is one.
fn the_only<T: PartialEq>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.dedup();
    (values.len() == 1).then(|| values.remove(0))
}

/// Returns the results of a method, each with the tokens after it.
fn methods<'a>(
    sections: &'a [Vec<String>],
    wanted: &str,
) -> impl Iterator<Item = (&'a str, &'a [String])> {
    sections[1..].iter().filter_map(move |tokens| {
        let (name, result) = tokens.first()?.split_once('=')?;
        let name = name.split_once('/').map_or(name, |(name, _)| name);
        let is_it = name.eq_ignore_ascii_case(wanted) && !result.is_empty();
        is_it.then_some((result, &tokens[1..]))
    })
}

/// Splits at semicolons and then at white space, and leaves out comments. Both count only outside of quotes. If a quote or
/// a comment never ends, there is only the first section.
fn plain_sections(text: &str) -> Vec<Vec<String>> {
    let mut sections = vec![vec![String::new()]];
    let (mut is_quoted, mut depth, mut is_escaped) = (false, 0, false);
    for c in text.chars() {
        let section = sections.last_mut().expect("there is at least one");
        let token = section.last_mut().expect("there is at least one");
        if is_escaped {
            is_escaped = false;
        } else if is_quoted || depth > 0 {
            match c {
                '\\' => is_escaped = true,
                '"' if is_quoted => is_quoted = false,
                '(' if depth > 0 => depth += 1,
                ')' if depth > 0 => {
                    depth -= 1;
                    // The closing parenthesis belongs to the comment.
                    continue;
                }
                _ => {}
            }
        } else {
            match c {
                ';' => {
                    sections.push(vec![String::new()]);
                    continue;
                }
                '(' => {
                    depth = 1;
                    section.push(String::new());
                    continue;
                }
                '"' => is_quoted = true,
                c if c.is_whitespace() => {
                    section.push(String::new());
                    continue;
                }
                _ => {}
            }
        }
        if depth == 0 {
            token.push(c);
        }
    }
    if is_quoted || depth > 0 {
        sections.truncate(1);
    }
    for section in &mut sections {
        section.retain(|token| !token.is_empty());
    }
    sections
}
