//! The retold interface, `docs/interface.md`: each of its sections has an anchor, and each link to a section leads to one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const INTERFACE: &str = include_str!("../../docs/interface.md");

/// Returns the ids of the anchors.
fn anchors() -> BTreeSet<&'static str> {
    let anchors = INTERFACE.split("<a id=\"").skip(1);
    anchors
        .map(|rest| rest.split('"').next().unwrap())
        .collect()
}

#[test]
fn each_section_has_an_anchor_with_its_number() {
    let lines: Vec<&str> = INTERFACE.lines().collect();
    let mut numbers = Vec::new();

    for (index, line) in lines.iter().enumerate() {
        let title = line.trim_start_matches('#').trim_start();
        let number = title
            .split(' ')
            .next()
            .unwrap_or_default()
            .trim_end_matches('.');
        if line.starts_with("##") && number.starts_with(|first: char| first.is_ascii_digit()) {
            assert_eq!(
                lines[index - 2],
                format!("<a id=\"{number}\"></a>"),
                "{line}"
            );
            numbers.push(number);
        }
    }

    let chapters = numbers.iter().filter(|number| !number.contains('.'));
    assert_eq!(chapters.count(), 9);
    assert_eq!(numbers.len(), 9 + 8 + 2 + 7 + 5);
}

#[test]
fn each_link_to_a_section_leads_to_one() {
    let anchors = anchors();
    let mut files = vec![
        root().join("openapi/audience.json"),
        root().join("README.md"),
    ];
    for folder in ["src", "docs"] {
        collect(&root().join(folder), &mut files);
    }
    let mut wrong = Vec::new();

    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        for start in [
            "crate::interface#",
            "interface/index.html#",
            "interface.md#",
        ] {
            let targets = text.split(start).skip(1);
            let ids = targets.map(|rest| rest.split([')', ']', '"', '\n']).next().unwrap());
            wrong.extend(
                ids.filter(|id| !anchors.contains(id))
                    .map(|id| format!("{}: {start}{id}", file.display())),
            );
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Adds the Rust and Markdown files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "md")
        {
            files.push(path);
        }
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
