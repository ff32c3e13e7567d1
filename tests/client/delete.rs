//! `contacts.delete`: which responses count as deleted, and which say that the service does not delete by this request.

use audience::contacts::{Contacts, Erasure};
use audience::mock::dialect::ContactDeletion;
use audience::mock::{Dialect, Fault, MockServer, SeedContact};
use audience::{Error, ErrorKind, Outcome};

use support::{ADA, mock_builder};

const PATH: &str = "/contacts/ada%40example.com";

/// Starts a mock with Ada.
async fn start(contact_deletion: ContactDeletion) -> (MockServer, Contacts) {
    let dialect = Dialect {
        contact_deletion,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).seed_contact(ADA);
    let server = server.start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    (server, contacts)
}

fn is_unsupported(error: &Error) -> bool {
    let text = error.to_string();
    let is_said = text.starts_with("delete: the service does not delete contacts by this request");
    let is_explained = error.explanation().contains("does not delete contacts");
    error.kind() == ErrorKind::Unsupported && !error.is_not_found() && is_said && is_explained
}

#[tokio::test]
async fn a_contact_is_deleted_whatever_the_spelling_of_its_address() {
    for address in [ADA, " Ada@Example.com "] {
        let (server, contacts) = start(ContactDeletion::NoContent).await;

        contacts.delete(address).await.unwrap();

        assert!(server.contact(ADA).is_none());
        let sent = server.requests();
        assert_eq!((sent.len(), sent[0].path.as_str()), (2, PATH));
    }
}

#[tokio::test]
async fn a_contact_is_deleted_although_there_is_one_with_the_same_address_in_capital_letters() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    for address in ["ada@straße.example", "ada@strasse.example"] {
        server.seed_contact(address);
    }

    contacts.delete("ada@straße.example").await.unwrap();

    assert!(server.contact("ada@straße.example").is_none());
    assert!(server.contact("ada@strasse.example").is_some());
}

#[tokio::test]
async fn a_2xx_status_counts_as_deleted_only_if_the_contact_is_no_longer_listed() {
    for status in [200, 202, 204] {
        let (server, contacts) = start(ContactDeletion::NoContent).await;
        server.fault(Fault::status(status).body("").method("DELETE"));

        contacts.delete("nobody@example.com").await.unwrap();
        let error = contacts.delete(ADA).await.unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome(), error.attempts()),
            (ErrorKind::Unsupported, Outcome::Unknown, 1)
        );
        let explanation = error.explanation();
        assert!(explanation.contains("still lists it"), "{explanation}");
        assert!(std::error::Error::source(&error).is_none());
    }
}

#[tokio::test]
async fn a_2xx_status_is_no_proof_if_the_list_fails() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    server.fault(Fault::status(404).body("<html>").method("GET"));

    let error = contacts.delete(ADA).await.unwrap_err();

    assert_eq!((error.outcome(), error.attempts()), (Outcome::Unknown, 2));
    assert_eq!(error.status().unwrap(), 404);
    assert!(!error.is_not_found(), "{error}");
    assert!(error.to_string().starts_with("delete: "), "{error}");
}

#[tokio::test]
async fn an_empty_list_that_reports_an_error_does_not_prove_that_a_contact_is_deleted() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    server.fault(Fault::status(204).body("").method("DELETE"));
    let body = r#"{"data": [], "error": {"message": "search unavailable"}}"#;
    server.fault(Fault::wrong_body(body).method("GET"));

    let error = contacts.delete(ADA).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Decode, Outcome::Unknown),
        "{error}"
    );
    assert!(server.contact(ADA).is_some());
}

#[tokio::test]
async fn an_address_that_is_no_contact_is_deleted_already() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    server.seed_contact("long-nobody@example.com");

    contacts.delete("nobody@example.com").await.unwrap();

    assert_eq!(server.contacts().len(), 2);
}

#[tokio::test]
async fn a_service_that_does_not_know_the_request_deletes_nothing() {
    let (server, contacts) = start(ContactDeletion::NotDescribed).await;

    let error = contacts.delete(ADA).await.unwrap_err();

    assert!(is_unsupported(&error), "{error}");
    assert_eq!(
        (error.outcome(), error.is_retryable()),
        (Outcome::Refused, false)
    );
    assert!(server.contact(ADA).is_some());
}

