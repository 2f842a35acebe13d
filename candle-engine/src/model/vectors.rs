//! Compares the network with `transformers`: a tiny model of every family with the reference's results, stored in `tests/vectors`
//! (docs/internals/engine-correctness.md describes how they are generated).

use super::{Decoder, HiddenStates, Placement, Resources};
use crate::files::{LoadPlan, ModelFiles};
use crate::kernels::{Pool, Precision};
use crate::progress::Progress;
use crate::step::{PAGE_TOKENS, Page, Span, Step};
use crate::stored_tensor::Encoding;
use candle_core::Device;
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum difference of a logit, relative to the standard deviation of the logits.
pub(crate) const TOLERANCE: f32 = 1e-4;
/// Maximum mean difference with quantised weights. The models' weights are random, including the routers': a rounded router may
/// choose another expert.
const TOLERANCE_Q8_0: f32 = 0.05;
const TOLERANCE_Q8_0_EXPERTS: f32 = 0.25;
const TOLERANCE_Q4_K: f32 = 0.35;
/// Tokens of a prompt and its continuation, in full pages.
const CONTEXT_TOKENS: usize = 176;
const PAGES_EACH: usize = CONTEXT_TOKENS / PAGE_TOKENS;
const FAMILIES_AT_LEAST: usize = 32;

/// The reference results of a model.
pub(crate) struct ReferenceResults {
    pub folder: PathBuf,
    pub prompt: Vec<u32>,
    pub greedy: Vec<u32>,
    pub later_positions: Vec<usize>,
    pub numbers: BTreeMap<String, Vec<f32>>,
}

impl ReferenceResults {
    pub fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("expected.json")).expect("is kept");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let list = |name: &str| -> Vec<u32> {
            serde_json::from_value(json[name].clone()).expect("a list of numbers")
        };
        let bytes = std::fs::read(folder.join("expected.safetensors")).expect("is kept");
        let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
        let numbers = tensors.iter().map(|(name, tensor)| {
            let (numbers, _) = tensor.data().as_chunks::<4>();
            (
                name.to_owned(),
                numbers.iter().copied().map(f32::from_le_bytes).collect(),
            )
        });
        Self {
            folder: folder.to_owned(),
            prompt: list("prompt"),
            greedy: list("greedy"),
            later_positions: list("later_positions")
                .iter()
                .map(|p| *p as usize)
                .collect(),
            numbers: numbers.collect(),
        }
    }

    pub fn name(&self) -> String {
        let name = self.folder.file_name().expect("a name");
        name.to_string_lossy().into_owned()
    }

    /// The standard deviation of the logits.
    pub fn spread(&self) -> f32 {
        let logits = &self.numbers["logits"];
        let count = logits.len() as f32;
        let mean = logits.iter().sum::<f32>() / count;
        let squares: f32 = logits.iter().map(|logit| (logit - mean).powi(2)).sum();
        (squares / count).sqrt()
    }

    /// The prompt and its continuation.
    pub fn with_continuation(&self) -> Vec<u32> {
        [&self.prompt[..], &self.greedy].concat()
    }
}

fn every_model() -> Vec<ReferenceResults> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let entries = std::fs::read_dir(folder).expect("the vectors are kept");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    let names = ["config.json", "expected.safetensors", "expected.json"];
    folders.retain(|folder| names.iter().all(|name| folder.join(name).exists()));
    folders.sort();
    assert!(folders.len() >= FAMILIES_AT_LEAST, "{}", folders.len());
    folders
        .iter()
        .map(|folder| ReferenceResults::read(folder))
        .collect()
}

/// Loads a decoder with pages for this many sequences.
fn decoder(folder: &Path, sequences: usize) -> Result<Decoder, String> {
    quantised(folder, sequences, None)
}

/// Loads a decoder with its matrices quantised on loading.
fn quantised(
    folder: &Path,
    sequences: usize,
    quantization: Option<Encoding>,
) -> Result<Decoder, String> {
    let mut files = ModelFiles::open(folder).map_err(|error| error.to_string())?;
    let plan = LoadPlan {
        quantization,
        verify: true,
    };
    files
        .load(plan, &Progress::default())
        .map_err(|error| error.to_string())?;
    let layers = files
        .spec()
        .map_err(|error| error.to_string())?
        .blocks
        .len();
    let resources = Resources {
        pages: sequences * PAGES_EACH,
        context_tokens: CONTEXT_TOKENS,
        pool: Arc::new(Pool::new(NonZeroUsize::MIN)),
        cache: Precision::F32,
    };
    let placement = Placement::on(&Device::Cpu, layers);
    Decoder::load(&files, &placement, &resources, &|_| Ok(())).map_err(|error| error.to_string())
}

