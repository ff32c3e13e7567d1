//! The service that `interface.md` describes, as a pure state machine.
//!
//! [`Audience::handle`] takes a request and a time and returns a response. Nothing in this folder reads a clock, waits,
//! or sends anything. Except for [`Timestamp`](crate::Timestamp), it shares no code with the client: a second,
//! independent reading of the document makes a test fail if the client has a field name wrong.
//!
//! From the top down:
//!
//! - this file is one audience: it finds out what a request asks for, and calls one of the operations;
//! - `contacts`, `listing`, `consent` and `mail` are the operations of section 4;
//! - `seed` has the contacts that a test stores and sees, and the content of a seed file;
//! - `contact` has the stored contacts, `rule` the segments and rules that choose among them;
//! - `bodies` reads what a request contains, and `dialect` has the choices that all of these share.

mod bodies;
mod consent;
pub(super) mod contact;
mod contacts;
pub(super) mod dialect;
mod listing;
pub(super) mod mail;
pub(super) mod rule;
pub(super) mod seed;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::bodies::{is_address, must_be, normalized};
use self::contact::{Contact, ContactStore, EngagementKind, Reason};
use self::dialect::{
    BatchRefusal, Dialect, ErrorShape, InvalidStatus, OtherContentType, RateLimit,
    UnauthorizedSlug, UnknownMembers,
};
use self::mail::MailStore;
use self::rule::{Segment, SegmentKind, SegmentView};
use self::seed::StoredContact;
use crate::mock::text::{case_folded, printable};
use crate::secret::is_quoted;

/// One audience of the service.
///
/// It handles requests. With its other methods, a test sees and changes what requests cannot.
#[derive(Clone)]
pub(super) struct Audience {
    keys: Keys,
    dialect: Dialect,
    pub(super) contacts: ContactStore,
    /// The name of each topic, and its default answer (section 2.6).
    topics: BTreeMap<String, bool>,
    segments: HashMap<String, Segment>,
    engagements: Engagements,
    /// The addresses that no mail is sent to, whether they are contacts or not (section 3.1).
    suppressed: HashSet<String>,
    pub(super) mails: MailStore,
    /// The events that have not been taken yet, oldest first.
    outbox: Vec<NewEvent>,
    /// The second of the latest request, and how many were handled in it. Only counted under a rate limit.
    counted: (i64, u32),
}

/// How many requests the dialects with a rate limit handle in a second.
const REQUESTS_PER_SECOND: u32 = 10;

