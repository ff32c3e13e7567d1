//! `audience sync`.

use std::io::Write as _;
use std::process::Stdio;

#[cfg(unix)]
use audience::mock::Dialect;
#[cfg(unix)]
use audience::mock::dialect::ContactDeletion;
use audience::mock::{Fault, MockServer};
use serde_json::json;

#[cfg(unix)]
use super::terminal;
use super::{Folder, audience, audience_at, end};

const TABLE: &str = "\
id,email,first_name,newsletter
1,ada@example.com,Ada,1
2,bob@example.com,Bob,0
";

fn sync<'a>(file: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    let columns = [
        "sync",
        file,
        "--key",
        "id",
        "--map",
        "newsletter=subscribed",
        "--yes",
    ];
    [&columns[..], flags].concat()
}

/// The requests that change something, since the last call.
fn changes(server: &MockServer) -> Vec<String> {
    let requests = server.requests().into_iter();
    let changes = requests.filter(|request| request.method != "GET");
    let changes = changes.map(|request| request.path).collect();
    server.clear_requests();
    changes
}

#[test]
fn only_what_has_changed_is_sent_and_opt_outs_come_first() {
    let folder = Folder::new("sync");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);

    let first = end(&mut audience_at(&server, &sync(&file, &["--json"])));
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(first.json()[0]["changes"]["created"], 2);
    assert!(server.contact("bob@example.com").unwrap().unsubscribed);
    changes(&server);

    let same = end(&mut audience_at(&server, &sync(&file, &["--json"])));
    assert_eq!(
        (same.code, &same.json()[0]["unchanged"]),
        (Some(0), &json!(2))
    );
    assert!(changes(&server).is_empty());

    folder.file(
        "users.csv",
        TABLE.replace("Ada,1", "Ada,0").replace("Bob", "Robert"),
    );
    let changed = end(&mut audience_at(&server, &sync(&file, &[])));
    assert_eq!(changed.code, Some(0), "{changed:?}");
    let sent = changes(&server);
    assert_eq!(
        sent,
        ["/contacts/ada%40example.com/unsubscribe", "/contacts/batch"]
    );
    let bob = server.contact("bob@example.com").unwrap();
    assert_eq!(
        (bob.first_name.as_deref(), bob.unsubscribed),
        (Some("Robert"), true)
    );
}

#[test]
fn a_dry_run_says_what_would_be_sent_and_shows_the_columns_and_a_nightly_run_does_not() {
    let folder = Folder::new("sync-dry-run");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);

    let first = end(&mut audience_at(&server, &sync(&file, &["--dry-run"])));
    assert_eq!(first.code, Some(0), "{first:?}");
    let columns = "  newsletter               subscribed\n";
    assert!(first.stdout.contains(columns), "{}", first.stdout);
    assert!(
        first.stdout.ends_with(
            "dry run: nothing was sent; 0 contacts would be opted out, 2 rows would be sent, 0 are unchanged, 0 would be \
             refused, and 0 opt-ins would not be sent\n"
        ),
        "{}",
        first.stdout
    );

    let nightly = end(&mut audience_at(&server, &sync(&file, &[])));
    assert_eq!(nightly.stdout.lines().count(), 1, "{}", nightly.stdout);
}

#[test]
fn an_opt_in_of_the_table_is_not_sent_and_is_a_reject() {
    let folder = Folder::new("sync-opt-in");
    let server = MockServer::builder().start_blocking();
    let (file, rejects) = (folder.file("users.csv", TABLE), folder.path("rejects.csv"));
    end(&mut audience_at(&server, &sync(&file, &[])));
    folder.file("users.csv", TABLE.replace("Bob,0", "Bob,1"));

    let ended = end(&mut audience_at(
        &server,
        &sync(&file, &["--rejects", &rejects]),
    ));

    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(
        ended.stdout.contains("1 opt-ins not sent"),
        "{}",
        ended.stdout
    );
    assert!(server.contact("bob@example.com").unwrap().unsubscribed);
    #[cfg(unix)]
    {
        let mode = std::fs::metadata(&rejects).unwrap().permissions();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode);
        assert_eq!(mode & 0o777, 0o600, "they have addresses");
    }
    let rejects = std::fs::read_to_string(rejects).unwrap();
    assert!(rejects.contains("opt_in_not_sent"), "{rejects}");
    assert!(rejects.contains("bob@example.com"), "{rejects}");
}

