//! The help, the manual pages and the completions.

use super::{Folder, audience, end};

/// Every command that does something.
const COMMANDS: [&str; 22] = [
    "contacts show",
    "contacts create",
    "contacts update",
    "contacts change-address",
    "contacts list",
    "contacts count",
    "contacts set-topics",
    "contacts unsubscribe",
    "contacts subscribe",
    "contacts erase",
    "import",
    "sync",
    "export",
    "webhooks verify",
    "webhooks diagnose",
    "webhooks send",
    "inbox parked",
    "inbox replay",
    "inbox discard",
    "inbox schema",
    "completions",
    "man",
];

#[test]
fn the_help_of_every_command_has_an_example_of_that_command() {
    for command in COMMANDS {
        let help = end(audience(command.split(' ')).arg("--help"));

        assert_eq!(help.code, Some(0), "{command}");
        let (_, example) = help.stdout.split_once("\nExample:\n").unwrap();
        assert!(
            example.starts_with(&format!("  audience {command} ")),
            "{example}"
        );
    }
    let all = end(&mut audience(["--help"]));
    for command in COMMANDS {
        let first = command.split(' ').next().unwrap();
        assert!(
            all.stdout.contains(&format!("\n  {first} ")),
            "{}",
            all.stdout
        );
    }
    for said in [
        "AUDIENCE_KEY_FILE",
        "AUDIENCE_AUTH_HEADER",
        "Exit status:\n  0    ",
        "\n  130  Ctrl-C ended it at a question, before",
        "\n  4    The contact, topic or segment does not exist, or the event is not parked\n",
        "AUDIENCE_WEBHOOK_SECRET_OLD_FILE",
    ] {
        assert!(all.stdout.contains(said), "{}", all.stdout);
    }
}

#[test]
fn every_command_that_changes_contacts_has_a_dry_run() {
    for command in COMMANDS {
        let help = end(audience(command.split(' ')).arg("--help"));

        let writes = [
            "create",
            "update",
            "change-address",
            "set-topics",
            "subscribe",
            "erase",
            "import",
            "sync",
        ];
        let writes = writes.iter().any(|name| command.ends_with(name));
        assert_eq!(help.stdout.contains("--dry-run"), writes, "{command}");
    }
}

#[test]
fn the_help_lists_the_endpoint_only_for_commands_that_read_its_events() {
    for command in ["parked", "replay", "discard", "schema"] {
        let help = end(audience(["inbox", command]).arg("--help"));

        let lists = help.stdout.contains("--endpoint <NAME>");
        assert_eq!(lists, command != "schema", "{}", help.stdout);
    }
    let schema = [
        "inbox",
        "--endpoint",
        "main",
        "schema",
        "--role",
        "receiver",
    ];
    assert_eq!(end(&mut audience(schema)).code, Some(0));
}

#[test]
fn there_is_a_manual_page_for_each_command_and_a_script_for_each_shell() {
    let folder = Folder::new("man");

    let one = end(&mut audience(["man"]));
    let all = end(&mut audience(["man", &folder.path("")]));

    assert!(one.stdout.contains(".TH audience 1"), "{}", one.stdout);
    assert_eq!(all.code, Some(0), "{all:?}");
    for command in COMMANDS {
        let page = format!("audience-{}.1", command.replace(' ', "-"));
        let page = std::fs::read_to_string(folder.path(&page)).unwrap();
        assert!(page.contains("Example"), "{page}");
    }
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = end(&mut audience(["completions", shell]));
        assert!(script.stdout.contains("set-topics"), "{shell}");
    }
}
