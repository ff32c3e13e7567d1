//! What the page shows of a mock, and what its buttons do.

use std::time::Duration;

use audience::mock::{DeliveryFault, Fault, MockServer};
use serde_json::json;
use support::free_port;

use super::tab::Page;
use super::{Receivers, START, get, send_mail, server_with};
use crate::server::start_on;

#[test]
fn the_page_loads_without_errors_and_asks_nobody_but_the_mock() {
    let server =
        server_with(json!({"topics": {"news": true}, "contacts": [{"email": "ada@example.com"}]}));
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    for view in ["requests", "contacts", "mail", "audience", "events"] {
        page.click(&format!(".views a[href='#{view}']"));
        page.wait_for(&format!("!document.getElementById('view-{view}').hidden"));
        page.wait_for(&format!(
            "document.querySelector('.views [aria-current]').hash === '#{view}'"
        ));
    }

    page.wait_for_text("[data-list=events]", "No events yet");
    page.assert_no_problems();
    assert!(server.requests().is_empty(), "the page is not recorded");
}

#[test]
fn contacts_are_shown_with_both_layers_of_consent() {
    let server = server_with(json!({
        "topics": {"news": true, "offers": false},
        "contacts": [
            {"email": "ada@example.com", "first_name": "Ada", "answers": {"news": false}},
            {"email": "bob@example.com", "unsubscribed": true, "unsubscribe_reason": "preferences"},
            {"email": "eve@example.com", "unsubscribe_reason": "complaint", "suppressed": true},
        ],
    }));
    let Some(mut page) = Page::open_at(&server, "#contacts") else {
        return;
    };

    page.wait_for("document.querySelectorAll('[data-list=contacts] > li').length === 3");
    let rows: Vec<String> = (1..=3)
        .map(|row| {
            page.text(&format!(
                "[data-list=contacts] > li:nth-child({row}) summary"
            ))
        })
        .collect();
    for (row, texts) in rows.iter().zip([
        &[
            "Ada",
            "ada@example.com",
            "Reachable",
            "news\n: no",
            "1 by default",
        ][..],
        &["bob@example.com", "Opted out · preferences"],
        &["eve@example.com", "Reported spam", "Suppressed"],
    ]) {
        for text in texts {
            assert!(row.contains(text), "{text} in {row}");
        }
    }
    page.click("[data-list=contacts] > li:first-child summary");
    page.wait_for_text("[data-list=contacts] .inside", "no, the contact's answer");
    page.wait_for_text("[data-list=contacts] .inside", "no, the topic's default");
    page.assert_no_problems();
}

#[test]
fn a_row_that_is_opened_again_shows_what_has_changed_since() {
    let server = server_with(json!({"contacts": [{"email": "ada@example.com"}]}));
    let Some(mut page) = Page::open_at(&server, "#contacts") else {
        return;
    };
    let summary = "[data-list=contacts] > li summary";
    page.click(summary);
    page.wait_for_text("[data-list=contacts] .inside", "not opted out");
    page.click(summary);
    page.wait_for("!document.querySelector('[data-list=contacts] details').open");

    server.report_spam("ada@example.com");
    page.wait_for_text(summary, "Reported spam");
    page.click(summary);

    page.wait_for_text(
        "[data-list=contacts] .inside",
        "opted out, reason complaint",
    );
    page.assert_no_problems();
}

#[test]
fn contacts_are_filtered_by_the_server() {
    let server = server_with(json!({
        "segments": {"seg_1": {"contacts": ["contact7@example.com"]}},
        "contacts": (0..120).map(|number| json!({
            "email": format!("contact{number}@example.com"), "unsubscribed": number == 5,
        })).collect::<Vec<_>>(),
    }));
    let Some(mut page) = Page::open_at(&server, "#contacts") else {
        return;
    };
    let count = |page: &mut Page, count: usize| {
        page.wait_for(&format!(
            "document.querySelectorAll('[data-list=contacts] > li:not(.empty)').length === {count}"
        ));
    };

    count(&mut page, 50);
    page.click("#view-contacts .more button");
    count(&mut page, 100);
    page.fill("[data-filters=contacts] [name=query]", "CONTACT11");
    count(&mut page, 11);
    page.fill("[data-filters=contacts] [name=query]", "");
    page.fill("[data-filters=contacts] [name=consent]", "unsubscribed");
    count(&mut page, 1);
    page.fill("[data-filters=contacts] [name=segment_id]", "seg_1");
    count(&mut page, 0);
    page.wait_for_text("[data-list=contacts]", "Nothing matches");
    page.fill("[data-filters=contacts] [name=consent]", "");
    count(&mut page, 1);
    page.wait_for_text("[data-list=contacts]", "contact7@example.com");
    page.assert_no_problems();
}

