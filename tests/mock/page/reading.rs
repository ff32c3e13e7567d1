//! The page while nothing happens, and while someone reads it.

use std::time::Duration;

use audience::mock::MockServer;
use serde_json::json;

use super::tab::Page;
use super::{Receivers, get, server_with};

/// Counts the timers and the animation frames that a page asks for.
const COUNT_WAKEUPS: &str = "
    window.wakeups = 0;
    for (const name of ['setTimeout', 'setInterval', 'requestAnimationFrame', 'requestIdleCallback']) {
        const original = window[name];
        window[name] = (...parameters) => { window.wakeups++; return original.apply(window, parameters); };
    }";

#[test]
fn an_idle_page_with_pending_attempts_asks_the_browser_for_nothing() {
    let receivers = Receivers::new();
    let receiver = receivers.start([500; 60]);
    let server = server_with(json!({}));
    receivers.add(&server, "crm", &receiver);
    send_events(&receivers, &server, 60);
    let Some(mut page) = Page::blank(&server) else {
        return;
    };
    page.run_before_page(COUNT_WAKEUPS);
    page.go("#events");
    page.wait_for("document.querySelectorAll('.dot.next').length === 50");
    let counts = ["LayoutCount", "RecalcStyleCount"];

    // The refreshes that the start has caused end within a few tries, also on a slow machine.
    let mut tries = (0..10).map(|_| {
        let before = page.eval("wakeups");
        let at_first = counts.map(|name| page.counted(name));
        std::thread::sleep(Duration::from_millis(1_200));
        let at_last = counts.map(|name| page.counted(name));
        at_last == at_first && page.eval("wakeups") == before
    });

    assert!(tries.any(|is_idle| is_idle));
    assert_eq!(page.eval("document.getAnimations().length"), 0);
}

#[test]
fn a_running_clock_wakes_the_page_once_a_second_and_a_stopped_one_never() {
    let server = MockServer::builder().start_blocking();
    let Some(mut page) = Page::blank(&server) else {
        return;
    };
    page.run_before_page(COUNT_WAKEUPS);
    page.go("#events");

    let ticks = "shown.add(document.getElementById('clock-time').textContent).size";
    page.eval("window.shown = new Set()");
    page.wait_for(&format!("{ticks} === 3"));
    let mut wakeups_and_seconds = || {
        let now = page.eval("[wakeups, performance.now() / 1000]");
        [0, 1].map(|index| now[index].as_f64().unwrap())
    };
    // The refreshes that the start has caused end within a few tries, also on a slow machine.
    let mut tries = (0..10).map(|_| {
        let before = wakeups_and_seconds();
        std::thread::sleep(Duration::from_secs(3));
        let after = wakeups_and_seconds();
        [0, 1].map(|index| after[index] - before[index])
    });
    let is_once_a_second = |[woken, seconds]: [f64; 2]| woken >= 1.0 && woken <= seconds + 1.5;

    assert!(tries.any(is_once_a_second));
    // Read simultaneously: they may change between two reads.
    let clocks =
        page.eval("['clock-time', 'top-time'].map(id => document.getElementById(id).textContent)");
    assert_eq!(clocks[0], clocks[1]);
}

fn send_events(receivers: &Receivers, server: &MockServer, count: usize) {
    receivers.block_on(async {
        for number in 0..count {
            let event = json!({"type": "email.opened", "data": {"to": format!("user{number}@example.com")}});
            server.send_event(event).await;
        }
    });
}

/// Returns the key of the row in the middle of the screen, and where its top is.
fn row_in_the_middle(page: &mut Page) -> (String, f64) {
    let row = page.eval(
        "(() => { const row = document.elementFromPoint(innerWidth / 2, 500).closest('[data-list] > li'); \
         return [row.dataset.key, row.getBoundingClientRect().top]; })()",
    );
    (
        row[0].as_str().unwrap().to_owned(),
        row[1].as_f64().unwrap(),
    )
}

#[track_caller]
fn assert_not_moved(before: &(String, f64), after: &(String, f64)) {
    assert_eq!(before.0, after.0);
    assert!((before.1 - after.1).abs() < 1.5, "{before:?}, {after:?}");
}

