//! `audience contacts`: one contact, and lists of them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use audience::Timestamp;
use audience::mock::dialect::{ConsentForm, ContactDeletion};
use audience::mock::{Dialect, EngagementKind, Fault, MockServer, Reason, SeedContact};

use serde_json::json;

#[cfg(unix)]
use super::terminal;
use super::{Folder, audience_at, end, ended};

fn server() -> MockServer {
    let ada = SeedContact::new("ada@example.com")
        .first_name("Ada")
        .last_name("Lovelace")
        .property("plan", "pro")
        .property("seats", 3);
    let server = MockServer::builder()
        .topic("news", true)
        .topic("offers", false)
        .seed_contact(ada)
        .seed_contact("bob@example.com");
    server.start_blocking()
}

/// Whether the server got a request that changes something.
fn is_changed(server: &MockServer) -> bool {
    let mut requests = server.requests().into_iter();
    requests.any(|request| request.method != "GET")
}

#[test]
fn a_contact_is_shown_line_by_line_or_as_json_with_the_names_of_the_document() {
    let server = server();
    let show = ["contacts", "show", "Ada@Example.com"];

    let shown = end(&mut audience_at(&server, &show));
    let json = end(audience_at(&server, &show).arg("--json"));

    assert_eq!((shown.code, json.code), (Some(0), Some(0)), "{shown:?}");
    for line in [
        "email           ada@example.com\n",
        "last_name       Lovelace\n",
        "property:plan   pro\n",
        "topic:offers    false\n",
    ] {
        assert!(shown.stdout.contains(line), "{}", shown.stdout);
    }
    let contact = &json.json()[0];
    assert_eq!(contact["email"], "ada@example.com");
    assert_eq!(contact["properties"]["seats"], 3);
    assert_eq!(contact["topics"]["news"], true);
}

#[test]
fn a_contact_is_shown_with_the_reason_why_no_broadcast_reaches_it() {
    let server = server();
    let show = || {
        end(&mut audience_at(
            &server,
            &["contacts", "show", "ada@example.com"],
        ))
        .stdout
    };

    let reachable = show();
    server.report_spam("ada@example.com");
    let reported = show();
    let show = ["contacts", "show", "ada@example.com", "--json"];
    let json = end(&mut audience_at(&server, &show)).json();

    let said = "broadcasts      nothing is known that prevents broadcasts; each topic has its own answer\n";
    assert!(reachable.contains(said), "{reachable}");
    assert!(
        reported.contains(" a mailbox provider reported spam, and no call ends this\n"),
        "{reported}"
    );
    assert_eq!(
        json[0]["broadcasts"],
        "a mailbox provider reported spam, and no call ends this"
    );
}

#[test]
fn the_history_shows_the_shortest_period_of_each_thing_that_happened() {
    use EngagementKind::{Clicked, Complained, Delivered, Opened};
    let server = MockServer::builder().clock(1_900_000_000);
    let server = server.seed_contact("ada@example.com");
    let server = server.seed_contact("long-ada@example.com").start_blocking();
    let happened = |address, what, days: i64| {
        let at = Timestamp::from_unix(1_900_000_000 - days * 86_400);
        server.record_engagement(address, what, at);
    };
    happened("ada@example.com", Delivered, 0);
    happened("ada@example.com", Delivered, 50);
    happened("ada@example.com", Opened, 365);
    happened("ada@example.com", Clicked, 366);
    happened("long-ada@example.com", Complained, 0);
    let show = ["contacts", "show", "Ada@Example.com", "--history"];

    let shown = end(&mut audience_at(&server, &show));
    let json = end(audience_at(&server, &show).arg("--json")).json();

    let (_, history) = shown.stdout.split_once("history:").unwrap();
    assert_eq!(
        history,
        "bounced     never\n\
         history:clicked     more than a year ago\n\
         history:complained  never\n\
         history:delivered   within 1 day\n\
         history:opened      within 365 days\n"
    );
    assert_eq!(json[0]["email"], "ada@example.com");
    let never = json!({"ever": false, "within_days": null});
    assert_eq!(
        json[0]["history"],
        json!({
            "bounced": never,
            "clicked": {"ever": true, "within_days": null},
            "complained": never,
            "delivered": {"ever": true, "within_days": 1},
            "opened": {"ever": true, "within_days": 365},
        })
    );
}

#[test]
fn each_period_of_the_history_is_found() {
    let server = MockServer::builder().clock(1_900_000_000);
    let server = server.seed_contact("ada@example.com").start_blocking();
    let show = ["contacts", "show", "ada@example.com", "--history", "--json"];
    // Each event is newer than the one before.
    for (age, period) in [
        (91, 365),
        (90, 90),
        (31, 90),
        (30, 30),
        (8, 30),
        (7, 7),
        (2, 7),
        (1, 1),
    ] {
        let at = Timestamp::from_unix(1_900_000_000 - age * 86_400);
        server.record_engagement("ada@example.com", EngagementKind::Opened, at);

        let shown = end(&mut audience_at(&server, &show)).json();

        let opened = &shown[0]["history"]["opened"];
        assert_eq!(opened["within_days"], period, "{age} days ago");
    }
}

#[test]
fn an_unknown_address_is_an_error_with_its_code_and_with_json_an_object() {
    let server = server();
    let show = ["contacts", "show", "nobody@example.com"];

    let text = end(&mut audience_at(&server, &show));
    let json = end(audience_at(&server, &show).arg("--json"));

    assert_eq!((text.code, json.code), (Some(4), Some(4)));
    assert!(text.stdout.is_empty() && json.stdout.is_empty());
    let start = "audience: nobody@example.com: there is no contact with this address: check the address (404 not_found)";
    assert!(text.stderr.starts_with(start), "{}", text.stderr);
    let error: serde_json::Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(error["code"], "not_found");
    assert_eq!(error["status"], 404);
    assert_eq!(error["email"], "nobody@example.com");
    assert_eq!(error["outcome"], "refused");
}

