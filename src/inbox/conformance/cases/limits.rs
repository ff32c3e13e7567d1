//! Durations that no clock can add.

use std::time::Duration;

use super::super::case::cases;
use super::super::item::Item;
use super::super::pace::SHORT;
use super::super::subject::Subject;
use super::super::verdict::{Verdict, expect, expect_eq};
use crate::inbox::store::{ClaimState, Release};
use crate::inbox::token::Token;

cases! { Nothing:
    a_huge_lease_lasts_very_long,
    a_huge_extension_lasts_very_long,
    a_huge_delay_lasts_very_long,
    a_huge_retention_lasts_very_long,
    a_worker_can_take_for_a_huge_time,
}

const HUGE: [Duration; 4] = [
    Duration::MAX,
    Duration::from_secs(u64::MAX / 1_000),
    // The last that fits into 63 bits of microseconds, and the first that does not fit into 32 of seconds.
    Duration::from_micros(i64::MAX as u64),
    Duration::from_secs(1 << 32),
];
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

async fn a_huge_lease_lasts_very_long(subject: Subject) -> Verdict {
    for (number, huge) in HUGE.into_iter().enumerate() {
        let item = subject.item(&format!("evt_{number}"));
        let token = Token::random();

        let state = item.claim_with(token, huge, huge, None).await?;

        let fresh = ClaimState::Fresh { attempt: 1 };
        expect_eq(format!("a claim for {huge:?}"), state, fresh)?;
        expect_very_long(&item, huge).await?;
        expect_eq("completing", item.complete(token).await?, true)?;
    }
    Ok(())
}

async fn a_huge_extension_lasts_very_long(subject: Subject) -> Verdict {
    for (number, huge) in HUGE.into_iter().enumerate() {
        let item = subject.item(&format!("evt_{number}"));
        let token = Token::random();
        item.claim(token).await?;

        let extended = item.extend(token, huge).await?;

        expect_eq(format!("extending by {huge:?}"), extended, true)?;
        expect_very_long(&item, huge).await?;
        expect_eq("completing", item.complete(token).await?, true)?;
    }
    Ok(())
}

async fn a_huge_delay_lasts_very_long(subject: Subject) -> Verdict {
    for (number, huge) in HUGE.into_iter().enumerate() {
        let item = subject.item(&format!("evt_{number}"));
        let token = Token::random();
        item.claim(token).await?;
        let release = Release {
            delay: huge,
            retention: huge,
            reason: "no",
        };

        let released = item.store.release(item.held(token), release).await?;

        expect_eq(format!("releasing for {huge:?}"), released, true)?;
        expect_very_long(&item, huge).await?;
    }
    Ok(())
}

async fn a_huge_retention_lasts_very_long(subject: Subject) -> Verdict {
    for (number, huge) in HUGE.into_iter().enumerate() {
        let (done, discarded) = (
            subject.item(&format!("evt_{number}")),
            subject.item(&format!("evt_{number}, discarded")),
        );
        let token = Token::random();
        done.claim(token).await?;
        discarded.claim(token).await?;
        discarded.park(token, "no").await?;

        done.complete_for(token, huge).await?;
        subject.store().discard(discarded.key(), huge).await?;
        subject.pass(SHORT).await;
        subject.store().purge(usize::MAX).await?;

        for item in [done, discarded] {
            let state = item.claim(Token::random()).await?;
            let what = format!("a claim of an event that is remembered for {huge:?}");
            expect_eq(what, state, ClaimState::Done)?;
        }
    }
    Ok(())
}

async fn a_worker_can_take_for_a_huge_time(subject: Subject) -> Verdict {
    for (number, huge) in HUGE.into_iter().enumerate() {
        let item = subject.item(&format!("evt_{number}"));
        item.accept(b"body").await?;
        let token = Token::random();

        let taken = subject.take_for(token, huge, usize::MAX).await?;

        expect_eq("events to take", taken.len(), 1)?;
        expect_very_long(&item, huge).await?;
        expect_eq("completing", item.complete(token).await?, true)?;
    }
    Ok(())
}

async fn expect_very_long(item: &Item, huge: Duration) -> Verdict {
    let state = item.claim(Token::random()).await?;
    let waits = matches!(state, ClaimState::InProgress { remaining } if remaining > YEAR);
    expect(waits, || {
        format!(
            "a claim: expected to be in progress for years, for it was said to last {huge:?}; got {state:?}"
        )
    })
}
