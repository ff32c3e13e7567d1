//! Section 6.5: the delivery rules.

use std::time::Duration;

use serde_json::{Value, json};
use support::TIMEOUT;

use super::events::{api_and_receiver, api_delivering_to, api_with_timeout};
use super::{DAY, NOW};
use crate::receiver::{NO_RESPONSE, Received, Receiver};

#[tokio::test]
async fn section_6_5_rule_1_a_response_after_the_timeout_is_a_failed_attempt() {
    let receiver = Receiver::start([NO_RESPONSE, 200]).await;
    let api = api_with_timeout(&receiver, TIMEOUT).await;

    api.send_empty_event("email.opened").await;
    assert!(api.server.attempts()[0].error.is_some());
    api.server.advance(Duration::from_secs(DAY)).await;

    let attempts = api.server.attempts().into_iter();
    let mut statuses: Vec<_> = attempts.map(|attempt| attempt.status).collect();
    assert_eq!(statuses.pop(), Some(Some(200)));
    // On a busy machine, the response to the second may be late, too.
    assert!(!statuses.is_empty() && statuses.iter().all(Option::is_none));
}

#[tokio::test]
async fn section_6_5_rule_2_ten_attempts_over_about_five_hours_with_backoff() {
    let (api, receiver) = api_and_receiver([500; 10]).await;

    api.send_empty_event("email.opened").await;
    api.server.advance(Duration::from_secs(7 * DAY)).await;

    let at: Vec<i64> = receiver
        .received()
        .iter()
        .map(Received::timestamp)
        .collect();
    assert_eq!(at.len(), 10);
    assert_eq!(at[0], NOW);
    let gaps: Vec<i64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        gaps.is_sorted_by(|before, after| before < after),
        "{gaps:?}"
    );
    let total = at[9] - at[0];
    assert!(
        (4 * 3600 + 1800..=5 * 3600 + 1800).contains(&total),
        "{total} s"
    );
    let log: Vec<i64> = api
        .server
        .attempts()
        .iter()
        .map(|attempt| attempt.at.as_unix())
        .collect();
    assert_eq!(log, at, "the attempt log agrees");
}

#[tokio::test]
async fn section_6_5_rule_2_any_status_but_2xx_is_a_failure_and_redirects_are_not_followed() {
    let elsewhere = Receiver::start([]).await;
    let responses = [301, 302, 307, 308, 400, 404, 410, 429, 204];
    let receiver = Receiver::redirecting_to(&elsewhere.url, responses).await;
    let api = api_delivering_to(&receiver).await;

    api.send_empty_event("email.opened").await;
    api.server.advance(Duration::from_secs(DAY)).await;

    let statuses: Vec<u16> = api
        .server
        .attempts()
        .iter()
        .map(|attempt| attempt.status.unwrap())
        .collect();
    assert_eq!(statuses, responses, "attempts end with the first 2xx");
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn section_6_5_rule_3_the_id_and_the_body_are_identical_across_all_retries() {
    let (api, receiver) = api_and_receiver([500; 10]).await;

    let id = api.send_empty_event("email.opened").await;
    api.server.advance(Duration::from_secs(DAY)).await;

    let deliveries = receiver.received();
    assert!(
        deliveries
            .iter()
            .all(|delivery| delivery.body == deliveries[0].body)
    );
    assert_eq!(deliveries[0].json()["id"], id.as_str());
}

#[tokio::test]
async fn section_6_5_rule_3_two_opens_in_the_same_second_differ_only_in_their_id() {
    let (api, receiver) = api_and_receiver([]).await;
    let open =
        json!({"type": "email.opened", "data": {"email_id": "em_1", "to": "ada@example.com"}});

    api.server.send_event(open.clone()).await;
    api.server.send_event(open).await;

    let mut events = receiver.events();
    assert_ne!(events[0]["id"], events[1]["id"]);
    for event in &mut events {
        event["id"] = Value::Null;
    }
    assert_eq!(events[0], events[1]);
}

#[tokio::test]
async fn section_6_5_rule_3_delivery_is_at_least_once() {
    let (api, receiver) = api_and_receiver([]).await;

    let id = api.send_empty_event("email.opened").await;
    api.server.redeliver(&id).await;

    let events = receiver.events();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], events[1]);
}
