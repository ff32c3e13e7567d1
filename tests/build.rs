//! Writes each Rust block of the guides and the README that defines functions to a file, so that the tests in `docs` can
//! call them.

use std::path::Path;
use std::{env, fs};

fn main() {
    let target = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo::rerun-if-changed=../docs");
    println!("cargo::rerun-if-changed=../README.md");
    write_blocks(Path::new("../README.md"), Path::new(&target));
    for entry in fs::read_dir("../docs").expect("the guides are in docs") {
        let path = entry.expect("docs can be listed").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            write_blocks(&path, Path::new(&target));
        }
    }
}

/// Writes the block that defines `save` in `errors.md` to `errors.save.rs`.
fn write_blocks(guide: &Path, target: &Path) {
    let text = fs::read_to_string(guide).expect("a guide is text");
    let name = guide
        .file_stem()
        .expect("a guide has a name")
        .to_string_lossy();
    for block in text.split("\n```rust").skip(1) {
        let block = block.split_once('\n').map_or("", |(_, rest)| rest);
        let block = block.split("\n```").next().unwrap_or_default();
        for line in block.lines() {
            let function = line
                .strip_prefix("async ")
                .unwrap_or(line)
                .strip_prefix("fn ");
            if let Some((function, _)) = function.and_then(|rest| rest.split_once(['(', '<'])) {
                let file = target.join(format!("{name}.{function}.rs"));
                fs::write(file, block).expect("OUT_DIR can be written");
            }
        }
    }
}
