//! The command that sends a request again.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use audience::mock::MockServer;
use serde_json::json;

use super::tab::Page;
use super::{Receivers, server_with};

/// Returns the arguments that bash gives to curl, and what the command printed besides.
fn arguments(command: &str) -> Vec<String> {
    let script = format!("curl() {{ printf '%s\\0' \"$@\"; }}\n{command}\n");
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("AUDIENCE_KEY", "the-key")
        .output()
        .unwrap();
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// Sends a request and returns the command that the page shows for it.
fn command_for(server: &MockServer, request: reqwest::RequestBuilder) -> Option<String> {
    Receivers::new().block_on(request.send()).unwrap();
    shown_command(server)
}

/// Returns the command that the page shows for the newest request.
fn shown_command(server: &MockServer) -> Option<String> {
    let mut page = Page::open_at(server, "#requests")?;
    page.click("[data-list=requests] summary");
    page.wait_for("document.querySelector('.curl')");
    let command = page.eval("document.querySelector('.curl').textContent");
    page.assert_no_problems();
    Some(command.as_str().unwrap().to_owned())
}

#[test]
fn a_request_is_copied_with_a_variable_for_the_key() {
    let server = server_with(json!({}));
    let request = reqwest::Client::new()
        .post(format!("{}/contacts?a=b", server.url()))
        .bearer_auth(server.full_key())
        .header("content-type", "application/json")
        .body(r#"{"email": "o'hara@example.com"}"#);
    let Some(command) = command_for(&server, request) else {
        return;
    };

    assert!(!command.contains(server.full_key()), "{command}");
    assert_eq!(
        arguments(&command),
        [
            "-X",
            "POST",
            "-H",
            "authorization: Bearer the-key",
            "-H",
            "content-type: application/json",
            "--data-raw",
            r#"{"email": "o'hara@example.com"}"#,
            &format!("{}/contacts?a=b", server.url()),
        ]
    );
}

#[test]
fn a_key_in_a_header_of_its_own_is_a_variable_too() {
    let server = MockServer::builder()
        .auth_header("X-Audience")
        .clock(super::START)
        .start_blocking();
    let request = reqwest::Client::new()
        .get(format!("{}/contacts", server.url()))
        .header("x-audience", server.full_key())
        .header("x-api-key", "another-secret");
    let Some(command) = command_for(&server, request) else {
        return;
    };

    assert!(
        !command.contains(server.full_key()) && !command.contains("another-secret"),
        "{command}"
    );
    let arguments = arguments(&command);
    assert!(
        arguments.contains(&"x-audience: the-key".to_owned()),
        "{arguments:?}"
    );
}

#[test]
fn hostile_data_does_nothing_in_a_shell_or_a_terminal() {
    let server = server_with(json!({}));
    let body = "'; id; $(id) `id` \\ !! \"$HOME\" \u{1b}[201~\r\nid\u{3}\u{15}\u{202e} ünï\n";
    let request = reqwest::Client::new()
        .post(format!(
            "{}/contacts/'%22$(id)`%7B[1-3]%7D?q='$(id)'",
            server.url()
        ))
        .header("x-hostile", "'$(id)`id`\\'")
        .header("x-empty", "")
        .body(body);
    let Some(command) = command_for(&server, request) else {
        return;
    };

    let invisible: Vec<char> = command
        .chars()
        .filter(|character| {
            character.is_control() && *character != '\n' || *character == '\u{202e}'
        })
        .collect();
    assert!(invisible.is_empty(), "{invisible:?} in {command}");
    let arguments = arguments(&command);
    assert_eq!(arguments[arguments.len() - 2], body);
    assert!(
        arguments.contains(&"x-hostile: '$(id)`id`\\'".to_owned()),
        "{arguments:?}"
    );
    assert!(arguments.contains(&"x-empty;".to_owned()), "{arguments:?}");
    assert!(arguments.contains(&"--globoff".to_owned()), "{arguments:?}");
    let url = arguments.last().unwrap();
    let path = &server.requests()[0].path;
    assert!(
        url.starts_with(&format!("{}{path}?", server.url())),
        "{url}"
    );
}

#[test]
fn a_long_body_is_copied_whole() {
    let server = server_with(json!({}));
    let body = json!({"email": "ada@example.com", "first_name": "a".repeat(20_000)}).to_string();
    let request = reqwest::Client::new()
        .post(format!("{}/contacts", server.url()))
        .body(body.clone());
    let Some(command) = command_for(&server, request) else {
        return;
    };

    assert!(arguments(&command).contains(&body));
}

#[test]
fn curl_adds_no_accept_and_no_content_type_that_the_request_did_not_have() {
    let server = server_with(json!({}));
    let body = r#"{"email": "ada@example.com"}"#;
    let address = server.url().trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).unwrap();
    write!(
        connection,
        "POST /contacts HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        server.full_key(),
        body.len(),
    )
    .unwrap();
    connection.read_to_end(&mut Vec::new()).unwrap();
    let Some(command) = shown_command(&server) else {
        return;
    };

    assert_eq!(server.requests()[0].status, Some(201));
    assert_eq!(
        arguments(&command),
        [
            "-X",
            "POST",
            "-H",
            "authorization: Bearer the-key",
            "-H",
            "accept:",
            "-H",
            "content-type:",
            "--data-raw",
            body,
            &format!("{}/contacts", server.url()),
        ]
    );
}
