//! The examiner of receivers: it names the fault of each faulty receiver, and finds none in a good one.

mod faults;
mod faulty_receiver;
mod faulty_verification;
mod good_receivers;
mod hostile;
mod inboxes;
mod networks;
mod own_examples;
mod patience;
mod planted;
mod program;
mod python;

use audience::mock::{Check, Examination, ExamineReceiver, Verdict};
use audience::webhooks::Verifier;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use support::PATIENCE;

use crate::receiver::SECRET;

fn examine(url: impl Into<String>) -> ExamineReceiver {
    audience::mock::examine(url, SECRET).timeout(PATIENCE)
}

/// The verifier of a receiver that waits as long for a body.
fn verifier() -> Verifier {
    let builder = Verifier::builder().secret("test", SECRET);
    builder.body_timeout(PATIENCE).build().unwrap()
}

/// The checks with a failure or a warning.
fn found(examination: &Examination) -> Vec<Check> {
    let reports = examination.checks().iter();
    reports
        .filter(|report| report.verdict >= Verdict::Warning)
        .map(|report| report.check)
        .collect()
}

#[track_caller]
fn assert_all_passed(examination: &Examination) {
    let all_passed = examination
        .checks()
        .iter()
        .all(|report| report.verdict == Verdict::Passed);
    assert!(all_passed, "{examination}");
    assert_eq!(examination.checks().len(), Check::ALL.len());
}

/// Whether the tests may take minutes.
fn is_long() -> bool {
    std::env::var_os("AUDIENCE_LONG_TESTS").is_some()
}

/// The report in one line.
fn text(examination: &Examination) -> String {
    let report = examination.to_string();
    report.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The id that a probe asks for.
fn event_of(query: Option<&str>) -> &str {
    query.unwrap().strip_prefix("event=").unwrap()
}

fn mac(key: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}
