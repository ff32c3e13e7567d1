//! The data of `email.received` (interface section 6.4).

use std::fmt;
use std::iter;

use serde::{Deserialize, Serialize};

use super::mail::{text_or_empty, unless_empty};
use crate::string_enum::string_enum;

/// A message received at a domain with inbound switched on ([interface section 6.4](crate::interface#6.4)).
///
/// Only `inbound_id`, `from` and `to` must be in the JSON. A member that is missing, `null` or no string is empty or
/// `None`. In an [`Event`](super::Event), half a surrogate pair in another member, such as at the end of a text that
/// was cut, is read as U+FFFD.
///
/// # Example: data for your own test
///
/// ```
/// use audience::webhooks::InboundMail;
///
/// let mut mail = InboundMail::new("in_1", "ada@example.com", ["us@example.com"], "Re: Hi");
/// mail.text = "Yes, please.".to_owned();
/// mail.in_reply_to_email_id = Some("em_1".to_owned());
/// mail.authentication_results =
///     "mx.example.com; spf=pass smtp.mailfrom=example.com".into();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InboundMail {
    /// The id of the received message.
    pub inbound_id: String,
    /// The sender, as the message states it.
    pub from: String,
    /// The recipients that the message was addressed to.
    pub to: Vec<String>,
    /// The message's subject; empty if the event does not state it.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub subject: String,
    /// The id of your own message that this one replies to; `None` if it is not a reply.
    #[serde(
        default,
        deserialize_with = "unless_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub in_reply_to_email_id: Option<String>,
    /// The message's text, without the quoted reply and the signature block; empty if the event does not
    /// state it.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub text: String,
    /// The checks of the sender; empty if the event does not state them. They are for reporting only: the
    /// service refuses no mail because of them.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub authentication_results: AuthenticationResults,
}

impl InboundMail {
    /// Creates a message that is not a reply, without text and authentication results.
    ///
    /// # Example: a test of your own code for replies
    ///
    /// ```
    /// use audience::webhooks::InboundMail;
    ///
    /// fn is_reply(mail: &InboundMail) -> bool {
    ///     mail.in_reply_to_email_id.is_some()
    /// }
    ///
    /// let mail = InboundMail::new("in_1", "ada@example.com", ["us@example.com"], "Hello");
    /// assert!(!is_reply(&mail));
    /// ```
    #[must_use]
    pub fn new(
        inbound_id: impl Into<String>,
        from: impl Into<String>,
        to: impl IntoIterator<Item = impl Into<String>>,
        subject: impl Into<String>,
    ) -> Self {
        Self {
            inbound_id: inbound_id.into(),
            from: from.into(),
            to: to.into_iter().map(Into::into).collect(),
            subject: subject.into(),
            in_reply_to_email_id: None,
            text: String::new(),
            authentication_results: AuthenticationResults::default(),
        }
    }
}

/// The authentication results of an inbound message (interface section 6.4), in the form of an
/// `Authentication-Results` header (RFC 8601).
///
/// The text is kept unchanged and parsed on request. A method returns `None` if its part is missing,
/// cannot be parsed, or occurs more than once with different values. The service checks SPF only:
/// DKIM and DMARC are always [`NotEvaluated`](CheckResult::NotEvaluated).
///
/// The results are for reporting only. An SPF pass proves nothing about the `from` address of the
/// message. It only concerns the domain that [`mail_from_domain`](Self::mail_from_domain) returns.
///
/// # Example: the SPF result and its domain
///
/// ```
/// use audience::webhooks::{AuthenticationResults, CheckResult};
///
/// let results = AuthenticationResults::from(
///     "mx.example.net; spf=pass smtp.mailfrom=example.com; dkim=not-evaluated; dmarc=not-evaluated",
/// );
///
/// assert_eq!(results.spf(), Some(CheckResult::Pass));
/// assert_eq!(results.mail_from_domain(), Some("example.com"));
/// assert_eq!(results.dkim(), Some(CheckResult::NotEvaluated));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuthenticationResults(String);

