//! A process that imports a file is killed at random moments and started again.
//!
//! Set `AUDIENCE_KILL_ROWS` and `AUDIENCE_KILLS` for a long run, for example to 200000 and 20.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use audience::import::{ImportRow, Journal};
use audience::mock::{Fault, MockServer};
use audience::{Client, RetryPolicy};
use futures_util::StreamExt;

use super::JournalPath;
use super::random::Random;
use super::reference::{End, Style, TOPICS, apply, audience_of, end_of, random_row, seeds};

/// The variables by which the test tells its process what to do.
const URL: &str = "AUDIENCE_KILLED_URL";
const KEY: &str = "AUDIENCE_KILLED_KEY";
const ROWS: &str = "AUDIENCE_KILL_ROWS";
const JOURNAL: &str = "AUDIENCE_KILLED_JOURNAL";
const ENDS: &str = "AUDIENCE_KILLED_ENDS";

fn rows(count: u64) -> impl Iterator<Item = ImportRow> + Send + 'static {
    let mut random = Random::new(7);
    let style = Style {
        addresses: count,
        strict: false,
    };
    (2..count + 2).map(move |line| random_row(&mut random, line, style))
}

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().unwrap())
}

/// One process: imports the file, and writes the ends of the rows that were not applied.
async fn import(url: &str, count: u64) {
    let variable = |name| std::env::var(name).unwrap();
    let delay = Duration::from_millis(5);
    let policy = RetryPolicy::exponential().base_delay(delay);
    let policy = policy.max_delay(delay).max_attempts(40);
    let client = Client::builder(url, variable(KEY)).retry(policy);
    let contacts = client.build().unwrap().contacts();
    let journal = Journal::open(variable(JOURNAL)).unwrap();

    let mut outcomes = contacts.import(rows(count)).journal(journal).outcomes();
    let mut ends: Vec<End> = Vec::new();
    while let Some((row, outcome)) = outcomes.next().await {
        ends.extend(Some(end_of(&row, &outcome)).filter(|(_, code)| code.is_some()));
    }
    let report = outcomes.finish().unwrap();

    assert_eq!((report.not_sent(), report.unknown()), (0, 0));
    assert_eq!(report.total(), count);
    let mut file = File::create(variable(ENDS)).unwrap();
    serde_json::to_writer(&mut file, &ends).unwrap();
    file.flush().unwrap();
}

#[test]
fn the_process_that_is_killed() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(import(&url, number(ROWS, 0)));
}

/// Adds faults to 5 % of the requests that a run of all rows sends.
fn add_faults(server: &MockServer, random: &mut Random, count: u64) {
    let batches = count / 100;
    for (path, requests) in [
        ("/contacts/batch", batches),
        ("/contacts/*/unsubscribe", count / 20),
    ] {
        for _ in 0..requests.div_ceil(20) {
            let fault = match random.below(5) {
                0 => Fault::status(503),
                1 => Fault::close_before(),
                2 => Fault::close_after(),
                3 => Fault::close_mid_body(),
                _ => Fault::close_reset(),
            };
            server.fault(fault.path(path).after(random.below(requests)).times(1));
        }
    }
}

fn start(server: &MockServer, count: u64, journal: &JournalPath, ends: &PathBuf) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "import::killed::the_process_that_is_killed"])
        .env(URL, server.url())
        .env(KEY, server.full_key())
        .env(ROWS, count.to_string())
        .env(JOURNAL, &journal.0)
        .env(ENDS, ends)
        .stdout(Stdio::null());
    command
}

#[test]
fn a_process_that_is_killed_and_started_again_ends_as_one_that_is_not() {
    let (count, kills) = (number(ROWS, 4_000), number("AUDIENCE_KILLS", 5));
    let mut builder = MockServer::builder().seed(seeds());
    for topic in TOPICS {
        builder = builder.topic(topic, true);
    }
    let server = builder.start_blocking();
    let mut audience = audience_of(&server);
    let mut expected = apply(&mut audience, rows(count));
    expected.retain(|(_, code)| code.is_some());
    let mut random = Random::new(u64::from(std::process::id()));
    add_faults(&server, &mut random, count);
    let journal = JournalPath::new();
    let ends = journal.0.with_extension("ends");

    let mut killed = 0;
    let mut resumed_from = Vec::new();
    for _ in 0..kills {
        // The kill comes at a random amount of progress, and so at a random moment of a batch.
        let before = journal_length(&journal);
        let more = random.below(2 * count / (kills + 1));
        let mut process = start(&server, count, &journal, &ends).spawn().unwrap();
        let give_up = Instant::now() + Duration::from_secs(600);
        while process.try_wait().unwrap().is_none() && journal_length(&journal) < before + more {
            assert!(Instant::now() < give_up);
            std::thread::sleep(Duration::from_micros(500));
        }
        std::thread::sleep(Duration::from_micros(random.below(5_000)));
        process.kill().unwrap();
        killed += u64::from(!process.wait().unwrap().success());
        resumed_from.push(journal_length(&journal));
    }
    let last = start(&server, count, &journal, &ends).status().unwrap();

    println!("{killed} of {kills} processes were killed; journal lengths: {resumed_from:?}");
    assert!(last.success());
    let found: Vec<End> = serde_json::from_reader(File::open(&ends).unwrap()).unwrap();
    std::fs::remove_file(ends).unwrap();
    assert_eq!(found, expected);
    assert!(audience_of(&server) == audience, "the contacts differ");
}

fn journal_length(journal: &JournalPath) -> u64 {
    std::fs::metadata(journal).map_or(0, |data| data.len())
}
