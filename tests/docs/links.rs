//! The documents of the repository name files, headings and tests that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading_that_exist() {
    let mut broken = Vec::new();

    for document in documents() {
        for target in links(&read(&document)) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() {
                document.clone()
            } else {
                document.parent().unwrap().join(file)
            };
            let is_found =
                path.exists() && (anchor.is_empty() || anchors(&read(&path)).contains(anchor));
            if !is_found {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }

    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_link_with_a_label_has_an_address() {
    for document in documents() {
        let text = read(&document);
        let defined = labels(&text);
        for label in used_labels(&text) {
            assert!(
                defined.contains(&label),
                "{}: [{label}] has no address",
                document.display()
            );
        }
    }
}

#[test]
fn every_file_that_contributing_and_the_recipes_name_exists() {
    for document in ["CONTRIBUTING.md", "docs/recipes.md", "examples/README.md"] {
        let text = read(&root().join(document));
        for name in code_spans(&text) {
            let is_path = name.contains('/')
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if !is_path || name.starts_with('/') || name.starts_with("target/") {
                continue;
            }
            // The table of the source tree names folders of `src`.
            let is_found = ["", "src", "src/mock", "examples"]
                .iter()
                .any(|folder| root().join(folder).join(&name).exists());
            assert!(is_found, "{document}: {name}");
        }
    }
}

#[test]
fn every_test_that_the_security_policy_names_exists() {
    let sources = sources();
    let text = read(&root().join("SECURITY.md"));
    let names: Vec<_> = code_spans(&text)
        .into_iter()
        .filter(|name| {
            name.len() > 20
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c))
        })
        .collect();
    assert!(names.len() > 10);

    for name in names {
        assert!(
            sources.contains(&format!("fn {name}(")),
            "SECURITY.md: {name}"
        );
    }
}

/// Returns the Markdown files that people read in the repository.
fn documents() -> Vec<PathBuf> {
    let mut documents = Vec::new();
    for folder in [
        "",
        "docs",
        "docs/plots",
        "examples",
        "examples/other-languages",
        "fixtures/webhooks",
    ] {
        let files = fs::read_dir(root().join(folder)).unwrap();
        let files = files.map(|file| file.unwrap().path());
        documents.extend(
            files.filter(|path| path.extension().is_some_and(|extension| extension == "md")),
        );
    }
    assert!(documents.len() > 15);
    documents.sort();
    documents
}

/// Returns the targets of inline links, images and link definitions.
fn links(text: &str) -> Vec<String> {
    let text = without_code_blocks(text);
    let inline = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned());
    let defined = text
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
        .map(|(_, target)| target.to_owned());
    inline.chain(defined).collect()
}

/// Returns the anchors of the headings, as forges make them, and those that the text sets itself.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = without_code_blocks(text);
    let set = text.split("<a id=\"").skip(1);
    let set = set.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.collect::<String>().replace(' ', "-")
        })
        .chain(set)
        .collect()
}

/// Returns the labels of the link definitions in lower case.
fn labels(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
        .map(|(label, _)| label.to_lowercase())
        .collect()
}

/// Returns the labels of links such as [`Inbox::handle`] or [text][label], in lower case.
fn used_labels(text: &str) -> Vec<String> {
    let text = without_code_blocks(text);
    // Nothing follows the first half of [`text`][`label`], because the split ends there.
    let of_code = text
        .split("[`")
        .skip(1)
        .filter_map(|rest| rest.split_once("`]"))
        .filter(|(_, rest)| !rest.is_empty() && !rest.starts_with(['(', '[', ':']))
        .map(|(name, _)| format!("`{name}`"));
    let named = text
        .split("][")
        .skip(1)
        .filter_map(|rest| rest.split_once(']'))
        .map(|(label, _)| label.to_owned());
    of_code
        .chain(named)
        .map(|label| {
            label
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .to_lowercase()
        })
        .collect()
}

fn code_spans(text: &str) -> Vec<String> {
    let text = without_code_blocks(text);
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn without_code_blocks(text: &str) -> String {
    let mut is_code = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Returns the text of all Rust files in `src` and `tests`.
fn sources() -> String {
    let mut folders = ["src", "tests", "fuzz/src"]
        .map(|folder| root().join(folder))
        .to_vec();
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&read(&path));
            }
        }
    }
    text
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