#[test]
fn new_events_do_not_move_the_row_that_is_being_read() {
    let receivers = Receivers::new();
    let server = server_with(json!({}));
    send_events(&receivers, &server, 70);
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    page.wait_for("document.querySelectorAll('[data-list=events] > li').length === 50");
    // The last row of the list, which newer ones push out of it.
    page.eval("document.querySelector('[data-list=events] > li:last-child details').open = true");
    page.eval("scrollTo(0, 1500)");
    let before = row_in_the_middle(&mut page);

    send_events(&receivers, &server, 4);
    page.wait_for_text("#view-events .new button", "4 new");
    send_events(&receivers, &server, 8);
    page.wait_for_text("#view-events .new button", "12 new");

    assert_not_moved(&before, &row_in_the_middle(&mut page));
    let count = "document.querySelectorAll('[data-list=events] > li').length";
    assert_eq!(page.eval(count), 50);
    assert_eq!(
        page.eval("document.querySelector('[data-list=events] > li:last-child details').open"),
        true
    );

    page.click("#view-events .new button");
    page.wait_for_text("[data-list=events] > li:first-child", "evt_82");
    assert_eq!(page.eval("scrollY"), 0);
    page.wait_for("document.querySelector('#view-events .new').hidden");
    assert_eq!(page.eval(count), 50);
    page.assert_no_problems();
}

#[test]
fn a_row_that_grows_above_does_not_move_the_row_that_is_being_read() {
    let receivers = Receivers::new();
    let (first, second) = (receivers.start([]), receivers.start([]));
    let server = server_with(json!({}));
    receivers.add(&server, "crm", &first);
    send_events(&receivers, &server, 30);
    receivers.add(&server, "stats", &second);
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    page.wait_for("document.querySelectorAll('[data-list=events] > li').length === 30");
    page.eval("scrollTo(0, 1500)");
    let before = row_in_the_middle(&mut page);

    receivers.block_on(async {
        for number in [30, 29, 28] {
            server.redeliver(&format!("evt_{number}")).await;
        }
    });
    page.wait_for("document.querySelectorAll('.lane').length === 33");

    assert_not_moved(&before, &row_in_the_middle(&mut page));
    page.assert_no_problems();
}

#[test]
fn new_requests_wait_while_the_pointer_is_on_the_list_and_come_when_it_leaves() {
    let receivers = Receivers::new();
    let server = server_with(json!({}));
    receivers.block_on(get(&server, "/contacts?limit=1"));
    let Some(mut page) = Page::open_at(&server, "#requests") else {
        return;
    };
    page.wait_for_text("[data-list=requests]", "limit=1");
    let row = page.eval(
        "(() => { const { left, top } = document.querySelector('[data-list=requests] summary').getBoundingClientRect(); return [left, top]; })()",
    );
    let (x, y) = (row[0].as_f64().unwrap(), row[1].as_f64().unwrap());
    #[expect(clippy::cast_possible_truncation, reason = "a place on the screen")]
    page.move_pointer(x as i64 + 20, y as i64 + 10);

    receivers.block_on(get(&server, "/contacts?limit=2"));
    page.wait_for_text("#view-requests .new button", "1 new");
    assert!(!page.text("[data-list=requests]").contains("limit=2"));

    page.move_pointer(2, 2);
    receivers.block_on(get(&server, "/contacts?limit=3"));
    page.wait_for("document.querySelectorAll('[data-list=requests] > li').length === 3");
    page.wait_for("document.querySelector('#view-requests .new').hidden");
}

#[test]
fn a_list_that_was_cleared_is_empty_although_someone_reads_it() {
    let receivers = Receivers::new();
    let server = server_with(json!({}));
    receivers.block_on(get(&server, "/contacts?limit=1"));
    let Some(mut page) = Page::open_at(&server, "#requests") else {
        return;
    };
    page.click("[data-list=requests] summary");

    server.clear_requests();
    page.wait_for_text("[data-list=requests]", "No requests yet");

    receivers.block_on(get(&server, "/contacts?limit=2"));
    page.wait_for_text("[data-list=requests]", "limit=2");
}
