//! What the figures depend on.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Instant;

const SYNCS: u32 = 50;

/// Returns the processors, the load, and the time in which the disk writes for good.
pub(crate) fn describe(folder: &Path) -> String {
    let processors = available_parallelism().map_or(1, usize::from);
    let load = load();
    let sync = sync_time(folder) * 1e6;
    format!("{processors} processors, {load}, one `fdatasync` of 4 KiB takes {sync:.0} µs")
}

/// Returns the load average, where the system tells it.
pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<_> = load.split(' ').take(3).collect();
    match averages.is_empty() || load.is_empty() {
        true => "load unknown".to_owned(),
        false => format!("load average {}", averages.join(" ")),
    }
}

fn sync_time(folder: &Path) -> f64 {
    let path = folder.join("sync");
    let mut file = File::create(&path).unwrap();
    let start = Instant::now();
    for _ in 0..SYNCS {
        file.write_all(&[1; 4096]).unwrap();
        file.sync_data().unwrap();
    }
    let time = start.elapsed().as_secs_f64() / f64::from(SYNCS);
    std::fs::remove_file(path).unwrap();
    time
}
