//! The mail of a double opt-in, the page behind its link, and the click.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use audience::contacts::NewContact;
use audience::emails::Email;
use audience::inbox::{MemoryStore, SqliteStore, Store};
use audience::mock::{Fault, HtmlForm, MockServer, SeedContact};
use audience::unsubscribe::{
    ConsentError, ConsentPage, OfferedTopic, UnsubscribeLinks, UnsubscribeService,
    UnsubscribeServiceBuilder,
};
use audience::webhooks::Event;
use audience::{Client, ErrorKind, RetryPolicy};
use futures_util::FutureExt;
use http::StatusCode;
use support::cancellation::{Program, until};
use support::trace_log::Log;
use support::{ADA, DatabaseFile, in_time, steady_time};
use tracing::Level;

use super::deliveries::{FailingStore, unavailable};
use super::memory_conformance::TestClock;
use super::unsubscribe::{FORM, ONE_CLICK, Reply, get, one_click_url, post, with_each_store};
use super::unsubscribe_issue::YEAR;
use super::unsubscribe_moved::spam_report;

const DAY: Duration = Duration::from_secs(24 * 3_600);
const VALIDATION_ERROR: &str = r#"{"error": {"code": "validation_error"}}"#;
const CONFIRM: &str = "confirm=yes";

pub(super) async fn mock() -> MockServer {
    steady_time::begin();
    let server = MockServer::builder()
        .topic("news", false)
        .topic("offers", true);
    server.start().await
}

pub(super) fn builder(server: &MockServer, store: impl Store) -> UnsubscribeServiceBuilder {
    builder_with(server, store, &server.client())
}

pub(super) fn builder_with(
    server: &MockServer,
    store: impl Store,
    client: &Client,
) -> UnsubscribeServiceBuilder {
    let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    let links = UnsubscribeLinks::new([secret], "https://shop.example.com/unsubscribe").unwrap();
    UnsubscribeService::builder(links.clock(server.clock()), client.contacts(), store)
        .topic(OfferedTopic::new("news", "Newsletter"))
        .topic(OfferedTopic::new("offers", "Offers <b>").description("Now & then"))
}

pub(super) fn service(server: &MockServer, store: impl Store) -> UnsubscribeService {
    builder(server, store).build()
}

pub(super) fn service_without_retries(server: &MockServer) -> UnsubscribeService {
    let client = server.client_builder().retry(RetryPolicy::none());
    builder_with(server, MemoryStore::new(), &client.build().unwrap()).build()
}

pub(super) fn mail(link: &str) -> Email {
    let mail = Email::new()
        .from("Shop <news@shop.example.com>")
        .to("mallory@example.com");
    mail.subject("Please confirm")
        .member("text", format!("Open {link}"))
}

pub(super) async fn ask(service: &UnsubscribeService, topics: &[&str]) -> Result<(), ConsentError> {
    service
        .send_confirmation(" Ada@Example.com", topics.iter().copied(), mail)
        .await
}

/// The links of all mails, which are all to Ada.
pub(super) fn sent_links(server: &MockServer) -> Vec<String> {
    let links = sent_links_to(server, ADA);
    assert_eq!(links.len(), server.sent_mail().len());
    links
}

fn sent_links_to(server: &MockServer, address: &str) -> Vec<String> {
    let mails = server.sent_mail().into_iter();
    let mails = mails.filter(|mail| mail.to == [address]);
    let texts = mails.map(|mail| mail.body["text"].as_str().unwrap().to_owned());
    texts
        .map(|text| text.strip_prefix("Open ").unwrap().to_owned())
        .collect()
}

pub(super) async fn click(service: &UnsubscribeService, link: &str) -> Reply {
    post(service, link, FORM, CONFIRM).await
}

/// Clicks until a click succeeds: on a slow machine, one that should may take too long.
async fn click_until_confirmed(service: &UnsubscribeService, link: &str) {
    in_time(async {
        loop {
            let status = click(service, link).await.status;
            if status == StatusCode::OK {
                break;
            }
            assert_eq!(status, 503);
        }
    })
    .await;
}

#[tokio::test]
async fn a_click_subscribes_once_and_nothing_happens_before_it_with_each_store() {
    with_each_store!(a_click_subscribes_once_and_nothing_happens_before_it);
}

async fn a_click_subscribes_once_and_nothing_happens_before_it(store: impl Store) {
    let server = mock().await;
    let service = service(&server, store);

    ask(&service, &["news", "internal"]).await.unwrap();

    let [link] = &*sent_links(&server) else {
        panic!("one mail");
    };
    // A token can have three given letters by chance.
    assert!(!link.contains("internal"), "{link}");
    assert!(!link.contains("ada@") && !link.contains("ada%40"), "{link}");
    assert_eq!(service.pending().await.unwrap(), 0);
    let page = get(&service, link).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("a…@example.com") && page.body.contains("<li>Newsletter"));
    assert!(!page.body.contains("Offers") && !page.body.contains("name=\"unsubscribe\""));
    assert!(server.contact(ADA).is_none());

    let welcome = click(&service, link).await;

    assert_eq!(welcome.status, StatusCode::OK);
    assert!(welcome.body.contains("You are subscribed.") && !welcome.body.contains("<button"));
    let ada = server.contact(ADA).unwrap();
    assert!(ada.topics["news"] && !ada.topics["offers"] && !ada.unsubscribed);

    // The link cannot undo a later opt-out.
    post(&service, &one_click_url(ADA, "news"), FORM, ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();
    for reply in [get(&service, link).await, click(&service, link).await] {
        assert_eq!(reply.status, StatusCode::OK);
        assert!(
            reply.body.contains("You have used this link before."),
            "{}",
            reply.body
        );
        assert!(!reply.body.contains("<button"));
    }
    assert!(!server.contact(ADA).unwrap().topics["news"]);
    // Whoever changes their mind gets another mail at once.
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(server.sent_mail().len(), 2);
}

