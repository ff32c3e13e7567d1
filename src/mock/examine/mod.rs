//! Examines a webhook receiver: sends it genuine and forged deliveries, and grades the responses.

mod checks;
mod exchange;
mod probe;
mod report;
mod sample_events;

use std::cell::Cell;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::exchange::{Outcome, Outgoing, Pace, clock_skew, describe_skew, send};
use self::report::{Effect, Grade};
use self::sample_events::{SampleEvent, Spelling};
use crate::Timestamp;
use crate::mock::http::HttpUrl;
use crate::webhooks::{EventType, Signer};

pub use report::{Check, CheckReport, Examination, Finding, Verdict};

/// Examines a webhook receiver, in any language.
///
/// The receiver gets about 90 deliveries: genuine ones of all types, signed with `secret`, and duplicate, forged, old
/// and slow ones. With a [`probe`](ExamineReceiver::probe), it gets 130 more. [`Check`] lists them all. The [`Examination`] says for each check whether the receiver passed. For
/// each mistake, it says what is wrong, why it matters and how to fix it.
///
/// Run it only against a test system: the receiver acts on the genuine events. Their ids start with `evt_examine_` and
/// are new in each examination. The examination of a fast receiver takes about 3 s, and of one that does not respond a
/// few minutes at most. `url` must start with `http://`, and can have any host. Redirects are not followed.
///
/// A response does not show how often the application acted on an event. Without a [`probe`](ExamineReceiver::probe),
/// the checks that depend on it report [`Verdict::NotSeen`].
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
/// let examination = examine(url, "6Jm0nFq2pXvZk4Tt").only([Check::Stale, Check::Duplicate]);
/// # let examination = examination.timeout(std::time::Duration::from_secs(120));
/// let examination = examination.await;
///
/// assert!(examination.passed(), "{examination}");
/// assert_eq!(examination.verdict(Check::Stale), Some(Verdict::Passed));
/// // This receiver does not recognize duplicates, but only a probe could show that.
/// assert_eq!(examination.verdict(Check::Duplicate), Some(Verdict::NotSeen));
/// # Ok(())
/// # }
/// ```
pub fn examine(url: impl Into<String>, secret: impl Into<String>) -> ExamineReceiver {
    ExamineReceiver::new(url.into(), secret.into())
}

/// How long the service waits for a response (interface section 6.5).
const RESPONSE_TIME: Duration = Duration::from_secs(10);
/// How long an application may take to act on what it accepted.
const SETTLING: Duration = Duration::from_secs(5);
/// A longer timeout makes no difference, and no clock has the end of the longest one.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// An examination that has not started. Await it to run it. Created by [`examine`](crate::mock::examine()).
#[derive(Clone)]
#[must_use = "an examination runs only when it is awaited"]
pub struct ExamineReceiver(Settings);

impl ExamineReceiver {
    fn new(url: String, secret: String) -> Self {
        Self(Settings {
            url,
            secret,
            probe: None,
            timeout: RESPONSE_TIME,
            settle: SETTLING,
            only: Vec::new(),
            on_start: None,
        })
    }

    /// Sets a URL at which the application tells how often it acted on an event. Default: none.
    ///
    /// After the deliveries, the examination sends `GET url?event=ID` for each event and expects the status 200 and
    /// JSON: `{"count": 1}`. `count` is how often the application acted on the event with this id, or 0 if the id is
    /// unknown. The JSON can also contain `"type"`, the type that the application acted on. So the examination sees
    /// events that the application lost, acted on twice, or acted on although it rejected them. If the application acts
    /// in slow jobs, give it time to [settle](Self::settle).
    ///
    /// # Example: a receiver that recognizes duplicates
    ///
    /// ```
    /// use audience::mock::{Check, Verdict, examine};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = audience::mock::MockServer::start().await;
    /// # receiver.fault(audience::mock::Fault::status(200).body(r#"{"count": 1}"#));
    /// # let (hook, count) = (format!("{}/hook", receiver.url()), format!("{}/count", receiver.url()));
    /// let examination = examine(hook, "6Jm0nFq2pXvZk4Tt").probe(count).only([Check::Duplicate]).await;
    ///
    /// assert_eq!(examination.verdict(Check::Duplicate), Some(Verdict::Passed));
    /// # }
    /// ```
    pub fn probe(mut self, url: impl Into<String>) -> Self {
        self.0.probe = Some(url.into());
        self
    }

