//! Accepted events: workers, parked events, and what is counted and deleted.

use std::collections::HashMap;
use std::time::Duration;

use super::{
    Failed, Item, LONG, ROUNDS, SHORT, Subject, Verdict, expect, expect_body, expect_eq, ids,
};
use crate::inbox::store::{AcceptState, Backlog, ClaimState, ParkedEvent, Release, Take, Token};
use crate::webhooks::EventId;

cases! { ACCEPTING, Nothing:
    an_accepted_event_is_taken_with_its_body_as_attempt_1,
    an_event_that_is_accepted_again_is_a_duplicate_and_taken_once,
    accepting_reports_a_duplicate_while_the_event_is_taken_done_or_parked,
    accepting_a_claimed_event_is_in_progress_and_stores_nothing,
    accepting_after_an_ended_lease_stores_the_event_and_keeps_its_attempts,
    accepting_after_an_ended_lease_ends_the_claim,
    an_accepted_event_can_be_claimed_by_its_id_and_is_then_not_taken,
    a_completed_event_has_no_body_any_more,
}

async fn an_accepted_event_is_taken_with_its_body_as_attempt_1(subject: Subject) -> Verdict {
    let accepted = subject.item("evt_1").accept(b"body").await?;
    expect_eq("accepting", accepted, AcceptState::Accepted)?;

    let taken = subject.take(Token::random()).await?;

    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 1)?;
    expect_body("its body", &taken[0].body, b"body")
}

async fn an_event_that_is_accepted_again_is_a_duplicate_and_taken_once(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;

    let duplicate = item.accept(b"body").await?;

    expect_eq("accepting again", duplicate, AcceptState::Duplicate)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take afterwards", taken.len(), 0)
}

async fn accepting_reports_a_duplicate_while_the_event_is_taken_done_or_parked(
    subject: Subject,
) -> Verdict {
    let (done, parked) = (subject.item("evt_1"), subject.item("evt_2"));
    done.accept(b"body").await?;
    parked.accept(b"body").await?;
    let token = Token::random();
    subject.take(token).await?;

    let duplicate = done.accept(b"body").await?;
    expect_eq("accepting a taken event", duplicate, AcceptState::Duplicate)?;
    done.complete(token).await?;
    let duplicate = done.accept(b"body").await?;
    expect_eq("accepting a done event", duplicate, AcceptState::Duplicate)?;
    parked.park(token, "no").await?;
    let duplicate = parked.accept(b"body").await?;
    expect_eq(
        "accepting a parked event",
        duplicate,
        AcceptState::Duplicate,
    )?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)
}

async fn accepting_a_claimed_event_is_in_progress_and_stores_nothing(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim(token).await?;

    let state = item.accept(b"body").await?;
    let waits = matches!(state, AcceptState::InProgress { remaining } if remaining > LONG / 2);
    expect(waits, || {
        format!("accepting: expected to be in progress for about {LONG:?}, got {state:?}")
    })?;

    item.release(token, Duration::ZERO).await?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take after the release", taken.len(), 0)?;
    let state = item.claim(Token::random()).await?;
    expect_eq("a claim", state, ClaimState::Fresh { attempt: 2 })
}

async fn accepting_after_an_ended_lease_stores_the_event_and_keeps_its_attempts(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    item.claim_for(Token::random(), SHORT).await?;
    subject.pass(SHORT).await;

    let accepted = item.accept(b"body").await?;

    expect_eq("accepting", accepted, AcceptState::Accepted)?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_eq("its attempt", taken[0].attempt, 2)
}

async fn accepting_after_an_ended_lease_ends_the_claim(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    let token = Token::random();
    item.claim_for(token, Duration::ZERO).await?;
    item.accept(b"body").await?;

    expect_eq("completing late", item.complete(token).await?, false)?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_1"])
}

async fn an_accepted_event_can_be_claimed_by_its_id_and_is_then_not_taken(
    subject: Subject,
) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;

    let state = item.claim(Token::random()).await?;

    expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })?;
    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)?;
    let duplicate = item.accept(b"body").await?;
    expect_eq("accepting again", duplicate, AcceptState::Duplicate)
}

async fn a_completed_event_has_no_body_any_more(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"body").await?;
    let token = Token::random();
    subject.take(token).await?;
    item.complete_for(token, SHORT).await?;

    // If the body was kept, the event would still be stored when the id is used anew.
    let other = Token::random();
    item.claim_when_forgotten(other, None).await?;
    item.release(other, Duration::ZERO).await?;

    let taken = subject.take(Token::random()).await?;
    expect_eq("events to take", taken.len(), 0)?;
    item.claim(other).await?;
    item.park(other, "no").await?;
    let parked = subject.parked().await?;
    let has_body = parked.iter().any(|event| event.body.is_some());
    expect_eq("a stored body", has_body, false)
}

