//! The sample tests in `examples/other-languages`, against the program that was just built.

use std::process::{Command, Stdio};

use support::skip;

#[test]
fn the_sample_tests_in_python_pass() {
    if !is_installed("python3") {
        return skip("the sample tests in Python: python3 is not installed");
    }
    let output = passes(
        "python3",
        &["-B", "examples/other-languages/python/run_tests.py"],
    );

    let tests = include_str!("../../../examples/other-languages/python/test_newsletter.py");
    let count = tests.matches("\ndef test_").count();
    assert!(
        output.contains(&format!("{count} passed"))
            || output.contains(&format!("Ran {count} tests")),
        "{output}"
    );
}

#[test]
fn the_sample_tests_in_javascript_pass() {
    if !is_installed("node") {
        return skip("the sample tests in JavaScript: node is not installed");
    }
    let output = passes(
        "node",
        &[
            "--test",
            "examples/other-languages/node/newsletter.test.mjs",
        ],
    );

    let tests = include_str!("../../../examples/other-languages/node/newsletter.test.mjs");
    let count = tests.matches("\ntest(").count();
    assert!(output.contains(&format!("pass {count}\n")), "{output}");
}

/// Runs sample tests, which must pass. Returns what they printed.
///
/// Runs them again after a timeout. They test an application whose timeouts are those of real use, such as 5 s for an
/// opt-in, and a busy machine may need longer now and then.
fn passes(program: &str, arguments: &[&str]) -> String {
    let mut attempt = 1;
    loop {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .env(
                "AUDIENCE_MOCK_PROGRAM",
                support::examples::program("audience-mock"),
            )
            .env("no_proxy", "*")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        if output.status.success() {
            return printed;
        }
        // The Python application ends the connection of a request that takes too long.
        let mut names = ["TimeoutError", "RemoteDisconnected"].into_iter();
        let has_timed_out = names.any(|name| printed.contains(name));
        assert!(has_timed_out && attempt < 3, "{printed}");
        attempt += 1;
    }
}

fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    let version = command.arg("--version").stdin(Stdio::null()).output();
    version.is_ok_and(|output| output.status.success())
}
