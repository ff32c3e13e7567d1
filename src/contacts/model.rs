use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::client::{NOT_SECONDS, is_path_segment};
use crate::properties::{Properties, PropertyValue};
use crate::string_enum::string_enum;
use crate::{Error, Outcome, Timestamp};

/// A contact in its full form, as retrieve and the consent calls return it
/// ([interface section 2.1](crate::interface#2.1)).
///
/// A name that was never given is `None`, whether the service leaves it out, sends `null` or sends an
/// empty text.
///
/// The interface document does not say whether the consent calls return this form or a shorter one. If a
/// response leaves out the topics or the reason of an opt-out, they are empty here. To find out whether the service
/// sent them, call [`shows_topics`](Contact::shows_topics) and
/// [`shows_unsubscribe_reason`](Contact::shows_unsubscribe_reason).
///
/// # Example: in a unit test
///
/// ```
/// use audience::contacts::Contact;
///
/// let mut ada = Contact::new("c_1", "ada@example.com");
/// ada.topics.insert("news".to_owned(), true);
/// assert!(ada.reachability_for("news").is_reachable());
///
/// ada.unsubscribed = true;
/// assert!(!ada.reachability_for("news").is_reachable());
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "WireContact")]
#[non_exhaustive]
pub struct Contact {
    /// The id that the service assigned. Lists take it as a cursor. The key of a contact is its
    /// address, not its id.
    pub id: String,
    /// The address, trimmed and in lower case.
    pub email: String,
    /// The given name, if known.
    pub first_name: Option<String>,
    /// The family name, if known.
    pub last_name: Option<String>,
    /// The properties: text and numbers that the sender stores with the contact.
    pub properties: Properties,
    /// The global opt-out. If true, no broadcast of any topic reaches the contact.
    pub unsubscribed: bool,
    /// Why the contact is opted out, if the service gives a reason.
    pub unsubscribe_reason: Option<UnsubscribeReason>,
    /// When the contact was created.
    pub created_at: Timestamp,
    /// The contact's answer for each topic. If the contact never answered, it is the topic's default. A topic whose answer
    /// is `null` is left out: nobody knows whether the contact wants mail about it.
    pub topics: BTreeMap<String, bool>,
    null_topics: BTreeSet<String>,
    shows_reason: bool,
    shows_topics: bool,
    shows_properties: bool,
}

impl Contact {
    /// Creates a contact, for example for a unit test. All other fields are empty, `created_at` is the Unix
    /// epoch, and the contact is not opted out. Assign to the fields to change them.
    ///
    /// # Example: a contact who opted out, in a unit test
    ///
    /// ```
    /// use audience::contacts::{Contact, UnsubscribeReason};
    ///
    /// let mut ada = Contact::new("c_1", "ada@example.com");
    /// ada.unsubscribed = true;
    /// ada.unsubscribe_reason = Some(UnsubscribeReason::Preferences);
    ///
    /// assert!(ada.shows_unsubscribe_reason());
    /// ```
    pub fn new(id: impl Into<String>, email: impl Into<String>) -> Self {
        let mut contact = Self::from(ContactRecord::new(id, email));
        contact.shows_reason = true;
        contact.shows_topics = true;
        contact
    }

