//! The choices that the interface document leaves open.

use std::fmt;

use crate::ConfigError;
use crate::mock::text::{printable, quoted_list};

/// Declares [`Dialect`] and an enum for each of its fields from one table, so that `Dialect::all` and `Display`
/// cannot miss a choice. The first choice of each enum is the default.
macro_rules! dialect_settings {
    ($(
        $(#[$field_doc:meta])*
        $field:ident:
        $(#[$choice_doc:meta])*
        $Choice:ident {
            $(#[$default_doc:meta])* $Default:ident,
            $( $(#[$other_doc:meta])* $Other:ident, )+
        }
    )*) => {
        /// The mock's choice for each question that the interface document leaves open.
        ///
        /// Each field is one question, and its type lists the choices. The document does not say which of them the real
        /// service made. Run important tests under each of them with [`Dialect::all`].
        ///
        /// [`Display`](fmt::Display) names the choices that differ from the default, such as `end_of_list: Null`.
        ///
        /// Minor releases of this crate add fields. So always end the expression with `..Dialect::default()`, as in the
        /// example, and a pattern with `..`.
        ///
        /// # Example: a server that differs from the default in one choice
        ///
        /// ```
        /// use audience::mock::dialect::EndOfList;
        /// use audience::mock::{Dialect, MockServer};
        ///
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() {
        /// let dialect = Dialect { end_of_list: EndOfList::Null, ..Dialect::default() };
        /// let server = MockServer::builder().dialect(dialect).start().await;
        /// # drop(server);
        ///
        /// assert_eq!(dialect.to_string(), "end_of_list: Null");
        /// assert_eq!(Dialect::default().to_string(), "the default dialect");
        /// # }
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Dialect {
            $(
                $(#[$field_doc])*
                ///
                #[doc = concat!("Default: [`", stringify!($Choice), "::", stringify!($Default), "`].")]
                pub $field: $Choice,
            )*
        }

        impl Dialect {
            /// Returns every dialect that differs from the default in exactly one choice.
            ///
            /// The default dialect is not among them.
            ///
            /// # Example: one test under every dialect
            ///
            /// ```
            /// use audience::mock::{Dialect, MockServer};
            ///
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() {
            /// for dialect in Dialect::all() {
            ///     let server = MockServer::builder().dialect(dialect).start().await;
            ///
            ///     // Run your code against `server`, and name the dialect if an assertion fails.
            ///     assert!(server.requests().is_empty(), "with {dialect}");
            /// }
            /// # }
            /// ```
            pub fn all() -> impl Iterator<Item = Self> {
                [$( $( Self { $field: $Choice::$Other, ..Self::default() }, )+ )*].into_iter()
            }
        }

        impl Dialect {
            /// Returns the name of each field and the names of its choices, the default first.
            ///
            /// These are the names in a [seed](crate::mock#seeds) and in `audience-mock --dialect NAME=CHOICE`.
            ///
            /// # Example: what `--dialect` accepts
            ///
            /// ```
            /// use audience::mock::Dialect;
            ///
            /// let (name, choices) = Dialect::choices().find(|(name, _)| *name == "missing_name").expect("it is a field");
            ///
            /// assert_eq!(choices, ["empty", "null", "absent"], "the choices of {name}");
            /// ```
            pub fn choices() -> impl Iterator<Item = (&'static str, Vec<String>)> {
                [$( (
                    stringify!($field),
                    vec![snake_case(stringify!($Default)), $( snake_case(stringify!($Other)) ),+],
                ), )*].into_iter()
            }

            /// Makes one choice by its name; see [`choices`](Self::choices).
            ///
            /// # Errors
            ///
            /// A [`ConfigError`] if there is no field `name`, or if it has no such choice. The message lists the known
            /// ones.
            ///
            /// # Example: a choice from a configuration file
            ///
            /// ```
            /// use audience::mock::Dialect;
            /// use audience::mock::dialect::EndOfList;
            ///
            /// # fn main() -> Result<(), audience::ConfigError> {
            /// let dialect = Dialect::default().choose("end_of_list", "null")?;
            /// assert_eq!(dialect.end_of_list, EndOfList::Null);
            ///
            /// let error = dialect.choose("missing_name", "nil").unwrap_err();
            /// assert_eq!(
            ///     error.to_string(),
            ///     "`missing_name` has no choice `nil`; its choices: `empty`, `null`, `absent`"
            /// );
            /// # Ok(())
            /// # }
            /// ```
            pub fn choose(mut self, name: &str, choice: &str) -> Result<Self, ConfigError> {
                match name {
                    $( stringify!($field) => {
                        let known = [$Choice::$Default, $( $Choice::$Other ),+];
                        let chosen = known.into_iter().find(|known| snake_case(&format!("{known:?}")) == choice);
                        self.$field = chosen.ok_or_else(|| {
                            unknown_choice(name, choice, &known.map(|known| snake_case(&format!("{known:?}"))))
                        })?;
                    } )*
                    _ => return Err(unknown_name(name, &Self::choices().map(|(known, _)| known).collect::<Vec<_>>())),
                }
                Ok(self)
            }
        }

        /// Writes the choices that differ from the default, separated by commas.
        impl fmt::Display for Dialect {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut departures = Vec::new();
                $( if self.$field != $Choice::$Default {
                    departures.push(format!("{}: {:?}", stringify!($field), self.$field));
                } )*
                if departures.is_empty() {
                    return f.write_str("the default dialect");
                }
                f.write_str(&departures.join(", "))
            }
        }

        $(
            $(#[$choice_doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            #[non_exhaustive]
            pub enum $Choice {
                $(#[$default_doc])*
                ///
                /// Default.
                #[default]
                $Default,
                $( $(#[$other_doc])* $Other, )+
            }
        )*
    };
}

/// Returns the error for a field that does not exist.
fn unknown_name(name: &str, known: &[&str]) -> ConfigError {
    let (name, known) = (printable(name), quoted_list(known));
    ConfigError::new(format!("a dialect has no `{name}`; its names: {known}"))
}

/// Returns the error for a field that has no such choice.
fn unknown_choice(name: &str, choice: &str, known: &[String]) -> ConfigError {
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    let (choice, known) = (printable(choice), quoted_list(&known));
    ConfigError::new(format!(
        "`{name}` has no choice `{choice}`; its choices: {known}"
    ))
}

/// Returns the name of a variant in snake case: `EarlyNull` becomes `early_null`.
fn snake_case(variant: &str) -> String {
    let mut name = String::with_capacity(variant.len() + 2);
    for character in variant.chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_lowercase());
    }
    name
}

dialect_settings! {
    /// The JSON shape of an error body. [Interface section 7](crate::interface#7) does not show it.
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
        /// `{"errors": [{"code": "not_found", "message": "…"}]}`
        Errors,
        /// `{"type": "https://errors.example.com/not_found", "status": 404, "detail": "…"}` with the content type
        /// `application/problem+json` (RFC 9457).
        Problem,
        /// No body at all.
        Empty,
        /// No body for a 404, and the default body for any other error.
        EmptyNotFound,
    }

    /// The status of a refusal that is 422 by default. [Interface section 7](crate::interface#7) shows 422, and many
    /// services respond 400 nevertheless.
    invalid_status:
    /// The status of `validation_error` and `failed_precondition`.
    InvalidStatus {
        /// 422.
        Unprocessable,
        /// 400, with the same slug.
        BadRequest,
    }

    /// The slug of a 401. [Interface section 5](crate::interface#5) does not show how a request without a valid key is
    /// refused.
    unauthorized_slug:
    /// The slug of a 401.
    UnauthorizedSlug {
        /// `unauthorized`
        Unauthorized,
        /// `unauthenticated`
        Unauthenticated,
        /// `invalid_api_key`
        InvalidApiKey,
    }

    /// Rate limits. [Interface section 8](crate::interface#8) does not show any.
    rate_limit:
    /// How many requests are handled, and how the others are refused.
    RateLimit {
        /// All requests are handled.
        Unlimited,
        /// At most 10 requests in each second of the mock's clock. Any other is 429 `rate_limited`, with the header
        /// `Retry-After: 1`. If the clock is stopped, move it to get past the limit.
        RetryAfter,
        /// Like `RetryAfter`, but without the header.
        NoRetryAfter,
    }

    /// The order in which a request is checked. The document does not say which of two refusals comes first.
    refusal_order:
    /// The check that comes first in a subscribe, an unsubscribe or a merge.
    RefusalOrder {
        /// The body, then the contact, then the spam report, then the topic.
        BodyFirst,
        /// The contact and its spam report come before the body.
        ContactFirst,
        /// The topic comes before the contact and its spam report.
        TopicFirst,
    }

    /// An address in a path. [Interface section 2.1](crate::interface#2.1) says that addresses are normalized before
    /// they are stored, but not whether that holds for an address in a path.
    path_address:
    /// How an address in a path is compared with the stored ones.
    PathAddress {
        /// In any spelling: it is trimmed and converted to lower case first.
        Normalized,
        /// Exactly. Any other spelling is not a contact.
        Exact,
    }

    /// A subscribe or an unsubscribe for an address that is not a contact. [Interface section
    /// 4.5](crate::interface#4.5) does not show it.
    unknown_address:
    /// The effect of a subscribe or an unsubscribe for an address that is not a contact.
    UnknownAddress {
        /// 404 `not_found`.
        NotFound,
        /// 422 `validation_error`.
        Unprocessable,
        /// The contact is created, and then subscribed or unsubscribed. The ceiling applies.
        Created,
    }

    /// The body of `PATCH /contacts/{address}`. [Interface section 4.7](crate::interface#4.7) does not show it.
    merge_body:
    /// The place of the properties in the body of a merge.
    MergeBody {
        /// In a member: `{"properties": {"seats": 3}}`
        Properties,
        /// They are the body: `{"seats": 3}`
        Bare,
    }

    /// The response to `PATCH /contacts/{address}`. [Interface section 4.7](crate::interface#4.7) does not show it.
    merge_response:
    /// The form of the contact that a merge returns.
    MergeResponse {
        /// The full form of [interface section 2.1](crate::interface#2.1).
        Full,
        /// The form of [interface section 2.2](crate::interface#2.2), without `unsubscribe_reason` and `topics`.
        Create,
        /// None: the response is 204 without a body.
        NoContent,
    }

    /// The name of the message in a failed batch entry. [Interface section 2.5](crate::interface#2.5) does not show it.
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

    /// The refusal of a batch with zero or more than 100 entries. Sections [4.2](crate::interface#4.2) and
    /// [7](crate::interface#7) do not show it.
    batch_refusal:
    /// The status and slug for a batch with zero or more than 100 entries.
    BatchRefusal {
        /// 422 `validation_error`.
        Unprocessable,
        /// 400 `bad_request`.
        BadRequest,
    }

    /// The status of a successful retrieve, list, subscribe, unsubscribe or merge.
    /// [Interface section 4.7](crate::interface#4.7) does not show it.
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

    /// The form of the contact that subscribe and unsubscribe return. Sections [4.5](crate::interface#4.5) and
    /// [4.6](crate::interface#4.6) do not say which.
    consent_form:
    /// The form of the contact that subscribe and unsubscribe return.
    ConsentForm {
        /// The full form of [interface section 2.1](crate::interface#2.1).
        Full,
        /// The form of [interface section 2.2](crate::interface#2.2), without `unsubscribe_reason` and `topics`.
        Create,
        /// None: the response is 204 without a body.
        NoContent,
    }

    /// A list request with both `segment_id` and `rules`. The effect is not shown
    /// ([interface section 4.4](crate::interface#4.4)).
    segment_with_rules:
    /// The effect of `segment_id` and `rules` in the same list request.
    SegmentWithRules {
        /// The request is refused with 422 `validation_error`.
        Refused,
        /// The list has the contacts that are in the segment and match the rule.
        BothHold,
    }

    /// The value of `next` at the end of a list. [Interface section 4.4](crate::interface#4.4) says only that `data`
    /// comes back empty.
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

    /// The value of `unsubscribe_reason` after a subscribe without topic. [Interface section 3.2](crate::interface#3.2)
    /// does not show it.
    reason_after_subscribe:
    /// The value of `unsubscribe_reason` after a subscribe clears the global opt-out.
    ReasonAfterSubscribe {
        /// `""`.
        Cleared,
        /// The reason stays as it was before the subscribe.
        Kept,
    }

    /// An upsert that leaves out `first_name`, `last_name` or `properties`.
    /// [Interface section 4.1](crate::interface#4.1) does not say what happens to them.
    omitted_members:
    /// The effect of an upsert on stored members that its body leaves out.
    OmittedMembers {
        /// They keep their values. An empty `properties` object still clears the properties.
        Kept,
        /// They are cleared.
        Cleared,
    }

    /// The `first_name` or `last_name` of a contact that has none. [Interface section 2.1](crate::interface#2.1) does
    /// not show it.
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

    /// Property values that are neither strings nor numbers. [Interface section 2.1](crate::interface#2.1) names
    /// strings and numbers only.
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

    /// A body with a content type other than JSON. [Interface section 4](crate::interface#4) says only that bodies are
    /// JSON.
    other_content_type:
    /// The effect of a `Content-Type` other than JSON on a request with a body.
    OtherContentType {
        /// 422 `validation_error`, as for any other invalid body. [Interface section 7](crate::interface#7) has no
        /// other status for it.
        Unprocessable,
        /// 415 `unsupported_media_type`.
        UnsupportedMediaType,
        /// The content type is ignored; the body is read as JSON.
        Ignored,
    }

    /// The day count of `joined_within_days` and `joined_before_days`. [Interface section 2.8](crate::interface#2.8)
    /// does not name its member.
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

    /// `DELETE /contacts/{address}`. [Interface section 4.7](crate::interface#4.7) names the deletion of contacts, but
    /// shows no endpoint for it.
    contact_deletion:
    /// The effect of `DELETE /contacts/{address}`.
    ContactDeletion {
        /// 501 `not_described`. Nothing is deleted.
        NotDescribed,
        /// The contact is deleted, and the response is 204 without a body. An address that is not a contact is 404
        /// `not_found`. After a spam report, the address stays on the suppression list.
        NoContent,
    }
}

impl PathAddress {
    /// Returns whether a request for `address` finds the contact with the address `stored`. Both are spellings of one
    /// address.
    pub(super) fn finds(self, address: &str, stored: &str) -> bool {
        self == Self::Normalized || stored == address
    }
}

impl SuccessStatus {
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
