//! Takes the screenshot in `docs/screenshots`. Run it after a change of the page:
//! `cargo test -p audience-tests --test mock page::screenshot -- --ignored`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use audience::contacts::NewContact;
use audience::mock::{DeliveryFault, Fault, MockServer};
use serde_json::json;

use super::tab::Page;
use super::{Receivers, send_mail};
use crate::receiver::NO_RESPONSE;

#[test]
#[ignore = "it writes the screenshot of the docs"]
fn the_page_with_realistic_data() {
    let receivers = Receivers::new();
    let crm = receivers.start([200, 200, 500, 200, 503, NO_RESPONSE, 502, 500]);
    let stats = receivers.start([]);
    let server = server();
    for (name, receiver) in [("crm", &crm), ("stats", &stats)] {
        receivers.add(&server, name, receiver);
    }
    receivers.block_on(fill(&server));
    let Some(mut page) = Page::blank(&server) else {
        return;
    };

    let folder = std::env::var_os("AUDIENCE_SCREENSHOTS").map(PathBuf::from);
    let docs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .join("docs/screenshots/mock-page.png");
    page.go("");
    take(&mut page, &docs);
    let Some(folder) = folder else {
        return;
    };
    for view in ["events", "requests", "contacts", "mail", "audience"] {
        page.viewport(1280, 900);
        page.go(&format!("#{view}"));
        if view == "requests" || view == "contacts" {
            page.click(&format!("[data-list={view}] > li:nth-child(2) summary"));
        }
        take(&mut page, &folder.join(format!("{view}.png")));
        page.viewport(390, 844);
        take(&mut page, &folder.join(format!("{view}-phone.png")));
    }
    page.go("#controls");
    take(&mut page, &folder.join("controls-phone.png"));
    page.viewport(1280, 900);
    page.dark();
    page.go("#events");
    take(&mut page, &folder.join("events-dark.png"));
    page.click("#open-fault");
    take(&mut page, &folder.join("fault-dark.png"));
}

fn take(page: &mut Page, file: &std::path::Path) {
    page.wait_for("document.querySelectorAll('main li, .rail:not([hidden])').length > 0");
    std::thread::sleep(Duration::from_millis(900));
    save(page, file);
}

pub(super) fn save(page: &mut Page, file: &std::path::Path) {
    let decoded = Command::new("python3")
        .args([
            "-c",
            "import base64,sys; open(sys.argv[1],'wb').write(base64.b64decode(sys.stdin.read()))",
        ])
        .arg(file)
        .stdin(std::process::Stdio::piped())
        .spawn();
    let mut python = decoded.unwrap();
    let shot = page.screenshot();
    std::io::Write::write_all(python.stdin.as_mut().unwrap(), shot.as_bytes()).unwrap();
    assert!(python.wait().unwrap().success());
}

fn server() -> MockServer {
    let pro = json!({"match_": "all", "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}]});
    MockServer::builder()
        .clock(1_795_000_000)
        .delivery_timeout(Duration::from_millis(300))
        .seed(json!({
            "topics": {"news": true, "offers": false, "product updates": true},
            "segments": {
                "seg_team": {"contacts": ["ada@example.com", "grace@example.com"]},
                "seg_pro": {"rule": pro},
            },
            "contacts": [
                {"email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace", "properties": {"plan": "pro", "seats": 3}, "created_at": 1_794_900_000, "answers": {"news": true, "offers": true}},
                {"email": "grace@example.com", "first_name": "Grace", "last_name": "Hopper", "properties": {"plan": "pro"}, "created_at": 1_794_800_000, "unsubscribed": true, "unsubscribe_reason": "preferences", "answers": {"news": false}},
                {"email": "alan@example.com", "first_name": "Alan", "last_name": "Turing", "created_at": 1_794_700_000, "engagement": {"opened": 1_794_750_000}},
                {"email": "katherine@example.com", "first_name": "Katherine", "last_name": "Johnson", "created_at": 1_794_600_000, "unsubscribed": true, "unsubscribe_reason": "complaint", "suppressed": true},
                {"email": "edsger@example.com", "created_at": 1_794_500_000, "unsubscribed": true, "unsubscribe_reason": "manual"},
                {"email": "<script>alert(1)</script>@example.com".replace(['<', '>', '(', ')'], "x"), "first_name": "<script>alert(1)</script>", "created_at": 1_794_400_000},
            ],
        }))
        .start_blocking()
}

/// Lets things happen that one sees when testing.
async fn fill(server: &MockServer) {
    send_mail(server, "bounce@example.com", "Your invoice for November").await;
    send_mail(server, "ada@example.com", "Welcome aboard").await;
    server.advance(Duration::from_secs(60)).await;
    server.delivery_fault(DeliveryFault::tampered().endpoint("crm"));
    server.advance(Duration::from_secs(500)).await;
    let contacts = server.client().contacts();
    let _ = contacts
        .create(
            NewContact::new("barbara@example.com")
                .first_name("Barbara")
                .last_name("Liskov")
                .property("plan", "free"),
        )
        .await;
    let _ = contacts.subscribe("katherine@example.com").await;
    let _ = contacts
        .unsubscribe("ada@example.com")
        .topic("offers")
        .await;
    let _ = contacts
        .unsubscribe("ada@example.com")
        .topic("weekly")
        .await;
    let _ = contacts.retrieve("nobody@example.com").await;
    let _ = contacts.list().query("ada").await;
    server.fault(
        Fault::status(503)
            .retry_after(1)
            .path("/contacts*")
            .times(2),
    );
    server.delivery_fault(DeliveryFault::stale().event_type("email.opened").times(3));
}