    /// Returns whether the service sent the topics. If it did not, [`topics`](Self::topics) is empty although the
    /// contact may have answers: call [`retrieve`](super::Contacts::retrieve).
    ///
    /// # Example: the answer after a consent call
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let mut contact = contacts.unsubscribe("ada@example.com").topic("news").await?;
    ///
    /// if !contact.shows_topics() {
    ///     contact = contacts.retrieve("ada@example.com").await?;
    /// }
    /// assert_eq!(contact.topics.get("news"), Some(&false));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shows_topics(&self) -> bool {
        self.shows_topics || !self.topics.is_empty()
    }

    /// Returns whether the service sent the reason of an opt-out, even an empty one. If it did not,
    /// [`unsubscribe_reason`](Self::unsubscribe_reason) is `None` although there may be a reason: call
    /// [`retrieve`](super::Contacts::retrieve).
    ///
    /// # Example: a contact made from a create response
    ///
    /// ```
    /// use audience::contacts::{Contact, ContactRecord};
    ///
    /// let from_create = Contact::from(ContactRecord::new("c_1", "ada@example.com"));
    ///
    /// assert!(!from_create.shows_unsubscribe_reason());
    /// assert_eq!(from_create.unsubscribe_reason, None);
    /// ```
    #[must_use]
    pub fn shows_unsubscribe_reason(&self) -> bool {
        self.shows_reason || self.unsubscribe_reason.is_some()
    }

    /// Returns the names of all topics that the service shows, also of those whose answer is `null`.
    pub(crate) fn topic_names(&self) -> impl Iterator<Item = &String> {
        self.topics.keys().chain(self.null_topics())
    }

    /// Returns the topics whose answer is `null`.
    pub(crate) fn null_topics(&self) -> impl Iterator<Item = &String> {
        let topics = self.null_topics.iter();
        // The program may have set an answer since.
        topics.filter(move |topic| !self.topics.contains_key(*topic))
    }

    /// Returns the topics that another contact must not get because of this one: their answer is "no", or `null`, which
    /// may be a "no".
    pub(crate) fn topic_opt_outs(&self) -> impl Iterator<Item = &String> {
        let answers = self.topics.iter().filter(|(_, answer)| !**answer);
        let topics = answers.map(|(topic, _)| topic);
        topics.chain(self.null_topics())
    }

    pub(crate) fn has_topic(&self, topic: &str) -> bool {
        self.topics.contains_key(topic) || self.null_topics.contains(topic)
    }

    /// Returns whether no broadcast reaches the contact, whatever its topics. After a spam report, the flag may be
    /// `false` nevertheless: the address is suppressed all the same (interface section 3.1).
    pub(crate) fn is_opted_out(&self) -> bool {
        self.unsubscribed || self.has_reported_spam()
    }

    pub(crate) fn has_reported_spam(&self) -> bool {
        self.unsubscribe_reason == Some(UnsubscribeReason::Complaint)
    }

    /// Fails if the service did not send the topics of a retrieved contact, although interface section 4.3 promises
    /// them. A caller that takes the opt-outs from the topics would lose them.
    pub(crate) fn require_topics(&self) -> Result<(), Error> {
        match self.shows_topics() {
            true => Ok(()),
            false => Err(not_shown(
                "the contact that was retrieved has no member `topics`, so its opt-outs are not known",
            )),
        }
    }

    /// Returns whether the service sent the properties of a retrieved contact. If not, an upsert with others would remove
    /// them.
    pub(super) fn shows_properties(&self) -> bool {
        self.shows_properties
    }

    /// Fails if a retrieved contact does not show its answer for a topic.
    #[cfg(feature = "unsubscribe")]
    pub(crate) fn require_answer(&self, topic: &str) -> Result<(), Error> {
        self.require_topics()?;
        match self.null_topics().any(|name| name == topic) {
            false => Ok(()),
            true => Err(not_shown(
                "the contact that was retrieved has `null` as its answer for the topic, so nobody knows whether it wants mail about it",
            )),
        }
    }

    /// Returns whether broadcasts can reach the contact, and if not, why. It says nothing about the answers for topics:
    /// see [`reachability_for`](Self::reachability_for).
    ///
    /// The contact is as it was when it was retrieved.
    ///
    /// # Example: what a support tool shows
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # server.report_spam("ada@example.com");
    /// use audience::contacts::Reachability;
    ///
    /// let ada = contacts.retrieve("ada@example.com").await?;
    ///
    /// assert_eq!(ada.reachability(), Reachability::SpamReport);
    /// println!("{}", ada.reachability());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reachability(&self) -> Reachability {
        match &self.unsubscribe_reason {
            // The address is suppressed, whatever the flag says (interface section 3.1).
            Some(UnsubscribeReason::Complaint) => Reachability::SpamReport,
            _ if !self.unsubscribed && !self.shows_topics() => Reachability::NotShown,
            _ if !self.unsubscribed => Reachability::Reachable,
            Some(UnsubscribeReason::Preferences) => Reachability::OptedOutByPerson,
            Some(UnsubscribeReason::Manual) => Reachability::OptedOutBySender,
            Some(UnsubscribeReason::Other(_)) | None => Reachability::OptedOut,
        }
    }

    /// Returns whether broadcasts on a topic can reach the contact, and if not, why.
    ///
    /// The contact is as it was when it was retrieved. To decide whether to send a mail, retrieve it directly before.
    ///
    /// If the topic's name is misspelled, the result is [`UnknownTopic`](Reachability::UnknownTopic) for each contact
    /// that is not opted out of everything. So match it, and do not only ask whether the result
    /// [is reachable](Reachability::is_reachable).
    ///
    /// [`Reachable`](Reachability::Reachable) is no proof of an opt-in: for a topic that it never answered, the contact
    /// shows the topic's default. The service does not tell the two apart, so keep a record of the opt-ins, for example
    /// with `record_consent` of an `UnsubscribeService`.
    ///
    /// # Example: who gets the newsletter
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::Reachability;
    ///
    /// let ada = contacts.retrieve("ada@example.com").await?;
    ///
    /// match ada.reachability_for("news") {
    ///     Reachability::Reachable => println!("gets it"),
    ///     Reachability::UnknownTopic => panic!("the name of the topic is misspelled"),
    ///     reason => println!("does not get it: {reason}"),
    /// }
    /// # assert_eq!(ada.reachability_for("news"), Reachability::Reachable);
    /// assert_eq!(ada.reachability_for("nwes"), Reachability::UnknownTopic);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reachability_for(&self, topic: impl AsRef<str>) -> Reachability {
        match self.reachability() {
            Reachability::Reachable => match self.topics.get(topic.as_ref()) {
                Some(true) => Reachability::Reachable,
                Some(false) => Reachability::TopicOptedOut,
                None if self.has_topic(topic.as_ref()) => Reachability::NotShown,
                None => Reachability::UnknownTopic,
            },
            unreachable => unreachable,
        }
    }
}

