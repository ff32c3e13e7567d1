//! The files of journals: torn, foreign, shared or impossible to write.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use audience::import::Journal;
use audience::mock::{Fault, MockServer};
use audience::{Client, ErrorKind};

use super::{JournalPath, contacts, counts, numbered, with_journal};
use support::examples::program;
use support::{fast_retries, in_time};

#[tokio::test]
async fn a_journal_that_was_cut_at_any_byte_is_continued() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    drop(with_journal(contacts.import(numbered(250)), &journal).await);
    let whole = journal.read();
    let header = whole.find('\n').unwrap() + 1;

    for length in (0..whole.len()).filter(|n| *n < 8 || n % 13 == 0 || n.abs_diff(header) < 3) {
        for zeros in [0, 5] {
            journal.write(&whole[..length]);
            if zeros > 0 && length >= header && !whole[..length].ends_with('\n') {
                let zeros = "\0".repeat(zeros);
                journal.write(format!("{}{zeros}", &whole[..length]));
            }
            let import = contacts.import(numbered(250)).journal(journal.open());
            let report = in_time(import).await.unwrap();

            assert_eq!(report.created() + report.updated(), 250, "{length}");
            let resumed = in_time(contacts.import(numbered(250)).journal(journal.open())).await;
            assert_eq!(resumed.unwrap().total(), 250, "{length}");
        }
    }
}

#[test]
fn a_file_of_another_program_is_refused_and_left_as_it_is() {
    let finished = r#"{"finished":{"rows":[[0,0]],"fingerprint":1,"outcomes":"c"}}"#;
    let header = r#"{"import":{"version":1,"service":"s","first_rows":1,"fingerprint":1}}"#;
    for content in [
        "email,name\nada@x.io,Ada\n",
        "email,name",
        "{}\n",
        "{\"import\":{\"foo\":1}}",
        "{\"import\": not json",
        "\0\0\0",
        "\n",
        "[",
        finished,
        &format!("{finished}\n"),
        &format!("{header}\n{header}\n"),
        &format!("{header}\n{finished}\n{finished}\n"),
        &format!("{header}\n{{}}"),
        &format!(
            "{header}\n{{\"finished\":{{\"rows\":[[0,99]],\"fingerprint\":1,\"outcomes\":\"c\"}}}}\n"
        ),
        &format!("{header}\n{{\"started\":[[0,18446744073709551615]]}}\n"),
        &(header.replace("\"first_rows\":1", "\"first_rows\":101") + "\n"),
    ] {
        let journal = JournalPath::new();
        journal.write(content);

        let refused = Journal::open(&journal);

        if let Err(error) = &refused {
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("choose another file"), "{error}");
        }
        assert!(refused.is_err(), "{content}");
        assert_eq!(journal.read(), content);
    }
}

