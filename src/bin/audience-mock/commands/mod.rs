//! The commands that talk to a running mock.

mod clock;
mod fault;
mod lists;
mod output;
mod seed;
mod send_event;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;

use self::output::Output;
use crate::control_plane::MockUrl;
use crate::examine::{ExamineOptions, examine};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send an event to every endpoint, and show how each responded
    SendEvent(send_event::SendEventOptions),
    /// Show the clock, or move it
    Clock(clock::ClockOptions),
    /// Let the next requests to the mock fail
    Fault(fault::FaultOptions),
    /// List the events, oldest first
    Events(Target),
    /// List the attempts to deliver events, oldest first
    Attempts(Target),
    /// List the requests that the mock received, oldest first, and why it refused some
    Requests(Target),
    /// Go back to the state that the mock was started with
    Reset(Target),
    /// Add the content of a seed file
    Seed(seed::SeedOptions),
    /// Print the JSON Schema of a seed file
    Schema,
    /// Examine a receiver of webhooks: send it deliveries, genuine and forged, and grade the responses
    Examine(ExamineOptions),
}

/// The mock that a command talks to, and how it prints the response.
#[derive(Args)]
pub(crate) struct Target {
    /// URL of the mock
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:4010"
    )]
    #[arg(env = "AUDIENCE_MOCK_URL")]
    url: MockUrl,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

/// Runs a command, and returns the exit status.
///
/// # Errors
///
/// Fails if no mock listens, if it refuses the call, or if the result cannot be printed.
pub(crate) async fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::SendEvent(options) => send_event::send_event(options).await?,
        Command::Clock(options) => clock::clock(options).await?,
        Command::Fault(options) => fault::fault(options).await?,
        Command::Events(target) => lists::events(&target).await?,
        Command::Attempts(target) => lists::attempts(&target).await?,
        Command::Requests(target) => lists::requests(&target).await?,
        Command::Reset(target) => {
            let response = target.url.call(Method::POST, "reset", None).await?;
            Output::new(target.json).done(&response, "the mock is as it was started")?;
        }
        Command::Seed(options) => seed::seed(options).await?,
        Command::Schema => {
            output::print(include_str!("../../../../fixtures/mock/seed.schema.json"))?;
        }
        Command::Examine(options) => return Ok(examine(options).await),
    }
    Ok(ExitCode::SUCCESS)
}
