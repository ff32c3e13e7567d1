//! The mails of an issue: each reader who wants it gets one, once.
//!
//! The store of the opt-outs has four kinds of ids for this. One of an issue and an address is held for as long as the
//! issue may be sent. One of an address is held after a permanent bounce, another one after a spam report, and a third one
//! after an opt-in.

use std::error::Error as StdError;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::process::{ExitCode, Termination};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::Stream;
use http::StatusCode;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::links::Target;
use super::mail::mailbox;
use super::service::{ConsentError, LEASE, OptOut, UnsubscribeService};
use crate::Error;
use crate::any_error::exit_after;
use crate::client::{AttemptWatch, CallOptions, TakesOptions, Waiting, in_current_span};
use crate::contacts::{ContactStream, ContactSummary, ListContacts};
use crate::emails::{Email, SentEmail};
use crate::inbox::{ClaimState, InboxError, Token};
use crate::sync::lock;
use crate::webhooks::{Event, EventData, EventId};

/// How long an issue is not sent to the same address again.
const ISSUE_INTERVAL: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How long no issue is sent to an address after a permanent bounce, and no confirmation mail after a spam report.
const BOUNCE_INTERVAL: Duration = Duration::from_secs(365 * 24 * 3_600);
/// How long an opt-in is remembered, for events that are older and arrive later: a team may replay a parked one.
const OPT_IN_INTERVAL: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Every process has the same token for bounces and spam reports, so that each can end the hold after an opt-in.
const BOUNCE_TOKEN: Token = Token::from_bytes(*b"permanent bounce");
/// How many mails may be refused in a row. After that, the mail itself is probably at fault, and not each reader.
const MAX_REFUSED: usize = 100;
const DEFAULT_CONCURRENCY: usize = 4;

