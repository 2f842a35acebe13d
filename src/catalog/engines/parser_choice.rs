//! Chooses the engine's parsers for a model's tool calls and reasoning from the chat template, unless the model's file names them.
//! Engines that need no parsers get no flags.

use super::launch::ServerRecipe;
use super::parsers::{ChosenParser, TemplateForms};

/// The keys for parsers, equal in every engine that has parsers.
const TOOLS_KEY: &str = "tool_call_parser";
const REASONING_KEY: &str = "reasoning_parser";
/// The pool chooses, as if the key were absent.
const AUTO: &str = "auto";
/// No parser, whatever the template says.
const NONE: &str = "none";

impl ServerRecipe {
    /// The parsers for a model with this template that its file does not name.
    pub fn chosen_parsers(&self, forms: TemplateForms) -> Vec<ChosenParser> {
        let Some(parsers) = self.engine.parsers else {
            return Vec::new();
        };
        let is_open = |key: &str| self.flags.value(key).is_none_or(|value| value == AUTO);
        let is_off = |key: &str| {
            self.flags
                .value(key)
                .is_some_and(|value| value.starts_with("--no-"))
        };
        let tools = forms
            .tools
            .filter(|_| is_open(TOOLS_KEY) && !parsers.tools_switch.is_some_and(is_off));
        let tools = tools.map(|form| (TOOLS_KEY, (parsers.tools)(form)));
        let thinks = forms.thinks.filter(|_| is_open(REASONING_KEY));
        let thinks = thinks.map(|form| (REASONING_KEY, (parsers.reasoning)(form)));
        let chosen = tools.into_iter().chain(thinks);
        chosen
            .map(|(key, word)| ChosenParser { key, word })
            .collect()
    }

    /// Returns true if the engine, without a parser for calls, refuses tools that the model need not call.
    pub fn refuses_tools_without_parser(&self) -> bool {
        let parsers = self.engine.parsers;
        parsers.is_some_and(|parsers| parsers.tools_switch.is_some())
    }

    /// Returns true if the engine of a model with this template is started with a parser for calls.
    pub fn has_tool_parser(&self, forms: TemplateForms) -> bool {
        let switch = self.engine.parsers.and_then(|parsers| parsers.tools_switch);
        let is_on = |key: &str| {
            let value = self.flags.value(key);
            self.flags.has(key) && value.is_none_or(|value| !value.starts_with("--no-"))
        };
        let chosen = self.chosen_parsers(forms);
        switch.is_some_and(is_on) || chosen.iter().any(|parser| parser.key == TOOLS_KEY)
    }

    /// The arguments for these parsers, with the enabling flag first.
    pub(super) fn parser_arguments(&self, forms: TemplateForms) -> Vec<String> {
        let mut arguments = Vec::new();
        let flags = &self.engine.flags;
        for chosen in self.chosen_parsers(forms) {
            let switch = self.engine.parsers.and_then(|parsers| parsers.tools_switch);
            let switch = switch.filter(|key| chosen.key == TOOLS_KEY && !self.flags.has(key));
            arguments.extend(switch.map(|key| flags.flag(key)));
            arguments.extend([flags.flag(chosen.key), chosen.word.to_owned()]);
        }
        arguments
    }

    /// Returns true if this key of the model's file is meant for the pool and not passed to the engine.
    pub(super) fn is_for_the_pool(&self, key: &str) -> bool {
        let is_parser = self.engine.parsers.is_some() && [TOOLS_KEY, REASONING_KEY].contains(&key);
        let value = self.flags.value(key).filter(|_| is_parser);
        value.is_some_and(|value| value == AUTO || value == NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parsers::tests::QWEN3;
    use super::super::tests_support::{gpus, place, recipe};
    use super::super::{ENGINES, find};
    use super::*;

    fn line(kwargs: &str, engine: &str) -> String {
        let devices = gpus(1, 80);
        let mut place = place(&devices, 40);
        place.template = TemplateForms::from_template(QWEN3);
        let engine = find(engine).expect("an engine");
        let command = recipe(engine, kwargs).command(&place);
        command.expect("a command").argv.join(" ")
    }

    #[test]
    fn tool_and_reasoning_parsers_are_chosen_from_the_template() {
        for kwargs in [
            "{}",
            r#"{"tool_call_parser": "auto", "reasoning-parser": "auto"}"#,
        ] {
            let vllm = line(kwargs, "VLLMEngine");
            assert!(
                vllm.contains(
                    "--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3"
                ),
                "{vllm}"
            );
            let sglang = line(kwargs, "SGLangEngine");
            assert!(
                sglang.contains("--tool-call-parser qwen25 --reasoning-parser qwen3"),
                "{sglang}"
            );
            assert!(!vllm.contains(" auto") && !sglang.contains(" auto"));
        }
    }

    #[test]
    fn parsers_in_the_model_file_take_precedence() {
        let own = line(
            r#"{"tool_call_parser": "xlam", "enable_auto_tool_choice": true, "reasoning_parser": "none"}"#,
            "VLLMEngine",
        );
        assert!(
            own.contains("--tool-call-parser xlam") && !own.contains("hermes"),
            "{own}"
        );
        assert!(!own.contains("reasoning-parser"), "{own}");
        assert_eq!(own.matches("--enable-auto-tool-choice").count(), 1, "{own}");
        let off = line(r#"{"enable_auto_tool_choice": false}"#, "VLLMEngine");
        assert!(!off.contains("tool-call-parser"), "{off}");
        assert!(off.contains("--no-enable-auto-tool-choice"), "{off}");
    }

    #[test]
    fn tools_need_a_parser_where_the_engine_refuses_them_without_one() {
        let engine = |name| find(name).expect("an engine");
        let vllm = |kwargs| recipe(engine("VLLMEngine"), kwargs);
        let (plain, qwen) = (
            TemplateForms::from_template("{{ x }}"),
            TemplateForms::from_template(QWEN3),
        );
        for (kwargs, forms, has) in [
            ("{}", plain, false),
            ("{}", qwen, true),
            (r#"{"tool_call_parser": "none"}"#, qwen, false),
            (r#"{"enable_auto_tool_choice": false}"#, qwen, false),
            (
                r#"{"tool_call_parser": "xlam", "enable_auto_tool_choice": true}"#,
                plain,
                true,
            ),
        ] {
            assert_eq!(vllm(kwargs).has_tool_parser(forms), has, "{kwargs}");
        }
        assert!(vllm("{}").refuses_tools_without_parser());
        let sglang = recipe(engine("SGLangEngine"), "{}");
        assert!(!sglang.refuses_tools_without_parser() && sglang.may_call_tools());
    }

    #[test]
    fn an_engine_with_parsers_accepts_their_flags() {
        for engine in ENGINES {
            let Some(parsers) = engine.parsers else {
                continue;
            };
            let keys = [TOOLS_KEY, REASONING_KEY]
                .into_iter()
                .chain(parsers.tools_switch);
            for key in keys {
                assert!(
                    engine.flags.keys().any(|known| known == key),
                    "{engine:?}: {key}"
                );
            }
        }
    }
}
