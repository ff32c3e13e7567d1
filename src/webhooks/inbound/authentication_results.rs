use std::fmt;
use std::iter;

use serde::{Deserialize, Serialize};

use super::check_result::CheckResult;

/// How much of an inbound message's sender was checked (interface section 6.4), in the form of an
/// `Authentication-Results` header (RFC 8601).
///
/// The text is kept as it came and read where it is asked for; what cannot be read is `None`, and
/// so is what is said twice in different words. The service checks SPF only: DKIM and DMARC always
/// say [`NotEvaluated`](CheckResult::NotEvaluated). All of it is for information, and a
/// pass proves nothing about the `from` address of the message, only about the domain that
/// [`mail_from_domain`](Self::mail_from_domain) gives.
///
/// # Example: who vouches for this message?
///
/// ```
/// use audience::webhooks::{CheckResult, AuthenticationResults};
///
/// let results = AuthenticationResults::from(
///     "mx.example.net; spf=pass smtp.mailfrom=example.com; dkim=not-evaluated; dmarc=not-evaluated",
/// );
///
/// assert_eq!(results.authserv_id(), Some("mx.example.net"));
/// assert_eq!(results.spf(), Some(CheckResult::Pass));
/// assert_eq!(results.mail_from_domain(), Some("example.com"));
/// assert_eq!(results.dkim(), Some(CheckResult::NotEvaluated));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuthenticationResults(String);

impl AuthenticationResults {
    /// The text as it came.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Who did the checking: the name of the service's own mail server.
    #[must_use]
    pub fn authserv_id(&self) -> Option<&str> {
        let first = sections(&self.0).next()?;
        Tokens(first).next().filter(|token| !token.contains('='))
    }

    /// Whether the sending server may send for the domain of the envelope sender.
    #[must_use]
    pub fn spf(&self) -> Option<CheckResult> {
        self.result("spf")
    }

    /// The domain that SPF was checked for, out of `smtp.mailfrom`; an address there counts for its
    /// domain.
    #[must_use]
    pub fn mail_from_domain(&self) -> Option<&str> {
        let sender = said_once(
            self.methods()
                .filter(|method| method.is("spf"))
                .flat_map(|method| method.properties)
                .filter_map(|token| value(token, "smtp.mailfrom")),
        )?;
        let domain = sender.rsplit('@').next()?;
        (!domain.is_empty()).then_some(domain)
    }

    /// What was found about DKIM: always [`NotEvaluated`](CheckResult::NotEvaluated), as
    /// the service is documented.
    #[must_use]
    pub fn dkim(&self) -> Option<CheckResult> {
        self.result("dkim")
    }

    /// What was found about DMARC: always [`NotEvaluated`](CheckResult::NotEvaluated), as
    /// the service is documented.
    #[must_use]
    pub fn dmarc(&self) -> Option<CheckResult> {
        self.result("dmarc")
    }

    fn result(&self, name: &str) -> Option<CheckResult> {
        said_once(
            self.methods()
                .filter(|method| method.is(name))
                .map(|method| CheckResult::from(method.result)),
        )
    }

    fn methods(&self) -> impl Iterator<Item = Method<'_>> {
        sections(&self.0).skip(1).filter_map(Method::read)
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

/// `spf=pass smtp.mailfrom=example.com`, taken apart.
struct Method<'a> {
    name: &'a str,
    result: &'a str,
    properties: Tokens<'a>,
}

impl<'a> Method<'a> {
    fn read(section: &'a str) -> Option<Self> {
        let mut tokens = Tokens(section);
        let (name, result) = tokens.next()?.split_once('=')?;
        // A method may carry a version: `spf/1=pass`.
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

/// The value of `name=value`, without the quotes it may stand in.
fn value<'a>(token: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = token.split_once('=')?;
    let unquoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    key.eq_ignore_ascii_case(name)
        .then_some(unquoted.unwrap_or(value))
}

/// The one thing that is said, however often; `None` where two things are.
///
/// The envelope sender is the sender's to choose. Should its text ever end up in here unescaped, it
/// can unsay a result but not overrule it.
fn said_once<T: PartialEq>(mut said: impl Iterator<Item = T>) -> Option<T> {
    let first = said.next()?;
    said.all(|next| next == first).then_some(first)
}

/// The parts between semicolons.
fn sections(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let text = rest?;
        let (section, after) = text.split_at(end(text, |c| c == ';'));
        rest = after.strip_prefix(';');
        Some(section)
    })
}

/// The parts between white space, without comments.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let text = self.0.trim_start();
            let is_comment = text.starts_with('(');
            let (token, after) = text.split_at(end(text, |c| {
                c.is_whitespace() || (c == '(' && !is_comment)
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

/// Where `stops` first holds outside of quotes and comments.
fn end(text: &str, stops: impl Fn(char) -> bool) -> usize {
    let mut quoted = false;
    let mut depth = 0_usize;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        let inside = quoted || depth > 0;
        match c {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            c if !inside && stops(c) => return at,
            '"' if depth == 0 => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_document_shows_is_read() {
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
    fn comments_quotes_case_versions_and_addresses_are_read() {
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
    fn what_cannot_be_read_is_none_and_keeps_its_text() {
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
    fn a_sender_who_writes_a_result_into_his_domain_gains_nothing() {
        let results = AuthenticationResults::from(
            "mx.example.net; spf=fail smtp.mailfrom=evil.example; spf=pass; dmarc=pass; \
             dmarc=not-evaluated",
        );

        assert_eq!(results.spf(), None);
        assert_eq!(results.dmarc(), None);
    }
}
