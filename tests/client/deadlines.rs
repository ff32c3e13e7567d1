//! The deadline of a whole call: its default, and how to lift it.

use std::time::Duration;

use audience::client::reqwest;
use audience::{Client, ErrorKind, Outcome, RetryPolicy};
use futures_util::StreamExt;
use serde_json::json;
use wiremock::{MockServer, Request, ResponseTemplate};

use support::scripted_server::{ScriptedServer, bytes};
use support::{
    ADA, KEY, TIMEOUT, builder, contact, contacts, in_time, ok, received, respond_in_turn,
    respond_with, status, summary,
};

/// Asks for a longer wait than the default deadline, and a shorter one than the longest `Retry-After`.
async fn busy_for_50_seconds() -> MockServer {
    respond_with(status(503).insert_header("retry-after", "50")).await
}

/// Whether the call is still waiting after a moment. If not, it failed after its first attempt.
async fn is_waiting<T>(call: impl IntoFuture<Output = Result<T, audience::Error>>) -> bool {
    let moment = Duration::from_millis(1_500);
    tokio::time::timeout(moment, call.into_future())
        .await
        .is_err()
}

#[tokio::test]
async fn a_call_has_a_deadline_of_45_seconds_by_default() {
    let server = busy_for_50_seconds().await;
    let client = Client::new(server.uri(), KEY).unwrap();

    let error = in_time(client.contacts().retrieve(ADA)).await.unwrap_err();

    assert_eq!(error.attempts(), 1);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(50)));
    assert!(format!("{client:?}").contains("deadline: Some(45s)"));
}

#[tokio::test]
async fn a_count_has_one_deadline_for_all_its_pages() {
    // Twenty pages take a second in all, and each of them far less than the deadline.
    let page = |n| ok(json!({"data": [summary(&format!("con_{n}"))]}));
    let delay = Duration::from_millis(50);
    let pages = (0..20).map(|n| page(n).set_delay(delay));
    let server = respond_in_turn(pages.chain([ok(json!({"data": []}))])).await;
    let contacts = Client::new(server.uri(), KEY).unwrap().contacts();

    let count = contacts.list().count().deadline(Duration::from_millis(500));
    let error = in_time(count).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = "list: the deadline of 500ms passed ";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(received(&server).await.len() < 20);
}

#[tokio::test]
async fn a_count_has_the_deadline_of_its_list_or_client_unless_it_is_lifted() {
    let deadline = Duration::from_millis(300);
    let server = respond_with(slow_page).await;
    let client = Client::builder(server.uri(), KEY).deadline(deadline);
    let of_client = client.build().unwrap().contacts();
    let contacts = Client::new(server.uri(), KEY).unwrap().contacts();

    for list in [of_client.list(), contacts.list().deadline(deadline)] {
        let error = in_time(list.clone().count()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(is_waiting(list.count().no_deadline()).await);
    }
}

#[tokio::test]
async fn a_proof_that_a_contact_does_not_exist_ends_by_the_deadline_of_the_call() {
    let deadline = Duration::from_millis(300);
    // The list has Ada, a gateway responds 404 to the request for her, and no page of the proof has her.
    let server = respond_with(|request: &Request| match request.url.path() {
        "/contacts" => match request.url.query() {
            None => ok(json!({"data": [summary("con_1")]})),
            Some(query) if query.contains("query=") => slow_page(request),
            Some(_) => ok(json!({"data": []})),
        },
        _ => status(404),
    })
    .await;
    let contacts = Client::new(server.uri(), KEY).unwrap().contacts();
    let mut full = contacts.list().deadline(deadline).full();

    let error = in_time(full.next()).await.unwrap().unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.missing(), None);
}

/// A page of a list that never ends, each of them far faster than the deadline.
fn slow_page(request: &Request) -> ResponseTemplate {
    let after = request.url.query_pairs().find(|(name, _)| name == "after");
    let number = after.map_or(0, |(_, id)| id[4..].parse::<u64>().unwrap() + 1);
    let mut contact = summary(&format!("con_{number}"));
    contact["email"] = "bob@example.com".into();
    ok(json!({"data": [contact]})).set_delay(Duration::from_millis(50))
}

#[tokio::test]
async fn the_deadline_can_be_lifted_for_a_client_and_for_a_call() {
    let server = busy_for_50_seconds().await;
    let client = Client::new(server.uri(), KEY).unwrap();
    let lifted = Client::builder(server.uri(), KEY).no_deadline().build();
    let (contacts, lifted) = (client.contacts(), lifted.unwrap().contacts());

    assert!(is_waiting(lifted.retrieve(ADA)).await);
    assert!(is_waiting(contacts.retrieve(ADA).no_deadline()).await);
    let request = client.request(audience::Method::GET, ["topics"]);
    assert!(is_waiting(request.idempotent().no_deadline()).await);
}

#[tokio::test]
async fn a_deadline_of_a_call_overrides_the_clients_and_the_last_setting_counts() {
    let server = busy_for_50_seconds().await;
    let (short, long) = (Duration::from_secs(40), Duration::from_secs(3_600));
    let contacts = Client::builder(server.uri(), KEY)
        .no_deadline()
        .retry(RetryPolicy::exponential())
        .build()
        .unwrap()
        .contacts();
    let call = || contacts.retrieve(ADA);

    assert!(in_time(call().deadline(short)).await.is_err());
    assert!(in_time(call().no_deadline().deadline(short)).await.is_err());
    assert!(is_waiting(call().deadline(short).no_deadline()).await);
    assert!(is_waiting(call().deadline(long)).await);
}

#[test]
fn a_blocking_call_has_the_same_setting() {
    let settings = Client::builder(support::closed_url(), KEY).retry(RetryPolicy::none());
    let client = settings.build().unwrap();

    let error = client
        .contacts()
        .retrieve(ADA)
        .no_deadline()
        .wait()
        .unwrap_err();

    assert_eq!(error.attempts(), 1);
}

#[tokio::test]
async fn a_timeout_of_the_http_client_applies_too_and_the_error_says_so() {
    let server = ScriptedServer::start([bytes("").then_hang()]).await;
    let http_client = reqwest::Client::builder()
        .no_proxy()
        .timeout(TIMEOUT)
        .build()
        .unwrap();
    let client = builder(server.url()).http_client(http_client);
    let client = client.retry(RetryPolicy::none()).build().unwrap();

    let error = client.contacts().create(ADA).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome(), error.to_string().as_str()),
        (
            ErrorKind::Timeout,
            Outcome::Unknown,
            "create: the timeout of the HTTP client passed"
        )
    );
}

#[tokio::test]
async fn a_limit_too_large_to_represent_never_passes() {
    let server = respond_with(ok(contact())).await;

    let call = contacts(server.uri()).retrieve(ADA);
    let ada = call.timeout(Duration::MAX).deadline(Duration::MAX).await;

    assert_eq!(ada.unwrap().email, ADA);
}