#[test]
fn a_button_moves_the_clock_and_the_retry_appears() {
    let receivers = Receivers::new();
    let receiver = receivers.start([500, 200]);
    let server = server_with(json!({}));
    receivers.add(&server, "crm", &receiver);
    let event = json!({"type": "email.bounced", "data": {"to": "ada@example.com"}});
    receivers.block_on(server.send_event(event));
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    page.wait_for_text("[data-list=events]", "Being delivered");
    wait_for_attempts(&mut page, &["500", "next"]);
    page.keep_messages();

    page.click("[data-advance='60']");

    page.wait_for_text("[data-list=events]", "Delivered");
    wait_for_attempts(&mut page, &["500", "200"]);
    assert_eq!(server.now().as_unix(), START + 60);
    page.wait_for_text("#clock-time", "22:14:20");
    page.wait_until_said("The clock moved 1 min forward.");
    page.click("[data-advance='18000']");
    page.wait_for_text("#clock-time", "03:14:20");
    page.fill("#advance [name=amount]", "2");
    page.fill("#advance [name=unit]", "86400");
    page.click("#advance button");
    page.wait_for_text("#clock-date", "2023-11-17");
    page.assert_no_problems();
}

/// Waits until the first timeline has attempts with these results.
fn wait_for_attempts(page: &mut Page, results: &[&str]) {
    let expected = json!(results);
    page.wait_for(&format!(
        "JSON.stringify([...(document.querySelector('.track')?.querySelectorAll('strong') ?? [])]
            .map((result) => result.innerText)) === JSON.stringify({expected})"
    ));
}

#[test]
fn a_redelivery_does_not_hide_the_next_automatic_attempt() {
    let receivers = Receivers::new();
    let receiver = receivers.start([500; 4]);
    let server = server_with(json!({}));
    receivers.add(&server, "crm", &receiver);
    receivers.block_on(server.send_event(json!({"type": "email.opened"})));
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    let later = |page: &mut Page, count: usize| {
        page.wait_for(&format!(
            "document.querySelectorAll('.track .later').length === {count}"
        ));
    };
    wait_for_attempts(&mut page, &["500", "next"]);
    later(&mut page, 8);

    page.click(".event > details > summary");
    page.click(".event .inside > div > button");

    wait_for_attempts(&mut page, &["500", "500", "next"]);
    later(&mut page, 8);
    page.click("[data-advance='60']");
    wait_for_attempts(&mut page, &["500", "500", "500", "next"]);
    later(&mut page, 7);
    page.assert_no_problems();
}

#[test]
fn ten_attempts_are_a_timeline_that_shows_which_signatures_are_valid() {
    let receivers = Receivers::new();
    let receiver = receivers.start([500; 10]);
    let server = server_with(json!({}));
    receivers.add(&server, "crm", &receiver);
    server.delivery_fault(DeliveryFault::tampered());
    server.delivery_fault(DeliveryFault::stale());
    receivers.block_on(async {
        server.send_event(json!({"type": "email.opened"})).await;
        server.advance(Duration::from_secs(5 * 3_600)).await;
    });
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    page.wait_for_text("[data-list=events]", "Failed");
    wait_for_attempts(&mut page, &["500"; 10]);
    let marks =
        page.eval("[...document.querySelectorAll('.track li')].map((mark) => mark.textContent)");
    let marks: Vec<String> = serde_json::from_value(marks).unwrap();
    assert!(
        marks[0].contains("signature not valid: the signature does not match"),
        "{marks:?}"
    );
    assert!(
        marks[1].contains("signature not valid: the delivery was signed 301 s ago"),
        "{marks:?}"
    );
    assert!(
        marks[2..]
            .iter()
            .all(|mark| mark.contains("signature valid")),
        "{marks:?}"
    );
    page.click(".event summary");
    page.wait_for_text(".event .attempts", "Next attempt after 35 s");
    page.click(".event .inside button");
    page.wait_for_text("[data-list=events]", "Delivered");
    page.assert_no_problems();
}

