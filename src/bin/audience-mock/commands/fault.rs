//! The command that adds and removes faults.

use audience::mock::Fault;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::Target;
use super::output::Output;

#[derive(Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct FaultOptions {
    #[command(subcommand)]
    clear: Option<Clear>,
    #[command(flatten)]
    fault: Fault,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum Clear {
    /// Remove all faults
    Clear,
}

/// Adds a fault, or removes all.
pub(super) async fn fault(options: FaultOptions) -> Result<(), String> {
    let target = &options.target;
    let output = Output::new(target.json);
    let fault = json!(options.fault);
    if let Some(Clear::Clear) = options.clear {
        if fault != json!({}) {
            return Err("`fault clear` removes all faults; leave out the other options".into());
        }
        let response = target.url.call(Method::DELETE, "faults", None).await?;
        return output.done(&response, "there are no faults");
    }
    let body = fault.to_string().into();
    let response = target.url.call(Method::POST, "faults", Some(body)).await?;
    output.done(&response, "the fault was added")
}
