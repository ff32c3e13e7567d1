//! Exports that continue after they were stopped.

use std::fs;
use std::time::Duration;

use audience::contacts::ListContacts;
use audience::export::{Csv, Export, JsonLines};
use audience::mock::{Fault, MockServer, SeedContact};
use audience::{ErrorKind, RetryPolicy};
use serde_json::Value;

use super::{Folder, all_addresses};
use support::cancellation::{for_each_number_of_polls, poll_times};
use support::in_time;

async fn server(count: usize) -> (MockServer, ListContacts) {
    let server = MockServer::start().await;
    for n in 0..count {
        server.seed_contact(format!("{n}@x.io").as_str());
    }
    let list = server.client().contacts().list();
    (server, list.limit(3).retry(RetryPolicy::none()))
}

fn addresses(list: &ListContacts, folder: &Folder) -> Export {
    let path = folder.file("all.csv");
    list.clone().export(path, Csv::new(["email"])).resume()
}

fn in_form(is_full: bool, export: Export) -> Export {
    match is_full {
        true => export.full(),
        false => export,
    }
}

/// Exports until the service fails for good, after this many requests.
async fn stop_after(requests: u64, server: &MockServer, export: Export) {
    server.fault(Fault::status(500).after(requests));
    export.await.unwrap_err();
    server.clear_faults();
}

#[tokio::test]
async fn an_export_stopped_anywhere_is_continued_without_a_gap_or_a_repetition() {
    for is_full in [false, true] {
        let form = |export: Export| match is_full {
            true => export.full().concurrency(2),
            false => export,
        };
        for requests in 0..12 {
            let (server, list) = server(10).await;
            let folder = Folder::new(&format!("stopped-{is_full}-{requests}"));

            server.fault(Fault::status(500).after(requests));
            let stopped = form(addresses(&list, &folder)).await.is_err();
            server.clear_faults();
            let report = form(addresses(&list, &folder)).await.unwrap();

            assert!(stopped || requests > 4, "{requests}");
            assert_eq!(report.contacts(), 10);
            let text = fs::read_to_string(folder.file("all.csv")).unwrap();
            assert_eq!(text, all_addresses(10), "{requests}");
        }
    }
}

#[tokio::test]
async fn an_export_dropped_after_any_number_of_polls_is_continued_without_a_gap_or_a_repetition() {
    for is_full in [false, true] {
        let form = |export: Export| match is_full {
            true => export.full().concurrency(2),
            false => export,
        };
        let (server, list) = server(7).await;
        let polls = for_each_number_of_polls(async |polls| {
            let folder = Folder::new(&format!("polled-{is_full}-{polls}"));

            let export = form(addresses(&list, &folder)).into_future();
            let ended = poll_times(polls, export).await;
            let report = in_time(form(addresses(&list, &folder))).await.unwrap();

            assert_eq!(report.contacts(), 7, "{polls}");
            let text = fs::read_to_string(folder.file("all.csv")).unwrap();
            assert_eq!(text, all_addresses(7), "{polls}");
            ended.is_some()
        })
        .await;
        assert!(polls > 1, "{polls}");
        drop(server);
    }
}

#[tokio::test]
async fn what_a_crash_left_after_the_recorded_end_is_cut_off() {
    let (server, list) = server(10).await;
    let folder = Folder::new("torn");
    stop_after(2, &server, addresses(&list, &folder)).await;
    let part = folder.file("all.csv.part");
    let text = fs::read_to_string(&part).unwrap();
    assert_eq!(text.lines().count(), 7);

    fs::write(&part, text + &"3@x.io\n".repeat(100) + "2@x.").unwrap();
    let report = addresses(&list, &folder).await.unwrap();

    assert_eq!((report.contacts(), report.resumed()), (10, 6));
    let text = fs::read_to_string(folder.file("all.csv")).unwrap();
    assert_eq!(text, all_addresses(10));
}

