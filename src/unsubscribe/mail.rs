//! The mail of a double opt-in, and the page behind its link.
//!
//! The link holds the contact and the topics, so nothing is stored before the click.
//!
//! The store of the opt-outs has five kinds of ids beside theirs. So that nobody is flooded, one of an address and a
//! topic is held for ten minutes after a mail, and one of a mailbox and a number for a day. One of a link is done after
//! its click. One of a form is held or done for 30 days after it was sent, and another one of its address and a number is
//! held for a day, so that nobody fills the store.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Extensions, HeaderMap, Response, StatusCode};
use tokio::time::Instant;
use url::Host;

use super::links::{CONFIRMATION_VALIDITY, Confirmation};
use super::page::{PageNotice, PageTexts, PreferencePage, ShownTopic, masked};
use super::service::{
    ConsentError, LEASE, OPT_IN_DEADLINE, OPT_IN_PATIENCE, OptOut, POLL, PageForm, SendError,
    UnsubscribeService, failed_with,
};
use crate::Error;
#[cfg(feature = "tracing")]
use crate::causes::with_causes;
use crate::client::in_current_span;
use crate::contacts::{Contact, NewContact, check_address, normalized_address};
use crate::emails::Email;
use crate::inbox::{ClaimState, InboxError, Token};
use crate::webhooks::EventId;
use crate::webhooks::tower::BytesBody;

/// How long after a mail no other one is sent for the same topics.
const MAIL_INTERVAL: Duration = Duration::from_secs(600);
/// Many programs cut longer ones off.
const LONGEST_LINK: usize = 2_000;
/// How many mails a mailbox gets in a day, whatever their topics are.
const MAILS_A_DAY: usize = 5;
pub(super) const DAY: Duration = Duration::from_secs(24 * 3_600);
/// How long the visitor of a form waits for the mail to be sent.
const MAIL_DEADLINE: Duration = Duration::from_secs(8);
/// How long the application may take to record a consent, an opt-in or an opt-out. The first two are a part of the deadline
/// of an opt-in.
pub(super) const RECORD_DEADLINE: Duration = Duration::from_secs(2);
/// How much longer than its validity the click on a link is remembered: the clocks of two machines differ.
const CLOCK_DIFFERENCE: Duration = DAY;

/// A function of the application that records a consent, an opt-in or an opt-out.
pub(super) type Record<T> = Arc<dyn Fn(T) -> Recording + Send + Sync>;

/// What a visitor has just agreed to, for [`record_consent`](super::UnsubscribeServiceBuilder::record_consent) and
/// [`record_opt_in`](super::UnsubscribeServiceBuilder::record_opt_in). Its `Debug` form shows no address.
#[derive(Clone)]
#[non_exhaustive]
pub struct Consent {
    /// The address, trimmed and in lower case.
    pub address: String,
    /// The topics that the visitor opts into.
    pub topics: BTreeSet<String>,
    /// The page with the button.
    pub page: ConsentPage,
    /// The language of the page: [`PageTexts::lang`](super::PageTexts::lang).
    pub lang: String,
    /// The headers of the visitor's request. Behind a proxy, one of them has the visitor's IP address, such as
    /// `X-Forwarded-For`.
    pub headers: HeaderMap,
    /// The extensions of the visitor's request. With `audience::serve`, the peer is among them, as a
    /// [`SocketAddr`](std::net::SocketAddr).
    pub extensions: Extensions,
}

impl Consent {
    /// Creates a consent in English and with neither headers nor extensions, for a unit test of your own function.
    ///
    /// # Example: a record is tested alone
    ///
    /// ```
    /// use audience::unsubscribe::{Consent, ConsentPage};
    /// use http::HeaderValue;
    ///
    /// /// Returns what to write into the table: the address, the topics, and the visitor's IP address.
    /// fn record_of(consent: &Consent) -> [String; 3] {
    ///     let topics: Vec<_> = consent.topics.iter().map(String::as_str).collect();
    ///     let visitor = consent.headers.get("x-forwarded-for").and_then(|value| value.to_str().ok());
    ///     [consent.address.clone(), topics.join(" "), visitor.unwrap_or_default().to_owned()]
    /// }
    ///
    /// let mut consent = Consent::new(" Ada@example.com", ["offers", "news"], ConsentPage::Confirmation);
    /// consent.headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1"));
    ///
    /// assert_eq!(record_of(&consent), ["ada@example.com", "news offers", "192.0.2.1"]);
    /// ```
    #[must_use]
    pub fn new(
        address: impl AsRef<str>,
        topics: impl IntoIterator<Item = impl Into<String>>,
        page: ConsentPage,
    ) -> Self {
        Self {
            address: normalized_address(address.as_ref()),
            topics: topics.into_iter().map(Into::into).collect(),
            page,
            lang: PageTexts::default().lang.into_owned(),
            headers: HeaderMap::new(),
            extensions: Extensions::new(),
        }
    }
}

