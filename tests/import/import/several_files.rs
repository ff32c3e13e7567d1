//! Several files of one list: their order, their journals and rejects, and what keeps a file from being sent.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::ErrorKind;
use audience::contacts::OnConflict;
use audience::import::{Column, CsvInput, ImportError, ImportFiles};
use audience::mock::{Fault, MockServer};
use serde_json::json;

use super::csv_program::{Folder, run};
use super::{batches, contacts, counts};
use support::in_time;

const SUBSCRIBED: &str = "Email Address,Hints,LEID,EUID\nada@x.io,no,1,a\nbob@x.io,no,2,b\n";
const UNSUBSCRIBED: &str = "Email Address,UNSUB_TIME,LEID,EUID\nbob@x.io,2024,2,b\n";
const CLEANED: &str = "Email Address,CLEAN_TIME,LEID,EUID\ncy@x.io,2024,3,c\n";
/// The service refuses the second row.
const REFUSED: &str = "Email Address,UNSUB_TIME,LEID,EUID\nbob@x.io,2024,2,b\nnobody,2024,1,a\n";

fn import(server: &MockServer, files: &[String]) -> ImportFiles {
    contacts(server).import_files(CsvInput::open_all(files, &[]).unwrap())
}

async fn refused(import: ImportFiles) -> ImportError {
    in_time(import).await.unwrap_err()
}

fn has_journal(file: &str) -> bool {
    Path::new(&format!("{file}.journal")).exists()
}

#[tokio::test]
async fn the_files_in_which_everybody_opted_out_come_first_even_if_the_caller_said_so_after_they_were_opened()
 {
    let folder = Folder::new("files-order");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
        folder.file("blocked.csv", "email\ndan@x.io\n"),
    ];
    let opened = CsvInput::open_all(&files, &[]).unwrap().into_iter();
    let opened = opened.map(|(path, input)| match path.ends_with("blocked.csv") {
        true => (path, input.opt_out_all()),
        false => (path, input),
    });

    let report = in_time(contacts(&server).import_files(opened)).await;

    let report = report.unwrap().finished().unwrap();
    assert_eq!(counts(&report), [3, 1, 0, 0, 0, 0]);
    let sent = batches(&server);
    assert_eq!(sent[..2], [["bob@x.io"], ["dan@x.io"]]);
    assert_eq!(sent[2..], [["ada@x.io", "bob@x.io"]]);
    for (email, unsubscribed) in [("ada@x.io", false), ("bob@x.io", true), ("dan@x.io", true)] {
        let contact = server.contact(email).unwrap();
        assert_eq!(contact.unsubscribed, unsubscribed, "{email}");
    }
}

#[test]
fn if_a_file_is_not_finished_the_next_one_is_not_sent_and_the_program_continues_from_the_journals()
{
    let folder = Folder::new("files-unfinished");
    let server = MockServer::builder().start_blocking();
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
    ];
    server.fault(Fault::status(501).path("/contacts/*/unsubscribe"));

    let report = import(&server, &files).wait().unwrap();

    assert_eq!(report.files_not_sent(), [files[0].as_str()]);
    assert!(!report.is_complete() && server.contact("ada@x.io").is_none());
    let error = report.finished().unwrap_err().to_string();
    let failure = format!("the first failure: {}: ", files[1]);
    assert!(error.contains(&failure), "{error}");
    server.clear_faults();
    let output = run(Some(&server), &[&files[0], &files[1], "--resume"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    server.clear_requests();
    let report = import(&server, &files).wait().unwrap();
    assert_eq!(report.finished().unwrap().total(), 3);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_list_that_was_stopped_in_its_second_file_continues_there() {
    let folder = Folder::new("files-stop");
    let server = MockServer::start().await;
    let rows: String = (0..1_000).map(|n| format!("{n}@x.io\n")).collect();
    let files = [
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
        folder.file("second.csv", &format!("email\n{rows}")),
        folder.file("third.csv", "email\ncy@x.io\n"),
    ];
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);
    let stopping = import(&server, &files)
        .concurrency(1)
        .stop_when(async { stopped.await.unwrap_or_default() })
        .on_progress(move |progress| {
            if progress.finished() > 300 {
                stop.take().map(|stop| stop.send(()));
            }
        });

    let report = in_time(stopping).await.unwrap();

    assert_eq!(report.created() + report.not_sent(), 1_001);
    assert!(report.created() > 300 && report.not_sent() > 0, "{report}");
    assert_eq!(report.files_not_sent(), [files[2].as_str()]);
    assert_eq!(server.contact_count() as u64, report.created());
    let created = report.created();
    let error = report.finished().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::Stopped);
    server.clear_requests();
    let report = in_time(import(&server, &files)).await.unwrap();
    let report = report.finished().unwrap();
    assert_eq!((report.created(), report.total()), (1_002, 1_002));
    let sent: usize = batches(&server).iter().map(Vec::len).sum();
    assert_eq!(sent as u64, 1_002 - created);
}

