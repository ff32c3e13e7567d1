//! Random tables over several nights, most of which break, and the table changes before the next one.
//!
//! The other model says what the service has after each night. This one says what has to be true after any nights, when two
//! more have run with the last table and without a fault. Set `AUDIENCE_MODEL_CASES` to try more tables.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::time::Duration;

use audience::RetryPolicy;
use audience::contacts::NewContact;
use audience::import::{ImportRow, OptOut, SyncContacts, SyncRow};
use audience::mock::Fault;
use serde_json::Value;
use support::in_time;

use super::Nights;
use crate::import::random::Random;

const EVERYTHING: &str = "";
const NEWS: &str = "news";

type OptOuts = BTreeSet<&'static str>;

#[derive(Clone, Debug, PartialEq)]
struct Row {
    address: String,
    name: Option<String>,
    no: OptOuts,
    is_deleted: bool,
}

impl Row {
    fn to_sync(&self, key: u64) -> SyncRow {
        let mut contact = NewContact::new(self.address.as_str());
        contact.first_name.clone_from(&self.name);
        let mut row = ImportRow::new(contact);
        if self.no.contains(NEWS) {
            row = row.opt_out(OptOut::Topic(NEWS.to_owned()));
        }
        let row = SyncRow::new(key, row).deleted(self.is_deleted);
        row.subscribed(!self.no.contains(EVERYTHING))
    }
}

type Table = BTreeMap<u64, Row>;

fn live(table: &Table) -> impl Iterator<Item = (&u64, &Row)> {
    table.iter().filter(|(_, row)| !row.is_deleted)
}

/// The service refuses this address.
const REFUSED: &str = "no address";

/// Changes a table as a day does. A few addresses make moves, swaps and duplicates frequent.
fn day(table: &mut Table, random: &mut Random, addresses: u64) {
    for _ in 0..1 + random.below(3) {
        let key = random.below(4);
        let address = match random.percent(5) {
            true => REFUSED.to_owned(),
            false => format!("a{}@x.io", random.below(addresses)),
        };
        let name = random
            .percent(70)
            .then(|| format!("Name {key}-{}", random.below(2)));
        let Some(row) = table.get_mut(&key) else {
            let row = Row {
                address,
                name,
                no: OptOuts::new(),
                is_deleted: false,
            };
            table.insert(key, row);
            continue;
        };
        match random.below(8) {
            0 => row.name = name,
            1..=3 => row.address = address,
            4 => row.is_deleted = !row.is_deleted,
            5 => drop(table.remove(&key)),
            _ => {
                let opt_out = random.pick(&[EVERYTHING, NEWS]);
                if !row.no.remove(opt_out) {
                    row.no.insert(opt_out);
                }
            }
        }
    }
}

/// How a night breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Break {
    Not,
    /// The batches are applied, and their responses are lost.
    Lost,
    /// Some requests fail after this number of others.
    Fails(&'static str, u64),
    /// The plan allows this number of contacts more.
    Full(u64),
    Stopped,
    /// The process is killed after this number of requests. The next ones may still arrive.
    Killed(u64, bool),
}

impl Break {
    fn random(random: &mut Random) -> Self {
        let after = random.below(4);
        match random.below(10) {
            0 => Self::Not,
            1..=3 => Self::Lost,
            4 | 5 => {
                let paths = ["/contacts/batch", "*/unsubscribe", "/contacts/*@x.io"];
                Self::Fails(random.pick(&paths), after)
            }
            6 => Self::Full(random.below(2)),
            7 => Self::Stopped,
            _ => Self::Killed(2 * after, random.percent(50)),
        }
    }

    fn prepare(self, nights: &Nights) {
        let day = Duration::from_secs(86_400);
        match self {
            Self::Not | Self::Stopped => {}
            Self::Lost => nights
                .server
                .fault(Fault::close_after().path("/contacts/batch")),
            Self::Fails(path, after) => {
                let fails = Fault::status(501).path(path);
                nights.server.fault(fails.after(after).times(1));
            }
            Self::Full(more) => {
                let ceiling = nights.server.contact_count() as u64 + more;
                nights.server.set_ceiling(Some(ceiling));
            }
            Self::Killed(after, true) => nights.server.fault(Fault::delay(day).after(after)),
            Self::Killed(after, false) => {
                let lost = Fault::close_before().delayed_by(day);
                nights.server.fault(lost.after(after));
            }
        }
    }

