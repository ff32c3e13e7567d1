//! The command `audience import` with odd files, odd arguments and an impatient person.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use audience::mock::{Fault, MockServer};

use support::PATIENCE;

use super::csv_program::{Folder, command, last_line, run, stdout};

const NOTHING: &str = "0 created, 0 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown";
const ONE_CREATED: &str = "1 created, 0 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown";

#[test]
fn a_file_that_is_no_list_of_contacts_is_exit_status_1_with_the_reason_and_nothing_is_sent() {
    let folder = Folder::new("no-list");
    let server = MockServer::builder().start_blocking();
    let header = folder.file("header.csv", "email,plan\n");
    for (file, arguments, reason) in [
        (
            folder.file("empty.csv", ""),
            &[][..],
            "the CSV file is empty",
        ),
        (
            folder.file("blank.csv", "\u{feff}\r\n \r\n"),
            &[],
            "no column holds the address",
        ),
        (
            folder.file("nul.csv", "email\n\0\n"),
            &[],
            "save it as CSV in UTF-8",
        ),
        (
            folder.file("rows.csv", "a@x.io\nb@x.io\n"),
            &[],
            "names the columns",
        ),
        (
            folder.file("twice.csv", "email,plan,plan\n"),
            &[],
            "rename one of them",
        ),
        (
            folder.file("open.csv", "email,\"plan\na@x.io,x\n"),
            &[],
            "quote",
        ),
        (folder.path(""), &[], "could not read the CSV file"),
        (
            header.clone(),
            &["--map", "Plan=email"],
            "it has \"email\", \"plan\"",
        ),
        (
            header.clone(),
            &["--map", "plan=email"],
            "two columns of the file are `email`",
        ),
        (
            header.clone(),
            &["--map", "email=ignore"],
            "no column holds the address",
        ),
    ] {
        let output = run(Some(&server), &[&[&file[..]], arguments].concat());

        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{file}: {stderr}");
        assert!(stderr.contains(reason), "{file}: {stderr}");
    }
    assert!(server.requests().is_empty());

    let output = run(Some(&server), &[&header]);
    assert_eq!(
        (output.status.code(), last_line(&output)),
        (Some(0), NOTHING.to_owned())
    );
}

#[test]
fn rejects_have_the_line_of_an_editor_whatever_is_in_the_cells_before() {
    let folder = Folder::new("lines");
    let server = MockServer::builder().start_blocking();
    let mut text = String::from("email,note\r\n");
    writeln!(text, "a@x.io,\"{}\"\r", "two\r\nlines ".repeat(100)).unwrap();
    writeln!(text, "big@x.io,{}\r", "x".repeat(2 << 20)).unwrap();
    text.push_str("\r\nnobody,-1+1\r\nopen@x.io,\"=cmd()\r\n");
    let (file, rejects) = (folder.file("list.csv", &text), folder.path("rejects.csv"));

    let output = run(Some(&server), &[&file, "--rejects", &rejects]);

    // The quote of the last line is never closed.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let rejects = std::fs::read_to_string(rejects).unwrap();
    let lines: Vec<_> = rejects.lines().skip(1).collect();
    for (line, start) in lines.iter().zip([
        "103,invalid_row,",
        "105,validation_error,",
        "106,invalid_row,",
    ]) {
        assert!(line.starts_with(start), "{line}");
    }
    assert!(lines[0].len() < 2_000);
    assert!(lines[1].ends_with(",nobody,'-1+1"), "{}", lines[1]);
    assert_eq!(lines.len(), 3);
}

#[test]
fn without_a_terminal_there_is_no_noise_and_a_header_cannot_control_one() {
    let folder = Folder::new("noise");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("list.csv", "email,\u{1b}[2Jplan\na@x.io,pro\n");

    let dry = run(Some(&server), &[&file, "--dry-run"]);
    let output = run(Some(&server), &[&file]);

    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    // With --yes, nobody reads the columns.
    assert_eq!(stdout(&output), format!("{ONE_CREATED}\n"));
    assert!(stdout(&dry).contains("property:"), "{}", stdout(&dry));
    assert!(!stdout(&dry).contains(|letter: char| letter.is_control() && letter != '\n'));
}

#[test]
fn the_embedded_mock_leaves_no_journal() {
    let folder = Folder::new("mock");
    let file = folder.file("list.csv", "email\na@x.io\n");

    assert_eq!(last_line(&run(None, &[&file])), ONE_CREATED);
    assert!(!Path::new(&folder.path("list.csv.journal")).exists());
}

#[test]
fn the_rejects_never_overwrite_the_journal() {
    let folder = Folder::new("overwrite");
    let server = MockServer::builder().start_blocking();
    let (file, journal) = (
        folder.file("list.csv", "email\na@x.io\n"),
        folder.path("list.csv.journal"),
    );
    run(Some(&server), &[&file]);
    let before = std::fs::read(&journal).unwrap();

    let output = run(Some(&server), &[&file, "--resume", "--rejects", &journal]);

    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(std::fs::read(&journal).unwrap(), before);
}

