//! The example `newsletter`, as its subscribers, the service and a supervisor see it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use audience::mock::{Fault, MockServer};
use reqwest::Method;
use support::cancellation::until;
use support::examples::EXAMPLES;
use support::postgres::{self, Database};

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";

struct Newsletter {
    process: Child,
    url: String,
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
        .env("DATABASE_URL", &database.url)
        .env("PUBLIC_URL", PUBLIC_URL)
        .env("UNSUBSCRIBE_SECRET", "n3wsl3tt3r-0f-32-bytes-0r-m0re-1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn start(server: &MockServer, database: &Database) -> Newsletter {
    let mut command = command(server, database);
    let mut process = command.args(["--port", "0"]).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").unwrap();
    Newsletter {
        process,
        url: url.to_owned(),
    }
}

fn send(server: &MockServer, database: &Database, topic: &str) -> Output {
    let mut command = command(server, database);
    let mut process = command
        .args(["--send", topic, "--subject", "Hello"])
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(b"Hello!").unwrap();
    process.wait_with_output().unwrap()
}

impl Newsletter {
    /// Sends a request to a link of a mail, or to a path, which succeeds.
    async fn request(&self, method: Method, link: &str, form: &str) -> reqwest::Response {
        let response = self.response(method, link, form).await;
        assert_eq!(response.status(), 200, "{link}");
        response
    }

    async fn response(&self, method: Method, link: &str, form: &str) -> reqwest::Response {
        let path = link.strip_prefix(PUBLIC_URL).unwrap_or(link);
        let url = format!("{}{path}", self.url);
        let request = reqwest::Client::new().request(method, url);
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
    assert_eq!(server.sent_mail().len(), 1);
    let confirm = link(&server);
    // A scanner opens the link.
    newsletter.request(Method::GET, &confirm, "").await;
    assert_eq!(server.contact_count(), 0);
    newsletter.request(Method::POST, &confirm, "").await;
    assert!(wants_news());
    assert!(!server.contact("ada@x.io").unwrap().topics["offers"]);

    // An issue for those who want it.
    let sent = |topic| String::from_utf8(send(&server, &database, topic).stdout).unwrap();
    assert_eq!(sent("offers"), "0 mails sent\n");
    assert_eq!(sent("news"), "1 mails sent\n");
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
async fn an_opt_out_that_the_service_does_not_have_yet_stops_mail_and_older_signups() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    let form = "address=ada%40x.io&topic=news";
    newsletter.request(Method::POST, "/", form).await;
    newsletter.request(Method::POST, &link(&server), "").await;
    let sent = || String::from_utf8(send(&server, &database, "news").stdout).unwrap();
    assert_eq!(sent(), "1 mails sent\n");
    let mail = server.sent_mail().pop().unwrap();
    let url = mail.body["headers"]["List-Unsubscribe"].as_str().unwrap();
    newsletter.request(Method::POST, "/", form).await;
    let confirm = link(&server);

    server.fault(Fault::status(503).path("*/unsubscribe"));
    let url = url.trim_matches(['<', '>']);
    let one_click = "List-Unsubscribe=One-Click";
    newsletter.request(Method::POST, url, one_click).await;

    assert_eq!(sent(), "0 mails sent\n");
    let confirmed = newsletter.response(Method::POST, &confirm, "").await;
    assert_eq!(confirmed.status(), 503);
    server.clear_faults();
    until(|| !server.contact("ada@x.io").unwrap().topics["news"]).await;
    support::in_time(async {
        let click = async || newsletter.response(Method::POST, &confirm, "").await;
        while click().await.status() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(server.contact("ada@x.io").unwrap().topics["news"]);
}

#[tokio::test]
async fn a_signup_whose_mail_bounces_is_forgotten() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let server = topics().await;
    let newsletter = start(&server, &database);
    server.webhook_endpoint(format!("{}/hook", newsletter.url), SECRET);
    let rows = async || {
        let client = postgres::client(&database.url).await;
        let count = client
            .query_one("SELECT count(*) FROM signups", &[])
            .await
            .unwrap();
        count.get::<_, i64>(0)
    };

    let form = "address=bounce%40x.io&topic=news";
    newsletter.request(Method::POST, "/", form).await;

    assert_eq!(server.sent_mail().len(), 1);
    support::in_time(async {
        while rows().await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(server.contact_count(), 0);
}