#[cfg(unix)]
#[test]
fn a_person_whose_row_is_gone_is_erased_from_the_service_and_from_the_state_file() {
    let folder = Folder::new("sync-erase");
    let dialect = Dialect {
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).start_blocking();
    let (file, state) = (folder.path("users.csv"), folder.path("users.csv.sync"));
    let moved = TABLE.replace("ada@example.com", "ada@example.net");
    let gone = "id,email,first_name,newsletter\n2,bob@example.com,Bob,0\n";
    for table in [TABLE, &moved, gone] {
        folder.file("users.csv", table);
        let ended = end(&mut audience_at(
            &server,
            &sync(&file, &["--deletes-missing"]),
        ));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let erase = |address: &str, key: &str, state: &str| {
        let erase = ["contacts", "erase", address, "--key", key, "--state", state];
        end(audience_at(&server, &erase).args(["--yes", "--json"]))
    };

    let no_state = erase("ada@example.net", "1", &folder.path("typo.sync"));
    let living = erase("bob@example.com", "2", &state);
    let erased = erase("ada@example.net", "1", &state);
    let kept = erase("bob@example.com", "1", &state);

    assert_eq!(no_state.code, Some(1), "{no_state:?}");
    assert_eq!(no_state.stderr.matches("typo.sync").count(), 1);
    assert!(!std::fs::exists(folder.path("typo.sync")).unwrap());
    assert_eq!(living.code, Some(1), "{living:?}");
    let error: serde_json::Value = serde_json::from_str(&living.stderr).unwrap();
    assert_eq!(error["outcome"], "not_sent");
    let done = |email: &str, erasure: &str| json!({"email": email, "erasure": erasure});
    let both = ["ada@example.net", "ada@example.com"].map(|email| done(email, "deleted"));
    assert_eq!((erased.code, erased.json()), (Some(0), both.to_vec()));
    let bob = vec![done("bob@example.com", "kept")];
    assert_eq!((kept.code, kept.json()), (Some(3), bob));
    assert!(server.contact("bob@example.com").is_some());
    let state = std::fs::read_to_string(state).unwrap();
    assert!(state.contains("bob@") && !state.contains("ada@"), "{state}");
}

#[test]
fn the_error_of_a_job_has_no_outcome_because_earlier_requests_may_have_changed_something() {
    let folder = Folder::new("sync-outcome");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);
    server.fault(Fault::status(401));

    let ended = end(&mut audience_at(&server, &sync(&file, &["--json"])));

    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line = ended.stderr.lines().last().unwrap();
    let error: serde_json::Value = serde_json::from_str(line).unwrap();
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("the sync "), "{error}");
    assert_eq!(error.get("outcome"), None, "{error}");
}

#[test]
fn a_row_without_a_key_is_refused_and_the_others_are_sent() {
    let folder = Folder::new("sync-no-key");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", format!("{TABLE},eve@example.com,Eve,1\n"));
    let rejects = folder.path("rejects.csv");

    let ended = end(&mut audience_at(
        &server,
        &sync(&file, &["--rejects", &rejects]),
    ));

    assert_eq!(
        (ended.code, server.contact_count()),
        (Some(3), 2),
        "{ended:?}"
    );
    let rejects = std::fs::read_to_string(rejects).unwrap();
    assert!(rejects.contains("the row has no key"), "{rejects}");
    assert!(rejects.contains("eve@example.com"), "{rejects}");
}

