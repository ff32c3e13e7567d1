//! The guides in `docs`: their links lead somewhere, and their shell and Python examples run. Their Rust examples are
//! doctests.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use audience::mock::MockServer;
use audience::webhooks::Signer;

use support::{PATIENCE, free_port, skip};

const DOCS_RS: &str = "https://docs.rs/audience/latest/audience/";

#[test]
fn every_guide_has_the_links_that_rustdoc_checks_also_for_readers_of_the_plain_markdown() {
    let checked = definitions(&read("src/guides/links.md"));
    let module = read("src/guides/mod.rs");
    let mut wrong = Vec::new();

    for (file, text) in guides() {
        let defined = definitions(&text);
        for (label, target) in &defined {
            let agrees = match checked.get(label) {
                Some(path) => leads_to_the_same_place(target, path, &module),
                None => false,
            };
            if !agrees {
                wrong.push(format!(
                    "{file}: [{label}] leads to {target}, links.md to {:?}",
                    checked.get(label)
                ));
            }
        }
        let is_used = |label: &str| text.to_lowercase().contains(&format!("[{label}]"));
        let missing = checked
            .keys()
            .filter(|label| is_used(label) && !defined.contains_key(*label));
        wrong.extend(missing.map(|label| format!("{file}: [{label}] has no address at the end")));
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// On docs.rs, the other guides are modules, and there are no images. `links.md` has the labels.
#[test]
fn a_guide_has_relative_links_only_by_labels_and_no_image_of_the_repository() {
    for (guide, text) in guides() {
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            let starts = ["https://", "http://", "#", "crate::"];
            let leads_somewhere = starts.iter().any(|start| target.starts_with(start));
            assert!(leads_somewhere, "{guide}: {target}");
        }
    }
}

#[test]
fn a_guide_has_one_title_everywhere() {
    let module = read("src/guides/mod.rs");
    let files: BTreeMap<_, _> = module
        .lines()
        .filter_map(|line| line.trim().split_once(": \""))
        .filter_map(|(name, file)| Some((name, file.strip_suffix("\",")?)))
        .collect();
    let docs = read("src/lib.rs");
    let titles: Vec<_> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("//! [")?.split_once("]: "))
        .filter_map(|(title, target)| {
            let guide = target.strip_prefix(DOCS_RS)?.strip_prefix("guides/")?;
            Some((title, guide.strip_suffix("/index.html")?))
        })
        .collect();
    assert_eq!(titles.len(), files.len());

    for (title, name) in titles {
        let guide = read(&format!("docs/{}", files[name]));
        assert_eq!(guide.lines().next(), Some(&*format!("# {title}")));
        assert!(docs.contains(&format!("//! - [{title}]: ")), "{title}");
    }
}

#[test]
fn no_block_of_a_guide_has_hidden_lines() {
    for (guide, text) in guides() {
        let blocks = text.split("\n```rust").skip(1);
        for line in blocks
            .filter_map(|block| block.split("\n```").next())
            .flat_map(str::lines)
        {
            assert!(!line.starts_with("# ") && line != "#", "{guide}: {line}");
        }
    }
}

#[test]
fn every_file_that_a_guide_names_exists() {
    for (guide, text) in guides() {
        let quoted = text.split('`').filter(|name| !name.contains(' '));
        let is_path = |name: &&str| name.starts_with("examples/") || name.starts_with("fixtures/");
        let programs = text.split_whitespace().filter(is_path);
        // The reader of *First steps* creates that file.
        let files = quoted.filter(is_path).chain(programs);
        for file in files.filter(|file| !file.contains("examples/first.rs")) {
            assert!(root().join(file).exists(), "{guide}: {file}");
        }
    }
}

#[test]
fn the_shell_example_of_the_guide_runs() {
    if !is_installed("sh", "-c") || !is_installed("curl", "--version") {
        return skip("the shell example of the guide: sh or curl is not installed");
    }
    let server = MockServer::builder().start_blocking();

    let output = run(
        Command::new("sh").args(["-eu", "-s"]),
        &server,
        &example("sh"),
    );

    assert_success(&output);
    let statuses: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [Some(503), Some(200)]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"preferences\""));
}

#[test]
fn the_python_example_of_the_guide_passes() {
    if !is_installed("python3", "--version") {
        return skip("the Python example of the guide: python3 is not installed");
    }
    let server = MockServer::builder().start_blocking();

    let output = run(
        Command::new("python3").args(["-I", "-"]),
        &server,
        &example("python"),
    );

    assert_success(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("Ran 2 tests"));
}

#[test]
fn the_verifier_of_the_guide_accepts_genuine_deliveries_only() {
    if !is_installed("python3", "--version") {
        return skip("the verifier of the guide: python3 is not installed");
    }
    let (secret, body) = ("6Jm0nFq2pXvZk4Tt", "{\"id\": \"evt_1\"}");
    let signer = Signer::new(secret).unwrap();
    let now = SystemTime::now();
    let late = now - Duration::from_secs(310);

    for (time, sent, expected) in [
        (now, body, "True"),
        (now, "{}", "False"),
        (late, body, "False"),
    ] {
        let headers = signer.sign(&"email.sent".into(), time, body);
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        let arguments = "import sys; s, t, m, b = (a.encode() for a in sys.argv[1:])";
        let call = "print(is_genuine(s, t.decode(), m.decode(), b))";
        let program = format!(
            "{}\n{arguments}\n{call}",
            blocks_of("verifying-webhooks", "py").concat()
        );
        let output = Command::new("python3")
            .args(["-I", "-c", &program, secret])
            .args([
                header("webhook-timestamp"),
                header("webhook-signature"),
                sent.to_owned(),
            ])
            .output()
            .unwrap();

        assert_success(&output);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected);
    }
}

