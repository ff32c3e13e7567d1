//! Lists: filters and pages (section 4.4).

use serde::Serialize;

use super::address::folded;
use super::audience::{Audience, reply};
use super::contact::Contact;
use super::dialect::EndOfList;
use super::message::Reply;
use super::parameters::Parameters;
use super::refusal::Refusal;

impl Audience {
    pub(super) fn list(&self, query: &str, now: i64) -> Result<Reply, Refusal> {
        let parameters = Parameters::read(query, self.dialect)?;
        let after = parameters.after.as_deref();
        let contacts = self.roster.newest_first(after).ok_or_else(|| {
            Refusal::invalid("`after` must be the id of a contact: the last one of the page before")
        })?;
        let segment = match &parameters.segment {
            None => None,
            Some(id) => Some(self.segments.get(id).ok_or_else(|| no_segment(id))?),
        };
        let rule = parameters.rule.as_ref();
        let text = parameters.text.as_deref();
        let mut found = contacts.filter(|contact| {
            segment.is_none_or(|segment| segment.has(contact, &self.engagements, now))
                && rule.is_none_or(|rule| rule.matches(contact, &self.engagements, now))
                && text.is_none_or(|text| mentions(contact, text))
        });
        let page: Vec<&Contact> = found.by_ref().take(parameters.limit).collect();
        let next = next(self.dialect.end_of_list, page.last().copied(), || {
            found.next().is_some()
        });
        let missing = self.dialect.missing_name;
        let data = page.iter().map(|contact| contact.listed(missing)).collect();
        let status = self.dialect.success_status.code();
        Ok(reply(status, &Page { data, next }))
    }
}

#[derive(Serialize)]
struct Page<'a, T> {
    data: Vec<T>,
    /// The outer `None` is no member at all, the inner one `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Option<&'a str>>,
}

fn next(
    end: EndOfList,
    last: Option<&Contact>,
    more: impl FnOnce() -> bool,
) -> Option<Option<&str>> {
    let early = matches!(
        end,
        EndOfList::EarlyEmpty | EndOfList::EarlyNull | EndOfList::EarlyAbsent
    );
    match (last, end) {
        (Some(last), _) if !early || more() => Some(Some(&last.id)),
        (_, EndOfList::Empty | EndOfList::EarlyEmpty) => Some(Some("")),
        (_, EndOfList::Null | EndOfList::EarlyNull) => Some(None),
        (_, EndOfList::Absent | EndOfList::EarlyAbsent) => None,
    }
}

/// Whether the text, folded, is a part of the address or of either name.
fn mentions(contact: &Contact, text: &str) -> bool {
    let names = [&contact.first_name, &contact.last_name];
    folded(&contact.email).contains(text)
        || names
            .into_iter()
            .flatten()
            .any(|name| folded(name).contains(text))
}

fn no_segment(id: &str) -> Refusal {
    Refusal::not_found(format!("there is no segment `{}`", id.escape_debug()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::dialect::{Dialect, SegmentWithRules};
    use super::super::segment::SegmentKind;
    use super::super::testing::{Service, slug};
    use super::*;

    fn with(addresses: &[&str], dialect: Dialect) -> Service {
        let mut service = Service::speaking(dialect);
        for address in addresses {
            service.create(address);
        }
        service
    }

    #[test]
    fn pages_follow_one_another_without_loss_while_contacts_are_added() {
        let mut service = with(&["a@x.io", "b@x.io", "c@x.io"], Dialect::default());

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
    fn a_text_is_found_in_the_address_and_in_either_name_whatever_its_case() {
        let mut service = Service::new();
        service.post(
            "/contacts",
            &json!({"email": "one@x.io", "first_name": "Ada", "last_name": "ΟΔΟΣΑ"}),
        );
        service.create("two@x.io");

        assert_eq!(service.found("query=ONE%40"), ["one@x.io"]);
        assert_eq!(service.found("query=aDA"), ["one@x.io"]);
        assert_eq!(
            service.found("query=%CE%BF%CE%B4%CE%9F%CE%A3"),
            ["one@x.io"]
        );
        assert_eq!(service.found("query=x.io"), ["two@x.io", "one@x.io"]);
        assert_eq!(service.found("query=three"), [""; 0]);
    }

    #[test]
    fn segments_rules_and_texts_narrow_a_list_together() {
        let mut service = with(&["ada@x.io", "bob@x.io", "ann@x.io"], Dialect::default());
        let listed = SegmentKind::Contacts(vec!["Ada@x.io".to_owned(), "bob@x.io".to_owned()]);
        service.audience.put_segment("seg_list", listed).unwrap();
        let everyone = SegmentKind::Rule(json!({"match_": "all", "conditions": []}));
        service.audience.put_segment("seg_rule", everyone).unwrap();

        assert_eq!(
            service.found("segment_id=seg_list"),
            ["bob@x.io", "ada@x.io"]
        );
        assert_eq!(
            service.found("segment_id=seg_list&query=a%64a"),
            ["ada@x.io"]
        );
        assert_eq!(service.found("segment_id=seg_rule").len(), 3);
        let nobody = "rules=%7B%22match_%22%3A%22any%22%2C%22conditions%22%3A%5B%5D%7D";
        assert_eq!(service.found(&format!("query=a&{nobody}")), [""; 0]);
        assert_eq!(
            slug(&service.get("/contacts?segment_id=seg_2")),
            (404, "not_found")
        );
        assert_eq!(
            slug(&service.get("/contacts?after=con_9")),
            (422, "validation_error")
        );
        let both = format!("/contacts?segment_id=seg_list&{nobody}");
        assert_eq!(slug(&service.get(&both)), (422, "validation_error"));
        service.audience.dialect.segment_with_rules = SegmentWithRules::BothHold;
        assert_eq!(service.get(&both).1["data"], json!([]));
    }

    #[test]
    fn the_end_of_a_list_is_told_as_the_dialect_has_it() {
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
            let mut service = with(&["a@x.io", "b@x.io"], dialect);

            let first = service.get("/contacts?limit=1").1;
            let last = service.get("/contacts?limit=1&after=con_00000002").1;
            let empty = service.get("/contacts?limit=1&after=con_00000001").1;

            assert_eq!(first["next"], "con_00000002", "{end_of_list:?}");
            assert_eq!(last.get("next"), with_data.as_ref(), "{end_of_list:?}");
            assert_eq!(empty.get("next"), without.as_ref(), "{end_of_list:?}");
        }
    }
}
