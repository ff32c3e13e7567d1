//! A server that ends when the benchmark does, however that ends.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Runs a program until its own input ends, then ends it by a signal and deletes the folder.
const KEEPER: &str = r#"
signal=$1 folder=$2
shift 2
cd "$folder" || exit 1
"$@" </dev/null >log 2>&1 &
server=$!
cat >/dev/null
kill -s "$signal" "$server" 2>/dev/null
wait "$server" 2>/dev/null
cd / && rm -rf "$folder"
"#;

pub(crate) struct Server {
    keeper: Child,
}

impl Server {
    /// Starts a program in a folder. `prefix` is what runs it, such as `setpriv` with its options.
    pub(crate) fn start(prefix: &[&str], signal: &str, folder: &Path, program: &[String]) -> Self {
        let keeper = ["sh", "-c", KEEPER, "sh", signal];
        let mut words = prefix.iter().chain(&keeper).copied();
        let keeper = Command::new(words.next().unwrap())
            .args(words)
            .arg(folder)
            .args(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            keeper: keeper.unwrap(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It may have ended before.
        let _ = self.keeper.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Creates an empty folder.
pub(crate) fn new_folder(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(format!("{name}-{:016x}", fastrand::u64(..)));
    std::fs::create_dir_all(&folder).unwrap();
    std::path::absolute(folder).unwrap()
}
