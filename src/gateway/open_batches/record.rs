//! The state of a batch, as it is stored and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use access::oidc::Identity;
use api_types::dto::{
    BatchError, BatchErrors, BatchObject, BatchProgress, MessageBatch, MessageBatchCounts,
    RequestCounts, at,
};
use batch::{ModelCount, RequestFileSummary};
use pool::{BatchEnd, MissWatch, Time};
use store::StoredBatch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    InProgress,
    Finalizing,
    Completed,
    Failed,
    Expired,
    Cancelling,
    Cancelled,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::InProgress => "in_progress",
            Status::Finalizing => "finalizing",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Expired => "expired",
            Status::Cancelling => "cancelling",
            Status::Cancelled => "cancelled",
        }
    }

    /// Returns true while requests may still get results.
    pub fn is_open(self) -> bool {
        matches!(
            self,
            Status::InProgress | Status::Finalizing | Status::Cancelling
        )
    }
}

/// The API in which a batch was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApiForm {
    #[default]
    OpenAi,
    /// Message Batches.
    Anthropic,
}

impl ApiForm {
    /// The beginning of the ids of its batches.
    pub fn id_prefix(self) -> &'static str {
        match self {
            ApiForm::OpenAi => "batch_",
            ApiForm::Anthropic => "msgbatch_",
        }
    }
}

/// The purpose of files of message batches, which the routes for files do not show.
pub(crate) const MESSAGES: &str = "messages";

/// Unix milliseconds of the changes of status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    pub in_progress: Option<u64>,
    pub finalizing: Option<u64>,
    pub completed: Option<u64>,
    pub failed: Option<u64>,
    pub expired: Option<u64>,
    pub cancelling: Option<u64>,
    pub cancelled: Option<u64>,
}

/// A person who has signed on and created a batch or a background response. Both outlast the session, and the present configuration
/// has the permissions of the groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchPerson {
    pub subject: String,
    pub name: String,
    /// Values of the groups claim at that time.
    pub groups: Vec<String>,
}

