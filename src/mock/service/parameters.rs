//! The query parameters of a list request (section 4.4).

use super::address::case_folded;
use super::dialect::{Dialect, SegmentWithRules, UnknownMembers};
use super::json::{self, quoted_list};
use super::percent::decode_parameter;
use super::printable::printable;
use super::refusal::Refusal;
use super::rule::Rule;

/// The parsed parameters of a list request.
pub(crate) struct ListParameters {
    /// The page size, from 1 to 200. Default: 50.
    pub(crate) limit: usize,
    /// The id of the last contact on the previous page.
    pub(crate) after: Option<String>,
    /// The text to find (`query`), case-folded.
    pub(crate) text: Option<String>,
    /// The id of the segment.
    pub(crate) segment_id: Option<String>,
    /// The ad hoc rule (`rules`).
    pub(crate) rule: Option<Rule>,
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
    pub(crate) fn parse(query: &str, dialect: Dialect) -> Result<Self, Refusal> {
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
    let rule = json::parse(text.as_bytes()).and_then(|rule| Rule::parse(&rule, dialect));
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
    Ok(digits.parse().unwrap_or(usize::MAX).clamp(1, MAX_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<ListParameters, Refusal> {
        ListParameters::parse(query, Dialect::default())
    }

    #[test]
    fn the_limit_is_clamped_to_1_to_200() {
        for (query, limit) in [
            ("", 50),
            ("limit=7", 7),
            ("limit=0", 1),
            ("limit=-5", 1),
            ("limit=200", 200),
            ("limit=201", 200),
            ("limit=99999999999999999999999999", 200),
        ] {
            assert_eq!(parse(query).unwrap().limit, limit, "{query}");
        }
    }

    #[test]
    fn an_empty_text_or_cursor_counts_as_left_out() {
        let parameters = parse("query=&after=&").unwrap();

        assert!(parameters.text.is_none() && parameters.after.is_none());
    }

    #[test]
    fn a_plus_sign_is_a_space_and_an_encoded_one_is_a_plus_sign() {
        assert_eq!(parse("query=A+b%2BC").unwrap().text.unwrap(), "a b+c");
    }

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        for (query, message) in [
            ("limit=", "`limit` must be a whole number, not \"\""),
            ("limit=ten", "`limit` must be a whole number, not \"ten\""),
            ("limit=1.5", "`limit` must be a whole number, not \"1.5\""),
            ("limit=1&limit=1", "`limit` is given twice"),
            (
                "segment=a",
                "`segment` is not a known parameter; known parameters: `limit`, `after`, `query`, `segment_id`, `rules`",
            ),
            (
                "segment_id=a&rules={}",
                "`segment_id` and `rules` cannot be sent together",
            ),
            ("rules={}", "`rules`: `match_` is missing"),
            ("query=%f", "`%` must be followed by two hex digits"),
            ("query=%ff", "the percent-encoded bytes are not valid UTF-8"),
        ] {
            assert_eq!(parse(query).err().unwrap().message, message);
        }
        let message = parse("rules=nonsense").err().unwrap().message;
        assert!(message.starts_with("`rules`: invalid JSON"), "{message}");
    }
}