#[test]
fn the_rejects_have_the_columns_of_the_file_although_a_key_occurs_twice() {
    let folder = Folder::new("sync-key-twice");
    let server = MockServer::builder().start_blocking();
    let more = "1,eve@example.com,Eve,1\n3,nobody,Cy,1\n";
    let file = folder.file("users.csv", format!("{TABLE}{more}"));
    let rejects = folder.path("rejects.csv");

    let ended = end(&mut audience_at(
        &server,
        &sync(&file, &["--rejects", &rejects]),
    ));

    assert_eq!(ended.code, Some(3), "{ended:?}");
    let text = std::fs::read_to_string(rejects).unwrap();
    let twice = "\n4,invalid_row,an earlier row has the same key,false,1,eve@example.com,Eve,1\n";
    assert!(text.contains(twice), "{text}");
    assert_eq!(imported_from_rejects(&folder, &server, &text), Some(0));
}

#[test]
fn the_rejects_have_the_columns_of_the_file_although_the_opt_out_of_a_missing_row_comes_first() {
    let folder = Folder::new("sync-missing-first");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);
    end(&mut audience_at(&server, &sync(&file, &[])));
    let without_ada = TABLE.replace("1,ada@example.com,Ada,1\n", "");
    folder.file("users.csv", without_ada + "3,nobody,Cy,1\n");
    let rejects = folder.path("rejects.csv");
    server.fault(Fault::status(501).path("/contacts/*/unsubscribe"));

    let flags = ["--deletes-missing", "--rejects", &rejects];
    let ended = end(&mut audience_at(&server, &sync(&file, &flags)));

    assert_eq!(ended.code, Some(1), "{ended:?}");
    let text = std::fs::read_to_string(rejects).unwrap();
    let missing = text.lines().nth(1).unwrap();
    assert!(missing.starts_with(",opt_out_failed,"), "{text}");
    assert!(missing.contains("ada@example.com"), "{text}");
    server.clear_faults();
    // The missing row is not in the file, so it is not read under the names of its columns.
    assert_eq!(imported_from_rejects(&folder, &server, &text), Some(3));
}

/// Mends the row of Cy and imports the rejects. Returns the exit status.
fn imported_from_rejects(folder: &Folder, server: &MockServer, rejects: &str) -> Option<i32> {
    let header = rejects.lines().next().unwrap();
    assert!(
        header.starts_with("line,code,message,retryable,id"),
        "{rejects}"
    );
    let mended = folder.file("mended.csv", rejects.replace("nobody", "cy@example.com"));

    let imported = end(&mut audience_at(server, &["import", &mended, "--yes"]));

    let cy = server.contact("cy@example.com");
    let name = cy.and_then(|cy| cy.first_name);
    assert_eq!(name.as_deref(), Some("Cy"), "{imported:?}");
    imported.code
}

#[test]
fn a_row_without_an_address_does_not_keep_the_missing_rows_subscribed() {
    let folder = Folder::new("sync-no-address");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE.replace("Bob,0", "Bob,1"));
    end(&mut audience_at(&server, &sync(&file, &[])));
    let header = TABLE.lines().next().unwrap();
    folder.file("users.csv", format!("{header}\n1,,Ada,1\n"));

    let flags = ["--deletes-missing", "--json"];
    let ended = end(&mut audience_at(&server, &sync(&file, &flags)));

    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(ended.json()[0]["missing_ignored"], false);
    assert!(server.contact("bob@example.com").unwrap().unsubscribed);
    assert!(!server.contact("ada@example.com").unwrap().unsubscribed);
}

