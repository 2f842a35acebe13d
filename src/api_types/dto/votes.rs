//! Votes on model comparisons, and the leaderboard.

use serde::Serialize;
use utoipa::ToSchema;

use super::values::at;
use store::{MOST_PER_GAME, Rating, START};

/// Thousandths of a point per point.
const MILLI: f64 = 1000.0;

/// A counted vote.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VoteResponse {
    pub comparison: String,
    /// Catalogue name of the winner; null for a tie.
    pub winner: Option<String>,
    /// The compared models with their new ratings.
    pub ratings: Vec<VotedModel>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VotedModel {
    #[schema(example = "tiny-guide")]
    pub model: String,
    #[schema(example = 1016.0)]
    pub rating: f64,
    /// Change caused by the vote.
    #[schema(example = 16.0)]
    pub change: f64,
}

impl VotedModel {
    pub fn new((rating, change): &(Rating, i64)) -> VotedModel {
        VotedModel {
            model: rating.model.clone(),
            rating: points(rating.millipoints),
            change: points(*change),
        }
    }
}

/// Models by rating.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Leaderboard {
    /// Models with votes, best first.
    pub models: Vec<RatedModel>,
    /// Rating of a model before its first vote.
    #[schema(example = 1000.0)]
    pub start: f64,
    /// Maximum change of a rating in one comparison (K).
    #[schema(example = 32.0)]
    pub most_per_game: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct RatedModel {
    /// Rank; equal ratings share a rank.
    #[schema(example = 1)]
    pub rank: usize,
    #[schema(example = "tiny-guide")]
    pub model: String,
    /// Elo rating.
    #[schema(example = 1016.0)]
    pub rating: f64,
    pub comparisons: u64,
    pub wins: u64,
    pub losses: u64,
    pub ties: u64,
    /// Win ratio as in Aviary: `(wins + 1) / (comparisons + 3) × 3000`, rounded down. 1000 is the average in comparisons of three
    /// models.
    #[schema(example = 1500)]
    pub win_ratio: u64,
    /// Time of the last counted vote.
    #[schema(example = "2026-02-01T08:15:00.000Z")]
    pub voted_at: String,
}

impl Leaderboard {
    /// `ratings` must be sorted, best first.
    pub fn new(ratings: &[Rating]) -> Leaderboard {
        let rank = |rating: &Rating| {
            let better = ratings
                .iter()
                .take_while(|other| other.millipoints > rating.millipoints);
            1 + better.count()
        };
        let model = |rating: &Rating| RatedModel {
            rank: rank(rating),
            model: rating.model.clone(),
            rating: points(rating.millipoints),
            comparisons: rating.comparisons,
            wins: rating.wins,
            losses: rating.losses(),
            ties: rating.ties,
            win_ratio: (rating.wins + 1) * 3000 / (rating.comparisons + 3),
            voted_at: at(rating.voted),
        };
        Leaderboard {
            models: ratings.iter().map(model).collect(),
            start: points(START),
            most_per_game: points(MOST_PER_GAME),
        }
    }
}

fn points(millipoints: i64) -> f64 {
    millipoints as f64 / MILLI
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::Time;

    #[test]
    fn equal_ratings_share_their_rank_and_the_next_one_counts_them() {
        let rating = |model: &str, millipoints: i64| Rating {
            model: model.to_owned(),
            millipoints,
            comparisons: 1,
            wins: 1,
            ties: 0,
            voted: Time(0),
        };
        let all = [
            rating("a", 1_016_000),
            rating("b", 1_000_500),
            rating("c", 1_000_500),
            rating("d", 9_999),
        ];
        let board = Leaderboard::new(&all);
        let shown: Vec<(usize, f64)> = board
            .models
            .iter()
            .map(|model| (model.rank, model.rating))
            .collect();
        assert_eq!(shown, [(1, 1016.0), (2, 1000.5), (2, 1000.5), (4, 9.999)]);
        assert_eq!(board.models[0].win_ratio, 1500);
    }
}
