//! The lines that the program prints for each request.

use serde_json::Value;

use super::RunningMock;

const KEY: &str = "mock-full-access-key";

#[cfg(unix)]
#[tokio::test]
async fn a_pretty_line_says_what_was_requested_and_why_it_was_refused() {
    let mock = RunningMock::start(&["--log", "pretty"]);
    mock.get("/contacts?limit=2", KEY).await;
    mock.get("/contacts/ada%40example.com", KEY).await;
    mock.get("/contacts", "other").await;
    mock.command(&["fault", "--close", "before", "--times", "1"]);
    let url = format!("{}/contacts", mock.url);
    assert!(reqwest::get(url).await.is_err());

    let (_, log) = mock.end_after_lines(4, "-TERM");

    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 4, "{log}");
    assert!(
        lines[0].starts_with("GET /contacts?limit=2 200 ") && lines[0].ends_with(" ms"),
        "{log}"
    );
    assert!(
        lines[1].starts_with("GET /contacts/ada%40example.com 404 "),
        "{log}"
    );
    assert!(lines[1].contains(" ms: there is no contact"), "{log}");
    assert!(
        lines[2].contains(" 401 ") && lines[2].contains("the API key is neither"),
        "{log}"
    );
    assert!(lines[3].starts_with("GET /contacts --- "), "{log}");
    assert!(
        lines[3].contains("a fault closed the connection before"),
        "{log}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_json_line_has_the_same_members() {
    let mock = RunningMock::start(&["--log", "json"]);
    mock.get("/contacts/ada%40example.com?a=b", KEY).await;

    let (_, log) = mock.end_after_lines(1, "-INT");

    let line: Value = serde_json::from_str(&log).unwrap();
    assert_eq!(line["method"], "GET");
    assert_eq!(line["path"], "/contacts/ada%40example.com");
    assert_eq!(line["query"], "a=b");
    assert_eq!(line["status"], 422);
    assert!(line["duration_ms"].is_number(), "{log}");
    assert!(
        line["reason"]
            .as_str()
            .unwrap()
            .contains("`a` is not a known parameter"),
        "{log}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn no_line_contains_a_key_wherever_the_request_had_it() {
    let encoded = KEY.replace('-', "%2D");
    for format in ["pretty", "json"] {
        let mock = RunningMock::start(&["--log", format]);
        for sent in [KEY, encoded.as_str()] {
            mock.get(&format!("/contacts?api_key={sent}"), KEY).await;
            mock.get(&format!("/contacts/{sent}"), KEY).await;
        }
        let method = reqwest::Method::from_bytes(KEY.as_bytes()).unwrap();
        let url = format!("{}/contacts", mock.url);
        mock.client.request(method, url).send().await.unwrap();

        let (_, log) = mock.end_after_lines(5, "-TERM");

        assert_eq!(log.lines().count(), 5, "{log}");
        for line in log.lines() {
            let has_key = line.contains(KEY) || line.contains(&encoded);
            assert!(line.contains("<key>") && !has_key, "{line}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn no_line_contains_the_rest_of_a_key_that_begins_with_the_other_key() {
    let mock = RunningMock::start(&["--log=pretty", "--full-key=abcd", "--sending-key=abcd-rest"]);
    mock.get("/contacts/abcd-rest", "abcd").await;

    let (_, log) = mock.end_after_lines(1, "-TERM");

    assert!(log.contains("<key>") && !log.contains("-rest"), "{log}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_log_that_nobody_reads_does_not_stop_the_mock() {
    let mock = RunningMock::start(&["--log", "pretty"]);
    // More than the pipe and the waiting lines can hold.
    let long = "a".repeat(4_000);

    for _ in 0..1_200 {
        assert_eq!(mock.get(&format!("/contacts/{long}"), KEY).await.0, 404);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_is_printed_without_a_terminal_unless_it_is_asked_for() {
    for arguments in [&[][..], &["--log", "off"]] {
        let mock = RunningMock::start(arguments);
        mock.get("/contacts", KEY).await;

        let (_, log) = mock.end_by("-TERM");

        assert_eq!(log, "");
    }
}