#[tokio::test]
async fn a_click_on_the_link_of_a_support_tool_opts_in_again_and_is_recorded_at_the_web_server() {
    let server = mock().await;
    server.seed_contact(ADA);
    server.client().contacts().unsubscribe(ADA).await.unwrap();
    let file = DatabaseFile::new();
    let records = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&records);
    let web_server = builder(&server, SqliteStore::open(&file.0).unwrap());
    let web_server = web_server.record_consent(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, std::io::Error>(()) }
    });
    let web_server = web_server.build();
    let store = SqliteStore::builder().must_exist().open(&file.0).unwrap();
    let tool = service(&server, store);

    ask(&tool, &["news"]).await.unwrap();
    ask(&web_server, &["news"]).await.unwrap(); // they share the limits
    click_until_confirmed(&web_server, &sent_links(&server)[0]).await;

    let ada = server.contact(ADA).unwrap();
    assert!(ada.topics["news"] && !ada.unsubscribed);
    assert_eq!(sent_links(&server).len(), 1);
    assert!(records.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn if_the_first_click_of_a_double_click_fails_the_second_one_sends_nothing() {
    let server = mock().await;
    let service = service_without_retries(&server);
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];
    server.clear_requests();
    let slow = Fault::status(503).delayed_by(Duration::from_millis(300));
    server.fault(slow.times(1));

    let (one, other) = tokio::join!(click(&service, link), click(&service, link));

    assert_eq!([one.status, other.status], [503, 503]);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(click(&service, link).await.status, 200);
}

#[tokio::test]
async fn a_click_that_may_have_opted_in_does_not_do_it_again_when_its_page_is_loaded_again() {
    let server = mock().await;
    server.seed_contact(ADA);
    let service = service_without_retries(&server);
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];
    let form = HtmlForm::new(get(&service, link).await.body).body();
    server.fault(Fault::close_after().path("*/subscribe").times(1));

    let failed = post(&service, link, FORM, form.clone()).await;
    assert!(server.contact(ADA).unwrap().topics["news"]);
    service.opt_out(ADA, Some("news")).await.unwrap();
    service.worker().run_until_idle().await.unwrap();
    let reloaded = post(&service, link, FORM, form).await;

    assert_eq!([failed.status, reloaded.status], [503, 503]);
    assert!(!server.contact(ADA).unwrap().topics["news"]);
    let new_form = HtmlForm::new(reloaded.body).body();
    assert_eq!(post(&service, link, FORM, new_form).await.status, 200);
    assert!(server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn a_click_that_sent_no_opt_in_can_be_repeated_by_loading_its_page_again() {
    let server = mock().await;
    let service = service_without_retries(&server);
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];
    let form = HtmlForm::new(get(&service, link).await.body).body();
    server.fault(Fault::status(503).times(1));

    let failed = post(&service, link, FORM, form.clone()).await;
    let waiting = {
        service.opt_out(ADA, None).await.unwrap();
        post(&service, link, FORM, form.clone()).await
    };
    service.worker().run_until_idle().await.unwrap();
    let repeated = post(&service, link, FORM, form).await;

    assert_eq!(
        [failed.status, waiting.status, repeated.status],
        [503, 503, 200]
    );
    assert!(server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn both_clicks_of_a_double_click_succeed_and_send_the_requests_once() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];
    server.clear_requests();

    let (one, other) = tokio::join!(click(&service, link), click(&service, link));

    for reply in [one, other] {
        assert_eq!(reply.status, StatusCode::OK);
        assert!(reply.body.contains("You are subscribed."), "{}", reply.body);
    }
    let creates = server.requests();
    let creates = creates
        .iter()
        .filter(|request| request.path == "/contacts" && request.method == "POST");
    assert_eq!(creates.count(), 1);
}

