//! Workers.

use std::collections::HashMap;
use std::time::Duration;

use super::super::case::cases;
use super::super::item::Item;
use super::super::pace::{LONG, ROUNDS, SHORT};
use super::super::subject::{Subject, ids};
use super::super::verdict::{Failed, Verdict, expect, expect_body, expect_eq};
use crate::inbox::store::{AcceptState, ClaimState, Take};
use crate::inbox::token::Token;

cases! { Nothing:
    events_are_taken_in_the_order_in_which_they_became_due,
    no_more_events_are_taken_than_the_limit,
    an_event_is_taken_only_at_its_own_endpoint,
    an_event_without_a_body_is_never_taken,
    a_taken_event_is_in_progress_for_others,
    taken_events_are_held_with_the_token_of_the_taker,
    a_released_event_is_taken_again_after_its_delay_with_the_next_attempt,
    the_events_of_a_crashed_worker_are_taken_after_the_lease,
    the_lease_of_a_taken_event_can_be_extended,
    an_event_whose_extended_lease_ended_is_held_by_its_next_taker_alone,
    an_event_whose_extended_lease_ended_keeps_its_body_and_its_attempts,
    a_taken_event_says_how_long_it_was_due,
    many_takers_never_get_the_same_event,
}

async fn events_are_taken_in_the_order_in_which_they_became_due(subject: Subject) -> Verdict {
    for id in ["evt_3", "evt_1", "evt_4", "evt_2"] {
        subject.item(id).accept(b"body").await?;
        subject.pass(SHORT).await;
    }
    // A released event is due at the end of its delay, after the others.
    let token = Token::random();
    subject.take_for(token, LONG, 1).await?;
    subject.item("evt_3").release(token, Duration::ZERO).await?;
    subject.pass(SHORT).await;

    let mut order = Vec::new();
    for limit in [1, 2, 5] {
        let taken = subject.take_for(Token::random(), LONG, limit).await?;
        order.push(ids(&taken).join(" "));
    }

    let expected = ["evt_1", "evt_4 evt_2", "evt_3"];
    expect_eq(
        "taken one, two and the rest",
        order,
        expected.map(String::from).to_vec(),
    )
}

async fn no_more_events_are_taken_than_the_limit(subject: Subject) -> Verdict {
    for number in 0..10 {
        subject
            .item(&format!("evt_{number}"))
            .accept(b"body")
            .await?;
    }

    let mut counts = Vec::new();
    for limit in [0, 1, 4, usize::MAX, 1] {
        let taken = subject.take_for(Token::random(), LONG, limit).await?;
        counts.push(taken.len());
    }

    expect_eq(
        "taken with the limits 0, 1, 4, all, 1",
        counts,
        vec![0, 1, 4, 5, 0],
    )
}

async fn an_event_is_taken_only_at_its_own_endpoint(subject: Subject) -> Verdict {
    let elsewhere = subject.endpoint(&format!("{}, elsewhere", subject.endpoint));
    subject.item("evt_1").accept(b"body").await?;

    let taken = elsewhere.take(Token::random()).await?;
    expect_eq("events to take elsewhere", taken.len(), 0)?;
    elsewhere.item("evt_1").accept(b"another").await?;
    let taken = elsewhere.take(Token::random()).await?;
    expect_eq("events to take elsewhere", ids(&taken), vec!["evt_1"])?;
    expect_body("the body elsewhere", &taken[0].body, b"another")?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_body("the body", &taken[0].body, b"body")
}

async fn an_event_without_a_body_is_never_taken(subject: Subject) -> Verdict {
    let (open, released) = (subject.item("evt_1"), subject.item("evt_2"));
    let token = Token::random();
    open.claim_for(token, Duration::ZERO).await?;
    released.claim(token).await?;
    released.release(token, Duration::ZERO).await?;
    subject.pass(SHORT).await;

    let taken = subject.take(Token::random()).await?;

    expect_eq("events to take", taken.len(), 0)
}

async fn a_taken_event_is_in_progress_for_others(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;
    subject.take(Token::random()).await?;

    let state = item.claim(Token::random()).await?;

    let waits = matches!(state, ClaimState::InProgress { remaining } if remaining > LONG / 2);
    expect(waits, || {
        format!("a claim: expected to be in progress for about {LONG:?}, got {state:?}")
    })?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)
}

async fn taken_events_are_held_with_the_token_of_the_taker(subject: Subject) -> Verdict {
    let (one, two) = (subject.item("evt_1"), subject.item("evt_2"));
    one.accept(b"body").await?;
    two.accept(b"body").await?;
    let token = Token::random();
    let taken = subject.take(token).await?;
    expect_eq("events to take", taken.len(), 2)?;

    let completed = one.complete(Token::random()).await?;
    expect_eq("completing with another token", completed, false)?;
    expect_eq("completing", one.complete(token).await?, true)?;
    expect_eq("extending the other", two.extend(token, LONG).await?, true)?;
    expect_eq("completing the other", two.complete(token).await?, true)
}

async fn a_released_event_is_taken_again_after_its_delay_with_the_next_attempt(
    subject: Subject,
) -> Verdict {
    let (slow, quick) = (subject.item("evt_1"), subject.item("evt_2"));
    slow.accept(b"slow").await?;
    quick.accept(b"quick").await?;
    for attempt in 2..5 {
        let token = Token::random();
        let taken = subject.take_when_due(token).await?;
        expect(!taken.is_empty(), || "nothing to take".to_owned())?;
        slow.release(token, LONG).await?;
        quick.release(token, SHORT).await?;

        let token = Token::random();
        let taken = subject.take_when_due(token).await?;

        expect_eq("events to take", ids(&taken), vec!["evt_2"])?;
        expect_eq("its attempt", taken[0].attempt, attempt * 2 - 2)?;
        expect_body("its body", &taken[0].body, b"quick")?;
        quick.release(token, SHORT).await?;
    }
    Ok(())
}

