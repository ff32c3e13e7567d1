use std::fmt;

use serde::{Deserialize, Serialize};

use super::Contacts;
use crate::Error;
use crate::client::{
    CallOptions, ResponseFuture, TakesOptions, call_settings, opaque_debug, wait_for_call,
};
use crate::rule::{Condition, Engagement};

/// The periods that are asked for, in days.
const PERIODS: [u32; 5] = [1, 7, 30, 90, 365];

impl Contacts {
    /// Returns when mail to a contact was last delivered, opened, clicked, bounced and reported as spam.
    ///
    /// The service has no such request. So the call retrieves the contact, and then asks by rules whether each of these
    /// things happened ever, and within 1, 7, 30, 90 or 365 days. That takes up to 21 requests, and more if a list has
    /// further pages. To ask for one period, use [`matches`](Self::matches).
    ///
    /// The requests are sent one after the other, and share the deadline of the call, by default 45 s. If the service
    /// takes seconds for a list, set a longer [`deadline`](RetrieveHistory::deadline).
    ///
    /// # Errors
    ///
    /// The errors of [`matches`](Self::matches), such as `not_found` (404). No partial result is returned.
    ///
    /// # Example: what a support tool shows
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let opened = audience::mock::EngagementKind::Opened;
    /// # server.record_engagement("ada@example.com", opened, std::time::SystemTime::now());
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::LastTime;
    ///
    /// let history = contacts.history("ada@example.com").await?;
    ///
    /// println!("{history}"); // delivered never, opened within 1 day, clicked never, …
    /// assert_eq!((history.opened, history.bounced), (LastTime::WithinDays(1), LastTime::Never));
    /// # Ok(()) }
    /// ```
    pub fn history(&self, address: impl Into<String>) -> RetrieveHistory {
        RetrieveHistory {
            contacts: self.clone(),
            address: address.into(),
            options: CallOptions::default(),
        }
    }
}

/// When something happened to the mail of a contact for the last time: the result of [`Contacts::history`].
///
/// Many mail programs load no images, or load all of them on their own. So [`opened`](Self::opened) is a hint, and
/// [`clicked`](Self::clicked) says more.
///
/// `Display` writes it for a person, in one line: `delivered within 1 day, opened within 1 day, clicked never, bounced
/// never, reported as spam never`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct History {
    /// A message bounced.
    pub bounced: LastTime,
    /// A link in a message was followed.
    pub clicked: LastTime,
    /// A message was reported as spam.
    pub complained: LastTime,
    /// A message was delivered.
    pub delivered: LastTime,
    /// A message was opened.
    pub opened: LastTime,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bounced,
            clicked,
            complained,
            delivered,
            opened,
        } = self;
        write!(
            f,
            "delivered {delivered}, opened {opened}, clicked {clicked}, bounced {bounced}, reported as spam {complained}"
        )
    }
}

/// When something happened for the last time, as far as rules can say.
///
/// `Display` writes it for a person: `never`, `within 30 days`, `more than a year ago`. Its JSON is
/// `{"ever": true, "within_days": 30}`; `within_days` is `null` if it never happened, or more than a year ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "LastTimeForm", into = "LastTimeForm")]
pub enum LastTime {
    /// It never happened.
    #[default]
    Never,
    /// It happened within this number of days: 1, 7, 30, 90 or 365, and not within a smaller one of them.
    WithinDays(u32),
    /// It happened more than 365 days ago.
    MoreThanAYearAgo,
}

impl fmt::Display for LastTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.pad("never"),
            Self::WithinDays(1) => f.pad("within 1 day"),
            Self::WithinDays(days) => f.pad(&format!("within {days} days")),
            Self::MoreThanAYearAgo => f.pad("more than a year ago"),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct LastTimeForm {
    ever: bool,
    within_days: Option<u32>,
}

impl From<LastTimeForm> for LastTime {
    fn from(form: LastTimeForm) -> Self {
        match (form.ever, form.within_days) {
            (_, Some(days)) => Self::WithinDays(days),
            (true, None) => Self::MoreThanAYearAgo,
            (false, None) => Self::Never,
        }
    }
}

impl From<LastTime> for LastTimeForm {
    fn from(last: LastTime) -> Self {
        let within_days = match last {
            LastTime::WithinDays(days) => Some(days),
            LastTime::Never | LastTime::MoreThanAYearAgo => None,
        };
        Self {
            ever: last != LastTime::Never,
            within_days,
        }
    }
}

/// Finds out what happened to the mail of a contact when it is awaited: see [`Contacts::history`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct RetrieveHistory {
    contacts: Contacts,
    address: String,
    options: CallOptions,
}

impl RetrieveHistory {
    async fn send(mut self) -> Result<History, Error> {
        // All requests of the call share one deadline.
        self.options = self.contacts.client.start_reads(self.options);
        // No list has an unknown address, so it is found out first.
        let retrieving = self.contacts.retrieve_surely(&self.address, &self.options);
        self.address = retrieving.await?.email;
        self.ask().await
    }

    /// Sends only the lists, for an address as the service has shown it.
    #[cfg(feature = "cli")]
    pub(crate) async fn of_retrieved(mut self) -> Result<History, Error> {
        self.options = self.contacts.client.start_reads(self.options);
        self.ask().await.map_err(|error| error.at("history"))
    }

    async fn ask(&self) -> Result<History, Error> {
        Ok(History {
            bounced: self.last(Engagement::Bounced).await?,
            clicked: self.last(Engagement::Clicked).await?,
            complained: self.last(Engagement::Complained).await?,
            delivered: self.last(Engagement::Delivered).await?,
            opened: self.last(Engagement::Opened).await?,
        })
    }

    async fn last(&self, what: Engagement) -> Result<LastTime, Error> {
        if !self
            .has_happened(Condition::engagement(what).ever())
            .await?
        {
            return Ok(LastTime::Never);
        }
        // The shortest period is in `from..=to`. The end of the list stands for a longer one.
        let (mut from, mut to) = (0, PERIODS.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            let within = Condition::engagement(what).within_days(PERIODS[middle]);
            match self.has_happened(within).await? {
                true => to = middle,
                false => from = middle + 1,
            }
        }
        let shortest = PERIODS.get(from).copied();
        Ok(shortest.map_or(LastTime::MoreThanAYearAgo, LastTime::WithinDays))
    }

    async fn has_happened(&self, condition: Condition) -> Result<bool, Error> {
        let list = self.contacts.list().options(self.options.clone());
        list.rule(condition).has_stored(&self.address).await
    }
}

call_settings!(RetrieveHistory);
wait_for_call!(RetrieveHistory => Result<History, Error>);
opaque_debug!(RetrieveHistory);

impl IntoFuture for RetrieveHistory {
    type Output = Result<History, Error>;
    type IntoFuture = ResponseFuture<History>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(async { self.send().await.map_err(|error| error.at("history")) })
    }
}
