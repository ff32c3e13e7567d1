//! Counts of the events that are not done.

use std::time::Duration;

use super::super::case::cases;
use super::super::pace::{LONG, SHORT};
use super::super::subject::Subject;
use super::super::verdict::{Verdict, expect, expect_eq};
use crate::inbox::store::Backlog;
use crate::inbox::token::Token;

cases! { Nothing:
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
