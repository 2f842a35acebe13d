//! Reads the folder of a LoRA adapter in PEFT's format: `adapter_config.json`, and the pairs of tensors in
//! `adapter_model.safetensors`. The files are untrusted.
//!
//! The format: <https://huggingface.co/docs/peft/developer_guides/checkpoint>.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::FileError;
use crate::safetensors::{Header, TensorEntry, read_text};

/// The file that describes an adapter.
pub const CONFIG: &str = "adapter_config.json";
/// The file with the adapter's tensors.
pub const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// No adapter has a higher rank.
const RANK_MAX: u64 = 1 << 20;

/// The contents of `adapter_config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// The highest rank of its parts.
    pub rank: u32,
    /// The base model, as named by the author.
    pub base: Option<String>,
    alpha: f64,
    /// Alphas for modules whose names end with the key.
    alphas: BTreeMap<String, f64>,
    by_root: bool,
}

/// The two tensors that modify one matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// `lora_A`, `[rank, inputs]`.
    pub narrow: TensorEntry,
    /// `lora_B`, `[outputs, rank]`.
    pub wide: TensorEntry,
    pub rank: u32,
}

/// A complete adapter folder.
#[derive(Clone, Debug)]
pub struct AdapterFiles {
    pub folder: PathBuf,
    pub weights: PathBuf,
    pub config: AdapterConfig,
    /// Pairs by the name of the modified matrix in the base model's files.
    pub pairs: BTreeMap<String, Pair>,
}

impl AdapterConfig {
    /// Reads the description from an adapter's folder.
    ///
    /// # Errors
    /// If the file is missing, invalid, or describes another kind of adapter; the message names the field.
    pub fn read(folder: &Path) -> Result<AdapterConfig, FileError> {
        let path = folder.join(CONFIG);
        let text = read_text(&path, CONFIG_BYTES_MAX)?;
        let broken = |problem: String| FileError::Broken {
            path: path.clone(),
            problem,
        };
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| broken(format!("it is not JSON ({error}); save the adapter again")))?;
        let keys = value
            .as_object()
            .ok_or_else(|| broken("it is not an object".to_owned()))?;
        AdapterConfig::new(keys).map_err(broken)
    }

    fn new(keys: &Map<String, Value>) -> Result<AdapterConfig, String> {
        let kind = keys.get("peft_type").and_then(Value::as_str);
        if kind.is_some_and(|kind| kind != "LORA") {
            return Err(format!(
                "peft_type is {}; engines take LORA",
                kind.unwrap_or_default().escape_debug()
            ));
        }
        for (key, what) in [
            ("use_dora", "DoRA"),
            ("fan_in_fan_out", "transposed weights"),
            ("trainable_token_indices", "trained tokens"),
            ("modules_to_save", "separate full matrices"),
        ] {
            let is_set = match keys.get(key) {
                None | Some(Value::Null | Value::Bool(false)) => false,
                Some(Value::Array(list)) => !list.is_empty(),
                Some(_) => true,
            };
            if is_set {
                return Err(format!(
                    "{key} is set: adapters with {what} are not supported; train one without"
                ));
            }
        }
        if let Some(bias) = keys.get("bias").and_then(Value::as_str)
            && bias != "none"
        {
            return Err(format!(
                "bias is {}; only adapters with bias none are supported",
                bias.escape_debug()
            ));
        }
        let rank = rank_of("r", keys.get("r"))?;
        let ranks = patterns(keys, "rank_pattern")?;
        let ranks =
            ranks.map(|(name, value)| rank_of(&format!("rank_pattern.{name}"), Some(value)));
        let mut ranks = ranks;
        let rank = ranks.try_fold(rank, |most, own| own.map(|own| most.max(own)))?;
        let number = |key: &str, value: &Value| {
            let number = value.as_f64().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("{key} is not a number"))
        };
        let alphas = patterns(keys, "alpha_pattern")?;
        let alphas = alphas.map(|(name, value)| {
            let alpha = number(&format!("alpha_pattern.{name}"), value)?;
            Ok((name.clone(), alpha))
        });
        Ok(AdapterConfig {
            rank,
            base: keys
                .get("base_model_name_or_path")
                .and_then(Value::as_str)
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
            alpha: match keys.get("lora_alpha") {
                // PEFT's default.
                None | Some(Value::Null) => 8.0,
                Some(value) => number("lora_alpha", value)?,
            },
            alphas: alphas.collect::<Result<_, String>>()?,
            by_root: keys.get("use_rslora") == Some(&Value::Bool(true)),
        })
    }

    /// The scale of the product of a module's two matrices.
    pub fn factor(&self, module: &str, rank: u32) -> f32 {
        let own = self.alphas.iter().find(|(name, _)| {
            let before = module.strip_suffix(name.as_str());
            before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        });
        let alpha = own.map_or(self.alpha, |(_, alpha)| *alpha);
        let rank = f64::from(rank);
        let factor = if self.by_root {
            alpha / rank.sqrt()
        } else {
            alpha / rank
        };
        factor as f32
    }
}

fn rank_of(key: &str, value: Option<&Value>) -> Result<u32, String> {
    let Some(value) = value else {
        return Err(format!("{key} is missing: it is the rank of the adapter"));
    };
    let rank = value.as_u64().filter(|rank| (1..=RANK_MAX).contains(rank));
    let rank = rank.and_then(|rank| u32::try_from(rank).ok());
    rank.ok_or_else(|| format!("{key} is not a rank between 1 and {RANK_MAX}"))
}

