//! What the control plane shows of an audience, beyond what a test reads.

use super::address::case_folded;
use super::audience::Audience;
use super::contact::Contact;
use super::listing::contains_text;
use super::reason::Reason;
use super::refusal::Refusal;
use super::segment::SegmentView;
use super::sent_mail::MailView;
use super::stored_contact::StoredContact;

/// The values of [`ContactFilter::consent`].
pub(in crate::mock) const CONSENTS: [&str; 4] =
    ["subscribed", "unsubscribed", "complaint", "suppressed"];

/// Which contacts to show. A filter that is left out matches all.
#[derive(Debug, Default)]
pub(in crate::mock) struct ContactFilter<'a> {
    /// A text in the address or a name, in any case.
    pub(in crate::mock) text: Option<&'a str>,
    /// One of [`CONSENTS`].
    pub(in crate::mock) consent: Option<&'a str>,
    pub(in crate::mock) segment_id: Option<&'a str>,
}

impl Audience {
    /// Returns at most `limit` contacts that match, newest first, starting after the one with the id `after`.
    ///
    /// # Errors
    ///
    /// 404 `not_found` if there is no such segment. 422 `validation_error` if no contact has the id `after`.
    pub(crate) fn matching_contacts(
        &self,
        filter: &ContactFilter<'_>,
        after: Option<&str>,
        limit: usize,
        now: i64,
    ) -> Result<Vec<StoredContact>, Refusal> {
        let state = &self.state;
        let contacts = state.contacts().newest_first(after).ok_or_else(|| {
            Refusal::invalid("`after` is not the id of a contact; use the `next` of a page")
        })?;
        let text = filter.text.map(case_folded);
        let segment = filter.segment_id.map(|id| state.segment(id)).transpose()?;
        let has_consent = |contact: &Contact| match filter.consent {
            Some("subscribed") => !contact.unsubscribed,
            Some("unsubscribed") => contact.unsubscribed,
            Some("complaint") => contact.reason == Reason::Complaint,
            Some("suppressed") => state.is_suppressed(&contact.email),
            _ => true,
        };
        let matching = contacts.filter(|contact| {
            has_consent(contact)
                && text
                    .as_ref()
                    .is_none_or(|text| contains_text(contact, text))
                && segment.is_none_or(|segment| segment.contains(contact, state.engagements(), now))
        });
        Ok(matching
            .take(limit)
            .map(|contact| StoredContact::new(contact, state))
            .collect())
    }

    /// Returns the name and the default answer of each topic, in the order of the names.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (&str, bool)> {
        let topics = self.state.topics().iter();
        topics.map(|(name, default)| (name.as_str(), *default))
    }

    /// Returns the segments, in the order of their ids.
    pub(crate) fn segments(&self) -> Vec<SegmentView> {
        self.state.segment_views()
    }

    /// Returns at most `limit` mails that contain a text, the newest first.
    pub(crate) fn newest_mail(&self, text: &str, limit: usize) -> Vec<MailView> {
        self.state.mails().newest(text, limit)
    }

    /// Returns how many mails are kept.
    pub(crate) fn mail_count(&self) -> usize {
        self.state.mails().len()
    }

    /// Returns the name of the header that holds the bare key. `None` means `Authorization: Bearer <key>`.
    pub(crate) fn key_header(&self) -> Option<&str> {
        self.keys.header.as_deref()
    }
}
