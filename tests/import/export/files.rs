//! Exports that cannot begin or go on, and what they leave.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::pin::pin;
#[cfg(unix)]
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::export::{Csv, Format, JsonLines};
#[cfg(unix)]
use audience::import::Journal;
use audience::mock::{Fault, MockServer, SeedContact};
use audience::{ErrorKind, RetryPolicy};
use serde_json::{Value, json};
use wiremock::Request;

use super::{Folder, all_addresses};
use support::{
    contact, contacts, in_time, ok, respond_in_turn, respond_with, status, summary, with,
};
#[cfg(target_os = "linux")]
use support::{examples::program, skip};

async fn server(count: usize) -> MockServer {
    let server = MockServer::start().await;
    for n in 0..count {
        server.seed_contact(format!("{n}@x.io").as_str());
    }
    server
}

async fn server_with_topic() -> MockServer {
    let server = MockServer::builder().topic("news", true);
    let server = server.seed_contact("0@x.io").seed_contact("1@x.io");
    server.start().await
}

#[tokio::test]
async fn without_resume_an_export_begins_anew() {
    let server = server(2).await;
    let folder = Folder::new("anew");
    let (list, path) = (server.client().contacts().list(), folder.file("all.csv"));
    assert!(
        list.clone()
            .export(&path, JsonLines)
            .await
            .unwrap()
            .is_complete()
    );

    assert!(
        list.export(&path, Csv::new(["email"]))
            .await
            .unwrap()
            .is_complete()
    );

    assert_eq!(fs::read_to_string(path).unwrap(), all_addresses(2));
}

#[tokio::test]
async fn a_list_with_too_few_contacts_replaces_no_file() {
    let server = server(2).await;
    let folder = Folder::new("at-least");
    let (list, path) = (server.client().contacts().list(), folder.file("all.csv"));
    fs::write(&path, "yesterday").unwrap();
    let export = || list.clone().export(&path, Csv::new(["email"]));

    let stopped = export().at_least(3).await.unwrap_err();

    let text = stopped.error().to_string();
    assert!(
        text.starts_with("the list has 2 contacts and not the 3"),
        "{text}"
    );
    assert_eq!(
        (stopped.error().kind(), stopped.report().contacts()),
        (ErrorKind::Config, 2)
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "yesterday");
    let resumed = export().at_least(3).resume().await.unwrap_err();
    assert_eq!(resumed.report().contacts(), 2);
    assert!(export().at_least(2).await.unwrap().is_complete());
    assert_eq!(fs::read_to_string(&path).unwrap(), all_addresses(2));
}

