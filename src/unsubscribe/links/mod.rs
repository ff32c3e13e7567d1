//! The links that a mail carries, and the tokens in them.

use std::collections::BTreeSet;
use std::env::VarError;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use url::Url;

use super::mail::DAY;
use crate::ConfigError;
use crate::client::builder::is_loopback;
use crate::client::is_path_segment;
use crate::contacts::NewContact;
use crate::secret::{check_secret, is_set, secrets_from_variables};
use crate::webhooks::{Clock, SystemClock};

const SHORTEST_SECRET: usize = 32;
const SHORTEST_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3_600);
/// How long somebody may confirm an address after the mail.
pub(super) const CONFIRMATION_VALIDITY: Duration = Duration::from_secs(3 * 24 * 3_600);
/// The first byte of a token. Each kind of token has a key of its own.
const LINK: u8 = 1;
const CONFIRMATION: u8 = 2;
const NONCE_LENGTH: usize = 24;
const TAG_LENGTH: usize = 16;

/// Makes the unsubscribe links of your mail, and the two headers for one click.
///
/// A link ends with a token. The token says whose link it is, which topic it is about, and on which day it was made. It
/// is encrypted and authenticated with your secret, so nobody can read the address in it or make a token for another
/// address. Whoever has a link can change the topics of its address, as with every unsubscribe link. A link is not
/// stored anywhere: the same address, topic, secret and day give the same link. A link for an address that is empty,
/// `.` or `..` leads to the page for invalid links, because no contact can have such an address.
///
/// A link stays valid for two years. The first secret makes links, and links of each secret are accepted. A program
/// that does not have the secret of a link responds 404 to it, and the opt-out is lost. So replace a secret in two
/// steps:
///
/// 1. Deploy `[old, new]` in every program that makes links or responds to them.
/// 2. When all of them have it, deploy `[new, old]`. Keep the old secret until its last links have expired.
///
/// # Example: the headers of a newsletter
///
/// ```
/// use audience::emails::Email;
/// use audience::unsubscribe::UnsubscribeLinks;
///
/// # let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
/// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/unsubscribe")?;
///
/// let mail = Email::new().from("news@example.com").to("ada@example.com").subject("News");
/// let mail = mail.headers(links.headers("ada@example.com", "news"));
/// let mail = mail.member("text", format!("Your preferences: {}", links.link("ada@example.com")));
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct UnsubscribeLinks {
    /// The keys of all secrets. The first ones make tokens.
    keys: Arc<[Keys]>,
    /// The base URL, with a slash at its end.
    base_url: String,
    valid_for: Duration,
    clock: Arc<dyn Clock>,
}

