//! The time of tests whose machine stands still for a while.

use std::time::Duration;

use support::{steady_time, within};

#[tokio::test]
async fn a_time_limit_does_not_pass_while_the_machine_stands_still() {
    steady_time::begin();
    let work = async {
        std::thread::sleep(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(20)).await;
    };

    let in_time = tokio::time::timeout(Duration::from_millis(500), work).await;

    in_time.unwrap();
}

#[tokio::test]
async fn a_call_that_hangs_fails_its_test_by_the_clock_of_the_system_while_the_time_is_slow() {
    steady_time::begin_slow();
    let start = tokio::time::Instant::now();
    let limit = Duration::from_secs(1);

    let hanging = tokio::spawn(within(limit, std::future::pending::<()>()));

    assert!(hanging.await.unwrap_err().is_panic());
    assert!(start.elapsed() < limit / 2);
}

#[tokio::test]
async fn a_time_limit_passes_while_the_machine_runs_and_a_test_can_pause_the_time_afterwards() {
    for _ in 0..2 {
        steady_time::begin();
        steady_time::begin();
        let limit = Duration::from_millis(100);
        let late = tokio::time::timeout(limit, std::future::pending::<()>()).await;
        late.unwrap_err();

        steady_time::end();
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        tokio::time::resume();
    }
}
