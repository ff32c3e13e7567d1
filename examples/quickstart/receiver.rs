//! A webhook endpoint, as a sender's program would have one. It fails the first two deliveries of a bounce,
//! so that the mock retries.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use audience::webhooks::{Clock, EventData, VerifiedEvent, Verifier};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;

pub(crate) struct Receiver {
    address: SocketAddr,
    received: Arc<Received>,
}

/// The state of the handler. The extractor [`VerifiedEvent`] takes the verifier from it.
#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    received: Arc<Received>,
}

#[derive(Default)]
struct Received {
    bounces: AtomicU32,
    log: Mutex<Vec<String>>,
}

impl Receiver {
    pub(crate) async fn start(
        secret: &str,
        clock: impl Clock + 'static,
    ) -> Result<Self, Box<dyn Error>> {
        let verifier = Verifier::builder()
            .secret("2026", secret)
            .clock(clock)
            .build()?;
        let received = Arc::new(Received::default());
        let app = App {
            verifier,
            received: Arc::clone(&received),
        };
        let router = Router::new().route("/hook", post(hook)).with_state(app);

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, received })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// One line for each event that the endpoint accepted.
    pub(crate) fn log(&self) -> Vec<String> {
        let log = self.received.log.lock();
        log.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs only for verified deliveries: the extractor rejects all others. Duplicates are not dropped here: for that, pass
/// the delivery to an [`Inbox`](audience::inbox::Inbox).
async fn hook(State(received): State<Arc<Received>>, event: VerifiedEvent) -> StatusCode {
    let text = match &event.data {
        EventData::Bounced(_) if received.bounces.fetch_add(1, Ordering::Relaxed) < 2 => {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        EventData::Bounced(mail) => {
            let detail = mail.detail.as_deref().unwrap_or_default();
            format!("mail to {} bounced: {detail}", mail.to)
        }
        EventData::Opened(mail) => format!("{} opened {:?}", mail.to, mail.subject),
        EventData::Received(mail) => format!("{} wrote {:?}", mail.from, mail.text),
        // Such as a complaint without its address. It must not be acknowledged.
        data if data.is_incomplete() => return StatusCode::INTERNAL_SERVER_ERROR,
        _ => event.event_type().to_string(),
    };
    let line = format!("verified {}: {text}", event.id.as_str());
    let log = received.log.lock();
    log.unwrap_or_else(PoisonError::into_inner).push(line);
    StatusCode::OK
}