/// The contact was in a response, so there was at least one attempt.
pub(crate) fn not_shown(problem: impl Into<Cow<'static, str>>) -> Error {
    let error = Error::decode(problem).with_outcome(Outcome::Unchanged);
    error.after(1, Outcome::Unchanged).malformed_contact()
}

/// Whether broadcasts can reach a contact, and if not, why: see [`Contact::reachability`] and
/// [`Contact::reachability_for`].
///
/// It concerns consent and spam reports only. Mail may still bounce, for example. `Display` writes a text for a person
/// who does not program, in lowercase and without a full stop. Its wording may change in any release.
///
/// # Example: whether an opt-in is possible
///
/// ```
/// use audience::contacts::Reachability;
///
/// fn may_opt_in_again(reachability: Reachability) -> bool {
///     !reachability.is_reachable() && reachability != Reachability::SpamReport
/// }
///
/// assert!(may_opt_in_again(Reachability::OptedOutByPerson));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reachability {
    /// Nothing that the contact shows prevents broadcasts. This is no proof of an opt-in, because the contact may show the
    /// default of a topic that it never answered: see [`Contact::reachability_for`].
    Reachable,
    /// A mailbox provider reported spam. No opt-in ends this ([section 3.2](crate::interface#3.2)). Send no other opt-out:
    /// it might replace the reason.
    SpamReport,
    /// The person opted out of everything, with the reason `preferences`.
    OptedOutByPerson,
    /// The sender recorded an opt-out of everything, with the reason `manual`.
    OptedOutBySender,
    /// The contact is opted out of everything. The reason is missing, or unknown to this version of the crate.
    OptedOut,
    /// The contact opted out of the topic, or never answered and the topic's default is `false`.
    TopicOptedOut,
    /// The contact does not show the topic, so the service has no such topic.
    UnknownTopic,
    /// The contact comes from a response that does not show the topics: see [`Contact::shows_topics`]. Retrieve it. Or its
    /// answer for the topic is `null`.
    NotShown,
    /// The address is not one of your contacts. Only `UnsubscribeService::reachability` returns this and the next two.
    NoContact,
    /// An opt-out is stored, and the service does not have it yet.
    OptOutWaits,
    /// Mail to the address has bounced for good.
    Bounced,
}

impl Reachability {
    /// Returns whether this is [`Reachable`](Self::Reachable).
    ///
    /// # Example: a contact of a short response
    ///
    /// ```
    /// use audience::contacts::{Contact, ContactRecord};
    ///
    /// let short = Contact::from(ContactRecord::new("c_1", "ada@example.com"));
    ///
    /// assert!(!short.reachability().is_reachable());
    /// ```
    #[must_use]
    pub fn is_reachable(self) -> bool {
        self == Self::Reachable
    }

    /// Returns the name for a program, such as `spam_report`. It is also the value in JSON, and never changes.
    ///
    /// # Example: a column of a report
    ///
    /// ```
    /// use audience::contacts::Reachability;
    ///
    /// assert_eq!(Reachability::OptedOutByPerson.as_str(), "opted_out_by_person");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reachable => "reachable",
            Self::SpamReport => "spam_report",
            Self::OptedOutByPerson => "opted_out_by_person",
            Self::OptedOutBySender => "opted_out_by_sender",
            Self::OptedOut => "opted_out",
            Self::TopicOptedOut => "topic_opted_out",
            Self::UnknownTopic => "unknown_topic",
            Self::NotShown => "not_shown",
            Self::NoContact => "no_contact",
            Self::OptOutWaits => "opt_out_waits",
            Self::Bounced => "bounced",
        }
    }
}

