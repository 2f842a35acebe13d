//! The cause of an attempt's failure, as far as it matters for a fallback.

use axum::response::Response;

use api_types::error::{ENGINE_CRASHED, ErrorKind, Failure};
use config::FallbackCause;
use dialect::overflow;

/// Marks a response that reports a prompt longer than the model's context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptTooLong;

/// The cause of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A cause that the configuration may exclude.
    Of(FallbackCause),
    /// The wait has become longer than allowed.
    Late,
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Cause::Of(cause) => cause.name(),
            Cause::Late => "late",
        }
    }
}

/// The cause for another attempt; `None` if the response is final. `is_remote`: the member is a remote endpoint.
pub(crate) fn cause(
    ended: &Result<Response, (Option<String>, Failure)>,
    is_remote: bool,
) -> Option<Cause> {
    match ended {
        Ok(response) => of_response(response, is_remote),
        Err((_, failure)) => of_failure(failure, is_remote),
    }
}

fn failed(is_remote: bool) -> Cause {
    Cause::Of(if is_remote {
        FallbackCause::Remote
    } else {
        FallbackCause::Failed
    })
}

/// An engine's error that has not been sent yet.
fn of_response(response: &Response, is_remote: bool) -> Option<Cause> {
    let status = response.status();
    if response.extensions().get::<PromptTooLong>().is_some() {
        return Some(Cause::Of(FallbackCause::Context));
    }
    let is_busy = status == ErrorKind::TooMany.status();
    (status.is_server_error() || is_busy).then(|| failed(is_remote))
}

fn of_failure(failure: &Failure, is_remote: bool) -> Option<Cause> {
    let code = failure.body.error.code.unwrap_or_default();
    match (failure.kind, code) {
        (_, overflow::CODE) => Some(Cause::Of(FallbackCause::Context)),
        (_, "not_ready") => Some(Cause::Late),
        (_, ENGINE_CRASHED | "preempted" | "unloaded") => Some(failed(is_remote)),
        (ErrorKind::Upstream, _) => Some(failed(is_remote)),
        // The next member would end in the same way.
        (_, "shutting_down" | "not_saved" | "limits_unavailable") => None,
        (ErrorKind::TooMany, "queue_full") | (ErrorKind::Unavailable, _) => {
            Some(Cause::Of(FallbackCause::Refused))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use pool::{Refusal, Span};

    fn cause_of(failure: Failure) -> Option<Cause> {
        cause(&Err((None, failure)), false)
    }

    #[test]
    fn refusals_failures_and_long_prompts_lead_to_the_next_member() {
        let second = Span::from_secs(1);
        let refused = Some(Cause::Of(FallbackCause::Refused));
        let full = Refusal::QueueFull {
            limit: 1,
            retry: second,
        };
        assert_eq!(cause_of(Failure::refused("m", &full)), refused);
        let no_room = Failure::new(ErrorKind::Unavailable, "no_room", "no room");
        assert_eq!(cause_of(no_room), refused);
        assert_eq!(cause_of(Failure::not_ready("m", second)), Some(Cause::Late));
        let broken = Some(Cause::Of(FallbackCause::Failed));
        assert_eq!(cause_of(Failure::engine("m", "it has failed")), broken);
        let crash = Failure::new(ErrorKind::Unavailable, ENGINE_CRASHED, "ended");
        assert_eq!(cause_of(crash), broken);
        let long = Failure::new(ErrorKind::Invalid, overflow::CODE, "too long");
        assert_eq!(cause_of(long), Some(Cause::Of(FallbackCause::Context)));
    }

    #[test]
    fn errors_of_the_request_and_of_the_caller_are_final() {
        for failure in [
            Failure::invalid(None, "wrong"),
            Failure::unauthorized("no key"),
            Failure::deadline(),
            Failure::ending("m"),
            Failure::new(ErrorKind::TooMany, "rate_limit_exceeded", "too many"),
        ] {
            assert_eq!(cause_of(failure.clone()), None, "{failure:?}");
        }
    }

    #[test]
    fn an_engines_error_response_is_a_failure_of_its_endpoint() {
        let response = |status: StatusCode| {
            let mut response = Response::default();
            *response.status_mut() = status;
            Ok(response)
        };
        let internal = response(ErrorKind::Internal.status());
        let remote = Some(Cause::Of(FallbackCause::Remote));
        assert_eq!(cause(&internal, true), remote);
        assert_eq!(cause(&response(ErrorKind::TooMany.status()), true), remote);
        let local = Some(Cause::Of(FallbackCause::Failed));
        assert_eq!(cause(&internal, false), local);
        assert_eq!(cause(&response(ErrorKind::Invalid.status()), false), None);
        assert_eq!(cause(&response(StatusCode::OK), false), None);
        let mut long = Response::default();
        *long.status_mut() = ErrorKind::Invalid.status();
        long.extensions_mut().insert(PromptTooLong);
        let context = Some(Cause::Of(FallbackCause::Context));
        assert_eq!(cause(&Ok(long), true), context);
    }
}
