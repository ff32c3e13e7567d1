//! The example `newsletter`, as its subscribers, the service and a supervisor see it.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use audience::mock::{Fault, MockServer, SeedContact};
use audience::unsubscribe::UnsubscribeLinks;
use reqwest::Method;
use support::PATIENCE;
use support::cancellation::until;
use support::examples::EXAMPLES;
use support::postgres::{self, Database};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
/// The form of the button that confirms a signup.
const CONFIRM: &str = "confirm=yes";
const LINK_SECRET: &str = "n3wsl3tt3r-0f-32-bytes-0r-m0re-1";

struct Newsletter {
    process: Child,
    url: String,
    /// For all requests: to make one takes long, and the server waits only 5 s for the headers of a request.
    client: reqwest::Client,
    /// How many requests were repeated because the program was too slow. Each may have sent a mail.
    repeated: Cell<usize>,
}

impl Drop for Newsletter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The address in links, as if a proxy stood before the program.
const PUBLIC_URL: &str = "http://localhost:1";

fn command(server: &MockServer, database: &Database) -> Command {
    let mut command = Command::new(&EXAMPLES["newsletter"]);
    command
        .env("AUDIENCE_URL", server.url())
        .env("AUDIENCE_KEY", server.full_key())
        .env("AUDIENCE_WEBHOOK_SECRET", SECRET)
        .env("AUDIENCE_INBOX_URL", &database.url)
        // As people copy it from a browser.
        .env("PUBLIC_URL", format!("{PUBLIC_URL}/"))
        .env("AUDIENCE_UNSUBSCRIBE_SECRET", LINK_SECRET)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Starts the program. If the database of a busy machine is too slow for it, starts it again, as a supervisor does.
fn start(server: &MockServer, database: &Database) -> Newsletter {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut command = command(server, database);
        let mut process = command.args(["--port", "0"]).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        if let Some(url) = line.trim().strip_prefix("listening on ") {
            return Newsletter {
                process,
                url: url.to_owned(),
                client: reqwest::Client::new(),
                repeated: Cell::new(0),
            };
        }
        let code = process.wait().unwrap().code();
        assert!(
            code == Some(TOO_SLOW) && Instant::now() < end,
            "{line}{code:?}"
        );
    }
}

/// The exit status of a program that a supervisor should start again, for example because the database was too slow.
const TOO_SLOW: i32 = 75;

const ONE_SENT: &str = "1 sent, 0 sent before, 0 not wanted, 0 failed\n";

/// The program that sends an issue leaves this to the server.
async fn create_tables(database: &Database) {
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
}

/// Sends an issue that was not sent before. If a busy machine is too slow for it, sends another one.
fn send(server: &MockServer, database: &Database, topic: &str) -> Output {
    let end = Instant::now() + PATIENCE;
    loop {
        let issue = format!("{:016x}", fastrand::u64(..));
        let sent = send_issue(server, database, topic, &issue);
        if sent.status.code() != Some(TOO_SLOW) || Instant::now() > end {
            return sent;
        }
    }
}

/// Sends an issue, or a part of it.
fn send_issue(server: &MockServer, database: &Database, topic: &str, issue: &str) -> Output {
    start_sending(server, database, topic, issue)
        .wait_with_output()
        .unwrap()
}

fn start_sending(server: &MockServer, database: &Database, topic: &str, issue: &str) -> Child {
    let mut command = command(server, database);
    let mut process = command
        .args(["--send", topic, "--issue", issue, "--subject", "Hello"])
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(b"Hello!").unwrap();
    process
}

impl Newsletter {
    /// Sends a request to a link of a mail, or to a path, which succeeds.
    async fn request(&self, method: Method, link: &str, form: &str) -> reqwest::Response {
        let response = self.patient_response(method, link, form).await;
        assert_eq!(response.status(), 200, "{link}");
        response
    }

    /// Sends a request. On a busy machine, it may get a 503 or a 408 because it takes too long. Then it is sent again, as
    /// a visitor would.
    async fn patient_response(&self, method: Method, link: &str, form: &str) -> reqwest::Response {
        let end = Instant::now() + PATIENCE;
        loop {
            let response = self.response(method.clone(), link, form).await;
            let is_late = [408, 503].contains(&response.status().as_u16());
            if !is_late || Instant::now() > end {
                return response;
            }
            self.repeated.set(self.repeated.get() + 1);
        }
    }

