//! Section 2.8: rules on engagement and on when a contact joined, by the mock's clock.

use std::time::Duration;

use audience::mock::dialect::JoinedMember;
use audience::mock::{Dialect, EngagementKind, MockServer, SegmentKind};
use serde_json::{Value, json};

use super::{Api, DAY, NOW};

const WHAT: [&str; 5] = ["delivered", "bounced", "complained", "opened", "clicked"];

/// The kinds with these names.
const KINDS: [EngagementKind; 5] = [
    EngagementKind::Delivered,
    EngagementKind::Bounced,
    EngagementKind::Complained,
    EngagementKind::Opened,
    EngagementKind::Clicked,
];

fn engagement(what: &str, op: &str) -> Value {
    json!({"field": "engagement", "what": what, "op": op})
}

fn engaged_within(op: &str, days: u64) -> Value {
    json!({"field": "engagement", "what": "opened", "op": op, "days": days})
}

fn joined(field: &str, days: u64) -> Value {
    json!({"field": field, "days": days})
}

/// A mock with a contact for each of these numbers of seconds, who opened mail that long ago, and one who never did.
fn api_with_opens(seconds_ago: &[u64]) -> Api {
    let api = Api::start();
    api.create("never@example.com");
    for &ago in seconds_ago {
        let address = format!("ago{ago}@example.com");
        api.create(&address);
        api.server.record_engagement(
            &address,
            EngagementKind::Opened,
            NOW - i64::try_from(ago).unwrap(),
        );
    }
    api
}

/// The addresses of the contacts who opened mail this many seconds ago.
fn ago(seconds: &[u64]) -> Vec<String> {
    let mut addresses: Vec<String> = seconds
        .iter()
        .map(|ago| format!("ago{ago}@example.com"))
        .collect();
    addresses.sort_unstable();
    addresses
}

#[test]
fn section_2_8_engagement_ever_and_never_for_each_what() {
    let api = Api::start();
    for (what, kind) in WHAT.into_iter().zip(KINDS) {
        let address = format!("{what}@example.com");
        api.create(&address);
        api.server.record_engagement(&address, kind, NOW - 1);
    }

    for what in WHAT {
        let ever = api.matching(engagement(what, "ever"));
        let never = api.matching(engagement(what, "never"));

        assert_eq!(ever, [format!("{what}@example.com")]);
        assert_eq!(never.len(), 4);
        assert!(!never.contains(&ever[0]));
    }
}

#[test]
fn section_2_8_engagement_within_days_includes_the_boundary() {
    let api = api_with_opens(&[0, 7 * DAY - 1, 7 * DAY, 7 * DAY + 1]);

    assert_eq!(
        api.matching(engaged_within("within_days", 7)),
        ago(&[0, 7 * DAY - 1, 7 * DAY])
    );
}

#[test]
fn section_2_8_engagement_not_within_days_is_the_complement() {
    let api = api_with_opens(&[0, 7 * DAY - 1, 7 * DAY, 7 * DAY + 1]);

    let mut expected = ago(&[7 * DAY + 1]);
    expected.push("never@example.com".to_owned());
    assert_eq!(api.matching(engaged_within("not_within_days", 7)), expected);
}

#[test]
fn section_2_8_only_the_latest_engagement_counts() {
    let api = api_with_opens(&[]);
    api.server
        .record_engagement("never@example.com", EngagementKind::Opened, NOW - 1);
    api.server.record_engagement(
        "never@example.com",
        EngagementKind::Opened,
        NOW - 90 * i64::try_from(DAY).unwrap(),
    );

    assert_eq!(api.matching(engaged_within("within_days", 1)).len(), 1);
    assert_eq!(api.matching(engaged_within("not_within_days", 1)).len(), 0);
}

#[test]
fn section_2_8_an_engagement_ages_as_the_clock_advances() {
    let api = api_with_opens(&[0]);
    let within = || api.matching(engaged_within("within_days", 1)).len();

    api.server.advance(Duration::from_secs(DAY));
    assert_eq!(within(), 1);
    api.server.advance(Duration::from_secs(1));
    assert_eq!(within(), 0);
    assert_eq!(api.matching(engagement("opened", "ever")).len(), 1);
}

#[test]
fn section_2_8_joined_within_days_includes_the_boundary() {
    let api = Api::start();
    api.create("ada@example.com");
    let within = |days| api.matching(joined("joined_within_days", days)).len();
    assert_eq!(within(1), 1);

    api.server.advance(Duration::from_secs(3 * DAY));
    assert_eq!((within(2), within(3), within(4)), (0, 1, 1));
    api.server.advance(Duration::from_secs(1));
    assert_eq!((within(3), within(4)), (0, 1));
}