/// Reads an object whose keys are suffixes of module names.
fn patterns<'a>(
    keys: &'a Map<String, Value>,
    key: &str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, String> {
    let object = match keys.get(key) {
        None | Some(Value::Null) => None,
        Some(Value::Object(object)) => Some(object),
        Some(_) => return Err(format!("{key} is not an object")),
    };
    let is_name = |name: &String| {
        let mut letters = name.chars();
        letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_'))
    };
    if let Some(name) = object.and_then(|object| object.keys().find(|name| !is_name(name))) {
        return Err(format!(
            "{key} has the regular expression {}; list the names of modules",
            name.escape_debug()
        ));
    }
    Ok(object.into_iter().flatten())
}

impl AdapterFiles {
    /// Reads an adapter's folder, but no tensor contents.
    ///
    /// # Errors
    /// If files are missing, invalid or contradictory, or tensors do not belong to LoRA.
    pub fn read(folder: &Path) -> Result<AdapterFiles, FileError> {
        let config = AdapterConfig::read(folder)?;
        let weights = folder.join(WEIGHTS);
        if !weights.is_file() {
            return Err(FileError::Unknown {
                path: folder.to_owned(),
                problem: format!(
                    "there is no {WEIGHTS}; save the adapter with save_pretrained(safe_serialization=True)"
                ),
            });
        }
        let header = Header::read(&weights)?;
        let pairs = pairs(&header).map_err(|problem| FileError::Broken {
            path: weights.clone(),
            problem,
        })?;
        Ok(AdapterFiles {
            folder: folder.to_owned(),
            weights,
            config,
            pairs,
        })
    }

    /// The highest rank in its description or tensors.
    pub fn rank(&self) -> u32 {
        let ranks = self.pairs.values().map(|pair| pair.rank);
        ranks.fold(self.config.rank, u32::max)
    }
}

fn pairs(header: &Header) -> Result<BTreeMap<String, Pair>, String> {
    let mut halves: BTreeMap<String, [Option<&TensorEntry>; 2]> = BTreeMap::new();
    for tensor in &header.tensors {
        let name = tensor.name.strip_prefix("base_model.model.");
        let name = name.unwrap_or(&tensor.name);
        let half = [".lora_A.weight", ".lora_B.weight"]
            .into_iter()
            .enumerate()
            .find_map(|(nth, end)| Some((nth, name.strip_suffix(end)?)));
        let Some((nth, module)) = half else {
            return Err(format!(
                "the tensor {} is neither lora_A nor lora_B; only these are supported",
                tensor.name.escape_debug()
            ));
        };
        halves.entry(module.to_owned()).or_default()[nth] = Some(tensor);
    }
    if halves.is_empty() {
        return Err("it has no tensors".to_owned());
    }
    let pair = |(module, halves): (String, [Option<&TensorEntry>; 2])| {
        let [Some(narrow), Some(wide)] = halves else {
            return Err(format!("{module} has only one of lora_A and lora_B"));
        };
        let (&[rank, _], &[_, same]) = (narrow.shape.as_slice(), wide.shape.as_slice()) else {
            return Err(format!("the tensors of {module} are not matrices"));
        };
        if rank != same || !(1..=RANK_MAX).contains(&rank) {
            return Err(format!(
                "lora_A of {module} has the rank {rank}, and lora_B {same}"
            ));
        }
        let pair = Pair {
            narrow: narrow.clone(),
            wide: wide.clone(),
            rank: rank as u32,
        };
        Ok((module, pair))
    };
    halves.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(config: Value) -> Result<AdapterConfig, String> {
        AdapterConfig::new(config.as_object().expect("an object"))
    }

    #[test]
    fn an_adapter_is_scaled_by_alpha_over_rank() {
        let config = read(json!({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "base_model_name_or_path": "org/base",
            "rank_pattern": {"q_proj": 32}, "alpha_pattern": {"mlp.up_proj": 4}}))
        .expect("reads");
        assert_eq!(
            (config.rank, config.base.as_deref()),
            (32, Some("org/base"))
        );
        assert_eq!(config.factor("model.layers.0.self_attn.v_proj", 8), 2.0);
        assert_eq!(config.factor("model.layers.0.mlp.up_proj", 8), 0.5);
        let rooted = read(json!({"r": 16, "lora_alpha": 8, "use_rslora": true})).expect("reads");
        assert_eq!(rooted.factor("any", 16), 2.0);
    }

    #[test]
    fn an_adapter_that_is_not_plain_lora_is_refused_by_its_field() {
        for (config, word) in [
            (json!({}), "r is missing"),
            (json!({"r": 0}), "r is not a rank"),
            (json!({"r": "8"}), "r is not a rank"),
            (json!({"r": 8, "peft_type": "IA3"}), "peft_type"),
            (json!({"r": 8, "use_dora": true}), "use_dora"),
            (
                json!({"r": 8, "modules_to_save": ["lm_head"]}),
                "modules_to_save",
            ),
            (json!({"r": 8, "bias": "all"}), "bias"),
            (json!({"r": 8, "lora_alpha": "x"}), "lora_alpha"),
            (
                json!({"r": 8, "rank_pattern": {"^q.*": 4}}),
                "regular expression",
            ),
        ] {
            let problem = read(config.clone()).expect_err("refused");
            assert!(problem.contains(word), "{config}: {problem}");
        }
    }
}
