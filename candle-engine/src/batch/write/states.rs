//! Sends hidden states to the request that needs them.

use super::client::LogitRows;
use crate::api_error::ApiError;
use crate::batch::work::States;
use tokio::sync::oneshot;

/// A request for hidden states.
pub(crate) struct StatesWriter {
    rows: Vec<Vec<f32>>,
    reply: Option<oneshot::Sender<States>>,
}

impl StatesWriter {
    pub fn new(reply: oneshot::Sender<States>) -> Self {
        Self {
            rows: Vec::new(),
            reply: Some(reply),
        }
    }

    pub fn is_wanted(&self) -> bool {
        let reply = self.reply.as_ref();
        reply.is_some_and(|reply| !reply.is_closed())
    }

    pub fn see(&mut self, states: &[&[f32]], decides: bool) -> LogitRows {
        self.rows.extend(states.iter().map(|state| state.to_vec()));
        if !decides {
            return LogitRows::None;
        }
        let rows = std::mem::take(&mut self.rows);
        if let Some(reply) = self.reply.take() {
            // A client that has disconnected does not need them.
            let _ = reply.send(Ok(rows));
        }
        LogitRows::Ended
    }

    pub fn fail(&mut self, error: ApiError) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err(error));
        }
    }
}
