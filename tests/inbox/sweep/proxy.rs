//! A load balancer in front of the receivers: it keeps its address while they come and go.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone)]
pub(super) struct Proxy {
    port: u16,
    /// The port of each receiver, while it runs.
    receivers: Arc<Mutex<Vec<Option<u16>>>>,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    pub(super) async fn start(receivers: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            receivers: Arc::new(Mutex::new(vec![None; receivers])),
            connections: Arc::default(),
        };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((mut sender, _)) = listener.accept().await {
                let Some(port) = accepting.pick() else {
                    continue; // closes the connection
                };
                tokio::spawn(async move {
                    if let Ok(mut receiver) = TcpStream::connect(("127.0.0.1", port)).await {
                        let _ = copy_bidirectional(&mut sender, &mut receiver).await;
                    }
                });
            }
        });
        proxy
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub(super) fn set(&self, receiver: usize, port: Option<u16>) {
        self.receivers.lock().unwrap()[receiver] = port;
    }

    /// How many connections were accepted: one for each delivery.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn pick(&self) -> Option<u16> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let receivers = self.receivers.lock().unwrap();
        let running: Vec<u16> = receivers.iter().flatten().copied().collect();
        (!running.is_empty()).then(|| running[number % running.len()])
    }
}
