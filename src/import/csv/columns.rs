use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::{LEADING_COLUMNS, Record, escape, unescape};
use crate::Error;

/// The meaning of a column of a CSV file.
///
/// [`FromStr`] reads and `Display` writes its text form, for flags of a program: `email`, `first_name`,
/// `last_name`, `property:NAME`, `properties`, `on_conflict`, `unsubscribed`, `subscribed`,
/// `unsubscribe_reason`, `topic:NAME`, `topics`, `groups:GROUP:TOPIC,GROUP:TOPIC`, `key`, `ignore`. In the names of groups
/// and their topics, a backslash stands before each comma, colon, quotation mark and backslash. The name of a group may
/// have quotation marks around it, as in the `TAGS` of Mailchimp: they are no part of it.
///
/// A consent column is read for opt-outs only. The cell of a subscribed contact is ignored: an import does not
/// subscribe a contact.
///
/// # Example: a flag of a program
///
/// ```
/// use audience::import::Column;
///
/// assert_eq!("topic:news".parse::<Column>()?, Column::Topic("news".to_owned()));
/// assert_eq!(Column::Property("plan".to_owned()).to_string(), "property:plan");
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Column {
    /// The address.
    Email,
    /// The given name.
    FirstName,
    /// The family name.
    LastName,
    /// The property with this name. A number is sent as a number only if it prints exactly as the cell:
    /// `3` and `0.5` are numbers, `01067`, `+49` and `1e5` stay text.
    Property(String),
    /// All properties, as a JSON object.
    Properties,
    /// The action for an address that already exists: `upsert`, `skip` or `error`.
    OnConflict,
    /// Whether the contact opted out of all broadcasts. An empty cell means no.
    Unsubscribed,
    /// Whether the contact gets broadcasts. "No" is an opt-out. An empty cell makes the row unreadable, because
    /// the contact may have opted out, unless another column opts it out of everything.
    Subscribed,
    /// Why the contact opted out: `manual`, `preferences`, or `complaint`, which is recorded as `manual` because a
    /// sender cannot declare a complaint ([interface section 4.5](crate::interface#4.5)). Each of these three is an
    /// opt-out, even without another column. Any other text is recorded as `manual` if another column has the opt-out;
    /// otherwise it makes the row unreadable.
    UnsubscribeReason,
    /// Whether the contact gets the topic with this name. "No" is an opt-out of the topic.
    Topic(String),
    /// The answers to all topics, as a JSON object of booleans. Each `false` is an opt-out.
    Topics,
    /// The groups that the contact chose, such as `Weekly News, Offers` or `"Weekly News","Offers"`, with the topic of
    /// each. A topic whose groups are not in the cell is an opt-out. A group that is not here makes the row unreadable.
    /// If it becomes no topic, give it an empty one.
    Groups(BTreeMap<String, String>),
    /// Your own key: see [`ImportRow::key`](super::super::ImportRow::key).
    Key,
    /// A column that is not imported.
    Ignored,
}

/// The columns whose text form is one word.
const WORDS: [(&str, Column); 11] = [
    ("email", Column::Email),
    ("first_name", Column::FirstName),
    ("last_name", Column::LastName),
    ("properties", Column::Properties),
    ("on_conflict", Column::OnConflict),
    ("unsubscribed", Column::Unsubscribed),
    ("subscribed", Column::Subscribed),
    ("unsubscribe_reason", Column::UnsubscribeReason),
    ("topics", Column::Topics),
    ("key", Column::Key),
    ("ignore", Column::Ignored),
];

impl Column {
    /// Returns whether the column is read for opt-outs.
    ///
    /// # Example: show which columns are read for opt-outs
    ///
    /// ```
    /// use audience::import::CsvInput;
    ///
    /// let input = CsvInput::new("email,opted out,plan\n".as_bytes())?;
    /// let consent = input.columns().filter(|(_, column)| column.is_consent());
    ///
    /// assert_eq!(consent.map(|(name, _)| name).collect::<Vec<_>>(), ["opted out"]);
    /// # Ok::<(), audience::Error>(())
    /// ```
    #[must_use]
    pub fn is_consent(&self) -> bool {
        match self {
            Self::Unsubscribed
            | Self::Subscribed
            | Self::UnsubscribeReason
            | Self::Topic(_)
            | Self::Topics
            | Self::Groups(_) => true,
            Self::Email
            | Self::FirstName
            | Self::LastName
            | Self::Property(_)
            | Self::Properties
            | Self::OnConflict
            | Self::Key
            | Self::Ignored => false,
        }
    }

