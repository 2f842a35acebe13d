//! `why`: the decision behind an event, or behind the last one of a model.

use crate::commands::Session;
use crate::failure::Failure;
use crate::past::Why;
use crate::render;
use crate::render::quantity::Clock;

/// A whole number is an event's; no model is called so.
pub async fn run(session: &Session, what: &str) -> Result<(), Failure> {
    let number = what.strip_prefix('#').unwrap_or(what);
    let is_event = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let query = match is_event {
        true => ("event", number),
        false => ("model", what),
    };
    let answer = session.client.get("admin/why", &[query]).await?;
    session.show(&answer, |why: &Why| {
        render::why::why(why, Clock::read(), session.screen.style)
    })
}
