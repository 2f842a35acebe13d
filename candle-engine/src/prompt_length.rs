//! Limits on the length of a prompt: the context, the cache, and the option for inputs.

use crate::api::Settings;
use crate::api_error::ApiError;
use crate::batch::response_room;
use crate::decoding::Strategy;
use crate::loading::LoadedModel;
use crate::response_json::Route;
use crate::step::PAGE_TOKENS;

/// Rejects an overlong text before tokenizing it, which would take many times its memory.
///
/// # Errors
/// 400 with the limit.
pub(crate) fn check_length(model: &LoadedModel, text: &str, route: Route) -> Result<(), ApiError> {
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

/// The error for a prompt that fills the context.
pub(crate) fn too_long(context: usize, used: &str, param: &str) -> ApiError {
    // Clients search for the words "maximum context length is N tokens", and shorten the conversation.
    let message = format!(
        "the prompt has {used} tokens; this model's maximum context length is {context} tokens, for prompt and answer together: shorten the prompt"
    );
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field(param, message)
    }
}

fn too_much_input(most: usize, used: &str, param: &str) -> ApiError {
    let message = format!(
        "the prompt has {used} tokens; this model's maximum context length is {most} tokens for a prompt (max_input_tokens): shorten the prompt"
    );
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field(param, message)
    }
}

fn too_much_source(most: usize, used: usize, param: &str) -> ApiError {
    let message = format!(
        "the text has {used} tokens; this model's maximum context length is {most} tokens for the text that it reads: send it in parts"
    );
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field(param, message)
    }
}

/// Maximum number of tokens in the completion of `prompt`.
///
/// # Errors
/// 400 with the numbers if the prompt is empty, or leaves no room.
pub(crate) fn room(
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
    let encodes_at_most = model.generator.encodes_at_most;
    if let Some(most) = encodes_at_most.filter(|most| used > *most) {
        return Err(too_much_source(most, used, param));
    }
    let sequences = match settings.strategy {
        Strategy::Sampling | Strategy::Contrastive(_) => 1,
        // A request has the cache of one context: the prompt once, plus the completion of each beam.
        Strategy::Beams(beams) => beams.beams,
    };
    let pages = response_room(settings.strategy, model.generator.pages, used);
    let left = ((context - used) / sequences)
        .min(pages)
        .min(encodes_at_most.unwrap_or(usize::MAX));
    if left == 0 {
        let beside = match settings.strategy {
            Strategy::Sampling => "a completion".to_owned(),
            Strategy::Beams(beams) => format!("{} beams", beams.beams),
            Strategy::Contrastive(search) => format!("{} candidates", search.candidates),
        };
        let message = format!(
            "the prompt has {used} tokens; this model's maximum context length is {context} tokens, which together with its cache of {} leaves no room for {beside}: shorten the prompt",
            model.generator.pages * PAGE_TOKENS
        );
        return Err(ApiError {
            code: Some("context_length_exceeded"),
            ..ApiError::field(param, message)
        });
    }
    Ok(settings.max_tokens.unwrap_or(usize::MAX).min(left))
}