impl UnsubscribeService {
    /// Sends an issue, such as the newsletter of a month, to each contact who [wants](Self::may_send) mail about this
    /// topic, and once.
    ///
    /// `mail` gets the contact as lists have it and the link to its [preference page](super::UnsubscribeLinks::link),
    /// and returns the mail. This call sets its recipient and, unless the mail has its own `List-Unsubscribe`, the
    /// [headers](super::UnsubscribeLinks::headers) for one click. If the mail has a [member](Email::member) `headers`
    /// that is no object, such as an array, this call leaves it as it is: put the headers for one click into it
    /// yourself. Each contact is retrieved directly before its mail, and once more after a wait that the service asked
    /// for, so that an opt-out counts immediately.
    ///
    /// To leave out a reader, for example because of a column of your own table, let `mail` return an `Option`. A reader
    /// for whom it is `None` gets no mail and counts under [`IssueReport::left_out`]. Nothing is recorded, so a later run
    /// with the same name calls `mail` for this reader again.
    ///
    /// # Stop and resume
    ///
    /// `issue` is any text of yours, such as `2026-11`, and counts together with the topic. If a program that sends an
    /// issue stops, run it again with the same name: it continues with those who have not got the issue. After 30 days,
    /// the store has forgotten who got it. So put the date into the name, and use no name again.
    ///
    /// A mail is sent at most once. If an error does not tell whether it was sent
    /// ([`Outcome::Unknown`](crate::Outcome::Unknown)), if it was sent and the response is not as expected
    /// ([`Outcome::Applied`](crate::Outcome::Applied)), or if the program is killed while the service has its request, this
    /// mail is not sent again, and later runs [report](IssueReport::maybe_not_sent) it. If the reader has not got it, call
    /// [`send_issue_to`](Self::send_issue_to) with another name of the issue. After any other error, the next run sends it,
    /// unless the store failed before it could note that.
    ///
    /// That holds for as long as the store keeps what it has confirmed. Redis keeps only what its `appendonly` setting
    /// keeps. After a restart of Redis that lost data, or after a restore of a backup, do not finish the issue under its
    /// name.
    ///
    /// Several programs with the same store may send one issue together. A program that does not respond to the links
    /// itself needs the store, the endpoint and the secrets of the one that does: otherwise it does not see the opt-outs
    /// that wait or who got the issue before, and its links are invalid. So open an SQLite file with
    /// `SqliteStoreBuilder::must_exist`, and leave `migrate` of a Postgres store to the other program.
    ///
    /// # Errors
    ///
    /// Returns an [`IssueError`] with the report and the first error that concerns more than one reader: a response that
    /// was lost, a status such as 401 or 503, a 403 of the service, a page of the list, or the store. Mails that are being
    /// sent are finished. It is [`ConsentError::UnknownTopic`] if the contacts have no such topic, because its name is misspelled, and of the kind
    /// [`Input`](crate::ErrorKind::Input) if the name of the issue is empty.
    ///
    /// [An error about one reader](ConsentError::is_about_one_reader) is in [`IssueReport::failures`], and the others get
    /// their mails. After 100 such errors in a row, without a reader who gets the issue or has got it before, the mail
    /// itself is probably at fault, and the call stops.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime, and if `mail` panics.
    ///
    /// # Example: everybody who wants the news
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// use audience::emails::Email;
    ///
    /// let report = service
    ///     .send_issue("2026-11", "news", |contact, link| {
    ///         let name = contact.first_name.as_deref().unwrap_or("reader");
    ///         let mail = Email::new().from("Shop <news@shop.example.com>").subject("News in November");
    ///         mail.member("text", format!("Dear {name},\n…\n\nYour preferences: {link}"))
    ///     })
    ///     .stop_when(audience::shutdown_signal())
    ///     .await?;
    ///
    /// println!("{report}"); // 1 sent, 0 sent before, 0 not wanted, 0 failed
    /// # assert_eq!(report.to_string(), "1 sent, 0 sent before, 0 not wanted, 0 failed");
    /// # assert_eq!(server.sent_mail().len(), 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: readers in two languages
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let ada = audience::mock::SeedContact::new("ada@example.com").property("lang", "de");
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact(ada).start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = |url| UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], url);
    /// # let english = links("https://shop.example.com/preferences")?;
    /// # let english = UnsubscribeService::builder(english, contacts, MemoryStore::new()).build();
    /// # let german = english.translation(links("https://shop.example.com/einstellungen")?).build();
    /// use audience::emails::Email;
    ///
    /// let sending = english.send_issue("2026-11", "news", |contact, _| {
    ///     let is_german = contact.properties.get("lang").is_some_and(|lang| *lang == "de");
    ///     let (links, subject) = match is_german {
    ///         true => (german.links(), "Neues im November"),
    ///         false => (english.links(), "News in November"),
    ///     };
    ///     let mail = Email::new().from("Shop <news@shop.example.com>").subject(subject);
    ///     mail.headers(links.headers(&contact.email, "news")).member("text", links.link(&contact.email))
    /// });
    /// println!("{}", sending.await?.finished()?);
    /// # let mail = server.sent_mail().remove(0);
    /// # assert!(!mail.body.to_string().contains("shop.example.com/preferences"), "{mail:?}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a reader is left out
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true);
    /// # let server = server.seed_contact("ada@example.com").seed_contact("bob@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// use std::collections::HashSet;
    ///
    /// use audience::emails::Email;
    ///
    /// // SELECT address_key FROM users WHERE may_market = 0, with `normalized_address` of each email in `address_key`
    /// let without = HashSet::from(["bob@example.com"]);
    /// let report = service
    ///     .send_issue("2026-11", "news", |contact, link| {
    ///         if without.contains(&*contact.email) {
    ///             return None;
    ///         }
    ///         let mail = Email::new().from("Shop <news@shop.example.com>").subject("News in November");
    ///         Some(mail.member("text", format!("…\n\nYour preferences: {link}")))
    ///     })
    ///     .await?;
    ///
    /// println!("{report}"); // 1 sent, 0 sent before, 0 not wanted, 0 failed, 1 left out
    /// # assert_eq!(report.to_string(), "1 sent, 0 sent before, 0 not wanted, 0 failed, 1 left out");
    /// # assert_eq!(server.sent_mail()[0].to, ["ada@example.com"]);
    /// # Ok(()) }
    /// ```
    pub fn send_issue<'a, M>(
        &self,
        issue: impl Into<String>,
        topic: impl Into<String>,
        mut mail: impl FnMut(&ContactSummary, &str) -> M + Send + 'a,
    ) -> SendIssue<'a>
    where
        M: Into<Option<Email>>,
    {
        SendIssue {
            issue: issue.into(),
            topic: topic.into(),
            mail: Box::new(move |contact: &ContactSummary, link: &str| mail(contact, link).into()),
            readers: self.0.contacts.list().limit(200),
            concurrency: DEFAULT_CONCURRENCY,
            stop_signal: Box::pin(pending()),
            service: self.clone(),
        }
    }

    /// Sends the mail of an issue to one reader, if your program has a list of its own, or makes each mail by itself.
    /// [`send_issue`](Self::send_issue) describes the names of issues, the recipient and headers that it adds, and why a
    /// mail is sent at most once within 30 days. After that, the store has forgotten it. So mark a mail that a person
    /// gets once ever, such as a welcome, in your own table, too, after `Sent`, `SentBefore` or `MaybeSent`.
    ///
    /// The [result](IssueMail) says whether the mail was sent, and if not, why. The mail is sent directly after the contact
    /// was retrieved. If the service asks to wait before that, the contact is retrieved once more after the wait. Calls
    /// may run at the same time. A call continues if its future is dropped.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::Service`] if the contact could not be retrieved or the mail could not be sent. If the error
    ///   [is about one reader](ConsentError::is_about_one_reader), continue with the next one. After any other, stop,
    ///   and run the program again later: the mails of the others could fail, too, and would then not be sent again.
    /// - [`ConsentError::Store`] if the store fails.
    /// - [`ConsentError::UnknownTopic`] if the contact has no such topic, because its name is misspelled.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Example: the orders of each customer
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("orders", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// # let customers = [("ada@example.com", 3)];
    /// use audience::emails::Email;
    ///
    /// for (address, orders) in customers {
    ///     let mail = |link: &str| {
    ///         let mail = Email::new().from("Shop <shop@example.com>").subject("Your year with us");
    ///         mail.member("text", format!("You ordered {orders} times.\n\nYour preferences: {link}"))
    ///     };
    ///     match service.send_issue_to("year-2026", address, "orders", mail).await {
    ///         Err(error) if error.is_about_one_reader() => eprintln!("{error}"), // the others get theirs
    ///         result => println!("{address}: {:?}", result?), // such as `NotWanted`
    ///     }
    /// }
    /// # assert_eq!(server.sent_mail().len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn send_issue_to(
        &self,
        issue: impl AsRef<str>,
        address: impl AsRef<str>,
        topic: impl AsRef<str>,
        mail: impl FnOnce(&str) -> Email,
    ) -> Result<IssueMail, ConsentError> {
        let address = Target::new(address.as_ref(), None).address;
        let mail = mail(&self.0.links.link(&address));
        self.send_once(issue.as_ref(), address, topic.as_ref(), mail, None)
            .await
    }

    /// Sends the mail of an issue in a task of its own, so that it ends if the caller's future is dropped. Leaves it to
    /// a later run if `stop` becomes true before the mail is sent.
    fn send_once(
        &self,
        issue: &str,
        address: String,
        topic: &str,
        mail: Email,
        stop: Option<watch::Receiver<bool>>,
    ) -> impl Future<Output = Result<IssueMail, ConsentError>> + Send + use<> {
        let id = issue_id(issue, &address, topic);
        let mail = mail.member("to", address.as_str());
        // Unless the mail has those of a translation.
        let mail = match mail.may_have_header("List-Unsubscribe") {
            true => mail,
            false => mail.headers(self.0.links.headers(&address, topic)),
        };
        let (service, topic) = (self.clone(), topic.to_owned());
        // Such as a variable of a shell that is not set. The next issue without a name would count as sent.
        let has_name = !issue.trim().is_empty();
        let task = tokio::spawn(in_current_span(async move {
            if !has_name {
                return Err(Error::input("the name of the issue is empty").into());
            }
            let sending = Arc::new(Sending {
                service: service.clone(),
                id,
                token: Token::random(),
                address,
                topic,
                stop,
                ended: Mutex::default(),
            });
            let result = sending.claim_and_send(mail).await;
            let (inbox, id, token) = (&service.0.inbox, &sending.id, sending.token);
            match &result {
                Ok(IssueMail::Sent(_)) => {
                    inbox.complete_hold(id, token, ISSUE_INTERVAL).await;
                }
                // It stays held, so that no run sends it again.
                Err(error) if error.maybe_sent() => {}
                _ => _ = inbox.end_hold(id, token).await,
            }
            result
        }));
        async move { task.await.unwrap_or(Err(ConsentError::Unfinished)) }
    }

    /// Remembers a [permanent bounce](crate::webhooks::MailEvent::is_permanent_bounce) or a spam report for a year. After a
    /// bounce, no issue is sent to the address of its mail. After a spam report, no [confirmation
    /// mail](Self::send_confirmation) is sent there, whoever types the address into your form. Any other event changes
    /// nothing. Neither does one that [is incomplete](crate::webhooks::EventData::is_incomplete): let your handler fail
    /// then.
    ///
    /// Call it with each event that your webhook gets, in any order, and as often as the event arrives. The year begins
    /// with the first event. An opt-in ends it: a click on the link of [`send_confirmation`](Self::send_confirmation), a
    /// box on the preference page, or [`subscribe`](Self::subscribe). So does [`forget_bounce`](Self::forget_bounce). An
    /// event that is delivered late, and is older than the opt-in by its [`created_at`](Event::created_at), does not count
    /// if it is recorded within 30 days after the opt-in. The store remembers hashes of the address.
    ///
    /// For that, the clocks of the service, of this program and of the store must agree. If they differ by some seconds, an
    /// event that is as many seconds newer than the opt-in may be dropped, or an older one may count.
    ///
    /// After a spam report, the service opts out the contact with the address, if there is one, and
    /// [`may_send`](Self::may_send) sees that. If the person has another
    /// [current address](super::UnsubscribeServiceBuilder::current_address), this call stores an opt-out of everything for
    /// it, unless an opt-in or a `forget_bounce` of that address is newer, as above. But if the lookup fails, the worker
    /// repeats it later, and then the report counts in any case. A bounce concerns its own address only.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails. Let your handler fail then, so that it gets the event again.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Example: in the handler of a webhook
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::Timestamp;
    /// # use audience::inbox::{InboxError, MemoryStore};
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # use audience::webhooks::{BounceType, Event, EventData, EventId, MailEvent};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// async fn handle(service: &UnsubscribeService, event: &Event) -> Result<(), InboxError> {
    ///     service.record_bounce(event).await?;
    ///     // What else the program does with the event …
    ///     Ok(())
    /// }
    /// # let mut mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
    /// # mail.bounce_type = Some(BounceType::Permanent);
    /// # let event = Event::new(EventId::try_from("evt_1")?, Timestamp::from_unix(1), EventData::Bounced(mail));
    /// # handle(&service, &event).await?;
    ///
    /// assert!(!service.may_send("ada@example.com", "news").await?);
    /// # Ok(()) }
    /// ```
    pub async fn record_bounce(&self, event: &Event) -> Result<(), InboxError> {
        let Some(mail) = event.mail() else {
            return Ok(());
        };
        let address = mail.address();
        let id = match &event.data {
            EventData::Complained(_) => {
                self.follow_spam_report(&address, event).await?;
                report_id(&address)
            }
            _ if mail.is_permanent_bounce() => bounce_id(&address),
            _ => return Ok(()),
        };
        if self.is_before_opt_in(&address, event).await? {
            return Ok(());
        }
        self.hold(&id, BOUNCE_TOKEN, BOUNCE_INTERVAL).await?;
        // The opt-in may have come in between.
        if self.is_before_opt_in(&address, event).await? {
            self.end_bounce(&id).await?;
        }
        Ok(())
    }

    /// Returns whether the address has opted in after this event.
    pub(super) async fn is_before_opt_in(
        &self,
        address: &str,
        event: &Event,
    ) -> Result<bool, InboxError> {
        // Before the store is asked, so that the opt-in is not taken for a later one.
        let now = self.0.links.since_1970();
        let state = self.0.inbox.state_of(&opt_in_id(address)).await?;
        let ClaimState::InProgress { remaining } = state else {
            return Ok(false);
        };
        let age = OPT_IN_INTERVAL.saturating_sub(remaining);
        // The time of an event has whole seconds. So only their difference may be rounded, or a bounce in the second after
        // the opt-in would seem to be older.
        let opt_in = now.saturating_sub(age).as_secs();
        Ok(u64::try_from(event.created_at.as_unix()).unwrap_or(0) < opt_in)
    }

    /// Ends the hold after a bounce or a spam report.
    async fn end_bounce(&self, id: &EventId) -> Result<(), InboxError> {
        let inbox = &self.0.inbox;
        inbox.extend_hold(id, BOUNCE_TOKEN, Duration::ZERO).await?;
        Ok(())
    }

    /// Returns whether [`record_bounce`](Self::record_bounce) remembers a permanent bounce of this address or a spam report
    /// about mail to it, for your support team. [`reachability`](Self::reachability) names only the bounce.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails.
    pub async fn has_bounced(&self, address: impl AsRef<str>) -> Result<bool, InboxError> {
        let address = address.as_ref();
        Ok(self.has_bounce(address).await? || self.has_report(address).await?)
    }

    /// Returns whether a permanent bounce of this address is remembered.
    pub(super) async fn has_bounce(&self, address: &str) -> Result<bool, InboxError> {
        self.remembers(&bounce_id(address)).await
    }

    /// Returns whether a spam report about mail to this address is remembered.
    pub(super) async fn has_report(&self, address: &str) -> Result<bool, InboxError> {
        self.remembers(&report_id(address)).await
    }

    async fn remembers(&self, id: &EventId) -> Result<bool, InboxError> {
        let state = self.0.inbox.state_of(id).await?;
        Ok(matches!(state, ClaimState::InProgress { .. }))
    }

    /// Forgets the bounce and the spam report of an address, for example because its owner says that the mailbox works
    /// again, or wants your mail. For 30 days, only newer ones count then. It changes nothing at the service: a contact
    /// who reported spam stays opted out.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails.
    ///
    /// # Example: for a support team
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let contacts = audience::mock::MockServer::start().await.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// if service.has_bounced("ada@example.com").await? {
    ///     service.forget_bounce("ada@example.com").await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn forget_bounce(&self, address: impl AsRef<str>) -> Result<(), InboxError> {
        let address = Target::new(address.as_ref(), None).address;
        let (inbox, id) = (&self.0.inbox, opt_in_id(&address));
        // The time of this opt-in replaces that of an earlier one. Whoever holds the id, this process or another, has the
        // same token, so to hold it once more would leave it as it is.
        let extended = inbox.extend_hold(&id, BOUNCE_TOKEN, OPT_IN_INTERVAL);
        if !extended.await? {
            self.hold(&id, BOUNCE_TOKEN, OPT_IN_INTERVAL).await?;
        }
        self.end_bounce(&bounce_id(&address)).await?;
        self.end_bounce(&report_id(&address)).await
    }
}

