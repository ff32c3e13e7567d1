//! Create, retrieve, merge and list one page, against prepared responses.

use audience::contacts::{
    Contact, NewContact, OnConflict, Properties, PropertyValue, Reachability, UnsubscribeReason,
};
use audience::{ErrorKind, Timestamp};
use serde_json::{Value, json};

use support::{
    ADA, contact, contacts, ok, received, record, respond_in_turn, respond_with, status, summary,
    text, with, without,
};

#[tokio::test]
async fn create_sends_the_members_that_are_set_and_reads_the_contact() {
    let server = respond_with(status(201).set_body_json(record())).await;
    let ada = NewContact::new(" Ada@Example.com")
        .first_name("Ada")
        .last_name("Lovelace")
        .property("plan", "pro")
        .property("seats", 3)
        .on_conflict(OnConflict::Skip);

    let created = contacts(server.uri()).create(ada).await.unwrap();

    let request = &received(&server).await[0];
    assert_eq!(request.method.as_str(), "POST");
    assert_eq!(
        (request.url.path(), request.url.query()),
        ("/contacts", None)
    );
    assert_eq!(
        request.body_json::<Value>().unwrap(),
        json!({"email": " Ada@Example.com", "first_name": "Ada", "last_name": "Lovelace",
            "properties": {"plan": "pro", "seats": 3}, "on_conflict": "skip"}),
        "the address is sent unchanged; the service trims it"
    );
    let contact = &created.contact;
    assert_eq!(
        (contact.id.as_str(), contact.email.as_str()),
        ("con_1", ADA)
    );
    assert_eq!(contact.first_name.as_deref(), Some("Ada"));
    assert_eq!(contact.last_name.as_deref(), Some("Lovelace"));
    assert_eq!(
        contact.properties,
        Properties::from_iter([("plan", PropertyValue::from("pro")), ("seats", 3.into())])
    );
    assert!(contact.unsubscribed);
    assert_eq!(contact.created_at, Timestamp::from_unix(1_700_000_000));
}

#[tokio::test]
async fn only_a_201_means_that_the_contact_is_new() {
    for (code, is_new) in [(201, true), (200, false), (202, false)] {
        let server = respond_with(status(code).set_body_json(record())).await;

        let created = contacts(server.uri())
            .create(NewContact::new(ADA))
            .await
            .unwrap();

        assert_eq!(
            (created.is_new(), created.attempts()),
            (is_new, 1),
            "{code}"
        );
    }
}

#[tokio::test]
async fn a_200_after_a_failed_attempt_reports_two_attempts() {
    let server = respond_in_turn([status(503), ok(record())]).await;

    let created = contacts(server.uri())
        .create(NewContact::new(ADA))
        .await
        .unwrap();

    assert_eq!((created.is_new(), created.attempts()), (false, 2));
}

#[tokio::test]
async fn empty_properties_are_sent_and_unset_properties_are_not() {
    let server = respond_with(ok(record())).await;
    let contacts = contacts(server.uri());

    contacts
        .create(NewContact::new(ADA).properties(Properties::new()))
        .await
        .unwrap();
    contacts.create(NewContact::new(ADA)).await.unwrap();

    let bodies: Vec<Value> = received(&server)
        .await
        .iter()
        .map(|request| request.body_json().unwrap())
        .collect();
    assert_eq!(
        bodies,
        [
            json!({"email": ADA, "properties": {}}),
            json!({"email": ADA})
        ]
    );
}

#[tokio::test]
async fn a_number_that_json_cannot_represent_is_refused_and_nothing_is_sent() {
    let server = respond_with(ok(record())).await;
    let contacts = contacts(server.uri());

    let created = contacts
        .create(NewContact::new(ADA).property("rate", f64::NAN))
        .await;
    let merged = contacts
        .merge_properties(ADA, [("rate", f64::INFINITY)])
        .await;

    assert_eq!(created.unwrap_err().kind(), ErrorKind::Input);
    assert_eq!(merged.unwrap_err().kind(), ErrorKind::Input);
    assert!(received(&server).await.is_empty());
}