    /// Sets the response timeout. Default: 10 s, like the service's ([interface section 6.5](crate::interface#6.5)).
    ///
    /// A response that takes more than half of it is a warning. More than a day counts as a day.
    ///
    /// # Example: a receiver that must respond within 100 ms
    ///
    /// ```
    /// # use std::time::Duration;
    /// use audience::mock::{Check, Verdict, examine};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = audience::mock::MockServer::start().await;
    /// # receiver.fault(audience::mock::Fault::status(200).delayed_by(Duration::from_secs(600)));
    /// # let hook = format!("{}/hook", receiver.url());
    /// let examination = examine(hook, "6Jm0nFq2pXvZk4Tt").timeout(Duration::from_millis(100)).await;
    ///
    /// assert_eq!(examination.verdict(Check::ResponseTime), Some(Verdict::Failed));
    /// # }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = timeout.min(LONGEST_TIMEOUT);
        self
    }

    /// Sets how long the application may take, after the last delivery, to act on all events that it accepted. Default:
    /// 5 s. More than a day counts as a day.
    ///
    /// Only the [probe](Self::probe) shows when it has acted. An application that is faster is not waited for.
    ///
    /// # Example: an application whose jobs take 10 s each, one after the other
    ///
    /// ```
    /// # use std::time::Duration;
    /// use audience::mock::{Check, Verdict, examine};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = audience::mock::MockServer::start().await;
    /// # receiver.fault(audience::mock::Fault::status(200).body(r#"{"count": 1}"#));
    /// # let (hook, count) = (format!("{}/hook", receiver.url()), format!("{}/count", receiver.url()));
    /// let examination = examine(hook, "6Jm0nFq2pXvZk4Tt").probe(count).settle(Duration::from_secs(1_800));
    /// # let examination = examination.only([Check::Duplicate]);
    ///
    /// assert_eq!(examination.await.verdict(Check::Duplicate), Some(Verdict::Passed));
    /// # }
    /// ```
    pub fn settle(mut self, limit: Duration) -> Self {
        self.0.settle = limit.min(LONGEST_TIMEOUT);
        self
    }

    /// Runs only these checks. Default: all.
    ///
    /// The examination always delivers an event of each of the ten types first, because all checks depend on it. With
    /// a probe, it delivers one more event in the end. The report contains these checks, [`Check::Reachable`], and
    /// every other check that found something.
    ///
    /// # Example: a receiver that verifies nothing
    ///
    /// ```
    /// use audience::mock::{Check, Verdict, examine};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = audience::mock::MockServer::start().await;
    /// # receiver.fault(audience::mock::Fault::status(200));
    /// # let hook = format!("{}/hook", receiver.url());
    /// let examination = examine(hook, "6Jm0nFq2pXvZk4Tt").only([Check::MissingSignature]).await;
    ///
    /// assert_eq!(examination.verdict(Check::MissingSignature), Some(Verdict::Failed));
    /// assert_eq!(examination.verdict(Check::Stale), None);
    /// # }
    /// ```
    pub fn only(mut self, checks: impl IntoIterator<Item = Check>) -> Self {
        self.0.only = checks.into_iter().collect();
        self
    }

    /// Calls a function when a check starts. Checks that only grade the responses of others do not start.
    #[cfg(feature = "mock-server")]
    pub(in crate::mock) fn on_start(
        mut self,
        call: impl Fn(Check) + Send + Sync + 'static,
    ) -> Self {
        self.0.on_start = Some(Arc::new(call));
        self
    }
}

/// Runs the examination on its own thread, so that it needs no runtime and no other task delays it. If the future is
/// dropped, the examination ends.
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
                    let runtime = match runtime {
                        Ok(runtime) => runtime,
                        Err(error) => {
                            let problem = format!("could not start a runtime: {error}");
                            let _ = sender.send(unusable(&settings, &problem));
                            return;
                        }
                    };
                    runtime.block_on(async {
                        tokio::select! {
                            examination = make(settings) => {
                                // The caller may have dropped the future.
                                let _ = sender.send(examination);
                            }
                            () = sender.closed() => {}
                        }
                    });
                    // A lookup of a host name cannot be cancelled. Its result is not needed.
                    runtime.shutdown_background();
                });
            let problem = match spawned {
                Err(error) => format!("could not start a thread: {error}"),
                Ok(_) => match receiver.await {
                    Ok(examination) => return examination,
                    Err(_) => "the examination panicked".to_owned(),
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
            .field("settle", &self.0.settle)
            .field("only", &self.0.only)
            .finish_non_exhaustive()
    }
}