impl UnsubscribeLinks {
    /// Creates links that are encrypted with the first of these secrets.
    ///
    /// A secret is 32 or more bytes that nobody can guess, such as 32 random bytes or their 64 hexadecimal digits.
    /// Links of all secrets are accepted.
    ///
    /// `base_url` is the public URL of the [`UnsubscribeService`](super::UnsubscribeService). It is an https URL,
    /// because [RFC 8058] requires one, or an http URL of this machine, for tests.
    ///
    /// [RFC 8058]: https://www.rfc-editor.org/rfc/rfc8058#section-3.1
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if there is no secret, if a secret is shorter than 32 bytes, is in quotation marks,
    /// has white space at its start or its end, contains a control character, or is a placeholder in angle brackets,
    /// such as `<the secret of the links in our mails>`, or if `base_url` is no https URL, has a query or a fragment,
    /// or has two slashes in a row in its path.
    ///
    /// # Example: a new secret
    ///
    /// ```
    /// use audience::unsubscribe::UnsubscribeLinks;
    ///
    /// # let new = "New-S3cr3t-0f-32-bytes-0r-m0re-1";
    /// # let old = "0ld-S3cr3t-0f-32-bytes-0r-m0re-1";
    /// // First. When all programs have both, `[new, old]`.
    /// let links = UnsubscribeLinks::new([old, new], "https://shop.example.com/unsubscribe")?;
    ///
    /// assert!(links.link("ada@example.com").starts_with("https://shop.example.com/unsubscribe/"));
    /// assert!(UnsubscribeLinks::new(["too short"], "https://shop.example.com/").is_err());
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn new<S: AsRef<[u8]>>(
        secrets: impl IntoIterator<Item = S>,
        base_url: impl AsRef<str>,
    ) -> Result<Self, ConfigError> {
        let keys = secrets
            .into_iter()
            .map(|secret| Keys::new(secret.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(ConfigError::new("unsubscribe links need a secret"));
        }
        Ok(Self {
            keys: keys.into(),
            base_url: check_base_url(base_url.as_ref())?,
            valid_for: 2 * SHORTEST_VALIDITY,
            clock: Arc::new(SystemClock),
        })
    }

    /// Creates links with the secret of the environment: from `AUDIENCE_UNSUBSCRIBE_SECRET`, or from the file that
    /// `AUDIENCE_UNSUBSCRIBE_SECRET_FILE` names, such as a secret that Docker or Kubernetes mounts.
    ///
    /// Links that were made with the secret of `AUDIENCE_UNSUBSCRIBE_SECRET_ALSO` or of the file that
    /// `AUDIENCE_UNSUBSCRIBE_SECRET_ALSO_FILE` names are accepted, too. To replace the secret, first set this variable
    /// to the **new** one in every program that makes links or responds to them, and leave
    /// `AUDIENCE_UNSUBSCRIBE_SECRET` as it is. When all of them run with both, swap the two. If you replace the secret
    /// again before the last links of the first one have expired, use [`new`](Self::new) with three secrets.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the secret is not set, if both of its variables are set, if a file cannot be read,
    /// or if a secret or `base_url` cannot be used: see [`new`](Self::new). It names the variable, and never contains its
    /// value. It also returns one if `AUDIENCE_UNSUBSCRIBE_SECRET_OLD` is set, because the secrets of
    /// links are replaced in another order than those of webhooks.
    ///
    /// # Example: say which variable is missing
    ///
    /// ```
    /// use audience::unsubscribe::UnsubscribeLinks;
    ///
    /// if let Err(error) = UnsubscribeLinks::from_env("https://shop.example.com/unsubscribe") {
    ///     println!("{error}"); // neither of the environment variables `AUDIENCE_UNSUBSCRIBE_SECRET` and … is set
    /// }
    /// ```
    pub fn from_env(base_url: impl AsRef<str>) -> Result<Self, ConfigError> {
        Self::from_variables(std::env::var, base_url)
    }

    fn from_variables(
        read: impl Fn(&'static str) -> Result<String, VarError>,
        base_url: impl AsRef<str>,
    ) -> Result<Self, ConfigError> {
        for (wrong, right) in [
            (
                "AUDIENCE_UNSUBSCRIBE_SECRET_OLD",
                "AUDIENCE_UNSUBSCRIBE_SECRET_ALSO",
            ),
            (
                "AUDIENCE_UNSUBSCRIBE_SECRET_OLD_FILE",
                "AUDIENCE_UNSUBSCRIBE_SECRET_ALSO_FILE",
            ),
        ] {
            if is_set(&read, wrong) {
                return Err(ConfigError::new(format!(
                    "the environment variable `{wrong}` is not read; unset it, and give the new secret in `{right}` \
                     first: a program that does not have the secret of a link loses the opt-out"
                )));
            }
        }
        let (secret, also) = secrets_from_variables(
            read,
            [
                "AUDIENCE_UNSUBSCRIBE_SECRET",
                "AUDIENCE_UNSUBSCRIBE_SECRET_FILE",
            ],
            [
                "AUDIENCE_UNSUBSCRIBE_SECRET_ALSO",
                "AUDIENCE_UNSUBSCRIBE_SECRET_ALSO_FILE",
            ],
        )?;
        Self::new([secret].into_iter().chain(also), base_url)
    }

    /// Sets how long a link is valid. Default: 730 days.
    ///
    /// This also applies to links that were made before.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if it is less than 365 days: people unsubscribe with old mail.
    ///
    /// # Example: five years
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::unsubscribe::UnsubscribeLinks;
    ///
    /// # let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    /// let days = |days: u64| Duration::from_secs(days * 24 * 3_600);
    /// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/unsubscribe")?;
    ///
    /// assert!(links.clone().valid_for(days(5 * 365)).is_ok());
    /// assert!(links.valid_for(days(30)).is_err());
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn valid_for(mut self, validity: Duration) -> Result<Self, ConfigError> {
        if validity < SHORTEST_VALIDITY {
            return Err(ConfigError::new(
                "unsubscribe links must be valid for at least 365 days",
            ));
        }
        self.valid_for = validity;
        Ok(self)
    }

    /// Sets the clock that says on which day a link is made or used, and when a person opted in: an older bounce does not
    /// count. Default: the system's clock.
    ///
    /// # Example: a link in a mock's time
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use audience::mock::MockServer;
    /// use audience::unsubscribe::UnsubscribeLinks;
    ///
    /// # let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    /// let server = MockServer::start().await;
    /// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/")?.clock(server.clock());
    /// # let _ = links;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Returns the two headers with which a mailbox provider shows a button that opts the recipient out of this topic:
    /// `List-Unsubscribe` and `List-Unsubscribe-Post`, as [RFC 8058] says.
    ///
    /// Each recipient needs headers of their own, so send each mail to one recipient. Both headers must be covered by
    /// the DKIM signature of the mail. The URL is one line: keep the base URL and the name of the topic short, because
    /// a line of a mail has at most 998 characters.
    ///
    /// [RFC 8058]: https://www.rfc-editor.org/rfc/rfc8058
    ///
    /// # Example: the pair
    ///
    /// ```
    /// use audience::unsubscribe::UnsubscribeLinks;
    ///
    /// # let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    /// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/unsubscribe")?;
    ///
    /// let [(name, url), post] = links.headers("ada@example.com", "news");
    ///
    /// assert_eq!(name, "List-Unsubscribe");
    /// assert!(url.starts_with("<https://shop.example.com/unsubscribe/") && url.ends_with('>'));
    /// assert_eq!(post, ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click".to_owned()));
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[must_use]
    pub fn headers(
        &self,
        address: impl AsRef<str>,
        topic: impl AsRef<str>,
    ) -> [(&'static str, String); 2] {
        header_pair(&self.url(&Target::new(address.as_ref(), Some(topic.as_ref()))))
    }

    /// Returns the same headers for a mail that belongs to no topic: one click opts out of all broadcasts.
    ///
    /// # Example: a mail without a topic
    ///
    /// ```
    /// use audience::unsubscribe::UnsubscribeLinks;
    ///
    /// # let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    /// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/unsubscribe")?;
    ///
    /// let [(_, url), _] = links.headers_for_all("ada@example.com");
    ///
    /// assert_eq!(url, format!("<{}>", links.link("ada@example.com")));
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[must_use]
    pub fn headers_for_all(&self, address: impl AsRef<str>) -> [(&'static str, String); 2] {
        header_pair(&self.link(address))
    }

    /// Returns the link to the preference page of an address, for the text of a mail.
    ///
    /// # Example: a footer
    ///
    /// ```
    /// use audience::unsubscribe::UnsubscribeLinks;
    ///
    /// # let secret = "S3cr3t-0f-32-bytes-0r-m0re-1815!";
    /// let links = UnsubscribeLinks::new([secret], "https://shop.example.com/unsubscribe")?;
    ///
    /// let footer = format!("Unsubscribe: {}", links.link("ada@example.com"));
    /// # assert!(footer.is_ascii());
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[must_use]
    pub fn link(&self, address: impl AsRef<str>) -> String {
        self.url(&Target::new(address.as_ref(), None))
    }

    fn url(&self, target: &Target) -> String {
        let token = self.keys[0].link.seal(&target.to_bytes(self.today()));
        self.url_of(&token)
    }

    fn url_of(&self, token: &[u8]) -> String {
        format!("{}{}", self.base_url, BASE64.encode(token))
    }

    /// Returns the content of the link of a confirmation mail that is sent now.
    pub(super) fn confirmation(
        &self,
        mut contact: NewContact,
        topics: BTreeSet<String>,
    ) -> Confirmation {
        contact.email = Target::new(&contact.email, None).address;
        Confirmation {
            contact,
            topics,
            made_at: self.since_1970().as_secs(),
            number: fastrand::u128(..),
        }
    }

    pub(super) fn confirmation_link(&self, confirmation: &Confirmation) -> String {
        let content = serde_json::to_vec(confirmation).expect("texts and a number are valid JSON");
        self.url_of(&self.keys[0].confirmation.seal(&content))
    }

    /// Returns what the link of a confirmation mail confirms. `None` if the token was not made with one of the secrets,
    /// or is no longer valid.
    pub(super) fn open_confirmation(&self, token: &str) -> Option<Confirmation> {
        let token = BASE64.decode(token).ok()?;
        let content = self
            .keys
            .iter()
            .find_map(|keys| keys.confirmation.open(&token))?;
        let confirmation: Confirmation = serde_json::from_slice(&content).ok()?;
        let age = self
            .since_1970()
            .as_secs()
            .saturating_sub(confirmation.made_at);
        (age <= CONFIRMATION_VALIDITY.as_secs()).then_some(confirmation)
    }

    /// Returns the address and the topic of a link. `None` if the token was not made with one of the secrets, is no
    /// longer valid, or names an address that no request can name.
    pub(super) fn open(&self, token: &str) -> Option<Target> {
        let token = BASE64.decode(token).ok()?;
        let content = self.keys.iter().find_map(|keys| keys.link.open(&token))?;
        let target = Target::from_bytes(&content)?;
        let age = self.today().saturating_sub(target.made_on?);
        let is_young = u64::from(age) <= self.valid_for.as_secs() / DAY.as_secs();
        (is_young && is_path_segment(&target.address)).then_some(target)
    }

    fn today(&self) -> u32 {
        let days = self.since_1970().as_secs() / DAY.as_secs();
        u32::try_from(days).unwrap_or(u32::MAX)
    }

    pub(super) fn since_1970(&self) -> Duration {
        let since_1970 = self.clock.now().duration_since(SystemTime::UNIX_EPOCH);
        since_1970.unwrap_or_default()
    }
}

impl fmt::Debug for UnsubscribeLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnsubscribeLinks")
            .field("base_url", &self.base_url)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}

fn header_pair(url: &str) -> [(&'static str, String); 2] {
    [
        ("List-Unsubscribe", format!("<{url}>")),
        (
            "List-Unsubscribe-Post",
            "List-Unsubscribe=One-Click".to_owned(),
        ),
    ]
}

/// Returns the URL with a slash at its end.
fn check_base_url(text: &str) -> Result<String, ConfigError> {
    let invalid =
        |problem: &str| ConfigError::new(format!("the base URL of unsubscribe links {problem}"));
    let url = Url::parse(text.trim()).map_err(|error| invalid(&format!("is invalid: {error}")))?;
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        _ => return Err(invalid("must begin with https://")),
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("must not have a query or a fragment"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("must not have a user name or a password"));
    }
    // This comes most often from `{url}/preferences` with a URL that ends with a slash. No router would find the
    // service there.
    if url.path().trim_end_matches('/').contains("//") {
        return Err(invalid("must not have // in its path: leave out one slash"));
    }
    Ok(format!("{}/", url.as_str().trim_end_matches('/')))
}

/// The content of the token of a confirmation mail.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Confirmation {
    /// With the address in the form in which the client sends it.
    pub(super) contact: NewContact,
    pub(super) topics: BTreeSet<String>,
    /// In seconds since 1970.
    made_at: u64,
    /// Another one for each mail. It need not be hard to guess, because it is encrypted.
    pub(super) number: u128,
}

/// The content of the token of an unsubscribe link.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The address in the form in which the client sends it.
    pub(super) address: String,
    /// `None` means all broadcasts.
    pub(super) topic: Option<String>,
    /// The day on which the link was made, in days since 1970. `None` if no link names the address.
    pub(super) made_on: Option<u32>,
}

impl Target {
    pub(super) fn new(address: &str, topic: Option<&str>) -> Self {
        Self {
            address: crate::contacts::address_in_path(address),
            topic: topic.map(str::to_owned),
            made_on: None,
        }
    }

