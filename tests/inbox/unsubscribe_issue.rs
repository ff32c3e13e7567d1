//! The mails of an issue: to whom they go, and that each is sent once, whatever fails.

use std::convert::Infallible;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use audience::contacts::{ContactSummary, Reachability};
use audience::emails::Email;
use audience::inbox::{MemoryStore, SqliteStore, Store, StoreError};
use audience::mock::{Fault, MockServer, Reason, SeedContact, SegmentKind};
use audience::unsubscribe::{
    ConsentError, IssueFailure, IssueMail, IssueReport, SendIssue, UnsubscribeService,
};
use audience::webhooks::{BounceType, Event, EventData, EventId, MailEvent};
use audience::{RetryPolicy, Timestamp};
use serde_json::json;
use support::cancellation::{Program, until};
use support::{ADA, DatabaseFile, in_time, steady_time};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::deliveries::FailingStore;
use super::memory_conformance::TestClock;
use super::unsubscribe::{FORM, ONE_CLICK, get, post, with_each_store};
use super::unsubscribe_mail::{
    ask, builder, builder_with, click, mail, mock, sent_links, service, service_without_retries,
};

pub(super) const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

async fn send_to_ada(
    service: &UnsubscribeService,
    issue: &str,
    topic: &str,
) -> Result<IssueMail, ConsentError> {
    service
        .send_issue_to(issue, " Ada@Example.com", topic, mail)
        .await
}

/// Sends Ada an issue about the news, and returns whether this call has sent it.
async fn is_sent_to_ada(service: &UnsubscribeService, issue: &str) -> bool {
    let sent = send_to_ada(service, issue, "news").await.unwrap();
    matches!(sent, IssueMail::Sent(_))
}

async fn with_reader() -> MockServer {
    let server = mock().await;
    server.seed_contact(
        SeedContact::new(ADA)
            .answer("news", true)
            .answer("offers", false),
    );
    server
}

#[tokio::test]
async fn an_issue_reaches_who_wants_it_once_with_the_headers_of_one_click() {
    let server = with_reader().await;
    let store = MemoryStore::new();
    let service = service(&server, store.clone());
    let other_process = self::service(&server, store);

    let offers = send_to_ada(&service, "1", "offers").await.unwrap();
    assert_eq!(offers, IssueMail::NotWanted);
    let IssueMail::Sent(sent) = send_to_ada(&service, "1", "news").await.unwrap() else {
        panic!("it is sent");
    };
    for service in [&service, &other_process] {
        let again = send_to_ada(service, "1", "news").await.unwrap();
        assert_eq!(again, IssueMail::SentBefore);
    }

    let unknown = send_to_ada(&service, "1", "nwes").await.unwrap_err();
    assert!(matches!(unknown, ConsentError::UnknownTopic), "{unknown}");
    let [mail] = &*server.sent_mail() else {
        panic!("one mail");
    };
    assert_eq!((&mail.id, &*mail.to), (&sent.id, &[ADA.to_owned()][..]));
    let headers = &mail.body["headers"];
    assert_eq!(headers["List-Unsubscribe-Post"], ONE_CLICK);
    let url = headers["List-Unsubscribe"].as_str().unwrap();
    post(&service, url.trim_matches(['<', '>']), FORM, ONE_CLICK).await;
    // The opt-out waits in the store.
    assert_eq!(service.pending().await.unwrap(), 1);
    assert!(!is_sent_to_ada(&service, "2").await);
    let link = mail.body["text"]
        .as_str()
        .unwrap()
        .strip_prefix("Open ")
        .unwrap();
    assert!(
        get(&service, link)
            .await
            .body
            .contains("name=\"topic:news\"")
    );
    service.worker().run_until_idle().await.unwrap();
    service.subscribe(ADA, ["news"]).await.unwrap();

    assert!(is_sent_to_ada(&service, "2").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_for_one_reader_says_why_no_mail_was_sent_and_whether_another_call_sends_it() {
    let server = with_reader().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    let again = async |issue: &str| send_to_ada(&service, issue, "news").await.unwrap();

    let stranger = service.send_issue_to("1", "bob@example.com", "news", mail);
    assert_eq!(stranger.await.unwrap(), IssueMail::NotWanted);
    assert!(matches!(again("1").await, IssueMail::Sent(_)));
    assert_eq!(again("1").await, IssueMail::SentBefore);

    server.fault(Fault::close_after().path("/emails").times(1));
    send_to_ada(&service, "2", "news").await.unwrap_err();
    assert_eq!(again("2").await, IssueMail::MaybeSent);

    server.fault(Fault::delay(Duration::from_secs(3_600)).path("/contacts/*"));
    server.clear_requests();
    let other = service.clone();
    let program = Program::start(async move { send_to_ada(&other, "3", "news").await });
    until(|| !server.requests().is_empty()).await;
    assert_eq!(again("3").await, IssueMail::NotYet);
    program.kill();
    server.clear_faults();
    assert_eq!(again("3").await, IssueMail::NotYet);
    clock.advance(Duration::from_secs(31));
    assert!(matches!(again("3").await, IssueMail::Sent(_)));
    // The second mail was sent, too, and its response was lost.
    assert_eq!(recipients(&server), [ADA; 3]);
}

#[tokio::test]
async fn asking_whether_an_address_may_get_mail_writes_nothing() {
    let file = DatabaseFile::new();
    let store = SqliteStore::open(&file.0).unwrap();
    let other = rusqlite::Connection::open(&file.0).unwrap();
    // It changes with each commit of another connection.
    let version = async || {
        let version = other.query_row("PRAGMA data_version", (), |row| row.get::<_, i64>(0));
        version.unwrap()
    };
    asking_changes_nothing(store, version).await;

    if let Some(database) = support::postgres::database().await {
        let store = support::postgres::connect(&database.url).await.unwrap();
        store.migrate().await.unwrap();
        let client = support::postgres::client(&database.url).await;
        let entries = async || {
            let count = "SELECT count(*) FROM audience_inbox";
            client.query_one(count, &[]).await.unwrap().get::<_, i64>(0)
        };
        asking_changes_nothing(store, entries).await;
    }
}

async fn asking_changes_nothing(store: impl Store, version: impl AsyncFn() -> i64) {
    let server = with_reader().await;
    let service = service(&server, store);
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];
    // Otherwise, nothing waits, and the opt-outs of one address are not looked for.
    service.opt_out("bob@example.com", None).await.unwrap();
    let before = version().await;

    assert!(!service.has_bounced(ADA).await.unwrap());
    assert!(service.may_send(ADA, "news").await.unwrap());
    assert!(get(&service, link).await.body.contains("<button"));

    assert_eq!(version().await, before);
    assert!(!service.may_send("bob@example.com", "news").await.unwrap());
}

#[tokio::test]
async fn of_simultaneous_calls_one_sends_the_mail() {
    let server = with_reader().await;
    let service = service(&server, MemoryStore::new());

    let calls = (0..8).map(|_| send_to_ada(&service, "1", "news"));
    let sent = futures_util::future::join_all(calls).await;

    let sent = sent.iter();
    let sent = sent.filter(|sent| matches!(sent, Ok(IssueMail::Sent(_))));
    assert_eq!(sent.count(), 1);
    assert_eq!(server.sent_mail().len(), 1);
}

#[tokio::test]
async fn a_mail_that_was_certainly_not_sent_is_sent_by_the_next_call_and_any_other_is_not() {
    for (fault, is_repeated) in [
        (Fault::status(422).path("/emails"), true),
        (Fault::status(503).path("/contacts/*"), true),
        (Fault::close_after().path("/contacts/*"), true),
        (Fault::close_before().path("/emails"), false),
        (Fault::close_after().path("/emails"), false),
        (Fault::status(500).path("/emails"), false),
    ] {
        let server = with_reader().await;
        let service = service_without_retries(&server);
        server.fault(fault.times(1));

        let failed = send_to_ada(&service, "1", "news").await.unwrap_err();
        let repeated = send_to_ada(&service, "1", "news").await.unwrap();

        let is_sent = matches!(repeated, IssueMail::Sent(_));
        let maybe_sent = repeated == IssueMail::MaybeSent;
        let expected = (is_repeated, !is_repeated);
        assert_eq!((is_sent, maybe_sent), expected, "{failed}");
        assert!(server.sent_mail().len() <= 1, "{failed}");
    }
}

/// Seven readers of the news, `bounced@x.io` the newest and `5@x.io` the oldest, and three contacts who do not want
/// them.
async fn with_readers() -> MockServer {
    let server = mock().await;
    for number in (0..6).rev() {
        let reader = SeedContact::new(format!("{number}@x.io")).answer("news", true);
        server.seed_contact(reader.first_name(format!("Reader {number}")));
    }
    server.seed_contact(SeedContact::new("no@x.io").answer("news", false));
    server.seed_contact("unanswered@x.io");
    let paused = SeedContact::new("paused@x.io").answer("news", true);
    server.seed_contact(paused.unsubscribed(Reason::Manual));
    let bounced = SeedContact::new("bounced@x.io").answer("news", true);
    server.seed_contact(bounced);
    server
}

fn news(contact: &ContactSummary, link: &str) -> Email {
    let name = contact.first_name.as_deref().unwrap_or("reader");
    let mail = Email::new()
        .from("Shop <news@shop.example.com>")
        .to("mallory@example.com");
    mail.subject("News")
        .member("text", format!("Dear {name}, open {link}"))
}

fn send(service: &UnsubscribeService) -> SendIssue<'static> {
    service.send_issue("2026-11", "news", news).concurrency(1)
}

