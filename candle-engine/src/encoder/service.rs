//! Owns what the routes of an encoder have in common: what the model is for, cutting, counting, and the way through the
//! queue. Never computes.

use super::by_decoder::ByDecoder;
use super::embeddings::EmbeddingsRequest;
use super::loading::Encoder;
use super::network::Sequence;
use super::queue::{Computed, Queue};
use super::ranks::{RerankRequest, ScoreRequest};
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

/// Texts of one request; OpenAI's bound.
pub(super) const TEXTS_MAX: usize = 2048;

/// What an encoder is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Embeddings,
    Rerank,
    Score,
}

/// Where it is asked: OpenAI's way, those of Cohere, Jina and Text Embeddings Inference, and vLLM's.
pub(crate) const PATHS: [(&str, Route); 6] = [
    ("/v1/embeddings", Route::Embeddings),
    ("/v1/rerank", Route::Rerank),
    ("/v2/rerank", Route::Rerank),
    ("/rerank", Route::Rerank),
    ("/v1/score", Route::Score),
    ("/score", Route::Score),
];

impl Route {
    /// What it is called in an error.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Embeddings => "embeddings",
            Self::Rerank => "ranks",
            Self::Score => "scores",
        }
    }
}

/// A model that is served for vectors or scores.
pub(crate) struct Service {
    pub model_name: String,
    pub model: Model,
    computes: Computes,
}

/// What the routes see of the model.
pub(crate) struct Model {
    pub architecture: String,
    pub texts: Texts,
    pub gives: Gives,
}

/// What the model gives.
pub(crate) enum Gives {
    Vectors {
        /// Numbers of a vector.
        width: usize,
        /// Vectors have length one when a request does not say.
        normalises: bool,
    },
    Scores {
        wording: Wording,
        /// A score goes through a sigmoid when a request does not say.
        shows_probability: bool,
    },
}

/// What computes.
enum Computes {
    Encoder { encoder: Arc<Encoder>, queue: Queue },
    Decoder(Arc<ByDecoder>),
}

/// A request that was read: what is computed for it, and how its answer is written.
pub(super) struct Asked {
    pub sequences: Vec<Sequence>,
    pub shape: Shape,
}

/// The answer's form.
pub(super) enum Shape {
    Embeddings(EmbeddingsRequest),
    Rerank(RerankRequest),
    Score(ScoreRequest),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    pub prompt_tokens: usize,
    pub total_tokens: usize,
}

impl Usage {
    pub fn of(sequences: &[Sequence]) -> Self {
        let tokens = sequences.iter().map(|it| it.tokens.len()).sum();
        Self {
            prompt_tokens: tokens,
            total_tokens: tokens,
        }
    }
}

impl Service {
    /// # Errors
    /// When the system gives no thread.
    pub fn start(model_name: String, model: Model, encoder: Encoder) -> Result<Self, EngineError> {
        let encoder = Arc::new(encoder);
        let queue = Queue::start(Arc::clone(&encoder))?;
        Ok(Self {
            model_name,
            model,
            computes: Computes::Encoder { encoder, queue },
        })
    }

    /// Serves a decoder, whose batch runs already.
    pub fn of_decoder(model_name: String, model: Model, decoder: ByDecoder) -> Self {
        Self {
            model_name,
            model,
            computes: Computes::Decoder(Arc::new(decoder)),
        }
    }

    /// Bytes of the weights, and of them those in mapped files.
    pub fn weights_bytes(&self) -> (u64, u64) {
        match &self.computes {
            Computes::Encoder { encoder, .. } => (encoder.weights_bytes, encoder.mapped_bytes),
            Computes::Decoder(decoder) => {
                let weights = &decoder.generator().weights;
                (weights.bytes, weights.mapped_bytes)
            }
        }
    }

    /// The decoder that it computes with, where it is one.
    pub fn generator(&self) -> Option<&Generator> {
        match &self.computes {
            Computes::Encoder { .. } => None,
            Computes::Decoder(decoder) => Some(decoder.generator()),
        }
    }

    /// What gives memory back while the engine sleeps, in the order of it.
    pub fn sleepers(self: &Arc<Self>) -> Vec<Arc<dyn Sleeper>> {
        match &self.computes {
            Computes::Encoder { encoder, .. } => vec![Arc::clone(encoder) as Arc<dyn Sleeper>],
            Computes::Decoder(decoder) => decoder.sleepers.clone(),
        }
    }