    /// Asserts that the mock has so many mails, or more if requests were repeated.
    fn assert_mails(&self, server: &MockServer, count: usize) {
        let sent = server.sent_mail().len();
        let repeated = self.repeated.get();
        assert!(
            (count..=count + repeated).contains(&sent),
            "{sent}, repeated: {repeated}"
        );
    }

    async fn response(&self, method: Method, link: &str, form: &str) -> reqwest::Response {
        let path = link.strip_prefix(PUBLIC_URL).unwrap_or(link);
        let url = format!("{}{path}", self.url);
        let request = self.client.request(method, url);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(form.to_owned()).send().await.unwrap()
    }
}

/// Returns the link in the text of the newest mail.
fn link(server: &MockServer) -> String {
    let mails = server.sent_mail();
    let text = mails.last().unwrap().body["text"].as_str().unwrap();
    let link = text.split_whitespace().find(|word| word.contains("://"));
    link.unwrap().to_owned()
}

async fn topics() -> MockServer {
    let server = MockServer::builder().topic("news", false);
    server.topic("offers", false).start().await
}

/// Adds `r0@x.io` and the next ones, who subscribed to the topic `news`.
fn seed_readers(server: &MockServer, count: usize) {
    for reader in 0..count {
        let seed = SeedContact::new(format!("r{reader}@x.io")).answer("news", true);
        server.seed_contact(seed);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_reader_signs_up_with_two_clicks_and_leaves_with_one() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let mut newsletter = start(&server, &database);
    let wants_news = || server.contact("ada@x.io").unwrap().topics["news"];

    // A signup, twice: one mail.
    let form = "address=Ada%40x.io&topic=news&topic=nonsense";
    for _ in 0..2 {
        newsletter.request(Method::POST, "/", form).await;
    }
    newsletter.assert_mails(&server, 1);
    let confirm = link(&server);
    // A scanner opens the link.
    newsletter.request(Method::GET, &confirm, "").await;
    assert_eq!(server.contact_count(), 0);
    newsletter.request(Method::POST, &confirm, CONFIRM).await;
    assert!(wants_news());
    assert!(!server.contact("ada@x.io").unwrap().topics["offers"]);

    // An issue for those who want it.
    let sent = |topic| String::from_utf8(send(&server, &database, topic).stdout).unwrap();
    let nobody = "0 sent, 0 sent before, 1 not wanted, 0 failed\n";
    assert_eq!(sent("offers"), nobody);
    assert_eq!(sent("news"), ONE_SENT);
    let mails = server.sent_mail();
    let headers = &mails.last().unwrap().body["headers"];
    let one_click = headers["List-Unsubscribe-Post"].as_str().unwrap();
    assert_eq!(one_click, "List-Unsubscribe=One-Click");
    let page = newsletter.request(Method::GET, &link(&server), "").await;
    let page = page.text().await.unwrap();
    assert!(page.contains("News, once a month"), "{page}");
    assert!(wants_news());

    // One click, which the worker passes on.
    let url = headers["List-Unsubscribe"].as_str().unwrap();
    let url = url.trim_matches(['<', '>']);
    newsletter.request(Method::POST, url, one_click).await;
    until(|| !wants_news()).await;

    let pid = newsletter.process.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(kill.unwrap().success());
    assert!(newsletter.process.wait().unwrap().success());
}

#[tokio::test]
async fn a_visitor_is_not_told_to_try_again_in_a_minute_if_the_team_has_to_act() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    server.fault(Fault::status(401).path("/emails"));

    let form = "address=ada%40x.io&topic=news";
    let failed = newsletter.patient_response(Method::POST, "/", form).await;

    assert_eq!(failed.status(), 500);
    let page = failed.text().await.unwrap();
    assert!(page.contains("Something is wrong on our side"), "{page}");
}