/// A difference of the clocks that is worth a warning, in seconds.
const CLOCK_WARNING: u64 = 5;
const NO_PROBE: &str = "without a probe, how often the application acted is unknown";

/// The settings of the caller.
#[derive(Clone)]
struct Settings {
    url: String,
    secret: String,
    probe: Option<String>,
    timeout: Duration,
    settle: Duration,
    /// All checks, if there are none.
    only: Vec<Check>,
    on_start: Option<Arc<dyn Fn(Check) + Send + Sync>>,
}

impl Settings {
    fn selects(&self, check: Check) -> bool {
        self.only.is_empty() || self.only.contains(&check)
    }

    fn started(&self, check: Check) {
        if let Some(call) = &self.on_start {
            call(check);
        }
    }
}

async fn make(settings: Settings) -> Examination {
    let prepared = prepare(&settings);
    let (mut run, probe) = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => return unusable(&settings, &problem),
    };

    settings.started(Check::Genuine);
    let opening = open(&mut run).await;
    let mut grades = opening.grades;
    if opening.continues {
        checks::run_all(&settings, &run, &mut grades).await;
        add_response_time(&run, &mut grades);
        add_clock(&run, &mut grades);
        let of_probe = match &probe {
            Some(url) => {
                settings.started(Check::Probe);
                probe::ask(url, settings.timeout, settings.settle, &mut grades).await
            }
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
    let mut run = Run::new(url, secret, signer, other_signer, settings.timeout);
    run.has_probe = probe.is_some();
    Ok((run, probe))
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
            "Under load, responses take longer. A response after 10 s is a failed attempt, even if the application has done \
             the work (interface section 6.5, Delivery).",
            "Store the event in a queue or a table and respond immediately. Do the work afterwards.",
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
                "The receiver accepts timestamps up to 300 s from its own clock. If that clock is wrong, the window is \
                 shorter on one side (interface section 5, Signatures of webhooks).",
                "Synchronize the clocks of both machines with NTP.",
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
        format!("The receiver could not be examined: {problem}."),
        "The examination needs a URL that starts with http://, and the signing secret of the receiver.",
        "Correct the URL or the secret. If TLS ends in front of the receiver, examine the receiver behind that proxy, over \
         http.",
    );
    let grade = Grade::failed("not examined", finding);
    report(settings, vec![(Check::Reachable, grade)])
}

/// After this many responses that did not arrive, no further check starts.
const PATIENCE: u32 = 3;
/// After this time, no further check starts.
const TIME_LIMIT: Duration = Duration::from_secs(180);
/// How often the examination waits for one delivery because of a 429 or 503 with `Retry-After`.
const RETRIES: u32 = 3;
/// The longest of these waits.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// After this time in all of these waits, there are no more.
const ALL_WAITS: Duration = Duration::from_secs(120);

/// An examination while it runs.
struct Run {
    url: HttpUrl,
    secret: String,
    signer: Signer,
    /// Signs with another secret.
    other_signer: Signer,
    timeout: Duration,
    has_probe: bool,
    /// A type that the receiver accepts.
    basis: EventType,
    /// Whether the receiver accepts what is signed with another secret.
    accepts_forgeries: Cell<bool>,
    /// The longest time that a genuine delivery took, of those sent one by one.
    slowest: Cell<Duration>,
    /// The difference of the clocks, in seconds, if a response had a `Date`.
    clock_skew: Cell<Option<i64>>,
    /// How long the quickest of these responses took.
    quickest: Cell<Duration>,
    timeouts: Cell<u32>,
    /// How long it waited because the receiver asked for it.
    waited: Cell<Duration>,
    started: Instant,
    /// Makes the ids of this examination different from the ids of every other.
    id_prefix: String,
    last_id: Cell<u32>,
}

impl Run {
    fn new(
        url: HttpUrl,
        secret: &str,
        signer: Signer,
        other_signer: Signer,
        timeout: Duration,
    ) -> Self {
        static EXAMINATIONS: AtomicU64 = AtomicU64::new(1);
        let number = EXAMINATIONS.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = since.map_or(0, |since| since.as_nanos());
        Self {
            url,
            secret: secret.to_owned(),
            signer,
            other_signer,
            timeout,
            has_probe: false,
            basis: EventType::Delivered,
            accepts_forgeries: Cell::new(false),
            slowest: Cell::default(),
            clock_skew: Cell::default(),
            quickest: Cell::new(Duration::MAX),
            timeouts: Cell::default(),
            waited: Cell::default(),
            started: Instant::now(),
            // A receiver remembers ids: a second examination with the same ids would be all duplicates.
            id_prefix: format!(
                "evt_examine_{nanoseconds:x}_{:x}_{number}",
                std::process::id()
            ),
            last_id: Cell::default(),
        }
    }

