//! A seed: the content of an audience as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::address::normalized;
use super::bodies::{Object, UniqueMembers, parse, present};
use super::contact::Reason;
use super::dialect::{Dialect, Settings, UnknownChoice};
use super::engagement::EngagementKind;
use super::router::Keys;
use super::seed_contact::SeedContact;
use super::segment::SegmentKind;

/// A parsed seed. Whether its contacts are valid is checked when it is applied: that depends on the audience.
#[derive(Clone, Default)]
pub(in crate::mock) struct Seed {
    pub(in crate::mock) settings: SeedSettings,
    /// The time that the clock is set to, in Unix seconds.
    pub(in crate::mock) clock: Option<i64>,
    /// The new ceiling: `Some(None)` removes it.
    pub(super) ceiling: Option<Option<u64>>,
    /// The name and the default answer of each topic.
    pub(super) topics: BTreeMap<String, bool>,
    /// The id of each segment, and its contacts or its rule.
    pub(super) segments: BTreeMap<String, SegmentKind>,
    pub(in crate::mock) endpoints: BTreeMap<String, SeedEndpoint>,
    /// In the order of the list: newest first.
    pub(super) contacts: Vec<SeedContact>,
}

/// A webhook endpoint of a seed. Its URL and its secret are not checked yet.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mock) struct SeedEndpoint {
    pub(in crate::mock) url: String,
    pub(in crate::mock) secret: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeedMembers {
    #[serde(default, deserialize_with = "present")]
    clock: Option<i64>,
    #[serde(default, deserialize_with = "ceiling")]
    ceiling: Option<Option<u64>>,
    #[serde(default)]
    topics: UniqueMembers<bool>,
    #[serde(default)]
    segments: UniqueMembers<SeedSegment>,
    #[serde(default)]
    endpoints: UniqueMembers<Object<SeedEndpoint>>,
    #[serde(default)]
    contacts: Vec<Object<ContactMembers>>,
    keys: Option<Object<SeedKeys>>,
    #[serde(default, deserialize_with = "choices")]
    dialect: BTreeMap<String, String>,
    /// An editor completes and checks a file by this.
    #[serde(rename = "$schema", default, deserialize_with = "present")]
    _schema: Option<String>,
}

impl Seed {
    /// Parses the text of a seed.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON, or if a member is unknown, given twice or of a wrong type. The message names it.
    pub(in crate::mock) fn parse(text: &[u8]) -> Result<Self, String> {
        let seed: SeedMembers = parse(text, "a seed")?;
        let keys = seed.keys.map(|keys| keys.0).unwrap_or_default();
        let contacts = seed.contacts.into_iter().enumerate();
        let contacts = contacts.map(|(index, contact)| {
            let missing = || format!("`contacts[{index}].email` is missing");
            let email = contact.0.email.clone().ok_or_else(missing)?;
            Ok(contact.0.into_contact(email))
        });
        let endpoints = seed.endpoints.0.into_iter();
        Ok(Self {
            settings: SeedSettings {
                full_key: keys.full,
                sending_key: keys.sending,
                choices: seed.dialect.into_iter().collect(),
            },
            clock: seed.clock,
            ceiling: seed.ceiling,
            topics: seed.topics.0,
            segments: seed
                .segments
                .0
                .into_iter()
                .map(|(id, kind)| (id, kind.0))
                .collect(),
            endpoints: endpoints
                .map(|(name, endpoint)| (name, endpoint.0))
                .collect(),
            contacts: contacts.collect::<Result<_, String>>()?,
        })
    }

    /// Reads a seed from JSON.
    ///
    /// # Errors
    ///
    /// The same as [`parse`](Self::parse).
    pub(in crate::mock) fn from_value(value: &Value) -> Result<Self, String> {
        Self::parse(value.to_string().as_bytes())
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

/// `null` means no ceiling, which differs from no member.
fn ceiling<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    let problem = "must be a number of contacts or `null`";
    let ceiling = Option::<u64>::deserialize(deserializer);
    ceiling.map(Some).map_err(|_| D::Error::custom(problem))
}

/// A segment: `{"contacts": […]}` or `{"rule": {…}}`. The rule is parsed when it is applied.
struct SeedSegment(SegmentKind);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentMembers {
    #[serde(default, deserialize_with = "addresses")]
    contacts: Option<Vec<String>>,
    rule: Option<Value>,
}

impl<'de> Deserialize<'de> for SeedSegment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(members) = Object::<SegmentMembers>::deserialize(deserializer)?;
        match (members.contacts, members.rule) {
            (None, Some(rule)) => Ok(Self(SegmentKind::Rule(rule))),
            (Some(contacts), None) => Ok(Self(SegmentKind::Contacts(contacts))),
            _ => Err(D::Error::custom("needs either `contacts` or a `rule`")),
        }
    }
}

fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let problem = "must be an array of addresses";
    // As a `Value` first, so that the message names the array and not one of its elements.
    let addresses = serde_json::from_value(Value::deserialize(deserializer)?);
    addresses.map(Some).map_err(|_| D::Error::custom(problem))
}

/// A contact in the full form (section 2.1), with what only the mock knows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContactMembers {
    #[serde(default, deserialize_with = "present")]
    id: Option<String>,
    #[serde(default, deserialize_with = "present")]
    email: Option<String>,
    /// Some dialects show a missing name as `null`.
    first_name: Option<String>,
    last_name: Option<String>,
    #[serde(default)]
    properties: UniqueMembers<Value>,
    #[serde(default, deserialize_with = "present")]
    unsubscribed: Option<bool>,
    #[serde(default, deserialize_with = "reason")]
    unsubscribe_reason: Reason,
    #[serde(default, deserialize_with = "present")]
    created_at: Option<i64>,
    #[serde(default)]
    topics: UniqueMembers<bool>,
    #[serde(default, deserialize_with = "present")]
    answers: Option<UniqueMembers<bool>>,
    #[serde(default, deserialize_with = "engagement")]
    engagement: BTreeMap<EngagementKind, i64>,
    #[serde(default, deserialize_with = "present")]
    suppressed: Option<bool>,
}

