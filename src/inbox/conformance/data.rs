//! Ids, bodies and durations that databases confuse.

use std::time::Duration;

use super::{Item, SHORT, Subject, Verdict, expect, expect_body, expect_eq, ids};
use crate::inbox::store::{AcceptState, ClaimState, Release, Token};
use crate::webhooks::EventId;

cases! { NAMES, Nothing:
    ids_are_compared_by_their_bytes,
    ids_of_any_form_are_taken_and_parked_unchanged,
    endpoints_are_compared_by_their_bytes,
    an_id_with_control_characters_is_refused,
}

/// Texts that databases confuse with each other, or with their own syntax.
fn hostile_names() -> Vec<String> {
    let plain = [
        "a",
        "A",
        "a ",
        " a",
        "aa",
        "a\u{a0}",
        "a\u{200b}",
        "0",
        "00",
        "1",
        "01",
        "1e0",
        "-1",
        "null",
        "NULL",
        "true",
        "'",
        "''",
        "\"",
        "`",
        "\\",
        "\\\\",
        "\\0",
        "\\u0000",
        "\\x61",
        "%",
        "%%",
        "%61",
        "_",
        "a%",
        "a_",
        "*",
        "?",
        "$1",
        ":a",
        "@a",
        "{a}",
        "{a",
        "}",
        "[a]",
        "(a)",
        ";",
        "--",
        "/*",
        "#",
        "a:b",
        "a::b",
        ":",
        "a|b",
        "a,b",
        "a\u{301}",
        "\u{e1}",
        "\u{c1}",
        "e\u{301}",
        "\u{e9}",
        "\u{c5}",
        "\u{212b}",
        "A\u{30a}",
        "\u{df}",
        "ss",
        "SS",
        "\u{fb01}",
        "fi",
        "i",
        "I",
        "\u{130}",
        "\u{131}",
        "\u{3c3}",
        "\u{3c2}",
        "\u{1f4e7}",
        "\u{1f468}\u{200d}\u{1f469}",
        "\u{10ffff}",
        "\u{fffd}",
        "\u{feff}a",
        "\u{202e}a",
        "'; DROP TABLE audience_inbox; --",
        "') OR 1=1 --",
        "../../a",
        "evt_1 ",
        "evt_1\u{2003}",
    ];
    let mut names: Vec<String> = plain.map(String::from).to_vec();
    names.push("x".repeat(255));
    names.push("x".repeat(254));
    names.push(format!("{}y", "x".repeat(254)));
    names.push(format!("{} ", "x".repeat(254)));
    // 63 and 64 times four bytes: short in characters, long in bytes.
    names.push("\u{1f4e7}".repeat(63));
    names.push(format!("{}xyz", "\u{1f4e7}".repeat(63)));
    names
}

async fn ids_are_compared_by_their_bytes(subject: Subject) -> Verdict {
    let names = hostile_names();
    let token = Token::random();
    for name in &names {
        let state = subject.item(name).claim(token).await?;
        let what = format!("the first claim of {name:?}, after claims of others");
        // All have the same token: a store that confuses two of them would show one claim for both.
        expect_eq(what, state, ClaimState::Fresh { attempt: 1 })?;
        let released = subject.item(name).release(token, Duration::ZERO).await?;
        expect_eq(format!("releasing {name:?}"), released, true)?;
    }
    for name in &names {
        let state = subject.item(name).claim(token).await?;
        let fresh = ClaimState::Fresh { attempt: 2 };
        expect_eq(format!("the second claim of {name:?}"), state, fresh)?;
        let completed = subject.item(name).complete(token).await?;
        expect_eq(format!("completing {name:?}"), completed, true)?;
    }
    Ok(())
}

async fn ids_of_any_form_are_taken_and_parked_unchanged(subject: Subject) -> Verdict {
    let mut names = hostile_names();
    for name in &names {
        let accepted = subject.item(name).accept(name.as_bytes()).await?;
        let what = format!("accepting {name:?}");
        expect_eq(what, accepted, AcceptState::Accepted)?;
    }
    names.sort_unstable();

    let token = Token::random();
    let taken = subject.take(token).await?;
    let mut taken_names = ids(&taken);
    taken_names.sort_unstable();
    expect_eq(
        "events to take",
        taken_names,
        names.iter().map(String::as_str).collect(),
    )?;
    for event in &taken {
        let what = format!("the body of {:?}", event.id.as_str());
        expect_body(what, &event.body, event.id.as_str().as_bytes())?;
    }

    for name in &names {
        let parked = subject.item(name).park(token, name).await?;
        expect_eq(format!("parking {name:?}"), parked, true)?;
    }
    let parked = subject.parked().await?;
    let parked_names: Vec<_> = parked.iter().map(|event| event.id.to_string()).collect();
    expect_eq("parked events", parked_names, names)?;
    for event in &parked {
        expect_eq("its reason", event.reason.as_str(), event.id.as_str())?;
    }
    Ok(())
}

