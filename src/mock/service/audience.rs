//! The service as a state machine: a request and a time go in, a reply comes out.

use std::fmt;

use serde_json::Value;

use super::contact::{Contact, Reason};
use super::dialect::Settings;
use super::engagement::EngagementKind;
use super::inbound_mail::InboundMailSeed;
use super::listing::contains_text;
use super::mail_outcome::MailOutcome;
use super::refusal::{OutgoingEvent, Refusal, Reply};
use super::router::{KeyKind, Keys, Operation, Route};
use super::seed::Seed;
use super::seed_contact::{SeedContact, StoredContact};
use super::segment::{Segment, SegmentKind, SegmentView};
use super::sent_mail::{MailView, SentMail};
use super::state::AudienceState;
use super::{consent, contacts, emails, inbound_mail, listing, router, seeding};
use crate::mock::recorded_request::RecordedRequest;

/// One audience of the service.
///
/// It handles requests. Its other methods let a test see and change what requests cannot.
#[derive(Clone)]
pub(crate) struct Audience {
    pub(super) keys: Keys,
    pub(super) state: AudienceState,
}

impl Audience {
    /// Creates an empty audience.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            keys: Keys {
                full: settings.full_key().to_owned(),
                sending: settings.sending_key().to_owned(),
                header: settings.key_header,
            },
            state: AudienceState::new(settings.dialect.unwrap_or_default(), settings.ceiling),
        }
    }

    /// Handles a request that arrives at `now`, in Unix seconds. Every request gets a reply, however malformed.
    pub(crate) fn handle(&mut self, request: &RecordedRequest, now: i64) -> Reply {
        self.deliver_delayed(now);
        self.dispatch(request, now)
            .unwrap_or_else(|refusal| refusal.reply(self.state.dialect().error_shape))
    }

    /// Returns an error of the mock itself, such as that of a fault, in the shape that the dialect gives errors.
    pub(crate) fn error_reply(&self, status: u16, code: &str, message: &str) -> Reply {
        Refusal::new(status, code.to_owned(), message).reply(self.state.dialect().error_shape)
    }

    /// Adds a topic, or changes the default answer of an existing one (section 2.6).
    pub(crate) fn put_topic(&mut self, name: &str, default: bool) {
        self.state.put_topic(name, default);
    }

    /// Adds a segment, or replaces the one with the same id (section 2.7).
    ///
    /// # Errors
    ///
    /// Fails if the segment's rule is invalid. The message names the member that is wrong.
    pub(crate) fn put_segment(&mut self, id: &str, kind: SegmentKind) -> Result<(), String> {
        let segment = Segment::parse(kind, self.state.dialect())?;
        self.state.put_segment(id, segment);
        Ok(())
    }

    /// Records a mailbox provider's spam report, which no request can undo (section 3.2), and publishes an
    /// `email.complained`.
    pub(crate) fn report_spam(&mut self, address: &str, now: i64) {
        self.state.report_spam(address, now);
    }

    /// Records an engagement of an address at `at`, in Unix seconds.
    pub(crate) fn record_engagement(&mut self, address: &str, what: EngagementKind, at: i64) {
        self.state.record_engagement(address, what, at);
    }

    /// Records what an event says about its recipient: an engagement, or a spam report.
    ///
    /// Call it for events that a test sends. Those that the service publishes are already recorded.
    pub(crate) fn record_event(&mut self, event_type: &str, data: &Value, at: i64) {
        self.state.record_event(event_type, data, at);
    }

    /// Applies an outcome to a sent mail at one of its recipients, and publishes the event about it.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if no mail has this id. 422 `validation_error` if the recipient is missing or wrong, or if the
    /// outcome is not possible.
    pub(crate) fn mail_outcome(
        &mut self,
        email_id: &str,
        outcome: &MailOutcome,
        now: i64,
    ) -> Result<(), Refusal> {
        emails::apply_outcome(&mut self.state, email_id, outcome, now)
    }

    /// Delivers the delayed mail that is due by `now`.
    pub(crate) fn deliver_delayed(&mut self, now: i64) {
        emails::deliver_delayed(&mut self.state, now);
    }

    /// Returns when the next delayed mail is due.
    pub(crate) fn next_due(&self) -> Option<i64> {
        self.state.mails().delayed.next_due()
    }

    /// Returns the mail that was sent, oldest first.
    pub(crate) fn sent_mail(&self) -> Vec<SentMail> {
        self.state.mails().sent_mail()
    }

    /// Publishes that mail was received.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if it replies to a mail that was not sent.
    pub(crate) fn receive_mail(&mut self, seed: InboundMailSeed, now: i64) -> Result<(), Refusal> {
        inbound_mail::receive(&mut self.state, seed, now)
    }

    /// Returns a stored contact, or `None` if the address is not one.
    pub(crate) fn contact(&self, address: &str) -> Option<StoredContact> {
        let contact = self.state.contacts().find(address)?;
        Some(StoredContact::new(contact, &self.state))
    }

    /// Returns at most `limit` contacts, newest first, starting after the one with the id `after`.
    ///
    /// Returns `None` if no contact has that id.
    pub(crate) fn contacts(&self, after: Option<&str>, limit: usize) -> Option<Vec<StoredContact>> {
        let contacts = self.state.contacts().newest_first(after)?.take(limit);
        Some(
            contacts
                .map(|contact| StoredContact::new(contact, &self.state))
                .collect(),
        )
    }

    /// Stores a contact in any state, or replaces the one with its address. Publishes no event.
    ///
    /// # Errors
    ///
    /// Fails if the document does not allow the contact. The message names the member that is wrong.
    pub(crate) fn put_contact(
        &mut self,
        contact: SeedContact,
        now: i64,
    ) -> Result<StoredContact, String> {
        let email = seeding::put_contact(&mut self.state, contact, now)?;
        Ok(self.contact(&email).expect("the contact was just stored"))
    }

    /// Applies the topics, segments, contacts and the ceiling of a seed. Publishes no event.
    ///
    /// # Errors
    ///
    /// Fails if the document does not allow a part of the seed. The message names it. Nothing is changed then.
    pub(crate) fn seed(&mut self, seed: Seed, now: i64) -> Result<(), String> {
        seeding::apply(&mut self.state, seed, now)
    }

    /// Checks that the keys and the dialect of a seed are those of this audience, which only a start can choose.
    ///
    /// # Errors
    ///
    /// Fails if one of them differs. The message names the member, but no key.
    pub(crate) fn check_start_settings(&self, seed: &Seed) -> Result<(), String> {
        seed.settings.check(&self.keys, self.state.dialect())
    }

    /// Returns how many contacts are stored.
    pub(crate) fn contact_count(&self) -> usize {
        self.state.contacts().len()
    }

    /// Returns how many contacts may be stored, or `None` if there is no ceiling.
    pub(crate) fn ceiling(&self) -> Option<u64> {
        self.state.contacts().ceiling()
    }

    /// Changes how many contacts may be stored. `None` means no ceiling. Contacts above it stay stored.
    pub(crate) fn set_ceiling(&mut self, contacts: Option<u64>) {
        self.state.contacts_mut().set_ceiling(contacts);
    }

    /// Removes and returns the events to deliver, oldest first.
    pub(crate) fn take_events(&mut self) -> Vec<OutgoingEvent> {
        self.state.take_events()
    }

    /// Runs the operation that a request asks for.
    ///
    /// Checks in this order, which is the mock's choice: the key (401), the path (404), the kind of the key (403),
    /// the encoding of the path (422), the method (404), the content type. The operation comes last.
    fn dispatch(&mut self, request: &RecordedRequest, now: i64) -> Result<Reply, Refusal> {
        let key = self.keys.authenticate(&request.headers)?;
        let route = Route::parse(&request.path);
        let requires_full_key = match &route {
            Ok(route) => route.requires_full_key(),
            Err(refusal) => refusal.status != 404,
        };
        if key == KeyKind::Sending && requires_full_key {
            return Err(Refusal::key_not_permitted());
        }

        let operation = route?.operation(&request.method)?;
        if operation.has_body() {
            router::check_content_type(
                &request.headers,
                &request.body,
                self.state.dialect().other_content_type,
            )?;
        }
        let (state, body) = (&mut self.state, &*request.body);
        match operation {
            Operation::Create => contacts::create(state, body, now),
            Operation::CreateBatch => contacts::create_batch(state, body, now),
            Operation::Retrieve(address) => contacts::retrieve(state, &address),
            Operation::List => {
                listing::list(state, request.query.as_deref().unwrap_or_default(), now)
            }
            Operation::Unsubscribe(address) => consent::unsubscribe(state, &address, body),
            Operation::Subscribe(address) => consent::subscribe(state, &address, body),
            Operation::Merge(address) => contacts::merge(state, &address, body),
            Operation::SendEmail => emails::send_email(state, body, now),
        }
    }
}

