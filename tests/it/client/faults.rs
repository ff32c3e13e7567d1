//! The client against a service on which things go wrong, before and after a request is applied: what
//! was sent, how often, and what the service holds afterwards.

use std::time::Duration;

use audience::contacts::{BatchOutcome, NewContact, OnConflict, OptOutReason};
use audience::mock::{Fault, MockServer};
use audience::{Client, ErrorKind, Outcome, RetryPolicy};
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;

use crate::support::operation::{Operation, Repeat};
use crate::support::{ADA, hurried};

/// What goes wrong with a request, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Busy,
    RateLimited,
    ClosedBefore,
    ClosedAfter,
    CutBody,
    ResetBody,
    Garbage,
    TooLate,
    BadBody,
}

use Wrong::*;

impl Wrong {
    const ALL: [Self; 9] = [
        Busy,
        RateLimited,
        ClosedBefore,
        ClosedAfter,
        CutBody,
        ResetBody,
        Garbage,
        TooLate,
        BadBody,
    ];

    fn fault(self) -> Fault {
        match self {
            Busy => Fault::status(503),
            RateLimited => Fault::status(429),
            ClosedBefore => Fault::close_before(),
            ClosedAfter => Fault::close_after(),
            CutBody => Fault::cut_body(),
            ResetBody => Fault::reset_body(),
            Garbage => Fault::garbage(),
            TooLate => Fault::delay(Duration::from_secs(30)),
            BadBody => Fault::wrong_body("{\"id\": "),
        }
    }

    /// Whether the service did what it was asked for, all the same.
    fn is_applied(self) -> bool {
        matches!(self, ClosedAfter | CutBody | ResetBody | TooLate | BadBody)
    }

    fn is_repeated(self, repeat: Repeat) -> bool {
        match repeat {
            Repeat::Always => self != BadBody,
            Repeat::Unapplied => self == RateLimited,
            Repeat::Never => false,
        }
    }

    fn kind(self) -> ErrorKind {
        match self {
            Busy | RateLimited => ErrorKind::Api,
            TooLate => ErrorKind::Timeout,
            BadBody => ErrorKind::Decode,
            _ => ErrorKind::Transport,
        }
    }
}

/// The calls that the mock knows.
fn operations() -> impl Iterator<Item = Operation> {
    Operation::ALL
        .into_iter()
        .filter(|operation| *operation != Operation::IdempotentRequest)
}

fn client(server: &MockServer) -> Client {
    let builder = Client::builder(server.url(), server.full_key()).retry(hurried());
    builder
        .timeout(Duration::from_millis(1_500))
        .build()
        .unwrap()
}

/// A service in which the call has something to change.
async fn prepared(operation: Operation) -> MockServer {
    let server = MockServer::start().await;
    server.topic("news", operation == Operation::UnsubscribeTopic);
    let contacts = server.client().contacts();
    let creates = matches!(
        operation,
        Operation::Create
            | Operation::CreateOrSkip
            | Operation::CreateOrFail
            | Operation::Batch
            | Operation::BatchOrFail
    );
    if !creates {
        contacts.create(NewContact::new(ADA)).await.unwrap();
    }
    if operation == Operation::Subscribe {
        contacts.unsubscribe(ADA).await.unwrap();
    }
    server.clear_requests();
    server
}

/// Whether what the call asks for is so; of a call that changes nothing, `None`.
fn is_done(operation: Operation, server: &MockServer) -> Option<bool> {
    let ada = server.contact(ADA);
    let done = match operation {
        Operation::Create
        | Operation::CreateOrSkip
        | Operation::CreateOrFail
        | Operation::Batch
        | Operation::BatchOrFail => ada.is_some(),
        Operation::Unsubscribe => ada?.unsubscribed,
        Operation::UnsubscribeTopic => ada?.answers.get("news") == Some(&false),
        Operation::Subscribe => !ada?.unsubscribed,
        Operation::SubscribeTopic => ada?.answers.get("news") == Some(&true),
        Operation::Merge => ada?.properties.get("seats") == Some(&json!(3)),
        Operation::Retrieve
        | Operation::List
        | Operation::Request
        | Operation::IdempotentRequest => return None,
    };
    Some(done)
}

