//! `contacts.change_address`: what goes to the new address, in which order it is sent, and what holds after a failure at
//! any step.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use audience::contacts::{Contacts, OptOutReason, UnsubscribeReason};
use audience::mock::dialect::PathAddress;
use audience::mock::{Dialect, Fault, MockServer, Reason, SeedContact, StoredContact};
use audience::{Error, ErrorKind, Outcome, RetryPolicy};
use serde_json::{Value, json};

use support::cancellation::{for_each_number_of_polls, poll_times};
use support::{ADA, in_time, mock_builder};

use crate::dialects::{dialects, patient_settings};

const NEW: &str = "ada@example.net";
/// Every state of consent that a contact can have.
const STATES: [Option<Reason>; 4] = [
    None,
    Some(Reason::Manual),
    Some(Reason::Preferences),
    Some(Reason::Complaint),
];

fn contact(address: &str, opted_out: Option<Reason>) -> SeedContact {
    let contact = SeedContact::new(address);
    match opted_out {
        Some(reason) => contact.unsubscribed(reason),
        None => contact,
    }
}

/// Ada has opted out of one topic, did not answer two, and opted in to one.
fn ada(opted_out: Option<Reason>) -> SeedContact {
    let ada = contact(ADA, opted_out).first_name("Ada");
    let ada = ada.last_name("Lovelace").property("plan", "pro");
    ada.answer("news", false).answer("beta", true)
}

/// Starts a mock with Ada. The outer `None` means that her new address is not a contact.
async fn start(old: Option<Reason>, new: Option<Option<Reason>>) -> (MockServer, Contacts) {
    let settings = MockServer::builder().clock(1_700_000_000);
    let settings = settings.topic("news", true).topic("offers", false);
    let settings = settings.topic("deals", true).topic("beta", false);
    let mut settings = settings.seed_contact(ada(old));
    if let Some(new) = new {
        let new = contact(NEW, new).first_name("Augusta");
        settings = settings.seed_contact(new.answer("beta", true));
    }
    let server = settings.start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    (server, contacts)
}

/// The requests that the mock received, without the beginning of their paths.
fn sent(server: &MockServer) -> Vec<String> {
    let requests = server.requests().into_iter().map(|request| {
        let path = request.path.replace("%40", "@").replace("/contacts", "");
        let json = request.json().unwrap_or_default();
        let members = ["reason", "topic"].map(|name| json[name].as_str());
        let members: Vec<_> = members.into_iter().flatten().collect();
        format!("{} {path} {}", request.method, members.join(" "))
    });
    requests.map(|line| line.trim_end().to_owned()).collect()
}

fn stored(server: &MockServer) -> [StoredContact; 2] {
    [ADA, NEW].map(|address| server.contact(address).unwrap())
}

#[tokio::test]
async fn names_properties_and_opt_outs_go_to_the_new_address_and_the_old_one_is_opted_out_last() {
    let (server, contacts) = start(None, None).await;

    let new = contacts.change_address(" Ada@Example.com", " Ada@Example.net");
    let new = new.await.unwrap();

    let expected = [
        "GET /ada@example.com",
        "POST",
        "POST /ada@example.net/unsubscribe news",
        "POST /ada@example.net/unsubscribe offers",
        "GET /ada@example.net",
        "GET /ada@example.com",
        "POST /ada@example.com/unsubscribe",
    ];
    assert_eq!(sent(&server), expected);
    assert_eq!((new.email.as_str(), new.unsubscribed), (NEW, false));
    assert_eq!(new.first_name.as_deref(), Some("Ada"));
    assert_eq!(new.last_name.as_deref(), Some("Lovelace"));
    assert_eq!(json!(new.properties), json!({"plan": "pro"}));
    let topics = json!({"news": false, "offers": false, "deals": true, "beta": false});
    assert_eq!(json!(new.topics), topics);
    let [old, new] = stored(&server);
    assert_eq!(old.unsubscribe_reason, "manual");
    // No opt-in moves, and an answer that was not given may be an opt-out.
    assert_eq!(json!(new.answers), json!({"news": false, "offers": false}));
}

