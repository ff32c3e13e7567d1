//! What goes wrong while the workers call their store: kills, pauses, lost and silent connections, and restarts.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use support::postgres::{self, Database};
use support::redis::OwnRedis;

/// Stands between a worker and the server.
pub(super) struct Proxy {
    pub(super) port: u16,
    held: watch::Sender<Held>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// What is not forwarded.
#[derive(Clone, Copy, Default)]
struct Held {
    requests: bool,
    responses: bool,
}

impl Proxy {
    pub(super) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (held, receiver) = watch::channel(Held::default());
        let connections = Arc::new(Mutex::new(Vec::new()));
        let open = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                let connection = tokio::spawn(forward_both(worker, server, receiver.clone()));
                let mut open = open.lock().unwrap();
                open.retain(|connection: &JoinHandle<()>| !connection.is_finished());
                open.push(connection);
            }
        });
        Self {
            port,
            held,
            connections,
        }
    }

    /// Cuts all connections. What is on its way is lost. Nothing is forwarded on them after this returned.
    pub(super) async fn cut(&self) {
        let connections = std::mem::take(&mut *self.connections.lock().unwrap());
        for connection in connections {
            connection.abort();
            let _ = connection.await;
        }
    }

    /// Keeps what is sent, in one direction or both. It arrives when it is released, even if the worker does not wait
    /// any more.
    pub(super) fn hold(&self, requests: bool, responses: bool) {
        self.held.send_replace(Held {
            requests,
            responses,
        });
    }
}

async fn forward_both(worker: TcpStream, server: u16, held: watch::Receiver<Held>) {
    // While the server is down, the worker's connection is closed.
    if let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await {
        let (from_worker, to_worker) = worker.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = forward(from_worker, to_server, held.clone(), |held| held.requests) => {}
            () = forward(from_server, to_worker, held, |held| held.responses) => {}
        }
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut held: watch::Receiver<Held>,
    is_held: impl Fn(&Held) -> bool,
) {
    let mut buffer = vec![0; 16_384];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let released = held.wait_for(|held| !is_held(held)).await;
        // It holds a lock until it is dropped.
        let is_released = released.map(drop).is_ok();
        if !is_released || to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
}

/// The server of a store.
pub(super) enum Server {
    /// The store is a file.
    None,
    Postgres(postgres::Server, Database),
    Redis(OwnRedis),
}

impl Server {
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::Postgres(_, database) => {
                let (_, address) = database.url.rsplit_once(':')?;
                address.split_once('/')?.0.parse().ok()
            }
            Self::Redis(redis) => Some(redis.port()),
        }
    }

    /// Returns the address of the server behind a proxy.
    pub(super) fn url(&self, port: u16) -> String {
        match self {
            Self::None => unreachable!("a file has no address"),
            Self::Postgres(_, database) => {
                // The digits of the port may also be in the name of the database.
                let own = format!(":{}/", self.port().unwrap());
                database.url.replace(&own, &format!(":{port}/"))
            }
            Self::Redis(_) => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// Kills the server and starts it again.
    pub(super) async fn restart(&mut self) {
        match self {
            Self::None => {}
            Self::Postgres(server, _) => {
                server.kill().await;
                server.start().await;
            }
            Self::Redis(server) => {
                server.kill();
                server.restart().await;
            }
        }
    }

    /// Stops the processes of the server for this long.
    pub(super) async fn pause(&self, time: Duration) {
        let processes = self.processes();
        signal("STOP", &processes);
        tokio::time::sleep(time).await;
        signal("CONT", &processes);
    }

    fn processes(&self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Postgres(server, _) => {
                let read = |path| std::fs::read_to_string(path).unwrap_or_default();
                let lock = read(server.folder().join("data/postmaster.pid"));
                let main = lock.lines().next().unwrap_or_default().to_owned();
                let children = read(format!("/proc/{main}/task/{main}/children").into());
                let children = children.split_whitespace().map(str::to_owned);
                std::iter::once(main.clone()).chain(children).collect()
            }
            Self::Redis(server) => {
                let info = redis::Client::open(server.url()).and_then(|client| {
                    let mut connection = client.get_connection()?;
                    redis::cmd("INFO").query::<String>(&mut connection)
                });
                let info = info.unwrap_or_default();
                let line = info
                    .lines()
                    .find_map(|line| line.strip_prefix("process_id:"));
                line.map(|id| id.trim().to_owned()).into_iter().collect()
            }
        }
    }

    /// Waits until the server works on nothing that a worker without patience left behind.
    pub(super) async fn wait_until_idle(&self) {
        let Self::Postgres(_, database) = self else {
            return;
        };
        let client = postgres::client(&database.url).await;
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND pid <> pg_backend_pid() AND state <> 'idle'";
        while client
            .query_one(others, &[])
            .await
            .is_ok_and(|row| row.get::<_, i64>(0) > 0)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Sends a signal to processes.
pub(super) fn signal(name: &str, processes: &[String]) {
    if !processes.is_empty() {
        // Some may have ended.
        let _ = Command::new("kill")
            .args(["-s", name, "--"])
            .args(processes)
            .stderr(std::process::Stdio::null())
            .status();
    }
}
