//! Clients that other people's programs generate from the description, in use against the mock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use audience::mock::{Fault, MockServer};
use serde_json::json;

const DESCRIPTION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/audience.json");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mock/openapi");

/// The generator, and the packages that the generated client imports.
const PYTHON_PACKAGES: [&str; 3] = [
    "openapi-python-client==0.29.1",
    "httpx==0.28.1",
    "attrs==26.1.0",
];

/// Later releases of the generator need node 22.
const NODE_PACKAGES: [&str; 2] = ["@hey-api/openapi-ts@0.95.0", "typescript@5.9.3"];
const OLDEST_NODE: (u32, u32) = (20, 19);

/// What `client.py` and `client.ts` do, in this order.
const STEPS: [&str; 8] = [
    "create",
    "batch",
    "lists",
    "consent",
    "errors",
    "undocumented_status",
    "mail",
    "values_that_are_new",
];

#[test]
fn a_python_client_generated_from_the_description_does_what_the_mock_expects() {
    // Debian has `ensurepip` in a package of its own.
    let fits = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))";
    let fits = printed_by("python3", &["-c", fits]).is_some();
    let Some(version) = printed_by("python3", &["--version"]).filter(|_| fits) else {
        return support::skip(
            "a generated client in Python: python3 3.11 with venv is not installed",
        );
    };
    let Some(folder) = installed("python", &version, &PYTHON_PACKAGES, python_packages) else {
        return support::say_skipped("a generated client in Python: pip reaches no registry");
    };
    let programs = folder.join("venv/bin");
    let generated = empty(folder.join("client")).join("generated");

    // The generator runs ruff, which is beside it.
    let path = [programs.as_os_str(), &std::env::var_os("PATH").unwrap()].join(":".as_ref());
    run(Command::new(programs.join("openapi-python-client"))
        .args(["generate", "--meta", "none", "--fail-on-warning"])
        .args(["--path", DESCRIPTION, "--output-path"])
        .arg(&generated)
        .env("PATH", path));
    let server = mock();
    let printed = run(with_arguments(
        Command::new(programs.join("python"))
            .args(["-B", &format!("{PROGRAMS}/client.py")])
            .env("PYTHONPATH", folder.join("client")),
        &server,
    ));

    assert_eq!(printed.lines().collect::<Vec<_>>(), STEPS);
}

#[test]
fn a_typescript_client_generated_from_the_description_compiles_and_does_what_the_mock_expects() {
    let has_npm = printed_by("npm", &["--version"]).is_some();
    let Some(version) = printed_by("node", &["--version"]).filter(|_| has_npm) else {
        return support::skip("a generated client in TypeScript: npm or node is not installed");
    };
    if version_number(&version) < OLDEST_NODE {
        // Debian 12 has node 18, so its packages do not change that.
        return support::say_skipped(
            "a generated client in TypeScript: node is older than 20.19, which the generator needs",
        );
    }
    let Some(folder) = installed("node", &version, &NODE_PACKAGES, node_packages) else {
        return support::say_skipped("a generated client in TypeScript: npm reaches no registry");
    };
    let programs = folder.join("node_modules/.bin");
    let client = empty(folder.join("client"));
    let source = client.join("client.ts");
    fs::copy(format!("{PROGRAMS}/client.ts"), &source).unwrap();

    run(Command::new(programs.join("openapi-ts"))
        .args(["-i", DESCRIPTION, "-o", "generated"])
        .current_dir(&client));
    run(Command::new(programs.join("tsc"))
        .args(["--strict", "--noUncheckedIndexedAccess", "--skipLibCheck"])
        .args(["--target", "es2022", "--lib", "es2022,dom,dom.iterable"])
        .args(["--module", "commonjs", "--outDir", "compiled", "client.ts"])
        .current_dir(&client));
    let server = mock();
    let printed = run(with_arguments(
        Command::new("node").arg(client.join("compiled/client.js")),
        &server,
    ));

    assert_eq!(printed.lines().collect::<Vec<_>>(), STEPS);
}