#[tokio::test]
async fn a_contact_of_the_new_address_keeps_its_names_properties_and_opt_ins() {
    let (server, contacts) = start(None, Some(None)).await;

    let new = contacts.change_address(ADA, NEW).await.unwrap();

    assert_eq!(new.first_name.as_deref(), Some("Augusta"));
    assert!(new.properties.is_empty() && !new.unsubscribed);
    let [old, new] = stored(&server);
    let answers = json!({"news": false, "offers": false, "beta": true});
    assert_eq!(json!(new.answers), answers);
    assert!(old.unsubscribed);
}

#[tokio::test]
async fn an_opt_out_of_everything_goes_along_and_the_old_contact_keeps_its_reason() {
    for reason in [Reason::Preferences, Reason::Complaint] {
        for new in [None, Some(None)] {
            let (existed, (server, contacts)) = (new.is_some(), start(Some(reason), new).await);

            let new = contacts.change_address(ADA, NEW).await.unwrap();

            let preferences = Some(UnsubscribeReason::Preferences);
            assert_eq!(new.unsubscribe_reason, preferences, "{reason:?}");
            let sent = sent(&server);
            assert_eq!(sent[..2], ["GET /ada@example.com", "POST"]);
            let opt_out = "POST /ada@example.net/unsubscribe preferences";
            match existed {
                // Nothing can fail between the new contact and its opt-out.
                false => assert_eq!(sent[2], opt_out),
                // It could be opted out already.
                true => assert_eq!(sent[2..4], ["GET /ada@example.net", opt_out]),
            }
            let [old, new] = stored(&server);
            let is_complaint = reason == Reason::Complaint;
            assert_eq!(old.unsubscribe_reason == "complaint", is_complaint);
            assert!(new.unsubscribed && !new.answers["news"]);
        }
    }
}

#[tokio::test]
async fn a_manual_opt_out_goes_along_and_is_marked_before_the_new_contact_exists() {
    let (server, contacts) = start(Some(Reason::Manual), None).await;

    let new = contacts.change_address(ADA, NEW).await.unwrap();

    assert!(new.unsubscribed);
    let first = [
        "GET /ada@example.com",
        "GET /ada@example.net",
        "POST /ada@example.com/unsubscribe preferences",
        "POST",
    ];
    assert_eq!(sent(&server)[..4], first);
    // A further call does not take it for its own.
    let again = contacts.change_address(ADA, NEW).await.unwrap();
    assert_eq!(again, new);
}

#[tokio::test]
async fn a_manual_opt_out_that_may_be_of_an_earlier_call_changes_nothing_until_the_new_contact_is_opted_out()
 {
    let (server, contacts) = start(Some(Reason::Manual), Some(None)).await;
    let before = stored(&server);

    let error = contacts.change_address(ADA, NEW).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Unchanged, 1));
    let text = error.to_string();
    assert!(
        text.starts_with(
            "change_address: if the address was changed before, most likely everything is done: "
        ),
        "{text}"
    );
    assert_eq!(stored(&server), before);

    contacts.unsubscribe(NEW).await.unwrap();
    let new = contacts.change_address(ADA, NEW).await.unwrap();

    assert!(new.unsubscribed);
    assert!(!stored(&server)[1].answers["news"]);
}

#[tokio::test]
async fn a_second_call_after_a_first_that_succeeded_changes_nothing_and_has_a_kind_of_its_own() {
    let (server, contacts) = start(None, None).await;
    contacts.change_address(ADA, NEW).await.unwrap();
    // In between, the person subscribes to a topic.
    contacts.subscribe(NEW).topic("news").await.unwrap();
    let before = stored(&server);

    let error = contacts.change_address(ADA, NEW).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    assert_eq!(error.kind().to_string(), "ambiguous");
    assert!(!error.is_retryable() && !error.may_repeat());
    assert_eq!(error.visitor_status(), 500);
    assert_eq!(stored(&server), before);
    let no_address = contacts.change_address(ADA, "").await.unwrap_err();
    assert_eq!(no_address.kind(), ErrorKind::Input);
}

