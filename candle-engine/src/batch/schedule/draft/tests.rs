//! Tests lookups by example, and their cost on a text that does not repeat.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const LIMITS: DraftLimits = DraftLimits {
    tokens: 8,
    lookup_max: 3,
    lookup_min: 2,
};

fn found(text: &[u32]) -> Option<usize> {
    let mut index = Index::new(LIMITS, 100);
    index.add(text);
    index.find(text)
}

/// Plays back a known text. Returns the number of steps it takes next to `going_on` other rows, and the number of rejected
/// proposals.
fn steps(text: &[u32], prompt: usize, going_on: usize) -> (usize, usize) {
    let mut draft = Draft::new(LIMITS, text.len());
    let (mut end, mut steps, mut in_vain) = (prompt, 0, 0);
    while end < text.len() {
        draft.propose(&text[..end], text.len() - end - 1, going_on);
        let right = draft.proposed().iter().zip(&text[end..]);
        let accepted = right.take_while(|(a, b)| a == b).count();
        in_vain += draft.proposed().len() - accepted;
        assert_eq!(draft.accept(accepted), &text[end..end + accepted]);
        draft.settle(text[end + accepted]);
        end += accepted + 1;
        steps += 1;
    }
    (steps, in_vain)
}

#[test]
fn the_most_recent_occurrence_of_the_longest_sequence_is_found() {
    assert_eq!(found(&[1, 2, 3, 9, 5, 2, 3, 7, 1, 2, 3]), Some(3));
    assert_eq!(found(&[1, 2, 3, 9, 1, 2, 3, 7, 1, 2, 3]), Some(7));
    assert_eq!(found(&[1, 2, 3, 9, 5, 2, 3]), Some(3), "two of them");
    assert_eq!(found(&[1, 2, 3, 9, 5, 5, 3]), None, "one is not enough");
    for short in [&[][..], &[1], &[1, 1]] {
        assert_eq!(found(short), None, "{short:?}");
    }
}

#[test]
fn adding_a_text_token_by_token_equals_adding_it_in_one_call() {
    let mut random = StdRng::seed_from_u64(1);
    let text: Vec<u32> = (0..2000).map(|_| random.random_range(0..12)).collect();
    let mut grown = Index::new(LIMITS, text.len());
    for end in 1..=text.len() {
        grown.add(&text[..end]);
        let mut whole = Index::new(LIMITS, text.len());
        if end % 97 == 0 {
            whole.add(&text[..end]);
            assert_eq!(grown.find(&text[..end]), whole.find(&text[..end]));
        }
    }
}

#[test]
fn an_index_is_bounded_and_never_finds_a_wrong_match() {
    let mut index = Index::new(LIMITS, usize::MAX);
    let text: Vec<u32> = (0..200_000u32).map(|nth| nth % 70_001).collect();
    index.add(&text);
    assert!(index.places.iter().all(|places| places.len() == PLACES_MAX));
    if let Some(place) = index.find(&text) {
        assert_eq!(text[place - 2..place], text[text.len() - 2..]);
    }
}

#[test]
fn a_loop_is_proposed_beyond_the_end_of_the_text() {
    let mut draft = Draft::new(LIMITS, 100);
    draft.right = 1.0;
    draft.propose(&[7, 1, 2, 1, 2, 1, 2], 100, 1);
    assert_eq!(draft.proposed(), [1, 2, 1, 2, 1, 2, 1, 2]);
    let mut draft = Draft::new(LIMITS, 100);
    draft.right = 1.0;
    draft.propose(&[7, 5, 5, 5, 5], 3, 1);
    assert_eq!(draft.proposed(), [5, 5, 5]);
    draft.propose(&[7, 5, 5, 5, 5], 0, 1);
    assert!(draft.proposed().is_empty());
}

#[test]
fn speculation_saves_steps_on_repetitive_text() {
    let text: Vec<u32> = (0..50u32).cycle().take(300).collect();
    let (steps, in_vain) = steps(&text, 60, 1);
    assert!(steps < 240 / 5, "{steps} steps");
    assert_eq!(in_vain, 0);
}

#[test]
fn speculation_proposes_nothing_for_text_without_repetition() {
    let text: Vec<u32> = (0..500).collect();
    assert_eq!(steps(&text, 10, 1), (490, 0));
}

#[test]
fn misleading_repetition_costs_less_than_five_percent() {
    let mut random = StdRng::seed_from_u64(3);
    // Pairs recur constantly, but the token after them is drawn from eight.
    let text: Vec<u32> = (0..4000).map(|_| random.random_range(0..8)).collect();
    let (steps, in_vain) = steps(&text, 10, 1);
    let proposed = in_vain + 3990 - steps;
    let cost = steps as f32 + proposed as f32 / ROWS_OF_A_STEP;
    assert!(cost < 3990.0 * 1.05, "{steps} steps, {in_vain} in vain");
}

#[test]
fn proposals_pause_after_wrong_ones_and_resume_once_lookups_succeed() {
    let mut draft = Draft::new(LIMITS, 100);
    let text = [1, 2, 3, 1, 2];
    let mut proposed = |next: u32| {
        draft.propose(&text, 50, 1);
        let count = draft.proposed().len();
        if draft.proposed().first() == Some(&next) {
            draft.accept(1);
        }
        draft.settle(next);
        count
    };
    assert_eq!(proposed(3), 0, "nothing is known of this text");
    assert!(proposed(3) > 0);
    while proposed(9) > 0 {}
    assert_eq!(proposed(9), 0);
    while proposed(3) == 0 {}
}

#[test]
fn a_token_must_be_more_likely_to_be_proposed_the_more_rows_a_step_has() {
    let counts = |right: f32| [1, 2, 4, 8].map(|going_on| paying(right, going_on));
    assert_eq!(counts(0.0), [0; 4]);
    assert_eq!(counts(0.25), [1, 0, 0, 0]);
    assert_eq!(counts(0.5), [2, 1, 1, 0]);
    let [alone, two, four, eight] = counts(0.9);
    assert!(alone > two && two > four && four > eight && eight > 0);
}

#[test]
fn the_number_of_proposals_shrinks_with_the_rows_of_a_step() {
    let text = [7, 5, 5, 5, 5];
    let count = |going_on| {
        let mut draft = Draft::new(LIMITS, 100);
        draft.right = 1.0;
        draft.propose(&text, 100, going_on);
        draft.proposed().len()
    };
    assert_eq!([1, 2, 4, 8, 9, 100].map(count), [8, 7, 3, 1, 0, 0]);
}