#[test]
fn a_row_whose_key_cannot_be_read_keeps_the_missing_rows_subscribed_and_the_program_says_so() {
    let folder = Folder::new("sync-cut-row");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE.replace("Bob,0", "Bob,1"));
    end(&mut audience_at(&server, &sync(&file, &[])));
    let header = TABLE.lines().next().unwrap();
    let damaged = b"2\xff,,Bob,1";

    for row in [
        &b"2,bob@exam"[..],
        b"2,,Bob,1,",
        b",bob@example.com,Bob,1",
        damaged,
    ] {
        folder.file("users.csv", [header.as_bytes(), b"\n", row, b"\n"].concat());
        let dry = end(&mut audience_at(
            &server,
            &sync(
                &file,
                &["--deletes-missing", "--dry-run", "--leave-at-most", "9"],
            ),
        ));
        let ended = end(&mut audience_at(
            &server,
            &sync(&file, &["--deletes-missing"]),
        ));

        assert_eq!((dry.code, ended.code), (Some(3), Some(1)), "{ended:?}");
        assert!(
            dry.stdout
                .contains("--deletes-missing would opt out nobody"),
            "{dry:?}"
        );
        assert!(
            ended
                .stderr
                .contains("nobody was opted out because a row is missing"),
            "{ended:?}"
        );
        assert!(ended.stderr.contains("correct the table"), "{ended:?}");
        for address in ["ada@example.com", "bob@example.com"] {
            assert!(!server.contact(address).unwrap().unsubscribed);
        }
    }
}

#[test]
fn a_table_that_cannot_be_read_to_its_end_is_exit_status_1_with_the_reason() {
    let folder = Folder::new("sync-cut-off");
    let server = MockServer::builder().start_blocking();
    let rest = "3,eve@example.com,\"Eve,1\n4,dan@example.com,Dan,1\n";
    let file = folder.file("users.csv", format!("{TABLE}{rest}"));
    let rejects = folder.path("rejects.csv");

    for flags in [&["--dry-run"][..], &["--deletes-missing"]] {
        let flags = [flags, &["--rejects", &rejects]].concat();
        let ended = end(&mut audience_at(&server, &sync(&file, &flags)));

        assert_eq!(ended.code, Some(1), "{ended:?}");
        let reason = "line 4: a quote in this row is not closed";
        assert!(ended.stderr.contains(reason), "{ended:?}");
        for other in ["--leave-at-most", "to continue"] {
            assert!(!ended.stderr.contains(other), "{ended:?}");
        }
        let rejects = std::fs::read_to_string(&rejects).unwrap();
        assert!(
            rejects.contains("\n4,invalid_row,\"a quote in this row is not closed"),
            "{rejects}"
        );
    }
    assert_eq!(server.contact_count(), 2);
}

#[test]
fn the_json_of_a_run_counts_the_opt_outs_as_that_of_a_dry_run_does() {
    let folder = Folder::new("sync-json");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);
    end(&mut audience_at(&server, &sync(&file, &[])));
    folder.file("users.csv", TABLE.replace("Ada,1", "Ada,0"));

    for flags in [&["--json", "--dry-run"][..], &["--json"]] {
        let ended = end(&mut audience_at(&server, &sync(&file, flags)));

        let report = &ended.json()[0];
        assert_eq!(
            (&report["opted_out"], &report["unchanged"]),
            (&json!(1), &json!(1)),
            "{ended:?}"
        );
    }
}

#[test]
fn with_checks_list_a_contact_that_was_subscribed_by_hand_is_opted_out() {
    let folder = Folder::new("sync-checks-list");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);
    end(&mut audience_at(&server, &sync(&file, &[])));
    let subscribe = ["contacts", "subscribe", "bob@example.com", "--yes"];
    end(&mut audience_at(&server, &subscribe));
    changes(&server);

    let without = end(&mut audience_at(&server, &sync(&file, &["--json"])));
    let flags = ["--checks-list", "--json"];
    let with = end(&mut audience_at(&server, &sync(&file, &flags)));

    assert_eq!((without.code, with.code), (Some(0), Some(0)), "{with:?}");
    let opted_out = [without, with].map(|ended| ended.json()[0]["opted_out"].clone());
    assert_eq!(opted_out, [json!(0), json!(1)]);
    assert_eq!(
        changes(&server),
        ["/contacts/bob%40example.com/unsubscribe"]
    );
}

