//! Finds out which forms of two requests the service expects: `cargo run --example check_forms -- ADDRESS`.
//!
//! The interface document does not show the body of a merge and the name of the day count in a joined condition. A
//! service that expects another form may respond 200 nevertheless. So this program looks at what the service does, and
//! prints the settings of `ClientBuilder` that fit it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program prints its messages"
)]

use std::env;
use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use audience::contacts::{Contact, NewContact, PropertyValue};
use audience::mock::MockServer;
use audience::rule::{Condition, Rule};
use audience::{Client, ClientBuilder, Error, ErrorKind};
use clap::Parser;

/// Finds out which forms of two requests the service expects
#[derive(Parser)]
#[command(name = "check_forms", after_help = AFTER_HELP)]
struct Arguments {
    /// Address of a contact of your own. It gets a property, and then the properties that it had before
    #[arg(default_value = "you@example.com", hide_default_value = true)]
    address: String,
}

const AFTER_HELP: &str = "\
Environment:
  AUDIENCE_URL  Base URL of the service
  AUDIENCE_KEY  Full-access key

Without the two variables, the example uses the embedded mock.

Exit status: 0 if both forms were found, 1 otherwise.";

/// The property that the check merges into the contact.
const PROPERTY: &str = "audience_check";

/// The names that the day count may have; `None` is the default.
const MEMBERS: [Option<&str>; 5] = [
    None,
    Some("value"),
    Some("count"),
    Some("day_count"),
    Some("n"),
];

/// A hundred years. Nobody joined before that.
const LONG_AGO: u32 = 36_500;

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("check_forms: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Checks both forms. Returns whether both were found.
async fn run(arguments: &Arguments) -> Result<bool, Box<dyn StdError>> {
    let address = &arguments.address;
    let mut mock = None;
    let settings = match (env::var("AUDIENCE_URL"), env::var("AUDIENCE_KEY")) {
        (Ok(url), Ok(key)) => Client::builder(url, key),
        (Err(_), Err(_)) => {
            eprintln!("AUDIENCE_URL and AUDIENCE_KEY are not set: using the embedded mock");
            let server = MockServer::builder().seed_contact(address.as_str());
            let server = mock.insert(server.start().await);
            server.client_builder()
        }
        _ => return Err("set both AUDIENCE_URL and AUDIENCE_KEY, or neither".into()),
    };
    let before = settings
        .clone()
        .build()?
        .contacts()
        .retrieve(address)
        .await?;

    // A wrong form may replace all properties. If they cannot be restored, or the program is killed, they are here.
    let properties = serde_json::to_string(&before.properties)?;
    eprintln!("the properties before: {properties}");
    let merge = merge_form(&settings, &before).await;
    // Whatever the check has done: an upsert replaces all properties.
    restore(&settings, before).await?;
    let merge = merge?;
    println!("merge_properties: {}", merge.unwrap_or(NEITHER));

    let joined = joined_form(&settings).await?;
    println!(
        "joined conditions: {}",
        joined.as_deref().unwrap_or(NEITHER)
    );
    Ok(merge.is_some() && joined.is_some())
}

const NEITHER: &str = "no known form is right; ask whoever runs the service";

/// Returns which form of the body merges a property, and keeps the others.
async fn merge_form(
    settings: &ClientBuilder,
    before: &Contact,
) -> Result<Option<&'static str>, Error> {
    // Another value each time, so that the result of an earlier check does not count.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let value = PropertyValue::from(now.unwrap_or_default().as_secs());
    for (builder, verdict) in [
        (settings.clone(), "the default is right"),
        (settings.clone().bare_merge(), "call `.bare_merge()`"),
    ] {
        let contacts = builder.build()?.contacts();
        let property = [(PROPERTY, value.clone())];
        match contacts.merge_properties(&before.email, property).await {
            Ok(_) => {}
            // The service does not accept this form.
            Err(error) if error.kind() == ErrorKind::Api && !error.is_retryable() => continue,
            Err(error) => return Err(error),
        }
        let after = contacts.retrieve(&before.email).await?.properties;
        let keeps = |(name, old): (_, &PropertyValue)| {
            name == PROPERTY || after.get(name).is_some_and(|new| new == old)
        };
        let is_merged = after.get(PROPERTY) == Some(&value);
        if is_merged && before.properties.iter().all(keeps) {
            return Ok(Some(verdict));
        }
    }
    Ok(None)
}

/// Stores the names and the properties that the contact had.
async fn restore(settings: &ClientBuilder, before: Contact) -> Result<(), Error> {
    let mut contact = NewContact::new(before.email);
    contact.first_name = before.first_name;
    contact.last_name = before.last_name;
    contact.properties = Some(before.properties);
    let contacts = settings.clone().build()?.contacts();
    contacts.create(contact).await.map(drop)
}

/// Returns which name of the day count selects contacts by it: all of them joined within a hundred years, and none of
/// them before that.
async fn joined_form(settings: &ClientBuilder) -> Result<Option<String>, Error> {
    for member in MEMBERS {
        let (builder, verdict) = match member {
            None => (settings.clone(), "the default is right".to_owned()),
            Some(name) => (
                settings.clone().joined_member(name),
                format!("call `.joined_member({name:?})`"),
            ),
        };
        let client = builder.build()?;
        let within = selects_anyone(&client, Condition::joined_within_days(LONG_AGO)).await?;
        let before = selects_anyone(&client, Condition::joined_before_days(LONG_AGO)).await?;
        if (within, before) == (Some(true), Some(false)) {
            return Ok(Some(verdict));
        }
    }
    Ok(None)
}

/// Returns whether a condition selects any contact. `None` if the service does not accept it.
async fn selects_anyone(client: &Client, condition: Condition) -> Result<Option<bool>, Error> {
    let list = client.contacts().list().limit(1);
    match list.rule(Rule::all([condition])).await {
        Ok(page) => Ok(Some(!page.data.is_empty())),
        Err(error) if error.kind() == ErrorKind::Api && !error.is_retryable() => Ok(None),
        Err(error) => Err(error),
    }
}
