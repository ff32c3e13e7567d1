//! The preference page as HTML.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// A topic that the preference page offers.
///
/// # Example: a topic that people get unless they opt out
///
/// ```
/// use audience::unsubscribe::OfferedTopic;
///
/// let topic = OfferedTopic::new("news", "Newsletter").description("Once a month").default_answer(true);
/// # let _ = topic;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a topic is shown only if it is given to a service"]
pub struct OfferedTopic {
    pub(super) name: String,
    pub(super) label: String,
    pub(super) description: String,
    pub(super) default_answer: bool,
}

impl OfferedTopic {
    /// Creates a topic with its name at the service and a label for people.
    pub fn new(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            label: label.into(),
            description: String::new(),
            default_answer: false,
        }
    }

    /// Sets a sentence that is shown under the label. Default: none.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Sets whether the box is checked if the address is no contact. Default: `false`. Set the topic's default at the
    /// service, so that the page does not show whether an address is a contact.
    pub fn default_answer(mut self, answer: bool) -> Self {
        self.default_answer = answer;
        self
    }
}

/// The texts of the preference page. The default is English.
///
/// # Example: in German
///
/// ```
/// use audience::unsubscribe::PageTexts;
///
/// let mut texts = PageTexts::default();
/// texts.lang = "de".into();
/// texts.title = "Ihre Newsletter".into();
/// texts.save = "Speichern".into();
/// // and the others
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageTexts {
    /// The language, as in the attribute `lang`. Default: `en`.
    pub lang: Cow<'static, str>,
    /// The direction of the script: `ltr` or `rtl`. Default: `ltr`.
    pub dir: Cow<'static, str>,
    /// The title and the heading.
    pub title: Cow<'static, str>,
    /// Introduces the boxes. `{address}` stands for the address, of which only the first character and the domain are
    /// shown.
    pub introduction: Cow<'static, str>,
    /// The button that saves the boxes.
    pub save: Cow<'static, str>,
    /// The button that opts out of the topic of the link. `{topic}` stands for its label.
    pub unsubscribe_topic: Cow<'static, str>,
    /// The button that opts out of everything.
    pub unsubscribe_all: Cow<'static, str>,
    /// Says which mail continues after an opt-out: mail that people need, such as receipts.
    pub remark: Cow<'static, str>,
    /// Shown after an opt-out of everything, also if it was made before.
    pub unsubscribed: Cow<'static, str>,
    /// Shown after the boxes were saved.
    pub saved: Cow<'static, str>,
    /// Shown if the opt-outs were saved and the opt-ins were not, because the service does not allow them.
    pub not_subscribed: Cow<'static, str>,
    /// Shown if the opt-outs were saved and the opt-ins were not, because the service does not respond, or your program
    /// could not [record](super::UnsubscribeServiceBuilder::record_opt_in) them. The service may have them.
    pub not_subscribed_now: Cow<'static, str>,
    /// Shown if the opt-outs were not saved, or a signup was not confirmed. If your program could not
    /// [record](super::UnsubscribeServiceBuilder::record_opt_in) it, the service may have it.
    pub not_saved: Cow<'static, str>,
    /// Shown if the opt-ins failed, and another click would fail, too, until your team has acted: for example, the
    /// service refused the key, or the plan is full. The opt-outs were saved, and maybe some opt-ins.
    pub our_fault: Cow<'static, str>,
    /// Shown in place of the boxes if the contact could not be retrieved. The buttons that opt out work nevertheless.
    pub not_shown: Cow<'static, str>,
    /// Shown in place of the boxes if the link is from mail to an address that the person had before.
    pub earlier_address: Cow<'static, str>,
    /// Shown in place of the boxes to a contact who reported spam, whom the service does not subscribe again.
    pub reported_spam: Cow<'static, str>,
    /// Shown if the link is invalid or too old.
    pub invalid_link: Cow<'static, str>,
    /// Introduces the topics of a signup that is to be confirmed. `{address}` stands for the address, as in
    /// [`introduction`](Self::introduction).
    pub confirm_introduction: Cow<'static, str>,
    /// The button that confirms a signup.
    pub confirm: Cow<'static, str>,
    /// Shown after a signup was confirmed.
    pub confirmed: Cow<'static, str>,
    /// Shown if the link of a confirmation mail was used before.
    pub confirmed_before: Cow<'static, str>,
}

