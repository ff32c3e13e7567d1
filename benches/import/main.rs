//! The cost of moving a whole audience: `cargo bench --bench import -- [NAME]… [--rows N] [--runs N]`.
//!
//! Every figure is measured beside its rival: in the same run, one after the other in turn, against the same
//! server. The server is a canned one in a process of its own, so that it favors nobody: it looks
//! for the addresses of a batch and writes a result for each, and its other responses are prepared. The figure is the median over the runs, of the time
//! of one way divided by the time of the other in the same run.
//!
//! An import without delay is bound by the processor, and it uses two threads where the loop by hand uses
//! one. On a machine that is busy with something else, `import` and `calls` say little.
//!
//! - `import-delay`: an import with a server delay of 20 ms, beside one batch after another, one create after
//!   another, and a hand-written loop with 8 parallel batches;
//! - `import`: an import without delay, beside that loop;
//! - `import-memory`: how much the peak memory of a process grows while it imports from a generator;
//! - `sync`: how long a sync takes, and how much its peak memory grows, if all rows are new and if none has changed;
//! - `import-limited`: an import to a server that allows 5 batches a second by 429 and `Retry-After`;
//! - `stream`: a stream of all contacts, beside a hand-written paging loop, and its memory;
//! - `prefetch`: the same with work to do for each page and a server delay of 5 ms, with and without
//!   `prefetch()`;
//! - `calls`: one retrieve and one create, beside hand-written calls. The client runs on one thread, because
//!   the time in which one thread wakes another is longer than what is compared.
//!
//! It prints one line of JSON for each figure, and then a table. `--rows` sets the number of rows or contacts
//! of every figure, and `--plot FILE` draws the imports as an SVG:
//!
//! ```text
//! cargo bench --bench import -- import-delay import --plot ../docs/plots/import.svg
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod by_hand;
mod figure;
mod imports;
mod lists;
mod memory;
mod rows;
mod sampling;
mod server;
mod single_calls;

use clap::{Parser, Subcommand};

use figure::Figure;
use sampling::Sizes;

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    part: Option<Part>,
    /// Measures only the figures of these names.
    names: Vec<String>,
    /// The number of rows or contacts of every figure.
    #[arg(long)]
    rows: Option<u64>,
    /// How often everything is measured.
    #[arg(long)]
    runs: Option<usize>,
    /// Draws the imports to this SVG file.
    #[arg(long)]
    plot: Option<std::path::PathBuf>,
    /// Set by `cargo bench`. Without it nothing is measured.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What a process that the benchmark starts does.
#[derive(Subcommand)]
enum Part {
    #[command(hide = true)]
    Serve(server::ServerSettings),
    #[command(hide = true)]
    Memory(memory::MemorySettings),
}

/// Measures one or more figures.
type Measure = fn(&Sizes) -> Vec<Figure>;

fn main() {
    let options = Options::parse();
    match options.part {
        Some(Part::Serve(settings)) => return server::serve(settings),
        Some(Part::Memory(settings)) => return memory::run(&settings),
        None if !options.bench => return println!("run this by `cargo bench --bench import`"),
        None => {}
    }
    let sizes = Sizes {
        rows: options.rows,
        runs: options.runs,
    };
    let measurements: [(&str, Measure); 8] = [
        ("import-delay", imports::with_delay),
        ("import", imports::without_delay),
        ("import-memory", memory::import),
        ("sync", memory::sync),
        ("import-limited", imports::limited),
        ("stream", lists::stream),
        ("prefetch", lists::prefetch),
        ("calls", single_calls::calls),
    ];
    let wanted = |name: &str| options.names.is_empty() || options.names.iter().any(|n| n == name);
    let mut figures = Vec::new();
    for (_, measure) in measurements.iter().filter(|(name, _)| wanted(name)) {
        for figure in measure(&sizes) {
            println!("{}", figure.json());
            figures.push(figure);
        }
    }
    println!("\n{}", figure::table(&figures));
    if let Some(file) = options.plot {
        std::fs::write(&file, figure::plot(&figures)).expect("the plot can be written");
    }
}
