//! A contact that a test seeds, in any state.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::reason::Reason;
use super::stored_contact::StoredContact;
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
/// use audience::mock::{MockServer, Reason, SeedContact};
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
///         .engaged("opened", 1_690_000_000),
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
    /// The name of each engagement, and its time in Unix seconds.
    pub(super) engagement: BTreeMap<String, i64>,
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

    /// Sets when the contact's mail was last `delivered`, `bounced`, `complained`, `opened` or `clicked`, for the
    /// engagement rules (interface section 2.8). Default: never.
    pub fn engaged(mut self, what: impl Into<String>, at: impl Into<Timestamp>) -> Self {
        self.engagement.insert(what.into(), at.into().as_unix());
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
