//! What the processes and the database hold, every ten seconds.

use std::fmt::Write as _;
use std::time::Duration;

use super::GROWTH;
use audience::inbox::deadpool_postgres::tokio_postgres::Client;

/// The samples of one value. Times are in minutes.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Samples {
    processes: [u32; 3],
    /// In MB, of each process.
    pub(super) memory: [Series; 3],
    /// Open files and sockets of each process, and connections of the database.
    pub(super) open: [Series; 4],
    /// The table of the inbox with its indexes, in MB.
    pub(super) table: [Series; 1],
}

impl Samples {
    pub(super) fn new(processes: [(&'static str, u32); 3]) -> Self {
        let series = |name| Series {
            name,
            points: Vec::new(),
        };
        let [client, mock, receiver] = processes.map(|(name, _)| name);
        Self {
            processes: processes.map(|(_, id)| id),
            memory: [client, mock, receiver].map(series),
            open: [client, mock, receiver, "Postgres"].map(series),
            table: [series("table of the inbox")],
        }
    }

    pub(super) async fn take(&mut self, at: Duration, database: &Client) {
        let minutes = at.as_secs_f64() / 60.0;
        let query = "SELECT pg_total_relation_size('audience_inbox')::float8 / 1e6, \
            (SELECT count(*)::float8 FROM pg_stat_activity WHERE datname = current_database())";
        let row = database.query_one(query, &[]).await.unwrap();
        self.table[0].points.push((minutes, row.get(0)));
        self.open[3].points.push((minutes, row.get(1)));
        for (index, process) in self.processes.iter().enumerate() {
            let memory = resident_megabytes(*process);
            self.memory[index].points.push((minutes, memory));
            self.open[index]
                .points
                .push((minutes, open_files(*process)));
        }
    }

    /// Returns the values after the first minute, at the end, and the largest between, as a Markdown table.
    pub(super) fn table(&self) -> String {
        let mut table = String::from(
            "| | after 1 minute | at the end | at most after that minute |\n|---|--:|--:|--:|\n",
        );
        let groups: [(&str, &[Series]); 3] = [
            ("memory in MB", &self.memory),
            ("open files and connections", &self.open),
            ("MB", &self.table),
        ];
        for (unit, group) in groups {
            for series in group {
                let (first, last, most) = series.after_first_minute();
                let name = series.name;
                writeln!(
                    table,
                    "| {name}: {unit} | {first:.1} | {last:.1} | {most:.1} |"
                )
                .unwrap();
            }
        }
        table
    }

    /// Panics if the memory of a process grew after the first minute.
    pub(super) fn assert_flat(&self) {
        for series in &self.memory {
            let (first, last, _) = series.after_first_minute();
            let limit = first * (1.0 + GROWTH.0) + GROWTH.1;
            assert!(
                last <= limit,
                "the {} grew from {first} MB to {last} MB",
                series.name
            );
        }
    }
}

impl Series {
    /// Returns the first value after a minute, the last one, and the largest of these and those between.
    fn after_first_minute(&self) -> (f64, f64, f64) {
        let values = self.points.iter().filter(|(minute, _)| *minute >= 1.0);
        let values: Vec<_> = values.map(|(_, value)| *value).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let first = values.first().copied().unwrap_or_default();
        (first, values.last().copied().unwrap_or_default(), most)
    }
}

fn resident_megabytes(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = resident
        .and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .expect("the status has the resident memory");
    kib * 1024.0 / 1e6
}

fn open_files(process: u32) -> f64 {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    f64::from(u32::try_from(files.count()).unwrap())
}