    /// Returns the names of the topics that the cells of this column do not name themselves.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &String> {
        let (topic, groups) = match self {
            Self::Topic(topic) => (Some(topic), None),
            Self::Groups(groups) => (None, Some(groups)),
            _ => (None, None),
        };
        let of_groups = groups.into_iter().flat_map(BTreeMap::values);
        topic
            .into_iter()
            .chain(of_groups.filter(|topic| !topic.is_empty()))
    }

    /// Returns the column for a prefix in any case and a name, such as `topic:news` or `Topic: news`.
    fn named(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        let name = name.trim();
        match kind.trim().to_lowercase().as_str() {
            _ if name.is_empty() => None,
            "property" => Some(Self::Property(name.to_owned())),
            "topic" => Some(Self::Topic(name.to_owned())),
            "groups" => {
                let groups = split_list(name, ',').map(|group| {
                    let mut names = split_list(group, ':').map(unescaped);
                    match (names.next()??, names.next()??, names.next()) {
                        (group, topic, None) if !group.is_empty() => Some((group, topic)),
                        _ => None,
                    }
                });
                groups.collect::<Option<_>>().map(Self::Groups)
            }
            _ => None,
        }
    }
}

/// Reads the text form.
impl FromStr for Column {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let word = WORDS.iter().find(|(word, _)| *word == text);
        let column = word.map(|(_, column)| column.clone());
        column.or_else(|| Self::named(text)).ok_or_else(|| {
            if lacks_topic(text) {
                return Error::input(
                    "a group has no topic; write GROUP:TOPIC for each group, and a comma in a name as `\\,`",
                );
            }
            let words = WORDS.map(|(word, _)| word).join(", ");
            Error::input(format!(
                "unknown column; use one of {words}, property:NAME, topic:NAME or \
                 groups:GROUP:TOPIC,GROUP:TOPIC"
            ))
        })
    }
}

/// Returns whether the text maps groups, and one of them has no topic, for example because of a comma in its name.
fn lacks_topic(text: &str) -> bool {
    let Some((kind, groups)) = text.split_once(':') else {
        return false;
    };
    let is_alone = |group: &str| {
        let is_name = unescaped(group).is_some_and(|name| !name.is_empty());
        is_name && split_list(group, ':').nth(1).is_none()
    };
    kind.trim().eq_ignore_ascii_case("groups") && split_list(groups, ',').any(is_alone)
}

/// Writes the text form.
impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Property(name) => write!(f, "property:{name}"),
            Self::Topic(name) => write!(f, "topic:{name}"),
            Self::Groups(groups) => {
                f.write_str("groups:")?;
                for (n, (group, topic)) in groups.iter().enumerate() {
                    let comma = if n == 0 { "" } else { "," };
                    write!(f, "{comma}{}:{}", escaped(group), escaped(topic))?;
                }
                Ok(())
            }
            column => {
                let found = WORDS.iter().find(|(_, named)| named == column);
                f.write_str(found.map_or("", |(word, _)| word))
            }
        }
    }
}

/// Splits a list. A separator after a backslash or inside quotation marks is part of a name, as Mailchimp writes it.
pub(super) fn split_list(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_escaped, mut is_quoted) = (false, false);
    // At the start of a name, and after a closing mark: a doubled one is part of the name.
    let mut may_open = true;
    text.split(move |letter: char| {
        let is_mark = !is_escaped && letter == '"' && (is_quoted || may_open);
        let is_end = !is_escaped && !is_quoted && letter == separator;
        may_open = is_end || is_quoted || may_open && letter.is_whitespace();
        is_quoted ^= is_mark;
        is_escaped = !is_escaped && letter == '\\';
        is_end
    })
}

/// Returns a part of a list as it is meant, without quotation marks around it; `None` if they are not closed.
pub(super) fn unescaped(part: &str) -> Option<String> {
    let part = part.trim();
    let Some(quoted) = part.strip_prefix('"') else {
        return Some(without_backslashes(part));
    };
    let mut name = String::new();
    let mut letters = quoted.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next()),
            '"' if letters.next_if_eq(&'"').is_none() => {
                // With text after them, the marks are part of the name, as in `"Best" news`.
                return Some(match letters.next() {
                    None => name.trim().to_owned(),
                    Some(_) => without_backslashes(part),
                });
            }
            _ => name.push(letter),
        }
    }
    None
}

fn without_backslashes(part: &str) -> String {
    let mut is_escaped = false;
    let letters = part.chars().filter(|letter| {
        is_escaped = !is_escaped && *letter == '\\';
        !is_escaped
    });
    letters.collect()
}

fn escaped(name: &str) -> String {
    let letters = name.chars().flat_map(|letter| {
        let backslash = matches!(letter, '\\' | ',' | ':' | '"').then_some('\\');
        backslash.into_iter().chain([letter])
    });
    letters.collect()
}

/// The columns of a file, without the leading ones of rejects.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) names: Vec<String>,
    guesses: Vec<Guess>,
    /// How many columns to leave out: rejects have four before the columns of the input.
    pub(super) leading: usize,
    /// Whether the first column is [`ADDED`], and each row has a "yes" there.
    pub(super) opts_out_all: bool,
    /// How many columns the file lacks: 1 if `ADDED` is not in it.
    pub(super) added: usize,
    /// Whether the name of the file says that its people must not get mail.
    is_of_opt_outs: bool,
    /// Whether [`check`](Self::check) refuses a column that is a property only because its name says nothing else.
    pub(super) refuses_unmapped: bool,
    /// What the caller has said, in this order, so that it can be applied to another header.
    said: Vec<Said>,
}