async fn check(operation: Operation, wrong: Wrong) {
    let case = format!("{operation:?} with {wrong:?}");
    let server = prepared(operation).await;
    assert_ne!(
        is_done(operation, &server),
        Some(true),
        "{case}: there is something to do"
    );
    server.fault(wrong.fault().times(1));

    let result = operation.run(&client(&server)).await;

    let repeated = wrong.is_repeated(operation.repeat());
    let requests = server.requests();
    assert_eq!(requests.len(), 1 + usize::from(repeated), "{case}");
    for request in &requests {
        assert_eq!(
            (request.method.as_str(), &request.path),
            (operation.method(), &operation.path()),
            "{case}"
        );
        assert_eq!(
            (&request.query, &request.body),
            (&requests[0].query, &requests[0].body),
            "{case}"
        );
    }
    // The answer of these two is handed out as it came, so that nothing in it can be wrong.
    let raw = matches!(operation, Operation::Merge | Operation::Request);
    if repeated || (raw && wrong == BadBody) {
        assert!(result.is_ok(), "{case}: {result:?}");
    } else {
        let error = result.unwrap_err();
        let refused = if wrong == RateLimited {
            Outcome::Refused
        } else {
            Outcome::Unknown
        };
        assert_eq!(
            (error.kind(), error.outcome(), error.attempts()),
            (wrong.kind(), refused, 1),
            "{case}"
        );
    }
    if let Some(done) = is_done(operation, &server) {
        assert_eq!(done, wrong.is_applied() || repeated, "{case}");
    }
    assert!(server.contact_count() <= 1, "{case}");
}

