use std::error::Error;
use std::time::{Duration, Instant};

use audience::inbox::{InboxError, SqliteStore, StoreError, StoreErrorKind, Token};

use super::{Folder, accept, claim, complete, id};

fn expect(error: &StoreError, kind: StoreErrorKind, text: &str) {
    let source = error.source().unwrap().to_string();
    assert_eq!(error.kind(), kind, "{source}");
    assert!(source.contains(text), "{source}");
}

/// A part of the system's message.
const NO_SUCH_FILE: &str = if cfg!(windows) {
    "cannot find"
} else {
    "No such file"
};

#[test]
fn a_file_that_cannot_be_used_is_refused_when_it_is_opened() {
    let folder = Folder::new("unusable");
    std::fs::write(
        folder.file(),
        "this is a text and no database, of some length",
    )
    .unwrap();

    for (path, text) in [
        (folder.file(), "not a database"),
        (folder.0.join("missing").join("inbox.db"), NO_SUCH_FILE),
        (folder.0.clone(), "not a regular file"),
        #[cfg(unix)]
        ("/dev/null".into(), "not a regular file"),
        (":memory:".into(), "in_memory"),
        ("".into(), "in_memory"),
    ] {
        let error = SqliteStore::open(&path).unwrap_err();

        expect(&error, StoreErrorKind::Unusable, text);
    }
    assert!(!std::path::Path::new(":memory:").exists());
}

#[test]
fn a_store_that_must_exist_is_not_created_and_a_wrong_file_stays_as_it_is() {
    let folder = Folder::new("must-exist");
    let open = |file: std::path::PathBuf| {
        // The store that was dropped may still close its file.
        let builder = SqliteStore::builder().busy_timeout(support::PATIENCE);
        builder.must_exist().open(file)
    };
    let missing = folder.0.join("missing.db");
    let other = folder.0.join("other.db");
    let connection = rusqlite::Connection::open(&other).unwrap();
    connection.execute_batch("CREATE TABLE shop (id)").unwrap();
    drop(connection);
    let before = std::fs::read(&other).unwrap();

    let error = open(missing.clone()).unwrap_err();
    expect(
        &error,
        StoreErrorKind::Unusable,
        "missing.db: there is no such file",
    );
    assert!(!missing.exists());
    let error = open(other.clone()).unwrap_err();
    expect(
        &error,
        StoreErrorKind::Unusable,
        "other.db: no inbox was created",
    );
    assert_eq!(std::fs::read(&other).unwrap(), before);

    drop(folder.open());
    open(folder.file()).unwrap();
}

#[test]
fn the_longest_busy_timeout_opens_a_store_that_is_absent_or_must_exist() {
    let folder = Folder::new("longest-busy-timeout");
    let builder = || SqliteStore::builder().busy_timeout(Duration::MAX);

    builder().open(folder.file()).unwrap();
    builder().must_exist().open(folder.file()).unwrap();
}

#[test]
fn tables_of_a_newer_version_are_refused_and_left_alone() {
    let folder = Folder::new("newer");
    drop(folder.open());
    let connection = folder.connect();
    let newer = "UPDATE audience_inbox_version SET version = 3";
    connection.execute(newer, ()).unwrap();

    let builder = SqliteStore::builder().busy_timeout(support::PATIENCE);
    let error = builder.open(folder.file()).unwrap_err();

    expect(&error, StoreErrorKind::Unusable, "have version 3");
}

#[test]
fn a_database_with_other_bytes_for_text_is_refused() {
    let folder = Folder::new("utf16");
    let utf16 = "PRAGMA encoding = 'UTF-16'; CREATE TABLE t (x);";
    folder.connect().execute_batch(utf16).unwrap();

    let error = SqliteStore::open(folder.file()).unwrap_err();

    expect(&error, StoreErrorKind::Unusable, "UTF-8");
}

