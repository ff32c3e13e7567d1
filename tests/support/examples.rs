//! The programs in `examples/`, and `audience-mock`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

const MOCK: &str = env!("CARGO_BIN_EXE_audience-mock");

/// The programs by name. Cargo builds them if a single test was asked for.
pub(crate) static EXAMPLES: LazyLock<BTreeMap<String, PathBuf>> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let build = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--examples"])
        .args(["--message-format", "json", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let messages = String::from_utf8(build.stdout).unwrap();
    assert!(build.status.success(), "{messages}");
    messages
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|message| message["target"]["kind"][0] == "example")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?;
            let executable = message["executable"].as_str()?;
            Some((name.to_owned(), executable.into()))
        })
        .chain([("audience-mock".to_owned(), MOCK.into())])
        .collect()
});
