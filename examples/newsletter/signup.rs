//! The double opt-in: a form, a mail with a link, and a button on the page behind it.
//!
//! A signup waits in the table `signups` until its click. Before that, the address is no contact. The responses do not
//! tell whether it is one.

use std::error::Error;

use audience::contacts::{Contacts, NewContact, OnConflict, TopicsError, normalized_address};
use audience::emails::Email;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

use crate::{App, SENDER, TOPICS};

pub(crate) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS signups (
        token TEXT PRIMARY KEY DEFAULT gen_random_uuid()::text,
        address TEXT NOT NULL,
        topics TEXT[] NOT NULL,
        at TIMESTAMPTZ NOT NULL DEFAULT now()
    );
    CREATE INDEX IF NOT EXISTS signups_by_address ON signups (address)";

/// One mail for an address in ten minutes, so that nobody floods a mailbox with this form.
const INSERT: &str = "
    INSERT INTO signups (address, topics)
    SELECT $1, $2
    WHERE NOT EXISTS (SELECT FROM signups WHERE address = $1 AND at > now() - interval '10 minutes')
    RETURNING token";
const EXPIRE: &str = "DELETE FROM signups WHERE at < now() - interval '3 days'";
const DELETE: &str = "DELETE FROM signups WHERE token = $1";
const FIND: &str =
    "SELECT address, topics FROM signups WHERE token = $1 AND at > now() - interval '3 days'";

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// What went wrong, for the log. The visitor reads that they should try again.
pub(crate) struct Failure(BoxError);

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        tracing::error!(error = %self.0, "a page failed");
        let page = page("<p>That did not work. Please try again in a minute.</p>");
        (StatusCode::SERVICE_UNAVAILABLE, page).into_response()
    }
}

pub(crate) async fn form() -> Html<String> {
    let boxes = TOPICS.map(|(name, label)| {
        format!(
            r#"<p><label><input type="checkbox" name="topic" value="{name}"> {label}</label></p>"#
        )
    });
    page(&format!(
        r#"<form method="post">
        <p><label>Your address <input type="email" name="address" required></label></p>
        {}<p><button>Sign up</button></p></form>"#,
        boxes.concat()
    ))
}

/// Stores a signup and sends the mail with its link.
pub(crate) async fn sign_up(
    State(app): State<App>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Html<String>, Failure> {
    let values = |name| {
        fields
            .iter()
            .filter(move |field| field.0 == name)
            .map(|field| &field.1)
    };
    let address = normalized_address(values("address").next().map_or("", String::as_str));
    let topics: Vec<&String> = values("topic").filter(|name| is_offered(name)).collect();
    if !address.contains('@') || topics.is_empty() {
        return Ok(page(
            "<p>Please enter your address, and choose at least one newsletter.</p>",
        ));
    }
    let database = app.store.pool().get().await?;
    database.execute(EXPIRE, &[]).await?;
    if let Some(row) = database.query_opt(INSERT, &[&address, &topics]).await? {
        let token: String = row.get("token");
        let link = format!("{}/confirm/{token}", app.public_url);
        let mail = Email::new()
            .from(SENDER)
            .to(&address)
            .subject("Please confirm your address");
        let mail = mail.member("text", format!("To get our newsletters, open {link}\n"));
        if let Err(error) = app.client.emails().send(mail).await {
            // So that the next attempt sends a mail.
            database.execute(DELETE, &[&token]).await?;
            return Err(error.into());
        }
    }
    Ok(page(
        "<p>Thank you. Please open the link in the mail that we sent you.</p>",
    ))
}

/// Changes nothing: scanners open links.
pub(crate) async fn confirm_form() -> Html<String> {
    page(r#"<form method="post"><p><button>Yes, I want the newsletters</button></p></form>"#)
}

pub(crate) async fn confirm(
    State(app): State<App>,
    Path(token): Path<String>,
) -> Result<Html<String>, Failure> {
    let database = app.store.pool().get().await?;
    let Some(row) = database.query_opt(FIND, &[&token]).await? else {
        return Ok(page(
            "<p>This link was used already, or is older than three days.</p>",
        ));
    };
    let (address, topics): (String, Vec<String>) = (row.get("address"), row.get("topics"));
    if app.preferences.has_pending(&address, &topics).await? {
        return Err("an older opt-out is not sent yet, and would undo this".into());
    }
    match subscribe(&app.client.contacts(), &address, &topics).await {
        Err(error) if error.is_complaint_locked() => {
            return Ok(page(
                "<p>You reported our mail as spam, so we cannot write to this address.</p>",
            ));
        }
        result => result?,
    }
    // Last: if something fails before, the next click does all of it again.
    database.execute(DELETE, &[&token]).await?;
    Ok(page("<p>Welcome!</p>"))
}

async fn subscribe(
    contacts: &Contacts,
    address: &str,
    topics: &[String],
) -> Result<(), audience::Error> {
    // An existing contact keeps its names and properties.
    let contact = NewContact::new(address).on_conflict(OnConflict::Skip);
    let created = contacts.create(contact).await?;
    // An answer for every topic, opt-outs first.
    let answers = TOPICS.map(|(name, _)| (name, topics.iter().any(|topic| topic == name)));
    contacts
        .set_topics(address, answers)
        .await
        .map_err(TopicsError::into_error)?;
    if created.contact.unsubscribed {
        contacts.subscribe(address).await?;
    }
    Ok(())
}

/// Forgets the signups of an address that no mail reaches.
pub(crate) async fn forget(app: &App, address: &str) -> Result<(), BoxError> {
    let database = app.store.pool().get().await?;
    let address = normalized_address(address);
    let delete = "DELETE FROM signups WHERE address = $1";
    database.execute(delete, &[&address]).await?;
    Ok(())
}

fn is_offered(topic: &str) -> bool {
    TOPICS.iter().any(|(name, _)| *name == topic)
}

fn page(content: &str) -> Html<String> {
    Html(format!(
        r#"<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
        <meta name="referrer" content="no-referrer"><title>Newsletters</title><h1>Newsletters</h1>{content}</html>"#
    ))
}
