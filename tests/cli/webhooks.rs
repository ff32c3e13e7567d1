//! `audience webhooks`: deliveries that were saved, and deliveries that are sent.

use std::time::{Duration, SystemTime};

use audience::mock::MockServer;
use audience::webhooks::{EventType, Signer};
use support::examples::program;

use super::{Ended, Folder, audience, end};

const SECRET: &str = "Wb8cQe1sLr5uYh7o";
const BODY: &str = r#"{"id":"evt_1","type":"email.bounced","created_at":1700000000,"data":{"email_id":"email_1","from":"shop@example.com","to":"ada@example.net","subject":"Hi","bounce_type":"Permanent","detail":""}}"#;

/// Writes the headers of a delivery of [`BODY`] as a proxy logs them.
fn headers(folder: &Folder, secret: &str, age: Duration) -> String {
    headers_of(folder, secret, age, BODY)
}

fn headers_of(folder: &Folder, secret: &str, age: Duration, body: &str) -> String {
    // Before anything is signed: Cargo may build the programs now, for longer than a signature is valid.
    let _ = program("audience");
    let signed_at = SystemTime::now() - age;
    let signer = Signer::new(secret).unwrap();
    let mut text = String::from("POST /hook HTTP/1.1\r\n");
    for (name, value) in &signer.sign(&EventType::Bounced, signed_at, body) {
        text += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    folder.file("headers.txt", text + "x-city: Zürich\r\n\r\n")
}

fn webhooks(arguments: &[&str]) -> Ended {
    end(audience(["webhooks"])
        .args(arguments)
        .env("AUDIENCE_WEBHOOK_SECRET", SECRET))
}

/// Runs a command that sends an event. The program waits 10 s for the response, as the service does. On a busy machine, it
/// may need another run.
fn sent(mut command: impl FnMut() -> Ended) -> Ended {
    let mut ended = command();
    for _ in 0..5 {
        if !ended.stderr.contains("could not post to") {
            break;
        }
        ended = command();
    }
    ended
}

#[test]
fn a_genuine_delivery_is_shown_and_an_old_one_only_if_that_is_asked_for() {
    let folder = Folder::new("verify");
    let body = folder.file("body.json", BODY);
    let verify = |age, more: &[&str]| {
        let headers = headers(&folder, SECRET, Duration::from_secs(age));
        webhooks(&[&["verify", &body, "--headers", &headers], more].concat())
    };

    let genuine = verify(0, &[]);
    let json = verify(0, &["--json"]);
    let old = verify(86_400, &["--json"]);
    let any_age = verify(86_400, &["--any-age"]);

    assert_eq!(genuine.code, Some(0), "{genuine:?}");
    assert!(
        genuine
            .stdout
            .contains("created_at        2023-11-14T22:13:20Z\n"),
        "{genuine:?}"
    );
    assert!(
        genuine
            .stdout
            .contains("data.to           ada@example.net\n"),
        "{genuine:?}"
    );
    assert_eq!(json.json()[0]["id"], "evt_1");
    assert_eq!((old.code, any_age.code), (Some(1), Some(0)), "{old:?}");
    let error: serde_json::Value = serde_json::from_str(&old.stderr).unwrap();
    assert_eq!(error["code"], "rejected");
    assert_eq!(any_age.stdout, genuine.stdout);
}

#[test]
fn a_genuine_delivery_with_half_a_surrogate_pair_or_a_huge_number_is_shown() {
    let folder = Folder::new("verify-odd");
    for (usual, odd) in [
        (r#""Hi""#, r#""Hi \ud83d""#),
        (r#""created_at""#, r#""size":1e400,"created_at""#),
    ] {
        let body = BODY.replace(usual, odd);
        let headers = headers_of(&folder, SECRET, Duration::ZERO, &body);
        let body = folder.file("body.json", &body);

        let shown = webhooks(&["verify", &body, "--headers", &headers]);
        let json = webhooks(&["verify", &body, "--headers", &headers, "--json"]);

        assert_eq!(shown.code, Some(0), "{shown:?}");
        for text in [
            "evt_1",
            "email.bounced",
            "2023-11-14T22:13:20Z",
            "ada@example.net",
        ] {
            assert!(shown.stdout.contains(text), "{text}: {shown:?}");
        }
        let json = &json.json()[0];
        assert_eq!(
            (&json["id"], &json["data"]["to"]),
            (&"evt_1".into(), &"ada@example.net".into())
        );
    }
}

#[test]
fn a_delivery_is_verified_however_long_it_is_and_the_diagnosis_names_the_limit() {
    let folder = Folder::new("long");
    // Spaces after the JSON belong to the body.
    let text = BODY.to_owned() + &" ".repeat(3 * 1024 * 1024);
    let body = folder.file("body.json", &text);
    let run = |command| {
        let headers = headers_of(&folder, SECRET, Duration::ZERO, &text);
        webhooks(&[command, &body, "--headers", &headers])
    };

    let (verified, diagnosis) = (run("verify"), run("diagnose"));

    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert_eq!(diagnosis.code, Some(1), "{diagnosis:?}");
    assert!(diagnosis.stdout.contains("2097152"), "{diagnosis:?}");

    // The receiver may have a higher limit, so another reason is found first.
    let other = folder.file("old-secret.txt", "6Jm0nFq2pXvZk4Tt\n");
    let headers = headers_of(&folder, "6Jm0nFq2pXvZk4Tt", Duration::ZERO, &text);
    let flags = ["--headers", &headers, "--other-secret-file", &other];
    let diagnosis = webhooks(&[&["diagnose", &*body], &flags[..]].concat());
    assert_eq!(diagnosis.code, Some(1), "{diagnosis:?}");
    assert!(diagnosis.stdout.contains("old-secret.txt"), "{diagnosis:?}");
}

#[test]
fn a_forged_delivery_is_exit_status_1_and_the_diagnosis_names_the_secret_that_fits() {
    let folder = Folder::new("diagnose");
    let body = folder.file("body.json", BODY);
    let other = folder.file("old-secret.txt", "6Jm0nFq2pXvZk4Tt\n");
    let signed = headers(&folder, "6Jm0nFq2pXvZk4Tt", Duration::ZERO);
    let delivery = [&*body, "--headers", &*signed];

    let forged = webhooks(&[&["verify"], &delivery[..]].concat());
    let unexplained = webhooks(&[&["diagnose"], &delivery[..]].concat());
    let explained =
        webhooks(&[&["diagnose", "--other-secret-file", &other], &delivery[..]].concat());
    let accepted = webhooks(
        &[
            &["diagnose", "--secret-file", &other, "--json"],
            &delivery[..],
        ]
        .concat(),
    );

    for (ended, code, text) in [
        (&forged, 1, "signature"),
        (&unexplained, 1, "no known change explains the mismatch"),
        (&explained, 1, "old-secret.txt"),
        (&accepted, 0, r#"{"accepted":true,"#),
    ] {
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(
            format!("{}{}", ended.stdout, ended.stderr).contains(text),
            "{ended:?}"
        );
        assert!(
            !format!("{ended:?}").contains("6Jm0nFq2pXvZk4Tt"),
            "{ended:?}"
        );
    }
}

#[test]
fn a_byte_order_mark_does_not_hide_the_first_header() {
    let folder = Folder::new("mark");
    let body = folder.file("body.json", BODY);
    let file = headers(&folder, SECRET, Duration::ZERO);
    let text = std::fs::read_to_string(&file).unwrap();
    let (_, lines) = text.split_once("\r\n").unwrap();
    folder.file("headers.txt", format!("\u{feff}{lines}"));

    let genuine = webhooks(&["verify", &body, "--headers", &file]);

    assert_eq!(genuine.code, Some(0), "{genuine:?}");
}

#[test]
fn headers_that_are_none_are_a_usage_error() {
    let folder = Folder::new("headers");
    let body = folder.file("body.json", BODY);
    let headers = folder.file("headers.txt", "webhook-timestamp: 1\nno header\n");

    for (arguments, reason) in [
        (&["--headers", &*headers][..], "line 2"),
        (&["-H", "webhook-timestamp"], "--header is not of the form"),
        (&["--headers", "no-such-file"], "no-such-file"),
        (&[], "--headers"),
    ] {
        let ended = webhooks(&[&["verify", &body], arguments].concat());

        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(reason), "{ended:?}");
    }
}

#[test]
fn an_event_is_signed_and_sent_and_an_endpoint_that_refuses_it_is_exit_status_1() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (secret, code) in [(SECRET, 0), ("6Jm0nFq2pXvZk4Tt", 1)] {
        let receiver = runtime.block_on(receiver(secret));

        let url = format!("http://{receiver}/hook");
        let ended = sent(|| {
            webhooks(&[
                "send",
                &url,
                "email.bounced",
                "--to",
                "ada@example.com",
                "--json",
            ])
        });

        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(ended.json()[0]["type"], "email.bounced");
        assert_eq!(ended.json()[0]["status"], if code == 0 { 200 } else { 401 });
    }
}

/// Starts an endpoint that accepts bounces of `ada@example.com`.
async fn receiver(secret: &str) -> std::net::SocketAddr {
    use audience::webhooks::{EventData, VerifiedEvent, Verifier};
    let hook = async |event: VerifiedEvent| match &event.data {
        EventData::Bounced(bounce) if bounce.to == "ada@example.com" => http::StatusCode::OK,
        _ => http::StatusCode::BAD_REQUEST,
    };
    let router = axum::Router::new()
        .route("/hook", axum::routing::post(hook))
        .with_state(Verifier::new(secret).unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await });
    address
}

#[test]
fn a_secret_comes_from_a_variable_or_a_file_and_is_never_printed() {
    let url = "http://127.0.0.1:9";
    let none = end(&mut audience(["webhooks", "send", url, "email.sent"]));
    let placeholder = end(audience(["webhooks", "send", url, "email.sent"])
        .env("AUDIENCE_WEBHOOK_SECRET", "<SIGNING_SECRET>"));

    assert_eq!(none.code, Some(2));
    for said in [
        "`AUDIENCE_WEBHOOK_SECRET_FILE` is set",
        "--secret-file FILE",
    ] {
        assert!(none.stderr.contains(said), "{none:?}");
    }
    assert_eq!(placeholder.code, Some(2));
    assert!(
        placeholder.stderr.contains("is a placeholder"),
        "{placeholder:?}"
    );
    for arguments in [
        &[url, SECRET][..],
        &[url, SECRET, "email.sent"],
        &[url, "email.sent", SECRET],
    ] {
        let ended = webhooks(&[&["send"], arguments].concat());

        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(!ended.stderr.contains(SECRET), "{ended:?}");
        assert!(ended.stdout.is_empty(), "{ended:?}");
    }
}

#[test]
fn the_secrets_of_a_receiver_verify_and_diagnose_and_the_new_one_signs() {
    let folder = Folder::new("secret-variables");
    let body = folder.file("body.json", BODY);
    let (old, new) = ("6Jm0nFq2pXvZk4Tt", folder.file("secret.txt", SECRET));
    let webhooks = |arguments: &[&str]| {
        let ended = end(audience(["webhooks"])
            .args(arguments)
            .env("AUDIENCE_WEBHOOK_SECRET_FILE", &new)
            .env("AUDIENCE_WEBHOOK_SECRET_OLD", old));
        let printed = format!("{ended:?}");
        assert!(!printed.contains(SECRET) && !printed.contains(old));
        ended
    };
    for (secret, code) in [(SECRET, 0), (old, 0), ("Kq3Zt8Wn5Rv1Xy7B", 1)] {
        let headers = headers(&folder, secret, Duration::ZERO);

        let delivery = [&*body, "--headers", &headers];
        let verified = webhooks(&[&["verify"], &delivery[..]].concat()).code;
        let diagnosed = webhooks(&[&["diagnose"], &delivery[..]].concat()).code;

        assert_eq!((verified, diagnosed), (Some(code), Some(code)), "{secret}");
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = format!("http://{}/hook", runtime.block_on(receiver(SECRET)));
    let send = ["send", &url, "email.bounced", "--to", "ada@example.com"];
    assert_eq!(sent(|| webhooks(&send)).code, Some(0));
}

#[test]
fn an_endpoint_that_cannot_be_reached_is_named_without_what_may_be_a_token() {
    let url = "http://user:hunter2@127.0.0.1:1/hunter2?token=hunter2#hunter2";
    for more in [&[][..], &["--json"]] {
        let ended = webhooks(&[&["send", url, "email.sent"], more].concat());

        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{ended:?}");
        let said = "could not post to 127.0.0.1:1: ";
        assert!(ended.stderr.contains(said), "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
}

#[test]
fn an_endpoint_that_does_not_respond_or_redirects_is_exit_status_1() {
    let server = MockServer::builder().start_blocking();
    for url in [
        "http://127.0.0.1:1/hook",
        &format!("{}/no-hook", server.url()),
    ] {
        let ended = webhooks(&["send", url, "email.sent"]);

        assert_eq!(ended.code, Some(1), "{ended:?}");
    }
    let ended = webhooks(&["send", "ftp://example.com", "email.sent"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
}
