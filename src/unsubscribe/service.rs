//! Responds to the requests of a link, and sends the stored opt-outs.
//!
//! Each opt-out is an event in the store of an inbox. Its id is a hash of the address and the topic, and the id is
//! forgotten when the opt-out was sent. So an opt-out waits at most once, however often somebody clicks. An opt-in is
//! never stored. It is sent while the visitor waits, and only by a task that holds the id of the opt-out. No task gets
//! the id while the opt-out waits or is being sent, and no opt-out is stored under it while it is held. So opt-ins and
//! opt-outs of one address and topic are sent in the order of the clicks. An opt-in also holds the id of the opt-out of
//! everything, which concerns each topic.
//!
//! Before a confirmation creates a contact, an opt-out of everything is stored that is held until the contact is paused.
//! If the process dies, the worker sends it. The service may still be creating the contact then, so the worker retries
//! for a few minutes if it does not exist. No opt-in is sent before this opt-out has left the store.
//!
//! The person may have another address than the link by now. Then the opt-outs of both addresses are stored. If the
//! current one cannot be looked up, an event is stored that makes the worker do so. The contact of the current one may
//! be created after the opt-out was sent for the first time, so the worker retries that for a few minutes, too. This
//! opt-out has an id of its own, so that it does not end with another one of that address.
//!
//! If the application records the opt-outs, each one that was sent is stored a second time, under another endpoint, and
//! then leaves the first one. So a record that fails is retried alone, and no opt-in waits for it. If the process dies
//! before both are done, the opt-out is sent again, and stored under the same id: one record, unless the first was made
//! already.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use base64::Engine;
use bytes::Bytes;
use futures_core::Stream;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower_service::Service;
use url::form_urlencoded;

use super::links::{Confirmation, Target, UnsubscribeLinks};
use super::mail::{
    Consent, ConsentPage, DAY, RECORD_DEADLINE, Record, ids_of_day, record_by, recorded,
};
use super::page::{OfferedTopic, PageNotice, PageTexts, PreferencePage, ShownTopic, masked};
#[cfg(feature = "tracing")]
use crate::causes::with_causes;
use crate::client::{CallOptions, in_current_span, is_path_segment};
use crate::contacts::{
    ConfirmOptIn, Contact, Contacts, ListContacts, NewContact, OptOutReason, Reachability,
    normalized_address, shows_spam_report, two_answers,
};
use crate::inbox::{
    Attempt, ClaimState, Inbox, InboxError, Store, StoreError, Token, Worker, is_endpoint,
};
use crate::webhooks::tower::BytesBody;
use crate::webhooks::{DataFrames, Event, EventData, EventId};
use crate::{ConfigError, Error, ErrorKind, Missing, RetryPolicy, Timestamp};

const ENDPOINT: &str = "unsubscribe";
/// The end of the endpoint of the opt-outs that were sent and are not recorded yet.
const OF_RECORDS: &str = "-records";
/// The same for the changes of addresses.
const OF_MOVES: &str = "-moves";
const EVENT_TYPE: &str = "audience.opt_out";
const NOT_SENT_YET: &str = "an opt-out could not be sent yet, and is retried";
const NOT_RECORDED_YET: &str = "an opt-out could not be recorded yet, and is retried";
/// How long any form may be.
const BODY_LIMIT: usize = 16 * 1024;
/// How long the fields of the page's form may be that do not depend on its topics.
const OTHER_FIELDS: usize = 1_024;
/// How long the two fields of a topic may be without its name, also in a multipart form.
const TOPIC_FIELDS: usize = 512;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the page waits for the contact.
const RETRIEVE_DEADLINE: Duration = Duration::from_secs(4);
/// The timeout of one attempt. If no response comes, there is time for another attempt.
const RETRIEVE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a look for a current address may take.
const CURRENT_DEADLINE: Duration = Duration::from_secs(2);
/// How long the page waits for the store, which only knows the opt-outs that the service does not have yet.
const LOOK_DEADLINE: Duration = Duration::from_secs(1);
/// How long all requests of an opt-in may take. An opt-out waits for them.
pub(super) const OPT_IN_DEADLINE: Duration = Duration::from_secs(5);
/// How long an opt-in waits for another one of the same address.
pub(super) const OPT_IN_PATIENCE: Duration = Duration::from_secs(3);
/// How often an opt-in and an opt-out look whether another opt-in still holds their id.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// How long one attempt to send an opt-out may take.
const SEND_DEADLINE: Duration = Duration::from_secs(20);
/// Longer than an opt-in holds an id: it does not extend its lease.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// How many attempts to opt out a new contact, or a new address, are made at least. Of a new contact, the first is the
/// confirmation itself. With the worker's backoff, the others take about 5 minutes.
const NEW_CONTACT_ATTEMPTS: u32 = 6;
/// In how many attempts before the last one the contact must have been missing, too. An attempt that fails for another
/// reason, such as an outage, proves nothing.
const MISSING_BEFORE: u32 = 3;
/// How long the form of a page opts in once only.
const PAGE_INTERVAL: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How many forms of an address opt in in a day.
const FORMS_A_DAY: usize = 50;
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("60");

/// The endpoint of unsubscribe links, as a tower service.
///
/// The last segment of the path is the token of the link, with or without a slash after it. The part before it does not
/// matter, so the service can be mounted anywhere.
///
/// | request | response |
/// |---|---|
/// | GET, HEAD | 200 and the preference page. Nothing changes, because scanners follow links. If the contact cannot be retrieved, or the store fails, the page has no boxes: it says so, and its buttons opt out |
/// | POST with `List-Unsubscribe=One-Click` ([RFC 8058]) | 200 and an empty body after the opt-out was stored |
/// | POST of the page's form | 200 and the page after the opt-outs were stored and the opt-ins were sent |
/// | GET and POST of the link in a [confirmation mail](Self::send_confirmation) | 200 and a page with a button that subscribes; 200 and a page that says so after the click |
/// | an opt-in, by such a button or a box, of a contact that reported spam | 200 and a page that says that nobody was subscribed |
/// | a token that is invalid or too old | 404 and a page that says so |
/// | another method, another media type, any other form, more than 16 KiB, or more if the form of the page needs more, a body that takes longer than 10 s | 405, 415, 400, 413, 408 |
/// | the store fails, the service does not respond to an opt-in, your program cannot record it, an opt-out waits, or one of everything is newer than the page | 503 with `Retry-After` |
/// | an opt-in fails, and fails again until your team has acted: for example, the service refused the key, or the plan is full | the status of [`ConsentError::visitor_status`], which is 500, or 422 if the service refused the address of a confirmation, and a page that says so. With the feature `tracing`, an ERROR is logged |
///
/// The response to one click is the same whether or not the address is a contact. The page shows the contact's answers,
/// to whoever has the link.
///
/// # Opt-outs are stored, opt-ins are not
///
/// An opt-out is acknowledged when it is in the store. The [worker](Self::worker) sends it until the service has it:
/// there is no last attempt. An opt-in is sent while the visitor waits, and the page says if that failed. So no opt-in
/// is ever sent after an opt-out that was made later. If an opt-out for the same topic still waits, the opt-in is
/// refused for now.
///
/// A box that is empty when the form is sent is an opt-out, also if it was empty before: what the visitor saw is
/// recorded, and a topic whose default changes later does not come back. A box that is checked is an opt-in only if it
/// was empty on the page, and the form of one page opts in once: it is remembered for 30 days. So neither an old tab nor
/// a page that is loaded again can undo an opt-out.
///
/// If a contact is opted out of everything, the page shows empty boxes. If the visitor checks one, all other topics of
/// the contact are opted out first, also those that the page does not offer, and then the opt-out of everything ends.
///
/// # Flooding
///
/// A token is checked before the body is read, so strangers store nothing. For one address, at most four opt-outs for
/// each topic and five for everything wait in the store, however often somebody clicks. Usually it is one of each.
/// Another one waits if the process of an opt-in died, if somebody opted out at this address and at an earlier one, if
/// the current address could not be looked up, or while a contact is created. While
/// [`record_opt_out`](UnsubscribeServiceBuilder::record_opt_out) fails, the store has a record for each opt-out that was
/// sent, at most one in a second.
///
/// Up to 50 forms of an address opt in in a day. After that, the opt-outs of a form are stored as always, and the page
/// says to try again later.
///
/// [RFC 8058]: https://www.rfc-editor.org/rfc/rfc8058
///
/// # Example: an opt-out during an outage
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use audience::inbox::MemoryStore;
/// use audience::mock::{Fault, MockServer};
/// use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
/// use audience::webhooks::tower::BytesBody;
/// use http::Request;
/// use tower::ServiceExt;
///
/// # let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
/// let server = MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
/// server.fault(Fault::status(503).times(1));
/// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/unsubscribe")?;
/// let contacts = server.client().contacts();
/// let service = UnsubscribeService::builder(links.clone(), contacts.clone(), MemoryStore::new()).build();
///
/// let [(_, url), _] = links.headers("ada@example.com", "news");
/// let one_click = Request::post(url.trim_matches(['<', '>']))
///     .header("content-type", "application/x-www-form-urlencoded")
///     .body(BytesBody::from(bytes::Bytes::from("List-Unsubscribe=One-Click")))?;
/// assert_eq!(service.clone().oneshot(one_click).await?.status(), 200);
///
/// service.worker().run_until_idle().await?; // the service is down
/// assert_eq!(service.pending().await?, 1);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct UnsubscribeService(pub(super) Arc<Shared>);

#[derive(Clone)]
pub(super) struct Shared {
    pub(super) links: UnsubscribeLinks,
    pub(super) contacts: Contacts,
    pub(super) inbox: Inbox,
    /// The opt-outs that were sent, for the application to record them.
    records: Inbox,
    /// The changes of addresses.
    pub(super) moves: Inbox,
    pub(super) topics: Vec<OfferedTopic>,
    pub(super) texts: PageTexts,
    template: Option<Template>,
    current_address: Option<FindCurrent>,
    pub(super) record_consent: Option<Record<Consent>>,
    pub(super) record_opt_in: Option<Record<Consent>>,
    record_opt_out: Option<Record<OptOutRecord>>,
}

/// Looks up the address that a person has now. `None` means that it is the same.
type FindCurrent = Arc<dyn Fn(String) -> Finding + Send + Sync>;

type Finding = Pin<Box<dyn Future<Output = Result<Option<String>, SendError>> + Send>>;