/// What a caller says about the columns.
#[derive(Clone, Debug)]
enum Said {
    Meaning(String, Column),
    OptOutAll,
    IgnoreUnmapped,
}

/// The name of the column that [`Mapping::opt_out_all`] adds.
const ADDED: &str = "unsubscribed";

impl Mapping {
    /// Guesses the meaning of each column. If the names of two columns mean the same, such as the address, only the
    /// first column gets that meaning. If both also have the same name, [`check`](Self::check) refuses them.
    pub(super) fn guess(header: &[Vec<u8>]) -> Result<Self, Error> {
        let names: Result<Vec<String>, _> = header
            .iter()
            .map(|cell| std::str::from_utf8(cell).map(|name| name.trim().to_owned()))
            .collect();
        let mut names = names.map_err(|_| not_utf8())?;
        // All four, in this order: a single column `code` in any other file is data.
        let leading = match names.get(..LEADING_COLUMNS.len()) {
            Some(first) if first == LEADING_COLUMNS => LEADING_COLUMNS.len(),
            _ => 0,
        };
        names.drain(..leading);
        let mut mapped: Vec<Option<Column>> = vec![None; names.len()];
        if leading > 0 {
            for (name, mapped) in names.iter_mut().zip(&mut mapped) {
                let read = unescape(name);
                let (plain, column) = without_meaning(read).unzip();
                *mapped = column;
                *name = plain.unwrap_or(read).to_owned();
            }
        }
        let (mut taken, mut earlier) = (HashSet::new(), HashSet::new());
        let mut guesses: Vec<Guess> = Vec::new();
        for (name, mapped) in names.iter().zip(mapped) {
            let mut next = mapped.map_or_else(|| guess(name), Guess::certain);
            let is_repeated = !earlier.insert(name);
            // A second column with another name becomes a property: an export of another service may have two
            // addresses. Two columns with the same name stay as they are, and `check` reports them.
            if is_single(&next.column) && !taken.insert(next.column.clone()) && !is_repeated {
                // Its opt-outs must not be lost silently.
                next.may_be_consent |= next.column.is_consent();
                next.column = Column::Property(name.clone());
                next.is_by_name = true;
                taken.insert(next.column.clone());
            }
            // A column of rejects, without the columns that say so.
            if leading == 0 && next.is_by_name {
                let meaning = without_meaning(unescape(name)).map(|(_, column)| column);
                next.may_be_consent |= meaning.is_some_and(|column| column.is_consent());
            }
            guesses.push(next);
        }
        let mut mapping = Self {
            names,
            guesses,
            leading,
            opts_out_all: false,
            added: 0,
            is_of_opt_outs: false,
            refuses_unmapped: false,
            said: Vec::new(),
        };
        let letters: Vec<String> = mapping.names.iter().map(|name| letters(name)).collect();
        if let Some(export) = Export::with(&letters) {
            mapping.read_as(export, &letters);
        }
        Ok(mapping)
    }

    /// `letters` are those of each name.
    fn read_as(&mut self, export: &Export, letters: &[String]) {
        for (own, guess) in letters.iter().zip(&mut self.guesses) {
            let mut ignored = [export.ignored, export.opt_outs].into_iter();
            // In rejects, the meaning of a column that was mapped stands after its name.
            if guess.is_by_name && ignored.any(|names| names.contains(&own.as_str())) {
                *guess = Guess::certain(Column::Ignored);
            }
        }
        if export.opt_outs.iter().any(|name| has(letters, name)) {
            self.opt_out_all();
        }
    }

    /// Adds a column that opts every row out. Rejects have it, too, so that no row loses its opt-out there. It is the
    /// first one: whatever cells a row lacks or has too many, the "yes" stays under it.
    pub(super) fn opt_out_all(&mut self) {
        if self.opts_out_all {
            return;
        }
        self.opts_out_all = true;
        self.said.push(Said::OptOutAll);
        // No column can opt out more people than everybody.
        for guess in &mut self.guesses {
            guess.may_be_consent = false;
        }
        let is_there = self.names.first().is_some_and(|name| name == ADDED);
        if self.is_rejects() && is_there {
            self.guesses[0] = guess(ADDED);
            return;
        }
        self.names.insert(0, ADDED.to_owned());
        self.guesses.insert(0, guess(ADDED));
        self.added = 1;
    }

    /// Applies everything that was said about the columns of another header: that of another delimiter, or that of the file
    /// whose rejects these are. Otherwise, a column that was mapped to an opt-out would be a property again.
    pub(super) fn replacing(mut self, other: Self) -> Result<Self, Error> {
        self.is_of_opt_outs = other.is_of_opt_outs;
        self.refuses_unmapped = other.refuses_unmapped;
        for said in other.said {
            match said {
                Said::Meaning(name, column) => self.set(&name, column)?,
                Said::OptOutAll => self.opt_out_all(),
                Said::IgnoreUnmapped => self.ignore_unmapped(),
            }
        }
        Ok(self)
    }

    /// Ignores the columns that are properties only because their names say nothing else.
    pub(super) fn ignore_unmapped(&mut self) {
        self.said.push(Said::IgnoreUnmapped);
        for guess in &mut self.guesses {
            if guess.is_by_name {
                guess.column = Column::Ignored;
            }
        }
    }

