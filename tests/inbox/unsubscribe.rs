//! What a recipient, a mailbox provider and a stranger get from an unsubscribe link, and what the service gets.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::contacts::Reachability;
use audience::emails::Email;
use audience::inbox::conformance::ClockJump;
use audience::inbox::{
    EventKey, Fingerprint, HeldClaim, Inbox, InboxError, MemoryStore, NewClaim, NewDelivery,
    RedisStore, SqliteStore, Store, Take, Token,
};
use audience::mock::dialect::PathAddress;
use audience::mock::{Dialect, Fault, HtmlForm, MockServer, Reason, SeedContact};
use audience::unsubscribe::{
    ConsentError, ConsentPage, IssueMail, OfferedTopic, OptOutRecord, PageTexts, UnsubscribeLinks,
    UnsubscribeService, UnsubscribeServiceBuilder,
};
use audience::webhooks::EventId;
use audience::webhooks::tower::BytesBody;
use audience::{Client, ErrorKind, Outcome, RetryPolicy, Timestamp};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use support::cancellation::Program;
use support::trace_log::Log;
use support::{ADA, DatabaseFile, in_time, steady_time};
use tower::ServiceExt;
use tracing::Instrument;

use super::faulty_store::FaultyStore;
use super::memory_conformance::TestClock;

const SECRET: &str = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
pub(super) const FORM: &str = "application/x-www-form-urlencoded";
pub(super) const ONE_CLICK: &str = "List-Unsubscribe=One-Click";
const MINUTES: Duration = Duration::from_secs(600);

/// Calls a function that takes a store with each of them.
macro_rules! with_each_store {
    ($case:ident) => {
        $case(audience::inbox::MemoryStore::new()).await;

        let file = support::DatabaseFile::new();
        $case(audience::inbox::SqliteStore::open(&file.0).unwrap()).await;

        if let Some(database) = support::postgres::database().await {
            let store = support::postgres::connect(&database.url).await.unwrap();
            store.migrate().await.unwrap();
            $case(store).await;
        }
        if let Some(redis) = support::redis::server().await {
            let store = audience::inbox::RedisStore::builder().prefix(redis.prefix());
            $case(store.connect(redis.url.as_str()).await.unwrap()).await;
        }
    };
}
pub(super) use with_each_store;

pub(super) fn links() -> UnsubscribeLinks {
    UnsubscribeLinks::new([SECRET], "https://shop.example.com/unsubscribe").unwrap()
}

/// The URL in the header of a mail about this topic.
pub(super) fn one_click_url(address: &str, topic: &str) -> String {
    let [(_, url), _] = links().headers(address, topic);
    url.trim_matches(['<', '>']).to_owned()
}

async fn mock() -> MockServer {
    mock_with(Dialect::default()).await
}

async fn mock_with(dialect: Dialect) -> MockServer {
    steady_time::begin();
    let server = MockServer::builder()
        .dialect(dialect)
        .topic("news", true)
        .topic("offers", false)
        .topic("internal", true);
    server.seed_contact(ADA).start().await
}

fn service(server: &MockServer, store: impl Store) -> UnsubscribeService {
    UnsubscribeService::builder(links(), server.client().contacts(), store)
        .topic(OfferedTopic::new("news", "Newsletter").default_answer(true))
        .topic(OfferedTopic::new("offers", "Offers").description("Now & then"))
        .build()
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Reply {
    /// Returns whether the box of a topic is checked, as the page shows it.
    pub(super) fn is_checked(&self, topic: &str) -> bool {
        HtmlForm::new(&self.body).is_checked(&format!("topic:{topic}"))
    }

    /// Returns the page without the number that each page has.
    fn without_number(&self) -> String {
        let start = "name=\"page\" value=\"";
        let Some((before, rest)) = self.body.split_once(start) else {
            return self.body.clone();
        };
        let (number, after) = rest.split_once('"').unwrap();
        assert!(number.parse::<u64>().is_ok(), "{number}");
        format!("{before}{start}\"{after}")
    }

    /// Returns the form as a browser sends it if these boxes are checked and no others.
    pub(super) fn form(&self, checked: &[&str]) -> String {
        let mut form = HtmlForm::new(&self.body);
        for topic in ["news", "offers"] {
            let name = format!("topic:{topic}");
            form = match checked.contains(&topic) {
                true => form.check(&name),
                false => form.uncheck(&name),
            };
        }
        form.body()
    }
}

async fn send(service: &UnsubscribeService, request: Request<BytesBody>) -> Reply {
    let response = service.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    Reply {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(body.into_bytes().to_vec()).unwrap(),
    }
}

pub(super) async fn get(service: &UnsubscribeService, url: &str) -> Reply {
    send(
        service,
        Request::get(url).body(BytesBody::default()).unwrap(),
    )
    .await
}

pub(super) async fn post(
    service: &UnsubscribeService,
    url: &str,
    media_type: &str,
    body: impl Into<Bytes>,
) -> Reply {
    let request = Request::post(url).header("content-type", media_type);
    send(service, request.body(BytesBody::from(body.into())).unwrap()).await
}

async fn post_form(service: &UnsubscribeService, url: &str, form: &str) -> Reply {
    post(service, url, FORM, form.to_owned()).await
}

#[tokio::test]
async fn the_opt_ins_and_the_opt_outs_of_a_form_name_the_same_address() {
    let server = mock().await;
    server.seed_contact("jürgen@x.io");
    let service = service(&server, MemoryStore::new());
    let url = links().link("JÜRGEN@x.io");

    let page = get(&service, &url).await;
    let reply = post_form(&service, &url, &page.form(&["offers"])).await;
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(reply.status, StatusCode::OK);
    let contact = server.contact("jürgen@x.io").unwrap();
    assert!(!contact.topics["news"] && contact.topics["offers"]);
    let requests = server.requests().into_iter();
    let paths = requests.filter_map(|request| {
        let path = request.path.strip_prefix("/contacts/")?;
        path.split('/').next().map(str::to_owned)
    });
    let addresses: BTreeSet<_> = paths.collect();
    assert_eq!(addresses.len(), 1, "{addresses:?}");
}

#[tokio::test]
async fn one_click_is_stored_acknowledged_and_sent() {
    let server = mock().await;
    let multipart = "--b0und\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b0und--\r\n";
    let with_other_parameters = "--b0und\r\nContent-Disposition: form-data; charset=\"utf-8\"; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b0und--\r\n";
    for (media_type, body) in [
        (FORM, ONE_CLICK),
        (
            "application/x-www-form-urlencoded; charset=utf-8",
            ONE_CLICK,
        ),
        ("multipart/form-data; boundary=b0und", multipart),
        ("multipart/form-data; boundary=b0und", with_other_parameters),
        (
            "Multipart/Form-Data; charset=utf-8; Boundary=\"b0und\"",
            multipart,
        ),
    ] {
        server.reset();
        server.topic("news", true);
        server.topic("offers", true);
        server.seed_contact(ADA);
        let service = service(&server, MemoryStore::new());

        let reply = post(&service, &one_click_url(ADA, "news"), media_type, body).await;

        assert_eq!(
            (reply.status, &reply.body[..]),
            (StatusCode::OK, ""),
            "{media_type}"
        );
        assert!(
            !reply.headers.contains_key("set-cookie") && !reply.headers.contains_key("location")
        );
        assert_eq!(service.pending().await.unwrap(), 1);
        assert!(server.requests().is_empty());

        service.worker().run_until_idle().await.unwrap();

        let ada = server.contact(ADA).unwrap();
        assert!(!ada.topics["news"] && ada.topics["offers"] && !ada.unsubscribed);
        assert_eq!(service.pending().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn one_click_without_a_topic_opts_out_of_everything_for_the_recipients_own_reason() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    post_form(&service, &links().link(" Ada@Example.com "), ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();

    let ada = server.contact(ADA).unwrap();
    assert_eq!(
        (ada.unsubscribed, &ada.unsubscribe_reason[..]),
        (true, "preferences")
    );
}

#[tokio::test]
async fn the_button_for_one_topic_opts_out_of_everything_if_the_link_has_no_topic() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let everything = post_form(&service, &url, "unsubscribe=all").await;

    let one = post_form(&service, &url, "unsubscribe=topic").await;
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(one.without_number(), everything.without_number());
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_link_works_with_a_slash_behind_it() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let page = get(&service, &format!("{}/", links().link(ADA))).await;
    let url = format!("{}//", one_click_url(ADA, "news"));
    let reply = post_form(&service, &url, ONE_CLICK).await;

    assert_eq!(
        (page.status, reply.status),
        (StatusCode::OK, StatusCode::OK)
    );
    assert!(service.has_pending(ADA, ["news"]).await.unwrap());
}

#[tokio::test]
async fn a_get_or_head_changes_nothing() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = one_click_url(ADA, "news");

    let page = get(&service, &url).await;
    let head = send(
        &service,
        Request::head(&url).body(BytesBody::default()).unwrap(),
    )
    .await;
    // Also if a scanner adds the body to the query.
    let query = get(&service, &format!("{url}?{ONE_CLICK}&unsubscribe=all")).await;

    assert_eq!(
        (page.status, head.status, query.status),
        (StatusCode::OK, StatusCode::OK, StatusCode::OK)
    );
    assert!(page.body.contains("Unsubscribe from Newsletter") && head.body.is_empty());
    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.method == "GET")
    );
}

#[tokio::test]
async fn other_requests_are_refused_and_store_nothing() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = one_click_url(ADA, "news");
    let forged = format!("{url}A");
    let long = format!("{ONE_CLICK}&x={}", "x".repeat(16 * 1024));

    for (reply, status) in [
        (
            post_form(&service, &forged, ONE_CLICK).await,
            StatusCode::NOT_FOUND,
        ),
        (get(&service, &forged).await, StatusCode::NOT_FOUND),
        (
            get(&service, "https://shop.example.com/unsubscribe/").await,
            StatusCode::NOT_FOUND,
        ),
        (
            post(&service, &url, "application/json", "{}").await,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            post(&service, &url, "multipart/form-data", ONE_CLICK).await,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            post(
                &service,
                &url,
                "multipart/form-data; boundary=\"\"",
                ONE_CLICK,
            )
            .await,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            post(&service, &url, "multipart/form-data; boundary=b", ONE_CLICK).await,
            StatusCode::BAD_REQUEST,
        ),
        (post_form(&service, &url, "").await, StatusCode::BAD_REQUEST),
        (
            post_form(&service, &url, "List-Unsubscribe=Two-Clicks").await,
            StatusCode::BAD_REQUEST,
        ),
        (
            post_form(&service, &url, "unsubscribe=internal").await,
            StatusCode::BAD_REQUEST,
        ),
        (
            post_form(&service, &url, "topic:news=on").await,
            StatusCode::BAD_REQUEST,
        ),
        (
            post_form(&service, &url, "shown:internal=on").await,
            StatusCode::BAD_REQUEST,
        ),
        (
            post(&service, &url, FORM, &b"\xff\xfe\0"[..]).await,
            StatusCode::BAD_REQUEST,
        ),
        (
            post_form(&service, &url, &long).await,
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
    ] {
        assert_eq!(reply.status, status);
    }
    for method in [Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH] {
        let request = Request::builder().method(method).uri(&url);
        let reply = send(&service, request.body(BytesBody::default()).unwrap()).await;
        assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(reply.headers["allow"], "GET, HEAD, POST");
    }
    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_form_of_16_kib_is_read_and_a_longer_one_refused_in_any_number_of_parts() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let most = 16 * 1024;
    let form = format!("{ONE_CLICK}&more={}", "a".repeat(most));
    for (length, status) in [
        (most, StatusCode::OK),
        (most + 1, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        for part in [most + 1, most - 1, 5_000] {
            let parts = form.as_bytes()[..length].chunks(part);
            let parts: Vec<_> = parts
                .map(|part| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(part))))
                .collect();
            let body = StreamBody::new(futures_util::stream::iter(parts));
            let request = Request::post(links().link(ADA)).header("content-type", FORM);

            let response = service.clone().oneshot(request.body(body).unwrap());

            assert_eq!(response.await.unwrap().status(), status, "{length} {part}");
        }
    }
}

