//! The preference page of unsubscribe links, as a person uses it.

use std::time::Instant;

use audience::emails::Email;
use audience::inbox::MemoryStore;
use audience::mock::MockServer;
use audience::unsubscribe::{OfferedTopic, PageTexts, UnsubscribeLinks, UnsubscribeService};
use axum::Router;
use serde_json::json;
use support::PATIENCE;
use tokio::runtime::Runtime;

use super::accessibility::{assert_axe_finds_nothing, assert_contrast, axe};
use super::tab::Page;

const ADA: &str = "ada@example.com";

/// A mock, and a web server with the page.
struct Site {
    mock: MockServer,
    links: UnsubscribeLinks,
    service: UnsubscribeService,
    url: String,
    runtime: Runtime,
}

impl Site {
    fn start(texts: PageTexts) -> Self {
        let mock = MockServer::builder()
            .topic("news", true)
            .topic("offers", false)
            .seed_contact(ADA)
            .start_blocking();
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap();
        let url = format!("http://{}/unsubscribe/", listener.local_addr().unwrap());
        let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
        let links = UnsubscribeLinks::new([secret], &url).unwrap();
        let contacts = mock.client().contacts();
        let service = UnsubscribeService::builder(links.clone(), contacts, MemoryStore::new())
            .topic(
                OfferedTopic::new("news", "Newsletter")
                    .description("Once a month")
                    .default_answer(true),
            )
            .topic(OfferedTopic::new(
                "offers",
                format!("Offers{}", "-and-more".repeat(30)),
            ))
            .texts(texts)
            .build();
        runtime.spawn(service.worker().run_until(std::future::pending()));
        let router: Router = Router::new().nest_service("/unsubscribe", service.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            mock,
            links,
            service,
            url,
            runtime,
        }
    }

    /// Opens the page that a mail about this topic leads to. Returns `None` if there is no browser.
    fn open(&self, topic: &str) -> Option<Page> {
        let mut page = Page::blank(&self.mock)?;
        page.allow_scripts(false);
        let [(_, url), _] = self.links.headers(ADA, topic);
        let end = Instant::now() + PATIENCE;
        loop {
            page.visit(url.trim_matches(['<', '>']), &self.url);
            // On a busy machine, the page may not know the answers in time. Then it has no boxes.
            if page.eval("document.querySelector('[type=checkbox]') !== null") == true {
                return Some(page);
            }
            assert_eq!(page.text("[role=status]"), PageTexts::default().not_shown);
            assert!(Instant::now() < end, "no boxes within {PATIENCE:?}");
        }
    }

