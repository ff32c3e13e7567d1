//! Three deliveries to an endpoint, one of them forged.

use std::error::Error;
use std::net::SocketAddr;
use std::time::SystemTime;

use audience::webhooks::{EventType, Signer};
use http::{HeaderMap, StatusCode};

pub(crate) const SECRET: &str = "the secret of this demo";

/// Delivers an event twice, as the service may, and then with a changed body, as an attacker might.
pub(crate) async fn run_demo(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let body = r#"{"id": "evt_1", "type": "email.bounced", "created_at": 1700000000, "data": {
        "email_id": "email_1", "from": "shop@example.com", "to": "nobody@example.net",
        "subject": "Your receipt", "bounce_type": "Permanent", "detail": "550 5.1.1 User unknown"}}"#;
    let headers = Signer::new(SECRET)?.sign(&EventType::Bounced, SystemTime::now(), body);
    let changed = body.replace("nobody", "somebody");
    for (description, body, expected) in [
        ("a genuine delivery", body, StatusCode::OK),
        ("the same delivery again", body, StatusCode::OK),
        (
            "a delivery with a changed body",
            &changed,
            StatusCode::UNAUTHORIZED,
        ),
    ] {
        let status = deliver(address, headers.clone(), body.to_owned()).await?;
        println!("{description}: {status}");
        if status != expected {
            return Err(format!("{description} should get the response {expected}").into());
        }
    }
    Ok(())
}

async fn deliver(
    address: SocketAddr,
    headers: HeaderMap,
    body: String,
) -> Result<StatusCode, reqwest::Error> {
    let request = reqwest::Client::new().post(format!("http://{address}/hook"));
    Ok(request.headers(headers).body(body).send().await?.status())
}
