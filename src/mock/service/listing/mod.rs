//! List contacts: `GET /contacts`, with its filters and pages (section 4.4).

use bytes::Bytes;
use http::Response;
use serde::Serialize;

use super::contact::Contact;
use super::dialect::{Dialect, EndOfList, SegmentWithRules, UnknownMembers};
use super::rule::Rule;
use super::{Audience, Refusal, decode_parameter, json_response};
use crate::mock::text::{case_folded, printable, quoted_list};

/// Returns a page of the contacts that pass every filter, newest first.
///
/// # Errors
///
/// - 422 `validation_error` if a parameter is invalid, or if `after` is not the id of a contact;
/// - 404 `not_found` if the segment is unknown.
pub(super) fn list(audience: &Audience, query: &str, now: i64) -> Result<Response<Bytes>, Refusal> {
    let dialect = audience.dialect;
    let parameters = ListParameters::parse(query, dialect)?;
    let after = parameters.after.as_deref();
    let contacts = audience.contacts.newest_first(after).ok_or_else(|| {
        Refusal::invalid("`after` must be the id of a contact: the last one on the previous page")
    })?;
    let segment = match &parameters.segment_id {
        None => None,
        Some(id) => Some(audience.segment(id)?),
    };
    let engagements = &audience.engagements;
    let rule = parameters.rule.as_ref();
    let text = parameters.text.as_deref();
    let mut matching = contacts.filter(|contact| {
        segment.is_none_or(|segment| segment.contains(contact, engagements, now))
            && rule.is_none_or(|rule| rule.matches(contact, engagements, now))
            && text.is_none_or(|text| contact.contains_text(text))
    });

    let page: Vec<&Contact> = matching.by_ref().take(parameters.limit).collect();
    let next = next_cursor(dialect.end_of_list, page.last().copied(), || {
        matching.next().is_some()
    });
    let data = page
        .iter()
        .map(|contact| contact.to_list_item(dialect.missing_name))
        .collect();
    let status = dialect.success_status.code();
    Ok(json_response(status, &Page { data, next }))
}

/// The body of a list response.
#[derive(Serialize)]
struct Page<'a, T> {
    data: Vec<T>,
    /// `None` leaves the member out, `Some(None)` writes `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Option<&'a str>>,
}

/// Returns the value of `next` for a page with a last contact, as [`Page::next`] holds it.
///
/// By default this is the id of the last contact, even if no contact follows (section 4.4). `has_more` is called only
/// if the dialect marks the last page with contacts as the end.
fn next_cursor(
    end: EndOfList,
    last: Option<&Contact>,
    has_more: impl FnOnce() -> bool,
) -> Option<Option<&str>> {
    let early = matches!(
        end,
        EndOfList::EarlyEmpty | EndOfList::EarlyNull | EndOfList::EarlyAbsent
    );
    match (last, end) {
        (Some(last), _) if !early || has_more() => Some(Some(&last.id)),
        (_, EndOfList::Empty | EndOfList::EarlyEmpty) => Some(Some("")),
        (_, EndOfList::Null | EndOfList::EarlyNull) => Some(None),
        (_, EndOfList::Absent | EndOfList::EarlyAbsent) => None,
    }
}

/// The parsed parameters of a list request.
struct ListParameters {
    /// The page size, from 1 to 200. Default: 50.
    limit: usize,
    /// The id of the last contact on the previous page.
    after: Option<String>,
    /// The text to find (`query`), case-folded.
    text: Option<String>,
    /// The id of the segment.
    segment_id: Option<String>,
    /// The ad hoc rule (`rules`).
    rule: Option<Rule>,
}

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;
const NAMES: [&str; 5] = ["limit", "after", "query", "segment_id", "rules"];

impl ListParameters {
    /// Parses a query string. An empty `after` or `query` counts as left out.
    ///
    /// # Errors
    ///
    /// 422 `validation_error` if a parameter is malformed or given twice, or if the dialect refuses it.
    fn parse(query: &str, dialect: Dialect) -> Result<Self, Refusal> {
        let [limit, after, text, segment_id, rules] =
            decode_values(query, dialect.unknown_members)?;
        if segment_id.is_some()
            && rules.is_some()
            && dialect.segment_with_rules == SegmentWithRules::Refused
        {
            return Err(Refusal::invalid(
                "`segment_id` and `rules` cannot be sent together",
            ));
        }
        let rule = match rules {
            None => None,
            Some(rules) => Some(parse_rule(&rules, dialect).map_err(Refusal::invalid)?),
        };
        Ok(Self {
            limit: match limit {
                None => DEFAULT_LIMIT,
                Some(limit) => parse_limit(&limit)?,
            },
            after: after.filter(|after| !after.is_empty()),
            text: text
                .map(|text| case_folded(&text))
                .filter(|text| !text.is_empty()),
            segment_id,
            rule,
        })
    }
}

/// Returns the decoded values of [`NAMES`], in that order.
fn decode_values(
    query: &str,
    unknown: UnknownMembers,
) -> Result<[Option<String>; NAMES.len()], Refusal> {
    let mut values = [const { None }; NAMES.len()];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode_parameter(name)?;
        let Some(index) = NAMES.iter().position(|known| *known == name) else {
            if unknown == UnknownMembers::Ignored {
                continue;
            }
            return Err(Refusal::invalid(format!(
                "`{}` is not a known parameter; known parameters: {}",
                printable(&name),
                quoted_list(&NAMES)
            )));
        };
        if values[index].replace(decode_parameter(value)?).is_some() {
            return Err(Refusal::invalid(format!("`{name}` is given twice")));
        }
    }
    Ok(values)
}

fn parse_rule(text: &str, dialect: Dialect) -> Result<Rule, String> {
    let rule = Rule::parse(text.as_bytes(), dialect);
    rule.map_err(|error| format!("`rules`: {error}"))
}

/// Parses a whole number of any size and clamps it to the range 1 to 200 (section 4.4).
fn parse_limit(limit: &str) -> Result<usize, Refusal> {
    let digits = limit.strip_prefix('-').unwrap_or(limit);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let limit = printable(limit);
        return Err(Refusal::invalid(format!(
            "`limit` must be a whole number, not \"{limit}\""
        )));
    }
    if limit.starts_with('-') {
        return Ok(1);
    }
    // Only a number that is too long does not parse here. It is clamped like any other.
    Ok(digits.parse().unwrap_or(usize::MAX).clamp(1, MAX_LIMIT))
}

#[cfg(test)]
mod tests;
