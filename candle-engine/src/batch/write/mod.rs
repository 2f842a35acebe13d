//! The state of each request between steps: takes the rows of its sequences, returns its next tokens, and sends pieces of text to
//! its client.

pub(super) mod client;
mod completion;
mod contrast;
mod search;
mod states;

use super::request::{GenerationRequest, ResponseEvent};
use super::work::States;
use crate::api_error::ApiError;
use crate::decoding::Strategy;
use crate::tokenizer::ModelTokenizer;
use client::{Client, LogitRows, RowOutcome};
use completion::CompletionWriter;
use search::Search;
use states::StatesWriter;
use tokio::sync::oneshot;

/// The state of one running request.
pub(super) enum Writer {
    Single(Box<CompletionWriter>),
    Search(Box<Search>),
    States(StatesWriter),
}

impl Writer {
    /// # Errors
    /// If the tokenizer fails.
    pub fn of_response(
        request: GenerationRequest,
        client: Client,
        tokenizer: &ModelTokenizer,
    ) -> Result<Self, (Client, ApiError)> {
        let stops = match request.ending.texts(tokenizer) {
            Ok(stops) => stops,
            Err(error) => return Err((client, error)),
        };
        Ok(match request.strategy {
            Strategy::Beams(settings) => {
                let search = Search::new(request, settings, stops, client, tokenizer);
                Self::Search(Box::new(search))
            }
            _ => Self::Single(Box::new(CompletionWriter::new(
                request, stops, client, tokenizer,
            ))),
        })
    }

    pub fn of_states(reply: oneshot::Sender<States>) -> Self {
        Self::States(StatesWriter::new(reply))
    }

    /// Ends a completion that needs no row at all. Returns true if it did.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn end_at_once(&mut self, tokenizer: &ModelTokenizer) -> Result<bool, ApiError> {
        match self {
            Self::Single(single) => single.end_at_once(tokenizer),
            Self::Search(search) => search.end_at_once(tokenizer),
            Self::States(_) => Ok(false),
        }
    }

    /// Returns true while its client is connected.
    pub fn is_wanted(&self) -> bool {
        match self {
            Self::Single(single) => !single.client.events.is_closed(),
            Self::Search(search) => !search.client.events.is_closed(),
            Self::States(states) => states.is_wanted(),
        }
    }

    /// Returns true if the request needs hidden states to decide which rows need logits.
    pub fn sees_states(&self) -> bool {
        match self {
            Self::Single(single) => single.sees_states(),
            Self::Search(_) => false,
            Self::States(_) => true,
        }
    }

    /// Takes the hidden states of its requested rows of a step. With `decides`, the last one belongs to its last token, or all of
    /// them do if it has several sequences.
    ///
    /// # Errors
    /// If the model yields no numbers, the tokenizer fails, or the grammar cannot be followed.
    pub fn see(
        &mut self,
        states: &[&[f32]],
        decides: bool,
        tokenizer: &ModelTokenizer,
    ) -> Result<LogitRows, ApiError> {
        match self {
            Self::Single(single) => single.see(states, decides, tokenizer),
            Self::Search(_) => Ok(LogitRows::All),
            Self::States(writer) => Ok(writer.see(states, decides)),
        }
    }

    /// Takes the logits of its next row that needs some.
    ///
    /// # Errors
    /// If the model yields no numbers, the tokenizer fails, or the grammar cannot be followed.
    pub fn row(
        &mut self,
        logits: &mut [f32],
        tokenizer: &ModelTokenizer,
    ) -> Result<RowOutcome, ApiError> {
        // Logits beyond the vocabulary are padding of the embedding.
        let named = logits.len().min(tokenizer.vocabulary);
        let logits = &mut logits[..named];
        match self {
            Self::Single(single) => single.row(logits, tokenizer),
            Self::Search(search) => search.row(logits, tokenizer),
            Self::States(_) => Ok(RowOutcome::Wait),
        }
    }

    /// Frees its place for another request of its client.
    pub fn leave(&self) {
        match self {
            Self::Single(single) => drop(single.client.send(ResponseEvent::Ended)),
            Self::Search(search) => drop(search.client.send(ResponseEvent::Ended)),
            Self::States(_) => {}
        }
    }

    /// Reports the error to its client.
    pub fn fail(&mut self, error: ApiError) {
        match self {
            Self::Single(single) => single.client.fail(error),
            Self::Search(search) => search.client.fail(error),
            Self::States(states) => states.fail(error),
        }
    }
}
