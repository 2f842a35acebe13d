//! The current state of the pool: `devices`, `queue`, `config`.

use serde_json::Value;

use crate::error::CommandError;
use crate::render;
use crate::render::quantity::Clock;
use crate::responses::{DeviceList, QueueView};
use crate::session::Session;

pub async fn devices(session: &Session) -> Result<(), CommandError> {
    let show = |list: &DeviceList, style| render::bars::devices(list, Clock::read(), style);
    session.get("admin/devices", &[], show).await
}

pub async fn queue(session: &Session) -> Result<(), CommandError> {
    let show = |view: &QueueView, style| render::queue::queue(view, style);
    session.get("admin/queue", &[], show).await
}

pub async fn config(session: &Session) -> Result<(), CommandError> {
    let show = |config: &Value, _| format!("{config:#}\n");
    session.get("admin/config", &[], show).await
}
