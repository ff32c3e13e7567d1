//! Why a call failed: [`Error`], and the parts that a program asks it for.

mod api;
mod body;
mod code;
#[expect(
    clippy::module_inception,
    reason = "the type that the module is named after"
)]
mod error;
mod kind;
mod outcome;
mod predicates;
mod refusal;

pub use api::ApiError;
pub use code::ErrorCode;
pub use error::Error;
pub use kind::ErrorKind;
pub use outcome::Outcome;
pub(crate) use outcome::is_transient;
