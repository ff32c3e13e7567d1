//! Streams of all contacts beside a hand-written paging loop.

use std::hint::black_box;
use std::pin::pin;
use std::time::Duration;

use audience::Error;
use audience::contacts::ContactSummary;
use futures_util::{Stream, TryStreamExt};

use crate::by_hand::ByHand;
use crate::figure::{Aim, Figure, grouped};
use crate::memory::{self, Work};
use crate::sampling::{Sizes, in_turn, runtime};
use crate::server::{PAGE, Server};

/// How long the program works on each page, and how long the server takes for it.
const DELAY: Duration = Duration::from_millis(5);

/// A stream of all contacts.
pub(crate) fn stream(sizes: &Sizes) -> Vec<Figure> {
    let (runtime, count) = (runtime(), sizes.rows(100_000));
    let server = Server::start(&[("contacts", count)]);
    let (contacts, by_hand) = (server.contacts(), ByHand::new(server.url()));
    let [audience, loop_by_hand] = in_turn(
        sizes.runs(15),
        &mut [
            &mut || {
                let mut seen = 0;
                runtime.block_on(async {
                    let mut stream = contacts.list().limit(200).stream();
                    while let Some(contact) = stream.try_next().await.expect("no page fails") {
                        seen += 1;
                        black_box(contact.unsubscribed);
                    }
                });
                assert_eq!(seen, count);
            },
            &mut || {
                let mut seen = 0;
                let listed = runtime.block_on(by_hand.list_all(|contact| {
                    seen += 1;
                    black_box(contact.unsubscribed);
                }));
                listed.expect("no page fails");
                assert_eq!(seen, count);
            },
        ],
    );
    let what = format!("stream of {} contacts, 200 a page", grouped(count));
    let time = Figure::new(
        "stream",
        loop_by_hand.times_in(&audience),
        "times the time",
        Aim::AtMost(1.03),
    )
    .what(&what)
    .beside("a paging loop by hand")
    .bar("by hand", count, loop_by_hand.seconds())
    .bar("audience", count, audience.seconds());
    let growth = |work| memory::growth(work, &server, count, sizes.runs(3));
    let by_hand = growth(Work::StreamByHand);
    let memory = Figure::new(
        "stream",
        growth(Work::Stream),
        "MB more memory at the peak",
        Aim::AtMost(8.0),
    )
    .what(what)
    .beside("the process before it")
    .note(format!("a loop by hand: {by_hand:.1}"));
    vec![time, memory]
}

/// The same with work to do for each page.
pub(crate) fn prefetch(sizes: &Sizes) -> Vec<Figure> {
    let (runtime, count) = (runtime(), sizes.rows(100_000));
    let server = Server::start(&[("contacts", count), ("delay", 5)]);
    let contacts = server.contacts();
    let list = || contacts.list().limit(200);
    let [with, without] = in_turn(
        sizes.runs(3),
        &mut [
            &mut || assert_eq!(runtime.block_on(work_on(list().stream().prefetch())), count),
            &mut || assert_eq!(runtime.block_on(work_on(list().stream())), count),
        ],
    );
    let what = format!(
        "stream of {} contacts with `prefetch()`, 5 ms server delay and 5 ms of work a page",
        grouped(count)
    );
    vec![
        Figure::new(
            "prefetch",
            with.times_in(&without),
            "times as fast",
            Aim::AtLeast(1.8),
        )
        .what(what)
        .beside("without"),
    ]
}

/// Reads all contacts, and waits after each page as a program does that stores it in a database.
async fn work_on(stream: impl Stream<Item = Result<ContactSummary, Error>>) -> u64 {
    let (mut stream, mut seen) = (pin!(stream), 0);
    while let Some(contact) = stream.try_next().await.expect("no page fails") {
        seen += 1;
        black_box(contact);
        if seen % PAGE == 0 {
            tokio::time::sleep(DELAY).await;
        }
    }
    seen
}
