//! Requests of `top` to the server, and their results.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc::Sender;

use super::feed::reason;
use crate::decisions::DecisionReport;
use crate::error::CommandError;
use crate::render::outcome;
use crate::responses::{LoadResponse, LogLine, Plan, UnloadResponse};
use crate::style::Style;
use client::Client;

/// Number of past lines at the beginning of a log.
const LOG_TAIL: &str = "500";

/// A request. Its outcome is sent with the number of the dialog that waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    Plan {
        model: String,
    },
    /// Loads only if the plan is still the plan that was shown.
    Load {
        model: String,
        shown: Effect,
    },
    Unload {
        model: String,
    },
    WhyEvent {
        id: String,
    },
    WhyModel {
        model: String,
    },
    Logs {
        model: String,
    },
}

/// The effect of a plan, without its expected times, which may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    feasible: bool,
    already_loaded: bool,
    placement: Vec<(String, u64)>,
    victims: Vec<String>,
}

impl Effect {
    pub fn from_plan(plan: &Plan) -> Effect {
        let share = |share: &crate::responses::Share| (share.device.clone(), share.bytes);
        Effect {
            feasible: plan.feasible,
            already_loaded: plan.already_loaded,
            placement: plan.placement.iter().map(share).collect(),
            victims: plan
                .victims
                .iter()
                .map(|victim| victim.replica.clone())
                .collect(),
        }
    }
}

/// The result of a job.
#[derive(Debug)]
pub enum Outcome {
    Plan(Box<Plan>),
    /// The plan has changed since it was shown; no order was given.
    Outdated(Box<Plan>),
    Why(Box<DecisionReport>),
    Log(LogLine),
    LogEnded,
    /// The result of an order.
    Done(String),
    Failed(String),
}

/// Carries out the job.
pub async fn run(client: Arc<Client>, job: Job, dialog: u64, outcomes: Sender<(u64, Outcome)>) {
    let outcome = match &job {
        Job::Plan { model } => plan(&client, model).await.map(Outcome::Plan),
        Job::Load { model, shown } => load(&client, model, shown).await,
        Job::Unload { model } => unload(&client, model).await,
        Job::WhyEvent { id } => why(&client, ("event", id)).await,
        Job::WhyModel { model } => why(&client, ("model", model)).await,
        Job::Logs { model } => follow(&client, model, dialog, &outcomes).await,
    };
    let outcome = outcome.unwrap_or_else(|failure| Outcome::Failed(reason(&failure)));
    // The receiver is closed once the screen is closed.
    let _closed = outcomes.send((dialog, outcome)).await;
}

async fn plan(client: &Client, model: &str) -> Result<Box<Plan>, CommandError> {
    let response = client
        .post("admin/plan", &json!({ "model": model }))
        .await?;
    Ok(Box::new(response.read()?))
}

async fn load(client: &Client, model: &str, shown: &Effect) -> Result<Outcome, CommandError> {
    let now = plan(client, model).await?;
    if Effect::from_plan(&now) != *shown {
        return Ok(Outcome::Outdated(now));
    }
    let body = json!({"model": model, "wait": false});
    let response: LoadResponse = client.post("admin/load", &body).await?.read()?;
    Ok(Outcome::Done(first_line(&outcome::load(
        &response,
        Style::PLAIN,
    ))))
}

async fn unload(client: &Client, model: &str) -> Result<Outcome, CommandError> {
    let response = client
        .post("admin/unload", &json!({ "model": model }))
        .await?;
    let response: UnloadResponse = response.read()?;
    Ok(Outcome::Done(first_line(&outcome::unload(
        &response,
        Style::PLAIN,
    ))))
}

async fn why(client: &Client, query: (&str, &str)) -> Result<Outcome, CommandError> {
    let response = client.get("admin/why", &[query]).await?;
    Ok(Outcome::Why(Box::new(response.read()?)))
}

async fn follow(
    client: &Client,
    model: &str,
    dialog: u64,
    outcomes: &Sender<(u64, Outcome)>,
) -> Result<Outcome, CommandError> {
    let query = [("model", model), ("tail", LOG_TAIL), ("follow", "true")];
    let mut stream = client.stream("admin/logs", &query, None).await?;
    while let Some(event) = stream.message(None).await? {
        let Ok(line) = serde_json::from_str(&event.data) else {
            continue;
        };
        if outcomes.send((dialog, Outcome::Log(line))).await.is_err() {
            break;
        }
    }
    Ok(Outcome::LogEnded)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