#[test]
fn the_json_has_the_keys_of_the_rows_whose_contacts_have_opted_out_at_the_service() {
    let folder = Folder::new("sync-at-service");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);
    end(&mut audience_at(&server, &sync(&file, &[])));
    server.report_spam("ada@example.com");

    let flags = ["--checks-list", "--json"];
    let ended = end(&mut audience_at(&server, &sync(&file, &flags)));

    assert_eq!(ended.code, Some(3), "{ended:?}");
    let report = &ended.json()[0];
    assert_eq!(report["opted_out_at_service"], json!(["1"]));
    // The opt-out is written into the table.
    folder.file("users.csv", TABLE.replace("Ada,1", "Ada,0"));
    changes(&server);
    let ended = end(&mut audience_at(&server, &sync(&file, &flags)));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(changes(&server).is_empty());
}

#[test]
fn with_checks_topic_a_topic_opt_out_is_sent_again_and_the_json_has_the_keys_of_each_topic() {
    let folder = Folder::new("sync-checks-topic");
    let server = MockServer::builder().topic("weekly", true);
    let server = server.topic("offers", true).start_blocking();
    let table = "id,email,weekly,offers\n1,ada@example.com,yes,yes\n2,bob@example.com,no,yes\n";
    let file = folder.file("users.csv", table);
    let maps = [
        "--map",
        "weekly=topic:weekly",
        "--map",
        "offers=topic:offers",
    ];
    let sync = |flags: &[&str]| {
        let start = ["sync", &file, "--key", "id", "--yes"];
        end(&mut audience_at(
            &server,
            &[&start[..], &maps, flags].concat(),
        ))
    };
    assert_eq!(sync(&[]).code, Some(0));
    for (call, address) in [
        ("unsubscribe", "ada@example.com"),
        ("subscribe", "bob@example.com"),
    ] {
        let arguments = ["contacts", call, address, "--topic", "weekly", "--yes"];
        end(&mut audience_at(&server, &arguments));
    }
    changes(&server);

    let topics = ["--checks-topic", "weekly", "--checks-topic", "offers"];
    let dry = sync(&[&topics[..], &["--dry-run"]].concat());
    let ended = sync(&[&topics[..], &["--json"]].concat());

    assert_eq!((dry.code, ended.code), (Some(3), Some(3)), "{ended:?}");
    let line = "1 rows are not opted out of the topic weekly, but their contacts are";
    assert!(dry.stdout.contains(line), "{dry:?}");
    assert!(!dry.stdout.contains("of the topic offers"), "{dry:?}");
    let report = &ended.json()[0];
    let keys = json!({"offers": [], "weekly": ["1"]});
    assert_eq!(
        (&report["opted_out_of"], &report["opted_out"]),
        (&keys, &json!(1))
    );
    assert_eq!(
        changes(&server),
        ["/contacts/bob%40example.com/unsubscribe"]
    );
}

#[test]
fn a_full_plan_is_exit_status_1_even_if_every_row_was_sent() {
    let folder = Folder::new("sync-full");
    let server = MockServer::builder().start_blocking();
    server.set_ceiling(Some(1));
    let file = folder.file("users.csv", TABLE);

    let full = end(&mut audience_at(&server, &sync(&file, &[])));
    let import = ["import", &file, "--map", "newsletter=subscribed", "--yes"];
    let import = end(&mut audience_at(&server, &import));

    for ended in [full, import] {
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("is not finished"), "{ended:?}");
    }
}

