use serde_json::{json, to_value};

use super::*;

fn ada() -> Contact {
    Contact {
        id: "con_00000001".to_owned(),
        email: "ada@example.com".to_owned(),
        first_name: Some("Ada".to_owned()),
        last_name: None,
        properties: Map::from_iter([("seats".to_owned(), json!(3))]),
        unsubscribed: true,
        reason: Reason::Manual,
        created_at: 1_700_000_000,
        answers: BTreeMap::from([("news".to_owned(), false)]),
    }
}

#[test]
fn each_form_has_exactly_the_members_of_its_section() {
    let topics = BTreeMap::from([("news".to_owned(), true), ("offers".to_owned(), true)]);

    assert_eq!(
        to_value(ada().to_full(&topics, MissingName::Empty)).unwrap(),
        json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada", "last_name": "",
            "properties": {"seats": 3}, "unsubscribed": true, "unsubscribe_reason": "manual",
            "created_at": 1_700_000_000, "topics": {"news": false, "offers": true}})
    );
    assert_eq!(
        to_value(ada().to_created(MissingName::Null)).unwrap(),
        json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada", "last_name": null,
            "properties": {"seats": 3}, "unsubscribed": true, "created_at": 1_700_000_000})
    );
    assert_eq!(
        to_value(ada().to_list_item(MissingName::Empty)).unwrap(),
        json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada",
            "properties": {"seats": 3}, "unsubscribed": true, "created_at": 1_700_000_000})
    );
}

#[test]
fn a_missing_name_is_absent_if_the_dialect_says_so() {
    let created = to_value(ada().to_created(MissingName::Absent)).unwrap();

    assert_eq!(created.get("first_name"), Some(&json!("Ada")));
    assert_eq!(created.get("last_name"), None);
}

fn store_with(addresses: &[&str]) -> ContactStore {
    let mut store = ContactStore::default();
    for address in addresses {
        let email = (*address).to_owned();
        store.add(email, None, None, Map::new(), 0).unwrap();
    }
    store
}

fn addresses_after(store: &ContactStore, after: Option<&str>) -> Option<Vec<String>> {
    let contacts = store.newest_first(after)?;
    Some(contacts.map(|contact| contact.email.clone()).collect())
}

#[test]
fn contacts_created_in_the_same_second_are_listed_newest_first() {
    let store = store_with(&["a@x", "b@x", "c@x"]);

    assert_eq!(
        addresses_after(&store, None).unwrap(),
        ["c@x", "b@x", "a@x"]
    );
    assert_eq!(
        addresses_after(&store, Some("con_00000002")).unwrap(),
        ["a@x"]
    );
    assert_eq!(
        addresses_after(&store, Some("con_00000001")).unwrap(),
        [""; 0]
    );
}

#[test]
fn a_contact_that_is_put_again_keeps_its_id_and_moves_to_the_place_of_its_new_creation_time() {
    let mut store = store_with(&["a@x", "b@x", "c@x"]);

    for created_at in [5, i64::MIN, i64::MAX, -7] {
        let moved = Contact {
            id: String::new(),
            email: "b@x".to_owned(),
            created_at,
            ..store.find("b@x").unwrap().clone()
        };
        let id = store.put(moved).id.clone();

        let expected = if created_at > 0 {
            ["b@x", "c@x", "a@x"]
        } else {
            ["c@x", "a@x", "b@x"]
        };
        assert_eq!(id, "con_00000002");
        assert_eq!(addresses_after(&store, None).unwrap(), expected);
        assert_eq!(store.len(), 3);
    }
    assert_eq!(
        addresses_after(&store, Some("con_00000001")).unwrap(),
        ["b@x"]
    );
}