#[test]
fn opening_a_journal_does_not_change_it() {
    let header = r#"{"import":{"version":1,"service":"s","first_rows":1,"fingerprint":1}}"#;
    let journal = JournalPath::new();
    let torn = format!("{header}\n{{\"finis");
    journal.write(&torn);

    assert!(!journal.open().is_empty());

    assert_eq!(journal.read(), torn);
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_is_no_journal() {
    for device in ["/dev/full", "/dev/zero", "/dev/null"] {
        let error = Journal::open(device).unwrap_err();

        assert_eq!(error.to_string(), "the journal must be a regular file");
    }
    assert!(Journal::open("/no/such/directory/journal").is_err());
}

#[tokio::test]
async fn a_second_import_with_the_same_journal_is_refused_while_the_first_runs() {
    let server = MockServer::start().await;
    // No attempt of the first one gets a response.
    server.fault(Fault::delay(Duration::from_secs(600)));
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    let first = contacts.import(numbered(50)).journal(journal.open());
    let first = tokio::spawn(first.into_future());
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    let second = in_time(contacts.import(numbered(50)).journal(journal.open())).await;

    let second = second.unwrap_err();
    assert!(second.error().is_retryable());
    assert!(
        second
            .error()
            .to_string()
            .contains("another import is using the journal")
    );
    first.abort();
    server.clear_faults();
    let third = with_journal(contacts.import(numbered(50)), &journal).await;
    assert_eq!(counts(&third), [0, 50, 0, 0, 0, 0]);
}

#[test]
fn a_second_process_with_the_same_journal_is_refused_until_the_first_has_ended_in_any_way() {
    let server = MockServer::builder().start_blocking();
    // No attempt of the first process gets a response.
    server.fault(Fault::delay(Duration::from_secs(600)));
    let journal = JournalPath::new();
    let rows = journal.0.with_extension("csv");
    std::fs::write(&rows, "email\nada@x.io\n").unwrap();
    let start = |key: &str| {
        let mut command = Command::new(program("audience"));
        command
            .arg("import")
            .arg(&rows)
            .arg("--journal")
            .arg(&journal.0)
            .arg("--resume");
        command
            .env("AUDIENCE_URL", server.url())
            .env("AUDIENCE_KEY", key);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut first = start(server.full_key());
    while server.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }

    let second = start("another-key").wait_with_output().unwrap();

    assert_eq!(second.status.code(), Some(75));
    let message = String::from_utf8_lossy(&second.stderr);
    assert!(
        message.contains("another import is using the journal"),
        "{message}"
    );
    // The first process may have made another attempt.
    let mut requests = server.requests().into_iter();
    assert!(
        requests.all(|request| request.status != Some(401)),
        "the second process sends nothing"
    );

    first.kill().unwrap();
    first.wait().unwrap();
    server.clear_faults();
    let third = start(server.full_key()).wait_with_output().unwrap();
    std::fs::remove_file(rows).unwrap();
    assert!(
        third.status.success(),
        "{}",
        String::from_utf8_lossy(&third.stderr)
    );
}

#[tokio::test]
async fn a_run_that_is_refused_leaves_the_rejects_of_the_first_as_they_are() {
    let server = MockServer::start().await;
    server.fault(Fault::delay(Duration::from_secs(600)));
    let (journal, other) = (JournalPath::new(), JournalPath::new());
    let rejects = journal.0.with_extension("rejects.csv");
    std::fs::write(&rejects, "of an earlier run").unwrap();
    let contacts = contacts(&server);
    let import = |journal: Option<&JournalPath>| {
        let import = contacts.import(numbered(50)).rejects_file(&rejects);
        match journal {
            Some(journal) => import.journal(journal.open()),
            None => import,
        }
    };
    let first = tokio::spawn(import(Some(&journal)).into_future());
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(std::fs::read_to_string(&rejects).unwrap(), "");
    std::fs::write(&rejects, "of the first run").unwrap();

    for (second, reason) in [
        (import(Some(&journal)), "using the journal"),
        (import(Some(&other)), "writing to the file of the rejects"),
        (import(None).dry_run(), "writing to the file of the rejects"),
    ] {
        let refused = in_time(second).await.unwrap_err();

        assert_eq!(refused.error().kind(), ErrorKind::Config);
        assert!(refused.error().to_string().contains(reason), "{refused}");
        assert_eq!(audience::exit_status(&refused), 75, "{refused}");
        let text = std::fs::read_to_string(&rejects).unwrap();
        assert_eq!(text, "of the first run");
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    server.clear_faults();
    std::fs::remove_file(&rejects).unwrap();
    let refused = contacts.import(["no address"]).rejects_file(&rejects);
    drop(in_time(refused).await.unwrap());
    #[cfg(unix)]
    {
        let mode = std::fs::metadata(&rejects).unwrap().permissions();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode);
        assert_eq!(mode & 0o777, 0o600, "they have addresses");
    }
    std::fs::remove_file(rejects).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_run_without_rejects_leaves_no_file_of_rejects() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let rejects = journal.0.with_extension("none.csv");
    let contacts = contacts(&server);
    let import = |address: &'static str| contacts.import([address]).rejects_file(&rejects);

    drop(in_time(import("ada@x.io")).await.unwrap());
    assert!(!rejects.exists(), "a new one");
    drop(in_time(import("no address")).await.unwrap());
    assert!(rejects.exists());
    drop(in_time(import("ada@x.io")).await.unwrap());
    assert!(!rejects.exists(), "one of an earlier run");

    // A run that cannot start leaves what is there, and nothing that was not.
    let mut other = Client::builder("http://127.0.0.1:1", "key");
    other = other.retry(fast_retries());
    let other = other.build().unwrap().contacts();
    drop(
        in_time(import("no address").journal(journal.open()))
            .await
            .unwrap(),
    );
    let refused = |rejects: &std::path::Path| {
        let import = other.import(["ada@x.io"]).journal(journal.open());
        import.rejects_file(rejects)
    };
    in_time(refused(&rejects)).await.unwrap_err();
    assert!(
        std::fs::read_to_string(&rejects)
            .unwrap()
            .contains("no address")
    );
    std::fs::remove_file(&rejects).unwrap();
    in_time(refused(&rejects)).await.unwrap_err();
    assert!(!rejects.exists());
}

#[cfg(unix)]
#[tokio::test]
async fn rejects_behind_a_link_are_written_to_its_target_after_a_run_without_any_too() {
    let server = MockServer::start().await;
    let contacts = contacts(&server);
    let target = JournalPath::new();
    let link = JournalPath(target.0.with_extension("link.csv"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let import = |address: &'static str| contacts.import([address]).rejects_file(&link);

    for address in ["no address", "ada@x.io", "no address"] {
        drop(in_time(import(address)).await.unwrap());

        let text = target.read();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(text.contains("no address"), address == "no address");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_run_that_waits_for_another_one_writes_to_the_file_and_not_to_the_removed_one() {
    let server = MockServer::start().await;
    server.fault(Fault::delay(Duration::from_millis(500)).times(1));
    let rejects = JournalPath::new().0.with_extension("waits.csv");
    let contacts = contacts(&server);
    let first = contacts.import(["ada@x.io"]).rejects_file(&rejects);
    let first = tokio::spawn(first.into_future());
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    let second = contacts.import(["no address"]).rejects_file(&rejects);
    drop(in_time(second).await.unwrap());

    drop(first.await.unwrap().unwrap());
    assert!(
        std::fs::read_to_string(&rejects)
            .unwrap()
            .contains("no address")
    );
    std::fs::remove_file(rejects).unwrap();
}

#[tokio::test]
async fn rejects_that_cannot_be_written_are_an_error_before_the_journal_records_anything() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let import = contacts(&server)
        .import(numbered(1))
        .journal(journal.open());

    let rejects = journal.0.with_extension("no-such-folder").join("rejects");
    let stopped = in_time(import.rejects_file(rejects)).await.unwrap_err();

    assert_eq!(stopped.error().to_string(), "could not write the rejects");
    assert!(journal.open().is_empty() && server.requests().is_empty());
}

#[tokio::test]
async fn an_import_stops_if_another_program_writes_to_its_journal() {
    let journal = JournalPath::new();
    let (path, requests) = (journal.0.clone(), AtomicU64::new(0));
    // Called before the response is sent, so the end of the second batch is not recorded yet.
    let server = MockServer::builder().on_request(move |_| {
        if requests.fetch_add(1, Ordering::Relaxed) == 1 {
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(b"another program\n").unwrap();
        }
    });
    let server = server.start().await;

    let import = contacts(&server).import(numbered(1_000)).concurrency(1);
    let stopped = in_time(import.journal(journal.open())).await.unwrap_err();

    assert_eq!(stopped.error().kind(), ErrorKind::Config);
    assert_eq!(stopped.error().to_string(), "could not write the journal");
    // The journal cannot restore the second batch, so it is not reported as applied.
    assert_eq!(counts(stopped.report()), [100, 0, 0, 0, 0, 100]);
    assert_eq!(server.requests().len(), 2);
}
