//! Ratings of models by comparisons, after A. E. Elo (*The Rating of Chessplayers, Past and Present*, 1978). Uses only integers:
//! the same votes in the same order give the same ratings on every machine. Pure.
//!
//! A model with the rating `R` is expected to score `E = 1 / (1 + 10^((S - R) / 400))` against a model with the rating `S`. It
//! scores 1 if it was chosen, 0 if the other was chosen, and 1/2 in a tie. Its rating then rises by `K × (score - E)`, and the
//! other's falls by the same amount. With more than two models, the chosen model plays such a game against each of the others, and
//! in a tie every pair plays one. All games of a vote start from the ratings before it.

/// A rating in thousandths of a point.
pub type Millipoints = i64;

/// The rating of a model before its first vote.
pub const START: Millipoints = 1_000_000;
/// The maximum change of a rating by one game (K).
pub const MOST_PER_GAME: Millipoints = 32_000;
/// Larger differences are clamped to this one, where the weaker model is expected to score 1%. This lets every game change the
/// ratings.
const DIFFERENCE_MAX: u64 = 800_000;

/// The number 1 in the fixed-point representation below.
const ONE: u128 = 1 << 48;
/// The 400,000th root of 10: the factor of the odds for a thousandth of a point.
const ROOT: u128 = 281_476_597_015_533;

/// The outcome of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The model at this index was chosen.
    Best(usize),
    Tie,
}

/// The change of each rating, in the same order.
pub fn changes(ratings: &[Millipoints], verdict: Verdict) -> Vec<Millipoints> {
    let mut changes = vec![0; ratings.len()];
    let mut play = |one: usize, other: usize, score: i64| {
        let moved = change(ratings[one], ratings[other], score);
        changes[one] += moved;
        changes[other] -= moved;
    };
    match verdict {
        Verdict::Best(best) => {
            let others = (0..ratings.len()).filter(|at| *at != best);
            others.for_each(|other| play(best, other, MILLION));
        }
        Verdict::Tie => {
            let pairs = (0..ratings.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
            pairs.for_each(|(one, other)| play(one, other, MILLION / 2));
        }
    }
    changes
}

const MILLION: i64 = 1_000_000;

/// The change by a game for the side of `own`; `score` is in millionths.
fn change(own: Millipoints, other: Millipoints, score: i64) -> Millipoints {
    let weaker = expected_of_the_weaker(own.abs_diff(other));
    let expected = if own < other {
        weaker
    } else {
        MILLION - weaker
    };
    let moved = MOST_PER_GAME * (score - expected);
    (moved + moved.signum() * MILLION / 2) / MILLION
}

/// The expected score in millionths. The stronger model is expected to score the rest, which makes both sides agree to the last
/// digit.
fn expected_of_the_weaker(difference: u64) -> i64 {
    let total = ONE + power(difference.min(DIFFERENCE_MAX));
    let expected = (ONE * 1_000_000 + total / 2) / total;
    i64::try_from(expected).unwrap_or(MILLION / 2)
}

/// A power of the root, by squaring.
fn power(mut exponent: u64) -> u128 {
    let (mut result, mut square) = (ONE, ROOT);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = (result * square) >> 48;
        }
        exponent >>= 1;
        if exponent > 0 {
            square = (square * square) >> 48;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_score_matches_the_elo_formula() {
        for difference in [
            0, 1, 999, 25_000, 100_000, 200_000, 400_000, 799_999, 800_000,
        ] {
            let odds = 10_f64.powf(difference as f64 / 400_000.0);
            let shown = expected_of_the_weaker(difference);
            let exact = 1e6 / (1.0 + odds);
            assert!(
                (shown as f64 - exact).abs() <= 0.51,
                "{difference}: {shown} for {exact}"
            );
        }
        assert_eq!(expected_of_the_weaker(0), 500_000);
        assert_eq!(
            expected_of_the_weaker(u64::MAX),
            expected_of_the_weaker(800_000)
        );
    }

    #[test]
    fn between_equal_ratings_a_win_moves_half_of_k_and_a_tie_moves_nothing() {
        assert_eq!(
            changes(&[START, START], Verdict::Best(1)),
            [-16_000, 16_000]
        );
        assert_eq!(changes(&[START, START], Verdict::Tie), [0, 0]);
    }

    #[test]
    fn an_upset_moves_ratings_more_than_an_expected_result() {
        // 10^(-1) / (1 + 10^(-1)) of 32 points: 2.909; the rest: 29.091.
        assert_eq!(
            changes(&[1_400_000, START], Verdict::Best(0)),
            [2_909, -2_909]
        );
        assert_eq!(
            changes(&[1_400_000, START], Verdict::Best(1)),
            [-29_091, 29_091]
        );
        assert_eq!(
            changes(&[1_400_000, START], Verdict::Tie),
            [-13_091, 13_091]
        );
    }

    #[test]
    fn the_winner_plays_each_other_model_and_points_are_conserved() {
        let ratings = [1_100_000, START, 900_000];
        let moved = changes(&ratings, Verdict::Best(2));
        assert!(
            moved[2] > 40_000 && moved[0] < moved[1] && moved[1] < 0,
            "{moved:?}"
        );
        for verdict in [
            Verdict::Best(0),
            Verdict::Best(1),
            Verdict::Best(2),
            Verdict::Tie,
        ] {
            assert_eq!(changes(&ratings, verdict).iter().sum::<i64>(), 0);
        }
    }

    #[test]
    fn the_order_within_a_comparison_does_not_matter_and_the_order_of_votes_does() {
        for (one, other) in [(1_003_217, 987_654), (START, 1_799_999), (1, 2_000_000)] {
            for (verdict, mirrored) in [
                (Verdict::Best(0), Verdict::Best(1)),
                (Verdict::Best(1), Verdict::Best(0)),
                (Verdict::Tie, Verdict::Tie),
            ] {
                let mut turned = changes(&[other, one], mirrored);
                turned.reverse();
                assert_eq!(changes(&[one, other], verdict), turned);
            }
        }
        let after = |votes: [usize; 3]| {
            votes.iter().fold([START, START], |now, best| {
                let moved = changes(&now, Verdict::Best(*best));
                [now[0] + moved[0], now[1] + moved[1]]
            })
        };
        assert_ne!(after([0, 0, 1]), after([1, 0, 0]));
        assert_eq!(after([0, 0, 1]), after([0, 0, 1]));
    }

    #[test]
    fn ratings_still_move_after_a_hundred_thousand_wins() {
        let mut now = [START, START];
        for _ in 0..100_000 {
            let moved = changes(&now, Verdict::Best(0));
            now = [now[0] + moved[0], now[1] + moved[1]];
        }
        assert_eq!(changes(&now, Verdict::Best(0)), [317, -317]);
        assert_eq!(now[0] + now[1], 2 * START);
    }
}
