//! The tower layer behind Lambda: each event is read by `lambda_http` itself.

use std::convert::Infallible;
use std::time::SystemTime;

use audience::webhooks::tower::{BytesBody, VerifyLayer};
use audience::webhooks::{EventType, Signer, VerifiedEvent, Verifier};
use http::{HeaderMap, Request, Response, StatusCode};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use super::{BODY, SECRET};

/// Returns the events by which Lambda receives this request: HTTP API, REST API and load balancer.
fn lambda_events(headers: &HeaderMap, body: &str, is_base64: bool) -> [Value; 3] {
    let headers: serde_json::Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()))
        .collect();
    // A REST API sends each header in both forms.
    let lists: serde_json::Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.clone(), json!([value])))
        .collect();
    let context = json!({"accountId": "1", "stage": "$default", "requestId": "r", "apiId": "a",
        "http": {"method": "POST", "path": "/hook", "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
            "userAgent": "test"},
        "time": "", "timeEpoch": 0, "identity": {"sourceIp": "192.0.2.1"}, "httpMethod": "POST"});
    [
        json!({"version": "2.0", "routeKey": "POST /hook", "rawPath": "/hook", "rawQueryString": "",
            "headers": headers, "requestContext": context, "body": body, "isBase64Encoded": is_base64}),
        json!({"resource": "/hook", "path": "/hook", "httpMethod": "POST", "headers": headers,
            "multiValueHeaders": lists, "queryStringParameters": null, "pathParameters": null,
            "stageVariables": null, "requestContext": context, "body": body,
            "isBase64Encoded": is_base64}),
        json!({"requestContext": {"elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:::t"}},
            "httpMethod": "POST", "path": "/hook", "queryStringParameters": {}, "headers": headers,
            "body": body, "isBase64Encoded": is_base64}),
    ]
}

fn base64(text: &str) -> String {
    let body = lambda_http::Body::Binary(text.into());
    serde_json::from_value(serde_json::to_value(body).unwrap()).unwrap()
}

#[tokio::test]
async fn lambda_verifies_a_delivery_whether_its_body_is_text_or_base64() {
    let signer = Signer::new(SECRET).unwrap();
    let body = BODY.replace("\"Hi\"", "\"Grüße\"");
    let headers = signer.sign(&EventType::Bounced, SystemTime::now(), &body);
    let service =
        VerifyLayer::new(Verifier::new(SECRET).unwrap()).handler(async |event: VerifiedEvent| {
            match event.mail() {
                Some(mail) if mail.subject == "Grüße" => StatusCode::NO_CONTENT,
                _ => StatusCode::IM_A_TEAPOT,
            }
        });
    let changed = body.replace("evt_1", "evt_2");
    for (sent, status) in [(&body, 204), (&changed, 401)] {
        for is_base64 in [true, false] {
            let text = if is_base64 {
                base64(sent)
            } else {
                sent.clone()
            };
            for event in lambda_events(&headers, &text, is_base64) {
                let request = lambda_http::request::from_str(&event.to_string()).unwrap();

                let response = service.clone().oneshot(request).await.unwrap();

                assert_eq!(response.status(), status, "{event}");
                let response = lambda_http::IntoResponse::into_response(response).await;
                assert!(matches!(
                    response.body(),
                    lambda_http::Body::Empty | lambda_http::Body::Text(_)
                ));
                assert!(response.body().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_layer_around_a_function_of_lambda_keeps_its_response() {
    let inner = service_fn(async |request: Request<BytesBody>| {
        let event = request.extensions().get::<VerifiedEvent>().unwrap();
        Ok::<_, Infallible>(Response::new(lambda_http::Body::from(event.id.as_str())))
    });
    let signer = Signer::new(SECRET).unwrap();
    let headers = signer.sign(&EventType::Bounced, SystemTime::now(), BODY);
    let service = VerifyLayer::new(Verifier::new(SECRET).unwrap()).layer(inner);

    for event in lambda_events(&headers, BODY, false) {
        let request = lambda_http::request::from_str(&event.to_string()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();

        assert_eq!(response.into_body(), lambda_http::Body::from("evt_1"));
    }
}
