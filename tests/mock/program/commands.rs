//! The commands that talk to a running mock.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use audience::webhooks::Verifier;
use serde_json::{Value, json};

use super::{RunningMock, SECRET, fails_with, file, program, run};
use crate::receiver::Receiver;
use support::{closed_url, free_port};

const KEY: &str = "mock-full-access-key";

#[tokio::test(flavor = "multi_thread")]
async fn send_event_delivers_a_signed_event_and_shows_the_attempt() {
    let receiver = Receiver::start([200]).await;
    let webhook = format!("{}={SECRET}", receiver.url);
    let mock = RunningMock::start(&["--webhook", &webhook]);

    let arguments = [
        "send-event",
        "email.bounced",
        "--to",
        "ada@example.com",
        "--data",
        r#"{"detail": "full"}"#,
    ];
    let text = tokio::task::block_in_place(|| mock.command(&arguments));

    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("event  attempt  at"), "{text}");
    assert!(
        lines[1].starts_with("evt_1  1 ") && lines[1].contains("  200  "),
        "{text}"
    );
    let delivery = &receiver.received()[0];
    let event = Verifier::new(SECRET)
        .unwrap()
        .verify(&delivery.headers, &delivery.body);
    assert!(event.is_ok(), "{event:?}");
    let event: Value = serde_json::from_slice(&delivery.body).unwrap();
    assert_eq!(event["data"]["to"], "ada@example.com");
    assert_eq!(event["data"]["detail"], "full");
}

