//! The command that seeds a running mock.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use http::Method;

use super::Target;
use super::output::Output;

/// Some editors and shells begin a file with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Args)]
pub(crate) struct SeedOptions {
    /// JSON file with topics, contacts and more; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    target: Target,
}

/// Sends a seed to the mock.
pub(super) async fn seed(options: SeedOptions) -> Result<(), String> {
    let seed = read(&options.file)
        .map_err(|error| format!("could not read the seed {:?}: {error}", options.file))?;
    let seed = Bytes::from(seed);
    let seed = match seed.strip_prefix(BYTE_ORDER_MARK) {
        Some(json) => seed.slice_ref(json),
        None => seed,
    };
    let url = &options.target.url;
    let response = url.call(Method::POST, "seed", Some(seed)).await?;
    Output::new(options.target.json).done(&response, "the mock has the seed")
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    if file.as_os_str() != "-" {
        return std::fs::read(file);
    }
    let mut seed = Vec::new();
    std::io::stdin().lock().read_to_end(&mut seed)?;
    Ok(seed)
}
