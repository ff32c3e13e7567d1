//! The fault sweep: every operation, under every retry setting and every sequence of faults in its first requests, before
//! and after the service applied them. A call that succeeds leaves the state that it would leave without faults. If a call
//! fails, what it says about the state is true.
//!
//! A sequence grows only while the call sends another request after its last fault, so every sequence that makes a
//! difference is run once. The clock of the client is paused and moves as fast as the service responds, so that timeouts
//! and waits take no time. `AUDIENCE_LONG_TESTS=1` runs sequences of up to three faults under all settings.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use audience::contacts::{BatchOutcome, Contacts, NewContact, OnConflict};
use audience::import::{ImportRow, OptOut, RowOutcome};
use audience::mock::dialect::ContactDeletion;
use audience::mock::{Dialect, Fault, MockServer, StoredContact};
use audience::rule::Condition;
use audience::{Client, Error, ErrorCode, Method, Outcome, RetryPolicy};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use serde_json::json;
use tokio::sync::mpsc;

use support::operation::Operation;
use support::{ADA, enum_with_all};

const BOB: &str = "bob@example.com";
const EVE: &str = "eve@example.com";
const NEW: &str = "new@example.com";
const OTHER: &str = "other@example.com";

/// The timeout of an attempt, by the paused clock.
const TIMEOUT: Duration = Duration::from_secs(360_000);
/// How far the clock moves with each tick. Only a call that waits notices it.
const TICK: Duration = Duration::from_secs(1);
/// The same without faults. Nothing waits then, and a connection must not time out because a tick takes little time.
const SMALL_TICK: Duration = Duration::from_millis(1);

enum_with_all! {
    enum SweepFault {
        ClosedBefore,
        ClosedAfter,
        CutBody,
        ResetBody,
        Garbage,
        RateLimited,
        RateLimitedForTwoSeconds,
        ErrorBefore,
        ErrorAfter,
        BadGatewayBefore,
        BadGatewayAfter,
        UnavailableBefore,
        UnavailableAfter,
        GatewayTimeoutAfter,
        RequestTimeoutAfter,
        SeeOtherAfter,
        NotImplemented,
        Forbidden,
        TimeoutBefore,
        TimeoutAfter,
        TruncatedJson,
        EmptyBody,
        BinaryBody,
        OtherJson,
        Page,
        PageBefore,
        ErrorInSuccessBefore,
        OtherContentType,
    }
}

use SweepFault::*;

impl SweepFault {
    fn fault(self) -> Fault {
        let late = Duration::from_secs(3_600);
        let page = "<!doctype html><title>Log in</title>";
        let html = ("content-type", "text/html");
        match self {
            ClosedBefore => Fault::close_before(),
            ClosedAfter => Fault::close_after(),
            CutBody => Fault::close_mid_body(),
            ResetBody => Fault::close_reset(),
            Garbage => Fault::garbage(),
            RateLimited => Fault::status(429),
            RateLimitedForTwoSeconds => Fault::status(429).retry_after(2),
            ErrorBefore => Fault::status(500),
            ErrorAfter => Fault::status(500).applied(),
            BadGatewayBefore => Fault::status(502).body(page).header(html.0, html.1),
            BadGatewayAfter => Fault::status(502).applied().body(""),
            UnavailableBefore => Fault::status(503).retry_after(1),
            UnavailableAfter => Fault::status(503).applied(),
            GatewayTimeoutAfter => Fault::status(504).applied().body(page),
            RequestTimeoutAfter => Fault::status(408).applied(),
            SeeOtherAfter => Fault::status(303)
                .applied()
                .header("location", "/contacts/nobody"),
            NotImplemented => Fault::status(501),
            Forbidden => Fault::status(403),
            TimeoutBefore => Fault::close_before().delayed_by(late),
            TimeoutAfter => Fault::delay(late),
            TruncatedJson => Fault::wrong_body("{\"id\": \"con_"),
            EmptyBody => Fault::wrong_body(""),
            BinaryBody => Fault::wrong_body([0xff, 0x00, 0xfe, 0x7b]),
            OtherJson => Fault::wrong_body("{\"data\": [{}], \"id\": 7}"),
            Page => Fault::wrong_body(page),
            PageBefore => Fault::status(200).body(page).header(html.0, html.1),
            ErrorInSuccessBefore => {
                Fault::status(200).body("{\"error\": {\"code\": \"internal_error\"}}")
            }
            OtherContentType => Fault::delay(Duration::ZERO).header(html.0, html.1),
        }
    }

