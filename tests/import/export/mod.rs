//! Exports to files: their content, and that a stop at any moment neither loses nor repeats a contact.

mod files;
mod formats;
mod kill;
mod resume;
mod round_trip;

use std::path::{Path, PathBuf};

/// A folder that is removed in the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("export-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The addresses `{n}@x.io`, the newest first, as a CSV file with the column `email`.
fn all_addresses(count: usize) -> String {
    let lines = (0..count).rev().map(|n| format!("{n}@x.io\n"));
    "email\n"
        .chars()
        .chain(lines.collect::<String>().chars())
        .collect()
}