#[test]
fn a_table_that_was_emptied_by_accident_opts_nobody_out() {
    let folder = Folder::new("sync-emptied");
    let server = MockServer::builder().start_blocking();
    let rows = |count: u32| {
        let rows = (0..count).map(|n| format!("{n},{n}@example.com\n"));
        format!("id,email\n{}", rows.collect::<String>())
    };
    let file = folder.file("users.csv", rows(150));
    let sync = |flags: &[&str]| {
        let arguments = ["sync", &file, "--key", "id", "--deletes-missing", "--yes"];
        end(&mut audience_at(&server, &[&arguments[..], flags].concat()))
    };
    assert_eq!(sync(&[]).code, Some(0));
    folder.file("users.csv", rows(10));
    changes(&server);

    let refused = sync(&[]);

    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("140"), "{}", refused.stderr);
    // It names the option, and not the command that would fail again.
    assert!(
        refused.stderr.contains("--leave-at-most N"),
        "{}",
        refused.stderr
    );
    // Another state file would forget the contacts whose rows are gone.
    for other in ["to continue", "leave_at_most", "--state"] {
        assert!(!refused.stderr.contains(other), "{}", refused.stderr);
    }
    assert!(changes(&server).is_empty());
    let dry = sync(&["--leave-at-most", "140", "--dry-run"]);
    assert!(
        dry.stdout.ends_with(
            "\ndry run: nothing was sent; 140 contacts would be opted out, 0 rows would be sent, 10 are unchanged, 0 \
             would be refused, and 0 opt-ins would not be sent\n"
        ),
        "{dry:?}"
    );
    assert!(changes(&server).is_empty());
    assert_eq!(sync(&["--leave-at-most", "140"]).code, Some(0));
    assert!(server.contact("149@example.com").unwrap().unsubscribed);
}

#[test]
fn the_key_of_another_audience_is_not_advised_to_use_another_state() {
    let folder = Folder::new("sync-audience");
    let server = MockServer::builder().start_blocking();
    let rows: String = (0..8).map(|n| format!("{n},{n}@example.com\n")).collect();
    let table = format!("id,email\n{rows}");
    let file = folder.file("users.csv", &table);
    let sync = |server: &MockServer| {
        let arguments = ["sync", &file, "--key", "id", "--yes"];
        end(&mut audience_at(server, &arguments))
    };
    assert_eq!(sync(&server).code, Some(0));
    folder.file("users.csv", table + "8,8@example.com\n");
    server.reset();

    let audience = sync(&server);
    let elsewhere = MockServer::builder().start_blocking();
    let service = sync(&elsewhere);

    for (refused, said) in [
        (&audience, "the key may be that of another audience"),
        (&service, "another service"),
    ] {
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
        for other in ["--leave-at-most", "to continue"] {
            assert!(!refused.stderr.contains(other), "{refused:?}");
        }
    }
    // It would send the whole table to that audience.
    assert!(!audience.stderr.contains("--state"), "{audience:?}");
    assert!(service.stderr.contains("--state FILE"), "{service:?}");
    assert!(changes(&server).is_empty() && changes(&elsewhere).is_empty());
}