    /// Takes the name of the file into account.
    pub(super) fn set_path(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default();
        let letters = letters(&name.to_string_lossy());
        self.is_of_opt_outs = OPT_OUT_FILES.iter().any(|part| letters.contains(part));
    }

    /// Puts columns in doubt that have an opt-out in one of these records, or whose cells are mostly states of a
    /// subscription, unless another column says who opted out. So an export can always be imported again.
    pub(super) fn doubt_by_cells(&mut self, records: &[Record]) {
        if self.says_who_opted_out() {
            return;
        }
        for (index, guess) in self.guesses.iter_mut().enumerate() {
            let index = index + self.leading;
            let cells = records.iter().filter_map(|record| record.cells.get(index));
            let texts = cells.map(|cell| letters(&String::from_utf8_lossy(cell)));
            let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
            let has = |words: &[&str]| {
                texts
                    .iter()
                    .filter(|text| words.contains(&text.as_str()))
                    .count()
            };
            let is_state = has(&OPT_OUTS) > 0 || 2 * has(&STATES) > texts.len();
            guess.may_be_consent |= guess.is_by_name && is_state;
        }
    }

    /// Returns whether a column says of each row whether it opted out of everything.
    fn says_who_opted_out(&self) -> bool {
        let says_who =
            |guess: &Guess| matches!(guess.column, Column::Unsubscribed | Column::Subscribed);
        self.guesses.iter().any(says_who)
    }

    /// Returns whether a row has a cell after the last column with a name. A spreadsheet adds such columns to a file
    /// with rows that are too long, so the cells of the row may be under the wrong columns.
    pub(super) fn is_too_long(&self, cells: &[String]) -> bool {
        let columns = self.names.iter().zip(&self.guesses).zip(cells).rev();
        let mut unnamed =
            columns.take_while(|((name, guess), _)| name.is_empty() && guess.is_by_name);
        unnamed.any(|(_, cell)| !cell.trim().is_empty())
    }

