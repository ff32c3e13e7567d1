//! The mock service as a program, for tests in any language.
//!
//! ```text
//! audience-mock --seed seed.json
//! audience-mock send-event email.bounced --to ada@example.com
//! ```
//!
//! Without a subcommand, it prints `listening on http://127.0.0.1:4010` and serves until it is interrupted. The
//! subcommands call a running mock below `/_mock/`; the docs of `audience::mock` list these calls.

mod commands;
mod control_plane;
mod examine;
mod options;
mod serve;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

use self::options::Options;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.command {
        None => serve::serve(options.serve)
            .await
            .map(|()| ExitCode::SUCCESS),
        Some(command) => commands::run(command).await,
    };
    match result {
        Ok(status) => status,
        Err(problem) => {
            // Nobody reads it if standard error is closed.
            let _ = writeln!(std::io::stderr(), "audience-mock: {problem}");
            ExitCode::FAILURE
        }
    }
}
