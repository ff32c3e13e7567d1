//! `audience export`. The tests of its kill and resume are in `tests/import`.

use std::process::Stdio;
#[cfg(unix)]
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

use audience::mock::{Fault, MockServer, SeedContact};
#[cfg(target_os = "linux")]
use support::PATIENCE;

#[cfg(unix)]
use super::terminal::shown;
use super::{Folder, audience, audience_at, end, ended};

fn server() -> MockServer {
    let ada = SeedContact::new("ada@example.com")
        .last_name("Lovelace")
        .property("plan", "pro")
        .created_at(1_600_000_000);
    let bob = SeedContact::new("bob@example.com").created_at(1_600_000_000);
    MockServer::builder()
        .topic("news", true)
        .seed_contact(ada)
        .seed_contact(bob)
        .start_blocking()
}

fn server_with(contacts: usize) -> MockServer {
    let mut builder = MockServer::builder();
    for n in 0..contacts {
        builder = builder.seed_contact(format!("{n}@example.com").as_str());
    }
    builder.start_blocking()
}

#[test]
fn a_list_is_exported_to_a_file_and_the_same_to_standard_output() {
    let folder = Folder::new("export");
    let server = server();
    for flags in [
        &[][..],
        &["--full"],
        &["--format", "jsonl"],
        &["--columns", "email,plan"],
    ] {
        let file = folder.path("all.csv");

        let to_file = end(audience_at(&server, &["export", &file]).args(flags));
        let to_pipe = end(audience_at(&server, &["export", "-"]).args(flags));

        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            to_file.stdout,
            format!("{file}\n2 exported, 0 vanished, 0 malformed\n")
        );
        assert_eq!(
            (to_pipe.code, &to_pipe.stdout),
            (Some(0), &text),
            "{to_pipe:?}"
        );
        assert!(
            text.contains("ada@example.com") && text.contains("pro"),
            "{text}"
        );
        assert_eq!(text.contains("Lovelace"), flags.contains(&"--full"));
    }
    assert!(!std::path::Path::new(&folder.path("all.csv.cursor")).exists());
}

#[test]
fn a_contact_without_topics_is_left_out_of_a_full_export_to_standard_output() {
    let server = server();
    let short =
        r#"{"id": "con_1", "email": "ada@example.com", "unsubscribed": false, "created_at": 1}"#;
    server.fault(Fault::wrong_body(short).path("/contacts/ada@example.com"));

    let exported = end(&mut audience_at(&server, &["export", "-", "--full"]));

    assert_eq!(exported.code, Some(3), "{exported:?}");
    assert!(!exported.stdout.contains("ada@example.com"), "{exported:?}");
    assert!(exported.stdout.contains("topic:news"), "{exported:?}");
    assert!(exported.stderr.contains("left out"), "{exported:?}");
}

#[cfg(unix)]
#[test]
fn a_value_cannot_control_the_terminal_of_whoever_exports_to_it() {
    let ada = SeedContact::new("ada@example.com").property("plan", "\u{9b}2J");
    let server = MockServer::builder().seed_contact(ada).start_blocking();
    for (format, expected) in [("csv", r"\u{9b}2J"), ("jsonl", r"\u009b2J")] {
        let piped = end(&mut audience_at(
            &server,
            &["export", "-", "--format", format],
        ));
        let shown = shown(&server, &format!("export - --format {format}"));
        let json = end(&mut audience_at(&server, &["export", "-", "--json"]));
        assert_eq!(json.stdout == piped.stdout, format == "jsonl", "{json:?}");

        assert!(piped.stdout.contains("\u{9b}2J"), "{piped:?}");
        assert!(shown.stdout.contains(expected), "{shown:?}");
        assert!(!shown.stdout.contains('\u{9b}'), "{shown:?}");
    }
}

