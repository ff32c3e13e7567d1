//! How much the peak memory of a process grows, measured in a process that does nothing else.

use std::path::PathBuf;
use std::process::Command;

use audience::contacts::Contacts;
use audience::import::{Journal, SyncRow, SyncState};
use clap::{Args, ValueEnum};
use futures_util::TryStreamExt;

use crate::by_hand::ByHand;
use crate::figure::{Aim, Figure, grouped};
use crate::rows;
use crate::sampling::{Sizes, median, runtime, seconds};
use crate::server::{self, Server};

#[derive(Args)]
pub(crate) struct MemorySettings {
    work: Work,
    url: String,
    count: u64,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Work {
    Import,
    ImportWithJournal,
    ImportByHand,
    Sync,
    SyncOfOnePercent,
    SyncOfAll,
    Stream,
    StreamByHand,
}

/// An import of very many rows.
pub(crate) fn import(sizes: &Sizes) -> Vec<Figure> {
    let (count, server) = (sizes.rows(1_000_000), Server::start(&[]));
    let by_hand = growth(Work::ImportByHand, &server, count, sizes.runs(3));
    let figure = |work, how| {
        let growth = growth(work, &server, count, sizes.runs(3));
        Figure::new(
            "import-memory",
            growth,
            "MB more memory at the peak",
            Aim::AtMost(32.0),
        )
        .what(format!(
            "import of {} rows from a generator{how}",
            grouped(count)
        ))
        .beside("the process before it")
        .note(format!("a loop by hand: {by_hand:.1}"))
    };
    vec![
        figure(Work::Import, ""),
        figure(Work::ImportWithJournal, ", with a journal"),
    ]
}

/// A sync of very many rows: the first one, and those that find that no row, one in a hundred or each has changed.
pub(crate) fn sync(sizes: &Sizes) -> Vec<Figure> {
    let (count, server) = (sizes.rows(1_000_000), Server::start(&[]));
    let state = state_of(server.url());
    let measure = |what: &str, work: Work, runs, memory: f64, time: f64| {
        let mut grown = 0.0;
        let taken = median((0..runs).map(|_| seconds(|| grown = growth(work, &server, count, 1))));
        let what = format!("sync of {} rows, {what}", grouped(count));
        [
            Figure::new(
                "sync",
                grown,
                "MB more memory at the peak",
                Aim::AtMost(memory),
            )
            .what(&what)
            .beside("the process before it"),
            Figure::new("sync", taken, "seconds", Aim::AtMost(time))
                .what(&what)
                .beside("nothing"),
        ]
    };
    let figures = [
        measure("all new", Work::Sync, 1, 320.0, 60.0),
        measure("none changed", Work::Sync, sizes.runs(3), 90.0, 40.0),
        measure("1 % changed", Work::SyncOfOnePercent, 1, 90.0, 40.0),
        measure("all changed", Work::SyncOfAll, 1, 320.0, 120.0),
    ];
    std::fs::remove_file(state).expect("the state can be removed");
    figures.into_iter().flatten().collect()
}

/// The state of the syncs with a server, which several processes share.
fn state_of(url: &str) -> PathBuf {
    let port = url.rsplit(':').next().unwrap_or_default();
    std::env::temp_dir().join(format!("audience-bench-{port}.sync"))
}

/// Returns how much the peak memory of a process grows while it works, in megabytes: the median.
pub(crate) fn growth(work: Work, server: &Server, count: u64, runs: usize) -> f64 {
    let program = std::env::current_exe().expect("the benchmark knows its own file");
    let name = work.to_possible_value().expect("no value is skipped");
    median((0..runs).map(|_| {
        let output = Command::new(&program)
            .args(["memory", name.get_name(), server.url(), &count.to_string()])
            .output()
            .expect("the process starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().expect("the process prints a number")
    }))
}

/// Works, and prints how many megabytes the peak memory of this process has grown by.
pub(crate) fn run(settings: &MemorySettings) {
    let contacts = server::contacts(&settings.url);
    let before = peak_kib();
    match settings.work {
        Work::Import => import_rows(&contacts, settings.count, None),
        Work::ImportWithJournal => {
            let name = format!("audience-bench-{}.journal", std::process::id());
            let file = std::env::temp_dir().join(name);
            let journal = Journal::open(&file).expect("the journal opens");
            import_rows(&contacts, settings.count, Some(journal));
            std::fs::remove_file(&file).expect("the journal can be removed");
        }
        Work::ImportByHand => {
            let by_hand = ByHand::new(&settings.url);
            let created = runtime().block_on(by_hand.import(rows::rows(settings.count), 8));
            assert_eq!(created.expect("no batch fails"), settings.count);
        }
        Work::StreamByHand => {
            let by_hand = ByHand::new(&settings.url);
            let mut seen = 0;
            let listed = runtime().block_on(by_hand.list_all(|_| seen += 1));
            listed.expect("no page fails");
            assert_eq!(seen, settings.count);
        }
        Work::Sync => sync_rows(&contacts, settings, |_| 3),
        Work::SyncOfOnePercent => {
            sync_rows(
                &contacts,
                settings,
                |row| if row % 100 == 0 { 4 } else { 3 },
            );
        }
        Work::SyncOfAll => sync_rows(&contacts, settings, |_| 5),
        Work::Stream => stream(&contacts, settings.count),
    }
    println!("{}", (peak_kib() - before) / 1_000.0 * 1.024);
}

fn import_rows(contacts: &Contacts, count: u64, journal: Option<Journal>) {
    let import = contacts.import(rows::contacts(count));
    let import = match journal {
        Some(journal) => import.journal(journal),
        None => import,
    };
    let report = runtime().block_on(import.into_future());
    assert_eq!(report.expect("the import ends").created(), count);
}

/// Syncs a table whose rows have these numbers of seats.
fn sync_rows(contacts: &Contacts, settings: &MemorySettings, seats: fn(usize) -> u32) {
    let state = SyncState::open(state_of(&settings.url)).expect("the state opens");
    let rows = rows::contacts(settings.count).enumerate();
    let rows =
        rows.map(move |(key, contact)| SyncRow::new(key, contact.property("seats", seats(key))));
    let report = runtime().block_on(contacts.sync(rows, state).into_future());
    let report = report.expect("the sync ends");
    assert!(report.is_complete(), "{report}");
}

fn stream(contacts: &Contacts, count: u64) {
    let stream = contacts.list().limit(200).stream();
    let counted = runtime().block_on(stream.try_fold(0, async |sum, _| Ok(sum + 1)));
    assert_eq!(counted.expect("no page fails"), count);
}

/// Returns the peak memory of this process in KiB.
fn peak_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status");
    let status = status.expect("Linux tells the peak memory in /proc");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = peak.and_then(|peak| peak.split_whitespace().next());
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("the status has the peak memory")
}
