//! Imports of a whole audience.

mod csv_dry_run;
mod csv_example;
mod csv_files;
mod csv_rejects;