#[tokio::test]
async fn a_mailbox_gets_one_mail_for_each_topic_in_ten_minutes() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    let mut mails = Vec::new();

    for topics in [
        &["news"][..],
        &["news"],
        &["news", "offers"],
        &["offers"],
        &["news", "offers"],
    ] {
        ask(&service, topics).await.unwrap();
        mails.push(server.sent_mail().len());
    }
    service
        .send_confirmation("bob@example.com", ["news"], mail)
        .await
        .unwrap();

    assert_eq!(mails, [1, 1, 2, 2, 2]);
    assert_eq!(server.sent_mail().len(), 3);
    clock.advance(Duration::from_secs(599));
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(server.sent_mail().len(), 3);
    clock.advance(Duration::from_secs(1));
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(server.sent_mail().len(), 4);
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn an_address_gets_five_mails_a_day_whatever_their_topics_are() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = builder_with(&server, clock.store(), &server.client());
    let service = service.topic(OfferedTopic::new("internal", "Internal"));
    let service = service.build();

    for topic in ["news", "offers", "internal", "news", "offers", "internal"] {
        ask(&service, &[topic]).await.unwrap();
        clock.advance(Duration::from_secs(300));
    }
    service
        .send_confirmation("bob@example.com", ["news"], mail)
        .await
        .unwrap();

    let of_ada = || {
        let mails = server.sent_mail().into_iter();
        mails.filter(|mail| mail.to == [ADA]).count()
    };
    assert_eq!((of_ada(), server.sent_mail().len()), (5, 6));
    clock.advance(DAY - Duration::from_secs(6 * 300 + 1));
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(of_ada(), 5);
    clock.advance(Duration::from_secs(600));
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(of_ada(), 6);
}

#[tokio::test]
async fn a_mail_that_is_not_sent_because_of_the_limit_of_a_day_is_logged_once_a_minute_without_its_address()
 {
    let log = Log::start();
    let server = mock().await;
    let service = service_without_retries(&server);
    let warnings = || {
        let events = log.events().into_iter();
        let is_about_limit = |message: &String| message.contains("because 5 mails to the mailbox");
        events
            .filter(|event| event.level == Level::WARN)
            .filter(|event| event.fields.get("message").is_some_and(is_about_limit))
            .count()
    };
    server.fault(Fault::status(503).path("/emails").times(5));
    for _ in 0..5 {
        ask(&service, &["news"]).await.unwrap_err();
    }
    assert_eq!(warnings(), 0);

    for topic in ["news", "offers"] {
        ask(&service, &[topic]).await.unwrap();
    }

    assert_eq!(warnings(), 1);
    assert!(server.sent_mail().is_empty());
    assert!(!log.text().to_lowercase().contains("ada@"));
}

#[tokio::test]
async fn quotation_marks_around_an_address_that_needs_none_give_no_further_mails_and_no_other_recipient()
 {
    let server = mock().await;
    let clock = TestClock::new();
    let service = builder_with(&server, clock.store(), &server.client()).build();

    for address in ["ada@x.io", "\"ada\"@x.io", " \"Ada\"@X.io "].repeat(6) {
        let sent = service.send_confirmation(address, ["news"], mail).await;
        clock.advance(Duration::from_secs(600));

        assert_eq!(sent.is_err(), address.contains('"'));
        if let Err(error) = sent {
            assert_eq!(error.visitor_status(), StatusCode::UNPROCESSABLE_ENTITY);
        }
    }
    let several = "\"a\"@x.io,victim@y.com,\"b\"@z.io";
    let several = service.send_confirmation(several, ["news"], mail).await;

    several.unwrap_err();
    assert_eq!(sent_links_to(&server, "ada@x.io").len(), 5);
    assert_eq!(server.sent_mail().len(), 5);
}

#[tokio::test]
async fn tags_and_other_spellings_of_a_domain_give_a_mailbox_no_further_mails() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let ada = [
        "ada@xn--bcher-kva.example",
        "ada@bücher.example",
        "Ada+1@BÜCHER.example",
        "ada+2+3@xn--BCHER-kva.example",
        "ada+@bücher.example",
        "ada+4@bücher.example",
        "ada+5@xn--bcher-kva.example",
    ]
    .map(str::to_owned);
    // Nobody knows to which mailbox these go.
    let mut others = ["a.da@bücher.example", "ada@[192.0.2.1]"]
        .map(str::to_owned)
        .to_vec();
    for number in 0..6 {
        others.push(format!("+{number}@bücher.example"));
        others.push(format!("\"ada(+{number})\"@bücher.example"));
    }

    for address in ada.iter().chain(&others) {
        let sent = service.send_confirmation(address.as_str(), ["news"], mail);
        sent.await.unwrap();
    }

    let recipients: Vec<_> = server
        .sent_mail()
        .into_iter()
        .flat_map(|mail| mail.to)
        .collect();
    let typed = ada[..5]
        .iter()
        .chain(&others)
        .map(|typed| typed.to_lowercase());
    assert_eq!(recipients, typed.collect::<Vec<_>>());
}

#[tokio::test]
async fn mails_that_were_certainly_not_sent_do_not_count_among_the_five() {
    let server = mock().await;
    let service = service_without_retries(&server);
    server.fault(Fault::status(403).path("/emails").times(6));

    for _ in 0..6 {
        ask(&service, &["news"]).await.unwrap_err();
    }
    ask(&service, &["news"]).await.unwrap();

    assert_eq!(sent_links(&server).len(), 1);
}

