//! The state file: what crashes, other programs and full disks do to it.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audience::ErrorKind;
#[cfg(unix)]
use audience::Outcome;
#[cfg(unix)]
use audience::RetryPolicy;
#[cfg(unix)]
use audience::contacts::Erasure;
use audience::import::{SyncContacts, SyncRow, SyncState};
use audience::mock::{Fault, MockServer};
#[cfg(unix)]
use support::cancellation::until;
#[cfg(unix)]
use support::say_skipped;
#[cfg(unix)]
use support::trace_log::Log;
use support::{in_time, mock_builder};
#[cfg(unix)]
use tracing::Level;

use super::{Nights, StatePath, row};

fn table() -> [SyncRow; 4] {
    [
        row(1, "a@x.io"),
        row(2, "b@x.io").subscribed(false),
        row(3, "c2@x.io"),
        row(4, "d@x.io").deleted(true),
    ]
}

/// Two nights: the second has opt-outs and a changed address.
async fn two_nights() -> Nights {
    let nights = Nights::new().await;
    let first = [
        row(1, "a@x.io"),
        row(2, "b@x.io"),
        row(3, "c@x.io"),
        row(4, "d@x.io"),
    ];
    nights.run(&first).await;
    nights.run(&table()).await;
    nights
}

#[tokio::test]
async fn a_state_that_is_cut_off_anywhere_is_used_and_undoes_no_opt_out() {
    let nights = two_nights().await;
    let state = fs::read(&nights.state).unwrap();
    // Without its last records, the state cannot tell that a sync itself has opted out the old address of row 3.
    let expected = |nights: &Nights| {
        let contacts = nights.server.contacts().into_iter();
        let others = contacts.filter(|contact| contact.email != "c2@x.io");
        others.collect::<Vec<_>>()
    };
    let before = expected(&nights);
    let step = if std::env::var("AUDIENCE_LONG_TESTS").is_ok() {
        1
    } else {
        7
    };

    for length in (0..state.len()).step_by(step) {
        fs::write(&nights.state, &state[..length]).unwrap();
        let (report, _) = nights.run(&table()).await;

        assert!(report.is_complete(), "{length}: {report}");
        assert_eq!(expected(&nights), before, "{length}");
        assert_eq!(nights.run(&table()).await.0.unchanged(), 4, "{length}");
    }
}

#[tokio::test]
async fn a_state_that_has_lost_its_end_is_an_older_one_and_only_the_list_shows_what_it_misses() {
    let nights = Nights::new().await;
    let with_plan = |plan: &str| SyncRow::new(4, super::contact("d@x.io").property("plan", plan));
    let first = [
        row(1, "a@x.io").subscribed(false),
        row(2, "b@x.io"),
        row(3, "c@x.io"),
        with_plan("free"),
    ];
    nights.run(&first).await;
    let length = fs::read(&nights.state).unwrap().len();
    let second = [
        row(1, "a@x.io"),
        row(2, "b2@x.io"),
        row(3, "c@x.io").subscribed(false),
        with_plan("pro"),
        row(5, "e@x.io"),
        row(6, "f@x.io"),
    ];
    nights.contacts.subscribe("a@x.io").await.unwrap();
    nights.run(&second).await;
    nights.contacts.unsubscribe("f@x.io").await.unwrap();
    let state = fs::read(&nights.state).unwrap();
    fs::write(&nights.state, &state[..length]).unwrap();
    let third = [
        row(1, "a@x.io").subscribed(false),
        row(2, "b3@x.io"),
        row(3, "c@x.io"),
        with_plan("free"),
        row(6, "f2@x.io"),
    ];

    nights.run_with(&third, SyncContacts::deletes_missing).await;
    assert!(!nights.is_opted_out("a@x.io"));
    let (report, _) = nights
        .run_with(&third, |sync| sync.deletes_missing().checks_list())
        .await;

    assert!(nights.is_opted_out("a@x.io"));
    // An earlier run has opted out the address that row 2 had, and sent the opt-out of row 3.
    assert!(nights.is_opted_out("b3@x.io"));
    assert_eq!(report.opt_ins_not_sent(), 1);
    assert_eq!(report.opted_out_at_service(), ["3"]);
    // The state does not know these addresses.
    for address in ["b2@x.io", "e@x.io", "f2@x.io"] {
        assert!(!nights.is_opted_out(address), "{address}");
    }
    let named = nights.server.contact("d@x.io").unwrap();
    assert_eq!(named.properties["plan"], "pro");
}

#[tokio::test]
async fn zeros_after_a_power_failure_are_removed() {
    let nights = two_nights().await;
    let mut state = fs::read(&nights.state).unwrap();
    state.extend([0; 100]);
    fs::write(&nights.state, &state).unwrap();

    assert_eq!(nights.run(&table()).await.0.unchanged(), 4);
}

