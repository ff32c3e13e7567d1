//! Mail through `client.emails()`.

use audience::emails::Email;
use audience::mock::{Fault, MockServer};
use audience::{Client, ErrorKind, Outcome};
use serde_json::{Value, json};
use support::{ADA, client, mock_builder, ok, received, respond_with, text};

use crate::dialects::{dialects, settings};

fn mail() -> Email {
    Email::new().from("shop@example.com").to(ADA).subject("Hi")
}

#[tokio::test]
async fn a_mail_is_sent_in_every_dialect_and_returns_the_id_of_its_events() {
    for dialect in dialects() {
        let server = MockServer::builder().dialect(dialect).start().await;
        let client: Client = settings(&server, dialect, server.sending_key())
            .build()
            .unwrap();

        let sent = client.emails().send(mail()).await.unwrap();

        let stored = &server.sent_mail()[0];
        assert_eq!((&stored.id, stored.subject.as_str()), (&sent.id, "Hi"));
    }
}

#[tokio::test]
async fn the_body_has_what_was_set_and_nothing_else() {
    let server = respond_with(ok(json!({"id": "em_1"}))).await;
    let mail = mail()
        .to("bob@example.com")
        .header("List-Unsubscribe", "<https://x.io/u>")
        .header("X-Order", "7")
        .member("text", "Hello");

    let sent = client(server.uri()).emails().send(mail).await.unwrap();

    assert_eq!(sent.id, "em_1");
    let request = received(&server).await.remove(0);
    let body: Value = request.body_json().unwrap();
    let expected = json!({"from": "shop@example.com", "to": [ADA, "bob@example.com"], "subject": "Hi",
        "headers": {"List-Unsubscribe": "<https://x.io/u>", "X-Order": "7"}, "text": "Hello"});
    assert_eq!((request.url.path(), body), ("/emails", expected));
}

#[test]
fn a_mail_is_read_back_from_its_json() {
    let mail = mail().to("bob@example.com").header("X-Order", "7");

    let json = serde_json::to_string(&mail).unwrap();

    assert_eq!(serde_json::from_str::<Email>(&json).unwrap(), mail);
}

#[tokio::test]
async fn a_mail_is_safe_to_repeat_after_an_unreadable_response_only_if_the_call_is_idempotent() {
    let server = respond_with(ok(json!({"errors": ["busy"]}))).await;
    let send = || client(server.uri()).emails().send(mail());

    let once = send().await.unwrap_err().explanation();
    let idempotent = send().idempotent().await.unwrap_err().explanation();

    assert!(once.contains("before you send it again"), "{once}");
    assert!(
        idempotent.contains("it is safe to send it again"),
        "{idempotent}"
    );
}