#[tokio::test]
async fn a_signal_stops_all_files_also_those_of_a_dry_run() {
    let folder = Folder::new("files-signal");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
    ];
    let stopped = || import(&server, &files).stop_when(async {});

    let report = in_time(stopped()).await.unwrap();
    let dry = in_time(stopped().dry_run()).await.unwrap();

    assert_eq!(report.not_sent(), 1);
    assert_eq!(report.files_not_sent(), [files[0].as_str()]);
    assert_eq!((dry.not_sent(), dry.valid()), (3, 0));
    for report in [report, dry] {
        let error = report.finished().unwrap_err();
        assert_eq!(error.error().kind(), ErrorKind::Stopped);
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_signal_during_the_last_batch_does_not_hide_that_a_file_was_not_read_to_its_end() {
    let folder = Folder::new("files-signal-quote");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stop = Mutex::new(Some(stop));
    // Called before the response is sent: the file has been read as far as possible, and its only batch is in flight.
    let server = MockServer::builder().on_request(move |_| {
        stop.lock().unwrap().take().map(|stop| stop.send(()));
    });
    let server = server.start().await;
    let text = "email,first_name\nada@x.io,Ada\nbob@x.io,\"Bob\ncy@x.io,Cy\n";
    let files = [folder.file("list.csv", text)];
    std::fs::create_dir(folder.path("corrected")).unwrap();
    folder.file("corrected/list.csv", "email,first_name\nbob@x.io,Bob\n");

    let stopping = import(&server, &files);
    let stopping = stopping.stop_when(async { stopped.await.unwrap_or_default() });
    let error = refused(stopping).await;
    let corrected = import(&server, &files).corrected(folder.path("corrected"));
    let corrected = refused(corrected).await;

    assert!(error.report().is_stopped());
    assert_eq!(counts(error.report()), [1, 0, 0, 1, 0, 0]);
    let error = error.to_string();
    let reason = "line 3: a quote in this row is not closed";
    assert!(error.contains(reason), "{error}");
    let corrected = corrected.to_string();
    assert!(
        corrected.contains("list.csv is not finished"),
        "{corrected}"
    );
    folder.file("list.csv", &text.replace("\"Bob", "Bob"));
    let report = in_time(import(&server, &files)).await.unwrap();
    assert!(report.finished().is_ok());
    assert_eq!(server.contact_count(), 3);
}

#[tokio::test]
async fn a_signal_that_leaves_rows_is_no_error_even_if_the_file_cannot_be_read_to_its_end() {
    let folder = Folder::new("files-signal-left");
    let server = MockServer::start().await;
    let files = [folder.file(
        "list.csv",
        "email,first_name\nada@x.io,Ada\nbob@x.io,\"Bob\ncy@x.io,Cy\n",
    )];

    let stopped = import(&server, &files).stop_when(async {});
    let report = in_time(stopped).await.unwrap();

    assert!(report.is_stopped() && report.not_sent() > 0, "{report}");
}

#[tokio::test]
async fn an_error_that_stops_the_import_names_the_files_after_it() {
    let folder = Folder::new("files-error");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
    ];
    server.fault(Fault::status(401));

    let error = refused(import(&server, &files)).await;

    assert!(error.error().is_unauthorized(), "{error:#}");
    assert_eq!(error.report().files_not_sent(), [files[0].as_str()]);
}

#[tokio::test]
async fn a_refused_row_of_those_who_opted_out_keeps_the_others_back_until_it_is_corrected() {
    let folder = Folder::new("files-refused");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", REFUSED),
        folder.file("cleaned.csv", CLEANED),
    ];
    let rejects = folder.path("rejects");
    std::fs::create_dir(&rejects).unwrap();
    let rejected = Path::new(&rejects).join("unsubscribed.csv");

    // The second run knows the refused row from the journal.
    for _ in 0..2 {
        server.clear_requests();
        let _ = std::fs::remove_file(&rejected);
        let report = in_time(import(&server, &files).rejects_folder(&rejects)).await;

        let report = report.unwrap();
        assert_eq!(counts(&report), [2, 0, 0, 1, 0, 0]);
        assert_eq!(report.files_not_sent(), [files[0].as_str()]);
        assert!(!report.is_complete());
        let error = report.finished().unwrap_err();
        assert_eq!(error.error().kind(), ErrorKind::Unfinished);
        assert!(!error.error().is_retryable());
        assert!(error.to_string().contains(&files[0]), "{error}");
        assert!(rejected.exists());
    }

    assert!(server.requests().is_empty());
    assert!(server.contact("bob@x.io").unwrap().unsubscribed);
    assert!(server.contact("cy@x.io").unwrap().unsubscribed);
    assert_eq!(server.contact_count(), 2);
    let corrected = std::fs::read_to_string(&rejected).unwrap();
    let corrected = folder.file("corrected.csv", &corrected.replace("nobody", "ada@x.io"));
    let files = [files[0].clone(), corrected, files[2].clone()];
    let report = in_time(import(&server, &files)).await.unwrap();
    assert!(report.finished().is_ok());
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
}

