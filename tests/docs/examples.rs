//! The command lines of the programs in `examples/`, of `audience` and of `audience-mock`.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Instant, SystemTime};

use audience::inbox::{Claim, Inbox, SqliteStore};
use audience::mock::dialect::{
    JoinedMember, MergeBody, OmittedMembers, PropertyValues, UnknownMembers,
};
use audience::mock::{Dialect, MockServer, SeedContact};
use audience::webhooks::{EventId, EventType, Signer, Verifier};
use support::examples::EXAMPLES;
use support::{DatabaseFile, PATIENCE};

#[test]
fn every_example_prints_its_usage_for_help() {
    for example in EXAMPLES.keys() {
        let output = run(example, &["--help"]);

        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{example}");
        assert!(stdout.contains(&format!("Usage: {example}")), "{stdout}");
        assert!(stdout.contains("--help"), "{stdout}");
    }
}

#[test]
fn every_example_refuses_a_flag_that_it_does_not_have() {
    for example in EXAMPLES.keys() {
        let output = run(example, &["--no-such-flag"]);

        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{example}: {stderr}");
        assert!(stderr.contains("'--no-such-flag'"), "{stderr}");
        assert!(stderr.contains(&format!("Usage: {example}")), "{stderr}");
        assert!(output.stdout.is_empty(), "{example}");
    }
}

#[test]
fn an_argument_that_an_example_cannot_use_is_a_usage_error() {
    for (example, arguments, reason) in [
        ("quickstart", &["now"][..], "'now'"),
        ("audience", &["sync", "a.csv", "b.csv"], "'b.csv'"),
        (
            "audience",
            &["import", "a.csv", "--map", "Plan"],
            "COLUMN=MEMBER",
        ),
        (
            "audience",
            &["import", "a.csv", "--map", "Plan=fist_name"],
            "property:NAME",
        ),
        (
            "audience",
            &["contacts", "update", "ada@example.com"],
            "--last-name",
        ),
        (
            "audience",
            &["webhooks", "send", "http://127.0.0.1:9"],
            "TYPE",
        ),
        ("webhook_axum", &["--port", "http"], "--port"),
        ("webhook_actix", &["--port", "70000"], "--port"),
        (
            "audience",
            &["export", "-", "--property", "plan"],
            "NAME=VALUE",
        ),
        ("audience-mock", &["--topic", "news"], "NAME=true"),
        ("webhook_hyper", &["--port", "-1"], "'-1'"),
        ("webhook_lambda", &["serve"], "'serve'"),
        ("webhook_exactly_once", &["--port", "8080"], "--database"),
    ] {
        let output = run(example, arguments);

        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{example}: {stderr}");
        assert!(stderr.contains(reason), "{example}: {stderr}");
        assert!(output.stdout.is_empty(), "{example}");
    }
}

#[test]
fn a_receiver_without_a_secret_says_which_variable_to_set() {
    for example in [
        "webhook_axum",
        "webhook_actix",
        "webhook_hyper",
        "webhook_service",
    ] {
        let output = run(example, &["--port", "0"]);

        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{example}: {stderr}");
        assert!(
            stderr.contains("`AUDIENCE_WEBHOOK_SECRET_FILE` is set"),
            "{stderr}"
        );
    }
}

#[test]
fn a_program_logs_what_rust_log_asks_for_and_says_if_it_cannot_be_read() {
    let log = |filter: Option<&str>| {
        let variables = Vec::from_iter(filter.map(|filter| ("RUST_LOG", filter)));
        let output = run_with(&variables, "webhook_service", &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        stderr
    };

    let usual = [None, Some(""), Some(" "), Some("info")].map(log);
    let one_target = log(Some("error, audience::inbox=debug"));

    // The program sends itself a genuine delivery, and a forged one, which is a warning.
    let (genuine, forged) = ("webhook event received", "webhook delivery rejected");
    for usual in usual {
        assert!(
            usual.contains(forged) && !usual.contains(genuine),
            "{usual}"
        );
    }
    assert!(
        one_target.contains(genuine) && !one_target.contains(forged),
        "{one_target}"
    );
    for example in ["webhook_service", "newsletter"] {
        let output = run_with(&[("RUST_LOG", "audience=loud")], example, &[]);

        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{example}: {stderr}");
        assert!(stderr.contains("RUST_LOG"), "{example}: {stderr}");
    }
}

#[cfg(unix)]
#[test]
fn the_mock_says_that_it_could_not_print_its_url_if_nobody_reads_it() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);

    let output = Command::new(&EXAMPLES["audience-mock"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(Child::wait_with_output)
        .unwrap();

    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("could not print the URL"), "{stderr}");
}

