//! Finds a model's tokenizer and chat templates, in a folder or a GGUF file.

use super::gguf::GgufVocabulary;
use super::{ModelFiles, read_json};
use crate::error::EngineError;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// A tokenizer, and the texts of its begin and end tokens.
pub(crate) struct TokenizerFile {
    pub tokenizer: Tokenizer,
    /// The file to name in errors.
    pub file: PathBuf,
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
}

/// The chat templates of a model.
pub(crate) struct Templates {
    /// The file to name in errors.
    pub file: PathBuf,
    pub main: String,
    /// A separate template for requests with tools, if the model has one.
    pub with_tools: Option<String>,
}

/// The vocabulary of the texts that Marian's translators read.
const MARIAN_FILE: &str = "source.spm";
const SETTINGS_FILE: &str = "tokenizer_config.json";
/// The chat template of multimodal models, which `transformers` saves with their processor.
const TEMPLATE_FILE: &str = "chat_template.json";
/// The template for requests with tools, for models whose main template is `chat_template.jinja`.
const TOOLS_FILE: &str = "additional_chat_templates/tool_use.jinja";

/// Reads a folder's `tokenizer.json`; also returns its path.
///
/// # Errors
/// If the file is missing or not a tokenizer.
pub(crate) fn read_tokenizer(folder: &Path) -> Result<(Tokenizer, PathBuf), EngineError> {
    let file = folder.join("tokenizer.json");
    if !file.exists() {
        if folder.join(MARIAN_FILE).exists() {
            return Err(EngineError::model(
                &file,
                "the file is missing, and source.spm, target.spm and vocab.json cannot be read in its place",
                "convert them as docs/guides/engines.md shows under Translation",
            ));
        }
        return Err(EngineError::model(
            &file,
            "the file is missing",
            "download it, or save it with transformers' fast tokenizer; vocab.txt and sentencepiece's tokenizer.model alone are not supported",
        ));
    }
    let tokenizer = Tokenizer::from_file(&file).map_err(|error| {
        EngineError::model(
            &file,
            format!("it is not a tokenizer ({error})"),
            "download it again",
        )
    })?;
    Ok((tokenizer, file))
}

impl ModelFiles {
    /// Loads the tokenizer: from the GGUF file, or from `tokenizer.json` with the special tokens of `tokenizer_config.json`.
    ///
    /// # Errors
    /// If a file is missing or invalid.
    pub fn tokenizer(&self) -> Result<TokenizerFile, EngineError> {
        if let Some(vocabulary) = &self.vocabulary {
            return self.tokenizer_of(vocabulary);
        }
        let (tokenizer, file) = read_tokenizer(self.folder())?;
        let settings = read_json(&self.folder().join(SETTINGS_FILE))?.unwrap_or_default();
        Ok(TokenizerFile {
            tokenizer,
            file,
            bos_token: special_token(&settings["bos_token"]),
            eos_token: special_token(&settings["eos_token"]),
        })
    }

    fn tokenizer_of(&self, vocabulary: &GgufVocabulary) -> Result<TokenizerFile, EngineError> {
        let file = self.description();
        let tokenizer = vocabulary.tokenizer().map_err(|problem| {
            EngineError::model(
                file,
                problem,
                "serve another file of the model, or its folder in Hugging Face's form",
            )
        })?;
        let [begin, end] = vocabulary.ends().map(|token| token.map(str::to_owned));
        Ok(TokenizerFile {
            tokenizer,
            file: file.to_owned(),
            bos_token: begin,
            eos_token: end,
        })
    }

    /// Loads the chat templates: from the GGUF file, `chat_template.jinja`, or the field `chat_template` of `chat_template.json` or
    /// `tokenizer_config.json`. The field is a string, or a list of named templates of which `default`, or else the first, is used.
    /// Returns `None` if the model has none.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn templates(&self) -> Result<Option<Templates>, EngineError> {
        if let Some(vocabulary) = &self.vocabulary {
            return Ok(vocabulary.template.clone().map(|main| Templates {
                file: self.description().to_owned(),
                main,
                with_tools: vocabulary.tools_template.clone(),
            }));
        }
        of_folder(self.folder())
    }
}

