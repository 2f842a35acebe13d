//! The values of `--tool-call-parser` and `--reasoning-parser` for each engine.

use super::parsers::{ParserNames, ThinkForm, ToolForm};

pub(super) const VLLM: ParserNames = ParserNames {
    tools_switch: Some("enable_auto_tool_choice"),
    tools: |form| match form {
        ToolForm::Hermes => "hermes",
        ToolForm::QwenCoder => "qwen3_coder",
        ToolForm::Glm => "glm45",
        ToolForm::Llama3 => "llama3_json",
        ToolForm::Mistral => "mistral",
        ToolForm::DeepSeekV3 => "deepseek_v3",
        ToolForm::DeepSeekV31 => "deepseek_v31",
        ToolForm::KimiK2 => "kimi_k2",
        ToolForm::MiniMaxM2 => "minimax_m2",
        ToolForm::Harmony => "openai",
    },
    reasoning: |form| match form {
        ThinkForm::Switched => "qwen3",
        ThinkForm::OnWish => "deepseek_v3",
        ThinkForm::Always => "deepseek_r1",
        ThinkForm::Glm => "glm45",
        ThinkForm::Harmony => "openai_gptoss",
    },
};

pub(super) const SGLANG: ParserNames = ParserNames {
    tools_switch: None,
    tools: |form| match form {
        ToolForm::Hermes => "qwen25",
        ToolForm::QwenCoder => "qwen3_coder",
        ToolForm::Glm => "glm45",
        ToolForm::Llama3 => "llama3",
        ToolForm::Mistral => "mistral",
        ToolForm::DeepSeekV3 => "deepseekv3",
        ToolForm::DeepSeekV31 => "deepseekv31",
        ToolForm::KimiK2 => "kimi_k2",
        ToolForm::MiniMaxM2 => "minimax-m2",
        ToolForm::Harmony => "gpt-oss",
    },
    reasoning: |form| match form {
        ThinkForm::Switched => "qwen3",
        ThinkForm::OnWish => "deepseek-v3",
        ThinkForm::Always => "deepseek-r1",
        ThinkForm::Glm => "glm45",
        ThinkForm::Harmony => "gpt-oss",
    },
};
