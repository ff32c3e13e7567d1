use super::*;

fn event() -> NewEvent {
    event_with(Value::Null)
}

fn event_with(data: Value) -> NewEvent {
    NewEvent {
        event_type: "email.sent".into(),
        data,
        id: None,
        created_at: None,
    }
}

fn deliver_all(deliveries: &mut Deliveries, now: i64) {
    while let Step::Start(mut started) = deliveries.step(now, true, None) {
        started.record.status = Some(200);
        deliveries.finish(started, now);
    }
}

#[test]
fn what_was_sent_and_received_is_forgotten_before_it_uses_up_the_memory() {
    let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
    let body = Bytes::from(vec![b'a'; MAX_TRANSCRIPT_BYTES / 8]);
    let mut deliveries = Deliveries::default();
    deliveries.endpoints.put("crm", target.clone());

    for number in 1..=20 {
        deliveries.publish(event(), 5);
        let Step::Start(mut started) = deliveries.step(5, true, None) else {
            panic!("an attempt is due");
        };
        let transcript = Transcript::of_body(&target, body.clone());
        started.transcript = Some(transcript);
        started.record.status = Some(200);
        deliveries.finish(started, 5);
        assert!(deliveries.attempt(number).unwrap().1.is_some());
    }

    let kept = |number| deliveries.attempt(number).unwrap().1.is_some();
    assert_eq!((1..=20).filter(|number| kept(*number)).count(), 7);
    assert!(!kept(13) && kept(14));
    assert!(deliveries.transcripts.bytes <= MAX_TRANSCRIPT_BYTES);
}

#[test]
fn the_oldest_of_too_many_transcripts_is_forgotten_even_if_all_are_short() {
    let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
    let mut transcripts = Transcripts::default();

    for number in 0..MAX_ATTEMPTS_KEPT as u64 + 5 {
        transcripts.insert(number, Transcript::of_body(&target, Bytes::new()));
    }

    let kept = &transcripts.by_number;
    assert_eq!(kept.len(), MAX_ATTEMPTS_KEPT);
    assert_eq!(kept.first_key_value().map(|(number, _)| *number), Some(5));
    let bytes: usize = kept.values().map(Transcript::size).sum();
    assert_eq!(transcripts.bytes, bytes);
}

#[test]
fn events_take_up_as_many_bytes_as_the_limit_says() {
    let mut kept = Kept::default();

    for number in 0..1_000 {
        kept.insert(number, 5);
        kept.remove(number, 5);
    }
    kept.insert(1_000, 5);
    kept.insert(1_001, 5);

    assert_eq!(kept.first_beyond(2, 10), None);
    kept.insert(1_002, 1);
    assert_eq!(kept.first_beyond(3, 10), Some(1_000));
    assert_eq!(kept.first_beyond(2, 11), Some(1_000));
    assert_eq!(kept.first_beyond(3, 11), None);
}

#[test]
fn only_the_newest_thousand_delivered_events_are_kept() {
    let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
    let mut deliveries = Deliveries::default();
    deliveries.endpoints.put("crm", target);

    for _ in 0..3 * MAX_FINISHED {
        deliveries.publish(event(), 5);
    }
    assert_eq!(deliveries.events.len(), 3 * MAX_FINISHED);
    deliver_all(&mut deliveries, 5);

    assert_eq!(deliveries.events.len(), MAX_FINISHED);
    assert_eq!(deliveries.redeliver("evt_2000", 5), None);
    assert_eq!(deliveries.redeliver("evt_2001", 5), Some(2_001));
    assert!(
        deliveries
            .attempts()
            .iter()
            .all(|attempt| attempt.event_id.starts_with("evt_"))
    );
}

