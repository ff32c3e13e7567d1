//! The client against every dialect of the mock: a program gets the same results in each.

use audience::contacts::{
    BatchOutcome, NewContact, OnConflict, OptOutReason, Properties, UnsubscribeReason,
};
use audience::mock::{
    BatchMessage, ConsentForm, ContactDeletion, Dialect, Fault, JoinedMember, MockServer,
    OmittedMembers, ReasonAfterSubscribe, SegmentKind, SuccessStatus,
};
use audience::rule::{Condition, Rule};
use audience::{Client, Error, ErrorCode, Method, Outcome};
use futures_util::TryStreamExt;
use serde_json::json;

use support::{ADA, mock_builder};

fn dialects() -> impl Iterator<Item = Dialect> {
    std::iter::once(Dialect::default()).chain(Dialect::all())
}

async fn start(dialect: Dialect) -> (MockServer, Client) {
    let server = MockServer::builder().dialect(dialect).start().await;
    let client = mock_builder(&server).build().unwrap();
    (server, client)
}

fn ada() -> NewContact {
    NewContact::new(" Ada@Example.com")
        .first_name("Ada")
        .property("plan", "pro")
        .property("seats", 3)
}

#[tokio::test]
async fn contacts_are_created_updated_and_read_the_same_in_every_dialect() {
    for dialect in dialects() {
        let (_server, client) = start(dialect).await;
        let contacts = client.contacts();

        let created = contacts.create(ada()).await.unwrap();
        let skipped = contacts
            .create(
                NewContact::new(ADA)
                    .first_name("Eve")
                    .on_conflict(OnConflict::Skip),
            )
            .await
            .unwrap();
        let updated = contacts
            .create(NewContact::new(ADA).property("seats", 4))
            .await
            .unwrap();
        let read = contacts.retrieve("ADA@example.com ").await.unwrap();

        assert!(
            created.is_new() && !skipped.is_new() && !updated.is_new(),
            "{dialect}"
        );
        assert_eq!(
            (created.contact.email.as_str(), created.contact.last_name),
            (ADA, None),
            "{dialect}"
        );
        assert_eq!(
            (
                skipped.contact.first_name.as_deref(),
                &skipped.contact.properties
            ),
            (Some("Ada"), &created.contact.properties),
            "{dialect}"
        );
        let kept = (dialect.omitted_members == OmittedMembers::Kept).then_some("Ada");
        assert_eq!(updated.contact.first_name.as_deref(), kept, "{dialect}");
        assert_eq!(
            updated.contact.properties,
            Properties::from([("seats", 4)]),
            "{dialect}"
        );
        assert_eq!(
            (read.id, read.properties),
            (created.contact.id, updated.contact.properties),
            "{dialect}"
        );
        assert_eq!(
            (
                read.first_name.as_deref(),
                read.last_name,
                read.unsubscribe_reason
            ),
            (kept, None, None),
            "{dialect}"
        );
        assert_eq!(read.created_at, created.contact.created_at, "{dialect}");
    }
}

#[tokio::test]
async fn a_batch_reports_each_entry_the_same_in_every_dialect() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        server.set_ceiling(Some(2));
        let entries = [
            ada(),
            ada(),
            NewContact::new(ADA).on_conflict(OnConflict::Skip),
            NewContact::new(ADA).on_conflict(OnConflict::Error),
            NewContact::new("no address"),
            NewContact::new("b@example.com"),
            NewContact::new("c@example.com"),
            ada(),
        ];

        let report = client.contacts().create_batch(entries).await.unwrap();

        let outcomes = report.entries.iter().map(|entry| &entry.outcome);
        let statuses: Vec<&str> = outcomes
            .map(|outcome| match outcome {
                BatchOutcome::Created => "created",
                BatchOutcome::Updated => "updated",
                BatchOutcome::Skipped => "skipped",
                BatchOutcome::Failed { code, message } => {
                    assert!(
                        message.as_ref().is_some_and(|message| !message.is_empty()),
                        "{dialect}"
                    );
                    code.as_str()
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            "created",
            "updated",
            "skipped",
            "already_exists",
            "validation_error",
            "created",
            "quota_exceeded",
            "quota_exceeded",
        ];
        assert_eq!(statuses, expected, "{dialect}");
        assert_eq!(
            (
                report.entries[0].email.as_str(),
                report.entries[4].email.as_str()
            ),
            (ADA, "no address"),
            "{dialect}"
        );
    }
}

