//! The suite finds what is wrong with a broken store.

use audience::inbox::MemoryStore;
use audience::inbox::conformance::{CaseResult, Report, Suite};

use super::faulty_store::{Fault, FaultyStore};
use super::memory_conformance::TestClock;

async fn run(fault: Fault) -> Report {
    let clock = TestClock::new();
    let store = FaultyStore::new(clock.store(), fault);
    let small = FaultyStore::new(clock.builder().capacity(5).build(), fault);
    clock.suite(store).filling(small, 5).run().await
}

macro_rules! faults {
    ($($test:ident: $fault:ident => $case:literal;)+) => {
        $(#[tokio::test]
        async fn $test() {
            let report = run(Fault::$fault).await;

            let found = report.failed().any(|case| case.name == $case);
            assert!(found, "expected \"{}\" to fail\n{report}", $case);
        })+
    };
}

faults! {
    a_store_that_forgets_tokens_is_found: ForgetsTokens => "a holder that was replaced changes nothing";
    a_store_that_ignores_fingerprints_is_found: IgnoresFingerprints => "another body conflicts with a claimed event";
    a_store_that_never_learns_fingerprints_is_found:
        NeverLearnsFingerprints => "an unknown fingerprint is learned when the event is accepted";
    a_store_that_evicts_silently_is_found: EvictsSilently => "a full store refuses new events and forgets none";
    a_store_that_gives_an_event_to_two_takers_is_found: TakesTwice => "many takers never get the same event";
    a_store_that_folds_case_is_found: FoldsCase => "ids are compared by their bytes";
    a_store_that_trims_ids_is_found: TrimsIds => "ids are compared by their bytes";
    a_store_that_mixes_endpoints_is_found: MixesEndpoints => "a claim changes no other endpoint";
    a_store_that_keeps_bodies_is_found: KeepsBodies => "a completed event has no body any more";
    a_store_that_claims_in_two_steps_is_found: ClaimsInTwoSteps => "of 64 simultaneous claimers one wins";
    a_store_that_refuses_late_holders_is_found:
        RefusesLateHolders => "a late holder that nobody replaced completes";
    a_store_that_completes_only_once_is_found:
        CompletesOnlyOnce => "completing twice with the same token is no error";
    a_store_that_never_forgets_is_found: NeverForgets => "a done event is new after its retention";
    a_store_that_forgets_parked_events_is_found:
        ForgetsParkedEvents => "a parked event is listed with its body attempts and reason";
    a_store_that_miscounts_attempts_is_found:
        CountsAttemptsAtRelease => "attempts are counted over releases and ended leases";
    a_store_that_ignores_delays_is_found:
        IgnoresDelays => "releasing with a delay makes an event claimable after it";
    a_store_that_ignores_limits_is_found: IgnoresLimits => "no more events are taken than the limit";
    a_store_that_takes_the_newest_first_is_found:
        TakesNewestFirst => "events are taken in the order in which they became due";
    a_store_that_cuts_reasons_is_found: CutsReasons => "reasons of 2000 bytes and any characters come back";
    a_store_that_cuts_bodies_at_nul_is_found: CutsBodies => "bodies come back byte for byte";
    a_store_that_overflows_is_found: OverflowsLeases => "a huge lease lasts very long";
    a_store_that_replays_with_old_attempts_is_found:
        ReplaysWithOldAttempts => "a replayed event is taken with its body as attempt 1";
    a_store_that_counts_no_parked_events_is_found:
        CountsNoParkedEvents => "a backlog counts the accepted events of its endpoint by state";
    a_store_that_reports_no_lag_is_found:
        ReportsNoLag => "the lag is the time since the oldest waiting event was due";
    a_store_that_purges_too_much_is_found:
        PurgesTooMuch => "a purge deletes forgotten events in portions and counts them";
    a_store_that_panics_is_found: Panics => "the first claim of an event is fresh with attempt 1";
}

/// Returns the names of the cases with an outage that find the fault.
async fn found_by_an_outage(fault: Fault) -> Vec<String> {
    let store = FaultyStore::new(MemoryStore::new(), fault);
    let (stopping, starting) = (store.clone(), store.clone());
    let suite = Suite::new(store).only("lose").outage(
        move || {
            let store = stopping.clone();
            async move { store.stop().await }
        },
        move || {
            starting.start();
            async {}
        },
    );
    let report = suite.run().await;
    report.failed().map(|case| case.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgets_accepted_events_at_a_stop_is_found() {
    let found = found_by_an_outage(Fault::ForgetsAcceptedEventsAtAStop).await;

    let expected = [
        "an outage is an error in time and loses nothing",
        "calls during a restart end and lose nothing",
    ];
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_says_for_a_moment_after_an_outage_that_it_is_full_is_found() {
    let found = found_by_an_outage(Fault::IsFullAfterAStop).await;

    let expected = "an outage is an error in time and loses nothing";
    assert!(found.iter().any(|name| name == expected), "{found:?}");
}

#[tokio::test]
async fn a_store_without_a_fault_passes() {
    run(Fault::None).await.assert_passed();
}

#[tokio::test]
#[should_panic(
    expected = "failed: completing twice with the same token is no error\n  completing: expected true, got false"
)]
async fn a_failed_run_panics_with_what_was_expected() {
    run(Fault::CompletesOnlyOnce).await.assert_passed();
}

#[tokio::test]
async fn a_report_says_how_many_cases_passed_failed_and_were_not_run() {
    let clock = TestClock::new();
    let store = FaultyStore::new(clock.store(), Fault::CompletesOnlyOnce);

    // The cases of a full store are not run.
    let report = clock.suite(store).run().await;

    let count = |is_counted: fn(&CaseResult) -> bool| {
        let results = report.cases().iter().map(|case| &case.result);
        results.filter(|result| is_counted(result)).count()
    };
    let passed = count(|result| *result == CaseResult::Passed);
    let failed = count(|result| matches!(result, CaseResult::Failed(_)));
    let not_run = count(|result| matches!(result, CaseResult::NotRun(_)));
    assert!(passed > failed + not_run && failed > 0 && not_run > 0);
    let counts = format!("{passed} cases passed, {failed} failed, {not_run} not run\n");
    assert!(report.to_string().starts_with(&counts), "{report}");
}
