//! The mock server as a program: what it makes of its arguments.

use audience::mock::MockServer;

#[path = "../../../examples/mock_server.rs"]
#[expect(dead_code, reason = "a test is no program: it does not call `main`")]
mod program;

fn configured(arguments: &[&str]) -> Result<(), String> {
    let arguments = arguments.iter().map(|&argument| argument.to_owned());
    program::configure(MockServer::builder(), arguments).map(|_| ())
}

#[test]
fn an_endpoint_is_a_url_and_a_secret() {
    let with_equals = "--webhook=http://127.0.0.1:9/hook=a-secret=of-the-test";

    assert_eq!(configured(&[with_equals]), Ok(()));
    assert_eq!(
        configured(&["--webhook", "http://localhost:9=a-secret-of-the-test"]),
        Ok(())
    );
}

#[test]
fn an_endpoint_that_cannot_be_used_is_a_usage_error() {
    for (webhook, reason) in [
        (
            "http://127.0.0.1:9?token=1=a-secret-of-the-test",
            "has a query",
        ),
        ("https://example.com=a-secret-of-the-test", "http://"),
        ("example.com=a-secret-of-the-test", "http://"),
        ("http://=a-secret-of-the-test", "is no URL"),
        ("http://me@example.com=a-secret-of-the-test", "names a user"),
        ("http://127.0.0.1:9/hook=", "--webhook"),
        ("http://127.0.0.1:9/hook", "URL=SECRET"),
    ] {
        let error = configured(&["--webhook", webhook]).unwrap_err();

        assert!(error.contains(reason), "{webhook}: {error}");
    }
}
