//! Tests the schedule by example, with every step checked.

mod storm;
mod world;

use super::*;
use crate::decoding::Strategy;
use crate::options::JoiningRule;
use crate::step::PAGE_TOKENS;
use rand::SeedableRng;
use rand::rngs::StdRng;
use world::{World, text};

const LIMITS: Limits = Limits {
    pages: 64,
    seats: 8,
    prompt_rows: 64,
    prompt_rows_beside: 32,
    prefill_tokens: None,
    total_tokens: None,
    joining: None,
    drafts: DraftLimits {
        tokens: 0,
        lookup_max: 3,
        lookup_min: 2,
    },
};

fn arrival(prompt: Vec<u32>, response: usize) -> Arrival {
    Arrival {
        most_tokens: prompt.len() + response,
        prompt,
        needs_all_rows: false,
        takes_drafts: true,
        adapter: None,
    }
}

fn requests(plan: &Plan) -> Vec<(RequestId, usize)> {
    let parts = plan.parts.iter().zip(&plan.step.spans);
    parts
        .map(|(part, span)| (part.request, span.count))
        .collect()
}

#[test]
fn a_long_prompt_is_prefilled_in_chunks_alongside_running_requests() {
    let mut world = World::new(LIMITS);
    let mut random = StdRng::seed_from_u64(1);
    let short = world.arrive(text(100, 5), 20);
    let first = world.step().expect("a step");
    assert_eq!(requests(&first), [(short, 5)]);
    world.advance(&first, &mut random);
    let long = world.arrive(text(1000, 200), 4);
    let mut rows = 0;
    while rows < 200 {
        let plan = world.step().expect("a step");
        assert_eq!(requests(&plan)[0], (short, 1), "a token in every step");
        assert!(requests(&plan)[1].1 <= LIMITS.prompt_rows_beside);
        rows += requests(&plan)[1].1;
        assert_eq!(plan.parts[1].decides, rows == 200);
        world.advance(&plan, &mut random);
    }
    world.run_to_the_end(100);
    assert_eq!(world.ended, [long, short]);
}

#[test]
fn a_cached_prompt_is_not_recomputed() {
    let mut world = World::new(LIMITS);
    world.arrive(text(0, 50), 1);
    world.run_to_the_end(10);
    world.arrive(text(0, 50), 1);
    let plan = world.step().expect("a step");
    assert_eq!(requests(&plan), [(2, 2)], "three full pages are known");
    assert_eq!(world.schedule.counts().known_tokens, 48);
    world.advance(&plan, &mut StdRng::seed_from_u64(0));
    // A prompt that ends at a page boundary still computes its last page, because the last row is needed.
    world.arrive(text(0, 48), 1);
    assert_eq!(requests(&world.step().expect("a step")), [(3, 16)]);
}

#[test]
fn simultaneous_prompts_compute_their_common_prefix_once() {
    let mut world = World::new(LIMITS);
    for _ in 0..4 {
        world.arrive(text(0, 100), 3);
    }
    let mut rows = 0;
    while world.known.values().any(|known| known.generated == 0) {
        let plan = world.step().expect("a step");
        let uncached = plan.step.spans.iter().filter(|span| span.past == 0);
        assert!(uncached.count() <= 1);
        rows += plan.step.tokens.len();
        world.advance(&plan, &mut StdRng::seed_from_u64(0));
    }
    assert!(rows < 100 + 4 * 8, "{rows} rows were computed");
    world.run_to_the_end(20);
}

#[test]
fn requested_rows_are_computed_even_if_cached() {
    let mut world = World::new(LIMITS);
    world.arrive(text(0, 90), 1);
    world.run_to_the_end(10);
    world.arrive_with(text(0, 90), 2, Strategy::Sampling, true);
    world.run_to_the_end(10);
    assert_eq!(world.schedule.counts().known_tokens, 0);
}

#[test]
fn the_youngest_request_is_preempted_when_pages_run_out_and_recomputed_later() {
    let limits = Limits { pages: 6, ..LIMITS };
    let mut world = World::new(limits);
    world.arrive(text(100, 30), 40);
    world.arrive(text(200, 30), 40);
    world.run_to_the_end(200);
    assert_eq!(world.ended, [1, 2]);
    assert!(world.schedule.counts().preemptions >= 1);
}

#[test]
fn a_prompt_that_does_not_fit_is_not_overtaken() {
    let limits = Limits { pages: 8, ..LIMITS };
    let mut world = World::new(limits);
    world.arrive(text(100, 60), 20);
    world.once();
    world.arrive(text(1000, 100), 2);
    let small = world.arrive(text(2000, 2), 1);
    world.run_to_the_end(100);
    assert_eq!(world.ended.last(), Some(&small));
}

#[test]
fn the_budgets_for_prefill_and_total_tokens_are_respected() {
    let limits = Limits {
        total_tokens: Some(100),
        prefill_tokens: Some(50),
        ..LIMITS
    };
    let mut world = World::new(limits);
    world.arrive(text(0, 40), 30);
    world.arrive(text(100, 40), 10);
    world.arrive(text(200, 8), 1);
    let plan = world.once();
    assert_eq!(
        requests(&plan),
        [(1, 40)],
        "80 tokens of prompts are too many"
    );
    world.run_to_the_end(100);
    assert_eq!(world.ended, [1, 3, 2]);
}

