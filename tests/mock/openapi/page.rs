//! What the mock serves: the description as it is, and a page that shows it.

use std::process::{Command, Stdio};

use audience::mock::MockServer;
use serde_json::Value;

use super::conformance::DESCRIPTION;

const PAGE: &str = include_str!("../../../src/mock/page/description.html");

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

/// The page as a browser shows it. `None` if there is no browser.
fn rendered(url: &str) -> Option<String> {
    // Another browser with the same profile would hand over the URL to this one, and show nothing.
    let profile = format!("docs-page-profile-{}", std::process::id());
    let profile = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(profile);
    let output = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--no-first-run",
            "--virtual-time-budget=20000",
            "--timeout=300000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(url)
        .stdin(Stdio::null())
        .output();
    let _ = std::fs::remove_dir_all(profile);
    let output = output.ok()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_browser_shows_each_operation_event_and_schema_of_the_page() {
    let server = MockServer::builder().start_blocking();

    let Some(page) = rendered(&format!("{}/_mock/docs", server.url())) else {
        support::skip("chromium is not installed, so the page of the description is not looked at");
        return;
    };

    let anchors = operation_ids().chain(schema_ids());
    for id in anchors {
        assert!(
            page.contains(&format!("<article class=\"item\" id=\"{id}\"")),
            "{id} is not shown"
        );
        assert!(
            page.contains(&format!("href=\"#{id}\"")),
            "no link leads to {id}"
        );
    }
    let (_, shown) = page.split_once("<main").unwrap();
    let (shown, _) = shown.split_once("</main>").unwrap();
    for part in [
        // Of a parameter that is JSON, and of an open enumeration.
        "query, JSON: Rule",
        "Known values: <code>\"Permanent\"</code>",
        // Of the whole document.
        "--dialect contact_deletion",
    ] {
        assert!(shown.contains(part), "the page does not show {part}");
    }
    for broken in ["[object ", "undefined", "NaN", "could not be shown"] {
        assert!(!shown.contains(broken), "the page shows {broken}");
    }
}

fn operation_ids() -> impl Iterator<Item = String> {
    let items = ["paths", "webhooks"]
        .into_iter()
        .flat_map(|part| DESCRIPTION[part].as_object().unwrap().values());
    let operations = items.flat_map(|item| item.as_object().unwrap().values());
    operations
        .filter_map(|operation| Some(operation.get("operationId")?.as_str().unwrap().to_owned()))
}

fn schema_ids() -> impl Iterator<Item = String> {
    let schemas = DESCRIPTION["components"]["schemas"].as_object().unwrap();
    schemas.keys().map(|name| format!("schema-{name}"))
}
