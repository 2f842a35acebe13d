//! The failures of a command: what happened, what to do next, and the exit status.

use std::io;

use client::{ClientError, Refusal, root_cause};

use super::control_chars::clean;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The command line, a file it names, or standard input cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A refusal, with advice that the server cannot give.
    #[error("{refused}")]
    Advised {
        refused: ClientError,
        advice: String,
    },
    /// A stream that ended with an error, or without an end.
    #[error("the answer was cut off: {message}")]
    Cut { message: String },
    /// Some of several results are missing.
    #[error("{message}")]
    Incomplete { message: String },
    #[error("interrupted")]
    Interrupted,
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    #[error("cannot write the output")]
    Output(#[source] io::Error),
}

impl CommandError {
    pub fn exit_status(&self) -> u8 {
        match self {
            CommandError::Usage(_) => 2,
            CommandError::Client(failure) => failure.exit_status(),
            CommandError::Interrupted => 130,
            failure if failure.is_closed_output() => 0,
            _ => 1,
        }
    }

    /// The reader of the output has closed it, as with `| head`.
    fn is_closed_output(&self) -> bool {
        matches!(self, CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns the server's refusal, if that is the failure.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            CommandError::Client(failure)
            | CommandError::Advised {
                refused: failure, ..
            } => failure.refusal(),
            _ => None,
        }
    }

    /// Returns true for a failure of one request, after which others may succeed.
    pub fn is_of_one_request(&self) -> bool {
        let is_too_long = matches!(self, CommandError::Client(ClientError::EventTooLong));
        self.refusal().is_some() || is_too_long || matches!(self, CommandError::Cut { .. })
    }

    /// Returns true if the server does not know the model.
    pub fn is_unknown_model(&self) -> bool {
        self.refusal()
            .is_some_and(|refusal| refusal.code == "model_not_found")
    }

    /// Adds advice to a refusal.
    pub fn advise(self, advice: String) -> CommandError {
        match self {
            CommandError::Client(refused @ ClientError::Refused(_)) => {
                CommandError::Advised { refused, advice }
            }
            other => other,
        }
    }

    /// Formats the failure, and advice in further lines. Returns `None` if nothing is to be printed.
    pub fn explain(&self) -> Option<String> {
        if matches!(self, CommandError::Interrupted) || self.is_closed_output() {
            return None;
        }
        let mut text = format!("model-pool: {self}");
        if let Some(cause) = root_cause(self) {
            text = format!("{text}: {cause}");
        }
        if let Some(advice) = self.advice() {
            text = format!("{text}\n{advice}");
        }
        Some(clean(&text))
    }

    fn advice(&self) -> Option<String> {
        let (failure, advice) = match self {
            CommandError::Advised { refused, advice } => (refused, Some(advice.clone())),
            CommandError::Client(failure) => (failure, failure.refusal().and_then(advice_of)),
            _ => return None,
        };
        // The second line names the request in the server's log.
        let lines = [advice, failure.advice()].into_iter().flatten();
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

fn advice_of(refusal: &Refusal) -> Option<String> {
    match (refusal.status, refusal.code.as_str()) {
        (403, "registration_off") => None,
        (401 | 403, _) => Some(refusal.key_story.clone()),
        (_, "never_fits") => Some(
            "Use a smaller model or quantization, or a machine with more memory. `admin-client plan MODEL` shows the numbers."
                .to_owned(),
        ),
        (_, "quarantined") => {
            Some("An administrator starts it again with `admin-client load MODEL`.".to_owned())
        }
        _ => refusal
            .retry_after
            .map(|seconds| format!("Try again in {seconds} s.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_advice_and_an_exit_status() {
        let closed = CommandError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((closed.exit_status(), closed.explain()), (0, None));
        let full = CommandError::Output(io::ErrorKind::StorageFull.into());
        let text = full.explain().expect("it is explained");
        assert!(
            text.starts_with("model-pool: cannot write the output: "),
            "{text}"
        );
        let refused = CommandError::Client(ClientError::Refused(Box::new(Refusal {
            status: 401,
            message: "a key is needed\x1b[2J".to_owned(),
            key_story: "No key was sent.".to_owned(),
            ..Refusal::default()
        })));
        let text = refused.explain().expect("it is explained");
        assert!(text.ends_with("\nNo key was sent."), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert_eq!(refused.exit_status(), 1);
        let full = CommandError::Client(ClientError::Refused(Box::new(Refusal {
            status: 503,
            message: "no seat".to_owned(),
            retry_after: Some(3),
            request_id: Some("r-7".to_owned()),
            ..Refusal::default()
        })));
        let text = full.explain().expect("it is explained");
        let lines = "\nTry again in 3 s.\nSee the server's log for request r-7.";
        assert!(text.ends_with(lines), "{text}");
    }
}
