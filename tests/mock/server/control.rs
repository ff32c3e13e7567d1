//! The control plane, call by call.

use std::time::{Duration, Instant};

use audience::mock::{Fault, MockServer, SeedContact};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::{Value, json};
use support::{PATIENCE, in_time};
use tokio::io::AsyncReadExt;

use super::raw_receiver::raw_receiver;
use super::{ada, get, json_of, post, post_unchecked, stopped_server};
use crate::receiver::{Receiver, SECRET};

/// Calls the control plane without a key. Returns the status, and the body or `Null`.
pub(super) async fn call(
    server: &MockServer,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let mut request =
        reqwest::Client::new().request(method, format!("{}/_mock/{path}", server.url()));
    if !body.is_null() {
        request = request.body(body.to_string());
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let body = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

pub(super) const NO_CONTENT: (u16, Value) = (204, Value::Null);

#[tokio::test]
async fn health_is_ok() {
    let server = MockServer::start().await;

    assert_eq!(
        call(&server, "GET", "health", Value::Null).await,
        (200, json!({"status": "ok"}))
    );
}

#[tokio::test]
async fn reset_restores_the_initial_state() {
    let server = MockServer::start().await;
    post(&server, "/contacts", &ada()).await.unwrap();

    assert_eq!(
        call(&server, "POST", "reset", Value::Null).await,
        NO_CONTENT
    );

    assert_eq!(server.contact_count(), 0);
}

#[tokio::test]
async fn a_topic_is_created_with_its_default() {
    let server = MockServer::start().await;
    post(&server, "/contacts", &ada()).await.unwrap();

    assert_eq!(
        call(
            &server,
            "PUT",
            "topics/caf%C3%A9%2Fnews",
            json!({"default": true})
        )
        .await,
        NO_CONTENT
    );

    let topics = server.contact("ada@example.com").unwrap().topics;
    assert_eq!(topics.get("café/news"), Some(&true));
}

#[tokio::test]
async fn a_segment_is_created_from_contacts_or_a_rule() {
    let server = MockServer::start().await;
    post(&server, "/contacts", &ada()).await.unwrap();
    post(&server, "/contacts", &json!({"email": "bob@example.com"}))
        .await
        .unwrap();
    let nobody = json!({"match_": "any", "conditions": []});

    assert_eq!(
        call(
            &server,
            "PUT",
            "segments/s1",
            json!({"contacts": ["ada@example.com"]})
        )
        .await,
        NO_CONTENT
    );
    assert_eq!(
        call(&server, "PUT", "segments/s2", json!({"rule": nobody})).await,
        NO_CONTENT
    );

    let count = async |segment: &str| {
        let response = get(&server, &format!("/contacts?segment_id={segment}"))
            .await
            .unwrap();
        json_of(response).await["data"].as_array().unwrap().len()
    };
    assert_eq!((count("s1").await, count("s2").await), (1, 0));
    for bad in [
        json!({}),
        json!({"contacts": [], "rule": nobody}),
        json!({"rule": {"match_": "some"}}),
    ] {
        assert_eq!(call(&server, "PUT", "segments/s3", bad).await.0, 422);
    }
}

/// Calls the control plane, which refuses the call. Returns the message.
async fn refused(server: &MockServer, method: &str, path: &str, body: Value) -> String {
    let (status, error) = call(server, method, path, body).await;
    assert_eq!(status, 422, "{method} {path}");
    error["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_added_must_have_a_name_that_can_be_decoded() {
    let server = MockServer::start().await;

    for (list, body) in [
        ("topics", json!({"default": true})),
        ("segments", json!({"contacts": []})),
        (
            "endpoints",
            json!({"url": "http://127.0.0.1:9/hook", "secret": SECRET}),
        ),
    ] {
        for (name, reason) in [
            ("", "the name at the end of the path is empty"),
            ("%zz", "`%` must be followed by two hex digits"),
            ("%ff", "the percent-encoded bytes are not valid UTF-8"),
        ] {
            let path = format!("{list}/{name}");
            let message = refused(&server, "PUT", &path, body.clone()).await;
            assert_eq!(message, reason, "{path}");
        }
        let (_, listed) = call(&server, "GET", list, Value::Null).await;
        assert_eq!(listed, json!({"data": []}), "{list}");
    }
}

#[tokio::test]
async fn a_segment_spam_report_or_engagement_with_an_invalid_address_is_refused() {
    let server = MockServer::start().await;

    let segment = json!({"contacts": ["ada@example.com", "bad"]});
    assert_eq!(
        refused(&server, "PUT", "segments/s1", segment).await,
        "`contacts[1]` must be an email address, not \"bad\""
    );
    for address in ["bad", ""] {
        for (report, body) in [
            ("complaint", Value::Null),
            ("engagement", json!({"what": "opened"})),
        ] {
            let path = format!("contacts/{address}/{report}");
            assert_eq!(
                refused(&server, "POST", &path, body).await,
                format!("`address` must be an email address, not {address:?}")
            );
        }
    }
    let (_, overview) = call(&server, "GET", "overview", Value::Null).await;
    assert_eq!(overview["counts"]["events"], 0);
}

#[tokio::test]
async fn a_complaint_is_recorded_as_a_spam_report() {
    let server = MockServer::start().await;
    post(&server, "/contacts", &ada()).await.unwrap();

    assert_eq!(
        call(
            &server,
            "POST",
            "contacts/ada%40example.com/complaint",
            Value::Null
        )
        .await,
        NO_CONTENT
    );

    assert_eq!(
        server
            .contact("ada@example.com")
            .unwrap()
            .unsubscribe_reason,
        "complaint"
    );
}

#[tokio::test]
async fn a_contact_is_removed_and_its_address_stays_suppressed() {
    let server = MockServer::builder()
        .topic("news", true)
        .seed_contact(SeedContact::new("ada@example.com").answer("news", false))
        .seed_contact("bob@example.com")
        .start()
        .await;
    server.report_spam("ada@example.com");
    let first = server.contact("ada@example.com").unwrap();
    let remove = || call(&server, "DELETE", "contacts/Ada%40example.com", Value::Null);

    assert_eq!(remove().await, NO_CONTENT);

    let retrieved = get(&server, "/contacts/ada%40example.com").await.unwrap();
    assert_eq!(retrieved.status(), 404);
    assert_eq!(server.contact_count(), 1);
    let (status, error) = remove().await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (404, &json!("not_found"))
    );
    post(&server, "/contacts", &ada()).await.unwrap();
    let again = server.contact("ada@example.com").unwrap();
    assert!(again.suppressed && again.answers.is_empty());
    assert_eq!(again.engagement, first.engagement);
    assert_ne!(again.id, first.id);
    assert!(server.remove_contact("ada@example.com"));
    assert!(!server.remove_contact("ada@example.com"));
}

#[tokio::test]
async fn an_engagement_is_recorded_at_the_given_time_or_now() {
    let server = MockServer::builder().clock(1_700_000_000).start().await;
    post(&server, "/contacts", &ada()).await.unwrap();
    let opened = |days: i64| {
        let rule = json!({"match_": "all", "conditions": [
            {"field": "engagement", "what": "opened", "op": "within_days", "days": days}]})
        .to_string();
        let server = &server;
        async move {
            let rule = utf8_percent_encode(&rule, NON_ALPHANUMERIC);
            let response = get(server, &format!("/contacts?rules={rule}"))
                .await
                .unwrap();
            json_of(response).await["data"].as_array().unwrap().len()
        }
    };
    let path = "contacts/ada%40example.com/engagement";

    let ten_days_ago = 1_700_000_000 - 10 * 86_400;
    assert_eq!(
        call(
            &server,
            "POST",
            path,
            json!({"what": "opened", "at": ten_days_ago})
        )
        .await,
        NO_CONTENT
    );
    assert_eq!((opened(11).await, opened(9).await), (1, 0));

    assert_eq!(
        call(&server, "POST", path, json!({"what": "opened"})).await,
        NO_CONTENT
    );
    assert_eq!(opened(1).await, 1);

    let (status, error) = call(&server, "POST", path, json!({"what": "laughed"})).await;
    assert_eq!(status, 422);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("laughed")
    );
}

#[tokio::test]
async fn the_clock_can_be_read_advanced_and_set() {
    let server = MockServer::builder().clock(1_700_000_000).start().await;
    let now = |at: i64| (200, json!({"now": at}));

    assert_eq!(
        call(&server, "GET", "clock", Value::Null).await,
        now(1_700_000_000)
    );
    assert_eq!(
        call(&server, "POST", "clock", json!({"advance": 3_600})).await,
        now(1_700_003_600)
    );
    assert_eq!(
        call(&server, "POST", "clock", json!({"set": 1_600_000_000})).await,
        now(1_600_000_000)
    );
    for bad in [
        json!({}),
        json!({"advance": -1}),
        json!({"advance": 1, "set": 1}),
        json!({"wind": 1}),
    ] {
        assert_eq!(call(&server, "POST", "clock", bad).await.0, 422);
    }
}

#[tokio::test]
async fn the_ceiling_can_be_set_and_removed() {
    let server = MockServer::start().await;

    assert_eq!(
        call(&server, "PUT", "ceiling", json!({"contacts": 0})).await,
        NO_CONTENT
    );
    assert_eq!(
        post(&server, "/contacts", &ada()).await.unwrap().status(),
        402
    );

    assert_eq!(
        call(&server, "PUT", "ceiling", json!({"contacts": null})).await,
        NO_CONTENT
    );
    assert_eq!(
        post(&server, "/contacts", &ada()).await.unwrap().status(),
        201
    );
    assert_eq!(call(&server, "PUT", "ceiling", json!({})).await.0, 422);
}

#[tokio::test]
async fn a_status_fault_can_be_added_with_all_its_options() {
    let server = MockServer::start().await;
    let fault = json!({"status": 503, "retry_after": 1, "times": 2, "after": 1, "method": "POST", "path": "/contacts"});

    assert_eq!(call(&server, "POST", "faults", fault).await, NO_CONTENT);

    let bob = json!({"email": "bob@example.com"});
    assert_eq!(
        post(&server, "/contacts", &bob).await.unwrap().status(),
        201
    );

    let first = post(&server, "/contacts", &ada()).await.unwrap();
    assert_eq!(
        (first.status().as_u16(), &first.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert_eq!(get(&server, "/contacts").await.unwrap().status(), 200);
    assert_eq!(
        post(&server, "/contacts", &ada()).await.unwrap().status(),
        503
    );
    assert_eq!(
        post(&server, "/contacts", &ada()).await.unwrap().status(),
        201
    );
}

#[tokio::test]
async fn a_fault_of_each_nth_request_can_be_added() {
    let server = MockServer::start().await;
    let fault = json!({"status": 503, "every": 2, "times": 2, "path": "/contacts"});

    assert_eq!(call(&server, "POST", "faults", fault).await, NO_CONTENT);

    let mut statuses = Vec::new();
    for _ in 0..6 {
        let response = get(&server, "/contacts").await.unwrap();
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 503, 200, 503, 200, 200]);
}

#[tokio::test]
async fn every_other_kind_of_fault_can_be_added() {
    let server = MockServer::start().await;
    let ask = || async { post_unchecked(&server, "/contacts", &ada()).await };
    let fault = async |fault: Value| {
        assert_eq!(
            call(&server, "POST", "reset", Value::Null).await,
            NO_CONTENT
        );
        assert_eq!(call(&server, "POST", "faults", fault).await, NO_CONTENT);
    };

    fault(json!({"delay_ms": 80})).await;
    let before = Instant::now();
    assert_eq!(ask().await.unwrap().status(), 201);
    assert!(before.elapsed() >= Duration::from_millis(80));

    for (kind, applied) in [("before", 0), ("after", 1)] {
        fault(json!({"close": kind, "times": 1})).await;
        assert!(ask().await.is_err(), "{kind}");
        assert_eq!(server.contact_count(), applied, "{kind}");
    }
    for kind in ["mid_body", "reset"] {
        fault(json!({"close": kind, "times": 1})).await;
        assert!(ask().await.unwrap().bytes().await.is_err(), "{kind}");
        assert_eq!(server.contact_count(), 1, "{kind}");
    }

    fault(json!({"status": 504, "applied": true, "times": 1})).await;
    assert_eq!(ask().await.unwrap().status(), 504);
    assert_eq!(server.contact_count(), 1);

    fault(json!({"garbage": true, "times": 1})).await;
    assert!(ask().await.is_err());
    assert_eq!(server.contact_count(), 0);

    fault(json!({"body": "<html>", "headers": {"content-type": "text/html"}})).await;
    let response = ask().await.unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["content-type"]
        ),
        (201, &"text/html".parse().unwrap())
    );
    assert_eq!(response.text().await.unwrap(), "<html>");

    fault(json!({"status": 409, "body": {"slug": "already_exists"}})).await;
    assert_eq!(
        json_of(ask().await.unwrap()).await,
        json!({"slug": "already_exists"})
    );

    assert_eq!(
        call(&server, "DELETE", "faults", Value::Null).await,
        NO_CONTENT
    );
    assert_eq!(ask().await.unwrap().status(), 201);
}