type Template = Arc<dyn Fn(&PreferencePage<'_>) -> String + Send + Sync>;

impl UnsubscribeService {
    /// Starts building a service that stores opt-outs in this store and sends them with these contacts.
    ///
    /// The store may be the one of your webhook inbox. The opt-outs have the endpoint `unsubscribe` there, and the changes
    /// of addresses `unsubscribe-moves`. If the store is for several accounts of the service, give each an
    /// [`endpoint`](UnsubscribeServiceBuilder::endpoint) of its own: a worker sends all opt-outs of its endpoint to one
    /// account.
    pub fn builder(
        links: UnsubscribeLinks,
        contacts: Contacts,
        store: impl Store,
    ) -> UnsubscribeServiceBuilder {
        let inbox = Inbox::of_own_events(store, ENDPOINT, LEASE, NOT_SENT_YET);
        UnsubscribeServiceBuilder(Shared {
            links,
            contacts,
            records: records_of(&inbox),
            moves: moves_of(&inbox),
            inbox,
            topics: Vec::new(),
            texts: PageTexts::default(),
            template: None,
            current_address: None,
            record_consent: None,
            record_opt_in: None,
            record_opt_out: None,
        })
    }

    /// Starts building this service in another language. Give it links with the same secrets and a base URL of their
    /// own, its texts and its topics. Everything else is as in this service, for example the functions of
    /// [`record_consent`](UnsubscribeServiceBuilder::record_consent),
    /// [`record_opt_out`](UnsubscribeServiceBuilder::record_opt_out) and
    /// [`current_address`](UnsubscribeServiceBuilder::current_address). This service sends and waits for both: run the
    /// worker of one of them.
    ///
    /// To send one issue in both languages, call [`send_issue`](Self::send_issue) of one of them. In its closure, take the
    /// link and the headers of a reader from the [`links`](Self::links) of the reader's language, which you can keep as a
    /// property of the contact: see the example of [`send_issue`](Self::send_issue). Do not send it with both: each reader
    /// would get it from both.
    ///
    /// # Example: German beside English
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # let contacts = audience::mock::MockServer::start().await.client().contacts();
    /// use audience::unsubscribe::{OfferedTopic, PageTexts, UnsubscribeLinks, UnsubscribeService};
    ///
    /// # let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    /// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/preferences")?;
    /// let english = UnsubscribeService::builder(links, contacts, MemoryStore::new())
    ///     .topic(OfferedTopic::new("news", "News"))
    ///     .build();
    ///
    /// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/einstellungen")?;
    /// let mut texts = PageTexts::default();
    /// texts.lang = "de".into(); // and the others
    /// let german = english.translation(links).texts(texts).topic(OfferedTopic::new("news", "Neues")).build();
    /// # let _ = german;
    /// # Ok(()) }
    /// ```
    pub fn translation(&self, links: UnsubscribeLinks) -> UnsubscribeServiceBuilder {
        UnsubscribeServiceBuilder(Shared {
            links,
            topics: Vec::new(),
            texts: PageTexts::default(),
            ..Shared::clone(&self.0)
        })
    }

    /// Returns the worker that sends the stored opt-outs. Run it in at least one process that has the store.
    ///
    /// It never gives up: after a failure it waits for 5 s, then for twice as long each time, up to 5 minutes.
    ///
    /// - If the opt-out is refused with 400, 404, 410 or 422, the worker finds out why. A gateway can send such a
    ///   response, too. If the list of the contacts does not have the address, the opt-out is done, and nothing
    ///   remembers it: nobody sends broadcasts to the address. After a [confirmation](Self::subscribe) whose create
    ///   request had no response, the service may create the contact later, so the worker first retries for about 5
    ///   minutes. It does the same for a [current address](UnsubscribeServiceBuilder::current_address), because
    ///   [`change_address`](Contacts::change_address) may not have created the contact yet. Attempts that fail for
    ///   another reason do not count, so after an outage of the service it retries for about 15 minutes more.
    /// - If the contact exists, and the topic does not, the contact is opted out of everything, so that the opt-out is
    ///   not lost. Otherwise the worker retries.
    /// - If the service accepts an opt-out from a topic, but always shows `null` as the answer for the topic, the opt-out is
    ///   done, and the client logs a warning ([`Contacts::unsubscribe`]).
    /// - If the client cannot send the address, because it is empty, `.` or `..`, the opt-out is done: no contact has
    ///   such an address. The links of such an address are invalid.
    ///
    /// The worker also calls the function of [`record_opt_out`](UnsubscribeServiceBuilder::record_opt_out). Each record
    /// counts as one more event in its [report](crate::inbox::WorkerReport). Its [`concurrency`](Worker::concurrency), 8
    /// unless you set it, limits the opt-outs that are sent simultaneously and, apart from them, the calls of the function:
    /// a slow database delays no opt-out.
    ///
    /// With the feature `tracing`, each failed attempt is a warning: `an opt-out could not be sent yet, and is retried`, or
    /// `an opt-out could not be recorded yet, and is retried`.
    ///
    /// The type of the handler has no name, so a struct cannot hold the worker. Keep the service, which can be cloned,
    /// and call this method when you run the worker.
    ///
    /// # Example: beside a server, until SIGTERM
    ///
    /// ```no_run
    /// # use audience::unsubscribe::UnsubscribeService;
    /// # async fn run(listener: tokio::net::TcpListener, service: UnsubscribeService) -> std::io::Result<()> {
    /// let worker = service.worker();
    /// audience::serve(listener, service).worker(worker).await // with the feature `serve`
    /// # }
    /// ```
    pub fn worker(&self) -> Worker<impl Fn(Event, Attempt) -> Sending + Send + Sync + 'static> {
        let service = self.clone();
        let send = move |event: Event, attempt: Attempt| -> Sending {
            let service = service.clone();
            Box::pin(async move {
                let (is_new, stored_at) = (age(&event) < LEASE, event.created_at);
                let id = event.id.clone();
                let opt_out = OptOut::of(event)?;
                let record = opt_out.record(stored_at);
                let kind = opt_out.kind;
                match kind {
                    Kind::CurrentAddress | Kind::MovedAddress => {
                        return service.store_of_current(opt_out, record.made_at).await;
                    }
                    // The confirmation has not claimed it, and creates the contact only if it has. The first attempt after
                    // a replay comes later.
                    Kind::NewContact if attempt.number() == 1 && is_new => return Ok(()),
                    Kind::Address => _ = opt_out.send(&service).await?,
                    // The create request may be applied after this: the service is slow, or `change_address` has not
                    // sent it yet.
                    Kind::NewContact | Kind::NewAddress => {
                        let has_contact = opt_out.send(&service).await?;
                        let number = attempt.number();
                        if !has_contact && !service.stays_missing(&id, stored_at, number).await? {
                            return Err("the contact does not exist yet".into());
                        }
                    }
                }
                match kind {
                    // No person has asked for it.
                    Kind::NewContact => Ok(()),
                    _ => service.store_record(record).await,
                }
            })
        };
        let worker = self.0.inbox.worker(send).max_attempts(u32::MAX);
        let worker = worker.backoff(Duration::from_secs(5), Duration::from_secs(300));
        if self.0.record_opt_out.is_none() {
            return worker;
        }
        let service = self.clone();
        let record = move |event: Event, _: Attempt| -> Sending {
            let service = service.clone();
            Box::pin(async move {
                let stored_at = event.created_at;
                let record = OptOut::of(event)?.record(stored_at);
                service.record_opt_out(record).await
            })
        };
        worker.and(&self.0.records, Box::new(record))
    }

    /// Notes that this attempt to send an opt-out has found no contact. Returns whether enough attempts before it have
    /// found none either. An attempt that fails in another way proves nothing.
    async fn stays_missing(
        &self,
        event: &EventId,
        stored_at: Timestamp,
        attempt: u32,
    ) -> Result<bool, InboxError> {
        // An event cannot keep anything between its attempts, so an id is held for each of them.
        let id = |number: u32| {
            let name = format!("{stored_at}\n{number}");
            OptOut::id("missing", event.as_str(), Some(&name))
        };
        self.hold(&id(attempt), Token::random(), DAY).await?;
        if attempt <= NEW_CONTACT_ATTEMPTS {
            return Ok(false);
        }
        for number in attempt - MISSING_BEFORE..attempt {
            let state = self.0.inbox.state_of(&id(number)).await;
            let state = state.map_err(InboxError::from)?;
            if !matches!(state, ClaimState::InProgress { .. }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns how many opt-outs are stored and not sent yet. Alert your team if it stays above 0 for longer than the
    /// longest outage that you expect.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails.
    pub async fn pending(&self) -> Result<u64, InboxError> {
        let backlog = self.0.inbox.backlog().await?;
        Ok(backlog.waiting + backlog.in_progress + backlog.parked)
    }

    /// Returns whether an opt-out of this address is stored and not sent yet: from one of these topics, or from
    /// everything.
    ///
    /// It finds the opt-outs that all processes with this store have acknowledged. It does not look for opt-outs from
    /// other topics than these, nor at a [current address](UnsubscribeServiceBuilder::current_address), so ask for both
    /// addresses. A result of `false` may be out of date immediately, so use [`subscribe`](Self::subscribe) to subscribe an
    /// address, and [`may_send`](Self::may_send) before you send a mail.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails.
    ///
    /// # Example: an opt-out that was acknowledged during an outage
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # use audience::webhooks::tower::BytesBody;
    /// # use tower::ServiceExt;
    /// # let contacts = audience::mock::MockServer::start().await.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links.clone(), contacts, MemoryStore::new()).build();
    /// # let [(_, url), _] = links.headers("ada@example.com", "news");
    /// # let click = http::Request::post(url.trim_matches(['<', '>'])).body(BytesBody::from(bytes::Bytes::from("List-Unsubscribe=One-Click")))?;
    /// # assert_eq!(service.clone().oneshot(click).await?.status(), 200);
    /// // Ada has clicked on the button for `news`, and the worker could not send her opt-out yet.
    /// assert!(service.has_pending("ada@example.com", ["news", "offers"]).await?);
    /// assert!(!service.has_pending("ada@example.com", ["offers"]).await?);
    /// assert!(!service.has_pending("bob@example.com", ["news"]).await?);
    /// # Ok(()) }
    /// ```
    pub async fn has_pending(
        &self,
        address: impl AsRef<str>,
        topics: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<bool, InboxError> {
        let address = Target::new(address.as_ref(), None).address;
        let of_topics = topics.into_iter();
        let of_topics = of_topics.flat_map(|topic| OptOut::ids(&address, Some(topic.as_ref())));
        let ids: Vec<_> = of_topics.chain(OptOut::ids_of_all(&address)).collect();
        self.has_any(&ids).await
    }

    /// Subscribes an address to these topics after a confirmation, such as the click of a double opt-in. They may be topics
    /// that the page does not offer.
    ///
    /// It sends the requests of [`Contacts::confirm_opt_in`], in order with the opt-outs of this service. While it
    /// runs, an opt-out that arrives at this service, in any process with the same store, waits for it. So the newer
    /// click wins, unless the service applies a request of the opt-in that had no response in time after the opt-out. If
    /// an opt-out waits that was acknowledged before, the call fails, and sends nothing. The requests have 5 s, or less if
    /// the store is slow. The call continues if its future is dropped, for example because the visitor went away.
    ///
    /// If another call for the address is running, as after a double click, this one waits for it up to 3 s. Then it
    /// sends nothing, because an opt-out may be newer by then: it succeeds if the contact has these topics.
    ///
    /// Do not retry it in the background: an opt-out may be newer by then. Let the visitor click again. A new contact
    /// is first opted out of everything, and the last request ends that. So if a call fails, the contact gets nothing
    /// until another click.
    ///
    /// Between its creation and that opt-out, a contact has the topics whose default is `true`. So the opt-out is in
    /// the store before the contact is created. If the program is killed in between, the worker sends it after 30 s. If
    /// the create request has no response, the worker sends it immediately, and retries for about 5 minutes while there
    /// is no such contact. [`may_send`](Self::may_send) returns `false` meanwhile.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::OptedOut`] if an opt-out waits. It has precedence. The worker usually sends it within a second.
    ///   If an earlier call got no response to its create request, it can take 5 minutes, and 15 minutes after an outage.
    /// - [`ConsentError::Unfinished`] if the requests did not end in time, if another call for the address was running
    ///   and had another result or did not end, or if a process that made such a call was killed less than 30 s ago.
    /// - [`ConsentError::Service`] if a request failed. [`Error::is_complaint_locked`] if the contact reported spam,
    ///   and [`Error::is_not_found`] if the service has no such topic.
    /// - [`ConsentError::Store`] if the store fails.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Example: after the click
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", false).topic("offers", true).start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// let ada = service.subscribe("ada@example.com", ["news"]).await?;
    ///
    /// assert!(ada.topics["news"] && !ada.topics["offers"]);
    /// # Ok(()) }
    /// ```
    pub async fn subscribe(
        &self,
        contact: impl Into<NewContact>,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Contact, ConsentError> {
        let topics = topics.into_iter().map(Into::into).collect();
        self.confirm_opt_in(contact.into(), topics, None).await
    }

    /// Subscribes a contact. If there is a consent, lets the application record it before, and the opt-in afterwards.
    pub(super) async fn confirm_opt_in(
        &self,
        contact: NewContact,
        topics: BTreeSet<String>,
        consent: Option<(Consent, Arc<PageForm>)>,
    ) -> Result<Contact, ConsentError> {
        let service = self.clone();
        // The ids would stay held if the caller's future were dropped.
        let task = self.start(async move {
            let key = Target::new(&contact.email, None).address;
            let confirm = service.0.contacts.confirm_opt_in(contact, &topics);
            let mut creation = None;
            let of_page = consent.as_ref().map(|(consent, _)| consent.clone());
            let sending = async {
                if let Some((consent, form)) = consent {
                    service.begin_form(&form, consent).await?;
                }
                service.confirm(confirm, &key, &mut creation).await
            };
            let result = service.opt_in(&key, &topics, sending, of_page).await;
            if let Some(creation) = creation {
                let inbox = &service.0.inbox;
                match creation.has_defaults {
                    // Nobody has said yes to the topics whose defaults are true.
                    true => inbox.release_hold(&creation.id, creation.token).await,
                    false => _ = inbox.end_hold(&creation.id, creation.token).await,
                }
            }
            result
        });
        task.await.unwrap_or(Err(ConsentError::Unfinished))
    }

    /// Stores an opt-out from this topic, or from everything, as a click on an unsubscribe link does. Use it for opt-outs
    /// that arrive in another way, such as a letter or a button of your own. The [worker](Self::worker) sends it, with the
    /// reason `preferences`, until the service has it.
    ///
    /// **A topic that does not exist becomes an opt-out of everything**, so that a click on an old link is not lost.
    /// Compare a name that somebody has typed with the [`topics`](crate::contacts::Contact::topics) of the contact
    /// first. An address that is no contact is accepted, too, and the worker drops its opt-out.
    ///
    /// If an opt-in of the address is running, it waits for that, up to 8 s. The call continues if its future is dropped,
    /// for example because the visitor went away.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store fails. The opt-out may be stored all the same, for example if the store
    /// did not respond in time, or for only one of two addresses
    /// ([`current_address`](UnsubscribeServiceBuilder::current_address)). Call it again: that does no harm.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Example: somebody replied "please stop"
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, server.client().contacts(), MemoryStore::new()).build();
    /// service.opt_out("ada@example.com", Some("news")).await?;
    /// service.opt_out("bob@example.com", None).await?; // from everything
    ///
    /// service.worker().run_until_idle().await?;
    /// assert!(!server.contact("ada@example.com").unwrap().topics["news"]);
    /// # Ok(()) }
    /// ```
    pub async fn opt_out(
        &self,
        address: impl AsRef<str>,
        topic: Option<&str>,
    ) -> Result<(), InboxError> {
        let linked = Target::new(address.as_ref(), None);
        let (service, topic) = (self.clone(), topic.map(str::to_owned));
        self.store_in_task(async move {
            let stored = service.store(&linked, &[topic.as_deref()]).await;
            stored.map(drop)
        })
        .await
    }

    /// Records the answers of a form of your own, as the preference page does: it stores each "no", which the
    /// [worker](Self::worker) sends until the service has it, and then sends each "yes". Topics that are not in the form
    /// stay unchanged. If the contact was opted out of everything, a "yes" ends that, and the topics that are not in the
    /// form are opted out.
    ///
    /// A "yes" fails if an opt-out waits that concerns it. Give the form only to a person who can read the mail of the
    /// address, and do not send it again later: an opt-out may be newer by then.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::NoTopic`] if the builder was not [given](UnsubscribeServiceBuilder::topic) one of the topics.
    ///   Nothing is recorded then.
    /// - [`ConsentError::Service`] with [`ErrorKind::Input`] if the form has two different answers for a topic, such as
    ///   those of a hidden field and a checkbox. Nothing is recorded then.
    /// - [`ConsentError::Store`] if the store fails. A "no" may be missing then, and no "yes" was sent.
    /// - The errors of [`subscribe`](Self::subscribe). Each "no" is stored then. [`Error::is_not_found`] if the address is
    ///   not one of your contacts.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Example: the form of an account page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{OfferedTopic, UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).topic("offers", false).seed_contact("ada@example.com").start().await;
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// let service = UnsubscribeService::builder(links, server.client().contacts(), MemoryStore::new())
    ///     .topic(OfferedTopic::new("news", "News"))
    ///     .topic(OfferedTopic::new("offers", "Offers"))
    ///     .build();
    ///
    /// service.set_topics("ada@example.com", [("news", false), ("offers", true)]).await?;
    ///
    /// assert!(server.contact("ada@example.com").unwrap().topics["offers"]);
    /// assert!(!service.may_send("ada@example.com", "news").await?);
    /// # Ok(()) }
    /// ```
    pub async fn set_topics(
        &self,
        address: impl AsRef<str>,
        answers: impl IntoIterator<Item = (impl Into<String>, bool)>,
    ) -> Result<(), ConsentError> {
        let address = Target::new(address.as_ref(), None).address;
        let (mut opt_ins, mut opt_outs) = (BTreeSet::new(), BTreeSet::new());
        for (topic, answer) in answers {
            let topics = if answer { &mut opt_ins } else { &mut opt_outs };
            topics.insert(topic.into());
        }
        let mut names = opt_ins.iter().chain(&opt_outs);
        if names.any(|topic| self.offered(topic).is_none()) {
            return Err(ConsentError::NoTopic);
        }
        if !opt_ins.is_disjoint(&opt_outs) {
            return Err(two_answers().at("set_topics").into());
        }
        let service = self.clone();
        let task =
            self.start(async move { service.save_answers(address, &opt_ins, &opt_outs).await });
        task.await.unwrap_or(Err(ConsentError::Unfinished))
    }

    async fn save_answers(
        &self,
        address: String,
        opt_ins: &BTreeSet<String>,
        opt_outs: &BTreeSet<String>,
    ) -> Result<(), ConsentError> {
        let names: Vec<_> = opt_outs.iter().map(|name| Some(name.as_str())).collect();
        let stored = self.store(&Target::new(&address, None), &names).await;
        stored.map_err(InboxError::from)?;
        if opt_ins.is_empty() {
            return Ok(());
        }
        let sending = async {
            let contacts = &self.0.contacts;
            let options = CallOptions::default();
            let contact = contacts.retrieve_surely(&address, &options).await?;
            let sending = send_opt_ins(contacts, &address, opt_ins, contact.unsubscribed);
            Ok(sending.await?)
        };
        let mut opted_in = self.opt_in(&address, opt_ins, sending, None).await;
        if let Err(ConsentError::Service(error)) = &mut opted_in
            && !opt_outs.is_empty()
        {
            error.set_after_change();
        }
        opted_in.map(drop)
    }

    /// Sends the requests of a confirmation. `creation` stays if a contact was maybe created and is not paused yet.
    async fn confirm(
        &self,
        mut call: ConfirmOptIn,
        address: &str,
        creation: &mut Option<Creation>,
    ) -> Result<Contact, ConsentError> {
        let contact = match call.find().await? {
            Some(contact) => contact,
            None => {
                let begun = creation.insert(Creation::of(address));
                self.store_creation(address, begun).await?;
                let created = call.create_paused(&mut begun.has_defaults).await;
                let contact = created.map_err(|error| call.outcome_of_all(error))?;
                // An opt-in must not be sent before the worker can no longer get the opt-out.
                let is_ended = self.0.inbox.end_hold(&begun.id, begun.token).await;
                is_ended.then_some(()).ok_or(ConsentError::Unfinished)?;
                contact
            }
        };
        *creation = None;
        let confirmed = call.confirm(contact).await;
        Ok(confirmed.map_err(|error| call.outcome_of_all(error))?)
    }

    /// Stores the opt-out of a contact that is created next.
    async fn store_creation(&self, address: &str, creation: &Creation) -> Result<(), InboxError> {
        let opt_out = OptOut {
            kind: Kind::NewContact,
            ..OptOut::new(address, None)
        };
        let envelope = opt_out.envelope(&creation.id);
        let (inbox, id) = (&self.0.inbox, &creation.id);
        while !inbox.store_held(id, &envelope, creation.token).await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Returns whether an address wants mail about a topic: no opt-out of it is stored and no
    /// [bounce](Self::record_bounce) is remembered, it is a contact, and [`Contact::reachability_for`] the topic says
    /// that nothing prevents it.
    ///
    /// `true` is no proof of an opt-in: if the contact never answered, the topic's default counts. The service does not
    /// tell the two apart, so keep a record of the opt-ins with
    /// [`record_consent`](UnsubscribeServiceBuilder::record_consent).
    ///
    /// [`send_issue`](Self::send_issue) looks by itself. Before any other mail, call it directly before you send it. It
    /// looks into the store, retrieves the contact, and looks into the store once more. Without the first look, an
    /// opt-out that the worker sends in between would be missed. Without the second one, an opt-out that is stored
    /// meanwhile would be missed: after a 429, the contact can take many seconds.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::Service`] if the contact cannot be retrieved, or if the response does not show its topics, or
    ///   `null` as its answer for this one.
    /// - [`ConsentError::Store`] if the store fails.
    /// - [`ConsentError::UnknownTopic`] if the contact has no such topic, because its name is misspelled.
    ///
    /// # Example: before a mail
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// assert!(service.may_send("ada@example.com", "news").await?);
    /// assert!(!service.may_send("bob@example.com", "news").await?); // no contact
    /// # Ok(()) }
    /// ```
    pub async fn may_send(
        &self,
        address: impl AsRef<str>,
        topic: impl AsRef<str>,
    ) -> Result<bool, ConsentError> {
        match self.reachability(address, topic).await? {
            Reachability::UnknownTopic => Err(ConsentError::UnknownTopic),
            reachability => Ok(reachability.is_reachable()),
        }
    }

    /// Returns whether an address [may get mail](Self::may_send) about a topic, and if not, why. Its `Display` is a text
    /// for your support team. If the contact has no such topic, the result is [`Reachability::UnknownTopic`]. An
    /// opt-out that waits comes first, then a bounce: the contact may be opted out as well.
    ///
    /// # Errors
    ///
    /// - [`ConsentError::Service`] if the contact cannot be retrieved, or if the response does not show its topics, or
    ///   `null` as its answer for this one.
    /// - [`ConsentError::Store`] if the store fails.
    ///
    /// # Example: why somebody gets no newsletter
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://shop.example.com/unsubscribe")?;
    /// # let service = UnsubscribeService::builder(links, contacts, MemoryStore::new()).build();
    /// service.opt_out("ada@example.com", Some("news")).await?;
    ///
    /// let reachability = service.reachability("ada@example.com", "news").await?;
    /// assert_eq!(reachability.to_string(), "an opt-out of the person is being recorded");
    /// # Ok(()) }
    /// ```
    pub async fn reachability(
        &self,
        address: impl AsRef<str>,
        topic: impl AsRef<str>,
    ) -> Result<Reachability, ConsentError> {
        let (address, topic) = (address.as_ref(), topic.as_ref());
        // This comes first: an opt-out leaves the store when the service has it.
        if self.has_pending(address, [topic]).await? {
            return Ok(Reachability::OptOutWaits);
        }
        if self.has_bounce(address).await? {
            return Ok(Reachability::Bounced);
        }
        let (contacts, options) = (&self.0.contacts, CallOptions::default());
        match contacts.retrieve_surely(address, &options).await {
            Ok(contact) => {
                let reachability = contact.reachability_for(topic);
                if reachability == Reachability::NotShown {
                    // Nobody knows whether the reader wants it, so this must not count as a "no".
                    contact.require_answer(topic)?;
                }
                // The request may have waited long, and the worker, too: for the end of a 429.
                if reachability.is_reachable() && self.has_pending(address, [topic]).await? {
                    return Ok(Reachability::OptOutWaits);
                }
                Ok(reachability)
            }
            Err(error) if error.missing() == Some(Missing::Contact) => Ok(Reachability::NoContact),
            // The list has the contact, so this says nothing about the next one.
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {
                Err(error.malformed_contact().into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether an opt-out with one of these ids is stored and not sent yet.
    async fn has_any(&self, ids: &[EventId]) -> Result<bool, InboxError> {
        // Most of the time nothing waits, and counting only reads.
        Ok(self.pending().await? > 0 && self.waits_for_any(ids).await?)
    }

    /// Does this for a caller that knows that something waits.
    pub(super) async fn waits_for_any(&self, ids: &[EventId]) -> Result<bool, InboxError> {
        for id in ids {
            if self.0.inbox.has_own(id).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the links that were passed to [`builder`](Self::builder) or [`translation`](Self::translation).
    #[must_use]
    pub fn links(&self) -> &UnsubscribeLinks {
        &self.0.links
    }

    /// Returns the inbox that holds the opt-outs: its [`backlog`](Inbox::backlog) and its [`metrics`](Inbox::metrics)
    /// are for your monitoring. `Backlog::lag` says how long the oldest opt-out has been due. During an outage of the
    /// service it is short, because an opt-out that failed is due later.
    #[must_use]
    pub fn inbox(&self) -> &Inbox {
        &self.0.inbox
    }

    /// Stores an opt-out that was sent, for the application to record it.
    async fn store_record(&self, record: OptOutRecord) -> Result<(), SendError> {
        if self.0.record_opt_out.is_none() {
            return Ok(());
        }
        let (id, opt_out) = OptOut::of_record(&record);
        // Nobody holds this id.
        let stored = self.0.records.store_own(&id, &opt_out.envelope(&id)).await;
        match stored {
            Ok(_) => Ok(()),
            // A full store may have no room before the opt-out has left it.
            Err(_) => self.record_opt_out(record).await,
        }
    }

    /// Lets the application record an opt-out that was sent.
    async fn record_opt_out(&self, record: OptOutRecord) -> Result<(), SendError> {
        let Some(function) = self.0.record_opt_out.clone() else {
            return Ok(());
        };
        let end = Instant::now() + RECORD_DEADLINE;
        recorded(move || function(record), end).await.map_err(|_error| {
            #[cfg(feature = "tracing")]
            if self.0.records.logs_failure("record") {
                tracing::error!(target: "audience::unsubscribe", endpoint = self.0.inbox.endpoint(), error = with_causes(&*_error), "an opt-out could not be recorded");
            }
            // The text of the application's error may have the address.
            "the opt-out was sent, but could not be recorded by `record_opt_out`".into()
        })
    }

    async fn respond<B>(self, request: Request<B>) -> Response<BytesBody>
    where
        B: Body,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        if ![Method::GET, Method::HEAD, Method::POST].contains(&head.method) {
            let mut response = self.status(StatusCode::METHOD_NOT_ALLOWED);
            let allowed = HeaderValue::from_static("GET, HEAD, POST");
            response.headers_mut().insert(header::ALLOW, allowed);
            return response;
        }
        let path = head.uri.path().trim_end_matches('/');
        let token = path.rsplit('/').next().unwrap_or_default();
        let Some(link) = Link::open(token, &self.0.links) else {
            return self.invalid_link();
        };
        if head.method != Method::POST {
            return self.show(link).await;
        }
        let form = match Form::read(&head, body, self.body_limit()).await {
            Ok(form) => form,
            Err(status) => return self.status(status),
        };
        let service = self.clone();
        let task = self.start(async move { service.click(link, &form, head).await });
        task.await.unwrap_or_else(|_| unavailable())
    }

    /// Returns how long a form may be. The page sends the name of each topic twice, and percent-encoding takes three bytes
    /// for one, so a name takes six times its length.
    fn body_limit(&self) -> usize {
        let topics = self.0.topics.iter();
        let fields = topics.map(|topic| TOPIC_FIELDS + 6 * topic.name.len());
        BODY_LIMIT.max(OTHER_FIELDS + fields.sum::<usize>())
    }

    /// Starts this in a task of its own: the caller's future may be dropped when the visitor goes away. The worker waits
    /// for it when the program is told to stop.
    pub(super) fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let running = self.0.inbox.start_task();
        tokio::spawn(in_current_span(async move {
            let _running = running;
            work.await
        }))
    }

    /// Stores opt-outs in a task of its own.
    async fn store_in_task(
        &self,
        work: impl Future<Output = Result<(), StoreError>> + Send + 'static,
    ) -> Result<(), InboxError> {
        let stored = self.start(work).await;
        Ok(stored.unwrap_or_else(|error| Err(StoreError::unavailable(error)))?)
    }

    async fn show(&self, link: Link) -> Response<BytesBody> {
        match link {
            Link::Confirmation(confirmation) => self.confirmation_page(&confirmation).await,
            Link::Preferences(target) => {
                let person = self.person(target).await;
                self.page(&person, &self.shown(&person).await, None)
            }
        }
    }

    async fn click(&self, link: Link, form: &Form, head: Parts) -> Response<BytesBody> {
        match link {
            Link::Confirmation(confirmation) if form.value("confirm") == Some("yes") => {
                let page = form.value("page");
                self.confirm_click(&confirmation, page, head).await
            }
            Link::Preferences(target) => match Submission::of(form, &self.0.topics) {
                Some(submission) => self.submit(target, submission, head).await,
                None => self.status(StatusCode::BAD_REQUEST),
            },
            Link::Confirmation(_) => self.status(StatusCode::BAD_REQUEST),
        }
    }

    /// Returns the person whom a link concerns.
    async fn person(&self, linked: Target) -> Person {
        let current = match self.current(&linked).await {
            Ok(None) => Current::Linked,
            Ok(Some(address)) => Current::Another(address),
            Err(_) => Current::Unknown,
        };
        Person { linked, current }
    }

    /// Returns the current address of the person who had this address. `None` if it is the same.
    async fn current(&self, linked: &Target) -> Result<Option<String>, SendError> {
        self.find_current(linked).await.map_err(|_error| {
            #[cfg(feature = "tracing")]
            tracing::warn!(target: "audience::unsubscribe", endpoint = self.0.inbox.endpoint(), error = with_causes(&*_error), "a current address could not be looked up");
            // The text of the application's error may have an address.
            "the current address could not be looked up".into()
        })
    }

    async fn find_current(&self, linked: &Target) -> Result<Option<String>, SendError> {
        // The application's table has no other spelling. A link keeps capital letters that are no ASCII.
        let old = normalized_address(&linked.address);
        let finding: Finding = match &self.0.current_address {
            Some(find) => find(old.clone()),
            None => {
                let (service, linked) = (self.clone(), linked.clone());
                Box::pin(async move { Ok(service.moved_to(&linked).await?) })
            }
        };
        // A task of its own: a panic of the application's code must not lose the opt-out.
        let finding = tokio::time::timeout(CURRENT_DEADLINE, finding);
        let found = tokio::spawn(in_current_span(finding)).await?;
        let found = found.map_err(|_| "the current address was not found in time")?;
        let current = found?.filter(|current| normalized_address(current) != old);
        Ok(current.map(|current| Target::new(&current, None).address))
    }

    async fn submit(
        &self,
        linked: Target,
        submission: Submission,
        head: Parts,
    ) -> Response<BytesBody> {
        let topics = submission.opt_outs(linked.topic.as_deref());
        let Ok(person) = self.store(&linked, &topics).await else {
            let person = self.person(linked).await;
            let shown = self.shown(&person).await;
            let page = self.page(&person, &shown, Some(PageNotice::NotSaved));
            return unavailable_with(page);
        };
        let topic = linked.topic.as_deref();
        match submission {
            Submission::OneClick => self.status(StatusCode::OK),
            Submission::LinkTopic if topic.is_some() => {
                let mut shown = self.shown(&person).await;
                if let Some(answer) = topic.and_then(|topic| shown.answers.get_mut(topic)) {
                    *answer = false;
                }
                self.page(&person, &shown, Some(PageNotice::Saved))
            }
            Submission::LinkTopic | Submission::Everything => {
                let shown = self.shown(&person).await;
                let paused = self.paused(&shown);
                self.page(&person, &paused, Some(PageNotice::Unsubscribed))
            }
            Submission::Boxes(boxes) => self.save(&person, boxes, head).await,
        }
    }

    /// Sends the opt-ins of a form whose opt-outs were stored.
    async fn save(&self, person: &Person, boxes: Boxes, head: Parts) -> Response<BytesBody> {
        if boxes.has_others {
            let shown = self.shown(person).await;
            let page = self.page(person, &shown, Some(PageNotice::NotSaved));
            return unavailable_with(page);
        }
        let opt_ins = boxes.opt_ins();
        if opt_ins.is_empty() {
            return self.saved_page(person, boxes).await;
        }
        let address = &person.linked.address;
        let opted_in = match person.current {
            Current::Linked => {
                let page = ConsentPage::Preferences;
                let consent = self.consent(address, &opt_ins, page, head);
                self.opt_in_once(address, consent, &boxes).await
            }
            // Whoever has the old mail has maybe no access to the new address, and the old one must not get mail again.
            Current::Another(_) => {
                let shown = self.shown(person).await;
                return self.page(person, &shown, Some(PageNotice::NotSubscribed));
            }
            Current::Unknown => Err(ConsentError::Unfinished),
        };
        let (notice, status) = match opted_in {
            Ok(false) => {
                let shown = self.shown(person).await;
                return self.page(person, &shown, None);
            }
            Ok(true) => {
                let is_paused = false;
                return self.saved_page(person, Boxes { is_paused, ..boxes }).await;
            }
            Err(error) => {
                let notice = error.notice();
                #[cfg(feature = "tracing")]
                error.log(
                    self.0.inbox.endpoint(),
                    notice,
                    "the opt-ins of a form failed",
                );
                (notice, error.visitor_status())
            }
        };
        // The boxes are as they were: the boxes that the visitor has checked were not saved.
        let is_out = |topic: &String| boxes.answers.get(topic) == Some(&false);
        let mut shown = self.shown(person).await;
        for (topic, answer) in &mut shown.answers {
            *answer &= !is_out(topic);
        }
        let page = self.page(person, &shown, Some(notice));
        match notice {
            PageNotice::NotSubscribed => page,
            _ => failed_with(status, page),
        }
    }

    /// Returns the page after a form was saved. A box that was checked before and still is sends nothing, so its topic
    /// may be opted out by now, and the page must not show it as checked.
    async fn saved_page(&self, person: &Person, boxes: Boxes) -> Response<BytesBody> {
        let mut shown = Shown {
            answers: boxes.answers,
            is_paused: boxes.is_paused,
            ..Shown::default()
        };
        let mut kept = boxes.shown_checked;
        kept.retain(|topic| shown.answers.get(topic) == Some(&true));
        if !kept.is_empty() {
            let now = self.shown(person).await;
            if now.is_paused || now.instead == Some(PageNotice::ReportedSpam) {
                return self.page(person, &now, None);
            }
            for topic in kept {
                // If the contact cannot be retrieved, the box stays as it was sent.
                if now.answers.get(&topic) == Some(&false) {
                    shown.answers.insert(topic, false);
                }
            }
        }
        self.page(person, &shown, Some(PageNotice::Saved))
    }

    /// Sends the opt-ins of a form to this address, which the opt-outs of the form have, too. Returns `false` and sends
    /// nothing if this form was sent before: a browser sends it again if the page is loaded again, and an opt-out may
    /// be newer by then.
    async fn opt_in_once(
        &self,
        address: &str,
        consent: Consent,
        boxes: &Boxes,
    ) -> Result<bool, ConsentError> {
        let (opt_ins, of_page) = (consent.topics.clone(), Some(consent.clone()));
        let form = PageForm::new(address, boxes.page.as_deref());
        if let Some(id) = &form.id
            && let Some(notice) = self.claim_link(id, form.token).await?
        {
            // After a double click, both have succeeded.
            return Ok(notice == PageNotice::Confirmed);
        }
        let sending = send_opt_ins(&self.0.contacts, address, &opt_ins, boxes.is_paused);
        let sending = async {
            self.begin_form(&form, consent).await?;
            Ok(sending.await?)
        };
        let opted_in = self.opt_in(address, &opt_ins, sending, of_page).await;
        self.end_form(&form, &opted_in).await;
        opted_in.map(|_| true)
    }

    /// Records the consent of a form that is held. From here on, the form may have opted in, so it stays held.
    async fn begin_form(&self, form: &PageForm, consent: Consent) -> Result<(), ConsentError> {
        self.count_form(&consent.address, form.token).await?;
        self.record_consent(consent).await?;
        if let Some(id) = &form.id {
            let extended = self.0.inbox.extend_hold(id, form.token, PAGE_INTERVAL);
            extended.await.map_err(InboxError::from)?;
        }
        form.has_begun.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Counts a form that opts in. Fails if the address has sent too many in a day: whoever has its link can make up any
    /// number of forms, and each takes a place in the store and a record of the application.
    async fn count_form(&self, address: &str, token: Token) -> Result<(), ConsentError> {
        for id in ids_of_day("form_of_day", address, FORMS_A_DAY) {
            if self.hold(&id, token, DAY).await? {
                return Ok(());
            }
        }
        Err(ConsentError::Unfinished)
    }

    /// Remembers a form that has opted in, and ends the hold of one that certainly has not.
    pub(super) async fn end_form(&self, form: &PageForm, opted_in: &Result<Contact, ConsentError>) {
        let (Some(id), inbox) = (&form.id, &self.0.inbox) else {
            return;
        };
        let maybe_opted_in = match opted_in {
            Err(error @ ConsentError::Service(_)) => error.maybe_sent(),
            _ => form.has_begun.load(Ordering::Relaxed),
        };
        match opted_in {
            Ok(_) => _ = inbox.complete_hold(id, form.token, PAGE_INTERVAL).await,
            Err(_) if maybe_opted_in => {}
            Err(_) => _ = inbox.end_hold(id, form.token).await,
        }
    }

    /// Runs `sending`, unless an opt-out waits that concerns these topics, and then lets the application record the opt-in
    /// if it is one of a page. An opt-out that comes meanwhile waits, so that its record is the later one.
    async fn opt_in(
        &self,
        address: &str,
        topics: &BTreeSet<String>,
        sending: impl Future<Output = Result<Contact, ConsentError>>,
        of_page: Option<Consent>,
    ) -> Result<Contact, ConsentError> {
        // An opt-out that waits for the first of the holds is stored under another id after as much time.
        let latest = Instant::now() + OPT_IN_PATIENCE + OPT_IN_DEADLINE;
        let mut held = Vec::new();
        let has_waited = self.hold_all(address, topics, &mut held).await;
        let end = latest.min(Instant::now() + OPT_IN_DEADLINE);
        let sending = async {
            let contact = match has_waited? {
                // A future is polled before its timeout.
                _ if Instant::now() >= end => return Err(ConsentError::Unfinished),
                true => self.opted_in(address, topics).await?,
                false => sending.await?,
            };
            // Somebody else opted the contact out of everything meanwhile, or the page did not know it.
            match contact.unsubscribed {
                true => Err(ConsentError::OptedOut),
                false => Ok(contact),
            }
        };
        let sent = match tokio::time::timeout_at(end, sending).await {
            Err(_) => Err(ConsentError::Unfinished),
            Ok(Err(ConsentError::Service(mut error))) => {
                error.set_part_of_opt_in();
                Err(error.into())
            }
            Ok(sent) => sent,
        };
        let result = match (sent, of_page) {
            // Outside of the timeout above: the function would run on after it, and after a newer opt-out.
            (Ok(contact), Some(consent)) => {
                let recorded = self.record_opt_in(consent, end).await;
                recorded.map(|()| contact)
            }
            (sent, _) => sent,
        };
        if result.is_ok() {
            // If the store fails, the bounce stays.
            self.forget_bounce(address).await.ok();
        }
        for (id, token) in held {
            self.0.inbox.end_hold(&id, token).await;
        }
        result
    }

    /// Returns the contact if another opt-in, for which this one waited, has done the same. It sends nothing: a newer
    /// opt-out may have been sent meanwhile.
    async fn opted_in(
        &self,
        address: &str,
        topics: &BTreeSet<String>,
    ) -> Result<Contact, ConsentError> {
        let found = self.0.contacts.find(address).await?;
        let is_in = |contact: &Contact| {
            let mut topics = topics.iter();
            topics.all(|topic| contact.reachability_for(topic).is_reachable())
        };
        found.filter(is_in).ok_or(ConsentError::Unfinished)
    }

    /// Holds the ids of all opt-outs that concern these topics. Returns whether it had to wait for another opt-in. Fails
    /// if one of the opt-outs waits: there may be a newer one, which needs no entry of its own.
    async fn hold_all(
        &self,
        address: &str,
        topics: &BTreeSet<String>,
        held: &mut Vec<(EventId, Token)>,
    ) -> Result<bool, ConsentError> {
        let names = topics.iter().map(|topic| Some(topic.as_str()));
        let ids = names.chain([None]);
        let ids = ids.map(|topic| {
            let [id, others @ ..] = OptOut::ids(address, topic);
            (id, others)
        });
        let (ids, others): (Vec<_>, Vec<_>) = ids.unzip();
        let mut other_ids = others.concat();
        other_ids.push(OptOut::id_of_new_contact(address));
        let end = Instant::now() + OPT_IN_PATIENCE;
        let mut has_waited = false;
        for id in ids {
            loop {
                let token = self.0.inbox.hold_own(&id).await;
                if let Some(token) = token.map_err(InboxError::from)? {
                    held.push((id, token));
                    break;
                }
                if self.has_any(slice::from_ref(&id)).await? {
                    return Err(ConsentError::OptedOut);
                }
                if Instant::now() >= end {
                    return Err(ConsentError::Unfinished);
                }
                has_waited = true;
                tokio::time::sleep(POLL).await;
            }
        }
        match self.has_any(&other_ids).await? {
            true => Err(ConsentError::OptedOut),
            false => Ok(has_waited),
        }
    }

    /// Stores the opt-outs from these topics, of which `None` is everything, for both addresses of a person. Returns the
    /// person when each is stored, or waits already.
    ///
    /// The current address is looked up when those of the address in the link are stored: a change of the address is noted
    /// before it looks for opt-outs that wait. So either this finds the new address, or the change finds the opt-out.
    async fn store(&self, linked: &Target, topics: &[Option<&str>]) -> Result<Person, StoreError> {
        for topic in topics {
            self.store_of(OptOut::new(&linked.address, *topic)).await?;
        }
        let person = self.person(linked.clone()).await;
        for topic in topics {
            self.store_for_current(&person, *topic).await?;
        }
        Ok(person)
    }

    async fn store_for_current(
        &self,
        person: &Person,
        topic: Option<&str>,
    ) -> Result<(), StoreError> {
        let linked = &person.linked.address;
        match &person.current {
            Current::Linked => Ok(()),
            Current::Another(current) => self.store_of(OptOut::of_current(current, topic)).await,
            Current::Unknown => {
                let (kind, linked_on) = match self.0.current_address {
                    Some(_) => (Kind::CurrentAddress, None),
                    None => (Kind::MovedAddress, person.linked.made_on),
                };
                let opt_out = OptOut {
                    kind,
                    linked_on,
                    ..OptOut::new(linked, topic)
                };
                // The links of two days may concern two persons.
                let day = linked_on.map_or_else(String::new, |day| day.to_string());
                let id = OptOut::id(&format!("current{day}"), linked, topic);
                // Nobody holds this id.
                self.store_under(&id, &opt_out).await.map(drop)
            }
        }
    }

    /// Opts out the current address of a person who reported mail to an earlier one as spam. The service has opted out
    /// the earlier one by itself.
    pub(super) async fn follow_spam_report(
        &self,
        address: &str,
        event: &Event,
    ) -> Result<(), InboxError> {
        let person = self.person(Target::new(address, None)).await;
        if let Current::Another(current) = &person.current
            && self.is_before_opt_in(current, event).await?
        {
            return Ok(());
        }
        // An id would stay held if the caller's future were dropped.
        let service = self.clone();
        let stored = async move { service.store_for_current(&person, None).await };
        self.store_in_task(stored).await
    }

    /// Stores the opt-out of the current address, which could not be looked up when the opt-out was acknowledged.
    async fn store_of_current(&self, opt_out: OptOut, made_at: Timestamp) -> Result<(), SendError> {
        // Completing the event without that function would lose the opt-out.
        if matches!(opt_out.kind, Kind::CurrentAddress) && self.0.current_address.is_none() {
            return Err("this process has no function `current_address`".into());
        }
        let linked = Target {
            made_on: opt_out.linked_on,
            ..Target::new(&opt_out.address, None)
        };
        if let Some(current) = self.current(&linked).await? {
            let topic = opt_out.topic.as_deref();
            let opt_out = OptOut {
                made_at: Some(made_at),
                ..OptOut::of_current(&current, topic)
            };
            self.store_of(opt_out).await?;
        }
        Ok(())
    }

    /// Stores an opt-out, unless it waits already.
    pub(super) async fn store_of(&self, opt_out: OptOut) -> Result<(), StoreError> {
        let [id, spare_id, id_of_new_address] =
            OptOut::ids(&opt_out.address, opt_out.topic.as_deref());
        let is_of_new_address = matches!(opt_out.kind, Kind::NewAddress);
        let other_id = match is_of_new_address {
            true => id_of_new_address,
            false => spare_id,
        };
        let end = Instant::now() + OPT_IN_PATIENCE + OPT_IN_DEADLINE;
        // An opt-in holds the first id. It takes less time, and the opt-out must come after it. If the id is held for
        // longer, the process that sends the opt-in has died. Nobody holds the other ids.
        while Instant::now() < end {
            let is_stored = match is_of_new_address {
                true => self.store_beside(&id, &other_id, &opt_out).await?,
                false => self.store_under(&id, &opt_out).await?,
            };
            if is_stored {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        self.store_under(&other_id, &opt_out).await.map(drop)
    }

    /// Stores an opt-out under `own_id` while no opt-in can hold `id`. Returns `false` if one holds it.
    async fn store_beside(
        &self,
        id: &EventId,
        own_id: &EventId,
        opt_out: &OptOut,
    ) -> Result<bool, StoreError> {
        let inbox = &self.0.inbox;
        if let Some(token) = inbox.hold_own(id).await? {
            let stored = self.store_under(own_id, opt_out).await;
            inbox.end_hold(id, token).await;
            return stored.map(|_| true);
        }
        if !inbox.has_own(id).await? {
            return Ok(false);
        }
        self.store_under(own_id, opt_out).await?;
        // If the opt-out that waited ended before that, an opt-in may have begun that has not seen this one.
        inbox.has_own(id).await
    }

    /// Stores an opt-out under this id, unless it waits already. Returns `false` if the id is held.
    async fn store_under(&self, id: &EventId, opt_out: &OptOut) -> Result<bool, StoreError> {
        self.0.inbox.store_own(id, &opt_out.envelope(id)).await
    }

    /// Returns what the page shows: what the service has, and what was acknowledged and is not sent yet.
    async fn shown(&self, person: &Person) -> Shown {
        let address = &person.linked.address;
        match person.current {
            Current::Linked => {}
            Current::Another(_) => return Shown::without_boxes(PageNotice::EarlierAddress),
            Current::Unknown => return Shown::without_boxes(PageNotice::NotShown),
        }
        let retrieved = self.retrieved(address).await;
        let corrected = self.with_pending(address, &retrieved);
        let corrected = tokio::time::timeout(LOOK_DEADLINE, corrected).await;
        // If the store fails, the page shows what the service has.
        corrected
            .ok()
            .and_then(Result::ok)
            .flatten()
            .unwrap_or(retrieved)
    }

    /// Returns what the page shows instead, if an opt-out waits.
    async fn with_pending(
        &self,
        address: &str,
        retrieved: &Shown,
    ) -> Result<Option<Shown>, InboxError> {
        if self.pending().await? == 0 || retrieved.instead == Some(PageNotice::ReportedSpam) {
            return Ok(None);
        }
        if self.waits_for_any(&OptOut::ids_of_all(address)).await? {
            return Ok(Some(self.paused(retrieved)));
        }
        let mut shown = retrieved.clone();
        for (topic, answer) in shown.answers.iter_mut().filter(|(_, answer)| **answer) {
            *answer = !self
                .waits_for_any(&OptOut::ids(address, Some(topic)))
                .await?;
        }
        Ok(Some(shown))
    }

    async fn retrieved(&self, address: &str) -> Shown {
        let find = self.0.contacts.find(address);
        let find = find.timeout(RETRIEVE_TIMEOUT).deadline(RETRIEVE_DEADLINE);
        let contact = match find.await {
            Ok(Some(contact)) if contact.shows_topics() => contact,
            Ok(None) => return self.boxes(|topic| Some(topic.default_answer)),
            // The page must not guess: the next form would take a guess for an answer.
            Ok(_) | Err(_) => return Shown::without_boxes(PageNotice::NotShown),
        };
        if contact.has_reported_spam() {
            return Shown::without_boxes(PageNotice::ReportedSpam);
        }
        // The service shows an answer for each topic that it has.
        let answer = |topic: &OfferedTopic| contact.topics.get(&topic.name).copied();
        Shown {
            is_paused: contact.unsubscribed,
            ..self.boxes(|topic| answer(topic).map(|answer| answer && !contact.unsubscribed))
        }
    }

    /// Shows a box for each offered topic that has an answer.
    fn boxes(&self, answer: impl Fn(&OfferedTopic) -> Option<bool>) -> Shown {
        let topics = self.0.topics.iter();
        let answers = topics.filter_map(|topic| Some((topic.name.clone(), answer(topic)?)));
        Shown {
            answers: answers.collect(),
            ..Shown::default()
        }
    }

    /// Shows an opt-out of everything that the service may not have yet. If the contact could not be retrieved, each offered
    /// topic has a box: none is checked, so the next form takes no guess for an answer.
    fn paused(&self, retrieved: &Shown) -> Shown {
        let mut shown = match retrieved.instead {
            Some(PageNotice::NotShown) => self.boxes(|_| Some(false)),
            _ => retrieved.clone(),
        };
        shown
            .answers
            .values_mut()
            .for_each(|answer| *answer = false);
        Shown {
            is_paused: true,
            ..shown
        }
    }

    fn page(
        &self,
        person: &Person,
        shown: &Shown,
        notice: Option<PageNotice>,
    ) -> Response<BytesBody> {
        let notice = match notice {
            None if shown.instead.is_some() => shown.instead,
            None if shown.is_paused => Some(PageNotice::Unsubscribed),
            notice => notice,
        };
        let has_boxes = matches!(person.current, Current::Linked);
        let topics = self.0.topics.iter().filter(|_| has_boxes);
        let topics = topics.filter_map(|topic| {
            let is_checked = *shown.answers.get(&topic.name)?;
            Some(ShownTopic {
                name: &topic.name,
                label: &topic.label,
                description: &topic.description,
                is_checked,
            })
        });
        let link_topic = person.linked.topic.as_deref();
        let link_topic = link_topic.and_then(|topic| self.offered(topic));
        let page = PreferencePage {
            address: masked(&person.linked.address),
            topics: topics.collect(),
            link_topic: link_topic.map(|topic| topic.label.as_str()),
            is_paused: shown.is_paused,
            ..self.empty_page(notice)
        };
        self.html(StatusCode::OK, &page)
    }

    fn invalid_link(&self) -> Response<BytesBody> {
        let page = self.empty_page(Some(PageNotice::InvalidLink));
        self.html(StatusCode::NOT_FOUND, &page)
    }

    pub(super) fn empty_page(&self, notice: Option<PageNotice>) -> PreferencePage<'_> {
        PreferencePage {
            notice,
            number: fastrand::u64(..),
            ..PreferencePage::new(&self.0.texts, "")
        }
    }

    pub(super) fn offered(&self, topic: &str) -> Option<&OfferedTopic> {
        self.0.topics.iter().find(|offered| offered.name == topic)
    }

    pub(super) fn html(
        &self,
        status: StatusCode,
        page: &PreferencePage<'_>,
    ) -> Response<BytesBody> {
        let html = match &self.0.template {
            None => page.to_html(),
            Some(template) => template(page),
        };
        let mut response = Response::new(BytesBody::default());
        *response.status_mut() = status;
        harden(&mut response, &html, self.0.template.is_some());
        let html_type = HeaderValue::from_static("text/html; charset=utf-8");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, html_type);
        *response.body_mut() = BytesBody::from(Bytes::from(html));
        response
    }

    /// Returns a response without a body.
    fn status(&self, status: StatusCode) -> Response<BytesBody> {
        let mut response = Response::new(BytesBody::default());
        *response.status_mut() = status;
        harden(&mut response, "", false);
        response
    }
}

impl fmt::Debug for UnsubscribeService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnsubscribeService")
            .field("links", &self.0.links)
            .field("topics", &self.0.topics)
            .finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for UnsubscribeService
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Response = Response<BytesBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let is_head = request.method() == Method::HEAD;
            let mut response = service.respond(request).await;
            if is_head {
                *response.body_mut() = BytesBody::default();
            }
            Ok(response)
        })
    }
}

/// Builds an [`UnsubscribeService`].
#[must_use = "a builder does nothing until it is built"]
pub struct UnsubscribeServiceBuilder(Shared);

impl UnsubscribeServiceBuilder {
    /// Adds a topic to the preference page. Default: none, so that the page has only a button that opts out of
    /// everything.
    ///
    /// The service must have a topic of this name. If it does not, a "no" to the topic opts out of everything, so that it
    /// is not lost, and with the feature `tracing`, an ERROR is logged.
    ///
    /// # Example: two topics
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # let contacts = audience::mock::MockServer::start().await.client().contacts();
    /// # let links = audience::unsubscribe::UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://a.example/")?;
    /// use audience::unsubscribe::{OfferedTopic, UnsubscribeService};
    ///
    /// let service = UnsubscribeService::builder(links, contacts, MemoryStore::new())
    ///     .topic(OfferedTopic::new("news", "Newsletter").description("Once a month").default_answer(true))
    ///     .topic(OfferedTopic::new("offers", "Offers"))
    ///     .build();
    /// # let _ = service;
    /// # Ok(()) }
    /// ```
    pub fn topic(mut self, topic: OfferedTopic) -> Self {
        self.0.topics.push(topic);
        self
    }

    /// Sets the texts of the page. Default: English.
    ///
    /// For several languages, see [`translation`](UnsubscribeService::translation).
    pub fn texts(mut self, texts: PageTexts) -> Self {
        self.0.texts = texts;
        self
    }

    /// Sets a function that makes the HTML of each page. Default: a page without pictures that follows the color scheme
    /// of the visitor's system.
    ///
    /// The `Content-Security-Policy` of the response allows the style elements in the HTML, style sheets and images of
    /// the same origin, and no scripts.
    pub fn template(
        mut self,
        template: impl Fn(&PreferencePage<'_>) -> String + Send + Sync + 'static,
    ) -> Self {
        self.0.template = Some(Arc::new(template));
        self
    }

    /// Sets a function that returns the current address of somebody who may have had another one before. Default: the
    /// store knows the changes that [`change_address`](UnsubscribeService::change_address) has made. Set it if another
    /// program changes the addresses, such as a sync of your table of users. The store is then not asked.
    ///
    /// A link names the address of its mail for [two years](UnsubscribeLinks::valid_for). The function gets this
    /// address, trimmed and in lower case. It returns the address that the person has now, or `None` if that is the
    /// same. It must return the newest address, also after several changes. If somebody else takes over an old address,
    /// return `None` for it from then on: otherwise, a click of the new owner also opts out the earlier one. Write a
    /// new address where the function finds it before you change it at the service.
    ///
    /// - An opt-out is recorded for both addresses, and both are stored before it is acknowledged. A spam report about
    ///   mail to an old address opts out the current one, too, if you call
    ///   [`record_bounce`](UnsubscribeService::record_bounce).
    /// - The page has no boxes, and opts nobody in: whoever has the old mail may be another person by now.
    /// - The service waits up to 2 s. If the function fails, panics or takes longer, the opt-out is acknowledged, too:
    ///   the [worker](UnsubscribeService::worker) calls the function until it succeeds, and then stores the opt-out of
    ///   the current address. The page has no boxes meanwhile.
    ///
    /// Until the worker has succeeded, [`may_send`](UnsubscribeService::may_send),
    /// [`has_pending`](UnsubscribeService::has_pending) and [`subscribe`](UnsubscribeService::subscribe) cannot know of
    /// that opt-out of the current address. So read the function's table from the database that has the store.
    ///
    /// Set the same function in each process. The worker of one without it keeps retrying what a worker with the function
    /// has to do.
    ///
    /// # Example: a table of earlier addresses
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let contacts = audience::mock::MockServer::start().await.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://a.example/")?;
    /// # #[derive(Clone)] struct Pool;
    /// # impl Pool { async fn query(&self, _sql: &str, _old: &str) -> std::io::Result<Option<String>> { Ok(None) } }
    /// # let db = Pool;
    /// let service = UnsubscribeService::builder(links, contacts, MemoryStore::new())
    ///     .current_address(move |old| {
    ///         let db = db.clone();
    ///         let find = "SELECT email FROM users JOIN old_addresses ON id = user_id
    ///             WHERE old_addresses.address_key = $1 AND NOT EXISTS (SELECT 1 FROM users WHERE address_key = $1)";
    ///         async move { db.query(find, &old).await }
    ///     })
    ///     .build();
    /// # let _ = service;
    /// # Ok(()) }
    /// ```
    pub fn current_address<F, Fut, E>(mut self, find: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<String>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let find = Arc::new(find);
        self.0.current_address = Some(Arc::new(move |address| {
            let find = Arc::clone(&find);
            Box::pin(async move { find(address).await.map_err(Into::into) })
        }));
        self
    }

    /// Sets a function that records a [`Consent`]. It is called when somebody clicks on the button of a [confirmation
    /// mail](UnsubscribeService::send_confirmation), or checks boxes on the preference page, **before** the opt-in is
    /// sent. So nobody is subscribed without a record. The value in its `Ok`, such as a count of rows, is not used.
    /// Default: none.
    ///
    /// It has 2 s, because an opt-out that arrives meanwhile waits. If it fails, takes longer or panics, nothing is sent,
    /// and the visitor reads to try again. A record says that the person agreed at this time, and not that the service
    /// has the opt-in ([`record_opt_in`](Self::record_opt_in)): if an opt-in fails, the visitor clicks again, and there are
    /// two records. For one address, there are [at most 50 in a day](UnsubscribeService#flooding).
    ///
    /// **Send no request to the service in it**: a new address is no contact yet, and a slow service would use up the
    /// 2 s.
    ///
    /// With the feature `tracing`, its error is in the log, without the rows that Postgres quotes.
    ///
    /// # Example: a record of the consent
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let contacts = audience::mock::MockServer::start().await.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://a.example/")?;
    /// # #[derive(Clone)] struct Pool;
    /// # impl Pool { async fn execute(&self, _sql: &str, _address: &str, _topics: &str) -> std::io::Result<u64> { Ok(1) } }
    /// # let db = Pool;
    /// let service = UnsubscribeService::builder(links, contacts, MemoryStore::new())
    ///     .record_consent(move |consent| {
    ///         let db = db.clone();
    ///         let topics = Vec::from_iter(consent.topics).join(" ");
    ///         async move { db.execute("INSERT INTO consents VALUES ($1, $2, now())", &consent.address, &topics).await }
    ///     })
    ///     .build();
    /// # let _ = service;
    /// # Ok(()) }
    /// ```
    pub fn record_consent<F, Fut, T, E>(mut self, function: F) -> Self
    where
        F: Fn(Consent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.0.record_consent = Some(record_by(function));
        self
    }

    /// Sets a function that records an opt-in **after** the service has it. It gets the same [`Consent`] as the function of
    /// [`record_consent`](Self::record_consent), for each opt-in of the page of a [confirmation
    /// mail](UnsubscribeService::send_confirmation) and of the preference page. Use it for the "yes" in a table of your own,
    /// which a [sync](crate::guides::keeping_in_step) may compare with the service. The contact is not opted out of
    /// everything then, whatever it was before. The value in its `Ok`, such as a count of rows, is not used. Default: none.
    ///
    /// It has 2 s, or what is left of the 5 s that an opt-in has, because the visitor waits. An opt-out that arrives
    /// meanwhile waits, too, so it is [recorded](Self::record_opt_out) later. If the function fails, takes longer or panics,
    /// the visitor reads to try again (503), although the service has the opt-in. A click on the page of this response, or on
    /// one that the link of a confirmation mail opens, sends and records it again, so **the function may be called twice
    /// for one opt-in**: let it write the same. On the preference page, the box is checked by then, and saving it again
    /// sends no opt-in and records nothing.
    ///
    /// - When its time is over, its future is dropped. A blocking closure that it has started, or a statement that waits
    ///   for a lock, may still be applied later, and overwrite a newer "no". So with Postgres, write in a transaction,
    ///   which is rolled back then, unless its commit was sent. With SQLite, set a busy timeout below 2 s:
    ///   `SqliteStoreBuilder::busy_timeout` is 5 s by default.
    /// - The record of an older opt-out can come later: compare its [`made_at`](OptOutRecord::made_at), in seconds, as
    ///   [the guide](crate::guides::keeping_in_step#with-the-pages-of-an-unsubscribeservice) does.
    /// - If it is not called again, or if the program is killed before it has ended, your table keeps its "no". A sync that
    ///   [compares with the list](crate::guides::keeping_in_step#compare-with-the-list) then opts the person out again.
    ///
    /// After [`subscribe`](UnsubscribeService::subscribe) and [`set_topics`](UnsubscribeService::set_topics), it is not
    /// called: your program knows their result.
    ///
    /// With the feature `tracing`, its error is in the log, without the rows that Postgres quotes.
    ///
    /// # Example: the "yes" in a table of users in Postgres
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// use audience::inbox::deadpool_postgres::Pool;
    /// use audience::unsubscribe::{Consent, UnsubscribeServiceBuilder};
    ///
    /// async fn save(pool: Pool, consent: Consent) -> Result<(), Box<dyn Error + Send + Sync>> {
    ///     let mut connection = pool.get().await?;
    ///     let transaction = connection.transaction().await?;
    ///     // `address_key` is `normalized_address` of the email.
    ///     let update = "UPDATE users SET newsletter = true, updated_at = date_trunc('second', now())
    ///         WHERE address_key = $1";
    ///     transaction.execute(update, &[&consent.address]).await?;
    ///     Ok(transaction.commit().await?)
    /// }
    ///
    /// fn record(builder: UnsubscribeServiceBuilder, pool: Pool) -> UnsubscribeServiceBuilder {
    ///     builder.record_opt_in(move |consent| save(pool.clone(), consent))
    /// }
    /// # let _ = record;
    /// ```
    pub fn record_opt_in<F, Fut, T, E>(mut self, function: F) -> Self
    where
        F: Fn(Consent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.0.record_opt_in = Some(record_by(function));
        self
    }

    /// Sets a function that records an opt-out. The [worker](UnsubscribeService::worker) calls it for each opt-out from a
    /// link, the form of the page, [`opt_out`](UnsubscribeService::opt_out),
    /// [`set_topics`](UnsubscribeService::set_topics) or [`record_bounce`](UnsubscribeService::record_bounce), **after** the
    /// service has the opt-out. So an error of your database keeps no opt-out from being sent. If the address is no
    /// contact, it is called, too. The value in its `Ok`, such as a count of rows, is not used. Default: none.
    ///
    /// The worker calls it up to 8 times simultaneously, or as often as its
    /// [`concurrency`](crate::inbox::Worker::concurrency) says, while it sends as many other opt-outs.
    ///
    /// It has 2 s. If it fails, takes longer or panics, the worker calls it again: after 5 s, then after twice as long each
    /// time, up to 5 minutes. The opt-out is not sent again, and is no longer [pending](UnsubscribeService::pending), so
    /// the person can opt in meanwhile. The function is called at least once, also if the program is killed in between. It
    /// may be called again with the same record: make the address, the topic and the time the primary key. With
    /// Postgres, write in a transaction, and with SQLite, set a busy timeout below 2 s, as for
    /// [`record_opt_in`](Self::record_opt_in).
    ///
    /// Until it has succeeded, the record is in the store of the opt-outs, with the [endpoint](Self::endpoint)
    /// `unsubscribe-records`. If the store fails, the worker calls the function immediately. If both fail, or the program is
    /// killed before the record is stored, the opt-out is sent again.
    ///
    /// - If somebody clicks again while an opt-out waits, there is one record, with the time of the first click. After
    ///   that, a further click makes a further record.
    /// - If the person has another [current address](Self::current_address), there is a record for each of the two.
    /// - The opt-outs that an opt-in sends for topics that were not chosen are not recorded. Neither are those that the
    ///   service gets in another way, such as by the link of a broadcast.
    ///
    /// Set the same function in each process that runs the worker.
    ///
    /// With the feature `tracing`, its error is in the log, without the rows that Postgres quotes, and once a minute at
    /// most.
    ///
    /// # Example: a record of the opt-outs
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use audience::inbox::MemoryStore;
    /// # use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let links = UnsubscribeLinks::new(["S3cr3t-0f-32-bytes-0r-m0re-1815!"], "https://a.example/")?;
    /// # #[derive(Clone)] struct Pool;
    /// # impl Pool { async fn execute(&self, _sql: &str, _values: (&str, &str, i64)) -> std::io::Result<u64> { Ok(1) } }
    /// # let db = Pool;
    /// let service = UnsubscribeService::builder(links, contacts, MemoryStore::new())
    ///     .record_opt_out(move |opt_out| {
    ///         let db = db.clone();
    ///         async move {
    ///             let topic = opt_out.topic.unwrap_or_default(); // empty for everything
    ///             let values = (&*opt_out.address, &*topic, opt_out.made_at.as_unix());
    ///             let insert = "INSERT INTO opt_outs VALUES ($1, $2, to_timestamp($3::bigint)) ON CONFLICT DO NOTHING";
    ///             db.execute(insert, values).await
    ///         }
    ///     })
    ///     .build();
    /// # service.opt_out("ada@example.com", None).await?;
    /// # assert_eq!(service.worker().run_until_idle().await?.handled, 2);
    /// # Ok(()) }
    /// ```
    pub fn record_opt_out<F, Fut, T, E>(mut self, function: F) -> Self
    where
        F: Fn(OptOutRecord) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.0.record_opt_out = Some(record_by(function));
        self
    }

    /// Sets the name under which the store has all data of this service. Default: `unsubscribe`.
    ///
    /// So one store can be for several accounts of the service. Give each account a name, and run the
    /// [worker](UnsubscribeService::worker) of each: the opt-outs, the bounces, the issues and whatever else its service
    /// remembers are its own. Also give the [links](UnsubscribeLinks) of each a secret and a base URL of their own.
    ///
    /// - Opt-outs that your program still has to [record](Self::record_opt_out) have this name with `-records` behind
    ///   it, and changes of addresses with `-moves`.
    /// - **No webhook inbox in the store may have one of these names**: its worker would take the opt-outs, and nobody
    ///   would send them.
    /// - All processes of an account set the same name. With another one, a service finds nothing of what was stored
    ///   before, and does not send the opt-outs that wait.
    /// - A [translation](UnsubscribeService::translation) has the name of its service. Do not set it there.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the name is not 1 to 247 bytes of text without control characters, or ends with
    /// `-records` or `-moves`.
    ///
    /// # Example: two accounts in one store
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use audience::inbox::MemoryStore;
    /// use audience::unsubscribe::{UnsubscribeLinks, UnsubscribeService};
    ///
    /// # let server = audience::mock::MockServer::start().await;
    /// # let (books, toys) = (server.client(), server.client());
    /// # let secrets = ["S3cr3t-0f-32-bytes-0r-m0re-1815!", "S3cr3t-0f-32-bytes-0r-m0re-1816!"];
    /// let store = MemoryStore::new();
    /// let mut services = Vec::new();
    /// for (account, client, secret) in [("books", books, secrets[0]), ("toys", toys, secrets[1])] {
    ///     let links = UnsubscribeLinks::new([secret], format!("https://shop.example.com/{account}/unsubscribe"))?;
    ///     let service = UnsubscribeService::builder(links, client.contacts(), store.clone());
    ///     services.push(service.endpoint(format!("{account}-unsubscribe"))?.build());
    /// }
    ///
    /// services[0].opt_out("ada@example.com", None).await?;
    /// assert_eq!(services[0].pending().await?, 1);
    /// assert_eq!(services[1].pending().await?, 0);
    /// # Ok(()) }
    /// ```
    pub fn endpoint(mut self, name: impl Into<String>) -> Result<Self, ConfigError> {
        let name = name.into();
        let is_taken = name.ends_with(OF_RECORDS) || name.ends_with(OF_MOVES);
        if is_taken || name.is_empty() || !is_endpoint(&format!("{name}{OF_RECORDS}")) {
            return Err(ConfigError::new(
                "the endpoint of an unsubscribe service must be 1 to 247 bytes of text without control characters, and not end with `-records` or `-moves`",
            ));
        }
        self.0.inbox = self.0.inbox.with_endpoint(&name, NOT_SENT_YET);
        self.0.records = records_of(&self.0.inbox);
        self.0.moves = moves_of(&self.0.inbox);
        Ok(self)
    }

    /// Builds the service.
    #[must_use]
    pub fn build(self) -> UnsubscribeService {
        UnsubscribeService(Arc::new(self.0))
    }
}

/// Returns the inbox of the opt-outs that were sent and are not recorded yet.
fn records_of(inbox: &Inbox) -> Inbox {
    let endpoint = format!("{}{OF_RECORDS}", inbox.endpoint());
    inbox.with_endpoint(&endpoint, NOT_RECORDED_YET)
}

/// Returns the inbox that keeps the changes of addresses. It has no worker.
fn moves_of(inbox: &Inbox) -> Inbox {
    inbox.with_endpoint(&format!("{}{OF_MOVES}", inbox.endpoint()), "")
}

impl fmt::Debug for UnsubscribeServiceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnsubscribeServiceBuilder")
            .field("links", &self.0.links)
            .field("topics", &self.0.topics)
            .finish_non_exhaustive()
    }
}

/// The form of one page. It opts in once: a browser sends it again if the page is loaded again, and an opt-out may be
/// newer by then. The page of an error is another form.
pub(super) struct PageForm {
    /// The id under which it is held. `None` if the page has no number.
    pub(super) id: Option<EventId>,
    pub(super) token: Token,
    /// Whether it may have opted in.
    has_begun: AtomicBool,
}

impl PageForm {
    /// `key` is the address, or the number of the link.
    pub(super) fn new(key: &str, page: Option<&str>) -> Self {
        Self {
            id: page.map(|page| OptOut::id("page", key, Some(page))),
            token: Token::random(),
            has_begun: AtomicBool::new(false),
        }
    }
}

/// The content of a link.
enum Link {
    /// One in the mail of a double opt-in.
    Confirmation(Confirmation),
    Preferences(Target),
}

impl Link {
    fn open(token: &str, links: &UnsubscribeLinks) -> Option<Self> {
        let confirmation = links.open_confirmation(token).map(Self::Confirmation);
        confirmation.or_else(|| links.open(token).map(Self::Preferences))
    }
}

/// The person whom a link concerns.
struct Person {
    /// The content of the link.
    linked: Target,
    current: Current,
}

/// The address that a person has now.
enum Current {
    /// The address in the link.
    Linked,
    Another(String),
    /// It could not be looked up.
    Unknown,
}

/// The part of a contact that the page shows.
#[derive(Clone, Default)]
struct Shown {
    /// The boxes. An offered topic without an answer has none.
    answers: BTreeMap<String, bool>,
    is_paused: bool,
    /// Why there are no boxes.
    instead: Option<PageNotice>,
}

impl Shown {
    fn without_boxes(notice: PageNotice) -> Self {
        Self {
            instead: Some(notice),
            ..Self::default()
        }
    }
}

/// The error of [`UnsubscribeService::send_confirmation`], [`subscribe`](UnsubscribeService::subscribe),
/// [`may_send`](UnsubscribeService::may_send), [`change_address`](UnsubscribeService::change_address) and the mails of
/// an [issue](UnsubscribeService::send_issue).
///
/// # Example: what the page says after a click
///
/// ```
/// use audience::StatusCode;
/// use audience::unsubscribe::ConsentError;
///
/// fn text(error: &ConsentError) -> &'static str {
///     match error {
///         ConsentError::OptedOut => "An opt-out of yours comes first. Please try again in a few minutes.",
///         ConsentError::Service(error) if error.is_complaint_locked() => "You reported our mail as spam.",
///         _ if error.visitor_status() == StatusCode::SERVICE_UNAVAILABLE => "That did not work. Please try again.",
///         _ => "Something is wrong on our side. Please try again tomorrow.",
///     }
/// }
/// # assert!(text(&ConsentError::OptedOut).contains("comes first"));
/// # assert!(text(&ConsentError::UnknownTopic).contains("wrong on our side"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsentError {
    /// An opt-out of the address is stored and not sent yet, or is newer than the opt-in. It has precedence. The opt-in
    /// may succeed after another click, when the worker has sent the opt-out.
    #[error("an opt-out of the address waits or is newer; subscribe after another click")]
    OptedOut,
    /// The requests took too long, and some of them may have been applied. Or another opt-in of the address has not
    /// ended. The opt-in may succeed after another click.
    #[error(
        "this opt-in, or another one of the address, did not end in time; subscribe after another click"
    )]
    Unfinished,
    /// A request failed. Requests before it were applied. Or
    /// [`change_address`](UnsubscribeService::change_address) found an opt-out that waits.
    #[error(transparent)]
    Service(#[from] Error),
    /// The store of the opt-outs failed, so nothing was sent.
    #[error(transparent)]
    Store(#[from] InboxError),
    /// No topic was chosen for a [confirmation mail](UnsubscribeService::send_confirmation), or a form of
    /// [`set_topics`](UnsubscribeService::set_topics) has a topic that the page does not offer
    /// ([`UnsubscribeServiceBuilder::topic`]).
    #[error("no topic was chosen, or one that was not given to `topic` of the builder")]
    NoTopic,
    /// The service refused a [confirmation mail](UnsubscribeService::send_confirmation) with 400, 413 or 422, for example
    /// because of its recipient. Strangers must not learn that, so respond as if it was sent.
    #[error(transparent)]
    RefusedMail(Error),
    /// The contact has no such topic, because your program has misspelled its name.
    #[error("the contact has no such topic: check its name")]
    UnknownTopic,
}

impl ConsentError {
    /// Returns the status of your own response to the visitor who clicked.
    ///
    /// | status | if |
    /// |---|---|
    /// | 200 | the service refused a confirmation mail, which strangers must not learn: [`RefusedMail`](Self::RefusedMail) |
    /// | 409 | the contact reported spam: [`Error::is_complaint_locked`]. The pages of [`UnsubscribeService`] say it with a 200 |
    /// | 422 | no topic was chosen, or one that is not offered: [`NoTopic`](Self::NoTopic) |
    /// | 422 | the visitor has to correct the address, or to shorten a name or a property: [`Service`](Self::Service) with [`ErrorKind::Input`], whose text says which |
    /// | 500 | your program has misspelled a topic: [`UnknownTopic`](Self::UnknownTopic) |
    /// | 503 | another click may succeed later: [`OptedOut`](Self::OptedOut), [`Unfinished`](Self::Unfinished), [`Store`](Self::Store) |
    /// | 500 | the store is set up wrongly, for example without its tables: [`Store`](Self::Store) |
    /// | the status of [`Error::visitor_status`] | any other [`Service`](Self::Service) |
    ///
    /// # Example: a text for each status
    ///
    /// ```
    /// use audience::StatusCode;
    /// use audience::unsubscribe::ConsentError;
    ///
    /// fn text(error: &ConsentError) -> &'static str {
    ///     match error.visitor_status() {
    ///         StatusCode::OK => "Thank you. Please open the link in our mail.",
    ///         StatusCode::CONFLICT => "You reported our mail as spam.",
    ///         StatusCode::UNPROCESSABLE_ENTITY => "We cannot write to this address.",
    ///         StatusCode::SERVICE_UNAVAILABLE => "That did not work. Please try again in a few minutes.",
    ///         _ => "Something is wrong on our side. Please try again tomorrow.",
    ///     }
    /// }
    /// # assert!(text(&ConsentError::OptedOut).contains("try again"));
    /// # assert!(text(&ConsentError::UnknownTopic).contains("wrong on our side"));
    /// ```
    #[must_use]
    pub fn visitor_status(&self) -> StatusCode {
        match self {
            Self::Service(error) => error.visitor_status(),
            Self::RefusedMail(_) => StatusCode::OK,
            Self::NoTopic => StatusCode::UNPROCESSABLE_ENTITY,
            Self::UnknownTopic => StatusCode::INTERNAL_SERVER_ERROR,
            Self::OptedOut | Self::Unfinished => StatusCode::SERVICE_UNAVAILABLE,
            Self::Store(error) => {
                crate::visitor_status(error).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// See [`explanation`](crate::explanation()). It never tells a person to repeat an opt-in without asking again.
    pub(crate) fn explanation(&self) -> String {
        let text = match self {
            Self::Service(error) | Self::RefusedMail(error) => return error.explanation(),
            Self::OptedOut => {
                "an opt-out of the address is newer or not sent yet, and comes first; ask the person again before you repeat an opt-in"
            }
            Self::Unfinished => {
                "the requests did not end in time, so the opt-in or the mail may have been sent or not: look at the contact; ask the person again before you repeat an opt-in"
            }
            Self::Store(error) if matches!(error, InboxError::Store(store) if store.is_temporary()) =>
            {
                return format!(
                    "{error}, so nothing was sent; try again in a few minutes, but an opt-in only after another click of the person"
                );
            }
            Self::Store(error) => {
                return format!("{error}, so nothing was sent; tell your developers");
            }
            Self::NoTopic => "no topic was chosen, or one that the page does not offer",
            Self::UnknownTopic => {
                "there is no topic with this name, because the program has misspelled it; tell your developers"
            }
        };
        text.to_owned()
    }

    fn notice(&self) -> PageNotice {
        match self {
            _ if self.may_succeed_later() => PageNotice::NotSubscribedNow,
            Self::Service(error) if error.is_not_found() || error.is_complaint_locked() => {
                PageNotice::NotSubscribed
            }
            _ => PageNotice::OurFault,
        }
    }

    /// The notice of the page of a confirmation mail, unless the contact reported spam.
    pub(super) fn notice_of_confirmation(&self) -> PageNotice {
        match self.may_succeed_later() {
            true => PageNotice::NotSaved,
            false => PageNotice::OurFault,
        }
    }

    /// Logs why a click failed, unless that depends on the visitor: whoever has a link may be no contact. It is an ERROR if
    /// each further click fails, too, until somebody has acted.
    #[cfg(feature = "tracing")]
    pub(super) fn log(&self, endpoint: &str, notice: PageNotice, message: &str) {
        let error = with_causes(self);
        match notice {
            PageNotice::NotSubscribed => {}
            PageNotice::OurFault => {
                tracing::error!(target: "audience::unsubscribe", endpoint, error, "{message}");
            }
            _ => tracing::warn!(target: "audience::unsubscribe", endpoint, error, "{message}"),
        }
    }

    fn may_succeed_later(&self) -> bool {
        self.visitor_status() == StatusCode::SERVICE_UNAVAILABLE
    }
}

/// An opt-out that the service has, for [`record_opt_out`](UnsubscribeServiceBuilder::record_opt_out). Its `Debug` form
/// shows no address.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptOutRecord {
    /// The address, trimmed and in lower case.
    pub address: String,
    /// The topic that the person opted out of. `None` means everything. If the service has no such topic, it has an
    /// opt-out of everything instead.
    pub topic: Option<String>,
    /// When the opt-out was stored, so that it could be acknowledged.
    pub made_at: Timestamp,
}

impl OptOutRecord {
    /// Creates a record, for a unit test of your own function.
    ///
    /// # Example: a record is tested alone
    ///
    /// ```
    /// use audience::Timestamp;
    /// use audience::unsubscribe::OptOutRecord;
    ///
    /// /// Returns what to write into the table.
    /// fn row_of(opt_out: &OptOutRecord) -> [String; 3] {
    ///     let topic = opt_out.topic.as_deref().unwrap_or("everything");
    ///     [opt_out.address.clone(), topic.to_owned(), opt_out.made_at.to_string()]
    /// }
    ///
    /// let opt_out = OptOutRecord::new(" Ada@example.com", Some("news"), Timestamp::from_unix(1_700_000_000));
    ///
    /// assert_eq!(row_of(&opt_out), ["ada@example.com", "news", "2023-11-14T22:13:20Z"]);
    /// ```
    #[must_use]
    pub fn new(address: impl AsRef<str>, topic: Option<&str>, made_at: Timestamp) -> Self {
        Self {
            address: normalized_address(address.as_ref()),
            topic: topic.map(str::to_owned),
            made_at,
        }
    }
}

impl fmt::Debug for OptOutRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptOutRecord")
            .field("topic", &self.topic)
            .field("made_at", &self.made_at)
            .finish_non_exhaustive()
    }
}

// What is stored, and how it is sent.

type Sending = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send>>;

/// The error of an attempt to send an opt-out. The worker stores its text, which has no address.
pub(super) type SendError = Box<dyn StdError + Send + Sync>;

/// A stored opt-out.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct OptOut {
    address: String,
    /// `None` means all broadcasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(default)]
    kind: Kind,
    /// When the person made it. `None` means when it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_at: Option<Timestamp>,
    /// The day on which the link was made, if the store has to find the current address of whoever got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    linked_on: Option<u32>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
enum Kind {
    #[default]
    Address,
    /// It concerns the current address of the person with this address, which the application's function must find first.
    CurrentAddress,
    /// The same, and the store has to find it.
    MovedAddress,
    /// It was stored before the contact was created, and is sent if the confirmation did not end.
    NewContact,
    /// The person had another address before. The contact of this one may not exist yet, because the application knows
    /// the address before it calls `change_address`.
    NewAddress,
}

/// The creation of a contact, and the hold of the opt-out that the worker sends if the process dies meanwhile.
struct Creation {
    id: EventId,
    token: Token,
    /// Whether there may be a new contact that has the defaults of all topics.
    has_defaults: bool,
}

impl Creation {
    fn of(address: &str) -> Self {
        Self {
            id: OptOut::id_of_new_contact(address),
            token: Token::random(),
            has_defaults: false,
        }
    }
}

/// Returns how long ago an event was stored.
fn age(event: &Event) -> Duration {
    let stored_at = SystemTime::try_from(event.created_at).unwrap_or(SystemTime::UNIX_EPOCH);
    SystemTime::now()
        .duration_since(stored_at)
        .unwrap_or_default()
}

/// The envelope of an event, so that a worker of an inbox reads it.
#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    r#type: &'static str,
    created_at: u64,
    data: &'a OptOut,
}

impl OptOut {
    fn new(address: &str, topic: Option<&str>) -> Self {
        Self {
            address: address.to_owned(),
            topic: topic.map(str::to_owned),
            kind: Kind::Address,
            made_at: None,
            linked_on: None,
        }
    }

    /// The opt-out of the current address of a person who had another one before.
    pub(super) fn of_current(address: &str, topic: Option<&str>) -> Self {
        Self {
            kind: Kind::NewAddress,
            ..Self::new(address, topic)
        }
    }

    /// The opt-out of a record, which has the time of the click, with its id: two opt-outs of one topic are two records.
    fn of_record(record: &OptOutRecord) -> (EventId, Self) {
        let (address, topic) = (&record.address, record.topic.as_deref());
        let made_at = record.made_at;
        let name = match topic {
            None => made_at.to_string(),
            Some(topic) => format!("{made_at}\n{topic}"),
        };
        let opt_out = Self {
            made_at: Some(made_at),
            ..Self::new(address, topic)
        };
        (Self::id("record", address, Some(&name)), opt_out)
    }

    fn record(&self, stored_at: Timestamp) -> OptOutRecord {
        let made_at = self.made_at.unwrap_or(stored_at);
        OptOutRecord::new(&self.address, self.topic.as_deref(), made_at)
    }

    /// Returns all ids under which an opt-out of a person waits: the usual one, the one if that stays held, and the one of
    /// a person who had another address before. The last has an id of its own, because the others end as soon as the
    /// worker finds no contact.
    pub(super) fn ids(address: &str, topic: Option<&str>) -> [EventId; 3] {
        ["out", "out2", "out_new"].map(|kind| Self::id(kind, address, topic))
    }

    /// Returns all ids under which an opt-out of everything waits.
    fn ids_of_all(address: &str) -> Vec<EventId> {
        let mut ids = Self::ids(address, None).to_vec();
        ids.push(Self::id_of_new_contact(address));
        ids
    }

    /// Returns the id under which the opt-out waits that is sent if a confirmation does not end.
    fn id_of_new_contact(address: &str) -> EventId {
        Self::id("new", address, None)
    }

    /// Returns an id that has no address in it. It is the same for each spelling of the address.
    pub(super) fn id(kind: &str, address: &str, topic: Option<&str>) -> EventId {
        // A path keeps capital letters that are no ASCII, and the events of the service do not.
        let address = address.to_lowercase();
        // No address has a line ending, so two pairs never have one text.
        let text = match topic {
            None => address,
            Some(topic) => format!("{address}\n{topic}"),
        };
        let hash = Sha256::digest(text.as_bytes());
        let hash = hex::encode(&hash[..16]);
        EventId::try_from(format!("{kind}_{hash}")).expect("it has letters and digits")
    }

    fn envelope(&self, id: &EventId) -> Vec<u8> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let envelope = Envelope {
            id: id.as_str(),
            r#type: EVENT_TYPE,
            created_at: since_1970.unwrap_or_default().as_secs(),
            data: self,
        };
        serde_json::to_vec(&envelope).expect("texts and a number are valid JSON")
    }

    fn of(event: Event) -> Result<Self, SendError> {
        match event.data {
            EventData::Unknown { data, .. } => Ok(serde_json::from_value(data)?),
            _ => Err("the stored event is no opt-out".into()),
        }
    }

    /// Opts out once, without retries: the worker retries. Returns `false` if there is no such contact.
    async fn send(self, service: &UnsubscribeService) -> Result<bool, SendError> {
        let contacts = &service.0.contacts;
        let result = match &self.topic {
            None => self.send_for(None, contacts).await,
            Some(topic) => match self.send_for(Some(topic), contacts).await {
                // No topic has such a name.
                Err(error) if error.kind() == ErrorKind::Input && topic.is_empty() => {
                    self.send_for_all(topic, service).await
                }
                result => result,
            },
        };
        match result {
            Ok(has_contact) => Ok(has_contact),
            // No contact has an address that cannot be sent. Any other such error comes from the settings of the client.
            Err(error) if error.kind() == ErrorKind::Input && !is_path_segment(&self.address) => {
                #[cfg(feature = "tracing")]
                tracing::error!(target: "audience::unsubscribe", endpoint = service.0.inbox.endpoint(), %error, "an opt-out can never be sent, and is dropped");
                Ok(true)
            }
            // The call has proved it: an address that is no contact gets no broadcasts.
            Err(error) if error.missing() == Some(Missing::Contact) => Ok(false),
            Err(error) if is_about_the_request(&error) => self.finish(error, service).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the contact certainly reported spam. Another opt-out of everything could replace this reason, and
    /// so end the lock after it.
    ///
    /// # Errors
    ///
    /// If a later attempt may show it. An error that stays must not keep the opt-out from being sent.
    async fn has_reported_spam(&self, contacts: &Contacts) -> Result<bool, Error> {
        let find = contacts.find(&self.address).retry(RetryPolicy::none());
        let found = find.deadline(RETRIEVE_DEADLINE).await;
        match found {
            Ok(found) => Ok(found.is_some_and(|contact| contact.has_reported_spam())),
            Err(error) if error.is_retryable() => Err(error),
            Err(error) => Ok(shows_spam_report(&error, &self.address)),
        }
    }

    /// Returns `false` if the opt-out was accepted, and there is no contact, or none that can be read.
    async fn send_for(&self, topic: Option<&str>, contacts: &Contacts) -> Result<bool, Error> {
        if topic.is_none() && self.has_reported_spam(contacts).await? {
            return Ok(true);
        }
        let call = contacts.unsubscribe(&self.address);
        let call = match (topic, self.kind) {
            (Some(topic), _) => call.topic(topic),
            // No person has asked for it.
            (None, Kind::NewContact) => call,
            (None, _) => call.reason(OptOutReason::Preferences),
        };
        let call = call.retry(RetryPolicy::none()).deadline(SEND_DEADLINE);
        call.apply().await.map(|contact| contact.is_some())
    }

    /// Opts out of all broadcasts in place of a topic that the service does not have, so that the opt-out is not lost.
    async fn send_for_all(
        &self,
        _topic: &str,
        service: &UnsubscribeService,
    ) -> Result<bool, Error> {
        #[cfg(feature = "tracing")]
        tracing::error!(target: "audience::unsubscribe", endpoint = service.0.inbox.endpoint(), topic = _topic, "the service has no such topic, so the person is opted out of everything; correct its name");
        self.send_for(None, &service.0.contacts).await
    }

    /// Finds out why an opt-out was refused: the contact or the topic may not exist. The refusal alone is no proof,
    /// because a gateway may have sent it.
    async fn finish(
        &self,
        refusal: Error,
        service: &UnsubscribeService,
    ) -> Result<bool, SendError> {
        let contacts = &service.0.contacts;
        let call = contacts.retrieve_own(&self.address);
        match call
            .retry(RetryPolicy::none())
            .deadline(SEND_DEADLINE)
            .await
        {
            Ok(contact) => match &self.topic {
                Some(topic) if !contact.has_topic(topic) => {
                    Ok(self.send_for_all(topic, service).await?)
                }
                _ => Err(refusal.into()),
            },
            Err(_) => {
                let list = contacts.list().retry(RetryPolicy::none());
                // An address that is no contact gets no broadcasts.
                match list
                    .clone()
                    .deadline(SEND_DEADLINE)
                    .has(&self.address)
                    .await?
                {
                    true => self.send_as_stored(refusal, list, contacts).await,
                    false => Ok(false),
                }
            }
        }
    }

    /// Sends the opt-out with the spelling of the address that the list has. The service may know no other one.
    async fn send_as_stored(
        &self,
        refusal: Error,
        list: ListContacts,
        contacts: &Contacts,
    ) -> Result<bool, SendError> {
        match list.deadline(SEND_DEADLINE).stored(&self.address).await? {
            Some(address) if address != self.address => {
                let stored = Self {
                    address,
                    ..self.clone()
                };
                let topic = self.topic.as_deref();
                Ok(stored.send_for(topic, contacts).await?)
            }
            _ => Err(refusal.into()),
        }
    }
}

/// Returns whether a response may mean that the contact or the topic does not exist.
fn is_about_the_request(error: &Error) -> bool {
    let status = error.status().map(|status| status.as_u16());
    matches!(status, Some(400 | 404 | 410 | 422))
}

/// Sends the opt-ins of the page, and returns the contact afterwards. Unless the page showed an opt-out of everything, it
/// sends nothing if there is one now.
async fn send_opt_ins(
    contacts: &Contacts,
    address: &str,
    topics: &BTreeSet<String>,
    ends_pause: bool,
) -> Result<Contact, Error> {
    if !ends_pause {
        // The page did not know an opt-out of everything that is found now.
        return add_opt_ins(contacts, address, topics).await;
    }
    // When the opt-out of everything ends, all topics would come back that the page showed as empty, or did not show.
    let contact = contacts.retrieve_own(address).await?;
    if !contact.is_opted_out() {
        return add_opt_ins(contacts, address, topics).await;
    }
    contact.require_topics()?;
    let others = contact.topic_names().cloned().collect();
    contacts.end_pause(address, topics, others).await
}

/// Sends these opt-ins, unless there is an opt-out of everything.
async fn add_opt_ins(
    contacts: &Contacts,
    address: &str,
    topics: &BTreeSet<String>,
) -> Result<Contact, Error> {
    let form = topics.iter().map(|topic| (topic, true));
    let form = contacts.set_topics(address, form).unless_opted_out();
    match form.await {
        Ok(saved) => Ok(saved.contact),
        Err(error) if error.form_outcome().may_be_applied() => {
            Err(error.into_error().maybe_applied())
        }
        Err(error) => Err(error.into_error()),
    }
}

// The forms.

enum Submission {
    /// One click, which a mailbox provider sends for the recipient.
    OneClick,
    /// The button for the topic of the link.
    LinkTopic,
    /// The button for everything.
    Everything,
    Boxes(Boxes),
}

/// The boxes of the form, for topics that the page offers.
struct Boxes {
    answers: BTreeMap<String, bool>,
    /// The topics whose boxes were checked on the page.
    shown_checked: BTreeSet<String>,
    is_paused: bool,
    /// The number of the page.
    page: Option<String>,
    /// Whether the form has an empty box for a topic that this process does not offer. Another one, with newer or older
    /// settings, made the page. Anybody can make up a name, so its "no" is not stored, but it must not be acknowledged.
    has_others: bool,
}

enum MediaType {
    UrlEncoded,
    Multipart { boundary: String },
}

/// The fields of a form.
struct Form(Vec<(String, String)>);

impl Form {
    async fn read<B>(head: &Parts, body: B, limit: usize) -> Result<Self, StatusCode>
    where
        B: Body,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let media_type = MediaType::of(head.headers.get(header::CONTENT_TYPE));
        let media_type = media_type.ok_or(StatusCode::UNSUPPORTED_MEDIA_TYPE)?;
        let body = read(body, limit).await?;
        let fields: Vec<(Cow<'_, str>, Cow<'_, str>)> = match media_type {
            MediaType::UrlEncoded => form_urlencoded::parse(&body).collect(),
            MediaType::Multipart { boundary } => multipart_fields(&body, &boundary),
        };
        let fields = fields.into_iter();
        let fields = fields.map(|(name, value)| (name.into_owned(), value.into_owned()));
        Ok(Self(fields.collect()))
    }

    fn value(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        let field = fields.find(|(each, _)| each.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.as_str())
    }
}

impl Form {
    fn has_empty_box_of_others(&self, offered: &[OfferedTopic]) -> bool {
        let shown = self.0.iter();
        let mut shown = shown.filter_map(|(name, _)| name.strip_prefix("shown:"));
        shown.any(|name| {
            let is_offered = offered.iter().any(|topic| topic.name == name);
            !is_offered && self.checkbox("topic:", name) != Some(true)
        })
    }

    /// Returns whether the field with this prefix of a topic is on. `None` if there is no such field.
    fn checkbox(&self, prefix: &str, topic: &str) -> Option<bool> {
        let mut fields = self.0.iter();
        let field = fields.find(|(each, _)| each.strip_prefix(prefix) == Some(topic));
        field.map(|(_, value)| value == "on")
    }
}

impl Submission {
    /// Returns the topics that the visitor opts out of. `None` is everything.
    fn opt_outs<'a>(&'a self, link_topic: Option<&'a str>) -> Vec<Option<&'a str>> {
        match self {
            Self::OneClick | Self::LinkTopic => vec![link_topic],
            Self::Everything => vec![None],
            Self::Boxes(boxes) => boxes.opt_outs().map(Some).collect(),
        }
    }

    fn of(form: &Form, topics: &[OfferedTopic]) -> Option<Self> {
        let value = |name| form.value(name);
        if value("List-Unsubscribe")
            .is_some_and(|value| value.trim().eq_ignore_ascii_case("One-Click"))
        {
            return Some(Self::OneClick);
        }
        match value("unsubscribe") {
            Some("all") => return Some(Self::Everything),
            Some("topic") => return Some(Self::LinkTopic),
            Some(_) => return None,
            None => {}
        }
        let mut boxes = Boxes {
            answers: BTreeMap::new(),
            shown_checked: BTreeSet::new(),
            is_paused: value("paused") == Some("on"),
            page: value("page").map(str::to_owned),
            has_others: form.has_empty_box_of_others(topics),
        };
        for OfferedTopic { name, .. } in topics {
            let Some(was_checked) = form.checkbox("shown:", name) else {
                continue;
            };
            if was_checked {
                boxes.shown_checked.insert(name.clone());
            }
            boxes
                .answers
                .insert(name.clone(), form.checkbox("topic:", name).unwrap_or(false));
        }
        (!boxes.answers.is_empty()).then_some(Self::Boxes(boxes))
    }
}

impl Boxes {
    fn opt_outs(&self) -> impl Iterator<Item = &str> {
        let answers = self.answers.iter();
        answers
            .filter(|(_, answer)| !**answer)
            .map(|(topic, _)| topic.as_str())
    }

    fn opt_ins(&self) -> BTreeSet<String> {
        let answers = self.answers.iter();
        let is_new = |topic: &&String| !self.shown_checked.contains(*topic);
        let checked = answers
            .filter(|(_, answer)| **answer)
            .map(|(topic, _)| topic);
        checked.filter(is_new).cloned().collect()
    }
}

impl MediaType {
    /// RFC 8058 allows both (section 3.2), and a browser sends the first. A missing type counts as the first.
    fn of(content_type: Option<&HeaderValue>) -> Option<Self> {
        let Some(content_type) = content_type else {
            return Some(Self::UrlEncoded);
        };
        let mut parts = content_type.to_str().ok()?.split(';').map(str::trim);
        let media_type = parts.next()?.to_ascii_lowercase();
        match media_type.as_str() {
            "application/x-www-form-urlencoded" => Some(Self::UrlEncoded),
            "multipart/form-data" => {
                let boundary = parts.find_map(|parameter| {
                    let (name, value) = parameter.split_once('=')?;
                    let is_boundary = name.trim().eq_ignore_ascii_case("boundary");
                    is_boundary.then(|| value.trim().trim_matches('"').to_owned())
                })?;
                (!boundary.is_empty()).then_some(Self::Multipart { boundary })
            }
            _ => None,
        }
    }
}

/// Returns the fields of a form whose values are short texts.
fn multipart_fields<'b>(body: &'b [u8], boundary: &str) -> Vec<(Cow<'b, str>, Cow<'b, str>)> {
    let Ok(text) = str::from_utf8(body) else {
        return Vec::new();
    };
    let delimiter = format!("--{boundary}");
    let parts = text.split(delimiter.as_str()).skip(1);
    parts
        .filter_map(|part| {
            // The last part is what follows the closing delimiter, `--`.
            let part = part.trim_start_matches([' ', '\t']);
            let part = part
                .strip_prefix("\r\n")
                .or_else(|| part.strip_prefix('\n'))?;
            let (head, value) = part
                .split_once("\r\n\r\n")
                .or_else(|| part.split_once("\n\n"))?;
            let value = value.strip_suffix('\n').unwrap_or(value);
            let value = value.strip_suffix('\r').unwrap_or(value);
            Some((field_name(head)?.into(), value.into()))
        })
        .collect()
}

/// Returns the name of a field. It may have semicolons, and a browser writes a quotation mark in it as `%22`.
fn field_name(head: &str) -> Option<String> {
    let line = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition")
            .then_some(value)
    })?;
    let mut is_quoted = false;
    let mut parameters = line.split(|c: char| {
        is_quoted ^= c == '"';
        c == ';' && !is_quoted
    });
    let name = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("name").then_some(value)
    })?;
    Some(name.trim().trim_matches('"').replace("%22", "\""))
}