#[tokio::test]
async fn the_form_of_many_topics_with_long_names_is_read() {
    let server = mock().await;
    let names: Vec<_> = (0..20)
        .map(|number| format!("{}{number}", "новости ".repeat(20)))
        .collect();
    let contacts = server.client().contacts();
    let mut service = UnsubscribeService::builder(links(), contacts, MemoryStore::new());
    for name in &names {
        service = service.topic(OfferedTopic::new(name, name).default_answer(true));
    }
    let service = service.build();
    let url = links().link("bob@example.com");
    let page = get(&service, &url).await;
    let form = HtmlForm::new(&page.body).press("unsubscribe", "all");
    let form = form.body();
    assert!(form.len() > 16 * 1024);
    let too_long = format!("{form}&more={}", "a".repeat(2 * form.len()));

    let left = post_form(&service, &url, &form).await;
    let refused = post_form(&service, &url, &too_long).await;

    assert_eq!(left.status, StatusCode::OK);
    assert!(
        service
            .has_pending("bob@example.com", [""; 0])
            .await
            .unwrap()
    );
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_multipart_form_opts_out_of_a_topic_whose_name_has_semicolons_or_quotation_marks() {
    for (topic, name) in [("a;b", "a;b"), ("\"a\"", "%22a%22")] {
        let server = MockServer::builder().topic("a", true).topic(topic, true);
        let server = server.seed_contact(ADA).start().await;
        let contacts = server.client().contacts();
        let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new())
            .topic(OfferedTopic::new("a", "A"))
            .topic(OfferedTopic::new(topic, "B"))
            .build();
        let part = |name: &str| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\non\r\n")
        };
        // As a browser sends it if the box of this topic was emptied, and that of `a` is still checked.
        let shown = part(&format!("shown:{name}"));
        let form = [
            part("shown:a"),
            part("topic:a"),
            shown,
            "--b--\r\n".to_owned(),
        ]
        .concat();

        let media_type = "multipart/form-data; boundary=b";
        let reply = post(&service, &links().link(ADA), media_type, form).await;
        service.worker().run_until_idle().await.unwrap();

        assert_eq!(reply.status, StatusCode::OK, "{topic}");
        let ada = server.contact(ADA).unwrap();
        assert!(ada.topics["a"] && !ada.topics[topic], "{topic}");
    }
}

#[tokio::test]
async fn a_stranger_cannot_make_the_service_read_a_body() {
    /// A body that must not be polled.
    struct Unread;
    impl http_body::Body for Unread {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            panic!("the body was read")
        }
    }
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let request = Request::post("/unsubscribe/forged").body(Unread).unwrap();

    assert_eq!(
        service.oneshot(request).await.unwrap().status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn every_response_keeps_the_link_secret_and_the_page_out_of_frames() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = one_click_url(ADA, "news");

    for reply in [
        get(&service, &url).await,
        get(&service, "/forged").await,
        post_form(&service, &url, ONE_CLICK).await,
        post_form(&service, &url, "unsubscribe=all").await,
        post_form(&service, &url, "").await,
        post(&service, &url, "text/plain", "").await,
    ] {
        let header = |name: &str| reply.headers[name].to_str().unwrap();
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("x-robots-tag"), "noindex, nofollow");
        let policy = header("content-security-policy");
        for directive in [
            "default-src 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.split("; ").any(|each| each == directive), "{policy}");
        }
        assert!(
            !policy.contains("unsafe") && !policy.contains("script-src"),
            "{policy}"
        );
        assert!(!reply.headers.contains_key("set-cookie"));
        assert!(
            !reply.body.contains("<script") && !reply.body.contains("http"),
            "{}",
            reply.body
        );
    }
}

#[tokio::test]
async fn an_opt_out_that_cannot_be_stored_is_not_acknowledged() {
    let server = mock().await;
    let is_down = Arc::new(AtomicBool::new(false));
    let store = FaultyStore::down_while(MemoryStore::new(), Arc::clone(&is_down));
    let service = service(&server, store);
    let url = one_click_url(ADA, "news");
    let page = get(&service, &url).await;
    is_down.store(true, Ordering::SeqCst);

    for form in [
        ONE_CLICK,
        "unsubscribe=all",
        "unsubscribe=topic",
        &page.form(&["offers"]),
    ] {
        let reply = post_form(&service, &url, form).await;

        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{form}");
        assert_eq!(reply.headers["retry-after"], "60");
        assert!(reply.body.contains("This did not work"), "{}", reply.body);
    }
    assert!(
        !server
            .requests()
            .iter()
            .any(|request| request.method == "POST")
    );
}

#[tokio::test]
async fn the_response_is_the_same_for_an_address_that_is_no_contact() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    // Without differences in the address that the page shows.
    let (ada, stranger) = (
        one_click_url(ADA, "news"),
        one_click_url("anybody@example.com", "news"),
    );

    for form in [
        ONE_CLICK,
        "unsubscribe=all",
        "unsubscribe=topic",
        "shown:news=on&shown:offers=off",
    ] {
        let (ours, theirs) = (
            post_form(&service, &ada, form).await,
            post_form(&service, &stranger, form).await,
        );

        assert_eq!(
            (ours.status, &ours.headers, ours.without_number()),
            (theirs.status, &theirs.headers, theirs.without_number())
        );
    }
    let (ours, theirs) = (get(&service, &ada).await, get(&service, &stranger).await);
    assert_eq!(
        (ours.status, &ours.headers, ours.without_number()),
        (theirs.status, &theirs.headers, theirs.without_number())
    );
    let report = service.worker().run_until_idle().await.unwrap();
    assert_eq!((report.failed, service.pending().await.unwrap()), (0, 0));
    assert!(server.contact("anybody@example.com").is_none());
}

#[tokio::test]
async fn the_page_shows_the_contacts_answers_and_the_defaults_if_there_is_no_contact() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let contacts = server.client().contacts();
    contacts.set_topic(ADA, "news", false).await.unwrap();
    contacts.set_topic(ADA, "offers", true).await.unwrap();

    let page = get(&service, &links().link(ADA)).await;
    assert!(!page.is_checked("news") && page.is_checked("offers"));
    assert!(page.body.contains("a…@example.com") && !page.body.contains(ADA));
    assert!(!page.body.contains("internal"));
    // Only the second topic has a description.
    assert!(!page.body.contains("about-0") && page.body.contains("Now &amp; then"));
    assert!(page.body.contains("You will still get mail that you need"));

    let page = get(&service, &links().link("nobody@example.com")).await;
    assert!(page.is_checked("news") && !page.is_checked("offers"));
}

/// The answers of a contact, as the service stores them.
fn answers(server: &MockServer) -> (bool, bool) {
    let ada = server.contact(ADA).unwrap();
    (ada.topics["news"], ada.topics["offers"])
}

#[tokio::test]
async fn a_failed_request_does_not_change_what_the_boxes_show() {
    for fault in [
        Fault::status(503),
        Fault::status(429).retry_after(1),
        Fault::close_before(),
        Fault::close_after(),
        Fault::delay(Duration::from_secs(60)),
    ] {
        let server = mock().await;
        // The opposite of the defaults on the page.
        let contacts = server.client().contacts();
        contacts.set_topic(ADA, "news", false).await.unwrap();
        contacts.set_topic(ADA, "offers", true).await.unwrap();
        let service = service(&server, MemoryStore::new());
        server.clear_requests();
        server.fault(fault.times(1));

        let page = get(&service, &links().link(ADA)).await;

        assert!(!page.is_checked("news") && page.is_checked("offers"));
        assert_eq!(server.requests().len(), 2);
        let saved = post_form(&service, &links().link(ADA), &page.form(&["offers"])).await;
        assert_eq!(saved.status, StatusCode::OK);
        service.worker().run_until_idle().await.unwrap();
        assert_eq!(answers(&server), (false, true));
    }
}

#[tokio::test]
async fn a_page_that_knows_no_answers_has_no_boxes_and_its_buttons_opt_out() {
    for fault in [
        Fault::status(503),
        Fault::status(401),
        // The one of a proxy, which says nothing about the contact.
        Fault::status(404).body("<html>no such host"),
        Fault::wrong_body("<html>Sign in to the hotel network</html>"),
        Fault::wrong_body(r#"{"id": "c_1", "email": "ada@example.com", "created_at": 1700000000}"#),
        Fault::wrong_body(
            r#"{"id": "c_1", "email": "ada@example.com", "unsubscribed": false, "properties": {}, "created_at": 1700000000}"#,
        ),
    ] {
        let server = mock().await;
        let service = service(&server, MemoryStore::new());
        let url = one_click_url(ADA, "news");
        server.fault(fault);

        let page = get(&service, &url).await;

        assert_eq!(page.status, StatusCode::OK);
        assert!(page.body.contains("We cannot show your preferences"));
        assert!(!page.body.contains("\"checkbox\""));
        assert!(page.body.contains("Unsubscribe from Newsletter"));
        let button = HtmlForm::new(&page.body).press("unsubscribe", "topic");
        let out = post_form(&service, &url, &button.body()).await;
        assert_eq!(out.status, StatusCode::OK);
        assert!(out.body.contains("Saved.") && !out.body.contains("\"checkbox\""));
        let out = post_form(&service, &url, "unsubscribe=all").await;
        assert_eq!(out.status, StatusCode::OK);
        assert!(out.body.contains("You are unsubscribed"));

        server.clear_faults();
        service.worker().run_until_idle().await.unwrap();
        let ada = server.contact(ADA).unwrap();
        assert!(ada.unsubscribed && !ada.topics["news"]);
    }
}

#[tokio::test]
async fn a_template_can_tell_that_the_answers_are_not_known() {
    let server = mock().await;
    let contacts = server.client().contacts();
    let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new())
        .topic(OfferedTopic::new("news", "Newsletter"))
        .template(|page| format!("{:?} {}", page.notice, page.topics.len()))
        .build();
    assert_eq!(get(&service, &links().link(ADA)).await.body, "None 1");

    server.fault(Fault::status(503));

    let page = get(&service, &links().link(ADA)).await;
    assert_eq!(page.body, "Some(NotShown) 0");
}

#[tokio::test]
async fn a_template_that_panics_after_a_click_is_a_503_and_the_opt_out_is_kept() {
    let server = mock().await;
    let contacts = server.client().contacts();
    let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new())
        .template(|page| panic!("no page for {:?}", page.notice))
        .build();

    let reply = post_form(&service, &links().link(ADA), "unsubscribe=all").await;

    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.headers["retry-after"], "60");
    assert_eq!(reply.headers["cache-control"], "no-store");
    assert_eq!(service.pending().await.unwrap(), 1);
}

#[tokio::test]
async fn a_topic_that_the_service_does_not_have_has_no_box_that_opts_out_of_everything() {
    let server = mock().await;
    let contacts = server.client().contacts();
    let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new())
        .topic(OfferedTopic::new("news", "Newsletter"))
        .topic(OfferedTopic::new("offres", "Offers"))
        .build();
    let url = links().link(ADA);

    let page = get(&service, &url).await;
    post_form(&service, &url, &HtmlForm::new(&page.body).body()).await;
    service.worker().run_until_idle().await.unwrap();

    assert!(page.is_checked("news") && !page.body.contains("offres"));
    assert_eq!(page.body.matches("name=\"page\"").count(), 1);
    assert!(!server.contact(ADA).unwrap().unsubscribed);
    let everything = post_form(&service, &url, "unsubscribe=all").await;
    let waiting = get(&service, &url).await;
    for page in [everything, waiting] {
        assert!(!page.is_checked("news") && page.body.contains("shown:news"));
        assert!(!page.body.contains("offres"), "{}", page.body);
    }
}

#[tokio::test]
async fn an_empty_box_of_a_topic_that_this_process_does_not_offer_is_not_acknowledged() {
    let server = mock().await;
    let contacts = server.client().contacts();
    let (first, other) = (MemoryStore::new(), MemoryStore::new());
    let newer = service(&server, first);
    let older = UnsubscribeService::builder(links(), contacts, other)
        .topic(OfferedTopic::new("offers", "Offers"))
        .build();
    let url = links().link(ADA);
    let page = get(&newer, &url).await;

    let without = post_form(&older, &url, &page.form(&[])).await;
    let only_this = post_form(&older, &url, "shown:news=on").await;
    let checked = post_form(&older, &url, &page.form(&["news"])).await;

    assert_eq!(without.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!without.body.contains("shown:news"), "{}", without.body);
    assert_eq!(only_this.status, StatusCode::BAD_REQUEST);
    assert_eq!(checked.status, StatusCode::OK);
}

#[tokio::test]
async fn a_tab_that_shows_an_opt_out_of_everything_opts_out_of_nothing_once_it_has_ended() {
    let server = mock().await;
    let contacts = server.client().contacts();
    let service = service(&server, MemoryStore::new());
    contacts.unsubscribe(ADA).await.unwrap();
    let tab = get(&service, &links().link(ADA)).await;
    contacts.subscribe(ADA).await.unwrap();
    contacts.set_topic(ADA, "internal", true).await.unwrap();

    post_form(&service, &links().link(ADA), &tab.form(&["news"])).await;

    let ada = server.contact(ADA).unwrap();
    assert!(
        ada.topics["news"] && ada.topics["internal"],
        "{:?}",
        ada.topics
    );
}

#[tokio::test]
async fn an_opt_out_is_sent_with_the_spelling_that_the_service_has() {
    let dialect = Dialect {
        path_address: PathAddress::Exact,
        ..Dialect::default()
    };
    let server = mock_with(dialect).await;
    server.seed_contact("jürgen@x.io");
    let service = service(&server, MemoryStore::new());

    let url = one_click_url("JÜRGEN@x.io", "news");
    post_form(&service, &url, ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(!server.contact("jürgen@x.io").unwrap().topics["news"]);
}

#[tokio::test]
async fn a_client_that_can_send_nothing_loses_no_opt_out() {
    let server = mock().await;
    let https = reqwest::Client::builder().https_only(true).build().unwrap();
    let client = server.client_builder().http_client(https).build().unwrap();
    let service =
        UnsubscribeService::builder(links(), client.contacts(), MemoryStore::new()).build();

    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    post_form(&service, &links().link(ADA), ONE_CLICK).await;
    let report = service.worker().run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (0, 2));
    assert_eq!(service.pending().await.unwrap(), 2);
}