impl Default for PageTexts {
    fn default() -> Self {
        Self {
            lang: "en".into(),
            dir: "ltr".into(),
            title: "Your email preferences".into(),
            introduction: "Choose what we send to {address}.".into(),
            save: "Save".into(),
            unsubscribe_topic: "Unsubscribe from {topic}".into(),
            unsubscribe_all: "Unsubscribe from everything".into(),
            remark: "You will still get mail that you need, such as receipts.".into(),
            unsubscribed: "You are unsubscribed. It can take a few minutes until all mail stops.".into(),
            saved: "Saved. It can take a few minutes until a change has an effect.".into(),
            not_subscribed:
                "We cannot subscribe you here. Please sign up again on our site. What you unsubscribed from is saved."
                    .into(),
            not_subscribed_now:
                "This did not work, and you may not be subscribed. Please try again in a few minutes. What you \
                 unsubscribed from is saved."
                    .into(),
            not_saved: "This did not work. Please try again in a few minutes.".into(),
            our_fault:
                "Something is wrong on our side, and you may not be subscribed. Please try again tomorrow, or write to \
                 us. If you unsubscribed from something, that is saved."
                    .into(),
            not_shown:
                "We cannot show your preferences just now. Please try again in a few minutes. You can unsubscribe here \
                 at any time."
                    .into(),
            earlier_address:
                "This link is from a mail to an earlier address of yours. You can unsubscribe here. To choose what we \
                 send you, please use the link in a newer mail."
                    .into(),
            reported_spam: "You reported our mail as spam. We send you no newsletters.".into(),
            invalid_link: "This link is not valid, or too old. Please use the link in a newer mail.".into(),
            confirm_introduction: "Do you want us to send this to {address}?".into(),
            confirm: "Yes, subscribe me".into(),
            confirmed: "Thank you! You are subscribed.".into(),
            confirmed_before:
                "You have used this link before. To change what we send you, please use the link in a newer mail."
                    .into(),
        }
    }
}

/// The notice at the top of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageNotice {
    /// The visitor is opted out of everything.
    Unsubscribed,
    /// The boxes were saved.
    Saved,
    /// The opt-outs were saved. The service does not allow the opt-ins.
    NotSubscribed,
    /// The opt-outs were saved. The opt-ins can be saved later: the service did not respond, or your program could not
    /// [record](super::UnsubscribeServiceBuilder::record_opt_in) them. The service may have them.
    NotSubscribedNow,
    /// The store failed, or a confirmation, or your program could not
    /// [record](super::UnsubscribeServiceBuilder::record_opt_in) it: the service may have it. Some opt-outs of a form may
    /// have been saved. The visitor can send it again.
    NotSaved,
    /// The opt-ins failed, and fail again until your team has acted: for example, the service refused the key, or the
    /// plan is full. The opt-outs were saved, and maybe some opt-ins.
    OurFault,
    /// The contact could not be retrieved. The page has no boxes, and its buttons opt out.
    NotShown,
    /// The link is from mail to an address that the person had before. The page has no boxes, and its buttons opt out.
    EarlierAddress,
    /// The visitor reported spam. The page has no boxes.
    ReportedSpam,
    /// The link is invalid or too old. The page has nothing else.
    InvalidLink,
    /// The signup was confirmed. The page has nothing else.
    Confirmed,
    /// The link of the confirmation mail was used before. The page has nothing else.
    ConfirmedBefore,
}

