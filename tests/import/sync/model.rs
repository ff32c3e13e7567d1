//! Random tables over several nights: the service has what the rules say, with the fewest requests, also if runs are killed.
//!
//! The rules are written here a second time, one row after another. Set `AUDIENCE_MODEL_CASES` to try more tables.

use std::collections::{BTreeMap, BTreeSet};

use audience::Client;
use audience::contacts::{NewContact, OptOutReason};
use audience::import::{ImportRow, OptOut, SyncContacts, SyncRow};
use audience::mock::{MockServer, StoredContact};
use serde_json::Value;
use support::cancellation::CountingProxy;
use support::{fast_retries, in_time};

use super::Nights;
use crate::import::random::Random;

/// A contact, as far as a sync can change it.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    name: String,
    plan: Option<String>,
    /// Empty if the contact is subscribed.
    reason: String,
    no: BTreeSet<String>,
}

type Audience = BTreeMap<String, State>;

fn audience_of(server: &MockServer) -> Audience {
    let contacts = server.contacts().into_iter();
    contacts
        .map(|contact| (contact.email.clone(), state_of(contact)))
        .collect()
}

fn state_of(contact: StoredContact) -> State {
    let answers = contact.answers.into_iter();
    State {
        name: contact.first_name.unwrap_or_default(),
        plan: contact
            .properties
            .get("plan")
            .map(|plan| plan.as_str().unwrap().to_owned()),
        reason: match contact.unsubscribed {
            true => contact.unsubscribe_reason,
            false => String::new(),
        },
        no: answers
            .filter(|(_, answer)| !answer)
            .map(|(topic, _)| topic)
            .collect(),
    }
}

const EVERYTHING: &str = "";
const TOPICS: [&str; 2] = ["news", "offers"];

/// What a row says. An opt-out is a topic, or empty for everything.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    address: String,
    name: Option<String>,
    plan: Option<String>,
    no: BTreeSet<String>,
    is_deleted: bool,
}

impl Row {
    fn to_sync(&self, key: u64, random: &mut Random) -> SyncRow {
        let address = match random.percent(20) {
            true => format!(" {} ", self.address.to_uppercase()),
            false => self.address.clone(),
        };
        let mut contact = NewContact::new(address);
        contact.first_name.clone_from(&self.name);
        if let Some(plan) = &self.plan {
            contact = contact.property("plan", plan.as_str());
        }
        let mut row = ImportRow::new(contact);
        for topic in self.no.iter().filter(|topic| *topic != EVERYTHING) {
            row = row.opt_out(OptOut::Topic(topic.clone()));
        }
        let row = SyncRow::new(key, row).deleted(self.is_deleted);
        row.subscribed(!self.no.contains(EVERYTHING))
    }

    fn content(&self) -> (Option<String>, Option<String>) {
        (self.name.clone(), self.plan.clone())
    }
}

type Table = BTreeMap<u64, Row>;

/// What the syncs have done so far, and the audience then.
#[derive(Clone, Default)]
struct Reference {
    audience: Audience,
    /// The rows as they were sent. A row whose address is refused keeps the one before.
    known: BTreeMap<u64, Row>,
    /// The rows that have or had an address.
    history: BTreeMap<String, BTreeSet<u64>>,
    /// The opt-outs that wait for a usable address of a row whose new one is refused.
    waiting: BTreeMap<u64, BTreeMap<String, String>>,
    /// How often a row could not leave an address because another one stays. It looks at it and leaves it later, maybe for
    /// nothing.
    postponed: usize,
}

/// Addresses that the service refuses begin with this.
const REFUSED: &str = "no address ";

