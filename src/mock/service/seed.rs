//! Seeds: contacts in any state as a test stores and sees them, and the content of an audience as JSON.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::bodies::{
    Object, PROPERTY_VALUE, UniqueMembers, is_address, must_be, normalized, parse, present,
    unsupported_property,
};
use super::contact::{Contact, EngagementKind, Reason};
use super::dialect::Dialect;
use super::rule::{Segment, SegmentKind};
use super::{Audience, EngagementTimes, Settings};
use crate::mock::text::printable;
use crate::{ConfigError, Timestamp};

/// A contact in any state of [interface section 3.1](crate::interface#3.1), for [`MockServer::seed_contact`].
///
/// Everything except the address is optional. The defaults are the values of a contact that was just created: no names
/// and properties, subscribed, no topic answers, no engagement.
///
/// [`MockServer::seed_contact`]: crate::mock::MockServer::seed_contact
///
/// # Example: a long-standing contact who opted out
///
/// ```
/// use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::builder().topic("news", true).start().await;
///
/// server.seed_contact(
///     SeedContact::new("ada@example.com")
///         .first_name("Ada")
///         .property("plan", "pro")
///         .created_at(1_600_000_000)
///         .unsubscribed(Reason::Preferences)
///         .answer("news", false)
///         .engaged(EngagementKind::Opened, 1_690_000_000),
/// );
///
/// let ada = server.contact("ada@example.com").expect("the contact was seeded");
/// assert_eq!(ada.unsubscribe_reason, "preferences");
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a contact has no effect until it is given to `seed_contact`"]
pub struct SeedContact {
    /// `None` means that the mock assigns the id.
    id: Option<String>,
    email: String,
    first_name: String,
    last_name: String,
    properties: Map<String, Value>,
    unsubscribed: bool,
    reason: Reason,
    /// In Unix seconds. `None` means now.
    created_at: Option<i64>,
    answers: BTreeMap<String, bool>,
    /// The member `topics` of a response: answers and defaults. It must agree with `answers`.
    shown_topics: BTreeMap<String, bool>,
    /// The time of each engagement, in Unix seconds.
    engagement: BTreeMap<EngagementKind, i64>,
    /// `None` means that the reason decides.
    suppressed: Option<bool>,
}

impl SeedContact {
    /// Creates a contact with an address. The mock trims and lowercases it, as the service does.
    ///
    /// # Example: an address in another spelling
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let ada = server.seed_contact(SeedContact::new(" Ada@Example.com"));
    ///
    /// assert_eq!(ada.email, "ada@example.com");
    /// # }
    /// ```
    pub fn new(email: impl Into<String>) -> Self {
        Self {
            id: None,
            email: email.into(),
            first_name: String::new(),
            last_name: String::new(),
            properties: Map::new(),
            unsubscribed: false,
            reason: Reason::None,
            created_at: None,
            answers: BTreeMap::new(),
            shown_topics: BTreeMap::new(),
            engagement: BTreeMap::new(),
            suppressed: None,
        }
    }

    /// Sets the id, so that a test can name it. Default: the mock assigns the next id, such as `con_00000001`, or keeps
    /// the id of the contact that is replaced.
    ///
    /// The id must not be empty, and no other contact may have it.
    ///
    /// # Example: an id that the test knows
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.seed_contact(SeedContact::new("ada@example.com").id("con_ada"));
    ///
    /// assert_eq!(server.contacts()[0].id, "con_ada");
    /// # }
    /// ```
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the first name. Default: none.
    ///
    /// # Example: a contact to greet by name
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let ada = server.seed_contact(SeedContact::new("ada@example.com").first_name("Ada"));
    ///
    /// assert_eq!(ada.first_name.as_deref(), Some("Ada"));
    /// # }
    /// ```
    pub fn first_name(mut self, name: impl Into<String>) -> Self {
        self.first_name = name.into();
        self
    }

    /// Sets the last name. Default: none.
    ///
    /// # Example: a contact with a last name only
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let ada = server.seed_contact(SeedContact::new("ada@example.com").last_name("Lovelace"));
    ///
    /// assert_eq!((ada.first_name, ada.last_name.as_deref()), (None, Some("Lovelace")));
    /// # }
    /// ```
    pub fn last_name(mut self, name: impl Into<String>) -> Self {
        self.last_name = name.into();
        self
    }