#[tokio::test]
async fn another_file_a_damaged_line_and_a_newer_version_are_refused_and_left_alone() {
    let nights = two_nights().await;
    let state = fs::read_to_string(&nights.state).unwrap();
    let newer = state.replacen("\"version\":1", "\"version\":2", 1);
    let damaged = state.replacen("\"row\"", "\"rom\"", 1);
    let journal = r#"{"import":{"version":1,"service":"s","first_rows":0,"fingerprint":0}}"#;

    for (text, reason) in [
        (newer, "another version"),
        (damaged, "not a record"),
        (format!("{journal}\n"), "not a record"),
        (
            format!("{}\n{state}", state.lines().next().unwrap()),
            "two headers",
        ),
        ("key,address\n1,a@x.io\n".to_owned(), "not a record"),
        ("no newline".to_owned(), "not a record"),
        (
            state
                .lines()
                .skip(1)
                .map(|line| format!("{line}\n"))
                .collect(),
            "no header",
        ),
    ] {
        fs::write(&nights.state, &text).unwrap();
        let error = SyncState::open(&nights.state).unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(fs::read_to_string(&nights.state).unwrap(), text);
    }
    let folder = SyncState::open(std::env::temp_dir()).unwrap_err();
    assert_eq!(folder.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn the_state_of_a_sync_with_another_service_is_refused() {
    let nights = two_nights().await;
    let other = MockServer::start().await;

    let sync = other.client().contacts().sync(table(), nights.state.open());
    let stopped = in_time(sync.into_future()).await.unwrap_err();

    assert_eq!(stopped.error().kind(), ErrorKind::Input);
    assert!(stopped.error().to_string().contains("another service"));
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_night_with_a_key_that_may_not_look_for_contacts_sends_nothing() {
    let table = |rows| -> Vec<SyncRow> {
        let rows = (0..rows).map(|key| row(key, &format!("{key}@x.io")));
        rows.collect()
    };
    let nights = Nights::new().await;
    nights.run(&table(5)).await;
    let state = fs::read(&nights.state).unwrap();
    nights.server.clear_requests();
    nights.server.fault(Fault::status(403).method("GET"));

    let sync = nights.sync(&table(6));
    let stopped = in_time(sync.into_future()).await.unwrap_err();

    assert!(stopped.error().is_forbidden(), "{stopped}");
    assert_eq!(nights.calls().len(), 1);
    assert_eq!(fs::read(&nights.state).unwrap(), state);
}

#[tokio::test]
async fn a_firewall_that_refuses_one_contact_does_not_hide_that_the_key_is_of_another_audience() {
    let table = |rows| -> Vec<SyncRow> {
        let rows = (0..rows).map(|key| row(key, &format!("{key}@x.io")));
        rows.collect()
    };
    let nights = Nights::new().await;
    nights.run(&table(6)).await;
    nights.server.reset();
    let blocked = Fault::status(403).body("<html>Blocked</html>");
    nights.server.fault(blocked.method("GET").times(1));

    let sync = nights.sync(&table(7));
    let stopped = in_time(sync.into_future()).await.unwrap_err();

    let text = stopped.error().to_string();
    // The fewest that prove it.
    let said = "the service has none of 5 contacts";
    assert!(text.starts_with(said), "{text}");
    assert_eq!(nights.server.contact_count(), 0);
}

/// A table of eight rows, the last one with this address.
fn eight_rows(address: &str) -> Vec<SyncRow> {
    let others = (1..8).map(|key| row(key, &format!("{key}@x.io")));
    others.chain([row(8, address)]).collect()
}

#[tokio::test]
async fn a_night_with_the_key_of_another_audience_sends_nothing_and_the_next_one_everything() {
    let nights = Nights::new().await;
    nights.run(&eight_rows("8@x.io")).await;
    let (report, calls) = nights.run(&eight_rows("new@x.io")).await;
    assert!(report.is_complete(), "{calls:?}");
    let state = fs::read(&nights.state).unwrap();
    nights.server.reset();
    nights.server.topic("news", true);

    let unchanged = nights.run(&eight_rows("new@x.io")).await.1;
    let newer = eight_rows("newer@x.io");
    let dry = nights.run_with(&newer, SyncContacts::dry_run).await.1;
    for sync in [
        nights.sync(&newer),
        nights.sync(&newer).checks_list(),
        // It would read the list.
        nights.sync(&eight_rows("new@x.io")).checks_list(),
    ] {
        nights.server.clear_requests();
        let stopped = in_time(sync.into_future()).await.unwrap_err();

        let text = stopped.error().to_string();
        assert!(
            text.starts_with("the service has none of 8 contacts"),
            "{text}"
        );
        assert_eq!(stopped.error().kind(), ErrorKind::Input);
        let calls = nights.calls();
        assert!(
            calls.iter().all(|call| call.starts_with("GET")),
            "{calls:?}"
        );
    }
    assert!(unchanged.is_empty() && dry.is_empty(), "{unchanged:?}");
    assert_eq!(fs::read(&nights.state).unwrap(), state);
    // The right audience is back, with all but seven of its contacts.
    nights.server.seed_contact("3@x.io");
    let (report, _) = nights.run(&eight_rows("newer@x.io")).await;
    assert!(report.is_complete(), "{report}");
    assert!(nights.server.contact("newer@x.io").is_some());
}

#[tokio::test]
async fn a_wait_of_years_holds_the_next_nights_back_for_an_hour_at_most() {
    let nights = Nights::new().await;
    let too_many = Fault::status(429).retry_after(2_000_000_000);
    nights
        .server
        .fault(too_many.path("/contacts/batch").times(1));
    let table = [row(1, "a@x.io")];
    nights.run(&table).await;

    let state = fs::read_to_string(&nights.state).unwrap();
    let (before, held) = state.split_once("{\"held_until\":").unwrap();
    let (until, after) = held.split_once("}\n").unwrap();
    // A clock that was ahead may have recorded any time.
    let far = format!("{before}{{\"held_until\":20000000000}}\n{after}");
    fs::write(&nights.state, far).unwrap();
    // Another client, as in another process.
    let contacts = mock_builder(&nights.server).build().unwrap().contacts();
    let sync = contacts.sync(table.to_vec(), nights.state.open());
    let report = in_time(sync.into_future()).await.unwrap();

    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let until: u64 = until.parse().unwrap();
    // The clock may have been set back by a minute.
    assert!(until <= now.as_secs() + 3_660, "{state}");
    assert!(report.is_complete(), "{report}");
    assert!(nights.server.contact("a@x.io").is_some());
}

#[tokio::test]
async fn no_request_is_sent_while_the_service_has_asked_to_wait() {
    let nights = Nights::new().await;
    let mut table: Vec<_> = (0..8).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&table).await;
    table[0] = row(0, "new@x.io");
    // A wait of more than an hour is not believed, and the clock may be set back.
    let later = SystemTime::now() + Duration::from_secs(1_800);
    let later = later.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let state = fs::read_to_string(&nights.state).unwrap();
    let held = format!("{state}{{\"held_until\":{later}}}\n");
    fs::write(&nights.state, held).unwrap();

    for is_dry_run in [true, false] {
        let settings = |sync: SyncContacts| match is_dry_run {
            true => sync.checks_list().dry_run(),
            false => sync,
        };
        // Another client, as in another process.
        let contacts = mock_builder(&nights.server).build().unwrap().contacts();
        nights.server.clear_requests();
        let sync = contacts.sync(table.clone(), nights.state.open());
        let sync = settings(sync.deadline(Duration::from_millis(10)));
        let report = in_time(sync.into_future()).await;

        assert!(nights.calls().is_empty(), "{is_dry_run} {report:?}");
    }
}

#[tokio::test]
async fn two_syncs_do_not_use_one_state_at_the_same_time() {
    let nights = two_nights().await;
    // Both have read the file before either writes to it.
    let (first, second) = (
        nights.sync(&[row(7, "x@x.io")]),
        nights.sync(&[row(7, "y@x.io")]),
    );

    let (first, second) = tokio::join!(first.into_future(), second.into_future());

    // The rows of the one that waited may be older than what the other has sent.
    let (done, failed) = match (first, second) {
        (Ok(done), Err(failed)) | (Err(failed), Ok(done)) => (done, failed),
        both => panic!("{both:?}"),
    };
    // A slow machine may need all the time for which the other one waits.
    let reasons = [
        "another sync has used the sync state since it was opened",
        "another sync is using the sync state",
    ];
    let told = failed.to_string();
    assert!(reasons.iter().any(|reason| told.contains(reason)), "{told}");
    // Another run opens the state and reads the table again, so it may help.
    assert_eq!(audience::exit_status(&failed), 75);
    assert_eq!(
        (done.is_complete(), nights.server.contacts().len()),
        (true, 6)
    );
    let (report, _) = nights.run(&[row(7, "z@x.io")]).await;
    assert_eq!((report.is_complete(), report.opted_out()), (true, 1));
}

#[tokio::test]
async fn a_sync_that_is_refused_leaves_the_rejects_of_the_first_as_they_are() {
    let nights = Nights::new().await;
    let rejects = nights.state.0.with_extension("sync.rejects.csv");
    fs::write(&rejects, "of the first run").unwrap();
    nights.server.fault(Fault::delay(Duration::from_secs(600)));
    let first = tokio::spawn(nights.sync(&table()).into_future());
    while nights.server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    let second = nights.sync(&table()).rejects_file(&rejects);
    let second = in_time(second.into_future()).await.unwrap_err();

    assert!(second.to_string().contains("another sync is using"));
    assert_eq!(fs::read_to_string(&rejects).unwrap(), "of the first run");
    first.abort();
    fs::remove_file(rejects).unwrap();
}

#[tokio::test]
async fn a_sync_that_would_opt_out_too_many_leaves_the_state_and_the_rejects_as_they_are() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let state = fs::read(&nights.state).unwrap();
    let rejects = nights.state.0.with_extension("sync.rejects.csv");
    fs::write(&rejects, "of the last run").unwrap();
    nights.server.clear_requests();

    // The opt-out of the second row would be recorded before the first request.
    let table = [row(1, "c@x.io"), row(2, "b@x.io").subscribed(false)];
    let sync = nights.sync(&table).leave_at_most(0).rejects_file(&rejects);
    let stopped = in_time(sync.into_future()).await.unwrap_err();

    assert_eq!(stopped.error().kind(), ErrorKind::Input);
    assert!(fs::read(&nights.state).unwrap() == state);
    assert_eq!(fs::read_to_string(&rejects).unwrap(), "of the last run");
    assert!(nights.server.requests().is_empty());
    fs::remove_file(rejects).unwrap();
}

#[tokio::test]
async fn a_state_that_grew_is_written_anew_and_a_sync_that_has_opened_the_old_one_fails() {
    let nights = Nights::new().await;
    let rows = |name: &str| -> Vec<_> {
        let contact = |n: u64| super::contact(&format!("{n}@x.io")).first_name(name);
        (0..1_500).map(|n| SyncRow::new(n, contact(n))).collect()
    };
    nights.run(&rows("a")).await;
    let waited = nights.sync(&rows("a"));
    nights.run(&rows("b")).await;
    let length = fs::metadata(&nights.state).unwrap().len();
    let lines = fs::read_to_string(&nights.state).unwrap().lines().count();

    assert!(lines < 4_500, "{lines} lines, {length} bytes");
    nights.server.clear_requests();
    let failed = in_time(waited.into_future()).await.unwrap_err().to_string();
    assert!(failed.contains("another sync has used"), "{failed}");
    assert!(nights.server.requests().is_empty());
    assert_eq!(nights.run(&rows("b")).await.0.unchanged(), 1_500);
}

// On Windows, no sync writes its state anew.
#[cfg(unix)]
#[tokio::test]
async fn a_state_that_is_mostly_waste_and_cannot_be_written_anew_is_kept_with_a_warning() {
    let nights = Nights::new().await;
    let table = [row(1, "a@x.io"), row(2, "b@x.io"), row(3, "c@x.io")];
    nights.run(&table[..1]).await;
    let state = fs::read_to_string(&nights.state).unwrap();
    let last = state.lines().last().unwrap();
    fs::write(
        &nights.state,
        format!("{state}{}", format!("{last}\n").repeat(1_200)),
    )
    .unwrap();
    let new = nights.state.0.with_extension("sync.new");
    let lines = || fs::read_to_string(&nights.state).unwrap().lines().count();
    let log = Log::start();
    let warnings = || {
        let events = log.events().into_iter();
        let warnings = events.filter(|event| event.level == Level::WARN);
        let messages = warnings.map(|event| event.fields["message"].clone());
        messages.collect::<Vec<_>>()
    };

    // As if the folder could not be written, which root can always do.
    fs::create_dir(&new).unwrap();
    let (report, _) = nights.run(&table[..2]).await;
    fs::remove_dir(&new).unwrap();

    assert!(report.is_complete(), "{report}");
    let [warning] = &warnings()[..] else {
        panic!("{:?}", warnings());
    };
    assert!(warning.contains("could not be written anew"), "{warning}");
    assert!(lines() > 1_200);
    nights.run(&table).await;
    assert_eq!(warnings().len(), 1);
    assert!(lines() < 10);
}

#[tokio::test]
async fn a_state_that_was_written_anew_has_each_address_that_a_row_had_before() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.run(&[row(1, "b@x.io")]).await;
    let others = (10..2_500).map(|n| row(n, &format!("{n}@x.io")));
    let table: Vec<_> = others.chain([row(1, "c@x.io")]).collect();
    nights.run(&table).await;
    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(state.contains("\"rewritten\":1"));

    let taken = [row(2, "a@x.io"), row(3, "b@x.io")];
    let (report, _) = nights.run(&taken).await;

    // The sync has opted out both addresses when row 1 left them.
    assert_eq!(report.opt_ins_not_sent(), 2);
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
}

