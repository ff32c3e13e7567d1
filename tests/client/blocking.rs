//! The blocking client: the same calls, made on ordinary threads and on threads that run async code.

use std::thread;
use std::time::Duration;

use audience::blocking::{Client, Contacts};
use audience::contacts::{BatchOutcome, NewContact, OptOutReason};
use audience::mock::{Fault, MockServer};
use audience::rule::{Condition, Rule};
use audience::{Auth, ErrorKind, Method, RetryPolicy};
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
        contacts.create_batch(part).send().unwrap();
    }
}

#[test]
fn every_async_call_has_a_blocking_one() {
    let (server, contacts) = server();
    let ada = "ada@x.io";

    let created = contacts.create(NewContact::new(ada)).send().unwrap();
    assert!(created.is_new());
    let report = contacts
        .create_batch([NewContact::new(ada)])
        .send()
        .unwrap();
    assert_eq!(report.entries[0].outcome, BatchOutcome::Updated);
    let topic = contacts.unsubscribe(ada).topic("news").send().unwrap();
    assert_eq!((topic.topics["news"], topic.unsubscribed), (false, false));
    let answered = contacts.answer(ada, "news", true).repeatable().send();
    assert!(answered.unwrap().topics["news"]);
    let form = contacts.answers(ada, [("news", false)]).record_unchanged();
    let recorded = form.deadline(Duration::from_secs(60)).send().unwrap();
    assert_eq!(recorded.changed.get("news"), Some(&false));
    let unknown = contacts.answers(ada, [("typo", true)]).send().unwrap_err();
    assert_eq!(unknown.failed(), Some(("typo", true)));
    let opt_out = contacts.unsubscribe(ada).reason(OptOutReason::Preferences);
    assert!(opt_out.send().unwrap().unsubscribed);
    assert!(!contacts.subscribe(ada).send().unwrap().unsubscribed);
    contacts
        .merge_properties(ada, [("seats", 3)])
        .send()
        .unwrap();
    assert_eq!(
        contacts.retrieve(ada).send().unwrap().properties["seats"],
        3
    );
    assert_eq!(contacts.list().query("ada").send().unwrap().data.len(), 1);

    let mail = json!({"from": "us@x.io", "to": ada, "subject": "Hi"});
    let raw = client(&server)
        .request(Method::POST, ["emails"])
        .json(&mail)
        .unwrap();
    assert!(raw.send().unwrap().json::<Value>().unwrap()["id"].is_string());
}

#[test]
fn a_blocking_call_returns_status_headers_and_attempts_with_its_value() {
    let (_server, contacts) = server();
    let ada = "ada@x.io";

    let created = contacts
        .create(NewContact::new(ada))
        .response()
        .send()
        .unwrap();
    let page = contacts.list().query(ada).response().send().unwrap();

    assert_eq!((created.status().as_u16(), created.attempts()), (201, 1));
    assert!(created.contact.email == ada && created.is_new());
    assert!(page.headers().contains_key("content-type"));
    assert_eq!(page.into_inner().data.len(), 1);
}

#[test]
fn a_list_iterates_over_all_pages_and_continues_from_a_saved_cursor() {
    let (_server, contacts) = server();
    create_contacts(&contacts, 25);

    let mut iter = contacts.list().limit(10).iter();
    let first: Vec<_> = iter
        .by_ref()
        .take(13)
        .map(|contact| contact.unwrap().email)
        .collect();
    let cursor = iter.cursor().unwrap().to_owned();
    let rest = contacts.list().limit(10).after(cursor).iter();
    let rest: Vec<_> = rest.map(|contact| contact.unwrap().email).collect();

    let newest_first: Vec<_> = (0..25).rev().map(|n| format!("{n}@x.io")).collect();
    assert_eq!([first, rest].concat(), newest_first);
    let pages = contacts
        .list()
        .limit(10)
        .pages()
        .map(|page| page.unwrap().data.len());
    assert_eq!(pages.collect::<Vec<_>>(), [10, 10, 5]);
    let rule = Rule::all([Condition::property("n").less_than(5)]);
    assert_eq!(contacts.list().rule(rule).count().send().unwrap(), 5);
}

#[test]
fn after_an_error_a_list_continues_with_no_contact_lost() {
    let (server, contacts) = server();
    create_contacts(&contacts, 20);
    let mut iter = contacts.list().limit(10).retry(RetryPolicy::none()).iter();
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
    server.fault(Fault::delay(Duration::from_secs(5)));

    let call = contacts
        .retrieve("ada@x.io")
        .timeout(Duration::from_millis(50));
    let error = call.retry(RetryPolicy::none()).send().unwrap_err();

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
                    .send()
                    .unwrap()
            });
        }
    });

    drop(contacts);
    assert_eq!(server.contact_count(), 8);
}

#[test]
fn a_client_is_built_with_settings_of_its_own_or_those_of_the_async_builder() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::status(503).times(2));

    let builder = Client::builder(server.url(), server.full_key())
        .auth(Auth::bearer())
        .timeout(Duration::from_secs(9))
        .deadline(Duration::from_secs(9))
        .no_deadline()
        .retry(RetryPolicy::none())
        .user_agent("script/1.0")
        .body_limit(9_999)
        .allow_http();
    let settings = audience::Client::builder(server.url(), server.full_key());
    let clients = [
        builder.build().unwrap(),
        Client::from_builder(settings.retry(RetryPolicy::none())).unwrap(),
    ];

    for client in clients {
        let error = client.contacts().list().send().unwrap_err();
        assert_eq!(
            (error.status().unwrap().as_u16(), error.attempts()),
            (503, 1)
        );
    }
    let agent = server.requests()[0].header("user-agent").map(str::to_owned);
    assert!(agent.unwrap().starts_with("script/1.0 audience/"));
}

#[test]
fn a_for_loop_over_a_list_reads_all_contacts() {
    let (_server, contacts) = server();
    create_contacts(&contacts, 25);

    let mut addresses = Vec::new();
    for contact in contacts.list().limit(10) {
        addresses.push(contact.unwrap().email);
    }

    assert_eq!(addresses.len(), 25);
}