fn recipients(server: &MockServer) -> Vec<String> {
    let mails = server.sent_mail().into_iter();
    mails.flat_map(|mail| mail.to).collect()
}

fn mail_requests(server: &MockServer) -> usize {
    let requests = server.requests().into_iter();
    requests.filter(|sent| sent.path == "/emails").count()
}

fn summary(report: &IssueReport) -> [u64; 4] {
    let failed = report.failures().len();
    let failed = u64::try_from(failed).unwrap();
    [
        report.sent(),
        report.sent_before(),
        report.not_wanted(),
        failed,
    ]
}

fn bounce(address: &str, bounce_type: BounceType) -> Event {
    let mut mail = MailEvent::new("em_1", "us@example.com", address, "Hi");
    mail.bounce_type = Some(bounce_type);
    let id = EventId::try_from("evt_1").unwrap();
    Event::new(id, Timestamp::from_unix(1), EventData::Bounced(mail))
}

fn bounce_at(address: &str, created_at: Timestamp) -> Event {
    let mut event = bounce(address, BounceType::Permanent);
    event.created_at = created_at;
    event
}

#[tokio::test]
async fn an_issue_reaches_each_contact_who_wants_it_once() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    let event = bounce("Bounced@x.io", BounceType::Permanent);
    service.record_bounce(&event).await.unwrap();

    let report = send(&service).await.unwrap();
    let again = send(&service).await.unwrap();

    assert_eq!(summary(&report), [6, 0, 4, 0]);
    assert_eq!(
        report.to_string(),
        "6 sent, 0 sent before, 4 not wanted, 0 failed"
    );
    assert!(report.is_complete() && again.is_complete());
    assert_eq!(summary(&again), [0, 6, 4, 0]);
    let readers = ["0@x.io", "1@x.io", "2@x.io", "3@x.io", "4@x.io", "5@x.io"];
    assert_eq!(recipients(&server), readers);
    for (number, mail) in server.sent_mail().iter().enumerate() {
        let text = mail.body["text"].as_str().unwrap();
        let link = text.strip_prefix(&format!("Dear Reader {number}, open "));
        let page = get(&service, link.unwrap()).await.body;
        assert!(page.contains(&format!("{number}…@x.io")), "{page}");
        assert_eq!(mail.body["headers"]["List-Unsubscribe-Post"], ONE_CLICK);
    }
}

#[tokio::test]
async fn an_issue_goes_to_the_chosen_readers_only() {
    let server = with_readers().await;
    let vip = ["2@x.io", "no@x.io"].map(str::to_owned);
    server.segment("vip", SegmentKind::Contacts(vip.into()));
    let service = service(&server, MemoryStore::new());
    let vip = server.client().contacts().list().segment("vip");

    let report = send(&service).readers(vip).await.unwrap();

    assert_eq!(summary(&report), [1, 0, 1, 0]);
    assert_eq!(recipients(&server), ["2@x.io"]);
}

#[tokio::test]
async fn a_reader_for_whom_no_mail_is_made_is_left_out_until_a_run_makes_one() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    let send_without = || {
        service.send_issue("2026-11", "news", |contact, link| {
            (contact.email != "3@x.io").then(|| news(contact, link))
        })
    };

    let report = send_without().await.unwrap();
    let resumed = send_without().await.unwrap();

    assert_eq!(
        report.to_string(),
        "6 sent, 0 sent before, 3 not wanted, 0 failed, 1 left out"
    );
    assert_eq!(summary(&resumed), [0, 6, 3, 0]);
    assert_eq!((report.left_out(), resumed.left_out()), (1, 1));
    assert!(report.is_complete() && resumed.is_complete());
    assert_eq!(serde_json::to_value(&report).unwrap()["left_out"], 1);
    assert!(!recipients(&server).contains(&"3@x.io".to_owned()));

    let last = send(&service).await.unwrap();

    assert_eq!((summary(&last), last.left_out()), ([1, 6, 3, 0], 0));
    assert_eq!(recipients(&server).last().unwrap(), "3@x.io");
}

#[tokio::test]
async fn an_issue_from_which_everybody_is_left_out_is_finished_and_asks_nothing_about_them() {
    let server = with_reader().await;
    let service = service(&server, MemoryStore::new());

    let report = service.send_issue("1", "news", |_, _| None::<Email>).await;
    let report = report.unwrap().finished().unwrap();

    assert_eq!((summary(&report), report.left_out()), ([0; 4], 1));
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.path == "/contacts"));
}

#[tokio::test]
async fn after_an_error_about_one_reader_the_others_get_their_mails() {
    let blocked = Fault::status(403).body("<html>Blocked</html>");
    let refusals = [400, 413, 422].map(Fault::status).into_iter();
    for refusal in refusals.chain([blocked]) {
        let server = with_readers().await;
        let service = service_without_retries(&server);
        let case = format!("{refusal:?}");
        server.fault(refusal.path("/emails").after(1).times(1));
        server.fault(Fault::status(422).path("/contacts/3%40x.io").times(1));
        let malformed = Fault::wrong_body(r#"{"id": "c_4"}"#).path("/contacts/4%40x.io");
        server.fault(malformed.times(1));

        let report = send(&service).await.unwrap();
        let again = send(&service).await.unwrap();

        assert_eq!(summary(&report), [4, 0, 3, 3], "{case}");
        let failed = report.failures().iter();
        let failed: Vec<_> = failed
            .filter_map(|failure| failure.address.as_deref())
            .collect();
        assert_eq!(failed, ["0@x.io", "3@x.io", "4@x.io"]);
        assert_eq!(summary(&again), [3, 4, 3, 0]);
    }
}

#[tokio::test]
async fn a_reader_whose_topics_the_response_does_not_show_counts_as_failed_and_not_as_unwilling() {
    let null_answer = json!({"news": null, "offers": true});
    for topics in [None, Some(json!(null)), Some(null_answer)] {
        let server = with_readers().await;
        let service = service(&server, MemoryStore::new());
        let reader = server.client().contacts().retrieve("0@x.io").await;
        let mut short = serde_json::to_value(reader.unwrap()).unwrap();
        short.as_object_mut().unwrap().remove("topics");
        if let Some(topics) = topics {
            short["topics"] = topics;
        }
        let retrieve = || Fault::wrong_body(short.to_string()).path("/contacts/0%40x.io");
        server.fault(retrieve().times(1));
        let asked = service.may_send("0@x.io", "news").await.unwrap_err();
        server.fault(retrieve().times(1));

        let report = send(&service).await.unwrap();
        let again = send(&service).await.unwrap();

        assert!(asked.is_about_one_reader(), "{asked}");
        assert_eq!(summary(&report), [6, 0, 3, 1], "{short}");
        let error = report.finished().unwrap_err();
        assert_eq!(audience::exit_status(&error), 1, "{error}");
        assert_eq!(summary(&again), [1, 6, 3, 0], "{short}");
    }
}

#[tokio::test]
async fn who_has_opted_out_gets_no_mail_although_a_cache_responds_with_another_contact() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    let reader = server.client().contacts().retrieve("0@x.io").await;
    let fault = Fault::wrong_body(serde_json::to_string(&reader.unwrap()).unwrap());
    server.fault(fault.path("/contacts/no%40x.io"));

    let asked = service.may_send("no@x.io", "news").await.unwrap_err();
    let report = send(&service).await.unwrap();

    assert!(asked.is_about_one_reader(), "{asked}");
    let [failure] = report.failures() else {
        panic!("{report}");
    };
    assert_eq!(failure.address.as_deref(), Some("no@x.io"));
    assert_eq!(report.sent(), 7);
    let json = serde_json::to_value(&report).unwrap();
    let expected = json!({"address": "no@x.io", "error": failure.error.to_string(), "maybe_sent": failure.maybe_sent()});
    assert_eq!(
        (&json["sent"], &json["failures"]),
        (&json!(7), &json!([expected]))
    );
    assert!(recipients(&server).iter().all(|to| to != "no@x.io"));
}

