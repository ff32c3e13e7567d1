//! Contrast and accessibility, in light and dark.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use audience::mock::{DeliveryFault, Fault, MockServer};
use serde_json::json;

use super::tab::Page;
use super::{Receivers, get, send_mail, server_with};
use crate::receiver::Receiver;

const VIEWS: [&str; 5] = ["events", "requests", "contacts", "mail", "audience"];
/// Color schemes and widths.
const SCREENS: [(&str, u32); 4] = [
    ("light", 1400),
    ("dark", 1400),
    ("light", 390),
    ("dark", 390),
];
const LIGHT_AND_DARK: [(&str, u32); 2] = [("light", 1400), ("dark", 390)];

/// Starts a mock whose page shows every kind of mark, and receivers that run as long as the test.
fn server_with_everything(receivers: &Receivers) -> (MockServer, [Receiver; 2]) {
    // The page also shows numbers of two digits: axe-core does not judge a single character.
    let others = (0..12).map(|number| json!({"email": format!("user{number}@example.com")}));
    let mut contacts = vec![
        json!({"email": "ada@example.com", "first_name": "Ada", "properties": {"plan": "pro"}, "answers": {"news": true, "offers": false}}),
        json!({"email": "bob@example.com", "unsubscribed": true}),
        json!({"email": "eve@example.com", "unsubscribe_reason": "complaint", "suppressed": true}),
    ];
    contacts.extend(others);
    let server = server_with(json!({
        "topics": {"news": true, "offers": false, "a topic with a name that is rather long".repeat(4): true},
        "segments": {"seg_1": {"contacts": ["ada@example.com"]}, "seg_2": {"rule": {"match_": "all", "conditions": []}}},
        "contacts": contacts,
    }));
    let running = [
        receivers.start([200, 500, 200, 500]),
        receivers.start([503; 4]),
    ];
    receivers.add(&server, "crm", &running[0]);
    receivers.add(&server, &"statistics".repeat(20), &running[1]);
    server.delivery_fault(DeliveryFault::tampered());
    receivers.block_on(async {
        for to in ["bounce@example.com", "delay@example.com", "eve@example.com"] {
            send_mail(&server, to, "Welcome").await;
        }
        server.advance(Duration::from_secs(60)).await;
        for path in ["/contacts", "/contacts/nobody%40example.com"] {
            get(&server, path).await;
        }
    });
    server.fault(Fault::status(503).times(1));
    receivers.block_on(get(&server, "/contacts"));
    server.fault(Fault::status(503).path("/contacts*").times(2));
    server.delivery_fault(DeliveryFault::stale().times(3));
    (server, running)
}

/// Opens every row of a view, and waits until the contents are there.
fn open_all(page: &mut Page, view: &str) {
    page.eval(&format!("location.hash = '#{view}'"));
    page.wait_for(&format!(
        "!document.getElementById('view-{view}').hidden && document.querySelector('#view-{view} li')"
    ));
    for _ in 0..2 {
        page.eval(&format!(
            "for (const details of document.querySelectorAll('#view-{view} details')) details.open = true"
        ));
        page.wait_for(
            "[...document.querySelectorAll('details[open]')].every((details) => details.children[1]?.childElementCount)",
        );
    }
    page.wait_for(
        "![...document.querySelectorAll('.loaded')].some((place) => place.innerText === 'Loading')",
    );
}

/// Returns the texts whose contrast with what is behind them is below 4.5, as `[ratio, color, background, text]`.
///
/// Rules for `:hover` apply to everything if `isHovered`.
const LOW_CONTRAST: &str = r#"
(isHovered) => {
  const [sheet] = document.styleSheets;
  const replace = (index, text) => {
    sheet.deleteRule(index);
    sheet.insertRule(text, index);
  };
  const forHovered = isHovered
    ? [...sheet.cssRules].map((rule, index) => [index, rule.cssText]).filter(([, text]) => text.includes(":hover"))
    : [];
  for (const [index, text] of forHovered) replace(index, text.replaceAll(":hover", ":not(._)"));
  const parse = (text) => {
    const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { red, green, blue, alpha };
  };
  const over = (top, below) => Object.fromEntries([["alpha", 1], ...["red", "green", "blue"].map((name) =>
    [name, top[name] * top.alpha + below[name] * (1 - top.alpha)])]);
  const luminance = ({ red, green, blue }) => [red, green, blue].map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.push(parse(getComputedStyle(at).backgroundColor));
      if (layers.at(-1).alpha === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), { red: 255, green: 255, blue: 255, alpha: 1 });
  };
  const opacity = (element) => (element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1);
  const found = [];
  const check = (element, color, text) => {
    const background = behind(element);
    const shown = over({ ...parse(color), alpha: parse(color).alpha * opacity(element) }, background);
    const [light, dark] = [luminance(shown), luminance(background)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) found.push([ratio.toFixed(2), color, Object.values(background).join(), text.trim().slice(0, 40)]);
    return ratio;
  };
  let count = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest("script, style, svg") || !element.checkVisibility({ opacityProperty: true })) continue;
    count++;
    check(element, getComputedStyle(element).color, texts.currentNode.data);
  }
  for (const field of document.querySelectorAll("input, select")) {
    if (!field.checkVisibility()) continue;
    check(field, getComputedStyle(field).color, "the text of a field");
    if (field.placeholder) check(field, getComputedStyle(field, "::placeholder").color, field.placeholder);
  }
  for (const [index, text] of forHovered) replace(index, text);
  return { found: [...new Set(found.map(String))], count };
}"#;

