//! How much the peak memory of a process grows, measured in a process that does nothing else.

use std::process::Command;

use audience::contacts::Contacts;
use audience::import::Journal;
use clap::{Args, ValueEnum};
use futures_util::TryStreamExt;

use crate::by_hand::ByHand;
use crate::figure::{Aim, Figure, grouped};
use crate::rows;
use crate::sampling::{Sizes, median, runtime};
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
