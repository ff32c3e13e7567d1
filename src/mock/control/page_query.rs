//! The query of a call that lists recorded requests.

use crate::mock::service::refusal::Refusal;

/// Which page to return.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageQuery {
    /// The number of the request before the page. Default: 0.
    pub(super) after: u64,
    /// The number of requests on the page. Default: no limit.
    pub(super) limit: usize,
}

impl PageQuery {
    /// Parses a query. Returns `None` if it does not ask for a page.
    ///
    /// # Errors
    ///
    /// A 422 if a parameter is unknown or repeated, or its value is invalid.
    pub(super) fn parse(query: Option<&str>) -> Result<Option<Self>, Refusal> {
        let (mut after, mut limit) = (None, None);
        for parameter in query.unwrap_or_default().split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let target = match name {
                "" if value.is_empty() => continue,
                "after" => &mut after,
                "limit" => &mut limit,
                _ => {
                    return Err(Refusal::invalid(format!(
                        "unknown query parameter {name:?}; use `limit` and `after`"
                    )));
                }
            };
            let number: u64 = value.parse().map_err(|_| {
                Refusal::invalid(format!("`{name}` must be a whole number, not {value:?}"))
            })?;
            if target.replace(number).is_some() {
                return Err(Refusal::invalid(format!("`{name}` is repeated")));
            }
        }
        if limit == Some(0) {
            return Err(Refusal::invalid("`limit` must be at least 1"));
        }
        if (after, limit) == (None, None) {
            return Ok(None);
        }
        Ok(Some(Self {
            after: after.unwrap_or(0),
            limit: limit.map_or(usize::MAX, |limit| {
                usize::try_from(limit).unwrap_or(usize::MAX)
            }),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_for_by_limit_or_after() {
        let page = |after, limit| Ok(Some(PageQuery { after, limit }));

        assert_eq!(PageQuery::parse(None), Ok(None));
        assert_eq!(PageQuery::parse(Some("")), Ok(None));
        assert_eq!(PageQuery::parse(Some("limit=5")), page(0, 5));
        assert_eq!(PageQuery::parse(Some("after=7")), page(7, usize::MAX));
        assert_eq!(PageQuery::parse(Some("after=7&limit=5")), page(7, 5));
    }

    #[test]
    fn an_invalid_query_is_refused_with_the_reason() {
        for (query, reason) in [
            ("limit=0", "at least 1"),
            ("limit=", "must be a whole number"),
            ("limit", "must be a whole number"),
            ("limit=-1", "must be a whole number"),
            ("after=x", "must be a whole number"),
            ("after=99999999999999999999", "must be a whole number"),
            ("after=1&after=2", "is repeated"),
            ("page=2", "unknown query parameter"),
        ] {
            let refusal = PageQuery::parse(Some(query)).unwrap_err();

            assert_eq!(refusal.status, 422, "{query}");
            assert!(refusal.message.contains(reason), "{query}: {refusal:?}");
        }
    }
}
