//! Every operation of the client, for the tests of rules that hold for all of them.

use audience::contacts::{NewContact, OnConflict, OptOutReason};
use audience::{Client, Error, Method};
use serde_json::{Value, json};

use super::{ADA, contact, enum_with_all, record, summary};

enum_with_all! {
    pub(crate) enum Operation {
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
        Merge,
        Request,
        IdempotentRequest,
    }
}

/// When the client may retry an operation (the table in the docs of `RetryPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetrySafety {
    Safe,
    /// Only if the request was never sent, or was refused with 429.
    OnlyIfNotApplied,
    Never,
}

use Operation::*;

impl Operation {
    pub(crate) fn retry_safety(self) -> RetrySafety {
        match self {
            CreateOrFail | BatchOrFail | Subscribe | SubscribeTopic => {
                RetrySafety::OnlyIfNotApplied
            }
            Request => RetrySafety::Never,
            _ => RetrySafety::Safe,
        }
    }

    /// The name in error messages and tracing spans.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Create | CreateOrSkip | CreateOrFail => "create",
            Batch | BatchOrFail => "create_batch",
            Retrieve => "retrieve",
            List => "list",
            Unsubscribe | UnsubscribeTopic => "unsubscribe",
            Subscribe | SubscribeTopic => "subscribe",
            Merge => "merge_properties",
            Request | IdempotentRequest => "request",
        }
    }

    pub(crate) fn method(self) -> &'static str {
        match self {
            Retrieve | List => "GET",
            Merge => "PATCH",
            IdempotentRequest => "PUT",
            _ => "POST",
        }
    }

    pub(crate) fn template(self) -> &'static str {
        match self {
            Create | CreateOrSkip | CreateOrFail | List => "/contacts",
            Batch | BatchOrFail => "/contacts/batch",
            Retrieve | Merge => "/contacts/{address}",
            Unsubscribe | UnsubscribeTopic => "/contacts/{address}/unsubscribe",
            Subscribe | SubscribeTopic => "/contacts/{address}/subscribe",
            Request | IdempotentRequest => "(request)",
        }
    }

    pub(crate) fn path(self) -> String {
        match self {
            Request => "/emails".to_owned(),
            IdempotentRequest => "/topics/news".to_owned(),
            other => other.template().replace("{address}", "ada%40example.com"),
        }
    }

    /// The body of a successful response, as the interface document describes it.
    pub(crate) fn good_response(self) -> Value {
        match self {
            Create | CreateOrSkip | CreateOrFail => record(),
            Batch | BatchOrFail => json!({"data": [{"email": ADA, "status": "created"}]}),
            Retrieve | Unsubscribe | UnsubscribeTopic | Subscribe | SubscribeTopic | Merge => {
                contact()
            }
            List => json!({"data": [summary("con_1")], "next": "con_1"}),
            Request | IdempotentRequest => json!({"id": "em_1"}),
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<(), Error> {
        let contacts = client.contacts();
        let ada = NewContact::new(ADA);
        match self {
            Create => contacts.create(ada).await.map(drop),
            CreateOrSkip => {
                let ada = ada.on_conflict(OnConflict::Skip);
                contacts.create(ada).await.map(drop)
            }
            CreateOrFail => {
                let ada = ada.on_conflict(OnConflict::Error);
                contacts.create(ada).await.map(drop)
            }
            Batch => contacts.create_batch([ada]).await.map(drop),
            BatchOrFail => {
                let ada = ada.on_conflict(OnConflict::Error);
                contacts.create_batch([ada]).await.map(drop)
            }
            Retrieve => contacts.retrieve(ADA).await.map(drop),
            List => contacts.list().await.map(drop),
            Unsubscribe => {
                let opt_out = contacts.unsubscribe(ADA);
                opt_out.reason(OptOutReason::Preferences).await.map(drop)
            }
            UnsubscribeTopic => contacts.unsubscribe(ADA).topic("news").await.map(drop),
            Subscribe => contacts.subscribe(ADA).await.map(drop),
            SubscribeTopic => contacts.subscribe(ADA).topic("news").await.map(drop),
            Merge => {
                let merge = contacts.merge_properties(ADA, [("seats", 3)]);
                merge.await.map(drop)
            }
            Request => {
                let mail = json!({"from": "shop@example.com", "to": ADA, "subject": "Hello"});
                let request = client.request(Method::POST, ["emails"]).json(&mail)?;
                request.await.map(drop)
            }
            IdempotentRequest => {
                let request = client.request(Method::PUT, ["topics", "news"]);
                request.idempotent().await.map(drop)
            }
        }
    }
}
