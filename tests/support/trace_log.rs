//! What the crate traces on the thread of a test.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

thread_local! {
    /// The spans and events traced on this thread, with their fields. A `tokio::test` runs on one thread
    /// by default.
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// A span or an event.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub level: Level,
    is_span: bool,
    pub id: Option<Id>,
    /// The span that it is in.
    pub parent: Option<Id>,
    pub is_closed: bool,
    pub fields: BTreeMap<String, String>,
}

/// The spans and events traced on this thread since [`Log::start`].
pub struct Log;

impl Log {
    /// Clears the log. All tests share one global subscriber: one per test would race with the cache in
    /// which each callsite keeps whether a subscriber is interested.
    pub fn start() -> Self {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(|| {
            let subscriber = tracing_subscriber::registry().with(Collector);
            tracing::subscriber::set_global_default(subscriber).unwrap();
            // A test on another thread may be registering a callsite that it has found without a subscriber.
            std::thread::sleep(std::time::Duration::from_millis(20));
        });
        // Each time, because that test may have been slower.
        tracing::callsite::rebuild_interest_cache();
        ENTRIES.with_borrow_mut(Vec::clear);
        Self
    }

    pub fn spans(&self) -> Vec<Entry> {
        self.entries(true)
    }

    /// The spans with this name.
    pub fn spans_named(&self, name: &str) -> Vec<Entry> {
        let spans = self.spans().into_iter();
        spans.filter(|span| span.name == name).collect()
    }

    pub fn events(&self) -> Vec<Entry> {
        self.entries(false)
    }

    fn entries(&self, is_span: bool) -> Vec<Entry> {
        let entries = ENTRIES.with_borrow(Vec::clone);
        entries
            .into_iter()
            .filter(|entry| entry.is_span == is_span)
            .collect()
    }

    pub fn text(&self) -> String {
        format!("{:?} {:?}", self.spans(), self.events())
    }
}

struct Collector;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("audience")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let metadata = attributes.metadata();
        let entry = Entry {
            name: metadata.name().to_owned(),
            level: *metadata.level(),
            is_span: true,
            id: Some(id.clone()),
            parent: context.lookup_current().map(|span| span.id()),
            is_closed: false,
            fields: fields.0,
        };
        ENTRIES.with_borrow_mut(|entries| entries.push(entry));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        ENTRIES.with_borrow_mut(|entries| {
            let mut spans = entries.iter_mut().rev();
            let span = spans.find(|entry| entry.id.as_ref() == Some(id));
            if let Some(span) = span {
                span.fields.extend(fields.0);
            }
        });
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        ENTRIES.with_borrow_mut(|entries| {
            let mut spans = entries.iter_mut().rev();
            if let Some(span) = spans.find(|entry| entry.id.as_ref() == Some(&id)) {
                span.is_closed = true;
            }
        });
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let entry = Entry {
            name: metadata.name().to_owned(),
            level: *metadata.level(),
            is_span: false,
            id: None,
            parent: context.lookup_current().map(|span| span.id()),
            is_closed: false,
            fields: fields.0,
        };
        ENTRIES.with_borrow_mut(|entries| entries.push(entry));
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}