/// Starts the mock that `client.py` and `client.ts` expect.
fn mock() -> MockServer {
    let server = MockServer::builder()
        .topic("news", true)
        .seed_contact("charles@example.com")
        .start_blocking();
    server.report_spam("charles@example.com");
    let odd = json!({
        "id": "con_9", "email": "odd@example.com", "first_name": "", "last_name": "", "properties": {},
        "unsubscribed": true, "unsubscribe_reason": "bounced", "created_at": 1_700_000_000, "topics": {},
    });
    let odd = Fault::status(200).body(odd.to_string());
    server.fault(odd.path("/contacts/odd%40example.com"));
    let hasty = Fault::status(429).body("slow down");
    server.fault(hasty.path("/contacts/hasty%40example.com"));
    server
}

/// Passes the URL and the keys of the mock to a program, which must not use a proxy for it.
fn with_arguments<'a>(command: &'a mut Command, server: &MockServer) -> &'a mut Command {
    command
        .args([server.url(), server.full_key(), server.sending_key()])
        .env("no_proxy", "*")
}

/// Installs packages below `target`, if these versions are not there yet.
///
/// Returns `None` if there is no registry, or if the connections to it fail. Panics if there is one, and the packages
/// cannot be installed all the same.
fn installed(
    name: &str,
    version: &str,
    packages: &[&str],
    install: impl Fn(&Path) -> [Command; 2],
) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("generators")
        .join(name);
    let contents = format!("{version}\n{}", packages.join("\n"));
    let note = folder.join("installed");
    if fs::read_to_string(&note).is_ok_and(|installed| installed == contents) {
        return Some(folder);
    }
    empty(folder.clone());
    let [mut install, mut look_up] = install(&folder);
    let output = install.stdin(Stdio::null()).output().unwrap();
    if !output.status.success() {
        let found = look_up.stdin(Stdio::null()).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        // What npm and pip print at the end if a connection has failed.
        let has_failed = printed.lines().any(|line| {
            line.starts_with("npm error network")
                || line.starts_with("ERROR") && line.contains("Connection")
        });
        assert!(
            has_failed || !found.status.success(),
            "{install:?}\n{printed}"
        );
        return None;
    }
    fs::write(note, contents).unwrap();
    Some(folder)
}

/// Returns the commands that install the Python packages, and that find out whether there is a registry.
fn python_packages(folder: &Path) -> [Command; 2] {
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(folder.join("venv")));
    let pip = |command: &[&str]| {
        let mut pip = Command::new(folder.join("venv/bin/python"));
        pip.args(["-m", "pip", "--disable-pip-version-check", "--retries", "1"])
            .args(command);
        pip
    };
    let install = [&["install", "--quiet"], &PYTHON_PACKAGES[..]].concat();
    [pip(&install), pip(&["index", "versions", "httpx"])]
}

/// Returns the commands that install the node packages, and that find out whether there is a registry.
fn node_packages(folder: &Path) -> [Command; 2] {
    fs::write(folder.join("package.json"), r#"{"private": true}"#).unwrap();
    let npm = |command: &[&str]| {
        let mut npm = Command::new("npm");
        npm.args(["--fetch-retries", "1", "--fetch-retry-mintimeout", "1000"])
            .args(command)
            .current_dir(folder);
        npm
    };
    let quiet = ["install", "--no-audit", "--no-fund", "--ignore-scripts"];
    let install = [&quiet[..], &NODE_PACKAGES].concat();
    [npm(&install), npm(&["view", "typescript", "version"])]
}

fn empty(folder: PathBuf) -> PathBuf {
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a command, which must succeed, and returns what it printed to its standard output.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{printed}{errors}");
    printed
}

/// Returns what a program prints, or `None` if it fails or is not installed.
fn printed_by(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the first two numbers of `v20.19.4`.
fn version_number(version: &str) -> (u32, u32) {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    (next().unwrap_or(0), next().unwrap_or(0))
}