#[test]
fn an_error_as_json_says_whether_something_may_have_been_changed() {
    let server = server();
    let outcome = |arguments: &[&str]| {
        let ended = end(audience_at(&server, &["contacts"])
            .args(arguments)
            .arg("--json"));
        let error: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
        error["outcome"].clone()
    };
    let create = ["create", "cy@example.com"];
    let form = [
        "set-topics",
        "ada@example.com",
        "news=false",
        "offers=false",
    ];

    let exists = outcome(&["create", "ada@example.com"]);
    let usage = outcome(&["show", ""]);
    server.fault(Fault::status(501).path("*/unsubscribe").after(1));
    let half = outcome(&form);
    server.clear_faults();
    server.fault(Fault::close_after().method("POST"));
    let lost = outcome(&create);
    server.clear_faults();
    server.fault(Fault::wrong_body("{}"));
    let read = outcome(&["show", "ada@example.com"]);

    assert_eq!(exists, "refused");
    assert_eq!(usage, json!(null));
    // The second answer was refused, and the first is recorded.
    assert_eq!(half, "unknown");
    assert_eq!(lost, "unknown");
    assert!(server.contact("cy@example.com").is_some());
    assert_eq!(read, "unchanged");
}

#[test]
fn a_contact_is_created_and_one_that_exists_is_not_changed_unless_that_is_asked_for() {
    let server = server();
    let create = |more: &[&str]| {
        let arguments = [
            "contacts",
            "create",
            "ada@example.com",
            "--property",
            "plan=free",
        ];
        end(audience_at(&server, &arguments).args(more))
    };

    let refused = create(&[]);
    let before = server.contact("ada@example.com").unwrap();
    let replaced = create(&["--on-conflict", "upsert"]);
    let new = [
        "contacts",
        "create",
        "cy@example.com",
        "--first-name",
        "Cy",
        "--property",
        "seats=5",
    ];
    let new = end(&mut audience_at(&server, &new));

    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("already_exists"),
        "{}",
        refused.stderr
    );
    assert_eq!(before.properties["plan"], "pro");
    assert_eq!(replaced.code, Some(0), "{replaced:?}");
    assert_eq!(
        server.contact("ada@example.com").unwrap().properties.len(),
        1
    );
    assert!(
        new.stdout.starts_with("cy@example.com was created"),
        "{new:?}"
    );
    let cy = server.contact("cy@example.com").unwrap();
    assert_eq!(cy.first_name.as_deref(), Some("Cy"));
    assert_eq!(cy.properties["seats"], 5);
}

#[test]
fn a_text_property_is_text_although_it_is_written_as_a_number_and_is_found_as_text() {
    let server = server();
    let contacts = |command: &str, address: &[&str], flag: &str, value: &str| {
        let arguments = [&["contacts", command][..], address, &[flag, value]].concat();
        end(&mut audience_at(&server, &arguments))
    };
    let text = |command, address| {
        let ended = contacts(command, &[address], "--text-property", "phone=491511234567");
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };

    text("create", "cy@example.com");
    text("update", "ada@example.com");
    contacts(
        "update",
        &["bob@example.com"],
        "--property",
        "phone=491511234567",
    );
    let as_text = contacts("count", &[], "--text-property", "phone=491511234567");
    let as_number = contacts("count", &[], "--property", "phone=491511234567");
    let unnamed = contacts("update", &["ada@example.com"], "--text-property", "=1");

    for address in ["cy@example.com", "ada@example.com"] {
        let contact = server.contact(address).unwrap();
        assert_eq!(contact.properties["phone"], "491511234567");
    }
    let bob = server.contact("bob@example.com").unwrap();
    assert_eq!(bob.properties["phone"], 491_511_234_567_u64);
    assert_eq!((&*as_text.stdout, &*as_number.stdout), ("2\n", "1\n"));
    assert_eq!(unnamed.code, Some(2), "{unnamed:?}");
}

/// As from a wrong cache.
#[test]
fn another_contact_in_the_response_is_not_taken_for_the_one_that_was_created() {
    let server = server();
    let bob =
        r#"{"id": "con_9", "email": "bob@example.com", "unsubscribed": false, "created_at": 1}"#;
    server.fault(Fault::wrong_body(bob).method("POST").path("/contacts"));

    let create = ["contacts", "create", "cy@example.com"];
    let ended = end(&mut audience_at(&server, &create));

    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.contains("another address"), "{ended:?}");
}

#[test]
fn an_update_changes_what_it_names_and_keeps_the_rest() {
    let server = server();
    let arguments = [
        "contacts",
        "update",
        "ada@example.com",
        "--last-name",
        "King",
        "--remove-property",
        "seats",
    ];

    let dry = end(audience_at(&server, &arguments).arg("--dry-run"));
    let before = server.contact("ada@example.com").unwrap();
    let done = end(&mut audience_at(&server, &arguments));

    assert!(
        dry.stdout.starts_with("dry run: nothing was sent"),
        "{dry:?}"
    );
    assert_eq!(before.last_name.as_deref(), Some("Lovelace"));
    assert_eq!(done.code, Some(0), "{done:?}");
    let ada = server.contact("ada@example.com").unwrap();
    assert_eq!(ada.first_name.as_deref(), Some("Ada"));
    assert_eq!(ada.last_name.as_deref(), Some("King"));
    assert!(ada.properties.contains_key("plan") && !ada.properties.contains_key("seats"));
}

#[test]
fn topics_are_set_and_an_unknown_one_changes_nothing() {
    let server = server();
    let set = |topics: &[&str]| {
        let set_topics = ["contacts", "set-topics", "ada@example.com", "--yes"];
        end(audience_at(&server, &set_topics).args(topics))
    };

    let unknown = set(&["news=false", "nwes=false"]);
    let before = server.contact("ada@example.com").unwrap();
    let done = set(&["news=false", "offers=true"]);

    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    assert!(before.answers.is_empty(), "{before:?}");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("topic:news      false\n"), "{done:?}");
    let answers = server.contact("ada@example.com").unwrap().answers;
    assert_eq!((answers["news"], answers["offers"]), (false, true));
}

#[test]
fn a_topic_with_an_equals_sign_in_its_name_is_set() {
    let server = server();
    server.topic("a=b", true);

    let set_topics = ["contacts", "set-topics", "ada@example.com", "a=b=false"];
    let done = end(&mut audience_at(&server, &set_topics));

    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!server.contact("ada@example.com").unwrap().topics["a=b"]);
}

#[test]
fn a_list_is_a_table_that_ends_at_its_limit_and_json_has_one_contact_per_line() {
    let server = server();
    server.seed_contact("cy@example.com");

    let list =
        |arguments: &[&str]| end(audience_at(&server, &["contacts", "list"]).args(arguments));
    let table = list(&["--limit", "2"]);
    let filtered = list(&["--property", "seats=3", "--json"]);
    let none = list(&["--query", "nobody"]);

    let lines: Vec<_> = table.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{table:?}");
    assert!(
        lines[0].starts_with("email            first_name"),
        "{table:?}"
    );
    let starts: Vec<_> = filtered
        .json()
        .iter()
        .map(|contact| contact["email"].clone())
        .collect();
    assert_eq!(starts, ["ada@example.com"]);
    assert_eq!((none.code, none.stdout.lines().count()), (Some(0), 1));
}

