//! The file itself: examples, references, marks.

use std::collections::{BTreeMap, BTreeSet};

use audience::mock::Dialect;
use serde_json::{Value, json};

use super::conformance::{DESCRIPTION, resolve, validate};

/// Calls `visit` with each JSON object of the document and its JSON pointer.
fn each_object(visit: &mut impl FnMut(&str, &serde_json::Map<String, Value>)) {
    fn walk(
        pointer: &str,
        value: &Value,
        visit: &mut impl FnMut(&str, &serde_json::Map<String, Value>),
    ) {
        match value {
            Value::Object(members) => {
                visit(pointer, members);
                for (name, value) in members {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    walk(&format!("{pointer}/{name}"), value, visit);
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    walk(&format!("{pointer}/{index}"), value, visit);
                }
            }
            _ => {}
        }
    }
    walk("", &DESCRIPTION, visit);
}

#[test]
fn each_example_is_valid_by_its_schema() {
    let mut count = 0;
    each_object(&mut |pointer, members| {
        let schema = members.get("schema").or_else(|| {
            members
                .get("content")
                .map(|content| &content["application/json"]["schema"])
        });
        let Some((schema, Value::Object(examples))) = schema.zip(members.get("examples")) else {
            return;
        };
        for name in examples.keys() {
            let example = resolve(&format!("{pointer}/examples/{name}")).unwrap();
            let name = format!("{pointer} {name}");
            validate(&name, schema, true, &example["value"])
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(example["summary"].is_string(), "{name}");
            count += 1;
        }
    });
    each_object(&mut |pointer, schema| {
        let Some(Value::Array(examples)) = schema.get("examples") else {
            return;
        };
        for example in examples {
            let name = format!("{pointer} example");
            validate(&name, &Value::Object(schema.clone()), true, example)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            count += 1;
        }
    });

    assert!(count > 150, "{count} examples");
}

#[test]
fn each_body_parameter_and_schema_has_an_example() {
    each_object(&mut |pointer, members| {
        let is_media_type = pointer.ends_with("application~1json");
        let is_parameter = members.contains_key("in") && members.contains_key("schema");
        let is_schema = pointer
            .strip_prefix("/components/schemas/")
            .is_some_and(|name| !name.contains('/'));
        if is_media_type || is_parameter || is_schema {
            let examples = members.get("examples");
            let count = examples.map_or(0, |examples| {
                examples.as_array().map_or_else(
                    || examples.as_object().map_or(0, serde_json::Map::len),
                    Vec::len,
                )
            });
            assert!(count > 0, "{pointer} has no example");
        }
        if is_schema {
            assert!(
                members.contains_key("description"),
                "{pointer} has no description"
            );
        }
    });
}

#[test]
fn each_reference_and_each_link_leads_somewhere() {
    let mut ids = BTreeSet::new();
    let mut linked = BTreeSet::new();
    each_object(&mut |pointer, members| {
        if let Some(Value::String(reference)) = members.get("$ref") {
            assert!(
                DESCRIPTION
                    .pointer(reference.trim_start_matches('#'))
                    .is_some(),
                "{pointer}: {reference}"
            );
        }
        if let Some(Value::String(id)) = members.get("operationId") {
            if pointer.starts_with("/components/links/") {
                linked.insert(id.clone());
            } else {
                assert!(ids.insert(id.clone()), "{id} is the id of two operations");
            }
        }
    });

    assert!(linked.is_subset(&ids), "{linked:?}");
    let from_create = resolve("/paths/~1contacts/post/responses/201/links").unwrap();
    for name in ["retrieve", "subscribe", "unsubscribe", "list"] {
        assert!(
            from_create.get(name).is_some(),
            "no link from create to {name}"
        );
    }
}

#[test]
fn each_component_is_used() {
    let mut used = BTreeSet::new();
    each_object(&mut |_, members| {
        if let Some(Value::String(reference)) = members.get("$ref") {
            used.insert(reference.clone());
        }
    });

    let kinds = DESCRIPTION["components"].as_object().unwrap();
    for (kind, components) in kinds.iter().filter(|(kind, _)| *kind != "securitySchemes") {
        for name in components.as_object().unwrap().keys() {
            assert!(
                used.contains(&format!("#/components/{kind}/{name}")),
                "{kind} {name} is unused"
            );
        }
    }
}