#[cfg(unix)]
#[test]
fn the_rejects_never_overwrite_the_file_that_standard_input_comes_from() {
    let folder = Folder::new("overwrite-input");
    let server = MockServer::builder().start_blocking();
    let text = "email\na@x.io\nnobody\n";
    let file = folder.file("list.csv", text);
    let link = folder.path("link.csv");
    std::fs::hard_link(&file, &link).unwrap();
    for (input, rejects) in [("-", &file), ("-", &link), ("/dev/stdin", &file)] {
        let mut command = command(Some(&server), &[input, "--rejects", rejects]);
        command.stdin(std::fs::File::open(&file).unwrap());
        let output = command.output().unwrap();

        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let said = "--rejects must not be the file to read";
        assert!(stderr.contains(said), "{stderr}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_journal_of_another_file_and_a_file_that_is_no_journal_are_refused_and_left_as_they_are() {
    let folder = Folder::new("other-journal");
    let server = MockServer::builder().start_blocking();
    let (first, second) = (
        folder.file("1.csv", "email\na@x.io\n"),
        folder.file("2.csv", "email\nb@x.io\n"),
    );
    run(Some(&server), &[&first]);

    for journal in [folder.path("1.csv.journal"), first] {
        let before = std::fs::read(&journal).unwrap();
        let output = run(Some(&server), &[&second, "--resume", "--journal", &journal]);

        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(std::fs::read(&journal).unwrap(), before);
        // The same command would be refused again.
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("to continue"), "{stderr}");
    }
    assert_eq!(server.contact_count(), 1);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_imported_without_a_journal_and_nobody_has_to_read_the_output() {
    let server = MockServer::builder().start_blocking();
    // With a journal, the second run would be refused without --resume.
    for _ in 0..2 {
        let mut child = command(Some(&server), &["/dev/stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());

        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(b"email\na@x.io\n").unwrap();
        drop(pipe);

        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(server.contact_count(), 1);
    }
    let output = run(Some(&server), &["/dev/null", "--resume"]);
    assert_eq!(output.status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_for_the_rejects_is_exit_status_1_and_resuming_writes_them_elsewhere() {
    let folder = Folder::new("full");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("list.csv", "email\na@x.io\nnobody\n");
    let summary = "1 created, 0 updated, 0 skipped, 1 refused, 0 not sent, 0 unknown";

    let output = run(Some(&server), &[&file, "--rejects", "/dev/full"]);

    assert_eq!(
        (output.status.code(), last_line(&output)),
        (Some(1), summary.to_owned())
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("could not write the rejects") && stderr.contains("No space left"),
        "{stderr}"
    );

    let rejects = folder.path("rejects.csv");
    let output = run(Some(&server), &[&file, "--resume", "--rejects", &rejects]);
    assert_eq!(
        (output.status.code(), last_line(&output)),
        (Some(3), summary.to_owned())
    );
    assert!(
        std::fs::read_to_string(rejects)
            .unwrap()
            .contains("\n3,validation_error,")
    );
    assert_eq!(server.requests().len(), 1);
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.unwrap().success());
}

/// Returns whether the program listens for Ctrl-C. Before that, Ctrl-C ends it.
#[cfg(target_os = "linux")]
fn listens_for_ctrl_c(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    // SIGINT is 2.
    caught & 0b10 != 0
}

#[cfg(target_os = "linux")]
#[test]
fn a_second_ctrl_c_stops_an_import_that_waits_for_a_pipe_and_with_json_says_so_in_objects() {
    let server = MockServer::builder().start_blocking();
    let mut child = command(Some(&server), &["-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // The program reads 64 KiB at a time, so it imports some rows and then waits for more.
    let rows: String = (0..7_000).map(|n| format!("a{n}@x.io\n")).collect();
    pipe.write_all(format!("email\n{rows}").as_bytes()).unwrap();
    let started = Instant::now();
    while !listens_for_ctrl_c(&child) {
        assert!(started.elapsed() < PATIENCE, "it does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    // If this ends too early, the program does not wait for the pipe yet, and the signals stop it even so.
    let mut created = 0;
    while created == 0 || created < server.contact_count() {
        assert!(started.elapsed() < PATIENCE, "it imports nothing");
        created = server.contact_count();
        std::thread::sleep(Duration::from_millis(300));
    }

    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        interrupt(&child);
        std::thread::sleep(Duration::from_millis(20));
    }

    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let objects = stderr.lines().map(serde_json::from_str);
    let objects: Vec<serde_json::Value> = objects.map(Result::unwrap).collect();
    assert_eq!(objects.len(), 2, "{stderr}");
    let note = objects[0]["note"].as_str().unwrap();
    assert!(note.contains("press Ctrl-C again"), "{note}");
    assert_eq!(objects[1]["code"], "stopped", "{stderr}");
    drop(pipe);
}

#[cfg(unix)]
#[test]
fn a_second_ctrl_c_stops_at_once_and_resume_goes_on() {
    let folder = Folder::new("ctrl-c-twice");
    let server = MockServer::builder().start_blocking();
    let rows: String = (0..1_000)
        .map(|number| format!("a{number}@x.io\n"))
        .collect();
    let file = folder.file("list.csv", &format!("email\n{rows}"));
    server.fault(Fault::delay(Duration::from_secs(20)).after(2));
    let mut child = command(Some(&server), &[&file])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while server.requests().len() < 3 {
        std::thread::sleep(Duration::from_millis(5));
    }

    interrupt(&child);
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.contains("press Ctrl-C again"), "{line}");
    while child.try_wait().unwrap().is_none() {
        interrupt(&child);
        std::thread::sleep(Duration::from_millis(20));
    }

    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(server.contact_count() < 1_000);
    server.clear_faults();
    let output = run(Some(&server), &[&file, "--resume"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(server.contact_count(), 1_000);
}
