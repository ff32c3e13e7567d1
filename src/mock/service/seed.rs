//! A seed: the content of an audience as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::address::AddressKey;
use super::json::{self, Members, must_be};
use super::printable::printable;
use super::reason::Reason;
use super::seed_contact::SeedContact;
use super::seed_settings::SeedSettings;
use super::segment::SegmentKind;

/// A parsed seed. Whether its contacts are valid is checked when it is applied: that depends on the audience.
#[derive(Clone, Default)]
pub(crate) struct Seed {
    /// The keys and the dialect.
    pub(crate) settings: SeedSettings,
    /// The time that the clock is set to, in Unix seconds.
    pub(crate) clock: Option<i64>,
    /// The new ceiling: `Some(None)` removes it.
    pub(super) ceiling: Option<Option<u64>>,
    /// The name and the default answer of each topic.
    pub(super) topics: Vec<(String, bool)>,
    /// The id of each segment, and its contacts or its rule.
    pub(super) segments: Vec<(String, SegmentKind)>,
    pub(crate) endpoints: Vec<SeedEndpoint>,
    /// In the order of the list: newest first.
    pub(super) contacts: Vec<SeedContact>,
}

/// A webhook endpoint of a seed. Its URL and its secret are not checked yet.
#[derive(Clone)]
pub(crate) struct SeedEndpoint {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) secret: String,
}

impl Seed {
    /// Parses the text of a seed.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON, has a member twice, or is not a seed. The message names the member.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        Self::from_value(&json::parse(text)?)
    }

    /// Reads a seed from JSON.
    ///
    /// # Errors
    ///
    /// Fails if a member is unknown or has a wrong type. The message names it.
    pub(crate) fn from_value(value: &Value) -> Result<Self, String> {
        let members = Members::new(value, "a seed", "")?;
        members.reject_unknown(&[
            "clock",
            "ceiling",
            "topics",
            "segments",
            "endpoints",
            "contacts",
            "keys",
            "dialect",
            "$schema",
        ])?;
        // An editor completes and checks a file by this.
        members.optional_text("$schema")?;
        let contacts = match members.optional("contacts") {
            None => &Vec::new(),
            Some(Value::Array(contacts)) => contacts,
            Some(other) => return Err(must_be("contacts", "an array", other)),
        };
        Ok(Self {
            settings: SeedSettings::parse(&members)?,
            clock: members.optional("clock").map(clock).transpose()?,
            ceiling: members.optional("ceiling").map(ceiling).transpose()?,
            topics: map(&members, "topics", "", boolean)?.into_iter().collect(),
            segments: map(&members, "segments", "", segment)?
                .into_iter()
                .collect(),
            endpoints: map(&members, "endpoints", "", endpoint)?
                .into_iter()
                .map(|(name, (url, secret))| SeedEndpoint { name, url, secret })
                .collect(),
            contacts: contacts
                .iter()
                .enumerate()
                .map(|(index, contact)| {
                    let path = format!("contacts[{index}]");
                    parse_contact(contact, &format!("`{path}`"), &format!("{path}."))
                })
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Shows counts only: contacts are personal data, and endpoints have secrets.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed")
            .field("contacts", &self.contacts.len())
            .field("topics", &self.topics.len())
            .field("segments", &self.segments.len())
            .field("endpoints", &self.endpoints.len())
            .finish_non_exhaustive()
    }
}

impl SeedContact {
    /// Parses the text of the contact with an address, which the text can leave out.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON, has another address, or has a member that is unknown or of a wrong type. The
    /// message names the member.
    pub(crate) fn parse(text: &[u8], address: &str) -> Result<Self, String> {
        let mut value = json::parse(text)?;
        if let Value::Object(members) = &mut value {
            members
                .entry("email")
                .or_insert_with(|| address.to_owned().into());
        }
        let contact = parse_contact(&value, "a contact", "")?;
        if AddressKey::new(&contact.email) != AddressKey::new(address) {
            return Err("`email` must be the address in the path, or be left out".to_owned());
        }
        Ok(contact)
    }
}

/// Parses a contact in the full form (section 2.1). Messages call it `what`, and put `prefix` before its members.
///
/// Without `answers`, every member of `topics` is an answer.
fn parse_contact(value: &Value, what: &str, prefix: &str) -> Result<SeedContact, String> {
    let members = Members::new(value, what, prefix)?;
    members.reject_unknown(CONTACT_MEMBERS)?;
    let reason = reason(&members)?;
    let topics = map(&members, "topics", prefix, boolean)?;
    let (answers, shown_topics) = match members.optional("answers") {
        Some(_) => (map(&members, "answers", prefix, boolean)?, topics),
        None => (topics, BTreeMap::new()),
    };
    let flag = |name: &str| match members.optional(name) {
        None => Ok(None),
        Some(found) => boolean(found, &format!("{prefix}{name}")).map(Some),
    };
    let created_at = members.optional("created_at");
    Ok(SeedContact {
        id: members.optional_text("id")?.map(str::to_owned),
        email: members.required_text("email")?.to_owned(),
        first_name: name(&members, "first_name")?,
        last_name: name(&members, "last_name")?,
        properties: match members.optional("properties") {
            None => Map::new(),
            Some(Value::Object(properties)) => properties.clone(),
            Some(other) => return Err(members.must_be("properties", "a JSON object", other)),
        },
        unsubscribed: flag("unsubscribed")?.unwrap_or(reason != Reason::None),
        reason,
        created_at: created_at
            .map(|found| seconds(found, &format!("{prefix}created_at")))
            .transpose()?,
        answers,
        shown_topics,
        engagement: map(&members, "engagement", prefix, seconds)?,
        suppressed: flag("suppressed")?,
    })
}

const CONTACT_MEMBERS: &[&str] = &[
    "id",
    "email",
    "first_name",
    "last_name",
    "properties",
    "unsubscribed",
    "unsubscribe_reason",
    "created_at",
    "topics",
    "answers",
    "engagement",
    "suppressed",
];

/// Returns a name. Some dialects show a missing one as `null`.
fn name(members: &Members<'_>, name: &str) -> Result<String, String> {
    if members.optional(name) == Some(&Value::Null) {
        return Ok(String::new());
    }
    Ok(members.optional_text(name)?.unwrap_or_default().to_owned())
}

fn reason(members: &Members<'_>) -> Result<Reason, String> {
    let value = members
        .optional_text("unsubscribe_reason")?
        .unwrap_or_default();
    Reason::from_value(value).ok_or_else(|| {
        let known = "`manual`, `preferences`, `complaint` or an empty string";
        members.must_be("unsubscribe_reason", known, &value.into())
    })
}

/// Returns the members of an object, each parsed by `parse`, which gets the path of the member. A missing object is
/// empty.
fn map<T>(
    members: &Members<'_>,
    name: &str,
    prefix: &str,
    parse: impl Fn(&Value, &str) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, String> {
    let object = match members.optional(name) {
        None => return Ok(BTreeMap::new()),
        Some(Value::Object(object)) => object,
        Some(other) => return Err(members.must_be(name, "a JSON object", other)),
    };
    object
        .iter()
        .map(|(key, value)| {
            let path = format!("{prefix}{name}.{}", printable(key));
            Ok((key.clone(), parse(value, &path)?))
        })
        .collect()
}

fn boolean(value: &Value, path: &str) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| must_be(path, "`true` or `false`", value))
}

