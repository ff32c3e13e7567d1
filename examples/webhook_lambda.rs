//! A webhook endpoint as an AWS Lambda function, as a starting point for your own.
//!
//! ```text
//! cargo run -p audience-receivers --example webhook_lambda
//!     calls the function with four deliveries (one of them forged) as API Gateway would, and exits
//! ```
//!
//! On Lambda, where `AWS_LAMBDA_RUNTIME_API` is set, it serves. Set `AUDIENCE_WEBHOOK_SECRET` in the function's
//! configuration. API Gateway may send the body in base64, with `isBase64Encoded`; `lambda_http` decodes it, so
//! the layer verifies the bytes that the service signed.
//!
//! The service waits 10 seconds for a response and makes up to ten attempts over about five hours. It may
//! deliver an event more than once (interface section 6.5).
#![expect(clippy::print_stdout, reason = "an example prints what it does")]

mod support;

use std::env;
use std::error::Error;
use std::time::SystemTime;

use audience::webhooks::tower::VerifyLayer;
use audience::webhooks::{EventType, Signer, VerifiedEvent, Verifier};
use clap::Parser;
use lambda_http::http::{HeaderMap, StatusCode};
use lambda_http::{Body, Request};
use serde_json::json;
use support::ENVIRONMENT;
use tower::ServiceExt;

const DEMO_SECRET: &str = "the secret of this demo";

/// A webhook endpoint as an AWS Lambda function, as a starting point for your own
///
/// Without `AWS_LAMBDA_RUNTIME_API`, which Lambda sets, the program calls its function four times and exits.
#[derive(Parser)]
#[command(name = "webhook_lambda", after_help = ENVIRONMENT)]
struct Arguments {}

/// Runs only for verified deliveries: the layer refuses all others.
///
/// Lambda stops the function after the response. So store the event before you respond, with `Inbox::accept`
/// and a database. It also drops duplicates. Run the worker in another program.
async fn hook(delivery: VerifiedEvent) -> StatusCode {
    match delivery.mail() {
        Some(mail) if mail.is_permanent_bounce() => {
            println!("{}: stop sending to {}", delivery.id, mail.to);
        }
        // A bounce without its address must not be acknowledged.
        None if delivery.data.is_incomplete() => return StatusCode::INTERNAL_SERVER_ERROR,
        _ => println!("{}: {}", delivery.id, delivery.event_type()),
    }
    StatusCode::OK // or 503 if the event could not be stored: the service retries
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    Arguments::parse();
    if env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
        let verifier = Verifier::from_env()?;
        return lambda_http::run(VerifyLayer::new(verifier).handler(hook)).await;
    }

    let function = VerifyLayer::new(Verifier::new(DEMO_SECRET)?).handler(hook);
    let signer = Signer::new(DEMO_SECRET)?;
    let body = r#"{"id": "evt_1", "type": "email.bounced", "created_at": 1700000000, "data": {
        "email_id": "email_1", "from": "shop@example.com", "to": "nobody@example.net",
        "subject": "Your receipt", "bounce_type": "Permanent", "detail": "550 5.1.1 User unknown"}}"#;
    let changed = body.replace("nobody", "somebody");
    let incomplete = body.replace(r#""to""#, r#""recipient""#);
    for (description, signed, body, is_base64, expected) in [
        ("a body in base64", body, body, true, StatusCode::OK),
        ("a body in text", body, body, false, StatusCode::OK),
        (
            "a changed body",
            body,
            &changed,
            true,
            StatusCode::UNAUTHORIZED,
        ),
        (
            "a bounce without its address",
            &incomplete,
            &incomplete,
            true,
            StatusCode::INTERNAL_SERVER_ERROR,
        ),
    ] {
        let headers = signer.sign(&EventType::Bounced, SystemTime::now(), signed);
        let request = api_gateway_request(&headers, body, is_base64)?;
        let status = function.clone().oneshot(request).await?.status();
        println!("{description}: {status}");
        if status != expected {
            return Err(format!("{description} should get the response {expected}").into());
        }
    }
    Ok(())
}

/// Reads a request from the JSON by which an HTTP API of API Gateway calls a function.
fn api_gateway_request(
    headers: &HeaderMap,
    body: &str,
    is_base64: bool,
) -> Result<Request, Box<dyn Error + Send + Sync>> {
    let mut texts = serde_json::Map::new();
    for (name, value) in headers {
        texts.insert(name.to_string(), value.to_str()?.into());
    }
    // As JSON, a binary body is its base64.
    let body = match is_base64 {
        true => Body::Binary(body.into()),
        false => Body::from(body),
    };
    let event = json!({
        "version": "2.0", "routeKey": "POST /hook", "rawPath": "/hook", "rawQueryString": "",
        "headers": texts, "body": body, "isBase64Encoded": is_base64,
        "requestContext": {
            "accountId": "123456789012", "apiId": "api", "stage": "$default", "requestId": "request",
            "http": {"method": "POST", "path": "/hook", "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1", "userAgent": "example"},
            "time": "14/Nov/2023:22:13:20 +0000", "timeEpoch": 1_700_000_000_000_u64,
        },
    });
    Ok(lambda_http::request::from_str(&event.to_string())?)
}
