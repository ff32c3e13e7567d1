//! The optional setters take a value or an `Option` of one, and `None` leaves the setting as it is.

use std::borrow::Cow;

use audience::contacts::{
    IntoOption, NewContact, OnConflict, OptOutReason, Properties, PropertyValue,
};
use audience::mock::MockServer;
use audience::rule::{Condition, Rule};
use serde_json::{Value, json};

use crate::support::{contacts, ok, received, respond_with};

/// A name as an application has it.
struct Name(&'static str);

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.to_owned()
    }
}

fn ada() -> NewContact {
    NewContact::new("ada@x.io")
}

fn sent(contact: NewContact) -> Value {
    serde_json::to_value(contact).unwrap()
}

#[test]
fn a_name_is_taken_in_every_form_of_text_and_as_an_option_of_it() {
    let text = String::from("Ada");
    let option = Some(text.clone());
    for contact in [
        ada().first_name("Ada"),
        ada().first_name(&text),
        ada().first_name(text.clone()),
        ada().first_name(text.clone().into_boxed_str()),
        ada().first_name(Cow::Borrowed("Ada")),
        ada().first_name(Name("Ada")),
        ada().first_name(Some("Ada")),
        ada().first_name(Some(&text)),
        ada().first_name(Some(Name("Ada"))),
        ada().first_name(&option),
        ada().first_name(option.as_deref()),
        ada().first_name(option.clone()),
    ] {
        assert_eq!(
            sent(contact),
            json!({"email": "ada@x.io", "first_name": "Ada"})
        );
    }
}

#[test]
fn a_property_is_taken_in_every_type_and_as_an_option_of_it() {
    let text = Some("3".to_owned());
    for (contact, value) in [
        (ada().property("p", 3), json!(3)),
        (ada().property("p", -3), json!(-3)),
        (ada().property("p", Some(3)), json!(3)),
        (ada().property("p", 0.5), json!(0.5)),
        (ada().property("p", Some(0.5)), json!(0.5)),
        (ada().property("p", 0.1_f32), json!(0.1)),
        (ada().property("p", 3_usize), json!(3)),
        (ada().property("p", -3_isize), json!(-3)),
        (ada().property("p", "3"), json!("3")),
        (ada().property("p", Cow::Borrowed("3")), json!("3")),
        (ada().property("p", &text), json!("3")),
        (ada().property("p", text.as_deref()), json!("3")),
        (ada().property("p", PropertyValue::from(3)), json!(3)),
        (ada().property("p", Some(json!(3))), json!(3)),
    ] {
        let expected = json!({"email": "ada@x.io", "properties": {"p": value}});
        assert_eq!(sent(contact), expected);
    }
}

#[test]
fn none_leaves_a_setting_of_a_contact_as_it_is() {
    let none = None::<&str>;
    let untouched = ada()
        .first_name(none)
        .last_name(none)
        .property("plan", none)
        .properties(None::<Properties>)
        .on_conflict(None);
    assert_eq!(sent(untouched), json!({"email": "ada@x.io"}));

    let full = ada()
        .first_name("Ada")
        .last_name("Lovelace")
        .properties([("plan", "pro")])
        .on_conflict(OnConflict::Skip);
    let kept = full
        .clone()
        .first_name(none)
        .last_name(&None::<String>)
        .property("plan", none)
        .properties(None::<Properties>)
        .on_conflict(None);
    assert_eq!(kept, full);
}

/// Functions of an application that pass a value on without naming its type.
#[test]
fn a_generic_value_can_be_passed_on() {
    fn text(name: impl Into<String>) -> NewContact {
        ada().first_name(name)
    }
    fn option(name: Option<impl Into<String>>) -> NewContact {
        ada().first_name(name)
    }
    fn either<Kind>(name: impl IntoOption<String, Kind>) -> NewContact {
        ada().first_name(name)
    }
    fn value(value: impl Into<PropertyValue>) -> NewContact {
        ada().property("plan", value)
    }

    let named = ada().first_name("Ada");
    for contact in [
        text("Ada"),
        option(Some("Ada")),
        either("Ada"),
        either(Some("Ada")),
    ] {
        assert_eq!(contact, named);
    }
    assert_eq!(value("pro"), ada().property("plan", "pro"));
}

#[tokio::test]
async fn none_leaves_a_setting_of_a_list_as_it_is() {
    let server = respond_with(ok(json!({"data": []}))).await;
    let list = || contacts(server.uri()).list();
    let rule = Rule::all([Condition::joined_within_days(7)]);
    let (text, number) = (None::<String>, None::<u32>);

    list()
        .limit(number)
        .after(&text)
        .query(&text)
        .segment(&text)
        .rule(None)
        .await
        .unwrap();
    let filtered = list()
        .limit(Some(7))
        .after(Some("c1"))
        .query("ada")
        .segment("s");
    filtered
        .limit(None)
        .after(&text)
        .query(&text)
        .segment(&text)
        .await
        .unwrap();
    list().rule(Some(rule)).rule(None).await.unwrap();

    let received = received(&server).await;
    let queries: Vec<_> = received.iter().map(|request| request.url.query()).collect();
    assert_eq!(queries[0], None);
    assert_eq!(queries[1], Some("limit=7&after=c1&query=ada&segment_id=s"));
    assert!(queries[2].unwrap().starts_with("rules="));
}

#[tokio::test]
async fn an_opt_out_may_have_a_reason() {
    let server = respond_with(ok(
        json!({"id": "c1", "email": "a@x.io", "unsubscribed": true, "created_at": 1}),
    ))
    .await;
    let contacts = contacts(server.uri());

    contacts.unsubscribe("a@x.io").reason(None).await.unwrap();
    let preferences = Some(OptOutReason::Preferences);
    contacts
        .unsubscribe("a@x.io")
        .reason(preferences)
        .reason(None)
        .await
        .unwrap();

    let bodies = received(&server)
        .await
        .into_iter()
        .map(|request| request.body);
    assert_eq!(
        bodies.collect::<Vec<_>>(),
        [&b""[..], br#"{"reason":"preferences"}"#]
    );
}

#[tokio::test]
async fn a_contact_or_a_batch_is_created_from_addresses_and_references() {
    let server = MockServer::start().await;
    let contacts = server.client().contacts();
    let (text, contact) = (String::from("b@x.io"), NewContact::new("c@x.io"));
    let rows: Vec<NewContact> = ["d@x.io", "e@x.io", "f@x.io"].map(NewContact::new).into();

    contacts.create("a@x.io").await.unwrap();
    contacts.create(&text).await.unwrap();
    contacts.create(text).await.unwrap();
    contacts.create(&contact).await.unwrap();
    contacts.create(contact).await.unwrap();
    for batch in rows.chunks(2) {
        contacts.create_batch(batch).await.unwrap();
    }
    contacts.create_batch(&rows).await.unwrap();
    contacts.create_batch(rows).await.unwrap();
    contacts.create_batch(["g@x.io"]).await.unwrap();
    contacts.create_batch(&["g@x.io"]).await.unwrap();
    contacts
        .create_batch(vec!["h@x.io".to_owned()])
        .await
        .unwrap();

    assert_eq!(contacts.list().count().await.unwrap(), 8);
}
