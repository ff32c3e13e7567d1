//! Random sequences of calls. The client, the mock behind it and a plain model agree after every step, in every dialect:
//! in what a call returns, in everything that is stored, and in the order of the list. The model is a third reading of
//! the interface document, and of the dialect's choices where the document leaves something open.
//!
//! The sequences are the same in every run. `AUDIENCE_LONG_TESTS=1` runs longer and more of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use audience::contacts::{
    BatchOutcome, Contact, ContactRecord, ContactStream, ContactSummary, ListContacts, NewContact,
    OnConflict, OptOutReason, Properties, PropertyValue,
};
use audience::mock::dialect::{
    ConsentForm, ContactDeletion, InvalidStatus, OmittedMembers, PropertyValues, RateLimit,
    ReasonAfterSubscribe, RefusalOrder, UnknownAddress,
};
use audience::mock::{Dialect, EngagementKind, MockServer, SegmentKind, StoredContact};
use audience::rule::{Condition, Engagement, Rule};
use audience::{Client, Error, ErrorCode, ErrorKind, Method, Outcome};
use futures_util::TryStreamExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use super::dialects::{dialects, has_body, settings};

const START: i64 = 1_700_000_000;
const DAY: i64 = 86_400;
const TOPICS: [(&str, bool); 2] = [("news", true), ("offers", false)];

/// A step of a sequence: a call, or something that happens to the service.
#[derive(Clone, Debug)]
enum Step {
    Create(Entry),
    Batch(Vec<Entry>),
    Retrieve(Address),
    Unsubscribe {
        address: Address,
        reason: OptOutReason,
        topic: Option<&'static str>,
    },
    Subscribe {
        address: Address,
        topic: Option<&'static str>,
    },
    SetTopics {
        address: Address,
        form: BTreeMap<&'static str, bool>,
    },
    Merge {
        address: Address,
        properties: Map<String, Value>,
    },
    Delete(Address),
    /// Reads the whole list, page by page, and counts it.
    List {
        filter: Filter,
        limit: u32,
    },
    /// Reads one page after the contact with this index.
    Page {
        filter: Filter,
        limit: u32,
        after: prop::sample::Index,
    },
    /// Reads the next contacts of a list that is read while other steps change it.
    Continue {
        contacts: usize,
    },
    ReportSpam(Address),
    Engage {
        address: Address,
        what: What,
        days_ago: i64,
    },
    PassHours(i64),
    SetCeiling(Option<u64>),
}

/// The index of a contact, and whether the address is written in another way.
#[derive(Clone, Copy, Debug)]
struct Address(u8, bool);

impl Address {
    /// The address as it is stored.
    fn stored(self) -> String {
        match self.0 {
            0 => "ada+1@example.com".to_owned(),
            1 => "bob/@example.com".to_owned(),
            n => format!("c{n}@example.com"),
        }
    }

    fn written(self) -> String {
        match self.1 {
            true => format!(" {}", self.stored().to_ascii_uppercase()),
            false => self.stored(),
        }
    }
}

/// A contact to create. `None` in place of the address is text that is no address.
#[derive(Clone, Debug)]
struct Entry {
    address: Option<Address>,
    first_name: Option<&'static str>,
    last_name: Option<&'static str>,
    properties: Option<Map<String, Value>>,
    on_conflict: OnConflict,
}

impl Entry {
    fn to_new(&self) -> NewContact {
        let address = self
            .address
            .map_or("no address".to_owned(), Address::written);
        let mut new = NewContact::new(address).on_conflict(self.on_conflict);
        if let Some(name) = self.first_name {
            new = new.first_name(name);
        }
        if let Some(name) = self.last_name {
            new = new.last_name(name);
        }
        if let Some(properties) = &self.properties {
            new = new.properties(to_properties(properties));
        }
        new
    }
}

fn to_properties(properties: &Map<String, Value>) -> Properties {
    let members = properties.iter();
    members
        .map(|(name, value)| (name, PropertyValue::from(value.clone())))
        .collect()
}

#[derive(Clone, Debug, Default)]
struct Filter {
    query: Option<&'static str>,
    segment: Option<&'static str>,
    rule: Option<(bool, Vec<Test>)>,
}

impl Filter {
    fn list(&self, client: &Client) -> ListContacts {
        let mut list = client.contacts().list();
        if let Some(text) = self.query {
            list = list.query(text);
        }
        if let Some(id) = self.segment {
            list = list.segment(id);
        }
        if let Some((is_all, tests)) = &self.rule {
            let conditions = tests.iter().map(Test::to_condition);
            list = list.rule(match is_all {
                true => Rule::all(conditions),
                false => Rule::any(conditions),
            });
        }
        list
    }
}

