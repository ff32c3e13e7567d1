//! Data that an application should not have: text that looks like a script, ids that are not unique.

use std::time::Duration;

use audience::mock::Fault;
use serde_json::{Value, json};

use super::tab::Page;
use super::{Receivers, get, send_mail, server_with};

#[test]
fn hostile_data_stays_text() {
    let hostile =
        "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";
    let receivers = Receivers::new();
    let server = server_with(json!({
        "topics": {hostile: true},
        "segments": {hostile: {"contacts": ["ada@example.com"]}},
        "contacts": [{
            "email": "ada@example.com", "first_name": hostile, "properties": {hostile: hostile}, "answers": {hostile: true},
        }],
    }));
    let receiver = receivers.start([500]);
    receivers.add(
        &server,
        "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
        &receiver,
    );
    receivers.block_on(async {
        send_mail(&server, "ada@example.com", hostile).await;
        server.send_event(json!({"type": "<img src=x>", "id": hostile, "data": {"to": hostile, "subject": [hostile]}})).await;
        server.send_event(json!({"type": "email.sent", "id": "__proto__", "data": null})).await;
        get(&server, "/contacts/%3Cscript%3E?x='%22<img>&toString=1").await;
    });
    server.fault(Fault::status(503).path(format!("/{hostile}")));
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    for view in ["events", "requests", "contacts", "mail", "audience"] {
        page.click(&format!(".views a[href='#{view}']"));
        page.wait_for(&format!(
            "document.querySelector('#view-{view} li, #view-{view} tr')"
        ));
        page.eval(
            "for (const details of document.querySelectorAll('main details')) details.open = true",
        );
        std::thread::sleep(Duration::from_millis(200));
        let injected =
            page.eval("document.querySelectorAll('img, main script, iframe, object').length");
        assert_eq!(injected, 0, "{view}");
    }
    page.click(".views a[href='#contacts']");
    page.wait_for_text("[data-list=contacts] .who", hostile);
    let shown = page.text("[data-list=contacts] .who");
    assert!(shown.starts_with(hostile), "{shown}");
    assert_eq!(page.eval("document.title"), Value::from("audience-mock"));
    page.assert_no_problems();
}

/// Returns the texts of the page's own words whose characters are not in their order from left to right.
const REORDERED: &str = "(() => {
    const found = [];
    const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        if (text.parentElement.closest('bdi') || !text.parentElement.checkVisibility()) continue;
        const range = document.createRange();
        let last;
        for (let index = 0; index < text.data.length; index++) {
            range.setStart(text, index);
            range.setEnd(text, index + 1);
            const [box] = range.getClientRects();
            if (!box || box.width === 0) continue;
            if (last && Math.abs(last.top - box.top) < 2 && box.left < last.left) { found.push(text.data); break; }
            last = box;
        }
    }
    return found;
})()";

#[test]
fn text_of_any_direction_does_not_reorder_what_is_beside_it() {
    let receivers = Receivers::new();
    let receiver = receivers.start([500]);
    for text in ["مرحبا بالعالم", "\u{202e}SALE", "שלום 5"] {
        let server = server_with(json!({
            "topics": {text: true},
            "segments": {text: {"rule": {"match_": "all", "conditions": [{"field": "property", "key": text, "op": "is", "value": text}]}}},
            "contacts": [{"email": "ada@example.com", "first_name": text, "properties": {text: 5}, "answers": {text: true}}],
        }));
        receivers.add(
            &server,
            &percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
                .to_string(),
            &receiver,
        );
        receivers.block_on(async {
            send_mail(&server, "ada@example.com", text).await;
            server.send_event(json!({"type": "email.opened", "id": text, "data": {"to": text, "subject": text}})).await;
            get(&server, &format!("/contacts/{text}?{text}=1")).await;
        });
        let Some(mut page) = Page::open(&server) else {
            return;
        };

        for view in ["events", "requests", "contacts", "mail", "audience"] {
            page.click(&format!(".views a[href='#{view}']"));
            page.wait_for(&format!("document.querySelector('#view-{view} li')"));
            for _ in 0..2 {
                page.eval("for (const details of document.querySelectorAll('main details')) details.open = true");
                page.wait_for("[...document.querySelectorAll('details[open]')].every((details) => details.children[1]?.childElementCount)");
            }
            page.wait_for("![...document.querySelectorAll('.loaded')].some((place) => place.innerText === 'Loading')");
            assert_eq!(page.eval(REORDERED), json!([]), "{text:?} in {view}");
        }
        page.assert_no_problems();
    }
}

#[test]
fn events_with_the_same_id_are_each_shown_once() {
    let server = server_with(json!({}));
    let receivers = Receivers::new();
    let send = |id: &str, to: &str| {
        let event = json!({"type": "email.opened", "id": id, "data": {"to": to}});
        receivers.block_on(server.send_event(event));
    };
    send("evt_same", "ada@example.com");
    send("evt_same", "grace@example.com");
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    page.wait_for("document.querySelectorAll('[data-list=events] > li').length === 2");

    for number in 1..=3 {
        send(&format!("evt_{number}"), "alan@example.com");
        page.wait_for_text("[data-list=events] > li", &format!("evt_{number}"));
        let shown = page.eval("document.querySelectorAll('[data-list=events] > li').length");
        assert_eq!(shown, 2 + number);
    }
    let text = page.text("[data-list=events]");
    for to in ["ada@example.com", "grace@example.com"] {
        assert_eq!(text.matches(to).count(), 1, "{to}");
    }
    page.assert_no_problems();
}
