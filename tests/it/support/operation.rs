//! Every call of the client, so that a rule about all of them is tested on all of them.

use audience::contacts::{NewContact, OnConflict, OptOutReason};
use audience::{Client, Error, Method};
use serde_json::{Value, json};

use super::{ADA, contact, record, summary};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// When a call may be made a second time (the table at `RetryPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Always,
    /// Never sent, or refused with 429.
    Unapplied,
    Never,
}

use Operation::*;

impl Operation {
    pub(crate) const ALL: [Self; 14] = [
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
    ];

    pub(crate) fn repeat(self) -> Repeat {
        match self {
            CreateOrFail | BatchOrFail | Subscribe | SubscribeTopic => Repeat::Unapplied,
            Request => Repeat::Never,
            _ => Repeat::Always,
        }
    }

    /// The name in messages and spans.
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

    /// What the interface document says that the service answers with.
    pub(crate) fn good_answer(self) -> Value {
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
