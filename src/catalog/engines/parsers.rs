//! The forms in which models write tool calls and reasoning, as a chat template shows them, and an engine's words for the
//! parsers of these forms. It knows no engine and reads no file.

/// How a model writes a call of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolForm {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen 2.5 and 3.
    Hermes,
    /// `<tool_call><function=NAME><parameter=…>`: Qwen3-Coder, Qwen 3.5.
    QwenCoder,
    /// `<tool_call>NAME<arg_key>…`: GLM 4.5.
    Glm,
    /// `{"name": …, "parameters": …}`, alone or after `<|python_tag|>`: Llama 3.
    Llama3,
    /// `[TOOL_CALLS]`: Mistral.
    Mistral,
    /// Calls between marks of their own, with JSON in a code fence: DeepSeek V3 and R1.
    DeepSeekV3,
    /// The same without a fence.
    DeepSeekV31,
    KimiK2,
    MiniMaxM2,
    /// Channels and recipients: gpt-oss.
    Harmony,
}

impl ToolForm {
    pub const ALL: [ToolForm; 10] = [
        ToolForm::Hermes,
        ToolForm::QwenCoder,
        ToolForm::Glm,
        ToolForm::Llama3,
        ToolForm::Mistral,
        ToolForm::DeepSeekV3,
        ToolForm::DeepSeekV31,
        ToolForm::KimiK2,
        ToolForm::MiniMaxM2,
        ToolForm::Harmony,
    ];
}

/// How a model tells its reasoning apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkForm {
    /// Between `<think>` and `</think>`, unless `enable_thinking` is false.
    Switched,
    /// The same, and only when `thinking` is true.
    OnWish,
    /// Always, and the prompt opens it.
    Always,
    /// GLM 4.5's.
    Glm,
    Harmony,
}

impl ThinkForm {
    pub const ALL: [ThinkForm; 5] = [
        ThinkForm::Switched,
        ThinkForm::OnWish,
        ThinkForm::Always,
        ThinkForm::Glm,
        ThinkForm::Harmony,
    ];
}

/// What a chat template says of the model that it belongs to. `None` is not known, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateForms {
    pub tools: Option<ToolForm>,
    pub thinks: Option<ThinkForm>,
}

impl TemplateForms {
    pub fn of(template: &str) -> TemplateForms {
        let has = |text: &str| template.contains(text);
        let tools = if has("<|channel|>") && has("to=functions") {
            Some(ToolForm::Harmony)
        } else if has("<minimax:tool_call>") {
            Some(ToolForm::MiniMaxM2)
        } else if has("<|tool_calls_section_begin|>") {
            Some(ToolForm::KimiK2)
        } else if has("<｜tool▁calls▁begin｜>") {
            let fenced = has("```json");
            Some([ToolForm::DeepSeekV31, ToolForm::DeepSeekV3][usize::from(fenced)])
        } else if has("<tool_call>") && has("<arg_key>") {
            Some(ToolForm::Glm)
        } else if has("<tool_call>") && has("<function=") {
            Some(ToolForm::QwenCoder)
        } else if has("<tool_call>") && has("arguments") {
            Some(ToolForm::Hermes)
        } else if has("[TOOL_CALLS]") {
            Some(ToolForm::Mistral)
        } else if has("<|python_tag|>") || (has("ipython") && has("\"parameters\"")) {
            Some(ToolForm::Llama3)
        } else {
            None
        };
        // A template also cuts old reasoning out of a conversation: only what begins an answer says that this model
        // reasons now.
        let answer = template.rsplit_once("add_generation_prompt");
        let opens = answer.is_some_and(|(_, after)| after.contains("<think>"));
        let thinks = if tools == Some(ToolForm::Harmony) {
            Some(ThinkForm::Harmony)
        } else if !opens {
            None
        } else if tools == Some(ToolForm::Glm) {
            Some(ThinkForm::Glm)
        } else if has("enable_thinking") {
            Some(ThinkForm::Switched)
        } else if tools == Some(ToolForm::DeepSeekV31) {
            Some(ThinkForm::OnWish)
        } else {
            Some(ThinkForm::Always)
        };
        TemplateForms { tools, thinks }
    }
}

/// An engine's words for forms.
#[derive(Clone, Copy, Debug)]
pub struct ParserNames {
    /// The key of a switch without which calls that the model decides on are refused.
    pub tools_switch: Option<&'static str>,
    pub tools: fn(ToolForm) -> &'static str,
    pub reasoning: fn(ThinkForm) -> &'static str,
}

/// A parser that the pool chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenParser {
    pub key: &'static str,
    pub word: &'static str,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const QWEN3: &str = "{%- if tools %}<tool_call>{\"name\": n, \"arguments\": a}</tool_call>{% endif %}{%- if add_generation_prompt %}<|im_start|>assistant{%- if enable_thinking is false %}<think>\n\n</think>{% endif %}{% endif %}";

    #[test]
    fn a_template_says_how_its_model_writes_calls_and_reasoning() {
        let forms = |template| {
            let forms = TemplateForms::of(template);
            (forms.tools, forms.thinks)
        };
        for (template, tools, thinks) in [
            ("{{ message.content }}", None, None),
            (QWEN3, Some(ToolForm::Hermes), Some(ThinkForm::Switched)),
            (
                "<tool_call>{\"name\", \"arguments\"} content.split('</think>') add_generation_prompt <|im_start|>assistant",
                Some(ToolForm::Hermes),
                None,
            ),
            (
                "<tool_call><function=x><parameter=y> add_generation_prompt assistant",
                Some(ToolForm::QwenCoder),
                None,
            ),
            (
                "<tool_call>{name}<arg_key> add_generation_prompt enable_thinking <think></think>",
                Some(ToolForm::Glm),
                Some(ThinkForm::Glm),
            ),
            ("[TOOL_CALLS] [", Some(ToolForm::Mistral), None),
            ("<|python_tag|>", Some(ToolForm::Llama3), None),
            (
                "Environment: ipython {\"name\": n, \"parameters\": d}",
                Some(ToolForm::Llama3),
                None,
            ),
            (
                "<｜tool▁calls▁begin｜> ```json add_generation_prompt <think>",
                Some(ToolForm::DeepSeekV3),
                Some(ThinkForm::Always),
            ),
            (
                "<｜tool▁calls▁begin｜> add_generation_prompt if thinking <think>",
                Some(ToolForm::DeepSeekV31),
                Some(ThinkForm::OnWish),
            ),
            (
                "<|channel|>commentary to=functions",
                Some(ToolForm::Harmony),
                Some(ThinkForm::Harmony),
            ),
        ] {
            assert_eq!(forms(template), (tools, thinks), "{template}");
        }
    }
}
