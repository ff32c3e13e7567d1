//! How many batches are in flight, seen from the service.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use audience::{Client, RetryPolicy};

use super::paced_service::PacedService;
use super::{counts, numbered};
use support::{in_time, mock_builder};

const DELAY: Duration = Duration::from_millis(20);

fn contacts(service: &PacedService, policy: RetryPolicy) -> audience::contacts::Contacts {
    let client = Client::builder(&service.url, "key").retry(policy);
    client.build().unwrap().contacts()
}

fn patient() -> RetryPolicy {
    let policy = RetryPolicy::exponential().max_attempts(50);
    policy
        .base_delay(Duration::from_millis(5))
        .max_delay(Duration::from_millis(20))
}

#[tokio::test]
async fn two_batches_start_and_one_more_follows_after_each_clean_round_up_to_the_ceiling() {
    // So long that six batches arrive meanwhile on a busy machine, too.
    let delay = Duration::from_millis(100);
    let service = PacedService::start(delay, |_, _| (200, None)).await;

    let import = contacts(&service, patient())
        .import(numbered(6_000))
        .concurrency(6);
    let report = in_time(import).await.unwrap();

    assert_eq!(report.created(), 6_000);
    let seen: Vec<_> = service
        .arrivals()
        .iter()
        .map(|arrival| arrival.in_flight)
        .collect();
    assert!(
        seen[..3].iter().all(|in_flight| *in_flight <= 2),
        "{seen:?}"
    );
    assert_eq!(seen.iter().max(), Some(&6), "{seen:?}");
}

#[tokio::test]
async fn one_batch_at_a_time_is_one_at_a_time() {
    let service = PacedService::start(Duration::from_millis(2), |_, _| (200, None)).await;

    drop(
        in_time(
            contacts(&service, patient())
                .import(numbered(2_000))
                .concurrency(1),
        )
        .await
        .unwrap(),
    );

    assert!(
        service
            .arrivals()
            .iter()
            .all(|arrival| arrival.in_flight == 1)
    );
}

#[tokio::test]
async fn a_service_that_takes_no_more_than_four_at_once_gets_about_four_and_all_rows() {
    for status in [429, 503] {
        let service = PacedService::start(DELAY, move |_, in_flight| match in_flight {
            0..=4 => (200, None),
            _ => (status, None),
        })
        .await;

        let report = in_time(contacts(&service, patient()).import(numbered(20_000)))
            .await
            .unwrap();

        assert_eq!(counts(&report), [20_000, 0, 0, 0, 0, 0]);
        let arrivals = service.arrivals();
        let refused = arrivals.len() - 200;
        assert!((1..100).contains(&refused), "{refused} refused");
        let most = arrivals.iter().map(|arrival| arrival.in_flight).max();
        assert!(most <= Some(8), "{most:?}");
    }
}

#[tokio::test]
async fn a_retry_after_holds_back_all_batches() {
    // On a busy machine, the wait may be over before other batches are ready to be sent.
    for attempt in 1.. {
        let (early, most_waiting) = after_a_retry_after().await;

        // At most those that were on their way when the response was sent, of sixty.
        assert!(early < 16, "{early}");
        // The progress shows all that wait.
        if most_waiting > 1 {
            return;
        }
        assert!(attempt < 5, "only {most_waiting} waited");
    }
}

/// Runs an import whose service once asks to wait for a second. Returns how many batches arrived within this second, and
/// how many were shown as waiting.
async fn after_a_retry_after() -> (usize, usize) {
    let refused_at = std::sync::Arc::new(Mutex::new(None));
    let noted = refused_at.clone();
    let service = PacedService::start(DELAY, move |number, _| match number {
        10 => {
            *noted.lock().unwrap() = Some(Instant::now());
            (429, Some(1))
        }
        _ => (200, None),
    })
    .await;
    let waiting = std::sync::Arc::new(Mutex::new(0));
    let most = waiting.clone();

    let import = contacts(&service, patient())
        .import(numbered(6_000))
        .on_progress(move |progress| {
            let mut most = most.lock().unwrap();
            *most = (*most).max(progress.waiting());
        });
    let report = in_time(import).await.unwrap();

    assert_eq!(report.created(), 6_000);
    let refused_at = refused_at.lock().unwrap().unwrap();
    let early = service.arrivals().into_iter().filter(|arrival| {
        let after = arrival.at.saturating_duration_since(refused_at);
        after > Duration::ZERO && after < Duration::from_millis(950)
    });
    let most_waiting = *waiting.lock().unwrap();
    (early.count(), most_waiting)
}

#[tokio::test]
async fn a_timeout_halves_the_number_too() {
    let server = audience::mock::MockServer::start().await;
    server.fault(
        audience::mock::Fault::delay(Duration::from_secs(5))
            .after(30)
            .times(1),
    );
    let limits = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen = limits.clone();

    let import = mock_builder(&server)
        .build()
        .unwrap()
        .contacts()
        .import(numbered(10_000));
    let import = import
        .timeout(Duration::from_secs(1))
        .on_progress(move |progress| {
            seen.lock().unwrap().push(progress.limit());
        });
    let report = in_time(import).await.unwrap();

    assert_eq!(report.total(), 10_000);
    let limits = limits.lock().unwrap();
    assert!(
        limits
            .windows(2)
            .any(|pair| pair[1] <= pair[0] / 2 + 1 && pair[1] < pair[0]),
        "{limits:?}"
    );
}
