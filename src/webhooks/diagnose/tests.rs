use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::webhooks::signature::SigningKey;
use crate::webhooks::{EventType, Signer};

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
const NO_SECRETS: [(&str, &str); 0] = [];
const BODY: &str = "{\"id\":\"evt_1\",\"type\":\"email.sent\",\"created_at\":1700000000,\
        \"data\":{\"subject\":\"Grüße & <b>/\\n\",\"list\":[1,{}]}}";

const BOUNCE: &str = "{\"id\": \"evt_1\", \"type\": \"email.bounced\", \
        \"created_at\": 1700000000, \"data\": {\"email_id\": \"em_1\", \"from\": \"us@example.com\", \
        \"to\": \"ada@example.com\", \"subject\": \"Hi\", \"bounce_type\": \"Permanent\", \
        \"detail\": \"\"}}";

fn signed_with(secret: &str, body: &str) -> HeaderMap {
    let key = SigningKey::new(secret.as_bytes());
    let mut headers =
        Signer::new("any other secret")
            .unwrap()
            .sign(&EventType::Sent, SystemTime::now(), body);
    let signature = key.sign(headers["webhook-timestamp"].as_bytes(), body.as_bytes());
    headers.insert("webhook-signature", signature.parse().unwrap());
    headers
}

#[test]
fn a_delivery_outside_the_window_is_a_question_of_clocks() {
    let verifier = Verifier::new(SECRET).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let headers = Signer::new(SECRET)
        .unwrap()
        .sign(&EventType::Sent, long_ago, BODY);

    let diagnosis = verifier.diagnose(&headers, BODY.as_bytes(), NO_SECRETS);

    assert!(matches!(
        diagnosis,
        Diagnosis::OutsideWindow(VerifyError::TooLate { .. })
    ));
    assert!(
        diagnosis
            .to_string()
            .ends_with("compare this machine's clock with another")
    );
}

#[test]
fn a_secret_that_was_given_and_not_tried_is_not_said_to_be_missing() {
    let verifier = Verifier::new(SECRET).unwrap();
    let headers = signed_with("another endpoint's", BODY);
    let given = |others: usize| {
        let others = (0..others).map(|n| (format!("{n}"), format!("secret {n}")));
        others.chain([("last".to_owned(), "another endpoint's".to_owned())])
    };
    let diagnose = |others| verifier.diagnose(&headers, BODY.as_bytes(), given(others));

    let name = "last".to_owned();
    assert_eq!(diagnose(MAX_SECRETS - 1), Diagnosis::AnotherSecret { name });
    assert_eq!(diagnose(MAX_SECRETS), Diagnosis::Incomplete);
    let unsigned = given(MAX_SECRETS - 1).take(MAX_SECRETS - 1);
    let diagnosis = verifier.diagnose(&headers, BODY.as_bytes(), unsigned);
    assert_eq!(diagnosis, Diagnosis::Unexplained);
}

#[test]
fn a_diagnosis_counts_no_delivery() {
    let verifier = Verifier::new(SECRET).unwrap();
    let genuine = signed_with(SECRET, BODY);
    let forged = signed_with("another endpoint's", BODY);

    let accepted = verifier.diagnose(&genuine, BODY.as_bytes(), NO_SECRETS);
    let rejected = verifier.diagnose(&forged, BODY.as_bytes(), NO_SECRETS);

    assert_eq!(
        (accepted, rejected),
        (Diagnosis::Accepted, Diagnosis::Unexplained)
    );
    let metrics = verifier.metrics();
    assert_eq!((metrics.accepted["default"], metrics.unauthorized), (0, 0));
}

#[test]
fn a_diagnosis_names_the_change_of_the_body_and_the_form_of_the_secret() {
    let changed = Diagnosis::BodyChanged(BodyChange::NewlineAdded).to_string();
    let form = SecretForm::HexDecoded;
    let name = "main".to_owned();
    let formed = Diagnosis::SecretInAnotherForm { name, form }.to_string();

    assert!(changed.ends_with("a newline was added at the end of the body"));
    assert!(formed.ends_with("the secret \"main\" decoded from hex"));
}

