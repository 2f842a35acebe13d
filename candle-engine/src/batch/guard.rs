//! Keeps a panic from ending the compute thread that all requests share.

use crate::api_error::ApiError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work` and turns a panic into an error of that work alone.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, ApiError>) -> Result<T, ApiError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = "the engine failed while computing this response";
        Err(ApiError::internal(message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let failed = guarded::<()>(|| panic!("on purpose"));
        assert_eq!(failed.expect_err("an error").status.as_u16(), 500);
        assert_eq!(guarded(|| Ok(1)), Ok(1));
    }
}
