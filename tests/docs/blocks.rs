//! The functions that the guides print, called as a reader would. `build.rs` writes their blocks to files.

/// Includes the block of a guide that defines a function.
macro_rules! block {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

mod first_steps {
    block!("first-steps.advice");

    #[tokio::test]
    async fn the_advice_names_the_documented_error() {
        let server = audience::mock::MockServer::start().await;
        let contacts = server.client().contacts();

        let error = contacts.retrieve("nobody@example.com").await.unwrap_err();

        assert_eq!(advice(&error), "no such contact, topic or segment");
    }
}

mod errors_in_a_handler {
    block!("errors.unsubscribe");

    #[tokio::test]
    async fn a_visitor_gets_the_status_that_fits() {
        let server = audience::mock::MockServer::builder()
            .seed_contact("ada@example.com")
            .start()
            .await;
        // That of the guide gives up after 8 s, in which a slow machine may have no response.
        let contacts = server.client().contacts();
        let impatient = client(server.url(), server.full_key()).unwrap().contacts();

        let done = unsubscribe(&contacts, "ada@example.com").await;
        let missing = unsubscribe(&contacts, "nobody@example.com").await;
        server.fault(audience::mock::Fault::status(503).retry_after(600));
        let down = unsubscribe(&impatient, "ada@example.com").await;

        assert_eq!([done, missing, down], [200, 404, 503]);
    }
}

mod errors_in_a_job {
    block!("errors.create_all");

    #[tokio::test]
    async fn a_job_stops_when_the_plan_is_full() {
        let server = audience::mock::MockServer::builder()
            .contact_ceiling(1)
            .start()
            .await;
        let contacts = patient_client(server.url(), server.full_key())
            .unwrap()
            .contacts();
        let rows = [
            NewContact::new("ada@example.com"),
            NewContact::new("bob@example.com"),
        ];

        let failed = create_all(&contacts, &rows).await.unwrap();

        assert_eq!((failed, server.requests().len()), (1, 1));
    }
}

mod the_end_of_a_tool {
    block!("support.end");

    #[tokio::test]
    async fn a_tool_has_the_statuses_of_the_program_for_any_error() {
        use audience::mock::{Fault, MockServer};

        let server = MockServer::builder().seed_contact("ada@example.com");
        let server = server.start().await;
        let client = server.client_builder().retry(audience::RetryPolicy::none());
        let contacts = client.build().unwrap().contacts();

        let missing = contacts.retrieve("nobody@example.com").await.unwrap_err();
        let unnamed = contacts.retrieve("").await.unwrap_err();
        let rule = audience::rule::Rule::all([]);
        let no_rule = contacts.list().rule(rule).await.unwrap_err();
        server.fault(Fault::status(503));
        let unavailable = contacts.retrieve("ada@example.com").await.unwrap_err();

        assert_eq!(end(Ok(())), ExitCode::SUCCESS);
        assert_eq!(end(Err(missing.into())), ExitCode::from(4));
        assert_eq!(end(Err(unnamed.into())), ExitCode::from(2));
        assert_eq!(end(Err(no_rule.into())), ExitCode::from(1));
        assert_eq!(end(Err(unavailable.into())), ExitCode::from(75));
        assert_eq!(end(Err("disk".into())), ExitCode::from(1));
    }
}

mod mapped_columns {
    block!("moving-a-list.read_list");

    #[test]
    fn a_mapped_column_becomes_an_opt_out_or_makes_the_row_unreadable() {
        let text = "Email Address,Given name,Status,Weekly,Member rating\n\
            ada@example.com,Ada,subscribed,yes,5\ngrace@example.com,Grace,unsubscribed,,3\nalan@example.com,Alan,cleaned,,1\n";

        let name = format!("audience-guide-columns-{}.csv", std::process::id());
        let list = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&list, text).unwrap();

        let rows: Vec<_> = read_list(&list).unwrap().collect();

        std::fs::remove_file(&list).unwrap();
        assert_eq!((rows[0].opt_outs().len(), rows[1].opt_outs().len()), (0, 1));
        assert!(rows[2].unreadable_reason().is_some());
    }
}

mod an_import {
    block!("moving-a-list.import_list");

    #[tokio::test]
    async fn the_last_row_of_an_address_decides_and_an_invalid_address_is_rejected() {
        let name = format!("audience-guide-import-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let list = "email,opted out\nada@example.com,no\nADA@example.com,yes\nnobody,no\n";
        std::fs::write(folder.join("list.csv"), list).unwrap();
        let server = audience::mock::MockServer::start().await;

        let report = import_list(&server.client().contacts(), &folder.join("list.csv"))
            .await
            .unwrap();
        let rejects = std::fs::read_to_string(folder.join("list.rejects.csv")).unwrap();
        let fixed = rejects.replace("nobody", "cem@example.com");
        std::fs::write(folder.join("list-2.csv"), fixed).unwrap();
        let second = import_list(&server.client().contacts(), &folder.join("list-2.csv"))
            .await
            .unwrap();

        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(second.created(), 1);
        assert_eq!(
            (report.created(), report.updated(), report.refused()),
            (1, 1, 1)
        );
        assert!(server.contact("ada@example.com").unwrap().unsubscribed);
    }
}

/// Returns the table of the guide to keeping a list in step.
fn schema() -> &'static str {
    let guide = include_str!("../../docs/keeping-in-step.md");
    let schema = guide.split("```sql").nth(1).unwrap();
    schema.split("```").next().unwrap()
}

