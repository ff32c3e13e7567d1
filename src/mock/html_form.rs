//! The form of an HTML page, and what a browser sends of it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::text::quoted_list;

/// The form of an HTML page, for a test that fills it in and sends it as a browser does, such as the form of a
/// preference page.
///
/// It reads the first form that is sent by POST, in HTML as people and templates write it: attributes in any order,
/// with either quotes or none, and with character references such as `&amp;` and `&#39;`. It does not read the address
/// of the form, which should be the page's own URL. It fills in no text, and does not check one of several boxes with one
/// name: write the body of such a form yourself.
///
/// # Example: the form of a preference page
///
/// ```
/// use audience::mock::HtmlForm;
///
/// // In your test, the body of the response to a GET request.
/// let page = r#"<form method="post">
///     <input type="hidden" name="shown:news" value="on">
///     <label><input type="checkbox" name="topic:news" checked> News</label>
///     <label><input type="checkbox" name="topic:offers"> Offers</label>
///     <button>Save</button>
///     <button name="unsubscribe" value="all">Unsubscribe from everything</button>
/// </form>"#;
/// let form = HtmlForm::new(page);
///
/// let saved = form.clone().uncheck("topic:news").check("topic:offers").body();
/// assert_eq!(saved, "shown%3Anews=on&topic%3Aoffers=on");
///
/// let left = form.press("unsubscribe", "all").body();
/// assert_eq!(left, "shown%3Anews=on&topic%3Anews=on&unsubscribe=all");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a form does nothing until its body is sent"]
pub struct HtmlForm {
    /// In the order of the page.
    controls: Vec<Control>,
    /// The index of the button that is pressed. `None` if the form has no button.
    pressed: Option<usize>,
}

impl HtmlForm {
    /// Reads the form of a page, with the boxes as the page shows them.
    ///
    /// # Panics
    ///
    /// Panics if the page has no form that is sent by POST, or if the form has a `select` or a `textarea` with a name,
    /// which this type does not read.
    #[track_caller]
    pub fn new(html: impl AsRef<[u8]>) -> Self {
        let html = String::from_utf8_lossy(html.as_ref());
        let mut tags = Tags { rest: &html };
        if !tags.any(|tag| tag.name == "form" && tag.is("method", "post")) {
            panic!("the page has no form that is sent by POST:\n{html}");
        }
        let controls: Vec<_> = tags
            .take_while(|tag| tag.name != "/form")
            .filter_map(|tag| Control::of(&tag))
            .collect();
        if let Some(unread) = controls.iter().find(|control| control.kind == Kind::Unread) {
            panic!(
                "the form has a `select` or a `textarea`, {:?}, which `HtmlForm` does not read",
                unread.name
            );
        }
        let pressed = controls
            .iter()
            .position(|control| control.kind == Kind::Button);
        Self { controls, pressed }
    }

    /// Checks a box. It may be checked already.
    ///
    /// # Panics
    ///
    /// Panics if the form has no box with this name, or several. A disabled one does not count.
    #[track_caller]
    pub fn check(self, name: &str) -> Self {
        self.set(name, true)
    }

    /// Unchecks a box. It may be empty already.
    ///
    /// # Panics
    ///
    /// Panics if the form has no box with this name, or several. A disabled one does not count.
    #[track_caller]
    pub fn uncheck(self, name: &str) -> Self {
        self.set(name, false)
    }

    /// Presses the button with this name and this value. Default: the first button, as the Enter key does.
    ///
    /// For a button without them, pass empty texts.
    ///
    /// # Panics
    ///
    /// Panics if the form has no such button. A disabled one does not count.
    #[track_caller]
    pub fn press(mut self, name: &str, value: &str) -> Self {
        let is_it = |control: &Control| {
            control.kind == Kind::Button && (&*control.name, &*control.value) == (name, value)
        };
        self.pressed = self.controls.iter().position(is_it);
        if self.pressed.is_none() {
            let controls = self.controls.iter();
            let buttons = controls.filter(|control| control.kind == Kind::Button);
            let names = list(buttons.map(|button| format!("{}={}", button.name, button.value)));
            panic!("the form has no button `{name}={value}`; its buttons: {names}");
        }
        self
    }

    /// Returns whether a box is checked.
    ///
    /// # Panics
    ///
    /// Panics if the form has no box with this name, or several. A disabled one does not count.
    #[must_use]
    #[track_caller]
    pub fn is_checked(&self, name: &str) -> bool {
        self.controls[self.index_of_box(name)].kind == Kind::Box { is_checked: true }
    }

    /// Returns the body of the request that a browser sends, in the media type `application/x-www-form-urlencoded`.
    ///
    /// # Panics
    ///
    /// Panics if the form has no button: nobody could send it.
    #[must_use]
    #[track_caller]
    pub fn body(&self) -> String {
        assert!(
            self.pressed.is_some(),
            "the form has no button that sends it"
        );
        let controls = self.controls.iter().enumerate();
        let sent = controls.filter(|(index, control)| match control.kind {
            _ if control.name.is_empty() => false,
            Kind::Field => true,
            Kind::Box { is_checked } => is_checked,
            Kind::Button => self.pressed == Some(*index),
            Kind::Unread => false,
        });
        let fields = sent
            .map(|(_, control)| format!("{}={}", encoded(&control.name), encoded(&control.value)));
        fields.collect::<Vec<_>>().join("&")
    }

    #[track_caller]
    fn set(mut self, name: &str, is_checked: bool) -> Self {
        let index = self.index_of_box(name);
        self.controls[index].kind = Kind::Box { is_checked };
        self
    }