impl AuthenticationResults {
    /// Returns the text unchanged.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the mail server that performed the checks.
    ///
    /// # Example: the name before the results
    ///
    /// ```
    /// use audience::webhooks::AuthenticationResults;
    ///
    /// let results = AuthenticationResults::from("mx.example.net; spf=pass");
    ///
    /// assert_eq!(results.authserv_id(), Some("mx.example.net"));
    /// ```
    #[must_use]
    pub fn authserv_id(&self) -> Option<&str> {
        let first = sections(&self.0).next()?;
        Tokens(first).next().filter(|token| !token.contains('='))
    }

    /// Returns the SPF result: whether the sending server may send for the domain of the envelope
    /// sender.
    ///
    /// # Example: results that contradict each other
    ///
    /// ```
    /// use audience::webhooks::{AuthenticationResults, CheckResult};
    ///
    /// let results = AuthenticationResults::from("mx.example.net; spf=softfail");
    /// assert_eq!(results.spf(), Some(CheckResult::SoftFail));
    ///
    /// let results = AuthenticationResults::from("mx.example.net; spf=pass; spf=fail");
    /// assert_eq!(results.spf(), None);
    /// ```
    #[must_use]
    pub fn spf(&self) -> Option<CheckResult> {
        self.result("spf")
    }

    /// Returns the domain that the SPF check was about, from `smtp.mailfrom`, which may be a domain or an
    /// address.
    ///
    /// # Example: a domain to show next to the sender
    ///
    /// ```
    /// use audience::webhooks::AuthenticationResults;
    ///
    /// let results = AuthenticationResults::from("mx.example.net; spf=pass smtp.mailfrom=bounce@example.com");
    ///
    /// assert_eq!(results.mail_from_domain(), Some("example.com"));
    /// ```
    #[must_use]
    pub fn mail_from_domain(&self) -> Option<&str> {
        let sender = unanimous(
            self.methods()
                .filter(|method| method.is("spf"))
                .flat_map(|method| method.properties)
                .filter_map(|token| value(token, "smtp.mailfrom")),
        )?;
        // From the right: the local part of an address may contain an `@` in quotes.
        let domain = sender.rsplit('@').next()?;
        (!domain.is_empty()).then_some(domain)
    }

    /// Returns the DKIM result: always [`NotEvaluated`](CheckResult::NotEvaluated) from this
    /// service.
    ///
    /// # Example: a check that the service does not perform
    ///
    /// ```
    /// use audience::webhooks::{AuthenticationResults, CheckResult};
    ///
    /// let results = AuthenticationResults::from("mx.example.net; spf=pass; dkim=not-evaluated");
    ///
    /// assert_eq!(results.dkim(), Some(CheckResult::NotEvaluated));
    /// assert_eq!(results.dmarc(), None);
    /// ```
    #[must_use]
    pub fn dkim(&self) -> Option<CheckResult> {
        self.result("dkim")
    }

    /// Returns the DMARC result: always [`NotEvaluated`](CheckResult::NotEvaluated) from this
    /// service.
    #[must_use]
    pub fn dmarc(&self) -> Option<CheckResult> {
        self.result("dmarc")
    }

    fn result(&self, name: &str) -> Option<CheckResult> {
        unanimous(
            self.methods()
                .filter(|method| method.is(name))
                .map(|method| CheckResult::from(method.result)),
        )
    }

    fn methods(&self) -> impl Iterator<Item = Method<'_>> {
        // A quote or a comment that is never closed may hide the results of the service.
        let text = if is_closed(&self.0) { &*self.0 } else { "" };
        // The first section is the name of the server.
        sections(text).skip(1).filter_map(Method::parse)
    }
}

impl From<&str> for AuthenticationResults {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for AuthenticationResults {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for AuthenticationResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The parts of a section such as `spf=pass smtp.mailfrom=example.com`.
struct Method<'a> {
    name: &'a str,
    result: &'a str,
    properties: Tokens<'a>,
}

impl<'a> Method<'a> {
    fn parse(section: &'a str) -> Option<Self> {
        let mut tokens = Tokens(section);
        let (name, result) = tokens.next()?.split_once('=')?;
        // A method may have a version: `spf/1=pass`.
        let name = name.split('/').next()?;
        (!result.is_empty()).then_some(Self {
            name,
            result,
            properties: tokens,
        })
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Returns the value of `name=value`, without quotes.
fn value<'a>(token: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = token.split_once('=')?;
    let unquoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    key.eq_ignore_ascii_case(name)
        .then_some(unquoted.unwrap_or(value))
}

/// Returns the value if all values are equal, and `None` otherwise.
///
/// The sender chooses the envelope sender. If its text is ever included without escaping, it can hide
/// a result but not replace it.
fn unanimous<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|next| next == first).then_some(first)
}

