//! The state machine under whatever comes: any bytes, and any order of calls against a model of a few lines.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::audience::{Audience, Settings};
use super::dialect::Dialect;
use super::message::Request;
use super::testing::Service;

/// Paths that are close enough to real ones to get somewhere.
fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        vec(
            "(contacts|batch|emails|subscribe|unsubscribe|a@x|%[0-9a-f]{2}|%|.{0,4})",
            0..5
        )
        .prop_map(|segments| format!("/{}", segments.join("/"))),
    ]
}

fn query() -> impl Strategy<Value = Option<String>> {
    let pair = (
        "(limit|after|query|segment_id|rules|.{0,3})",
        "(con_[0-9]{1,24}|-?[0-9]{1,30}|%[0-9a-f]{2}|\\PC{0,8})",
    );
    let pairs = vec(
        pair.prop_map(|(name, value)| format!("{name}={value}")),
        0..4,
    );
    prop_oneof![
        any::<Option<String>>(),
        pairs.prop_map(|pairs| Some(pairs.join("&"))),
    ]
}

/// JSON made of the names that the service knows, in any arrangement.
fn json_body() -> impl Strategy<Value = Value> {
    let name = "(email|first_name|properties|on_conflict|topic|reason|from|to|subject|match_|conditions|field|op|days|value|key|what|.)";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(a@x|b@x|upsert|skip|error|complaint|news|all|any|property|engagement|is|\\PC{0,6})"
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((name, inner), 0..6).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<Vec<u8>>(),
        json_body().prop_map(|body| body.to_string().into_bytes()),
    ]
}

fn dialect() -> impl Strategy<Value = Dialect> {
    let mut dialects: Vec<Dialect> = Dialect::all().collect();
    dialects.push(Dialect::default());
    proptest::sample::select(dialects)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_request_is_answered_with_json(
        dialect in dialect(),
        method in "(GET|POST|PATCH|DELETE|\\PC{0,4})",
        path in path(),
        query in query(),
        authorization in "(Bearer mock-full-access-key|Bearer mock-sending-access-key|\\PC{0,8})",
        body in body(),
        now in any::<i64>(),
    ) {
        let mut audience = Audience::new(Settings { dialect, ..Settings::default() });
        audience.put_topic("news", true);
        let headers = [("authorization".to_owned(), authorization)];
        let request = Request { method: &method, path: &path, query: query.as_deref(), headers: &headers, body: &body };

        let reply = audience.handle(&request, now);

        prop_assert!((200..500).contains(&reply.status));
        prop_assert!(serde_json::from_slice::<Value>(&reply.body).unwrap().is_object());
    }

    #[test]
    fn any_body_with_a_good_key_and_path_is_answered_with_json(
        dialect in dialect(),
        target in proptest::sample::select(vec![
            ("POST", "/contacts"),
            ("POST", "/contacts/batch"),
            ("PATCH", "/contacts/a@x"),
            ("POST", "/contacts/a@x/subscribe"),
            ("POST", "/contacts/a@x/unsubscribe"),
            ("POST", "/emails"),
        ]),
        bodies in vec(body(), 1..4),
        rule in json_body(),
    ) {
        let mut service = Service::speaking(dialect);
        service.audience.put_topic("news", true);
        service.create("a@x");
        for body in bodies {
            let (status, answer) = service.send("full", target.0, target.1, &body);

            prop_assert!((200..500).contains(&status));
            prop_assert!(answer.is_object());
        }
        let (status, _) = service.get(&format!("/contacts?rules={}", rule.to_string().replace('%', "%25")));
        prop_assert!([200, 201, 202, 422].contains(&status));
    }
}

/// A call that the model can follow.
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

#[derive(Clone, Debug, Default, PartialEq)]
struct Modelled {
    plan: u8,
    unsubscribed: bool,
    reason: &'static str,
    news: Option<bool>,
}

fn address(who: usize) -> String {
    format!("c{who}@x.io")
}

/// Applies a step to the model, and says which status the service owes for it.
fn modelled(contacts: &mut BTreeMap<usize, Modelled>, step: &Step) -> u16 {
    let known = |contacts: &BTreeMap<usize, Modelled>, who: &usize| contacts.contains_key(who);
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

/// One walk through the list, a page now and then, while other calls go on.
#[derive(Default)]
struct Walk {
    cursor: Option<String>,
    seen: Vec<String>,
    there_at_the_start: Vec<String>,
}

impl Walk {
    /// Reads a page; true once it was the empty one.
    fn goes_on(&mut self, service: &mut Service, order: &[String], limit: usize) -> bool {
        let after = match &self.cursor {
            None => {
                self.there_at_the_start = order.iter().rev().cloned().collect();
                String::new()
            }
            Some(cursor) => format!("&after={cursor}"),
        };
        let (_, page) = service.get(&format!("/contacts?limit={limit}{after}"));
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

fn applied(service: &mut Service, step: &Step) -> u16 {
    match step {
        Step::Create { who, plan } => {
            let body = json!({"email": address(*who), "properties": {"plan": plan}});
            service.post("/contacts", &body).0
        }
        Step::Unsubscribe { who } => {
            service
                .call(&format!("/contacts/{}/unsubscribe", address(*who)))
                .0
        }
        Step::Subscribe { who } => {
            service
                .call(&format!("/contacts/{}/subscribe", address(*who)))
                .0
        }
        Step::Answer { who, answer } => {
            let verb = if *answer { "subscribe" } else { "unsubscribe" };
            let target = format!("/contacts/{}/{verb}", address(*who));
            service.post(&target, &json!({"topic": "news"})).0
        }
        Step::Complain { who } => {
            service.audience.report_spam(&address(*who), service.now);
            200
        }
        Step::NextPage { .. } => 200,
    }
}

proptest! {
    #[test]
    fn any_order_of_calls_ends_where_a_simple_model_does(steps in vec(step(), 1..120)) {
        let mut service = Service::new();
        service.audience.put_topic("news", true);
        let mut contacts = BTreeMap::new();
        let mut order = Vec::new();
        let mut walk = Walk::default();

        for step in &steps {
            if let Step::NextPage { limit } = step {
                if walk.goes_on(&mut service, &order, *limit) {
                    prop_assert_eq!(&walk.seen, &walk.there_at_the_start);
                    walk = Walk::default();
                }
                continue;
            }
            let expected = modelled(&mut contacts, step);
            prop_assert_eq!(applied(&mut service, step), expected, "{:?}", step);
            if let (Step::Create { who, .. }, 201) = (step, expected) {
                order.push(address(*who));
            }
        }

        for (who, expected) in &contacts {
            let stored = service.audience.contact(&address(*who)).unwrap();
            prop_assert_eq!(&stored.properties["plan"], &json!(expected.plan));
            prop_assert_eq!(stored.unsubscribed, expected.unsubscribed);
            prop_assert_eq!(stored.unsubscribe_reason, expected.reason);
            prop_assert_eq!(stored.topics["news"], expected.news.unwrap_or(true));
        }
        prop_assert_eq!(service.audience.contact_count(), contacts.len());
    }
}
