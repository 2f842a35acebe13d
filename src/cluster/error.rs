//! What goes wrong with a cluster, with what to do next.

use std::time::Duration;

use ray_api::RayError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("there is no program `{program}`: {error}; {advice}")]
    Missing {
        program: String,
        error: String,
        advice: &'static str,
    },
    /// The cluster has understood the request, and declined it.
    #[error("{program} refuses: {message}{advice}")]
    Refused {
        program: String,
        message: String,
        advice: String,
    },
    /// The cluster does not answer: nothing is known about its jobs.
    #[error(
        "the cluster cannot be reached, so the state of its nodes is unknown: {program}: {message}; try again later"
    )]
    Unreachable { program: String, message: String },
    #[error("{program} did not end within {} s and was stopped{note}; raise {key}, or look whether the cluster hangs", after.as_secs())]
    Timeout {
        program: String,
        after: Duration,
        note: &'static str,
        key: &'static str,
    },
    #[error("the output of {program} cannot be used: {message}")]
    Output { program: String, message: String },
    /// What is needed for a call is not there.
    #[error("{message}")]
    Setup { message: String },
    #[error("there is no shape `{shape}` in cluster.shapes; there are: {known}")]
    UnknownShape { shape: String, known: String },
    #[error("`{id}` is not the id of a lease; `model-pool cluster status` lists them")]
    WrongId { id: String },
}

impl ClusterError {
    /// Whether the cluster may have carried the call out: then only its status tells.
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
            // Of Ray Serve alone, which brings no nodes.
            RayError::Record { .. } | RayError::Deposed { .. } => ClusterError::Setup {
                message: error.to_string(),
            },
        }
    }
}