/// A mail of an issue that is being sent. It is held for [`LEASE`], so that a later run sends it if this process is
/// killed. While its request is under way, it is held for as long as the issue may be sent.
#[derive(Debug)]
struct Sending {
    service: UnsubscribeService,
    id: EventId,
    token: Token,
    address: String,
    topic: String,
    stop: Option<watch::Receiver<bool>>,
    /// Why it is not sent although the call did not fail, or what failed before the next attempt.
    ended: Mutex<Option<Result<IssueMail, ConsentError>>>,
}

impl Sending {
    async fn claim_and_send(self: &Arc<Self>, mail: Email) -> Result<IssueMail, ConsentError> {
        if let Some(reason) = self.claim(LEASE).await? {
            return Ok(reason);
        }
        if let Some(reason) = self.begin().await? {
            return Ok(reason);
        }
        let watch = Some(Arc::clone(self) as Arc<dyn AttemptWatch>);
        let options = CallOptions {
            watch,
            ..CallOptions::default()
        };
        let emails = self.service.0.contacts.client.emails();
        let sent = emails.send(mail).options(options);
        match (sent.await, lock(&self.ended).take()) {
            (Ok(sent), _) => Ok(IssueMail::Sent(sent)),
            (Err(_), Some(ended)) => ended,
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Asks whether the reader wants the mail, and begins its request. Returns why this run does not send it, if so.
    async fn begin(&self) -> Result<Option<IssueMail>, ConsentError> {
        let may_send = tokio::select! {
            biased;
            () = self.stopped() => return Ok(Some(IssueMail::NotYet)),
            may_send = self.service.may_send(&self.address, &self.topic) => may_send?,
        };
        match may_send {
            true => Ok(self.begin_request().await?),
            false => Ok(Some(IssueMail::NotWanted)),
        }
    }

    /// Holds the mail for as long as the issue may be sent. Returns why it is not this run that sends it, if so.
    async fn begin_request(&self) -> Result<Option<IssueMail>, InboxError> {
        let inbox = &self.service.0.inbox;
        match inbox
            .extend_hold(&self.id, self.token, ISSUE_INTERVAL)
            .await?
        {
            true => Ok(None),
            // The service took longer to respond than the lease.
            false => self.claim(ISSUE_INTERVAL).await,
        }
    }

    /// Claims the mail for this long. Returns why it is not this run that sends it, if so.
    async fn claim(&self, lease: Duration) -> Result<Option<IssueMail>, InboxError> {
        let inbox = &self.service.0.inbox;
        Ok(match inbox.claim_held(&self.id, self.token, lease).await? {
            ClaimState::Fresh { .. } => None,
            ClaimState::Done => Some(IssueMail::SentBefore),
            ClaimState::InProgress { remaining } if remaining <= LEASE => Some(IssueMail::NotYet),
            _ => Some(IssueMail::MaybeSent),
        })
    }

    async fn stopped(&self) {
        match &self.stop {
            Some(stop) => _ = stop.clone().wait_for(|is_stopped| *is_stopped).await,
            None => pending().await,
        }
    }

    /// Waits while no request is under way. Returns why the mail is not sent after that, if so.
    async fn pause(&self, time: Duration) -> Result<Option<IssueMail>, ConsentError> {
        let inbox = &self.service.0.inbox;
        let extended = inbox.extend_hold(&self.id, self.token, LEASE).await;
        extended.map_err(InboxError::from)?;
        tokio::select! {
            biased;
            () = self.stopped() => Ok(Some(IssueMail::NotYet)),
            // The reader may have opted out meanwhile.
            () = tokio::time::sleep(time) => self.begin().await,
        }
    }
}

impl AttemptWatch for Sending {
    fn failed(&self, _is_congestion: bool) {}

    fn retries(&self) {}

    fn wait(&self, time: Duration) -> Waiting<'_> {
        Box::pin(async move {
            let ended = self.pause(time).await.transpose();
            let goes_on = ended.is_none();
            *lock(&self.ended) = ended;
            goes_on
        })
    }
}

fn issue_id(issue: &str, address: &str, topic: &str) -> EventId {
    OptOut::id("issue", address, Some(&format!("{topic}\n{issue}")))
}

fn bounce_id(address: &str) -> EventId {
    OptOut::id("bounce", address.trim(), None)
}

/// Whoever has reported mail as spam wants none at another tag of the mailbox, either.
fn report_id(address: &str) -> EventId {
    OptOut::id("spam", &mailbox(address.trim()), None)
}

/// The id of the latest opt-in of an address.
fn opt_in_id(address: &str) -> EventId {
    OptOut::id("opt-in", address, None)
}

/// What became of the mail of an issue to one reader: see [`UnsubscribeService::send_issue_to`].
///
/// # Example: what is left to do
///
/// ```
/// use audience::unsubscribe::IssueMail;
///
/// fn advice(mail: &IssueMail) -> Option<&'static str> {
///     match mail {
///         IssueMail::MaybeSent => Some("look whether it has arrived"),
///         IssueMail::NotYet => Some("run the program again in a minute"),
///         _ => None,
///     }
/// }
/// # assert!(advice(&IssueMail::SentBefore).is_none() && advice(&IssueMail::NotYet).is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IssueMail {
    /// The service has accepted the mail.
    Sent(SentEmail),
    /// An earlier call, or one that ran at the same time, has sent the mail. There is nothing to do.
    SentBefore,
    /// Another call is sending the mail now, or nobody knows whether it has: its response was lost, or its program was
    /// killed. No call sends the mail again: if the reader does not get it, use another name of the issue.
    MaybeSent,
    /// The reader gets no mail about the topic: because of an opt-out or a [bounce](UnsubscribeService::record_bounce), or
    /// because the address is no contact. [`UnsubscribeService::reachability`] says which.
    NotWanted,
    /// Another call is about to send the mail, or was killed just before that. Call again with the same name of the issue
    /// after half a minute.
    NotYet,
}

