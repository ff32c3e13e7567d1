//! The query of a call that returns a list, or a page of it.

use std::str::FromStr;

use crate::mock::service::refusal::Refusal;

/// Which page to return.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageQuery<Cursor> {
    /// The item before the page. Default: `None`, which means the beginning of the list.
    pub(super) after: Option<Cursor>,
    /// The number of items on the page. Default: no limit.
    pub(super) limit: usize,
}

impl<Cursor: FromStr> PageQuery<Cursor> {
    /// Parses a query. Returns `None` if it does not ask for a page.
    ///
    /// # Errors
    ///
    /// A 422 if a parameter is unknown or repeated, or its value is invalid.
    pub(super) fn parse(query: Option<&str>) -> Result<Option<Self>, Refusal> {
        let (mut after, mut limit) = (None, None);
        for parameter in query.unwrap_or_default().split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "" if value.is_empty() => {}
                "after" => set(&mut after, name, value)?,
                "limit" => set(&mut limit, name, value)?,
                _ => {
                    return Err(Refusal::invalid(format!(
                        "unknown query parameter {name:?}; use `limit` and `after`"
                    )));
                }
            }
        }
        if limit == Some(0_u64) {
            return Err(Refusal::invalid("`limit` must be at least 1"));
        }
        if after.is_none() && limit.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            after,
            limit: limit.map_or(usize::MAX, |limit| {
                usize::try_from(limit).unwrap_or(usize::MAX)
            }),
        }))
    }
}

fn set<T: FromStr>(parameter: &mut Option<T>, name: &str, value: &str) -> Result<(), Refusal> {
    // Any text can be a cursor of text, so only a number can be invalid.
    let parsed = value
        .parse()
        .map_err(|_| Refusal::invalid(format!("`{name}` must be a whole number, not {value:?}")))?;
    if parameter.replace(parsed).is_some() {
        return Err(Refusal::invalid(format!("`{name}` is repeated")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_for_by_limit_or_after() {
        let page = |after, limit| Ok(Some(PageQuery { after, limit }));
        let parse = PageQuery::<u64>::parse;

        assert_eq!(parse(None), Ok(None));
        assert_eq!(parse(Some("")), Ok(None));
        assert_eq!(parse(Some("limit=5")), page(None, 5));
        assert_eq!(parse(Some("after=7")), page(Some(7), usize::MAX));
        assert_eq!(parse(Some("after=7&limit=5")), page(Some(7), 5));
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
            let refusal = PageQuery::<u64>::parse(Some(query)).unwrap_err();

            assert_eq!(refusal.status, 422, "{query}");
            assert!(refusal.message.contains(reason), "{query}: {refusal:?}");
        }
    }
}
