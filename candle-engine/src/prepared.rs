//! A generating request that is read and checked. Its grammar is compiled before it is queued, and holds up no other request
//! meanwhile.

use crate::answer::{Answer, Shape};
use crate::answer_json::Envelope;
use crate::api_error::ApiError;
use crate::batch::GenerationRequest;
use crate::grammar::{Grammar, compiling};
use crate::ready::Ready;
use axum::http::StatusCode;

pub(crate) struct Prepared {
    pub requests: Vec<GenerationRequest>,
    pub envelope: Envelope,
    pub shape: Shape,
    pub grammar: Option<Held>,
}

/// What the answers of a request are held to.
pub(crate) struct Held {
    pub grammar: Grammar,
    /// The field it came with.
    pub param: &'static str,
    /// Whether the request is refused if it cannot be followed. Calls of strict tools that the model need not make are not
    /// held then: it may still call as it was taught.
    pub is_required: bool,
}

impl Held {
    /// By a grammar and the field it came with.
    pub fn required((grammar, param): (Grammar, &'static str)) -> Self {
        Self {
            grammar,
            param,
            is_required: true,
        }
    }
}

impl Prepared {
    /// # Errors
    /// When its grammar cannot be followed, or too many requests wait already.
    pub async fn start(mut self, ready: &Ready) -> Result<Answer, ApiError> {
        if let Some(held) = self.grammar.take() {
            match compiling::compile(&ready.model, &held.grammar, held.param).await {
                Ok(constraint) => {
                    for request in &mut self.requests {
                        request.constraint = Some(constraint.clone());
                    }
                }
                Err(error) if !held.is_required && error.status == StatusCode::BAD_REQUEST => {
                    self.shape.ignored.add("tools.strict");
                }
                Err(error) => return Err(error),
            }
        }
        Answer::start(ready, self.envelope, self.requests, self.shape)
    }
}