/// Makes the mail to a contact, with this link, unless the contact is left out.
type MakeMail<'a> = Box<dyn FnMut(&ContactSummary, &str) -> Option<Email> + Send + 'a>;

/// Sends an issue when it is awaited: see [`UnsubscribeService::send_issue`].
#[must_use = "no mail is sent unless it is awaited"]
pub struct SendIssue<'a> {
    service: UnsubscribeService,
    issue: String,
    topic: String,
    mail: MakeMail<'a>,
    readers: ListContacts,
    concurrency: usize,
    stop_signal: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

impl<'a> SendIssue<'a> {
    /// Sets the contacts who may get the issue. Default: all contacts. Each must want the topic, too.
    ///
    /// # Example: a segment
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::emails::Email;
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # server.segment("seg_vip", audience::mock::SegmentKind::Contacts(vec!["ada@example.com".to_owned()]));
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts.clone(), MemoryStore::new()).build();
    /// # let mail = |_: &audience::contacts::ContactSummary, _: &str| Email::new().from("a@example.com").subject("Hi");
    /// let customers = contacts.list().segment("seg_vip").limit(200);
    /// let report = service.send_issue("2026-11", "news", mail).readers(customers).await?;
    ///
    /// assert_eq!(report.sent(), 1);
    /// # Ok(()) }
    /// ```
    pub fn readers(mut self, readers: ListContacts) -> Self {
        self.readers = readers;
        self
    }

    /// Sets how many mails are sent simultaneously at most. 0 counts as 1. Default: 4.
    ///
    /// If the program is killed, or the service stops to respond, as many readers may get no mail of the issue. Later
    /// runs [report](IssueReport::maybe_not_sent) them. Until the first mail of a run has succeeded, it sends no other
    /// beside it. So a run that begins in an outage costs at most one reader.
    pub fn concurrency(mut self, mails: usize) -> Self {
        self.concurrency = mails;
        self
    }

    /// Stops when this future ends, for example [`shutdown_signal()`](crate::shutdown_signal). A mail whose request is
    /// under way is finished, which takes no longer than the [timeout](crate::ClientBuilder::timeout) of the client: set
    /// a shorter one than the time after which Docker or systemd kills your program. A mail that waits because the
    /// service allows no more requests is left to the next run.
    /// The result is then a report that is not [complete](IssueReport::is_complete).
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'a) -> Self {
        self.stop_signal = Box::pin(signal);
        self
    }

    async fn run(mut self) -> Result<IssueReport, IssueError> {
        let allowed = self.concurrency.max(1);
        let mut run = Run::default();
        let mut list = self.readers.stream().prefetch();
        let mut mails = JoinSet::new();
        let (stop, stopped) = watch::channel(false);
        while !(run.has_ended && mails.is_empty()) {
            tokio::select! {
                biased;
                () = &mut self.stop_signal, if !*stop.borrow() => {
                    run.has_ended = true;
                    stop.send_replace(true);
                }
                Some(mail) = mails.join_next() => {
                    let (address, result) = mail.unwrap_or((None, Err(ConsentError::Unfinished)));
                    run.note(address, result);
                }
                listed = next(&mut list), if !run.has_ended && mails.len() < run.concurrency(allowed) => match listed {
                    Some(Ok(contact)) if contact.unsubscribed => run.report.not_wanted += 1,
                    Some(Ok(contact)) => {
                        let address = Target::new(&contact.email, None).address;
                        let Some(mail) = (self.mail)(&contact, &self.service.0.links.link(&address)) else {
                            run.report.left_out += 1;
                            continue;
                        };
                        let stop = Some(stopped.clone());
                        let sending = self.service.send_once(&self.issue, address.clone(), &self.topic, mail, stop);
                        mails.spawn(async move { (Some(address), sending.await) });
                    }
                    Some(Err(error)) => run.note(None, Err(error.into())),
                    None => {
                        run.report.is_complete = true;
                        run.has_ended = true;
                    }
                },
            }
        }
        run.report.is_complete &= run.stopped.is_none() && !run.has_left;
        run.report.is_stopped = *stop.borrow();
        // Another program may have sent some of these by now. The rest stays unclear after a stop, and if the store fails:
        // each further call could take as long as one may.
        let mut unclear = std::mem::take(&mut run.report.maybe_not_sent).into_iter();
        let mut goes_on = !run.report.is_stopped;
        while goes_on && let Some(address) = unclear.next() {
            let id = issue_id(&self.issue, &address, &self.topic);
            let state = tokio::select! {
                biased;
                () = &mut self.stop_signal => None,
                state = self.service.0.inbox.state_of(&id) => state.ok(),
            };
            goes_on = state.is_some();
            match state {
                Some(ClaimState::Done) => run.report.sent_before += 1,
                _ => run.report.maybe_not_sent.push(address),
            }
        }
        run.report.maybe_not_sent.extend(unclear);
        match run.stopped {
            None => Ok(run.report),
            Some(failure) => {
                run.report.needs_repair = !failure.error.is_retryable();
                Err(IssueError::stopped(run.report, failure))
            }
        }
    }
}

