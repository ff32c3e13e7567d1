//! What the compiler promises to users: this file does its work by compiling.

use std::error::Error as StdError;
use std::fmt::{Debug, Display};

use audience::contacts::*;
use audience::rule::*;
use audience::webhooks::{
    AuthenticatedDelivery, Event, EventData, EventId, EventType, Signer, Verifier, VerifierBuilder,
    VerifyError,
};
use audience::{blocking, mock, raw, *};
use futures_util::Stream;
use futures_util::stream::FusedStream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use static_assertions::{assert_not_impl_any, const_assert_eq};

const fn shared<T: Send + Sync + Unpin + Debug + 'static>() {}
const fn model<
    T: Clone + PartialEq + Debug + Send + Sync + Serialize + DeserializeOwned + 'static,
>() {
}
const fn error<T: StdError + Display + Send + Sync + 'static>() {}
const fn stream<T: Stream + FusedStream + Send + Sync + Unpin + 'static>() {}

/// A builder, and the future it turns into.
const fn call<B: IntoFuture + Clone + Send + Sync + 'static>()
where
    B::IntoFuture: Send + Sync + Unpin + 'static,
    B::Output: Send + 'static,
{
}

const _: () = {
    shared::<Client>();
    shared::<ClientBuilder>();
    shared::<Auth>();
    shared::<RetryPolicy>();
    shared::<Contacts>();
    shared::<Error>();
    shared::<ErrorKind>();
    shared::<ApiError>();
    shared::<Outcome>();
    shared::<Created>();
    shared::<BatchReport>();
    shared::<BatchOutcome>();
    shared::<PropertyCondition>();
    shared::<EngagementCondition>();
    shared::<PropertyTest>();
    shared::<EngagementTest>();
    shared::<Number>();
    shared::<raw::RawRequest>();
    shared::<raw::RawResponse>();
    shared::<client::Call<Contact>>();
    shared::<blocking::Client>();
    shared::<mock::MockServer>();
    shared::<mock::MockServerBuilder>();
    shared::<mock::Fault>();
    shared::<mock::Dialect>();
    shared::<mock::StoredContact>();
    shared::<mock::RecordedRequest>();
    shared::<mock::Attempt>();
    shared::<Verifier>();
    shared::<VerifierBuilder>();
    shared::<Signer>();
    shared::<VerifyError>();
    shared::<AuthenticatedDelivery<'static>>();
    shared::<Event>();
    shared::<EventData>();
    shared::<EventId>();
    shared::<EventType>();
};

const _: () = {
    model::<Contact>();
    model::<ContactRecord>();
    model::<ContactSummary>();
    model::<NewContact>();
    model::<OnConflict>();
    model::<OptOutReason>();
    model::<UnsubscribeReason>();
    model::<Properties>();
    model::<PropertyValue>();
    model::<Page>();
    model::<BatchEntry>();
    model::<Rule>();
    model::<Match>();
    model::<Condition>();
    model::<Engagement>();
    model::<ErrorCode>();
    model::<Timestamp>();
};

const _: () = {
    error::<Error>();
    error::<VerifyError>();
    stream::<ContactStream>();
    stream::<PageStream>();
    call::<CreateContact>();
    call::<CreateBatch>();
    call::<RetrieveContact>();
    call::<ListContacts>();
    call::<CountContacts>();
    call::<Subscribe>();
    call::<Unsubscribe>();
    call::<MergeProperties>();
};

const_assert_eq!(size_of::<Error>(), size_of::<usize>());
const_assert_eq!(size_of::<Option<Error>>(), size_of::<usize>());
const_assert_eq!(size_of::<Client>(), size_of::<usize>());
const_assert_eq!(size_of::<Contacts>(), size_of::<usize>());

// What must not compile, put so that it is checked without a compiler's wording. The same as
// examples that fail stands in the documentation of the types.

// A condition without its test is none, and a reason that was read is not one to be sent.
assert_not_impl_any!(PropertyCondition: Into<Condition>);
assert_not_impl_any!(EngagementCondition: Into<Condition>);
assert_not_impl_any!(OptOutReason: From<UnsubscribeReason>, From<&'static str>, From<String>);
// An order is one of numbers.
assert_not_impl_any!(Number: From<&'static str>, From<String>, From<bool>, From<PropertyValue>);

/// There is no third reason to send: with one, this match would not be exhaustive.
#[test]
fn a_complaint_is_no_reason_that_can_be_sent() {
    for reason in [OptOutReason::Manual, OptOutReason::Preferences] {
        let word = match reason {
            OptOutReason::Manual => "manual",
            OptOutReason::Preferences => "preferences",
        };
        assert_eq!(serde_json::to_value(reason).unwrap(), word);
    }
    assert!(serde_json::from_str::<OptOutReason>("\"complaint\"").is_err());
}

#[test]
fn a_time_in_days_takes_the_days() {
    let complete: [fn(EngagementCondition, u32) -> Condition; 2] = [
        EngagementCondition::within_days,
        EngagementCondition::not_within_days,
    ];

    for test in complete {
        let condition = test(Condition::engagement(Engagement::Opened), 30);
        assert_eq!(serde_json::to_value(condition).unwrap()["days"], 30);
    }
}

#[tokio::test]
async fn a_call_can_be_spawned_and_outlives_what_it_was_made_of() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let call = {
        let address = String::from("ada@example.com");
        let client = Client::builder(url, "key")
            .retry(RetryPolicy::none())
            .build()
            .unwrap();
        client.contacts().retrieve(&address).into_future()
    };

    let error = tokio::spawn(call).await.unwrap().unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Connect);
}
