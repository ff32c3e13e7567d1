//! Examines a receiver of webhooks: sends it deliveries like the service and unlike it, and grades the responses.

mod checks;
mod probe;
mod report;
mod run;
mod sample_events;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use self::report::{Effect, Grade};
use self::run::{Outcome, Outgoing, Run, describe_skew};
use self::sample_events::Spelling;
use crate::mock::http::HttpUrl;
use crate::webhooks::{EventType, Signer};

pub use report::{Check, CheckReport, Examination, Finding, UnknownCheck, Verdict};

/// Examines a receiver of webhooks, in any language.
///
/// The receiver gets about 70 deliveries that are signed with `secret`: genuine ones of all types, duplicates, forgeries,
/// old ones, slow ones. [`Check`] lists them all. The [`Examination`] says for each check whether the receiver passed,
/// and for each fault what is wrong, why it matters and what to do.
///
/// Examine a receiver of a test system only: it acts on the genuine events. Their ids start with `evt_examine_` and are
/// new in each examination. A fast receiver is examined in about 6 s; one that does not respond, within a few minutes.
/// `url` has to start with `http://`. The host can be any. Follows no redirect.
///
/// Without a [`probe`](ExamineReceiver::probe), only responses are seen. What they cannot show, such as an event that was
/// acted on twice, is [`Verdict::NotSeen`].
///
/// # Example: a good receiver
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use audience::mock::{Check, Verdict, examine};
/// use audience::webhooks::{VerifiedEvent, Verifier};
/// use axum::{Router, http::StatusCode, routing::post};
///
/// async fn hook(_event: VerifiedEvent) -> StatusCode {
///     StatusCode::OK
/// }
///
/// let router = Router::new().route("/hook", post(hook)).with_state(Verifier::new("6Jm0nFq2pXvZk4Tt")?);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let url = format!("http://{}/hook", listener.local_addr()?);
/// tokio::spawn(async { axum::serve(listener, router).await });
///
/// let examination = examine(url, "6Jm0nFq2pXvZk4Tt").only([Check::Stale, Check::Duplicate]).await;
///
/// assert!(examination.passed(), "{examination}");
/// assert_eq!(examination.verdict(Check::Stale), Some(Verdict::Passed));
/// // This receiver does not recognize duplicates. Without a probe, that cannot be seen.
/// assert_eq!(examination.verdict(Check::Duplicate), Some(Verdict::NotSeen));
/// # Ok(())
/// # }
/// ```
pub fn examine(url: impl Into<String>, secret: impl Into<String>) -> ExamineReceiver {
    ExamineReceiver::new(url.into(), secret.into())
}

/// How long the service waits for a response (interface section 6.5).
const RESPONSE_TIME: Duration = Duration::from_secs(10);

/// An examination that is not made yet. `.await` makes it. Created by [`examine`](crate::mock::examine()).
#[derive(Clone)]
#[must_use = "an examination is made when it is awaited"]
pub struct ExamineReceiver(Settings);

impl ExamineReceiver {
    fn new(url: String, secret: String) -> Self {
        Self(Settings {
            url,
            secret,
            probe: None,
            timeout: RESPONSE_TIME,
            only: Vec::new(),
        })
    }

    /// Sets a URL of the application that says how often it acted on an event. Default: none.
    ///
    /// After the deliveries, the examination sends `GET url?event=ID` for each event and expects the status 200 and
    /// JSON: `{"count": 1}`. `count` is how often the application acted on the event with this id; 0 if it never
    /// received it. `"type"` can be added: the type that the application acted on. With that, events that were lost,
    /// acted on twice, or acted on although they were refused are seen. The application has 5 s to act on what it
    /// accepted.
    ///
    /// # Example: a receiver with a probe
    ///
    /// ```no_run
    /// # async fn test() {
    /// let examination = audience::mock::examine("http://127.0.0.1:3000/hook", "6Jm0nFq2pXvZk4Tt")
    ///     .probe("http://127.0.0.1:3000/count")
    ///     .await;
    /// # }
    /// ```
    pub fn probe(mut self, url: impl Into<String>) -> Self {
        self.0.probe = Some(url.into());
        self
    }