#[tokio::test]
async fn the_explanation_of_a_mail_that_failed_says_whether_it_was_sent_and_of_no_change() {
    let server = MockServer::start().await;
    let client = mock_builder(&server).build().unwrap();
    let accepted = respond_with(text(202, r#"{"queued": true}"#)).await;
    let accepted = self::client(accepted.uri());
    let explain = async |client: &Client, fault: Option<Fault>| {
        server.clear_faults();
        if let Some(fault) = fault {
            server.fault(fault.path("/emails"));
        }
        let error = client.emails().send(mail()).await.unwrap_err();
        error.explanation()
    };

    let lost = explain(&client, Some(Fault::close_after())).await;
    let down = explain(&client, Some(Fault::status(503))).await;
    let limited = explain(&client, Some(Fault::status(429).retry_after(600))).await;
    let accepted = explain(&accepted, None).await;

    let unclear = "; the mail may have been sent or not: look whether it has arrived before you send it again; try again later";
    assert!(lost.ends_with(unclear), "{lost}");
    assert!(down.ends_with(unclear), "{down}");
    let not_sent = "; the mail was not sent; try again in 600 s";
    assert!(limited.ends_with(not_sent), "{limited}");
    let sent = "; the service accepted the mail, so do not send it again";
    assert!(accepted.ends_with(sent), "{accepted}");
    for text in [lost, down, limited, accepted] {
        assert!(!text.contains("change"), "{text}");
    }
}

#[tokio::test]
async fn a_mail_that_may_have_been_sent_is_not_sent_again() {
    let server = MockServer::start().await;
    let client = mock_builder(&server).build().unwrap();
    server.fault(Fault::close_after().path("/emails").times(1));

    let error = client.emails().send(mail()).await.unwrap_err();

    assert_eq!((error.attempts(), error.outcome()), (1, Outcome::Unknown));
    assert_eq!(server.sent_mail().len(), 1);
}

#[tokio::test]
async fn a_mail_that_was_refused_by_a_rate_limit_or_may_be_repeated_is_sent_again() {
    let server = MockServer::start().await;
    let client = mock_builder(&server).build().unwrap();
    server.fault(Fault::status(429).path("/emails").times(1));
    client.emails().send(mail()).await.unwrap();

    server.fault(Fault::status(503).path("/emails").times(1));
    client.emails().send(mail()).idempotent().await.unwrap();

    assert_eq!(server.sent_mail().len(), 2);
}

#[tokio::test]
async fn a_response_without_an_id_is_an_error_that_says_that_the_mail_was_accepted() {
    let server = respond_with(text(202, r#"{"queued": true}"#)).await;
    let emails = client(server.uri()).emails();

    let error = emails.send(mail()).await.unwrap_err();
    let raw = emails.send(mail()).raw().await.unwrap();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Decode, Outcome::Applied)
    );
    assert_eq!(raw.bytes().as_ref(), br#"{"queued": true}"#);
}

#[tokio::test]
async fn a_404_to_a_mail_says_to_check_the_base_url_and_not_that_something_is_missing() {
    for body in [r#"{"code": "not_found"}"#, "{}", "<html>"] {
        let server = respond_with(text(404, body)).await;

        let error = client(server.uri()).emails().send(mail()).await;

        let error = error.unwrap_err();
        assert!(!error.is_not_found(), "{body}");
        let text = error.to_string();
        assert!(text.ends_with("; check the base URL"), "{text}");
        let text = error.explanation();
        assert!(text.contains("does not come from the service"), "{text}");
    }
}

#[tokio::test]
async fn the_id_is_read_from_either_member_and_may_be_a_number() {
    for (body, id) in [
        (json!({"email_id": "em_1"}), "em_1"),
        (json!({"id": "em_1", "email_id": "em_1"}), "em_1"),
        (json!({"id": null, "email_id": "em_1"}), "em_1"),
        (json!({"id": 17}), "17"),
        (json!({"email_id": 17}), "17"),
    ] {
        let server = respond_with(ok(body.clone())).await;

        let sent = client(server.uri()).emails().send(mail()).await;

        assert_eq!(sent.unwrap().id, id, "{body}");
    }
}

#[tokio::test]
async fn a_mail_that_cannot_be_sent_is_refused_before_any_request() {
    const CRLF: &str = "a\r\nBcc: all@example.com";
    let server = MockServer::start().await;
    let emails = mock_builder(&server).build().unwrap().emails();

    for (mail, part) in [
        (Email::new().to(ADA), "sender"),
        (Email::new().from("shop@example.com"), "recipient"),
        (
            mail().header("X-Order", "7\r\nBcc: all@example.com"),
            "header",
        ),
        (mail().header("X-Order\r\nBcc", "all@example.com"), "header"),
        (mail().header("", "7"), "header"),
        (
            mail().member("headers", json!({"X-Order": ["7", CRLF]})),
            "header",
        ),
        (
            mail().member("headers", json!([{"name": "X-Order", "value": CRLF}])),
            "header",
        ),
        (mail().from(CRLF), "address"),
        (mail().to(CRLF), "address"),
        (mail().subject(CRLF), "subject"),
        (mail().member("cc", CRLF), "address"),
        (
            mail().member("bcc", json!(["bob@example.com", CRLF])),
            "address",
        ),
        (mail().member("reply_to", json!({"email": CRLF})), "address"),
    ] {
        let error = emails.send(mail).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(server.requests().is_empty());
    let mail = mail()
        .member("text", "Hello,\r\nAda")
        .header("X-Order", "7\t8");
    emails.send(mail).await.unwrap();
}

#[tokio::test]
async fn several_headers_are_set_together() {
    let server = respond_with(text(202, r#"{"id": "em_1"}"#)).await;
    let mail = mail().headers([("X-Order", "1815"), ("X-Shop", "Berlin")]);

    client(server.uri()).emails().send(mail).await.unwrap();

    let body: Value = received(&server).await[0].body_json().unwrap();
    assert_eq!(
        body["headers"],
        json!({"X-Order": "1815", "X-Shop": "Berlin"})
    );
}
