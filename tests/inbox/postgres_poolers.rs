//! A connection pooler in transaction mode that does not support prepared statements.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use audience::inbox::conformance::Suite;
use audience::inbox::{
    ClaimState, EventKey, HeldClaim, NewClaim, PostgresStore, Store, StoreErrorKind, Token,
};
use audience::webhooks::EventId;
use tokio::task::JoinSet;

use super::deliveries::id;
use support::PATIENCE;
use support::postgres::{self, Database, Pooler, Server};

const EVENTS: usize = 400;
/// Longer than a slow machine takes for all calls of a test.
const HOUR: Duration = Duration::from_secs(3600);

const CALL: &str = "AUDIENCE_POOLER_CALL";
const DIRECT: &str = "AUDIENCE_POOLER_DIRECT";
const POOLED: &str = "AUDIENCE_POOLER_POOLED";
const UNNAMED: &str = "AUDIENCE_POOLER_UNNAMED";

fn new_claim(id: &EventId) -> NewClaim<'_> {
    NewClaim::new(EventKey::new("main", id), Token::random(), HOUR, HOUR)
}

async fn set_up() -> Option<(Server, Database, Pooler)> {
    let server = postgres::server().await?;
    let database = server.database().await;
    let pooler = server.pooler(&database).await?;
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    Some((server, database, pooler))
}

/// What a process called, and how often its call said that it worked.
struct Calls {
    worked: Vec<String>,
    others: usize,
}

/// Lets one process extend claims and another one complete claims, through the pooler at the same time. Their
/// statements have the same names, because the driver counts them in each process.
async fn extend_and_complete(database: &Database, pooler: &Pooler, is_named: bool) -> [Calls; 2] {
    let start = |call: &str| {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "postgres_poolers::process"])
            .args(["--ignored", "--nocapture"])
            .env(CALL, call)
            .env(DIRECT, &database.url)
            .env(POOLED, &pooler.url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if !is_named {
            command.env(UNNAMED, "1");
        }
        command.spawn().unwrap()
    };
    let processes = ["extend", "complete"].map(start);
    tokio::task::spawn_blocking(|| {
        processes.map(|process| {
            let output = process.wait_with_output().unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            let lines = output.lines().filter_map(|line| line.split_once(' '));
            let (worked, others): (Vec<_>, Vec<_>) = lines
                .filter(|(result, _)| ["Ok(true)", "Ok(false)", "Err"].contains(result))
                .partition(|(result, _)| *result == "Ok(true)");
            let worked: Vec<_> = worked.into_iter().map(|(_, id)| id.to_owned()).collect();
            let others = others.len();
            assert_eq!(worked.len() + others, EVENTS, "{output}");
            Calls { worked, others }
        })
    })
    .await
    .unwrap()
}

/// Claims events directly, and then extends or completes them through the pooler, eight at the same time.
#[tokio::test]
#[ignore = "the other tests run it in processes of their own"]
async fn process() {
    let variable = |name| env::var(name).unwrap();
    let (call, direct) = (
        variable(CALL),
        PostgresStore::builder()
            .timeout(PATIENCE)
            .max_connections(1),
    );
    let direct = direct.connect(&variable(DIRECT)).await.unwrap();
    let mut events = Vec::new();
    for number in 0..EVENTS {
        let id = id(&format!("{call}_{number}"));
        let claim = new_claim(&id);
        let token = claim.token;
        direct.claim(claim).await.unwrap();
        events.push((id, token));
    }
    let mut builder = PostgresStore::builder().timeout(PATIENCE);
    if env::var_os(UNNAMED).is_some() {
        builder = builder.unnamed_statements();
    }
    let pooled = builder.connect(&variable(POOLED)).await.unwrap();
    let mut calls = JoinSet::new();
    for events in events.chunks(EVENTS / 8) {
        let (events, pooled, extends) = (events.to_vec(), pooled.clone(), call == "extend");
        calls.spawn(async move {
            for (id, token) in events {
                let key = new_claim(&id).key;
                let held = HeldClaim::new(key, token);
                let result = if extends {
                    pooled.extend(held, HOUR).await
                } else {
                    pooled.complete(held, HOUR).await
                };
                let result = result.map_or_else(|_| "Err".to_owned(), |ok| format!("Ok({ok})"));
                writeln!(std::io::stdout(), "\n{result} {id}").unwrap();
            }
        });
    }
    calls.join_all().await;
}

