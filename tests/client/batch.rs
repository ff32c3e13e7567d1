//! Batches, against prepared responses.

use audience::contacts::{
    BatchEntry, BatchOutcome, MAX_BATCH, NewContact, OnConflict, normalized_address,
};
use audience::{ErrorCode, ErrorKind, Outcome};
use serde_json::{Value, json};

use support::{contacts, ok, received, respond_in_turn, respond_with, status, with};

fn three_contacts() -> [NewContact; 3] {
    ["a@x.io", "b@x.io", "c@x.io"].map(NewContact::new)
}

#[tokio::test]
async fn each_entry_has_its_result_at_its_index() {
    let results = json!({"data": [
        {"email": "a@x.io", "status": "created"},
        {"email": "b@x.io", "status": "updated"},
        {"email": "c@x.io", "status": "skipped"},
        {"email": "d", "status": "validation_error", "message": "d is not an address"},
        {"email": "e@x.io", "status": "quota_exceeded"},
        {"email": "f@x.io", "status": "on_holiday", "reason": "closed"},
    ]});
    let server = respond_with(ok(results)).await;
    let entries = ["a@x.io", "b@x.io", "c@x.io", "d", "e@x.io", "f@x.io"].map(NewContact::new);

    let report = contacts(server.uri()).create_batch(entries).await.unwrap();

    let failed = |code, message: Option<&str>| BatchOutcome::Failed {
        code,
        message: message.map(str::to_owned),
    };
    let outcomes: Vec<_> = report
        .entries
        .iter()
        .map(|entry| entry.outcome.clone())
        .collect();
    assert_eq!(
        outcomes,
        [
            BatchOutcome::Created,
            BatchOutcome::Updated,
            BatchOutcome::Skipped,
            failed(ErrorCode::ValidationError, Some("d is not an address")),
            failed(ErrorCode::QuotaExceeded, None),
            failed("on_holiday".into(), Some("closed")),
        ]
    );
    let failures: Vec<_> = report
        .failures()
        .map(|(index, entry)| (index, entry.email.as_str()))
        .collect();
    assert_eq!(failures, [(3, "d"), (4, "e@x.io"), (5, "f@x.io")]);
    assert_eq!(report.attempts(), 1);
}

#[tokio::test]
async fn the_body_is_an_array_of_the_entries() {
    let results = json!({"data": [{"email": "a@x.io", "status": "created"}, {"email": "a@x.io", "status": "updated"}]});
    let server = respond_with(ok(results)).await;
    let twice = [
        NewContact::new("a@x.io"),
        NewContact::new("a@x.io")
            .first_name("A")
            .on_conflict(OnConflict::Upsert),
    ];

    let report = contacts(server.uri()).create_batch(twice).await.unwrap();
    assert_eq!(report.failures().count(), 0);

    let request = &received(&server).await[0];
    assert_eq!(
        (request.method.as_str(), request.url.path()),
        ("POST", "/contacts/batch")
    );
    assert_eq!(
        request.body_json::<Value>().unwrap(),
        json!([{"email": "a@x.io"}, {"email": "a@x.io", "first_name": "A", "on_conflict": "upsert"}])
    );
}

#[tokio::test]
async fn an_empty_or_too_long_batch_is_refused_and_nothing_is_sent() {
    let server = respond_with(ok(json!({"data": []}))).await;

    for count in [0, MAX_BATCH + 1] {
        let entries = (0..count).map(|n| NewContact::new(format!("{n}@x.io")));
        let error = contacts(server.uri())
            .create_batch(entries)
            .await
            .unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome(), error.attempts()),
            (ErrorKind::Input, Outcome::NotSent, 0)
        );
        assert!(
            error.to_string().starts_with("create_batch: the batch "),
            "{error}"
        );
    }
    assert!(received(&server).await.is_empty());
}