#[tokio::test]
async fn consent_is_recorded_and_read_the_same_in_every_dialect() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        server.topic("news", true);
        let contacts = client.contacts();
        contacts.create(ada()).await.unwrap();
        let full = dialect.consent_form == ConsentForm::Full;

        let changed = contacts.unsubscribe(ADA).topic("news").await.unwrap();
        assert_eq!(
            changed.topics.get("news").copied(),
            full.then_some(false),
            "{dialect}"
        );
        assert!(!changed.unsubscribed, "{dialect}");

        let opted_out = contacts
            .unsubscribe(ADA)
            .reason(OptOutReason::Preferences)
            .await
            .unwrap();
        assert!(opted_out.unsubscribed, "{dialect}");
        assert_eq!(
            opted_out.unsubscribe_reason,
            full.then_some(UnsubscribeReason::Preferences),
            "{dialect}"
        );

        let opted_in = contacts.subscribe(ADA).await.unwrap();
        assert!(!opted_in.unsubscribed, "{dialect}");
        contacts.subscribe(ADA).topic("news").await.unwrap();

        let read = contacts.retrieve(ADA).await.unwrap();
        assert_eq!(
            (read.unsubscribed, read.topics.get("news")),
            (false, Some(&true)),
            "{dialect}"
        );
        let kept = dialect.reason_after_subscribe == ReasonAfterSubscribe::Kept;
        assert_eq!(
            read.unsubscribe_reason,
            kept.then_some(UnsubscribeReason::Preferences),
            "{dialect}"
        );
    }
}

/// One of the `is_…` methods of [`Error`].
type Predicate = fn(&Error) -> bool;

#[tokio::test]
async fn every_refusal_matches_its_predicate_in_every_dialect() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        server.topic("news", true);
        let contacts = client.contacts();
        contacts.create(ada()).await.unwrap();
        server.report_spam(ADA);
        server.set_ceiling(Some(1));
        let sending = Client::new(server.url(), server.sending_key())
            .unwrap()
            .contacts();

        let refusals: [(Error, Predicate, ErrorCode, u16); 9] = [
            (
                contacts.retrieve("nobody@example.com").await.unwrap_err(),
                Error::is_not_found,
                ErrorCode::NotFound,
                404,
            ),
            (
                contacts.unsubscribe(ADA).topic("gossip").await.unwrap_err(),
                Error::is_not_found,
                ErrorCode::NotFound,
                404,
            ),
            (
                contacts
                    .merge_properties("nobody@example.com", [("a", 1)])
                    .await
                    .unwrap_err(),
                Error::is_not_found,
                ErrorCode::NotFound,
                404,
            ),
            (
                contacts.subscribe(ADA).await.unwrap_err(),
                Error::is_complaint_locked,
                ErrorCode::FailedPrecondition,
                422,
            ),
            (
                contacts.subscribe(ADA).topic("news").await.unwrap_err(),
                Error::is_complaint_locked,
                ErrorCode::FailedPrecondition,
                422,
            ),
            (
                contacts
                    .create(ada().on_conflict(OnConflict::Error))
                    .await
                    .unwrap_err(),
                Error::is_already_exists,
                ErrorCode::AlreadyExists,
                409,
            ),
            (
                contacts
                    .create(NewContact::new("b@example.com"))
                    .await
                    .unwrap_err(),
                Error::is_quota_exceeded,
                ErrorCode::QuotaExceeded,
                402,
            ),
            (
                contacts
                    .create(NewContact::new("no address"))
                    .await
                    .unwrap_err(),
                Error::is_validation_error,
                ErrorCode::ValidationError,
                422,
            ),
            (
                sending.create(ada()).await.unwrap_err(),
                Error::is_key_not_permitted,
                ErrorCode::KeyNotPermitted,
                403,
            ),
        ];

        for (error, predicate, code, status) in refusals {
            assert!(predicate(&error), "{dialect}: {error}");
            let api = error.api().unwrap();
            assert_eq!(
                (api.code(), api.status().as_u16()),
                (Some(&code), status),
                "{dialect}"
            );
            assert!(
                api.message()
                    .is_some_and(|message| message.len() > 3 && message != code.as_str()),
                "{dialect}"
            );
            assert_eq!(
                (error.outcome(), error.attempts()),
                (Outcome::Refused, 1),
                "{dialect}"
            );
        }
    }
}

