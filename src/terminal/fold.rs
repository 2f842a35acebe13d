//! Wraps text into lines or shortens it to fit a number of columns. Pure.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

use crate::style::{Style, Tint, clean_line, width};

/// Marks a cut.
const CUT: char = '…';
/// Limit on characters per column, because some characters take no column.
const MARKS_MAX: usize = 8;

/// Shortens a text that is too wide in its middle: names differ at both ends.
pub fn fitted(text: &str, columns: usize) -> Cow<'_, str> {
    let marks_max = columns.saturating_mul(MARKS_MAX);
    // Every character has at least one byte, so a short text needs no counting.
    let is_flood = text.len() > marks_max && text.chars().count() > marks_max;
    if width(text) <= columns && !is_flood {
        return Cow::Borrowed(text);
    }
    let Some(room) = columns.checked_sub(1) else {
        return Cow::Borrowed("");
    };
    let tail_columns = room / 2;
    let head = taken(text.chars(), room - tail_columns);
    let tail: Vec<char> = taken(text.chars().rev(), tail_columns).chars().collect();
    let mut out = head;
    out.push(CUT);
    out.extend(tail.iter().rev());
    Cow::Owned(out)
}

/// The longest prefix that fits into these columns.
fn taken(chars: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    chars
        .take(columns.saturating_mul(MARKS_MAX))
        .take_while(|c| {
            used += columns_of(*c);
            used <= columns
        })
        .collect()
}

/// The columns of one character. A variation selector may widen the character before it.
fn columns_of(c: char) -> usize {
    match c {
        '\u{fe0f}' => 1,
        c => c.width().unwrap_or(0),
    }
}

/// Wraps the text's lines between words to at most `columns`, or leaves them as they are without a limit. Beyond `lines_max` lines,
/// the last line ends with `…`.
pub fn wrapped(text: &str, columns: Option<usize>, lines_max: usize) -> Vec<String> {
    let Some(columns) = columns else {
        return text.lines().map(str::to_owned).collect();
    };
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for line in text.lines() {
        if width(line) <= columns && !line.contains('\t') {
            lines.push(line.to_owned())
        } else {
            fold(line, columns, lines_max + 1, &mut lines)
        }
        if lines.len() > lines_max {
            lines.truncate(lines_max);
            if let Some(last) = lines.last_mut() {
                while width(last) + 2 > columns && last.pop().is_some() {}
                last.push(' ');
                last.push(CUT);
            }
            break;
        }
    }
    lines
}

/// Wraps one line; leading spaces stay on its first line. Stops at `lines_max` lines in all.
fn fold(line: &str, columns: usize, lines_max: usize, lines: &mut Vec<String>) {
    let text = line.trim_start();
    let lead = line.len() - text.len();
    let mut now = " ".repeat(lead.min(columns / 2));
    let mut used = now.len();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let mut word = word;
        let gap = usize::from(!is_empty);
        let wide = width(word);
        if used + gap + wide > columns && !is_empty {
            lines.push(std::mem::take(&mut now));
            (used, is_empty) = (0, true);
        }
        // A word wider than a line is broken anywhere.
        while used + width_up_to(word, columns + 1) > columns {
            if lines.len() >= lines_max {
                return;
            }
            let part = taken(word.chars(), columns - used);
            // A character wider than the line.
            let part = if part.is_empty() {
                word.chars().take(1).collect()
            } else {
                part
            };
            word = &word[part.len()..];
            now.push_str(&part);
            lines.push(std::mem::take(&mut now));
            (used, is_empty) = (0, true);
        }
        if word.is_empty() {
            continue;
        }
        if !is_empty {
            now.push(' ');
            used += 1;
        }
        now.push_str(word);
        used += width(word);
        is_empty = false;
        if lines.len() >= lines_max {
            return;
        }
    }
    if !is_empty {
        lines.push(now);
    } else if text.is_empty() {
        lines.push(String::new());
    }
}

/// The width, counted only as far as needed to see that it is at least `enough`.
fn width_up_to(text: &str, enough: usize) -> usize {
    let mut sum = 0;
    for c in text.chars() {
        sum += columns_of(c);
        if sum >= enough {
            break;
        }
    }
    sum
}