#[tokio::test]
async fn a_new_address_that_is_opted_out_or_reported_spam_stays_so() {
    for reason in [Reason::Manual, Reason::Preferences, Reason::Complaint] {
        let (server, contacts) = start(None, Some(Some(reason))).await;

        let new = contacts.change_address(ADA, NEW).await.unwrap();

        assert!(new.unsubscribed);
        let [old, new] = stored(&server);
        let reason = format!("{reason:?}").to_lowercase();
        assert_eq!(new.unsubscribe_reason, reason);
        assert!(old.unsubscribed);
    }
}

#[tokio::test]
async fn a_contact_of_the_new_address_that_is_opted_out_gets_no_other_opt_out_of_everything() {
    let reasons = [Reason::Manual, Reason::Preferences, Reason::Complaint];
    for old in reasons {
        for new in reasons {
            let (server, contacts) = start(Some(old), Some(Some(new))).await;

            contacts.change_address(ADA, NEW).await.unwrap();

            // It could replace the reason, and so end the lock after a spam report.
            let sent = sent(&server);
            let is_of_everything = |line: &&String| {
                line.contains("ada@example.net/unsubscribe")
                    && (line.ends_with("unsubscribe") || line.ends_with("preferences"))
            };
            assert_eq!(sent.iter().find(is_of_everything), None, "{old:?} {new:?}");
            assert!(sent.contains(&"POST /ada@example.net/unsubscribe news".to_owned()));
            let reason = format!("{new:?}").to_lowercase();
            assert_eq!(stored(&server)[1].unsubscribe_reason, reason);
        }
    }
}

/// A contact as a response has it.
fn shown(address: &str, reason: &str, topics: &Value) -> String {
    let contact = json!({"id": "con_1", "email": address, "unsubscribed": false, "topics": topics,
        "unsubscribe_reason": reason, "created_at": 1_700_000_000});
    contact.to_string()
}

fn retrieved(address: &str, contact: String) -> Fault {
    let path = format!("/contacts/{address}");
    Fault::wrong_body(contact).method("GET").path(path)
}

#[tokio::test]
async fn a_spam_report_counts_as_an_opt_out_whatever_the_flag_says() {
    let reported = |address| shown(address, "complaint", &json!({"news": false}));
    let (server, contacts) = start(Some(Reason::Complaint), None).await;
    server.fault(retrieved(ADA, reported(ADA)));

    contacts.change_address(ADA, NEW).await.unwrap();

    assert!(stored(&server)[1].unsubscribed);
    let of_old = "POST /ada@example.com/unsubscribe".to_owned();
    assert!(!sent(&server).contains(&of_old));

    for old in [Reason::Manual, Reason::Preferences] {
        let (server, contacts) = start(Some(old), Some(Some(Reason::Complaint))).await;
        server.fault(retrieved(NEW, reported(NEW)));

        contacts.change_address(ADA, NEW).await.unwrap();

        let of_new = "POST /ada@example.net/unsubscribe preferences".to_owned();
        assert!(!sent(&server).contains(&of_new), "{old:?}");
    }
}

