//! Owns the way of weights from safetensors files to the device. Never trusts a file: names and shapes are checked before a byte is used.
//!
//! Tensors are read one by one with plain reads, not mapped: a file that shrinks meanwhile is an error instead of a signal, and
//! the host never holds more than one tensor in its stored form.

use crate::error::EngineError;
use crate::loading::Progress;
use crate::model_config::{ModelConfig, read_json};
use crate::safetensors_header::Header;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::Config;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";
const REMEDY: &str =
    "the weights do not belong to this config.json: download the model's folder again";

/// Weights on the device.
pub(crate) struct Weights {
    pub builder: VarBuilder<'static>,
    pub bytes: u64,
}

/// One tensor that is to be read.
struct Planned {
    name: String,
    shape: Vec<usize>,
    dtype: DType,
    start: u64,
    bytes: usize,
}

/// Reads all tensors of the model onto `device` as `dtype`.
///
/// # Errors
/// A missing or damaged file, a missing tensor, a wrong shape or type, memory that does not suffice, or a load that was cancelled.
pub(crate) fn load(
    folder: &Path,
    config: &ModelConfig,
    device: &Device,
    dtype: DType,
    progress: &Progress,
) -> Result<Weights, EngineError> {
    let mut plan = plan(folder, &config.llama)?;
    let total: u64 = plan
        .values()
        .flat_map(|(_, tensors)| tensors)
        .map(|tensor| tensor.bytes as u64)
        .sum();
    let (mut done, mut bytes) = (0u64, 0u64);
    #[expect(
        clippy::disallowed_types,
        reason = "candle's VarBuilder takes this map; its order is never looked at"
    )]
    let mut tensors = std::collections::HashMap::new();
    for (path, (file, planned)) in &mut plan {
        planned.sort_by_key(|tensor| tensor.start);
        for tensor in planned {
            let loaded = read(file, path, tensor, device, dtype)?;
            bytes += (loaded.elem_count() * dtype.size_in_bytes()) as u64;
            tensors.insert(tensor.name.clone(), loaded);
            done += tensor.bytes as u64;
            progress.weights(done, total)?;
        }
    }
    Ok(Weights {
        builder: VarBuilder::from_tensors(tensors, dtype, device),
        bytes,
    })
}

fn read(
    file: &mut File,
    path: &Path,
    tensor: &Planned,
    device: &Device,
    dtype: DType,
) -> Result<Tensor, EngineError> {
    let wrong = |problem: String| {
        EngineError::model(
            path,
            format!("{}: {problem}", tensor.name),
            "check the file and the free memory",
        )
    };
    let mut stored = vec![0; tensor.bytes];
    file.seek(SeekFrom::Start(tensor.start))
        .map_err(|error| wrong(error.to_string()))?;
    file.read_exact(&mut stored)
        .map_err(|error| wrong(error.to_string()))?;
    // Converted on the host, so that the device never holds both forms.
    let loaded = Tensor::from_raw_buffer(&stored, tensor.dtype, &tensor.shape, &Device::Cpu)
        .and_then(|loaded| loaded.to_dtype(dtype))
        .and_then(|loaded| loaded.to_device(device));
    loaded.map_err(|error| wrong(error.to_string()))
}

