//! Events that are parked, replayed and discarded.

use std::time::Duration;

use super::super::case::cases;
use super::super::pace::{LONG, SHORT};
use super::super::subject::{Subject, ids};
use super::super::verdict::{Verdict, expect, expect_body, expect_eq};
use crate::inbox::store::{AcceptState, ClaimState, ParkedEvent};
use crate::inbox::token::Token;
use crate::webhooks::EventId;

cases! { Nothing:
    a_parked_event_is_listed_with_its_body_attempts_and_reason,
    a_parked_event_is_neither_claimed_nor_taken,
    a_parked_claim_is_no_longer_held,
    parked_events_are_listed_in_pages_by_the_bytes_of_their_ids,
    only_parked_events_of_the_endpoint_are_listed,
    a_replayed_event_is_taken_with_its_body_as_attempt_1,
    only_a_parked_event_is_replayed_or_discarded,
    a_discarded_event_is_done_and_has_no_body_any_more,
    a_discarded_event_is_accepted_anew_after_its_retention,
    an_event_that_was_parked_without_a_body_can_be_claimed_after_a_replay,
}

/// Accepts an event, takes it and parks it.
async fn park(subject: &Subject, id: &str) -> Verdict {
    let (item, token) = (subject.item(id), Token::random());
    item.accept(id.as_bytes()).await?;
    item.claim(token).await?;
    expect_eq("parking", item.park(token, "no").await?, true)
}

async fn a_parked_event_is_listed_with_its_body_attempts_and_reason(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;
    subject.take_for(Token::random(), Duration::ZERO, 1).await?;
    let token = Token::random();
    subject.take(token).await?;
    expect_eq("parking", item.park(token, "the reason").await?, true)?;
    subject.pass(SHORT).await;

    let parked = subject.parked().await?;

    expect_eq("parked events", parked_ids(&parked), vec!["evt_1"])?;
    let event = &parked[0];
    expect_body(
        "its body",
        event.body.as_deref().unwrap_or_default(),
        b"body",
    )?;
    expect_eq("its attempts", event.attempts, 2)?;
    expect_eq("its reason", event.reason.as_str(), "the reason")?;
    let parked_for = event.parked_for;
    expect(parked_for >= SHORT && parked_for < LONG, || {
        format!("it was parked for at least {SHORT:?}, but it says {parked_for:?}")
    })
}

async fn a_parked_event_is_neither_claimed_nor_taken(subject: Subject) -> Verdict {
    park(&subject, "evt_1").await?;
    subject.pass(SHORT).await;

    let state = subject.item("evt_1").claim(Token::random()).await?;
    expect_eq("a claim", state, ClaimState::Parked)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)
}

async fn a_parked_claim_is_no_longer_held(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    item.park(token, "no").await?;

    expect_eq("completing", item.complete(token).await?, false)?;
    expect_eq("extending", item.extend(token, LONG).await?, false)?;
    let released = item.release(token, Duration::ZERO).await?;
    expect_eq("releasing", released, false)?;
    expect_eq("parking again", item.park(token, "yes").await?, false)?;
    let parked = subject.parked().await?;
    expect_eq("its reason", parked[0].reason.as_str(), "no")
}

async fn parked_events_are_listed_in_pages_by_the_bytes_of_their_ids(subject: Subject) -> Verdict {
    let ordered = ["B", "a", "a ", "aa", "b", "\u{e9}", "\u{1f4e7}"];
    for id in ["b", "aa", "\u{1f4e7}", "B", "a ", "\u{e9}", "a"] {
        park(&subject, id).await?;
    }

    let mut listed = Vec::new();
    let mut after: Option<EventId> = None;
    for _ in 0..5 {
        let store = subject.store();
        let page = store.parked(&subject.endpoint, after.as_ref(), 3).await?;
        let Some(last) = page.last() else { break };
        expect(page.len() <= 3, || {
            format!("a page of at most 3 has {} events", page.len())
        })?;
        after = Some(last.id.clone());
        listed.extend(page.into_iter().map(|event| event.id.to_string()));
    }

    expect_eq("the pages", listed, ordered.map(String::from).to_vec())?;
    let none = subject.store().parked(&subject.endpoint, None, 0).await?;
    expect_eq("a page of none", none.len(), 0)?;
    let all = subject.store().parked(&subject.endpoint, None, usize::MAX);
    expect_eq("a page of all", all.await?.len(), ordered.len())
}

