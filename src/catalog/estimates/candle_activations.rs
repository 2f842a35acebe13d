//! Memory that the embedded engine uses while computing, in addition to weights and cache: the rows of a step and its logits, or an
//! encoder's attention.

use model_files::families::LibraryFamily;
use model_files::{ModelFiles, Widths};

use crate::documents::ComputeDevice;
use crate::recipes::{CandleRecipe, ModelTask, candle_models};

/// Tokens in one page of the cache, and numbers in one vector.
const PAGE_TOKENS: u64 = 16;
/// Maximum rows computed in one step.
const STEP_ROWS: u64 = 512;
/// Rows with logits in a step that verifies proposed tokens.
const PROPOSING_ROWS: u64 = 16;
/// Tokens of the texts that an encoder computes in one batch.
const ENCODER_ROWS_CPU: u64 = 1024;
const ENCODER_ROWS_GPU: u64 = 16_384;
/// Maximum tokens of pages per token of a batch. Each text has separate pages and counts as at least a quarter of a page.
const ENCODER_PAGED_PER_TOKEN: u64 = 4;

/// Rounds up to full pages of tokens, or full vectors of numbers.
pub(super) fn paged(count: u64) -> u64 {
    count.div_ceil(PAGE_TOKENS).saturating_mul(PAGE_TOKENS)
}

/// Numbers held while a layer computes the rows of a step.
struct Activations {
    rows: u64,
    /// Count of buffers per row that are as wide as the feed-forward part.
    wide: u64,
    /// Additional numbers per row.
    further: u64,
    /// Numbers that do not depend on the rows.
    beside: u64,
}

/// Activation bytes for texts of at most `context` tokens.
pub(crate) fn activations(
    recipe: &CandleRecipe,
    files: &ModelFiles,
    widths: Widths,
    context: u64,
) -> u64 {
    let Activations {
        rows,
        wide,
        further,
        beside,
    } = if recipe.serves == Some(ModelTask::Speech) {
        of_speech(recipe, widths)
    } else if files.architecture.layers.is_empty() {
        of_encoder(recipe, files, widths, context)
    } else if let Some(family) = candle_models::library_family(&files.architecture.origin) {
        of_library(recipe, files, widths, (family, context))
    } else {
        of_decoder(recipe, widths, context)
    };
    let parts = [(4, widths.hidden), (wide, widths.wide), (3, widths.queries)];
    let row = parts.iter().fold(further, |sum, (count, width)| {
        sum.saturating_add(width.saturating_mul(*count))
    });
    rows.saturating_mul(row)
        .saturating_add(beside)
        .saturating_mul(4)
}

fn of_decoder(recipe: &CandleRecipe, widths: Widths, context: u64) -> Activations {
    let concurrency = u64::from(recipe.concurrency);
    let proposes = match recipe.speculation.tokens {
        None => recipe.device == ComputeDevice::Cpu,
        Some(tokens) => tokens > 0,
    };
    // Logits are held twice: as computed, and while tokens are sampled from them.
    let logits = if proposes {
        2 * concurrency.max(PROPOSING_ROWS)
    } else {
        concurrency
    };
    Activations {
        rows: context.saturating_mul(concurrency).min(STEP_ROWS),
        wide: 3,
        further: 0,
        beside: logits.saturating_mul(widths.vocabulary_size),
    }
}

/// A window's frames and positions, and the samples that are ahead of a request's position.
const WINDOW_FRAMES: u64 = 3000;
const WINDOW_ROWS: u64 = WINDOW_FRAMES / 2;
const SAMPLES_AHEAD: u64 = 2 * 480_000;
/// Scores of attention that exist at the same time, with their products.
const SPEECH_SCORES: u64 = 2 << 23;
/// Most bands of a spectrogram, which is held in eight bytes and in four.
const SPECTROGRAM: u64 = 3 * 128 * WINDOW_FRAMES;

fn of_speech(recipe: &CandleRecipe, widths: Widths) -> Activations {
    let samples = SAMPLES_AHEAD.saturating_mul(u64::from(recipe.concurrency));
    // The first convolution has two rows per position, and is held as it is unfolded and multiplied.
    let convolution = widths.hidden.saturating_mul(8 * WINDOW_FRAMES);
    Activations {
        rows: WINDOW_ROWS,
        wide: 2,
        further: 0,
        beside: convolution
            .saturating_add(widths.vocabulary_size.saturating_mul(4))
            .saturating_add(samples)
            .saturating_add(SPEECH_SCORES + SPECTROGRAM),
    }
}