    async fn run(self, nights: &Nights, sync: SyncContacts) {
        self.prepare(nights);
        nights.server.clear_requests();
        match self {
            Self::Killed(after, _) => {
                let run = tokio::spawn(sync.into_future());
                let after = usize::try_from(after).unwrap();
                while nights.server.requests().len() <= after && !run.is_finished() {
                    tokio::task::yield_now().await;
                }
                run.abort();
                let _ = run.await;
                nights.wait_for_dropped_run().await;
            }
            Self::Stopped => {
                let stopped = sync.stop_when(ready(()));
                drop(in_time(stopped.into_future()).await.unwrap());
            }
            _ => {
                drop(in_time(sync.into_future()).await.unwrap());
            }
        }
        nights.server.clear_faults();
        nights.server.set_ceiling(None);
    }
}

/// The last entry of each row in the state.
fn entries(nights: &Nights) -> BTreeMap<u64, Value> {
    let state = std::fs::read_to_string(&nights.state).unwrap_or_default();
    let records = state.lines().filter_map(|line| line.parse::<Value>().ok());
    let rows = records.filter(|record| record["row"].is_object());
    let named = rows.map(|mut record| {
        let row = record["row"].take();
        (row["key"].as_str().unwrap().parse().unwrap(), row)
    });
    named.collect()
}

/// Returns the addresses that the contact of a row has or may have.
fn addresses_of(entry: &Value) -> BTreeSet<String> {
    let to_leave = entry["to_leave"].as_array().into_iter().flatten();
    let all = to_leave.chain([&entry["address"], &entry["tried"]]);
    all.filter_map(|address| Some(address.as_str()?.to_owned()))
        .collect()
}

/// What has happened in all nights, as far as it says what may and must be true in the end.
#[derive(Debug, Default)]
struct Story {
    /// The opt-outs that a run has read of each row that the state knew.
    read: BTreeMap<u64, OptOuts>,
    /// The opt-outs that contacts may have, because a row of the table said so.
    wanted: BTreeMap<String, OptOuts>,
    /// The addresses that a run may have opted out because a row was deleted or has left them.
    left: BTreeSet<String>,
    /// The rows that no run could read at least once. Their contacts may keep the names of other rows that had the address.
    unreadable: BTreeSet<u64>,
    /// The address that each row had in the night before.
    last: BTreeMap<u64, String>,
}

impl Story {
    /// Notes what a run reads.
    fn reads(&mut self, passed: &Table, all: &Table, known: &BTreeMap<u64, Value>, night: Break) {
        for (key, row) in passed {
            let Some(entry) = known.get(key) else {
                let no = self.wanted.entry(row.address.clone()).or_default();
                no.extend(&row.no);
                continue;
            };
            let had = addresses_of(entry);
            let old = entry["address"].as_str().unwrap();
            // An opt-out of an address that another row has is not recorded before the address was looked at.
            let is_taken =
                |table: &Table| live(table).any(|(other, row)| other != key && row.address == old);
            let of_others = known
                .iter()
                .any(|(other, entry)| other != key && addresses_of(entry).contains(old));
            // And one of a row that never had a usable address ends when the row says so.
            let is_usable = old != REFUSED;
            let is_sure = old == row.address || matches!(night, Break::Not | Break::Lost);
            if is_usable && !row.is_deleted && (is_sure || !is_taken(all) && !of_others) {
                self.read.entry(*key).or_default().extend(&row.no);
            }
            let is_move = self.last.get(key) != Some(&row.address);
            for address in &had {
                let no = self.wanted.entry(address.clone()).or_default();
                no.extend(&row.no);
                let mut no = no.clone();
                if is_move && self.left.contains(address) {
                    no.insert(EVERYTHING);
                }
                // What is at an address to leave goes to the next one, and to the current one if that is refused.
                for next in [row.address.as_str(), old] {
                    let next = self.wanted.entry(next.to_owned()).or_default();
                    next.extend(&no);
                    next.extend(&row.no);
                }
                if row.is_deleted {
                    self.left.insert(address.clone());
                }
            }
            self.last.insert(*key, row.address.clone());
        }
    }

    /// Notes what a run has done.
    fn has_run(&mut self, passed: &Table, nights: &Nights) {
        let entries = entries(nights);
        for (key, entry) in entries.iter().filter(|(_, entry)| entry["is_gone"] == true) {
            self.left.extend(addresses_of(entry));
            // Whoever comes back takes the opt-out along.
            self.last.remove(key);
        }
        for contact in nights.server.contacts() {
            if !live(passed).any(|(_, row)| row.address == contact.email) {
                self.left.insert(contact.email);
            }
        }
    }

