//! Types that the writers share: their client, and the outcome of a step.

use crate::api_error::ApiError;
use crate::batch::request::{Outcome, ResponseEvent};
use crate::pieces::Piece;
use tokio::sync::mpsc::UnboundedSender;

/// A request's state after a row.
#[derive(Debug, PartialEq)]
pub(crate) enum RowOutcome {
    /// More rows of it must come first.
    Wait,
    /// Its sequences are replaced: each entry is the index of an old sequence and its next token.
    GoOn(Vec<(usize, u32)>),
    /// It has ended, and its client has been notified.
    End,
}

/// The requested rows of a request that need logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogitRows {
    All,
    None,
    Only(usize),
    /// None, because the request has ended.
    Ended,
}

/// The client of a completion.
pub(crate) struct Client {
    pub events: UnboundedSender<ResponseEvent>,
    first_choice: usize,
}

impl Client {
    pub fn new(events: UnboundedSender<ResponseEvent>, first_choice: usize) -> Self {
        Self {
            events,
            first_choice,
        }
    }

    /// Sends a piece. Returns false if the client has disconnected.
    pub fn give(&self, choice: usize, piece: Piece) -> bool {
        if piece.is_empty() {
            !self.events.is_closed()
        } else {
            self.send(ResponseEvent::Piece(self.first_choice + choice, piece))
        }
    }

    pub fn fail(&self, error: ApiError) {
        self.send(ResponseEvent::Failed(error));
    }

    pub fn finish(&self, choice: usize, outcome: Outcome) {
        self.send(ResponseEvent::Finished(self.first_choice + choice, outcome));
    }

    pub fn send(&self, event: ResponseEvent) -> bool {
        self.events.send(event).is_ok()
    }
}