/// One sequence is computed at a time, with full matrices of scores. Tables of positions exist once per sequence.
fn of_library(
    recipe: &CandleRecipe,
    files: &ModelFiles,
    widths: Widths,
    (family, context): (LibraryFamily, u64),
) -> Activations {
    let heads = files.architecture.attention_heads.unwrap_or(1).max(1);
    let concurrency = u64::from(recipe.concurrency);
    let rows = match family {
        // Prompts are computed in one pass.
        LibraryFamily::Lfm2 | LibraryFamily::Phi => context,
        // The text to read, half of the context, is encoded in one pass.
        _ if family.encodes() => context.min(files.architecture.context.unwrap_or(context) / 2),
        _ => context.min(STEP_ROWS),
    };
    let (seen, copies) = match family {
        // States have no scores.
        LibraryFamily::Mamba | LibraryFamily::Mamba2 => (0, 0),
        // T5 also holds what distances add to scores.
        _ if family.encodes() => (rows, 4),
        _ => (context, 3),
    };
    let scores = rows.saturating_mul(heads).saturating_mul(seen);
    let tables = match family {
        LibraryFamily::Mamba | LibraryFamily::Mamba2 => 0,
        // A mask of one byte for each pair of positions.
        LibraryFamily::GptBigCode => context.saturating_mul(context) / 4,
        // Cosines and sines in each layer.
        LibraryFamily::Phi => context
            .saturating_mul(widths.queries / heads)
            .saturating_mul(widths.blocks),
        _ => context.saturating_mul(widths.queries / heads),
    };
    let logits = concurrency.saturating_mul(widths.vocabulary_size);
    Activations {
        rows,
        wide: 3,
        further: 0,
        // Scores, their sum with the mask, and their exponentials.
        beside: scores
            .saturating_mul(copies)
            .saturating_add(tables.saturating_mul(concurrency))
            .saturating_add(logits.saturating_mul(2)),
    }
}

fn of_encoder(
    recipe: &CandleRecipe,
    files: &ModelFiles,
    widths: Widths,
    context: u64,
) -> Activations {
    let usual = match recipe.device {
        ComputeDevice::Cpu => ENCODER_ROWS_CPU,
        ComputeDevice::Cuda | ComputeDevice::Metal => ENCODER_ROWS_GPU,
    };
    let batch = recipe.budgets.prefill.map_or(usual, u64::from);
    // A text that is longer than a batch is computed on its own.
    let rows = batch.max(context);
    let heads = files.architecture.attention_heads.unwrap_or(1).max(1);
    let family = candle_models::encoder_family(&files.architecture.origin);
    let by_kernels = recipe.device == ComputeDevice::Cpu
        && family.is_some_and(|family| !family.has_relative_positions());
    if !by_kernels {
        let scores = rows.saturating_mul(heads).saturating_mul(context);
        return Activations {
            rows,
            wide: 3,
            further: 0,
            beside: scores.saturating_mul(2),
        };
    }
    // The kernels process scores in tiles. They read keys and values from pages that all layers reuse in turn.
    let head = widths.queries.div_ceil(heads);
    let tokens = batch
        .saturating_mul(ENCODER_PAGED_PER_TOKEN)
        .max(paged(context));
    let keys_and_values = head.saturating_add(paged(head));
    Activations {
        rows,
        // A gated part holds both products, the activated product and their combination.
        wide: 4,
        // Cosines and sines of each position, for up to two wavelengths: of the context and of the rows of a batch.
        further: head.saturating_mul(4),
        beside: tokens.saturating_mul(heads).saturating_mul(keys_and_values),
    }
}

#[cfg(test)]
mod tests {
    use model_files::{Architecture, Weights};

    use super::*;
    use crate::recipes::recipe::tests::candle as recipe;