/// Columns reserved for the rest of a line that contains a model's name.
const BESIDE_NAME: usize = 30;
const NAME_COLUMNS_MIN: usize = 12;

/// A name within a line, cleaned, and shortened if the line would be far too long.
pub fn name(text: &str, style: Style) -> String {
    let text = clean_line(text);
    match style.limit() {
        Some(limit) => {
            let room = limit.saturating_sub(BESIDE_NAME).max(NAME_COLUMNS_MIN);
            fitted(&text, room).into_owned()
        }
        None => text,
    }
}

/// The text on separate lines, indented and wrapped.
pub fn indented(text: &str, indent: usize, lines_max: usize, style: Style) -> String {
    let room = style.limit().map(|limit| limit.saturating_sub(indent));
    wrapped(text, room, lines_max)
        .iter()
        .map(|line| format!("{:indent$}{line}\n", ""))
        .collect()
}

/// Column at which the texts of items begin.
const ITEM_COLUMNS: usize = 10;
const ITEM_LINES_MAX: usize = 8;

/// `  label   text`, folded behind the label.
pub fn item(label: &str, tint: Option<Tint>, text: &str, style: Style) -> String {
    let start = ITEM_COLUMNS.max(width(label) + 3);
    let room = style.limit().map(|limit| limit.saturating_sub(start));
    let padding = start - 2 - width(label);
    let shown = tint.map_or_else(|| label.to_owned(), |tint| style.paint(tint, label));
    let lines = wrapped(text, room, ITEM_LINES_MAX);
    let lines = lines.join(&format!("\n{:start$}", ""));
    format!("  {shown}{:padding$}{lines}\n", "")
}

/// A sentence on its own lines, wrapped; further lines are indented.
pub fn sentence(text: &str, style: Style) -> String {
    let room = style.limit().map(|limit| limit.saturating_sub(2));
    wrapped(text, room, usize::MAX - 1).join("\n  ") + "\n"
}

/// The same with the first occurrence of each piece in its colour. A piece that was folded stays plain.
pub fn painted(text: &str, pieces: &[(Tint, &str)], style: Style) -> String {
    let mut out = sentence(text, style);
    for (tint, piece) in pieces.iter().filter(|(_, piece)| !piece.is_empty()) {
        out = out.replacen(piece, &style.paint(*tint, piece), 1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shortened_in_its_middle() {
        assert_eq!(fitted("org/model-7b-instruct", 21), "org/model-7b-instruct");
        assert_eq!(fitted("org/model-7b-instruct", 15), "org/mod…nstruct");
        assert_eq!(fitted("模型模型", 5), "模…型");
        assert_eq!(fitted("ab", 1), "…");
        assert_eq!(fitted("ab", 0), "");
    }

    #[test]
    fn a_flood_of_zero_width_marks_is_truncated() {
        let flood = format!("a{}", "\u{301}".repeat(5_000));
        assert!(fitted(&flood, 10).chars().count() < 100);
    }

    #[test]
    fn text_wraps_between_words_and_long_words_wrap_anywhere() {
        assert_eq!(wrapped("one two three", Some(7), 9), ["one two", "three"]);
        assert_eq!(
            wrapped("a abcdefghij b", Some(4), 9),
            ["a", "abcd", "efgh", "ij b"]
        );
        assert_eq!(wrapped("  a\n\nb", Some(4), 9), ["  a", "", "b"]);
        assert_eq!(wrapped("模型模型", Some(3), 9), ["模", "型", "模", "型"]);
        assert_eq!(wrapped("模型", Some(1), 9), ["模", "型"]);
        assert_eq!(wrapped("a  b\nc", None, 1), ["a  b", "c"]);
    }

    #[test]
    fn too_many_lines_end_with_an_ellipsis() {
        assert_eq!(wrapped("one two three four", Some(5), 2), ["one", "two …"]);
        let flood = "x".repeat(100_000);
        let lines = wrapped(&flood, Some(10), 3);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| width(line) <= 10), "{lines:?}");
    }

    #[test]
    fn an_item_wraps_with_a_hanging_indent() {
        assert_eq!(
            item("why", None, "one two three four", Style::terminal(22)),
            "  why     one two\n          three four\n"
        );
        assert_eq!(
            item("why", None, "one two three four", Style::PLAIN),
            "  why     one two three four\n"
        );
    }
}
