//! `Retry-After`: how long a call waits, when it does not, and how a 429 holds back all clones of a client.

use std::time::{Duration, Instant, SystemTime};

use audience::contacts::Contacts;
use audience::{Client, Error, ErrorKind, Outcome, RetryPolicy};
use wiremock::{MockServer, ResponseTemplate};

use support::scripted_server::{ScriptedServer, bytes};
use support::{
    ADA, builder, client, contact, fast_retries, in_time, ok, received, respond_in_turn,
    respond_with, status, steady_time,
};

/// A 429 with this `Retry-After`.
fn rate_limited(after: &str) -> ResponseTemplate {
    status(429).insert_header("retry-after", after)
}

/// A client with the default policy and no retries, whose first call was refused with this response.
async fn client_after(response: ResponseTemplate) -> (MockServer, Client) {
    let server = respond_in_turn([response, ok(contact())]).await;
    let client = builder(server.uri())
        .retry(RetryPolicy::none())
        .build()
        .unwrap();
    client.contacts().retrieve(ADA).await.unwrap_err();
    (server, client)
}

#[tokio::test]
async fn retry_after_in_seconds_is_waited_for_and_reported() {
    let server =
        respond_in_turn([status(429).insert_header("retry-after", "1"), ok(contact())]).await;
    let client = builder(server.uri())
        .retry(fast_retries().max_retry_after(Duration::from_secs(60)))
        .build()
        .unwrap();
    let start = Instant::now();

    client.contacts().subscribe(ADA).await.unwrap();

    assert!(
        start.elapsed() >= Duration::from_millis(990),
        "{:?}",
        start.elapsed()
    );

    let server = respond_with(status(429).insert_header("retry-after", "7")).await;
    let call = builder(server.uri())
        .build()
        .unwrap()
        .contacts()
        .subscribe(ADA);
    let error = call.retry(RetryPolicy::none()).await.unwrap_err();
    assert_eq!(
        error.api().unwrap().retry_after(),
        Some(Duration::from_secs(7))
    );
}

#[tokio::test]
async fn retry_after_as_a_date_is_waited_for() {
    let start = Instant::now();
    let then = SystemTime::now() + Duration::from_secs(3);
    let date = httpdate::fmt_http_date(then);
    let server = respond_in_turn([
        status(503).insert_header("retry-after", date),
        ok(contact()),
    ])
    .await;
    let client = builder(server.uri())
        .retry(fast_retries().max_retry_after(Duration::from_secs(60)))
        .build()
        .unwrap();

    client.contacts().retrieve(ADA).await.unwrap();

    // A date has no fractions of a second, so it may be up to 1 s less than 3 s away.
    assert!(
        start.elapsed() >= Duration::from_millis(1_900),
        "{:?}",
        start.elapsed()
    );
}

/// The clocks of two machines may be minutes apart.
#[tokio::test]
async fn a_retry_after_as_a_date_counts_from_the_date_of_the_response() {
    let (minutes, asked) = (Duration::from_secs(20 * 60), Duration::from_secs(500));
    for clock in [SystemTime::now() + minutes, SystemTime::now() - minutes] {
        let after = httpdate::fmt_http_date(clock + asked);
        let limited = rate_limited(&after);
        let limited = limited.insert_header("date", httpdate::fmt_http_date(clock));
        let server = respond_with(limited).await;
        let client = builder(server.uri()).retry(RetryPolicy::none());
        let contacts = client.build().unwrap().contacts();

        let limited = contacts.retrieve(ADA).await.unwrap_err();

        assert_eq!(limited.retry_after(), Some(asked));
        let held_back = contacts.retrieve(ADA).await.unwrap_err();
        assert_eq!(held_back.outcome(), Outcome::NotSent);
        let left = held_back.retry_after().unwrap();
        assert!(left <= asked, "{left:?}");
    }
}

