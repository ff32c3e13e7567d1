//! The service as a server for your tests.
//!
//! A [`MockServer`] listens on its own port, has every endpoint of the interface document, and delivers signed
//! webhooks. It is strict: it refuses a request that the document does not allow, and the error message says why. If
//! the document leaves a choice, the mock makes one; a [`Dialect`] selects another.
//!
//! # Example: a test
//!
//! ```
//! # #[cfg(feature = "client")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), audience::Error> {
//! use audience::contacts::NewContact;
//! use audience::mock::MockServer;
//!
//! let server = MockServer::start().await;
//! let contacts = server.client().contacts();
//!
//! contacts.create(NewContact::new("Ada@example.com").first_name("Ada")).await?;
//!
//! let stored = server.contact("ada@example.com").expect("the contact was created");
//! assert_eq!(stored.first_name.as_deref(), Some("Ada"));
//! assert_eq!(server.requests()[0].path, "/contacts");
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "client"))] fn main() {}
//! ```
//!
//! `server.client_builder()` returns a builder for a client with other timeouts or retries.
//!
//! Without the feature `client`, send requests to [`MockServer::url`] with the key
//! [`MockServer::full_key`].
//!
//! # Time
//!
//! One clock sets the time of everything: `created_at`, rules with days, deliveries and their retries. By default it
//! shows the system's time. [`MockServerBuilder::clock`] stops it at a time of your choice. Either way,
//! [`MockServer::advance`] lets hours pass at once: everything due on the way happens in order, each at its due time.
//!
//! # Seeds
//!
//! A test can start with contacts in any state of interface section 3.1, without the requests that lead there.
//! [`MockServer::seed_contact`] stores one [`SeedContact`]. A seed file has everything at once; give it to
//! [`MockServerBuilder::seed_file`], to [`MockServer::seed`] as JSON, to `audience-mock --seed FILE`, or to
//! `POST /_mock/seed`. Every member is optional, and an unknown one is refused:
//!
//! ```json
//! {
//!   "keys": {"full": "test-full-key", "sending": "test-sending-key"},
//!   "dialect": {"end_of_list": "null", "missing_name": "absent"},
//!   "clock": 1700000000,
//!   "ceiling": 1000,
//!   "topics": {"news": true, "offers": false},
//!   "segments": {
//!     "seg_1": {"contacts": ["ada@example.com"]},
//!     "seg_2": {"rule": {"match_": "all", "conditions": []}}
//!   },
//!   "endpoints": {"crm": {"url": "http://127.0.0.1:8080/hook", "secret": "a-secret-of-the-test"}},
//!   "contacts": [
//!     {
//!       "id": "con_ada",
//!       "email": "ada@example.com",
//!       "first_name": "Ada",
//!       "last_name": "Lovelace",
//!       "properties": {"plan": "pro", "seats": 3},
//!       "unsubscribed": true,
//!       "unsubscribe_reason": "preferences",
//!       "created_at": 1600000000,
//!       "answers": {"news": false},
//!       "engagement": {"opened": 1690000000},
//!       "suppressed": false
//!     },
//!     {"email": "bob@example.com"}
//!   ]
//! }
//! ```
//!
//! - `keys` and `dialect` are those that a mock starts with; [`Dialect::choices`] returns the names. A key or a dialect
//!   that the builder itself sets wins over that of its seeds. A running mock accepts only those that it has.
//! - `clock` sets the clock. In a builder, it stops the clock at this time, like [`MockServerBuilder::clock`]. `ceiling`
//!   can be `null` for no limit. A clock or a ceiling that the builder itself sets wins over that of its seeds.
//! - `topics` has the default answer of each topic.
//! - A contact can be a pasted response of retrieve (interface section 2.1). It has the given `id`, which no other contact
//!   may have. Without one, the mock assigns the next id, or keeps that of the contact that is replaced. `created_at` is
//!   now if it is missing. Without `unsubscribed`, a contact that has an `unsubscribe_reason` is unsubscribed.
//! - `answers` are the contact's own topic answers. If it is missing, `topics` is taken for the answers. If both are
//!   there, `topics` must agree with the answers and the topics' defaults. Every topic must exist or be in the seed.
//! - `contacts` has the order of the list, newest first: of contacts created in the same second, the first in the seed is
//!   the first in the list. What `GET /_mock/contacts` returns as `data` can be seeded again as `contacts`.
//! - A seed applies as a whole or, if a part is invalid, not at all. It adds to what is there and replaces contacts that
//!   exist. An address that a seed has twice is refused, in any spelling.
//! - `$schema` is ignored: it is for an editor. `audience-mock schema` prints the JSON Schema of a seed, which is also in
//!   the package as `fixtures/mock/seed.schema.json`.
//! - Seeding causes no event and may exceed the ceiling. [`MockServer::reset`] goes back to the seeds of the builder.
//!
//! # Faults
//!
//! [`MockServer::fault`] adds a fault for the next requests that match: an error status, a delay, a connection closed
//! before or after the request is applied, a truncated response, or bytes that are not HTTP. [`Fault::after`] lets a number
//! of requests through first. See [`Fault`].
//!
//! # Limits
//!
//! A client has 60 s for the headers of a request, and an idle connection is closed after 60 s. A body that takes
//! longer than 60 s gets a 408, a body over 16 MiB a 413, and headers over 128 KiB a 431. All bodies that are being
//! read at once can take up 64 MiB; a body that exceeds that gets a 503 with `Retry-After: 1`. A connection whose client
//! reads nothing of a response for 60 s is reset. 64 readers of `GET /_mock/stream` can be connected at once; another
//! one gets a 503.
//!
//! # Webhooks
//!
//! Every [`webhook_endpoint`](MockServer::webhook_endpoint) receives the events that `POST /emails` causes and those
//! that [`MockServer::send_event`] sends. A receiver has 10 seconds of real time to send a complete 2xx response.
//! Anything else, including a redirect, is a failed attempt. The next attempt follows after 35 seconds, and each gap is
//! twice the previous one: ten attempts in 4 h 58 min. All attempts carry the same bytes; each is signed anew.
//!
//! [`MockServer::delivery_fault`] adds a fault for the next deliveries: one is repeated, late, out of order, or not
//! genuine. See [`DeliveryFault`]. [`MockServerBuilder::signing_clock`] signs with the system's clock, for a receiver in
//! another process.
//!
//! With a stopped clock, an endpoint receives one event at a time, in the same order on every run. With a running
//! clock, it receives up to 16 at once, and all endpoints together up to 64.
//!
//! [`examine`](examine()) does the opposite: it sends a receiver deliveries that it has to accept and others that it
//! has to refuse, and says what is wrong with it.
//!
//! # Mail
//!
//! `POST /emails` takes `from`, `to` (an address or several), `subject` and anything else.
//! [`MockServer::sent_mail`] returns what was sent. For each recipient, the mock publishes what happens to the mail. The
//! local part of the address, up to a `+`, decides what that is, in any domain:
//!
//! | address | events |
//! |---|---|
//! | `bounce@…` | `email.sent`, `email.bounced` with the type `Permanent` |
//! | `soft-bounce@…` | `email.sent`, `email.bounced` with the type `Transient` |
//! | `delay@…` | `email.sent`, `email.delivery_delayed`, and 5 minutes later by the mock's clock `email.delivered` |
//! | `fail@…` | `email.sent`, `email.failed` |
//! | `complain@…` | `email.sent`, `email.delivered`, `email.complained`; the address is suppressed afterwards |
//! | `open@…` | `email.sent`, `email.delivered`, `email.opened` |
//! | `click@…` | `email.sent`, `email.delivered`, `email.opened`, `email.clicked` |
//! | `pending@…` | `email.sent`; the rest is up to [`MockServer::mail_outcome`] |
//! | a suppressed address | `email.refused` |
//! | any other | `email.sent`, `email.delivered` |
//!
//! All of these but the delivery of a delayed mail happen at once. [`MockServer::mail_outcome`] applies another outcome
//! to a sent mail; see [`MailOutcome`]. [`MockServer::receive_mail`] receives a mail.
//!
//! # A page to look at
//!
//! `http://127.0.0.1:4010/_mock/` in a browser shows the contacts with their consent, topics, segments, mail, events with
//! their attempts as a timeline, and the requests with the reason of each refusal. It follows what happens, moves the
//! clock, adds faults, sends events, and copies a request as a curl command. It loads nothing from elsewhere. It does what
//! the calls below do, and the same hosts and origins are allowed.
//!
//! # For other languages
//!
//! `audience-mock` runs the same server as a program. `cargo install audience --features mock-server` installs it, and
//! `audience-mock --help` lists its options, each of which is also an environment variable, such as
//! `AUDIENCE_MOCK_PORT`. It listens on port 4010 by default, and its first line of output is
//! `listening on http://127.0.0.1:4010`. Ctrl-C and SIGTERM end it with the exit status 0. `--log pretty` prints a line
//! for each request, which says why it was refused, but contains no key.
//!
//! ```console
//! $ audience-mock --seed seed.json --dialect end_of_list=null --log pretty
//! listening on http://127.0.0.1:4010
//! POST /contacts 422 0.2 ms: `email` is missing
//! ```
//!
//! Its subcommands talk to a mock that runs, at `http://127.0.0.1:4010` or at `--url`. They print a table, or JSON with
//! `--json`, and end with the exit status 0, 1 if they failed, or 2 if the command line is invalid. `examine` ends with 1
//! if a check failed, and with 2 if the receiver could not be examined:
//!
//! | command | does |
//! |---|---|
//! | `audience-mock trigger email.bounced --to ada@example.com` | sends an event; with `--email-id`, about a mail that was sent |
//! | `audience-mock clock`, `clock advance 5h`, `clock set 2030-01-31T12:00:00Z` | shows and moves the clock |
//! | `audience-mock fault --status 503 --times 2`, `fault clear` | adds a fault, and removes all |
//! | `audience-mock events`, `attempts`, `requests` | list what happened |
//! | `audience-mock seed seed.json`, `reset` | add a seed, and go back to the start |
//! | `audience-mock schema` | prints the JSON Schema of a seed; no mock has to run |
//! | `audience-mock examine http://localhost:3000/hook --secret …` | [examines](examine()) a receiver; no mock has to run |
//!
//! The calls below do over HTTP what the methods of [`MockServer`] do, on the same port. They need no key, are not recorded
//! and are not affected by faults. Web pages of another origin are refused with a 403, and so is a `Host` other than
//! `localhost`, a loopback address or the server's own address; [`MockServerBuilder::allowed_host`] and
//! `--allowed-host` allow another. Bodies are JSON. The response is a 204 without a body unless the table shows one.
//!
//! | call | body | response |
//! |---|---|---|
//! | `GET /_mock/` | | a [page to look at](#a-page-to-look-at) |
//! | `GET /_mock/stream` | | server-sent events: `changed`, at the beginning and up to four times a second |
//! | `GET /_mock/overview` | | the clock, the settings, the active faults, and the length of each list |
//! | `GET /_mock/health` | | `{"status": "ok"}` |
//! | `GET /_mock/openapi.json` | | the interface of the service in OpenAPI 3.1, without the calls of this table |
//! | `GET /_mock/docs` | | the same as a page to read |
//! | `POST /_mock/reset` | | |
//! | `POST /_mock/seed` | a [seed](#seeds) | |
//! | `GET /_mock/contacts` | | `{"data": [contact, …]}`, newest first |
//! | `GET /_mock/contacts?limit=100&after=con_…` | | `{"data": […], "next": "con_…"}`, see below |
//! | `GET /_mock/contacts?query=ada&consent=unsubscribed&segment_id=seg_1` | | the contacts that match |
//! | `GET /_mock/contacts/{address}` | | the contact |
//! | `PUT /_mock/contacts/{address}` | a contact in any state; see [seeds](#seeds) | the contact |
//! | `GET /_mock/topics` | | `{"data": [{"name": "news", "default": true}]}` |
//! | `PUT /_mock/topics/{name}` | `{"default": true}` | |
//! | `GET /_mock/segments` | | `{"data": [{"id", "count", "contacts"}, {"id", "rule"}]}`, at most 100 addresses of each list |
//! | `PUT /_mock/segments/{id}` | `{"contacts": ["ada@example.com"]}` or `{"rule": {…}}` | |
//! | `POST /_mock/contacts/{address}/complaint` | | |
//! | `POST /_mock/contacts/{address}/engagement` | `{"what": "opened", "at": 1700000000}`. Default of `at`: now. | |
//! | `GET /_mock/clock` | | `{"now": 1700000000}` |
//! | `POST /_mock/clock` | `{"advance": 3600}` or `{"set": 1700000000}` | `{"now": 1700003600}`, when the move is complete |
//! | `PUT /_mock/ceiling` | `{"contacts": 10}`, or `{"contacts": null}` for no limit | |
//! | `GET /_mock/faults` | | `{"data": [fault, …]}`, with the counts that are left |
//! | `POST /_mock/faults` | see below | |
//! | `DELETE /_mock/faults` | | |
//! | `GET /_mock/requests` | | `{"data": [{"method", "path", "query", "headers", "body", "status", "reason", "at"}]}` |
//! | `GET /_mock/requests?limit=100&after=0` | | `{"data": […], "next": 100}`, see below |
//! | `GET /_mock/requests?order=newest&limit=50&query=ada&status=refused` | | the same with `number` and `body_bytes`, the newest first; of long bodies the beginning |
//! | `GET /_mock/requests/{number}` | | the request with that `number`, and its whole body |
//! | `DELETE /_mock/requests` | | |
//! | `GET /_mock/endpoints` | | `{"data": [{"name", "url"}]}` |
//! | `PUT /_mock/endpoints/{name}` | `{"url": "http://…", "secret": "…"}` | |
//! | `DELETE /_mock/endpoints/{name}` | | |
//! | `GET /_mock/events` | | `{"data": [{"id", "type", "created_at", "data", "state", "attempts"}]}`, oldest first |
//! | `GET /_mock/events?order=newest&limit=50&query=ada&type=email.sent&state=pending` | | the events that match, the newest first |
//! | `POST /_mock/events` | `{"type": "email.bounced", "data": {…}}` | `{"id": "evt_1"}`, when the first attempts are finished |
//! | `POST /_mock/events/{id}/redeliver` | | |
//! | `GET /_mock/attempts` | | `{"data": [{"event_id", "endpoint", "attempt", "at", "status" or "error", "fault", "signature_problem", "next_at"}]}` |
//! | `GET /_mock/delivery-faults` | | `{"data": [fault, …]}`, with the counts that are left |
//! | `POST /_mock/delivery-faults` | `{"kind": "duplicate", "times": 1}`, see below | |
//! | `DELETE /_mock/delivery-faults` | | |
//! | `PUT /_mock/signing-clock` | `{"clock": "wall"}` or `{"clock": "mock"}` | |
//! | `GET /_mock/emails` | | `{"data": [{"id", "from", "to", "subject", "at", "body"}]}` |
//! | `GET /_mock/emails?order=newest&limit=50&query=ada` | | `{"data": [{"id", "from", "recipients": [{"to", "state"}], "subject", "at", "body"}]}`, the newest first |
//! | `POST /_mock/emails/{id}/outcome` | `{"type": "email.bounced", "to": "ada@example.com", "data": {"bounce_type": "Permanent", "detail": "…"}}`. Only `type` is required if the mail has one recipient. | `{"id": "evt_1"}`, when the first attempts are finished |
//!
//! A fault has at most one of `"status": 503`, `"close"` and `"garbage": true`. `"close": "before"` closes the
//! connection before the request is applied, and `"after"` after it is applied. `"mid_body"` closes the connection in
//! the middle of the response body, and `"reset"` resets it there. `"delay_ms": 200` and `"body"` can be used alone or
//! with one of these. `"times"`, `"after"`, `"method"`, `"path"`, `"retry_after"` and `"headers"` can be added. The docs
//! of [`Fault`] say what each does.
//!
//! A contact has the full form of interface section 2.1 and the members `answers`, `engagement` and `suppressed`; see
//! [`StoredContact`]. `GET /_mock/contacts` with `limit` or `after` returns a page, and `next` is the `after` of the
//! following page. The list ends when `data` is empty. A body can have up to 16 MiB: send a larger seed in parts, the
//! oldest contacts first, or start the server with the file.
//!
//! The `kind` of a delivery fault is `duplicate`, `reorder`, `stale`, `tampered`, `other_secret` or `missing_header`.
//! `missing_header` takes a `"header"`, by default `webhook-signature`. `"times"`, `"endpoint"` and `"event_type"` can be
//! added. The docs of [`DeliveryFault`] say what each does. To receive a mail, send an event: `{"type":
//! "email.received", "data": {"from": "ada@example.com", "in_reply_to_email_id": "eml_00000001"}}`. The other members
//! of `data` are filled in.
//!
//! All parameters of a list can be left out. The `consent` of a contact is `subscribed`, `unsubscribed`, `complaint` or
//! `suppressed`, the `status` of a request `accepted` or `refused`, and the `state` of an event `pending`, `delivered`,
//! `failed` or `unsent` (there is no endpoint).
//!
//! `GET /_mock/requests` returns all recorded requests: the newest 1,000, as long as they take up no more than 64 MiB.
//! With `limit` or `after`, it returns a page of them, and `next` is the `after` of the following page. The list ends
//! when `data` is empty. `next` stays valid: used again later, even after the requests are cleared, it returns the
//! requests received since.