/// Pages of a sequence, neither in order nor contiguous.
fn pages(sequence: usize, sequences: usize) -> Vec<Page> {
    (0..PAGES_EACH)
        .rev()
        .map(|page| (page * sequences + sequence) as Page)
        .collect()
}

/// Runs one step and returns the logits of the requested rows.
fn logits(decoder: &mut Decoder, step: &Step) -> Result<Vec<f32>, String> {
    let (mut hidden, mut logits) = (HiddenStates::default(), Vec::new());
    let run = decoder
        .forward(step, &mut hidden)
        .and_then(|()| decoder.logits(&hidden, 0..hidden.len(), &mut logits));
    run.map(|()| logits).map_err(|error| error.to_string())
}

pub(crate) fn best(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.expect("a vocabulary").0 as u32
}

pub(crate) fn largest_difference(ours: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(ours.len(), expected.len());
    let differences = ours.iter().zip(expected).map(|(a, b)| (a - b).abs());
    // `f32::max` would ignore NaN.
    differences.fold(0.0, |most, next| if next <= most { most } else { next })
}

/// A step with one sequence from its beginning.
fn alone(tokens: &[u32], wanted: Vec<usize>) -> Step {
    Step {
        tokens: tokens.to_vec(),
        spans: vec![Span {
            past: 0,
            count: tokens.len(),
            pages: pages(0, 1),
            adapter: None,
            prompt: 0,
        }],
        wanted,
    }
}

