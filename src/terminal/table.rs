//! Tables and lists of facts that fit the terminal's width. Pure.
//!
//! The columns of a table that is too wide give way by importance: long texts move below their row, names are shortened in their
//! middle, and the least important columns are left out. Without a terminal and with `--wide` all columns stay. This is our own
//! code because `comfy-table` can only wrap or cut at the end of a cell, which gives several lines per row, and columns of a few
//! characters.

use crate::fold::{fitted, indented, wrapped};
use crate::style::{Style, Tint, clean, clean_line, width};

/// Spaces between two columns.
const GAP: usize = 2;
/// Spaces before a text below its row.
const BELOW_INDENT: usize = 4;
/// Maximum number of lines of one text below its row.
const BELOW_LINES_MAX: usize = 4;
/// Maximum number of lines of one fact.
const FACT_LINES_MAX: usize = 8;
/// A fact's value with less room than this moves below its name.
const FACT_COLUMNS_MIN: usize = 30;

/// One cell: text and an optional tint.
#[derive(Clone, Debug)]
pub struct Cell {
    pub text: String,
    pub tint: Option<Tint>,
    /// The usual value. Not worth a separate line below the row.
    usual: bool,
}

impl Cell {
    pub fn tinted(text: impl Into<String>, tint: Option<Tint>) -> Cell {
        let text = clean_line(&text.into());
        let usual = text.is_empty() || text == "-";
        Cell { text, tint, usual }
    }

    /// A value that needs no attention, such as `everything`.
    pub fn usual(text: impl Into<String>) -> Cell {
        Cell {
            usual: true,
            ..Cell::tinted(text, None)
        }
    }
}

macro_rules! cell_from {
    ($($type:ty),*) => {$(
        impl From<$type> for Cell {
            fn from(value: $type) -> Cell {
                Cell::tinted(value.to_string(), None)
            }
        }
    )*};
}

cell_from!(String, &String, &str, i64, u32, u64, usize);

/// An absent value is shown as `-`.
impl<T> From<Option<T>> for Cell
where
    Cell: From<T>,
{
    fn from(value: Option<T>) -> Cell {
        value.map_or_else(|| Cell::tinted("-", None), Cell::from)
    }
}

/// The cells of one row.
pub type Row = Vec<Cell>;

/// Makes a row of values that are cells or become cells.
#[macro_export]
macro_rules! row {
    ($($cell:expr),* $(,)?) => {
        vec![$($crate::table::Cell::from($cell)),*]
    };
}

/// A column and the way it gives way to others.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    pub right: bool,
    /// Its texts may be shortened down to this width.
    pub least: Option<usize>,
    /// Columns with a lower number are left out first. A column without a number stays.
    pub leaves: Option<u8>,
    /// Its texts move below their rows.
    below: bool,
}

/// A column that never gives way, unless another method changes that.
pub const fn column(title: &'static str) -> Column {
    Column {
        title,
        right: false,
        least: None,
        leaves: None,
        below: false,
    }
}

impl Column {
    /// Aligned to the right, for numbers.
    pub const fn right(mut self) -> Column {
        self.right = true;
        self
    }

    pub const fn shortens_to(mut self, least: usize) -> Column {
        self.least = Some(least);
        self
    }

    pub const fn leaves(mut self, turn: u8) -> Column {
        self.leaves = Some(turn);
        self
    }

    pub const fn goes_below(mut self) -> Column {
        self.below = true;
        self
    }
}

/// The widths of a table's columns.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    /// The width of each column; `None` if it is left out or moves below.
    widths: Vec<Option<usize>>,
    below: Vec<usize>,
}

impl Layout {
    fn new(columns: &[Column], natural: &[usize], limit: Option<usize>) -> Layout {
        let mut layout = Layout {
            widths: natural.iter().copied().map(Some).collect(),
            below: Vec::new(),
        };
        let Some(limit) = limit.filter(|limit| layout.total() > *limit) else {
            return layout;
        };
        for (nth, column) in columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.below)
        {
            // Texts that are short in every row would only cost lines.
            if column.least.is_none_or(|least| natural[nth] > least) {
                layout.widths[nth] = None;
                layout.below.push(nth);
            }
        }
        let least = |nth: usize| columns[nth].least.unwrap_or(usize::MAX).min(natural[nth]);
        while layout.total_of(least) > limit {
            let shown = (0..columns.len()).filter(|nth| layout.widths[*nth].is_some());
            let next = shown.filter(|nth| columns[*nth].leaves.is_some());
            let Some(next) = next.min_by_key(|nth| columns[*nth].leaves) else {
                break;
            };
            layout.widths[next] = None;
        }
        layout.shorten(limit, least);
        // No more columns may be left out: the widest are cut, even if they should not be.
        layout.shorten(limit, |_| 1);
        layout
    }

    fn total(&self) -> usize {
        self.total_of(|nth| self.widths[nth].unwrap_or_default())
    }

    /// The width of a line with these columns.
    fn total_of(&self, width: impl Fn(usize) -> usize) -> usize {
        let shown = || (0..self.widths.len()).filter(|nth| self.widths[*nth].is_some());
        shown().map(width).sum::<usize>() + GAP * shown().count().saturating_sub(1)
    }

    /// Takes the excess from the widest columns, down to each column's least width.
    fn shorten(&mut self, limit: usize, least: impl Fn(usize) -> usize) {
        if self.total() <= limit {
            return;
        }
        let now = self.widths.clone();
        let narrowed =
            |cap: usize, nth: usize| now[nth].unwrap_or_default().min(cap.max(least(nth)));
        let fits = |cap: &usize| self.total_of(|nth| narrowed(*cap, nth)) <= limit;
        let cap = (1..=limit).rev().find(fits).unwrap_or(1);
        self.widths = (0..now.len())
            .map(|nth| now[nth].map(|_| narrowed(cap, nth)))
            .collect();
    }
}

