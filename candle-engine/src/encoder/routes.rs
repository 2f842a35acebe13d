//! The routes of an encoder, from the request body to the response.

use super::embeddings::EmbeddingsRequest;
use super::network::Sequence;
use super::ranks::{RerankRequest, ScoreRequest};
use super::service::{Service, Usage, failed};
use crate::api_error::ApiError;
use crate::fields::Fields;
use axum::response::Response;
use std::sync::Arc;

/// The operations of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Embeddings,
    Rerank,
    Score,
}

/// The paths of each operation, as in the APIs of OpenAI, Cohere, Jina, Text Embeddings Inference and vLLM.
pub(crate) const PATHS: [(&str, Route); 6] = [
    ("/v1/embeddings", Route::Embeddings),
    ("/v1/rerank", Route::Rerank),
    ("/v2/rerank", Route::Rerank),
    ("/rerank", Route::Rerank),
    ("/v1/score", Route::Score),
    ("/score", Route::Score),
];

impl Route {
    /// The noun used in error messages.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Embeddings => "embeddings",
            Self::Rerank => "ranks",
            Self::Score => "scores",
        }
    }
}

/// A parsed request: the sequences to compute, and the form of the response.
pub(super) struct ParsedRequest {
    pub sequences: Vec<Sequence>,
    pub shape: ResponseKind,
}

/// The form of the response.
pub(super) enum ResponseKind {
    Embeddings(EmbeddingsRequest),
    Rerank(RerankRequest),
    Score(ScoreRequest),
}

impl Service {
    /// Handles a request. Dropping the future cancels it.
    ///
    /// # Errors
    /// 400 for an invalid request, 404 for another model, 429 if too many requests are waiting.
    pub async fn respond(
        self: Arc<Self>,
        route: Route,
        body: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let service = Arc::clone(&self);
        // Tokenizing long texts takes milliseconds or more.
        let reading = tokio::task::spawn_blocking(move || service.read(route, body.as_ref()));
        let parsed = reading.await.map_err(|_| failed())??;
        let usage = Usage::new(&parsed.sequences);
        let vectors = self.compute(parsed.sequences).await?;
        let writing =
            tokio::task::spawn_blocking(move || parsed.shape.write(&self, vectors, usage));
        writing.await.map_err(|_| failed())?
    }

    fn read(&self, route: Route, body: &[u8]) -> Result<ParsedRequest, ApiError> {
        let mut fields = Fields::parse(body)?;
        self.check_model(fields.text("model")?.as_deref())?;
        let parsed = match route {
            Route::Embeddings => EmbeddingsRequest::read(self, &mut fields)?,
            Route::Rerank => RerankRequest::read(self, &mut fields)?,
            Route::Score => ScoreRequest::read(self, &mut fields)?,
        };
        fields.finish()?;
        Ok(parsed)
    }
}

impl ResponseKind {
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
