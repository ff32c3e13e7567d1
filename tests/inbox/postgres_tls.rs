//! Connections to a Postgres with a certificate of the test's own.

use std::error::Error;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use audience::inbox::{PostgresStore, Store, StoreError, StoreErrorKind};
use rcgen::{CertificateParams, KeyPair};

use super::authority::Authority;
use super::deliveries::{id, new_claim};
use support::postgres::{self, Database, Server};
use support::{PATIENCE, in_time};

fn self_signed() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// Writes a file of the server's user that nobody else can read.
fn write_private(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    let owner = fs::metadata(file.parent().unwrap()).unwrap();
    let is_own = fs::metadata(file).unwrap().uid() == owner.uid();
    if !is_own {
        chown(file, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

/// Lets a server use this certificate, and accept the connections of these lines.
async fn serve(server: &Server, (certificate, key): (String, String), lines: &str) -> Database {
    let data = server.folder().join("data");
    write_private(&data.join("server.crt"), &certificate);
    write_private(&data.join("server.key"), &key);
    write_private(
        &data.join("pg_hba.conf"),
        "host all audience 127.0.0.1/32 trust\n",
    );
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    let loaded = "SELECT extract(epoch FROM pg_conf_load_time())::float8";
    let before: f64 = admin.query_one(loaded, &[]).await.unwrap().get(0);
    admin
        .batch_execute("ALTER SYSTEM SET ssl = on")
        .await
        .unwrap();
    let lines = format!("{lines}\nhost all audience 127.0.0.1/32 trust\n");
    write_private(&data.join("pg_hba.conf"), &lines);
    tokio::time::sleep(Duration::from_millis(10)).await;
    admin
        .batch_execute("SELECT pg_reload_conf()")
        .await
        .unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        let admin = postgres::client(&database.url).await;
        let after: f64 = admin.query_one(loaded, &[]).await.unwrap().get(0);
        if after > before {
            return database;
        }
        assert!(Instant::now() < end, "the settings are not read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Everything a log could show of an error.
fn printed(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// Connects with these options. Returns whether the connection is encrypted.
async fn connect(url: &str, options: &str) -> Result<bool, StoreError> {
    let url = format!("{url}?{options}");
    let store = in_time(postgres::connect(&url)).await?;
    let client = store.pool().get().await.unwrap();
    let is_encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    Ok(client.query_one(is_encrypted, &[]).await.unwrap().get(0))
}

/// Asserts on the result of each mode: whether the connection is encrypted, or a part of the error.
async fn assert_modes(url: &str, root: &str, expected: [Result<bool, &str>; 5]) {
    let modes = ["disable", "prefer", "require", "verify-ca", "verify-full"];
    for (mode, expected) in modes.into_iter().zip(expected) {
        let connected = connect(url, &format!("sslmode={mode}{root}")).await;
        match (connected, expected) {
            (Ok(is_encrypted), expected) => {
                assert_eq!(Ok(is_encrypted), expected, "{mode}{root}");
            }
            (Err(error), Err(expected)) => {
                let text = printed(&error);
                assert_eq!(error.kind(), StoreErrorKind::Unusable, "{mode}: {text}");
                assert!(text.contains(expected), "{mode}{root}: {text}");
            }
            (Err(error), Ok(_)) => panic!("{mode}{root}: {}", printed(&error)),
        }
    }
}

#[tokio::test]
async fn each_mode_checks_as_much_as_libpq_does() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let folder = server.folder().to_owned();
    let authority = Authority::new(&folder, "trusted");
    let other = Authority::new(&folder, "other");
    let trusted = format!("&sslrootcert={}", authority.file.display());
    let untrusted = format!("&sslrootcert={}", other.file.display());

    let good = serve(&server, authority.issue("127.0.0.1", 4_000), "").await;
    let plain = Ok(false);
    let tls = Ok(true);
    let issuer = Err("UnknownIssuer");
    assert_modes(&good.url, &trusted, [plain, tls, tls, tls, tls]).await;
    assert_modes(
        &good.url,
        &untrusted,
        [plain, issuer, issuer, issuer, issuer],
    )
    .await;
    // The operating system does not know the authority.
    let unknown = Err("certificate");
    assert_modes(&good.url, "", [plain, tls, tls, unknown, unknown]).await;
    assert!(connect(&good.url, "").await.unwrap());

    let wrong_name = serve(&server, authority.issue("db.example", 4_000), "").await;
    let name = Err("not valid for name");
    assert_modes(&wrong_name.url, &trusted, [plain, tls, tls, tls, name]).await;

    let expired = serve(&server, authority.issue("127.0.0.1", 2_020), "").await;
    let expiry = Err("expired");
    assert_modes(
        &expired.url,
        &trusted,
        [plain, expiry, expiry, expiry, expiry],
    )
    .await;
    assert_modes(&expired.url, "", [plain, tls, tls, unknown, unknown]).await;

    let self_signed = serve(&server, self_signed(), "").await;
    assert_modes(
        &self_signed.url,
        &trusted,
        [plain, issuer, issuer, issuer, issuer],
    )
    .await;
    assert_modes(&self_signed.url, "", [plain, tls, tls, unknown, unknown]).await;
}

#[tokio::test]
async fn a_server_without_tls_is_refused_unless_it_is_only_preferred() {
    let Some(database) = postgres::database().await else {
        return;
    };
    if database.url.contains('?') {
        return;
    }
    let refused = Err("does not support TLS");

    assert_modes(
        &database.url,
        "",
        [Ok(false), Ok(false), refused, Err("`sslrootcert`"), refused],
    )
    .await;
}

#[tokio::test]
async fn a_server_that_accepts_only_one_kind_of_connection_refuses_the_other() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let folder = server.folder().to_owned();
    let authority = Authority::new(&folder, "trusted");
    let lines = "hostssl all tls 127.0.0.1/32 trust\n\
        hostnossl all plain 127.0.0.1/32 trust\n\
        hostssl all password 127.0.0.1/32 scram-sha-256";
    let database = serve(&server, authority.issue("127.0.0.1", 4_000), lines).await;
    let admin = postgres::client(&database.url).await;
    // The default before version 14 is md5.
    let roles = "SET password_encryption = 'scram-sha-256';
        CREATE ROLE tls LOGIN; CREATE ROLE plain LOGIN; CREATE ROLE password LOGIN PASSWORD 'hunter2'";
    admin.batch_execute(roles).await.unwrap();
    let url = |user: &str| database.url.replace("audience@", &format!("{user}@"));

    let refused = Err("no pg_hba.conf entry");
    let tls = Ok(true);
    assert_modes(
        &url("tls"),
        "",
        [refused, tls, tls, Err("certificate"), Err("certificate")],
    )
    .await;
    assert_modes(
        &url("plain"),
        "",
        [
            Ok(false),
            refused,
            refused,
            Err("certificate"),
            Err("certificate"),
        ],
    )
    .await;
    let bound = format!(
        "sslmode=verify-full&channel_binding=require&sslrootcert={}",
        authority.file.display()
    );
    assert!(connect(&url("password:hunter2"), &bound).await.unwrap());
    let wrong = connect(&url("password:hunter3"), &bound).await.unwrap_err();
    assert_eq!(wrong.kind(), StoreErrorKind::Unusable);
    assert!(!printed(&wrong).contains("hunter3"));
}

#[tokio::test]
async fn a_client_shows_its_certificate_if_the_address_names_one() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let folder = server.folder().to_owned();
    let authority = Authority::new(&folder, "trusted");
    let (certificate, key) = authority.issue("holder", 4_000);
    fs::write(folder.join("client.crt"), certificate).unwrap();
    fs::write(folder.join("client.key"), key).unwrap();
    let plain = postgres::client(&server.database().await.url).await;
    let trust = format!(
        "ALTER SYSTEM SET ssl_ca_file = '{}'",
        authority.file.display()
    );
    plain.batch_execute(&trust).await.unwrap();
    let lines = "hostssl all holder 127.0.0.1/32 cert";
    let database = serve(&server, authority.issue("127.0.0.1", 4_000), lines).await;
    let admin = postgres::client(&database.url).await;
    admin
        .batch_execute("CREATE ROLE holder LOGIN")
        .await
        .unwrap();
    let url = database.url.replace("audience@", "holder@");
    let files = format!(
        "sslcert={0}/client.crt&sslkey={0}/client.key",
        folder.display()
    );

    let shown = connect(&url, &format!("sslmode=require&{files}")).await;
    let hidden = connect(&url, "sslmode=require").await;

    assert!(shown.unwrap());
    assert!(hidden.is_err());
}

#[tokio::test]
async fn a_statement_that_timed_out_is_cancelled_through_tls() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let folder = server.folder().to_owned();
    let authority = Authority::new(&folder, "trusted");
    let database = serve(&server, authority.issue("127.0.0.1", 4_000), "").await;
    // Without the limits that the server would keep by itself.
    let url = format!(
        "{}?sslmode=require&options=-cstatement_timeout%3D0%20-clock_timeout%3D0",
        database.url
    );
    let store = PostgresStore::builder().timeout(Duration::from_millis(300));
    let store = postgres::connect_with_short_timeout(&store, &url).await;
    store.migrate().await.unwrap();
    let mut other = postgres::client(&database.url).await;
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE audience_inbox IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();

    let blocked = store.claim(new_claim(&id("evt_1"))).await;

    assert!(blocked.is_err());
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND wait_event_type = 'Lock'";
    let end = Instant::now() + PATIENCE;
    while lock.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(Instant::now() < end, "the statement still waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_address_whose_options_for_tls_cannot_be_used_is_refused_before_it_connects() {
    let folder = std::env::temp_dir();
    let empty = folder.join(format!("audience-empty-{}.crt", std::process::id()));
    fs::write(&empty, "no certificate").unwrap();
    let not_pem = format!("sslrootcert={}", empty.display());

    for (options, expected) in [
        ("sslmode=allow", "`sslmode`"),
        (
            "sslmode=require&sslrootcert=system",
            "`sslmode=verify-full`",
        ),
        ("sslmode=verify-ca", "`sslrootcert`"),
        ("sslrootcert=/no/such/file", "No such file"),
        ("sslrootcert=/no/such/file", "`sslrootcert`"),
        (&not_pem, "`sslrootcert`"),
        (
            "sslcert=/no/such/file&sslkey=/no/such/file",
            "that `sslkey`",
        ),
        ("sslcert=/no/such/file", "both"),
        ("sslcrl=/no/such/file", "`sslcrl`"),
    ] {
        let url = format!("postgres://inbox:hunter2@127.0.0.1:1/db?{options}");
        let error = PostgresStore::connect_lazy(&url).unwrap_err();

        let text = printed(&error);
        assert_eq!(error.kind(), StoreErrorKind::Unusable, "{text}");
        assert!(text.contains(expected), "{text}");
        assert!(
            !text.contains("hunter2") && !text.contains("/no/such"),
            "{text}"
        );
    }
    assert!(PostgresStore::connect_lazy("postgres://127.0.0.1:1/db?sslrootcert=system").is_ok());
    fs::remove_file(&empty).unwrap();
}