#[tokio::test]
async fn a_contact_of_the_list_that_cannot_be_read_is_passed_over() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    let newest = server.client().contacts().list().limit(5).await.unwrap();
    let mut page = json!({"data": newest.data, "next": newest.data[4].id});
    page["data"][1] = json!({"id": "c_bad"});
    let fault = Fault::wrong_body(page.to_string()).path("/contacts");
    server.fault(fault.times(1));

    let report = send(&service).await.unwrap();

    let [failure] = report.failures() else {
        panic!("{report}");
    };
    assert!(failure.address.is_none() && failure.error.is_about_one_reader());
    assert_eq!(report.sent(), 7);
    assert!(report.is_complete());
    // Somebody has to look at it: a run that is repeated may fail in the same way.
    let error = report.finished().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the issue is not finished: "), "{text}");
    assert!(text.contains("some mails failed"), "{text}");
    assert_eq!(audience::exit_status(&error), 1);
}

#[tokio::test]
async fn a_name_that_no_subject_may_have_keeps_the_issue_from_its_reader_only() {
    let server = with_readers().await;
    let contacts = server.client().contacts();
    let named = |name: &'static str| contacts.update("3@x.io").first_name(name);
    named("Eve\r\nBcc: mallory@example.com").await.unwrap();
    let service = service(&server, MemoryStore::new());
    let send = || {
        let to_each = |contact: &ContactSummary, link: &str| {
            let name = contact.first_name.as_deref().unwrap_or("reader");
            news(contact, link).subject(format!("News for {name}"))
        };
        service
            .send_issue("2026-11", "news", to_each)
            .concurrency(1)
    };

    let report = send().await.unwrap();
    named("Eve").await.unwrap();
    let again = send().await.unwrap();

    let [failure] = report.failures() else {
        panic!("{report}");
    };
    assert_eq!(failure.address.as_deref(), Some("3@x.io"));
    assert!(!failure.maybe_sent(), "{}", failure.error);
    assert_eq!((report.sent(), again.sent()), (6, 1));
}

#[tokio::test]
async fn an_issue_for_an_empty_list_is_not_finished() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let report = send(&service).await.unwrap();

    assert!(report.is_complete());
    let error = report.finished().unwrap_err();
    assert!(
        error.to_string().contains("the list has no contact"),
        "{error}"
    );
    assert_eq!(audience::exit_status(&error), 1);
}

#[tokio::test]
async fn a_program_that_ends_with_an_issue_succeeds_if_every_reader_got_it() {
    for (has_reader, expected) in [(false, ExitCode::from(1)), (true, ExitCode::SUCCESS)] {
        let server = match has_reader {
            true => with_reader().await,
            false => mock().await,
        };
        let service = service(&server, MemoryStore::new());

        let code = audience::exit_code(send(&service).await);

        assert_eq!(code, expected);
    }
}

#[tokio::test]
async fn an_issue_that_nobody_wants_is_finished() {
    let server = mock().await;
    server.seed_contact(SeedContact::new(ADA).answer("news", false));
    let service = service(&server, MemoryStore::new());

    let report = send(&service).await.unwrap().finished().unwrap();

    assert_eq!(summary(&report), [0, 0, 1, 0]);
}

#[tokio::test]
async fn an_issue_that_everybody_got_before_is_finished() {
    let server = mock().await;
    server.seed_contact(SeedContact::new(ADA).answer("news", true));
    let service = service(&server, MemoryStore::new());
    drop(send(&service).await.unwrap().finished().unwrap());

    let report = send(&service).await.unwrap().finished().unwrap();

    assert_eq!(summary(&report), [0, 1, 0, 0]);
}

#[tokio::test]
async fn after_an_error_that_concerns_everybody_the_issue_stops_and_the_next_run_goes_on() {
    for (fault, is_repeated, reader) in [
        (Fault::status(503).path("/contacts/*"), true, true),
        (Fault::status(401).path("/emails"), true, true),
        (Fault::status(403).path("/emails"), true, true),
        (Fault::status(503).path("/emails"), false, true),
        (Fault::close_after().path("/emails"), false, true),
        (Fault::wrong_body("{}").path("/emails"), false, true),
        // The second page of the list: somebody has deleted the contact of the cursor.
        (Fault::status(422).path("/contacts"), true, false),
        (Fault::status(503).path("/contacts"), true, false),
    ] {
        let server = with_readers().await;
        let service = service_without_retries(&server);
        let client = server.client_builder().retry(RetryPolicy::none());
        let list = client.build().unwrap().contacts().list().limit(5);
        server.fault(fault.after(1).times(1));

        let error = send(&service).readers(list.clone()).await.unwrap_err();
        let report = send(&service).readers(list).await.unwrap();

        assert!(!error.report().is_complete(), "{error}");
        assert_eq!(error.failure().address.is_some(), reader, "{error}");
        let text = error.to_string();
        let is_retryable = audience::exit_status(&error) == 75;
        assert_eq!(
            text.contains("; a later run sends the rest: "),
            is_retryable,
            "{text}"
        );
        assert!(!text.contains("x.io"), "{text}");
        assert!(!format!("{error:?}").contains("x.io"), "{error:?}");
        let lost = error.failure().address.iter().filter(|_| !is_repeated);
        assert!(lost.eq(report.maybe_not_sent()), "{error}");
        assert_eq!(
            report.to_string().ends_with("; 1 may have been sent"),
            !is_repeated
        );
        assert!(!format!("{report:?}").contains("x.io"));

        let got = error.report().sent() + report.sent();
        assert_eq!(report.finished().is_ok(), is_repeated);
        assert_eq!(got, 7 - u64::from(!is_repeated), "{error}");
        let ConsentError::Service(cause) = &error.failure().error else {
            panic!("{error}");
        };
        assert_eq!(error.source().is_some(), cause.source().is_some());
        let is_unknown = error.failure().maybe_sent();
        assert_eq!(is_unknown && reader, !is_repeated, "{error}");
        let mut twice = recipients(&server);
        twice.sort();
        let mails = twice.len();
        twice.dedup();
        assert_eq!(twice.len(), mails, "{error}");
    }
}

#[tokio::test]
async fn a_misspelled_topic_stops_an_issue() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());

    let misspelled = service.send_issue("1", "nwes", news).await.unwrap_err();

    assert!(
        matches!(misspelled.failure().error, ConsentError::UnknownTopic),
        "{misspelled}"
    );
    assert_eq!(server.sent_mail().len(), 0);
}

