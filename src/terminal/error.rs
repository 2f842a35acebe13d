//! The failures of a command: what happened, what to do next, and the exit status.

use std::fmt;
use std::io;

use serde_json::Value;

use super::control_chars::{clean, line};
use super::trust::CertificateProblem;

#[derive(Debug)]
pub enum CommandError {
    /// The command line, a file it names, or standard input cannot be used.
    Usage(String),
    Runtime(io::Error),
    /// The server did not respond, or the connection was lost.
    Unreachable {
        server: String,
        /// The connection was refused: nothing listens there.
        refused: bool,
        why: String,
    },
    /// The server's certificate is not trusted.
    Untrusted {
        server: String,
        problem: CertificateProblem,
    },
    Refused(Box<Refusal>),
    /// The response is not in the format of OpenAI's API.
    NotThePool {
        server: String,
        status: u16,
        excerpt: String,
    },
    /// A stream that ended with an error, or without an end.
    Cut {
        message: String,
    },
    /// Some of several results are missing.
    Incomplete {
        message: String,
    },
    Interrupted,
    Output(io::Error),
}

/// A server's error response, in OpenAI's format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub message: String,
    pub code: String,
    pub request_id: Option<String>,
    /// In seconds.
    pub retry_after: Option<u64>,
    /// Advice for a refused key.
    pub key_story: String,
    /// Advice for this refusal, if the client knows more than the server.
    pub advice: Option<String>,
    pub body: String,
}

impl Refusal {
    /// Returns the message and code of an error object, or `None` if `body` is not one.
    pub fn read(body: &str) -> Option<(String, String)> {
        let body: Value = serde_json::from_str(body).ok()?;
        error_of(&body)
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

impl CommandError {
    pub fn exit_status(&self) -> u8 {
        match self {
            CommandError::Usage(_) => 2,
            CommandError::Unreachable { .. } | CommandError::Untrusted { .. } => 3,
            CommandError::Interrupted => 130,
            // The reader of the output has closed it, as with `| head`.
            CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            _ => 1,
        }
    }

    /// Returns true if the server does not know the model.
    pub fn is_unknown_model(&self) -> bool {
        matches!(self, CommandError::Refused(refusal) if refusal.code == "model_not_found")
    }

    /// Adds advice to a refusal.
    pub fn advise(mut self, advice: String) -> CommandError {
        if let CommandError::Refused(refusal) = &mut self {
            refusal.advice = Some(advice);
        }
        self
    }

    /// Formats the failure, and advice in further lines. Returns `None` if nothing is to be printed.
    pub fn explain(&self) -> Option<String> {
        match self {
            CommandError::Interrupted => return None,
            CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return None;
            }
            _ => {}
        }
        let advice = self
            .advice()
            .map(|advice| format!("\n{advice}"))
            .unwrap_or_default();
        Some(format!("model-pool: {self}{advice}"))
    }

    fn advice(&self) -> Option<String> {
        match self {
            CommandError::Unreachable { server, .. } if server.starts_with("https://") => Some(
                "Check the address in --server or MODEL_POOL_SERVER, and whether the server speaks https there."
                    .to_owned(),
            ),
            CommandError::Unreachable { refused: true, .. } => Some(
                "Start a pool with `model-pool serve`, or name another server with --server or MODEL_POOL_SERVER."
                    .to_owned(),
            ),
            CommandError::Unreachable { .. } => {
                Some("Check the server's log, and the address in --server or MODEL_POOL_SERVER.".to_owned())
            }
            CommandError::Untrusted { problem, .. } => Some(problem.advice.to_owned()),
            CommandError::NotThePool { .. } => Some(
                "Check the address in --server or MODEL_POOL_SERVER; a base path other than /llm is part of it."
                    .to_owned(),
            ),
            CommandError::Refused(refusal) => refusal.advice(),
            _ => None,
        }
    }
}

impl Refusal {
    fn advice(&self) -> Option<String> {
        if self.advice.is_some() {
            return self.advice.clone();
        }
        match (self.status, self.code.as_str()) {
            (403, "registration_off") => None,
            (401 | 403, _) => Some(self.key_story.clone()),
            (_, "never_fits") => Some(
                "Use a smaller model or quantization, or a machine with more memory. `admin-client plan MODEL` shows the numbers."
                    .to_owned(),
            ),
            (_, "quarantined") => {
                Some("An administrator starts it again with `admin-client load MODEL`.".to_owned())
            }
            _ => self
                .retry_after
                .map(|seconds| format!("Try again in {seconds} s.")),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Usage(message) => f.write_str(message),
            CommandError::Runtime(error) => write!(f, "cannot start: {error}"),
            CommandError::Unreachable { server, why, .. } => {
                write!(
                    f,
                    "cannot reach the server at {}: {}",
                    line(server),
                    line(why)
                )
            }
            CommandError::Untrusted { server, problem } => write!(
                f,
                "cannot reach the server at {}: {} ({})",
                line(server),
                problem.what,
                line(&problem.detail)
            ),
            CommandError::Refused(refusal) => {
                f.write_str(&clean(&refusal.message))?;
                match &refusal.request_id {
                    Some(id) if refusal.status >= 500 => write!(f, " (request {})", line(id)),
                    _ => Ok(()),
                }
            }
            CommandError::NotThePool {
                server,
                status,
                excerpt,
            } => write!(
                f,
                "the server at {} is not a model pool: status {status}, {}",
                line(server),
                line(excerpt)
            ),
            CommandError::Cut { message } => {
                write!(f, "the answer was cut off: {}", clean(message))
            }
            CommandError::Incomplete { message } => f.write_str(message),
            CommandError::Interrupted => f.write_str("interrupted"),
            CommandError::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_objects_are_read_in_the_forms_that_servers_have() {
        let read = |text: &str| Refusal::read(text);
        let both = Some(("no".to_owned(), "c".to_owned()));
        assert_eq!(read(r#"{"error": {"message": "no", "code": "c"}}"#), both);
        assert_eq!(read(r#"{"message": "no", "type": "c"}"#), both);
        assert_eq!(
            read(r#"{"error": "no"}"#),
            Some(("no".to_owned(), String::new()))
        );
        assert_eq!(read("<html>"), None);
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn a_failure_says_what_to_do_and_has_its_exit_status() {
        let away = CommandError::Unreachable {
            server: "http://h:1/llm".to_owned(),
            refused: true,
            why: "Connection refused".to_owned(),
        };
        let text = away.explain().expect("it is explained");
        assert!(
            text.contains("h:1") && text.contains("model-pool serve"),
            "{text}"
        );
        assert_eq!(away.exit_status(), 3);
        let closed = CommandError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((closed.exit_status(), closed.explain()), (0, None));
        let refused = CommandError::Refused(Box::new(Refusal {
            status: 401,
            message: "a key is needed\x1b[2J".to_owned(),
            key_story: "No key was sent.".to_owned(),
            ..Refusal::default()
        }));
        let text = refused.explain().expect("it is explained");
        assert!(text.ends_with("\nNo key was sent."), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert_eq!(refused.exit_status(), 1);
    }
}
