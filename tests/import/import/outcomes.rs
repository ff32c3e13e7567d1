//! Rows handed out one by one, and rows from streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use audience::ErrorKind;
use audience::import::{ImportRow, RowOutcome};
use audience::mock::{Fault, MockServer};
use futures_util::StreamExt;
use futures_util::stream::FusedStream;

use super::{JournalPath, batches, contacts, numbered};
use support::cancellation::until;
use support::in_time;

#[tokio::test]
async fn outcomes_are_in_input_order_although_batches_overtake_each_other() {
    let server = MockServer::start().await;
    server.fault(Fault::delay(Duration::from_millis(80)).times(1));
    let rows = numbered(1_500).map(ImportRow::from).enumerate();
    let rows = rows.map(|(n, row)| match n % 7 {
        0 => ImportRow::unreadable("x").key(n.to_string()),
        _ => row.key(n.to_string()),
    });

    let outcomes: Vec<_> = in_time(
        contacts(&server)
            .import(rows)
            .outcomes()
            .collect::<Vec<_>>(),
    )
    .await;

    assert_eq!(outcomes.len(), 1_500);
    for (n, (row, outcome)) in outcomes.iter().enumerate() {
        assert_eq!(row.key_text(), Some(n.to_string().as_str()));
        assert_eq!(outcome.is_applied(), n % 7 != 0);
    }
}

#[tokio::test]
async fn a_reader_that_stops_reading_stops_the_import() {
    let server = MockServer::start().await;
    let read = Arc::new(AtomicUsize::new(0));
    let counted = read.clone();
    let rows = numbered(100_000).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut outcomes = contacts(&server).import(rows).outcomes();

    for _ in 0..10 {
        in_time(outcomes.next()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;

    // Only the batches in flight were read.
    assert!(read.load(Ordering::Relaxed) <= 2_000);
    assert!(batches(&server).len() <= 20);
}

#[tokio::test]
async fn many_rows_that_need_no_request_are_handed_out_as_they_are_read() {
    let server = MockServer::start().await;
    let read = Arc::new(AtomicUsize::new(0));
    let counted = read.clone();
    let rows = std::iter::repeat_with(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        ImportRow::unreadable("x")
    });
    let mut outcomes = contacts(&server).import(rows).outcomes();

    in_time(outcomes.next()).await.unwrap();

    assert!(read.load(Ordering::Relaxed) <= 1_000);
}

#[tokio::test]
async fn a_slow_batch_does_not_let_the_rows_after_it_pile_up() {
    let server = MockServer::start().await;
    server.fault(Fault::delay(Duration::from_millis(1_500)).times(1));
    let read = Arc::new(AtomicUsize::new(0));
    let counted = read.clone();
    let rows = numbered(1_000_000).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut outcomes = contacts(&server).import(rows).outcomes();

    in_time(outcomes.next()).await.unwrap();

    // 10,000 with an outcome, and those in flight.
    let read = read.load(Ordering::Relaxed);
    assert!(read <= 12_000, "{read}");
}

#[tokio::test]
async fn rows_of_a_slow_stream_are_sent_and_handed_out_before_the_next_one_comes() {
    let server = MockServer::start().await;
    let rows = futures_util::stream::unfold(0, |n| async move {
        let row = match n {
            1 => ImportRow::unreadable("x"),
            3 => std::future::pending().await,
            _ => ImportRow::from(format!("{n}@x.io")),
        };
        Some((row, n + 1))
    });
    let mut outcomes = contacts(&server).import_stream(rows).outcomes();

    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(in_time(outcomes.next()).await.unwrap().1.is_applied());
    }

    assert_eq!(found, [true, false, true]);
}

#[tokio::test]
async fn an_endless_stream_ends_by_the_signal_that_stops_the_import() {
    let server = MockServer::start().await;
    let read = Arc::new(AtomicUsize::new(0));
    let signal = || {
        let read = read.clone();
        async move {
            until(|| read.load(Ordering::Relaxed) == 5).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let counted = read.clone();
    let rows = numbered(5).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let rows = futures_util::stream::iter(rows).chain(futures_util::stream::pending());

    let import = contacts(&server).import_stream(rows.take_until(signal()));
    let report = in_time(import.stop_when(signal())).await.unwrap();

    assert_eq!(report.total(), 5);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_retries_of_batches() {
    for status in [503, 429] {
        let server = MockServer::start().await;
        server.fault(Fault::status(status).retry_after(100));
        let stop = tokio::time::sleep(Duration::from_millis(200));

        let import = server.client().contacts().import(numbered(400));
        let import = import.concurrency(2).stop_when(stop);
        let report = in_time(import).await.unwrap();

        assert_eq!(report.total(), 400);
        assert!(report.not_sent() >= 200, "{status}: {report}");
        assert!(report.is_stopped());
        assert_eq!(report.created(), 0, "{status}: {report}");
        let error = report.finished().unwrap_err();
        assert!(error.to_string().contains("asked to stop"));
        assert_eq!(error.error().kind(), ErrorKind::Stopped);
        assert!(batches(&server).len() <= 2);
    }
}

#[tokio::test]
async fn a_stream_is_never_polled_after_its_end() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    // This stream panics if it is polled after its end.
    let rows = futures_util::stream::unfold(0, |n| async move {
        (n < 5).then(|| (format!("{n}@x.io"), n + 1))
    });

    let import = contacts(&server)
        .import_stream(rows)
        .journal(journal.open());
    let report = in_time(import).await.unwrap();

    assert_eq!(report.created(), 5);
}

#[tokio::test]
async fn the_outcomes_of_an_import_that_stops_are_those_until_then() {
    let server = MockServer::builder().contact_ceiling(130).start().await;
    let mut outcomes = contacts(&server)
        .import(numbered(400))
        .concurrency(1)
        .outcomes();

    let mut found = [0; 3];
    while let Some((_, outcome)) = in_time(outcomes.next()).await {
        match outcome {
            RowOutcome::Created => found[0] += 1,
            RowOutcome::Refused { .. } => found[1] += 1,
            RowOutcome::NotSent => found[2] += 1,
            other => panic!("{other}"),
        }
    }

    assert_eq!(found, [130, 70, 200]);
    assert!(outcomes.finish().unwrap().quota_exceeded());
}

#[tokio::test]
async fn the_stream_is_terminated_when_all_outcomes_are_read_or_the_import_cannot_start() {
    let server = MockServer::start().await;
    let mut outcomes = contacts(&server).import(numbered(3)).outcomes();

    for _ in 0..3 {
        assert!(!outcomes.is_terminated());
        in_time(outcomes.next()).await.unwrap();
    }
    assert!(in_time(outcomes.next()).await.is_none());
    assert!(outcomes.is_terminated());

    let journal = JournalPath::new();
    let import = |count| {
        contacts(&server)
            .import(numbered(count))
            .journal(journal.open())
    };
    drop(in_time(import(3)).await.unwrap());
    let mut other = in_time(async { import(3).outcomes() }).await;
    assert!(!other.is_terminated());
    assert_eq!(in_time(other.by_ref().count()).await, 3);
    assert!(other.is_terminated());
}