    /// Returns the reason to stop, if the remaining checks cannot be examined.
    fn stop_reason(&self) -> Option<String> {
        if self.timeouts.get() >= PATIENCE {
            return Some(format!(
                "not examined, because {PATIENCE} responses did not arrive in time"
            ));
        }
        let is_over = self.started.elapsed() > TIME_LIMIT;
        is_over.then(|| {
            format!("not examined, because the examination took longer than {TIME_LIMIT:?}")
        })
    }

    fn id(&self) -> String {
        let number = self.last_id.get() + 1;
        self.last_id.set(number);
        format!("{}_{number}", self.id_prefix)
    }

    /// Returns a new event of a type that the receiver accepts.
    fn event(&self) -> SampleEvent {
        self.event_of(self.basis.clone())
    }

    fn event_of(&self, event_type: EventType) -> SampleEvent {
        SampleEvent::new(self.id(), event_type, now())
    }

    /// Signs an event as the service does, now.
    fn signed(&self, event: &SampleEvent) -> HeaderMap {
        self.signer
            .sign(&event.event_type, SystemTime::now(), &event.body)
    }

    /// Delivers an event as the service does.
    async fn deliver(&self, event: &SampleEvent) -> Outcome {
        let request = || Outgoing::post(self.signed(event), event.body.clone());
        let outcome = self.post_patiently(request).await;
        if let Outcome::Response(response) = &outcome {
            self.slowest.set(self.slowest.get().max(response.elapsed));
        }
        outcome
    }

    /// Delivers an event whose body arrives in pieces.
    async fn deliver_slowly(&self, event: &SampleEvent, pace: Pace) -> Outcome {
        self.post_patiently(|| {
            let mut request = Outgoing::post(self.signed(event), event.body.clone());
            request.pace = pace;
            request
        })
        .await
    }

    /// Posts a request. A receiver that responds 429 or 503 with `Retry-After` gets it again after that time.
    async fn post_patiently(&self, request: impl Fn() -> Outgoing) -> Outcome {
        let mut retries = 0;
        loop {
            let outcome = self.post(request()).await;
            match outcome.asked_delay() {
                Some(wait) if retries < RETRIES && self.waited.get() < ALL_WAITS => {
                    let wait = wait.min(LONGEST_WAIT);
                    retries += 1;
                    self.waited.set(self.waited.get() + wait);
                    tokio::time::sleep(wait).await;
                }
                _ => return outcome,
            }
        }
    }

    /// Posts a request once.
    async fn post(&self, request: Outgoing) -> Outcome {
        let (before, start) = (SystemTime::now(), Instant::now());
        let outcome = send(&self.url, request, self.timeout).await;
        match &outcome {
            Outcome::Response(response) => self.note_date(response.date, before, start.elapsed()),
            Outcome::TimedOut => self.timeouts.set(self.timeouts.get() + 1),
            Outcome::NotConnected(..) | Outcome::Broken(_) => {}
        }
        outcome
    }

    /// Keeps the difference of the clocks that the quickest response shows: the others leave more room for delays.
    fn note_date(&self, date: Option<u64>, before: SystemTime, took: Duration) {
        let Some(date) = date else {
            return;
        };
        if took < self.quickest.get() {
            self.quickest.set(took);
            let skew = clock_skew(date, before, SystemTime::now());
            self.clock_skew.set(Some(skew));
        }
    }
}

fn now() -> i64 {
    Timestamp::now().as_unix()
}

/// Delivers an event of each type. Later deliveries have the first type that the receiver accepted.
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
        continues: true,
    }
}

/// Returns all types. The first is one that every application has to handle.
fn types() -> impl Iterator<Item = EventType> {
    let others = EventType::KNOWN.iter().cloned();
    std::iter::once(EventType::Delivered)
        .chain(others.filter(|event_type| *event_type != EventType::Delivered))
}

