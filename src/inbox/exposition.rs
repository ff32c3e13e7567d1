//! The counters and the backlog as text for Prometheus.

use std::fmt::Write;
use std::time::Duration;

use super::error::StoreError;
use super::store::{Backlog, all};
use super::{Inbox, InboxMetrics};

/// Prometheus waits ten seconds for the response to a scrape.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the metrics of these inboxes as text for
/// [Prometheus](https://prometheus.io/docs/instrumenting/exposition_formats/).
///
/// Give each inbox another endpoint name. `UnsubscribeService::inbox` has the name `unsubscribe`, unless you set
/// another, and its events are opt-outs.
///
/// | metric | type | value |
/// |---|---|---|
/// | `audience_inbox_…_total` | counter | each counter of [`InboxMetrics`], such as `audience_inbox_handled_total`: of this process |
/// | `audience_inbox_backlog` | gauge | the counts of [`Backlog`], with the label `state`: `waiting`, `in_progress` or `parked`. Of all processes |
/// | `audience_inbox_lag_seconds` | gauge | [`Backlog::lag`]. Of all processes |
///
/// Each has the label `endpoint`. All stores are asked simultaneously. If the store of an inbox fails or does not
/// respond within 5 s, its gauges are missing, and `audience_inbox_store_errors_total` grows.
///
/// # Example: the route `/metrics`
///
/// ```
/// use audience::inbox::{Inbox, MemoryStore, prometheus};
/// use axum::extract::State;
/// use axum::{Router, routing::get};
///
/// async fn metrics(State(inbox): State<Inbox>) -> String {
///     prometheus([&inbox]).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let inbox = Inbox::builder(MemoryStore::new()).build()?;
/// assert!(prometheus([&inbox]).await.contains("audience_inbox_handled_total{endpoint=\"main\"} 0\n"));
///
/// let router: Router = Router::new().route("/metrics", get(metrics)).with_state(inbox);
/// # let _ = router;
/// # Ok(()) }
/// ```
pub async fn prometheus<'a>(inboxes: impl IntoIterator<Item = &'a Inbox>) -> String {
    let inboxes: Vec<_> = inboxes.into_iter().collect();
    let backlogs = backlogs(&inboxes).await;
    let samples = inboxes.into_iter().zip(backlogs);
    let samples = samples.map(|(inbox, backlog)| Sample {
        endpoint: inbox.endpoint(),
        // The metrics come after the backlog, because they count its failure.
        metrics: inbox.metrics(),
        backlog,
    });
    render(&samples.collect::<Vec<_>>())
}

/// Asks all stores simultaneously, so that one that does not respond takes no time from the others.
async fn backlogs(inboxes: &[&Inbox]) -> Vec<Option<Backlog>> {
    let asked: Vec<_> = inboxes.iter().map(|inbox| backlog(inbox)).collect();
    all(asked).await
}

async fn backlog(inbox: &Inbox) -> Option<Backlog> {
    match tokio::time::timeout(LIMIT, inbox.backlog()).await {
        Ok(backlog) => backlog.ok(),
        Err(_) => {
            let error = StoreError::unavailable("it did not respond in time");
            inbox.0.store_failed("backlog", &error);
            None
        }
    }
}

struct Sample<'a> {
    endpoint: &'a str,
    metrics: InboxMetrics,
    /// The backlog; `None` if the store failed.
    backlog: Option<Backlog>,
}

type Counter = (&'static str, &'static str, fn(&InboxMetrics) -> u64);

const COUNTERS: [Counter; 11] = [
    ("accepted", "Events stored for a worker.", |m| m.accepted),
    ("handled", "Events whose handler succeeded.", |m| m.handled),
    ("duplicates", "Deliveries that are duplicates.", |m| {
        m.duplicates
    }),
    (
        "in_progress",
        "Deliveries of an event that another attempt was handling.",
        |m| m.in_progress,
    ),
    (
        "failed",
        "Attempts that returned an error or panicked.",
        |m| m.failed,
    ),
    ("parked", "Events parked.", |m| m.parked),
    (
        "incomplete",
        "Events of a known type whose data does not tell what they are about.",
        |m| m.incomplete,
    ),
    (
        "unknown_type",
        "Events of a type that this version of the crate does not know.",
        |m| m.unknown_type,
    ),
    (
        "conflicts",
        "Deliveries that were refused because their id was received before with another body.",
        |m| m.conflicts,
    ),
    ("leases_lost", "Leases that were lost.", |m| m.leases_lost),
    (
        "store_errors",
        "Calls of the store that failed or timed out.",
        |m| m.store_errors,
    ),
];