impl fmt::Debug for Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consent")
            .field("topics", &self.topics)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}

/// A page that asks for a [`Consent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsentPage {
    /// The one behind the link of a [confirmation mail](UnsubscribeService::send_confirmation).
    Confirmation,
    /// The preference page, where the visitor has checked boxes.
    Preferences,
}

type Recording = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send>>;

impl UnsubscribeService {
    /// Sends the mail of a double opt-in. The page behind its link has a button that [subscribes](Self::subscribe) this
    /// address to these topics.
    ///
    /// `mail` gets the link, and returns the mail. This call sets its recipient, and has 8 s to send it. Topics that
    /// the builder was not [given](super::UnsubscribeServiceBuilder::topic) are left out.
    ///
    /// The mail is sent also after a [bounce](Self::record_bounce), because the click ends it: the mailbox may work again.
    /// After a [spam report](Self::record_bounce), it is not. Anybody can ask for it, up to five times a day.
    ///
    /// Another program than your web server may call it, such as a tool of your support team. Give its service the same
    /// store, endpoint, secrets, base URL and topics. The functions that record the consent are called where the click
    /// arrives.
    ///
    /// A [`NewContact`] instead of an address gives a contact that the click creates its names and properties. They are
    /// in the link. A stranger may have typed them into your form, so do not put them into the mail. A contact that
    /// exists keeps its own.
    ///
    /// The link is valid for 3 days by the clock of [`UnsubscribeLinks`](super::UnsubscribeLinks::clock), and for one
    /// click that succeeds. If the program is killed between the opt-in and its note that the link was used, or the store
    /// fails then, another click opts in again. If a click fails and may have opted in, loading its page again sends
    /// nothing: the page has a new form for another click. The link holds the contact and the topics, encrypted and
    /// authenticated as in every link, so nothing is stored about a person until the click, and the address is no
    /// contact before it. A scanner that follows the link changes nothing. Whoever clicks consents at that moment, also
    /// after an opt-out that was made since the mail.
    ///
    /// To give the visitor the same response whether or not the address is a contact, show the same page after each
    /// success. So that nobody floods a mailbox with your form, it succeeds without a mail if each of the topics was in
    /// a mail to this address in the last ten minutes, if the mailbox got five mails in a day, or if
    /// [`record_bounce`](Self::record_bounce) remembers a spam report about mail to it. A tag (`ada+news@`) and another
    /// spelling of the domain (`bücher.example`, `xn--bcher-kva.example`) do not make it another mailbox. Dots and the
    /// other aliases that a provider may have are not seen through. A mail that may have been sent before an error counts
    /// among the five: the [outcome](Error::outcome) of the error is `Unknown` or `Applied`, as after a 503. So a page
    /// should say "please open the link in our mail", and not that one was sent just now. With the feature `tracing`, a
    /// mail that is not sent because of the five or of a report is a warning, once a minute at most. The store remembers
    /// hashes of the address for a day after the mail and for 30 days after the click, the number of a link for four days
    /// after its click, and that of its form for 30 days.
    ///
    /// The call continues if its future is dropped, for example because the visitor went away.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::NoTopic`] if no topic is left.
    /// - [`ConsentError::Service`] with [`ErrorKind::Input`](crate::ErrorKind::Input) if the link would be longer than
    ///   2,000 characters, or if a property is an infinite number or NaN. The text says what is too long: a name or the
    ///   properties, or the base URL and the names of the topics.
    /// - [`ConsentError::Service`] if [`check_address`] refuses the address, or if the mail could not be sent. The next
    ///   call tries again, without the wait of ten minutes.
    /// - [`ConsentError::RefusedMail`] if the service refuses the mail to this address. Strangers must not learn that.
    /// - [`ConsentError::Store`] if the store fails.
    ///
    /// [`ConsentError::visitor_status`] is the status for your own response: 200 after a refused mail, as after a
    /// success, and 422 if the visitor has to choose a topic, to correct the address, or to shorten a name or a property.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Example: the form, and the click
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use audience::emails::Email;
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{OfferedTopic, UnsubscribeLinks, UnsubscribeService};
    /// # use audience::webhooks::tower::BytesBody;
    /// # use tower::ServiceExt;
    ///
    /// # let server = audience::mock::MockServer::builder().topic("news", false).start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/preferences")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).topic(OfferedTopic::new("news", "News")).build();
    /// service
    ///     .send_confirmation("ada@example.com", ["news"], |link| {
    ///         let mail = Email::new().from("Shop <news@shop.example.com>").subject("Please confirm your address");
    ///         mail.member("text", format!("To get our news, open {link}\n"))
    ///     })
    ///     .await?;
    ///
    /// let mail = &server.sent_mail()[0];
    /// assert_eq!(mail.to, ["ada@example.com"]);
    /// assert!(server.contact("ada@example.com").is_none());
    /// # let link = mail.body["text"].as_str().unwrap().trim_end().rsplit(' ').next().unwrap().to_owned();
    /// # let click = http::Request::post(&link).body(BytesBody::from(bytes::Bytes::from("confirm=yes")))?;
    ///
    /// // Ada opens the link and clicks on the button.
    /// # assert_eq!(service.clone().oneshot(click).await?.status(), 200);
    /// assert!(server.contact("ada@example.com").unwrap().topics["news"]);
    /// # Ok(()) }
    /// ```
    pub async fn send_confirmation(
        &self,
        contact: impl Into<NewContact>,
        topics: impl IntoIterator<Item = impl Into<String>>,
        mail: impl FnOnce(&str) -> Email,
    ) -> Result<(), ConsentError> {
        let contact = contact.into();
        // Needless quotation marks would make the mailbox another address for the limits.
        check_address(&contact.email)?;
        // Otherwise each click would fail.
        contact.check().map_err(Error::malformed_contact)?;
        let topics = topics.into_iter().map(Into::into);
        let topics: BTreeSet<_> = topics
            .filter(|topic| self.offered(topic).is_some())
            .collect();
        if topics.is_empty() {
            return Err(ConsentError::NoTopic);
        }
        let confirmation = self.0.links.confirmation(contact, topics);
        let link = self.0.links.confirmation_link(&confirmation);
        if link.len() > LONGEST_LINK {
            return Err(self.too_long(confirmation, link.len()).into());
        }
        let mail = mail(&link).member("to", confirmation.contact.email.as_str());
        let service = self.clone();
        let sending = async move { service.send_confirmation_mail(&confirmation, mail).await };
        self.start(sending)
            .await
            .unwrap_or(Err(ConsentError::Unfinished))
    }

