//! The command that shows and moves the clock.

use audience::Timestamp;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::Target;
use super::output::Output;
use crate::duration;

#[derive(Args)]
pub(crate) struct ClockOptions {
    #[command(subcommand)]
    to: Option<Move>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum Move {
    /// Move the clock forward; what is due on the way happens in order
    Advance {
        /// How far, such as 90s, 5h, 1h30m or 2d
        #[arg(value_name = "DURATION", value_parser = duration::seconds)]
        by: u64,
    },
    /// Set the clock
    Set {
        /// Unix time in seconds, or a time such as 2030-01-31T12:00:00Z
        #[arg(value_name = "TIME", value_parser = time, allow_negative_numbers = true)]
        to: i64,
    },
}

/// Shows the clock, or moves it and shows it when everything due on the way has happened.
pub(super) async fn clock(options: ClockOptions) -> Result<(), String> {
    let url = &options.target.url;
    let response = match options.to {
        None => url.call(Method::GET, "clock", None).await?,
        Some(to) => {
            let body = match to {
                Move::Advance { by } => json!({"advance": by}),
                Move::Set { to } => json!({"set": to}),
            };
            url.call(Method::POST, "clock", Some(body.to_string().into()))
                .await?
        }
    };
    Output::new(options.target.json).result(&response, |response| {
        let now = response["now"].as_i64().unwrap_or_default();
        format!("{now}  {}\n", Timestamp::from_unix(now))
    })
}

fn time(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let time: Timestamp = text.parse().map_err(|error| {
        format!("it is neither Unix seconds nor a time such as 2030-01-31T12:00:00Z: {error}")
    })?;
    Ok(time.as_unix())
}
