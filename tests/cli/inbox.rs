//! `audience inbox` at night.

use std::process::Command;

use audience::inbox::{EventKey, Fingerprint, Inbox, NewDelivery, SqliteStore, Store};
use audience::webhooks::{EventId, EventType, Signer, Verifier};
use serde_json::json;

use super::{Folder, audience, end};

const SECRET: &str = "6Jm0nFq2pXvZk4Tt";

/// An inbox in a file, with these events parked.
async fn parked(folder: &Folder, ids: &[&str]) -> Inbox {
    let store = SqliteStore::open(folder.path("inbox.db")).unwrap();
    let inbox = Inbox::builder(store).build().unwrap();
    for id in ids {
        let data = json!({"email_id": "em_1", "to": "ada@example.com"});
        let body = json!({"id": id, "type": "email.complained", "created_at": 1, "data": data});
        let body = body.to_string();
        let signer = Signer::new(SECRET).unwrap();
        let headers = signer.sign(&EventType::Complained, std::time::SystemTime::now(), &body);
        let delivery = Verifier::new(SECRET).unwrap().verify_event(&headers, body);
        assert!(inbox.accept(delivery.unwrap()).await.is_success());
    }
    let worker = inbox.worker(|_, _| async { Err::<(), _>("no such table") });
    worker.max_attempts(1).run_until_idle().await.unwrap();
    inbox
}

fn audience_inbox(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = audience(["inbox"]);
    let address = format!("sqlite:{}", folder.path("inbox.db"));
    command.args(arguments).env("AUDIENCE_INBOX_URL", address);
    command
}

/// Stores a body without its delivery, and parks it.
async fn park_body(inbox: &Inbox, folder: &Folder, id: &str, body: &str) {
    let store = SqliteStore::open(folder.path("inbox.db")).unwrap();
    let id = EventId::try_from(id).unwrap();
    let fingerprint = Fingerprint::of(body.as_bytes());
    let delivery = NewDelivery::new(EventKey::new("main", &id), body.as_bytes(), fingerprint);
    Store::accept(&store, delivery).await.unwrap();
    let worker = inbox.worker(|_, _| async { Err::<(), _>("incomplete data") });
    worker.max_attempts(1).run_until_idle().await.unwrap();
}

#[tokio::test]
async fn parked_events_are_listed_with_whom_they_are_about_and_the_reason() {
    let folder = Folder::new("inbox-parked");
    let _inbox = parked(&folder, &["evt_1", "evt_2"]).await;

    let table = end(&mut audience_inbox(&folder, &["parked"]));
    let lines = end(&mut audience_inbox(&folder, &["parked", "--json"]));

    assert_eq!(table.code, Some(0), "{table:?}");
    let rows: Vec<_> = table.stdout.lines().collect();
    assert_eq!(rows.len(), 3);
    let row = "evt_1  email.complained  ada@example.com  1 ";
    assert!(rows[1].starts_with(row), "{table:?}");
    assert!(rows[1].ends_with("  no such table"), "{table:?}");
    let mut event = lines.json()[1].clone();
    assert!(event["parked_for"].take().as_u64().is_some());
    let data = json!({"email_id": "em_1", "to": "ada@example.com"});
    assert_eq!(
        event,
        json!({
            "id": "evt_2", "type": "email.complained", "attempts": 1, "parked_for": null, "reason": "no such table",
            "body": {"id": "evt_2", "type": "email.complained", "created_at": 1, "data": data},
        })
    );
}