// On Windows, no sync writes its state anew.
#[cfg(unix)]
#[test]
fn other_tasks_of_the_thread_continue_while_the_state_is_rewritten() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let nights = Nights::new().await;
        let table: Vec<_> = (0..2_500).map(|n| row(n, &format!("{n}@x.io"))).collect();
        // The only thread that may block is busy, so the file cannot be written anew until it is released.
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let mut sync = nights.sync(&table).into_future();

        // Each row has a record before it is sent, and one afterwards.
        let is_recorded = || {
            let state = fs::read_to_string(&nights.state).unwrap();
            state.lines().count() > 2 * table.len()
        };
        let wait = in_time(async {
            let mut is_last = false;
            while !is_last {
                is_last = is_recorded();
                let early = tokio::time::timeout(Duration::from_millis(100), &mut sync).await;
                assert!(early.is_err(), "the file was written anew on this thread");
            }
        });
        wait.await;
        release.send(()).unwrap();
        let report = in_time(sync).await.unwrap();

        busy.await.unwrap().unwrap();
        assert!(report.is_complete(), "{report}");
        let state = fs::read_to_string(&nights.state).unwrap();
        assert!(state.contains("\"rewritten\":1"));
    });
}

#[tokio::test]
async fn other_tasks_get_a_turn_while_the_rows_that_are_missing_are_read() {
    let nights = Nights::new().await;
    let table: Vec<_> = (0..2_500).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&table).await;
    let sync = nights.sync(&table[..1]).deletes_missing();
    let mut sync = sync.leave_at_most(2_500).dry_run().into_future();

    let mut turns = 0;
    let report = std::future::poll_fn(|context| {
        turns += 1;
        sync.as_mut().poll(context)
    });
    let report = report.await.unwrap();

    assert_eq!(report.opted_out(), 2_499);
    assert!(turns > 2, "{turns}");
}