#[tokio::test]
async fn a_405_or_a_404_for_a_contact_that_is_still_listed_is_unsupported() {
    for status in [404, 405, 410] {
        let (server, contacts) = start(ContactDeletion::NoContent).await;
        server.fault(Fault::status(status).body("{}").path(PATH));

        let error = contacts.delete(ADA).await.unwrap_err();

        assert!(is_unsupported(&error), "{status}: {error}");
        let refusal = std::error::Error::source(&error).unwrap().to_string();
        assert!(refusal.contains(&status.to_string()), "{refusal}");
    }
}

#[tokio::test]
async fn a_404_for_every_request_is_not_taken_for_deleted() {
    for body in ["", "{}", "<html>"] {
        let (server, contacts) = start(ContactDeletion::NoContent).await;
        server.fault(Fault::status(404).body(body));

        let error = contacts.delete(ADA).await.unwrap_err();

        assert_eq!(error.outcome(), Outcome::Refused, "{error}");
        assert!(!error.is_not_found(), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("delete: the service responded 404"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_page_or_an_empty_address_is_not_taken_for_deleted() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    server.fault(Fault::status(200).body("<html>Sign in</html>"));

    let page = contacts.delete(ADA).await.unwrap_err();
    server.clear_requests();
    let empty = contacts.delete(" ").await.unwrap_err();

    assert_eq!(
        (page.kind(), page.outcome()),
        (ErrorKind::Decode, Outcome::Unknown)
    );
    assert_eq!(empty.explanation(), "the address is empty");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_deletion_whose_response_was_lost_is_retried_and_then_found_done() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    server.fault(Fault::close_after().path(PATH).times(1));

    contacts.delete(ADA).await.unwrap();

    let methods: Vec<_> = server
        .requests()
        .into_iter()
        .map(|request| request.method)
        .collect();
    assert_eq!(methods, ["DELETE", "DELETE", "GET"]);
}

#[tokio::test]
async fn a_deletion_whose_response_was_lost_is_safe_to_repeat_although_it_is_then_refused() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    server.fault(Fault::close_after().path(PATH).times(1));
    server.fault(Fault::status(405).body("{}").path(PATH));

    let error = contacts.delete(ADA).await.unwrap_err();

    assert!(is_unsupported(&error), "{error}");
    assert_eq!((error.attempts(), error.outcome()), (2, Outcome::Unknown));
    let text = error.explanation();
    assert!(text.contains("it is safe to repeat it"), "{text}");
}

#[tokio::test]
async fn a_failure_of_the_list_counts_the_attempts_of_both_requests() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    server.fault(Fault::status(404).body("{}").path(PATH));
    server.fault(Fault::status(503).method("GET").path("/contacts"));

    let error = contacts.delete(ADA).await.unwrap_err();

    assert_eq!(error.attempts(), 1 + 4, "{error}");
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn a_page_is_no_response_to_a_deletion_even_if_no_list_has_the_contact() {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    let page = "<!doctype html><title>Sign in to the hotel network</title>";
    server.fault(Fault::status(200).body(page).method("DELETE"));

    let error = contacts.delete("nobody@example.com").await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Decode, Outcome::Unknown)
    );
}

#[tokio::test]
async fn an_erased_contact_is_deleted_or_empty_and_opted_out() {
    for (deletion, expected) in [
        (ContactDeletion::NoContent, Erasure::Deleted),
        (ContactDeletion::default(), Erasure::Emptied),
    ] {
        let dialect = Dialect {
            contact_deletion: deletion,
            ..Dialect::default()
        };
        let ada = SeedContact::new(ADA).first_name("Ada").last_name("L");
        let ada = ada.property("plan", "pro").property("seats", 3);
        let server = MockServer::builder().dialect(dialect).seed_contact(ada);
        let server = server.seed_contact("bob@example.com").start().await;
        let contacts = server.client().contacts();

        let erasure = contacts.erase(ADA).await.unwrap();
        let nobody = contacts.erase("nobody@example.com").await.unwrap();

        assert_eq!((erasure, nobody), (expected, Erasure::NoContact));
        match server.contact(ADA) {
            None => assert_eq!(expected, Erasure::Deleted),
            Some(ada) => {
                assert_eq!(expected, Erasure::Emptied);
                assert!(ada.unsubscribed && ada.properties.is_empty(), "{ada:?}");
                assert_eq!(
                    ada.first_name.unwrap_or_default() + &ada.last_name.unwrap_or_default(),
                    ""
                );
                assert_eq!(ada.unsubscribe_reason, "preferences");
                assert!(erasure.to_string().contains("ask the support"));
            }
        }
        let bob = server.contact("bob@example.com").unwrap();
        assert!(!bob.unsubscribed);
    }
}

