//! Votes on model comparisons, and the leaderboard.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::openapi::schema::{Array, ArrayBuilder, Object, ObjectBuilder, OneOf, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::values::at;
use store::{MOST_PER_GAME, Rating, START};

/// Thousandths of a point per point.
const MILLI: f64 = 1000.0;

/// A vote on a comparison of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteRequest {
    pub comparison: String,
    pub models: Vec<String>,
    pub winner: Option<String>,
    pub tie: Option<bool>,
}

/// Contains either `winner` or `tie`.
impl PartialSchema for VoteRequest {
    fn schema() -> RefOr<Schema> {
        let named = |name: Cow<'_, str>| Ref::from_schema_name(name);
        let either = OneOf::builder()
            .item(named(VoteForOne::name()))
            .item(named(VoteForNone::name()));
        let note = "A vote on a comparison of models. Contains either `winner` or `tie`.";
        RefOr::T(either.description(Some(note)).into())
    }
}

impl ToSchema for VoteRequest {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((VoteForOne::name().into_owned(), VoteForOne::schema()));
        schemas.push((VoteForNone::name().into_owned(), VoteForNone::schema()));
    }
}

/// A vote for one model.
#[expect(dead_code, reason = "it describes a body for the document")]
#[derive(ToSchema)]
struct VoteForOne {
    /// Unique id of the comparison, chosen by the client; each accepts one vote. Letters, digits, `-` and `_`.
    #[schema(
        min_length = 8,
        max_length = 64,
        pattern = "^[A-Za-z0-9_-]+$",
        example = "c-0198f6a2"
    )]
    comparison: String,
    /// The compared models, by name or alias, without duplicates.
    #[schema(schema_with = compared)]
    models: Vec<String>,
    /// The winning model, as written in `models`.
    #[schema(min_length = 1, pattern = r"\S", example = "tiny-guide")]
    winner: String,
    #[schema(schema_with = only_false)]
    tie: Option<bool>,
}

/// A vote for a tie.
#[expect(dead_code, reason = "it describes a body for the document")]
#[derive(ToSchema)]
struct VoteForNone {
    /// Unique id of the comparison, chosen by the client; each accepts one vote. Letters, digits, `-` and `_`.
    #[schema(
        min_length = 8,
        max_length = 64,
        pattern = "^[A-Za-z0-9_-]+$",
        example = "c-0198f6a2"
    )]
    comparison: String,
    /// The compared models, by name or alias, without duplicates.
    #[schema(schema_with = compared)]
    models: Vec<String>,
    #[schema(schema_with = only_true, required = true)]
    tie: bool,
}

fn compared() -> Array {
    let name = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .pattern(Some(r"\S"));
    ArrayBuilder::new()
        .items(name)
        .min_items(Some(2))
        .max_items(Some(4))
        .unique_items(true)
        .build()
}

fn only_true() -> Object {
    only(true)
}

fn only_false() -> Object {
    only(false)
}

fn only(value: bool) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Boolean)
        .enum_values(Some([value]))
        .build()
}

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
