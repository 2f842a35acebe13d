//! Answers of a demo model: their ends, limits, scores and strategies. Owns no helper for others.

use super::*;
use crate::decoding::{BeamSettings, ContrastiveSettings, EarlyStopping};
use crate::loading::{LoadedModel, Progress, load};
use crate::options::{DeviceChoice, Listen};
use crate::pieces::Piece;
use std::collections::BTreeMap;
use std::path::Path;

fn demo() -> LoadedModel {
    let options = EngineOptions {
        model_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat"),
        model_name: "tiny-chat".to_owned(),
        listen: Listen::Unix("unused".into()),
        context_tokens: 512,
        concurrency: 1,
        devices: vec![DeviceChoice::Cpu],
        device_bytes: None,
        quantization: None,
        verify: false,
        threads: None,
        budgets: TokenBudgets::default(),
    };
    load(&options, &Progress::default()).expect("the demo model loads")
}

/// An answer that only its limit ends.
fn endless(prompt: Vec<u32>, max_tokens: usize) -> GenerationRequest {
    let logit_bias = BTreeMap::from([(0, -100.0), (2, -100.0)]);
    let sampling = SamplingSettings {
        temperature: 2.0,
        seed: Some(1),
        logit_bias,
        ..Default::default()
    };
    GenerationRequest {
        prompt: prompt.into(),
        max_tokens,
        ending: Ending::default(),
        sampling,
        strategy: Strategy::Sampling,
        scores: Scores::default(),
        echo: None,
        constraint: None,
        answers: 1,
    }
}

/// Generates the whole answer.
fn whole(model: &LoadedModel, request: &GenerationRequest) -> (Piece, Outcome) {
    let mut all = Piece::default();
    let give = |piece: Piece| {
        all.text += &piece.text;
        all.tokens.extend(piece.tokens);
        true
    };
    let outcome = model.generator.generate(request, &model.tokenizer, give);
    let outcome = outcome.expect("computes").expect("is not cancelled");
    (all, outcome)
}

fn greedy(request: GenerationRequest) -> GenerationRequest {
    let sampling = SamplingSettings {
        temperature: 0.0,
        ..Default::default()
    };
    GenerationRequest {
        sampling,
        ..request
    }
}

#[test]
fn tokens_end_an_answer_but_not_before_its_least_length() {
    let model = demo();
    let greedy = |ending: Ending| {
        let request = GenerationRequest {
            ending,
            ..greedy(endless(vec![5, 9], 24))
        };
        let (piece, outcome) = whole(&model, &request);
        (piece.text, outcome)
    };
    let long = Ending {
        ignores_end: true,
        ..Ending::default()
    };
    let (whole, outcome) = greedy(long.clone());
    assert_eq!(outcome.completion_tokens, 24);
    // Each token of the answer, as an end, cuts it off where it first stands.
    let tokens = model.tokenizer.encode(&whole, false).unwrap();
    let end = Ending {
        stop_tokens: vec![vec![tokens[2]]],
        ..long.clone()
    };
    let (cut, outcome) = greedy(end.clone());
    assert!(whole.starts_with(&cut) && cut.len() < whole.len());
    assert_eq!(outcome.reason, FinishReason::Stop);
    let (_, outcome) = greedy(Ending {
        min_tokens: 20,
        ..end
    });
    assert!(outcome.completion_tokens >= 20);
    let row = Ending {
        stop_tokens: vec![tokens[2..4].to_vec()],
        ..long
    };
    let text = text_of(&tokens[2..4], &model.tokenizer).unwrap();
    let (cut, _) = greedy(row);
    assert_eq!(cut, whole.split(&text).next().unwrap());
}