#[tokio::test]
async fn mails_that_may_have_been_sent_count_among_the_five_and_the_visitor_can_try_again() {
    for (fault, were_sent) in [
        (Fault::close_after(), 4),
        (Fault::wrong_body("{}"), 4),
        (Fault::status(503), 0),
    ] {
        let server = mock().await;
        let clock = TestClock::new();
        let client = server.client_builder().retry(RetryPolicy::none());
        let service = builder_with(&server, clock.store(), &client.build().unwrap()).build();
        server.fault(fault.path("/emails").times(4));

        for _ in 0..4 {
            ask(&service, &["news"]).await.unwrap_err();
        }
        ask(&service, &["news"]).await.unwrap();
        clock.advance(Duration::from_secs(600));
        ask(&service, &["news"]).await.unwrap();

        assert_eq!(sent_links(&server).len(), were_sent + 1);
        clock.advance(DAY);
        ask(&service, &["news"]).await.unwrap();
        assert_eq!(sent_links(&server).len(), were_sent + 2);
    }
}

#[tokio::test]
async fn after_a_mail_that_failed_the_next_call_sends_it() {
    let server = mock().await;
    let service = service_without_retries(&server);
    server.fault(Fault::status(503).times(1));

    let failed = ask(&service, &["news"]).await.unwrap_err();
    ask(&service, &["news"]).await.unwrap();

    assert_eq!(failed.visitor_status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(sent_links(&server).len(), 1);
}

// Each call may wait for a locked file until the busy timeout, and the visitor waits for all of them.
#[tokio::test]
async fn a_form_ends_only_the_holds_that_it_tried_if_the_store_fails() {
    let server = mock().await;
    let store = FailingStore::new(MemoryStore::new());
    let service = service(&server, store.clone());
    store.fail(&["claim", "complete"], unavailable);

    let failed = ask(&service, &["news", "offers"]).await.unwrap_err();

    assert_eq!(failed.visitor_status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(store.calls(), ["state", "claim", "complete"]);
    store.recover();
    ask(&service, &["news", "offers"]).await.unwrap();
    assert_eq!(sent_links(&server).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_before_the_mail_was_sent_a_form_half_a_minute_later_sends_it() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    server.fault(Fault::status(503).delayed_by(DAY).path("/emails"));
    let asking = service.clone();
    let program = Program::start(async move { ask(&asking, &["news"]).await });
    until(|| server.requests().iter().any(|sent| sent.path == "/emails")).await;
    program.kill();
    server.clear_faults();

    ask(&service, &["news"]).await.unwrap();
    assert!(sent_links(&server).is_empty());
    clock.advance(Duration::from_secs(31));
    ask(&service, &["news"]).await.unwrap();

    assert_eq!(sent_links(&server).len(), 1);
}

#[tokio::test]
async fn strangers_do_not_learn_that_the_service_refused_a_mail() {
    for (status, expected) in [(400, 200), (413, 200), (422, 200), (403, 500), (503, 503)] {
        let server = mock().await;
        let service = service_without_retries(&server);
        server.fault(Fault::status(status).path("/emails").times(1));

        let refused = ask(&service, &["news"]).await.unwrap_err();
        ask(&service, &["news"]).await.unwrap();

        assert_eq!(refused.visitor_status(), expected, "{refused}");
        assert_eq!(
            matches!(refused, ConsentError::RefusedMail(_)),
            expected == 200
        );
        assert_eq!(refused.is_about_one_reader(), expected == 200);
        assert_eq!(audience::visitor_status(&refused).unwrap(), expected);
        let found = audience::find_error(&refused).unwrap();
        assert_eq!(found.status().unwrap(), status);
        // After a 503, the mail may have been sent, and another one would be a second mail.
        assert_eq!(audience::exit_status(&refused), 1);
        assert_eq!(sent_links(&server).len(), 1);
    }
}

#[tokio::test]
async fn after_a_spam_report_a_form_gets_the_same_response_and_sends_no_mail_for_a_year() {
    let log = Log::start();
    let server = mock().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    ask(&service, &["news"]).await.unwrap();

    // The same event may arrive twice.
    for _ in 0..2 {
        let report = spam_report(" Ada+shop@Example.com");
        service.record_bounce(&report).await.unwrap();
    }
    ask(&service, &["offers"]).await.unwrap();

    assert!(service.has_bounced(ADA).await.unwrap());
    assert!(
        log.text()
            .contains("because mail to the address was reported as spam")
    );
    assert!(!log.text().to_lowercase().contains("ada@"));
    clock.advance(YEAR - Duration::from_secs(1));
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(sent_links(&server).len(), 1);
    clock.advance(Duration::from_secs(1));
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(sent_links(&server).len(), 2);
    assert!(!service.has_bounced(ADA).await.unwrap());
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn an_opt_in_and_the_support_team_end_the_year_after_a_spam_report_with_each_store() {
    with_each_store!(an_opt_in_and_the_support_team_end_the_year_after_a_spam_report);
}

async fn an_opt_in_and_the_support_team_end_the_year_after_a_spam_report(
    store: impl Store + Clone,
) {
    let server = mock().await;
    let service = service(&server, store.clone());
    let other_process = self::service(&server, store);
    let addresses = [ADA, "bob@example.com", "carol@example.com"];
    let ask = async |address: &str, topic: &str| {
        let sent = service.send_confirmation(address, [topic], mail);
        sent.await.unwrap();
        sent_links_to(&server, address).len()
    };
    for address in addresses {
        assert_eq!(ask(address, "news").await, 1);
        let report = spam_report(address);
        other_process.record_bounce(&report).await.unwrap();
        assert_eq!(ask(address, "offers").await, 1);
    }

    click_until_confirmed(&service, &sent_links_to(&server, ADA)[0]).await;
    service.subscribe(addresses[1], ["news"]).await.unwrap();
    other_process
        .forget_bounce(" Carol@example.com")
        .await
        .unwrap();

    for address in addresses {
        assert!(!service.has_bounced(address).await.unwrap());
        assert_eq!(ask(address, "offers").await, 2, "{address}");
    }
}

#[tokio::test]
async fn a_spam_report_that_is_older_than_an_opt_in_does_not_count_and_a_newer_one_does() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    let report = || {
        let mut report = spam_report(ADA);
        report.created_at = server.clock().now();
        report
    };
    let later = || {
        let by = Duration::from_secs(600);
        clock.advance(by);
        server.advance(by);
    };
    ask(&service, &["news"]).await.unwrap();
    let old = report();

    later();
    click_until_confirmed(&service, &sent_links(&server)[0]).await;
    later();
    service.record_bounce(&old).await.unwrap();
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(sent_links(&server).len(), 2);

    service.record_bounce(&report()).await.unwrap();
    later();
    ask(&service, &["news"]).await.unwrap();
    assert_eq!(sent_links(&server).len(), 2);
}

#[tokio::test]
async fn a_spam_report_fails_while_the_store_does_so_that_it_arrives_again_and_no_mail_is_sent() {
    let server = mock().await;
    let store = FailingStore::new(MemoryStore::new());
    let service = service(&server, store.clone());
    store.fail(&[], unavailable);
    let incomplete = br#"{"id": "evt_1", "type": "email.complained", "created_at": 1, "data": {}}"#;
    let incomplete = Event::from_unverified_json(incomplete).unwrap();

    // The handler has to let it fail.
    service.record_bounce(&incomplete).await.unwrap();
    assert!(incomplete.data.is_incomplete() && store.calls().is_empty());
    service.record_bounce(&spam_report(ADA)).await.unwrap_err();

    store.fail(&["state"], unavailable);
    let failed = ask(&service, &["news"]).await.unwrap_err();
    assert_eq!(failed.visitor_status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(server.sent_mail().is_empty());
}

#[tokio::test]
async fn a_visitor_who_leaves_gets_the_mail_nevertheless() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::delay(Duration::from_secs(1)).times(1));

    let left = ask(&service, &["news"]).now_or_never();
    service.worker().run_until(async {}).await.unwrap();

    assert!(left.is_none());
    assert_eq!(sent_links(&server).len(), 1);
}

#[tokio::test]
async fn what_is_no_address_or_no_offered_topic_gets_no_mail() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let address = service
        .send_confirmation("ada at home", ["news"], mail)
        .await
        .unwrap_err();
    let unknown = ask(&service, &["internal", ""]).await.unwrap_err();
    let none = ask(&service, &[]).await.unwrap_err();

    assert!(matches!(&address, ConsentError::Service(error) if error.kind() == ErrorKind::Input));
    assert!(matches!(unknown, ConsentError::NoTopic));
    for error in [address, unknown, none] {
        assert_eq!(
            error.visitor_status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{error}"
        );
    }
    assert!(server.sent_mail().is_empty());
}

#[tokio::test]
async fn a_click_during_an_outage_can_be_repeated_and_is_logged() {
    let log = Log::start();
    let server = mock().await;
    let service = service_without_retries(&server);
    ask(&service, &["offers"]).await.unwrap();
    let link = &sent_links(&server)[0];
    server.fault(Fault::status(503).times(1));

    let failed = click(&service, link).await;
    let repeated = click(&service, link).await;

    assert_eq!(failed.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(failed.headers.contains_key("retry-after"));
    assert!(failed.body.contains("This did not work.") && failed.body.contains("<button"));
    assert!(failed.body.contains("Offers &lt;b&gt;") && failed.body.contains("Now &amp; then"));
    assert!(
        repeated.body.contains("You are subscribed."),
        "{}",
        repeated.body
    );
    assert!(log.text().contains("a confirmation failed"));
}

/// Returns the messages that were logged as an error.
fn errors(log: &Log) -> Vec<String> {
    let events = log.events().into_iter();
    let errors = events.filter(|event| event.level == Level::ERROR);
    let messages = errors.map(|event| event.fields["message"].clone());
    messages.collect()
}

#[tokio::test]
async fn a_click_that_fails_until_the_team_has_acted_says_so_and_is_logged_as_an_error() {
    for (fault, expected) in [
        (Fault::status(401), 500),                   // a refused key
        (Fault::status(402).path("/contacts"), 500), // a full plan
        (Fault::status(403), 500),
        (
            Fault::status(422).body(VALIDATION_ERROR).path("/contacts"),
            422,
        ),
    ] {
        let log = Log::start();
        let server = mock().await;
        let service = service_without_retries(&server);
        ask(&service, &["news"]).await.unwrap();
        let link = &sent_links(&server)[0];
        server.fault(fault.times(1));

        let failed = click(&service, link).await;
        let errors = errors(&log);
        let repeated = click(&service, link).await;

        assert_eq!(failed.status, expected);
        assert!(!failed.headers.contains_key("retry-after"));
        assert!(failed.body.contains("Something is wrong on our side"));
        assert!(!failed.body.contains("in a few minutes"), "{}", failed.body);
        assert!(failed.body.contains("<button"), "{}", failed.body);
        assert_eq!(errors, ["a confirmation failed"]);
        assert_eq!(repeated.status, StatusCode::OK, "the team has acted");
    }
}

#[tokio::test]
async fn boxes_that_cannot_be_saved_until_the_team_has_acted_say_so_and_are_logged_as_an_error() {
    let log = Log::start();
    let server = mock().await;
    server.seed_contact(ADA);
    let service = service_without_retries(&server);
    let link = super::unsubscribe::links().link(ADA);
    let form = get(&service, &link).await.form(&["news"]);
    server.fault(Fault::status(401).path("*/subscribe").times(1));

    let failed = post(&service, &link, FORM, form).await;
    let errors = errors(&log);
    let repeated = post(&service, &link, FORM, failed.form(&["news"])).await;

    assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!failed.headers.contains_key("retry-after"));
    assert!(failed.body.contains("Something is wrong on our side"));
    assert!(!failed.is_checked("news") && service.has_pending(ADA, ["offers"]).await.unwrap());
    assert_eq!(errors, ["the opt-ins of a form failed"]);
    assert_eq!(repeated.status, StatusCode::OK);
}

#[tokio::test]
async fn a_click_that_fails_because_of_the_visitor_is_logged_neither_as_an_error_nor_as_a_warning()
{
    for has_reported_spam in [false, true] {
        let log = Log::start();
        let server = mock().await;
        let service = service_without_retries(&server);
        let link = super::unsubscribe::links().link(ADA);
        let form = get(&service, &link).await.form(&["offers"]);
        if has_reported_spam {
            server.seed_contact(ADA);
            server.report_spam(ADA);
        }

        let refused = post(&service, &link, FORM, form).await;

        assert_eq!(refused.status, StatusCode::OK);
        assert!(refused.body.contains("We cannot subscribe you"));
        let events = log.events();
        let of_clicks = events.iter().filter(|event| event.level <= Level::WARN);
        assert_eq!(of_clicks.count(), 0, "{events:?}");
    }
}

#[tokio::test]
async fn a_contact_who_reported_spam_reads_so() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    service.subscribe(ADA, ["news"]).await.unwrap();
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];
    server.report_spam(ADA);

    let reply = click(&service, link).await;

    assert_eq!(reply.status, StatusCode::OK);
    assert!(reply.body.contains("You reported our mail as spam."));
    assert!(!reply.body.contains("<button"));
}

