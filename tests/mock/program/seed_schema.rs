//! The JSON Schema of a seed file, and what the program accepts.

use std::io::ErrorKind;

use audience::mock::{Dialect, MockServer};
use jsonschema::Validator;
use serde_json::{Value, json};

use super::{RunningMock, fails_with, file, run};
use crate::server::seed_files::invalid_seeds;

const SCHEMA: &str = include_str!("../../../fixtures/mock/seed.schema.json");

const SEED: &str = include_str!("../../../fixtures/mock/seed.json");

fn schema() -> Validator {
    jsonschema::draft202012::new(&parse(SCHEMA)).unwrap()
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn problems(seed: &Value) -> Vec<String> {
    let schema = schema();
    let errors = schema.iter_errors(seed);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn the_schema_is_valid_and_the_program_prints_it() {
    assert!(jsonschema::draft202012::meta::is_valid(&parse(SCHEMA)));

    let output = run(&["schema"]);

    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), SCHEMA);
}

#[test]
fn the_sample_file_is_accepted_by_the_schema_and_the_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/mock/seed.json");

    let mock = RunningMock::start(&["--seed", path]);

    assert_eq!(problems(&parse(SEED)), [""; 0]);
    assert_eq!(mock.json(&["clock"])["now"], 1_700_000_000);
    // What the mock has already can be seeded again.
    mock.command(&["seed", path]);
}

#[test]
fn a_seed_file_can_begin_with_a_byte_order_mark() {
    let path = file("byte-order-mark.json", format!("\u{feff}{SEED}"));
    let path = path.to_str().unwrap();

    let mock = RunningMock::start(&["--seed", path]);

    assert_eq!(mock.json(&["clock"])["now"], 1_700_000_000);
    mock.command(&["seed", path]);
}

#[test]
fn the_schema_has_every_choice_of_every_dialect() {
    let schema = parse(SCHEMA);
    let dialect = schema["properties"]["dialect"]["properties"]
        .as_object()
        .unwrap();
    let known: Vec<(String, Value)> = Dialect::choices()
        .map(|(name, choices)| (name.to_owned(), json!({"enum": choices})))
        .collect();

    assert_eq!(dialect.len(), known.len());
    for (name, choices) in known {
        assert_eq!(dialect[&name], choices, "{name}");
    }
}

#[tokio::test]
async fn the_contacts_that_the_mock_lists_are_accepted_by_the_schema() {
    let server = MockServer::builder().seed(parse(SEED)).start().await;

    let seed = json!({"topics": {"news": true, "offers": false}, "contacts": server.contacts()});

    assert_eq!(problems(&seed), [""; 0]);
    let copy = MockServer::builder().seed(seed).start().await;
    assert_eq!(json!(copy.contacts()), json!(server.contacts()));
}

/// Parts of the messages for seeds that only the mock can refuse: it knows addresses, topics and rules.
const ONLY_THE_MOCK: &[&str] = &[
    "must be an email address",
    "has the same address as",
    "`contacts[1].properties.p` must be a string or a number",
    "which does not exist",
    "by `answers` and the topic's default",
    "which another contact has",
    "the secret for",
];

#[tokio::test]
async fn the_schema_refuses_what_the_program_refuses_if_it_can_know() {
    let mut seeds = invalid_seeds();
    seeds.extend([
        (json!([]), "a seed must be a JSON object"),
        (json!({"$schema": 1}), "`$schema` must be a string"),
        (json!({"keys": []}), "`keys` must be a JSON object"),
        (json!({"keys": {"full": 7}}), "`keys.full` must be a string"),
        (
            json!({"keys": {"sending": ""}}),
            "`keys.sending` must be a string that is not empty",
        ),
        (
            json!({"keys": {"other": "k"}}),
            "`keys.other` is not a known member",
        ),
        (
            json!({"dialect": "null"}),
            "`dialect` must be a JSON object",
        ),
        (
            json!({"dialect": {"end_of_list": 1}}),
            "`dialect.end_of_list` must be the name of a choice",
        ),
        (
            json!({"dialect": {"end_of_list": "nil"}}),
            "`end_of_list` has no choice `nil`; its choices: `empty`",
        ),
        (
            json!({"dialect": {"end": "null"}}),
            "a dialect has no `end`; its names: `error_shape`",
        ),
        (
            json!({"contacts": [{"email": "a@x.io", "id": ""}]}),
            "`contacts[0].id` must be a string that is not empty",
        ),
        (
            json!({"contacts": [{"email": "a@x.io", "id": "i"}, {"email": "b@x.io", "id": "i"}]}),
            "`contacts[1].id` is `i`, which another contact has",
        ),
    ]);
    for (number, (seed, reason)) in seeds.into_iter().enumerate() {
        let path = file(&format!("refused-{number}.json"), seed.to_string());

        let started = MockServer::builder()
            .topic("kept", true)
            .seed_file(path)
            .try_start()
            .await;

        let error = started.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let error = error.to_string();
        assert!(error.contains(reason), "{seed}: {error}");
        let only_the_mock = ONLY_THE_MOCK.iter().any(|part| error.contains(part));
        assert_eq!(problems(&seed).is_empty(), only_the_mock, "{seed}: {error}");
    }
}

#[test]
fn a_message_about_keys_does_not_show_them() {
    for keys in [
        json!({"full": ["key-12345"]}),
        json!("key-12345"),
        json!({"full": {"key-12345": 1}}),
    ] {
        let path = file("program-secret.json", json!({"keys": keys}).to_string());

        let error = fails_with(1, &["--port", "0", "--seed", path.to_str().unwrap()]);

        assert!(error.contains("`keys"), "{error}");
        assert!(!error.contains("12345"), "{error}");
    }
}
