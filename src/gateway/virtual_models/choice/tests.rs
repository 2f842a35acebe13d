//! Tests of `choice.rs`: the member that each rule chooses, and the reason.

use super::*;
use crate::virtual_table::table::tests::model;

/// Members without a ready replica, all of them candidates.
fn cold(count: usize) -> Vec<Candidate> {
    let cold = |member| Candidate {
        member,
        ready: None,
    };
    (0..count).map(cold).collect()
}

fn ready(has_room: bool, in_flight: u64) -> Option<Readiness> {
    Some(Readiness {
        has_room,
        in_flight,
    })
}

fn waits(seconds: u64) -> Outlook {
    Outlook {
        is_blocked: false,
        needs_busy_memory: false,
        wait: Span::from_secs(seconds),
    }
}

fn never(_: usize) -> Outlook {
    panic!("the outlook is not needed");
}

const NO_FACTS: RequestFacts = RequestFacts {
    has_image: false,
    has_tools: false,
    tokens: 0,
    conversation: None,
};

#[test]
fn any_of_takes_a_ready_member_and_asks_for_no_outlook() {
    let any = model("any_of: [a, b, c]");
    let mut candidates = cold(3);
    candidates[1].ready = ready(true, 5);
    candidates[2].ready = ready(true, 0);
    let choice = choose(&any, &candidates, &NO_FACTS, 0, never).expect("a member");
    assert_eq!((choice.candidate, choice.reason), (1, Reason::Ready));
    candidates[1].ready = ready(false, 8);
    let choice = choose(&any, &candidates, &NO_FACTS, 0, never).expect("a member");
    assert_eq!((choice.candidate, choice.reason), (2, Reason::Ready));
    candidates[2].ready = ready(false, 9);
    let choice = choose(&any, &candidates, &NO_FACTS, 0, never).expect("a member");
    let expected = (1, Reason::FewestInFlight(8));
    assert_eq!(
        (choice.candidate, choice.reason),
        expected,
        "a full member that is ready comes before a load"
    );
}

#[test]
fn any_of_without_a_ready_member_takes_the_shortest_wait_and_then_the_first() {
    let any = model("any_of: [a, b, c]");
    let times = [9, 4, 4];
    let choice = choose(&any, &cold(3), &NO_FACTS, 0, |member| waits(times[member]));
    let expected = Choice {
        candidate: 1,
        reason: Reason::ShortestWait(Span::from_secs(4)),
    };
    assert_eq!(choice, Some(expected));
    let blocked = Outlook {
        is_blocked: true,
        ..waits(0)
    };
    let choice = choose(&any, &cold(3), &NO_FACTS, 0, |member| match member {
        2 => waits(60),
        _ => blocked,
    });
    assert_eq!(choice.expect("a member").candidate, 2);
    let choice = choose(&any, &cold(3), &NO_FACTS, 0, |_| blocked).expect("a member");
    assert_eq!((choice.candidate, choice.reason), (0, Reason::Blocked));
    assert_eq!(choose(&any, &[], &NO_FACTS, 0, never), None);
}

#[test]
fn a_split_divides_conversations_by_weight_and_keeps_each_at_its_member() {
    let split = model("split: {a: 8, b: 1.5, c: 0.5}");
    let all = cold(3);
    let of = |conversation: u64, candidates: &[Candidate]| {
        let facts = RequestFacts {
            conversation: Some(mixed(conversation)),
            ..NO_FACTS
        };
        let choice = choose(&split, candidates, &facts, 7, never).expect("a member");
        candidates[choice.candidate].member
    };
    let mut counts = [0_u32; 3];
    for conversation in 0..20_000 {
        let member = of(conversation, &all);
        counts[member] += 1;
        assert_eq!(of(conversation, &all), member);
        // Without its member, a conversation moves; the others stay.
        let without = of(conversation, &all[..2]);
        assert!(member == 2 || without == member);
    }
    for (count, expected) in counts.into_iter().zip([16_000, 3_000, 1_000]) {
        assert!(count.abs_diff(expected) < 300, "{counts:?}");
    }
    let mut counts = [0_u32; 3];
    for number in 0..20_000 {
        let choice = choose(&split, &all, &NO_FACTS, number, never).expect("a member");
        counts[choice.candidate] += 1;
    }
    for (count, expected) in counts.into_iter().zip([16_000, 3_000, 1_000]) {
        assert!(
            count.abs_diff(expected) < 300,
            "without conversations: {counts:?}"
        );
    }
}

