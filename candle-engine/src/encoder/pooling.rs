//! Turns hidden states into one vector per text: pooling, dense layers and normalisation of Sentence Transformers' modules.
//! One file because pooling, dense layers and normalisation are one chain that the model's files describe.

use super::linear::Linear;
use super::network::{HiddenStates, Sequence};
use super::spec::Activation;
use super::tensors::Tensors;
use crate::error::EngineError;
use crate::files::{ModelFiles, read_json};
use crate::kernels::Pool;
use candle_core::{Device, Result, Tensor};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    folder: PathBuf,
    inputs: usize,
    outputs: usize,
    has_bias: bool,
    activation: Option<DenseActivation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DenseActivation {
    Of(Activation),
    Sigmoid,
}

impl PoolingPlan {
    /// The default without `modules.json`: a normalised mean. Sentence Transformers uses the mean for such a folder, and other
    /// servers with this route normalise.
    fn usual() -> Self {
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
    pub fn read_pooling(file: &Path) -> std::result::Result<Self, EngineError> {
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
    pub fn read(folder: &Path) -> std::result::Result<Self, EngineError> {
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

fn read_pools(file: &Path) -> std::result::Result<(Vec<Reduction>, bool), EngineError> {
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
    fn read(folder: &Path) -> std::result::Result<Self, EngineError> {
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

/// Converts hidden states to vectors.
pub(crate) struct Pooling {
    pools: Vec<Reduction>,
    dense: Vec<(Linear, Option<DenseActivation>)>,
    /// Normalises vectors to length one unless the request decides.
    pub normalises: bool,
    /// Length of a vector.
    pub width: usize,
    pub bytes: u64,
    pub mapped_bytes: u64,
    device: Device,
}

impl Pooling {
    /// Reads the weights of the dense layers.
    ///
    /// # Errors
    /// If the widths of successive layers do not match, or weights are missing.
    pub fn load(
        plan: PoolingPlan,
        hidden: usize,
        device: &Device,
        pool: Option<&Arc<Pool>>,
    ) -> std::result::Result<Self, EngineError> {
        let mut width = hidden * plan.pools.len();
        let (mut dense, mut bytes, mut mapped_bytes) = (Vec::new(), 0, 0);
        for layer in plan.dense {
            if layer.inputs != width {
                return Err(EngineError::model(
                    layer.folder.join("config.json"),
                    format!(
                        "in_features is {}, but its input has width {width}",
                        layer.inputs
                    ),
                    "download the model's folder completely",
                ));
            }
            let files = ModelFiles::open_tensors(&layer.folder)?;
            let mut tensors = Tensors::new(&files, device, pool.cloned());
            let name = "linear";
            let linear = Linear::read(
                &mut tensors,
                name,
                layer.inputs,
                layer.outputs,
                layer.has_bias,
            )?;
            bytes += tensors.bytes;
            mapped_bytes += tensors.mapped_bytes;
            width = layer.outputs;
            dense.push((linear, layer.activation));
        }
        Ok(Self {
            pools: plan.pools,
            dense,
            normalises: plan.normalises,
            width,
            bytes,
            mapped_bytes,
            device: device.clone(),
        })
    }

    /// Computes one vector per text, not normalised.
    ///
    /// # Errors
    /// If the device fails.
    pub fn vectors(&self, sequences: &[&Sequence], hidden: &HiddenStates) -> Result<Vec<Vec<f32>>> {
        let pooled: Vec<Vec<f32>> = match self.pools.as_slice() {
            // Only one row of each text has to leave the device.
            [Reduction::FirstToken] => rows_at(hidden, hidden.starts.iter().copied())?,
            [Reduction::LastToken] => {
                let ends = sequences.iter().zip(&hidden.starts);
                rows_at(
                    hidden,
                    ends.map(|(sequence, start)| start + sequence.tokens.len() - 1),
                )?
            }
            pools => {
                let width = hidden.rows.dim(1)?;
                let all: Vec<f32> = hidden.rows.flatten_all()?.to_vec1()?;
                let of = |(sequence, start): (&&Sequence, &usize)| {
                    let end = start + sequence.tokens.len();
                    // A text that consists only of its prompt is pooled with the prompt.
                    let skipped = sequence.passed_over;
                    let skipped = skipped * usize::from(skipped < sequence.tokens.len());
                    let rows = &all[(start + skipped) * width..end * width];
                    pools
                        .iter()
                        .flat_map(|reduction| pool(*reduction, rows, width))
                        .collect()
                };
                sequences.iter().zip(&hidden.starts).map(of).collect()
            }
        };
        self.after(pooled)
    }

    /// Returns true if this is the only pooling.
    pub fn is_of(&self, pools: [Reduction; 1]) -> bool {
        self.pools == pools
    }

    /// Pools the rows of a text: all of them, or only the last. Returns `None` without rows.
    pub fn of_rows(&self, rows: &[Vec<f32>], passed_over: usize) -> Option<Vec<f32>> {
        let skipped = passed_over * usize::from(passed_over < rows.len());
        let width = rows.first()?.len();
        let rows = rows[skipped..].concat();
        let pools = self.pools.iter();
        Some(
            pools
                .flat_map(|reduction| pool(*reduction, &rows, width))
                .collect(),
        )
    }

    /// Applies the steps after pooling.
    ///
    /// # Errors
    /// If the device fails.
    pub fn after(&self, pooled: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        if self.dense.is_empty() {
            return Ok(pooled);
        }
        let (count, width) = (pooled.len(), pooled.first().map_or(0, Vec::len));
        let mut rows = Tensor::from_vec(pooled.concat(), (count, width), &self.device)?;
        for (linear, activation) in &self.dense {
            rows = linear.apply(&rows)?;
            rows = match activation {
                None => rows,
                Some(DenseActivation::Sigmoid) => candle_nn::ops::sigmoid(&rows)?,
                Some(DenseActivation::Of(activation)) => {
                    super::operations::activate(rows, *activation)?
                }
            };
        }
        rows.to_vec2()
    }
}

/// Copies rows of hidden states from the device.
pub(crate) fn rows_at(
    hidden: &HiddenStates,
    rows: impl Iterator<Item = usize>,
) -> Result<Vec<Vec<f32>>> {
    let rows: Vec<u32> = rows.map(|row| row as u32).collect();
    let count = rows.len();
    let rows = Tensor::from_vec(rows, count, hidden.rows.device())?;
    hidden.rows.index_select(&rows, 0)?.to_vec2()
}

/// Pools the rows of a text, at least one, into one vector.
pub(crate) fn pool(pool: Reduction, rows: &[f32], width: usize) -> Vec<f32> {
    let count = rows.len() / width;
    let sum = |weight: &dyn Fn(usize) -> f32| {
        let mut sum = vec![0.0f32; width];
        for (place, row) in rows.chunks_exact(width).enumerate() {
            let weight = weight(place);
            for (sum, number) in sum.iter_mut().zip(row) {
                *sum += weight * number;
            }
        }
        sum
    };
    let over = |mut sum: Vec<f32>, divisor: f32| {
        sum.iter_mut().for_each(|number| *number /= divisor);
        sum
    };
    match pool {
        Reduction::FirstToken => rows[..width].to_vec(),
        Reduction::LastToken => rows[rows.len() - width..].to_vec(),
        Reduction::Mean => over(sum(&|_| 1.0), count as f32),
        Reduction::RootMean => over(sum(&|_| 1.0), (count as f32).sqrt()),
        Reduction::WeightedMean => {
            let all = count as f32 * (count as f32 + 1.0) / 2.0;
            over(sum(&|place| place as f32 + 1.0), all)
        }
        Reduction::Max => {
            rows.chunks_exact(width)
                .fold(vec![f32::NEG_INFINITY; width], |mut most, row| {
                    for (most, number) in most.iter_mut().zip(row) {
                        *most = most.max(*number);
                    }
                    most
                })
        }
    }
}

/// Scales a vector to length one. A zero vector is unchanged.
pub(crate) fn normalise(vector: &mut [f32]) {
    let squares = vector
        .iter()
        .map(|number| f64::from(*number) * f64::from(*number));
    let length = squares.sum::<f64>().sqrt().max(1e-12);
    for number in vector {
        *number = (f64::from(*number) / length) as f32;
    }
}

#[cfg(test)]
mod tests;
