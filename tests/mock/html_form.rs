//! The form of a page, as a test fills it in and a browser sends it.

use audience::mock::HtmlForm;
use audience::unsubscribe::{PageNotice, PageTexts, PreferencePage, ShownTopic};

/// A form with two boxes and two buttons, between two others.
const PAGE: &str = r#"
    <form action="/search"><input name="q"><input type="checkbox" name="topic:other"><button>Go</button></form>
    <form method="post">
        <input type="hidden" name="shown" value="a b+c*">
        <input type="checkbox" name="news" checked>
        <input type="checkbox" name="offers" value="yes">
        <button>Save</button>
        <button name="leave" value="all">Leave</button>
    </form>
    <form method="post"><input type="hidden" name="other"><button>Other</button></form>"#;

#[test]
fn a_form_is_sent_with_its_hidden_fields_the_checked_boxes_and_the_button_that_is_pressed() {
    let form = HtmlForm::new(PAGE);

    assert!(form.is_checked("news") && !form.is_checked("offers"));
    assert_eq!(form.body(), "shown=a+b%2Bc*&news=on");
    let changed = form.uncheck("news").uncheck("news").check("offers");
    assert!(!changed.is_checked("news") && changed.is_checked("offers"));
    assert_eq!(changed.body(), "shown=a+b%2Bc*&offers=yes");
    let left = changed.press("leave", "all");
    assert_eq!(left.body(), "shown=a+b%2Bc*&offers=yes&leave=all");
    assert_eq!(left.press("", "").body(), "shown=a+b%2Bc*&offers=yes");
}

#[test]
fn a_form_is_read_however_its_html_is_written() {
    for page in [
        r#"<form method="post"><input type="checkbox" name="a&amp;&#39;&#x22;b" value="&lt;ü&gt;" checked><button>"#,
        r#"<FORM METHOD=POST><INPUT CHECKED NAME=a&amp;&apos;&quot;b VALUE=&#60;ü&#62; TYPE=CheckBox><INPUT TYPE=submit>"#,
        "<form class='x' method='post'>\n<input\n  name = 'a&amp;&apos;\"b'\n  type='checkbox'\n  value='<ü>'\n  checked='checked'\n/><button/>",
        r#"<form method="post" method="get">a < b<!-- <input name="c"> -->b
            <script>"<input name='c'>"</script><style>/*<input name="c">*/</style>
            1 < 2 <input type="checkbox" checked="" value="<ü>" name="a&'&quot;b" name="c"><button type="submit">"#,
    ] {
        let form = HtmlForm::new(page);

        assert!(form.is_checked("a&'\"b"), "{page}");
        assert_eq!(form.body(), "a%26%27%22b=%3C%C3%BC%3E", "{page}");
    }
}

#[test]
fn a_space_that_breaks_no_line_is_sent_as_it_is() {
    let page = r#"<form method=post><input name=a value="1&nbsp;kg"><button>"#;

    assert_eq!(HtmlForm::new(page).body(), "a=1%C2%A0kg");
}

#[test]
fn a_reference_that_no_program_writes_stays_as_it_is() {
    let page =
        r#"<form method=post><input name=a value="1 & 2 &uuml; &#xD800; &#; &amp;amp;"><button>"#;

    let body = HtmlForm::new(page).body();

    assert_eq!(
        body,
        "a=1+%26+2+%26uuml%3B+%26%23xD800%3B+%26%23%3B+%26amp%3B"
    );
}

#[test]
fn nothing_is_sent_of_what_a_browser_leaves_out() {
    let page = r#"<form method="post">
        <input value="no name"><input type="checkbox" checked><input name="text"><input name="email" type="email" value="a@x.io">
        <input name="b" value="1" disabled><input type="checkbox" name="b" checked disabled><button name="b" value="1" disabled></button>
        <input type="radio" name="lang" value="en"><input type="radio" name="lang" value="de" checked><input type="radio" name="dir" checked>
        <input type="reset" name="b" value="1"><input type="button" name="b" value="1"><input type="file" name="b">
        <button type="button" name="b" value="1"></button><button type="reset" name="b" value="1"></button>
        <select><option>1</select><textarea></textarea>
        <input type="submit" name="save" value="Save"><button name="leave"></button>"#;
    let form = HtmlForm::new(page);

    assert_eq!(form.body(), "text=&email=a%40x.io&lang=de&dir=on&save=Save");
    assert_eq!(
        form.press("leave", "").body(),
        "text=&email=a%40x.io&lang=de&dir=on&leave="
    );
}

