//! The calls of the control plane that read and seed contacts.

use serde::Serialize;

use super::call::{Call, CallResult, no_content, ok};
use super::filters::Filters;
use crate::mock::service::audience::{CONSENTS, ContactFilter};
use crate::mock::service::refusal::Refusal;
use crate::mock::service::seed::Seed;
use crate::mock::service::seed_contact::SeedContact;
use crate::mock::service::seed_contact::StoredContact;

/// A list of contacts, or a page of it.
#[derive(Serialize)]
struct Contacts {
    data: Vec<StoredContact>,
    /// The `after` of the following page. Only pages have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(super) fn list_contacts(call: &Call<'_>) -> CallResult {
    let names = &["query", "consent", "segment_id"];
    let (filters, page) = Filters::parse::<String>(call.query, names)?;
    let filter = ContactFilter {
        text: filters.text("query"),
        consent: filters.one_of("consent", &CONSENTS)?,
        segment_id: filters.text("segment_id"),
    };
    let (after, limit) = match &page {
        None => (None, usize::MAX),
        Some(page) => (page.after.as_deref(), page.limit),
    };
    let now = call.shared.clock.unix();
    let data = call
        .shared
        .lock()
        .audience
        .matching_contacts(&filter, after, limit, now)?;
    let last = data.last().map(|contact| contact.id.clone());
    let next = page.map(|page| last.or(page.after).unwrap_or_default());
    Ok(ok(&Contacts { data, next }))
}

pub(super) fn read_contact(call: &Call<'_>) -> CallResult {
    let contact = call.shared.lock().audience.contact(call.parameter);
    match contact {
        Some(contact) => Ok(ok(&contact)),
        None => {
            let address = call.parameter;
            Err(Refusal::not_found(format!(
                "there is no contact {address:?}"
            )))
        }
    }
}

pub(super) fn put_contact(call: &Call<'_>) -> CallResult {
    let contact =
        SeedContact::parse(call.body_text()?, call.parameter).map_err(Refusal::invalid)?;
    let now = call.shared.clock.unix();
    let stored = call.shared.lock().audience.put_contact(contact, now);
    Ok(ok(&stored.map_err(Refusal::invalid)?))
}

pub(super) async fn seed(call: &Call<'_>) -> CallResult {
    let seed = Seed::parse(call.body_text()?).map_err(Refusal::invalid)?;
    if let Some(target) = call.shared.seed(seed).map_err(Refusal::invalid)? {
        call.shared.wait_for_clock(target).await;
    }
    Ok(no_content())
}
