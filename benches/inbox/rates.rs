//! How many events a second each store claims and drains.

use crate::load::Load;
use crate::place::{AnyStore, Kind, Place, Places, with_store};
use crate::{claims, drain, fill};

/// Memory is so fast that a few events say nothing.
const TIMES_IN_MEMORY: u32 = 20;

/// Prints a row for each store, number of remembered ids, and number of workers.
pub(crate) async fn measure(places: &mut Places, events: u32, ids: u32) {
    println!("## Events a second\n");
    println!(
        "A claim is two calls: claim and complete. The loop by hand makes one, `INSERT … ON CONFLICT DO NOTHING` \
         or `SET NX`. Postgres runs with its defaults (`fsync` on), Redis with `appendonly yes` and \
         `appendfsync everysec`, without rewriting that file.\n"
    );
    println!("| store | remembered ids | workers | claims/s | drained/s | by hand/s |");
    println!("|---|--:|--:|--:|--:|--:|");
    for kind in places.kinds() {
        for remembered in [0, ids] {
            match places.empty(kind).await {
                Ok(place) => measure_place(kind, &place, events, remembered).await,
                Err(reason) => {
                    println!("| {}: skipped, {reason} |||||", kind.name());
                    break;
                }
            }
        }
    }
    println!();
}

async fn measure_place(kind: Kind, place: &Place, events: u32, remembered: u32) {
    fill::remember(place, remembered).await;
    let events = match place.store {
        AnyStore::Memory(_) => events * TIMES_IN_MEMORY,
        _ => events,
    };
    for workers in [1, 4, 16] {
        let load = Load { workers, events };
        let claimed = with_store!(&place.store, store => claims::rate(store, load).await);
        let drained = with_store!(&place.store, store => drain::rate(store, load).await);
        let by_hand = place.by_hand.rate(load).await;
        println!(
            "| {} | {remembered} | {workers} | {claimed:.0} | {drained:.0} | {by_hand:.0} |",
            kind.name()
        );
    }
}