    /// Returns the names for the header of the rejects. A column that would be read as something else there has its
    /// meaning after its name: whoever imports the rejects may forget to map it again.
    pub(super) fn reject_names(&self) -> Vec<String> {
        let mut written = self.names.clone();
        // A meaning that is written may change what a later column is taken for.
        loop {
            let header = LEADING_COLUMNS
                .map(|name| name.as_bytes().to_vec())
                .into_iter();
            let header = header.chain(written.iter().map(|name| escape(name).into_owned().into()));
            let Ok(again) = Self::guess(&header.collect::<Vec<_>>()) else {
                return written;
            };
            let mut has_changed = false;
            let columns = self.names.iter().zip(&self.guesses);
            let read_again = again.names.iter().zip(&again.guesses);
            for ((own, read), written) in columns.zip(read_again).zip(&mut written) {
                let (name, Guess { column, .. }) = own;
                if own != read && *written == *name {
                    *written = with_meaning(name, column);
                    has_changed = true;
                }
            }
            if !has_changed {
                return written;
            }
        }
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
                // The caller has decided, so the column is no longer in doubt.
                self.guesses[index] = Guess::certain(column.clone());
                self.said.push(Said::Meaning(name.to_owned(), column));
                Ok(())
            }
            (Some(_), Some(_)) => Err(Error::input(format!(
                "the file has two columns {name:?}; rename one of them"
            ))),
            (None, _) => Err(Error::input(format!(
                "the file has no column {name:?}; it has {}",
                listed(&[self])
            ))),
        }
    }

    /// Checks that rows can be read.
    pub(super) fn check(&self) -> Result<(), Error> {
        if !self.has_address() {
            return Err(self.without_address());
        }
        self.check_consent()?;
        let unmapped = self.names.iter().zip(&self.guesses);
        let unmapped: Vec<&str> = unmapped
            .filter(|(_, guess)| guess.is_by_name && guess.column != Column::Ignored)
            .map(|(name, _)| name.as_str())
            .collect();
        if self.refuses_unmapped && !unmapped.is_empty() {
            return Err(Error::input(format!(
                "these columns are not mapped, and their names are not known: {unmapped:?}; map each of them, for example to \
                 `topic:NAME`, `property:NAME` or `ignore`"
            )));
        }
        let mut columns = self.columns();
        // A "no" to a topic leaves a contact subscribed to everything else.
        let opts_out = |column: &Column| {
            let is_topic = matches!(
                column,
                Column::Topic(_) | Column::Topics | Column::Groups(_)
            );
            column.is_consent() && !is_topic
        };
        if self.is_of_opt_outs && !columns.any(|(_, column)| opts_out(column)) {
            return Err(Error::input(
                "the name of the file says that its people opted out or never opted in, but no column says who opted out of \
                 everything; call `opt_out_all` (in the program: `--opt-out-all=FILE`), or rename the file if they may get mail",
            ));
        }
        let mut earlier = HashMap::new();
        for (name, column) in self.columns().filter(|(_, column)| is_single(column)) {
            let Some(first) = earlier.insert(column, name) else {
                continue;
            };
            // Columns with one name cannot be mapped.
            let advice = match first == name {
                true => "rename one of them in the file",
                false => "map one of them to something else or to `ignore`",
            };
            return Err(Error::input(format!(
                "two columns of the file are `{column}`; {advice}"
            )));
        }
        Ok(())
    }

    /// Checks that the caller has decided about each column that may say who opted out.
    fn check_consent(&self) -> Result<(), Error> {
        self.check_opt_outs()?;
        let unclear = self.names.iter().zip(&self.guesses);
        let unclear = unclear
            .filter(|(_, guess)| guess.may_be_consent)
            .map(|(name, _)| name.as_str());
        let of_file: Vec<String> = self.names.iter().map(|name| letters(name)).collect();
        let export = Export::with(&of_file);
        let lists_channels = |name: &&str| {
            export.is_some_and(|export| export.channels.contains(&letters(name).as_str()))
        };
        let (channels, unclear): (Vec<&str>, Vec<&str>) = unclear.partition(lists_channels);
        let mut advice = Vec::new();
        if !unclear.is_empty() {
            advice.push(format!(
                "these columns may say who opted out: {unclear:?}; map each of them: to `subscribed`, `unsubscribed`, \
                 `topic:NAME` or a list of groups `groups:GROUP:TOPIC` if it does, otherwise to `property:NAME` or `ignore`"
            ));
        }
        advice.extend(channels.iter().map(|name| {
            format!(
                "the column {name:?} lists the channels that a person allowed, and no topics: move the rows of those who did \
                 not allow email to a file of their own, call `opt_out_all` for it (in the program: `--opt-out-all=FILE`), \
                 and map the column to `ignore` in both files"
            )
        }));
        match advice.is_empty() {
            true => Ok(()),
            false => Err(Error::input(advice.join("; "))),
        }
    }

    /// Checks that nobody is subscribed because the columns that only people who opted out have are ignored.
    fn check_opt_outs(&self) -> Result<(), Error> {
        let columns = self.names.iter().zip(&self.guesses);
        let of_opt_outs = columns.filter(|(name, guess)| {
            let is_ignored = guess.column == Column::Ignored;
            is_of_opt_outs(name) && (guess.may_be_consent || is_ignored)
        });
        let of_opt_outs: Vec<&str> = of_opt_outs.map(|(name, _)| name.as_str()).collect();
        if of_opt_outs.is_empty() || self.says_who_opted_out() {
            return Ok(());
        }
        Err(Error::input(format!(
            "these columns say that the people in the file unsubscribed or bounced: {of_opt_outs:?}; call \
             `opt_out_all` (in the program: `--opt-out-all=FILE`); if some of them may get mail, map the column that says \
             who to `subscribed` or `unsubscribed`; if all may, map these columns to `property:NAME`, or delete them from \
             the file"
        )))
    }

    /// Returns whether a column is the address.
    pub(super) fn has_address(&self) -> bool {
        let mut guesses = self.guesses.iter();
        guesses.any(|guess| guess.column == Column::Email)
    }

    fn without_address(&self) -> Error {
        // A row instead of a header: its text does not belong in an error.
        if self.names.iter().any(|name| name.contains('@')) {
            return Error::input(
                "the first line has an address in it; add a line before it that names the columns",
            );
        }
        Error::input(format!(
            "no column holds the address; name one `email`, or map one of {} to `email`",
            listed(&[self])
        ))
    }
}

/// Returns the names of the columns of these files, each name once.
pub(super) fn listed(files: &[&Mapping]) -> String {
    let names = || files.iter().flat_map(|mapping| &mapping.names);
    if names().any(|name| name.contains('@')) {
        // The first line may be a row: its addresses do not belong in an error.
        return "others".to_owned();
    }
    let mut earlier = HashSet::new();
    let names = names().filter(|name| earlier.insert(name.as_str()));
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    names.join(", ")
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
        Column::Unsubscribed
        | Column::Subscribed
        | Column::Topic(_)
        | Column::Groups(_)
        | Column::Ignored => false,
    }
}

/// The meaning of a column's name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Guess {
    column: Column,
    /// Whether the column is taken for a property, or ignored, only because its name says nothing else.
    is_by_name: bool,
    /// The name may be one of a consent column in another form. It must not be taken for a property
    /// silently: its opt-outs would be lost.
    may_be_consent: bool,
}

impl Guess {
    fn certain(column: Column) -> Self {
        Self {
            column,
            is_by_name: false,
            may_be_consent: false,
        }
    }
}

/// Returns the name of a column with its meaning. Only consent has the short form: `contact (email)` may be the name of
/// a column.
fn with_meaning(name: &str, column: &Column) -> String {
    let text = match column.is_consent() {
        true => format!("{name} ({column})"),
        false => format!("{name} ({MAPPED_TO}{column})"),
    };
    // A column may have no name.
    text.trim_start().to_owned()
}

const MAPPED_TO: &str = "mapped to ";

