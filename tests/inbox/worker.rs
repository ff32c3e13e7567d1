//! Accepted events, drained by workers.

use std::collections::BTreeSet;
use std::future::pending;
use std::num::ParseIntError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::inbox::{Attempt, Inbox, InboxError, MemoryStore, Receipt, StoreError};
use audience::webhooks::Event;
use support::trace_log::{Entry, Log};
use tokio::sync::oneshot;

use super::deliveries::{FailingStore, delivery, id, store_in_test_time, unavailable};

fn inbox() -> Inbox {
    Inbox::builder(store_in_test_time()).build().unwrap()
}

async fn accept(inbox: &Inbox, ids: impl IntoIterator<Item = impl AsRef<str>>) {
    for id in ids {
        let receipt = inbox.accept(delivery(id.as_ref())).await;
        assert_eq!(receipt, Receipt::Accepted);
    }
}

#[tokio::test(start_paused = true)]
async fn every_accepted_event_is_handled_once_and_is_a_repeat_afterward() {
    let inbox = inbox();
    let ids: Vec<_> = (0..100).map(|n| format!("evt_{n}")).collect();
    accept(&inbox, &ids).await;
    let handled = Arc::new(Mutex::new(Vec::new()));

    let report = inbox.worker({
        let handled = Arc::clone(&handled);
        move |event, _| {
            handled.lock().unwrap().push(event.id.as_str().to_owned());
            std::future::ready(Ok::<_, String>(()))
        }
    });
    let report = report.run_until_idle().await.unwrap();

    let mut handled = handled.lock().unwrap().clone();
    handled.sort_by_key(|id| id[4..].parse::<u32>().unwrap());
    assert_eq!(handled, ids);
    assert_eq!((report.handled, report.parked), (100, 0));
    assert_eq!(inbox.accept(delivery("evt_7")).await, Receipt::Duplicate);
    assert_eq!(inbox.backlog().await.unwrap().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn as_many_slow_handlers_run_at_once_as_the_worker_may_if_events_arrive_one_by_one() {
    for most in [1, 2, 5, 8, 24] {
        let inbox = inbox();
        let running = Arc::new(AtomicUsize::new(0));
        let worker = inbox.worker({
            let running = Arc::clone(&running);
            move |_, _| {
                running.fetch_add(1, Ordering::Relaxed);
                pending::<Result<(), String>>()
            }
        });
        let worker = tokio::spawn(worker.concurrency(most).run_until(pending()));

        for n in 0..=most {
            accept(&inbox, [format!("evt_{n}")]).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
            let expected = most.min(n + 1);
            assert_eq!(running.load(Ordering::Relaxed), expected, "of {most}");
        }
        worker.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_at_once_than_the_worker_may() {
    let inbox = inbox();
    accept(&inbox, (0..50).map(|n| format!("evt_{n}"))).await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));

    let worker = inbox.worker({
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        move |_, _| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, String>(())
            }
        }
    });
    let report = worker.concurrency(5).run_until_idle().await.unwrap();

    assert_eq!(report.handled, 50);
    assert_eq!(most.load(Ordering::SeqCst), 5);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_fails_comes_back_later_and_later_and_is_parked_in_the_end() {
    let inbox = inbox();
    accept(&inbox, ["evt_1"]).await;
    let start = tokio::time::Instant::now();
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let (stop, stopped) = oneshot::channel::<()>();

    let worker = inbox.worker({
        let attempts = Arc::clone(&attempts);
        move |_, attempt| {
            attempts
                .lock()
                .unwrap()
                .push((attempt.number(), start.elapsed()));
            std::future::ready(Err::<(), _>("the database is down"))
        }
    });
    let worker = worker
        .max_attempts(4)
        .backoff(Duration::from_secs(8), Duration::from_secs(16));
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    tokio::time::sleep(Duration::from_secs(120)).await;
    stop.send(()).unwrap();
    let report = worker.await.unwrap().unwrap();

    let attempts = attempts.lock().unwrap().clone();
    assert_eq!(
        attempts
            .iter()
            .map(|(number, _)| *number)
            .collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    for (pair, delay) in attempts.windows(2).zip([8, 16, 16]) {
        let waited = (pair[1].1 - pair[0].1).as_secs_f64();
        let delay = f64::from(delay);
        // Up to a quarter less by chance, up to a second more until the worker looks again.
        assert!(
            (delay * 0.75..=delay + 1.1).contains(&waited),
            "{waited} instead of {delay}"
        );
    }
    assert_eq!((report.failed, report.parked), (3, 1));
    assert_eq!(inbox.metrics().parked, 1);
    let parked = inbox.parked().await.unwrap();
    assert_eq!((parked[0].id.as_str(), parked[0].attempts), ("evt_1", 4));
    assert_eq!(parked[0].reason, "the database is down");
    assert!(parked[0].body.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_parked_event_is_repeated_until_it_is_replayed_or_discarded() {
    let inbox = inbox();
    accept(&inbox, ["evt_1", "evt_2"]).await;
    let fail = |_, _| async { Err::<(), _>(std::io::Error::other("no").to_string()) };
    inbox
        .worker(fail)
        .max_attempts(1)
        .run_until_idle()
        .await
        .unwrap();

    let duplicate = inbox.accept(delivery("evt_1")).await;
    let replayed = inbox.replay(&id("evt_1")).await.unwrap();
    let discarded = inbox.discard(&id("evt_2")).await.unwrap();
    let neither = inbox.replay(&id("evt_3")).await.unwrap();
    let succeed = |_, _| async { Ok::<_, String>(()) };
    let report = inbox.worker(succeed).run_until_idle().await.unwrap();

    assert_eq!(duplicate, Receipt::Duplicate);
    assert_eq!((replayed, discarded, neither), (true, true, false));
    assert_eq!(report.handled, 1);
    assert!(inbox.parked().await.unwrap().is_empty());
    assert_eq!(inbox.accept(delivery("evt_2")).await, Receipt::Duplicate);
}

#[tokio::test(start_paused = true)]
async fn parked_events_are_listed_page_by_page_without_a_gap_or_a_repetition() {
    let inbox = inbox();
    let ids: BTreeSet<_> = (0..250).map(|n| format!("evt_{n}")).collect();
    accept(&inbox, &ids).await;
    let fail = |_, _| async { Err::<(), _>("no such table") };
    let worker = inbox.worker(fail).max_attempts(1);
    worker.run_until_idle().await.unwrap();

    let (mut listed, mut lengths) = (Vec::new(), Vec::new());
    let mut page = inbox.parked().await.unwrap();
    while let Some(last) = page.last() {
        lengths.push(page.len());
        listed.extend(page.iter().map(|event| event.id.as_str().to_owned()));
        page = inbox.parked_after(&last.id).await.unwrap();
    }

    assert_eq!(lengths, [100, 100, 50]);
    assert_eq!(BTreeSet::from_iter(listed), ids);
}

#[tokio::test(start_paused = true)]
async fn all_parked_events_are_replayed_however_many_pages_they_fill() {
    let inbox = inbox();
    let ids: Vec<_> = (0..250).map(|n| format!("evt_{n}")).collect();
    accept(&inbox, &ids).await;
    let fail = |_, _| async { Err::<(), _>("no such table") };
    let worker = inbox.worker(fail).max_attempts(1);
    worker.run_until_idle().await.unwrap();

    let replayed = inbox.replay_all().await.unwrap();
    let again = inbox.replay_all().await.unwrap();
    let succeed = |_, _| async { Ok::<_, String>(()) };
    let report = inbox.worker(succeed).run_until_idle().await.unwrap();

    assert_eq!((replayed, again, report.handled), (250, 0, 250));
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_worker_that_died_are_taken_again_after_their_lease() {
    let inbox = inbox();
    accept(&inbox, ["evt_1"]).await;
    let stuck = inbox.worker(|_, _| pending::<Result<(), String>>());
    let died = tokio::time::timeout(Duration::from_secs(1), stuck.run_until(pending())).await;
    died.unwrap_err();

    let succeed = |_, _| async { Ok::<_, String>(()) };
    let before = inbox.worker(succeed).run_until_idle().await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    let after = inbox.worker(succeed).run_until_idle().await.unwrap();

    assert_eq!((before.handled, after.handled), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_ends_its_process_each_time_is_parked_in_the_end() {
    let inbox = inbox();
    accept(&inbox, ["evt_1"]).await;
    for _ in 0..3 {
        let stuck = inbox
            .worker(|_, _| pending::<Result<(), String>>())
            .max_attempts(3);
        let died = tokio::time::timeout(Duration::from_secs(1), stuck.run_until(pending())).await;
        died.unwrap_err();
        tokio::time::sleep(Duration::from_secs(61)).await;
    }

    let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });
    let report = worker.max_attempts(3).run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.parked), (0, 1));
    let parked = &inbox.parked().await.unwrap()[0];
    assert_eq!(
        parked.reason,
        "3 attempts were made without success, and the last may have ended with its process"
    );
    // The claim that parked it counts, too.
    assert_eq!(parked.attempts, 4);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_what_runs_finish_and_takes_nothing_new() {
    let inbox = inbox();
    accept(&inbox, ["evt_1", "evt_2"]).await;
    let (started, has_started) = oneshot::channel();
    let started = Mutex::new(Some(started));

    let worker = inbox.worker(move |_, _| {
        started
            .lock()
            .unwrap()
            .take()
            .map(|started| started.send(()));
        async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok::<_, String>(())
        }
    });
    let worker = worker.concurrency(1).run_until(async {
        has_started.await.unwrap();
    });
    let report = worker.await.unwrap();

    assert_eq!(report.handled, 1);
    assert_eq!(inbox.backlog().await.unwrap().waiting, 1);
}

/// Sends a message when it is dropped.
struct NotesDrop(Option<oneshot::Sender<()>>);

impl Drop for NotesDrop {
    fn drop(&mut self) {
        let _ = self.0.take().unwrap().send(());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_cuts_off_handlers_that_run_too_long_and_another_worker_has_their_events_immediately()
 {
    let log = Log::start();
    let inbox = inbox();
    accept(&inbox, ["evt_long", "evt_short"]).await;
    let (drops, was_dropped) = oneshot::channel();
    let drops = Mutex::new(Some(drops));

    let worker = inbox.worker(move |event, _| {
        let is_long = event.id.as_str() == "evt_long";
        let drops = is_long.then(|| NotesDrop(drops.lock().unwrap().take()));
        async move {
            let seconds = if is_long { 3_600 } else { 9 };
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            drop(drops);
            Ok::<_, String>(())
        }
    });
    let start = tokio::time::Instant::now();
    let shutdown = tokio::time::sleep(Duration::from_secs(1));
    let worker = worker.shutdown_timeout(Duration::from_secs(10));
    let report = worker.run_until(shutdown).await.unwrap();

    assert_eq!(start.elapsed().as_secs(), 11);
    assert_eq!((report.handled, report.released, report.lost), (1, 1, 0));
    was_dropped.await.unwrap();
    let mut lines = log.events().into_iter();
    let cut_off = "handler of a webhook event cut off by the shutdown";
    assert!(lines.any(|line| line.fields["message"] == cut_off));

    let attempts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&attempts);
    let other = inbox.worker(move |event, attempt| {
        assert_eq!(event.id.as_str(), "evt_long");
        seen.store(attempt.number().try_into().unwrap(), Ordering::SeqCst);
        async { Ok::<_, String>(()) }
    });
    assert_eq!(other.run_until_idle().await.unwrap().handled, 1);
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
    assert_eq!(start.elapsed().as_secs(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_in_time_even_if_the_store_releases_nothing() {
    for hangs in [true, false] {
        let store = FailingStore::new(store_in_test_time());
        let inbox = Inbox::builder(store.clone()).build().unwrap();
        accept(&inbox, ["evt_1"]).await;
        if hangs {
            store.hang(&["release"]);
        } else {
            store.fail(&["release"], unavailable);
        }

        let worker = inbox.worker(|_, _| pending::<Result<(), String>>());
        let start = tokio::time::Instant::now();
        let shutdown = tokio::time::sleep(Duration::from_secs(1));
        let report = worker.run_until(shutdown).await.unwrap();

        let seconds = start.elapsed().as_secs();
        assert_eq!(seconds, if hangs { 29 } else { 26 });
        assert_eq!((report.released, report.lost), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn all_events_whose_outcome_a_store_that_hangs_does_not_learn_are_lost() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    accept(&inbox, ["evt_0", "evt_500", "evt_endless"]).await;
    store.hang(&["complete", "release"]);

    // The first one is being reported when the second one ends. The last one is cut off by the shutdown.
    let worker = inbox.worker(|event, _| async move {
        match event.id.as_str()["evt_".len()..].parse() {
            Ok(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            Err(_) => pending().await,
        }
        Ok::<_, String>(())
    });
    let shutdown = tokio::time::sleep(Duration::from_secs(1));
    let report = worker.run_until(shutdown).await.unwrap();

    assert_eq!((report.handled, report.released, report.lost), (0, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_limit_waits_for_its_handlers() {
    let inbox = inbox();
    accept(&inbox, ["evt_1"]).await;
    let worker = inbox.worker(|_, _| async {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        Ok::<_, String>(())
    });

    let shutdown = tokio::time::sleep(Duration::from_secs(1));
    let worker = worker.shutdown_timeout(Duration::MAX).run_until(shutdown);

    assert_eq!(worker.await.unwrap().handled, 1);
}

fn without_a_table() -> StoreError {
    StoreError::unusable("no such table")
}

#[tokio::test(start_paused = true)]
async fn a_worker_keeps_trying_while_its_store_fails_and_logs_the_start_each_minute_and_the_end() {
    for error in [unavailable, without_a_table] {
        let log = Log::start();
        let store = FailingStore::new(store_in_test_time());
        let inbox = Inbox::builder(store.clone()).endpoint("quick");
        let inbox = inbox.build().unwrap();
        accept(&inbox, ["evt_1"]).await;
        store.fail(&["take", "complete"], error);
        let worker = tokio::spawn(
            inbox
                .worker(|_, _| async { Ok::<_, String>(()) })
                .run_until(pending()),
        );

        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let lines = log.events();
        let attempts = inbox.metrics().store_errors;
        store.recover();
        tokio::time::sleep(Duration::from_secs(31)).await;

        let with = |lines: &[Entry], text: &str| {
            let is_it = |line: &&Entry| {
                line.fields["message"] == text && line.fields["endpoint"] == "quick"
            };
            lines.iter().filter(is_it).count()
        };
        // At most one a minute, and one in two minutes at the least.
        let reported = with(&lines, "inbox store failed");
        assert!((30..=60).contains(&reported), "{reported}");
        assert_eq!(with(&lines, "inbox store works again"), 0);
        assert_eq!(with(&log.events(), "inbox store works again"), 1);
        // About one in 26 s: a wait is 30 s, or up to a quarter less.
        assert!((120..=170).contains(&attempts), "{attempts}");
        assert_eq!(inbox.metrics().handled, 1);
        assert!(!worker.is_finished());
        worker.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_notices_a_short_failure_and_an_event_that_is_accepted_after_a_long_one_soon() {
    for failing in [3, 3_600] {
        let store = FailingStore::new(store_in_test_time());
        let inbox = Inbox::builder(store.clone()).build().unwrap();
        store.fail(&[], without_a_table);
        let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });
        let worker = tokio::spawn(worker.run_until(pending()));

        tokio::time::sleep(Duration::from_secs(failing)).await;
        store.recover();
        accept(&inbox, ["evt_1"]).await;
        tokio::time::sleep(Duration::from_millis(1_001)).await;

        assert_eq!(inbox.metrics().handled, 1, "{failing}");
        worker.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_accepted_event_does_not_make_a_worker_ask_a_failing_store_without_a_pause() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    store.fail(&["take"], without_a_table);
    let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });
    let worker = tokio::spawn(worker.run_until(pending()));

    for number in 0..1_000 {
        accept(&inbox, [format!("evt_{number}")]).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let attempts = inbox.metrics().store_errors;
    assert!((8..=11).contains(&attempts), "{attempts}");
    worker.abort();
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_if_its_store_cannot_be_used() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    store.fail(&[], without_a_table);

    let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });
    let ended = worker.run_until_idle().await;

    assert!(matches!(ended, Err(InboxError::Store(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_a_store_that_is_down_and_continues_when_it_is_back() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    accept(&inbox, ["evt_1"]).await;
    store.fail(&["take"], unavailable);

    let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });
    let (report, ()) = tokio::join!(worker.run_until_idle(), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        store.recover();
    });

    assert_eq!(report.unwrap().handled, 1);
    let looks = inbox.metrics().store_errors;
    assert!((2..100).contains(&looks), "{looks} looks in a minute");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_handled_while_the_store_was_down_is_completed_afterwards() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    accept(&inbox, ["evt_1"]).await;
    store.fail(&["complete"], unavailable);

    let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });
    let (report, ()) = tokio::join!(worker.run_until_idle(), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        store.recover();
    });

    assert_eq!((report.unwrap().handled, inbox.metrics().handled), (1, 1));
    assert_eq!(inbox.backlog().await.unwrap().in_progress, 0);
}

/// Handles the event `evt_7` for 7 seconds.
async fn handle_for_seconds(event: Event, _: Attempt) -> Result<(), ParseIntError> {
    let seconds = event.id.as_str()[4..].parse()?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_job_records_a_success_while_all_its_other_handlers_still_run() {
    let inbox = inbox();
    accept(&inbox, ["evt_1"]).await;
    accept(&inbox, (601..608).map(|n| format!("evt_{n}"))).await;
    let job = tokio::spawn(inbox.worker(handle_for_seconds).run_until_idle());

    tokio::time::sleep(Duration::from_secs(300)).await;
    let backlog = inbox.backlog().await.unwrap();
    let other = inbox.worker(handle_for_seconds).run_until_idle().await;

    assert_eq!((backlog.waiting, backlog.in_progress), (0, 7));
    assert_eq!(other.unwrap().handled, 0);
    assert_eq!(inbox.metrics().handled, 1);
    let report = job.await.unwrap().unwrap();
    assert_eq!((report.handled, report.lost), (8, 0));
}

#[tokio::test(start_paused = true)]
async fn a_job_records_a_success_while_it_waits_for_a_store_that_gives_no_events() {
    let store = store_in_test_time();
    let failing = FailingStore::new(store.clone());
    let inbox = Inbox::builder(failing.clone()).lease(Duration::from_secs(6));
    let inbox = inbox.build().unwrap();
    // The job asks for more when one ends, and waits longer after each time that it gets none: at last for 12 s.
    accept(&inbox, [1, 3, 7, 15, 31, 32].map(|n| format!("evt_{n}"))).await;
    let job = tokio::spawn(inbox.worker(handle_for_seconds).run_until_idle());
    tokio::time::sleep(Duration::from_millis(500)).await;
    failing.fail(&["take"], unavailable);

    tokio::time::sleep(Duration::from_secs(41)).await;
    let other = Inbox::builder(store).build().unwrap();
    let other = other.worker(handle_for_seconds).run_until_idle().await;
    failing.recover();

    assert_eq!(other.unwrap().handled, 0);
    let report = job.await.unwrap().unwrap();
    assert_eq!((report.handled, report.lost), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn a_worker_takes_an_event_as_soon_as_its_process_accepts_it() {
    let inbox = inbox();
    let (handled, was_handled) = oneshot::channel();
    let handled = Mutex::new(Some(handled));
    let worker = inbox.worker(move |_, _| {
        handled
            .lock()
            .unwrap()
            .take()
            .map(|handled| handled.send(()));
        async { Ok::<_, String>(()) }
    });
    let worker = tokio::spawn(
        worker
            .poll_interval(Duration::from_secs(3_600))
            .run_until(pending()),
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    let start = tokio::time::Instant::now();

    accept(&inbox, ["evt_1"]).await;
    was_handled.await.unwrap();

    assert!(start.elapsed() < Duration::from_secs(1));
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_that_share_a_store_never_handle_an_event_twice() {
    let store = MemoryStore::new();
    let inboxes: Vec<_> = (0..4)
        .map(|_| Inbox::builder(store.clone()).build().unwrap())
        .collect();
    accept(&inboxes[0], (0..1_000).map(|n| format!("evt_{n}"))).await;
    let handled = Arc::new(Mutex::new(Vec::new()));

    let workers: Vec<_> = inboxes
        .iter()
        .map(|inbox| {
            let handled = Arc::clone(&handled);
            let worker = inbox.worker(move |event, _| {
                handled.lock().unwrap().push(event.id);
                async { Ok::<_, String>(()) }
            });
            tokio::spawn(worker.run_until_idle())
        })
        .collect();
    for worker in workers {
        worker.await.unwrap().unwrap();
    }

    let handled = handled.lock().unwrap();
    assert_eq!(handled.len(), 1_000);
    assert_eq!(handled.iter().collect::<BTreeSet<_>>().len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn the_backlog_and_the_metrics_tell_how_far_behind_the_workers_are() {
    let inbox = inbox();
    accept(&inbox, ["evt_1", "evt_2"]).await;
    tokio::time::sleep(Duration::from_secs(40)).await;

    let backlog = inbox.backlog().await.unwrap();
    inbox
        .worker(|_, _| async { Ok::<_, String>(()) })
        .run_until_idle()
        .await
        .unwrap();

    assert_eq!((backlog.waiting, backlog.lag.as_secs()), (2, 40));
    assert_eq!(inbox.metrics().lag.as_secs(), 40);
    assert_eq!((inbox.metrics().accepted, inbox.metrics().handled), (2, 2));
}