/// Returns the events of a process that are done.
async fn done(database: &Database, call: &str) -> Vec<String> {
    let store = postgres::connect(&database.url).await.unwrap();
    let mut done = Vec::new();
    for number in 0..EVENTS {
        let id = id(&format!("{call}_{number}"));
        if store.claim(new_claim(&id)).await.unwrap() == ClaimState::Done {
            done.push(id.to_string());
        }
    }
    done
}

#[tokio::test]
async fn statements_of_two_processes_that_share_a_name_never_do_each_other_s_work() {
    let Some((_server, database, pooler)) = set_up().await else {
        return;
    };

    let [extended, mut completed] = extend_and_complete(&database, &pooler, true).await;

    println!(
        "{} extended, {} completed, {} not",
        extended.worked.len(),
        completed.worked.len(),
        extended.others + completed.others
    );
    let (nothing, mut done) = (
        done(&database, "extend").await,
        done(&database, "complete").await,
    );
    assert!(nothing.is_empty(), "extending completed {nothing:?}");
    completed.worked.sort_unstable();
    done.sort_unstable();
    assert_eq!(completed.worked, done);
    assert!(
        extended.others + completed.others > 0,
        "no statement met one of the other process"
    );
}

#[tokio::test]
async fn without_names_the_statements_of_two_processes_all_do_their_own_work() {
    let Some((_server, database, pooler)) = set_up().await else {
        return;
    };

    let [extended, completed] = extend_and_complete(&database, &pooler, false).await;

    assert_eq!(extended.worked.len(), EVENTS);
    assert_eq!(completed.worked.len(), EVENTS);
    assert_eq!(done(&database, "extend").await.len(), 0);
    assert_eq!(done(&database, "complete").await.len(), EVENTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_without_named_statements_passes_the_conformance_suite_through_a_pooler() {
    let Some((_server, _database, pooler)) = set_up().await else {
        return;
    };
    let connect = || {
        let builder = PostgresStore::builder()
            .timeout(PATIENCE)
            .unnamed_statements();
        builder.connect(&pooler.url)
    };
    let store = connect().await.unwrap();
    store.migrate().await.unwrap();

    let report = Suite::new(store)
        .also_through(connect().await.unwrap())
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test]
async fn a_claim_in_a_transaction_needs_no_setting_behind_a_pooler() {
    let Some((_server, _database, pooler)) = set_up().await else {
        return;
    };
    let store = postgres::connect(&pooler.url).await.unwrap();
    let event = id("evt_1");

    for is_new in [true, false] {
        // Two clients share the server's connections in turns.
        for endpoint in ["main", "other"] {
            let mut client = postgres::client(&pooler.url).await;
            let mut transaction = client.transaction().await.unwrap();
            let claimed = store.claim_in(&mut transaction, endpoint, &event).await;
            transaction.commit().await.unwrap();

            assert_eq!(claimed.unwrap(), is_new);
        }
    }
}

#[tokio::test]
async fn calls_that_time_out_behind_an_old_pooler_do_not_end_the_pooler() {
    let Some((_server, database, pooler)) = set_up().await else {
        return;
    };
    let short = Duration::from_millis(500);
    let builder = PostgresStore::builder().unnamed_statements().timeout(short);
    let store = postgres::connect_with_short_timeout(&builder, &pooler.url).await;
    let mut other = postgres::client(&database.url).await;
    let mut transaction = other.transaction().await.unwrap();
    let event = id("evt_1");
    assert!(
        store
            .claim_in(&mut transaction, "main", &event)
            .await
            .unwrap()
    );

    // The pooler has two connections to the server.
    for _ in 0..4 {
        let blocked = store.claim(new_claim(&event)).await.unwrap_err();
        assert_eq!(blocked.kind(), StoreErrorKind::Unavailable);
    }
    transaction.rollback().await.unwrap();

    let builder = PostgresStore::builder()
        .timeout(PATIENCE)
        .unnamed_statements();
    let store = builder.connect(&pooler.url).await.unwrap();
    // The pooler is still there. One of the statements may have claimed the event for its caller.
    let state = store.claim(new_claim(&event)).await;
    assert!(state.is_ok(), "{state:?}");
}