mod builder;
mod changes;
mod clock;
mod clock_move;
mod connection_end;
mod control;
mod delivery;
mod description;
mod examine;
mod exchange;
mod faults;
mod handled_request;
mod http_response;
mod journal;
mod mock_server;
mod page;
mod recorded_request;
mod request_body;
mod request_handler;
mod response;
mod seeds;
mod server;
mod service;
mod shared;
mod state;
#[cfg(feature = "wiremock")]
mod wiremock;
mod write_timeout;

pub use builder::MockServerBuilder;
pub use clock::MockClock;
pub use clock_move::ClockMove;
pub use delivery::{DeliveryAttempt, DeliveryFault, SigningClock};
pub use examine::{
    Check, CheckReport, Examination, ExamineReceiver, Finding, UnknownCheck, Verdict, examine,
};
pub use faults::Fault;
pub use handled_request::HandledRequest;
pub use mock_server::MockServer;
pub use recorded_request::RecordedRequest;
pub use service::contact::Reason;
pub use service::dialect::UnknownChoice;
pub use service::dialect::{
    BatchMessage, BatchRefusal, ConsentForm, Dialect, EndOfList, ErrorShape, JoinedMember,
    MissingName, OmittedMembers, OtherContentType, PropertyValues, ReasonAfterSubscribe,
    SegmentWithRules, SuccessStatus, UnknownMembers,
};
pub use service::engagement::EngagementKind;
pub use service::inbound_mail::InboundMailSeed;
pub use service::mail_outcome::MailOutcome;
pub use service::seed_contact::SeedContact;
pub use service::seed_contact::StoredContact;
pub use service::segment::SegmentKind;
pub use service::sent_mail::SentMail;
#[cfg(feature = "wiremock")]
pub use wiremock::MockService;
