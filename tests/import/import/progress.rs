//! The progress that is shown while an import runs.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::Client;
use audience::contacts::{Contacts, OptOutReason};
use audience::import::{Import, ImportRow, OptOut, Progress};
use audience::mock::{Fault, MockServer};

use futures_util::{StreamExt, stream};

use super::{JournalPath, contacts, numbered};
use support::{PATIENCE, in_time};

async fn progress_of(import: Import) -> Vec<Progress> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shown = seen.clone();
    let import = import.on_progress(move |progress| shown.lock().unwrap().push(*progress));
    drop(in_time(import).await.unwrap());
    std::mem::take(&mut *seen.lock().unwrap())
}

#[tokio::test]
async fn progress_goes_up_to_the_total_and_counts_retries() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).path("/contacts/batch").after(2).times(3));
    let contacts: Contacts = contacts(&server);

    let seen = progress_of(contacts.import(numbered(1_050).collect::<Vec<_>>())).await;

    assert!(
        seen.windows(2)
            .all(|pair| pair[0].finished() <= pair[1].finished())
    );
    assert!(seen.iter().all(|progress| progress.total() == Some(1_050)));
    assert!(seen.iter().all(|progress| progress.in_flight() <= 16));
    assert!(seen.iter().any(|progress| progress.in_flight() > 0));
    let last = seen.last().unwrap();
    assert_eq!(
        (last.finished(), last.retries(), last.waiting()),
        (1_050, 3, 0)
    );
    assert_eq!((last.in_flight(), last.resumed()), (0, 0));
    assert!(last.rate() > 0.0);
    assert_eq!(last.remaining(), Some(Duration::ZERO));
    let line = format!("1050 of 1050 rows, {:.0}/s, 0 s left", last.rate());
    assert_eq!(last.to_string(), line);
    let halfway = seen
        .iter()
        .find(|progress| progress.finished() >= 500)
        .unwrap();
    #[expect(clippy::cast_precision_loss, reason = "it is at most 550")]
    let left = (1_050 - halfway.finished()) as f64 / halfway.rate();
    assert_eq!(halfway.remaining().unwrap(), Duration::from_secs_f64(left));
    assert!(left > 0.0);
}

