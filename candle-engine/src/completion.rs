//! Owns the two generating routes: from a request's body to its answer, whole or as a stream. Never listens and never computes.

use crate::api::{ChatRequest, CompletionRequest, Settings};
use crate::api_error::ApiError;
use crate::generate::GenerationRequest;
use crate::loading::LoadedModel;
use crate::runs::{RunEvent, Runs};
use crate::server::Ready;
use crate::wire::{Envelope, Route, Usage};
use axum::Json;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Comments keep the connection of a waiting client alive through proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// `POST /v1/chat/completions`.
pub(crate) fn chat(ready: &Ready, body: &[u8]) -> Result<Answer, ApiError> {
    let model = &ready.model;
    let request = ChatRequest::parse(body, &ready.model.sampling_defaults)?;
    let template = model
        .template
        .as_ref()
        .ok_or_else(|| ApiError::invalid("this model has no chat template; use /v1/completions"))?;
    let text = template.render(&request.messages)?;
    check_length(model, &text, Route::Chat)?;
    let prompt = model.tokenizer.encode(&text, false)?;
    Answer::start(ready, Route::Chat, vec![prompt], &request.settings)
}

/// `POST /v1/completions`.
pub(crate) fn complete(ready: &Ready, body: &[u8]) -> Result<Answer, ApiError> {
    let request = CompletionRequest::parse(body, &ready.model.sampling_defaults)?;
    let prompts = request
        .prompts
        .iter()
        .map(|prompt| {
            check_length(&ready.model, prompt, Route::Completion)?;
            ready.model.tokenizer.encode(prompt, true)
        })
        .collect::<Result<Vec<_>, _>>()?;
    Answer::start(ready, Route::Completion, prompts, &request.settings)
}

/// An answer on its way. Dropping it cancels the computation.
pub(crate) struct Answer {
    runs: Runs,
    envelope: Envelope,
    usage: Usage,
    choices: usize,
    stream: bool,
}

impl Answer {
    fn start(
        ready: &Ready,
        route: Route,
        prompts: Vec<Vec<u32>>,
        settings: &Settings,
    ) -> Result<Self, ApiError> {
        if settings
            .model
            .as_ref()
            .is_some_and(|model| *model != ready.model_name)
        {
            let message = format!("this engine serves the model `{}` only", ready.model_name);
            return Err(ApiError {
                param: Some("model".to_owned()),
                ..ApiError::with_status(StatusCode::NOT_FOUND, "model_not_found", message)
            });
        }
        let usage = Usage {
            prompt_tokens: prompts.iter().map(Vec::len).sum(),
            completion_tokens: 0,
        };
        let mut requests = Vec::new();
        for prompt in prompts {
            let max_tokens = room(&ready.model, &prompt, route, settings)?;
            for choice in 0..settings.choices {
                let mut sampling = settings.sampling.clone();
                // Choices of one seed differ from each other and are the same every time.
                sampling.seed = sampling.seed.map(|seed| seed.wrapping_add(choice as u64));
                requests.push(GenerationRequest {
                    prompt: prompt.clone(),
                    max_tokens,
                    ending: settings.ending.clone(),
                    sampling,
                });
            }
        }
        Ok(Self {
            choices: requests.len(),
            runs: Runs::start(Arc::clone(&ready.workers), requests)?,
            envelope: Envelope::new(route, &ready.model_name, settings.include_usage),
            usage,
            stream: settings.stream,
        })
    }

    /// The response: a stream of events, or one JSON object when all is computed.
    pub async fn respond(self) -> Response {
        if self.stream {
            let chunks = Chunks {
                answer: self,
                ready: VecDeque::new(),
                role_sent_to: 0,
                ended: false,
            };
            let events = stream::unfold(chunks, |mut chunks| async {
                let event = chunks.next().await?;
                Some((Ok::<_, Infallible>(event), chunks))
            });
            return Sse::new(events)
                .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
                .into_response();
        }
        match self.collect().await {
            Ok(answer) => Json(answer).into_response(),
            Err(error) => error.into_response(),
        }
    }