    /// Says what makes a link so long. Names and properties count as input of the visitor, who can shorten them.
    fn too_long(&self, mut confirmation: Confirmation, length: usize) -> Error {
        let contact = &confirmation.contact;
        let length_of = |json: serde_json::Result<String>| json.map_or(0, |json| json.len());
        let mut parts = [
            (
                length_of(serde_json::to_string(&contact.first_name)),
                "first name is",
            ),
            (
                length_of(serde_json::to_string(&contact.last_name)),
                "last name is",
            ),
            (
                length_of(serde_json::to_string(&contact.properties)),
                "properties are",
            ),
        ];
        parts.sort_unstable();
        let [.., (_, longest)] = parts;
        let address = contact.email.clone();
        confirmation.contact = NewContact::new(address);
        let without_them = self.0.links.confirmation_link(&confirmation).len();
        let error = |what: &str| {
            Error::input(format!(
                "the {what} too long: the link in the mail would have {length} characters, and the limit is {LONGEST_LINK}"
            ))
        };
        match without_them > LONGEST_LINK {
            true => error("base URL and the names of the topics are"),
            false => error(longest).malformed_contact(),
        }
    }

    async fn send_confirmation_mail(
        &self,
        confirmation: &Confirmation,
        mail: Email,
    ) -> Result<(), ConsentError> {
        let mut tried = Vec::new();
        let sent = self.send_unless_sent(confirmation, mail, &mut tried).await;
        if let Err(error) = &sent {
            if error.maybe_sent() {
                // It counts among the mails of a day, or each further form would send another one.
                tried.retain(|id| confirmation.ids_of_day().all(|of_day| of_day != *id));
            }
            for id in &tried {
                self.0.inbox.end_hold(id, confirmation.token()).await;
            }
        }
        sent
    }

