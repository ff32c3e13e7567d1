//! A headless Chromium that the tests of the page share.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use support::{PATIENCE, skip};

/// The names that Chromium is installed under.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A running browser. It is killed when the last test that uses it ends.
pub(super) struct Chromium {
    process: Child,
    profile: PathBuf,
    port: u16,
    /// The path of the browser's debugging socket.
    path: String,
}

impl Chromium {
    /// Returns the browser that other tests use at the same time, or starts one. Returns `None` and says so if there is
    /// no Chromium on this machine.
    pub(super) fn shared() -> Option<Arc<Self>> {
        static RUNNING: Mutex<Weak<Chromium>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chromium) = running.upgrade() {
            return Some(chromium);
        }
        let Some(program) = program() else {
            skip("Chromium is not installed, which the tests of the page need");
            return None;
        };
        let chromium = Arc::new(Self::start(&program));
        *running = Arc::downgrade(&chromium);
        Some(chromium)
    }

    /// Returns the port and the path of the debugging socket.
    pub(super) fn socket(&self) -> (u16, &str) {
        (self.port, &self.path)
    }

    fn start(program: &Path) -> Self {
        let number = std::process::id();
        let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let profile = std::env::temp_dir().join(format!("audience-chromium-{number}-{time}"));
        fs::create_dir(&profile).unwrap();
        let process = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args([
                "--disable-sync",
                "--disable-extensions",
                "--disable-default-apps",
            ])
            .args([
                "--disable-background-timer-throttling",
                "--disable-renderer-backgrounding",
            ])
            // No name is looked up, and nothing but this machine is reached.
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut chromium = Self {
            process,
            profile,
            port: 0,
            path: String::new(),
        };
        chromium.wait_for_port();
        chromium
    }

    /// Reads the file in which Chromium writes where it listens for a debugger.
    fn wait_for_port(&mut self) {
        let file = self.profile.join("DevToolsActivePort");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if let Some((port, path)) = text.split_once('\n')
                && !path.is_empty()
            {
                self.port = port.parse().unwrap();
                self.path = path.trim().to_owned();
                return;
            }
            assert!(
                self.process.try_wait().unwrap().is_none(),
                "Chromium ended before it listened"
            );
            assert!(Instant::now() < deadline, "Chromium does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Its helpers may write for a moment longer.
        for _ in 0..20 {
            if fs::remove_dir_all(&self.profile).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .flat_map(|folder| PROGRAMS.map(|name| folder.join(name)))
        .find(|program| program.is_file())
}
