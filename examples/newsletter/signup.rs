//! The double opt-in: a form, a mail with a link, and a button on the page behind it.
//!
//! A signup waits in the table `signups` until its click. Before that, the address is no contact. The responses do not
//! tell whether it is one.

use std::error::Error;
use std::time::Duration;

use audience::Outcome;
use audience::contacts::{check_address, normalized_address};
use audience::emails::Email;
use audience::inbox::deadpool_postgres::tokio_postgres::{Row, types::ToSql};
use audience::webhooks::MailEvent;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

use crate::{App, SENDER, TOPICS};

pub(crate) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS signups (
        token TEXT PRIMARY KEY DEFAULT gen_random_uuid()::text,
        address TEXT NOT NULL,
        topics TEXT[] NOT NULL,
        email_id TEXT,
        at TIMESTAMPTZ NOT NULL DEFAULT now()
    );
    CREATE INDEX IF NOT EXISTS signups_by_address ON signups (address)";

/// One mail for an address and a choice in ten minutes, so that nobody floods a mailbox with this form. Each choice has a
/// row of its own: a stranger must not change what a click confirms.
const INSERT: &str = "
    INSERT INTO signups (address, topics)
    SELECT $1, $2
    WHERE NOT EXISTS (
        SELECT FROM signups WHERE address = $1 AND topics = $2 AND at > now() - interval '10 minutes'
    )
    RETURNING token";
const EXPIRE: &str = "DELETE FROM signups WHERE at < now() - interval '3 days'";
const DELETE: &str = "DELETE FROM signups WHERE token = $1";
/// The next attempt sends another mail.
const ALLOW_ANOTHER: &str = "UPDATE signups SET at = at - interval '10 minutes' WHERE token = $1";
const SENT: &str = "UPDATE signups SET email_id = $2 WHERE token = $1";
const DELETE_SENT: &str = "DELETE FROM signups WHERE email_id = $1 RETURNING token";
const IS_BEING_SENT: &str = "
    SELECT FROM signups
    WHERE address = $1 AND email_id IS NULL AND at > now() - interval '1 minute'";
const FIND: &str =
    "SELECT address, topics FROM signups WHERE token = $1 AND at > now() - interval '3 days'";

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// What went wrong, for the log. The visitor reads whether to try again.
pub(crate) struct Failure(BoxError);

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        tracing::error!(error = %self.0, "a page failed");
        let status = audience::visitor_status(&*self.0);
        let status = status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let text = match status {
            StatusCode::CONFLICT => {
                "You reported our mail as spam, so we cannot write to this address."
            }
            StatusCode::UNPROCESSABLE_ENTITY => "We cannot write to this address.",
            _ => "That did not work. Please try again in a minute.",
        };
        (status, page(&format!("<p>{text}</p>"))).into_response()
    }
}

/// Runs a statement. It keeps no connection: while the service is slow, webhooks and opt-outs need them.
async fn query(
    app: &App,
    statement: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, BoxError> {
    let connection = app.store.pool().get().await?;
    Ok(connection.query(statement, values).await?)
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
    let chosen = TOPICS.map(|topic| values("topic").any(|name| name == topic.0).then_some(topic));
    let (topics, labels): (Vec<_>, Vec<_>) = chosen.into_iter().flatten().unzip();
    if check_address(&address).is_err() || topics.is_empty() {
        return Ok(page("<p>Enter an address, and choose a newsletter.</p>"));
    }
    query(&app, EXPIRE, &[]).await?;
    if let [row] = &*query(&app, INSERT, &[&address, &topics]).await? {
        let token: String = row.get("token");
        let link = format!("{}/confirm/{token}", app.public_url);
        let text = format!("To get {}, open {link}\n", labels.join(" and "));
        let mail = Email::new().from(SENDER).to(&address).member("text", text);
        let mail = mail.subject("Please confirm your address");
        let sending = app.client.emails().send(mail);
        match sending.deadline(Duration::from_secs(8)).await {
            Ok(sent) => query(&app, SENT, &[&token, &sent.id]).await?,
            Err(error) => {
                // If the mail may have been sent, its link must work.
                let statement = match error.outcome() {
                    Outcome::Unknown | Outcome::Applied => ALLOW_ANOTHER,
                    _ => DELETE,
                };
                query(&app, statement, &[&token]).await?;
                return Err(error.into());
            }
        };
    }
    Ok(page("<p>Thank you. Please open the link in our mail.</p>"))
}

/// Changes nothing: scanners open links.
pub(crate) async fn confirm_form() -> Html<String> {
    page(r#"<form method="post"><p><button>Yes, I want the newsletters</button></p></form>"#)
}

pub(crate) async fn confirm(
    State(app): State<App>,
    Path(token): Path<String>,
) -> Result<Html<String>, Failure> {
    let rows = query(&app, FIND, &[&token]).await?;
    let [row] = &*rows else {
        return Ok(page("<p>This link is used up, or too old.</p>"));
    };
    let (address, topics): (String, Vec<String>) = (row.get("address"), row.get("topics"));
    // A task of its own: if the visitor leaves meanwhile, the link must not stay valid after the opt-in.
    let confirming = tokio::spawn(async move {
        app.preferences.subscribe(address, topics).await?;
        // Last: if something fails before, the next click does all of it again.
        query(&app, DELETE, &[&token]).await?;
        Ok::<_, Failure>(page("<p>Welcome!</p>"))
    });
    confirming.await?
}

/// Forgets the signup whose mail does not arrive.
pub(crate) async fn forget(app: &App, mail: &MailEvent) -> Result<(), BoxError> {
    let deleted = query(app, DELETE_SENT, &[&mail.email_id]).await?;
    let address = normalized_address(&mail.to);
    if deleted.is_empty() && !query(app, IS_BEING_SENT, &[&address]).await?.is_empty() {
        return Err("the id of a mail to this address is not stored yet".into());
    }
    Ok(())
}

fn page(content: &str) -> Html<String> {
    Html(format!(
        r#"<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
        <meta name="referrer" content="no-referrer"><title>Newsletters</title><h1>Newsletters</h1>{content}</html>"#
    ))
}
