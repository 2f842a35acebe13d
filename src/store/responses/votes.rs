//! Votes for the best of several responses, and the resulting ratings. A vote and its ratings are one change on disk; votes count
//! in the order in which they are written.

use super::elo;
use super::elo::Verdict;
use crate::database::Store;
use crate::history::{FORGOTTEN_AT_ONCE, Retention};
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::{Span, Time};

/// The period for limiting one voter's votes.
const WINDOW: Span = Span::from_secs(60);
/// Limit of stored ratings, more than any catalogue has models.
const RATINGS_MAX: i64 = 10_000;

/// A person's choice of the best response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVote {
    pub at: Time,
    /// The voter, such as `key:3`.
    pub holder: String,
    /// The voter's own id of the comparison, which accepts one vote.
    pub comparison: String,
    /// Distinct models, by their names in the catalogue.
    pub models: Vec<String>,
    /// The index of the best model; `None` for a tie.
    pub best: Option<usize>,
}

/// The result of a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VoteResult {
    /// The models' new ratings in their order, with the changes.
    Counted(Vec<(Rating, i64)>),
    /// This voter has already voted in this comparison.
    Twice,
    /// This voter has reached the limit of votes.
    TooOften { again_in: Span },
}

/// The result of all votes for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rating {
    pub model: String,
    /// Thousandths of a point.
    pub millipoints: i64,
    pub comparisons: u64,
    pub wins: u64,
    pub ties: u64,
    /// The time of the last counted vote.
    pub voted: Time,
}

impl Rating {
    /// The rating of a model without votes.
    fn first(model: &str, now: Time) -> Rating {
        Rating {
            model: model.to_owned(),
            millipoints: elo::START,
            comparisons: 0,
            wins: 0,
            ties: 0,
            voted: now,
        }
    }

    fn from_row(row: &Row) -> Rating {
        let count = |name: &str| from_integer(row.get(name));
        Rating {
            model: row.get("model"),
            millipoints: row.get("rating"),
            comparisons: count("comparisons"),
            wins: count("wins"),
            ties: count("ties"),
            voted: Time(count("voted_at")),
        }
    }

    pub fn losses(&self) -> u64 {
        self.comparisons.saturating_sub(self.wins + self.ties)
    }
}

impl Store {
    /// Counts a vote. `most` is a voter's limit per minute.
    pub async fn vote(&self, vote: &NewVote, most: u32) -> Result<VoteResult, StoreError> {
        self.write("store a vote", async |connection| {
            if is_stored(connection, vote).await? {
                return Ok(VoteResult::Twice);
            }
            if let Some(again_in) = wait(connection, vote, most).await? {
                return Ok(VoteResult::TooOften { again_in });
            }
            insert(connection, vote).await?;
            count(connection, vote).await.map(VoteResult::Counted)
        })
        .await
    }

    /// All ratings, best first.
    pub async fn ratings(&self) -> Result<Vec<Rating>, StoreError> {
        let rows = query("SELECT * FROM ratings ORDER BY rating DESC, model")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the ratings"))?;
        Ok(rows.iter().map(Rating::from_row).collect())
    }

    /// Deletes some votes that are too old or too many, and ratings of models that no longer have a vote. Returns the number of
    /// rows. Ratings keep the effect of deleted votes.
    pub async fn forget_votes(&self, now: Time, retention: Retention) -> Result<u64, StoreError> {
        let last = self.last_id_of("votes").await?;
        self.write("delete old votes", async |connection| {
            let votes = query(
                "DELETE FROM votes WHERE id IN (SELECT id FROM votes WHERE id <= ?1 OR at < ?2 LIMIT ?3)",
            )
            .bind(last.saturating_sub(to_integer(retention.rows)))
            .bind(to_integer(now.0.saturating_sub(retention.age.0)))
            .bind(FORGOTTEN_AT_ONCE)
            .execute(&mut *connection)
            .await?;
            let ratings = query(
                "DELETE FROM ratings WHERE model IN
                 (SELECT model FROM ratings ORDER BY voted_at DESC LIMIT ?1 OFFSET ?2)",
            )
            .bind(FORGOTTEN_AT_ONCE)
            .bind(RATINGS_MAX)
            .execute(connection)
            .await?;
            Ok(votes + ratings)
        })
        .await
    }
}

async fn is_stored(connection: &mut Connection, vote: &NewVote) -> Result<bool, sqlx::Error> {
    let found = query("SELECT 1 FROM votes WHERE holder = ? AND comparison = ?")
        .bind(&vote.holder)
        .bind(&vote.comparison)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// The time until the voter may vote again; `None` means now.
async fn wait(
    connection: &mut Connection,
    vote: &NewVote,
    most: u32,
) -> Result<Option<Span>, sqlx::Error> {
    let since = vote.at.0.saturating_sub(WINDOW.0);
    let oldest =
        query("SELECT at FROM votes WHERE holder = ? AND at > ? ORDER BY at DESC LIMIT 1 OFFSET ?")
            .bind(&vote.holder)
            .bind(to_integer(since))
            .bind(i64::from(most.max(1)) - 1)
            .fetch_optional(connection)
            .await?;
    Ok(oldest.map(|row| {
        let at = from_integer(row.get("at"));
        Span(at.saturating_sub(since).clamp(1, WINDOW.0))
    }))
}

async fn insert(connection: &mut Connection, vote: &NewVote) -> Result<(), sqlx::Error> {
    let models =
        serde_json::to_string(&vote.models).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let winner = vote.best.and_then(|place| vote.models.get(place));
    query("INSERT INTO votes (at, holder, comparison, models, winner) VALUES (?, ?, ?, ?, ?)")
        .bind(to_integer(vote.at.0))
        .bind(&vote.holder)
        .bind(&vote.comparison)
        .bind(models)
        .bind(winner.map(String::as_str))
        .execute(connection)
        .await
        .map(|_| ())
}

/// Applies the vote to the models' ratings.
async fn count(
    connection: &mut Connection,
    vote: &NewVote,
) -> Result<Vec<(Rating, i64)>, sqlx::Error> {
    let mut ratings = Vec::with_capacity(vote.models.len());
    for model in &vote.models {
        let row = query("SELECT * FROM ratings WHERE model = ?")
            .bind(model)
            .fetch_optional(&mut *connection)
            .await?;
        ratings.push(match row {
            Some(row) => Rating::from_row(&row),
            None => Rating::first(model, vote.at),
        });
    }
    let before: Vec<i64> = ratings.iter().map(|rating| rating.millipoints).collect();
    let verdict = vote.best.map_or(Verdict::Tie, Verdict::Best);
    let changes = elo::changes(&before, verdict);
    for (place, (rating, change)) in ratings.iter_mut().zip(&changes).enumerate() {
        rating.millipoints += change;
        rating.comparisons += 1;
        rating.wins += u64::from(vote.best == Some(place));
        rating.ties += u64::from(vote.best.is_none());
        rating.voted = vote.at;
        query(
            "INSERT INTO ratings (model, rating, comparisons, wins, ties, voted_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (model) DO UPDATE SET rating = ?2, comparisons = ?3, wins = ?4, ties = ?5, voted_at = ?6",
        )
        .bind(&rating.model)
        .bind(rating.millipoints)
        .bind(to_integer(rating.comparisons))
        .bind(to_integer(rating.wins))
        .bind(to_integer(rating.ties))
        .bind(to_integer(rating.voted.0))
        .execute(&mut *connection)
        .await?;
    }
    Ok(ratings.into_iter().zip(changes).collect())
}