    /// Whether the client waits for a response until its attempt times out.
    fn is_timeout(self) -> bool {
        matches!(self, TimeoutBefore | TimeoutAfter)
    }
}

enum_with_all! {
    enum Setting {
        None,
        Default,
        TwoAttempts,
        Impatient,
        WithDeadline,
    }
}

impl Setting {
    fn client(self, server: &MockServer) -> Client {
        let policy = RetryPolicy::exponential().base_delay(Duration::from_millis(100));
        let settings = Client::builder(server.url(), server.full_key()).timeout(TIMEOUT);
        let settings = match self {
            Self::None => settings.no_deadline().retry(RetryPolicy::none()),
            Self::Default => settings.no_deadline().retry(policy),
            Self::TwoAttempts => settings.no_deadline().retry(policy.max_attempts(2)),
            // A 429 that asks for two seconds ends the call.
            Self::Impatient => settings
                .no_deadline()
                .retry(policy.max_retry_after(Duration::from_secs(1))),
            // It ends in the second attempt, if both time out.
            Self::WithDeadline => settings.retry(policy).deadline(TIMEOUT * 3 / 2),
        };
        settings.build().unwrap()
    }
}

/// What a call says about a part of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    /// It is as before the call.
    Old,
    /// It is as after the call without faults.
    New,
    /// It is one of the two.
    Either,
    /// The contact is new, except perhaps for its consent.
    NewButConsent,
    /// The contact is old or new, or new except for its consent.
    Unknown,
}

impl From<Outcome> for Truth {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::NotSent | Outcome::Refused | Outcome::Unchanged => Self::Old,
            Outcome::Applied => Self::New,
            Outcome::Unknown => Self::Either,
        }
    }
}

#[derive(Debug)]
enum Claim {
    /// About everything that the mock stores.
    Everything(Truth),
    Contact(&'static str, Truth),
    /// About the answer of the contact [`ADA`] to a topic.
    Answer(String, Truth),
}

/// What a call returned.
#[derive(Debug)]
struct Report {
    claims: Vec<Claim>,
    /// The returned value, if it must be the one that the call returns without faults.
    value: Option<String>,
    is_ok: bool,
}

impl Report {
    fn of(result: &Result<(), Error>) -> Self {
        Self {
            value: None,
            ..Self::of_value(result)
        }
    }

