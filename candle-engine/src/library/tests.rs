//! Compares the library's families with `transformers`, on tiny models stored in `tests/vectors/library`, and tests how sequences
//! share a network.

use super::network::LibraryNetwork;
use super::weights::SharedWeights;
use super::{families, loading};
use crate::batch::Network;
use crate::files::{ConfigFields, ModelFiles};
use crate::model::HiddenStates;
use crate::model::vectors::{ReferenceResults, TOLERANCE, best, largest_difference};
use crate::options::{CacheType, EngineOptions, Listen, NumberTypes, Quantization};
use crate::step::{PAGE_TOKENS, Page, Span, Step};
use candle_core::Device;
use model_files::families::{DECODERS, LIBRARY_DECODERS, library_decoder};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

mod seen;

const CONTEXT_TOKENS: usize = 176;
/// No reference has logits as low.
const SUPPRESSED: f32 = -1e20;

fn every_model() -> Vec<ReferenceResults> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/library");
    let entries = std::fs::read_dir(folder).expect("the vectors are kept");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    folders.sort();
    folders
        .iter()
        .map(|folder| ReferenceResults::read(folder))
        .collect()
}

fn network(folder: &Path) -> Result<LibraryNetwork, String> {
    let files = ModelFiles::open(folder).map_err(|error| error.to_string())?;
    let family = files.library().ok_or("it is not the library's")?;
    let config = ConfigFields::new(files.config());
    let description = families::describe(family, config, CONTEXT_TOKENS)?;
    let weights = SharedWeights::new(&files, Device::Cpu);
    let mut network = LibraryNetwork::new(description, weights, CONTEXT_TOKENS, 2);
    network.prepare().map_err(|error| error.to_string())?;
    Ok(network)
}

/// The pages of a sequence, which no other sequence has.
fn pages(sequence: usize) -> Vec<Page> {
    let count = CONTEXT_TOKENS.div_ceil(PAGE_TOKENS);
    (0..count)
        .map(|page| (sequence * count + page) as Page)
        .collect()
}

fn span(sequence: usize, past: usize, count: usize, prompt: usize) -> Span {
    Span {
        past,
        count,
        pages: pages(sequence),
        prompt,
        adapter: None,
    }
}

/// A step with one sequence from its beginning, of which the first `prompt` tokens are the prompt.
fn alone(tokens: &[u32], wanted: Vec<usize>, prompt: usize) -> Step {
    Step {
        tokens: tokens.to_vec(),
        spans: vec![span(0, 0, tokens.len(), prompt)],
        wanted,
    }
}

fn logits(network: &mut LibraryNetwork, step: &Step) -> Result<Vec<f32>, String> {
    let (mut hidden, mut logits) = (HiddenStates::default(), Vec::new());
    network
        .forward(step, &mut hidden)
        .and_then(|()| network.logits(&hidden, 0..hidden.len(), &mut logits))
        .map_err(|error| error.to_string())?;
    // References keep zero for the token that Marian suppresses.
    for logit in logits.iter_mut().filter(|logit| **logit < SUPPRESSED) {
        *logit = 0.0;
    }
    Ok(logits)
}

