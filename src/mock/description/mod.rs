//! The description of the service in OpenAPI 3.1, and a page that shows it.
//!
//! `openapi/audience.json` is written by hand, from the interface document. Nothing in the mock is generated from it,
//! and it is generated from nothing: tests compare the two.

use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

use super::page;
use super::response::MockResponse;

const DOCUMENT: &str = include_str!("../../../openapi/audience.json");
const PAGE: &str = include_str!("page.html");

/// Returns the description as JSON.
pub(super) fn document() -> MockResponse {
    MockResponse {
        status: 200,
        headers: vec![
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ],
        body: DOCUMENT.into(),
    }
}

/// Returns the page that shows the description.
pub(super) fn page() -> MockResponse {
    page::html(PAGE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::service::router;
    use super::*;

    #[test]
    fn the_description_has_exactly_the_endpoints_of_the_mock() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
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

        let routed: BTreeSet<_> = router::endpoints()
            .map(|(method, path)| (method.to_owned(), path.to_owned()))
            .collect();
        assert_eq!(described, routed);
    }
}
