//! The choices that the interface document leaves open, as settings of the mock.

use std::fmt;

use super::dialect_settings::{dialect_settings, snake_case};
use super::unknown_choice::UnknownChoice;

dialect_settings! {
    /// The JSON shape of an error body. Section 7 does not show it.
    error_shape:
    /// The members of an error body that hold the slug and the message.
    ErrorShape {
        /// `{"error": {"code": "not_found", "message": "…"}}`
        NestedCode,
        /// `{"error": {"slug": "not_found", "message": "…"}}`
        NestedSlug,
        /// `{"error": {"type": "not_found", "message": "…"}}`
        NestedType,
        /// `{"code": "not_found", "message": "…"}`
        Code,
        /// `{"slug": "not_found", "message": "…"}`
        Slug,
        /// `{"error": "not_found", "message": "…"}`
        Error,
        /// `{"type": "not_found", "message": "…"}`
        Type,
        /// `{"name": "not_found", "message": "…"}`
        Name,
    }

    /// The name of the message in a failed batch entry. Section 2.5 does not show it.
    batch_message:
    /// The member of a failed batch entry that holds the message.
    BatchMessage {
        /// `{"email": "…", "status": "validation_error", "message": "…"}`
        Message,
        /// `{"email": "…", "status": "validation_error", "error": "…"}`
        Error,
        /// `{"email": "…", "status": "validation_error", "detail": "…"}`
        Detail,
        /// `{"email": "…", "status": "validation_error", "reason": "…"}`
        Reason,
    }

    /// The refusal of a batch with zero or more than 100 entries. Sections 4.2 and 7 do not show it.
    batch_refusal:
    /// The status and slug for a batch with zero or more than 100 entries.
    BatchRefusal {
        /// 422 `validation_error`.
        Unprocessable,
        /// 400 `bad_request`.
        BadRequest,
    }

    /// The status of a successful retrieve, list, subscribe, unsubscribe or merge. Section 4.7 does not show it.
    success_status:
    /// The status of a successful retrieve, list, subscribe, unsubscribe or merge.
    SuccessStatus {
        /// 200.
        Ok,
        /// 201.
        Created,
        /// 202.
        Accepted,
    }

    /// The form of the contact that subscribe and unsubscribe return. Sections 4.5 and 4.6 do not say which.
    consent_form:
    /// The form of the contact that subscribe and unsubscribe return.
    ConsentForm {
        /// The full form of section 2.1.
        Full,
        /// The form of section 2.2, without `unsubscribe_reason` and `topics`.
        Create,
    }

    /// A list request with both `segment_id` and `rules`. Section 4.4 does not show what happens.
    segment_with_rules:
    /// The effect of `segment_id` and `rules` in the same list request.
    SegmentWithRules {
        /// The request is refused with 422 `validation_error`.
        Refused,
        /// The list has the contacts that are in the segment and match the rule.
        BothHold,
    }

    /// The value of `next` at the end of a list. Section 4.4 says only that `data` comes back empty.
    end_of_list:
    /// The value of `next` at the end of a list, and the page on which it first appears.
    EndOfList {
        /// `""` on the empty page. Every page before it has the id of its last contact.
        Empty,
        /// `null` on the empty page.
        Null,
        /// No `next` on the empty page.
        Absent,
        /// `""` already on the last page with contacts.
        EarlyEmpty,
        /// `null` already on the last page with contacts.
        EarlyNull,
        /// No `next` already on the last page with contacts.
        EarlyAbsent,
    }

    /// The value of `unsubscribe_reason` after a subscribe without topic. Section 3.2 does not show it.
    reason_after_subscribe:
    /// The value of `unsubscribe_reason` after a subscribe clears the global opt-out.
    ReasonAfterSubscribe {
        /// `""`.
        Cleared,
        /// The reason stays as it was before the subscribe.
        Kept,
    }

    /// An upsert that leaves out `first_name`, `last_name` or `properties`. Section 4.1 does not say what happens to them.
    omitted_members:
    /// The effect of an upsert on stored members that its body leaves out.
    OmittedMembers {
        /// They keep their values. An empty `properties` object still clears the properties.
        Kept,
        /// They are cleared.
        Cleared,
    }

    /// The `first_name` or `last_name` of a contact that has none. Section 2.1 does not show it.
    missing_name:
    /// The value of a name that a contact does not have.
    MissingName {
        /// `""`.
        Empty,
        /// `null`.
        Null,
        /// The member is absent.
        Absent,
    }

    /// Property values that are neither strings nor numbers. Section 2.1 names strings and numbers only.
    property_values:
    /// The property values that a write may contain.
    PropertyValues {
        /// Strings and numbers. Any other value is refused with 422 `validation_error`.
        StringsAndNumbers,
        /// Any JSON value, stored unchanged.
        Any,
    }

    /// Members and query parameters that the document does not name, and unknown values of `on_conflict`.
    unknown_members:
    /// The effect of a member or parameter that the document does not name.
    UnknownMembers {
        /// The request is refused with 422 `validation_error`. The message names the member.
        Refused,
        /// It is ignored. An unknown `on_conflict` means `upsert`.
        Ignored,
    }

    /// A body with a content type other than JSON. Section 4 says only that bodies are JSON.
    other_content_type:
    /// The effect of a `Content-Type` other than JSON on a request with a body.
    OtherContentType {
        /// 422 `validation_error`, as for any other invalid body. Section 7 has no other status for it.
        Unprocessable,
        /// 415 `unsupported_media_type`.
        UnsupportedMediaType,
        /// The content type is ignored; the body is read as JSON.
        Ignored,
    }

    /// The day count of `joined_within_days` and `joined_before_days`. Section 2.8 does not name its member.
    joined_member:
    /// The member of a joined condition that holds the day count, also in the rule of a segment.
    JoinedMember {
        /// `{"field": "joined_within_days", "days": 30}`
        Days,
        /// `{"field": "joined_within_days", "value": 30}`
        Value,
        /// `{"field": "joined_within_days", "count": 30}`
        Count,
    }
}

impl SuccessStatus {
    /// Returns the HTTP status.
    pub(super) fn code(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::Created => 201,
            Self::Accepted => 202,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_dialect_of_all_differs_from_the_default_in_one_named_choice() {
        let departures: Vec<Dialect> = Dialect::all().collect();
        let names: HashSet<String> = departures.iter().map(ToString::to_string).collect();

        assert_eq!(names.len(), departures.len());
        assert!(!departures.contains(&Dialect::default()));
        for name in names {
            assert_eq!(name.matches(": ").count(), 1, "{name}");
        }
    }

    #[test]
    fn every_choice_can_be_made_by_its_name() {
        let mut made = HashSet::new();
        for (name, choices) in Dialect::choices() {
            for choice in choices {
                made.insert(Dialect::default().choose(name, &choice).unwrap());
            }
        }

        assert_eq!(made.len(), Dialect::all().count() + 1);
        assert!(Dialect::all().all(|dialect| made.contains(&dialect)));
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let error = Dialect::default()
            .choose("end_of_lisp", "null")
            .unwrap_err();

        let message = error.to_string();
        assert!(message.starts_with("a dialect has no `end_of_lisp`; its names: `error_shape`, "));
        assert!(message.contains("`end_of_list`"), "{message}");
    }

    #[test]
    fn display_names_every_choice_that_differs_from_the_default() {
        let dialect = Dialect {
            omitted_members: OmittedMembers::Cleared,
            missing_name: MissingName::Absent,
            ..Dialect::default()
        };

        assert_eq!(
            dialect.to_string(),
            "omitted_members: Cleared, missing_name: Absent"
        );
    }
}
