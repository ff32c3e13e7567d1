//! Seeds: contacts and whole audiences that a test starts with, in Rust and over the control plane.

use audience::contacts::NewContact;
use audience::mock::{MockServer, Reason, SeedContact};
use serde_json::{Value, json};

use super::control::{NO_CONTENT, call};
use super::{START, get, json_of, post, stopped_server};
use crate::receiver::{Receiver, SECRET};

/// A seed with every member.
fn whole_seed() -> Value {
    json!({
        "clock": START + 100,
        "ceiling": 4,
        "topics": {"news": true, "offers": false},
        "segments": {
            "seg_1": {"contacts": ["Ada@example.com"]},
            "seg_2": {"rule": {"match_": "all", "conditions": [
                {"field": "engagement", "what": "opened", "op": "ever"},
            ]}},
        },
        "endpoints": {"crm": {"url": "http://127.0.0.1:9/hook", "secret": SECRET}},
        "contacts": [
            {"email": "new@example.com"},
            {"id": "pasted", "email": "ada@example.com", "first_name": "Ada", "last_name": null,
                "properties": {"plan": "pro"}, "unsubscribed": false, "unsubscribe_reason": "",
                "created_at": START, "topics": {"news": false, "offers": false}},
            {"email": "old@example.com", "created_at": -5, "unsubscribe_reason": "complaint",
                "answers": {"news": false}, "engagement": {"opened": START}},
        ],
    })
}

fn addresses(server: &MockServer) -> Vec<String> {
    server
        .contacts()
        .into_iter()
        .map(|contact| contact.email)
        .collect()
}

