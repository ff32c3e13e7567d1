//! `.wait()`: the same calls, made on ordinary threads.

use std::thread;
use std::time::Duration;

use audience::contacts::{BatchOutcome, Contacts, NewContact, OptOutReason};
use audience::mock::{Fault, MockServer};
use audience::rule::{Condition, Rule};
use audience::{Client, ErrorKind, Method, RetryPolicy};
use serde_json::{Value, json};

fn server() -> (MockServer, Contacts) {
    let server = MockServer::builder().topic("news", true).start_blocking();
    let contacts = client(&server).contacts();
    (server, contacts)
}

fn client(server: &MockServer) -> Client {
    Client::new(server.url(), server.full_key()).unwrap()
}

fn create_contacts(contacts: &Contacts, count: usize) {
    let entries: Vec<_> = (0..count)
        .map(|n| NewContact::new(format!("{n}@x.io")).property("n", n))
        .collect();
    for part in entries.chunks(100) {
        let report = contacts.create_batch(part).wait().unwrap();
        assert_eq!(report.failures().count(), 0);
    }
}

#[test]
fn every_async_call_has_a_blocking_one() {
    let (server, contacts) = server();
    let ada = "ada@x.io";

    let created = contacts.create(NewContact::new(ada)).wait().unwrap();
    assert!(created.is_new());
    let report = contacts
        .create_batch([NewContact::new(ada)])
        .wait()
        .unwrap();
    assert_eq!(report.entries[0].outcome, BatchOutcome::Updated);
    let topic = contacts.unsubscribe(ada).topic("news").wait().unwrap();
    assert_eq!((topic.topics["news"], topic.unsubscribed), (false, false));
    let answered = contacts.set_topic(ada, "news", true).idempotent().wait();
    assert!(answered.unwrap().topics["news"]);
    let form = contacts.set_topics(ada, [("news", false)]);
    let recorded = form.deadline(Duration::from_secs(60)).wait().unwrap();
    assert_eq!(recorded.changed.get("news"), Some(&false));
    let unknown = contacts
        .set_topics(ada, [("typo", true)])
        .only_changed()
        .wait()
        .unwrap_err();
    assert_eq!(unknown.failed(), Some(("typo", true)));
    let opt_out = contacts.unsubscribe(ada).reason(OptOutReason::Preferences);
    assert!(opt_out.wait().unwrap().unsubscribed);
    assert!(!contacts.subscribe(ada).wait().unwrap().unsubscribed);
    contacts
        .merge_properties(ada, [("seats", 3)])
        .wait()
        .unwrap();
    assert_eq!(
        contacts.retrieve(ada).wait().unwrap().properties["seats"],
        3
    );
    let found = contacts.find(ada).wait().unwrap();
    let large = Condition::property("seats").greater_than(2);
    assert!(found.is_some() && contacts.matches(ada, large.clone()).wait().unwrap());
    assert_eq!(contacts.matches_each(ada, [large]).wait().unwrap(), [true]);
    let updated = contacts.update(ada).property("seats", 4).wait();
    assert_eq!(updated.unwrap().properties["seats"], 4);
    assert_eq!(contacts.list().query("ada").wait().unwrap().data.len(), 1);

    let mail = json!({"from": "us@x.io", "to": ada, "subject": "Hi"});
    let raw = client(&server)
        .request(Method::POST, ["emails"])
        .json(&mail)
        .unwrap();
    assert!(raw.wait().unwrap().json::<Value>().unwrap()["id"].is_string());
}

#[test]
fn a_blocking_call_returns_status_headers_and_attempts_with_its_value() {
    let (_server, contacts) = server();
    let ada = "ada@x.io";

    let created = contacts
        .create(NewContact::new(ada))
        .response()
        .wait()
        .unwrap();
    let page = contacts.list().query(ada).response().wait().unwrap();

    assert_eq!((created.status().as_u16(), created.attempts()), (201, 1));
    assert!(created.value().contact.email == ada && created.value().is_new());
    assert!(page.headers().contains_key("content-type"));
    assert_eq!(page.into_inner().data.len(), 1);
}

#[test]
fn a_list_iterates_over_all_pages_and_continues_from_a_saved_cursor() {
    let (_server, contacts) = server();
    create_contacts(&contacts, 25);

    let mut iter = contacts.list().limit(10).stream().wait();
    let first: Vec<_> = iter
        .by_ref()
        .take(13)
        .map(|contact| contact.unwrap().email)
        .collect();
    // Of the second page.
    assert_eq!(iter.size_hint(), (7, None));
    let cursor = iter.stream().cursor().unwrap().to_owned();
    let rest = contacts.list().limit(10).after(cursor).stream().wait();
    let rest: Vec<_> = rest.map(|contact| contact.unwrap().email).collect();

    let newest_first: Vec<_> = (0..25).rev().map(|n| format!("{n}@x.io")).collect();
    assert_eq!([first, rest].concat(), newest_first);
    let pages = contacts
        .list()
        .limit(10)
        .pages()
        .wait()
        .map(|page| page.unwrap().data.len());
    assert_eq!(pages.collect::<Vec<_>>(), [10, 10, 5]);
    let rule = Rule::all([Condition::property("n").less_than(5)]);
    assert_eq!(contacts.list().rule(rule).count().wait().unwrap(), 5);
}

#[test]
fn after_an_error_a_list_continues_with_no_contact_lost() {
    let (server, contacts) = server();
    create_contacts(&contacts, 20);
    let mut iter = contacts
        .list()
        .limit(10)
        .retry(RetryPolicy::none())
        .stream()
        .wait();
    let first = iter.by_ref().take(10).filter(Result::is_ok).count();

    server.fault(Fault::status(503).times(1));
    let error = iter.next().unwrap().unwrap_err();
    let rest = iter.by_ref().filter(Result::is_ok).count();

    assert_eq!(error.api().unwrap().status(), 503);
    assert_eq!((first, rest), (10, 10));
    assert!(iter.next().is_none());
}

#[test]
fn a_blocking_call_has_the_same_settings_as_the_async_one() {
    let (server, contacts) = server();
    server.fault(Fault::delay(Duration::from_secs(3_600)));

    let call = contacts
        .retrieve("ada@x.io")
        .timeout(Duration::from_millis(50));
    let error = call.retry(RetryPolicy::none()).wait().unwrap_err();

    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Timeout, 1));
}

#[test]
fn one_client_serves_many_threads() {
    let (server, contacts) = server();

    thread::scope(|scope| {
        for n in 0..8 {
            let contacts = contacts.clone();
            scope.spawn(move || {
                contacts
                    .create(NewContact::new(format!("{n}@x.io")))
                    .wait()
                    .unwrap()
            });
        }
    });

    drop(contacts);
    assert_eq!(server.contact_count(), 8);
}

#[test]
fn a_for_loop_over_a_list_reads_all_contacts() {
    let (_server, contacts) = server();
    create_contacts(&contacts, 25);

    let mut addresses = Vec::new();
    for contact in contacts.list().limit(10).stream().wait() {
        addresses.push(contact.unwrap().email);
    }

    assert_eq!(addresses.len(), 25);
}

#[test]
fn a_connection_stays_open_between_calls_of_different_threads() {
    let (server, contacts) = server();

    for n in 0..4 {
        let contacts = contacts.clone();
        let create = move || contacts.create(format!("{n}@x.io")).wait();
        assert!(thread::spawn(create).join().unwrap().unwrap().is_new());
    }

    assert_eq!(server.contact_count(), 4);
}
