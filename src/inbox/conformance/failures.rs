//! A store that is full, a clock that jumps, a server that stops.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use super::ClockJump;
use super::{Failed, LONG, ROUNDS, SHORT, Subject, Verdict, expect, expect_body, expect_eq, ids};
use crate::inbox::error::{StoreError, StoreErrorKind};
use crate::inbox::store::{AcceptState, ClaimState, Release, TakenEvent, Token};

cases! { FULL, Filling:
    a_full_store_refuses_new_events_and_forgets_none,
}

async fn a_full_store_refuses_new_events_and_forgets_none(subject: Subject) -> Verdict {
    let Some((store, room)) = subject.capabilities.filling.clone() else {
        return Ok(());
    };
    let subject = Subject {
        handles: vec![store],
        ..subject
    };
    let token = Token::random();
    for number in 0..room {
        let item = subject.item(&format!("evt_{number}"));
        if number == 0 {
            let accepted = item.accept(b"body").await?;
            expect_eq("accepting", accepted, AcceptState::Accepted)?;
        } else {
            let state = item.claim(token).await?;
            expect_eq("a claim", state, ClaimState::Fresh { attempt: 1 })?;
            expect_eq("completing", item.complete(token).await?, true)?;
        }
    }

    let (accepted, claimed) = (
        subject.item("accepted too much"),
        subject.item("claimed too much"),
    );
    expect_full("accepting", accepted.accept(b"body").await)?;
    expect_full("a claim", claimed.claim(token).await)?;

    for number in 1..room {
        let state = subject.item(&format!("evt_{number}")).claim(token).await?;
        expect_eq("a claim of a done event", state, ClaimState::Done)?;
    }
    let duplicate = subject.item("evt_0").accept(b"body").await?;
    expect_eq(
        "accepting a waiting event",
        duplicate,
        AcceptState::Duplicate,
    )?;
    let taken = subject.take_for(token, LONG, 10).await?;
    expect_eq("events to take", ids(&taken), vec!["evt_0"])?;
    let completed = subject.item("evt_0").complete_for(token, SHORT).await?;
    expect_eq("completing", completed, true)?;

    subject.pass(SHORT).await;
    subject.store().purge(1_000).await?;

    let accepted = accepted.accept(b"body").await?;
    expect_eq("accepting after a purge", accepted, AcceptState::Accepted)
}

fn expect_full<T: Debug>(what: &str, result: Result<T, StoreError>) -> Verdict {
    match result {
        Ok(state) => Err(Failed(format!(
            "{what} without room: expected an error of kind Full, got {state:?}"
        ))),
        Err(error) => expect(error.kind() == StoreErrorKind::Full, || {
            let kind = error.kind();
            format!("{what} without room: expected an error of kind Full, got {kind:?}")
        }),
    }
}

