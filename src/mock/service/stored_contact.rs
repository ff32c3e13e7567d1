//! A contact as a test sees it.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::audience_state::AudienceState;
use super::contact::Contact;
use crate::Timestamp;

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
    pub engagement: BTreeMap<String, Timestamp>,
    /// Whether the address is on the suppression list, so that no mail is sent to it (interface section 3.1).
    pub suppressed: bool,
}

impl StoredContact {
    /// Collects what an audience stores about one of its contacts.
    pub(super) fn new(contact: &Contact, state: &AudienceState) -> Self {
        let topics = contact.topics(state.topics()).into_iter();
        let engagement = state.engagements().all(&contact.key);
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
                .map(|(name, at)| (name.to_owned(), Timestamp::from_unix(at)))
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
