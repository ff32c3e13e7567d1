//! How the program finds the service and its key, and that it never shows a key.

use audience::mock::{Fault, MockServer};

use super::{Folder, audience, audience_at, end};

const LIST: [&str; 2] = ["contacts", "list"];

#[test]
fn without_a_url_or_a_key_it_says_which_variable_to_set() {
    let server = MockServer::builder().start_blocking();

    let neither = end(&mut audience(LIST));
    let no_key = end(audience(LIST)
        .env("AUDIENCE_URL", server.url())
        .env("AUDIENCE_KEY", ""));
    let two = end(audience_at(&server, &LIST).env("AUDIENCE_KEY_FILE", "key"));

    for (ended, reason) in [
        (neither, "set AUDIENCE_URL"),
        (no_key, "`AUDIENCE_KEY` is empty"),
        (two, "unset one of them"),
    ] {
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(reason), "{ended:?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn the_key_may_be_in_a_file_that_an_editor_wrote() {
    let folder = Folder::new("key-file");
    let server = MockServer::builder().start_blocking();
    for line_end in ["", "\n", "\r\n"] {
        let key = folder.file("key", format!("{}{line_end}", server.full_key()));

        let ended = end(audience(LIST)
            .env("AUDIENCE_KEY_FILE", key)
            .args(["--url", server.url()]));

        assert_eq!(ended.code, Some(0), "{line_end:?}: {ended:?}");
    }
}

#[test]
fn a_key_that_cannot_be_used_is_refused_and_never_printed() {
    let folder = Folder::new("odd-key");
    let server = MockServer::builder().start_blocking();
    let two_lines = folder.file("two-lines", "hunter2\nhunter2\n");
    let quoted = folder.file("quoted", "'hunter2'\n");
    let missing = folder.path("missing");

    for (variable, value, reason) in [
        ("AUDIENCE_KEY", "hunter2\nx", "contains a control character"),
        ("AUDIENCE_KEY", "\"hunter2\"", "is in quotation marks"),
        ("AUDIENCE_KEY_FILE", &*quoted, "is in quotation marks"),
        (
            "AUDIENCE_KEY_FILE",
            &*two_lines,
            "contains a control character",
        ),
        ("AUDIENCE_KEY_FILE", &*missing, "could not read the file"),
    ] {
        let mut command = audience(LIST);
        let ended = end(command
            .env(variable, value)
            .env("AUDIENCE_URL", server.url()));

        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.starts_with("audience: "), "{ended:?}");
        assert!(ended.stderr.contains(reason), "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
    let help =
        end(audience_at(&server, &["contacts", "list", "--help"]).env("AUDIENCE_KEY", "hunter2"));
    assert!(!help.stdout.contains("hunter2"), "{help:?}");
    assert!(server.requests().is_empty());
}

#[test]
fn the_key_can_be_sent_in_another_header() {
    let server = MockServer::builder()
        .auth_header("x-api-key")
        .start_blocking();

    let refused = end(&mut audience_at(&server, &LIST));
    let done = end(audience_at(&server, &LIST).args(["--auth-header", "X-Api-Key"]));
    let variable = |value| end(audience_at(&server, &LIST).env("AUDIENCE_AUTH_HEADER", value));
    let (named, blank) = (variable("X-Api-Key"), variable(" "));

    assert_eq!((refused.code, done.code), (Some(1), Some(0)), "{refused:?}");
    assert_eq!(named.code, Some(0), "{named:?}");
    // Like the other variables, a blank one counts as not set.
    assert_eq!(blank.stderr, refused.stderr);
    // It names an option of the program, and no item of the library.
    assert!(refused.stderr.contains("--auth-header NAME"), "{refused:?}");
    assert!(!refused.stderr.contains("`Auth`"), "{refused:?}");
}

#[cfg(unix)]
#[test]
fn a_service_at_http_on_another_machine_is_called_only_with_allow_http() {
    let server = MockServer::builder().allowed_host("0.0.0.0");
    let server = server.start_blocking();
    // This address is no loopback address, and leads to this machine.
    let url = server.url().replace("127.0.0.1", "0.0.0.0");
    let list = |flags: &[&str]| {
        let mut command = audience_at(&server, &LIST);
        command.args(flags).env("NO_PROXY", "0.0.0.0");
        end(command.env("AUDIENCE_URL", &url))
    };

    let refused = list(&[]);
    let invalid = list(&["--auth-header", "host"]);
    let sent = server.requests();
    let allowed = list(&["--allow-http"]);

    assert_eq!((refused.code, invalid.code), (Some(2), Some(2)));
    assert!(sent.is_empty());
    assert!(refused.stderr.contains("in clear text"), "{refused:?}");
    let option = "; --allow-http allows it\n";
    assert!(refused.stderr.ends_with(option), "{refused:?}");
    assert!(!invalid.stderr.contains(option), "{invalid:?}");
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
}

#[test]
fn a_mistake_in_the_command_line_is_a_json_object_with_json() {
    for arguments in [
        &["--json"][..],
        &["contacts", "--json"],
        &["--json", "hunter2"],
        &["contacts", "show", "ada@example.com", "--json", "--hunter2"],
        &["import", "a.csv", "--json", "--concurrency", "hunter2"],
        &["sync", "--json"],
    ] {
        let refused = end(&mut audience(arguments));

        assert_eq!(
            (refused.code, &*refused.stdout),
            (Some(2), ""),
            "{refused:?}"
        );
        let error: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
        assert_eq!(error["code"], "usage", "{refused:?}");
        let message = error["message"].as_str().unwrap();
        assert!(!message.starts_with(';'), "{refused:?}");
        assert!(!refused.stderr.contains("hunter2"), "{refused:?}");
    }
    // As a name after `--`, it is not the option.
    let text = end(&mut audience(["import", "--hunter2", "--", "--json"]));
    assert_eq!(text.code, Some(2), "{text:?}");
    assert!(text.stderr.starts_with("error: "), "{text:?}");
    let help = end(&mut audience(["export", "--json", "--help"]));
    assert_eq!((help.code, &*help.stderr), (Some(0), ""), "{help:?}");
}

#[test]
fn a_service_that_is_down_is_exit_status_75_and_one_that_responds_with_something_else_is_1() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::status(200).body("<html>\u{1b}[2Jlogin</html>"));

    let page = end(&mut audience_at(&server, &LIST));
    let down = end(audience(LIST)
        .args(["--url", "http://127.0.0.1:1"])
        .env("AUDIENCE_KEY", "k"));

    for (ended, status) in [(page, 1), (down, 75)] {
        assert_eq!(ended.code, Some(status), "{ended:?}");
        assert!(ended.stderr.starts_with("audience: "), "{ended:?}");
        assert!(!ended.stderr.contains('\u{1b}'), "{ended:?}");
    }
}

#[test]
fn a_mock_in_the_program_starts_empty_or_with_a_seed() {
    let seed = concat!(
        "--mock=",
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/mock/seed.json"
    );

    let empty = end(audience(["contacts", "count", "--mock"]).env_remove("HOME"));
    let seeded = end(&mut audience(["contacts", "count", seed]));
    let missing = end(&mut audience(["contacts", "count", "--mock=no-such-file"]));

    assert_eq!((&*empty.stdout, &*seeded.stdout), ("0\n", "3\n"));
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("no-such-file"), "{missing:?}");
}