#[test]
fn an_id_that_a_test_has_given_to_an_event_is_not_generated_again() {
    let mut store = EventStore::default();
    let insert = |store: &mut EventStore, id: Option<&str>| {
        let id = id.map(str::to_owned);
        store.insert(NewEvent { id, ..event() }, 5)
    };
    insert(&mut store, Some("evt_2"));
    insert(&mut store, Some("evt_7"));

    let first = insert(&mut store, None);
    store.clear();
    let after_reset: Vec<_> = (0..4).map(|_| insert(&mut store, None).1).collect();

    assert_eq!(first, (4, "evt_4".to_owned()));
    assert_eq!(after_reset, ["evt_5", "evt_6", "evt_8", "evt_9"]);
}

#[test]
fn the_largest_of_too_many_numbers_in_given_ids_is_forgotten() {
    let mut store = EventStore::default();

    for number in 0..MAX_GIVEN_NUMBERS as u64 + 5 {
        let id = Some(format!("evt_{}", 1_000_000 + number));
        store.insert(NewEvent { id, ..event() }, 5);
    }

    assert_eq!(store.given_numbers.len(), MAX_GIVEN_NUMBERS);
    assert_eq!(store.given_numbers.first(), Some(&1_000_000));
}

#[test]
fn the_oldest_events_of_an_endpoint_that_fails_are_given_up() {
    let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
    let mut deliveries = Deliveries::default();
    deliveries.endpoints.put("crm", target);
    deliveries.publish(event(), 5);
    let Step::Start(running) = deliveries.step(5, true, None) else {
        panic!("the attempt is due");
    };

    for _ in 0..MAX_OPEN + MAX_FINISHED {
        deliveries.publish(event(), 5);
    }

    assert_eq!(deliveries.events.open.numbers.len(), MAX_OPEN);
    assert!(deliveries.schedule.attempts.remove_event(2).is_empty());
    let state = |deliveries: &Deliveries, number| deliveries.events.events[&number].state();
    // It is being attempted. Afterwards there is no other attempt.
    assert_eq!(state(&deliveries, 1), EventState::Pending);
    assert_eq!(state(&deliveries, 2), EventState::GivenUp);
    assert_eq!(state(&deliveries, 1_002), EventState::Pending);
    deliveries.finish(running, 5);
    assert_eq!(deliveries.attempts()[0].next_at, None);
    assert_eq!(deliveries.events.finished.numbers.len(), MAX_FINISHED);
    assert!(deliveries.events.find_mut(1).is_none());
}

#[test]
fn the_bytes_of_events_with_open_attempts_are_limited_too() {
    let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
    let mut deliveries = Deliveries::default();
    deliveries.endpoints.put("crm", target);
    let text = "a".repeat(MAX_OPEN_BYTES / 4);

    for _ in 0..5 {
        deliveries.publish(event_with(text.as_str().into()), 5);
    }

    let open: Vec<_> = deliveries.events.open.numbers.iter().copied().collect();
    assert_eq!(open, [3, 4, 5]);
    assert_eq!(deliveries.events.finished.numbers.len(), 2);
}

#[test]
fn an_event_is_kept_while_it_is_redelivered() {
    let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
    let mut deliveries = Deliveries::default();
    for _ in 0..MAX_FINISHED {
        deliveries.publish(event(), 5);
    }
    deliveries.endpoints.put("crm", target);

    deliveries.redeliver("evt_1", 9);
    for _ in 0..3 {
        deliveries.publish(event(), 5);
    }
    deliver_all(&mut deliveries, 5);

    assert!(deliveries.events.find_mut(1).is_some());
    assert!(deliveries.events.find_mut(2).is_none());
}

#[test]
fn an_event_keeps_its_state_when_the_log_has_forgotten_its_attempts() {
    let target = || Target::new("http://localhost", "a-secret-of-the-test").unwrap();
    let mut deliveries = Deliveries::default();
    for number in 0..11 {
        deliveries.endpoints.put(&format!("crm {number}"), target());
    }

    for _ in 0..MAX_FINISHED {
        deliveries.publish(event(), 5);
    }
    deliver_all(&mut deliveries, 5);

    let oldest = &deliveries.events_json(&EventFilter::default(), false, 1)[0];
    assert_eq!(oldest["attempts"], json!([]));
    assert_eq!(oldest["state"], "delivered");
}