/// Returns the name of a column without the meaning that [`with_meaning`] has put after it, and that meaning.
fn without_meaning(name: &str) -> Option<(&str, Column)> {
    let text = name.strip_suffix(')')?;
    // Both the name and a topic may have parentheses of their own.
    let mut places = text.match_indices('(').map(|(place, _)| place);
    places.find_map(|place| {
        let (plain, meaning) = (text[..place].trim_end(), &text[place + 1..]);
        let meaning = meaning.strip_prefix(MAPPED_TO).unwrap_or(meaning);
        let column: Column = meaning.parse().ok()?;
        (with_meaning(plain, &column) == name).then_some((plain, column))
    })
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
            "emailadresse",
            "mailadresse",
            "courriel",
            "adresseemail",
            "correoelectrónico",
            "correoelectronico",
        ],
    ),
    (
        Column::FirstName,
        &[
            "firstname",
            "givenname",
            "forename",
            "fname",
            "first",
            "vorname",
            "prénom",
            "prenom",
            "nombre",
        ],
    ),
    (
        Column::LastName,
        // Not `nom`: it is the family name in French, and the given name in Catalan.
        &[
            "lastname",
            "surname",
            "familyname",
            "lname",
            "last",
            "nachname",
            "familienname",
            "nomdefamille",
            "apellido",
            "apellidos",
        ],
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
            "abgemeldet",
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

/// The columns by which an export of another service is recognized and read.
struct Export {
    /// A file with all of these columns is its export.
    marks: &'static [&'static str],
    /// Columns that only that service needs. Some are personal data: IP addresses and places.
    ignored: &'static [&'static str],
    /// A file with one of these columns holds only people who must not get mail. They are ignored, too.
    opt_outs: &'static [&'static str],
    /// Columns that list the channels that somebody allowed. No mapping reads an opt-out of everything from them.
    channels: &'static [&'static str],
}

const EXPORTS: [Export; 3] = [
    // Mailchimp writes a file of the subscribed, one of the unsubscribed and one of the cleaned.
    Export {
        marks: &["leid", "euid"],
        ignored: &[
            "memberrating",
            "optintime",
            "optinip",
            "confirmtime",
            "confirmip",
            "latitude",
            "longitude",
            "gmtoff",
            "dstoff",
            "timezone",
            "cc",
            "region",
            "lastchanged",
            "leid",
            "euid",
        ],
        // The file of the subscribed has none of them.
        opt_outs: &[
            "unsubtime",
            "unsubcampaigntitle",
            "unsubcampaignid",
            "unsubreason",
            "unsubreasonother",
            "cleantime",
            "cleancampaigntitle",
            "cleancampaignid",
        ],
        channels: &["marketingpermissions"],
    },
    // Brevo
    Export {
        marks: &["addedtime", "modifiedtime"],
        ignored: &["contactid", "addedtime", "modifiedtime"],
        opt_outs: &[],
        channels: &[],
    },
    // SendGrid
    Export {
        marks: &["alternateemails", "contactid"],
        ignored: &["contactid", "createdat", "updatedat"],
        opt_outs: &[],
        channels: &[],
    },
];

impl Export {
    fn with(letters: &[String]) -> Option<&'static Self> {
        let mut exports = EXPORTS.iter();
        exports.find(|export| export.marks.iter().all(|mark| has(letters, mark)))
    }
}

fn has(letters: &[String], name: &str) -> bool {
    letters.iter().any(|letters| letters == name)
}

/// Returns whether a column with this name is one that only people who must not get mail have, as at Mailchimp, also if
/// the file is not recognized.
fn is_of_opt_outs(name: &str) -> bool {
    let (letters, name) = (letters(name), name.to_lowercase());
    let is_known = |export: &Export| export.opt_outs.contains(&letters.as_str());
    EXPORTS.iter().any(is_known) || name.starts_with("unsub_") || name.starts_with("clean_")
}

/// Parts of the names of columns that other services use for consent, as they are after [`letters`]. A wrong alarm
/// costs a setting. A missed column costs the opt-outs of a whole list, so the parts match anywhere in the name.
const CONSENT_PARTS: [&str; 56] = [
    "subscri",
    "unsub",
    "optout",
    "optedout",
    "optin",
    "optedin",
    "status",
    "newsletter",
    "mailinglist",
    "marketing",
    "accept",
    "allow",
    "agree",
    "receive",
    "permission",
    "consent",
    "confirm",
    "gdpr",
    "withdraw",
    "revoke",
    "suppress",
    "block",
    "blacklist",
    "donot",
    "dontcontact",
    "dontmail",
    "dontemail",
    "spam",
    "abuse",
    "complain",
    "bounce",
    "undeliverable",
    "cleaned",
    "cleantime",
    // German: unsubscribed, subscribed, blocked, revoked, objected, consent, confirmed.
    "abgemeldet",
    "abmeld",
    "abbestell",
    "angemeldet",
    "anmeld",
    "sperr",
    "widerruf",
    "widerspr",
    "einwillig",
    "zustimm",
    "erlaub",
    "bestätig",
    // French and Spanish: subscribed and unsubscribed, blocked, newsletter, consent.
    "inscri",
    "abonn",
    "suscri",
    "bloqu",
    "boletin",
    "boletín",
    "acepta",
    "autoris",
    "autoriz",
    "infolettre",
];

