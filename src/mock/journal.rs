//! The record of the requests that the server received.

use std::collections::VecDeque;

use super::recorded_request::RecordedRequest;

/// Requests kept. The oldest is dropped first.
const MAX_REQUESTS: usize = 1_000;

/// Bytes of the requests kept, so that large ones do not use up the memory.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The newest requests, in the order they were handled.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<RecordedRequest>,
    /// The sum of [`size`] over the entries.
    bytes: usize,
    /// The number of the newest request. Requests are counted from 1, and no number is used twice.
    last_number: u64,
}

impl Journal {
    /// Adds a request. Drops the oldest if there are too many requests or bytes.
    pub(super) fn push(&mut self, mut request: RecordedRequest) {
        // The entry would keep the spare capacity.
        request.body.shrink_to_fit();
        self.bytes += size(&request);
        self.entries.push_back(request);
        self.last_number += 1;

        while self.entries.len() > MAX_REQUESTS
            || (self.entries.len() > 1 && self.bytes > MAX_BYTES)
        {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= size(&oldest);
        }
    }

    pub(super) fn entries(&self) -> Vec<RecordedRequest> {
        self.entries.iter().cloned().collect()
    }

    /// Returns up to `limit` requests that follow the request with the number `after`, and the number of the last of
    /// them. If there is no such request, that is `after`, or the newest number if `after` is greater.
    pub(super) fn page(&self, after: u64, limit: usize) -> (Vec<RecordedRequest>, u64) {
        let dropped = self.last_number - self.entries.len() as u64;
        let skip = usize::try_from(after.saturating_sub(dropped)).unwrap_or(usize::MAX);
        let page: Vec<_> = self
            .entries
            .iter()
            .skip(skip)
            .take(limit)
            .cloned()
            .collect();
        let next = if page.is_empty() {
            after.min(self.last_number)
        } else {
            after.max(dropped) + page.len() as u64
        };
        (page, next)
    }

    /// Returns up to `limit` values that `choose` makes of the requests and their numbers, the newest first.
    pub(super) fn newest<T>(
        &self,
        limit: usize,
        mut choose: impl FnMut(u64, &RecordedRequest) -> Option<T>,
    ) -> Vec<T> {
        let newest_first = (1..=self.last_number).rev().zip(self.entries.iter().rev());
        newest_first
            .filter_map(|(number, request)| choose(number, request))
            .take(limit)
            .collect()
    }

    /// Returns the request with a number, if it is kept.
    pub(super) fn find(&self, number: u64) -> Option<&RecordedRequest> {
        let age = usize::try_from(self.last_number.checked_sub(number)?).ok()?;
        self.entries.iter().rev().nth(age)
    }

    /// Returns how many requests are kept.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all requests. The numbers continue.
    pub(super) fn clear(&mut self) {
        *self = Self {
            last_number: self.last_number,
            ..Self::default()
        };
    }
}

/// Returns about how many bytes of memory a request takes up.
fn size(request: &RecordedRequest) -> usize {
    let headers: usize = request
        .headers
        .iter()
        .map(|(name, value)| size_of::<(String, String)>() + name.len() + value.len())
        .sum();
    size_of::<RecordedRequest>()
        + request.method.len()
        + request.path.len()
        + request.query.as_ref().map_or(0, String::len)
        + headers
        + request.body.len()
        + request.reason.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn request(path: &str, body: Vec<u8>) -> RecordedRequest {
        RecordedRequest {
            method: "GET".into(),
            path: path.into(),
            query: None,
            headers: vec![("accept".into(), "*/*".into())],
            body,
            status: Some(200),
            reason: None,
            at: Timestamp::from_unix(0),
        }
    }

    #[test]
    fn the_oldest_request_is_dropped_first() {
        let mut journal = Journal::default();

        for number in 0..MAX_REQUESTS + 5 {
            journal.push(request(&format!("/{number}"), Vec::new()));
        }

        let entries = journal.entries();
        assert_eq!(entries.len(), MAX_REQUESTS);
        assert_eq!(entries[0].path, "/5");
    }

    #[test]
    fn the_bytes_are_limited_and_the_newest_request_is_always_kept() {
        let mut journal = Journal::default();

        journal.push(request("/1", vec![0; MAX_BYTES]));
        journal.push(request("/2", vec![0; MAX_BYTES + 1]));

        let entries = journal.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].path, "/2");
        journal.push(request("/3", Vec::new()));
        assert_eq!(journal.bytes, size(&journal.entries[0]));
    }

    #[test]
    fn paths_queries_and_headers_count_as_bytes() {
        let text = "a".repeat(MAX_BYTES / 8);
        let with_path = request(&text, Vec::new());
        let with_query = RecordedRequest {
            query: Some(text.clone()),
            ..request("/", Vec::new())
        };
        let with_header = RecordedRequest {
            headers: vec![("x-long".into(), text)],
            ..request("/", Vec::new())
        };
        for long in [with_path, with_query, with_header] {
            let mut journal = Journal::default();

            for _ in 0..20 {
                journal.push(long.clone());
            }

            assert_eq!(journal.entries.len(), 7);
        }
    }

    #[test]
    fn pages_continue_after_the_last_request_of_the_page_before() {
        let mut journal = Journal::default();
        let paths = |page: Vec<RecordedRequest>| -> Vec<String> {
            page.into_iter().map(|request| request.path).collect()
        };
        for number in 1..=MAX_REQUESTS + 5 {
            journal.push(request(&format!("/{number}"), Vec::new()));
        }

        let (first, next) = journal.page(0, 2);
        assert_eq!((paths(first), next), (vec!["/6".into(), "/7".into()], 7));
        let (second, next) = journal.page(7, 1);
        assert_eq!((paths(second), next), (vec!["/8".into()], 8));
        let (last, next) = journal.page(1_004, 100);
        assert_eq!((paths(last), next), (vec!["/1005".into()], 1_005));
        assert_eq!(journal.page(1_005, 100), (Vec::new(), 1_005));
        assert_eq!(journal.page(u64::MAX, usize::MAX), (Vec::new(), 1_005));

        journal.clear();
        assert_eq!(journal.page(0, 100), (Vec::new(), 0));
        journal.push(request("/new", Vec::new()));
        let (new, next) = journal.page(1_005, 100);
        assert_eq!((paths(new), next), (vec!["/new".into()], 1_006));
    }
}
