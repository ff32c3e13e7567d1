//! Connections to a server with a certificate of the test's own.

use std::fs;
use std::path::Path;

use audience::inbox::{ClaimState, RedisStore, Store, StoreError, StoreErrorKind, Token};
use redis::{Client, ConnectionInfo, TlsCertificates};

use super::{claim, commands, id};
use crate::authority::Authority;
use support::redis::OwnRedis;
use support::{free_port, in_time, steady_time};

/// Lets a server accept TLS with this certificate, too. Returns the port, or `None` if the server was built without TLS.
async fn accept_tls(server: &OwnRedis, (certificate, key): (String, String)) -> Option<u16> {
    let file = |name: &str, text: &str| {
        let path = server.folder().join(name);
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let certificate = file("server.crt", &certificate);
    let key = file("server.key", &key);
    let port = free_port();
    let mut commands = commands(&server.url()).await;
    for (name, value) in [
        ("tls-auth-clients", "no"),
        ("tls-cert-file", &certificate),
        ("tls-key-file", &key),
        ("tls-port", &port.to_string()),
    ] {
        let mut set = redis::cmd("CONFIG");
        set.arg(&["SET", name, value]);
        match set.query_async::<()>(&mut commands).await {
            Err(_) if name == "tls-auth-clients" => {
                support::say_skipped("TLS of Redis: the server was built without it");
                return None;
            }
            set => set.unwrap(),
        }
    }
    Some(port)
}

/// An address whose authority is the one in this file.
fn trusting(file: &Path, url: &str) -> ConnectionInfo {
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(fs::read(file).unwrap()),
    };
    let client = Client::build_with_tls(url, certificates).unwrap();
    client.get_connection_info().clone()
}

/// Connects. On a slow machine, a TLS connection may take longer than the store waits, so it is tried again then.
async fn connected(address: ConnectionInfo) -> Result<RedisStore, StoreError> {
    in_time(async {
        loop {
            match RedisStore::connect(address.clone()).await {
                Err(error) if format!("{error:?}").contains("timed out") => {}
                connected => break connected,
            }
        }
    })
    .await
}

async fn refused(address: ConnectionInfo) -> StoreError {
    in_time(RedisStore::connect(address)).await.unwrap_err()
}

#[tokio::test]
async fn a_certificate_is_checked_with_its_host_name() {
    steady_time::begin_slow();
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    let authority = Authority::new(server.folder(), "trusted");
    let other = Authority::new(server.folder(), "other");
    let Some(port) = accept_tls(&server, authority.issue("localhost", 2035)).await else {
        return;
    };
    let url = format!("rediss://localhost:{port}");

    let address = trusting(&authority.file, &url);
    let store = connected(address).await.unwrap();
    let event = id("evt_1");
    let claimed = store.claim(claim(&event, Token::random())).await.unwrap();

    assert_eq!(claimed, ClaimState::Fresh { attempt: 1 });
    let by_address = trusting(&authority.file, &format!("rediss://127.0.0.1:{port}"));
    for wrong in [trusting(&other.file, &url), by_address] {
        let error = connected(wrong).await.unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Unusable, "{error:?}");
        assert!(format!("{error:?}").contains("certificate"), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_taken_for_one_that_is_down() {
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    let url = server.url().replace("redis://", "rediss://");

    let authority = Authority::new(server.folder(), "trusted");
    let error = refused(trusting(&authority.file, &url)).await;

    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
}