#[test]
fn a_column_in_another_spelling_is_refused_and_spaces_between_columns_are_removed() {
    let server = server();
    let export = |columns: &str| {
        let arguments = ["export", "-", "--full", "--columns", columns];
        end(&mut audience_at(&server, &arguments))
    };

    let spaced = export("email, unsubscribed , topic: news, plan, property:Status");

    assert_eq!(spaced.code, Some(0), "{spaced:?}");
    let (header, lines) = spaced.stdout.split_once('\n').unwrap();
    assert_eq!(header, "email,unsubscribed,topic:news,plan,property:Status");
    assert!(
        lines.contains("ada@example.com,false,true,pro,\n"),
        "{lines}"
    );
    for name in ["Email", "Unsubscribed", "opted out", "Topic:news", "Status"] {
        let refused = export(&format!("email,{name}"));

        assert_eq!(
            (refused.code, &*refused.stdout),
            (Some(2), ""),
            "{refused:?}"
        );
        let advice = format!("`property:{name}` for a property with this name");
        assert!(refused.stderr.contains(&advice), "{refused:?}");
    }
}

#[test]
fn columns_that_an_export_cannot_have_are_a_usage_error_and_the_earlier_export_stays() {
    let folder = Folder::new("export-columns");
    let server = server();
    let file = folder.file("all.csv", "yesterday");
    for (columns, said) in [
        ("", "a column has no name"),
        ("email,", "a column has no name"),
        ("email,property:,plan", "a column has no name"),
        ("email,email", "`email` is given twice"),
        ("email,last_name", "lists lack the column `last_name`"),
    ] {
        for file in [&*file, "-"] {
            let arguments = ["export", file, "--columns", columns];
            let refused = end(&mut audience_at(&server, &arguments));

            assert_eq!(
                (refused.code, &*refused.stdout),
                (Some(2), ""),
                "{refused:?}"
            );
            assert!(refused.stderr.contains(said), "{refused:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "yesterday");
    assert!(server.requests().is_empty());
}

#[test]
fn a_name_without_a_folder_is_a_file_of_the_working_folder() {
    let folder = Folder::new("export-here");
    let server = server();

    let here = end(audience_at(&server, &["export", "all.csv"]).current_dir(folder.path("")));

    assert_eq!(here.code, Some(0), "{here:?}");
    let text = std::fs::read_to_string(folder.path("all.csv")).unwrap();
    assert!(text.contains("ada@example.com"), "{text}");
}

#[test]
fn the_report_is_json_and_the_format_is_known_by_the_name() {
    let folder = Folder::new("export-json");
    let server = server();
    let file = folder.path("all.jsonl");

    let report = end(&mut audience_at(
        &server,
        &["export", &file, "--json", "--query", "ada"],
    ));

    assert_eq!(report.json()[0]["contacts"], 1);
    let contact: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(contact["email"], "ada@example.com");
}

#[test]
fn a_list_with_too_few_contacts_leaves_the_earlier_file_and_names_no_command_to_continue() {
    let folder = Folder::new("export-at-least");
    let server = server();
    let file = folder.file("all.csv", "yesterday");
    let export = |least: &str, flags: &[&str]| {
        let arguments = ["export", &file, "--at-least", least];
        end(audience_at(&server, &arguments).args(flags))
    };

    for flags in [&[][..], &["--resume"], &["--full"], &["--query", "nobody"]] {
        let refused = export("3", flags);

        assert_eq!(
            (refused.code, &*refused.stdout),
            (Some(1), ""),
            "{refused:?}"
        );
        let said = "contacts and not the 3 that the export must have";
        assert!(refused.stderr.contains(said), "{refused:?}");
        assert!(!refused.stderr.contains("to continue"), "{refused:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "yesterday");
    }
    let enough = export("2", &[]);
    assert_eq!(enough.code, Some(0), "{enough:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("ada@example.com"), "{text}");
}

#[test]
fn a_trial_with_the_mock_replaces_no_export() {
    for name in ["all.csv", "all.csv.part", "all.csv.cursor"] {
        let folder = Folder::new("export-mock");
        let last_night = folder.file(name, "of last night");
        let file = folder.path("all.csv");

        let refused = end(&mut audience(["export", &file, "--full", "--mock"]));

        assert_eq!(
            (refused.code, &*refused.stdout),
            (Some(2), ""),
            "{refused:?}"
        );
        let said = format!("{last_night} exists, and --mock replaces no file");
        assert!(refused.stderr.contains(&said), "{refused:?}");
        let text = std::fs::read_to_string(last_night).unwrap();
        assert_eq!(text, "of last night");
        assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 1);

        let new = end(&mut audience([
            "export",
            &folder.path("trial.csv"),
            "--mock",
        ]));
        assert_eq!(new.code, Some(0), "{new:?}");
    }
}

#[test]
fn a_number_of_contacts_for_standard_output_is_a_usage_error() {
    let arguments = ["export", "-", "--at-least", "1"];
    let refused = end(&mut audience_at(&server(), &arguments));

    assert_eq!(
        (refused.code, &*refused.stdout),
        (Some(2), ""),
        "{refused:?}"
    );
    assert!(
        refused.stderr.contains("--at-least needs a FILE"),
        "{refused:?}"
    );
}

#[test]
fn options_that_only_csv_has_are_refused_for_json_lines_and_nothing_is_written() {
    let folder = Folder::new("export-json-options");
    let server = server();
    for options in [
        &["all.jsonl", "--columns", "email"][..],
        &["all.jsonl", "--escape-formulas"],
        &["all.csv", "--format", "jsonl", "--columns", "email"],
        &["-", "--format", "jsonl", "--columns", "email"],
    ] {
        let mut export = audience_at(&server, &["export"]);
        let refused = end(export.args(options).current_dir(folder.path("")));

        assert_eq!(
            (refused.code, &*refused.stdout),
            (Some(2), ""),
            "{refused:?}"
        );
        assert!(refused.stderr.contains("are for CSV"), "{refused:?}");
    }
    assert!(server.requests().is_empty());
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
    let as_csv = [
        "export",
        "all.jsonl",
        "--format",
        "csv",
        "--columns",
        "email",
    ];
    let csv = end(audience_at(&server, &as_csv).current_dir(folder.path("")));
    assert_eq!(csv.code, Some(0), "{csv:?}");
}

#[test]
fn an_export_that_nobody_reads_any_more_ends_quietly() {
    let server = server();
    for flags in [&[][..], &["--full"]] {
        let mut command = audience_at(&server, &["export", "-"]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);

        let child = command
            .args(flags)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn();
        let ended = ended(child.unwrap().wait_with_output().unwrap());

        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_exit_status_1_with_the_reason() {
    let server = server();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();

    let ended = ended(
        audience_at(&server, &["export", "-"])
            .stdout(full)
            .output()
            .unwrap(),
    );

    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("No space left"), "{ended:?}");
}

#[test]
fn a_cursor_file_of_something_else_is_refused_without_the_command_that_would_be_refused_again() {
    let folder = Folder::new("odd-cursor");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("all.csv", "email\n");
    folder.file("all.csv.cursor", "no cursor");

    let ended = end(&mut audience_at(&server, &["export", &file, "--resume"]));

    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("do not resume the export"),
        "{ended:?}"
    );
    assert!(!ended.stderr.contains("to continue"), "{ended:?}");
}

#[test]
fn an_export_whose_recorded_cursor_is_refused_does_not_advise_to_resume() {
    let folder = Folder::new("refused-cursor");
    let server = server_with(250);
    let file = folder.path("all.csv");
    let arguments = ["export", &file, "--columns", "email", "--resume"];
    server.fault(Fault::status(403).after(1));
    let stopped = end(&mut audience_at(&server, &arguments));
    assert!(stopped.stderr.contains("to continue"), "{stopped:?}");
    server.clear_faults();
    let body = r#"{"error": {"code": "validation_error", "message": "unknown cursor"}}"#;
    server.fault(Fault::status(422).body(body));

    let refused = end(&mut audience_at(&server, &arguments));

    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("refuses the recorded cursor"),
        "{refused:?}"
    );
    assert!(!refused.stderr.contains("to continue"), "{refused:?}");
}

/// Returns whether the program listens for SIGTERM. Before that, SIGTERM ends it.
#[cfg(target_os = "linux")]
fn listens_for_sigterm(child: &std::process::Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    // SIGTERM is 15.
    caught & (1 << 14) != 0
}

#[cfg(target_os = "linux")]
#[test]
fn sigterm_ends_an_export_to_a_pipe_that_nobody_reads() {
    let mut builder = MockServer::builder();
    for n in 0..5_000 {
        builder = builder.seed_contact(format!("{n:020}@example.com").as_str());
    }
    let server = builder.start_blocking();
    let mut child = audience_at(&server, &["export", "-", "--columns", "email"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    // A pipe holds 64 KiB. If this ends too early, the program still waits for a page, and the signal ends it even so.
    let mut pages = 0;
    while !listens_for_sigterm(&child) || pages == 0 || pages < server.requests().len() {
        assert!(started.elapsed() < PATIENCE, "it exports nothing");
        pages = server.requests().len();
        std::thread::sleep(Duration::from_millis(300));
    }

    let id = child.id().to_string();
    let sent = std::process::Command::new("kill").arg(id).status();
    assert!(sent.unwrap().success());
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }

    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(143), "{}", ended.stderr);
    assert_eq!(ended.stderr, "audience: interrupted\n");
    assert!(ended.stdout.lines().count() < 5_000);
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_sigterm_name_the_command_that_continues_the_export() {
    for signal in ["-INT", "-TERM"] {
        is_continued_after(signal);
    }
}

#[cfg(unix)]
fn is_continued_after(signal: &str) {
    let folder = Folder::new(&format!("export{signal}"));
    let server = server_with(1_000);
    server.fault(Fault::delay(Duration::from_secs(600)).after(3));
    let file = folder.path("it's all.csv");
    let child = audience_at(&server, &["export", "--columns", "email", "--", &file])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while server.requests().len() < 4 {
        std::thread::sleep(Duration::from_millis(5));
    }

    let id = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args([signal, &id])
        .status();
    assert!(sent.unwrap().success());
    let stopped = ended(child.wait_with_output().unwrap());
    server.clear_faults();
    let (_, command) = stopped.stderr.split_once("to continue: ").unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command]);
    shell
        .env("AUDIENCE_URL", server.url())
        .env("AUDIENCE_KEY", server.full_key());
    let continued = end(&mut shell);

    assert_eq!(
        (stopped.code, continued.code),
        (Some(143), Some(0)),
        "{continued:?}"
    );
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(text.lines().count(), 1_001);
}

#[test]
fn an_export_that_fails_before_it_records_anything_does_not_advise_to_continue_an_older_one() {
    let folder = Folder::new("export-older");
    let server = server_with(250);
    let file = folder.path("all.csv");
    let export = |flags: &[&str]| end(audience_at(&server, &["export", &file]).args(flags));
    let stop_after = |requests: u64| {
        server.clear_faults();
        server.fault(Fault::status(403).after(requests));
    };

    stop_after(1);
    let older = export(&["--columns", "email"]);
    assert!(
        older
            .stderr
            .contains("; 200 contacts are written; to continue: "),
        "{older:?}"
    );
    let record = std::fs::read(folder.path("all.csv.cursor")).unwrap();
    stop_after(0);
    let stopped = export(&[]);

    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    assert!(!stopped.stderr.contains("to continue"), "{stopped:?}");
    assert!(!stopped.stderr.contains("are written"), "{stopped:?}");
    assert_eq!(
        std::fs::read(folder.path("all.csv.cursor")).unwrap(),
        record
    );

    // Whoever continues the older one may continue it again.
    let resumed = export(&["--columns", "email", "--resume"]);
    assert!(
        resumed
            .stderr
            .contains("; 200 contacts are written; to continue: "),
        "{resumed:?}"
    );
    // And one that stops at the same place as the older one has recorded it.
    stop_after(1);
    let again = export(&["--columns", "email"]);
    assert!(again.stderr.contains("; to continue: "), "{again:?}");
}

#[test]
fn an_export_of_a_list_that_repeats_a_page_does_not_advise_to_continue() {
    let folder = Folder::new("export-repeated");
    let ada = SeedContact::new("ada@example.com").id("c_1");
    let server = MockServer::builder().seed_contact(ada).start_blocking();
    let page = r#"{"data": [{"id": "c_1", "email": "ada@example.com", "unsubscribed": false, "created_at": 1}], "next": "c_1"}"#;
    server.fault(Fault::wrong_body(page));

    let stopped = end(&mut audience_at(
        &server,
        &["export", &folder.path("all.csv"), "--columns", "email"],
    ));

    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    assert!(
        stopped.stderr.contains("repeated a cursor or a page"),
        "{stopped:?}"
    );
    assert!(!stopped.stderr.contains("to continue"), "{stopped:?}");
}
