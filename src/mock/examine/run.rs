//! The state of an examination while it runs.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use tokio::time::Instant;

use super::delivery::{self, Outcome, Outgoing, Pace};
use super::event_bodies::SampleEvent;
use super::grade::{Effect, Expectation};
use super::receiver_clock::clock_skew;
use crate::Timestamp;
use crate::mock::delivery::endpoint_url::EndpointUrl;
use crate::webhooks::{EventType, Signer};

/// After this many responses that did not arrive, the rest is not examined.
const PATIENCE: u32 = 3;
/// How long an examination goes on starting checks.
const TIME_LIMIT: Duration = Duration::from_secs(180);
/// How often the examination waits because of a 429 or 503 with `Retry-After`: for one delivery, and in all.
const RETRIES: u32 = 3;
const ALL_RETRIES: u32 = 12;
/// The longest of these waits.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// An examination while it runs.
pub(super) struct Run {
    pub(super) url: EndpointUrl,
    pub(super) secret: String,
    pub(super) signer: Signer,
    /// The signer of a stranger.
    pub(super) other_signer: Signer,
    pub(super) timeout: Duration,
    /// A type that the receiver accepts.
    pub(super) basis: EventType,
    /// Whether the receiver accepts what is signed with another secret.
    pub(super) accepts_forgeries: Cell<bool>,
    /// The longest time that a genuine delivery took, of those sent one by one.
    pub(super) slowest: Cell<Duration>,
    /// The difference of the clocks, in seconds, if a response had a `Date`.
    pub(super) clock_skew: Cell<Option<i64>>,
    timeouts: Cell<u32>,
    retries: Cell<u32>,
    started: Instant,
    /// Makes the ids of this examination different from those of every other.
    id_prefix: String,
    last_id: Cell<u32>,
}

impl Run {
    pub(super) fn new(
        url: EndpointUrl,
        secret: &str,
        signer: Signer,
        other_signer: Signer,
        timeout: Duration,
    ) -> Self {
        static EXAMINATIONS: AtomicU64 = AtomicU64::new(1);
        let number = EXAMINATIONS.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanoseconds = since.map_or(0, |since| since.as_nanos());
        Self {
            url,
            secret: secret.to_owned(),
            signer,
            other_signer,
            timeout,
            basis: EventType::Delivered,
            accepts_forgeries: Cell::new(false),
            slowest: Cell::default(),
            clock_skew: Cell::default(),
            timeouts: Cell::default(),
            retries: Cell::default(),
            started: Instant::now(),
            id_prefix: format!(
                "evt_examine_{nanoseconds:x}_{:x}_{number}",
                std::process::id()
            ),
            last_id: Cell::default(),
        }
    }

    /// Returns why the rest cannot be examined, if so.
    pub(super) fn stop_reason(&self) -> Option<String> {
        if self.timeouts.get() >= PATIENCE {
            return Some(format!(
                "not examined, because {PATIENCE} responses did not arrive in time"
            ));
        }
        let is_over = self.started.elapsed() > TIME_LIMIT;
        is_over.then(|| {
            format!("not examined, because the examination took longer than {TIME_LIMIT:?}")
        })
    }

    /// Returns a new event id.
    pub(super) fn id(&self) -> String {
        let number = self.last_id.get() + 1;
        self.last_id.set(number);
        format!("{}_{number}", self.id_prefix)
    }

    /// Returns a new event of a type that the receiver accepts.
    pub(super) fn event(&self) -> SampleEvent {
        self.event_of(self.basis.clone())
    }

    pub(super) fn event_of(&self, event_type: EventType) -> SampleEvent {
        SampleEvent::new(self.id(), event_type, now())
    }

    /// Signs an event as the service does, now.
    pub(super) fn signed(&self, event: &SampleEvent) -> HeaderMap {
        self.signer
            .sign(&event.event_type, SystemTime::now(), &event.body)
    }

    /// Delivers an event as the service does.
    pub(super) async fn deliver(&self, event: &SampleEvent) -> Outcome {
        let request = || Outgoing::post(self.signed(event), event.body.clone());
        let outcome = self.post_patiently(request).await;
        if let Outcome::Response(response) = &outcome {
            self.slowest.set(self.slowest.get().max(response.elapsed));
        }
        outcome
    }

    /// Delivers an event whose body arrives in pieces.
    pub(super) async fn deliver_slowly(&self, event: &SampleEvent, pace: Pace) -> Outcome {
        self.post_patiently(|| Outgoing {
            pace,
            ..Outgoing::post(self.signed(event), event.body.clone())
        })
        .await
    }

    /// Posts a request that has to be accepted.
    ///
    /// A receiver that asks for patience, with a 429 or 503 and `Retry-After`, gets another.
    pub(super) async fn post_patiently(&self, request: impl Fn() -> Outgoing) -> Outcome {
        let mut retries = 0;
        loop {
            let outcome = self.post(request()).await;
            match outcome.asked_delay() {
                Some(wait) if retries < RETRIES && self.retries.get() < ALL_RETRIES => {
                    retries += 1;
                    self.retries.set(self.retries.get() + 1);
                    tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
                }
                _ => return outcome,
            }
        }
    }

    /// Posts a request with any headers and body.
    pub(super) async fn post(&self, request: Outgoing) -> Outcome {
        let before = SystemTime::now();
        let outcome = delivery::send(&self.url, request, self.timeout).await;
        match &outcome {
            Outcome::Response(response) => self.note_date(response.date, before),
            Outcome::TimedOut => self.timeouts.set(self.timeouts.get() + 1),
            Outcome::NotConnected(..) | Outcome::Broken(_) => {}
        }
        outcome
    }

    /// Keeps the smallest difference of the clocks: a delay on the way can only add to it.
    fn note_date(&self, date: Option<u64>, before: SystemTime) {
        let Some(date) = date else {
            return;
        };
        let skew = clock_skew(date, before, SystemTime::now());
        let is_smaller = |known: i64| skew.unsigned_abs() < known.unsigned_abs();
        if self.clock_skew.get().is_none_or(is_smaller) {
            self.clock_skew.set(Some(skew));
        }
    }
}

impl SampleEvent {
    /// Returns what the probe has to show of this event.
    pub(super) fn expect(&self, effect: Effect) -> Expectation {
        Expectation {
            event_id: self.id.clone(),
            event_type: self.event_type.as_str().to_owned(),
            effect,
        }
    }
}

pub(super) fn now() -> i64 {
    Timestamp::now().as_unix()
}