#[tokio::test]
async fn the_page_shows_an_opt_out_that_was_acknowledged_and_is_not_sent_yet() {
    let server = mock().await;
    let contacts = server.client().contacts();
    contacts.set_topic(ADA, "offers", true).await.unwrap();
    let is_down = Arc::new(AtomicBool::new(false));
    let store = FaultyStore::down_while(MemoryStore::new(), Arc::clone(&is_down));
    let service = service(&server, store);
    let url = links().link(ADA);

    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    let page = get(&service, &url).await;
    assert!(!page.is_checked("news") && page.is_checked("offers"));

    post_form(&service, &url, "unsubscribe=all").await;
    let page = get(&service, &url).await;
    assert!(page.body.contains("You are unsubscribed"));
    assert!(!page.is_checked("news") && !page.is_checked("offers"));
    // Whether or not the service can be asked.
    server.fault(Fault::status(503));
    let again = get(&service, &url).await;
    assert_eq!(again.without_number(), page.without_number());
    server.clear_faults();

    // Nobody knows whether the person has another address by now.
    is_down.store(true, Ordering::SeqCst);
    let page = get(&service, &url).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(!page.body.contains("type=\"checkbox\"") && page.body.contains("value=\"all\""));
}

#[tokio::test]
async fn a_form_stores_empty_boxes_and_sends_boxes_that_were_checked_on_the_page() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);

    let page = get(&service, &url).await;
    let saved = post_form(&service, &url, &page.form(&["offers"])).await;
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(saved.status, StatusCode::OK);
    assert!(
        saved.body.contains("Saved.") && saved.is_checked("offers") && !saved.is_checked("news")
    );
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.topics["news"] && ada.topics["offers"] && ada.topics["internal"]);
    // An empty box is recorded although the topic's default is "no".
    let emptied = post_form(&service, &url, &saved.form(&[])).await;
    assert!(!emptied.is_checked("offers") && !emptied.is_checked("news"));
    service.worker().run_until_idle().await.unwrap();
    assert_eq!(
        server.contact(ADA).unwrap().answers.get("offers"),
        Some(&false)
    );
}

#[tokio::test]
async fn an_old_tab_cannot_undo_an_opt_out() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let old_tab = get(&service, &links().link(ADA)).await;
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();

    // The box is checked, as it was when the page was made.
    post_form(&service, &links().link(ADA), &old_tab.form(&["news"])).await;
    service.worker().run_until_idle().await.unwrap();

    assert!(!server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn the_page_after_an_old_tab_is_saved_shows_an_opt_out_that_came_meanwhile() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let [old_tab, other_tab, last_tab] = [
        get(&service, &url).await,
        get(&service, &url).await,
        get(&service, &url).await,
    ];
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;

    // The opt-out waits.
    let saved = post_form(&service, &url, &old_tab.form(&["news"])).await;
    assert!(saved.body.contains("Saved.") && !saved.is_checked("news"));
    // The service has it.
    service.worker().run_until_idle().await.unwrap();
    let saved = post_form(&service, &url, &other_tab.form(&["news", "offers"])).await;
    assert!(!saved.is_checked("news") && saved.is_checked("offers"));

    post_form(&service, &url, "unsubscribe=all").await;
    let out = post_form(&service, &url, &last_tab.form(&["news"])).await;
    assert_eq!(out.status, StatusCode::OK);
    assert!(out.body.contains("You are unsubscribed") && !out.is_checked("news"));
}

#[tokio::test]
async fn during_an_outage_the_page_after_a_save_shows_the_boxes_that_were_sent() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let page = get(&service, &url).await;
    server.fault(Fault::status(401));

    let saved = post_form(&service, &url, &page.form(&["news"])).await;

    assert_eq!(saved.status, StatusCode::OK);
    assert!(saved.body.contains("Saved.") && saved.is_checked("news"));
}

#[tokio::test]
async fn a_page_that_knew_nothing_of_the_opt_out_of_everything_does_not_say_that_all_is_saved() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let page = get(&service, &url).await;
    let contacts = server.client().contacts();
    contacts.unsubscribe(ADA).await.unwrap();

    let refused = post_form(&service, &url, &page.form(&["offers"])).await;

    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!refused.is_checked("offers"));
    let ada = server.contact(ADA).unwrap();
    assert!(ada.unsubscribed && !ada.topics["offers"]);
    // The page that follows knows.
    service.worker().run_until_idle().await.unwrap();
    let saved = post_form(&service, &url, &refused.form(&["offers"])).await;
    assert_eq!(saved.status, StatusCode::OK);
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["offers"]);
}

#[tokio::test]
async fn an_opt_out_of_everything_without_a_reason_holds_back_a_stale_form_too() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let page = get(&service, &url).await;
    let contacts = server.client().contacts();
    contacts.unsubscribe(ADA).await.unwrap();
    let mut ada = serde_json::to_value(contacts.retrieve(ADA).await.unwrap()).unwrap();
    ada["unsubscribe_reason"] = serde_json::Value::Null;
    let shown = Fault::wrong_body(ada.to_string());
    server.fault(shown.method("GET").path("/contacts/*"));

    let refused = post_form(&service, &url, &page.form(&["offers"])).await;

    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!server.contact(ADA).unwrap().topics["offers"]);
}

/// Lets the mock show `null` as Ada's answer for a topic, whenever she is retrieved.
async fn null_answer(server: &MockServer, topic: &str) {
    let ada = server.client().contacts().retrieve(ADA).await.unwrap();
    let mut ada = serde_json::to_value(ada).unwrap();
    ada["topics"][topic] = serde_json::Value::Null;
    let shown = Fault::wrong_body(ada.to_string());
    server.fault(shown.method("GET").path("/contacts/*"));
}

#[tokio::test]
async fn whoever_comes_back_gets_no_topic_whose_answer_is_null() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.client().contacts().unsubscribe(ADA).await.unwrap();
    null_answer(&server, "internal").await;
    let url = links().link(ADA);
    let page = get(&service, &url).await;

    let saved = post_form(&service, &url, &page.form(&["offers"])).await;

    assert_eq!(saved.status, StatusCode::OK);
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["offers"] && !ada.topics["internal"]);
}

#[tokio::test]
async fn whoever_comes_back_after_an_opt_out_of_everything_gets_only_what_they_check() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let out = post_form(&service, &url, "unsubscribe=all").await;
    assert!(out.body.contains("You are unsubscribed"));
    service.worker().run_until_idle().await.unwrap();
    server.clear_requests();

    let page = get(&service, &url).await;
    assert!(!page.is_checked("news") && !page.is_checked("offers"));
    let saved = post_form(&service, &url, &page.form(&["offers"])).await;

    assert_eq!(saved.status, StatusCode::OK);
    let ada = server.contact(ADA).unwrap();
    assert!(
        !ada.unsubscribed && ada.topics["offers"] && !ada.topics["news"] && !ada.topics["internal"]
    );
    // The opt-out of everything ends last.
    let requests = server.requests();
    let last = requests
        .iter()
        .rfind(|request| request.method == "POST")
        .unwrap();
    assert!(
        last.path.ends_with("/subscribe") && last.body.is_empty(),
        "{last:?}"
    );
    assert!(!saved.form(&[]).contains("paused"));
    // A form without a check leaves everybody where they are.
    post_form(&service, &url, "unsubscribe=all").await;
    service.worker().run_until_idle().await.unwrap();
    let saved = post_form(&service, &url, &page.form(&[])).await;
    assert!(saved.form(&[]).contains("paused"));
    service.worker().run_until_idle().await.unwrap();
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_contact_who_reported_spam_sees_no_boxes_and_is_not_subscribed() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let before = get(&service, &url).await;
    server.report_spam(ADA);

    let page = get(&service, &url).await;
    let saved = post_form(&service, &url, &before.form(&["news", "offers"])).await;

    assert!(page.body.contains("You reported our mail as spam") && !page.body.contains("<form"));
    assert_eq!(saved.status, StatusCode::OK);
    assert!(
        saved.body.contains("We cannot subscribe you"),
        "{}",
        saved.body
    );
    assert!(!server.contact(ADA).unwrap().topics["offers"]);
    // Also while an opt-out waits.
    post_form(&service, &url, "unsubscribe=all").await;
    assert_eq!(service.pending().await.unwrap(), 1);
    let page = get(&service, &url).await;
    assert!(page.body.contains("You reported our mail as spam") && !page.body.contains("<form"));
}

#[tokio::test]
async fn a_failed_opt_in_is_said_and_its_opt_outs_are_kept() {
    // A status such as 503 says nothing about a contact, whatever the code.
    for fault in [
        Fault::status(503),
        Fault::status(503).body(r#"{"code": "not_found"}"#),
    ] {
        let server = mock().await;
        let service = service(&server, MemoryStore::new());
        let url = links().link(ADA);
        let page = get(&service, &url).await;
        server.fault(fault.path("*/subscribe"));

        let reply = post_form(&service, &url, &page.form(&["offers"])).await;

        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            reply.body.contains("What you unsubscribed from is saved"),
            "{}",
            reply.body
        );
        assert!(!reply.is_checked("news") && !reply.is_checked("offers"));
        service.worker().run_until_idle().await.unwrap();
        assert!(!server.contact(ADA).unwrap().topics["news"]);
        // And nothing sends the opt-in later.
        server.clear_faults();
        service.worker().run_until_idle().await.unwrap();
        assert!(!server.contact(ADA).unwrap().topics["offers"]);
    }
}

#[tokio::test]
async fn an_opt_in_waits_for_an_opt_out_that_was_made_before_it() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service(&server, clock.builder().build());
    let url = links().link(ADA);
    server.fault(Fault::status(503).path("*/unsubscribe").times(1));
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();
    let form = "shown:news=off&topic:news=on&shown:offers=off&topic:offers=on";

    // The opt-out waits for its second attempt.
    let refused = post_form(&service, &url, form).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        !server
            .requests()
            .iter()
            .any(|request| request.path.ends_with("/subscribe"))
    );

    clock.advance(MINUTES);
    // It is due: the opt-in leaves it to the worker.
    let refused = post_form(&service, &url, form).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(service.pending().await.unwrap(), 1);

    service.worker().run_until_idle().await.unwrap();
    assert!(!server.contact(ADA).unwrap().topics["news"]);
    let saved = post_form(&service, &url, form).await;
    assert_eq!(saved.status, StatusCode::OK);
    clock.advance(MINUTES);
    service.worker().run_until_idle().await.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(ada.topics["news"] && ada.topics["offers"]);
}

#[tokio::test]
async fn an_opt_in_leaves_an_opt_out_alone_that_no_worker_has_taken_yet() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;

    let form = "shown:news=off&topic:news=on&shown:offers=off&topic:offers=on";
    let refused = post_form(&service, &links().link(ADA), form).await;

    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(service.pending().await.unwrap(), 1);
    // Not even the topic that nothing waits for, since the page says that nothing was subscribed.
    assert!(
        !server
            .requests()
            .iter()
            .any(|request| request.path.ends_with("/subscribe"))
    );
    let report = service.worker().run_until_idle().await.unwrap();
    assert_eq!(report.handled, 1);
    assert!(!server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn an_opt_out_during_an_opt_in_comes_after_it() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let worker = tokio::spawn(service.worker().run_until(std::future::pending()));
    for round in 0..6 {
        let slow = Fault::delay(Duration::from_millis(300)).times(1);
        // The mock applies a request before its delay, so a slow GET shows what is sent after the opt-out has begun.
        let is_sent_first = round % 2 == 0;
        server.fault(match is_sent_first {
            true => slow.path("*/subscribe"),
            false => slow.method("GET"),
        });
        let opting_in = {
            let service = service.clone();
            let form = "shown:news=off&topic:news=on";
            tokio::spawn(async move { post_form(&service, &links().link(ADA), form).await.status })
        };
        while !server
            .requests()
            .iter()
            .any(|request| !is_sent_first || request.path.ends_with("/subscribe"))
        {
            tokio::task::yield_now().await;
        }

        let out = post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;

        assert_eq!(out.status, StatusCode::OK);
        assert_eq!(opting_in.await.unwrap(), StatusCode::OK);
        while service.pending().await.unwrap() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(
            !server.contact(ADA).unwrap().topics["news"],
            "round {round}"
        );
        server.clear_requests();
    }
    worker.abort();
}

/// An opt-out waits 8 s for an opt-in, counted from the first id that the opt-in holds.
#[tokio::test]
async fn an_opt_in_with_a_slow_store_has_ended_before_an_opt_out_stops_waiting_for_it() {
    let limit = Duration::from_secs(8);
    for (seconds, may_send) in [(1, true), (4, false)] {
        let server = mock().await;
        let store = FaultyStore::slow_claims(Duration::from_secs(seconds));
        let service = service(&server, store);
        steady_time::end();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let topics = ["news", "offers", "internal"];

        // The store delays four claims, and the service does not respond.
        server.fault(Fault::delay(MINUTES));
        let result = service.subscribe(ADA, topics).await;

        assert!(
            matches!(result, Err(ConsentError::Unfinished)),
            "{result:?}"
        );
        if may_send {
            let took = began.elapsed();
            let expected = limit..limit + Duration::from_millis(500);
            assert!(expected.contains(&took), "{took:?}");
        } else {
            assert!(server.requests().is_empty());
        }
        tokio::time::resume();
    }
}