#[tokio::test]
async fn an_invalid_fault_is_refused_with_the_reason() {
    let server = MockServer::start().await;

    for (fault, reason) in [
        (json!({}), "needs one of `status`"),
        (json!({"times": 1}), "needs one of `status`"),
        (json!({"status": 42}), "must be between 200 and 999"),
        (
            json!({"status": 503, "close": "before"}),
            "can have only one of",
        ),
        (json!({"close": "sideways"}), "unknown variant `sideways`"),
        (
            json!({"status": 503, "retry_after": 1.5}),
            "`retry_after` must be whole seconds",
        ),
        (
            json!({"status": 503, "headers": {"a b": "c"}}),
            "is not a valid header name",
        ),
        (json!({"status": 503, "tmes": 1}), "unknown field `tmes`"),
        (
            json!({"status": 503, "times": 0}),
            "`times` must be at least 1",
        ),
        (
            json!({"status": 503, "every": 0}),
            "`every` must be at least 1",
        ),
        (json!({"status": 503, "every": -1}), "the body is invalid"),
        (
            json!({"status": 503, "path": "contacts"}),
            "`path` must start with `/` or `*`",
        ),
        (
            json!({"status": 503, "path": "/contacts?limit=1"}),
            "leave out the query",
        ),
        (
            json!({"status": 503, "method": "GET /"}),
            "`method` is not an HTTP method",
        ),
    ] {
        let (status, error) = call(&server, "POST", "faults", fault).await;

        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(status, 422, "{message}");
        assert!(message.contains(reason), "{message}");
    }
    assert_eq!(get(&server, "/contacts").await.unwrap().status(), 200);
}