#[test]
fn any_puts_keep_the_list_in_order_and_every_id_a_cursor() {
    let addresses = ["a@x", "b@x", "c@x"];
    let templates = store_with(&addresses);
    let puts = addresses
        .map(|address| [-1, 0, i64::MIN, i64::MAX].map(|created_at| (address, created_at)))
        .concat();
    // Each order of up to four puts.
    let mut runs = vec![Vec::new()];
    let mut shorter = 0;
    for _ in 0..4 {
        for run in std::mem::replace(&mut shorter, runs.len())..runs.len() {
            for &put in &puts {
                runs.push([&runs[run], &[put][..]].concat());
            }
        }
    }

    for run in runs {
        let mut store = ContactStore::default();
        for &(address, created_at) in &run {
            store.put(Contact {
                id: String::new(),
                created_at,
                ..templates.find(address).unwrap().clone()
            });
        }

        let listed: Vec<&Contact> = store.newest_first(None).unwrap().collect();

        let last_times: BTreeMap<_, _> = run.iter().copied().collect();
        assert_eq!(listed.len(), last_times.len(), "{run:?}");
        for (position, contact) in listed.iter().enumerate() {
            assert_eq!(contact.created_at, last_times[&*contact.email], "{run:?}");
            let rest = store.newest_first(Some(&contact.id)).unwrap();
            let rest: Vec<&str> = rest.map(|next| &*next.id).collect();
            let expected: Vec<&str> = listed[position + 1..]
                .iter()
                .map(|next| &*next.id)
                .collect();
            assert_eq!(rest, expected, "{run:?}");
        }
        assert!(
            listed.is_sorted_by(|a, b| (a.created_at, &a.id) > (b.created_at, &b.id)),
            "{run:?}"
        );
    }
}

#[test]
fn contacts_are_listed_by_their_creation_time_then_by_their_order() {
    let mut store = ContactStore::default();
    for (address, created_at) in [("a@x", 5), ("b@x", i64::MAX), ("c@x", 5), ("d@x", i64::MIN)] {
        let email = address.to_owned();
        store
            .add(email, None, None, Map::new(), created_at)
            .unwrap();
    }

    assert_eq!(
        addresses_after(&store, None).unwrap(),
        ["b@x", "c@x", "a@x", "d@x"]
    );
    assert_eq!(
        addresses_after(&store, Some("con_00000003")).unwrap(),
        ["a@x", "d@x"]
    );
    assert_eq!(
        addresses_after(&store, Some("con_00000004")).unwrap(),
        [""; 0]
    );
}

#[test]
fn a_removed_contact_is_not_listed_but_its_id_stays_a_cursor_and_its_own() {
    let mut store = store_with(&["a@x", "b@x", "c@x"]);
    store.ceiling = Some(3);

    assert!(store.remove("B@x "));
    assert!(!store.remove("b@x"));

    assert_eq!(addresses_after(&store, None).unwrap(), ["c@x", "a@x"]);
    assert_eq!(
        addresses_after(&store, Some("con_00000002")).unwrap(),
        ["a@x"]
    );
    assert!(store.find("b@x").is_none());
    assert!(store.owner_of_id("con_00000002").is_none());
    let again = store.add("b@x".to_owned(), None, None, Map::new(), 0);
    assert_eq!(again.unwrap().id, "con_00000004");
    assert!(store.owner_of_id("con_00000002").is_none());
    assert_eq!(
        addresses_after(&store, None).unwrap(),
        ["b@x", "c@x", "a@x"]
    );
    let full = store.add("d@x".to_owned(), None, None, Map::new(), 0);
    assert_eq!(full.unwrap_err().status, 402);
}

#[test]
fn only_the_id_of_a_contact_is_a_cursor() {
    let store = store_with(&["a@x"]);
    for id in [
        "",
        "con_",
        "con_0",
        "con_1",
        "con_00000000",
        "con_00000002",
        "con_+0000001",
        "con_99999999999999999999999",
        "00000001",
        "a@x",
    ] {
        assert_eq!(addresses_after(&store, Some(id)), None, "{id}");
    }
}

#[test]
fn each_name_has_its_own_engagement() {
    for (index, name) in EngagementKind::NAMES.into_iter().enumerate() {
        assert_eq!(EngagementKind::from_name(name).unwrap() as usize, index);
    }
    assert_eq!(EngagementKind::from_name("sent"), None);
}

#[test]
fn the_error_for_an_unknown_engagement_lists_the_known_ones() {
    assert_eq!(
        EngagementKind::parse("read").unwrap_err(),
        "`read` is not a known engagement; known engagements: `delivered`, `bounced`, `complained`, `opened`, `clicked`"
    );
}
