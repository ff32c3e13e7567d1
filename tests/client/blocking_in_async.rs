//! The blocking client near async code: refused where it would stall tasks, and working wherever blocking is
//! allowed.

use std::thread;
use std::time::Duration;

use audience::blocking::{Client, Contacts};
use audience::contacts::NewContact;
use audience::mock::MockServer;
use audience::{Error, ErrorKind, Outcome};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, block_in_place, spawn_blocking, yield_now};

fn server() -> (MockServer, Contacts) {
    let server = MockServer::builder().start_blocking();
    let client = Client::new(server.url(), server.full_key()).unwrap();
    (server, client.contacts())
}

fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().enable_all().build().unwrap(),
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap(),
    ]
}

fn count(contacts: &Contacts) -> Result<u64, Error> {
    contacts.list().count().send()
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome(), error.attempts()),
        (ErrorKind::Config, Outcome::NotSent, 0)
    );
    assert!(!error.is_retryable());
    let text = error.to_string();
    assert!(
        text.contains("async code") && text.contains("spawn_blocking"),
        "{text}"
    );
}

#[test]
fn a_call_in_a_task_fails_at_once_and_sends_nothing() {
    let (server, contacts) = server();
    for runtime in runtimes() {
        let contacts = || contacts.clone();
        let (root, spawned, local) = (contacts(), contacts(), contacts());

        assert_refused(runtime.block_on(async { count(&root) }));
        let task = runtime.spawn(async move {
            yield_now().await;
            count(&spawned)
        });
        assert_refused(runtime.block_on(task).unwrap());
        let tasks = LocalSet::new();
        let task = tasks.spawn_local(async move { count(&local) });
        assert_refused(tasks.block_on(&runtime, task).unwrap());
        let root = contacts();
        assert_refused(runtime.block_on(tasks.run_until(async move { count(&root) })));
        let on_thread = contacts();
        let handle = runtime.handle().clone();
        let thread = thread::spawn(move || handle.block_on(async { count(&on_thread) }));
        assert_refused(thread.join().unwrap());
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_form_of_answers_in_a_task_is_refused_too() {
    let (server, contacts) = server();
    let [runtime, _] = runtimes();

    let call = contacts.answers("ada@x.io", [("news", true)]);
    let error = runtime.block_on(async { call.send() }).unwrap_err();

    assert_eq!(error.to_string(), "could not record the answers");
    assert_refused(Err::<(), _>(Error::from(error)));
    assert!(server.requests().is_empty());
}

#[test]
fn a_refused_call_leaves_its_task_and_its_client_usable() {
    let (_server, contacts) = server();
    for runtime in runtimes() {
        let contacts = contacts.clone();
        runtime.block_on(async move {
            for _ in 0..3 {
                assert_refused(count(&contacts));
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert_refused(contacts.create(NewContact::new("ada@x.io")).send());
            }
            let counted = spawn_blocking(move || count(&contacts)).await.unwrap();
            assert_eq!(counted.unwrap(), 0);
        });
    }
}

#[test]
fn an_iterator_in_a_task_returns_the_error_once_and_ends() {
    let (_server, contacts) = server();
    let [runtime, _] = runtimes();

    let mut items = runtime.block_on(async { contacts.list().iter().collect::<Vec<_>>() });
    let mut pages = runtime.block_on(async { contacts.list().pages().collect::<Vec<_>>() });

    assert_eq!((items.len(), pages.len()), (1, 1));
    assert_refused(items.remove(0));
    assert_refused(pages.remove(0));
}

#[test]
fn a_call_works_wherever_blocking_is_allowed() {
    let (_server, contacts) = server();
    for runtime in runtimes() {
        let blocking = contacts.clone();
        let task = runtime.spawn_blocking(move || count(&blocking));
        assert_eq!(runtime.block_on(task).unwrap().unwrap(), 0);

        let nested = contacts.clone();
        let nested =
            runtime.block_on(async move { spawn_blocking(move || count(&nested)).await.unwrap() });
        assert_eq!(nested.unwrap(), 0);

        let plain = contacts.clone();
        let plain = runtime.block_on(async { thread::spawn(move || count(&plain)).join() });
        assert_eq!(plain.unwrap().unwrap(), 0);

        let _entered = runtime.enter();
        assert_eq!(count(&contacts).unwrap(), 0);
    }
    let [_, multi_thread] = runtimes();
    assert_eq!(
        multi_thread
            .block_on(async { block_in_place(|| count(&contacts)) })
            .unwrap(),
        0
    );
    let task = multi_thread.spawn(async move {
        let counted = block_in_place(|| count(&contacts));
        (counted, count(&contacts))
    });
    let (counted, refused) = multi_thread.block_on(task).unwrap();
    assert_eq!(counted.unwrap(), 0);
    assert_refused(refused);
}

#[test]
fn a_client_is_created_and_dropped_in_async_code() {
    let (server, _) = server();
    for runtime in runtimes() {
        runtime.block_on(async {
            let client = Client::new(server.url(), server.full_key()).unwrap();
            let contacts = client.contacts();
            let call = contacts.list();
            let iter = contacts.list().iter();
            let used = contacts.clone();
            spawn_blocking(move || count(&used)).await.unwrap().unwrap();
            drop((client, contacts, call, iter));
        });
    }
}
