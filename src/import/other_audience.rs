//! Finds out whether the key is that of another audience than in earlier runs.

use super::batch::is_refused_key;
use crate::Error;
use crate::contacts::FindContact;
use crate::signals::{StopSignal, unless_stopped};

/// How many contacts of earlier runs to look for before anything is sent. Usually, the first one exists.
pub(super) const SAMPLE: usize = 10;
/// Of fewer contacts, all may have been deleted.
pub(super) const SMALLEST_SAMPLE: usize = 5;

/// Makes sure that the service has one of these contacts of earlier runs. Otherwise the key is most likely that of another
/// audience. `known_from` says which contacts they are, and `remedy` what to do if they were deleted.
///
/// Returns the error if the service cannot be asked. A run that sends requests of its own may ignore it: they fail, too.
pub(super) async fn check_audience(
    addresses: Vec<String>,
    find: impl Fn(String) -> FindContact,
    stop_signal: &mut Option<StopSignal>,
    known_from: &str,
    remedy: &str,
) -> Result<Option<Error>, Error> {
    if addresses.len() < SMALLEST_SAMPLE {
        return Ok(None);
    }
    let (mut missing, mut blocked) = (0, None);
    for address in addresses {
        let find = find(address).into_future();
        match unless_stopped(stop_signal, find).await {
            Some(Ok(None)) => missing += 1,
            // A run that is stopped ends by itself.
            Some(Ok(Some(_))) | None => return Ok(None),
            // It exists.
            Some(Err(error)) if error.is_malformed_contact() => return Ok(None),
            Some(Err(error)) if is_refused_key(&error) => return Err(error),
            // It says nothing about the other contacts.
            Some(Err(error)) if error.is_foreign_403() => blocked = Some(error),
            Some(Err(error)) => return Ok(Some(error)),
        }
    }
    if missing < SMALLEST_SAMPLE {
        return Ok(blocked);
    }
    Err(Error::input(format!(
        "the service has none of {missing} contacts that {known_from}, so the key may be that of another audience; nothing \
         was sent; check the key, or {remedy} if all contacts were deleted"
    )))
}
