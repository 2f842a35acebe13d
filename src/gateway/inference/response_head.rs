//! Response headers of a request: the replica that served it, the wait, and the remaining rate limits.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use access::limits::{Figure, LimitRefusal, RemainingLimit, RemainingLimits};
use api_types::dto::class_name;
use edge::header_text::header_text;
use pool::{ReplicaId, ServiceClass, Span};

const REPLICA: HeaderName = HeaderName::from_static("x-model-pool-replica");
const WAITED: HeaderName = HeaderName::from_static("x-model-pool-waited-ms");
const LOADED: HeaderName = HeaderName::from_static("x-model-pool-loaded");
const CLASS: HeaderName = HeaderName::from_static("x-model-pool-class");

const LIMIT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
const LEFT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
const RESET_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");
const LIMIT_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-limit-tokens");
const LEFT_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-tokens");
const RESET_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-reset-tokens");

/// The parts of the response head, collected while the request is processed.
#[derive(Default)]
pub(crate) struct ResponseHead {
    pub seat: Option<SeatHead>,
    /// The class in which the request waits or is served.
    pub class: Option<ServiceClass>,
    /// Headers that only some responses have.
    pub more: HeaderMap,
}

/// The replica that serves the request, and the time spent waiting for it.
pub(crate) struct SeatHead {
    pub replica: ReplicaId,
    pub waited: Span,
    pub was_ready: bool,
}

impl ResponseHead {
    pub fn write(self, headers: &mut HeaderMap) {
        if let Some(seat) = self.seat {
            headers.insert(REPLICA, header_text(seat.replica));
            headers.insert(WAITED, header_text(seat.waited.0));
            let loaded = if seat.was_ready { "false" } else { "true" };
            headers.insert(LOADED, HeaderValue::from_static(loaded));
        }
        if let Some(class) = self.class {
            headers.insert(CLASS, HeaderValue::from_static(class_name(class)));
        }
        headers.extend(self.more);
    }
}

/// Writes OpenAI's `x-ratelimit-*` headers.
pub(crate) fn standing(head: &mut HeaderMap, standing: &RemainingLimits) {
    let mut write = |names: [HeaderName; 3], left: Option<RemainingLimit>| {
        let Some(RemainingLimit { most, left, reset }) = left else {
            return;
        };
        let [limit, remaining, until] = names;
        head.insert(limit, header_text(most));
        head.insert(remaining, header_text(left));
        head.insert(until, header_text(short(reset)));
    };
    write(
        [LIMIT_REQUESTS, LEFT_REQUESTS, RESET_REQUESTS],
        standing.requests,
    );
    write([LIMIT_TOKENS, LEFT_TOKENS, RESET_TOKENS], standing.tokens);
}

/// The standing of a limit that is exhausted.
pub(crate) fn nothing_left(refused: &LimitRefusal) -> RemainingLimits {
    let LimitRefusal::Over {
        figure,
        most,
        retry,
        ..
    } = refused
    else {
        return RemainingLimits::default();
    };
    let left = RemainingLimit {
        most: *most,
        left: 0,
        reset: *retry,
    };
    match figure {
        Figure::Requests => RemainingLimits {
            requests: Some(left),
            tokens: None,
        },
        Figure::Tokens | Figure::Day => RemainingLimits {
            requests: None,
            tokens: Some(left),
        },
        Figure::Concurrent => RemainingLimits::default(),
    }
}

/// Formats a duration as OpenAI does: `120ms`, `1.5s`, `6m0s`, `7h12m0s`.
fn short(span: Span) -> String {
    let (seconds, milliseconds) = (span.0 / 1000, span.0 % 1000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) if seconds == 0 => format!("{milliseconds}ms"),
        (0, 0) if milliseconds == 0 => format!("{seconds}s"),
        (0, 0) => format!("{:.3}s", span.0 as f64 / 1000.0)
            .replace("00s", "s")
            .replace("0s", "s"),
        (0, _) => format!("{minutes}m{}s", seconds % 60),
        _ => format!("{hours}h{minutes}m{}s", seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_like_openais() {
        let texts = [
            (0, "0ms"),
            (120, "120ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (360_000, "6m0s"),
            (25_920_000, "7h12m0s"),
        ];
        for (milliseconds, text) in texts {
            assert_eq!(short(Span(milliseconds)), text);
        }
        assert_eq!(short(Span(10_120)), "10.12s");
    }
}