cases! { TAKING, Nothing:
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
    expect_eq("accepting again", accepted, AcceptState::Duplicate)?;
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

/// Accepts an event whose first taker extends its lease until it ends. Returns the token of the second taker.
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
    expect((SHORT * 4..LONG).contains(&overdue), || {
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

cases! { PARKING, Nothing:
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
    expect((SHORT..LONG).contains(&parked_for), || {
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
    let duplicate = item.accept(b"evt_1").await?;
    expect_eq("accepting again", duplicate, AcceptState::Duplicate)?;
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
    let duplicate = item.accept(b"evt_1").await?;
    expect_eq("accepting again", duplicate, AcceptState::Duplicate)?;
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

cases! { BACKLOG, Nothing:
    a_backlog_counts_the_accepted_events_of_its_endpoint_by_state,
    a_backlog_counts_no_events_that_are_done_or_were_only_claimed,
    the_events_of_a_crashed_worker_are_waiting_again,
    the_lag_is_the_time_since_the_oldest_waiting_event_was_due,
    an_event_that_is_not_due_yet_adds_no_lag,
}

async fn a_backlog_counts_the_accepted_events_of_its_endpoint_by_state(
    subject: Subject,
) -> Verdict {
    let empty = subject.backlog().await?;
    expect_eq("an empty backlog", empty, Backlog::default())?;
    let elsewhere = subject.endpoint(&format!("{}, elsewhere", subject.endpoint));
    elsewhere.item("evt_1").accept(b"body").await?;
    for number in 1..=7 {
        subject
            .item(&format!("evt_{number}"))
            .accept(b"body")
            .await?;
    }
    let token = Token::random();
    for number in 1..=4 {
        subject.item(&format!("evt_{number}")).claim(token).await?;
    }
    subject.item("evt_1").park(token, "no").await?;
    subject.item("evt_2").release(token, LONG).await?;

    let backlog = subject.backlog().await?;

    let counts = (backlog.waiting, backlog.in_progress, backlog.parked);
    expect_eq("waiting, in progress, parked", counts, (4, 2, 1))
}

async fn a_backlog_counts_no_events_that_are_done_or_were_only_claimed(
    subject: Subject,
) -> Verdict {
    let token = Token::random();
    subject.item("evt_1").accept(b"body").await?;
    subject.take(token).await?;
    subject.item("evt_1").complete(token).await?;
    subject
        .item("evt_2")
        .claim_for(token, Duration::ZERO)
        .await?;
    subject.pass(SHORT).await;

    let backlog = subject.backlog().await?;

    expect_eq("the backlog", backlog, Backlog::default())
}

async fn the_events_of_a_crashed_worker_are_waiting_again(subject: Subject) -> Verdict {
    subject.item("evt_1").accept(b"body").await?;
    subject.take_for(Token::random(), SHORT, 1).await?;
    subject.pass(SHORT).await;

    let backlog = subject.backlog().await?;

    let counts = (backlog.waiting, backlog.in_progress, backlog.parked);
    expect_eq("waiting, in progress, parked", counts, (1, 0, 0))
}

async fn the_lag_is_the_time_since_the_oldest_waiting_event_was_due(subject: Subject) -> Verdict {
    subject.item("evt_1").accept(b"body").await?;
    subject.pass(SHORT * 4).await;
    subject.item("evt_2").accept(b"body").await?;

    let lag = subject.backlog().await?.lag;

    expect(lag >= SHORT * 4 && lag < LONG, || {
        format!("the lag is at least {:?}, but it says {lag:?}", SHORT * 4)
    })
}

async fn an_event_that_is_not_due_yet_adds_no_lag(subject: Subject) -> Verdict {
    let (taken, released) = (subject.item("evt_1"), subject.item("evt_2"));
    let token = Token::random();
    taken.accept(b"body").await?;
    released.accept(b"body").await?;
    subject.take(token).await?;
    released.release(token, LONG).await?;
    subject.pass(SHORT).await;

    let lag = subject.backlog().await?.lag;

    expect_eq("the lag", lag, Duration::ZERO)
}

cases! { PURGING, Purge:
    a_purge_deletes_forgotten_events_in_portions_and_counts_them,
    a_purge_deletes_what_is_forgotten_at_all_endpoints,
    a_purge_deletes_what_was_done_since_the_last_one,
    a_purge_keeps_what_is_not_forgotten,
}

async fn a_purge_deletes_forgotten_events_in_portions_and_counts_them(subject: Subject) -> Verdict {
    purge_all(&subject).await?;
    let token = Token::random();
    let ids = ["evt_1", "evt_2", "evt_3", "evt_4"];
    let given_up = subject.item("evt_5");
    // All claims come first: a store may delete what is forgotten with each claim.
    for id in ids {
        subject.item(id).claim(token).await?;
    }
    given_up.claim(token).await?;
    for id in ids {
        subject.item(id).complete_for(token, SHORT).await?;
    }
    let release = Release {
        delay: Duration::ZERO,
        retention: SHORT,
        reason: "no",
    };
    given_up
        .store
        .release(given_up.held(token), release)
        .await?;
    subject.pass(SHORT).await;

    let mut portions = Vec::new();
    for _ in 0..4 {
        portions.push(subject.store().purge(2).await?);
    }

    expect_eq("the portions of a purge", portions, vec![2, 2, 1, 0])
}

async fn a_purge_deletes_what_is_forgotten_at_all_endpoints(subject: Subject) -> Verdict {
    purge_all(&subject).await?;
    let token = Token::random();
    let items = ["one", "two", "three"].map(|endpoint| {
        let endpoint = format!("{}, {endpoint}", subject.endpoint);
        subject.endpoint(&endpoint).item("evt_1")
    });
    for item in &items {
        item.claim(token).await?;
    }
    for item in &items {
        item.complete_for(token, SHORT).await?;
    }
    subject.pass(SHORT).await;

    let purged = subject.store().purge(100).await?;

    expect_eq("deleted", purged, 3)
}

async fn a_purge_deletes_what_was_done_since_the_last_one(subject: Subject) -> Verdict {
    purge_all(&subject).await?;
    let token = Token::random();
    let first = subject.item("evt_1");
    first.claim(token).await?;
    first.complete_for(token, SHORT).await?;
    subject.pass(SHORT).await;
    expect_eq("deleted", subject.store().purge(100).await?, 1)?;
    let second = subject.item("evt_2");
    second.claim(token).await?;
    second.complete_for(token, SHORT).await?;
    subject.pass(SHORT).await;

    // Only what is in the store tells another process what to delete.
    let other = &subject.handles[1 % subject.handles.len()];
    let purged = other.purge(100).await?;

    expect_eq("deleted through another handle", purged, 1)
}

async fn a_purge_keeps_what_is_not_forgotten(subject: Subject) -> Verdict {
    purge_all(&subject).await?;
    let (done, open) = (subject.item("done"), subject.item("open"));
    let (parked, taken) = (subject.item("parked"), subject.item("taken"));
    let token = Token::random();
    done.claim(token).await?;
    done.complete(token).await?;
    open.claim_for(token, Duration::ZERO).await?;
    parked.claim(token).await?;
    parked.park(token, "no").await?;
    taken.accept(b"body").await?;
    subject.take_for(token, Duration::ZERO, 1).await?;
    subject.item("waiting").accept(b"body").await?;
    subject.pass(SHORT).await;

    expect_eq("deleted", subject.store().purge(100).await?, 0)?;

    let state = done.claim(Token::random()).await?;
    expect_eq("the done event", state, ClaimState::Done)?;
    let state = open.claim(Token::random()).await?;
    expect_eq("the open event", state, ClaimState::Fresh { attempt: 2 })?;
    let state = parked.claim(Token::random()).await?;
    expect_eq("the parked event", state, ClaimState::Parked)?;
    let events = subject.take(Token::random()).await?;
    let mut events = ids(&events);
    events.sort_unstable();
    expect_eq("events to take", events, vec!["taken", "waiting"])
}

/// Deletes what earlier cases and runs left.
async fn purge_all(subject: &Subject) -> Verdict {
    // The entries of other cases may be forgotten by then.
    subject.pass(SHORT * 2).await;
    for _ in 0..ROUNDS {
        let purged = subject.store().purge(1_000).await?;
        expect(purged <= 1_000, || {
            format!("a purge of at most 1,000 entries deleted {purged}")
        })?;
        if purged < 1_000 {
            return Ok(());
        }
    }
    Err(Failed(
        "purging 1,000 entries at a time does not end".to_owned(),
    ))
}
