//! The tables, and what they cost.

use std::error::Error;
use std::time::{Duration, Instant};

use audience::inbox::conformance::Suite;
use audience::inbox::deadpool_postgres::tokio_postgres::Client;
use audience::inbox::{
    AcceptState, ClaimState, EventKey, Fingerprint, HeldClaim, Inbox, InboxError, NewDelivery,
    PostgresStore, Receipt, Release, SqlxPostgresStore, Store, StoreError, StoreErrorKind, Take,
    Token,
};
use audience::webhooks::EventId;
use tokio::sync::mpsc;

use super::deliveries::{delivery_about, new_claim};
use support::postgres;
use support::{PATIENCE, steady_time};

const HOUR: Duration = Duration::from_secs(3_600);

async fn connect(url: &str) -> PostgresStore {
    postgres::connect(url).await.unwrap()
}

fn refused(result: Result<impl std::fmt::Debug, StoreError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    let mut texts = vec![];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.join(": ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn any_number_of_processes_can_migrate_at_once_and_again() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let mut tasks = tokio::task::JoinSet::new();

    for _ in 0..16 {
        let url = database.url.clone();
        tasks.spawn(async move { connect(&url).await.migrate().await });
    }

    for result in tasks.join_all().await {
        result.unwrap();
    }
    connect(&database.url).await.migrate().await.unwrap();
    let admin = postgres::client(&database.url).await;
    admin.batch_execute(PostgresStore::SCHEMA).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_migrate_at_once_in_a_database_whose_transactions_are_serializable() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let separator = if database.url.contains('?') {
        "%20"
    } else {
        "?options="
    };
    let isolation = "-cdefault_transaction_isolation%3Dserializable";
    let url = format!("{}{separator}{isolation}", database.url);
    let mut tasks = tokio::task::JoinSet::new();

    for _ in 0..16 {
        let url = url.clone();
        tasks.spawn(async move { connect(&url).await.migrate().await });
    }

    for result in tasks.join_all().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn without_its_tables_a_store_is_unusable() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = connect(&database.url).await;

    let text = refused(store.backlog("main").await);

    assert!(text.contains("audience_inbox"), "{text}");
    assert!(text.contains("migrate"), "{text}");
}

#[tokio::test]
async fn tables_of_a_newer_version_are_left_alone() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = connect(&database.url).await;
    store.migrate().await.unwrap();
    let admin = postgres::client(&database.url).await;
    let newer = "UPDATE audience_inbox_schema SET version = 7";
    admin.batch_execute(newer).await.unwrap();

    let text = refused(store.migrate().await);

    assert!(text.contains("version 7"), "{text}");
}

