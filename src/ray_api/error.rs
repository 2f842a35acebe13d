//! Errors of calls to Ray's dashboard, with advice. They never contain the token.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RayError {
    /// Ray understood the request and declined it.
    #[error("{program} refuses: {message}{advice}")]
    Refused {
        program: String,
        message: String,
        advice: String,
    },
    /// Ray requires a token, or rejects this one, or the pool cannot read it.
    #[error("{program} refuses: {message}{advice}")]
    Denied {
        program: String,
        message: String,
        advice: String,
    },
    /// Ray does not respond; its applications and jobs are unknown.
    #[error("{program} does not respond: {message}")]
    Unreachable { program: String, message: String },
    #[error("the response of {program} cannot be used: {message}")]
    Output { program: String, message: String },
    /// The pool cannot record that it uses this Ray. Nothing was sent.
    #[error(
        "cannot store that {program} is used: {message}. Nothing was deployed, because a restart would not find it"
    )]
    Record { program: String, message: String },
    /// Another controller leads, and this one does not know its applications.
    #[error("{program} gets no order: this controller is no longer the leader")]
    Deposed { program: String },
}

impl RayError {
    /// Returns true if Ray may have carried out the call, or may do so later.
    pub fn is_unknown(&self) -> bool {
        match self {
            RayError::Unreachable { .. } | RayError::Output { .. } => true,
            RayError::Refused { .. }
            | RayError::Denied { .. }
            | RayError::Record { .. }
            | RayError::Deposed { .. } => false,
        }
    }
}