#[tokio::test]
async fn an_opt_in_that_died_delays_an_opt_out_and_does_not_lose_it() {
    let server = mock().await;
    let store = MemoryStore::new();
    let service = service(&server, store.clone());
    // As an opt-in leaves it whose process was killed.
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    let token = Token::random();
    let taken = store
        .take(Take::new("unsubscribe", token, MINUTES, 1))
        .await;
    let id = taken.unwrap().remove(0).id;
    let key = EventKey::new("unsubscribe", &id);
    store
        .complete(HeldClaim::new(key, token), Duration::ZERO)
        .await
        .unwrap();
    let hold = NewClaim::new(key, token, MINUTES, Duration::ZERO);
    store
        .claim(hold.fingerprint(Fingerprint::of(b"held")))
        .await
        .unwrap();
    steady_time::end();
    tokio::time::pause();
    let began = tokio::time::Instant::now();

    let reply = post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;

    assert_eq!(reply.status, StatusCode::OK);
    // As long as an opt-in may take: it must not arrive after the opt-out.
    assert!(began.elapsed() >= Duration::from_secs(8));
    assert_eq!(service.pending().await.unwrap(), 1);
    tokio::time::resume();
    // An opt-in does not overtake it, although the id that it holds is free.
    store
        .complete(HeldClaim::new(key, token), Duration::ZERO)
        .await
        .unwrap();
    assert!(service.has_pending(ADA, ["news"]).await.unwrap());
    let form = "shown:news=off&topic:news=on";
    let refused = post_form(&service, &links().link(ADA), form).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    service.worker().run_until_idle().await.unwrap();
    assert!(!server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn many_clicks_on_one_link_wait_as_one_opt_out() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(503));

    for _ in 0..50 {
        assert_eq!(
            post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK)
                .await
                .status,
            StatusCode::OK
        );
        post_form(&service, &links().link(ADA), "unsubscribe=all").await;
        post_form(
            &service,
            &links().link(ADA),
            "shown:news=on&shown:offers=on",
        )
        .await;
    }

    // One for each of the two topics, and one for everything.
    assert_eq!(service.pending().await.unwrap(), 3);
    let metrics = service.inbox().metrics();
    assert_eq!((metrics.accepted, metrics.duplicates), (3, 197));
}

#[tokio::test]
async fn an_opt_in_waits_for_an_opt_out_of_everything_that_the_page_did_not_know() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let page = get(&service, &url).await;
    post_form(&service, &url, "unsubscribe=all").await;

    let refused = post_form(&service, &url, &page.form(&["offers"])).await;

    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    service.worker().run_until_idle().await.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(ada.unsubscribed && !ada.topics["offers"]);
}

#[tokio::test]
async fn an_opt_out_for_an_address_that_cannot_be_sent_ends() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    for address in ["", ".", ".."] {
        let url = one_click_url(address, "news");
        let click = post_form(&service, &url, ONE_CLICK).await;
        assert_eq!(click.status, StatusCode::NOT_FOUND);
        assert_eq!(get(&service, &url).await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_failed_attempt_is_logged_as_an_opt_out_that_is_retried() {
    let log = Log::start();
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(503).times(1));
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;

    let worker = service.worker().backoff(Duration::ZERO, Duration::ZERO);
    worker.run_until_idle().await.unwrap();

    let text = log.text();
    assert!(
        text.contains("an opt-out could not be sent yet, and is retried"),
        "{text}"
    );
    assert!(
        !text.contains("webhook") && !text.contains("remaining"),
        "{text}"
    );
    assert!(!text.contains("ada@"), "{text}");
}

#[tokio::test]
async fn a_stored_opt_out_that_can_never_be_sent_is_dropped() {
    let log = Log::start();
    let server = mock().await;
    let store = MemoryStore::new();
    let service = service(&server, store.clone());
    store_opt_out(&store, 1, r#"{"address": "."}"#).await;

    let report = service.worker().run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (1, 0));
    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(
        log.text()
            .contains("an opt-out can never be sent, and is dropped")
    );
}

#[tokio::test]
async fn an_opt_out_from_a_topic_that_cannot_exist_is_one_from_everything() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    post_form(&service, &one_click_url(ADA, ""), ONE_CLICK).await;
    let report = service.worker().run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (1, 0));
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

/// A signup that is confirmed while an older opt-out waits, with programs that share a store.
async fn a_program_can_ask_whether_an_opt_out_waits(store: impl Store + Clone, other: impl Store) {
    let server = mock().await;
    let (web, signup) = (service(&server, store.clone()), service(&server, other));
    let pending = async |topics: &[&str]| {
        signup
            .has_pending(" Ada@Example.com", topics)
            .await
            .unwrap()
    };
    let none: [&str; 0] = [];
    assert!(!pending(&["news", "offers"]).await);

    post_form(&web, &one_click_url(ADA, "news"), ONE_CLICK).await;
    for _ in 0..3 {
        // To ask changes nothing, and is in nobody's way.
        assert!(pending(&["offers", "news"]).await);
        assert!(!pending(&["offers"]).await && !pending(&none).await);
        assert!(
            !signup
                .has_pending("bob@example.com", ["news"])
                .await
                .unwrap()
        );
    }
    let form = "shown:offers=off&topic:offers=on";
    let opted_in = post_form(&web, &links().link(ADA), form).await;
    assert_eq!(opted_in.status, StatusCode::OK);
    post_form(&web, &one_click_url(ADA, "offers"), ONE_CLICK).await;
    assert_eq!(web.pending().await.unwrap(), 2);

    web.worker().run_until_idle().await.unwrap();
    assert!(!pending(&["news", "offers"]).await);
    assert_eq!(answers(&server), (false, false));

    // An opt-out of everything concerns each topic.
    post_form(&web, &links().link(ADA), ONE_CLICK).await;
    assert!(pending(&["internal"]).await && pending(&none).await);
    // While it is sent, too.
    let take = Take::new("unsubscribe", Token::random(), MINUTES, 1);
    assert_eq!(store.take(take).await.unwrap().len(), 1);
    assert!(pending(&["internal"]).await);
}

#[tokio::test]
async fn a_program_can_ask_whether_an_opt_out_waits_in_each_store() {
    let memory = MemoryStore::new();
    a_program_can_ask_whether_an_opt_out_waits(memory.clone(), memory).await;

    let file = DatabaseFile::new();
    let open = || SqliteStore::open(&file.0).unwrap();
    a_program_can_ask_whether_an_opt_out_waits(open(), open()).await;

    if let Some(database) = support::postgres::database().await {
        let store = support::postgres::connect(&database.url).await.unwrap();
        store.migrate().await.unwrap();
        let other = support::postgres::connect(&database.url).await.unwrap();
        a_program_can_ask_whether_an_opt_out_waits(store, other).await;
    }
    if let Some(redis) = support::redis::server().await {
        let prefix = redis.prefix();
        let connect = async || {
            let store = RedisStore::builder().prefix(&prefix);
            store.connect(redis.url.as_str()).await.unwrap()
        };
        a_program_can_ask_whether_an_opt_out_waits(connect().await, connect().await).await;
    }
}

#[tokio::test]
async fn a_program_that_asks_learns_that_the_store_fails() {
    let server = mock().await;
    let is_down = Arc::new(AtomicBool::new(true));
    let store = FaultyStore::down_while(MemoryStore::new(), is_down);

    let error = service(&server, store).has_pending(ADA, ["news"]).await;

    assert!(matches!(error, Err(InboxError::Store(_))), "{error:?}");
}

#[tokio::test]
async fn a_program_subscribes_somebody_who_was_no_contact_and_says_no_for_the_other_topics() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let bob = service.subscribe(" Bob@Example.com", ["offers"]).await;

    assert!(bob.unwrap().topics["offers"]);
    let bob = server.contact("bob@example.com").unwrap();
    let answers = [("internal", false), ("news", false), ("offers", true)];
    assert_eq!(
        bob.answers,
        answers
            .map(|(topic, answer)| (topic.to_owned(), answer))
            .into()
    );
    // Opt-outs first.
    let requests = server.requests();
    let mut consent = requests
        .iter()
        .filter(|request| request.path.ends_with("subscribe"));
    let last = consent.next_back().unwrap();
    assert!(last.path.ends_with("/subscribe"), "{}", last.path);
}

#[tokio::test]
async fn a_program_that_subscribes_a_contact_leaves_the_other_topics_as_they_were() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let contacts = server.client().contacts();
    contacts.set_topic(ADA, "news", true).await.unwrap();

    service.subscribe(ADA, ["offers"]).await.unwrap();

    let ada = server.contact(ADA).unwrap();
    assert!(ada.topics["news"] && ada.topics["offers"] && ada.topics["internal"]);

    // With the opt-out of everything, the others would come back.
    contacts.unsubscribe(ADA).await.unwrap();
    let ada = service.subscribe(ADA, ["offers"]).await.unwrap();
    assert!(!ada.unsubscribed && ada.topics["offers"]);
    assert!(!ada.topics["news"] && !ada.topics["internal"]);
}

#[tokio::test]
async fn a_program_that_subscribes_after_a_lost_response_says_no_for_the_other_topics() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::close_after().times(1).path("/contacts"));

    let bob = service
        .subscribe("bob@example.com", ["offers"])
        .await
        .unwrap();

    assert!(bob.topics["offers"] && !bob.topics["news"] && !bob.topics["internal"]);
}

#[tokio::test]
async fn after_a_first_click_that_failed_the_second_subscribes_only_to_what_was_chosen() {
    let delay = || Fault::delay(Duration::from_secs(60)).times(1);
    for fault in [
        Fault::status(503).path("*/unsubscribe").times(20),
        Fault::status(503).path("*/subscribe").times(20),
        Fault::close_after().path("/contacts").times(20),
        Fault::close_before()
            .path("/contacts")
            .method("POST")
            .times(20),
        delay().path("/contacts").method("POST"),
        delay().path("*/unsubscribe"),
        delay().path("*/subscribe"),
        // After the first answers.
        delay().path("*/unsubscribe").after(2),
    ] {
        let server = mock().await;
        let clock = TestClock::new();
        let service = service(&server, clock.store());
        let described = format!("{fault:?}");
        server.fault(fault);

        let first = service.subscribe("bob@example.com", ["offers"]).await;
        assert!(first.is_err(), "{described}");
        server.clear_faults();
        service.worker().run_until_idle().await.unwrap();
        let bob = server.contact("bob@example.com");
        if bob.is_none() {
            // The worker looks for the contact a few times, in case it is created later.
            for _ in 0..5 {
                clock.advance(MINUTES);
                service.worker().run_until_idle().await.unwrap();
            }
        }
        if let Some(bob) = bob {
            assert!(bob.unsubscribed, "{described}");
        }
        let second = service.subscribe("bob@example.com", ["offers"]).await;

        let bob = second.unwrap();
        assert!(!bob.unsubscribed && bob.topics["offers"], "{described}");
        assert!(
            !bob.topics["news"] && !bob.topics["internal"],
            "{described}"
        );
    }
}

#[tokio::test]
async fn a_click_after_a_crash_during_another_says_that_it_is_unfinished() {
    let server = mock().await;
    let store = MemoryStore::new();
    let service = service(&server, store.clone());
    server.fault(Fault::delay(Duration::from_secs(60)).path("*/subscribe"));
    let program = Program::start({
        let service = service.clone();
        async move { service.subscribe("bob@example.com", ["offers"]).await }
    });
    while !server
        .requests()
        .iter()
        .any(|request| request.path.ends_with("/subscribe"))
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    program.kill();

    let again = service.subscribe("bob@example.com", ["offers"]).await;

    assert!(matches!(again, Err(ConsentError::Unfinished)), "{again:?}");
}

#[tokio::test]
async fn an_opt_out_during_a_confirmation_comes_after_it_even_if_the_visitor_goes_away() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let worker = tokio::spawn(service.worker().run_until(std::future::pending()));
    for path in ["/contacts", "*/subscribe"] {
        for visitor_leaves in [false, true] {
            let bob = format!("{}@example.com", server.contact_count());
            let delay = Duration::from_millis(300);
            server.fault(Fault::delay(delay).method("POST").path(path).times(1));
            let subscribing = {
                let (service, bob) = (service.clone(), bob.clone());
                tokio::spawn(async move { service.subscribe(bob, ["offers"]).await })
            };
            while !server
                .requests()
                .iter()
                .any(|request| request.method == "POST")
            {
                tokio::task::yield_now().await;
            }
            if visitor_leaves {
                subscribing.abort();
            }

            let out = post_form(&service, &one_click_url(&bob, "offers"), ONE_CLICK).await;

            assert_eq!(out.status, StatusCode::OK);
            if !visitor_leaves {
                assert!(subscribing.await.unwrap().is_ok());
            }
            while service.pending().await.unwrap() > 0 {
                tokio::task::yield_now().await;
            }
            let bob = server.contact(&bob).unwrap();
            assert_eq!(
                bob.answers.get("offers"),
                Some(&false),
                "{path} {visitor_leaves}"
            );
            server.clear_requests();
        }
    }
    worker.abort();
}