#[tokio::test]
async fn a_number_beyond_64_bits_is_rounded_and_any_other_integer_goes_along_unchanged() {
    let (server, contacts) = start(None, None).await;
    let properties = r#""properties":{"big":123456789012345678901234567890,"exact":18446744073709551615},"topics""#;
    let ada = shown(ADA, "", &json!({"news": false})).replace(r#""topics""#, properties);
    server.fault(retrieved(ADA, ada));

    contacts.change_address(ADA, NEW).await.unwrap();

    let requests = server.requests().into_iter();
    let mut created = requests.filter(|request| request.path == "/contacts");
    let created = created.find(|request| request.method == "POST").unwrap();
    let sent = String::from_utf8_lossy(&created.body);
    assert!(sent.contains(r#""big":1.2345678901234568e"#), "{sent}");
    assert!(sent.contains(r#""exact":18446744073709551615"#), "{sent}");
}

#[tokio::test]
async fn an_address_is_not_changed_if_the_service_does_not_show_the_topics_of_the_old_contact() {
    let mut absent: Value = serde_json::from_str(&shown(ADA, "", &json!(null))).unwrap();
    absent.as_object_mut().unwrap().remove("topics");
    for body in [shown(ADA, "", &json!(null)), absent.to_string()] {
        // The first time that the old contact is retrieved, and the second time.
        for (retrieve, outcome) in [(0, Outcome::Unchanged), (1, Outcome::Unknown)] {
            let (server, contacts) = start(None, None).await;
            server.fault(retrieved(ADA, body.clone()).after(retrieve).times(1));

            let error = contacts.change_address(ADA, NEW).await.unwrap_err();

            let found = (error.kind(), error.outcome());
            assert_eq!(found, (ErrorKind::Decode, outcome), "{error}");
            assert_eq!(error.attempts(), 1, "{error}");
            assert!(error.is_malformed_contact(), "{error}");
            assert!(!server.contact(ADA).unwrap().unsubscribed);
            assert_eq!(server.contact(NEW).is_none(), retrieve == 0);
            contacts.change_address(ADA, NEW).await.unwrap();
            assert!(!stored(&server)[1].answers["news"]);
        }
    }
}

#[tokio::test]
async fn the_opt_out_goes_along_although_the_new_contact_cannot_be_read() {
    let (server, contacts) = start(Some(Reason::Preferences), Some(None)).await;
    let topics = json!({"news": "yes"});
    server.fault(retrieved(NEW, shown(NEW, "", &topics)));

    contacts.change_address(ADA, NEW).await.unwrap_err();

    assert!(server.contact(NEW).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_topic_whose_answer_is_null_goes_along_as_an_opt_out() {
    let (server, contacts) = start(None, None).await;
    let topics = json!({"news": true, "deals": null});
    server.fault(retrieved(ADA, shown(ADA, "", &topics)));

    contacts.change_address(ADA, NEW).await.unwrap();

    let [_, new] = stored(&server);
    assert_eq!(json!(new.answers), json!({"deals": false}));
}

#[tokio::test]
async fn a_call_that_cannot_keep_up_with_the_opt_outs_fails_and_can_be_repeated() {
    let ada = contact(ADA, None).answer("news", false);
    let server = MockServer::builder().topic("news", true).seed_contact(ada);
    let server = server.start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let mut call = pin!(contacts.change_address(ADA, NEW).into_future());
    // In each round, the new contact was retrieved, and the old one was not.
    for (requests, topic) in [(4, "offers"), (7, "deals"), (10, "beta")] {
        until_sent(&server, requests, call.as_mut()).await;
        server.topic(topic, false);
    }

    let error = in_time(call).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unfinished, "{error}");
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Unknown, 1));
    assert!(error.is_retryable(), "{error}");
    assert!(!stored(&server)[0].unsubscribed);
    contacts.change_address(ADA, NEW).await.unwrap();
    let [old, new] = stored(&server);
    assert!(old.unsubscribed && !new.answers["beta"]);
}

#[tokio::test]
async fn the_same_address_in_another_spelling_is_only_retrieved() {
    let (server, contacts) = start(None, None).await;

    let ada = contacts.change_address(ADA, " Ada@EXAMPLE.com ");
    let ada = ada.await.unwrap();

    assert_eq!((ada.email.as_str(), ada.unsubscribed), (ADA, false));
    assert_eq!(sent(&server), ["GET /ada@example.com"]);
}

#[tokio::test]
async fn an_address_that_is_no_contact_or_cannot_be_one_changes_nothing() {
    let (server, contacts) = start(None, None).await;

    let missing = contacts.change_address("nobody@example.com", NEW).await;
    let no_address = contacts.change_address(ADA, "no address").await;

    let [missing, no_address] = [missing, no_address].map(Result::unwrap_err);
    assert!(missing.is_not_found() && no_address.is_validation_error());
    for error in [missing, no_address] {
        assert_eq!(error.outcome(), Outcome::Refused);
        assert!(error.to_string().starts_with("change_address: "), "{error}");
    }
    server.clear_requests();
    for (old, new) in [("", NEW), ("..", NEW), (ADA, ""), (ADA, " . ")] {
        let error = contacts.change_address(old, new).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
    }
    assert!(sent(&server).is_empty());
    assert!(!server.contact(ADA).unwrap().unsubscribed);
    assert_eq!(server.contacts().len(), 1);
}

#[tokio::test]
async fn a_new_contact_that_was_accepted_and_does_not_exist_is_not_taken_for_a_missing_one() {
    for body in ["{}", r#"{"id": "c_9", "email": "eve@x.io"}"#] {
        let (server, contacts) = start(None, None).await;
        server.fault(
            Fault::status(201)
                .body(body)
                .method("POST")
                .path("/contacts"),
        );

        let error = contacts.change_address(ADA, NEW).await.unwrap_err();

        assert!(
            !error.is_not_found() && error.missing().is_none(),
            "{body}: {error}"
        );
        assert_eq!(error.visitor_status(), 503, "{error}");
        assert!(!server.contact(ADA).unwrap().unsubscribed);
    }
}

#[tokio::test]
async fn an_address_is_not_changed_if_the_plan_has_no_room_for_another_contact() {
    for old in [None, Some(Reason::Manual)] {
        let (server, contacts) = start(old, None).await;
        server.set_ceiling(Some(1));

        let error = contacts.change_address(ADA, NEW).await.unwrap_err();

        assert!(error.is_quota_exceeded());
        // The reason of the manual opt-out was changed.
        let outcome = match old {
            None => Outcome::Refused,
            Some(_) => Outcome::Unknown,
        };
        assert_eq!(error.outcome(), outcome);
        assert!(server.contact(NEW).is_none());
    }
}

#[tokio::test]
async fn an_address_is_changed_in_every_dialect() {
    for dialect in dialects() {
        let server = MockServer::builder().dialect(dialect).topic("news", true);
        let server = server.topic("offers", false).topic("beta", false);
        let server = server.seed_contact(ada(None)).start().await;
        let settings = patient_settings(&server, dialect, server.full_key());
        let contacts = settings.build().unwrap().contacts();

        let new = contacts.change_address(ADA, NEW).await.unwrap();

        let [old, stored] = stored(&server);
        assert_eq!(json!(new.topics), json!(stored.topics), "{dialect}");
        assert_eq!((stored.unsubscribed, old.unsubscribed), (false, true));
    }
}

type NewFault = fn() -> Fault;

/// What goes wrong with a request.
const FAULTS: [NewFault; 5] = [
    || Fault::status(503),
    || Fault::status(503).applied(),
    || Fault::close_before(),
    || Fault::close_after(),
    || Fault::wrong_body("{}"),
];

/// A start, and what must hold after any failures and repeated calls.
struct Case {
    old: Option<Reason>,
    new: Option<Option<Reason>>,
    server: MockServer,
    contacts: Contacts,
}

impl Case {
    async fn call(&self) -> Result<(), Error> {
        let call = self.contacts.change_address(ADA, NEW);
        call.retry(RetryPolicy::none()).await.map(drop)
    }

    /// Calls with one fault for each of these requests, in one call after the other, and then without faults.
    async fn run(&self, faults: &[(usize, NewFault)]) {
        self.server.reset();
        let mut before = self.server.contacts();
        for (request, fault) in faults {
            self.server.fault(fault().after(*request as u64).times(1));
            let called = self.call().await;
            self.server.clear_faults();
            let after = self.server.contacts();
            match called {
                Err(error) if error.outcome() != Outcome::Unknown => {
                    assert_eq!(after, before, "{error:?}");
                }
                _ => {}
            }
            before = after;
        }
        let last = self.call().await;
        self.check(last, &before, faults.len());
    }

    fn check(&self, last: Result<(), Error>, before: &[StoredContact], faults: usize) {
        let case = format!("{:?} {:?} {faults}: {last:?}", self.old, self.new);
        let is_opt_in = |path: &str| path.ends_with("/subscribe");
        let requests = self.server.requests();
        assert!(!requests.iter().any(|sent| is_opt_in(&sent.path)), "{case}");
        let [old, new] = stored(&self.server);
        assert!(old.unsubscribed, "{case}");
        let was_opted_out = self.old.is_some() || matches!(self.new, Some(Some(_)));
        let is_unclear = self.old == Some(Reason::Manual) && self.new == Some(None);
        if let Err(error) = last {
            // It cannot be known whether an earlier call has opted out the old contact.
            assert_eq!(error.kind(), ErrorKind::Ambiguous, "{case}");
            assert!(is_unclear || !was_opted_out && faults > 0, "{case}");
            assert_eq!(self.server.contacts(), before, "{case}");
        }
        if !is_unclear {
            assert_eq!(new.unsubscribed, was_opted_out, "{case}");
            assert_eq!(new.answers.get("news"), Some(&false), "{case}");
            assert_eq!(new.answers.get("offers"), Some(&false), "{case}");
        }
        if self.new == Some(Some(Reason::Complaint)) {
            assert_eq!(new.unsubscribe_reason, "complaint", "{case}");
        }
    }
}

#[tokio::test]
async fn a_call_that_failed_at_any_request_can_be_repeated_from_every_state_of_both_contacts() {
    for old in STATES {
        for new in [None].into_iter().chain(STATES.map(Some)) {
            let (server, contacts) = start(old, new).await;
            let case = Case {
                old,
                new,
                server,
                contacts,
            };
            case.run(&[]).await;
            let requests = case.server.requests().len();

            for first in 0..requests {
                for fault in FAULTS {
                    case.run(&[(first, fault)]).await;
                }
                // The second call fails, too.
                for second in 0..requests {
                    case.run(&[(first, FAULTS[1]), (second, FAULTS[1])]).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_after_any_number_of_polls_can_be_repeated() {
    for reason in STATES {
        let (server, contacts) = start(None, None).await;

        let polls = for_each_number_of_polls(async |polls| {
            // A request of a call that was dropped may arrive later, so each contact has its own addresses.
            let [old, new] = ["com", "net"].map(|end| format!("{polls}@example.{end}"));
            server.seed_contact(contact(&old, reason).answer("news", false));
            let change = || contacts.change_address(&old, &new).into_future();
            let ended = poll_times(polls, change()).await;

            if let Err(error) = in_time(change()).await {
                assert_eq!(error.kind(), ErrorKind::Ambiguous, "{reason:?}: {error}");
                assert_eq!(reason, None);
            }

            let [old, new] = [old, new].map(|address| server.contact(&address).unwrap());
            assert_eq!(
                (new.unsubscribed, old.unsubscribed),
                (reason.is_some(), true)
            );
            assert!(!new.answers["news"]);
            ended.is_some()
        })
        .await;

        assert!(polls > 1, "{polls}");
    }
}

/// Polls a call until the mock has received this many requests. Until the next poll, it sends no other.
async fn until_sent(
    server: &MockServer,
    requests: usize,
    mut call: Pin<&mut (impl Future + ?Sized)>,
) {
    while server.requests().len() < requests {
        let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending()));
        assert!(polled.await, "the call ended earlier");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_opt_out_that_arrives_before_the_last_request_goes_along_and_keeps_its_reason() {
    for topic in [None, Some("deals")] {
        // The last two requests are the retrieve of the old contact and its opt-out.
        for requests in 1..=5 {
            let (server, contacts) = start(None, None).await;
            let mut call = pin!(contacts.change_address(ADA, NEW).into_future());
            until_sent(&server, requests, call.as_mut()).await;

            let opt_out = contacts.unsubscribe(ADA);
            match topic {
                None => opt_out.reason(OptOutReason::Preferences).await.unwrap(),
                Some(topic) => opt_out.topic(topic).await.unwrap(),
            };
            let new = in_time(call).await.unwrap();

            let case = format!("{topic:?} after {requests} requests");
            let [old, stored] = stored(&server);
            assert_eq!(new.unsubscribed, topic.is_none(), "{case}");
            assert_eq!(new.topics["deals"], topic.is_none(), "{case}");
            assert_eq!(json!(new.topics), json!(stored.topics), "{case}");
            let reason = match topic {
                None => "preferences",
                Some(_) => "manual",
            };
            assert_eq!(old.unsubscribe_reason, reason, "{case}");
            let opt_outs = sent(&server);
            let opt_outs = opt_outs
                .iter()
                .filter(|line| line.starts_with("POST /ada@example.com"));
            assert_eq!(opt_outs.count(), 1 + usize::from(topic.is_some()), "{case}");
        }
    }
}

#[tokio::test]
async fn of_two_calls_at_once_one_succeeds_and_the_new_contact_stays_subscribed() {
    // The last two requests of the slow call are the retrieve of the old contact and its opt-out.
    for requests in 1..=5 {
        let (server, contacts) = start(None, None).await;
        let mut slow = pin!(contacts.change_address(ADA, NEW).into_future());
        until_sent(&server, requests, slow.as_mut()).await;

        let fast = in_time(contacts.change_address(ADA, NEW).into_future()).await;
        let slow = in_time(slow).await;

        fast.unwrap();
        let [old, new] = stored(&server);
        assert_eq!((old.unsubscribed, new.unsubscribed), (true, false));
        assert!(!new.answers["news"], "{new:?}");
        if let Err(error) = slow {
            let text = error.to_string();
            assert!(text.contains("opted out during the call"), "{text}");
            let found = (error.kind(), error.outcome());
            assert_eq!(found, (ErrorKind::Ambiguous, Outcome::Unknown));
        }
    }
}

#[tokio::test]
async fn an_opt_out_during_a_call_is_not_ambiguous_if_the_new_contact_is_opted_out_too() {
    for requests in 1..=3 {
        let (server, contacts) = start(None, Some(Some(Reason::Preferences))).await;
        let mut call = pin!(contacts.change_address(ADA, NEW).into_future());
        until_sent(&server, requests, call.as_mut()).await;

        contacts.unsubscribe(ADA).await.unwrap();
        let new = in_time(call).await.unwrap();

        let [old, _] = stored(&server);
        assert!(old.unsubscribed && new.unsubscribed, "{requests}");
        assert!(!new.topics["news"], "{requests}");
    }
}

#[tokio::test]
async fn an_opt_out_of_a_contact_that_is_opted_out_already_is_not_repeated_but_its_topics_go_along()
{
    let (server, contacts) = start(Some(Reason::Preferences), None).await;
    let mut call = pin!(contacts.change_address(ADA, NEW).into_future());
    until_sent(&server, 4, call.as_mut()).await;

    contacts.unsubscribe(ADA).topic("deals").await.unwrap();
    let new = in_time(call).await.unwrap();

    assert!(new.unsubscribed && !new.topics["deals"]);
    assert_eq!(stored(&server)[0].unsubscribe_reason, "preferences");
}

#[tokio::test]
async fn a_last_response_that_was_lost_is_asked_for_again_by_the_call_itself() {
    let (server, contacts) = start(None, None).await;
    let last = "/contacts/ada@example.com/unsubscribe";
    server.fault(Fault::close_after().path(last).times(1));

    let new = contacts.change_address(ADA, NEW).await.unwrap();

    assert!(!new.unsubscribed);
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn the_deadline_and_the_retry_policy_of_the_call_apply_to_its_requests() {
    let (server, contacts) = start(None, None).await;
    server.fault(Fault::status(503).after(1));

    let once = contacts.change_address(ADA, NEW);
    let once = once.retry(RetryPolicy::none()).await.unwrap_err();
    assert_eq!((once.attempts(), server.requests().len()), (1, 2));

    server.clear_faults();
    server.fault(Fault::status(503).retry_after(60));
    let late = contacts.change_address(ADA, NEW);
    // Without the deadline, it would wait for 60 s.
    let late = late.retry(RetryPolicy::exponential());
    let late = late.deadline(Duration::from_secs(50));
    let late = in_time(late.into_future()).await.unwrap_err();
    assert_eq!((late.outcome(), late.attempts()), (Outcome::Unchanged, 1));
    assert!(late.retry_after().is_some());
}

#[tokio::test]
async fn an_opt_out_reaches_the_spelling_of_the_new_address_that_the_service_has_stored() {
    for opted_out in [Some(Reason::Preferences), None] {
        let dialect = Dialect {
            path_address: PathAddress::Exact,
            ..Dialect::default()
        };
        let server = MockServer::builder().dialect(dialect).topic("news", true);
        let server = server.seed_contact(contact(ADA, opted_out).answer("news", false));
        let server = server.start().await;
        let contacts = mock_builder(&server).build().unwrap().contacts();

        let new = contacts.change_address(ADA, "JÜRGEN@x.io").await.unwrap();
        // It must not take the opt-out of the old contact, which is its own, for one of the person.
        let again = contacts.change_address(ADA, "JÜRGEN@x.io").await;

        assert_eq!(new.email, "jürgen@x.io");
        assert_eq!(again.is_ok(), opted_out.is_some());
        let stored = server.contact("jürgen@x.io").unwrap();
        assert_eq!(stored.unsubscribed, opted_out.is_some());
        assert!(!stored.topics["news"]);
    }
}

#[test]
fn an_address_is_changed_without_a_runtime() {
    let server = MockServer::builder().seed_contact(ada(None));
    let server = server.topic("news", true).topic("beta", false);
    let server = server.start_blocking();
    let contacts = server.client().contacts();

    let new = contacts.change_address(ADA, NEW).wait().unwrap();

    assert!(!new.topics["news"]);
    assert!(server.contact(ADA).unwrap().unsubscribed);
    let missing = contacts.change_address("nobody@example.com", NEW).wait();
    assert!(missing.unwrap_err().is_not_found());
}

#[tokio::test]
async fn an_opt_out_of_a_topic_that_is_new_goes_along_with_those_of_all_others() {
    let ada = contact(ADA, Some(Reason::Preferences)).answer("news", false);
    let server = MockServer::builder().topic("news", true).seed_contact(ada);
    let server = server.start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let mut call = pin!(contacts.change_address(ADA, NEW).into_future());
    // Both opt-outs were sent, and the old contact was not retrieved again.
    until_sent(&server, 4, call.as_mut()).await;

    server.topic("offers", false);
    in_time(call).await.unwrap();

    let expected = [
        "GET /ada@example.com",
        "POST",
        "POST /ada@example.net/unsubscribe preferences",
        "POST /ada@example.net/unsubscribe news",
        "GET /ada@example.net",
        "GET /ada@example.com",
        "POST /ada@example.net/unsubscribe offers",
        "GET /ada@example.net",
        "GET /ada@example.com",
    ];
    assert_eq!(sent(&server), expected);
}
