//! Owns the list of the families that are known by the architecture in `config.json`, and the values that their fields have
//! where the file leaves them out. Never reads a file.
//!
//! The defaults are those of the configuration classes of `transformers` 5.

/// A family of decoders; which of them share what is said where the description is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Llama,
    Mistral,
    Mixtral,
    Qwen2,
    Qwen2Moe,
    Qwen3,
    Qwen3Moe,
    Gemma,
    Gemma2,
    Gemma3,
    Phi3,
    SmolLm3,
    Olmo2,
    Granite,
    DeepseekV2,
    DeepseekV3,
}

/// What a field is where `config.json` does not say it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub vocabulary: usize,
    pub hidden: usize,
    pub width: usize,
    pub blocks: usize,
    pub heads: usize,
    /// `None` is as many as `heads`.
    pub key_value_heads: Option<usize>,
    /// `None` is `hidden / heads`.
    pub key_width: Option<usize>,
    pub context_tokens: usize,
    pub epsilon: f64,
    pub theta: f64,
    pub ties_head: bool,
    pub window: Option<usize>,
}

const LLAMA: Defaults = Defaults {
    vocabulary: 32_000,
    hidden: 4096,
    width: 11_008,
    blocks: 32,
    heads: 32,
    key_value_heads: None,
    key_width: None,
    context_tokens: 2048,
    epsilon: 1e-6,
    theta: 10_000.0,
    ties_head: false,
    window: None,
};

const QWEN: Defaults = Defaults {
    vocabulary: 151_936,
    width: 22_016,
    key_value_heads: Some(32),
    context_tokens: 32_768,
    window: Some(4096),
    ..LLAMA
};

const GEMMA: Defaults = Defaults {
    vocabulary: 256_000,
    hidden: 2304,
    width: 9216,
    blocks: 26,
    heads: 8,
    key_value_heads: Some(4),
    key_width: Some(256),
    context_tokens: 8192,
    ties_head: true,
    window: Some(4096),
    ..LLAMA
};

/// How the architectures of models end that tell classes of texts apart, of which a reranker has one.
pub(crate) const SCORING: &str = "ForSequenceClassification";

impl Family {
    /// Each architecture that a `config.json` may name, and the family that it is of.
    pub const KNOWN: [(&'static str, Self); 18] = [
        ("LlamaForCausalLM", Self::Llama),
        ("MistralForCausalLM", Self::Mistral),
        ("Mistral3ForConditionalGeneration", Self::Mistral),
        ("MixtralForCausalLM", Self::Mixtral),
        ("Qwen2ForCausalLM", Self::Qwen2),
        ("Qwen2MoeForCausalLM", Self::Qwen2Moe),
        ("Qwen3ForCausalLM", Self::Qwen3),
        ("Qwen3MoeForCausalLM", Self::Qwen3Moe),
        ("GemmaForCausalLM", Self::Gemma),
        ("Gemma2ForCausalLM", Self::Gemma2),
        ("Gemma3ForCausalLM", Self::Gemma3),
        ("Gemma3ForConditionalGeneration", Self::Gemma3),
        ("Phi3ForCausalLM", Self::Phi3),
        ("SmolLM3ForCausalLM", Self::SmolLm3),
        ("Olmo2ForCausalLM", Self::Olmo2),
        ("GraniteForCausalLM", Self::Granite),
        ("DeepseekV2ForCausalLM", Self::DeepseekV2),
        ("DeepseekV3ForCausalLM", Self::DeepseekV3),
    ];

    /// The family of an architecture, and whether it has a head for texts: `Qwen3Model` is `Qwen3ForCausalLM` without one, as
    /// models that embed texts are stored, and `Qwen3ForSequenceClassification` has one that scores.
    pub fn of(architecture: &str) -> Option<(Self, bool)> {
        let known = |name: &str| Self::KNOWN.iter().find(|(known, _)| *known == name);
        if let Some((_, family)) = known(architecture) {
            return Some((*family, true));
        }
        let stem = match architecture.strip_suffix(SCORING) {
            Some(stem) => stem,
            None => architecture.strip_suffix("Model")?.trim_end_matches("Text"),
        };
        known(&format!("{stem}ForCausalLM")).map(|(_, family)| (*family, false))
    }

    pub(super) fn defaults(self) -> Defaults {
        match self {
            Self::Llama => LLAMA,
            Self::Mistral => Defaults {
                width: 14_336,
                key_value_heads: Some(8),
                context_tokens: 4096 * 32,
                window: Some(4096),
                ..LLAMA
            },
            Self::Mixtral => Defaults {
                width: 14_336,
                key_value_heads: Some(8),
                context_tokens: 4096 * 32,
                epsilon: 1e-5,
                theta: 1e6,
                ..LLAMA
            },
            Self::Qwen2 => QWEN,
            Self::Qwen3 => Defaults {
                key_width: Some(128),
                ..QWEN
            },
            Self::Qwen2Moe => Defaults {
                hidden: 2048,
                width: 5632,
                blocks: 24,
                heads: 16,
                key_value_heads: Some(16),
                ..QWEN
            },
            Self::Qwen3Moe => Defaults {
                hidden: 2048,
                width: 6144,
                blocks: 24,
                key_value_heads: Some(4),
                ..QWEN
            },
            Self::Gemma => Defaults {
                hidden: 3072,
                width: 24_576,
                blocks: 28,
                heads: 16,
                key_value_heads: Some(16),
                window: None,
                ..GEMMA
            },
            Self::Gemma2 => GEMMA,
            Self::Gemma3 => Defaults {
                vocabulary: 262_208,
                context_tokens: 131_072,
                ..GEMMA
            },
            Self::Phi3 => Defaults {
                vocabulary: 32_064,
                hidden: 3072,
                width: 8192,
                context_tokens: 4096,
                epsilon: 1e-5,
                ..LLAMA
            },
            Self::SmolLm3 => Defaults {
                vocabulary: 128_256,
                hidden: 2048,
                blocks: 36,
                heads: 16,
                key_value_heads: Some(4),
                context_tokens: 32_768,
                ties_head: true,
                ..LLAMA
            },
            Self::Olmo2 => Defaults {
                vocabulary: 50_304,
                epsilon: 1e-5,
                ..LLAMA
            },
            Self::Granite => LLAMA,
            Self::DeepseekV2 => Defaults {
                vocabulary: 102_400,
                ..LLAMA
            },
            Self::DeepseekV3 => Defaults {
                vocabulary: 129_280,
                hidden: 7168,
                width: 18_432,
                blocks: 61,
                heads: 128,
                key_value_heads: Some(128),
                context_tokens: 4096,
                ..LLAMA
            },
        }
    }
}
