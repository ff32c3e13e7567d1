//! Contacts as a test seeds them, and as it sees them.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::contact::{Contact, Reason};
use super::engagement::EngagementKind;
use super::state::AudienceState;
use crate::Timestamp;

/// A contact in any state of interface section 3.1, for [`MockServer::seed_contact`].
///
/// Everything except the address is optional. What is not set is as for a contact that was just created: no names and
/// properties, subscribed, no topic answers, no engagement.
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
    pub(super) id: Option<String>,
    pub(super) email: String,
    pub(super) first_name: String,
    pub(super) last_name: String,
    pub(super) properties: Map<String, Value>,
    pub(super) unsubscribed: bool,
    pub(super) reason: Reason,
    /// In Unix seconds. `None` means now.
    pub(super) created_at: Option<i64>,
    pub(super) answers: BTreeMap<String, bool>,
    /// What the member `topics` of a response showed: answers and defaults. It must agree with `answers`.
    pub(super) shown_topics: BTreeMap<String, bool>,
    /// The time of each engagement, in Unix seconds.
    pub(super) engagement: BTreeMap<EngagementKind, i64>,
    /// `None` means that the reason decides.
    pub(super) suppressed: Option<bool>,
}

impl SeedContact {
    /// Creates a contact with an address. The mock trims and lowercases it, as the service does.
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

    /// Sets the id, so that a test can name it. Default: the mock assigns the next id, such as `con_00000001`, or keeps the
    /// id of the contact that is replaced.
    ///
    /// It must not be empty, and no other contact may have it.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the first name. Default: none.
    pub fn first_name(mut self, name: impl Into<String>) -> Self {
        self.first_name = name.into();
        self
    }

    /// Sets the last name. Default: none.
    pub fn last_name(mut self, name: impl Into<String>) -> Self {
        self.last_name = name.into();
        self
    }

    /// Adds a property, or replaces the one with this name.
    ///
    /// Its value must be text or a number (interface section 2.1), unless
    /// [`PropertyValues`](crate::mock::PropertyValues) allows any.
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
    /// # let _ = contact;
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

    /// Sets when the contact was created, which decides its place in the list (interface section 4.4).
    /// Default: now, by the mock's clock.
    ///
    /// Of two contacts created in the same second, the one stored later comes first in the list.
    pub fn created_at(mut self, at: impl Into<Timestamp>) -> Self {
        self.created_at = Some(at.into().as_unix());
        self
    }

    /// Opts the contact out of all broadcasts, for a reason. Default: subscribed.
    ///
    /// [`Reason::Complaint`] also suppresses the address, and counts as the engagement `complained`, now unless
    /// [`engaged`](Self::engaged) says when. [`Reason::None`] is an opt-out whose reason is an empty string.
    pub fn unsubscribed(mut self, reason: Reason) -> Self {
        self.unsubscribed = true;
        self.reason = reason;
        self
    }

    /// Subscribes the contact, but keeps the reason of an earlier opt-out.
    ///
    /// The document does not show `unsubscribe_reason` after a subscribe (section 3.2); see
    /// [`ReasonAfterSubscribe`](crate::mock::ReasonAfterSubscribe). [`Reason::Complaint`] is refused: a spam report
    /// cannot be undone.
    pub fn resubscribed(mut self, reason: Reason) -> Self {
        self.unsubscribed = false;
        self.reason = reason;
        self
    }

    /// Sets the contact's own answer to a topic, which must exist. Default: no answer, so that the topic's default
    /// applies.
    pub fn answer(mut self, topic: impl Into<String>, answer: bool) -> Self {
        self.answers.insert(topic.into(), answer);
        self
    }

    /// Sets when the contact's mail last had this engagement, for the engagement rules (interface section 2.8). Default:
    /// never.
    pub fn engaged(mut self, what: EngagementKind, at: impl Into<Timestamp>) -> Self {
        self.engagement.insert(what, at.into().as_unix());
        self
    }

    /// Sets whether the address is on the suppression list, so that no mail is sent to it (interface section 3.1).
    /// Default: only after [`Reason::Complaint`], which always suppresses the address.
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
/// answers that the contact itself gave, apart from the defaults of the topics, and what rules and mail depend on.
///
/// It serializes to the full form of interface section 2.1 with three more members, `answers`, `engagement` and
/// `suppressed`. `GET /_mock/contacts` returns this form, and a [seed](crate::mock#seeds) accepts it. A missing name is
/// an empty string in it.
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
    /// The merge fields.
    pub properties: Map<String, Value>,
    /// Whether the contact opted out of all broadcasts.
    pub unsubscribed: bool,
    /// The reason of the global opt-out: `manual`, `preferences`, `complaint`, or an empty string.
    pub unsubscribe_reason: String,
    /// When the contact was created, by the mock's clock.
    pub created_at: Timestamp,
    /// The answer for every topic: the contact's own, or else the default of the topic.
    pub topics: BTreeMap<String, bool>,
    /// The topic answers that the contact itself gave.
    pub answers: BTreeMap<String, bool>,
    /// When the contact's mail was last `delivered`, `bounced`, `complained`, `opened` and `clicked`, for the engagement
    /// rules (interface section 2.8). What never happened is missing.
    pub engagement: BTreeMap<EngagementKind, Timestamp>,
    /// Whether the address is on the suppression list, so that no mail is sent to it (interface section 3.1).
    pub suppressed: bool,
}

impl StoredContact {
    /// Collects what an audience stores about one of its contacts.
    pub(super) fn new(contact: &Contact, state: &AudienceState) -> Self {
        let topics = contact.topics(state.topics()).into_iter();
        let engagement = state.engagements().all(&contact.email);
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
            suppressed: state.is_suppressed(&contact.email),
        }
    }
}

/// Serializes a missing name as an empty string: section 2.1 shows a string.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn serialize_name<S: Serializer>(name: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_deref().unwrap_or_default())
}
