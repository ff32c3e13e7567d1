//! An export by a program that is killed, at random moments or before any one of its steps, and started again.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use audience::mock::{Fault, MockServer};

use super::{Folder, all_addresses};
use support::examples::program;
use support::skip;

/// How often the program is killed. `AUDIENCE_LONG_TESTS` makes it more.
fn kills() -> u64 {
    match std::env::var_os("AUDIENCE_LONG_TESTS") {
        Some(_) => 100,
        None => 8,
    }
}

fn start(server: &MockServer, file: &Path, flags: &[&str]) -> Child {
    Command::new(program("audience"))
        .arg("export")
        .arg(file)
        .args(["--resume", "--columns", "email"])
        .args(flags)
        .env("AUDIENCE_URL", server.url())
        .env("AUDIENCE_KEY", server.full_key())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the program at some moments, and lets it finish in the end. Returns how often it was killed.
fn kill_and_resume(server: &MockServer, file: &Path, flags: &[&str]) -> u64 {
    let mut killed = 0;
    for n in 0..kills() {
        let mut child = start(server, file, flags);
        // Any moment will do, so the moments only need to differ.
        let moment = Duration::from_millis(20 + n * 37 % 97);
        let end = Instant::now() + moment;
        while Instant::now() < end && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        killed += u64::from(child.try_wait().unwrap().is_none());
        // On Unix, this is SIGKILL.
        child.kill().ok();
        child.wait().unwrap();
    }
    assert!(start(server, file, flags).wait().unwrap().success());
    killed
}

/// The system calls by which an export changes files. On other processors, some have another name.
const STEPS: [&str; 7] = [
    "openat",
    "write",
    "ftruncate",
    "fsync",
    "fdatasync",
    "/^rename",
    "/^unlink",
];

/// Runs the program in `folder`, and kills it when it is about to make the nth such system call on one of its files.
/// Returns whether it finished before.
fn finishes_before(step: &str, n: u32, server: &MockServer, folder: &Folder) -> bool {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("inject={step}:signal=SIGKILL:when={n}"));
    for name in [
        "",
        "all.csv",
        "all.csv.part",
        "all.csv.cursor",
        "all.csv.cursor.new",
    ] {
        strace.arg("-P").arg(folder.file(name));
    }
    let status = strace
        .arg(program("audience"))
        .arg("export")
        .arg(folder.file("all.csv"))
        .args(["--resume", "--columns", "email"])
        .env("AUDIENCE_URL", server.url())
        .env("AUDIENCE_KEY", server.full_key())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap().success()
}

#[test]
fn a_nightly_export_killed_before_any_of_its_steps_has_every_contact_exactly_once() {
    let can_trace = Command::new("strace").args(["-qq", "true"]).output();
    if !can_trace.is_ok_and(|output| output.status.success()) {
        return skip("the steps of an export: strace is not installed, or may not trace");
    }
    const COUNT: usize = 250;
    let mut builder = MockServer::builder();
    for n in 0..COUNT {
        builder = builder.seed_contact(format!("{n}@x.io").as_str());
    }
    let server = builder.start_blocking();
    let mut kills = 0;

    for step in STEPS {
        for n in 1.. {
            let folder = Folder::new("steps");
            // The export of the night before has finished.
            fs::write(folder.file("all.csv"), "email\ngone@x.io\n").unwrap();

            let finished = finishes_before(step, n, &server, &folder);
            if !finished {
                let status = start(&server, &folder.file("all.csv"), &[]).wait();
                assert!(status.unwrap().success());
                kills += 1;
            }

            let text = fs::read_to_string(folder.file("all.csv")).unwrap();
            assert_eq!(text, all_addresses(COUNT), "{step} {n}");
            let names: Vec<_> = fs::read_dir(folder.file("")).unwrap().collect();
            assert_eq!(names.len(), 1, "{step} {n}: {names:?}");
            if finished {
                break;
            }
        }
    }

    // With musl, an export makes fewer calls than with glibc.
    assert!(kills > 15, "{kills}");
}

#[test]
fn an_export_killed_at_any_moment_has_every_contact_exactly_once() {
    const COUNT: usize = 20_000;
    let mut builder = MockServer::builder();
    for n in 0..COUNT {
        builder = builder.seed_contact(format!("{n}@x.io").as_str());
    }
    let server = builder.start_blocking();
    let folder = Folder::new("killed");
    server.fault(Fault::delay(Duration::from_millis(5)));

    let killed = kill_and_resume(&server, &folder.file("all.csv"), &[]);

    assert!(killed > 0);
    let text = fs::read_to_string(folder.file("all.csv")).unwrap();
    assert_eq!(text, all_addresses(COUNT));
}

#[test]
fn a_full_export_killed_at_any_moment_has_every_contact_exactly_once() {
    const COUNT: usize = 1_000;
    let mut builder = MockServer::builder();
    for n in 0..COUNT {
        builder = builder.seed_contact(format!("{n}@x.io").as_str());
    }
    let server = builder.start_blocking();
    let folder = Folder::new("killed-full");
    server.fault(Fault::delay(Duration::from_millis(2)));

    let killed = kill_and_resume(&server, &folder.file("all.csv"), &["--full"]);

    assert!(killed > 0);
    let text = fs::read_to_string(folder.file("all.csv")).unwrap();
    assert_eq!(text, all_addresses(COUNT));
}
