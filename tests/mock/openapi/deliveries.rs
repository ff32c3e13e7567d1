//! Compares deliveries with the `webhooks` of the description.

use audience::mock::MockServer;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use support::PATIENCE;

use super::conformance::{DESCRIPTION, resolve, validate};
use crate::receiver::{Receiver, SECRET};

/// Panics if the description does not show this delivery. Types that it does not list are not compared: only a test
/// sends them.
#[track_caller]
pub(crate) fn assert_described(headers: &HeaderMap, body: &[u8]) {
    if let Err(problem) = check(headers, body) {
        let body = String::from_utf8_lossy(body);
        panic!("openapi/audience.json does not show this delivery: {problem}\n{headers:?}\n{body}");
    }
}

fn check(headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let event: Value =
        serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
    let name = event["type"].as_str().ok_or("there is no type")?;
    if DESCRIPTION["webhooks"].get(name).is_none() {
        return Ok(());
    }
    let operation = format!("/webhooks/{name}/post");
    let parameters = resolve(&format!("{operation}/parameters")).and_then(Value::as_array);
    for index in 0..parameters.map_or(0, Vec::len) {
        let pointer = format!("{operation}/parameters/{index}");
        let parameter = resolve(&pointer).ok_or("there is no such parameter")?;
        let header = parameter["name"]
            .as_str()
            .ok_or("a header without a name")?;
        let values: Vec<_> = headers.get_all(header).iter().collect();
        let [value] = values[..] else {
            return Err(format!("`{header}` is not there once"));
        };
        let value = value
            .to_str()
            .map_err(|error| format!("`{header}`: {error}"))?;
        validate(&pointer, &parameter["schema"], false, &json!(value))
            .map_err(|error| format!("`{header}`: {error}"))?;
    }
    let pointer = format!("{operation}/requestBody/content/application~1json/schema");
    let schema = resolve(&pointer).ok_or("the webhook has no body")?;
    validate(&format!("{pointer} (strict)"), schema, true, &event)
}

#[tokio::test]
async fn a_delivery_of_each_type_is_as_described() {
    let receiver = Receiver::start([]).await;
    let server = MockServer::builder()
        .delivery_timeout(2 * PATIENCE)
        .webhook_endpoint(&receiver.url, SECRET)
        .start()
        .await;
    let types: Vec<&String> = DESCRIPTION["webhooks"]
        .as_object()
        .unwrap()
        .keys()
        .collect();

    for name in &types {
        server.send_event(json!({"type": name})).await;
    }

    assert_eq!(types.len(), 10);
    for delivery in receiver.received() {
        assert_described(&delivery.headers, &delivery.body);
    }
    assert_eq!(receiver.events().len(), 10);
}

#[test]
fn a_delivery_that_differs_is_noticed() {
    let event = &DESCRIPTION["webhooks"]["email.bounced"]["post"]["requestBody"]["content"]["application/json"]
        ["examples"]["bounced"]["value"];
    let headers = |signature: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-signature", signature.parse().unwrap());
        headers.insert("webhook-timestamp", "1700000000".parse().unwrap());
        headers.insert("webhook-event", "email.bounced".parse().unwrap());
        headers
    };
    let genuine = headers(&"0a".repeat(32));
    let changed = |member: &str, value: Value| {
        let mut event = event.clone();
        event["data"][member] = value;
        check(&genuine, event.to_string().as_bytes())
    };

    assert_eq!(check(&genuine, event.to_string().as_bytes()), Ok(()));
    assert!(check(&headers("0A"), event.to_string().as_bytes()).is_err());
    assert!(check(&HeaderMap::new(), event.to_string().as_bytes()).is_err());
    assert!(changed("bounce_type", json!("")).is_err());
    assert!(changed("to", json!(["ada@example.com"])).is_err());
    assert!(changed("recipient", json!("ada@example.com")).is_err());
}