/// Words that are parts of other words, so that only a whole one counts: `Active` may be a state, `Interactive` is
/// none.
const CONSENT_WORDS: [&str; 14] = [
    "active", "inactive", "isactive", "opt", "opted", "clean", "mailings", "dnd", "dnc", "dne",
    "aktiv", "inaktiv", "baja", "bajas",
];

/// Cells that are an opt-out in any column, as they are after [`letters`].
const OPT_OUTS: [&str; 8] = [
    "unsubscribed",
    "nonsubscribed",
    "unsubscribe",
    "optout",
    "optedout",
    "abgemeldet",
    "désinscrit",
    "désabonné",
];

/// Cells that are states of a subscription only if most cells of the column are: a property may have one of them.
const STATES: [&str; 27] = [
    "subscribed",
    "subscribe",
    "active",
    "inactive",
    "confirmed",
    "unconfirmed",
    "pending",
    "optin",
    "optedin",
    "cleaned",
    "bounced",
    "hardbounced",
    "softbounced",
    "complained",
    "spam",
    "suppressed",
    "blocklisted",
    "blacklisted",
    "angemeldet",
    "abonniert",
    "aktiv",
    "inaktiv",
    "gesperrt",
    "inscrit",
    "abonné",
    "suscrito",
    "baja",
];

/// Parts of the names of files that hold people who must not get mail. Mailchimp's file of people who never opted in,
/// `nonsubscribed_…`, has the columns of the file of those who did.
const OPT_OUT_FILES: [&str; 20] = [
    "unsubscribe",
    "nonsubscribe",
    "notsubscribe",
    "optout",
    "optedout",
    "cleaned",
    "bounce",
    "suppress",
    "blocked",
    "blocklist",
    "blacklist",
    "spamreport",
    "abgemeldet",
    "abmeldung",
    "gesperrt",
    "désinscri",
    "desinscri",
    "désabonn",
    "desabonn",
    "bajas",
];

/// The columns of an export that only the service can set.
const SET_BY_THE_SERVICE: [&str; 2] = ["id", "created_at"];

/// Guesses what the column with this name means.
fn guess(name: &str) -> Guess {
    let letters = letters(name);
    let known = NAMES
        .iter()
        .find(|(_, names)| names.contains(&letters.as_str()));
    let column = match known {
        Some((column, _)) => column.clone(),
        None if name == "import_key" => Column::Key,
        // By the exact name: `ID` or `Created At` of another service may be worth keeping as a property.
        None if SET_BY_THE_SERVICE.contains(&name) => Column::Ignored,
        None if letters.is_empty() => Column::Ignored,
        None => Column::named(name).unwrap_or_else(|| Column::Property(name.to_owned())),
    };
    // A name such as `property:status` says itself that it is a property.
    let says_itself = Column::named(name).is_some() || SET_BY_THE_SERVICE.contains(&name);
    let is_by_name = matches!(column, Column::Property(_) | Column::Ignored) && !says_itself;
    let is_like_consent = CONSENT_PARTS.iter().any(|part| letters.contains(part))
        || words(name).any(|word| CONSENT_WORDS.contains(&word.as_str()));
    Guess {
        column,
        is_by_name,
        may_be_consent: is_by_name && is_like_consent,
    }
}

/// Returns whether a column with this name is taken for the property with the same name, in any file.
pub(crate) fn is_property_name(name: &str) -> bool {
    let guess = guess(name);
    let letters = letters(name);
    // With all marks of another service, columns of its own would be ignored. Without the marks, they are properties.
    let is_mark = |export: &Export| export.marks.contains(&letters.as_str());
    matches!(guess.column, Column::Property(found) if found == name)
        && !guess.may_be_consent
        && !EXPORTS.iter().any(is_mark)
}

