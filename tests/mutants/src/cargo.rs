//! Calls Cargo.

use std::collections::HashSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A test program.
#[derive(Debug)]
pub struct Program {
    pub name: String,
    pub path: PathBuf,
    /// The folder in which Cargo starts it.
    pub folder: PathBuf,
}

/// A part of a file that the compiler does not accept.
pub struct Fault {
    pub file: String,
    pub start: usize,
    pub end: usize,
    /// Whether it is a call in a constant.
    pub is_const: bool,
    /// The whole message.
    pub message: String,
}

/// What Cargo built.
pub enum Build {
    Done(Vec<Program>),
    /// Each error has the places that it names, the first one being where it is.
    Failed(Vec<Vec<Fault>>),
}

/// Builds all tests and the programs that they start.
pub fn build(tree: &Path) -> Result<Build, Box<dyn Error>> {
    let (mut programs, mut faults) = (Vec::new(), Vec::new());
    for what in [
        &["test", "--no-run", "--lib", "--bins", "--tests"][..],
        &["build", "--bins", "--examples"],
    ] {
        let output = Command::new("cargo")
            .args(what)
            .args(["--locked", "--workspace", "--message-format", "json"])
            .current_dir(tree)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env_remove("CARGO_TARGET_DIR")
            .stderr(Stdio::inherit())
            .output()?;
        for line in output.stdout.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Value>(line) else {
                continue;
            };
            programs.extend(program(&line));
            faults.extend(fault(&line["message"]));
        }
        if !faults.is_empty() {
            return Ok(Build::Failed(faults));
        }
        if !output.status.success() {
            return Err("cargo failed".into());
        }
    }
    let mut names = HashSet::new();
    programs.retain(|program: &Program| names.insert(program.path.clone()));
    Ok(Build::Done(programs))
}

fn program(line: &Value) -> Option<Program> {
    line["profile"]["test"].as_bool().filter(|test| *test)?;
    Some(Program {
        name: line["target"]["name"].as_str()?.to_owned(),
        path: line["executable"].as_str()?.into(),
        folder: Path::new(line["manifest_path"].as_str()?)
            .parent()?
            .to_owned(),
    })
}

fn fault(message: &Value) -> Option<Vec<Fault>> {
    if message["level"] != "error" {
        return None;
    }
    let mut spans: Vec<&Value> = message["spans"].as_array()?.iter().collect();
    spans.sort_by_key(|span| span["is_primary"] != true);
    let faults = spans.into_iter().map(|mut span| {
        // Where a macro is called.
        while !span["expansion"].is_null() {
            span = &span["expansion"]["span"];
        }
        Some(Fault {
            file: span["file_name"].as_str()?.to_owned(),
            start: usize::try_from(span["byte_start"].as_u64()?).ok()?,
            end: usize::try_from(span["byte_end"].as_u64()?).ok()?,
            is_const: message["code"]["code"] == "E0015",
            message: message["rendered"].as_str()?.to_owned(),
        })
    });
    Some(faults.flatten().collect::<Vec<_>>()).filter(|faults| !faults.is_empty())
}