/// Writes [`as_str`](Reachability::as_str).
impl Serialize for Reachability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reachable => "nothing is known that prevents broadcasts",
            Self::SpamReport => "a mailbox provider reported spam, and no call ends this",
            Self::OptedOutByPerson => "the person opted out of everything",
            Self::OptedOutBySender => "the sender recorded an opt-out of everything",
            Self::OptedOut => "the contact is opted out of everything",
            Self::TopicOptedOut => {
                "the contact opted out of the topic, or never answered and the topic's default is false"
            }
            Self::UnknownTopic => "there is no topic with this name",
            Self::NotShown => "not known, because the response does not show the topics, or has no answer for this one",
            Self::NoContact => "the address is no contact",
            Self::OptOutWaits => "an opt-out of the person is being recorded",
            Self::Bounced => "mail to the address has bounced for good",
        })
    }
}

/// Keeps everything that a create response has. Such a response has neither topics nor a reason, so
/// [`Contact::shows_topics`] and [`Contact::shows_unsubscribe_reason`] return `false`.
///
/// # Example: a consent call with a short response, in a unit test
///
/// ```
/// use audience::contacts::{Contact, ContactRecord};
///
/// let short = Contact::from(ContactRecord::new("c_1", "ada@example.com"));
///
/// assert!(!short.shows_topics());
/// ```
impl From<ContactRecord> for Contact {
    fn from(record: ContactRecord) -> Self {
        Self {
            id: record.id,
            email: record.email,
            first_name: record.first_name,
            last_name: record.last_name,
            properties: record.properties,
            unsubscribed: record.unsubscribed,
            unsubscribe_reason: None,
            created_at: record.created_at,
            topics: BTreeMap::new(),
            null_topics: BTreeSet::new(),
            shows_reason: false,
            shows_topics: false,
            shows_properties: true,
        }
    }
}

impl From<Contact> for ContactRecord {
    fn from(contact: Contact) -> Self {
        Self {
            id: contact.id,
            email: contact.email,
            first_name: contact.first_name,
            last_name: contact.last_name,
            properties: contact.properties,
            unsubscribed: contact.unsubscribed,
            created_at: contact.created_at,
        }
    }
}

/// A contact on the wire: the topics and the reason may be absent.
#[derive(Deserialize)]
struct WireContact {
    #[serde(deserialize_with = "id")]
    id: String,
    email: String,
    #[serde(default, deserialize_with = "optional_text::deserialize")]
    first_name: Option<String>,
    #[serde(default, deserialize_with = "optional_text::deserialize")]
    last_name: Option<String>,
    /// Without the member, the properties are not known. With `null`, there are none.
    #[serde(default, deserialize_with = "present_map")]
    properties: Option<Option<Properties>>,
    unsubscribed: bool,
    #[serde(default, deserialize_with = "present_text")]
    unsubscribe_reason: Option<Option<UnsubscribeReason>>,
    #[serde(deserialize_with = "seconds")]
    created_at: Timestamp,
    #[serde(default, deserialize_with = "map")]
    topics: Option<BTreeMap<String, Option<bool>>>,
}

/// Reads the text of a member that is not absent. `null` is present, but is not text.
fn present_text<'de, D: Deserializer<'de>, T: From<String>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    optional_text::deserialize(deserializer).map(Some)
}

fn present_map<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    map(deserializer).map(Some)
}

impl From<WireContact> for Contact {
    fn from(contact: WireContact) -> Self {
        let shows_topics = contact.topics.is_some();
        let (mut topics, mut null_topics) = (BTreeMap::new(), BTreeSet::new());
        for (topic, answer) in contact.topics.into_iter().flatten() {
            match answer {
                Some(answer) => _ = topics.insert(topic, answer),
                None => _ = null_topics.insert(topic),
            }
        }
        Self {
            id: contact.id,
            email: contact.email,
            first_name: contact.first_name,
            last_name: contact.last_name,
            shows_properties: contact.properties.is_some(),
            properties: contact.properties.flatten().unwrap_or_default(),
            unsubscribed: contact.unsubscribed,
            created_at: contact.created_at,
            shows_reason: contact.unsubscribe_reason.is_some(),
            unsubscribe_reason: contact.unsubscribe_reason.flatten(),
            shows_topics,
            topics,
            null_topics,
        }
    }
}