#[tokio::test]
async fn without_a_valid_date_a_retry_after_as_a_date_counts_from_now() {
    let now = SystemTime::now();
    let limited = rate_limited(&httpdate::fmt_http_date(now + Duration::from_secs(3_000)));
    let server = respond_with(limited.insert_header("date", "today")).await;
    let client = builder(server.uri()).retry(RetryPolicy::none());

    let call = client.build().unwrap().contacts().retrieve(ADA);
    let wait = call.await.unwrap_err().retry_after().unwrap();

    // A slow machine asks for the time later.
    assert!(wait <= Duration::from_secs(3_000), "{wait:?}");
    assert!(wait > Duration::from_secs(2_000), "{wait:?}");
}

#[tokio::test]
async fn a_retry_after_beyond_the_limit_ends_the_call_at_once() {
    for after in [
        "61",
        "86400",
        "99999999999999999999999",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ] {
        for code in [429, 503] {
            let server = respond_with(status(code).insert_header("retry-after", after)).await;
            let client = builder(server.uri())
                .retry(RetryPolicy::exponential())
                .build()
                .unwrap();

            let error = in_time(client.contacts().retrieve(ADA)).await.unwrap_err();

            assert_eq!(
                (error.kind(), error.attempts()),
                (ErrorKind::Api, 1),
                "{after}"
            );
            assert!(error.retry_after().unwrap() > Duration::from_secs(60));
        }
    }
}

/// The standard allows whole seconds only. A server that sends a fraction asks to wait all the same.
#[tokio::test]
async fn a_retry_after_with_a_fraction_counts_as_the_next_whole_second() {
    for (after, seconds) in [("61.5", 62), ("70.0", 70)] {
        let server = respond_with(status(503).insert_header("retry-after", after)).await;

        let call = client(server.uri()).contacts().retrieve(ADA);
        let error = in_time(call).await.unwrap_err();

        assert_eq!(error.retry_after(), Some(Duration::from_secs(seconds)));
        assert_eq!(error.attempts(), 1);
    }
}

#[tokio::test]
async fn an_invalid_retry_after_is_ignored() {
    for after in ["soon", "-5", "+70", "1.", ".5", "1.5.2", ""] {
        let response = status(503).insert_header("retry-after", after);
        let server = respond_in_turn([response, ok(contact())]).await;

        let call = client(server.uri()).contacts().retrieve(ADA);

        assert!(in_time(call).await.is_ok(), "{after}");
    }
}

#[tokio::test]
async fn a_retry_after_of_zero_or_in_the_past_does_not_shorten_the_backoff() {
    for after in ["0", "Sun, 06 Nov 1994 08:49:37 GMT"] {
        let server = respond_with(rate_limited(after)).await;
        let policy = RetryPolicy::exponential()
            .max_attempts(8)
            .base_delay(Duration::from_millis(50))
            .max_delay(Duration::from_millis(200));
        let client = builder(server.uri()).retry(policy).build().unwrap();
        let start = Instant::now();

        let error = in_time(client.contacts().retrieve(ADA)).await.unwrap_err();

        assert_eq!(error.attempts(), 8);
        // Seven random waits of up to 200 ms: less than 50 ms in all is once in a hundred million.
        assert!(
            start.elapsed() >= Duration::from_millis(50),
            "{:?}",
            start.elapsed()
        );
    }
}