    /// Sends a mail, unless somebody has reported one to the address as spam, each of its topics was in another one not
    /// long ago, or the address got enough mails.
    ///
    /// The ids are held for a moment, and longer once the mail is sent. So a process that is killed before that keeps
    /// nobody from another mail. `tried` gets the ids that may be held: a claim may have succeeded although the store said
    /// otherwise.
    async fn send_unless_sent(
        &self,
        confirmation: &Confirmation,
        mail: Email,
        tried: &mut Vec<EventId>,
    ) -> Result<(), ConsentError> {
        let (inbox, token) = (&self.0.inbox, confirmation.token());
        // Before anything is held, so that the next mail need not wait after the report was forgotten.
        if self.has_report(&confirmation.contact.email).await? {
            #[cfg(feature = "tracing")]
            self.log_unsent("mail to the address was reported as spam");
            return Ok(());
        }
        let mut held = Vec::new();
        for id in confirmation.mail_ids() {
            tried.push(id.clone());
            if self.hold(&id, token, LEASE).await? {
                held.push(id);
            }
        }
        if held.is_empty() {
            return Ok(());
        }
        for id in confirmation.ids_of_day() {
            tried.push(id.clone());
            if self.hold(&id, token, LEASE).await? {
                let emails = self.0.contacts.client.emails();
                let sending = emails.send(mail).deadline(MAIL_DEADLINE);
                let sent = sending.await.map_err(ConsentError::of_confirmation_mail);
                // If the store fails now, another mail may be sent sooner.
                if sent.as_ref().err().is_none_or(ConsentError::maybe_sent) {
                    inbox.extend_hold(&id, token, DAY).await.ok();
                }
                sent?;
                for id in &held {
                    inbox.extend_hold(id, token, MAIL_INTERVAL).await.ok();
                }
                return Ok(());
            }
        }
        #[cfg(feature = "tracing")]
        self.log_unsent(&format!(
            "{MAILS_A_DAY} mails to the mailbox were or may have been sent in a day"
        ));
        Ok(())
    }

    /// Logs why a mail was not sent, once a minute. The visitor must not learn it, so the result does not tell.
    #[cfg(feature = "tracing")]
    fn log_unsent(&self, reason: &str) {
        let inbox = &self.0.inbox;
        if inbox.logs_failure("confirmation mail") {
            tracing::warn!(target: "audience::unsubscribe", endpoint = inbox.endpoint(), "a confirmation mail was not sent, because {reason}");
        }
    }

    /// Holds the id of a mail for this long. Returns `false` if another mail with this id was sent, or is being sent.
    pub(super) async fn hold(
        &self,
        id: &EventId,
        token: Token,
        interval: Duration,
    ) -> Result<bool, InboxError> {
        let state = self.0.inbox.claim_held(id, token, interval).await?;
        Ok(matches!(state, ClaimState::Fresh { .. }))
    }

    /// The page of a link that nobody has clicked on, or that was used.
    pub(super) async fn confirmation_page(
        &self,
        confirmation: &Confirmation,
    ) -> Response<BytesBody> {
        let state = self.0.inbox.state_of(&confirmation.id()).await;
        // If the store fails, the click fails, too, and says so.
        let is_used = matches!(state, Ok(ClaimState::Done));
        self.page_of(confirmation, is_used.then_some(PageNotice::ConfirmedBefore))
    }

    /// The response to the button.
    pub(super) async fn confirm_click(
        &self,
        confirmation: &Confirmation,
        page: Option<&str>,
        head: Parts,
    ) -> Response<BytesBody> {
        match self.confirm_once(confirmation, page, head).await {
            Ok(notice) => self.page_of(confirmation, Some(notice)),
            Err(ConsentError::Service(error)) if error.is_complaint_locked() => {
                self.page_of(confirmation, Some(PageNotice::ReportedSpam))
            }
            Err(error) => {
                let (status, notice) = (error.visitor_status(), error.notice_of_confirmation());
                #[cfg(feature = "tracing")]
                error.log(self.0.inbox.endpoint(), notice, "a confirmation failed");
                failed_with(status, self.page_of(confirmation, Some(notice)))
            }
        }
    }

