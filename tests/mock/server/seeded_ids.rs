//! Contacts whose ids a seed pins, and the keys and the dialect of a seed.

use audience::mock::dialect::{EndOfList, MissingName};
use audience::mock::{Dialect, MockServer, SeedContact};
use serde_json::{Value, json};

use super::control::call;
use super::{get, get_unchecked, json_of, stopped_server};

async fn ids_after(server: &MockServer, after: &str) -> Vec<String> {
    let page = json_of(
        get(server, &format!("/contacts?after={after}"))
            .await
            .unwrap(),
    )
    .await;
    let contacts = page["data"].as_array().unwrap().iter();
    contacts
        .map(|contact| contact["id"].as_str().unwrap().to_owned())
        .collect()
}

fn ids(server: &MockServer) -> Vec<String> {
    server
        .contacts()
        .into_iter()
        .map(|contact| contact.id)
        .collect()
}

#[tokio::test]
async fn a_pinned_id_is_returned_and_is_a_cursor() {
    let server = stopped_server().await;

    server.seed(json!({"contacts": [
        {"email": "a@x.io"}, {"email": "b@x.io", "id": "bob"}, {"email": "c@x.io"},
    ]}));

    assert_eq!(ids(&server), ["con_00000003", "bob", "con_00000001"]);
    assert_eq!(ids_after(&server, "bob").await, ["con_00000001"]);
    assert_eq!(
        ids_after(&server, "con_00000003").await,
        ["bob", "con_00000001"]
    );
    let bob = json_of(get(&server, "/contacts/b@x.io").await.unwrap()).await;
    assert_eq!(bob["id"], "bob");
}

#[tokio::test]
async fn an_id_that_a_seed_pins_is_never_generated() {
    let server = stopped_server().await;

    server.seed(json!({"contacts": [
        {"email": "a@x.io", "id": "con_00000001"}, {"email": "b@x.io", "id": "con_00000003"}, {"email": "c@x.io"},
    ]}));
    for address in ["d@x.io", "e@x.io"] {
        server.seed_contact(address);
    }

    let mut all = ids(&server);
    assert_eq!(all[2..], ["con_00000001", "con_00000003", "con_00000002"]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 5, "{all:?}");
    for (index, contact) in server.contacts().iter().enumerate() {
        assert_eq!(
            ids_after(&server, &contact.id).await.len(),
            4 - index,
            "{}",
            contact.id
        );
    }
}

#[tokio::test]
async fn an_id_that_no_contact_has_any_more_is_generated_again() {
    let server = stopped_server().await;
    for id in ["con_00000002", "ada"] {
        server.seed(json!({"contacts": [{"email": "a@x.io", "id": id}]}));
    }

    server.seed_contact("b@x.io");

    assert_eq!(ids(&server), ["con_00000002", "ada"]);
}

#[tokio::test]
async fn a_copy_of_every_contact_has_the_same_ids_in_any_order_of_creation() {
    let server = stopped_server().await;
    for (address, created_at) in [("a@x.io", 5), ("b@x.io", 9), ("c@x.io", 1), ("d@x.io", 7)] {
        server.seed_contact(SeedContact::new(address).created_at(created_at));
    }

    let copy = stopped_server().await;
    copy.seed(json!({"contacts": server.contacts()}));

    assert_eq!(copy.contacts(), server.contacts());
    assert_eq!(
        ids(&copy),
        [
            "con_00000002",
            "con_00000004",
            "con_00000001",
            "con_00000003"
        ]
    );
    for id in ids(&copy) {
        assert_eq!(
            ids_after(&copy, &id).await,
            ids_after(&server, &id).await,
            "{id}"
        );
    }
    copy.seed(json!({"contacts": server.contacts()}));
    assert_eq!(copy.contacts(), server.contacts());
    copy.seed_contact("new@x.io");
    assert_eq!(copy.contact("new@x.io").unwrap().id, "con_00000005");
}

#[tokio::test]
async fn two_contacts_can_swap_their_ids_in_one_seed() {
    for (one, other) in [("x", "y"), ("con_00000001", "con_00000002")] {
        let server = stopped_server().await;
        server.seed_contact(SeedContact::new("a@x.io").id(one));
        server.seed_contact(SeedContact::new("b@x.io").id(other));

        server.seed(
            json!({"contacts": [{"email": "a@x.io", "id": other}, {"email": "b@x.io", "id": one}]}),
        );

        assert_eq!(server.contact("a@x.io").unwrap().id, other);
        assert_eq!(server.contact("b@x.io").unwrap().id, one);
        assert_eq!(ids_after(&server, one).await, [other]);
    }
}