impl From<&Identity> for BatchPerson {
    fn from(identity: &Identity) -> BatchPerson {
        BatchPerson {
            subject: identity.subject.clone(),
            name: identity.name.clone(),
            groups: identity.claims.clone(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BatchState {
    pub status: Status,
    #[serde(default)]
    pub form: ApiForm,
    pub endpoint: String,
    pub input_file: String,
    /// The name of the input on disk.
    pub input_stored_as: String,
    pub completion_window: String,
    /// Unix milliseconds.
    pub deadline: u64,
    /// Milliseconds until the files with the results expire.
    pub output_expires_after: Option<u64>,
    /// Part of the ids of the results.
    pub suffix: u64,
    pub models: Vec<ModelCount>,
    pub counts: RequestCounts,
    pub times: Times,
    pub output_file: Option<String>,
    pub error_file: Option<String>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub is_paused: bool,
    /// The batch with the highest rank runs first.
    #[serde(default)]
    pub rank: i64,
    /// The number of results when the others began to expire or to be cancelled.
    #[serde(default)]
    pub run: Option<u64>,
    /// The code and the message of the error that ended the batch.
    pub error: Option<(String, String)>,
    /// The holder, if it is not a key or an address.
    #[serde(default)]
    pub person: Option<BatchPerson>,
    /// Set once, when a miss of the window is expected.
    #[serde(default)]
    pub warning: Option<String>,
    /// The speeds of its models when it ended, for later batches.
    #[serde(default)]
    pub speeds: BTreeMap<String, LearnedSpeed>,
}

/// The speed at which an engine has run the requests of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LearnedSpeed {
    pub engine: String,
    /// Requests per 1,000 seconds.
    pub rate: u64,
}

impl BatchState {
    /// The state of a new batch of these requests. The caller sets its input and its window.
    pub fn new(summary: RequestFileSummary, number: Uuid, now: Time) -> BatchState {
        let mut state = BatchState {
            status: Status::InProgress,
            form: ApiForm::OpenAi,
            endpoint: String::new(),
            input_file: String::new(),
            input_stored_as: String::new(),
            completion_window: String::new(),
            deadline: 0,
            output_expires_after: None,
            suffix: number.as_u64_pair().1,
            counts: RequestCounts {
                total: summary.requests,
                ..RequestCounts::default()
            },
            models: summary.models,
            times: Times::default(),
            output_file: None,
            error_file: None,
            metadata: None,
            is_paused: false,
            rank: 0,
            run: None,
            error: None,
            person: None,
            warning: None,
            speeds: BTreeMap::new(),
        };
        state.becomes(Status::InProgress, now);
        state
    }

    /// Sets the status at this time.
    pub fn becomes(&mut self, status: Status, now: Time) {
        self.status = status;
        let times = &mut self.times;
        let time = match status {
            Status::InProgress => &mut times.in_progress,
            Status::Finalizing => &mut times.finalizing,
            Status::Completed => &mut times.completed,
            Status::Failed => &mut times.failed,
            Status::Expired => &mut times.expired,
            Status::Cancelling => &mut times.cancelling,
            Status::Cancelled => &mut times.cancelled,
        };
        time.get_or_insert(now.0);
    }

    /// The time of the end, in Unix milliseconds.
    fn ended(&self) -> Option<u64> {
        let times = &self.times;
        let ends = [
            times.completed,
            times.failed,
            times.expired,
            times.cancelled,
        ];
        ends.into_iter().flatten().next()
    }
}

/// A batch with its state.
#[derive(Clone, Debug)]
pub(crate) struct BatchRecord {
    pub id: String,
    pub holder: String,
    pub created: Time,
    pub state: BatchState,
}

/// Figures of a batch that only the runner knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    pub in_flight: u64,
    pub forecast: Option<BatchEnd>,
    pub watch: MissWatch,
    /// The failure of a load for which its requests wait.
    pub load_failure: Option<String>,
    /// The failure of its bucket, for which its requests or its end wait.
    pub bucket_failure: Option<String>,
    /// The reason why no node is requested for its requests.
    pub no_node: Option<String>,
    /// The size of its results so far.
    pub result_bytes: u64,
}

impl BatchRecord {
    /// # Errors
    /// The state is not in a known form.
    pub fn from_stored(stored: StoredBatch) -> Result<BatchRecord, serde_json::Error> {
        Ok(BatchRecord {
            state: serde_json::from_str(&stored.state)?,
            id: stored.id,
            holder: stored.holder,
            created: stored.created,
        })
    }

    pub fn to_stored(&self) -> StoredBatch {
        StoredBatch {
            id: self.id.clone(),
            holder: self.holder.clone(),
            created: self.created,
            ended: (!self.state.status.is_open()).then(|| Time(self.state.ended().unwrap_or(0))),
            // Plain data with text keys is always valid JSON.
            state: serde_json::to_string(&self.state).unwrap_or_default(),
        }
    }

    /// OpenAI's object.
    pub fn shown(&self, running: Running, now: Time) -> BatchObject {
        let state = &self.state;
        let seconds = |at: Option<u64>| at.map(|at| at / 1_000);
        let errors = state.error.as_ref().map(|(code, message)| BatchErrors {
            object: "list",
            data: vec![BatchError {
                code: code.clone(),
                message: message.clone(),
                line: None,
                param: None,
            }],
        });
        let expected = match running.forecast {
            Some(BatchEnd::At { expected, .. }) => Some(expected),
            _ => None,
        };
        let times = &state.times;
        BatchObject {
            id: self.id.clone(),
            object: "batch",
            endpoint: state.endpoint.clone(),
            errors,
            input_file_id: state.input_file.clone(),
            completion_window: state.completion_window.clone(),
            status: state.status.name(),
            output_file_id: state.output_file.clone(),
            error_file_id: state.error_file.clone(),
            created_at: self.created.0 / 1_000,
            in_progress_at: seconds(times.in_progress),
            expires_at: state.deadline / 1_000,
            finalizing_at: seconds(times.finalizing),
            completed_at: seconds(times.completed),
            failed_at: seconds(times.failed),
            expired_at: seconds(times.expired),
            cancelling_at: seconds(times.cancelling),
            cancelled_at: seconds(times.cancelled),
            request_counts: state.counts,
            metadata: state.metadata.clone(),
            model_pool: BatchProgress {
                paused: state.is_paused,
                in_flight: running.in_flight,
                expected_seconds: expected.map(|at| at.since(now).secs_up()),
                will_hold: running
                    .forecast
                    .and_then(|end| end.will_hold(Time(state.deadline))),
                warning: running.bucket_failure.or(running.load_failure).or_else(|| {
                    let missed = state.warning.clone();
                    let all: Vec<String> = missed.into_iter().chain(running.no_node).collect();
                    (!all.is_empty()).then(|| all.join("; "))
                }),
            },
        }
    }

    /// Anthropic's object. `base` is the path below which the routes are.
    pub fn shown_as_messages(&self, base: &str) -> MessageBatch {
        let (state, id) = (&self.state, &self.id);
        let counts = state.counts;
        let done = counts.completed + counts.failed;
        // Requests that have expired or were cancelled have errors, too.
        let skipped = state.run.map_or(0, |run| done.saturating_sub(run));
        let was_cancelled = state.times.cancelling.is_some();
        let (canceled, expired) = if was_cancelled {
            (skipped, 0)
        } else {
            (0, skipped)
        };
        let times = &state.times;
        let ended = state.ended();
        let processing_status = match state.status {
            Status::Cancelling => "canceling",
            status if status.is_open() => "in_progress",
            _ => "ended",
        };
        MessageBatch {
            id: id.clone(),
            kind: "message_batch",
            processing_status,
            request_counts: MessageBatchCounts {
                processing: counts.total.saturating_sub(done),
                succeeded: counts.completed,
                errored: counts.failed.saturating_sub(skipped),
                canceled,
                expired,
            },
            created_at: at(self.created),
            expires_at: at(Time(state.deadline)),
            ended_at: ended.map(|ended| at(Time(ended))),
            archived_at: None,
            cancel_initiated_at: times.cancelling.map(|time| at(Time(time))),
            results_url: ended.map(|_| format!("{base}/v1/messages/batches/{id}/results")),
        }
    }
}
