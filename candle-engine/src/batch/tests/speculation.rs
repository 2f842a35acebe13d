//! Proposed tokens: every completion is bit-identical to the one without proposals, probabilities included, and no pages stay held.

use super::concurrency::{alone, sixteen, together};
use super::*;
use crate::batch::request::{FinishReason, text_of};
use crate::decoding::{BeamSettings, ContrastiveSettings, EarlyStopping};
use crate::grammar::Grammar;

fn speculating(concurrency: usize) -> EngineOptions {
    EngineOptions {
        speculation: Speculation::default(),
        ..options(concurrency)
    }
}

fn words(demo: &Demo) -> Vec<u32> {
    let words = demo.tokens(" the pool model");
    assert!(words.len() >= 3);
    words
}

/// A completion restricted to `tokens`: with one token it repeats, with more it repeats contexts that continue differently.
fn among(tokens: &[u32], max_tokens: usize) -> GenerationRequest {
    let mut request = endless(vec![5, 9, 7], max_tokens);
    let biases = tokens.iter().map(|token| (*token, 100.0));
    request.sampling.logit_bias = biases.collect();
    request
}

/// Requests of different kinds whose completions repeat.
fn repeating(demo: &Demo) -> Vec<GenerationRequest> {
    let words = words(demo);
    let one = &words[..1];
    let mut requests = vec![among(one, 60)];
    // Limits within the proposed tokens.
    requests.extend((1..24).map(|most| among(one, most)));
    requests.extend((0..4).map(|seed| {
        let mut request = among(&words[..3], 120);
        request.sampling.seed = Some(seed);
        request
    }));
    let long = Ending {
        ignores_end: true,
        ..Ending::default()
    };
    for prompt in [
        "Where is Swagger UI?",
        "the pool and the pool and the pool and",
    ] {
        requests.push(GenerationRequest {
            ending: long.clone(),
            ..greedy(endless(demo.tokens(prompt), 200))
        });
    }
    let mut penalties = among(&words[..3], 100);
    penalties.sampling.repetition_penalty = 1.3;
    penalties.sampling.frequency_penalty = 0.2;
    penalties.sampling.presence_penalty = 0.5;
    requests.push(penalties);
    for echo in [None, Some("echo".into())] {
        requests.push(GenerationRequest {
            scores: Scores {
                shown: Some(3),
                summed: true,
            },
            echo,
            ..among(&words[..2], 60)
        });
    }
    for grammar in ["(abc ){5,40}!", "([0-9]{2}, )*end"] {
        let grammar = Grammar::Regex(grammar.to_owned());
        let grammars = &demo.model.grammars;
        let constraint = grammars.constraint(&grammar, &demo.model.tokenizer, "x");
        requests.push(GenerationRequest {
            constraint: Some(constraint.expect("compiles")),
            ..endless(vec![5, 9], 150)
        });
    }
    let tokenizer = &demo.model.tokenizer;
    for count in [15, 16, 17, 21] {
        let text = text_of(&vec![words[0]; count], tokenizer).expect("decodes");
        requests.push(GenerationRequest {
            ending: Ending {
                stop: vec![text],
                ..Ending::default()
            },
            ..among(one, 100)
        });
    }
    for min_tokens in [0, 25] {
        requests.push(GenerationRequest {
            ending: Ending {
                stop_tokens: vec![vec![words[1]], vec![words[2], words[2]]],
                min_tokens,
                ..Ending::default()
            },
            ..among(&words[..3], 100)
        });
    }
    // To the end of the context.
    requests.push(among(one, CONTEXT_TOKENS - 3));
    requests.push(among(&words[..2], CONTEXT_TOKENS - 3));
    requests
}

fn assert_same(demo: &mut Demo, requests: &[GenerationRequest]) {
    let wanted = alone(requests);
    let found = together(demo, requests);
    for (nth, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(found, wanted, "request {nth}");
    }
    demo.wait_for_pages();
}