/// Returns the result if the examination has to end: there is no connection, or two deliveries got no response.
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
                "The service posts events over HTTP/1.1 and needs a complete response.",
                "Check the port: TLS or another program may use it. If it is the receiver's port, look for a crash in the \
                 receiver's log.",
            );
            let grade = Grade::failed(outcome.to_string(), finding);
            Some(Opening::end([(Check::Reachable, grade)]))
        }
        Outcome::TimedOut if is_second => {
            let finding = checks::not_accepted(outcome, "A genuine delivery", "", run.timeout);
            Some(Opening::end([
                (Check::Reachable, Grade::passed("it accepts connections")),
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
            format!("The connection to {address} timed out."),
            "Check the host and the port. Look for a firewall between this machine and the receiver.",
        ),
        _ => (
            format!("The examiner could not connect to {address}: {reason}."),
            "Check the spelling of the host name, and the port.",
        ),
    };
    let reason = "The examiner needs a connection to the receiver.";
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
        let remedy = "Respond with a 2xx to every genuine delivery, even if the application ignores events of its type.";
        let finding = checks::not_accepted(outcome, &delivery, remedy, run.timeout);
        grade = grade.and(Grade::failed(response.clone(), finding));
        reported.push(response);
    }
    grade
}

/// Results, and whether the examination continues.
struct Opening {
    grades: Vec<(Check, Grade)>,
    continues: bool,
}

impl Opening {
    fn end(grades: impl IntoIterator<Item = (Check, Grade)>) -> Self {
        Self {
            grades: grades.into_iter().collect(),
            continues: false,
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

    // First, because a receiver with a wrong clock also rejects everything that the next two send.
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
            let remedy = "Look at the receiver's log for an unhandled error, or for a secret that is not set. Also check the \
                limits and rules of any proxy in front of the receiver.";
            checks::not_accepted(outcome, "Every genuine delivery", remedy, run.timeout)
        }
    };
    Opening::end([reachable, (Check::Genuine, failed(finding))])
}

/// Returns what is wrong if the response is one to a wrong URL.
fn wrong_path(outcome: &Outcome) -> Option<Finding> {
    let (problem, remedy) = match outcome.status()? {
        404 => (
            "The server has nothing at this path: it responds with 404.",
            "Check the path of the URL. Look for a missing or extra slash at its end.",
        ),
        405 | 501 => (
            "The server does not accept POST at this path.",
            "Check the path of the URL. Make the receiver's route accept POST.",
        ),
        300..400 => (
            "The server redirects to another URL.",
            "Use the final URL. Look for a missing or extra slash at the end of the path, for http instead of https, and for a \
             login page in front of the receiver.",
        ),
        410 => (
            "The server responds with 410, which means that this endpoint is gone.",
            "Check the path of the URL.",
        ),
        _ => return None,
    };
    let reason = "The service posts every event to this URL and to no other.";
    Some(Finding::new(problem, reason, remedy))
}

fn wrong_clock(run: &Run) -> Option<Finding> {
    let skew = run.clock_skew.get()?;
    (skew.unsigned_abs() > WINDOW).then(|| {
        Finding::new(
            format!(
                "The receiver rejects every genuine delivery. Its clock is {}.",
                describe_skew(skew)
            ),
            "A receiver rejects every delivery whose timestamp is more than 300 s from its own clock. With a wrong clock, it \
             rejects all of them (interface section 5, Signatures of webhooks).",
            "Synchronize the clocks of both machines with NTP.",
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
        let request = || Outgoing::post(misreading.headers.clone(), event.body.clone());
        if run.post_patiently(request).await.is_success() {
            return Some(Finding::new(
                format!(
                    "The receiver rejects every genuine delivery, because it {}.",
                    misreading.mistake
                ),
                "The signature is HMAC-SHA256 over the timestamp's text, a period and the raw body, with the secret's text as \
                 the key, in lowercase hex (interface section 5, Signatures of webhooks).",
                misreading.remedy,
            ));
        }
    }
    None
}

fn wrong_secret(outcome: &Outcome) -> Finding {
    Finding::new(
        format!("The receiver rejects every genuine delivery with the response {outcome}."),
        "The receiver loses every event. Most likely, its secret is not the one given here. Serializing the JSON again is not \
         the cause: the receiver also rejected the forms that common serializers write.",
        "Compare the receiver's secret with the one given here. Look for spaces and quotation marks around it. If the \
         secrets are equal, verify HMAC-SHA256 over the timestamp's text, a period and the raw body, in lowercase hex \
         (interface section 5, Signatures of webhooks). Make sure that no proxy changes the body or removes the three \
         headers.",
    )
}

#[cfg(test)]
mod tests;