#[tokio::test]
async fn an_opt_out_that_the_service_does_not_have_yet_stops_mail_and_older_signups() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    let form = "address=ada%40x.io&topic=news";
    newsletter.request(Method::POST, "/", form).await;
    newsletter
        .request(Method::POST, &link(&server), CONFIRM)
        .await;
    let sent = || String::from_utf8(send(&server, &database, "news").stdout).unwrap();
    assert_eq!(sent(), ONE_SENT);
    let mail = server.sent_mail().pop().unwrap();
    let url = mail.body["headers"]["List-Unsubscribe"].as_str().unwrap();
    newsletter.request(Method::POST, "/", form).await;
    let confirm = link(&server);

    server.fault(Fault::status(503).path("*/unsubscribe"));
    let url = url.trim_matches(['<', '>']);
    let one_click = "List-Unsubscribe=One-Click";
    newsletter.request(Method::POST, url, one_click).await;

    let nobody = "0 sent, 0 sent before, 1 not wanted, 0 failed\n";
    assert_eq!(sent(), nobody);
    let confirmed = newsletter.response(Method::POST, &confirm, CONFIRM).await;
    assert_eq!(confirmed.status(), 503);
    server.clear_faults();
    until(|| !server.contact("ada@x.io").unwrap().topics["news"]).await;
    support::in_time(async {
        let click = async || newsletter.response(Method::POST, &confirm, CONFIRM).await;
        while click().await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(server.contact("ada@x.io").unwrap().topics["news"]);
}

/// Returns the URL for one click of the newest mail.
fn one_click_url(server: &MockServer) -> String {
    let mail = server.sent_mail().pop().unwrap();
    let url = mail.body["headers"]["List-Unsubscribe"].as_str().unwrap();
    url.trim_matches(['<', '>']).to_owned()
}

#[tokio::test]
async fn a_click_that_unsubscribes_comes_after_a_confirmation_that_still_runs() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    let sign_up = async || {
        newsletter
            .request(Method::POST, "/", "address=ada%40x.io&topic=news")
            .await;
        link(&server)
    };
    let confirm = sign_up().await;
    newsletter.request(Method::POST, &confirm, CONFIRM).await;
    let sent = send(&server, &database, "news").stdout;
    assert_eq!(sent, ONE_SENT.as_bytes());
    let url = one_click_url(&server);
    let confirm = sign_up().await;

    // On a busy machine, the click may take too long. Then there is another one.
    let end = Instant::now() + PATIENCE;
    let before = loop {
        server.clear_faults();
        let delay = Fault::delay(Duration::from_secs(1));
        server.fault(delay.method("GET").path("/contacts/*").times(1));
        let before = server.requests().len();
        let status = Cell::new(None);
        let click = async {
            let response = newsletter.response(Method::POST, &confirm, CONFIRM).await;
            status.set(Some(response.status().as_u16()));
        };
        let unsubscribe = async {
            let is_retrieved = || {
                let requests = server.requests();
                requests[before..].iter().any(|sent| sent.method == "GET")
            };
            until(|| is_retrieved() || status.get().is_some()).await;
            newsletter
                .request(Method::POST, &url, "List-Unsubscribe=One-Click")
                .await;
        };
        tokio::join!(click, unsubscribe);
        if status.get() == Some(200) {
            break before;
        }
        let is_late = matches!(status.get(), Some(408 | 503));
        assert!(is_late && Instant::now() < end, "{status:?}");
        until(|| !server.contact("ada@x.io").unwrap().topics["news"]).await;
    };

    let requests = server.requests();
    let mut subscribed = requests[before..]
        .iter()
        .filter(|request| request.path.ends_with("/subscribe") && !request.body.is_empty());
    assert!(subscribed.next().is_some() && subscribed.next().is_none());
    until(|| !server.contact("ada@x.io").unwrap().topics["news"]).await;
    let last = server
        .requests()
        .into_iter()
        .rfind(|request| request.path.ends_with("subscribe"));
    assert!(last.unwrap().path.ends_with("/unsubscribe"));
}

#[tokio::test]
async fn an_opt_out_while_an_issue_is_sent_stops_its_mail() {
    let end = Instant::now() + PATIENCE;
    while let Some(database) = postgres::database().await {
        if let Some(report) = opt_out_while_an_issue_is_sent(&database).await {
            let expected = "5 sent, 0 sent before, 2 not wanted, 0 failed\n";
            assert_eq!(report, expected);
            return;
        }
        assert!(Instant::now() < end, "the machine is too slow");
    }
}