/// Finds each tensor that the configuration needs, and checks its shape and type, before anything is read.
fn plan(
    folder: &Path,
    config: &Config,
) -> Result<BTreeMap<PathBuf, (File, Vec<Planned>)>, EngineError> {
    let places = Places::find(folder)?;
    let mut headers: BTreeMap<PathBuf, Header> = BTreeMap::new();
    let mut plan: BTreeMap<PathBuf, (File, Vec<Planned>)> = BTreeMap::new();
    for (name, shape) in expected_tensors(config) {
        let path = places.file_of(&name)?;
        if !headers.contains_key(&path) {
            let mut file = File::open(&path).map_err(|error| {
                EngineError::model(
                    &path,
                    format!("it cannot be opened ({error})"),
                    "download the model's folder completely",
                )
            })?;
            headers.insert(path.clone(), Header::read(&mut file, &path)?);
            plan.insert(path.clone(), (file, Vec::new()));
        }
        let (Some(header), Some((_, planned))) = (headers.get(&path), plan.get_mut(&path)) else {
            continue;
        };
        let wrong = |problem: String| EngineError::model(&path, problem, REMEDY);
        let info = header
            .tensor(&name)
            .ok_or_else(|| wrong(format!("the tensor {name} is missing")))?;
        if info.shape != shape {
            return Err(wrong(format!(
                "the tensor {name} has shape {:?}, config.json says {shape:?}",
                info.shape
            )));
        }
        let dtype = match DType::try_from(info.dtype) {
            Ok(dtype @ (DType::F32 | DType::F16 | DType::BF16)) => dtype,
            _ => {
                return Err(wrong(format!(
                    "the tensor {name} has type {:?}, this engine supports F32, F16 and BF16",
                    info.dtype
                )));
            }
        };
        let (start, end) = info.data_offsets;
        planned.push(Planned {
            name,
            shape,
            dtype,
            start: header.data_start + start as u64,
            bytes: end - start,
        });
    }
    Ok(plan)
}

/// Where the tensors are: all in one file, or over several by an index.
enum Places {
    Single(PathBuf),
    Sharded {
        index: PathBuf,
        folder: PathBuf,
        files: BTreeMap<String, String>,
    },
}

impl Places {
    fn find(folder: &Path) -> Result<Self, EngineError> {
        let (single, index) = (folder.join(SINGLE_FILE), folder.join(INDEX_FILE));
        if single.exists() {
            return Ok(Self::Single(single));
        }
        let Some(json) = read_json(&index)? else {
            return Err(EngineError::model(
                folder,
                format!("it has neither {SINGLE_FILE} nor {INDEX_FILE}"),
                "download the weights as safetensors",
            ));
        };
        let files = json["weight_map"].as_object().map(|map| {
            map.iter()
                .filter_map(|(name, file)| Some((name.clone(), file.as_str()?.to_owned())))
                .collect::<BTreeMap<_, _>>()
        });
        match files {
            Some(files) => Ok(Self::Sharded {
                index,
                folder: folder.to_owned(),
                files,
            }),
            None => Err(EngineError::model(index, "it has no weight_map", REMEDY)),
        }
    }

    fn file_of(&self, tensor: &str) -> Result<PathBuf, EngineError> {
        match self {
            Self::Single(path) => Ok(path.clone()),
            Self::Sharded {
                index,
                folder,
                files,
            } => match files.get(tensor) {
                None => Err(EngineError::model(
                    index,
                    format!("the tensor {tensor} is missing"),
                    REMEDY,
                )),
                // A shard lies beside its index; anything else could point anywhere on the machine.
                Some(file)
                    if Path::new(file)
                        .file_name()
                        .is_none_or(|name| name != file.as_str()) =>
                {
                    Err(EngineError::model(
                        index,
                        format!(
                            "{tensor} is said to be in {file:?}, which is not a plain file name"
                        ),
                        REMEDY,
                    ))
                }
                Some(file) => Ok(folder.join(file)),
            },
        }
    }
}

/// Every tensor of a Llama model with its shape.
fn expected_tensors(config: &Config) -> Vec<(String, Vec<usize>)> {
    let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
    let key_value = hidden / config.num_attention_heads * config.num_key_value_heads;
    let mut tensors = vec![
        (
            "model.embed_tokens.weight".to_owned(),
            vec![config.vocab_size, hidden],
        ),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    if !config.tie_word_embeddings {
        tensors.push(("lm_head.weight".to_owned(), vec![config.vocab_size, hidden]));
    }
    for layer in 0..config.num_hidden_layers {
        for (part, shape) in [
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![key_value, hidden]),
            ("self_attn.v_proj", vec![key_value, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("mlp.gate_proj", vec![intermediate, hidden]),
            ("mlp.up_proj", vec![intermediate, hidden]),
            ("mlp.down_proj", vec![hidden, intermediate]),
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
        ] {
            tensors.push((format!("model.layers.{layer}.{part}.weight"), shape));
        }
    }
    tensors
}
