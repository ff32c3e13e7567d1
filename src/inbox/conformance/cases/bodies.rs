//! Bodies and reasons of any kind.

use super::super::case::cases;
use super::super::subject::{Subject, ids};
use super::super::verdict::{Verdict, expect_body, expect_eq};
use crate::inbox::store::AcceptState;
use crate::inbox::token::Token;

cases! { Nothing:
    an_empty_body_is_a_body,
    bodies_come_back_byte_for_byte,
    a_body_of_2_mb_comes_back,
    reasons_of_2000_bytes_and_any_characters_come_back,
}

async fn an_empty_body_is_a_body(subject: Subject) -> Verdict {
    let item = subject.item("evt_1");
    item.accept(b"").await?;
    let repeated = item.accept(b"").await?;
    expect_eq("accepting again", repeated, AcceptState::Repeated)?;
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