#[tokio::test]
async fn corrected_rejects_are_imported_by_one_call_in_place_of_their_files_with_the_same_columns()
{
    let folder = Folder::new("files-corrected");
    let server = MockServer::builder().topic("news", true).start().await;
    let subscribed = "Email Address,Weekly,LEID,EUID\nada@x.io,yes,1,a\nnobody,no,4,d\n";
    let files = [
        folder.file("subscribed.csv", subscribed),
        folder.file("unsubscribed.csv", REFUSED),
        folder.file("cleaned.csv", &format!("{CLEANED}nobody,2024,5,e\n")),
    ];
    let rejects = folder.path("rejects");
    let columns = [("Weekly", Column::Topic("news".to_owned()))];
    let corrected = ["corrected", "corrected-2"].map(|name| folder.path(name));
    let import = |corrected: &[String], rejects: &str| {
        let opened = CsvInput::open_all(&files, &columns).unwrap();
        let import = contacts(&server).import_files(opened);
        let import = import.rejects_folder(rejects);
        corrected.iter().fold(import, ImportFiles::corrected)
    };
    let run = async |corrected: &[String]| {
        std::fs::create_dir(&rejects).unwrap();
        server.clear_requests();
        in_time(import(corrected, &rejects)).await.unwrap()
    };
    let correct = |to: &str, rows: &[(&str, &str)]| {
        std::fs::rename(&rejects, to).unwrap();
        for (name, address) in rows {
            let path = Path::new(to).join(name);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, text.replace("nobody", address)).unwrap();
        }
    };

    let first = run(&[]).await;

    assert_eq!(counts(&first), [2, 0, 0, 2, 0, 0]);
    assert_eq!(first.files_not_sent(), [files[0].as_str()]);
    let rows = [
        ("unsubscribed.csv", "dan@x.io"),
        ("cleaned.csv", "eve@x.io"),
    ];
    correct(&corrected[0], &rows);
    let second = run(&corrected[..1]).await.finished().unwrap();

    assert_eq!(counts(&second), [3, 0, 0, 1, 0, 0]);
    let sent = [
        vec!["dan@x.io"],
        vec!["eve@x.io"],
        vec!["ada@x.io", "nobody"],
    ];
    assert_eq!(batches(&server), sent);
    correct(&corrected[1], &[("subscribed.csv", "fay@x.io")]);
    server.clear_requests();
    for own in [&corrected[0], &folder.path("")] {
        let error = refused(import(&corrected, own)).await.to_string();
        assert!(error.contains("the rejects would replace"), "{error}");
    }
    assert!(server.requests().is_empty());

    let third = run(&corrected).await.finished().unwrap();

    assert_eq!(counts(&third), [3, 0, 0, 0, 0, 0]);
    assert_eq!(batches(&server), [["fay@x.io"]]);
    for (email, unsubscribed) in [("ada@x.io", false), ("dan@x.io", true), ("eve@x.io", true)] {
        let contact = server.contact(email).unwrap();
        assert_eq!(contact.unsubscribed, unsubscribed, "{email}");
    }
    let fay = server.contact("fay@x.io").unwrap();
    assert_eq!(fay.answers.get("news"), Some(&false));
}

#[tokio::test]
async fn corrected_rejects_of_a_killed_run_are_refused_until_a_run_has_got_to_its_end() {
    let folder = Folder::new("files-killed");
    let server = MockServer::start().await;
    let rows: String = (0..1_000).map(|n| format!("{n}@x.io\n")).collect();
    let files = [folder.file("list.csv", &format!("email\nnobody\n{rows}"))];
    let (rejects, corrected) = (folder.path("rejects"), folder.path("corrected"));
    let rejected = Path::new(&corrected).join("list.csv");
    let own = || import(&server, &files).rejects_folder(&rejects);
    let rename = || {
        let _ = std::fs::remove_dir_all(&corrected);
        std::fs::rename(&rejects, &corrected).unwrap();
        std::fs::create_dir(&rejects).unwrap();
        let text = std::fs::read_to_string(&rejected).unwrap();
        std::fs::write(&rejected, text.replace("nobody", "ada@x.io")).unwrap();
    };
    std::fs::create_dir(&rejects).unwrap();
    let slow = Fault::delay(Duration::from_secs(600)).path("/contacts/batch");
    server.fault(slow.after(2));
    let killed = tokio::spawn(own().concurrency(1).into_future());
    while server.contact_count() < 150 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    killed.abort();
    assert!(killed.await.unwrap_err().is_cancelled());
    server.clear_faults();
    server.clear_requests();
    rename();

    for (import, advice) in [
        (own(), "run the import again without it"),
        (own().dry_run(), "run the import again without"),
        (own().no_journals(), "import with journals"),
    ] {
        let stopped = refused(import.corrected(&corrected)).await;
        let error = stopped.error().to_string();
        assert_eq!(stopped.error().kind(), ErrorKind::Config);
        assert!(
            error.contains(&files[0]) && error.contains(advice),
            "{error}"
        );
        assert!(!error.contains("@x.io"), "{error}");
    }

    assert!(server.requests().is_empty());
    let whole = in_time(own()).await.unwrap().finished().unwrap();
    assert_eq!(
        (whole.created() + whole.updated(), whole.refused()),
        (1_000, 1)
    );
    rename();
    server.clear_requests();
    let report = in_time(own().corrected(&corrected)).await.unwrap();
    assert_eq!(counts(&report.finished().unwrap()), [1, 0, 0, 0, 0, 0]);
    assert_eq!(batches(&server), [["ada@x.io"]]);
}