#[tokio::test]
async fn a_wrong_number_of_results_is_a_decode_error() {
    for count in [0, 2, 4] {
        let results = vec![json!({"email": "a@x.io", "status": "created"}); count];
        let server = respond_with(ok(json!({"data": results}))).await;

        let error = contacts(server.uri())
            .create_batch(three_contacts())
            .await
            .unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome(), error.attempts()),
            (ErrorKind::Decode, Outcome::Unknown, 1)
        );
        assert_eq!(
            error.to_string(),
            format!("create_batch: the response has {count} results for 3 entries")
        );
    }
}

/// The outcomes of a batch with these addresses, if the service sends these results: an address, `""` for none, and a
/// status.
async fn outcomes_of(sent: &[&str], results: &[(&str, &str)]) -> Vec<String> {
    let result = |(email, status): &(&str, &str)| match *email {
        "" => json!({"status": status}),
        email => json!({"email": email, "status": status}),
    };
    let results: Vec<_> = results.iter().map(result).collect();
    let server = respond_with(ok(json!({"data": results}))).await;

    let report = contacts(server.uri())
        .create_batch(sent.iter().copied())
        .await
        .unwrap();

    let is_own = |(entry, sent): (&BatchEntry, &&str)| {
        normalized_address(&entry.email) == normalized_address(sent)
    };
    assert!(
        report.entries.iter().zip(sent).all(is_own),
        "an entry has the address of another"
    );
    let outcomes = report.entries.iter().map(|entry| entry.outcome.to_string());
    outcomes.collect()
}

#[tokio::test]
async fn results_in_another_order_belong_to_the_entries_whose_addresses_they_name() {
    let outcomes = outcomes_of(
        &["a@x.io", " B@X.io", "ÄDA@x.io", "d"],
        &[
            ("d", "validation_error"),
            ("äda@x.io", "skipped"),
            ("a@x.io", "created"),
            ("b@x.io", "updated"),
        ],
    );
    assert_eq!(
        outcomes.await,
        ["created", "updated", "skipped", "validation_error"]
    );

    let spelled_otherwise = outcomes_of(
        &["A@x.io", "Äda@x.io"],
        &[(" a@X.io ", "created"), ("ÄDA@x.io", "skipped")],
    );
    assert_eq!(spelled_otherwise.await, ["created", "skipped"]);
}

#[tokio::test]
async fn results_without_addresses_belong_to_the_entries_at_their_places() {
    let none = outcomes_of(&["a@x.io", "b@x.io"], &[("", "created"), ("", "updated")]);
    assert_eq!(none.await, ["created", "updated"]);

    let some = outcomes_of(
        &["a@x.io", "b@x.io", "c@x.io"],
        &[
            ("", "created"),
            ("c@x.io", "updated"),
            ("b@x.io", "skipped"),
        ],
    );
    assert_eq!(some.await, ["created", "skipped", "updated"]);
}

#[tokio::test]
async fn a_contradiction_between_results_makes_the_entries_that_it_concerns_unknown_and_no_other() {
    const SENT: [&str; 3] = ["a@x.io", "b@x.io", "c@x.io"];
    for (results, outcomes) in [
        // The result of one entry is missing, and another has two.
        (
            [
                ("a@x.io", "created"),
                ("b@x.io", "created"),
                ("b@x.io", "updated"),
            ],
            ["created", "unknown", "unknown"],
        ),
        (
            [
                ("b@x.io", "created"),
                ("b@x.io", "created"),
                ("a@x.io", "updated"),
            ],
            ["updated", "unknown", "unknown"],
        ),
        // An address that was not sent.
        (
            [
                ("a@x.io", "created"),
                ("z@x.io", "created"),
                ("c@x.io", "skipped"),
            ],
            ["created", "unknown", "skipped"],
        ),
        (
            [
                ("c@x.io", "created"),
                ("z@x.io", "created"),
                ("a@x.io", "skipped"),
            ],
            ["skipped", "unknown", "created"],
        ),
        // A result without an address stands at the place of an entry that has another result.
        (
            [
                ("b@x.io", "created"),
                ("", "updated"),
                ("c@x.io", "skipped"),
            ],
            ["unknown", "unknown", "skipped"],
        ),
    ] {
        assert_eq!(outcomes_of(&SENT, &results).await, outcomes, "{results:?}");
    }
}

