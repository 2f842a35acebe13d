//! The table from the kinds of errors to status codes and OpenAI's error types. No other code names the status of an error.

use axum::http::StatusCode;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request itself is wrong.
    Invalid,
    /// No valid key, session or token.
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    /// The client sends its body, or reads its response, too slowly.
    TooSlow,
    Conflict,
    TooLarge,
    UnsupportedMedia,
    /// The host of the request is not a name of this service.
    UnknownHost,
    UpgradeRequired,
    TooMany,
    HeadTooLarge,
    Internal,
    /// The model's engine, or the configuration, does not have the route.
    NotImplemented,
    /// An engine, or the controller that a standby forwards to, failed.
    Upstream,
    Unavailable,
    /// The client's deadline has passed.
    Deadline,
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// Each kind with its status code and `type` of the error object, in the order of the enum.
const TABLE: [(ErrorKind, StatusCode, &str); 18] = [
    (ErrorKind::Invalid, StatusCode::BAD_REQUEST, INVALID),
    (
        ErrorKind::Unauthorized,
        StatusCode::UNAUTHORIZED,
        "authentication_error",
    ),
    (
        ErrorKind::Forbidden,
        StatusCode::FORBIDDEN,
        "permission_error",
    ),
    (ErrorKind::NotFound, StatusCode::NOT_FOUND, INVALID),
    (
        ErrorKind::MethodNotAllowed,
        StatusCode::METHOD_NOT_ALLOWED,
        INVALID,
    ),
    (ErrorKind::TooSlow, StatusCode::REQUEST_TIMEOUT, INVALID),
    (ErrorKind::Conflict, StatusCode::CONFLICT, INVALID),
    (ErrorKind::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, INVALID),
    (
        ErrorKind::UnsupportedMedia,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        INVALID,
    ),
    (
        ErrorKind::UnknownHost,
        StatusCode::MISDIRECTED_REQUEST,
        INVALID,
    ),
    (
        ErrorKind::UpgradeRequired,
        StatusCode::UPGRADE_REQUIRED,
        INVALID,
    ),
    (
        ErrorKind::TooMany,
        StatusCode::TOO_MANY_REQUESTS,
        "rate_limit_error",
    ),
    (
        ErrorKind::HeadTooLarge,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        INVALID,
    ),
    (
        ErrorKind::Internal,
        StatusCode::INTERNAL_SERVER_ERROR,
        SERVER,
    ),
    (
        ErrorKind::NotImplemented,
        StatusCode::NOT_IMPLEMENTED,
        INVALID,
    ),
    (ErrorKind::Upstream, StatusCode::BAD_GATEWAY, SERVER),
    (
        ErrorKind::Unavailable,
        StatusCode::SERVICE_UNAVAILABLE,
        SERVER,
    ),
    (ErrorKind::Deadline, StatusCode::GATEWAY_TIMEOUT, SERVER),
];

impl ErrorKind {
    /// The kind with this status code, if there is one.
    pub fn of_status(status: StatusCode) -> Option<ErrorKind> {
        let row = TABLE.iter().find(|row| row.1 == status)?;
        Some(row.0)
    }

    pub const fn status(self) -> StatusCode {
        TABLE[self as usize].1
    }

    pub(super) const fn error_type(self) -> &'static str {
        TABLE[self as usize].2
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_error_table_is_in_enum_order_and_maps_each_status_to_one_kind() {
        for (at, (kind, status, _)) in TABLE.iter().enumerate() {
            assert_eq!(*kind as usize, at, "{kind:?}");
            assert!(status.is_client_error() || status.is_server_error());
            assert_eq!(ErrorKind::of_status(*status), Some(*kind));
        }
        let statuses: BTreeSet<StatusCode> = TABLE.iter().map(|row| row.1).collect();
        assert_eq!(statuses.len(), TABLE.len());
    }
}
