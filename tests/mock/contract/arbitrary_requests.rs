//! Property tests: any request, however malformed, gets a response with a JSON body.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use audience::mock::dialect::{ErrorShape, InvalidStatus};
use audience::mock::{Dialect, MockServerBuilder};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::Api;
use super::exchange::Connection;

/// Encodes what cannot stand in the target of a request: control characters, spaces and letters beyond ASCII.
fn sendable(text: &str) -> String {
    let mut sendable = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"#<>\"\\^`{|}".contains(&byte) {
            sendable.push(char::from(byte));
        } else {
            sendable.push_str(&format!("%{byte:02x}"));
        }
    }
    sendable
}

/// Paths, some of which are similar to real ones.
fn path() -> impl Strategy<Value = String> {
    let path = prop_oneof![
        any::<String>(),
        vec(
            "(contacts|batch|emails|subscribe|unsubscribe|a@x|%[0-9a-f]{2}|%|.{0,4})",
            0..5
        )
        .prop_map(|segments| segments.join("/")),
    ];
    path.prop_map(|path| format!("/{}", sendable(&path)))
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
    let query = prop_oneof![
        any::<Option<String>>(),
        pairs.prop_map(|pairs| Some(pairs.join("&"))),
    ];
    query.prop_map(|query| query.map(|query| sendable(&query)))
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

/// The mocks of a test, one for each dialect.
#[derive(Default)]
struct Mocks(RefCell<HashMap<Dialect, Rc<Api>>>);

impl Mocks {
    /// Returns a mock with one topic and nothing else.
    fn fresh(&self, dialect: Dialect) -> Rc<Api> {
        let mut mocks = self.0.borrow_mut();
        let api = mocks.entry(dialect).or_insert_with(|| {
            let topic = |builder: MockServerBuilder| builder.topic("news", true);
            Rc::new(Api::with_dialect_and(dialect, topic))
        });
        api.server.reset();
        Rc::clone(api)
    }
}

/// Whether a response with this status has a body in this dialect.
fn has_body(dialect: Dialect, status: u16) -> bool {
    match dialect.error_shape {
        ErrorShape::Empty => status < 400,
        ErrorShape::EmptyNotFound => status != 404,
        _ => status != 204,
    }
}

fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig::with_cases(1_000))
}

#[test]
fn any_request_gets_a_json_response() {
    let mocks = Mocks::default();
    let method = "(GET|POST|PATCH|DELETE|[A-Z!$%&'*+.^_`|~-]{1,3})";
    let authorization = "(Bearer mock-full-access-key|Bearer mock-sending-access-key|\\PC{0,8})";
    let requests = (
        dialect(),
        method,
        path(),
        query(),
        authorization,
        body(),
        any::<i64>(),
    );

    let result = runner().run(
        &requests,
        |(dialect, method, path, query, authorization, body, now)| {
            let api = mocks.fresh(dialect);
            drop(api.server.set_clock(now));
            let target = query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"));

            let response = Connection::new(&api).send(&method, &target, &authorization, &body);

            prop_assert!((200..500).contains(&response.status) || response.status == 501);
            if has_body(dialect, response.status) {
                let body: Value = serde_json::from_slice(&response.body).unwrap();
                prop_assert!(body.is_object());
            }
            Ok(())
        },
    );

    result.unwrap();
}

#[test]
fn any_body_with_a_valid_key_and_path_gets_a_json_response() {
    let mocks = Mocks::default();
    let target = proptest::sample::select(vec![
        ("POST", "/contacts"),
        ("POST", "/contacts/batch"),
        ("PATCH", "/contacts/a@x"),
        ("POST", "/contacts/a@x/subscribe"),
        ("POST", "/contacts/a@x/unsubscribe"),
        ("POST", "/emails"),
    ]);
    let calls = (dialect(), target, vec(body(), 1..4), json_body());

    let result = runner().run(&calls, |(dialect, (method, path), bodies, rule)| {
        let api = mocks.fresh(dialect);
        let mut connection = Connection::new(&api);
        connection.call("POST", "/contacts", json!({"email": "a@x"}));
        for body in bodies {
            let (status, response) = connection.call(method, path, &*body);

            prop_assert!((200..500).contains(&status));
            prop_assert_eq!(response.is_object(), has_body(dialect, status));
        }
        let rule = sendable(&rule.to_string().replace('%', "%25"));
        let (status, _) = connection.call("GET", &format!("/contacts?rules={rule}"), ());
        let expected = match dialect.invalid_status {
            InvalidStatus::BadRequest => [200, 400],
            _ => [200, 422],
        };
        prop_assert!(expected.contains(&status) || [201, 202].contains(&status));
        Ok(())
    });

    result.unwrap();
}