cases! { CLOCK_JUMPS, ClockJump:
    a_clock_that_jumps_forward_ends_leases_but_no_claim,
    a_clock_that_jumps_back_gives_no_claim_away,
    a_clock_that_jumps_back_brings_nothing_back_that_is_remembered_for_no_time,
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

async fn a_clock_that_jumps_back_brings_nothing_back_that_is_remembered_for_no_time(
    subject: Subject,
) -> Verdict {
    let zero = Duration::ZERO;
    let fresh = ClaimState::Fresh { attempt: 1 };
    for then in ["claimed", "accepted"] {
        let items = [
            "completed",
            "handled",
            "released",
            "discarded",
            "ended",
            "shortened",
        ];
        let items = items.map(|name| subject.item(&format!("{name}, {then}")));
        let [completed, handled, released, discarded, ended, shortened] = &items;
        let token = Token::random();
        completed.claim(token).await?;
        expect_eq(
            "completing",
            completed.complete_for(token, zero).await?,
            true,
        )?;
        handled.accept(b"body").await?;
        subject.take(token).await?;
        expect_eq("completing", handled.complete_for(token, zero).await?, true)?;
        released.claim(token).await?;
        let release = Release::new(zero, zero, "no");
        let is_released = released
            .store
            .release(released.held(token), release)
            .await?;
        expect_eq("releasing", is_released, true)?;
        discarded.claim(token).await?;
        discarded.park(token, "no").await?;
        let is_discarded = subject.store().discard(discarded.key(), zero).await?;
        expect_eq("discarding", is_discarded, true)?;
        let state = ended.claim_with(token, zero, zero, None).await?;
        expect_eq("a claim for no time", state, fresh)?;
        shortened.claim_with(token, LONG, zero, None).await?;
        expect_eq("extending", shortened.extend(token, zero).await?, true)?;

        jump(&subject, ClockJump::Back(DAY)).await;

        for item in &items {
            let what = item.id.as_str();
            if then == "claimed" {
                expect_eq(what, item.claim(Token::random()).await?, fresh)?;
            } else {
                expect_eq(what, item.accept(b"another").await?, AcceptState::Accepted)?;
            }
        }
        jump(&subject, ClockJump::Forward(DAY)).await;
    }
    Ok(())
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

cases! { OUTAGE, Outage:
    an_outage_is_an_error_in_time_and_loses_nothing,
    calls_during_a_restart_end_and_lose_nothing,
}

/// How long a call may take while the server is down.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the server runs before it is stopped, and how long it is down.
const BEFORE_CHANGE: Duration = Duration::from_millis(200);

async fn an_outage_is_an_error_in_time_and_loses_nothing(subject: Subject) -> Verdict {
    let Some((stop, start)) = subject.capabilities.outage.clone() else {
        return Ok(());
    };
    let token = Token::random();
    let (done, held) = (subject.item("done"), subject.item("held"));
    let (waiting, new) = (subject.item("waiting"), subject.item("new"));
    // A store that soon gives up a call may do so on a slow machine, too. All these calls can be made again.
    when_up(|| done.claim(token)).await?;
    when_up(|| done.complete(token)).await?;
    when_up(|| held.claim(token)).await?;
    when_up(|| waiting.accept(b"body")).await?;

    stop().await;
    let down = expect_down(&subject).await;
    start().await;
    down?;

    // The first calls may still meet connections that broke.
    when_up(|| subject.backlog()).await?;
    let other = Token::random();
    let state = when_up(|| done.claim(other)).await?;
    expect_eq("the done event afterwards", state, ClaimState::Done)?;
    let completed = when_up(|| held.complete(token)).await?;
    expect_eq("the holder completing", completed, true)?;
    let mut taken = Vec::new();
    for _ in 0..ROUNDS {
        taken = when_up(|| take_for_no_time(&subject)).await?;
        if !taken.is_empty() {
            break;
        }
        // A call that was given up may hold the event for a moment longer.
        tokio::time::sleep(SHORT).await;
    }
    expect_eq("events to take", ids(&taken), vec!["waiting"])?;
    expect_body("its body", &taken[0].body, b"body")?;
    let state = when_up(|| new.claim(other)).await?;
    let fresh = ClaimState::Fresh { attempt: 1 };
    expect_eq("an event that was refused", state, fresh)
}

/// Takes up to 1,000 events that are due, and are due again immediately: if the response is lost, the next call has them.
async fn take_for_no_time(subject: &Subject) -> Result<Vec<TakenEvent>, StoreError> {
    let zero = Duration::ZERO;
    subject.take_for(Token::random(), zero, 1_000).await
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
                // A store may have made the call again, after the server stopped before its response.
                Ok(Ok(AcceptState::Accepted | AcceptState::Duplicate)) => accepted.push(id),
                Ok(Ok(state)) => return Err(Failed(format!("accepting {id}: got {state:?}"))),
                Ok(Err(error)) => expect_kind("accepting", &error)?,
                Err(_) => return Err(Failed(format!("accepting did not end in {LIMIT:?}"))),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(accepted)
    });
    // This waits in real time: the calls and the restart take real time, even if a test moves the clock of the store.
    tokio::time::sleep(BEFORE_CHANGE).await;
    stop().await;
    tokio::time::sleep(BEFORE_CHANGE).await;
    start().await;
    let accepted = calls.await.map_err(|error| Failed(error.to_string()))??;

    when_up(|| subject.backlog()).await?;
    // An event whose call failed may have been stored all the same. An acknowledged event must have been.
    let mut missing: BTreeSet<String> = accepted.into_iter().collect();
    for _ in 0..ROUNDS {
        // A call that was given up may hold events for a moment longer.
        let taken = when_up(|| take_for_no_time(&subject)).await?;
        for id in ids(&taken) {
            missing.remove(id);
        }
        if missing.is_empty() {
            break;
        }
        tokio::time::sleep(SHORT).await;
    }

    expect_eq("accepted events that were lost", missing.len(), 0)
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

/// Calls until the store is no longer unavailable.
async fn when_up<T, Fut>(call: impl Fn() -> Fut) -> Result<T, Failed>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    let mut result = call().await;
    for _ in 0..ROUNDS {
        match &result {
            Err(error) if error.kind() == StoreErrorKind::Unavailable => {}
            _ => break,
        }
        tokio::time::sleep(SHORT).await;
        result = call().await;
    }
    Ok(result?)
}
