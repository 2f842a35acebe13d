//! `cordon` and `uncordon`: take a device out of service and put it back.

use serde_json::json;

use crate::cli::CordonArgs;
use crate::commands::out_of_service::{Removal, remove};
use crate::error::CommandError;
use crate::render::cordon as text;
use crate::render::quantity::Clock;
use crate::responses::{CordonResponse, UncordonResponse};
use crate::session::Session;

pub async fn cordon(session: &Session, args: &CordonArgs) -> Result<(), CommandError> {
    let removal = Removal {
        route: "admin/devices/cordon",
        field: "device",
        name: &args.device,
        progress: "devices",
        back: "uncordon",
    };
    let response = remove(session, &removal, &args.how).await?;
    session.show(&response, |response: &CordonResponse| {
        text::cordoned(response, Clock::read(), session.screen.style)
    })
}

pub async fn uncordon(session: &Session, device: &str) -> Result<(), CommandError> {
    let show = |response: &UncordonResponse, style| text::uncordoned(response, style);
    let body = json!({ "device": device });
    session.post("admin/devices/uncordon", &body, show).await
}
