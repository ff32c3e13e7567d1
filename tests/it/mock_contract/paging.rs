//! Section 4.4: ordering and pagination.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Api, strings};

fn create(api: &Api, numbers: impl Iterator<Item = usize>) {
    for n in numbers {
        api.create(&format!("c{n}@example.com"));
    }
}

fn addresses(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|n| format!("c{n}@example.com")).collect()
}

/// The pages up to and with the empty one; `between` happens after each.
fn walk(api: &Api, parameters: &[(&str, &str)], mut between: impl FnMut(usize)) -> Vec<Value> {
    let mut pages: Vec<Value> = Vec::new();
    loop {
        let mut asked = parameters.to_vec();
        let next = pages
            .last()
            .map(|page| page["next"].as_str().unwrap().to_owned());
        if let Some(next) = &next {
            asked.push(("after", next));
        }
        let page = api.list(&asked).expect(200);
        let ended = page["data"].as_array().unwrap().is_empty();
        pages.push(page);
        if ended {
            return pages;
        }
        between(pages.len());
    }
}

fn walked(pages: &[Value]) -> Vec<String> {
    pages
        .iter()
        .flat_map(|page| strings(&page["data"], "email"))
        .collect()
}

#[test]
fn section_4_4_ordering_is_newest_first() {
    let api = Api::start();
    for n in 0..4 {
        create(&api, n..=n);
        api.server.advance(Duration::from_secs(10));
    }

    let page = api.list(&[]).expect(200);

    assert_eq!(strings(&page["data"], "email"), addresses((0..4).rev()));
    let times: Vec<i64> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["created_at"].as_i64().unwrap())
        .collect();
    assert!(
        times.is_sorted_by(|newer, older| newer > older),
        "{times:?}"
    );
}

#[test]
fn section_4_4_ordering_is_stable_inside_one_second() {
    let api = Api::start();
    create(&api, 0..30);

    for limit in ["1", "7", "200"] {
        assert_eq!(
            walked(&walk(&api, &[("limit", limit)], |_| {})),
            addresses((0..30).rev())
        );
    }
}

#[test]
fn section_4_4_ordering_is_not_changed_by_an_update() {
    let api = Api::start();
    create(&api, 0..3);
    api.server.advance(Duration::from_secs(10));

    api.post(
        "/contacts",
        json!({"email": "c0@example.com", "first_name": "Ada"}),
    )
    .expect(200);
    api.patch(
        "/contacts/c1%40example.com",
        json!({"properties": {"a": 1}}),
    )
    .expect(200);
    api.unsubscribe("c1@example.com", ()).expect(200);

    assert_eq!(api.listed(&[]), addresses((0..3).rev()));
}

#[test]
fn section_4_4_pagination_next_passed_back_as_after_reaches_everyone_once() {
    let api = Api::start();
    create(&api, 0..10);

    for limit in 1..=11 {
        let pages = walk(&api, &[("limit", &limit.to_string())], |_| {});

        assert_eq!(walked(&pages), addresses((0..10).rev()), "limit={limit}");
        for page in &pages[..pages.len() - 1] {
            assert_eq!(
                page["next"],
                page["data"].as_array().unwrap().last().unwrap()["id"]
            );
        }
    }
}

#[test]
fn section_4_4_pagination_a_full_page_followed_by_an_empty_one_is_an_ordinary_end() {
    let api = Api::start();
    create(&api, 0..4);

    let pages = walk(&api, &[("limit", "2")], |_| {});

    let sizes: Vec<usize> = pages
        .iter()
        .map(|page| page["data"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [2, 2, 0]);
    assert_eq!(pages[2], json!({"data": [], "next": ""}));
}

#[test]
fn section_4_4_after_is_the_last_id_of_the_previous_page_also_when_next_is_not_used() {
    let api = Api::start();
    create(&api, 0..3);
    let id = api.list(&[("limit", "2")]).expect(200)["data"][1]["id"]
        .as_str()
        .unwrap()
        .to_owned();

    assert_eq!(api.listed(&[("after", &id)]), addresses(0..1));
    assert_eq!(
        api.listed(&[("after", &id), ("limit", "200")]),
        addresses(0..1),
        "with another limit too"
    );
}

#[test]
fn section_4_4_keyset_loses_and_doubles_nobody_while_contacts_are_added() {
    let api = Api::start();
    create(&api, 0..20);

    let pages = walk(&api, &[("limit", "3")], |page| {
        // Half of them within the second of those already there, half later.
        if page.is_multiple_of(2) {
            api.server.advance(Duration::from_secs(1));
        }
        create(&api, page * 100..page * 100 + 4);
    });

    assert_eq!(walked(&pages), addresses((0..20).rev()));
}

#[test]
fn section_4_4_keyset_holds_its_place_when_the_cursors_contact_stops_matching() {
    let api = Api::start();
    for n in 0..6 {
        api.create_with(&format!("c{n}@example.com"), json!({"plan": "pro"}));
    }
    let rule = json!({"match_": "all", "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}]});

    let pages = walk(
        &api,
        &[("limit", "2"), ("rules", &rule.to_string())],
        |page| {
            if page == 1 {
                api.post(
                    "/contacts",
                    json!({"email": "c4@example.com", "properties": {"plan": "free"}}),
                )
                .expect(200);
            }
        },
    );

    assert_eq!(walked(&pages), addresses((0..6).rev()));
}

#[test]
fn section_4_4_pagination_limits_count_those_who_match() {
    let api = Api::start();
    for n in 0..10 {
        api.create_with(&format!("c{n}@example.com"), json!({"even": n % 2}));
    }
    let rule = json!({"match_": "all", "conditions": [{"field": "property", "key": "even", "op": "is", "value": 0}]});

    let pages = walk(
        &api,
        &[("limit", "2"), ("rules", &rule.to_string())],
        |_| {},
    );

    assert_eq!(walked(&pages), addresses([8, 6, 4, 2, 0].into_iter()));
    let sizes: Vec<usize> = pages
        .iter()
        .map(|page| page["data"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [2, 2, 1, 0]);
}

#[test]
fn section_4_4_opted_out_contacts_are_listed() {
    let api = Api::start();
    create(&api, 0..3);

    api.unsubscribe("c1@example.com", ()).expect(200);
    api.server.report_spam("c2@example.com");

    assert_eq!(api.listed(&[]), addresses((0..3).rev()));
}