mod keeping_in_step {
    #![expect(
        dead_code,
        reason = "the main function of the guide's program is not called"
    )]

    block!("keeping-in-step.sync_users");

    /// Returns a new folder, the path of a database in it, and the database with the table of the guide.
    fn users(test: &str) -> (std::path::PathBuf, std::path::PathBuf, Connection) {
        let name = format!("audience-guide-{test}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("users.sqlite");
        let database = Connection::open(&path).unwrap();
        database.execute_batch(super::schema()).unwrap();
        (folder, path, database)
    }

    #[tokio::test]
    async fn a_newsletter_cell_that_cannot_be_read_holds_back_no_opt_out() {
        let (folder, path, database) = users("bad-cell");
        let insert = "INSERT INTO users (id, email, address_key, plan, newsletter) VALUES
            (1, 'ada@example.com', 'ada@example.com', 'pro', 'maybe'),
            (2, 'bob@example.com', 'bob@example.com', 'free', 0)";
        database.execute_batch(insert).unwrap();
        let server = audience::mock::MockServer::start().await;

        let report = sync_users(&server.client().contacts(), &path).await;

        drop(database);
        std::fs::remove_dir_all(&folder).unwrap();
        drop(report.unwrap());
        assert!(server.contact("ada@example.com").is_none());
        assert!(server.contact("bob@example.com").unwrap().unsubscribed);
    }

    #[tokio::test]
    async fn the_second_night_sends_what_has_changed() {
        let (folder, path, database) = users("sync");
        let insert = "INSERT INTO users (id, email, address_key, first_name, plan, newsletter, deleted_at) VALUES
            (1, 'ada@example.com', 'ada@example.com', 'Ada', 'pro', 1, NULL),
            (2, 'bob@example.com', 'bob@example.com', NULL, 'free', 0, NULL),
            (3, 'cem@example.com', 'cem@example.com', NULL, 'free', 1, NULL)";
        database.execute_batch(insert).unwrap();
        let server = audience::mock::MockServer::start().await;
        let contacts = server.client().contacts();

        let first = sync_users(&contacts, &path).await.unwrap();
        let update =
            "UPDATE users SET newsletter = 0 WHERE id = 1; DELETE FROM users WHERE id = 3;";
        database.execute_batch(update).unwrap();
        let second = sync_users(&contacts, &path).await.unwrap();

        drop(database);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(first.is_complete() && second.is_complete());
        assert_eq!(first.changes().created(), 3);
        assert_eq!((second.opted_out(), second.unchanged()), (2, 1));
        assert!(server.contacts().iter().all(|contact| contact.unsubscribed));
    }
}

mod opt_outs_for_the_table {
    block!("keeping-in-step.write_opt_outs");

