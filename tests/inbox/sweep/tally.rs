//! What the effects in the database say about a sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use super::effects::{COMPLETION, Effect};
use super::receiver::Mode;

/// The counts of a sweep.
pub(super) struct Tally {
    pub(super) events: usize,
    pub(super) deliveries: usize,
    pub(super) kills: usize,
    pub(super) restarts: usize,
    pub(super) lost: Vec<String>,
    /// Second and further effects of an event, that a crash explains.
    pub(super) explained: usize,
    /// The same, that nothing explains.
    pub(super) unexplained: Vec<String>,
}

/// What went wrong on purpose.
#[derive(Default)]
pub(super) struct Crashes {
    /// The processes that were killed.
    pub(super) killed: BTreeSet<i64>,
    /// When the database was down, in Unix seconds.
    pub(super) outages: Vec<Range<f64>>,
    /// When the machine stood still for so long that a lease may have ended, in Unix seconds.
    pub(super) stalls: Vec<Range<f64>>,
}

impl Tally {
    pub(super) fn new(
        ids: &[String],
        effects: &[Effect],
        crashes: &Crashes,
        deliveries: usize,
    ) -> Self {
        let mut by_event: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
        let mut completed_at: BTreeMap<&str, f64> = BTreeMap::new();
        for effect in effects {
            if effect.generation == COMPLETION {
                completed_at.entry(&effect.event).or_insert(effect.at);
            } else {
                by_event.entry(&effect.event).or_default().push(effect);
            }
        }
        let lost = ids.iter().filter(|id| !by_event.contains_key(id.as_str()));
        let (mut explained, mut unexplained) = (0, Vec::new());
        for effects in by_event.values() {
            for pair in effects.windows(2) {
                let completed_at = completed_at.get(pair[0].event.as_str());
                if crashes.explain(pair[0], pair[1], completed_at.copied()) {
                    explained += 1;
                } else {
                    unexplained.push(format!("{pair:?}"));
                }
            }
        }
        Self {
            events: ids.len(),
            deliveries,
            kills: crashes.killed.len(),
            restarts: crashes.outages.len(),
            lost: lost.cloned().collect(),
            explained,
            unexplained,
        }
    }

    pub(super) fn doubled(&self) -> usize {
        self.explained + self.unexplained.len()
    }

    pub(super) fn assert_nothing_lost_and_doubles_explained(&self, mode: Mode) {
        assert!(self.kills > 0, "nothing was killed");
        assert!(self.lost.is_empty(), "lost: {:?}", self.lost);
        assert!(
            self.unexplained.is_empty(),
            "doubled: {:#?}",
            self.unexplained
        );
        if matches!(mode, Mode::Transaction | Mode::WorkerTransaction) {
            assert_eq!(self.explained, 0, "doubled in a transaction");
        }
    }
}

impl Crashes {
    /// Returns whether the process of the first effect ended, or the database was down or the machine stood still, before
    /// the first could be completed and the second was made. Nothing explains an effect after the completion.
    fn explain(&self, first: &Effect, second: &Effect, completed_at: Option<f64>) -> bool {
        if completed_at.is_some_and(|completed_at| completed_at < second.at) {
            return false;
        }
        let is_between = |time: &Range<f64>| time.start <= second.at && first.at <= time.end;
        let mut times = self.outages.iter().chain(&self.stalls);
        self.killed.contains(&first.generation) || times.any(is_between)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events in {} deliveries, {} kills, {} restarts of the database: {} lost, {} doubled by a crash, {} doubled otherwise",
            self.events,
            self.deliveries,
            self.kills,
            self.restarts,
            self.lost.len(),
            self.explained,
            self.unexplained.len()
        )
    }
}