#[tokio::test]
async fn a_sync_stops_if_another_program_writes_to_its_state() {
    let nights = two_nights().await;
    let path = nights.state.0.clone();
    let sync = nights.sync(&[row(1, "a@x.io").subscribed(false), row(8, "e@x.io")]);
    // Called after the opt-out, and before the new row is sent.
    let sync = sync.on_progress(move |_| {
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"another program\n").unwrap();
    });

    let stopped = in_time(sync.into_future()).await.unwrap_err();

    assert_eq!(
        stopped.error().to_string(),
        "could not write the sync state"
    );
    assert!(nights.is_opted_out("a@x.io"));
    assert!(nights.server.contact("e@x.io").is_none());
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_a_new_state_and_one_that_was_written_anew() {
    use std::os::unix::fs::PermissionsExt;

    // A first run may write its file anew, too.
    for count in [1, 2_500] {
        let nights = Nights::new().await;
        let rows: Vec<_> = (0..count).map(|n| row(n, &format!("{n}@x.io"))).collect();
        nights.run(&rows).await;

        let state = fs::read_to_string(&nights.state).unwrap();
        assert_eq!(state.contains("\"rewritten\":1"), count > 1);
        let mode = fs::metadata(&nights.state).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_state_that_root_writes_anew_keeps_its_owner_and_its_group() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    let nights = Nights::new().await;
    drop(nights.state.open());
    if chown(&nights.state, Some(12_345), Some(23_456)).is_err() {
        return say_skipped("a state that root writes anew: the tests do not run as root");
    }
    fs::set_permissions(&nights.state, fs::Permissions::from_mode(0o640)).unwrap();
    let rows: Vec<_> = (0..2_500).map(|n| row(n, &format!("{n}@x.io"))).collect();

    nights.run(&rows).await;

    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(state.contains("\"rewritten\":1"));
    let file = fs::metadata(&nights.state).unwrap();
    assert_eq!((file.uid(), file.gid()), (12_345, 23_456));
    assert_eq!(file.permissions().mode() & 0o777, 0o640);
}

#[tokio::test]
async fn a_night_without_changes_does_not_change_the_state() {
    let nights = Nights::new().await;
    let table = [
        row(1, "a@x.io"),
        row(2, "b@x.io"),
        row(3, "c@x.io").deleted(true),
    ];
    nights.run(&table).await;
    let missing = |sync: SyncContacts| sync.deletes_missing().leave_at_most(1);
    nights.run_with(&table[..1], missing).await;
    let state = fs::read(&nights.state).unwrap();

    nights.run_with(&table[..1], missing).await;

    assert!(fs::read(&nights.state).unwrap() == state);
}

/// The variables by which the test of the full disk tells its process what to do.
const URL: &str = "AUDIENCE_FULL_URL";
const KEY: &str = "AUDIENCE_FULL_KEY";
const STATE: &str = "AUDIENCE_FULL_STATE";

#[tokio::test]
async fn the_process_with_a_full_disk() {
    let Ok(url) = std::env::var(URL) else { return };
    let variable = |name| std::env::var(name).unwrap();
    let client = audience::Client::new(&url, variable(KEY)).unwrap();
    let state = SyncState::open(variable(STATE)).unwrap();
    let rows = (0..400).map(|n| row(n, &format!("{n}@x.io")));

    let stopped = client.contacts().sync(rows, state).await.unwrap_err();

    assert_eq!(
        stopped.error().to_string(),
        "could not write the sync state"
    );
    let cause = std::error::Error::source(&stopped).unwrap();
    assert!(cause.to_string().contains("File too large"), "{cause}");
    assert!(stopped.report().changes().not_sent() + stopped.report().changes().unknown() > 0);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_the_sync_and_the_next_one_continues() {
    let nights = Nights::new().await;
    // Files of this process end after 32 KiB.
    let mut process = Command::new("bash");
    process
        .args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" --exact sync::files::the_process_with_a_full_disk"])
        .arg(std::env::current_exe().unwrap())
        .env(URL, nights.server.url())
        .env(KEY, nights.server.full_key())
        .env(STATE, &nights.state.0);
    let output = tokio::task::spawn_blocking(move || process.output())
        .await
        .unwrap()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let created = nights.server.contact_count();
    assert!((1..400).contains(&created), "{created}");

    let rows: Vec<_> = (0..400).map(|n| row(n, &format!("{n}@x.io"))).collect();
    let (report, _) = nights.run(&rows).await;

    assert!(report.is_complete());
    assert_eq!(nights.server.contact_count(), 400);
    assert_eq!(nights.run(&rows).await.0.unchanged(), 400);
}

#[test]
fn a_new_state_is_empty() {
    let path = StatePath::new();

    assert!(path.open().is_empty());
    assert!(path.open().path().ends_with(path.0.file_name().unwrap()));
}