impl Audience {
    /// Creates an audience without contacts, topics and segments.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            keys: Keys {
                full: settings.full_key().to_owned(),
                sending: settings.sending_key().to_owned(),
                header: settings.key_header,
            },
            dialect: settings.dialect.unwrap_or_default(),
            contacts: ContactStore::new(settings.ceiling),
            topics: BTreeMap::new(),
            segments: HashMap::new(),
            engagements: Engagements::default(),
            suppressed: HashSet::new(),
            mails: MailStore::default(),
            outbox: Vec::new(),
            counted: (0, 0),
        }
    }

    /// Handles a request that arrives at `now`, in Unix seconds.
    ///
    /// # Errors
    ///
    /// The refusal. [`error_response`](Self::error_response) turns it into a response.
    pub(super) fn handle(
        &mut self,
        request: &Request<Bytes>,
        now: i64,
    ) -> Result<Response<Bytes>, Refusal> {
        mail::deliver_delayed(self, now);
        let dialect = self.dialect;
        let handled = self.count_request(now);
        handled
            .and_then(|()| self.handle_operation(request, now))
            .map_err(|refusal| refusal.in_dialect(dialect))
    }

    fn handle_operation(
        &mut self,
        request: &Request<Bytes>,
        now: i64,
    ) -> Result<Response<Bytes>, Refusal> {
        let body = &**request.body();
        match self.operation(request)? {
            Operation::Create => contacts::create(self, body, now),
            Operation::CreateBatch => contacts::create_batch(self, body, now),
            Operation::Retrieve(address) => contacts::retrieve(self, &address),
            Operation::List => listing::list(self, request.uri().query().unwrap_or_default(), now),
            Operation::Unsubscribe(address) => consent::unsubscribe(self, &address, body, now),
            Operation::Subscribe(address) => consent::subscribe(self, &address, body, now),
            Operation::Merge(address) => contacts::merge(self, &address, body),
            Operation::Delete(address) => contacts::delete(self, &address),
            Operation::SendEmail => mail::send_email(self, body, now),
        }
    }

    /// Counts a request, if the dialect has a rate limit.
    ///
    /// # Errors
    ///
    /// 429 `rate_limited` if it is one too many in this second.
    fn count_request(&mut self, now: i64) -> Result<(), Refusal> {
        let retry_after = match self.dialect.rate_limit {
            RateLimit::Unlimited => return Ok(()),
            RateLimit::RetryAfter => Some(1),
            RateLimit::NoRetryAfter => None,
        };
        let (second, count) = &mut self.counted;
        if *second != now {
            (*second, *count) = (now, 0);
        }
        if *count == REQUESTS_PER_SECOND {
            return Err(Refusal::rate_limited(retry_after));
        }
        *count += 1;
        Ok(())
    }

    /// Returns the operation that a request asks for.
    ///
    /// Checks in this order, which is the mock's choice: the key (401), the path (404) if it can be decoded, the kind of
    /// the key (403), the encoding of the path (422), the method (404), the content type, the query of an operation
    /// without parameters. What the document only names is 501, after the kind of the key.
    fn operation(&self, request: &Request<Bytes>) -> Result<Operation, Refusal> {
        let key = self.keys.authenticate(request.headers())?;
        let route = Route::parse(request.uri().path());
        let requires_full_key = match &route {
            Ok(route) => route.requires_full_key(),
            Err(refusal) => refusal.status != 404,
        };
        if key == KeyKind::Sending && requires_full_key {
            return Err(Refusal::key_not_permitted());
        }

        let operation = route?.operation(request.method().as_str())?;
        if operation.has_body() {
            check_content_type(request, self.dialect.other_content_type)?;
        }
        if operation.has_no_parameters() && self.dialect.unknown_members == UnknownMembers::Refused
        {
            refuse_parameters(request.uri().query().unwrap_or_default())?;
        }
        Ok(operation)
    }

    /// Returns the response that states a refusal, in the shape that the dialect gives errors.
    pub(super) fn error_response(&self, refusal: &Refusal) -> Response<Bytes> {
        refusal.response(self.dialect.error_shape)
    }

    /// Returns the name of the header that holds the bare key. `None` means `Authorization: Bearer <key>`.
    pub(super) fn key_header(&self) -> Option<&str> {
        self.keys.header.as_deref()
    }

    /// Returns a stored contact, or `None` if the address is not one.
    pub(super) fn contact(&self, address: &str) -> Option<StoredContact> {
        let contact = self.contacts.find(address)?;
        Some(StoredContact::new(contact, self))
    }

    /// Returns at most `limit` contacts that match, newest first, starting after the one with the id `after`.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if there is no such segment. 422 `validation_error` if no contact has the id `after`.
    pub(super) fn matching_contacts(
        &self,
        filter: &ContactFilter<'_>,
        after: Option<&str>,
        limit: usize,
        now: i64,
    ) -> Result<Vec<StoredContact>, Refusal> {
        let contacts = self.contacts.newest_first(after).ok_or_else(|| {
            Refusal::invalid("`after` is not the id of a contact; use the `next` of a page")
        })?;
        let text = filter.text.map(case_folded);
        let segment = filter.segment_id.map(|id| self.segment(id)).transpose()?;
        let has_consent = |contact: &Contact| match filter.consent {
            Some("subscribed") => !contact.unsubscribed,
            Some("unsubscribed") => contact.unsubscribed,
            Some("complaint") => contact.reason == Reason::Complaint,
            Some("suppressed") => self.is_suppressed(&contact.email),
            _ => true,
        };
        let matching = contacts.filter(|contact| {
            has_consent(contact)
                && text.as_ref().is_none_or(|text| contact.contains_text(text))
                && segment.is_none_or(|segment| segment.contains(contact, &self.engagements, now))
        });
        Ok(matching
            .take(limit)
            .map(|contact| StoredContact::new(contact, self))
            .collect())
    }

    /// Returns the name and the default answer of each topic, in the order of the names.
    pub(super) fn topics(&self) -> impl Iterator<Item = (&str, bool)> {
        let topics = self.topics.iter();
        topics.map(|(name, default)| (name.as_str(), *default))
    }

    /// Adds a topic, or changes the default answer of an existing one (section 2.6).
    pub(super) fn put_topic(&mut self, name: &str, default: bool) {
        self.topics.insert(name.to_owned(), default);
    }

    /// Returns the segments, in the order of their ids.
    pub(super) fn segments(&self) -> Vec<SegmentView> {
        let views = self.segments.iter();
        let mut views: Vec<_> = views
            .map(|(id, segment)| SegmentView::new(id, segment))
            .collect();
        views.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        views
    }

    /// Adds a segment, or replaces the one with the same id (section 2.7).
    ///
    /// # Errors
    ///
    /// Fails if an address or the rule is invalid. The message names the member that is wrong.
    pub(super) fn put_segment(&mut self, id: &str, kind: SegmentKind) -> Result<(), String> {
        let segment = Segment::parse(kind, self.dialect)?;
        self.segments.insert(id.to_owned(), segment);
        Ok(())
    }

    /// Records an engagement of an address at `at`, in Unix seconds. The address need not be a contact.
    pub(super) fn record_engagement(&mut self, address: &str, what: EngagementKind, at: i64) {
        self.engagements.record(normalized(address), what, at);
    }

    /// Records the engagement or the spam report that an event is about.
    ///
    /// `email.complained` is a spam report. The other events with the name of an engagement count as that engagement,
    /// even if the recipient becomes a contact only later. Any other event changes nothing.
    ///
    /// Call it for events that a test sends. The events that the service publishes are already recorded.
    pub(super) fn record_event(&mut self, event_type: &str, data: &Value, at: i64) {
        let what = event_type
            .strip_prefix("email.")
            .and_then(EngagementKind::from_name);
        let (Some(what), Some(address)) = (what, data.get("to").and_then(Value::as_str)) else {
            return;
        };
        let address = mail::without_display_name(address);
        if what == EngagementKind::Complained {
            if let Some(contact) = self.contacts.find_mut(address) {
                contact.unsubscribed = true;
                contact.reason = Reason::Complaint;
            }
            self.suppressed.insert(normalized(address));
        }
        self.record_engagement(address, what, at);
    }

    /// Removes and returns the events to deliver, oldest first.
    pub(super) fn take_events(&mut self) -> Vec<NewEvent> {
        std::mem::take(&mut self.outbox)
    }

    /// Records an event and keeps it for delivery to the webhook endpoints.
    fn publish(&mut self, event_type: &str, data: Value, at: i64) {
        self.record_event(event_type, &data, at);
        self.outbox.push(NewEvent {
            event_type: event_type.to_owned(),
            data,
            id: None,
            created_at: Some(at),
        });
    }

    /// Returns the contact with an address.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if the address is not a contact (section 7).
    fn find(&self, address: &str) -> Result<&Contact, Refusal> {
        let contact = self.contacts.find(address);
        contact
            .filter(|contact| self.dialect.path_address.finds(address, &contact.email))
            .ok_or_else(|| unknown_contact(address))
    }

    /// Returns the contact with an address, for a change.
    ///
    /// # Errors
    ///
    /// The same as [`find`](Self::find).
    fn find_mut(&mut self, address: &str) -> Result<&mut Contact, Refusal> {
        let choice = self.dialect.path_address;
        let contact = self.contacts.find_mut(address);
        contact
            .filter(|contact| choice.finds(address, &contact.email))
            .ok_or_else(|| unknown_contact(address))
    }

    /// Returns the segment with an id.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if the segment is unknown. The document does not say so; it is the mock's choice.
    fn segment(&self, id: &str) -> Result<&Segment, Refusal> {
        self.segments.get(id).ok_or_else(|| {
            let id = printable(id);
            Refusal::not_found(format!("there is no segment `{id}`"))
        })
    }

    /// Returns whether an address is on the suppression list.
    fn is_suppressed(&self, address: &str) -> bool {
        self.suppressed.contains(&normalized(address))
    }
}

