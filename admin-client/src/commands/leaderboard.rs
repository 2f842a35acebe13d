//! `leaderboard`: the models ranked by votes from the playground.

use crate::commands::Session;
use crate::error::CommandError;
use crate::render;
use crate::render::quantity::Clock;
use crate::responses::Leaderboard;

pub async fn run(session: &Session) -> Result<(), CommandError> {
    let response = session.client.get("leaderboard", &[]).await?;
    session.show(&response, |board: &Leaderboard| {
        render::leaderboard::leaderboard(board, Clock::read(), session.screen.style)
    })
}
