//! Finds out whether the key is that of another audience than in earlier runs.

use crate::Error;
use crate::contacts::FindContact;
use crate::signals::{StopSignal, unless_stopped};

/// How many contacts of earlier runs to look for before anything is sent. Usually, the first one exists.
pub(super) const SAMPLE: usize = 10;
/// Of fewer contacts, all may have been deleted.
pub(super) const SMALLEST_SAMPLE: usize = 5;

/// Makes sure that the service has one of these contacts of earlier runs. Otherwise the key is most likely that of another
/// audience. `known_from` says which contacts they are, and `remedy` what to do if they were deleted.
pub(super) async fn check_audience(
    addresses: Vec<String>,
    find: impl Fn(String) -> FindContact,
    stop_signal: &mut Option<StopSignal>,
    known_from: &str,
    remedy: &str,
) -> Result<(), Error> {
    let count = addresses.len();
    if count < SMALLEST_SAMPLE {
        return Ok(());
    }
    for address in addresses {
        let find = find(address).into_future();
        // A run that is stopped, or that cannot reach the service, ends by itself.
        let Some(Ok(None)) = unless_stopped(stop_signal, find).await else {
            return Ok(());
        };
    }
    Err(Error::input(format!(
        "the service has none of {count} contacts that {known_from}, so the key may be that of another audience; nothing \
         was sent; check the key, or {remedy} if all contacts were deleted"
    )))
}
