//! Filters the tokens that may be sampled, in this order: temperature, top-k, top-p, min-p, typical-p.

use super::SamplingSettings;
use std::cmp::Ordering;

/// A token that may be sampled, and its weight: a probability up to a common factor.
pub(super) type Candidate = (u32, f32);

/// Number of likeliest tokens to sort first; more are sorted only if these do not suffice.
const SORTED_FIRST: usize = 128;

/// Returns the candidates; empty only if no logit is a number.
pub(super) fn candidates(logits: &[f32], settings: &SamplingSettings) -> Vec<Candidate> {
    let numbers = (0u32..).zip(logits).filter(|(_, logit)| logit.is_finite());
    // The first token wins ties.
    let larger = |best: (u32, f32), (token, logit): (u32, &f32)| match logit.total_cmp(&best.1) {
        Ordering::Greater => (token, *logit),
        _ => best,
    };
    let Some((best, largest)) = numbers
        .clone()
        .next()
        .map(|(token, logit)| numbers.clone().fold((token, *logit), larger))
    else {
        return Vec::new();
    };
    if settings.temperature == 0.0 || settings.top_k == Some(1) {
        return vec![(best, 1.0)];
    }
    let weight = |logit: f32| ((logit - largest) / settings.temperature).exp();
    let mut kept: Vec<Candidate> = numbers
        .map(|(token, logit)| (token, weight(*logit)))
        .collect();
    if let Some(count) = settings.top_k {
        sort_first(&mut kept, count);
        kept.truncate(count);
    }
    if settings.top_p < 1.0 {
        keep_likeliest(&mut kept, settings.top_p);
    }
    if settings.min_p > 0.0 {
        // The likeliest token has weight 1.
        kept.retain(|(_, weight)| *weight >= settings.min_p);
    }
    if settings.typical_p < 1.0 {
        keep_typical(&mut kept, settings.typical_p);
    }
    kept
}

/// Sorts only the likeliest `count` to the front: few of a large vocabulary are needed.
fn sort_first(candidates: &mut [Candidate], count: usize) {
    let order = |a: &Candidate, b: &Candidate| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if (1..candidates.len()).contains(&count) {
        candidates.select_nth_unstable_by(count - 1, order);
    }
    let count = count.min(candidates.len());
    candidates[..count].sort_unstable_by(order);
}

/// Keeps the likeliest candidates that together have this share, at least one.
fn keep_likeliest(candidates: &mut Vec<Candidate>, share: f32) {
    let wanted = candidates.iter().map(|(_, weight)| weight).sum::<f32>() * share;
    let mut sorted = SORTED_FIRST;
    loop {
        sort_first(candidates, sorted);
        let mut sum = 0.0;
        let first = candidates.iter().take(sorted);
        let before = first.take_while(|(_, weight)| {
            let is_short = sum < wanted;
            sum += weight;
            is_short
        });
        let count = before.count().max(1);
        if count < sorted || sorted >= candidates.len() {
            return candidates.truncate(count);
        }
        sorted = sorted.saturating_mul(8);
    }
}

/// Keeps the first candidates that together have this share, at least one.
fn keep_share(candidates: &mut Vec<Candidate>, share: f32) {
    let wanted = candidates.iter().map(|(_, weight)| weight).sum::<f32>() * share;
    let mut sum = 0.0;
    let mut count = 0;
    while count < candidates.len() && (count == 0 || sum < wanted) {
        sum += candidates[count].1;
        count += 1;
    }
    candidates.truncate(count);
}

/// Keeps the candidates whose surprisal is closest to the expected one, up to this share of the probability.
fn keep_typical(candidates: &mut Vec<Candidate>, share: f32) {
    let sum: f32 = candidates.iter().map(|(_, weight)| weight).sum();
    let surprise = |weight: f32| -(weight / sum).max(f32::MIN_POSITIVE).ln();
    let expected: f32 = candidates
        .iter()
        .map(|(_, weight)| weight / sum * surprise(*weight))
        .sum();
    let distance = |candidate: &Candidate| (surprise(candidate.1) - expected).abs();
    candidates.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    keep_share(candidates, share);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities 0.5, 0.25, 0.15, 0.1.
    fn logits() -> Vec<f32> {
        [0.25f32, 0.5, 0.1, 0.15]
            .iter()
            .map(|probability| probability.ln())
            .collect()
    }

    fn tokens(settings: SamplingSettings) -> Vec<u32> {
        let mut tokens: Vec<u32> = candidates(&logits(), &settings)
            .into_iter()
            .map(|(token, _)| token)
            .collect();
        tokens.sort_unstable();
        tokens
    }

    #[test]
    fn each_sampling_filter_keeps_the_expected_tokens() {
        let all = SamplingSettings::default;
        assert_eq!(tokens(all()), [0, 1, 2, 3]);
        assert_eq!(
            tokens(SamplingSettings {
                top_k: Some(2),
                ..all()
            }),
            [0, 1]
        );
        assert_eq!(
            tokens(SamplingSettings {
                top_p: 0.8,
                ..all()
            }),
            [0, 1, 3]
        );
        // A quarter of the likeliest's probability is 0.125.
        assert_eq!(
            tokens(SamplingSettings {
                min_p: 0.25,
                ..all()
            }),
            [0, 1, 3]
        );
        assert_eq!(
            tokens(SamplingSettings {
                min_p: 1.0,
                ..all()
            }),
            [1]
        );
        // The expected surprisal is 1.21; that of 0.25 is 1.39, of 0.5 0.69, of 0.15 1.9.
        assert_eq!(
            tokens(SamplingSettings {
                typical_p: 0.2,
                ..all()
            }),
            [0]
        );
        assert_eq!(
            tokens(SamplingSettings {
                typical_p: 0.7,
                ..all()
            }),
            [0, 1]
        );
    }

    #[test]
    fn filters_keep_the_same_tokens_of_a_large_vocabulary_as_a_full_sort() {
        let logits: Vec<f32> = (0..5000u32)
            .map(|token| (token.wrapping_mul(2_654_435_761) % 1000) as f32 / 150.0)
            .collect();
        let mut order: Vec<u32> = (0..5000).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        for top_p in [0.0, 0.01, 0.3, 0.9, 0.999] {
            let settings = SamplingSettings {
                top_p,
                ..Default::default()
            };
            let kept = candidates(&logits, &settings);
            let tokens: Vec<u32> = kept.iter().map(|(token, _)| *token).collect();
            assert_eq!(tokens, order[..tokens.len()], "{top_p}");
            let share = |count: usize| {
                let first = order[..count].iter();
                first
                    .map(|token| f64::from(logits[*token as usize]).exp())
                    .sum::<f64>()
                    / sum
            };
            assert!(share(tokens.len()) >= f64::from(top_p) - 1e-3);
            assert!(tokens.len() == 1 || share(tokens.len() - 1) <= f64::from(top_p) + 1e-3);
        }
    }

    #[test]
    fn the_strictest_filters_still_keep_one_token() {
        let hard = SamplingSettings {
            top_p: 0.0,
            min_p: 1.0,
            typical_p: 0.0001,
            temperature: 1e-30,
            ..Default::default()
        };
        assert_eq!(tokens(hard), [1]);
        assert_eq!(
            candidates(&[f32::NAN, f32::INFINITY], &SamplingSettings::default()),
            []
        );
    }
}