#[test]
fn a_client_that_leaves_stops_the_computation_at_the_next_token() {
    let model = demo();
    let (mut given, mut cache_bytes) = (0, 0);
    let outcome = model
        .generator
        .generate(&endless(vec![5], 400), &model.tokenizer, |_| {
            given += 1;
            cache_bytes = model.generator.kv_cache_use.bytes();
            given < 4
        });
    // Once before the prompt, then once for each token until nobody wanted more.
    assert_eq!((outcome, given), (Ok(None), 4));
    assert_eq!(cache_bytes, 3 * model.generator.kv_bytes_per_token);
    assert_eq!(
        model.generator.kv_cache_use.bytes(),
        0,
        "its cache is given back"
    );
}

#[test]
fn a_long_prompt_in_chunks_means_the_same_as_in_one() {
    let model = demo();
    let prompt: Vec<u32> = (0..400).map(|index| 3 + index % 600).collect();
    let whole = model
        .generator
        .next_logits(&prompt, &mut model.generator.llama.empty_cache())
        .expect("computes");
    let mut cache = model.generator.llama.empty_cache();
    let mut last = Vec::new();
    for chunk in prompt.chunks(PROMPT_CHUNK_TOKENS) {
        last = model
            .generator
            .next_logits(chunk, &mut cache)
            .expect("computes");
    }
    let largest = whole
        .iter()
        .zip(&last)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(largest < 1e-3, "{largest}");
}

#[test]
fn an_answer_has_exactly_as_many_tokens_as_its_limit() {
    let (_, outcome) = whole(&demo(), &endless(vec![5, 6], 7));
    assert_eq!(outcome.reason, FinishReason::Length);
    assert_eq!(outcome.completion_tokens, 7);
}

#[test]
fn probabilities_are_those_of_the_model_whatever_the_sampling() {
    let model = demo();
    let scored = |sampling: SamplingSettings| {
        let request = GenerationRequest {
            sampling,
            scores: Scores {
                shown: Some(3),
                summed: true,
            },
            ..endless(vec![5, 9], 1)
        };
        whole(&model, &request)
    };
    let plain = scored(SamplingSettings {
        temperature: 0.0,
        ..Default::default()
    });
    let best = plain.0.tokens[0].logprob.clone().expect("a logprob");
    assert_eq!((best.token, best.logprob), best.top[0]);
    assert!((plain.1.logprob_sum - f64::from(best.logprob)).abs() < 1e-6);
    // Another token by a bias, at another temperature, with a penalty: the distribution is the same.
    let other = best.top[2].0;
    let bent = scored(SamplingSettings {
        temperature: 0.7,
        top_k: Some(2),
        repetition_penalty: 1.5,
        logit_bias: BTreeMap::from([(other, 100.0)]),
        ..Default::default()
    });
    let bent = bent.0.tokens[0].logprob.clone().expect("a logprob");
    assert_eq!((bent.token, bent.top.clone()), (other, best.top.clone()));
    assert_eq!(bent.logprob, best.top[2].1);
}

#[test]
fn a_prompt_that_is_given_out_has_its_own_probabilities() {
    let model = demo();
    let prompt = model.tokenizer.encode("Keep-hot is how long", true);
    let prompt = prompt.expect("encodes");
    let request = |prompt: &[u32], max_tokens| GenerationRequest {
        echo: Some("Keep-hot is how long".into()),
        scores: Scores {
            shown: Some(2),
            summed: false,
        },
        ..greedy(endless(prompt.to_vec(), max_tokens))
    };
    let (looked_at, outcome) = whole(&model, &request(&prompt, 0));
    assert_eq!(looked_at.text, "Keep-hot is how long");
    assert_eq!(outcome.completion_tokens, 0);
    let ids: Vec<u32> = looked_at.tokens.iter().map(|token| token.token).collect();
    assert_eq!(ids, prompt);
    assert_eq!(looked_at.tokens[0].logprob, None);
    // Each probability of the prompt is the one that its beginning gives.
    for cut in [1, 3, prompt.len() - 1] {
        let (mut cache, wanted) = (model.generator.llama.empty_cache(), prompt[cut]);
        let mut logits = model
            .generator
            .next_logits(&prompt[..cut], &mut cache)
            .expect("computes");
        logits.truncate(model.tokenizer.vocabulary);
        let wanted = logprob_of(&logits, wanted, 2);
        let found = looked_at.tokens[cut].logprob.as_ref().expect("a logprob");
        assert!(
            (found.logprob - wanted.logprob).abs() < 1e-4,
            "{found:?} {wanted:?}"
        );
        assert_eq!(found.top[0].0, wanted.top[0].0);
    }
    let (more, _) = whole(&model, &request(&prompt, 4));
    assert!(more.text.starts_with("Keep-hot is how long"));
    let letters = "Keep-hot is how long".chars().count();
    assert_eq!(more.tokens[prompt.len()].offset, letters);
}

