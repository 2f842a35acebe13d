//! A validated generation request. Its grammar is compiled before it is queued, without blocking other requests.

use crate::api_error::ApiError;
use crate::batch::GenerationRequest;
use crate::grammar::{Grammar, compiling};
use crate::ready::Ready;
use crate::response::{Answer, Shape};
use crate::response_json::Envelope;
use axum::http::StatusCode;

pub(crate) struct Prepared {
    pub requests: Vec<GenerationRequest>,
    pub envelope: Envelope,
    pub shape: Shape,
    pub grammar: Option<Held>,
}

/// The grammar of a request's completions.
pub(crate) struct Held {
    pub grammar: Grammar,
    /// The field it came from.
    pub param: &'static str,
    /// Refuse the request if the grammar cannot be compiled. False for optional calls of strict tools: without a grammar, the model
    /// may still call them in its trained format.
    pub is_required: bool,
}

impl Held {
    /// A required grammar, with the field it came from.
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
    /// If a required grammar cannot be compiled, or too many requests are waiting.
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
