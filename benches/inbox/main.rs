//! The cost of the inbox: `cargo bench --bench inbox -- [PART]… [--only STORE,…] [--events N] [--ids N] [--folder PATH]`.
//!
//! - `rates`: claims and drained events a second of each store, with 1, 4 and 16 workers, with no and with
//!   many remembered ids, beside a loop by hand on the same database;
//! - `redis`: claims and completions in Redis beside two scripts by hand with the same guarantees;
//! - `handle`: what `Inbox::handle` adds to a delivery, and where it goes;
//! - `rivals`: claims and drained events a second of Postgres, beside statements by hand with the same guarantees;
//! - `endpoint`: how long an axum endpoint takes to accept a delivery;
//! - `soak`: an hour of the client, the mock and a receiver, with faults. Only if it is named.
//!
//! It prints Markdown tables. Postgres and Redis are servers of its own, on a free loopback port and in a
//! folder that is deleted at the end. A store whose programs are not installed is skipped with a line.
//!
//! A database is as fast as the disk below `--folder` writes a page for good. Measure on the disk that you
//! will use; a file system in memory flatters every store:
//!
//! ```text
//! cargo bench --bench inbox -- rates --only sqlite,sqlite-normal --folder /mnt/disk --events 10000
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

mod by_hand;
mod claims;
mod deliveries;
mod drain;
mod endpoint;
mod fill;
mod handle;
mod load;
mod machine;
mod place;
mod postgres_rivals;
mod postgres_server;
mod rates;
mod redis_rivals;
mod redis_server;
mod server;
mod soak;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use place::{Kind, Places};

#[derive(Parser)]
struct Options {
    /// Measures only these parts.
    parts: Vec<Part>,
    /// Measures only these stores.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// How many events each rate is measured with, or as many as two seconds allow. In memory 20 times as
    /// many.
    #[arg(long, default_value_t = 2_000)]
    events: u32,
    /// How many remembered ids "many" are.
    #[arg(long, default_value_t = 1_000_000)]
    ids: u32,
    /// Where the databases are. Default: a folder below `target`.
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    soak: soak::Settings,
    /// Set by `cargo bench`. Without it nothing is measured.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Rates,
    Redis,
    Handle,
    Endpoint,
    Rivals,
    Soak,
}

fn main() {
    let options = Options::parse();
    if !options.bench {
        return println!("run this by `cargo bench --bench inbox`");
    }
    if options.soak.run_role() {
        return;
    }
    let wants = |part| options.parts.is_empty() || options.parts.contains(&part);
    let target = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-inbox");
    let folder = options.folder.clone().unwrap_or_else(target);
    std::fs::create_dir_all(&folder).unwrap();
    println!("{}\n", machine::describe(&folder));
    if wants(Part::Handle) {
        handle::measure();
    }
    if wants(Part::Rates) || wants(Part::Redis) || wants(Part::Endpoint) {
        let mut places = Places::new(&folder, &options.only);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        if wants(Part::Rates) {
            runtime.block_on(rates::measure(&mut places, options.events, options.ids));
        }
        if wants(Part::Redis) {
            match runtime.block_on(places.redis()) {
                Ok(server) => runtime.block_on(redis_rivals::measure(server)),
                Err(reason) => println!("Redis: skipped, {reason}\n"),
            }
        }
        if wants(Part::Endpoint) {
            runtime.block_on(endpoint::measure(&mut places));
        }
    }
    if wants(Part::Rivals) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(postgres_rivals::measure(&folder));
    }
    if options.parts.contains(&Part::Soak) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(soak::measure(&options.soak, &folder));
    }
    println!("at the end: {}", machine::load());
}
