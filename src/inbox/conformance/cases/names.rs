//! Ids and endpoints that look alike, or like something else.

use std::time::Duration;

use super::super::case::cases;
use super::super::subject::{Subject, ids};
use super::super::verdict::{Verdict, expect_body, expect_eq};
use crate::inbox::store::{AcceptState, ClaimState};
use crate::inbox::token::Token;
use crate::webhooks::EventId;

cases! { Nothing:
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
        let what = format!("the first claim of {name:?}, after that of others");
        // The token is the same for all: a store that confuses two would show the same claim, too.
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
    // The store keeps what earlier runs left, so the names of a run begin with something of its own.
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
