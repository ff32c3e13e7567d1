//! Imports beside the loops that a program would have written.

use audience::contacts::Contacts;
use tokio::runtime::Runtime;

use crate::by_hand::{ByHand, NewContact};
use crate::figure::{Aim, Figure, grouped};
use crate::rows::{self, rows};
use crate::sampling::{Sizes, in_turn, median, runtime, seconds};
use crate::server::Server;

const AT_ONCE: usize = 8;
const BATCHES_A_SECOND: u32 = 5;

/// An import with a server delay of 20 ms.
pub(crate) fn with_delay(sizes: &Sizes) -> Vec<Figure> {
    let (runtime, count) = (runtime(), sizes.rows(100_000));
    let server = Server::start(&[("delay", 20)]);
    let (contacts, by_hand) = (server.contacts(), ByHand::new(server.url()));
    // One create after another takes too long to be measured in full.
    let creates = count.div_ceil(100);
    let [audience, loop_by_hand, batches, single] = in_turn(
        sizes.runs(3),
        &mut [
            &mut || import(&runtime, &contacts, count),
            &mut || import_by_hand(&runtime, &by_hand, count, AT_ONCE),
            &mut || import_by_hand(&runtime, &by_hand, count, 1),
            &mut || create_by_hand(&runtime, &by_hand, creates),
        ],
    );
    let single = single.scaled(count, creates);
    let what = format!("import of {} rows, 20 ms server delay", grouped(count));
    let scaled = format!("measured on {} rows and scaled", grouped(creates));
    let figure = |beside: &str, value, least| {
        Figure::new("import-delay", value, "times as fast", Aim::AtLeast(least))
            .what(&what)
            .beside(beside)
    };
    vec![
        figure("one batch after another", audience.times_in(&batches), 7.0)
            .bar("one create after another", count, single.seconds())
            .bar("one batch after another", count, batches.seconds())
            .bar("by hand, 8 parallel batches", count, loop_by_hand.seconds())
            .bar("audience", count, audience.seconds()),
        figure(
            "one create after another",
            audience.times_in(&single),
            400.0,
        )
        .note(scaled),
    ]
}

/// An import without delay.
pub(crate) fn without_delay(sizes: &Sizes) -> Vec<Figure> {
    let (runtime, count) = (runtime(), sizes.rows(100_000));
    let server = Server::start(&[]);
    let (contacts, by_hand) = (server.contacts(), ByHand::new(server.url()));
    let mut import = || import(&runtime, &contacts, count);
    let mut import_by_hand = || import_by_hand(&runtime, &by_hand, count, AT_ONCE);
    let [audience, loop_by_hand] = in_turn(sizes.runs(15), &mut [&mut import, &mut import_by_hand]);
    let value = loop_by_hand.times_in(&audience);
    vec![
        Figure::new("import", value, "times the time", Aim::AtMost(1.05))
            .what(format!("import of {} rows, no delay", grouped(count)))
            .beside("a loop by hand with `buffer_unordered(8)`")
            .bar("by hand, 8 parallel batches", count, loop_by_hand.seconds())
            .bar("audience", count, audience.seconds()),
    ]
}

/// An import to a server that allows 5 batches a second.
pub(crate) fn limited(sizes: &Sizes) -> Vec<Figure> {
    let (runtime, count) = (runtime(), sizes.rows(10_000));
    let runs = (0..sizes.runs(3)).map(|_| {
        // A server of its own for each run, because the limit remembers the run before.
        let server = Server::start(&[("limit", BATCHES_A_SECOND.into())]);
        let contacts = server.contacts();
        let seconds = seconds(|| import(&runtime, &contacts, count));
        let applied = runtime.block_on(server.applied_entries());
        assert_eq!(applied, count, "every row is applied once");
        share_of_allowed(count, seconds)
    });
    let what = format!(
        "import of {} rows, 5 batches a second allowed by 429",
        grouped(count)
    );
    vec![
        Figure::new(
            "import-limited",
            median(runs),
            "% of the allowed rate",
            Aim::AtLeast(90.0),
        )
        .what(what)
        .beside("the ideal")
        .note("no row lost"),
    ]
}

/// Returns how many of the batches that the server would have allowed were sent, in percent.
#[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
fn share_of_allowed(rows: u64, seconds: f64) -> f64 {
    let allowed = f64::from(BATCHES_A_SECOND) * (1.0 + seconds);
    100.0 * rows.div_ceil(100) as f64 / allowed
}

fn import(runtime: &Runtime, contacts: &Contacts, count: u64) {
    let import = contacts.import(rows::contacts(count));
    let report = runtime.block_on(import.into_future());
    let report = report.expect("the import ends");
    assert_eq!(report.created(), count, "{report}");
}

fn import_by_hand(runtime: &Runtime, by_hand: &ByHand, count: u64, at_once: usize) {
    let created = runtime.block_on(by_hand.import(rows(count), at_once));
    assert_eq!(created.expect("no batch fails"), count);
}

fn create_by_hand(runtime: &Runtime, by_hand: &ByHand, count: u64) {
    runtime.block_on(async {
        for contact in rows(count).map(NewContact::from) {
            by_hand.create(&contact).await.expect("no create fails");
        }
    });
}