#[tokio::test]
async fn only_an_error_after_which_a_later_run_may_succeed_says_that_it_sends_the_rest() {
    let server = with_readers().await;
    let misspelled = service(&server, MemoryStore::new()).send_issue("1", "nwes", news);
    let unnamed = service(&server, MemoryStore::new()).send_issue(" ", "news", news);
    let store = FailingStore::new(MemoryStore::new());
    store.fail(&[], || StoreError::unusable("there are no tables"));
    let other_database = service(&server, store).send_issue("1", "news", news);
    for issue in [misspelled, unnamed, other_database] {
        let error = issue.await.unwrap_err();

        assert_eq!(audience::exit_status(&error), 1);
        for text in [error.to_string(), error.report().to_string()] {
            assert!(!text.contains("later run"), "{text}");
        }
    }

    let store = FailingStore::new(MemoryStore::new());
    store.fail(&[], || StoreError::unavailable("the database is down"));
    let database_is_down = service(&server, store).send_issue("1", "news", news);
    let error = database_is_down.await.unwrap_err();
    assert!(
        error.to_string().contains("; a later run sends the rest"),
        "{error}"
    );

    for (status, expected) in [(401, false), (403, false), (429, true), (503, true)] {
        // A request for the next page of the issue before may arrive late.
        let server = with_readers().await;
        server.fault(Fault::status(status).path("/contacts").times(1));
        let service = service_without_retries(&server);
        let error = service.send_issue("1", "news", news).await.unwrap_err();

        for text in [error.to_string(), error.report().to_string()] {
            assert_eq!(text.contains("; a later run sends the rest"), expected);
        }
        assert_eq!(audience::exit_status(&error) == 75, expected, "{error}");
    }
}

#[tokio::test]
async fn after_a_hundred_refusals_in_a_row_an_issue_stops() {
    for (refused, refuses_after, expected) in [
        (99, 1_000, [51, 0, 0, 99]),
        (99, 100, [1, 0, 0, 149]),
        (100, 1_000, [0, 0, 0, 100]),
    ] {
        let server = mock().await;
        for number in 0..150 {
            let reader = SeedContact::new(format!("{number}@x.io")).answer("news", true);
            server.seed_contact(reader);
        }
        let service = service(&server, MemoryStore::new());
        let refuse = || Fault::status(422).path("/emails");
        server.fault(refuse().times(refused));
        server.fault(refuse().after(refuses_after));

        match send(&service).await {
            Ok(report) => assert_eq!(summary(&report), expected),
            Err(stopped) => {
                assert_eq!(summary(stopped.report()), expected);
                assert!(stopped.failure().error.is_about_one_reader());
            }
        }
    }
}

#[tokio::test]
async fn the_report_of_an_issue_keeps_the_start_of_each_refusal_only() {
    let server = mock().await;
    for number in 0..190 {
        let reader = SeedContact::new(format!("{number}@x.io")).answer("news", true);
        server.seed_contact(reader);
    }
    let service = service(&server, MemoryStore::new());
    let message = "no such recipient ".repeat(6_000);
    let body = json!({"error": {"code": "validation_error", "message": message}}).to_string();
    let refuse = || {
        let refused = Fault::status(422).body(body.clone()).path("/emails");
        refused
            .header("x-request-id", "req_1")
            .header("x-cache", "miss")
    };
    server.fault(refuse().times(95));
    server.fault(refuse().after(100));

    let report = send(&service).await.unwrap();

    assert_eq!(summary(&report), [5, 0, 0, 185]);
    for failure in report.failures() {
        let ConsentError::Service(error) = &failure.error else {
            panic!("{failure:?}");
        };
        let refusal = error.api().unwrap();
        assert_eq!(refusal.body(), &body.as_bytes()[..4_096]);
        assert_eq!(
            (refusal.request_id(), refusal.headers().len()),
            (Some("req_1"), 1)
        );
        assert_eq!(refusal.message().unwrap().chars().count(), 501);
        assert!(error.is_validation_error(), "{error}");
    }
}

#[tokio::test]
async fn readers_who_are_refused_in_each_run_do_not_keep_an_issue_from_its_end() {
    let server = mock().await;
    for number in 0..180 {
        let reader = SeedContact::new(format!("{number}@x.io")).answer("news", true);
        server.seed_contact(reader);
    }
    let service = service(&server, MemoryStore::new());
    let refuse = || Fault::status(422).path("/emails");
    server.fault(refuse().times(60));
    server.fault(refuse().after(120).times(60));

    let first = send(&service).await.unwrap();
    server.fault(refuse());
    let second = send(&service).await.unwrap();

    assert_eq!(summary(&first), [60, 0, 0, 120]);
    // Between the refused readers are those who have got the issue.
    assert_eq!(summary(&second), [0, 60, 0, 120]);
    assert!(first.is_complete() && second.is_complete());
}

#[tokio::test]
async fn an_issue_stops_on_a_signal_and_begins_no_mail_after_it() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);
    let mail = |contact: &ContactSummary, link: &str| {
        if contact.email == "1@x.io" {
            stop.take().unwrap().send(()).unwrap();
        }
        news(contact, link)
    };

    let sending = service.send_issue("2026-11", "news", mail);
    let sending = sending.concurrency(1);
    let report = sending
        .stop_when(async { stopped.await.unwrap() })
        .await
        .unwrap();
    let rest = send(&service).await.unwrap();

    assert!(!report.is_complete());
    assert_eq!(
        report.to_string(),
        "2 sent, 0 sent before, 3 not wanted, 0 failed; a later run sends the rest"
    );
    let error = report.finished().unwrap_err();
    assert!(error.to_string().contains("2 sent") && error.to_string().contains("asked to stop"));
    assert_eq!(audience::exit_status(&error), 143);
    assert_eq!(summary(&rest), [5, 2, 3, 0]);
    assert!(rest.finished().is_ok());
}

#[tokio::test]
async fn a_mail_that_is_being_sent_at_the_signal_is_finished() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    // On a slow machine, the signal must come before the response.
    server.fault(Fault::delay(Duration::from_secs(2)).path("/emails"));
    let is_sending = || server.requests().iter().any(|sent| sent.path == "/emails");

    let report = send(&service)
        .stop_when(async { until(is_sending).await })
        .await
        .unwrap();

    assert_eq!((report.sent(), report.is_complete()), (1, false));
    assert_eq!(server.sent_mail().len(), 1);
}