async fn only_parked_events_of_the_endpoint_are_listed(subject: Subject) -> Verdict {
    let elsewhere = subject.endpoint(&format!("{}, elsewhere", subject.endpoint));
    park(&elsewhere, "evt_1").await?;
    park(&subject, "evt_2").await?;
    subject.item("evt_3").accept(b"body").await?;

    let parked = subject.parked().await?;

    expect_eq("parked events", parked_ids(&parked), vec!["evt_2"])
}

async fn a_replayed_event_is_taken_with_its_body_as_attempt_1(subject: Subject) -> Verdict {
    park(&subject, "evt_1").await?;
    let item = subject.item("evt_1");

    expect_eq("replaying", item.replay().await?, true)?;

    expect_eq("parked events", subject.parked().await?.len(), 0)?;
    let repeated = item.accept(b"evt_1").await?;
    expect_eq("accepting again", repeated, AcceptState::Repeated)?;
    let token = Token::random();
    let taken = subject.take(token).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 1)?;
    expect_body("its body", &taken[0].body, b"evt_1")?;
    expect_eq("completing", item.complete(token).await?, true)
}

async fn only_a_parked_event_is_replayed_or_discarded(subject: Subject) -> Verdict {
    let (waiting, done) = (subject.item("evt_1"), subject.item("evt_2"));
    waiting.accept(b"body").await?;
    let token = Token::random();
    done.claim(token).await?;
    done.complete(token).await?;
    let replayed = subject.item("evt_3");
    park(&subject, "evt_3").await?;
    replayed.replay().await?;

    for item in [&waiting, &done, &replayed] {
        expect_eq("replaying", item.replay().await?, false)?;
        expect_eq("discarding", item.discard().await?, false)?;
    }

    let state = done.claim(Token::random()).await?;
    expect_eq("the done event", state, ClaimState::Done)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 2)
}

async fn a_discarded_event_is_done_and_has_no_body_any_more(subject: Subject) -> Verdict {
    park(&subject, "evt_1").await?;
    let item = subject.item("evt_1");

    expect_eq("discarding", item.discard().await?, true)?;

    expect_eq("discarding again", item.discard().await?, false)?;
    expect_eq("replaying", item.replay().await?, false)?;
    let state = item.claim(Token::random()).await?;
    expect_eq("a claim", state, ClaimState::Done)?;
    let repeated = item.accept(b"evt_1").await?;
    expect_eq("accepting again", repeated, AcceptState::Repeated)?;
    let counts = (
        subject.parked().await?.len(),
        subject.take(Token::random()).await?.len(),
    );
    expect_eq("parked events, and events to take", counts, (0, 0))
}

async fn a_discarded_event_is_accepted_anew_after_its_retention(subject: Subject) -> Verdict {
    park(&subject, "evt_1").await?;
    let item = subject.item("evt_1");
    subject.store().discard(item.key(), SHORT).await?;
    subject.pass(SHORT).await;

    let accepted = item.accept(b"another").await?;

    expect_eq("accepting", accepted, AcceptState::Accepted)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 1)?;
    expect_body("its body", &taken[0].body, b"another")
}

async fn an_event_that_was_parked_without_a_body_can_be_claimed_after_a_replay(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;
    item.park(token, "no").await?;
    let parked = subject.parked().await?;
    let has_body = parked.iter().any(|event| event.body.is_some());
    expect_eq("a body of an event that was only claimed", has_body, false)?;

    expect_eq("replaying", item.replay().await?, true)?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)?;
    let state = item.claim(Token::random()).await?;
    expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })
}

fn parked_ids(parked: &[ParkedEvent]) -> Vec<&str> {
    parked.iter().map(|event| event.id.as_str()).collect()
}