    fn assert_end(&self, table: &Table, nights: &Nights) {
        let told = || format!("{table:?}\n{self:?}");
        for contact in nights.server.contacts() {
            let address = contact.email.as_str();
            let rows = live(table).filter(|(_, row)| row.address == address);
            let rows: Vec<_> = rows.collect();
            let mut no: OptOuts = OptOuts::new();
            if contact.unsubscribed {
                no.insert(EVERYTHING);
            }
            if contact.answers.get(NEWS) == Some(&false) {
                no.insert(NEWS);
            }
            if rows.is_empty() {
                assert!(
                    contact.unsubscribed,
                    "{address} is nobody's, and subscribed: {}",
                    told()
                );
                continue;
            }
            let name = contact.first_name.unwrap_or_default();
            let has_name = |row: &Row| row.name.as_deref().unwrap_or_default() == name;
            let is_named =
                |(key, row): &(&u64, &Row)| has_name(row) || self.unreadable.contains(key);
            let is_named = rows.iter().any(is_named);
            assert!(is_named, "{address} is named {name}: {}", told());
            // An opt-out at another address does not go to an address that another row has.
            for (key, _) in rows.iter().filter(|_| rows.len() == 1) {
                let read = self.read.get(*key).cloned().unwrap_or_default();
                assert!(read.is_subset(&no), "{address} lacks {read:?}: {}", told());
            }
            let mut allowed = self.wanted.get(address).cloned().unwrap_or_default();
            if self.left.contains(address) {
                allowed.insert(EVERYTHING);
            }
            assert!(
                no.is_subset(&allowed),
                "{address} may have only {allowed:?}: {}",
                told()
            );
        }
        for (_, row) in live(table) {
            let contact = nights.server.contact(&row.address);
            assert!(contact.is_some(), "{} is missing: {}", row.address, told());
        }
    }
}

/// Returns the rows that a night passes: all, without some, or with some that cannot be read.
fn rows_of(
    table: &Table,
    is_whole: bool,
    story: &mut Story,
    random: &mut Random,
) -> (Table, Vec<SyncRow>) {
    let (mut passed, mut rows) = (Table::new(), Vec::new());
    for (key, row) in table {
        if !is_whole && random.percent(25) {
            continue;
        }
        if random.percent(8) {
            story.unreadable.insert(*key);
            let unreadable = ImportRow::unreadable("an unknown word");
            rows.push(SyncRow::new(key, unreadable));
            continue;
        }
        passed.insert(*key, row.clone());
        rows.push(row.to_sync(*key));
    }
    (passed, rows)
}

fn cases() -> u64 {
    let cases = std::env::var("AUDIENCE_MODEL_CASES").ok();
    cases.map_or(60, |cases| cases.parse().unwrap())
}

#[tokio::test]
async fn after_broken_nights_and_other_tables_nothing_is_lost_or_invented_or_left_to_do() {
    let from: u64 =
        std::env::var("AUDIENCE_MODEL_FROM").map_or(2_000, |from| from.parse().unwrap());
    for seed in from..from + cases() {
        let mut random = Random::new(seed);
        let nights = Nights::new().await;
        let (mut table, mut story) = (Table::new(), Story::default());
        let addresses = 3 + random.below(3);
        for night in 0..2 + random.below(5) {
            day(&mut table, &mut random, addresses);
            let breaks = match night {
                0 => Break::Not,
                _ => Break::random(&mut random),
            };
            let is_whole = random.percent(60);
            let deletes_missing = is_whole && random.percent(50);
            let (passed, rows) = rows_of(&table, is_whole, &mut story, &mut random);
            println!(
                "seed {seed}, night {night}: {breaks:?} {deletes_missing} {passed:?} of {table:?}"
            );
            story.reads(&passed, &table, &entries(&nights), breaks);
            let sync = nights.sync(&rows).leave_at_most(1_000);
            let sync = sync.retry(RetryPolicy::none());
            let sync = match deletes_missing {
                true => sync.deletes_missing(),
                false => sync,
            };
            breaks.run(&nights, sync).await;
            println!("{:?}", nights.calls());
            story.has_run(&passed, &nights);
        }

        for row in table.values_mut().filter(|row| row.address == REFUSED) {
            row.address = "a0@x.io".to_owned();
        }
        let rows: Vec<_> = table.iter().map(|(key, row)| row.to_sync(*key)).collect();
        println!("seed {seed}, at last {table:?}");
        story.reads(&table, &table, &entries(&nights), Break::Not);
        for _ in 0..2 {
            let whole = |sync: SyncContacts| sync.deletes_missing().leave_at_most(1_000);
            let (report, _) = nights.run_with(&rows, whole).await;
            println!("{:?}", nights.calls());
            let changes = report.changes();
            assert_eq!((changes.not_sent(), changes.unknown()), (0, 0), "{report}");
            story.has_run(&table, &nights);
        }
        story.assert_end(&table, &nights);
        let (_, calls) = nights.run(&rows).await;
        assert!(calls.is_empty(), "{calls:?}");
    }
}
