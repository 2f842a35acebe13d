//! Prepares requests of the two text-generating routes, from the body to the batch's input, up to the grammar and the queue.

use crate::adapter::Adapter;
use crate::api::{ChatRequest, CompletionRequest, PromptInput, Settings};
use crate::api_error::ApiError;
use crate::batch::{GenerationRequest, Scores};
use crate::chat_template::ChatTemplate;
use crate::conversation::{has_calls, render, source_of, template_of, tools_of};
use crate::decoder_service::DecoderService;
use crate::decoding::Strategy;
use crate::detokenize::DecodeTokens;
use crate::loading::LoadedModel;
use crate::prepared_request::{PreparedRequest, RequestGrammar};
use crate::prompt_length::{check_length, room, too_long};
use crate::reasoning::ReasoningReader;
use crate::response::ResponseOptions;
use crate::response_json::{Envelope, Route};
use crate::tools::{self, Tool, ToolReader, Tools, required};
use crate::vision::{EncodedImages, PromptImages};
use axum::http::StatusCode;
use reading::IgnoredFields;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A prompt to compute.
struct Prompt {
    tokens: Vec<u32>,
    images: PromptImages,
    /// Its text, if completions begin with it.
    echo: Option<Arc<str>>,
}

/// The parsers for a completion's text, and the request's fields without effect.
#[derive(Default)]
struct Parts {
    readers: Vec<ToolReader>,
    thoughts: Vec<ReasoningReader>,
    ignored: IgnoredFields,
}

/// Handles `POST /v1/chat/completions`.
pub(crate) fn chat(ready: &DecoderService, body: &[u8]) -> Result<PreparedRequest, ApiError> {
    let model = &ready.model;
    let sees = model.vision.is_some();
    let mut request = ChatRequest::parse(body, &model.sampling_defaults, sees)?;
    if model.reads_source() {
        return translate(ready, request);
    }
    let mut ignored = std::mem::take(&mut request.ignored);
    let adapter = called(ready, request.settings.model.as_deref())?;
    let template = template_of(model)?;
    let encoded = match &model.vision {
        Some(vision) => {
            vision.adapt(&mut request.messages);
            vision.read(&request.images)?
        }
        None => EncodedImages::default(),
    };
    request.tools = tools_of(template, request.tools, &mut ignored)?;
    if has_calls(&request.messages) && !template.mentions("tool_calls") {
        ignored.add("messages.tool_calls");
    }
    let text = render(
        template,
        &request.messages,
        &request.tools,
        &request.switches,
        true,
    )?;
    check_length(model, &text, Route::Chat)?;
    let tokens = model.tokenizer.encode(&text, false)?;
    let prompt = with_images(model, tokens, encoded, &request.settings)?;
    let knows_reasoning = ReasoningReader::is_known_to(|name| template.mentions(name));
    let settings = &request.settings;
    for name in request.switches.without_effect(|name| template.reads(name)) {
        ignored.add(name);
    }
    let demanded = request.tools.demanded();
    let is_formed = demanded.is_some() || settings.grammar.is_some();
    let special = |token: &str| model.tokenizer.special_token(token);
    let grammar = match demanded {
        Some(demanded) => {
            let family = template.family();
            let grammar = required(family, &demanded, request.tools.parallel, special);
            Some(RequestGrammar::required((grammar, "tools")))
        }
        None if settings.grammar.is_some() => {
            settings.grammar.clone().map(RequestGrammar::required)
        }
        None if request.tools.offered().iter().any(|tool| tool.strict) => {
            let held = held_calls(model, template, &request.tools);
            if held.is_none() {
                ignored.add("tools.strict");
            }
            held
        }
        None => None,
    };
    let choices = settings.choices;
    let mut readers = Vec::new();
    // A completion constrained to another format is not a call, even if it looks like one.
    if !request.tools.offered().is_empty() && settings.grammar.is_none() {
        let offered = request.tools.offered().iter();
        let names: BTreeSet<String> = offered.map(|tool| tool.name.clone()).collect();
        let reader = || ToolReader::new(template.family(), names.clone(), request.tools.parallel);
        readers.resize_with(choices, reader);
    }
    let mut thoughts = Vec::new();
    // A constrained completion begins with its format, without reasoning.
    if !is_formed {
        let reader = || ReasoningReader::new(knows_reasoning, &text);
        thoughts = std::iter::repeat_with(reader)
            .take(choices)
            .flatten()
            .collect();
    }
    let parts = Parts {
        readers,
        thoughts,
        ignored,
    };
    let of = (ready, adapter);
    prepare(of, Route::Chat, vec![prompt], settings, grammar, parts)
}