#[tokio::test]
async fn the_published_statements_run_twice_and_make_a_database_that_the_store_uses() {
    let folder = Folder::new("schema");
    let connection = folder.connect();
    let own = "PRAGMA user_version = 7; CREATE TABLE mine (x); INSERT INTO mine VALUES (1);";
    connection.execute_batch(own).unwrap();

    connection.execute_batch(SqliteStore::SCHEMA).unwrap();
    connection.execute_batch(SqliteStore::SCHEMA).unwrap();

    let store = folder.open();
    claim(&store, &id("evt_1"), Token::random()).await.unwrap();
    let mine: (i64, i64) = connection
        .query_row(
            "SELECT x, user_version FROM mine, pragma_user_version",
            (),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(mine, (1, 7));
}

#[tokio::test]
async fn tables_that_were_made_before_there_was_a_statement_for_claims_get_what_it_needs() {
    let folder = Folder::new("no-trigger");
    let store = folder.open();
    assert!(claim_in(&store, &folder, "before").await.unwrap());
    let connection = folder.connect();
    connection
        .execute_batch("DROP VIEW audience_inbox_claim")
        .unwrap();
    let error = claim_in(&store, &folder, "without").await.unwrap_err();
    let InboxError::Store(error) = error else {
        panic!("{error:?}");
    };
    let source = error.source().unwrap().to_string();
    assert!(source.contains("SqliteStore::SCHEMA"), "{source}");

    let store = folder.open();

    assert!(claim_in(&store, &folder, "after").await.unwrap());
    assert!(!claim_in(&store, &folder, "before").await.unwrap());
}

async fn claim_in(store: &SqliteStore, folder: &Folder, event: &str) -> Result<bool, InboxError> {
    let mut connection = folder.connect();
    let transaction = connection.transaction().unwrap();
    let claimed = store.claim_in(&transaction, "main", &id(event)).await?;
    transaction.commit().unwrap();
    Ok(claimed)
}

// On Windows, no file can have such a name.
#[cfg(unix)]
#[tokio::test]
async fn a_path_that_looks_like_a_uri_is_a_path() {
    let folder = Folder::new("uri");
    let path = folder.0.join("file:inbox.db?mode=memory");

    let store = SqliteStore::open(&path).unwrap();
    claim(&store, &id("evt_1"), Token::random()).await.unwrap();

    assert!(path.exists());
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_a_new_file_and_its_log() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new("mode");
    let store = folder.open();
    accept(&store, &id("evt_1"), b"ada@example.com")
        .await
        .unwrap();

    let mut files = 0;
    for entry in std::fs::read_dir(&folder.0).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{entry:?}");
        files += 1;
    }
    assert_eq!(files, 4);
}

#[cfg(unix)]
#[test]
fn a_file_that_exists_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new("mode-kept");
    std::fs::write(folder.file(), "").unwrap();
    let shared = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.file(), shared).unwrap();

    drop(folder.open());

    let mode = folder.file().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[tokio::test]
async fn a_missing_table_is_an_error_that_says_so_until_it_is_there_again() {
    let folder = Folder::new("dropped");
    let store = folder.open();
    let connection = folder.connect();
    connection
        .execute_batch("ALTER TABLE audience_inbox_pending RENAME TO gone")
        .unwrap();

    let error = claim(&store, &id("evt_1"), Token::random())
        .await
        .unwrap_err();

    expect(&error, StoreErrorKind::Unusable, "`SqliteStore::SCHEMA`");
    assert!(!error.is_temporary());
    connection
        .execute_batch("ALTER TABLE gone RENAME TO audience_inbox_pending")
        .unwrap();
    claim(&store, &id("evt_1"), Token::random()).await.unwrap();
}

