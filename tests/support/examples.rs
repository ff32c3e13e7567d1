//! The programs: those in `examples/`, `audience` and `audience-mock`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// The programs by name. Cargo builds those that are not built yet.
pub static EXAMPLES: LazyLock<BTreeMap<String, PathBuf>> = LazyLock::new(|| {
    // The test is `target/debug/deps/NAME`, or `target/TRIPLE/debug/deps/NAME` if Cargo builds for another target.
    let test = std::env::current_exe().unwrap();
    let mut target = test.ancestors().nth(3).unwrap();
    if let Some(triple) = std::env::var_os("CARGO_BUILD_TARGET") {
        assert!(target.ends_with(triple));
        target = target.parent().unwrap();
    }
    // Of the whole workspace, so that the features are those that the tests were built with.
    let build = Command::new(env!("CARGO"))
        .args([
            "build",
            "--locked",
            "--quiet",
            "--workspace",
            "--bins",
            "--examples",
        ])
        .args(["--message-format", "json", "--target-dir"])
        .arg(target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    let messages = String::from_utf8(build.stdout).unwrap();
    assert!(build.status.success(), "{messages}");
    messages
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?;
            let executable = message["executable"].as_str()?;
            Some((name.to_owned(), executable.into()))
        })
        .collect()
});

/// The path of a program.
pub fn program(name: &str) -> &'static Path {
    &EXAMPLES[name]
}