/// When the latest engagement of each kind was, in Unix seconds. Indexed by [`EngagementKind`].
type EngagementTimes = [Option<i64>; EngagementKind::NAMES.len()];

/// The time of the latest engagement of each kind, for each address.
///
/// No operator of a rule asks for an earlier one. The addresses need not be contacts.
#[derive(Clone, Debug, Default)]
struct Engagements {
    latest: HashMap<String, EngagementTimes>,
}

impl Engagements {
    /// Records an engagement at `at`, in Unix seconds. A later one that is already recorded stays.
    fn record(&mut self, address: String, what: EngagementKind, at: i64) {
        let latest = self.latest.entry(address).or_default();
        let slot = &mut latest[what as usize];
        *slot = (*slot).max(Some(at));
    }

    /// Returns when an address last had an engagement, or `None` if it never had.
    fn latest(&self, address: &str, what: EngagementKind) -> Option<i64> {
        self.latest.get(address)?[what as usize]
    }

    /// Replaces all engagements of an address.
    fn replace(&mut self, address: String, times: EngagementTimes) {
        if times.iter().all(Option::is_none) {
            self.latest.remove(&address);
        } else {
            self.latest.insert(address, times);
        }
    }

    /// Returns the names of the engagements that an address had, with their times.
    fn all(&self, address: &str) -> impl Iterator<Item = (EngagementKind, i64)> {
        let times = self.latest.get(address).copied().unwrap_or_default();
        EngagementKind::ALL
            .into_iter()
            .zip(times)
            .filter_map(|(kind, at)| Some((kind, at?)))
    }
}

/// Checks that a text is an email address, in any spelling.
///
/// # Errors
///
/// 422 `validation_error` if it is not.
pub(super) fn check_address(address: &str) -> Result<(), Refusal> {
    if is_address(&normalized(address)) {
        return Ok(());
    }
    let message = must_be("address", "an email address", &address.into());
    Err(Refusal::invalid(message))
}