impl Reference {
    /// Runs one night. Returns how many requests it takes.
    fn night(&mut self, table: &Table, deletes_missing: bool) -> usize {
        let mut before = self.known.clone();
        let mut calls = 0;
        let mut held: BTreeSet<_> = live(table).map(|(_, row)| row.address.clone()).collect();
        if !deletes_missing {
            let unseen = live(&before).filter(|(key, _)| !table.contains_key(key));
            held.extend(unseen.map(|(_, row)| row.address.clone()));
        }
        let moved: Vec<_> = live(table)
            .filter(|(key, row)| {
                before
                    .get(key)
                    .is_some_and(|known| known.address != row.address)
            })
            .map(|(key, _)| *key)
            .collect();
        let mut carried = BTreeMap::new();
        for key in &moved {
            let address = &before[key].address;
            let was_shared = self.history[address].iter().any(|other| other != key);
            let waiting = self.waiting.remove(key);
            carried.insert(
                *key,
                match waiting.filter(|_| was_shared && held.contains(address)) {
                    // The contact is the one of another row now.
                    Some(waiting) => waiting,
                    None => {
                        // Without the contact, the list has to prove that there is none.
                        calls += 2 - usize::from(self.audience.contains_key(address));
                        self.opt_outs_of(&before[key])
                    }
                },
            );
        }
        // A row that is not in the table waits on.
        self.waiting
            .retain(|key, _| !deletes_missing && !table.contains_key(key));
        for (key, opt_outs) in &carried {
            let row = &table[key];
            if row.address.starts_with(REFUSED) {
                let wishes = row.no.iter().map(|no| (no.clone(), "manual".to_owned()));
                let mut all: BTreeMap<_, _> = wishes.collect();
                all.extend(opt_outs.clone());
                self.waiting.insert(*key, all);
            }
        }
        // What is new goes to the old contact first: the new address may be refused.
        for key in &moved {
            let address = before[key].address.clone();
            let Some(contact) = self.audience.get(&address).cloned() else {
                continue;
            };
            if held.contains(&address) {
                continue;
            }
            let known = before.get_mut(key).unwrap();
            for opt_out in &table[key].no {
                // The "no" of a topic may be its default.
                let is_out = opt_out == EVERYTHING && !contact.reason.is_empty();
                if !is_out && !known.no.contains(opt_out) {
                    calls += self.opt_out(&address, opt_out, "manual");
                    known.no.insert(opt_out.clone());
                }
            }
        }
        for (key, row) in table {
            let known = before.get(key);
            if row.is_deleted && held.contains(&known.unwrap_or(row).address) {
                calls += self.hand_over(*key, row, known);
            } else if row.is_deleted {
                calls += self.delete(*key, known.unwrap_or(row));
            } else if let Some(known) = known.filter(|known| known.address == row.address) {
                let new = row.no.difference(&known.no);
                let new = new.map(|no| (no.clone(), "manual".to_owned()));
                calls += self.opt_out_after_look(&row.address, new.collect());
            }
        }
        let missing = before
            .iter()
            .filter(|(key, row)| !table.contains_key(key) && !row.is_deleted);
        for (key, known) in missing.filter(|_| deletes_missing) {
            match held.contains(&known.address) {
                true => self.known.get_mut(key).unwrap().is_deleted = true,
                false => calls += self.delete(*key, known),
            }
        }
        let freed: BTreeSet<_> = live(&before)
            .filter(|(key, known)| {
                let row = table.get(key);
                let is_held =
                    row.is_some_and(|row| !row.is_deleted && row.address == known.address);
                !is_held && (row.is_some() || deletes_missing)
            })
            .map(|(_, known)| known.address.clone())
            .collect();
        let mut holders: Vec<_> = live(table).map(|(_, row)| row.address.clone()).collect();
        if !deletes_missing {
            let unseen = live(&before).filter(|(key, _)| !table.contains_key(key));
            holders.extend(unseen.map(|(_, row)| row.address.clone()));
        }
        let is_shared = |address: &str| holders.iter().filter(|held| *held == address).count() > 1;
        calls += self.upsert(table, &before, &carried, &freed, is_shared, deletes_missing);
        self.leave(&moved, &before, &held) + calls
    }

