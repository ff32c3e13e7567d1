//! The command lines of the programs in `examples/`, of `audience` and of `audience-mock`.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Instant, SystemTime};

use audience::inbox::{Claim, Inbox, SqliteStore};
use audience::mock::{
    Dialect, JoinedMember, MergeBody, MockServer, OmittedMembers, PropertyValues, SeedContact,
    UnknownMembers,
};
use audience::webhooks::{EventId, EventType, Signer};
use support::PATIENCE;
use support::examples::EXAMPLES;

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
    let secret = "6Jm0nFq2pXvZk4Tt";
    let folder = std::env::temp_dir().join(format!("audience-service-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("inbox.db");
    let mut service = Command::new(&EXAMPLES["webhook_service"])
        .args(["--port", "0", "--grace", "1", "--work", "3600"])
        .env("AUDIENCE_INBOX_URL", format!("sqlite:{}", file.display()))
        .env("AUDIENCE_WEBHOOK_SECRET", secret)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut url, mut logs) = (
        String::new(),
        BufReader::new(service.stderr.take().unwrap()),
    );
    let mut stdout = BufReader::new(service.stdout.take().unwrap());
    stdout.read_line(&mut url).unwrap();
    let url = url.trim().trim_start_matches("listening on ");
    let server = url.trim_end_matches("/hook");
    let client = reqwest::Client::new();
    for probe in ["/health", "/ready"] {
        let response = client.get(format!("{server}{probe}")).send().await.unwrap();
        assert_eq!(response.status(), 200, "{probe}");
    }
    let body = r#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    let signer = Signer::new(secret).unwrap();
    let headers = signer.sign(&EventType::Sent, SystemTime::now(), body);
    let request = client.post(url).headers(headers).body(body);
    assert_eq!(request.send().await.unwrap().status(), 200);
    let mut line = String::new();
    while !line.contains("handling an event") {
        line.clear();
        assert!(logs.read_line(&mut line).unwrap() > 0, "the service ended");
    }

    let told = Instant::now();
    let pid = service.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(kill.unwrap().success());
    let mut rest = String::new();
    logs.read_to_string(&mut rest).unwrap();
    let status = service.wait().unwrap();

    assert!(status.success(), "{status}: {rest}");
    assert!(rest.contains("cut off by the shutdown"), "{rest}");
    assert!(rest.contains("report.released=1"), "{rest}");
    assert!(told.elapsed() < PATIENCE);
    assert!(TcpStream::connect(server.trim_start_matches("http://")).is_err());
    // Another process has the event immediately, not after the lease of a minute.
    let inbox = Inbox::builder(SqliteStore::open(&file).unwrap()).build();
    let event = EventId::try_from("evt_1").unwrap();
    let Claim::Fresh(claim) = inbox.unwrap().claim(&event).await.unwrap() else {
        panic!("it is claimed");
    };
    assert_eq!(claim.attempt(), 2);
    std::fs::remove_dir_all(&folder).unwrap();
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
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}
