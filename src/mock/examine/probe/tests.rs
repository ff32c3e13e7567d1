use super::*;
use crate::mock::examine::report::Verdict;

#[test]
fn only_an_effect_that_is_missing_is_waited_for_and_not_for_ever() {
    let now = Instant::now();
    let later = now + POLL;

    assert!(!is_settled(Effect::Once, 0, now, later));
    assert!(is_settled(Effect::Once, 0, later, later));
    assert!(is_settled(Effect::Once, 1, now, later));
    assert!(is_settled(Effect::AtMostOnce, 0, now, later));
    assert!(is_settled(Effect::Never, 0, now, later));
}

#[test]
fn the_counts_show_how_an_application_recognizes_a_duplicate() {
    for (distinct, duplicates, identity) in [
        ([1, 1, 1, 1], [1, 1, 1], Identity::Id),
        // No duplicate is recognized.
        ([1, 1, 1, 1], [2, 2, 2], Identity::Id),
        ([1, 1, 1, 1], [1, 1, 2], Identity::IdOfAttempt),
        ([1, 1, 1, 1], [1, 2, 2], Identity::LastIds),
        ([1, 0, 0, 0], [1, 1, 1], Identity::Timestamp),
        ([1, 0, 1, 1], [1, 1, 2], Identity::OtherMembers),
        ([1, 1, 1, 0], [1, 1, 1], Identity::IdWithoutCase),
        // It acts on no event of the first type, or of the third one's, or on none at all.
        ([0, 0, 1, 0], [1, 1, 1], Identity::Id),
        ([1, 1, 0, 0], [1, 1, 1], Identity::Id),
        ([0, 0, 0, 0], [0, 0, 0], Identity::Id),
    ] {
        let [distinct, duplicates] = [&distinct[..], &duplicates[..]].map(|counts| {
            let counts = counts.iter().map(|count| counted(*count, None));
            counts.collect::<Vec<_>>()
        });

        let of_counts = Identity::of(|check| match check {
            Check::DistinctIds => distinct.iter().collect(),
            Check::Duplicate => vec![&duplicates[0]],
            Check::DuplicateAfterMany => vec![&duplicates[1]],
            Check::LaterDuplicate => vec![&duplicates[2]],
            _ => Vec::new(),
        });

        assert_eq!(of_counts, identity, "{distinct:?} {duplicates:?}");
    }
    assert_eq!(Identity::of(|_| Vec::new()), Identity::Id);
}

fn counted(count: u64, event_type: Option<&str>) -> EventCount {
    EventCount {
        count,
        event_type: event_type.map(Into::into),
    }
}

#[test]
fn a_probe_that_ignores_the_case_too_shows_it_by_the_type_of_the_event() {
    for (types, identity) in [
        (["opened", "opened", "sent", "opened"], Identity::Id),
        (
            ["opened", "opened", "sent", "sent"],
            Identity::IdWithoutCase,
        ),
        // The application has one name for all types.
        (["any", "any", "any", "any"], Identity::Id),
    ] {
        let distinct = types.map(|event_type| counted(1, Some(event_type)));

        let of_counts = Identity::of(|check| match check {
            Check::DistinctIds => distinct.iter().collect(),
            _ => Vec::new(),
        });

        assert_eq!(of_counts, identity, "{types:?}");
    }
    let expectation = Expectation {
        event_id: "evt_1_A".into(),
        event_type: "opened".into(),
        effect: Effect::Once,
    };
    let of_the_other = counted(1, Some("sent"));
    let identity = Identity::IdWithoutCase;
    let judged = judge(Check::DistinctIds, &expectation, &of_the_other, identity);
    assert_eq!(judged.findings, [lost(Check::DistinctIds, identity)]);
    let judged = judge(Check::Genuine, &expectation, &of_the_other, identity);
    assert_eq!(judged.findings, [wrong_type("sent", "opened")]);
}

#[test]
fn a_lost_event_has_the_cause_that_the_counts_or_the_check_show() {
    for (identity, check, problem, remedy) in [
        (
            Identity::Timestamp,
            Check::Genuine,
            "both have the same webhook-timestamp",
            BY_ID,
        ),
        (
            Identity::OtherMembers,
            Check::Genuine,
            "Both have different ids",
            BY_ID,
        ),
        (
            Identity::IdWithoutCase,
            Check::DistinctIds,
            "Their ids differ in the case of a letter",
            "a binary collation",
        ),
        (
            Identity::Id,
            Check::ForgedId,
            "after a forged delivery with the same id",
            VERIFY_FIRST,
        ),
        (
            Identity::Id,
            Check::EventHeader,
            "names another type than its body",
            BODY_TYPE,
        ),
        (Identity::Id, Check::DistinctIds, LOST, BY_ID),
        (
            Identity::Id,
            Check::Genuine,
            LOST,
            "only after the event is stored",
        ),
    ] {
        let finding = lost(check, identity);

        assert!(finding.problem.contains(problem), "{finding:?}");
        assert!(finding.remedy.contains(remedy), "{finding:?}");
    }
}

#[test]
fn a_duplicate_effect_has_the_cause_that_the_counts_show() {
    for (identity, check, cause) in [
        (
            Identity::IdOfAttempt,
            Check::LaterDuplicate,
            "if webhook-timestamp and webhook-signature are new",
        ),
        (
            Identity::LastIds,
            Check::DuplicateAfterMany,
            "It had forgotten the event",
        ),
        (
            Identity::LastIds,
            Check::LaterDuplicate,
            "It had forgotten the event",
        ),
        (Identity::LastIds, Check::Duplicate, "2 times on one event."),
    ] {
        let finding = acted_again(check, 2, identity);

        assert!(finding.problem.contains(cause), "{finding:?}");
    }
}

#[test]
fn each_count_is_judged_by_what_may_happen_to_the_event() {
    for (effect, count, verdict) in [
        (Effect::Once, 0, Verdict::Failed),
        (Effect::Once, 1, Verdict::Passed),
        (Effect::Once, 2, Verdict::Failed),
        (Effect::AtMostOnce, 0, Verdict::Passed),
        (Effect::AtMostOnce, 1, Verdict::Passed),
        (Effect::AtMostOnce, 2, Verdict::Failed),
        (Effect::Never, 0, Verdict::Passed),
        (Effect::Never, 1, Verdict::Failed),
    ] {
        let expectation = Expectation {
            event_id: "evt_1".into(),
            event_type: "email.sent".into(),
            effect,
        };
        let counted = counted(count, None);

        let judged = judge(Check::Duplicate, &expectation, &counted, Identity::Id);

        assert_eq!(judged.verdict, verdict, "{effect:?} {count}");
    }
}

#[test]
fn the_type_is_needed_only_to_see_whether_the_event_header_was_believed() {
    let expectation = Expectation {
        event_id: "evt_1".into(),
        event_type: "email.sent".into(),
        effect: Effect::Once,
    };
    let verdict = |check, event_type: Option<&str>| {
        let counted = counted(1, event_type);
        judge(check, &expectation, &counted, Identity::Id).verdict
    };

    assert_eq!(verdict(Check::EventHeader, None), Verdict::NotSeen);
    assert_eq!(verdict(Check::Duplicate, None), Verdict::Passed);
    let sent = Some("email.sent");
    assert_eq!(verdict(Check::EventHeader, sent), Verdict::Passed);
    let other = Some("email.opened");
    assert_eq!(verdict(Check::EventHeader, other), Verdict::Failed);
}