#[tokio::test]
async fn retrieve_reads_every_member_of_the_full_form() {
    let server = respond_with(ok(contact())).await;

    let contact = contacts(server.uri()).retrieve(ADA).await.unwrap();

    let request = &received(&server).await[0];
    assert_eq!(
        (request.method.as_str(), request.url.path()),
        ("GET", "/contacts/ada%40example.com")
    );
    assert!(request.body.is_empty());
    assert_eq!(contact.id, "con_1");
    assert_eq!(contact.email, ADA);
    assert_eq!(contact.first_name.as_deref(), Some("Ada"));
    assert_eq!(contact.last_name.as_deref(), Some("Lovelace"));
    assert_eq!(
        (&contact.properties["plan"], &contact.properties["seats"]),
        (&"pro".into(), &3.into())
    );
    assert!(contact.unsubscribed);
    assert_eq!(
        contact.unsubscribe_reason,
        Some(UnsubscribeReason::Preferences)
    );
    assert_eq!(contact.created_at.as_unix(), 1_700_000_000);
    assert_eq!(contact.topics.get("news"), Some(&true));
    assert_eq!(contact.topics.get("offers"), Some(&false));
    assert_eq!(contact.topics.get("unknown"), None);
}

#[tokio::test]
async fn a_missing_null_or_empty_member_is_none() {
    let missing = without(
        contact(),
        &[
            "first_name",
            "last_name",
            "unsubscribe_reason",
            "topics",
            "properties",
        ],
    );
    let mut null = contact();
    let mut empty = contact();
    for name in ["first_name", "last_name", "unsubscribe_reason"] {
        (null[name], empty[name]) = (Value::Null, "".into());
    }
    for name in ["topics", "properties"] {
        (null[name], empty[name]) = (Value::Null, json!({}));
    }

    for form in [missing, null, empty] {
        let server = respond_with(ok(&form)).await;

        let contact = contacts(server.uri()).retrieve(ADA).await.unwrap();

        assert_eq!(
            (contact.first_name, contact.last_name),
            (None, None),
            "{form}"
        );
        assert_eq!(contact.unsubscribe_reason, None, "{form}");
        assert!(
            contact.properties.is_empty() && contact.topics.is_empty(),
            "{form}"
        );
    }
}

#[tokio::test]
async fn unknown_reasons_and_values_are_kept_and_unknown_members_ignored() {
    let mut unknown = with(contact(), "unsubscribe_reason", "moved abroad");
    unknown["properties"] = json!({"vip": true, "tags": ["a", 1], "big": 18_446_744_073_709_551_615_u64, "half": 0.5, "none": null});
    unknown["created_at"] = (-62_135_596_800_i64).into();
    unknown["brand_new"] = json!({"anything": [1]});
    let server = respond_with(ok(&unknown)).await;

    let contact = contacts(server.uri()).retrieve(ADA).await.unwrap();

    assert_eq!(
        contact.unsubscribe_reason,
        Some(UnsubscribeReason::Other("moved abroad".into()))
    );
    assert_eq!(
        serde_json::to_value(&contact.properties).unwrap(),
        unknown["properties"]
    );
    assert_eq!(contact.created_at.to_string(), "0001-01-01T00:00:00Z");
}

#[tokio::test]
async fn a_complaint_is_read_as_the_reason() {
    let server = respond_with(ok(with(contact(), "unsubscribe_reason", "complaint"))).await;

    let contact = contacts(server.uri()).retrieve(ADA).await.unwrap();

    assert_eq!(
        contact.unsubscribe_reason,
        Some(UnsubscribeReason::Complaint)
    );
}

