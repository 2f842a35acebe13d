//! The request fields passed to each engine: OpenAI's own, and the engine's documented extensions. Fields that would let a client
//! set templates, or pass files, addresses or tensors, are on no list. Reads no requests.

use std::fmt;

use model_files::request_fields as candle;

use crate::engines::ENGINES;
use crate::recipes::Recipe;

/// The kind of a request to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Chat,
    Completion,
    Embeddings,
    Ranks,
    Images,
    /// llama.cpp's `/infill` and `/completion`.
    Infill,
}

impl Ask {
    /// Returns true if engines generate text for it.
    fn generates(self) -> bool {
        matches!(self, Ask::Chat | Ask::Completion | Ask::Infill)
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ask::Chat => "chat completions",
            Ask::Completion => "completions",
            Ask::Embeddings => "embeddings",
            Ask::Ranks => "ranks and scores",
            Ask::Images => "images",
            Ask::Infill => "infilling and llama.cpp's completions",
        })
    }
}

/// Fields of both generating routes.
const GENERATING: &[&str] = &[
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_tokens",
    "metadata",
    "model",
    "n",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "user",
];

const CHAT: &[&str] = &[
    "audio",
    "function_call",
    "functions",
    "max_completion_tokens",
    "messages",
    "modalities",
    "parallel_tool_calls",
    "prediction",
    "reasoning_effort",
    "response_format",
    "tool_choice",
    "tools",
    "top_logprobs",
    "verbosity",
    "web_search_options",
];

const COMPLETION: &[&str] = &["best_of", "echo", "prompt", "suffix"];

const EMBEDDINGS: &[&str] = &["dimensions", "encoding_format", "input", "model", "user"];

/// Fields of Cohere, Jina and vLLM.
const RANKS: &[&str] = &[
    "data_1",
    "data_2",
    "documents",
    "items",
    "max_tokens_per_doc",
    "model",
    "queries",
    "query",
    "rank_fields",
    "return_documents",
    "text_1",
    "text_2",
    "top_n",
    "user",
];

/// Fields of OpenAI's image API and of diffusion model servers.
const IMAGES: &[&str] = &[
    "background",
    "cfg_scale",
    "guidance_scale",
    "height",
    "input_fidelity",
    "model",
    "moderation",
    "n",
    "negative_prompt",
    "num_inference_steps",
    "output_compression",
    "output_format",
    "partial_images",
    "prompt",
    "quality",
    "response_format",
    "seed",
    "size",
    "steps",
    "stream",
    "strength",
    "style",
    "true_cfg_scale",
    "user",
    "width",
];

/// llama.cpp's fields in addition to its extensions of OpenAI's requests.
const INFILL: &[&str] = &[
    "cache_prompt",
    "frequency_penalty",
    "input_extra",
    "input_prefix",
    "input_suffix",
    "logit_bias",
    "model",
    "n_indent",
    "n_predict",
    "n_probs",
    "post_sampling_probs",
    "presence_penalty",
    "prompt",
    "response_fields",
    "return_progress",
    "return_tokens",
    "samplers",
    "seed",
    "stop",
    "stream",
    "t_max_predict_ms",
    "t_max_prompt_ms",
    "temperature",
    "timings_per_token",
    "top_p",
];

/// Fields that clients may never set, whatever the model's file says, with the reason.
const NEVER: &[(&str, &str)] = &[
    ("chat_template", "templates can only come with the model"),
    ("custom_logit_processor", "it would run code in the engine"),
    ("custom_params", "it would run code in the engine"),
    ("documents_urls", "nothing is fetched for a request"),
    (
        "guided_decoding_backend",
        "clients cannot choose how an engine computes",
    ),
    ("id_slot", "clients cannot choose where an engine computes"),
    (
        "kv_transfer_params",
        "it passes addresses of machines to the engine",
    ),
    ("logits_processors", "it would run code in the engine"),
    (
        "lora_path",
        "it passes a file name to the engine; adapters have separate model names",
    ),
    ("media_io_kwargs", "it changes how the engine reads media"),
    (
        "mm_processor_kwargs",
        "it changes how the engine reads media",
    ),
    ("n_discard", "it changes the engine's memory"),
    ("prompt_embeds", "tensors are not accepted from clients"),
    (
        "session_params",
        "it gives access to the requests of others",
    ),
    ("tool_prompt", "templates can only come with the model"),
    ("vllm_xargs", "it passes arbitrary data to the engine"),
];

