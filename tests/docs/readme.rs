//! The README: its programs need no more than its `Cargo.toml` has, and its endpoint works. The programs are compiled as
//! doctests, as they are printed.

use std::fs;
use std::path::Path;

mod endpoint {

    #![expect(
        clippy::unused_async,
        reason = "a handler of a reader's own awaits something"
    )]

    include!(concat!(env!("OUT_DIR"), "/README.hook.rs"));

    use audience::inbox::MemoryStore;
    use audience::mock::{DeliveryFault, MockServer};

    #[tokio::test]
    async fn the_endpoint_handles_each_event_once_and_rejects_forgeries() {
        let secret = "6Jm0nFq2pXvZk4Tt";
        let inbox = Inbox::builder(MemoryStore::new()).build().unwrap();
        let app = App {
            verifier: Verifier::new(secret).unwrap(),
            inbox: inbox.clone(),
        };
        let router = Router::new().route("/hook", post(hook)).with_state(app);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let server = MockServer::builder()
            .delivery_timeout(support::PATIENCE)
            .webhook_endpoint(url, secret)
            .start()
            .await;

        server.delivery_fault(DeliveryFault::duplicate().times(1));
        server
            .send_event(serde_json::json!({"type": "email.complained"}))
            .await;
        server.delivery_fault(DeliveryFault::tampered().times(1));
        server
            .send_event(serde_json::json!({"type": "email.complained"}))
            .await;

        let statuses: Vec<_> = server
            .attempts()
            .iter()
            .map(|attempt| attempt.status)
            .collect();
        assert_eq!(statuses, [Some(200), Some(200), Some(401)]);
        assert_eq!(
            (inbox.metrics().handled, inbox.metrics().duplicates),
            (1, 1)
        );
        // The program that the README prints opens a file and serves forever.
        let _ = main;
    }
}

const README: &str = include_str!("../../README.md");

#[test]
fn every_crate_that_a_block_uses_is_in_the_dependencies_shown() {
    let dependencies = toml();
    for block in rust_blocks() {
        let imported = block
            .lines()
            .filter_map(|line| line.strip_prefix("use ")?.split("::").next());
        for name in imported.chain(["tokio"]) {
            let name = name.replace('_', "-");
            assert!(dependencies.contains(&format!("{name} = ")), "{name}");
        }
    }
}

#[test]
fn the_features_shown_have_every_module_that_a_block_uses() {
    let dependencies = toml();
    for (path, feature) in [
        ("audience::inbox", "inbox"),
        ("SqliteStore", "inbox-sqlite"),
        ("PostgresStore::", "inbox-postgres"),
        ("audience::mock", "mock"),
        ("audience::import", "import"),
        ("audience::export", "import"),
        (".wait()", "blocking"),
        ("axum::", "axum"),
        ("FromRef)]", "macros"),
    ] {
        let is_used = rust_blocks().iter().any(|block| block.contains(path));
        // A store's feature enables that of the inbox.
        let is_shown = dependencies.contains(&format!("\"{feature}\""))
            || dependencies.contains(&format!("\"{feature}-"));
        assert!(!is_used || is_shown, "{path} needs {feature}");
    }
}

#[test]
fn no_block_has_a_line_that_rustdoc_hides() {
    for block in rust_blocks() {
        let hidden = block.lines().find(|line| line.starts_with("# "));
        assert_eq!(hidden, None);
    }
}

#[test]
fn the_rust_version_is_that_of_the_package() {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("rust-version = \"").unwrap();
    let (version, _) = rest.split_once('"').unwrap();

    assert!(README.contains(&format!("Rust {version} or newer")));
    assert!(README.contains(&format!("rust-{version}%2B")));
}

#[test]
fn every_dependency_on_this_package_that_is_shown_has_its_version() {
    let mut numbers = env!("CARGO_PKG_VERSION").split('.');
    let version = format!("{}.{}", numbers.next().unwrap(), numbers.next().unwrap());
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|file| format!("docs/{}", file.unwrap().file_name().display()));
    let mut count = 0;

    for file in docs
        .filter(|file| file.ends_with(".md"))
        .chain(["README.md".to_owned(), "src/lib.rs".to_owned()])
    {
        for shown in read(&file).split("audience = ").skip(1) {
            let shown = shown.strip_prefix("{ version = ").unwrap_or(shown);
            if let Some(shown) = shown.strip_prefix('"') {
                let (shown, _) = shown.split_once('"').unwrap();
                assert_eq!(shown, version, "{file}");
                count += 1;
            }
        }
    }

    assert!(count >= 10, "{count}");
}

#[test]
fn every_guide_is_linked() {
    let module = read("src/guides/mod.rs");
    let guides: Vec<_> = module
        .split('"')
        .filter(|name| name.ends_with(".md") && *name != "links.md")
        .collect();
    assert!(guides.len() >= 7);

    for guide in guides {
        assert!(README.contains(&format!("(docs/{guide})")), "{guide}");
    }
}

fn rust_blocks() -> Vec<&'static str> {
    let blocks: Vec<_> = blocks()
        .filter(|(language, _)| language.starts_with("rust"))
        .collect();
    assert_eq!(blocks.len(), 3);
    blocks.into_iter().map(|(_, block)| block).collect()
}

/// Returns the dependencies of all sections.
fn toml() -> String {
    let shown = blocks().filter(|(language, _)| *language == "toml");
    shown.map(|(_, block)| block).collect()
}

/// Returns the language and the text of each code block.
fn blocks() -> impl Iterator<Item = (&'static str, &'static str)> {
    README
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.split_once('\n'))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
