//! Mail that was sent through `POST /emails` (section 4.7) with its outcome (section 6.3), and received mail (section
//! 6.4).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bodies::{is_address, must_be, normalized, parse};
use super::{Audience, Refusal, json_response};
use crate::Timestamp;
use crate::mock::text::{case_folded, printable, quoted_list};
use crate::webhooks::BounceType;

/// Accepts an email and publishes the events for each of its recipients.
///
/// The document says only that this endpoint returns an id (section 4.7). In the mock, a recipient gets `email.sent`
/// and what its address decides, usually `email.delivered`, or only `email.refused` if the address is on the
/// suppression list. Consent does not matter: it governs broadcasts only (section 1).
///
/// # Errors
///
/// 422 `validation_error` if the sender or a recipient is missing or invalid, or if the events about the mail would fill
/// the memory.
pub(super) fn send_email(
    audience: &mut Audience,
    body: &[u8],
    now: i64,
) -> Result<Response<Bytes>, Refusal> {
    let email = Email::parse(body).map_err(Refusal::invalid)?;
    let new = NewMail {
        from: email.from,
        to: &email.to,
        subject: email.subject,
        body,
    };
    let mail = audience.mails.add(new, now);
    for to in &email.to {
        start(audience, &mail, to, now);
    }
    Ok(json_response(200, &json!({ "id": mail.id })))
}

/// Bytes of the events that a mail causes when it is sent, roughly. Each has a copy of the sender and the subject.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of an event without its addresses and its subject, roughly.
const EVENT_BYTES: usize = 500;

/// The members of an email that the mock reads. It ignores all others, since the document shows none.
#[derive(Deserialize)]
struct EmailMembers {
    from: String,
    /// An address or an array of addresses.
    to: Value,
    #[serde(default)]
    subject: String,
}

struct Email {
    from: String,
    /// Normalized, without duplicates: events are per recipient (section 6.3).
    to: Vec<String>,
    subject: String,
}

impl Email {
    /// Parses the body of `POST /emails`.
    ///
    /// # Errors
    ///
    /// Fails if the sender or a recipient is missing or invalid. The error is the message for the refusal.
    fn parse(body: &[u8]) -> Result<Self, String> {
        let members: EmailMembers = parse(body, "the body")?;
        let from = without_display_name(&members.from);
        if !is_address(from) {
            return Err(must_be("from", "an email address", &members.from.into()));
        }
        let to = parse_recipients(&members.to)?;
        let bytes_of_events = |address: &String| {
            let texts = from.len() + address.len() + members.subject.len();
            course(address).events() * (texts + EVENT_BYTES)
        };
        let mut bytes = to.iter().map(bytes_of_events);
        if bytes
            .try_fold(MAX_EVENT_BYTES, usize::checked_sub)
            .is_none()
        {
            return Err(
                "`from`, `to` and `subject` are too long: the events would need more than 64 MiB"
                    .to_owned(),
            );
        }
        Ok(Self {
            from: from.to_owned(),
            to,
            subject: members.subject,
        })
    }
}