#[tokio::test]
async fn an_erasure_empties_the_contact_if_the_request_to_delete_fails_once_and_is_then_refused() {
    let faults = [
        Fault::status(503),
        Fault::close_before(),
        Fault::close_after(),
    ];
    for fault in faults {
        let ada = SeedContact::new(ADA).first_name("Ada");
        let ada = ada.property("plan", "pro");
        let server = MockServer::builder().seed_contact(ada).start().await;
        let contacts = mock_builder(&server).build().unwrap().contacts();
        server.fault(fault.method("DELETE").times(1));

        let erasure = contacts.erase(ADA).await.unwrap();

        assert_eq!(erasure, Erasure::Emptied);
        let ada = server.contact(ADA).unwrap();
        assert!(ada.unsubscribed && ada.properties.is_empty(), "{ada:?}");
        assert_eq!(ada.first_name.unwrap_or_default(), "");
        let sent = server.requests();
        let deletions = sent.iter().filter(|request| request.method == "DELETE");
        assert_eq!(deletions.count(), 2);
    }
}

#[tokio::test]
async fn an_erasure_finds_the_contact_deleted_by_an_attempt_whose_response_was_lost() {
    for status in [405, 501] {
        let (server, contacts) = start(ContactDeletion::NoContent).await;
        server.fault(Fault::close_after().method("DELETE").times(1));
        server.fault(Fault::status(status).body("{}").method("DELETE"));

        let erasure = contacts.erase(ADA).await.unwrap();

        assert_eq!(erasure, Erasure::Deleted);
        assert!(server.contact(ADA).is_none());
    }
}

#[tokio::test]
async fn a_contact_that_a_late_deletion_makes_an_erasure_create_again_is_opted_out() {
    // Of an attempt that failed, or by somebody else.
    for deleted_by_attempt in [true, false] {
        create_again(deleted_by_attempt).await;
    }
}

async fn create_again(deleted_by_attempt: bool) {
    let (server, contacts) = start(ContactDeletion::NoContent).await;
    if deleted_by_attempt {
        server.fault(Fault::close_after().method("DELETE").times(1));
    } else {
        contacts.delete(ADA).await.unwrap();
    }
    server.fault(Fault::status(501).method("DELETE"));
    // As if the deletion was applied only after the call had opted the contact out and retrieved it.
    let shown = |unsubscribed| {
        format!(
            r#"{{"id": "con_1", "email": "{ADA}", "first_name": "Ada", "properties": {{}},
                "unsubscribed": {unsubscribed}, "unsubscribe_reason": "", "created_at": 1, "topics": {{}}}}"#
        )
    };
    let retrieved = Fault::status(200).body(shown(false));
    server.fault(retrieved.method("GET").path(PATH));
    let opted_out = Fault::status(200).body(shown(true));
    server.fault(opted_out.path("*/unsubscribe").times(1));

    let erasure = contacts.erase(ADA).await.unwrap();

    assert_eq!(erasure, Erasure::Emptied);
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn an_erasure_that_fails_after_a_deletion_in_doubt_does_not_say_that_nothing_was_done() {
    for is_in_doubt in [true, false] {
        let (server, contacts) = start(ContactDeletion::NotDescribed).await;
        if is_in_doubt {
            server.fault(Fault::status(503).method("DELETE").times(1));
        }
        server.fault(Fault::status(403).body("{}").path("*/unsubscribe"));

        let error = contacts.erase(ADA).await.unwrap_err();

        assert_eq!(error.status().unwrap(), 403);
        assert_eq!(error.outcome() >= Outcome::Unknown, is_in_doubt);
    }
}

