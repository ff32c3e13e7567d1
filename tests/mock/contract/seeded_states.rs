//! Seeded contacts behave as if requests and spam reports had led to their state (sections 2.1, 3.1, 3.2 and 4.4).

use audience::Timestamp;
use audience::mock::dialect::PropertyValues;
use audience::mock::{Dialect, EngagementKind, Reason, SeedContact};
use serde_json::{Value, json};

use super::{Api, NOW, strings};

const ADA: &str = "ada@example.com";

fn api() -> Api {
    Api::with(|builder| builder.topic("news", true).topic("offers", false))
}

#[test]
fn section_2_1_a_seeded_contact_is_retrieved_with_all_its_members() {
    let api = api();

    let stored = api.server.seed_contact(
        SeedContact::new(" Ada@Example.COM ")
            .first_name("Ada")
            .last_name("Lovelace")
            .property("plan", "pro")
            .properties([("seats", 3), ("rank", 1)])
            .created_at(1_600_000_000)
            .unsubscribed(Reason::Preferences)
            .answer("news", false),
    );

    assert_eq!(
        api.retrieve(ADA),
        json!({"id": stored.id, "email": ADA, "first_name": "Ada", "last_name": "Lovelace",
            "properties": {"plan": "pro", "seats": 3, "rank": 1}, "unsubscribed": true,
            "unsubscribe_reason": "preferences", "created_at": 1_600_000_000,
            "topics": {"news": false, "offers": false}})
    );
    assert_eq!(
        stored.answers.into_iter().collect::<Vec<_>>(),
        [("news".to_owned(), false)]
    );
}

#[test]
fn section_3_1_every_consent_state_can_be_seeded() {
    for (reason, value) in [
        (Reason::None, ""),
        (Reason::Manual, "manual"),
        (Reason::Preferences, "preferences"),
        (Reason::Complaint, "complaint"),
    ] {
        let api = api();

        api.server
            .seed_contact(SeedContact::new(ADA).unsubscribed(reason));

        let ada = api.retrieve(ADA);
        assert_eq!(ada["unsubscribed"], true);
        assert_eq!(ada["unsubscribe_reason"], value);
        assert_eq!(ada["topics"], json!({"news": true, "offers": false}));
    }
    let api = api();
    api.server
        .seed_contact(SeedContact::new(ADA).resubscribed(Reason::Manual));
    let ada = api.retrieve(ADA);
    assert_eq!(
        (&ada["unsubscribed"], &ada["unsubscribe_reason"]),
        (&json!(false), &json!("manual"))
    );
}

#[test]
fn section_3_2_a_seeded_complaint_cannot_be_undone_and_a_seeded_opt_out_can() {
    let api = api();
    api.server
        .seed_contact(SeedContact::new(ADA).unsubscribed(Reason::Complaint));
    api.server
        .seed_contact(SeedContact::new("bob@example.com").unsubscribed(Reason::Manual));

    api.subscribe(ADA, ()).refused(422, "failed_precondition");
    let bob = api.subscribe("bob@example.com", ()).expect(200);

    assert_eq!(bob["unsubscribed"], false);
}

#[test]
fn section_3_1_a_seeded_complaint_suppresses_the_address_and_counts_as_engagement() {
    let api = api();

    let ada = api
        .server
        .seed_contact(SeedContact::new(ADA).unsubscribed(Reason::Complaint));
    api.server.seed_contact(
        SeedContact::new("bob@example.com")
            .unsubscribed(Reason::Complaint)
            .engaged(EngagementKind::Complained, 1_600_000_000),
    );

    assert!(ada.suppressed);
    assert_eq!(
        ada.engagement[&EngagementKind::Complained],
        Timestamp::from_unix(NOW)
    );
    let recent =
        json!({"field": "engagement", "what": "complained", "op": "within_days", "days": 1});
    assert_eq!(api.matching(recent), [ADA]);
}

#[test]
fn a_contact_that_is_seeded_again_has_only_its_new_state() {
    let api = api();
    let first = api.server.seed_contact(
        SeedContact::new(ADA)
            .first_name("Ada")
            .property("plan", "pro")
            .unsubscribed(Reason::Complaint)
            .engaged(EngagementKind::Opened, NOW)
            .answer("news", false),
    );

    let second = api.server.seed_contact("ADA@example.com");

    assert_eq!(second.id, first.id);
    assert_eq!(api.server.contacts(), std::slice::from_ref(&second));
    assert!(second.answers.is_empty() && second.engagement.is_empty() && !second.suppressed);
    assert_eq!(second.first_name, None);
    api.subscribe(ADA, ()).expect(200);
}

