//! `batches list|pause|resume|rank|cancel`.

use client::{ApiResponse, Method, Patience};
use serde_json::{Value, json};

use crate::cli::{BatchesArgs, BatchesCommand};
use crate::error::CommandError;
use crate::render::batches;
use crate::render::quantity::Clock;
use crate::responses::{BatchList, BatchView};
use crate::session::Session;

pub async fn run(session: &Session, args: BatchesArgs) -> Result<(), CommandError> {
    match args.command {
        None => list(session, BatchesCommand::LIMIT, None).await,
        Some(BatchesCommand::List { limit, after }) => list(session, limit, after.as_deref()).await,
        Some(BatchesCommand::Pause { id }) => {
            change(session, &id, &json!({ "paused": true })).await
        }
        Some(BatchesCommand::Resume { id }) => {
            change(session, &id, &json!({ "paused": false })).await
        }
        Some(BatchesCommand::Rank { id, rank }) => {
            change(session, &id, &json!({ "rank": rank })).await
        }
        Some(BatchesCommand::Cancel { id }) => {
            let query = [("id", id.as_str())];
            let path = "admin/batches/cancel";
            let client = &session.client;
            let response = client.call(Method::POST, path, &query, None, Patience::Short);
            show(session, &response.await?)
        }
    }
}

async fn list(session: &Session, limit: u32, after: Option<&str>) -> Result<(), CommandError> {
    let limit = limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(after.map(|id| ("after", id)));
    let show = |list: &BatchList, style| batches::batches(list, Clock::read(), style);
    session.get("admin/batches", &query, show).await
}

async fn change(session: &Session, id: &str, body: &Value) -> Result<(), CommandError> {
    let query = [("id", id)];
    let response = session.client.patch("admin/batches", &query, body).await?;
    show(session, &response)
}

/// Shows the batch as the server describes it after the change.
fn show(session: &Session, response: &ApiResponse) -> Result<(), CommandError> {
    session.show(response, |batch: &BatchView| {
        batches::batch(batch, Clock::read(), session.screen.style)
    })
}
