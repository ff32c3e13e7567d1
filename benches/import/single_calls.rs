//! Single calls beside hand-written ones.

use audience::contacts::NewContact;

use crate::by_hand::{self, ByHand};
use crate::figure::{Aim, Figure};
use crate::rows::rows;
use crate::sampling::{Samples, Sizes, in_turn, one_thread};
use crate::server::Server;

/// One retrieve and one create.
pub(crate) fn calls(sizes: &Sizes) -> Vec<Figure> {
    // On one thread, because which thread wakes which takes longer than what is compared here.
    let (runtime, count) = (one_thread(), sizes.rows(100));
    let server = Server::start(&[]);
    let (contacts, by_hand) = (server.contacts(), ByHand::new(server.url()));
    let retrieves = in_turn(
        sizes.runs(201),
        &mut [
            &mut || {
                runtime.block_on(async {
                    for _ in 0..count {
                        let contact = contacts.retrieve("reader0000000@example.com").await;
                        contact.expect("the contact exists");
                    }
                });
            },
            &mut || {
                runtime.block_on(async {
                    for _ in 0..count {
                        let contact = by_hand.retrieve("reader0000000%40example.com").await;
                        contact.expect("the contact exists");
                    }
                });
            },
        ],
    );
    let creates = in_turn(
        sizes.runs(201),
        &mut [
            &mut || {
                runtime.block_on(async {
                    for row in rows(count) {
                        let contact = NewContact::new(row.email)
                            .first_name(row.first_name)
                            .property("plan", row.plan)
                            .property("seats", row.seats);
                        contacts.create(contact).await.expect("no create fails");
                    }
                });
            },
            &mut || {
                runtime.block_on(async {
                    for contact in rows(count).map(by_hand::NewContact::from) {
                        by_hand.create(&contact).await.expect("no create fails");
                    }
                });
            },
        ],
    );
    vec![
        figure("one retrieve over loopback", &retrieves, count),
        figure("one create over loopback", &creates, count),
    ]
}

fn figure(what: &str, [audience, by_hand]: &[Samples; 2], count: u64) -> Figure {
    Figure::new(
        "calls",
        by_hand.times_in(audience),
        "times the time",
        Aim::AtMost(1.03),
    )
    .what(what)
    .beside("reqwest and serde by hand")
    .bar("by hand", count, by_hand.seconds())
    .bar("audience", count, audience.seconds())
}