#[tokio::test]
async fn a_name_that_makes_the_link_too_long_is_an_error_and_no_mail() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let ask = async |length| {
        let contact = NewContact::new(ADA).first_name("x".repeat(length));
        service.send_confirmation(contact, ["news"], mail).await
    };

    let error = ask(10_000).await.unwrap_err();
    assert_eq!(server.sent_mail().len(), 0);
    ask(1_000).await.unwrap();

    assert!(matches!(&error, ConsentError::Service(error) if error.kind() == ErrorKind::Input));
    assert!(error.to_string().ends_with("the limit is 2000"), "{error}");
    assert!(sent_links(&server)[0].len() <= 2_000);
}

#[tokio::test]
async fn a_visitor_whose_input_cannot_be_used_gets_422_and_the_error_says_what_to_correct() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let long = || "x".repeat(5_000);
    let ada = || NewContact::new(ADA);

    for (contact, problem) in [
        (NewContact::new(" "), "the address is empty"),
        (NewContact::new("ada at home"), "the address has no @"),
        (
            NewContact::new("ada@example.com\r\nBcc: bob@example.com"),
            "the address has a control character in it",
        ),
        (
            NewContact::new(format!("{}@example.com", long())),
            "the address is longer than 254 bytes",
        ),
        (
            ada().first_name(long()).last_name("Lovelace"),
            "the first name is too long",
        ),
        (
            ada().first_name("Ada").last_name(long()),
            "the last name is too long",
        ),
        // In the link, each of them is six characters.
        (
            ada().first_name("\0".repeat(300)),
            "the first name is too long",
        ),
        (
            ada().first_name("Ada").property("city", long()),
            "the properties are too long",
        ),
        (
            ada().property("rate", f64::NAN),
            "a property is an infinite number or NaN",
        ),
        (
            ada().property("rate", f64::INFINITY),
            "a property is an infinite number or NaN",
        ),
    ] {
        let sent = service.send_confirmation(contact, ["news"], mail).await;

        let error = sent.unwrap_err();
        assert!(
            matches!(&error, ConsentError::Service(error) if error.kind() == ErrorKind::Input),
            "{error}"
        );
        assert_eq!(
            error.visitor_status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{error}"
        );
        assert!(error.to_string().starts_with(problem), "{error}");
        let explanation = audience::explanation(&error).unwrap();
        assert!(explanation.starts_with(problem), "{explanation}");
        assert!(!explanation.contains("xxx"), "{explanation}");
    }
    assert!(server.sent_mail().is_empty());
}