#[test]
fn the_check_of_forms_names_the_settings_that_fit_the_service_and_changes_nothing() {
    let forms = [
        (
            MergeBody::Properties,
            JoinedMember::Days,
            UnknownMembers::Refused,
        ),
        (
            MergeBody::Bare,
            JoinedMember::Value,
            UnknownMembers::Refused,
        ),
        // A service that accepts what it does not know.
        (
            MergeBody::Bare,
            JoinedMember::Count,
            UnknownMembers::Ignored,
        ),
        (
            MergeBody::Properties,
            JoinedMember::Value,
            UnknownMembers::Ignored,
        ),
    ];
    for (merge_body, joined_member, unknown_members) in forms {
        let dialect = Dialect {
            merge_body,
            joined_member,
            unknown_members,
            property_values: PropertyValues::Any,
            omitted_members: OmittedMembers::Cleared,
            ..Dialect::default()
        };
        let server = MockServer::builder().dialect(dialect).start_blocking();
        let ada = SeedContact::new("ada@example.com")
            .first_name("Ada")
            .property("plan", "pro");
        server.seed_contact(ada);
        let before = server.contact("ada@example.com").unwrap();

        let variables = [
            ("AUDIENCE_URL", server.url()),
            ("AUDIENCE_KEY", server.full_key()),
        ];
        let output = run_with(&variables, "check_forms", &["Ada@example.com"]);

        let merge = match merge_body {
            MergeBody::Bare => "call `.bare_merge()`",
            _ => "the default is right",
        };
        let joined = match joined_member {
            JoinedMember::Value => "call `.joined_member(\"value\")`",
            JoinedMember::Count => "call `.joined_member(\"count\")`",
            _ => "the default is right",
        };
        let expected = format!("merge_properties: {merge}\njoined conditions: {joined}\n");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            expected,
            "{dialect}: {stderr}"
        );
        assert_eq!(output.status.code(), Some(0), "{dialect}: {stderr}");
        assert_eq!(
            server.contact("ada@example.com").unwrap(),
            before,
            "{dialect}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_service_releases_on_sigterm_what_it_cannot_finish_and_is_ready_before() {
    let file = DatabaseFile::new();
    let arguments = ["--grace", "1", "--work", "3600"];
    let (mut service, url, mut logs) = start_service(&file.0, &arguments);
    let server = url.trim_end_matches("/hook");
    let client = reqwest::Client::new();
    for probe in ["/health", "/ready"] {
        until_accepted(client.get(format!("{server}{probe}"))).await;
    }
    let body = r#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    until_accepted(client.post(&url).headers(signed(body)).body(body)).await;
    let mut line = String::new();
    while !line.contains("handling an event") {
        line.clear();
        assert!(logs.read_line(&mut line).unwrap() > 0, "the service ended");
    }

    let told = Instant::now();
    terminate(&service);
    let mut rest = String::new();
    logs.read_to_string(&mut rest).unwrap();
    let status = service.wait().unwrap();

    assert!(status.success(), "{status}: {rest}");
    assert!(rest.contains("cut off by the shutdown"), "{rest}");
    assert!(rest.contains("report.released=1"), "{rest}");
    assert!(told.elapsed() < PATIENCE);
    assert!(TcpStream::connect(server.trim_start_matches("http://")).is_err());
    // Another process has the event immediately, not after the lease of a minute.
    let inbox = Inbox::builder(SqliteStore::open(&file.0).unwrap()).build();
    let event = EventId::try_from("evt_1").unwrap();
    let Claim::Fresh(claim) = inbox.unwrap().claim(&event).await.unwrap() else {
        panic!("it is claimed");
    };
    assert_eq!(claim.attempt(), 2);
}

/// Sends a request until it is accepted. A busy machine may take too long for it, which is a 503.
#[cfg(unix)]
async fn until_accepted(request: reqwest::RequestBuilder) {
    let end = Instant::now() + PATIENCE;
    loop {
        let request = request.try_clone().unwrap();
        let status = request.send().await.unwrap().status();
        if status == 200 {
            return;
        }
        assert!(status == 503 && Instant::now() < end, "{status}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_service_suppresses_an_address_after_a_permanent_bounce_only() {
    let file = DatabaseFile::new();
    let (mut service, url, mut logs) = start_service(&file.0, &[]);
    let client = reqwest::Client::new();
    for (id, bounce_type) in [("evt_1", "Transient"), ("evt_2", "Permanent")] {
        let body = format!(
            r#"{{"id": "{id}", "type": "email.bounced", "created_at": 1700000000, "data":
            {{"email_id": "em_1", "to": "{id}@example.com", "bounce_type": "{bounce_type}"}}}}"#
        );
        until_accepted(client.post(&url).headers(signed(&body)).body(body)).await;
    }

    let mut log = String::new();
    while log.matches("handling an event").count() < 2 || !log.contains("suppressed") {
        assert!(logs.read_line(&mut log).unwrap() > 0, "it ended: {log}");
    }
    terminate(&service);
    logs.read_to_string(&mut log).unwrap();

    assert!(service.wait().unwrap().success(), "{log}");
    let suppressed: Vec<_> = log
        .lines()
        .filter(|line| line.contains("suppressed"))
        .collect();
    assert!(
        suppressed.len() == 1 && suppressed[0].contains("evt_2"),
        "{log}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_worker_that_is_told_to_stop_by_sigterm_records_what_it_has_handled() {
    let file = DatabaseFile::new();
    let inbox = Inbox::builder(SqliteStore::open(&file.0).unwrap()).build();
    let body = r#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    let delivery = Verifier::new(SECRET).unwrap();
    let delivery = delivery.verify_event(&signed(body), body).unwrap();
    assert_eq!(inbox.unwrap().accept(delivery).await.status(), 200);
    let mut worker = Command::new(&EXAMPLES["inbox_worker"])
        .args(["work", "--sqlite"])
        .arg(&file.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(worker.stdout.take().unwrap());
    let mut output = String::new();
    stdout.read_line(&mut output).unwrap();

    terminate(&worker);
    stdout.read_to_string(&mut output).unwrap();

    let status = worker.wait().unwrap();
    assert!(status.success(), "{status}: {output}");
    assert_eq!(
        output,
        "evt_1: email.sent, attempt 1\n1 handled, 0 parked\n"
    );
}

#[test]
fn the_lambda_function_does_not_acknowledge_a_bounce_without_its_address() {
    let output = run("webhook_lambda", &[]);

    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    let expected = "a bounce without its address: 500 Internal Server Error\n";
    assert!(stdout.ends_with(expected), "{stdout}");
}

#[cfg(unix)]
const SECRET: &str = "6Jm0nFq2pXvZk4Tt";

/// Returns the headers of a delivery.
#[cfg(unix)]
fn signed(body: &str) -> http::HeaderMap {
    let signer = Signer::new(SECRET).unwrap();
    signer.sign(&EventType::Sent, SystemTime::now(), body)
}

/// Starts `webhook_service`. Returns it with its URL and its log.
#[cfg(unix)]
fn start_service(file: &Path, arguments: &[&str]) -> (Child, String, BufReader<ChildStderr>) {
    let mut service = Command::new(&EXAMPLES["webhook_service"])
        .args(["--port", "0"])
        .args(arguments)
        .env("AUDIENCE_INBOX_URL", format!("sqlite:{}", file.display()))
        .env("AUDIENCE_WEBHOOK_SECRET", SECRET)
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(service.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let url = line.trim().trim_start_matches("listening on ").to_owned();
    let logs = BufReader::new(service.stderr.take().unwrap());
    (service, url, logs)
}

#[cfg(unix)]
fn terminate(process: &Child) {
    let pid = process.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(kill.unwrap().success());
}

fn run(example: &str, arguments: &[&str]) -> Output {
    run_with(&[], example, arguments)
}

fn run_with(variables: &[(&str, &str)], example: &str, arguments: &[&str]) -> Output {
    Command::new(&EXAMPLES[example])
        .args(arguments)
        .env_remove("AUDIENCE_WEBHOOK_SECRET")
        .env_remove("AUDIENCE_URL")
        .env_remove("AUDIENCE_KEY")
        .env_remove("RUST_LOG")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}
