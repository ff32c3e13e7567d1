//! A process that syncs a table is killed at random moments and started again.
//!
//! Set `AUDIENCE_KILLS` for a long run, for example to 100.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use audience::contacts::NewContact;
use audience::import::{ImportRow, OptOut, SyncRow, SyncState};
use audience::mock::MockServer;
use audience::{Client, RetryPolicy};

use super::StatePath;
use crate::import::random::Random;

/// The variables by which the test tells its process what to do.
const URL: &str = "AUDIENCE_SYNC_KILLED_URL";
const KEY: &str = "AUDIENCE_SYNC_KILLED_KEY";
const STATE: &str = "AUDIENCE_SYNC_KILLED_STATE";
const NIGHT: &str = "AUDIENCE_SYNC_KILLED_NIGHT";

const ROWS: u64 = 1_000;

/// The table of a night: each time, some rows are new, changed, moved, opted out or deleted.
fn table(night: u64) -> impl Iterator<Item = SyncRow> + Send + 'static {
    (0..ROWS + 50 * night).map(move |key| {
        let mut random = Random::new(key);
        // The night in which each thing happens to the row.
        let mut when = |share: u64| random.below(share);
        let moved = u64::from(night > when(40));
        let mut contact = NewContact::new(format!("{key}-{moved}@x.io"));
        contact = contact.property("plan", u64::from(night > when(10)));
        let mut row = ImportRow::new(contact);
        if night > when(40) {
            row = row.opt_out(OptOut::Topic("news".to_owned()));
        }
        let row = SyncRow::new(key, row).subscribed(night < when(40));
        row.deleted(night > when(60))
    })
}

#[test]
fn the_process_that_is_killed() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let variable = |name| std::env::var(name).unwrap();
    let delay = Duration::from_millis(5);
    let policy = RetryPolicy::exponential()
        .base_delay(delay)
        .max_delay(delay);
    let client = Client::builder(url, variable(KEY)).retry(policy.max_attempts(40));
    let contacts = client.build().unwrap().contacts();
    let state = SyncState::open(variable(STATE)).unwrap();
    let night = variable(NIGHT).parse().unwrap();

    let sync = contacts.sync(table(night), state).leave_at_most(ROWS);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime.block_on(sync.into_future()).unwrap();

    assert!(report.is_complete(), "{report}");
}

fn start(server: &MockServer, state: &StatePath, night: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "sync::killed::the_process_that_is_killed"])
        .env(URL, server.url())
        .env(KEY, server.full_key())
        .env(STATE, &state.0)
        .env(NIGHT, night.to_string())
        .stdout(Stdio::null());
    command
}

#[test]
fn a_process_that_is_killed_every_night_ends_as_one_that_is_not() {
    let kills = std::env::var("AUDIENCE_KILLS").ok();
    let kills: u64 = kills.map_or(3, |kills| kills.parse().unwrap());
    let (killed_server, server) = (mock(), mock());
    let (killed_state, state) = (StatePath::new(), StatePath::new());
    let mut random = Random::new(u64::from(std::process::id()));
    let mut killed = 0;

    for night in 0..3 {
        // What a whole night sends, so that the kills come at random places of it.
        server.clear_requests();
        assert!(start(&server, &state, night).status().unwrap().success());
        let requests = server.requests().len() as u64;
        killed_server.clear_requests();
        for _ in 0..kills {
            let end = killed_server.requests().len() as u64 + random.below(requests / kills + 1);
            let mut process = start(&killed_server, &killed_state, night).spawn().unwrap();
            let give_up = Instant::now() + Duration::from_secs(600);
            while process.try_wait().unwrap().is_none()
                && (killed_server.requests().len() as u64) < end
            {
                assert!(Instant::now() < give_up);
                std::thread::sleep(Duration::from_micros(500));
            }
            std::thread::sleep(Duration::from_micros(random.below(5_000)));
            process.kill().unwrap();
            killed += u64::from(!process.wait().unwrap().success());
        }
        assert!(
            start(&killed_server, &killed_state, night)
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(contacts(&killed_server), contacts(&server), "night {night}");
    }
    println!("{killed} of {} processes were killed", 3 * kills);
    assert!(server.contacts().iter().any(|contact| contact.unsubscribed));
}

fn mock() -> MockServer {
    MockServer::builder().topic("news", true).start_blocking()
}

/// The contacts without what depends on when they were created.
fn contacts(server: &MockServer) -> Vec<String> {
    let mut contacts: Vec<_> = server
        .contacts()
        .into_iter()
        .map(|contact| {
            let consent = (
                contact.unsubscribed,
                contact.unsubscribe_reason,
                contact.answers,
            );
            format!("{} {:?} {consent:?}", contact.email, contact.properties)
        })
        .collect();
    contacts.sort();
    contacts
}