#[tokio::test]
async fn a_cursor_file_replaces_neither_a_file_of_the_export_nor_another_file() {
    let server = server(2).await;
    for (name, cursor) in [
        ("all.csv", "all.csv"),
        ("all.csv", "all.csv.part"),
        // The record is written to `all.new` first.
        ("all.new", "all"),
    ] {
        for yesterday in [None, Some("email\nold@x.io\n")] {
            let folder = Folder::new("cursor-of-export");
            let path = folder.file(name);
            if let Some(text) = yesterday {
                fs::write(&path, text).unwrap();
            }
            for resumes in [false, true] {
                let export = server.client().contacts().list().export(&path, JsonLines);
                let export = export.cursor_file(folder.file(cursor));
                let refused = match resumes {
                    true => export.resume().await,
                    false => export.await,
                };

                let refused = refused.unwrap_err();
                assert_eq!(refused.error().kind(), ErrorKind::Config, "{refused:#}");
                assert_eq!(fs::read_to_string(&path).ok().as_deref(), yesterday);
            }
        }
    }
    let folder = Folder::new("cursor-of-others");
    let (path, cursor) = (folder.file("all.csv"), folder.file("any.json"));
    let export = || {
        let list = server.client().contacts().list();
        list.export(&path, JsonLines).cursor_file(&cursor)
    };
    for text in ["{}", "a note", "{\"export\": {}}\n{}"] {
        fs::write(&cursor, text).unwrap();

        let refused = export().await.unwrap_err();

        let problem = format!("{refused:#}");
        assert!(problem.contains("choose another path"), "{problem}");
        assert_eq!(fs::read_to_string(&cursor).unwrap(), text);
        // Nothing else was created.
        assert_eq!(fs::read_dir(folder.file("")).unwrap().count(), 1);
    }
    fs::remove_file(&cursor).unwrap();
    fs::create_dir(&cursor).unwrap();
    let problem = format!("{:#}", export().await.unwrap_err());
    assert!(problem.contains("another file has the path"), "{problem}");
    fs::remove_dir(&cursor).unwrap();
    assert!(server.requests().is_empty());
    fs::write(&cursor, "").unwrap();
    assert!(export().await.unwrap().is_complete());
    assert!(!cursor.exists());

    // A file that another program has written there meanwhile stays, and the export is complete.
    let replaced = cursor.clone();
    let written = export().on_progress(move |_| fs::write(&replaced, "a note").unwrap());
    let failed = written.await.unwrap_err();
    assert!(
        format!("{failed:#}").contains("another file has the path"),
        "{failed:#}"
    );
    assert_eq!(fs::read_to_string(&cursor).unwrap(), "a note");
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_file_with_the_name_of_the_temporary_cursor_file_is_replaced_only_if_a_crash_has_left_it()
{
    let server = server(2).await;
    let folder = Folder::new("cursor-new");
    let (path, new) = (folder.file("all.csv"), folder.file("all.csv.cursor.new"));
    let export = || server.client().contacts().list().export(&path, JsonLines);
    for text in ["a note", "{}", "[1", "{\"export\": {}}\n{}"] {
        fs::write(&new, text).unwrap();

        let refused = export().await.unwrap_err();

        assert_eq!(refused.error().kind(), ErrorKind::Config);
        let problem = format!("{refused:#}");
        assert!(problem.contains("all.csv.cursor.new, to"), "{problem}");
        assert_eq!(fs::read_to_string(&new).unwrap(), text);
    }
    assert!(server.requests().is_empty() && !path.exists());
    for left in ["", "{\"exp", "{\"export\":{\"output\":1,"] {
        fs::write(&new, left).unwrap();

        assert!(export().await.unwrap().is_complete());

        assert!(!new.exists());
    }
}

// On Windows, such a path is only one that does not exist.
#[cfg(unix)]
#[tokio::test]
async fn a_path_that_no_cursor_file_can_have_is_an_error_before_the_part_file_loses_its_lines() {
    let server = server(1).await;
    let folder = Folder::new("cursor-below-a-file");
    let (path, note) = (folder.file("all.csv"), folder.file("note"));
    fs::write(&note, "a note").unwrap();
    let part = folder.file("all.csv.part");
    fs::write(&part, "email\nold@x.io\n").unwrap();

    let list = server.client().contacts().list();
    let export = list.export(&path, Csv::new(["email"]));
    let refused = export.cursor_file(note.join("cursor")).await.unwrap_err();

    assert_eq!(refused.error().kind(), ErrorKind::Config, "{refused:#}");
    assert_eq!(fs::read_to_string(&part).unwrap(), "email\nold@x.io\n");
    assert!(server.requests().is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn a_cursor_file_that_is_a_link_to_the_export_is_refused() {
    let server = server(1).await;
    let folder = Folder::new("cursor-link");
    let (path, link) = (folder.file("all.csv"), folder.file("link"));
    fs::write(&path, "email\nold@x.io\n").unwrap();
    for hard in [false, true] {
        match hard {
            true => fs::hard_link(&path, &link).unwrap(),
            false => std::os::unix::fs::symlink(&path, &link).unwrap(),
        }

        let list = server.client().contacts().list();
        let export = list.export(&path, Csv::new(["email"])).cursor_file(&link);
        let refused = export.await.unwrap_err();

        assert_eq!(refused.error().kind(), ErrorKind::Config, "{refused:#}");
        assert!(fs::symlink_metadata(&link).is_ok());
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "email\nold@x.io\n");
}

#[tokio::test]
async fn an_export_whose_part_file_another_program_has_changed_fails_and_replaces_no_file() {
    let server = server(2).await;
    let folder = Folder::new("changed");
    let (list, path) = (server.client().contacts().list(), folder.file("all.csv"));
    let part = folder.file("all.csv.part");
    fs::write(&path, "yesterday").unwrap();
    let cut: fn(&Path) = |part| {
        let file = fs::OpenOptions::new().write(true).open(part).unwrap();
        file.set_len(3).unwrap();
    };
    let appended: fn(&Path) = |part| {
        let mut file = fs::OpenOptions::new().append(true).open(part).unwrap();
        file.write_all(b"2@x.io\n").unwrap();
    };
    #[cfg(unix)]
    let replaced: fn(&Path) = |part| {
        let text = fs::read(part).unwrap();
        fs::remove_file(part).unwrap();
        fs::write(part, text).unwrap();
    };

    for (change, limit) in [
        (cut, 1),
        (cut, 2),
        (appended, 1),
        (appended, 2),
        #[cfg(unix)]
        (replaced, 2),
    ] {
        let export = list.clone().limit(limit).export(&path, Csv::new(["email"]));
        let changed = part.clone();
        let export = export.on_progress(move |_| change(&changed));

        let stopped = export.await.unwrap_err();

        // With one contact on each page, the file has changed before the second one is written.
        assert_eq!(stopped.report().contacts(), u64::from(limit));
        assert_eq!(stopped.error().kind(), ErrorKind::Config);
        let text = format!("{stopped:#}");
        assert!(text.contains("another program has changed"), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "yesterday");
    }
    assert!(
        list.export(&path, Csv::new(["email"]))
            .await
            .unwrap()
            .is_complete()
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), all_addresses(2));
}

#[tokio::test]
async fn a_part_file_that_no_export_has_made_is_refused_and_left_alone() {
    let server = server(2).await;
    let folder = Folder::new("foreign-part");
    let (path, part) = (folder.file("all.csv"), folder.file("all.csv.part"));
    for format in [Format::from(Csv::new(["email"])), JsonLines.into()] {
        let list = server.client().contacts().list();
        let export = || list.clone().export(&path, format.clone());
        for text in ["half of a download", "{\"a\": 1}\n"] {
            for export in [export(), export().resume()] {
                fs::write(&part, text).unwrap();

                let refused = export.await.unwrap_err();

                assert_eq!(refused.error().kind(), ErrorKind::Config);
                assert!(refused.to_string().contains("move it away"), "{refused}");
                assert_eq!(fs::read_to_string(&part).unwrap(), text);
            }
        }
    }
    assert!(server.requests().is_empty() && !path.exists());
}

#[tokio::test]
async fn a_part_file_that_an_export_has_left_is_overwritten_by_an_export_that_begins_anew() {
    let server = server(2).await;
    let folder = Folder::new("own-part");
    let (path, part) = (folder.file("all.csv"), folder.file("all.csv.part"));
    let list = server.client().contacts().list();
    let list = list.limit(1).retry(RetryPolicy::none());
    let csv = || Format::from(Csv::new(["email"]));
    // Without a cursor file, such as after a crash.
    for (left, format) in [
        ("ema", csv()),
        ("email\nold@x.io\n", csv()),
        (r#"{"id":"old"#, JsonLines.into()),
    ] {
        fs::write(&part, left).unwrap();

        let report = list.clone().export(&path, format).await.unwrap();

        assert_eq!(report.contacts(), 2);
        assert!(!fs::read_to_string(&path).unwrap().contains("old"));
    }

    // With a cursor file, it may have any format.
    server.fault(Fault::status(500).after(1));
    let stopped = list.clone().export(&path, JsonLines).await.unwrap_err();
    assert_eq!(stopped.report().contacts(), 1);
    server.clear_faults();
    let report = list.export(&path, csv()).await.unwrap();
    assert_eq!(report.contacts(), 2);
    assert_eq!(fs::read_to_string(&path).unwrap(), all_addresses(2));
}

#[tokio::test]
async fn columns_that_lists_lack_are_refused_before_anything_is_written() {
    let server = server(1).await;
    let folder = Folder::new("columns");
    let (list, path) = (server.client().contacts().list(), folder.file("all.csv"));

    let export = list.export(&path, Csv::new(["email", "last_name"]));
    let stopped = export.await.unwrap_err();

    assert_eq!(stopped.error().kind(), ErrorKind::Input);
    assert!(stopped.error().to_string().contains("in full"));
    assert!(!path.exists() && server.requests().is_empty());
}

#[tokio::test]
async fn a_file_that_cannot_be_created_is_an_error_and_nothing_is_sent() {
    let server = server(1).await;
    let folder = Folder::new("unwritable");
    let path = folder.file("no-such-folder").join("all.csv");

    let export = server.client().contacts().list().export(&path, JsonLines);
    let stopped = export.await.unwrap_err();
    let error = stopped.error();

    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(server.requests().is_empty());
    // A chain that is printed has the error once, and then its cause.
    let chain = format!("{stopped}: {}", stopped.source().unwrap());
    assert_eq!(chain.matches("could not write the export").count(), 1);
    assert_eq!(chain.matches("No such file").count(), 1, "{chain}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_synced_does_not_fail_an_export() {
    let can_trace = Command::new("strace").args(["-qq", "true"]).output();
    if !can_trace.is_ok_and(|output| output.status.success()) {
        return skip("a folder that cannot be synced: strace is not installed, or may not trace");
    }
    let server = MockServer::builder().seed_contact("0@x.io");
    let server = server.start_blocking();
    // As on some network file systems, and in a folder that its user may not read.
    for fault in ["fsync:error=EINVAL", "openat:error=EACCES"] {
        let folder = Folder::new("no-sync");
        let exported = Command::new("strace")
            .args(["-f", "-qq", "-o"])
            .arg(folder.file("trace"))
            .args(["-e", &format!("inject={fault}"), "-P"])
            .arg(folder.file("").components().as_path())
            .arg(program("audience"))
            .arg("export")
            .arg(folder.file("all.csv"))
            .args(["--columns", "email"])
            .env("AUDIENCE_URL", server.url())
            .env("AUDIENCE_KEY", server.full_key())
            .output()
            .unwrap();

        assert!(exported.status.success(), "{fault}: {exported:?}");
        let text = fs::read_to_string(folder.file("all.csv")).unwrap();
        assert_eq!(text, all_addresses(1));
        let trace = fs::read_to_string(folder.file("trace")).unwrap();
        assert!(trace.contains("INJECTED"), "{trace}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_a_new_journal_and_a_new_export() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &_| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let server = server(1).await;
    let folder = Folder::new("mode");
    let (journal, export) = (folder.file("journal"), folder.file("all.csv"));
    let list = server.client().contacts().list();
    let cursor = folder.file("all.csv.cursor");

    drop(Journal::open(&journal).unwrap());
    let first = list.clone().export(&export, JsonLines);
    let first = first.on_progress(move |_| assert_eq!(mode(&cursor), 0o600));
    assert!(first.await.unwrap().is_complete());

    assert_eq!([mode(&journal), mode(&export)], [0o600, 0o600]);
    // A file that exists keeps its mode.
    for path in [&journal, &export] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    }
    drop(Journal::open(&journal).unwrap());
    assert!(list.export(&export, JsonLines).await.unwrap().is_complete());
    assert_eq!([mode(&journal), mode(&export)], [0o640, 0o640]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_a_pipe_or_a_device_is_no_file_to_export_to() {
    let server = server(1).await;
    let folder = Folder::new("device");
    let pipe = folder.file("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());

    for path in [folder.file(""), pipe, "/dev/null".into()] {
        let list = server.client().contacts().list();
        let export = list
            .export(&path, JsonLines)
            .cursor_file(folder.file("cursor"));
        let stopped = export.await.unwrap_err();

        assert_eq!(stopped.error().kind(), ErrorKind::Config, "{path:?}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_malformed_contact_is_left_out_and_counted_and_the_rest_is_written() {
    let items = json!({"data": [summary("c3"), {"id": "c2"}, summary("c1")], "next": ""});
    let server = respond_in_turn([ok(items), ok(json!({"data": []}))]).await;
    let folder = Folder::new("malformed");
    let kept = Arc::new(Mutex::new(Vec::new()));

    let export = contacts(server.uri())
        .list()
        .export(folder.file("all.csv"), Csv::new(["id"]));
    let keep = Arc::clone(&kept);
    let export = export.on_malformed(move |error| {
        keep.lock().unwrap().push(error.body().unwrap().to_owned());
    });
    let report = export.await.unwrap();

    assert_eq!((report.contacts(), report.malformed()), (2, 1));
    assert!(!report.is_complete());
    assert_eq!(*kept.lock().unwrap(), [br#"{"id":"c2"}"#]);
    assert_eq!(
        fs::read_to_string(folder.file("all.csv")).unwrap(),
        "id\nc3\nc1\n"
    );
}

#[tokio::test]
async fn a_contact_that_is_malformed_in_full_is_left_out_and_counted_and_the_rest_is_written() {
    let named = |contact, id: &str| with(with(contact, "id", id), "email", id);
    let items = ["3", "2", "1"].map(|id| named(summary(id), id));
    let list = json!({"data": items, "next": ""});
    let server = respond_with(move |request: &Request| {
        match request.url.path().strip_prefix("/contacts/") {
            Some("2") => ok(json!({"id": "2"})),
            Some(id) => ok(named(contact(), id)),
            None if request
                .url
                .query()
                .is_some_and(|query| query.contains("after")) =>
            {
                ok(json!({"data": []}))
            }
            None => ok(&list),
        }
    })
    .await;
    let folder = Folder::new("malformed-full");
    let path = folder.file("all.csv");

    let export = contacts(server.uri())
        .list()
        .export(&path, Csv::new(["id"]));
    let report = export.full().await.unwrap();

    assert_eq!((report.contacts(), report.malformed()), (2, 1));
    assert_eq!(fs::read_to_string(path).unwrap(), "id\n3\n1\n");
}

#[tokio::test]
async fn an_export_of_malformed_contacts_only_records_how_far_it_is() {
    let items = (0..120).map(|id| format!("{id}"));
    let items: Vec<_> = items.map(|id| with(summary(&id), "email", id)).collect();
    let list = json!({"data": items, "next": ""});
    let server = respond_with(move |request: &Request| {
        let is_end = |query: &str| query.contains("after");
        match request.url.path().strip_prefix("/contacts/") {
            Some(id) => ok(json!({"id": id})),
            None if request.url.query().is_some_and(is_end) => ok(json!({"data": []})),
            None => ok(&list),
        }
    })
    .await;
    let folder = Folder::new("malformed-only");
    let cursor = folder.file("cursor");
    let lengths = Arc::new(Mutex::new(Vec::new()));

    let export = contacts(server.uri()).list().limit(200);
    let export = export.export(folder.file("all.csv"), Csv::new(["id"]));
    let export = export.cursor_file(&cursor).on_malformed({
        let lengths = lengths.clone();
        move |_| {
            let record: Value =
                serde_json::from_str(&fs::read_to_string(&cursor).unwrap()).unwrap();
            lengths.lock().unwrap().push(record["malformed"].as_u64());
        }
    });
    let report = export.full().await.unwrap();

    assert_eq!((report.contacts(), report.malformed()), (0, 120));
    let recorded: BTreeSet<_> = lengths.lock().unwrap().iter().copied().collect();
    assert_eq!(
        recorded.into_iter().flatten().collect::<Vec<_>>(),
        [0, 50, 100]
    );
}

#[tokio::test]
async fn a_page_that_fails_twice_is_fetched_again_and_one_that_fails_on_stops_the_export() {
    let server = server(3).await;
    let folder = Folder::new("failing");
    let list = server
        .client()
        .contacts()
        .list()
        .limit(1)
        .retry(RetryPolicy::none());
    let path = folder.file("all.csv");

    server.fault(Fault::status(500).after(1).times(2));
    let report = list
        .clone()
        .export(&path, Csv::new(["email"]))
        .await
        .unwrap();
    assert_eq!((report.contacts(), report.malformed()), (3, 0));

    server.fault(Fault::status(500).after(2));
    let stopped = list
        .clone()
        .export(&path, Csv::new(["email"]))
        .await
        .unwrap_err();
    assert_eq!(
        (
            stopped.report().contacts(),
            stopped.error().status().unwrap().as_u16()
        ),
        (2, 500)
    );

    server.clear_faults();
    let report = list
        .export(&path, Csv::new(["email"]))
        .resume()
        .await
        .unwrap();
    assert_eq!((report.contacts(), report.resumed()), (3, 2));
    assert_eq!(fs::read_to_string(path).unwrap(), all_addresses(3));
}

#[tokio::test]
async fn a_contact_or_page_of_a_full_export_that_fails_twice_is_fetched_again() {
    for path in ["/contacts/1@x.io", "/contacts"] {
        let server = server(3).await;
        let folder = Folder::new("failing-full");
        let file = folder.file("all.csv");
        let list = server.client().contacts().list().limit(1);
        server.fault(Fault::status(500).path(path).times(2));

        let export = list.retry(RetryPolicy::none());
        let export = export.export(&file, Csv::new(["email"])).full();
        let report = export.await.unwrap();

        assert_eq!(report.contacts(), 3, "{path}");
        assert_eq!(fs::read_to_string(file).unwrap(), all_addresses(3));
    }
}

#[tokio::test]
async fn a_page_that_fails_twice_while_columns_are_found_is_fetched_again() {
    let server = server(1).await;
    server.seed_contact(SeedContact::new("1@x.io").property("plan", "pro"));
    let folder = Folder::new("twice");
    let path = folder.file("all.csv");
    let list = server.client().contacts().list().retry(RetryPolicy::none());
    let export = || list.clone().export(&path, Csv::all_columns());
    server.fault(Fault::status(500).times(2));

    assert!(export().await.unwrap().is_complete());

    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().next().unwrap().contains("plan"), "{text}");
    server.fault(Fault::status(500));
    let failed = export().await.unwrap_err();
    assert_eq!(failed.error().status().unwrap(), 500);
}

#[tokio::test]
async fn an_export_and_the_search_for_its_columns_wait_as_long_as_an_import_does() {
    let server = server(3).await;
    let folder = Folder::new("patient");
    let client = audience::Client::new(server.url(), server.full_key()).unwrap();
    let list = || client.contacts().list();
    // Longer than other calls wait.
    server.fault(Fault::status(503).retry_after(61));

    let export = list().export(folder.file("all.csv"), JsonLines);
    let export = ended_early(&server, 1, export.into_future()).await;
    let columns = list().export(folder.file("columns.csv"), Csv::all_columns());
    let columns = ended_early(&server, 2, columns.into_future()).await;

    assert!(
        export.is_none() && columns.is_none(),
        "{export:?} {columns:?}"
    );
    assert_eq!(server.requests().len(), 2);
}

/// Returns the output of a call that ends within a second after the server has received this many requests.
async fn ended_early<T>(
    server: &MockServer,
    requests: usize,
    call: impl Future<Output = T>,
) -> Option<T> {
    let mut call = pin!(call);
    let sent = async {
        while server.requests().len() < requests {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    in_time(async {
        tokio::select! {
            ended = &mut call => Some(ended),
            () = sent => None,
        }
    })
    .await
}

#[tokio::test]
async fn a_full_export_fails_after_a_404_of_a_gateway_and_leaves_out_another_contact() {
    let server = server(3).await;
    let folder = Folder::new("gateway");
    let path = folder.file("all.csv");
    let list = || server.client().contacts().list();
    let export = || list().export(&path, Csv::new(["email"])).full();
    let gone = Fault::status(404).body(r#"{"message": "no route"}"#);
    server.fault(gone.path("/contacts/1%40x.io"));

    let failed = export().await.unwrap_err();

    let text = failed.to_string();
    assert!(text.contains("check the base URL"), "{text}");
    server.clear_faults();
    let cached = json!(server.client().contacts().retrieve("2@x.io").await.unwrap());
    server.fault(
        Fault::status(200)
            .body(cached.to_string())
            .path("/contacts/1%40x.io"),
    );
    let report = export().await.unwrap();
    assert_eq!((report.contacts(), report.malformed()), (2, 1));
    assert!(!report.is_complete());
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(text.matches("2@x.io").count(), 1, "{text}");
}

#[tokio::test]
async fn a_full_export_counts_the_contacts_that_vanished() {
    let server = server(3).await;
    let folder = Folder::new("vanished");
    let body = r#"{"code": "not_found"}"#;
    server.fault(Fault::status(404).body(body).path("/contacts/1%40x.io"));

    let list = server.client().contacts().list();
    let export = list.export(folder.file("all.csv"), Csv::new(["email"]));
    let report = export.full().await.unwrap();

    assert_eq!((report.contacts(), report.vanished()), (2, 1));
    assert!(report.is_complete());
    server.clear_faults();
    let list = server.client().contacts().list();
    let export = list.export(folder.file("again.csv"), Csv::new(["email"]));
    let report = export.full().await.unwrap();
    assert_eq!((report.contacts(), report.vanished()), (3, 0));
    // The first of the list, before any contact is counted.
    server.fault(Fault::status(404).body(body).path("/contacts/2%40x.io"));
    let list = server.client().contacts().list();
    let export = list.export(folder.file("first.csv"), Csv::new(["email"]));
    let report = export.full().await.unwrap();
    assert_eq!((report.contacts(), report.vanished()), (2, 1));
}

#[tokio::test]
async fn a_full_export_records_its_progress_after_50_contacts_with_those_that_vanished() {
    let server = server(120).await;
    let folder = Folder::new("vanished-parts");
    let gone = Fault::status(404).body(r#"{"code": "not_found"}"#);
    // The first of the list.
    server.fault(gone.path("/contacts/119%40x.io"));
    let progress = Arc::new(Mutex::new(Vec::new()));

    let list = server.client().contacts().list();
    let export = list.export(folder.file("all.csv"), Csv::new(["email"]));
    let shown = Arc::clone(&progress);
    let export = export.on_progress(move |report| {
        let counts = (report.contacts(), report.vanished());
        shown.lock().unwrap().push(counts);
    });
    let report = export.full().await.unwrap();

    assert!(report.is_complete());
    assert_eq!(*progress.lock().unwrap(), [(49, 1), (99, 1), (119, 1)]);
}

#[tokio::test]
async fn a_full_export_leaves_out_contacts_without_topics_and_needs_one_that_has_topics() {
    let server = server_with_topic().await;
    let folder = Folder::new("without-topics");
    let (list, path) = (server.client().contacts().list(), folder.file("all.csv"));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let export = || {
        let kept = Arc::clone(&kept);
        let export = list.clone().export(&path, Csv::all_columns()).full();
        export.on_malformed(move |error| {
            kept.lock().unwrap().push(error.body().unwrap().to_owned());
        })
    };
    let short = |address: &str| {
        let short =
            json!({"id": "con_1", "email": address, "unsubscribed": false, "created_at": 1});
        let short = Fault::wrong_body(short.to_string()).method("GET");
        server.fault(short.path(format!("/contacts/{address}")));
    };

    // The columns are found with the newest contact, if it has topics.
    for (address, other) in [("0@x.io", "1@x.io"), ("1@x.io", "0@x.io")] {
        short(address);

        let report = export().await.unwrap();

        assert_eq!((report.contacts(), report.malformed()), (1, 1));
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("topic:news") && text.contains(other) && !text.contains(address),
            "{text}"
        );
        let body = kept.lock().unwrap().pop().unwrap();
        assert!(String::from_utf8(body).unwrap().contains(address));
        server.clear_faults();
    }
    short("0@x.io");
    short("1@x.io");
    let text = fs::read_to_string(&path).unwrap();
    let failed = export().await.unwrap_err();
    assert!(failed.error().is_malformed_contact(), "{failed}");
    assert!(
        failed.to_string().contains("no member `topics`"),
        "{failed}"
    );
    server.clear_faults();
    server.fault(
        Fault::status(404)
            .body(r#"{"code": "not_found"}"#)
            .path("/contacts/*"),
    );
    let failed = export().await.unwrap_err();
    assert!(failed.error().is_retryable(), "{failed}");
    assert!(
        failed.to_string().contains("topics could not be found"),
        "{failed}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn a_contact_that_says_no_to_a_topic_without_a_found_column_is_left_out_and_counted() {
    for answer in [json!(false), json!(null)] {
        let server = server_with_topic().await;
        let folder = Folder::new("no-column");
        let (list, path) = (server.client().contacts().list(), folder.file("all.csv"));
        // As a service that shows only the topics that a contact has answered.
        let topics = json!({"news": true, "offers": answer, "shop": true});
        let older = json!({"id": "con_1", "email": "0@x.io", "unsubscribed": false, "created_at": 1, "topics": topics});
        let fault = Fault::wrong_body(older.to_string()).method("GET");
        server.fault(fault.path("/contacts/0%40x.io"));
        let kept = Arc::new(Mutex::new(Vec::new()));

        let export = list.clone().export(&path, Csv::all_columns()).full();
        let seen = Arc::clone(&kept);
        let export = export.on_malformed(move |error| {
            let body = String::from_utf8(error.body().unwrap().to_owned()).unwrap();
            seen.lock().unwrap().push((error.to_string(), body));
        });
        let report = export.await.unwrap();

        assert_eq!((report.contacts(), report.malformed()), (1, 1));
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("1@x.io") && !text.contains("0@x.io"),
            "{text}"
        );
        let (error, body) = kept.lock().unwrap().pop().unwrap();
        assert!(error.contains("says no to the topic `offers`"), "{error}");
        assert!(body.contains("0@x.io"), "{body}");

        // Columns that somebody has chosen are theirs, and these have every answer.
        for columns in [
            &["email"][..],
            &["email", "topics"],
            &["email", "topic:offers"],
        ] {
            let csv = Csv::new(columns.iter().copied());
            let report = list.clone().export(&path, csv).full().await.unwrap();
            assert_eq!((report.contacts(), report.malformed()), (2, 0));
        }
        let report = list.export(&path, JsonLines).full().await.unwrap();
        assert_eq!((report.contacts(), report.malformed()), (2, 0));
    }
}

#[tokio::test]
async fn the_first_refusal_of_a_list_is_the_error_of_the_export() {
    let server = respond_in_turn([status(403), status(403), status(403)]).await;
    let folder = Folder::new("refused");

    let export = contacts(server.uri())
        .list()
        .export(folder.file("all.csv"), JsonLines);
    let stopped = export.await.unwrap_err();

    let text = format!("the export stopped after 0 contacts: {}", stopped.error());
    assert_eq!(stopped.to_string(), text);
    assert_eq!(stopped.error().status().unwrap().as_u16(), 403);
}

#[tokio::test]
async fn two_exports_do_not_write_to_one_file_simultaneously() {
    let server = server(5).await;
    let folder = Folder::new("locked");
    let file = folder.file("all.csv");
    let export = || {
        server
            .client()
            .contacts()
            .list()
            .limit(1)
            .export(&file, Csv::new(["email"]))
    };
    server.fault(Fault::delay(Duration::from_secs(60)).after(2).times(1));
    let first = tokio::spawn(export().into_future());
    while server.requests().len() < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    for second in [export(), export().resume()] {
        let refused = in_time(second).await.unwrap_err();

        let message = refused.error().to_string();
        assert!(
            message.starts_with("another export is writing to the file"),
            "{message}"
        );
        // It may succeed when the first one has ended.
        assert!(refused.error().is_retryable());
        assert_eq!(audience::exit_status(&refused), 75);
    }

    // The file of the first one was left alone, so it can be continued.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let report = in_time(export().resume()).await.unwrap();
    assert_eq!((report.contacts(), report.resumed()), (5, 2));
    assert_eq!(fs::read_to_string(&file).unwrap(), all_addresses(5));
}