#[test]
fn the_data_of_a_known_type_is_completed_and_given_members_are_kept() {
    let event = NewEvent::parse(json!({
        "type": "email.bounced",
        "data": {"to": "ada@example.com", "bounce_type": "Transient", "extra": 1},
    }))
    .unwrap();

    assert_eq!(event.data["to"], "ada@example.com");
    assert_eq!(event.data["bounce_type"], "Transient");
    assert_eq!(event.data["extra"], 1);
    for member in ["from", "subject", "detail"] {
        assert!(event.data[member].is_string(), "{member}");
    }
    let received = json!({"type": "email.received", "data": {"from": "ada@x.io"}});
    let received = NewEvent::parse(received).unwrap();
    assert_eq!(
        received.data["authentication_results"],
        "mx.example.com; spf=pass smtp.mailfrom=x.io; dkim=not-evaluated; dmarc=not-evaluated"
    );
}

#[test]
fn data_of_an_unknown_type_and_data_that_is_not_an_object_is_kept_unchanged() {
    let unknown = NewEvent::parse(json!({"type": "email.teleported", "data": {"a": 1}})).unwrap();
    let odd = NewEvent::parse(json!({"type": "email.sent", "data": [1]})).unwrap();

    assert_eq!(unknown.data, json!({"a": 1}));
    assert_eq!(odd.data, json!([1]));
}

#[test]
fn the_envelope_has_its_members_in_the_order_of_the_document() {
    let event = NewEvent::parse(json!({"type": "x", "data": {"b": 1}})).unwrap();

    assert_eq!(
        event.envelope("evt_1", 1_700_000_000),
        r#"{"id":"evt_1","type":"x","created_at":1700000000,"data":{"b":1}}"#
    );
}

