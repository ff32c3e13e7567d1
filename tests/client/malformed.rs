//! Responses that are valid JSON but not of the documented shape.

use std::fmt::Debug;

use audience::contacts::NewContact;
use audience::{Client, Error, ErrorKind, Method, Outcome, RetryPolicy};
use futures_util::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::paged_service::PagedService;
use support::operation::Operation;
use support::{
    ADA, client, contact, contacts, ok, printed, record, respond_in_turn, respond_with, status,
    summary, text, with, without,
};

/// The members of an object as an array, in the order of the document.
fn as_array(object: &Value, members: &[&str]) -> Value {
    members.iter().map(|name| object[name].clone()).collect()
}

fn record_as_array() -> Value {
    let members = [
        "id",
        "email",
        "first_name",
        "last_name",
        "properties",
        "unsubscribed",
        "created_at",
    ];
    as_array(&record(), &members)
}

fn contact_as_array() -> Value {
    let members = [
        "id",
        "email",
        "first_name",
        "last_name",
        "properties",
        "unsubscribed",
        "unsubscribe_reason",
        "created_at",
        "topics",
    ];
    as_array(&contact(), &members)
}

/// The client of a server that always sends this body.
async fn client_of(body: &Value) -> (wiremock::MockServer, Client) {
    let server = respond_with(ok(body)).await;
    let client = client(server.uri());
    (server, client)
}

fn assert_decode_error<T: Debug>(result: Result<T, Error>, place: &str) {
    let error = result.unwrap_err();
    assert_ne!(error.outcome(), Outcome::Refused);
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Decode, false)
    );
    assert!(error.to_string().contains(place), "{error}");
}

#[tokio::test]
async fn an_array_is_not_accepted_in_place_of_the_object_of_a_response() {
    for operation in Operation::ALL {
        use Operation::*;
        let body = match operation {
            Merge | Request | IdempotentRequest => continue,
            Create | CreateOrSkip | CreateOrFail => record_as_array(),
            Batch | BatchOrFail => json!([[{"email": ADA, "status": "created"}]]),
            List => json!([[]]),
            Retrieve | Unsubscribe | UnsubscribeTopic | Subscribe | SubscribeTopic | AnswerNo
            | AnswerYes => contact_as_array(),
        };
        let (_server, client) = client_of(&body).await;

        let result = operation.run(&client).await;

        let is_consent = operation.template().ends_with("subscribe");
        let place = match is_consent {
            true => "the response has no contact",
            false => "invalid response",
        };
        assert_decode_error(result, place);
    }
}

#[tokio::test]
async fn a_list_does_not_end_with_an_array_in_place_of_a_page() {
    let (_server, client) = client_of(&json!([[]])).await;
    let list = client.contacts().list();

    let counted = list.clone().count().await;
    let paged = list.pages().try_next().await;

    let place = "invalid response";
    assert_decode_error(counted, place);
    assert_decode_error(paged, place);
}

#[tokio::test]
async fn only_an_error_about_one_contact_lets_a_loop_continue() {
    let malformed = without(contact(), &["created_at"]);
    for (response, is_malformed_contact) in [
        (ok(&malformed), true),
        (ok(json!({"error": "busy"})), false),
        (ok(json!([])), false),
        (text(200, "<html>"), false),
        (text(200, ""), false),
        (text(200, "{"), false),
        (ok(json!({})), false),
        (ok(json!({"data": [], "next": null})), false),
        (ok(json!({"id": null, "email": null})), false),
        (ok(json!({"id": "c_1"})), true),
        (text(500, malformed.to_string()), false),
    ] {
        let server = respond_with(response).await;
        let contacts = contacts(server.uri());
        let once = RetryPolicy::none();

        let retrieved = contacts
            .retrieve(ADA)
            .retry(once.clone())
            .await
            .unwrap_err();
        let found = contacts.find(ADA).retry(once).await.unwrap_err();

        let are_malformed = [&retrieved, &found].map(Error::is_malformed_contact);
        assert_eq!(are_malformed, [is_malformed_contact; 2], "{retrieved}");
    }
    let contacts = contacts("http://127.0.0.1:1");
    for address in ["", " . ", ".."] {
        let error = contacts.find(address).await.unwrap_err();
        assert!(error.is_malformed_contact(), "{error}");
    }
}

