//! The methods that [`MockServer`](super::MockServer) and `MockService` have in common, and those of their builders.

/// Defines the builder methods that set the `settings` field and add to the `seeds` field.
macro_rules! settings_methods {
    () => {
        /// Sets the full-access key, which may call every endpoint. Default: `mock-full-access-key`.
        pub fn full_key(mut self, key: impl Into<String>) -> Self {
            self.settings.full_key = Some(key.into());
            self
        }

        /// Sets the sending-access key, which may only send mail (interface section 5). Default:
        /// `mock-sending-access-key`.
        pub fn sending_key(mut self, key: impl Into<String>) -> Self {
            self.settings.sending_key = Some(key.into());
            self
        }

        /// Sets the header that holds the bare key. Default: `Authorization`, with `Bearer` before the key.
        ///
        /// # Panics
        ///
        /// Panics if `name` is not a valid header name.
        #[track_caller]
        pub fn auth_header(mut self, name: impl Into<String>) -> Self {
            let name = name.into();
            match http::HeaderName::from_bytes(name.as_bytes()) {
                Ok(name) => self.settings.key_header = Some(name.as_str().to_owned()),
                Err(_) => panic!("{name:?} is not a valid header name"),
            }
            self
        }

        /// Sets how many contacts can be stored (interface section 8). Default: no limit.
        ///
        /// A request or batch entry that would exceed the ceiling is refused with 402 `quota_exceeded`.
        pub fn contact_ceiling(mut self, contacts: u64) -> Self {
            self.settings.ceiling = Some(contacts);
            self
        }

        /// Sets the mock's choices for what the interface document leaves open. Default: [`Dialect::default`].
        pub fn dialect(mut self, dialect: Dialect) -> Self {
            self.settings.dialect = Some(dialect);
            self
        }

        /// Adds a contact in any state, or replaces the one with its address.
        ///
        /// Seeds are applied in the order they are added, after the builder's topics and segments. If one is invalid,
        /// starting or building the mock panics with the reason.
        pub fn seed_contact(mut self, contact: impl Into<SeedContact>) -> Self {
            self.seeds.add_contact(contact.into());
            self
        }

        /// Adds a [seed](crate::mock#seeds): topics, segments, contacts and more, as JSON.
        ///
        /// Seeds are applied in the order they are added.
        ///
        /// # Panics
        ///
        /// Panics if `seed` has an unknown member or one of a wrong type. If it is invalid in another way, starting or
        /// building the mock panics. The message has the reason.
        #[track_caller]
        pub fn seed(mut self, seed: serde_json::Value) -> Self {
            if let Err(problem) = self.seeds.add_json(&seed) {
                panic!("the seed is invalid: {problem}");
            }
            self
        }

        /// Adds a [seed](crate::mock#seeds) from a JSON file.
        ///
        /// Seeds are applied in the order they are added. If the file cannot be read or is invalid, starting or building
        /// the mock panics with the reason.
        pub fn seed_file(mut self, path: impl Into<std::path::PathBuf>) -> Self {
            self.seeds.add_file(path.into());
            self
        }
    };
}

