//! The query parameters of a list that choose among its items.

use super::page_query::PageQuery;
use crate::mock::service::refusal::Refusal;
use crate::mock::service::router::decode_parameter;

/// The decoded values of the filters that a query names. An empty value counts as left out.
#[derive(Debug, Default)]
pub(super) struct Filters(Vec<(&'static str, String)>);

impl Filters {
    /// Splits a query into the filters with these names, and which page to return.
    ///
    /// # Errors
    ///
    /// A 422 if a parameter is unknown or repeated, or its value is invalid.
    pub(super) fn parse<Cursor: std::str::FromStr>(
        query: Option<&str>,
        names: &[&'static str],
    ) -> Result<(Self, Option<PageQuery<Cursor>>), Refusal> {
        let mut filters = Self::default();
        let mut others = Vec::new();
        for parameter in query.unwrap_or_default().split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let Some(known) = names.iter().find(|known| **known == name) else {
                if !matches!(name, "" | "limit" | "after") {
                    let known = names.join("`, `");
                    return Err(Refusal::invalid(format!(
                        "unknown query parameter {name:?}; this list has `{known}` and `limit`"
                    )));
                }
                others.push(parameter);
                continue;
            };
            if filters.0.iter().any(|(other, _)| other == known) {
                return Err(Refusal::invalid(format!("`{known}` is repeated")));
            }
            filters.0.push((known, decode_parameter(value)?));
        }
        let page = PageQuery::parse(Some(&others.join("&")))?;
        Ok((filters, page))
    }

    /// Returns the value of a filter, if there is one.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, value)| *other == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// Returns whether the newest items are to come first.
    ///
    /// # Errors
    ///
    /// A 422 if `order` is not `newest`.
    pub(super) fn newest_first(&self) -> Result<bool, Refusal> {
        match self.text("order") {
            None => Ok(false),
            Some("newest") => Ok(true),
            Some(other) => Err(Refusal::invalid(format!(
                "`order` must be `newest`, not {other:?}"
            ))),
        }
    }

    /// Returns one of `values` that a filter names.
    ///
    /// # Errors
    ///
    /// A 422 that lists the values, if the filter has another.
    pub(super) fn one_of<'v>(
        &self,
        name: &str,
        values: &[&'v str],
    ) -> Result<Option<&'v str>, Refusal> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match values.iter().find(|value| **value == text) {
            Some(value) => Ok(Some(value)),
            None => Err(Refusal::invalid(format!(
                "`{name}` must be one of {}, not {text:?}",
                values.join(", ")
            ))),
        }
    }
}
