//! Property tests: the service behaves like a reference model of a few lines, for any sequence of calls.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::Api;
use super::exchange::{Body, Connection};

/// A call that the model can predict.
#[derive(Clone, Debug)]
enum Step {
    Create { who: usize, plan: u8 },
    Unsubscribe { who: usize },
    Subscribe { who: usize },
    Answer { who: usize, answer: bool },
    Complain { who: usize },
    NextPage { limit: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..40_usize;
    prop_oneof![
        6 => (who.clone(), any::<u8>()).prop_map(|(who, plan)| Step::Create { who, plan }),
        1 => who.clone().prop_map(|who| Step::Unsubscribe { who }),
        1 => who.clone().prop_map(|who| Step::Subscribe { who }),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, answer)| Step::Answer { who, answer }),
        1 => who.prop_map(|who| Step::Complain { who }),
        3 => (1..5_usize).prop_map(|limit| Step::NextPage { limit }),
    ]
}

/// The expected state of a contact.
#[derive(Clone, Debug, Default, PartialEq)]
struct ModelContact {
    plan: u8,
    unsubscribed: bool,
    reason: &'static str,
    news: Option<bool>,
}

fn address(who: usize) -> String {
    format!("c{who}@x.io")
}

/// Applies a step to the model, and returns the status that the service must return for it.
fn apply_to_model(contacts: &mut BTreeMap<usize, ModelContact>, step: &Step) -> u16 {
    let known = |contacts: &BTreeMap<usize, ModelContact>, who: &usize| contacts.contains_key(who);
    match step {
        Step::Create { who, plan } => {
            let status = if known(contacts, who) { 200 } else { 201 };
            contacts.entry(*who).or_default().plan = *plan;
            status
        }
        Step::Unsubscribe { who } => contacts.get_mut(who).map_or(404, |contact| {
            contact.unsubscribed = true;
            if contact.reason != "complaint" {
                contact.reason = "manual";
            }
            200
        }),
        Step::Subscribe { who } => contacts.get_mut(who).map_or(404, |contact| {
            if contact.reason == "complaint" {
                return 422;
            }
            contact.unsubscribed = false;
            contact.reason = "";
            200
        }),
        Step::Answer { who, answer } => contacts.get_mut(who).map_or(404, |contact| {
            if *answer && contact.reason == "complaint" {
                return 422;
            }
            contact.news = Some(*answer);
            200
        }),
        Step::Complain { who } => {
            if let Some(contact) = contacts.get_mut(who) {
                contact.unsubscribed = true;
                contact.reason = "complaint";
            }
            200
        }
        Step::NextPage { .. } => 200,
    }
}

/// A list that is read page by page, with other calls between the pages.
#[derive(Default)]
struct Listing {
    cursor: Option<String>,
    seen: Vec<String>,
    /// The contacts that existed at the first page, newest first.
    expected: Vec<String>,
}

impl Listing {
    /// Reads the next page. Returns whether it was empty, which is the end of the list.
    fn read_page(
        &mut self,
        connection: &mut Connection<'_>,
        order: &[String],
        limit: usize,
    ) -> bool {
        let after = match &self.cursor {
            None => {
                self.expected = order.iter().rev().cloned().collect();
                String::new()
            }
            Some(cursor) => format!("&after={cursor}"),
        };
        let (_, page) = connection.call("GET", &format!("/contacts?limit={limit}{after}"), ());
        let data = page["data"].as_array().unwrap();
        assert!(data.len() <= limit);
        self.cursor = page["next"].as_str().map(str::to_owned);
        let emails = data
            .iter()
            .map(|item| item["email"].as_str().unwrap().to_owned());
        self.seen.extend(emails);
        data.is_empty()
    }
}

/// Applies a step to the service, and returns the status of the response.
fn apply_to_service(api: &Api, connection: &mut Connection<'_>, step: &Step) -> u16 {
    let mut post = |target: String, body: Body| connection.call("POST", &target, body).0;
    match step {
        Step::Create { who, plan } => {
            let body = json!({"email": address(*who), "properties": {"plan": plan}});
            post("/contacts".to_owned(), body.into())
        }
        Step::Unsubscribe { who } => post(
            format!("/contacts/{}/unsubscribe", address(*who)),
            ().into(),
        ),
        Step::Subscribe { who } => {
            post(format!("/contacts/{}/subscribe", address(*who)), ().into())
        }
        Step::Answer { who, answer } => {
            let verb = if *answer { "subscribe" } else { "unsubscribe" };
            let target = format!("/contacts/{}/{verb}", address(*who));
            post(target, json!({"topic": "news"}).into())
        }
        Step::Complain { who } => {
            api.server.report_spam(address(*who));
            200
        }
        Step::NextPage { .. } => 200,
    }
}

proptest! {
    #[test]
    fn any_sequence_of_calls_has_the_same_effect_as_in_the_model(steps in vec(step(), 1..120)) {
        let api = Api::with(|builder| builder.topic("news", true));
        let mut connection = Connection::new(&api);
        let mut contacts = BTreeMap::new();
        let mut order = Vec::new();
        let mut listing = Listing::default();

        for step in &steps {
            if let Step::NextPage { limit } = step {
                if listing.read_page(&mut connection, &order, *limit) {
                    prop_assert_eq!(&listing.seen, &listing.expected);
                    listing = Listing::default();
                }
                continue;
            }
            let expected = apply_to_model(&mut contacts, step);
            prop_assert_eq!(apply_to_service(&api, &mut connection, step), expected, "{:?}", step);
            if let (Step::Create { who, .. }, 201) = (step, expected) {
                order.push(address(*who));
            }
        }

        for (who, expected) in &contacts {
            let stored = api.server.contact(address(*who)).unwrap();
            prop_assert_eq!(&stored.properties["plan"], &json!(expected.plan));
            prop_assert_eq!(stored.unsubscribed, expected.unsubscribed);
            prop_assert_eq!(stored.unsubscribe_reason, expected.reason);
            prop_assert_eq!(stored.topics["news"], expected.news.unwrap_or(true));
        }
        prop_assert_eq!(api.server.contact_count(), contacts.len());
    }
}