/// Returns the rights that the file with the tables asks for, as SQL.
fn grants() -> String {
    let lines = PostgresStore::SCHEMA.lines();
    let grants = lines.filter_map(|line| line.strip_prefix("--   GRANT"));
    grants.map(|grant| format!("GRANT{grant}\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_role_with_the_rights_in_the_schema_file_runs_everything_on_tables_of_an_admin() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    let roles = "CREATE ROLE receiver LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC";
    admin.batch_execute(roles).await.unwrap();
    let url = database.url.replace("audience@", "receiver@");
    let store = connect(&url).await;

    let before = refused(store.migrate().await);
    admin.batch_execute(PostgresStore::SCHEMA).await.unwrap();
    let without_rights = refused(store.backlog("main").await);
    let only_these = "REVOKE ALL ON SCHEMA public FROM PUBLIC";
    admin.batch_execute(only_these).await.unwrap();
    admin.batch_execute(&grants()).await.unwrap();

    for text in [before, without_rights] {
        let remedy = "the role lacks a right: if an administrator has created the tables, add their schema to the `search_path`";
        assert!(text.starts_with(remedy), "{text}");
        assert!(text.contains("`schema_for` of the store"), "{text}");
        assert!(text.contains("permission denied"), "{text}");
    }
    store.migrate().await.unwrap();
    let report = Suite::new(store)
        .also_through(connect(&url).await)
        .run()
        .await;
    report.assert_passed();
}

#[test]
fn both_stores_have_the_same_sql_for_an_administrator() {
    let sql = PostgresStore::schema_for("shop", "receiver");

    let grant = r#"GRANT USAGE ON SCHEMA "shop" TO "receiver";"#;
    assert!(sql.contains(grant), "{sql}");
    assert_eq!(SqlxPostgresStore::schema_for("shop", "receiver"), sql);
}

#[tokio::test]
async fn the_sql_for_an_administrator_is_enough_for_a_role_in_a_schema_of_any_name() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    let names = r#"CREATE ROLE "the ""receiver" LOGIN; CREATE SCHEMA "in ""box""""#;
    admin.batch_execute(names).await.unwrap();
    let sql = PostgresStore::schema_for("in \"box\"", "the \"receiver");

    for _ in 0..2 {
        admin.batch_execute(&sql).await.unwrap();
    }

    let url = database.url.replace("audience@", "the%20%22receiver@");
    let store = connect(&format!(
        "{url}?options=-csearch_path%3D%22in%5C%20%22%22box%22%22%22"
    ))
    .await;
    store.migrate().await.unwrap();
    use_every_call(&store, 0).await;
    let elsewhere =
        "SELECT FROM pg_tables WHERE tablename LIKE 'audience%' AND schemaname <> 'in \"box\"'";
    assert!(admin.query(elsewhere, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn each_right_in_the_schema_file_is_needed() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    connect(&database.url).await.migrate().await.unwrap();
    let roles = "CREATE ROLE receiver LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC;";
    admin.batch_execute(roles).await.unwrap();
    admin.batch_execute(&grants()).await.unwrap();
    let url = database.url.replace("audience@", "receiver@");
    let store = connect(&url).await;
    use_every_call(&store, 0).await;

    for right in ["SELECT", "INSERT", "UPDATE", "DELETE"] {
        let revoke = format!("REVOKE {right} ON audience_inbox FROM receiver");
        admin.batch_execute(&revoke).await.unwrap();
        let store = connect(&url).await;
        let calls = tokio::spawn(async move { use_every_call(&store, 1).await });
        assert!(calls.await.is_err(), "{right}");
        admin.batch_execute(&grants()).await.unwrap();
        admin
            .batch_execute("TRUNCATE audience_inbox")
            .await
            .unwrap();
    }
    let revoke = "REVOKE SELECT ON audience_inbox_schema FROM receiver";
    admin.batch_execute(revoke).await.unwrap();
    refused(store.migrate().await);
}

#[tokio::test]
async fn a_database_that_cannot_store_every_id_is_refused() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    let latin = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    admin.batch_execute(latin).await.unwrap();
    let (base, _) = database.url.rsplit_once('/').unwrap();

    let text = refused(connect(&format!("{base}/latin")).await.migrate().await);

    assert!(text.contains("LATIN1"), "{text}");
}

#[tokio::test]
async fn the_tables_are_created_in_the_schema_of_the_search_path() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    let url = format!("{}?options=-csearch_path%3Dinbox", database.url);

    let absent = refused(connect(&url).await.migrate().await);
    admin.batch_execute("CREATE SCHEMA inbox").await.unwrap();
    connect(&url).await.migrate().await.unwrap();

    assert!(absent.contains("schema"), "{absent}");
    admin
        .query("SELECT FROM inbox.audience_inbox", &[])
        .await
        .unwrap();
}

#[tokio::test]
async fn stores_in_two_schemas_of_a_database_do_not_see_each_other() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    let schemas = "CREATE SCHEMA shop; CREATE SCHEMA news";
    admin.batch_execute(schemas).await.unwrap();
    let event = EventId::try_from("evt_1").unwrap();
    let delivery = || NewDelivery::new(new_claim(&event).key, b"body", Fingerprint::of(b"body"));
    let take = || Take::new("main", Token::random(), HOUR, 10);

    let mut stores = Vec::new();
    for schema in ["shop", "news"] {
        let url = format!("{}?options=-csearch_path%3D{schema}", database.url);
        let store = connect(&url).await;
        store.migrate().await.unwrap();
        stores.push(store);
    }
    let [shop, news] = stores.try_into().unwrap();

    assert_eq!(
        shop.accept(delivery()).await.unwrap(),
        AcceptState::Accepted
    );
    assert_eq!(news.backlog("main").await.unwrap().waiting, 0);
    assert!(news.take(take()).await.unwrap().is_empty());
    assert_eq!(
        news.accept(delivery()).await.unwrap(),
        AcceptState::Accepted
    );
    assert_eq!(shop.take(take()).await.unwrap().len(), 1);
    assert_eq!(news.backlog("main").await.unwrap().waiting, 1);
}