/// Hints of other services to themselves: where a request runs, what it costs, and which parts of the response are shown.
const OF_OTHER_SERVICES: &[&str] = &[
    "cache_control",
    "include_reasoning",
    "models",
    "provider",
    "route",
    "session_id",
    "transforms",
    "usage",
];

/// Returns true for a hint of another service, which no engine needs.
pub fn is_hint_of_another_service(field: &str) -> bool {
    OF_OTHER_SERVICES.contains(&field)
}

impl Recipe {
    /// Returns true if the pool knows the fields that the engine accepts.
    pub fn has_known_fields(&self) -> bool {
        matches!(self, Recipe::Candle(_) | Recipe::Server(_))
    }

    /// Returns true if the field is passed to the engine.
    pub fn takes(&self, ask: Ask, field: &str) -> bool {
        let of_openai: &[&[&str]] = match ask {
            Ask::Chat => &[GENERATING, CHAT],
            Ask::Completion => &[GENERATING, COMPLETION],
            Ask::Embeddings => &[EMBEDDINGS],
            Ask::Ranks => &[RANKS],
            Ask::Images => &[IMAGES],
            Ask::Infill => &[INFILL],
        };
        let generates = ask.generates();
        if of_openai.iter().any(|names| names.contains(&field)) {
            return true;
        }
        match self {
            Recipe::Candle(_) if generates => candle::GENERATING.contains(&field),
            Recipe::Candle(_) => candle::POOLING.contains(&field),
            Recipe::Server(server) if generates => server.engine.extensions.contains(&field),
            Recipe::Server(server) => server.engine.pooling_extensions.contains(&field),
            // The engine behind the endpoint is unknown, so fields of any engine are accepted.
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                ENGINES.iter().any(|engine| {
                    if generates {
                        engine.extensions.contains(&field)
                    } else {
                        engine.pooling_extensions.contains(&field)
                    }
                })
            }
        }
    }

    /// Names for suggestions.
    pub fn known_fields(&self, ask: Ask) -> Vec<&'static str> {
        let mut names = of_openai(ask);
        let generates = ask.generates();
        match self {
            Recipe::Server(server) if generates => names.extend(server.engine.extensions),
            Recipe::Server(server) => names.extend(server.engine.pooling_extensions),
            Recipe::Candle(_) if generates => names.extend(candle::GENERATING),
            Recipe::Candle(_) => names.extend(candle::POOLING),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {}
        }
        names
    }
}

/// Every field that some engine accepts, OpenAI's own and extensions, for the OpenAPI document.
pub fn fields_of_all_engines(ask: Ask) -> Vec<&'static str> {
    let generates = ask.generates();
    let mut names = of_openai(ask);
    for engine in ENGINES {
        names.extend(if generates {
            engine.extensions
        } else {
            engine.pooling_extensions
        });
    }
    if generates {
        names.extend(candle::GENERATING);
    }
    names
}

fn of_openai(ask: Ask) -> Vec<&'static str> {
    match ask {
        Ask::Chat => [GENERATING, CHAT].concat(),
        Ask::Completion => [GENERATING, COMPLETION].concat(),
        Ask::Embeddings => EMBEDDINGS.to_vec(),
        Ask::Ranks => RANKS.to_vec(),
        Ask::Images => IMAGES.to_vec(),
        Ask::Infill => INFILL.to_vec(),
    }
}

/// The reason why clients may not set this field; `None` if they may.
pub fn never(field: &str) -> Option<&'static str> {
    let found = NEVER.iter().find(|(name, _)| *name == field);
    found.map(|(_, why)| *why)
}

/// The only keys accepted in `chat_template_kwargs`, with plain values: other keys could affect how a template is rendered.
pub const TEMPLATE_SWITCHES: [&str; 4] = [
    "enable_thinking",
    "thinking",
    "reasoning_effort",
    "thinking_budget",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_fields_are_on_no_engines_list() {
        for (name, _) in NEVER {
            for engine in ENGINES {
                assert!(!engine.extensions.contains(name), "{} {name}", engine.word);
                assert!(
                    !engine.pooling_extensions.contains(name),
                    "{} {name}",
                    engine.word
                );
            }
            let candle = [candle::GENERATING, candle::POOLING];
            let of_openai = [
                GENERATING, CHAT, COMPLETION, EMBEDDINGS, RANKS, IMAGES, INFILL,
            ];
            for list in of_openai.into_iter().chain(candle) {
                assert!(!list.contains(name), "{name}");
            }
        }
        for name in OF_OTHER_SERVICES {
            assert!(never(name).is_none(), "{name}");
        }
        assert!(never("chat_template").is_some());
        assert_eq!(never("temperature"), None);
    }
}