/// Returns the recipients in `to`, which is a string or an array of strings.
fn parse_recipients(to: &Value) -> Result<Vec<String>, String> {
    let values = match to {
        Value::Array(several) => several.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut recipients: Vec<String> = Vec::with_capacity(values.len());
    let mut seen = HashSet::new();
    for value in values {
        let address = value
            .as_str()
            .map(|text| normalized(without_display_name(text)));
        match address.filter(|address| is_address(address)) {
            Some(address) if seen.insert(address.clone()) => recipients.push(address),
            Some(_) => {}
            None => return Err(must_be("to", "an email address or an array of them", value)),
        }
    }
    if recipients.is_empty() {
        return Err(must_be("to", "at least one email address", to));
    }
    Ok(recipients)
}

/// Returns the address in `Ada <ada@example.com>`. Any other text is only trimmed.
pub(super) fn without_display_name(text: &str) -> &str {
    let text = text.trim();
    text.strip_suffix('>')
        .and_then(|text| text.rsplit_once('<'))
        .map_or(text, |(_, address)| address.trim())
}

/// Publishes what happens to a mail at one recipient when it is sent.
fn start(audience: &mut Audience, mail: &Arc<Mail>, to: &str, now: i64) {
    let is_sent = !audience.is_suppressed(to);
    audience.mails.record_start(mail, to, is_sent);
    if !is_sent {
        let data = mail.event_data(to, "", typical_detail("email.refused", ""));
        audience.publish("email.refused", data, now);
        return;
    }
    audience.publish("email.sent", mail.event_data(to, "", ""), now);
    for outcome in course(to).outcomes {
        // The course of an address contains only what is possible.
        let _ = publish_outcome(audience, mail, to, &outcome, now);
    }
}

/// Delivers the delayed mail that is due by `now`, unless something else happened to it in the meantime.
pub(in crate::mock) fn deliver_delayed(audience: &mut Audience, now: i64) {
    while let Some((due, mail, recipients)) = audience.mails.take_due(now) {
        for to in recipients {
            let _ = publish_outcome(audience, &mail, &to, &MailOutcome::delivered(), due);
        }
    }
}

/// Applies an outcome that a test gives to a sent mail, and publishes the event about it.
///
/// # Errors
///
/// 404 `not_found` if no mail has this id. 422 `validation_error` if the recipient is missing or not one of the mail's,
/// or if the outcome is not possible.
pub(in crate::mock) fn apply_outcome(
    audience: &mut Audience,
    id: &str,
    outcome: &MailOutcome,
    now: i64,
) -> Result<(), Refusal> {
    let Some((mail, recipients)) = audience.mails.find(id) else {
        return Err(unknown_mail(id));
    };
    let to = match (&outcome.to, recipients) {
        (Some(to), _) => normalized(to),
        (None, [only]) => only.clone(),
        (None, several) => {
            let count = several.len();
            return Err(Refusal::invalid(format!(
                "the mail has {count} recipients; set which of them with `to`"
            )));
        }
    };
    if outcome.bounce_type.is_some() && outcome.kind != OutcomeKind::Bounced {
        return Err(Refusal::invalid("only a bounce has a `bounce_type`"));
    }
    let mail = Arc::clone(mail);
    publish_outcome(audience, &mail, &to, outcome, now).map_err(Refusal::invalid)
}

/// Records a mailbox provider's spam report, which no request can undo (section 3.2).
///
/// It opts out the contact, if the address is one. It counts as the engagement `complained`, puts the address on
/// the suppression list, and publishes an `email.complained` about the latest mail to the address.
pub(in crate::mock) fn report_spam(audience: &mut Audience, address: &str, now: i64) {
    let to = normalized(address);
    let (mail, at) = match audience.mails.latest(&to) {
        Some(mail) => {
            // A report is published even if it is not possible in the state of the mail, such as after a bounce.
            let _ = audience
                .mails
                .record_outcome(&mail.id, &to, OutcomeKind::Complained);
            let at = audience.mails.event_time(&mail.id, now);
            (mail, at)
        }
        None => {
            let data = sample_event_data(&to, "", "");
            return audience.publish("email.complained", data, now);
        }
    };
    audience.publish("email.complained", mail.event_data(&to, "", ""), at);
}

/// Returns the error for an id that no mail has.
fn unknown_mail(id: &str) -> Refusal {
    let id = printable(id);
    Refusal::not_found(format!(
        "there is no mail `{id}`; an id is what `POST /emails` returned, and the newest 10,000 mails are kept"
    ))
}

fn publish_outcome(
    audience: &mut Audience,
    mail: &Mail,
    to: &str,
    outcome: &MailOutcome,
    now: i64,
) -> Result<(), String> {
    let event_type = outcome.kind.event_type();
    audience.mails.record_outcome(&mail.id, to, outcome.kind)?;
    let at = audience.mails.event_time(&mail.id, now);

    let bounce_type = match (outcome.kind, &outcome.bounce_type) {
        (OutcomeKind::Bounced, Some(bounce_type)) => bounce_type,
        (OutcomeKind::Bounced, None) => "Permanent",
        _ => "",
    };
    let detail = match &outcome.detail {
        Some(detail) => detail,
        None => typical_detail(event_type, bounce_type),
    };
    audience.publish(event_type, mail.event_data(to, bounce_type, detail), at);
    Ok(())
}

/// Seconds after which mail to `delay@…` is delivered.
const DELAY: i64 = 300;

/// The outcomes of mail to an address once it is sent.
#[derive(Debug, PartialEq, Eq)]
struct Course {
    /// The immediate outcomes, in order.
    outcomes: Vec<MailOutcome>,
    /// Whether the mail is delivered after [`DELAY`].
    is_delivered_later: bool,
}

impl Course {
    /// Returns how many events it has, with `email.sent`.
    fn events(&self) -> usize {
        1 + self.outcomes.len() + usize::from(self.is_delivered_later)
    }
}

/// Returns the course of mail to a normalized address.
///
/// Its local part decides, up to a `+`, in any domain. The docs of [`mock`](crate::mock#mail) have the same list.
fn course(address: &str) -> Course {
    let local = address.split_once('@').map_or(address, |(local, _)| local);
    let name = local.split_once('+').map_or(local, |(name, _)| name);
    let delivered = MailOutcome::delivered;
    let outcomes = match name {
        "bounce" => vec![MailOutcome::bounced()],
        "soft-bounce" => vec![MailOutcome::bounced().bounce_type("Transient")],
        "delay" => vec![MailOutcome::delayed()],
        "fail" => vec![MailOutcome::failed()],
        "complain" => vec![delivered(), MailOutcome::complained()],
        "open" => vec![delivered(), MailOutcome::opened()],
        "click" => vec![delivered(), MailOutcome::opened(), MailOutcome::clicked()],
        "pending" => Vec::new(),
        _ => vec![delivered()],
    };
    Course {
        outcomes,
        is_delivered_later: name == "delay",
    }
}

/// An outcome of a sent mail at one of its recipients, such as a delivery, a bounce or an open.
///
/// Pass it to [`MockServer::mail_outcome`](crate::mock::MockServer::mail_outcome). A mail is sent, and then delivered,
/// bounced, delayed or failed. A delayed mail can still become any of these. A delivered mail can be opened, clicked
/// and reported as spam, and can still bounce. A mail that bounced, failed or was refused has no further outcome.
///
/// The mock delivers every mail immediately, unless its address [selects another outcome](crate::mock#mail). Mail to
/// `pending@…` waits for its outcome.
///
/// # Example: one of each kind
///
/// ```
/// use audience::mock::MailOutcome;
///
/// let first = [
///     MailOutcome::delivered(),
///     MailOutcome::bounced().bounce_type("Transient").detail("452 4.2.2 mailbox full"),
///     MailOutcome::delayed(),
///     MailOutcome::failed(),
/// ];
/// let after_delivery = [
///     MailOutcome::opened().to("ada@example.com"),
///     MailOutcome::clicked(),
///     MailOutcome::complained(),
/// ];
/// # let _ = (first, after_delivery);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an outcome has no effect until it is given to `MockServer::mail_outcome`"]
pub struct MailOutcome {
    kind: OutcomeKind,
    to: Option<String>,
    bounce_type: Option<String>,
    detail: Option<String>,
}

impl MailOutcome {
    /// Creates the outcome `email.delivered`: the receiving server accepted the mail.
    ///
    /// # Example: mail that waits for its outcome
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # server.seed_contact("pending@example.com");
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    ///
    /// server.mail_outcome(&mail.id, MailOutcome::delivered()).await;
    ///
    /// let contact = server.contact("pending@example.com").expect("it was seeded");
    /// assert!(contact.engagement.contains_key(&EngagementKind::Delivered));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delivered() -> Self {
        Self::new(OutcomeKind::Delivered)
    }

    /// Creates the outcome `email.bounced`: the receiving server refused the mail, immediately or after it accepted it.
    ///
    /// # Example: a full mailbox
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # server.seed_contact("pending@example.com");
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    /// let full = MailOutcome::bounced().bounce_type("Transient").detail("452 4.2.2 mailbox full");
    ///
    /// server.mail_outcome(&mail.id, full).await;
    ///
    /// let contact = server.contact("pending@example.com").expect("it was seeded");
    /// assert!(contact.engagement.contains_key(&EngagementKind::Bounced));
    /// # Ok(())
    /// # }
    /// ```
    pub fn bounced() -> Self {
        Self::new(OutcomeKind::Bounced)
    }

    /// Creates the outcome `email.delivery_delayed`: the mail is not delivered yet.
    ///
    /// The mock does not deliver it later; apply [`delivered`](Self::delivered) for that. Only mail to `delay@…` is
    /// delivered without another call.
    ///
    /// # Example: a delay, then the delivery
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # server.seed_contact("pending@example.com");
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    ///
    /// let delayed = server.mail_outcome(&mail.id, MailOutcome::delayed()).await;
    /// let delivered = server.mail_outcome(&mail.id, MailOutcome::delivered()).await;
    ///
    /// assert_eq!([delayed, delivered], ["evt_2", "evt_3"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delayed() -> Self {
        Self::new(OutcomeKind::Delayed)
    }

    /// Creates the outcome `email.complained`: a spam report.
    ///
    /// It has the effects of [`report_spam`](crate::mock::MockServer::report_spam) on the contact and the address.
    ///
    /// # Example: a spam report after the delivery
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # server.seed_contact("pending@example.com");
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    /// server.mail_outcome(&mail.id, MailOutcome::delivered()).await;
    ///
    /// server.mail_outcome(&mail.id, MailOutcome::complained()).await;
    ///
    /// let contact = server.contact("pending@example.com").expect("it was seeded");
    /// assert_eq!(contact.unsubscribe_reason, "complaint");
    /// assert!(contact.suppressed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn complained() -> Self {
        Self::new(OutcomeKind::Complained)
    }

    /// Creates the outcome `email.opened`. A mail can be opened any number of times.
    ///
    /// # Example: a mail that is opened twice
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # server.seed_contact("pending@example.com");
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    /// server.mail_outcome(&mail.id, MailOutcome::delivered()).await;
    ///
    /// let first = server.mail_outcome(&mail.id, MailOutcome::opened()).await;
    /// let second = server.mail_outcome(&mail.id, MailOutcome::opened()).await;
    ///
    /// assert_ne!(first, second, "each open is an event of its own");
    /// # Ok(())
    /// # }
    /// ```
    pub fn opened() -> Self {
        Self::new(OutcomeKind::Opened)
    }

    /// Creates the outcome `email.clicked`. A mail can be clicked any number of times. An open before it is not needed:
    /// some mail programs do not report opens.
    ///
    /// # Example: a click without an open
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # server.seed_contact("pending@example.com");
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    /// server.mail_outcome(&mail.id, MailOutcome::delivered()).await;
    ///
    /// server.mail_outcome(&mail.id, MailOutcome::clicked()).await;
    ///
    /// let contact = server.contact("pending@example.com").expect("it was seeded");
    /// assert!(contact.engagement.contains_key(&EngagementKind::Clicked));
    /// assert!(!contact.engagement.contains_key(&EngagementKind::Opened));
    /// # Ok(())
    /// # }
    /// ```
    pub fn clicked() -> Self {
        Self::new(OutcomeKind::Clicked)
    }

    /// Creates the outcome `email.failed`: the mail will not be delivered.
    ///
    /// # Example: mail that fails after a delay
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # server.seed_contact("pending@example.com");
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    /// server.mail_outcome(&mail.id, MailOutcome::delayed()).await;
    ///
    /// let failed = server.mail_outcome(&mail.id, MailOutcome::failed()).await;
    ///
    /// assert_eq!(failed, "evt_3");
    /// # Ok(())
    /// # }
    /// ```
    pub fn failed() -> Self {
        Self::new(OutcomeKind::Failed)
    }

    pub(in crate::mock) fn new(kind: OutcomeKind) -> Self {
        Self {
            kind,
            to: None,
            bounce_type: None,
            detail: None,
        }
    }

    /// Sets the recipient that the outcome concerns. Default: the only recipient of the mail.
    ///
    /// # Example: one of two recipients opens the mail
    ///
    /// ```
    /// # use audience::mock::{EngagementKind, MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// # server.seed_contact("ada@example.com");
    /// # server.seed_contact("bob@example.com");
    /// let both = serde_json::json!({"from": "me@example.com", "to": ["ada@example.com", "bob@example.com"]});
    /// server.client().request(http::Method::POST, ["emails"]).json(&both)?.await?;
    /// let mail = server.sent_mail().remove(0);
    ///
    /// server.mail_outcome(&mail.id, MailOutcome::opened().to("bob@example.com")).await;
    ///
    /// let opened = EngagementKind::Opened;
    /// let has_opened = |address| server.contact(address).is_some_and(|contact| contact.engagement.contains_key(&opened));
    /// assert!(has_opened("bob@example.com") && !has_opened("ada@example.com"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to(mut self, address: impl Into<String>) -> Self {
        self.to = Some(address.into());
        self
    }

    /// Sets the type of a bounce ([interface section 6.3](crate::interface#6.3)). Default: `Permanent`.
    ///
    /// Takes a [`BounceType`] or any text. Only a bounce can have a type.
    ///
    /// # Example: a bounce that may succeed later
    ///
    /// ```
    /// # use audience::mock::{MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::builder().clock(1_700_000_000).start().await;
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.mail_outcome(&mail.id, MailOutcome::bounced().bounce_type("Transient")).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// assert_eq!(event["data"]["bounce_type"], "Transient");
    /// # Ok(())
    /// # }
    /// ```
    pub fn bounce_type(mut self, bounce_type: impl Into<BounceType>) -> Self {
        self.bounce_type = Some(bounce_type.into().as_str().to_owned());
        self
    }

    /// Sets the diagnostic text of the receiving server. Default: a typical text for a bounce, a delay and a failure,
    /// and an empty text for the others.
    ///
    /// # Example: the text of a greylisting server
    ///
    /// ```
    /// # use audience::mock::{MailOutcome, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::builder().clock(1_700_000_000).start().await;
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// let mail = server.sent_mail().remove(0);
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.mail_outcome(&mail.id, MailOutcome::delayed().detail("450 4.2.0 greylisted")).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// assert_eq!(event["data"]["detail"], "450 4.2.0 greylisted");
    /// # Ok(())
    /// # }
    /// ```
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// A kind of outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mock) enum OutcomeKind {
    Delivered,
    Bounced,
    Delayed,
    Complained,
    Opened,
    Clicked,
    Failed,
}