#[tokio::test]
async fn a_loop_over_a_stream_leaves_out_malformed_contacts_and_ends_at_a_page_that_is_none() {
    let data = json!([summary("c9"), malformed_items()[0], summary("c7")]);
    let page = json!({"data": data, "next": "c7"});
    let server = respond_in_turn([ok(page), ok(json!({"data": 5}))]).await;
    let contacts = contacts(server.uri());

    let items: Vec<_> = contacts.list().stream().take(4).collect().await;

    let errors = items
        .iter()
        .map(|item| item.as_ref().err().map(Error::is_malformed_contact));
    assert_eq!(
        errors.collect::<Vec<_>>(),
        [None, Some(true), None, Some(false)]
    );
}

/// List items that are not contacts, all with an id.
fn malformed_items() -> [Value; 4] {
    [
        with(summary("bad"), "unsubscribed", "hunter2"),
        with(summary("bad"), "email", json!(["hunter2"])),
        with(summary("bad"), "properties", json!([["hunter2", 1]])),
        without(summary("bad"), &["created_at"]),
    ]
}

#[tokio::test]
async fn a_property_that_rust_cannot_represent_makes_its_item_malformed_and_not_the_page() {
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    for property in ["1e400", r#""\ud800""#, "[1,1e400]", &deep] {
        let data = json!([
            summary("c9"),
            with(summary("bad"), "properties", json!({"x": "?"}))
        ]);
        let page = json!({"data": data, "next": "bad"}).to_string();
        let page = page.replace(r#""?""#, property);
        let server = respond_with(text(200, page)).await;

        let page = client(server.uri()).contacts().list().await.unwrap();

        assert_eq!(page.data.len(), 1);
        let (index, error) = page.malformed().next().unwrap();
        assert_eq!((index, error.kind()), (1, ErrorKind::Decode));
        let text = error.to_string();
        assert!(text.contains("$.data[1].properties.x"), "{text}");
        assert_eq!(page.cursor(), Some("bad"));
    }
}

#[tokio::test]
async fn a_malformed_item_does_not_make_the_page_fail_and_is_reported() {
    for (bad, place) in malformed_items().into_iter().zip([
        "$.data[1].unsubscribed",
        "$.data[1].email",
        "$.data[1].properties",
        "$.data[1]",
    ]) {
        let data = json!([summary("c9"), bad, summary("c7")]);
        let (_server, client) = client_of(&json!({"data": data, "next": "c7"})).await;

        let page = client.contacts().list().await.unwrap();

        let ids: Vec<_> = page
            .data
            .iter()
            .map(|contact| contact.id.as_str())
            .collect();
        assert_eq!((ids, page.cursor()), (vec!["c9", "c7"], Some("c7")));
        let [(1, error)] = &page.malformed().collect::<Vec<_>>()[..] else {
            panic!("{page:?}")
        };
        assert_eq!(
            error.to_string(),
            format!("list: invalid response at {place}")
        );
        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Decode, 1));
        let body: Value = serde_json::from_slice(error.body().unwrap()).unwrap();
        assert_eq!(body, bad, "the body of the error is the item");
        assert!(!printed(error).contains("hunter2"));
        assert!(!format!("{page:?}").contains("hunter2"));
    }
}

#[tokio::test]
async fn a_page_of_more_than_10_000_items_fails_if_one_of_them_is_malformed() {
    let [bad, ..] = malformed_items();
    for (contacts, last, is_read) in [
        (9_999, bad.clone(), true),
        (10_000, summary("c1"), true),
        (10_000, bad, false),
    ] {
        let mut data = vec![summary("c2"); contacts];
        data.push(last);
        let (_server, client) = client_of(&json!({"data": data, "next": "c1"})).await;

        let listed = client.contacts().list().await;

        if is_read {
            let page = listed.unwrap();
            assert_eq!(page.data.len() + page.malformed().len(), contacts + 1);
        } else {
            let text = "the page has 10001 items, and at least one of them is malformed";
            assert_decode_error(listed, text);
        }
    }
}

