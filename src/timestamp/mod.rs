//! A moment in whole Unix seconds: [`Timestamp`], its text, and its conversions.

mod arithmetic;
mod calendar;
mod error;
mod text;
#[expect(
    clippy::module_inception,
    reason = "the type that the module is named after"
)]
mod timestamp;

#[cfg(feature = "chrono")]
mod chrono;
#[cfg(feature = "jiff")]
mod jiff;
#[cfg(feature = "time")]
mod time;

pub use error::TimestampError;
pub use timestamp::Timestamp;
