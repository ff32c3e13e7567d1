use std::time::{Duration, Instant};
use audience::contacts::NewContact;
use audience::import::*;
use audience::mock::*;
#[tokio::main]
async fn main() {
    let server = MockServer::start().await;
    let delay: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let n: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    if delay > 0 { server.fault(Fault::delay(Duration::from_millis(delay))); }
    let rows = (0..n).map(|n| NewContact::new(format!("r{n}@example.com")).first_name("Ada").property("seats", 3));
    let at = Instant::now();
    let mut import = server.client().contacts().import(rows);
    if let Some(j) = std::env::args().nth(3) { import = import.journal(Journal::open(j).unwrap()); }
    let report = import.await.unwrap();
    println!("{report} in {:?}", at.elapsed());
}
