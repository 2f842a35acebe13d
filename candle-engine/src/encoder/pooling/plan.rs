//! The steps after the hidden states, read from the files of Sentence Transformers' modules.

use crate::encoder::spec::Activation;
use crate::error::EngineError;
use crate::files::read_json;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Upper bound for the width of a dense layer; wider ones are mistakes.
const WIDTH_MAX: usize = 1 << 20;

/// A way to pool the rows of a text into one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    FirstToken,
    Max,
    Mean,
    /// The sum divided by the square root of the number of tokens.
    RootMean,
    /// A mean in which later tokens weigh more: the first 1, the second 2, …
    WeightedMean,
    LastToken,
}

/// The fields of `1_Pooling/config.json`, in the order in which several poolings are concatenated.
const POOLS: [(&str, &str, Reduction); 6] = [
    ("pooling_mode_cls_token", "cls", Reduction::FirstToken),
    ("pooling_mode_max_tokens", "max", Reduction::Max),
    ("pooling_mode_mean_tokens", "mean", Reduction::Mean),
    (
        "pooling_mode_mean_sqrt_len_tokens",
        "mean_sqrt_len_tokens",
        Reduction::RootMean,
    ),
    (
        "pooling_mode_weightedmean_tokens",
        "weightedmean",
        Reduction::WeightedMean,
    ),
    ("pooling_mode_lasttoken", "lasttoken", Reduction::LastToken),
];

/// The steps after the hidden states, as the model's files describe them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PoolingPlan {
    pub pools: Vec<Reduction>,
    pub includes_prompt: bool,
    pub dense: Vec<DensePlan>,
    pub normalises: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DensePlan {
    pub folder: PathBuf,
    pub inputs: usize,
    pub outputs: usize,
    pub has_bias: bool,
    pub(super) activation: Option<DenseActivation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DenseActivation {
    Of(Activation),
    Sigmoid,
}

impl PoolingPlan {
    /// The default without `modules.json`: a normalised mean. Sentence Transformers uses the mean for such a folder, and other
    /// servers with this route normalise.
    pub(super) fn usual() -> Self {
        Self {
            pools: vec![Reduction::Mean],
            includes_prompt: true,
            dense: Vec::new(),
            normalises: true,
        }
    }

    /// Reads the pooling of a folder without `modules.json`.
    ///
    /// # Errors
    /// If a file is invalid.
    pub fn read_pooling(file: &Path) -> Result<Self, EngineError> {
        let (pools, includes_prompt) = read_pools(file)?;
        Ok(Self {
            pools,
            includes_prompt,
            ..Self::usual()
        })
    }

    /// Reads `modules.json` and the files it names.
    ///
    /// # Errors
    /// If a file is invalid, or names a module that this engine does not compute.
    pub fn read(folder: &Path) -> Result<Self, EngineError> {
        let file = folder.join("modules.json");
        let Some(modules) = read_json(&file)? else {
            return Ok(Self::usual());
        };
        let wrong = |problem: String| {
            EngineError::model(
                &file,
                problem,
                "this engine computes Transformer, Pooling, Dense and Normalize, in this order",
            )
        };
        let mut plan = Self {
            pools: Vec::new(),
            normalises: false,
            ..Self::usual()
        };
        let modules = modules.as_array().cloned();
        for module in modules.ok_or_else(|| wrong("it is not a list of modules".to_owned()))? {
            let kind = module["type"].as_str().unwrap_or_default();
            let kind = kind.rsplit('.').next().unwrap_or_default();
            let path = module["path"].as_str().unwrap_or_default();
            // Modules must lie directly in the model's folder; any other path could point anywhere on the machine.
            if !path.is_empty() && Path::new(path).file_name().is_none_or(|name| name != path) {
                return Err(wrong(format!("{path:?} is not a plain folder name")));
            }
            if plan.normalises {
                return Err(wrong(format!("{kind} comes after Normalize")));
            }
            match kind {
                "Transformer" if path.is_empty() => {}
                "Transformer" => {
                    return Err(wrong(format!(
                        "its Transformer is in {path:?}, which must be the model's folder itself"
                    )));
                }
                "Pooling" => {
                    let file = folder.join(path).join("config.json");
                    (plan.pools, plan.includes_prompt) = read_pools(&file)?;
                }
                "Dense" if !plan.pools.is_empty() => {
                    plan.dense.push(DensePlan::read(&folder.join(path))?);
                }
                "Normalize" => plan.normalises = true,
                "Dropout" => {}
                _ => return Err(wrong(format!("it has a module {kind:?}"))),
            }
        }
        if plan.pools.is_empty() {
            return Err(wrong("it has no Pooling".to_owned()));
        }
        Ok(plan)
    }
}

fn read_pools(file: &Path) -> Result<(Vec<Reduction>, bool), EngineError> {
    let wrong =
        |problem: &str| EngineError::model(file, problem, "download the model's folder completely");
    let json = read_json(file)?.ok_or_else(|| wrong("the file is missing"))?;
    let mut pools = Vec::new();
    for (field, word, pool) in POOLS {
        let is_named = match &json["pooling_mode"] {
            Value::Array(words) => words.iter().any(|item| item == word),
            mode => mode == word,
        };
        if json[field] == true || is_named {
            pools.push(pool);
        }
    }
    if pools.is_empty() {
        return Err(wrong(
            "it chooses none of cls, max, mean, mean_sqrt_len, weightedmean and lasttoken",
        ));
    }
    Ok((pools, json["include_prompt"] != false))
}

impl DensePlan {
    fn read(folder: &Path) -> Result<Self, EngineError> {
        let file = folder.join("config.json");
        let wrong = |problem: String| {
            EngineError::model(&file, problem, "download the model's folder completely")
        };
        let json = read_json(&file)?.ok_or_else(|| wrong("the file is missing".to_owned()))?;
        let width = |name: &str| {
            let value = json[name]
                .as_u64()
                .and_then(|value| usize::try_from(value).ok());
            value
                .filter(|width| (1..=WIDTH_MAX).contains(width))
                .ok_or_else(|| {
                    wrong(format!(
                        "{name} is {}, which is not a valid width",
                        json[name]
                    ))
                })
        };
        let named = json["activation_function"].as_str();
        // The default of Sentence Transformers' Dense module.
        let named = named.unwrap_or("torch.nn.modules.activation.Tanh");
        let activation = match named.rsplit('.').next().unwrap_or_default() {
            "Identity" => None,
            "Tanh" => Some(DenseActivation::Of(Activation::Tanh)),
            "ReLU" => Some(DenseActivation::Of(Activation::Relu)),
            "GELU" => Some(DenseActivation::Of(Activation::Gelu)),
            "SiLU" => Some(DenseActivation::Of(Activation::Silu)),
            "Sigmoid" => Some(DenseActivation::Sigmoid),
            other => {
                return Err(wrong(format!(
                    "activation_function is {other}; this engine computes Identity, Tanh, ReLU, GELU, SiLU and Sigmoid"
                )));
            }
        };
        Ok(Self {
            inputs: width("in_features")?,
            outputs: width("out_features")?,
            has_bias: json["bias"] != false,
            activation,
            folder: folder.to_owned(),
        })
    }
}
