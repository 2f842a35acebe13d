//! The request and the wait that `cordon` and `nodes drain` share. Ctrl-C ends the wait, not the drain.

use serde_json::json;

use crate::cli::OutOfServiceArgs;
use crate::error::CommandError;
use crate::screen::announced;
use crate::session::{Session, present};
use client::ApiResponse;

/// A device or a node that leaves service.
pub struct Removal<'a> {
    pub route: &'static str,
    /// The request field for the name.
    pub field: &'static str,
    pub name: &'a str,
    /// The command that shows the progress, and the command that puts the device or node back into service (followed by the name).
    pub progress: &'static str,
    pub back: &'static str,
}

pub async fn remove(
    session: &Session,
    removal: &Removal<'_>,
    how: &OutOfServiceArgs,
) -> Result<ApiResponse, CommandError> {
    let mut request = present(json!({
        "reason": how.reason,
        "until": how.until,
        "now": how.now.then_some(true),
        "wait": how.no_wait.then_some(false),
    }));
    request[removal.field] = removal.name.into();
    let waits = !session.json && !how.now && !how.no_wait;
    let post = announced(
        session.client.post(removal.route, &request),
        waits.then_some(
            "Waiting for the requests in flight to end. Use --no-wait to return immediately, or --now to cut them.",
        ),
    );
    let Removal {
        name,
        progress,
        back,
        ..
    } = removal;
    tokio::select! {
        response = post => Ok(response?),
        _ = tokio::signal::ctrl_c() => Err(CommandError::Interrupted(format!(
            "stopped watching; {name} is still draining. `admin-client {progress}` shows its progress, `admin-client {back} {name}` puts it back into service",
        ))),
    }
}
