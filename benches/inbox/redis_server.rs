//! A Redis that writes an append-only file and flushes it every second.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::{Server, free_port, new_folder};

const START_LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Redis {
    _server: Server,
    pub(crate) url: String,
}

impl Redis {
    /// Starts a server. Returns why not, if it cannot.
    pub(crate) async fn start(parent: &Path) -> Result<Self, String> {
        let version = Command::new("redis-server")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !version.is_ok_and(|status| status.success()) {
            return Err("redis-server is not installed".to_owned());
        }
        let folder = new_folder(parent, "redis");
        let port = free_port().to_string();
        // Rewriting the file after it was filled would last into what is measured.
        let program = format!(
            "redis-server --bind 127.0.0.1 --port {port} --save --appendonly yes --appendfsync everysec \
             --auto-aof-rewrite-percentage 0"
        );
        let mut program: Vec<_> = program.split_whitespace().map(str::to_owned).collect();
        let save = program.iter().position(|word| word == "--save").unwrap();
        program.insert(save + 1, String::new());
        let this = Self {
            _server: Server::start(&[], "KILL", &folder, &program),
            url: format!("redis://127.0.0.1:{port}"),
        };
        let limit = Instant::now() + START_LIMIT;
        while this.flush().await.is_err() {
            if Instant::now() > limit {
                return Err("redis-server did not start".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(this)
    }

    /// Deletes everything.
    pub(crate) async fn flush(&self) -> redis::RedisResult<()> {
        let client = redis::Client::open(self.url.as_str())?;
        // Deleting a million keys takes longer than the default of 500 ms.
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connection.await?;
        redis::cmd("FLUSHALL").query_async(&mut connection).await
    }
}