#[tokio::test]
async fn merge_sends_only_the_properties_and_returns_the_raw_response() {
    let server = respond_with(text(202, r#"{"merged": 1}"#).insert_header("x-request", "7")).await;

    let raw = contacts(server.uri())
        .merge_properties(ADA, [("seats", 3)])
        .await
        .unwrap();

    let request = &received(&server).await[0];
    assert_eq!(
        (request.method.as_str(), request.url.path()),
        ("PATCH", "/contacts/ada%40example.com")
    );
    assert_eq!(
        request.body_json::<Value>().unwrap(),
        json!({"properties": {"seats": 3}})
    );
    assert_eq!((raw.status().as_u16(), raw.attempts()), (202, 1));
    assert_eq!(raw.headers()["x-request"], "7");
    assert_eq!(raw.bytes().as_ref(), br#"{"merged": 1}"#);
    assert_eq!(raw.json::<Value>().unwrap(), json!({"merged": 1}));
    assert_eq!(raw.json::<Vec<u8>>().unwrap_err().kind(), ErrorKind::Decode);
}

#[tokio::test]
async fn a_raw_response_may_have_an_empty_body() {
    let server = respond_with(status(204)).await;

    let raw = contacts(server.uri())
        .merge_properties(ADA, [("seats", 3)])
        .await
        .unwrap();

    assert_eq!((raw.status().as_u16(), raw.bytes().len()), (204, 0));
}

#[tokio::test]
async fn a_list_has_contacts_in_the_short_form() {
    let page = json!({"data": [summary("con_9"), with(summary("con_8"), "first_name", Value::Null)], "next": "con_8"});
    let server = respond_with(ok(page)).await;

    let page = contacts(server.uri()).list().await.unwrap();

    assert_eq!(page.next.as_deref(), Some("con_8"));
    let [first, second] = &page.data[..] else {
        panic!("{page:?}")
    };
    assert_eq!(
        (first.id.as_str(), first.first_name.as_deref()),
        ("con_9", Some("Ada"))
    );
    assert_eq!(
        (second.id.as_str(), second.first_name.as_deref()),
        ("con_8", None)
    );
    assert!(first.unsubscribed);
    assert_eq!(first.properties["plan"], "pro");
}

#[tokio::test]
async fn a_number_of_64_bits_is_kept_exactly_and_a_larger_one_is_rounded() {
    let json = contact().to_string();
    let json = json.replace(
        r#"{"plan":"pro","seats":3}"#,
        r#"{"a":18446744073709551615,"b":18446744073709551616,"c":-9223372036854775808,"g":0.1}"#,
    );
    let server = respond_with(text(200, json)).await;
    let contacts = contacts(server.uri());

    let contact = contacts.retrieve(ADA).await.unwrap();
    contacts
        .create(NewContact::new(ADA).properties(contact.properties.clone()))
        .await
        .unwrap();

    assert_eq!(contact.properties["a"].as_u64(), Some(u64::MAX));
    assert_eq!(
        contact.properties["b"].as_f64(),
        Some(18_446_744_073_709_551_616.0)
    );
    assert_eq!(contact.properties["c"].as_i64(), Some(i64::MIN));
    let sent = &received(&server).await[1].body;
    let sent = String::from_utf8(sent.clone()).unwrap();
    let properties =
        r#"{"a":18446744073709551615,"b":1.8446744073709552e+19,"c":-9223372036854775808,"g":0.1}"#;
    assert!(sent.contains(properties), "{sent}");
}

#[test]
fn each_reachability_has_its_own_words_and_only_one_is_reachable() {
    for (reachability, words) in [
        (Reachability::Reachable, "nothing is known that prevents"),
        (Reachability::SpamReport, "a mailbox provider reported spam"),
        (Reachability::OptedOutByPerson, "the person opted out"),
        (
            Reachability::OptedOutBySender,
            "the sender recorded an opt-out",
        ),
        (
            Reachability::OptedOut,
            "the contact is opted out of everything",
        ),
        (
            Reachability::TopicOptedOut,
            "the contact opted out of the topic",
        ),
        (Reachability::UnknownTopic, "there is no topic"),
        (Reachability::NotShown, "not known"),
    ] {
        assert!(
            reachability.to_string().starts_with(words),
            "{reachability}"
        );
        let is_reachable = reachability == Reachability::Reachable;
        assert_eq!(reachability.is_reachable(), is_reachable, "{reachability}");
    }
}

#[test]
fn the_error_of_an_invalid_map_says_what_was_expected() {
    let contact = with(contact(), "properties", 5);

    let error = serde_json::from_value::<Contact>(contact).unwrap_err();

    assert!(error.to_string().contains("expected an object"), "{error}");
}
