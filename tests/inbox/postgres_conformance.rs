use std::sync::Arc;
use std::time::Duration;

use audience::inbox::PostgresStore;
use audience::inbox::conformance::{ClockJump, Suite};

use support::postgres;

/// Refuses an entry of the endpoint as a full disk does, if there are three.
pub(super) const THREE_ENTRIES: &str = "
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF (SELECT count(*) FROM audience_inbox WHERE endpoint = NEW.endpoint AND event_id <> NEW.event_id) >= 3 THEN
            RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON audience_inbox FOR EACH ROW EXECUTE FUNCTION refuse();";

/// The timeout of a store whose server stops: shorter than the suite waits.
pub(super) const OUTAGE: Duration = Duration::from_secs(4);
/// In the names of the cases with an outage. The other tests run the other cases.
pub(super) const OUTAGE_CASES: &str = "lose";

async fn store(url: &str) -> PostgresStore {
    let store = postgres::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_postgres_store_passes_the_conformance_suite() {
    let (Some(database), Some(full)) = (postgres::database().await, postgres::database().await)
    else {
        return;
    };
    let small_store = store(&full.url).await;
    let admin = postgres::client(&full.url).await;
    admin.batch_execute(THREE_ENTRIES).await.unwrap();

    let report = Suite::new(store(&database.url).await)
        .also_through(store(&database.url).await)
        .filling(small_store, 3)
        .run()
        .await;

    println!("{report}");
    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_whose_transactions_are_serializable_by_default_passes_too() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let separator = if database.url.contains("options=") {
        "%20"
    } else {
        "?options="
    };
    let url = format!(
        "{}{separator}-cdefault_transaction_isolation%3Dserializable",
        database.url
    );

    let report = Suite::new(store(&url).await)
        .also_through(store(&url).await)
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_is_remembered_for_no_time_comes_back_if_the_clock_of_the_server_jumps() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = store(&database.url).await;
    let admin = Arc::new(postgres::client(&database.url).await);

    // To the entries, it is as if the clock had jumped.
    let report = Suite::new(store)
        .clock_jump(move |jump| {
            let seconds = match jump {
                ClockJump::Forward(by) => -by.as_secs_f64(),
                ClockJump::Back(by) => by.as_secs_f64(),
            };
            let admin = Arc::clone(&admin);
            async move {
                let by = format!("interval '{seconds} seconds'");
                let move_times = format!(
                    "UPDATE audience_inbox SET due = due + {by}, queued_at = queued_at + {by},
                    forget_at = forget_at + {by}, purge_from = purge_from + {by}, parked_at = parked_at + {by}"
                );
                admin.batch_execute(&move_times).await.unwrap();
            }
        })
        .only("no time")
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_outage_of_the_server_loses_nothing() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    store(&database.url).await;
    let store = PostgresStore::builder().timeout(OUTAGE);
    let store = postgres::connect_with_short_timeout(&store, &database.url).await;
    let to_stop = Arc::new(server);
    let to_start = Arc::clone(&to_stop);

    let report = Suite::new(store)
        .only(OUTAGE_CASES)
        .outage(
            move || {
                let server = Arc::clone(&to_stop);
                async move { server.kill().await }
            },
            move || {
                let server = Arc::clone(&to_start);
                async move { server.start().await }
            },
        )
        .run()
        .await;

    println!("{report}");
    report.assert_passed();
}
