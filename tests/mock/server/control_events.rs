//! The events of the control plane, with their attempts.

use std::time::Duration;

use audience::mock::{DeliveryFault, MockServer};
use serde_json::{Value, json};

use super::control::{NO_CONTENT, call};
use super::control_lists::{list, members};
use super::{START, stopped_server};
use crate::receiver::{NO_RESPONSE, Receiver, SECRET};

#[tokio::test]
async fn events_are_listed_with_their_attempts_and_their_state() {
    let server = stopped_server().await;
    let created = server
        .send_event(json!({"type": "email.opened", "data": {"to": "ada@example.com"}}))
        .await;
    let receiver = Receiver::start([200, 500]).await;
    let endpoint = json!({"url": receiver.url, "secret": SECRET});
    call(&server, "PUT", "endpoints/crm", endpoint).await;
    server.delivery_fault(DeliveryFault::other_secret());
    server
        .send_event(json!({"type": "email.sent", "data": 5}))
        .await;
    server
        .send_event(json!({"type": "email.bounced", "id": "evt_mine", "created_at": 7}))
        .await;

    let events = list(&server, "events").await;
    let states: Vec<_> = events.iter().map(|event| event["state"].clone()).collect();
    assert_eq!(states, ["unsent", "delivered", "pending"]);
    assert_eq!(events[0]["id"], created);
    assert_eq!(events[0]["data"]["to"], "ada@example.com");
    assert_eq!(events[0]["attempts"], json!([]));
    assert_eq!(events[1]["data"], 5);
    assert_eq!(
        events[1]["attempts"],
        json!([{
            "number": 1, "event_id": "evt_2", "endpoint": "crm", "attempt": 1, "at": START, "status": 200, "error": null,
            "fault": "other_secret",
            "signature_problem": "the signature does not match the endpoint's secret, the timestamp and the body",
            "next_at": null,
        }])
    );
    assert_eq!(
        (&events[2]["id"], &events[2]["created_at"]),
        (&json!("evt_mine"), &json!(7))
    );
    assert_eq!(events[2]["attempts"][0]["next_at"], START + 35);
    assert_eq!(
        events[2]["attempts"][0].get("signature_problem"),
        Some(&Value::Null)
    );
    let ids = async |query: &str| members(&server, &format!("events?{query}"), "id").await;
    assert_eq!(ids("order=newest&limit=2").await, ["evt_mine", "evt_2"]);
    assert_eq!(ids("type=email.sent").await, ["evt_2"]);
    assert_eq!(ids("query=ADA@").await, ["evt_1"]);
    assert_eq!(ids("state=pending").await, ["evt_mine"]);
    assert_eq!(
        call(&server, "GET", "events?state=odd", Value::Null)
            .await
            .0,
        422
    );

    call(&server, "DELETE", "endpoints/crm", Value::Null).await;
    assert_eq!(ids("state=failed").await, ["evt_mine"]);
}

#[tokio::test]
async fn an_event_whose_ten_attempts_failed_has_failed() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500; 10]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.send_event(json!({"type": "email.sent"})).await;
    server.advance(Duration::from_secs(86_400)).await;

    let events = list(&server, "events?order=newest&state=failed").await;
    assert_eq!(events[0]["attempts"].as_array().unwrap().len(), 10);

    server.redeliver("evt_1").await;
    assert_eq!(list(&server, "events").await[0]["state"], "delivered");
}

#[tokio::test]
async fn an_event_that_was_delivered_stays_so_if_its_duplicate_fails() {
    let server = stopped_server().await;
    let receiver = Receiver::start([200, 500]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.delivery_fault(DeliveryFault::duplicate());

    server.send_event(json!({"type": "email.sent"})).await;

    let events = list(&server, "events").await;
    assert_eq!(events[0]["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(events[0]["state"], "delivered");
}

#[tokio::test]
async fn the_response_to_a_spam_report_follows_the_first_attempt_of_its_event() {
    let timeout = Duration::from_millis(50);
    let builder = MockServer::builder().delivery_timeout(timeout);
    let server = builder.start().await;
    let receiver = Receiver::start([NO_RESPONSE]).await;
    server.webhook_endpoint(&receiver.url, SECRET);

    let complaint = "contacts/ada%40example.com/complaint";
    let response = call(&server, "POST", complaint, Value::Null).await;

    assert_eq!(response, NO_CONTENT);
    let events = list(&server, "events").await;
    assert_eq!(events[0]["type"], "email.complained");
    assert_eq!(events[0]["attempts"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_attempt_has_what_it_sent_and_what_came_back() {
    let server = stopped_server().await;
    let receiver = Receiver::start([401]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server
        .send_event(json!({"type": "email.opened", "data": {"to": "ada@example.com"}}))
        .await;

    let (status, attempt) = call(&server, "GET", "attempts/1", Value::Null).await;

    assert_eq!((status, &attempt["status"]), (200, &json!(401)));
    let delivery = &receiver.received()[0];
    let headers = attempt["request"]["headers"].as_object().unwrap();
    assert_eq!(headers.len(), delivery.headers.len());
    for (name, value) in headers {
        assert_eq!(delivery.header(name), value, "{name}");
    }
    assert_eq!(attempt["request"]["url"], receiver.url);
    let body = std::str::from_utf8(&delivery.body).unwrap();
    assert_eq!(attempt["request"]["body"], body);
    assert_eq!(attempt["request"]["signed"], format!("{START}.{body}"));
    assert_eq!(attempt["response"]["headers"]["location"], "/elsewhere");
    assert_eq!(attempt["response"]["body"], "");
    assert_eq!(list(&server, "attempts").await[0]["number"], 1);
    assert_eq!(list(&server, "events").await[0]["number"], 1);
    for unknown in ["attempts/2", "attempts/x"] {
        let (status, _) = call(&server, "GET", unknown, Value::Null).await;
        assert_eq!(status, 404, "{unknown}");
    }
}

#[tokio::test]
async fn an_attempt_that_nobody_received_has_no_response() {
    let server = stopped_server().await;
    server.webhook_endpoint("http://127.0.0.1:1/hook", SECRET);
    server.send_event(json!({"type": "email.opened"})).await;

    let (_, attempt) = call(&server, "GET", "attempts/1", Value::Null).await;

    assert_eq!(attempt["response"], Value::Null);
    assert!(attempt["error"].is_string(), "{attempt}");
    assert_eq!(
        attempt["request"]["headers"]["webhook-event"],
        "email.opened"
    );
}

#[tokio::test]
async fn attempts_after_a_reset_have_other_numbers() {
    let server = stopped_server().await;
    let receiver = Receiver::start([]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.send_event(json!({"type": "email.opened"})).await;

    server.reset();
    server.webhook_endpoint(&receiver.url, SECRET);
    server.send_event(json!({"type": "email.opened"})).await;

    assert_eq!(list(&server, "attempts").await[0]["number"], 2);
}

#[tokio::test]
async fn two_events_with_one_id_each_have_their_own_attempts() {
    let server = stopped_server().await;
    let receiver = Receiver::start([200, 500]).await;
    server.webhook_endpoint(&receiver.url, SECRET);
    for _ in 0..2 {
        let event = json!({"type": "email.opened", "id": "evt_same"});
        server.send_event(event).await;
    }

    let events = list(&server, "events").await;

    let statuses = |event: &Value| -> Vec<Value> {
        let attempts = event["attempts"].as_array().unwrap().iter();
        attempts.map(|attempt| attempt["status"].clone()).collect()
    };
    assert_eq!(statuses(&events[0]), [200]);
    assert_eq!(statuses(&events[1]), [500]);
}
