//! Rules and properties on the wire: they are sent as built and read back unchanged.

use std::sync::LazyLock;

use audience::contacts::{Properties, PropertyValue};
use audience::mock::MockServer;
use audience::rule::{
    Condition, Engagement, EngagementCondition, NumberOperand, PropertyCondition, Rule,
};
use audience::{ErrorKind, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use support::{contacts, ok, received, respond_with};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

fn finite() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("JSON represents only finite numbers", |number| {
        number.is_finite()
    })
}

fn values() -> impl Strategy<Value = PropertyValue> {
    prop_oneof![
        any::<String>().prop_map(PropertyValue::from),
        any::<i64>().prop_map(PropertyValue::from),
        any::<u64>().prop_map(PropertyValue::from),
        finite().prop_map(PropertyValue::from),
        Just(PropertyValue::from(json!([true, null, {"a": 1}]))),
    ]
}

fn engagements() -> impl Strategy<Value = Engagement> {
    prop::sample::select(vec![
        Engagement::Delivered,
        Engagement::Bounced,
        Engagement::Complained,
        Engagement::Opened,
        Engagement::Clicked,
    ])
}

fn days() -> impl Strategy<Value = u32> {
    1..=u32::MAX
}

fn conditions() -> impl Strategy<Value = Condition> {
    let property = || any::<String>().prop_map(Condition::property);
    let engagement = || engagements().prop_map(Condition::engagement);
    prop_oneof![
        (property(), values()).prop_map(|(property, value)| property.is(value)),
        (property(), values()).prop_map(|(property, value)| property.is_not(value)),
        (property(), any::<String>()).prop_map(|(property, text)| property.contains(text)),
        property().prop_map(PropertyCondition::is_set),
        property().prop_map(PropertyCondition::is_not_set),
        (property(), any::<i64>()).prop_map(|(property, number)| property.greater_than(number)),
        (property(), any::<u64>()).prop_map(|(property, number)| property.greater_than(number)),
        (property(), finite()).prop_map(|(property, number)| property.less_than(number)),
        engagement().prop_map(EngagementCondition::ever),
        engagement().prop_map(EngagementCondition::never),
        (engagement(), days()).prop_map(|(engagement, days)| engagement.within_days(days)),
        (engagement(), days()).prop_map(|(engagement, days)| engagement.not_within_days(days)),
        days().prop_map(Condition::joined_within_days),
        days().prop_map(Condition::joined_before_days),
        any::<String>()
            .prop_map(|field| Condition::raw(json!({"field": format!("x{field}"), "weeks": 2}))),
    ]
}

fn rules() -> impl Strategy<Value = Rule> {
    let conditions = prop::collection::vec(conditions(), 1..6);
    prop_oneof![
        1 => Just(Rule::everyone()),
        9 => (any::<bool>(), conditions).prop_map(|(all, conditions)| {
            if all { Rule::all(conditions) } else { Rule::any(conditions) }
        }),
    ]
}

proptest! {
    #[test]
    fn a_rule_is_read_back_unchanged(rule in rules()) {
        let text = serde_json::to_string(&rule).unwrap();

        let read: Rule = serde_json::from_str(&text).unwrap();

        prop_assert_eq!(&read, &rule);
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn properties_are_read_back_unchanged(properties in prop::collection::btree_map(any::<String>(), values(), 0..8)) {
        let properties = Properties::from_iter(properties);
        let text = serde_json::to_string(&properties).unwrap();

        let read: Properties = serde_json::from_str(&text).unwrap();

        prop_assert_eq!(&read, &properties);
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_rule_arrives_at_the_service_unchanged(rule in rules()) {
        RUNTIME.block_on(async {
            let server = respond_with(ok(json!({"data": []}))).await;

            contacts(server.uri()).list().rule(rule.clone()).await.unwrap();

            let url = received(&server).await.remove(0).url;
            let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            assert_eq!(pairs.len(), 1);
            assert_eq!(pairs[0].0, "rules");
            let sent: Value = serde_json::from_str(&pairs[0].1).unwrap();
            assert_eq!(sent, serde_json::to_value(&rule).unwrap());
        });
    }
}

#[tokio::test]
async fn a_rule_with_a_number_that_json_cannot_represent_is_refused_and_nothing_is_sent() {
    let server = respond_with(ok(json!({"data": []}))).await;
    let contacts = contacts(server.uri());
    for condition in [
        Condition::property("rate").greater_than(f64::NAN),
        Condition::property("rate").less_than(f64::INFINITY),
        Condition::property("rate").is(f64::NEG_INFINITY),
        Condition::property("rate").is_not(f64::NAN),
    ] {
        let error = contacts
            .list()
            .rule(Rule::all([condition]))
            .count()
            .await
            .unwrap_err();

        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Input, Outcome::NotSent)
        );
        assert!(error.to_string().starts_with("list: "), "{error}");
    }
    assert!(received(&server).await.is_empty());
}