#[tokio::test]
async fn send_event_with_the_id_of_a_mail_happens_to_that_mail() {
    let mock = RunningMock::start(&[]);
    let mail = reqwest::Client::new()
        .post(format!("{}/emails", mock.url))
        .bearer_auth(KEY)
        .body(r#"{"from": "me@example.com", "to": "pending@example.com", "subject": "Hello"}"#);
    let mail: Value = mail.send().await.unwrap().json().await.unwrap();
    let id = mail["id"].as_str().unwrap();

    let text = mock.command(&["send-event", "email.bounced", "--email-id", id]);

    assert!(text.contains("was sent to no endpoint"), "{text}");
    let events = mock.json(&["events"]);
    let bounced = &events["data"][1];
    assert_eq!(bounced["type"], "email.bounced");
    assert_eq!(bounced["data"]["subject"], "Hello");
    let table = mock.command(&["events"]);
    assert!(
        table.contains("email.bounced") && table.contains("pending@example.com"),
        "{table}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_a_fault_holds_back_is_not_said_to_have_no_endpoint() {
    let receiver = Receiver::start([]).await;
    let webhook = format!("{}={SECRET}", receiver.url);
    let mock = RunningMock::start(&["--clock", "1700000000", "--webhook", &webhook]);

    let [held_back, next] = tokio::task::block_in_place(|| {
        mock.command(&["delivery-fault", "reorder"]);
        ["email.sent", "email.opened"].map(|name| mock.command(&["send-event", name]))
    });

    assert_eq!(
        held_back,
        "no attempt to deliver evt_1 has been made yet; a delivery fault may hold it back\n"
    );
    assert!(next.contains("\nevt_2  1 "), "{next}");
    assert_eq!(receiver.ids(), ["evt_2", "evt_1"]);
}

#[test]
fn an_unknown_event_type_is_a_usage_error_that_lists_the_known_ones() {
    let error = fails_with(2, &["send-event", "email.bouncd"]);

    assert!(error.contains("email.bouncd"), "{error}");
    assert!(error.contains("email.bounced, email."), "{error}");
}

#[test]
fn the_recipient_of_received_mail_is_a_list() {
    let mock = RunningMock::start(&[]);

    mock.command(&["send-event", "email.received", "--to", "inbox@example.com"]);

    assert_eq!(
        mock.json(&["events"])["data"][0]["data"]["to"],
        json!(["inbox@example.com"])
    );
}

#[test]
fn the_clock_is_shown_advanced_and_set() {
    let mock = RunningMock::start(&["--clock", "1700000000"]);

    assert_eq!(
        mock.command(&["clock"]),
        "1700000000  2023-11-14T22:13:20Z\n"
    );
    for (arguments, now) in [
        (&["clock", "advance", "5h"][..], 1_700_018_000),
        (&["clock", "advance", "1d1h30m"], 1_700_109_800),
        (&["clock", "advance", "90"], 1_700_109_890),
        (&["clock", "set", "2030-01-31T12:00:00Z"], 1_896_091_200),
        (&["clock", "set", "-5"], -5),
    ] {
        assert_eq!(mock.json(arguments)["now"], now, "{arguments:?}");
    }
    for duration in [
        "",
        "5",
        "h",
        "5h3",
        "5x",
        "-5h",
        "99999999999999999999h",
        "1.5h",
    ] {
        if duration != "5" {
            let error = fails_with(2, &["clock", "advance", duration]);
            assert!(error.contains("DURATION"), "{duration}: {error}");
        }
    }
    assert!(fails_with(2, &["clock", "set", "soon"]).contains("Unix seconds"));
}

#[tokio::test]
async fn a_fault_affects_the_next_requests_until_it_is_cleared() {
    let mock = RunningMock::start(&[]);
    let status = async || mock.get("/contacts", KEY).await.0;

    mock.command(&["fault", "--status", "503", "--times", "2"]);
    assert_eq!(
        [status().await, status().await, status().await],
        [503, 503, 200]
    );

    mock.command(&[
        "fault",
        "--status",
        "429",
        "--retry-after",
        "7",
        "--header",
        "x-a=b",
    ]);
    let response = reqwest::get(format!("{}/contacts", mock.url))
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(response.headers()["x-a"], "b");
    mock.command(&["fault", "clear"]);
    assert_eq!(status().await, 200);

    mock.command(&["fault", "--close", "mid-body", "--path", "/nowhere"]);
    assert_eq!(status().await, 200);

    mock.command(&["fault", "clear"]);
    mock.command(&["fault", "--status", "503", "--every", "2"]);
    assert_eq!(
        [status().await, status().await, status().await],
        [200, 503, 200]
    );
}

#[tokio::test]
async fn a_header_that_a_fault_repeats_is_sent_twice() {
    let mock = RunningMock::start(&[]);

    mock.command(&[
        "fault",
        "--status",
        "503",
        "--header",
        "set-cookie=a=1",
        "--header",
        "x-a=b",
        "--header",
        "set-cookie=b=2",
    ]);

    let response = reqwest::get(format!("{}/contacts", mock.url))
        .await
        .unwrap();
    let cookies: Vec<_> = response.headers().get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    assert_eq!(response.headers()["x-a"], "b");
    assert_eq!(
        mock.json(&["fault", "list"])["data"][0]["headers"],
        json!({"set-cookie": ["a=1", "b=2"], "x-a": "b"})
    );
}

#[tokio::test]
async fn one_of_several_faults_is_removed_by_its_number() {
    let mock = RunningMock::start(&[]);
    assert_eq!(mock.command(&["fault", "list"]), "there are no faults\n");
    mock.command(&["fault", "--status", "503", "--times", "2"]);
    mock.command(&["fault", "--status", "500", "--path", "/contacts"]);
    assert_eq!(mock.get("/contacts", KEY).await.0, 503);

    let list = mock.command(&["fault", "list"]);
    assert_eq!(
        list,
        "number  fault\n\
         1       {\"status\":503,\"times\":1}\n\
         2       {\"path\":\"/contacts\",\"status\":500}\n"
    );
    assert_eq!(
        mock.command(&["fault", "remove", "1"]),
        "the fault was removed\n"
    );

    assert_eq!(mock.get("/contacts", KEY).await.0, 500);
    for arguments in [
        &["fault", "remove", "1"][..],
        &["fault", "remove", "3"],
        &["delivery-fault", "remove", "2"],
    ] {
        let error = fails_with(1, &[arguments, &["--url", &mock.url]].concat());
        assert!(error.contains("there is no fault"), "{error}");
    }
    // No number is used twice, not even after a reset.
    mock.command(&["reset"]);
    mock.command(&["fault", "--status", "503"]);
    assert_eq!(mock.json(&["fault", "list"])["data"][0]["number"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_fault_affects_the_next_delivery_until_it_is_cleared() {
    let receiver = Receiver::start([]).await;
    let webhook = format!("{}={SECRET}", receiver.url);
    let mock = RunningMock::start(&["--webhook", &webhook]);
    let faults = |arguments: &[&str]| {
        mock.command(&[&["delivery-fault"], arguments].concat());
        let sent = mock.json(&["send-event", "email.sent"]);
        sent["attempts"][0]["fault"].clone()
    };

    tokio::task::block_in_place(|| {
        assert_eq!(faults(&["stale"]), "stale");
        let limited = ["tampered", "--event-type", "email.sent", "--times", "3"];
        assert_eq!(faults(&limited), "tampered");
        let list = mock.command(&["delivery-fault", "list"]);
        assert!(list.contains("\"kind\":\"tampered\",\"times\":2"), "{list}");
        assert_eq!(faults(&["clear"]), Value::Null);
        let header = ["missing_header", "--header", "webhook-event"];
        assert_eq!(faults(&header), "missing_header");
    });

    for (code, arguments, reason) in [
        (2, &["late"][..], "possible values: duplicate, reorder"),
        (2, &["stale", "--times", "x"], "--times"),
        (2, &[], "KIND"),
        (
            2,
            &["missing_header", "--header", "date"],
            "no header \"date\"",
        ),
        (1, &["stale", "--times", "0"], "must be at least 1"),
        (1, &["stale", "--endpoint", "crm"], "there is no endpoint"),
        (
            1,
            &["stale", "--event-type", "email.bouncd"],
            "`event_type` must be one of",
        ),
        (1, &["stale", "clear"], "leave out the other options"),
    ] {
        let all = [&["delivery-fault"], arguments, &["--url", &mock.url]].concat();
        let error = fails_with(code, &all);
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_added_listed_and_removed_and_an_event_is_resent_to_it() {
    let receiver = Receiver::start([]).await;
    let mock = RunningMock::start(&[]);

    tokio::task::block_in_place(|| {
        assert_eq!(mock.command(&["endpoints"]), "there are no endpoints\n");
        let sent = mock.command(&["send-event", "email.sent"]);
        assert!(sent.starts_with("evt_1 was sent to no endpoint"), "{sent}");
        let add = ["endpoints", "add", "a/b", &receiver.url, "--secret", SECRET];
        assert_eq!(mock.command(&add), "the mock has the endpoint\n");

        let resent = mock.command(&["resend", "evt_1"]);

        let lines: Vec<&str> = resent.lines().collect();
        assert!(lines[1].starts_with("evt_1  1 "), "{resent}");
        assert!(lines[1].ends_with("a/b"), "{resent}");
        let list = mock.command(&["endpoints"]);
        assert_eq!(list, format!("name  url\na/b   {}\n", receiver.url));
        let remove = ["endpoints", "remove", "a/b"];
        assert_eq!(mock.command(&remove), "the endpoint was removed\n");
    });

    assert_eq!(receiver.ids(), ["evt_1"]);
    for arguments in [&["resend", "evt_7"][..], &["endpoints", "remove", "a/b"]] {
        let error = fails_with(1, &[arguments, &["--url", &mock.url]].concat());
        assert!(error.contains("there is no e"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resend_shows_only_its_own_attempts_and_none_without_an_endpoint() {
    let receiver = Receiver::start([200, 500]).await;
    let mock = RunningMock::start(&["--clock", "1700000000"]);

    tokio::task::block_in_place(|| {
        mock.command(&["endpoints", "add", "crm", &receiver.url, "--secret", SECRET]);
        mock.command(&["send-event", "email.sent"]);
        let resent = mock.json(&["resend", "evt_1"]);
        mock.command(&["endpoints", "remove", "crm"]);

        let attempts = resent["attempts"].as_array().unwrap();
        let results: Vec<_> = attempts.iter().map(|attempt| &attempt["status"]).collect();
        assert_eq!(results, [500]);
        let unsent = mock.command(&["resend", "evt_1"]);
        assert!(
            unsent.starts_with("evt_1 was sent to no endpoint"),
            "{unsent}"
        );
        assert_eq!(mock.json(&["resend", "evt_1"])["attempts"], json!([]));
    });

    assert_eq!(receiver.ids(), ["evt_1", "evt_1"]);
}

#[tokio::test]
async fn contacts_and_mail_are_listed_and_filtered() {
    let seed = file(
        "command-lists.json",
        r#"{"contacts": [
            {"id": "con_a", "email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace", "created_at": 5},
            {"id": "con_b", "email": "bob@example.com", "created_at": 4, "unsubscribe_reason": "complaint"}
        ]}"#,
    );
    let mock = RunningMock::start(&["--clock", "9"]);
    assert_eq!(mock.command(&["contacts"]), "there are no contacts\n");
    assert_eq!(mock.command(&["emails"]), "there is no mail\n");
    mock.command(&["seed", seed.to_str().unwrap()]);
    for (to, subject) in [("ada@example.com", "First"), ("bob@example.com", "Second")] {
        let mail = json!({"from": "me@example.com", "to": to, "subject": subject});
        let mail = mock.client.post(format!("{}/emails", mock.url)).json(&mail);
        assert_eq!(mail.bearer_auth(KEY).send().await.unwrap().status(), 200);
    }

    let contacts = mock.command(&["contacts"]);
    assert_eq!(
        contacts,
        "address          name          consent                  created               id\n\
         ada@example.com  Ada Lovelace  subscribed               1970-01-01T00:00:05Z  con_a\n\
         bob@example.com  -             unsubscribed: complaint  1970-01-01T00:00:04Z  con_b\n"
    );
    for (arguments, id) in [
        (&["--query", "LOVE"][..], "con_a"),
        (&["--consent", "complaint"], "con_b"),
        (&["--limit", "1"], "con_a"),
    ] {
        let listed = mock.json(&[&["contacts"], arguments].concat());
        assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{arguments:?}");
        assert_eq!(listed["data"][0]["id"], id, "{arguments:?}");
    }
    let emails = mock.command(&["emails"]);
    let lines: Vec<&str> = emails.lines().collect();
    assert!(
        lines[1].contains("ada@example.com (delivered)  First"),
        "{emails}"
    );
    assert!(lines[2].contains("bob@example.com (refused)  "), "{emails}");
    let newest = mock.json(&["emails", "--limit", "1"]);
    assert_eq!(newest["data"][0]["subject"], "Second");
    let error = fails_with(2, &["contacts", "--consent", "none"]);
    assert!(error.contains("subscribed, unsubscribed"), "{error}");
}

#[tokio::test]
async fn events_attempts_and_requests_are_filtered() {
    let mock = RunningMock::start(&[]);
    for event_type in ["email.sent", "email.opened", "email.sent"] {
        mock.command(&["send-event", event_type]);
    }
    let secret = ["--secret", SECRET];
    mock.command(
        &[
            &["endpoints", "add", "crm", "http://127.0.0.1:9/"],
            &secret[..],
        ]
        .concat(),
    );
    mock.command(&["resend", "evt_1"]);
    mock.command(&["resend", "evt_2"]);
    for path in ["/contacts", "/nowhere", "/contacts?limit=1"] {
        mock.get(path, KEY).await;
    }
    let listed = |arguments: &[&str], member: &str| -> Vec<String> {
        let list = mock.json(arguments);
        let items = list["data"].as_array().unwrap().iter();
        items
            .map(|item| item[member].as_str().unwrap().to_owned())
            .collect()
    };

    let sent = listed(&["events", "--type", "email.sent"], "id");
    assert_eq!(sent, ["evt_1", "evt_3"]);
    assert_eq!(
        listed(&["events", "--limit", "2"], "id"),
        ["evt_2", "evt_3"]
    );
    assert_eq!(listed(&["events", "--state", "unsent"], "id"), ["evt_3"]);
    let of_one = listed(&["attempts", "--event", "evt_2"], "event_id");
    assert_eq!(of_one, ["evt_2"]);
    let newest = listed(
        &["attempts", "--endpoint", "crm", "--limit", "1"],
        "event_id",
    );
    assert_eq!(newest, ["evt_2"]);
    assert_eq!(
        mock.command(&["attempts", "--endpoint", "log"]),
        "there are no attempts\n"
    );
    assert_eq!(
        listed(&["requests", "--status", "accepted"], "path"),
        ["/contacts", "/contacts"]
    );
    assert_eq!(
        listed(&["requests", "--query", "nowhere"], "path"),
        ["/nowhere"]
    );
    assert_eq!(
        listed(&["requests", "--limit", "2"], "path"),
        ["/nowhere", "/contacts"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_followed_until_nobody_reads_them() {
    let mock = RunningMock::start(&[]);
    mock.get("/first", KEY).await;
    let mut following = program()
        .args([
            "requests", "--follow", "--status", "refused", "--url", &mock.url,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut line = || tokio::task::block_in_place(|| lines.next().unwrap().unwrap());

    assert!(line().starts_with("GET  /first  404  no endpoint"));
    mock.get("/contacts", KEY).await;
    for number in 0..150 {
        mock.get(&format!("/later-{number}"), KEY).await;
    }
    for number in 0..150 {
        let expected = format!("GET  /later-{number}  404  ");
        let found = line();
        assert!(found.starts_with(&expected), "{found}");
    }
    drop(lines);
    mock.get("/unread", KEY).await;

    let ended = tokio::task::block_in_place(|| following.wait().unwrap());
    assert!(ended.success(), "{ended}");
}

#[test]
fn each_shell_has_its_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&["completions", shell]);

        assert!(script.status.success(), "{shell}");
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(
            script.contains("delivery-fault") && script.contains("signing-clock"),
            "{shell}: {script}"
        );
    }
    assert!(fails_with(2, &["completions", "sh"]).contains("bash, elvish"));
}

#[tokio::test]
async fn requests_are_listed_with_the_reason_of_each_refusal() {
    let mock = RunningMock::start(&[]);
    assert_eq!(mock.command(&["requests"]), "there are no requests\n");
    mock.get("/contacts?limit=1", KEY).await;
    mock.get("/contacts/ada@example.com", KEY).await;

    let text = mock.command(&["requests"]);

    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "method  path                       status  reason"
    );
    assert_eq!(lines[1], "GET     /contacts?limit=1          200     -");
    assert!(
        lines[2].starts_with("GET     /contacts/ada@example.com  404     there is no"),
        "{text}"
    );
    let json = mock.json(&["requests"]);
    assert_eq!(json["data"][0]["reason"], Value::Null);
    assert!(json["data"][1]["reason"].is_string());
}

#[test]
fn reset_and_seed_change_what_is_stored() {
    let mock = RunningMock::start(&[]);
    let seed = file(
        "command-seed.json",
        r#"{"contacts": [{"id": "ada", "email": "ada@example.com"}]}"#,
    );
    let seed = seed.to_str().unwrap();

    assert_eq!(mock.command(&["seed", seed]), "the mock has the seed\n");
    let events = mock.json(&["send-event", "email.sent"]);
    assert_eq!(events["id"], "evt_1");
    assert_eq!(mock.json(&["reset"]), json!({}));

    assert_eq!(mock.command(&["events"]), "there are no events\n");
    assert_eq!(mock.command(&["attempts"]), "there are no attempts\n");
}

#[test]
fn a_refusal_of_the_mock_is_the_message_of_the_error() {
    let mock = RunningMock::start(&[]);
    let seed = file("command-invalid.json", r#"{"topics": 7}"#);
    let other_keys = file("command-keys.json", r#"{"keys": {"full": "secret-12345"}}"#);
    for (arguments, reason) in [
        (
            &["seed", seed.to_str().unwrap()][..],
            "`topics` must be a JSON object, not 7",
        ),
        (
            &["seed", other_keys.to_str().unwrap()],
            "`keys.full` is not what the mock was started with",
        ),
        (
            &["seed", "no-such-file.json"],
            "could not read the seed \"no-such-file.json\"",
        ),
        (
            &["fault", "--status", "503", "--path", "contacts"],
            "`path` must start with `/` or `*`",
        ),
        (
            &["fault", "--status", "503", "--times", "0"],
            "`times` must be at least 1",
        ),
        (
            &["fault", "--status", "503", "--every", "0"],
            "`every` must be at least 1",
        ),
        (
            &["send-event", "email.bounced", "--email-id", "eml_7"],
            "eml_7",
        ),
        (
            &["fault", "--status", "500", "clear"],
            "leave out the other options",
        ),
    ] {
        let error = fails_with(1, &[arguments, &["--url", &mock.url]].concat());

        assert!(error.starts_with("audience-mock: "), "{error}");
        assert!(error.contains(reason), "{error}");
        assert!(!error.contains("12345"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_mock_at_the_url_a_command_fails_and_says_what_to_do() {
    let closed = closed_url();
    let other = support::respond_with(support::text(404, "not here")).await;
    for (url, reason) in [
        (closed.clone(), format!("no mock listens at {closed}")),
        (
            other.uri(),
            "but not as a mock does; is it another program?".to_owned(),
        ),
    ] {
        for arguments in [&["clock"][..], &["reset"], &["events"], &["fault", "clear"]] {
            let error = fails_with(1, &[arguments, &["--url", &url]].concat());

            assert!(error.contains(&reason), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn the_url_can_be_a_variable_and_must_be_one() {
    let mock = RunningMock::start(&["--clock", "7"]);

    let output = program()
        .arg("clock")
        .env("AUDIENCE_MOCK_URL", &mock.url)
        .output()
        .unwrap();

    assert!(String::from_utf8(output.stdout).unwrap().starts_with("7 "));
    for url in [
        "",
        "127.0.0.1:4010",
        "https://127.0.0.1:4010",
        "http://",
        "http://a:x",
        "http://a/_mock/",
    ] {
        let error = fails_with(2, &["clock", "--url", url]);

        assert!(error.contains("--url"), "{url}: {error}");
    }
}

/// As in a container, whose health check has no other arguments.
#[test]
fn without_a_url_a_command_uses_the_port_of_the_mocks_variable() {
    let port = free_port().to_string();
    let on_the_port = || {
        let mut command = program();
        command.env("AUDIENCE_MOCK_PORT", &port);
        command
    };
    let _mock = RunningMock::spawn(on_the_port().args(["--clock", "7"]));

    let output = on_the_port().arg("clock").output().unwrap();

    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("7 "));
    for (port, shown) in [(&*port, &*port), ("0", "4010")] {
        let mut help = program();
        let help = help
            .args(["clock", "--help"])
            .env("AUDIENCE_MOCK_PORT", port);
        let help = String::from_utf8(help.output().unwrap().stdout).unwrap();
        let default = format!("[default: http://127.0.0.1:{shown}]");
        assert!(help.contains(&default), "{help}");
    }
}

#[test]
fn what_was_sent_cannot_control_the_terminal() {
    let mock = RunningMock::start(&[]);

    mock.command(&["send-event", "email.sent", "--to", "\u{1b}[2J\nx"]);

    let text = mock.command(&["events"]);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains(r"\u{1b}[2J\nx"), "{text}");
    mock.command(&["send-event", "email.sent", "--to", "\u{9b}2J\u{202e}"]);
    let json = mock.command(&["events", "--json"]);
    assert!(json.contains(r"\u009b2J\u202e"), "{json}");
    let events: Value = serde_json::from_str(&json).unwrap();
    assert!(events.to_string().contains('\u{9b}'), "{json}");
}
