//! One function for each call of the control plane.

use std::time::Duration;

use serde_json::json;

use super::bodies::{
    CeilingBody, ClockBody, EndpointBody, EngagementBody, OutcomeBody, SegmentBody,
    SigningClockBody, TopicBody,
};
use super::call::{Call, CallResult, no_content, ok};
use crate::mock::delivery::DeliveryFault;
use crate::mock::delivery::event::NewEvent;
use crate::mock::delivery::post::Target;
use crate::mock::faults::Fault;
use crate::mock::service::engagement::EngagementKind;
use crate::mock::service::refusal::Refusal;

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
    call.shared
        .lock()
        .deliveries
        .set_signing_clock(clock.into());
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

pub(super) fn list_attempts(call: &Call<'_>) -> CallResult {
    let attempts = call.shared.lock().deliveries.attempts();
    Ok(ok(&json!({"data": attempts})))
}