/// Lists with a rule that must be refused, and returns the error.
async fn refusal(rule: Rule) -> audience::Error {
    let server = respond_with(ok(json!({"data": []}))).await;

    let error = contacts(server.uri()).list().rule(rule).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Input, Outcome::NotSent)
    );
    assert!(received(&server).await.is_empty());
    error
}

#[tokio::test]
async fn a_rule_without_conditions_is_refused_unless_it_is_for_everyone() {
    for empty in [
        Rule::all([]),
        Rule::any([]),
        serde_json::from_value(json!({"match_": "any", "conditions": []})).unwrap(),
    ] {
        let text = refusal(empty).await.to_string();

        assert!(text.contains("`Rule::everyone()`"), "{text}");
    }

    let server = MockServer::start().await;
    let contacts = server.client().contacts();
    contacts.create("ada@x.io").await.unwrap();
    let everyone = contacts.list().rule(Rule::everyone()).count().await;

    assert_eq!(everyone.unwrap(), 1);
}

#[tokio::test]
async fn a_condition_on_0_days_is_refused() {
    let opened = || Condition::engagement(Engagement::Opened);
    let from_json = json!({"field": "joined_within_days", "days": 0});
    for (condition, is_joined) in [
        (opened().within_days(0), false),
        (opened().not_within_days(0), false),
        (Condition::joined_within_days(0), true),
        (Condition::joined_before_days(0), true),
        (serde_json::from_value(from_json).unwrap(), true),
    ] {
        let text = refusal(Rule::any([opened().ever(), condition]))
            .await
            .to_string();

        assert!(text.contains("use 1 or more"), "{text}");
        // An engagement has another condition for any time.
        assert_eq!(text.contains("`never`"), !is_joined, "{text}");
    }
}

#[test]
fn a_rule_for_everyone_is_read_back_and_an_empty_one_cannot_become_it() {
    let json = json!({"match_": "all", "conditions": []});

    assert_eq!(serde_json::to_value(Rule::everyone()).unwrap(), json);
    assert_eq!(
        serde_json::from_value::<Rule>(json).unwrap(),
        Rule::everyone()
    );
    assert_ne!(Rule::all([]), Rule::everyone());
    let error = serde_json::to_string(&Rule::all([])).unwrap_err();
    assert!(error.to_string().contains("`Rule::everyone()`"), "{error}");

    let nobody = serde_json::to_string(&Rule::any([])).unwrap();
    assert_eq!(
        serde_json::from_str::<Rule>(&nobody).unwrap(),
        Rule::any([])
    );
}

#[test]
fn conditions_can_be_added_to_any_rule() {
    let (pro, new) = (
        || Condition::property("plan").is("pro"),
        || Condition::joined_within_days(7),
    );

    let mut narrowed = Rule::everyone();
    narrowed.push(pro());
    narrowed.extend([new()]);
    assert_eq!(narrowed, Rule::all([pro(), new()]));

    let mut unchanged = Rule::everyone();
    unchanged.extend(None);
    assert_eq!(unchanged, Rule::everyone());

    let mut either = Rule::any([]);
    either.extend([pro(), new()]);
    assert_eq!(either, Rule::any([pro(), new()]));
}

#[test]
fn numbers_of_every_type_are_compared_as_they_are_written() {
    let amount = || Condition::property("amount");
    for (condition, number) in [
        (amount().greater_than(1_i8), "1"),
        (amount().greater_than(1_u8), "1"),
        (amount().greater_than(-2_i16), "-2"),
        (amount().greater_than(2_u16), "2"),
        (amount().greater_than(3), "3"),
        (amount().greater_than(3_u32), "3"),
        (amount().greater_than(i64::MIN), "-9223372036854775808"),
        (amount().greater_than(u64::MAX), "18446744073709551615"),
        (amount().greater_than(4_usize), "4"),
        (amount().greater_than(-4_isize), "-4"),
        (amount().greater_than(0.1_f32), "0.1"),
        (amount().greater_than(0.1), "0.1"),
        (amount().greater_than(serde_json::Number::from(5)), "5"),
        (
            amount().greater_than(NumberOperand::try_from(PropertyValue::from(6)).unwrap()),
            "6",
        ),
    ] {
        let text = serde_json::to_string(&condition).unwrap();

        assert!(text.ends_with(&format!("\"value\":{number}}}")), "{text}");
    }

    let text = NumberOperand::try_from(PropertyValue::from("3")).unwrap_err();
    assert_eq!(text.kind(), ErrorKind::Input);
}
