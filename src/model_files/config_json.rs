//! Reads from `config.json`, the Hugging Face description of a model, everything that affects the model's memory. Supports the keys
//! of several generations; an unknown architecture is assumed to have plain attention, and the assumption is recorded.

use std::path::Path;

use serde_json::{Map, Value};

use super::architecture::{Architecture, LayerCache, Widths};
use super::error::FileError;
use super::layer_kinds;
use super::python_json::without_bare_words;
use super::safetensors::read_text;

const CONFIG_JSON_MAX: u64 = 16 << 20;

/// NVIDIA ModelOpt's description of a quantisation.
const MODELOPT: &str = "hf_quant_config.json";

/// Architectures without attention.
const RECURRENT: [&str; 4] = ["mamba", "mamba2", "falcon_mamba", "xlstm"];

/// Sections for the language part of multimodal models.
const LANGUAGE_SECTIONS: [&str; 4] = [
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
];

/// Encoders process a complete text in one pass and have no cache.
const ENCODERS: &str = "albert bert camembert clip deberta deberta-v2 distilbert electra ernie esm gte jina_bert \
    modernbert mpnet new nomic_bert roberta siglip xlm-roberta";

/// Architectures whose cache follows from the keys that are read here.
const KNOWN: &str = "afmoe apertus arcee baichuan bamba bitnet bloom chatglm codegen cohere cohere2 dbrx \
    deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5 ernie4_5_moe exaone exaone4 falcon \
    falcon_h1 falcon_mamba gemma gemma2 gemma3 gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neo \
    gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid hunyuan_v1_dense hunyuan_v1_moe \
    internlm2 internlm3 jamba kimi_k2 kimi_k25 kimi_linear lfm2 llama llama4 llama4_text llava \
    RefinedWebModel mamba mamba2 minicpm minimax ministral mistral mistral3 mixtral mpt nemotron nemotron_h olmo olmo2 \
    olmo3 olmoe opt persimmon phi phi3 phimoe qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_moe \
    qwen2_vl qwen2_vl_text qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe \
    qwen3_next qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text seed_oss smollm3 stablelm \
    starcoder2";