#[tokio::test]
async fn a_signal_ends_an_issue_in_an_outage_without_the_retries_that_are_left() {
    let server = with_readers().await;
    let retry = RetryPolicy::default().max_attempts(1_000);
    let client = server.client_builder().no_deadline().retry(retry);
    let store = MemoryStore::new();
    let service = builder_with(&server, store, &client.build().unwrap()).build();
    // After the first mail, which goes alone.
    server.fault(Fault::status(503).path("/contacts/*").after(1));
    let is_refused = || server.requests().len() > 20;

    // At the end of the list, too: all others are being asked about.
    let sending = send(&service).concurrency(100);
    let sending = sending.stop_when(async { until(is_refused).await });
    let report = in_time(sending.into_future()).await.unwrap();
    server.clear_faults();
    let rest = send(&service).await.unwrap();

    assert_eq!((report.sent(), report.is_complete()), (1, false));
    assert_eq!(summary(&rest), [6, 1, 3, 0]);
    assert!(rest.is_complete());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_before_a_mail_was_sent_a_run_half_a_minute_later_sends_it() {
    let server = with_readers().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    // After the first mail, which goes alone.
    let hang = Fault::delay(Duration::from_secs(3_600)).path("/contacts/*");
    server.fault(hang.after(1));
    let program = Program::start(send(&service).concurrency(4).into_future());
    let retrieved = || {
        let requests = server.requests().into_iter();
        requests
            .filter(|sent| sent.path.starts_with("/contacts/"))
            .count()
    };
    until(|| retrieved() == 5).await;
    program.kill();
    server.clear_faults();

    let early = send(&service).await.unwrap();
    clock.advance(Duration::from_secs(31));
    let late = send(&service).await.unwrap();

    // Two of the four who were asked about want the issue.
    assert_eq!(summary(&early), [4, 1, 1, 0]);
    assert!(!early.is_complete() && early.maybe_not_sent().is_empty());
    let error = early.finished().unwrap_err();
    let is_repeated = error
        .to_string()
        .contains("or was killed just before; repeat the run after half a minute");
    assert!(is_repeated, "{error}");
    assert_eq!(audience::exit_status(&error), 75);
    assert_eq!(summary(&late), [2, 5, 3, 0]);
    assert!(late.is_complete());
    assert_eq!(server.sent_mail().len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_while_a_429_holds_the_mails_back_a_run_half_a_minute_later_sends_all() {
    // On a slow machine, the response may not have arrived at the kill. Then the mail may have been sent.
    for patience in [100, 1_000, 10_000, 60_000] {
        let server = with_readers().await;
        let clock = TestClock::new();
        let store = clock.store();
        let service = service(&server, store.clone());
        // After the first mail, which goes alone.
        server.fault(Fault::status(429).retry_after(30).path("/emails").after(1));
        let program = Program::start(send(&service).concurrency(4).into_future());
        until(|| mail_requests(&server) > 1).await;
        tokio::time::sleep(Duration::from_millis(patience)).await;
        program.kill();
        server.clear_faults();
        // A client that no 429 holds back.
        let service = self::service(&server, store);

        clock.advance(Duration::from_secs(31));
        let late = send(&service).await.unwrap();

        if !late.maybe_not_sent().is_empty() && patience < 60_000 {
            continue;
        }
        assert_eq!(summary(&late), [6, 1, 3, 0], "{late}");
        assert!(late.finished().is_ok());
        assert_eq!(server.sent_mail().len(), 7);
        break;
    }
}

#[tokio::test]
async fn a_signal_ends_the_wait_after_a_429_and_no_mail_is_lost() {
    let server = with_readers().await;
    let store = MemoryStore::new();
    let service = service(&server, store.clone());
    // After the first mail, which goes alone.
    server.fault(Fault::status(429).retry_after(30).path("/emails").after(1));
    let is_refused = || mail_requests(&server) > 1;

    let sending = send(&service).concurrency(4);
    let sending = sending.stop_when(async { until(is_refused).await });
    let report = in_time(sending.into_future()).await.unwrap();
    server.clear_faults();
    // A client that no 429 holds back.
    let rest = send(&self::service(&server, store)).await.unwrap();

    let stopped = report.finished().unwrap_err();
    assert_eq!(audience::exit_status(&stopped), 143);
    assert_eq!(summary(&rest), [6, 1, 3, 0]);
    assert!(rest.finished().is_ok());
}

#[tokio::test]
async fn who_opts_out_while_a_429_holds_the_mail_back_does_not_get_it() {
    for is_sent in [false, true] {
        let server = with_reader().await;
        let store = MemoryStore::new();
        let service = service(&server, store.clone());
        // On a slow machine, the opt-out must come before the retry.
        server.fault(Fault::status(429).retry_after(3).path("/emails").times(1));
        let opting_out = async {
            until(|| server.requests().iter().any(|sent| sent.path == "/emails")).await;
            service.opt_out(ADA, Some("news")).await.unwrap();
            if is_sent {
                // Not with the client of the service, which the 429 holds back.
                let worker = self::service(&server, store.clone());
                worker.worker().run_until_idle().await.unwrap();
            }
        };

        let (sent, ()) = tokio::join!(send_to_ada(&service, "1", "news"), opting_out);

        assert_eq!(sent.unwrap(), IssueMail::NotWanted);
        assert!(server.sent_mail().is_empty());
        assert_eq!(server.contact(ADA).unwrap().topics["news"], !is_sent);
        // It is not held back as one that was maybe sent.
        service.worker().run_until_idle().await.unwrap();
        service.subscribe(ADA, ["news"]).await.unwrap();
        assert!(is_sent_to_ada(&service, "1").await);
    }
}

#[tokio::test]
async fn who_opts_out_while_a_429_holds_back_the_look_at_the_contact_does_not_get_the_mail() {
    let server = with_reader().await;
    let service = service(&server, MemoryStore::new());
    let retrieve = Fault::status(429).method("GET").path("/contacts/*");
    // On a slow machine, the opt-out must come before the retry.
    server.fault(retrieve.retry_after(3).times(1));
    let opting_out = async {
        until(|| !server.requests().is_empty()).await;
        // The worker could not send it yet, because the 429 holds it back, too.
        service.opt_out(ADA, Some("news")).await.unwrap();
    };

    let (sent, ()) = tokio::join!(send_to_ada(&service, "1", "news"), opting_out);

    assert_eq!(sent.unwrap(), IssueMail::NotWanted);
    assert!(server.sent_mail().is_empty());
    // The mail is not held back as one that was maybe sent.
    service.worker().run_until_idle().await.unwrap();
    service.subscribe(ADA, ["news"]).await.unwrap();
    assert!(is_sent_to_ada(&service, "1").await);
}

#[tokio::test]
async fn a_mail_with_its_own_unsubscribe_header_keeps_it() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    let own = |contact: &ContactSummary, link: &str| {
        news(contact, link).header("list-unsubscribe", "<https://x.example/de>")
    };

    drop(service.send_issue("2026-11", "news", own).await.unwrap());

    for mail in server.sent_mail() {
        let headers = mail.body["headers"].as_object().unwrap();
        assert_eq!(headers.len(), 1, "{headers:?}");
        assert_eq!(headers["list-unsubscribe"], "<https://x.example/de>");
    }
}

#[tokio::test]
async fn headers_in_a_form_of_the_application_stay_as_they_are() {
    let server = with_reader().await;
    let service = service(&server, MemoryStore::new());
    let array = json!([{"name": "X-Order", "value": "1815"}]);

    for (issue, headers) in [("1", array.clone()), ("2", json!(null))] {
        let mail = |link: &str| mail(link).member("headers", headers);
        let sent = service.send_issue_to(issue, ADA, "news", mail).await;
        assert!(matches!(sent, Ok(IssueMail::Sent(_))));
    }

    let [first, second] = &*server.sent_mail() else {
        panic!("two mails");
    };
    assert_eq!(first.body["headers"], array);
    // `null` has no form.
    let headers = &second.body["headers"];
    assert_eq!(headers["List-Unsubscribe-Post"], ONE_CLICK);
}

#[tokio::test]
async fn a_mail_whose_check_takes_longer_than_its_claim_is_sent_once() {
    let server = with_readers().await;
    let clock = TestClock::new();
    let store = clock.store();
    let service = service(&server, store.clone());
    let other = self::service(&server, store.clone());
    // On a slow machine, the clock must be moved before the response is there.
    server.fault(
        Fault::delay(Duration::from_secs(2))
            .path("/contacts/0%40x.io")
            .times(1),
    );
    let asked = || {
        let requests = server.requests();
        requests.iter().any(|sent| sent.path.ends_with("0%40x.io"))
    };
    let later = async {
        until(asked).await;
        clock.advance(Duration::from_secs(31));
        assert!(store.purge(100).await.unwrap() > 0);
    };

    let (report, ()) = tokio::join!(send(&service).into_future(), later);
    let again = send(&other).await.unwrap();

    assert_eq!(summary(&report.unwrap()), [7, 0, 3, 0]);
    assert_eq!(summary(&again), [0, 7, 3, 0]);
}

#[tokio::test]
async fn as_many_mails_are_sent_simultaneously_as_the_caller_allows_after_a_first_one_alone() {
    for (concurrency, expected) in [(0, 1), (3, 3)] {
        for sent in [0, 1] {
            let server = with_readers().await;
            let service = service(&server, MemoryStore::new());
            let hang = Fault::delay(Duration::from_secs(3_600)).path("/emails");
            server.fault(hang.after(sent));
            let sending = send(&service).concurrency(concurrency).into_future();
            let sending = tokio::spawn(sending);
            let at_most = if sent == 0 { 1 } else { 1 + expected };

            until(|| mail_requests(&server) >= at_most).await;
            tokio::time::sleep(Duration::from_millis(150)).await;

            assert_eq!(mail_requests(&server), at_most, "{concurrency} {sent}");
            sending.abort();
        }
    }
}

#[tokio::test]
async fn mails_that_may_have_been_sent_do_not_count_as_failed() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(503).path("/emails").after(1));

    let stopped = send(&service).concurrency(4).await.unwrap_err();

    let unclear = stopped.report().failures();
    assert!(!unclear.is_empty() && unclear.iter().all(IssueFailure::maybe_sent));
    let (text, count) = (stopped.report().to_string(), unclear.len());
    let expected = format!(" 0 failed; {count} may have been sent; a later run sends the rest");
    assert!(text.ends_with(&expected), "{text}");
}

