//! `why`: the decision behind an event, or the last decision about a model.

use crate::commands::Session;
use crate::decisions::DecisionReport;
use crate::error::CommandError;
use crate::render;
use crate::render::quantity::Clock;

/// Takes a number as an event and everything else as a model: no model's name is a number.
pub async fn run(session: &Session, what: &str) -> Result<(), CommandError> {
    let number = what.strip_prefix('#').unwrap_or(what);
    let is_event = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let query = if is_event {
        ("event", number)
    } else {
        ("model", what)
    };
    let response = session.client.get("admin/why", &[query]).await?;
    session.show(&response, |why: &DecisionReport| {
        render::why::why(why, Clock::read(), session.screen.style)
    })
}