#[test]
fn speculation_does_not_change_any_response() {
    for concurrency in [1, 3, 16] {
        let mut demo = Demo::held(&speculating(concurrency), |limits| limits);
        let requests = repeating(&demo);
        assert_same(&mut demo, &requests);
        let (drafts, accepted) = demo.model.generator.gauges.drafts();
        assert!(accepted > 100, "{accepted} of {drafts}");
        let some_were_wrong = drafts > accepted;
        assert!(some_were_wrong || concurrency > 1, "{accepted} of {drafts}");
    }
}

#[test]
fn preemption_in_a_small_cache_does_not_change_any_response() {
    let small = |limits| Limits {
        pages: 36,
        prompt_rows: 40,
        prompt_rows_beside: 24,
        ..limits
    };
    let mut demo = Demo::held(&speculating(5), small);
    let mut requests = sixteen(&demo);
    requests.extend(repeating(&demo));
    assert_same(&mut demo, &requests);
    assert!(demo.model.generator.gauges.preemptions() > 0);
}

#[test]
fn speculation_saves_steps_and_respects_the_token_limit() {
    let mut demo = Demo::held(&speculating(1), |limits| limits);
    demo.free();
    let request = among(&words(&demo)[..1], 100);
    let (_, outcome) = demo.whole(&request);
    assert_eq!(outcome.reason, FinishReason::Length);
    assert_eq!(outcome.completion_tokens, 100);
    let steps = demo.steps();
    assert!(steps.len() < 30, "{} steps", steps.len());
    let spans: Vec<&Span> = steps.iter().flat_map(|step| &step.spans).collect();
    assert_eq!(spans.iter().map(|span| span.count).max(), Some(9));
    let end = spans.iter().map(|span| span.past + span.count).max();
    assert_eq!(end, Some(3 + 100 - 1), "the last token is not computed");
    let gauges = &demo.model.generator.gauges;
    assert_eq!(gauges.sampled_tokens(), 99, "as without proposals");
    let (drafts, accepted) = gauges.drafts();
    assert_eq!(drafts, accepted, "all were right");
    assert_eq!(accepted as usize, 100 - steps.len());
}

#[test]
fn nothing_is_proposed_while_many_requests_run() {
    let mut demo = Demo::held(&speculating(12), |limits| limits);
    let request = among(&words(&demo)[..1], 60);
    let requests = vec![request; 12];
    together(&mut demo, &requests);
    let mut crowded = 0;
    for step in demo.steps() {
        let going_on = step.spans.iter().filter(|span| span.past > 0);
        if going_on.clone().count() > 8 {
            assert!(going_on.clone().all(|span| span.count == 1));
            crowded += 1;
        }
    }
    assert!(crowded > 30, "{crowded} steps had many requests");
}

#[test]
fn nothing_is_proposed_for_beam_and_contrastive_search() {
    let mut demo = Demo::held(&speculating(1), |limits| limits);
    demo.free();
    let one = words(&demo)[0];
    for strategy in [
        Strategy::Beams(BeamSettings {
            beams: 2,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Never,
        }),
        Strategy::Contrastive(ContrastiveSettings {
            penalty_alpha: 0.0,
            candidates: 1,
        }),
    ] {
        let mut request = among(&[one], 40);
        request.sampling.temperature = 0.0;
        request.strategy = strategy;
        demo.responses(&request).expect("computes");
    }
    assert_eq!(demo.model.generator.gauges.drafts(), (0, 0));
}

#[test]
fn a_client_that_disconnects_during_speculation_leaves_no_pages_in_use() {
    let mut demo = Demo::held(&speculating(1), |limits| limits);
    let response = demo.ask(&among(&words(&demo)[..1], 400));
    for _ in 0..14 {
        demo.step(true);
    }
    assert!(demo.model.generator.gauges.drafts().1 > 0);
    drop(response);
    demo.free();
    demo.wait_for_pages();
}