#[tokio::test]
async fn an_array_is_not_accepted_in_place_of_an_item() {
    let item = json!(["c8", ADA, "Ada", {}, false, 1]);
    let (_server, client) = client_of(&json!({"data": [summary("c9"), item], "next": "c8"})).await;

    let page = client.contacts().list().await.unwrap();

    let (index, error) = page.malformed().next().unwrap();
    assert_eq!((page.data.len(), index), (1, 1));
    assert_decode_error::<()>(Err(error), "$.data[1]");
}

/// Two pages with malformed items at every place, then the empty one.
fn pages_with_malformed_items() -> PagedService {
    let [one, two, three, four] = malformed_items();
    let service = PagedService::default();
    service.put_items(
        None,
        &json!([one, summary("c9"), two, summary("c8"), 5]),
        "p2",
    );
    service.put_items(Some("p2"), &json!([three, four]), "p3");
    service.put_items(Some("p3"), &json!([summary("c7")]), "p4");
    service.put_items(Some("p4"), &json!([]), "");
    service
}

#[tokio::test]
async fn a_stream_returns_an_error_in_the_place_of_a_malformed_item_and_continues() {
    let server = pages_with_malformed_items().serve().await;

    let items: Vec<_> = client(server.uri())
        .contacts()
        .list()
        .stream()
        .map(|item| item.map(|contact| contact.id).map_err(|error| error.kind()))
        .collect()
        .await;

    let (contact, malformed) = (|id: &str| Ok(id.to_owned()), || Err(ErrorKind::Decode));
    assert_eq!(
        items,
        [
            malformed(),
            contact("c9"),
            malformed(),
            contact("c8"),
            malformed(),
            malformed(),
            malformed(),
            contact("c7"),
        ],
        "a page of malformed items only does not end the list"
    );
    let count = client(server.uri()).contacts().list().count();
    assert_eq!(count.await.unwrap(), 8, "a count counts every item");
}

#[tokio::test]
async fn a_stream_does_not_end_after_three_malformed_items_in_a_row() {
    let service = PagedService::default();
    for page in 0..5 {
        let (after, next) = (format!("p{page}"), format!("p{}", page + 1));
        let after = (page > 0).then_some(&*after);
        service.put_items(after, &json!([5, 5, 5, 5]), &next);
    }
    service.put_items(Some("p5"), &json!([summary("c1")]), "p6");
    service.put_items(Some("p6"), &json!([]), "");
    let server = service.serve().await;

    let list = client(server.uri()).contacts().list();
    let items: Vec<_> = list.stream().collect().await;

    assert_eq!(items.len(), 21);
    assert!(items[..20].iter().all(Result::is_err) && items[20].is_ok());
}

#[tokio::test]
async fn within_a_page_the_cursor_never_skips_an_item() {
    let first = with(summary("c9"), "unsubscribed", 0);
    let data = json!([5, first, 5, summary("c8"), 5, summary("c7")]);
    let service = PagedService::default();
    service.put_items(Some("start"), &data, "end");
    let server = service.serve().await;
    let list = client(server.uri()).contacts().list();
    let mut stream = list.after("start").stream();

    let mut cursors = Vec::new();
    for _ in 0..6 {
        let _ = stream.next().await.unwrap();
        cursors.push(stream.cursor().unwrap().to_owned());
    }

    assert_eq!(cursors, ["start", "c9", "c9", "c8", "c8", "end"]);
}

#[tokio::test]
async fn the_id_of_the_last_item_is_the_cursor_if_there_is_no_next_even_if_an_item_is_malformed() {
    for (data, cursor) in [
        (json!([summary("c9"), {"id": "c8"}]), "c8"),
        (json!([summary("c9"), {"id": 8, "email": {}}]), "8"),
        (json!([{"id": "c9"}, summary("c8")]), "c8"),
    ] {
        let body = json!({"data": data, "next": null});
        let (_server, client) = client_of(&body).await;

        let page = client.contacts().list().await.unwrap();

        assert_eq!((page.data.len(), page.cursor()), (1, Some(cursor)));
    }
}