#[tokio::test]
async fn corrected_rejects_do_not_replace_a_file_that_was_stopped_or_has_grown() {
    let folder = Folder::new("files-grown");
    let server = MockServer::start().await;
    let files = [folder.file("list.csv", "email\nada@x.io\nnobody\n")];
    std::fs::create_dir(folder.path("corrected")).unwrap();
    folder.file("corrected/list.csv", "email\nbob@x.io\n");
    let corrected = || import(&server, &files).corrected(folder.path("corrected"));

    let unsent = refused(corrected()).await;
    let stopped = in_time(import(&server, &files).stop_when(async {})).await;
    assert_eq!(stopped.unwrap().not_sent(), 2);
    let unfinished = refused(corrected()).await;
    let done = in_time(import(&server, &files)).await.unwrap();
    assert!(done.finished().is_ok());
    let other = MockServer::start().await;
    let elsewhere = import(&other, &files).corrected(folder.path("corrected"));
    let elsewhere = refused(elsewhere).await;
    folder.file("list.csv", "email\nada@x.io\nnobody\ncy@x.io\n");
    let grown = refused(corrected()).await;
    let verified = refused(corrected().verify()).await;
    let nowhere = import(&server, &files).corrected(folder.path("corected"));
    let nowhere = refused(nowhere).await;

    for (stopped, said) in [
        (unsent, "list.csv was not sent yet"),
        (unfinished, "list.csv is not finished"),
        (elsewhere, "list.csv is not finished"),
        (grown, "list.csv is not finished"),
        (verified, "list.csv is not finished"),
        (nowhere, "corected is not a folder of corrected files"),
    ] {
        assert_eq!(stopped.error().kind(), ErrorKind::Config);
        assert!(stopped.to_string().contains(said), "{stopped}");
    }
    assert!(server.contact("bob@x.io").is_none());
    let rest = in_time(import(&server, &files)).await.unwrap();
    assert!(rest.finished().is_ok());
    assert!(in_time(corrected()).await.unwrap().finished().is_ok());
    assert!(server.contact("bob@x.io").is_some() && server.contact("cy@x.io").is_some());
}