#[tokio::test]
async fn a_429_holds_back_all_clones_of_the_client() {
    let start = Instant::now();
    let (server, client) = client_after(rate_limited("2")).await;

    let call = client.clone().contacts().retrieve(ADA);
    in_time(call).await.unwrap();

    assert!(
        start.elapsed() >= Duration::from_millis(1_990),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(received(&server).await.len(), 2);
}

#[tokio::test]
async fn a_call_that_cannot_wait_until_the_end_of_the_hold_fails_at_once_and_sends_nothing() {
    // The hold is long, so that it has not ended on a slow machine.
    let (server, client) = client_after(rate_limited("600")).await;
    let contacts = client.contacts();

    let patient = RetryPolicy::none().max_retry_after(Duration::from_secs(3_600));
    let deadline = contacts
        .retrieve(ADA)
        .deadline(Duration::from_secs(20))
        .retry(patient);
    let limit = RetryPolicy::none().max_retry_after(Duration::from_secs(20));
    let limit = contacts
        .retrieve(ADA)
        .deadline(Duration::from_secs(3_600))
        .retry(limit);

    assert_held_back(&in_time(deadline).await.unwrap_err(), 600);
    assert_held_back(&in_time(limit).await.unwrap_err(), 600);
    assert_eq!(received(&server).await.len(), 1);
}

#[tokio::test]
async fn a_429_that_asks_for_more_than_a_call_waits_holds_back_the_next_calls_too() {
    for (asked, held) in [
        ("600", 600),
        ("3600", 3_600),
        ("99999999999999999999999", 3_600),
    ] {
        let (server, client) = client_after(rate_limited(asked)).await;

        let call = client.contacts().retrieve(ADA);

        assert_held_back(&in_time(call).await.unwrap_err(), held);
        assert_eq!(received(&server).await.len(), 1, "{asked}");
    }
}

fn assert_held_back(error: &Error, longest: u64) {
    assert_eq!(
        (error.kind(), error.outcome(), error.attempts()),
        (ErrorKind::Api, Outcome::NotSent, 0)
    );
    assert_eq!(error.api().unwrap().status(), 429);
    let wait = error.retry_after().unwrap();
    assert!(wait > Duration::from_secs(20), "{wait:?}");
    assert!(wait <= Duration::from_secs(longest), "{wait:?}");
    let text = error.to_string();
    assert!(
        text.starts_with("retrieve: rate limited: the service asked to wait another "),
        "{text}"
    );
    assert!(text.ends_with(" s, so the request was not sent"), "{text}");
}

#[tokio::test]
async fn only_a_429_with_a_retry_after_holds_back_other_calls() {
    for response in [
        rate_limited("0"),
        rate_limited("soon"),
        status(429),
        status(503).insert_header("retry-after", "50"),
    ] {
        let (_server, client) = client_after(response).await;

        let call = client
            .contacts()
            .retrieve(ADA)
            .deadline(Duration::from_secs(40));

        assert!(in_time(call).await.is_ok());
    }
}

#[tokio::test]
async fn a_429_whose_body_breaks_off_holds_back_all_clones() {
    let head = "HTTP/1.1 429 X\r\nretry-after: 600\r\ncontent-length: 100\r\n\r\n{\"error\"";
    for limited in [bytes(head).then_close(), bytes(head).then_reset()] {
        let server = ScriptedServer::start([limited]).await;
        let client = builder(server.url()).retry(RetryPolicy::none());
        let client = client.build().unwrap();

        let limited = client.contacts().subscribe(ADA).await.unwrap_err();
        let held_back = client.clone().contacts().retrieve(ADA);
        let held_back = held_back.deadline(Duration::from_secs(20));
        let held_back = in_time(held_back).await.unwrap_err();

        assert!(limited.is_rate_limited(), "{limited}");
        assert_eq!(limited.outcome(), Outcome::Refused);
        assert_held_back(&held_back, 600);
        assert_eq!(server.received().len(), 1);
    }
}

#[tokio::test]
async fn the_wait_that_a_503_asks_for_counts_although_its_body_breaks_off() {
    let head = "HTTP/1.1 503 X\r\nretry-after: 90\r\ncontent-length: 100\r\n\r\n{\"error\"";
    for overloaded in [bytes(head).then_close(), bytes(head).then_reset()] {
        let server = ScriptedServer::start([overloaded]).await;
        let client = builder(server.url()).retry(RetryPolicy::exponential());
        let client = client.build().unwrap();

        let error = in_time(client.contacts().retrieve(ADA)).await.unwrap_err();

        assert_eq!(error.status().unwrap(), 503);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(90)));
        // The wait is longer than the policy allows.
        assert_eq!((error.attempts(), server.received().len()), (1, 1));
    }
}