#[test]
fn the_contacts_of_missing_rows_are_opted_out_only_with_yes_if_there_is_no_terminal() {
    let folder = Folder::new("sync-missing-question");
    let server = MockServer::builder().start_blocking();
    let table = TABLE.replace("Bob,0", "Bob,1");
    let file = folder.file("users.csv", &table);
    end(&mut audience_at(&server, &sync(&file, &[])));
    folder.file(
        "users.csv",
        table.lines().take(2).collect::<Vec<_>>().join("\n"),
    );
    changes(&server);
    let without_yes = |flags: &[&str]| {
        let arguments = [
            "sync",
            &file,
            "--key",
            "id",
            "--map",
            "newsletter=subscribed",
        ];
        end(&mut audience_at(&server, &[&arguments[..], flags].concat()))
    };

    let refused = without_yes(&["--deletes-missing"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    let question = "change an unknown number of contacts at";
    assert!(refused.stderr.contains(question), "{refused:?}");
    assert!(changes(&server).is_empty());
    // This changes one contact at most.
    assert_eq!(without_yes(&[]).code, Some(0));
}

#[test]
fn what_a_sync_needs_is_said_before_anything_is_sent() {
    let folder = Folder::new("sync-usage");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);
    let mapped = ["--map", "newsletter=subscribed"];
    for (arguments, reason) in [
        (&["sync", &file, "--yes"][..], "--key COLUMN"),
        (&["sync", &file, "--yes", "--key", "number"], "number"),
        (&["sync", "-", "--yes", "--key", "id"], "--state"),
        (&["sync", &file, "--key", "id"], "--yes"),
    ] {
        let mut command = audience_at(&server, arguments);
        command
            .args(mapped)
            .stdin(std::fs::File::open(&file).unwrap());

        let ended = end(&mut command);

        assert_ne!(ended.code, Some(0), "{arguments:?}");
        assert!(ended.stderr.contains(reason), "{ended:?}");
    }
    assert!(server.requests().is_empty());

    let rejects = folder.path("users.csv.sync");
    let ended = end(&mut audience_at(
        &server,
        &sync(&file, &["--rejects", &rejects]),
    ));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("must not be the state"), "{ended:?}");
    #[cfg(unix)]
    {
        for input in [Stdio::piped(), std::fs::File::open(&file).unwrap().into()] {
            let mut command = audience_at(&server, &sync("/dev/stdin", &[]));
            let ended = end(command.stdin(input));
            assert_eq!(ended.code, Some(2), "{ended:?}");
            assert!(ended.stderr.contains("--state"), "{ended:?}");
        }
        let state = folder.path("state");
        let mut command = audience_at(&server, &sync("-", &["--state", &state]));
        command
            .args(["--rejects", &file])
            .stdin(std::fs::File::open(&file).unwrap());
        let ended = end(&mut command);
        let said = "--rejects must not be the file to read";
        assert!(ended.stderr.contains(said), "{ended:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), TABLE);
    }
}

#[cfg(unix)]
#[test]
fn a_yes_after_another_sync_does_not_send_the_table_from_before_the_question() {
    if !support::has_script() {
        return;
    }
    let folder = Folder::new("sync-question");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE.replace("Bob,0", "Bob,1"));
    end(&mut audience_at(&server, &sync(&file, &[])));
    let arguments = format!("sync {file} --key id --map newsletter=subscribed");
    let asked = terminal::ask(&server, &arguments);

    // The nightly job has a newer table, in which Ada has another name. The file that is open keeps the older one.
    std::fs::remove_file(&file).unwrap();
    folder.file("users.csv", TABLE.replace("Ada,1", "Adele,1"));
    let nightly = end(&mut audience_at(&server, &sync(&file, &[])));
    changes(&server);
    let asked = asked.answer("y\n");

    assert_eq!(nightly.code, Some(0), "{nightly:?}");
    assert_eq!(asked.code, Some(75), "{asked:?}");
    assert!(asked.stdout.contains("another sync has used"), "{asked:?}");
    assert!(changes(&server).is_empty());
    let ada = server.contact("ada@example.com").unwrap();
    assert_eq!(ada.first_name.as_deref(), Some("Adele"));
}

#[cfg(unix)]
#[test]
fn a_table_from_a_pipe_is_not_sent_if_another_sync_ran_while_it_was_made() {
    let folder = Folder::new("sync-pipe");
    let server = MockServer::builder().start_blocking();
    let (file, state) = (folder.file("users.csv", TABLE), folder.path("state"));
    let to_state = ["--state", &state];
    let mut piped = audience_at(&server, &sync("-", &to_state));
    let piped = piped.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut piped = piped.stdout(Stdio::piped()).spawn().unwrap();
    let older = TABLE.replace("Bob,0", "Bob,1");
    let (header, rows) = older.split_once('\n').unwrap();
    // The spaces after the last name do not fit into the pipe. When they are written, the program reads its input, and has
    // opened the state before.
    let mut input = piped.stdin.take().unwrap();
    let spaces = " ".repeat(300_000);
    input
        .write_all((header.to_owned() + &spaces).as_bytes())
        .unwrap();
    assert!(std::fs::exists(&state).unwrap());

    let nightly = end(&mut audience_at(&server, &sync(&file, &to_state)));
    changes(&server);
    input.write_all(format!("\n{rows}").as_bytes()).unwrap();
    drop(input);
    let piped = super::ended(piped.wait_with_output().unwrap());

    assert_eq!(nightly.code, Some(0), "{nightly:?}");
    assert_eq!(piped.code, Some(75), "{piped:?}");
    assert!(piped.stderr.contains("another sync has used"), "{piped:?}");
    assert!(changes(&server).is_empty());
}

