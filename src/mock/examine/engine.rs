//! Runs the checks in their order.

use std::time::Duration;

use super::check::Check;
use super::connections::{cut_connection, slow_body};
use super::examination::{CheckReport, Examination};
use super::grade::{Finding, Grade};
use super::receiver_clock::describe_skew;
use super::run::Run;
use super::{duplicates, forgeries, genuine, opening, probe, window};
use crate::mock::delivery::endpoint_url::EndpointUrl;
use crate::webhooks::Signer;

/// A difference of the clocks that is worth a warning, in seconds.
const CLOCK_WARNING: u64 = 5;
const NO_PROBE: &str = "without a probe, it could not be seen how often the application acted";

/// What to examine, as the caller gave it.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) url: String,
    pub(super) secret: String,
    pub(super) probe: Option<String>,
    pub(super) timeout: Duration,
    /// All checks, if there are none.
    pub(super) only: Vec<Check>,
}

impl Settings {
    fn selects(&self, check: Check) -> bool {
        self.only.is_empty() || self.only.contains(&check)
    }
}

/// Examines a receiver.
pub(super) async fn examine(settings: Settings) -> Examination {
    let prepared = prepare(&settings);
    let (mut run, probe) = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => return unusable(&settings, &problem),
    };

    let opening = opening::open(&mut run).await;
    let mut grades = opening.grades;
    if opening.goes_on {
        run_checks(&settings, &run, &mut grades).await;
        add_response_time(&run, &mut grades);
        add_clock(&run, &mut grades);
        let of_probe = match &probe {
            Some(url) => probe::ask(url, &mut grades).await,
            None => Grade::not_seen(NO_PROBE),
        };
        grades.push((Check::Probe, of_probe));
    }
    let sees_effects = probe.is_some() && is_passed(&grades, Check::Probe);
    if !sees_effects {
        note_what_needs_a_probe(&mut grades);
    }
    report(&settings, grades)
}

fn prepare(settings: &Settings) -> Result<(Run, Option<EndpointUrl>), String> {
    let url = EndpointUrl::parse(&settings.url)?;
    let probe = settings
        .probe
        .as_deref()
        .map(EndpointUrl::parse)
        .transpose()
        .map_err(|problem| format!("the probe: {problem}"))?;
    let secret = &settings.secret;
    let signer = Signer::new(secret).map_err(|error| error.to_string())?;
    let other_signer =
        Signer::new(format!("{secret}-of-a-stranger")).map_err(|error| error.to_string())?;
    let run = Run::new(url, secret, signer, other_signer, settings.timeout);
    Ok((run, probe))
}

/// Runs every selected check that has no grade yet, the slow ones at the end. Nothing but simultaneous duplicates is
/// delivered while a response is awaited: a receiver may serve one connection at a time.
async fn run_checks(settings: &Settings, run: &Run, grades: &mut Vec<(Check, Grade)>) {
    for check in Check::ALL.iter().copied() {
        let is_slow = matches!(check, Check::SlowBody | Check::LaterDuplicate);
        if is_slow || !settings.selects(check) || has_grade(grades, check) {
            continue;
        }
        if let Some(grade) = grade(check, run).await {
            grades.push((check, grade));
        }
    }
    let first = match settings.selects(Check::LaterDuplicate) && run.stop_reason().is_none() {
        true => Some(duplicates::first_attempt(run).await),
        false => None,
    };
    if settings.selects(Check::SlowBody) {
        let slow_body = grade(Check::SlowBody, run).await;
        grades.extend(slow_body.map(|grade| (Check::SlowBody, grade)));
    }
    if settings.selects(Check::LaterDuplicate) {
        let grade = match (run.stop_reason(), first) {
            (None, Some(first)) => duplicates::later_duplicate(run, first).await,
            (reason, _) => Grade::not_seen(reason.unwrap_or_default()),
        };
        grades.push((Check::LaterDuplicate, grade));
    }
}