/// Calls a server that sends a status with a wait of 600 s and the start of a body, and then nothing more.
async fn call_that_stalls(status: u16) -> (Client, Error) {
    let head = format!(
        "HTTP/1.1 {status} X\r\nretry-after: 600\r\ncontent-length: 100\r\n\r\n{{\"error\""
    );
    let mut timeout = Duration::from_secs(1);
    loop {
        let server = ScriptedServer::start([bytes(&*head).then_hang()]).await;
        let client = builder(server.url()).retry(RetryPolicy::none());
        let client = client.build().unwrap();
        let call = client.contacts().subscribe(ADA).timeout(timeout);
        let error = call.await.unwrap_err();
        // A busy machine may not have read the head in that time.
        if error.kind() != ErrorKind::Timeout || timeout > Duration::from_secs(60) {
            return (client, error);
        }
        timeout *= 4;
    }
}

#[tokio::test]
async fn a_status_whose_body_stalls_counts_with_the_wait_that_it_asks_for() {
    let (client, limited) = call_that_stalls(429).await;
    let held_back = client.contacts().retrieve(ADA);
    let held_back = held_back.deadline(Duration::from_secs(20));
    let held_back = in_time(held_back).await.unwrap_err();

    assert!(limited.is_rate_limited(), "{limited}");
    assert_eq!(limited.outcome(), Outcome::Refused);
    assert_held_back(&held_back, 600);

    let (_, overloaded) = call_that_stalls(503).await;

    assert_eq!(overloaded.status().unwrap(), 503);
    assert_eq!(overloaded.retry_after(), Some(Duration::from_secs(600)));
}

#[tokio::test]
async fn a_429_does_not_hold_back_another_client() {
    let (server, _client) = client_after(rate_limited("50")).await;
    let another = client(server.uri());

    assert!(in_time(another.contacts().retrieve(ADA)).await.is_ok());
}