    /// Answers a request. Dropping the future cancels it.
    ///
    /// # Errors
    /// 400 for a request that is wrong, 404 for another model, 429 when too many wait.
    pub async fn answer(
        self: Arc<Self>,
        route: Route,
        body: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let service = Arc::clone(&self);
        // Long texts take milliseconds and more to be taken apart.
        let reading = tokio::task::spawn_blocking(move || service.read(route, body.as_ref()));
        let asked = reading.await.map_err(|_| failed())??;
        let usage = Usage::of(&asked.sequences);
        let vectors = self.compute(asked.sequences).await?;
        let writing = tokio::task::spawn_blocking(move || asked.shape.write(&self, vectors, usage));
        writing.await.map_err(|_| failed())?
    }

    async fn compute(&self, sequences: Vec<Sequence>) -> Computed {
        match &self.computes {
            Computes::Encoder { queue, .. } => {
                queue.submit(sequences)?.await.map_err(|_| failed())?
            }
            Computes::Decoder(decoder) => decoder.compute(sequences).await,
        }
    }

    fn read(&self, route: Route, body: &[u8]) -> Result<Asked, ApiError> {
        let mut fields = Fields::parse(body)?;
        self.check_model(fields.take_string("model")?.as_deref())?;
        let asked = match route {
            Route::Embeddings => EmbeddingsRequest::read(self, &mut fields)?,
            Route::Rerank => RerankRequest::read(self, &mut fields)?,
            Route::Score => ScoreRequest::read(self, &mut fields)?,
        };
        fields.finish("")?;
        Ok(asked)
    }

    /// # Errors
    /// 404 for a model that is not this one.
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

    /// What is said to somebody who wants something else of this model.
    pub fn is_for_something_else(&self, wanted: &str) -> ApiError {
        let purpose = match &self.model.gives {
            Gives::Vectors { .. } => "it makes embeddings: ask /v1/embeddings",
            Gives::Scores { .. } => "it scores pairs of texts: ask /v1/rerank or /v1/score",
        };
        ApiError {
            code: Some("unsupported_operation"),
            ..ApiError::field(
                "model",
                format!(
                    "the model `{}` ({}) gives no {wanted}; {purpose}",
                    self.model_name, self.model.architecture
                ),
            )
        }
    }

    /// Takes the fields that say what happens to long texts, as Text Embeddings Inference and vLLM have them.
    pub(super) fn take_cut(&self, fields: &mut Fields) -> Result<Cut, ApiError> {
        let limit = self.model.texts.limit;
        let truncates = fields.take_bool("truncate")?.unwrap_or(false);
        let tokens = fields.take_integer("truncate_prompt_tokens", -1..=limit as i64)?;
        if tokens == Some(0) {
            let message =
                "`truncate_prompt_tokens` must be at least 1, or -1 for as many as the model takes";
            return Err(ApiError::field("truncate_prompt_tokens", message));
        }
        let direction = fields.take_string("truncation_direction")?;
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

impl Sleeper for Encoder {
    /// On the CPU there is nothing to give back between requests: weights are kept, and the rest is freed after each batch.
    fn sleep(&self) -> Result<(), EngineError> {
        if self.is_on_cpu {
            return Ok(());
        }
        Err(EngineError::load(
            "the weights of an encoder cannot leave the GPU while the engine lives; stop the engine in place of it",
        ))
    }

    fn wake(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

impl Shape {
    fn write(
        self,
        service: &Service,
        vectors: Vec<Vec<f32>>,
        usage: Usage,
    ) -> Result<Response, ApiError> {
        match self {
            Self::Embeddings(request) => request.write(service, vectors, usage),
            Self::Rerank(request) => request.write(service, &vectors, usage),
            Self::Score(request) => request.write(service, &vectors, usage),
        }
    }
}

/// An answer as JSON. Numbers are written as the shortest that reads back to the same 32-bit float.
pub(super) fn respond(answer: impl Serialize) -> Response {
    Json(answer).into_response()
}

fn failed() -> ApiError {
    ApiError::internal("the engine failed on this request")
}
