//! Listing contacts that the service splits into pages in any way.

use audience::contacts::ContactStream;
use futures_util::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::paged_service::{PagedService, ids};
use support::contacts;

/// For each page, how many contacts it has and in which style its `next` is written.
fn splits() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((1..6_usize, 0..5_u8), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_split_into_pages_is_listed_completely_in_order_and_from_any_point(split in splits()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let all: Vec<String> = (0..split.iter().map(|(size, _)| size).sum()).map(|n| format!("c{n}")).collect();
            let server = split_into_pages(&all, &split).serve().await;
            let contacts = contacts(server.uri());

            assert_eq!(ids(&contacts).await, all);
            assert_eq!(contacts.list().count().await.unwrap(), all.len() as u64);
            let sizes: Vec<_> = contacts.list().pages().map_ok(|page| page.data.len()).try_collect().await.unwrap();
            assert_eq!(sizes, split.iter().map(|(size, _)| *size).collect::<Vec<_>>());

            for (stop, prefetch) in [(1, false), (1, true), (all.len() / 2, false), (all.len() / 2, true), (all.len(), true)] {
                let mut first = contacts.list().stream();
                if prefetch {
                    first = first.prefetch();
                }
                let mut seen = take(&mut first, stop).await;
                let mut rest = contacts.list();
                if let Some(cursor) = first.cursor() {
                    rest = rest.after(cursor);
                }
                seen.extend(take(&mut rest.stream(), usize::MAX).await);
                assert_eq!(seen, all, "stopped after {stop}, prefetch: {prefetch}");
            }
        });
    }
}

async fn take(stream: &mut ContactStream, count: usize) -> Vec<String> {
    stream
        .take(count)
        .map_ok(|contact| contact.id)
        .try_collect()
        .await
        .unwrap()
}

/// Serves these ids in pages of these sizes. Every id works as a cursor (section 4.4); pages of style 0 have an
/// opaque cursor instead.
fn split_into_pages(all: &[String], split: &[(usize, u8)]) -> PagedService {
    let service = PagedService::default();
    let mut start = 0;
    let mut after = None;
    for (number, &(size, style)) in split.iter().enumerate() {
        let ids: Vec<&str> = all[start..start + size]
            .iter()
            .map(String::as_str)
            .collect();
        let opaque = format!("page {number}/{size}");
        let last = ids[size - 1].to_owned();
        let (next, cursor) = match style {
            0 => (json!(opaque), opaque),
            1 => (json!(last), last),
            2 => (json!(""), last),
            3 => (Value::Null, last),
            _ => (json!("missing"), last),
        };
        service.put(after.as_deref(), &ids, next.clone());
        for (index, id) in ids.iter().enumerate().take(size - 1) {
            service.put(Some(id), &ids[index + 1..], next.clone());
        }
        after = Some(cursor);
        start += size;
    }
    service.put(after.as_deref(), &[], json!(""));
    service
}