    #[tokio::test]
    async fn an_opt_out_at_the_service_is_written_unless_the_row_has_changed_since() {
        use audience::import::ImportRow;

        let name = format!("audience-guide-opt-outs-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("users.sqlite");
        let server = audience::mock::MockServer::start().await;
        let contacts = server.client().contacts();
        let addresses = ["ada@example.com", "bob@example.com"];
        let database = Connection::open(&path).unwrap();
        database.execute_batch(super::schema()).unwrap();
        // The second row changes after the run has begun.
        let insert =
            "INSERT INTO users (id, email, address_key, plan, newsletter, updated_at) VALUES
            (1, 'ada@example.com', 'ada@example.com', 'pro', 1, '2020-11-23 03:00:00'),
            (2, 'bob@example.com', 'bob@example.com', 'pro', 1, '9999-11-23 03:00:00')";
        database.execute_batch(insert).unwrap();
        let read_users = |_: &Path| {
            let mut rows = vec![SyncRow::new("", ImportRow::unreadable("half a line"))];
            rows.extend([1, 2].map(|id| SyncRow::new(id, addresses[id - 1])));
            Ok(rows)
        };
        drop(sync_and_write(&contacts, &path, read_users).await);
        for address in addresses {
            contacts.unsubscribe(address).await.unwrap();
        }

        let unfinished = sync_and_write(&contacts, &path, read_users).await;

        let subscribed = "SELECT group_concat(id) FROM users WHERE newsletter = 1";
        let subscribed: String = database
            .query_row(subscribed, [], |row| row.get(0))
            .unwrap();
        drop(database);
        std::fs::remove_dir_all(&folder).unwrap();
        let error = unfinished.unwrap_err().downcast::<SyncError>().unwrap();
        assert!(error.report().missing_ignored());
        assert_eq!(subscribed, "2");
    }

    #[tokio::test]
    async fn a_night_that_finds_more_opt_outs_than_it_may_write_ends_with_an_error() {
        let name = format!("audience-guide-many-opt-outs-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("users.sqlite");
        let server = audience::mock::MockServer::start().await;
        let contacts = server.client().contacts();
        let database = Connection::open(&path).unwrap();
        database.execute_batch(super::schema()).unwrap();
        let read_users = |_: &Path| {
            let rows = (1..=11).map(|id| SyncRow::new(id, format!("{id}@example.com")));
            Ok(rows.collect::<Vec<_>>())
        };
        drop(sync_and_write(&contacts, &path, read_users).await.unwrap());
        for id in 1..=11 {
            let opt_out = contacts.unsubscribe(format!("{id}@example.com"));
            opt_out.await.unwrap();
        }

        let night = sync_and_write(&contacts, &path, read_users).await;

        drop(database);
        std::fs::remove_dir_all(&folder).unwrap();
        let error = night.unwrap_err();
        assert_eq!(audience::exit_status(&*error), 1);
        assert!(error.to_string().contains("a person"), "{error}");
    }

    #[tokio::test]
    async fn an_opt_out_from_a_topic_is_written_into_its_column() {
        let name = format!("audience-guide-topics-{}.sync", std::process::id());
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let server = audience::mock::MockServer::builder().topic("weekly", true);
        let server = server.start().await;
        let contacts = server.client().contacts();
        let database = Connection::open_in_memory().unwrap();
        database.execute_batch(super::schema()).unwrap();
        let insert = "ALTER TABLE users ADD COLUMN weekly INTEGER NOT NULL DEFAULT 1;
            INSERT INTO users (id, email, address_key, plan, newsletter, updated_at) VALUES
            (1, ' Ada@X.io', 'ada@x.io', 'pro', 1, '2026-11-23 03:00:00'),
            (2, 'bob@x.io', 'bob@x.io', 'pro', 1, '2026-11-23 03:00:00')";
        database.execute_batch(insert).unwrap();
        let sync = || {
            let rows = [SyncRow::new(1, " Ada@X.io"), SyncRow::new(2, "bob@x.io")];
            let state = SyncState::open(&state).unwrap();
            contacts.sync(rows, state).checks_topics(["weekly"])
        };
        assert_eq!(sync().await.unwrap().changes().created(), 2);
        let opt_out = contacts.unsubscribe("ada@x.io").topic("weekly");
        opt_out.await.unwrap();

        let report = sync().await.unwrap();
        let keys = report.opted_out_of("weekly");
        write_opt_outs(&database, "weekly", keys, "2026-11-23 03:00:01").unwrap();
        let too_many = vec!["2".to_owned(); 11];
        let refused = write_opt_outs(&database, "weekly", &too_many, "2026-11-23 03:00:01");
        assert!(refused.unwrap_err().to_string().contains("a person"));

        std::fs::remove_file(&state).unwrap();
        let rows = "SELECT group_concat(weekly || newsletter) FROM users ORDER BY id";
        let rows: String = database.query_row(rows, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, "01,11");
    }
}

#[cfg(unix)]
mod erasure {
    use audience::mock::Dialect;
    use audience::mock::dialect::ContactDeletion;

    block!("support.erase_deleted");

    #[tokio::test]
    async fn a_user_who_was_deleted_or_has_come_back_since_the_run_is_not_erased() {
        let (status, rows) = erase(ContactDeletion::NoContent, false).await;

        assert_eq!((status, &*rows), (0, "2,3,4"));
    }

    #[tokio::test]
    async fn a_contact_that_the_support_has_to_delete_decides_the_status_before_a_row_that_failed()
    {
        let (failed, rows) = erase(ContactDeletion::NoContent, true).await;
        assert_eq!((failed, &*rows), (75, "0,2,3,4"));

        for fails in [false, true] {
            let (emptied, _) = erase(ContactDeletion::NotDescribed, fails).await;
            assert_eq!(emptied, 1);
        }
    }

    /// Erases after a run. `fails` adds a row that fails for the moment. Returns the exit status, and the rows that are
    /// left.
    async fn erase(contact_deletion: ContactDeletion, fails: bool) -> (u8, String) {
        use audience::import::SyncRow;
        use audience::mock::{Fault, MockServer};

        let name = format!(
            "audience-guide-erasure-{contact_deletion:?}-{fails}-{}.sync",
            std::process::id()
        );
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let database = Connection::open_in_memory().unwrap();
        database.execute_batch(super::schema()).unwrap();
        let insert = "INSERT INTO users (id, email, address_key, plan, newsletter, deleted_at, updated_at) VALUES
            (1, 'ada@x.io', 'ada@x.io', 'pro', 1, '2026-11-22 12:00:00', '2026-11-22 12:00:00'),
            (2, 'bob@x.io', 'bob@x.io', 'pro', 1, '2026-11-23 03:00:02', '2026-11-23 03:00:02'),
            (3, 'cem@x.io', 'cem@x.io', 'pro', 1, '2026-11-22 12:00:00', '2026-11-22 12:00:00'),
            (4, 'cem@x.io', 'cem@x.io', 'pro', 1, NULL, '2026-11-23 03:00:02')";
        database.execute_batch(insert).unwrap();
        let server = MockServer::builder().dialect(Dialect {
            contact_deletion,
            ..Dialect::default()
        });
        let server = server.start().await;
        let contacts = support::mock_builder(&server).build().unwrap().contacts();
        for address in ["ada@x.io", "cem@x.io"] {
            contacts.create(address).await.unwrap();
        }
        let rows = [
            SyncRow::new(1, "ada@x.io").deleted(true),
            SyncRow::new(2, "bob@x.io"),
            SyncRow::new(3, "cem@x.io").deleted(true),
        ];
        let sync = contacts.sync(rows, SyncState::open(&state).unwrap());
        drop(sync.await.unwrap().finished().unwrap());
        if fails {
            let insert = "INSERT INTO users (id, email, address_key, plan, newsletter, deleted_at, updated_at) VALUES
                (0, 'eve@x.io', 'eve@x.io', 'pro', 1, '2026-11-22 12:00:00', '2026-11-22 12:00:00')";
            database.execute_batch(insert).unwrap();
            server.fault(Fault::status(503).path("*eve*"));
        }

        let erased = erase_deleted(&contacts, &state, &database, "2026-11-23 03:00:01").await;

        let text = std::fs::read_to_string(&state).unwrap();
        std::fs::remove_file(&state).unwrap();
        assert!(!text.contains("ada@x.io") && text.contains("cem@x.io"));
        let rows = "SELECT group_concat(id) FROM (SELECT id FROM users ORDER BY id)";
        let rows = database.query_row(rows, [], |row| row.get(0)).unwrap();
        let status = erased.map_or_else(|error| audience::exit_status(&*error), |()| 0);
        (status, rows)
    }
}

mod opt_ins_for_the_table {
    block!("keeping-in-step.save_opt_in");

    #[test]
    fn an_opt_in_is_written_and_an_older_opt_out_does_not_replace_it() {
        use audience::Timestamp;
        use audience::unsubscribe::ConsentPage;

        let database = Connection::open_in_memory().unwrap();
        database.execute_batch(super::schema()).unwrap();
        let insert = "ALTER TABLE users ADD COLUMN weekly INTEGER NOT NULL DEFAULT 0;
            ALTER TABLE users ADD COLUMN weekly_at TEXT;
            INSERT INTO users (id, email, address_key, plan, newsletter, updated_at) VALUES
            (1, 'Äda@Example.com', 'äda@example.com', 'pro', 0, '2026-11-23 03:00:00'),
            (2, 'bob@example.com', 'bob@example.com', 'pro', 0, '2026-11-23 03:00:00')";
        database.execute_batch(insert).unwrap();
        let rows = || -> String {
            let rows = "SELECT group_concat(newsletter || weekly) FROM users ORDER BY id";
            database.query_row(rows, [], |row| row.get(0)).unwrap()
        };
        let now = Timestamp::now().as_unix();
        let opt_out = |topic, made_at| {
            let opt_out =
                OptOutRecord::new("Äda@example.com", topic, Timestamp::from_unix(made_at));
            save_opt_out(&database, &opt_out).unwrap()
        };

        let consent = Consent::new("Äda@example.com", ["weekly"], ConsentPage::Confirmation);
        for _ in 0..2 {
            assert_eq!(save_opt_in(&database, &consent).unwrap(), 1);
            assert_eq!(rows(), "11,00");
        }
        assert_eq!(opt_out(Some("weekly"), now - 60), 0);
        assert_eq!(opt_out(Some("offers"), now + 3_600), 0);
        assert_eq!(opt_out(Some("weekly"), now + 3_600), 1);
        assert_eq!(rows(), "10,00");
        assert_eq!(opt_out(None, now + 3_600), 1);
        assert_eq!(rows(), "00,00");

        // One save of the page checks a box, and empties another one.
        let weekly = "UPDATE users SET weekly = 1, weekly_at = '2020-01-01 00:00:00' WHERE id = 1";
        database.execute(weekly, []).unwrap();
        let other = Consent::new("Äda@example.com", ["offers"], ConsentPage::Preferences);
        assert_eq!(save_opt_in(&database, &other).unwrap(), 1);
        assert_eq!(opt_out(None, now - 60), 0);
        assert_eq!(opt_out(Some("weekly"), now - 60), 1);
        assert_eq!(rows(), "10,00");

        // A deleted user needs a new row, so this has to be noticed.
        let delete = "UPDATE users SET deleted_at = CURRENT_TIMESTAMP WHERE id = 1";
        database.execute(delete, []).unwrap();
        assert_eq!(save_opt_in(&database, &consent).unwrap(), 0);
    }

    #[test]
    fn an_opt_out_in_the_second_of_the_opt_in_is_written() {
        use audience::Timestamp;
        use audience::unsubscribe::ConsentPage;

        let database = Connection::open_in_memory().unwrap();
        database.execute_batch(super::schema()).unwrap();
        let insert =
            "INSERT INTO users (id, email, address_key, plan, newsletter, updated_at) VALUES
            (1, 'ada@example.com', 'ada@example.com', 'pro', 0, '2026-11-23 03:00:00')";
        database.execute_batch(insert).unwrap();
        let consent = Consent::new("ada@example.com", ["offers"], ConsentPage::Confirmation);
        assert_eq!(save_opt_in(&database, &consent).unwrap(), 1);
        let second = "SELECT CAST(strftime('%s', updated_at) AS INTEGER) FROM users";
        let second: i64 = database.query_row(second, [], |row| row.get(0)).unwrap();

        let opt_out = OptOutRecord::new("ada@example.com", None, Timestamp::from_unix(second));

        assert_eq!(save_opt_out(&database, &opt_out).unwrap(), 1);
    }
}

mod an_issue_for_one_reader {
    block!("newsletter.send_again");

    #[tokio::test]
    async fn a_reader_whose_mail_did_not_arrive_gets_it_under_another_name() {
        let secret = "0123456789abcdef0123456789abcdef";
        let links =
            audience::unsubscribe::UnsubscribeLinks::new([secret], "https://shop.example.com/");
        let server = audience::mock::MockServer::builder().topic("news", true);
        let server = server.seed_contact("ada@example.com").start().await;
        let (contacts, store) = (
            server.client().contacts(),
            audience::inbox::MemoryStore::new(),
        );
        let service = UnsubscribeService::builder(links.unwrap(), contacts, store).build();
        let send = || {
            service.send_issue("2026-11", "news", |_, _| {
                Email::new().from("us@example.com").subject("Hello")
            })
        };
        server.fault(audience::mock::Fault::status(503).path("/emails").times(1));
        let stopped = send().await;
        let repeated = send().await.unwrap();
        assert!(stopped.is_err() && repeated.maybe_not_sent() == ["ada@example.com"]);

        let sent = send_again(&service, "ada@example.com", "Hello!")
            .await
            .unwrap();
        let twice = send_again(&service, "ada@example.com", "Hello!")
            .await
            .unwrap();

        assert!(matches!(sent, IssueMail::Sent(_)), "{sent:?}");
        assert_eq!(twice, IssueMail::SentBefore);
        let mails = server.sent_mail();
        assert_eq!(mails.len(), 1);
        assert!(mails[0].body["headers"]["List-Unsubscribe"].is_string());
    }
}

mod a_count_of_subscribers {
    block!("newsletter.count_subscribers");

    #[tokio::test]
    async fn each_topic_has_its_subscribers_and_the_others_and_malformed_contacts_count_apart() {
        let server = audience::mock::MockServer::builder()
            .topic("news", true)
            .topic("offers", false)
            .seed_contact("ada@example.com")
            .seed_contact("bob@example.com")
            .start()
            .await;
        let malformed = audience::mock::Fault::wrong_body(r#"{"id": "c_1"}"#);
        server.fault(malformed.path("/contacts/*").times(1));

        let client = server.client_builder().retry(audience::RetryPolicy::none());
        let contacts = client.build().unwrap().contacts();
        let (counts, malformed) = count_subscribers(&contacts).await.unwrap();

        let expected = [("news".to_owned(), [1, 0]), ("offers".to_owned(), [0, 1])];
        assert_eq!((counts, malformed), (BTreeMap::from(expected), 1));
    }
}

mod a_mail_with_unsubscribe_headers {
    block!("unsubscribe.newsletter");

    #[test]
    fn the_mail_has_the_pair_of_headers_and_the_link() {
        let secret = "0123456789abcdef0123456789abcdef";
        let links = UnsubscribeLinks::new([secret], "https://shop.example.com/").unwrap();

        let mail = serde_json::to_value(newsletter(&links, "ada@example.com")).unwrap();

        let header = |name: &str| mail["headers"][name].as_str().unwrap();
        assert!(header("List-Unsubscribe").starts_with("<https://shop.example.com/"));
        assert_eq!(
            header("List-Unsubscribe-Post"),
            "List-Unsubscribe=One-Click"
        );
        let link = links.link("ada@example.com");
        assert!(mail["text"].as_str().unwrap().contains(&link));
    }
}

mod a_preference_page_in_actix {
    block!("unsubscribe.unsubscribe");

    #[tokio::test]
    async fn the_page_is_shown_and_a_click_is_stored() {
        let secret = "0123456789abcdef0123456789abcdef";
        let links =
            audience::unsubscribe::UnsubscribeLinks::new([secret], "http://localhost/unsubscribe")
                .unwrap();
        let server = audience::mock::MockServer::start().await;
        let contacts = server.client().contacts();
        let store = audience::inbox::MemoryStore::new();
        let service = UnsubscribeService::builder(links.clone(), contacts, store).build();
        let app = actix_web::App::new()
            .app_data(web::Data::new(service.clone()))
            .configure(configure);
        let app = actix_web::test::init_service(app).await;
        let path = links
            .link("ada@example.com")
            .replace("http://localhost", "");

        let page = actix_web::test::TestRequest::get().uri(&path).to_request();
        let page = actix_web::test::call_service(&app, page).await;
        let click = actix_web::test::TestRequest::post()
            .uri(&path)
            .insert_header(("content-type", "application/x-www-form-urlencoded"))
            .set_payload("List-Unsubscribe=One-Click")
            .to_request();
        let click = actix_web::test::call_service(&app, click).await;

        assert_eq!(
            (page.status().as_u16(), click.status().as_u16()),
            (200, 200)
        );
        assert!(page.headers().contains_key("content-security-policy"));
        assert_eq!(service.pending().await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_consent_has_the_headers_and_the_peer_and_a_long_body_is_refused() {
        let links = audience::unsubscribe::UnsubscribeLinks::new(
            ["0123456789abcdef0123456789abcdef"],
            "http://localhost/unsubscribe",
        );
        let server = audience::mock::MockServer::builder().topic("news", false);
        let server = server.start().await;
        let consents = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let records = std::sync::Arc::clone(&consents);
        let service = UnsubscribeService::builder(
            links.unwrap(),
            server.client().contacts(),
            audience::inbox::MemoryStore::new(),
        )
        .topic(audience::unsubscribe::OfferedTopic::new("news", "News"))
        .record_consent(move |consent| {
            records.lock().unwrap().push(consent);
            std::future::ready(Ok::<_, std::io::Error>(()))
        })
        .build();
        let mail = |link: &str| {
            audience::emails::Email::new()
                .from("us@example.com")
                .member("text", link)
        };
        let sent = service.send_confirmation("ada@example.com", ["news"], mail);
        sent.await.unwrap();
        let mail = server.sent_mail().pop().unwrap();
        let link = mail.body["text"].as_str().unwrap();
        let path = link.replace("http://localhost", "");
        let app = actix_web::App::new()
            .app_data(web::Data::new(service))
            .configure(configure);
        let app = actix_web::test::init_service(app).await;
        let peer: std::net::SocketAddr = "192.0.2.1:1815".parse().unwrap();
        let post = |body: String| {
            actix_web::test::TestRequest::post()
                .uri(&path)
                .peer_addr(peer)
                .insert_header(("content-type", "application/x-www-form-urlencoded"))
                .insert_header(("x-forwarded-for", "198.51.100.7"))
                .set_payload(body)
                .to_request()
        };

        let long = format!("confirm=yes&more={}", "x".repeat(64 * 1024));
        let long = actix_web::test::call_service(&app, post(long)).await;
        let click = actix_web::test::call_service(&app, post("confirm=yes".to_owned())).await;

        assert_eq!(
            (long.status().as_u16(), click.status().as_u16()),
            (413, 200)
        );
        // actix-web refused it: the service did not get it.
        assert!(!long.headers().contains_key("content-security-policy"));
        let consents = consents.lock().unwrap();
        assert_eq!(consents.len(), 1);
        assert_eq!(consents[0].headers["x-forwarded-for"], "198.51.100.7");
        assert_eq!(consents[0].extensions.get(), Some(&peer));
    }
}

mod a_preference_page_of_your_own {
    block!("unsubscribe.answers");

    /// Displays the form, checks a box of it, and returns what was shown and the answers.
    fn fill_in<'a>(
        contact: &Contact,
        offered: &[&'a str],
        checked: &'a str,
    ) -> (Vec<&'a str>, Vec<(&'a str, bool)>) {
        let shown = shown(contact, offered);
        let hidden: Vec<_> = shown.iter().copied().map(str::to_owned).collect();
        let boxes = hidden.iter().cloned().chain([checked.to_owned()]);
        let answers = answers(offered, &hidden, &boxes.collect::<Vec<_>>());
        (shown, answers)
    }

    #[tokio::test]
    async fn after_an_opt_out_of_everything_the_boxes_are_empty_and_what_is_checked_arrives() {
        const OFFERED: [&str; 2] = ["news", "offers"];
        let secret = ["0123456789abcdef0123456789abcdef"];
        let links = audience::unsubscribe::UnsubscribeLinks::new(secret, "http://localhost/");
        let links = links.unwrap();
        for has_service in [false, true] {
            let server = audience::mock::MockServer::builder().topic("news", true);
            let server = server.topic("offers", false).topic("old", true);
            let server = server.seed_contact("ada@example.com").start().await;
            let contacts = server.client().contacts();
            let before = contacts.retrieve("ada@example.com").await.unwrap();
            assert_eq!(shown(&before, &OFFERED), ["news"]);
            let paused = contacts.unsubscribe("ada@example.com").await.unwrap();

            let (shown, answers) = fill_in(&paused, &OFFERED, "offers");

            assert!(shown.is_empty());
            assert_eq!(answers, [("news", false), ("offers", true)]);
            if has_service {
                let store = audience::inbox::MemoryStore::new();
                let service = audience::unsubscribe::UnsubscribeService::builder(
                    links.clone(),
                    contacts.clone(),
                    store,
                );
                let service = OFFERED.iter().fold(service, |service, topic| {
                    service.topic(audience::unsubscribe::OfferedTopic::new(*topic, *topic))
                });
                let service = service.build();
                let saved = service.set_topics("ada@example.com", answers);
                saved.await.unwrap();
            } else {
                let saved = contacts.confirm_opt_in("ada@example.com", ["offers"]);
                saved.await.unwrap();
            }
            let ada = contacts.retrieve("ada@example.com").await.unwrap();
            assert!(!ada.unsubscribed, "with the service: {has_service}");
            let arriving: Vec<_> = ada.topics.iter().filter(|(_, answer)| **answer).collect();
            assert_eq!(arriving, [(&"offers".to_owned(), &true)]);
        }
    }

    #[tokio::test]
    async fn a_box_that_was_checked_when_the_form_was_displayed_is_no_opt_in() {
        let server = audience::mock::MockServer::builder().topic("news", true);
        let server = server
            .topic("offers", false)
            .seed_contact("ada@example.com");
        let server = server.start().await;
        let contacts = server.client().contacts();
        let ada = contacts.retrieve("ada@example.com").await.unwrap();

        let (shown, answers) = fill_in(&ada, &["news", "offers"], "offers");

        assert_eq!((shown, answers), (vec!["news"], vec![("offers", true)]));
    }
}

mod an_endpoint {
    #![expect(
        dead_code,
        reason = "the main function of the guide's program is not called"
    )]

    block!("receiving-webhooks.app");

    #[tokio::test]
    async fn a_duplicate_is_acknowledged_and_not_handled() {
        let secret = "6Jm0nFq2pXvZk4Tt";
        let inbox = Inbox::builder(MemoryStore::new()).build().unwrap();
        let router = app(Verifier::new(secret).unwrap(), inbox.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let server = audience::mock::MockServer::builder().delivery_timeout(support::PATIENCE);
        let server = server.webhook_endpoint(url, secret).start().await;

        let id = server
            .send_event(serde_json::json!({"type": "email.complained"}))
            .await;
        server.redeliver(&id).await;

        let attempts = server.attempts();
        assert!(
            attempts
                .iter()
                .all(audience::mock::DeliveryAttempt::is_success)
        );
        assert_eq!(
            (inbox.metrics().handled, inbox.metrics().duplicates),
            (1, 1)
        );
    }
}

mod a_hyper_server {
    block!("receiving-webhooks.serve");

    #[tokio::test]
    async fn a_signed_delivery_is_accepted() {
        let secret = "6Jm0nFq2pXvZk4Tt";
        let inbox = Inbox::builder(audience::inbox::MemoryStore::new())
            .build()
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let server = audience::mock::MockServer::builder().delivery_timeout(support::PATIENCE);
        let server = server.webhook_endpoint(url, secret).start().await;
        tokio::spawn(serve(listener, Verifier::new(secret).unwrap(), inbox));

        server
            .send_event(serde_json::json!({"type": "email.complained"}))
            .await;

        assert!(server.attempts()[0].is_success());
    }
}

mod a_handler_without_a_framework {
    block!("receiving-webhooks.hook");

    #[tokio::test]
    async fn a_request_without_a_signature_is_malformed() {
        let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let inbox = Inbox::builder(audience::inbox::MemoryStore::new())
            .build()
            .unwrap();

        let status = hook(&verifier, &inbox, Request::new(Vec::new())).await;

        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
}

mod the_status_of_a_mail {
    block!("receiving-webhooks.update");

    #[test]
    fn a_complaint_outlives_a_late_delivery() {
        let event = |kind| {
            let data = r#"{"email_id": "em_1", "from": "us@example.com", "to": "a@x.io", "subject": "Hi", "bounce_type": "", "detail": ""}"#;
            let json =
                format!(r#"{{"id": "evt_1", "type": "{kind}", "created_at": 1, "data": {data}}}"#);
            Event::from_unverified_json(json.as_bytes()).unwrap()
        };

        let status = update(MailStatus::default(), &event("email.complained"));
        let status = update(status, &event("email.delivered"));

        assert!(status.should_suppress());
    }
}

mod an_inbox_in_postgres {
    block!("webhooks-in-production.open_inbox");

    use support::postgres;

    const ADMIN: &str = "audience@";

    /// Returns the SQL that the guide prints.
    fn grants() -> String {
        let guide = include_str!("../../docs/webhooks-in-production.md");
        let blocks: Vec<_> = guide.split("```sql\n").skip(1).collect();
        let sql = blocks.iter().filter_map(|block| block.split("```").next());
        sql.collect()
    }

    #[tokio::test]
    async fn the_rights_that_the_guide_prints_are_enough() {
        let Some(server) = postgres::server().await else {
            return;
        };
        let database = server.database().await;
        let admin = postgres::client(&database.url).await;
        open_inbox(&database.url).await.unwrap();
        let role = "CREATE ROLE receiver LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC;";
        admin.batch_execute(role).await.unwrap();
        admin.batch_execute(&grants()).await.unwrap();

        let inbox = open_inbox(&database.url.replace(ADMIN, "receiver@"))
            .await
            .unwrap();

        let delivery = || super::verified("email.sent", "{}");
        assert_eq!(inbox.accept(delivery()).await.status(), 200);
        let worker = inbox
            .worker(|_, _| async { Err("not now") })
            .max_attempts(1);
        worker.run_until_idle().await.unwrap();
        let parked = inbox.parked().await.unwrap();
        assert!(inbox.replay(&parked[0].id).await.unwrap());
        let worker = inbox.worker(|_, _| async { Ok::<_, std::io::Error>(()) });
        worker.run_until_idle().await.unwrap();
        assert_eq!(inbox.accept(delivery()).await.status(), 200);
        assert_eq!(inbox.purge().await.unwrap(), 0);
        assert_eq!(inbox.backlog().await.unwrap().parked, 0);
    }
}

mod own_tables {
    block!("webhooks-in-production.create_all_tables");

    use futures_util::future::join_all;
    use support::postgres;

    #[tokio::test]
    async fn programs_that_start_simultaneously_create_them_and_a_later_one_needs_no_right_to() {
        let Some(server) = postgres::server().await else {
            return;
        };
        let database = server.database().await;
        let admin = postgres::client(&database.url).await;
        let stores = [0; 4].map(|_| {
            let builder = PostgresStore::builder().timeout(support::PATIENCE);
            builder.connect_lazy(&database.url).unwrap()
        });
        stores[0].migrate().await.unwrap();
        // The migration would make the programs take turns, and a connection takes a different time in each.
        for store in &stores {
            drop(store.pool().get().await.unwrap());
        }

        for created in join_all(stores.iter().map(create_tables)).await {
            created.unwrap();
        }

        let role = "CREATE ROLE receiver LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
            GRANT ALL ON audience_inbox, audience_inbox_schema TO receiver";
        admin.batch_execute(role).await.unwrap();
        let receiver = database.url.replace("audience@", "receiver@");
        let receiver = PostgresStore::connect_lazy(&receiver).unwrap();
        create_all_tables(&receiver).await.unwrap();
    }
}

/// An event with this data, as the verifier returns it.
fn verified(event_type: &str, data: &str) -> audience::webhooks::VerifiedEvent {
    let body =
        format!(r#"{{"id": "evt_1", "type": "{event_type}", "created_at": 1, "data": {data}}}"#);
    let secret = "6Jm0nFq2pXvZk4Tt";
    let signer = audience::webhooks::Signer::new(secret).unwrap();
    let headers = signer.sign(&event_type.into(), std::time::SystemTime::now(), &body);
    let verifier = audience::webhooks::Verifier::new(secret).unwrap();
    verifier.verify_event(&headers, body).unwrap()
}

/// Data without an address.
const INCOMPLETE: &str = r#"{"email_id": "em_1"}"#;

mod an_effect_in_sqlite {
    block!("webhooks-in-production.count_complaint");

    #[tokio::test]
    async fn a_complaint_counts_once_and_one_without_its_address_is_not_acknowledged() {
        let store = SqliteStore::in_memory().unwrap();
        let people = "CREATE TABLE people (email TEXT, complaints INTEGER);
            INSERT INTO people VALUES ('ada@example.com', 0)";
        let created = store.transaction(|transaction| transaction.execute_batch(people));
        created.await.unwrap();
        let incomplete = super::verified("email.complained", super::INCOMPLETE);
        let data = r#"{"email_id": "em_1", "to": "Ada@example.com"}"#;
        let complaint = super::verified("email.complained", data);

        let refused = count_complaint(&store, incomplete).await;
        let first = count_complaint(&store, complaint.clone()).await;
        let second = count_complaint(&store, complaint).await;

        let receipts = [refused, first, second];
        assert_eq!(
            receipts,
            [Receipt::Failed, Receipt::Handled, Receipt::Duplicate]
        );
        let count = store.transaction(|transaction| {
            transaction.query_row("SELECT complaints FROM people", [], |row| {
                row.get::<_, i64>(0)
            })
        });
        assert_eq!(count.await.unwrap(), 1);
    }
}

mod a_worker_with_an_effect_in_postgres {
    block!("webhooks-in-production.work");

    use support::postgres;

    #[tokio::test]
    async fn a_complaint_without_its_address_fails_and_is_kept() {
        let Some(database) = postgres::database().await else {
            return;
        };
        let store = postgres::connect(&database.url).await.unwrap();
        store.migrate().await.unwrap();
        let inbox = Inbox::builder(store.clone()).build().unwrap();
        let incomplete = super::verified("email.complained", super::INCOMPLETE);
        assert_eq!(inbox.accept(incomplete).await.status(), 200);

        tokio::select! {
            ended = work(&inbox, &store) => panic!("{ended:?}"),
            () = support::cancellation::until(|| inbox.metrics().failed + inbox.metrics().handled > 0) => {}
        }

        assert_eq!((inbox.metrics().failed, inbox.metrics().handled), (1, 0));
        let backlog = inbox.backlog().await.unwrap();
        assert_eq!(backlog.waiting + backlog.in_progress, 1);
    }
}

mod an_effect_in_postgres {
    block!("webhooks-in-production.hook");

    use support::postgres;

    #[tokio::test]
    async fn a_duplicate_has_no_second_effect() {
        let Some(database) = postgres::database().await else {
            return;
        };
        let store = postgres::connect(&database.url).await.unwrap();
        store.migrate().await.unwrap();
        let admin = postgres::client(&database.url).await;
        let people = "CREATE TABLE people (email text, complaints integer);
            INSERT INTO people VALUES ('ada@example.com', 0)";
        admin.batch_execute(people).await.unwrap();
        let data = r#"{"email_id": "em_1", "from": "us@example.com", "to": "ada@example.com", "subject": "Hi"}"#;
        let delivery = super::verified("email.complained", data);

        let first = hook(&store, delivery.clone()).await;
        let second = hook(&store, delivery).await;

        assert_eq!([first.status(), second.status()], [200; 2]);
        let count = admin
            .query_one("SELECT complaints FROM people", &[])
            .await
            .unwrap();
        assert_eq!(count.get::<_, i32>(0), 1);
    }

    #[tokio::test]
    async fn a_complaint_without_its_address_is_not_acknowledged() {
        let Some(database) = postgres::database().await else {
            return;
        };
        let store = postgres::connect(&database.url).await.unwrap();
        store.migrate().await.unwrap();
        let incomplete = super::verified("email.complained", super::INCOMPLETE);

        assert_eq!(hook(&store, incomplete).await, Receipt::Failed);
    }
}

mod an_effect_with_sqlx {
    block!("webhooks-in-production.mark_bounce");

    use support::postgres;

    #[tokio::test]
    async fn a_bounce_is_marked_once_and_its_duplicate_changes_nothing() {
        let Some(database) = postgres::database().await else {
            return;
        };
        let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
        let store = SqlxPostgresStore::new(pool);
        store.migrate().await.unwrap();
        let admin = postgres::client(&database.url).await;
        let people = "CREATE TABLE people (email text, bounced boolean);
            INSERT INTO people VALUES ('ada@example.com', false)";
        admin.batch_execute(people).await.unwrap();
        let data = r#"{"email_id": "em_1", "from": "us@example.com", "to": "ada@example.com", "subject": "Hi",
            "bounce_type": "Permanent", "detail": "550 no such user"}"#;
        let delivery = super::verified("email.bounced", data);

        let first = mark_bounce(&store, delivery.clone()).await;
        let marked = "UPDATE people SET bounced = false WHERE bounced";
        assert_eq!(admin.execute(marked, &[]).await.unwrap(), 1);
        let second = mark_bounce(&store, delivery).await;

        assert_eq!((first, second), (Receipt::Handled, Receipt::Duplicate));
        assert_eq!(admin.execute(marked, &[]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_transient_bounce_marks_nobody_and_one_without_its_address_is_not_acknowledged() {
        let Some(database) = postgres::database().await else {
            return;
        };
        let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
        let store = SqlxPostgresStore::new(pool);
        store.migrate().await.unwrap();
        let admin = postgres::client(&database.url).await;
        let people = "CREATE TABLE people (email text, bounced boolean);
            INSERT INTO people VALUES ('ada@example.com', false)";
        admin.batch_execute(people).await.unwrap();
        let incomplete = super::verified("email.bounced", super::INCOMPLETE);
        let data = r#"{"email_id": "em_1", "to": "ada@example.com", "bounce_type": "Transient"}"#;
        let transient = super::verified("email.bounced", data);

        let refused = mark_bounce(&store, incomplete).await;
        let passed = mark_bounce(&store, transient).await;

        assert_eq!((refused, passed), (Receipt::Failed, Receipt::Handled));
        let marked = "UPDATE people SET bounced = false WHERE bounced";
        assert_eq!(admin.execute(marked, &[]).await.unwrap(), 0);
    }
}