fn unknown_contact(address: &str) -> Refusal {
    let address = printable(address);
    Refusal::not_found(format!("there is no contact `{address}`"))
}

/// Shows counts and the dialect only: contacts are personal data, and keys are secrets.
impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience")
            .field("contacts", &self.contacts.len())
            .field("ceiling", &self.contacts.ceiling)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

/// The values of [`ContactFilter::consent`].
pub(super) const CONSENTS: [&str; 4] = ["subscribed", "unsubscribed", "complaint", "suppressed"];

/// Which contacts to show. A filter that is left out matches all.
#[derive(Debug, Default)]
pub(super) struct ContactFilter<'a> {
    /// A text in the address or a name, in any case.
    pub(super) text: Option<&'a str>,
    /// One of [`CONSENTS`].
    pub(super) consent: Option<&'a str>,
    pub(super) segment_id: Option<&'a str>,
}

/// The settings of a service.
#[derive(Clone, Default)]
pub(super) struct Settings {
    /// The key for every endpoint. Default: `None`, which means [`DEFAULT_FULL_KEY`].
    pub(super) full_key: Option<String>,
    /// The key for `POST /emails` only. Default: `None`, which means [`DEFAULT_SENDING_KEY`].
    pub(super) sending_key: Option<String>,
    /// How many contacts may be stored (section 8). Default: no ceiling.
    pub(super) ceiling: Option<u64>,
    /// The header that holds the bare key. Default: `None`, which means `Authorization: Bearer <key>`.
    pub(super) key_header: Option<String>,
    /// The choices that the document leaves open. Default: `None`, which means [`Dialect::default`].
    pub(super) dialect: Option<Dialect>,
}

impl Settings {
    /// Returns the key for every endpoint.
    pub(super) fn full_key(&self) -> &str {
        self.full_key.as_deref().unwrap_or(DEFAULT_FULL_KEY)
    }

    /// Returns the key for `POST /emails` only.
    pub(super) fn sending_key(&self) -> &str {
        self.sending_key.as_deref().unwrap_or(DEFAULT_SENDING_KEY)
    }