/// A page to show, for a [template](super::UnsubscribeServiceBuilder::template) of your own.
///
/// [`content`](Self::content) is the notice and the form, which is what most templates put into a frame of their own.
/// To write the form yourself, send these fields by POST to the page's own URL, as `application/x-www-form-urlencoded`:
///
/// | field | value |
/// |---|---|
/// | `shown:NAME`, for each topic | `on` if the box was checked when the page was made, else `off` |
/// | `topic:NAME`, for each topic | `on`: the box |
/// | `paused` | `on` if [`is_paused`](Self::is_paused) |
/// | `page` | [`number`](Self::number). Without it, a form that a browser sends again could undo a later opt-out |
/// | `unsubscribe` | `all` or `topic`: the buttons that opt out. The button that saves the boxes has no such field |
///
/// A page that [asks to confirm a signup](Self::is_confirmation) has one button, and two fields: `confirm`, with the
/// value `yes`, and `page`, as above.
///
/// In a test, `audience::mock::HtmlForm` (feature `mock`) reads the form of your page, and returns what a browser sends.
///
/// # Example: a template in the style of your site
///
/// ```
/// use audience::unsubscribe::PreferencePage;
///
/// fn template(page: &PreferencePage<'_>) -> String {
///     format!(
///         "<!doctype html><html lang='{}'><link rel='stylesheet' href='/site.css'><title>Shop</title>{}",
///         page.texts.lang,
///         page.content()
///     )
/// }
/// # let _ = template;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PreferencePage<'a> {
    /// The texts.
    pub texts: &'a PageTexts,
    /// The notice, if there is one.
    pub notice: Option<PageNotice>,
    /// The first character and the domain of the address, such as `a…@example.com`. Empty if the link is invalid.
    pub address: String,
    /// The topics with their boxes. Empty if the page has no boxes, for example because the contact could not be
    /// retrieved. A topic that the service does not have for this contact has no box.
    pub topics: Vec<ShownTopic<'a>>,
    /// The label of the topic that the link is about, if it is about one that the page offers.
    pub link_topic: Option<&'a str>,
    /// Whether the contact is opted out of everything. Then all boxes are empty, and a box that the visitor checks ends
    /// that opt-out.
    pub is_paused: bool,
    /// Another number for each page. The form of one page opts in once: it is remembered for 30 days.
    pub number: u64,
    /// Whether the link is one of a [confirmation mail](super::UnsubscribeService::send_confirmation). The topics are
    /// those that its button subscribes to. If there is nothing to confirm, they are empty, and the notice says why.
    pub is_confirmation: bool,
}

/// A topic on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShownTopic<'a> {
    /// The name at the service.
    pub name: &'a str,
    /// The label for people.
    pub label: &'a str,
    /// A sentence about it. May be empty.
    pub description: &'a str,
    /// Whether the box is checked.
    pub is_checked: bool,
}

impl<'a> ShownTopic<'a> {
    /// Creates a topic without a description, for a unit test of your own template. See [`PreferencePage::new`].
    #[must_use]
    pub fn new(name: &'a str, label: &'a str, is_checked: bool) -> Self {
        Self {
            name,
            label,
            description: "",
            is_checked,
        }
    }
}

impl<'a> PreferencePage<'a> {
    /// Creates a page without a notice and without topics, for a unit test of your own template. It shows the first
    /// character and the domain of the address.
    ///
    /// # Example: a template is tested alone
    ///
    /// ```
    /// use audience::unsubscribe::{PageNotice, PageTexts, PreferencePage, ShownTopic};
    ///
    /// fn template(page: &PreferencePage<'_>) -> String {
    ///     format!("<!doctype html><html lang='{}'><title>Shop</title>{}", page.texts.lang, page.content())
    /// }
    ///
    /// let texts = PageTexts::default();
    /// let mut page = PreferencePage::new(&texts, "ada@example.com");
    /// page.notice = Some(PageNotice::Saved);
    /// page.topics = vec![ShownTopic::new("news", "News & hints", true), ShownTopic::new("offers", "Offers", false)];
    ///
    /// let html = template(&page);
    /// assert!(html.starts_with("<!doctype html><html lang='en'>"));
    /// assert!(html.contains("a…@example.com") && html.contains("News &amp; hints"));
    /// ```
    #[must_use]
    pub fn new(texts: &'a PageTexts, address: impl AsRef<str>) -> Self {
        let address = address.as_ref();
        Self {
            texts,
            notice: None,
            address: match address.is_empty() {
                true => String::new(),
                false => masked(address),
            },
            topics: Vec::new(),
            link_topic: None,
            is_paused: false,
            number: 0,
            is_confirmation: false,
        }
    }

