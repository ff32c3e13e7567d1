//! `contacts.matches`: which contact it looks at, and how it tells "no" from "no such contact".

use std::time::{Duration, SystemTime};

use audience::contacts::{Contacts, LastTime};
use audience::mock::{EngagementKind, Fault, MockServer, SeedContact};
use audience::rule::{Condition, Engagement, Rule};
use audience::{ErrorKind, Missing, Outcome};
use serde_json::json;

use support::{ADA, contact, contacts, in_time, mock_builder, ok, respond_in_turn, summary, with};

use crate::dialects::{dialects, settings};

fn on(plan: &str) -> Condition {
    Condition::property("plan").is(plan)
}

/// Starts a mock with Ada, who is on `pro`, and 60 newer contacts on `free`, whose addresses contain hers.
async fn start() -> (MockServer, Contacts) {
    let ada = SeedContact::new(ADA).property("plan", "pro");
    let mut settings = MockServer::builder().seed_contact(ada);
    for n in 0..60 {
        let longer = SeedContact::new(format!("{n}{ADA}"));
        settings = settings.seed_contact(longer.property("plan", "free"));
    }
    let server = settings.start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    (server, contacts)
}

#[tokio::test]
async fn only_the_contact_itself_counts_and_not_one_with_a_longer_address() {
    let (server, contacts) = start().await;
    let either = Rule::any([on("pro"), on("free")]);

    assert!(
        contacts
            .matches(" Ada@Example.com", on("pro"))
            .await
            .unwrap()
    );
    assert!(!contacts.matches(ADA, on("free")).await.unwrap());
    server.clear_requests();
    // She is on the second page.
    assert!(contacts.matches(ADA, either).await.unwrap());

    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn only_the_contact_itself_counts_and_not_one_with_the_same_address_in_capital_letters() {
    let other = "ada@strasse.example";
    let server = MockServer::builder().seed_contact("ada@straße.example");
    let server = server.seed_contact(SeedContact::new(other).property("plan", "pro"));
    let server = server.start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    server.record_engagement(other, EngagementKind::Opened, SystemTime::now());

    let matches = contacts.matches("ada@straße.example", on("pro")).await;
    let others = contacts.matches(other, on("pro")).await;
    let history = contacts.history("ada@straße.example").await;

    assert_eq!((matches.unwrap(), others.unwrap()), (false, true));
    assert_eq!(history.unwrap().opened, LastTime::Never);
}

#[tokio::test]
async fn an_address_that_is_no_contact_is_an_error_in_every_dialect() {
    for dialect in dialects() {
        let ada = SeedContact::new(ADA).property("plan", "pro");
        let server = MockServer::builder().dialect(dialect).seed_contact(ada);
        let server = server.start().await;
        let client = settings(&server, dialect, server.full_key()).build();
        let contacts = client.unwrap().contacts();

        let rules = [on("pro"), on("free"), Condition::joined_within_days(1)];
        let matches = contacts.matches_each(ADA, rules).await.unwrap();
        let error = contacts
            .matches("a@example.com", on("pro"))
            .await
            .unwrap_err();

        assert_eq!(matches, [true, false, true], "{dialect}");
        assert_eq!(error.status().unwrap(), 404, "{dialect}");
        assert!(error.to_string().starts_with("matches: "), "{error}");
        assert_eq!(error.missing(), Some(Missing::Contact), "{dialect}");
    }
}

#[tokio::test]
async fn several_rules_are_asked_for_with_one_retrieve_and_in_their_order() {
    let (server, contacts) = start().await;
    let now = SystemTime::now();
    server.record_engagement(ADA, EngagementKind::Bounced, now);
    server.clear_requests();

    let kinds = [Engagement::Opened, Engagement::Bounced, Engagement::Clicked];
    let rules = kinds.map(|kind| Condition::engagement(kind).within_days(30));
    let matches = contacts.matches_each(ADA, rules).await.unwrap();

    assert_eq!(matches, [false, true, false]);
    let paths: Vec<_> = server
        .requests()
        .into_iter()
        .map(|sent| sent.path)
        .collect();
    let list = "/contacts";
    assert_eq!(paths, ["/contacts/ada%40example.com", list, list, list]);
    let none = contacts.matches_each(ADA, [] as [Rule; 0]).await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test]
async fn an_invalid_rule_or_address_is_not_sent() {
    let (server, contacts) = start().await;

    let empty_rule = contacts.matches(ADA, Rule::all([])).await.unwrap_err();
    let last_rule = [Rule::everyone(), Rule::any([])];
    let last_rule = contacts.matches_each(ADA, last_rule).await.unwrap_err();
    let address = contacts.matches("", on("pro")).await.unwrap_err();

    for error in [empty_rule, last_rule, address] {
        let is_sent = error.outcome() != Outcome::NotSent || error.attempts() > 0;
        assert!(error.kind() == ErrorKind::Input && !is_sent, "{error}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_malformed_item_is_an_error_only_if_it_may_be_the_contact() {
    let malformed = with(summary("bad"), "unsubscribed", "hunter2");
    let ada = with(summary("ada"), "email", ADA);
    let page = |items, next| ok(json!({"data": items, "next": next}));
    let end = || ok(json!({"data": []}));
    let unsure = [ok(contact()), page(json!([malformed]), "bad"), end()];
    let unsure = respond_in_turn(unsure).await;
    let found = [
        ok(contact()),
        page(json!([malformed]), "bad"),
        page(json!([ada]), "ada"),
    ];
    let found = respond_in_turn(found).await;

    let unsure = contacts(unsure.uri()).matches(ADA, on("pro")).await;
    let found = contacts(found.uri()).matches(ADA, on("pro")).await;

    assert_eq!(unsure.unwrap_err().kind(), ErrorKind::Decode);
    assert!(found.unwrap());
}

/// As from a wrong cache.
#[tokio::test]
async fn another_contact_that_the_response_has_is_not_looked_for() {
    let (server, contacts) = start().await;
    let bob = with(contact(), "email", "bob@example.com");
    server.fault(Fault::wrong_body(bob.to_string()).path("/contacts/*"));

    let one = contacts.matches(ADA, on("pro")).await.unwrap_err();
    let each = contacts.matches_each(ADA, [on("pro"), on("free")]).await;

    for error in [one, each.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
        assert!(error.is_malformed_contact(), "{error}");
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn all_requests_share_the_deadline() {
    let (server, contacts) = start().await;
    server.fault(Fault::delay(Duration::from_millis(300)));

    let rules = [on("pro"), on("free"), on("pro"), on("free")];
    let call = contacts
        .matches_each(ADA, rules)
        .deadline(Duration::from_millis(700));
    let error = in_time(call).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(server.requests().len() < 5);
}