#[test]
fn each_mark_says_what_is_open_and_how_it_is_read_and_each_setting_of_the_dialect_is_named() {
    let mut settings = BTreeSet::new();
    each_object(&mut |pointer, members| {
        let Some(marks) = members.get("x-our-reading") else {
            return;
        };
        for mark in marks.as_array().unwrap() {
            for member in ["open", "reading"] {
                assert!(
                    mark[member].as_str().is_some_and(|text| !text.is_empty()),
                    "{pointer}: {member}"
                );
            }
            settings.extend(mark["setting"].as_str().map(str::to_owned));
        }
    });

    let of_the_dialect: BTreeSet<String> = Dialect::all()
        .map(|dialect| dialect.to_string().split(": ").next().unwrap().to_owned())
        .collect();
    assert_eq!(settings, of_the_dialect);
}

/// Section 6.1.
const EVENT_TYPES: [&str; 10] = [
    "email.sent",
    "email.delivered",
    "email.bounced",
    "email.complained",
    "email.delivery_delayed",
    "email.opened",
    "email.clicked",
    "email.failed",
    "email.refused",
    "email.received",
];

#[test]
fn sections_5_and_6_each_event_has_a_webhook_with_the_three_headers() {
    let webhooks = DESCRIPTION["webhooks"].as_object().unwrap();

    let types: BTreeSet<&str> = webhooks.keys().map(String::as_str).collect();
    assert_eq!(types, BTreeSet::from(EVENT_TYPES));
    for name in EVENT_TYPES {
        let headers: Vec<&str> = (0..3)
            .map(|index| resolve(&format!("/webhooks/{name}/post/parameters/{index}")).unwrap())
            .map(|parameter| {
                assert_eq!(
                    (&parameter["in"], &parameter["required"]),
                    (&json!("header"), &json!(true))
                );
                parameter["name"].as_str().unwrap()
            })
            .collect();
        assert_eq!(
            headers,
            ["webhook-signature", "webhook-timestamp", "webhook-event"]
        );
        let schema = resolve(&format!(
            "/webhooks/{name}/post/requestBody/content/application~1json/schema"
        ))
        .unwrap();
        assert_eq!(schema["properties"]["type"]["const"], name);
    }
}

/// Section 7, and the 401 and 413 of the mock.
#[test]
fn section_7_each_slug_has_its_status() {
    let expected = BTreeMap::from([
        ("already_exists", 409),
        ("failed_precondition", 422),
        ("key_not_permitted", 403),
        ("not_found", 404),
        ("payload_too_large", 413),
        ("quota_exceeded", 402),
        ("unauthorized", 401),
        ("validation_error", 422),
    ]);
    let mut found = BTreeMap::new();
    for schema in DESCRIPTION["components"]["schemas"]
        .as_object()
        .unwrap()
        .values()
    {
        if let Some(slug) = schema["properties"]["error"]["properties"]["code"]["const"].as_str() {
            found.insert(slug, expected.get(slug).copied().unwrap_or_default());
        }
    }

    assert_eq!(found, expected);
}

#[test]
fn section_8_the_limits_are_those_of_the_document() {
    let schemas = &DESCRIPTION["components"]["schemas"];

    assert_eq!(
        (&schemas["Batch"]["minItems"], &schemas["Batch"]["maxItems"]),
        (&json!(1), &json!(100))
    );
    assert_eq!(
        schemas["ContactPage"]["properties"]["data"]["maxItems"],
        200
    );
    assert_eq!(
        DESCRIPTION["components"]["parameters"]["Limit"]["schema"]["default"],
        50
    );
    let text = DESCRIPTION.to_string();
    for limit in [
        "1 to 200",
        "within 10 seconds",
        "ten attempts over about five hours",
        "300 seconds",
    ] {
        assert!(text.contains(limit), "{limit}");
    }
}