    async fn confirm_once(
        &self,
        confirmation: &Confirmation,
        page: Option<&str>,
        head: Parts,
    ) -> Result<PageNotice, ConsentError> {
        let (id, token) = (confirmation.id(), Token::random());
        if let Some(notice) = self.claim_link(&id, token).await? {
            return Ok(notice);
        }
        let confirming = self.confirm_form(confirmation, page, head).await;
        let inbox = &self.0.inbox;
        match &confirming {
            Ok(_) => {
                let retention = CONFIRMATION_VALIDITY + CLOCK_DIFFERENCE;
                inbox.complete_hold(&id, token, retention).await;
                // Whoever opts out now can sign up again.
                for id in confirmation.mail_ids() {
                    inbox.end_hold(&id, confirmation.token()).await;
                }
            }
            Err(_) => _ = inbox.end_hold(&id, token).await,
        }
        confirming.map(|_| PageNotice::Confirmed)
    }

    /// Subscribes the contact of a link that this click has claimed. Fails and sends nothing if this form may have done
    /// so before.
    async fn confirm_form(
        &self,
        confirmation: &Confirmation,
        page: Option<&str>,
        head: Parts,
    ) -> Result<Contact, ConsentError> {
        let form = Arc::new(PageForm::new(&confirmation.number.to_string(), page));
        if let Some(id) = &form.id
            && !self.hold(id, form.token, LEASE).await?
        {
            return Err(ConsentError::Unfinished);
        }
        let (contact, topics) = (confirmation.contact.clone(), confirmation.topics.clone());
        let consent = self.consent(&contact.email, &topics, ConsentPage::Confirmation, head);
        let consent = Some((consent, Arc::clone(&form)));
        let confirmed = self.confirm_opt_in(contact, topics, consent).await;
        self.end_form(&form, &confirmed).await;
        confirmed
    }

    /// Claims a link, or a form, for one click. Returns what to say if there was another click.
    pub(super) async fn claim_link(
        &self,
        id: &EventId,
        token: Token,
    ) -> Result<Option<PageNotice>, ConsentError> {
        let end = Instant::now() + OPT_IN_PATIENCE + OPT_IN_DEADLINE;
        let mut has_waited = false;
        loop {
            match self
                .0
                .inbox
                .claim_held(id, token, LEASE)
                .await
                .map_err(InboxError::from)?
            {
                ClaimState::Fresh { .. } if !has_waited => return Ok(None),
                ClaimState::Done if has_waited => return Ok(Some(PageNotice::Confirmed)),
                ClaimState::Done => return Ok(Some(PageNotice::ConfirmedBefore)),
                // The other click failed. An opt-out may be newer than this one by now.
                ClaimState::Fresh { .. } => {
                    self.0.inbox.end_hold(id, token).await;
                    return Err(ConsentError::Unfinished);
                }
                _ if Instant::now() >= end => return Err(ConsentError::Unfinished),
                _ => {}
            }
            has_waited = true;
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) fn consent(
        &self,
        address: &str,
        topics: &BTreeSet<String>,
        page: ConsentPage,
        head: Parts,
    ) -> Consent {
        Consent {
            lang: self.0.texts.lang.clone().into_owned(),
            headers: head.headers,
            extensions: head.extensions,
            ..Consent::new(address, topics.iter().cloned(), page)
        }
    }

    /// Lets the application record a consent before its opt-in is sent.
    pub(super) async fn record_consent(&self, consent: Consent) -> Result<(), ConsentError> {
        let record = self.0.record_consent.clone();
        let end = Instant::now() + RECORD_DEADLINE;
        let message = "a consent could not be recorded";
        self.recorded_if_set(record, consent, end, message).await
    }

    /// Lets the application record an opt-in that the service has. At `end`, the future of the application is gone.
    pub(super) async fn record_opt_in(
        &self,
        consent: Consent,
        end: Instant,
    ) -> Result<(), ConsentError> {
        let record = self.0.record_opt_in.clone();
        let end = end.min(Instant::now() + RECORD_DEADLINE);
        let message = "an opt-in could not be recorded";
        self.recorded_if_set(record, consent, end, message).await
    }

    /// Calls the function of the application for a consent, if there is one, and logs its failure.
    async fn recorded_if_set(
        &self,
        record: Option<Record<Consent>>,
        consent: Consent,
        end: Instant,
        _message: &str,
    ) -> Result<(), ConsentError> {
        let Some(record) = record else {
            return Ok(());
        };
        recorded(move || record(consent), end).await.map_err(|_error| {
            #[cfg(feature = "tracing")]
            tracing::error!(target: "audience::unsubscribe", endpoint = self.0.inbox.endpoint(), error = with_causes(&*_error), "{_message}");
            ConsentError::Unfinished
        })
    }

    fn page_of(
        &self,
        confirmation: &Confirmation,
        notice: Option<PageNotice>,
    ) -> Response<BytesBody> {
        let can_confirm = matches!(
            notice,
            None | Some(PageNotice::NotSaved | PageNotice::OurFault)
        );
        let topics = confirmation.topics.iter().filter(|_| can_confirm);
        let shown = topics.map(|name| {
            let offered = self.offered(name);
            ShownTopic {
                name,
                label: offered.map_or(name, |topic| &topic.label),
                description: offered.map_or("", |topic| &topic.description),
                is_checked: true,
            }
        });
        let page = PreferencePage {
            address: masked(&confirmation.contact.email),
            topics: shown.collect(),
            is_confirmation: true,
            ..self.empty_page(notice)
        };
        self.html(StatusCode::OK, &page)
    }
}

impl Confirmation {
    /// The id of the link in the store.
    fn id(&self) -> EventId {
        OptOut::id("link", &self.number.to_string(), None)
    }