/// Shows counts and the dialect only: contacts are personal data, and keys are secrets.
impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience")
            .field("contacts", &self.contact_count())
            .field("ceiling", &self.ceiling())
            .field("dialect", &self.state.dialect())
            .finish_non_exhaustive()
    }
}

/// The values of [`ContactFilter::consent`].
pub(in crate::mock) const CONSENTS: [&str; 4] =
    ["subscribed", "unsubscribed", "complaint", "suppressed"];

/// Which contacts to show. A filter that is left out matches all.
#[derive(Debug, Default)]
pub(in crate::mock) struct ContactFilter<'a> {
    /// A text in the address or a name, in any case.
    pub(in crate::mock) text: Option<&'a str>,
    /// One of [`CONSENTS`].
    pub(in crate::mock) consent: Option<&'a str>,
    pub(in crate::mock) segment_id: Option<&'a str>,
}

impl Audience {
    /// Returns at most `limit` contacts that match, newest first, starting after the one with the id `after`.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if there is no such segment. 422 `validation_error` if no contact has the id `after`.
    pub(crate) fn matching_contacts(
        &self,
        filter: &ContactFilter<'_>,
        after: Option<&str>,
        limit: usize,
        now: i64,
    ) -> Result<Vec<StoredContact>, Refusal> {
        let state = &self.state;
        let contacts = state.contacts().newest_first(after).ok_or_else(|| {
            Refusal::invalid("`after` is not the id of a contact; use the `next` of a page")
        })?;
        let text = filter.text.map(str::to_lowercase);
        let segment = filter.segment_id.map(|id| state.segment(id)).transpose()?;
        let has_consent = |contact: &Contact| match filter.consent {
            Some("subscribed") => !contact.unsubscribed,
            Some("unsubscribed") => contact.unsubscribed,
            Some("complaint") => contact.reason == Reason::Complaint,
            Some("suppressed") => state.is_suppressed(&contact.email),
            _ => true,
        };
        let matching = contacts.filter(|contact| {
            has_consent(contact)
                && text
                    .as_ref()
                    .is_none_or(|text| contains_text(contact, text))
                && segment.is_none_or(|segment| segment.contains(contact, state.engagements(), now))
        });
        Ok(matching
            .take(limit)
            .map(|contact| StoredContact::new(contact, state))
            .collect())
    }