/// Runs one check, unless the examination has to stop. Returns `None` for those that have no deliveries of their own.
async fn grade(check: Check, run: &Run) -> Option<Grade> {
    let summarizes = matches!(
        check,
        Check::Reachable
            | Check::Genuine
            | Check::ResponseTime
            | Check::Clock
            | Check::LaterDuplicate
            | Check::Probe
    );
    if !summarizes && let Some(reason) = run.stop_reason() {
        return Some(Grade::not_seen(reason));
    }
    Some(match check {
        Check::Reachable
        | Check::Genuine
        | Check::ResponseTime
        | Check::Clock
        | Check::LaterDuplicate
        | Check::Probe => return None,
        Check::UnknownType => genuine::unknown_type(run).await,
        Check::RawBody => genuine::raw_body(run).await,
        Check::NonAscii => genuine::non_ascii(run).await,
        Check::LargeBody => genuine::large_body(run).await,
        Check::EventHeader => genuine::event_header(run).await,
        Check::Duplicate => duplicates::duplicate(run).await,
        Check::ConcurrentDuplicates => duplicates::concurrent_duplicates(run).await,
        Check::DistinctIds => duplicates::distinct_ids(run).await,
        Check::OtherSecret => forgeries::other_secret(run).await,
        Check::TamperedBody => forgeries::tampered_body(run).await,
        Check::MissingSignature => forgeries::missing_signature(run).await,
        Check::EmptySignature => forgeries::empty_signature(run).await,
        Check::CutSignature => forgeries::cut_signature(run).await,
        Check::UppercaseSignature => forgeries::uppercase_signature(run).await,
        Check::TwoSignatures => forgeries::two_signatures(run).await,
        Check::MissingTimestamp => forgeries::missing_timestamp(run).await,
        Check::MalformedTimestamp => forgeries::malformed_timestamp(run).await,
        Check::Stale => window::stale(run).await,
        Check::Early => window::early(run).await,
        Check::WindowEdge => window::edge(run).await,
        Check::NotJson => forgeries::not_json(run).await,
        Check::SlowBody => slow_body(run).await,
        Check::CutConnection => cut_connection(run).await,
    })
}

fn add_response_time(run: &Run, grades: &mut Vec<(Check, Grade)>) {
    let slowest = run.slowest.get();
    let observed = format!("at most {} ms", slowest.as_millis());
    let grade = if slowest > run.timeout / 2 {
        let finding = Finding::new(
            format!(
                "A response took {slowest:.1?}. The limit is {:?}.",
                run.timeout
            ),
            "Under more load than now, responses are later. A response after 10 s is a failed attempt, although the application \
             did the work (interface section 6.5).",
            "Put the event into a queue or a table and respond at once. Do the work afterwards.",
        );
        Grade::warning(observed, finding)
    } else {
        Grade::passed(observed)
    };
    grades.push((Check::ResponseTime, grade));
}

fn add_clock(run: &Run, grades: &mut Vec<(Check, Grade)>) {
    let grade = match run.clock_skew.get() {
        None => Grade::not_seen("the responses have no Date header"),
        Some(skew) if skew.unsigned_abs() > CLOCK_WARNING => Grade::warning(
            format!("{skew} s"),
            Finding::new(
                format!("The receiver's clock is {}.", describe_skew(skew)),
                "The window for timestamps is 300 s by the receiver's clock, so it is that much shorter on one side.",
                "Set the clocks of both machines, with NTP.",
            ),
        ),
        Some(skew) => Grade::passed(format!("{skew} s")),
    };
    grades.push((Check::Clock, grade));
}

fn has_grade(grades: &[(Check, Grade)], check: Check) -> bool {
    grades.iter().any(|(graded, _)| *graded == check)
}

fn is_passed(grades: &[(Check, Grade)], check: Check) -> bool {
    grades
        .iter()
        .any(|(graded, grade)| *graded == check && grade.findings.is_empty())
}

/// A good response does not show that the application acted once.
fn note_what_needs_a_probe(grades: &mut [(Check, Grade)]) {
    for (check, grade) in grades {
        if check.needs_probe() && grade.findings.is_empty() && *check != Check::Probe {
            *grade = grade.clone().and(Grade::not_seen(NO_PROBE));
        }
    }
}

/// Puts a line into the report for each selected check. Reachability is always in it.
fn report(settings: &Settings, mut grades: Vec<(Check, Grade)>) -> Examination {
    for check in Check::ALL.iter().copied() {
        if !has_grade(&grades, check) {
            let reason = "not examined, because no genuine delivery was accepted";
            grades.push((check, Grade::not_seen(reason)));
        }
    }
    let checks = grades
        .into_iter()
        .filter(|(check, grade)| {
            settings.selects(*check) || *check == Check::Reachable || !grade.findings.is_empty()
        })
        .map(|(check, grade)| CheckReport::new(check, grade))
        .collect();
    Examination::new(settings.url.clone(), checks)
}

/// Reports that nothing could be examined, because the settings are unusable.
pub(super) fn unusable(settings: &Settings, problem: &str) -> Examination {
    let finding = Finding::new(
        format!("Nothing could be examined: {problem}."),
        "The examination needs a URL that starts with http://, and the signing secret of the receiver.",
        "Correct the URL or the secret. For a receiver behind TLS, examine it on the machine where it listens without TLS.",
    );
    let grade = Grade::failed("not examined", finding);
    report(settings, vec![(Check::Reachable, grade)])
}
