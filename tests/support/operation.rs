//! Every operation of the client, for the tests of rules that hold for all of them.

use std::fmt::Debug;

use audience::contacts::{NewContact, OnConflict, OptOutReason};
use audience::mock::MockServer;
use audience::{Client, Error, Method};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::{ADA, contact, enum_with_all, record, summary};

enum_with_all! {
    pub enum Operation {
        Create,
        CreateOrSkip,
        CreateOrFail,
        Batch,
        BatchOrFail,
        Retrieve,
        List,
        Unsubscribe,
        UnsubscribeTopic,
        Subscribe,
        SubscribeTopic,
        AnswerNo,
        AnswerYes,
        Merge,
        Request,
        IdempotentRequest,
    }
}

/// When the client may retry an operation (the table in the docs of `RetryPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySafety {
    Safe,
    /// Only if the request was never sent, or was refused with 429.
    OnlyIfNotApplied,
    Never,
}

use Operation::*;

impl Operation {
    pub fn retry_safety(self) -> RetrySafety {
        match self {
            CreateOrFail | BatchOrFail | Subscribe | SubscribeTopic | AnswerYes => {
                RetrySafety::OnlyIfNotApplied
            }
            Request => RetrySafety::Never,
            _ => RetrySafety::Safe,
        }
    }

    /// The name in error messages and tracing spans.
    pub fn name(self) -> &'static str {
        match self {
            Create | CreateOrSkip | CreateOrFail => "create",
            Batch | BatchOrFail => "create_batch",
            Retrieve => "retrieve",
            List => "list",
            Unsubscribe | UnsubscribeTopic | AnswerNo => "unsubscribe",
            Subscribe | SubscribeTopic | AnswerYes => "subscribe",
            Merge => "merge_properties",
            Request | IdempotentRequest => "request",
        }
    }

    pub fn method(self) -> &'static str {
        match self {
            Retrieve | List => "GET",
            Merge => "PATCH",
            IdempotentRequest => "PUT",
            _ => "POST",
        }
    }

    pub fn template(self) -> &'static str {
        match self {
            Create | CreateOrSkip | CreateOrFail | List => "/contacts",
            Batch | BatchOrFail => "/contacts/batch",
            Retrieve | Merge => "/contacts/{address}",
            Unsubscribe | UnsubscribeTopic | AnswerNo => "/contacts/{address}/unsubscribe",
            Subscribe | SubscribeTopic | AnswerYes => "/contacts/{address}/subscribe",
            Request | IdempotentRequest => "(request)",
        }
    }

    pub fn path(self) -> String {
        match self {
            Request => "/emails".to_owned(),
            IdempotentRequest => "/topics/news".to_owned(),
            other => other.template().replace("{address}", "ada%40example.com"),
        }
    }

    /// The body of a successful response, as the interface document describes it.
    pub fn good_response(self) -> Value {
        match self {
            Create | CreateOrSkip | CreateOrFail => record(),
            Batch | BatchOrFail => json!({"data": [{"email": ADA, "status": "created"}]}),
            UnsubscribeTopic | AnswerNo => {
                let mut contact = contact();
                contact["topics"]["news"] = false.into();
                contact
            }
            Retrieve | Unsubscribe | Subscribe | SubscribeTopic | AnswerYes | Merge => contact(),
            List => json!({"data": [summary("con_1")], "next": "con_1"}),
            Request | IdempotentRequest => json!({"id": "em_1"}),
        }
    }

    /// Whether the client decodes the response. If not, the caller gets it as it came.
    pub fn decodes_response(self) -> bool {
        !matches!(self, Merge | Request | IdempotentRequest)
    }

    /// Stores in the mock what the operation is to change.
    pub async fn prepare(self, server: &MockServer) {
        let contacts = server.client().contacts();
        server.topic("news", matches!(self, UnsubscribeTopic | AnswerNo));
        if matches!(
            self,
            Create | CreateOrSkip | CreateOrFail | Batch | BatchOrFail
        ) {
            return;
        }
        let created = contacts.create(NewContact::new(ADA)).await;
        created.expect("the mock creates contacts");
        if self == Subscribe {
            let opted_out = contacts.unsubscribe(ADA).await;
            opted_out.expect("the mock has the contact");
        }
    }

    /// Whether the mock is in the state that the operation asks for. `None` if the operation changes nothing.
    pub fn has_taken_effect(self, server: &MockServer) -> Option<bool> {
        let ada = server.contact(ADA);
        let done = match self {
            Create | CreateOrSkip | CreateOrFail | Batch | BatchOrFail => ada.is_some(),
            Unsubscribe => ada?.unsubscribed,
            UnsubscribeTopic | AnswerNo => ada?.answers.get("news") == Some(&false),
            Subscribe => !ada?.unsubscribed,
            SubscribeTopic | AnswerYes => ada?.answers.get("news") == Some(&true),
            Merge => ada?.properties.get("seats") == Some(&json!(3)),
            Retrieve | List | Request | IdempotentRequest => return None,
        };
        Some(done)
    }

    /// Runs the operation for the contact [`ADA`].
    pub async fn run(self, client: &Client) -> Result<(), Error> {
        self.call(client, ADA).future.await
    }

    /// Prepares the operation for the contact with this address.
    pub fn call(self, client: &Client, address: &str) -> Call {
        let contacts = client.contacts();
        let new = NewContact::new(address);
        match self {
            Create => Call::new(contacts.create(new)),
            CreateOrSkip => Call::new(contacts.create(new.on_conflict(OnConflict::Skip))),
            CreateOrFail => Call::new(contacts.create(new.on_conflict(OnConflict::Error))),
            Batch => Call::new(contacts.create_batch([new])),
            BatchOrFail => Call::new(contacts.create_batch([new.on_conflict(OnConflict::Error)])),
            Retrieve => Call::new(contacts.retrieve(address)),
            List => Call::new(contacts.list()),
            Unsubscribe => {
                let opt_out = contacts.unsubscribe(address);
                Call::new(opt_out.reason(OptOutReason::Preferences))
            }
            UnsubscribeTopic => Call::new(contacts.unsubscribe(address).topic("news")),
            Subscribe => Call::new(contacts.subscribe(address)),
            SubscribeTopic => Call::new(contacts.subscribe(address).topic("news")),
            AnswerNo => Call::new(contacts.set_topic(address, "news", false)),
            AnswerYes => Call::new(contacts.set_topic(address, "news", true)),
            Merge => Call::new(contacts.merge_properties(address, [("seats", 3)])),
            Request => {
                let mail = json!({"from": "shop@example.com", "to": address, "subject": "Hello"});
                let request = client.request(Method::POST, ["emails"]).json(&mail);
                Call::new(request.expect("the mail is JSON"))
            }
            IdempotentRequest => {
                let request = client.request(Method::PUT, ["topics", "news"]);
                Call::new(request.idempotent())
            }
        }
    }
}

/// A call that has not been sent.
pub struct Call {
    /// What a log could show of the builder and of the future.
    pub debug_text: String,
    pub future: BoxFuture<'static, Result<(), Error>>,
}

impl Call {
    pub fn new<B, T>(builder: B) -> Self
    where
        B: IntoFuture<Output = Result<T, Error>> + Debug,
        B::IntoFuture: Send + Debug + 'static,
    {
        let builder_text = format!("{builder:?} {builder:#?}");
        let future = builder.into_future();
        Self {
            debug_text: format!("{builder_text} {future:?} {future:#?}"),
            future: async { future.await.map(drop) }.boxed(),
        }
    }
}
