//! The state of each request between steps: rows of its sequences in, its next tokens out, and pieces of text to its
//! client.

pub(super) mod client;
mod contrast;
mod search;
mod single;
mod states;

use super::request::{AnswerEvent, GenerationRequest};
use super::work::States;
use crate::api_error::ApiError;
use crate::decoding::Strategy;
use crate::tokenizer::ModelTokenizer;
use client::{Client, Next, Scored};
use search::Search;
use single::Single;
use states::StatesWriter;
use tokio::sync::oneshot;

/// A request on its way.
pub(super) enum Writer {
    Single(Box<Single>),
    Search(Box<Search>),
    States(StatesWriter),
}

impl Writer {
    /// # Errors
    /// When the tokenizer refuses.
    pub fn of_answer(
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
            _ => Self::Single(Box::new(Single::new(request, stops, client, tokenizer))),
        })
    }

    pub fn of_states(reply: oneshot::Sender<States>) -> Self {
        Self::States(StatesWriter::new(reply))
    }

    /// Ends an answer that needs no row at all. Whether it is one.
    ///
    /// # Errors
    /// When the tokenizer refuses.
    pub fn end_at_once(&mut self, tokenizer: &ModelTokenizer) -> Result<bool, ApiError> {
        match self {
            Self::Single(single) => single.end_at_once(tokenizer),
            Self::Search(search) => search.end_at_once(tokenizer),
            Self::States(_) => Ok(false),
        }
    }

    /// Whether its client is still there.
    pub fn is_wanted(&self) -> bool {
        match self {
            Self::Single(single) => !single.client.events.is_closed(),
            Self::Search(search) => !search.client.events.is_closed(),
            Self::States(states) => states.is_wanted(),
        }
    }

    /// Whether it must see hidden states before it is known which rows need logits.
    pub fn sees_states(&self) -> bool {
        match self {
            Self::Single(single) => single.sees_states(),
            Self::Search(_) => false,
            Self::States(_) => true,
        }
    }

    /// Takes the hidden states of its wanted rows of a step. `decides`: the last is that of its last token, or all are, where it
    /// has several sequences.
    ///
    /// # Errors
    /// When the model gives no numbers, the tokenizer refuses, or the grammar cannot be followed.
    pub fn see(
        &mut self,
        states: &[&[f32]],
        decides: bool,
        tokenizer: &ModelTokenizer,
    ) -> Result<Scored, ApiError> {
        match self {
            Self::Single(single) => single.see(states, decides, tokenizer),
            Self::Search(_) => Ok(Scored::All),
            Self::States(writer) => Ok(writer.see(states, decides)),
        }
    }

    /// Takes the logits of the next of its rows that need some.
    ///
    /// # Errors
    /// When the model gives no numbers, the tokenizer refuses, or the grammar cannot be followed.
    pub fn row(
        &mut self,
        logits: &mut [f32],
        tokenizer: &ModelTokenizer,
    ) -> Result<Next, ApiError> {
        // Rows of the embedding that no token names are padding.
        let named = logits.len().min(tokenizer.vocabulary);
        let logits = &mut logits[..named];
        match self {
            Self::Single(single) => single.row(logits, tokenizer),
            Self::Search(search) => search.row(logits, tokenizer),
            Self::States(_) => Ok(Next::Wait),
        }
    }

    /// Its place is free for another request of its client.
    pub fn leave(&self) {
        match self {
            Self::Single(single) => drop(single.client.send(AnswerEvent::Ended)),
            Self::Search(search) => drop(search.client.send(AnswerEvent::Ended)),
            Self::States(_) => {}
        }
    }

    /// Tells its client that there is no answer.
    pub fn fail(&mut self, error: ApiError) {
        match self {
            Self::Single(single) => single.client.fail(error),
            Self::Search(search) => search.client.fail(error),
            Self::States(states) => states.fail(error),
        }
    }
}