    /// Fails if no request can present a key, if a key is in quotation marks, or if both keys are equal, because the
    /// sending-access key would then grant everything.
    ///
    /// # Errors
    ///
    /// The message names the key, but does not contain it.
    pub(super) fn check_keys(&self) -> Result<(), String> {
        for (name, key) in [
            ("full-access", self.full_key()),
            ("sending-access", self.sending_key()),
        ] {
            if key.is_empty() {
                return Err(format!(
                    "the {name} key is empty; set a key, or leave it out for the default"
                ));
            }
            if key.trim() != key || key.contains(char::is_control) {
                return Err(format!(
                    "the {name} key has a line break, or white space at its start or end, which a header cannot hold"
                ));
            }
            if is_quoted(key) {
                return Err(format!("the {name} key is in quotation marks; remove them"));
            }
        }
        if self.full_key() == self.sending_key() {
            return Err(
                "the full-access key and the sending-access key are the same; set two keys"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Leaves out the keys. A test may use a real one, so they are never printed.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("ceiling", &self.ceiling)
            .field("key_header", &self.key_header)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

/// The default full-access key of a mock.
const DEFAULT_FULL_KEY: &str = "mock-full-access-key";

/// The default sending-access key of a mock.
const DEFAULT_SENDING_KEY: &str = "mock-sending-access-key";

/// An endpoint: its method, its path, and the operation for the address in the path.
type Endpoint = (&'static str, &'static str, fn(String) -> Operation);

/// The endpoints of section 4.
///
/// The first path that matches a request decides, so `/contacts/batch` comes before `/contacts/{address}`.
const ENDPOINTS: &[Endpoint] = &[
    ("GET", "/contacts", |_| Operation::List),
    ("POST", "/contacts", |_| Operation::Create),
    ("POST", "/contacts/batch", |_| Operation::CreateBatch),
    ("GET", CONTACT, Operation::Retrieve),
    ("PATCH", CONTACT, Operation::Merge),
    (
        "POST",
        "/contacts/{address}/unsubscribe",
        Operation::Unsubscribe,
    ),
    (
        "POST",
        "/contacts/{address}/subscribe",
        Operation::Subscribe,
    ),
    ("POST", EMAILS, |_| Operation::SendEmail),
];

/// The only path for which a sending-access key is enough.
const EMAILS: &str = "/emails";

/// The path of one contact.
const CONTACT: &str = "/contacts/{address}";

/// The paths that are likely for what section 4.7 names but does not show: to manage segments, topics and webhook
/// endpoints. Each of them may be followed by more segments.
const NAMED_ONLY: &[&str] = &[
    "/segments",
    "/topics",
    "/webhooks",
    "/webhook-endpoints",
    "/webhook_endpoints",
    "/endpoints",
    "/contacts/{address}/segments",
    "/contacts/{address}/topics",
];

/// An operation of section 4. Addresses are percent-decoded, but not normalized yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    List,
    CreateBatch,
    Retrieve(String),
    Merge(String),
    /// The address is empty if the path has none, such as `DELETE /contacts`.
    Delete(String),
    Unsubscribe(String),
    Subscribe(String),
    SendEmail,
}

impl Operation {
    /// Returns whether the operation reads the body of its request.
    fn has_body(&self) -> bool {
        !matches!(self, Self::List | Self::Retrieve(_) | Self::Delete(_))
    }

    /// Returns whether the document describes the operation, and describes no query parameters of it. It shows neither
    /// how a contact is deleted nor how a mail is sent, so any parameter may be right there.
    fn has_no_parameters(&self) -> bool {
        !matches!(self, Self::List | Self::Delete(_) | Self::SendEmail)
    }
}

/// A path of section 4, with any method.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    /// The path in [`ENDPOINTS`].
    template: &'static str,
    /// The decoded segment at `{address}`. Empty if the path has none.
    address: String,
}

impl Route {
    /// Finds the route for a percent-encoded path.
    ///
    /// Each segment is decoded by itself, so an encoded slash is a part of its segment.
    ///
    /// # Errors
    ///
    /// - 404 `not_found` if no endpoint has this path;
    /// - 501 `not_described` if it is likely the path of an endpoint that section 4.7 only names;
    /// - 422 `validation_error` if a segment cannot be decoded.
    fn parse(path: &str) -> Result<Self, Refusal> {
        let unknown_path = || Refusal::not_found("no endpoint has this path");
        let segments = path
            .strip_prefix('/')
            .ok_or_else(unknown_path)?
            .split('/')
            .map(decode)
            .collect::<Result<Vec<String>, Refusal>>()?;
        let mut templates = ENDPOINTS.iter().map(|(_, template, _)| *template);
        if let Some(route) = templates.find_map(|path| Self::match_template(path, &segments)) {
            return Ok(route);
        }
        let named_only = NAMED_ONLY.iter().any(|path| {
            let length = path.matches('/').count().min(segments.len());
            Self::match_template(path, &segments[..length]).is_some()
        });
        if named_only {
            return Err(Refusal::not_described(
                "the interface document names the management of segments, topics and webhook endpoints, but does not \
                 show it, so the mock has no such endpoint; prepare them with a seed or below `/_mock`",
            ));
        }
        Err(unknown_path())
    }

    /// Returns whether this route needs a full-access key.
    ///
    /// Section 5 says that the audience endpoints do. It does not list them; for the mock, they are all but `/emails`.
    fn requires_full_key(&self) -> bool {
        self.template != EMAILS
    }

    /// Returns the operation for a method.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if section 4 does not show the method for this path.
    fn operation(self, method: &str) -> Result<Operation, Refusal> {
        // A batch and the whole list, too: a program that means to delete must not take a 404 for "already deleted".
        let is_likely_deletion = ["/contacts", "/contacts/batch", CONTACT].contains(&self.template);
        if method == "DELETE" && is_likely_deletion {
            return Ok(Operation::Delete(self.address));
        }
        let mut supported = Vec::new();
        for (name, template, operation) in ENDPOINTS {
            if *template == self.template {
                // A server that supports GET supports HEAD (RFC 9110, section 9.1).
                if *name == method || (*name == "GET" && method == "HEAD") {
                    return Ok(operation(self.address));
                }
                supported.push(*name);
            }
        }
        Err(Refusal::unknown_method(method, &supported.join(" or ")))
    }

    fn match_template(template: &'static str, segments: &[String]) -> Option<Self> {
        let mut expected = template.split('/').skip(1);
        let mut address = String::new();
        for segment in segments {
            match expected.next()? {
                "{address}" => address.clone_from(segment),
                fixed if fixed == segment => {}
                _ => return None,
            }
        }
        expected
            .next()
            .is_none()
            .then_some(Self { template, address })
    }
}

/// The kind of an API key (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    /// Grants every endpoint.
    Full,
    /// Grants `POST /emails` only.
    Sending,
}

/// The two valid keys, and the header in which a request must present one of them.
#[derive(Clone)]
struct Keys {
    full: String,
    sending: String,
    /// The header that holds the bare key. `None` means `Authorization: Bearer <key>`.
    header: Option<String>,
}

impl Keys {
    /// Returns the kind of the key that a request presents.
    ///
    /// The document does not show how a key is presented, so the header can be chosen.
    ///
    /// # Errors
    ///
    /// 401 `unauthorized` if the header is missing or repeated, or if its key is not one of the two.
    fn authenticate(&self, headers: &HeaderMap) -> Result<KeyKind, Refusal> {
        let name = self.header.as_deref().unwrap_or("authorization");
        let mut values = headers.get_all(name).iter().map(lossy);
        let value = match (values.next(), values.next()) {
            (Some(value), None) => value,
            (None, _) => {
                let message = format!("the `{name}` header is missing; it must hold the API key");
                return Err(Refusal::unauthorized(message));
            }
            (Some(_), Some(_)) => {
                let message = format!("the `{name}` header is given twice");
                return Err(Refusal::unauthorized(message));
            }
        };
        let value = value.trim();
        let presented = match self.header {
            Some(_) => value,
            None => bearer_token(value).ok_or_else(|| {
                Refusal::unauthorized("the `authorization` header must be `Bearer <key>`")
            })?,
        };
        if presented == self.full {
            Ok(KeyKind::Full)
        } else if presented == self.sending {
            Ok(KeyKind::Sending)
        } else {
            Err(Refusal::unauthorized(
                "the API key is neither the full-access key nor the sending-access key",
            ))
        }
    }
}

/// Shows the header only. A test may use a real key, so the keys are never printed.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// Returns the key after the scheme `Bearer`, in upper or lower case.
fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Checks that the `Content-Type` of a request with a body is one for JSON.
///
/// A body without a `Content-Type` is accepted: the document names no header for bodies.
///
/// # Errors
///
/// The dialect's choice of status and slug if the content type is another one.
fn check_content_type(request: &Request<Bytes>, choice: OtherContentType) -> Result<(), Refusal> {
    if request.body().is_empty() {
        return Ok(());
    }
    let mut types = request.headers().get_all(CONTENT_TYPE).iter().map(lossy);
    let Some(other) = types.find(|value| !is_json(value)) else {
        return Ok(());
    };
    let message = format!(
        "the content type of the body must be `application/json`, not `{}`",
        printable(&other)
    );
    match choice {
        OtherContentType::Unprocessable => Err(Refusal::invalid(message)),
        OtherContentType::UnsupportedMediaType => {
            Err(Refusal::new(415, "unsupported_media_type", message))
        }
        OtherContentType::Ignored => Ok(()),
    }
}

/// Refuses the first parameter of a query. The query belongs to an operation that has none.
///
/// # Errors
///
/// 422 `validation_error` if there is a parameter.
fn refuse_parameters(query: &str) -> Result<(), Refusal> {
    let Some(pair) = query.split('&').find(|pair| !pair.is_empty()) else {
        return Ok(());
    };
    let name = decode_parameter(pair.split('=').next().unwrap_or_default())?;
    Err(Refusal::invalid(format!(
        "`{}` is not a known parameter; only `GET /contacts` has query parameters",
        printable(&name)
    )))
}

/// Returns the value of a header as text.
fn lossy(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

/// Returns whether a content type means JSON: `application/json`, or `application/…+json`, with any parameters.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let suffix = subtype.rsplit_once('+').map(|(_, suffix)| suffix);
    kind.eq_ignore_ascii_case("application")
        && suffix.unwrap_or(subtype).eq_ignore_ascii_case("json")
}

/// Decodes a percent-encoded path segment.
///
/// # Errors
///
/// 422 `validation_error` if `%` is not followed by two hex digits, or if the bytes are not UTF-8. Decoding them
/// leniently would yield another address than the caller meant.
pub(super) fn decode(encoded: &str) -> Result<String, Refusal> {
    let bytes = encoded.as_bytes();
    let malformed = bytes.iter().enumerate().any(|(index, byte)| {
        let is_digit = |ahead| bytes.get(index + ahead).is_some_and(u8::is_ascii_hexdigit);
        *byte == b'%' && !(is_digit(1) && is_digit(2))
    });
    if malformed {
        return Err(Refusal::invalid("`%` must be followed by two hex digits"));
    }
    match percent_decode_str(encoded).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(Refusal::invalid(
            "the percent-encoded bytes are not valid UTF-8",
        )),
    }
}

