//! Contacts for `--generate`.

use std::io::{self, Cursor, Read};

/// The text of a CSV file with generated contacts. One of 1,000 opted out.
pub(crate) struct Generated {
    numbers: std::ops::RangeInclusive<u64>,
    text: Cursor<Vec<u8>>,
}

impl Generated {
    pub(crate) fn new(rows: u64) -> Self {
        let header = "email,first_name,plan,seats,unsubscribed\n";
        Self {
            numbers: 1..=rows,
            text: Cursor::new(header.into()),
        }
    }
}

impl Read for Generated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.text.read(buffer)? {
            0 => {}
            read => return Ok(read),
        }
        let rows = self.numbers.by_ref().take(100).map(|number| {
            let (seats, has_opted_out) = (number % 50, number % 1_000 == 0);
            format!("person{number}@example.com,Person {number},pro,{seats},{has_opted_out}\n")
        });
        self.text = Cursor::new(rows.collect::<String>().into());
        self.text.read(buffer)
    }
}
