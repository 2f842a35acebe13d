//! The leaderboard as a table: place, model, rating, and what the votes were. Pure.

use crate::render::quantity::Clock;
use crate::render::table::{Cell, Column, column, table};
use crate::responses::Leaderboard;
use crate::style::Style;

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
    let rows: Vec<Vec<Cell>> = board
        .models
        .iter()
        .map(|entry| {
            let voted = entry.voted_at.as_deref();
            vec![
                Cell::from(entry.rank.to_string()),
                Cell::from(entry.model.as_str()),
                Cell::from(format!("{:.0}", entry.rating)),
                Cell::from(entry.wins.to_string()),
                Cell::from(entry.losses.to_string()),
                Cell::from(entry.ties.to_string()),
                Cell::from(entry.win_ratio.to_string()),
                Cell::from(voted.map_or_else(|| "-".to_owned(), |at| clock.stamp(at))),
            ]
        })
        .collect();
    let empty = "No votes yet. Compare models in the dashboard's playground, and vote for the best response.";
    table(&COLUMNS, &rows, empty, style)
}