#[tokio::test]
async fn each_no_of_a_form_of_your_own_is_stored_and_each_yes_sent() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let saved = service.set_topics(" Ada@Example.com", [("news", false), ("offers", true)]);
    saved.await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 1);
    assert!(server.contact(ADA).unwrap().topics["offers"]);
    service.worker().run_until_idle().await.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.topics["news"] && ada.topics["internal"]);
}

#[tokio::test]
async fn an_outage_costs_a_form_of_your_own_no_opt_out() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(503));

    let failed = service.set_topics(ADA, [("news", false), ("offers", true)]);
    let failed = failed.await.unwrap_err();
    let stored = service.set_topics(ADA, [("offers", false)]).await;
    server.clear_faults();
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(failed.visitor_status(), StatusCode::SERVICE_UNAVAILABLE);
    stored.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.answers["news"] && !ada.answers["offers"]);
}

#[tokio::test]
async fn a_form_of_your_own_whose_no_is_stored_does_not_say_that_nothing_was_changed() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let busy = Fault::status(429).retry_after(3_600);
    server.fault(busy.path("*/subscribe"));

    let failed = service.set_topics(ADA, [("news", false), ("offers", true)]);
    let text = audience::explanation(&failed.await.unwrap_err()).unwrap();

    assert!(!text.contains("nothing was changed"), "{text}");
}

#[tokio::test]
async fn a_form_of_your_own_whose_second_yes_is_refused_says_that_the_first_may_be_recorded() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(400).path("*/subscribe").after(1));

    let failed = service.set_topics(ADA, [("news", true), ("offers", true)]);
    let failed = failed.await.unwrap_err();

    assert!(
        matches!(&failed, ConsentError::Service(error) if error.outcome() == Outcome::Unknown),
        "{failed}"
    );
    let text = audience::explanation(&failed).unwrap();
    assert!(
        text.contains("a part of the change may have been made"),
        "{text}"
    );
}

#[tokio::test]
async fn the_requests_of_a_service_are_below_the_span_of_its_caller() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let log = Log::start();
    let handler = tracing::info_span!(target: "audience_test", "handler");

    let work = async {
        service.subscribe(ADA, ["news"]).await.unwrap();
        let mail = |_: &str| Email::new().from("shop@example.com").subject("News");
        let sent = service.send_issue_to("1", ADA, "news", mail).await;
        assert!(matches!(sent, Ok(IssueMail::Sent(_))));
        let moved = service.change_address(ADA, "ada@example.net").await;
        assert_eq!(moved.unwrap().email, "ada@example.net");
    };
    work.instrument(handler.clone()).await;

    let calls = log.spans_named("audience.call");
    assert!(calls.len() > 3);
    assert!(calls.iter().all(|call| call.parent == handler.id()));
}

#[tokio::test]
async fn a_form_of_your_own_with_a_topic_that_is_not_offered_records_nothing() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    let refused = service.set_topics(ADA, [("news", false), ("typo", false)]);

    assert!(matches!(refused.await, Err(ConsentError::NoTopic)));
    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_form_of_your_own_with_two_different_answers_for_a_topic_records_nothing() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());

    // A hidden field, and the checkbox beside it.
    let form = [("offers", false), ("news", false), ("news", true)];
    let refused = service.set_topics(ADA, form).await.unwrap_err();

    let ConsentError::Service(error) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Input);
    assert_eq!(
        error.to_string(),
        "set_topics: the form has two different answers for the same topic; nothing was sent"
    );
    assert_eq!(service.pending().await.unwrap(), 0);
    assert!(server.requests().is_empty());
    // The same answer twice counts once.
    let form = [("news", false), ("news", false)];
    service.set_topics(ADA, form).await.unwrap();
    assert_eq!(service.pending().await.unwrap(), 1);
}

#[tokio::test]
async fn a_yes_in_a_form_of_your_own_ends_an_opt_out_of_everything_and_no_other_topic_comes_back() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.client().contacts().unsubscribe(ADA).await.unwrap();

    service.set_topics(ADA, [("offers", true)]).await.unwrap();

    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["offers"]);
    assert!(!ada.topics["news"] && !ada.topics["internal"]);
}

#[tokio::test]
async fn a_yes_in_a_form_of_your_own_ends_no_opt_out_of_everything_if_the_topics_are_not_shown() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.client().contacts().unsubscribe(ADA).await.unwrap();
    let short =
        format!(r#"{{"id": "con_1", "email": "{ADA}", "unsubscribed": true, "created_at": 1}}"#);
    server.fault(Fault::wrong_body(short).method("GET").path("/contacts/*"));

    let saved = service.set_topics(ADA, [("offers", true)]).await;

    assert!(matches!(saved, Err(ConsentError::Service(_))), "{saved:?}");
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_yes_in_a_form_of_your_own_waits_for_no_older_opt_out_and_creates_nobody() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    service.opt_out(ADA, Some("offers")).await.unwrap();

    let ada = service
        .set_topics(ADA, [("offers", true)])
        .await
        .unwrap_err();
    let bob = service
        .set_topics("bob@example.com", [("offers", true)])
        .await
        .unwrap_err();

    let route = Fault::status(404).body(r#"{"message": "no route"}"#);
    server.fault(route.path("/contacts/*").times(1));
    let gateway = service.set_topics(ADA, [("news", true)]).await.unwrap_err();

    assert_eq!(gateway.visitor_status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(matches!(ada, ConsentError::OptedOut), "{ada:?}");
    assert_eq!(bob.visitor_status(), StatusCode::NOT_FOUND);
    assert_eq!(server.contact_count(), 1);
    assert!(!server.contact(ADA).unwrap().topics["offers"]);
}

#[tokio::test]
async fn a_support_team_reads_why_somebody_gets_no_mail() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let why = async |address: &str, topic: &str| {
        let reachability = service.reachability(address, topic).await.unwrap();
        let may_send = service.may_send(address, topic).await;
        match reachability {
            Reachability::UnknownTopic => {
                assert!(matches!(may_send, Err(ConsentError::UnknownTopic)));
            }
            _ => assert_eq!(may_send.unwrap(), reachability.is_reachable()),
        }
        reachability
    };

    assert_eq!(why(ADA, "news").await, Reachability::Reachable);
    assert_eq!(why(ADA, "offers").await, Reachability::TopicOptedOut);
    assert_eq!(why(ADA, "typo").await, Reachability::UnknownTopic);
    assert_eq!(
        why("bob@example.com", "news").await,
        Reachability::NoContact
    );
    service.opt_out(ADA, Some("news")).await.unwrap();
    assert_eq!(why(ADA, "news").await, Reachability::OptOutWaits);
    service.worker().run_until_idle().await.unwrap();
    assert_eq!(why(ADA, "news").await, Reachability::TopicOptedOut);
    server.client().contacts().unsubscribe(ADA).await.unwrap();
    assert_eq!(why(ADA, "news").await, Reachability::OptedOutBySender);
}

#[tokio::test]
async fn a_program_does_not_subscribe_while_an_older_opt_out_waits() {
    let server = mock().await;
    let store = MemoryStore::new();
    let service = service(&server, store.clone());
    for (url, address) in [
        (one_click_url(ADA, "news"), ADA),
        (links().link("bob@example.com"), "bob@example.com"),
    ] {
        post_form(&service, &url, ONE_CLICK).await;

        let refused = service.subscribe(address, ["news"]).await;

        let error = refused.unwrap_err();
        assert!(matches!(error, ConsentError::OptedOut), "{error:?}");
        assert_eq!(error.visitor_status(), 503);
    }
    // Not even the contact is created, since its topics would have their defaults.
    assert_eq!(server.contact_count(), 1);
    // It ends its holds, so another topic is free.
    service.subscribe(ADA, ["offers"]).await.unwrap();

    service.worker().run_until_idle().await.unwrap();
    let ada = service.subscribe(ADA, ["news"]).await.unwrap();
    assert!(ada.topics["news"]);
}

#[tokio::test]
async fn an_opt_out_that_comes_while_an_older_click_waits_is_not_undone_by_it() {
    for is_double_click in [false, true] {
        let server = mock().await;
        let service = service(&server, MemoryStore::new());
        let worker = tokio::spawn(service.worker().run_until(std::future::pending()));
        let subscribe = || {
            let service = service.clone();
            tokio::spawn(async move { service.subscribe(ADA, ["offers"]).await })
        };
        let opt_out = async || {
            let out = post_form(&service, &one_click_url(ADA, "offers"), ONE_CLICK).await;
            assert_eq!(out.status, StatusCode::OK);
        };
        let slow = |path| Fault::delay(Duration::from_millis(500)).path(path).times(1);
        let older = match is_double_click {
            true => {
                server.fault(slow("*/subscribe"));
                subscribe()
            }
            false => {
                server.fault(slow("*/unsubscribe"));
                opt_out().await;
                tokio::spawn(async { Err(ConsentError::Unfinished) })
            }
        };
        let is_sent = || {
            let mut requests = server.requests().into_iter();
            requests.any(|request| request.path.ends_with("subscribe"))
        };
        while !is_sent() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let click = subscribe();
        tokio::time::sleep(Duration::from_millis(50)).await;

        opt_out().await;

        let _ = older.await;
        let _ = click.await.unwrap();
        while service.pending().await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ada = server.contact(ADA).unwrap();
        assert!(!ada.topics["offers"], "double click: {is_double_click}");
        worker.abort();
    }
}

#[tokio::test]
async fn both_clicks_of_a_double_click_succeed_and_the_requests_are_sent_once() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let slow = || Fault::delay(Duration::from_millis(300)).path("*/subscribe");
    for attempt in 0.. {
        let address = format!("{attempt}@example.com");
        server.fault(slow().times(1));
        server.clear_requests();

        let click = || service.subscribe(&address, ["offers"]);
        let (first, second) = tokio::join!(click(), click());

        let requests = server.requests().into_iter();
        let creates =
            requests.filter(|request| request.method == "POST" && request.path == "/contacts");
        assert_eq!(creates.count(), 1);
        match second {
            // On a busy machine, the first call takes longer than the second waits.
            Err(ConsentError::Unfinished) if attempt < 10 => continue,
            second => {
                for contact in [first.unwrap(), second.unwrap()] {
                    assert!(contact.topics["offers"] && !contact.unsubscribed);
                }
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_click_that_waited_does_not_take_other_topics_for_its_own() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let slow = Fault::delay(Duration::from_millis(300)).path("*/subscribe");
    server.fault(slow.times(1));

    let (_, other) = tokio::join!(
        service.subscribe("bob@example.com", ["offers"]),
        service.subscribe("bob@example.com", ["news"]),
    );

    assert!(matches!(other, Err(ConsentError::Unfinished)), "{other:?}");
    assert!(!server.contact("bob@example.com").unwrap().topics["news"]);
}

#[tokio::test]
async fn a_program_that_cannot_subscribe_learns_why() {
    let server = mock().await;
    let is_down = Arc::new(AtomicBool::new(false));
    let store = FaultyStore::down_while(MemoryStore::new(), is_down.clone());
    let service = service(&server, store);
    let subscribe = async |topic: &str| service.subscribe(ADA, [topic]).await.unwrap_err();

    let error = subscribe("nonsense").await;
    assert!(
        matches!(&error, ConsentError::Service(error) if error.is_not_found()),
        "{error:?}"
    );
    assert_eq!(error.visitor_status(), 500, "a mistake of the program");
    let delay = Duration::from_secs(60);
    server.fault(Fault::delay(delay).method("GET").times(1));
    let error = subscribe("news").await;
    assert!(matches!(error, ConsentError::Unfinished), "{error:?}");
    assert_eq!(error.visitor_status(), 503);
    server.report_spam(ADA);
    let error = subscribe("news").await;
    assert!(
        matches!(&error, ConsentError::Service(error) if error.is_complaint_locked()),
        "{error:?}"
    );
    assert_eq!(error.visitor_status(), 409);
    is_down.store(true, Ordering::SeqCst);
    let error = subscribe("news").await;
    assert!(matches!(error, ConsentError::Store(_)), "{error:?}");
    assert_eq!(error.visitor_status(), 503);
    let asked = service.may_send(ADA, "news").await;
    assert!(matches!(asked, Err(ConsentError::Store(_))), "{asked:?}");
}

#[tokio::test]
async fn mail_goes_only_to_contacts_who_want_the_topic_and_have_no_opt_out_that_waits() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let may_send =
        async |address: &str, topic: &str| service.may_send(address, topic).await.unwrap();

    assert!(may_send(ADA, "news").await && !may_send(ADA, "offers").await);
    assert!(!may_send("bob@example.com", "news").await);
    let misspelled = service.may_send(ADA, "nwes").await.unwrap_err();
    assert!(
        matches!(misspelled, ConsentError::UnknownTopic),
        "{misspelled}"
    );
    assert_eq!(misspelled.visitor_status(), 500);

    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    assert!(!may_send(ADA, "news").await && may_send(ADA, "internal").await);
    service.worker().run_until_idle().await.unwrap();
    assert!(!may_send(ADA, "news").await && may_send(ADA, "internal").await);

    server.client().contacts().unsubscribe(ADA).await.unwrap();
    assert!(!may_send(ADA, "internal").await);
    server.fault(Fault::status(403));
    let asked = service.may_send(ADA, "news").await;
    assert!(matches!(asked, Err(ConsentError::Service(_))), "{asked:?}");
}

#[tokio::test]
async fn a_form_that_is_sent_again_opts_nobody_in() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let url = links().link(ADA);
    let form = get(&service, &url).await.form(&["news", "offers"]);
    server.fault(Fault::status(403).path("*/subscribe").times(1));

    let failed = post_form(&service, &url, &form).await;
    let saved = post_form(&service, &url, &form).await;
    assert_eq!([failed.status, saved.status], [500, 200]);
    assert!(server.contact(ADA).unwrap().topics["offers"]);
    post_form(&service, &one_click_url(ADA, "offers"), ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();

    let again = post_form(&service, &url, &form).await;

    assert_eq!(again.status, 200);
    assert!(!again.is_checked("offers") && again.is_checked("news"));
    assert!(!server.contact(ADA).unwrap().topics["offers"]);
    // The page that it shows works.
    let anew = again.form(&["news", "offers"]);
    let (one, other) = tokio::join!(
        post_form(&service, &url, &anew),
        post_form(&service, &url, &anew)
    );
    assert_eq!([one.status, other.status], [200, 200]);
    assert!(one.is_checked("offers") && other.is_checked("offers"));
    assert!(server.contact(ADA).unwrap().topics["offers"]);
}

/// The order matters: an opt-out leaves the store when the service has it.
#[tokio::test]
async fn an_opt_out_that_is_sent_while_a_program_asks_is_seen() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    // The contact is retrieved slowly, and meanwhile the opt-out is made and sent.
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    server.fault(
        Fault::delay(Duration::from_millis(200))
            .method("GET")
            .times(1),
    );
    let asking = {
        let service = service.clone();
        tokio::spawn(async move { service.may_send(ADA, "news").await.unwrap() })
    };
    service.worker().run_until_idle().await.unwrap();

    assert!(!asking.await.unwrap());
}

#[tokio::test]
async fn a_topic_that_does_not_exist_opts_out_of_everything() {
    for dialect in Dialect::all() {
        let log = Log::start();
        let server = mock_with(dialect).await;
        let service = service(&server, MemoryStore::new());

        post_form(&service, &one_click_url(ADA, "closed"), ONE_CLICK).await;
        service.worker().run_until_idle().await.unwrap();

        assert_eq!(service.pending().await.unwrap(), 0, "{dialect:?}");
        assert!(server.contact(ADA).unwrap().unsubscribed, "{dialect:?}");
        assert!(log.text().contains("the service has no such topic"));
    }
}

#[tokio::test]
async fn an_opt_out_of_an_address_that_is_no_contact_is_done() {
    for dialect in Dialect::all() {
        let server = mock_with(dialect).await;
        // A list of the addresses that contain this one is not empty.
        server.seed_contact("bob@example.com.au");
        let service = service(&server, MemoryStore::new());

        let news = one_click_url("bob@example.com", "news");
        post_form(&service, &news, ONE_CLICK).await;
        post_form(&service, &links().link("bob@example.com"), ONE_CLICK).await;
        service.worker().run_until_idle().await.unwrap();

        assert_eq!(service.pending().await.unwrap(), 0, "{dialect:?}");
    }
}

#[tokio::test]
async fn a_400_of_a_gateway_opts_nobody_out_of_everything_because_an_answer_is_null() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    null_answer(&server, "news").await;
    server.fault(Fault::status(400).path("*/unsubscribe").times(1));
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;

    let worker = service.worker().backoff(Duration::ZERO, Duration::ZERO);
    let report = worker.run_until_idle().await.unwrap();

    assert_eq!((report.failed, report.handled), (1, 1));
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && !ada.topics["news"]);
}