    /// Sets how long the receiver may take for a response. Default: 10 s, as the service waits (interface section 6.5).
    ///
    /// A response that takes more than half of it is a warning.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = timeout;
        self
    }

    /// Makes only these checks. Default: all.
    ///
    /// An event of each of the ten types is delivered in any case, because the rest depends on it. The report has these
    /// checks, [`Check::Reachable`], and what else went wrong.
    ///
    /// # Example: two checks
    ///
    /// ```no_run
    /// # async fn test() {
    /// use audience::mock::{Check, examine};
    ///
    /// let examination = examine("http://127.0.0.1:3000/hook", "6Jm0nFq2pXvZk4Tt")
    ///     .only([Check::Stale, Check::TamperedBody])
    ///     .await;
    /// # }
    /// ```
    pub fn only(mut self, checks: impl IntoIterator<Item = Check>) -> Self {
        self.0.only = checks.into_iter().collect();
        self
    }
}

/// Makes the examination on a thread of its own, so that it needs no runtime and is not delayed by others. If the future
/// is dropped, the examination ends.
impl IntoFuture for ExamineReceiver {
    type Output = Examination;
    type IntoFuture = Pin<Box<dyn Future<Output = Examination> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (mut sender, receiver) = oneshot::channel();
            let settings = self.0.clone();
            let spawned = thread::Builder::new()
                .name("audience-examine".into())
                .spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build();
                    let Ok(runtime) = runtime else {
                        return;
                    };
                    runtime.block_on(async {
                        tokio::select! {
                            examination = make(settings) => {
                                // The caller may have lost interest.
                                let _ = sender.send(examination);
                            }
                            () = sender.closed() => {}
                        }
                    });
                    // A lookup of a host name cannot be cancelled, and nobody waits for it.
                    runtime.shutdown_background();
                });
            let problem = match spawned {
                Err(error) => format!("could not start a thread: {error}"),
                Ok(_) => match receiver.await {
                    Ok(examination) => return examination,
                    Err(_) => "could not start a runtime".to_owned(),
                },
            };
            unusable(&self.0, &problem)
        })
    }
}

impl fmt::Debug for ExamineReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExamineReceiver")
            .field("url", &self.0.url)
            .field("probe", &self.0.probe)
            .field("timeout", &self.0.timeout)
            .field("only", &self.0.only)
            .finish_non_exhaustive()
    }
}

/// A difference of the clocks that is worth a warning, in seconds.
const CLOCK_WARNING: u64 = 5;
const NO_PROBE: &str = "without a probe, it could not be seen how often the application acted";

/// What to examine, as the caller gave it.
#[derive(Clone)]
struct Settings {
    url: String,
    secret: String,
    probe: Option<String>,
    timeout: Duration,
    /// All checks, if there are none.
    only: Vec<Check>,
}

impl Settings {
    fn selects(&self, check: Check) -> bool {
        self.only.is_empty() || self.only.contains(&check)
    }
}

/// Examines a receiver.
async fn make(settings: Settings) -> Examination {
    let prepared = prepare(&settings);
    let (mut run, probe) = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => return unusable(&settings, &problem),
    };

    let opening = open(&mut run).await;
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

fn prepare(settings: &Settings) -> Result<(Run, Option<HttpUrl>), String> {
    let url = HttpUrl::parse(&settings.url)?;
    let probe = settings
        .probe
        .as_deref()
        .map(HttpUrl::parse)
        .transpose()
        .map_err(|problem| format!("the probe: {problem}"))?;
    let secret = &settings.secret;
    let signer = Signer::new(secret).map_err(|error| error.to_string())?;
    let other_signer =
        Signer::new(format!("{secret}-of-a-stranger")).map_err(|error| error.to_string())?;
    let run = Run::new(url, secret, signer, other_signer, settings.timeout);
    Ok((run, probe))
}

/// The checks that wait for the next second.
const OF_THE_WINDOW: [Check; 3] = [Check::Stale, Check::Early, Check::WindowEdge];

