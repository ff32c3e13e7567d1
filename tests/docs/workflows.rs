//! The workflows in `.github`: they run only pinned code, with few permissions, and name the files that users download.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn every_action_is_pinned_to_a_commit_with_its_version() {
    for (name, text) in workflows() {
        for line in text.lines().filter(|line| line.contains("uses: ")) {
            let action = line.split_once("uses: ").unwrap().1;
            if action.starts_with("./") {
                continue;
            }
            let (_, pin) = action.split_once('@').unwrap();
            let (commit, version) = pin.split_once(" # v").unwrap_or_default();
            assert!(
                commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()),
                "{name}: {line}"
            );
            assert_eq!(version.split('.').count(), 3, "{name}: {line}");
        }
    }
}

#[test]
fn a_job_has_no_permission_that_it_does_not_name_and_no_credentials_on_disk() {
    for (name, text) in workflows() {
        assert!(text.contains("\npermissions: {}\n"), "{name}");
        let jobs = text.split_once("\njobs:\n").unwrap().1;
        let is_job = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
        let jobs_in_all = jobs
            .lines()
            .filter(is_job)
            .filter(|line| line.ends_with(':'))
            .count();
        assert_eq!(jobs.matches("\n    permissions:\n").count(), jobs_in_all);
        assert_eq!(
            text.matches("actions/checkout@").count(),
            text.matches("persist-credentials: false").count(),
            "{name}"
        );
        for forbidden in ["pull_request_target", "actions/cache", "secrets."] {
            assert!(!text.contains(forbidden), "{name}: {forbidden}");
        }
    }
}

/// `cargo binstall` finds the archives by this name.
#[test]
fn the_archives_of_a_release_have_the_name_that_cargo_binstall_expects() {
    let manifest = read("Cargo.toml");
    let script = read(".ci/release");

    assert!(
        manifest
            .contains("/download/v{ version }/audience-{ version }-{ target }{ archive-suffix }\"")
    );
    assert!(manifest.contains("bin-dir = \"audience-{ version }-{ target }/{ bin }"));
    assert!(script.contains("name=audience-$version-$target\n"));
    assert!(script.contains("$name.tar.gz") && script.contains("$name.zip"));
}

/// Git writes others on Windows by itself.
#[test]
fn a_checkout_on_windows_has_the_line_ends_that_the_tests_expect() {
    let attributes = read(".gitattributes");

    assert!(
        attributes.lines().any(|line| line == "* text=auto eol=lf"),
        "{attributes}"
    );
}

#[test]
fn a_release_has_programs_for_five_systems() {
    let (_, release) = workflows().pop().unwrap();

    let targets: Vec<_> = release
        .split("target: ")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(", runner")?.0))
        .collect();
    assert_eq!(
        targets,
        [
            "x86_64-unknown-linux-musl",
            "aarch64-unknown-linux-musl",
            "x86_64-apple-darwin",
            "aarch64-apple-darwin",
            "x86_64-pc-windows-msvc",
        ]
    );
}

#[test]
fn a_release_finds_each_sentence_for_the_time_before_the_first_one() {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|file| format!("docs/{}", file.unwrap().file_name().display()));
    let mut expected: Vec<_> = docs
        .filter(|file| file.ends_with(".md") && file != "docs/releasing.md")
        .chain(["README.md".to_owned()])
        .filter(|file| {
            let text = read(file).to_lowercase();
            let words: Vec<_> = text.split_whitespace().collect();
            words.join(" ").contains("until the first release is out")
        })
        .collect();
    expected.sort();

    let found = release(&["unreleased"], &[]).1;

    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_version_that_was_published_from_another_commit_is_not_released() {
    let published = |is_found: &str, git: &str| {
        // Functions of bash stand for the programs that would reach crates.io.
        let cargo = format!("() {{ {is_found}; }}");
        let variables = [
            ("BASH_FUNC_cargo%%", &*cargo),
            (
                "BASH_FUNC_curl%%",
                r#"() {
                    folder=$(mktemp -d)
                    mkdir "$folder/audience-1.2.3"
                    echo "{\"git\": $GIT}" >"$folder/audience-1.2.3/.cargo_vcs_info.json"
                    tar --create --gzip --directory "$folder" audience-1.2.3
                    rm -r "$folder"
                }"#,
            ),
            ("GIT", git),
            ("GITHUB_SHA", "0123"),
        ];
        release(&["published", "v1.2.3"], &variables)
    };
    let output = |line: &str| (true, line.to_owned());

    assert_eq!(published("false", ""), output("is=false\n"));
    assert_eq!(
        published("true", r#"{"sha1": "0123"}"#),
        output("is=true\n")
    );
    for git in [r#"{"sha1": "4567"}"#, r#"{"sha1": "0123", "dirty": true}"#] {
        let (is_success, printed) = published("true", git);
        assert!(!is_success, "{printed}");
        assert!(
            printed.contains("from another commit than 0123"),
            "{printed}"
        );
        assert!(!printed.contains("is="), "{printed}");
    }
}

/// Runs a step of a release. Returns whether it succeeded, and what it printed.
fn release(arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let mut script = Command::new("bash");
    script.arg(root().join(".ci/release")).args(arguments);
    let output = script.envs(variables.iter().copied()).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

fn workflows() -> Vec<(&'static str, String)> {
    ["ci", "release"]
        .map(|name| (name, read(&format!(".github/workflows/{name}.yml"))))
        .to_vec()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