#[test]
fn an_invalid_event_is_refused_with_the_reason() {
    for (json, reason) in [
        (json!({"data": {}}), "missing field `type`"),
        (json!({"type": "", "data": {}}), "`type` is empty"),
        (
            json!({"type": "a\nb"}),
            "characters that a header cannot hold",
        ),
        (json!({"type": "x", "dada": {}}), "unknown field `dada`"),
        (json!(["email.sent", {}]), "must be a JSON object"),
        (json!("email.sent"), "must be a JSON object"),
    ] {
        let error = NewEvent::parse(json).unwrap_err();

        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn the_bytes_of_delivered_events_are_limited_and_the_newest_is_kept() {
    let mut store = EventStore::default();
    let text = "a".repeat(MAX_FINISHED_BYTES / 8);

    for _ in 0..20 {
        let event = event_with(text.as_str().into());
        let (number, _) = store.insert(event, 0);
        store.open_attempts(number, 0);
    }

    assert_eq!(store.len(), 7);
    store.open_attempts(20, 1);
    store.close_attempt(20);
    assert_eq!(store.len(), 7);
    let bodies: usize = store.events.values().map(|event| event.body.len()).sum();
    assert_eq!(store.finished.bytes, bodies);
    let larger = "a".repeat(MAX_FINISHED_BYTES);
    let event = event_with(larger.as_str().into());
    let (number, _) = store.insert(event, 0);
    store.open_attempts(number, 0);
    assert_eq!(store.events.keys().collect::<Vec<_>>(), [&number]);
}

/// Moves the clock to its target. Every attempt fails. Returns when each attempt was made, and the final time.
fn run(schedule: &mut Schedule, mut now: i64) -> (Vec<(i64, u64, u64)>, i64) {
    let mut made = Vec::new();
    loop {
        match schedule.step(now, true, None) {
            Step::Start(attempt) => {
                made.push((now, attempt.event, attempt.endpoint));
                schedule.attempts.finish(&attempt);
                if let AttemptKind::Automatic(number) = attempt.kind
                    && let Some(gap) = gap_after(number)
                {
                    let kind = AttemptKind::Automatic(number + 1);
                    schedule
                        .attempts
                        .add(now + gap, attempt.event, attempt.endpoint, kind);
                }
            }
            Step::MoveClock(to) => now = to,
            Step::Wait(_) => return (made, now),
        }
    }
}

#[test]
fn every_attempt_on_the_way_is_made_at_its_due_time() {
    let mut schedule = Schedule::default();
    schedule
        .attempts
        .add(1_000, 1, 1, AttemptKind::Automatic(1));

    schedule.advance_clock(1_000, 500);
    let (made, now) = run(&mut schedule, 1_000);

    assert_eq!(
        made,
        [(1_000, 1, 1), (1_035, 1, 1), (1_105, 1, 1), (1_245, 1, 1)]
    );
    assert_eq!(now, 1_500);
}

#[test]
fn attempts_due_at_the_same_time_run_by_event_then_endpoint() {
    let mut schedule = Schedule::default();
    for (event, endpoint) in [(2, 1), (1, 2), (2, 2), (1, 1)] {
        schedule
            .attempts
            .add(1_000, event, endpoint, AttemptKind::Redelivery);
    }

    let (made, _) = run(&mut schedule, 1_000);

    assert_eq!(
        made,
        [(1_000, 1, 1), (1_000, 1, 2), (1_000, 2, 1), (1_000, 2, 2)]
    );
}

#[test]
fn the_clock_waits_for_running_attempts() {
    let mut schedule = Schedule::default();
    schedule.attempts.add(1_000, 1, 1, AttemptKind::Redelivery);
    let Step::Start(attempt) = schedule.step(1_000, true, None) else {
        panic!("the attempt is due");
    };

    schedule.advance_clock(1_000, 60);

    assert_eq!(schedule.step(1_000, true, None), Step::Wait(None));
    assert!(!schedule.has_reached(1_060, 1_000));
    assert!(schedule.attempts.finish(&attempt));
    assert_eq!(schedule.step(1_000, true, None), Step::MoveClock(1_060));
    assert!(schedule.has_reached(1_060, 1_060));
}

#[test]
fn a_second_advance_starts_where_the_first_ends() {
    let mut schedule = Schedule::default();
    schedule.attempts.add(1_010, 1, 1, AttemptKind::Redelivery);

    assert_eq!(schedule.advance_clock(1_000, 60), 1_060);
    assert_eq!(schedule.advance_clock(1_000, 40), 1_100);
    let (made, now) = run(&mut schedule, 1_000);

    assert_eq!((made.len(), now), (1, 1_100));
}

#[test]
fn the_clock_stops_where_the_next_event_is_published() {
    let mut schedule = Schedule::default();
    schedule.attempts.add(1_090, 1, 1, AttemptKind::Redelivery);
    schedule.advance_clock(1_000, 60);

    assert_eq!(
        schedule.step(1_000, true, Some(1_020)),
        Step::MoveClock(1_020)
    );
    assert_eq!(
        schedule.step(1_020, true, Some(1_070)),
        Step::MoveClock(1_060)
    );
    assert_eq!(
        schedule.step(1_060, true, Some(1_070)),
        Step::Wait(Some(1_070))
    );
    assert_eq!(schedule.step(1_060, true, None), Step::Wait(Some(1_090)));
}

#[test]
fn an_advance_beyond_the_last_representable_time_stops_there() {
    let mut schedule = Schedule::default();

    assert_eq!(schedule.advance_clock(i64::MAX - 1, 60), i64::MAX);
}

fn start_all(queue: &mut AttemptQueue, now: i64, one_at_a_time: bool) -> Vec<ScheduledAttempt> {
    std::iter::from_fn(|| queue.start_due(now, one_at_a_time)).collect()
}

#[test]
fn a_busy_endpoint_blocks_only_itself_and_only_one_at_a_time() {
    let mut queue = AttemptQueue::default();
    queue.add(5, 1, 1, AttemptKind::Redelivery);
    queue.add(5, 2, 1, AttemptKind::Redelivery);
    queue.add(5, 3, 2, AttemptKind::Redelivery);

    let started: Vec<_> = start_all(&mut queue, 5, true)
        .iter()
        .map(|attempt| attempt.event)
        .collect();

    assert_eq!(started, [1, 3]);
    assert_eq!(
        queue.start_due(5, false).map(|attempt| attempt.event),
        Some(2)
    );
}

#[test]
fn the_number_of_running_attempts_is_limited() {
    let mut queue = AttemptQueue::default();
    for event in 1..=100 {
        for endpoint in 1..=8 {
            queue.add(5, event, endpoint, AttemptKind::Automatic(1));
        }
    }

    let started = start_all(&mut queue, 9, false);

    assert_eq!(started.len(), MAX_RUNNING);
    // An overdue attempt waits for a running one to end, not for a time.
    assert_eq!(queue.next_due(false), None);
    assert!(queue.finish(&started[0]));
    assert!(queue.start_due(9, false).is_some());
    assert_eq!(queue.start_due(9, false), None);
    assert_eq!(queue.next_due(false), None);
}

#[test]
fn a_slow_endpoint_does_not_use_up_the_limit_for_all() {
    let mut queue = AttemptQueue::default();
    for event in 1..=100 {
        queue.add(5, event, 1, AttemptKind::Automatic(1));
    }
    queue.add(5, 101, 2, AttemptKind::Automatic(1));
    queue.add(60, 101, 3, AttemptKind::Automatic(1));

    let started = start_all(&mut queue, 9, false);

    assert_eq!(started.len(), MAX_RUNNING_PER_ENDPOINT + 1);
    assert_eq!(started.last().map(|attempt| attempt.endpoint), Some(2));
    assert_eq!(queue.next_due(false), Some(60));
}

#[test]
fn a_removed_endpoint_has_no_pending_attempts() {
    let mut queue = AttemptQueue::default();
    queue.add(5, 1, 1, AttemptKind::Redelivery);
    queue.add(5, 1, 2, AttemptKind::Redelivery);

    let removed = queue.remove_endpoint(1);
    let events: Vec<_> = removed.iter().map(|attempt| attempt.event).collect();
    assert_eq!(events, [1]);

    let endpoints: Vec<_> = start_all(&mut queue, 5, true)
        .iter()
        .map(|attempt| attempt.endpoint)
        .collect();
    assert_eq!(endpoints, [2]);
}

/// Returns a queue whose only attempt is held back until the clock shows 40: one of event 2 to endpoint 1.
fn queue_with_an_attempt_held_back() -> AttemptQueue {
    let mut queue = AttemptQueue::default();
    queue.add(5, 2, 1, AttemptKind::Automatic(1));
    let started = queue.start_due(5, true).unwrap();
    queue.hold_back(&started, 40);
    queue
}

#[test]
fn an_attempt_that_is_held_back_waits_for_one_of_a_later_event() {
    let mut queue = queue_with_an_attempt_held_back();

    queue.release(1, 1, 6);
    queue.release(1, 2, 6);
    assert_eq!(queue.next_due(true), Some(40));

    queue.release(1, 3, 6);
    assert_eq!(queue.next_due(true), Some(6));
}

#[test]
fn an_attempt_counts_as_released_from_its_release_until_it_has_been_made() {
    let mut queue = queue_with_an_attempt_held_back();
    // It is due by then, but no later event has released it.
    assert!(!queue.has_released(40));

    queue.release(1, 3, 6);
    assert!(queue.has_released(6));
    // The clock was set back.
    assert!(!queue.has_released(5));

    let released = queue.start_due(6, true).unwrap();
    assert!(queue.has_released(6));
    queue.finish(&released);
    assert!(!queue.has_released(6));
}

#[test]
fn an_endpoint_holds_back_another_attempt_only_after_the_first_is_given_up() {
    let mut queue = queue_with_an_attempt_held_back();
    queue.add(5, 3, 1, AttemptKind::Automatic(1));

    assert_eq!(queue.remove_event(3).len(), 1);
    assert!(queue.holds_back(1));

    assert_eq!(queue.remove_event(2).len(), 1);
    assert!(!queue.holds_back(1));
}

#[test]
fn an_event_that_is_given_up_has_no_pending_attempt_and_the_others_keep_theirs() {
    let mut queue = AttemptQueue::default();
    for event in 1..=3 {
        for endpoint in 1..=2 {
            queue.add(5, event, endpoint, AttemptKind::Automatic(1));
            queue.add(40, event, endpoint, AttemptKind::Automatic(2));
            queue.add(5, event, endpoint, AttemptKind::Redelivery);
            queue.add(-9, event, endpoint, AttemptKind::Duplicate);
        }
    }

    assert_eq!(queue.remove_event(2).len(), 8);

    assert_eq!(queue.remove_event(2).len(), 0);
    let mut left = Vec::new();
    while let Some(attempt) = queue.start_due(99, true) {
        queue.finish(&attempt);
        left.push((attempt.due, attempt.event, attempt.endpoint));
    }
    let mut expected: Vec<(i64, u64, u64)> = Vec::new();
    for due in [-9, 5, 5, 40] {
        for event in [1, 3] {
            expected.extend([1, 2].map(|endpoint| (due, event, endpoint)));
        }
    }
    expected.sort_unstable();
    assert_eq!(left, expected);
    assert!(queue.open.0.is_empty());
}

#[test]
fn a_kind_of_attempt_is_open_until_the_last_endpoint_is_finished() {
    let mut queue = AttemptQueue::default();
    queue.add(5, 1, 1, AttemptKind::Redelivery);
    queue.add(5, 1, 2, AttemptKind::Redelivery);
    queue.add(5, 1, 2, AttemptKind::Automatic(1));
    let first = queue.start_due(5, true).unwrap();

    queue.finish(&first);
    assert!(queue.is_open(1, AttemptKind::Redelivery, 5));
    // Finishing an attempt twice counts once.
    assert!(!queue.finish(&first));
    assert!(queue.is_open(1, AttemptKind::Redelivery, 5));

    queue.remove_endpoint(2);
    assert!(!queue.is_open(1, AttemptKind::Redelivery, 5));
    assert!(!queue.is_open(1, AttemptKind::Automatic(1), 5));
}

#[test]
fn a_pending_attempt_is_not_open_while_the_clock_shows_an_earlier_time() {
    let mut queue = AttemptQueue::default();
    queue.add(5, 1, 1, AttemptKind::Redelivery);
    queue.add(5, 2, 1, AttemptKind::Redelivery);

    let running = queue.start_due(5, true).unwrap();

    assert!(queue.is_open(1, AttemptKind::Redelivery, 4));
    assert!(!queue.is_open(2, AttemptKind::Redelivery, 4));
    queue.finish(&running);
    assert!(!queue.is_open(1, AttemptKind::Redelivery, 4));
    assert!(queue.is_open(2, AttemptKind::Redelivery, 5));
}

#[test]
fn ten_attempts_take_about_five_hours() {
    let gaps: Vec<_> = (1..).map_while(gap_after).collect();

    assert_eq!(gaps, [35, 70, 140, 280, 560, 1_120, 2_240, 4_480, 8_960]);
    assert_eq!(gaps.iter().sum::<i64>(), 4 * 3_600 + 58 * 60 + 5);
}
