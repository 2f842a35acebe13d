//! A table on the screen: fixed columns and a flexible column, a marked row, and as many rows as fit. Only draws into a buffer.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use super::colours::Colours;
use crate::render::fold::fitted;
use crate::render::table::{self, Column};

/// A row. `id` identifies it while the list changes.
#[derive(Debug, Default)]
pub struct Row {
    pub id: String,
    /// The row's model.
    pub model: Option<String>,
    pub cells: table::Row,
}

/// Least width of the flexible column.
const FLEXIBLE_MIN: u16 = 22;

/// The columns that fit, by number, each with its left edge and width. A column has its least width; the one without is flexible
/// and takes the remaining width.
pub fn places(columns: &[Column], width: u16) -> Vec<(usize, u16, u16)> {
    let wanted = |nth: usize| {
        columns[nth]
            .least
            .and_then(|least| u16::try_from(least).ok())
    };
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let fixed = |shown: &[usize]| -> u16 {
        let gaps = u16::try_from(shown.len().saturating_sub(1)).unwrap_or(u16::MAX);
        let widths = shown.iter().filter_map(|&nth| wanted(nth));
        widths.fold(gaps, u16::saturating_add)
    };
    while fixed(&shown).saturating_add(FLEXIBLE_MIN) > width {
        let leaving = shown
            .iter()
            .copied()
            .filter(|&nth| columns[nth].leaves.is_some());
        match leaving.min_by_key(|&nth| columns[nth].leaves) {
            Some(first) => shown.retain(|&nth| nth != first),
            None => break,
        }
    }
    let rest = width.saturating_sub(fixed(&shown));
    let mut x = 0;
    let mut places = Vec::new();
    for nth in shown {
        let wanted = wanted(nth).unwrap_or(rest);
        let has = wanted.min(width.saturating_sub(x));
        places.push((nth, x, has));
        x = x.saturating_add(wanted + 1);
    }
    places
}

/// Draws the header. `sorted` is the column by which rows are sorted, and true if it is descending.
pub fn header(
    columns: &[Column],
    sorted: Option<(usize, bool)>,
    area: Rect,
    buffer: &mut Buffer,
    colours: Colours,
) {
    for (nth, x, width) in places(columns, area.width) {
        let mark = match sorted {
            Some((by, true)) if by == nth => "▼",
            Some((by, false)) if by == nth => "▲",
            _ => "",
        };
        let title = format!("{}{mark}", columns[nth].title);
        put(
            buffer,
            (area.x + x, area.y),
            width,
            &title,
            columns[nth].right,
            colours.faint(),
        );
    }
}

/// Draws one row.
pub fn row(
    columns: &[Column],
    row: &Row,
    is_marked: bool,
    area: Rect,
    buffer: &mut Buffer,
    colours: Colours,
) {
    for (nth, x, width) in places(columns, area.width) {
        let Some(cell) = row.cells.get(nth) else {
            continue;
        };
        let style = cell
            .tint
            .map_or_else(Style::new, |tint| colours.style(tint));
        put(
            buffer,
            (area.x + x, area.y),
            width,
            &cell.text,
            columns[nth].right,
            style,
        );
    }
    if is_marked {
        buffer.set_style(area, Style::new().add_modifier(Modifier::REVERSED));
    }
}

/// Draws a text in its column, shortened in its middle if it is too long.
fn put(buffer: &mut Buffer, (x, y): (u16, u16), width: u16, text: &str, right: bool, style: Style) {
    let shown = fitted(text, usize::from(width));
    let span = Span::raw(shown.as_ref());
    let used = u16::try_from(span.width()).unwrap_or(width).min(width);
    let x = if right { x + (width - used) } else { x };
    buffer.set_stringn(x, y, shown.as_ref(), usize::from(width), style);
}

/// The first row to show, with the marked row among the `height` visible rows and the least possible scrolling.
pub fn scrolled(first: usize, marked: usize, rows: usize, height: usize) -> usize {
    let last_first = rows.saturating_sub(height);
    let first = first.min(last_first);
    if marked < first {
        marked
    } else if marked >= first + height.max(1) {
        (marked + 1).saturating_sub(height.max(1))
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::table::column;

    const COLUMNS: [Column; 4] = [
        column("NAME"),
        column("STATE").shortens_to(10),
        column("MEMORY").shortens_to(10).right().leaves(2),
        column("LAST").shortens_to(12).leaves(1),
    ];

    #[test]
    fn a_narrow_window_drops_the_least_important_columns_and_never_the_name() {
        let shown = |width| -> Vec<usize> {
            places(&COLUMNS, width)
                .iter()
                .map(|place| place.0)
                .collect()
        };
        assert_eq!(shown(80), [0, 1, 2, 3]);
        assert_eq!(shown(50), [0, 1, 2]);
        assert_eq!(shown(34), [0, 1]);
        assert_eq!(shown(3), [0, 1]);
        assert_eq!(places(&COLUMNS, 80)[0].2, 80 - 32 - 3);
        for width in 0..100 {
            for (_, x, wide) in places(&COLUMNS, width) {
                assert!(wide == 0 || x + wide <= width, "{width}");
            }
        }
    }

    #[test]
    fn the_marked_row_is_always_among_the_rows_shown() {
        assert_eq!(scrolled(0, 3, 10, 5), 0);
        assert_eq!(scrolled(0, 7, 10, 5), 3);
        assert_eq!(scrolled(6, 2, 10, 5), 2);
        assert_eq!(scrolled(8, 1, 3, 5), 0);
        for marked in 0..10 {
            let first = scrolled(9, marked, 10, 0);
            assert!(first <= marked);
        }
    }
}
