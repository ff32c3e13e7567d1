use std::sync::mpsc::channel;

use tokio::runtime::Builder;

use super::*;

fn error(settings: &Settings) -> String {
    settings.check().unwrap_err().to_string()
}

#[test]
fn the_defaults_are_valid() {
    assert!(Settings::default().check().is_ok());
}

#[test]
fn an_endpoint_must_have_a_name_of_1_to_255_bytes() {
    for name in ["", &"x".repeat(256), &"\u{e9}".repeat(128), "a\nb", "\0"] {
        let endpoint = name.to_owned();
        let settings = Settings {
            endpoint,
            ..Settings::default()
        };

        assert!(error(&settings).contains("1 to 255 bytes"), "{name:?}");
    }
    for name in ["a", &"x".repeat(255), "with space", "\u{1f4e7}"] {
        let endpoint = name.to_owned();
        let settings = Settings {
            endpoint,
            ..Settings::default()
        };

        assert!(settings.check().is_ok(), "{name:?}");
    }
}

#[test]
fn a_lease_must_last_1_second_to_1_hour() {
    for milliseconds in [0, 999, 3_600_001] {
        let lease = Duration::from_millis(milliseconds);
        let settings = Settings {
            lease,
            ..Settings::default()
        };

        let text = error(&settings);
        assert!(
            text.contains(&format!("not {milliseconds} ms: a shorter lease may end")),
            "{text}"
        );
    }
    for milliseconds in [1_000, 3_600_000] {
        let lease = Duration::from_millis(milliseconds);
        assert!(
            Settings {
                lease,
                ..Settings::default()
            }
            .check()
            .is_ok()
        );
    }
}

#[test]
fn done_events_must_be_remembered_for_6_hours() {
    let retention = Duration::from_secs(6 * 3_600 - 1);
    let settings = Settings {
        retention,
        ..Settings::default()
    };
    let text = error(&settings);
    assert!(
        text.contains("at least 6 hours, not 21599 s: the service retries"),
        "{text}"
    );

    for retention in [Duration::from_secs(6 * 3_600), Duration::MAX] {
        assert!(
            Settings {
                retention,
                ..Settings::default()
            }
            .check()
            .is_ok()
        );
    }
}

#[test]
fn the_time_to_respond_must_be_shorter_than_the_service_waits() {
    for milliseconds in [0, 10_000, 60_000] {
        let respond_within = Duration::from_millis(milliseconds);
        let settings = Settings {
            respond_within,
            ..Settings::default()
        };

        let text = error(&settings);
        assert!(
            text.contains(&format!("not {milliseconds} ms: the service waits")),
            "{text}"
        );
    }
    let respond_within = Duration::from_millis(9_999);
    assert!(
        Settings {
            respond_within,
            ..Settings::default()
        }
        .check()
        .is_ok()
    );
}

#[test]
fn a_purge_whose_connection_is_closed_by_the_shutdown_of_the_runtime_did_not_fail() {
    let runtime = Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.unwrap();
    let failure = || Err(StoreError::unavailable("the connection was closed"));
    let in_operation = runtime.block_on(purge_failure(async { failure() }));
    assert!(in_operation.is_some());
    let (connection, closed) = channel::<()>();
    let (begin, begun) = channel();
    let (end, ended) = channel();
    runtime.spawn(async move {
        let _connection = connection;
        pending::<()>().await;
    });
    runtime.spawn(async move {
        let purge = async move {
            begin.send(()).unwrap();
            // The other thread shuts the runtime down meanwhile.
            closed.recv().unwrap_err();
            failure()
        };
        end.send(purge_failure(purge).await.is_some()).unwrap();
    });
    begun.recv().unwrap();

    drop(runtime);

    assert!(!ended.recv().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_once_a_minute_and_the_first_one_after_a_recovery_is_the_first() {
    let failures = FailureLog::default();

    assert_eq!(failures.due("take"), Some(true));
    assert_eq!(failures.due("take"), None);
    tokio::time::advance(REPORT_INTERVAL).await;
    assert_eq!(failures.due("take"), Some(false));
    assert_eq!(failures.due("accept"), Some(true));
    failures.clear();
    assert_eq!(failures.due("take"), Some(true));
}

#[cfg(feature = "unsubscribe")]
fn inbox_of_own_events() -> Inbox {
    let minute = Duration::from_secs(60);
    Inbox::of_own_events(MemoryStore::new(), "own", minute, "it failed")
}

#[cfg(feature = "unsubscribe")]
#[tokio::test]
async fn an_event_that_somebody_else_has_is_not_held() {
    let inbox = inbox_of_own_events();
    let id = EventId::try_from("evt_1").unwrap();
    let [first, second] = [Token::random(), Token::random()];
    assert!(inbox.store_held(&id, b"{}", first).await.unwrap());

    let is_held = inbox.store_held(&id, b"{}", second).await.unwrap();

    assert!(!is_held);
    assert!(inbox.end_hold(&id, first).await);
}

#[cfg(feature = "unsubscribe")]
#[tokio::test]
async fn an_event_whose_hold_is_released_is_due_immediately() {
    let inbox = inbox_of_own_events();
    let (id, token) = (EventId::try_from("evt_1").unwrap(), Token::random());
    assert!(inbox.store_held(&id, b"{}", token).await.unwrap());

    let held = inbox.backlog().await.unwrap();
    inbox.release_hold(&id, token).await;
    let released = inbox.backlog().await.unwrap();

    assert_eq!((held.waiting, held.in_progress), (0, 1));
    assert_eq!((released.waiting, released.in_progress), (1, 0));
}
