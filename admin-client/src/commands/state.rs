//! The current state of the pool: `devices`, `queue`, `config`.

use serde_json::Value;

use crate::commands::Session;
use crate::error::CommandError;
use crate::render;
use crate::render::quantity::Clock;
use crate::responses::{DeviceList, QueueView};

pub async fn devices(session: &Session) -> Result<(), CommandError> {
    let response = session.client.get("admin/devices", &[]).await?;
    session.show(&response, |list: &DeviceList| {
        render::bars::devices(list, Clock::read(), session.screen.style)
    })
}

pub async fn queue(session: &Session) -> Result<(), CommandError> {
    let response = session.client.get("admin/queue", &[]).await?;
    session.show(&response, |view: &QueueView| {
        render::queue::queue(view, session.screen.style)
    })
}

pub async fn config(session: &Session) -> Result<(), CommandError> {
    let response = session.client.get("admin/config", &[]).await?;
    session.show(&response, |config: &Value| format!("{config:#}\n"))
}