impl OutcomeKind {
    /// The kinds, and the type of the event that reports each (section 6.1).
    const EVENT_TYPES: [(Self, &'static str); 7] = [
        (Self::Delivered, "email.delivered"),
        (Self::Bounced, "email.bounced"),
        (Self::Delayed, "email.delivery_delayed"),
        (Self::Complained, "email.complained"),
        (Self::Opened, "email.opened"),
        (Self::Clicked, "email.clicked"),
        (Self::Failed, "email.failed"),
    ];

    /// Returns the type of the event that reports this outcome.
    fn event_type(self) -> &'static str {
        Self::EVENT_TYPES[self as usize].1
    }

    /// Returns the kind that an event type reports.
    ///
    /// # Errors
    ///
    /// Fails if no outcome has this event type. The message lists the known types.
    pub(in crate::mock) fn from_event_type(event_type: &str) -> Result<Self, String> {
        let mut kinds = Self::EVENT_TYPES.into_iter();
        match kinds.find(|(_, known)| *known == event_type) {
            Some((kind, _)) => Ok(kind),
            None => {
                let known = Self::EVENT_TYPES.map(|(_, known)| known);
                let known = quoted_list(&known);
                Err(format!("`type` must be one of {known}, not {event_type:?}"))
            }
        }
    }
}

