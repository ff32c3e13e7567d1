//! The page on a phone, in the dark, and with the keyboard alone.

use std::time::Duration;

use audience::mock::MockServer;
use serde_json::json;

use super::tab::Page;
use super::{Receivers, get, send_mail, server_with};
use crate::receiver::Receiver;

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

/// Returns the short words that are broken, each with the text it stands in.
const BROKEN_WORDS: &str = r"(() => {
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        const parent = text.parentElement;
        if (parent.closest('script, style, pre') || !parent.checkVisibility()) continue;
        for (const { 0: word, index } of text.data.matchAll(/[^\s-]+/g)) {
            if (word.length > 14) continue;
            const range = document.createRange();
            range.setStart(text, index);
            range.setEnd(text, index + word.length);
            const lines = new Set([...range.getClientRects()].filter(({ width }) => width > 0).map(({ top }) => Math.round(top)));
            if (lines.size > 1) found.push(`${word} in ${text.data.slice(0, 60)}`);
        }
    }
    return found;
})()";

/// Starts a mock with long and with ordinary data, and its receivers.
fn server_with_long_data(receivers: &Receivers) -> (MockServer, [Receiver; 2]) {
    let topic = "product announcements and release notes ".repeat(3);
    let server = server_with(json!({
        "topics": {topic.trim(): false, "a".repeat(120): true, "news": true},
        "segments": {"seg_1": {"contacts": ["ada@example.com", "grace@example.com"]}, "seg_pro": {"rule": {"match_": "all", "conditions": []}},
            "s".repeat(120): {"contacts": ["ada@example.com"]}},
        "contacts": [
            {"email": format!("{}@example.com", "b".repeat(64))},
            {"email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace", "answers": {topic.trim(): true, "a".repeat(120): false}},
            {"email": "katherine@example.com", "first_name": "Katherine", "last_name": "Johnson", "unsubscribe_reason": "complaint", "suppressed": true},
        ],
    }));
    let running = [receivers.start([200, 500]), receivers.start([500; 10])];
    receivers.add(&server, "crm", &running[0]);
    receivers.add(&server, &"statistics-warehouse-".repeat(10), &running[1]);
    receivers.block_on(async {
        send_mail(&server, "bounce@example.com", "Your invoice for November").await;
        server.advance(Duration::from_secs(40_000)).await;
        get(&server, "/contacts/nobody%40example.com").await;
        get(&server, &format!("/contacts/{}", "n".repeat(3_000))).await;
    });
    (server, running)
}

#[test]
fn no_short_word_is_broken_and_every_answer_is_on_the_screen() {
    let receivers = Receivers::new();
    let (server, _running) = server_with_long_data(&receivers);
    let Some(mut page) = Page::blank(&server) else {
        return;
    };
    for width in [1400, 900, 390, 320] {
        page.viewport(width, 900);
        for view in VIEWS {
            page.go(&format!("#{view}"));
            if view != "controls" {
                page.wait_for(&format!("document.querySelector('#view-{view} li')"));
            }
            for _ in 0..2 {
                page.eval("for (const details of document.querySelectorAll('main details')) details.open = true");
                page.wait_for("[...document.querySelectorAll('details[open]')].every((details) => details.children[1]?.childElementCount)");
            }
            page.wait_for("![...document.querySelectorAll('.loaded')].some((place) => place.innerText === 'Loading')");
            assert_eq!(page.eval(BROKEN_WORDS), json!([]), "{view} at {width}");
            let outside = page.eval(
                "[...document.querySelectorAll('main .pill')].filter((pill) => pill.checkVisibility()).filter((pill) => {
                    const { left, right, height } = pill.getBoundingClientRect();
                    return left < 0 || right > innerWidth || height > 30 || pill.lastChild.nodeType === 3 && right < endOf(pill.lastChild);
                    function endOf(text) { const range = document.createRange(); range.selectNode(text); return range.getBoundingClientRect().right; }
                }).map((pill) => pill.textContent)",
            );
            assert_eq!(outside, json!([]), "{view} at {width}");
        }
    }
    page.go("#audience");
    page.wait_for_text("#topics li:nth-child(3)", "no by default");
    page.go("#contacts");
    let answers = page
        .eval("[...document.querySelectorAll('.topics .pill')].map((pill) => pill.lastChild.data)");
    assert!(
        answers.as_array().unwrap().contains(&json!(": yes")),
        "{answers}"
    );
}

#[test]
fn long_ids_and_addresses_are_short_until_someone_wants_them_whole() {
    let (id, to) = (
        format!("evt_{}", "i".repeat(3_000)),
        format!("{}@example.com", "r".repeat(10_000)),
    );
    let address = format!("{}@{}.example.com", "b".repeat(64), "c".repeat(60));
    let receivers = Receivers::new();
    let receiver = receivers.start([]);
    let server = server_with(json!({"contacts": [{"email": address}]}));
    let endpoint = "endpoint-".repeat(40);
    receivers.add(&server, &endpoint, &receiver);
    let event = json!({"type": "email.opened", "id": id, "data": {"to": to, "subject": to}});
    receivers.block_on(server.send_event(event));
    let Some(mut page) = Page::blank(&server) else {
        return;
    };
    for width in [1400, 390] {
        page.viewport(width, 844);
        page.go("#events");
        page.reload();
        page.wait_for("document.querySelector('.event')");
        let height = page.eval("document.querySelector('.event').offsetHeight");
        assert!(height.as_i64() < Some(320), "{height} at {width}");

        page.click(".event > details > summary");
        page.wait_for("document.querySelector('.event pre')");
        let shown = page
            .eval("document.querySelector('.event > details > .inside > .part pre').textContent");
        for whole in [&id, &to] {
            assert!(shown.as_str().unwrap().contains(whole.as_str()));
        }
        let height = page.eval("document.documentElement.scrollHeight");
        assert!(height.as_i64() < Some(1_600), "{height} at {width}");

        page.go("#contacts");
        page.click("[data-list=contacts] summary");
        page.wait_for_text("[data-list=contacts] .inside", &address);
    }
    page.go("#controls");
    let height = "document.querySelector('#endpoints b').offsetHeight";
    let clamped = page.eval(height).as_i64();
    page.click("#endpoints button");
    assert!(page.eval(height).as_i64() > clamped.map(|height| height * 2));
    assert_eq!(page.text("#endpoints b"), endpoint);
    assert_eq!(
        page.eval("document.querySelector('#endpoints button').getAttribute('aria-expanded')"),
        "true"
    );
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
    page.keep_messages();
    page.press("Enter");
    page.wait_until_said("The clock moved 1 min forward.");
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
