//! Puts seeded contacts into an audience. Either all of a seed is applied or nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::address::{is_address, normalized, printable};
use super::bodies::{PROPERTY_VALUE, must_be, unsupported_property};
use super::contact::{Contact, Reason};
use super::dialect::Dialect;
use super::engagement::{EngagementKind, EngagementTimes};
use super::seed::Seed;
use super::seed_contact::SeedContact;
use super::segment::Segment;
use super::state::AudienceState;

/// Applies a seed at `now`, which is the creation time of contacts that have none.
///
/// Contacts are stored from the last to the first, so that the list shows those of the same second in the seed's order.
/// The ceiling does not matter: a seed is a starting point, not a write of a caller.
///
/// # Errors
///
/// Fails if the seed contradicts itself or the document. The message names the member. Nothing is changed then.
pub(super) fn apply(state: &mut AudienceState, seed: Seed, now: i64) -> Result<(), String> {
    let mut topics = state.topics().clone();
    topics.extend(seed.topics);
    let segments = seed
        .segments
        .into_iter()
        .map(|(id, kind)| match Segment::parse(kind, state.dialect()) {
            Ok(segment) => Ok((id, segment)),
            Err(problem) => Err(format!("`segments.{}`: {problem}", printable(&id))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let contacts = check_all(seed.contacts, &topics, state.dialect(), now)?;

    check_ids(state, &contacts)?;
    for contact in &contacts {
        if !contact.contact.id.is_empty() {
            state.contacts_mut().reserve_id(&contact.contact.id);
        }
    }

    for (name, default) in &topics {
        state.put_topic(name, *default);
    }
    for (id, segment) in segments {
        state.put_segment(&id, segment);
    }
    if let Some(ceiling) = seed.ceiling {
        state.contacts_mut().set_ceiling(ceiling);
    }
    for contact in contacts.into_iter().rev() {
        contact.store(state);
    }
    Ok(())
}

/// Stores one contact, or replaces the one with its address, and returns its normalized address.
///
/// # Errors
///
/// The same as [`apply`].
pub(super) fn put_contact(
    state: &mut AudienceState,
    contact: SeedContact,
    now: i64,
) -> Result<String, String> {
    let checked = CheckedContact::new(contact, "", state.topics(), state.dialect(), now)?;
    let email = checked.contact.email.clone();
    check_ids(state, std::slice::from_ref(&checked))?;
    checked.store(state);
    Ok(email)
}

fn check_all(
    contacts: Vec<SeedContact>,
    topics: &BTreeMap<String, bool>,
    dialect: Dialect,
    now: i64,
) -> Result<Vec<CheckedContact>, String> {
    let mut first_index = HashMap::with_capacity(contacts.len());
    let mut checked = Vec::with_capacity(contacts.len());
    for (index, contact) in contacts.into_iter().enumerate() {
        let prefix = format!("contacts[{index}].");
        let contact = CheckedContact::new(contact, &prefix, topics, dialect, now)?;
        if let Some(first) = first_index.insert(contact.contact.email.clone(), index) {
            return Err(format!(
                "`contacts[{index}]` has the same address as `contacts[{first}]`; keep one of them"
            ));
        }
        checked.push(contact);
    }
    Ok(checked)
}

/// Checks that no two contacts would have the same id.
fn check_ids(state: &AudienceState, contacts: &[CheckedContact]) -> Result<(), String> {
    let new_ids: HashMap<&str, &str> = contacts
        .iter()
        .map(|checked| (checked.contact.email.as_str(), checked.contact.id.as_str()))
        .collect();
    let mut seen = HashSet::new();
    for CheckedContact { contact, path, .. } in contacts {
        if contact.id.is_empty() {
            continue;
        }
        // A contact that gets another id gives up its own.
        let is_taken = state
            .contacts()
            .owner_of_id(&contact.id)
            .is_some_and(|owner| {
                owner.email != contact.email
                    && new_ids
                        .get(owner.email.as_str())
                        .is_none_or(|new_id| new_id.is_empty())
            });
        if is_taken || !seen.insert(&contact.id) {
            let id = printable(&contact.id);
            return Err(format!(
                "`{path}id` is `{id}`, which another contact has; choose another id, or leave it out"
            ));
        }
    }
    Ok(())
}

/// A seeded contact that can be stored.
struct CheckedContact {
    /// Its id is empty until it is stored, unless the seed pins it.
    contact: Contact,
    /// The text before its members in messages, such as `contacts[0].`.
    path: String,
    engagement: EngagementTimes,
    suppressed: bool,
}

impl CheckedContact {
    /// Checks a contact. Messages have `prefix` before the names of its members.
    fn new(
        seed: SeedContact,
        prefix: &str,
        topics: &BTreeMap<String, bool>,
        dialect: Dialect,
        now: i64,
    ) -> Result<Self, String> {
        let email = normalized(&seed.email);
        if !is_address(&email) {
            let path = format!("{prefix}email");
            return Err(must_be(&path, "an email address", &seed.email.into()));
        }
        if let Some((name, value)) = unsupported_property(&seed.properties, dialect) {
            return Err(must_be(&format!("{prefix}{name}"), PROPERTY_VALUE, value));
        }
        if seed.id.as_deref() == Some("") {
            return Err(format!("`{prefix}id` must be a string that is not empty"));
        }
        let complained = seed.reason == Reason::Complaint;
        check_complaint(&seed, prefix)?;
        check_topics(&seed, prefix, topics)?;
        let mut engagement = EngagementTimes::default();
        for (what, at) in &seed.engagement {
            engagement[*what as usize] = Some(*at);
        }
        if complained {
            engagement[EngagementKind::Complained as usize].get_or_insert(now);
        }

        Ok(Self {
            contact: Contact {
                id: seed.id.unwrap_or_default(),
                email,
                first_name: Some(seed.first_name).filter(|name| !name.is_empty()),
                last_name: Some(seed.last_name).filter(|name| !name.is_empty()),
                properties: seed.properties,
                unsubscribed: seed.unsubscribed,
                reason: seed.reason,
                created_at: seed.created_at.unwrap_or(now),
                answers: seed.answers,
            },
            path: prefix.to_owned(),
            engagement,
            suppressed: seed.suppressed.unwrap_or(complained),
        })
    }

    fn store(self, state: &mut AudienceState) {
        let key = self.contact.email.clone();
        state.set_mail_history(key, self.engagement, self.suppressed);
        state.contacts_mut().put(self.contact);
    }
}

/// Checks that a contact who reported spam is unsubscribed and suppressed (section 3.1).
fn check_complaint(seed: &SeedContact, prefix: &str) -> Result<(), String> {
    if seed.reason != Reason::Complaint {
        return Ok(());
    }
    let wrong = [
        ("unsubscribed", !seed.unsubscribed),
        ("suppressed", seed.suppressed == Some(false)),
    ];
    match wrong.into_iter().find(|(_, is_wrong)| *is_wrong) {
        Some((member, _)) => Err(format!(
            "`{prefix}{member}` must be true if `unsubscribe_reason` is `complaint`"
        )),
        None => Ok(()),
    }
}

/// Checks that the topics exist, and that those that a response showed agree with the answers.
fn check_topics(
    seed: &SeedContact,
    prefix: &str,
    topics: &BTreeMap<String, bool>,
) -> Result<(), String> {
    let mut named = seed.answers.keys().chain(seed.shown_topics.keys());
    if let Some(unknown) = named.find(|name| !topics.contains_key(*name)) {
        let contact = match prefix.strip_suffix('.') {
            Some(path) => format!("`{path}`"),
            None => "the contact".to_owned(),
        };
        let unknown = printable(unknown);
        return Err(format!(
            "{contact} names the topic `{unknown}`, which does not exist; add the topic first"
        ));
    }
    for (name, shown) in &seed.shown_topics {
        let answer = seed.answers.get(name).or_else(|| topics.get(name));
        if answer != Some(shown) {
            let name = printable(name);
            return Err(format!(
                "`{prefix}topics.{name}` is {shown}, but by `answers` and the topic's default it is {}; change \
                 `answers`, or leave out `topics`",
                !shown
            ));
        }
    }
    Ok(())
}
