//! The rules of beam search: which beams continue with which tokens, which completions are kept, and when the search ends.

use crate::sampling::likeliest;

/// The condition that ends the search before its token limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EarlyStopping {
    /// As many finished completions as beams.
    AtOnce,
    /// No beam, at its current length, is better than the worst kept completion.
    #[default]
    WhenWorse,
    /// No beam can become better than the worst kept completion, whatever its length.
    Never,
}

/// The beam search settings of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BeamSettings {
    pub beams: usize,
    /// The sum of logprobs is divided by the length to this power; positive values favor long completions.
    pub length_penalty: f32,
    pub early_stopping: EarlyStopping,
}

/// A possible extension of beam `parent` by `token`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extension {
    pub parent: usize,
    pub token: u32,
    /// Sum of the logprobs, including the token's.
    pub sum: f64,
    /// Among the best extensions, as many as there are beams. Only these may end a completion.
    pub is_leading: bool,
}

/// The finished completions, each with the caller's state `T`.
#[derive(Debug)]
pub(crate) struct Beams<T> {
    settings: BeamSettings,
    /// Best first, at most as many as beams.
    finished: Vec<(f64, T)>,
}

impl<T> Beams<T> {
    pub fn new(settings: BeamSettings) -> Self {
        Self {
            settings,
            finished: Vec::new(),
        }
    }

    /// Returns the best extensions, the best first. Their number is twice that of the beams, which leaves enough even if half of
    /// them end a completion. `beams` are the current sums, and `rows` the logprobs of the next token for each.
    pub fn extensions(&self, beams: &[f64], rows: &[Vec<f32>]) -> Vec<Extension> {
        let count = self.settings.beams * 2;
        let mut ways: Vec<Extension> = Vec::new();
        for (parent, (sum, row)) in beams.iter().zip(rows).enumerate() {
            ways.extend(likeliest(row, count).into_iter().map(|token| Extension {
                parent,
                token,
                sum: sum + f64::from(row[token as usize]),
                is_leading: false,
            }));
        }
        // A stable sort keeps ties in the order of beams and tokens.
        ways.sort_by(|a, b| b.sum.total_cmp(&a.sum));
        ways.truncate(count);
        for way in ways.iter_mut().take(self.settings.beams) {
            way.is_leading = true;
        }
        ways
    }

    /// Keeps a completion of `tokens` tokens if it is among the best.
    pub fn finish(&mut self, sum: f64, tokens: usize, state: T) {
        let score = self.score(sum, tokens);
        let place = self.finished.partition_point(|(other, _)| *other >= score);
        self.finished.insert(place, (score, state));
        self.finished.truncate(self.settings.beams);
    }

    /// Returns true if the search can end. `best` is the best sum among the beams at `tokens` of `max_tokens` tokens.
    pub fn is_done(&self, best: f64, tokens: usize, max_tokens: usize) -> bool {
        let Some((worst, _)) = self.finished.last() else {
            return false;
        };
        if self.finished.len() < self.settings.beams {
            return false;
        }
        let longest = if self.settings.length_penalty > 0.0 {
            max_tokens
        } else {
            tokens
        };
        match self.settings.early_stopping {
            EarlyStopping::AtOnce => true,
            EarlyStopping::WhenWorse => *worst >= self.score(best, tokens),
            EarlyStopping::Never => *worst >= self.score(best, longest),
        }
    }

    /// Returns the best completions, the best first.
    pub fn into_best(self, count: usize) -> Vec<T> {
        let best = self.finished.into_iter().take(count);
        best.map(|(_, state)| state).collect()
    }

    fn score(&self, sum: f64, tokens: usize) -> f64 {
        sum / (tokens.max(1) as f64).powf(f64::from(self.settings.length_penalty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(beams: usize, length_penalty: f32, early_stopping: EarlyStopping) -> BeamSettings {
        BeamSettings {
            beams,
            length_penalty,
            early_stopping,
        }
    }

    #[test]
    fn extensions_of_all_beams_compete() {
        let beams = Beams::<()>::new(settings(2, 1.0, EarlyStopping::default()));
        let rows = [vec![-0.1, -3.0, f32::NEG_INFINITY], vec![-0.2, -0.3, -9.0]];
        let ways: Vec<(usize, u32)> = beams
            .extensions(&[-2.0, -1.0], &rows)
            .iter()
            .map(|way| (way.parent, way.token))
            .collect();
        assert_eq!(ways, [(1, 0), (1, 1), (0, 0), (0, 1)]);
        let leading = beams.extensions(&[-2.0, -1.0], &rows);
        assert_eq!(leading.iter().filter(|way| way.is_leading).count(), 2);
    }

    #[test]
    fn the_best_responses_are_kept_by_score_and_length_penalty() {
        let best = |length_penalty: f32| {
            let mut beams = Beams::new(settings(2, length_penalty, EarlyStopping::default()));
            beams.finish(-3.0, 1, "short");
            beams.finish(-4.0, 4, "long");
            beams.finish(-50.0, 2, "bad");
            beams.into_best(2)
        };
        assert_eq!(best(0.0), ["short", "long"]);
        assert_eq!(best(1.0), ["long", "short"]);
    }

    #[test]
    fn the_search_ends_according_to_early_stopping() {
        for (early_stopping, best, done) in [
            (EarlyStopping::AtOnce, -0.1, true),
            (EarlyStopping::WhenWorse, -0.1, false),
            (EarlyStopping::WhenWorse, -6.0, true),
            (EarlyStopping::Never, -6.0, false),
            (EarlyStopping::Never, -90.0, true),
        ] {
            let mut beams = Beams::new(settings(2, 1.0, early_stopping));
            beams.finish(-2.0, 2, ());
            assert!(!beams.is_done(best, 2, 10), "one answer is not enough");
            beams.finish(-4.0, 2, ());
            assert_eq!(
                beams.is_done(best, 2, 10),
                done,
                "{early_stopping:?} {best}"
            );
        }
    }
}