#[tokio::test]
async fn an_empty_file_among_the_corrected_rejects_replaces_no_file() {
    let folder = Folder::new("files-empty-rejects");
    let server = MockServer::start().await;
    let files = [folder.file("list.csv", "email\nada@x.io\n")];
    std::fs::create_dir(folder.path("corrected")).unwrap();
    folder.file("corrected/list.csv", "");

    let corrected = import(&server, &files).corrected(folder.path("corrected"));
    let report = in_time(corrected).await.unwrap().finished().unwrap();

    assert_eq!(counts(&report), [1, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn what_was_said_about_a_file_applies_to_its_corrected_rejects() {
    let folder = Folder::new("files-said");
    let server = MockServer::start().await;
    server.seed_contact("ada@x.io");
    let files = [
        folder.file("blocked.csv", "email\nnobody\n"),
        folder.file("list.csv", "email\ncy@x.io\n"),
    ];
    let rejects = folder.path("rejects");
    let corrected = ["corrected", "corrected-2"].map(|name| folder.path(name));
    let run = async |corrected: &[String]| {
        std::fs::create_dir(&rejects).unwrap();
        let opened = CsvInput::open_all(&files, &[]).unwrap().into_iter();
        let opened = opened.map(|(path, input)| match path.ends_with("blocked.csv") {
            true => (path, input.opt_out_all().on_conflict(OnConflict::Skip)),
            false => (path, input),
        });
        let import = contacts(&server).import_files(opened);
        let import = import.rejects_folder(&rejects);
        in_time(corrected.iter().fold(import, ImportFiles::corrected))
            .await
            .unwrap()
    };

    assert_eq!(run(&[]).await.files_not_sent(), [files[1].as_str()]);
    // Nothing is corrected yet.
    std::fs::rename(&rejects, &corrected[0]).unwrap();
    let second = run(&corrected[..1]).await;
    std::fs::rename(&rejects, &corrected[1]).unwrap();
    folder.file("corrected-2/blocked.csv", "email\nada@x.io\n");
    let third = run(&corrected).await.finished().unwrap();

    assert_eq!(second.refused(), 1);
    assert_eq!(second.files_not_sent(), [files[1].as_str()]);
    assert!(
        second.to_string().ends_with(", 1 file not sent"),
        "{second}"
    );
    assert_eq!(counts(&third), [1, 0, 1, 0, 0, 0]);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
}

#[tokio::test]
async fn the_rows_of_corrected_rejects_may_be_deleted_if_they_cannot_be_fixed() {
    let folder = Folder::new("files-deleted-rows");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", REFUSED),
    ];
    let (rejects, corrected) = (folder.path("rejects"), folder.path("corrected"));
    std::fs::create_dir(&rejects).unwrap();
    let own = || import(&server, &files).rejects_folder(&rejects);

    let first = in_time(own()).await.unwrap();
    std::fs::rename(&rejects, &corrected).unwrap();
    std::fs::create_dir(&rejects).unwrap();
    let path = Path::new(&corrected).join("unsubscribed.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    let (first_line, _) = text.split_once('\n').unwrap();
    std::fs::write(&path, format!("{first_line}\n")).unwrap();
    let second = in_time(own().corrected(&corrected)).await.unwrap();

    assert_eq!(first.files_not_sent(), [files[0].as_str()]);
    let error = first.finished().unwrap_err().to_string();
    assert!(
        error.contains("delete those that cannot be fixed"),
        "{error}"
    );
    assert_eq!(counts(&second.finished().unwrap()), [1, 1, 0, 0, 0, 0]);
    assert!(server.contact("bob@x.io").unwrap().unsubscribed);
}

#[tokio::test]
async fn a_dry_run_finds_all_refused_rows_and_counts_only_the_rows_that_would_be_sent() {
    let folder = Folder::new("files-dry-run");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", &format!("{SUBSCRIBED}nobody,,4,d\n")),
        folder.file("unsubscribed.csv", REFUSED),
        folder.file("cleaned.csv", CLEANED),
    ];

    let report = in_time(import(&server, &files).dry_run()).await.unwrap();

    assert_eq!((report.valid(), report.refused()), (2, 2));
    assert_eq!(report.duplicates(), 0);
    assert_eq!(report.files_not_sent(), [files[0].as_str()]);
    let error = report.finished().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::Unfinished);
    assert!(error.to_string().contains(&files[0]), "{error}");
    assert!(server.requests().is_empty());
    assert!(!files.iter().any(|file| has_journal(file)));
}

#[tokio::test]
async fn an_import_leaves_no_rejects_of_a_dry_run_for_a_file_that_it_does_not_send() {
    let folder = Folder::new("files-stale-rejects");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", &format!("{SUBSCRIBED}nobody,,4,d\n")),
        folder.file("more.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", REFUSED),
    ];
    std::fs::create_dir(folder.path("rejects")).unwrap();
    let import = || import(&server, &files).rejects_folder(folder.path("rejects"));
    let length = |name: &str| {
        let file = std::fs::metadata(folder.path(&format!("rejects/{name}.csv")));
        file.map_or(0, |file| file.len())
    };
    let dry = in_time(import().dry_run()).await.unwrap();
    assert_eq!((dry.refused(), dry.files_not_sent().len()), (2, 2));
    assert!(length("subscribed") > 0 && length("unsubscribed") > 0);
    // Not written by an import.
    folder.file("rejects/more.csv", SUBSCRIBED);

    let report = in_time(import()).await.unwrap();

    assert_eq!(report.files_not_sent().len(), 2);
    assert_eq!(length("subscribed"), 0);
    assert!(length("unsubscribed") > 0);
    assert_eq!(length("more"), SUBSCRIBED.len() as u64);
}

#[tokio::test]
async fn a_dry_run_counts_the_duplicates_between_the_files_too() {
    let folder = Folder::new("files-duplicates");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
        folder.file("cleaned.csv", &format!("{CLEANED}Cy@x.io,2024,3,c\n")),
    ];

    let dry = in_time(import(&server, &files).dry_run()).await.unwrap();
    let done = in_time(import(&server, &files)).await.unwrap();

    assert_eq!((dry.valid(), dry.duplicates()), (5, 2));
    assert!(done.finished().is_ok());
    assert_eq!(server.contact_count(), 3);
}

#[tokio::test]
async fn verify_looks_at_every_file_and_writes_the_rows_without_their_opt_out() {
    let folder = Folder::new("files-verify");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
        folder.file("cleaned.csv", CLEANED),
    ];
    let rejects = folder.path("missing");
    std::fs::create_dir(&rejects).unwrap();
    let verify = || import(&server, &files).verify().rejects_folder(&rejects);
    let imported = in_time(import(&server, &files).no_journals())
        .await
        .unwrap();
    assert!(imported.finished().is_ok());
    let report = in_time(verify()).await.unwrap();
    assert_eq!(report.finished().unwrap().valid(), 4);
    server.seed(json!({"contacts": [{"email": "bob@x.io", "unsubscribed": false}]}));

    let report = in_time(verify()).await.unwrap();

    assert_eq!((report.valid(), report.opt_out_missing()), (3, 1));
    assert!(report.files_not_sent().is_empty() && report.finished().is_err());
    let text = std::fs::read_to_string(Path::new(&rejects).join("unsubscribed.csv")).unwrap();
    assert!(text.contains("opt_out_missing"), "{text}");
    assert!(!files.iter().any(|file| has_journal(file)));
}

/// Imports the files, and writes their rejects to this folder.
async fn import_to(server: &MockServer, files: &[String], rejects: &str, corrected: &[String]) {
    std::fs::create_dir(rejects).unwrap();
    let import = import(server, files).rejects_folder(rejects);
    let import = corrected.iter().fold(import, ImportFiles::corrected);
    // Refused rows and opt-outs that failed are what the tests correct.
    let _ = in_time(import).await.unwrap();
}

