//! The lists of the control plane: what is set up, and what happened, filtered and with the newest first.

use audience::mock::dialect::ConsentForm;
use audience::mock::{DeliveryFault, Dialect, Fault, MockServer};
use serde_json::{Value, json};

use super::control::call;
use super::{START, get, get_unchecked, post, post_unchecked, stopped_server};
use crate::receiver::SECRET;

/// Reads a list of the control plane.
pub(super) async fn list(server: &MockServer, path: &str) -> Vec<Value> {
    let (status, body) = call(server, "GET", path, Value::Null).await;
    assert_eq!(status, 200, "{path}: {body}");
    body["data"].as_array().unwrap().clone()
}

/// Returns a member of each item of a list.
pub(super) async fn members(server: &MockServer, path: &str, member: &str) -> Vec<String> {
    let items = list(server, path).await;
    let text = |item: &Value| item[member].as_str().unwrap_or_default().to_owned();
    items.iter().map(text).collect()
}

#[tokio::test]
async fn topics_segments_and_endpoints_can_be_listed() {
    let rule = json!({"match_": "any", "conditions": [
        {"field": "property", "key": "plan", "op": "is", "value": "pro"}]});
    let addresses: Vec<_> = (0..150)
        .map(|number| format!("Ada{number:03}@example.com"))
        .collect();
    let server = MockServer::builder()
        .seed(json!({
            "topics": {"offers": false, "news": true},
            "segments": {"seg_2": {"rule": rule}, "seg_1": {"contacts": addresses}},
            "endpoints": {"crm": {"url": "http://127.0.0.1:9/hook?a=b", "secret": SECRET}},
        }))
        .start()
        .await;

    assert_eq!(
        list(&server, "topics").await,
        [
            json!({"name": "news", "default": true}),
            json!({"name": "offers", "default": false})
        ]
    );
    let segments = list(&server, "segments").await;
    assert_eq!(segments[0]["id"], "seg_1");
    assert_eq!(segments[0]["count"], 150);
    let shown = segments[0]["contacts"].as_array().unwrap();
    assert_eq!(
        (shown.len(), &shown[0]),
        (100, &json!("ada000@example.com"))
    );
    assert_eq!(shown[99], "ada099@example.com");
    assert_eq!(segments[1], json!({"id": "seg_2", "rule": rule}));
    assert_eq!(
        list(&server, "endpoints").await,
        [json!({"name": "crm", "url": "http://127.0.0.1:9/hook?a=b"})]
    );
}

#[tokio::test]
async fn active_faults_are_listed_with_what_is_left_of_them() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).times(2).path("/contacts"));
    server.fault(Fault::garbage().after(1));
    server.fault(Fault::close_before().every(20).times(3));
    server.delivery_fault(DeliveryFault::missing_header("webhook-event").times(3));
    get(&server, "/contacts").await.unwrap();

    assert_eq!(
        list(&server, "faults").await,
        [
            json!({"number": 1, "status": 503, "times": 1, "path": "/contacts"}),
            json!({"number": 2, "garbage": true}),
            json!({"number": 3, "close": "before", "every": 20, "times": 3})
        ]
    );
    assert_eq!(
        list(&server, "delivery-faults").await,
        [json!({"number": 1, "kind": "missing_header", "header": "webhook-event", "times": 3})]
    );
}

#[tokio::test]
async fn contacts_can_be_filtered_and_the_filtered_list_has_pages() {
    let server = MockServer::builder()
        .seed(json!({
            "segments": {"seg_1": {"contacts": ["a@example.com", "d@example.com"]}},
            "contacts": [
                {"email": "a@example.com", "first_name": "Ünal"},
                {"email": "b@example.com", "unsubscribed": true},
                {"email": "c@example.com", "unsubscribe_reason": "complaint"},
                {"email": "d@example.com", "suppressed": true},
            ],
        }))
        .start()
        .await;
    let found = async |query: &str| {
        let addresses = members(&server, &format!("contacts?{query}"), "email").await;
        addresses
            .iter()
            .map(|address| address[..1].to_owned())
            .collect::<String>()
    };

    assert_eq!(found("").await, "abcd");
    assert_eq!(found("query=%C3%BCNAL").await, "a");
    assert_eq!(found("query=EXAMPLE&consent=unsubscribed").await, "bc");
    assert_eq!(found("consent=subscribed").await, "ad");
    assert_eq!(found("consent=complaint").await, "c");
    assert_eq!(found("consent=suppressed").await, "cd");
    assert_eq!(found("segment_id=seg_1").await, "ad");
    assert_eq!(found("query=&consent=&segment_id=").await, "abcd");
    let (_, page) = call(
        &server,
        "GET",
        "contacts?consent=subscribed&limit=1",
        Value::Null,
    )
    .await;
    let next = page["next"].as_str().unwrap();
    assert_eq!(
        found(&format!("consent=subscribed&limit=1&after={next}")).await,
        "d"
    );
    for (query, status) in [
        ("consent=maybe", 422),
        ("segment_id=seg_9", 404),
        ("query=a&query=b", 422),
        ("query=%zz", 422),
        ("order=newest", 422),
    ] {
        let path = format!("contacts?{query}");
        assert_eq!(
            call(&server, "GET", &path, Value::Null).await.0,
            status,
            "{query}"
        );
    }
}