#[tokio::test]
async fn a_link_that_is_too_long_because_of_its_base_url_is_no_mistake_of_the_visitor() {
    let server = mock().await;
    let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    let base_url = format!("https://shop.example.com/{}", "a".repeat(2_000));
    let links = UnsubscribeLinks::new([secret], base_url).unwrap();
    let contacts = server.client().contacts();
    let service = UnsubscribeService::builder(links, contacts, MemoryStore::new())
        .topic(OfferedTopic::new("news", "Newsletter"))
        .build();

    for ada in [
        NewContact::new(ADA),
        NewContact::new(ADA).first_name("x".repeat(5_000)),
    ] {
        let sent = service.send_confirmation(ada, ["news"], mail).await;

        let error = sent.unwrap_err();
        assert_eq!(
            error.visitor_status(),
            StatusCode::INTERNAL_SERVER_ERROR,
            "{error}"
        );
        let problem = "the base URL and the names of the topics are too long";
        assert!(error.to_string().starts_with(problem), "{error}");
    }
}

#[tokio::test]
async fn a_name_that_is_empty_or_has_control_characters_changes_no_mail_and_is_stored_as_it_was_typed()
 {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    for (n, name) in ["", "Ada\r\nBcc: mallory@example.com", "\0\u{202e}"]
        .into_iter()
        .enumerate()
    {
        let address = format!("{n}@example.com");
        let contact = NewContact::new(&address).first_name(name);
        service
            .send_confirmation(contact, ["news"], mail)
            .await
            .unwrap();
        let links = sent_links_to(&server, &address);
        let reply = click(&service, &links[0]).await;

        assert_eq!((links.len(), reply.status), (1, StatusCode::OK), "{name:?}");
        let contact = server.contact(&address).unwrap();
        assert_eq!(contact.first_name.unwrap_or_default(), name);
        assert!(contact.topics["news"]);
    }
    assert_eq!(server.sent_mail().len(), 3);
}