    /// Waits until the service has all opt-outs.
    fn wait_until_sent(&self) {
        self.runtime.block_on(async {
            while self.service.pending().await.unwrap() > 0 {
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn the_page_works_without_scripts_cookies_or_other_requests() {
    let site = Site::start(PageTexts::default());
    let Some(mut page) = site.open("news") else {
        return;
    };

    assert_eq!(
        page.eval("document.querySelector('[name=\"topic:news\"]').checked"),
        true
    );
    page.click("[name=\"topic:news\"]");
    page.click("[name=\"topic:offers\"]");
    page.click("button.save");
    page.wait_for_text("[role=status]", "Saved.");
    site.wait_until_sent();
    let ada = site.mock.contact(ADA).unwrap();
    assert!(!ada.topics["news"] && ada.topics["offers"]);

    page.click("[value=all]");
    page.wait_for_text("[role=status]", "You are unsubscribed.");
    site.wait_until_sent();
    assert!(site.mock.contact(ADA).unwrap().unsubscribed);

    // Back, with one box.
    page.click("[name=\"topic:offers\"]");
    page.click("button.save");
    page.wait_for_text("[role=status]", "Saved.");
    let ada = site.mock.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["offers"] && !ada.topics["news"]);

    assert_eq!(page.eval("document.cookie"), "");
    assert_eq!(page.eval("document.scripts.length"), 0);
    page.assert_no_problems();
}

#[test]
fn the_button_for_the_topic_of_the_mail_opts_out_of_it_alone() {
    let site = Site::start(PageTexts::default());
    let Some(mut page) = site.open("news") else {
        return;
    };

    page.click("[value=topic]");
    page.wait_for_text("[role=status]", "Saved.");
    site.wait_until_sent();

    assert_eq!(
        page.eval("document.querySelector('[name=\"topic:news\"]').checked"),
        false
    );
    let ada = site.mock.contact(ADA).unwrap();
    assert!(!ada.topics["news"] && !ada.unsubscribed);
}

#[test]
fn the_page_works_with_the_keyboard_alone_and_shows_where_the_focus_is() {
    let site = Site::start(PageTexts::default());
    let Some(mut page) = site.open("offers") else {
        return;
    };
    let mut order = Vec::new();
    for _ in 0..5 {
        page.press("Tab");
        let focus = page.eval(
            "(() => { const at = document.activeElement; const style = getComputedStyle(at); \
             return [at.name || at.className, at.value, style.outlineStyle, parseFloat(style.outlineWidth) >= 2]; })()",
        );
        assert_eq!(
            (&focus[2], &focus[3]),
            (&json!("solid"), &json!(true)),
            "{focus}"
        );
        order.push(format!(
            "{} {}",
            focus[0].as_str().unwrap(),
            focus[1].as_str().unwrap()
        ));
    }
    assert_eq!(
        order,
        [
            "topic:news on",
            "topic:offers on",
            "save ",
            "unsubscribe topic",
            "unsubscribe all"
        ]
    );

    page.eval("document.querySelector('[name=\"topic:news\"]').focus()");
    page.press(" ");
    // As in every form, the Enter key presses the first button, which saves.
    page.press("Enter");
    page.wait_for_text("[role=status]", "Saved.");
    site.wait_until_sent();

    assert!(!site.mock.contact(ADA).unwrap().topics["news"]);
}

#[test]
fn the_page_fits_a_phone_and_can_be_read_in_light_and_dark() {
    let site = Site::start(PageTexts::default());
    let Some(mut page) = site.open("offers") else {
        return;
    };
    page.click("button.save");
    page.wait_for("document.querySelector('[role=status]')");
    assert_fits_and_can_be_read(&mut page, 7);
    if let Some(axe) = axe() {
        // It is a script itself.
        page.allow_scripts(true);
        page.visit(&site.links.link(ADA), &site.url);
        assert_axe_finds_nothing(&mut page, &axe, "the preference page");
    }
}

#[test]
fn the_link_of_a_confirmation_mail_is_a_page_whose_only_button_subscribes() {
    const BOB: &str = "bob@example.com";
    let site = Site::start(PageTexts::default());
    let Some(mut page) = site.open("news") else {
        return;
    };
    let mail = |link: &str| Email::new().from("shop@example.com").member("text", link);
    let asking = site
        .service
        .send_confirmation(BOB, ["news", "offers"], mail);
    site.runtime.block_on(asking).unwrap();
    let mail = site.mock.sent_mail().pop().unwrap();
    let link = mail.body["text"].as_str().unwrap();

    page.visit(link, &site.url);
    assert_fits_and_can_be_read(&mut page, 6);
    if let Some(axe) = axe() {
        page.allow_scripts(true);
        page.visit(link, &site.url);
        assert_axe_finds_nothing(&mut page, &axe, "the page of a confirmation");
        page.allow_scripts(false);
        page.visit(link, &site.url);
    }
    assert_eq!(
        page.eval("document.querySelectorAll('button, input:not([type=hidden]), a').length"),
        1
    );
    page.click("button");
    page.wait_for_text("[role=status]", "You are subscribed.");

    let bob = site.mock.contact(BOB).unwrap();
    assert!(bob.topics["news"] && bob.topics["offers"]);
    assert_eq!(page.eval("document.cookie"), "");
    page.assert_no_problems();
}

/// Looks at the page, which has at least this many texts, on a phone and on a large screen, in light and dark.
fn assert_fits_and_can_be_read(page: &mut Page, texts: i64) {
    let mut backgrounds = Vec::new();
    for (width, scheme) in [
        (320, "light"),
        (320, "dark"),
        (390, "dark"),
        (1280, "light"),
    ] {
        page.viewport(width, 800);
        page.color_scheme(scheme);

        let overflow = page.eval("document.documentElement.scrollWidth - innerWidth");
        assert!(
            overflow.as_i64().unwrap() <= 0,
            "{overflow} px too wide at {width}"
        );
        let small = page.eval(
            "[...document.querySelectorAll('label, button')].map((target) => target.getBoundingClientRect().height).filter((height) => height < 44)",
        );
        assert_eq!(small, json!([]), "at {width}");
        assert_contrast(page, &format!("{scheme}, {width}"), texts);
        backgrounds.push(page.eval("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(backgrounds[0], backgrounds[1]);
}

#[test]
fn the_page_speaks_another_language_from_right_to_left() {
    let mut texts = PageTexts::default();
    texts.lang = "ar".into();
    texts.dir = "rtl".into();
    texts.title = "تفضيلات البريد".into();
    texts.save = "حفظ".into();
    let site = Site::start(texts);
    let Some(mut page) = site.open("news") else {
        return;
    };
    page.viewport(390, 800);

    assert_eq!(page.text("h1"), "تفضيلات البريد");
    assert_eq!(
        page.eval("[document.documentElement.lang, document.dir]"),
        json!(["ar", "rtl"])
    );
    let is_right = "(() => { const box = document.querySelector('[type=checkbox]').getBoundingClientRect(); return box.left > innerWidth / 2; })()";
    assert_eq!(page.eval(is_right), true);
    assert!(
        page.eval("document.documentElement.scrollWidth - innerWidth")
            .as_i64()
            <= Some(0)
    );
}

#[test]
#[ignore = "it writes screenshots of the page to the folder in AUDIENCE_SCREENSHOTS"]
fn screenshots() {
    let site = Site::start(PageTexts::default());
    let (Some(mut page), Some(folder)) =
        (site.open("news"), std::env::var_os("AUDIENCE_SCREENSHOTS"))
    else {
        return;
    };
    page.viewport(390, 844);
    super::screenshot::save(
        &mut page,
        &std::path::Path::new(&folder).join("preferences-phone.png"),
    );
    page.dark();
    super::screenshot::save(
        &mut page,
        &std::path::Path::new(&folder).join("preferences-dark.png"),
    );
}
