//! The signing secrets of the environment. A process must not change its own, so a second one is started.

use std::env;
use std::process::{Command, Output};

use audience::webhooks::Verifier;

use super::{BODY, SECRET, at, signed_at};

const CHILD: &str = "environment::child";

/// Runs [`child`] with these variables and no others of ours.
fn run_with(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("AUDIENCE_WEBHOOK") {
            command.env_remove(name);
        }
    }
    command
        .args(["--exact", CHILD, "--ignored", "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
#[ignore = "the other tests of this file run it in a process of its own"]
fn child() {
    match Verifier::from_env() {
        Ok(verifier) => {
            let headers = signed_at(1_700_000_000, BODY);
            let delivery = verifier.authenticate_at(&headers, BODY.as_bytes(), at(1_700_000_000));
            println!("signed with {:?}", delivery.unwrap().secret_name());
        }
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn a_deployment_rotates_its_secrets_with_variables() {
    let output = run_with(&[
        ("AUDIENCE_WEBHOOK_SECRET", "Wb8cQe1sLr5uYh7o"),
        ("AUDIENCE_WEBHOOK_SECRET_NEXT", SECRET),
    ]);

    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains(r#"signed with "next""#), "{output:?}");
}

#[test]
fn an_environment_without_a_secret_is_reported_with_the_names_of_the_variables() {
    let output = run_with(&[]);

    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout
            .contains("refused: no signing secret in the environment; set AUDIENCE_WEBHOOK_SECRET"),
        "{output:?}"
    );
}

#[test]
fn an_empty_variable_is_reported_by_name() {
    let output = run_with(&[("AUDIENCE_WEBHOOK_SECRET", "")]);

    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout
            .contains(r#"refused: AUDIENCE_WEBHOOK_SECRET: the signing secret "default" is empty"#),
        "{output:?}"
    );
}