impl<'a> IntoFuture for SendIssue<'a> {
    type Output = Result<IssueReport, IssueError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for SendIssue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendIssue")
            .field("issue", &self.issue)
            .field("topic", &self.topic)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

async fn next(list: &mut ContactStream) -> Option<Result<ContactSummary, Error>> {
    poll_fn(|context| Pin::new(&mut *list).poll_next(context)).await
}

/// An issue that is being sent.
#[derive(Default)]
struct Run {
    report: IssueReport,
    /// No other mail is begun.
    has_ended: bool,
    /// Some mails are left to a later run.
    has_left: bool,
    /// The first failure that is not about one reader.
    stopped: Option<IssueFailure>,
    refused_in_a_row: usize,
}

impl Run {
    /// How many mails may be sent simultaneously now. In an outage, each of them may be lost, and a program that is
    /// started again and again would lose as many each time. So the first one goes alone.
    fn concurrency(&self, allowed: usize) -> usize {
        match self.report.sent {
            0 => 1,
            _ => allowed,
        }
    }

    fn note(&mut self, address: Option<String>, result: Result<IssueMail, ConsentError>) {
        let error = match result {
            Ok(mail) => return self.count(&mail, address),
            Err(error) => error,
        };
        // A page of the list has no address, and its refusal concerns everybody.
        let goes_on = match &error {
            ConsentError::Service(error) if address.is_none() => error.is_malformed_contact(),
            error => error.is_about_one_reader(),
        };
        self.refused_in_a_row += usize::from(address.is_some());
        let failure = IssueFailure { address, error };
        let stops = !goes_on || self.refused_in_a_row >= MAX_REFUSED;
        if stops && self.stopped.is_none() {
            self.has_ended = true;
            self.stopped = Some(failure);
        } else {
            // There may be one for each reader.
            let error = failure.error.shortened();
            self.report.failures.push(IssueFailure { error, ..failure });
        }
    }