#[tokio::test]
async fn requests_can_be_listed_and_cleared() {
    let server = MockServer::start().await;
    post(&server, "/contacts?a=b", &ada()).await.unwrap();

    let (status, listed) = call(&server, "GET", "requests", Value::Null).await;

    assert_eq!(status, 200);
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    let request = &listed["data"][0];
    assert_eq!(
        (&request["method"], &request["path"]),
        (&json!("POST"), &json!("/contacts"))
    );
    assert_eq!(
        (&request["query"], &request["status"]),
        (&json!("a=b"), &json!(422))
    );
    assert_eq!(
        request["headers"]["authorization"],
        format!("Bearer {}", server.full_key())
    );
    assert_eq!(request["body"], ada().to_string());
    assert_eq!(
        call(&server, "DELETE", "requests", Value::Null).await,
        NO_CONTENT
    );
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn requests_can_be_listed_in_pages() {
    let server = MockServer::start().await;
    for number in 0..5 {
        get(&server, &format!("/number/{number}")).await.unwrap();
    }

    let mut paths = Vec::new();
    let mut next = json!(0);
    loop {
        let path = format!("requests?limit=2&after={next}");
        let (status, page) = call(&server, "GET", &path, Value::Null).await;
        assert_eq!(status, 200);
        next = page["next"].clone();
        let data = page["data"].as_array().unwrap();
        if data.is_empty() {
            break;
        }
        assert!(data.len() <= 2);
        paths.extend(data.iter().map(|request| request["path"].clone()));
    }

    assert_eq!(
        paths,
        [
            "/number/0",
            "/number/1",
            "/number/2",
            "/number/3",
            "/number/4"
        ]
    );
    assert_eq!(next, 5);
    server.clear_requests();
    get(&server, "/number/6").await.unwrap();
    let (_, page) = call(&server, "GET", "requests?after=5", Value::Null).await;
    assert_eq!(page["data"][0]["path"], "/number/6");
    assert_eq!(page["next"], 6);
    let (_, all) = call(&server, "GET", "requests", Value::Null).await;
    assert_eq!(
        all.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["data"]
    );
    for bad in ["limit=0", "limit=x", "page=1"] {
        let path = format!("requests?{bad}");
        assert_eq!(call(&server, "GET", &path, Value::Null).await.0, 422);
    }
}

#[tokio::test]
async fn endpoints_are_added_and_removed_by_name() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500]).await;
    let endpoint = json!({"url": receiver.url, "secret": SECRET});

    assert_eq!(
        call(&server, "PUT", "endpoints/crm", endpoint).await,
        NO_CONTENT
    );
    server.send_event(json!({"type": "email.sent"})).await;
    assert_eq!(server.attempts()[0].endpoint, "crm");
    assert!(server.attempts()[0].next_at.is_some());

    assert_eq!(
        call(&server, "DELETE", "endpoints/crm", Value::Null).await,
        NO_CONTENT
    );
    assert_eq!(server.attempts()[0].next_at, None);
    server.advance(Duration::from_secs(86_400)).await;
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(
        call(&server, "DELETE", "endpoints/crm", Value::Null)
            .await
            .0,
        404
    );
    for path in ["endpoints/", "contacts/nobody"] {
        let misspelled = call(&server, "DELETE", path, Value::Null).await;
        assert_eq!(misspelled.0, 422, "{path}");
    }
    for (url, secret) in [
        ("https://example.com", SECRET),
        (&receiver.url, ""),
        ("nowhere", SECRET),
        ("http://127.0.0.1:8080x/hook", SECRET),
        ("http://127.0.0.1:99999/hook", SECRET),
    ] {
        let bad = json!({"url": url, "secret": secret});
        assert_eq!(call(&server, "PUT", "endpoints/crm", bad).await.0, 422);
    }
}

