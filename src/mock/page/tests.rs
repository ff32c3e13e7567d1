use std::collections::BTreeSet;

use serde_json::Value;

use super::super::service;
use super::*;

#[test]
fn a_page_has_a_new_nonce_each_time_which_its_script_and_its_style_carry() {
    let policy = |page: &Response<Bytes>| page.headers()[CONTENT_SECURITY_POLICY].clone();
    let (first, second) = (response(), response());

    assert_ne!(policy(&first), policy(&second));
    let text = String::from_utf8(first.into_body().into()).unwrap();
    assert_eq!(text.matches(" nonce=\"").count(), 2);
    assert!(!text.contains(NONCE));
}

#[test]
fn the_page_has_one_script_and_one_style_and_names_no_other_address() {
    for tag in ["<script", "<style"] {
        assert_eq!(PAGE.matches(tag).count(), 1, "{tag}");
    }
    for address in ["http://", "https://", "src=", "@import", "url("] {
        let found: Vec<_> = PAGE
            .lines()
            // The name of SVG elements is no address that anything loads.
            .map(|line| line.replace("http://www.w3.org/2000/svg", ""))
            .filter(|line| line.contains(address))
            .collect();
        assert!(found.is_empty(), "{address}: {found:?}");
    }
}

#[test]
fn the_page_offers_every_event_type() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/events");
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read(file.unwrap().path()).unwrap();
        let event: Value = serde_json::from_slice(&text).unwrap();
        let event_type = event["type"].to_string();
        assert!(PAGE.contains(&event_type), "{event_type}");
    }
}

#[test]
fn the_script_never_parses_text_as_html_or_code() {
    for sink in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ] {
        assert!(!PAGE.contains(sink), "{sink}");
    }
}

#[test]
fn the_description_has_exactly_the_endpoints_of_the_mock() {
    let document: Value = serde_json::from_str(DESCRIPTION).unwrap();
    let paths = document["paths"].as_object().unwrap();

    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, item)| {
            let members = item.as_object().unwrap().keys();
            members
                .filter(|member| *member != "parameters")
                .map(|method| (method.to_uppercase(), path.clone()))
        })
        .collect();

    let routed: BTreeSet<_> = service::endpoints()
        .map(|(method, path)| (method.to_owned(), path.to_owned()))
        .collect();
    assert_eq!(described, routed);
}
