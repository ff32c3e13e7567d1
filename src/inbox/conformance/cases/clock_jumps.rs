//! A clock that jumps.

use std::time::Duration;

use super::super::case::cases;
use super::super::clock_jump::ClockJump;
use super::super::pace::LONG;
use super::super::subject::{Subject, ids};
use super::super::verdict::{Verdict, expect, expect_eq};
use crate::inbox::store::ClaimState;
use crate::inbox::token::Token;

cases! { ClockJump:
    a_clock_that_jumps_forward_ends_leases_but_no_claim,
    a_clock_that_jumps_back_gives_no_claim_away,
    a_clock_that_jumps_back_and_forth_loses_no_event,
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn jump(subject: &Subject, by: ClockJump) {
    if let Some(jump) = &subject.capabilities.clock_jump {
        jump(by).await;
    }
}

async fn a_clock_that_jumps_forward_ends_leases_but_no_claim(subject: Subject) -> Verdict {
    let (replaced, late) = (subject.item("evt_1"), subject.item("evt_2"));
    let (token, other) = (Token::random(), Token::random());
    replaced.claim_with(token, LONG, DAY * 7, None).await?;
    late.claim_with(token, LONG, DAY * 7, None).await?;

    jump(&subject, ClockJump::Forward(DAY)).await;

    let state = replaced.claim(other).await?;
    expect_eq("a claim", state, ClaimState::Fresh { attempt: 2 })?;
    let completed = replaced.complete(token).await?;
    expect_eq("the replaced holder completing", completed, false)?;
    expect_eq(
        "the late holder completing",
        late.complete(token).await?,
        true,
    )?;
    jump(&subject, ClockJump::Back(DAY)).await;
    expect_eq("completing", replaced.complete(other).await?, true)
}

async fn a_clock_that_jumps_back_gives_no_claim_away(subject: Subject) -> Verdict {
    let (held, done) = (subject.item("evt_1"), subject.item("evt_2"));
    let token = Token::random();
    held.claim(token).await?;
    done.claim(token).await?;
    done.complete(token).await?;

    jump(&subject, ClockJump::Back(DAY)).await;

    let state = held.claim(Token::random()).await?;
    let waits = matches!(state, ClaimState::InProgress { .. });
    expect(waits, || {
        format!("a claim: expected to be in progress, got {state:?}")
    })?;
    let state = done.claim(Token::random()).await?;
    expect_eq("a claim of a done event", state, ClaimState::Done)?;
    expect_eq("extending", held.extend(token, LONG).await?, true)?;
    jump(&subject, ClockJump::Forward(DAY)).await;
    expect_eq("completing", held.complete(token).await?, true)
}

async fn a_clock_that_jumps_back_and_forth_loses_no_event(subject: Subject) -> Verdict {
    let mut names = Vec::new();
    for number in 0..20_u32 {
        let name = format!("evt_{number:02}");
        subject.item(&name).accept(b"body").await?;
        names.push(name);
        let by = DAY * (number % 3);
        let by = if number % 2 == 0 {
            ClockJump::Forward(by)
        } else {
            ClockJump::Back(by)
        };
        jump(&subject, by).await;
        subject.backlog().await?;
        subject.store().purge(1_000).await?;
        if let [event] = subject.take_for(Token::random(), LONG, 1).await?.as_slice() {
            expect_eq(
                "its attempt is at least the first",
                event.attempt >= 1,
                true,
            )?;
        }
    }
    jump(&subject, ClockJump::Forward(DAY * 365)).await;

    let backlog = subject.backlog().await?;
    expect_eq("waiting", backlog.waiting, 20)?;
    let taken = subject.take(Token::random()).await?;

    let mut taken = ids(&taken);
    taken.sort_unstable();
    expect_eq(
        "events to take",
        taken,
        names.iter().map(String::as_str).collect(),
    )
}