    fn count(&mut self, mail: &IssueMail, address: Option<String>) {
        match mail {
            IssueMail::Sent(_) => {
                self.refused_in_a_row = 0;
                self.report.sent += 1;
            }
            IssueMail::SentBefore => {
                // In a later run, those who are refused each time would otherwise follow one another.
                self.refused_in_a_row = 0;
                self.report.sent_before += 1;
            }
            IssueMail::MaybeSent => self.report.maybe_not_sent.extend(address),
            IssueMail::NotWanted => self.report.not_wanted += 1,
            IssueMail::NotYet => self.has_left = true,
        }
    }
}

/// Counts the contacts of an issue that was sent. [`UnsubscribeService::send_issue`] returns it.
///
/// Its `Display` is the summary line: `1200 sent, 0 sent before, 34 not wanted, 1 failed`. If contacts were
/// [left out](Self::left_out), it adds `, 3 left out`. If some mails may have been sent, it adds `; 2 may have been sent`:
/// those of [`maybe_not_sent`](Self::maybe_not_sent), and the failures that [may have been sent](IssueFailure::maybe_sent),
/// which do not count as failed. No run sends these mails again. If the report is not complete, it adds
/// `; a later run sends the rest`, but not after an [`IssueError`] that is not retryable: a later run would fail, too, until
/// somebody has acted. Neither this nor the `Debug` form shows an address, but its JSON does.
#[derive(Default, Serialize)]
#[must_use = "mails may have failed or be left to a later run: call `finished`, and print the report"]
#[non_exhaustive]
pub struct IssueReport {
    sent: u64,
    sent_before: u64,
    maybe_not_sent: Vec<String>,
    not_wanted: u64,
    left_out: u64,
    failures: Vec<IssueFailure>,
    is_complete: bool,
    is_stopped: bool,
    /// A later run fails, too, until somebody has acted.
    #[serde(skip)]
    needs_repair: bool,
}

impl IssueReport {
    /// Returns how many mails this run has sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns to how many contacts an earlier run or another program has sent the issue.
    #[must_use]
    pub fn sent_before(&self) -> u64 {
        self.sent_before
    }