#[tokio::test]
async fn the_next_of_an_empty_list_of_contacts_finds_the_contacts_that_were_added_later() {
    let server = MockServer::start().await;
    let (_, page) = call(&server, "GET", "contacts?limit=10", Value::Null).await;
    let next = page["next"].as_str().unwrap();
    server.seed_contact("ada@example.com");

    let path = format!("contacts?limit=10&after={next}");

    assert_eq!(members(&server, &path, "email").await, ["ada@example.com"]);
}

#[tokio::test]
async fn a_recorded_request_has_its_time_and_the_reason_that_it_was_refused() {
    let server = stopped_server().await;
    server.fault(Fault::close_before().path("/gone"));
    server.fault(Fault::status(503).path("/down"));
    post(&server, "/contacts", &json!({"email": "nobody"}))
        .await
        .unwrap();
    get(&server, "/contacts").await.unwrap();
    get(&server, "/gone").await.unwrap_err();
    get(&server, "/down").await.unwrap();

    let requests = server.requests();
    let reason = |index: usize| requests[index].reason.as_deref();
    assert!(
        reason(0).unwrap().contains("must be an email address"),
        "{requests:?}"
    );
    assert_eq!(reason(1), None);
    assert_eq!(
        reason(2),
        Some("a fault closed the connection before the request was applied")
    );
    assert_eq!(reason(3), Some("the test asked for this response"));
    assert!(requests.iter().all(|request| request.at.as_unix() == START));
    let listed = list(&server, "requests").await;
    assert_eq!(listed[0]["reason"], reason(0).unwrap());
    assert_eq!(
        (&listed[1]["reason"], &listed[1]["at"]),
        (&Value::Null, &json!(START))
    );
}

