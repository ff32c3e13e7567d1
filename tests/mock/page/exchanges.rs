//! What a request got as its response, and what an attempt sent and received.

use audience::mock::{DeliveryFault, Fault, MockServer};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

use super::tab::Page;
use super::{Receivers, get, server_with};
use crate::receiver::SECRET;

#[test]
fn a_request_shows_the_headers_and_the_body_of_its_response() {
    let receivers = Receivers::new();
    let server = server_with(json!({"contacts": [{"email": "ada@example.com"}]}));
    receivers.block_on(get(&server, "/contacts/ada%40example.com"));
    server.fault(Fault::status(503).retry_after(7));
    receivers.block_on(get(&server, "/contacts"));
    let Some(mut page) = Page::open_at(&server, "#requests") else {
        return;
    };

    page.click("[data-list=requests] > li:nth-child(2) summary");
    let response = "[data-list=requests] > li:nth-child(2) .part:nth-child(1)";
    for text in [
        "Status 200",
        "application/json",
        r#""email": "ada@example.com""#,
    ] {
        page.wait_for_text(response, text);
    }
    page.click("[data-list=requests] > li:nth-child(1) summary");
    let response = "[data-list=requests] > li:nth-child(1) .part:nth-child(2)";
    for text in [
        "Status 503",
        "retry-after\n7",
        r#""code": "service_unavailable""#,
    ] {
        page.wait_for_text(response, text);
    }
    page.assert_no_problems();
}

/// Starts a receiver that refuses every delivery with a reason.
fn refusing_receiver() -> MockServer {
    let receiver = MockServer::builder().start_blocking();
    receiver.fault(Fault::status(401).body("the signature does not match"));
    receiver
}

/// Returns the value that the page shows for a header of the open attempt.
fn header(page: &mut Page, name: &str) -> String {
    let value = page.eval(&format!(
        "[...document.querySelectorAll('.attempt dt')].find((term) => term.textContent === '{name}')?.nextSibling.textContent ?? ''"
    ));
    value.as_str().unwrap().to_owned()
}

#[test]
fn an_attempt_shows_what_was_signed_what_was_sent_and_what_came_back() {
    let receivers = Receivers::new();
    let receiver = refusing_receiver();
    let server = server_with(json!({}));
    server.webhook_endpoint(format!("{}/hook", receiver.url()), SECRET);
    server.delivery_fault(DeliveryFault::tampered());
    receivers.block_on(server.send_event(
        json!({"type": "email.opened", "data": {"to": "ada@example.com", "subject": "مرحبا"}}),
    ));
    let Some(mut page) = Page::open(&server) else {
        return;
    };

    page.click(".event > details > summary");
    page.click(".attempt summary");
    page.wait_for_text(".attempt .inside", "Signed bytes");

    let signed = page.eval("document.querySelectorAll('.attempt pre')[0].textContent");
    let sent = page.eval("document.querySelectorAll('.attempt pre')[1].textContent");
    let delivery = &receiver.requests()[0];
    assert_eq!(sent, String::from_utf8_lossy(&delivery.body).as_ref());
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(signed.as_str().unwrap().as_bytes());
    let signature = header(&mut page, "webhook-signature");
    assert_eq!(hex::encode(mac.finalize().into_bytes()), signature);
    for (name, value) in &delivery.headers {
        assert_eq!(&header(&mut page, name), value, "{name}");
    }
    let text = page.text(".attempt");
    for shown in [
        "fault: tampered",
        "signature not valid",
        "Body as it was sent",
        "Status 401",
        "the signature does not match",
        &format!("POST {}/hook", receiver.url()),
    ] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    assert!(!page.text("body").contains(SECRET));
    page.assert_no_problems();
}

#[test]
fn an_open_attempt_stays_open_while_the_next_one_appears() {
    let receivers = Receivers::new();
    let receiver = receivers.start([500, 500]);
    let server = server_with(json!({}));
    receivers.add(&server, "crm", &receiver);
    receivers.block_on(server.send_event(json!({"type": "email.opened"})));
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    page.click(".event > details > summary");
    page.click(".attempt summary");
    page.wait_for_text(".attempt .inside", "Signed bytes");
    page.eval("window.shownBytes = document.querySelector('.attempt pre')");

    page.click("[data-advance='60']");
    page.wait_for("document.querySelectorAll('.attempt').length === 2");

    assert_eq!(
        page.eval("shownBytes.isConnected && document.querySelector('.attempt details').open"),
        true
    );
    page.assert_no_problems();
}
