//! Section 4.4: ordering and pagination.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Api, NOW, strings};

fn create(api: &Api, numbers: impl Iterator<Item = usize>) {
    for n in numbers {
        api.create(&format!("c{n}@example.com"));
    }
}

fn addresses(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|n| format!("c{n}@example.com")).collect()
}

/// Lists every page up to the empty one, which is included. Calls `between` after each page but the last.
fn all_pages(api: &Api, parameters: &[(&str, &str)], mut between: impl FnMut(usize)) -> Vec<Value> {
    let mut pages: Vec<Value> = Vec::new();
    loop {
        let mut query = parameters.to_vec();
        let next = pages
            .last()
            .map(|page| page["next"].as_str().unwrap().to_owned());
        if let Some(next) = &next {
            query.push(("after", next));
        }
        let page = api.list(&query).expect(200);
        let is_last = page["data"].as_array().unwrap().is_empty();
        pages.push(page);
        if is_last {
            return pages;
        }
        between(pages.len());
    }
}

fn emails(pages: &[Value]) -> Vec<String> {
    pages
        .iter()
        .flat_map(|page| strings(&page["data"], "email"))
        .collect()
}

#[test]
fn section_4_4_contacts_are_listed_newest_first() {
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
fn section_4_4_the_order_is_stable_within_one_second() {
    let api = Api::start();
    create(&api, 0..30);

    for limit in ["1", "7", "200"] {
        assert_eq!(
            emails(&all_pages(&api, &[("limit", limit)], |_| {})),
            addresses((0..30).rev())
        );
    }
}

#[test]
fn section_4_4_an_update_does_not_change_the_order() {
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
fn section_4_4_passing_next_back_as_after_lists_everyone_once() {
    let api = Api::start();
    create(&api, 0..10);

    for limit in 1..=11 {
        let pages = all_pages(&api, &[("limit", &limit.to_string())], |_| {});

        assert_eq!(emails(&pages), addresses((0..10).rev()), "limit={limit}");
        for page in &pages[..pages.len() - 1] {
            assert_eq!(
                page["next"],
                page["data"].as_array().unwrap().last().unwrap()["id"]
            );
        }
    }
}

#[test]
fn section_4_4_a_full_last_page_is_followed_by_an_empty_one() {
    let api = Api::start();
    create(&api, 0..4);

    let pages = all_pages(&api, &[("limit", "2")], |_| {});

    let sizes: Vec<usize> = pages
        .iter()
        .map(|page| page["data"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [2, 2, 0]);
    assert_eq!(pages[2], json!({"data": [], "next": ""}));
}

#[test]
fn section_4_4_after_accepts_the_id_of_the_last_contact_of_a_page() {
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
        "with a different limit too"
    );
}

#[test]
fn section_4_4_paging_neither_misses_nor_repeats_contacts_while_others_are_added() {
    let api = Api::start();
    create(&api, 0..20);

    let pages = all_pages(&api, &[("limit", "3")], |page| {
        // Half of them join in the same second as the earlier ones, half later.
        if page.is_multiple_of(2) {
            api.server.advance(Duration::from_secs(1));
        }
        create(&api, page * 100..page * 100 + 4);
    });

    assert_eq!(emails(&pages), addresses((0..20).rev()));
}

#[test]
fn section_4_4_a_cursor_stays_valid_when_its_contact_stops_matching() {
    let api = Api::start();
    for n in 0..6 {
        api.create_with(&format!("c{n}@example.com"), json!({"plan": "pro"}));
    }
    let rule = json!({"match_": "all", "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}]});

    let pages = all_pages(
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

    assert_eq!(emails(&pages), addresses((0..6).rev()));
}

#[test]
fn section_4_4_the_limit_counts_only_matching_contacts() {
    let api = Api::start();
    for n in 0..10 {
        api.create_with(&format!("c{n}@example.com"), json!({"even": n % 2}));
    }
    let rule = json!({"match_": "all", "conditions": [{"field": "property", "key": "even", "op": "is", "value": 0}]});

    let pages = all_pages(
        &api,
        &[("limit", "2"), ("rules", &rule.to_string())],
        |_| {},
    );

    assert_eq!(emails(&pages), addresses([8, 6, 4, 2, 0].into_iter()));
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

#[test]
fn section_4_4_contacts_are_listed_by_created_at_if_the_clock_was_set_back() {
    let api = Api::start();
    for (n, at) in [
        (0, NOW),
        (1, NOW + 20),
        (2, NOW + 10),
        (3, NOW - 5),
        (4, NOW + 10),
    ] {
        api.server.set_clock(at);
        create(&api, n..=n);
    }
    let newest_first = addresses([1, 4, 2, 0, 3].into_iter());

    assert_eq!(api.listed(&[]), newest_first);
    for limit in ["1", "2", "3"] {
        assert_eq!(
            emails(&all_pages(&api, &[("limit", limit)], |_| {})),
            newest_first,
            "limit={limit}"
        );
    }
}