#[tokio::test]
async fn an_empty_page_ends_a_list_unless_it_reports_an_error() {
    for (end, is_end) in [
        (json!({"data": []}), true),
        (json!({"data": [], "error": null, "errors": []}), true),
        (json!({"data": [], "ok": true, "success": true}), true),
        (json!({"data": null}), true),
        (json!({"data": null, "next": null, "error": null}), true),
        (
            json!({"data": [], "error": {"message": "search unavailable"}}),
            false,
        ),
        (json!({"data": [], "errors": ["busy"]}), false),
        (json!({"success": false, "data": []}), false),
        (json!({"data": null, "error": {"message": "busy"}}), false),
        (json!({"data": null, "errors": ["busy"]}), false),
        (json!({"data": [], "code": 0, "status": 200}), true),
        (json!({"data": [], "code": "ok", "status": "ok"}), true),
        (json!({"data": [], "code": 503}), false),
        (json!({"data": null, "status": 500}), false),
        (json!({"next": null}), false),
    ] {
        let last = ok(&end);
        let server = respond_with(move |request: &wiremock::Request| {
            match request.url.as_str().contains("after=") {
                false => ok(json!({"data": [summary("c9")], "next": "c9"})),
                true => last.clone(),
            }
        })
        .await;
        let list = || client(server.uri()).contacts().list();

        let streamed: Result<Vec<_>, _> = list().stream().try_collect().await;
        let paged: Result<Vec<_>, _> = list().pages().try_collect().await;
        let counted = list().count().await;

        assert_eq!((streamed.is_ok(), paged.is_ok()), (is_end, is_end), "{end}");
        assert_eq!(counted.ok(), is_end.then_some(1), "{end}");
    }
}

#[tokio::test]
async fn the_error_of_an_empty_page_says_that_the_page_reports_one() {
    let body = json!({"data": [], "error": {"message": "search unavailable"}});
    let (_server, client) = client_of(&body).await;
    let list = client.contacts().list();

    let message = "list: the response has the status 200, but reports an error";
    assert_decode_error(list.clone().await, message);
    assert_decode_error(list.count().await, message);
}

#[tokio::test]
async fn an_error_ends_no_list_even_if_a_part_of_the_body_cannot_be_read() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for body in [
        b"{\"data\": [], \"error\": \"besch\xe4ftigt\"}".to_vec(),
        br#"{"data": [], "error": "\ud800"}"#.to_vec(),
        br#"{"data": [], "error": "busy", "load": 1e400}"#.to_vec(),
        format!(r#"{{"data": [], "error": {deep}}}"#).into_bytes(),
    ] {
        let server = respond_with(status(200).set_body_bytes(body)).await;
        let contacts = client(server.uri()).contacts();

        let counted = contacts.list().count().await;
        let streamed = contacts.list().stream().try_next().await;

        assert_decode_error(counted, "reports an error");
        assert_decode_error(streamed, "reports an error");
    }
}

#[tokio::test]
async fn a_page_with_contacts_is_read_whatever_else_it_has() {
    let body = json!({"data": [summary("c9")], "errors": ["busy"], "success": false});
    let (_server, client) = client_of(&body).await;

    let page = client.contacts().list().await.unwrap();

    assert_eq!((page.data.len(), page.cursor()), (1, Some("c9")));
}

#[tokio::test]
async fn members_of_a_contact_in_another_form_are_read() {
    let odd = |form: Value| {
        let form = with(form, "id", 17);
        with(with(form, "properties", json!([])), "topics", json!([]))
    };
    for created_at in [
        json!(1_700_000_000.0),
        json!("1700000000"),
        json!(1_700_000_000),
    ] {
        let time = created_at.clone();
        let odd = move |form| with(odd(form), "created_at", time.clone());
        let server = respond_with(move |request: &wiremock::Request| {
            match (request.method.as_str(), request.url.path()) {
                ("GET", "/contacts") => ok(json!({"data": [odd(summary(""))], "next": 17})),
                ("POST", "/contacts") => ok(odd(record())),
                _ => ok(odd(contact())),
            }
        })
        .await;
        let contacts = client(server.uri()).contacts();

        let retrieved = contacts.retrieve(ADA).await.unwrap();
        let created = contacts.create(ADA).await.unwrap().contact;
        let page = contacts.list().await.unwrap();

        let listed = &page.data[0];
        assert_eq!([&retrieved.id, &created.id, &listed.id], ["17"; 3]);
        for time in [retrieved.created_at, created.created_at, listed.created_at] {
            assert_eq!(time.as_unix(), 1_700_000_000, "{created_at}");
        }
        assert!(retrieved.properties.is_empty() && listed.properties.is_empty());
        assert!(retrieved.topics.is_empty() && retrieved.shows_topics());
        assert_eq!(page.next.as_deref(), Some("17"));
    }
}