/// The state of a mail at one of its recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MailState {
    /// The service did not send it: the address is suppressed.
    Refused,
    Sent,
    Delayed,
    Delivered,
    Complained,
    Bounced,
    Failed,
}

impl MailState {
    fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Sent => "sent",
            Self::Delayed => "delayed",
            Self::Delivered => "delivered",
            Self::Complained => "complained",
            Self::Bounced => "bounced",
            Self::Failed => "failed",
        }
    }

    /// Returns the state after an outcome.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is not possible in this state. The message lists the possible ones.
    fn after(self, outcome: OutcomeKind) -> Result<Self, String> {
        self.next(outcome).ok_or_else(|| {
            let possible: Vec<_> = OutcomeKind::EVENT_TYPES
                .into_iter()
                .filter(|(kind, _)| self.next(*kind).is_some())
                .map(|(_, event_type)| event_type)
                .collect();
            let possible = if possible.is_empty() {
                "nothing more can happen to it".to_owned()
            } else {
                format!("possible now: {}", quoted_list(&possible))
            };
            format!(
                "`{}` is not possible because the mail {}; {possible}. Mail to `pending@…` waits for its outcome",
                outcome.event_type(),
                self.description(),
            )
        })
    }

    fn next(self, outcome: OutcomeKind) -> Option<Self> {
        use OutcomeKind::{Bounced, Clicked, Complained, Delayed, Delivered, Failed, Opened};
        match (self, outcome) {
            (Self::Sent | Self::Delayed, Delivered) | (Self::Delivered, Opened | Clicked) => {
                Some(Self::Delivered)
            }
            (Self::Sent | Self::Delayed, Delayed) => Some(Self::Delayed),
            (Self::Sent | Self::Delayed, Failed) => Some(Self::Failed),
            // A server can accept a mail and return it later.
            (Self::Sent | Self::Delayed | Self::Delivered, Bounced) => Some(Self::Bounced),
            (Self::Delivered, Complained) | (Self::Complained, Opened | Clicked) => {
                Some(Self::Complained)
            }
            _ => None,
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Refused => "was refused and never sent",
            Self::Sent | Self::Delayed => "has not been delivered yet",
            Self::Delivered => "has been delivered",
            Self::Complained => "has been reported as spam",
            Self::Bounced => "bounced",
            Self::Failed => "failed",
        }
    }
}