/// Returns the letters and digits of a name in lower case: `E-Mail Address` is `emailaddress`.
pub(super) fn letters(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns the words of a name in lower case. They are separated by anything but letters, and by a capital after a
/// small letter: `isActive` and `is_active` are `is` and `active`.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut is_after_small = false;
    let parts = name.chars().flat_map(move |letter| {
        let begins_word = is_after_small && letter.is_uppercase();
        is_after_small = letter.is_lowercase();
        begins_word.then_some(' ').into_iter().chain([letter])
    });
    let parts: String = parts.collect();
    let words = parts.split(|letter: char| !letter.is_alphabetic());
    let words: Vec<_> = words.map(str::to_lowercase).collect();
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_reads_its_own_text_form() {
        let named = [
            "property:plan",
            "topic:a:b",
            r"groups:News\, weekly:a\:b,Offers:offers,Old\\:",
            r#"groups:\"Best\" news:\"a\""#,
        ];
        for text in WORDS.map(|(word, _)| word).into_iter().chain(named) {
            let column: Column = text.parse().unwrap();

            assert_eq!(column.to_string(), text);
        }
    }

    #[test]
    fn a_mapping_of_groups_may_have_quotation_marks_around_the_names() {
        for (quoted, escaped) in [
            (
                r#"groups:"News: weekly, daily":a, "say, ""hi""":b,5" disk:c,"Best" news:d"#,
                r#"groups:News\: weekly\, daily:a,say\, \"hi\":b,5\" disk:c,\"Best\" news:d"#,
            ),
            (
                r#"groups:"say, \"hi\"":a,"C:\\":b"#,
                r#"groups:say\, \"hi\":a,C\:\\:b"#,
            ),
        ] {
            let column: Column = quoted.parse().unwrap();

            assert_eq!(column, escaped.parse().unwrap(), "{quoted}");
        }
    }

    #[test]
    fn an_unknown_member_is_refused_with_the_known_ones() {
        for text in [
            "fist_name",
            "",
            "topic:",
            "property: ",
            "Email",
            "groups:",
            "groups::news",
            "groups:News:news,",
            "groups:a:b:c",
            "groups:\"News:news",
        ] {
            let error = text.parse::<Column>().unwrap_err();

            assert!(error.to_string().contains("property:NAME"), "{error}");
        }
    }

    #[test]
    fn a_group_without_a_topic_is_refused_with_the_way_to_write_a_comma() {
        for text in ["groups:News", "groups:News, Events:news,Offers:offers"] {
            let error = text.parse::<Column>().unwrap_err().to_string();

            assert!(error.contains("a group has no topic"), "{error}");
            assert!(error.contains(r"a comma in a name as `\,`"), "{error}");
        }
    }

    #[test]
    fn names_are_recognized_in_any_spelling() {
        for (name, column) in [
            ("E-Mail", Column::Email),
            ("Email address", Column::Email),
            ("EMAIL_ADDRESS", Column::Email),
            ("First name", Column::FirstName),
            ("given_name", Column::FirstName),
            ("E-Mail-Adresse", Column::Email),
            ("Adresse e-mail", Column::Email),
            ("Correo electrónico", Column::Email),
            ("Vorname", Column::FirstName),
            ("Prénom", Column::FirstName),
            ("Nombre", Column::FirstName),
            ("Nachname", Column::LastName),
            ("Nom de famille", Column::LastName),
            ("Apellidos", Column::LastName),
            ("Abgemeldet", Column::Unsubscribed),
            ("Anrede", Column::Property("Anrede".to_owned())),
            ("Nom", Column::Property("Nom".to_owned())),
            ("Surname", Column::LastName),
            ("LASTNAME", Column::LastName),
            ("Opted-Out", Column::Unsubscribed),
            ("Unsubscribe Reason", Column::UnsubscribeReason),
            (
                "topic:Product news",
                Column::Topic("Product news".to_owned()),
            ),
            ("Topic: News", Column::Topic("News".to_owned())),
            ("TOPIC :news", Column::Topic("news".to_owned())),
            ("property:email", Column::Property("email".to_owned())),
            ("Property: Email", Column::Property("Email".to_owned())),
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
            "Contact Status",
            "Email Marketing Status",
            "Email permission status",
            "Mailing status",
            "Email channel status",
            "emailStatus",
            "Accepts Email Marketing",
            "accepts_marketing",
            "Marketing contact",
            "Newsletters",
            "NewsletterOk",
            "Is Subscribed",
            "isSubscribed",
            "Subscription",
            "UNSUB_TIME",
            "Email Marketing Consent",
            "opt-in date",
            "Email Opt",
            "do not email",
            "DoNotCall",
            "Don't contact",
            "DND",
            "Spam",
            "Abuse reports",
            "Complaints",
            "Bounced",
            "bounce_count",
            "Blocked",
            "Suppression",
            "Blacklist",
            "GDPR",
            "Active",
            "is_active",
            "isActive",
            "ISACTIVE",
            "Inactive",
            "Clean",
            "CLEAN_TIME",
            "Agreed to emails",
            "May receive mail",
            "Allow email",
            "Withdrawn",
            "Confirmed at",
            "emailConfirmed",
            "Bestätigt",
            "Abgemeldet am",
            "Abmeldung",
            "Newsletter abbestellt",
            "Gesperrt",
            "Widerrufen am",
            "Werbewiderspruch",
            "Aktiv",
            "Désinscrit",
            "Désabonné le",
            "Bloqué",
            "Baja",
            "Fecha de baja",
            "Suscrito",
            "Acepta publicidad",
        ] {
            assert!(guess(name).may_be_consent, "{name}");
        }
        // Columns of rejects, without those that say so.
        let header = [
            "email",
            "Weekly (topic:news)",
            "Plan (mapped to property:plan)",
        ];
        let bare = Mapping::guess(&header.map(|name| name.as_bytes().to_vec())).unwrap();
        let error = bare.check_consent().unwrap_err().to_string();
        assert!(error.contains("[\"Weekly (topic:news)\"]"), "{error}");
        for name in [
            "property:status",
            "topic:newsletter",
            "Country",
            "Interactive demo",
            "Mailing Street",
            "Options",
            "Adopted",
            "Description",
            "Cleaning day",
            "Trabaja",
            "Straße",
            "Teléfono",
            "id",
            "created_at",
        ] {
            assert!(!guess(name).may_be_consent, "{name}");
        }
    }
}
