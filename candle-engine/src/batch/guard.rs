//! Keeps a panic from ending the thread that computes for all requests.

use crate::api_error::ApiError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic would take the thread away from everybody; it is the failure of what was done then.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, ApiError>) -> Result<T, ApiError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = "the engine failed while computing this answer";
        Err(ApiError::internal(message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_failure_of_what_was_done_then() {
        let failed = guarded::<()>(|| panic!("on purpose"));
        assert_eq!(failed.expect_err("an error").status.as_u16(), 500);
        assert_eq!(guarded(|| Ok(1)), Ok(1));
    }
}