    fn of_value<T: Debug>(result: &Result<T, Error>) -> Self {
        let truth = match result {
            Ok(_) => Truth::New,
            Err(error) => error.outcome().into(),
        };
        Self {
            claims: vec![Claim::Everything(truth)],
            value: result.as_ref().ok().map(|value| format!("{value:?}")),
            is_ok: result.is_ok(),
        }
    }
}

/// Runs an operation to its end.
type Run = Box<dyn Fn(Client) -> BoxFuture<'static, Report>>;

/// The operations of [`Operation`] that the mock supports. Each has something to change in the [`start`] state.
fn single_operations() -> impl Iterator<Item = (String, Run)> {
    let supported = |operation: &Operation| *operation != Operation::IdempotentRequest;
    let operations = Operation::ALL.into_iter().filter(supported);
    operations.map(|operation| {
        let address = match operation.template() {
            "/contacts" | "/contacts/batch" => NEW,
            _ if operation == Operation::Subscribe => BOB,
            _ => ADA,
        };
        let run = move |client: Client| {
            let call = operation.call(&client, address);
            async { Report::of(&call.future.await) }.boxed()
        };
        (format!("{operation:?}"), Box::new(run) as Run)
    })
}

/// The operations with `idempotent()`, with several requests or contacts, or whose value is compared.
fn further_operations() -> Vec<(String, Run)> {
    fn operation<F, Fut>(name: &str, run: F) -> (String, Run)
    where
        F: Fn(Client) -> Fut + 'static,
        Fut: Future<Output = Report> + Send + 'static,
    {
        (name.to_owned(), Box::new(move |client| run(client).boxed()))
    }
    vec![
        operation("create, for its contact", |client| async move {
            let created = client.contacts().create(NEW).await;
            Report::of_value(&created.map(|created| created.contact))
        }),
        operation("strict create, idempotent", |client| async move {
            let strict = NewContact::new(NEW).on_conflict(OnConflict::Error);
            let created = client.contacts().create(strict).idempotent().await;
            Report::of(&created.map(drop))
        }),
        operation("batch", |client| batch(client.contacts(), false, false)),
        operation("strict batch", |client| {
            batch(client.contacts(), true, false)
        }),
        operation("strict batch, idempotent", |client| {
            batch(client.contacts(), true, true)
        }),
        operation("subscribe, idempotent", |client| async move {
            Report::of_value(&client.contacts().subscribe(BOB).idempotent().await)
        }),
        operation("unsubscribe, for its contact", |client| async move {
            Report::of_value(&client.contacts().unsubscribe(ADA).await)
        }),
        operation("set_topics", |client| set_topics(client.contacts(), false)),
        operation("set_topics, idempotent", |client| {
            set_topics(client.contacts(), true)
        }),
        operation("update, of a property", |client| async move {
            let update = client.contacts().update(ADA).property("seats", 4);
            Report::of_value(&update.await)
        }),
        operation("update, of a name", |client| async move {
            let update = client.contacts().update(ADA).first_name("Augusta");
            Report::of_value(&update.await)
        }),
        operation("change_address", |client| change_address(client, ADA)),
        operation("change_address, of an opt-out", |client| {
            change_address(client, BOB)
        }),
        operation("retrieve, for its contact", |client| async move {
            Report::of_value(&client.contacts().retrieve(ADA).await)
        }),
        operation("find", |client| async move {
            Report::of_value(&client.contacts().find(ADA).await)
        }),
        operation("find, of nobody", |client| async move {
            Report::of_value(&client.contacts().find("nobody@example.com").await)
        }),
        operation("matches_each", |client| async move {
            let rules = ["pro", "free"].map(|plan| Condition::property("plan").is(plan));
            Report::of_value(&client.contacts().matches_each(ADA, rules).await)
        }),
        operation("stream", |client| async move {
            let stream = client.contacts().list().limit(2).stream();
            Report::of_value(&stream.try_collect::<Vec<_>>().await)
        }),
        operation("full stream", |client| async move {
            let stream = client.contacts().list().limit(2).full();
            Report::of_value(&stream.try_collect::<Vec<_>>().await)
        }),
        operation("count", |client| async move {
            Report::of_value(&client.contacts().list().limit(2).count().await)
        }),
        operation("raw delete, idempotent", |client| async move {
            let delete = client.request(Method::DELETE, ["contacts", ADA]);
            Report::of(&delete.idempotent().await.map(drop))
        }),
        operation("delete", |client| async move {
            Report::of(&client.contacts().delete(ADA).await)
        }),
        operation("import", |client| import(client.contacts(), false)),
        operation("strict import", |client| import(client.contacts(), true)),
    ]
}

async fn batch(contacts: Contacts, strict: bool, idempotent: bool) -> Report {
    let mut entries = vec![
        NewContact::new(NEW),
        NewContact::new(ADA).property("seats", 4),
        NewContact::new("no address"),
        NewContact::new(BOB).on_conflict(OnConflict::Skip),
    ];
    if strict {
        let addresses = [EVE, OTHER].map(NewContact::new);
        entries.extend(addresses.map(|entry| entry.on_conflict(OnConflict::Error)));
    }
    let mut call = contacts.create_batch(&entries);
    if idempotent {
        call = call.idempotent();
    }
    let result = call.await;
    let entries = result.as_ref().map(|report| report.entries.clone());
    let entries = entries.unwrap_or_default().into_iter();
    let mut report = Report::of(&result.map(drop));
    for (entry, address) in entries.zip([NEW, ADA, "no address", BOB, EVE, OTHER]) {
        // An earlier attempt of an idempotent call may have created it.
        let is_certain = !idempotent || address != OTHER;
        let truth = match &entry.outcome {
            BatchOutcome::Failed { code, .. } if ErrorCode::KNOWN.contains(code) && is_certain => {
                Truth::Old
            }
            BatchOutcome::Failed { .. } | BatchOutcome::Unknown => Truth::Either,
            _ => Truth::New,
        };
        report.claims.push(Claim::Contact(address, truth));
    }
    report
}

async fn set_topics(contacts: Contacts, idempotent: bool) -> Report {
    let mut call = contacts.set_topics(ADA, [("news", false), ("offers", true)]);
    if idempotent {
        call = call.idempotent();
    }
    let error = match call.await {
        Ok(saved) => return Report::of_value(&Ok(saved)),
        Err(error) => error,
    };
    let form = match error.form_outcome() {
        // Some answers of the form may be recorded, and others not.
        Outcome::Unknown => Truth::Unknown,
        certain => certain.into(),
    };
    let answers = |topics: &BTreeMap<String, bool>, truth| {
        let claim = |topic: &String| Claim::Answer(topic.clone(), truth);
        topics.keys().map(claim).collect::<Vec<_>>()
    };
    let failed = error
        .failed()
        .map(|(topic, _)| Claim::Answer(topic.to_owned(), error.error().outcome().into()));
    Report {
        claims: [Claim::Contact(ADA, form)]
            .into_iter()
            .chain(answers(error.recorded(), Truth::New))
            .chain(answers(error.not_sent(), Truth::Old))
            .chain(failed)
            .collect(),
        value: None,
        is_ok: false,
    }
}

async fn change_address(client: Client, old: &'static str) -> Report {
    let changed = client.contacts().change_address(old, NEW).await;
    let mut report = Report::of_value(&changed);
    if changed.is_err_and(|error| error.outcome() == Outcome::Unknown) {
        report.claims = vec![
            Claim::Contact(old, Truth::Either),
            Claim::Contact(NEW, Truth::Unknown),
        ];
    }
    report
}

async fn import(contacts: Contacts, strict: bool) -> Report {
    let opt_out = OptOut::Topic("news".to_owned());
    let on_conflict = match strict {
        true => OnConflict::Error,
        false => OnConflict::Upsert,
    };
    let new = |address| NewContact::new(address).on_conflict(on_conflict);
    let addresses = [NEW, ADA, OTHER, BOB];
    let rows = [
        ImportRow::new(new(NEW)).opt_out(opt_out.clone()),
        ImportRow::new(NewContact::new(ADA).property("seats", 4)),
        ImportRow::new(new(OTHER)),
        ImportRow::new(NewContact::new(BOB).on_conflict(OnConflict::Skip)).opt_out(opt_out),
    ];
    let outcomes: Vec<_> = contacts.import(rows).outcomes().collect().await;
    assert_eq!(outcomes.len(), addresses.len(), "{outcomes:?}");
    let truth = |outcome: &RowOutcome| match outcome {
        RowOutcome::Created | RowOutcome::Updated | RowOutcome::Skipped => Truth::New,
        RowOutcome::Refused { .. } | RowOutcome::NotSent => Truth::Old,
        RowOutcome::OptOutFailed { .. } => Truth::NewButConsent,
        _ => Truth::Unknown,
    };
    let truths = outcomes.iter().map(|(_, outcome)| truth(outcome));
    let claims = addresses.into_iter().zip(truths);
    Report {
        claims: claims
            .map(|(address, truth)| Claim::Contact(address, truth))
            .collect(),
        value: None,
        is_ok: outcomes.iter().all(|(_, outcome)| outcome.is_applied()),
    }
}

/// What the mock stores: contacts by their addresses, and the number of sent mails.
#[derive(Clone, Debug, PartialEq)]
struct State {
    contacts: BTreeMap<String, StoredContact>,
    mails: usize,
}

impl State {
    fn of(server: &MockServer) -> Self {
        let contacts = server.contacts().into_iter();
        Self {
            contacts: contacts
                .map(|contact| (contact.email.clone(), contact))
                .collect(),
            mails: server.sent_mail().len(),
        }
    }