    async fn collect(mut self) -> Result<Value, ApiError> {
        let mut choices = vec![(String::new(), ""); self.choices];
        while let Some(event) = self.runs.next().await {
            match event {
                RunEvent::Text { index, text } => choices[index].0 += &text,
                RunEvent::Finished { index, outcome } => {
                    choices[index].1 = outcome.reason.as_str();
                    self.usage.completion_tokens += outcome.completion_tokens;
                }
                RunEvent::Failed(error) => return Err(error),
            }
        }
        Ok(self.envelope.answer(&choices, self.usage))
    }
}

/// Most tokens that the answer to `prompt` may have.
/// What cannot fit is refused before it is taken apart, which would take many times its memory.
fn check_length(model: &LoadedModel, text: &str, route: Route) -> Result<(), ApiError> {
    let context = model.generator.context_tokens;
    let least = model.tokenizer.tokens_at_least(text.len());
    let used = format!("more than {least}");
    let input = model.generator.budgets.input;
    match input.filter(|most| least > *most) {
        Some(most) => Err(too_much_input(most, &used, param_of(route))),
        None if least < context => Ok(()),
        None => Err(too_long(context, &used, param_of(route))),
    }
}

fn param_of(route: Route) -> &'static str {
    match route {
        Route::Chat => "messages",
        Route::Completion => "prompt",
    }
}

fn too_long(context: usize, used: &str, param: &str) -> ApiError {
    let message = format!(
        "the prompt has {used} tokens; this model's context is {context} tokens for prompt and answer together"
    );
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field(param, message)
    }
}

fn too_much_input(most: usize, used: &str, param: &str) -> ApiError {
    let message = format!(
        "the prompt has {used} tokens; this model takes prompts of {most} tokens at most (max_input_tokens)"
    );
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field(param, message)
    }
}

fn room(
    model: &LoadedModel,
    prompt: &[u32],
    route: Route,
    settings: &Settings,
) -> Result<usize, ApiError> {
    let (context, used) = (model.generator.context_tokens, prompt.len());
    let param = param_of(route);
    if used == 0 {
        return Err(ApiError::field(
            param,
            "the prompt is empty; there is nothing to continue",
        ));
    }
    if let Some(most) = model.generator.budgets.input.filter(|most| used > *most) {
        return Err(too_much_input(most, &used.to_string(), param));
    }
    if used >= context {
        return Err(too_long(context, &used.to_string(), param));
    }
    Ok(settings
        .max_tokens
        .unwrap_or(usize::MAX)
        .min(context - used))
}

/// The events of a streamed answer.
struct Chunks {
    answer: Answer,
    ready: VecDeque<Event>,
    /// Choices below this have had their first chunk.
    role_sent_to: usize,
    ended: bool,
}

impl Chunks {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            self.advance().await;
        }
    }

    async fn advance(&mut self) {
        let event = self.answer.runs.next().await;
        let envelope = self.answer.envelope.clone();
        match event {
            Some(RunEvent::Text { index, text }) => {
                self.begin(index);
                self.push(&envelope.text_chunk(index, &text));
            }
            Some(RunEvent::Finished { index, outcome }) => {
                self.begin(index);
                self.answer.usage.completion_tokens += outcome.completion_tokens;
                self.push(&envelope.finish_chunk(index, outcome.reason.as_str()));
            }
            Some(RunEvent::Failed(error)) => {
                // The status is sent already, so the error is in the stream, and nothing says that the answer was whole.
                self.push(&error.body());
                self.ended = true;
            }
            None => {
                if envelope.include_usage {
                    self.push(&envelope.usage_chunk(self.answer.usage));
                }
                self.ready.push_back(Event::default().data("[DONE]"));
                self.ended = true;
            }
        }
    }

    fn begin(&mut self, index: usize) {
        if index >= self.role_sent_to {
            self.role_sent_to = index + 1;
            if let Some(chunk) = self.answer.envelope.role_chunk(index) {
                self.push(&chunk);
            }
        }
    }

    fn push(&mut self, chunk: &Value) {
        self.ready
            .push_back(Event::default().data(chunk.to_string()));
    }
}
