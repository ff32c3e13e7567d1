//! Rules and properties on the wire: they are sent as built and read back unchanged.

use std::sync::LazyLock;

use audience::contacts::{Properties, PropertyValue};
use audience::rule::{Condition, Engagement, EngagementCondition, PropertyCondition, Rule};
use audience::{ErrorKind, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{contacts, ok, received, respond_with};

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
        (engagement(), any::<u32>()).prop_map(|(engagement, days)| engagement.within_days(days)),
        (engagement(), any::<u32>())
            .prop_map(|(engagement, days)| engagement.not_within_days(days)),
        any::<u32>().prop_map(Condition::joined_within_days),
        any::<u32>().prop_map(Condition::joined_before_days),
        any::<String>()
            .prop_map(|field| Condition::raw(json!({"field": format!("x{field}"), "weeks": 2}))),
    ]
}

fn rules() -> impl Strategy<Value = Rule> {
    let conditions = prop::collection::vec(conditions(), 0..6);
    (conditions, any::<bool>()).prop_map(|(conditions, all)| {
        if all {
            Rule::all(conditions)
        } else {
            Rule::any(conditions)
        }
    })
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