#[tokio::test]
async fn a_state_that_a_sync_has_used_is_not_empty() {
    let nights = two_nights().await;

    assert!(!SyncState::open(&nights.state).unwrap().is_empty());
}

#[tokio::test]
async fn a_state_that_must_exist_is_not_created_and_may_be_empty_before_the_first_night() {
    let nights = Nights::new().await;

    let error = SyncState::open_existing(&nights.state).unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    let path = nights.state.0.display();
    let said = format!("{path}: there is no sync state; check the path");
    assert!(text.starts_with(&said), "{text}");
    assert_eq!(audience::exit_status(&error), 1);
    assert!(!nights.state.0.exists());
    drop(fs::File::create(&nights.state).unwrap());
    let first = SyncState::open_existing(&nights.state).unwrap();
    let sync = nights.contacts.sync([row(1, "a@x.io")], first);
    let report = in_time(sync.into_future()).await.unwrap();
    assert!(report.is_complete(), "{report}");
    let second = SyncState::open_existing(&nights.state).unwrap();
    assert!(!second.is_empty());
}

/// Two nights, and a third in which row 3 is deleted.
#[cfg(unix)]
async fn three_nights() -> Nights {
    let nights = two_nights().await;
    let [first, second, third, fourth] = table();
    nights
        .run(&[first, second, third.deleted(true), fourth])
        .await;
    nights
}

