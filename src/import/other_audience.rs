//! Finds out whether the key is that of another audience than in earlier runs.

use crate::contacts::FindContact;
use crate::signals::{StopSignal, unless_stopped};

/// How many contacts of earlier runs to look for before anything is sent. Usually, the first one exists.
pub(super) const SAMPLE: usize = 10;
/// Of fewer contacts, all may have been deleted.
pub(super) const SMALLEST_SAMPLE: usize = 5;

/// Returns whether the service has none of these contacts of earlier runs. Then the key is most likely that of another
/// audience.
pub(super) async fn is_other_audience(
    addresses: Vec<String>,
    find: impl Fn(String) -> FindContact,
    stop_signal: &mut Option<StopSignal>,
) -> bool {
    if addresses.len() < SMALLEST_SAMPLE {
        return false;
    }
    for address in addresses {
        let find = find(address).into_future();
        // A run that is stopped, or that cannot reach the service, ends by itself.
        let Some(Ok(None)) = unless_stopped(stop_signal, find).await else {
            return false;
        };
    }
    true
}