#[tokio::test]
async fn a_handled_body_is_in_no_file_once_the_store_is_closed() {
    let folder = Folder::new("secure");
    let store = folder.open();
    let (other, id, in_transaction) = (id("evt_2"), id("evt_1"), id("evt_3"));
    accept(&store, &other, b"another body").await.unwrap();
    accept(&store, &in_transaction, &b"bob@example.com ".repeat(2_000))
        .await
        .unwrap();
    accept(&store, &id, &b"ada@example.com ".repeat(2_000))
        .await
        .unwrap();
    let token = Token::random();
    claim(&store, &id, token).await.unwrap();
    assert!(complete(&store, &id, token).await);
    assert!(claim_in(&store, &folder, "evt_3").await.unwrap());
    drop(store);

    // The thread closes the file a moment later.
    let log = folder.0.join("inbox.db-wal");
    let end = Instant::now() + support::PATIENCE;
    while log.exists() {
        assert!(Instant::now() < end, "the log is still there");
        std::thread::sleep(Duration::from_millis(10));
    }

    let file = std::fs::read(folder.file()).unwrap();
    let has = |text: &[u8]| file.windows(text.len()).any(|bytes| bytes == text);
    assert!(has(b"another body") && !has(b"@example.com"));
}

/// The store looks at its files ten times a second.
#[cfg(unix)]
const NOTICED: Duration = Duration::from_millis(100);

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_deleted_or_replaced_while_it_is_open_is_an_error_that_says_so() {
    let folder = Folder::new("replaced");
    let store = folder.open();
    claim(&store, &id("evt_1"), Token::random()).await.unwrap();
    let moved = folder.0.join("moved");

    for name in ["inbox.db", "inbox.db-wal", "inbox.db-shm"] {
        let path = folder.0.join(name);
        let mut connection = folder.connect();
        let transaction = connection.transaction().unwrap();
        std::fs::rename(&path, &moved).unwrap();
        tokio::time::sleep(NOTICED).await;
        let deleted = claim(&store, &id("evt_2"), Token::random()).await;
        std::fs::write(&path, "").unwrap();
        let replaced = accept(&store, &id("evt_3"), b"body").await;
        let own = store.claim_in(&transaction, "main", &id("evt_4")).await;
        drop(transaction);
        let in_transaction = store.transaction(|_| Ok::<_, String>(())).await;
        std::fs::rename(&moved, &path).unwrap();
        let restored = claim(&store, &id("evt_1"), Token::random()).await;

        let text = format!("`{name}` was deleted or replaced");
        expect(&deleted.unwrap_err(), StoreErrorKind::Unusable, &text);
        expect(&replaced.unwrap_err(), StoreErrorKind::Unusable, &text);
        let Err(InboxError::Store(own)) = own else {
            panic!("{own:?}");
        };
        expect(&own, StoreErrorKind::Unusable, &text);
        let Err(audience::inbox::TransactionError::Store(error)) = in_transaction else {
            panic!("{in_transaction:?}");
        };
        expect(&error, StoreErrorKind::Unusable, &text);
        restored.unwrap();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_is_turned_to_another_file_is_an_error_and_a_link_is_a_path() {
    let folder = Folder::new("link");
    let (one, other) = (folder.0.join("one.db"), folder.0.join("other.db"));
    drop(SqliteStore::open(&other).unwrap());
    drop(SqliteStore::open(&one).unwrap());
    std::os::unix::fs::symlink(&one, folder.file()).unwrap();
    let store = folder.open();
    claim(&store, &id("evt_1"), Token::random()).await.unwrap();

    std::fs::remove_file(folder.file()).unwrap();
    std::os::unix::fs::symlink(&other, folder.file()).unwrap();
    tokio::time::sleep(NOTICED).await;
    let error = claim(&store, &id("evt_2"), Token::random()).await;

    expect(&error.unwrap_err(), StoreErrorKind::Unusable, "replaced");
    let store = SqliteStore::open(&one).unwrap();
    let state = claim(&store, &id("evt_1"), Token::random()).await.unwrap();
    assert!(matches!(
        state,
        audience::inbox::ClaimState::InProgress { .. }
    ));
}
