//! A Postgres with the settings that it has when it is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use audience::inbox::deadpool_postgres::tokio_postgres::{self, Client, NoTls};

use crate::server::{Server, free_port, new_folder};

const START_LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Postgres {
    _server: Server,
    port: u16,
}

impl Postgres {
    /// Starts a server. Returns why not, if it cannot.
    pub(crate) async fn start(parent: &Path) -> Result<Self, String> {
        let bin = programs().ok_or("Postgres is not installed")?;
        let folder = new_folder(parent, "postgres");
        let prefix = unprivileged_user();
        if !prefix.is_empty() {
            let changed = Command::new("chown").arg("postgres").arg(&folder).status();
            if !changed.is_ok_and(|status| status.success()) {
                return Err("Postgres needs a user of the name postgres".to_owned());
            }
        }
        let port = free_port();
        // In one shell, so that the keeper ends it.
        let script = "\"$0/initdb\" -D data -U audience -A trust -E UTF8 --locale=C && exec \"$0/postgres\" \
            -D data -h 127.0.0.1 -c unix_socket_directories= -p \"$1\"";
        let bin = bin.display().to_string();
        let program = ["sh", "-c", script, &bin, &port.to_string()].map(str::to_owned);
        let server = Server::start(prefix, "QUIT", &folder, &program);
        let this = Self {
            _server: server,
            port,
        };
        let limit = Instant::now() + START_LIMIT;
        while this.connect("postgres").await.is_err() {
            if Instant::now() > limit {
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("there is no log");
                return Err(format!(
                    "Postgres did not start, try another --folder: {last}"
                ));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(this)
    }

    /// Creates an empty database and returns its address.
    pub(crate) async fn database(&self) -> String {
        let name = format!("bench_{:016x}", fastrand::u64(..));
        let client = self.connect("postgres").await.unwrap();
        let create = format!("CREATE DATABASE {name}");
        client.batch_execute(&create).await.unwrap();
        self.url(&name)
    }

    async fn connect(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        connect(&self.url(database)).await
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://audience@127.0.0.1:{}/{database}", self.port)
    }
}

pub(crate) async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Returns the folder of the programs of the newest version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let versions = versions.into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions.map(|entry| entry.path()).collect();
    versions.sort_by_key(|path| path.file_name()?.to_str()?.parse::<u32>().ok());
    folders.extend(versions.into_iter().rev().map(|path| path.join("bin")));
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

/// Returns the command that runs another as the user `postgres`: the server refuses to run as root.
fn unprivileged_user() -> &'static [&'static str] {
    let id = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    match id.is_ok_and(|id| id.stdout.trim_ascii() == b"0") {
        true => &[
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
        ],
        false => &[],
    }
}