#[test]
fn waiting_requests_join_the_batch_when_enough_wait_or_after_a_number_of_steps() {
    let joining = JoiningRule {
        served_ratio_milli: 2000,
        steps: 5,
    };
    let limits = Limits {
        joining: Some(joining),
        ..LIMITS
    };
    let begins = |plan: Plan| plan.begun;
    let mut world = World::new(limits);
    let first = world.arrive(text(0, 4), 60);
    assert_eq!(begins(world.once()), [first], "no request runs");
    let second = world.arrive(text(100, 4), 60);
    assert!(begins(world.once()).is_empty(), "one waits, one runs");
    let third = world.arrive(text(200, 4), 60);
    assert_eq!(begins(world.once()), [second, third], "two wait, one runs");
    let fourth = world.arrive(text(300, 4), 60);
    let waited: Vec<_> = (0..6).map(|_| begins(world.once())).collect();
    assert!(waited[..5].iter().all(Vec::is_empty), "{waited:?}");
    assert_eq!(waited[5], [fourth], "it has waited for five steps");
}

#[test]
fn a_request_that_ends_while_waiting_is_skipped() {
    let mut world = World::new(Limits { seats: 1, ..LIMITS });
    let [_, second, _] = [0, 100, 200].map(|first| world.arrive(text(first, 20), 5));
    world.once();
    world.end(second);
    world.run_to_the_end(100);
    assert_eq!(world.ended, [2, 1, 3]);
}

#[test]
fn a_request_too_large_for_the_cache_is_ended_and_not_retried() {
    let mut schedule = Schedule::new(Limits { pages: 2, ..LIMITS });
    let request = schedule.arrive(arrival(text(0, 100), 1));
    let plan = schedule.plan().expect("news");
    assert_eq!((plan.too_long, plan.parts), (vec![request], Vec::new()));
    assert!(schedule.is_empty());
}

#[test]
fn proposed_tokens_hold_pages_and_rejected_ones_release_them() {
    let drafts = DraftLimits {
        tokens: 8,
        ..LIMITS.drafts
    };
    let mut schedule = Schedule::new(Limits { drafts, ..LIMITS });
    let prompt: Vec<u32> = (0..4).cycle().take(28).collect();
    let mut length = prompt.len();
    let request = schedule.arrive(arrival(prompt, 200));
    // Every proposal is right while the text keeps repeating.
    let plan = loop {
        let plan = schedule.plan().expect("a step");
        schedule.computed(&plan);
        let proposed = schedule.proposed(request).to_vec();
        let next: Vec<u32> = (0..4).cycle().skip(length).take(proposed.len()).collect();
        assert_eq!(proposed, next);
        if proposed.len() == 8 && (length + 8).div_ceil(PAGE_TOKENS) > length.div_ceil(PAGE_TOKENS)
        {
            break plan;
        }
        schedule.accept(request, proposed.len());
        length += proposed.len();
        schedule.advance(request, &[(0, length as u32 % 4)]);
        length += 1;
        assert!(length < 200, "eight tokens are never proposed");
    };
    let span = &plan.step.spans[0];
    assert_eq!((span.past, span.count), (length - 1, 9));
    assert_eq!((plan.parts[0].wanted, plan.parts[0].proposed), (9, 8));
    assert_eq!(span.pages.len(), (length + 8).div_ceil(PAGE_TOKENS));
    schedule.accept(request, 0);
    schedule.advance(request, &[(0, 99)]);
    assert_eq!(schedule.held_pages(), length.div_ceil(PAGE_TOKENS));
    let plan = schedule.plan().expect("a step");
    assert_eq!(plan.step.tokens, [99]);
    assert_eq!(plan.step.spans[0].past, length);
    schedule.end(request);
    assert_eq!(schedule.held_pages(), 0);
}

#[test]
fn without_sharing_equal_prompts_have_separate_pages() {
    let mut schedule = Schedule::unshared(LIMITS);
    let prompt = text(5, 5 * PAGE_TOKENS);
    let requests = [
        schedule.arrive(arrival(prompt.clone(), 20)),
        schedule.arrive(arrival(prompt, 20)),
    ];
    let mut computed = BTreeMap::new();
    while let Some(plan) = schedule.plan()
        && computed.values().copied().sum::<usize>() < 2 * 5 * PAGE_TOKENS
    {
        assert!(plan.copies.is_empty());
        schedule.computed(&plan);
        for (part, span) in plan.parts.iter().zip(&plan.step.spans) {
            let sum: &mut usize = computed.entry(part.request).or_default();
            assert_eq!(span.past, *sum, "a prefix was skipped");
            *sum += span.count;
            if part.decides {
                schedule.advance(part.request, &[(0, 7)]);
            }
        }
    }
    assert_eq!(schedule.first_pages().len(), 2);
    assert_eq!(schedule.counts().known_tokens, 0);
    schedule.end(requests[0]);
    assert_eq!(schedule.first_pages().len(), 1);
    schedule.end(requests[1]);
    assert_eq!(
        (schedule.first_pages().len(), schedule.held_pages()),
        (0, 0)
    );
    assert!(schedule.forget_pages());
    schedule.arrive(arrival(text(5, 5 * PAGE_TOKENS), 20));
    schedule.plan().expect("a step");
    assert_eq!(schedule.counts().known_tokens, 0);
}
