//! Property tests: any request, however malformed, gets a reply with a JSON body.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::audience::Audience;
use super::dialect::Dialect;
use super::message::Request;
use super::settings::Settings;
use super::testing::Service;

/// Paths, some of which are similar to real ones.
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

/// JSON made of the names that the service knows, in any order.
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
    fn any_request_gets_a_json_reply(
        dialect in dialect(),
        method in "(GET|POST|PATCH|DELETE|\\PC{0,4})",
        path in path(),
        query in query(),
        authorization in "(Bearer mock-full-access-key|Bearer mock-sending-access-key|\\PC{0,8})",
        body in body(),
        now in any::<i64>(),
    ) {
        let mut audience = Audience::new(Settings { dialect: Some(dialect), ..Settings::default() });
        audience.put_topic("news", true);
        let headers = [("authorization".to_owned(), authorization)];
        let request = Request { method: &method, path: &path, query: query.as_deref(), headers: &headers, body: &body };

        let reply = audience.handle(&request, now);

        prop_assert!((200..500).contains(&reply.status));
        prop_assert!(serde_json::from_slice::<Value>(&reply.body).unwrap().is_object());
    }

    #[test]
    fn any_body_with_a_valid_key_and_path_gets_a_json_reply(
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
        let mut service = Service::with_dialect(dialect);
        service.audience.put_topic("news", true);
        service.create("a@x");
        for body in bodies {
            let (status, response) = service.send("full", target.0, target.1, &body);

            prop_assert!((200..500).contains(&status));
            prop_assert!(response.is_object());
        }
        let (status, _) = service.get(&format!("/contacts?rules={}", rule.to_string().replace('%', "%25")));
        prop_assert!([200, 201, 202, 422].contains(&status));
    }
}