#[tokio::test]
async fn results_of_one_address_that_moved_are_unknown_unless_they_say_the_same() {
    const SENT: [&str; 3] = ["a@x.io", "A@x.io", "b@x.io"];
    for (results, outcomes) in [
        (
            [
                ("a@x.io", "created"),
                ("a@x.io", "updated"),
                ("b@x.io", "skipped"),
            ],
            ["created", "updated", "skipped"],
        ),
        (
            [
                ("b@x.io", "skipped"),
                ("a@x.io", "updated"),
                ("a@x.io", "created"),
            ],
            ["unknown", "unknown", "skipped"],
        ),
        (
            [
                ("b@x.io", "skipped"),
                ("a@x.io", "updated"),
                ("a@x.io", "updated"),
            ],
            ["updated", "updated", "skipped"],
        ),
    ] {
        assert_eq!(outcomes_of(&SENT, &results).await, outcomes, "{results:?}");
    }
}

#[tokio::test]
async fn an_entry_without_a_usable_status_is_unknown_and_the_rest_of_the_report_is_kept() {
    let unusable = [
        json!({"email": "hunter2@x.io"}),
        json!({"email": "b@x.io", "status": 7}),
        json!({"status": ""}),
        json!({"status": null, "email": 5}),
        json!(["b@x.io", "created"]),
        json!("created"),
        json!(null),
    ];
    for unusable in unusable {
        let data = json!([
            {"email": "a@x.io", "status": "created"},
            unusable,
            {"email": "c@x.io", "status": "quota_exceeded", "message": 7},
        ]);
        let server = respond_with(ok(json!({"data": data}))).await;

        let report = contacts(server.uri())
            .create_batch(three_contacts())
            .await
            .unwrap();

        let entries = &report.entries;
        assert_eq!(entries[0].outcome, BatchOutcome::Created);
        assert_eq!(entries[1].outcome, BatchOutcome::Unknown, "{unusable}");
        assert_eq!(
            entries[1].email, "b@x.io",
            "also if the result names another"
        );
        let failures: Vec<_> = report.failures().map(|(index, _)| index).collect();
        assert_eq!(failures, [1, 2], "an unknown outcome needs attention too");
        let stored = serde_json::to_string(&report).unwrap();
        assert_eq!(report, serde_json::from_str(&stored).unwrap());
    }
}

#[tokio::test]
async fn each_entry_knows_whether_sending_it_again_can_help() {
    let slug = |slug: &str| json!({"email": "a@x.io", "status": slug});
    for (result, upserted, strict) in [
        (slug("created"), false, false),
        (slug("updated"), false, false),
        (slug("skipped"), false, false),
        (slug("validation_error"), false, false),
        (slug("already_exists"), false, false),
        (slug("quota_exceeded"), false, false),
        (slug("key_not_permitted"), false, false),
        (slug("not_found"), false, false),
        (slug("failed_precondition"), false, false),
        (slug("internal_error"), true, false),
        (json!({"email": "a@x.io"}), true, false),
    ] {
        let server = respond_with(ok(json!({"data": [result, result]}))).await;
        let entry = NewContact::new("a@x.io");
        let batch = [entry.clone(), entry.on_conflict(OnConflict::Error)];

        let report = contacts(server.uri()).create_batch(batch).await.unwrap();

        let retryable: Vec<_> = report
            .entries
            .iter()
            .map(BatchEntry::is_retryable)
            .collect();
        assert_eq!(retryable, [upserted, strict], "{result}");
    }
}

