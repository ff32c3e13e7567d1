//! Traits, sizes and types that users rely on. Most of these checks happen at compile time: if one fails, this
//! file does not compile.

use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::time::SystemTime;

use audience::contacts::*;
use audience::export::{Csv, ExportColumn, ExportError, ExportReport, Format, JsonLines};
use audience::inbox::{Inbox, MemoryStore};
use audience::rule::*;
use audience::webhooks::actix::{Rejection as ActixRejection, VerifiedEvent as ActixEvent};
use audience::webhooks::axum::{Rejection as AxumRejection, VerifiedEvent as AxumEvent};
use audience::webhooks::{
    Event, EventData, EventId, EventType, Rejection, Signer, VerifiedDelivery, VerifiedEvent,
    Verifier, VerifierBuilder, VerifyError,
};
use audience::{blocking, client, import, inbox, mock, unsubscribe, *};
use futures_util::Stream;
use futures_util::stream::FusedStream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use static_assertions::{assert_not_impl_any, const_assert_eq};

/// Compiles only if `T` can be sent and shared between threads and has a `Debug` form.
const fn shared<T: Send + Sync + Unpin + Debug + 'static>() {}
/// Compiles only if `T` has the traits of a model: data that users store, compare and serialize.
const fn model<
    T: Clone + PartialEq + Debug + Send + Sync + Serialize + DeserializeOwned + 'static,
>() {
}
/// Compiles only if `T` is an error that can be sent and shared between threads.
const fn error<T: StdError + Display + Send + Sync + 'static>() {}
/// Compiles only if `exit_code` takes `T`.
const fn ends_a_program<T: AsRef<dyn StdError>>() {}
/// Compiles only if `T` is a stream that can be sent between threads.
const fn stream<T: Stream + FusedStream + Send + Unpin + 'static>() {}

/// Compiles only if `B` is the builder of a call: it can be cloned and shared, and its future can be spawned and
/// selected on.
const fn call<B>()
where
    B: IntoFuture<Output: Send + 'static, IntoFuture: Send + Unpin + 'static>,
    B: Clone + Send + Sync + Unpin + Debug + 'static,
{
}

/// Compiles only if `T` can be sent to another thread and has a `Debug` form.
const fn sent<T: Send + Debug + 'static>() {}

const _: () = {
    sent::<import::Import>();
    sent::<import::ImportFiles>();
    sent::<import::Outcomes>();
    sent::<blocking::Iter<import::Outcomes>>();
    model::<import::ImportReport>();
    model::<import::RowOutcome>();
    error::<import::ImportError>();
    shared::<Client>();
    shared::<ClientBuilder>();
    shared::<Auth>();
    shared::<RetryPolicy>();
    shared::<Contacts>();
    shared::<Error>();
    shared::<ErrorKind>();
    shared::<ApiError>();
    shared::<Outcome>();
    shared::<Reachability>();
    shared::<PropertyCondition>();
    shared::<EngagementCondition>();
    shared::<NumberOperand>();
    shared::<client::RawRequest>();
    shared::<client::RawResponse>();
    sent::<client::ResponseFuture<Contact>>();
    shared::<client::Response<Contact>>();
    shared::<Csv>();
    shared::<JsonLines>();
    shared::<Format>();
    shared::<ExportColumn>();
    shared::<import::Journal>();
    shared::<import::ImportRow>();
    shared::<import::OptOut>();
    shared::<import::Progress>();
    shared::<mock::MockServer>();
    shared::<mock::MockServerBuilder>();
    shared::<mock::Fault>();
    shared::<mock::Dialect>();
    shared::<mock::StoredContact>();
    shared::<mock::SeedContact>();
    shared::<mock::Reason>();
    shared::<mock::RecordedRequest>();
    shared::<mock::DeliveryAttempt>();
    shared::<mock::DeliveryFault>();
    shared::<mock::InboundMailSeed>();
    shared::<mock::MailOutcome>();
    shared::<mock::SentMail>();
    shared::<mock::SigningClock>();
    shared::<Verifier>();
    shared::<VerifierBuilder>();
    shared::<Signer>();
    shared::<VerifyError>();
    shared::<VerifiedDelivery<'static>>();
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
    model::<RecordedTopics>();
    model::<Page>();
    model::<BatchEntry>();
    model::<BatchOutcome>();
    model::<BatchReport>();
    model::<Created>();
    model::<ExportReport>();
    model::<Rule>();
    model::<Condition>();
    model::<Engagement>();
    model::<ErrorCode>();
    model::<Timestamp>();
};

/// The modules of the web servers have the extractor and its rejection.
const _: [fn(VerifiedEvent) -> VerifiedEvent; 2] =
    [|event: AxumEvent| event, |event: ActixEvent| event];
const _: [fn(Rejection) -> Rejection; 2] = [
    |rejection: AxumRejection| rejection,
    |rejection: ActixRejection| rejection,
];

const _: () = {
    ends_a_program::<Error>();
    ends_a_program::<ConfigError>();
    ends_a_program::<TopicsError>();
    ends_a_program::<ExportError>();
    ends_a_program::<import::ImportError>();
    ends_a_program::<import::SyncError>();
    ends_a_program::<inbox::InboxError>();
    ends_a_program::<inbox::StoreError>();
    ends_a_program::<inbox::TransactionError>();
    ends_a_program::<unsubscribe::ConsentError>();
    ends_a_program::<unsubscribe::IssueError>();
    ends_a_program::<Box<dyn StdError>>();
};