    /// Returns the day, the length of the topic plus 1 (or 0 without a topic), the topic, and the address. Numbers are
    /// big-endian.
    fn to_bytes(&self, day: u32) -> Vec<u8> {
        let topic = self.topic.as_deref().unwrap_or_default();
        let topic_length = match &self.topic {
            None => 0,
            Some(topic) => u32::try_from(topic.len() + 1).unwrap_or(u32::MAX),
        };
        let mut bytes = Vec::with_capacity(8 + topic.len() + self.address.len());
        bytes.extend_from_slice(&day.to_be_bytes());
        bytes.extend_from_slice(&topic_length.to_be_bytes());
        bytes.extend_from_slice(topic.as_bytes());
        bytes.extend_from_slice(self.address.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (day, rest) = bytes.split_first_chunk()?;
        let (topic_length, rest) = rest.split_first_chunk()?;
        let topic_length = usize::try_from(u32::from_be_bytes(*topic_length)).ok()?;
        let (topic, address) = rest.split_at_checked(topic_length.saturating_sub(1))?;
        let text = |bytes| str::from_utf8(bytes).ok().map(str::to_owned);
        let topic = text(topic)?;
        Some(Self {
            address: text(address)?,
            topic: (topic_length > 0).then_some(topic),
            made_on: Some(u32::from_be_bytes(*day)),
        })
    }
}

/// The keys of one secret.
#[derive(Clone)]
struct Keys {
    link: TokenKey,
    confirmation: TokenKey,
}

impl Keys {
    fn new(secret: &[u8]) -> Result<Self, ConfigError> {
        let name = "the secret of unsubscribe links";
        check_secret(name, secret)?;
        if secret.len() < SHORTEST_SECRET {
            return Err(ConfigError::new(format!(
                "{name} has {} bytes; it needs at least {SHORTEST_SECRET}",
                secret.len()
            )));
        }
        Ok(Self {
            link: TokenKey::new(secret, LINK),
            confirmation: TokenKey::new(secret, CONFIRMATION),
        })
    }
}

/// The key of one kind of token.
#[derive(Clone)]
struct TokenKey {
    version: u8,
    cipher: XChaCha20Poly1305,
    nonces: Hmac<Sha256>,
}

impl TokenKey {
    fn new(secret: &[u8], version: u8) -> Self {
        // All keys of one secret have labels that no other use of the secret has.
        let derive = |key: &str| {
            let label = format!("audience unsubscribe token {version}: {key}");
            let mac = keyed(secret).chain_update(label.as_bytes());
            mac.finalize().into_bytes()
        };
        let cipher_key: [u8; 32] = derive("cipher").into();
        Self {
            version,
            cipher: XChaCha20Poly1305::new(&Key::from(cipher_key)),
            nonces: keyed(&derive("nonce")),
        }
    }