#[test]
fn the_minute_of_the_guide_leads_to_a_signed_webhook_also_hours_later() {
    if !is_installed("python3", "--version") {
        return skip("the minute of the guide: python3 is not installed");
    }
    let [mock_port, handler_port] = [free_port(), free_port()].map(|port| port.to_string());
    let with_ports = |text: String| {
        text.replace("4010", &mock_port)
            .replace("8000", &handler_port)
    };
    let [handler, send] = &blocks("py")[..] else {
        panic!("the guide has two Python programs");
    };
    // The ports of another run of the tests are others.
    let seed = format!("guide-seed-{:016x}.json", fastrand::u64(..));
    let seed = Path::new(env!("CARGO_TARGET_TMPDIR")).join(seed);
    fs::write(&seed, with_ports(blocks("json").swap_remove(0))).unwrap();
    let mut handler =
        Running::start(Command::new("python3").args(["-I", "-c", &with_ports(handler.clone())]));
    wait_for_listener(&handler_port);
    let mut mock = Running::start(
        Command::new(support::examples::program("audience-mock"))
            .args(["--signing-clock", "wall", "--port", &mock_port, "--seed"])
            .arg(&seed),
    );
    let url = format!("http://127.0.0.1:{mock_port}");
    let listening = mock.line();
    fs::remove_file(&seed).unwrap();
    assert_eq!(listening, format!("listening on {url}"));

    for id in ["eml_00000001", "eml_00000002"] {
        let sent = Command::new("python3")
            .args(["-I", "-c", &with_ports(send.clone())])
            .env("no_proxy", "*")
            .output()
            .unwrap();

        assert_success(&sent);
        assert_eq!(
            String::from_utf8(sent.stdout).unwrap().trim(),
            format!(r#"{{"id":"{id}"}}"#)
        );
        // The mock sends both immediately.
        let mut lines = [handler.line(), handler.line()];
        lines.sort();
        assert_eq!(
            lines,
            [
                "genuine: email.delivered to ada@example.com",
                "genuine: email.sent to ada@example.com"
            ]
        );
        let advanced = Command::new(support::examples::program("audience-mock"))
            .args(["clock", "advance", "5h", "--url", &url])
            .output()
            .unwrap();
        assert_success(&advanced);
    }
}

/// A program that runs until it is dropped.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Waits for the next line of the output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for_listener(port: &str) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        assert!(Instant::now() < deadline, "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the code blocks of one language in the guide to other languages, joined.
fn example(language: &str) -> String {
    blocks(language).concat()
}

/// Returns the code blocks of one language in the guide to other languages.
fn blocks(language: &str) -> Vec<String> {
    blocks_of("other-languages", language)
}

fn blocks_of(guide: &str, language: &str) -> Vec<String> {
    let text = read(&format!("docs/{guide}.md"));
    let fence = format!("```{language}\n");
    let blocks: Vec<_> = text
        .split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect();
    assert!(!blocks.is_empty(), "the guide has no block of {language}");
    blocks
}

/// Runs a program with the code as its standard input, and the address of the server in its environment.
fn run(program: &mut Command, server: &MockServer, code: &str) -> Output {
    let mut child = program
        .env("MOCK", server.url())
        .env("no_proxy", "*")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(code.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

fn assert_success(output: &Output) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
}

fn is_installed(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    let command = command.arg(argument).arg("true");
    command
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Returns the name and the text of each guide.
fn guides() -> Vec<(String, String)> {
    let module = read("src/guides/mod.rs");
    let files = module.split('"').filter(|name| name.ends_with(".md"));
    let guides: Vec<_> = files
        .filter(|name| *name != "links.md")
        .map(|name| (name.to_owned(), read(&format!("docs/{name}"))))
        .collect();
    assert!(guides.len() >= 7);
    guides
}

/// Returns the label, in lower case, and the target of each link definition.
fn definitions(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
        .map(|(label, target)| (label.to_lowercase(), target.to_owned()))
        .collect()
}

/// Returns whether an address on docs.rs or a file of `docs` is what a path of `links.md` names.
fn leads_to_the_same_place(target: &str, path: &str, module: &str) -> bool {
    if let Some(guide) = path.strip_prefix("crate::guides::") {
        return root().join("docs").join(target).is_file()
            && module.contains(&format!("{guide}: \"{target}\""));
    }
    if path == "crate::interface" {
        return target == "interface.md";
    }
    let Some(address) = target.strip_prefix(DOCS_RS) else {
        return false;
    };
    let path = path.trim_start_matches("crate::");
    // `contacts/struct.Created.html#method.attempts` becomes `contacts::Created::attempts`.
    let address = address
        .trim_end_matches("/index.html")
        .replace(".html#", "::")
        .replace(".html", "");
    let names: Vec<_> = address
        .split(['/', ':'])
        .filter(|part| !part.is_empty())
        .map(|part| part.rsplit('.').next().unwrap_or(part))
        .collect();
    names.join("::") == path
}

fn read(file: &str) -> String {
    let path: PathBuf = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