#[test]
fn contacts_are_counted() {
    let server = server();

    let all = end(&mut audience_at(&server, &["contacts", "count"]));
    let some = end(&mut audience_at(
        &server,
        &["contacts", "count", "--query", "ada", "--json"],
    ));

    assert_eq!((&*all.stdout, &*some.stdout), ("2\n", "{\"count\":1}\n"));
}

#[test]
fn a_list_that_nobody_reads_any_more_ends_quietly_and_fetches_no_more_pages() {
    let mut builder = MockServer::builder();
    for n in 0..5_000 {
        builder = builder.seed_contact(format!("{n}@example.com").as_str());
    }
    let server = builder.start_blocking();
    let mut child = audience_at(&server, &["contacts", "list", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    drop(stdout);
    let ended = ended(child.wait_with_output().unwrap());

    assert!(first.contains("4999@example.com"), "{first}");
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    assert!(server.requests().len() < 25, "all pages were fetched");
}

#[test]
fn a_name_from_the_service_cannot_control_the_terminal() {
    let server = server();
    let hostile = "\u{1b}]0;owned\u{7}\u{9b}2J\r\n\u{202e}x";
    let mallory = SeedContact::new("mallory@example.com")
        .first_name(hostile)
        .property(hostile, hostile);
    server.seed_contact(mallory);

    for arguments in [
        &["list"][..],
        &["list", "--json"],
        &["show", "mallory@example.com"],
        &["show", "mallory@example.com", "--json"],
        &["show", hostile],
    ] {
        let ended = end(audience_at(&server, &["contacts"]).args(arguments));

        let controls = |text: &str| {
            text.contains(|letter: char| {
                letter.is_control() && letter != '\n' || letter == '\u{202e}'
            })
        };
        assert!(
            !controls(&ended.stdout) && !controls(&ended.stderr),
            "{ended:?}"
        );
    }
    let json = end(&mut audience_at(
        &server,
        &["contacts", "show", "mallory@example.com", "--json"],
    ));
    assert_eq!(json.json()[0]["first_name"], hostile);
}

#[test]
fn an_address_is_changed_only_with_yes_if_there_is_no_terminal() {
    let server = server();
    let change = |more: &[&str]| {
        let arguments = [
            "contacts",
            "change-address",
            "Ada@example.com",
            "ada@example.net",
        ];
        end(audience_at(&server, &arguments).args(more))
    };

    let refused = change(&[]);
    assert!(refused.stderr.contains("change 2 contacts"), "{refused:?}");
    assert_eq!((refused.code, is_changed(&server)), (Some(2), false));
    let plan = "ada@example.net would be opted out of: offers\n";
    assert!(refused.stderr.contains(plan), "{refused:?}");

    let dry = change(&["--dry-run"]);
    let dry_json = change(&["--dry-run", "--json"]);
    assert_eq!(
        (dry.code, &*dry.stdout),
        (
            Some(0),
            "dry run: nothing was sent; ada@example.com would be changed to ada@example.net\n\
             ada@example.net would be created with the names and properties of ada@example.com\n\
             ada@example.net would be opted out of: offers\n\
             ada@example.com would be opted out of everything\n"
        )
    );
    assert_eq!(dry_json.json()[0]["old"]["first_name"], "Ada");
    assert!(server.contact("ada@example.net").is_none());

    let done = change(&["--yes"]);
    assert_eq!(
        (done.code, &*done.stdout),
        (Some(0), "ada@example.com was changed to ada@example.net\n")
    );
    let ada = server.contact("ada@example.net").unwrap();
    assert_eq!(ada.first_name.as_deref(), Some("Ada"));
    assert!(server.contact("ada@example.com").unwrap().unsubscribed);

    let again = change(&["--yes"]);
    assert_eq!(again.code, Some(1), "{again:?}");
    let said = "if the address was changed before, most likely everything is done: compare both contacts; ";
    assert!(again.stderr.contains(said), "{again:?}");
    assert!(!server.contact("ada@example.net").unwrap().unsubscribed);
}

#[test]
fn a_dry_run_and_the_question_say_whose_the_new_address_is() {
    let server = server();
    let augusta = SeedContact::new("ada@example.net").first_name("Augusta");
    server.seed_contact(augusta.unsubscribed(Reason::Preferences));
    let change = |old, new| {
        let change = ["contacts", "change-address", "--dry-run", old, new];
        end(&mut audience_at(&server, &change)).stdout
    };

    let ada = change("ada@example.com", "Ada@example.net");
    server.seed_contact(SeedContact::new("eve@example.com").unsubscribed(Reason::Manual));
    let eve = change("eve@example.com", "bob@example.com");
    let same = change("bob@example.com", "Bob@example.com");

    let said = "ada@example.net is a contact already and keeps its names (Augusta) and properties; the person opted out of everything\n";
    assert!(ada.contains(said), "{ada}");
    assert!(ada.ends_with("ada@example.com would be opted out of everything\n"));
    assert!(eve.ends_with("nothing would be changed\n"), "{eve}");
    assert!(same.ends_with("bob@example.com is the address already\n"));
    assert!(!is_changed(&server));
}

#[test]
fn a_mistyped_address_erases_nobody_and_a_malformed_contact_is_deleted() {
    let dialect = Dialect {
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect);
    let server = server.seed_contact("ada@example.com").start_blocking();
    let erase = |address: &str| {
        let erase = ["contacts", "erase", address, "--yes"];
        end(&mut audience_at(&server, &erase))
    };

    let mistyped = erase("adda@example.com");
    let is_unchanged = !is_changed(&server);
    let body = r#"{"id": "con_9", "email": "ada@example.com", "unsubscribed": "?"}"#;
    server.fault(Fault::wrong_body(body).method("GET").path("/contacts/*"));
    let malformed = erase("ada@example.com");

    let said = "adda@example.com: there is no contact with this address; check the spelling\n";
    assert_eq!((mistyped.code, &*mistyped.stdout), (Some(4), said));
    assert!(is_unchanged);
    assert_eq!(malformed.code, Some(0), "{malformed:?}");
    assert!(server.contact("ada@example.com").is_none());
}

#[test]
fn the_topics_that_arrive_are_retrieved_if_the_opt_in_does_not_show_them() {
    let server = MockServer::builder()
        .dialect(Dialect {
            consent_form: ConsentForm::Create,
            ..Dialect::default()
        })
        .topic("news", true)
        .seed_contact("ada@example.com")
        .start_blocking();
    let subscribe = ["contacts", "subscribe", "ada@example.com", "--yes"];

    let shown = end(&mut audience_at(&server, &subscribe));
    server.fault(Fault::status(501).method("GET"));
    let not_retrieved = end(&mut audience_at(&server, &subscribe));

    let said = "ada@example.com was subscribed\ntopics that arrive now: news\n";
    assert_eq!((shown.code, &*shown.stdout), (Some(0), said), "{shown:?}");
    assert_eq!(not_retrieved.code, Some(0), "{not_retrieved:?}");
    let said = "topics that arrive now: not known, because the response does not show them\n";
    assert!(not_retrieved.stdout.ends_with(said), "{not_retrieved:?}");
}

#[test]
fn a_topic_whose_answer_is_null_is_shown_without_an_answer() {
    let server = server();
    let ada = json!({"id": "con_1", "email": "ada@example.com", "unsubscribed": false, "created_at": 5,
        "topics": {"news": null, "offers": true}});
    server.fault(Fault::wrong_body(ada.to_string()).path("/contacts/*"));
    let show = ["contacts", "show", "ada@example.com"];
    let subscribe = ["contacts", "subscribe", "ada@example.com", "--yes"];

    let shown = end(&mut audience_at(&server, &show));
    let json = end(audience_at(&server, &show).arg("--json"));
    let subscribed = end(&mut audience_at(&server, &subscribe));

    assert!(shown.stdout.contains("topic:news    -\n"), "{shown:?}");
    let topics = &json.json()[0]["topics"];
    assert_eq!(topics, &json!({"news": null, "offers": true}));
    let said = "topics that arrive now: offers, news (not known)\n";
    assert!(subscribed.stdout.ends_with(said), "{subscribed:?}");
}

#[test]
fn an_opt_out_is_not_sent_and_may_be_repeated_after_the_404_of_a_gateway() {
    for body in ["{}", r#"{"error": {"code": "not_found", "message": "?"}}"#] {
        let server = server();
        server.report_spam("ada@example.com");
        let gateway = Fault::status(404).body(body).method("GET");
        server.fault(gateway.path("/contacts/*"));

        let opt_out = ["contacts", "unsubscribe", "ada@example.com"];
        let ended = end(&mut audience_at(&server, &opt_out));

        assert_eq!(ended.code, Some(75), "{ended:?}");
        assert!(!is_changed(&server));
    }
}

#[test]
fn a_person_is_erased_only_after_a_yes_and_the_exit_status_says_if_the_contact_is_still_there() {
    let dialect = Dialect {
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    };
    let able = MockServer::builder().dialect(dialect);
    let able = able.seed_contact("ada@example.com").start_blocking();
    let unable = server();
    let erase = |server: &MockServer, more: &[&str]| {
        let erase = ["contacts", "erase", "Ada@example.com"];
        end(audience_at(server, &erase).args(more))
    };

    let refused = erase(&able, &[]);
    let dry = erase(&able, &["--dry-run"]);
    assert!(!is_changed(&able));
    let done = erase(&able, &["--yes"]);
    let again = erase(&able, &["--yes", "--json"]);
    let emptied = erase(&unable, &["--yes"]);
    let json = erase(&unable, &["--yes", "--json"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("this would erase ada@example.com at ")
    );
    assert!(dry.stdout.ends_with("ada@example.com would be erased\n"));
    assert_eq!(
        (done.code, &*done.stdout),
        (Some(0), "ada@example.com: deleted\n")
    );
    assert!(able.contact("ada@example.com").is_none());
    let erasure = |name: &str| vec![json!({"email": "ada@example.com", "erasure": name})];
    assert_eq!((again.code, again.json()), (Some(4), erasure("no_contact")));
    assert_eq!(emptied.code, Some(3), "{emptied:?}");
    let said = "ada@example.com: not deleted, but opted out and without names and properties; ";
    assert!(emptied.stdout.starts_with(said), "{emptied:?}");
    assert_eq!((json.code, json.json()), (Some(3), erasure("emptied")));
    let ada = unable.contact("ada@example.com").unwrap();
    assert!(ada.unsubscribed && ada.properties.is_empty(), "{ada:?}");
}

#[test]
fn a_new_address_that_no_broadcast_reaches_is_said() {
    let server = server();
    server.report_spam("ada@example.com");
    server.seed_contact("bob@example.net");
    server.report_spam("bob@example.net");
    let change = |arguments: &[&str]| {
        let change = ["contacts", "change-address", "--yes"];
        end(audience_at(&server, &change).args(arguments))
    };

    let ada = change(&["ada@example.com", "ada@example.net"]);
    let bob = change(&["bob@example.com", "bob@example.net"]);
    let same = change(&["bob@example.net", "Bob@example.net"]);
    let json = change(&["ada@example.net", "ada@example.org", "--json"]);

    let said = "no broadcast reaches the new address: the person opted out of everything\n";
    assert!(ada.stdout.contains(said), "{ada:?}");
    let hint =
        "if an earlier change of ada@example.com went to a mistyped address, change it from there";
    assert!(ada.stdout.contains(hint), "{ada:?}");
    let said = "no broadcast reaches the new address: a mailbox provider reported spam, and no call ends this\n";
    assert!(bob.stdout.contains(said), "{bob:?}");
    assert_eq!(same.stdout, "bob@example.net is the address already\n");
    assert_eq!(json.json()[0]["email"], "ada@example.org");
    assert_eq!(json.json()[0]["unsubscribe_reason"], "preferences");
}

#[test]
fn a_change_of_an_address_that_failed_at_its_last_step_can_be_repeated() {
    let server = server();
    let arguments = [
        "contacts",
        "change-address",
        "ada@example.com",
        "ada@example.net",
        "--yes",
    ];
    let fault = Fault::status(500).path("/contacts/ada%40example.com/unsubscribe");
    server.fault(fault);

    let lost = end(&mut audience_at(&server, &arguments));
    server.clear_faults();
    let again = end(&mut audience_at(&server, &arguments));

    assert_eq!((lost.code, again.code), (Some(75), Some(0)), "{lost:?}");
    assert!(lost.stderr.contains("it is safe to repeat it"), "{lost:?}");
    assert!(server.contact("ada@example.com").unwrap().unsubscribed);
}

#[test]
fn more_than_one_contact_is_unsubscribed_only_with_yes_if_there_is_no_terminal() {
    let server = server();
    let addresses = [
        "contacts",
        "unsubscribe",
        "ada@example.com",
        "bob@example.com",
    ];

    let refused = end(&mut audience_at(&server, &addresses));
    let sent = server.requests().len();
    let one = end(&mut audience_at(&server, &addresses[..3]));
    let both = end(audience_at(&server, &addresses).args(["--yes", "--reason", "preferences"]));

    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("change 2 contacts") && refused.stderr.contains("--yes"),
        "{refused:?}"
    );
    assert_eq!(sent, 0);
    assert_eq!(
        (one.code, &*one.stdout),
        (Some(0), "ada@example.com was unsubscribed\n")
    );
    assert_eq!(both.stdout.lines().count(), 2, "{both:?}");
    let bob = server.contact("bob@example.com").unwrap();
    assert_eq!(bob.unsubscribe_reason, "preferences");
}

#[test]
fn a_contact_that_is_unsubscribed_already_keeps_its_reason_unless_another_one_is_named() {
    let server = server();
    let eve = SeedContact::new("eve@example.com").unsubscribed(Reason::Preferences);
    server.seed_contact(eve);
    server.report_spam("bob@example.com");
    let unsubscribe = |arguments: &[&str]| {
        let command = ["contacts", "unsubscribe"];
        end(audience_at(&server, &command).args(arguments)).stdout
    };
    let reason = |address: &str| server.contact(address).unwrap().unsubscribe_reason;

    let eve = unsubscribe(&["eve@example.com"]);
    let bob = unsubscribe(&["bob@example.com", "--reason", "manual"]);

    let said = "eve@example.com was unsubscribed already: preferences\n";
    assert_eq!(eve, said);
    let said = "bob@example.com was unsubscribed already: complaint\n";
    assert_eq!(bob, said);
    assert!(!is_changed(&server));
    let eve = unsubscribe(&["eve@example.com", "--reason", "manual"]);
    assert_eq!(eve, "eve@example.com was unsubscribed\n");
    assert_eq!(reason("eve@example.com"), "manual");
}

/// As from a wrong cache.
#[test]
fn an_opt_out_of_another_contact_that_the_response_has_is_not_taken_for_the_one_that_was_named() {
    let server = server();
    let bob = r#"{"id": "con_9", "email": "bob@example.com", "unsubscribed": true, "topics": {},
        "unsubscribe_reason": "manual", "created_at": 1}"#;
    server.fault(Fault::wrong_body(bob).method("GET").path("/contacts/*"));

    let ada = end(&mut audience_at(
        &server,
        &["contacts", "unsubscribe", "ada@example.com"],
    ));

    assert_eq!(
        (ada.code, &*ada.stdout),
        (Some(0), "ada@example.com was unsubscribed\n"),
        "{ada:?}"
    );
    assert!(server.contact("ada@example.com").unwrap().unsubscribed);
}

#[test]
fn a_contact_that_cannot_be_read_is_unsubscribed_and_so_are_those_after_it() {
    let folder = Folder::new("malformed");
    for (consent_form, code) in [
        (ConsentForm::Full, 0),
        (ConsentForm::Create, 0),
        // Then nothing but the contact shows that the opt-out is recorded.
        (ConsentForm::NoContent, 3),
    ] {
        let mut builder = MockServer::builder().dialect(Dialect {
            consent_form,
            ..Dialect::default()
        });
        let mut list = String::new();
        for n in 0..30 {
            builder = builder.seed_contact(format!("{n}@example.com").as_str());
            list += &format!("{n}@example.com\n");
        }
        let server = builder.start_blocking();
        let shows = |address: &str, topics: &str, path: &str| {
            let body = format!(
                r#"{{"id": "con_9", "email": "{address}", "unsubscribed": false, "topics": {topics}, "created_at": 1}}"#
            );
            server.fault(Fault::wrong_body(body).method("GET").path(path));
        };
        shows(
            "4@example.com",
            r#"{"news": "yes"}"#,
            "/contacts/4@example.com",
        );
        // As from a wrong cache.
        shows("bob@example.com", "{}", "/contacts/7@example.com");
        let file = folder.file("addresses.txt", list);

        let ended = end(&mut audience_at(
            &server,
            &["contacts", "unsubscribe", "--yes", "--file", &file],
        ));

        assert_eq!(ended.code, Some(code), "{ended:?}");
        let all = server.contacts();
        assert!(all.iter().all(|contact| contact.unsubscribed), "{ended:?}");
        let failed = if code == 0 { 0 } else { 2 };
        assert_eq!(ended.stdout.lines().count(), 30 - failed, "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), failed, "{ended:?}");
    }
}

/// The commands that retrieve a contact before anything is sent.
const RETRIEVING: [&[&str]; 7] = [
    &["show", "ada@example.com"],
    &["show", "ada@example.com", "--json"],
    &["show", "ada@example.com", "--history"],
    &[
        "update",
        "ada@example.com",
        "--first-name",
        "A",
        "--dry-run",
    ],
    &["erase", "ada@example.com", "--dry-run"],
    &["change-address", "ada@example.com", "a@x.io", "--dry-run"],
    &["subscribe", "ada@example.com"],
];

/// As from a wrong cache.
#[test]
fn no_command_shows_another_contact_than_the_one_that_was_named() {
    let server = server();
    let bob = r#"{"id": "con_9", "email": "bob@example.com", "first_name": "Bob", "unsubscribed": true, "topics": {},
        "unsubscribe_reason": "manual", "created_at": 1}"#;
    server.fault(Fault::wrong_body(bob).method("GET").path("/contacts/*"));

    for arguments in RETRIEVING {
        let ended = end(audience_at(&server, &["contacts"]).args(arguments));

        assert_eq!(
            (ended.code, &*ended.stdout),
            (Some(1), ""),
            "{arguments:?}: {ended:?}"
        );
        assert!(ended.stderr.contains("another address"), "{ended:?}");
    }
}

#[test]
fn addresses_from_a_file_or_a_pipe_are_unsubscribed_and_those_that_are_no_contacts_are_exit_status_3()
 {
    let folder = Folder::new("unsubscribe");
    let server = server();
    let list = "\u{feff}ada@example.com\r\n\r\n nobody@example.com \nbob@example.com";
    let file = folder.file("addresses.txt", list);
    let unsubscribe = [
        "contacts",
        "unsubscribe",
        "--topic",
        "news",
        "--yes",
        "--file",
    ];

    let from_file = end(audience_at(&server, &unsubscribe).arg(file));
    let mut child = audience_at(&server, &unsubscribe)
        .args(["-", "--dry-run"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(list.as_bytes())
        .unwrap();
    let from_pipe = ended(child.wait_with_output().unwrap());

    assert_eq!(from_file.code, Some(3), "{from_file:?}");
    assert_eq!(from_file.stdout.lines().count(), 2);
    assert!(
        from_file
            .stderr
            .starts_with("audience: nobody@example.com: "),
        "{from_file:?}"
    );
    for address in ["ada@example.com", "bob@example.com"] {
        let contact = server.contact(address).unwrap();
        assert!(!contact.answers["news"] && !contact.unsubscribed);
    }
    assert_eq!(
        (from_pipe.code, from_pipe.stdout.lines().count()),
        (Some(0), 3)
    );
    let line = "dry run: nothing was sent; bob@example.com would be unsubscribed from news";
    assert_eq!(from_pipe.stdout.lines().last(), Some(line));
    let bob = "bob@example.com";
    let arguments = ["contacts", "unsubscribe", bob, "--topic", "news"];
    let json = end(audience_at(&server, &arguments).args(["--dry-run", "--json"]));
    assert_eq!(json.json(), [json!({"email": bob, "topic": "news"})]);
}

#[test]
fn a_list_without_addresses_to_unsubscribe_is_a_usage_error() {
    let folder = Folder::new("no-addresses");
    let server = server();
    let empty = folder.file("empty.txt", "\n \n");
    for (file, name) in [(&*empty, &*empty), ("-", "the standard input")] {
        let unsubscribe = ["contacts", "unsubscribe", "--yes", "--file", file];
        let mut unsubscribe = audience_at(&server, &unsubscribe);
        let ended = end(unsubscribe.stdin(Stdio::null()));

        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
        let said = format!("there is no address in {name}\n");
        assert!(ended.stderr.ends_with(&said), "{ended:?}");
    }
}

#[test]
fn with_json_each_line_of_standard_error_is_an_object() {
    let ada = SeedContact::new("ada@example.com").id("con_a");
    let server = MockServer::builder().seed_contact(ada).start_blocking();
    let malformed = r#"{"data": [{"id": "con_a"}], "next": ""}"#;
    let change = "contacts change-address ada@example.com ada@example.net";
    for (arguments, code, note) in [
        ("contacts list", 3, "left out: "),
        ("export - --columns email", 3, "left out: "),
        (change, 2, "ada@example.com would be changed to "),
        (
            "contacts subscribe ada@example.com",
            2,
            "topics that would arrive then: ",
        ),
    ] {
        server.clear_faults();
        if code == 3 {
            let page = Fault::wrong_body(malformed).path("/contacts");
            server.fault(page.times(1));
        }
        let arguments: Vec<_> = arguments.split(' ').chain(["--json"]).collect();
        let ended = end(&mut audience_at(&server, &arguments));

        assert_eq!(ended.code, Some(code), "{ended:?}");
        let lines = ended.stderr.lines().map(serde_json::from_str);
        let lines: Vec<serde_json::Value> = lines.map(Result::unwrap).collect();
        let first = lines[0]["note"].as_str().unwrap();
        assert!(first.starts_with(note), "{ended:?}");
        let message = lines[lines.len() - 1]["message"].as_str();
        assert_eq!(message.is_some(), code == 2, "{ended:?}");
    }
}

#[test]
fn what_does_not_exist_is_exit_status_4_in_every_command() {
    let folder = Folder::new("exists");
    let server = server();
    for arguments in [
        &["show", "nobody@example.com"][..],
        &["update", "nobody@example.com", "--first-name", "N"],
        &[
            "change-address",
            "nobody@example.com",
            "no@example.com",
            "--yes",
        ],
        &["set-topics", "nobody@example.com", "news=false"],
        &["set-topics", "ada@example.com", "nwes=false"],
        &["subscribe", "nobody@example.com", "--yes"],
        &["subscribe", "ada@example.com", "--topic", "nwes", "--yes"],
        &["erase", "nobody@example.com", "--yes"],
        &["unsubscribe", "nobody@example.com"],
        &[
            "unsubscribe",
            "no@example.com",
            "nobody@example.com",
            "--yes",
        ],
        &["unsubscribe", "ada@example.com", "--topic", "nwes"],
        &["list", "--segment", "seg_nobody"],
        &["count", "--segment", "seg_nobody"],
    ] {
        let ended = end(audience_at(&server, &["contacts"]).args(arguments));
        assert_eq!(ended.code, Some(4), "{arguments:?}: {ended:?}");
    }
    let file = folder.path("all.csv");
    let export = end(&mut audience_at(
        &server,
        &["export", &file, "--segment", "seg_nobody"],
    ));
    assert_eq!(export.code, Some(4), "{export:?}");
    let help = end(&mut audience_at(&server, &["export", "--help"]));
    assert!(help.stdout.contains("4 if there is no such segment"));

    let mixed = folder.file("mixed.txt", ".\nnobody@example.com\n");
    for (arguments, code) in [
        (&["unsubscribe", "ada@example.com", "--topic", ""][..], 2),
        (&["unsubscribe", ""], 2),
        (&["subscribe", "ada@example.com", "--yes", "--topic", ""], 2),
        (&["show", ""], 2),
        (&["list", "--segment", ""], 2),
        (&["set-topics", "ada@example.com", "=false"], 2),
        (&["show", ".."], 2),
        (&["unsubscribe", ".", "nobody@example.com", "--yes"], 2),
        (&["unsubscribe", "--file", &mixed, "--yes"], 1),
    ] {
        let ended = end(audience_at(&server, &["contacts"]).args(arguments));
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
    }
    assert!(!server.contact("ada@example.com").unwrap().unsubscribed);
}

#[test]
fn a_404_of_a_gateway_does_not_say_that_there_is_no_such_contact() {
    let server = server();
    server.fault(Fault::status(404).body(r#"{"message": "no Route matched with those values"}"#));

    for arguments in RETRIEVING {
        let ended = end(audience_at(&server, &["contacts"]).args(arguments));

        assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
        let said = "the response does not come from the service";
        assert!(ended.stderr.contains(said), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_404_for_a_contact_that_is_listed_is_exit_status_75() {
    let server = server();
    server.fault(Fault::status(404).body("{}").path("/contacts/*"));

    for arguments in RETRIEVING {
        let ended = end(audience_at(&server, &["contacts"]).args(arguments));

        assert_eq!(ended.code, Some(75), "{arguments:?}: {ended:?}");
        let said = "the response does not come from the service";
        assert!(ended.stderr.contains(said), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn an_opt_in_needs_yes_if_there_is_no_terminal_and_an_opt_out_does_not() {
    let server = server();
    let contacts = |arguments: &[&str]| end(audience_at(&server, &["contacts"]).args(arguments));
    assert_eq!(contacts(&["unsubscribe", "ada@example.com"]).code, Some(0));
    server.clear_requests();

    for arguments in [
        &["subscribe", "ada@example.com"][..],
        &["set-topics", "ada@example.com", "news=false", "offers=true"],
    ] {
        let refused = contacts(arguments);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        let question = "if they asked for it, pass --yes";
        assert!(refused.stderr.contains(question), "{refused:?}");
    }
    let refused = contacts(&["subscribe", "ada@example.com"]);
    let said = "topics that would arrive then: news\n";
    assert!(refused.stderr.contains(said), "{refused:?}");
    assert!(!is_changed(&server));
    server.clear_requests();
    let dry = contacts(&["subscribe", "ada@example.com", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(server.requests().is_empty());

    let opt_out = contacts(&["set-topics", "ada@example.com", "news=false"]);
    assert_eq!(opt_out.code, Some(0), "{opt_out:?}");

    let topic = contacts(&["subscribe", "ada@example.com", "--yes", "--topic", "offers"]);
    assert!(
        topic
            .stdout
            .contains("ada@example.com was subscribed to offers")
            && topic.stdout.contains("the opt-out from everything stays"),
        "{topic:?}"
    );
    let all = contacts(&["subscribe", "ada@example.com", "--yes"]);
    assert_eq!(
        all.stdout, "ada@example.com was subscribed\ntopics that arrive now: offers\n",
        "{all:?}"
    );
    contacts(&["set-topics", "ada@example.com", "offers=false"]);
    let none = contacts(&["subscribe", "ada@example.com", "--yes"]);
    let said = "topics that arrive now: none, because the contact is opted out of each\n";
    assert!(none.stdout.ends_with(said), "{none:?}");
    contacts(&["set-topics", "ada@example.com", "offers=true", "--yes"]);
    let ada = server.contact("ada@example.com").unwrap();
    assert!(!ada.unsubscribed && ada.answers["offers"] && !ada.answers["news"]);
}

#[test]
fn an_opt_in_after_a_spam_report_is_exit_status_1_and_the_reason_is_said() {
    let server = server();
    server.report_spam("ada@example.com");

    let locked = end(&mut audience_at(
        &server,
        &["contacts", "subscribe", "ada@example.com", "--yes"],
    ));

    assert_eq!(locked.code, Some(1), "{locked:?}");
    let reason =
        "the contact reported mail as spam, so the service sends it no mail and accepts no opt-in";
    assert!(locked.stderr.contains(reason), "{locked:?}");
}

#[test]
fn an_opt_in_after_which_the_contact_is_still_opted_out_is_exit_status_1() {
    let server = server();
    let ada = r#"{"id": "con_1", "email": "ada@example.com", "unsubscribed": true, "topics": {},
        "unsubscribe_reason": "manual", "created_at": 1}"#;
    server.fault(Fault::wrong_body(ada).path("*/subscribe"));

    for flags in [&[][..], &["--json"]] {
        let subscribe = ["contacts", "subscribe", "ada@example.com", "--yes"];
        let ended = end(audience_at(&server, &subscribe).args(flags));

        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{ended:?}");
        let said = "the contact is still opted out of everything";
        assert!(ended.stderr.contains(said), "{ended:?}");
    }
}

#[test]
fn a_503_with_the_code_of_a_missing_contact_is_not_exit_status_4() {
    let server = server();
    let down = Fault::status(503).body(r#"{"code": "not_found"}"#);
    server.fault(down.method("POST"));

    let down = end(&mut audience_at(
        &server,
        &["contacts", "subscribe", "ada@example.com", "--yes"],
    ));

    // Not 75: a program must not repeat an opt-in.
    assert_eq!(down.code, Some(1), "{down:?}");
    let said = "the service is not available (503 not_found)";
    assert!(down.stderr.contains(said), "{down:?}");
}

#[test]
fn an_opt_in_without_a_response_is_not_advised_to_be_repeated() {
    let server = server();
    server.fault(Fault::close_after());

    let lost = end(&mut audience_at(
        &server,
        &["contacts", "subscribe", "ada@example.com", "--yes"],
    ));

    assert_eq!(lost.code, Some(1), "{lost:?}");
    assert_eq!(server.requests().len(), 1);
    assert!(lost.stderr.contains("ask the person again"), "{lost:?}");
    assert!(!lost.stderr.contains("try again"), "{lost:?}");
}

#[test]
fn a_form_with_two_answers_for_a_topic_is_refused_in_a_dry_run_too() {
    let server = server();
    let form = ["set-topics", "ada@example.com", "news=true", "news=false"];

    for flag in ["--dry-run", "--yes"] {
        let ended = end(audience_at(&server, &["contacts"]).args(form).arg(flag));

        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
        let said = "two different answers for the same topic";
        assert!(ended.stderr.contains(said), "{ended:?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn an_opt_in_that_was_not_recorded_does_not_tell_a_script_to_repeat_it() {
    let server = server();
    server.fault(Fault::status(429));

    for arguments in [
        vec!["contacts", "subscribe", "ada@example.com", "--yes"],
        vec![
            "contacts",
            "set-topics",
            "ada@example.com",
            "news=true",
            "--yes",
        ],
    ] {
        let refused = end(&mut audience_at(&server, &arguments));

        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("ask the person again"));
    }
}

#[test]
fn a_form_whose_opt_in_is_recorded_is_not_advised_to_be_repeated() {
    let server = server();
    server.fault(Fault::status(429).path("*/subscribe").after(1));
    let form = ["news=true", "offers=true", "--yes"];

    let ended =
        end(audience_at(&server, &["contacts", "set-topics", "ada@example.com"]).args(form));

    assert_eq!(ended.code, Some(1), "{ended:?}");
    let recorded = "; recorded before: news\n";
    assert!(ended.stderr.ends_with(recorded), "{ended:?}");
    assert!(ended.stderr.contains("ask the person again"), "{ended:?}");
    assert!(!ended.stderr.contains("try again"), "{ended:?}");
}

#[test]
fn columns_are_below_each_other_whatever_the_script_of_a_name() {
    let server = server();
    server.seed_contact(
        SeedContact::new("li@example.com")
            .first_name("用户")
            .property("用户", "a"),
    );
    let list = end(&mut audience_at(&server, &["contacts", "list"]));
    let show = end(&mut audience_at(
        &server,
        &["contacts", "show", "li@example.com"],
    ));

    assert!(
        list.stdout.contains("  用户        false "),
        "{}",
        list.stdout
    );
    assert!(
        list.stdout.contains("  Ada         false "),
        "{}",
        list.stdout
    );
    assert!(
        show.stdout.contains("\nproperty:用户  a\n"),
        "{}",
        show.stdout
    );
    assert!(
        show.stdout.contains("\nemail          li@"),
        "{}",
        show.stdout
    );
}

#[test]
fn an_outage_in_the_middle_stops_the_opt_outs_and_each_that_was_made_has_its_line() {
    let folder = Folder::new("outage");
    let mut builder = MockServer::builder();
    let mut list = String::new();
    for n in 0..100 {
        builder = builder.seed_contact(format!("{n}@example.com").as_str());
        list += &format!("{n}@example.com\n");
    }
    let server = builder.start_blocking();
    let file = folder.file("addresses.txt", list);
    server.fault(Fault::status(501).path("*/unsubscribe").after(20));

    let ended = end(&mut audience_at(
        &server,
        &["contacts", "unsubscribe", "--yes", "--file", &file],
    ));

    assert_eq!(ended.code, Some(1), "{ended:?}");
    let is_unsubscribed = |n: &i32| {
        server
            .contact(format!("{n}@example.com"))
            .unwrap()
            .unsubscribed
    };
    let made = (0..100).filter(is_unsubscribed).count();
    assert_eq!(ended.stdout.lines().count(), made);
    assert!((20..100).contains(&made), "{made}");
    let requests = server.requests().into_iter();
    let tried = requests.filter(|request| request.method == "POST").count();
    let left = format!("; {} more addresses were not unsubscribed", 100 - tried);
    assert!(ended.stderr.contains(&left), "{tried}: {}", ended.stderr);
}

#[cfg(target_os = "linux")]
#[test]
fn if_a_line_cannot_be_printed_the_opt_outs_in_flight_end_and_it_says_how_many_are_left() {
    let folder = Folder::new("full");
    let mut builder = MockServer::builder();
    let mut list = String::new();
    for n in 0..20 {
        builder = builder.seed_contact(format!("{n}@example.com").as_str());
        list += &format!("{n}@example.com\n");
    }
    let server = builder.start_blocking();
    let file = folder.file("addresses.txt", list);
    let full = std::fs::File::options().write(true).open("/dev/full");

    let arguments = ["contacts", "unsubscribe", "--yes", "--file", &file];
    let child = audience_at(&server, &arguments)
        .stdout(full.unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = ended(child.wait_with_output().unwrap());

    assert_eq!(ended.code, Some(1), "{ended:?}");
    let contacts = server.contacts().into_iter();
    let made = contacts.filter(|contact| contact.unsubscribed).count();
    let left = format!("; {} more addresses were not unsubscribed\n", 20 - made);
    assert!(ended.stderr.ends_with(&left), "{made}: {ended:?}");
    let said = "audience: could not print the result: ";
    assert!(ended.stderr.starts_with(said), "{ended:?}");
    assert!((1..20).contains(&made), "{made}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_finishes_the_opt_outs_in_flight_and_says_how_many_are_left() {
    let folder = Folder::new("stopped");
    let mut builder = MockServer::builder();
    let mut list = String::new();
    for n in 0..5_000 {
        builder = builder.seed_contact(format!("{n}@example.com").as_str());
        list += &format!("{n}@example.com\n");
    }
    let server = builder.start_blocking();
    server.fault(Fault::delay(std::time::Duration::from_millis(50)));
    let file = folder.file("addresses.txt", list);
    let arguments = ["contacts", "unsubscribe", "--yes", "--file", &file];
    let child = audience_at(&server, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The signal arrives after the first request and before the last one.
    while server.requests().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }

    let id = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status();
    assert!(sent.unwrap().success());
    let ended = ended(child.wait_with_output().unwrap());

    assert_eq!(ended.code, Some(143), "{ended:?}");
    let requests = server.requests().into_iter();
    let made = requests.filter(|request| request.method == "POST").count();
    assert_eq!(ended.stdout.lines().count(), made);
    let left = format!("stopped: {} addresses were not unsubscribed", 5_000 - made);
    assert!(ended.stderr.contains(&left), "{made}: {}", ended.stderr);
}

#[cfg(unix)]
#[test]
fn ctrl_c_at_a_question_is_exit_status_130_and_nothing_is_changed() {
    if !support::has_script() {
        return;
    }
    let server = server();
    let two = "contacts unsubscribe ada@example.com bob@example.com";

    let ended = terminal::ask(&server, two).answer("\u{3}");

    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(!is_changed(&server));
}

#[cfg(unix)]
#[test]
fn on_a_terminal_it_asks_and_only_yes_continues() {
    if !support::has_script() {
        return;
    }
    let server = server();
    let two = "unsubscribe ada@example.com bob@example.com";
    let change = "change-address ada@example.com ada@example.net";
    let opt_in = "subscribe ada@example.com --topic offers";
    for (arguments, answer, question) in [
        (change, "n\n", "change 2 contacts at http://127.0.0.1"),
        (change, "y\n", "change 2 contacts at http://127.0.0.1"),
        (two, "n\n", "change 2 contacts at http://127.0.0.1"),
        (two, "\n", "change 2 contacts at http://127.0.0.1"),
        (two, "yes\n", "change 2 contacts at http://127.0.0.1"),
        (opt_in, "\n", ": did they ask for it? [y/N]"),
        (opt_in, "y\n", ": did they ask for it? [y/N]"),
        (
            "set-topics ada@example.com news=true",
            "y\n",
            ": did they ask for it? [y/N]",
        ),
    ] {
        let is_yes = answer.starts_with('y');
        server.clear_requests();
        let ended = terminal::ask(&server, &format!("contacts {arguments}")).answer(answer);

        assert!(ended.stdout.contains(question), "{ended:?}");
        assert_eq!(is_changed(&server), is_yes, "{answer:?}: {ended:?}");
        assert_eq!(ended.code, Some(i32::from(!is_yes)));
    }
}
