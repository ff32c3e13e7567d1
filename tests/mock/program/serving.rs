//! The mock as a process: how it starts, what configures it, how it ends.

use std::net::TcpListener;

use serde_json::json;

use super::{RunningMock, SECRET, fails_with, file, program, run};

#[tokio::test]
async fn the_first_line_is_the_url_and_the_mock_listens_there() {
    let mock = RunningMock::start(&["--full-key", "k-12345"]);

    assert!(mock.url.starts_with("http://127.0.0.1:"), "{}", mock.url);
    assert_eq!(mock.get("/contacts", "k-12345").await.0, 200);
    assert_eq!(mock.get("/contacts", "other").await.0, 401);
}

#[cfg(unix)]
#[test]
fn an_interrupt_or_a_request_to_terminate_ends_the_mock_cleanly() {
    for signal in ["-INT", "-TERM"] {
        let mock = RunningMock::start(&["--log", "pretty"]);

        let (status, error) = mock.end_by(signal);

        assert!(status.success(), "{signal}: {status}");
        assert_eq!(error, "", "{signal}");
    }
}

#[test]
fn a_port_in_use_is_an_error_that_says_so() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();

    let error = fails_with(1, &["--port", &port]);

    assert!(
        error.starts_with("audience-mock: could not start: "),
        "{error}"
    );
    assert!(
        error.contains(&format!("127.0.0.1:{port} is in use"))
            && error.contains("choose another port"),
        "{error}"
    );
}

#[test]
fn unusable_keys_are_an_error_that_says_so() {
    let seed = file("program-odd-key.json", r#"{"keys": {"full": "key\n"}}"#);
    for (arguments, reason) in [
        (
            &["--full-key", ""][..],
            "the full-access key is empty; set a key",
        ),
        (&["--sending-key="], "the sending-access key is empty"),
        (
            &["--full-key", "k-12345", "--sending-key", "k-12345"],
            "are the same; set two keys",
        ),
        (
            &["--full-key", "mock-sending-access-key"],
            "are the same; set two keys",
        ),
        (
            &["--seed", seed.to_str().unwrap()],
            "the full-access key has a line break",
        ),
        (
            &["--sending-key", "'k-12345'"],
            "the sending-access key is in quotation marks; remove them",
        ),
    ] {
        let error = fails_with(1, &[&["--port", "0"], arguments].concat());

        assert!(error.contains(reason), "{arguments:?}: {error}");
        assert!(!error.contains("12345"), "{error}");
    }
}

#[test]
fn a_seed_that_cannot_be_used_is_an_error_that_names_the_file_and_the_member() {
    let seed = file("program-invalid.json", r#"{"contacts": [{"email": 7}]}"#);
    for (path, reason) in [
        (
            "no-such-seed.json",
            "could not read the seed file \"no-such-seed.json\"",
        ),
        (
            seed.to_str().unwrap(),
            "`contacts[0].email` must be a string, not 7",
        ),
    ] {
        let error = fails_with(1, &["--port", "0", "--seed", path]);

        assert!(error.contains(reason), "{error}");
    }
}

#[tokio::test]
async fn every_option_can_be_a_variable() {
    let seed = file(
        "program-variables.json",
        r#"{"contacts": [{"email": "ada@example.com"}]}"#,
    );
    let mock = RunningMock::spawn(program().envs([
        ("AUDIENCE_MOCK_PORT", "0"),
        ("AUDIENCE_MOCK_HOST", "127.0.0.1"),
        ("AUDIENCE_MOCK_ALLOWED_HOST", "mock,mock.test"),
        ("AUDIENCE_MOCK_FULL_KEY", "full-12345"),
        ("AUDIENCE_MOCK_SENDING_KEY", "sending-12345"),
        ("AUDIENCE_MOCK_AUTH_HEADER", "x-api-key"),
        ("AUDIENCE_MOCK_CONTACT_CEILING", "1"),
        ("AUDIENCE_MOCK_CLOCK", "1700000000"),
        ("AUDIENCE_MOCK_SIGNING_CLOCK", "wall"),
        ("AUDIENCE_MOCK_TOPIC", "news=true,offers=false"),
        ("AUDIENCE_MOCK_SEED", seed.to_str().unwrap()),
        (
            "AUDIENCE_MOCK_WEBHOOK",
            &format!("http://127.0.0.1:9/hook={SECRET}"),
        ),
        (
            "AUDIENCE_MOCK_DIALECT",
            "missing_name=null,success_status=accepted",
        ),
        ("AUDIENCE_MOCK_LOG", "off"),
    ]));
    let client = reqwest::Client::new();
    let url = format!("{}/contacts/ada@example.com", mock.url);

    let ada = client
        .get(url)
        .header("x-api-key", "full-12345")
        .send()
        .await
        .unwrap();

    assert_eq!(ada.status(), 202);
    let ada: serde_json::Value = ada.json().await.unwrap();
    assert_eq!(ada["first_name"], json!(null));
    assert_eq!(ada["topics"], json!({"news": true, "offers": false}));
    assert_eq!(ada["created_at"], 1_700_000_000);
    let new = client
        .post(format!("{}/contacts", mock.url))
        .header("x-api-key", "full-12345");
    let new = new
        .body(r#"{"email": "bob@example.com"}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(new.status(), 402);
    let health = client
        .get(format!("{}/_mock/health", mock.url))
        .header("host", "mock.test");
    assert_eq!(health.send().await.unwrap().status(), 200);
    assert_eq!(
        mock.json(&["send-event", "email.sent"])["attempts"][0]["endpoint"],
        "http://127.0.0.1:9/hook"
    );
}

#[test]
fn no_help_and_no_error_shows_a_key_or_a_secret_of_a_variable() {
    let secrets = [
        ("AUDIENCE_MOCK_FULL_KEY", "full-12345".to_owned()),
        ("AUDIENCE_MOCK_SENDING_KEY", "sending-12345".to_owned()),
        (
            "AUDIENCE_MOCK_WEBHOOK",
            "ftp://127.0.0.1=signing-12345".to_owned(),
        ),
    ];
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["--port", "x"],
        &["--port", "0"],
        &["send-event"],
        &["help", "send-event"],
    ] {
        let output = program()
            .args(arguments)
            .envs(secrets.clone())
            .output()
            .unwrap();

        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        assert!(!printed.is_empty());
        assert!(!printed.contains("12345"), "{arguments:?}: {printed}");
    }
}

#[test]
fn every_option_names_its_variable_in_the_help() {
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    let options: Vec<&str> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next())
        .collect();

    assert!(options.len() >= 14, "{options:?}");
    for option in options {
        let variable = format!(
            "[env: AUDIENCE_MOCK_{}",
            option.to_uppercase().replace('-', "_")
        );
        assert!(help.contains(&variable), "{variable}");
    }
}

#[tokio::test]
async fn the_keys_of_a_seed_are_those_of_the_mock_unless_an_option_has_another() {
    let seed = r#"{"keys": {"full": "full-of-the-seed", "sending": "sending-of-the-seed"}}"#;
    let seed = file("program-keys.json", seed);
    let mock = RunningMock::start(&[
        "--seed",
        seed.to_str().unwrap(),
        "--sending-key",
        "sending-option",
    ]);

    let statuses = [
        mock.get("/contacts", "full-of-the-seed").await.0,
        mock.get("/contacts", "sending-option").await.0,
        mock.get("/contacts", "sending-of-the-seed").await.0,
        mock.get("/contacts", "mock-full-access-key").await.0,
    ];

    assert_eq!(statuses, [200, 403, 401, 401]);
}