/// Puts the images of a request into its prompt. They are decoded once the prompt is known to fit.
fn with_images(
    model: &LoadedModel,
    tokens: Vec<u32>,
    encoded: EncodedImages,
    settings: &Settings,
) -> Result<Prompt, ApiError> {
    let (tokens, images) = match &model.vision {
        Some(vision) => {
            let (tokens, undecoded) = vision.place(tokens, encoded)?;
            room(model, &tokens, Route::Chat, settings)?;
            (tokens, vision.decode(undecoded)?)
        }
        None => (tokens, PromptImages::default()),
    };
    Ok(Prompt {
        tokens,
        images,
        echo: None,
    })
}

/// A conversation whose only message is the text that the model encodes.
fn translate(ready: &DecoderService, request: ChatRequest) -> Result<PreparedRequest, ApiError> {
    let model = &ready.model;
    let mut ignored = request.ignored;
    let settings = &request.settings;
    let adapter = called(ready, settings.model.as_deref())?;
    if request.tools.demanded().is_some() {
        return Err(ApiError::field(
            "tool_choice",
            "`tool_choice` requires a call, but this model has no chat template; use a model that was trained to call tools",
        ));
    }
    if !request.tools.list.is_empty() {
        ignored.add("tools");
    }
    for name in request.switches.without_effect(|_| false) {
        ignored.add(name);
    }
    let source = source_of(&request.messages)?;
    check_length(model, source, Route::Chat)?;
    let prompt = Prompt {
        tokens: model.tokenizer.encode(source, true)?,
        images: PromptImages::default(),
        echo: None,
    };
    let grammar = settings.grammar.clone().map(RequestGrammar::required);
    let parts = Parts {
        ignored,
        ..Parts::default()
    };
    let of = (ready, adapter);
    prepare(of, Route::Chat, vec![prompt], settings, grammar, parts)
}

/// A grammar that makes every call match its tool's schema. `None` if the calls of the model's family cannot be distinguished from
/// other text.
fn held_calls(
    model: &LoadedModel,
    template: &ChatTemplate,
    tools: &Tools,
) -> Option<RequestGrammar> {
    let offered: Vec<&Tool> = tools.offered().iter().collect();
    let special = |token: &str| model.tokenizer.special_token(token);
    let grammar = tools::offered(template.family(), &offered, tools.parallel, special)?;
    Some(RequestGrammar {
        grammar,
        param: "tools",
        is_required: false,
    })
}

/// Handles `POST /v1/completions`.
pub(crate) fn complete(ready: &DecoderService, body: &[u8]) -> Result<PreparedRequest, ApiError> {
    let model = &ready.model;
    let request = CompletionRequest::parse(body, &model.sampling_defaults)?;
    let adapter = called(ready, request.settings.model.as_deref())?;
    if request.echo && model.generator.encodes_at_most.is_some() {
        return Err(ApiError::field(
            "echo",
            "`echo` must be false for this model: its response is a separate text and does not continue the prompt",
        ));
    }
    let prompts = request
        .prompts
        .into_iter()
        .map(|prompt| prompt_of(model, prompt, request.echo))
        .collect::<Result<Vec<_>, _>>()?;
    let settings = &request.settings;
    let grammar = settings.grammar.clone().map(RequestGrammar::required);
    prepare(
        (ready, adapter),
        Route::Completion,
        prompts,
        settings,
        grammar,
        Parts::default(),
    )
}

fn prompt_of(model: &LoadedModel, prompt: PromptInput, echo: bool) -> Result<Prompt, ApiError> {
    let tokenizer = &model.tokenizer;
    let (tokens, text) = match prompt {
        PromptInput::Text(text) => {
            check_length(model, &text, Route::Completion)?;
            (tokenizer.encode(&text, true)?, echo.then_some(text))
        }
        PromptInput::Tokens(tokens) => {
            check_tokens(&tokens, tokenizer.vocabulary, "prompt")?;
            let context = model.generator.context_tokens;
            if tokens.len() >= context {
                return Err(too_long(context, &tokens.len().to_string(), "prompt"));
            }
            let text = if echo {
                // Without special tokens, as in completions.
                Some(tokenizer.decode(&tokens)?)
            } else {
                None
            };
            (tokens, text)
        }
    };
    Ok(Prompt {
        tokens,
        images: PromptImages::default(),
        echo: text.map(Arc::from),
    })
}

