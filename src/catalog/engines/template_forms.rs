//! Reads the formats in the chat template of an engine's model: the template in `engine_kwargs`, or else the model's own. Blocking.

use std::path::Path;

use crate::engines::{ServerRecipe, TemplateForms};

impl ServerRecipe {
    /// Returns the formats; nothing is known about a model that is not on this machine.
    pub fn template_forms(&self) -> TemplateForms {
        if self.engine.parsers.is_none() {
            return TemplateForms::default();
        }
        let template = match self.flags.value("chat_template") {
            // Engines accept a template itself instead of a file name.
            Some(text) if text.contains(['{', '\n']) => Some(text.to_owned()),
            Some(path) => {
                let folder = self.working_dir.as_deref().unwrap_or(Path::new(""));
                std::fs::read_to_string(folder.join(path)).ok()
            }
            None if self.is_local => model_files::chat_template(Path::new(&self.model)),
            None => None,
        };
        template.map_or_else(TemplateForms::default, |text| {
            TemplateForms::from_template(&text)
        })
    }

    /// Returns false if the engine refuses optional tools because it runs without a parser for calls. Returns true while the
    /// weights are not yet fetched. Blocking.
    pub fn may_call_tools(&self) -> bool {
        if !self.refuses_tools_without_parser() {
            return true;
        }
        let waits = self.is_local && !Path::new(&self.model).exists();
        waits || self.has_tool_parser(self.template_forms())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_separate_template_file_wins_and_otherwise_the_tool_template_is_chosen() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        assert_eq!(model_files::chat_template(folder.path()), None);
        write("tokenizer_config.json", "{\"chat_template\": 3}");
        assert_eq!(model_files::chat_template(folder.path()), None);
        write("tokenizer_config.json", "{\"chat_template\": \"plain\"}");
        assert_eq!(
            model_files::chat_template(folder.path()).as_deref(),
            Some("plain")
        );
        write(
            "tokenizer_config.json",
            r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#,
        );
        assert_eq!(
            model_files::chat_template(folder.path()).as_deref(),
            Some("t")
        );
        write("chat_template.jinja", "own");
        assert_eq!(
            model_files::chat_template(folder.path()).as_deref(),
            Some("own")
        );
    }
}
