//! Section 3.2: a mailbox provider's spam report, and the `email.complained` about it.

use std::time::Duration;

use serde_json::json;

use super::events::{MAIL, api_and_receiver};
use super::{NOW, members};

#[tokio::test]
async fn section_6_1_a_spam_report_sends_one_complained_event() {
    let (api, receiver) = api_and_receiver([]).await;
    api.create("ada@example.com");

    api.server.report_spam(" Ada@Example.com ");
    api.server.report_spam("stranger@example.com");
    api.server.advance(Duration::from_secs(1)).await;
    api.get("/contacts").expect(200);
    api.server.advance(Duration::from_secs(1)).await;

    let events = receiver.events();
    assert_eq!(events.len(), 2, "{events:?}");
    for (event, to) in events
        .iter()
        .zip(["ada@example.com", "stranger@example.com"])
    {
        assert_eq!(event["type"], "email.complained");
        assert_eq!(event["created_at"], json!(NOW));
        assert_eq!(members(&event["data"]), MAIL);
        assert_eq!(event["data"]["to"], to);
        assert_eq!(event["data"]["bounce_type"], "");
    }
}

#[tokio::test]
async fn section_6_3_the_event_of_a_spam_report_is_about_the_last_mail_to_the_address() {
    let (api, receiver) = api_and_receiver([]).await;
    for subject in ["First", "Last"] {
        let mail = json!({"from": "me@example.org", "to": ["ada@example.com"], "subject": subject});
        api.post("/emails", mail).expect(200);
    }
    api.server.report_spam("ADA@example.com");
    api.server.advance(Duration::from_secs(1)).await;

    let events = receiver.events();
    let sent = &events[2]["data"];
    let complained = events.last().unwrap();
    assert_eq!(complained["type"], "email.complained");
    assert_eq!(sent["subject"], "Last");
    assert_eq!(&complained["data"], sent);
}

#[tokio::test]
async fn section_6_1_a_complained_event_of_a_test_is_sent_only_once() {
    let (api, receiver) = api_and_receiver([]).await;

    api.send_empty_event("email.complained").await;
    api.get("/contacts").expect(200);
    api.server.advance(Duration::from_secs(1)).await;

    assert_eq!(receiver.events().len(), 1);
}
