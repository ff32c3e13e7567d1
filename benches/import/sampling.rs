//! Measures several ways to do the same thing, in turn.

use std::time::{Duration, Instant};

/// How much to measure, where the command line says so.
pub(crate) struct Sizes {
    pub(crate) rows: Option<u64>,
    pub(crate) runs: Option<usize>,
}

impl Sizes {
    pub(crate) fn rows(&self, default: u64) -> u64 {
        self.rows.unwrap_or(default)
    }

    pub(crate) fn runs(&self, default: usize) -> usize {
        self.runs.unwrap_or(default).max(1)
    }
}

/// The times of one way, one for each run.
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// Returns the median time in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        median(self.0.iter().map(Duration::as_secs_f64))
    }

    /// Returns how often the time of this way fits into the time of the other one: the median over the runs,
    /// each compared with the other way's time in the same run.
    pub(crate) fn times_in(&self, other: &Self) -> f64 {
        let pairs = self.0.iter().zip(&other.0);
        median(pairs.map(|(own, other)| other.as_secs_f64() / own.as_secs_f64()))
    }

    /// Returns the times for `count` things, if these are the times for `measured` things.
    #[expect(clippy::cast_precision_loss, reason = "a time is not exact")]
    pub(crate) fn scaled(self, count: u64, measured: u64) -> Self {
        let factor = count as f64 / measured as f64;
        Self(
            self.0
                .into_iter()
                .map(|time| time.mul_f64(factor))
                .collect(),
        )
    }
}

/// Runs every way once in each run, beginning with another one each time, after a run that does not count.
pub(crate) fn in_turn<const N: usize>(
    runs: usize,
    ways: &mut [&mut dyn FnMut(); N],
) -> [Samples; N] {
    let mut samples = std::array::from_fn(|_| Samples(Vec::with_capacity(runs)));
    for run in 0..=runs {
        for offset in 0..N {
            let index = (run + offset) % N;
            let started = Instant::now();
            ways[index]();
            let time = started.elapsed();
            if run > 0 {
                samples[index].0.push(time);
            }
        }
    }
    samples
}

/// Returns the median. 0 if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len().is_multiple_of(2), values.get(middle)) {
        (_, None) => 0.0,
        (true, Some(upper)) => f64::midpoint(values[middle - 1], *upper),
        (false, Some(value)) => *value,
    }
}

/// Returns how many seconds the work takes.
pub(crate) fn seconds(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64()
}

/// Returns a runtime with as many threads as the machine has.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("the runtime starts")
}

pub(crate) fn one_thread() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("the runtime starts")
}
