//! Seed files, and seeds that are refused: nothing of them is applied.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use audience::mock::MockServer;
use serde_json::{Value, json};

use super::control::call;
use super::stopped_server;

/// Writes a file for one test. `name` is used by no other test.
///
/// It gets its name at the end: another run of the tests, which writes the same file, never reads a part of it.
pub(crate) fn file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let unnamed = path.with_extension(std::process::id().to_string());
    std::fs::write(&unnamed, content).unwrap();
    std::fs::rename(unnamed, &path).unwrap();
    path
}

/// Like [`file`], for a test that removes its file.
fn own_file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    file(&format!("{}-{name}", std::process::id()), content)
}

#[tokio::test]
async fn a_server_starts_with_the_content_of_a_seed_file() {
    let seed = json!({"topics": {"news": true}, "contacts": [{"email": "ada@example.com", "answers": {"news": false}}]});
    let path = own_file("seed.json", seed.to_string());

    let server = MockServer::builder().seed_file(&path).start().await;
    std::fs::remove_file(path).unwrap();
    server.reset();

    assert!(!server.contact("ada@example.com").unwrap().topics["news"]);
}

#[tokio::test]
async fn a_seed_file_that_cannot_be_used_is_an_error_that_names_it() {
    let missing = PathBuf::from("no-such-seed.json");
    for (path, kind, reason) in [
        (
            missing,
            ErrorKind::NotFound,
            "could not read the seed file \"no-such-seed.json\"",
        ),
        (
            file("empty.json", ""),
            ErrorKind::InvalidData,
            "invalid JSON: EOF",
        ),
        (
            file("cut.json", r#"{"contacts": ["#),
            ErrorKind::InvalidData,
            "invalid JSON: EOF",
        ),
        (
            file("bytes.json", [0xff, 0xfe]),
            ErrorKind::InvalidData,
            "invalid JSON",
        ),
        (
            file("twice.json", r#"{"topics": {"news": true, "news": false}}"#),
            ErrorKind::InvalidData,
            "`news` is given twice",
        ),
        (
            file(
                "topic.json",
                r#"{"contacts": [{"email": "a@x.io", "answers": {"news": true}}]}"#,
            ),
            ErrorKind::InvalidData,
            "topic.json\" is invalid: `contacts[0]` names the topic `news`, which does not exist",
        ),
    ] {
        let error = MockServer::builder()
            .seed_file(path)
            .try_start()
            .await
            .unwrap_err();

        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
#[should_panic(expected = "could not read the seed file \"no-such-seed.json\"")]
fn a_missing_seed_file_panics_with_its_name() {
    let _ = MockServer::builder()
        .seed_file("no-such-seed.json")
        .start_blocking();
}

#[test]
#[should_panic(expected = "the seed is invalid: `contact` is not a known member")]
fn a_misspelled_member_panics_where_the_seed_is_given() {
    let _ = MockServer::builder().seed(json!({"contact": []}));
}

/// Seeds that are refused, each with a part of the message.
pub(crate) fn invalid_seeds() -> Vec<(Value, &'static str)> {
    let contact = |contact: Value| json!({"contacts": [{"email": "a@x.io"}, contact]});
    vec![
        (
            json!({"contact": []}),
            "`contact` is not a known member; known members: `clock`, `ceiling`",
        ),
        (
            json!({"contacts": {}}),
            "`contacts` must be an array, not {}",
        ),
        (
            json!({"contacts": [7]}),
            "`contacts[0]` must be a JSON object, not 7",
        ),
        (
            json!({"clock": "now"}),
            "`clock` must be whole Unix seconds, not \"now\"",
        ),
        (
            json!({"ceiling": -1}),
            "`ceiling` must be a number of contacts or `null`, not -1",
        ),
        (
            json!({"topics": ["news"]}),
            "`topics` must be a JSON object",
        ),
        (
            json!({"topics": {"news": 1}}),
            "`topics.news` must be `true` or `false`, not 1",
        ),
        (json!({"topics": {"": true}}), "a name in `topics` is empty"),
        (
            json!({"segments": {"": {"contacts": []}}}),
            "a name in `segments` is empty",
        ),
        (
            json!({"endpoints": {"": {"url": "http://x", "secret": "s"}}}),
            "a name in `endpoints` is empty",
        ),
        (
            json!({"segments": {"s": {}}}),
            "`segments.s` needs either `contacts` or a `rule`",
        ),
        (
            json!({"segments": {"s": {"contacts": [1]}}}),
            "`segments.s.contacts` must be an array of addresses",
        ),
        (
            json!({"segments": {"s": {"contacts": ["a@x.io", "bad"]}}}),
            "`segments.s`: `contacts[1]` must be an email address, not \"bad\"",
        ),
        (
            json!({"segments": {"s": {"rule": {"match_": "some"}}}}),
            "`segments.s`: `match_` must be",
        ),
        (
            json!({"endpoints": {"crm": {"url": "http://x"}}}),
            "`endpoints.crm.secret` is missing",
        ),
        (
            json!({"endpoints": {"crm": {"url": "ftp://x", "secret": "s"}}}),
            "`endpoints.crm`",
        ),
        (
            json!({"endpoints": {"crm": {"url": "http://x", "secret": 12_345}}}),
            "`endpoints.crm.secret` must be a string",
        ),
        (contact(json!({})), "`contacts[1].email` is missing"),
        (
            contact(json!({"email": "b"})),
            "`contacts[1].email` must be an email address, not \"b\"",
        ),
        (
            contact(json!({"email": " A@X.IO"})),
            "`contacts[1]` has the same address as `contacts[0]`",
        ),
        (
            contact(json!({"email": "b@x.io", "name": "B"})),
            "`contacts[1].name` is not a known member",
        ),
        (
            contact(json!({"email": "b@x.io", "first_name": 1})),
            "`contacts[1].first_name` must be a string, not 1",
        ),
        (
            contact(json!({"email": "b@x.io", "id": 1})),
            "`contacts[1].id` must be a string, not 1",
        ),
        (
            contact(json!({"email": "b@x.io", "created_at": 1.5})),
            "`contacts[1].created_at` must be whole Unix seconds",
        ),
        (
            contact(json!({"email": "b@x.io", "created_at": u64::MAX})),
            "`contacts[1].created_at` must be whole Unix seconds",
        ),
        (
            contact(json!({"email": "b@x.io", "properties": []})),
            "`contacts[1].properties` must be a JSON object, not []",
        ),
        (
            contact(json!({"email": "b@x.io", "properties": {"p": true}})),
            "`contacts[1].properties.p` must be a string or a number",
        ),
        (
            contact(json!({"email": "b@x.io", "unsubscribed": "yes"})),
            "`contacts[1].unsubscribed` must be `true` or `false`",
        ),
        (
            contact(json!({"email": "b@x.io", "unsubscribe_reason": "bored"})),
            "`contacts[1].unsubscribe_reason` must be `manual`, `preferences`, `complaint`",
        ),
        (
            contact(
                json!({"email": "b@x.io", "unsubscribe_reason": "complaint", "unsubscribed": false}),
            ),
            "`contacts[1].unsubscribed` must be true",
        ),
        (
            contact(
                json!({"email": "b@x.io", "unsubscribe_reason": "complaint", "suppressed": false}),
            ),
            "`contacts[1].suppressed` must be true",
        ),
        (
            contact(json!({"email": "b@x.io", "answers": {"kept": "yes"}})),
            "`contacts[1].answers.kept` must be `true` or `false`",
        ),
        (
            contact(json!({"email": "b@x.io", "topics": {"sport": true}})),
            "`contacts[1]` names the topic `sport`, which does not exist",
        ),
        (
            contact(json!({"email": "b@x.io", "answers": {}, "topics": {"kept": false}})),
            "`contacts[1].topics.kept` is false, but by `answers` and the topic's default it is true",
        ),
        (
            contact(json!({"email": "b@x.io", "engagement": {"laughed": 1}})),
            "`contacts[1].engagement`: `laughed` is not a known engagement",
        ),
        (
            contact(json!({"email": "b@x.io", "engagement": {"opened": null}})),
            "`contacts[1].engagement.opened` must be whole Unix seconds",
        ),
    ]
}

#[tokio::test]
async fn a_seed_with_one_invalid_part_is_refused_with_its_path_and_changes_nothing() {
    let server = stopped_server().await;
    server.seed(
        json!({"topics": {"kept": true}, "ceiling": 9, "contacts": [{"email": "ada@example.com"}]}),
    );
    let (contacts, now) = (server.contacts(), server.now());

    for (mut seed, reason) in invalid_seeds() {
        // Everything else of the seed is valid and must not be applied either.
        for (name, value) in [
            ("topics", json!({"new": true})),
            ("segments", json!({"seg_new": {"contacts": []}})),
            ("clock", json!(1_800_000_000)),
            (
                "contacts",
                json!([{"email": "ada@example.com", "first_name": "Changed"}]),
            ),
        ] {
            seed.as_object_mut().unwrap().entry(name).or_insert(value);
        }
        let (status, error) = call(&server, "POST", "seed", seed.clone()).await;

        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(
            (status, &error["error"]["code"]),
            (422, &json!("validation_error")),
            "{seed}"
        );
        assert!(message.contains(reason), "{seed}: {message}");
        assert!(!message.contains("12345"), "{message}");
        let panic = catch_unwind(AssertUnwindSafe(|| server.seed(seed))).unwrap_err();
        let panic = panic.downcast::<String>().unwrap();
        assert_eq!(*panic, format!("the seed is invalid: {message}"));
        assert_eq!((server.contacts(), server.now()), (contacts.clone(), now));
        let list = super::get(&server, "/contacts?segment_id=seg_new")
            .await
            .unwrap();
        assert_eq!(list.status(), 404);
    }
}

#[tokio::test]
async fn a_body_that_is_not_a_seed_is_refused() {
    let server = stopped_server().await;
    let send = async |method: &str, path: &str, body: &'static str| {
        let url = format!("{}/_mock/{path}", server.url());
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = reqwest::Client::new().request(method, url).body(body);
        request.send().await.unwrap().status().as_u16()
    };

    for body in [
        "",
        "[]",
        "7",
        "{",
        "{}x",
        r#"{"contacts": [{"email": "a@x.io"}]"#,
        "\u{feff}",
    ] {
        assert_eq!(send("POST", "seed", body).await, 422, "{body}");
        assert_eq!(send("PUT", "contacts/a%40x.io", body).await, 422, "{body}");
    }
    assert_eq!(send("PUT", "contacts/nobody", "{}").await, 422);
    assert_eq!(server.contact_count(), 0);
    for body in ["{}", "\u{feff}{}"] {
        assert_eq!(send("POST", "seed", body).await, 204, "{body}");
    }
}

#[tokio::test]
async fn tens_of_thousands_of_contacts_are_seeded_and_listed() {
    let contacts: Vec<Value> = (0..30_000)
        .map(|number| json!({"email": format!("c{number}@x.io"), "created_at": -number}))
        .collect();
    let seed = json!({"contacts": contacts}).to_string();
    let path = own_file("huge.json", &seed);

    let server = MockServer::builder().seed_file(&path).start().await;
    std::fs::remove_file(path).unwrap();
    let (status, page) = call(&server, "GET", "contacts?limit=1000", Value::Null).await;

    assert_eq!(
        (status, page["data"].as_array().unwrap().len()),
        (200, 1_000)
    );
    assert_eq!(page["data"][999]["email"], "c999@x.io");
    assert_eq!(server.contacts().len(), 30_000);
    let (status, all) = call(&server, "GET", "contacts", Value::Null).await;
    assert_eq!(
        (status, all["data"].as_array().unwrap().len()),
        (200, 30_000)
    );
}

#[tokio::test]
async fn the_seed_in_the_docs_is_valid() {
    let docs = include_str!("../../../docs/mock-over-http.md");
    let (_, seeds) = docs.split_once("## Seeds\n").unwrap();
    let (_, rest) = seeds.split_once("```json\n").unwrap();
    let (seed, _) = rest.split_once("```\n").unwrap();
    let seed: Value = serde_json::from_str(seed).unwrap();

    let server = MockServer::builder().seed(seed).start().await;

    assert_eq!(server.contact_count(), 2);
    assert_eq!(server.contacts()[1].email, "ada@example.com");
}

#[test]
fn the_output_of_debug_has_no_secret_of_a_seed() {
    let builder = MockServer::builder().seed(json!({
        "endpoints": {"crm": {"url": "http://127.0.0.1:9", "secret": "signing-12345"}},
        "keys": {"full": "full-12345", "sending": "sending-12345"},
    }));

    assert!(!format!("{builder:?}").contains("12345"));
}
