//! A validated generation request. Its grammar is compiled before it is queued, without blocking other requests.

use crate::api_error::ApiError;
use crate::batch::GenerationRequest;
use crate::decoder_service::DecoderService;
use crate::grammar::{Grammar, compiling};
use crate::response::{PendingResponse, ResponseOptions};
use crate::response_json::Envelope;
use axum::http::StatusCode;

pub(crate) struct PreparedRequest {
    pub requests: Vec<GenerationRequest>,
    pub envelope: Envelope,
    pub shape: ResponseOptions,
    pub grammar: Option<RequestGrammar>,
}

/// The grammar of a request's completions.
pub(crate) struct RequestGrammar {
    pub grammar: Grammar,
    /// The field it came from.
    pub param: &'static str,
    /// Refuse the request if the grammar cannot be compiled. False for optional calls of strict tools: without a grammar, the model
    /// may still call them in its trained format.
    pub is_required: bool,
}

impl RequestGrammar {
    /// A required grammar, with the field it came from.
    pub fn required((grammar, param): (Grammar, &'static str)) -> Self {
        Self {
            grammar,
            param,
            is_required: true,
        }
    }
}

impl PreparedRequest {
    /// # Errors
    /// If a required grammar cannot be compiled, or too many requests are waiting.
    pub async fn start(mut self, ready: &DecoderService) -> Result<PendingResponse, ApiError> {
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
        PendingResponse::start(ready, self.envelope, self.requests, self.shape)
    }
}