#[track_caller]
pub(super) fn assert_contrast(page: &mut Page, place: &str, at_least: i64) {
    for is_hovered in [false, true] {
        let result = page.eval(&format!("({LOW_CONTRAST})({is_hovered})"));
        assert_eq!(result["found"], json!([]), "{place}");
        let count = result["count"].as_i64().unwrap();
        assert!(count >= at_least, "only {count} texts in {place}");
    }
}

#[test]
fn every_text_has_a_contrast_of_4_5_in_light_and_dark() {
    let receivers = Receivers::new();
    let (server, _running) = server_with_everything(&receivers);
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    for view in VIEWS {
        open_all(&mut page, view);
        for (scheme, width) in SCREENS {
            page.screen(scheme, width);
            assert_contrast(&mut page, &format!("{view}, {scheme}, {width}"), 30);
        }
    }
    page.go("#controls");
    for dialog in ["fault", "delivery-fault", "event", "reset"] {
        page.eval(&format!(
            "document.getElementById('{dialog}-dialog').showModal()"
        ));
    }
    for is_bad in [false, true] {
        page.eval(&format!("{{ const message = document.getElementById('message'); message.textContent = 'Done'; message.classList.toggle('bad', {is_bad}); }}"));
        for (scheme, width) in SCREENS {
            page.screen(scheme, width);
            assert_contrast(&mut page, &format!("dialogs, {scheme}, {width}"), 30);
        }
    }
}

#[test]
fn the_description_of_the_service_has_a_contrast_of_4_5_in_light_and_dark() {
    let server = server_with(json!({}));
    let Some(mut page) = Page::blank(&server) else {
        return;
    };
    for scheme in ["light", "dark"] {
        page.color_scheme(scheme);
        page.open_description();

        assert_contrast(&mut page, scheme, 200);
    }
}

/// Returns the source of axe-core, from the npm registry. Returns `None` and says so if there is no npm or no registry.
pub(super) fn axe() -> Option<String> {
    // Several tests ask for it simultaneously.
    static SOURCE: LazyLock<Option<String>> = LazyLock::new(installed_axe);
    let source = SOURCE.clone();
    if source.is_none() {
        // Not `support::skip`: a machine without a network runs all tests that it can.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: axe-core cannot be installed with npm"
        );
    }
    source
}

fn installed_axe() -> Option<String> {
    const FILE: &str = "node_modules/axe-core/axe.min.js";
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = target.join("axe-core");
    if let Ok(source) = std::fs::read_to_string(folder.join(FILE)) {
        return Some(source);
    }
    // It gets its name at the end: another run of the tests never reads a part of it.
    let unnamed = target.join(format!("axe-core-{}", std::process::id()));
    std::fs::create_dir_all(&unnamed).unwrap();
    let _ = Command::new("npm")
        .args([
            "install",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--fetch-retries=0",
        ])
        .arg("--prefix")
        .arg(&unnamed)
        .arg("axe-core@4")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let source = std::fs::read_to_string(unnamed.join(FILE)).ok();
    if source.is_none() || std::fs::rename(&unnamed, folder).is_err() {
        let _ = std::fs::remove_dir_all(unnamed);
    }
    source
}

/// Asserts that axe-core finds nothing in what the page shows.
#[track_caller]
pub(super) fn assert_axe_finds_nothing(page: &mut Page, axe: &str, place: &str) {
    page.eval(&format!("window.axe ?? (() => {{ {axe} }})(); 0"));
    let found = page.eval(
        "axe.run(document, { resultTypes: ['violations'] }).then(({ violations, passes }) => ({ passes: passes.length, \
         violations: violations.map(({ id, nodes }) => [id, nodes.slice(0, 3).map(({ html, failureSummary }) => [html.slice(0, 200), failureSummary])]) }))",
    );
    assert_eq!(found["violations"], json!([]), "{place}: {found:#}");
    assert!(found["passes"].as_i64() > Some(15), "{place}: {found}");
}

#[test]
fn axe_finds_nothing_in_light_and_dark() {
    let Some(axe) = axe() else {
        return;
    };
    let receivers = Receivers::new();
    let (server, _running) = server_with_everything(&receivers);
    let Some(mut page) = Page::open(&server) else {
        return;
    };
    for view in VIEWS {
        page.eval(&format!("location.hash = '#{view}'"));
        page.wait_for(&format!("document.querySelector('#view-{view} li')"));
        for state in ["closed", "open"] {
            if state == "open" {
                open_all(&mut page, view);
            }
            for (scheme, width) in LIGHT_AND_DARK {
                page.screen(scheme, width);
                let place = format!("{view}, {state}, {scheme}, {width}");
                assert_axe_finds_nothing(&mut page, &axe, &place);
            }
        }
    }
    for dialog in ["fault", "event", "reset"] {
        page.eval(&format!(
            "document.getElementById('{dialog}-dialog').showModal()"
        ));
        for (scheme, width) in LIGHT_AND_DARK {
            page.screen(scheme, width);
            assert_axe_finds_nothing(&mut page, &axe, &format!("{dialog}, {scheme}, {width}"));
        }
        page.eval(&format!(
            "document.getElementById('{dialog}-dialog').close()"
        ));
    }
    page.open_description();
    for (scheme, width) in LIGHT_AND_DARK {
        page.screen(scheme, width);
        let place = format!("the description, {scheme}, {width}");
        assert_axe_finds_nothing(&mut page, &axe, &place);
    }
}