const _: () = {
    error::<Error>();
    error::<TopicsError>();
    error::<ExportError>();
    error::<TimestampError>();
    error::<VerifyError>();
    stream::<ContactStream>();
    stream::<PageStream>();
    stream::<FullContactStream>();
    call::<CreateContact>();
    call::<CreateBatch>();
    call::<RetrieveContact>();
    call::<FindContact>();
    call::<MatchRule>();
    call::<MatchRules>();
    call::<ListContacts>();
    call::<CountContacts>();
    call::<Subscribe>();
    call::<Unsubscribe>();
    call::<SetTopic>();
    call::<SetTopics>();
    call::<MergeProperties>();
    call::<UpdateContact>();
    call::<ChangeAddress>();
    call::<unsubscribe::AddressChange>();
    call::<EraseContact>();
};

const_assert_eq!(size_of::<Error>(), size_of::<usize>());
const_assert_eq!(size_of::<Option<Error>>(), size_of::<usize>());
const_assert_eq!(size_of::<TopicsError>(), size_of::<usize>());
const_assert_eq!(size_of::<ExportError>(), size_of::<usize>());
const_assert_eq!(size_of::<Client>(), size_of::<usize>());
const_assert_eq!(size_of::<Contacts>(), size_of::<usize>());

// Misuse that must not compile. These checks do not depend on the wording of a compiler error. The docs of
// the types have the same cases as `compile_fail` examples.

// A condition without its operator is incomplete, and a reason that was read cannot be sent.
assert_not_impl_any!(PropertyCondition: Into<Condition>);
assert_not_impl_any!(EngagementCondition: Into<Condition>);
assert_not_impl_any!(OptOutReason: From<UnsubscribeReason>, From<&'static str>, From<String>);
// Only numbers can be compared with `greater_than` and `less_than`.
assert_not_impl_any!(NumberOperand: From<&'static str>, From<String>, From<bool>, From<PropertyValue>);

/// The `match` is exhaustive only while there are exactly two reasons to send.
#[test]
fn a_complaint_is_not_a_reason_that_can_be_sent() {
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
fn an_engagement_within_days_takes_a_number_of_days() {
    let operators: [fn(EngagementCondition, u32) -> Condition; 2] = [
        EngagementCondition::within_days,
        EngagementCondition::not_within_days,
    ];

    for operator in operators {
        let condition = operator(Condition::engagement(Engagement::Opened), 30);
        assert_eq!(serde_json::to_value(condition).unwrap()["days"], 30);
    }
}

#[tokio::test]
async fn a_call_can_be_spawned_and_outlives_its_client_and_address() {
    let url = support::closed_url();
    let call = {
        let address = String::from("ada@example.com");
        let client = Client::builder(url, "key")
            .retry(RetryPolicy::none())
            .build()
            .unwrap();
        client.contacts().retrieve(&address)
    };

    let error = tokio::spawn(call.into_future()).await.unwrap().unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Connect);
}

/// The compiler warns of each ignored value. If it did not, an expectation would be unfulfilled, which is an error here.
#[deny(unfulfilled_lint_expectations)]
#[tokio::test]
async fn a_receipt_a_claim_and_a_report_cannot_be_ignored_silently() {
    #[expect(unused_must_use, reason = "the receipt is ignored")]
    async fn accept(inbox: &Inbox, delivery: VerifiedEvent) {
        inbox.accept(delivery).await;
    }
    #[expect(unused_must_use, reason = "the claim is ignored")]
    async fn claim(inbox: &Inbox, id: &EventId) {
        inbox.claim(id).await.unwrap();
    }
    #[expect(unused_must_use, reason = "the report is ignored")]
    async fn create(contacts: &Contacts) {
        contacts.create_batch(["ada@example.com"]).await.unwrap();
    }
    #[expect(unused_must_use, reason = "the report is ignored")]
    async fn import(contacts: &Contacts) {
        contacts.import(["bob@example.com"]).await.unwrap();
    }
    #[expect(unused_must_use, reason = "the report is ignored")]
    fn ignore_sync(report: fn() -> import::SyncReport) {
        report();
    }
    #[expect(unused_must_use, reason = "the report is ignored")]
    fn ignore_issue(report: fn() -> unsubscribe::IssueReport) {
        report();
    }
    #[expect(unused_must_use, reason = "the server stops immediately")]
    async fn start() {
        mock::MockServer::builder().try_start().await.unwrap();
    }
    let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1, "data": {}}"#;
    let signer = Signer::new("6Jm0nFq2pXvZk4Tt").unwrap();
    let headers = signer.sign(&EventType::Sent, SystemTime::now(), body);
    let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt").unwrap();
    let delivery = verifier.verify_event(&headers, body.to_vec()).unwrap();
    let inbox = Inbox::builder(MemoryStore::new()).build().unwrap();
    let server = mock::MockServer::start().await;

    accept(&inbox, delivery).await;
    claim(&inbox, &EventId::try_from("evt_2").unwrap()).await;
    create(&server.client().contacts()).await;
    import(&server.client().contacts()).await;
    ignore_sync(import::SyncReport::default);
    ignore_issue(unsubscribe::IssueReport::default);
    start().await;

    assert_eq!(inbox.backlog().await.unwrap().waiting, 1);
    assert_eq!(server.contact_count(), 2);
}