/// Decodes the name or the value of a query parameter, in which `+` is a space.
///
/// # Errors
///
/// The same as [`decode`].
pub(super) fn decode_parameter(encoded: &str) -> Result<String, Refusal> {
    decode(&encoded.replace('+', " "))
}

/// A refused request, or a refused entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The HTTP status. A batch entry shows only the slug.
    pub(super) status: u16,
    /// The slug, such as `not_found`.
    pub(super) code: Cow<'static, str>,
    /// The message for the person who debugs the request.
    pub(super) message: String,
    /// The header `Retry-After`, in seconds.
    retry_after: Option<u64>,
}

impl Refusal {
    /// Creates a refusal with any status and slug. The other constructors create the refusals of section 7.
    pub(super) fn new(
        status: u16,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            code: code.into(),
            message: message.into(),
            retry_after: None,
        }
    }

    /// Returns this refusal as the dialect states it: the status of a 422 and the slug of a 401 may be others.
    fn in_dialect(mut self, dialect: Dialect) -> Self {
        if self.status == 422 && dialect.invalid_status == InvalidStatus::BadRequest {
            self.status = 400;
        }
        if self.status == 401 {
            self.code = match dialect.unauthorized_slug {
                UnauthorizedSlug::Unauthorized => "unauthorized",
                UnauthorizedSlug::Unauthenticated => "unauthenticated",
                UnauthorizedSlug::InvalidApiKey => "invalid_api_key",
            }
            .into();
        }
        self
    }

    /// Creates a 422 `validation_error`: a body, query or path is invalid.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "validation_error", message)
    }

    /// Creates a 401 `unauthorized`: no valid key. The document names neither status nor slug; this is the mock's
    /// choice.
    fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, "unauthorized", message)
    }

    /// Creates a 403 `key_not_permitted`: a sending-access key on an audience endpoint (section 5).
    fn key_not_permitted() -> Self {
        Self::new(
            403,
            "key_not_permitted",
            "the audience endpoints need a full-access key, not a sending-access key",
        )
    }

    /// Creates a 404 `not_found`: an unknown path, contact, topic or segment.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "not_found", message)
    }

    /// Creates a 404 `not_found`: a known path, but a method that section 4 does not show for it.
    fn unknown_method(method: &str, allowed: &str) -> Self {
        let method = printable(method);
        Self::not_found(format!(
            "this path does not support `{method}`; use {allowed}"
        ))
    }

    /// Creates a 501 `not_described`: section 4.7 names what the request asks for, but does not show it. The slug is
    /// the mock's own: a program must not take it for a refusal of the service.
    fn not_described(message: impl Into<String>) -> Self {
        Self::new(501, "not_described", message)
    }

    /// Creates a 409 `already_exists`: a create with `on_conflict` `error` for a stored address (section 4.1).
    fn already_exists(address: &str) -> Self {
        let message =
            format!("the contact `{address}` already exists, and `on_conflict` is `error`");
        Self::new(409, "already_exists", message)
    }

    /// Creates a 402 `quota_exceeded`: a new contact when the ceiling is reached (section 8).
    fn quota_exceeded(ceiling: u64) -> Self {
        let message = format!("the ceiling of {ceiling} contacts is reached");
        Self::new(402, "quota_exceeded", message)
    }

    /// Creates a 422 `failed_precondition`: a subscribe after a spam report (section 3.2).
    fn complaint_locked(address: &str) -> Self {
        let message = format!(
            "`{address}` reported spam; the service no longer records consent for this address"
        );
        Self::new(422, "failed_precondition", message)
    }

    /// Creates a 429 `rate_limited`. The document names neither limits nor slug; both are the mock's choice.
    fn rate_limited(retry_after: Option<u64>) -> Self {
        let message = format!("at most {REQUESTS_PER_SECOND} requests a second are handled");
        Self {
            retry_after,
            ..Self::new(429, "rate_limited", message)
        }
    }

    /// Creates the refusal of a batch of zero or more than 100 entries (section 4.2). The dialect decides its status
    /// and slug.
    fn batch(message: impl Into<String>, choice: BatchRefusal) -> Self {
        match choice {
            BatchRefusal::Unprocessable => Self::invalid(message),
            BatchRefusal::BadRequest => Self::new(400, "bad_request", message),
        }
    }

    /// Creates a 414 `uri_too_long`. The document names no limit; HTTP libraries have one.
    pub(super) fn uri_too_long() -> Self {
        Self::new(414, "uri_too_long", "the URL of the request is too long")
    }

    /// Returns the response that states this refusal, with its body in the given shape.
    pub(super) fn response(&self, shape: ErrorShape) -> Response<Bytes> {
        let mut response = match self.body(shape) {
            Some(body) => json_response(self.status, &body),
            None => empty_response(self.status),
        };
        let headers = response.headers_mut();
        if shape == ErrorShape::Problem {
            let problem = HeaderValue::from_static("application/problem+json");
            headers.insert(CONTENT_TYPE, problem);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }

    fn body(&self, shape: ErrorShape) -> Option<Value> {
        let Self {
            status,
            code,
            message,
            ..
        } = self;
        Some(match shape {
            ErrorShape::Empty => return None,
            ErrorShape::EmptyNotFound if *status == 404 => return None,
            ErrorShape::EmptyNotFound => return self.body(ErrorShape::default()),
            ErrorShape::NestedCode => json!({"error": {"code": code, "message": message}}),
            ErrorShape::NestedSlug => json!({"error": {"slug": code, "message": message}}),
            ErrorShape::NestedType => json!({"error": {"type": code, "message": message}}),
            ErrorShape::Code => json!({"code": code, "message": message}),
            ErrorShape::Slug => json!({"slug": code, "message": message}),
            ErrorShape::Error => json!({"error": code, "message": message}),
            ErrorShape::Type => json!({"type": code, "message": message}),
            ErrorShape::Name => json!({"name": code, "message": message}),
            ErrorShape::Errors => json!({"errors": [{"code": code, "message": message}]}),
            ErrorShape::Problem => json!({
                "type": format!("https://errors.example.com/{code}"),
                "status": status,
                "detail": message,
            }),
        })
    }
}