// On Windows, no state is written anew.
#[cfg(unix)]
#[tokio::test]
async fn a_row_that_is_erased_is_not_in_the_state_any_more_and_all_others_are_unchanged() {
    use std::os::unix::fs::PermissionsExt;

    let nights = three_nights().await;
    fs::set_permissions(&nights.state, fs::Permissions::from_mode(0o640)).unwrap();

    let erased = nights.erase(["3"]).await.unwrap();

    // Row 3 has another address since the second night.
    let deleted = |address: &str| (address.to_owned(), Erasure::Deleted);
    assert_eq!(erased, [deleted("c2@x.io"), deleted("c@x.io")]);
    assert!(nights.server.contact("c2@x.io").is_none());
    assert!(nights.server.contact("c@x.io").is_none());
    let state = fs::read_to_string(&nights.state).unwrap();
    for text in ["\"key\":\"3\"", "c@x.io", "c2@x.io"] {
        assert!(!state.contains(text), "{text} {state}");
    }
    let mode = fs::metadata(&nights.state).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // It is not there any more, so nothing is sent, and the file stays as it is.
    nights.server.clear_requests();
    assert_eq!(nights.erase(["3"]).await.unwrap(), []);
    assert!(nights.server.requests().is_empty());
    assert_eq!(fs::read_to_string(&nights.state).unwrap(), state);
    let [first, second, _, fourth] = table();
    let (report, calls) = nights.run(&[first, second, fourth]).await;
    assert_eq!(report.unchanged(), 3);
    assert!(calls.is_empty(), "{calls:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn an_erased_address_is_returned_as_the_service_has_it_whatever_the_spelling_in_the_table() {
    let nights = Nights::new().await;
    let other = || row(2, "b@x.io");
    nights.run(&[row(1, "Ada@X.io"), other()]).await;
    nights.run(&[row(1, "Ada@Y.io"), other()]).await;
    nights
        .run(&[row(1, "Ada@Y.io").deleted(true), other()])
        .await;

    let erased = nights.erase([1]).await.unwrap();

    let deleted = |address: &str| (address.to_owned(), Erasure::Deleted);
    assert_eq!(erased, [deleted("ada@y.io"), deleted("ada@x.io")]);
    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(!state.to_lowercase().contains("ada@"), "{state}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_contact_is_not_erased_while_another_row_has_its_address() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.run(&[row(1, "b@x.io")]).await;
    let deleted = |key| row(key, "a@x.io").deleted(true);
    let table = [row(1, "b@x.io"), row(2, "a@x.io"), row(3, "a@x.io")];
    nights.run(&table).await;
    nights
        .run(&[row(1, "b@x.io"), deleted(2), row(3, "a@x.io")])
        .await;
    let before = nights.server.contact("a@x.io");
    let lines_with_address = || {
        let state = fs::read_to_string(&nights.state).unwrap();
        state.matches("\"a@x.io\"").count()
    };

    // Row 1 had the address, and row 3 has it.
    let kept = nights.erase(["2"]).await.unwrap();

    assert_eq!(kept, [("a@x.io".to_owned(), Erasure::Kept)]);
    assert_eq!(nights.server.contact("a@x.io"), before);
    assert_eq!(lines_with_address(), 2);

    nights.run(&[row(1, "b@x.io"), deleted(3)]).await;
    let erased = nights.erase([3]).await.unwrap();

    assert_eq!(erased, [("a@x.io".to_owned(), Erasure::Deleted)]);
    assert_eq!(lines_with_address(), 0);
    let (report, _) = nights.run(&table[..1]).await;
    assert_eq!(report.unchanged(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn a_contact_is_not_erased_if_another_row_may_have_got_its_address() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let deleted = row(2, "b@x.io").deleted(true);
    nights.run(&[row(1, "a@x.io"), deleted.clone()]).await;
    // The service has the contact of row 1, but the response is lost.
    let lost = Fault::close_after().path("/contacts/batch");
    nights.server.fault(lost);
    let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());
    let table = [row(1, "b@x.io"), deleted];
    let (report, _) = nights.run_with(&table, once).await;
    assert!(report.changes().unknown() > 0, "{report}");
    nights.server.clear_faults();

    let kept = nights.erase([2]).await.unwrap();

    assert_eq!(kept, [("b@x.io".to_owned(), Erasure::Kept)]);
    assert!(nights.server.contact("b@x.io").is_some());
}

#[cfg(unix)]
#[tokio::test]
async fn rows_that_are_erased_together_do_not_keep_each_others_contacts() {
    let nights = Nights::new().await;
    let deleted = |key| row(key, "a@x.io").deleted(true);
    let table = [row(1, "a@x.io"), row(2, "a@x.io"), row(3, "c@x.io")];
    nights.run(&table).await;
    nights
        .run(&[deleted(1), deleted(2), row(3, "c@x.io")])
        .await;

    let erased = nights.erase([1, 2, 7]).await.unwrap();

    // Both rows have it, and nobody knows row 7.
    assert_eq!(
        erased,
        [
            ("a@x.io".to_owned(), Erasure::Deleted),
            ("a@x.io".to_owned(), Erasure::Deleted)
        ]
    );
    let (report, _) = nights.run(&table[2..]).await;
    assert_eq!(report.unchanged(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn an_erasure_that_failed_is_told_with_its_row_and_keeps_only_this_row() {
    let nights = three_nights().await;
    nights.server.fault(Fault::status(403).path("*/c@x.io*"));

    let rows = [("3", "c2@x.io"), ("4", "d@x.io")];
    let erasing = nights.contacts.erase_rows(nights.state.open(), rows);
    let [(failed, error), (erased, last)]: [_; 2] = erasing.await.unwrap().try_into().unwrap();
    nights.server.clear_faults();

    assert_eq!((failed, erased), ("3", "4"));
    let (error, last) = (error.unwrap_err(), last.unwrap());
    let text = error.to_string();
    assert!(
        text.starts_with("erase: the row with the key \"3\": the service responded 403"),
        "{text}"
    );
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert!(nights.server.contact("c2@x.io").is_none());
    assert_eq!(last, [("d@x.io".to_owned(), Erasure::Deleted)]);
    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(
        state.contains("c@x.io") && !state.contains("d@x.io"),
        "{state}"
    );
    let erased = nights.erase(["3"]).await.unwrap();
    let erasures: Vec<_> = erased.iter().map(|(_, erasure)| *erasure).collect();
    assert_eq!(erasures, [Erasure::NoContact, Erasure::Deleted]);
}

#[cfg(unix)]
#[tokio::test]
async fn the_call_after_one_that_failed_returns_all_addresses_of_the_row() {
    let nights = Nights::new().await;
    for address in ["a@x.io", "b@x.io", "c@x.io", "c@x.io"] {
        nights.run(&[row(1, address), row(2, "d@x.io")]).await;
    }
    let deleted = [
        row(1, "c@x.io").deleted(true),
        row(2, "d@x.io").deleted(true),
    ];
    nights.run(&deleted).await;
    nights.server.fault(Fault::status(403).path("*/b@x.io*"));

    let rows = [(1, ""), (2, "")];
    let erasing = nights.contacts.erase_rows(nights.state.open(), rows);
    let [(_, failed), (_, erased)]: [_; 2] = erasing.await.unwrap().try_into().unwrap();
    nights.server.clear_faults();

    let is = |address: &str, erasure| (address.to_owned(), erasure);
    assert_eq!(failed.unwrap_err().outcome(), Outcome::Unknown);
    assert_eq!(erased.unwrap(), [is("d@x.io", Erasure::Deleted)]);
    assert!(nights.server.contact("a@x.io").is_none());
    // Whoever keeps a list of erased addresses has not got the first two yet.
    let expected = [
        is("c@x.io", Erasure::NoContact),
        is("a@x.io", Erasure::NoContact),
        is("b@x.io", Erasure::Deleted),
    ];
    assert_eq!(nights.erase([1]).await.unwrap(), expected);
    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(!state.contains("@x.io"), "{state}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_row_that_is_not_deleted_is_not_erased_and_holds_up_no_other() {
    let nights = three_nights().await;
    nights.server.clear_requests();

    let rows = [(1, "a@x.io"), (3, "")];
    let erasing = nights.contacts.erase_rows(nights.state.open(), rows);
    let [(_, refused), (_, erased)]: [_; 2] = erasing.await.unwrap().try_into().unwrap();

    let error = refused.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Input, Outcome::NotSent)
    );
    let text = "erase: the row with the key \"1\": it was not deleted in the last sync";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(nights.server.contact("a@x.io").is_some());
    assert_eq!(erased.unwrap().len(), 2);
    assert!(nights.server.contact("c@x.io").is_none());
    let paths = nights.server.requests();
    assert!(
        paths
            .iter()
            .all(|request| !request.path.contains("a%40x.io"))
    );
}

#[cfg(unix)]
#[tokio::test]
async fn the_address_in_the_table_is_erased_too_even_if_no_run_has_sent_it() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let table = [row(1, "a@x.io").deleted(true), row(2, "b@x.io")];
    nights.run(&table).await;
    for address in ["new@x.io", "z@x.io"] {
        nights.contacts.create(address).await.unwrap();
    }

    // Row 1 has got another address since, no run has seen the rows 8 and 9, and row 2 has the address of row 7.
    let rows = [(1, "New@x.io"), (9, "z@x.io"), (8, " "), (7, "B@x.io")];
    let erasing = nights.contacts.erase_rows(nights.state.open(), rows);
    let erased = erasing.await.unwrap();

    let erased = erased
        .into_iter()
        .map(|(key, erased)| (key, erased.unwrap()));
    let erased: Vec<(i32, Vec<_>)> = erased.collect();
    let is = |address: &str, erasure| (address.to_owned(), erasure);
    let first = vec![
        is("new@x.io", Erasure::Deleted),
        is("a@x.io", Erasure::Deleted),
    ];
    let expected = [
        (1, first),
        (9, vec![is("z@x.io", Erasure::Deleted)]),
        (8, vec![]),
        (7, vec![is("b@x.io", Erasure::Kept)]),
    ];
    assert_eq!(erased, expected);
    let left = nights.server.contacts();
    let left: Vec<_> = left.iter().map(|contact| &*contact.email).collect();
    assert_eq!(left, ["b@x.io"]);
    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(!state.contains("a@x.io"), "{state}");
}

/// Returns when a request names this in its path.
#[cfg(unix)]
async fn until_asked_for(server: &MockServer, name: &str) {
    let asked = || {
        let requests = server.requests();
        requests.iter().any(|request| request.path.contains(name))
    };
    until(asked).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_signal_stops_an_erasure_and_the_rows_before_it_are_erased() {
    let nights = three_nights().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let slow = Fault::delay(Duration::from_secs(600)).path("*/c2@x.io*");
    nights.server.fault(slow);
    nights.server.clear_requests();
    let rows = [(4, "d@x.io"), (3, "c2@x.io"), (9, "z@x.io")];
    let erasing = nights.contacts.erase_rows(nights.state.open(), rows);
    let erasing = erasing.stop_when(async move { _ = stopped.await });
    let running = tokio::spawn(erasing.into_future());
    until_asked_for(&nights.server, "c2").await;

    stop.send(()).unwrap();
    let results = in_time(running).await.unwrap().unwrap();
    nights.server.clear_faults();

    let [(4, Ok(_)), (3, Err(halfway)), (9, Err(untried))] = &results[..] else {
        panic!("{results:?}");
    };
    for (error, outcome) in [(halfway, Outcome::Unknown), (untried, Outcome::NotSent)] {
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Stopped, outcome)
        );
        assert_eq!(audience::exit_status(error), 143);
    }
    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(
        state.contains("c2@x.io") && !state.contains("d@x.io"),
        "{state}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn an_erasure_that_was_killed_is_repeated_and_nobody_is_left_out() {
    let nights = three_nights().await;
    nights
        .server
        .fault(Fault::delay(Duration::from_secs(600)).path("*/c2@x.io*"));
    nights.server.clear_requests();
    let rows = || [(4, "d@x.io"), (3, "c2@x.io")];
    let erasing = nights.contacts.erase_rows(nights.state.open(), rows());
    let running = tokio::spawn(erasing.into_future());
    until_asked_for(&nights.server, "c2").await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    nights.server.clear_faults();
    assert!(nights.server.contact("d@x.io").is_none());

    let erasing = nights.contacts.erase_rows(nights.state.open(), rows());
    let erased = in_time(erasing.into_future()).await.unwrap();

    let erased = erased.into_iter().flat_map(|(_, erased)| erased.unwrap());
    let expected = [
        ("d@x.io", Erasure::NoContact),
        ("c2@x.io", Erasure::Deleted),
        ("c@x.io", Erasure::Deleted),
    ];
    let expected = expected.map(|(address, erasure)| (address.to_owned(), erasure));
    assert_eq!(erased.collect::<Vec<_>>(), expected);
    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(
        !state.contains("c@x.io") && !state.contains("d@x.io"),
        "{state}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn after_three_failures_of_the_service_no_other_row_is_tried_and_a_bad_address_is_none() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "1@x.io"), row(2, "2@x.io")]).await;
    let deleted = [
        row(1, "1@x.io").deleted(true),
        row(2, "2@x.io").deleted(true),
    ];
    nights.run(&deleted).await;
    let rows = [
        (3, ".."),
        (4, ".."),
        (5, ".."),
        (6, "6@x.io"),
        (7, "7@x.io"),
        (1, ""),
        (2, ""),
    ];
    nights.server.fault(Fault::status(401));
    nights.server.clear_requests();

    let erasing = nights.contacts.erase_rows(nights.state.open(), rows);
    let errors = erasing.await.unwrap().into_iter();
    let errors: Vec<_> = errors
        .map(|(key, erased)| (key, erased.unwrap_err()))
        .collect();

    let kinds: Vec<_> = errors
        .iter()
        .map(|(key, error)| (*key, error.kind()))
        .collect();
    let (input, api) = (ErrorKind::Input, ErrorKind::Api);
    let expected = [
        (3, input),
        (4, input),
        (5, input),
        (6, api),
        (7, api),
        (1, api),
        (2, ErrorKind::Unfinished),
    ];
    assert_eq!(kinds, expected);
    let untried = &errors[6].1;
    assert!(untried.is_retryable(), "{untried}");
    assert_eq!(untried.outcome(), Outcome::NotSent);
    assert_eq!(nights.server.requests().len(), 3);
    nights.server.clear_faults();
    let erased = nights.erase([1, 2]).await.unwrap();
    let deleted = |address: &str| (address.to_owned(), Erasure::Deleted);
    assert_eq!(erased, [deleted("1@x.io"), deleted("2@x.io")]);
}

#[cfg(unix)]
#[tokio::test]
async fn neither_a_deleted_row_nor_an_address_that_a_row_had_for_one_night_keeps_a_contact() {
    let nights = Nights::new().await;
    for address in ["a@x.io", "b@x.io", "c@x.io"] {
        nights.run(&[row(1, address)]).await;
    }
    let others = [row(1, "c@x.io"), row(2, "d@x.io").deleted(true)];
    let last = [row(3, "b@x.io"), row(4, "d@x.io"), row(5, "c@x.io")];
    nights.run(&[row(1, "c@x.io"), row(2, "d@x.io")]).await;
    nights.run(&others).await;
    nights.run(&[&others[..], &last].concat()).await;
    let last = last.map(|row| row.deleted(true));
    nights.run(&[&others[..], &last].concat()).await;

    let erased = nights.erase([3, 4, 5]).await.unwrap();

    let expected = [
        ("b@x.io", Erasure::Deleted),
        ("d@x.io", Erasure::Deleted),
        ("c@x.io", Erasure::Kept),
    ];
    let expected = expected.map(|(address, erasure)| (address.to_owned(), erasure));
    assert_eq!(erased, expected);
}

#[tokio::test]
async fn a_night_that_only_opts_out_old_addresses_with_the_key_of_another_audience_sends_nothing() {
    let nights = Nights::new().await;
    nights.run(&eight_rows("8@x.io")).await;
    let fault = Fault::status(501).path("/contacts/8%40x.io/unsubscribe");
    nights.server.fault(fault);
    let (report, _) = nights.run(&eight_rows("new@x.io")).await;
    assert!(!report.is_complete());
    nights.server.reset();
    // Another person, who wants mail of the other audience.
    nights.server.seed_contact("8@x.io");

    let sync = nights.sync(&eight_rows("new@x.io"));
    let stopped = in_time(sync.into_future()).await.unwrap_err();

    let text = stopped.error().to_string();
    assert!(text.contains("may be that of another audience"), "{text}");
    assert!(!nights.is_opted_out("8@x.io"));
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_is_erased_in_another_audience_or_service() {
    let nights = Nights::new().await;
    let mut table: Vec<_> = (0..8).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&table).await;
    table[7] = row(7, "7@x.io").deleted(true);
    nights.run(&table).await;
    let state = fs::read(&nights.state).unwrap();
    let other = MockServer::start().await;
    other.client().contacts().create("7@x.io").await.unwrap();
    let other_service = other.client().contacts();
    // The same URL, and another audience.
    let seed = nights.server.contact("7@x.io").unwrap();
    nights.server.reset();
    nights.contacts.create("7@x.io").await.unwrap();

    let service = other_service
        .erase_rows(nights.state.open(), [(7, "7@x.io")])
        .await;
    let audience = nights.erase([7]).await;

    assert!(seed.unsubscribed);
    for (error, reason) in [
        (
            service.unwrap_err(),
            "belongs to a sync with another service",
        ),
        (
            audience.unwrap_err(),
            "the key may be that of another audience",
        ),
    ] {
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert!(other.contact("7@x.io").is_some());
    assert!(nights.server.contact("7@x.io").is_some());
    assert!(fs::read(&nights.state).unwrap() == state);
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_is_erased_while_the_service_does_not_say_whose_audience_it_is() {
    let nights = Nights::new().await;
    let mut table: Vec<_> = (0..8).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&table).await;
    table[7] = row(7, "7@x.io").deleted(true);
    nights.run(&table).await;
    let state = fs::read(&nights.state).unwrap();
    // Another audience: it has none of these contacts.
    nights.server.reset();
    // The first question, with its retries.
    nights.server.fault(Fault::status(503).times(4));

    let error = nights.erase([7]).await.unwrap_err();

    assert_eq!(error.status().unwrap(), 503);
    assert!(fs::read(&nights.state).unwrap() == state);
}

#[cfg(unix)]
#[tokio::test]
async fn a_deleted_row_that_is_still_in_the_table_after_the_erasure_creates_no_contact() {
    let nights = three_nights().await;
    nights.erase([3]).await.unwrap();
    let [first, second, third, fourth] = table();

    let (report, _) = nights
        .run(&[first, second, third.deleted(true), fourth])
        .await;

    assert!(report.is_complete(), "{report}");
    assert!(nights.server.contact("c2@x.io").is_none());
    // The file knows it again, so it can be erased again.
    let erased = nights.erase([3]).await.unwrap();
    assert_eq!(erased, [("c2@x.io".to_owned(), Erasure::NoContact)]);
}

#[cfg(unix)]
#[tokio::test]
async fn whoever_comes_back_after_the_erasure_is_new_and_an_opt_in_that_was_sent_stays() {
    let nights = Nights::new().await;
    let others = || row(2, "b@x.io");
    nights.run(&[row(1, "a@x.io"), others()]).await;
    nights
        .run_with(&[others()], SyncContacts::deletes_missing)
        .await;
    // The service does not delete.
    nights.server.fault(Fault::status(501).method("DELETE"));
    let erased = nights.erase([1]).await.unwrap();
    assert_eq!(erased, [("a@x.io".to_owned(), Erasure::Emptied)]);
    nights.server.clear_faults();

    let table = [others(), row(3, "a@x.io")];
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;
    let is_opted_out = nights.is_opted_out("a@x.io");
    nights.contacts.subscribe("a@x.io").await.unwrap();
    let (after, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(is_opted_out);
    assert_eq!(report.opted_out_at_service(), ["3"]);
    assert!(after.opted_out_at_service().is_empty(), "{after}");
    assert!(!nights.is_opted_out("a@x.io"));
}

#[cfg(unix)]
#[tokio::test]
async fn a_state_from_which_no_row_can_be_removed_stays_as_it_is_and_half_a_new_one_does_not_matter()
 {
    let nights = three_nights().await;
    let state = fs::read(&nights.state).unwrap();
    let new = nights.state.0.with_extension("sync.new");

    // As if the folder could not be written, which root can always do.
    fs::create_dir(&new).unwrap();
    let error = nights.erase(["3"]).await.unwrap_err();
    fs::remove_dir(&new).unwrap();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Config, Outcome::Unknown)
    );
    assert_eq!(error.to_string(), "could not write the sync state");
    let text = error.explanation();
    assert!(text.ends_with("it is safe to repeat it"), "{text}");
    assert!(fs::read(&nights.state).unwrap() == state);
    // As after a crash before the new file has replaced the old one.
    fs::write(&new, &state[..state.len() / 2]).unwrap();
    assert_eq!(nights.erase(["3"]).await.unwrap().len(), 2);
    assert!(!new.exists());
    let [first, second, _, fourth] = table();
    let (report, _) = nights.run(&[first, second, fourth]).await;
    assert_eq!(report.unchanged(), 3);
}

#[cfg(unix)]
#[tokio::test]
async fn a_state_that_cannot_be_written_after_no_contact_was_erased_is_an_error_that_changed_nothing()
 {
    let nights = Nights::new().await;
    let table = [row(1, "a@x.io"), row(2, "a@x.io")];
    nights.run(&table).await;
    let [first, second] = table;
    nights.run(&[first.deleted(true), second]).await;
    let new = nights.state.0.with_extension("sync.new");

    fs::create_dir(&new).unwrap();
    let error = nights.erase([1]).await.unwrap_err();
    fs::remove_dir(&new).unwrap();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Config, Outcome::NotSent)
    );
    let kept = nights.erase([1]).await.unwrap();
    assert_eq!(kept, [("a@x.io".to_owned(), Erasure::Kept)]);
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_is_erased_while_a_sync_uses_the_state_or_after_one_has_changed_it() {
    let nights = Nights::new().await;
    let opened = nights.state.open();
    nights.run(&[row(1, "a@x.io")]).await;
    let erase = |state| {
        nights
            .contacts
            .erase_rows(state, [(1, "a@x.io")])
            .into_future()
    };
    let changed = erase(opened).await.unwrap_err();
    nights.server.fault(Fault::delay(Duration::from_secs(600)));
    nights.server.clear_requests();
    let running = tokio::spawn(nights.sync(&table()).into_future());
    while nights.server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    let in_use = erase(nights.state.open()).await.unwrap_err();

    running.abort();
    for (error, reason) in [
        (changed, "another sync has used"),
        (in_use, "another sync is using"),
    ] {
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(audience::exit_status(&error), 75);
    }
    assert!(!nights.is_opted_out("a@x.io"));
}

#[cfg(unix)]
#[tokio::test]
async fn a_sync_that_has_opened_the_state_before_a_row_was_erased_fails() {
    let nights = three_nights().await;
    let waited = nights.sync(&table());

    nights.erase(["3"]).await.unwrap();
    let failed = in_time(waited.into_future()).await.unwrap_err().to_string();

    assert!(failed.contains("another sync has used"), "{failed}");
    let state = fs::read_to_string(&nights.state).unwrap();
    assert!(!state.contains("c2@x.io"));
}
