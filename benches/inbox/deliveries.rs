//! Events that nobody has seen before.

use std::time::SystemTime;

use audience::webhooks::{EventId, EventType, Signer, VerifiedEvent, Verifier};
use http::HeaderMap;

pub(crate) const SECRET: &str = "6Jm0nFq2pXvZk4Tt";

/// Returns an id as random as that of a real event.
pub(crate) fn id_text() -> String {
    format!("evt_{:024x}", fastrand::u128(..) >> 32)
}

pub(crate) fn id() -> EventId {
    EventId::try_from(id_text()).unwrap()
}

/// Returns the body of a bounce, of about 400 bytes.
pub(crate) fn body(id: &str) -> String {
    let detail = "smtp; 550 5.1.1 <kim@example.com>: recipient address rejected: user unknown";
    format!(
        r#"{{"id":"{id}","type":"email.bounced","created_at":1753182000,"data":{{"email_id":"em_01JZ8K3V5Q","from":"Example <news@example.org>","to":"kim@example.com","subject":"Your invoice for July","tags":["invoices"],"bounce_type":"Permanent","detail":"{detail}"}}}}"#
    )
}

/// Returns the signed headers and the body of a delivery.
pub(crate) fn request() -> (HeaderMap, String) {
    let body = body(&id_text());
    let signer = Signer::new(SECRET).unwrap();
    let headers = signer.sign(&EventType::Bounced, SystemTime::now(), &body);
    (headers, body)
}

/// Returns verified deliveries of different events.
pub(crate) fn verified(count: u32) -> Vec<VerifiedEvent> {
    let verifier = Verifier::new(SECRET).unwrap();
    (0..count)
        .map(|_| {
            let (headers, body) = request();
            verifier.verify_event(&headers, body).unwrap()
        })
        .collect()
}
