//! The client against every dialect of the mock: a program gets the same results in each.

use audience::contacts::{
    BatchOutcome, NewContact, OnConflict, OptOutReason, Properties, UnsubscribeReason,
};
use audience::mock::dialect::{
    BatchMessage, ConsentForm, ContactDeletion, ErrorShape, InvalidStatus, JoinedMember, MergeBody,
    OmittedMembers, RateLimit, ReasonAfterSubscribe, SuccessStatus, UnauthorizedSlug,
    UnknownAddress,
};
use audience::mock::{Dialect, Fault, MockServer, MockService, Reason, SeedContact, SegmentKind};
use audience::rule::{Condition, Rule};
use audience::{Client, ClientBuilder, Error, ErrorCode, Method, Missing, Outcome, RetryPolicy};
use futures_util::TryStreamExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use support::{ADA, fast_retries};

pub(super) fn dialects() -> impl Iterator<Item = Dialect> {
    std::iter::once(Dialect::default()).chain(Dialect::all())
}

async fn start(dialect: Dialect) -> (MockServer, Client) {
    let server = MockServer::builder().dialect(dialect).start().await;
    let client = settings(&server, dialect, server.full_key()).build();
    (server, client.unwrap())
}

/// The settings of a program that knows which forms the service expects, and waits for a limited service.
pub(super) fn settings(server: &MockServer, dialect: Dialect, key: &str) -> ClientBuilder {
    let mut settings = patient_settings(server, dialect, key);
    if dialect.merge_body == MergeBody::Bare {
        settings = settings.bare_merge();
    }
    match dialect.joined_member {
        JoinedMember::Value => settings.joined_member("value"),
        JoinedMember::Count => settings.joined_member("count"),
        _ => settings,
    }
}

/// The settings of a program that waits for a limited service, and knows no more of it than the document says.
pub(super) fn patient_settings(server: &MockServer, dialect: Dialect, key: &str) -> ClientBuilder {
    Client::builder(server.url(), key).retry(match dialect.rate_limit {
        RateLimit::Unlimited => fast_retries(),
        _ => RetryPolicy::exponential().max_attempts(50),
    })
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
        // A response without a body is read by retrieving the contact.
        let full = dialect.consent_form != ConsentForm::Create;

        let changed = contacts
            .unsubscribe(" ADA@example.com")
            .topic("news")
            .await
            .unwrap();
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

/// Whether a refusal with this status has a body.
pub(super) fn has_body(dialect: Dialect, status: u16) -> bool {
    match dialect.error_shape {
        ErrorShape::Empty => false,
        ErrorShape::EmptyNotFound => status != 404,
        _ => true,
    }
}

#[tokio::test]
async fn a_consent_call_for_an_unknown_address_has_the_result_of_the_dialect() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        let contacts = client.contacts();

        let unsubscribed = contacts.unsubscribe(" ADA@example.com ").await;

        match (dialect.unknown_address, unsubscribed) {
            (UnknownAddress::Created, result) => {
                assert!(result.unwrap().unsubscribed, "{dialect}");
                assert!(server.contact(ADA).unwrap().unsubscribed, "{dialect}");
            }
            (UnknownAddress::Unprocessable, result) => {
                assert!(result.unwrap_err().is_validation_error(), "{dialect}");
            }
            (_, result) => {
                let error = result.unwrap_err();
                assert_eq!(error.status().unwrap().as_u16(), 404, "{dialect}");
                assert_eq!(error.missing(), Some(Missing::Contact), "{dialect}");
            }
        }
    }
}

#[tokio::test]
async fn a_key_that_is_not_accepted_is_recognized_in_every_dialect() {
    for dialect in dialects() {
        let (server, _) = start(dialect).await;
        let client = settings(&server, dialect, "another-key").build().unwrap();

        let error = client.contacts().list().await.unwrap_err();

        assert!(error.is_unauthorized(), "{dialect}");
        let slug = match dialect.unauthorized_slug {
            UnauthorizedSlug::Unauthenticated => "unauthenticated",
            UnauthorizedSlug::InvalidApiKey => "invalid_api_key",
            _ => "unauthorized",
        };
        let code = error.code().map(ErrorCode::as_str);
        assert_eq!(code, has_body(dialect, 401).then_some(slug), "{dialect}");
    }
}

