//! Upkeep of the pool: `cleanup`, `reset`, `reload`. On a terminal, `cleanup` and `reset` ask for
//! confirmation before they unload anything.

use serde_json::json;

use crate::cli::CleanupMode;
use crate::error::CommandError;
use crate::render::outcome;
use crate::render::quantity::{Clock, count};
use crate::responses::{CleanupResponse, ReloadResponse, UnloadResponse};
use crate::screen::{announced, confirm};
use crate::session::Session;

const DRAINING: &str = "Waiting for the requests in flight to end. This may take several minutes.";

pub async fn cleanup(
    session: &Session,
    preview: bool,
    mode: CleanupMode,
    yes: bool,
) -> Result<(), CommandError> {
    let mode = match mode {
        CleanupMode::All => "all",
        CleanupMode::Idle => "idle",
    };
    let style = session.screen.style;
    if preview || !yes {
        let response = session
            .client
            .post("admin/cleanup", &json!({"preview": true, "mode": mode}))
            .await?;
        if preview {
            return session.show(&response, |response| {
                outcome::cleanup_preview(response, Clock::read(), style)
            });
        }
        let planned: CleanupResponse = response.read()?;
        if !session.json {
            session
                .screen
                .print(&outcome::cleanup_preview(&planned, Clock::read(), style))?;
        }
        if !planned.replicas.is_empty() {
            confirm(&format!(
                "Unload {}?",
                count(planned.replicas.len(), "replica")
            ))?;
        }
    }
    let request = json!({ "mode": mode });
    let post = session.client.post("admin/cleanup", &request);
    let response = announced(post, (!session.json).then_some(DRAINING)).await?;
    session.show(&response, |response: &CleanupResponse| {
        outcome::cleanup(response, Clock::read(), style)
    })
}

pub async fn reset(session: &Session, yes: bool) -> Result<(), CommandError> {
    if !yes {
        confirm("Unload every model, including always-hot ones, and clear all failures?")?;
    }
    let show = |response: &UnloadResponse, style| outcome::reset(response, style);
    session.post("admin/reset", &json!({}), show).await
}

pub async fn reload(session: &Session) -> Result<(), CommandError> {
    let response = session.client.post("admin/reload", &json!({})).await?;
    session.show(&response, |response| {
        outcome::reload(response, session.screen.style)
    })?;
    let reloaded: ReloadResponse = response.read()?;
    match reloaded.broken.len() {
        0 => Ok(()),
        broken => Err(CommandError::BrokenFiles(format!(
            "{} cannot be used",
            count(broken, "model file")
        ))),
    }
}
