//! The families of models by the way in which they write tool calls.

/// How a model writes a call; found in the text of its chat template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`, one for each call: Hermes, Qwen.
    Hermes,
    /// `{"name": …, "parameters": …}` as the whole answer, sometimes after `<|python_tag|>`: Llama 3.
    Llama,
    /// `[TOOL_CALLS] [{"name": …, "arguments": …}]`: Mistral.
    Mistral,
    /// `{"name": …, "arguments": …}`, or a list of these, as the whole answer.
    Json,
}

impl Family {
    pub fn of(template: &str) -> Self {
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

    /// What stands before a call, wherever it is in the answer.
    pub(super) fn opening(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("<tool_call>"),
            Self::Llama => Some("<|python_tag|>"),
            Self::Mistral => Some("[TOOL_CALLS]"),
            Self::Json => None,
        }
    }

    /// What stands after a call.
    pub(super) fn closing(self) -> Option<&'static str> {
        (self == Self::Hermes).then_some("</tool_call>")
    }

    /// The key under which this family writes arguments.
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
    fn a_family_is_known_by_its_template() {
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
            assert_eq!(Family::of(template), family, "{template}");
        }
    }
}
