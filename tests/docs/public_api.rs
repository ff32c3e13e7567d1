//! The public API, frozen as text in `tests/public-api.txt`, and the crates that appear in it.
//!
//! After a change that is meant: `UPDATE_PUBLIC_API=1 cargo test -p audience-tests --test docs public_api`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use support::skip;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Every feature but `native-tls`, which adds no item and needs the headers of OpenSSL.
const FEATURES: &str = "client,rustls,rustls-no-provider,blocking,import,webhooks,axum,actix,tower,inbox,inbox-sqlite,inbox-postgres,inbox-postgres-rustls,\
    inbox-redis,inbox-redis-rustls,inbox-sqlx,inbox-conformance,serve,mock,examine,mock-server,cli,wiremock,tracing,unsubscribe";

#[test]
fn the_public_api_is_the_one_in_the_committed_text() {
    if !is_installed() {
        skip_optional("cargo-public-api and a nightly toolchain are not installed");
        return;
    }

    let current = public_api();

    let file = Path::new(ROOT).join("tests/public-api.txt");
    if std::env::var_os("UPDATE_PUBLIC_API").is_some() {
        std::fs::write(&file, &current).unwrap();
    }
    let frozen = std::fs::read_to_string(&file).unwrap();
    let frozen_lines: BTreeSet<_> = frozen.lines().collect();
    let current_lines: BTreeSet<_> = current.lines().collect();
    let removed: Vec<_> = frozen_lines.difference(&current_lines).collect();
    let added: Vec<_> = current_lines.difference(&frozen_lines).collect();
    assert!(
        removed.is_empty() && added.is_empty(),
        "the public API changed. If that is meant, run this test with UPDATE_PUBLIC_API=1.\n\
         removed: {removed:#?}\nadded: {added:#?}"
    );
}

#[test]
fn the_docs_list_every_crate_whose_types_are_in_the_public_api() {
    let api = std::fs::read_to_string(Path::new(ROOT).join("tests/public-api.txt")).unwrap();
    let used: BTreeSet<_> = api
        .split(|character: char| !is_path_character(character))
        .filter_map(|path| path.split_once("::"))
        .map(|(first, _)| first)
        .filter(|first| {
            starts_lowercase(first) && !["audience", "fmt", "io", "error"].contains(first)
        })
        .map(|name| name.replace('_', "-"))
        .collect();

    let docs = std::fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).unwrap();
    let listed: BTreeSet<_> = docs
        .lines()
        .skip_while(|line| *line != "//! # Crates in the public API")
        .skip_while(|line| !line.starts_with("//! |---"))
        .skip(1)
        .map_while(|line| line.strip_prefix("//! | "))
        .filter_map(|row| row.split('|').next())
        .flat_map(|names| names.split(", "))
        .map(|name| name.trim().trim_matches('`').replace('_', "-"))
        .collect();
    assert_eq!(used, listed);
}

fn is_installed() -> bool {
    Command::new("cargo")
        .args(["+nightly", "public-api", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Contributors with the tool hear of a change early; nobody has to install it.
fn skip_optional(reason: &str) {
    if std::env::var_os("AUDIENCE_REQUIRE_ALL_TESTS").is_none() {
        skip(reason);
    }
}

fn public_api() -> String {
    let output = Command::new("cargo")
        .args([
            "+nightly",
            "public-api",
            "-p",
            "audience",
            "-sss",
            "--color",
            "never",
        ])
        .args(["--features", FEATURES])
        .current_dir(ROOT)
        // A build beside the tests must not wait for their lock, nor replace what they built.
        .env(
            "CARGO_TARGET_DIR",
            Path::new(ROOT).join("target/public-api"),
        )
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTDOC")
        .env_remove("RUSTC")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    text.lines().map(|line| shorten(line) + "\n").collect()
}

/// Writes the paths of other crates as users do: private modules of a crate may move between its releases.
fn shorten(line: &str) -> String {
    let mut short = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_path_character) {
        let end = rest[start..]
            .find(|c| !is_path_character(c))
            .map_or(rest.len(), |length| start + length);
        short += &rest[..start];
        short += &shorten_path(&rest[start..end]);
        rest = &rest[end..];
    }
    short + rest
}

fn shorten_path(path: &str) -> String {
    let segments: Vec<_> = path.split("::").collect();
    let Some(name) = segments
        .iter()
        .position(|segment| segment.starts_with(char::is_uppercase))
    else {
        return path.to_owned();
    };
    let item = segments[name..].join("::");
    match segments[0] {
        "audience" | "" => path.to_owned(),
        _ if name == 0 => path.to_owned(),
        // Several items of the standard library have these names.
        "core" | "alloc" | "std"
            if ["Error", "Result"].contains(&segments[name]) && segments[1] != "result" =>
        {
            format!("{}::{item}", segments[1])
        }
        "core" | "alloc" | "std" => item,
        "serde_core" => format!("serde::{item}"),
        package => format!("{package}::{item}"),
    }
}

fn is_path_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == ':'
}

fn starts_lowercase(text: &str) -> bool {
    text.starts_with(char::is_lowercase)
}