#[tokio::test]
async fn the_requests_of_all_clones_are_apart_as_the_limit_demands_also_retries() {
    let server = respond_in_turn([ok(contact()), status(503), ok(contact()), ok(contact())]).await;
    let client = builder(server.uri()).retry(fast_retries());
    let client = client.requests_per_second(20).build().unwrap();
    let calls = [ADA; 3].map(|address| client.clone().contacts().retrieve(address).into_future());
    let start = Instant::now();

    in_time(futures_util::future::try_join_all(calls))
        .await
        .unwrap();

    assert_eq!(received(&server).await.len(), 4);
    // The first one is sent immediately.
    assert!(
        start.elapsed() >= Duration::from_millis(3 * 50),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_call_whose_turn_would_come_after_its_deadline_is_not_sent() {
    let server = respond_with(ok(contact())).await;
    let client = builder(server.uri())
        .requests_per_second(1)
        .build()
        .unwrap();
    let contacts = client.contacts();
    let earlier = [ADA; 20].map(|address| contacts.retrieve(address).no_deadline().into_future());
    let earlier = futures_util::future::join_all(earlier);
    let late = contacts
        .unsubscribe(ADA)
        .deadline(Duration::from_millis(20));

    let error = tokio::select! {
        biased;
        _ = earlier => panic!("20 requests were sent within the first 20 ms"),
        ended = late.into_future() => ended.unwrap_err(),
    };

    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.outcome(), Outcome::NotSent);
    assert_eq!(error.attempts(), 0);
    let text = error.to_string();
    assert!(text.contains("the limit of requests per second"), "{text}");
    let sent = received(&server).await;
    assert!(sent.iter().all(|request| request.method == "GET"));
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_leaves_its_turn_to_the_next_one() {
    let server = respond_with(ok(contact())).await;
    let client = builder(server.uri())
        .requests_per_second(1)
        .build()
        .unwrap();
    let contacts = client.contacts();
    contacts.retrieve(ADA).await.unwrap();
    let start = Instant::now();
    let dropped = [ADA; 60].map(|address| contacts.retrieve(address).into_future());
    let dropped = futures_util::future::join_all(dropped);
    tokio::time::timeout(Duration::from_millis(5), dropped)
        .await
        .unwrap_err();

    contacts.retrieve(ADA).await.unwrap();

    // Otherwise, it would wait for a minute.
    assert!(start.elapsed() < Duration::from_secs(50));
    assert_eq!(received(&server).await.len(), 2);
}

/// Returns the result of a call, and panics if it ends after 30 calls that begin later.
async fn before_others<T>(call: impl Future<Output = T>, contacts: &Contacts) -> T {
    let others = [ADA; 30].map(|address| contacts.retrieve(address).into_future());
    let others = futures_util::future::join_all(others);
    tokio::select! {
        biased;
        result = call => result,
        _ = others => panic!("the call was not finished before 30 others"),
    }
}

#[tokio::test]
async fn the_further_requests_of_a_call_go_before_calls_that_have_not_begun() {
    let server = audience::mock::MockServer::builder().topic("news", true);
    let server = server.seed_contact(ADA).start().await;
    let client = server.client_builder().requests_per_second(2);
    let contacts = client.build().unwrap().contacts();
    let call = contacts
        .confirm_opt_in("bob@example.com", ["news"])
        .into_future();

    let confirmed = before_others(call, &contacts).await.unwrap();

    assert!(confirmed.topics["news"]);
    assert!(server.contact("bob@example.com").unwrap().topics["news"]);
}

#[tokio::test]
async fn a_retry_goes_before_calls_that_have_not_begun() {
    let server = audience::mock::MockServer::builder().seed_contact("bob@example.com");
    let server = server.seed_contact(ADA).start().await;
    let failure = audience::mock::Fault::status(503).path("/contacts/bob@example.com");
    server.fault(failure.times(1));
    let client = server.client_builder().retry(fast_retries());
    let client = client.requests_per_second(2).build().unwrap();
    let contacts = client.contacts();
    let call = contacts.retrieve("bob@example.com").into_future();

    let retrieved = before_others(call, &contacts).await.unwrap();

    assert_eq!(retrieved.email, "bob@example.com");
    let requests = server.requests();
    let paths = requests.iter().map(|request| &request.path);
    assert_eq!(paths.filter(|path| path.contains("bob")).count(), 2);
}

#[tokio::test]
async fn a_call_that_has_begun_is_finished_before_the_next_one_begins() {
    // Otherwise, a machine that stands still between a response and the next request would let another call begin.
    steady_time::begin();
    let people = ["ada", "bob", "eve", "ian"];
    let server = audience::mock::MockServer::builder().topic("news", true);
    let server = server.topic("offers", true).start().await;
    let client = server.client_builder().requests_per_second(4);
    let contacts = client.build().unwrap().contacts();

    let forms = people.map(|name| {
        let address = format!("{name}@example.com");
        server.seed_contact(address.as_str());
        let form = contacts.set_topics(address, [("news", false), ("offers", false)]);
        form.into_future()
    });
    in_time(futures_util::future::try_join_all(forms))
        .await
        .unwrap();

    let requests = server.requests();
    let mut order: Vec<_> = requests
        .iter()
        .map(|request| {
            let text = format!(
                "{} {}",
                request.path,
                String::from_utf8_lossy(&request.body)
            );
            people.iter().position(|name| text.contains(name)).unwrap()
        })
        .collect();
    assert!(order.len() >= 8, "{order:?}");
    order.dedup();
    assert_eq!(order, [0, 1, 2, 3]);
}

#[tokio::test]
async fn calls_that_nobody_polls_do_not_slow_down_the_others() {
    steady_time::begin();
    let server = audience::mock::MockServer::builder();
    let server = server.seed_contact(ADA).start().await;
    let client = server.client_builder().requests_per_second(50);
    let contacts = client.build().unwrap().contacts();
    contacts.retrieve(ADA).await.unwrap();
    let forgotten = [ADA; 100].map(|ada| Box::pin(contacts.retrieve(ada).into_future()));
    let mut forgotten = Vec::from(forgotten);
    for call in &mut forgotten {
        assert!(futures_util::poll!(call.as_mut()).is_pending());
    }

    // It comes after all of them.
    in_time(contacts.retrieve(ADA)).await.unwrap();
    for _ in 0..3 {
        let call = contacts.retrieve(ADA).deadline(Duration::from_secs(1));
        in_time(call).await.unwrap();
    }

    assert!(forgotten.pop().unwrap().await.is_ok());
}

#[tokio::test]
async fn a_call_that_nobody_polls_is_not_sent_if_its_turn_and_its_deadline_are_over_by_then() {
    let server = respond_with(ok(contact())).await;
    let client = builder(server.uri()).requests_per_second(2);
    let contacts = client.build().unwrap().contacts();
    // The turn of the call cannot come before all of them have had theirs, or are dropped.
    let earlier = [ADA; 120].map(|ada| Box::pin(contacts.retrieve(ada).into_future()));
    let mut earlier = Vec::from(earlier);
    for call in &mut earlier {
        assert!(futures_util::poll!(call.as_mut()).is_pending());
    }
    let limit = Duration::from_millis(20);
    let call = contacts.retrieve(ADA).deadline(limit);
    let mut call = Box::pin(call.into_future());
    assert!(futures_util::poll!(call.as_mut()).is_pending());

    drop(earlier);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let error = call.await.unwrap_err();

    let found = (error.kind(), error.outcome(), error.attempts());
    assert_eq!(found, (ErrorKind::Timeout, Outcome::NotSent, 0));
    let text = error.to_string();
    assert!(text.contains("the limit of requests per second"), "{text}");
}

#[tokio::test]
async fn a_count_of_a_long_list_does_not_hold_up_an_opt_out() {
    let server = audience::mock::MockServer::builder();
    let server = server.seed_contact(ADA).start().await;
    for number in 0..3_000 {
        server.seed_contact(format!("{number}@example.com"));
    }
    let client = server.client_builder().requests_per_second(10);
    let contacts = client.build().unwrap().contacts();
    let counting = tokio::spawn(contacts.list().count().into_future());
    while server.requests().len() < 2 {
        tokio::task::yield_now().await;
    }

    in_time(contacts.unsubscribe(ADA)).await.unwrap();

    assert!(!counting.is_finished());
    assert!(server.requests().len() < 8);
    assert_eq!(in_time(counting).await.unwrap().unwrap(), 3_001);
}

#[tokio::test]
async fn a_hold_forbids_a_call_that_has_waited_for_its_turn() {
    let server = respond_in_turn([rate_limited("60"), ok(contact())]).await;
    let client = builder(server.uri()).retry(RetryPolicy::none());
    let client = client.requests_per_second(2).build().unwrap();
    let contacts = client.contacts();

    let first = contacts.retrieve(ADA).into_future();
    let second = contacts.retrieve(ADA).into_future();
    let (first, second) = tokio::join!(first, second);

    assert_eq!(first.unwrap_err().outcome(), Outcome::Refused);
    assert_eq!(second.unwrap_err().outcome(), Outcome::NotSent);
    assert_eq!(received(&server).await.len(), 1);
}

#[test]
fn a_limit_of_no_requests_is_refused() {
    let error = Client::builder("https://api.example.com", "key")
        .requests_per_second(0)
        .build()
        .unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Config);
}
