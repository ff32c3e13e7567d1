//! `.wait()` near async code: it panics where it would stall tasks, and works wherever blocking is allowed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use audience::Client;
use audience::contacts::{Contacts, NewContact};
use audience::mock::MockServer;
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

fn count(contacts: &Contacts) -> u64 {
    contacts.list().count().wait().unwrap()
}

fn assert_panics<T>(wait: impl FnOnce() -> T) {
    let panic = catch_unwind(AssertUnwindSafe(wait)).err().unwrap();
    let text = panic.downcast_ref::<&str>().unwrap();
    assert!(
        text.contains("async code") && text.contains("spawn_blocking") && text.contains(".await"),
        "{text}"
    );
}

#[test]
fn a_call_in_a_task_panics_at_once_and_sends_nothing() {
    let (server, contacts) = server();
    for runtime in runtimes() {
        let contacts = || contacts.clone();
        let (root, spawned, local) = (contacts(), contacts(), contacts());

        runtime.block_on(async { assert_panics(|| count(&root)) });
        let task = runtime.spawn(async move {
            yield_now().await;
            assert_panics(|| count(&spawned));
        });
        runtime.block_on(task).unwrap();
        let tasks = LocalSet::new();
        let task = tasks.spawn_local(async move { assert_panics(|| count(&local)) });
        tasks.block_on(&runtime, task).unwrap();
        let root = contacts();
        runtime.block_on(tasks.run_until(async move { assert_panics(|| count(&root)) }));
        let on_thread = contacts();
        let handle = runtime.handle().clone();
        let block_on = move || handle.block_on(async { assert_panics(|| count(&on_thread)) });
        thread::spawn(block_on).join().unwrap();
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_form_of_topics_in_a_task_panics_too() {
    let (server, contacts) = server();
    let [runtime, _] = runtimes();

    let call = contacts
        .set_topics("ada@x.io", [("news", true)])
        .only_changed();
    runtime.block_on(async { assert_panics(|| call.wait()) });

    assert!(server.requests().is_empty());
}

#[test]
fn after_the_panic_the_task_and_the_client_can_still_be_used() {
    let (_server, contacts) = server();
    for runtime in runtimes() {
        let contacts = contacts.clone();
        runtime.block_on(async move {
            for _ in 0..3 {
                assert_panics(|| count(&contacts));
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert_panics(|| contacts.create(NewContact::new("ada@x.io")).wait());
            }
            let counted = spawn_blocking(move || count(&contacts)).await;
            assert_eq!(counted.unwrap(), 0);
        });
    }
}

#[test]
fn an_iterator_in_a_task_panics_and_is_usable_outside_of_it() {
    let (_server, contacts) = server();
    let [runtime, _] = runtimes();
    let mut items = contacts.list().stream().wait();
    let mut pages = contacts.list().pages().wait();

    runtime.block_on(async {
        assert_panics(|| items.next());
        assert_panics(|| pages.next());
    });

    assert!(items.next().is_none() && pages.next().is_none());
}

#[test]
fn a_call_works_wherever_blocking_is_allowed() {
    let (_server, contacts) = server();
    for runtime in runtimes() {
        let blocking = contacts.clone();
        let task = runtime.spawn_blocking(move || count(&blocking));
        assert_eq!(runtime.block_on(task).unwrap(), 0);

        let nested = contacts.clone();
        let nested =
            runtime.block_on(async move { spawn_blocking(move || count(&nested)).await.unwrap() });
        assert_eq!(nested, 0);

        let plain = contacts.clone();
        let plain = runtime.block_on(async { thread::spawn(move || count(&plain)).join() });
        assert_eq!(plain.unwrap(), 0);

        let _entered = runtime.enter();
        assert_eq!(count(&contacts), 0);
    }
    let [_, multi_thread] = runtimes();
    assert_eq!(
        multi_thread.block_on(async { block_in_place(|| count(&contacts)) }),
        0
    );
    let task = multi_thread.spawn(async move {
        let counted = block_in_place(|| count(&contacts));
        assert_panics(|| count(&contacts));
        counted
    });
    assert_eq!(multi_thread.block_on(task).unwrap(), 0);
}

#[test]
fn a_client_is_created_and_dropped_in_async_code() {
    let (server, _) = server();
    for runtime in runtimes() {
        runtime.block_on(async {
            let client = Client::new(server.url(), server.full_key()).unwrap();
            let contacts = client.contacts();
            let call = contacts.list();
            let iter = contacts.list().stream().wait();
            let used = contacts.clone();
            spawn_blocking(move || count(&used)).await.unwrap();
            drop((client, contacts, call, iter));
        });
    }
}