#[test]
fn each_state_of_the_preference_page_is_read() {
    let texts = PageTexts::default();
    let page = || {
        let mut page = PreferencePage::new(&texts, "ada@example.com");
        page.number = 7;
        page
    };
    let mut boxes = page();
    boxes.topics = vec![
        ShownTopic::new("news & \"hints\"", "News", true),
        ShownTopic::new("größer", "Offers", false),
    ];
    let mut paused = page();
    paused.is_paused = true;
    paused.topics = vec![ShownTopic::new("news", "News", false)];
    let mut without_boxes = page();
    without_boxes.notice = Some(PageNotice::NotShown);
    without_boxes.link_topic = Some("News");
    let mut confirmation = page();
    confirmation.is_confirmation = true;
    confirmation.topics = vec![ShownTopic::new("news", "News", false)];
    let form = |page: &PreferencePage<'_>| HtmlForm::new(page.content());

    let hints = "topic:news & \"hints\"";
    assert!(form(&boxes).is_checked(hints) && !form(&boxes).is_checked("topic:größer"));
    let shown = "page=7&shown%3Anews+%26+%22hints%22=on&shown%3Agr%C3%B6%C3%9Fer=off";
    let saved = form(&boxes).uncheck(hints).check("topic:größer").body();
    assert_eq!(saved, format!("{shown}&topic%3Agr%C3%B6%C3%9Fer=on"));
    let left = form(&boxes).uncheck(hints).press("unsubscribe", "all");
    assert_eq!(left.body(), format!("{shown}&unsubscribe=all"));
    let back = form(&paused).check("topic:news").body();
    assert_eq!(back, "paused=on&page=7&shown%3Anews=off&topic%3Anews=on");
    assert_eq!(
        form(&without_boxes).press("unsubscribe", "topic").body(),
        "unsubscribe=topic"
    );
    assert_eq!(
        form(&without_boxes).press("unsubscribe", "all").body(),
        "unsubscribe=all"
    );
    assert_eq!(form(&confirmation).body(), "page=7&confirm=yes");
}

#[test]
#[should_panic(
    expected = "the page has no form that is sent by POST:\n<p>This link is not valid</p><form method=\"get\">"
)]
fn a_page_without_a_form_is_named() {
    let _ = HtmlForm::new(r#"<p>This link is not valid</p><form method="get"><button>"#);
}

#[test]
#[should_panic(expected = "the form has no box `ofers`; its boxes: `news`, `offers`")]
fn a_box_that_does_not_exist_is_named_with_those_that_do() {
    let _ = HtmlForm::new(PAGE).check("ofers");
}

#[test]
#[should_panic(expected = "the form has no box `news`; its boxes: none")]
fn a_form_without_boxes_says_so() {
    let _ = HtmlForm::new("<form method=post><input name=news><button>").is_checked("news");
}

#[test]
#[should_panic(expected = "the form has several boxes `topic`")]
fn a_name_of_several_boxes_is_refused() {
    let page = "<form method=post><input type=checkbox name=topic value=a><input type=checkbox name=topic value=b>";
    let _ = HtmlForm::new(page).check("topic");
}

#[test]
#[should_panic(expected = "the form has no button `leave=`; its buttons: `=`, `leave=all`")]
fn a_button_that_does_not_exist_is_named_with_those_that_do() {
    let _ = HtmlForm::new(PAGE).press("leave", "");
}

#[test]
#[should_panic(expected = "the form has no button that sends it")]
fn a_form_without_a_button_cannot_be_sent() {
    let _ = HtmlForm::new("<form method=post><input name=a></form><button>").body();
}

#[test]
#[should_panic(
    expected = "the form has a `select` or a `textarea`, \"lang\", which `HtmlForm` does not read"
)]
fn a_list_to_choose_from_is_refused() {
    let _ = HtmlForm::new("<form method=post><select name=lang><option>en</select><button>");
}
