//! Loads a model of the library's families.

use super::families::{self, Description};
use super::network::LibraryNetwork;
use super::weights::SharedWeights;
use crate::batch::{Generator, Weights};
use crate::error::EngineError;
use crate::files::{ConfigFields, ModelFiles};
use crate::options::{CacheType, DeviceChoice, EngineOptions};
use crate::vision::{Processor, ResizeRule, Vision};
use candle_core::Device;
use model_files::families::LibraryFamily;

const REMEDY: &str = "download the model again, or serve another one";

/// Checks a model's configuration and the options before its weights are read. Returns the maximum context.
///
/// # Errors
/// If the configuration requires something the engine does not compute, or an option does not apply to the family.
pub(crate) fn check(
    files: &ModelFiles,
    family: LibraryFamily,
    options: &EngineOptions,
) -> Result<usize, EngineError> {
    let name = format!("{family:?}");
    if options.quantization.is_some() {
        return Err(EngineError::option(
            "quantization",
            format!("models of the family {name} are computed in F32; leave it out"),
        ));
    }
    if options.numbers.kv_cache != CacheType::Auto {
        return Err(EngineError::option(
            "kv_cache_dtype",
            format!("models of the family {name} have an F32 cache; leave it out"),
        ));
    }
    if !options.adapters.at_start.is_empty() {
        return Err(EngineError::option(
            "lora_modules",
            format!("models of the family {name} have no adapters in this engine; leave it out"),
        ));
    }
    if options.devices.len() != 1 {
        return Err(EngineError::option(
            "devices",
            format!(
                "{} devices are given; models of the family {name} run on one",
                options.devices.len()
            ),
        ));
    }
    Ok(describe(files, family, options)?.sizes.context_tokens)
}

/// Loads the model for sequences of the context in `options`.
///
/// # Errors
/// If a tensor is missing or contradicts the configuration, the device cannot be opened, or memory runs out.
pub(crate) fn load(
    files: &ModelFiles,
    family: LibraryFamily,
    options: &EngineOptions,
) -> Result<Generator, EngineError> {
    let description = describe(files, family, options)?;
    let device = match options.devices.first() {
        None | Some(DeviceChoice::Cpu) => Device::Cpu,
        Some(choice) => choice.open()?.0,
    };
    let weights = SharedWeights::new(files, device);
    let mut network = LibraryNetwork::new(
        description,
        weights,
        options.context_tokens,
        options.concurrency,
    );
    let bytes = network.prepare().map_err(|error| {
        let problem = error.to_string();
        let first_line = problem.lines().next().unwrap_or_default();
        EngineError::model(files.description(), first_line, REMEDY)
    })?;
    let weights = Weights {
        bytes,
        mapped_bytes: 0,
    };
    Ok(Generator::new(Box::new(network), options, weights))
}

/// Returns the reader of a model's images; `None` if it sees none.
///
/// # Errors
/// If the files lack the settings of its images, or they contradict each other.
pub(crate) fn vision(
    files: &ModelFiles,
    family: LibraryFamily,
) -> Result<Option<Vision>, EngineError> {
    let (rule, patch, placeholder) = match family {
        LibraryFamily::Qwen3Vl => (ResizeRule::Qwen, 16, 151_655),
        LibraryFamily::PaddleOcrVl => (ResizeRule::Paddle, 14, 100_295),
        _ => return Ok(None),
    };
    let config = ConfigFields::new(files.config());
    let read = || {
        let tower = config.value("vision_config").map(ConfigFields::new);
        let tower = tower.ok_or("vision_config is missing")?;
        let patch = tower.count("patch_size", patch)?;
        let merge = tower.count("spatial_merge_size", 2)?;
        let placeholder = config.count("image_token_id", placeholder)?;
        Ok::<_, String>(((patch, merge), placeholder as u32))
    };
    let (sides, placeholder) =
        read().map_err(|problem| EngineError::model(files.description(), problem, REMEDY))?;
    let processor = Processor::load(files.folder(), rule, sides)?;
    Ok(Some(Vision::new(processor, placeholder)))
}

fn describe(
    files: &ModelFiles,
    family: LibraryFamily,
    options: &EngineOptions,
) -> Result<Description, EngineError> {
    let config = ConfigFields::new(files.config());
    families::describe(family, config, options.context_tokens)
        .map_err(|problem| EngineError::model(files.description(), problem, REMEDY))
}