    /// Returns the name and the default answer of each topic, in the order of the names.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (&str, bool)> {
        let topics = self.state.topics().iter();
        topics.map(|(name, default)| (name.as_str(), *default))
    }

    /// Returns the segments, in the order of their ids.
    pub(crate) fn segments(&self) -> Vec<SegmentView> {
        self.state.segment_views()
    }

    /// Returns at most `limit` mails that contain a text, the newest first.
    pub(crate) fn newest_mail(&self, text: &str, limit: usize) -> Vec<MailView> {
        self.state.mails().newest(text, limit)
    }

    /// Returns how many mails are kept.
    pub(crate) fn mail_count(&self) -> usize {
        self.state.mails().len()
    }

    /// Returns the name of the header that holds the bare key. `None` means `Authorization: Bearer <key>`.
    pub(crate) fn key_header(&self) -> Option<&str> {
        self.keys.header.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Service, status_and_slug};

    #[test]
    fn a_sending_key_is_refused_by_every_endpoint_except_emails() {
        let mut service = Service::new();
        for (method, target) in [
            ("POST", "/contacts"),
            ("GET", "/contacts"),
            ("POST", "/contacts/batch"),
            ("GET", "/contacts/ada@x.io"),
            ("PATCH", "/contacts/ada@x.io"),
            ("POST", "/contacts/ada@x.io/subscribe"),
            ("POST", "/contacts/ada@x.io/unsubscribe"),
        ] {
            let response = service.send("sending", method, target, b"not even JSON");

            assert_eq!(
                status_and_slug(&response),
                (403, "key_not_permitted"),
                "{method} {target}"
            );
        }
        let body = json!({"from": "me@x.io", "to": "ada@x.io"}).to_string();
        for key in ["sending", "full"] {
            assert_eq!(service.send(key, "POST", "/emails", body.as_bytes()).0, 200);
        }
    }

    #[test]
    fn the_key_is_checked_first() {
        let mut service = Service::new();
        for target in ["/contacts", "/nowhere", "/contacts/%"] {
            let response = service.send("other", "GET", target, b"");

            assert_eq!(
                status_and_slug(&response),
                (401, "unauthorized"),
                "{target}"
            );
        }
        assert_eq!(
            status_and_slug(&service.get("/nowhere")),
            (404, "not_found")
        );
        assert_eq!(
            status_and_slug(&service.send("full", "PURGE", "/contacts/ada@x.io", b"")),
            (404, "not_found")
        );
    }
}
