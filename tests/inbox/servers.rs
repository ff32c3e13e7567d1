//! The servers that tests start end with them, however the tests end.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::redis::OwnRedis;
use support::{PATIENCE, postgres, redis, skip, spawn_apart};

const PANICS: &str = "AUDIENCE_TEST_SERVERS_PANIC";
const FOLDER: &str = "folder: ";

/// Starts both servers, names their folders, and panics or waits until it is killed.
#[tokio::test]
#[ignore = "other tests start it as a program of its own"]
async fn program() {
    let redis = OwnRedis::start(&[]).await.unwrap();
    let postgres = postgres::server().await.unwrap();
    for folder in [redis.folder(), postgres.folder()] {
        println!("\n{FOLDER}{}", folder.display());
    }
    assert!(std::env::var_os(PANICS).is_none(), "as a failed test does");
    std::future::pending::<()>().await;
}

#[test]
fn servers_end_and_leave_no_folder_when_their_test_is_killed() {
    let Some((mut program, folders)) = start(false) else {
        return;
    };

    // The whole group, as Ctrl-C in a terminal or the end of a CI job does.
    let group = format!("-{}", program.id());
    let killed = Command::new("kill")
        .args(["-s", "KILL", "--", &group])
        .status();
    assert!(killed.unwrap().success());
    program.wait().unwrap();

    wait_until_gone(&folders);
}

#[test]
fn servers_end_and_leave_no_folder_when_their_test_panics() {
    let Some((mut program, folders)) = start(true) else {
        return;
    };

    assert!(!program.wait().unwrap().success());

    wait_until_gone(&folders);
}

/// Starts the program and returns the folders of its servers. `None` if a server is not installed.
fn start(panics: bool) -> Option<(Child, Vec<PathBuf>)> {
    if !redis::is_installed() || !postgres::is_installed() {
        skip("no servers to start: install the packages redis-server and postgresql");
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "servers::program"])
        .args(["--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if panics {
        command.env(PANICS, "1");
    }
    let mut program = spawn_apart(&mut command);
    let stdout = BufReader::new(program.stdout.take().unwrap());
    let lines = stdout.lines().map_while(Result::ok);
    let folders = lines.filter_map(|line| Some(PathBuf::from(line.strip_prefix(FOLDER)?)));
    let folders: Vec<_> = folders.take(2).collect();
    assert_eq!(folders.len(), 2);
    Some((program, folders))
}

/// A server deletes its folder after it ended.
fn wait_until_gone(folders: &[PathBuf]) {
    let end = Instant::now() + PATIENCE;
    while folders.iter().any(|folder| folder.exists()) {
        assert!(Instant::now() < end, "{folders:?} should be deleted");
        std::thread::sleep(Duration::from_millis(20));
    }
}
