//! What the program shows, and Ctrl-C.

use std::error::Error as StdError;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use audience::import::Progress;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// Prints a line. If nobody reads it, as after `| head`, the import continues.
pub(crate) fn say(line: impl Display) {
    writeln!(io::stdout(), "{line}").ok();
}

/// Returns the text without what a terminal would obey: the names of the columns are from the file.
pub(crate) fn printable(text: &str) -> String {
    let shown = |letter: char| match letter.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => letter,
    };
    text.chars().map(shown).collect()
}

/// Prints an error and what caused it.
pub(crate) fn explain_all(error: &dyn StdError) {
    eprintln!("error: {error}");
    let mut source = error.source();
    while let Some(error) = source {
        eprintln!("  because: {error}");
        source = error.source();
    }
}

/// Ready at the first Ctrl-C. The second one ends the program.
pub(crate) async fn interrupt(has_journal: bool) {
    if tokio::signal::ctrl_c().await.is_err() {
        return std::future::pending().await;
    }
    eprintln!(
        "stopping: the batches in flight are finished first; press Ctrl-C again to stop at once"
    );
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            match has_journal {
                true => eprintln!(
                    "stopped; --resume continues, and sends the batches that were in flight again"
                ),
                false => eprintln!("stopped; what was in flight may have been applied or not"),
            }
            std::process::exit(1);
        }
    });
}

/// Returns a bar, or a spinner if the number of rows is not known. Neither shows unless stderr is a terminal.
pub(crate) fn progress_bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{wide_bar} {human_pos}/{human_len}  {msg}",
        ),
        None => (ProgressBar::no_length(), "{spinner} {human_pos}  {msg}"),
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Shows how far the import is.
pub(crate) fn show(bar: &ProgressBar, progress: &Progress) {
    let left = progress.remaining().map_or_else(
        || "?".to_owned(),
        |left| format!("{:#}", HumanDuration(left)),
    );
    let (rate, in_flight, waiting) = (progress.rate(), progress.in_flight(), progress.waiting());
    bar.set_position(progress.finished());
    bar.set_message(format!(
        "{rate:.0}/s, {left} left, {in_flight} in flight, {waiting} waiting"
    ));
}