#[tokio::test]
async fn an_id_that_moves_to_another_contact_is_not_generated_in_the_same_seed() {
    let server = stopped_server().await;
    server.seed_contact(SeedContact::new("ada@x.io").id("con_00000003"));
    server.seed_contact("bob@x.io");

    server.seed(json!({"contacts": [
        {"email": "eve@x.io", "id": "con_00000003"}, {"email": "dan@x.io"}, {"email": "ada@x.io", "id": "con_ada"},
    ]}));

    let all = ["con_00000003", "con_00000004", "con_00000002", "con_ada"];
    assert_eq!(ids(&server), all);
    for (index, id) in all.iter().enumerate() {
        assert_eq!(ids_after(&server, id).await, all[index + 1..], "{id}");
    }
}

#[tokio::test]
async fn an_id_that_another_contact_has_or_keeps_is_refused() {
    let server = stopped_server().await;
    server.seed(json!({"contacts": [{"email": "a@x.io", "id": "ada"}, {"email": "b@x.io"}]}));
    for seed in [
        json!({"contacts": [{"email": "c@x.io", "id": "ada"}]}),
        json!({"contacts": [{"email": "c@x.io", "id": "con_00000001"}]}),
        json!({"contacts": [{"email": "c@x.io", "id": "ada"}, {"email": "a@x.io"}]}),
        json!({"contacts": [{"email": "c@x.io", "id": "i"}, {"email": "d@x.io", "id": "i"}]}),
    ] {
        let (status, error) = call(&server, "POST", "seed", seed.clone()).await;

        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(status, 422, "{seed}");
        assert!(message.contains("which another contact has"), "{message}");
        assert_eq!(server.contact_count(), 2);
    }
    let body = json!({"id": "ada"});
    let (status, _) = call(&server, "PUT", "contacts/b@x.io", body).await;
    assert_eq!(status, 422);
    let (status, _) = call(&server, "PUT", "contacts/a@x.io", json!({"id": "new"})).await;
    assert_eq!(status, 200);
    server.seed_contact(SeedContact::new("b@x.io").id("ada"));
    assert_eq!(ids(&server), ["new", "ada"]);
}

#[tokio::test]
async fn a_server_has_the_keys_and_the_dialect_of_its_seeds_unless_its_builder_has_others() {
    let first =
        json!({"keys": {"full": "f1", "sending": "s1"}, "dialect": {"end_of_list": "null"}});
    let second = json!({"keys": {"full": "f2"}, "dialect": {"missing_name": "null"}});
    let builder = MockServer::builder().seed(first).seed(second);
    let server = builder.clone().start().await;

    assert_eq!((server.full_key(), server.sending_key()), ("f2", "s1"));
    let page = json_of(get_unchecked(&server, "/contacts").await.unwrap()).await;
    assert_eq!(page["next"], Value::Null);

    let dialect = Dialect {
        end_of_list: EndOfList::Absent,
        missing_name: MissingName::Absent,
        ..Dialect::default()
    };
    let server = builder.full_key("own").dialect(dialect).start().await;

    assert_eq!((server.full_key(), server.sending_key()), ("own", "s1"));
    let page = json_of(get_unchecked(&server, "/contacts").await.unwrap()).await;
    assert_eq!(page, json!({"data": []}));
}

#[tokio::test]
async fn a_running_server_accepts_only_the_keys_and_the_dialect_that_it_has() {
    let seed = json!({"keys": {"full": "f-12345"}, "dialect": {"end_of_list": "null"}, "topics": {"news": true}});
    let server = MockServer::builder().seed(seed.clone()).start().await;

    assert_eq!(call(&server, "POST", "seed", seed).await.0, 204);
    for (seed, reason) in [
        (
            json!({"keys": {"full": "other-12345"}}),
            "`keys.full` is not what the mock was started with",
        ),
        (
            json!({"keys": {"sending": "other-12345"}}),
            "`keys.sending` is not",
        ),
        (
            json!({"dialect": {"end_of_list": "empty"}}),
            "`dialect` is not",
        ),
    ] {
        let mut whole = seed.clone();
        whole["topics"] = json!({"offers": true});
        let (status, error) = call(&server, "POST", "seed", whole).await;

        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(status, 422, "{seed}");
        assert!(
            message.contains(reason) && !message.contains("12345"),
            "{message}"
        );
    }
    server.seed_contact("ada@example.com");
    assert_eq!(server.contacts()[0].topics.len(), 1);
}
