//! Votes for the best of several responses, and the leaderboard computed from them. Voters need a key: a vote affects the ratings
//! for everyone, and each voter's votes are limited.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use utoipa::openapi::schema::{Array, ArrayBuilder, Object, ObjectBuilder, OneOf, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use api_types::dto::{Leaderboard, VoteResponse, VotedModel};
use api_types::error::{ErrorBody, ErrorKind, Failure};
use gateway::auth::User;
use gateway::fields::{Body, Fields, OrderFields, Strict};
use gateway::inference::admission;
use gateway::openapi::{ListingErrors, VoteErrors};
use gateway::state::App;
use pool::KeyId;
use store::{NewVote, StoreError, VoteResult};

/// Number of models in a comparison.
const MODELS: std::ops::RangeInclusive<usize> = 2..=4;
/// Length of a comparison's name.
const NAME: std::ops::RangeInclusive<usize> = 8..=64;
/// Votes per minute and voter: more than a person who reads the responses can give.
const MOST_PER_MINUTE: u32 = 30;

/// A vote on a comparison of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VoteRequest {
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

impl Strict for VoteRequest {
    fn read(fields: &mut Fields) -> Result<VoteRequest, Failure> {
        let vote = VoteRequest {
            comparison: fields.needed_text("comparison", "\"c-0198f6a2\"")?,
            models: fields.texts("models")?,
            winner: fields.text("winner")?,
            tie: fields.flag("tie")?,
        };
        let is_letter =
            |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if !NAME.contains(&vote.comparison.len()) || !vote.comparison.chars().all(is_letter) {
            return Err(wrong(
                "comparison",
                format!(
                    "must be a name of {} to {} letters, digits, `-` and `_`, different for each comparison",
                    NAME.start(),
                    NAME.end()
                ),
            ));
        }
        if !MODELS.contains(&vote.models.len()) {
            return Err(wrong(
                "models",
                format!(
                    "has {} models; allowed: the {} to {} that were compared",
                    vote.models.len(),
                    MODELS.start(),
                    MODELS.end()
                ),
            ));
        }
        match (&vote.winner, vote.tie.unwrap_or(false)) {
            (Some(_), true) => Err(wrong(
                "tie",
                "cannot be combined with `winner`; send only one of them".to_owned(),
            )),
            (None, false) => Err(wrong(
                "winner",
                "is missing; name the model with the best answer, or send \"tie\": true".to_owned(),
            )),
            _ => Ok(vote),
        }
    }
}

fn wrong(field: &str, problem: String) -> Failure {
    Failure::invalid(Some(field.to_owned()), format!("{field}: {problem}"))
}

/// Vote for the best of several answers
///
/// Records that you sent the same prompt to two to four models and found one response best, or none. The vote changes the models'
/// ratings on the leaderboard (docs/guides/dashboard.md has the formula). A comparison takes one vote per key, and a key has 30
/// votes per minute. Prompts and responses are not sent and not stored.
///
/// Every key that may use the models may call this, even if models need no key.
#[utoipa::path(post, path = "/votes", tag = "comparison", operation_id = "vote", security(("user_key" = [])),
    request_body(content = VoteRequest, example = json!({
        "comparison": "c-0198f6a2", "models": ["tiny-guide", "tiny-chat"], "winner": "tiny-guide"
    })),
    responses(
        (status = 200, description = "The vote is counted", body = VoteResponse, example = json!({
            "comparison": "c-0198f6a2", "winner": "tiny-guide", "ratings": [
                {"model": "tiny-guide", "rating": 1016.0, "change": 16.0}, {"model": "tiny-chat", "rating": 984.0, "change": -16.0}]
        })),
        (status = 409, description = "The comparison has your vote already", body = ErrorBody, example = json!({"error": {
            "message": "comparison: c-0198f6a2 has your vote already; it takes one", "type": "invalid_request_error",
            "param": "comparison", "code": "already_voted"
        }})),
        VoteErrors))]
