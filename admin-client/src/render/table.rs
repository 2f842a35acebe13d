//! Aligned columns of text. Pure.

use crate::screen::{Style, Tint, clean};

/// One cell: text and an optional tint.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    tint: Option<Tint>,
    right: bool,
}

impl Cell {
    pub fn tinted(text: impl Into<String>, tint: Option<Tint>) -> Cell {
        Cell {
            text: clean(&text.into()).replace(['\n', '\t'], " "),
            tint,
            right: false,
        }
    }

    /// Aligned to the right, for numbers.
    pub fn right(text: impl Into<String>) -> Cell {
        Cell {
            right: true,
            ..Cell::from(text.into())
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::tinted(text, None)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::tinted(text, None)
    }
}

/// Renders a header and rows, one line each, two spaces between columns. Without rows it returns
/// the sentence `empty`.
pub fn table(header: &[&str], rows: &[Vec<Cell>], empty: &str, style: Style) -> String {
    if rows.is_empty() {
        return format!("{empty}\n");
    }
    let mut widths: Vec<usize> = header.iter().map(|title| title.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    let right: Vec<bool> = rows[0].iter().map(|cell| cell.right).collect();
    let titles: Vec<Cell> = header
        .iter()
        .zip(&right)
        .map(|(title, &right)| Cell {
            text: (*title).to_owned(),
            tint: Some(Tint::Faint),
            right,
        })
        .collect();
    std::iter::once(&titles)
        .chain(rows)
        .map(|row| line(row, &widths, style))
        .collect()
}

fn line(row: &[Cell], widths: &[usize], style: Style) -> String {
    let mut out = String::new();
    let mut pending = 0;
    for (cell, &width) in row.iter().zip(widths) {
        let padding = width.saturating_sub(cell.text.chars().count());
        let (before, after) = if cell.right {
            (padding, 0)
        } else {
            (0, padding)
        };
        // Spaces are written only before more text, so that no line ends with spaces.
        if !cell.text.is_empty() {
            out.extend(std::iter::repeat_n(' ', pending + before));
            pending = 0;
            match cell.tint {
                Some(tint) => out.push_str(&style.paint(tint, &cell.text)),
                None => out.push_str(&cell.text),
            }
            pending += after + 2;
        } else {
            pending += width + 2;
        }
    }
    out.push('\n');
    out
}

/// One name and value per line, with aligned values. Pairs without a value are left out.
pub fn facts(pairs: &[(&str, Option<String>)]) -> String {
    let width = pairs
        .iter()
        .filter(|(_, value)| value.is_some())
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    pairs
        .iter()
        .filter_map(|(name, value)| {
            let value = clean(value.as_ref()?).replace('\n', &format!("\n  {:width$}  ", ""));
            Some(format!("  {name:width$}  {value}\n"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_space() {
        let rows = vec![
            vec![Cell::from("a"), Cell::right("10"), Cell::from("x")],
            vec![Cell::from("long"), Cell::right("5"), Cell::from("")],
        ];
        let text = table(&["NAME", "N", "REST"], &rows, "nothing", Style::PLAIN);
        assert_eq!(text, "NAME   N  REST\na     10  x\nlong   5\n");
    }

    #[test]
    fn an_empty_table_is_a_sentence() {
        assert_eq!(
            table(&["A"], &[], "No requests are waiting.", Style::PLAIN),
            "No requests are waiting.\n"
        );
    }

    #[test]
    fn colours_do_not_disturb_the_alignment() {
        let rows = vec![
            vec![Cell::tinted("ab", Some(Tint::Good)), Cell::from("c")],
            vec![Cell::from("abcd"), Cell::from("e")],
        ];
        let colour = Style {
            colour: true,
            ..Style::PLAIN
        };
        let text = table(&["H", "I"], &rows, "", colour);
        assert_eq!(clean(&text), "H     I\nab    c\nabcd  e\n");
    }

    #[test]
    fn a_name_cannot_break_the_line() {
        let rows = vec![vec![Cell::from("a\nb\x1b[2J")]];
        assert_eq!(table(&["H"], &rows, "", Style::PLAIN), "H\na b\n");
    }

    #[test]
    fn facts_without_a_value_are_left_out() {
        let text = facts(&[
            ("a", Some("1\n2".to_owned())),
            ("long", None),
            ("bb", Some("3".to_owned())),
        ]);
        assert_eq!(text, "  a   1\n      2\n  bb  3\n");
    }
}
