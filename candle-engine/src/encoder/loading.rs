//! Loads an encoder.

use super::config;
use super::decoder_backend::{self, DecoderBackend, ScoreHead};
use super::head::Head;
use super::loaded_encoder::{Encoder, Output};
use super::network::{Network, Sequence};
use super::pooling::{Pooling, PoolingPlan};
use super::purpose::Purpose;
use super::service::{Model, OutputKind, Service};
use super::spec::EncoderSpec;
use super::tensors::Tensors;
use super::texts::Texts;
use super::wording::Wording;
use crate::batch::{Batch, BatchSleeper};
use crate::error::EngineError;
use crate::files::{LoadPlan, ModelFiles, read_json};
use crate::loading::{self, LoadedModel};
use crate::options::{CacheType, EngineOptions, Task};
use crate::progress::Progress;
use candle_core::Device;
use model_files::families;
use serde_json::Value;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Default batch sizes in tokens: enough for products at full speed, but small enough that no request waits long for the previous
/// batch.
const BATCH_TOKENS_CPU: usize = 1024;
const BATCH_TOKENS_GPU: usize = 16_384;

/// Returns the folder's `config.json` if its model is an encoder.
///
/// # Errors
/// If the file cannot be read or is not JSON.
pub(crate) fn config_of(options: &EngineOptions) -> Result<Option<Value>, EngineError> {
    // A single file is a GGUF file, and GGUF files are always decoders.
    if options.model_dir.is_file() {
        return Ok(None);
    }
    let json = read_json(&options.model_dir.join("config.json"))?;
    Ok(json.filter(|json| config::architecture(json).is_some()))
}

/// Loads the encoder and computes one text, to warm up before the first request.
///
/// # Errors
/// If the options, the folder or the device are unusable, or memory runs out.
pub(crate) fn load(
    options: &EngineOptions,
    json: &Value,
    progress: &Progress,
) -> Result<(Model, Encoder), EngineError> {
    let folder = &options.model_dir;
    let file = folder.join("config.json");
    let device = match options.devices.as_slice() {
        [device] => device.open()?.0,
        several => {
            return Err(EngineError::option(
                "devices",
                format!(
                    "{} devices are given; an encoder runs on one",
                    several.len()
                ),
            ));
        }
    };
    if options.quantization.is_some() {
        return Err(EngineError::option(
            "quantization",
            "encoders are never quantised, because their vectors must remain comparable with vectors from other programs; leave it out",
        ));
    }
    if options.numbers.kv_cache != CacheType::Auto {
        return Err(EngineError::option(
            "kv_cache_dtype",
            "encoders have no KV cache; leave it out",
        ));
    }
    let spec = EncoderSpec::read(json).map_err(|problem| {
        EngineError::model(
            &file,
            problem,
            format!(
                "encoders that this engine supports: {}",
                families::known_encoders()
            ),
        )
    })?;
    let own = match spec.head {
        Some(_) => Task::Rerank,
        None => Task::Embed,
    };
    if let Some(task) = options.task.filter(|task| *task != own) {
        return Err(EngineError::option(
            "task",
            format!(
                "{task} is not what {} is for, which is {own}; leave the option out",
                spec.architecture
            ),
        ));
    }
    let positions = json["max_position_embeddings"].as_u64();
    if let Some(most) = positions.filter(|most| options.context_tokens as u64 > *most) {
        return Err(EngineError::option(
            "context_tokens",
            format!(
                "{} is more than the model's {most} (max_position_embeddings in {}); give at most {most}",
                options.context_tokens,
                file.display()
            ),
        ));
    }
    let plan = match spec.head {
        Some(_) => None,
        None => Some(PoolingPlan::read(folder)?),
    };
    let most = spec.context_tokens.min(options.context_tokens);
    let most = most.min(options.budgets.input.unwrap_or(most));
    let includes_prompt = plan.as_ref().is_none_or(|plan| plan.includes_prompt);
    let texts = Texts::load(folder, spec.vocabulary, most, includes_prompt)?;
    progress.weights(0, 1)?;
    let mut files = ModelFiles::open(folder)?;
    let plan_of_load = LoadPlan {
        quantization: None,
        verify: options.verify,
    };
    files.load(plan_of_load, progress)?;
    let threads = NonZeroUsize::new(rayon::current_num_threads()).unwrap_or(NonZeroUsize::MIN);
    let products = options.numbers.products;
    let pool = device
        .is_cpu()
        .then(|| Arc::new(loading::pool(threads, products)));
    let mut tensors = Tensors::new(&files, &device, pool.clone());
    let (network, root) = Network::load(&spec, &mut tensors, texts.limit)?;
    let (mut weights_bytes, mut mapped_bytes) = (0, 0);
    let output = match (spec.head, plan) {
        (Some(kind), _) => Output::Scores(Box::new(Head::load(kind, &spec, &mut tensors, root)?)),
        (None, plan) => {
            let plan = plan.map_or_else(|| PoolingPlan::read(folder), Ok)?;
            let pooling = Pooling::load(plan, spec.hidden, &device, pool.as_ref())?;
            weights_bytes += pooling.bytes;
            mapped_bytes += pooling.mapped_bytes;
            Output::Vectors(pooling)
        }
    };
    weights_bytes += tensors.bytes;
    mapped_bytes += tensors.mapped_bytes;
    let usual = if device.is_cpu() {
        BATCH_TOKENS_CPU
    } else {
        BATCH_TOKENS_GPU
    };
    let budgets = &options.budgets;
    let batch_tokens = budgets.prefill.unwrap_or(usual);
    let model = Model {
        architecture: spec.architecture,
        texts,
        gives: match &output {
            Output::Vectors(pooling) => OutputKind::Vectors {
                width: pooling.width,
                normalises: pooling.normalises,
            },
            Output::Scores(_) => OutputKind::Scores {
                wording: Wording::Pair,
                shows_probability: spec.shows_probability,
            },
        },
    };
    let encoder = Encoder {
        network,
        output,
        batch_tokens: batch_tokens.min(budgets.total.unwrap_or(batch_tokens)),
        weights_bytes,
        mapped_bytes,
        is_on_cpu: device.is_cpu(),
    };
    let warm_up = Sequence {
        tokens: vec![0; 2],
        types: vec![0; 2],
        passed_over: 0,
    };
    let computed = encoder.compute(&[&warm_up], || true);
    let numbers = computed.map_err(EngineError::load)?.unwrap_or_default();
    if !numbers.iter().flatten().all(|number| number.is_finite()) {
        return Err(EngineError::model(
            folder,
            "its result for the first token is not a number",
            "load it with `verify` to find the damaged tensor, and download it again",
        ));
    }
    progress.weights(1, 1)?;
    Ok((model, encoder))
}