#[tokio::test]
async fn an_opt_out_and_a_confirmation_end_although_the_service_always_shows_null_for_the_topic() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let ada = server.client().contacts().retrieve(ADA).await.unwrap();
    let mut ada = serde_json::to_value(ada).unwrap();
    ada["unsubscribed"] = true.into();
    ada["topics"] = serde_json::json!({"news": null, "offers": false, "internal": false});
    server.client().contacts().unsubscribe(ADA).await.unwrap();
    null_answer(&server, "news").await;
    server.fault(Fault::wrong_body(ada.to_string()).path("*/unsubscribe"));

    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();
    let confirmed = service.subscribe(ADA, ["offers"]).await;

    assert_eq!(service.pending().await.unwrap(), 0);
    confirmed.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["offers"] && !ada.topics["news"]);
}

#[tokio::test]
async fn a_404_of_a_gateway_ends_no_opt_out() {
    for body in [
        r#"{"message": "no Route matched with those values"}"#,
        r#"{"error": {"code": "not_found", "message": "Not Found"}}"#,
        "<html>no such host",
        "",
    ] {
        for refused in 1..=3 {
            let server = mock().await;
            let clock = TestClock::new();
            let service = service(&server, clock.builder().build());
            server.fault(Fault::status(404).body(body).times(refused));

            post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
            service.worker().run_until_idle().await.unwrap();
            assert_eq!(service.pending().await.unwrap(), 1, "{body} {refused}");

            clock.advance(MINUTES);
            service.worker().run_until_idle().await.unwrap();
            assert_eq!(service.pending().await.unwrap(), 0, "{body} {refused}");
            let contact = server.contact(ADA).unwrap();
            assert!(!contact.topics["news"] && !contact.unsubscribed, "{body}");
        }
    }
}

#[tokio::test]
async fn an_attempt_sends_each_request_once() {
    let server = mock().await;
    let clock = TestClock::new();
    let service = service(&server, clock.builder().build());
    post_form(&service, &links().link(ADA), ONE_CLICK).await;
    server.clear_requests();
    server.fault(Fault::status(404).path("/contacts/*"));
    server.fault(Fault::status(503).path("/contacts"));

    service.worker().run_until_idle().await.unwrap();

    let requests = server.requests().into_iter();
    let requests: Vec<_> = requests.map(|request| request.method).collect();
    assert_eq!(requests, ["GET", "POST", "GET"], "the last one is the list");
    assert_eq!(service.pending().await.unwrap(), 1);
}

#[tokio::test]
async fn a_2xx_response_of_a_gateway_ends_no_opt_out() {
    for response in [
        Fault::status(200).body("{}"),
        Fault::status(200).body(r#"{"ok": true}"#),
        Fault::status(200).body("<html>Sign in"),
        Fault::status(204),
    ] {
        for everywhere in [false, true] {
            let server = mock().await;
            let clock = TestClock::new();
            let service = service(&server, clock.builder().build());
            server.fault(match everywhere {
                false => response.clone().path("*/unsubscribe"),
                true => response.clone(),
            });

            post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
            service.worker().run_until_idle().await.unwrap();
            assert_eq!(service.pending().await.unwrap(), 1, "{response:?}");

            server.clear_faults();
            clock.advance(MINUTES);
            service.worker().run_until_idle().await.unwrap();
            assert_eq!(service.pending().await.unwrap(), 0, "{response:?}");
            let contact = server.contact(ADA).unwrap();
            assert!(!contact.topics["news"] && !contact.unsubscribed);
        }
    }
}

#[tokio::test]
async fn a_2xx_response_without_a_contact_ends_the_opt_out_of_an_address_that_is_no_contact() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(204).path("*/unsubscribe"));

    post_form(&service, &links().link("bob@example.com"), ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn a_2xx_response_ends_the_opt_out_of_a_contact_that_cannot_be_read() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(204).path("*/unsubscribe"));
    let damaged = format!(r#"{{"id": "c1", "email": "{ADA}", "unsubscribed": null}}"#);
    server.fault(Fault::status(200).body(damaged).method("GET"));

    post_form(&service, &links().link(ADA), ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn a_spam_report_keeps_its_reason_although_the_service_is_busy() {
    let server = mock().await;
    server.seed_contact(SeedContact::new("eve@x.io").unsubscribed(Reason::Complaint));
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(503).method("GET").times(1));

    post_form(&service, &links().link("eve@x.io"), ONE_CLICK).await;
    let worker = service.worker().backoff(Duration::ZERO, Duration::ZERO);
    let report = worker.run_until_idle().await.unwrap();

    assert_eq!((report.failed, report.handled), (1, 1));
    let eve = server.contact("eve@x.io").unwrap();
    assert_eq!(eve.unsubscribe_reason, "complaint");
}

#[tokio::test]
async fn a_spam_report_keeps_its_reason_although_its_contact_cannot_be_read() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.report_spam(ADA);
    let body = format!(
        r#"{{"email": "{ADA}", "unsubscribe_reason": "complaint", "topics": {{"news": "yes"}}}}"#
    );
    server.fault(Fault::status(200).body(body).method("GET"));

    post_form(&service, &links().link(ADA), ONE_CLICK).await;
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 0);
    let sent = server.requests().into_iter();
    let sent: Vec<_> = sent.filter(|request| request.method == "POST").collect();
    assert!(sent.is_empty(), "{sent:?}");
}

#[tokio::test]
async fn a_contact_that_was_maybe_created_is_opted_out_later_and_a_refused_one_is_forgotten() {
    for (status, pending) in [(422, 0), (503, 1)] {
        let server = mock().await;
        let client = server.client_builder().retry(RetryPolicy::none());
        let contacts = client.build().unwrap().contacts();
        let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new()).build();
        server.fault(Fault::status(status).method("POST").path("/contacts"));

        let subscribed = service.subscribe("bob@example.com", ["news"]).await;

        assert!(subscribed.is_err());
        assert_eq!(service.pending().await.unwrap(), pending, "{status}");
    }
}

#[tokio::test]
async fn the_shutdown_of_the_worker_waits_for_the_opt_in_of_a_visitor_who_has_left() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    let translation = service.translation(links()).build();
    server.fault(Fault::delay(Duration::from_millis(100)));

    for (of_visitor, of_worker) in [(&service, &translation), (&translation, &service)] {
        let bob = format!("{}@example.com", server.contact_count());
        let left = of_visitor.subscribe(&*bob, ["news"]);
        assert!(left.now_or_never().is_none());
        let worker = of_worker.worker().run_until(std::future::ready(()));
        worker.await.unwrap();

        let bob = server.contact(&bob).unwrap();
        assert!(!bob.unsubscribed && bob.topics["news"]);
        assert_eq!(service.pending().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_translation_has_its_own_links_texts_and_topics_and_the_functions_of_the_service() {
    let server = mock().await;
    let consents = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&consents);
    let english =
        UnsubscribeService::builder(links(), server.client().contacts(), MemoryStore::new())
            .topic(OfferedTopic::new("news", "News"))
            .record_consent(move |consent| {
                recorded.lock().unwrap().push(consent);
                async { Ok::<_, Infallible>(()) }
            })
            .build();
    let base_url = "https://shop.example.com/abmelden";
    let links_of_german = UnsubscribeLinks::new([SECRET], base_url).unwrap();
    let mut texts = PageTexts::default();
    (texts.lang, texts.title) = ("de".into(), "Ihre Newsletter".into());
    let german = english.translation(links_of_german.clone()).texts(texts);
    let german = german
        .topic(OfferedTopic::new("offers", "Angebote"))
        .build();
    let without_texts = german.translation(links_of_german.clone()).build();
    let page = get(&without_texts, &links_of_german.link(ADA)).await;
    assert!(page.body.contains("<html lang=\"en\""), "{}", page.body);

    let link = links_of_german.link(ADA);
    assert!(link.starts_with(base_url));
    let page = get(&german, &link).await;
    let form = HtmlForm::new(&page.body).check("topic:offers");
    let peer = SocketAddr::from(([192, 0, 2, 1], 443));
    let request = Request::post(&link).header("content-type", FORM);
    let body = BytesBody::from(Bytes::from(form.body()));
    let saved = send(&german, request.extension(peer).body(body).unwrap()).await;

    assert!(page.body.contains("<html lang=\"de\"") && page.body.contains("Ihre Newsletter"));
    assert!(page.body.contains("Angebote") && !page.body.contains("News<"));
    assert_eq!(saved.status, StatusCode::OK);
    assert!(server.contact(ADA).unwrap().topics["offers"]);
    {
        let consents = consents.lock().unwrap();
        let [consent] = &**consents else {
            panic!("{consents:?}");
        };
        assert_eq!((&*consent.address, &*consent.lang), (ADA, "de"));
        assert_eq!(consent.page, ConsentPage::Preferences);
        assert_eq!(consent.headers["content-type"], FORM);
        assert_eq!(consent.extensions.get::<SocketAddr>(), Some(&peer));
        assert!(!format!("{consent:?}").contains(ADA));
    }
    assert!(!get(&english, &link).await.body.contains("Angebote"));
}

fn of_account(server: &MockServer, store: impl Store, endpoint: &str) -> UnsubscribeService {
    let service = UnsubscribeService::builder(links(), server.client().contacts(), store);
    service.endpoint(endpoint).unwrap().build()
}

/// Both accounts are down, and the same person opts out of the same topic at each.
async fn two_accounts_with_one_store_each_send_their_own_opt_outs(store: impl Store + Clone) {
    let log = Log::start();
    let (books, toys) = (mock().await, mock().await);
    let of_books = of_account(&books, store.clone(), "books-unsubscribe");
    let of_toys = of_account(&toys, store.clone(), "toys-unsubscribe");
    let of_nobody = service(&books, store);
    for (server, service) in [(&books, &of_books), (&toys, &of_toys)] {
        server.fault(Fault::status(503).times(1));
        let reply = post_form(service, &one_click_url(ADA, "news"), ONE_CLICK).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(service.pending().await.unwrap(), 1);
    }
    let send = async |service: &UnsubscribeService| {
        let worker = service.worker().backoff(Duration::ZERO, Duration::ZERO);
        let report = worker.run_until_idle().await.unwrap();
        (report.handled, report.failed)
    };
    let wants_news = |server: &MockServer| server.contact(ADA).unwrap().topics["news"];

    assert_eq!(of_nobody.pending().await.unwrap(), 0);
    assert_eq!(send(&of_nobody).await, (0, 0));
    assert_eq!(send(&of_books).await, (1, 1));

    assert!(!wants_news(&books) && wants_news(&toys));
    assert!(toys.requests().is_empty());
    assert!(!of_books.has_pending(ADA, ["news"]).await.unwrap());
    let translation = of_toys.translation(links()).build();
    assert!(translation.has_pending(ADA, ["news"]).await.unwrap());

    books.clear_requests();
    assert_eq!(send(&of_toys).await, (1, 1));

    assert!(!wants_news(&toys) && books.requests().is_empty());
    assert_eq!(of_toys.pending().await.unwrap(), 0);
    let retried = "an opt-out could not be sent yet, and is retried";
    let is_failure = |message: &String| message == retried;
    let events = log.events().into_iter();
    let failures = events.filter(|event| event.fields.get("message").is_some_and(is_failure));
    let endpoints: Vec<_> = failures
        .map(|event| event.fields["endpoint"].clone())
        .collect();
    assert_eq!(endpoints, ["books-unsubscribe", "toys-unsubscribe"]);
}

#[tokio::test]
async fn two_accounts_with_one_store_each_send_their_own_opt_outs_with_each_store() {
    with_each_store!(two_accounts_with_one_store_each_send_their_own_opt_outs);
}

#[tokio::test]
async fn an_endpoint_that_is_no_name_or_that_is_one_of_the_names_of_another_is_refused() {
    let server = mock().await;
    let named = |endpoint: &str| {
        let contacts = server.client().contacts();
        let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new());
        service
            .endpoint(endpoint)
            .map(UnsubscribeServiceBuilder::build)
    };
    let longest = "a".repeat(247);

    let too_long = format!("{longest}a");
    for endpoint in [
        "",
        "a\nb",
        &too_long,
        "unsubscribe-records",
        "unsubscribe-moves",
    ] {
        let error = named(endpoint).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the endpoint of an unsubscribe service must be 1 to 247 bytes of text without control characters, and not end with `-records` or `-moves`"
        );
    }
    assert_eq!(named(&longest).unwrap().inbox().endpoint(), longest);
}