    /// Retrieves the contacts of the addresses that rows have left, and opts them out, unless a row still has one because
    /// its new one was refused.
    fn leave(
        &mut self,
        moved: &[u64],
        before: &BTreeMap<u64, Row>,
        held: &BTreeSet<String>,
    ) -> usize {
        let mut calls = 0;
        let mut last = BTreeSet::new();
        for key in moved.iter().rev() {
            let old = &before[key].address;
            // The last of several that had it opts it out, but not if the address of any of them is refused.
            let stays = |key: &u64| self.known[key].address == *old;
            if !last.insert(old) || held.contains(old) {
                continue;
            }
            if moved.iter().any(stays) {
                self.postponed += 1;
                continue;
            }
            let Some(contact) = self.audience.get(old) else {
                continue;
            };
            calls += 1;
            if contact.reason.is_empty() {
                calls += self.opt_out(old, EVERYTHING, "manual");
            }
        }
        calls
    }

    fn upsert(
        &mut self,
        table: &Table,
        before: &BTreeMap<u64, Row>,
        carried: &BTreeMap<u64, BTreeMap<String, String>>,
        freed: &BTreeSet<String>,
        is_shared: impl Fn(&str) -> bool,
        deletes_missing: bool,
    ) -> usize {
        let mut entries: usize = 0;
        let mut opt_outs = Vec::new();
        for (key, row) in live(table) {
            let old = before.get(key);
            let known = old.filter(|known| known.address == row.address);
            let known = known.filter(|known| known.name.as_deref() != Some(NEVER_SENT));
            let history = self.history.get(&row.address);
            let is_other =
                |other: &u64| other != key || old.is_some_and(|old| old.address != row.address);
            let was_shared = history.is_some_and(|keys| keys.iter().any(is_other));
            let is_replaced = was_shared
                && (freed.contains(&row.address) || known.is_some_and(|known| known.is_deleted));
            let is_refused = row.address.starts_with(REFUSED);
            self.known.insert(
                *key,
                match is_refused {
                    true => old.unwrap().clone(),
                    false => row.clone(),
                },
            );
            if known.is_some_and(|known| known.content() == row.content()) && !is_replaced {
                continue;
            }
            entries += 1;
            let is_new = !self.audience.contains_key(&row.address);
            // Those that deleted rows with the address have themselves count, too.
            let of_deleted = table.iter().filter(|(other, now)| {
                now.is_deleted && before.get(other).unwrap_or(now).address == row.address
            });
            let of_deleted: Vec<_> = of_deleted.flat_map(|(_, now)| &now.no).collect();
            if !is_refused {
                let is_full = was_shared || is_shared(&row.address) || !of_deleted.is_empty();
                let contact = self.audience.entry(row.address.clone()).or_default();
                match (&row.name, known.and_then(|known| known.name.as_ref())) {
                    (Some(name), _) => contact.name.clone_from(name),
                    (None, had) if is_full || had.is_some() => contact.name.clear(),
                    (None, _) => {}
                }
                let had_plan = known.is_some_and(|known| known.plan.is_some());
                if row.plan.is_some() || had_plan || is_full {
                    contact.plan.clone_from(&row.plan);
                }
            }
            // Whoever creates a contact again sends the opt-outs of all rows that have it.
            let of_others: Vec<_> = before
                .iter()
                .filter(|(other, then)| {
                    *other != key && then.address == row.address && {
                        let now = table.get(other);
                        now.map_or(!deletes_missing && !then.is_deleted, |now| {
                            !now.is_deleted && now.address == row.address
                        })
                    }
                })
                .flat_map(|(other, then)| &table.get(other).unwrap_or(then).no)
                .chain(of_deleted)
                .filter(|opt_out| is_new && !row.no.contains(*opt_out))
                .map(|opt_out| (opt_out.clone(), "manual".to_owned()))
                .collect();
            if known.is_none() || is_new {
                let mut all: BTreeMap<_, _> = row
                    .no
                    .iter()
                    .map(|no| (no.clone(), "manual".to_owned()))
                    .collect();
                for (opt_out, reason) in carried.get(key).into_iter().flatten() {
                    all.entry(opt_out.clone()).or_insert_with(|| reason.clone());
                }
                for (opt_out, reason) in of_others {
                    all.entry(opt_out).or_insert(reason);
                }
                opt_outs.push((row.address.clone(), is_new && !is_refused, all));
            }
        }
        // Whoever is not passed is sent later, if another row may have been sent last.
        for (_, unseen) in self.known.iter_mut().filter(|(key, known)| {
            !deletes_missing && !known.is_deleted && !table.contains_key(key)
        }) {
            if freed.contains(&unseen.address) {
                unseen.plan = Some(NEVER_SENT.to_owned());
            }
        }
        let mut calls = entries.div_ceil(100);
        for (address, is_new, all) in opt_outs {
            calls += match is_new {
                true => self.opt_out_of(&address, &all),
                false => self.opt_out_after_look(&address, all),
            };
        }
        for (key, row) in &self.known {
            let keys = self.history.entry(row.address.clone()).or_default();
            keys.insert(*key);
        }
        calls
    }