#[tokio::test]
async fn every_call_comes_through_every_fault_with_nothing_lost_and_nothing_done_twice() {
    let cases = operations().flat_map(|operation| Wrong::ALL.map(|wrong| check(operation, wrong)));

    join_all(cases).await;
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_tells_that_it_took_two_attempts() {
    let server = MockServer::start().await;
    let contacts = client(&server).contacts();
    server.fault(Fault::close_after().times(1));

    let created = contacts.create(NewContact::new(ADA)).await.unwrap();

    assert_eq!(
        (created.is_new(), created.attempts()),
        (false, 2),
        "the 200 hides our own 201"
    );
    assert_eq!(server.contact(ADA).unwrap().id, created.contact.id);

    server.fault(Fault::reset_body().times(1));
    let report = contacts
        .create_batch([NewContact::new("new@example.com")])
        .await
        .unwrap();

    assert_eq!(
        (&report.entries[0].outcome, report.attempts()),
        (&BatchOutcome::Updated, 2)
    );
    assert_eq!(server.contact_count(), 2);
}

#[tokio::test]
async fn a_strict_create_whose_answer_was_lost_does_not_come_back_as_a_conflict() {
    let server = MockServer::start().await;
    let contacts = client(&server).contacts();
    server.fault(Fault::close_after().times(1));
    let strict = NewContact::new(ADA).on_conflict(OnConflict::Error);

    let error = contacts.create(strict.clone()).await.unwrap_err();

    assert!(!error.is_already_exists());
    assert_eq!(error.outcome(), Outcome::Unknown, "a retrieve tells");
    assert_eq!(contacts.retrieve(ADA).await.unwrap().email, ADA);
    assert!(
        contacts
            .create(strict)
            .await
            .unwrap_err()
            .is_already_exists(),
        "this is what a repeat would have said"
    );
}

#[tokio::test]
async fn a_service_that_stays_away_is_asked_four_times_and_then_no_more() {
    for wrong in [Busy, ClosedBefore, ClosedAfter, CutBody, Garbage] {
        let server = MockServer::start().await;
        server.fault(wrong.fault());

        let error = client(&server)
            .contacts()
            .create(NewContact::new(ADA))
            .await
            .unwrap_err();

        assert_eq!(
            (error.attempts(), error.outcome(), server.requests().len()),
            (4, Outcome::Unknown, 4),
            "{wrong:?}"
        );
        assert_eq!(server.contact_count(), usize::from(wrong.is_applied()));
    }
}

/// A subscribe whose first attempt fails, and a recipient who opts out before a second one could come.
async fn race(topic: Option<&str>, fault: Fault, repeatable: bool) -> MockServer {
    let server = MockServer::start().await;
    server.topic("news", true);
    let contacts = client(&server).contacts();
    contacts.create(NewContact::new(ADA)).await.unwrap();
    server.fault(fault.method("POST").path("/contacts/*/subscribe").times(1));
    let mut opt_in = contacts.subscribe(ADA).retry(RetryPolicy::exponential());
    let mut opt_out = contacts.unsubscribe(ADA).reason(OptOutReason::Preferences);
    if let Some(topic) = topic {
        (opt_in, opt_out) = (opt_in.topic(topic), opt_out.topic(topic));
    }
    if repeatable {
        opt_in = opt_in.repeatable();
    }

    let opting_in = tokio::spawn(opt_in.into_future());
    while server.requests().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    opt_out.await.unwrap();
    assert_eq!(opting_in.await.unwrap().is_ok(), repeatable);
    server
}

/// How many requests there were to subscribe.
fn opt_ins(server: &MockServer) -> usize {
    server
        .requests()
        .iter()
        .filter(|request| request.path.ends_with("/subscribe"))
        .count()
}

#[tokio::test]
async fn a_late_repeat_of_an_opt_in_never_undoes_an_opt_out_made_in_between() {
    let busy = || Fault::status(503).retry_after(1);
    let applied_and_late = || Fault::delay(Duration::from_secs(30));
    for fault in [busy, applied_and_late] {
        let server = race(None, fault(), false).await;
        assert!(server.contact(ADA).unwrap().unsubscribed);
        assert_eq!(opt_ins(&server), 1);

        let server = race(Some("news"), fault(), false).await;
        assert_eq!(
            server.contact(ADA).unwrap().answers.get("news"),
            Some(&false)
        );
        assert_eq!(opt_ins(&server), 1);
    }
}

/// The counterpart: were an opt-in repeated like any other call, the race above would be lost.
#[tokio::test]
async fn who_says_that_an_opt_in_is_repeatable_takes_the_risk_that_it_undoes_an_opt_out() {
    let server = race(None, Fault::status(503).retry_after(1), true).await;

    assert!(!server.contact(ADA).unwrap().unsubscribed);
    assert_eq!(opt_ins(&server), 2);
}

#[tokio::test]
async fn an_opt_out_comes_through_whatever_happens_to_its_answer() {
    for wrong in Wrong::ALL {
        if matches!(wrong, TooLate) {
            continue; // covered above, and slow
        }
        let server = prepared(Operation::Unsubscribe).await;
        server.fault(wrong.fault().times(3));

        let _either = client(&server).contacts().unsubscribe(ADA).await;

        assert!(server.contact(ADA).unwrap().unsubscribed, "{wrong:?}");
    }
}

#[tokio::test]
async fn a_walk_over_a_service_with_faults_neither_loses_nor_doubles() {
    let server = MockServer::start().await;
    let contacts = client(&server).contacts();
    let all: Vec<String> = (0..95).map(|n| format!("{n}@example.com")).collect();
    contacts
        .create_batch(all.iter().map(NewContact::new))
        .await
        .unwrap();
    for wrong in [
        Busy,
        ClosedBefore,
        ClosedAfter,
        CutBody,
        ResetBody,
        Garbage,
        BadBody,
    ] {
        server.fault(wrong.fault().method("GET").times(1));
    }

    let mut stream = contacts
        .list()
        .limit(10)
        .retry(RetryPolicy::none())
        .stream();
    let mut seen = Vec::new();
    let mut errors = 0;
    while let Some(item) = stream.next().await {
        match item {
            Ok(contact) => seen.push(contact.email),
            Err(_) => errors += 1,
        }
    }

    seen.reverse();
    assert_eq!((errors, seen), (7, all));
}

#[tokio::test]
async fn a_walk_during_which_contacts_are_added_sees_each_earlier_one_once() {
    let server = MockServer::start().await;
    let contacts = client(&server).contacts();
    let all: Vec<String> = (0..40).map(|n| format!("{n}@example.com")).collect();
    contacts
        .create_batch(all.iter().map(NewContact::new))
        .await
        .unwrap();

    let mut stream = contacts.list().limit(7).stream();
    let mut seen = Vec::new();
    while let Some(contact) = stream.try_next().await.unwrap() {
        if seen.len() % 5 == 0 {
            contacts
                .create(NewContact::new(format!("late-{}@example.com", seen.len())))
                .await
                .unwrap();
        }
        seen.push(contact.email);
    }

    seen.reverse();
    assert_eq!(seen, all);
}
