//! A client from the environment, in a process of its own: a test cannot set variables of its process.

use std::process::{Command, Output};

use audience::Client;
use audience::mock::MockServer;

/// Set in the child process.
const CHILD: &str = "AUDIENCE_TEST_CHILD";

/// Runs the test `in_a_process_of_its_own` of this binary with these variables.
fn run(variables: &[(&str, &str)]) -> (bool, String) {
    let name = format!("{}::in_a_process_of_its_own", module_path!());
    let name = name.split_once("::").map_or("", |(_, path)| path);
    let Output { status, stdout, .. } = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env_remove("AUDIENCE_URL")
        .env_remove("AUDIENCE_KEY")
        .env_remove("AUDIENCE_KEY_FILE")
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    (status.success(), String::from_utf8(stdout).unwrap())
}

#[test]
fn in_a_process_of_its_own() -> Result<(), String> {
    use std::io::Write;

    if std::env::var_os(CHILD).is_none() {
        return Ok(());
    }
    let text = match Client::from_env() {
        Ok(client) => client.contacts().list().count().wait().unwrap().to_string(),
        Err(error) => error.to_string(),
    };
    writeln!(std::io::stdout(), "result: {text}").map_err(|error| error.to_string())
}

#[test]
fn a_client_takes_its_base_url_and_key_from_the_environment() {
    let server = MockServer::builder().start_blocking();

    let (success, text) = run(&[
        ("AUDIENCE_URL", server.url()),
        ("AUDIENCE_KEY", server.full_key()),
    ]);

    assert!(success && text.contains("result: 0\n"), "{text}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn the_key_may_be_in_a_file_that_ends_with_a_newline() {
    let server = MockServer::builder().start_blocking();
    let name = format!("audience-key-file-{:016x}", fastrand::u64(..));
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, format!("{}\n", server.full_key())).unwrap();

    let (success, text) = run(&[
        ("AUDIENCE_URL", server.url()),
        ("AUDIENCE_KEY", ""),
        ("AUDIENCE_KEY_FILE", file.to_str().unwrap()),
    ]);
    std::fs::remove_file(&file).unwrap();

    assert!(success && text.contains("result: 0\n"), "{text}");
}

#[test]
fn a_key_file_that_cannot_be_used_is_named_by_its_variable_and_never_by_its_value() {
    let url = ("AUDIENCE_URL", "https://api.example.com");
    for (variables, problem) in [
        (
            &[url, ("AUDIENCE_KEY_FILE", "hunter2")][..],
            "could not read the file that `AUDIENCE_KEY_FILE` names",
        ),
        (
            &[
                url,
                ("AUDIENCE_KEY_FILE", "hunter2"),
                ("AUDIENCE_KEY", "hunter2"),
            ],
            "both `AUDIENCE_KEY` and `AUDIENCE_KEY_FILE` are set; unset one of them",
        ),
        (
            &[url, ("AUDIENCE_KEY_FILE", "")],
            "neither of the environment variables `AUDIENCE_KEY` and `AUDIENCE_KEY_FILE` is set",
        ),
    ] {
        let (success, text) = run(variables);

        assert!(
            success && text.contains(&format!("result: {problem}\n")),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_variable_that_is_not_set_is_named() {
    let url = ("AUDIENCE_URL", "https://api.example.com");
    for (variables, problem) in [
        (
            &[("AUDIENCE_KEY", "hunter2")][..],
            "the environment variable `AUDIENCE_URL` is not set",
        ),
        (
            &[url],
            "neither of the environment variables `AUDIENCE_KEY` and `AUDIENCE_KEY_FILE` is set",
        ),
        (
            &[url, ("AUDIENCE_KEY", "")],
            "the environment variable `AUDIENCE_KEY` is empty",
        ),
    ] {
        let (success, text) = run(variables);

        let expected = format!("result: {problem}\n");
        assert!(success && text.contains(&expected), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