    /// Deletes a row whose address another row has. Only its own opt-outs are sent.
    fn hand_over(&mut self, key: u64, row: &Row, known: Option<&Row>) -> usize {
        let mut gone = known.cloned().unwrap_or_else(|| Row {
            address: row.address.clone(),
            name: Some(NEVER_SENT.to_owned()),
            ..Row::default()
        });
        let is_over = gone.is_deleted && gone.no.contains(EVERYTHING);
        let new = row.no.difference(&gone.no).filter(|_| !is_over);
        let new: BTreeMap<_, _> = new.map(|no| (no.clone(), "manual".to_owned())).collect();
        if known.is_none() && new.is_empty() {
            return 0;
        }
        gone.is_deleted = true;
        gone.no.extend(new.keys().cloned());
        let address = gone.address.clone();
        self.known.insert(key, gone);
        self.opt_out_after_look(&address, new)
    }

    fn delete(&mut self, key: u64, row: &Row) -> usize {
        let mut gone = row.clone();
        gone.is_deleted = true;
        let is_known = self.known.contains_key(&key);
        if !is_known {
            gone.name = Some(NEVER_SENT.to_owned());
            gone.no.clear();
        }
        let is_out = !gone.no.insert(EVERYTHING.to_owned());
        self.known.insert(key, gone);
        match is_out {
            true => 0,
            false => {
                let everything = (EVERYTHING.to_owned(), "manual".to_owned());
                self.opt_out_after_look(&row.address, BTreeMap::from([everything]))
            }
        }
    }

    /// Before an opt-out of everything, the contact is retrieved. If it is opted out already, only topics are sent.
    fn opt_out_after_look(&mut self, address: &str, mut all: BTreeMap<String, String>) -> usize {
        if !all.contains_key(EVERYTHING) {
            return self.opt_out_of(address, &all);
        }
        let Some(contact) = self.audience.get(address) else {
            // The list has to prove that there is no contact.
            return 2;
        };
        // Topics are sent in any case: the "no" that a contact shows may be the topic's default, and not an answer.
        if !contact.reason.is_empty() {
            all.remove(EVERYTHING);
        }
        1 + self.opt_out_of(address, &all)
    }

    fn opt_out_of(&mut self, address: &str, all: &BTreeMap<String, String>) -> usize {
        let calls = all
            .iter()
            .map(|(what, reason)| self.opt_out(address, what, reason));
        calls.sum()
    }

    fn opt_out(&mut self, address: &str, what: &str, reason: &str) -> usize {
        let Some(contact) = self.audience.get_mut(address) else {
            // The list has to prove that there is no contact.
            return 2;
        };
        match what {
            EVERYTHING if contact.reason == "complaint" => {}
            EVERYTHING => contact.reason = reason.to_owned(),
            topic => drop(contact.no.insert(topic.to_owned())),
        }
        1
    }