#[tokio::test]
async fn a_list_is_read_and_counted_the_same_in_every_dialect() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        server.segment("seg_1", SegmentKind::Rule(json!({"match_": "all", "conditions": [{"field": "property", "key": "even", "op": "is", "value": 1}]})));
        let contacts = client.contacts();
        let entries = |range: std::ops::Range<u32>| {
            range.map(|n| NewContact::new(format!("{n}@example.com")).property("even", 1 - n % 2))
        };
        contacts.create_batch(entries(0..12)).await.unwrap();
        let even = Rule::all([Condition::property("even").is(1)]);

        let all: Vec<_> = contacts
            .list()
            .limit(4)
            .stream()
            .map_ok(|contact| contact.email)
            .try_collect()
            .await
            .unwrap();
        let by_rule: Vec<_> = contacts
            .list()
            .limit(4)
            .rule(even.clone())
            .pages()
            .map_ok(|page| page.data.len())
            .try_collect()
            .await
            .unwrap();
        let mut stopped = contacts.list().limit(5).stream();
        for _ in 0..7 {
            stopped.try_next().await.unwrap().unwrap();
        }
        let cursor = stopped.cursor().unwrap().to_owned();
        let rest: Vec<_> = contacts
            .list()
            .limit(5)
            .after(cursor)
            .stream()
            .try_collect()
            .await
            .unwrap();

        let expected: Vec<_> = (0..12).rev().map(|n| format!("{n}@example.com")).collect();
        assert_eq!(all, expected, "{dialect}");
        assert_eq!(by_rule, [4, 2], "{dialect}");
        assert_eq!(rest.len(), 5, "{dialect}");
        assert_eq!(
            contacts.list().rule(even).limit(2).count().await.unwrap(),
            6,
            "{dialect}"
        );
        assert_eq!(
            contacts.list().segment("seg_1").count().await.unwrap(),
            6,
            "{dialect}"
        );
        assert_eq!(
            contacts.list().query("1@EXAMPLE").count().await.unwrap(),
            2,
            "{dialect}"
        );
        assert_eq!(
            contacts.list().query("nobody").count().await.unwrap(),
            0,
            "{dialect}"
        );
    }
}

#[tokio::test]
async fn a_joined_condition_works_in_every_dialect_with_the_member_of_that_dialect() {
    for dialect in dialects() {
        let (_server, client) = start(dialect).await;
        let contacts = client.contacts();
        contacts.create(ada()).await.unwrap();
        let condition = match dialect.joined_member {
            JoinedMember::Value => {
                Condition::raw(json!({"field": "joined_within_days", "value": 2}))
            }
            JoinedMember::Count => {
                Condition::raw(json!({"field": "joined_within_days", "count": 2}))
            }
            _ => Condition::joined_within_days(2),
        };

        let count = contacts.list().rule(Rule::all([condition])).count().await;

        assert_eq!(count.unwrap(), 1, "{dialect}");
    }
}

#[tokio::test]
async fn the_error_of_a_status_fault_is_read_the_same_in_every_dialect() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        server.fault(Fault::status(405));

        let error = client.contacts().retrieve(ADA).await.unwrap_err();

        let api = error.api().unwrap();
        assert_eq!(
            (api.status().as_u16(), api.code().map(ErrorCode::as_str)),
            (405, Some("method_not_allowed")),
            "{dialect}"
        );
        assert!(api.message().is_some(), "{dialect}");
    }
}

#[tokio::test]
async fn properties_are_merged_and_mail_is_sent_the_same_in_every_dialect() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        let contacts = client.contacts();
        contacts.create(ada()).await.unwrap();

        let merged = contacts
            .merge_properties(ADA, [("seats", 9)])
            .await
            .unwrap();
        let mail = json!({"from": "shop@example.com", "to": [ADA], "subject": "Hello"});
        let sent = client
            .request(Method::POST, ["emails"])
            .json(&mail)
            .unwrap()
            .await
            .unwrap();

        assert!(merged.status().is_success(), "{dialect}");
        let stored = server.contact(ADA).unwrap();
        assert_eq!(
            json!(stored.properties),
            json!({"plan": "pro", "seats": 9}),
            "{dialect}"
        );
        assert!(
            sent.json::<serde_json::Value>().unwrap()["id"].is_string(),
            "{dialect}"
        );
    }
}

/// Guards against the tests above passing because they see too few dialects.
#[test]
fn the_dialects_differ_in_what_the_client_reads() {
    assert!(dialects().count() > 20);
    assert!(dialects().any(|dialect| dialect.success_status == SuccessStatus::Accepted));
    assert!(dialects().any(|dialect| dialect.batch_message == BatchMessage::Reason));
}

#[tokio::test]
async fn a_contact_is_deleted_only_where_the_dialect_deletes_and_never_seems_to_be_gone_already() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        client.contacts().create(ada()).await.unwrap();
        let delete = || {
            client
                .request(Method::DELETE, ["contacts", ADA])
                .idempotent()
        };

        let first = delete().await;
        let second = delete().await.unwrap_err();

        let deletes = dialect.contact_deletion == ContactDeletion::NoContent;
        assert_eq!(first.is_ok(), deletes, "{dialect}");
        assert_eq!(second.is_not_found(), deletes, "{dialect}");
        assert_eq!(server.contact(ADA).is_none(), deletes, "{dialect}");
        if let Err(error) = first {
            let refusal = error.api().unwrap();
            let code = refusal.code().map(ErrorCode::as_str);
            assert_eq!(
                (refusal.status().as_u16(), code),
                (501, Some("not_described")),
                "{dialect}"
            );
            assert_eq!(server.requests().len(), 3, "{dialect}: not retried");
        }
    }
}