/// Renders a header and rows, one line each plus the lines below a row. Returns the sentence `empty` without rows.
pub fn table(
    columns: &[Column],
    rows: impl IntoIterator<Item = Row>,
    empty: &str,
    style: Style,
) -> String {
    let rows: Vec<Row> = rows.into_iter().collect();
    if rows.is_empty() {
        return wrapped(empty, style.limit(), BELOW_LINES_MAX).join("\n") + "\n";
    }
    let titles: Vec<usize> = columns.iter().map(|column| width(column.title)).collect();
    let layout = Layout::new(columns, &natural(titles, &rows), style.limit());
    let title = |column: &Column| Cell::tinted(column.title, Some(Tint::Faint));
    let titles: Row = columns.iter().map(title).collect();
    let titles = titles.into_iter().map(|cell| Cell {
        usual: true,
        ..cell
    });
    std::iter::once(titles.collect())
        .chain(rows)
        .map(|row: Row| lines(columns, &row, &layout, 0, style))
        .collect()
}

/// Like `table` without a header, indented.
pub fn list(
    columns: &[Column],
    rows: impl IntoIterator<Item = Row>,
    indent: usize,
    style: Style,
) -> String {
    let rows: Vec<Row> = rows.into_iter().collect();
    let limit = style.limit().map(|limit| limit.saturating_sub(indent));
    let layout = Layout::new(columns, &natural(vec![0; columns.len()], &rows), limit);
    rows.iter()
        .map(|row| lines(columns, row, &layout, indent, style))
        .collect()
}

fn natural(mut widths: Vec<usize>, rows: &[Row]) -> Vec<usize> {
    for row in rows {
        for (known, cell) in widths.iter_mut().zip(row) {
            *known = (*known).max(width(&cell.text));
        }
    }
    widths
}

fn lines(columns: &[Column], row: &[Cell], layout: &Layout, indent: usize, style: Style) -> String {
    let mut out = String::new();
    let mut pending = indent;
    for ((column, cell), shown) in columns.iter().zip(row).zip(&layout.widths) {
        let Some(shown) = *shown else { continue };
        let text = match style.limit() {
            Some(_) => fitted(&cell.text, shown),
            None => cell.text.as_str().into(),
        };
        let padding = shown.saturating_sub(width(&text));
        let (before, after) = if column.right {
            (padding, 0)
        } else {
            (0, padding)
        };
        // Spaces are written only before more text, which leaves no trailing spaces.
        if text.is_empty() {
            pending += shown + GAP;
            continue;
        }
        out.extend(std::iter::repeat_n(' ', pending + before));
        match cell.tint {
            Some(tint) => out.push_str(&style.paint(tint, &text)),
            None => out.push_str(&text),
        }
        pending = after + GAP;
    }
    out.push('\n');
    for cell in layout.below.iter().filter_map(|nth| row.get(*nth)) {
        if !cell.usual {
            let indent = indent + BELOW_INDENT;
            out.push_str(&indented(&cell.text, indent, BELOW_LINES_MAX, style));
        }
    }
    out
}

/// One name and value per line, with aligned values. Leaves out pairs without a value.
pub fn facts(pairs: &[(&str, Option<String>)], style: Style) -> String {
    let names = pairs.iter().filter(|(_, value)| value.is_some());
    let widest = names.map(|(name, _)| width(name)).max().unwrap_or(0);
    let mut out = String::new();
    for (name, value) in pairs {
        let Some(value) = value else { continue };
        let value = clean(value);
        let start = widest + 2 * GAP;
        let room = style.limit().map(|limit| limit.saturating_sub(start));
        match room {
            Some(room) if room < FACT_COLUMNS_MIN && width(&value) > room => {
                out.push_str(&format!("  {name}\n"));
                let indent = GAP + BELOW_INDENT;
                out.push_str(&indented(&value, indent, FACT_LINES_MAX, style));
            }
            _ => {
                let lines = wrapped(&value, room, FACT_LINES_MAX);
                let hanging = format!("\n{:start$}", "");
                out.push_str(&format!("  {name:widest$}  {}\n", lines.join(&hanging)));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