    /// Notes an opt-out between two runs of a night. It stays where it was made, and goes to the addresses of all rows that
    /// leave that one. If another row has the address, if the sync has opted it out itself, or if the row was deleted, it may
    /// go there, too.
    fn note(&mut self, made: &Between, known: &Table, table: &Table, service: &Audience) {
        let is_held = |address: &str| {
            let unseen = known.iter().filter(|(key, _)| !table.contains_key(key));
            let rows = live(table).chain(unseen.filter(|(_, row)| !row.is_deleted));
            let stays =
                |key: &u64, row: &Row| row.address.starts_with(REFUSED) && known.contains_key(key);
            rows.into_iter().any(|(key, row)| {
                row.address == address || stays(key, row) && known[key].address == address
            })
        };
        let is_held = is_held(&made.address);
        let moved = live(table).filter_map(|(key, row)| {
            let known = known.get(key).filter(|known| known.address == made.address);
            known.map(|known| (row.address.as_str(), known.is_deleted))
        });
        for (address, was_deleted) in moved.chain([(made.address.as_str(), false)]) {
            let now = service.get(address).cloned().unwrap_or_default();
            let is_there = match made.what.as_str() {
                EVERYTHING => !now.reason.is_empty(),
                topic => now.no.contains(topic),
            };
            let may_miss = address != made.address && (is_held || made.is_late || was_deleted);
            if let Some(contact) = self.audience.get_mut(address)
                && (is_there || !may_miss)
            {
                match made.what.as_str() {
                    EVERYTHING if now.reason.is_empty() => contact.reason = "manual".to_owned(),
                    EVERYTHING => contact.reason = now.reason,
                    topic => drop(contact.no.insert(topic.to_owned())),
                }
            }
        }
    }

    /// Takes over the name and the plan of a contact that several rows have, if they are those of one of the rows. A contact
    /// has those of the row that was sent last, and after a kill that may be any of them.
    fn note_last_sent(&mut self, table: &Table, service: &Audience) {
        for (key, row) in live(table) {
            let is_shared =
                live(table).any(|(other, same)| other != key && same.address == row.address);
            let now = service.get(&row.address).filter(|_| is_shared);
            let contact = self.audience.get_mut(&row.address);
            if let (Some(now), Some(contact)) = (now, contact)
                && now.name == row.name.clone().unwrap_or_default()
                && now.plan == row.plan
            {
                contact.name.clone_from(&now.name);
                contact.plan.clone_from(&now.plan);
            }
        }
    }

    /// Returns the opt-outs that a row takes to its next address, with their reasons.
    fn opt_outs_of(&self, known: &Row) -> BTreeMap<String, String> {
        // A row that was deleted before any sync had seen it may have no contact, and is still opted out.
        let Some(contact) = self.audience.get(&known.address) else {
            let no = known.no.iter();
            return no.map(|no| (no.clone(), "manual".to_owned())).collect();
        };
        let topics = contact
            .no
            .iter()
            .map(|topic| (topic.clone(), String::new()));
        let everything = match contact.reason.as_str() {
            "" => None,
            "preferences" => Some("preferences"),
            _ => Some("manual"),
        };
        let everything = everything.map(|reason| (EVERYTHING.to_owned(), reason.to_owned()));
        topics.chain(everything).collect()
    }
}

/// The name of a row that was deleted before any sync had seen it.
const NEVER_SENT: &str = "never sent";

fn live(table: &Table) -> impl Iterator<Item = (&u64, &Row)> {
    table.iter().filter(|(_, row)| !row.is_deleted)
}