async fn the_events_of_a_crashed_worker_are_taken_after_the_lease(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;
    let (crashed, token) = (Token::random(), Token::random());
    subject.take_for(crashed, SHORT, 10).await?;

    let taken = subject.take_when_due(token).await?;

    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 2)?;
    expect_body("its body", &taken[0].body, b"body")?;
    let completed = item.complete(crashed).await?;
    expect_eq("the crashed worker completing", completed, false)?;
    let released = item.release(crashed, Duration::ZERO).await?;
    expect_eq("the crashed worker releasing", released, false)?;
    let parked = item.park(crashed, "no").await?;
    expect_eq("the crashed worker parking", parked, false)?;
    expect_eq("completing", item.complete(token).await?, true)
}

async fn the_lease_of_a_taken_event_can_be_extended(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;
    let token = Token::random();
    subject.take_for(token, SHORT, 10).await?;

    expect_eq("extending", item.extend(token, LONG).await?, true)?;
    subject.pass(SHORT).await;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)?;
    expect_eq("completing", item.complete(token).await?, true)
}

async fn an_event_whose_extended_lease_ended_is_held_by_its_next_taker_alone(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    let holder = taken_after_an_extended_lease(&subject, &item).await?;

    let state = item.claim(Token::random()).await?;
    let waits = matches!(state, ClaimState::InProgress { remaining } if remaining > LONG / 2);
    expect(waits, || {
        format!("a claim: expected to be in progress for about {LONG:?}, got {state:?}")
    })?;
    let accepted = item.accept(b"body").await?;
    expect_eq("accepting again", accepted, AcceptState::Repeated)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events for a third worker", taken.len(), 0)?;

    expect_eq("completing", item.complete(holder).await?, true)?;
    let state = item.claim(Token::random()).await?;
    expect_eq("a claim afterwards", state, ClaimState::Done)
}

async fn an_event_whose_extended_lease_ended_keeps_its_body_and_its_attempts(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    let holder = taken_after_an_extended_lease(&subject, &item).await?;

    let accepted = item.accept(b"another body").await?;
    expect_eq("accepting another body", accepted, AcceptState::Conflict)?;
    let state = item.claim_body(Token::random(), b"another body").await?;
    expect_eq("claiming another body", state, ClaimState::Conflict)?;
    expect_eq("extending", item.extend(holder, SHORT).await?, true)?;
    subject.pass(SHORT).await;
    subject.store().purge(1_000).await?;

    let state = item.claim_body(Token::random(), b"another body").await?;
    expect_eq("claiming another body", state, ClaimState::Conflict)?;
    let taken = subject.take_when_due(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 3)?;
    expect_body("its body", &taken[0].body, b"body")
}

/// Accepts an event whose first taker extends its lease and lets it end. Returns the token of the second taker.
async fn taken_after_an_extended_lease(subject: &Subject, item: &Item) -> Result<Token, Failed> {
    item.accept(b"body").await?;
    let (first, second) = (Token::random(), Token::random());
    subject.take(first).await?;
    expect_eq("extending", item.extend(first, SHORT).await?, true)?;
    subject.pass(SHORT).await;

    let taken = subject.take_when_due(second).await?;

    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 2)?;
    Ok(second)
}

async fn a_taken_event_says_how_long_it_was_due(subject: Subject) -> Verdict {
    subject.item("evt_1").accept(b"body").await?;
    subject.pass(SHORT * 4).await;

    let taken = subject.take(Token::random()).await?;

    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    let overdue = taken[0].overdue;
    expect(overdue >= SHORT * 4 && overdue < LONG, || {
        format!(
            "it was due for at least {:?}, but it says {overdue:?}",
            SHORT * 4
        )
    })
}

async fn many_takers_never_get_the_same_event(subject: Subject) -> Verdict {
    const EVENTS: usize = 200;
    for number in 0..EVENTS {
        let body = number.to_string();
        subject
            .item(&format!("evt_{number}"))
            .accept(body.as_bytes())
            .await?;
    }

    let takers: Vec<_> = (0..16)
        .map(|taker| tokio::spawn(take_all(subject.clone(), taker)))
        .collect();
    let mut taken: HashMap<String, usize> = HashMap::new();
    for taker in takers {
        let ids = taker.await.map_err(|error| Failed(error.to_string()))??;
        for id in ids {
            *taken.entry(id).or_default() += 1;
        }
    }

    let twice = taken.values().filter(|count| **count > 1).count();
    expect_eq("events that two takers got", twice, 0)?;
    expect_eq("events that were taken", taken.len(), EVENTS)
}

/// Takes up to 7 events at a time, until nothing is left for a while.
async fn take_all(subject: Subject, taker: usize) -> Result<Vec<String>, Failed> {
    let store = &subject.handles[taker % subject.handles.len()];
    let mut taken = Vec::new();
    // A taker that finds the rows of others locked may return nothing for a moment.
    let mut empty = 0;
    for _ in 0..ROUNDS {
        let take = Take {
            endpoint: &subject.endpoint,
            token: Token::random(),
            lease: LONG,
            limit: 7,
        };
        let events = store.take(take).await?;
        empty = if events.is_empty() { empty + 1 } else { 0 };
        if empty == 3 {
            break;
        }
        taken.extend(events.into_iter().map(|event| event.id.to_string()));
        tokio::task::yield_now().await;
        if empty > 0 {
            subject.wait(SHORT).await;
        }
    }
    Ok(taken)
}