/// A condition of a rule.
#[derive(Clone, Debug)]
enum Test {
    Is(&'static str, Value),
    IsNot(&'static str, Value),
    Contains(&'static str, &'static str),
    IsSet(&'static str),
    IsNotSet(&'static str),
    Greater(&'static str, i32),
    Less(&'static str, i32),
    Ever(What),
    Never(What),
    Within(What, u32),
    NotWithin(What, u32),
    JoinedWithin(u32),
    JoinedBefore(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Opened,
    Complained,
}

impl Test {
    fn to_condition(&self) -> Condition {
        let property = |key: &&'static str| Condition::property(*key);
        let engagement = |what: &What| {
            Condition::engagement(match what {
                What::Opened => Engagement::Opened,
                What::Complained => Engagement::Complained,
            })
        };
        match self {
            Self::Is(key, value) => property(key).is(value.clone()),
            Self::IsNot(key, value) => property(key).is_not(value.clone()),
            Self::Contains(key, text) => property(key).contains(*text),
            Self::IsSet(key) => property(key).is_set(),
            Self::IsNotSet(key) => property(key).is_not_set(),
            Self::Greater(key, number) => property(key).greater_than(*number),
            Self::Less(key, number) => property(key).less_than(*number),
            Self::Ever(what) => engagement(what).ever(),
            Self::Never(what) => engagement(what).never(),
            Self::Within(what, days) => engagement(what).within_days(*days),
            Self::NotWithin(what, days) => engagement(what).not_within_days(*days),
            Self::JoinedWithin(days) => Condition::joined_within_days(*days),
            Self::JoinedBefore(days) => Condition::joined_before_days(*days),
        }
    }
}

// The strategies, simplest first: a failing sequence shrinks towards the first choices.

fn address() -> impl Strategy<Value = Address> {
    (0..6_u8, prop::bool::weighted(0.2)).prop_map(|(who, other)| Address(who, other))
}

fn topic() -> impl Strategy<Value = Option<&'static str>> {
    select(vec![None, Some("news"), Some("offers"), Some("gossip")])
}

fn key() -> impl Strategy<Value = &'static str> {
    select(vec!["plan", "seats"])
}

fn value() -> impl Strategy<Value = Value> {
    let values = [
        json!("pro"),
        json!("Pro 2"),
        json!("2"),
        json!(2),
        json!(2.0),
        json!(2.5),
        json!(-1),
    ];
    select(values.to_vec())
}

fn properties() -> impl Strategy<Value = Map<String, Value>> {
    // A value that is neither text nor a number is refused in most dialects.
    let any_value = prop_oneof![9 => value(), 1 => Just(json!(true))];
    vec((key(), any_value), 0..3).prop_map(|members| {
        let members = members.into_iter();
        members
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let choices = vec![OnConflict::Upsert, OnConflict::Skip, OnConflict::Error];
    (
        prop_oneof![12 => address().prop_map(Some), 1 => Just(None)],
        select(vec![None, Some("Ada"), Some("Éva"), Some("")]),
        select(vec![None, Some("Lovelace"), Some("")]),
        prop::option::of(properties()),
        select(choices),
    )
        .prop_map(
            |(address, first_name, last_name, properties, on_conflict)| Entry {
                address,
                first_name,
                last_name,
                properties,
                on_conflict,
            },
        )
}

fn test() -> impl Strategy<Value = Test> {
    let what = || select(vec![What::Opened, What::Complained]);
    prop_oneof![
        (key(), value()).prop_map(|(key, value)| Test::Is(key, value)),
        (key(), value()).prop_map(|(key, value)| Test::IsNot(key, value)),
        (key(), select(vec!["pro", "2", "Pro"])).prop_map(|(key, text)| Test::Contains(key, text)),
        key().prop_map(Test::IsSet),
        key().prop_map(Test::IsNotSet),
        (key(), -2..4_i32).prop_map(|(key, number)| Test::Greater(key, number)),
        (key(), -2..4_i32).prop_map(|(key, number)| Test::Less(key, number)),
        what().prop_map(Test::Ever),
        what().prop_map(Test::Never),
        (what(), 1..4_u32).prop_map(|(what, days)| Test::Within(what, days)),
        (what(), 1..4_u32).prop_map(|(what, days)| Test::NotWithin(what, days)),
        (1..4_u32).prop_map(Test::JoinedWithin),
        (1..4_u32).prop_map(Test::JoinedBefore),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    (
        select(vec![
            None,
            Some("A"),
            Some("éV"),
            Some("lovelace"),
            Some("C2@"),
            Some("nobody"),
        ]),
        select(vec![None, None, Some("picked"), Some("pros"), Some("gone")]),
        prop::option::of((any::<bool>(), vec(test(), 1..3))),
    )
        .prop_map(|(query, segment, rule)| Filter {
            query,
            segment,
            rule,
        })
}

fn step() -> impl Strategy<Value = Step> {
    let reason = select(vec![OptOutReason::Manual, OptOutReason::Preferences]);
    let known_topic = select(TOPICS.map(|(name, _)| name).to_vec());
    let any_topic = prop_oneof![12 => known_topic, 1 => Just("gossip")];
    let form = prop::collection::btree_map(any_topic, any::<bool>(), 1..3);
    let what = select(vec![What::Opened, What::Complained]);
    // At most four requests for each list: some dialects allow only ten in a second.
    let limit = || 2..5_u32;
    prop_oneof![
        6 => entry().prop_map(Step::Create),
        4 => vec(entry(), 1..6).prop_map(Step::Batch),
        1 => address().prop_map(Step::Retrieve),
        2 => (address(), reason, topic())
            .prop_map(|(address, reason, topic)| Step::Unsubscribe { address, reason, topic }),
        2 => (address(), topic()).prop_map(|(address, topic)| Step::Subscribe { address, topic }),
        1 => (address(), form).prop_map(|(address, form)| Step::SetTopics { address, form }),
        2 => (address(), properties())
            .prop_map(|(address, properties)| Step::Merge { address, properties }),
        1 => address().prop_map(Step::Delete),
        4 => (filter(), limit()).prop_map(|(filter, limit)| Step::List { filter, limit }),
        2 => (filter(), limit(), any::<prop::sample::Index>())
            .prop_map(|(filter, limit, after)| Step::Page { filter, limit, after }),
        2 => (1..4_usize).prop_map(|contacts| Step::Continue { contacts }),
        1 => address().prop_map(Step::ReportSpam),
        1 => (address(), what, 0..4_i64)
            .prop_map(|(address, what, days_ago)| Step::Engage { address, what, days_ago }),
        1 => select(vec![24, 12, 36]).prop_map(Step::PassHours),
        1 => select(vec![None, Some(2), Some(4)]).prop_map(Step::SetCeiling),
    ]
}

/// What a call returned, without ids, or what the model expects.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Value(Value),
    /// The code of a refusal. Nothing was changed.
    Refused(&'static str),
    /// The client refused the input and sent nothing.
    InvalidInput,
    /// The form of topics ended with an error; these answers were recorded before.
    FormFailed(&'static str, BTreeMap<String, bool>),
    Nothing,
}

impl Seen {
    /// Returns the code of a refusal and the answers that were recorded before. Without slugs, only the status says what
    /// was refused.
    fn code(&self, has_slugs: bool) -> Option<(&'static str, BTreeMap<String, bool>)> {
        let (code, recorded) = match self {
            Self::Refused(code) => (*code, BTreeMap::new()),
            Self::FormFailed(code, recorded) => (*code, recorded.clone()),
            _ => return None,
        };
        match code {
            "failed_precondition" if !has_slugs => Some(("validation_error", recorded)),
            code => Some((code, recorded)),
        }
    }
}

/// The plain model: what the interface document says, in as few lines as possible.
#[derive(Clone, Debug)]
struct Model {
    dialect: Dialect,
    now: i64,
    /// Oldest first.
    contacts: Vec<ModelContact>,
    engagements: BTreeMap<(String, What), i64>,
    suppressed: Vec<String>,
    ceiling: Option<u64>,
}

#[derive(Clone, Debug)]
struct ModelContact {
    email: String,
    first_name: Option<String>,
    last_name: Option<String>,
    properties: Map<String, Value>,
    unsubscribed: bool,
    reason: &'static str,
    answers: BTreeMap<String, bool>,
    created_at: i64,
}

type Refusable<T> = Result<T, &'static str>;

impl Model {
    fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            now: START,
            contacts: Vec::new(),
            engagements: BTreeMap::new(),
            suppressed: Vec::new(),
            ceiling: None,
        }
    }

    fn find(&mut self, email: &str) -> Option<&mut ModelContact> {
        self.contacts
            .iter_mut()
            .find(|contact| contact.email == email)
    }

    fn apply(&mut self, step: &Step) -> Seen {
        let seen = match step {
            Step::Create(entry) => self.create(entry).map(|(status, email)| {
                let record = self.find(&email).expect("it was created").record();
                json!({"is_new": status == "created", "contact": record})
            }),
            Step::Batch(entries) => Ok(self.create_batch(entries)),
            Step::Retrieve(address) => {
                let found = self.find(&address.stored());
                found.map(|contact| contact.full()).ok_or("not_found")
            }
            Step::Unsubscribe {
                address,
                reason,
                topic,
            } => self.unsubscribe(*address, *reason, *topic),
            Step::Subscribe { address, topic } => self.subscribe(*address, *topic),
            Step::SetTopics { address, form } => return self.set_topics(*address, form),
            Step::Merge {
                address,
                properties,
            } => self.merge(*address, properties),
            Step::Delete(address) => self.delete(*address),
            Step::List { filter, .. } if filter.segment.is_some() && filter.rule.is_some() => {
                return Seen::InvalidInput;
            }
            Step::List { filter, .. } => self
                .list(filter, None)
                .map(|list| json!({"count": list.len(), "list": list})),
            Step::Page { filter, .. } if filter.segment.is_some() && filter.rule.is_some() => {
                return Seen::InvalidInput;
            }
            Step::Page {
                filter,
                limit,
                after,
            } => {
                let after = (!self.contacts.is_empty()).then(|| after.index(self.contacts.len()));
                self.list(filter, after).map(|mut list| {
                    list.truncate(*limit as usize);
                    list.into()
                })
            }
            Step::Continue { .. } => return Seen::Nothing,
            Step::ReportSpam(address) => {
                self.report_spam(&address.stored());
                return Seen::Nothing;
            }
            Step::Engage {
                address,
                what,
                days_ago,
            } => {
                self.engage(address.stored(), *what, self.now - days_ago * DAY);
                return Seen::Nothing;
            }
            Step::PassHours(hours) => {
                self.now += hours * 3_600;
                return Seen::Nothing;
            }
            Step::SetCeiling(ceiling) => {
                self.ceiling = *ceiling;
                return Seen::Nothing;
            }
        };
        seen.map_or_else(Seen::Refused, Seen::Value)
    }

    /// Refuses properties that are neither text nor numbers.
    fn check(&self, properties: &Map<String, Value>) -> Refusable<()> {
        let is_allowed = |value: &Value| {
            value.is_string()
                || value.is_number()
                || self.dialect.property_values == PropertyValues::Any
        };
        match properties.values().all(is_allowed) {
            true => Ok(()),
            false => Err("validation_error"),
        }
    }

    fn add(&mut self, email: String) -> Refusable<&mut ModelContact> {
        let is_full = self
            .ceiling
            .is_some_and(|most| self.contacts.len() as u64 >= most);
        if is_full {
            return Err("quota_exceeded");
        }
        self.contacts.push(ModelContact {
            email,
            first_name: None,
            last_name: None,
            properties: Map::new(),
            unsubscribed: false,
            reason: "",
            answers: BTreeMap::new(),
            created_at: self.now,
        });
        Ok(self.contacts.last_mut().expect("it was added"))
    }

    fn create(&mut self, entry: &Entry) -> Refusable<(&'static str, String)> {
        let email = entry.address.ok_or("validation_error")?.stored();
        self.check(entry.properties.as_ref().unwrap_or(&Map::new()))?;
        let clears = self.dialect.omitted_members == OmittedMembers::Cleared;
        let status = match (self.find(&email), entry.on_conflict) {
            (Some(_), OnConflict::Error) => return Err("already_exists"),
            (Some(_), OnConflict::Skip) => return Ok(("skipped", email)),
            (Some(_), _) => "updated",
            (None, _) => {
                self.add(email.clone())?;
                "created"
            }
        };
        let contact = self.find(&email).expect("it is a contact by now");
        let name = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        if entry.first_name.is_some() || clears {
            contact.first_name = entry.first_name.and_then(name);
        }
        if entry.last_name.is_some() || clears {
            contact.last_name = entry.last_name.and_then(name);
        }
        if entry.properties.is_some() || clears {
            contact.properties = entry.properties.clone().unwrap_or_default();
        }
        Ok((status, email))
    }

    fn create_batch(&mut self, entries: &[Entry]) -> Value {
        let mut is_over = false;
        let statuses = entries.iter().map(|entry| {
            let status = match is_over {
                true => "quota_exceeded",
                false => self
                    .create(entry)
                    .map_or_else(|code| code, |(status, _)| status),
            };
            is_over = status == "quota_exceeded";
            status
        });
        statuses.collect()
    }

    /// Returns the contact of a consent call, which the dialect may create, after the checks in the dialect's order.
    fn consenting(
        &mut self,
        address: Address,
        topic: Option<&str>,
        is_opt_in: bool,
    ) -> Refusable<&mut ModelContact> {
        let topic_exists = topic.is_none_or(|name| TOPICS.iter().any(|(known, _)| *known == name));
        let email = address.stored();
        let is_topic_first = self.dialect.refusal_order == RefusalOrder::TopicFirst;
        if is_topic_first && !topic_exists {
            return Err("not_found");
        }
        let unknown_address = self.dialect.unknown_address;
        match (self.find(&email), unknown_address) {
            (Some(contact), _) if is_opt_in && contact.reason == "complaint" => {
                return Err("failed_precondition");
            }
            (None, UnknownAddress::NotFound) => return Err("not_found"),
            (None, UnknownAddress::Unprocessable) => return Err("validation_error"),
            _ => {}
        }
        if !topic_exists {
            return Err("not_found");
        }
        if self.find(&email).is_none() {
            self.add(email.clone())?;
        }
        Ok(self.find(&email).expect("it is a contact by now"))
    }

    fn unsubscribe(
        &mut self,
        address: Address,
        reason: OptOutReason,
        topic: Option<&str>,
    ) -> Refusable<Value> {
        let form = self.dialect.consent_form;
        let contact = self.consenting(address, topic, false)?;
        if let Some(topic) = topic {
            contact.answers.insert(topic.to_owned(), false);
        } else {
            contact.unsubscribed = true;
            contact.reason = match reason {
                _ if contact.reason == "complaint" => "complaint",
                OptOutReason::Preferences => "preferences",
                OptOutReason::Manual => "manual",
            };
        }
        Ok(contact.in_form(form))
    }

    fn subscribe(&mut self, address: Address, topic: Option<&str>) -> Refusable<Value> {
        let dialect = self.dialect;
        let contact = self.consenting(address, topic, true)?;
        if let Some(topic) = topic {
            contact.answers.insert(topic.to_owned(), true);
        } else {
            contact.unsubscribed = false;
            if dialect.reason_after_subscribe == ReasonAfterSubscribe::Cleared {
                contact.reason = "";
            }
        }
        Ok(contact.in_form(dialect.consent_form))
    }

    /// The client retrieves the contact, and then records the opt-outs before the opt-ins, each in the order of the form.
    fn set_topics(&mut self, address: Address, form: &BTreeMap<&'static str, bool>) -> Seen {
        let mut recorded = BTreeMap::new();
        let is_known = |name: &&str| TOPICS.iter().any(|(known, _)| known == name);
        if self.find(&address.stored()).is_none() || !form.keys().all(is_known) {
            return Seen::FormFailed("not_found", recorded);
        }
        for wanted in [false, true] {
            for (topic, _) in form.iter().filter(|(_, answer)| **answer == wanted) {
                match self.consenting(address, Some(topic), wanted) {
                    Ok(contact) => contact.answers.insert((*topic).to_owned(), wanted),
                    Err(code) => return Seen::FormFailed(code, recorded),
                };
                recorded.insert((*topic).to_owned(), wanted);
            }
        }
        Seen::Value(json!(recorded))
    }

    fn merge(&mut self, address: Address, properties: &Map<String, Value>) -> Refusable<Value> {
        self.check(properties)?;
        let contact = self.find(&address.stored()).ok_or("not_found")?;
        contact.properties.extend(properties.clone());
        Ok(json!(contact.properties))
    }

    fn delete(&mut self, address: Address) -> Refusable<Value> {
        if self.dialect.contact_deletion == ContactDeletion::NotDescribed {
            return Err("not_described");
        }
        let email = address.stored();
        self.find(&email).ok_or("not_found")?;
        self.contacts.retain(|contact| contact.email != email);
        Ok(Value::Null)
    }

    fn engage(&mut self, email: String, what: What, at: i64) {
        let latest = self.engagements.entry((email, what)).or_insert(at);
        *latest = at.max(*latest);
    }

    fn report_spam(&mut self, email: &str) {
        self.engage(email.to_owned(), What::Complained, self.now);
        self.suppressed.push(email.to_owned());
        if let Some(contact) = self.find(email) {
            contact.unsubscribed = true;
            contact.reason = "complaint";
        }
    }

    /// Returns the contacts that the filter selects, newest first, after the one with this index.
    fn list(&self, filter: &Filter, after: Option<usize>) -> Refusable<Vec<Value>> {
        if filter.segment == Some("gone") {
            return Err("not_found");
        }
        let older = &self.contacts[..after.unwrap_or(self.contacts.len())];
        let selected = older
            .iter()
            .rev()
            .filter(|contact| self.selects(filter, contact));
        Ok(selected.map(ModelContact::summary).collect())
    }

    fn selects(&self, filter: &Filter, contact: &ModelContact) -> bool {
        let lower = |text: &String| text.to_lowercase();
        let names = [&contact.first_name, &contact.last_name]
            .into_iter()
            .flatten();
        let mut texts = names.chain([&contact.email]).map(lower);
        let is_found = filter
            .query
            .is_none_or(|query| texts.any(|text| text.contains(&query.to_lowercase())));
        let in_segment = match filter.segment {
            Some("picked") => ["c2@example.com", "c3@example.com"].contains(&&*contact.email),
            Some("pros") => contact.properties.get("plan") == Some(&json!("pro")),
            _ => true,
        };
        let matches_rule = filter.rule.as_ref().is_none_or(|(is_all, tests)| {
            let mut results = tests.iter().map(|test| self.holds(test, contact));
            if *is_all {
                results.all(|holds| holds)
            } else {
                results.any(|holds| holds)
            }
        });
        is_found && in_segment && matches_rule
    }

    fn holds(&self, test: &Test, contact: &ModelContact) -> bool {
        let property = |key: &&str| contact.properties.get(*key);
        let number = |key: &&str| property(key).and_then(Value::as_f64);
        let equals = |key: &&str, wanted: &Value| match (property(key), wanted) {
            (Some(Value::Number(_)), Value::Number(wanted)) => number(key) == wanted.as_f64(),
            (found, wanted) => found == Some(wanted),
        };
        let last = |what: &What| self.engagements.get(&(contact.email.clone(), *what));
        let days_ago = |days: &u32| self.now - i64::from(*days) * DAY;
        match test {
            Test::Is(key, wanted) => equals(key, wanted),
            Test::IsNot(key, wanted) => !equals(key, wanted),
            Test::Contains(key, text) => {
                let found = property(key).and_then(Value::as_str);
                found.is_some_and(|found| found.contains(*text))
            }
            Test::IsSet(key) => property(key).is_some(),
            Test::IsNotSet(key) => property(key).is_none(),
            Test::Greater(key, than) => number(key).is_some_and(|found| found > f64::from(*than)),
            Test::Less(key, than) => number(key).is_some_and(|found| found < f64::from(*than)),
            Test::Ever(what) => last(what).is_some(),
            Test::Never(what) => last(what).is_none(),
            Test::Within(what, days) => last(what).is_some_and(|at| *at >= days_ago(days)),
            Test::NotWithin(what, days) => last(what).is_none_or(|at| *at < days_ago(days)),
            Test::JoinedWithin(days) => contact.created_at >= days_ago(days),
            Test::JoinedBefore(days) => contact.created_at <= days_ago(days),
        }
    }
}

/// The forms of a contact: sections 2.1 to 2.3.
impl ModelContact {
    fn summary(&self) -> Value {
        json!({
            "email": self.email, "first_name": self.first_name, "properties": self.properties,
            "unsubscribed": self.unsubscribed, "created_at": self.created_at,
        })
    }

    fn record(&self) -> Value {
        let mut record = self.summary();
        record["last_name"] = json!(self.last_name);
        record
    }

    fn full(&self) -> Value {
        let mut full = self.record();
        full["unsubscribe_reason"] = json!(Some(self.reason).filter(|reason| !reason.is_empty()));
        let answer = |(name, default): (&'static str, bool)| {
            (name, *self.answers.get(name).unwrap_or(&default))
        };
        full["topics"] = json!(TOPICS.map(answer).into_iter().collect::<BTreeMap<_, _>>());
        full
    }

    /// The contact as a consent call returns it.
    fn in_form(&self, form: ConsentForm) -> Value {
        let mut full = self.full();
        if form == ConsentForm::Create {
            full["unsubscribe_reason"] = Value::Null;
            full["topics"] = json!({});
        }
        full
    }
}

fn summary_view(contact: &ContactSummary) -> Value {
    json!({
        "email": contact.email, "first_name": contact.first_name, "properties": contact.properties,
        "unsubscribed": contact.unsubscribed, "created_at": contact.created_at.as_unix(),
    })
}

fn record_view(contact: &ContactRecord) -> Value {
    json!({
        "email": contact.email, "first_name": contact.first_name, "last_name": contact.last_name,
        "properties": contact.properties, "unsubscribed": contact.unsubscribed,
        "created_at": contact.created_at.as_unix(),
    })
}

fn full_view(contact: &Contact) -> Value {
    let reason = contact.unsubscribe_reason.as_ref();
    json!({
        "email": contact.email, "first_name": contact.first_name, "last_name": contact.last_name,
        "properties": contact.properties, "unsubscribed": contact.unsubscribed,
        "unsubscribe_reason": reason.map(ToString::to_string),
        "created_at": contact.created_at.as_unix(), "topics": contact.topics,
    })
}

/// A client and the mock behind it.
struct Service {
    server: MockServer,
    client: Client,
    dialect: Dialect,
    /// The list that [`Step::Continue`] reads, the addresses that it must return, and those that it has returned.
    open_list: Option<(ContactStream, Vec<String>, Vec<String>)>,
    /// The ids that the client has seen, by address. They never change.
    ids: BTreeMap<String, String>,
    /// The codes of all refusals.
    codes: BTreeSet<&'static str>,
}

impl Service {
    async fn start(dialect: Dialect) -> Self {
        let mut builder = MockServer::builder().clock(START).dialect(dialect);
        for (name, default) in TOPICS {
            builder = builder.topic(name, default);
        }
        let picked = ["C2@example.com", "c3@example.com"].map(str::to_owned);
        let pros = json!({"match_": "all", "conditions": [
            {"field": "property", "key": "plan", "op": "is", "value": "pro"},
        ]});
        let server = builder
            .segment("picked", SegmentKind::Contacts(picked.to_vec()))
            .segment("pros", SegmentKind::Rule(pros))
            .start()
            .await;
        let client = settings(&server, dialect, server.full_key()).build();
        Self {
            client: client.unwrap(),
            server,
            dialect,
            open_list: None,
            ids: BTreeMap::new(),
            codes: BTreeSet::new(),
        }
    }

    fn reset(&mut self) {
        self.server.reset();
        self.open_list = None;
        self.ids.clear();
    }

    async fn run(&mut self, step: &Step) -> Seen {
        let contacts = self.client.contacts();
        match step {
            Step::Create(entry) => {
                let created = contacts.create(entry.to_new()).await;
                self.seen(created, |created| {
                    let contact = &created.contact;
                    let value =
                        json!({"is_new": created.is_new(), "contact": record_view(contact)});
                    (value, vec![(contact.email.clone(), contact.id.clone())])
                })
            }
            Step::Batch(entries) => {
                let report = contacts
                    .create_batch(entries.iter().map(Entry::to_new))
                    .await;
                self.seen(report, |report| {
                    let sent = entries
                        .iter()
                        .map(|entry| entry.address.map(Address::stored));
                    for (entry, sent) in report.entries.iter().zip(sent) {
                        assert_eq!(entry.email, sent.unwrap_or("no address".to_owned()));
                    }
                    let outcomes = report.entries.iter().map(|entry| match &entry.outcome {
                        BatchOutcome::Created => "created",
                        BatchOutcome::Updated => "updated",
                        BatchOutcome::Skipped => "skipped",
                        BatchOutcome::Failed { code, .. } => code.as_str(),
                        other => panic!("{other:?}"),
                    });
                    (outcomes.collect(), Vec::new())
                })
            }
            Step::Retrieve(address) => {
                let contact = contacts.retrieve(address.written()).await;
                self.seen_contact(contact)
            }
            Step::Unsubscribe {
                address,
                reason,
                topic,
            } => {
                let mut call = contacts.unsubscribe(address.written()).reason(*reason);
                if let Some(topic) = topic {
                    call = call.topic(*topic);
                }
                let contact = call.await;
                self.seen_contact(contact)
            }
            Step::Subscribe { address, topic } => {
                let mut call = contacts.subscribe(address.written());
                if let Some(topic) = topic {
                    call = call.topic(*topic);
                }
                let contact = call.await;
                self.seen_contact(contact)
            }
            Step::SetTopics { address, form } => {
                let form = form.iter().map(|(topic, answer)| (*topic, *answer));
                match contacts.set_topics(address.written(), form).await {
                    Ok(saved) => {
                        let mut answers = saved.changed;
                        answers.extend(saved.unchanged);
                        Seen::Value(json!(answers))
                    }
                    Err(error) => {
                        let Seen::Refused(code) = self.refused(error.error()) else {
                            panic!("{error:?}");
                        };
                        Seen::FormFailed(code, error.recorded().clone())
                    }
                }
            }
            Step::Merge {
                address,
                properties,
            } => {
                let properties = to_properties(properties);
                let merged = contacts
                    .merge_properties(address.written(), properties)
                    .await;
                self.seen(merged, |merged| {
                    let contact: Value = merged.json().unwrap();
                    (contact["properties"].clone(), Vec::new())
                })
            }
            Step::Delete(address) => {
                let path = ["contacts".to_owned(), address.stored()];
                let deleted = self.client.request(Method::DELETE, path).await;
                if deleted.is_ok() {
                    // The cursor of the open list may be gone, and the next contact of this address has another id.
                    self.open_list = None;
                    self.ids.remove(&address.stored());
                }
                self.seen(deleted, |_| (Value::Null, Vec::new()))
            }
            Step::List { filter, limit } => {
                let list = || filter.list(&self.client).limit(*limit);
                let listed: Result<Vec<_>, _> = list().stream().try_collect().await;
                let count = list().count().await;
                self.seen(listed, |list| {
                    assert_eq!(list.len() as u64, count.unwrap());
                    let views: Vec<_> = list.iter().map(summary_view).collect();
                    (json!({"count": list.len(), "list": views}), ids(list))
                })
            }
            Step::Page {
                filter,
                limit,
                after,
            } => {
                let mut list = filter.list(&self.client).limit(*limit);
                let stored = self.server.contacts();
                if !stored.is_empty() {
                    // The index counts from the oldest contact, and the mock returns the newest first.
                    let newest = stored.len() - 1 - after.index(stored.len());
                    list = list.after(&stored[newest].id);
                }
                let page = list.await;
                self.seen(page, |page| {
                    (
                        page.data.iter().map(summary_view).collect(),
                        ids(&page.data),
                    )
                })
            }
            Step::Continue { contacts: count } => {
                self.continue_list(*count).await;
                Seen::Nothing
            }
            Step::ReportSpam(address) => {
                self.server.report_spam(address.written());
                Seen::Nothing
            }
            Step::Engage {
                address,
                what,
                days_ago,
            } => {
                let what = match what {
                    What::Opened => EngagementKind::Opened,
                    What::Complained => EngagementKind::Complained,
                };
                let at = self.server.now().as_unix() - days_ago * DAY;
                self.server.record_engagement(address.written(), what, at);
                Seen::Nothing
            }
            Step::PassHours(hours) => {
                self.server
                    .advance(Duration::from_secs(3_600 * hours.unsigned_abs()))
                    .await;
                Seen::Nothing
            }
            Step::SetCeiling(ceiling) => {
                self.server.set_ceiling(*ceiling);
                Seen::Nothing
            }
        }
    }

    /// Reads on in the open list, or opens one. It returns each contact that existed when it was opened, and no other.
    async fn continue_list(&mut self, count: usize) {
        let (list, expected, seen) = self.open_list.get_or_insert_with(|| {
            let stored = self.server.contacts().into_iter();
            let list = self.client.contacts().list().limit(2);
            (
                list.stream(),
                stored.map(|contact| contact.email).collect(),
                Vec::new(),
            )
        });
        for _ in 0..count {
            if let Some(contact) = list.try_next().await.unwrap() {
                seen.push(contact.email);
                continue;
            }
            assert_eq!(seen, expected);
            self.open_list = None;
            return;
        }
    }

    fn seen_contact(&mut self, contact: Result<Contact, Error>) -> Seen {
        self.seen(contact, |contact| {
            (
                full_view(contact),
                vec![(contact.email.clone(), contact.id.clone())],
            )
        })
    }

    /// Returns what the program sees of a result, and compares the ids in it with those that it saw before.
    fn seen<T: Debug>(
        &mut self,
        result: Result<T, Error>,
        view: impl FnOnce(&T) -> (Value, Vec<(String, String)>),
    ) -> Seen {
        let value = match result {
            Ok(value) => value,
            Err(error) => return self.refused(&error),
        };
        let (view, ids) = view(&value);
        for (email, id) in ids {
            assert_eq!(self.ids.entry(email).or_insert(id.clone()), &id);
        }
        Seen::Value(view)
    }

    fn refused(&self, error: &Error) -> Seen {
        if error.kind() == ErrorKind::Input {
            assert_eq!(error.outcome(), Outcome::NotSent);
            return Seen::InvalidInput;
        }
        let refusal = error.api().unwrap_or_else(|| panic!("{error:?}"));
        let status = refusal.status().as_u16();
        let is_not_sent = error.outcome() == Outcome::NotSent;
        assert!(
            is_not_sent || error.outcome() == Outcome::Refused,
            "{error:?}"
        );
        let slugs = match status {
            402 => &["quota_exceeded"][..],
            404 => &["not_found"],
            409 => &["already_exists"],
            501 => &["not_described"],
            400 if self.dialect.invalid_status == InvalidStatus::BadRequest => {
                &["validation_error", "failed_precondition"]
            }
            422 => &["validation_error", "failed_precondition"],
            _ => panic!("{error:?}"),
        };
        // The client itself reports an unknown topic, so there is a code even if the service sends none.
        let has_code = has_body(self.dialect, status) || is_not_sent;
        let code = refusal.code().map(ErrorCode::as_str);
        assert_eq!(code.is_some(), has_code, "{error:?}");
        let is_code = |slug: &&&str| code.is_none_or(|code| code == **slug);
        let slug = slugs.iter().find(is_code).copied();
        Seen::Refused(slug.unwrap_or_else(|| panic!("{error:?}")))
    }
}

fn ids(list: &[ContactSummary]) -> Vec<(String, String)> {
    let ids = list.iter();
    ids.map(|contact| (contact.email.clone(), contact.id.clone()))
        .collect()
}

/// Compares everything that the mock has stored, and the list as the client reads it, with the model.
async fn check_state(service: &mut Service, model: &Model) {
    let stored = service.server.contacts();
    let newest_first = model.contacts.iter().rev();
    assert_eq!(stored.len(), model.contacts.len());
    for (stored, expected) in stored.iter().zip(newest_first) {
        check_stored(stored, expected, model);
    }
    let everything = Step::List {
        filter: Filter::default(),
        limit: 4,
    };
    let listed = service.run(&everything).await;
    assert_eq!(listed, model.clone().apply(&everything));
}

fn check_stored(stored: &StoredContact, expected: &ModelContact, model: &Model) {
    let view = json!({
        "email": stored.email, "first_name": stored.first_name, "last_name": stored.last_name,
        "properties": stored.properties, "unsubscribed": stored.unsubscribed,
        "unsubscribe_reason": Some(&stored.unsubscribe_reason).filter(|reason| !reason.is_empty()),
        "created_at": stored.created_at.as_unix(), "topics": stored.topics,
    });
    assert_eq!(view, expected.full());
    assert_eq!(stored.answers, expected.answers);
    assert_eq!(stored.suppressed, model.suppressed.contains(&stored.email));
    for (kind, what) in [
        (EngagementKind::Opened, What::Opened),
        (EngagementKind::Complained, What::Complained),
    ] {
        let expected = model.engagements.get(&(stored.email.clone(), what));
        let found = stored.engagement.get(&kind).map(|at| at.as_unix());
        assert_eq!(found.as_ref(), expected);
    }
}

/// Runs the steps, each on the client and on the model.
async fn run(service: &mut Service, steps: &[Step]) {
    let mut model = Model::new(service.dialect);
    service.reset();
    for step in steps {
        let expected = model.apply(step);
        let seen = service.run(step).await;
        let has_slugs = has_body(service.dialect, 422);
        let [seen_code, expected_code] = [&seen, &expected].map(|seen| seen.code(has_slugs));
        assert_eq!(seen_code, expected_code, "{step:?}");
        match expected_code {
            Some((code, _)) => _ = service.codes.insert(code),
            None => assert_eq!(seen, expected, "{step:?}"),
        }
        pass_limit(service, &mut model).await;
        check_state(service, &model).await;
        pass_limit(service, &mut model).await;
    }
}

/// Passes a second if the dialect limits the requests of each.
async fn pass_limit(service: &Service, model: &mut Model) {
    if service.dialect.rate_limit != RateLimit::Unlimited {
        service.server.advance(Duration::from_secs(1)).await;
        model.now += 1;
    }
}

/// Runs this many random sequences in a dialect, always the same ones. Returns the number of steps, and the codes of the
/// refusals.
fn run_sequences(
    dialect: Dialect,
    sequences: u32,
    length: usize,
) -> (usize, BTreeSet<&'static str>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let service = RefCell::new(runtime.block_on(Service::start(dialect)));
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[20; 32]);
    let config = Config {
        cases: sequences,
        failure_persistence: None,
        ..Config::default()
    };
    let steps = Cell::new(0);
    let result = TestRunner::new_with_rng(config, rng).run(&vec(step(), 1..=length), |sequence| {
        steps.set(steps.get() + sequence.len());
        runtime.block_on(run(&mut service.borrow_mut(), &sequence));
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{dialect}: {failure}"));
    (steps.get(), service.into_inner().codes)
}

#[test]
fn the_client_the_mock_and_the_model_agree_after_every_step() {
    let (sequences, length) = match std::env::var_os("AUDIENCE_LONG_TESTS") {
        Some(_) => (2_000, 100),
        None => (48, 60),
    };

    let (steps, codes) = run_sequences(Dialect::default(), sequences, length);

    println!("{steps} steps, refusals: {codes:?}");
    let all = [
        "already_exists",
        "failed_precondition",
        "not_described",
        "not_found",
        "quota_exceeded",
        "validation_error",
    ];
    assert_eq!(codes, BTreeSet::from(all));
}

#[test]
fn they_agree_in_every_dialect() {
    let (sequences, length) = match std::env::var_os("AUDIENCE_LONG_TESTS") {
        Some(_) => (400, 60),
        None => (3, 30),
    };

    let steps = dialects().map(|dialect| run_sequences(dialect, sequences, length).0);
    let steps: usize = steps.sum();

    println!("{steps} steps");
    assert!(steps > 1_000);
}