#[tokio::test]
async fn a_refusal_of_the_key_does_not_mean_that_the_topic_does_not_exist() {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    server.fault(Fault::status(403).path("*/unsubscribe").times(1));

    post_form(&service, &one_click_url(ADA, "typo"), ONE_CLICK).await;
    let report = service.worker().run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (0, 1));
    assert!(!server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn with_a_wrong_base_url_opt_outs_wait() {
    let server = mock().await;
    let client = Client::new(format!("{}/v1", server.url()), server.full_key()).unwrap();
    let service =
        UnsubscribeService::builder(links(), client.contacts(), MemoryStore::new()).build();

    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    post_form(&service, &links().link("bob@example.com"), ONE_CLICK).await;
    let report = service.worker().run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (0, 2));
    assert_eq!(service.pending().await.unwrap(), 2);
}

/// An opt-out, an opt-in and an opt-out again, faster than any store's clock.
async fn an_opt_out_after_an_opt_in_is_sent_again(store: impl Store) {
    let server = mock().await;
    let service = service(&server, store);
    for round in 0..10 {
        post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
        assert_eq!(service.pending().await.unwrap(), 1);
        service.worker().run_until_idle().await.unwrap();
        assert!(
            !server.contact(ADA).unwrap().topics["news"],
            "round {round}"
        );

        let reply = post_form(&service, &links().link(ADA), "shown:news=off&topic:news=on").await;
        assert_eq!(reply.status, StatusCode::OK);
        assert!(server.contact(ADA).unwrap().topics["news"], "round {round}");
        assert_eq!(service.pending().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_opt_out_after_an_opt_in_is_sent_again_with_each_store() {
    with_each_store!(an_opt_out_after_an_opt_in_is_sent_again);
}

#[tokio::test]
async fn a_parked_opt_out_of_a_new_contact_is_sent_after_a_replay() {
    let server = mock().await;
    let client = server.client_builder().retry(RetryPolicy::none());
    let contacts = client.build().unwrap().contacts();
    let service = |store| UnsubscribeService::builder(links(), contacts.clone(), store).build();
    let (first_day, later_day) = (MemoryStore::new(), MemoryStore::new());
    let bob = "bob@example.com";
    let create = Fault::close_after().method("POST").path("/contacts");
    server.fault(create.times(1));
    let opt_out = Fault::status(503).path("/contacts/bob%40example.com/unsubscribe");
    server.fault(opt_out.times(1));
    let confirmed = service(first_day.clone()).subscribe(bob, ["offers"]).await;
    assert!(confirmed.is_err() && !server.contact(bob).unwrap().unsubscribed);
    // Days later, when somebody looks at what was parked.
    let token = Token::random();
    let take = Take::new("unsubscribe", token, MINUTES, 10);
    let [event] = &*first_day.take(take).await.unwrap() else {
        panic!("one opt-out waits");
    };
    let mut envelope: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
    envelope["created_at"] = (envelope["created_at"].as_u64().unwrap() - 3 * 86_400).into();
    let key = EventKey::new("unsubscribe", &event.id);
    let (body, fingerprint) = (envelope.to_string(), Fingerprint::of(b"any"));
    let delivery = NewDelivery::new(key, body.as_bytes(), fingerprint);
    later_day.accept(delivery).await.unwrap();
    later_day.take(take).await.unwrap();
    let held = HeldClaim::new(key, token);
    assert!(later_day.park(held, "it failed too often").await.unwrap());

    let service = service(later_day);
    assert!(service.inbox().replay(&event.id).await.unwrap());
    service.worker().run_until_idle().await.unwrap();

    let stored = server.contact(bob).unwrap();
    assert!(stored.unsubscribed);
    // No person has asked for it.
    assert_eq!(stored.unsubscribe_reason, "manual");
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn whoever_makes_up_forms_opts_in_50_times_a_day_and_out_as_often_as_they_like() {
    let server = mock().await;
    let clock = TestClock::new();
    let consents = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&consents);
    // Of each form that opts in, one entry is for the form, and one for the day.
    let store = clock.builder().capacity(110).build();
    let service = UnsubscribeService::builder(links(), server.client().contacts(), store)
        .topic(OfferedTopic::new("news", "Newsletter"))
        .topic(OfferedTopic::new("offers", "Offers"))
        .record_consent(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Infallible>(()) }
        })
        .build();
    let url = links().link(ADA);
    let opt_in = "shown:news=on&topic:news=on&shown:offers=off&topic:offers=on";

    let mut saved = 0;
    for page in 0..200 {
        let reply = post_form(&service, &url, &format!("{opt_in}&page={page}")).await;
        match reply.status {
            StatusCode::OK => saved += 1,
            status => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE),
        }
    }
    let without_page = post_form(&service, &url, opt_in).await;
    let opt_out = "shown:news=on&shown:offers=off&topic:offers=on&page=201";
    let opt_out = post_form(&service, &url, opt_out).await;

    assert_eq!((saved, consents.load(Ordering::Relaxed)), (50, 50));
    for reply in [&without_page, &opt_out] {
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(reply.body.contains("try again in a few minutes"));
    }
    assert!(service.has_pending(ADA, ["news"]).await.unwrap());
    service.worker().run_until_idle().await.unwrap();
    assert_eq!(answers(&server), (false, true));
    clock.advance(24 * 6 * MINUTES);
    let next_day = post_form(&service, &url, &format!("{opt_in}&page=202")).await;
    assert_eq!(next_day.status, StatusCode::OK);
}

#[tokio::test]
async fn an_opt_in_and_an_opt_out_after_another_do_not_depend_on_a_clock_that_jumps_back() {
    let (server, clock, file) = (mock().await, TestClock::new(), DatabaseFile::new());
    let of_store = clock.clone();
    let store = SqliteStore::builder().clock(move || of_store.now());
    let service = service(&server, store.open(&file.0).unwrap());
    let jump_back = || clock.jump(ClockJump::Back(6 * MINUTES));
    assert!(!service.has_bounced(ADA).await.unwrap());
    service.opt_out(ADA, Some("news")).await.unwrap();
    service.worker().run_until_idle().await.unwrap();

    jump_back();
    assert!(!service.has_bounced(ADA).await.unwrap());
    service.subscribe(ADA, ["news"]).await.unwrap();
    jump_back();
    service.opt_out(ADA, Some("news")).await.unwrap();

    assert_eq!(service.pending().await.unwrap(), 1);
    service.worker().run_until_idle().await.unwrap();
    assert!(!server.contact(ADA).unwrap().topics["news"]);
}

/// The function of an application that records opt-outs in a table, or does not.
#[derive(Clone, Copy)]
enum Recorder {
    Works,
    Fails,
    Panics,
    Hangs,
}

type Records = Arc<Mutex<Vec<OptOutRecord>>>;

/// Returns a service, and the records that its function got.
fn recording(
    server: &Arc<MockServer>,
    store: impl Store,
    recorder: Recorder,
) -> (UnsubscribeService, Records) {
    let (records, mocked) = (Records::default(), Arc::clone(server));
    let got = Arc::clone(&records);
    let service = UnsubscribeService::builder(links(), server.client().contacts(), store)
        .topic(OfferedTopic::new("news", "Newsletter").default_answer(true))
        .topic(OfferedTopic::new("offers", "Offers"))
        .record_opt_out(move |opt_out| {
            let contact = mocked.contact(&opt_out.address);
            let is_out = contact.is_none_or(|contact| {
                let topic = opt_out.topic.as_ref();
                let answer = topic.and_then(|topic| contact.topics.get(topic));
                contact.unsubscribed || answer == Some(&false)
            });
            got.lock().unwrap().push(opt_out);
            // A failed assertion would be a panic, which is retried.
            let recorder = if is_out { recorder } else { Recorder::Fails };
            async move {
                match recorder {
                    Recorder::Works => Ok(1),
                    Recorder::Fails => Err("the database of the application is down"),
                    Recorder::Panics => panic!("a bug of the application"),
                    Recorder::Hangs => std::future::pending().await,
                }
            }
        });
    (service.build(), records)
}

/// Returns the addresses and topics of the records, and forgets them.
fn take(records: &Records) -> Vec<(String, Option<String>)> {
    let records = std::mem::take(&mut *records.lock().unwrap());
    let records = records.into_iter();
    records
        .map(|record| (record.address, record.topic))
        .collect()
}

#[tokio::test]
async fn each_way_of_opting_out_is_recorded_once_after_the_service_has_the_opt_out() {
    let server = Arc::new(mock().await);
    server.seed_contact("Jürgen@x.io");
    let (service, records) = recording(&server, MemoryStore::new(), Recorder::Works);
    let all = links().link(ADA);
    let form = get(&service, &all).await.form(&[]);
    let start = Timestamp::now();
    let of = |address: &str, topic: Option<&str>| (address.to_owned(), topic.map(str::to_owned));
    let check = async |expected: &[(String, Option<String>)]| {
        assert_eq!(records.lock().unwrap().len(), 0);
        let report = service.worker().run_until_idle().await.unwrap();
        assert_eq!(report.failed, 0);
        for record in &*records.lock().unwrap() {
            assert!((start..=Timestamp::now()).contains(&record.made_at));
        }
        let mut records = take(&records);
        records.sort();
        assert_eq!(records, expected);
    };

    // Many clicks wait as one opt-out.
    for _ in 0..3 {
        post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    }
    check(&[of(ADA, Some("news"))]).await;
    post_form(&service, &one_click_url(ADA, "offers"), "unsubscribe=topic").await;
    check(&[of(ADA, Some("offers"))]).await;
    post_form(&service, &all, &form).await;
    check(&[of(ADA, Some("news")), of(ADA, Some("offers"))]).await;
    let answers = [("news", false), ("offers", false)];
    service.set_topics(ADA, answers).await.unwrap();
    check(&[of(ADA, Some("news")), of(ADA, Some("offers"))]).await;
    post_form(&service, &all, "unsubscribe=all").await;
    check(&[of(ADA, None)]).await;
    service.opt_out("JÜRGEN@x.io ", Some("news")).await.unwrap();
    check(&[of("jürgen@x.io", Some("news"))]).await;
    // Nothing else remembers who is no contact, or which topic does not exist.
    post_form(&service, &one_click_url("bob@x.io", "news"), ONE_CLICK).await;
    check(&[of("bob@x.io", Some("news"))]).await;

    // The opt-outs of an opt-in are no wish of the person.
    service.subscribe("eve@x.io", ["offers"]).await.unwrap();
    service.worker().run_until_idle().await.unwrap();
    assert!(!server.contact("eve@x.io").unwrap().topics["news"]);
    assert_eq!(take(&records), []);
}

