//! `leaderboard`: the models ranked by votes from the playground.

use crate::answers::Leaderboard;
use crate::commands::Session;
use crate::failure::Failure;
use crate::render;
use crate::render::quantity::Clock;

pub async fn run(session: &Session) -> Result<(), Failure> {
    let answer = session.client.get("leaderboard", &[]).await?;
    session.show(&answer, |board: &Leaderboard| {
        render::leaderboard::leaderboard(board, Clock::read(), session.screen.style)
    })
}