/// Opts all seven readers out while the first five mails of an issue are sent. Returns the report, or `None` if the
/// opt-outs took longer than the mails.
async fn opt_out_while_an_issue_is_sent(database: &Database) -> Option<String> {
    let server = topics().await;
    let newsletter = start(&server, database);
    seed_readers(&server, 7);
    // On a slow machine, the opt-outs take some seconds.
    // The first mail goes alone.
    let slow = Fault::delay(Duration::from_secs(10)).path("/emails");
    server.fault(slow.after(1));
    let links = UnsubscribeLinks::new([LINK_SECRET], format!("{PUBLIC_URL}/preferences")).unwrap();
    let mut sending = start_sending(&server, database, "news", "1");
    let mails = || {
        let requests = server.requests().into_iter();
        requests.filter(|request| request.path == "/emails").count()
    };
    support::in_time(async {
        while mails() < 5 && sending.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;

    // While the next four mails are sent, all readers opt out, and the service has it.
    for reader in 0..7 {
        let [(_, url), _] = links.headers(format!("r{reader}@x.io"), "news");
        let url = url.trim_matches(['<', '>']);
        newsletter
            .request(Method::POST, url, "List-Unsubscribe=One-Click")
            .await;
    }
    let is_out = |reader| !server.contact(format!("r{reader}@x.io")).unwrap().topics["news"];
    until(|| (0..7).all(is_out)).await;

    let is_in_time = mails() == 5 && sending.try_wait().unwrap().is_none();
    let sent = sending.wait_with_output().unwrap();
    let code = sent.status.code();
    assert!(matches!(code, Some(0 | TOO_SLOW)), "{sent:?}");
    let is_in_time = is_in_time && code == Some(0);
    is_in_time.then(|| String::from_utf8(sent.stdout).unwrap())
}

#[tokio::test]
async fn more_clicks_than_the_pool_has_connections_succeed_while_the_service_is_slow() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    let mut links = Vec::new();
    for reader in 0..40 {
        let form = format!("address=r{reader}%40x.io&topic=news");
        newsletter.request(Method::POST, "/", &form).await;
        links.push(link(&server));
    }
    server.fault(Fault::delay(Duration::from_millis(500)).path("*/subscribe"));

    let click = async |link: &String| {
        let status = newsletter
            .response(Method::POST, link, CONFIRM)
            .await
            .status();
        assert!(
            [200, 408, 503].contains(&status.as_u16()),
            "{status}: {link}"
        );
        status == 200
    };
    // On a busy machine, a click may get a 503 because it takes too long. Then the visitor clicks again.
    let end = Instant::now() + PATIENCE;
    let mut succeeded = vec![false; links.len()];
    while !succeeded.contains(&true) {
        assert!(
            Instant::now() < end,
            "each of the simultaneous clicks failed"
        );
        succeeded = futures_util::future::join_all(links.iter().map(click)).await;
    }
    // The others click one after another: all of them simultaneously would take too long again.
    for (link, _) in links.iter().zip(succeeded).filter(|(_, done)| !done) {
        newsletter.request(Method::POST, link, CONFIRM).await;
    }

    assert_eq!(server.contact_count(), 40);
}

#[tokio::test]
async fn a_mail_that_the_service_refuses_does_not_stop_those_after_it() {
    let Some(database) = postgres::database().await else {
        return;
    };
    create_tables(&database).await;
    let end = Instant::now() + PATIENCE;
    let (server, sent) = loop {
        let server = topics().await;
        seed_readers(&server, 3);
        server.fault(Fault::status(422).path("/emails").times(1));
        let issue = format!("{:016x}", fastrand::u64(..));
        let sent = send_issue(&server, &database, "news", &issue);
        // A busy machine may be too slow for it.
        if sent.status.code() != Some(TOO_SLOW) || Instant::now() > end {
            break (server, sent);
        }
    };

    let text = String::from_utf8(sent.stdout).unwrap();
    let start = "2 sent, 0 sent before, 0 not wanted, 1 failed\nfailed: \"r";
    let end = "@x.io\": send_email: the service responded 422 unprocessable_entity; its message says why\n";
    assert!(text.starts_with(start) && text.ends_with(end), "{text}");
    assert_eq!(sent.status.code(), Some(1));
    assert_eq!(server.sent_mail().len(), 2);
}

#[test]
fn an_issue_without_its_topic_is_a_usage_error_and_starts_no_server() {
    for arguments in [
        &["--issue", "2026-11", "--subject", "Hello"][..],
        &["--issue", "2026-11"],
        &["--subject", "Hello"],
        &["--send", "news", "--subject", "Hello"],
    ] {
        let mut command = Command::new(&EXAMPLES["newsletter"]);
        // If it started the server, the missing settings would end it.
        let output = command.env_clear().args(arguments).output().unwrap();

        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
}

#[tokio::test]
async fn an_issue_that_was_stopped_continues_and_nobody_gets_it_twice() {
    let Some(database) = postgres::database().await else {
        return;
    };
    create_tables(&database).await;
    let server = topics().await;
    seed_readers(&server, 5);
    // The third mail is sent, and the program does not learn it.
    server.fault(Fault::close_after().path("/emails").after(2).times(1));

    // On a busy machine, the database may be too slow for a run.
    support::in_time(async {
        while server.sent_mail().len() < 3 {
            let stopped = send_issue(&server, &database, "news", "1");
            assert_eq!(stopped.status.code(), Some(TOO_SLOW));
            tokio::task::yield_now().await;
        }
    })
    .await;
    let continued = send_rest(&server, &database, "1").await;

    // Nobody else knows that the third mail was sent, so somebody has to look.
    assert_eq!(continued.status.code(), Some(1));
    let text = String::from_utf8(continued.stdout).unwrap();
    assert!(
        text.contains("\nmaybe not sent, and not sent again: \"r"),
        "{text}"
    );
    let mails = server.sent_mail().into_iter();
    let mut recipients: Vec<_> = mails.flat_map(|mail| mail.to).collect();
    recipients.sort();
    let all: Vec<_> = (0..5).map(|reader| format!("r{reader}@x.io")).collect();
    assert_eq!(recipients, all);
    assert_eq!(
        send(&server, &database, "news").stdout,
        b"5 sent, 0 sent before, 0 not wanted, 0 failed\n"
    );
    let unknown = start_sending(&server, &database, "nwes", "3");
    assert!(!unknown.wait_with_output().unwrap().status.success());
}

/// Continues an issue about the news until a supervisor would not run the program again.
async fn send_rest(server: &MockServer, database: &Database, issue: &str) -> Output {
    let end = Instant::now() + PATIENCE;
    loop {
        let sent = send_issue(server, database, "news", issue);
        if sent.status.code() != Some(TOO_SLOW) || Instant::now() > end {
            return sent;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn an_issue_whose_program_is_killed_reaches_everybody_once_but_for_the_mails_in_flight() {
    const READERS: usize = 30;
    // Four mails are sent simultaneously.
    const LEAST: usize = READERS - 3 * 4;
    let Some(database) = postgres::database().await else {
        return;
    };
    create_tables(&database).await;
    let server = topics().await;
    seed_readers(&server, READERS);
    server.fault(Fault::delay(Duration::from_millis(20)).path("/emails"));

    for mails in [4, 9, 17] {
        let mut sending = start_sending(&server, &database, "news", "1");
        support::in_time(async {
            while server.sent_mail().len() < mails {
                // On a busy machine, the database may be too slow for it.
                if let Some(status) = sending.try_wait().unwrap() {
                    assert_eq!(status.code(), Some(TOO_SLOW));
                    sending = start_sending(&server, &database, "news", "1");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        sending.kill().unwrap();
        sending.wait().unwrap();
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let ended = send_issue(&server, &database, "news", "1");
        let report = String::from_utf8_lossy(&ended.stdout);
        let is_whole = !report.contains("may have been sent") && !report.contains("a later run");
        assert_eq!(ended.status.success(), is_whole, "{report}");
        let count = server.sent_mail().len();
        if count >= LEAST {
            break;
        }
        let is_late = ended.status.code() == Some(TOO_SLOW) && Instant::now() < end;
        assert!(is_late, "{count}: {report}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    let mails = server.sent_mail().into_iter();
    let mut recipients: Vec<_> = mails.flat_map(|mail| mail.to).collect();
    let count = recipients.len();
    recipients.sort();
    recipients.dedup();
    assert_eq!(recipients.len(), count, "somebody got two mails");
}

#[tokio::test]
async fn each_choice_gets_a_link_and_adds_to_what_the_reader_has() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    let mut links = Vec::new();
    for topic in ["news", "offers"] {
        let form = format!("address=ada%40x.io&topic={topic}");
        newsletter.request(Method::POST, "/", &form).await;
        links.push(link(&server));
    }
    newsletter.assert_mails(&server, 2);

    newsletter.request(Method::POST, &links[0], CONFIRM).await;
    let ada = server.contact("ada@x.io").unwrap();
    assert!(ada.topics["news"] && !ada.topics["offers"]);
    newsletter.request(Method::POST, &links[1], CONFIRM).await;

    let ada = server.contact("ada@x.io").unwrap();
    assert!(ada.topics["news"] && ada.topics["offers"]);
}

#[tokio::test]
async fn the_link_of_a_mail_works_although_the_response_to_it_was_lost() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    let form = "address=ada%40x.io&topic=news";
    server.fault(Fault::close_after().path("/emails").times(1));

    // On a busy machine, there may be no mail at first.
    support::in_time(async {
        while server.sent_mail().is_empty() {
            let signed_up = newsletter.response(Method::POST, "/", form).await;
            let status = signed_up.status().as_u16();
            assert!(matches!(status, 408 | 503), "{status}");
        }
    })
    .await;

    let confirm = link(&server);
    // The next attempt sends another mail.
    newsletter.request(Method::POST, "/", form).await;
    newsletter.assert_mails(&server, 2);
    newsletter.request(Method::POST, &confirm, CONFIRM).await;
    assert!(server.contact("ada@x.io").unwrap().topics["news"]);

    server.fault(Fault::status(403).path("/emails"));
    let refused = "address=bob%40x.io&topic=news";
    let refused = newsletter
        .patient_response(Method::POST, "/", refused)
        .await;
    assert_eq!(refused.status(), 500);
}

#[tokio::test]
async fn a_stranger_does_not_learn_whose_mail_the_service_refuses() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    server.fault(Fault::status(422).path("/emails"));

    let mut pages = Vec::new();
    for address in ["spam%40x.io", "ada%40x.io"] {
        let form = format!("address={address}&topic=news");
        let page = newsletter.request(Method::POST, "/", &form).await;
        pages.push(page.text().await.unwrap());
        server.clear_faults();
    }

    assert_eq!(pages[0], pages[1]);
    newsletter.assert_mails(&server, 1);
}

#[tokio::test]
async fn a_form_that_arrives_byte_by_byte_and_never_ends_gets_a_response() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    let address = newsletter.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\n\
        content-type: application/x-www-form-urlencoded\r\ncontent-length: 100000\r\n\r\naddress=";
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.split();

    let sending = async {
        // The server closes the connection after its response.
        while writer.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut start = [0; 12];
    let reading = support::in_time(reader.read_exact(&mut start));
    tokio::select! {
        read = reading => read.unwrap(),
        () = sending => unreachable!(),
    };

    assert_eq!(std::str::from_utf8(&start), Ok("HTTP/1.1 408"));
    assert!(server.sent_mail().is_empty());
}

#[tokio::test]
async fn a_form_without_one_plain_address_sends_no_mail() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);

    for address in [
        "",
        "ada",
        "@x.io",
        "ada@",
        "Ada <ada@x.io>",
        "a@x.io,b@x.io",
        "a@b@x.io",
        "a b@x.io",
    ] {
        let form = format!("address={address}&topic=news");
        let page = newsletter.response(Method::POST, "/", &form).await;
        assert_eq!(page.status(), 422, "{address}");
        let page = page.text().await.unwrap();
        assert!(page.contains("Enter your address"), "{address}");
    }

    assert!(server.sent_mail().is_empty());
}
