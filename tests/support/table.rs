//! Tables of test cases: one case per line, with bars between its cells.

use serde_json::Value;

/// The rows of a table. `\n`, `\t` and `\\` in a cell stand for a line break, a tab and a backslash. Empty lines, and lines that
/// begin with `//`, are not rows.
pub fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = table.lines().map(str::trim);
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    rows.map(|line| line.split('|').map(|cell| unescaped(cell.trim())).collect())
}

/// Leaks a cell with escapes.
fn unescaped(cell: &'static str) -> &'static str {
    if !cell.contains('\\') {
        return cell;
    }
    let parts = cell.split("\\\\");
    let parts = parts.map(|part| part.replace("\\n", "\n").replace("\\t", "\t"));
    parts.collect::<Vec<_>>().join("\\").leak()
}

/// The rows of a table with `N` columns.
///
/// # Panics
/// If a row has another number of cells.
pub fn rows_of<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    rows(table).map(|cells| match cells.try_into() {
        Ok(cells) => cells,
        Err(cells) => panic!("a row has not {N} cells: {cells:?}"),
    })
}

/// The value of a cell with JSON.
///
/// # Panics
/// If the cell is not JSON.
pub fn json(cell: &str) -> Value {
    serde_json::from_str(cell).unwrap_or_else(|error| panic!("{cell}: {error}"))
}