/// Runs the check for every model, and reports all failures instead of the first.
fn for_every_model(check: impl Fn(&ReferenceResults) -> Result<String, String>) {
    let mut failed = Vec::new();
    for expected in every_model() {
        match check(&expected) {
            Ok(line) => println!("{:18} {line}", expected.name()),
            Err(problem) => failed.push(format!("{}: {problem}", expected.name())),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn logits_equal_those_of_transformers_at_every_position() {
    for_every_model(|expected| {
        let spread = expected.spread();
        let mut network = network(&expected.folder)?;
        let prompt = expected.prompt.len();
        let all = expected.with_continuation();
        // A model that encodes its prompt has no logits before the prompt's last token.
        let first = network.encodes_at_most().map_or(0, |_| prompt - 1);
        let rows = expected.numbers["logits"].len() / network.vocabulary();
        let kept = &all[..first + rows];
        let step = alone(kept, (first..kept.len()).collect(), prompt);
        let each = largest_difference(&logits(&mut network, &step)?, &expected.numbers["logits"]);
        // The last row alone: the rows of the prompt before it are computed in one pass.
        let last = alone(kept, vec![kept.len() - 1], prompt);
        let row = network.vocabulary() * (rows - 1);
        let last = logits(&mut network, &last)?;
        let last = largest_difference(&last, &expected.numbers["logits"][row..]);
        let step = alone(&all, expected.later_positions.clone(), prompt);
        let later = logits(&mut network, &step)?;
        let later = largest_difference(&later, &expected.numbers["later_logits"]);
        let [each, last, later] = [each, last, later].map(|difference| difference / spread);
        let line = format!("each {each:.1e}, last {last:.1e}, continuation {later:.1e}");
        if each <= TOLERANCE && last <= TOLERANCE && later <= TOLERANCE {
            Ok(line)
        } else {
            Err(line)
        }
    });
}

#[test]
fn greedy_continuations_equal_those_of_transformers_token_for_token() {
    for_every_model(|expected| {
        let mut network = network(&expected.folder)?;
        let prompt = expected.prompt.len();
        let mut step = alone(&expected.prompt, vec![prompt - 1], prompt);
        for (index, token) in expected.greedy.iter().enumerate() {
            let found = best(&logits(&mut network, &step)?);
            if found != *token {
                return Err(format!("token {index} is {found}, not {token}"));
            }
            step = Step {
                tokens: vec![found],
                spans: vec![span(0, prompt + index, 1, prompt)],
                wanted: vec![0],
            };
        }
        Ok(format!("{} tokens", expected.greedy.len()))
    });
}

#[test]
fn sequences_in_pieces_do_not_disturb_each_other() {
    for_every_model(|expected| {
        let mut network = network(&expected.folder)?;
        let other = &expected.greedy[..30];
        let mut tokens = [expected.prompt.clone(), other.to_vec()];
        let mut prompts = tokens.each_ref().map(Vec::len);
        let mut computed = [0, 0];
        let mut found = Vec::new();
        while found.len() < 40 {
            let mut step = Step::default();
            for (nth, tokens) in tokens.iter().enumerate() {
                let count = (tokens.len() - computed[nth]).min(7);
                if count == 0 {
                    continue;
                }
                step.tokens.extend(&tokens[computed[nth]..][..count]);
                step.spans
                    .push(span(nth, computed[nth], count, prompts[nth]));
                computed[nth] += count;
                if computed[nth] == tokens.len() {
                    step.wanted.push(step.tokens.len() - 1);
                }
            }
            let is_chosen = computed[0] == tokens[0].len();
            let rows = logits(&mut network, &step)?;
            if is_chosen {
                let next = best(&rows[..network.vocabulary()]);
                found.push(next);
                tokens[0].push(next);
            }
            if found.len() == 20 {
                // The other sequence ends, and a third begins on its pages.
                network.keep_sequences(&BTreeSet::from([pages(0)[0]]));
                tokens[1] = expected.prompt[3..].to_vec();
                prompts[1] = tokens[1].len();
                computed[1] = 0;
            }
        }
        if found == expected.greedy[..40] {
            Ok("40 tokens".to_owned())
        } else {
            Err(format!("{found:?}"))
        }
    });
}

#[test]
fn a_sequence_that_was_freed_does_not_continue() {
    let model = &every_model()[0];
    let mut network = network(&model.folder).expect("loads");
    logits(&mut network, &alone(&[1, 2, 3], vec![2], 3)).expect("computes");
    network.keep_sequences(&BTreeSet::new());
    let next = Step {
        tokens: vec![4],
        spans: vec![span(0, 3, 1, 3)],
        wanted: vec![0],
    };
    let error = logits(&mut network, &next).expect_err("the cache is gone");
    assert!(error.contains("has not computed 3 tokens"), "{error}");
}

#[test]
fn a_network_that_encodes_its_prompt_has_no_logits_of_a_part_of_it() {
    let models = every_model();
    let model = models.iter().find(|model| model.name() == "t5");
    let mut network = network(&model.expect("is kept").folder).expect("loads");
    assert_eq!(network.encodes_at_most(), Some(256));
    for (prompt, problem) in [(4, "a part of the prompt"), (0, "no prompt to encode")] {
        let error = logits(&mut network, &alone(&[5, 6, 7], vec![2], prompt));
        let error = error.expect_err("must be refused");
        assert!(error.contains(problem), "{error}");
    }
    logits(&mut network, &alone(&[5, 6, 7], vec![2], 3)).expect("computes");
}

#[test]
fn a_network_computes_the_same_after_it_slept() {
    let model = &every_model()[0];
    let mut network = network(&model.folder).expect("loads");
    let prompt = model.prompt.len();
    let step = alone(&model.prompt, vec![prompt - 1], prompt);
    let before = logits(&mut network, &step).expect("computes");
    network.sleep().expect("sleeps");
    network.wake().expect("wakes");
    assert_eq!(logits(&mut network, &step).expect("computes"), before);
}

#[test]
fn every_family_of_the_library_has_a_vector() {
    let found: BTreeSet<String> = every_model()
        .iter()
        .map(|model| {
            let files = ModelFiles::open(&model.folder).expect("opens");
            format!("{:?}", files.library())
        })
        .collect();
    for (name, family) in LIBRARY_DECODERS {
        assert!(found.contains(&format!("{:?}", Some(family))), "{name}");
    }
}

#[test]
fn the_documented_table_names_the_path_of_every_architecture() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/internals/engine-library.md");
    let text = std::fs::read_to_string(file).expect("the document");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let mut found: Vec<(&str, &str)> = rows
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            Some((cells.next()?.trim_matches('`'), cells.next()?))
        })
        .filter(|(_, path)| ["own", "library", "none"].contains(path))
        .collect();
    found.retain(|(name, path)| *path != "none" || library_decoder(name).is_some());
    found.sort_unstable();
    let own = DECODERS.iter().map(|(name, _)| (*name, "own"));
    let library = LIBRARY_DECODERS.iter().map(|(name, _)| (*name, "library"));
    let mut expected: Vec<(&str, &str)> = own.chain(library).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// The problem of a tiny model's configuration with one changed field.
fn problem(name: &str, field: &str, value: serde_json::Value) -> String {
    let models = every_model();
    let model = models.iter().find(|model| model.name() == name);
    let text = std::fs::read_to_string(model.expect("is kept").folder.join("config.json"));
    let mut config: serde_json::Value = serde_json::from_str(&text.expect("reads")).expect("JSON");
    config[field] = value;
    let architecture = config["architectures"][0].as_str().expect("a name");
    let family = library_decoder(architecture).expect("the library's");
    let described = families::describe(family, ConfigFields::new(&config), CONTEXT_TOKENS);
    described.err().unwrap_or_default()
}

#[test]
fn configurations_that_a_family_does_not_compute_are_refused_by_field() {
    use serde_json::json;
    for (name, field, value) in [
        ("falcon", "alibi", json!(true)),
        ("falcon", "multi_query", json!(false)),
        ("falcon", "activation", json!("relu")),
        (
            "falcon",
            "rope_scaling",
            json!({"type": "linear", "factor": 2.0}),
        ),
        ("falcon", "hidden_size", json!(17)),
        ("mpt", "no_bias", json!(false)),
        ("mpt", "attn_config", json!({"qk_ln": true})),
        ("mpt", "attn_config", json!({"kv_n_heads": 1})),
        ("mpt", "expansion_ratio", json!(3)),
        ("starcoder", "multi_query", json!(false)),
        ("starcoder", "activation_function", json!("gelu")),
        ("starcoder2", "tie_word_embeddings", json!(false)),
        ("stablelm", "use_parallel_residual", json!(true)),
        ("phi", "qk_layernorm", json!(true)),
        ("olmo", "attention_bias", json!(true)),
        ("glm4", "num_key_value_heads", json!(3)),
        (
            "qwen3-vl",
            "vision_config",
            json!({"in_channels": 1, "hidden_size": 16, "num_heads": 2}),
        ),
        ("mamba", "state_size", json!(8)),
        ("mamba", "time_step_rank", json!(2)),
        ("mamba2", "use_conv_bias", json!(false)),
        ("mamba2", "n_groups", json!(3)),
        ("mamba2", "num_heads", json!(1_u64 << 40)),
        ("mamba2", "time_step_limit", json!([0.0, 0.5])),
        ("t5", "feed_forward_proj", json!("gated-tanh")),
        ("t5", "d_model", json!(1_u64 << 30)),
        ("t5", "num_layers", json!(5000)),
        ("t5", "relative_attention_num_buckets", json!(6)),
        ("t5", "relative_attention_max_distance", json!(16)),
        ("t5", "decoder_start_token_id", json!(64)),
        ("marian", "share_encoder_decoder_embeddings", json!(false)),
        ("marian", "tie_word_embeddings", json!(false)),
        ("marian", "d_model", json!(15)),
        ("marian", "encoder_attention_heads", json!(5)),
        ("marian", "decoder_layers", json!(5000)),
        ("marian", "activation_function", json!("tanh")),
        ("marian", "pad_token_id", json!(64)),
        ("marian", "decoder_start_token_id", json!(null)),
    ] {
        let found = problem(name, field, value.clone());
        let inner = value.as_object().and_then(|object| object.keys().next());
        let named = inner
            .filter(|_| ["attn_config", "vision_config"].contains(&field))
            .map_or(field, String::as_str);
        let is_named = found.contains(named) || found.contains("key-value heads");
        assert!(is_named, "{name} with {field} {value}: {found:?}");
    }
    assert_eq!(problem("falcon", "use_cache", json!(true)), "");
}

#[test]
fn a_window_limits_the_context_of_starcoder_2() {
    let models = every_model();
    let model = models.iter().find(|model| model.name() == "starcoder2");
    let files = ModelFiles::open(&model.expect("is kept").folder).expect("opens");
    let family = files.library().expect("the library's");
    let options = EngineOptions::new("unused", "name", Listen::Unix("unused".into()));
    assert_eq!(loading::check(&files, family, &options).ok(), Some(256));
}

#[test]
fn options_that_do_not_apply_are_refused_by_name() {
    let models = every_model();
    let files = ModelFiles::open(&models[0].folder).expect("opens");
    let family = files.library().expect("the library's");
    let new = || EngineOptions::new("unused", "name", Listen::Unix("unused".into()));
    let quantised = EngineOptions {
        quantization: Some(Quantization::Q8_0),
        ..new()
    };
    let narrow = EngineOptions {
        numbers: NumberTypes {
            kv_cache: CacheType::F16,
            ..NumberTypes::default()
        },
        ..new()
    };
    let mut adapted = new();
    let adapter = ("name".to_owned(), "folder".into());
    adapted.adapters.at_start.push(adapter);
    let mut divided = new();
    divided.devices.push(crate::options::DeviceChoice::Cpu);
    for (options, name) in [
        (quantised, "quantization"),
        (narrow, "kv_cache_dtype"),
        (adapted, "lora_modules"),
        (divided, "devices"),
    ] {
        let error = loading::check(&files, family, &options).expect_err("must be refused");
        assert!(error.to_string().starts_with(name), "{error}");
    }
}
