//! The service behind an encoder's routes: the model's purpose, truncation, token counts, and submission to the queue.

use super::decoder_backend::DecoderBackend;
use super::loaded_encoder::Encoder;
use super::network::Sequence;
use super::queue::{EncoderResult, Queue};
use super::texts::{Cut, Texts};
use super::wording::Wording;
use crate::api_error::ApiError;
use crate::batch::Generator;
use crate::error::EngineError;
use crate::fields::{Fields, expected};
use crate::sleep::Sleeper;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of texts per request, as in OpenAI's API.
pub(super) const TEXTS_MAX: usize = 2048;

/// A model that is served for vectors or scores.
pub(crate) struct Service {
    pub model_name: String,
    pub model: Model,
    computes: Computes,
}

/// The model as the routes see it.
pub(crate) struct Model {
    pub architecture: String,
    pub texts: Texts,
    pub gives: OutputKind,
}

/// The output of the model.
pub(crate) enum OutputKind {
    Vectors {
        /// Length of a vector.
        width: usize,
        /// Normalises vectors to length one unless the request decides.
        normalises: bool,
    },
    Scores {
        wording: Wording,
        /// Scores pass through a sigmoid unless the request decides.
        shows_probability: bool,
    },
}

/// The component that computes requests.
enum Computes {
    Encoder { encoder: Arc<Encoder>, queue: Queue },
    Decoder(Arc<DecoderBackend>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    pub prompt_tokens: usize,
    pub total_tokens: usize,
}

impl Usage {
    pub fn new(sequences: &[Sequence]) -> Self {
        let tokens = sequences.iter().map(|sequence| sequence.tokens.len()).sum();
        Self {
            prompt_tokens: tokens,
            total_tokens: tokens,
        }
    }
}

impl Service {
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(model_name: String, model: Model, encoder: Encoder) -> Result<Self, EngineError> {
        let encoder = Arc::new(encoder);
        let queue = Queue::start(Arc::clone(&encoder))?;
        Ok(Self {
            model_name,
            model,
            computes: Computes::Encoder { encoder, queue },
        })
    }

    /// Serves a decoder whose batch is already running.
    pub fn of_decoder(model_name: String, model: Model, decoder: DecoderBackend) -> Self {
        Self {
            model_name,
            model,
            computes: Computes::Decoder(Arc::new(decoder)),
        }
    }

    /// Bytes of the weights in total, and of those in mapped files.
    pub fn weights_bytes(&self) -> (u64, u64) {
        match &self.computes {
            Computes::Encoder { encoder, .. } => (encoder.weights_bytes, encoder.mapped_bytes),
            Computes::Decoder(decoder) => {
                let weights = &decoder.generator().weights;
                (weights.bytes, weights.mapped_bytes)
            }
        }
    }

    /// The decoder that computes, if it is one.
    pub fn generator(&self) -> Option<&Generator> {
        match &self.computes {
            Computes::Encoder { .. } => None,
            Computes::Decoder(decoder) => Some(decoder.generator()),
        }
    }

    /// The components that free memory while the engine sleeps, in order.
    pub fn sleepers(self: &Arc<Self>) -> Vec<Arc<dyn Sleeper>> {
        match &self.computes {
            Computes::Encoder { encoder, .. } => vec![Arc::clone(encoder) as Arc<dyn Sleeper>],
            Computes::Decoder(decoder) => decoder.sleepers.clone(),
        }
    }

    pub(super) async fn compute(&self, sequences: Vec<Sequence>) -> EncoderResult {
        match &self.computes {
            Computes::Encoder { queue, .. } => {
                queue.submit(sequences)?.await.map_err(|_| failed())?
            }
            Computes::Decoder(decoder) => decoder.compute(sequences).await,
        }
    }

    /// # Errors
    /// 404 if `model` names another model.
    pub fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        match model {
            Some(model) if model != self.model_name => {
                let message = format!("this engine serves the model `{}` only", self.model_name);
                Err(ApiError {
                    param: Some("model".to_owned()),
                    ..ApiError::with_status(StatusCode::NOT_FOUND, "model_not_found", message)
                })
            }
            _ => Ok(()),
        }
    }

    /// The error for a request type that this model does not serve.
    pub fn is_for_something_else(&self, wanted: &str) -> ApiError {
        let purpose = match &self.model.gives {
            OutputKind::Vectors { .. } => "it computes embeddings: use /v1/embeddings",
            OutputKind::Scores { .. } => "it scores pairs of texts: use /v1/rerank or /v1/score",
        };
        ApiError {
            code: Some("unsupported_operation"),
            ..ApiError::field(
                "model",
                format!(
                    "the model `{}` ({}) does not support {wanted}; {purpose}",
                    self.model_name, self.model.architecture
                ),
            )
        }
    }

    /// Reads the truncation fields, as named by Text Embeddings Inference and vLLM.
    pub(super) fn take_cut(&self, fields: &mut Fields) -> Result<Cut, ApiError> {
        let limit = self.model.texts.limit;
        let truncates = fields.flag("truncate")?.unwrap_or(false);
        let tokens = fields.integer("truncate_prompt_tokens", -1..=limit as i64)?;
        if tokens == Some(0) {
            let message =
                "`truncate_prompt_tokens` must be at least 1, or -1 for as many as the model takes";
            return Err(ApiError::field("truncate_prompt_tokens", message));
        }
        let direction = fields.text("truncation_direction")?;
        let from_left = match direction.as_deref() {
            None | Some("right" | "Right") => false,
            Some("left" | "Left") => true,
            Some(other) => {
                let found = Value::from(other);
                return Err(expected("truncation_direction", "right or left", &found));
            }
        };
        let most = tokens.and_then(|tokens| usize::try_from(tokens).ok());
        Ok(Cut {
            most: most.unwrap_or(limit),
            is_allowed: truncates || tokens.is_some(),
            from_left,
        })
    }
}

/// Serializes a response. Numbers are written in the shortest form that parses to the same 32-bit float.
pub(super) fn json_response(response: impl Serialize) -> Response {
    Json(response).into_response()
}

pub(super) fn failed() -> ApiError {
    ApiError::internal("the engine failed on this request")
}
