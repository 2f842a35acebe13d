//! What goes wrong with a call of Ray's dashboard, with what to do next. No error has the token in it.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RayError {
    /// Ray has understood the request, and declined it.
    #[error("{program} refuses: {message}{advice}")]
    Refused {
        program: String,
        message: String,
        advice: String,
    },
    /// Ray wants a token, or another one; or the pool cannot read it.
    #[error("{program} refuses: {message}{advice}")]
    Denied {
        program: String,
        message: String,
        advice: String,
    },
    /// Ray does not answer: nothing is known of what runs there.
    #[error("{program} does not answer: {message}")]
    Unreachable { program: String, message: String },
    #[error("the answer of {program} cannot be used: {message}")]
    Output { program: String, message: String },
    /// The pool cannot remember that it uses this Ray. Nothing was sent.
    #[error(
        "cannot store that {program} is used: {message}. Nothing was deployed, because a restart would not find it"
    )]
    Record { program: String, message: String },
    /// Another controller leads, and its applications are not known here.
    #[error("{program} gets no order: this controller is no longer the leader")]
    Deposed { program: String },
}

impl RayError {
    /// Whether Ray may have carried the call out, or may do so later.
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
