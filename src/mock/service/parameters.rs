//! The parameters of a list, read strictly (section 4.4).

use super::address::folded;
use super::dialect::{Dialect, SegmentWithRules, UnknownMembers};
use super::json::{self, listed};
use super::refusal::Refusal;
use super::router::decoded;
use super::rule::Rule;

/// The query string, read.
pub(crate) struct Parameters {
    pub(crate) limit: usize,
    pub(crate) after: Option<String>,
    /// Folded.
    pub(crate) text: Option<String>,
    pub(crate) segment: Option<String>,
    pub(crate) rule: Option<Rule>,
}

const NAMES: [&str; 5] = ["limit", "after", "query", "segment_id", "rules"];

impl Parameters {
    pub(crate) fn read(query: &str, dialect: Dialect) -> Result<Self, Refusal> {
        let [limit, after, text, segment, rules] = pairs(query, dialect.unknown_members)?;
        if segment.is_some()
            && rules.is_some()
            && dialect.segment_with_rules == SegmentWithRules::Refused
        {
            return Err(Refusal::invalid(
                "`segment_id` and `rules` cannot be sent together",
            ));
        }
        let rule = match rules {
            None => None,
            Some(rules) => Some(rule(&rules, dialect.unknown_members).map_err(Refusal::invalid)?),
        };
        Ok(Self {
            limit: match limit {
                None => 50,
                Some(limit) => clamped(&limit)?,
            },
            after: after.filter(|after| !after.is_empty()),
            text: text
                .map(|text| folded(&text))
                .filter(|text| !text.is_empty()),
            segment,
            rule,
        })
    }
}

fn rule(text: &str, unknown: UnknownMembers) -> Result<Rule, String> {
    let read = || {
        let rule = json::value(text.as_bytes())?;
        Rule::read(&rule, unknown)
    };
    read().map_err(|error| format!("`rules`: {error}"))
}

/// The values of [`NAMES`], in that order.
fn pairs(query: &str, unknown: UnknownMembers) -> Result<[Option<String>; NAMES.len()], Refusal> {
    let mut values = [const { None }; NAMES.len()];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = form_decoded(name)?;
        let Some(place) = NAMES.iter().position(|known| *known == name) else {
            if unknown == UnknownMembers::Ignored {
                continue;
            }
            return Err(Refusal::invalid(format!(
                "`{}` is no parameter that is known here; known: {}",
                name.escape_debug(),
                listed(&NAMES)
            )));
        };
        if values[place].replace(form_decoded(value)?).is_some() {
            return Err(Refusal::invalid(format!("`{name}` is given twice")));
        }
    }
    Ok(values)
}

fn form_decoded(text: &str) -> Result<String, Refusal> {
    decoded(&text.replace('+', " "))
}

/// Any whole number, however large, drawn into 1 to 200.
fn clamped(limit: &str) -> Result<usize, Refusal> {
    let digits = limit.strip_prefix('-').unwrap_or(limit);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let limit = limit.escape_debug();
        return Err(Refusal::invalid(format!(
            "`limit` must be a whole number, not `{limit}`"
        )));
    }
    if limit.starts_with('-') {
        return Ok(1);
    }
    Ok(digits.parse().unwrap_or(usize::MAX).clamp(1, 200))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Parameters, Refusal> {
        Parameters::read(query, Dialect::default())
    }

    #[test]
    fn the_limit_is_drawn_into_its_range() {
        for (query, limit) in [
            ("", 50),
            ("limit=7", 7),
            ("limit=0", 1),
            ("limit=-5", 1),
            ("limit=200", 200),
            ("limit=201", 200),
            ("limit=99999999999999999999999999", 200),
        ] {
            assert_eq!(read(query).unwrap().limit, limit, "{query}");
        }
    }

    #[test]
    fn an_empty_text_or_cursor_is_none() {
        let parameters = read("query=&after=&").unwrap();

        assert!(parameters.text.is_none() && parameters.after.is_none());
    }

    #[test]
    fn a_plus_sign_is_a_blank_and_an_encoded_one_is_itself() {
        assert_eq!(read("query=A+b%2BC").unwrap().text.unwrap(), "a b+c");
    }

    #[test]
    fn bad_parameters_are_refused_with_their_name() {
        for (query, message) in [
            ("limit=", "`limit` must be a whole number, not ``"),
            ("limit=ten", "`limit` must be a whole number, not `ten`"),
            ("limit=1.5", "`limit` must be a whole number, not `1.5`"),
            ("limit=1&limit=1", "`limit` is given twice"),
            (
                "segment=a",
                "`segment` is no parameter that is known here; known: `limit`, `after`, `query`, `segment_id`, `rules`",
            ),
            (
                "segment_id=a&rules={}",
                "`segment_id` and `rules` cannot be sent together",
            ),
            ("rules={}", "`rules`: `match_` is missing"),
            (
                "query=%f",
                "a percent sign is not followed by two hex digits",
            ),
            ("query=%ff", "percent-encoded bytes are no UTF-8"),
        ] {
            assert_eq!(read(query).err().unwrap().message, message);
        }
        let message = read("rules=nonsense").err().unwrap().message;
        assert!(
            message.starts_with("`rules`: this is not JSON"),
            "{message}"
        );
    }
}