/// Splits at semicolons outside of quotes and comments.
fn sections(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let text = rest?;
        let (section, after) = text.split_at(end(text, |c| c == ';'));
        rest = after.strip_prefix(';');
        Some(section)
    })
}

/// Splits at white space, and skips comments.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let text = self.0.trim_start();
            let is_comment = text.starts_with('(');
            let mut is_begun = false;
            let (token, after) = text.split_at(end(text, |c| match is_comment {
                // At the first character after it.
                true => std::mem::replace(&mut is_begun, true),
                false => c.is_whitespace() || c == '(',
            }));
            self.0 = after;
            match token {
                "" => return None,
                _ if is_comment => {}
                token => return Some(token),
            }
        }
    }
}

/// Returns the index of the first character outside of quotes and comments for which `stops` is true.
fn end(text: &str, mut stops: impl FnMut(char) -> bool) -> usize {
    let mut place = Place::default();
    let mut characters = text.char_indices();
    let end = characters.find(|(_, c)| {
        // The envelope sender may contain a semicolon in quotes. It must not begin another result.
        let stops = !place.is_inside() && stops(*c);
        place.pass(*c);
        stops
    });
    end.map_or(text.len(), |(at, _)| at)
}

/// Returns whether each quote and each comment ends.
fn is_closed(text: &str) -> bool {
    let mut place = Place::default();
    text.chars().for_each(|c| place.pass(c));
    !place.is_inside()
}

/// A place in the text: within quotes, within comments, or in neither.
#[derive(Default)]
struct Place {
    is_quoted: bool,
    comments: usize,
    is_escaped: bool,
}

impl Place {
    fn is_inside(&self) -> bool {
        self.is_quoted || self.comments > 0
    }

    fn pass(&mut self, c: char) {
        match c {
            // A backslash takes the meaning of a quote or a parenthesis away, but only within one of them.
            _ if self.is_escaped => self.is_escaped = false,
            '\\' if self.is_inside() => self.is_escaped = true,
            '"' if self.comments == 0 => self.is_quoted = !self.is_quoted,
            // Comments nest (RFC 5322).
            '(' if !self.is_quoted => self.comments += 1,
            ')' if self.comments > 0 => self.comments -= 1,
            _ => {}
        }
    }
}

