//! Owns the choice of the tokens that may be drawn: temperature, top-k, top-p, min-p and typical-p, in this order. Never
//! draws.

use super::SamplingSettings;

/// A token that may be drawn, and its weight: a probability up to a common factor.
pub(super) type Candidate = (u32, f32);

/// The candidates; empty only where no logit is a number.
pub(super) fn candidates(logits: &[f32], settings: &SamplingSettings) -> Vec<Candidate> {
    let finite = |token: &u32| logits[*token as usize].is_finite();
    let by_logit = |a: &u32, b: &u32| {
        let (first, second) = (logits[*a as usize], logits[*b as usize]);
        second.total_cmp(&first).then(a.cmp(b))
    };
    let mut tokens: Vec<u32> = (0..logits.len() as u32).filter(finite).collect();
    let Some(best) = tokens.iter().copied().min_by(by_logit) else {
        return Vec::new();
    };
    if settings.temperature == 0.0 || settings.top_k == Some(1) {
        return vec![(best, 1.0)];
    }
    let is_filtered = settings.top_k.is_some()
        || settings.top_p < 1.0
        || settings.min_p > 0.0
        || settings.typical_p < 1.0;
    if is_filtered {
        tokens.sort_unstable_by(by_logit);
        tokens.truncate(settings.top_k.unwrap_or(usize::MAX));
    }
    let largest = logits[best as usize];
    let weight = |token: u32| ((logits[token as usize] - largest) / settings.temperature).exp();
    let mut kept: Vec<Candidate> = tokens
        .into_iter()
        .map(|token| (token, weight(token)))
        .collect();
    if settings.top_p < 1.0 {
        keep_share(&mut kept, settings.top_p);
    }
    if settings.min_p > 0.0 {
        // The likeliest has weight 1.
        kept.retain(|(_, weight)| *weight >= settings.min_p);
    }
    if settings.typical_p < 1.0 {
        keep_typical(&mut kept, settings.typical_p);
    }
    kept
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

/// Keeps the candidates whose surprise is nearest to the expected one, up to this share of the probability.
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
    fn each_filter_keeps_what_its_name_says() {
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
        // The expected surprise is 1.21; a quarter's is 1.39, a half's 0.69, 0.15's 1.9.
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
    fn something_is_always_left() {
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
