//! `top`: the live screen on a terminal. In a pipe, prints devices, models and queue as unabridged text or as JSON.

use std::time::Duration;

use client::ApiResponse;
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::render::quantity::Clock;
use crate::render::{bars, models, queue};
use crate::responses::{DeviceList, ModelList, QueueView};
use crate::session::Session;
use crate::style::{Style, Tint};
use crate::top;

const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// The responses for one screen.
struct Responses {
    devices: ApiResponse,
    models: ApiResponse,
    queue: ApiResponse,
}

/// Runs on a terminal until q, Ctrl-C, SIGTERM or `times` seconds. In a pipe, prints `times` screens, or one. With `once`, prints
/// one picture of the screen.
pub async fn top(session: &Session, times: Option<u32>, once: bool) -> Result<(), CommandError> {
    match (session.json, once, session.screen.style.terminal) {
        (true, _, _) => lines(session, if once { 1 } else { times.unwrap_or(1) }).await,
        (false, true, _) => top::once(session).await,
        (false, false, true) => top::run(session, times).await,
        (false, false, false) => lines(session, times.unwrap_or(1)).await,
    }
}

/// Prints the screens one after the other; with `--json`, one object per line.
async fn lines(session: &Session, times: u32) -> Result<(), CommandError> {
    for n in 0..times {
        if n > 0 {
            tokio::time::sleep(REFRESH_EVERY).await;
        }
        let responses = fetch(session).await?;
        let text = if session.json {
            object(&responses)?
        } else {
            draw(&responses, session.screen.style)?
        };
        session.screen.print(&text)?;
    }
    Ok(())
}

async fn fetch(session: &Session) -> Result<Responses, CommandError> {
    let get = async |path| session.client.glance(path, &[]).await;
    Ok(Responses {
        devices: get("admin/devices").await?,
        models: get("admin/models").await?,
        queue: get("admin/queue").await?,
    })
}

fn draw(responses: &Responses, style: Style) -> Result<String, CommandError> {
    let devices: DeviceList = responses.devices.read()?;
    let list: ModelList = responses.models.read()?;
    let waiting: QueueView = responses.queue.read()?;
    let clock = Clock::read();
    Ok(format!(
        "{}\n\n{}\n{}\n{}",
        style.paint(Tint::Faint, &clock.stamp(&clock.now.to_rfc3339())),
        bars::devices(&devices, clock, style),
        models::models(&list.models, clock, style),
        queue::queue(&waiting, style),
    ))
}

/// The three responses as one object in one line.
fn object(responses: &Responses) -> Result<String, CommandError> {
    let devices: Value = responses.devices.read()?;
    let models: Value = responses.models.read()?;
    let queue: Value = responses.queue.read()?;
    Ok(json!({"devices": devices, "models": models, "queue": queue}).to_string())
}
