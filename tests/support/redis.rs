//! Redis servers of the tests' own, on free loopback ports and in temporary folders.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::skip;

/// The variable with the address of a server to use instead of one of the tests' own.
const ADDRESS: &str = "AUDIENCE_TEST_REDIS";
const START_LIMIT: Duration = Duration::from_secs(300);
const START_ATTEMPTS: u32 = 5;

/// Starts, kills and finally removes a server. It reads commands, and ends when the test process does, however
/// that ends: then nobody holds the other end of the pipe.
const KEEPER: &str = r#"
start() {
    redis-server "$@" </dev/null >/dev/null 2>&1 &
    server=$!
}
end() {
    kill -9 "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
start "$@"
while read -r command; do
    case "$command" in
        start) start "$@" ;;
        kill) end; echo killed ;;
    esac
done
end
rm -rf "$FOLDER"
"#;

/// A server that all tests share. Each test uses a prefix of its own.
pub struct Redis {
    pub url: String,
}

impl Redis {
    /// Returns a prefix that no other test uses, in this run or another.
    pub fn prefix(&self) -> String {
        unique("test")
    }
}

/// Returns the server that all tests share. `None` if there is none, which was said.
pub async fn server() -> Option<Redis> {
    static SERVER: OnceLock<Option<OwnRedis>> = OnceLock::new();
    if let Ok(url) = std::env::var(ADDRESS) {
        return Some(Redis { url });
    }
    let started = tokio::task::spawn_blocking(|| {
        SERVER
            .get_or_init(|| is_installed().then(|| OwnRedis::launch(&[])))
            .as_ref()
            .map(OwnRedis::url)
    });
    let url = started.await.expect("the server starts");
    if url.is_none() {
        skip(&format!(
            "redis-server is not installed, and {ADDRESS} is not set"
        ));
    }
    url.map(|url| Redis { url })
}

/// A server of one test's own, to be stopped and started again.
pub struct OwnRedis {
    port: u16,
    folder: PathBuf,
    keeper: Child,
}

impl OwnRedis {
    /// Starts a server with these settings, such as `--appendonly yes`. `None` if it is not installed, which
    /// was said.
    pub async fn start(settings: &'static [&'static str]) -> Option<Self> {
        if !is_installed() {
            skip("redis-server is not installed");
            return None;
        }
        let launched = tokio::task::spawn_blocking(|| Self::launch(settings));
        Some(launched.await.expect("the server starts"))
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The folder that is deleted when the server ends.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server as a crash would, with SIGKILL. Keeps its folder.
    pub fn kill(&mut self) {
        self.command("kill");
        let stdout = self.keeper.stdout.as_mut().expect("stdout is a pipe");
        let mut killed = [0; "killed\n".len()];
        stdout.read_exact(&mut killed).expect("the keeper replies");
    }

    /// Starts the server again, with the data of its folder and on the same port.
    pub async fn restart(&mut self) {
        self.command("start");
        let limit = Instant::now() + START_LIMIT;
        while !self.responds() {
            assert!(Instant::now() < limit, "the server starts again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn launch(settings: &[&str]) -> Self {
        for _ in 0..START_ATTEMPTS {
            let server = Self::spawn(settings);
            let limit = Instant::now() + START_LIMIT / START_ATTEMPTS;
            while Instant::now() < limit {
                if server.responds() {
                    return server;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            // Another program may have taken the port meanwhile.
        }
        panic!("redis-server does not start");
    }

    fn spawn(settings: &[&str]) -> Self {
        let port = crate::free_port();
        let folder = std::env::temp_dir().join(unique("audience-redis"));
        std::fs::create_dir_all(&folder).expect("a temporary folder can be created");
        let mut keeper = Command::new("sh");
        keeper
            .args(["-c", KEEPER, "sh"])
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .arg("--dir")
            .arg(&folder)
            .args(["--save", "", "--appendonly", "no"])
            .args(settings)
            .env("FOLDER", &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let keeper = crate::spawn_apart(&mut keeper);
        Self {
            port,
            folder,
            keeper,
        }
    }

    fn command(&mut self, command: &str) {
        let stdin = self.keeper.stdin.as_mut().expect("stdin is a pipe");
        writeln!(stdin, "{command}").expect("the keeper reads");
    }

    /// Returns whether the server has started and loaded its data, and is this one and no other on its port.
    fn responds(&self) -> bool {
        let folder = || -> redis::RedisResult<Vec<String>> {
            let client = redis::Client::open(self.url())?;
            let mut connection = client.get_connection_with_timeout(Duration::from_secs(1))?;
            redis::cmd("DBSIZE").exec(&mut connection)?;
            redis::cmd("CONFIG")
                .arg(&["GET", "dir"])
                .query(&mut connection)
        };
        let folder = folder();
        folder.is_ok_and(|pair| pair.get(1).is_some_and(|dir| is_same(dir, &self.folder)))
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        // The end of its input tells the keeper to end the server and to delete the folder.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Returns whether tests can start a server of their own.
pub fn is_installed() -> bool {
    Command::new("redis-server")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn is_same(dir: &str, folder: &Path) -> bool {
    let canonical = |path: &Path| path.canonicalize().ok();
    canonical(Path::new(dir)).is_some_and(|dir| Some(dir) == canonical(folder))
}

/// A port that is free now, and to which 10,000 can be added: a server of a cluster listens there, too.
fn unique(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    format!("{name}-{process}-{count}-{:08x}", rand_suffix())
}

/// A number that differs from run to run, for process ids come again.
fn rand_suffix() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};

    u32::try_from(RandomState::new().build_hasher().finish() >> 32).expect("32 bits are left")
}
