//! Claims and completes, as `Inbox::handle` does it.

use std::time::Duration;

use audience::inbox::{ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, Store, Token};

use crate::deliveries;
use crate::load::{Load, repeat};

pub(crate) const ENDPOINT: &str = "main";
pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const RETENTION: Duration = Duration::from_secs(72 * 3_600);

/// Returns how many events a second are claimed and completed.
pub(crate) async fn rate<S: Store + Clone>(store: &S, load: Load) -> f64 {
    load.rate(|each, end| {
        let store = store.clone();
        async move { repeat(each, end, || claim_and_complete(&store)).await }
    })
    .await
}

pub(crate) async fn claim_and_complete(store: &impl Store) {
    let id = deliveries::id();
    let held = HeldClaim::new(EventKey::new(ENDPOINT, &id), Token::random());
    let claim = NewClaim::new(held.key, held.token, LEASE, RETENTION)
        .fingerprint(Fingerprint::from_bytes(*held.token.as_bytes()));
    let state = store.claim(claim).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    assert!(store.complete(held, RETENTION).await.unwrap());
}
