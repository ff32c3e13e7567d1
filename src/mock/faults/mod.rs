//! What goes wrong between the service and its callers, on demand.

use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};

pub(super) mod json;
mod pattern;

/// Something that goes wrong with the next requests that match.
///
/// A fault holds for every request, for as long as the server lives or until
/// [`clear_faults`](super::MockServer::clear_faults), unless it is narrowed: [`times`](Self::times) says how often,
/// [`method`](Self::method) and [`path`](Self::path) which requests. Where several faults match a request, the one that
/// was added first takes it, alone; a fault that is used up makes way for the next.
///
/// # Example: a service that is busy twice
///
/// ```
/// # use audience::mock::{Fault, MockServer};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::start().await;
///
/// server.fault(Fault::status(503).retry_after(1).times(2).method("POST").path("/contacts"));
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing until `MockServer::fault` is given it"]
pub struct Fault {
    pub(super) kind: Kind,
    pub(super) delay: Duration,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Option<Vec<u8>>,
    times: Option<u64>,
    method: Option<String>,
    path: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The request is not applied; this status is the answer.
    Status(u16),
    /// The request is applied and answered, if late or with another body.
    Answered,
    /// The request is not applied, the connection closed without an answer.
    CloseBefore,
    /// The request is applied, the connection closed without an answer.
    CloseAfter,
    /// The request is applied, the answer's head sent in full, its body in part, and the connection closed.
    CutBody,
    /// The same, and the connection is reset instead of closed.
    ResetBody,
    /// The request is not applied; what comes back is not HTTP.
    Garbage,
}

impl Fault {
    /// The request is not applied; `status` is answered, with the service's kind of error body unless
    /// [`body`](Self::body) gives another.
    ///
    /// # Panics
    ///
    /// Where `status` is none that an answer can have: below 200 or above 999.
    pub fn status(status: u16) -> Self {
        assert!(
            (200..=999).contains(&status),
            "a fault's status is between 200 and 999, not {status}"
        );
        Self::new(Kind::Status(status))
    }

    /// The request is applied at once and answered as always, but only after `delay`.
    ///
    /// A caller that gives up in between has had its write applied all the same. To hold up another fault, see
    /// [`late_by`](Self::late_by).
    pub fn delay(delay: Duration) -> Self {
        Self::new(Kind::Answered).late_by(delay)
    }

    /// The request is applied and answered with its own status, but with `body` in place of the answer's.
    pub fn wrong_body(body: impl Into<Vec<u8>>) -> Self {
        Self::new(Kind::Answered).body(body)
    }

    /// The request is read, not applied, and the connection closed without an answer.
    pub fn close_before() -> Self {
        Self::new(Kind::CloseBefore)
    }

    /// The request is applied, and the connection closed without an answer.
    pub fn close_after() -> Self {
        Self::new(Kind::CloseAfter)
    }

    /// The request is applied, and the connection closed in the middle of the answer's body.
    pub fn cut_body() -> Self {
        Self::new(Kind::CutBody)
    }

    /// The request is applied, and the connection reset (a TCP `RST`) in the middle of the answer's body.
    pub fn reset_body() -> Self {
        Self::new(Kind::ResetBody)
    }

    /// The request is not applied; bytes that are not HTTP come back, and the connection is closed.
    ///
    /// [`body`](Self::body) says which bytes.
    pub fn garbage() -> Self {
        Self::new(Kind::Garbage)
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            delay: Duration::ZERO,
            headers: Vec::new(),
            body: None,
            times: None,
            method: None,
            path: None,
        }
    }

    /// Holds for `times` requests, then no more. Unless set, the fault holds until it is cleared.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Holds for requests of this method only; case does not count.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Holds for requests to this path only.
    ///
    /// The whole path, without the query. A `*` stands for any text, slashes too: `/contacts/*/subscribe`. It does not
    /// matter which characters are percent-encoded, here or in the request.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Puts a `Retry-After` header on the answer: seconds, or the text of a date.
    ///
    /// # Panics
    ///
    /// Where the text cannot stand in a header.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what is given is a number or a literal"
    )]
    pub fn retry_after(self, after: impl ToString) -> Self {
        self.header("retry-after", after.to_string())
    }

    /// Puts a header on the answer. Given twice, it stands there twice.
    ///
    /// # Panics
    ///
    /// Where `name` or `value` cannot stand in a header, and where `name` is one of those that say where an answer or
    /// its connection ends: `connection`, `content-length`, `transfer-encoding`. To spoil these, see
    /// [`cut_body`](Self::cut_body) and [`garbage`](Self::garbage).
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        match answerable(name.as_ref(), value.as_ref()) {
            Ok(header) => self.headers.push(header),
            Err(problem) => panic!("{problem}"),
        }
        self
    }

    /// The answer's body, in place of what would have stood there.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Whatever the fault does to the answer, it does after `delay`.
    pub fn late_by(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        let same_method = self
            .method
            .as_deref()
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(method));

        same_method
            && self
                .path
                .as_deref()
                .is_none_or(|pattern| pattern::matches(pattern, path))
    }
}