#[tokio::test]
async fn an_export_that_is_asked_to_stop_leaves_the_file_of_before_and_is_continued() {
    for is_full in [false, true] {
        let (_server, list) = server(120).await;
        let folder = Folder::new(&format!("asked-{is_full}"));
        let path = folder.file("all.csv");
        fs::write(&path, "of yesterday").unwrap();
        let export = || match is_full {
            true => addresses(&list, &folder).full(),
            false => addresses(&list, &folder),
        };
        let (stop, asked) = tokio::sync::oneshot::channel();
        let mut stop = Some(stop);

        let stopped = export()
            .on_progress(move |_| drop(stop.take()))
            .stop_when(async { asked.await.unwrap_or(()) });
        let stopped = in_time(stopped).await.unwrap_err();

        let written = stopped.report().contacts();
        assert!((1..120).contains(&written), "{written}");
        assert_eq!(stopped.error().kind(), ErrorKind::Stopped);
        assert!(stopped.to_string().ends_with("resume it to continue"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "of yesterday");
        let report = in_time(export()).await.unwrap();
        assert_eq!((report.contacts(), report.resumed()), (120, written));
        assert_eq!(fs::read_to_string(&path).unwrap(), all_addresses(120));
        assert_eq!(fs::read_dir(folder.file("")).unwrap().count(), 1);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_to_a_file_that_does_not_exist_yet_stays_a_link() {
    let (_server, list) = server(2).await;
    let folder = Folder::new("link-to-nothing");
    fs::create_dir(folder.file("data")).unwrap();
    let (link, target) = (folder.file("all.csv"), folder.file("data/target.csv"));
    std::os::unix::fs::symlink("latest", &link).unwrap();
    std::os::unix::fs::symlink("data/target.csv", folder.file("latest")).unwrap();

    assert!(addresses(&list, &folder).await.unwrap().is_complete());

    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&target).unwrap(), all_addresses(2));
    assert_eq!(fs::read_dir(folder.file("data")).unwrap().count(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_to_the_file_stays_a_link() {
    let (_server, list) = server(2).await;
    let folder = Folder::new("link");
    let (link, target) = (folder.file("all.csv"), folder.file("target.csv"));
    fs::write(&target, "of yesterday").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();

    assert!(addresses(&list, &folder).await.unwrap().is_complete());

    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&target).unwrap(), all_addresses(2));
    assert_eq!(fs::read_dir(folder.file("")).unwrap().count(), 2);
}

#[tokio::test]
async fn a_cursor_file_without_a_part_file_begins_anew() {
    let (server, list) = server(10).await;
    let folder = Folder::new("no-part");
    stop_after(2, &server, addresses(&list, &folder)).await;
    fs::remove_file(folder.file("all.csv.part")).unwrap();

    let report = addresses(&list, &folder).await.unwrap();

    assert_eq!((report.contacts(), report.resumed()), (10, 0));
    let text = fs::read_to_string(folder.file("all.csv")).unwrap();
    assert_eq!(text, all_addresses(10));
}

#[tokio::test]
async fn a_finished_export_begins_anew_when_resumed_also_with_other_columns() {
    let (server, list) = server(10).await;
    let folder = Folder::new("finished");
    assert!(addresses(&list, &folder).await.unwrap().is_complete());
    server.seed_contact("10@x.io");

    let next_night = addresses(&list, &folder).await.unwrap();

    assert_eq!((next_night.contacts(), next_night.resumed()), (11, 0));
    let path = folder.file("all.csv");
    assert_eq!(fs::read_to_string(&path).unwrap(), all_addresses(11));

    let other = list.export(&path, JsonLines).resume().await.unwrap();

    assert_eq!((other.contacts(), other.resumed()), (11, 0));
    assert!(fs::read_to_string(&path).unwrap().starts_with('{'));
    assert_eq!(fs::read_dir(folder.file("")).unwrap().count(), 1);
}

#[tokio::test]
async fn an_export_dropped_at_any_moment_is_continued() {
    let (_server, list) = server(30).await;
    let folder = Folder::new("dropped");

    for milliseconds in 0..200 {
        let limit = Duration::from_millis(milliseconds);
        let export = addresses(&list, &folder).into_future();
        if let Ok(finished) = tokio::time::timeout(limit, export).await {
            assert!(finished.unwrap().is_complete());
            break;
        }
    }
    assert!(addresses(&list, &folder).await.unwrap().is_complete());

    assert_eq!(
        fs::read_to_string(folder.file("all.csv")).unwrap(),
        all_addresses(30)
    );
}

#[tokio::test]
async fn another_list_format_form_or_service_is_refused_and_the_file_is_left_alone() {
    let (server, list) = server(10).await;
    let folder = Folder::new("other");
    stop_after(2, &server, addresses(&list, &folder)).await;
    let (path, part) = (folder.file("all.csv"), folder.file("all.csv.part"));
    let text = fs::read_to_string(&part).unwrap();
    let elsewhere = MockServer::start().await;

    for (export, other) in [
        (addresses(&list.clone().query("x"), &folder), "another list"),
        (addresses(&list.clone().after("c"), &folder), "another list"),
        (
            list.clone().export(&path, JsonLines).resume(),
            "another format",
        ),
        (
            list.clone().export(&path, Csv::new(["id"])).resume(),
            "other columns",
        ),
        (addresses(&list, &folder).full(), "the other form"),
        (
            addresses(&elsewhere.client().contacts().list(), &folder),
            "another service",
        ),
    ] {
        let stopped = export.await.unwrap_err();

        assert_eq!(stopped.error().kind(), ErrorKind::Config);
        assert!(stopped.error().to_string().contains(other), "{stopped:?}");
        assert_eq!(fs::read_to_string(&part).unwrap(), text);
    }
    assert_eq!(
        addresses(&list.limit(5), &folder).await.unwrap().contacts(),
        10
    );
}

/// The response of a service to the cursor of a contact that was deleted.
fn refused_cursor() -> Fault {
    Fault::status(422)
        .body(r#"{"error": {"code": "validation_error", "message": "unknown cursor"}}"#)
}

#[tokio::test]
async fn a_recorded_cursor_that_the_service_refuses_is_an_error_that_says_what_to_do() {
    for is_full in [false, true] {
        let (server, list) = server(10).await;
        let folder = Folder::new(&format!("deleted-cursor-{is_full}"));
        server.fault(Fault::status(500).path("/contacts").after(1));
        in_form(is_full, addresses(&list, &folder))
            .await
            .unwrap_err();
        server.clear_faults();
        server.fault(refused_cursor());

        let refused = in_form(is_full, addresses(&list, &folder))
            .await
            .unwrap_err();

        assert_eq!(refused.error().kind(), ErrorKind::Config, "{refused:#}");
        assert_eq!(refused.report().contacts(), 3);
        let text = refused.to_string();
        assert!(text.contains("refuses the recorded cursor"), "{text}");
        assert!(text.ends_with("without resuming it"), "{text}");
        let path = folder.file("all.csv");
        server.clear_faults();
        let anew = in_form(is_full, list.export(&path, Csv::new(["email"])));
        assert_eq!(anew.await.unwrap().contacts(), 10);

        // A cursor of the caller is not the recorded one.
        let other = server.client().contacts().list().after("gone");
        let refused = in_form(is_full, other.export(&path, Csv::new(["email"])).resume());
        let refused = refused.await.unwrap_err();
        assert!(refused.error().is_validation_error(), "{refused:#}");
    }
}

#[tokio::test]
async fn a_contact_that_the_service_refuses_is_not_a_cursor_that_it_refuses() {
    let (server, list) = server(10).await;
    let folder = Folder::new("refused-contact");
    let export = || addresses(&list, &folder).full();
    server.fault(Fault::status(500).path("/contacts").after(1));
    export().await.unwrap_err();
    server.clear_faults();
    server.fault(refused_cursor().path("/contacts/*"));

    let refused = export().await.unwrap_err();

    assert_eq!(refused.report().contacts(), 3);
    assert!(refused.error().is_validation_error(), "{refused:#}");
}

#[tokio::test]
async fn after_a_repeated_page_a_resumed_export_begins_anew_and_has_each_contact_once() {
    for is_full in [false, true] {
        let (server, list) = server(10).await;
        let folder = Folder::new(&format!("repeated-page-{is_full}"));
        let stale = list.clone().limit(2).await.unwrap();
        let stale = serde_json::json!({"data": stale.data, "next": stale.data[1].id});
        // Two pages of the list, and then the same page again and again.
        let fault = Fault::wrong_body(stale.to_string()).path("/contacts");
        server.fault(fault.after(2));

        let stopped = in_form(is_full, addresses(&list, &folder))
            .await
            .unwrap_err();
        server.clear_faults();
        let report = in_form(is_full, addresses(&list, &folder)).await.unwrap();

        assert_eq!(stopped.error().kind(), ErrorKind::Pagination);
        assert_eq!((report.contacts(), report.resumed()), (10, 0));
        let text = fs::read_to_string(folder.file("all.csv")).unwrap();
        assert_eq!(text, all_addresses(10));
    }
}

#[tokio::test]
async fn two_exports_with_one_cursor_file_are_not_continued_by_each_other() {
    let (server, list) = server(10).await;
    let folder = Folder::new("shared-cursor");
    let cursor = folder.file("cursor");
    let export = |name| {
        let list = list.clone();
        let export = list.export(folder.file(name), Csv::new(["email"]));
        export.cursor_file(&cursor)
    };
    stop_after(3, &server, export("a.csv")).await;
    stop_after(2, &server, export("b.csv")).await;
    let part = fs::read_to_string(folder.file("a.csv.part")).unwrap();

    let refused = export("a.csv").resume().await.unwrap_err();

    assert_eq!(refused.error().kind(), ErrorKind::Config);
    let text = refused.to_string();
    assert!(text.contains("an export to another path"), "{text}");
    assert_eq!(fs::read_to_string(folder.file("a.csv.part")).unwrap(), part);
    // The path may be written in another way, whether or not there is a file.
    for _ in 0..2 {
        let report = export("./b.csv").resume().await.unwrap();
        assert_eq!((report.contacts(), report.resumed()), (10, 6));
        stop_after(2, &server, export("b.csv")).await;
    }
    fs::remove_file(&cursor).unwrap();
    let report = export("a.csv").resume().await.unwrap();
    assert_eq!((report.contacts(), report.resumed()), (10, 0));
    for name in ["a.csv", "b.csv"] {
        let text = fs::read_to_string(folder.file(name)).unwrap();
        assert_eq!(text, all_addresses(10), "{name}");
    }
}

#[tokio::test]
async fn files_that_do_not_fit_together_are_refused() {
    let (server, list) = server(10).await;
    let folder = Folder::new("unfit");
    stop_after(2, &server, addresses(&list, &folder)).await;
    let (part, cursor) = (folder.file("all.csv.part"), folder.file("all.csv.cursor"));
    let problem = async || {
        let stopped = addresses(&list, &folder).await.unwrap_err();
        stopped.error().to_string()
    };

    fs::write(&part, "email\n").unwrap();
    assert!(problem().await.contains("shorter"));
    fs::write(&cursor, "{}").unwrap();
    assert!(problem().await.contains("does not belong to an export"));
    fs::remove_file(&cursor).unwrap();
    fs::create_dir(&cursor).unwrap();
    assert!(problem().await.contains("could not read the cursor file"));
    fs::remove_dir(&cursor).unwrap();
    assert_eq!(addresses(&list, &folder).await.unwrap().contacts(), 10);
}

#[tokio::test]
async fn columns_are_found_again_if_a_file_to_continue_is_gone_or_empty() {
    for (number, (file, is_gone)) in [("part", true), ("part", false), ("cursor", true)]
        .into_iter()
        .enumerate()
    {
        let (server, list) = server(10).await;
        let folder = Folder::new(&format!("columns-gone-{number}"));
        let (path, part) = (
            folder.file("all.csv"),
            folder.file(&format!("all.csv.{file}")),
        );
        let export = || list.clone().export(&path, Csv::all_columns()).resume();
        assert!(export().await.unwrap().is_complete());
        let requests = server.requests().len() as u64;
        stop_after(requests - 2, &server, export()).await;
        fs::remove_file(&part).unwrap();
        if !is_gone {
            fs::write(&part, "").unwrap();
        }

        let report = export().await.unwrap();

        assert_eq!((report.contacts(), report.resumed()), (10, 0));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("email,first_name,"), "{text}");
        assert_eq!(text.lines().count(), 11);
    }
}

#[tokio::test]
async fn found_columns_are_those_of_the_unfinished_file() {
    for (is_full, is_escaped) in [(false, false), (true, false), (false, true)] {
        let (server, list) = server(10).await;
        let pro = |address: &str| SeedContact::new(address).property("=plan, or", "pro");
        server.seed_contact(pro("10@x.io"));
        let folder = Folder::new(&format!("found-{is_full}-{is_escaped}"));
        let path = folder.file("all.csv");
        let export = async || {
            let csv = match is_escaped {
                true => Csv::all_columns().escape_formulas(),
                false => Csv::all_columns(),
            };
            let export = list.clone().export(&path, csv).resume();
            match is_full {
                true => export.full().concurrency(1),
                false => export,
            }
        };
        // The last requests of the list fail, but not those of the search.
        let with_search = export().await;
        assert!(with_search.await.unwrap().is_complete());
        let requests = server.requests().len() as u64;
        stop_after(requests - 2, &server, export().await).await;
        let unfinished = fs::read_to_string(folder.file("all.csv.part")).unwrap();
        assert!(unfinished.lines().count() > 1, "{unfinished}");

        server.seed_contact(SeedContact::new("11@x.io").property("city", "Ulm"));
        let before = server.requests().len();
        // The columns of the caller are never replaced.
        let chosen = Csv::new(["email"]);
        let refused = list.clone().export(&path, chosen).resume().await;
        let report = export().await.await.unwrap();

        assert!(refused.is_err());
        // The list is not read again for its columns.
        let first = server.requests()[before].query.clone().unwrap();
        assert!(first.contains("after="), "{first}");
        assert!(
            report.resumed() > 0 && report.contacts() == 11,
            "{report:?}"
        );
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&unfinished));
        let cells = text.lines().map(|line| line.matches(',').count());
        let cells: Vec<_> = cells.collect();
        // The name of the property and no cell has a comma in it.
        assert!(
            cells[1..].iter().all(|count| count + 1 == cells[0]),
            "{text}"
        );
        assert!(!text.contains("city"), "{text}");

        // A file with columns that the caller chose is not continued with others.
        fs::remove_file(&path).unwrap();
        let chosen = || list.clone().export(&path, Csv::new(["email"]));
        stop_after(1, &server, chosen()).await;
        let other = export().await.await.unwrap_err();
        assert!(
            other.error().to_string().contains("other columns"),
            "{other}"
        );
        assert!(chosen().await.unwrap().is_complete());
        assert!(export().await.await.is_ok());
        assert!(fs::read_to_string(&path).unwrap().contains("city"));
    }
}