/// Changes a table as a day does. A few addresses make duplicates, moves and swaps frequent.
fn day(table: &mut Table, random: &mut Random, addresses: u64) {
    let keys = addresses + 5;
    for _ in 0..1 + random.below(8) {
        let key = random.below(keys);
        // None contains another one, so that a search for one finds no other.
        let address = format!("a{}@x.io", random.below(addresses));
        let Some(row) = table.get_mut(&key) else {
            let name = random.percent(60).then(|| "Ada".to_owned());
            let row = Row {
                address,
                name,
                ..Row::default()
            };
            table.insert(key, row);
            continue;
        };
        match random.below(9) {
            0 => {
                row.name = random
                    .percent(70)
                    .then(|| format!("Name {}", random.below(3)));
            }
            1 => {
                row.plan = random
                    .percent(70)
                    .then(|| format!("plan {}", random.below(3)));
            }
            2 | 3 if random.percent(15) => row.address = format!("{REFUSED}{key}"),
            2 | 3 => row.address = address,
            4 => row.is_deleted = !row.is_deleted,
            5 => drop(table.remove(&key)),
            _ => {
                let opt_out = random.pick(&[EVERYTHING, TOPICS[0], TOPICS[1]]).to_owned();
                if !row.no.remove(&opt_out) {
                    row.no.insert(opt_out);
                }
            }
        }
    }
}

/// Gives rows that no sync has seen a usable address. Those with none cost requests every night, which are not counted here.
fn only_known_rows_are_refused(table: &mut Table, reference: &Reference) {
    for (key, row) in table {
        if row.address.starts_with(REFUSED) && !reference.known.contains_key(key) {
            row.address = "a0@x.io".to_owned();
        }
    }
}

/// Somebody changes consent at the service.
async fn happen(nights: &Nights, reference: &mut Reference, random: &mut Random) {
    let addresses: Vec<_> = reference.audience.keys().cloned().collect();
    for address in addresses {
        if !random.percent(10) {
            continue;
        }
        let topic = random.pick(&TOPICS);
        match random.below(5) {
            0 => drop(nights.contacts.subscribe(&address).await),
            4 => nights.contacts.delete(&address).await.unwrap(),
            1 => {
                let reason = random.pick(&[OptOutReason::Manual, OptOutReason::Preferences]);
                nights
                    .contacts
                    .unsubscribe(&address)
                    .reason(reason)
                    .await
                    .unwrap();
            }
            2 => drop(
                nights
                    .contacts
                    .unsubscribe(&address)
                    .topic(topic)
                    .await
                    .unwrap(),
            ),
            _ => nights.server.report_spam(&address),
        }
    }
    reference.audience = audience_of(&nights.server);
}

/// An opt-out at the service between a killed run and the next one.
struct Between {
    address: String,
    what: String,
    /// Whether the sync has left the address before, or has maybe opted it out, and so cannot know whose opt-out this is.
    is_late: bool,
}

/// Somebody opts out between two runs of a night.
async fn happen_between(nights: &Nights, random: &mut Random) -> Vec<Between> {
    let mut all = Vec::new();
    for contact in nights.server.contacts() {
        if !random.percent(10) {
            continue;
        }
        let address = contact.email.as_str();
        let call = nights.contacts.unsubscribe(address);
        let (call, what) = match random.below(4) {
            0 => (call, EVERYTHING),
            1 => (call.reason(OptOutReason::Preferences), EVERYTHING),
            number => {
                let topic = TOPICS[usize::try_from(number).unwrap() - 2];
                (nights.contacts.unsubscribe(address).topic(topic), topic)
            }
        };
        call.await.unwrap();
        let (is_maybe_out, is_left) = left_by_sync(nights, address);
        let is_by_sync = is_maybe_out || contact.unsubscribe_reason == "manual";
        all.push(Between {
            address: address.to_owned(),
            what: what.to_owned(),
            is_late: is_left || what == EVERYTHING && is_by_sync,
        });
    }
    all
}

