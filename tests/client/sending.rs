//! The parts of every request, and the settings of the client and of a call that change them.

use std::time::Duration;

use audience::contacts::NewContact;
use audience::{Auth, Client, ErrorKind, Method, RetryPolicy};
use serde_json::json;
use wiremock::Request;

use support::operation::Operation;
use support::scripted_server::{ScriptedServer, bytes, response};
use support::{
    ADA, KEY, builder, client, contact, ok, received, record, respond_in_turn, respond_with,
    status, time_out,
};

const HOUR: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn every_call_sends_key_accept_and_user_agent_to_its_endpoint() {
    for operation in Operation::ALL {
        let server =
            ScriptedServer::start([response(200, operation.good_response().to_string())]).await;

        operation.run(&client(server.url())).await.unwrap();

        let [request] = &server.received()[..] else {
            panic!("{operation:?} did not send one request")
        };
        assert_eq!(
            (request.method.as_str(), &request.target),
            (operation.method(), &operation.path())
        );
        assert_eq!(request.header("authorization"), Some("Bearer key-hunter2"));
        assert_eq!(request.header("accept"), Some("application/json"));
        assert_eq!(
            request.header("user-agent"),
            Some(concat!("audience/", env!("CARGO_PKG_VERSION")))
        );
        assert!(request.header("accept-encoding").unwrap().contains("gzip"));
        let json = (!request.body.is_empty()).then_some("application/json");
        assert_eq!(request.header("content-type"), json, "{operation:?}");
        let keys = request
            .headers
            .iter()
            .filter(|(_, value)| value.contains(KEY));
        assert_eq!(keys.count(), 1, "{operation:?}");
    }
}

#[tokio::test]
async fn a_post_put_or_patch_without_a_body_says_content_length_0() {
    for operation in Operation::ALL {
        let server =
            ScriptedServer::start([response(200, operation.good_response().to_string())]).await;

        operation.run(&client(server.url())).await.unwrap();

        let request = &server.received()[0];
        let has_length =
            !request.body.is_empty() || matches!(operation.method(), "POST" | "PUT" | "PATCH");
        let length = has_length.then(|| request.body.len().to_string());
        assert_eq!(
            request.header("content-length"),
            length.as_deref(),
            "{operation:?}"
        );
    }
}

#[tokio::test]
async fn the_path_of_the_base_url_is_kept_with_or_without_a_trailing_slash() {
    for base in ["", "/", "/v1", "/v1/", "/a/b%20c//"] {
        let server = respond_with(ok(contact())).await;
        let client = client(format!("{}{base}", server.uri()));

        client.contacts().retrieve(ADA).await.unwrap();
        client
            .request(Method::POST, ["emails"])
            .query("a b", "c&d")
            .await
            .unwrap();

        let requests = received(&server).await;
        let base = base.trim_end_matches('/');
        assert_eq!(
            requests[0].url.path(),
            format!("{base}/contacts/ada%40example.com")
        );
        assert_eq!(
            (requests[1].url.path(), requests[1].url.query()),
            (&*format!("{base}/emails"), Some("a%20b=c%26d"))
        );
    }
}

#[tokio::test]
async fn the_key_is_sent_only_in_the_header_that_auth_names() {
    let server = respond_with(ok(contact())).await;
    let client = builder(server.uri())
        .auth(Auth::header("X-Api-Key"))
        .build()
        .unwrap();

    client.contacts().retrieve(ADA).await.unwrap();

    let headers = &received(&server).await[0].headers;
    assert_eq!(headers["x-api-key"], KEY);
    assert!(!headers.contains_key("authorization"));
}

#[tokio::test]
async fn localhost_is_this_machine_whatever_the_resolver_says() {
    let server = respond_with(ok(contact())).await;
    let client = client(server.uri().replace("127.0.0.1", "localhost"));

    assert_eq!(client.contacts().retrieve(ADA).await.unwrap().email, ADA);
    for url in [
        "http://a.localhost",
        "http://localhost.",
        "http://localhost.example.com",
    ] {
        let error = Client::new(url, KEY).unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
    }
}