#[tokio::test]
async fn an_endpoint_that_was_removed_leaves_the_next_attempts_of_the_others() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500; 2]).await;
    for name in ["a", "b"] {
        let endpoint = json!({"url": receiver.url, "secret": SECRET});
        call(&server, "PUT", &format!("endpoints/{name}"), endpoint).await;
    }
    server.send_event(json!({"type": "email.sent"})).await;

    call(&server, "DELETE", "endpoints/a", Value::Null).await;

    let attempts = server.attempts().into_iter();
    let is_next: Vec<_> = attempts
        .map(|attempt| (attempt.endpoint, attempt.next_at.is_some()))
        .collect();
    assert_eq!(is_next.len(), 2);
    for (endpoint, is_next) in is_next {
        assert_eq!(is_next, endpoint == "b", "{endpoint}");
    }
}

#[tokio::test]
async fn nothing_waits_for_the_pending_attempts_of_an_endpoint_that_was_removed() {
    let silent = raw_receiver(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let server = MockServer::builder()
        .clock(1_700_000_000)
        .delivery_timeout(2 * PATIENCE)
        .start()
        .await;
    let endpoint = json!({"url": silent, "secret": SECRET});
    call(&server, "PUT", "endpoints/crm", endpoint).await;

    // The second event waits for the first: an endpoint gets one event at a time.
    let first = server.send_event(json!({"type": "email.sent"}));
    let second = server.send_event(json!({"type": "email.opened"}));
    let removed = call(&server, "DELETE", "endpoints/crm", Value::Null);
    tokio::select! {
        biased;
        _ = first => panic!("the silent endpoint has responded"),
        ended = in_time(async { tokio::join!(second, removed) }) => {
            assert_eq!(ended, ("evt_2".to_owned(), NO_CONTENT));
        }
    }

    assert!(server.attempts().is_empty());
}

#[tokio::test]
async fn an_event_is_sent_logged_and_redelivered() {
    let server = stopped_server().await;
    let receiver = Receiver::start([500]).await;
    call(
        &server,
        "PUT",
        "endpoints/crm",
        json!({"url": receiver.url, "secret": SECRET}),
    )
    .await;

    let sent = call(
        &server,
        "POST",
        "events",
        json!({"type": "email.bounced", "data": {}}),
    )
    .await;
    assert_eq!(sent, (200, json!({"id": "evt_1"})));
    assert_eq!(
        call(&server, "POST", "events/evt_1/redeliver", Value::Null).await,
        NO_CONTENT
    );

    assert_eq!(receiver.ids(), ["evt_1", "evt_1"]);
    let log = json!({"data": [
        {"number": 1, "event_id": "evt_1", "endpoint": "crm", "attempt": 1, "at": 1_700_000_000, "status": 500, "error": null,
            "fault": null, "signature_problem": null, "next_at": 1_700_000_035},
        {"number": 2, "event_id": "evt_1", "endpoint": "crm", "attempt": 2, "at": 1_700_000_000, "status": 200, "error": null,
            "fault": null, "signature_problem": null, "next_at": null},
    ]});
    assert_eq!(
        call(&server, "GET", "attempts", Value::Null).await,
        (200, log)
    );
    assert_eq!(
        call(&server, "POST", "events/evt_9/redeliver", Value::Null)
            .await
            .0,
        404
    );
    assert_eq!(
        call(&server, "POST", "events", json!({"data": {}})).await.0,
        422
    );
}

#[tokio::test]
async fn an_unknown_path_or_method_is_refused_with_the_reason() {
    let server = MockServer::start().await;

    for path in ["/", "nothing", "endpoint", "health/", "events/evt_1"] {
        assert_eq!(
            call(&server, "GET", path, Value::Null).await.0,
            404,
            "{path}"
        );
    }
    for (method, path) in [
        ("POST", "health"),
        ("GET", "reset"),
        ("GET", "topics/a"),
        ("GET", "segments/a"),
        ("GET", "contacts/a/complaint"),
        ("GET", "contacts/a/engagement"),
        ("PUT", "clock"),
        ("GET", "ceiling"),
        ("POST", "topics"),
        ("POST", "stream"),
        ("POST", "requests"),
        ("GET", "endpoints/a"),
        ("PUT", "events"),
        ("GET", "events/a/redeliver"),
        ("POST", "attempts"),
    ] {
        let (status, error) = call(&server, method, path, json!({})).await;

        assert_eq!(status, 405, "{method} {path}");
        assert_eq!(error["error"]["code"], "method_not_allowed");
    }
    for (method, path) in [("PUT", "topics/a"), ("POST", "clock"), ("POST", "events")] {
        let (status, error) = call(&server, method, path, Value::Null).await;

        assert_eq!(status, 422, "{method} {path}");
        assert!(
            error["error"]["message"]
                .as_str()
                .unwrap()
                .contains("needs a JSON body")
        );
    }
}

#[tokio::test]
async fn a_body_that_is_not_an_object_is_refused_with_the_reason() {
    let server = MockServer::start().await;

    for (method, path, body) in [
        ("PUT", "topics/news", json!([true])),
        ("PUT", "topics/news", json!(true)),
        ("POST", "faults", json!([503])),
        ("POST", "events", json!(["email.sent", {}])),
    ] {
        let (status, error) = call(&server, method, path, body).await;

        assert_eq!(status, 422, "{method} {path}");
        assert_eq!(error["error"]["message"], "the body must be a JSON object");
    }
}

#[tokio::test]
async fn a_fault_cannot_set_headers_that_mark_the_end_of_the_response() {
    let server = MockServer::start().await;

    for name in ["Content-Length", "transfer-encoding", "connection"] {
        let fault = json!({"status": 503, "headers": {name: "5"}});
        let (status, error) = call(&server, "POST", "faults", fault).await;

        assert_eq!(status, 422, "{name}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(name), "{message}");
    }
    assert_eq!(get(&server, "/contacts").await.unwrap().status(), 200);
}

#[tokio::test]
async fn control_plane_requests_are_not_recorded_and_not_affected_by_faults() {
    let server = MockServer::start().await;
    call(&server, "POST", "faults", json!({"close": "before"})).await;

    assert_eq!(call(&server, "GET", "health", Value::Null).await.0, 200);
    assert!(server.requests().is_empty());
    // A path that only begins with the same letters is not part of the control plane.
    assert!(get(&server, "/_mockery").await.is_err());
    assert_eq!(server.requests().len(), 1);
}

/// Resets the server with these headers. Returns the status.
async fn reset_with(server: &MockServer, headers: &[(&str, &str)]) -> u16 {
    let mut request = reqwest::Client::new().post(format!("{}/_mock/reset", server.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_web_page_of_another_origin_cannot_control_the_server() {
    let server = MockServer::start().await;
    post(&server, "/contacts", &ada()).await.unwrap();

    for origin in ["https://evil.example", "http://localhost:3000", "null"] {
        assert_eq!(
            reset_with(&server, &[("origin", origin)]).await,
            403,
            "{origin}"
        );
    }

    assert_eq!(server.contact_count(), 1);
    assert_eq!(reset_with(&server, &[("origin", server.url())]).await, 204);
    assert_eq!(server.contact_count(), 0);
}

#[tokio::test]
async fn the_control_plane_is_called_only_by_known_hosts() {
    let server = MockServer::builder().allowed_host("mock").start().await;
    post(&server, "/contacts", &ada()).await.unwrap();

    for host in [
        "evil.example",
        "evil.example:4010",
        "192.0.2.7",
        "localhost.evil.example",
    ] {
        assert_eq!(reset_with(&server, &[("host", host)]).await, 403, "{host}");
    }

    assert_eq!(server.contact_count(), 1);
    for host in ["localhost:4010", "127.0.0.1", "[::1]:80", "mock:4010"] {
        assert_eq!(reset_with(&server, &[("host", host)]).await, 204, "{host}");
    }
}

#[tokio::test]
async fn the_service_is_called_only_by_known_hosts() {
    let server = MockServer::builder().allowed_host("mock").start().await;
    server.fault(Fault::status(503).after(2).times(1));
    let list = async |host| {
        let request = reqwest::Client::new()
            .get(format!("{}/contacts", server.url()))
            .header("host", host)
            .bearer_auth(server.full_key());
        request.send().await.unwrap()
    };

    let refused = list("evil.example").await;

    assert_eq!(refused.status(), 403);
    let error: Value = refused.json().await.unwrap();
    assert_eq!(error["error"]["code"], "forbidden");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("does not allow the host \"evil.example\"")
            && message.contains("--allowed-host"),
        "{message}"
    );
    assert_eq!(list("mock:4010").await.status(), 200);
    assert_eq!(list("localhost:1").await.status(), 200);
    // It is recorded, so that a user sees the reason, but no fault counts it.
    assert_eq!(server.requests()[0].status, Some(403));
    assert_eq!(list("127.0.0.1").await.status(), 503);
}

#[tokio::test]
async fn a_head_request_gets_the_head_of_a_get() {
    let server = MockServer::start().await;
    let client = reqwest::Client::new();
    for (path, status) in [
        ("", 200),
        ("health", 200),
        ("contacts", 200),
        ("reset", 405),
        ("nothing", 404),
    ] {
        let url = format!("{}/_mock/{path}", server.url());

        let response = client.head(url).send().await.unwrap();

        assert_eq!(response.status(), status, "{path}");
        assert_eq!(response.text().await.unwrap(), "", "{path}");
    }
    let clock = client.delete(format!("{}/_mock/clock", server.url()));
    let response = clock.send().await.unwrap();
    assert_eq!(response.headers()["allow"], "GET, HEAD, POST");
}

#[tokio::test]
async fn a_move_of_the_clock_needs_exactly_one_member() {
    let server = MockServer::builder().clock(5).start().await;
    for body in [json!({}), json!({"advance": 1, "set": 7})] {
        let (status, error) = call(&server, "POST", "clock", body).await;

        assert_eq!(status, 422);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("the clock needs either `advance`"),
            "{message}"
        );
    }
    assert_eq!(server.now().as_unix(), 5);
}

#[test]
#[should_panic(expected = "is not a valid host name")]
fn an_invalid_allowed_host_panics_with_the_reason() {
    let _ = MockServer::builder().allowed_host("http://mock");
}
