//! Concurrent requests: what they share, how they are isolated, and who waits for whom. The tests count steps, never time.

use super::*;
use crate::batch::request::FinishReason;
use crate::decoding::{BeamSettings, ContrastiveSettings, EarlyStopping};
use crate::grammar::Grammar;
use axum::http::StatusCode;

fn question(demo: &Demo, text: &str) -> Vec<u32> {
    demo.tokens(&format!(
        "<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    ))
}

/// Sixteen requests of different kinds.
pub(super) fn sixteen(demo: &Demo) -> Vec<GenerationRequest> {
    let constraint = |grammar: Grammar| {
        let tokenizer = &demo.model.tokenizer;
        let constraint = demo.model.grammars.constraint(&grammar, tokenizer, "x");
        Some(constraint.expect("compiles"))
    };
    let long: Vec<u32> = (0..300).map(|nth| 3 + nth * 7 % 500).collect();
    let prompts = [
        question(demo, "Where is Swagger UI?"),
        question(demo, "What is a lease?"),
        long.clone(),
        [long[..200].to_vec(), vec![9, 9, 9]].concat(),
        vec![5],
    ];
    let mut requests = Vec::new();
    for nth in 0..16usize {
        let prompt = prompts[nth % prompts.len()].clone();
        let mut request = endless(prompt, 20 + nth * 3);
        request.sampling = SamplingSettings {
            temperature: [0.0, 0.7, 1.0, 1.5][nth % 4],
            seed: Some(nth as u64),
            top_k: (nth % 3 == 0).then_some(20),
            top_p: if nth % 5 == 0 { 0.9 } else { 1.0 },
            min_p: if nth % 7 == 0 { 0.05 } else { 0.0 },
            repetition_penalty: if nth % 2 == 0 { 1.1 } else { 1.0 },
            ..Default::default()
        };
        match nth {
            3 => request.ending.stop = vec!["the".to_owned(), " a".to_owned()],
            5 => request.ending.min_tokens = 15,
            6 => request.constraint = constraint(Grammar::Regex("[a-z ]{5,30}!".to_owned())),
            7 => {
                request.echo = Some("echo".into());
                request.scores = Scores {
                    shown: Some(2),
                    summed: true,
                };
            }
            8 => {
                request.sampling.temperature = 0.0;
                request.strategy = Strategy::Beams(BeamSettings {
                    beams: 4,
                    length_penalty: 1.0,
                    early_stopping: EarlyStopping::WhenWorse,
                });
                request.responses = 2;
            }
            9 => {
                request.strategy = Strategy::Contrastive(ContrastiveSettings {
                    penalty_alpha: 0.6,
                    candidates: 4,
                });
            }
            10 => {
                let schema = serde_json::json!({"type": "object", "required": ["a"],
                    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}});
                request.constraint = constraint(Grammar::Json {
                    schema,
                    lenient: false,
                });
            }
            _ => {}
        }
        requests.push(request);
    }
    requests
}

/// Runs each request alone, and returns the results with their exact probabilities.
pub(super) fn alone(requests: &[GenerationRequest]) -> Vec<Vec<(Piece, Outcome)>> {
    let demo = Demo::new();
    let responses = requests.iter().map(|request| {
        let mut request = request.clone();
        request.constraint = request
            .constraint
            .as_ref()
            .map(|constraint| constraint.apart());
        demo.responses(&request).expect("computes")
    });
    responses.collect()
}

pub(super) fn together(
    demo: &mut Demo,
    requests: &[GenerationRequest],
) -> Vec<Vec<(Piece, Outcome)>> {
    let responses: Vec<_> = requests.iter().map(|request| demo.ask(request)).collect();
    demo.free();
    let responses = responses.into_iter().map(collect);
    responses
        .map(|response| response.expect("computes"))
        .collect()
}

#[test]
fn sixteen_concurrent_requests_get_the_same_responses_as_alone() {
    let mut demo = Demo::held(&options(16), |limits| limits);
    let requests = sixteen(&demo);
    let wanted = alone(&requests);
    for (nth, (found, wanted)) in together(&mut demo, &requests)
        .iter()
        .zip(&wanted)
        .enumerate()
    {
        assert_eq!(found, wanted, "request {nth}");
    }
    let steps = demo.steps();
    assert!(
        steps.iter().any(|step| step.spans.len() >= 16),
        "they were together"
    );
    demo.wait_for_pages();
}

#[test]
fn a_small_cache_preempts_requests_and_returns_the_same_responses() {
    let small = |limits| Limits {
        pages: 34,
        prompt_rows: 40,
        prompt_rows_beside: 24,
        ..limits
    };
    let mut demo = Demo::held(&options(16), small);
    let requests = sixteen(&demo);
    let wanted = alone(&requests);
    for (nth, (found, wanted)) in together(&mut demo, &requests)
        .iter()
        .zip(&wanted)
        .enumerate()
    {
        assert_eq!(found, wanted, "request {nth}");
    }
    assert!(demo.model.generator.gauges.preemptions() > 0);
}

#[test]
fn a_long_prompt_does_not_block_the_tokens_of_other_requests() {
    let mut demo = Demo::held(&options(4), |limits| Limits {
        prompt_rows_beside: 32,
        ..limits
    });
    let mut short = demo.ask(&endless(vec![5, 9], 40));
    demo.step(true);
    let long: Vec<u32> = (0..400).map(|nth| 3 + nth % 500).collect();
    let long = demo.ask(&endless(long, 2));
    for _ in 0..13 {
        demo.step(true);
    }
    let steps = demo.steps();
    let chunks = steps.iter().filter(|step| step.spans.len() == 2);
    assert!(chunks.clone().count() >= 12);
    for step in chunks {
        assert_eq!(step.spans[0].count, 1, "a token in every step");
        assert!(step.spans[1].count <= 32);
    }
    let mut given = 0;
    while let Ok(ResponseEvent::Piece(..)) = short.try_recv() {
        given += 1;
    }
    assert!(given >= 10, "{given} pieces during the long prompt");
    demo.free();
    drop(short);
    assert_eq!(collect(long).expect("computes").len(), 1);
}

#[test]
fn concurrent_requests_with_one_prompt_compute_it_once() {
    let mut demo = Demo::held(&options(8), |limits| limits);
    let prompt: Vec<u32> = (0..330).map(|nth| 3 + nth % 500).collect();
    let request = |seed| {
        let mut request = endless(prompt.clone(), 4);
        request.sampling.seed = Some(seed);
        request
    };
    let responses: Vec<_> = (0..8).map(|seed| demo.ask(&request(seed))).collect();
    demo.free();
    for response in responses {
        assert_eq!(collect(response).expect("computes").len(), 1);
    }
    let rows: usize = demo.steps().iter().map(|step| step.tokens.len()).sum();
    // The prompt once, and for each request its last page and three more tokens.
    assert!(rows <= 330 + 8 * (16 + 3), "{rows}");
    assert_eq!(demo.model.generator.gauges.known_tokens(), 7 * 320);
}

#[test]
fn a_cached_prompt_is_not_recomputed_and_the_response_stays_the_same() {
    let demo = Demo::new();
    let prompt = question(
        &demo,
        "What is a lease? Tell me all about it, and what it is for.",
    );
    let request = greedy(endless(prompt.clone(), 30));
    let first = demo.whole(&request);
    let rows = |demo: &Demo| {
        demo.steps()
            .iter()
            .map(|step| step.tokens.len())
            .sum::<usize>()
    };
    let before = rows(&demo);
    assert_eq!(demo.whole(&request), first);
    let known = demo.model.generator.gauges.known_tokens() as usize;
    assert_eq!(known, (prompt.len() - 1) / 16 * 16);
    assert_eq!(rows(&demo) - before, before - known);
    // A completion, too, is a prefix for what comes next.
    let response = demo.tokens(&first.0.text);
    let longer = greedy(endless([prompt, response].concat(), 2));
    demo.whole(&longer);
    assert!(demo.model.generator.gauges.known_tokens() as usize >= 2 * known + 16);
}

#[test]
fn an_abandoned_request_takes_part_in_no_further_step() {
    let mut demo = Demo::held(&options(4), |limits| limits);
    let leaving = demo.ask(&endless(vec![5], 400));
    let staying = demo.ask(&endless(vec![6], 6));
    demo.step(true);
    demo.step(true);
    assert_eq!(demo.steps().last().expect("a step").spans.len(), 2);
    drop(leaving);
    demo.step(true);
    assert_eq!(demo.steps().last().expect("a step").spans.len(), 1);
    let waiting = demo.ask(&endless(vec![7], 400));
    drop(waiting);
    demo.free();
    let (_, outcome) = collect(staying).expect("computes").remove(0);
    assert_eq!(outcome.completion_tokens, 6);
    assert!(demo.steps().iter().all(|step| !step.tokens.contains(&7)));
    demo.wait_for_pages();
}

#[test]
fn a_failed_step_fails_only_its_own_requests() {
    let mut demo = Demo::held(&options(2), |limits| limits);
    let first = demo.ask(&endless(vec![5], 10));
    demo.waiting_step();
    let later = demo.ask(&endless(vec![6], 3));
    demo.tell(true);
    let error = collect(first).expect_err("its step failed");
    assert_eq!(error.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(error.message.contains("out of order"), "{}", error.message);
    demo.free();
    assert_eq!(collect(later).expect("computes").len(), 1);
}

#[test]
fn a_request_with_non_finite_logits_fails_without_affecting_others() {
    let mut demo = Demo::held(&options(2), |limits| limits);
    let everything = (0..demo.model.tokenizer.vocabulary as u32).map(|token| (token, f32::NAN));
    let mut broken = endless(vec![5], 10);
    broken.sampling.logit_bias = everything.collect();
    let (broken, other) = (demo.ask(&broken), demo.ask(&endless(vec![6], 5)));
    demo.free();
    let error = collect(broken).expect_err("it has no token to choose");
    assert!(
        error.message.contains("no finite logits"),
        "{}",
        error.message
    );
    let (_, outcome) = collect(other).expect("computes").remove(0);
    assert_eq!(outcome.reason, FinishReason::Length);
}

#[test]
fn requests_beyond_the_waiting_limit_are_refused_and_abandoned_ones_free_their_slot() {
    let demo = Demo::held(&options(1), |limits| limits);
    let running = demo.ask(&endless(vec![5], 4));
    demo.waiting_step();
    let most = crate::options::WAITING_REQUESTS_MAX;
    let waiting: Vec<_> = (0..most).map(|_| demo.ask(&endless(vec![6], 1))).collect();
    let (events, _answer) = unbounded_channel();
    let refused = demo.batch.submit(endless(vec![7], 1), 0, events.clone());
    let error = refused.expect_err("the queue is full");
    assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS);
    drop(waiting);
    demo.step(true);
    let submitted = demo.batch.submit(endless(vec![7], 1), 0, events);
    submitted.expect("there is room again");
    drop(running);
}

#[test]
fn a_request_that_does_not_fit_next_to_others_waits_its_turn() {
    let mut demo = Demo::held(
        &EngineOptions {
            budgets: TokenBudgets {
                total: Some(CONTEXT_TOKENS),
                ..TokenBudgets::default()
            },
            ..options(4)
        },
        |limits| limits,
    );
    let first = demo.ask(&endless(vec![5], 300));
    demo.waiting_step();
    let second = demo.ask(&endless(vec![6], 300));
    // The third request would fit next to either of the others, and still does not overtake.
    let third = demo.ask(&endless(vec![7], 3));
    demo.free();
    for response in [first, second, third] {
        assert_eq!(collect(response).expect("computes").len(), 1);
    }
    let of = |token: u32| {
        let steps = demo.steps();
        let has = |step: &Step| {
            let spans = step.spans.iter().filter(|span| span.past == 0);
            spans.count() > 0 && step.tokens.contains(&token)
        };
        steps.iter().position(has).expect("it began")
    };
    assert_eq!(of(5), 0);
    assert_eq!(of(6), 300);
    assert!(of(7) >= of(6));
}
