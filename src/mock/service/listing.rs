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
mod tests {
    use serde_json::{Value, json};

    use super::super::dialect::{Dialect, SegmentWithRules};
    use super::super::rule::SegmentKind;
    use super::super::{Service, status_and_slug};
    use super::*;

    fn service_with(addresses: &[&str], dialect: Dialect) -> Service {
        let mut service = Service::with_dialect(dialect);
        for address in addresses {
            service.create(address);
        }
        service
    }

    #[test]
    fn pages_miss_and_repeat_no_contact_while_contacts_are_added() {
        let mut service = service_with(&["a@x.io", "b@x.io", "c@x.io"], Dialect::default());

        let (_, first) = service.get("/contacts?limit=2");
        service.create("d@x.io");
        let cursor = first["next"].as_str().unwrap();
        let second = service.get(&format!("/contacts?limit=2&after={cursor}")).1;
        let cursor = second["next"].as_str().unwrap();
        let third = service.get(&format!("/contacts?limit=2&after={cursor}")).1;

        assert_eq!(first["data"][0]["email"], "c@x.io");
        assert_eq!(first["data"][1]["email"], "b@x.io");
        assert_eq!(second["data"].as_array().unwrap().len(), 1);
        assert_eq!(second["data"][0]["email"], "a@x.io");
        assert_eq!(third, json!({"data": [], "next": ""}));
    }

    #[test]
    fn query_finds_a_text_in_the_address_and_both_names_in_any_case() {
        let mut service = Service::new();
        service.post(
            "/contacts",
            &json!({"email": "one@x.io", "first_name": "Ada", "last_name": "ΟΔΟΣΑ"}),
        );
        service.create("two@x.io");

        assert_eq!(service.listed_addresses("query=ONE%40"), ["one@x.io"]);
        assert_eq!(service.listed_addresses("query=aDA"), ["one@x.io"]);
        assert_eq!(
            service.listed_addresses("query=%CE%BF%CE%B4%CE%9F"),
            ["one@x.io"]
        );
        assert_eq!(
            service.listed_addresses("query=x.io"),
            ["two@x.io", "one@x.io"]
        );
        assert_eq!(service.listed_addresses("query=three"), [""; 0]);
    }

    #[test]
    fn segment_rule_and_query_filter_a_list_together() {
        let mut service = service_with(&["ada@x.io", "bob@x.io", "ann@x.io"], Dialect::default());
        let listed = SegmentKind::Contacts(vec!["Ada@x.io".to_owned(), "bob@x.io".to_owned()]);
        service.audience.put_segment("seg_list", listed).unwrap();
        let everyone = SegmentKind::Rule(json!({"match_": "all", "conditions": []}));
        service.audience.put_segment("seg_rule", everyone).unwrap();

        assert_eq!(
            service.listed_addresses("segment_id=seg_list"),
            ["bob@x.io", "ada@x.io"]
        );
        assert_eq!(
            service.listed_addresses("segment_id=seg_list&query=a%64a"),
            ["ada@x.io"]
        );
        assert_eq!(service.listed_addresses("segment_id=seg_rule").len(), 3);
        let nobody = "rules=%7B%22match_%22%3A%22any%22%2C%22conditions%22%3A%5B%5D%7D";
        assert_eq!(
            service.listed_addresses(&format!("query=a&{nobody}")),
            [""; 0]
        );
        assert_eq!(
            status_and_slug(&service.get("/contacts?segment_id=seg_2")),
            (404, "not_found")
        );
        assert_eq!(
            status_and_slug(&service.get("/contacts?after=con_9")),
            (422, "validation_error")
        );
        let both = format!("/contacts?segment_id=seg_list&{nobody}");
        assert_eq!(
            status_and_slug(&service.get(&both)),
            (422, "validation_error")
        );
    }

    #[test]
    fn a_dialect_can_combine_a_segment_with_a_rule() {
        let dialect = Dialect {
            segment_with_rules: SegmentWithRules::BothHold,
            ..Dialect::default()
        };
        let mut service = service_with(&["ada@x.io", "bob@x.io", "ann@x.io"], dialect);
        let members = SegmentKind::Contacts(vec!["ada@x.io".to_owned(), "bob@x.io".to_owned()]);
        service.audience.put_segment("seg_list", members).unwrap();
        let mut list =
            |rule: &str| service.listed_addresses(&format!("segment_id=seg_list&rules={rule}"));

        assert_eq!(list(r#"{"match_":"any","conditions":[]}"#), [""; 0]);
        assert_eq!(
            list(r#"{"match_":"all","conditions":[]}"#),
            ["bob@x.io", "ada@x.io"]
        );
    }

    #[test]
    fn the_dialect_decides_next_at_the_end_of_a_list() {
        let id = "con_00000001";
        let cases = [
            (EndOfList::Empty, Some(json!(id)), Some(json!(""))),
            (EndOfList::Null, Some(json!(id)), Some(Value::Null)),
            (EndOfList::Absent, Some(json!(id)), None),
            (EndOfList::EarlyEmpty, Some(json!("")), Some(json!(""))),
            (EndOfList::EarlyNull, Some(Value::Null), Some(Value::Null)),
            (EndOfList::EarlyAbsent, None, None),
        ];
        for (end_of_list, with_data, without) in cases {
            let dialect = Dialect {
                end_of_list,
                ..Dialect::default()
            };
            let mut service = service_with(&["a@x.io", "b@x.io"], dialect);

            let first = service.get("/contacts?limit=1").1;
            let last = service.get("/contacts?limit=1&after=con_00000002").1;
            let empty = service.get("/contacts?limit=1&after=con_00000001").1;

            assert_eq!(first["next"], "con_00000002", "{end_of_list:?}");
            assert_eq!(last.get("next"), with_data.as_ref(), "{end_of_list:?}");
            assert_eq!(empty.get("next"), without.as_ref(), "{end_of_list:?}");
        }
    }

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