/// Returns whether the state says that a sync has maybe opted out an address to leave, and whether it has left it.
fn left_by_sync(nights: &Nights, address: &str) -> (bool, bool) {
    let state = std::fs::read_to_string(&nights.state).unwrap_or_default();
    let is_it = |spelling: &Value| spelling.as_str().unwrap().trim().to_lowercase() == address;
    let records = state.lines().filter_map(|line| line.parse::<Value>().ok());
    let rows = records.filter(|record| record["row"].is_object());
    let last: BTreeMap<_, _> = rows
        .map(|mut record| (record["row"]["key"].to_string(), record["row"].take()))
        .collect();
    let has_left = |former: &Value| is_it(&former["address"]) && former["is_out"] == true;
    let is_among = |row: &Value, list: &str, is_wanted: &dyn Fn(&Value) -> bool| {
        row[list]
            .as_array()
            .is_some_and(|all| all.iter().any(is_wanted))
    };
    let mut rows = last.values();
    let is_maybe_out = rows.clone().any(|row| is_among(row, "maybe_out", &is_it));
    (
        is_maybe_out,
        rows.any(|row| is_among(row, "former", &has_left)),
    )
}

fn cases() -> u64 {
    let cases = std::env::var("AUDIENCE_MODEL_CASES").ok();
    cases.map_or(25, |cases| cases.parse().unwrap())
}

fn rows(table: &Table, random: &mut Random) -> Vec<SyncRow> {
    table
        .iter()
        .map(|(key, row)| row.to_sync(*key, random))
        .collect()
}