/// Serializes to the form of [section 2.1](crate::interface#2.1), without the topics or the reason if the service did
/// not send them.
impl Serialize for Contact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct FullForm<'a> {
            id: &'a str,
            email: &'a str,
            #[serde(serialize_with = "optional_text::serialize")]
            first_name: &'a Option<String>,
            #[serde(serialize_with = "optional_text::serialize")]
            last_name: &'a Option<String>,
            properties: &'a Properties,
            unsubscribed: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            unsubscribe_reason: Option<&'a str>,
            created_at: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            topics: Option<BTreeMap<&'a String, Option<bool>>>,
        }
        let topics = || {
            let answers = self.topics.iter();
            let answers = answers.map(|(topic, answer)| (topic, Some(*answer)));
            let without_answer = self.null_topics().map(|topic| (topic, None));
            answers.chain(without_answer).collect()
        };
        let reason = self.unsubscribe_reason.as_ref();
        // The service writes an empty text if there is no reason.
        let reason = reason.map_or("", UnsubscribeReason::as_str);
        FullForm {
            id: &self.id,
            email: &self.email,
            first_name: &self.first_name,
            last_name: &self.last_name,
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            unsubscribe_reason: self.shows_unsubscribe_reason().then_some(reason),
            created_at: self.created_at,
            topics: self.shows_topics().then(topics),
        }
        .serialize(serializer)
    }
}

/// A contact as create returns it ([interface section 2.2](crate::interface#2.2)): without the topics and the reason of
/// an opt-out.
///
/// # Example: the id and the normalized address
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// let record = contacts.create(" Ada@Example.com ").await?.contact;
///
/// assert_eq!(record.email, "ada@example.com");
/// assert!(!record.id.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContactRecord {
    /// The id that the service assigned. Lists take it as a cursor.
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// The address, trimmed and in lower case.
    pub email: String,
    /// The given name, if known.
    #[serde(default, with = "optional_text")]
    pub first_name: Option<String>,
    /// The family name, if known.
    #[serde(default, with = "optional_text")]
    pub last_name: Option<String>,
    /// The properties: text and numbers that the sender stores with the contact.
    #[serde(default, deserialize_with = "map_or_default")]
    pub properties: Properties,
    /// The global opt-out. If true, no broadcast reaches the contact.
    pub unsubscribed: bool,
    /// When the contact was created.
    #[serde(deserialize_with = "seconds")]
    pub created_at: Timestamp,
}

impl ContactRecord {
    /// Creates a contact, for example for a unit test. All other fields are empty, `created_at` is the Unix
    /// epoch, and the contact is not opted out. Assign to the fields to change them.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::contacts::{ContactRecord, Created};
    ///
    /// let mut ada = ContactRecord::new("c_1", "ada@example.com");
    /// ada.first_name = Some("Ada".to_owned());
    ///
    /// let created = Created::new(ada, true);
    /// assert!(created.is_new());
    /// ```
    pub fn new(id: impl Into<String>, email: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            email: email.into(),
            first_name: None,
            last_name: None,
            properties: Properties::new(),
            unsubscribed: false,
            created_at: Timestamp::from_unix(0),
        }
    }
}

/// A contact as lists return it ([interface section 2.3](crate::interface#2.3)): without the family name, the topics
/// and the reason of an opt-out.
///
/// [`ListContacts::full`](super::ListContacts::full) lists the contacts with them, and
/// [`retrieve`](super::Contacts::retrieve) returns them for one contact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContactSummary {
    /// The id that the service assigned. As a cursor, it continues the list after this contact.
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// The address, trimmed and in lower case.
    pub email: String,
    /// The given name, if known.
    #[serde(default, with = "optional_text")]
    pub first_name: Option<String>,
    /// The properties: text and numbers that the sender stores with the contact.
    #[serde(default, deserialize_with = "map_or_default")]
    pub properties: Properties,
    /// The global opt-out. If true, no broadcast reaches the contact.
    pub unsubscribed: bool,
    /// When the contact was created.
    #[serde(deserialize_with = "seconds")]
    pub created_at: Timestamp,
}

impl ContactSummary {
    /// Creates a contact, for example for a unit test. All other fields are empty, `created_at` is the Unix
    /// epoch, and the contact is not opted out. Assign to the fields to change them.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::contacts::{ContactSummary, Page};
    ///
    /// let mut ada = ContactSummary::new("c_1", "ada@example.com");
    /// ada.properties.insert("plan", "pro");
    ///
    /// let page = Page::new([ada]);
    /// assert_eq!(page.cursor(), Some("c_1"));
    /// ```
    pub fn new(id: impl Into<String>, email: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            email: email.into(),
            first_name: None,
            properties: Properties::new(),
            unsubscribed: false,
            created_at: Timestamp::from_unix(0),
        }
    }
}

