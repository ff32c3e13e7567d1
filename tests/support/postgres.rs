//! A Postgres for tests: the one at the address in `AUDIENCE_TEST_POSTGRES`, or one of the test's own, if the programs
//! are installed.

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use audience::inbox::deadpool_postgres::tokio_postgres::{self, Client, NoTls};
use audience::inbox::{PostgresStore, PostgresStoreBuilder, StoreError};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::PATIENCE;

/// Starts, stops and finally removes a server. It reads commands, and ends when the test process does,
/// however that ends: then nobody holds the other end of the pipe.
const KEEPER: &str = r#"
start() {
    # A connection of another program may have the port for a while.
    attempts=0
    while [ "$((attempts += 1))" -le 100 ]; do
        "$bin/postgres" -D "$dir/data" -p "$port" -h 127.0.0.1 -F -c unix_socket_directories= \
            -c max_connections=300 -c max_prepared_transactions=0 </dev/null >>"$dir/log" 2>&1 &
        server=$!
        while kill -0 "$server" 2>/dev/null; do
            grep -qs "^ready" data/postmaster.pid && grep -qsx "$server" data/postmaster.pid && return
            sleep 0.1
        done
        sleep 0.5
    done
}
end() {
    kill -s "$1" "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
bin=$1 dir=$2 port=$3
cd "$dir" || exit 1
"$bin/initdb" -D data -U audience -A trust -E UTF8 --locale=C -N </dev/null >log 2>&1 && start
while read -r command; do
    case "$command" in
        start) start ;;
        stop) end QUIT ;;
        kill)
            # The processes of open connections would respond for a moment longer. A stopped server starts no new one.
            kill -s STOP "$server" 2>/dev/null
            # More than once: the list may leave out a process while another one ends.
            for _ in 1 2 3; do
                kill -s KILL $(cat "/proc/$server/task/$server/children") 2>/dev/null
                sleep 0.02
            done
            kill -s KILL "$server" 2>/dev/null
            wait "$server" 2>/dev/null
            ;;
    esac
done
end QUIT
cd / && rm -rf "$dir"
"#;

/// A database without tables.
#[derive(Debug)]
pub struct Database {
    pub url: String,
    /// The address of the database and the schema to drop at the end.
    schema: Option<(String, String)>,
}

/// A server of one test, which may stop it.
#[derive(Debug)]
pub struct Server {
    keeper: Mutex<Child>,
    port: u16,
    folder: PathBuf,
}

/// A `PgBouncer` in transaction mode that does not support prepared statements, in front of a database.
#[derive(Debug)]
pub struct Pooler {
    process: Child,
    folder: PathBuf,
    pub url: String,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns an empty database. Skips the test and returns `None` if there is no Postgres.
pub async fn database() -> Option<Database> {
    static SHARED: OnceCell<Option<Server>> = OnceCell::const_new();

    if let Ok(address) = env::var("AUDIENCE_TEST_POSTGRES") {
        return Some(Database::in_schema(address).await);
    }
    let Some(server) = SHARED.get_or_init(Server::start_if_installed).await else {
        crate::skip("no Postgres: install the package postgresql, or set AUDIENCE_TEST_POSTGRES");
        return None;
    };
    Some(server.database().await)
}

/// Returns a server that the test may stop. Skips the test and returns `None` if the programs are not installed.
pub async fn server() -> Option<Server> {
    let server = Server::start_if_installed().await;
    if server.is_none() {
        crate::skip("no Postgres to stop: install the package postgresql");
    }
    server
}

/// Connects to a database, for statements of a test.
pub async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Database {
    async fn in_schema(address: String) -> Self {
        let schema = format!("audience_test_{:016x}", random());
        let create = format!("CREATE SCHEMA {schema}");
        client(&address).await.batch_execute(&create).await.unwrap();
        let separator = if address.contains('?') { '&' } else { '?' };
        Self {
            url: format!("{address}{separator}options=-csearch_path%3D{schema}"),
            schema: Some((address, schema)),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some((address, schema)) = self.schema.take() else {
            return;
        };
        let drop_schema = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let drop = format!("DROP SCHEMA {schema} CASCADE");
                let _ = client(&address).await.batch_execute(&drop).await;
            });
        };
        let _ = std::thread::spawn(drop_schema).join();
    }
}

impl Server {
    /// Creates an empty database.
    pub async fn database(&self) -> Database {
        let name = format!("test_{:016x}", random());
        let create = format!("CREATE DATABASE {name} STRATEGY wal_log");
        let client = client(&self.url("postgres")).await;
        if client.batch_execute(&create).await.is_err() {
            // Servers before version 15 know no strategy.
            let create = format!("CREATE DATABASE {name}");
            client.batch_execute(&create).await.unwrap();
        }
        Database {
            url: self.url(&name),
            schema: None,
        }
    }

