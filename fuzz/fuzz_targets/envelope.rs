//! Parses an arbitrary authenticated body. Input: the body.
//!
//! A body that parses as an event has a valid id, and serializing and parsing it again gives the same event.
#![no_main]

use audience::webhooks::{Event, EventData};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Ok(event) = Event::from_unverified_json(body) else {
        return;
    };

    assert!((1..=255).contains(&event.id.as_str().len()));
    let written = serde_json::to_vec(&event).expect("an event can be serialized");
    let again = Event::from_unverified_json(&written).expect("a serialized event can be parsed");
    // If a member of unknown data is repeated, the last one is kept, and the result may have a known
    // shape.
    if !matches!(event.data, EventData::Unknown { .. }) {
        assert_eq!(again, event);
    }
    assert_eq!(
        (&again.id, again.event_type(), again.created_at),
        (&event.id, event.event_type(), event.created_at)
    );
});