#[tokio::test]
async fn a_row_counts_when_its_opt_outs_were_sent_and_not_only_when_its_batch_has_ended() {
    let server = MockServer::start().await;
    let slow = Fault::delay(Duration::from_secs(600)).path("/contacts/7%40x.io/unsubscribe");
    server.fault(slow);
    let opt_out = OptOut::Everything(OptOutReason::Manual);
    let rows = numbered(10).map(move |contact| ImportRow::new(contact).opt_out(opt_out.clone()));
    let (shown, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let import = contacts(&server).import(rows).timeout(PATIENCE);
    let import = import.on_progress(move |progress| drop(shown.send(progress.to_string())));

    let running = tokio::spawn(import.into_future());

    let line = async {
        loop {
            let line = seen.recv().await.unwrap();
            if line.starts_with("7 of 10 rows, ") {
                return line;
            }
        }
    };
    assert!(in_time(line).await.contains(" s left"));
    running.abort();
}

#[tokio::test]
async fn during_a_long_wait_the_progress_is_shown_each_second_and_says_so() {
    let server = MockServer::start().await;
    let wait = Fault::status(429).retry_after(4);
    let waiting = ", waiting for the service";

    // On a busy machine, a line may come so late that there is no time for all of them.
    for attempt in 1.. {
        server.fault(wait.clone().path("/contacts/batch").times(1));
        let client = Client::new(server.url(), server.full_key()).unwrap();
        let seen = progress_of(client.contacts().import(numbered(10))).await;

        let lines: Vec<_> = seen.iter().map(ToString::to_string).collect();
        assert!(!lines.last().unwrap().ends_with(waiting), "{lines:?}");
        let count = lines.iter().filter(|line| line.ends_with(waiting)).count();
        if count >= 3 {
            return;
        }
        assert!(attempt < 5, "{lines:?}");
    }
}

#[tokio::test]
async fn the_total_is_what_the_caller_says_or_what_the_iterator_knows() {
    let server = MockServer::start().await;
    let contacts = contacts(&server);
    let rows = || numbered(2_000).filter(|_| true);

    let unknown = progress_of(contacts.import(rows())).await;
    let said = progress_of(contacts.import(rows()).total(2_000)).await;
    let streamed = stream::iter(numbered(2_000).collect::<Vec<_>>());
    let streamed = progress_of(contacts.import_stream(streamed)).await;

    assert_eq!(unknown[0].total(), None);
    assert_eq!(unknown[0].remaining(), None);
    assert!(said.iter().all(|progress| progress.total() == Some(2_000)));
    assert!(!streamed.is_empty());
    assert!(
        streamed
            .iter()
            .all(|progress| progress.total() == Some(2_000))
    );
}

#[tokio::test]
async fn the_time_to_skip_the_rows_of_a_journal_does_not_lower_the_rate() {
    let server = MockServer::start().await;
    let contacts = contacts(&server);
    let journal = JournalPath::new();
    drop(
        in_time(contacts.import(numbered(200)).journal(journal.open()))
            .await
            .unwrap(),
    );

    let rows = stream::iter(numbered(300))
        .enumerate()
        .then(async |(n, row)| {
            if n == 150 {
                // Reading the rows that are finished takes 200 s.
                tokio::time::pause();
                tokio::time::advance(Duration::from_secs(200)).await;
                tokio::time::resume();
            }
            row
        });
    let import = contacts.import_stream(rows).journal(journal.open());
    let seen = progress_of(import).await;

    let last = seen.last().unwrap();
    assert_eq!((last.finished(), last.resumed()), (300, 200));
    assert!(last.elapsed() > Duration::from_secs(200));
    // With these 200 s, it would be less than 0.5 rows per second.
    assert!(last.rate() > 0.5, "{}", last.rate());
}

#[tokio::test]
async fn rows_that_are_not_sent_after_a_stop_do_not_count_as_finished() {
    let server = MockServer::start().await;
    let stopped = contacts(&server)
        .import(numbered(3_000))
        .stop_when(ready(()));

    let seen = progress_of(stopped).await;

    let last = seen.last().unwrap();
    assert_eq!(last.to_string(), "0 of 3000 rows, 0/s");
    assert!(last.rate().abs() < f64::EPSILON, "{}", last.rate());
}

#[tokio::test]
async fn an_import_that_stopped_does_not_say_how_long_the_rows_that_it_leaves_out_take() {
    let server = MockServer::start().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shown = seen.clone();
    let import = contacts(&server)
        .import(numbered(3_000))
        .concurrency(1)
        .stop_when(async { stopped.await.unwrap_or_default() })
        .on_progress(move |progress| {
            if progress.finished() >= 100 {
                stop.take().map(|stop| stop.send(()));
            }
            shown.lock().unwrap().push(*progress);
        });

    let report = in_time(import).await.unwrap();

    let last = *seen.lock().unwrap().last().unwrap();
    assert!(report.created() >= 100 && report.not_sent() > 0, "{report}");
    assert_eq!(last.finished(), report.created());
    assert_eq!((last.total(), last.remaining()), (Some(3_000), None));
}

#[tokio::test]
async fn rows_of_a_journal_are_shown_as_resumed_and_not_counted_in_the_rate() {
    let server = MockServer::start().await;
    let contacts = contacts(&server);
    let journal = JournalPath::new();
    drop(
        in_time(contacts.import(numbered(5_000)).journal(journal.open()))
            .await
            .unwrap(),
    );

    let seen = progress_of(contacts.import(numbered(5_000)).journal(journal.open())).await;

    let last = seen.last().unwrap();
    assert_eq!((last.finished(), last.resumed()), (5_000, 5_000));
    assert!(last.rate().abs() < f64::EPSILON);
    assert!(seen.len() > 2, "it is shown while the journal is read");
}
