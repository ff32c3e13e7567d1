//! The answers a real service might give where the interface document does not say.

use std::fmt;

/// Writes the enums, the struct, `all` and `Display` from one list, so that none can lack an answer.
macro_rules! open_questions {
    ($(
        $(#[$field_doc:meta])*
        $field:ident:
        $(#[$answer_doc:meta])*
        $Answer:ident {
            $(#[$default_doc:meta])* $Default:ident,
            $( $(#[$other_doc:meta])* $Other:ident, )+
        }
    )*) => {
        /// How the mock answers where the interface document is silent: one field for each open question.
        ///
        /// The default of every field is what the mock does unless told otherwise. [`Dialect::all`] yields
        /// every single departure from that, so that a test of yours can be run under each answer that the
        /// real service might turn out to give. The [`Display`](fmt::Display) form names the departures.
        ///
        /// # Example: one test under every dialect
        ///
        /// ```
        /// use audience::mock::{Dialect, EndOfList};
        ///
        /// for dialect in Dialect::all() {
        ///     println!("with {dialect}");
        /// }
        ///
        /// let dialect = Dialect { end_of_list: EndOfList::Null, ..Dialect::default() };
        /// assert_eq!(dialect.to_string(), "end_of_list: Null");
        /// assert_eq!(Dialect::default().to_string(), "the default dialect");
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Dialect {
            $( $(#[$field_doc])* pub $field: $Answer, )*
        }

        impl Dialect {
            /// Every dialect that departs from the default in exactly one answer.
            ///
            /// The default itself is not among them.
            pub fn all() -> impl Iterator<Item = Self> {
                [$( $( Self { $field: $Answer::$Other, ..Self::default() }, )+ )*].into_iter()
            }
        }

        /// The departures from the default, parted by commas, such as `end_of_list: Null`.
        impl fmt::Display for Dialect {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut departures = Vec::new();
                $( if self.$field != $Answer::$Default {
                    departures.push(format!("{}: {:?}", stringify!($field), self.$field));
                } )*
                if departures.is_empty() {
                    return f.write_str("the default dialect");
                }
                f.write_str(&departures.join(", "))
            }
        }

        $(
            $(#[$answer_doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            #[non_exhaustive]
            pub enum $Answer {
                $(#[$default_doc])* #[default] $Default,
                $( $(#[$other_doc])* $Other, )+
            }
        )*
    };
}

open_questions! {
    /// The shape of an error's body (section 7 leaves it open).
    error_shape:
    /// Where an error's body holds the slug and the message.
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

    /// The member of a failed batch entry that holds its message (section 2.5).
    batch_message:
    /// The name of the message in a batch entry.
    BatchMessage {
        /// `message`
        Message,
        /// `error`
        Error,
        /// `detail`
        Detail,
        /// `reason`
        Reason,
    }

    /// The refusal of a batch that is empty or longer than 100 entries (sections 4.2 and 7).
    batch_refusal:
    /// Status and slug of a refused batch.
    BatchRefusal {
        /// 422 `validation_error`
        Unprocessable,
        /// 400 `bad_request`
        BadRequest,
    }

    /// The status of a successful retrieve, list, subscribe, unsubscribe or merge (section 4.7).
    success_status:
    /// A status that means success.
    SuccessStatus {
        /// 200
        Ok,
        /// 201
        Created,
        /// 202
        Accepted,
    }

    /// The form of the contact that subscribe and unsubscribe return (sections 4.5 and 4.6).
    consent_form:
    /// Which of the document's forms a consent call answers with.
    ConsentForm {
        /// The full form of section 2.1.
        Full,
        /// The form of section 2.2: neither reason nor topics.
        Create,
    }

    /// `segment_id` and `rules` in one list request (section 4.4).
    segment_with_rules:
    /// What becomes of a list request with both filters.
    SegmentWithRules {
        /// 422 `validation_error`
        Refused,
        /// Both must hold.
        BothHold,
    }

    /// The `next` of the end of a list (section 4.4).
    end_of_list:
    /// What `next` is where no further page follows.
    EndOfList {
        /// `""` with the empty page; the last id with every page before it.
        Empty,
        /// `null` with the empty page.
        Null,
        /// No `next` with the empty page.
        Absent,
        /// `""` already with the last page that has contacts.
        EarlyEmpty,
        /// `null` already with the last page that has contacts.
        EarlyNull,
        /// No `next` already with the last page that has contacts.
        EarlyAbsent,
    }

    /// `unsubscribe_reason` after a global subscribe (section 3.2).
    reason_after_subscribe:
    /// What is left of the reason once the opt-out is cleared.
    ReasonAfterSubscribe {
        /// `""`
        Cleared,
        /// The reason of the opt-out that was cleared.
        Kept,
    }

    /// Names or properties left out of an upsert (section 4.1).
    left_out:
    /// What an upsert does to a stored member that the body does not name.
    LeftOut {
        /// It stays. An empty `properties` object clears them all the same.
        Kept,
        /// It is cleared.
        Cleared,
    }

    /// A name that was never given (section 2.1).
    missing_name:
    /// How an answer shows a name that is not known.
    MissingName {
        /// `""`
        Empty,
        /// `null`
        Null,
        /// The member is absent.
        Absent,
    }

    /// Property values that are neither text nor numbers (section 2.1).
    property_values:
    /// Which property values are taken.
    PropertyValues {
        /// Text and numbers; anything else is 422 `validation_error`.
        TextAndNumbers,
        /// Any JSON value, kept as it is.
        Any,
    }

    /// Members and query parameters that the document does not name, and an unknown `on_conflict` (section 2.4).
    unknown_members:
    /// What becomes of what the document does not name.
    UnknownMembers {
        /// 422 `validation_error`; the message names the member.
        Refused,
        /// Passed over; an unknown `on_conflict` counts as `upsert`.
        Ignored,
    }
}

impl SuccessStatus {
    pub(crate) fn code(self) -> u16 {
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
    fn every_departure_is_single_distinct_and_named() {
        let departures: Vec<Dialect> = Dialect::all().collect();
        let names: HashSet<String> = departures.iter().map(ToString::to_string).collect();

        assert_eq!(names.len(), departures.len());
        assert!(!departures.contains(&Dialect::default()));
        for name in names {
            assert_eq!(name.matches(": ").count(), 1, "{name}");
        }
    }

    #[test]
    fn several_departures_are_all_named() {
        let dialect = Dialect {
            left_out: LeftOut::Cleared,
            missing_name: MissingName::Absent,
            ..Dialect::default()
        };

        assert_eq!(
            dialect.to_string(),
            "left_out: Cleared, missing_name: Absent"
        );
    }
}
