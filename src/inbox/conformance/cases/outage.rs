//! A store whose server is down for a while.

use std::fmt::Debug;
use std::time::Duration;

use super::super::case::cases;
use super::super::pace::{ROUNDS, SHORT};
use super::super::subject::{Subject, ids};
use super::super::verdict::{Failed, Verdict, expect, expect_body, expect_eq};
use crate::inbox::error::{StoreError, StoreErrorKind};
use crate::inbox::store::{AcceptState, ClaimState};
use crate::inbox::token::Token;

cases! { Outage:
    an_outage_is_an_error_in_time_and_loses_nothing,
    calls_during_a_restart_end_and_lose_nothing,
}

/// How long a call may take while the server is down.
const LIMIT: Duration = Duration::from_secs(30);

async fn an_outage_is_an_error_in_time_and_loses_nothing(subject: Subject) -> Verdict {
    let Some((stop, start)) = subject.capabilities.outage.clone() else {
        return Ok(());
    };
    let token = Token::random();
    let (done, held) = (subject.item("done"), subject.item("held"));
    let (waiting, new) = (subject.item("waiting"), subject.item("new"));
    done.claim(token).await?;
    done.complete(token).await?;
    held.claim(token).await?;
    waiting.accept(b"body").await?;

    stop().await;
    let down = expect_down(&subject).await;
    start().await;
    down?;

    // The first calls may still meet connections that broke.
    when_up(|| subject.backlog()).await?;
    let state = done.claim(Token::random()).await?;
    expect_eq("the done event afterwards", state, ClaimState::Done)?;
    expect_eq("the holder completing", held.complete(token).await?, true)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["waiting"])?;
    expect_body("its body", &taken[0].body, b"body")?;
    let state = new.claim(Token::random()).await?;
    let fresh = ClaimState::Fresh { attempt: 1 };
    expect_eq("an event that was refused", state, fresh)
}

async fn expect_down(subject: &Subject) -> Verdict {
    let token = Token::random();
    let new = subject.item("new");
    let held = subject.item("held");
    expect_unavailable("a claim", new.claim(token)).await?;
    expect_unavailable("accepting", new.accept(b"body")).await?;
    expect_unavailable("taking", subject.take(token)).await?;
    expect_unavailable("completing", held.complete(token)).await?;
    expect_unavailable("listing", subject.parked()).await?;
    expect_unavailable("counting", subject.backlog()).await?;
    expect_unavailable("purging", subject.store().purge(10)).await
}

async fn calls_during_a_restart_end_and_lose_nothing(subject: Subject) -> Verdict {
    let Some((stop, start)) = subject.capabilities.outage.clone() else {
        return Ok(());
    };
    let caller = subject.clone();
    let calls = tokio::spawn(async move {
        let mut accepted = Vec::new();
        for number in 0..300 {
            let id = format!("evt_{number:03}");
            let call = caller.item(&id);
            match tokio::time::timeout(LIMIT, call.accept(b"body")).await {
                Ok(Ok(AcceptState::Accepted)) => accepted.push(id),
                Ok(Ok(state)) => return Err(Failed(format!("accepting {id}: got {state:?}"))),
                Ok(Err(error)) => expect_kind("accepting", &error)?,
                Err(_) => return Err(Failed(format!("accepting did not end in {LIMIT:?}"))),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(accepted)
    });
    tokio::time::sleep(SHORT * 10).await;
    stop().await;
    tokio::time::sleep(SHORT * 10).await;
    start().await;
    let accepted = calls.await.map_err(|error| Failed(error.to_string()))??;

    when_up(|| subject.backlog()).await?;
    let taken = subject.take(Token::random()).await?;

    // One that failed may have been stored all the same; one that was acknowledged must have been.
    let taken = ids(&taken);
    let lost = accepted.iter().filter(|id| !taken.contains(&id.as_str()));
    expect_eq("accepted events that were lost", lost.count(), 0)
}

async fn expect_unavailable<T: Debug>(
    what: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Verdict {
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Err(error)) => expect_kind(what, &error),
        Ok(Ok(state)) => Err(Failed(format!(
            "{what} during an outage: expected an error, got {state:?}"
        ))),
        Err(_) => Err(Failed(format!(
            "{what} during an outage did not end in {LIMIT:?}"
        ))),
    }
}

fn expect_kind(what: &str, error: &StoreError) -> Verdict {
    expect(error.kind() == StoreErrorKind::Unavailable, || {
        let kind = error.kind();
        format!("{what} during an outage: expected an error of kind Unavailable, got {kind:?}")
    })
}

/// Calls until the store responds.
async fn when_up<T, Fut>(call: impl Fn() -> Fut) -> Result<T, Failed>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    let mut result = call().await;
    for _ in 0..ROUNDS {
        if result.is_ok() {
            break;
        }
        tokio::time::sleep(SHORT).await;
        result = call().await;
    }
    Ok(result?)
}
