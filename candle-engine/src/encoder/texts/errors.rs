//! Refusals of texts.

use crate::api_error::ApiError;

/// Maximum length of a text; longer ones would occupy a core for seconds.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(crate) fn check_text<'a>(text: &'a str, param: &str) -> Result<&'a str, ApiError> {
    if text.is_empty() {
        return Err(empty(param));
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(ApiError::field(
            param,
            format!(
                "`{param}` has {} bytes; at most {TEXT_BYTES_MAX} are allowed",
                text.len()
            ),
        ));
    }
    Ok(text)
}

pub(super) fn empty(param: &str) -> ApiError {
    ApiError::field(param, format!("`{param}` is empty; give it a text"))
}

pub(super) fn no_tokens(param: &str) -> ApiError {
    ApiError::field(param, format!("`{param}` has no tokens; give it a text"))
}

pub(super) fn no_room(most: usize, added: usize) -> ApiError {
    ApiError::field(
        "truncate_prompt_tokens",
        format!("{most} tokens leave no room for a text in addition to {added} special tokens"),
    )
}

pub(super) fn too_long(what: &str, count: usize, most: usize, param: &str) -> ApiError {
    let message = format!(
        "{what} has {count} tokens; this model takes at most {most}; shorten it, or set `truncate` to true"
    );
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field(param, message)
    }
}