pub(crate) async fn vote(
    State(app): State<App>,
    user: User,
    Body(vote): Body<VoteRequest>,
) -> Result<Json<VoteResponse>, Failure> {
    if user.key == KeyId(0) {
        return Err(Failure::unauthorized(
            "a vote needs a key, even if models need none: send it as `Authorization: Bearer mp-…`; an administrator creates one with `admin-client keys create NAME --role user`",
        ));
    }
    let mut models: Vec<String> = Vec::with_capacity(vote.models.len());
    for name in &vote.models {
        let model = canonical(&app, &user, name)?;
        if models.contains(&model) {
            let problem =
                format!("{model} is listed twice, but a comparison needs different models");
            return Err(wrong("models", problem));
        }
        models.push(model);
    }
    let best = match &vote.winner {
        None => None,
        Some(winner) => Some(place_of(winner, &vote.models, &models)?),
    };
    let new = NewVote {
        at: app.handle.clock().now(),
        holder: user.account.id(),
        comparison: vote.comparison.clone(),
        models,
        best,
    };
    let voted = app.handle.store().vote(&new, MOST_PER_MINUTE).await;
    match voted.map_err(not_stored)? {
        VoteResult::Counted(ratings) => Ok(Json(VoteResponse {
            comparison: vote.comparison,
            winner: best.map(|place| new.models[place].clone()),
            ratings: ratings.iter().map(VotedModel::new).collect(),
        })),
        VoteResult::Twice => {
            let message = format!(
                "comparison: {} has your vote already; it takes one",
                vote.comparison
            );
            let mut failure = Failure::conflict("already_voted", message);
            failure.body.error.param = Some("comparison".to_owned());
            Err(failure)
        }
        VoteResult::TooOften { again_in } => Err(Failure::new(
            ErrorKind::TooMany,
            "too_many_votes",
            format!(
                "{} has voted {MOST_PER_MINUTE} times in a minute, which is the limit; vote again in {again_in}",
                user.account.description()
            ),
        )
        .again_in(again_in)),
    }
}

/// The catalogue's name for a name or alias that the voter may use.
fn canonical(app: &App, user: &User, name: &str) -> Result<String, Failure> {
    let route = app.handle.route(name);
    let route = route.filter(|route| user.sight.may_use(&route.entry, name));
    let Some(route) = route else {
        let mut failure = admission::unknown(app, user, name);
        failure.body.error.param = Some("models".to_owned());
        return Err(failure);
    };
    let entry = &route.entry;
    Ok(entry.adapter(name).unwrap_or(&entry.name).to_owned())
}

/// The position of the winner, named as sent or as in the catalogue.
fn place_of(winner: &str, sent: &[String], models: &[String]) -> Result<usize, Failure> {
    let found = [sent, models]
        .into_iter()
        .find_map(|names| names.iter().position(|name| name == winner));
    found.ok_or_else(|| {
        let shown: String = winner.chars().take(200).collect();
        let problem = format!(
            "{shown} was not in this comparison; choose one of {}, or send \"tie\": true",
            sent.join(", ")
        );
        wrong("winner", problem)
    })
}

fn not_stored(fault: StoreError) -> Failure {
    tracing::error!(%fault, "a vote could not be stored");
    let message = "the vote could not be stored and is not counted; see the server log";
    Failure::new(ErrorKind::Unavailable, "store_unavailable", message)
}

/// Show the leaderboard
///
/// The models that the key may use, rated by people's votes. Models without a vote are omitted.
///
/// Every key may call this.
#[utoipa::path(get, path = "/leaderboard", tag = "comparison", operation_id = "show_leaderboard", security(("user_key" = [])),
    responses((status = 200, description = "The models by their ratings", body = Leaderboard, example = json!({
        "models": [{"rank": 1, "model": "tiny-guide", "rating": 1016.0, "comparisons": 1, "wins": 1, "losses": 0, "ties": 0,
            "win_ratio": 1500, "voted_at": "2026-02-01T08:15:00.000Z"}],
        "start": 1000.0, "most_per_game": 32.0
    })), ListingErrors))]
pub(crate) async fn leaderboard(
    State(app): State<App>,
    user: User,
) -> Result<Json<Leaderboard>, Failure> {
    let ratings = app.handle.store().ratings().await;
    let mut ratings = ratings.map_err(|fault| {
        tracing::error!(%fault, "the leaderboard cannot be read");
        Failure::internal("the leaderboard cannot be read now; see the server log")
    })?;
    ratings.retain(|rating| {
        let route = app.handle.route(&rating.model);
        route.is_some_and(|route| user.sight.may_use(&route.entry, &rating.model))
    });
    Ok(Json(Leaderboard::new(&ratings)))
}
