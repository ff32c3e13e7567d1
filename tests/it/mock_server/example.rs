//! The command line of the mock server program.

use clap::Parser;

#[path = "../../../src/bin/audience-mock/main.rs"]
#[expect(dead_code, reason = "a test does not call `main`")]
mod program;

fn configure(arguments: &[&str]) -> Result<(), String> {
    let arguments = ["audience-mock"]
        .into_iter()
        .chain(arguments.iter().copied());
    let parsed = program::Options::try_parse_from(arguments);
    parsed.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn a_webhook_option_is_a_url_and_a_secret() {
    let with_equals = "--webhook=http://127.0.0.1:9/hook=a-secret=of-the-test";

    assert_eq!(configure(&[with_equals]), Ok(()));
    assert_eq!(
        configure(&["--webhook", "http://localhost:9=a-secret-of-the-test"]),
        Ok(())
    );
}

#[test]
fn a_seed_option_names_a_file_and_can_be_repeated() {
    assert_eq!(configure(&["--seed", "a.json", "--seed=b.json"]), Ok(()));
    assert!(configure(&["--seed"]).is_err());
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
        let error = configure(&["--webhook", webhook]).unwrap_err();

        assert!(error.contains(reason), "{webhook}: {error}");
    }
}

#[test]
fn an_invalid_key_header_is_a_usage_error() {
    assert_eq!(configure(&["--auth-header", "X-Api-Key"]), Ok(()));

    for name in ["", "X Api Key", "x-api-key:", "clé"] {
        let error = configure(&["--auth-header", name]).unwrap_err();

        assert!(error.contains("--auth-header"), "{name}: {error}");
    }
}

#[test]
fn an_invalid_allowed_host_is_a_usage_error() {
    assert_eq!(
        configure(&["--allowed-host", "mock", "--allowed-host=mock.test:4010"]),
        Ok(())
    );

    for host in ["", "a b", "me@mock", ":4010", "http://mock"] {
        let error = configure(&["--allowed-host", host]).unwrap_err();

        assert!(error.contains("--allowed-host"), "{host}: {error}");
    }
}

#[test]
fn a_topic_option_is_a_name_and_a_default() {
    assert_eq!(
        configure(&["--topic", "news=true", "--topic=a=false"]),
        Ok(())
    );

    for topic in ["news", "news=yes", "news=", "=="] {
        let error = configure(&["--topic", topic]).unwrap_err();

        assert!(
            error.contains("NAME=true or NAME=false"),
            "{topic}: {error}"
        );
    }
}

#[test]
fn a_usage_error_about_a_webhook_does_not_print_its_secret() {
    let secret = "a-secret-of-the-test";
    for webhook in [
        format!("https://example.com={secret}"),
        format!("ftp={secret}"),
        format!("http://example.com/{{={secret}\0"),
    ] {
        let error = configure(&["--webhook", &webhook]).unwrap_err();

        assert!(!error.contains(secret), "{webhook:?}: {error}");
    }
}

#[test]
fn a_key_may_start_with_a_hyphen() {
    assert_eq!(
        configure(&["--full-key", "-key", "--sending-key", "--s"]),
        Ok(())
    );
}

#[test]
fn the_last_of_two_equal_options_counts() {
    assert_eq!(
        configure(&["--port", "1", "--port=0", "--clock", "-5"]),
        Ok(())
    );

    let error = configure(&["--port", "65536"]).unwrap_err();
    assert!(error.contains("--port"), "{error}");
}

#[test]
fn the_signing_clock_is_mock_or_wall() {
    assert_eq!(configure(&["--signing-clock", "wall"]), Ok(()));
    assert_eq!(configure(&["--signing-clock=mock"]), Ok(()));

    let error = configure(&["--signing-clock", "wal"]).unwrap_err();

    assert!(error.contains("mock, wall"), "{error}");
}
