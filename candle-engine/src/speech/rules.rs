//! The rules by which tokens of a window may follow each other, as in OpenAI's `decoding.py`: suppressed tokens, and timestamps in
//! pairs that never go back.

use super::vocabulary::{TIMESTAMPS, Vocabulary};

const NEVER: f32 = f32::NEG_INFINITY;

/// Forbids tokens that may not follow `tokens`, the window's text so far.
pub(super) fn apply(vocabulary: &Vocabulary, tokens: &[u32], logits: &mut [f32]) {
    let mut forbid = |token: u32| {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = NEVER;
        }
    };
    if tokens.is_empty() {
        vocabulary
            .suppressed_first
            .iter()
            .copied()
            .for_each(&mut forbid);
    }
    vocabulary.suppressed.iter().copied().for_each(&mut forbid);
    let (end, first) = (vocabulary.end as usize, vocabulary.first_timestamp as usize);
    forbid(vocabulary.first_timestamp - 1);
    let last = first + TIMESTAMPS as usize;
    logits[last.min(vocabulary.size)..].fill(NEVER);
    let is_timestamp =
        |token: Option<&u32>| token.is_some_and(|token| vocabulary.is_timestamp(*token));
    let last_was = is_timestamp(tokens.last());
    // The place before the first token counts as a timestamp: text follows the first timestamp.
    let one_before_was = tokens.len() < 2 || is_timestamp(tokens.iter().rev().nth(1));
    if last_was {
        let forbidden = if one_before_was { first..last } else { 0..end };
        logits[forbidden].fill(NEVER);
    }
    let timestamps = tokens.iter().rev().copied();
    if let Some(timestamp) = timestamps
        .clone()
        .find(|token| vocabulary.is_timestamp(*token))
    {
        // A segment has a length, but the next may begin where it ends.
        let next = if last_was && !one_before_was {
            timestamp
        } else {
            timestamp + 1
        };
        logits[first..last.min(next as usize)].fill(NEVER);
    }
    if tokens.is_empty() {
        logits[..first].fill(NEVER);
        let most = first + vocabulary.initial_timestamp_max as usize + 1;
        logits[most.min(last)..last].fill(NEVER);
    }
    // A timestamp is chosen if all timestamps together are likelier than the likeliest other token.
    let timestamps = log_sum(&logits[first..last]);
    let text = logits[..first].iter().copied().fold(NEVER, f32::max);
    if timestamps > text {
        logits[..first].fill(NEVER);
    }
}

/// The logarithm of the sum of exponentials.
pub(super) fn log_sum(logits: &[f32]) -> f32 {
    let most = logits.iter().copied().fold(NEVER, f32::max);
    if most == NEVER {
        return NEVER;
    }
    let sum: f64 = logits
        .iter()
        .map(|logit| f64::from(logit - most).exp())
        .sum();
    most + sum.ln() as f32
}

#[cfg(test)]
mod tests {
    use super::super::tests::vocabulary;
    use super::*;

    /// The tokens that may follow, when all are equally likely before the last rule.
    fn allowed(tokens: &[u32], raised: u32) -> Vec<u32> {
        let vocabulary = vocabulary();
        let mut logits = vec![0.0; vocabulary.size];
        logits[raised as usize] = 100.0;
        apply(&vocabulary, tokens, &mut logits);
        let allowed = logits
            .iter()
            .enumerate()
            .filter(|(_, logit)| **logit > NEVER);
        allowed.map(|(token, _)| token as u32).collect()
    }

    fn time(step: u32) -> u32 {
        vocabulary().first_timestamp + step
    }

    #[test]
    fn a_window_begins_with_an_early_timestamp() {
        let allowed = allowed(&[], 40);
        assert_eq!(allowed, (time(0)..=time(50)).collect::<Vec<_>>());
    }

    #[test]
    fn text_follows_the_first_timestamp_and_two_timestamps_in_a_row() {
        for tokens in [vec![time(3)], vec![time(0), 40, time(9), time(9)]] {
            let allowed = allowed(&tokens, 41);
            assert!(allowed.contains(&41) && allowed.contains(&vocabulary().end));
            assert!(allowed.iter().all(|token| *token < time(0)), "{tokens:?}");
        }
    }

    #[test]
    fn a_timestamp_after_text_is_followed_by_a_timestamp_that_is_not_earlier_or_the_end() {
        let allowed = allowed(&[time(0), 40, time(9)], vocabulary().end);
        assert!(allowed.contains(&time(9)) && allowed.contains(&vocabulary().end));
        assert!(!allowed.contains(&40) && !allowed.contains(&time(8)));
    }

    #[test]
    fn a_segment_ends_after_it_begins() {
        let allowed = allowed(&[time(7), 40], 41);
        assert!(allowed.contains(&time(8)) && !allowed.contains(&time(7)));
    }

    #[test]
    fn likelier_timestamps_together_replace_a_likely_token() {
        let vocabulary = vocabulary();
        let mut logits = vec![NEVER; vocabulary.size];
        // 1,000 timestamps of 1/1,000 each, and text of 1/2.
        logits[40] = 0.5f32.ln();
        for step in 100..1100 {
            logits[time(step) as usize] = 0.001f32.ln();
        }
        apply(&vocabulary, &[time(0), 50], &mut logits);
        assert!(logits[40] == NEVER && logits[time(100) as usize] > NEVER);
    }

    #[test]
    fn suppressed_tokens_and_the_mark_without_timestamps_never_follow() {
        let (vocabulary, after) = (vocabulary(), allowed(&[time(0), 40], 41));
        for token in vocabulary.suppressed.iter().chain([&(time(0) - 1)]) {
            assert!(!after.contains(token), "{token}");
        }
    }
}
