//! What the mock serves: the description as it is, and a page that shows it.

use audience::mock::MockServer;
use serde_json::Value;

use super::conformance::DESCRIPTION;

const PAGE: &str = include_str!("../../../src/mock/description/page.html");

async fn get(server: &MockServer, path: &str) -> reqwest::Response {
    reqwest::get(format!("{}{path}", server.url()))
        .await
        .unwrap()
}

#[tokio::test]
async fn the_mock_serves_its_description_without_a_key() {
    let server = MockServer::start().await;

    let response = get(&server, "/_mock/openapi.json").await;

    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    let served: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(served, *DESCRIPTION);
    assert_eq!(
        served["servers"][0]["url"], "/",
        "the first server is the one that was asked"
    );
}

#[tokio::test]
async fn the_page_may_load_nothing_from_elsewhere() {
    let server = MockServer::start().await;

    let response = get(&server, "/_mock/docs").await;

    assert_eq!(response.status(), 200);
    assert_eq!(
        response.headers()["content-type"],
        "text/html; charset=utf-8"
    );
    let policy = response.headers()["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(
        !policy.contains("unsafe") && !policy.contains("http"),
        "{policy}"
    );
    let page = response.text().await.unwrap();
    let nonce = policy
        .split("'nonce-")
        .nth(1)
        .unwrap()
        .split('\'')
        .next()
        .unwrap();
    assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert!(!page.contains("{{nonce}}"));
}

#[test]
fn the_page_names_no_other_host_and_writes_no_markup() {
    for forbidden in [
        "http://",
        "https://",
        "src=",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "style=",
        "@import",
    ] {
        assert!(!PAGE.contains(forbidden), "{forbidden}");
    }
}