#[tokio::test]
async fn a_status_is_compared_as_slugs_are_and_the_slug_of_a_failure_is_found_in_its_error() {
    let quota = |message: Option<&str>| BatchOutcome::Failed {
        code: ErrorCode::QuotaExceeded,
        message: message.map(str::to_owned),
    };
    let failed = |code: &str, message: Option<&str>| BatchOutcome::Failed {
        code: code.into(),
        message: message.map(str::to_owned),
    };
    for (entry, expected) in [
        (json!({"status": "Created"}), BatchOutcome::Created),
        (
            json!({"status": "UPDATED", "message": null}),
            BatchOutcome::Updated,
        ),
        (
            json!({"status": "Skipped", "error": null}),
            BatchOutcome::Skipped,
        ),
        (
            json!({"status": "Quota-Exceeded", "message": "full"}),
            quota(Some("full")),
        ),
        (
            json!({"status": "quota_exceeded", "error": {"message": "full"}}),
            quota(Some("full")),
        ),
        (
            json!({"status": "failed", "error": {"code": "quota_exceeded", "message": "full"}}),
            quota(Some("full")),
        ),
        (
            json!({"status": 402, "error": {"code": "QUOTA_EXCEEDED", "message": "full"}}),
            quota(Some("full")),
        ),
        (json!({"error": {"code": "quota-exceeded"}}), quota(None)),
        (
            json!({"status": "error", "code": "quota_exceeded", "error": "full"}),
            quota(Some("full")),
        ),
        (
            json!({"status": "error", "error": "quota_exceeded"}),
            quota(None),
        ),
        (
            json!({"status": "failed", "error": {"code": "on_holiday"}}),
            failed("on_holiday", None),
        ),
        (
            json!({"status": "failed", "reason": "closed"}),
            failed("failed", Some("closed")),
        ),
        (
            json!({"status": "merged", "type": "contact"}),
            failed("merged", None),
        ),
        (json!({"type": "contact"}), BatchOutcome::Unknown),
        (
            json!({"status": "error", "reason": "quota_exceeded"}),
            quota(None),
        ),
        (
            json!({"status": "error", "message": "quota_exceeded"}),
            quota(None),
        ),
        (
            json!({"status": "KO", "message": "full", "errorCode": "quota_exceeded"}),
            quota(Some("full")),
        ),
        (
            json!({"status": "failed", "reason": "quota_exceeded", "why": "not_found"}),
            failed("failed", None),
        ),
        (
            json!({"status": "merged", "properties": {"plan": "quota_exceeded"}}),
            failed("merged", None),
        ),
    ] {
        let server = respond_with(ok(
            json!({"data": [with(entry.clone(), "email", "a@x.io")]}),
        ))
        .await;

        let report = contacts(server.uri())
            .create_batch(["a@x.io"])
            .await
            .unwrap();

        assert_eq!(report.entries[0].outcome, expected, "{entry}");
        let stored = serde_json::to_string(&report).unwrap();
        assert_eq!(report, serde_json::from_str(&stored).unwrap());
    }
}

#[tokio::test]
async fn the_address_of_an_entry_is_never_its_slug() {
    let results = json!({"data": [{"email": "not_found", "status": "error", "message": "no"}]});
    let server = respond_with(ok(results)).await;

    let report = contacts(server.uri())
        .create_batch(["not_found"])
        .await
        .unwrap();

    assert_eq!(report.entries[0].outcome.to_string(), "error: no");
}

#[tokio::test]
async fn a_retried_batch_reports_its_attempts() {
    let results = json!({"data": [{"email": "a@x.io", "status": "updated"}]});
    let server = respond_in_turn([status(500), status(429), ok(results)]).await;

    let report = contacts(server.uri())
        .create_batch([NewContact::new("a@x.io")])
        .await
        .unwrap();

    assert_eq!((report.attempts(), received(&server).await.len()), (3, 3));
}
