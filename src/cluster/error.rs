//! Errors of clusters, with advice.

use std::time::Duration;

use ray_api::RayError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("cannot run the program `{program}`: {error}; {advice}")]
    Missing {
        program: String,
        error: String,
        advice: &'static str,
    },
    /// The cluster understood the request and declined it.
    #[error("{program} refuses: {message}{advice}")]
    Refused {
        program: String,
        message: String,
        advice: String,
    },
    /// The cluster does not respond; the state of its jobs is unknown.
    #[error(
        "the cluster cannot be reached, so the state of its nodes is unknown: {program}: {message}; try again later"
    )]
    Unreachable { program: String, message: String },
    #[error("{program} did not end within {} s and was stopped{note}; raise {key}, or check whether the cluster hangs", after.as_secs())]
    Timeout {
        program: String,
        after: Duration,
        note: &'static str,
        key: &'static str,
    },
    #[error("the output of {program} cannot be used: {message}")]
    Output { program: String, message: String },
    /// A prerequisite of the call is missing.
    #[error("{message}")]
    Setup { message: String },
    #[error("cluster.shapes has no shape `{shape}`; it has: {known}")]
    UnknownShape { shape: String, known: String },
    #[error("`{id}` is not the id of a lease; `model-pool cluster status` lists them")]
    WrongId { id: String },
}

impl ClusterError {
    /// Returns true if the cluster may have carried out the call. Only its status shows the outcome.
    pub fn is_unknown(&self) -> bool {
        match self {
            ClusterError::Unreachable { .. }
            | ClusterError::Timeout { .. }
            | ClusterError::Output { .. } => true,
            ClusterError::Missing { .. }
            | ClusterError::Refused { .. }
            | ClusterError::Setup { .. }
            | ClusterError::UnknownShape { .. }
            | ClusterError::WrongId { .. } => false,
        }
    }
}

impl From<RayError> for ClusterError {
    fn from(error: RayError) -> ClusterError {
        match error {
            RayError::Refused {
                program,
                message,
                advice,
            }
            | RayError::Denied {
                program,
                message,
                advice,
            } => ClusterError::Refused {
                program,
                message,
                advice,
            },
            RayError::Unreachable { program, message } => {
                ClusterError::Unreachable { program, message }
            }
            RayError::Output { program, message } => ClusterError::Output { program, message },
            // Errors of Ray Serve only, which provides no nodes.
            RayError::Record { .. } | RayError::Deposed { .. } => ClusterError::Setup {
                message: error.to_string(),
            },
        }
    }
}