#[tokio::test]
async fn the_mail_that_has_stopped_an_issue_counts_in_its_report_and_a_page_of_the_list_does_not() {
    let later = "; a later run sends the rest";
    for (fault, end, address) in [
        (
            Fault::status(503).path("/emails"),
            format!("0 failed; 1 may have been sent{later}"),
            Some(ADA),
        ),
        (
            Fault::status(401).path("/emails"),
            "1 failed".to_owned(),
            Some(ADA),
        ),
        (
            Fault::status(503).path("/contacts"),
            format!("0 failed{later}"),
            None,
        ),
    ] {
        let server = with_reader().await;
        let service = service_without_retries(&server);
        server.fault(fault);

        let stopped = send(&service).await.unwrap_err();

        let report = stopped.report();
        let expected = format!("0 sent, 0 sent before, 0 not wanted, {end}");
        assert_eq!(report.to_string(), expected);
        assert!(stopped.to_string().contains(&expected), "{stopped}");
        let failures = report.failures().iter();
        assert!(
            failures
                .map(|failure| failure.address.as_deref())
                .eq(address.map(Some))
        );
        assert_eq!(stopped.failure().address.as_deref(), address);
        let json = serde_json::to_value(report).unwrap();
        let count = json["failures"].as_array().unwrap().len();
        assert_eq!(count, usize::from(address.is_some()));
    }
}

#[tokio::test]
async fn each_run_that_begins_in_an_outage_costs_at_most_one_reader() {
    let server = with_readers().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(503).path("/emails").times(3));

    for _ in 0..3 {
        let stopped = send(&service).concurrency(4).await.unwrap_err();
        assert_eq!(audience::exit_status(&stopped), 75, "{stopped}");
    }
    let report = send(&service).concurrency(4).await.unwrap();

    assert_eq!(summary(&report), [4, 0, 3, 0], "{report}");
    assert_eq!(report.maybe_not_sent().len(), 3);
    assert_eq!(recipients(&server).len(), 4);
    let error = report.finished().unwrap_err();
    assert_eq!(audience::exit_status(&error), 1, "{error}");
}

#[tokio::test]
async fn a_404_for_a_reader_whom_the_list_has_leaves_the_mail_to_the_next_run() {
    let not_found = r#"{"code": "not_found", "message": "no such contact"}"#;
    for body in [not_found, "{}", "<html>"] {
        let server = with_reader().await;
        let service = service(&server, MemoryStore::new());
        let retrieve = Fault::status(404).body(body).path("/contacts/*");
        server.fault(retrieve.times(1));

        let first = send(&service).await.unwrap();
        let second = send(&service).await.unwrap();

        assert_eq!(summary(&first), [0, 0, 0, 1], "{body}");
        assert!(!first.failures()[0].maybe_sent());
        assert_eq!(summary(&second), [1, 0, 0, 0], "{body}");
    }
}

#[tokio::test]
async fn what_another_program_has_sent_by_the_end_of_a_run_is_not_reported_as_unclear() {
    let server = with_reader().await;
    server.seed_contact(SeedContact::new("bob@example.com").answer("news", true));
    let store = MemoryStore::new();
    // A mail is being sent until its claim is completed.
    let stores = [store.clone(), store].map(FailingStore::new);
    let mut programs = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        let service = service(&server, store.clone());
        let (hanging, mut mails) = (store.clone(), 0);
        let sending = service.send_issue("2026-11", "news", move |contact, link| {
            // The second program leaves the first mail to the first one.
            if mails == number {
                hanging.hang(&["complete"]);
            }
            mails += 1;
            news(contact, link)
        });
        programs.push(tokio::spawn(sending.concurrency(1).into_future()));
        until(|| mail_requests(&server) > number).await;
    }

    let mut reports = Vec::new();
    for (program, store) in programs.into_iter().zip(&stores) {
        store.hang(&[]);
        reports.push(program.await.unwrap().unwrap());
    }
    let [first, second] = &*reports else {
        panic!("two programs");
    };

    assert_eq!(summary(second), [1, 1, 0, 0], "{second}");
    assert!(second.maybe_not_sent().is_empty());
    // The second program was still sending the other mail.
    assert_eq!(summary(first), [1, 0, 0, 0], "{first}");
    assert_eq!(first.maybe_not_sent().len(), 1);
}

#[tokio::test]
async fn a_run_that_looks_for_mails_of_other_programs_ends_if_the_store_hangs_and_at_a_signal() {
    // The store has 8 s for each call.
    for (stop_after, expected) in [(3_600, 16), (10, 10)] {
        let server = with_readers().await;
        let client = server.client_builder().retry(RetryPolicy::none());
        let store = FailingStore::new(MemoryStore::new());
        let service = builder_with(&server, store.clone(), &client.build().unwrap()).build();
        let lost = ["bounced", "0", "1", "2", "3", "4"].map(|name| format!("{name}@x.io"));
        server.fault(Fault::close_after().path("/emails"));
        for address in &lost {
            let sent = service.send_issue_to("2026-11", address, "news", mail);
            sent.await.unwrap_err();
        }
        let hangs = Notify::new();
        let stop = async {
            hangs.notified().await;
            tokio::time::sleep(Duration::from_secs(stop_after)).await;
        };

        let mut hangs_since = None;
        let sending = service.send_issue("2026-11", "news", |contact, link| {
            if contact.email == "5@x.io" {
                store.hang(&["claim", "state"]);
                hangs.notify_one();
                steady_time::end();
                tokio::time::pause();
                hangs_since = Some(Instant::now());
            }
            news(contact, link)
        });
        let error = sending.concurrency(1).stop_when(stop).await.unwrap_err();
        let took = hangs_since.unwrap().elapsed();
        tokio::time::resume();

        assert_eq!(took.as_secs(), expected);
        assert_eq!(error.report().maybe_not_sent(), lost);
    }
}

#[tokio::test]
async fn an_issue_without_a_name_is_not_sent() {
    let server = with_reader().await;
    let service = service(&server, MemoryStore::new());

    for name in ["", " "] {
        let one = send_to_ada(&service, name, "news").await.unwrap_err();
        let all = service.send_issue(name, "news", news).await.unwrap_err();

        for error in [&one, &all.failure().error] {
            let text = error.to_string();
            assert!(text.contains("the name of the issue is empty"), "{text}");
        }
    }
    assert!(server.sent_mail().is_empty());
}

#[tokio::test]
async fn no_issue_goes_to_an_address_for_a_year_after_a_permanent_bounce() {
    let server = with_reader().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());

    let transient = bounce(ADA, BounceType::Transient);
    service.record_bounce(&transient).await.unwrap();
    assert!(!service.has_bounced(ADA).await.unwrap());
    for _ in 0..2 {
        let permanent = bounce(" Ada@Example.com", BounceType::Permanent);
        service.record_bounce(&permanent).await.unwrap();
    }

    assert!(service.has_bounced(" ADA@example.com").await.unwrap());
    let reachability = service.reachability(ADA, "news").await.unwrap();
    assert_eq!(reachability, Reachability::Bounced);
    assert!(!service.has_bounced("bob@example.com").await.unwrap());
    assert!(!service.may_send(ADA, "news").await.unwrap());
    let sent = send_to_ada(&service, "1", "news").await.unwrap();
    assert_eq!(sent, IssueMail::NotWanted);
    assert_eq!(service.pending().await.unwrap(), 0);
    clock.advance(YEAR - Duration::from_secs(1));
    assert!(!is_sent_to_ada(&service, "1").await);
    clock.advance(Duration::from_secs(1));
    assert!(is_sent_to_ada(&service, "1").await);
}

#[tokio::test]
async fn two_accounts_with_one_store_share_no_issue_and_no_bounce_with_each_store() {
    with_each_store!(two_accounts_with_one_store_share_no_issue_and_no_bounce);
}