/// Reads a form of at most this many bytes, for at most 10 s.
async fn read<B>(body: B, limit: usize) -> Result<Vec<u8>, StatusCode>
where
    B: Body,
{
    let reading = async {
        let body = pin!(body);
        let mut frames = DataFrames(body);
        let mut bytes = Vec::new();
        // The body's own error need not be `Send`, so it ends before the next `await`.
        let mut next = async || {
            let chunk = poll_fn(|context| Pin::new(&mut frames).poll_next(context)).await;
            chunk.transpose().map_err(|_| StatusCode::BAD_REQUEST)
        };
        while let Some(chunk) = next().await? {
            if chunk.len() > limit - bytes.len() {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            bytes.extend_from_slice(&chunk);
            // A body of empty frames must not keep the timeout from its turn.
            tokio::task::yield_now().await;
        }
        Ok(bytes)
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
}

// The headers.

fn unavailable() -> Response<BytesBody> {
    let mut response = Response::new(BytesBody::default());
    harden(&mut response, "", false);
    unavailable_with(response)
}

fn unavailable_with(response: Response<BytesBody>) -> Response<BytesBody> {
    failed_with(StatusCode::SERVICE_UNAVAILABLE, response)
}

pub(super) fn failed_with(
    status: StatusCode,
    mut response: Response<BytesBody>,
) -> Response<BytesBody> {
    *response.status_mut() = status;
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

/// Adds the headers that every response has. The URL is a secret of the recipient: it must not be cached, indexed or
/// sent to another site as a referrer, and its page must not be framed.
fn harden(response: &mut Response<BytesBody>, html: &str, is_template: bool) {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::try_from(content_security_policy(html, is_template));
    let policy = policy.expect("base64 and keywords are visible ASCII");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
}

fn content_security_policy(html: &str, is_template: bool) -> String {
    let styles = html.split("<style").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once('>')?;
        let (style, _) = rest.split_once("</style>")?;
        let hash = base64::prelude::BASE64_STANDARD.encode(Sha256::digest(style.as_bytes()));
        Some(format!(" 'sha256-{hash}'"))
    });
    let mut allowed: String = styles.collect();
    if is_template {
        allowed.push_str(" 'self'");
    }
    if allowed.is_empty() {
        allowed.push_str(" 'none'");
    }
    let images = if is_template {
        "; img-src 'self' data:"
    } else {
        ""
    };
    format!(
        "default-src 'none'; style-src{allowed}{images}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
}