fn render(samples: &[Sample<'_>]) -> String {
    let mut text = String::new();
    // All lines of a metric stand together.
    for (name, help, value) in COUNTERS {
        let name = format!("audience_inbox_{name}_total");
        head(&mut text, &name, "counter", help);
        for sample in samples {
            line(&mut text, &name, sample, "", value(&sample.metrics));
        }
    }
    let name = "audience_inbox_backlog";
    let help = "Accepted events that are not done, in all processes.";
    head(&mut text, name, "gauge", help);
    for (sample, backlog) in with_backlog(samples) {
        for (state, count) in [
            ("waiting", backlog.waiting),
            ("in_progress", backlog.in_progress),
            ("parked", backlog.parked),
        ] {
            let state = format!(",state=\"{state}\"");
            line(&mut text, name, sample, &state, count);
        }
    }
    let name = "audience_inbox_lag_seconds";
    let help = "How long the oldest due event has been due, in all processes.";
    head(&mut text, name, "gauge", help);
    for (sample, backlog) in with_backlog(samples) {
        line(&mut text, name, sample, "", backlog.lag.as_secs_f64());
    }
    text
}

fn with_backlog<'s, 'a>(
    samples: &'s [Sample<'a>],
) -> impl Iterator<Item = (&'s Sample<'a>, Backlog)> {
    let samples = samples.iter();
    samples.filter_map(|sample| Some((sample, sample.backlog?)))
}

// Writing to a `String` cannot fail.

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn line(
    text: &mut String,
    name: &str,
    sample: &Sample<'_>,
    labels: &str,
    value: impl std::fmt::Display,
) {
    // The name of an endpoint has no line ending.
    let endpoint = sample.endpoint.replace('\\', "\\\\").replace('"', "\\\"");
    let _ = writeln!(text, "{name}{{endpoint=\"{endpoint}\"{labels}}} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(endpoint: &str, backlog: Option<Backlog>) -> Sample<'_> {
        let metrics = InboxMetrics {
            accepted: 1,
            handled: 2,
            duplicates: 3,
            in_progress: 4,
            failed: 5,
            parked: 6,
            incomplete: 7,
            unknown_type: 8,
            conflicts: 9,
            leases_lost: 10,
            store_errors: u64::MAX,
            lag: Duration::from_secs(14),
        };
        Sample {
            endpoint,
            metrics,
            backlog,
        }
    }

    fn lines<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
        text.lines()
            .filter(|line| line.starts_with(start))
            .collect()
    }

    #[test]
    fn each_counter_and_gauge_has_its_value() {
        let backlog = Backlog::new(11, 12, 13, Duration::from_millis(1_250));

        let text = render(&[sample("main", Some(backlog))]);

        assert_eq!(
            lines(&text, "audience_inbox_"),
            [
                "audience_inbox_accepted_total{endpoint=\"main\"} 1",
                "audience_inbox_handled_total{endpoint=\"main\"} 2",
                "audience_inbox_duplicates_total{endpoint=\"main\"} 3",
                "audience_inbox_in_progress_total{endpoint=\"main\"} 4",
                "audience_inbox_failed_total{endpoint=\"main\"} 5",
                "audience_inbox_parked_total{endpoint=\"main\"} 6",
                "audience_inbox_incomplete_total{endpoint=\"main\"} 7",
                "audience_inbox_unknown_type_total{endpoint=\"main\"} 8",
                "audience_inbox_conflicts_total{endpoint=\"main\"} 9",
                "audience_inbox_leases_lost_total{endpoint=\"main\"} 10",
                "audience_inbox_store_errors_total{endpoint=\"main\"} 18446744073709551615",
                "audience_inbox_backlog{endpoint=\"main\",state=\"waiting\"} 11",
                "audience_inbox_backlog{endpoint=\"main\",state=\"in_progress\"} 12",
                "audience_inbox_backlog{endpoint=\"main\",state=\"parked\"} 13",
                "audience_inbox_lag_seconds{endpoint=\"main\"} 1.25",
            ]
        );
    }

    #[test]
    fn the_lines_of_a_metric_stand_together_below_one_head() {
        let backlog = Some(Backlog::default());

        let text = render(&[sample("main", backlog), sample("unsubscribe", backlog)]);

        let mut metrics: Vec<_> = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(head) => head.split(' ').nth(1).unwrap(),
                None => line.split('{').next().unwrap(),
            })
            .collect();
        assert_eq!(lines(&text, "# HELP").len(), 13);
        assert_eq!(lines(&text, "# TYPE").len(), 13);
        metrics.dedup();
        assert_eq!(metrics.len(), 13);
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn the_name_of_an_endpoint_is_escaped() {
        let text = render(&[sample(r#"a "quoted\" name"#, None)]);

        let expected = r#"audience_inbox_handled_total{endpoint="a \"quoted\\\" name"} 2"#;
        assert_eq!(lines(&text, "audience_inbox_handled"), [expected]);
    }

    #[test]
    fn without_a_backlog_there_are_no_gauges() {
        let text = render(&[sample("main", None)]);

        assert_eq!(lines(&text, "audience_inbox_backlog"), Vec::<&str>::new());
        assert_eq!(lines(&text, "audience_inbox_lag"), Vec::<&str>::new());
    }
}
