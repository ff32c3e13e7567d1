//! Receivers with one planted fault each.

use std::time::Duration;

use audience::mock::{Check, Examination, Verdict};
use futures_util::future::join_all;

use super::faulty_receiver::FaultyReceiver;
use super::planted::Planted;
use super::{examine, found, text};
use crate::receiver::SECRET;

/// The checks that the fault fails or warns about, and words of a finding.
fn expected(fault: Planted) -> (&'static [Check], &'static str) {
    use Check::*;

    const FORGERIES: &[Check] = &[
        OtherSecret,
        TamperedBody,
        MissingSignature,
        MissingEventHeader,
        OtherContentType,
        EmptySignature,
        CutSignature,
        UppercaseSignature,
        TwoSignatures,
        MissingTimestamp,
        MalformedTimestamp,
        Stale,
        Early,
    ];
    match fault {
        Planted::AcceptsEverything => (
            &[OtherSecret, Stale, Early],
            "accepted a delivery that is signed with another secret",
        ),
        Planted::SkipsAMissingSignature => (&[MissingSignature], "accepted a delivery without"),
        Planted::SkipsAnEmptySignature => (&[EmptySignature], "with an empty signature"),
        Planted::ComparesAPrefix => (&[CutSignature], "first half of its signature"),
        Planted::IgnoresCase => (&[UppercaseSignature], "a signature in upper case"),
        Planted::TakesTheFirstSignature => (&[TwoSignatures], "two signatures, one of them wrong"),
        Planted::RemembersSignatures => (&[TamperedBody], "headers of a delivery that it had"),
        Planted::CrashesWithoutASignature => (&[MissingSignature], "with a server error"),
        Planted::CrashesWithoutATimestamp => (&[MissingTimestamp], "with a server error"),
        Planted::RedirectsToALogin => (FORGERIES, "with a redirect"),
        Planted::IgnoresTheTimestamp => (&[Stale, Early], "that was signed 301 s ago"),
        Planted::IgnoresTimestampsAhead => (&[Early], "that is dated 301 s ahead"),
        Planted::ComparesTimestampsWithNan => (
            &[MalformedTimestamp],
            "accepted a correctly signed delivery whose timestamp is not a number",
        ),
        Planted::HasANarrowWindow | Planted::HasANarrowWindowBehind => {
            (&[WindowEdge], "narrower than 300 s")
        }
        Planted::HasAWideWindow => (&[Stale, Early], "wider than 300 s"),
        // Its serializer leaves out members that it does not know.
        Planted::SerializesAgain => (&[RawBody, ExtraMembers], "serializes it again"),
        Planted::SerializesAgainSorted => (&[RawBody], "serializes it again"),
        Planted::DecodesAsAscii => (&[NonAscii], "text beyond ASCII got the response 401"),
        Planted::LimitsBodiesTo100Kilobytes => (&[LargeBody], "of 1 MB got the response 413"),
        Planted::RefusesUnknownTypes => (&[UnknownType], "unknown type email.snoozed got"),
        Planted::RefusesOneType => (&[Genuine], "delivery of email.clicked got the response 422"),
        Planted::BelievesTheEventHeader => (&[EventHeader], "as one of the type"),
        Planted::DropsAWrongEventHeader => (
            &[EventHeader],
            "names another type than its body, and the application did not act on it",
        ),
        Planted::CrashesWithoutJson => (&[NotJson], "with a server error"),
        Planted::ActsOnDuplicates => (
            &[
                Duplicate,
                LaterDuplicate,
                DuplicateAfterMany,
                ConcurrentDuplicates,
            ],
            "acted 21 times on one event",
        ),
        Planted::ComparesIdAndTimestamp => (
            &[LaterDuplicate],
            "It takes the event for another one if webhook-timestamp and webhook-signature are new",
        ),
        Planted::ComparesABodyWithoutItsId => (
            &[DistinctIds],
            "a duplicate of another event. Both have different ids",
        ),
        Planted::ComparesIdsWithoutCase => {
            (&[DistinctIds], "Their ids differ in the case of a letter")
        }
        Planted::RefusesDuplicates => (
            &[
                Duplicate,
                LaterDuplicate,
                DuplicateAfterMany,
                ConcurrentDuplicates,
            ],
            "The same delivery again got the response 409",
        ),
        Planted::ChecksThenActs => (&[ConcurrentDuplicates], "times on one event"),
        Planted::LosesOneType | Planted::LosesBounces => (&[Genuine], "did not act on it"),
        Planted::ActsBeforeItVerifies | Planted::ComparesTimestamps => {
            unreachable!("it is tested on its own, because it fails much else")
        }
        Planted::ReadsOneChunk => (&[SlowBody], "arrived in pieces"),
        Planted::AcceptsHalfABody => (&[CutConnection], "only half of its body had arrived"),
        Planted::HasAnotherSecret => (&[Genuine], "its secret is not the one given here"),
        Planted::SignsTheBodyAlone => (&[Genuine], "computes the signature over the body alone"),
        Planted::ExpectsBase64 => (&[Genuine], "expects the signature in base64"),
        Planted::HasNoSecret => (&[Genuine], "it has no secret"),
        Planted::AlsoAcceptsNoSecret => (
            &[OtherSecret],
            "accepted a delivery that is signed with an empty secret",
        ),
        Planted::TrimsTheBody => (&[RawBody], "removes the white space around the body"),
        Planted::RemembersForgedIds => (&[ForgedId], "after a forged delivery with the same id"),
        Planted::HasASlowClock => (&[Clock], "behind this machine's"),
        Planted::MeasuresCreatedAtToo => (&[OldEvent], "of an event that was created 5 h ago got"),
        Planted::MeasuresCreatedAtInstead => (
            &[OldEvent, Stale, Early],
            "by `created_at` in the body instead of webhook-timestamp",
        ),
        Planted::RefusesNewMembersOfData => (&[ExtraMembers], "a new member in `data` got"),
        Planted::RefusesNewMembersOfTheEnvelope => {
            (&[ExtraMembers], "a new member in the envelope got")
        }
        Planted::SkipsWithoutAnEventHeader => (
            &[MissingSignature, MissingEventHeader],
            "accepted a forged delivery without a webhook-event header",
        ),
        Planted::SkipsWithoutAnyHeader => (
            &[MissingSignature],
            "accepted an event without any of the three headers",
        ),
        Planted::SkipsWithoutAJsonType => (
            &[OtherContentType],
            "accepted a forged delivery with the content type text/plain",
        ),
        Planted::RemembersFewIds => (
            &[LaterDuplicate, DuplicateAfterMany],
            "It had forgotten the event a few seconds and 130 other events later",
        ),
        Planted::ChangesLineEndings => (&[RawBody], "changes the line endings of the body"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_planted_fault_is_named_and_no_other() {
    let rounds = if super::is_long() { 3 } else { 1 };
    for round in 1..=rounds {
        let faults = Planted::ALL.into_iter().filter(|fault| {
            !matches!(
                fault,
                Planted::ActsBeforeItVerifies | Planted::ComparesTimestamps
            )
        });

        let examined =
            join_all(faults.map(async |fault| (fault, wrong_verdict(fault).await))).await;

        println!("round {round}: {} faults", examined.len());
        let mut problems = Vec::new();
        for (fault, problem) in examined {
            // On a busy machine, so many receivers may respond too late, and one alone does not.
            if problem.is_some() {
                problems.extend(wrong_verdict(fault).await);
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    }
}

/// Returns what is wrong with the verdict, if anything is.
async fn wrong_verdict(fault: Planted) -> Option<String> {
    let (checks, words) = expected(fault);
    let examination = examined(Some(fault)).await;

    let is_right = found(&examination) == checks && text(&examination).contains(words);
    (!is_right).then(|| format!("{fault:?} should be {checks:?} with {words:?}:\n{examination}"))
}

async fn examined(fault: Option<Planted>) -> Examination {
    let receiver = FaultyReceiver::start(fault).await;
    examine(&receiver.url).probe(&receiver.probe).await
}

#[tokio::test(flavor = "multi_thread")]
async fn acting_on_what_is_refused_is_seen_with_a_probe() {
    let examination = examined(Some(Planted::ActsBeforeItVerifies)).await;

    assert_eq!(
        examination.verdict(Check::TamperedBody),
        Some(Verdict::Failed)
    );
    assert_eq!(examination.verdict(Check::Stale), Some(Verdict::Failed));
    let words = "yet the application acted on it";
    assert!(text(&examination).contains(words), "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_that_is_acted_on_a_second_later_is_seen() {
    let fault = Some(Planted::ComparesIdAndTimestamp);
    let receiver = FaultyReceiver::start_with_work(fault, Duration::from_secs(1)).await;

    let examination = examine(&receiver.url)
        .probe(&receiver.probe)
        .only([Check::LaterDuplicate])
        .await;

    let verdict = examination.verdict(Check::LaterDuplicate);
    assert_eq!(verdict, Some(Verdict::Failed), "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_events_with_a_known_timestamp_is_named_once_and_not_as_many_losses() {
    let examination = examined(Some(Planted::ComparesTimestamps)).await;

    let problems = |words: &str| {
        let findings = examination.findings();
        let named = findings.filter(|(_, finding)| finding.problem.contains(words));
        named.map(|(check, _)| check).collect::<Vec<_>>()
    };
    let named = problems("because both have the same webhook-timestamp");
    assert!(named.contains(&Check::DistinctIds), "{examination}");
    assert!(named.len() > 2, "{examination}");
    assert_eq!(problems("did not act on it"), [], "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_probe_doubles_are_not_seen_and_the_report_says_so() {
    let receiver = FaultyReceiver::start(Some(Planted::ActsOnDuplicates)).await;

    let examination = examine(&receiver.url).await;

    assert!(examination.passed(), "{examination}");
    for check in [
        Check::EventHeader,
        Check::Duplicate,
        Check::LaterDuplicate,
        Check::DuplicateAfterMany,
        Check::ConcurrentDuplicates,
        Check::DistinctIds,
        Check::ForgedId,
        Check::Probe,
    ] {
        assert_eq!(
            examination.verdict(check),
            Some(Verdict::NotSeen),
            "{check}"
        );
    }
    assert!(text(&examination).contains("without a probe"));
    assert!(text(&examination).contains("NOT ALL SEEN: "));
    let json = serde_json::to_value(&examination).unwrap();
    assert_eq!(json["all_seen"], false);
    assert!(!text(&examination).contains("PASSED"), "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_of_chosen_checks_has_no_others() {
    let receiver = FaultyReceiver::start(None).await;

    let examination = examine(&receiver.url)
        .only([Check::Stale, Check::TamperedBody])
        .timeout(Duration::from_secs(60))
        .await;

    let checks: Vec<_> = examination
        .checks()
        .iter()
        .map(|report| report.check)
        .collect();
    assert_eq!(
        checks,
        [Check::Reachable, Check::TamperedBody, Check::Stale]
    );
    assert!(examination.passed(), "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_forgery_is_a_failure_even_if_only_its_id_is_examined() {
    let receiver = FaultyReceiver::start(Some(Planted::AcceptsEverything)).await;

    let examination = examine(&receiver.url).only([Check::ForgedId]).await;

    assert_eq!(found(&examination), [Check::ForgedId], "{examination}");
    assert!(!examination.passed(), "{examination}");
    let words = "accepted a delivery that is signed with another secret";
    assert!(text(&examination).contains(words), "{examination}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_probe_is_a_finding_of_its_own() {
    let receiver = FaultyReceiver::start(None).await;

    let examination = examine(&receiver.url)
        .only([Check::Duplicate, Check::Probe])
        .probe(receiver.url.replace("/hook", "/no-such-path"))
        .await;

    assert_eq!(found(&examination), [Check::Probe]);
    assert_eq!(
        examination.verdict(Check::Duplicate),
        Some(Verdict::NotSeen)
    );
    assert!(text(&examination).contains("The probe did not return a count: 404"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_as_json_has_everything_but_the_secret() {
    let receiver = FaultyReceiver::start(Some(Planted::IgnoresTheTimestamp)).await;

    let examination = examine(&receiver.url).only([Check::Stale]).await;

    let json = serde_json::to_value(&examination).unwrap();
    assert_eq!(json["passed"], false);
    assert_eq!(json["all_seen"], true);
    assert_eq!(json["reached"], true);
    assert_eq!(json["url"], *receiver.url);
    assert_eq!(json["checks"][1]["check"], "stale");
    assert_eq!(json["checks"][1]["verdict"], "failed");
    for member in ["problem", "reason", "remedy"] {
        let text = json["checks"][1]["findings"][0][member].as_str().unwrap();
        assert!(text.ends_with('.'), "{text}");
    }
    assert!(!format!("{json} {examination} {examination:?}").contains(SECRET));
    assert!(!format!("{:?}", examine(&receiver.url)).contains(SECRET));
}