/// Runs the check for every model, and reports all failures instead of the first.
fn for_every_model(check: impl Fn(&ReferenceResults) -> Result<String, String>) {
    let mut failed = Vec::new();
    for expected in every_model() {
        match check(&expected) {
            Ok(line) => println!("{:18} {line}", expected.name()),
            Err(problem) => {
                println!("{:18} FAILS: {problem}", expected.name());
                failed.push(format!("{}: {problem}", expected.name()));
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} models fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn logits_equal_those_of_transformers_at_every_position() {
    for_every_model(|expected| {
        let mut decoder = decoder(&expected.folder, 1)?;
        let spread = expected.spread();
        let step = alone(&expected.prompt, (0..expected.prompt.len()).collect());
        let of_prompt = logits(&mut decoder, &step)?;
        let prompt = largest_difference(&of_prompt, &expected.numbers["logits"]) / spread;
        let step = alone(
            &expected.with_continuation(),
            expected.later_positions.clone(),
        );
        let later = logits(&mut decoder, &step)?;
        let later = largest_difference(&later, &expected.numbers["later_logits"]) / spread;
        let line =
            format!("prompt {prompt:.1e}, continuation {later:.1e} of the spread {spread:.2}");
        if prompt <= TOLERANCE && later <= TOLERANCE {
            Ok(line)
        } else {
            Err(line)
        }
    });
}

#[test]
fn last_hidden_states_equal_those_of_transformers() {
    for_every_model(|expected| {
        let Some(numbers) = expected.numbers.get("hidden") else {
            return Ok("none kept".to_owned());
        };
        let mut decoder = decoder(&expected.folder, 1)?;
        let step = alone(&expected.prompt, (0..expected.prompt.len()).collect());
        let mut hidden = HiddenStates::default();
        decoder
            .forward(&step, &mut hidden)
            .map_err(|error| error.to_string())?;
        let ours: Vec<f32> = (0..hidden.len())
            .flat_map(|row| hidden.row(row).to_vec())
            .collect();
        let size = numbers.iter().fold(0f32, |most, next| most.max(next.abs()));
        let difference = largest_difference(&ours, numbers) / size;
        if difference <= TOLERANCE {
            Ok(format!("{difference:.1e} of the largest"))
        } else {
            Err(format!("{difference:.1e} of the largest"))
        }
    });
}

#[test]
fn greedy_continuations_equal_those_of_transformers_token_for_token() {
    for_every_model(|expected| {
        let mut decoder = decoder(&expected.folder, 1)?;
        let mut step = alone(&expected.prompt, vec![expected.prompt.len() - 1]);
        for (index, token) in expected.greedy.iter().enumerate() {
            let found = best(&logits(&mut decoder, &step)?);
            if found != *token {
                return Err(format!("token {index} is {found}, not {token}"));
            }
            let past = expected.prompt.len() + index;
            step = Step {
                tokens: vec![found],
                spans: vec![Span {
                    past,
                    count: 1,
                    pages: pages(0, 1),
                    adapter: None,
                    prompt: 0,
                }],
                wanted: vec![0],
            };
        }
        Ok(format!("{} tokens", expected.greedy.len()))
    });
}

/// A sequence of a batch, with its computed and chosen tokens.
struct RunningSequence {
    tokens: Vec<u32>,
    prompt: usize,
    computed: usize,
    /// Number of prompt rows to compute per step.
    chunk: usize,
    /// The step in which it joins.
    joins: usize,
}

#[test]
fn greedy_continuations_are_the_same_in_ragged_steps() {
    // Three sequences: the reference's, a later one, and a sequence that starts in the middle of the reference's.
    for_every_model(|expected| {
        let mut decoder = decoder(&expected.folder, 3)?;
        let prompts = [
            &expected.prompt[..],
            &expected.greedy[..19],
            &expected.prompt[5..],
        ];
        let mut running: Vec<RunningSequence> = (prompts.iter().zip([(7, 0), (19, 3), (1, 1)]))
            .map(|(prompt, (chunk, joins))| RunningSequence {
                tokens: prompt.to_vec(),
                prompt: prompt.len(),
                computed: 0,
                chunk,
                joins,
            })
            .collect();
        for round in 0.. {
            let mut step = Step::default();
            let mut choosing = Vec::new();
            for (index, sequence) in running.iter().enumerate() {
                if sequence.joins > round {
                    continue;
                }
                let left = sequence.tokens.len() - sequence.computed;
                let count = left.min(sequence.chunk);
                step.tokens
                    .extend(&sequence.tokens[sequence.computed..][..count]);
                step.spans.push(Span {
                    past: sequence.computed,
                    count,
                    pages: pages(index, 3),
                    adapter: None,
                    prompt: 0,
                });
                if count == left {
                    step.wanted.push(step.tokens.len() - 1);
                    choosing.push(index);
                }
            }
            let rows = logits(&mut decoder, &step)?;
            for (sequence, span) in running
                .iter_mut()
                .filter(|s| s.joins <= round)
                .zip(&step.spans)
            {
                sequence.computed += span.count;
            }
            for (row, index) in choosing.into_iter().enumerate() {
                let width = decoder.vocabulary();
                running[index]
                    .tokens
                    .push(best(&rows[row * width..][..width]));
            }
            if running[0].tokens.len() == CONTEXT_TOKENS - 8 {
                break;
            }
        }
        let ours = &running[0].tokens[running[0].prompt..];
        match ours.iter().zip(&expected.greedy).position(|(a, b)| a != b) {
            None => Ok(format!("{} tokens", ours.len())),
            Some(index) => Err(format!(
                "token {index} is {}, not {}",
                ours[index], expected.greedy[index]
            )),
        }
    });
}

/// Mean difference of a logit from the reference with all matrices quantised, relative to the standard deviation.
fn quantised_difference(expected: &ReferenceResults, encoding: Encoding) -> Result<f32, String> {
    let mut decoder = quantised(&expected.folder, 1, Some(encoding))?;
    let step = alone(&expected.prompt, (0..expected.prompt.len()).collect());
    let ours = logits(&mut decoder, &step)?;
    let logits = &expected.numbers["logits"];
    let sum: f32 = ours.iter().zip(logits).map(|(a, b)| (a - b).abs()).sum();
    Ok(sum / logits.len() as f32 / expected.spread())
}

#[test]
fn eight_bit_weights_change_logits_little() {
    for_every_model(|expected| {
        let difference = quantised_difference(expected, Encoding::Q8_0)?;
        let config = std::fs::read_to_string(expected.folder.join("config.json"));
        let experts = config.expect("is kept").contains("num_experts_per_tok");
        let tolerance = if experts {
            TOLERANCE_Q8_0_EXPERTS
        } else {
            TOLERANCE_Q8_0
        };
        if difference > 0.0 && difference <= tolerance {
            Ok(format!("{difference:.4} of the spread"))
        } else {
            Err(format!("{difference:.4} of the spread"))
        }
    });
}

#[test]
fn four_bit_weights_change_logits_within_tolerance() {
    // The model whose rows are complete blocks.
    let models = every_model();
    let wide = models.iter().find(|model| model.name() == "llama-wide");
    let wide = wide.expect("is kept");
    let four = quantised_difference(wide, Encoding::Q4K).expect("computes");
    let eight = quantised_difference(wide, Encoding::Q8_0).expect("computes");
    println!("Q4_K {four:.4} of the spread, Q8_0 {eight:.4}");
    assert!(four <= TOLERANCE_Q4_K, "{four}");
    assert!(eight < four / 4.0, "{eight} of {four}");
}