fn beams(beams: usize, length_penalty: f32) -> BeamSettings {
    BeamSettings {
        beams,
        length_penalty,
        early_stopping: EarlyStopping::WhenWorse,
    }
}

/// Answers of a beam search, with the sum of logprobs of each.
fn searched(
    model: &LoadedModel,
    request: &GenerationRequest,
    settings: BeamSettings,
) -> Vec<(String, Outcome)> {
    let found = model
        .generator
        .search(request, settings, &model.tokenizer, || true);
    found.expect("computes").expect("is not cancelled")
}

/// The sum of logprobs of `answer` after `prompt`, computed in one go.
fn sum_of(model: &LoadedModel, prompt: &[u32], answer: &[u32]) -> f64 {
    let all: Vec<u32> = prompt.iter().chain(answer).copied().collect();
    let hidden = model
        .generator
        .llama
        .forward(&all, &mut model.generator.llama.empty_cache());
    let rows = model
        .generator
        .llama
        .logits(&hidden.expect("computes"), 0, all.len());
    let rows = rows.expect("computes");
    let mut sum = 0.0;
    for (nth, token) in answer.iter().enumerate() {
        let mut row = rows[prompt.len() - 1 + nth].clone();
        row.truncate(model.tokenizer.vocabulary);
        sum += f64::from(logprob_of(&row, *token, 0).logprob);
    }
    sum
}

