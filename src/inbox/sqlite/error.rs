//! Which errors of SQLite may pass, and which need somebody.

use rusqlite::{Error, ErrorCode, ffi};

use crate::inbox::error::StoreError;

pub(super) fn store_error(error: Error) -> StoreError {
    let Some(failure) = error.sqlite_error() else {
        // A value of another type than the schema allows, for example.
        return StoreError::unusable(error);
    };
    // The file that processes share memory by could not be made longer.
    if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE {
        return StoreError::full(error);
    }
    match failure.code {
        ErrorCode::DiskFull => StoreError::full(error),
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted
        | ErrorCode::FileLockingProtocolFailed => StoreError::unavailable(error),
        _ => StoreError::unusable(error),
    }
}

/// Copies the error of a commit, for each of the operations that it was for.
pub(super) fn copy(error: &Error) -> Error {
    match error {
        Error::SqliteFailure(code, text) => Error::SqliteFailure(*code, text.clone()),
        other => Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_INTERNAL),
            Some(other.to_string()),
        ),
    }
}