/// Returns a response with `body` serialized as JSON. Its content type is set when it is sent.
fn json_response(status: u16, body: &impl Serialize) -> Response<Bytes> {
    let body = serde_json::to_vec(body)
        .expect("strings, numbers and maps with string keys always serialize to JSON");
    let mut response = Response::new(body.into());
    *response.status_mut() =
        StatusCode::from_u16(status).expect("a status of the service has three digits");
    response
}

/// Returns a response without a body.
fn empty_response(status: u16) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() =
        StatusCode::from_u16(status).expect("a status of the service has three digits");
    response
}

/// An event for the webhook endpoints (section 6), from the service or from a test.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewEvent {
    /// The event type, such as `email.sent` (section 6.1).
    #[serde(rename = "type")]
    pub(super) event_type: String,
    /// The `data` member of the envelope (section 6.3).
    #[serde(default = "no_data")]
    pub(super) data: Value,
    /// Default: the next number of the server.
    pub(super) id: Option<String>,
    /// When it happened, in Unix seconds: the `created_at` member of the envelope. Default: when it is published.
    pub(super) created_at: Option<i64>,
}

fn no_data() -> Value {
    Value::Object(Map::new())
}

/// Returns the method and the path of each endpoint.
#[cfg(test)]
pub(super) fn endpoints() -> impl Iterator<Item = (&'static str, &'static str)> {
    ENDPOINTS.iter().map(|(method, path, _)| (*method, *path))
}