    /// Returns the notice and the form as HTML.
    #[must_use]
    pub fn content(&self) -> String {
        let mut html = String::new();
        // A `String` takes all that is written to it.
        let _ = self.write_content(&mut html);
        html
    }

    /// Returns the whole page of this crate.
    pub(super) fn to_html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"{}\" dir=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{}</main>\n</body>\n</html>\n",
            Escaped(&self.texts.lang),
            Escaped(&self.texts.dir),
            self.content(),
            title = Escaped(&self.texts.title),
        )
    }

    fn notice_text(&self) -> Option<&str> {
        let texts = self.texts;
        Some(match self.notice? {
            PageNotice::Unsubscribed => &texts.unsubscribed,
            PageNotice::Saved => &texts.saved,
            PageNotice::NotSubscribed => &texts.not_subscribed,
            PageNotice::NotSubscribedNow => &texts.not_subscribed_now,
            PageNotice::NotSaved => &texts.not_saved,
            PageNotice::OurFault => &texts.our_fault,
            PageNotice::NotShown => &texts.not_shown,
            PageNotice::EarlierAddress => &texts.earlier_address,
            PageNotice::ReportedSpam => &texts.reported_spam,
            PageNotice::InvalidLink => &texts.invalid_link,
            PageNotice::Confirmed => &texts.confirmed,
            PageNotice::ConfirmedBefore => &texts.confirmed_before,
        })
    }

    fn write_content(&self, html: &mut String) -> fmt::Result {
        if let Some(text) = self.notice_text() {
            writeln!(
                html,
                "<p class=\"notice\" role=\"status\">{}</p>",
                Escaped(text)
            )?;
        }
        if self.is_confirmation {
            return self.write_confirmation(html);
        }
        if self.address.is_empty() || self.notice == Some(PageNotice::ReportedSpam) {
            return Ok(());
        }
        let texts = self.texts;
        // Without an action, the form is sent to the page's own URL, whatever path the service is mounted at.
        writeln!(html, "<form method=\"post\">")?;
        let introduction = texts.introduction.replace("{address}", &self.address);
        if !self.topics.is_empty() {
            writeln!(
                html,
                "<p id=\"introduction\">{}</p>",
                Escaped(&introduction)
            )?;
            self.write_boxes(html)?;
        } else {
            writeln!(html, "<p>{}</p>", Escaped(&introduction))?;
        }
        if let Some(label) = self.link_topic {
            let text = texts.unsubscribe_topic.replace("{topic}", label);
            write_button(html, "topic", &text)?;
        }
        write_button(html, "all", &texts.unsubscribe_all)?;
        if !texts.remark.is_empty() {
            writeln!(html, "<p class=\"remark\">{}</p>", Escaped(&texts.remark))?;
        }
        writeln!(html, "</form>")
    }

    fn write_confirmation(&self, html: &mut String) -> fmt::Result {
        if self.topics.is_empty() {
            return Ok(());
        }
        let introduction = self
            .texts
            .confirm_introduction
            .replace("{address}", &self.address);
        writeln!(
            html,
            "<form method=\"post\">\n<input type=\"hidden\" name=\"page\" value=\"{}\">\n<p>{}</p>\n<ul>",
            self.number,
            Escaped(&introduction)
        )?;
        for topic in &self.topics {
            writeln!(html, "<li>{}", Escaped(topic.label))?;
            if !topic.description.is_empty() {
                writeln!(
                    html,
                    "<p class=\"about\">{}</p>",
                    Escaped(topic.description)
                )?;
            }
        }
        writeln!(
            html,
            "</ul>\n<button class=\"save\" name=\"confirm\" value=\"yes\">{}</button>\n</form>",
            Escaped(&self.texts.confirm)
        )
    }

    fn write_boxes(&self, html: &mut String) -> fmt::Result {
        writeln!(
            html,
            "<div role=\"group\" aria-labelledby=\"introduction\">"
        )?;
        if self.is_paused {
            writeln!(html, "<input type=\"hidden\" name=\"paused\" value=\"on\">")?;
        }
        let number = self.number;
        writeln!(
            html,
            "<input type=\"hidden\" name=\"page\" value=\"{number}\">"
        )?;
        for (index, topic) in self.topics.iter().enumerate() {
            let (name, shown) = (
                Escaped(topic.name),
                if topic.is_checked { "on" } else { "off" },
            );
            let checked = if topic.is_checked { " checked" } else { "" };
            let described = if topic.description.is_empty() {
                String::new()
            } else {
                format!(" aria-describedby=\"about-{index}\"")
            };
            writeln!(
                html,
                "<input type=\"hidden\" name=\"shown:{name}\" value=\"{shown}\">"
            )?;
            writeln!(
                html,
                "<label><input type=\"checkbox\" name=\"topic:{name}\" value=\"on\"{checked}{described}> <span>{}</span></label>",
                Escaped(topic.label),
            )?;
            if !topic.description.is_empty() {
                let text = Escaped(topic.description);
                writeln!(html, "<p class=\"about\" id=\"about-{index}\">{text}</p>")?;
            }
        }
        // The first button of a form is the one that the Enter key presses.
        writeln!(
            html,
            "</div>\n<button class=\"save\">{}</button>",
            Escaped(&self.texts.save)
        )
    }
}