/// Reads an id. One that is a whole number becomes text.
fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    PropertyValue::deserialize(deserializer).and_then(text_of)
}

/// Reads an id or a cursor. Returns `None` for `null` and `""`.
pub(crate) fn optional_id<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    match PropertyValue::deserialize(deserializer)? {
        PropertyValue::Other(Value::Null) => Ok(None),
        value => text_of(value).map(|text| Some(text).filter(|text| !text.is_empty())),
    }
}

fn text_of<E: serde::de::Error>(id: PropertyValue) -> Result<String, E> {
    match id {
        PropertyValue::String(text) => Ok(text),
        PropertyValue::Integer(number) => Ok(number.to_string()),
        PropertyValue::Unsigned(number) => Ok(number.to_string()),
        PropertyValue::Float(_) | PropertyValue::Other(_) => Err(E::custom("an id is text")),
    }
}

/// The first number that is not read as Unix seconds. As seconds, it is a time in the year 5138; as milliseconds, in
/// 1973. A negative number of this size is not read as seconds either.
const TOO_LATE: u64 = 100_000_000_000;

/// Reads Unix seconds. They may also be text, or a number such as `1700000000.0`.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let seconds = match PropertyValue::deserialize(deserializer)? {
        PropertyValue::Integer(seconds) => Some(seconds),
        PropertyValue::Unsigned(_) => Some(i64::MAX),
        PropertyValue::Float(seconds) if seconds.fract() == 0.0 =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a larger number is refused below"
            )]
            Some(seconds as i64)
        }
        PropertyValue::String(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok()
        }
        _ => None,
    };
    match seconds {
        Some(seconds) if seconds.unsigned_abs() < TOO_LATE => Ok(Timestamp::from_unix(seconds)),
        Some(_) => Err(D::Error::custom(NOT_SECONDS)),
        None => Err(D::Error::custom("a time is a whole number")),
    }
}

/// Reads a map. An empty array counts as an empty map, because PHP writes one as `[]`. Returns `None` for `null`.
fn map<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    struct MapVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for MapVisitor<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(members)).map(Some)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<T>, A::Error> {
            match items.next_element::<IgnoredAny>()? {
                None => Ok(Some(T::default())),
                Some(_) => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
            }
        }

        fn visit_none<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }
    }

    deserializer.deserialize_any(MapVisitor(PhantomData))
}

/// Reads a map, and `null` as an empty one.
fn map_or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    map(deserializer).map(Option::unwrap_or_default)
}

string_enum! {
    /// Why a contact is opted out of all broadcasts, as read from the service
    /// ([interface section 3.1](crate::interface#3.1)).
    ///
    /// A reason that this version of the crate does not know is kept verbatim as
    /// [`UnsubscribeReason::Other`]. The reason that a sender gives is an [`OptOutReason`].
    ///
    /// # Example: reasons and variants
    ///
    /// ```
    /// use audience::contacts::UnsubscribeReason;
    ///
    /// assert_eq!(UnsubscribeReason::from("complaint"), UnsubscribeReason::Complaint);
    /// assert_eq!(UnsubscribeReason::Manual.as_str(), "manual");
    /// assert_eq!(UnsubscribeReason::from("moved_away").as_str(), "moved_away");
    /// ```
    pub enum UnsubscribeReason {
        /// `manual`: the sender recorded it.
        Manual = "manual",
        /// `preferences`: the recipient chose it, for example on a preference page.
        Preferences = "preferences",
        /// `complaint`: a mailbox provider reported spam. The contact cannot be subscribed again
        /// through the service, and the address is suppressed.
        Complaint = "complaint",
    }
}

/// The reason that a sender may give with an opt-out ([interface section 4.5](crate::interface#4.5)).
///
/// There is no variant `Complaint`: only the service records a spam report.
///
/// # Example: a complaint cannot be declared
///
/// ```compile_fail,E0599
/// use audience::contacts::OptOutReason;
///
/// let reason = OptOutReason::Complaint;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptOutReason {
    /// The sender records it. This is the service's default.
    #[default]
    Manual,
    /// The recipient chose it, for example on a preference page.
    Preferences,
}

impl From<OptOutReason> for UnsubscribeReason {
    fn from(reason: OptOutReason) -> Self {
        match reason {
            OptOutReason::Manual => Self::Manual,
            OptOutReason::Preferences => Self::Preferences,
        }
    }
}

