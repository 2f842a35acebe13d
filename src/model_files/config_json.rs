//! The keys of `config.json`, the Hugging Face description of a model. Supports the names of several generations.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::FileError;
use super::python_json::without_bare_words;
use super::safetensors::read_text;

const CONFIG_JSON_MAX: u64 = 16 << 20;

/// NVIDIA ModelOpt's description of a quantisation.
const MODELOPT: &str = "hf_quant_config.json";

/// Sections for the language part of multimodal models.
const LANGUAGE_SECTIONS: [&str; 4] = [
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
];

/// The keys of a `config.json`; its language section takes precedence.
pub struct Keys {
    inner: Map<String, Value>,
    outer: Map<String, Value>,
    /// ModelOpt's file next to it, which describes the quantisation.
    modelopt: Option<Value>,
}

impl Keys {
    pub fn read(path: &Path) -> Result<Keys, FileError> {
        let text = read_text(path, CONFIG_JSON_MAX)?;
        let mut keys = Keys::parse(&text).map_err(|problem| FileError::Broken {
            path: path.to_owned(),
            problem,
        })?;
        let beside = read_text(&path.with_file_name(MODELOPT), CONFIG_JSON_MAX).ok();
        let beside = beside.and_then(|text| reading::json::<Value>(&text).ok());
        keys.modelopt = beside.and_then(|mut file| Some(file.get_mut("quantization")?.take()));
        Ok(keys)
    }

    /// The description of the quantisation.
    pub fn quantisation(&self) -> Option<&Value> {
        self.value(&["quantization_config", "compression_config"])
            .or(self.modelopt.as_ref())
    }

    fn parse(text: &str) -> Result<Keys, String> {
        let text = without_bare_words(text);
        let outer: Map<String, Value> = reading::json(&text).map_err(|flaw| flaw.to_string())?;
        let mut inner = Map::new();
        let mut sections = &outer;
        // A thinker section contains another text section.
        while let Some(Value::Object(section)) = LANGUAGE_SECTIONS
            .iter()
            .find_map(|name| sections.get(*name))
        {
            inner.clone_from(section);
            sections = section;
        }
        Ok(Keys {
            inner,
            outer,
            modelopt: None,
        })
    }

    /// The value of the first name that has one.
    pub fn value(&self, names: &[&str]) -> Option<&Value> {
        [&self.inner, &self.outer].into_iter().find_map(|keys| {
            names
                .iter()
                .find_map(|name| keys.get(*name).filter(|value| !value.is_null()))
        })
    }

    /// An integer. Another type of value is an error that names the key.
    pub fn number(&self, names: &[&str]) -> Result<Option<u64>, String> {
        match self.value(names) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(format!(
                    "`{}` is {}, but a whole number is expected",
                    names.join("` or `"),
                    shortened(value)
                )),
            },
        }
    }

    /// A required integer above 0.
    pub fn needed(&self, names: &[&str]) -> Result<u64, String> {
        self.number(names)?
            .filter(|number| *number > 0)
            .ok_or_else(|| format!("`{}` is missing or 0", names[0]))
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        self.value(&[name]).and_then(Value::as_bool)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(&[name]).and_then(Value::as_str)
    }

    pub fn list(&self, name: &str) -> Option<&Vec<Value>> {
        self.value(&[name]).and_then(Value::as_array)
    }

    /// `model_type` of the language part.
    pub fn kind(&self) -> &str {
        self.text("model_type").unwrap_or_default()
    }

    pub fn layers(&self) -> Result<u64, String> {
        self.needed(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])
    }

    pub fn heads(&self) -> Result<u64, String> {
        let names = ["num_attention_heads", "n_head", "n_heads"];
        match self.number(&names)? {
            // Gemma 3's configuration omits values that equal the defaults of its program.
            None if self.kind().starts_with("gemma3") => Ok(8),
            _ => self.needed(&names),
        }
    }

    pub fn hidden(&self) -> Result<u64, String> {
        self.needed(&["hidden_size", "n_embd", "d_model", "dim"])
    }

    /// Size of one head of keys and of values.
    pub fn head_size(&self) -> Result<u64, String> {
        match self.number(&["head_dim", "kv_channels", "attention_head_dim"])? {
            Some(size) if size > 0 => Ok(size),
            _ if self.kind().starts_with("gemma3") => Ok(256),
            _ => Ok(self.hidden()?.div_ceil(self.heads()?)),
        }
    }

    /// Number of key and value heads, equal for all layers.
    pub fn key_value_heads(&self) -> Result<u64, String> {
        let names = [
            "num_key_value_heads",
            "num_kv_heads",
            "multi_query_group_num",
        ];
        if let Some(Value::Array(each)) = self.value(&names) {
            return each
                .iter()
                .filter_map(Value::as_u64)
                .max()
                .ok_or_else(|| format!("`{}` holds no numbers", names[0]));
        }
        // Falcon's own key means a single shared head, except in its newer architecture.
        let is_shared = self.flag("multi_query") == Some(true)
            && self.flag("new_decoder_architecture") != Some(true);
        if is_shared {
            return Ok(self.number(&["multi_query_group_num"])?.unwrap_or(1));
        }
        match self.number(&names)? {
            Some(0) => Err(format!("`{}` is missing or 0", names[0])),
            Some(heads) => Ok(heads),
            None if self.kind().starts_with("gemma3") => Ok(4),
            None => self.heads(),
        }
    }

    /// Key and value heads of each layer, if they differ.
    pub(crate) fn key_value_heads_of_each(&self) -> Option<Vec<u64>> {
        let each = self
            .list("num_key_value_heads")
            .or(self.list("num_kv_heads"))?;
        each.iter().map(Value::as_u64).collect()
    }

    pub(crate) fn context(&self) -> Result<Option<u64>, String> {
        let names = [
            "max_position_embeddings",
            "n_positions",
            "max_sequence_length",
            "max_seq_len",
            "seq_length",
            "n_ctx",
        ];
        match self.number(&names)? {
            None if self.kind().starts_with("gemma3") => Ok(Some(131_072)),
            // Falcon's files have no such key; the second name is that of its first files.
            None if ["falcon", "RefinedWebModel"].contains(&self.kind()) => Ok(Some(2048)),
            context => Ok(context),
        }
    }
}

/// Formats an untrusted value for a message, on at most one line.
pub fn shortened(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(60) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