    /// The ids that are held after the mail, so that no other mail is sent for the same topics.
    fn mail_ids(&self) -> impl Iterator<Item = EventId> {
        let topics = self.topics.iter();
        topics.map(|topic| OptOut::id("mail", &self.contact.email, Some(topic)))
    }

    fn ids_of_day(&self) -> impl Iterator<Item = EventId> {
        ids_of_day("mail_of_day", mailbox(&self.contact.email), MAILS_A_DAY)
    }

    /// The token of these ids, so that the click on the link can release them.
    fn token(&self) -> Token {
        Token::from_bytes(self.number.to_be_bytes())
    }
}

pub(super) fn record_by<R, F, Fut, T, E>(function: F) -> Record<R>
where
    R: Send + 'static,
    F: Fn(R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
    E: Into<SendError>,
{
    let function = Arc::new(function);
    Arc::new(move |record| {
        let function = Arc::clone(&function);
        Box::pin(async move { function(record).await.map(drop).map_err(Into::into) })
    })
}

/// Calls a function of the application that records something, and fails if it panics or has not ended at `end`. Dropping
/// this future does not stop the function.
pub(super) async fn recorded(
    record: impl FnOnce() -> Recording + Send + 'static,
    end: Instant,
) -> Result<(), SendError> {
    // A task of its own: a panic of the application's code must not keep the ids held.
    let recording = async move { tokio::time::timeout_at(end, record()).await };
    match tokio::spawn(in_current_span(recording)).await {
        Ok(Ok(recorded)) => recorded,
        Ok(Err(late)) => Err(late.into()),
        Err(panic) => Err(panic.into()),
    }
}

/// The ids of which each mail to a mailbox, or each form of an address, holds one for a day.
pub(super) fn ids_of_day(
    kind: &'static str,
    address: impl AsRef<str>,
    at_most: usize,
) -> impl Iterator<Item = EventId> {
    (0..at_most).map(move |number| OptOut::id(kind, address.as_ref(), Some(&number.to_string())))
}

/// Returns the address without its tag and with the domain as in the DNS, because `ada+1@` and `ada+2@` are most likely
/// one mailbox. If they are two, they share a limit.
pub(super) fn mailbox(address: &str) -> String {
    let Some((local, domain)) = address.rsplit_once('@') else {
        return address.to_owned();
    };
    let name = match local.split_once('+') {
        Some((name, _)) if !name.is_empty() && !name.starts_with('"') => name,
        _ => local,
    };
    // An address may have a domain that no URL has.
    let domain = Host::parse(domain).unwrap_or_else(|_| Host::Domain(domain.to_owned()));
    format!("{name}@{domain}")
}