/// Runs every selected check that has no grade yet.
///
/// A receiver may serve one connection at a time. The checks of the window wait beside the slow body only if the receiver
/// responds to a delivery while that body is on its way.
async fn run_checks(settings: &Settings, run: &Run, grades: &mut Vec<(Check, Grade)>) {
    let first = match settings.selects(Check::LaterDuplicate) && run.stop_reason().is_none() {
        true => Some(checks::first_attempt(run).await),
        false => None,
    };
    let is_late = |check| check == Check::SlowBody || OF_THE_WINDOW.contains(&check);
    let early = Check::ALL.iter().copied().filter(|check| !is_late(*check));
    run_in_turn(early, settings, run, grades).await;

    let mut of_slow_body = Vec::new();
    let (body_is_sent, sent) = oneshot::channel::<()>();
    let slow_body = async {
        run_in_turn([Check::SlowBody], settings, run, &mut of_slow_body).await;
        drop(body_is_sent);
    };
    let window = async {
        if settings.selects(Check::SlowBody) && !checks::another_is_served(run).await {
            // The sender is dropped, never used.
            let _ = sent.await;
        }
        run_in_turn(OF_THE_WINDOW, settings, run, grades).await;
    };
    tokio::join!(slow_body, window);
    grades.extend(of_slow_body);

    if settings.selects(Check::LaterDuplicate) {
        let grade = match (run.stop_reason(), first) {
            (None, Some(first)) => checks::later_duplicate(run, first).await,
            (reason, _) => Grade::not_seen(reason.unwrap_or_default()),
        };
        grades.push((Check::LaterDuplicate, grade));
    }
}