#[tokio::test]
async fn tables_that_exist_further_along_the_search_path_are_used() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    let public = connect(&database.url).await;
    public.migrate().await.unwrap();
    admin.batch_execute("CREATE SCHEMA s3").await.unwrap();
    let event = EventId::try_from("evt_1").unwrap();

    let url = format!("{}?options=-csearch_path%3Ds3,public", database.url);
    let store = connect(&url).await;
    store.migrate().await.unwrap();
    store.claim(new_claim(&event)).await.unwrap();

    let state = public.claim(new_claim(&event)).await.unwrap();
    assert!(matches!(state, ClaimState::InProgress { .. }), "{state:?}");
    let second = "SELECT FROM pg_tables WHERE schemaname = 's3'";
    assert!(admin.query(second, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn durations_without_end_and_reasons_with_nul_are_stored() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = connect(&database.url).await;
    store.migrate().await.unwrap();
    let id = EventId::try_from("evt_1").unwrap();
    let mut claim = new_claim(&id);
    (claim.lease, claim.retention) = (Duration::MAX, Duration::MAX);
    let held = HeldClaim::new(claim.key, claim.token);

    let state = store.claim(claim).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    assert!(store.extend(held, Duration::MAX).await.unwrap());
    let release = Release::new(Duration::ZERO, Duration::MAX, "a\0b");
    assert!(store.release(held, release).await.unwrap());
    store.claim(claim).await.unwrap();
    assert!(store.park(held, "a\0b").await.unwrap());
    assert_eq!(
        store.parked("main", None, usize::MAX).await.unwrap()[0].reason,
        "ab"
    );
    assert!(store.discard(held.key, Duration::MAX).await.unwrap());
    assert_eq!(store.claim(claim).await.unwrap(), ClaimState::Done);
}

#[tokio::test]
async fn an_event_with_nul_in_a_text_is_accepted_and_handled() {
    steady_time::begin_slow();
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = connect(&database.url).await;
    store.migrate().await.unwrap();
    let inbox = Inbox::builder(store).build().unwrap();
    let (subject, mut subjects) = mpsc::unbounded_channel();

    assert_eq!(
        inbox.accept(delivery_about("evt_1", "a\0b")).await,
        Receipt::Accepted
    );
    let worker = inbox.worker(move |event, _| {
        subject.send(event.mail().unwrap().subject.clone()).unwrap();
        async { Ok::<_, std::io::Error>(()) }
    });
    worker.run_until_idle().await.unwrap();

    assert_eq!(subjects.recv().await.unwrap(), "a\0b");
}

#[tokio::test]
async fn no_call_reads_the_whole_table_and_completing_changes_no_index() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let admin = postgres::client(&database.url).await;
    connect(&database.url).await.migrate().await.unwrap();
    let remembered = "INSERT INTO audience_inbox (endpoint, event_id, state, token, attempts, due, forget_at, purge_from)
        SELECT 'main', 'done_' || n, 'done', '\\x00', 1, now(), now() + interval '3 days', now() + interval '3 days'
        FROM generate_series(1, 20000) AS n;
        ANALYZE audience_inbox;";
    admin.batch_execute(remembered).await.unwrap();
    let scans = "SELECT seq_scan, seq_tup_read, n_tup_hot_upd FROM pg_stat_user_tables
        WHERE relname = 'audience_inbox' AND schemaname = current_schema()";
    settle(&admin).await;
    let before = admin.query_one(scans, &[]).await.unwrap();

    // The statistics of a connection are written when it is closed.
    let store = connect(&database.url).await;
    for number in 0..20 {
        use_every_call(&store, number).await;
    }
    drop(store);
    settle(&admin).await;

    let after = admin.query_one(scans, &[]).await.unwrap();
    // 20 leases were extended and 20 completed. A page that is full makes a few exceptions.
    let difference = |column| after.get::<_, i64>(column) - before.get::<_, i64>(column);
    assert_eq!(difference("seq_scan"), 0);
    assert_eq!(difference("seq_tup_read"), 0);
    assert!(
        difference("n_tup_hot_upd") >= 35,
        "{}",
        difference("n_tup_hot_upd")
    );
}

#[tokio::test]
async fn a_backlog_of_many_events_reads_no_body() {
    // A snapshot of another test would keep VACUUM from its work.
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    connect(&database.url).await.migrate().await.unwrap();
    let events = "INSERT INTO audience_inbox (endpoint, event_id, state, attempts, due, queued_at, body)
        SELECT 'main', 'evt_' || n, 'open', 0, due, due, convert_to(repeat('x', 600), 'UTF8')
        FROM generate_series(1, 20000) AS n, LATERAL (SELECT now() - n * interval '1 ms' AS due) AS time";
    for sql in [
        // It would read the bodies, too.
        "ALTER TABLE audience_inbox SET (autovacuum_enabled = false)",
        events,
        "VACUUM (ANALYZE) audience_inbox",
    ] {
        // The statistics of a connection are written when it is closed.
        let admin = postgres::client(&database.url).await;
        admin.batch_execute(sql).await.unwrap();
    }
    let admin = postgres::client(&database.url).await;
    let blocks = "SELECT heap_blks_read + heap_blks_hit FROM pg_statio_user_tables
        WHERE relname = 'audience_inbox' AND schemaname = current_schema()";
    settle(&admin).await;
    let before = admin.query_one(blocks, &[]).await.unwrap();

    let store = connect(&database.url).await;
    for _ in 0..10 {
        let backlog = store.backlog("main").await.unwrap();
        assert_eq!((backlog.waiting, backlog.in_progress), (20_000, 0));
        assert!(backlog.lag >= Duration::from_secs(20));
    }
    drop(store);
    settle(&admin).await;

    let after = admin.query_one(blocks, &[]).await.unwrap();
    // The bodies fill more than 1,500 blocks. A few others say that these need not be read.
    let read = after.get::<_, i64>(0) - before.get::<_, i64>(0);
    assert!(read < 200, "{read}");
}