async fn two_accounts_with_one_store_share_no_issue_and_no_bounce(store: impl Store + Clone) {
    let servers = [with_reader().await, with_reader().await];
    let of_account = |server: &MockServer, endpoint: &str| {
        let service = builder(server, store.clone()).endpoint(endpoint);
        service.unwrap().build()
    };
    let books = of_account(&servers[0], "books-unsubscribe");
    let toys = of_account(&servers[1], "toys-unsubscribe");

    for (service, server) in [&books, &toys].into_iter().zip(&servers) {
        assert!(is_sent_to_ada(service, "1").await);
        assert_eq!(server.sent_mail().len(), 1);
    }
    let event = bounce(ADA, BounceType::Permanent);
    books.record_bounce(&event).await.unwrap();

    assert!(books.has_bounced(ADA).await.unwrap());
    assert!(!books.may_send(ADA, "news").await.unwrap());
    assert!(!toys.has_bounced(ADA).await.unwrap());
    assert!(toys.may_send(ADA, "news").await.unwrap());
    assert!(!is_sent_to_ada(&books, "2").await);
    assert!(is_sent_to_ada(&toys, "2").await);
    // An end of the bounce at the one is none at the other.
    toys.record_bounce(&event).await.unwrap();
    books.forget_bounce(ADA).await.unwrap();
    assert!(!books.has_bounced(ADA).await.unwrap() && toys.has_bounced(ADA).await.unwrap());
}

#[tokio::test]
async fn an_opt_in_ends_the_year_after_a_bounce_with_each_store() {
    with_each_store!(an_opt_in_ends_the_year_after_a_bounce);
}

async fn an_opt_in_ends_the_year_after_a_bounce(store: impl Store + Clone) {
    let server = mock().await;
    let service = service(&server, store.clone());
    let other_process = self::service(&server, store);
    let addresses = [ADA, "bob@example.com", "carol@example.com"];
    for address in addresses {
        server.seed_contact(address);
        let event = bounce(address, BounceType::Permanent);
        other_process.record_bounce(&event).await.unwrap();
        assert!(service.has_bounced(address).await.unwrap());
    }

    ask(&service, &["news"]).await.unwrap();
    click(&service, &sent_links(&server)[0]).await;
    let form = "shown:news=off&topic:news=on&shown:offers=on&topic:offers=on";
    let link = super::unsubscribe::links().link(addresses[1]);
    assert_eq!(post(&service, &link, FORM, form).await.status, 200);
    service.subscribe(addresses[2], ["news"]).await.unwrap();

    for address in addresses {
        assert!(!other_process.has_bounced(address).await.unwrap());
        assert!(service.may_send(address, "news").await.unwrap());
    }
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn a_bounce_that_is_older_than_an_opt_in_does_not_count_and_a_newer_one_does_at_once() {
    let server = with_reader().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    let now = || server.clock().now();
    let later = |by| {
        clock.advance(by);
        server.advance(by);
    };
    let (minute, days) = (
        Duration::from_secs(60),
        Duration::from_secs(30 * 24 * 3_600),
    );
    let old = bounce_at(ADA, now());

    later(minute);
    service.subscribe(ADA, ["offers"]).await.unwrap();
    later(minute);
    for _ in 0..2 {
        // The second one may arrive weeks later.
        service.record_bounce(&old).await.unwrap();
        assert!(!service.has_bounced(ADA).await.unwrap());
        later(days / 2 - 2 * minute);
    }
    let new = bounce_at(ADA, now());
    later(minute);
    service.record_bounce(&new).await.unwrap();
    assert!(service.has_bounced(ADA).await.unwrap());

    service.forget_bounce(" Ada@example.com").await.unwrap();
    assert!(!service.has_bounced(ADA).await.unwrap());
    service.record_bounce(&new).await.unwrap();
    assert!(!service.has_bounced(ADA).await.unwrap());
    later(minute);
    service.record_bounce(&bounce_at(ADA, now())).await.unwrap();
    assert!(service.has_bounced(ADA).await.unwrap());
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn a_bounce_in_the_second_after_an_opt_in_counts_however_late_it_arrives() {
    let server = with_reader().await;
    let clock = TestClock::new();
    let links = super::unsubscribe::links();
    let second = Arc::new(Mutex::new(Duration::from_millis(99_900)));
    let of_links = Arc::clone(&second);
    let links = links.clock(move || UNIX_EPOCH + *of_links.lock().unwrap());
    let service = UnsubscribeService::builder(links, server.client().contacts(), clock.store());
    let service = service.build();

    service.subscribe(ADA, ["offers"]).await.unwrap();
    let later = Duration::from_millis(900);
    *second.lock().unwrap() += later;
    clock.advance(later);
    for (created_at, counts) in [(98, false), (99, true)] {
        let bounce = bounce_at(ADA, Timestamp::from_unix(created_at));
        service.record_bounce(&bounce).await.unwrap();

        assert_eq!(
            service.has_bounced(ADA).await.unwrap(),
            counts,
            "{created_at}"
        );
    }
}

#[tokio::test]
async fn a_purge_of_postgres_looks_at_no_mail_of_an_issue_or_bounce_before_its_time() {
    let Some(database) = support::postgres::database().await else {
        return;
    };
    let store = support::postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let server = with_reader().await;
    let service = service(&server, store.clone());
    let admin = support::postgres::client(&database.url).await;
    let count = async |condition: &str| {
        let count = format!("SELECT count(*) FROM audience_inbox WHERE {condition}");
        admin.query_one(&count, &[]).await.unwrap().get::<_, i64>(0)
    };

    // The mail, the opt-in, and a bounce.
    assert!(is_sent_to_ada(&service, "1").await);
    service.subscribe(ADA, ["offers"]).await.unwrap();
    let bounced = bounce("bob@example.com", BounceType::Permanent);
    service.record_bounce(&bounced).await.unwrap();

    let remembered = "forget_at > now() + interval '1 day'";
    assert_eq!(count(remembered).await, 3);
    let looked_at = format!("{remembered} AND purge_from < now() + interval '1 hour'");
    assert_eq!(count(&looked_at).await, 0);
    // What is no longer remembered is deleted.
    service.forget_bounce("bob@example.com").await.unwrap();
    store.purge(1_000).await.unwrap();
    assert_eq!(count("forget_at <= now()").await, 0);
    assert!(!service.has_bounced("bob@example.com").await.unwrap());
}

#[tokio::test]
async fn a_bounce_between_two_opt_ins_does_not_count_with_each_store() {
    let file = DatabaseFile::new();
    let in_postgres = async {
        if let Some(database) = support::postgres::database().await {
            let store = support::postgres::connect(&database.url).await.unwrap();
            store.migrate().await.unwrap();
            a_bounce_between_two_opt_ins_does_not_count(store).await;
        }
    };

    tokio::join!(
        a_bounce_between_two_opt_ins_does_not_count(MemoryStore::new()),
        a_bounce_between_two_opt_ins_does_not_count(SqliteStore::open(&file.0).unwrap()),
        in_postgres,
    );
}

async fn a_bounce_between_two_opt_ins_does_not_count(store: impl Store) {
    // The times of events are whole seconds.
    let later = || tokio::time::sleep(Duration::from_secs(2));
    let server = mock().await;
    let service = service(&server, store);

    service.subscribe(ADA, ["news"]).await.unwrap();
    later().await;
    let bounce = bounce_at(ADA, server.clock().now());
    later().await;
    service.subscribe(ADA, ["news"]).await.unwrap();
    service.record_bounce(&bounce).await.unwrap();

    assert!(!service.has_bounced(ADA).await.unwrap());
}

#[tokio::test]
async fn the_consent_to_the_boxes_that_a_visitor_checks_is_recorded_before_the_opt_in() {
    let server = Arc::new(with_reader().await);
    let calls = Arc::new(AtomicUsize::new(0));
    let (seen, mocked) = (Arc::clone(&calls), Arc::clone(&server));
    let service = builder(&server, MemoryStore::new()).record_consent(move |consent| {
        assert_eq!(
            (&*consent.address, Vec::from_iter(consent.topics)),
            (ADA, vec!["offers".to_owned()])
        );
        assert!(!mocked.contact(ADA).unwrap().topics["offers"]);
        let call = seen.fetch_add(1, Ordering::Relaxed);
        async move {
            // As if it waits for a database.
            tokio::task::yield_now().await;
            match call {
                0 => Err("the database is down"),
                _ => Ok(()),
            }
        }
    });
    let service = service.build();
    let link = super::unsubscribe::links().link(ADA);
    let form = get(&service, &link).await.form(&["news", "offers"]);

    let failed = post(&service, &link, FORM, form).await;
    let is_subscribed = server.contact(ADA).unwrap().topics["offers"];
    let repeated = failed.form(&["news", "offers"]);
    let saved = post(&service, &link, FORM, repeated).await;
    let nothing_new = get(&service, &link).await.form(&["news", "offers"]);
    let unchanged = post(&service, &link, FORM, nothing_new).await;

    assert_eq!(failed.status, 503);
    assert!(failed.is_checked("news") && !failed.is_checked("offers") && !is_subscribed);
    assert_eq!([saved.status, unchanged.status], [200, 200]);
    assert!(saved.is_checked("offers") && server.contact(ADA).unwrap().topics["offers"]);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn after_an_opt_in_that_was_not_recorded_the_box_shows_what_the_service_has() {
    let server = with_reader().await;
    let records = Arc::<Mutex<Vec<_>>>::default();
    let opt_ins = Arc::clone(&records);
    let service = builder(&server, MemoryStore::new())
        .record_opt_in(move |consent| {
            let topics = Vec::from_iter(consent.topics);
            opt_ins.lock().unwrap().push((consent.address, topics));
            std::future::ready(Err::<(), _>("the database is down"))
        })
        .build();
    let link = super::unsubscribe::links().link(ADA);
    let form = get(&service, &link).await.form(&["news", "offers"]);

    let failed = post(&service, &link, FORM, form).await;
    let form = failed.form(&["news", "offers"]);
    let saved = post(&service, &link, FORM, form).await;

    assert_eq!([failed.status, saved.status], [503, 200]);
    for reply in [failed, saved] {
        assert!(reply.is_checked("news") && reply.is_checked("offers"));
    }
    // A save of a box that was checked is no opt-in: the application may know a newer "no".
    let expected = (ADA.to_owned(), vec!["offers".to_owned()]);
    assert_eq!(*records.lock().unwrap(), [expected]);
    assert!(server.contact(ADA).unwrap().topics["offers"]);
}

#[tokio::test]
async fn a_box_that_is_checked_in_an_old_tab_is_neither_sent_nor_recorded_after_an_opt_out() {
    let server = with_reader().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let service = builder(&server, MemoryStore::new()).record_opt_in(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok::<_, Infallible>(()))
    });
    let service = service.build();
    let link = super::unsubscribe::links().link(ADA);
    let form = get(&service, &link).await.form(&["news"]);
    service.opt_out(ADA, Some("news")).await.unwrap();
    service.worker().run_until_idle().await.unwrap();

    let saved = post(&service, &link, FORM, form).await;

    assert_eq!(saved.status, 200);
    assert!(!server.contact(ADA).unwrap().topics["news"]);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn no_opt_in_is_recorded_after_the_visitor_was_told_to_try_again() {
    let server = with_reader().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let recorded = Arc::clone(&calls);
    let service = builder(&server, MemoryStore::new()).record_opt_in(move |_| {
        let recorded = Arc::clone(&recorded);
        async move {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            recorded.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(())
        }
    });
    let service = service.build();
    let link = super::unsubscribe::links().link(ADA);
    let form = get(&service, &link).await.form(&["news", "offers"]);
    server.fault(Fault::delay(Duration::from_secs(4)).path("*/subscribe"));

    let reply = post(&service, &link, FORM, form).await;
    let recorded_by_then = calls.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;

    assert_eq!(calls.load(Ordering::Relaxed), recorded_by_then);
    // The opt-in has 5 s, unless the machine stands still when they end.
    let expected = if recorded_by_then == 0 { 503 } else { 200 };
    assert_eq!(reply.status, expected);
}

#[tokio::test]
async fn an_opt_out_while_an_opt_in_is_recorded_is_recorded_after_it() {
    let server = with_reader().await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let (opt_ins, opt_outs) = (Arc::clone(&records), Arc::clone(&records));
    let recording = Arc::new(Notify::new());
    let begun = Arc::clone(&recording);
    let service = builder(&server, MemoryStore::new())
        .record_opt_in(move |_| {
            let (opt_ins, begun) = (Arc::clone(&opt_ins), Arc::clone(&begun));
            async move {
                begun.notify_one();
                tokio::time::sleep(Duration::from_millis(200)).await;
                opt_ins.lock().unwrap().push("opt-in");
                Ok::<_, Infallible>(())
            }
        })
        .record_opt_out(move |_| {
            opt_outs.lock().unwrap().push("opt-out");
            std::future::ready(Ok::<_, Infallible>(()))
        })
        .build();
    let link = super::unsubscribe::links().link(ADA);
    let form = get(&service, &link).await.form(&["news", "offers"]);

    let opting_out = async {
        in_time(recording.notified()).await;
        service.opt_out(ADA, Some("offers")).await.unwrap();
        service.worker().run_until_idle().await.unwrap();
    };
    let (saved, ()) = tokio::join!(post(&service, &link, FORM, form), opting_out);

    assert_eq!(saved.status, 200);
    assert_eq!(*records.lock().unwrap(), ["opt-in", "opt-out"]);
    assert!(!server.contact(ADA).unwrap().topics["offers"]);
}

#[tokio::test]
async fn a_form_that_may_have_opted_in_does_not_do_it_again_when_its_page_is_loaded_again() {
    let server = with_reader().await;
    let service = service_without_retries(&server);
    let link = super::unsubscribe::links().link(ADA);
    let form = get(&service, &link).await.form(&["news", "offers"]);
    server.fault(Fault::close_after().path("*/subscribe").times(1));

    let failed = post(&service, &link, FORM, form.clone()).await;
    service.opt_out(ADA, Some("offers")).await.unwrap();
    service.worker().run_until_idle().await.unwrap();
    let reloaded = post(&service, &link, FORM, form).await;

    assert_eq!([failed.status, reloaded.status], [503, 503]);
    assert!(!server.contact(ADA).unwrap().topics["offers"]);
    let new_form = reloaded.form(&["news", "offers"]);
    assert_eq!(post(&service, &link, FORM, new_form).await.status, 200);
    assert!(server.contact(ADA).unwrap().topics["offers"]);
}

#[tokio::test]
async fn an_opt_out_that_came_another_way_is_stored_and_sent_like_a_click() {
    let server = with_reader().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(503).times(1));

    service
        .opt_out(" Ada@Example.com", Some("news"))
        .await
        .unwrap();

    assert!(service.has_pending(ADA, ["news"]).await.unwrap());
    assert!(!service.has_pending(ADA, ["offers"]).await.unwrap());
    let worker = service.worker().backoff(Duration::ZERO, Duration::ZERO);
    worker.run_until_idle().await.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.topics["news"] && !ada.unsubscribed);

    service.opt_out(ADA, None).await.unwrap();
    service.worker().run_until_idle().await.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert_eq!(ada.unsubscribe_reason, "preferences");
}

