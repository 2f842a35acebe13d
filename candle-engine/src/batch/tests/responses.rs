//! Completions of a demo model: their ends, limits, scores and strategies.

use super::*;
use crate::batch::request::{FinishReason, StopReason, text_of};
use crate::decoding::{BeamSettings, ContrastiveSettings, EarlyStopping};
use crate::sampling::logprob_of;

#[test]
fn stop_tokens_end_a_response_only_after_its_minimum_length() {
    let model = Demo::new();
    let greedy = |ending: Ending| {
        let request = GenerationRequest {
            ending,
            ..greedy(endless(vec![5, 9], 24))
        };
        let (piece, outcome) = model.whole(&request);
        (piece.text, outcome)
    };
    let long = Ending {
        ignores_end: true,
        ..Ending::default()
    };
    let (whole, outcome) = greedy(long.clone());
    assert_eq!(outcome.completion_tokens, 24);
    // Each token of the completion, used as an end token, cuts it off at its first occurrence.
    let tokens = model.model.tokenizer.encode(&whole, false).unwrap();
    let end = Ending {
        stop_tokens: vec![vec![tokens[2]]],
        ..long.clone()
    };
    let (cut, outcome) = greedy(end.clone());
    assert!(whole.starts_with(&cut) && cut.len() < whole.len());
    let stop = Some(StopReason::Token(tokens[2]));
    assert_eq!((outcome.reason, outcome.stop), (FinishReason::Stop, stop));
    let (_, outcome) = greedy(Ending {
        min_tokens: 20,
        ..end
    });
    assert!(outcome.completion_tokens >= 20);
    let row = Ending {
        stop_tokens: vec![tokens[2..4].to_vec()],
        ..long
    };
    let text = text_of(&tokens[2..4], &model.model.tokenizer).unwrap();
    let (cut, _) = greedy(row);
    assert_eq!(cut, whole.split(&text).next().unwrap());
}

#[test]
fn a_response_ends_at_exactly_its_token_limit() {
    let (_, outcome) = Demo::new().whole(&endless(vec![5, 6], 7));
    assert_eq!(outcome.reason, FinishReason::Length);
    assert_eq!(outcome.completion_tokens, 7);
}

