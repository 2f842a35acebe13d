//! The request and the wait that `cordon` and `nodes drain` share. Ctrl-C ends the wait, not the drain.

use serde_json::{Map, Value};

use crate::cli::OutOfServiceArgs;
use crate::commands::Session;
use crate::error::CommandError;
use crate::screen::announced;
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
    let request = body(removal, how);
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

/// The request body, without absent options.
fn body(removal: &Removal<'_>, how: &OutOfServiceArgs) -> Value {
    let mut body = Map::new();
    body.insert(removal.field.to_owned(), removal.name.into());
    if let Some(reason) = &how.reason {
        body.insert("reason".to_owned(), reason.clone().into());
    }
    if let Some(until) = &how.until {
        body.insert("until".to_owned(), until.clone().into());
    }
    if how.now {
        body.insert("now".to_owned(), true.into());
    }
    if how.no_wait {
        body.insert("wait".to_owned(), false.into());
    }
    Value::Object(body)
}