fn write_button(html: &mut String, value: &str, text: &str) -> fmt::Result {
    writeln!(
        html,
        "<button name=\"unsubscribe\" value=\"{value}\">{}</button>",
        Escaped(text)
    )
}

/// A text that is escaped, for a place between tags or in an attribute with double quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;"),
                '<' => f.write_str("&lt;"),
                '>' => f.write_str("&gt;"),
                '"' => f.write_str("&quot;"),
                '\'' => f.write_str("&#39;"),
                other => f.write_char(other),
            }?;
        }
        Ok(())
    }
}

/// Returns the first character and the domain: enough to tell one's own addresses apart, and too little for a stranger
/// to whom the mail was forwarded.
pub(super) fn masked(address: &str) -> String {
    let (name, domain) = address.rsplit_once('@').unwrap_or((address, ""));
    let first: String = name.chars().take(1).collect();
    format!("{first}…@{domain}")
}

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1d1d1f;--soft:#5b5b62;--back:#fff;--line:#8a8a93;--button:#1d4ed8;--on-button:#fff;--notice:#eaf1ff}\
@media (prefers-color-scheme:dark){:root{--text:#f2f2f4;--soft:#b4b4bd;--back:#17171a;--line:#8a8a93;--button:#9dbcff;--on-button:#10204a;--notice:#22304f}}\
*{box-sizing:border-box}\
body{margin:0;background:var(--back);color:var(--text);font:1.0625rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\
main{max-width:34rem;margin:0 auto;padding:2rem 1rem}\
h1{font-size:1.5rem;line-height:1.25;margin:0 0 1rem}\
.notice{background:var(--notice);border-inline-start:.25rem solid var(--button);padding:.75rem 1rem;margin:0 0 1.5rem}\
label{display:flex;align-items:center;gap:.75rem;min-height:44px;padding:.25rem 0;cursor:pointer}\
input[type=checkbox]{flex:none;width:1.5rem;height:1.5rem;margin:0;accent-color:var(--button)}\
.about{margin:0 0 .5rem;padding-inline-start:2.25rem;color:var(--soft);font-size:.9375rem}\
.remark{color:var(--soft);font-size:.9375rem}\
button{display:block;width:100%;min-height:44px;margin:.75rem 0 0;padding:.5rem 1rem;border:1px solid var(--line);border-radius:.5rem;background:transparent;color:inherit;font:inherit;cursor:pointer}\
button.save{background:var(--button);border-color:var(--button);color:var(--on-button);font-weight:600;margin-bottom:1.5rem}\
:focus-visible{outline:3px solid var(--button);outline-offset:2px}";
