//! What callers read of themselves: their key, their models, their requests and what they used.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::KeyView;
use super::keys::LimitView;
use store::KeyUsage;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MeView {
    /// Of the key or the person; `anonymous` without a key.
    #[schema(example = "course 4711")]
    pub name: String,
    /// `admin`, `viewer` or `user`.
    #[schema(example = "user")]
    pub role: &'static str,
    /// null for people without a key: those of the single sign-on, and those who need none.
    pub key: Option<KeyView>,
    /// The limits that count for them: their own, or the configured ones.
    #[schema(value_type = LimitView)]
    pub limits: config::Limit,
    pub models: Vec<MyModel>,
    /// Their own requests that wait for a model, by the time since when.
    pub waiting: Vec<MyWaitingRequest>,
    /// Their own requests that a model answers.
    pub running: Vec<MyRunningRequest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyModel {
    #[schema(example = "tiny-chat")]
    pub model: String,
    pub aliases: Vec<String>,
    /// As administrators read it: `ready`, `loading`, `waiting`, `fetching`, `asleep`, `cold`, `draining`, `cooling` or
    /// `quarantined`.
    #[schema(example = "ready")]
    pub state: &'static str,
    #[schema(example = 0)]
    pub priority: u32,
    /// Replicas that answer.
    #[schema(example = 1)]
    pub ready_replicas: u32,
    /// What a load of it is expected to take once there is room.
    #[schema(example = 6100)]
    pub load_ms_expected: u64,
    /// It runs on another server, and nothing is loaded for it here.
    pub remote: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyWaitingRequest {
    #[schema(example = "t17")]
    pub ticket: String,
    #[schema(example = "tiny-chat")]
    pub model: String,
    /// Place among all requests that wait for the model.
    #[schema(example = 1)]
    pub position: u32,
    #[schema(example = 2100)]
    pub waited_ms: u64,
    /// Until its seat; 0: not known.
    #[schema(example = 6100)]
    pub expected_ms: u64,
    /// What it waits for: the engine's own stage, or the model's state.
    #[schema(example = "loading")]
    pub stage: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyRunningRequest {
    #[schema(example = "tiny-chat")]
    pub model: String,
    /// How long it waited for its seat.
    #[schema(example = 12)]
    pub waited_ms: u64,
    /// Since it has its seat.
    #[schema(example = 850)]
    pub running_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyUsage {
    /// The present day in the pool's time zone.
    #[schema(example = "2026-01-31")]
    pub today: String,
    /// The oldest first; days without a request are left out.
    pub days: Vec<MyDay>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyDay {
    #[schema(example = "2026-01-31")]
    pub day: String,
    pub models: Vec<MyDayOfModel>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyDayOfModel {
    #[schema(example = "tiny-chat")]
    pub model: String,
    /// Requests that an engine took.
    #[schema(example = 12)]
    pub requests: u64,
    #[schema(example = 4800)]
    pub prompt_tokens: u64,
    #[schema(example = 2100)]
    pub completion_tokens: u64,
}

impl MyUsage {
    /// `rows` by day.
    pub fn of(rows: Vec<KeyUsage>, today: i64) -> MyUsage {
        let mut days: Vec<MyDay> = Vec::new();
        for row in rows {
            let day = date(row.day);
            if days.last().is_none_or(|it| it.day != day) {
                days.push(MyDay {
                    day,
                    models: Vec::new(),
                });
            }
            if let Some(last) = days.last_mut() {
                last.models.push(MyDayOfModel {
                    model: row.model,
                    requests: row.requests,
                    prompt_tokens: row.prompt_tokens,
                    completion_tokens: row.completion_tokens,
                });
            }
        }
        MyUsage {
            today: date(today),
            days,
        }
    }
}

/// A day since 1970.
fn date(day: i64) -> String {
    let moment = day
        .checked_mul(86_400)
        .and_then(|it| DateTime::<Utc>::from_timestamp(it, 0));
    moment
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
        .format("%Y-%m-%d")
        .to_string()
}