/// Replaces a text in the rejects of the file `a.csv` in this folder.
fn correct(folder: &str, from: &str, to: &str) {
    let path = Path::new(folder).join("a.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[tokio::test]
async fn a_verification_looks_at_corrected_rows_instead_of_the_rows_that_they_stand_for() {
    let folder = Folder::new("files-verify-corrected");
    let server = MockServer::start().await;
    let list = "email,unsubscribed\nada@x.io,yes\nnobody,yes\nno-one,no\n";
    let files = [
        folder.file("a.csv", list),
        folder.file("b.csv", "email\nbob@x.io\n"),
    ];
    let corrected = ["corrected", "corrected-2"].map(|name| folder.path(name));
    import_to(&server, &files, &corrected[0], &[]).await;
    correct(&corrected[0], "nobody", "cy@x.io");
    import_to(&server, &files, &corrected[1], &corrected[..1]).await;
    correct(&corrected[1], "no-one", "dan@x.io");
    import_to(&server, &files, &folder.path("rejects"), &corrected).await;
    let missing = folder.path("missing");
    std::fs::create_dir(&missing).unwrap();
    let verify = |folders: &[String]| {
        let import = import(&server, &files).verify().rejects_folder(&missing);
        folders.iter().fold(import, ImportFiles::corrected)
    };
    let shown = Arc::new(Mutex::new(Vec::new()));
    let show = Arc::clone(&shown);
    server.clear_requests();

    let mut found = Vec::new();
    for folders in [&[][..], &corrected[..1]] {
        let report = in_time(verify(folders)).await.unwrap();
        found.push((report.valid(), report.refused()));
    }
    let whole = verify(&corrected).on_progress(move |progress| {
        let counts = (progress.finished(), progress.total());
        show.lock().unwrap().push(counts);
    });
    let whole = in_time(whole).await.unwrap().finished().unwrap();

    assert_eq!(found, [(2, 2), (3, 1)]);
    assert_eq!((whole.valid(), whole.refused(), whole.total()), (4, 0, 4));
    assert_eq!(shown.lock().unwrap().last(), Some(&(4, Some(4))));
    assert!(server.requests().iter().all(|sent| sent.method == "GET"));
    for (email, rejects) in [("ada@x.io", "a.csv"), ("cy@x.io", "corrected-a.csv")] {
        server.seed(json!({"contacts": [{"email": email, "unsubscribed": false}]}));
        let report = in_time(verify(&corrected)).await.unwrap();
        assert_eq!((report.valid(), report.opt_out_missing()), (3, 1));
        assert!(report.finished().is_err());
        let text = std::fs::read_to_string(Path::new(&missing).join(rejects)).unwrap();
        assert!(text.contains(email), "{text}");
        server.seed(json!({"contacts": [{"email": email, "unsubscribed": true}]}));
    }
}

#[tokio::test]
async fn a_row_whose_corrected_row_is_gone_or_has_lost_its_opt_out_is_verified_as_it_is() {
    let folder = Folder::new("files-verify-lost");
    let server = MockServer::start().await;
    let list = "email,unsubscribed\nnobody,yes\nno-one,no\n";
    let files = [folder.file("a.csv", list)];
    let corrected = folder.path("corrected");
    import_to(&server, &files, &corrected, &[]).await;
    server.seed(json!({"contacts": [{"email": "cy@x.io", "unsubscribed": true}]}));
    let header = "line,code,message,retryable,email,unsubscribed\n";

    for (rows, refused) in [
        (format!("{header}2,validation_error,,false,cy@x.io,no\n"), 2),
        (
            format!("{header}2,validation_error,,false,cy@x.io,yes\n"),
            1,
        ),
        ("email,unsubscribed\ncy@x.io,yes\n".to_owned(), 2),
    ] {
        folder.file("corrected/a.csv", &rows);
        let verified = import(&server, &files).corrected(&corrected).verify();
        let report = in_time(verified).await.unwrap();

        let found = (report.valid(), report.refused());
        assert_eq!(found, (1, refused), "{rows}");
    }
}

#[tokio::test]
async fn a_corrected_topic_stands_for_a_misspelled_one_unless_the_old_address_lacks_the_opt_out() {
    let folder = Folder::new("files-verify-topic");
    let server = MockServer::builder().topic("news", true).start().await;
    let files = [folder.file("a.csv", "email,topic:nwes\nada@x.io,no\nnobody,no\n")];
    let corrected = [folder.path("corrected")];
    import_to(&server, &files, &corrected[0], &[]).await;
    correct(&corrected[0], "topic:nwes", "topic:news");
    correct(&corrected[0], "nobody", "cy@x.io");
    import_to(&server, &files, &folder.path("rejects"), &corrected).await;
    let verify = || import(&server, &files).corrected(&corrected[0]).verify();

    let whole = in_time(verify()).await.unwrap().finished().unwrap();
    // The contact of the old address exists.
    server.seed(json!({"contacts": [{"email": "ida@x.io", "topics": {"news": false}}]}));
    correct(&corrected[0], "ada@x.io", "ida@x.io");
    let moved = in_time(verify()).await.unwrap();

    assert_eq!((whole.valid(), whole.refused()), (2, 0));
    assert_eq!((moved.valid(), moved.opt_out_missing()), (2, 1));
    assert!(moved.finished().is_err());
}

#[tokio::test]
async fn a_corrected_address_does_not_stand_for_one_whose_contact_existed_and_lacks_the_opt_out() {
    let folder = Folder::new("files-verify-exists");
    let server = MockServer::start().await;
    server.seed_contact("ada@x.io");
    let list = "email,on_conflict,unsubscribed\nada@x.io,error,yes\n";
    let files = [folder.file("a.csv", list)];
    let corrected = [folder.path("corrected")];
    import_to(&server, &files, &corrected[0], &[]).await;
    correct(&corrected[0], "ada@x.io", "cy@x.io");
    import_to(&server, &files, &folder.path("rejects"), &corrected).await;

    let verify = import(&server, &files).corrected(&corrected[0]).verify();
    let report = in_time(verify).await.unwrap();

    assert_eq!((report.valid(), report.opt_out_missing()), (1, 1));
    assert!(report.finished().is_err());
}

#[tokio::test]
async fn a_corrected_address_does_not_stand_for_a_strict_row_that_was_refused_for_another_reason() {
    let folder = Folder::new("files-verify-strict");
    let server = MockServer::start().await;
    let list = "email,on_conflict,unsubscribed\nada@x.io,error,yes\n";
    let files = [folder.file("a.csv", list)];
    let corrected = [folder.path("corrected")];
    let entry = json!({"email": "ada@x.io", "status": "validation_error"});
    let refused = Fault::wrong_body(json!({"data": [entry]}).to_string());
    server.fault(refused.path("/contacts/batch").times(1));
    import_to(&server, &files, &corrected[0], &[]).await;
    // Another program has created the contact without the opt-out.
    server.seed_contact("ada@x.io");
    correct(&corrected[0], "ada@x.io", "cy@x.io");
    import_to(&server, &files, &folder.path("rejects"), &corrected).await;

    let verify = import(&server, &files).corrected(&corrected[0]).verify();
    let report = in_time(verify).await.unwrap();

    assert_eq!((report.valid(), report.opt_out_missing()), (1, 1));
}

#[tokio::test]
async fn a_verification_refuses_corrected_rejects_with_a_row_that_the_import_has_applied() {
    let folder = Folder::new("files-verify-applied");
    let server = MockServer::start().await;
    let files = [folder.file("a.csv", "email\nada@x.io\nnobody\n")];
    let corrected = folder.path("corrected");
    import_to(&server, &files, &corrected, &[]).await;
    let text = "line,code,message,retryable,email\n2,validation_error,,false,bob@x.io\n";
    let rejects = folder.file("corrected/a.csv", text);
    server.clear_requests();

    let error = refused(import(&server, &files).corrected(&corrected).verify()).await;

    assert_eq!(error.error().kind(), ErrorKind::Config);
    let said = format!("{rejects} has a row with 2 in the column `line`");
    assert!(error.to_string().contains(&said), "{error}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_row_and_its_corrected_row_have_one_line_whatever_delimiter_and_line_endings_the_file_has()
 {
    let folder = Folder::new("files-verify-lines");
    let server = MockServer::start().await;
    let list =
        "\u{feff}email:note:unsubscribed\r\nada@x.io:\"two\r\nlines\":no\r\n\r\nnobody:one:yes\r\n";
    let file = folder.file("a.csv", list);
    let corrected = [folder.path("corrected"), folder.path("corrected-2")];
    let import = |folders: &[String]| {
        let input = CsvInput::open(&file).unwrap().delimiter(':').unwrap();
        let import = contacts(&server).import_files([(&file, input)]);
        folders.iter().fold(import, ImportFiles::corrected)
    };
    for (round, (from, to)) in [("nobody", "no-one"), ("no-one", "bob@x.io")]
        .into_iter()
        .enumerate()
    {
        std::fs::create_dir(&corrected[round]).unwrap();
        let sent = import(&corrected[..round]).rejects_folder(&corrected[round]);
        let sent = in_time(sent).await.unwrap();
        assert_eq!(sent.refused(), 1);
        correct(&corrected[round], from, to);
    }
    let sent = in_time(import(&corrected)).await.unwrap();
    assert_eq!(sent.refused(), 0);

    let verified = in_time(import(&corrected).verify()).await.unwrap();

    let text = std::fs::read_to_string(Path::new(&corrected[0]).join("a.csv")).unwrap();
    assert!(text.contains("\n5,validation_error,"), "{text}");
    let verified = verified.finished().unwrap();
    assert_eq!((verified.valid(), verified.refused()), (2, 0));
}

#[tokio::test]
async fn several_files_are_verified_with_one_list_that_only_their_201st_row_needs() {
    let folder = Folder::new("files-one-list");
    let server = MockServer::start().await;
    let first: Vec<_> = (0..200).map(|n| format!("{n}@x.io")).collect();
    let files = [
        folder.file("a.csv", &format!("email\n{}\n", first.join("\n"))),
        folder.file("b.csv", "email\nada@x.io\n"),
        folder.file("c.csv", "email\nbob@x.io\nnobody@x.io\n"),
    ];
    for address in first
        .iter()
        .map(String::as_str)
        .chain(["ada@x.io", "bob@x.io"])
    {
        server.seed_contact(address);
    }

    let report = in_time(import(&server, &files[..1]).verify())
        .await
        .unwrap();

    assert_eq!(report.valid(), 200);
    assert_eq!(server.requests().len(), 200);
    server.clear_requests();
    let report = in_time(import(&server, &files).verify()).await.unwrap();

    assert_eq!((report.valid(), report.refused()), (202, 1));
    let mut paths: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|request| !request.query.iter().any(|query| query.contains("query=")))
        .map(|request| request.path)
        .collect();
    paths.retain(|path| path == "/contacts" || path.contains("nobody"));
    paths.sort();
    // Two pages, and the empty one after them.
    let listed = ["/contacts"; 3];
    assert_eq!(paths, [&listed[..], &["/contacts/nobody%40x.io"]].concat());
}

#[tokio::test]
async fn a_file_that_would_be_read_or_written_twice_is_refused_before_anything_is_sent() {
    let folder = Folder::new("files-twice");
    let server = MockServer::start().await;
    for name in ["other", "rejects"] {
        std::fs::create_dir(folder.path(name)).unwrap();
    }
    let file = folder.file("list.csv", SUBSCRIBED);
    let same_name = folder.file("other/list.csv", CLEANED);
    let dotted = file.replace("list.csv", "./list.csv");
    let journal = folder.path("list.csv.journal");
    let rejects = folder.path("rejects");

    let twice = refused(import(&server, &[file.clone(), dotted.clone()])).await;
    let both = [file.clone(), same_name];
    let named_alike = || import(&server, &both).rejects_folder(&rejects);
    let named_alike = [named_alike(), named_alike().verify()];
    let input = refused(import(&server, &both[..1]).rejects_folder(folder.path(""))).await;
    let unmapped = folder.file("unmapped.csv", "email,status\na@x.io,cleaned\n");
    let unmapped = [file.clone(), unmapped];
    let not_mapped = refused(import(&server, &unmapped)).await;

    assert_eq!(twice.error().kind(), ErrorKind::Input);
    assert_eq!(
        twice.error().to_string(),
        format!("{dotted} is given twice")
    );
    assert_eq!(input.error().kind(), ErrorKind::Config);
    let said = format!("would replace {file}");
    assert!(input.to_string().contains(&said), "{input}");
    for import in named_alike {
        let error = refused(import).await;
        assert_eq!(error.error().kind(), ErrorKind::Config);
        let place = folder.path("rejects/list.csv");
        let said =
            format!("two files are named list.csv, and both would write their rejects to {place};");
        assert!(error.to_string().contains(&said), "{error}");
    }
    assert_eq!(not_mapped.error().kind(), ErrorKind::Input);
    assert!(
        not_mapped.to_string().contains(&unmapped[1]),
        "{not_mapped}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), SUBSCRIBED);
    assert!(!Path::new(&journal).exists());
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_journal_of_another_mapping_is_an_error_that_names_the_file_and_nothing_is_sent() {
    let folder = Folder::new("files-mapping");
    let server = MockServer::builder().topic("hints", true).start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
    ];
    assert!(
        in_time(import(&server, &files))
            .await
            .unwrap()
            .is_complete()
    );
    server.clear_requests();

    let columns = [("Hints", Column::Topic("hints".to_owned()))];
    let opened = CsvInput::open_all(&files, &columns).unwrap();
    let stopped = refused(contacts(&server).import_files(opened)).await;

    assert_eq!(stopped.error().kind(), ErrorKind::Input);
    let error = stopped.error().to_string();
    let said = format!("{}: the journal cannot continue this import: ", files[0]);
    assert!(error.starts_with(&said), "{error}");
    // The file before it was finished.
    assert_eq!(
        (stopped.report().created(), stopped.report().total()),
        (1, 1)
    );
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn the_progress_counts_the_rows_of_all_files() {
    let folder = Folder::new("files-progress");
    let server = MockServer::start().await;
    let files = [
        folder.file("subscribed.csv", SUBSCRIBED),
        folder.file("unsubscribed.csv", UNSUBSCRIBED),
        folder.file("cleaned.csv", CLEANED),
    ];
    let shown = Arc::new(Mutex::new(Vec::new()));
    let show = Arc::clone(&shown);

    let import = import(&server, &files).on_progress(move |progress| {
        let counts = (progress.finished(), progress.total());
        show.lock().unwrap().push(counts);
    });
    assert!(in_time(import).await.unwrap().finished().is_ok());

    let shown = shown.lock().unwrap();
    assert!(shown.is_sorted(), "{shown:?}");
    assert!(
        shown.iter().all(|(_, total)| *total == Some(4)),
        "{shown:?}"
    );
    assert_eq!(shown.last(), Some(&(4, Some(4))));
}
