//! The loop of a worker: take what is due, run it, take more.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::event;
use super::report::{EventOutcome, WorkerReport};
use super::settings::WorkerSettings;
use crate::inbox::attempt::Attempt;
use crate::inbox::error::InboxError;
use crate::inbox::shared::Shared;
use crate::inbox::store::Take;
use crate::inbox::token::Token;
use crate::webhooks::Event;

/// How long to wait before the store is asked again after it failed.
const STORE_DELAY: Duration = Duration::from_secs(1);

pub(super) struct Drain<F> {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Arc<WorkerSettings>,
    pub(super) handler: Arc<F>,
    tasks: JoinSet<EventOutcome>,
    report: WorkerReport,
}

/// What taking events found.
enum Taken {
    /// As many as there was room for: more may be due.
    All,
    /// Fewer: nothing else is due.
    Rest,
    /// The store failed for now.
    Failed,
}

impl<F, Fut, E> Drain<F>
where
    F: Fn(Event, Attempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send,
{
    pub(super) fn new(shared: Arc<Shared>, settings: WorkerSettings, handler: F) -> Self {
        Self {
            shared,
            settings: Arc::new(settings),
            handler: Arc::new(handler),
            tasks: JoinSet::new(),
            report: WorkerReport::default(),
        }
    }

    /// Drains until `shutdown` is ready, then lets what runs finish.
    pub(super) async fn run_until(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<WorkerReport, InboxError> {
        let mut shutdown = pin!(shutdown);
        let shared = Arc::clone(&self.shared);
        let mut look_at = Instant::now();
        loop {
            let has_room = self.has_room();
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = self.tasks.join_next() => self.count(ended),
                () = shared.accepted.notified(), if has_room => look_at = Instant::now(),
                () = tokio::time::sleep_until(look_at), if has_room => {}
            }
            if self.has_room() && look_at <= Instant::now() {
                look_at = Instant::now()
                    + match self.take().await? {
                        Taken::All => Duration::ZERO,
                        Taken::Rest => self.settings.poll_interval,
                        Taken::Failed => STORE_DELAY,
                    };
            }
        }
        self.finish().await;
        Ok(self.report)
    }

    /// Drains until nothing is due.
    pub(super) async fn run_until_idle(mut self) -> Result<WorkerReport, InboxError> {
        loop {
            let taken = self.take().await?;
            if matches!(taken, Taken::Failed) {
                tokio::time::sleep(STORE_DELAY).await;
            }
            match self.tasks.join_next().await {
                Some(ended) => self.count(ended),
                None if matches!(taken, Taken::Rest) => return Ok(self.report),
                None => {}
            }
            while !self.has_room()
                && let Some(ended) = self.tasks.join_next().await
            {
                self.count(ended);
            }
        }
    }

    /// Returns whether enough handlers could start to make asking the store worth its while.
    fn has_room(&self) -> bool {
        self.tasks.is_empty() || self.free() >= self.settings.concurrency.div_ceil(4)
    }

    /// Returns how many more handlers may run. A faulty store may have returned more events than it was asked for.
    fn free(&self) -> usize {
        self.settings.concurrency.saturating_sub(self.tasks.len())
    }

    async fn take(&mut self) -> Result<Taken, InboxError> {
        let limit = self.free();
        if limit == 0 {
            return Ok(Taken::All);
        }
        self.shared.purge_if_due();
        let token = Token::random();
        let taken = self.shared.store.take(Take {
            endpoint: &self.shared.settings.endpoint,
            token,
            lease: self.shared.settings.lease,
            limit,
        });
        let taken = match taken.await {
            Ok(taken) => taken,
            Err(error) => {
                self.shared.store_failed("take", &error);
                if error.is_temporary() {
                    return Ok(Taken::Failed);
                }
                self.finish().await;
                return Err(error.into());
            }
        };
        let more = taken.len() >= limit;
        for event in taken {
            self.shared.counters.record_lag(event.overdue);
            let shared = Arc::clone(&self.shared);
            let settings = Arc::clone(&self.settings);
            let handler = Arc::clone(&self.handler);
            self.tasks.spawn(async move {
                event::handle(&shared, &settings, event, token, &*handler).await
            });
        }
        Ok(if more { Taken::All } else { Taken::Rest })
    }

    async fn finish(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            self.count(ended);
        }
    }

    fn count(&mut self, ended: Result<EventOutcome, tokio::task::JoinError>) {
        // A task that was cut off, by the end of its runtime or a panic of the store, recorded nothing.
        self.report.add(ended.unwrap_or(EventOutcome::Lost));
    }
}
