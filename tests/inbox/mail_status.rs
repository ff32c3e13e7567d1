//! The state of a message, whatever the order of its events.

use audience::Timestamp;
use audience::inbox::{MailState, MailStatus};
use audience::webhooks::{BounceType, Event, EventData, EventId, MailEvent};
use proptest::prelude::*;

fn event(number: usize, at: i64) -> Event {
    let mail = |bounce_type| {
        let mut mail = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Hi");
        mail.bounce_type = bounce_type;
        mail
    };
    let data = match number {
        0 => EventData::Sent(mail(None)),
        1 => EventData::Delivered(mail(None)),
        2 => EventData::DeliveryDelayed(mail(None)),
        3 => EventData::Bounced(mail(Some(BounceType::Permanent))),
        4 => EventData::Bounced(mail(Some(BounceType::Transient))),
        5 => EventData::Opened(mail(None)),
        6 => EventData::Clicked(mail(None)),
        7 => EventData::Failed(mail(None)),
        8 => EventData::Refused(mail(None)),
        9 => EventData::Complained(mail(None)),
        _ => EventData::Bounced(mail(Some(BounceType::from("Odd")))),
    };
    let id = EventId::try_from(format!("evt_{number}_{at}")).unwrap();
    Event::new(id, Timestamp::from_unix(at), data)
}

fn status<'a>(events: impl IntoIterator<Item = &'a Event>) -> MailStatus {
    events
        .into_iter()
        .fold(MailStatus::default(), MailStatus::with)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec((0..11_usize, 0..5_i64), 0..12).prop_map(|events| {
        events
            .into_iter()
            .map(|(number, at)| event(number, at))
            .collect()
    })
}

proptest! {
    #[test]
    fn no_order_and_no_repetition_changes_the_status(
        (events, shuffled) in events().prop_flat_map(|events| {
            let shuffled = Just(events.clone()).prop_shuffle();
            (Just(events), shuffled)
        }),
    ) {
        let twice = shuffled.iter().chain(&shuffled);

        prop_assert_eq!(status(&events), status(twice));
    }

    #[test]
    fn the_parts_of_a_history_merge_into_the_whole(events in events(), at in 0..12_usize) {
        let (one, other) = events.split_at(at.min(events.len()));

        let merged = status(one).merge(status(other));

        prop_assert_eq!(merged, status(&events));
        prop_assert_eq!(status(other).merge(status(one)), merged);
    }

    #[test]
    fn a_complaint_and_a_permanent_bounce_are_never_hidden(events in events(), decisive in prop::sample::select(vec![3_usize, 9]), at in 0..12_usize) {
        let mut events = events;
        events.insert(at.min(events.len()), event(decisive, 1));

        let status = status(&events);

        prop_assert!(status.should_suppress());
        prop_assert!(status.state() >= Some(MailState::PermanentlyBounced));
    }
}

#[test]
fn each_event_leads_to_its_state() {
    use MailState::{
        Bounced, Clicked, Complained, Delayed, Delivered, Failed, Opened, PermanentlyBounced,
        Refused, Sent,
    };
    let states = [
        Sent,
        Delivered,
        Delayed,
        PermanentlyBounced,
        Bounced,
        Opened,
        Clicked,
        Failed,
        Refused,
        Complained,
        Bounced,
    ];
    for (number, state) in states.into_iter().enumerate() {
        let status = status(&[event(number, 1)]);
        assert_eq!(status.state(), Some(state));
        let is_suppressed = matches!(state, PermanentlyBounced | Complained);
        assert_eq!(status.should_suppress(), is_suppressed, "{state:?}");
    }
    assert_eq!(MailStatus::default().state(), None);
}

#[test]
fn events_that_are_not_about_a_sent_message_change_nothing() {
    let body = br#"{"id": "evt_1", "type": "email.snoozed", "created_at": 1, "data": {}}"#;
    let event = Event::from_unverified_json(body).unwrap();

    assert_eq!(status(&[event]), MailStatus::default());
}

#[test]
fn a_status_is_plain_json_and_tells_when_each_thing_happened_first() {
    let status = status(&[event(5, 30), event(5, 20), event(0, 10)]);

    let json = serde_json::to_value(status).unwrap();

    assert_eq!(json, serde_json::json!({"sent_at": 10, "opened_at": 20}));
    assert_eq!(serde_json::from_value::<MailStatus>(json).unwrap(), status);
}
