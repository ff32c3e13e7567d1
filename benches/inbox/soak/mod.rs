//! The client, the mock, and a receiver with an inbox in Postgres, for an hour, while one request in twenty, one
//! delivery in twenty and one handler in twenty fail: no call may fail, no event may be lost or handled twice, and no
//! process may grow.
//!
//! The mock and the receiver are processes of their own. This process is the client.

mod load;
mod plot;
mod processes;
mod samples;

use std::path::Path;
use std::time::{Duration, Instant};

use audience::inbox::deadpool_postgres::tokio_postgres::Client;
use clap::{Args, ValueEnum};

use self::load::Load;
use self::processes::Process;
use self::samples::Samples;
use crate::postgres_server::{self, Postgres};

/// Which requests, deliveries and handlers fail.
const FAULTY: f64 = 0.05;
/// The mock keeps this many mails. They are sent first, quickly, each to another reader, because the mock grows until
/// then.
const FIRST_MAILS: u32 = 10_000;
const FIRST_MAILS_PER_SECOND: u32 = 250;
const BETWEEN_SAMPLES: Duration = Duration::from_secs(10);
/// A delivery that failed is attempted again after 36 s, 72 s and so on.
const DRAIN_LIMIT: Duration = Duration::from_secs(15 * 60);
/// How much a process may grow after the first minute: this part of its memory, and this many MB.
const GROWTH: (f64, f64) = (0.1, 2.0);

#[derive(Args)]
pub(crate) struct Settings {
    /// How long the soak takes.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// How many mails are sent each second. Each causes two deliveries and three other requests.
    #[arg(long, default_value_t = 25)]
    mails: u32,
    /// Writes the plot of the soak to this file.
    #[arg(long)]
    plot: Option<std::path::PathBuf>,
    /// What this process is in a soak that another process runs.
    #[arg(long, hide = true, requires = "address")]
    role: Option<Role>,
    /// The URL of the receiver for the mock, or of the database for the receiver.
    #[arg(long, hide = true)]
    address: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Mock,
    Receiver,
}

impl Settings {
    /// Runs the mock or the receiver, if this process is to be one. Returns whether it was.
    pub(crate) fn run_role(&self) -> bool {
        let (Some(role), Some(address)) = (self.role, &self.address) else {
            return false;
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        match role {
            Role::Mock => runtime.block_on(processes::mock(address)),
            Role::Receiver => runtime.block_on(processes::receiver(address)),
        }
        true
    }
}

/// Runs the soak and prints what it found. Panics if it found a fault of ours.
pub(crate) async fn measure(settings: &Settings, folder: &Path) {
    let postgres = match Postgres::start(folder).await {
        Ok(postgres) => postgres,
        Err(reason) => return println!("Soak: skipped, {reason}\n"),
    };
    let url = postgres.database().await;
    let database = postgres_server::connect(&url).await.unwrap();
    let receiver = Process::start(Role::Receiver, &url);
    let mock = Process::start(Role::Mock, &receiver.address);
    let load = Load::new(&mock.address);
    let mut samples = Samples::new([
        ("client", std::process::id()),
        ("mock", mock.id()),
        ("receiver", receiver.id()),
    ]);

    let started = Instant::now();
    let length = Duration::from_secs_f64(settings.minutes * 60.0);
    let sending = tokio::spawn(load.clone().send(settings.mails, started + length));
    let mut due = tokio::time::interval(BETWEEN_SAMPLES);
    while !sending.is_finished() {
        due.tick().await;
        samples.take(started.elapsed(), &database).await;
    }
    sending.await.unwrap();

    let counts = mock.stop_faults();
    let drained = drain(&database, counts.events).await;
    samples.take(started.elapsed(), &database).await;
    println!("## {} minutes with faults\n", settings.minutes);
    println!("{}", load.report());
    println!("{}", counts.report());
    println!("{}", drained.report(counts.events));
    println!("\n{}", samples.table());
    if let Some(path) = &settings.plot {
        std::fs::write(path, plot::draw(&samples)).unwrap();
    }
    let failures = load.failures() + drained.failures(counts.events);
    assert_eq!(failures, 0, "calls or events failed, see above");
    samples.assert_flat();
}

/// What the receiver handled in the end.
struct Drained {
    handled: i64,
    distinct: i64,
    parked: i64,
    took: Duration,
}

/// Waits until every event was handled, or for 15 minutes.
async fn drain(database: &Client, events: i64) -> Drained {
    let start = Instant::now();
    loop {
        let query = "SELECT count(*), count(DISTINCT event), \
            (SELECT count(*) FROM audience_inbox WHERE state = 'parked') FROM handled";
        let row = database.query_one(query, &[]).await.unwrap();
        let drained = Drained {
            handled: row.get(0),
            distinct: row.get(1),
            parked: row.get(2),
            took: start.elapsed(),
        };
        if drained.distinct >= events || start.elapsed() > DRAIN_LIMIT {
            return drained;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Drained {
    fn failures(&self, events: i64) -> u64 {
        let failed = (events - self.distinct) + (self.handled - self.distinct) + self.parked;
        u64::try_from(failed).unwrap()
    }

    fn report(&self, events: i64) -> String {
        format!(
            "{events} events: {} lost, {} handled twice, {} parked. The last one was handled {:.0} s after the end.",
            events - self.distinct,
            self.handled - self.distinct,
            self.parked,
            self.took.as_secs_f64()
        )
    }
}