    /// Adds a property, or replaces the one with this name.
    ///
    /// Its value must be text or a number ([interface section 2.1](crate::interface#2.1)), unless
    /// [`PropertyValues`](crate::mock::dialect::PropertyValues) allows any.
    ///
    /// # Example: text and a number
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let ada = server.seed_contact(SeedContact::new("ada@example.com").property("plan", "pro").property("logins", 3));
    ///
    /// assert_eq!(ada.properties["plan"], "pro");
    /// assert_eq!(ada.properties["logins"], 3);
    /// # }
    /// ```
    pub fn property(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Adds properties, like [`property`](Self::property) for each.
    ///
    /// # Example: from an array
    ///
    /// ```
    /// # use audience::mock::SeedContact;
    /// let contact = SeedContact::new("ada@example.com").properties([("plan", "pro"), ("city", "Kyiv")]);
    ///
    /// assert_eq!(contact, SeedContact::new("ada@example.com").property("plan", "pro").property("city", "Kyiv"));
    /// ```
    pub fn properties<N: Into<String>, V: Into<Value>>(
        mut self,
        properties: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        for (name, value) in properties {
            self = self.property(name, value);
        }
        self
    }

    /// Sets when the contact was created, which decides its place in the list
    /// ([interface section 4.4](crate::interface#4.4)). Default: now, by the mock's clock.
    ///
    /// If two contacts were created in the same second, the one stored later comes first in the list. A contact that is
    /// replaced counts as stored when it was first stored.
    ///
    /// # Example: the newest contact is the first of the list
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.seed_contact(SeedContact::new("new@example.com").created_at(1_700_000_000));
    /// server.seed_contact(SeedContact::new("old@example.com").created_at(1_600_000_000));
    ///
    /// assert_eq!(server.contacts()[0].email, "new@example.com");
    /// # }
    /// ```
    pub fn created_at(mut self, at: impl Into<Timestamp>) -> Self {
        self.created_at = Some(at.into().as_unix());
        self
    }

    /// Opts the contact out of all broadcasts, for a reason. Default: subscribed.
    ///
    /// [`Reason::Complaint`] also suppresses the address, and counts as the engagement `complained`, at the current
    /// time unless [`engaged`](Self::engaged) sets another. [`Reason::None`] is an opt-out whose reason is an empty
    /// string.
    ///
    /// # Example: a contact who opted out on the preference page
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let ada = server.seed_contact(SeedContact::new("ada@example.com").unsubscribed(Reason::Preferences));
    ///
    /// assert!(ada.unsubscribed);
    /// assert_eq!(ada.unsubscribe_reason, "preferences");
    /// # }
    /// ```
    pub fn unsubscribed(mut self, reason: Reason) -> Self {
        self.unsubscribed = true;
        self.reason = reason;
        self
    }

    /// Subscribes the contact, but keeps the reason of an earlier opt-out.
    ///
    /// The document does not show `unsubscribe_reason` after a subscribe
    /// ([interface section 3.2](crate::interface#3.2)); see
    /// [`ReasonAfterSubscribe`](crate::mock::dialect::ReasonAfterSubscribe). [`Reason::Complaint`] is refused: a spam report
    /// cannot be undone.
    ///
    /// # Example: a contact who came back
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let ada = server.seed_contact(SeedContact::new("ada@example.com").resubscribed(Reason::Manual));
    ///
    /// assert!(!ada.unsubscribed);
    /// assert_eq!(ada.unsubscribe_reason, "manual");
    /// # }
    /// ```
    pub fn resubscribed(mut self, reason: Reason) -> Self {
        self.unsubscribed = false;
        self.reason = reason;
        self
    }

    /// Sets the contact's own answer to a topic, which must exist. Default: no answer, so that the topic's default
    /// applies.
    ///
    /// # Example: an opt-out from one topic
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.topic("news", true);
    ///
    /// let ada = server.seed_contact(SeedContact::new("ada@example.com").answer("news", false));
    ///
    /// assert!(!ada.topics["news"]);
    /// assert!(!ada.unsubscribed);
    /// # }
    /// ```
    pub fn answer(mut self, topic: impl Into<String>, answer: bool) -> Self {
        self.answers.insert(topic.into(), answer);
        self
    }

    /// Sets when the contact's mail last had this engagement, for the engagement rules
    /// ([interface section 2.8](crate::interface#2.8)). Default: never.
    ///
    /// [`EngagementKind::Complained`] alone opts nobody out. For a contact who reported spam, pass [`Reason::Complaint`]
    /// to [`unsubscribed`](Self::unsubscribed).
    ///
    /// # Example: a contact who clicked once
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let ada = server.seed_contact(SeedContact::new("ada@example.com").engaged(EngagementKind::Clicked, 1_600_000_000));
    ///
    /// assert_eq!(ada.engagement[&EngagementKind::Clicked].as_unix(), 1_600_000_000);
    /// # }
    /// ```
    pub fn engaged(mut self, what: EngagementKind, at: impl Into<Timestamp>) -> Self {
        self.engagement.insert(what, at.into().as_unix());
        self
    }

    /// Sets whether the address is on the suppression list, so that no mail is sent to it
    /// ([interface section 3.1](crate::interface#3.1)). Default: only after [`Reason::Complaint`], which always
    /// suppresses the address.
    ///
    /// # Example: an address that gets no mail
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MockServer, Reason, SeedContact};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// # let receiver = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.seed_contact(SeedContact::new("ada@example.com").suppressed(true));
    ///
    /// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Hi"});
    /// server.client().request(http::Method::POST, ["emails"]).json(&mail).unwrap().await.unwrap();
    /// server.advance(std::time::Duration::ZERO).await;
    ///
    /// let delivery = &receiver.requests()[0];
    /// assert_eq!(delivery.header("webhook-event"), Some("email.refused"));
    /// # }
    /// ```
    pub fn suppressed(mut self, suppressed: bool) -> Self {
        self.suppressed = Some(suppressed);
        self
    }
}

