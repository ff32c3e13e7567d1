use std::error::Error;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::inbox::PostgresStore;
use crate::inbox::error::StoreErrorKind;

fn refusal(address: &str) -> String {
    let error = Address::parse(address).map(drop).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    error.source().unwrap().to_string()
}

#[test]
fn the_database_gives_up_a_statement_soon_after_the_store_unless_the_address_says_otherwise() {
    let options = |url: &str| {
        let config = Address::parse(url).unwrap().config;
        let limited = limit_statements(config, Duration::from_secs(2));
        limited.get_options().unwrap().to_owned()
    };

    assert_eq!(
        options("postgres://localhost/db"),
        "-c statement_timeout=3000 -c lock_timeout=3000"
    );
    assert_eq!(
        options("postgres://localhost/db?options=-cstatement_timeout%3D7s"),
        "-cstatement_timeout=7s -c lock_timeout=3000"
    );
    assert_eq!(
        options(
            "postgres://localhost/db?options=-c%20statement_timeout%3D7s%20--lock_timeout%3D1s"
        ),
        "-c statement_timeout=7s --lock_timeout=1s"
    );
    assert_eq!(
        options("postgres://localhost/db?options=--Lock-Timeout%3D7s"),
        "--Lock-Timeout=7s -c statement_timeout=3000"
    );
    // Another parameter, whose name ends in the same way.
    assert_eq!(
        options("postgres://localhost/db?options=-cdeadlock_timeout%3D7s"),
        "-cdeadlock_timeout=7s -c statement_timeout=3000 -c lock_timeout=3000"
    );
}

#[cfg(not(feature = "inbox-postgres-rustls"))]
#[test]
fn an_address_that_requires_tls_is_refused_with_what_to_do() {
    for option in [
        "sslmode=require",
        "sslmode=verify-full",
        "sslrootcert=system",
        "sslmode=require&sslnegotiation=direct",
    ] {
        let text = refusal(&format!("postgres://inbox@localhost/db?{option}"));

        assert!(text.contains("inbox-postgres-rustls"), "{text}");
    }
}

#[test]
fn the_error_of_an_invalid_address_holds_nothing_of_its_password() {
    for url in [
        "postgres://inbox:hunter2@localhost:hunter2/db",
        "postgres://localhost/db?hunter2=1",
        "postgres://inbox:p@ss?hunter=2@localhost/db",
        "postgres://localhost/db?hunter",
        "host=localhost port=hunter2",
        "host=localhost hunter2=",
        "host=localhost password='hunter2",
        "hunter2",
    ] {
        let text = refusal(url);

        assert!(!text.contains("hunter"), "{text}");
        assert!(text.contains("percent-encoded"), "{text}");
    }
}