#[test]
fn each_change_of_the_body_is_named() {
    let verifier = Verifier::new(SECRET).unwrap();
    let python = r#"{"created_at": 1700000000, "data": {"list": [1, {}], "subject": "Gr\u00fc\u00dfe & <b>/\n"}, "id": "evt_1", "type": "email.sent"}"#;
    let value: serde_json::Value = serde_json::from_str(BODY).unwrap();
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    let ordered = serde_json::to_string(&value).unwrap();
    let mojibake: String = BODY.bytes().map(char::from).collect();
    let bounce: serde_json::Value = serde_json::from_str(BOUNCE).unwrap();
    let sorted = serde_json::to_string(&bounce).unwrap();
    let marked = format!("\u{feff}{BODY}");
    let ended = format!("{BODY}\n");
    let ended_dos = format!("{BODY}\r\n");
    let pretty_dos = pretty.replace('\n', "\r\n");
    let spaced = BODY.replace(':', ": ");
    let lossy = BODY.replace('ü', "\u{fffd}");
    let base64 = STANDARD.encode(BODY);
    let (start, end) = base64.split_at(76);
    let mime = format!("{start}\r\n{end}\r\n");
    let url_safe = base64.replace('+', "-").replace('/', "_").replace('=', "");
    let quoted = serde_json::to_string(BODY).unwrap();

    for (sent, seen, expected) in [
        (BODY, spaced.as_str(), BodyChange::Reserialized),
        (BOUNCE, &sorted, BodyChange::Reserialized),
        (&ordered, &pretty, BodyChange::Reserialized),
        (&ordered, python, BodyChange::Reserialized),
        (python, &ordered, BodyChange::Reserialized),
        (&pretty, &ordered, BodyChange::Reserialized),
        (BODY, &marked, BodyChange::MarkAdded),
        (&marked, BODY, BodyChange::MarkRemoved),
        (BODY, &ended, BodyChange::NewlineAdded),
        (&ended, BODY, BodyChange::NewlineRemoved),
        (&ended_dos, BODY, BodyChange::NewlineRemoved),
        (&pretty, &pretty_dos, BodyChange::LineEndings),
        (&pretty_dos, &pretty, BodyChange::LineEndings),
        (BODY, &mojibake, BodyChange::DecodedAsLatin1),
        (BODY, &base64, BodyChange::Base64Encoded),
        (BODY, &mime, BodyChange::Base64Encoded),
        (BODY, &url_safe, BodyChange::Base64Encoded),
        (BODY, &quoted, BodyChange::QuotedAsString),
        (BODY, "", BodyChange::Emptied),
        (BODY, &lossy, BodyChange::DecodedLossily),
    ] {
        let headers = signed_with(SECRET, sent);

        let diagnosis = verifier.diagnose(&headers, seen.as_bytes(), NO_SECRETS);

        assert_eq!(diagnosis, Diagnosis::BodyChanged(expected), "{seen}");
    }
}

#[test]
fn each_form_of_the_secret_is_named() {
    let verifier = Verifier::new("another endpoint's").unwrap();
    for (signed, given, expected) in [
        ("abc", "abc\n", SecretForm::Trimmed),
        ("abc\n", "abc", SecretForm::WithNewline),
        ("abc", "616263", SecretForm::HexDecoded),
        ("616263", "abc", SecretForm::HexEncoded),
        ("abcd", "YWJjZA==", SecretForm::Base64Decoded),
        ("abcd", "YWJjZA", SecretForm::Base64Decoded),
        ("YWJjZA==", "abcd", SecretForm::Base64Encoded),
        (
            "abcd",
            "whsec_YWJjZA==",
            SecretForm::Base64DecodedWithoutPrefix,
        ),
        ("abcd", "whsec_abcd", SecretForm::WithoutPrefix),
        ("whsec_abcd", "abcd", SecretForm::WithPrefix),
    ] {
        let headers = signed_with(signed, BODY);

        let diagnosis = verifier.diagnose(&headers, BODY.as_bytes(), [("main", given)]);

        let name = "main".to_owned();
        let form = expected;
        assert_eq!(diagnosis, Diagnosis::SecretInAnotherForm { name, form });
    }
}

#[test]
fn another_endpoints_secret_another_scheme_and_a_forgery_are_told_apart() {
    let verifier = Verifier::new(SECRET).unwrap();
    let headers = signed_with("other", BODY);
    let mut standard = headers.clone();
    standard.insert("webhook-signature", "v1,abc=".parse().unwrap());
    let diagnose =
        |headers: &HeaderMap| verifier.diagnose(headers, BODY.as_bytes(), [("orders", "other")]);

    assert_eq!(
        diagnose(&headers),
        Diagnosis::AnotherSecret {
            name: "orders".to_owned()
        }
    );
    assert_eq!(diagnose(&standard), Diagnosis::StandardWebhooks);
    assert_eq!(
        diagnose(&signed_with("unknown", BODY)),
        Diagnosis::Unexplained
    );
    assert_eq!(diagnose(&signed_with(SECRET, BODY)), Diagnosis::Accepted);
}

#[test]
fn a_timestamp_in_milliseconds_is_named_whether_it_was_signed_or_changed_later() {
    let verifier = Verifier::new(SECRET).unwrap();
    let key = SigningKey::new(SECRET.as_bytes());
    for signed in ["1700000000123", "1700000000"] {
        let signature = key.sign(signed.as_bytes(), BODY.as_bytes());
        let mut headers = HeaderMap::new();
        headers.insert("webhook-signature", signature.parse().unwrap());
        headers.insert("webhook-timestamp", "1700000000123".parse().unwrap());

        let diagnosis = verifier.diagnose(&headers, BODY.as_bytes(), NO_SECRETS);

        assert_eq!(diagnosis, Diagnosis::TimestampInMilliseconds, "{signed}");
    }
}
