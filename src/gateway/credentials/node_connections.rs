//! Connections of nodes, and recent wrong join tokens by address.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::failures::{Failures, WRONG_NODE_TOKENS};
use pool::{Span, Time};

/// Minimum interval between logged refusals, because many addresses may send wrong tokens.
const LOG_EVERY: Span = Span::from_secs(10);

/// Connections of nodes, and recent wrong tokens.
#[derive(Debug)]
pub struct NodeConnections {
    pub wrong_tokens: Failures,
    /// Addresses above [`WRONG_NODE_TOKENS`] share one turn at the database.
    pub suspect: Semaphore,
    logged: Mutex<Option<Time>>,
    pub connections: Mutex<JoinSet<()>>,
}

impl Default for NodeConnections {
    fn default() -> NodeConnections {
        NodeConnections {
            wrong_tokens: Failures::new(WRONG_NODE_TOKENS),
            suspect: Semaphore::new(1),
            logged: Mutex::default(),
            connections: Mutex::default(),
        }
    }
}

impl NodeConnections {
    pub fn may_log(&self, now: Time) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged.is_none_or(|at| now.since(at) >= LOG_EVERY);
        if is_due {
            *logged = Some(now);
        }
        is_due
    }
}
