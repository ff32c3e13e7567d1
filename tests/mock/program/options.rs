//! The options of the program, and its usage errors.

use serde_json::json;

use super::{RunningMock, fails_with, file, program, run};

#[test]
fn a_webhook_option_is_a_url_and_a_secret() {
    for (webhook, url) in [
        (
            "http://localhost:9=a-secret-of-the-test",
            "http://localhost:9/",
        ),
        (
            "http://127.0.0.1:9/hook=YS1zZWNyZXQtb2YtdGhlLXRlc3Q==",
            "http://127.0.0.1:9/hook",
        ),
        (
            "http://127.0.0.1:9/hook/v%3D2=a-secret-of-the-test",
            "http://127.0.0.1:9/hook/v%3D2",
        ),
    ] {
        let mock = RunningMock::start(&["--webhook", webhook]);

        assert_eq!(mock.json(&["endpoints"])["data"][0]["url"], url);
    }
}

#[test]
fn a_webhook_option_whose_secret_could_begin_at_several_places_is_a_usage_error() {
    for webhook in [
        "http://127.0.0.1:9/hook/v=2=a-secret-of-the-test",
        "http://127.0.0.1:9/hook/v=2=YS1zZWNyZXQtb2YtdGhlLXRlc3Q==",
        "http://127.0.0.1:9/hook=a-secret=of-the-test",
    ] {
        let error = fails_with(2, &["--webhook", webhook]);

        assert!(error.contains("has several `=`"), "{error}");
        assert!(error.contains("of the URL as %3D"), "{error}");
        assert!(!error.contains("the-test"), "{error}");
    }
}

#[test]
fn an_unusable_webhook_option_is_a_usage_error() {
    for (webhook, reason) in [
        (
            "http://127.0.0.1:9?token=1=a-secret-of-the-test",
            "has a query",
        ),
        ("https://example.com=a-secret-of-the-test", "http://"),
        ("example.com=a-secret-of-the-test", "http://"),
        ("http://=a-secret-of-the-test", "is not a valid URL"),
        (
            "http://me@example.com=a-secret-of-the-test",
            "has a user name",
        ),
        (
            "http://127.0.0.1:8080x/hook=a-secret-of-the-test",
            "has an invalid port",
        ),
        (
            "http://127.0.0.1:99999=a-secret-of-the-test",
            "has an invalid port",
        ),
        (
            "http://[127.0.0.1]/hook=a-secret-of-the-test",
            "IPv6 address",
        ),
        ("http://127.0.0.1:9/hook=", "--webhook"),
        ("http://127.0.0.1:9/hook", "URL=SECRET"),
    ] {
        let error = fails_with(2, &["--webhook", webhook]);

        assert!(error.contains(reason), "{webhook}: {error}");
    }
}

#[test]
fn an_invalid_key_header_is_a_usage_error() {
    drop(RunningMock::start(&["--auth-header", "X-Api-Key"]));

    for name in ["", "X Api Key", "x-api-key:", "clé"] {
        let error = fails_with(2, &["--auth-header", name]);

        assert!(error.contains("--auth-header"), "{name}: {error}");
    }
}

#[test]
fn an_invalid_allowed_host_is_a_usage_error() {
    drop(RunningMock::start(&[
        "--allowed-host",
        "mock",
        "--allowed-host=mock.test:4010",
    ]));

    for host in ["", "a b", "me@mock", ":4010", "http://mock", "[]"] {
        let error = fails_with(2, &["--allowed-host", host]);

        assert!(error.contains("--allowed-host"), "{host}: {error}");
        assert!(error.contains("is not a valid host name"), "{error}");
    }
    let mut command = program();
    let output = command
        .env("AUDIENCE_MOCK_ALLOWED_HOST", "mock,[]")
        .output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}

#[test]
fn a_topic_option_is_a_name_and_a_default() {
    drop(RunningMock::start(&[
        "--topic",
        "news=true",
        "--topic=a=false",
    ]));

    for topic in ["news", "news=yes", "news=", "==", "=true"] {
        let error = fails_with(2, &["--topic", topic]);

        assert!(
            error.contains("NAME=true or NAME=false"),
            "{topic}: {error}"
        );
    }
}

#[tokio::test]
async fn a_topic_option_may_have_an_equals_sign_in_the_name() {
    let mock = RunningMock::start(&["--topic", "a=b=true"]);

    let (_, topics) = mock.get("/_mock/topics", "").await;

    assert_eq!(topics["data"], json!([{"name": "a=b", "default": true}]));
}