async fn listed(server: &MockServer, query: &str) -> Vec<String> {
    let page = json_of(get(server, &format!("/contacts?{query}")).await.unwrap()).await;
    let contacts = page["data"].as_array().unwrap().iter();
    contacts
        .map(|contact| contact["email"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_seed_sets_everything_it_names() {
    let server = stopped_server().await;

    server.seed(whole_seed());

    assert_eq!(server.now().as_unix(), START + 100);
    assert_eq!(
        addresses(&server),
        ["new@example.com", "ada@example.com", "old@example.com"]
    );
    assert_eq!(
        listed(&server, "segment_id=seg_1").await,
        ["ada@example.com"]
    );
    assert_eq!(
        listed(&server, "segment_id=seg_2").await,
        ["old@example.com"]
    );
    let [new, ada, old] = &server.contacts()[..] else {
        panic!("three contacts were seeded");
    };
    assert_eq!(new.created_at.as_unix(), START + 100);
    assert_eq!(ada.answers.values().collect::<Vec<_>>(), [&false, &false]);
    assert_eq!(ada.last_name, None);
    assert!(old.unsubscribed && old.suppressed);
    assert_eq!(
        post(&server, "/contacts", &json!({"email": "a@x.io"}))
            .await
            .unwrap()
            .status(),
        201
    );
    assert_eq!(
        post(&server, "/contacts", &json!({"email": "b@x.io"}))
            .await
            .unwrap()
            .status(),
        402
    );
    assert_eq!(
        server.send_event(json!({"type": "email.sent"})).await,
        "evt_1"
    );
    assert_eq!(server.attempts()[0].endpoint, "crm");
}

#[tokio::test]
async fn a_seed_leaves_the_rest_as_it_is() {
    let server = stopped_server().await;
    server.seed(whole_seed());

    server.seed(json!({"topics": {"extra": true}, "contacts": [{"email": "NEW@example.com", "first_name": "N"}]}));

    assert_eq!(server.contact_count(), 3);
    let new = server.contact("new@example.com").unwrap();
    assert_eq!(new.first_name.as_deref(), Some("N"));
    assert_eq!(
        new.topics.keys().collect::<Vec<_>>(),
        ["extra", "news", "offers"]
    );
    assert_eq!(server.now().as_unix(), START + 100);
}

#[tokio::test]
async fn seeding_causes_no_event_and_mail_to_a_seeded_complaint_is_refused() {
    let receiver = Receiver::start([]).await;
    let server = stopped_server().await;
    server.webhook_endpoint(&receiver.url, SECRET);

    server.seed_contact(SeedContact::new("ada@example.com").unsubscribed(Reason::Complaint));
    post(
        &server,
        "/emails",
        &json!({"from": "me@x.io", "to": "ada@example.com"}),
    )
    .await
    .unwrap();
    server.send_event(json!({"type": "email.opened"})).await;

    let types: Vec<_> = receiver
        .received()
        .iter()
        .map(|delivery| delivery.headers["webhook-event"].clone())
        .collect();
    assert_eq!(types, ["email.refused", "email.opened"]);
}

#[tokio::test]
async fn a_reset_goes_back_to_the_seeds_of_the_builder() {
    let server = MockServer::builder()
        .topic("sport", true)
        .seed(whole_seed())
        .seed_contact(SeedContact::new("bob@example.com").answer("sport", false))
        .start()
        .await;
    let seeded = server.contacts();
    assert_eq!(server.now().as_unix(), START + 100);

    server.seed_contact(SeedContact::new("ada@example.com").created_at(START + 1_000));
    server.seed(json!({"clock": START + 500, "topics": {"later": true}, "contacts": [{"email": "eve@example.com"}]}));
    assert_eq!(server.contact_count(), 5);
    server.reset();

    assert_eq!(server.contacts(), seeded);
    assert_eq!(seeded[0].email, "bob@example.com");
    assert_eq!(server.now().as_unix(), START + 100);
}

#[tokio::test]
async fn a_clock_and_a_ceiling_of_the_builder_win_over_those_of_its_seeds() {
    let server = MockServer::builder()
        .clock(7)
        .contact_ceiling(3)
        .seed(whole_seed())
        .start()
        .await;

    assert_eq!(server.now().as_unix(), 7);
    assert_eq!(
        server
            .contact("new@example.com")
            .unwrap()
            .created_at
            .as_unix(),
        7
    );
    let fourth = post(&server, "/contacts", &json!({"email": "a@x.io"})).await;
    assert_eq!(fourth.unwrap().status(), 402);
}

#[tokio::test]
async fn a_clock_in_a_seed_runs_what_falls_due_on_the_way() {
    let receiver = Receiver::start([500]).await;
    let server = stopped_server().await;
    server.webhook_endpoint(&receiver.url, SECRET);
    server.send_event(json!({"type": "email.opened"})).await;

    let seeded = call(&server, "POST", "seed", json!({"clock": START + 40})).await;

    assert_eq!(seeded, NO_CONTENT);
    assert_eq!(super::offsets(&server.attempts()), [0, 35]);
}

#[tokio::test]
async fn contacts_of_the_same_second_are_listed_in_the_order_of_the_seed() {
    let server = stopped_server().await;

    server
        .seed(json!({"contacts": [{"email": "a@x.io"}, {"email": "b@x.io"}, {"email": "c@x.io"}]}));

    assert_eq!(listed(&server, "").await, ["a@x.io", "b@x.io", "c@x.io"]);
}

#[tokio::test]
async fn a_contact_that_a_seed_replaces_counts_as_stored_when_it_was_first_stored() {
    let server = stopped_server().await;
    server.seed_contact("ada@example.com");
    server.seed_contact("bob@example.com");

    server.seed(json!({"contacts": [{"email": "ada@example.com"}, {"email": "new@example.com"}]}));

    assert_eq!(
        addresses(&server),
        ["new@example.com", "bob@example.com", "ada@example.com"]
    );
}

#[tokio::test]
async fn what_the_control_plane_lists_can_be_seeded_again_to_the_same_state() {
    let server = stopped_server().await;
    server.seed(whole_seed());
    for number in 0..5 {
        post(
            &server,
            "/contacts",
            &json!({"email": format!("{number}@x.io")}),
        )
        .await
        .unwrap();
    }
    server.report_spam("nobody@x.io");
    server.set_ceiling(None);
    post(&server, "/contacts", &json!({"email": "nobody@x.io"}))
        .await
        .unwrap();
    let (status, list) = call(&server, "GET", "contacts", Value::Null).await;
    assert_eq!((status, list.get("next")), (200, None));

    let copy = stopped_server().await;
    let topics = json!({"news": true, "offers": false});
    copy.seed(json!({"topics": topics, "contacts": list["data"]}));
    assert_eq!(copy.contacts(), server.contacts());
    assert_eq!(call(&copy, "GET", "contacts", Value::Null).await.1, list);

    // Into the same server too, and through the Rust type.
    let before = server.contacts();
    server.seed(json!({"contacts": list["data"]}));
    for contact in before.clone() {
        server.seed_contact(contact);
    }
    assert_eq!(server.contacts(), before);
}

#[tokio::test]
async fn the_contacts_are_listed_page_by_page() {
    let server = stopped_server().await;
    for number in 0..7 {
        server.seed_contact(format!("{number}@x.io"));
    }

    let (mut pages, mut path) = (Vec::new(), "contacts?limit=3".to_owned());
    loop {
        let (status, page) = call(&server, "GET", &path, Value::Null).await;
        assert_eq!(status, 200);
        let data = page["data"].as_array().unwrap().clone();
        path = format!("contacts?limit=3&after={}", page["next"].as_str().unwrap());
        if data.is_empty() {
            break;
        }
        pages.push(data);
    }

    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
    assert_eq!(json!(pages.concat()), json!(server.contacts()));
    let (status, error) = call(&server, "GET", "contacts?after=nobody", Value::Null).await;
    assert_eq!(status, 422);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`after`")
    );
    let empty = MockServer::start().await;
    let (_, page) = call(&empty, "GET", "contacts?limit=1", Value::Null).await;
    assert_eq!(page, json!({"data": [], "next": ""}));
}

#[tokio::test]
async fn a_contact_is_put_and_read_over_the_control_plane() {
    let server = stopped_server().await;
    server.topic("news", true);
    let body = json!({"properties": {"plan": "pro"}, "unsubscribe_reason": "manual", "topics": {"news": false}});

    let (status, put) = call(&server, "PUT", "contacts/Ada%40example.com", body).await;

    assert_eq!(status, 200);
    assert_eq!(
        put,
        json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "", "last_name": "",
            "properties": {"plan": "pro"}, "unsubscribed": true, "unsubscribe_reason": "manual", "created_at": START,
            "topics": {"news": false}, "answers": {"news": false}, "engagement": {}, "suppressed": false})
    );
    assert_eq!(
        call(&server, "GET", "contacts/ADA%40example.com", Value::Null).await,
        (200, put.clone())
    );
    // It can be sent back as it is.
    assert_eq!(
        call(&server, "PUT", "contacts/ada%40example.com", put.clone()).await,
        (200, put.clone())
    );
    // Another address in the body is a mistake.
    let (status, _) = call(&server, "PUT", "contacts/bob%40example.com", put).await;
    assert_eq!(status, 422);
    assert_eq!(
        call(&server, "GET", "contacts/bob%40example.com", Value::Null)
            .await
            .0,
        404
    );
    assert_eq!(server.contact_count(), 1);
}