async fn endpoints_are_compared_by_their_bytes(subject: Subject) -> Verdict {
    let token = Token::random();
    // The store may have entries of earlier runs, so the names of a run begin with a part that no other run has.
    let unique = &subject.endpoint[subject.endpoint.len() - 16..];
    let room = 255 - unique.len();
    let long = ["x", "y", " "].map(|end| format!("{}{end}", "x".repeat(room - 1)));
    let names = hostile_names().into_iter().filter(|name| name.len() < room);
    for name in names.chain(long) {
        let endpoint = subject.endpoint(&format!("{unique}{name}"));
        let item = endpoint.item("evt_1");
        let state = item.claim(token).await?;
        let what = format!("the first claim at {name:?}, after that at others");
        let is_first = matches!(state, ClaimState::Fresh { attempt: 1 });
        expect_eq(what, is_first, true)?;
        item.release(token, Duration::ZERO).await?;
        item.accept(name.as_bytes()).await?;
        let taken = endpoint.take(Token::random()).await?;
        expect_eq(
            format!("events to take at {name:?}"),
            ids(&taken),
            vec!["evt_1"],
        )?;
        expect_body("its body", &taken[0].body, name.as_bytes())?;
    }
    Ok(())
}

async fn an_id_with_control_characters_is_refused(_subject: Subject) -> Verdict {
    for id in ["a\0", "\0", "a\n", "\u{7f}", ""] {
        let is_refused = EventId::try_from(id).is_err();
        expect_eq(format!("the id {id:?} is refused"), is_refused, true)?;
    }
    Ok(())
}

cases! { BODIES, Nothing:
    an_empty_body_is_a_body,
    bodies_come_back_byte_for_byte,
    a_body_of_2_mb_comes_back,
    reasons_of_2000_bytes_and_any_characters_come_back,
}

async fn an_empty_body_is_a_body(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"").await?;
    let duplicate = item.accept(b"").await?;
    expect_eq("accepting again", duplicate, AcceptState::Duplicate)?;
    expect_eq("waiting", subject.backlog().await?.waiting, 1)?;

    let token = Token::random();
    let taken = subject.take(token).await?;

    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_body("its body", &taken[0].body, b"")?;
    item.park(token, "no").await?;
    let parked = subject.parked().await?;
    let body = parked.first().and_then(|event| event.body.as_deref());
    expect_eq("the parked body", body, Some(&b""[..]))
}

async fn bodies_come_back_byte_for_byte(subject: Subject) -> Verdict {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let bodies: [&[u8]; 7] = [
        &all_bytes,
        b"\0",
        b"\0\0\0",
        b"\\x41",
        b"a\0b'\"\\",
        b"\xff\xfe",
        b"  \r\n",
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let item = subject.item(&format!("evt_{number}"));
        item.accept(body).await?;

        let token = Token::random();
        let taken = subject.take(token).await?;

        expect_eq("events to take", taken.len(), 1)?;
        expect_body(format!("the body {body:?}"), &taken[0].body, body)?;
        item.park(token, "no").await?;
    }
    for (event, body) in subject.parked().await?.iter().zip(bodies) {
        let parked = event.body.as_deref().unwrap_or_default();
        expect_body(format!("the parked body {body:?}"), parked, body)?;
    }
    Ok(())
}

async fn a_body_of_2_mb_comes_back(subject: Subject) -> Verdict {
    let body: Vec<u8> = (0..2 * 1024 * 1024_u32)
        .map(|index| index.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    let item = subject.item("evt_1");
    let accepted = item.accept(&body).await?;
    expect_eq("accepting", accepted, AcceptState::Accepted)?;

    let token = Token::random();
    let taken = subject.take(token).await?;

    expect_eq("events to take", ids(&taken), vec!["evt_1"])?;
    expect_body("its body", &taken[0].body, &body)?;
    expect_eq("completing", item.complete(token).await?, true)
}

async fn reasons_of_2000_bytes_and_any_characters_come_back(subject: Subject) -> Verdict {
    let reasons = [
        String::new(),
        "it's \"quoted\" \\ `so` %s $1 ? {} \r\n\t end".to_owned(),
        "x".repeat(2_000),
        "\u{1f4e7}".repeat(500),
    ];
    for (number, reason) in reasons.iter().enumerate() {
        let item = subject.item(&format!("evt_{number}"));
        let token = Token::random();
        item.claim(token).await?;
        expect_eq("parking", item.park(token, reason).await?, true)?;
    }

    let parked = subject.parked().await?;

    let parked: Vec<_> = parked.into_iter().map(|event| event.reason).collect();
    expect_eq("the reasons", parked, reasons.to_vec())
}

cases! { LIMITS, Nothing:
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
