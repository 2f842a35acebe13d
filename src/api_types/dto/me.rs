//! A caller's own key, models, requests and usage.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::KeyView;
use super::groups::MyGroup;
use super::keys::LimitView;
use super::usage::MyDeviceTime;
use store::KeyUsage;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MeView {
    /// Name of the key or person; `anonymous` without a key.
    #[schema(example = "course 4711")]
    pub name: String,
    /// `admin`, `viewer` or `user`.
    #[schema(example = "user")]
    pub role: &'static str,
    /// The caller's API key. Null for single sign-on users and anonymous callers.
    pub key: Option<KeyView>,
    /// Effective limits: the key's own, or the configured default.
    #[schema(value_type = LimitView)]
    pub limits: config::Limit,
    /// The caller's group. Null without a group.
    pub group: Option<MyGroup>,
    pub models: Vec<MyModel>,
    /// The caller's requests that wait for a model, oldest first.
    pub waiting: Vec<MyWaitingRequest>,
    /// The caller's running requests.
    pub running: Vec<MyRunningRequest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyModel {
    #[schema(example = "tiny-chat")]
    pub model: String,
    pub aliases: Vec<String>,
    /// State as in the admin API: `ready`, `loading`, `waiting`, `fetching`, `asleep`, `cold`, `draining`, `cooling` or
    /// `quarantined`.
    #[schema(example = "ready")]
    pub state: &'static str,
    #[schema(example = 0)]
    pub priority: u32,
    /// Number of ready replicas.
    #[schema(example = 1)]
    pub ready_replicas: u32,
    /// Expected load time once there is room.
    #[schema(example = 6100)]
    pub load_ms_expected: u64,
    /// True for a model on a remote server; nothing is loaded here.
    pub remote: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyWaitingRequest {
    #[schema(example = "t17")]
    pub ticket: String,
    #[schema(example = "tiny-chat")]
    pub model: String,
    /// Position among all requests that wait for the model.
    #[schema(example = 1)]
    pub position: u32,
    #[schema(example = 2100)]
    pub waited_ms: u64,
    /// Expected time until the request gets its seat; 0 if unknown.
    #[schema(example = 6100)]
    pub expected_ms: u64,
    /// Range of nine in ten waits with this forecast, if later requests or unmeasured loads may change it by more than a fifth.
    #[schema(example = 4000)]
    pub expected_ms_min: Option<u64>,
    #[schema(example = 12000)]
    pub expected_ms_max: Option<u64>,
    /// Current stage of the engine, or the model's state.
    #[schema(example = "loading")]
    pub stage: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyRunningRequest {
    #[schema(example = "tiny-chat")]
    pub model: String,
    /// Time that the request waited for its seat.
    #[schema(example = 12)]
    pub waited_ms: u64,
    /// Time since the request got its seat.
    #[schema(example = 850)]
    pub running_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MyUsage {
    /// Today's date in the pool's time zone.
    #[schema(example = "2026-01-31")]
    pub today: String,
    /// Days with requests, oldest first.
    pub days: Vec<MyDay>,
    /// Device time in all these days, by model: used by the caller's requests, and held idle after them.
    pub device_time: Vec<MyDeviceTime>,
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
    /// Requests that an engine accepted.
    #[schema(example = 12)]
    pub requests: u64,
    #[schema(example = 4800)]
    pub prompt_tokens: u64,
    #[schema(example = 2100)]
    pub completion_tokens: u64,
    pub batches: MyBatchUsage,
}

/// The part of the figures that requests of batches took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MyBatchUsage {
    #[schema(example = 2)]
    pub requests: u64,
    #[schema(example = 800)]
    pub prompt_tokens: u64,
    #[schema(example = 350)]
    pub completion_tokens: u64,
}

impl MyUsage {
    /// `rows` must be sorted by day.
    pub fn new(rows: Vec<KeyUsage>, today: i64, device_time: Vec<MyDeviceTime>) -> MyUsage {
        let mut days: Vec<MyDay> = Vec::new();
        for row in rows {
            let day = date(row.day);
            if days.last().is_none_or(|last| last.day != day) {
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
                    batches: MyBatchUsage {
                        requests: row.batches.requests,
                        prompt_tokens: row.batches.prompt_tokens,
                        completion_tokens: row.batches.completion_tokens,
                    },
                });
            }
        }
        MyUsage {
            today: date(today),
            days,
            device_time,
        }
    }
}

/// The date of a day number (days since 1970).
fn date(day: i64) -> String {
    let moment = day
        .checked_mul(86_400)
        .and_then(|seconds| DateTime::<Utc>::from_timestamp(seconds, 0));
    moment
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
        .format("%Y-%m-%d")
        .to_string()
}