#[tokio::test]
async fn an_endpoint_without_parked_events_is_named_so_that_nobody_believes_a_typo() {
    let folder = Folder::new("inbox-none-parked");
    let inbox = parked(&folder, &["evt_1"]).await;

    let listed = end(&mut audience_inbox(
        &folder,
        &["--endpoint", "mian", "parked"],
    ));
    let replayed = end(&mut audience_inbox(
        &folder,
        &["--endpoint", "mian", "replay", "--all"],
    ));
    let lines = end(&mut audience_inbox(
        &folder,
        &["--endpoint", "mian", "parked", "--json"],
    ));

    for ended in [listed, replayed] {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let note = "no event is parked at the endpoint \"mian\"";
        assert!(ended.stderr.contains(note), "{ended:?}");
    }
    assert_eq!((&*lines.stdout, &*lines.stderr), ("", ""), "{lines:?}");
    assert_eq!(inbox.parked().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_parked_body_that_is_odd_is_listed_as_far_as_it_can_be_read_and_controls_no_terminal() {
    let folder = Folder::new("inbox-odd");
    let inbox = parked(&folder, &[]).await;
    let event = |id: &str, kind: &str, data: serde_json::Value| {
        json!({"id": id, "type": kind, "created_at": 1, "data": data}).to_string()
    };
    let received =
        json!({"inbound_id": "in_1", "from": "eve@example.com", "to": ["us@example.com"]});
    for (id, body, address) in [
        (
            "evt_1",
            event("evt_1", "email.received", received),
            "eve@example.com",
        ),
        (
            "evt_2",
            event("evt_2", "email.bounced", json!({"to": "no-id@example.com"})),
            "no-id@example.com",
        ),
        (
            "evt_3",
            event("evt_3", "email.bounced", json!({"email_id": "em_1"})),
            "-",
        ),
        (
            "evt_4",
            event(
                "evt_4",
                "email.sent",
                json!({"email_id": "em_1", "to": "\u{1b}[2J@x.io"}),
            ),
            r"\u{1b}[2j@x.io",
        ),
        ("evt_5", "no \u{1b}[2J JSON".to_owned(), "-"),
    ] {
        park_body(&inbox, &folder, id, &body).await;

        let table = end(&mut audience_inbox(&folder, &["parked"]));
        let lines = end(&mut audience_inbox(&folder, &["parked", "--json"]));

        let row = table.stdout.lines().last().unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!((cells[0], cells[2]), (id, address), "{table:?}");
        let shown = lines.json().pop().unwrap()["body"].take();
        let expected = serde_json::from_str(&body).unwrap_or_else(|_| json!(body));
        assert_eq!(shown, expected);
        assert!(!(table.stdout + &lines.stdout).contains('\u{1b}'));
    }
}

#[tokio::test]
async fn an_event_is_replayed_and_one_that_is_not_parked_has_its_own_exit_status() {
    let folder = Folder::new("inbox-replay");
    let inbox = parked(&folder, &["evt_1", "evt_2"]).await;

    let ended = end(&mut audience_inbox(&folder, &["replay", "evt_1", "evt_9"]));

    assert_eq!(ended.stdout, "evt_1: replayed\nevt_9: not parked\n");
    assert_eq!(ended.code, Some(4));
    let worker = inbox.worker(|_, _| async { Ok::<_, std::io::Error>(()) });
    assert_eq!(worker.run_until_idle().await.unwrap().handled, 1);
    let all = end(&mut audience_inbox(&folder, &["replay", "--all", "--json"]));
    assert_eq!(all.json(), [json!({"id": "evt_2", "status": "replayed"})]);
    assert_eq!(all.code, Some(0));
}

#[tokio::test]
async fn without_a_terminal_an_event_is_discarded_only_with_yes() {
    let folder = Folder::new("inbox-discard");
    let inbox = parked(&folder, &["evt_1"]).await;

    let asked = end(&mut audience_inbox(&folder, &["discard", "evt_1"]));
    assert_eq!(asked.code, Some(2));
    assert!(
        asked
            .stderr
            .contains("this would discard evt_1; pass --yes"),
        "{asked:?}"
    );
    assert_eq!(inbox.parked().await.unwrap().len(), 1);

    let discarded = end(&mut audience_inbox(&folder, &["discard", "evt_1", "--yes"]));
    assert_eq!(discarded.stdout, "evt_1: discarded\n");
    assert_eq!(discarded.code, Some(0));
    assert!(inbox.parked().await.unwrap().is_empty());
}

#[test]
fn an_address_that_cannot_be_used_is_a_usage_error_without_the_address() {
    let folder = Folder::new("inbox-address");

    for (address, said) in [
        (
            "mysql://u:hunter2@h/d",
            "must start with one of: sqlite:, postgres:, redis:",
        ),
        (
            "sqlite:///srv/hunter2.db",
            "is `sqlite:` and the path of the file, such as `sqlite:inbox.db`",
        ),
        ("", "the environment variable `AUDIENCE_INBOX_URL` is empty"),
    ] {
        let mut command = audience(["inbox", "parked"]);
        let ended = end(command.env("AUDIENCE_INBOX_URL", address));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(said), "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
    let missing = end(&mut audience_inbox(&folder, &["parked"]));
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("there is no file"), "{missing:?}");
    assert!(!std::path::Path::new(&folder.path("inbox.db")).exists());
}

#[test]
fn a_database_without_an_inbox_gets_none_from_a_command() {
    let folder = Folder::new("inbox-none");
    let connection = rusqlite::Connection::open(folder.path("inbox.db")).unwrap();
    connection.execute_batch("CREATE TABLE shop (id)").unwrap();
    drop(connection);
    let before = std::fs::read(folder.path("inbox.db")).unwrap();

    for arguments in [
        &["parked"][..],
        &["replay", "evt_1"],
        &["discard", "evt_1", "--yes"],
    ] {
        let ended = end(&mut audience_inbox(&folder, arguments));

        assert_eq!(ended.code, Some(1), "{ended:?}");
        let said = "inbox.db: no inbox was created in this database";
        assert!(ended.stderr.contains(said), "{ended:?}");
    }
    assert!(std::fs::read(folder.path("inbox.db")).unwrap() == before);
    assert!(!std::path::Path::new(&folder.path("inbox.db-reserve")).exists());
}

#[test]
fn a_store_that_is_down_is_worth_another_try_and_a_file_that_is_no_store_is_not() {
    let folder = Folder::new("inbox-down");
    let closed = support::closed_url();
    let address = closed.trim_start_matches("http://");

    for url in [
        format!("postgres://user:password@{address}/app"),
        format!("redis://{address}"),
    ] {
        let down = end(audience(["inbox", "parked"]).env("AUDIENCE_INBOX_URL", url));
        assert_eq!(down.code, Some(75), "{down:?}");
    }
    folder.file("inbox.db", "This is a letter and no database. ".repeat(200));
    let unusable = end(&mut audience_inbox(&folder, &["parked"]));
    assert_eq!(unusable.code, Some(1), "{unusable:?}");
}

#[tokio::test]
async fn the_address_can_be_in_a_file() {
    let folder = Folder::new("inbox-file");
    let _inbox = parked(&folder, &["evt_1"]).await;
    let file = folder.path("address");
    let address = format!("sqlite:{}\n", folder.path("inbox.db"));
    std::fs::write(&file, address).unwrap();

    let ended = end(audience(["inbox", "parked", "--json"]).env("AUDIENCE_INBOX_URL_FILE", file));

    assert_eq!(ended.json().len(), 1, "{ended:?}");
}

#[test]
fn the_sql_for_an_administrator_needs_no_database() {
    let printed =
        end(audience(["inbox", "schema", "--role", "receiver"]).env_remove("AUDIENCE_INBOX_URL"));

    assert_eq!(printed.code, Some(0), "{printed:?}");
    let sql = audience::inbox::PostgresStore::schema_for("public", "receiver");
    assert_eq!(printed.stdout, sql);
}
