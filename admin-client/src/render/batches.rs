//! The batches of all keys as a table, with their progress. Pure.

use crate::render::fold::sentence;
use crate::render::quantity::{Clock, milliseconds};
use crate::render::table::{Cell, Column, Row, column, table};
use crate::responses::{BatchList, BatchView};
use crate::style::{Style, Tint, clean_line};
use terminal::row;

/// The id moves below its row, because a shortened id cannot be copied into the next command.
const COLUMNS: [Column; 9] = [
    column("BATCH").goes_below(),
    column("HOLDER").shortens_to(8),
    column("MODELS").shortens_to(10),
    column("STATUS"),
    column("DONE").right(),
    column("FAILED").right().leaves(3),
    column("EXPECTED").leaves(4),
    column("WINDOW LEFT").leaves(2),
    column("RANK").right().leaves(1),
];

/// The batches, latest first, and the command for the next page.
pub fn batches(list: &BatchList, clock: Clock, style: Style) -> String {
    let rows = list.batches.iter().map(|batch| line(batch, clock));
    let mut text = table(&COLUMNS, rows, "No batches.", style);
    if let Some(last) = &list.next_after {
        let more = format!("Older batches: admin-client batches list --after {last}");
        text.push_str(&sentence(&clean_line(&more), style));
    }
    text
}

/// One batch, after a change.
pub fn batch(batch: &BatchView, clock: Clock, style: Style) -> String {
    table(&COLUMNS, [line(batch, clock)], "", style)
}

fn line(batch: &BatchView, clock: Clock) -> Row {
    let counts = &batch.request_counts;
    let done = counts.completed.saturating_add(counts.failed);
    let models: Vec<&str> = batch
        .models
        .iter()
        .map(|model| model.model.as_str())
        .collect();
    let expected = batch.model_pool.expected_seconds;
    row![
        &batch.id,
        &batch.holder,
        models.join(", "),
        status(batch),
        format!("{done}/{}", counts.total),
        counts.failed,
        expected.map(|seconds| milliseconds(seconds.saturating_mul(1_000))),
        window_left(batch, clock),
        batch.rank,
    ]
}

fn status(batch: &BatchView) -> Cell {
    let is_paused = batch.model_pool.paused && batch.status == "in_progress";
    let (text, tint) = match batch.status.as_str() {
        _ if is_paused => ("paused", Some(Tint::Warning)),
        "completed" => ("completed", Some(Tint::Good)),
        "failed" | "expired" => (batch.status.as_str(), Some(Tint::Bad)),
        other => (other, None),
    };
    Cell::tinted(text, tint)
}

/// The rest of the completion window of a batch that has not ended.
fn window_left(batch: &BatchView, clock: Clock) -> Option<Cell> {
    let is_open = ["in_progress", "finalizing", "cancelling"].contains(&batch.status.as_str());
    let now = u64::try_from(clock.now.timestamp()).unwrap_or_default();
    let left = batch.expires_at.saturating_sub(now);
    let text = milliseconds(left.saturating_mul(1_000));
    let cell = if batch.model_pool.will_hold == Some(false) {
        Cell::tinted(format!("{text}, too short"), Some(Tint::Warning))
    } else {
        Cell::tinted(text, None)
    };
    is_open.then_some(cell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::quantity::tests::noon;
    use serde_json::json;

    fn list() -> BatchList {
        let id = "batch_5c1f8e0b7a9d4e62b3c4a1d2e3f40516";
        serde_json::from_value(json!({"batches": [
            {"id": id, "holder": "k3 (ann)", "models": [{"model": "m"}, {"model": "n"}], "status": "in_progress",
                "request_counts": {"total": 1000, "completed": 250, "failed": 2}, "rank": -1,
                "expires_at": noon().now.timestamp() + 3_600,
                "model_pool": {"paused": false, "expected_seconds": 7_200, "will_hold": false}},
            {"id": "b2", "holder": "10.0.0.7 (without a key)", "models": [{"model": "m"}], "status": "in_progress",
                "model_pool": {"paused": true}},
            {"id": "b3", "status": "completed", "model_pool": {"paused": true}}
        ], "next_after": "b3"}))
        .expect("batches")
    }

    #[test]
    fn a_batch_is_shown_with_its_progress_and_the_rest_of_its_window() {
        let text = batches(&list(), noon(), Style::PLAIN);
        let first = text.lines().nth(1).expect("a row");
        for cell in [
            "k3 (ann)",
            "m, n",
            "252/1000",
            "2 h",
            "1 h, too short",
            "-1",
        ] {
            assert!(first.contains(cell), "{cell}: {text}");
        }
        let row = |start: &str| text.lines().find(|line| line.starts_with(start));
        assert!(
            row("b2").is_some_and(|row| row.contains("paused")),
            "{text}"
        );
        assert!(
            row("b3").is_some_and(|row| row.contains("completed")),
            "{text}"
        );
        assert!(text.ends_with("batches list --after b3\n"), "{text}");
        let none = batches(&BatchList::default(), noon(), Style::PLAIN);
        assert_eq!(none, "No batches.\n");
    }

    #[test]
    fn a_narrow_terminal_keeps_the_complete_id_below_the_row() {
        let text = batches(&list(), noon(), Style::terminal(80));
        let below = "\n    batch_5c1f8e0b7a9d4e62b3c4a1d2e3f40516\n";
        assert!(text.contains(below), "{text}");
        assert!(text.contains("252/1000"), "{text}");
    }
}