#[tokio::test]
async fn a_time_in_milliseconds_is_an_error_that_says_so() {
    for created_at in [
        json!(1_700_000_000_000_i64),
        json!(1.7e12),
        json!("1700000000000"),
        json!(u64::MAX),
        json!(-1_700_000_000_000_i64),
        json!(-1.7e12),
        json!(i64::MIN),
    ] {
        let body = with(contact(), "created_at", created_at);
        let (_server, client) = client_of(&body).await;

        let retrieved = client.contacts().retrieve(ADA).await;

        assert_decode_error(
            retrieved,
            "invalid response at $.created_at: the time is in milliseconds or a smaller unit, not in seconds",
        );
    }
}

#[tokio::test]
async fn a_time_is_read_up_to_the_year_5138_and_as_text_only_from_digits() {
    for (created_at, is_read) in [
        (json!(99_999_999_999_i64), true),
        (json!(-99_999_999_999_i64), true),
        (json!(100_000_000_000_i64), false),
        (json!("+1700000000"), false),
        (json!("-1700000000"), false),
        (json!(1.5), false),
    ] {
        let body = with(contact(), "created_at", created_at.clone());
        let (_server, client) = client_of(&body).await;

        let retrieved = client.contacts().retrieve(ADA).await;

        match is_read {
            true => assert_eq!(created_at, retrieved.unwrap().created_at.as_unix()),
            false => {
                let error = retrieved.unwrap_err().to_string();
                let place = "retrieve: invalid response at $.created_at";
                assert!(error.starts_with(place), "{created_at}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_byte_order_mark_before_json_is_skipped() {
    let marked = |body: Value| text(200, format!("\u{feff}{body}"));
    let server = respond_with(marked(contact())).await;
    let raw = client(server.uri())
        .request(Method::GET, ["contacts", ADA])
        .await
        .unwrap();

    let retrieved = client(server.uri()).contacts().retrieve(ADA).await.unwrap();

    assert_eq!(retrieved.email, ADA);
    assert_eq!(raw.json::<Value>().unwrap()["email"], ADA);
    let refusal = format!("\u{feff}{}", json!({"code": "not_found"}));
    let server = respond_with(text(404, refusal)).await;
    let error = client(server.uri())
        .contacts()
        .retrieve(ADA)
        .await
        .unwrap_err();
    assert!(error.is_not_found());
    let page = respond_with(text(200, "\u{feff}<html>")).await;
    let error = client(page.uri())
        .contacts()
        .unsubscribe(ADA)
        .await
        .unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
}

#[tokio::test]
async fn a_content_encoding_that_the_client_cannot_decode_is_named() {
    for (encoding, named) in [
        (&b"br"[..], "the content encoding `br`, which"),
        (b"Zstd", "the content encoding `Zstd`, which"),
        (b"GZIP", "the content encoding `GZIP`, which"),
        (b"hunter2@x.io", "a content encoding that"),
        (b"identity, br", "a content encoding that"),
        (b"\xfc", "a content encoding that"),
    ] {
        let encoded = status(200).insert_header("content-encoding", encoding);
        let server = respond_with(encoded.set_body_bytes([0x8b, 0x07, 0x80])).await;
        let contacts = client(server.uri()).contacts();

        let read = contacts.retrieve(ADA).await;
        let written = contacts.unsubscribe(ADA).await;

        assert_eq!(written.as_ref().unwrap_err().outcome(), Outcome::Unknown);
        let text = format!(": the response has {named} the client cannot decode");
        assert_decode_error(read, &text);
        assert_decode_error(written, &text);
    }
}

#[tokio::test]
async fn a_body_that_needs_no_decoding_is_read_as_if_it_had_no_content_encoding() {
    for encoding in ["identity", "IDENTITY", "Identity, identity", ""] {
        let response = text(200, "OK").insert_header("content-encoding", encoding);
        let server = respond_with(response).await;

        let written = client(server.uri()).contacts().create(ADA).await;

        assert_eq!(
            written.unwrap_err().outcome(),
            Outcome::Applied,
            "{encoding}"
        );
    }
    for code in [200, 204] {
        let server =
            respond_with(
                move |request: &wiremock::Request| match request.method.as_str() {
                    "GET" => ok(contact()),
                    _ => status(code).insert_header("content-encoding", "br"),
                },
            )
            .await;

        let contact = client(server.uri()).contacts().unsubscribe(ADA).await;

        assert_eq!(contact.unwrap().email, ADA, "{code}");
    }
}

#[tokio::test]
async fn a_page_with_items_but_without_any_cursor_is_an_error_and_not_an_end() {
    for last in [
        json!({}),
        json!({"id": ""}),
        json!({"id": null}),
        json!([]),
        json!(5),
        summary(""),
    ] {
        let (_server, client) = client_of(&json!({"data": [summary("c9"), last]})).await;
        let list = client.contacts().list();

        let paged = list.clone().await;
        let streamed = list.clone().stream().try_collect::<Vec<_>>().await;
        let counted = list.count().await;

        let message =
            "list: the page has no cursor: `next` is missing, and its last item has no id";
        assert_decode_error(paged, message);
        assert_decode_error(streamed, message);
        assert_decode_error(counted, message);
    }
}

#[tokio::test]
async fn a_decode_error_gives_access_to_the_body_and_never_prints_it() {
    let body = with(contact(), "unsubscribed", "hunter2");
    let (_server, client) = client_of(&body).await;
    let contacts = client.contacts();

    let typed = contacts.retrieve(ADA).await.unwrap_err();
    let counted = contacts
        .create_batch([NewContact::new(ADA)])
        .await
        .unwrap_err();
    let raw = contacts
        .merge_properties(ADA, [("seats", 3)])
        .await
        .unwrap();
    let raw = raw.json::<Vec<u8>>().unwrap_err();

    for error in [typed, counted, raw] {
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert_eq!(error.body(), Some(body.to_string().as_bytes()));
        assert!(!printed(&error).contains("hunter2"));
    }
}

#[tokio::test]
async fn the_body_of_a_refusal_is_the_body_of_its_error() {
    let server = respond_with(text(422, r#"{"code": "validation_error"}"#)).await;

    let error = client(server.uri())
        .contacts()
        .retrieve(ADA)
        .await
        .unwrap_err();

    assert_eq!(error.body(), Some(&br#"{"code": "validation_error"}"#[..]));
}

/// A response with bytes that are not UTF-8 in place of the question mark.
fn latin(json: &Value) -> ResponseTemplate {
    let text = json.to_string();
    let (before, after) = text.split_once('?').unwrap();
    let bytes = [before.as_bytes(), b"Z\xf6", after.as_bytes()].concat();
    status(200).set_body_raw(bytes, "application/json")
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_make_their_contact_malformed_and_not_the_page() {
    let data = json!([
        summary("c9"),
        with(summary("bad"), "first_name", json!("?"))
    ]);
    let server = respond_with(latin(&json!({"data": data, "next": "bad"}))).await;

    let page = client(server.uri()).contacts().list().await.unwrap();

    assert_eq!(page.data.len(), 1);
    let (index, error) = page.malformed().next().unwrap();
    assert_eq!((index, error.kind()), (1, ErrorKind::Decode));
    assert_eq!(page.cursor(), Some("bad"));
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_in_a_member_that_nobody_reads_change_no_count() {
    let data = json!([with(summary("c9"), "note", json!("?"))]);
    let pages = [
        latin(&json!({"data": data, "next": "c9"})),
        ok(json!({"data": []})),
    ];
    let server = respond_in_turn(pages).await;

    assert_eq!(
        client(server.uri())
            .contacts()
            .list()
            .count()
            .await
            .unwrap(),
        1
    );
}

#[tokio::test]
async fn an_opt_out_of_a_contact_whose_name_is_not_utf_8_is_applied() {
    let body = with(contact(), "first_name", json!("?"));
    let server = respond_with(latin(&body)).await;

    let error = client(server.uri()).contacts().unsubscribe(ADA).await;

    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(error.outcome(), Outcome::Applied);
}