impl From<&str> for SeedContact {
    fn from(email: &str) -> Self {
        Self::new(email)
    }
}

impl From<String> for SeedContact {
    fn from(email: String) -> Self {
        Self::new(email)
    }
}

/// Takes everything except the id, for example to copy a contact to another mock. Its topics must exist there.
impl From<StoredContact> for SeedContact {
    fn from(stored: StoredContact) -> Self {
        let times = stored.engagement.into_iter();
        Self {
            id: None,
            email: stored.email,
            first_name: stored.first_name.unwrap_or_default(),
            last_name: stored.last_name.unwrap_or_default(),
            properties: stored.properties,
            unsubscribed: stored.unsubscribed,
            reason: Reason::from_value(&stored.unsubscribe_reason).unwrap_or_default(),
            created_at: Some(stored.created_at.as_unix()),
            answers: stored.answers,
            shown_topics: BTreeMap::new(),
            engagement: times.map(|(what, at)| (what, at.as_unix())).collect(),
            suppressed: Some(stored.suppressed),
        }
    }
}

/// A contact as the mock stores it, for the assertions of a test.
///
/// [`MockServer::contact`](crate::mock::MockServer::contact) returns it. It shows more than a response does: the topic
/// answers that the contact itself gave, without the defaults of the topics, and the engagement and the suppression, on
/// which rules and mail depend.
///
/// It serializes to the full form of [interface section 2.1](crate::interface#2.1) with three more members, `answers`,
/// `engagement` and `suppressed`. `GET /_mock/contacts` returns this form, and a [seed](crate::mock#seeds) accepts it.
/// A missing name is an empty string in it.
///
/// # Example: assert on a stored contact
///
/// ```
/// use audience::Client;
/// use audience::contacts::NewContact;
/// use audience::mock::MockServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), audience::Error> {
/// let server = MockServer::builder().topic("news", true).start().await;
/// let contacts = Client::new(server.url(), server.full_key())?.contacts();
///
/// contacts.create(NewContact::new(" Ada@Example.com").property("plan", "pro")).await?;
///
/// let ada = server.contact("ada@example.com").expect("the contact was just created");
/// assert_eq!(ada.email, "ada@example.com");
/// assert_eq!(ada.properties["plan"], "pro");
/// assert_eq!(ada.topics["news"], true);
/// assert!(ada.answers.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// # Example: compare with a snapshot
///
/// ```
/// use audience::mock::{MockServer, Reason, SeedContact};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::builder().clock(1_700_000_000).start().await;
///
/// let ada = server.seed_contact(SeedContact::new("ada@example.com").unsubscribed(Reason::Manual));
///
/// assert_eq!(
///     json!(ada),
///     json!({
///         "id": "con_00000001", "email": "ada@example.com", "first_name": "", "last_name": "", "properties": {},
///         "unsubscribed": true, "unsubscribe_reason": "manual", "created_at": 1_700_000_000, "topics": {},
///         "answers": {}, "engagement": {}, "suppressed": false,
///     }),
/// );
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StoredContact {
    /// The id that the mock assigned, such as `con_00000001`. Also a cursor for listing.
    pub id: String,
    /// The address, lowercased and trimmed.
    pub email: String,
    /// The first name, or `None` if none was given. An empty name counts as none.
    #[serde(serialize_with = "serialize_name")]
    pub first_name: Option<String>,
    /// The last name, or `None` if none was given. An empty name counts as none.
    #[serde(serialize_with = "serialize_name")]
    pub last_name: Option<String>,
    /// The properties.
    pub properties: Map<String, Value>,
    /// Whether the contact opted out of all broadcasts.
    pub unsubscribed: bool,
    /// The reason of the global opt-out: `manual`, `preferences`, `complaint`, or an empty string.
    pub unsubscribe_reason: String,
    /// When the contact was created, by the mock's clock.
    pub created_at: Timestamp,
    /// The answer for every topic: the contact's own, or otherwise the topic's default.
    pub topics: BTreeMap<String, bool>,
    /// The topic answers that the contact itself gave.
    pub answers: BTreeMap<String, bool>,
    /// When the contact's mail was last `delivered`, `bounced`, `complained`, `opened` and `clicked`, for the
    /// engagement rules ([interface section 2.8](crate::interface#2.8)). An engagement that never happened is missing.
    pub engagement: BTreeMap<EngagementKind, Timestamp>,
    /// Whether the address is on the suppression list, so that no mail is sent to it
    /// ([interface section 3.1](crate::interface#3.1)).
    pub suppressed: bool,
}

