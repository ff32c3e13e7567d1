//! The state of a mock server.

use tokio::task::JoinSet;

use super::delivery::SigningClock;
use super::delivery::deliveries::Deliveries;
use super::delivery::endpoints::Endpoints;
use super::delivery::event::NewEvent;
use super::exchange::Exchange;
use super::faults::{Active, Fault};
use super::journal::Journal;
use super::recorded_request::RecordedRequest;
use super::service::audience::Audience;

/// The state that a server starts with and that a reset restores.
#[derive(Clone, Debug)]
pub(super) struct InitialState {
    pub(super) audience: Audience,
    pub(super) endpoints: Endpoints,
    pub(super) signing_clock: SigningClock,
}

/// The state of a mock server. It is behind one lock, which is never held across an await.
#[derive(Debug)]
pub(super) struct State {
    pub(super) audience: Audience,
    pub(super) faults: Active<Fault>,
    pub(super) journal: Journal,
    pub(super) deliveries: Deliveries,
    /// The tasks that make delivery attempts. Dropping the set aborts them.
    pub(super) attempt_tasks: JoinSet<()>,
    /// How often the server has been reset. Attempts and waits from before a reset are abandoned.
    pub(super) resets: u64,
    /// How often a move of the clock was canceled because the clock was set to an earlier time.
    pub(super) canceled_clock_moves: u64,
    /// Whether the server is shutting down: nothing is started and nobody waits any longer.
    pub(super) is_closed: bool,
}

impl State {
    pub(super) fn new(initial: InitialState) -> Self {
        Self {
            audience: initial.audience,
            faults: Active::default(),
            journal: Journal::default(),
            deliveries: Deliveries::new(initial.endpoints, initial.signing_clock),
            attempt_tasks: JoinSet::new(),
            resets: 0,
            canceled_clock_moves: 0,
            is_closed: false,
        }
    }

    /// Restores the initial state and aborts running attempts. The numbers of events continue.
    pub(super) fn reset(&mut self, initial: InitialState) {
        self.audience = initial.audience;
        self.deliveries
            .reset(initial.endpoints, initial.signing_clock);
        self.attempt_tasks = JoinSet::new();
        self.faults.clear();
        self.journal.clear();
        self.resets += 1;
    }

    /// Handles a request to the service and publishes the events it causes. Returns whether there are any.
    pub(super) fn handle(&mut self, request: RecordedRequest, now: i64) -> (Exchange, bool) {
        let exchange = Exchange::handle(
            request,
            &mut self.audience,
            &mut self.faults,
            &mut self.journal,
            now,
        );
        (exchange, self.publish_outbox(now).is_some())
    }

    /// Publishes the events of the delayed mail that is due by `now`.
    pub(super) fn publish_delayed(&mut self, now: i64) {
        self.audience.deliver_delayed(now);
        self.publish_outbox(now);
    }

    /// Publishes the events that the audience caused. Returns the number and the id of the last, or `None` if there
    /// were none.
    pub(super) fn publish_outbox(&mut self, now: i64) -> Option<(u64, String)> {
        let events = self.audience.take_events().into_iter();
        // The audience has already recorded them as engagement.
        events
            .map(|event| self.deliveries.publish(event.into(), now))
            .last()
    }

    /// Records an event that a test sends as engagement and schedules its delivery. Returns its number and its id.
    pub(super) fn publish(&mut self, event: NewEvent, now: i64) -> (u64, String) {
        let at = event.created_at.unwrap_or(now);
        self.audience
            .record_event(&event.event_type, &event.data, at);
        self.deliveries.publish(event, now)
    }
}
