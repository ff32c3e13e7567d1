//! Setters take everything that converts to their value, and the fields of a contact take options.

use std::borrow::Cow;

use audience::contacts::{NewContact, PropertyValue};
use audience::mock::MockServer;
use serde_json::{Value, json};

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
fn a_name_is_taken_in_every_form_of_text() {
    let text = String::from("Ada");
    for contact in [
        ada().first_name("Ada"),
        ada().first_name(&text),
        ada().first_name(text.clone()),
        ada().first_name(text.clone().into_boxed_str()),
        ada().first_name(Cow::Borrowed("Ada")),
        ada().first_name(Name("Ada")),
    ] {
        assert_eq!(
            sent(contact),
            json!({"email": "ada@x.io", "first_name": "Ada"})
        );
    }
}

#[test]
fn a_property_is_taken_in_every_type() {
    for (contact, value) in [
        (ada().property("p", 3), json!(3)),
        (ada().property("p", -3), json!(-3)),
        (ada().property("p", 0.5), json!(0.5)),
        (ada().property("p", 0.1_f32), json!(0.1)),
        (ada().property("p", 3_usize), json!(3)),
        (ada().property("p", -3_isize), json!(-3)),
        (ada().property("p", "3"), json!("3")),
        (ada().property("p", Cow::Borrowed("3")), json!("3")),
        (ada().property("p", PropertyValue::from(3)), json!(3)),
    ] {
        let expected = json!({"email": "ada@x.io", "properties": {"p": value}});
        assert_eq!(sent(contact), expected);
    }
}

#[test]
fn the_fields_of_a_contact_take_options() {
    let mut full = ada()
        .first_name("Ada")
        .last_name("Lovelace")
        .properties([("plan", "pro")]);
    full.first_name = None;
    full.last_name = Some("King".to_owned());
    full.properties = None;

    assert_eq!(
        sent(full),
        json!({"email": "ada@x.io", "last_name": "King"})
    );
}

/// Functions of an application that pass a value on without naming its type.
#[test]
fn a_generic_value_can_be_passed_on() {
    fn text(name: impl Into<String>) -> NewContact {
        ada().first_name(name)
    }
    fn value(value: impl Into<PropertyValue>) -> NewContact {
        ada().property("plan", value)
    }

    assert_eq!(text("Ada"), ada().first_name("Ada"));
    assert_eq!(value("pro"), ada().property("plan", "pro"));
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
    let batches: Vec<_> = rows
        .chunks(2)
        .map(|batch| contacts.create_batch(batch))
        .chain([
            contacts.create_batch(&rows),
            contacts.create_batch(rows.clone()),
            contacts.create_batch(["g@x.io"]),
            contacts.create_batch(&["g@x.io"]),
            contacts.create_batch(vec!["h@x.io".to_owned()]),
        ])
        .collect();
    for batch in batches {
        assert_eq!(batch.await.unwrap().failures().count(), 0);
    }

    assert_eq!(contacts.list().count().await.unwrap(), 8);
}