/// A mail that arrives at a domain with inbound switched on.
///
/// Pass it to [`MockServer::receive_mail`](crate::mock::MockServer::receive_mail).
///
/// # Example: a reply to a sent mail
///
/// ```
/// # use audience::mock::{InboundMailSeed, MockServer};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), audience::Error> {
/// # let server = MockServer::start().await;
/// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Hi"});
/// server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
/// let sent = server.sent_mail().remove(0);
///
/// let reply = InboundMailSeed::new("ada@example.com").in_reply_to(sent.id).text("Hello!");
/// let event_id = server.receive_mail(reply).await;
///
/// // `evt_1` and `evt_2` were about the sent mail.
/// assert_eq!(event_id, "evt_3");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "no mail is received until this is given to `MockServer::receive_mail`"]
pub struct InboundMailSeed {
    from: String,
    to: Vec<String>,
    subject: Option<String>,
    text: String,
    in_reply_to: Option<String>,
    spf: String,
    authentication_results: Option<String>,
}

impl InboundMailSeed {
    /// Creates a mail from this sender. The text is `Hello`.
    ///
    /// # Example: the sender in the event
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.receive_mail(InboundMailSeed::new("ada@example.com")).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// assert_eq!(event["data"]["from"], "ada@example.com");
    /// # }
    /// ```
    pub fn new(from: impl Into<String>) -> Self {
        Self {
            from: from.into(),
            to: Vec::new(),
            subject: None,
            text: "Hello".to_owned(),
            in_reply_to: None,
            spf: "pass".to_owned(),
            authentication_results: None,
        }
    }

    /// Adds a recipient. Default: the sender of the mail that this one replies to, or `inbox@example.com`.
    ///
    /// # Example: mail to two addresses
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// let mail = InboundMailSeed::new("ada@example.com").to("sales@example.com").to("help@example.com");
    /// server.receive_mail(mail).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// assert_eq!(event["data"]["to"], serde_json::json!(["sales@example.com", "help@example.com"]));
    /// # }
    /// ```
    pub fn to(mut self, address: impl Into<String>) -> Self {
        self.to.push(address.into());
        self
    }

    /// Sets the subject. Default: `Re: ` and the subject of the mail that this one replies to, or `A message`.
    ///
    /// # Example: mail that the application sorts by subject
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.receive_mail(InboundMailSeed::new("ada@example.com").subject("STOP")).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// assert_eq!(event["data"]["subject"], "STOP");
    /// # }
    /// ```
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the text, as the service shows it: without quoted reply and signature. Default: `Hello`.
    ///
    /// # Example: text beyond ASCII
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.receive_mail(InboundMailSeed::new("ada@example.com").text("Grüße aus 東京")).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// assert_eq!(event["data"]["text"], "Grüße aus 東京");
    /// # }
    /// ```
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Sets the id of the sent mail that this one replies to. Default: none.
    ///
    /// # Example: a reply
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::builder().clock(1_700_000_000).start().await;
    /// # let mail = serde_json::json!({"from": "me@example.com", "to": "pending@example.com", "subject": "Hi"});
    /// # server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// let sent = server.sent_mail().remove(0);
    ///
    /// server.receive_mail(InboundMailSeed::new("pending@example.com").in_reply_to(&sent.id)).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// assert_eq!(event["data"]["in_reply_to_email_id"], *sent.id);
    /// assert_eq!(event["data"]["subject"], "Re: Hi");
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_reply_to(mut self, email_id: impl Into<String>) -> Self {
        self.in_reply_to = Some(email_id.into());
        self
    }