    fn answer(&self, topic: &str) -> Option<bool> {
        let ada = self.contacts.get(ADA)?;
        ada.answers.get(topic).copied()
    }
}

/// Returns the contact with the consent of another.
fn with_consent_of(contact: &StoredContact, other: &StoredContact) -> StoredContact {
    let mut mixed = contact.clone();
    mixed.unsubscribed = other.unsubscribed;
    mixed
        .unsubscribe_reason
        .clone_from(&other.unsubscribe_reason);
    mixed.topics.clone_from(&other.topics);
    mixed.answers.clone_from(&other.answers);
    mixed
}

impl Claim {
    fn is_true(&self, actual: &State, old: &State, new: &State) -> bool {
        let holds = |truth, is_old, is_new, is_new_but_consent| match truth {
            Truth::Old => is_old,
            Truth::New => is_new,
            Truth::Either => is_old || is_new,
            Truth::NewButConsent => is_new_but_consent,
            Truth::Unknown => is_old || is_new_but_consent,
        };
        match self {
            Self::Everything(truth) => holds(*truth, actual == old, actual == new, false),
            Self::Answer(topic, truth) => {
                let actual = actual.answer(topic);
                holds(
                    *truth,
                    actual == old.answer(topic),
                    actual == new.answer(topic),
                    false,
                )
            }
            Self::Contact(address, truth) => {
                let [actual, old, new] =
                    [actual, old, new].map(|state| state.contacts.get(*address));
                let is_new_but_consent = match (actual, new) {
                    (Some(actual), Some(new)) => with_consent_of(new, actual) == *actual,
                    (actual, new) => actual == new,
                };
                holds(*truth, actual == old, actual == new, is_new_but_consent)
            }
        }
    }
}

/// Starts a mock whose contacts have opted in, opted out and reported spam.
async fn start() -> MockServer {
    let dialect = Dialect {
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    };
    let seed = json!({
        "topics": {"news": true, "offers": false},
        "contacts": [
            {"email": ADA, "first_name": "Ada", "properties": {"seats": 3}},
            {"email": BOB, "unsubscribed": true, "unsubscribe_reason": "preferences"},
            {"email": EVE, "unsubscribed": true, "unsubscribe_reason": "complaint"},
        ],
    });
    let settings = MockServer::builder().clock(1_700_000_000).dialect(dialect);
    settings.seed(seed).start().await
}

/// Time that moves as fast as the calls end. The runtime's clock must be paused.
struct FastClock {
    ticks: mpsc::Receiver<()>,
    /// While this thread of the runtime waits, the clock does not move by itself.
    _keeps_clock: std::sync::mpsc::Sender<()>,
}

impl FastClock {
    fn start() -> Self {
        let (keeps_clock, kept) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || kept.recv().is_err());
        let (tick, ticks) = mpsc::channel(1);
        std::thread::spawn(move || {
            while tick.blocking_send(()).is_ok() {
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Self {
            ticks,
            _keeps_clock: keeps_clock,
        }
    }

    /// Runs a call under these faults. An attempt times out when the service has received it.
    async fn run<T>(
        &mut self,
        server: &MockServer,
        faults: &[SweepFault],
        call: impl Future<Output = T>,
    ) -> T {
        let mut call = pin!(call);
        let mut timed_out = 0;
        for _ in 0..500_000 {
            tokio::select! {
                biased;
                result = &mut call => return result,
                _ = self.ticks.recv() => {}
            }
            let received = server.requests().len();
            let mut latest = faults.iter().take(received).skip(timed_out);
            let times_out = latest.any(|fault| fault.is_timeout());
            timed_out = received;
            let time = match times_out {
                true => TIMEOUT,
                false if faults.is_empty() => SMALL_TICK,
                false => TICK,
            };
            tokio::time::advance(time).await;
        }
        panic!("the call hangs after {faults:?}");
    }
}

/// What a sweep has seen, to know that it sees enough.
#[derive(Debug, Default)]
struct Seen {
    calls: usize,
    /// Calls that succeeded although a request was lost or failed.
    recovered: usize,
    old: usize,
    new: usize,
}

struct Sweep {
    server: MockServer,
    clock: FastClock,
    seen: Seen,
    /// How many operations were swept, each setting counted.
    runs: usize,
    is_long: bool,
}

impl Sweep {
    async fn start() -> Self {
        Self {
            clock: FastClock::start(),
            server: start().await,
            seen: Seen::default(),
            runs: 0,
            is_long: std::env::var_os("AUDIENCE_LONG_TESTS").is_some(),
        }
    }

    async fn call(&mut self, client: &Client, run: &Run, faults: &[SweepFault]) -> (Report, State) {
        self.server.reset();
        for fault in faults {
            self.server.fault(fault.fault().times(1));
        }
        // The 429 of an earlier call holds back the client.
        tokio::time::advance(Duration::from_secs(3)).await;
        let report = self
            .clock
            .run(&self.server, faults, run(client.clone()))
            .await;
        (report, State::of(&self.server))
    }

    /// Runs an operation under every sequence of up to this many faults.
    async fn run(&mut self, name: &str, run: &Run, setting: Setting, depth: usize) {
        let client = setting.client(&self.server);
        let is_raw = matches!(name, "Request" | "raw delete, idempotent");
        self.server.reset();
        let old = State::of(&self.server);
        let (faultless, new) = self.call(&client, run, &[]).await;
        assert!(faultless.is_ok, "{name}: {faultless:?}");
        let mut open = vec![Vec::new()];
        while let Some(start) = open.pop() {
            for fault in SweepFault::ALL {
                // A reset takes some time, and to the client it is like a cut body.
                let is_slow = fault == ResetBody && !self.is_long && !start.is_empty();
                // A raw request returns any 2xx as it comes, so it can only say what the status says.
                let is_beyond = is_raw && matches!(fault, PageBefore | ErrorInSuccessBefore);
                if is_slow || is_beyond {
                    continue;
                }
                let mut faults = start.clone();
                faults.push(fault);
                let (report, state) = self.call(&client, run, &faults).await;
                let case = format!("{name} ({setting:?}) after {faults:?}: {report:?}");
                self.check(&report, &faultless, [&state, &old, &new], &case);
                let continues = self.server.requests().len() > faults.len();
                // In the short form, every other fault is followed by a second one; for the next operation, the others.
                let is_chosen = self.is_long || (fault as usize + self.runs).is_multiple_of(2);
                if continues && faults.len() < depth && is_chosen {
                    open.push(faults);
                }
            }
        }
        self.runs += 1;
    }

    fn check(&mut self, report: &Report, faultless: &Report, states: [&State; 3], case: &str) {
        let [state, old, new] = states;
        for claim in &report.claims {
            assert!(
                claim.is_true(state, old, new),
                "{claim:?} is false: {case}\n{state:#?}"
            );
        }
        if report.is_ok {
            assert_eq!(state, new, "{case}");
            assert_eq!(report.value, faultless.value, "{case}");
        }
        self.seen.calls += 1;
        self.seen.recovered += usize::from(report.is_ok);
        self.seen.old += usize::from(!report.is_ok && state == old);
        self.seen.new += usize::from(!report.is_ok && state == new);
    }
}

async fn sweep(operations: impl IntoIterator<Item = (String, Run)>) -> Seen {
    let mut sweep = Sweep::start().await;
    for (name, run) in operations {
        for setting in Setting::ALL {
            let depth = match setting {
                _ if sweep.is_long => 3,
                Setting::Default => 2,
                _ => 1,
            };
            let before = sweep.seen.calls;
            sweep.run(&name, &run, setting, depth).await;
            if sweep.is_long {
                println!("{name} ({setting:?}): {} calls", sweep.seen.calls - before);
            }
        }
    }
    println!("{:?}", sweep.seen);
    sweep.seen
}

#[tokio::test(start_paused = true)]
async fn a_call_under_faults_ends_in_the_same_state_or_tells_the_truth_about_it() {
    let seen = sweep(single_operations()).await;

    assert!(
        seen.recovered > 1_000 && seen.old > 500 && seen.new > 500,
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_of_several_requests_or_contacts_under_faults_tells_the_truth_about_each() {
    let seen = sweep(further_operations()).await;

    assert!(
        seen.recovered > 1_000 && seen.old > 500 && seen.new > 500,
        "{seen:?}"
    );
}
