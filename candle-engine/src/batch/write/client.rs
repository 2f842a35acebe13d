//! What the writers of answers share: their client, and what they say of a step.

use crate::api_error::ApiError;
use crate::batch::request::{AnswerEvent, Outcome};
use crate::pieces::Piece;
use tokio::sync::mpsc::UnboundedSender;

/// How a request goes on after a row.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Other rows of it are to come first.
    Wait,
    /// Its sequences become these: each one of before, with a token more.
    GoOn(Vec<(usize, u32)>),
    /// It has ended, and its client knows.
    End,
}

/// Which of a request's wanted rows need logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scored {
    All,
    None,
    Only(usize),
    /// None, because it has ended.
    Ended,
}

/// The client of an answer.
pub(crate) struct Client {
    pub events: UnboundedSender<AnswerEvent>,
    first_choice: usize,
}

impl Client {
    pub fn new(events: UnboundedSender<AnswerEvent>, first_choice: usize) -> Self {
        Self {
            events,
            first_choice,
        }
    }

    /// Gives a piece out. Whether anybody still listens.
    pub fn give(&self, choice: usize, piece: Piece) -> bool {
        match piece.is_empty() {
            true => !self.events.is_closed(),
            false => self.send(AnswerEvent::Piece(self.first_choice + choice, piece)),
        }
    }

    pub fn fail(&self, error: ApiError) {
        self.send(AnswerEvent::Failed(error));
    }

    pub fn finish(&self, choice: usize, outcome: Outcome) {
        self.send(AnswerEvent::Finished(self.first_choice + choice, outcome));
    }

    pub fn send(&self, event: AnswerEvent) -> bool {
        self.events.send(event).is_ok()
    }
}