#[tokio::test]
async fn the_newest_requests_come_first_and_can_be_filtered() {
    let server = stopped_server().await;
    post(&server, "/contacts", &json!({"email": "ada@example.com"}))
        .await
        .unwrap();
    get(&server, "/contacts/nobody%40example.com")
        .await
        .unwrap();
    post(
        &server,
        "/contacts",
        &json!({"email": "bob@example.com", "first_name": "b".repeat(5_000)}),
    )
    .await
    .unwrap();
    let numbers = async |query: &str| {
        let requests = list(&server, &format!("requests?order=newest&{query}")).await;
        requests
            .iter()
            .map(|request| request["number"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };

    assert_eq!(numbers("").await, [3, 2, 1]);
    assert_eq!(numbers("limit=2").await, [3, 2]);
    assert_eq!(numbers("status=refused").await, [2]);
    assert_eq!(numbers("status=accepted").await, [3, 1]);
    assert_eq!(numbers("query=NOBODY@").await, [2]);
    assert_eq!(numbers("query=there+is+no+contact").await, [2]);
    assert_eq!(numbers("query=ada").await, [1]);
    assert_eq!(numbers("query=404").await, [2]);
    let newest = &list(&server, "requests?order=newest").await[0];
    assert_eq!(newest["body"].as_str().unwrap().len(), 4_096);
    let whole = call(&server, "GET", "requests/3", Value::Null).await.1;
    assert_eq!(newest["body_bytes"], whole["body"].as_str().unwrap().len());
    for (path, status) in [
        ("requests?order=oldest", 422),
        ("requests?status=refused", 422),
        ("requests?order=newest&after=1", 422),
        ("requests?order=newest&status=odd", 422),
        ("requests/0", 404),
        ("requests/4", 404),
        ("requests/-1", 404),
        ("requests/x", 404),
        ("requests/99999999999999999999", 404),
    ] {
        assert_eq!(
            call(&server, "GET", path, Value::Null).await.0,
            status,
            "{path}"
        );
    }
    server.clear_requests();
    assert_eq!(call(&server, "GET", "requests/3", Value::Null).await.0, 404);
}

#[tokio::test]
async fn the_newest_mail_comes_first_with_its_state_at_each_recipient() {
    let server = stopped_server().await;
    let mail =
        |to: Value, subject: &str| json!({"from": "me@example.com", "to": to, "subject": subject});
    let recipients = json!(["bounce@example.com", "ada@example.com"]);
    post(&server, "/emails", &mail(recipients, "First"))
        .await
        .unwrap();
    post(
        &server,
        "/emails",
        &mail(json!("bob@example.com"), &"x".repeat(20_000)),
    )
    .await
    .unwrap();

    let newest = list(&server, "emails?order=newest").await;
    assert_eq!(
        (&newest[0]["id"], &newest[0]["body"]),
        (&json!("eml_00000002"), &Value::Null)
    );
    assert_eq!(
        newest[1]["recipients"],
        json!([
        {"to": "bounce@example.com", "state": "bounced"}, {"to": "ada@example.com", "state": "delivered"}])
    );
    assert_eq!(newest[1]["body"]["subject"], "First");
    let found = members(&server, "emails?order=newest&query=ADA@", "id").await;
    assert_eq!(found, ["eml_00000001"]);
    assert_eq!(
        members(&server, "emails?order=newest&limit=1", "id").await,
        ["eml_00000002"]
    );
    assert_eq!(
        members(&server, "emails", "id").await,
        ["eml_00000001", "eml_00000002"]
    );
}

#[tokio::test]
async fn the_overview_has_the_clock_the_settings_and_the_counts() {
    let server = MockServer::builder()
        .clock(START)
        .auth_header("X-Key")
        .contact_ceiling(5)
        .seed(json!({"topics": {"news": true}, "contacts": [{"email": "ada@example.com"}]}))
        .start()
        .await;
    get(&server, "/contacts").await.unwrap();
    server.send_event(json!({"type": "email.sent"})).await;

    let (status, overview) = call(&server, "GET", "overview", Value::Null).await;

    assert_eq!(status, 200);
    assert_eq!(
        (&overview["now"], &overview["clock"]),
        (&json!(START), &json!("stopped"))
    );
    assert_eq!(
        (&overview["key_header"], &overview["ceiling"]),
        (&json!("x-key"), &json!(5))
    );
    assert_eq!(overview["signing_clock"], "mock");
    assert_eq!(
        overview["counts"],
        json!({
        "contacts": 1, "topics": 1, "emails": 0, "events": 1, "attempts": 0, "requests": 1})
    );
    let running = MockServer::start().await;
    let (_, overview) = call(&running, "GET", "overview", Value::Null).await;
    assert_eq!(
        (&overview["clock"], &overview["key_header"]),
        (&json!("running"), &Value::Null)
    );
}

#[tokio::test]
async fn the_values_of_a_header_that_was_sent_twice_are_joined() {
    let server = MockServer::start().await;
    let request = reqwest::Client::new().get(format!("{}/contacts", server.url()));
    let request = request.header("x-tag", "a").header("x-tag", "b");
    request.send().await.unwrap();

    let requests = list(&server, "requests").await;

    assert_eq!(requests[0]["headers"]["x-tag"], "a, b");
}

#[tokio::test]
async fn a_recorded_request_has_the_response_as_it_was_sent() {
    let server = stopped_server().await;
    server.fault(Fault::status(503).retry_after(7).path("/down"));
    server.fault(Fault::close_mid_body().path("/contacts").after(1));
    server.fault(Fault::close_before().path("/gone"));
    let created = post_unchecked(&server, "/contacts", &json!({"email": "ada@example.com"}))
        .await
        .unwrap();
    let created = created.text().await.unwrap();
    get_unchecked(&server, "/down").await.unwrap();
    if let Ok(cut) = get_unchecked(&server, "/contacts").await {
        cut.text().await.unwrap_err();
    }
    get_unchecked(&server, "/gone").await.unwrap_err();

    let requests = list(&server, "requests").await;

    assert_eq!(requests[0]["response_body"], created);
    assert_eq!(
        requests[0]["response_headers"],
        json!({"content-type": "application/json"})
    );
    assert_eq!(requests[1]["response_headers"]["retry-after"], "7");
    let cut = requests[2]["response_body"].as_str().unwrap();
    assert!(
        cut.starts_with(r#"{"data""#) && !cut.ends_with('}'),
        "{cut}"
    );
    assert_eq!(requests[3]["response_body"], "");
    let (_, request) = call(&server, "GET", "requests/1", Value::Null).await;
    assert_eq!(request["response_body"], created);
    let newest = list(&server, "requests?order=newest").await;
    assert!(newest[0].get("response_body").is_none());
    let recorded = &server.requests()[0];
    assert_eq!(recorded.response_body, created.as_bytes());
    assert_eq!(
        recorded.response_headers,
        [("content-type".to_owned(), "application/json".to_owned())]
    );
}

#[tokio::test]
async fn a_recorded_request_has_no_response_body_if_its_client_got_none() {
    let dialect = Dialect {
        consent_form: ConsentForm::NoContent,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).start().await;
    server.seed_contact("ada@example.com");
    server.fault(Fault::wrong_body("<html>").method("POST"));
    let ada = format!("{}/contacts/ada%40example.com", server.url());
    let client = reqwest::Client::new();

    for request in [client.head(&ada), client.post(format!("{ada}/unsubscribe"))] {
        let response = request.bearer_auth(server.full_key()).send().await.unwrap();
        assert!(response.bytes().await.unwrap().is_empty());
    }

    let recorded = server.requests();
    let statuses = recorded.iter().map(|request| request.status);
    assert!(statuses.eq([Some(200), Some(204)]), "{recorded:?}");
    for request in recorded {
        assert!(request.response_body.is_empty(), "{request:?}");
    }
}
