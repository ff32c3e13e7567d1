//! Random files under random faults and random kills end as one sequential run of the same file would.
//!
//! Where an attempt was lost, a created contact may be reported as updated or skipped. So rows are compared
//! by whether they were applied, and if not, by their code.

use std::time::Duration;

use audience::contacts::Contacts;
use audience::import::{ImportReport, ImportRow};
use audience::mock::{Fault, MockServer};
use audience::{Client, RetryPolicy};
use futures_util::StreamExt;

use super::JournalPath;
use super::random::Random;
use super::reference::{
    Audience, End, Style, TOPICS, apply, audience_of, end_of, random_row, seeds,
};
use support::cancellation::CountingProxy;
use support::in_time;

async fn mock() -> MockServer {
    let mut builder = MockServer::builder();
    for topic in TOPICS {
        builder = builder.topic(topic, true);
    }
    builder.seed(seeds()).start().await
}

/// A client whose calls do not fail for good unless they are meant to.
fn contacts(server: &MockServer, attempts: u32) -> Contacts {
    contacts_at(server.url(), server, attempts)
}

fn contacts_at(url: &str, server: &MockServer, attempts: u32) -> Contacts {
    let delay = Duration::from_millis(2);
    let policy = RetryPolicy::exponential().base_delay(delay);
    let policy = policy.max_delay(delay).max_attempts(attempts);
    let client = Client::builder(url, server.full_key()).retry(policy);
    client.build().unwrap().contacts()
}

fn random_fault(random: &mut Random) -> Fault {
    match random.below(8) {
        0 => Fault::status(429),
        1 => Fault::status(503),
        2 => Fault::close_before(),
        3 => Fault::close_after(),
        4 => Fault::close_mid_body(),
        5 => Fault::close_reset(),
        6 => Fault::garbage(),
        _ => Fault::delay(Duration::from_millis(20)),
    }
}

struct Case {
    random: Random,
    rows: Vec<ImportRow>,
    expected: (Audience, Vec<End>),
}

impl Case {
    async fn new(seed: u64, strict: bool) -> (Self, MockServer) {
        let mut random = Random::new(seed);
        let server = mock().await;
        let count = 1 + random.below(900);
        let addresses = 1 + random.below(count + 50);
        let style = Style { addresses, strict };
        let rows: Vec<_> = (2..count + 2)
            .map(|line| random_row(&mut random, line, style))
            .collect();
        let mut audience = audience_of(&server);
        let ends = apply(&mut audience, rows.clone());
        let expected = (audience, ends);
        let case = Self {
            random,
            rows,
            expected,
        };
        (case, server)
    }

    fn add_faults(&mut self, server: &MockServer, count: u64, path: &str) {
        for _ in 0..count {
            let after = self.random.below(30);
            let fault = random_fault(&mut self.random);
            server.fault(fault.path(path).after(after).times(1));
        }
    }

    /// Imports the rows to the end, and checks state, rows and report.
    async fn finish(self, server: &MockServer, contacts: &Contacts, journal: Option<&JournalPath>) {
        let mut import = contacts.import(self.rows);
        if let Some(journal) = journal {
            import = import.journal(journal.open());
        }
        let mut outcomes = import.outcomes();
        let mut ends = Vec::new();
        while let Some((row, outcome)) = outcomes.next().await {
            ends.push(end_of(&row, &outcome));
        }
        let report = outcomes.finish().unwrap();

        let (audience, expected) = self.expected;
        assert_eq!(ends, expected);
        assert_eq!(audience_of(server), audience);
        check_report(&report, &expected);
        assert!(server.requests().iter().all(|request| {
            !request.path.ends_with("/subscribe") && request.status != Some(401)
        }));
    }
}

fn check_report(report: &ImportReport, ends: &[End]) {
    let applied = report.created() + report.updated() + report.skipped();
    let expected = ends.iter().filter(|(_, code)| code.is_none()).count();

    assert_eq!(applied, expected as u64);
    assert_eq!(report.total(), ends.len() as u64);
    let count = |wanted: &str| {
        let found = ends
            .iter()
            .filter(|(_, code)| code.as_deref() == Some(wanted));
        found.count() as u64
    };
    for (code, refused) in report.refused_by_code() {
        assert_eq!(refused, count(code), "{code}");
    }
    assert_eq!(report.opt_out_failed(), count("opt_out_failed"));
    assert_eq!((report.not_sent(), report.unknown()), (0, 0));
    assert_eq!(report.is_complete(), report.opt_out_failed() == 0);
}

/// How many random files each test imports. Set `AUDIENCE_MODEL_CASES` to try more.
fn cases() -> u64 {
    let cases = std::env::var("AUDIENCE_MODEL_CASES").ok();
    cases.map_or(12, |cases| cases.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_in_parallel_end_as_one_row_after_another() {
    for seed in 0..cases() {
        println!("seed {seed}");
        let (case, server) = Case::new(seed, true).await;
        let contacts = contacts(&server, 4);

        in_time(case.finish(&server, &contacts, None)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_requests_and_responses_do_not_change_the_end() {
    for seed in 1_000..1_000 + cases() {
        println!("seed {seed}");
        let (mut case, server) = Case::new(seed, false).await;
        case.add_faults(&server, 15, "/contacts/batch");
        case.add_faults(&server, 15, "/contacts/*/unsubscribe");
        let contacts = contacts(&server, 40);

        in_time(case.finish(&server, &contacts, None)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_is_killed_again_and_again_ends_as_if_it_was_not() {
    for seed in 2_000..2_000 + cases() {
        println!("seed {seed}");
        let (mut case, server) = Case::new(seed, false).await;
        let journal = JournalPath::new();
        let proxy = CountingProxy::start(server.url().trim_start_matches("http://")).await;
        let url = format!("http://{}", proxy.address());

        for _ in 0..case.random.below(6) {
            case.add_faults(&server, 5, "/contacts*");
            let limit = Duration::from_micros(case.random.below(60_000));
            // A client of its own, whose connections end with it.
            let contacts = contacts_at(&url, &server, 40);
            let import = contacts.import(case.rows.clone()).journal(journal.open());
            drop(contacts);
            let _ = tokio::time::timeout(limit, import.into_future()).await;
            // What is in flight arrives before the next import starts.
            proxy.at_most(0).await;
        }
        server.clear_faults();

        let contacts = contacts_at(&url, &server, 40);
        in_time(case.finish(&server, &contacts, Some(&journal))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_failed_for_good_are_sent_by_the_next_import_in_the_same_order() {
    for seed in 3_000..3_000 + cases() {
        println!("seed {seed}");
        let (mut case, server) = Case::new(seed, false).await;
        let journal = JournalPath::new();
        let contacts = contacts(&server, 1);

        for _ in 0..case.random.below(4) {
            case.add_faults(&server, 6, "/contacts/batch");
            let import = contacts.import(case.rows.clone()).journal(journal.open());
            let report = in_time(import).await.unwrap();
            assert_eq!(report.total(), case.rows.len() as u64);
        }
        server.clear_faults();

        in_time(case.finish(&server, &contacts, Some(&journal))).await;
    }
}
