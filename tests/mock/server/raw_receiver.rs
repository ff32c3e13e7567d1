//! Webhook receivers on a bare socket.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Starts a receiver that runs `behavior` on each connection, once a request has arrived. Returns its URL.
pub(super) async fn raw_receiver<F>(behavior: impl Fn(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            read_event(&mut stream).await;
            tokio::spawn(behavior(stream));
        }
    });
    url
}

/// Reads a request to its end, which is that of an event: a connection that is closed with unread bytes is reset, and the
/// response may be lost.
async fn read_event(stream: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"}}") {
        match stream.read_buf(&mut request).await {
            Ok(1..) => {}
            _ => return,
        }
    }
}

/// Starts a receiver that responds only when permitted. Returns its URL, the number of requests received, and the
/// permits to respond.
pub(super) async fn blocked_receiver() -> (String, Arc<Semaphore>, Arc<Semaphore>) {
    let (received, permits) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (count, wait) = (Arc::clone(&received), Arc::clone(&permits));
    let url = raw_receiver(move |mut stream| {
        let (count, wait) = (Arc::clone(&count), Arc::clone(&wait));
        async move {
            count.add_permits(1);
            wait.acquire().await.unwrap().forget();
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await;
        }
    })
    .await;
    (url, received, permits)
}
