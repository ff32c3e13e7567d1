//! Creates or updates a contact for each row of a CSV file: `cargo run --example sync_contacts [-- FILE]`.
//!
//! The first line names the columns. The column `email` is required, `first_name` and `last_name` are optional,
//! and every other column is a property. Numbers are sent as numbers. Empty cells are not sent.
//!
//! Set `AUDIENCE_URL` and `AUDIENCE_KEY` to use a service. Without them, the example uses the embedded mock.
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use std::env;
use std::error::Error as StdError;

use audience::Client;
use audience::contacts::{BatchOutcome, Contacts, MAX_BATCH, NewContact, PropertyValue};
use audience::mock::MockServer;
use clap::Parser;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/contacts.csv");

/// Creates or updates a contact for each row of a CSV file
#[derive(Parser)]
#[command(name = "sync_contacts", after_help = ENVIRONMENT)]
struct Arguments {
    /// CSV file whose first line names the columns, one of them `email`
    #[arg(default_value = SAMPLE, hide_default_value = true)]
    file: String,
}

const ENVIRONMENT: &str = "\
Environment:
  AUDIENCE_URL  Base URL of the service
  AUDIENCE_KEY  Full-access key

Without a file, the example uses fixtures/contacts.csv. Without the two variables, it uses the embedded mock.";

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let rows = read_rows(&Arguments::parse().file)?;

    match (env::var("AUDIENCE_URL"), env::var("AUDIENCE_KEY")) {
        (Ok(url), Ok(key)) => sync(&Client::new(url, key)?.contacts(), rows).await?,
        (Err(_), Err(_)) => {
            let server = MockServer::start().await;
            println!("AUDIENCE_URL and AUDIENCE_KEY are not set: using the embedded mock");
            sync(&server.client().contacts(), rows).await?;
        }
        _ => return Err("set both AUDIENCE_URL and AUDIENCE_KEY, or neither".into()),
    }
    Ok(())
}

/// Sends the rows in batches and prints the outcome of each.
async fn sync(contacts: &Contacts, rows: Vec<Row>) -> Result<(), audience::Error> {
    let (mut created, mut updated, mut failed) = (0, 0, 0);
    for rows in rows.chunks(MAX_BATCH) {
        let batch = rows.iter().map(|row| &row.contact);
        let report = contacts.create_batch(batch).await?;
        for (row, entry) in rows.iter().zip(&report.entries) {
            match &entry.outcome {
                BatchOutcome::Created => created += 1,
                BatchOutcome::Updated => updated += 1,
                outcome if outcome.is_failure() => failed += 1,
                _ => {}
            }
            let (line, email, outcome) = (row.line, row.contact.email(), &entry.outcome);
            println!("line {line:>4}  {email:<28} {outcome}");
        }
    }
    println!("{created} created, {updated} updated, {failed} failed");
    Ok(())
}

/// A contact and the line of the file it is on.
struct Row {
    line: u64,
    contact: NewContact,
}

fn read_rows(path: &str) -> Result<Vec<Row>, Box<dyn StdError>> {
    let mut reader = csv::Reader::from_path(path).map_err(|error| format!("{path}: {error}"))?;
    let columns = reader.headers()?.clone();
    let email = columns
        .iter()
        .position(|column| column == "email")
        .ok_or("the file has no column named email")?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, csv::Position::line);
        let mut contact = NewContact::new(&record[email]);
        for (column, cell) in columns
            .iter()
            .zip(&record)
            .filter(|(_, cell)| !cell.is_empty())
        {
            contact = match column {
                "email" => contact,
                "first_name" => contact.first_name(cell),
                "last_name" => contact.last_name(cell),
                property => contact.property(property, number_or_text(cell)),
            };
        }
        rows.push(Row { line, contact });
    }
    Ok(rows)
}

/// Returns a number only if it prints exactly as the cell. Postcodes, phone numbers and long ids stay text.
fn number_or_text(cell: &str) -> PropertyValue {
    serde_json::from_str::<serde_json::Number>(cell)
        .ok()
        .filter(|number| number.to_string() == cell)
        .map_or_else(|| cell.into(), PropertyValue::from)
}
