//! Reads the opt-outs from the consent columns of a row. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::columns::{Column, letters, split_list, unescaped};
use crate::contacts::OptOutReason;
use crate::import::row::OptOut;

/// The consent of one row, column by column.
#[derive(Debug, Default)]
pub(super) struct Consent {
    is_subscribed: Option<bool>,
    reason: Option<OptOutReason>,
    /// Whether the cell with the reason has none of the service's reasons.
    has_unknown_reason: bool,
    topics: Vec<String>,
}

impl Consent {
    /// Adds a cell, without white space around it. An empty cell says nothing, but is an error in a state column, and a list
    /// of no groups.
    ///
    /// # Errors
    ///
    /// The reason why the cell is not understood.
    pub(super) fn add(&mut self, column: &Column, cell: &str) -> Result<(), String> {
        match column {
            Column::Subscribed if cell.is_empty() => {
                return Err(
                    "the cell is empty and does not say whether the contact opted out".to_owned(),
                );
            }
            Column::Groups(groups) => {
                let mut chosen: BTreeSet<&str> = BTreeSet::new();
                for name in split_list(cell, ',').map(unescaped) {
                    let name = name.ok_or("a quotation mark in the cell is not closed")?;
                    if !name.is_empty() {
                        let topic = groups.get(&name).ok_or_else(|| unknown_group(&name))?;
                        chosen.insert(topic);
                    }
                }
                let refused = column
                    .topics()
                    .filter(|topic| !chosen.contains(topic.as_str()));
                self.topics.extend(refused.cloned());
            }
            _ if cell.is_empty() => {}
            Column::Subscribed => self.add_state(is_subscribed(cell)?),
            // Yes means opted out, but the word "subscribed" means the same in every column.
            Column::Unsubscribed => {
                let is_subscribed = yes_or_no(cell).map(|yes| !yes);
                let is_subscribed = is_subscribed.or_else(|| state(&letters(cell)));
                self.add_state(is_subscribed.ok_or(UNKNOWN)?);
            }
            Column::UnsubscribeReason => {
                self.reason = reason(cell);
                self.has_unknown_reason = self.reason.is_none();
            }
            // A `true` is dropped here: an import never opts in.
            Column::Topic(name) if !is_subscribed(cell)? => self.topics.push(name.clone()),
            Column::Topics => {
                let answers: BTreeMap<String, bool> = serde_json::from_str(cell)
                    .map_err(|_| "the cell is not a JSON object of true and false")?;
                let refused = answers.into_iter().filter(|(_, answer)| !answer);
                self.topics.extend(refused.map(|(name, _)| name));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a yes or no. If two columns disagree, the opt-out counts.
    fn add_state(&mut self, is_subscribed: bool) {
        self.is_subscribed = Some(self.is_subscribed.unwrap_or(true) && is_subscribed);
    }

    /// Returns the opt-outs of the row.
    ///
    /// # Errors
    ///
    /// The contradiction.
    pub(super) fn opt_outs(self) -> Result<Vec<OptOut>, &'static str> {
        let has_reason = self.reason.is_some() || self.has_unknown_reason;
        let everything = match (self.is_subscribed, self.reason) {
            // The row contradicts itself. Neither reading is safe to guess.
            (Some(true), _) if has_reason => {
                return Err(
                    "the row has a reason for an opt-out, but another column says that the contact did not opt out",
                );
            }
            (None, None) if self.has_unknown_reason => {
                return Err("the reason for an opt-out is neither manual nor preferences");
            }
            (Some(true), _) | (None, None) => None,
            (Some(false), reason) => Some(reason.unwrap_or_default()),
            (None, Some(reason)) => Some(reason),
        };
        let everything = everything.map(OptOut::Everything);
        let mut topics = self.topics;
        topics.sort();
        topics.dedup();
        Ok(everything
            .into_iter()
            .chain(topics.into_iter().map(OptOut::Topic))
            .collect())
    }
}

fn is_subscribed(cell: &str) -> Result<bool, &'static str> {
    let letters = letters(cell);
    // In a column that means opted out, it may be the opt-out that is active.
    let is_active = matches!(letters.as_str(), "active" | "aktiv").then_some(true);
    let answer = yes_or_no(cell).or_else(|| state(&letters));
    answer.or(is_active).ok_or(UNKNOWN)
}

/// Names the group, unless it may be an address.
fn unknown_group(name: &str) -> String {
    const MAX_CHARACTERS: usize = 40;
    let mut shown: String = name.chars().take(MAX_CHARACTERS).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    let group = match name.contains('@') {
        true => "a group of the cell".to_owned(),
        false => format!("the group {shown:?}"),
    };
    format!("{group} is not in the mapping; add it, with an empty topic if it has none")
}

const UNKNOWN: &str = "the cell says neither yes nor no";

/// Reads a word that means the same in every column. Few words on purpose. An unknown one makes the row unreadable, because
/// a wrong guess would mail a person who opted out.
fn state(letters: &str) -> Option<bool> {
    match letters {
        "subscribed" | "optedin" | "optin" => Some(true),
        "unsubscribed" | "optedout" | "optout" => Some(false),
        _ => None,
    }
}

fn yes_or_no(cell: &str) -> Option<bool> {
    match cell.to_lowercase().as_str() {
        // `x` is the mark in a checkbox column.
        "true" | "yes" | "y" | "t" | "1" | "x" | "ja" | "oui" | "sí" | "si" => Some(true),
        "false" | "no" | "n" | "f" | "0" | "nein" | "non" => Some(false),
        _ => None,
    }
}

fn reason(cell: &str) -> Option<OptOutReason> {
    match cell.to_lowercase().as_str() {
        // A sender cannot declare a complaint (interface section 4.5), but it is an opt-out in any case.
        "manual" | "complaint" => Some(OptOutReason::Manual),
        "preferences" => Some(OptOutReason::Preferences),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opt_outs(cells: &[(Column, &str)]) -> Result<Vec<OptOut>, String> {
        let mut consent = Consent::default();
        for (column, cell) in cells {
            consent.add(column, cell)?;
        }
        consent.opt_outs().map_err(str::to_owned)
    }

    #[test]
    fn an_opt_out_is_read_from_every_form_of_no() {
        let everything = Ok(vec![OptOut::Everything(OptOutReason::Manual)]);
        for yes in [
            "true",
            "YES",
            "y",
            "1",
            "x",
            "Ja",
            "oui",
            "Sí",
            "Unsubscribed",
            "Opted-Out",
        ] {
            assert_eq!(
                opt_outs(&[(Column::Unsubscribed, yes)]),
                everything,
                "{yes}"
            );
        }
        for no in [
            "false",
            "No",
            "n",
            "0",
            "Nein",
            "non",
            "UNSUBSCRIBED",
            "opted out",
        ] {
            assert_eq!(opt_outs(&[(Column::Subscribed, no)]), everything, "{no}");
        }
        let news = Ok(vec![OptOut::Topic("news".to_owned())]);
        assert_eq!(opt_outs(&[(Column::Topic("news".into()), "no")]), news);
        assert_eq!(
            opt_outs(&[(Column::Topics, r#"{"news":false,"a":true}"#)]),
            news
        );
    }

    #[test]
    fn a_topic_whose_groups_were_not_chosen_is_an_opt_out() {
        let groups = "groups:Weekly News:news,Daily:news,A\\, B:offers,Old:";
        let of = |cell| opt_outs(&[(groups.parse().unwrap(), cell)]);
        let out = |topic: &str| OptOut::Topic(topic.to_owned());

        assert_eq!(of("Weekly News, A\\, B"), Ok(vec![]));
        assert_eq!(of("Daily"), Ok(vec![out("offers")]));
        assert_eq!(of(r"A\, B,Old"), Ok(vec![out("news")]));
        assert_eq!(of(""), Ok(vec![out("news"), out("offers")]));
        assert!(of("Daily, Monthly").is_err());
        assert!(of("daily").is_err());
    }

    #[test]
    fn quotation_marks_around_a_group_are_no_part_of_its_name() {
        let groups = r#"groups:Weekly News:news,"A, B":offers,say \"hi\":hi,5" disk:disk"#;
        let of = |cell| opt_outs(&[(groups.parse().unwrap(), cell)]);
        let out = |topics: [&str; 2]| {
            let topics = topics.map(|topic| OptOut::Topic(topic.to_owned()));
            Ok(Vec::from(topics))
        };

        assert_eq!(of(r#""Weekly News","A, B""#), out(["disk", "hi"]));
        assert_eq!(of(r#" "Weekly News" , A\, B, "" "#), out(["disk", "hi"]));
        assert_eq!(of(r#"5" disk,"say ""hi""""#), out(["news", "offers"]));
        let open = Err("a quotation mark in the cell is not closed".to_owned());
        for cell in [r#""Weekly News"#, r#"Weekly News,""#, r#"5" disk,"A, B"#] {
            assert_eq!(of(cell), open, "{cell}");
        }
    }

    #[test]
    fn a_group_that_is_not_in_the_mapping_is_named_in_the_reason() {
        let long = "❤".repeat(40);
        for (cell, named) in [
            ("Daily, Monthly", r#"the group "Monthly""#),
            (r#""Best" news"#, r#"the group "\"Best\" news""#),
            ("a\nb\u{1b}\u{202e}", r#"the group "a\nb\u{1b}\u{202e}""#),
            (&*long, &*format!("the group {long:?}")),
            (&*format!("{long}❤"), &*format!("the group \"{long}…\"")),
            ("ada@x.io", "a group of the cell"),
        ] {
            let reason = opt_outs(&[("groups:Daily:news".parse().unwrap(), cell)]).unwrap_err();

            let expected = format!("{named} is not in the mapping; add it");
            assert!(reason.starts_with(&expected), "{reason}");
        }
    }

    #[test]
    fn somebody_who_is_subscribed_needs_no_opt_out_and_gets_no_opt_in() {
        for cells in [
            &[(Column::Unsubscribed, "false")][..],
            &[(Column::Unsubscribed, "")],
            &[(Column::Unsubscribed, "subscribed")],
            &[(Column::Subscribed, "active")],
            &[(Column::Subscribed, "Aktiv")],
            &[(Column::Topic("news".into()), "active")],
            &[
                (Column::Topic("news".into()), "true"),
                (Column::Topic("a".into()), ""),
            ],
        ] {
            assert_eq!(opt_outs(cells), Ok(vec![]), "{cells:?}");
        }
    }

    #[test]
    fn a_reason_alone_is_an_opt_out_and_a_complaint_becomes_a_manual_one() {
        let preferences = [
            (Column::Unsubscribed, ""),
            (Column::UnsubscribeReason, "preferences"),
        ];
        let complaint = [(Column::UnsubscribeReason, "complaint")];

        assert_eq!(
            opt_outs(&preferences),
            Ok(vec![OptOut::Everything(OptOutReason::Preferences)])
        );
        assert_eq!(
            opt_outs(&complaint),
            Ok(vec![OptOut::Everything(OptOutReason::Manual)])
        );
    }

    #[test]
    fn an_opt_out_with_a_reason_of_another_service_is_a_manual_one() {
        let cells = [
            (Column::UnsubscribeReason, "bored"),
            (Column::Unsubscribed, "true"),
        ];

        let everything = OptOut::Everything(OptOutReason::Manual);
        assert_eq!(opt_outs(&cells), Ok(vec![everything]));
    }

    #[test]
    fn what_is_not_understood_or_contradicts_itself_is_no_consent() {
        for cells in [
            &[(Column::Unsubscribed, "maybe")][..],
            &[(Column::Unsubscribed, "2024-05-01")],
            &[(Column::Unsubscribed, "active")],
            &[(Column::Unsubscribed, "Aktiv")],
            &[(Column::Subscribed, "")],
            &[(Column::Subscribed, "cleaned")],
            &[(Column::Topic("news".into()), "weekly")],
            &[(Column::Topics, "news")],
            &[(Column::UnsubscribeReason, "bored")],
            &[
                (Column::Unsubscribed, "no"),
                (Column::UnsubscribeReason, "manual"),
            ],
            &[
                (Column::Subscribed, "yes"),
                (Column::UnsubscribeReason, "bored"),
            ],
        ] {
            assert!(opt_outs(cells).is_err(), "{cells:?}");
        }
    }

    #[test]
    fn of_two_columns_the_one_with_the_opt_out_counts() {
        let cells = [(Column::Unsubscribed, "yes"), (Column::Subscribed, "yes")];

        let everything = OptOut::Everything(OptOutReason::Manual);
        assert_eq!(opt_outs(&cells), Ok(vec![everything]));
    }
}