string_enum! {
    /// The result of an SPF, DKIM or DMARC check, named as in RFC 8601, which ignores case.
    ///
    /// # Example: upper and lower case are the same
    ///
    /// ```
    /// use audience::webhooks::CheckResult;
    ///
    /// assert_eq!(CheckResult::from("Pass"), CheckResult::Pass);
    /// assert_eq!(CheckResult::SoftFail.as_str(), "softfail");
    /// ```
    pub enum CheckResult ignoring case {
        /// `pass`: the check passed.
        Pass = "pass",
        /// `fail`: the check failed.
        Fail = "fail",
        /// `softfail`: the message is probably not from this domain, by its owner's policy.
        SoftFail = "softfail",
        /// `neutral`: the domain's owner makes no statement.
        Neutral = "neutral",
        /// `none`: the domain publishes nothing to check against.
        None = "none",
        /// `temperror`: a temporary error prevented the check.
        TempError = "temperror",
        /// `permerror`: a permanent error prevents the check.
        PermError = "permerror",
        /// `not-evaluated`: the service does not perform this check. It does not count for or against the message.
        NotEvaluated = "not-evaluated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_shown_in_the_document_is_parsed() {
        let results = AuthenticationResults::from(
            "mx.example.net; spf=softfail smtp.mailfrom=example.com; dkim=not-evaluated; dmarc=not-evaluated",
        );

        assert_eq!(results.authserv_id(), Some("mx.example.net"));
        assert_eq!(results.spf(), Some(CheckResult::SoftFail));
        assert_eq!(results.mail_from_domain(), Some("example.com"));
        assert_eq!(results.dkim(), Some(CheckResult::NotEvaluated));
        assert_eq!(results.dmarc(), Some(CheckResult::NotEvaluated));
    }

    #[test]
    fn comments_quotes_case_versions_and_addresses_are_parsed() {
        let results = AuthenticationResults::from(
            "mx.example.net 1 (the (first) one; \\) yes);\r\n SPF/1=Pass (good; really) \
             SMTP.MailFrom=\"ada;spf=fail@example.com\" ;dkim=odd(why);",
        );

        assert_eq!(results.authserv_id(), Some("mx.example.net"));
        assert_eq!(results.spf(), Some(CheckResult::Pass));
        assert_eq!(results.mail_from_domain(), Some("example.com"));
        assert_eq!(results.dkim(), Some(CheckResult::Other("odd".to_owned())));
        assert_eq!(results.dmarc(), None);
    }

    #[test]
    fn a_backslash_in_a_comment_or_in_quotes_takes_the_meaning_of_the_next_character_away() {
        for hidden in [r"(\); spf=fail)", r#"mail="\"; spf=fail""#] {
            let results = AuthenticationResults::from(format!("mx; dkim=pass {hidden}; spf=none"));

            assert_eq!(results.spf(), Some(CheckResult::None), "{hidden}");
        }
    }

    #[test]
    fn a_quote_in_a_comment_quotes_nothing() {
        let results = AuthenticationResults::from("mx; spf=pass (5\" wide); dkim=fail");

        assert_eq!(results.dkim(), Some(CheckResult::Fail));
    }

    #[test]
    fn the_results_and_their_names_are_printed_as_they_were_sent() {
        let text = "mx.example.net; spf=pass";

        assert_eq!(AuthenticationResults::from(text).to_string(), text);
        for name in [
            "pass",
            "fail",
            "softfail",
            "neutral",
            "none",
            "temperror",
            "permerror",
        ] {
            let result = CheckResult::from(name.to_uppercase().as_str());
            assert_eq!(
                (result.as_str(), result.to_string()),
                (name, name.to_owned())
            );
        }
        assert_eq!(CheckResult::from("Odd").as_str(), "Odd");
    }

    #[test]
    fn a_comment_takes_no_text_after_it_away() {
        let results = AuthenticationResults::from(
            "(a)mx.example.net; (b)spf=fail (c)(d)smtp.mailfrom=example.com; spf=pass; dkim=(e)none",
        );

        assert_eq!(results.authserv_id(), Some("mx.example.net"));
        // Two results that contradict each other.
        assert_eq!(results.spf(), None);
        assert_eq!(results.mail_from_domain(), Some("example.com"));
        assert_eq!(results.dkim(), None);
    }

    #[test]
    fn malformed_text_has_no_results_and_is_kept() {
        for text in [
            "",
            ";",
            ";;;",
            "spf=",
            "=",
            "(",
            "\"",
            "\\",
            "; spf",
            "\u{feff}; =pass",
            "a=b; spf =pass",
        ] {
            let results = AuthenticationResults::from(text);

            assert_eq!(results.spf(), None, "{text:?}");
            assert_eq!(results.mail_from_domain(), None, "{text:?}");
            assert_eq!(results.as_str(), text);
        }
    }

    #[test]
    fn a_sender_who_includes_a_result_in_the_domain_gains_nothing() {
        let results = AuthenticationResults::from(
            "mx.example.net; spf=fail smtp.mailfrom=evil.example; spf=pass; dmarc=pass; \
             dmarc=not-evaluated",
        );

        assert_eq!(results.spf(), None);
        assert_eq!(results.dmarc(), None);

        for open in ["(", "\"", "((a)", "(\"", "\"\\\""] {
            let results = AuthenticationResults::from(format!(
                "mx.example.net; spf=fail smtp.mailfrom=evil.example; dmarc=pass; dkim=pass {open}; \
                 dkim=not-evaluated; dmarc=not-evaluated"
            ));

            assert_eq!((results.dmarc(), results.dkim()), (None, None), "{open}");
            assert_eq!(results.authserv_id(), Some("mx.example.net"));
        }
    }
}
