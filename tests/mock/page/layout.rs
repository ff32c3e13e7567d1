//! The page on a phone, in the dark, and with the keyboard alone.

use std::time::Duration;

use serde_json::json;

use super::tab::Page;
use super::{Receivers, get, send_mail, server_with};

const VIEWS: [&str; 6] = [
    "events", "requests", "contacts", "mail", "audience", "controls",
];

#[test]
fn nothing_is_wider_than_a_phone_in_light_and_dark() {
    let long = "a".repeat(300);
    let receivers = Receivers::new();
    let receiver = receivers.start([500, 500, 500, 500]);
    let server = server_with(json!({
        "topics": {long.clone(): true, "news": false},
        "segments": {long.clone(): {"rule": {"match_": "all", "conditions": []}}},
        "contacts": [{"email": format!("{}@example.com", "b".repeat(60)), "first_name": long, "properties": {"long": long}}],
    }));
    receivers.add(&server, &"endpoint".repeat(20), &receiver);
    receivers.block_on(async {
        send_mail(&server, "bounce@example.com", &long).await;
        get(&server, &format!("/contacts/{long}?{long}={long}")).await;
        server.advance(Duration::from_secs(60)).await;
    });
    let Some(mut page) = Page::blank(&server) else {
        return;
    };
    for (width, is_dark) in [(390, false), (320, true), (800, true), (1280, true)] {
        page.viewport(width, 844);
        if is_dark {
            page.dark();
        }
        for view in VIEWS {
            page.go(&format!("#{view}"));
            page.wait_for("document.querySelector('#version').textContent !== 'audience-mock'");
            page.eval("for (const details of document.querySelectorAll('main details')) details.open = true");
            std::thread::sleep(Duration::from_millis(100));
            let overflow = page.eval("document.documentElement.scrollWidth - innerWidth");
            assert!(
                overflow.as_i64().unwrap() <= 0,
                "{view} at {width}: {overflow} px too wide"
            );
        }
    }
    page.assert_no_problems();
}

#[test]
fn the_page_is_dark_if_the_system_is() {
    let server = server_with(json!({}));
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    let colors = "['backgroundColor', 'color'].map((name) => Number(/\\d+/.exec(getComputedStyle(document.body)[name])[0]))";
    let light = page.eval(colors);
    page.dark();
    let dark = page.eval(colors);

    assert!(
        light[0].as_i64() > Some(200) && light[1].as_i64() < Some(60),
        "{light}"
    );
    assert!(
        dark[0].as_i64() < Some(60) && dark[1].as_i64() > Some(200),
        "{dark}"
    );
}

#[test]
fn the_keyboard_alone_reaches_and_presses_every_button() {
    let server = server_with(json!({"contacts": [{"email": "ada@example.com"}]}));
    let Some(mut page) = Page::open_at(&server, "#contacts") else {
        return;
    };
    page.wait_for("document.querySelectorAll('[data-list=contacts] > li summary').length === 1");

    let mut order = Vec::new();
    for _ in 0..40 {
        page.press("Tab");
        let name = page.eval(
            "(() => { const at = document.activeElement; return at.id || at.name || at.dataset.advance || at.hash || at.localName; })()",
        );
        let has_outline = page.eval(
            "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'",
        );
        let name = name.as_str().unwrap().to_owned();
        assert_eq!(has_outline, true, "the focus on {name} is not visible");
        if name == "body" {
            break;
        }
        order.push(name);
    }
    let expected = [
        "skip",
        "open-event",
        "#events",
        "#contacts",
        "query",
        "consent",
        "segment-filter",
        "summary",
        "60",
        "3600",
        "18000",
        "amount",
        "unit",
        "button",
        "open-fault",
        "open-delivery-fault",
        "open-reset",
    ];
    let mut rest = order.iter();
    for name in expected {
        assert!(rest.any(|found| found == name), "{name} in {order:?}");
    }

    page.eval("document.querySelector('[data-advance=\"60\"]').focus()");
    let before = server.now().as_unix();
    page.press("Enter");
    page.wait_for_text("#message", "The clock moved 1 min forward.");
    assert_eq!(server.now().as_unix(), before + 60);
    page.eval("document.getElementById('open-reset').focus()");
    page.press("Enter");
    page.wait_for("document.getElementById('reset-dialog').open");
    page.press("Escape");
    page.wait_for("!document.getElementById('reset-dialog').open && document.activeElement.id === 'open-reset'");
    assert_eq!(server.contact_count(), 1);
    page.eval("document.querySelector('[data-list=contacts] summary').focus()");
    page.press("Enter");
    page.wait_for_text("[data-list=contacts] .inside", "con_00000001");
}

#[test]
fn landmarks_fields_and_messages_have_names() {
    let server = server_with(json!({}));
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    let unnamed = page.eval(
        "[...document.querySelectorAll('input, select, button, nav, aside, section, dialog, [role=search]')].filter((element) => \
         !(element.labels?.length || element.getAttribute('aria-label') || element.textContent.trim() && element.localName === 'button' \
         || document.getElementById(element.getAttribute('aria-labelledby')))).map((element) => element.outerHTML.slice(0, 120))",
    );
    assert_eq!(unnamed, json!([]));
    assert_eq!(
        page.eval("document.querySelectorAll('header, nav, main, aside, footer').length"),
        5
    );
    assert_eq!(page.eval("document.documentElement.lang"), "en");
    assert_eq!(
        page.eval("document.getElementById('message').getAttribute('aria-live')"),
        "polite"
    );
    let repeated = page.eval(
        "[...document.querySelectorAll('[id]')].map(({ id }) => id).filter((id, index, all) => all.indexOf(id) !== index)",
    );
    assert_eq!(repeated, json!([]));
}
