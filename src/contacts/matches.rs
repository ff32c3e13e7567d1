use super::Contacts;
use crate::Error;
use crate::client::{
    CallOptions, ResponseFuture, TakesOptions, call_settings, opaque_debug, wait_for_call,
};
use crate::rule::Rule;

impl Contacts {
    /// Returns whether a contact matches a rule now. The rule may be a single [`Condition`](crate::rule::Condition).
    ///
    /// The service has no such request. So the call retrieves the contact, and then looks for its address among the
    /// contacts that match the rule. [`matches_each`](Self::matches_each) takes several rules, and retrieves the
    /// contact only once.
    ///
    /// # Errors
    ///
    /// - `not_found` (404) if the address is not one of your contacts: [`Error::is_not_found`]. The call
    ///   [makes sure](crate::contacts#a-404-is-no-proof) of it.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the address is empty, `.` or `..`, or if the rule cannot be
    ///   sent: see [`list`](Self::list). Nothing was sent.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the contact is not listed, but a listed item is malformed
    ///   and may be the contact, or if the contact in the response has another address: see [`find`](Self::find).
    /// - The errors of [`retrieve`](Self::retrieve) and [`list`](Self::list).
    ///
    /// # Example: whether a mail bounced lately
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::rule::{Condition, Engagement};
    ///
    /// let bounced = Condition::engagement(Engagement::Bounced).within_days(30);
    ///
    /// assert!(!contacts.matches("ada@example.com", bounced).await?);
    /// # Ok(()) }
    /// ```
    pub fn matches(&self, address: impl Into<String>, rule: impl Into<Rule>) -> MatchRule {
        MatchRule {
            contacts: self.clone(),
            address: address.into(),
            rule: rule.into(),
            options: CallOptions::default(),
        }
    }

    /// Returns for each of these rules, in their order, whether a contact matches it now.
    ///
    /// It retrieves the contact once, and then lists once for each rule, as [`matches`](Self::matches) does. These requests
    /// share the deadline of the call, by default 45 s: for many rules, set a longer [`deadline`](MatchRules::deadline).
    ///
    /// # Errors
    ///
    /// The errors of [`matches`](Self::matches). No partial result is returned.
    ///
    /// # Example: what happened to the mail of the last 30 days
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let opened = audience::mock::EngagementKind::Opened;
    /// # server.record_engagement("ada@example.com", opened, std::time::SystemTime::now());
    /// # let contacts = server.client().contacts();
    /// use audience::rule::{Condition, Engagement};
    ///
    /// let kinds = [Engagement::Bounced, Engagement::Opened];
    /// let rules = kinds.map(|kind| Condition::engagement(kind).within_days(30));
    ///
    /// assert_eq!(contacts.matches_each("ada@example.com", rules).await?, [false, true]);
    /// # Ok(()) }
    /// ```
    pub fn matches_each(
        &self,
        address: impl Into<String>,
        rules: impl IntoIterator<Item = impl Into<Rule>>,
    ) -> MatchRules {
        MatchRules {
            contacts: self.clone(),
            address: address.into(),
            rules: rules.into_iter().map(Into::into).collect(),
            options: CallOptions::default(),
        }
    }
}

/// Finds out whether a contact matches a rule when it is awaited: see [`Contacts::matches`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct MatchRule {
    contacts: Contacts,
    address: String,
    rule: Rule,
    options: CallOptions,
}

call_settings!(MatchRule);
wait_for_call!(MatchRule => Result<bool, Error>);
opaque_debug!(MatchRule);

impl IntoFuture for MatchRule {
    type Output = Result<bool, Error>;
    type IntoFuture = ResponseFuture<bool>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            contacts,
            address,
            rule,
            options,
        } = self;
        let each = contacts.matches_each(address, [rule]).options(options);
        ResponseFuture::new(async {
            let matches = each.send().await.map_err(|error| error.at("matches"))?;
            Ok(matches == [true])
        })
    }
}

/// Finds out which rules a contact matches when it is awaited: see [`Contacts::matches_each`].
///
/// The timeout and the retry policy apply to each request, the deadline to the whole call.
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct MatchRules {
    contacts: Contacts,
    address: String,
    rules: Vec<Rule>,
    options: CallOptions,
}

impl MatchRules {
    async fn send(self) -> Result<Vec<bool>, Error> {
        // If a later request could not be sent, nothing is sent.
        for rule in &self.rules {
            rule.to_json()?;
        }
        // All requests of the call share one deadline.
        let options = self.contacts.client.start_reads(self.options);
        // The list has neither an unknown address nor a contact that does not match. An unknown address is an error, so
        // it is found out first.
        let retrieving = self.contacts.retrieve_surely(&self.address, &options);
        let address = retrieving.await?.email;
        let mut matches = Vec::with_capacity(self.rules.len());
        for rule in self.rules {
            let list = self.contacts.list().options(options.clone());
            matches.push(list.rule(rule).has_stored(&address).await?);
        }
        Ok(matches)
    }
}

call_settings!(MatchRules);
wait_for_call!(MatchRules => Result<Vec<bool>, Error>);
opaque_debug!(MatchRules);

impl IntoFuture for MatchRules {
    type Output = Result<Vec<bool>, Error>;
    type IntoFuture = ResponseFuture<Vec<bool>>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(async { self.send().await.map_err(|error| error.at("matches_each")) })
    }
}
