//! What the client does during the soak.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audience::contacts::NewContact;
use audience::{Client, Method, RetryPolicy};
use futures_util::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;

use super::processes::KEY;
use super::{FIRST_MAILS, FIRST_MAILS_PER_SECOND};

/// Each of the first mails has another reader, so the mock holds an answer of each reader when the first mails are sent. No
/// reader has two rounds simultaneously: a round takes less time than it takes until the next one of this reader.
const READERS: u32 = FIRST_MAILS;
const ROUNDS_BETWEEN_LISTS: u32 = 250;
const ERRORS_SHOWN: usize = 10;

#[derive(Clone)]
pub(super) struct Load {
    client: Client,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    rounds: AtomicU32,
    calls: AtomicU64,
    failed: AtomicU64,
    errors: Mutex<Vec<String>>,
}

impl Load {
    pub(super) fn new(url: &str) -> Self {
        // Eight attempts all fail once in 25,000,000,000 calls.
        let retry = RetryPolicy::exponential().max_attempts(8);
        let client = Client::builder(url, KEY).retry(retry).build().unwrap();
        Self {
            client,
            counts: Arc::default(),
        }
    }

    /// Starts a round for one reader after the other until `end`: many each second at first, then `per_second`.
    pub(super) async fn send(self, per_second: u32, end: Instant) {
        self.create_readers().await;
        let mut rounds = JoinSet::new();
        let mut due = tokio::time::interval(Duration::from_secs(1) / FIRST_MAILS_PER_SECOND);
        for number in 0.. {
            if number == FIRST_MAILS {
                due = tokio::time::interval(Duration::from_secs(1) / per_second);
            }
            due.tick().await;
            if Instant::now() >= end {
                break;
            }
            rounds.spawn(self.clone().round(number));
            while rounds.try_join_next().is_some() {}
        }
        rounds.join_all().await;
    }

    pub(super) fn failures(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self) -> String {
        let (rounds, calls) = (&self.counts.rounds, &self.counts.calls);
        let errors = self.counts.errors.lock().unwrap();
        format!(
            "{} calls in {} rounds, {} of them failed or had a wrong result.{}{}",
            calls.load(Ordering::Relaxed),
            rounds.load(Ordering::Relaxed),
            self.failures(),
            if errors.is_empty() { "" } else { "\n- " },
            errors.join("\n- ")
        )
    }

    async fn create_readers(&self) {
        let import = self.client.contacts().import((0..READERS).map(|number| {
            let name = format!("Reader {number}");
            NewContact::new(address(number)).first_name(name)
        }));
        // If the response to a batch is lost, the retry updates what the first attempt created.
        let imported = import
            .await
            .map(|report| report.created() + report.updated());
        if let Some(applied) = self.count(imported) {
            self.expect("readers", &u64::from(READERS), &applied);
        }
    }

    /// Opts a reader in or out, looks whether the service has it, and sends the reader a mail.
    async fn round(self, number: u32) {
        let contacts = self.client.contacts();
        let reader = address(number % READERS);
        let wanted = (number / READERS).is_multiple_of(2);
        let topic = match wanted {
            true => contacts.subscribe(&reader).topic("news").idempotent().await,
            false => contacts.unsubscribe(&reader).topic("news").await,
        };
        self.count(topic);
        if let Some(contact) = self.count(contacts.retrieve(&reader).await) {
            self.expect("answer", &Some(&wanted), &contact.topics.get("news"));
        }
        let mail = serde_json::json!({"from": "us@example.com", "to": reader, "subject": "News", "text": "Hello"});
        let request = self.client.request(Method::POST, ["emails"]).json(&mail);
        self.count(request.unwrap().idempotent().await);
        if number.is_multiple_of(ROUNDS_BETWEEN_LISTS) {
            let listed = contacts.list().limit(100).stream().take(1_000);
            let listed = listed.try_fold(0, async |sum, _| Ok(sum + 1)).await;
            if let Some(count) = self.count(listed) {
                self.expect("listed contacts", &1_000, &count);
            }
        }
        self.counts.rounds.fetch_add(1, Ordering::Relaxed);
    }

    fn count<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> Option<T> {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail(error.to_string());
                None
            }
        }
    }

    fn expect<T: PartialEq + std::fmt::Debug>(&self, what: &str, expected: &T, found: &T) {
        if expected != found {
            self.fail(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }

    fn fail(&self, message: String) {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        let mut errors = self.counts.errors.lock().unwrap();
        if errors.len() < ERRORS_SHOWN {
            errors.push(message);
        }
    }
}

fn address(number: u32) -> String {
    format!("reader{number:05}@example.com")
}