    /// Sets the SPF result, such as `fail`. Default: `pass`.
    ///
    /// SPF is the only check that the service performs: DKIM and DMARC are always `not-evaluated`
    /// ([interface section 6.4](crate::interface#6.4)).
    ///
    /// # Example: mail with a forged sender
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.receive_mail(InboundMailSeed::new("ada@example.com").spf("fail")).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// let results = event["data"]["authentication_results"].as_str().unwrap_or_default();
    /// assert!(results.contains("spf=fail"), "{results}");
    /// # }
    /// ```
    pub fn spf(mut self, result: impl Into<String>) -> Self {
        self.spf = result.into();
        self
    }

    /// Sets the whole text of the authentication results. Default: the SPF result for the sender's domain, in the form
    /// of [interface section 6.4](crate::interface#6.4).
    ///
    /// # Example: a text that a parser must not trip over
    ///
    /// ```
    /// # use audience::mock::{InboundMailSeed, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// let mail = InboundMailSeed::new("ada@example.com").authentication_results("none");
    /// server.receive_mail(mail).await;
    ///
    /// let event = receiver.requests()[0].json().expect("an event is JSON");
    /// assert_eq!(event["data"]["authentication_results"], "none");
    /// # }
    /// ```
    pub fn authentication_results(mut self, text: impl Into<String>) -> Self {
        self.authentication_results = Some(text.into());
        self
    }
}

/// Publishes an `email.received` about a mail.
///
/// # Errors
///
/// 404 `not_found` if it replies to a mail that was not sent.
pub(in crate::mock) fn receive(
    audience: &mut Audience,
    seed: InboundMailSeed,
    now: i64,
) -> Result<(), Refusal> {
    let replied = match &seed.in_reply_to {
        Some(id) => {
            let (mail, _) = audience.mails.find(id).ok_or_else(|| unknown_mail(id))?;
            Some((mail.from.clone(), mail.subject.clone()))
        }
        None => None,
    };
    let (default_to, default_subject) = match replied {
        Some((from, subject)) => (from, format!("Re: {subject}")),
        None => ("inbox@example.com".to_owned(), "A message".to_owned()),
    };

    let mut data = json!({
        "inbound_id": audience.mails.next_inbound_id(),
        "from": seed.from,
        "to": if seed.to.is_empty() { vec![default_to] } else { seed.to },
        "subject": seed.subject.unwrap_or(default_subject),
        "text": seed.text,
        "authentication_results": seed
            .authentication_results
            .unwrap_or_else(|| authentication_results(&seed.from, &seed.spf)),
    });
    // Absent if the mail is not a reply.
    if let (Some(id), Value::Object(data)) = (seed.in_reply_to, &mut data) {
        data.insert("in_reply_to_email_id".to_owned(), id.into());
    }
    audience.publish("email.received", data, now);
    Ok(())
}

/// Returns authentication results in the form of section 6.4, for a sender's address.
pub(in crate::mock) fn authentication_results(from: &str, spf: &str) -> String {
    let address = from.trim().trim_end_matches('>');
    let domain = address.rsplit('@').next().unwrap_or_default();
    format!(
        "mx.example.com; spf={spf} smtp.mailfrom={domain}; dkim=not-evaluated; dmarc=not-evaluated"
    )
}

/// Mails kept. The oldest is dropped first.
const MAX_MAILS: usize = 10_000;

/// Bytes of the bodies and addresses of the mails kept.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A mail that `POST /emails` accepted.
///
/// [`MockServer::sent_mail`](crate::mock::MockServer::sent_mail) returns them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SentMail {
    /// The id that `POST /emails` returned. The events about the mail have it as `email_id`.
    pub id: String,
    /// The sender's address, without a display name.
    pub from: String,
    /// The recipients: each address once, lowercased and without display names.
    pub to: Vec<String>,
    /// The subject. Empty if there is none.
    pub subject: String,
    /// When the mail was sent, by the server's clock.
    pub at: Timestamp,
    /// The body of the request, with all members that the application sent.
    pub body: Value,
}

/// A mail to store.
struct NewMail<'a> {
    from: String,
    to: &'a [String],
    subject: String,
    /// The body of the request.
    body: &'a [u8],
}

/// The newest mails, and the latest mail to each address. All addresses are normalized.
#[derive(Clone, Debug, Default)]
pub(in crate::mock) struct MailStore {
    /// By number, counted from 1 in the order they were sent.
    mails: BTreeMap<u64, StoredMail>,
    /// The sum of [`StoredMail::size`] over the mails.
    bytes: usize,
    last_number: u64,
    last_inbound_number: u64,
    /// When a mail is due that is delivered later to some of its recipients, and its number.
    delayed: BTreeSet<(i64, u64)>,
    /// The latest mail that was sent to each address, which a spam report is about.
    latest: HashMap<String, Arc<Mail>>,
}