#[tokio::test]
async fn the_user_agent_is_the_programs_name_then_the_crates() {
    let server = respond_with(ok(contact())).await;
    let client = builder(server.uri())
        .user_agent("my-app/1.0")
        .build()
        .unwrap();

    client.contacts().retrieve(ADA).await.unwrap();

    let agent = concat!("my-app/1.0 audience/", env!("CARGO_PKG_VERSION"));
    assert_eq!(received(&server).await[0].headers["user-agent"], agent);
}

#[tokio::test]
async fn a_custom_http_client_is_used_with_the_key_and_the_settings() {
    let custom = reqwest::Client::builder()
        .default_headers(http::HeaderMap::from_iter([(
            http::HeaderName::from_static("x-from"),
            http::HeaderValue::from_static("custom"),
        )]))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .unwrap();
    let server = ScriptedServer::start([bytes("").then_hang()]).await;
    let client = builder(server.url())
        .http_client(custom)
        .timeout(HOUR)
        .no_deadline()
        .retry(RetryPolicy::none())
        .user_agent("my-app/1.0")
        .build()
        .unwrap();

    let call = client.contacts().retrieve(ADA);
    let is_received = || !server.received().is_empty();
    let error = time_out(call, HOUR, is_received).await.unwrap_err();

    assert_eq!(
        error.kind(),
        ErrorKind::Timeout,
        "the timeout of the builder applies"
    );
    let request = &server.received()[0];
    assert_eq!(request.header("x-from"), Some("custom"));
    assert_eq!(request.header("authorization"), Some("Bearer key-hunter2"));
    let user_agent = request.header("user-agent").unwrap();
    assert!(user_agent.starts_with("my-app/1.0 audience/"));
}

#[tokio::test]
async fn a_setting_of_a_call_overrides_the_clients_for_that_call_only() {
    let refusals = || vec![status(503); 3];
    let server = respond_in_turn([refusals(), refusals()].concat()).await;
    let contacts = builder(server.uri())
        .retry(RetryPolicy::none())
        .build()
        .unwrap()
        .contacts();
    let three_attempts = support::fast_retries().max_attempts(3);

    let overridden = contacts
        .retrieve(ADA)
        .retry(three_attempts)
        .await
        .unwrap_err();
    let unchanged = contacts.retrieve(ADA).await.unwrap_err();

    assert_eq!((overridden.attempts(), unchanged.attempts()), (3, 1));

    let server = respond_with(|request: &Request| {
        let is_silent = request.url.path().ends_with("bob%40example.com");
        let delay = if is_silent { HOUR } else { SHORT * 4 };
        ok(contact()).set_delay(delay)
    })
    .await;
    let contacts = client(server.uri()).contacts();
    let bob = || contacts.retrieve("bob@example.com");
    let timed_out = bob().timeout(SHORT).retry(RetryPolicy::none());
    assert_eq!(timed_out.await.unwrap_err().kind(), ErrorKind::Timeout);
    let out_of_time = bob().deadline(SHORT);
    assert_eq!(out_of_time.await.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(contacts.retrieve(ADA).await.is_ok());
}

#[tokio::test]
async fn one_client_serves_many_tasks_at_once() {
    let server = respond_with(ok(contact())).await;
    let client = client(server.uri());

    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let contacts = client.contacts();
            tokio::spawn(async move { contacts.retrieve(format!("{n}@example.com")).await })
        })
        .collect();

    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap().email, ADA);
    }
    assert_eq!(received(&server).await.len(), 500);
}

#[tokio::test]
async fn consecutive_calls_share_a_connection() {
    let server =
        ScriptedServer::start([(); 3].map(|()| response(200, contact().to_string()))).await;
    let contacts = client(server.url()).contacts();

    for _ in 0..3 {
        contacts.retrieve(ADA).await.unwrap();
    }

    assert!(
        server
            .received()
            .iter()
            .all(|request| request.connection == 0)
    );
}