#[tokio::test]
async fn seeding_while_requests_run_loses_nothing() {
    let server = MockServer::start().await;
    let contacts = server.client().contacts();

    let requests = tokio::spawn(async move {
        for number in 0..200 {
            contacts
                .create(NewContact::new(format!("r{number}@x.io")))
                .await
                .unwrap();
        }
    });
    for number in 0..200 {
        server.seed_contact(SeedContact::new(format!("s{number}@x.io")).created_at(number));
        server.seed(
            json!({"contacts": [{"email": format!("t{number}@x.io")}, {"email": "s0@x.io"}]}),
        );
        tokio::task::yield_now().await;
    }
    requests.await.unwrap();

    let mut ids: Vec<_> = server
        .contacts()
        .into_iter()
        .map(|contact| contact.id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 600);
    assert_eq!(server.contact_count(), 600);
}

#[tokio::test]
async fn a_client_of_the_server_can_have_other_settings() {
    let server = MockServer::builder()
        .auth_header("X-Api-Key")
        .full_key("k")
        .start()
        .await;

    let client = server
        .client_builder()
        .user_agent("my-app/1.0")
        .build()
        .unwrap();
    let missing = client
        .contacts()
        .retrieve("ada@example.com")
        .await
        .unwrap_err();

    assert!(missing.is_not_found());
    let [request] = &server.requests()[..] else {
        panic!("one request was sent");
    };
    assert!(
        request
            .header("user-agent")
            .unwrap()
            .starts_with("my-app/1.0")
    );
    assert_eq!(request.header("x-api-key"), Some("k"));
}