/// An audience, and the time at which its requests arrive.
#[cfg(test)]
struct Service {
    audience: Audience,
    now: i64,
}

#[cfg(test)]
impl Service {
    fn new() -> Self {
        Self::with_dialect(Dialect::default())
    }

    fn with_dialect(dialect: Dialect) -> Self {
        Self {
            audience: Audience::new(Settings {
                full_key: Some("full".to_owned()),
                sending_key: Some("sending".to_owned()),
                dialect: Some(dialect),
                ..Settings::default()
            }),
            now: 1_700_000_000,
        }
    }

    fn get(&mut self, target: &str) -> (u16, Value) {
        self.send("full", "GET", target, b"")
    }

    fn post(&mut self, target: &str, body: &Value) -> (u16, Value) {
        self.send("full", "POST", target, body.to_string().as_bytes())
    }

    fn post_without_body(&mut self, target: &str) -> (u16, Value) {
        self.send("full", "POST", target, b"")
    }

    fn patch(&mut self, target: &str, body: &Value) -> (u16, Value) {
        self.send("full", "PATCH", target, body.to_string().as_bytes())
    }

    /// Sends a request with a key as its bearer token, and returns the status and the body of the response.
    fn send(&mut self, key: &str, method: &str, target: &str, body: &[u8]) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            // Browsers and clients encode a quotation mark, too.
            .uri(target.replace('"', "%22"))
            .header("authorization", format!("Bearer {key}"))
            .body(Bytes::copy_from_slice(body))
            .unwrap();
        let response = self
            .audience
            .handle(&request, self.now)
            .unwrap_or_else(|refusal| self.audience.error_response(&refusal));
        let body = serde_json::from_slice(response.body()).unwrap();
        (response.status().as_u16(), body)
    }

    /// Creates a contact, and asserts that it is new.
    fn create(&mut self, address: &str) {
        let (status, _) = self.post("/contacts", &json!({ "email": address }));
        assert_eq!(status, 201, "{address}");
    }

    /// Lists contacts with a query, and returns their addresses in order.
    fn listed_addresses(&mut self, query: &str) -> Vec<String> {
        let (status, page) = self.get(&format!("/contacts?{query}"));
        assert_eq!(status, 200, "{page}");
        let data = page["data"].as_array().unwrap();
        data.iter()
            .map(|item| item["email"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// Returns the status and the slug of a refusal.
#[cfg(test)]
fn status_and_slug((status, body): &(u16, Value)) -> (u16, &str) {
    let slug = body["error"]["code"].as_str().unwrap_or_default();
    (*status, slug)
}

/// Returns the message of a refusal.
#[cfg(test)]
fn message((_, body): &(u16, Value)) -> &str {
    body["error"]["message"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
