//! The leaderboard as a table: place, model, rating, and what the votes were. Pure.

use crate::render::quantity::Clock;
use crate::render::table::{Column, column, table};
use crate::responses::Leaderboard;
use crate::style::Style;
use terminal::row;

const COLUMNS: [Column; 8] = [
    column("PLACE").right(),
    column("MODEL").shortens_to(14),
    column("RATING").right(),
    column("WON").right(),
    column("LOST").right(),
    column("TIED").right(),
    column("WIN RATIO").right().leaves(1),
    column("LAST VOTE").leaves(2),
];

/// The best first, as the server sends them.
pub fn leaderboard(board: &Leaderboard, clock: Clock, style: Style) -> String {
    let rows = board.models.iter().map(|entry| {
        row![
            entry.rank,
            &entry.model,
            format!("{:.0}", entry.rating),
            entry.wins,
            entry.losses,
            entry.ties,
            entry.win_ratio,
            entry.voted_at.as_deref().map(|at| clock.stamp(at)),
        ]
    });
    let empty = "No votes yet. Compare models in the dashboard's playground, and vote for the best response.";
    table(&COLUMNS, rows, empty, style)
}