#[test]
fn a_usage_error_about_a_webhook_does_not_print_its_secret() {
    let secret = "a-secret-of-the-test";
    for webhook in [
        format!("https://example.com={secret}"),
        format!("ftp={secret}"),
        format!("http://example.com/{{={secret}\n"),
        format!("{secret}=http://127.0.0.1:3000/hook"),
        format!("{secret}=="),
        secret.to_owned(),
    ] {
        let error = fails_with(2, &["--webhook", &webhook]);

        assert!(!error.contains(secret), "{webhook:?}: {error}");
    }
}

#[test]
fn a_key_may_start_with_a_hyphen() {
    drop(RunningMock::start(&[
        "--full-key",
        "-key",
        "--sending-key",
        "--s",
    ]));
}

#[test]
fn the_last_of_two_equal_options_counts() {
    let mock = RunningMock::start(&["--port", "1", "--port=0", "--clock", "3", "--clock", "-5"]);

    assert_eq!(mock.json(&["clock"])["now"], -5);
    let error = fails_with(2, &["--port", "65536"]);
    assert!(error.contains("--port"), "{error}");
}

#[test]
fn the_clock_is_unix_seconds_or_a_time() {
    for clock in ["1896091200", "2030-01-31T12:00:00Z"] {
        let mock = RunningMock::start(&["--clock", clock]);

        assert_eq!(mock.json(&["clock"])["now"], 1_896_091_200, "{clock}");
    }
    let error = fails_with(2, &["--clock", "soon"]);
    assert!(
        error.contains("--clock") && error.contains("2030-01-31T12:00:00Z"),
        "{error}"
    );
}

#[test]
fn the_signing_clock_is_mock_or_wall() {
    drop(RunningMock::start(&["--signing-clock", "wall"]));
    drop(RunningMock::start(&["--signing-clock=mock"]));

    let error = fails_with(2, &["--signing-clock", "wal"]);

    assert!(error.contains("mock, wall"), "{error}");
}

#[test]
fn a_misspelled_dialect_is_a_usage_error_that_lists_the_known_names_or_choices() {
    for (dialect, reason) in [
        (
            "end_of_lisp=null",
            "a dialect has no `end_of_lisp`; its names: `error_shape`, ",
        ),
        (
            "end_of_list=nil",
            "`end_of_list` has no choice `nil`; its choices: `empty`, `null`, ",
        ),
        (
            "end_of_list",
            "`end_of_list` has no choice ``; its choices: `empty`, `null`, ",
        ),
        ("missing_name=null,x=y", "a dialect has no `x`"),
    ] {
        let error = fails_with(2, &["--dialect", dialect]);

        assert!(error.contains(reason), "{dialect}: {error}");
    }
}

#[test]
fn every_choice_of_every_dialect_is_accepted_and_in_the_help() {
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    for (name, choices) in audience::mock::Dialect::choices() {
        let line = format!("{name}={}", choices.join("|"));
        assert!(help.contains(&line), "{line}");
    }
    let all: Vec<String> = audience::mock::Dialect::choices()
        .flat_map(|(name, choices)| {
            choices
                .into_iter()
                .map(move |choice| format!("{name}={choice}"))
        })
        .collect();

    drop(RunningMock::start(&["--dialect", &all.join(",")]));
}

#[tokio::test]
async fn a_dialect_of_the_command_line_wins_over_that_of_the_seed() {
    let seed = file(
        "program-dialect.json",
        r#"{"dialect": {"end_of_list": "null", "error_shape": "slug"}}"#,
    );
    let mock = RunningMock::start(&[
        "--dialect",
        "end-of-list=empty",
        "--seed",
        seed.to_str().unwrap(),
    ]);

    let (_, list) = mock.get("/contacts", "mock-full-access-key").await;
    let (_, error) = mock.get("/contacts/x", "mock-full-access-key").await;

    assert_eq!(list["next"], "");
    assert_eq!(error["slug"], "not_found");
}

#[tokio::test]
async fn a_topic_of_the_command_line_wins_over_that_of_the_seed() {
    let seed = file(
        "program-topic.json",
        r#"{"topics": {"news": true, "offers": true}, "contacts": [{"email": "ada@example.com", "answers": {"tips": true}}]}"#,
    );
    let mock = RunningMock::start(&[
        "--topic",
        "news=false,tips=false",
        "--seed",
        seed.to_str().unwrap(),
    ]);

    for _ in 0..2 {
        let (_, topics) = mock.get("/_mock/topics", "").await;
        let (_, ada) = mock.get("/_mock/contacts/ada@example.com", "").await;

        assert_eq!(
            topics["data"],
            json!([
                {"name": "news", "default": false},
                {"name": "offers", "default": true},
                {"name": "tips", "default": false},
            ])
        );
        assert_eq!(ada["topics"]["tips"], true);
        mock.command(&["reset"]);
    }
}
