//! Failures of requests, with their exit status and advice. Prints nothing. Messages may contain text from the server, which
//! programs clean before they print it.

use std::error::Error;
use std::iter::successors;

use serde_json::Value;

use crate::events::EVENT_BYTES_MAX;
use crate::trust::CertificateProblem;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The command line or a file it names cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The server did not respond, or the connection was lost.
    #[error("cannot reach the server at {server}")]
    Unreachable {
        server: String,
        /// Nothing listens at the address, in contrast to a server that stopped responding.
        refused: bool,
        #[source]
        source: reqwest::Error,
    },
    /// The server's certificate is not trusted.
    #[error("cannot reach the server at {server}: {} ({})", .problem.what, .problem.detail)]
    Untrusted {
        server: String,
        problem: CertificateProblem,
    },
    /// The server speaks HTTP where TLS was expected, or the other way round.
    #[error("{server} {}", scheme_problem(*.speaks_tls))]
    WrongScheme { server: String, speaks_tls: bool },
    /// The HTTP client cannot be created, or the request is invalid.
    #[error("cannot make a request to {server}")]
    Request {
        server: String,
        #[source]
        source: reqwest::Error,
    },
    /// The server responded with an error object.
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
    /// The server is not a model pool.
    #[error("{server} is not a model pool: {path} returned status {status}: {excerpt}")]
    NotThePool {
        server: String,
        path: String,
        status: u16,
        excerpt: String,
    },
    /// The response is JSON of an unknown shape.
    #[error("this version of the client does not understand the server's response to {path}")]
    Shape {
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("an event of the server's stream is longer than {} MiB", EVENT_BYTES_MAX >> 20)]
    EventTooLong,
}

/// An error object of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub message: String,
    pub code: String,
    pub request_id: Option<String>,
    /// In seconds.
    pub retry_after: Option<u64>,
    /// The origin of the refused key, or the reason that no key was sent.
    pub key_story: String,
    /// The body, unchanged.
    pub body: String,
}

impl ClientError {
    /// The exit status of this kind of failure.
    pub fn exit_status(&self) -> u8 {
        match self {
            ClientError::Usage(_) => 2,
            ClientError::Unreachable { .. }
            | ClientError::Untrusted { .. }
            | ClientError::WrongScheme { .. } => 3,
            _ => 1,
        }
    }

    /// The refusal, if the server responded with an error object.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            ClientError::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Advice on what to do next.
    pub fn advice(&self) -> Option<String> {
        let advice = match self {
            ClientError::Unreachable { refused: true, .. } => {
                "Is it running? Start it with `model-pool serve`, or name another server with --server or MODEL_POOL_SERVER."
            }
            ClientError::Unreachable { .. } => {
                "Check the server's log, and its address in --server or MODEL_POOL_SERVER."
            }
            ClientError::Untrusted { problem, .. } => problem.advice,
            ClientError::WrongScheme { server, .. } => {
                let server = other_scheme(server);
                return Some(format!("Use --server {server} (MODEL_POOL_SERVER)."));
            }
            ClientError::NotThePool { .. } => {
                "Check --server (MODEL_POOL_SERVER): it must be the URL of a model pool, with its base path if that is not /llm."
            }
            ClientError::Refused(refusal) if refusal.status >= 500 => {
                let id = refusal.request_id.as_ref()?;
                return Some(format!("See the server's log for request {id}."));
            }
            _ => return None,
        };
        Some(advice.to_owned())
    }
}

/// Returns the message and code of `{"error": {…}}`, or of the error object itself.
pub fn error_of(body: &Value) -> Option<(String, String)> {
    let error = body.get("error").unwrap_or(body);
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    let message = text("message").or_else(|| error.as_str())?;
    let code = text("code").or_else(|| text("type")).unwrap_or_default();
    Some((message.to_owned(), code.to_owned()))
}

/// The innermost cause of an error. The causes in between are the libraries' own, such as "error sending request".
pub fn root_cause(error: &(dyn Error + 'static)) -> Option<String> {
    let is_timeout = |cause: &(dyn Error + 'static)| {
        let sent = cause.downcast_ref::<reqwest::Error>();
        sent.is_some_and(reqwest::Error::is_timeout)
    };
    let causes = error.source().map(chain)?;
    let (timeouts, causes): (Vec<_>, Vec<_>) = causes.partition(|cause| is_timeout(*cause));
    if timeouts.is_empty() {
        causes.last().map(ToString::to_string)
    } else {
        Some("it did not respond in time".to_owned())
    }
}

/// The error and its causes.
pub(crate) fn chain<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    successors(Some(error), |error| (**error).source())
}

fn scheme_problem(speaks_tls: bool) -> &'static str {
    if speaks_tls {
        "uses TLS, but the URL's scheme is http"
    } else {
        "uses plain HTTP, but the URL's scheme is https"
    }
}

/// The same URL with the other scheme, without the default base path.
fn other_scheme(server: &str) -> String {
    let server = server.strip_suffix("/llm").unwrap_or(server);
    match server.split_once("://") {
        Some(("https", rest)) => format!("http://{rest}"),
        Some((_, rest)) => format!("https://{rest}"),
        None => server.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_objects_are_read_in_all_known_formats() {
        let read = |text: &str| error_of(&serde_json::from_str(text).expect("JSON"));
        let both = Some(("no".to_owned(), "c".to_owned()));
        assert_eq!(read(r#"{"error": {"message": "no", "code": "c"}}"#), both);
        assert_eq!(read(r#"{"message": "no", "type": "c"}"#), both);
        let text = Some(("no".to_owned(), String::new()));
        assert_eq!(read(r#"{"error": "no"}"#), text);
        for other in ["{}", r#"{"detail": "Not Found"}"#] {
            assert_eq!(read(other), None);
        }
    }

    #[test]
    fn a_wrong_scheme_gets_the_right_one_suggested() {
        for (server, right) in [
            ("https://gpu.example:8080/llm", "http://gpu.example:8080 "),
            (
                "http://gpu.example:8443/pool",
                "https://gpu.example:8443/pool ",
            ),
        ] {
            let failure = ClientError::WrongScheme {
                server: server.to_owned(),
                speaks_tls: server.starts_with("http:"),
            };
            let advice = failure.advice().expect("advice");
            assert!(advice.contains(&format!("--server {right}")), "{advice}");
            assert_eq!(failure.exit_status(), 3);
        }
    }

    #[test]
    fn a_failure_inside_the_server_names_the_request() {
        let advice = |status| {
            let request_id = Some("req-9".to_owned());
            let refusal = Refusal {
                status,
                request_id,
                ..Refusal::default()
            };
            ClientError::Refused(Box::new(refusal)).advice()
        };
        assert!(advice(500).is_some_and(|advice| advice.contains("req-9")));
        assert_eq!(advice(404), None);
    }
}