fn seconds(value: &Value, path: &str) -> Result<i64, String> {
    value
        .as_i64()
        .ok_or_else(|| must_be(path, "whole Unix seconds", value))
}

fn clock(value: &Value) -> Result<i64, String> {
    seconds(value, "clock")
}

fn ceiling(value: &Value) -> Result<Option<u64>, String> {
    match value {
        Value::Null => Ok(None),
        number => number
            .as_u64()
            .map(Some)
            .ok_or_else(|| must_be("ceiling", "a number of contacts or `null`", value)),
    }
}

/// Parses a segment: `{"contacts": […]}` or `{"rule": {…}}`. The rule is parsed when it is applied.
fn segment(value: &Value, path: &str) -> Result<SegmentKind, String> {
    let prefix = format!("{path}.");
    let members = Members::new(value, &format!("`{path}`"), &prefix)?;
    members.reject_unknown(&["contacts", "rule"])?;
    match (members.optional("contacts"), members.optional("rule")) {
        (None, Some(rule)) => Ok(SegmentKind::Rule(rule.clone())),
        (Some(contacts), None) => serde_json::from_value(contacts.clone())
            .map(SegmentKind::Contacts)
            .map_err(|_| members.must_be("contacts", "an array of addresses", contacts)),
        _ => Err(format!("`{path}` needs either `contacts` or a `rule`")),
    }
}

/// Returns the URL and the secret of an endpoint.
fn endpoint(value: &Value, path: &str) -> Result<(String, String), String> {
    let prefix = format!("{path}.");
    let members = Members::new(value, &format!("`{path}`"), &prefix)?;
    members.reject_unknown(&["url", "secret"])?;
    let url = members.required_text("url")?.to_owned();
    if !members.required("secret")?.is_string() {
        // The message does not show it.
        return Err(format!("`{path}.secret` must be a string"));
    }
    Ok((url, members.required_text("secret")?.to_owned()))
}