fn is_listed(kind: &str, words: &str) -> bool {
    words.split_whitespace().any(|word| word == kind)
}

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
    fn key_value_heads_of_each(&self) -> Option<Vec<u64>> {
        let each = self
            .list("num_key_value_heads")
            .or(self.list("num_kv_heads"))?;
        each.iter().map(Value::as_u64).collect()
    }

    fn context(&self) -> Result<Option<u64>, String> {
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

impl Architecture {
    /// Reads `config.json` of a model's folder.
    pub fn of_folder(folder: &Path) -> Result<Architecture, FileError> {
        Architecture::of_config_json(&folder.join("config.json"))
    }

    /// Reads a file in the format of `config.json`.
    pub fn of_config_json(path: &Path) -> Result<Architecture, FileError> {
        let keys = Keys::read(path)?;
        let mut architecture = Architecture::new(path);
        fill(&keys, &mut architecture).map_err(|problem| FileError::Broken {
            path: path.to_owned(),
            problem,
        })?;
        Ok(architecture)
    }
}

/// `model_type` of Whisper models.
const SPEECH: &str = "whisper";
/// Bytes of a number in the keys and values of a window.
const WINDOW_NUMBER_BYTES: u64 = 4;

/// Whisper's keys have other names. The decoder keeps its text, and keys and values of the window.
fn fill_speech(keys: &Keys, architecture: &mut Architecture) -> Result<(), String> {
    let heads = keys.needed(&["decoder_attention_heads"])?;
    let hidden = keys.hidden()?;
    let layers = keys.needed(&["decoder_layers"])?;
    let encoder_layers = keys.needed(&["encoder_layers"])?;
    let positions = keys.needed(&["max_source_positions"])?;
    let wide = keys.needed(&["encoder_ffn_dim"])?;
    architecture.attention_heads = Some(heads);
    architecture.context = keys.number(&["max_target_positions"])?;
    architecture.name = Some(SPEECH.to_owned());
    architecture.widths = Some(Widths {
        hidden,
        wide: wide.max(keys.needed(&["decoder_ffn_dim"])?),
        queries: hidden,
        vocabulary_size: keys.number(&["vocab_size"])?.unwrap_or(0),
        blocks: layers.saturating_add(encoder_layers),
        expert: 0,
        experts_used: 0,
    });
    let head = hidden.div_ceil(heads);
    let text = LayerCache::Heads {
        heads,
        key_size: head,
        value_size: head,
        window: None,
    };
    architecture.push(layers, text);
    let window = [2, positions, hidden, WINDOW_NUMBER_BYTES];
    let bytes = window.into_iter().fold(1, u64::saturating_mul);
    architecture.push(layers, LayerCache::State { bytes });
    Ok(())
}

fn fill(keys: &Keys, architecture: &mut Architecture) -> Result<(), String> {
    let kind = keys.kind();
    if kind == SPEECH {
        return fill_speech(keys, architecture);
    }
    let is_recurrent = RECURRENT.contains(&kind);
    if !is_recurrent {
        architecture.attention_heads = Some(keys.heads()?);
    }
    architecture.context = keys.context()?;
    if !kind.is_empty() {
        architecture.name = Some(kind.to_owned());
    }
    architecture.widths = widths(keys);
    if is_listed(kind, ENCODERS) && keys.flag("is_decoder") != Some(true) {
        return Ok(());
    }
    if !kind.is_empty() && !is_listed(kind, KNOWN) {
        architecture.guesses.push(format!(
            "the architecture `{}` is unknown; plain attention is assumed",
            shortened(&Value::from(kind))
        ));
    }
    let layers = keys.layers()?;
    if is_recurrent {
        // A state has no limit of tokens.
        architecture.context = architecture
            .context
            .or(Some(layer_kinds::CONTEXT_OF_STATES));
        return match layer_kinds::state_bytes(keys)? {
            Some(bytes) => {
                architecture.push(layers, LayerCache::State { bytes });
                Ok(())
            }
            None => Err(format!(
                "`state_size` is missing, which determines the state of the architecture `{kind}`"
            )),
        };
    }
    let latent = latent(keys)?;
    let (head_size, shared_heads) = match latent {
        Some(_) => (0, 0),
        None => (keys.head_size()?, keys.key_value_heads()?),
    };
    let each = keys.key_value_heads_of_each();
    let state = layer_kinds::state_bytes(keys)?;
    let runs = layer_kinds::layer_kinds(keys, layers, &mut architecture.guesses)?;
    let mut index = 0_u64;
    for (count, kind) in runs {
        let mut attention = kind.attention();
        if kind.has_state() {
            match state {
                Some(bytes) => architecture.push(count, LayerCache::State { bytes }),
                None => {
                    // The cache of attention is larger than any known state.
                    attention = attention.or(Some(None));
                    note_once(
                        architecture,
                        "the state of its layers without attention is unknown; plain attention is assumed, an upper bound",
                    );
                }
            }
        }
        if let Some(window) = attention {
            let group = |heads| match latent {
                Some((numbers, expanded)) => LayerCache::Latent { numbers, expanded },
                None => LayerCache::Heads {
                    heads,
                    key_size: head_size,
                    value_size: head_size,
                    window,
                },
            };
            match &each {
                // The list's length is limited by the file's; runs are cut to the number of layers.
                Some(each) if each.len() as u64 == layers => {
                    let from = usize::try_from(index).unwrap_or(usize::MAX);
                    let here = usize::try_from(count).unwrap_or(usize::MAX);
                    for heads in each.iter().skip(from).take(here) {
                        architecture.push(1, group(*heads));
                    }
                }
                _ => architecture.push(count, group(shared_heads)),
            }
        }
        index = index.saturating_add(count);
    }
    Ok(())
}

/// The widths that are present; errors are reported where a value is needed.
fn widths(keys: &Keys) -> Option<Widths> {
    let number = |names: &[&str]| keys.number(names).ok().flatten();
    let hidden = keys.hidden().ok()?;
    let dense = number(&[
        "intermediate_size",
        "n_inner",
        "ffn_hidden_size",
        "hidden_dim",
    ]);
    let expert = number(&["moe_intermediate_size"]).unwrap_or(0);
    let head = match number(&["qk_nope_head_dim"]).zip(number(&["qk_rope_head_dim"])) {
        Some((plain, turned)) => plain.saturating_add(turned),
        None => keys.head_size().ok()?,
    };
    Some(Widths {
        hidden,
        wide: dense.unwrap_or(hidden.saturating_mul(4)).max(expert),
        queries: keys.heads().ok()?.saturating_mul(head),
        vocabulary_size: number(&["vocab_size"]).unwrap_or(0),
        blocks: keys.layers().ok()?,
        expert,
        experts_used: number(&["num_experts_per_tok", "num_experts_per_token", "moe_top_k"])
            .unwrap_or(0),
    })
}

/// Numbers per token of multi-head latent attention: the compressed keys and values with the positional part (DeepSeek-V2, arXiv
/// 2405.04434, section 2.1.3), and the keys of the indexer in the sparse variant. The second figure is for keys and values stored
/// expanded for each head.
fn latent(keys: &Keys) -> Result<Option<(u64, u64)>, String> {
    let Some(rank) = keys.number(&["kv_lora_rank"])? else {
        return Ok(None);
    };
    let rope = keys.needed(&["qk_rope_head_dim"])?;
    let indexer = keys.number(&["index_head_dim"])?.unwrap_or(0);
    let compressed = rank.saturating_add(rope).saturating_add(indexer);
    let plain = keys.number(&["qk_nope_head_dim"])?.unwrap_or(0);
    let value = keys.number(&["v_head_dim"])?.unwrap_or(0);
    let head = plain.saturating_add(rope).saturating_add(value);
    Ok(Some((compressed, keys.heads()?.saturating_mul(head))))
}

fn note_once(architecture: &mut Architecture, note: &str) {
    if !architecture.guesses.iter().any(|known| known == note) {
        architecture.guesses.push(note.to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speech_model_has_a_cache_of_its_text_and_of_one_window() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = r#"{"model_type": "whisper", "d_model": 384, "encoder_layers": 4, "decoder_layers": 3,
            "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
            "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51865}"#;
        let file = folder.path().join("config.json");
        std::fs::write(&file, config).expect("written");
        let read = Architecture::of_config_json(&file).expect("read");
        assert_eq!((read.context, read.attention_heads), (Some(448), Some(6)));
        let text = LayerCache::Heads {
            heads: 6,
            key_size: 64,
            value_size: 64,
            window: None,
        };
        let bytes = 2 * 1500 * 384 * 4;
        let groups: Vec<_> = read
            .layers
            .iter()
            .map(|group| (group.count, group.cache))
            .collect();
        assert_eq!(groups, [(3, text), (3, LayerCache::State { bytes })]);
        assert_eq!(read.widths.map(|widths| widths.blocks), Some(7));
        std::fs::write(&file, r#"{"model_type": "whisper", "d_model": 384}"#).expect("written");
        let problem = Architecture::of_config_json(&file).expect_err("it is incomplete");
        assert!(
            problem.to_string().contains("decoder_attention_heads"),
            "{problem}"
        );
    }
}
