//! Calls and lists whose futures are polled some times and then dropped, for every number of polls: no connection and no
//! cursor is lost, and the client is usable afterwards.

use audience::contacts::{Contact, ContactSummary, ListContacts, Page};
use audience::mock::dialect::ContactDeletion;
use audience::mock::{Dialect, Fault, MockServer};
use audience::{Client, Error, Method};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};

use support::cancellation::{CountingProxy, for_each_number_of_polls, poll_times};
use support::operation::Operation::{self, BatchOrFail, CreateOrFail, IdempotentRequest};
use support::{fast_retries, in_time};

/// A client of this mock, through a proxy.
async fn client_through_proxy(server: &MockServer) -> (Client, CountingProxy) {
    let address = server.url();
    let proxy = CountingProxy::start(address.trim_start_matches("http://")).await;
    let url = format!("http://{}", proxy.address());
    let client = Client::builder(url, server.full_key()).retry(fast_retries());
    (client.build().unwrap(), proxy)
}

#[tokio::test]
async fn a_call_that_is_dropped_after_any_number_of_polls_leaks_no_connection_and_can_be_made_again()
 {
    for operation in Operation::ALL {
        let server = MockServer::start().await;
        operation.prepare(&server).await;
        let (client, proxy) = client_through_proxy(&server).await;

        let polls = for_each_number_of_polls(async |polls| {
            // It is dropped while it waits for its next attempt, too.
            server.fault(Fault::status(503).times(1));
            let ended = poll_times(polls, operation.run(&client)).await;
            server.clear_faults();
            let result = in_time(operation.run(&client)).await;

            // A call that was dropped may have created the contact. The mock has nothing but contacts.
            let may_fail = matches!(operation, CreateOrFail | BatchOrFail | IdempotentRequest);
            assert!(result.is_ok() || may_fail, "{operation:?}: {result:?}");
            assert_ne!(
                operation.has_taken_effect(&server),
                Some(false),
                "{operation:?}"
            );
            ended.is_some()
        })
        .await;

        assert!(polls > 1, "{operation:?} needs no more than {polls} polls");
        // Idle, for the next call.
        proxy.at_most(2).await;
    }
}

#[tokio::test]
async fn a_form_and_a_raw_request_that_are_dropped_after_any_number_of_polls_can_be_sent_again() {
    let dialect = Dialect {
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).start().await;
    server.topic("news", true);
    server.topic("offers", false);
    let (client, proxy) = client_through_proxy(&server).await;

    let polls = for_each_number_of_polls(async |polls| {
        // A request of a form that was dropped may arrive later, so each contact has one form.
        let address = format!("{polls}@x.io");
        server.seed_contact(address.as_str());
        let answers = [("news", false), ("offers", true)];
        let form = || {
            client
                .contacts()
                .set_topics(&address, answers)
                .into_future()
        };
        server.fault(Fault::status(503).times(1));
        let ended = poll_times(polls, form()).await;
        server.clear_faults();
        let recorded = in_time(form()).await.unwrap();

        assert_eq!(recorded.contact.email, address);
        let contact = server.contact(&address).unwrap();
        let expected = answers.map(|(topic, answer)| (topic.to_owned(), answer));
        assert_eq!(contact.answers, expected.into());
        ended.is_some()
    })
    .await;
    assert!(polls > 1, "{polls}");

    let polls = for_each_number_of_polls(async |polls| {
        let address = format!("deleted{polls}@x.io");
        server.seed_contact(address.as_str());
        let delete = || {
            let delete = client.request(Method::DELETE, ["contacts", &address]);
            delete.idempotent().into_future()
        };
        server.fault(Fault::status(503).times(1));
        let ended = poll_times(polls, delete()).await;
        server.clear_faults();
        // The first one may have deleted it.
        let deleted = in_time(delete()).await;

        let is_absent = deleted.is_err_and(|error| error.api().is_some());
        assert!(ended.is_none() || is_absent, "{polls}");
        assert!(server.contact(&address).is_none(), "{polls}");
        ended.is_some()
    })
    .await;
    assert!(polls > 1, "{polls}");
    proxy.at_most(2).await;
}

/// Reads a list. The future of each `next` is first dropped after this many polls. Returns the addresses, and whether no
/// future was dropped.
async fn read<T>(
    polls: usize,
    mut stream: impl Stream<Item = Result<T, Error>> + Unpin,
    addresses_of: impl Fn(T) -> Vec<String>,
) -> (Vec<String>, bool) {
    let (mut addresses, mut is_whole) = (Vec::new(), true);
    loop {
        let next = match poll_times(polls, stream.next()).await {
            Some(next) => next,
            None => {
                is_whole = false;
                in_time(stream.next()).await
            }
        };
        match next {
            Some(item) => addresses.extend(addresses_of(item.unwrap())),
            None => return (addresses, is_whole),
        }
    }
}

type Reading = BoxFuture<'static, (Vec<String>, bool)>;
type ReadList = fn(ListContacts, usize) -> Reading;

/// Each way to read a list.
const LISTS: [(&str, ReadList); 5] = [
    ("contacts", |list, polls| {
        read(polls, list.stream(), address).boxed()
    }),
    ("contacts, ahead", |list, polls| {
        read(polls, list.stream().prefetch(), address).boxed()
    }),
    ("pages", |list, polls| {
        read(polls, list.pages(), addresses).boxed()
    }),
    ("pages, ahead", |list, polls| {
        read(polls, list.pages().prefetch(), addresses).boxed()
    }),
    ("full contacts", |list, polls| {
        read(polls, list.full(), |contact: Contact| vec![contact.email]).boxed()
    }),
];

fn address(contact: ContactSummary) -> Vec<String> {
    vec![contact.email]
}

fn addresses(page: Page) -> Vec<String> {
    page.data.into_iter().flat_map(address).collect()
}

#[tokio::test]
async fn a_list_whose_next_is_dropped_after_any_number_of_polls_loses_and_repeats_nothing() {
    let server = MockServer::start().await;
    let expected: Vec<_> = (0..5).rev().map(|n| format!("{n}@x.io")).collect();
    for address in expected.iter().rev() {
        server.seed_contact(address.as_str());
    }
    let (client, proxy) = client_through_proxy(&server).await;
    let list = || client.contacts().list().limit(2);

    for (name, read) in LISTS {
        let polls = for_each_number_of_polls(async |polls| {
            let (addresses, is_whole) = read(list(), polls).await;
            assert_eq!(addresses, expected, "{name} after {polls} polls");
            is_whole
        })
        .await;
        assert!(polls > 1, "{name}");
    }
    for_each_number_of_polls(async |polls| {
        let ended = poll_times(polls, list().count().into_future()).await;
        assert_eq!(in_time(list().count()).await.unwrap(), 5);
        ended.is_some()
    })
    .await;
    drop(client);
    proxy.at_most(0).await;
}