#[test]
fn section_4_4_the_creation_time_decides_the_place_in_the_list() {
    let api = api();
    for (address, at) in [
        ("c@x.io", NOW),
        ("max@x.io", i64::MAX),
        ("b@x.io", -1),
        ("min@x.io", i64::MIN),
        ("a@x.io", -1),
    ] {
        api.server
            .seed_contact(SeedContact::new(address).created_at(at));
    }
    let order = ["max@x.io", "c@x.io", "a@x.io", "b@x.io", "min@x.io"];
    assert_eq!(api.listed(&[]), order);

    api.server
        .seed_contact(SeedContact::new("c@x.io").created_at(-1));

    let page = api.list(&[("limit", "2")]).expect(200);
    assert_eq!(strings(&page["data"], "email"), ["max@x.io", "a@x.io"]);
    let rest = [("after", page["next"].as_str().unwrap())];
    assert_eq!(api.listed(&rest), ["b@x.io", "c@x.io", "min@x.io"]);
    let addresses: Vec<String> = api
        .server
        .contacts()
        .into_iter()
        .map(|contact| contact.email)
        .collect();
    assert_eq!(addresses, api.listed(&[]));
    assert_eq!(
        api.matching(json!({"field": "joined_before_days", "days": 1_000_000})),
        ["min@x.io"]
    );
}

#[test]
fn ids_of_seeded_and_created_contacts_are_unique() {
    let api = api();
    api.server
        .seed_contact(SeedContact::new("a@x.io").created_at(5));
    api.create("b@x.io");
    api.server
        .seed_contact(SeedContact::new("a@x.io").created_at(NOW + 5));
    api.server.seed_contact("c@x.io");
    api.create("d@x.io");

    let mut ids: Vec<String> = api
        .server
        .contacts()
        .into_iter()
        .map(|contact| contact.id)
        .collect();

    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    for id in &ids {
        api.list(&[("after", id)]).expect(200);
    }
}

#[test]
fn section_8_a_seed_may_exceed_the_ceiling_and_a_request_may_not() {
    let api = Api::with(|builder| builder.contact_ceiling(1));

    api.server.seed_contact("a@x.io");
    api.server
        .seed(json!({"contacts": [{"email": "b@x.io"}, {"email": "c@x.io"}]}));

    assert_eq!(api.server.contact_count(), 3);
    api.post("/contacts", json!({"email": "d@x.io"}))
        .refused(402, "quota_exceeded");
}

/// Seeds a contact and returns the message of the panic.
fn refusal(api: &Api, contact: SeedContact) -> String {
    let before = api.server.contacts();
    let seeding = std::panic::AssertUnwindSafe(|| api.server.seed_contact(contact));
    let panic = std::panic::catch_unwind(seeding).expect_err("the contact is invalid");
    assert_eq!(api.server.contacts(), before);
    *panic.downcast::<String>().expect("a formatted message")
}

#[test]
fn a_contact_that_the_document_does_not_allow_is_refused_with_the_reason() {
    let api = api();
    let ada = || SeedContact::new(ADA);
    for (contact, reason) in [
        (SeedContact::new(""), "`email` must be an email address"),
        (
            SeedContact::new("ada"),
            "`email` must be an email address, not \"ada\"",
        ),
        (
            ada().property("tags", json!([])),
            "`properties.tags` must be a string or a number, not []",
        ),
        (
            ada().property("rate", f64::NAN),
            "`properties.rate` must be a string or a number, not null",
        ),
        (
            ada().answer("sport", true),
            "names the topic `sport`, which does not exist; add the topic first",
        ),
        (
            ada().resubscribed(Reason::Complaint),
            "`unsubscribed` must be true",
        ),
        (
            ada().unsubscribed(Reason::Complaint).suppressed(false),
            "`suppressed` must be true",
        ),
    ] {
        let message = refusal(&api, contact);

        assert!(
            message.starts_with("the seeded contact is invalid: "),
            "{message}"
        );
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn property_values_follow_the_dialect() {
    let api = Api::with_dialect(Dialect {
        property_values: PropertyValues::Any,
        ..Dialect::default()
    });

    api.server
        .seed_contact(SeedContact::new(ADA).property("tags", json!(["a"])));

    assert_eq!(api.retrieve(ADA)["properties"], json!({"tags": ["a"]}));
}

#[test]
fn a_retrieved_contact_can_be_seeded_under_every_dialect() {
    for dialect in Dialect::all() {
        let api = Api::with_dialect_and(dialect, |builder| builder.topic("news", true));
        api.server.seed_contact(
            SeedContact::new(ADA)
                .property("plan", "pro")
                .unsubscribed(Reason::Manual),
        );
        let retrieve = |api: &Api| -> Value {
            serde_json::from_slice(&api.get(super::contact(ADA)).body).unwrap()
        };
        let retrieved = retrieve(&api);

        let copy = Api::with_dialect_and(dialect, |builder| builder.topic("news", true));
        copy.server.seed(json!({"contacts": [retrieved]}));

        assert_eq!(retrieve(&copy), retrieved, "{dialect}");
    }
}
