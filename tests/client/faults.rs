//! The client against a mock with faults, before and after a request is applied: what is sent, how
//! often, and what the mock has stored afterwards.

use std::future::ready;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use audience::contacts::{BatchOutcome, Contacts, NewContact, OnConflict, OptOutReason};
use audience::mock::{Fault, MockServer};
use audience::{Client, ErrorKind, Outcome, RetryPolicy};
use futures_util::{StreamExt, TryStreamExt, stream};

use support::operation::{Operation, RetrySafety};
use support::{ADA, enum_with_all, in_time, mock_builder, time_out};

/// The timeout of an attempt. It passes only where [`time_out`] lets it.
const HOUR: Duration = Duration::from_secs(3_600);

enum_with_all! {
    enum FaultKind {
        Busy,
        GatewayTimeout,
        RateLimited,
        ClosedBefore,
        ClosedAfter,
        CutBody,
        ResetBody,
        Garbage,
        TooLate,
        BadBody,
    }
}

use FaultKind::*;

/// A fault, and what follows if it hits the only attempt of a call.
struct Row {
    fault: Fault,
    /// Whether the service applies the request despite the fault.
    applied: bool,
    error_kind: ErrorKind,
    outcome: Outcome,
}

impl FaultKind {
    fn row(self) -> Row {
        let not_applied = |fault, error_kind| Row {
            fault,
            applied: false,
            error_kind,
            outcome: Outcome::Unknown,
        };
        let applied = |fault, error_kind| Row {
            applied: true,
            ..not_applied(fault, error_kind)
        };
        match self {
            Busy => not_applied(Fault::status(503), ErrorKind::Api),
            GatewayTimeout => applied(Fault::status(504).applied(), ErrorKind::Api),
            RateLimited => Row {
                outcome: Outcome::Refused,
                ..not_applied(Fault::status(429), ErrorKind::Api)
            },
            ClosedBefore => not_applied(Fault::close_before(), ErrorKind::Transport),
            ClosedAfter => applied(Fault::close_after(), ErrorKind::Transport),
            CutBody => applied(Fault::close_mid_body(), ErrorKind::Transport),
            ResetBody => applied(Fault::close_reset(), ErrorKind::Transport),
            Garbage => not_applied(Fault::garbage(), ErrorKind::Transport),
            TooLate => applied(Fault::delay(HOUR), ErrorKind::Timeout),
            BadBody => Row {
                outcome: Outcome::Applied,
                ..applied(Fault::wrong_body("{\"id\": "), ErrorKind::Decode)
            },
        }
    }
}

impl Row {
    fn outcome_of(&self, operation: Operation) -> Outcome {
        match (self.outcome, operation) {
            (Outcome::Refused, _) => Outcome::Refused,
            (_, Operation::Retrieve | Operation::List) => Outcome::Unchanged,
            (_, Operation::Batch | Operation::BatchOrFail) => Outcome::Unknown,
            (outcome, _) => outcome,
        }
    }

    fn is_retried(&self, safety: RetrySafety) -> bool {
        match safety {
            RetrySafety::Safe => self.error_kind != ErrorKind::Decode,
            RetrySafety::OnlyIfNotApplied => self.outcome == Outcome::Refused,
            RetrySafety::Never => false,
        }
    }
}

/// The operations that the mock supports.
fn operations() -> impl Iterator<Item = Operation> {
    Operation::ALL
        .into_iter()
        .filter(|operation| *operation != Operation::IdempotentRequest)
}

fn client(server: &MockServer) -> Client {
    let builder = mock_builder(server).timeout(HOUR).no_deadline();
    builder.build().unwrap()
}

/// Starts a mock in which the operation has something to change.
async fn prepare_server(operation: Operation) -> MockServer {
    let server = MockServer::start().await;
    operation.prepare(&server).await;
    server.clear_requests();
    server
}