#[tokio::test]
async fn an_erasure_whose_delete_is_refused_changes_nothing() {
    let ada = SeedContact::new(ADA).first_name("Ada");
    let server = MockServer::builder().seed_contact(ada).start().await;
    let body = r#"{"error": {"code": "key_not_permitted"}}"#;
    server.fault(Fault::status(403).body(body).method("DELETE"));

    let error = server.client().contacts().erase(ADA).await.unwrap_err();

    assert!(error.is_key_not_permitted(), "{error}");
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.first_name.as_deref() == Some("Ada"));
}

#[tokio::test]
async fn an_erasure_believes_no_404_of_a_gateway() {
    for body in [r#"{"code": "not_found"}"#, "{}", "<html>"] {
        let server = MockServer::builder().seed_contact(ADA).start().await;
        let contacts = server.client().contacts();
        server.fault(Fault::status(404).body(body).path(PATH).times(1));

        let error = contacts.erase(ADA).await.unwrap_err();

        assert!(!error.is_not_found(), "{body}: {error}");
        assert!(!server.contact(ADA).unwrap().unsubscribed);
        assert_eq!(contacts.erase(ADA).await.unwrap(), Erasure::Emptied);
    }
}

#[tokio::test]
async fn a_contact_that_cannot_be_read_is_deleted_or_at_least_opted_out() {
    let body = format!(r#"{{"id": "con_1", "email": "{ADA}", "unsubscribed": "?"}}"#);
    let malformed = || Fault::wrong_body(body.as_str()).method("GET").path(PATH);
    let (able, contacts) = start(ContactDeletion::NoContent).await;
    able.fault(malformed());
    assert_eq!(contacts.erase(ADA).await.unwrap(), Erasure::Deleted);
    assert!(able.contact(ADA).is_none());
    let (unable, contacts) = start(ContactDeletion::NotDescribed).await;
    unable.fault(malformed());

    let error = contacts.erase(ADA).await.unwrap_err();

    assert!(error.is_malformed_contact(), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert!(unable.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_contact_that_reported_spam_stays_locked_when_it_is_erased() {
    let server = MockServer::builder().seed_contact(ADA).start().await;
    server.report_spam(ADA);

    let erasure = server.client().contacts().erase(ADA).await.unwrap();

    assert_eq!(erasure, Erasure::Emptied);
    assert_eq!(serde_json::to_value(erasure).unwrap(), "emptied");
    assert_eq!(server.contact(ADA).unwrap().unsubscribe_reason, "complaint");
}

#[tokio::test]
async fn a_spam_report_stays_locked_in_an_erasure_whatever_the_flag_says() {
    let server = MockServer::builder().seed_contact(ADA).start().await;
    server.report_spam(ADA);
    let shown = r#"{"id": "con_1", "email": "ada@example.com", "unsubscribed": false,
        "unsubscribe_reason": "complaint", "created_at": 1, "topics": {}}"#;
    server.fault(Fault::wrong_body(shown).method("GET").path(PATH));

    let erasure = server.client().contacts().erase(ADA).await.unwrap();

    assert_eq!(erasure, Erasure::Emptied);
    let requests = server.requests();
    // It could replace the reason, and so end the lock.
    let is_opt_out = |path: &str| path.ends_with("/unsubscribe");
    assert!(!requests.iter().any(|sent| is_opt_out(&sent.path)));
}

#[tokio::test]
async fn an_erasure_opts_out_although_somebody_else_opts_in_after_the_contact_was_retrieved() {
    let server = MockServer::builder().seed_contact(ADA).start().await;
    // She was opted out when the call looked, and is subscribed by now.
    let shown = r#"{"id": "con_1", "email": "ada@example.com", "unsubscribed": true,
        "unsubscribe_reason": "preferences", "created_at": 1, "topics": {}}"#;
    server.fault(Fault::wrong_body(shown).method("GET").path(PATH));

    let erasure = server.client().contacts().erase(ADA).await.unwrap();

    assert_eq!(erasure, Erasure::Emptied);
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn an_erasure_of_which_a_name_or_a_property_is_left_is_not_reported_as_done() {
    for left in [
        r#""first_name": "Ada", "properties": {}"#,
        r#""first_name": "", "properties": {"plan": "pro"}"#,
    ] {
        let ada = SeedContact::new(ADA).first_name("Ada");
        let server = MockServer::builder().seed_contact(ada.property("plan", "pro"));
        let server = server.start().await;
        let contacts = server.client().contacts();
        let shown = format!(
            r#"{{"id": "con_1", "email": "{ADA}", "unsubscribed": true, "created_at": 1, {left}}}"#
        );
        let create = Fault::wrong_body(shown).method("POST").path("/contacts");
        server.fault(create);

        let error = contacts.erase(ADA).await.unwrap_err();

        let found = (error.kind(), error.outcome());
        assert_eq!(found, (ErrorKind::Decode, Outcome::Unknown), "{error}");
        assert!(error.to_string().starts_with("erase: "), "{error}");
        assert!(server.contact(ADA).unwrap().unsubscribed);
    }
}

#[tokio::test]
async fn an_erasure_removes_a_property_that_another_program_has_added_meanwhile() {
    let ada = SeedContact::new(ADA).first_name("Ada");
    let ada = ada.property("plan", "pro").property("seats", 3);
    let server = MockServer::builder().seed_contact(ada).start().await;
    // When the call looked first, the other program had not added `seats` yet.
    let early = format!(
        r#"{{"id": "con_1", "email": "{ADA}", "first_name": "Ada", "unsubscribed": false, "created_at": 1,
            "properties": {{"plan": "pro"}}, "topics": {{}}}}"#
    );
    server.fault(Fault::wrong_body(early).method("GET").path(PATH).times(1));

    let erasure = server.client().contacts().erase(ADA).await.unwrap();

    assert_eq!(erasure, Erasure::Emptied);
    let ada = server.contact(ADA).unwrap();
    assert!(ada.unsubscribed && ada.properties.is_empty(), "{ada:?}");
}

#[tokio::test]
async fn an_erasure_of_a_contact_that_never_stays_empty_is_not_reported_as_done() {
    let ada = SeedContact::new(ADA).first_name("Ada");
    let server = MockServer::builder().seed_contact(ada).start().await;
    for number in 0..3 {
        let shown = format!(
            r#"{{"id": "con_1", "email": "{ADA}", "unsubscribed": true, "created_at": 1,
                "properties": {{"new{number}": 1}}, "topics": {{}}}}"#
        );
        let create = Fault::wrong_body(shown.clone()).method("POST");
        server.fault(create.path("/contacts").times(1));
        server.fault(
            Fault::wrong_body(shown)
                .method("GET")
                .path(PATH)
                .after(1)
                .times(1),
        );
    }

    let error = server.client().contacts().erase(ADA).await.unwrap_err();

    let found = (error.kind(), error.outcome());
    assert_eq!(found, (ErrorKind::Decode, Outcome::Unknown), "{error}");
    assert!(error.to_string().contains("adds properties"), "{error}");
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_contact_that_may_be_deleted_later_is_not_changed_and_a_failed_step_can_be_repeated() {
    let server = MockServer::builder().seed_contact(SeedContact::new(ADA).first_name("Ada"));
    let server = server.start().await;
    let contacts = server.client().contacts();
    let deletes = |path| Fault::status(204).method("DELETE").path(path);
    server.fault(deletes("/contacts/*"));

    let later = contacts.erase(ADA).await.unwrap_err();

    assert_eq!(
        (later.kind(), later.outcome()),
        (ErrorKind::Unsupported, Outcome::Unknown)
    );
    assert_eq!(
        server.contact(ADA).unwrap().first_name.as_deref(),
        Some("Ada")
    );
    server.clear_faults();
    server.fault(Fault::status(500).path("*/unsubscribe"));
    let failed = contacts.erase(ADA).await.unwrap_err();
    assert!(failed.explanation().contains("it is safe to repeat it"));
    assert_eq!(audience::exit_status(&failed), 75);
    server.clear_faults();
    server.fault(
        Fault::status(403)
            .path("/contacts")
            .method("POST")
            .body("{}"),
    );
    server.fault(Fault::status(403).method("PATCH").body("{}"));
    let halfway = contacts.erase(ADA).await.unwrap_err();
    assert!(server.contact(ADA).unwrap().unsubscribed);
    assert_eq!(halfway.outcome(), Outcome::Unknown);
    server.clear_faults();
    assert_eq!(contacts.erase(ADA).await.unwrap(), Erasure::Emptied);
}
