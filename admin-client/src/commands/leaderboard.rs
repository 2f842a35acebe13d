//! `leaderboard`: the models ranked by votes from the playground.

use crate::responses::Leaderboard;
use crate::commands::Session;
use crate::failure::Failure;
use crate::render;
use crate::render::quantity::Clock;

pub async fn run(session: &Session) -> Result<(), Failure> {
    let response = session.client.get("leaderboard", &[]).await?;
    session.show(&response, |board: &Leaderboard| {
        render::leaderboard::leaderboard(board, Clock::read(), session.screen.style)
    })
}
