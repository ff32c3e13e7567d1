use std::error::Error;
use std::time::Duration;

use audience::inbox::conformance::Suite;
use audience::inbox::{EventKey, NewClaim, RedisStore, Store, StoreErrorKind, Token};
use audience::webhooks::EventId;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;

use super::{claim, commands, connect, id};
use support::redis::OwnRedis;
use support::{PATIENCE, in_time};

const NODES: u16 = 3;
const SLOTS: u16 = 16_384;
/// No server takes another one for dead because the machine is slow.
const SETTINGS: &[&str] = &[
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "600000",
];

/// A cluster of three servers without replicas.
struct Cluster {
    nodes: Vec<OwnRedis>,
}

impl Cluster {
    async fn start() -> Option<Self> {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(OwnRedis::start(SETTINGS).await?);
        }
        for (number, node) in (0..NODES).zip(&nodes) {
            let mut connection = commands(&node.url()).await;
            let slots: Vec<u16> = (0..SLOTS).filter(|slot| slot % NODES == number).collect();
            let add = redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots).take();
            let () = add.query_async(&mut connection).await.unwrap();
            let epoch = redis::cmd("CLUSTER")
                .arg("SET-CONFIG-EPOCH")
                .arg(number + 1)
                .take();
            let () = epoch.query_async(&mut connection).await.unwrap();
            let meet = redis::cmd("CLUSTER")
                .arg("MEET")
                .arg("127.0.0.1")
                .arg(nodes[0].port())
                .take();
            let () = meet.query_async(&mut connection).await.unwrap();
        }
        let cluster = Self { nodes };
        in_time(cluster.is_complete()).await;
        Some(cluster)
    }

    /// Waits until each server knows the slots of all.
    async fn is_complete(&self) {
        for node in &self.nodes {
            let mut connection = commands(&node.url()).await;
            loop {
                let info = redis::cmd("CLUSTER").arg("INFO").take();
                let info: String = info.query_async(&mut connection).await.unwrap();
                if info.contains("cluster_state:ok") && info.contains("cluster_size:3") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    async fn connection(&self) -> ClusterConnection {
        let urls: Vec<_> = self.nodes.iter().map(OwnRedis::url).collect();
        let client = ClusterClient::builder(urls)
            .connection_timeout(PATIENCE)
            .response_timeout(PATIENCE)
            .build();
        client.unwrap().get_async_connection().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_a_cluster_passes_all_cases() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let store = RedisStore::new(cluster.connection().await);
    store.check().await.unwrap();

    let report = Suite::new(store)
        .also_through(RedisStore::new(cluster.connection().await))
        .expires_by_itself()
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test]
async fn the_endpoints_of_a_cluster_are_on_all_its_servers() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let store = RedisStore::new(cluster.connection().await);
    let event = id("event");

    for number in 0..60 {
        store
            .claim(claim_at(&format!("endpoint {number}"), &event))
            .await
            .unwrap();
    }

    for node in &cluster.nodes {
        let mut connection = commands(&node.url()).await;
        let keys: u64 = redis::cmd("DBSIZE")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert!((1..60).contains(&keys), "{keys}");
    }
}

#[tokio::test]
async fn a_connection_to_one_server_of_a_cluster_is_told_to_be_the_wrong_one() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let store = connect(&cluster.nodes[0].url()).await;
    let event = id("event");

    let mut errors = Vec::new();
    for number in 0..20 {
        let endpoint = format!("endpoint {number}");
        let claim = claim_at(&endpoint, &event);
        errors.extend(store.claim(claim).await.err());
    }

    assert!(!errors.is_empty(), "one server has a third of the slots");
    for error in errors {
        assert_eq!(error.kind(), StoreErrorKind::Unusable);
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("cluster connection"), "{cause}");
    }
}

#[tokio::test]
async fn a_server_of_a_cluster_that_evicts_keys_is_noticed() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let mut config = commands(&cluster.nodes[1].url()).await;
    let set = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory-policy", "allkeys-random"])
        .take();
    let () = set.query_async(&mut config).await.unwrap();

    let store = RedisStore::new(cluster.connection().await);

    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
}

fn claim_at<'a>(endpoint: &'a str, id: &'a EventId) -> NewClaim<'a> {
    let mut claim = claim(id, Token::random());
    claim.key = EventKey::new(endpoint, id);
    claim
}
