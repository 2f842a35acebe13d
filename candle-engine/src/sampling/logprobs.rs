//! The probabilities reported to clients: the model's own, before temperature, penalties, biases, filters and grammars.

/// Reported for a probability of zero, because JSON has no infinity.
const LOWEST: f32 = -9999.0;

/// A token with its logprob, and the likeliest alternatives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenLogprob {
    pub token: u32,
    pub logprob: f32,
    /// Likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// Converts a row of logits to natural logarithms of probabilities. NaN becomes negative infinity.
pub(crate) fn log_softmax(logits: &mut [f32]) {
    let sum = log_sum(logits);
    for logit in logits {
        *logit = scored(*logit, sum);
    }
}

/// Returns the logprobs of `token` and of the `top` likeliest tokens.
pub(crate) fn logprob_of(logits: &[f32], token: u32, top: usize) -> TokenLogprob {
    let sum = log_sum(logits);
    let score = |token: u32| {
        logits
            .get(token as usize)
            .map_or(LOWEST, |logit| scored(*logit, sum).max(LOWEST))
    };
    TokenLogprob {
        token,
        logprob: score(token),
        top: likeliest(logits, top)
            .into_iter()
            .map(|token| (token, score(token)))
            .collect(),
    }
}

/// Returns the `count` tokens with the largest logits, largest first. The lower id wins ties.
pub(crate) fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..logits.len() as u32)
        .filter(|token| logits[*token as usize].is_finite())
        .collect();
    let order = |a: &u32, b: &u32| {
        logits[*b as usize]
            .total_cmp(&logits[*a as usize])
            .then(a.cmp(b))
    };
    if count == 0 {
        return Vec::new();
    }
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count - 1, order);
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(order);
    tokens
}

fn scored(logit: f32, sum: f64) -> f32 {
    if logit.is_finite() {
        (f64::from(logit) - sum) as f32
    } else {
        f32::NEG_INFINITY
    }
}

/// The log-sum-exp of the logits, without overflow.
fn log_sum(logits: &[f32]) -> f64 {
    let finite = || logits.iter().copied().filter(|logit| logit.is_finite());
    let largest = f64::from(finite().fold(f32::MIN, f32::max));
    largest
        + finite()
            .map(|logit| (f64::from(logit) - largest).exp())
            .sum::<f64>()
            .ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_are_sorted_in_descending_order() {
        let logits = [1.0, 3.0, f32::NEG_INFINITY, 2.0, 3.0];
        let all = logprob_of(&logits, 0, 10);
        let order: Vec<u32> = all.top.iter().map(|(token, _)| *token).collect();
        assert_eq!(order, [1, 4, 3, 0]);
        let sum: f32 = all.top.iter().map(|(_, logprob)| logprob.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        assert_eq!(all.logprob, all.top[3].1);
        assert_eq!(logprob_of(&logits, 0, 2).top, all.top[..2]);
        assert_eq!(logprob_of(&logits, 0, 0).top, []);
    }

    #[test]
    fn a_logprob_that_json_cannot_represent_becomes_a_very_small_number() {
        let logits = [1000.0, -1000.0, f32::NEG_INFINITY, f32::NAN];
        assert_eq!(logprob_of(&logits, 0, 1).logprob, 0.0);
        for token in 1..5 {
            let logprob = logprob_of(&logits, token, 0).logprob;
            assert!((-9999.0..=-2000.0).contains(&logprob), "{logprob}");
        }
        let nothing = logprob_of(&[f32::NAN, f32::NEG_INFINITY], 0, 3);
        assert_eq!((nothing.logprob, nothing.top), (-9999.0, Vec::new()));
    }

    #[test]
    fn log_softmax_yields_the_logarithms_of_the_probabilities() {
        let mut row = [0.0, 0.0, f32::NEG_INFINITY];
        log_softmax(&mut row);
        assert!((row[0] - 0.5f32.ln()).abs() < 1e-6 && row[2] == f32::NEG_INFINITY);
    }
}