/// Runs the operation against a mock with this fault and checks the requests, the result and the stored state.
async fn check(operation: Operation, kind: FaultKind) {
    let case = format!("{operation:?} with {kind:?}");
    let row = kind.row();
    let retried = row.is_retried(operation.retry_safety());
    let server = prepare_server(operation).await;
    assert_ne!(
        operation.has_taken_effect(&server),
        Some(true),
        "{case}: the operation has something to change"
    );
    server.fault(row.fault.clone().times(1));

    let client = client(&server);
    let call = operation.run(&client);
    let result = match kind {
        TooLate => time_out(call, HOUR, || !server.requests().is_empty()).await,
        _ => in_time(call).await,
    };

    let requests = server.requests();
    let is_consent = operation.template().ends_with("subscribe");
    // The contact is retrieved if the response does not have it.
    let is_read_back = is_consent && kind == BadBody;
    let expected = 1 + usize::from(retried) + usize::from(is_read_back);
    assert_eq!(requests.len(), expected, "{case}");
    for request in requests.iter().filter(|_| !is_read_back) {
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
    let succeeds = row.error_kind == ErrorKind::Decode && !operation.decodes_response();
    if retried || succeeds || is_read_back {
        assert!(result.is_ok(), "{case}: {result:?}");
    } else {
        let error = result.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome(), error.attempts()),
            (row.error_kind, row.outcome_of(operation), 1),
            "{case}"
        );
    }
    if let Some(done) = operation.has_taken_effect(&server) {
        assert_eq!(done, row.applied || retried, "{case}");
    }
    assert!(server.contact_count() <= 1, "{case}");
}

#[tokio::test]
async fn every_call_handles_every_fault_and_applies_nothing_twice() {
    let kinds = FaultKind::ALL.into_iter().filter(|kind| *kind != TooLate);
    let cases =
        operations().flat_map(|operation| kinds.clone().map(move |kind| check(operation, kind)));

    // Not all at once: each starts a server.
    stream::iter(cases)
        .buffer_unordered(16)
        .for_each(|()| ready(()))
        .await;
    // One after another, because each moves the clock.
    for operation in operations() {
        check(operation, TooLate).await;
    }
}