#[test]
fn an_option_that_is_not_supported_is_named_without_its_value() {
    for address in [
        "postgres://inbox:secret@localhost/db?sslmod=hunter2",
        "host=localhost sslmod=hunter2",
    ] {
        let text = refusal(address);

        assert!(text.contains("`sslmod`"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("secret"));
    }
    let text = refusal("postgres://localhost/db?sslmode=hunter2");
    assert!(text.contains("`sslmode`") && !text.contains("hunter2"));
}

#[test]
fn an_option_for_tls_that_is_given_twice_is_refused_however_it_is_written() {
    for address in [
        "postgres://a@b/c?sslmode=verify-full&sslmode=disable",
        "postgres://a@b/c?sslmode=verify-full&sslmod%65=disable",
        "host=b sslmode=verify-full sslmode=disable",
    ] {
        let error = take_tls_options(address).err().unwrap();

        let text = format!("{error:#}");
        assert!(text.contains("`sslmode` twice"), "{text}");
    }
}

#[test]
fn verified_tls_can_be_required_of_an_address() {
    let store = || PostgresStore::builder().require_verified_tls();
    for mode in [
        "",
        "?sslmode=disable",
        "?sslmode=prefer",
        "?sslmode=require",
    ] {
        let refused = store().connect_lazy(&format!("postgres://a@b/c{mode}"));

        let text = format!("{:#}", refused.err().unwrap());
        assert!(text.contains("sslmode=verify-full"), "{mode}: {text}");
    }
    #[cfg(feature = "inbox-postgres-rustls")]
    store()
        .connect_lazy("postgres://a@b/c?sslmode=verify-full")
        .unwrap();
}

#[test]
fn the_options_for_tls_are_taken_out_of_both_forms_of_an_address() {
    let url = "postgresql://inbox:a?b@localhost/db?connect_timeout=3&sslmode=verify-ca&sslrootcert=%2Fa%20b.crt\
        &application_name=x%26y&sslcert=c&sslkey=k";
    let words = r"host=localhost sslmode = verify-ca password='a ?\'b' sslrootcert='/a b.crt' sslcert=c sslkey=k";

    let (url, of_url) = take_tls_options(url).unwrap();
    let (words, of_words) = take_tls_options(words).unwrap();

    let expected = TlsOptions {
        mode: Some(TlsMode::VerifyCa),
        root: Some("/a b.crt".to_owned()),
        certificate: Some("c".to_owned()),
        key: Some("k".to_owned()),
    };
    assert_eq!((of_url, &of_words), (expected, &of_words));
    assert_eq!(of_words.root.as_deref(), Some("/a b.crt"));
    assert_eq!(
        url,
        "postgresql://inbox:a?b@localhost/db?connect_timeout=3&application_name=x%26y"
    );
    let config: Config = words.parse().unwrap();
    assert_eq!(config.get_password(), Some(&br"a ?'b"[..]));
}

#[test]
fn a_quote_within_a_value_is_a_part_of_it() {
    let address = "host=localhost password=a'b sslcert=c'd";

    let (rest, options) = take_tls_options(address).unwrap();

    assert_eq!(options.certificate.as_deref(), Some("c'd"));
    let config: Config = rest.parse().unwrap();
    assert_eq!(config.get_password(), Some(&b"a'b"[..]));
}

#[test]
fn each_mode_of_tls_is_read() {
    for (name, expected) in [
        ("disable", TlsMode::Disable),
        ("prefer", TlsMode::Prefer),
        ("require", TlsMode::Require),
        ("verify-ca", TlsMode::VerifyCa),
        ("verify-full", TlsMode::VerifyFull),
    ] {
        let address = format!("host=localhost sslmode={name}");

        let (_, options) = take_tls_options(&address).unwrap();

        assert_eq!(options.mode(), expected);
    }
}

/// Refuses each connection with this SQLSTATE. Notes whether it asked for limits for its statements.
async fn refuse(listener: &TcpListener, code: &str, limited: &Mutex<Vec<bool>>) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let length = client.read_u32().await.unwrap();
        let mut settings = vec![0; usize::try_from(length).unwrap() - 4];
        client.read_exact(&mut settings).await.unwrap();
        let settings = String::from_utf8_lossy(&settings);
        let is_limited = settings.contains("statement_timeout");
        limited.lock().unwrap().push(is_limited);
        let error = format!("SFATAL\0C{code}\0Mit is refused\0\0");
        client.write_u8(b'E').await.unwrap();
        let length = u32::try_from(error.len()).unwrap() + 4;
        client.write_u32(length).await.unwrap();
        client.write_all(error.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn only_a_pooler_that_refuses_the_limits_gets_another_connection_without_them() {
    let cases: [(&str, &[bool]); 3] = [
        ("08P01", &[true, false]),
        ("0A000", &[true, false]),
        ("28P01", &[true]),
    ];
    for (code, expected) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = format!("host=127.0.0.1 port={port} user=inbox sslmode=disable");
        let address = Address::parse(&address).unwrap();
        let (pool, _) = address.pool(1, Duration::from_secs(300)).unwrap();
        let limited = Mutex::default();

        tokio::select! {
            connected = pool.get() => assert!(connected.is_err()),
            () = refuse(&listener, code, &limited) => unreachable!("it never ends"),
        }

        assert_eq!(limited.into_inner().unwrap(), expected, "{code}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_call_reaches_the_second_host_if_the_first_one_drops_every_packet() {
    use tokio::net::{TcpSocket, TcpStream};

    use crate::inbox::Store;

    // Nobody accepts its connections, and no further one fits into its queue.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let full_at = full.local_addr().unwrap();
    let waiting = TcpStream::connect(full_at).await.unwrap();
    let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ports = [full_at, second.local_addr().unwrap()].map(|address| address.port());
    let url = format!(
        "postgresql://inbox@127.0.0.1:{},127.0.0.1:{}/app?sslmode=disable",
        ports[0], ports[1]
    );
    let store = PostgresStore::builder().connect_lazy(&url).unwrap();

    let is_reached = tokio::select! {
        biased;
        reached = second.accept() => reached.is_ok(),
        failed = store.purge(1) => panic!("the call ended first: {failed:?}"),
    };

    assert!(is_reached);
    drop(waiting);
}
