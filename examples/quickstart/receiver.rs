//! A webhook endpoint, as a sender's program would have one, that fails its first two deliveries.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use audience::webhooks::axum::SignedEvent;
use audience::webhooks::{Clock, EventData, SecretError, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;

pub(crate) struct Receiver {
    address: SocketAddr,
    inbox: Arc<Inbox>,
}

#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    bounces: AtomicU32,
    verified: Mutex<Vec<String>>,
}

impl Receiver {
    pub(crate) async fn start(secret: &str, clock: impl Clock + 'static) -> io::Result<Self> {
        let verifier = Verifier::builder()
            .secret("2026", secret)
            .clock(clock)
            .build();
        let verifier = verifier.map_err(|error: SecretError| io::Error::other(error))?;
        let inbox = Arc::new(Inbox::default());
        let app = App {
            verifier,
            inbox: Arc::clone(&inbox),
        };
        let router = Router::new().route("/hook", post(hook)).with_state(app);

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, inbox })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn verified(&self) -> Vec<String> {
        self.inbox
            .verified
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Runs only for deliveries that the extractor has verified.
async fn hook(State(inbox): State<Arc<Inbox>>, event: SignedEvent) -> StatusCode {
    let line = match &event.data {
        EventData::Bounced(_) if inbox.bounces.fetch_add(1, Ordering::Relaxed) < 2 => {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        EventData::Bounced(mail) => {
            format!(
                "{} bounced: {}",
                mail.to,
                mail.detail.as_deref().unwrap_or_default()
            )
        }
        EventData::Opened(mail) => format!("{} opened {:?}", mail.to, mail.subject),
        EventData::Received(mail) => format!("{} wrote {:?}", mail.from, mail.text),
        _ => event.event_type().to_string(),
    };
    let line = format!("verified {}: {line}", event.id.as_str());
    inbox
        .verified
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(line);
    StatusCode::OK
}