#[tokio::test]
async fn nobody_is_subscribed_before_the_application_has_recorded_the_consent() {
    let log = Log::start();
    let server = Arc::new(mock().await);
    let calls = Arc::new(AtomicUsize::new(0));
    let (seen, mocked) = (Arc::clone(&calls), Arc::clone(&server));
    let is_unexpected = Arc::new(AtomicBool::new(false));
    let unexpected = Arc::clone(&is_unexpected);
    let service = builder(&server, MemoryStore::new()).record_consent(move |consent| {
        let call = seen.fetch_add(1, Ordering::Relaxed);
        let is_expected = consent.address == ADA
            && consent.topics.iter().eq(["news"])
            && consent.page == ConsentPage::Confirmation
            && (call > 3 || mocked.contact_count() == 0);
        // A panic here would only be one of the application.
        unexpected.fetch_or(!is_expected, Ordering::Relaxed);
        assert_ne!(call, 1, "a panic of the application");
        async move {
            match call {
                0 => Err("the database is down"),
                2 => {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Ok(())
                }
                _ => Ok(()),
            }
        }
    });
    let service = service.build();
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];

    click_until_confirmed(&service, link).await;
    let calls_until_then = calls.load(Ordering::Relaxed);
    assert_eq!(click(&service, link).await.status, 200);

    assert!(server.contact(ADA).unwrap().topics["news"]);
    assert!(calls_until_then >= 4);
    assert!(!is_unexpected.load(Ordering::Relaxed));
    assert_eq!(calls.load(Ordering::Relaxed), calls_until_then);
    let text = log.text();
    assert!(
        text.contains("a consent could not be recorded") && text.contains("the database is down")
    );
}

#[tokio::test]
async fn an_opt_in_is_recorded_once_the_service_has_it_and_if_that_fails_another_click_does_it() {
    let log = Log::start();
    let server = Arc::new(mock().await);
    let calls = Arc::new(AtomicUsize::new(0));
    let (seen, mocked) = (Arc::clone(&calls), Arc::clone(&server));
    let is_unexpected = Arc::new(AtomicBool::new(false));
    let unexpected = Arc::clone(&is_unexpected);
    let service = builder(&server, MemoryStore::new()).record_opt_in(move |consent| {
        let call = seen.fetch_add(1, Ordering::Relaxed);
        let ada = mocked.contact(ADA);
        let is_expected = consent.address == ADA
            && consent.topics.iter().eq(["news"])
            && consent.page == ConsentPage::Confirmation
            && ada.is_some_and(|ada| ada.topics["news"] && !ada.unsubscribed);
        // A panic here would only be one of the application.
        unexpected.fetch_or(!is_expected, Ordering::Relaxed);
        assert_ne!(call, 1, "a panic of the application");
        async move {
            match call {
                0 => Err("the database is down"),
                2 => {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Ok(())
                }
                _ => Ok(()),
            }
        }
    });
    let service = service.build();
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];

    click_until_confirmed(&service, link).await;
    let calls_until_then = calls.load(Ordering::Relaxed);
    assert_eq!(click(&service, link).await.status, 200);

    assert!(calls_until_then >= 4);
    assert!(!is_unexpected.load(Ordering::Relaxed));
    let text = log.text();
    assert!(
        text.contains("an opt-in could not be recorded") && text.contains("the database is down")
    );
    // The program knows the result of its own calls.
    service.subscribe(ADA, ["news"]).await.unwrap();
    service.set_topics(ADA, [("news", true)]).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), calls_until_then);
}

