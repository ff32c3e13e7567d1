//! Which column of a file goes where.

use std::collections::{HashMap, HashSet};

use super::super::reject_form::{LEADING_COLUMNS, unescape};
use super::column::Column;
use super::guess::{Guess, guess};
use crate::Error;

/// The columns of a file, without the leading ones of rejects.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) names: Vec<String>,
    guesses: Vec<Guess>,
    /// How many columns to leave out: those that rejects have before the columns of the input.
    pub(super) leading: usize,
}

impl Mapping {
    /// Guesses what each column means. Of two columns for one member, such as the address, the first has it, unless
    /// both have the same name: [`check`](Self::check) refuses them.
    pub(super) fn guess(header: &[Vec<u8>]) -> Result<Self, Error> {
        let names: Result<Vec<String>, _> = header
            .iter()
            .map(|cell| std::str::from_utf8(cell).map(|name| name.trim().to_owned()))
            .collect();
        let mut names = names.map_err(|_| not_utf8())?;
        let leading = match names.get(..LEADING_COLUMNS.len()) {
            Some(first) if first == LEADING_COLUMNS => LEADING_COLUMNS.len(),
            _ => 0,
        };
        names.drain(..leading);
        if leading > 0 {
            names
                .iter_mut()
                .for_each(|name| *name = unescape(name).to_owned());
        }
        let (mut taken, mut earlier) = (HashSet::new(), HashSet::new());
        let mut guesses: Vec<Guess> = Vec::new();
        for name in &names {
            let mut next = guess(name);
            let is_repeated = !earlier.insert(name);
            if is_single(&next.column) && !taken.insert(next.column.clone()) && !is_repeated {
                // Its opt-outs must not be lost silently.
                next.may_be_consent |= next.column.is_consent();
                next.column = Column::Property(name.clone());
                taken.insert(next.column.clone());
            }
            guesses.push(next);
        }
        Ok(Self {
            names,
            guesses,
            leading,
        })
    }

    pub(super) fn is_rejects(&self) -> bool {
        self.leading > 0
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        let columns = self.guesses.iter().map(|guess| &guess.column);
        self.names.iter().map(String::as_str).zip(columns)
    }

    /// Sets what a column means.
    pub(super) fn set(&mut self, name: &str, column: Column) -> Result<(), Error> {
        let mut found = self.names.iter().enumerate().filter(|(_, n)| *n == name);
        match (found.next(), found.next()) {
            (Some((index, _)), None) => {
                self.guesses[index] = Guess {
                    column,
                    may_be_consent: false,
                };
                Ok(())
            }
            (Some(_), Some(_)) => Err(Error::input(format!(
                "the file has two columns {name:?}; rename one of them"
            ))),
            (None, _) => Err(Error::input(format!(
                "the file has no column {name:?}; it has {}",
                self.listed()
            ))),
        }
    }

    /// Checks that rows can be read.
    pub(super) fn check(&self) -> Result<(), Error> {
        if !self.has_address() {
            return Err(self.without_address());
        }
        let unclear = self.names.iter().zip(&self.guesses);
        let unclear: Vec<&str> = unclear
            .filter(|(_, guess)| guess.may_be_consent)
            .map(|(name, _)| name.as_str())
            .collect();
        if !unclear.is_empty() {
            return Err(Error::input(format!(
                "these columns may say who opted out: {unclear:?}; map each of them: to `subscribed`, `unsubscribed` or \
                 `topic:NAME` if so, else to `property:NAME` or `ignore`"
            )));
        }
        let mut earlier = HashMap::new();
        for (name, column) in self.columns().filter(|(_, column)| is_single(column)) {
            let Some(first) = earlier.insert(column, name) else {
                continue;
            };
            // Columns with one name cannot be mapped.
            let advice = match first == name {
                true => "rename one of them in the file",
                false => "map one of them to another member or to `ignore`",
            };
            return Err(Error::input(format!(
                "two columns of the file are `{column}`; {advice}"
            )));
        }
        Ok(())
    }

    /// Returns whether a column is the address.
    pub(super) fn has_address(&self) -> bool {
        let mut guesses = self.guesses.iter();
        guesses.any(|guess| guess.column == Column::Email)
    }

    fn without_address(&self) -> Error {
        // A row instead of a header: its text does not belong into an error.
        if self.names.iter().any(|name| name.contains('@')) {
            return Error::input(
                "the first line has an address in it; add a line before it that names the columns",
            );
        }
        Error::input(format!(
            "no column holds the address; name one `email`, or map one of {} to `email`",
            self.listed()
        ))
    }

    fn listed(&self) -> String {
        if self.names.iter().any(|name| name.contains('@')) {
            return "others".to_owned();
        }
        let names: Vec<String> = self.names.iter().map(|name| format!("{name:?}")).collect();
        names.join(", ")
    }
}

fn not_utf8() -> Error {
    Error::input(
        "the header of the CSV file is not UTF-8; save it in UTF-8 (in Excel: \"CSV UTF-8\")",
    )
}

/// Returns whether only one column can be this.
fn is_single(column: &Column) -> bool {
    match column {
        Column::Email
        | Column::FirstName
        | Column::LastName
        | Column::Property(_)
        | Column::Properties
        | Column::OnConflict
        | Column::UnsubscribeReason
        | Column::Topics
        | Column::Key => true,
        // An opt-out in any of them is one.
        Column::Unsubscribed | Column::Subscribed | Column::Topic(_) | Column::Ignored => false,
    }
}
