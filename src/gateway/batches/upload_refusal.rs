//! The errors of uploads, as their clients see them.

use api_types::error::{ErrorKind, Failure};
use batch::{UploadError, UploadLimits};

/// The error for a client. `field` is the field with the requests.
pub(super) fn refusal(error: &UploadError, limits: UploadLimits, field: &str) -> Failure {
    match error {
        UploadError::Io(error) => {
            tracing::warn!(%error, "an upload cannot be written");
            let message =
                "the file cannot be stored: the server's disk refuses it; see the server log";
            Failure::new(ErrorKind::Unavailable, "file_not_stored", message)
        }
        UploadError::TooLarge { limit_bytes } => {
            let message = format!(
                "the file is larger than {limit_bytes} bytes, the limit for a file or what is left of the key's space, with its other uploads in progress (batch.files_max, batch.per_key_size)"
            );
            Failure::new(ErrorKind::TooLarge, "file_too_large", message)
        }
        UploadError::TooManyLines { limit } => {
            let message =
                format!("the file has more than {limit} requests, the limit (batch.requests_max)");
            Failure::new(ErrorKind::TooLarge, "file_too_large", message)
        }
        UploadError::Stopped => {
            Failure::invalid(None, "the upload ended before the file was complete")
        }
        other => {
            let mut message = other.to_string();
            if message.contains(&limits.line_bytes_max.to_string()) {
                message.push_str(" (batch.request_max)");
            }
            invalid(field, &message)
        }
    }
}

pub(super) fn invalid(field: &str, message: &str) -> Failure {
    Failure::invalid(field.to_owned(), message)
}