#[test]
fn a_beam_search_finds_the_best_of_all_answers() {
    let model = demo();
    let prompt = vec![5, 9];
    let request = GenerationRequest {
        answers: 3,
        ending: Ending {
            ignores_end: true,
            ..Ending::default()
        },
        ..greedy(endless(prompt.clone(), 2))
    };
    // Eight beams over two tokens: the best pair is the best of the pairs that begin with the eight best tokens.
    let found = searched(&model, &request, beams(8, 1.0));
    let mut cache = model.generator.llama.empty_cache();
    let mut first = model
        .generator
        .next_logits(&prompt, &mut cache)
        .expect("computes");
    first.truncate(model.tokenizer.vocabulary);
    let mut pairs: Vec<(f64, [u32; 2])> = Vec::new();
    for (one, logprob) in logprob_of(&first, 0, 8).top {
        let mut cache = cache.clone();
        let mut second = model
            .generator
            .next_logits(&[one], &mut cache)
            .expect("computes");
        second.truncate(model.tokenizer.vocabulary);
        for (two, more) in logprob_of(&second, 0, 16).top {
            pairs.push((f64::from(logprob) + f64::from(more), [one, two]));
        }
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    for ((text, outcome), (sum, pair)) in found.iter().zip(&pairs) {
        assert_eq!(text, &text_of(pair, &model.tokenizer).expect("decodes"));
        assert!((outcome.logprob_sum - sum).abs() < 1e-4);
        assert!((sum_of(&model, &prompt, pair) - sum).abs() < 1e-3);
        assert_eq!(outcome.reason, FinishReason::Length);
    }
    assert_eq!(found.len(), 3);
    assert_eq!(model.generator.kv_cache_use.bytes(), 0);
}

#[test]
fn beams_end_by_tokens_and_stop_strings_and_are_cancelled() {
    let model = demo();
    let prompt = model.tokenizer.encode(
        "<|im_start|>user\nWhere is Swagger UI?<|im_end|>\n<|im_start|>assistant\n",
        false,
    );
    let request = greedy(endless(prompt.expect("encodes"), 60));
    let (text, outcome) = searched(&model, &request, beams(3, 1.0)).remove(0);
    assert_eq!(outcome.reason, FinishReason::Stop);
    assert!(text.starts_with("Swagger UI is at"), "{text}");
    let stopping = GenerationRequest {
        ending: Ending {
            stop: vec![" at /llm".to_owned()],
            ..Ending::default()
        },
        ..request.clone()
    };
    let (text, _) = searched(&model, &stopping, beams(3, 1.0)).remove(0);
    assert_eq!(text, "Swagger UI is");
    let mut asked = 0;
    let cancelled = model
        .generator
        .search(&request, beams(3, 1.0), &model.tokenizer, || {
            asked += 1;
            asked < 4
        });
    assert_eq!(cancelled.expect("no error"), None);
}

#[test]
fn contrastive_search_without_a_penalty_is_greedy_and_with_one_is_not() {
    let model = demo();
    let with = |strategy: Strategy| {
        let request = GenerationRequest {
            strategy,
            ending: Ending {
                ignores_end: true,
                ..Ending::default()
            },
            scores: Scores {
                shown: Some(1),
                summed: false,
            },
            ..greedy(endless(vec![5, 9], 30))
        };
        whole(&model, &request).0
    };
    let contrast = |penalty_alpha: f32| {
        with(Strategy::Contrastive(ContrastiveSettings {
            penalty_alpha,
            candidates: 4,
        }))
    };
    let plain = with(Strategy::Sampling);
    assert_eq!(contrast(0.0).text, plain.text);
    let other = contrast(0.6);
    assert_ne!(other.text, plain.text);
    assert_eq!(other, contrast(0.6), "nothing is drawn");
    // The logits after a chosen candidate are those of the network after the whole text so far.
    let tokens: Vec<u32> = other.tokens.iter().map(|token| token.token).collect();
    let sum: f64 = other
        .tokens
        .iter()
        .map(|token| f64::from(token.logprob.as_ref().expect("shown").logprob))
        .sum();
    assert!((sum - sum_of(&model, &[5, 9], &tokens)).abs() < 1e-2);
}

#[test]
fn a_grammar_holds_in_every_strategy() {
    let model = demo();
    let schema = serde_json::json!({"type": "object", "required": ["a", "b"], "additionalProperties": false,
        "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "integer", "minimum": 0, "maximum": 999}}});
    let grammar = crate::grammar::Grammar::Json {
        schema,
        lenient: false,
    };
    let constraint = model
        .grammars
        .constraint(&grammar, &model.tokenizer, "x")
        .expect("compiles");
    let contrastive = ContrastiveSettings {
        penalty_alpha: 0.6,
        candidates: 4,
    };
    for strategy in [
        Strategy::Sampling,
        Strategy::Contrastive(contrastive),
        Strategy::Beams(beams(3, 1.0)),
    ] {
        for seed in 0..3 {
            let mut request = endless(vec![5, 9], 200);
            request.sampling.seed = Some(seed);
            request.constraint = Some(constraint.clone());
            request.strategy = strategy;
            let (text, outcome) = match strategy {
                Strategy::Beams(settings) => searched(&model, &request, settings).remove(0),
                _ => {
                    let (piece, outcome) = whole(&model, &request);
                    (piece.text, outcome)
                }
            };
            assert_eq!(outcome.reason, FinishReason::Stop, "{strategy:?} {text}");
            let json: serde_json::Value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(json["b"].is_u64() && json["a"].is_string(), "{text}");
        }
    }
}
