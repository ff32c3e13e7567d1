//! Guesses what a column means from its name. Pure.

use super::column::Column;

/// What the name of a column says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Guess {
    pub(super) column: Column,
    /// The name may be one of a consent column in another form. It must not be taken for a property
    /// silently: its opt-outs would be lost.
    pub(super) may_be_consent: bool,
}

/// Names as they are after [`letters`].
const NAMES: [(Column, &[&str]); 9] = [
    (
        Column::Email,
        &[
            "email",
            "emailaddress",
            "mail",
            "mailaddress",
            "primaryemail",
            "subscriberemail",
            "contactemail",
            "useremail",
            "email1value",
        ],
    ),
    (
        Column::FirstName,
        &["firstname", "givenname", "forename", "fname", "first"],
    ),
    (
        Column::LastName,
        &["lastname", "surname", "familyname", "lname", "last"],
    ),
    (
        Column::Unsubscribed,
        &[
            "unsubscribed",
            "optedout",
            "optout",
            "emailoptout",
            "hasoptedoutofemail",
            "unsubscribedfromallemail",
        ],
    ),
    (
        Column::Subscribed,
        &["subscribed", "optedin", "optin", "emailoptin"],
    ),
    (Column::UnsubscribeReason, &["unsubscribereason"]),
    (Column::OnConflict, &["onconflict"]),
    (Column::Properties, &["properties"]),
    (Column::Topics, &["topics"]),
];

/// Parts of the names of columns that other services use for consent.
const CONSENT_PARTS: [&str; 14] = [
    "unsub",
    "optout",
    "optedout",
    "optin",
    "optedin",
    "consent",
    "suppress",
    "donotemail",
    "donotmail",
    "donotcontact",
    "blocklist",
    "blacklist",
    "complain",
    "bounced",
];

/// Names of columns that other services use for the state of a subscription.
const CONSENT_NAMES: [&str; 7] = [
    "status",
    "newsletter",
    "emailstatus",
    "subscriptionstatus",
    "subscriberstatus",
    "marketingstatus",
    "marketing",
];

/// The columns of an export that only the service can set.
const SET_BY_THE_SERVICE: [&str; 2] = ["id", "created_at"];

/// Guesses what the column with this name means.
pub(super) fn guess(name: &str) -> Guess {
    let letters = letters(name);
    let known = NAMES
        .iter()
        .find(|(_, names)| names.contains(&letters.as_str()));
    let column = match known {
        Some((column, _)) => column.clone(),
        None if name == "import_key" => Column::Key,
        None if SET_BY_THE_SERVICE.contains(&name) => Column::Ignored,
        None if letters.is_empty() => Column::Ignored,
        None => Column::named(name).unwrap_or_else(|| Column::Property(name.to_owned())),
    };
    let is_guessed_property =
        matches!(column, Column::Property(_)) && Column::named(name).is_none();
    let is_like_consent = CONSENT_PARTS.iter().any(|part| letters.contains(part))
        || CONSENT_NAMES.contains(&letters.as_str());
    Guess {
        column,
        may_be_consent: is_guessed_property && is_like_consent,
    }
}

/// Returns whether a column with this name is taken for the property with the same name.
pub(crate) fn is_property_name(name: &str) -> bool {
    let guess = guess(name);
    matches!(guess.column, Column::Property(found) if found == name) && !guess.may_be_consent
}

/// Returns the letters and digits of a name in lower case: `E-Mail Address` is `emailaddress`.
fn letters(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognized_in_any_spelling() {
        for (name, column) in [
            ("E-Mail", Column::Email),
            ("Email address", Column::Email),
            ("EMAIL_ADDRESS", Column::Email),
            ("First name", Column::FirstName),
            ("given_name", Column::FirstName),
            ("Surname", Column::LastName),
            ("LASTNAME", Column::LastName),
            ("Opted-Out", Column::Unsubscribed),
            ("Unsubscribe Reason", Column::UnsubscribeReason),
            (
                "topic:Product news",
                Column::Topic("Product news".to_owned()),
            ),
            ("property:email", Column::Property("email".to_owned())),
            ("Plan", Column::Property("Plan".to_owned())),
            ("Ort", Column::Property("Ort".to_owned())),
            ("名前", Column::Property("名前".to_owned())),
            ("", Column::Ignored),
            ("id", Column::Ignored),
            ("created_at", Column::Ignored),
            ("ID", Column::Property("ID".to_owned())),
        ] {
            let guess = guess(name);

            assert_eq!(guess.column, column, "{name}");
            assert!(!guess.may_be_consent, "{name}");
        }
    }

    #[test]
    fn a_name_that_may_mean_consent_is_not_silently_a_property() {
        for name in [
            "Status",
            "UNSUB_TIME",
            "Email Marketing Consent",
            "opt-in date",
            "do not email",
        ] {
            assert!(guess(name).may_be_consent, "{name}");
        }
        for name in [
            "subscription_plan",
            "property:status",
            "Country",
            "Newsletter source",
        ] {
            assert!(!guess(name).may_be_consent, "{name}");
        }
    }
}
