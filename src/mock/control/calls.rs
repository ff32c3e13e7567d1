//! The calls of the control plane that are not lists, and their bodies.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Call, CallResult, lists, no_content, ok};
use crate::mock::delivery::{DeliveryFault, NewEvent, SigningClock, Target};
use crate::mock::faults::Fault;
use crate::mock::response::event_stream;
use crate::mock::service::engagement::EngagementKind;
use crate::mock::service::mail_outcome::{MailOutcome, OutcomeKind};
use crate::mock::service::refusal::Refusal;
use crate::mock::service::seed::Seed;
use crate::mock::service::seed_contact::SeedContact;
use crate::mock::service::segment::SegmentKind;

pub(super) fn stream(call: &Call<'_>) -> CallResult {
    match call.shared.changes.stream() {
        Some(changes) => Ok(event_stream(changes)),
        None => {
            let message = "too many streams are open; close one";
            Err(Refusal::new(503, "service_unavailable", message))
        }
    }
}

/// Returns the clock, the settings, the faults, and how many items each list has.
pub(super) fn overview(call: &Call<'_>) -> CallResult {
    let clock = &call.shared.clock;
    let state = call.shared.lock();
    let (events, attempts) = state.deliveries.counts();
    Ok(ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": clock.now(),
        "clock": if clock.is_stopped() { "stopped" } else { "running" },
        "signing_clock": state.deliveries.signing_clock,
        "key_header": state.audience.key_header(),
        "ceiling": state.audience.ceiling(),
        "counts": {
            "contacts": state.audience.contact_count(),
            "topics": state.audience.topics().count(),
            "emails": state.audience.mail_count(),
            "events": events,
            "attempts": attempts,
            "requests": state.journal.len(),
        },
        "endpoints": lists::endpoints_of(&state),
        "faults": state.faults,
        "delivery_faults": state.deliveries.faults,
    })))
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

pub(super) fn health(_call: &Call<'_>) -> CallResult {
    Ok(ok(&json!({"status": "ok"})))
}

pub(super) fn reset(call: &Call<'_>) -> CallResult {
    call.shared.reset();
    Ok(no_content())
}

pub(super) fn put_topic(call: &Call<'_>) -> CallResult {
    let TopicBody { default } = call.json()?;
    call.shared
        .lock()
        .audience
        .put_topic(call.parameter, default);
    Ok(no_content())
}

pub(super) fn put_segment(call: &Call<'_>) -> CallResult {
    let kind = call.json::<SegmentBody>()?.into_kind()?;
    call.shared
        .lock()
        .audience
        .put_segment(call.parameter, kind)
        .map_err(Refusal::invalid)?;
    Ok(no_content())
}

pub(super) fn report_spam(call: &Call<'_>) -> CallResult {
    let now = call.shared.clock.unix();
    call.shared
        .with_audience(|audience| audience.report_spam(call.parameter, now));
    Ok(no_content())
}

pub(super) fn record_engagement(call: &Call<'_>) -> CallResult {
    let EngagementBody { what, at } = call.json()?;
    let what = EngagementKind::parse(&what).map_err(Refusal::invalid)?;
    let at = at.unwrap_or_else(|| call.shared.clock.unix());
    call.shared
        .lock()
        .audience
        .record_engagement(call.parameter, what, at);
    Ok(no_content())
}

pub(super) fn read_clock(call: &Call<'_>) -> CallResult {
    Ok(ok(&json!({"now": call.shared.clock.now()})))
}

pub(super) async fn move_clock(call: &Call<'_>) -> CallResult {
    let target = match call.json()? {
        ClockBody::Advance(seconds) => call.shared.advance_clock(Duration::from_secs(seconds)),
        ClockBody::Set(to) => call.shared.set_clock(to),
    };
    call.shared.wait_for_clock(target).await;
    read_clock(call)
}

pub(super) fn put_ceiling(call: &Call<'_>) -> CallResult {
    let CeilingBody { contacts } = call.json()?;
    call.shared.lock().audience.set_ceiling(contacts);
    Ok(no_content())
}

pub(super) fn add_fault(call: &Call<'_>) -> CallResult {
    let fault: Fault = call.json()?;
    fault.check().map_err(Refusal::invalid)?;
    call.shared.lock().faults.add(fault);
    Ok(no_content())
}

pub(super) fn clear_faults(call: &Call<'_>) -> CallResult {
    call.shared.lock().faults.clear();
    Ok(no_content())
}

