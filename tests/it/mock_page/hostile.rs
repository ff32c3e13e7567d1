//! Data that would be a script if it were not text.

use std::time::Duration;

use audience::mock::Fault;
use serde_json::{Value, json};

use super::page::Page;
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
    server.fault(Fault::status(503).path(hostile));
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
