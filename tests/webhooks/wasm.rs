//! The verifier on `wasm32-unknown-unknown`, where the standard library has no clock. node runs it on the corpus.

use std::path::Path;
use std::process::Command;

use support::deliveries::fixtures;
use support::skip;

const TARGET: &str = "wasm32-unknown-unknown";

#[test]
fn the_verifier_on_wasm_under_node_has_the_expected_verdict_for_every_delivery_of_the_corpus() {
    if !succeeds(Command::new("node").arg("--version")) {
        return skip("the verifier on wasm: node is not installed");
    }
    if !target_is_installed() {
        return skip("the verifier on wasm: the target wasm32-unknown-unknown is not installed");
    }
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/wasm");
    if !directory.is_dir() {
        return skip("the verifier on wasm: the published package does not contain tests/wasm");
    }
    let target_directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm");

    let build = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--target", TARGET])
        .arg("--manifest-path")
        .arg(directory.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_directory)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status();
    assert!(build.unwrap().success(), "the module does not build");
    let module = target_directory
        .join(TARGET)
        .join("debug/audience_wasm_test.wasm");
    let run = Command::new("node")
        .arg(directory.join("run.mjs"))
        .arg(module)
        .args(fixtures("webhooks"))
        .output()
        .unwrap();

    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{stderr}");
}

fn target_is_installed() -> bool {
    let rustc = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    rustc.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