#[tokio::test]
async fn a_limited_service_gets_no_request_twice_and_loses_none() {
    for dialect in dialects().filter(|dialect| dialect.rate_limit != RateLimit::Unlimited) {
        let (server, client) = start(dialect).await;
        let contacts = client.contacts();
        let calls = (0..25).map(|n| {
            contacts
                .subscribe(format!("c{n}@example.com"))
                .into_future()
        });
        for n in 0..25 {
            server.seed_contact(
                SeedContact::new(format!("c{n}@example.com")).unsubscribed(Reason::Manual),
            );
        }

        futures_util::future::try_join_all(calls).await.unwrap();

        let requests = server.requests();
        let handled = requests
            .iter()
            .filter(|request| request.status == Some(200));
        assert_eq!(handled.count(), 25, "{dialect}");
        assert!(
            requests.len() > 25,
            "{dialect}: the limit was never reached"
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
        let sending = settings(&server, dialect, server.sending_key()).build();
        let sending = sending.unwrap().contacts();

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
            let api = error.api().unwrap();
            let status = match dialect.invalid_status {
                InvalidStatus::BadRequest if status == 422 => 400,
                _ => status,
            };
            assert_eq!(api.status().as_u16(), status, "{dialect}");
            // Without a body, nothing says what was refused. A 404 may come from anywhere.
            let has_body = has_body(dialect, status);
            assert_eq!(predicate(&error), has_body, "{dialect}: {error}");
            assert_eq!(api.code(), has_body.then_some(&code), "{dialect}");
            let message = api.message();
            assert_eq!(
                message.is_some_and(|message| message.len() > 3 && message != code.as_str()),
                has_body,
                "{dialect}"
            );
            assert_eq!(error.outcome(), Outcome::Refused, "{dialect}");
            let is_limited = dialect.rate_limit != RateLimit::Unlimited;
            assert!(error.attempts() == 1 || is_limited, "{dialect}");
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
        let report = contacts.create_batch(entries(0..12)).await.unwrap();
        assert_eq!(report.failures().count(), 0);
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
        let within = Rule::all([Condition::joined_within_days(2)]);
        let before = Rule::any([Condition::joined_before_days(2)]);

        let within = contacts.list().rule(within).count().await;
        let before = contacts.list().rule(before).count().await;

        assert_eq!((within.unwrap(), before.unwrap()), (1, 0), "{dialect}");
    }
}

#[tokio::test]
async fn the_error_of_a_status_fault_is_read_the_same_in_every_dialect() {
    for dialect in dialects() {
        let (server, client) = start(dialect).await;
        server.fault(Fault::status(405));

        let error = client.contacts().retrieve(ADA).await.unwrap_err();

        let api = error.api().unwrap();
        let has_body = has_body(dialect, 405);
        assert_eq!(
            (api.status().as_u16(), api.code().map(ErrorCode::as_str)),
            (405, has_body.then_some("method_not_allowed")),
            "{dialect}"
        );
        assert_eq!(api.message().is_some(), has_body, "{dialect}");
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
            // Nothing says it in an empty body.
            let is_read = has_body(dialect, 501);
            assert_eq!(
                (refusal.status().as_u16(), code),
                (501, is_read.then_some("not_described")),
                "{dialect}"
            );
            assert_eq!(server.requests().len(), 3, "{dialect}: not retried");
        }
    }
}

#[tokio::test]
async fn the_service_in_a_wiremock_server_sends_the_headers_of_the_dialect() {
    for (dialect, header, value) in [
        (
            Dialect {
                rate_limit: RateLimit::RetryAfter,
                ..Dialect::default()
            },
            "retry-after",
            "1",
        ),
        (
            Dialect {
                error_shape: ErrorShape::Problem,
                ..Dialect::default()
            },
            "content-type",
            "application/problem+json",
        ),
    ] {
        let service = MockService::from_builder(MockServer::builder().clock(0).dialect(dialect));
        let server = support::respond_with(service.clone()).await;
        let client = Client::builder(server.uri(), service.full_key()).retry(RetryPolicy::none());
        let contacts = client.build().unwrap().contacts();
        let mut error = contacts.retrieve(ADA).await.unwrap_err();
        while dialect.rate_limit == RateLimit::RetryAfter && !error.is_rate_limited() {
            error = contacts.retrieve(ADA).await.unwrap_err();
        }

        assert_eq!(error.api().unwrap().headers()[header], value);
    }
}

#[tokio::test]
async fn the_service_in_a_wiremock_server_shows_its_contacts_and_mail() {
    let service = MockService::new();
    let server = support::respond_with(service.clone()).await;
    let full = Client::new(server.uri(), service.full_key()).unwrap();
    let sending = Client::new(server.uri(), service.sending_key()).unwrap();

    full.contacts().create(ADA).await.unwrap();
    service.report_spam(ADA);
    let refused = sending.contacts().retrieve(ADA).await.unwrap_err();
    let mail = json!({"from": "me@x.io", "to": "bob@x.io", "subject": "Welcome"});
    let mail = sending.request(Method::POST, ["emails"]).json(&mail);
    mail.unwrap().await.unwrap();

    let [ada] = &service.contacts()[..] else {
        panic!("there is one contact");
    };
    assert_eq!(
        (ada.email.as_str(), ada.unsubscribe_reason.as_str()),
        (ADA, "complaint")
    );
    assert!(refused.is_key_not_permitted());
    assert_eq!(service.sent_mail()[0].subject, "Welcome");
}

#[tokio::test]
async fn the_service_in_a_wiremock_server_responds_to_the_longest_url_and_refuses_a_longer_one() {
    let service = MockService::new();
    let server = support::respond_with(service.clone()).await;
    // The longest that the server reads. wiremock puts a host before it, and three bytes for each apostrophe.
    let longest = "a".repeat(65_534 - "/contacts?query=".len());
    for (query, status) in [
        (longest, "200 OK"),
        ("'".repeat(30_000), "414 URI Too Long"),
    ] {
        let request = format!(
            "GET /contacts?query={query} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            service.full_key(),
        );
        let mut connection = TcpStream::connect(server.address()).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).await.unwrap();

        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{response}"
        );
    }
}