impl ContactMembers {
    /// Without `answers`, every member of `topics` is an answer.
    fn into_contact(self, email: String) -> SeedContact {
        let reason = self.unsubscribe_reason;
        let (answers, shown_topics) = match self.answers {
            Some(answers) => (answers.0, self.topics.0),
            None => (self.topics.0, BTreeMap::new()),
        };
        SeedContact {
            id: self.id,
            email,
            first_name: self.first_name.unwrap_or_default(),
            last_name: self.last_name.unwrap_or_default(),
            properties: self.properties.0.into_iter().collect::<Map<_, _>>(),
            unsubscribed: self.unsubscribed.unwrap_or(reason != Reason::None),
            reason,
            created_at: self.created_at,
            answers,
            shown_topics,
            engagement: self.engagement,
            suppressed: self.suppressed,
        }
    }
}

fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
    let problem = "must be `manual`, `preferences`, `complaint` or an empty string";
    let value = String::deserialize(deserializer)?;
    Reason::from_value(&value).ok_or_else(|| D::Error::custom(problem))
}

fn engagement<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<EngagementKind, i64>, D::Error> {
    let UniqueMembers(times) = UniqueMembers::<i64>::deserialize(deserializer)?;
    let times = times.into_iter();
    times
        .map(|(name, at)| Ok((EngagementKind::parse(&name)?, at)))
        .collect::<Result<_, String>>()
        .map_err(D::Error::custom)
}

impl SeedContact {
    /// Parses the text of the contact with an address, which the text can leave out.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON, has another address, or has a member that is unknown or of a wrong type. The
    /// message names the member.
    pub(in crate::mock) fn parse(text: &[u8], address: &str) -> Result<Self, String> {
        let members: ContactMembers = parse(text, "a contact")?;
        let email = match &members.email {
            Some(email) if normalized(email) != normalized(address) => {
                return Err("`email` must be the address in the path, or be left out".to_owned());
            }
            Some(email) => email.clone(),
            None => address.to_owned(),
        };
        Ok(members.into_contact(email))
    }
}

/// The part of a seed that only the start of a mock can choose: the keys and the dialect. What the seed does not name is
/// `None` or missing.
#[derive(Clone, Default)]
pub(in crate::mock) struct SeedSettings {
    full_key: Option<String>,
    sending_key: Option<String>,
    /// The name of each field and of its choice. Both are known.
    choices: Vec<(String, String)>,
}

impl SeedSettings {
    /// Returns these settings, completed with those of the seed before this one.
    #[must_use]
    pub(in crate::mock) fn or(&self, before: Self) -> Self {
        let mut choices = before.choices;
        choices.extend_from_slice(&self.choices);
        Self {
            full_key: self.full_key.clone().or(before.full_key),
            sending_key: self.sending_key.clone().or(before.sending_key),
            choices,
        }
    }

    /// Makes the settings that nobody made: the builder was told about the others.
    pub(in crate::mock) fn complete(self, settings: &mut Settings) {
        let dialect = self.applied_to(Dialect::default());
        settings.dialect.get_or_insert(dialect);
        settings.full_key = settings.full_key.take().or(self.full_key);
        settings.sending_key = settings.sending_key.take().or(self.sending_key);
    }

    /// Checks that these are the settings that a mock was started with.
    ///
    /// # Errors
    ///
    /// Fails if one of them differs. The message names the member, but no key.
    pub(super) fn check(&self, keys: &Keys, dialect: Dialect) -> Result<(), String> {
        let differs =
            |key: &Option<String>, actual: &str| key.as_deref().is_some_and(|key| key != actual);
        let member = if differs(&self.full_key, &keys.full) {
            "keys.full"
        } else if differs(&self.sending_key, &keys.sending) {
            "keys.sending"
        } else if self.applied_to(dialect) != dialect {
            "dialect"
        } else {
            return Ok(());
        };
        Err(format!(
            "`{member}` is not what the mock was started with; start the mock with this seed, or leave it out"
        ))
    }

    fn applied_to(&self, dialect: Dialect) -> Dialect {
        self.choices
            .iter()
            .fold(dialect, |dialect, (name, choice)| {
                dialect.choose(name, choice).unwrap_or(dialect)
            })
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeedKeys {
    #[serde(default, deserialize_with = "key")]
    full: Option<String>,
    #[serde(default, deserialize_with = "key")]
    sending: Option<String>,
}

fn key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match String::deserialize(deserializer) {
        Ok(key) if !key.is_empty() => Ok(Some(key)),
        _ => Err(D::Error::custom("must be a string that is not empty")),
    }
}

/// Reads the names of the fields and of their choices, and checks each.
fn choices<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let UniqueMembers(choices) = UniqueMembers::<ChoiceName>::deserialize(deserializer)?;
    let choices = choices.into_iter().map(|(name, ChoiceName(choice))| {
        Dialect::default().choose(&name, &choice)?;
        Ok((name, choice))
    });
    choices
        .collect::<Result<_, UnknownChoice>>()
        .map_err(D::Error::custom)
}

struct ChoiceName(String);

impl<'de> Deserialize<'de> for ChoiceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let problem = "must be the name of a choice";
        let name = String::deserialize(deserializer);
        name.map(Self).map_err(|_| D::Error::custom(problem))
    }
}