#[tokio::test]
async fn a_click_creates_the_contact_with_the_name_of_the_form_and_changes_none_that_exists() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let ask = async |address: &str| {
        let contact = NewContact::new(address)
            .first_name("Ada")
            .property("source", "footer");
        service
            .send_confirmation(contact, ["news"], mail)
            .await
            .unwrap();
        click(&service, sent_links_to(&server, address).last().unwrap()).await
    };
    server.seed_contact(SeedContact::new("bob@example.com").first_name("Bob"));

    assert_eq!(ask(ADA).await.status, 200);
    assert_eq!(ask("bob@example.com").await.status, 200);

    let ada = server.contact(ADA).unwrap();
    assert_eq!(ada.first_name.as_deref(), Some("Ada"));
    assert_eq!(ada.properties["source"], "footer");
    let bob = server.contact("bob@example.com").unwrap();
    assert_eq!(bob.first_name.as_deref(), Some("Bob"));
    assert!(bob.properties.is_empty() && bob.topics["news"] && ada.topics["news"]);
}

#[tokio::test]
async fn a_link_that_was_used_opts_nobody_in_again_as_long_as_it_is_valid() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service(&server, clock.store());
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];
    assert_eq!(click(&service, link).await.status, StatusCode::OK);
    server.client().contacts().unsubscribe(ADA).await.unwrap();

    // The clock of the store is half a day ahead.
    clock.advance(3 * DAY + DAY / 2);
    server.advance(3 * DAY - Duration::from_secs(600));
    let again = click(&service, link).await;

    assert_eq!(again.status, StatusCode::OK);
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_link_of_2_000_characters_is_sent_and_a_longer_one_is_refused() {
    let server = mock().await;
    let ask = async |path: &str, name: usize| {
        let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
        let base_url = format!("https://shop.example.com/{path}");
        let links = UnsubscribeLinks::new([secret], base_url).unwrap();
        let contacts = server.client().contacts();
        let service = UnsubscribeService::builder(links, contacts, MemoryStore::new())
            .topic(OfferedTopic::new("news", "Newsletter"))
            .build();
        let contact = NewContact::new(ADA).first_name("a".repeat(name));
        service.send_confirmation(contact, ["news"], mail).await
    };
    let last_link = || sent_links(&server).last().unwrap().len();
    ask("a", 200).await.unwrap();
    let missing = 2_000 - last_link();

    // Three letters of a name are four characters of the link, and the path makes up the rest. The number in the link has
    // 38 or 39 digits.
    let name = 200 + missing / 4 * 3;
    let mut longest = 0;
    for path in (1..8).cycle().take(200) {
        match ask(&"a".repeat(path), name).await {
            Ok(()) => longest = longest.max(last_link()),
            Err(ConsentError::Service(error)) => assert_eq!(error.kind(), ErrorKind::Input),
            Err(error) => panic!("{error}"),
        }
    }

    assert_eq!(longest, 2_000);
}

#[tokio::test]
async fn the_mail_of_a_translation_links_to_the_page_of_the_translation() {
    let server = mock().await;
    let english = service(&server, MemoryStore::new());
    let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    let links = UnsubscribeLinks::new([secret], "https://shop.example.com/abmelden").unwrap();
    let german = english.translation(links);
    let german = german.topic(OfferedTopic::new("news", "Neues")).build();

    ask(&german, &["news"]).await.unwrap();

    let link = &sent_links(&server)[0];
    assert!(
        link.starts_with("https://shop.example.com/abmelden"),
        "{link}"
    );
}

#[tokio::test]
async fn a_link_ends_after_three_days_and_takes_no_other_form() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    ask(&service, &["news"]).await.unwrap();
    let link = &sent_links(&server)[0];

    for form in [ONE_CLICK, "unsubscribe=all", "confirm=no", ""] {
        let reply = post(&service, link, FORM, form).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{form}");
    }
    let reply = post(&service, &one_click_url(ADA, "news"), FORM, CONFIRM).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let reply = post(&service, link, "text/plain", CONFIRM).await;
    assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    // The clock of the mock goes on meanwhile.
    let margin = Duration::from_secs(600);
    server.advance(3 * DAY - margin);
    assert_eq!(get(&service, link).await.status, StatusCode::OK);
    server.advance(margin + Duration::from_secs(1));

    assert_eq!(get(&service, link).await.status, StatusCode::NOT_FOUND);
    assert_eq!(click(&service, link).await.status, StatusCode::NOT_FOUND);
    assert!(server.contact(ADA).is_none());
}