async fn run_in_turn(
    checks: impl IntoIterator<Item = Check>,
    settings: &Settings,
    run: &Run,
    grades: &mut Vec<(Check, Grade)>,
) {
    for check in checks {
        if !settings.selects(check) || has_grade(grades, check) {
            continue;
        }
        if let Some(grade) = grade(check, run).await {
            grades.push((check, grade));
        }
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
        Check::UnknownType => checks::unknown_type(run).await,
        Check::RawBody => checks::raw_body(run).await,
        Check::NonAscii => checks::non_ascii(run).await,
        Check::LargeBody => checks::large_body(run).await,
        Check::EventHeader => checks::event_header(run).await,
        Check::Duplicate => checks::duplicate(run).await,
        Check::ConcurrentDuplicates => checks::concurrent_duplicates(run).await,
        Check::DistinctIds => checks::distinct_ids(run).await,
        Check::OtherSecret => checks::other_secret(run).await,
        Check::TamperedBody => checks::tampered_body(run).await,
        Check::MissingSignature => checks::missing_signature(run).await,
        Check::EmptySignature => checks::empty_signature(run).await,
        Check::CutSignature => checks::cut_signature(run).await,
        Check::UppercaseSignature => checks::uppercase_signature(run).await,
        Check::TwoSignatures => checks::two_signatures(run).await,
        Check::MissingTimestamp => checks::missing_timestamp(run).await,
        Check::MalformedTimestamp => checks::malformed_timestamp(run).await,
        Check::Stale => checks::stale(run).await,
        Check::Early => checks::early(run).await,
        Check::WindowEdge => checks::edge(run).await,
        Check::NotJson => checks::not_json(run).await,
        Check::SlowBody => checks::slow_body(run).await,
        Check::CutConnection => checks::cut_connection(run).await,
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
fn unusable(settings: &Settings, problem: &str) -> Examination {
    let finding = Finding::new(
        format!("Nothing could be examined: {problem}."),
        "The examination needs a URL that starts with http://, and the signing secret of the receiver.",
        "Correct the URL or the secret. For a receiver behind TLS, examine it on the machine where it listens without TLS.",
    );
    let grade = Grade::failed("not examined", finding);
    report(settings, vec![(Check::Reachable, grade)])
}

/// Delivers an event of each type. Sets a type that the receiver accepts as the type of all that follows.
async fn open(run: &mut Run) -> Opening {
    let mut accepted = Grade::passed("");
    let mut refused: Vec<(EventType, Outcome)> = Vec::new();
    let mut first_accepted = None;
    for event_type in types() {
        let event = run.event_of(event_type.clone());
        let outcome = run.deliver(&event).await;
        if outcome.is_success() {
            accepted = accepted
                .and(Grade::passed(outcome.to_string()))
                .expect(event.expect(Effect::Once));
            first_accepted.get_or_insert(event_type);
            continue;
        }
        refused.push((event_type, outcome));
        if first_accepted.is_none()
            && let Some(end) = hopeless(&refused, run)
        {
            return end;
        }
    }
    let Some(basis) = first_accepted else {
        return explain(run, &refused).await;
    };
    run.basis = basis;
    let reachable = Grade::passed("it responds");
    Opening {
        grades: vec![
            (Check::Reachable, reachable),
            (Check::Genuine, some_refused(accepted, &refused, run)),
        ],
        goes_on: true,
    }
}

/// The type that every application has to do with comes first.
fn types() -> impl Iterator<Item = EventType> {
    let others = EventType::KNOWN.iter().cloned();
    std::iter::once(EventType::Delivered)
        .chain(others.filter(|event_type| *event_type != EventType::Delivered))
}

/// Returns the result if nothing can be accepted any more: there is no connection, or two deliveries got no response.
fn hopeless(refused: &[(EventType, Outcome)], run: &Run) -> Option<Opening> {
    let is_second = refused.len() > 1;
    let (_, outcome) = refused.last()?;
    match outcome {
        Outcome::NotConnected(kind, reason) => {
            let finding = not_connected(*kind, reason, run);
            let grade = Grade::failed(outcome.to_string(), finding);
            Some(Opening::end([(Check::Reachable, grade)]))
        }
        Outcome::Broken(reason) if is_second => {
            let finding = Finding::new(
                format!(
                    "Something accepts connections, but sends no complete HTTP response: {reason}."
                ),
                "The service posts over HTTP/1.1.",
                "Check the port: it may be that of TLS or of another program. If it is the receiver's, look for a crash in \
                 its log.",
            );
            let grade = Grade::failed(outcome.to_string(), finding);
            Some(Opening::end([(Check::Reachable, grade)]))
        }
        Outcome::TimedOut if is_second => {
            let finding = checks::not_accepted(outcome, "A genuine delivery", "", run.timeout);
            Some(Opening::end([
                (Check::Reachable, Grade::passed("it takes connections")),
                (
                    Check::ResponseTime,
                    Grade::failed(outcome.to_string(), finding),
                ),
            ]))
        }
        _ => None,
    }
}

fn not_connected(kind: io::ErrorKind, reason: &str, run: &Run) -> Finding {
    let address = format!("{} port {}", run.url.host, run.url.port);
    let (problem, remedy) = match kind {
        io::ErrorKind::ConnectionRefused => (
            format!("Nothing listens at {address}: {reason}."),
            "Start the receiver and check the port. In a container, `localhost` is the container itself: the receiver has to \
             listen on 0.0.0.0, and the URL needs its host name.",
        ),
        io::ErrorKind::TimedOut => (
            format!("No connection to {address} in time."),
            "Check the host and the port, and whether a firewall is in between.",
        ),
        _ => (
            format!("No connection to {address}: {reason}."),
            "Check the spelling of the host name and the port.",
        ),
    };
    let reason = "Without a connection, nothing can be examined.";
    Finding::new(problem, reason, remedy)
}

/// Adds the types that were refused, by the response that they got.
fn some_refused(accepted: Grade, refused: &[(EventType, Outcome)], run: &Run) -> Grade {
    let mut grade = accepted;
    let mut reported: Vec<String> = Vec::new();
    for (_, outcome) in refused {
        let response = outcome.to_string();
        if reported.contains(&response) {
            continue;
        }
        let types: Vec<_> = refused
            .iter()
            .filter(|(_, other)| other.to_string() == response)
            .map(|(event_type, _)| event_type.as_str())
            .collect();
        let delivery = format!("A genuine delivery of {}", types.join(", "));
        let remedy = "Respond with a 2xx to every genuine delivery, also if there is nothing to do for its type.";
        let finding = checks::not_accepted(outcome, &delivery, remedy, run.timeout);
        grade = grade.and(Grade::failed(response.clone(), finding));
        reported.push(response);
    }
    grade
}

/// Results, and whether the examination goes on.
struct Opening {
    grades: Vec<(Check, Grade)>,
    goes_on: bool,
}

impl Opening {
    fn end(grades: impl IntoIterator<Item = (Check, Grade)>) -> Self {
        Self {
            grades: grades.into_iter().collect(),
            goes_on: false,
        }
    }
}

/// How far the clocks can differ before every delivery is outside the window (interface section 5).
const WINDOW: u64 = 300;

/// Finds out why nothing was accepted.
async fn explain(run: &Run, refused: &[(EventType, Outcome)]) -> Opening {
    let Some((_, outcome)) = refused.first() else {
        return Opening::end([]);
    };
    if let Some(finding) = wrong_path(outcome) {
        let grade = Grade::failed(outcome.to_string(), finding);
        return Opening::end([(Check::Reachable, grade)]);
    }
    let observed = outcome.to_string();
    let failed = |finding| Grade::failed(observed.clone(), finding);
    let reachable = (Check::Reachable, Grade::passed("it responds"));

    if let Some(finding) = wrong_clock(run) {
        return Opening::end([reachable, (Check::Clock, failed(finding))]);
    }
    if accepts_json_serialized_again(run).await {
        return Opening::end([
            reachable,
            (Check::RawBody, failed(checks::serialized_again())),
        ]);
    }
    if let Some(finding) = misreading(run).await {
        return Opening::end([reachable, (Check::Genuine, failed(finding))]);
    }
    let finding = match outcome.status() {
        Some(400 | 401 | 403 | 422) => wrong_secret(outcome),
        _ => {
            let remedy = "Look at the receiver's log: it may say that the secret is not set, or which error nobody handles. \
                Look for a limit or a rule of a proxy in front of it, too.";
            checks::not_accepted(outcome, "Every genuine delivery", remedy, run.timeout)
        }
    };
    Opening::end([reachable, (Check::Genuine, failed(finding))])
}

/// Returns what is wrong if the response is one to a wrong URL.
fn wrong_path(outcome: &Outcome) -> Option<Finding> {
    let (problem, remedy) = match outcome.status()? {
        404 => (
            "There is a server, but nothing at this path: it responds with 404.",
            "Check the path of the URL, also for a missing or extra slash at its end.",
        ),
        405 | 501 => (
            "The server does not take a POST at this path.",
            "Check the path of the URL, and that the route of the receiver is one for POST.",
        ),
        300..400 => (
            "The server redirects to another URL.",
            "Use the final URL. Look for a missing or extra slash at the end of the path, for http instead of https, and for a \
             login in front of the receiver.",
        ),
        410 => (
            "The server says that this endpoint is gone: 410.",
            "Check the path of the URL.",
        ),
        _ => return None,
    };
    let reason = "The service posts every event to this one URL and does not look for another.";
    Some(Finding::new(problem, reason, remedy))
}

fn wrong_clock(run: &Run) -> Option<Finding> {
    let skew = run.clock_skew.get()?;
    (skew.unsigned_abs() > WINDOW).then(|| {
        Finding::new(
            format!(
                "The receiver refuses genuine deliveries, and its clock is {}.",
                describe_skew(skew)
            ),
            "A receiver refuses what is dated more than 300 s from its own clock, so a wrong clock refuses everything \
             (interface section 5).",
            "Set the clocks of both machines, with NTP.",
        )
    })
}

/// Delivers events whose bytes do not change if they are parsed and serialized again.
async fn accepts_json_serialized_again(run: &Run) -> bool {
    for spelling in Spelling::SERIALIZED_AGAIN {
        if run.stop_reason().is_some() {
            return false;
        }
        let event = run.event().spelled(spelling);
        if run.deliver(&event).await.is_success() {
            return true;
        }
    }
    false
}

async fn misreading(run: &Run) -> Option<Finding> {
    let event = run.event();
    for misreading in sample_events::misreadings(&event, &run.secret, SystemTime::now()) {
        if run.stop_reason().is_some() {
            return None;
        }
        let request = Outgoing::post(misreading.headers, event.body.clone());
        if run.post(request).await.is_success() {
            return Some(Finding::new(
                format!(
                    "The receiver refuses every genuine delivery, because it {}.",
                    misreading.mistake
                ),
                "The signature is HMAC-SHA256 over the timestamp's text, a period and the raw body, with the secret's text as \
                 the key, in lowercase hex (interface section 5).",
                misreading.remedy,
            ));
        }
    }
    None
}

fn wrong_secret(outcome: &Outcome) -> Finding {
    Finding::new(
        format!("The receiver refuses every genuine delivery, with {outcome}."),
        "It loses every event. Most likely, it has another secret than the one given here. It is not JSON that is serialized \
         again: common spellings of it were refused, too.",
        "Compare the secret of the receiver with that given here, also for blanks and quotation marks around it. If they are \
         equal, verify HMAC-SHA256 over the timestamp's text, a period and the raw body, in lowercase hex, and make sure \
         that nothing in front of the receiver changes the body or removes the three headers.",
    )
}