    /// Starts a pooler with two connections to a database. Skips the test and returns `None` if it is not installed.
    pub async fn pooler(&self, database: &Database) -> Option<Pooler> {
        let program = Path::new("/usr/sbin/pgbouncer");
        if !program.is_file() {
            crate::skip("no pooler: install the package pgbouncer");
            return None;
        }
        let (_, name) = database.url.rsplit_once('/').unwrap();
        let (folder, port) = (new_folder("pgbouncer"), crate::free_port());
        let settings = format!(
            "[databases]\n\
            {name} = host=127.0.0.1 port={} user=audience pool_size=2\n\
            [pgbouncer]\n\
            listen_addr = 127.0.0.1\n\
            listen_port = {port}\n\
            unix_socket_dir =\n\
            auth_type = any\n\
            pool_mode = transaction\n",
            self.port
        );
        std::fs::write(folder.join("settings.ini"), settings).unwrap();
        let user = unprivileged_user().unwrap_or_default();
        let mut words = user
            .into_iter()
            .map(OsStr::new)
            .chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(folder.join("settings.ini"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let pooler = Pooler {
            process: command.spawn().unwrap(),
            folder,
            url: format!("postgres://audience@127.0.0.1:{port}/{name}"),
        };
        wait_until_ready(&pooler.url).await;
        Some(pooler)
    }

    /// The folder that is deleted when the server ends.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the server again and waits until it responds.
    pub async fn start(&self) {
        self.command("start");
        self.wait_until_ready().await;
    }

    /// Stops the server immediately, as a crash does.
    pub async fn kill(&self) {
        self.command("kill");
        self.wait_until_down().await;
    }

    /// Stops the server and tells its clients so.
    pub async fn stop(&self) {
        self.command("stop");
        self.wait_until_down().await;
    }

    async fn start_if_installed() -> Option<Self> {
        let bin = programs()?;
        let keeper = tokio::task::spawn_blocking(move || keep(&bin)).await;
        let (keeper, port, folder) = keeper.unwrap();
        let server = Self {
            keeper: Mutex::new(keeper),
            port,
            folder,
        };
        server.wait_until_ready().await;
        Some(server)
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://audience@127.0.0.1:{}/{database}", self.port)
    }

    fn command(&self, command: &str) {
        let mut keeper = self.keeper.lock().unwrap();
        writeln!(keeper.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    async fn wait_until_ready(&self) {
        wait_until_ready(&self.url("postgres")).await;
    }

    /// Waits until nobody listens, which is after the end of the last connection. A server that is about to stop
    /// refuses new connections while old ones still work.
    async fn wait_until_down(&self) {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
            assert!(
                Instant::now() < end,
                "Postgres did not stop within {PATIENCE:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Connects a store that waits for a slow machine, which a store does not by default.
pub async fn connect(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::builder()
        .timeout(PATIENCE)
        .connect(url)
        .await
}

/// Connects a store with a timeout that is too short for a slow machine, which then needs several attempts.
pub async fn connect_with_short_timeout(
    builder: &PostgresStoreBuilder,
    url: &str,
) -> PostgresStore {
    let end = Instant::now() + PATIENCE;
    loop {
        match builder.clone().connect(url).await {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < end, "{error:?}"),
        }
    }
}

async fn wait_until_ready(url: &str) {
    let end = Instant::now() + PATIENCE;
    while tokio_postgres::connect(url, NoTls).await.is_err() {
        assert!(
            Instant::now() < end,
            "Postgres did not start within {PATIENCE:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Starts the keeper of a new server on a free port.
fn keep(bin: &Path) -> (Child, u16, PathBuf) {
    let user = unprivileged_user();
    let dir = new_folder("postgres");
    let port = crate::free_port();
    let mut prefix = user
        .unwrap_or_default()
        .into_iter()
        .chain(["sh", "-c", KEEPER, "sh"]);
    let mut keeper = Command::new(prefix.next().unwrap());
    keeper
        .args(prefix)
        .args([bin, &dir])
        .arg(port.to_string())
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    (crate::spawn_apart(&mut keeper), port, dir)
}

/// Creates a folder of the user that the programs run as.
fn new_folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("audience-{name}-{:016x}", random()));
    std::fs::create_dir(&folder).unwrap();
    if is_root() {
        let changed = Command::new("chown").arg("postgres").arg(&folder).status();
        assert!(changed.unwrap().success());
    }
    folder
}

/// Returns whether tests can start a server of their own.
pub fn is_installed() -> bool {
    programs().is_some()
}

/// Returns the folder of the programs `initdb` and `postgres`, of the newest version there is.
fn programs() -> Option<PathBuf> {
    if is_root() && !has_user_postgres() {
        return None;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut versions: Vec<_> = versions
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    versions.sort_by_key(|path| path.file_name()?.to_str()?.parse::<u32>().ok());
    folders.extend(versions.into_iter().rev().map(|path| path.join("bin")));
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(String::from_utf8_lossy(&output.stdout).trim().into());
    }
    let has_both =
        |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    folders.into_iter().find(has_both)
}

/// Returns the command that runs another as the user `postgres`: the server refuses to run as root.
fn unprivileged_user() -> Option<Vec<&'static str>> {
    is_root().then(|| {
        vec![
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
        ]
    })
}

/// A number that no other test has.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

fn has_user_postgres() -> bool {
    let id = Command::new("id").args(["-u", "postgres"]).output();
    id.unwrap().status.success()
}