#[derive(Clone, Debug)]
struct StoredMail {
    mail: Arc<Mail>,
    to: Vec<String>,
    states: HashMap<String, MailState>,
    at: i64,
    /// When the latest event about the mail happened.
    last_event_at: i64,
    body: Vec<u8>,
}

impl MailStore {
    /// Stores a mail that is sent at `now`. Drops the oldest if there are too many mails or bytes.
    ///
    /// Ids are sequential, so that they are the same on every run of a test.
    fn add(&mut self, new: NewMail<'_>, now: i64) -> Arc<Mail> {
        self.last_number += 1;
        let mail = Arc::new(Mail {
            id: format!("eml_{:08}", self.last_number),
            from: new.from,
            subject: new.subject,
        });
        let stored = StoredMail {
            mail: Arc::clone(&mail),
            to: new.to.to_vec(),
            states: HashMap::new(),
            at: now,
            last_event_at: now,
            body: new.body.to_vec(),
        };
        self.bytes += stored.size();
        if stored.delayed_recipients().next().is_some() {
            self.delayed.insert((stored.due(), self.last_number));
        }
        self.mails.insert(self.last_number, stored);
        while self.mails.len() > MAX_MAILS || (self.mails.len() > 1 && self.bytes > MAX_BYTES) {
            let Some((number, oldest)) = self.mails.pop_first() else {
                break;
            };
            self.bytes -= oldest.size();
            self.delayed.remove(&(oldest.due(), number));
            for to in &oldest.to {
                if self
                    .latest
                    .get(to)
                    .is_some_and(|mail| mail.id == oldest.mail.id)
                {
                    self.latest.remove(to);
                }
            }
        }
        mail
    }

    /// Continues the numbers of an earlier store, so that no id is used twice.
    pub(in crate::mock) fn continue_numbers(&mut self, earlier: &Self) {
        self.last_number = earlier.last_number;
        self.last_inbound_number = earlier.last_inbound_number;
    }

    /// Records that a mail was sent to one of its recipients, or refused.
    fn record_start(&mut self, mail: &Arc<Mail>, to: &str, is_sent: bool) {
        let state = if is_sent {
            self.latest.insert(to.to_owned(), Arc::clone(mail));
            MailState::Sent
        } else {
            MailState::Refused
        };
        if let Some(stored) = self.find_mut(&mail.id) {
            stored.states.insert(to.to_owned(), state);
        }
    }

    /// Records an outcome. Changes nothing if it is not possible.
    ///
    /// # Errors
    ///
    /// Fails if `to` is not a recipient, or the outcome is not possible. The message says what is.
    fn record_outcome(&mut self, id: &str, to: &str, outcome: OutcomeKind) -> Result<(), String> {
        let Some(stored) = self.find_mut(id) else {
            return Ok(());
        };
        let Some(state) = stored.states.get_mut(to) else {
            return Err(format!("{to:?} is not a recipient of the mail {id:?}"));
        };
        *state = state.after(outcome)?;
        Ok(())
    }

    /// Returns the time of an event about a mail that happens at `now`: not before the mail's previous event.
    fn event_time(&mut self, id: &str, now: i64) -> i64 {
        let Some(stored) = self.find_mut(id) else {
            return now;
        };
        stored.last_event_at = stored.last_event_at.max(now);
        stored.last_event_at
    }

    /// Returns a mail and its recipients, or `None` if no mail has this id.
    fn find(&self, id: &str) -> Option<(&Arc<Mail>, &[String])> {
        let stored = self.mails.get(&number(id)?)?;
        (stored.mail.id == id).then_some((&stored.mail, &stored.to))
    }

    /// Returns the latest mail that was sent to an address.
    fn latest(&self, address: &str) -> Option<Arc<Mail>> {
        self.latest.get(address).cloned()
    }

    /// Returns the mails that are kept, oldest first.
    pub(in crate::mock) fn sent_mail(&self) -> Vec<SentMail> {
        self.mails.values().map(StoredMail::to_sent).collect()
    }

    /// Returns at most `limit` mails that contain a text, the newest first.
    pub(in crate::mock) fn newest(&self, text: &str, limit: usize) -> Vec<MailView> {
        let text = case_folded(text);
        let newest_first = self.mails.values().rev();
        newest_first
            .filter(|stored| stored.contains(&text))
            .take(limit)
            .map(StoredMail::to_view)
            .collect()
    }

    /// Returns when the next delayed mail is due.
    pub(in crate::mock) fn next_due(&self) -> Option<i64> {
        self.delayed.first().map(|(due, _)| *due)
    }

    /// Takes the first delayed mail that is due at `now`. Returns its due time, the mail and its delayed recipients.
    fn take_due(&mut self, now: i64) -> Option<(i64, Arc<Mail>, Vec<String>)> {
        let (due, number) = *self.delayed.first().filter(|(due, _)| *due <= now)?;
        self.delayed.remove(&(due, number));
        let stored = self.mails.get(&number)?;
        let recipients = stored.delayed_recipients().cloned().collect();
        Some((due, Arc::clone(&stored.mail), recipients))
    }

