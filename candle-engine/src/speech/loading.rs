//! Loads a Whisper model from its folder.

use super::alignment::AlignmentHeads;
use super::decode;
use super::loaded_model::SpeechModel;
use super::mel::Mel;
use super::network::Network;
use super::spec::{ARCHITECTURE, SpeechSpec};
use super::vocabulary::Vocabulary;
use crate::encoder::Tensors;
use crate::error::EngineError;
use crate::files::{LoadPlan, ModelFiles, read_json};
use crate::loading;
use crate::options::{CacheType, EngineOptions};
use crate::progress::Progress;
use serde_json::Value;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Returns the folder's `config.json` if its model is a Whisper model.
///
/// # Errors
/// If the file cannot be read or is not JSON.
pub(crate) fn config_of(options: &EngineOptions) -> Result<Option<Value>, EngineError> {
    if options.model_dir.is_file() {
        return Ok(None);
    }
    let json = read_json(&options.model_dir.join("config.json"))?;
    Ok(json.filter(|json| {
        let mut names = json["architectures"].as_array().into_iter().flatten();
        names.any(|name| name == ARCHITECTURE) || json["model_type"] == "whisper"
    }))
}

/// Loads the model and encodes silence, to warm up before the first request.
///
/// # Errors
/// If the options, the folder or the device are unusable, or memory runs out.
pub(crate) fn load(
    options: &EngineOptions,
    json: &Value,
    progress: &Progress,
) -> Result<SpeechModel, EngineError> {
    let folder = &options.model_dir;
    check(options)?;
    let [device] = options.devices.as_slice() else {
        return Err(EngineError::option(
            "devices",
            format!(
                "{} devices are given; a speech model runs on one",
                options.devices.len()
            ),
        ));
    };
    let device = device.open()?.0;
    let wrong = |file: &str, problem: String| {
        let remedy = "correct the file, or serve another Whisper model";
        EngineError::model(folder.join(file), problem, remedy)
    };
    let config = "config.json";
    let spec = SpeechSpec::read(json).map_err(|problem| wrong(config, problem))?;
    let preprocessor = "preprocessor_config.json";
    if let Some(json) = read_json(&folder.join(preprocessor))? {
        let checked = spec.check_preprocessor(&json);
        checked.map_err(|problem| wrong(preprocessor, problem))?;
    }
    let vocabulary = Vocabulary::read(folder, json, spec.vocabulary)?;
    progress.weights(0, 1)?;
    let mut files = ModelFiles::open_tensors(folder)?;
    let plan = LoadPlan {
        quantization: None,
        verify: options.verify,
    };
    files.load(plan, progress)?;
    let threads = NonZeroUsize::new(rayon::current_num_threads()).unwrap_or(NonZeroUsize::MIN);
    let products = options.numbers.products;
    let pool = device
        .is_cpu()
        .then(|| Arc::new(loading::pool(threads, products)));
    let mut tensors = Tensors::new(&files, &device, pool);
    let network = Network::load(&spec, &mut tensors)?;
    let generation = read_json(&folder.join("generation_config.json"))?.unwrap_or(Value::Null);
    let model = SpeechModel {
        alignment_heads: AlignmentHeads::read(&generation, spec.decoder),
        weights_bytes: tensors.bytes,
        mapped_bytes: tensors.mapped_bytes,
        is_on_cpu: device.is_cpu(),
        context_tokens: spec.context_tokens,
        concurrency: options.concurrency,
        mel: Mel::new(spec.mel_bands),
        network,
        vocabulary,
    };
    warm_up(&model).map_err(EngineError::load)?;
    progress.weights(1, 1)?;
    Ok(model)
}

/// Options that other models have.
fn check(options: &EngineOptions) -> Result<(), EngineError> {
    let refused = |name, problem: &str| Err(EngineError::option(name, problem));
    if options.quantization.is_some() {
        return refused(
            "quantization",
            "speech models are not quantised; leave it out",
        );
    }
    if options.numbers.kv_cache != CacheType::Auto {
        return refused(
            "kv_cache_dtype",
            "speech models keep the text of one window in F32; leave it out",
        );
    }
    if let Some(task) = options.task {
        return Err(EngineError::option(
            "task",
            format!(
                "{task} is not what a Whisper model is for, which is speech; leave the option out"
            ),
        ));
    }
    Ok(())
}

fn warm_up(model: &SpeechModel) -> candle_core::Result<()> {
    let silence = model.mel.spectrogram(&[]);
    let Some(hidden) = model.network.encode(&silence, || true)? else {
        return Ok(());
    };
    let mut state = model.network.begin(&hidden)?;
    decode::language(&model.network, &model.vocabulary, &mut state)?;
    Ok(())
}