    /// Returns the addresses of the contacts whose mail an earlier run may not have sent, and no later run sends: it was
    /// killed while the service had the request, or the response was lost. Among them are those whose mails another
    /// program is still sending at the end of this run and, if this run was stopped or the store failed, those whose mails
    /// it has sent meanwhile: once that has ended, the report of a further run is right.
    #[must_use]
    pub fn maybe_not_sent(&self) -> &[String] {
        &self.maybe_not_sent
    }

    /// Returns how many contacts got no mail because they do not want the topic, have opted out of everything, bounced,
    /// or do not exist any more.
    #[must_use]
    pub fn not_wanted(&self) -> u64 {
        self.not_wanted
    }

    /// Returns how many contacts this run left out, because the closure of [`send_issue`](UnsubscribeService::send_issue)
    /// returned `None` for them. It is called before the contact is retrieved. So some of them may not want the topic, or
    /// an earlier run may have sent them the issue.
    ///
    /// # Example: nobody gets the mail yet
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// use audience::emails::Email;
    ///
    /// let report = service.send_issue("2026-11", "news", |_, _| None::<Email>).await?;
    ///
    /// assert_eq!((report.sent(), report.left_out()), (0, 1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the contacts that got no mail because of an error about this contact alone. After an [`IssueError`], also
    /// those whose mails failed at the same time, and last the one whose mail has stopped the run. If a page of the list
    /// has stopped it, only [`IssueError::failure`] has that error.
    ///
    /// There may be many, so each error but that last one has only the first 4 KiB of the body of its response, the first
    /// 500 characters of its message, and of its headers the request id.
    ///
    /// [`maybe_sent`](IssueFailure::maybe_sent) returns which of them may have got it nevertheless. All others get it in
    /// the next run.
    #[must_use]
    pub fn failures(&self) -> &[IssueFailure] {
        &self.failures
    }

    /// Returns whether the run has reached the end of the list, and left no mail to a later one, apart from the
    /// [failures](Self::failures): a later run tries those again, but an address that is refused is refused each time.
    /// Otherwise, run the program again: after [`stop_when`](SendIssue::stop_when), and if another program was about to
    /// send a mail. For 30 s after it was killed, that counts, too.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the report if every reader who wants the issue got it or was [left out](Self::left_out), and an error with
    /// it if not. Print the report, or `drop` it if you have printed it before.
    ///
    /// # Errors
    ///
    /// An [`IssueError`] whose [`failure`](IssueError::failure) has an [`Error`] of the kind
    /// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) or [`ErrorKind::Unfinished`](crate::ErrorKind::Unfinished). If
    /// the report is not [complete](Self::is_complete), it is retryable: run the program again. If there are only
    /// [failures](Self::failures) or mails that [may not have been sent](Self::maybe_not_sent), or if the list had no
    /// contact at all, it is not: somebody has to look. [`exit_status`](crate::exit_status) says so to whoever started
    /// the program.
    pub fn finished(self) -> Result<Self, IssueError> {
        let error = match self.is_complete {
            true => {
                let left = match (self.failures.is_empty(), self.maybe_not_sent.is_empty()) {
                    (true, true)
                        if self.sent + self.sent_before + self.not_wanted + self.left_out > 0 =>
                    {
                        return Ok(self);
                    }
                    (true, true) => {
                        "the list has no contact: check the segment, the key and the base URL"
                    }
                    (false, true) => {
                        "some mails failed: look at them; another run tries them again"
                    }
                    (true, false) => {
                        "some mails may not have been sent, and no run sends them again: look whether they have arrived"
                    }
                    (false, false) => {
                        "some mails failed, and some may not have been sent: look at them; another run tries only those that failed"
                    }
                };
                Error::unfinished(left, false)
            }
            false if self.is_stopped => {
                Error::stopped("the run was asked to stop; repeat it to send the rest")
            }
            false => Error::unfinished(
                "another program was about to send a mail, or was killed just before; repeat the run after half a minute",
                true,
            ),
        };
        let (address, error) = (None, error.into());
        Err(IssueError::stopped(self, IssueFailure { address, error }))
    }
}

/// As the result of a program: 0 if every reader who wants the issue got it or was left out, and otherwise the
/// [`exit_status`](crate::exit_status) of the error that [`finished`](IssueReport::finished) returns, which is printed.
impl Termination for IssueReport {
    fn report(self) -> ExitCode {
        match self.finished() {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => exit_after(&error),
        }
    }
}

impl fmt::Display for IssueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            sent_before,
            maybe_not_sent,
            not_wanted,
            left_out,
            failures,
            is_complete,
            is_stopped: _,
            needs_repair,
        } = self;
        let maybe_sent = failures.iter().filter(|failure| failure.maybe_sent());
        let maybe_sent = maybe_sent.count();
        let failed = failures.len() - maybe_sent;
        write!(
            f,
            "{sent} sent, {sent_before} sent before, {not_wanted} not wanted, {failed} failed"
        )?;
        match left_out {
            0 => {}
            left_out => write!(f, ", {left_out} left out")?,
        }
        match maybe_sent + maybe_not_sent.len() {
            0 => {}
            unclear => write!(f, "; {unclear} may have been sent")?,
        }
        match *is_complete || *needs_repair {
            true => Ok(()),
            false => f.write_str("; a later run sends the rest"),
        }
    }
}

impl fmt::Debug for IssueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IssueReport({self})")
    }
}