/// A name and a value that can stand in a header, or why they cannot.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed_name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("{name:?} is no name of a header"))?;
    let parsed_value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| format!("the value of {name:?} cannot stand in a header"))?;
    Ok((parsed_name, parsed_value))
}

/// The same for a header of an answer: without those that the server itself writes.
fn answerable(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let header = header(name, value)?;
    if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&header.0) {
        return Err(format!(
            "a fault cannot set {name:?}, which says where an answer or its connection ends"
        ));
    }
    Ok(header)
}

/// The faults in force, in the order they were added.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        if fault.times != Some(0) {
            self.0.push(fault);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The fault for this request, counted as used.
    pub(super) fn take(&mut self, method: &str, path: &str) -> Option<Fault> {
        let index = self
            .0
            .iter()
            .position(|fault| fault.matches(method, path))?;
        match &mut self.0[index].times {
            Some(1) => Some(self.0.remove(index)),
            Some(left) => {
                *left -= 1;
                Some(self.0[index].clone())
            }
            None => Some(self.0[index].clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(faults: &mut Faults, requests: &[(&str, &str)]) -> Vec<Option<Kind>> {
        requests
            .iter()
            .map(|(method, path)| faults.take(method, path).map(|fault| fault.kind))
            .collect()
    }

    #[test]
    fn a_fault_is_used_up_and_makes_way_for_the_next() {
        let mut faults = Faults::default();
        faults.add(Fault::status(503).times(2));
        faults.add(Fault::status(500).times(1));
        faults.add(Fault::status(502).times(0));

        let taken = statuses(&mut faults, &[("GET", "/a"); 4]);

        assert_eq!(
            taken,
            [
                Some(Kind::Status(503)),
                Some(Kind::Status(503)),
                Some(Kind::Status(500)),
                None
            ]
        );
    }

    #[test]
    fn a_fault_without_a_count_holds_until_it_is_cleared() {
        let mut faults = Faults::default();
        faults.add(Fault::close_before());

        assert_eq!(
            statuses(&mut faults, &[("GET", "/"); 50]),
            [Some(Kind::CloseBefore); 50]
        );

        faults.clear();
        assert_eq!(statuses(&mut faults, &[("GET", "/")]), [None]);
    }

    #[test]
    fn a_fault_holds_for_its_method_and_path_only() {
        let mut faults = Faults::default();
        faults.add(Fault::garbage().method("post").path("/contacts"));

        let taken = statuses(
            &mut faults,
            &[
                ("GET", "/contacts"),
                ("POST", "/contacts/batch"),
                ("POST", "/contacts"),
            ],
        );

        assert_eq!(taken, [None, None, Some(Kind::Garbage)]);
    }

    #[test]
    #[should_panic(expected = "between 200 and 999, not 42")]
    fn a_status_that_cannot_be_answered_is_refused() {
        let _ = Fault::status(42);
    }

    #[test]
    #[should_panic(expected = "cannot stand in a header")]
    fn a_header_that_cannot_be_sent_is_refused() {
        let _ = Fault::status(503).retry_after("1\r\n");
    }

    #[test]
    #[should_panic(expected = "a fault cannot set \"Content-Length\"")]
    fn a_header_that_says_where_the_answer_ends_is_refused() {
        let _ = Fault::status(503).header("Content-Length", "5");
    }
}
