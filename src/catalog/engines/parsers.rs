//! The formats in which models write tool calls and reasoning, recognised from the chat template, and the names of an engine's
//! parsers for them. Independent of any engine; reads no files.

/// The format of a tool call.
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
    /// Calls between special tokens, with JSON in a code fence: DeepSeek V3 and R1.
    DeepSeekV3,
    /// The same without a code fence.
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

/// The markup of a model's reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkForm {
    /// Between `<think>` and `</think>`, unless `enable_thinking` is false.
    Switched,
    /// The same, but only if `thinking` is true.
    OnWish,
    /// Always, and the prompt opens the tag.
    Always,
    /// GLM 4.5.
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

/// Formats that a chat template reveals. `None`: unknown or not supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateForms {
    pub tools: Option<ToolForm>,
    pub thinks: Option<ThinkForm>,
}

impl TemplateForms {
    pub fn from_template(template: &str) -> TemplateForms {
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
        // A template also strips old reasoning from a conversation, so only the text that begins a response shows that this model
        // reasons.
        let response = template.rsplit_once("add_generation_prompt");
        let opens = response.is_some_and(|(_, after)| after.contains("<think>"));
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

/// An engine's names for the formats.
#[derive(Clone, Copy, Debug)]
pub struct ParserNames {
    /// The key of the switch that enables calls at the model's own choice; without it the engine refuses them.
    pub tools_switch: Option<&'static str>,
    pub tools: fn(ToolForm) -> &'static str,
    pub reasoning: fn(ThinkForm) -> &'static str,
}

/// A parser chosen by the pool.
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
    fn the_form_of_calls_and_reasoning_is_derived_from_the_template() {
        let forms = |template| {
            let forms = TemplateForms::from_template(template);
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