#[test]
fn logprobs_are_those_of_the_model_regardless_of_sampling() {
    let model = Demo::new();
    let scored = |sampling: SamplingSettings| {
        let request = GenerationRequest {
            sampling,
            scores: Scores {
                shown: Some(3),
                summed: true,
            },
            ..endless(vec![5, 9], 1)
        };
        model.whole(&request)
    };
    let plain = scored(SamplingSettings {
        temperature: 0.0,
        ..Default::default()
    });
    let best = plain.0.tokens[0].logprob.clone().expect("a logprob");
    assert_eq!((best.token, best.logprob), best.top[0]);
    assert!((plain.1.logprob_sum - f64::from(best.logprob)).abs() < 1e-6);
    // Choosing a different token, by bias, temperature or penalty, does not change the reported distribution.
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
fn an_echoed_prompt_has_its_own_logprobs() {
    let model = Demo::new();
    let prompt = model.model.tokenizer.encode("Keep-hot is how long", true);
    let prompt = prompt.expect("encodes");
    let request = |prompt: &[u32], max_tokens| GenerationRequest {
        echo: Some("Keep-hot is how long".into()),
        scores: Scores {
            shown: Some(2),
            summed: false,
        },
        ..greedy(endless(prompt.to_vec(), max_tokens))
    };
    let (looked_at, outcome) = model.whole(&request(&prompt, 0));
    assert_eq!(looked_at.text, "Keep-hot is how long");
    assert_eq!(outcome.completion_tokens, 0);
    let ids: Vec<u32> = looked_at.tokens.iter().map(|token| token.token).collect();
    assert_eq!(ids, prompt);
    assert_eq!(looked_at.tokens[0].logprob, None);
    // Each prompt probability equals the one computed from its prefix alone.
    let mut plain = WholeTextNetwork::new();
    for cut in [1, 3, prompt.len() - 1] {
        let logits = plain.rows(&prompt[..cut]).pop().expect("a row");
        let wanted = logprob_of(&logits, prompt[cut], 2);
        let found = looked_at.tokens[cut].logprob.as_ref().expect("a logprob");
        assert!(
            (found.logprob - wanted.logprob).abs() < 1e-4,
            "{found:?} {wanted:?}"
        );
        assert_eq!(found.top[0].0, wanted.top[0].0);
    }
    let (more, _) = model.whole(&request(&prompt, 4));
    assert!(more.text.starts_with("Keep-hot is how long"));
    let letters = "Keep-hot is how long".chars().count();
    assert_eq!(more.tokens[prompt.len()].offset, letters);
}

/// The sum of logprobs of `response` after `prompt`, computed in one step.
fn sum_of(prompt: &[u32], response: &[u32]) -> f64 {
    let rows = WholeTextNetwork::new().rows(&[prompt, response].concat());
    let of_response = rows[prompt.len() - 1..].iter().zip(response);
    of_response
        .map(|(row, token)| f64::from(logprob_of(row, *token, 0).logprob))
        .sum()
}

fn beams(beams: usize) -> Strategy {
    Strategy::Beams(BeamSettings {
        beams,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::WhenWorse,
    })
}

#[test]
fn a_beam_search_finds_the_best_of_all_sequences() {
    let model = Demo::new();
    let prompt = vec![5, 9];
    let request = GenerationRequest {
        responses: 3,
        strategy: beams(8),
        ending: Ending {
            ignores_end: true,
            ..Ending::default()
        },
        ..greedy(endless(prompt.clone(), 2))
    };
    // Eight beams over two tokens: the best pair is the best of the pairs that begin with the eight likeliest tokens.
    let found = model.searched(&request);
    let mut plain = WholeTextNetwork::new();
    let mut pairs: Vec<(f64, [u32; 2])> = Vec::new();
    for (one, logprob) in logprob_of(&plain.rows(&prompt)[1], 0, 8).top {
        let second = &plain.rows(&[5, 9, one])[2];
        for (two, more) in logprob_of(second, 0, 16).top {
            pairs.push((f64::from(logprob) + f64::from(more), [one, two]));
        }
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    for ((text, outcome), (sum, pair)) in found.iter().zip(&pairs) {
        let tokenizer = &model.model.tokenizer;
        assert_eq!(text, &text_of(pair, tokenizer).expect("decodes"));
        assert!((outcome.logprob_sum - sum).abs() < 1e-4);
        assert!((sum_of(&prompt, pair) - sum).abs() < 1e-3);
        assert_eq!(outcome.reason, FinishReason::Length);
    }
    assert_eq!(found.len(), 3);
}

#[test]
fn beams_end_at_stop_tokens_and_stop_strings() {
    let model = Demo::new();
    let prompt =
        model.tokens("<|im_start|>user\nWhere is Swagger UI?<|im_end|>\n<|im_start|>assistant\n");
    let request = GenerationRequest {
        strategy: beams(3),
        ..greedy(endless(prompt, 60))
    };
    let (text, outcome) = model.searched(&request).remove(0);
    assert_eq!((outcome.reason, outcome.stop), (FinishReason::Stop, None));
    assert!(text.starts_with("Swagger UI is at"), "{text}");
    let stopping = GenerationRequest {
        ending: Ending {
            stop: vec![" at /llm".to_owned()],
            ..Ending::default()
        },
        ..request
    };
    let (text, outcome) = model.searched(&stopping).remove(0);
    assert_eq!(text, "Swagger UI is");
    assert_eq!(outcome.stop, Some(StopReason::Text(" at /llm".to_owned())));
}

#[test]
fn contrastive_search_without_a_penalty_is_greedy_and_with_one_is_not() {
    let model = Demo::new();
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
        model.whole(&request).0
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
    // The logits after a chosen candidate equal the network's logits after the complete text so far.
    let tokens: Vec<u32> = other.tokens.iter().map(|token| token.token).collect();
    let sum: f64 = other
        .tokens
        .iter()
        .map(|token| f64::from(token.logprob.as_ref().expect("shown").logprob))
        .sum();
    assert!((sum - sum_of(&[5, 9], &tokens)).abs() < 1e-2);
}

#[test]
fn a_grammar_is_followed_by_every_strategy() {
    let model = Demo::new();
    let schema = serde_json::json!({"type": "object", "required": ["a", "b"], "additionalProperties": false,
        "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "integer", "minimum": 0, "maximum": 999}}});
    let grammar = crate::grammar::Grammar::Json {
        schema,
        lenient: false,
    };
    let constraint = model
        .model
        .grammars
        .constraint(&grammar, &model.model.tokenizer, "x")
        .expect("compiles");
    let contrastive = ContrastiveSettings {
        penalty_alpha: 0.6,
        candidates: 4,
    };
    for strategy in [
        Strategy::Sampling,
        Strategy::Contrastive(contrastive),
        beams(3),
    ] {
        for seed in 0..3 {
            let mut request = endless(vec![5, 9], 200);
            request.sampling.seed = Some(seed);
            request.constraint = Some(constraint.clone());
            request.strategy = strategy;
            let (text, outcome) = match strategy {
                Strategy::Beams(_) => model.searched(&request).remove(0),
                _ => {
                    let (piece, outcome) = model.whole(&request);
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
