//! Families of models, by their tool call format.

/// The tool call format of a model, detected in its chat template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>` for each call: Hermes, Qwen.
    Hermes,
    /// `{"name": …, "parameters": …}` as the complete message, sometimes after `<|python_tag|>`: Llama 3.
    Llama,
    /// `[TOOL_CALLS] [{"name": …, "arguments": …}]`: Mistral.
    Mistral,
    /// `{"name": …, "arguments": …}`, or a list of these, as the complete message.
    Json,
}

impl Family {
    pub fn new(template: &str) -> Self {
        let has = |text: &str| template.contains(text);
        if has("<tool_call>") {
            Self::Hermes
        } else if has("[TOOL_CALLS]") {
            Self::Mistral
        } else if has("<|python_tag|>") || (has("ipython") && has("\"parameters\"")) {
            Self::Llama
        } else {
            Self::Json
        }
    }

    /// The marker before a call, anywhere in the message.
    pub(super) fn opening(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("<tool_call>"),
            Self::Llama => Some("<|python_tag|>"),
            Self::Mistral => Some("[TOOL_CALLS]"),
            Self::Json => None,
        }
    }

    /// The marker after a call.
    pub(super) fn closing(self) -> Option<&'static str> {
        (self == Self::Hermes).then_some("</tool_call>")
    }

    /// The key of the arguments.
    pub(super) fn arguments_key(self) -> &'static str {
        match self {
            Self::Llama => "parameters",
            _ => "arguments",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_family_is_recognized_by_its_template() {
        for (template, family) in [
            (
                "return a json object within <tool_call></tool_call>",
                Family::Hermes,
            ),
            ("{{ '[TOOL_CALLS] [' }}", Family::Mistral),
            ("{{ '<|python_tag|>' + tool_call.name }}", Family::Llama),
            (
                "Environment: ipython {\"name\": n, \"parameters\": d}",
                Family::Llama,
            ),
            (
                "{% for tool in tools %}{{ tool }}{% endfor %}",
                Family::Json,
            ),
        ] {
            assert_eq!(Family::new(template), family, "{template}");
        }
    }
}