    /// Returns the version, the nonce, and the encrypted content with its tag.
    ///
    /// In Base64, a token whose length is a multiple of three may end with `-` or `_`, which some mail programs take for
    /// the punctuation after a link. The content of such a token gets a space at its end.
    fn seal(&self, content: &[u8]) -> Vec<u8> {
        let is_padded = (1 + NONCE_LENGTH + content.len() + TAG_LENGTH).is_multiple_of(3);
        let padding: &[u8] = if is_padded { b" " } else { b"" };
        let content = &*[content, padding].concat();
        // The nonce is a MAC of the content, as in SIV. Two contents never share one, whatever the state of a random
        // number generator, and making a link cannot fail.
        let mac = self.nonces.clone().chain_update(content).finalize();
        let mut nonce = [0; NONCE_LENGTH];
        nonce.copy_from_slice(&mac.into_bytes()[..NONCE_LENGTH]);
        let payload = Payload {
            msg: content,
            aad: &[self.version],
        };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.expect("an address and topics are shorter than 256 GiB");
        [&[self.version][..], &nonce, &sealed].concat()
    }

    /// Returns the content of a token of this kind. An address and JSON do not end with a space.
    fn open(&self, token: &[u8]) -> Option<Vec<u8>> {
        let (version, rest) = token.split_first()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LENGTH>()?;
        if *version != self.version {
            return None;
        }
        let payload = Payload {
            msg: sealed,
            aad: &[self.version],
        };
        let mut content = self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()?;
        content.pop_if(|last| *last == b' ');
        Some(content)
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

#[cfg(test)]
mod tests;
