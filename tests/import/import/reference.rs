//! What a file means, row after row: the reference that imports are compared with.

use std::collections::BTreeMap;

use audience::contacts::{NewContact, OnConflict, OptOutReason};
use audience::import::{ImportRow, OptOut, RowOutcome};
use audience::mock::MockServer;
use serde_json::{Map, Value, json};

use super::random::Random;

/// The topics that exist. Any other is unknown to the service.
pub(super) const TOPICS: [&str; 2] = ["news", "offers"];

/// One contact, as far as an import can change it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    first_name: Option<String>,
    properties: Map<String, Value>,
    reason: String,
    answers: BTreeMap<String, bool>,
}

/// The end of a row, as far as it does not depend on lost responses: an applied row has no code.
pub(super) type End = (u64, Option<String>);

/// The contacts by address.
pub(super) type Audience = BTreeMap<String, State>;

/// The contacts of a mock.
pub(super) fn audience_of(server: &MockServer) -> Audience {
    let contacts = server.contacts().into_iter();
    contacts
        .map(|contact| {
            let state = State {
                first_name: contact.first_name,
                properties: contact.properties,
                reason: contact.unsubscribe_reason,
                answers: contact.answers,
            };
            (contact.email, state)
        })
        .collect()
}

/// The line of a row and its code, if it was not applied.
pub(super) fn end_of(row: &ImportRow, outcome: &RowOutcome) -> End {
    let code = (!outcome.is_applied()).then(|| outcome.code().to_owned());
    (row.line_number().unwrap(), code)
}

/// Applies rows one after another, as one uninterrupted sequential run would.
pub(super) fn apply(
    audience: &mut Audience,
    rows: impl IntoIterator<Item = ImportRow>,
) -> Vec<End> {
    let rows = rows.into_iter();
    rows.map(|row| (row.line_number().unwrap(), apply_row(audience, &row)))
        .collect()
}

/// Returns the code of a row that is not applied in full.
fn apply_row(audience: &mut Audience, row: &ImportRow) -> Option<String> {
    let Some(contact) = row.contact() else {
        return Some("invalid_row".to_owned());
    };
    let address = contact.email.trim().to_lowercase();
    if !address.contains('@') {
        return Some("validation_error".to_owned());
    }
    let sent = serde_json::to_value(contact).unwrap();
    let exists = audience.contains_key(&address);
    match (exists, sent["on_conflict"].as_str()) {
        (true, Some("error")) => return Some("already_exists".to_owned()),
        (true, Some("skip")) => {}
        _ => {
            let state = audience.entry(address.clone()).or_default();
            if let Some(name) = sent["first_name"].as_str() {
                state.first_name = Some(name.to_owned());
            }
            if let Some(properties) = sent["properties"].as_object() {
                state.properties = properties.clone();
            }
        }
    }
    let state = audience.get_mut(&address).unwrap();
    let mut code = None;
    for opt_out in row.opt_outs() {
        match opt_out {
            // The first reason stays.
            OptOut::Everything(_) if !state.reason.is_empty() => {}
            OptOut::Everything(OptOutReason::Preferences) => state.reason = "preferences".into(),
            OptOut::Everything(_) => state.reason = "manual".into(),
            OptOut::Topic(name) if TOPICS.contains(&name.as_str()) => {
                state.answers.insert(name.clone(), false);
            }
            _ => code = Some("opt_out_failed".to_owned()),
        }
    }
    code
}

/// What the rows of a random file are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// How many addresses there are: the fewer, the more duplicates.
    pub(super) addresses: u64,
    /// Whether rows may have `on_conflict: error`.
    pub(super) strict: bool,
}

/// A row of a random file: duplicates in both letter cases, bad rows, opt-outs.
pub(super) fn random_row(random: &mut Random, line: u64, style: Style) -> ImportRow {
    if random.percent(1) {
        return ImportRow::unreadable("too few cells").line(line);
    }
    let number = random.below(style.addresses);
    let address = match random.below(100) {
        0 => "no address".to_owned(),
        1..=9 => format!(" Person{number}@X.io "),
        _ => format!("person{number}@x.io"),
    };
    let mut contact = NewContact::new(address);
    if random.percent(70) {
        contact = contact.property("line", line);
    }
    if random.percent(40) {
        contact = contact.first_name(format!("Name {line}"));
    }
    let conflict = random.below(10);
    if conflict == 0 {
        contact = contact.on_conflict(OnConflict::Skip);
    } else if conflict == 1 && style.strict {
        contact = contact.on_conflict(OnConflict::Error);
    }
    let mut row = ImportRow::new(contact).line(line);
    if random.percent(3) {
        let reasons = [OptOutReason::Manual, OptOutReason::Preferences];
        row = row.opt_out(OptOut::Everything(random.pick(&reasons)));
    }
    if random.percent(2) {
        let topics = ["news", "offers", "unknown topic"];
        row = row.opt_out(OptOut::Topic(random.pick(&topics).to_owned()));
    }
    row
}

/// Contacts that exist before an import, some of them opted out.
pub(super) fn seeds() -> Value {
    json!({"contacts": [
        {"email": "person0@x.io", "first_name": "Old", "properties": {"plan": "pro"}},
        {"email": "person1@x.io", "unsubscribed": true, "unsubscribe_reason": "manual"},
        {"email": "person2@x.io", "unsubscribed": true, "unsubscribe_reason": "complaint"},
        {"email": "person3@x.io", "topics": {"news": false}},
    ]})
}