#[tokio::test]
async fn an_accepted_event_that_an_older_version_marked_as_forgettable_is_still_remembered() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = connect(&database.url).await;
    store.migrate().await.unwrap();
    let mut admin = postgres::client(&database.url).await;
    let id = EventId::try_from("evt_1").unwrap();
    let claim = new_claim(&id);
    let delivery = |body| NewDelivery::new(claim.key, body, Fingerprint::of(body));
    let take = Take::new("main", claim.token, HOUR, 10);
    let mark = "UPDATE audience_inbox SET forget_at = now() - interval '1 second',
        purge_from = now() - interval '1 second'";
    store.accept(delivery(b"body")).await.unwrap();
    store.take(take).await.unwrap();
    admin.batch_execute(mark).await.unwrap();

    let claimed = store.claim(new_claim(&id)).await.unwrap();
    let duplicate = store.accept(delivery(b"body")).await.unwrap();
    let another = store.accept(delivery(b"another")).await.unwrap();
    let mut transaction = admin.transaction().await.unwrap();
    let in_transaction = store.claim_in(&mut transaction, "main", &id).await;
    transaction.rollback().await.unwrap();
    let purged = store.purge(10).await.unwrap();

    assert!(matches!(claimed, ClaimState::InProgress { .. }));
    assert_eq!(duplicate, AcceptState::Duplicate);
    assert_eq!(another, AcceptState::Conflict);
    assert!(matches!(in_transaction, Err(InboxError::InProgress)));
    assert_eq!(purged, 0);
    admin
        .batch_execute("UPDATE audience_inbox SET due = now(), queued_at = now()")
        .await
        .unwrap();
    assert_eq!(store.take(take).await.unwrap()[0].attempt, 2);
    let healed = "SELECT forget_at IS NULL AND purge_from IS NULL FROM audience_inbox";
    let healed = admin.query_one(healed, &[]).await.unwrap();
    assert!(healed.get::<_, bool>(0));
}

/// Waits until the connections of the test have ended but this one, and lets the statistics of the server arrive.
async fn settle(admin: &Client) {
    // If the test has only a schema, the connections of other programs never end.
    let has_database = "SELECT current_schema() = 'public'";
    let has_database: bool = admin.query_one(has_database, &[]).await.unwrap().get(0);
    let limit = match has_database {
        true => PATIENCE,
        false => Duration::from_secs(20),
    };
    let others = "SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let end = Instant::now() + limit;
    while !admin.query(others, &[]).await.unwrap().is_empty() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
}

async fn use_every_call(store: &PostgresStore, number: u32) {
    let [claimed, accepted] =
        ["claimed", "accepted"].map(|kind| EventId::try_from(format!("{kind}_{number}")).unwrap());
    let claim = new_claim(&claimed);
    let held = HeldClaim::new(claim.key, claim.token);
    store.claim(claim).await.unwrap();
    store.extend(held, HOUR).await.unwrap();
    assert!(store.complete(held, HOUR).await.unwrap());

    let key = EventKey::new("main", &accepted);
    let token = Token::random();
    store
        .accept(NewDelivery::new(key, b"body", Fingerprint::of(b"body")))
        .await
        .unwrap();
    let take = Take::new("main", token, HOUR, 10);
    assert_eq!(store.take(take).await.unwrap().len(), 1);
    let held = HeldClaim::new(key, token);
    assert!(store.park(held, "reason").await.unwrap());
    assert_eq!(store.parked("main", None, 10).await.unwrap().len(), 1);
    assert!(store.replay(key).await.unwrap());
    store.take(take).await.unwrap();
    let release = Release::new(Duration::ZERO, HOUR, "reason");
    assert!(store.release(held, release).await.unwrap());
    store.take(take).await.unwrap();
    assert_eq!(store.backlog("main").await.unwrap().in_progress, 1);
    assert!(store.park(held, "reason").await.unwrap());
    assert!(store.discard(key, HOUR).await.unwrap());
    assert_eq!(store.purge(10).await.unwrap(), 0);
}
