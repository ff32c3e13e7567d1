//! List contacts: `GET /contacts`, with its filters and pages (section 4.4).

use serde::Serialize;

use super::address::case_folded;
use super::audience_state::AudienceState;
use super::contact::Contact;
use super::dialect::EndOfList;
use super::message::Reply;
use super::parameters::ListParameters;
use super::refusal::Refusal;

/// Returns a page of the contacts that pass every filter, newest first.
///
/// # Errors
///
/// - 422 `validation_error` if a parameter is invalid, or if `after` is not the id of a contact;
/// - 404 `not_found` if the segment is unknown.
pub(super) fn list(state: &AudienceState, query: &str, now: i64) -> Result<Reply, Refusal> {
    let dialect = state.dialect();
    let parameters = ListParameters::parse(query, dialect)?;
    let after = parameters.after.as_deref();
    let contacts = state.contacts().newest_first(after).ok_or_else(|| {
        Refusal::invalid("`after` must be the id of a contact: the last one on the previous page")
    })?;
    let segment = match &parameters.segment_id {
        None => None,
        Some(id) => Some(state.segment(id)?),
    };
    let engagements = state.engagements();
    let rule = parameters.rule.as_ref();
    let text = parameters.text.as_deref();
    let mut matching = contacts.filter(|contact| {
        segment.is_none_or(|segment| segment.contains(contact, engagements, now))
            && rule.is_none_or(|rule| rule.matches(contact, engagements, now))
            && text.is_none_or(|text| contains_text(contact, text))
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
    Ok(Reply::json(status, &Page { data, next }))
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

/// Returns whether the address or one of the names contains a case-folded text (`query`).
pub(super) fn contains_text(contact: &Contact, text: &str) -> bool {
    let names = [&contact.first_name, &contact.last_name];
    contact.key.contains(text)
        || names
            .into_iter()
            .flatten()
            .any(|name| case_folded(name).contains(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::dialect::{Dialect, SegmentWithRules};
    use super::super::segment::SegmentKind;
    use super::super::testing::{Service, status_and_slug};
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
            service.listed_addresses("query=%CE%BF%CE%B4%CE%9F%CE%A3"),
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
}