#[tokio::test]
async fn a_create_whose_response_was_lost_reports_two_attempts() {
    let server = MockServer::start().await;
    let contacts = client(&server).contacts();
    server.fault(Fault::close_after().times(1));

    let created = contacts.create(NewContact::new(ADA)).await.unwrap();

    assert_eq!(
        (created.is_new(), created.attempts()),
        (false, 2),
        "the lost response was a 201, so the retry gets a 200"
    );
    assert_eq!(server.contact(ADA).unwrap().id, created.contact.id);

    server.fault(Fault::close_reset().times(1));
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
async fn a_strict_create_whose_response_was_lost_does_not_become_a_conflict() {
    let server = MockServer::start().await;
    let contacts = client(&server).contacts();
    server.fault(Fault::close_after().times(1));
    let strict = NewContact::new(ADA).on_conflict(OnConflict::Error);

    let error = contacts.create(strict.clone()).await.unwrap_err();

    assert!(!error.is_already_exists());
    assert_eq!(
        error.outcome(),
        Outcome::Unknown,
        "only a retrieve shows whether it was applied"
    );
    assert_eq!(contacts.retrieve(ADA).await.unwrap().email, ADA);
    assert!(
        contacts
            .create(strict)
            .await
            .unwrap_err()
            .is_already_exists(),
        "a retry would have failed in this way"
    );
}

#[tokio::test]
async fn a_service_that_keeps_failing_gets_four_attempts() {
    for kind in FaultKind::ALL {
        let row = kind.row();
        if matches!(kind, TooLate | RateLimited) || !row.is_retried(RetrySafety::Safe) {
            continue; // too slow, tested with rate limits, or not retried
        }
        let server = MockServer::start().await;
        server.fault(row.fault);

        let error = client(&server)
            .contacts()
            .create(NewContact::new(ADA))
            .await
            .unwrap_err();

        assert_eq!(
            (error.attempts(), error.outcome(), server.requests().len()),
            (4, Outcome::Unknown, 4),
            "{kind:?}"
        );
        assert_eq!(server.contact_count(), usize::from(row.applied));
    }
}

/// Starts an opt-in whose first attempt fails, and lets the recipient opt out before a retry could be made.
async fn race_opt_in_with_opt_out(
    topic: Option<&str>,
    fault: Fault,
    is_late: bool,
    idempotent: bool,
) -> MockServer {
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
    if idempotent {
        opt_in = opt_in.idempotent();
    }

    let mut opting_in = pin!(opt_in.into_future());
    let mut opted_in = Poll::Pending;
    // While it is not polled, it sends nothing: the opt-out comes before the retry, however slow the machine is.
    while server.requests().len() < 2 {
        opted_in = futures_util::poll!(opting_in.as_mut());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    opt_out.await.unwrap();
    let opted_in = match opted_in {
        Poll::Ready(opted_in) => opted_in,
        Poll::Pending if is_late => time_out(opting_in, HOUR, || true).await,
        Poll::Pending => opting_in.await,
    };
    assert_eq!(opted_in.is_ok(), idempotent);
    server
}

/// The number of subscribe requests that the mock received.
fn count_opt_ins(server: &MockServer) -> usize {
    server
        .requests()
        .iter()
        .filter(|request| request.path.ends_with("/subscribe"))
        .count()
}

#[tokio::test]
async fn a_failed_opt_in_is_not_retried_and_never_undoes_a_later_opt_out() {
    let busy = Fault::status(503).retry_after(1);
    let late = Fault::delay(HOUR);
    for (fault, is_late) in [(busy, false), (late, true)] {
        let server = race_opt_in_with_opt_out(None, fault.clone(), is_late, false).await;
        assert!(server.contact(ADA).unwrap().unsubscribed);
        assert_eq!(count_opt_ins(&server), 1);

        let server = race_opt_in_with_opt_out(Some("news"), fault, is_late, false).await;
        assert_eq!(
            server.contact(ADA).unwrap().answers.get("news"),
            Some(&false)
        );
        assert_eq!(count_opt_ins(&server), 1);
    }
}

/// The counterpart of the test above: this is why an opt-in is not retried by default.
#[tokio::test]
async fn an_idempotent_opt_in_can_undo_a_later_opt_out() {
    let busy = Fault::status(503).retry_after(1);
    let server = race_opt_in_with_opt_out(None, busy, false, true).await;

    assert!(!server.contact(ADA).unwrap().unsubscribed);
    assert_eq!(count_opt_ins(&server), 2);
}

#[tokio::test]
async fn an_opt_out_is_applied_despite_any_fault() {
    for kind in FaultKind::ALL {
        if matches!(kind, TooLate) {
            continue; // slow, and covered by the first test
        }
        let server = prepare_server(Operation::Unsubscribe).await;
        server.fault(kind.row().fault.times(3));

        let _either = client(&server).contacts().unsubscribe(ADA).await;

        assert!(server.contact(ADA).unwrap().unsubscribed, "{kind:?}");
    }
}

/// Creates this many contacts and returns their addresses, oldest first.
async fn create_contacts(contacts: &Contacts, count: usize) -> Vec<String> {
    let addresses: Vec<String> = (0..count).map(|n| format!("{n}@example.com")).collect();
    let report = contacts.create_batch(&addresses).await.unwrap();
    assert_eq!(report.failures().count(), 0);
    addresses
}

#[tokio::test]
async fn listing_through_faults_neither_misses_nor_repeats_contacts() {
    let server = MockServer::start().await;
    let contacts = client(&server).contacts();
    let all = create_contacts(&contacts, 95).await;
    // A list ends after three failures in a row, so at most two come before each page.
    let faults = [
        [Busy, ClosedBefore],
        [ClosedAfter, CutBody],
        [ResetBody, Garbage],
        [BadBody, Busy],
    ];
    let mut next_faults = faults.iter();
    let mut add_faults = || {
        for kind in next_faults.next().into_iter().flatten() {
            server.fault(kind.row().fault.method("GET").times(1));
        }
    };
    add_faults();

    let mut stream = contacts
        .list()
        .limit(10)
        .retry(RetryPolicy::none())
        .stream();
    let mut seen = Vec::new();
    let mut errors = 0;
    while let Some(item) = stream.next().await {
        match item {
            Ok(contact) => {
                seen.push(contact.email);
                if seen.len() % 10 == 0 {
                    add_faults();
                }
            }
            Err(_) => errors += 1,
        }
    }

    seen.reverse();
    assert_eq!((errors, seen), (faults.as_flattened().len(), all));
}

#[tokio::test]
async fn listing_while_contacts_are_added_returns_each_earlier_one_once() {
    let server = MockServer::start().await;
    let contacts = client(&server).contacts();
    let all = create_contacts(&contacts, 40).await;

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