#[test]
fn what_happens_appears_while_the_page_is_open() {
    let server = server_with(json!({}));
    let receivers = Receivers::new();
    let Some(mut page) = Page::open_at(&server, "#requests") else {
        return;
    };
    page.wait_for_text("[data-list=requests]", "No requests yet");

    receivers.block_on(get(&server, "/contacts/nobody%40example.com"));

    page.wait_for_text(
        "[data-list=requests]",
        "there is no contact `nobody@example.com`",
    );
    page.wait_for_text("[data-list=requests] .pill", "404");
    // A row that is open stays open, and keeps the focus, while others wait to be shown above it.
    page.click("[data-list=requests] summary");
    page.eval("document.querySelector('[data-list=requests] summary').focus()");
    receivers.block_on(get(&server, "/contacts"));
    page.wait_for_text("#view-requests .new button", "1 new");
    assert_eq!(
        page.eval("document.activeElement.closest('li').parentElement.dataset.list"),
        "requests"
    );
    page.click("#view-requests .new button");
    page.wait_for("document.querySelectorAll('[data-list=requests] > li').length === 2");
    assert_eq!(
        page.eval("document.querySelector('[data-list=requests] > li:last-child details').open"),
        true
    );
    page.fill("[data-filters=requests] [name=status]", "refused");
    page.wait_for("document.querySelectorAll('[data-list=requests] > li').length === 1");
    server.clear_requests();
    page.wait_for_text("[data-list=requests]", "Nothing matches");
    page.assert_no_problems();
}

#[test]
fn mail_topics_and_segments_are_shown() {
    let server = server_with(json!({
        "topics": {"news": true},
        "segments": {
            "seg_list": {"contacts": ["ada@example.com"]},
            "seg_rule": {"rule": {"match_": "any", "conditions": []}},
        },
    }));
    Receivers::new().block_on(send_mail(&server, "bounce@example.com", "Welcome aboard"));
    let Some(mut page) = Page::open_at(&server, "#mail") else {
        return;
    };

    page.wait_for_text("[data-list=mail]", "Welcome aboard");
    page.wait_for_text("[data-list=mail]", "bounced");
    page.click("[data-list=mail] summary");
    page.click("[data-list=mail] .inside button");
    page.wait_for("document.querySelectorAll('[data-list=events] > li').length === 2");
    page.wait_for_text("[data-list=events]", "No endpoint");
    page.click(".views a[href='#audience']");
    for text in [
        "news",
        "seg_list",
        "1 listed: ada@example.com",
        r#""match_":"any""#,
    ] {
        page.wait_for_text("#view-audience", text);
    }
    page.assert_no_problems();
}

#[test]
fn faults_are_added_shown_and_removed() {
    let server = server_with(json!({}));
    let receivers = Receivers::new();
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    page.click("#open-fault");
    page.fill("#fault-dialog [name=path]", "/contacts*");
    page.fill("#fault-dialog [name=times]", "2");
    page.click("#fault-dialog .primary");
    page.wait_for_text("#faults", "status 503 for /contacts*");
    page.wait_for_text("#faults", "2 left");
    assert_eq!(receivers.block_on(get(&server, "/contacts")), 503);
    page.wait_for_text("#faults", "1 left");

    page.click("#open-delivery-fault");
    page.fill("#delivery-fault-dialog [name=kind]", "other_secret");
    page.click("#delivery-fault-dialog .primary");
    page.wait_for_text("#faults", "other secret");
    page.click("#faults li:first-child button[aria-label^='Remove']");
    page.wait_for("document.querySelectorAll('#faults li').length === 1");
    page.wait_for_text("#faults", "other secret");

    page.click("#clear-faults");
    page.wait_for_text("#faults", "None. Everything works.");
    assert_eq!(receivers.block_on(get(&server, "/contacts")), 200);

    page.click("#open-fault");
    page.fill("#fault-dialog [name=every]", "2");
    page.click("#fault-dialog .primary");
    page.wait_for_text("#faults", "1 request in 2");
    assert_eq!(receivers.block_on(get(&server, "/contacts")), 200);
    assert_eq!(receivers.block_on(get(&server, "/contacts")), 503);

    server.fault(Fault::garbage());
    page.wait_for_text("#faults", "not HTTP");
    page.click("#open-reset");
    page.click("#reset-dialog .primary");
    page.wait_for_text("#faults", "None. Everything works.");
    assert!(server.requests().is_empty());
    page.assert_no_problems();
}

#[test]
fn an_event_can_be_sent_from_the_page() {
    let server = server_with(json!({}));
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    page.click("#open-event");
    page.fill("#event-dialog [name=type]", "email.complained");
    page.fill("#event-dialog [name=to]", "ada@example.com");
    page.click("#event-dialog .primary");

    page.wait_for_text("[data-list=events]", "email.complained");
    page.wait_for_text("[data-list=events]", "ada@example.com");
    page.fill("[data-filters=events] [name=type]", "email.sent");
    page.wait_for_text("[data-list=events]", "Nothing matches");
    page.assert_no_problems();
}