    /// Activation bytes of an encoder with four heads of 24, by the name of its architecture.
    fn activations_of(architecture: &str, device: ComputeDevice, context: u64) -> u64 {
        let folder = tempfile::tempdir().expect("a folder");
        let origin = folder.path().join("config.json");
        let config = format!(r#"{{"architectures": ["{architecture}"]}}"#);
        std::fs::write(&origin, config).expect("written");
        let mut files = ModelFiles {
            weights: Weights::default(),
            architecture: Architecture::new(&origin),
            tensors: Vec::new(),
            by_config: false,
        };
        files.architecture.attention_heads = Some(4);
        let widths = Widths {
            hidden: 96,
            wide: 200,
            queries: 96,
            vocabulary_size: 1000,
            blocks: 2,
            expert: 0,
            experts_used: 0,
        };
        activations(&recipe(device), &files, widths, context)
    }

    #[test]
    fn an_encoder_on_kernels_needs_pages_for_one_layer_and_no_score_matrix() {
        let need = |context| activations_of("BertModel", ComputeDevice::Cpu, context);
        let row = 4 * 96 + 4 * 200 + 3 * 96 + 4 * 24;
        // Keys of 24 numbers; values of 24, rounded up to full vectors of 16.
        let token = 4 * (24 + 32);
        assert_eq!(need(500), (1024 * row + 4 * 1024 * token) * 4);
        assert_eq!(need(2001), (2001 * row + 4 * 1024 * token) * 4);
        let text = 8001_u64.next_multiple_of(16);
        assert_eq!(need(8001), (8001 * row + text * token) * 4, "it is alone");
    }

    #[test]
    fn a_decoder_of_the_library_needs_the_scores_of_one_sequence() {
        let folder = tempfile::tempdir().expect("a folder");
        let need = |name: &str, context| {
            let origin = folder.path().join("config.json");
            let config = format!(
                r#"{{"architectures": ["{name}"], "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 96,
                    "vocab_size": 1000, "n_inner": 200, "num_heads": 4, "d_kv": 24, "d_ff": 200, "num_layers": 2,
                    "n_positions": 1000}}"#
            );
            std::fs::write(&origin, config).expect("written");
            let files = ModelFiles {
                weights: Weights::default(),
                architecture: Architecture::of_config_json(&origin).expect("reads"),
                tensors: Vec::new(),
                by_config: false,
            };
            let widths = files.architecture.widths.expect("widths");
            activations(&recipe(ComputeDevice::Cpu), &files, widths, context)
        };
        let row = 4 * 96 + 3 * 200 + 3 * 96;
        let concurrency = u64::from(recipe(ComputeDevice::Cpu).concurrency);
        let logits = 2 * concurrency * 1000;
        let in_pieces = 512 * row + 3 * 512 * 4 * 2000 + concurrency * 2000 * 24 + logits;
        assert_eq!(need("FalconForCausalLM", 2000), in_pieces * 4);
        let at_once = 2000 * row + 3 * 2000 * 4 * 2000 + concurrency * 2000 * 24 * 2 + logits;
        assert_eq!(need("PhiForCausalLM", 2000), at_once * 4);
        let masked = 512 * row + 3 * 512 * 4 * 2000 + concurrency * 1_000_000 + logits;
        assert_eq!(need("GPTBigCodeForCausalLM", 2000), masked * 4);
        let states = 512 * row + logits;
        assert_eq!(need("Mamba2ForCausalLM", 2000), states * 4);
        let encoded = 1000 * row + 4 * 1000 * 4 * 1000 + concurrency * 2000 * 24 + logits;
        assert_eq!(need("T5ForConditionalGeneration", 2000), encoded * 4);
    }

    #[test]
    fn an_encoder_on_operations_needs_its_score_matrix_twice() {
        let row = 4 * 96 + 3 * 200 + 3 * 96;
        let with_scores = |rows: u64| (rows * row + 2 * rows * 4 * 500) * 4;
        for (architecture, device, rows) in [
            ("MPNetModel", ComputeDevice::Cpu, 1024),
            ("UnknownModel", ComputeDevice::Cpu, 1024),
            ("BertModel", ComputeDevice::Cuda, 16_384),
        ] {
            let need = activations_of(architecture, device, 500);
            assert_eq!(need, with_scores(rows), "{architecture}");
        }
    }
}