fn of_folder(folder: &Path) -> Result<Option<Templates>, EngineError> {
    let own_file = folder.join("chat_template.jinja");
    if own_file.exists() {
        let main = std::fs::read_to_string(&own_file)
            .map_err(|error| EngineError::model(&own_file, error, "make it readable UTF-8 text"))?;
        return Ok(Some(Templates {
            file: own_file,
            main,
            with_tools: std::fs::read_to_string(folder.join(TOOLS_FILE)).ok(),
        }));
    }
    for name in [TEMPLATE_FILE, SETTINGS_FILE] {
        let file = folder.join(name);
        let settings = read_json(&file)?.unwrap_or_default();
        let template = &settings["chat_template"];
        if let Some(main) = template_of(template) {
            return Ok(Some(Templates {
                file,
                main,
                with_tools: named(template, "tool_use"),
            }));
        }
    }
    Ok(None)
}

/// A special token is a string or an object with `content`.
fn special_token(value: &Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value["content"].as_str())
        .map(str::to_owned)
}

fn template_of(value: &Value) -> Option<String> {
    let text = |template: &Value| template["template"].as_str().map(str::to_owned);
    match value {
        Value::String(template) => Some(template.clone()),
        Value::Array(templates) => {
            named(value, "default").or_else(|| templates.first().and_then(text))
        }
        _ => None,
    }
}

/// Finds a template by name in a list.
fn named(templates: &Value, name: &str) -> Option<String> {
    let mut templates = templates.as_array()?.iter();
    let template = templates.find(|template| template["name"] == name)?;
    template["template"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_folder_of_marian_without_a_tokenizer_is_refused_with_a_conversion() {
        let folder = tempfile::tempdir().expect("a folder");
        let problem = || match read_tokenizer(folder.path()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(problem().contains("download it"), "{}", problem());
        std::fs::write(folder.path().join(MARIAN_FILE), "").expect("is written");
        assert!(problem().contains("under Translation"), "{}", problem());
    }

    #[test]
    fn special_tokens_are_read_in_both_forms() {
        assert_eq!(special_token(&json!("</s>")), Some("</s>".to_owned()));
        assert_eq!(
            special_token(&json!({"content": "</s>"})),
            Some("</s>".to_owned())
        );
        assert_eq!(special_token(&Value::Null), None);
    }

    #[test]
    fn the_template_is_found_in_every_supported_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("is written");
        };
        let main = || {
            let templates = of_folder(folder.path()).expect("readable");
            templates.map(|templates| (templates.main, templates.with_tools))
        };
        assert_eq!(main(), None);
        write(SETTINGS_FILE, r#"{"chat_template": "settings"}"#);
        assert_eq!(main(), Some(("settings".to_owned(), None)));
        let list = r#"{"chat_template": [{"name": "default", "template": "own"},
            {"name": "tool_use", "template": "tools"}]}"#;
        write(TEMPLATE_FILE, list);
        assert_eq!(main(), Some(("own".to_owned(), Some("tools".to_owned()))));
        write("chat_template.jinja", "jinja");
        assert_eq!(main(), Some(("jinja".to_owned(), None)));
        let further = TOOLS_FILE.rsplit_once('/').expect("in a folder").0;
        std::fs::create_dir(folder.path().join(further)).expect("is made");
        write(TOOLS_FILE, "called");
        assert_eq!(
            main(),
            Some(("jinja".to_owned(), Some("called".to_owned())))
        );
    }

    #[test]
    fn the_default_template_is_chosen_from_several() {
        let list =
            json!([{"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]);
        assert_eq!(template_of(&list), Some("b".to_owned()));
        assert_eq!(
            template_of(&json!([{"name": "rag", "template": "c"}])),
            Some("c".to_owned())
        );
        assert_eq!(template_of(&json!(null)), None);
    }
}