    #[track_caller]
    fn index_of_box(&self, name: &str) -> usize {
        let controls = self.controls.iter().enumerate();
        let boxes = controls.filter(|(_, control)| matches!(control.kind, Kind::Box { .. }));
        let mut found = boxes.clone().filter(|(_, control)| control.name == name);
        match (found.next(), found.next()) {
            (Some((index, _)), None) => index,
            (Some(_), Some(_)) => panic!("the form has several boxes `{name}`"),
            (None, _) => {
                let names = list(boxes.map(|(_, control)| control.name.clone()));
                panic!("the form has no box `{name}`; its boxes: {names}");
            }
        }
    }
}

/// A part of a form that has a value.
#[derive(Clone, Debug)]
struct Control {
    kind: Kind,
    /// May be empty. Then nothing is sent of it.
    name: String,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// It is always sent.
    Field,
    Box {
        is_checked: bool,
    },
    Button,
    /// Its value is in other tags, or between them.
    Unread,
}

impl Control {
    /// Returns the control that a tag begins. `None` if a browser never sends anything of it.
    fn of(tag: &Tag) -> Option<Self> {
        let attribute = |name| tag.attribute(name).unwrap_or_default();
        let is_checked = tag.attribute("checked").is_some();
        let (kind, default) = match (&*tag.name, &*attribute("type").to_ascii_lowercase()) {
            _ if tag.attribute("disabled").is_some() => return None,
            ("button" | "input", "button" | "reset") | ("input", "file" | "image") => return None,
            ("button", _) | ("input", "submit") => (Kind::Button, ""),
            ("input", "checkbox") => (Kind::Box { is_checked }, "on"),
            ("input", "radio") if !is_checked => return None,
            ("input", "radio") => (Kind::Field, "on"),
            ("input", _) => (Kind::Field, ""),
            ("select" | "textarea", _) if !attribute("name").is_empty() => (Kind::Unread, ""),
            _ => return None,
        };
        Some(Self {
            kind,
            name: attribute("name").to_owned(),
            value: tag.attribute("value").unwrap_or(default).to_owned(),
        })
    }
}

struct Tag {
    /// In lower case. That of an end tag begins with a slash.
    name: String,
    /// The names are in lower case.
    attributes: Vec<(String, String)>,
}

impl Tag {
    fn attribute(&self, name: &str) -> Option<&str> {
        // If there are several, the first one counts.
        let attribute = self.attributes.iter().find(|(other, _)| other == name);
        attribute.map(|(_, value)| value.as_str())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.attribute(name)
            .is_some_and(|other| other.eq_ignore_ascii_case(value))
    }
}

/// The tags of a page.
struct Tags<'h> {
    rest: &'h str,
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let begins_name = |first: char| first == '/' || first.is_ascii_alphabetic();
        loop {
            (_, self.rest) = self.rest.split_once('<')?;
            match self.rest.strip_prefix("!--") {
                Some(comment) => (_, self.rest) = comment.split_once("-->")?,
                None if self.rest.starts_with(begins_name) => break,
                None => {}
            }
        }
        let end = self.rest[1..]
            .find(|next: char| next.is_ascii_whitespace() || "/>".contains(next))?
            + 1;
        let name = self.rest[..end].to_ascii_lowercase();
        let (attributes, rest) = attributes(&self.rest[end..]);
        self.rest = rest;
        if ["script", "style", "template", "textarea", "title"].contains(&&*name) {
            // Nothing in it is a tag of the page.
            let end = rest.to_ascii_lowercase().find(&format!("</{name}"));
            self.rest = &rest[end.unwrap_or(rest.len())..];
        }
        Some(Tag { name, attributes })
    }
}

/// Reads the attributes of a tag. Returns the text after the tag, too.
fn attributes(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start_matches(|next: char| next.is_ascii_whitespace() || next == '/');
        if rest.is_empty() {
            return (attributes, rest);
        }
        if let Some(rest) = rest.strip_prefix('>') {
            return (attributes, rest);
        }
        let end = rest.find(|next: char| next.is_ascii_whitespace() || "/>=".contains(next));
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after.trim_ascii_start();
        let mut value = "";
        if let Some(text) = rest.strip_prefix('=') {
            (value, rest) = attribute_value(text.trim_ascii_start());
        }
        attributes.push((name.to_ascii_lowercase(), decoded(value)));
    }
}

fn attribute_value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(text) = text.strip_prefix(quote) {
            return text.split_once(quote).unwrap_or((text, ""));
        }
    }
    let end = text.find(|next: char| next.is_ascii_whitespace() || next == '>');
    text.split_at(end.unwrap_or(text.len()))
}

/// Decodes the character references that programs write. Any other one stays as it is.
fn decoded(mut text: &str) -> String {
    let mut decoded = String::new();
    while let Some((before, after)) = text.split_once('&') {
        decoded += before;
        let reference = after.split_once(';');
        let reference = reference.and_then(|(name, rest)| Some((character(name)?, rest)));
        let (character, rest) = reference.unwrap_or(('&', after));
        decoded.push(character);
        text = rest;
    }
    decoded + text
}

fn character(reference: &str) -> Option<char> {
    Some(match reference {
        "amp" => '&',
        "apos" => '\'',
        "gt" => '>',
        "lt" => '<',
        "nbsp" => '\u{a0}',
        "quot" => '"',
        _ => {
            let number = reference.strip_prefix('#')?;
            let number = match number.strip_prefix(['x', 'X']) {
                Some(number) => u32::from_str_radix(number, 16),
                None => number.parse(),
            };
            char::from_u32(number.ok()?)?
        }
    })
}

/// The characters that a browser encodes in a form. It writes a space as a plus sign.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b' ')
    .remove(b'*')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED)
        .to_string()
        .replace(' ', "+")
}

fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<_> = names.collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => quoted_list(&names),
    }
}