/// Returns an address as it stands in a path: trimmed, and with its ASCII letters in lower case.
///
/// The interface document says how the service stores an address, but not whether it looks one up in the same way. A
/// service that does not would respond 404 to another spelling, and an opt-out would be lost. Other letters stay as
/// they are, because it is not known which form of them the service stores.
pub(crate) fn address_in_path(address: &str) -> String {
    address.trim().to_ascii_lowercase()
}

/// Returns an address as a segment of a path.
///
/// # Errors
///
/// `ErrorKind::Input` if the address is empty, `.` or `..`.
pub(super) fn address_segment(address: &str) -> Result<String, Error> {
    let message = match address_in_path(address) {
        address if is_path_segment(&address) => return Ok(address),
        address if address.is_empty() => "the address is empty",
        _ => "the address is `.` or `..`, which would reach another endpoint",
    };
    Err(Error::input(message).malformed_contact())
}

/// Reads `""` and `null` as `None`, and writes `None` as `""`. Use with `#[serde(default, with = "optional_text")]`,
/// so that a missing member is `None` too.
pub(super) mod optional_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::contacts) fn serialize<S: Serializer, T: Serialize>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }

    pub(in crate::contacts) fn deserialize<'de, D: Deserializer<'de>, T: From<String>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(text.filter(|text| !text.is_empty()).map(T::from))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::address::normalized_address;

    #[test]
    fn an_address_that_is_empty_and_one_of_dots_are_refused_with_their_own_reasons() {
        let reason = |address| address_segment(address).unwrap_err().to_string();

        assert!(reason(" ").contains("is empty"), "{}", reason(" "));
        for dots in [".", ".."] {
            assert!(reason(dots).contains("`.` or `..`"), "{}", reason(dots));
        }
        assert_eq!(address_segment(" A@x.io ").unwrap(), "a@x.io");
    }

    #[test]
    fn a_reachability_is_serialized_by_its_name() {
        for (reachability, name) in [
            (Reachability::Reachable, "reachable"),
            (Reachability::SpamReport, "spam_report"),
            (Reachability::TopicOptedOut, "topic_opted_out"),
        ] {
            assert_eq!(serde_json::to_value(reachability).unwrap(), name);
        }
    }

    #[test]
    fn members_that_are_missing_null_or_empty_are_none_or_empty() {
        let base = json!({"id": "c1", "email": "a@x.io", "unsubscribed": false, "created_at": 5});
        for absent in [
            json!({}),
            json!({"first_name": null, "last_name": null, "unsubscribe_reason": null, "properties": null, "topics": null}),
            json!({"first_name": "", "last_name": "", "unsubscribe_reason": "", "properties": {}, "topics": {}}),
        ] {
            let mut value = base.clone();
            value
                .as_object_mut()
                .unwrap()
                .extend(absent.as_object().unwrap().clone());

            let contact: Contact = serde_json::from_value(value).unwrap();

            assert_eq!(
                (
                    contact.first_name,
                    contact.last_name,
                    contact.unsubscribe_reason
                ),
                (None, None, None)
            );
            assert!(contact.properties.is_empty() && contact.topics.is_empty());
        }
    }

    #[test]
    fn unknown_reasons_and_members_are_accepted() {
        let value = json!({"id": "c1", "email": "a@x.io", "unsubscribed": true, "unsubscribe_reason": "moved",
        "created_at": -1, "topics": {"news": false}, "brand_new": [1]});

        let contact: Contact = serde_json::from_value(value).unwrap();

        assert_eq!(
            contact.unsubscribe_reason,
            Some(UnsubscribeReason::Other("moved".into()))
        );
        assert_eq!(contact.topics.get("news"), Some(&false));
    }

    #[test]
    fn a_contact_made_in_a_test_equals_the_one_that_the_service_sends() {
        let json = json!({"id": "c1", "email": "a@x.io", "first_name": "", "last_name": "", "properties": {},
        "unsubscribed": false, "unsubscribe_reason": "", "created_at": 0, "topics": {"news": true}});

        let mut contact = Contact::new("c1", "a@x.io");
        contact.topics.insert("news".to_owned(), true);

        assert_eq!(serde_json::to_value(&contact).unwrap(), json);
        assert_eq!(serde_json::from_value::<Contact>(json).unwrap(), contact);
    }

    #[test]
    fn only_a_full_contact_shows_that_it_has_no_topics_and_no_reason() {
        let full = Contact::new("c1", "a@x.io");
        let short = Contact::from(ContactRecord::new("c1", "a@x.io"));

        assert!(full.shows_topics() && full.shows_unsubscribe_reason());
        assert!(!short.shows_topics() && !short.shows_unsubscribe_reason());
        assert_eq!(short.email, full.email);
    }

    #[test]
    fn the_reason_why_no_broadcast_reaches_a_contact_follows_from_its_flag_its_reason_and_its_topics()
     {
        use Reachability::*;
        use UnsubscribeReason::{Complaint, Manual, Preferences};
        let other = UnsubscribeReason::from("moved");
        let of = |unsubscribed, reason: Option<UnsubscribeReason>, topic| {
            let mut contact = Contact::new("c1", "a@x.io");
            contact.topics = [("yes", true), ("no", false)]
                .map(|(topic, answer)| (topic.to_owned(), answer))
                .into();
            (contact.unsubscribed, contact.unsubscribe_reason) = (unsubscribed, reason);
            let for_topic = contact.reachability_for(topic);
            (contact.reachability(), for_topic)
        };

        for (topic, expected) in [
            ("yes", Reachable),
            ("no", TopicOptedOut),
            ("new", UnknownTopic),
        ] {
            // The service need not clear the reason when an opt-out ends.
            for reason in [None, Some(Manual), Some(Preferences)] {
                assert_eq!(of(false, reason, topic), (Reachable, expected));
            }
            for (reason, expected) in [
                (Some(Complaint), SpamReport),
                (Some(Preferences), OptedOutByPerson),
                (Some(Manual), OptedOutBySender),
                (Some(other.clone()), OptedOut),
                (None, OptedOut),
            ] {
                assert_eq!(of(true, reason, topic), (expected, expected));
            }
            // Mail to a suppressed address does not go out, whatever the flag says.
            assert_eq!(of(false, Some(Complaint), topic).1, SpamReport);
        }
    }

    #[test]
    fn a_contact_of_a_short_response_is_not_said_to_be_reachable() {
        let mut short = Contact::from(ContactRecord::new("c1", "a@x.io"));

        assert_eq!(short.reachability(), Reachability::NotShown);
        assert_eq!(short.reachability_for("news"), Reachability::NotShown);
        short.unsubscribed = true;
        assert_eq!(short.reachability_for("news"), Reachability::OptedOut);
    }

    #[test]
    fn a_topic_whose_answer_is_null_is_no_unknown_topic() {
        let value = json!({"id": "c1", "email": "a@x.io", "unsubscribed": false, "created_at": 5,
            "topics": {"news": null}});
        let mut contact: Contact = serde_json::from_value(value).unwrap();

        assert_eq!(contact.reachability(), Reachability::Reachable);
        assert_eq!(contact.reachability_for("news"), Reachability::NotShown);
        assert_eq!(contact.reachability_for("nwes"), Reachability::UnknownTopic);
        contact.topics.insert("news".to_owned(), true);
        assert_eq!(contact.reachability_for("news"), Reachability::Reachable);
    }

    #[test]
    fn a_contact_without_the_unsubscribed_flag_is_an_error() {
        let error = serde_json::from_value::<ContactSummary>(
            json!({"id": "c1", "email": "a@x.io", "created_at": 5}),
        )
        .unwrap_err();

        assert!(error.to_string().contains("unsubscribed"));
    }

    #[test]
    fn a_reason_to_send_serializes_like_the_reason_to_read() {
        for reason in [OptOutReason::Manual, OptOutReason::Preferences] {
            let written = serde_json::to_value(reason).unwrap();

            assert_eq!(written, UnsubscribeReason::from(reason).as_str());
        }
    }

    #[test]
    fn an_address_is_trimmed_and_in_lower_case_also_outside_ascii() {
        for (given, stored) in [
            ("ada@x.io", "ada@x.io"),
            ("\t ADA@X.IO\r\n", "ada@x.io"),
            ("\u{a0}ÄDA@BÜCHER.example\u{3000}", "äda@bücher.example"),
            ("a b@x.io", "a b@x.io"),
            ("", ""),
        ] {
            assert_eq!(normalized_address(given), stored);
        }
    }

    #[test]
    fn a_normalized_address_stays_as_it_is() {
        for letter in '\0'..=char::MAX {
            let once = normalized_address(&format!("{letter}@x.io{letter}"));

            assert_eq!(normalized_address(&once), once, "{letter:?}");
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Named {
        #[serde(default, with = "optional_text")]
        name: Option<String>,
    }

    #[test]
    fn a_missing_null_or_empty_text_is_none_and_none_is_written_as_empty_text() {
        for absent in [json!({}), json!({"name": null}), json!({"name": ""})] {
            let named: Named = serde_json::from_value(absent).unwrap();

            assert_eq!(named.name, None);
            assert_eq!(serde_json::to_value(named).unwrap(), json!({"name": ""}));
        }
    }
}