/// # Errors
/// 400 with the first id outside the vocabulary.
pub(crate) fn check_tokens(tokens: &[u32], vocabulary: usize, param: &str) -> Result<(), ApiError> {
    match tokens.iter().find(|token| **token as usize >= vocabulary) {
        None => Ok(()),
        Some(token) => Err(ApiError::field(
            param,
            format!(
                "`{param}` has the token id {token}; this model's vocabulary has {vocabulary} tokens, from 0 to {}",
                vocabulary - 1
            ),
        )),
    }
}

/// Returns the requested adapter, or `None` for the model itself.
///
/// # Errors
/// 404 if `model` names neither the model nor a loaded adapter.
pub(crate) fn called(
    ready: &DecoderService,
    model: Option<&str>,
) -> Result<Option<Arc<Adapter>>, ApiError> {
    let Some(name) = model.filter(|name| *name != ready.model_name) else {
        return Ok(None);
    };
    match ready.adapters.get(name) {
        None => {
            let message = format!(
                "this engine serves the model `{}` and its loaded adapters; `{name}` is not among them",
                ready.model_name
            );
            Err(ApiError {
                param: Some("model".to_owned()),
                ..ApiError::with_status(StatusCode::NOT_FOUND, "model_not_found", message)
            })
        }
        adapter => Ok(adapter),
    }
}

fn prepare(
    (ready, adapter): (&DecoderService, Option<Arc<Adapter>>),
    route: Route,
    prompts: Vec<Prompt>,
    settings: &Settings,
    grammar: Option<RequestGrammar>,
    parts: Parts,
) -> Result<PreparedRequest, ApiError> {
    let model = &ready.model;
    let vocabulary = model.tokenizer.vocabulary;
    let biased: Vec<u32> = settings.sampling.logit_bias.keys().copied().collect();
    check_tokens(&biased, vocabulary, "logit_bias")?;
    let stops: Vec<u32> = settings.ending.stop_tokens.concat();
    check_tokens(&stops, vocabulary, "stop_token_ids")?;
    if !model.generator.is_paged && settings.strategy != Strategy::Sampling {
        return Err(ApiError::field(
            "decoding_strategy",
            "`decoding_strategy` must be \"greedy\" or \"multinomial\" for this model: the engine computes its family one sequence at a time, without searches",
        ));
    }
    let is_search = matches!(settings.strategy, Strategy::Beams(_));
    // A single search finds all choices of its prompt.
    let (runs, responses) = if is_search {
        (1, settings.choices)
    } else {
        (settings.best_of, 1)
    };
    let prompt_tokens = prompts.iter().map(|prompt| prompt.tokens.len()).sum();
    let mut requests = Vec::new();
    for prompt in prompts {
        let max_tokens = room(model, &prompt.tokens, route, settings)?;
        let tokens: Arc<[u32]> = prompt.tokens.into();
        for run in 0..runs {
            let mut sampling = settings.sampling.clone();
            // Choices of a seeded request differ from each other, but are reproducible.
            sampling.seed = sampling.seed.map(|seed| seed.wrapping_add(run as u64));
            requests.push(GenerationRequest {
                prompt: Arc::clone(&tokens),
                images: prompt.images.clone(),
                adapter: adapter.clone(),
                max_tokens,
                ending: settings.ending.clone(),
                sampling,
                strategy: settings.strategy,
                scores: Scores {
                    shown: settings.logprobs,
                    summed: settings.best_of > settings.choices,
                },
                echo: prompt.echo.clone(),
                constraint: None,
                responses,
                continues_prompt: model.generator.encodes_at_most.is_none(),
            });
        }
    }
    let shape = ResponseOptions {
        stream: settings.stream,
        shows_scores: settings.logprobs.is_some(),
        computed: settings.best_of,
        returned: settings.choices,
        readers: parts.readers,
        thoughts: parts.thoughts,
        ignored: parts.ignored,
        continuous_usage: settings.continuous_usage,
        prompt_tokens,
    };
    let name = adapter.map(|adapter| adapter.name.clone());
    let name = name.as_deref().unwrap_or(&ready.model_name);
    let envelope = Envelope::new(route, name, settings.include_usage);
    Ok(PreparedRequest {
        requests,
        envelope,
        shape,
        grammar,
    })
}