#[tokio::test]
async fn a_bounce_and_an_opt_out_are_found_in_any_spelling_of_the_address() {
    let (upper, lower) = ("JÜRGEN@example.com", "jürgen@example.com");
    for (own, other) in [(upper, upper), (upper, lower), (lower, upper)] {
        let server = mock().await;
        let service = service(&server, MemoryStore::new());

        let event = bounce(own, BounceType::Permanent);
        service.record_bounce(&event).await.unwrap();
        assert!(service.has_bounced(other).await.unwrap(), "{own} {other}");
        service.forget_bounce(other).await.unwrap();
        assert!(!service.has_bounced(own).await.unwrap(), "{own} {other}");

        service.opt_out(own, Some("news")).await.unwrap();
        let has_pending = service.has_pending(other, ["news"]).await.unwrap();
        assert!(has_pending, "{own} {other}");
    }
}

#[tokio::test]
async fn an_opt_out_of_everything_leaves_a_spam_report_as_it_is() {
    let server = with_reader().await;
    let service = service(&server, MemoryStore::new());
    server.report_spam(ADA);
    server.clear_requests();

    service.opt_out(ADA, None).await.unwrap();
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 0);
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.method == "GET"));
    assert_eq!(server.contact(ADA).unwrap().unsubscribe_reason, "complaint");
}
