use std::net::Ipv4Addr;

use super::super::faults::Fault;
use super::super::test_shared;
use super::*;

/// Runs out soon, so that a test does not take long.
const SHORT: Duration = Duration::from_millis(50);

fn server() -> Server {
    Server::new(
        test_shared(),
        Ipv4Addr::LOCALHOST.into(),
        AllowedHosts::default(),
        RequestObserver::default(),
    )
}

/// Starts a server whose timeouts `configure` changes, and connects to it.
async fn connect(configure: impl FnOnce(&mut Server)) -> (TcpStream, Arc<Server>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = server();
    configure(&mut server);
    let server = Arc::new(server);
    let serving = Arc::clone(&server);
    tokio::spawn(async move { accept_connections(&listener, &serving).await });
    (TcpStream::connect(address).await.unwrap(), server)
}

/// Returns everything that the server sends until it closes the connection.
async fn read_to_end(mut connection: TcpStream) -> io::Result<Vec<u8>> {
    let mut response = Vec::new();
    in_time(connection.read_to_end(&mut response)).await?;
    Ok(response)
}

/// Awaits something that happens soon, so that a failing test ends.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("it happens in less than 30 s")
}

#[tokio::test(start_paused = true)]
async fn an_address_of_another_machine_is_refused_immediately_and_not_called_in_use() {
    let started = tokio::time::Instant::now();

    // No machine has this address: RFC 5737 reserves it for documentation.
    let error = bind("192.0.2.1:8080".parse().unwrap()).await.unwrap_err();

    assert_ne!(error.kind(), io::ErrorKind::AddrInUse);
    // The clock moves only if something waits for it.
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn a_connection_without_a_complete_request_is_closed_after_a_while() {
    for unfinished in [
        "",
        "GET /contacts HT",
        "GET / HTTP/1.1\r\nhost: localhost\r\n",
    ] {
        let (mut connection, server) = connect(|server| server.header_timeout = SHORT).await;

        connection.write_all(unfinished.as_bytes()).await.unwrap();

        assert_eq!(read_to_end(connection).await.unwrap(), b"", "{unfinished}");
        assert!(server.shared.lock().journal.entries().len() == 0);
    }
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_gets_a_408() {
    let request = b"POST /contacts HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{";
    let (mut connection, server) = connect(|server| server.body_timeout = SHORT).await;

    connection.write_all(request).await.unwrap();

    let response = String::from_utf8(read_to_end(connection).await.unwrap()).unwrap();
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    assert!(response.contains("within 50ms"), "{response}");
    assert!(
        response.contains(r#""slug":"request_timeout""#),
        "the error has the shape of the dialect: {response}"
    );
    let state = server.shared.lock();
    let (_, recorded) = state.journal.entries().next().unwrap();
    assert_eq!(recorded.status, Some(408));
}

#[tokio::test]
async fn the_duration_of_a_request_includes_the_wait_for_a_body_that_does_not_arrive() {
    let request = b"POST /contacts HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{";
    let (seen, requests) = std::sync::mpsc::channel();
    let (mut connection, _server) = connect(|server| {
        server.body_timeout = SHORT;
        server.observer = RequestObserver::new(move |request| seen.send(request.duration).unwrap());
    })
    .await;

    connection.write_all(request).await.unwrap();

    read_to_end(connection).await.unwrap();
    let duration = requests.try_recv().unwrap();
    assert!(duration >= SHORT, "{duration:?}");
}

#[tokio::test]
async fn a_response_that_the_client_does_not_read_is_dropped_after_a_while() {
    const LENGTH: usize = 64 * 1024 * 1024;
    let (mut connection, server) = connect(|server| server.write_timeout = SHORT).await;
    let long = Fault::wrong_body(vec![b'a'; LENGTH]).times(1);
    server.shared.lock().faults.add(long);

    connection
        .write_all(b"GET /contacts HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    // Two remain when the connection has ended: this one, and that of the accept loop.
    in_time(async {
        while server.shared.lock().journal.entries().len() == 0 || Arc::strong_count(&server) > 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;

    let received = read_to_end(connection).await;
    assert!(received.is_err() || received.is_ok_and(|bytes| bytes.len() < LENGTH));
}

/// Sends a request and returns the response's status line.
async fn respond(connection: &mut TcpStream) -> String {
    let request = b"GET /_mock/health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    connection.write_all(request).await.unwrap();
    // Up to the end of its body, which is a JSON object: it may arrive in parts.
    let mut response = Vec::new();
    while !response.ends_with(b"}") {
        let read = in_time(connection.read_buf(&mut response)).await.unwrap();
        assert!(read > 0, "the connection was closed");
    }
    let response = String::from_utf8(response).unwrap();
    response.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_connection_that_is_idle_for_longest_is_closed_for_a_new_one() {
    let three = Arc::new(Semaphore::new(3));
    let (mut busy, server) = connect(|server| server.connections = three).await;
    let address = busy.peer_addr().unwrap();
    let slow = Fault::delay(Duration::from_secs(3_600));
    server.shared.lock().faults.add(slow);
    let request = b"GET /contacts HTTP/1.1\r\nhost: localhost\r\n\r\n";
    busy.write_all(request).await.unwrap();
    let mut first = TcpStream::connect(address).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    // The first becomes idle after the second, which is idle for longest then.
    assert_eq!(respond(&mut second).await, "HTTP/1.1 200 OK");
    assert_eq!(respond(&mut first).await, "HTTP/1.1 200 OK");

    let mut third = TcpStream::connect(address).await.unwrap();
    assert_eq!(respond(&mut third).await, "HTTP/1.1 200 OK");
    assert_eq!(read_to_end(second).await.unwrap(), b"");
    let mut fourth = TcpStream::connect(address).await.unwrap();
    assert_eq!(respond(&mut fourth).await, "HTTP/1.1 200 OK");
    assert_eq!(read_to_end(first).await.unwrap(), b"");

    // A request is in progress on the oldest of all.
    let still_open = busy.try_read(&mut [0]).unwrap_err();
    assert_eq!(still_open.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(respond(&mut third).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_connection_whose_request_has_arrived_is_not_closed_for_a_new_one() {
    let server = Arc::new(server());
    // Whether it was closed would be by chance.
    for _ in 0..20 {
        let (mut client, stream) = tokio::io::duplex(1024);
        let serving = Arc::clone(&server);
        let task = tokio::spawn(async move { serve_stream(stream, &serving).await });
        while server.idle.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let request = b"GET /_mock/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();

        server.idle.close_oldest();

        let mut response = Vec::new();
        in_time(client.read_to_end(&mut response)).await.unwrap();
        assert!(response.starts_with(b"HTTP/1.1 200 OK"));
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_new_connection_waits_while_no_other_is_idle() {
    let one = Arc::new(Semaphore::new(1));
    let (mut busy, server) = connect(|server| server.connections = one).await;
    let slow = Fault::delay(SHORT).times(1);
    server.shared.lock().faults.add(slow);
    let request = b"GET /contacts HTTP/1.1\r\nhost: localhost\r\n\r\n";
    busy.write_all(request).await.unwrap();
    // Until the server has read the request, the connection is idle.
    let has_arrived = async {
        while server.shared.lock().journal.entries().next().is_none() {
            tokio::task::yield_now().await;
        }
    };
    in_time(has_arrived).await;

    let mut new = TcpStream::connect(busy.peer_addr().unwrap()).await.unwrap();

    assert_eq!(respond(&mut new).await, "HTTP/1.1 200 OK");
    let response = String::from_utf8(read_to_end(busy).await.unwrap()).unwrap();
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
}

const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_write_fails_if_nobody_reads() {
    let (stream, _unread) = tokio::io::duplex(4);
    let mut stream = WriteTimeout::new(stream, TIMEOUT);
    let start = tokio::time::Instant::now();

    stream.write_all(b"1234").await.unwrap();
    let error = stream.write_all(b"5").await.unwrap_err();

    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_connection_has_a_write_timeout_only_if_its_client_keeps_it_open_and_does_not_read() {
    for closes in [false, true] {
        let mut server = server();
        server.write_timeout = SHORT;
        // A request fits into it, and a response does not.
        let (mut client, stream) = tokio::io::duplex(64);
        let request = b"GET /_mock/health HTTP/1.1\r\nhost: localhost\r\n\r\n";
        client.write_all(request).await.unwrap();
        let _open = (!closes).then_some(client);

        let (_, error) = serve_requests(stream, server.ip, &server).await.unwrap();

        let has_timed_out = error.as_ref().is_some_and(is_write_timeout);
        assert_eq!(has_timed_out, !closes, "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_everything_if_it_makes_progress() {
    let (stream, mut reader) = tokio::io::duplex(1);
    let mut stream = WriteTimeout::new(stream, TIMEOUT);
    let read = tokio::spawn(async move {
        let mut bytes = Vec::new();
        while let Ok(byte) = reader.read_u8().await {
            bytes.push(byte);
            tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
        }
        bytes
    });

    stream.write_all(b"1234").await.unwrap();
    drop(stream);

    assert_eq!(read.await.unwrap(), b"1234");
}
