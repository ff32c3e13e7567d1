//! Programs that share a file, and programs that are killed.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use audience::inbox::{AcceptState, ClaimState, SqliteStore, Token};
#[cfg(unix)]
use audience::inbox::{Receipt, StoreErrorKind};
use futures_util::StreamExt;

use super::{BOUNCES, Folder, accept, bounce, bounces, claim, count_bounce, id};

const FILE: &str = "AUDIENCE_TEST_SQLITE_FILE";
const EVENTS: &str = "AUDIENCE_TEST_SQLITE_EVENTS";

/// A receiver: it says on a line of its own what it would have responded to with a success.
#[tokio::test]
#[ignore = "other tests start it as a program of its own"]
async fn receiver() {
    support::steady_time::begin_slow();
    // On a busy machine, the other programs may have the file for longer than 5 s.
    let store = SqliteStore::builder().busy_timeout(support::PATIENCE);
    let store = store.open(std::env::var_os(FILE).unwrap()).unwrap();
    let events: u32 = std::env::var(EVENTS).unwrap().parse().unwrap();
    futures_util::stream::iter(0..events)
        .for_each_concurrent(16, async |n| {
            let name = format!("evt_{n}");
            let receipt = count_bounce(&store, bounce(&name, "ada@x.io")).await;
            assert!(receipt.is_success(), "{receipt:?}");
            // In one write, so that the parent never reads half a line.
            let line = format!("\n{name} {}\n", receipt.name());
            std::io::stdout().write_all(line.as_bytes()).unwrap();

            let name = format!("acc_{n}");
            let line = match accept(&store, &id(&name), &[b'x'; 1_000]).await {
                Ok(AcceptState::Accepted) => format!("\n{name} accepted\n"),
                Ok(_) => format!("\n{name} duplicate\n"),
                Err(error) => format!("\n{name} refused {:?}\n", error.kind()),
            };
            std::io::stdout().write_all(line.as_bytes()).unwrap();
        })
        .await;
}

fn start(file: &Path, events: u32) -> Child {
    command(Command::new(std::env::current_exe().unwrap()), file, events)
}

fn command(mut command: Command, file: &Path, events: u32) -> Child {
    command
        .args(["--exact", "sqlite::killed::receiver"])
        .args(["--ignored", "--nocapture"])
        .env(FILE, file)
        .env(EVENTS, events.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads the lines of a receiver that name an event, up to this many.
fn lines(receiver: &mut Child, most: usize) -> Vec<(String, String)> {
    let stdout = BufReader::new(receiver.stdout.take().unwrap());
    stdout
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| {
            let (name, state) = line.split_once(' ')?;
            let is_event = name.starts_with("evt_") || name.starts_with("acc_");
            is_event.then(|| (name.to_owned(), state.to_owned()))
        })
        .take(most)
        .collect()
}

fn check(folder: &Folder) {
    let check: String = folder
        .connect()
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}

/// How often the program is killed. `AUDIENCE_LONG_TESTS` makes it more.
fn kills() -> usize {
    match std::env::var_os("AUDIENCE_LONG_TESTS") {
        Some(_) => 100,
        None => 6,
    }
}

#[tokio::test]
async fn nothing_that_was_acknowledged_is_lost_and_nothing_is_done_twice_if_the_program_is_killed()
{
    let folder = Folder::new("killed");
    let store = folder.open();
    folder.connect().execute_batch(BOUNCES).unwrap();

    let mut acknowledged = HashSet::new();
    for n in 0..kills() {
        let mut receiver = start(&folder.file(), 1_000_000);
        // What was acknowledged before is acknowledged again at first.
        let most = acknowledged.len() + 37 + n * 113 % 97;
        let lines = lines(&mut receiver, most);
        // On Unix, this is SIGKILL.
        receiver.kill().unwrap();
        receiver.wait().unwrap();
        acknowledged.extend(lines.into_iter().map(|(name, _)| name));
    }

    check(&folder);
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    for name in &acknowledged {
        if name.starts_with("acc_") {
            let state = accept(&store, &id(name), &[b'x'; 1_000]).await.unwrap();
            assert_eq!(state, AcceptState::Duplicate, "{name}");
        } else {
            let state = claim(&store, &id(name), Token::random()).await.unwrap();
            assert_eq!(state, ClaimState::Done, "{name}");
        }
    }
    let done = "SELECT count(*) FROM audience_inbox_done";
    let done: i64 = folder
        .connect()
        .query_row(done, (), |row| row.get(0))
        .unwrap();
    assert_eq!(bounces(&folder.connect()), done);
}

#[test]
fn four_programs_that_share_a_file_handle_each_event_once() {
    const EVENTS: u32 = 100;
    let folder = Folder::new("shared");
    // They race to create the tables, too.
    folder.connect().execute_batch(BOUNCES).unwrap();
    let receivers: Vec<_> = (0..4).map(|_| start(&folder.file(), EVENTS)).collect();

    let mut first = Vec::new();
    for mut receiver in receivers {
        let lines = lines(&mut receiver, usize::MAX);
        assert!(receiver.wait().unwrap().success());
        assert_eq!(lines.len(), 2 * EVENTS as usize);
        let firsts = lines.into_iter().filter(|(_, state)| state != "duplicate");
        first.extend(firsts.map(|(name, _)| name));
    }

    first.sort_unstable();
    let distinct: HashSet<_> = first.iter().collect();
    assert_eq!((first.len(), distinct.len()), (200, 200));
    assert_eq!(bounces(&folder.connect()), i64::from(EVENTS));
    check(&folder);
}

/// A limit on the size of files stands in for a disk without room: `write` fails in the same places.
#[cfg(unix)]
#[tokio::test]
async fn a_write_that_the_system_refuses_loses_nothing_that_was_acknowledged() {
    support::steady_time::begin_slow();
    let folder = Folder::new("refused");
    let store = folder.open();
    folder.connect().execute_batch(BOUNCES).unwrap();
    let mut shell = Command::new("sh");
    // In blocks of 512 bytes. The signal would kill the program.
    let limited = "trap '' XFSZ; ulimit -f 3000; exec \"$0\" \"$@\"";
    shell
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap());
    // It ends with a failure, as soon as a handled event is refused.
    let mut receiver = command(shell, &folder.file(), 1_000_000);
    let lines = lines(&mut receiver, usize::MAX);
    receiver.wait().unwrap();

    let refused = format!("refused {:?}", StoreErrorKind::Unavailable);
    let acknowledged: Vec<_> = lines
        .iter()
        .filter(|(_, state)| *state != refused)
        .collect();
    assert!(acknowledged.len() > 50, "{}", acknowledged.len());
    check(&folder);
    for (name, state) in acknowledged {
        let again = if name.starts_with("acc_") {
            accept(&store, &id(name), &[b'x'; 1_000]).await.unwrap() == AcceptState::Duplicate
        } else {
            count_bounce(&store, bounce(name, "ada@x.io")).await == Receipt::Duplicate
        };
        assert!(again, "{name} {state}");
    }
}