#[tokio::test]
async fn after_each_night_the_service_has_what_the_rules_say_with_the_fewest_requests() {
    for seed in 0..cases() {
        let mut random = Random::new(seed);
        let nights = Nights::new().await;
        let (mut reference, mut table) = (Reference::default(), Table::new());
        let addresses = 3 + random.below(20);
        let mut old = None;
        for night in 0..8 {
            println!("seed {seed}, night {night}");
            day(&mut table, &mut random, addresses);
            match random.below(10) {
                0 => old = Some(table.clone()),
                1 => table = old.clone().unwrap_or(table),
                _ => {}
            }
            only_known_rows_are_refused(&mut table, &reference);
            happen(&nights, &mut reference, &mut random).await;
            let deletes_missing = random.percent(40);
            let (known, then) = (reference.known.clone(), reference.audience.clone());
            let expected = reference.night(&table, deletes_missing);

            let rows = rows(&table, &mut random);
            let settings = |sync: SyncContacts| match deletes_missing {
                true => sync.deletes_missing().leave_at_most(1_000),
                false => sync.leave_at_most(1_000),
            };
            let (dry, _) = nights
                .run_with(&rows, |sync| settings(sync).dry_run())
                .await;
            let opt_ins = usize::try_from(dry.opt_ins_not_sent()).unwrap();
            let (report, calls) = nights.run_with(&rows, settings).await;

            let told = format!("{calls:?}\n{known:?}\n{table:?}\n{deletes_missing}\n{then:?}");
            let service = audience_of(&nights.server);
            assert_eq!(service, reference.audience, "{told}");
            // Without a contact, the list has to prove that there is none.
            let least = expected + opt_ins;
            // And it may look for some contacts of the last run before it finds one.
            let absent = known
                .values()
                .filter(|row| !then.contains_key(&row.address));
            let looks = 1 + 2 * absent.count().min(9);
            let most = least + opt_ins + 2 * reference.postponed + looks;
            assert!((least..=most).contains(&calls.len()), "{expected} {told}");
            let changes = report.changes();
            assert_eq!((changes.not_sent(), changes.unknown()), (0, 0), "{report}");
            let refused = live(&table).filter(|(_, row)| row.address.starts_with(REFUSED));
            assert_eq!(report.changes().refused(), refused.count() as u64);
            assert!(calls.iter().all(|call| !call.ends_with("/subscribe")));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nights_with_killed_runs_end_as_nights_without() {
    for seed in 1_000..1_000 + cases() {
        let mut random = Random::new(seed);
        let nights = Nights::new().await;
        let proxy = CountingProxy::start(nights.server.url().trim_start_matches("http://")).await;
        // Each run has a client of its own, whose connections end with it.
        let sync = |rows: &[SyncRow]| {
            let url = format!("http://{}", proxy.address());
            let client = Client::builder(url, nights.server.full_key()).retry(fast_retries());
            let contacts = client.build().unwrap().contacts();
            let sync = contacts.sync(rows.to_vec(), nights.state.open());
            sync.leave_at_most(1_000)
        };
        let (mut reference, mut table) = (Reference::default(), Table::new());
        let addresses = 3 + random.below(20);
        for night in 0..6 {
            println!("seed {seed}, night {night}");
            day(&mut table, &mut random, addresses);
            only_known_rows_are_refused(&mut table, &reference);
            happen(&nights, &mut reference, &mut random).await;
            let known = reference.known.clone();
            reference.night(&table, false);

            let rows = rows(&table, &mut random);
            let mut between = Vec::new();
            let kills = random.below(4);
            for _ in 0..kills {
                let end =
                    nights.server.requests().len() + usize::try_from(random.below(6)).unwrap();
                let run = tokio::spawn(sync(&rows).concurrency(3).into_future());
                while nights.server.requests().len() < end && !run.is_finished() {
                    tokio::task::yield_now().await;
                }
                for _ in 0..random.below(300) {
                    tokio::task::yield_now().await;
                }
                run.abort();
                let _ = run.await;
                // What is in flight arrives before the next run starts.
                proxy.at_most(0).await;
                // And what is being written is in the state: another run waits for its lock, and may see that it changes.
                let _ = in_time(sync(&[]).dry_run().into_future()).await;
                between.extend(happen_between(&nights, &mut random).await);
            }
            let report = in_time(sync(&rows).into_future()).await.unwrap();

            let service = audience_of(&nights.server);
            // After a kill, the wishes of a row are sent again, also if the person took one back. So are those of a row
            // that is not passed, if a row with its address may have created the contact again.
            let unseen = live(&known).filter(|(key, _)| kills > 0 && !table.contains_key(key));
            let there = live(&table).chain(unseen);
            let there = there.map(|(_, row)| (&row.address, &row.no));
            // A deleted row may have lost its address.
            let deleted = table.iter().filter(|(_, row)| kills > 0 && row.is_deleted);
            let deleted =
                deleted.map(|(key, row)| (&known.get(key).unwrap_or(row).address, &row.no));
            for (address, no) in there.chain(deleted) {
                let now = service.get(address).cloned().unwrap_or_default();
                if no.contains(EVERYTHING) && now.reason == "manual" {
                    reference.opt_out(address, EVERYTHING, "manual");
                }
                for topic in no.intersection(&now.no) {
                    reference.opt_out(address, topic, "manual");
                }
            }
            // And of several rows that had one address, the wishes of one may go with another.
            let moved =
                |key: &u64, row: &Row| known.get(key).filter(|known| known.address != row.address);
            let wishes = live(&table).filter_map(|(key, row)| Some((moved(key, row)?, row)));
            let wishes: Vec<_> = wishes.collect();
            for (old, wish) in &wishes {
                for (_, row) in wishes
                    .iter()
                    .filter(|(other, _)| other.address == old.address)
                {
                    let now = service.get(&row.address).cloned().unwrap_or_default();
                    for topic in wish.no.intersection(&now.no) {
                        reference.opt_out(&row.address, topic, "manual");
                    }
                }
            }
            for opt_out in between {
                reference.note(&opt_out, &known, &table, &service);
            }
            // The opt-out of a run that was killed may have come before the one of the person, whose reason then stays.
            for (address, contact) in &mut reference.audience {
                let is_by_choice = |now: &State| now.reason == "preferences";
                if contact.reason == "manual" && service.get(address).is_some_and(is_by_choice) {
                    contact.reason = "preferences".to_owned();
                }
            }
            if kills > 0 {
                reference.note_last_sent(&table, &service);
            }
            assert_eq!(service, reference.audience, "{known:?}\n{table:?}");
            let changes = report.changes();
            assert_eq!((changes.not_sent(), changes.unknown()), (0, 0), "{report}");
        }
    }
}