/// A mail of an issue that failed. Its `Debug` form shows no address, but its JSON does.
#[non_exhaustive]
pub struct IssueFailure {
    /// The contact's address. `None` if a page of the list could not be fetched, or has a contact that cannot be read.
    pub address: Option<String>,
    /// What failed.
    pub error: ConsentError,
}

impl IssueFailure {
    /// Returns whether the contact may have got the mail: the [outcome](Error::outcome) of the error is
    /// [`Outcome::Unknown`](crate::Outcome::Unknown) or [`Outcome::Applied`](crate::Outcome::Applied). Then no later run
    /// sends it. Otherwise, the next one does.
    ///
    /// # Example: what to do about each
    ///
    /// ```
    /// use audience::unsubscribe::IssueReport;
    ///
    /// fn print_failures(report: &IssueReport) {
    ///     for failure in report.failures() {
    ///         let end = match failure.maybe_sent() {
    ///             true => "if the person got no mail, call `send_issue_to` with another name of the issue",
    ///             false => "the next run sends it",
    ///         };
    ///         println!("{:?}: {}; {end}", failure.address, failure.error);
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn maybe_sent(&self) -> bool {
        self.error.maybe_sent()
    }
}

/// Writes the members `address`, `error`, which is the text of the error, and `maybe_sent`.
impl Serialize for IssueFailure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut failure = serializer.serialize_struct("IssueFailure", 3)?;
        failure.serialize_field("address", &self.address)?;
        failure.serialize_field("error", &self.error.to_string())?;
        failure.serialize_field("maybe_sent", &self.maybe_sent())?;
        failure.end()
    }
}

impl fmt::Debug for IssueFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("IssueFailure");
        debug.field("error", &self.error).finish_non_exhaustive()
    }
}

/// An issue that stopped before its end, with its report and the failure that stopped it.
///
/// Run the program again, with the same name of the issue. If the error is retryable, its
/// [`exit_status`](crate::exit_status) is 75, also if a mail may have been sent: the other readers still have to get
/// theirs, and nobody gets two. During an outage, each run may lose one reader: let a supervisor wait between two runs,
/// such as 15 minutes.
///
/// `Display` prints the counts and then the error, without an address, and `{:#}` its causes, too. So `source()` returns
/// the cause of that error, not the error itself.
pub struct IssueError(Box<(IssueReport, Option<IssueFailure>)>);

impl IssueError {
    /// The failure of a reader's mail counts in the report.
    fn stopped(mut report: IssueReport, failure: IssueFailure) -> Self {
        let failure = match failure.address {
            Some(_) => {
                report.failures.push(failure);
                None
            }
            None => Some(failure),
        };
        Self(Box::new((report, failure)))
    }

    /// Returns the report up to the stop.
    pub fn report(&self) -> &IssueReport {
        &self.0.0
    }

    /// Returns the failure that stopped the run. If it is about the mail of a reader, it is the last of the
    /// [failures](IssueReport::failures) of the report, too.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the report has the failure of a reader's mail"
    )]
    #[must_use]
    pub fn failure(&self) -> &IssueFailure {
        let (report, failure) = &*self.0;
        let failure = failure.as_ref().or(report.failures.last());
        failure.expect("the report has the failure of a reader's mail")
    }
}

impl fmt::Debug for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("IssueError");
        debug.field("report", self.report());
        debug.field("failure", self.failure()).finish()
    }
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (report, failure) = (self.report(), self.failure());
        let end = match &failure.error {
            ConsentError::Service(error) => error.end_of_job(),
            _ => "stopped before its end",
        };
        write!(f, "the issue {end}: {report}: ")?;
        // With `{:#}`, the error prints its causes.
        fmt::Display::fmt(&failure.error, f)
    }
}

impl StdError for IssueError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // `Display` has the error itself.
        self.failure().error.source()
    }
}

impl ConsentError {
    /// Returns whether a mail or an opt-in that failed may have been sent.
    pub(super) fn maybe_sent(&self) -> bool {
        match self {
            Self::Service(error) => error.outcome().may_be_applied(),
            _ => false,
        }
    }

    /// Returns whether another run of an issue may get further without a change to the program or its settings.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Service(error) => error.is_retryable(),
            Self::Store(InboxError::Store(error)) => error.is_temporary(),
            _ => false,
        }
    }

    /// Returns whether a mail failed because of its one reader, so that you can continue with the next one: the contact
    /// [is malformed](Error::is_malformed_contact), an address or the subject of the mail has a control character, which
    /// may come from a name, the service refused with 400, 413 or 422, or a 403 has no JSON object as its body. Such a 403
    /// most likely comes from a firewall, and says nothing about the key.
    ///
    /// After any other error, the mails of the other readers could fail, too.
    #[must_use]
    pub fn is_about_one_reader(&self) -> bool {
        match self {
            Self::Service(error) => {
                error.is_malformed_contact() || error.is_foreign_403() || refuses_mail(error)
            }
            Self::RefusedMail(_) => true,
            _ => false,
        }
    }

    /// Returns the error with little of the response: see [`Error::shortened`].
    fn shortened(self) -> Self {
        match self {
            Self::Service(error) => Self::Service(error.shortened()),
            Self::RefusedMail(error) => Self::RefusedMail(error.shortened()),
            other => other,
        }
    }

    pub(super) fn of_confirmation_mail(error: Error) -> Self {
        match refuses_mail(&error) {
            true => Self::RefusedMail(error),
            false => Self::Service(error),
        }
    }
}

/// Returns whether the service refused a mail, but may take the one to the next address.
fn refuses_mail(error: &Error) -> bool {
    let statuses = [
        StatusCode::BAD_REQUEST,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
    error
        .status()
        .is_some_and(|status| statuses.contains(&status))
}
