//! The request fields that the embedded engine supports in addition to OpenAI's. Shared by the engine, which reads them, and the
//! catalogue, which decides which fields to pass on.

/// Fields of chat completions and text completions.
pub const GENERATING: &[&str] = &[
    "chat_template_kwargs",
    "decoding_strategy",
    "early_stopping",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "length_penalty",
    "min_p",
    "min_tokens",
    "num_beams",
    "penalty_alpha",
    "repetition_penalty",
    "response_format",
    "stop_token_ids",
    "structured_outputs",
    "top_k",
    "typical_p",
];

/// Fields of embeddings, rankings and scores.
pub const POOLING: &[&str] = &[
    "activation",
    "add_special_tokens",
    "instruction",
    "normalize",
    "prompt_name",
    "raw_scores",
    "return_text",
    "texts",
    "truncate",
    "truncate_prompt_tokens",
    "truncation_direction",
    "use_activation",
];