#[test]
fn section_2_8_joined_before_days_includes_the_boundary() {
    let api = Api::start();
    api.create("ada@example.com");
    let before = |days| api.matching(joined("joined_before_days", days)).len();
    assert_eq!(before(1), 0);

    api.server.advance(Duration::from_secs(3 * DAY - 1));
    assert_eq!((before(2), before(3)), (1, 0));
    api.server.advance(Duration::from_secs(1));
    assert_eq!((before(3), before(4)), (1, 0));
}

#[test]
fn section_2_8_an_update_does_not_change_when_a_contact_joined() {
    let api = Api::start();
    api.create("ada@example.com");
    api.server.advance(Duration::from_secs(5 * DAY));

    api.post("/contacts", json!({"email": "ada@example.com"}))
        .expect(200);

    assert_eq!(api.matching(joined("joined_within_days", 1)).len(), 0);
}

#[test]
fn section_2_8_a_rule_can_mix_kinds_of_condition() {
    let api = api_with_opens(&[0, 30 * DAY]);
    let rule = |match_: &str| {
        json!({"match_": match_, "conditions": [
            engaged_within("not_within_days", 7),
            joined("joined_within_days", 1),
            {"field": "property", "key": "plan", "op": "is_not", "value": "pro"},
            engagement("opened", "ever"),
        ]})
    };

    assert_eq!(api.matching_rule(rule("all")), ago(&[30 * DAY]));
    assert_eq!(api.matching_rule(rule("any")).len(), 3);
}

#[test]
fn section_2_8_a_spam_report_counts_as_engagement() {
    let api = Api::start();
    api.create("ada@example.com");
    api.create("bob@example.com");

    api.server.report_spam("ada@example.com");

    assert_eq!(
        api.matching(engagement("complained", "ever")),
        ["ada@example.com"]
    );
    assert_eq!(
        api.matching(
            json!({"field": "engagement", "what": "complained", "op": "within_days", "days": 1})
        ),
        ["ada@example.com"]
    );
}

#[tokio::test]
async fn section_2_8_engagement_before_the_contact_exists_counts_however_it_was_recorded() {
    let server = MockServer::builder().clock(NOW).start().await;
    let api = Api {
        server,
        dialect: Dialect::default(),
    };
    for (what, kind) in WHAT.into_iter().zip(KINDS) {
        api.server
            .record_engagement(format!("recorded-{what}@example.com"), kind, NOW);
        let to = format!("sent-{what}@example.com");
        api.server
            .send_event(json!({"type": format!("email.{what}"), "data": {"to": to}}))
            .await;
    }
    api.server.report_spam("reported-complained@example.com");
    api.post(
        "/emails",
        json!({"from": "me@example.com", "to": "mailed-delivered@example.com"}),
    )
    .expect(200);

    for how in ["recorded", "sent", "reported", "mailed"] {
        for what in WHAT {
            api.create(&format!("{how}-{what}@example.com"));
        }
    }

    for what in WHAT {
        let mut expected = vec![
            format!("recorded-{what}@example.com"),
            format!("sent-{what}@example.com"),
        ];
        match what {
            "complained" => expected.insert(1, "reported-complained@example.com".to_owned()),
            "delivered" => expected.insert(0, "mailed-delivered@example.com".to_owned()),
            _ => {}
        }
        assert_eq!(api.matching(engagement(what, "ever")), expected);
    }
}

#[test]
fn dialect_joined_member() {
    for (joined_member, name) in [
        (JoinedMember::Value, "value"),
        (JoinedMember::Count, "count"),
    ] {
        let api = Api::with_dialect(Dialect {
            joined_member,
            ..Dialect::default()
        });
        api.create("ada@example.com");
        let rule = |condition: Value| json!({"match_": "all", "conditions": [condition]});

        for (field, expected) in [("joined_within_days", 1), ("joined_before_days", 0)] {
            let condition = json!({"field": field, name: 2});
            assert_eq!(api.matching(condition.clone()).len(), expected, "{field}");
            api.server
                .segment("seg_1", SegmentKind::Rule(rule(condition)));
            assert_eq!(api.listed(&[("segment_id", "seg_1")]).len(), expected);

            let days = rule(json!({"field": field, "days": 2})).to_string();
            let message = api
                .list(&[("rules", &days)])
                .refused(422, "validation_error");
            assert!(message.contains(name), "{message}");
            let invalid = rule(json!({"field": field, name: 0})).to_string();
            api.list(&[("rules", &invalid)])
                .refused(422, "validation_error");
        }
        let engaged =
            json!({"field": "engagement", "what": "opened", "op": "within_days", "days": 1});
        assert_eq!(
            api.matching(engaged).len(),
            0,
            "an engagement still has `days`"
        );
    }
}
