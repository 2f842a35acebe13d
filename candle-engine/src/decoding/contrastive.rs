//! The rule of contrastive search (Su et al. 2022): among the likeliest tokens, choose the token whose hidden state is least
//! similar to earlier ones, weighted against its probability.

/// The contrastive search settings of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ContrastiveSettings {
    /// Weight of similarity against probability, 0 to 1.
    pub penalty_alpha: f32,
    /// Number of likeliest tokens to consider.
    pub candidates: usize,
}

/// The normalised hidden states so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Directions(Vec<Vec<f32>>);

impl Directions {
    /// Adds a hidden state.
    pub fn add(&mut self, mut state: Vec<f32>) {
        normalise(&mut state);
        self.0.push(state);
    }

    /// The cosine to the most similar earlier state, or -1 without earlier states.
    pub fn similarity(&self, state: &[f32]) -> f32 {
        let mut state = state.to_vec();
        normalise(&mut state);
        let cosine = |other: &Vec<f32>| other.iter().zip(&state).map(|(a, b)| a * b).sum::<f32>();
        self.0.iter().map(cosine).fold(-1.0, f32::max)
    }
}

fn normalise(state: &mut [f32]) {
    let length = state.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        state.iter_mut().for_each(|x| *x /= length);
    }
}

/// Returns the index of the best candidate, given (probability, similarity) pairs. The first one wins ties.
pub(crate) fn choose(candidates: &[(f32, f32)], penalty_alpha: f32) -> Option<usize> {
    let score = |(probability, similarity): &(f32, f32)| {
        (1.0 - penalty_alpha) * probability - penalty_alpha * similarity
    };
    let mut best: Option<(usize, f32)> = None;
    for (index, candidate) in candidates.iter().enumerate() {
        let score = score(candidate);
        if best.is_none_or(|(_, most)| score > most) {
            best = Some((index, score));
        }
    }
    best.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_likely_repetition_loses_to_a_new_token() {
        let candidates = [(0.6, 0.95), (0.3, 0.1), (0.1, 0.0)];
        assert_eq!(choose(&candidates, 0.0), Some(0), "probability alone");
        assert_eq!(choose(&candidates, 0.6), Some(1));
        assert_eq!(choose(&candidates, 1.0), Some(2), "novelty alone");
        assert_eq!(choose(&[], 0.6), None);
    }

    #[test]
    fn similarity_is_the_largest_cosine_regardless_of_vector_length() {
        let mut seen = Directions::default();
        assert_eq!(seen.similarity(&[1.0, 0.0]), -1.0);
        seen.add(vec![0.0, 5.0]);
        seen.add(vec![-3.0, 0.0]);
        seen.add(vec![0.0, 0.0]);
        assert!((seen.similarity(&[2.0, 2.0]) - 0.5f32.sqrt()).abs() < 1e-6);
        assert_eq!(seen.similarity(&[0.0, 0.1]), 1.0);
    }
}