    /// Returns how many mails are kept.
    pub(in crate::mock) fn len(&self) -> usize {
        self.mails.len()
    }

    /// Returns the id for the next mail that is received.
    fn next_inbound_id(&mut self) -> String {
        self.last_inbound_number += 1;
        format!("inb_{:08}", self.last_inbound_number)
    }

    fn find_mut(&mut self, id: &str) -> Option<&mut StoredMail> {
        let stored = self.mails.get_mut(&number(id)?)?;
        (stored.mail.id == id).then_some(stored)
    }
}

/// A mail as the page shows it.
#[derive(Debug, Serialize)]
pub(in crate::mock) struct MailView {
    id: String,
    from: String,
    subject: String,
    at: i64,
    /// The recipients, and the state of the mail at each.
    recipients: Vec<RecipientView>,
    /// The body of the request. `null` if it is longer than [`MAX_SHOWN_BODY`].
    body: Value,
}

#[derive(Debug, Serialize)]
struct RecipientView {
    to: String,
    state: &'static str,
}

/// Bytes of the longest body that is shown in a list.
const MAX_SHOWN_BODY: usize = 16 * 1024;

impl StoredMail {
    fn to_view(&self) -> MailView {
        let recipients = self.to.iter().map(|to| RecipientView {
            to: to.clone(),
            state: self.states.get(to).map_or("sent", |state| state.name()),
        });
        MailView {
            id: self.mail.id.clone(),
            from: self.mail.from.clone(),
            subject: self.mail.subject.clone(),
            at: self.at,
            recipients: recipients.collect(),
            body: if self.body.len() > MAX_SHOWN_BODY {
                Value::Null
            } else {
                serde_json::from_slice(&self.body).unwrap_or_default()
            },
        }
    }

    /// Returns whether the id, the subject or an address contains a case-folded text.
    fn contains(&self, text: &str) -> bool {
        [&self.mail.id, &self.mail.subject, &self.mail.from]
            .into_iter()
            .chain(&self.to)
            .any(|part| case_folded(part).contains(text))
    }

    fn to_sent(&self) -> SentMail {
        SentMail {
            id: self.mail.id.clone(),
            from: self.mail.from.clone(),
            to: self.to.clone(),
            subject: self.mail.subject.clone(),
            at: Timestamp::from_unix(self.at),
            body: serde_json::from_slice(&self.body).unwrap_or_default(),
        }
    }

    /// Returns the recipients to whom the mail is delivered later, suppressed ones included.
    fn delayed_recipients(&self) -> impl Iterator<Item = &String> {
        self.to.iter().filter(|to| course(to).is_delivered_later)
    }

    /// Returns when the mail is delivered to its delayed recipients.
    fn due(&self) -> i64 {
        self.at.saturating_add(DELAY)
    }

    /// Returns about how many bytes of memory the mail takes up.
    fn size(&self) -> usize {
        let recipients: usize = self
            .to
            .iter()
            .map(|address| 2 * (address.len() + size_of::<String>()))
            .sum();
        size_of::<Self>()
            + self.mail.from.len()
            + self.mail.subject.len()
            + recipients
            + self.body.len()
    }
}

/// Returns the number in the id of a mail.
fn number(id: &str) -> Option<u64> {
    id.strip_prefix("eml_")?.parse().ok()
}

/// The parts of a mail that the events about it contain.
#[derive(Clone, Debug)]
pub(in crate::mock) struct Mail {
    /// The id that `POST /emails` returned.
    id: String,
    from: String,
    subject: String,
}

impl Mail {
    /// Returns the `data` of an event about one recipient, with every member of section 6.3.
    pub(in crate::mock) fn event_data(&self, to: &str, bounce_type: &str, detail: &str) -> Value {
        json!({
            "email_id": self.id,
            "from": self.from,
            "to": to,
            "subject": self.subject,
            "bounce_type": bounce_type,
            "detail": detail,
        })
    }
}

/// Returns the `data` of an event about mail that was not sent through `POST /emails`. It has no `email_id`: the mail
/// gets one when the event is delivered.
pub(in crate::mock) fn sample_event_data(to: &str, bounce_type: &str, detail: &str) -> Value {
    json!({
        "from": "sender@example.com",
        "to": to,
        "subject": "A message",
        "bounce_type": bounce_type,
        "detail": detail,
    })
}

/// Returns a typical `detail` of an event type: the reason for a refusal, or what a receiving server says.
pub(in crate::mock) fn typical_detail(event_type: &str, bounce_type: &str) -> &'static str {
    match (event_type, bounce_type) {
        ("email.bounced", "Permanent") => "550 5.1.1 no such user",
        ("email.bounced", "Transient") => "452 4.2.2 mailbox full",
        ("email.delivery_delayed", _) => "451 4.7.1 try again later",
        ("email.failed", _) => "the mail could not be delivered within the time allowed",
        ("email.refused", _) => "the address is on the suppression list",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