#[test]
fn a_mistake_in_the_options_leaves_no_state_behind() {
    let folder = Folder::new("sync-mistake");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);
    let typo = folder.path("user.csv");
    for arguments in [
        &["sync", &typo, "--yes", "--key", "id"][..],
        &["sync", &file, "--yes"],
        &["sync", &file, "--yes", "--key", "number"],
        &[
            "sync",
            &file,
            "--yes",
            "--key",
            "id",
            "--map",
            "email=ignore",
        ],
    ] {
        let ended = end(&mut audience_at(&server, arguments));

        assert_ne!(ended.code, Some(0), "{ended:?}");
        let left = std::fs::read_dir(folder.path("")).unwrap();
        assert_eq!(left.count(), 1, "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_trial_with_the_mock_leaves_no_state_behind() {
    let folder = Folder::new("sync-mock");
    let file = folder.file("users.csv", TABLE);

    let ended = end(&mut audience(sync(&file, &["--mock"])));

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("2 created"), "{}", ended.stdout);
    let left = std::fs::read_dir(folder.path("")).unwrap();
    assert_eq!(left.count(), 1);
}

#[test]
fn a_trial_with_the_mock_has_the_topics_of_the_table() {
    let folder = Folder::new("sync-mock-topics");
    let table = "id,email,weekly,offers\n1,ada@example.com,no,yes\n";
    let file = folder.file("users.csv", table);
    let maps = ["--map", "weekly=topic:weekly", "--map", "offers=ignore"];
    let checks = ["--checks-topic", "offers", "--key", "id", "--mock", "--yes"];

    let ended = end(&mut audience(
        [&["sync", &file], &maps[..], &checks].concat(),
    ));

    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn rejects_replace_no_other_file_than_the_rejects_of_the_last_night() {
    let folder = Folder::new("sync-rejects-other-file");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("users.csv", TABLE);
    let other = folder.file("other.csv", TABLE);

    let ended = end(&mut audience_at(
        &server,
        &sync(&file, &["--rejects", &other]),
    ));

    assert_eq!(ended.code, Some(2), "{ended:?}");
    let said = format!("{other} exists, and it has no rejects of an earlier run");
    assert!(ended.stderr.contains(&said), "{ended:?}");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), TABLE);
    assert!(changes(&server).is_empty());
}

#[test]
fn a_trial_with_the_mock_leaves_the_rejects_of_the_last_night() {
    let folder = Folder::new("rejects-mock");
    let file = folder.file("users.csv", TABLE);
    let rejects = folder.file("rejects.csv", "of the last night");
    let import = ["import", &file, "--map", "newsletter=subscribed"];
    for command in [&sync(&file, &[])[..], &import] {
        let trial = |rejects: &str| {
            let flags = ["--mock", "--rejects", rejects];
            end(&mut audience([command, &flags].concat()))
        };

        let refused = trial(&rejects);

        assert_eq!(
            (refused.code, &*refused.stdout),
            (Some(2), ""),
            "{refused:?}"
        );
        let said = format!("{rejects} exists, and --mock replaces no file");
        assert!(refused.stderr.contains(&said), "{refused:?}");
        let text = std::fs::read_to_string(&rejects).unwrap();
        assert_eq!(text, "of the last night");

        let others = [folder.file("empty.csv", ""), folder.path("new.csv")];
        for other in others {
            let done = trial(&other);
            assert_eq!(done.code, Some(0), "{done:?}");
        }
    }
}
