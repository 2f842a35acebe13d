//! Statuses of servers that a later request may change, and the time that `Retry-After` names for it.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode};

/// Longest wait that [`send_in_time`] accepts from a server, and the number of waits.
const WAIT_MAX: Duration = Duration::from_secs(10);
const WAITS_MAX: u32 = 2;

/// Returns true if the same request may succeed later: the server is overloaded, limits the rate of requests, or failed.
pub(super) fn is_transient(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// Like [`is_transient`], for a status that is kept as a number.
pub(super) fn is_transient_code(status: u16) -> bool {
    StatusCode::from_u16(status).is_ok_and(is_transient)
}

/// The wait that `Retry-After` demands. Dates are not supported.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// Sends a request. If the server names a short time for another attempt, waits and sends it again, at most twice.
pub(super) async fn send_in_time(
    request: impl Fn() -> RequestBuilder,
) -> reqwest::Result<Response> {
    let mut waits = 0;
    loop {
        let response = request().send().await?;
        let wait = retry_after(response.headers())
            .filter(|wait| is_transient(response.status()) && *wait <= WAIT_MAX);
        match wait {
            Some(wait) if waits < WAITS_MAX => {
                waits += 1;
                tokio::time::sleep(wait).await;
            }
            _ => return Ok(response),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_and_failures_are_transient_and_refusals_are_not() {
        for status in [408, 425, 429, 500, 502, 503, 504, 529] {
            assert!(is_transient_code(status), "{status}");
        }
        for status in [200, 301, 400, 401, 403, 404, 410, 416, 451, 7] {
            assert!(!is_transient_code(status), "{status}");
        }
    }

    #[test]
    fn only_seconds_are_read_from_retry_after() {
        let wait = |text: &'static str| {
            let value = reqwest::header::HeaderValue::from_static(text);
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait(" 0 "), Some(Duration::ZERO));
        for text in ["", "-1", "soon", "Mon, 30 Nov 2026 15:00:00 GMT"] {
            assert_eq!(wait(text), None, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
