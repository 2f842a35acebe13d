//! Chooses the experts of a token from the router's logits. Pure.
//!
//! The formulas follow the routers in `transformers` (Mixtral, Qwen2-MoE, Qwen3-MoE, DeepSeek V2 and V3).

use crate::spec::{Experts, Scoring};

/// Chooses experts row by row; reuses its memory.
#[derive(Debug, Default)]
pub(super) struct Router {
    scores: Vec<f32>,
    ranks: Vec<f32>,
    order: Vec<usize>,
    groups: Vec<(f32, usize)>,
    /// For each expert, its rows and their weights.
    pub rows: Vec<Vec<usize>>,
    pub factors: Vec<Vec<f32>>,
}

impl Router {
    /// Groups the rows of a step by expert. `logits` has `experts.count` numbers per row. `bias` affects only the ranking of
    /// experts, not their weights.
    pub fn route(&mut self, experts: &Experts, bias: Option<&[f32]>, logits: &[f32]) {
        self.rows.resize_with(experts.count, Vec::new);
        self.factors.resize_with(experts.count, Vec::new);
        self.rows.iter_mut().for_each(Vec::clear);
        self.factors.iter_mut().for_each(Vec::clear);
        for (row, logits) in logits.chunks_exact(experts.count).enumerate() {
            self.choose(experts, bias, logits);
            let chosen = &self.order[..experts.chosen.min(experts.count)];
            let sum: f32 = chosen.iter().map(|expert| self.scores[*expert]).sum();
            // Adding the smallest positive number keeps all-zero scores from becoming NaN, as in DeepSeek's router.
            let divisor = if experts.normalises_chosen {
                sum + 1e-20
            } else {
                1.0
            };
            for expert in chosen {
                self.rows[*expert].push(row);
                self.factors[*expert].push(self.scores[*expert] / divisor * experts.factor);
            }
        }
    }

    fn choose(&mut self, experts: &Experts, bias: Option<&[f32]>, logits: &[f32]) {
        self.scores.clear();
        match experts.scoring {
            Scoring::Softmax => {
                let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                self.scores
                    .extend(logits.iter().map(|logit| (logit - most).exp()));
                let sum: f32 = self.scores.iter().sum();
                self.scores.iter_mut().for_each(|score| *score /= sum);
            }
            Scoring::Sigmoid => self
                .scores
                .extend(logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp()))),
        }
        self.ranks.clear();
        self.ranks.extend_from_slice(&self.scores);
        if let Some(bias) = bias {
            for (rank, bias) in self.ranks.iter_mut().zip(bias) {
                *rank += bias;
            }
        }
        if let Some(groups) = experts.groups {
            self.close_groups(groups.count, groups.chosen, groups.by_two_best);
        }
        self.order.clear();
        self.order.extend(0..experts.count);
        let ranks = &self.ranks;
        // Ties go to the lower index.
        self.order
            .sort_unstable_by(|a, b| ranks[*b].total_cmp(&ranks[*a]).then(a.cmp(b)));
    }

    /// Excludes the experts of all groups but the best, by ranking them last.
    fn close_groups(&mut self, count: usize, chosen: usize, by_two_best: bool) {
        let size = self.ranks.len() / count.max(1);
        self.groups.clear();
        for (group, ranks) in self.ranks.chunks_exact(size.max(1)).enumerate() {
            let (mut best, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
            for rank in ranks {
                if *rank > best {
                    (best, second) = (*rank, best);
                } else if *rank > second {
                    second = *rank;
                }
            }
            let score = if by_two_best && size > 1 {
                best + second
            } else {
                best
            };
            self.groups.push((score, group));
        }
        self.groups
            .sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, group) in self.groups.iter().skip(chosen) {
            self.ranks[group * size..(group + 1) * size].fill(f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Activation, ExpertGroups, ExpertNames};

    fn experts() -> Experts {
        Experts {
            count: 4,
            chosen: 2,
            width: 8,
            activation: Activation::Silu,
            scoring: Scoring::Softmax,
            normalises_chosen: true,
            factor: 1.0,
            shared_width: None,
            gates_shared: false,
            groups: None,
            naming: ExpertNames::Qwen,
        }
    }

    #[test]
    fn the_highest_scoring_experts_are_chosen_and_their_weights_sum_to_one() {
        let mut router = Router::default();
        router.route(&experts(), None, &[0.0, 2.0, 1.0, -1.0, 5.0, 0.0, 0.0, 4.0]);
        assert_eq!(router.rows, [vec![1], vec![0], vec![0], vec![1]]);
        let sum = router.factors[1][0] + router.factors[2][0];
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert!(router.factors[1][0] > router.factors[2][0]);
    }

    #[test]
    fn a_bias_changes_which_experts_are_chosen_but_not_their_weights() {
        let mut router = Router::default();
        let experts = Experts {
            scoring: Scoring::Sigmoid,
            normalises_chosen: false,
            chosen: 1,
            factor: 2.0,
            ..experts()
        };
        router.route(&experts, Some(&[0.0, 0.0, 0.0, 9.0]), &[3.0, 0.0, 0.0, 0.0]);
        assert_eq!(router.rows[3], [0]);
        assert_eq!(router.factors[3], [1.0]);
    }

    #[test]
    fn only_experts_of_the_best_groups_are_chosen() {
        let mut router = Router::default();
        let groups = ExpertGroups {
            count: 2,
            chosen: 1,
            by_two_best: false,
        };
        let by_best = Experts {
            groups: Some(groups),
            ..experts()
        };
        let logits = [3.0, -5.0, 2.0, 2.9];
        router.route(&by_best, None, &logits);
        assert_eq!(router.rows, [vec![0], vec![0], vec![], vec![]]);
        let by_two = Experts {
            groups: Some(ExpertGroups {
                by_two_best: true,
                ..groups
            }),
            ..experts()
        };
        router.route(&by_two, None, &logits);
        assert_eq!(router.rows, [vec![], vec![], vec![0], vec![0]]);
    }
}
