//! The rows that all ways import.

use audience::contacts::NewContact;

/// A row as a program has it before it imports it.
pub(crate) struct Row {
    pub(crate) email: String,
    pub(crate) first_name: String,
    pub(crate) plan: &'static str,
    pub(crate) seats: u32,
}

/// Returns rows that are made when they are read, each with another address.
pub(crate) fn rows(count: u64) -> impl ExactSizeIterator<Item = Row> + Send + 'static {
    let count = usize::try_from(count).expect("the rows can be counted");
    (0..count).map(|number| Row {
        email: format!("reader{number:07}@example.com"),
        first_name: format!("Reader {number}"),
        plan: if number % 3 == 0 { "pro" } else { "free" },
        seats: 3,
    })
}

/// Returns the same rows as contacts of this crate.
pub(crate) fn contacts(count: u64) -> impl Iterator<Item = NewContact> + Send + 'static {
    rows(count).map(|row| {
        NewContact::new(row.email)
            .first_name(row.first_name)
            .property("plan", row.plan)
            .property("seats", row.seats)
    })
}
