//! Default values of the fields, per family of decoders.
//!
//! They match the configuration classes of `transformers` 5.

use model_files::families::DecoderFamily as Family;

/// The values of fields that `config.json` omits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub vocabulary: usize,
    pub hidden: usize,
    pub width: usize,
    pub blocks: usize,
    pub heads: usize,
    /// `None` means equal to `heads`.
    pub key_value_heads: Option<usize>,
    /// `None` means `hidden / heads`.
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

const GPT: Defaults = Defaults {
    epsilon: 1e-5,
    ..LLAMA
};

/// The defaults of a family.
pub(super) fn defaults(family: Family) -> Defaults {
    match family {
        Family::Llama => LLAMA,
        Family::Mistral => Defaults {
            width: 14_336,
            key_value_heads: Some(8),
            context_tokens: 4096 * 32,
            window: Some(4096),
            ..LLAMA
        },
        Family::Mixtral => Defaults {
            width: 14_336,
            key_value_heads: Some(8),
            context_tokens: 4096 * 32,
            epsilon: 1e-5,
            theta: 1e6,
            ..LLAMA
        },
        Family::Qwen2 => QWEN,
        Family::Qwen3 => Defaults {
            key_width: Some(128),
            ..QWEN
        },
        Family::Qwen2Moe => Defaults {
            hidden: 2048,
            width: 5632,
            blocks: 24,
            heads: 16,
            key_value_heads: Some(16),
            ..QWEN
        },
        Family::Qwen3Moe => Defaults {
            hidden: 2048,
            width: 6144,
            blocks: 24,
            key_value_heads: Some(4),
            ..QWEN
        },
        Family::Gemma => Defaults {
            hidden: 3072,
            width: 24_576,
            blocks: 28,
            heads: 16,
            key_value_heads: Some(16),
            window: None,
            ..GEMMA
        },
        Family::Gemma2 => GEMMA,
        Family::Gemma3 => Defaults {
            vocabulary: 262_208,
            context_tokens: 131_072,
            ..GEMMA
        },
        Family::Phi3 => Defaults {
            vocabulary: 32_064,
            hidden: 3072,
            width: 8192,
            context_tokens: 4096,
            epsilon: 1e-5,
            ..LLAMA
        },
        Family::SmolLm3 => Defaults {
            vocabulary: 128_256,
            hidden: 2048,
            blocks: 36,
            heads: 16,
            key_value_heads: Some(4),
            context_tokens: 32_768,
            ties_head: true,
            ..LLAMA
        },
        Family::Olmo2 => Defaults {
            vocabulary: 50_304,
            epsilon: 1e-5,
            ..LLAMA
        },
        Family::Granite => LLAMA,
        Family::DeepseekV2 => Defaults {
            vocabulary: 102_400,
            ..LLAMA
        },
        Family::GptJ => Defaults {
            vocabulary: 50_400,
            width: 4 * 4096,
            blocks: 28,
            heads: 16,
            ..GPT
        },
        Family::GptNeoX => Defaults {
            vocabulary: 50_432,
            hidden: 6144,
            width: 24_576,
            blocks: 44,
            heads: 64,
            ..GPT
        },
        Family::Gpt2 => Defaults {
            vocabulary: 50_257,
            hidden: 768,
            width: 4 * 768,
            blocks: 12,
            heads: 12,
            context_tokens: 1024,
            ties_head: true,
            ..GPT
        },
        Family::DeepseekV3 => Defaults {
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