/// Creates the service of a decoder that computes vectors or scores. Returns `None` for a decoder that generates text.
///
/// # Errors
/// If files are missing, invalid or contradictory.
pub(crate) fn of_decoder(
    options: &EngineOptions,
    purpose: Purpose,
    files: &ModelFiles,
    model: &Arc<LoadedModel>,
) -> Result<Option<Service>, EngineError> {
    if matches!(purpose, Purpose::Texts) {
        return Ok(None);
    }
    let spec = files.spec()?;
    let includes_prompt = match &purpose {
        Purpose::Texts => return Ok(None),
        Purpose::Vectors(plan) => plan.includes_prompt,
        Purpose::Scores(_) => true,
    };
    let most = options
        .context_tokens
        .min(options.budgets.input.unwrap_or(usize::MAX));
    let file = files.tokenizer()?;
    let folder = (!files.is_gguf()).then(|| files.folder());
    let texts = Texts::new(
        file.tokenizer,
        (&file.file, folder),
        spec.vocabulary,
        most,
        includes_prompt,
    )?;
    let (gives, output) = match purpose {
        Purpose::Texts => return Ok(None),
        Purpose::Vectors(plan) => {
            let pooling = Pooling::load(plan, spec.hidden, &Device::Cpu, None)?;
            let gives = OutputKind::Vectors {
                width: pooling.width,
                normalises: pooling.normalises,
            };
            (gives, decoder_backend::Output::Vectors(Arc::new(pooling)))
        }
        Purpose::Scores(plan) => {
            let gives = OutputKind::Scores {
                wording: Wording::of_decoder(model, &texts, &plan, files)?,
                shows_probability: plan.shows_probability,
            };
            let head = ScoreHead::read(&plan, files, &model.tokenizer)?;
            (gives, decoder_backend::Output::Scores(head))
        }
    };
    let batch = Arc::new(Batch::start_for_states(&model.generator, &model.tokenizer)?);
    let rest = BatchSleeper {
        batch: Arc::clone(&batch),
        files: model.files.clone(),
    };
    let decoder = DecoderBackend::new(Arc::clone(model), batch, output, vec![Arc::new(rest)]);
    let described = Model {
        architecture: spec.architecture.clone(),
        texts,
        gives,
    };
    Ok(Some(Service::of_decoder(
        options.model_name.clone(),
        described,
        decoder,
    )))
}