#[test]
fn the_recipient_of_received_mail_is_a_list_and_not_its_sender() {
    let receivers = Receivers::new();
    let receiver = receivers.start([]);
    let server = server_with(json!({}));
    receivers.add(&server, "crm", &receiver);
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    page.click("#open-event");
    page.fill("#event-dialog [name=type]", "email.received");
    page.fill("#event-dialog [name=to]", "support@inbound.example.com");
    page.click("#event-dialog .primary");
    page.wait_for_text("[data-list=events]", "Delivered");

    let data = &receiver.events()[0]["data"];
    assert_eq!(data["to"], json!(["support@inbound.example.com"]));
    assert_ne!(data["from"], "support@inbound.example.com");
    page.assert_no_problems();
}

#[test]
fn a_page_shows_that_its_mock_has_stopped_and_goes_on_with_the_next_one() {
    let receivers = Receivers::new();
    let (port, builder) = (free_port(), MockServer::builder());
    let server = receivers.block_on(start_on(port, &builder));
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    drop(server);
    page.wait_for_text("#live", "Not connected");

    let seed = json!({"contacts": [{"email": "ada@example.com"}]});
    let _next = receivers.block_on(start_on(port, &builder.seed(seed)));
    page.wait_for_text("#live", "Live");
    page.wait_for_text("[data-count=contacts]", "1");
}

#[test]
fn filters_survive_a_reload_and_the_way_back() {
    let server = server_with(json!({
        "segments": {"seg_1": {"contacts": ["ada@example.com", "bob@example.com"]}},
        "contacts": [{"email": "ada@example.com"}, {"email": "bob@example.com"}, {"email": "eve@example.com", "unsubscribed": true}],
    }));
    let Some(mut page) = Page::open_at(&server, "#contacts") else {
        return;
    };
    let shows = |page: &mut Page, addresses: &[&str]| {
        let shown = "[...document.querySelectorAll('[data-list=contacts] > li .name')].map((name) => name.textContent).join()";
        page.wait_for(&format!("{shown} === '{}'", addresses.join(",")));
    };

    page.fill("[data-filters=contacts] [name=query]", "ada & b?#");
    page.wait_for_text("[data-list=contacts]", "Nothing matches");
    page.reload();
    page.wait_for_text("[data-list=contacts]", "Nothing matches");
    assert_eq!(
        page.eval("document.querySelector('[data-filters=contacts] [name=query]').value"),
        "ada & b?#"
    );

    page.fill("[data-filters=contacts] [name=query]", "A@");
    page.wait_for("document.querySelector('#segment-filter').options.length === 2");
    page.fill("[data-filters=contacts] [name=segment_id]", "seg_1");
    shows(&mut page, &["ada@example.com"]);
    page.reload();
    shows(&mut page, &["ada@example.com"]);
    // The page fills the list of segments after the contacts.
    page.wait_for("document.querySelector('#segment-filter').value === 'seg_1'");

    page.click(".views a[href='#audience']");
    page.click("#segments button");
    shows(&mut page, &["ada@example.com", "bob@example.com"]);
    page.eval("history.go(-2)");
    shows(&mut page, &["ada@example.com"]);
    assert_eq!(
        page.eval("document.querySelector('[data-filters=contacts] [name=query]').value"),
        "A@"
    );
    // A view that was left keeps its filters.
    page.click(".views [data-view=mail]");
    page.click(".views [data-view=contacts]");
    shows(&mut page, &["ada@example.com"]);
    page.assert_no_problems();
}

#[test]
fn an_address_with_filters_that_do_not_exist_shows_everything() {
    let server = server_with(json!({"contacts": [{"email": "ada@example.com"}]}));
    let Some(mut page) = Page::open_at(&server, "#contacts?consent=odd&constructor=1") else {
        return;
    };

    page.wait_for_text("[data-list=contacts]", "ada@example.com");
    page.assert_no_problems();
}

#[test]
fn an_event_without_an_endpoint_is_not_said_to_be_sent() {
    let server = server_with(json!({}));
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    page.keep_messages();
    page.click("#open-event");
    page.click("#event-dialog .primary");

    page.wait_until_said("There is no endpoint to deliver it to.");
}

#[test]
fn a_redelivery_is_not_said_to_be_a_success() {
    let receivers = Receivers::new();
    let receiver = receivers.start([500]);
    let server = server_with(json!({}));
    receivers.block_on(server.send_event(json!({"type": "email.opened"})));
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    page.keep_messages();
    page.click(".event > details > summary");

    page.click(".event .inside > div > button");
    page.wait_until_said("evt_1 was not sent. There is no endpoint to deliver it to.");
    assert!(server.attempts().is_empty());

    receivers.add(&server, "crm", &receiver);
    page.wait_for_text("#endpoints", "crm");
    page.click(".event .inside > div > button");
    page.wait_until_said("evt_1 was sent again. Its attempts show the result.");
    page.wait_for_text(".attempt", "500");
    assert_eq!(page.eval("said.includes('delivered')"), false);
    page.assert_no_problems();
}