#[tokio::test]
async fn a_new_export_is_not_continued_by_the_cursor_of_an_older_one() {
    let (server, list) = server(10).await;
    let folder = Folder::new("older");
    stop_after(2, &server, addresses(&list, &folder)).await;

    // The new export fails before its first page.
    let anew = list
        .clone()
        .export(folder.file("all.csv"), Csv::new(["email"]));
    stop_after(0, &server, anew).await;
    let report = addresses(&list, &folder).await.unwrap();

    assert_eq!((report.contacts(), report.resumed()), (10, 0));
    assert_eq!(
        fs::read_to_string(folder.file("all.csv")).unwrap(),
        all_addresses(10)
    );
}

#[tokio::test]
async fn the_cursor_file_has_no_contact_and_may_be_elsewhere() {
    let (server, list) = server(10).await;
    let folder = Folder::new("elsewhere");
    let cursor = folder.file("position");

    let list = list.query("@x.io");
    let export = addresses(&list, &folder).cursor_file(&cursor);
    stop_after(2, &server, export).await;

    let text = fs::read_to_string(&cursor).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert!(!text.contains("x.io"), "{text}");
    assert_eq!(record["contacts"], 6);
    assert!(!folder.file("all.csv.cursor").exists());

    let export = addresses(&list, &folder).cursor_file(&cursor);
    assert!(export.await.unwrap().is_complete());

    assert!(!cursor.exists());
}
