//! The file itself: examples, references, marks.

use std::collections::BTreeSet;

use audience::mock::Dialect;
use serde_json::{Value, json};

use super::conformance::{DESCRIPTION, is_open_enumeration, resolve, validate};
use super::refusals::described;

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
fn each_title_is_the_name_of_a_class() {
    each_object(&mut |pointer, schema| {
        let Some(title) = schema.get("title") else {
            return;
        };
        let is_schema = |name: &&str| !name.contains('/');
        match pointer
            .strip_prefix("/components/schemas/")
            .filter(is_schema)
        {
            Some(name) => assert_eq!(title, name),
            // A generator puts the name of the class around it before this one.
            None if pointer != "/info" => {
                let title = title.as_str().unwrap();
                let mut letters = title.chars();
                assert!(
                    letters.next().unwrap().is_ascii_uppercase(),
                    "{pointer}: {title}"
                );
                assert!(
                    letters.all(|letter| letter.is_ascii_alphabetic()),
                    "{pointer}: {title}"
                );
            }
            None => {}
        }
    });
}

#[test]
fn each_enumeration_that_a_program_receives_is_open() {
    /// Counts the open enumerations in what a program receives.
    fn walk(pointer: &str, value: &'static Value, count: &mut usize) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    walk(reference, resolve(&reference[1..]).unwrap(), count);
                }
                if let Some(Value::Array(choices)) = members.get("anyOf")
                    && is_open_enumeration(choices)
                {
                    *count += 1;
                    return;
                }
                assert!(members.get("enum").is_none(), "{pointer}: {value}");
                // The type of an event is what tells the schemas apart.
                if members.contains_key("const") {
                    assert!(
                        pointer.ends_with("Event/properties/type"),
                        "{pointer}: {value}"
                    );
                }
                for (name, value) in members {
                    walk(&format!("{pointer}/{name}"), value, count);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(pointer, item, count)),
            _ => {}
        }
    }

    let mut count = 0;
    for operation in operations("paths") {
        walk("responses", &operation["responses"], &mut count);
    }
    for operation in operations("webhooks") {
        walk("parameters", &operation["parameters"], &mut count);
        walk("requestBody", &operation["requestBody"], &mut count);
    }

    assert!(count > 20, "{count} enumerations");
}

/// A generated receiver that validates would refuse an event whose text is only a little different.
#[test]
fn no_text_in_an_event_must_match_a_pattern() {
    /// Asserts that a schema, and each that it refers to, has no pattern.
    fn walk(pointer: &str, schema: &'static Value) {
        match schema {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    walk(reference, resolve(&reference[1..]).unwrap());
                }
                assert!(members.get("pattern").is_none(), "{pointer}");
                for (name, value) in members.iter().filter(|(name, _)| *name != "examples") {
                    walk(&format!("{pointer}/{name}"), value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(pointer, item)),
            _ => {}
        }
    }

    for operation in operations("webhooks") {
        walk(
            operation["operationId"].as_str().unwrap(),
            &operation["requestBody"]["content"]["application/json"]["schema"],
        );
    }
}

/// Returns the operations of all paths, or of all webhooks.
fn operations(part: &str) -> impl Iterator<Item = &'static Value> {
    let items = DESCRIPTION[part].as_object().unwrap().values();
    let members = items.flat_map(|item| item.as_object().unwrap().values());
    members.filter(|member| member.get("operationId").is_some())
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

/// Section 7, and what the mock adds: 400, 401, 408, 413 and 503.
#[test]
fn section_7_each_slug_has_its_status() {
    let expected = BTreeSet::from([
        ("already_exists", 409),
        ("bad_request", 400),
        ("failed_precondition", 422),
        ("key_not_permitted", 403),
        ("not_found", 404),
        ("payload_too_large", 413),
        ("quota_exceeded", 402),
        ("request_timeout", 408),
        ("service_unavailable", 503),
        ("unauthorized", 401),
        ("validation_error", 422),
    ]);
    let described = described();
    let described = described.iter();
    let found: BTreeSet<(&str, u16)> = described
        .map(|(_, status, slug)| (slug.as_str(), *status))
        .collect();

    assert_eq!(found, expected);
    let known =
        resolve("/components/schemas/ApiError/properties/error/properties/code/anyOf/0/enum");
    let known = known.unwrap().as_array().unwrap().iter();
    assert_eq!(
        known
            .map(|slug| slug.as_str().unwrap())
            .collect::<BTreeSet<_>>(),
        found.iter().map(|(slug, _)| *slug).collect()
    );
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