/// Defines the methods that change or look at the audience.
///
/// The type needs the fields `full_key` and `sending_key`, and the methods `now` and `with_audience`. The arguments are
/// the lines of an example that create `mock`, and the lines that end the example. They are `#[doc = "…"]` attributes:
/// rustdoc shows a `///` line from a macro's caller with an extra space.
macro_rules! audience_methods {
    ($(#[$start:meta])* start, $(#[$end:meta])* end) => {
        /// Returns the full-access key, which may call every endpoint.
        #[must_use]
        pub fn full_key(&self) -> &str {
            &self.full_key
        }

        /// Returns the sending-access key, which may only send mail (interface section 5).
        #[must_use]
        pub fn sending_key(&self) -> &str {
            &self.sending_key
        }

        /// Adds a topic, or changes the default answer of an existing topic (interface section 2.6).
        ///
        /// The default answer is that of a contact who has not given one.
        ///
        /// # Example: a topic that everyone gets unless they opt out
        ///
        /// ```
        $(#[$start])*
        /// mock.topic("news", true);
        $(#[$end])*
        /// ```
        pub fn topic(&self, name: impl AsRef<str>, default: bool) {
            self.with_audience(|audience| audience.put_topic(name.as_ref(), default));
        }

        /// Adds a segment, or replaces the segment with this id (interface section 2.7).
        ///
        /// # Panics
        ///
        /// Panics if the rule is invalid (interface section 2.8). The message has the reason.
        ///
        /// # Example: a stored list and a stored rule
        ///
        /// ```
        /// use audience::mock::SegmentKind;
        ///
        $(#[$start])*
        /// mock.segment("seg_1", SegmentKind::Contacts(vec!["ada@example.com".into()]));
        /// mock.segment("seg_2", SegmentKind::Rule(serde_json::json!({
        ///     "match_": "all",
        ///     "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}],
        /// })));
        $(#[$end])*
        /// ```
        #[track_caller]
        pub fn segment(&self, id: impl AsRef<str>, kind: SegmentKind) {
            let id = id.as_ref();
            if let Err(problem) = self.with_audience(|audience| audience.put_segment(id, kind)) {
                panic!("the rule of segment {id:?} is invalid: {problem}");
            }
        }

        /// Stores a contact in any state, or replaces the one with its address, and returns it.
        ///
        /// Its place in the list follows from its creation time (interface section 4.4). A contact that is replaced
        /// keeps its id; everything else is replaced, its engagement and its place on the suppression list too. Seeding
        /// causes no event, and it may exceed the ceiling, which limits the writes of callers.
        ///
        /// # Panics
        ///
        /// Panics if the address is invalid, a property has a value that the [`Dialect`](crate::mock::Dialect) does not
        /// allow, a topic or an engagement is unknown, or the consent is in a state that does not exist (interface
        /// section 3.1). The message has the reason.
        ///
        /// # Example: a contact who reported spam
        ///
        /// ```
        /// use audience::mock::{Reason, SeedContact};
        ///
        $(#[$start])*
        /// let ada = mock.seed_contact(SeedContact::new("Ada@example.com").unsubscribed(Reason::Complaint));
        ///
        /// assert_eq!(ada.email, "ada@example.com");
        /// assert!(ada.suppressed);
        $(#[$end])*
        /// ```
        #[track_caller]
        pub fn seed_contact(&self, contact: impl Into<SeedContact>) -> StoredContact {
            let (contact, now) = (contact.into(), self.now().as_unix());
            match self.with_audience(|audience| audience.put_contact(contact, now)) {
                Ok(stored) => stored,
                Err(problem) => panic!("the seeded contact is invalid: {problem}"),
            }
        }

        /// Applies a [seed](crate::mock#seeds): topics, segments, contacts and more, as JSON.
        ///
        /// What the seed does not name stays as it is. Contacts are stored as by [`seed_contact`](Self::seed_contact). A
        /// `clock` begins to move the clock at once, without being awaited. A
        /// [`MockService`](crate::mock::MockService) accepts no `clock` and no `endpoints`.
        ///
        /// # Panics
        ///
        /// Panics if the seed is invalid, and changes nothing then. The message has the reason.
        ///
        /// # Example: a topic and a contact
        ///
        /// ```
        $(#[$start])*
        /// mock.seed(serde_json::json!({
        ///     "topics": {"news": true},
        ///     "contacts": [{"email": "ada@example.com", "answers": {"news": false}}],
        /// }));
        ///
        /// assert_eq!(mock.contact_count(), 1);
        $(#[$end])*
        /// ```
        #[track_caller]
        pub fn seed(&self, seed: serde_json::Value) {
            let seeded = Seed::from_value(&seed).and_then(|seed| self.apply_seed(seed));
            if let Err(problem) = seeded {
                panic!("the seed is invalid: {problem}");
            }
        }

        /// Records a spam report from a mailbox provider (interface sections 3.1 and 3.2).
        ///
        /// It unsubscribes the contact for the reason `complaint`, which no request can undo, counts as engagement, and
        /// suppresses the address. The address is suppressed even if it is not a contact. A
        /// [`MockServer`](crate::mock::MockServer) delivers an `email.complained` event about the latest mail to the
        /// address to every endpoint; this method does not wait for the delivery.
        ///
        /// # Example: a refused mail
        ///
        /// ```
        $(#[$start])*
        /// mock.report_spam("ada@example.com");
        /// // From now on `POST /emails` to this address causes an `email.refused` event.
        $(#[$end])*
        /// ```
        pub fn report_spam(&self, address: impl AsRef<str>) {
            let now = self.now().as_unix();
            self.with_audience(|audience| audience.report_spam(address.as_ref(), now));
        }

        /// Records that a contact's mail was `delivered`, `bounced`, `complained`, `opened` or `clicked`, for the
        /// engagement rules (interface section 2.8).
        ///
        /// # Panics
        ///
        /// Panics if `what` is not one of these five.
        ///
        /// # Example: an opened mail
        ///
        /// ```
        $(#[$start])*
        /// mock.record_engagement("ada@example.com", "opened", 1_700_000_000);
        $(#[$end])*
        /// ```
        #[track_caller]
        pub fn record_engagement(
            &self,
            address: impl AsRef<str>,
            what: impl AsRef<str>,
            at: impl Into<Timestamp>,
        ) {
            let (address, what, at) = (address.as_ref(), what.as_ref(), at.into().as_unix());
            let recorded =
                self.with_audience(|audience| audience.record_engagement(address, what, at));
            if let Err(problem) = recorded {
                panic!("the engagement is invalid: {problem}");
            }
        }

        /// Returns the newest 10,000 mails that `POST /emails` accepted, in the order they were sent.
        ///
        /// Fewer are kept if they take up more than 64 MiB of memory.
        ///
        /// # Example: the mail that a program under test sends
        ///
        /// ```
        $(#[$start])*
        /// // … the program under test sends mail, then:
        /// let subjects: Vec<String> = mock.sent_mail().into_iter().map(|mail| mail.subject).collect();
        /// # assert!(subjects.is_empty());
        $(#[$end])*
        /// ```
        #[must_use]
        pub fn sent_mail(&self) -> Vec<SentMail> {
            self.with_audience(|audience| audience.sent_mail())
        }

        /// Returns a contact as the service has stored it, or `None` if no contact has this address.
        ///
        /// # Example: an address that is not a contact
        ///
        /// ```
        $(#[$start])*
        /// assert!(mock.contact("ada@example.com").is_none());
        $(#[$end])*
        /// ```
        #[must_use]
        pub fn contact(&self, address: impl AsRef<str>) -> Option<StoredContact> {
            self.with_audience(|audience| audience.contact(address.as_ref()))
        }

        /// Returns all contacts as the service has stored them, newest first, as in the list (interface section 4.4).
        ///
        /// # Example: the addresses in the order of the list
        ///
        /// ```
        $(#[$start])*
        /// mock.seed_contact("ada@example.com");
        /// mock.seed_contact("bob@example.com");
        ///
        /// let addresses: Vec<String> = mock.contacts().into_iter().map(|contact| contact.email).collect();
        ///
        /// assert_eq!(addresses, ["bob@example.com", "ada@example.com"]);
        $(#[$end])*
        /// ```
        #[must_use]
        pub fn contacts(&self) -> Vec<StoredContact> {
            let contacts = self.with_audience(|audience| audience.contacts(None, usize::MAX));
            contacts.expect("the list has a beginning")
        }

        /// Returns the number of stored contacts.
        #[must_use]
        pub fn contact_count(&self) -> usize {
            self.with_audience(|audience| audience.contact_count())
        }

        /// Changes how many contacts can be stored (interface section 8). `None` means no limit.
        ///
        /// Contacts above a lowered ceiling stay.
        pub fn set_ceiling(&self, contacts: Option<u64>) {
            self.with_audience(|audience| audience.set_ceiling(contacts));
        }
    };
}

pub(super) use {audience_methods, settings_methods};