#[tokio::test]
async fn nothing_is_sent_before_a_call_is_awaited() {
    let server = respond_with(status(201).set_body_json(record())).await;
    let contacts = client(server.uri()).contacts();

    let call = contacts.create(NewContact::new(ADA));
    drop(contacts.create(NewContact::new(ADA)));
    assert!(received(&server).await.is_empty());

    call.await.unwrap();
    assert_eq!(received(&server).await.len(), 1);
}

#[tokio::test]
async fn a_custom_request_sends_its_parts_and_returns_the_raw_response() {
    let server = respond_with(
        status(202)
            .set_body_json(json!({"id": "em_1"}))
            .insert_header("x-a", "b"),
    )
    .await;
    let client = client(server.uri());

    let raw = client
        .request(Method::PUT, ["segments", "a/b ?"])
        .query("dry", "yes")
        .query("dry", "no")
        .json(&json!({"contacts": []}))
        .unwrap()
        .await
        .unwrap();

    let request = &received(&server).await[0];
    assert_eq!(
        (request.method.as_str(), request.url.path()),
        ("PUT", "/segments/a%2Fb%20%3F")
    );
    assert_eq!(request.url.query(), Some("dry=yes&dry=no"));
    assert_eq!(request.body, br#"{"contacts":[]}"#);
    assert_eq!(
        (raw.status().as_u16(), raw.headers()["x-a"].as_bytes()),
        (202, &b"b"[..])
    );
    assert_eq!(raw.json::<serde_json::Value>().unwrap()["id"], "em_1");
}

#[tokio::test]
async fn a_header_that_http_itself_needs_is_refused_and_nothing_is_sent() {
    let server = respond_with(ok(contact())).await;
    let client = client(server.uri());

    for name in [
        "content-length",
        "Transfer-Encoding",
        "host",
        "connection",
        "Expect",
        "te",
        "trailer",
        "upgrade",
        "keep-alive",
        "proxy-connection",
    ] {
        let error = client
            .request(Method::POST, ["emails"])
            .header(name, "3")
            .await
            .unwrap_err();

        assert_eq!(
            (error.kind(), error.attempts()),
            (ErrorKind::Input, 0),
            "{name}"
        );
        let name = name.to_lowercase();
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
    }
    assert!(received(&server).await.is_empty());
}

#[test]
fn a_client_for_https_can_be_built_without_a_connection() {
    assert!(Client::new("https://api.example.com/v1", KEY).is_ok());
}

#[tokio::test]
async fn a_header_of_a_raw_request_is_added_but_replaces_no_header_of_the_client() {
    let server = ScriptedServer::start([response(200, "{}")]).await;

    let request = client(server.url()).request(Method::GET, ["emails"]);
    let request = request.header("idempotency-key", "order-7");
    request
        .header("authorization", "Bearer other")
        .await
        .unwrap();

    let request = &server.received()[0];
    assert_eq!(request.header("idempotency-key"), Some("order-7"));
    let keys: Vec<_> = request
        .headers
        .iter()
        .filter(|(name, _)| name == "authorization")
        .collect();
    assert_eq!(keys.len(), 1);
    assert_eq!(request.header("authorization"), Some("Bearer key-hunter2"));
}

#[test]
fn the_base_url_is_printed_without_a_slash_at_its_end() {
    let client = Client::new("https://api.example.com/v1/", "key").unwrap();

    assert!(format!("{client:?}").contains("\"https://api.example.com/v1\""));
}

#[test]
fn a_name_of_the_day_count_that_would_replace_the_condition_is_refused() {
    for name in ["", "field"] {
        let client = builder("http://localhost").joined_member(name).build();

        assert_eq!(client.unwrap_err().kind(), ErrorKind::Config, "{name:?}");
    }
    assert!(
        builder("http://localhost")
            .joined_member("value")
            .build()
            .is_ok()
    );
}

#[tokio::test]
async fn a_raw_response_says_how_many_attempts_it_took() {
    let server = respond_in_turn([status(503), ok(contact())]).await;
    let client = client(server.uri());

    let raw = client.request(Method::GET, ["contacts", ADA]).idempotent();

    assert_eq!(raw.await.unwrap().attempts(), 2);
}
