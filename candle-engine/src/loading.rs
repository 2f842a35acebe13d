//! Loads a model, from its folder to the first token, and reports progress.

use crate::batch::{Generator, Weights, page_count};
use crate::chat_template::ChatTemplate;
use crate::device_setup;
use crate::error::EngineError;
use crate::files::{LoadPlan, MappedFile, ModelFiles};
use crate::grammar::Grammars;
use crate::grammar::compiling::GrammarModel;
use crate::kernels::Pool;
use crate::library;
use crate::model::{Decoder, Resources};
use crate::options::{DeviceChoice, EngineOptions, ProductType, Quantization};
use crate::progress::{CONFIG, Progress, TOKENIZER, WARM_UP, WEIGHTS_PERCENT};
use crate::sampling::SamplingSettings;
use crate::tokenizer::ModelTokenizer;
use crate::vision::Vision;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A loaded text-generating model.
pub(crate) struct LoadedModel {
    pub tokenizer: Arc<ModelTokenizer>,
    pub template: Option<ChatTemplate>,
    /// The reader of images; `None` if the model reads only text.
    pub vision: Option<Vision>,
    pub generator: Generator,
    /// The files of its weights.
    pub files: Vec<Arc<MappedFile>>,
    /// Sampling settings for requests that omit them.
    pub sampling_defaults: SamplingSettings,
    /// The compiler and cache of grammars.
    pub grammars: Grammars,
}

impl LoadedModel {
    /// Returns true if a conversation is one text that the model encodes, because it has no chat template.
    pub fn reads_source(&self) -> bool {
        self.template.is_none() && self.generator.encodes_at_most.is_some()
    }
}

impl GrammarModel for LoadedModel {
    fn grammars(&self) -> &Grammars {
        &self.grammars
    }

    fn tokenizer(&self) -> &ModelTokenizer {
        &self.tokenizer
    }
}

/// Opens the model's files.
///
/// # Errors
/// If files are missing or corrupt, or options contradict them.
pub(crate) fn open(
    options: &EngineOptions,
    progress: &Progress,
) -> Result<ModelFiles, EngineError> {
    progress.set(CONFIG, 0)?;
    let files = ModelFiles::open(&options.model_dir)?;
    let most = match files.library() {
        Some(family) => library::check(&files, family, options)?,
        None => files.spec()?.context_tokens,
    };
    if options.context_tokens > most {
        return Err(EngineError::option(
            "context_tokens",
            format!(
                "{} is more than the model's {most} (by {}); give at most {most}",
                options.context_tokens,
                files.description().display()
            ),
        ));
    }
    Ok(files)
}

/// Loads the model and computes one token, to warm up before the first request.
///
/// # Errors
/// If the options, the folder or the device are unusable, or memory runs out.
pub(crate) fn load(
    files: &mut ModelFiles,
    options: &EngineOptions,
    progress: &Progress,
) -> Result<LoadedModel, EngineError> {
    progress.set(TOKENIZER, 2)?;
    let plan = LoadPlan {
        quantization: options.quantization.map(Quantization::encoding),
        verify: options.verify,
    };
    // Builds the tokenizer on the CPU while the disk is read.
    let (texts, written) = std::thread::scope(|scope| {
        let written = scope.spawn(|| files.read(plan, progress));
        let texts = tokenizer_and_template(files);
        if texts.is_err() {
            progress.cancel();
        }
        (texts, written.join())
    });
    let (tokenizer, template) = texts?;
    files.take(written.map_err(|_| EngineError::load("the thread that reads weights panicked"))??);
    let vision = match files.library() {
        Some(family) => {
            library::vision(files, family)?.map(|vision| vision.with_template(template.as_ref()))
        }
        None => None,
    };
    let generator = match files.library() {
        Some(family) => library::load(files, family, options)?,
        None => own_generator(files, options, progress)?,
    };
    progress.set(WARM_UP, WEIGHTS_PERCENT.end)?;
    generator.warm_up()?;
    progress.set(WARM_UP, 100)?;
    Ok(LoadedModel {
        tokenizer: Arc::new(tokenizer),
        template,
        vision,
        generator,
        files: files.mapped().to_vec(),
        sampling_defaults: files.sampling_defaults().clone(),
        grammars: Grammars::new(options.grammar_trial.clone()),
    })
}

/// Loads a decoder that this crate's own network computes.
fn own_generator(
    files: &ModelFiles,
    options: &EngineOptions,
    progress: &Progress,
) -> Result<Generator, EngineError> {
    let placement = device_setup::place(options, files)?;
    let resources = Resources {
        pages: page_count(options),
        context_tokens: options.context_tokens,
        pool: Arc::new(pool(threads(options), options.numbers.products)),
        cache: options.numbers.kv_cache.precision(),
    };
    let decoder = Decoder::load(files, &placement, &resources, &|_| progress.weights(1, 1))?;
    let weights = Weights {
        bytes: decoder.weights_bytes(),
        mapped_bytes: match options.devices.as_slice() {
            [DeviceChoice::Cpu] => files.weights_bytes() - files.held_bytes(),
            _ => 0,
        },
    };
    Ok(Generator::new(Box::new(decoder), options, weights))
}

/// Loads the tokenizer, and the chat template if the model has one.
fn tokenizer_and_template(
    files: &ModelFiles,
) -> Result<(ModelTokenizer, Option<ChatTemplate>), EngineError> {
    let tokenizer = ModelTokenizer::load(files)?;
    let template = ChatTemplate::load(
        files,
        tokenizer.bos_token.as_deref(),
        tokenizer.eos_token.as_deref(),
    )?;
    Ok((tokenizer, template))
}

/// Starts the CPU's compute threads for BF16 products of the given type.
pub(crate) fn pool(threads: NonZeroUsize, products: ProductType) -> Pool {
    let pool = Pool::new(threads);
    if products.rounds() {
        pool.rounding()
    } else {
        pool
    }
}

/// Number of compute threads: as many as this process may use, or fewer by option.
fn threads(options: &EngineOptions) -> NonZeroUsize {
    options
        .threads
        .and_then(NonZeroUsize::new)
        .or_else(|| std::thread::available_parallelism().ok())
        .unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_moves_forward_and_ends_when_cancelled() {
        let progress = Progress::default();
        assert_eq!(progress.read(), ("config", 0));
        progress.weights(50, 100).expect("not cancelled");
        assert_eq!(progress.read(), ("weights", 50));
        progress
            .weights(0, 0)
            .expect("a model without weights does not divide by zero");
        progress.cancel();
        assert!(progress.weights(100, 100).is_err());
    }
}