pub(super) fn clear_requests(call: &Call<'_>) -> CallResult {
    call.shared.lock().journal.clear();
    Ok(no_content())
}

pub(super) fn put_endpoint(call: &Call<'_>) -> CallResult {
    let EndpointBody { url, secret } = call.json()?;
    let target = Target::new(&url, &secret).map_err(Refusal::invalid)?;
    call.shared
        .lock()
        .deliveries
        .put_endpoint(call.parameter, target);
    Ok(no_content())
}

pub(super) fn delete_endpoint(call: &Call<'_>) -> CallResult {
    let name = call.parameter;
    if call.shared.lock().deliveries.remove_endpoint(name) {
        Ok(no_content())
    } else {
        Err(Refusal::not_found(format!("there is no endpoint {name:?}")))
    }
}

pub(super) async fn send_event(call: &Call<'_>) -> CallResult {
    let event = NewEvent::parse(call.json()?).map_err(Refusal::invalid)?;
    let id = call.shared.send_event(event).await;
    Ok(ok(&json!({"id": id})))
}

pub(super) async fn redeliver(call: &Call<'_>) -> CallResult {
    let id = call.parameter;
    if call.shared.redeliver(id).await {
        Ok(no_content())
    } else {
        Err(Refusal::not_found(format!("there is no event {id:?}")))
    }
}

pub(super) fn add_delivery_fault(call: &Call<'_>) -> CallResult {
    let fault: DeliveryFault = call.json()?;
    fault.check().map_err(Refusal::invalid)?;
    call.shared.lock().deliveries.add_fault(fault);
    Ok(no_content())
}

pub(super) fn clear_delivery_faults(call: &Call<'_>) -> CallResult {
    call.shared.lock().deliveries.clear_faults();
    Ok(no_content())
}

pub(super) fn put_signing_clock(call: &Call<'_>) -> CallResult {
    let SigningClockBody { clock } = call.json()?;
    call.shared.lock().deliveries.set_signing_clock(clock);
    Ok(no_content())
}

pub(super) async fn mail_outcome(call: &Call<'_>) -> CallResult {
    let outcome = call.json::<OutcomeBody>()?.into_outcome()?;
    let id = call
        .shared
        .publish(|audience, now| audience.mail_outcome(call.parameter, &outcome, now))
        .await?;
    Ok(ok(&json!({"id": id})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicBody {
    default: bool,
}

/// Either a list of addresses or a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentBody {
    contacts: Option<Vec<String>>,
    rule: Option<Value>,
}

impl SegmentBody {
    fn into_kind(self) -> Result<SegmentKind, Refusal> {
        match (self.contacts, self.rule) {
            (Some(contacts), None) => Ok(SegmentKind::Contacts(contacts)),
            (None, Some(rule)) => Ok(SegmentKind::Rule(rule)),
            _ => Err(Refusal::invalid(
                "a segment needs either `contacts` or a `rule`",
            )),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngagementBody {
    what: String,
    /// In Unix seconds. Default: now.
    at: Option<i64>,
}

/// How to move the clock.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClockBody {
    /// Forward by this many seconds.
    Advance(u64),
    /// To this Unix time.
    Set(i64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CeilingBody {
    // A plain `Option` could be left out. `null` must be written.
    #[serde(deserialize_with = "Option::deserialize")]
    contacts: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointBody {
    url: String,
    secret: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SigningClockBody {
    clock: SigningClock,
}

/// What happens to a sent mail.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeBody {
    #[serde(rename = "type")]
    event_type: String,
    /// Default: the only recipient of the mail.
    to: Option<String>,
    /// The form of [`OutcomeData`]. A map first: `serde` would accept an array in place of the struct.
    #[serde(default)]
    data: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeData {
    bounce_type: Option<String>,
    detail: Option<String>,
}

impl OutcomeBody {
    fn into_outcome(self) -> Result<MailOutcome, Refusal> {
        let kind = OutcomeKind::from_event_type(&self.event_type).map_err(Refusal::invalid)?;
        let data: OutcomeData = serde_json::from_value(self.data.into())
            .map_err(|error| Refusal::invalid(format!("`data` is invalid: {error}")))?;
        let mut outcome = MailOutcome::new(kind);
        if let Some(to) = self.to {
            outcome = outcome.to(to);
        }
        if let Some(bounce_type) = data.bounce_type {
            outcome = outcome.bounce_type(bounce_type);
        }
        if let Some(detail) = data.detail {
            outcome = outcome.detail(detail);
        }
        Ok(outcome)
    }
}
