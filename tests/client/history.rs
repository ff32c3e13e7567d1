//! `contacts.history`: the periods that it finds, and what it does if it cannot find them.

use std::time::{Duration, SystemTime};

use audience::ErrorKind;
use audience::contacts::{Contacts, History, LastTime};
use audience::mock::{EngagementKind, Fault, MockServer};
use serde_json::json;

use support::{ADA, contact, in_time, mock_builder, with};

const DAY: Duration = Duration::from_secs(86_400);

async fn start() -> (MockServer, Contacts) {
    let server = MockServer::builder().seed_contact(ADA);
    let server = server.seed_contact(format!("long-{ADA}")).start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    (server, contacts)
}

#[tokio::test]
async fn the_history_has_the_shortest_period_of_each_thing_that_happened() {
    let (server, contacts) = start().await;
    let now = SystemTime::now();
    server.record_engagement(ADA, EngagementKind::Delivered, now - DAY * 50);
    server.record_engagement(ADA, EngagementKind::Delivered, now);
    server.record_engagement(ADA, EngagementKind::Opened, now - DAY * 20);
    server.record_engagement(ADA, EngagementKind::Clicked, now - DAY * 400);
    server.record_engagement(format!("long-{ADA}"), EngagementKind::Bounced, now);

    let history = contacts.history(" Ada@Example.com").await.unwrap();

    let mut expected = History::default();
    expected.delivered = LastTime::WithinDays(1);
    expected.opened = LastTime::WithinDays(30);
    expected.clicked = LastTime::MoreThanAYearAgo;
    assert_eq!(history, expected);
    assert_eq!(
        history.to_string(),
        "delivered within 1 day, opened within 30 days, clicked more than a year ago, bounced never, reported as spam never"
    );
    assert!(server.requests().len() <= 21, "{}", server.requests().len());
}

#[tokio::test]
async fn the_history_is_the_same_after_a_way_through_json() {
    let (server, contacts) = start().await;
    server.record_engagement(ADA, EngagementKind::Opened, SystemTime::now());
    server.record_engagement(ADA, EngagementKind::Clicked, SystemTime::now() - DAY * 400);

    let history = contacts.history(ADA).await.unwrap();

    let written = json!(history);
    assert_eq!(written["opened"], json!({"ever": true, "within_days": 1}));
    assert_eq!(
        written["clicked"],
        json!({"ever": true, "within_days": null})
    );
    assert_eq!(
        written["bounced"],
        json!({"ever": false, "within_days": null})
    );
    assert_eq!(serde_json::from_value::<History>(written).unwrap(), history);
}

#[tokio::test]
async fn an_address_that_is_no_contact_has_no_history() {
    let (server, contacts) = start().await;

    let error = contacts.history("nobody@example.com").await.unwrap_err();

    assert!(error.is_not_found());
    assert_eq!(
        error.to_string(),
        "history: the service responded 404 not_found: no such contact"
    );
    assert_eq!(
        server.requests().len(),
        2,
        "the contact, and a list that shows that it is missing"
    );
}

/// As from a wrong cache.
#[tokio::test]
async fn the_history_of_another_contact_is_not_returned() {
    let (server, contacts) = start().await;
    let bob = with(contact(), "email", "bob@example.com");
    server.fault(Fault::wrong_body(bob.to_string()).path("/contacts/*"));

    let error = contacts.history(ADA).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
    assert!(error.is_malformed_contact(), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn all_requests_share_one_deadline() {
    let (server, contacts) = start().await;
    server.fault(Fault::delay(Duration::from_millis(300)));

    let call = contacts.history(ADA).deadline(Duration::from_millis(700));
    let error = in_time(call.into_future()).await.unwrap_err();

    assert!(error.is_timeout(), "{error}");
    assert!(server.requests().len() < 4);
}