impl StoredContact {
    /// Collects what an audience stores about one of its contacts.
    pub(super) fn new(contact: &Contact, audience: &Audience) -> Self {
        let topics = contact.topics(&audience.topics).into_iter();
        let engagement = audience.engagements.all(&contact.email);
        Self {
            id: contact.id.clone(),
            email: contact.email.clone(),
            first_name: contact.first_name.clone(),
            last_name: contact.last_name.clone(),
            properties: contact.properties.clone(),
            unsubscribed: contact.unsubscribed,
            unsubscribe_reason: contact.reason.as_str().to_owned(),
            created_at: Timestamp::from_unix(contact.created_at),
            topics: topics
                .map(|(name, answer)| (name.to_owned(), answer))
                .collect(),
            answers: contact.answers.clone(),
            engagement: engagement
                .map(|(kind, at)| (kind, Timestamp::from_unix(at)))
                .collect(),
            suppressed: audience.is_suppressed(&contact.email),
        }
    }
}

/// Serializes a missing name as an empty string: section 2.1 shows a string.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn serialize_name<S: Serializer>(name: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_deref().unwrap_or_default())
}

/// A parsed seed. Whether its contacts are valid is checked when it is applied: that depends on the audience.
#[derive(Clone, Default)]
pub(in crate::mock) struct Seed {
    pub(in crate::mock) settings: SeedSettings,
    /// The time that the clock is set to, in Unix seconds.
    pub(in crate::mock) clock: Option<i64>,
    /// The new ceiling: `Some(None)` removes it.
    ceiling: Option<Option<u64>>,
    /// The name and the default answer of each topic.
    topics: BTreeMap<String, bool>,
    /// The id of each segment, and its contacts or its rule.
    segments: BTreeMap<String, SegmentKind>,
    pub(in crate::mock) endpoints: BTreeMap<String, SeedEndpoint>,
    /// In the order of the list: newest first.
    contacts: Vec<SeedContact>,
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
    /// Fails if the text is not JSON, or if a member is unknown, given twice, without a name or of a wrong type. The
    /// message names it.
    pub(in crate::mock) fn parse(text: &[u8]) -> Result<Self, String> {
        let seed: SeedMembers = parse(text, "a seed")?;
        for (member, has_empty_name) in [
            ("topics", seed.topics.0.contains_key("")),
            ("segments", seed.segments.0.contains_key("")),
            ("endpoints", seed.endpoints.0.contains_key("")),
        ] {
            if has_empty_name {
                return Err(format!("a name in `{member}` is empty"));
            }
        }
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

/// The part of a seed that only the start of a mock can choose: the keys and the dialect. A setting that the seed does
/// not name is `None` or missing.
#[derive(Clone, Default)]
pub(in crate::mock) struct SeedSettings {
    full_key: Option<String>,
    sending_key: Option<String>,
    /// The name of each field and of its choice. Both are known.
    choices: Vec<(String, String)>,
}

impl SeedSettings {
    /// Returns these settings, completed with the settings of the seed before this one.
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

    /// Sets everything that the builder did not set.
    pub(in crate::mock) fn complete(self, settings: &mut Settings) {
        let dialect = self.applied_to(Dialect::default());
        settings.dialect.get_or_insert(dialect);
        settings.full_key = settings.full_key.take().or(self.full_key);
        settings.sending_key = settings.sending_key.take().or(self.sending_key);
    }

    /// Checks that these are the settings that an audience was created with.
    ///
    /// # Errors
    ///
    /// Fails if one of them differs. The message names the member, but no key.
    pub(in crate::mock) fn check(&self, audience: &Audience) -> Result<(), String> {
        let Audience { keys, dialect, .. } = audience;
        let differs =
            |key: &Option<String>, actual: &str| key.as_deref().is_some_and(|key| key != actual);
        let member = if differs(&self.full_key, &keys.full) {
            "keys.full"
        } else if differs(&self.sending_key, &keys.sending) {
            "keys.sending"
        } else if self.applied_to(*dialect) != *dialect {
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
        .collect::<Result<_, ConfigError>>()
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

/// Applies a seed at `now`, which is the creation time of contacts that have none.
///
/// Contacts are stored from the last to the first, so that the list shows new contacts of the same second in the seed's
/// order. The ceiling does not matter: it limits requests, and a seed is a starting point.
///
/// # Errors
///
/// Fails if the seed contradicts itself or the document. The message names the member. Nothing is changed then.
pub(in crate::mock) fn apply(audience: &mut Audience, seed: Seed, now: i64) -> Result<(), String> {
    let mut topics = audience.topics.clone();
    topics.extend(seed.topics);
    let segments = seed
        .segments
        .into_iter()
        .map(|(id, kind)| match Segment::parse(kind, audience.dialect) {
            Ok(segment) => Ok((id, segment)),
            Err(problem) => Err(format!("`segments.{}`: {problem}", printable(&id))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let contacts = check_all(seed.contacts, &topics, audience.dialect, now)?;

    check_ids(audience, &contacts)?;
    for contact in &contacts {
        if !contact.contact.id.is_empty() {
            audience.contacts.reserve_id(&contact.contact.id);
        }
    }

    for (name, default) in &topics {
        audience.put_topic(name, *default);
    }
    for (id, segment) in segments {
        audience.segments.insert(id, segment);
    }
    if let Some(ceiling) = seed.ceiling {
        audience.contacts.ceiling = ceiling;
    }
    for contact in contacts.into_iter().rev() {
        contact.store(audience);
    }
    Ok(())
}

/// Stores a contact in any state, or replaces the one with its address, and returns it. Publishes no event.
///
/// # Errors
///
/// The same as [`apply`].
pub(in crate::mock) fn put_contact(
    audience: &mut Audience,
    contact: SeedContact,
    now: i64,
) -> Result<StoredContact, String> {
    let checked = CheckedContact::new(contact, "", &audience.topics, audience.dialect, now)?;
    let email = checked.contact.email.clone();
    check_ids(audience, std::slice::from_ref(&checked))?;
    checked.store(audience);
    let stored = audience.contact(&email);
    Ok(stored.expect("the contact was just stored"))
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
fn check_ids(audience: &Audience, contacts: &[CheckedContact]) -> Result<(), String> {
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
        let is_taken = audience
            .contacts
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

    fn store(self, audience: &mut Audience) {
        let key = self.contact.email.clone();
        if self.suppressed {
            audience.suppressed.insert(key.clone());
        } else {
            audience.suppressed.remove(&key);
        }
        audience.engagements.replace(key, self.engagement);
        audience.contacts.put(self.contact);
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

/// Checks that the topics exist, and that the topics of a response agree with the answers.
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