#[test]
fn a_fallback_takes_the_first_member_that_is_not_certain_to_refuse() {
    let order = model("fallback: [a, b, c]");
    let mut candidates = cold(3);
    let blocked_first = |member: usize| Outlook {
        is_blocked: member == 0,
        ..waits(1)
    };
    let of = |candidates: &[Candidate], outlook: fn(usize) -> Outlook| {
        choose(&order, candidates, &NO_FACTS, 0, outlook).map(|choice| choice.candidate)
    };
    assert_eq!(of(&candidates, |_| waits(300)), Some(0), "order, not time");
    assert_eq!(of(&candidates, blocked_first), Some(1));
    let all_blocked = |_| Outlook {
        is_blocked: true,
        ..waits(1)
    };
    assert_eq!(of(&candidates, all_blocked), Some(0));
    candidates[0].ready = ready(false, 3);
    assert_eq!(of(&candidates, never), Some(0));
    assert_eq!(of(&candidates[2..], |_| waits(1)), Some(0));
    assert_eq!(of(&[], never), None);
}

#[test]
fn rules_are_tried_in_order_and_skip_members_that_the_caller_may_not_use() {
    let by = model(
        "by: [{vision: true, model: v}, {tools: true, vision: false, model: t}, {context_above: 1k, model: long}, {model: m}]",
    );
    let of = |facts: RequestFacts, candidates: &[Candidate]| {
        let choice = choose(&by, candidates, &facts, 0, never)?;
        Some((candidates[choice.candidate].member, choice.reason))
    };
    let all = cold(4);
    let image = RequestFacts {
        has_image: true,
        has_tools: true,
        ..NO_FACTS
    };
    assert_eq!(of(image, &all), Some((0, Reason::Rule(1))));
    let tools = RequestFacts {
        has_tools: true,
        ..NO_FACTS
    };
    assert_eq!(of(tools, &all), Some((1, Reason::Rule(2))));
    let long = |tokens| RequestFacts { tokens, ..NO_FACTS };
    assert_eq!(of(long(1_001), &all), Some((2, Reason::Rule(3))));
    assert_eq!(of(long(1_000), &all), Some((3, Reason::Rule(4))));
    let without_long = [all[0], all[1], all[3]];
    assert_eq!(of(long(1_001), &without_long), Some((3, Reason::Rule(4))));
    assert_eq!(of(NO_FACTS, &all[..3]), None);
}

/// Far above the 2 µs of an optimized build: this build has no optimizations and shares its machine.
const TIME_MAX: std::time::Duration = std::time::Duration::from_micros(100);

#[expect(
    clippy::disallowed_methods,
    reason = "measures the work; no decision depends on it"
)]
#[test]
fn a_choice_among_the_largest_number_of_members_takes_microseconds() {
    let names: Vec<String> = (0..config::virtual_models::MEMBERS_MAX)
        .map(|nth| format!("m{nth}: 1"))
        .collect();
    let split = model(&format!("split: {{{}}}", names.join(", ")));
    let candidates = cold(split.members.len());
    let fastest = (0..20)
        .map(|round| {
            let begun = std::time::Instant::now();
            for number in 0..100 {
                let number = round * 100 + number;
                std::hint::black_box(choose(&split, &candidates, &NO_FACTS, number, never));
            }
            begun.elapsed() / 100
        })
        .min();
    assert!(fastest.is_some_and(|time| time < TIME_MAX), "{fastest:?}");
}