#[tokio::test]
async fn an_opt_out_from_a_topic_that_does_not_exist_is_recorded_with_this_topic() {
    let server = Arc::new(mock().await);
    let (service, records) = recording(&server, MemoryStore::new(), Recorder::Works);

    service.opt_out(ADA, Some("ancient")).await.unwrap();
    service.worker().run_until_idle().await.unwrap();

    assert!(server.contact(ADA).unwrap().unsubscribed);
    let expected = (ADA.to_owned(), Some("ancient".to_owned()));
    assert_eq!(take(&records), [expected]);
}

#[tokio::test]
async fn a_record_that_fails_is_retried_and_the_opt_out_is_not_sent_again() {
    for recorder in [Recorder::Fails, Recorder::Panics, Recorder::Hangs] {
        let log = Log::start();
        let server = Arc::new(mock().await);
        let clock = TestClock::new();
        let store = clock.store();
        let (service, records) = recording(&server, store.clone(), recorder);
        post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;

        let report = service.worker().run_until_idle().await.unwrap();

        assert_eq!((report.handled, report.failed), (1, 1));
        assert!(!server.contact(ADA).unwrap().topics["news"]);
        let first = records.lock().unwrap().clone();
        assert_eq!(take(&records).len(), 1);
        // The service has it.
        assert_eq!(service.pending().await.unwrap(), 0);
        assert!(!service.has_pending(ADA, ["news"]).await.unwrap());
        let text = log.text();
        for expected in [
            "an opt-out could not be recorded",
            "an opt-out could not be recorded yet, and is retried",
            "the opt-out was sent, but could not be recorded by `record_opt_out`",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(!text.contains("ada@"), "{text}");

        server.clear_requests();
        // It has the backoff of an opt-out, also after a restart.
        let (service, records) = recording(&server, store, Recorder::Works);
        service.worker().run_until_idle().await.unwrap();
        assert_eq!(take(&records), []);
        clock.advance(Duration::from_secs(5));
        let report = service.worker().run_until_idle().await.unwrap();

        assert_eq!((report.handled, report.failed), (1, 0));
        assert_eq!(std::mem::take(&mut *records.lock().unwrap()), first);
        assert!(server.requests().is_empty());
        service.subscribe(ADA, ["news"]).await.unwrap();
        clock.advance(MINUTES);
        service.worker().run_until_idle().await.unwrap();
        assert_eq!(take(&records), []);
        assert!(server.contact(ADA).unwrap().topics["news"]);
    }
}

#[tokio::test]
async fn the_record_of_an_opt_out_waits_for_the_worker_of_its_own_account() {
    let server = mock().await;
    let clock = TestClock::new();
    let store = clock.store();
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let of_account = |endpoint: &'static str, is_down: bool| {
        let (recorded, is_down) = (Arc::clone(&recorded), AtomicBool::new(is_down));
        let service =
            UnsubscribeService::builder(links(), server.client().contacts(), store.clone())
                .record_opt_out(move |opt_out| {
                    let is_down = is_down.swap(false, Ordering::SeqCst);
                    if !is_down {
                        recorded.lock().unwrap().push((endpoint, opt_out.address));
                    }
                    std::future::ready(if is_down { Err("down") } else { Ok(()) })
                });
        service.endpoint(endpoint).unwrap().build()
    };
    let books = of_account("books-unsubscribe", true);
    let toys = of_account("toys-unsubscribe", false);

    books.opt_out(ADA, Some("news")).await.unwrap();
    let report = books.worker().run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (1, 1));
    let records = Inbox::builder(store.clone()).endpoint("books-unsubscribe-records");
    let backlog = records.build().unwrap().backlog().await.unwrap();
    assert_eq!(backlog.waiting, 1);
    clock.advance(MINUTES);
    let report = toys.worker().run_until_idle().await.unwrap();
    assert_eq!((report.handled, report.failed), (0, 0));
    books.worker().run_until_idle().await.unwrap();
    let recorded = recorded.lock().unwrap();
    assert_eq!(*recorded, [("books-unsubscribe", ADA.to_owned())]);
}

#[tokio::test]
async fn the_error_of_a_record_is_logged_once_a_minute_and_not_stored() {
    let log = Log::start();
    let server = mock().await;
    let store = MemoryStore::new();
    let service = UnsubscribeService::builder(links(), server.client().contacts(), store.clone())
        .record_opt_out(|opt_out| {
            let error = format!("{} is there already", opt_out.address);
            std::future::ready(Err::<(), _>(error))
        })
        .build();
    for topic in ["news", "offers"] {
        service.opt_out(ADA, Some(topic)).await.unwrap();
    }

    let worker = service.worker().max_attempts(1);
    let report = worker.run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.parked), (2, 2));
    let records = Inbox::builder(store).endpoint("unsubscribe-records");
    for parked in records.build().unwrap().parked().await.unwrap() {
        let reason = "the opt-out was sent, but could not be recorded by `record_opt_out`";
        assert_eq!(parked.reason, reason);
    }
    let events = log.events().into_iter();
    let has_address = |error: &String| error.contains(ADA);
    let with_address = events.filter(|event| event.fields.get("error").is_some_and(has_address));
    let messages: Vec<_> = with_address
        .map(|event| event.fields["message"].clone())
        .collect();
    assert_eq!(messages, ["an opt-out could not be recorded"]);
}

#[tokio::test]
async fn while_a_record_waits_an_opt_in_succeeds_and_no_attempt_undoes_it() {
    let server = mock().await;
    let clock = TestClock::new();
    let fails = Arc::new(AtomicBool::new(true));
    let (is_down, records) = (Arc::clone(&fails), Records::default());
    let got = Arc::clone(&records);
    let contacts = server.client().contacts();
    let service = UnsubscribeService::builder(links(), contacts, clock.store())
        .record_opt_out(move |opt_out| {
            let is_down = is_down.load(Ordering::SeqCst);
            got.lock().unwrap().push(opt_out);
            std::future::ready(if is_down { Err("down") } else { Ok(()) })
        })
        .build();
    let out_and_in = async || {
        service.opt_out(ADA, Some("news")).await.unwrap();
        service.worker().run_until_idle().await.unwrap();
        assert!(!server.contact(ADA).unwrap().topics["news"]);
        service.subscribe(ADA, ["news"]).await.unwrap();
    };

    out_and_in().await;
    // An opt-out in the same second would be the same record.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    out_and_in().await;
    assert_eq!(records.lock().unwrap().len(), 2);
    fails.store(false, Ordering::SeqCst);
    clock.advance(MINUTES);
    let report = service.worker().run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (2, 0));
    let mut records = std::mem::take(&mut *records.lock().unwrap());
    records.sort_by_key(|record| record.made_at);
    assert_eq!(records[0], records[1]);
    assert_eq!(records[2], records[3]);
    assert!(server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn an_opt_out_that_is_sent_twice_because_of_a_kill_waits_as_one_record() {
    let server = Arc::new(mock().await);
    let clock = TestClock::new();
    let store = clock.store();
    let (service, _) = recording(&server, store.clone(), Recorder::Fails);
    // The program was killed after the record was stored, and before the opt-out had left the store.
    for _ in 0..2 {
        store_opt_out(&store, 1_700_000_000, r#"{"address": "ada@example.com"}"#).await;
        service.worker().run_until_idle().await.unwrap();
    }

    let (service, records) = recording(&server, store, Recorder::Works);
    clock.advance(MINUTES);
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(take(&records), [(ADA.to_owned(), None)]);
}

#[tokio::test]
async fn an_opt_out_leaves_a_store_that_has_no_room_for_its_record() {
    let server = Arc::new(mock().await);
    let store = MemoryStore::builder().capacity(1).build();
    let (service, records) = recording(&server, store, Recorder::Works);
    service.opt_out(ADA, Some("news")).await.unwrap();

    let report = service.worker().run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (1, 0));
    assert_eq!(take(&records), [(ADA.to_owned(), Some("news".to_owned()))]);
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn a_worker_that_runs_records_soon_and_stops_when_it_is_told_to() {
    let server = Arc::new(mock().await);
    let (service, records) = recording(&server, MemoryStore::new(), Recorder::Works);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = service.worker();
    let worker = tokio::spawn(worker.run_until(async { stopped.await.unwrap() }));

    service.opt_out(ADA, None).await.unwrap();
    let is_recorded = async {
        while records.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(is_recorded).await;
    stop.send(()).unwrap();
    let report = in_time(worker).await.unwrap().unwrap();

    assert_eq!((report.handled, report.failed), (2, 0));
    assert_eq!(take(&records), [(ADA.to_owned(), None)]);
}

#[tokio::test]
async fn an_opt_out_is_recorded_although_the_program_was_killed_after_the_service_had_it() {
    let server = Arc::new(mock().await);
    let clock = TestClock::new();
    let store = clock.store();
    let (service, records) = recording(&server, store.clone(), Recorder::Hangs);
    post_form(&service, &one_click_url(ADA, "news"), ONE_CLICK).await;
    let program = Program::start(async move { service.worker().run_until_idle().await });
    while records.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    program.kill();
    let first = records.lock().unwrap().clone();
    assert!(!server.contact(ADA).unwrap().topics["news"]);

    let (service, records) = recording(&server, store, Recorder::Works);
    clock.advance(Duration::from_secs(30));
    service.worker().run_until_idle().await.unwrap();

    assert_eq!(*records.lock().unwrap(), first);
    assert_eq!(service.pending().await.unwrap(), 0);
}

#[tokio::test]
async fn a_record_has_the_time_of_the_click_and_not_that_of_the_attempt() {
    let server = Arc::new(mock().await);
    let store = MemoryStore::new();
    let (service, records) = recording(&server, store.clone(), Recorder::Works);
    store_opt_out(&store, 1_700_000_000, r#"{"address": "ada@example.com"}"#).await;

    service.worker().run_until_idle().await.unwrap();

    let made_at = Timestamp::from_unix(1_700_000_000);
    let expected = OptOutRecord::new(ADA, None, made_at);
    assert_eq!(*records.lock().unwrap(), [expected]);
    assert!(!format!("{records:?}").contains("ada"));
}

#[tokio::test]
async fn an_opt_out_that_no_person_has_asked_for_is_not_recorded() {
    let server = Arc::new(mock().await);
    let store = MemoryStore::new();
    let (service, records) = recording(&server, store.clone(), Recorder::Works);
    // Of a process that died while it created the contact after a confirmation.
    let data = r#"{"address": "ada@example.com", "kind": "NewContact"}"#;
    store_opt_out(&store, 1_700_000_000, data).await;

    service.worker().run_until_idle().await.unwrap();

    assert!(server.contact(ADA).unwrap().unsubscribed);
    assert_eq!(take(&records), []);
    assert_eq!(service.pending().await.unwrap(), 0);
}

/// Stores an opt-out as another process has stored it at this time.
pub(super) async fn store_opt_out(store: &MemoryStore, created_at: u64, data: &str) {
    let body = format!(
        r#"{{"id": "out_1", "type": "audience.opt_out", "created_at": {created_at}, "data": {data}}}"#
    );
    let id = EventId::try_from("out_1").unwrap();
    let key = EventKey::new("unsubscribe", &id);
    let delivery = NewDelivery::new(key, body.as_bytes(), Fingerprint::of(b"out_1"));
    store.accept(delivery).await.unwrap();
}

#[tokio::test]
async fn hostile_texts_stay_text_and_a_template_may_use_its_own_styles() {
    let server = mock().await;
    let hostile = "<img src=x onerror=alert(1)>\"'&";
    let contacts = server.client().contacts();
    let service = UnsubscribeService::builder(links(), contacts.clone(), MemoryStore::new())
        .topic(OfferedTopic::new(hostile, hostile).description(hostile))
        .build();

    let page = get(
        &service,
        &one_click_url(&format!("{hostile}@{hostile}"), hostile),
    )
    .await;

    assert!(
        !page.body.contains("<img") && page.body.contains("&lt;img src=x"),
        "{}",
        page.body
    );
    assert!(!page.body.contains("\"'&\""));

    let service = UnsubscribeService::builder(links(), contacts, MemoryStore::new())
        .template(|page| {
            format!(
                "<style media=all>p{{}}</style><main>{}</main>",
                page.content()
            )
        })
        .build();
    let page = get(&service, &links().link(ADA)).await;
    assert!(
        page.body
            .starts_with("<style media=all>p{}</style><main><form")
    );
    // printf 'p{}' | openssl dgst -sha256 -binary | base64
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("style-src 'sha256-gG2yISYereRMiG2lMXrbiUgi0Ubw9p7QCeWcroOvy9Y=' 'self'; img-src 'self' data:"), "{policy}");
}
