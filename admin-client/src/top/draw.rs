//! Draws `top` into a buffer: a line about the pool, the panes, and the dialog over them. At 80 × 24 the panes are stacked; a wide
//! window has the queue and the events to the right of the models.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

use super::app::{App, Link};
use super::grid::{Row, header, places, row, scrolled};
use super::rows::{BAR, PANES, Pane};
use crate::render::bars::{Run, runs};
use crate::render::fold::fitted;
use crate::render::quantity::{Clock, milliseconds};
use crate::state::LoadState;
use crate::style::{Tint, clean_line};

/// Width from which panes are side by side.
const WIDE_COLUMNS: u16 = 150;
/// The rows of a pane's border and its column titles.
const FRAME_ROWS: u16 = 3;

pub fn draw(app: &mut App, clock: Clock, area: Rect, buffer: &mut Buffer) {
    app.areas.clear();
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    status_line(app, clock, top, buffer);
    for (pane, area) in layout(app, middle) {
        draw_pane(app, pane, clock, area, buffer);
    }
    bottom_line(app, clock, bottom, buffer);
    if app.dialog.is_some() {
        draw_dialog(app, clock, middle, buffer);
    }
}

/// The areas of the panes. A pane with few rows gets no more room than it needs.
fn layout(app: &App, area: Rect) -> Vec<(Pane, Rect)> {
    if app.is_alone {
        return vec![(app.pane, area)];
    }
    let rows = |count: usize, max: u16| {
        FRAME_ROWS + u16::try_from(count).unwrap_or(max).clamp(1, max.max(1))
    };
    let queued = app.view.queue.waiting.len() + app.view.queue.orders.len();
    let devices = rows(
        app.view.devices.len(),
        (area.height / 3).saturating_sub(FRAME_ROWS),
    );
    if area.width >= WIDE_COLUMNS {
        let [left, right] =
            Layout::horizontal([Constraint::Percentage(55), Constraint::Min(0)]).areas(area);
        let [first, second] =
            Layout::vertical([Constraint::Length(devices), Constraint::Min(0)]).areas(left);
        let queue = rows(queued, (area.height / 2).saturating_sub(FRAME_ROWS)).max(devices);
        let [third, fourth] =
            Layout::vertical([Constraint::Length(queue), Constraint::Min(0)]).areas(right);
        return PANES
            .into_iter()
            .zip([first, second, third, fourth])
            .collect();
    }
    // Without requests, the queue is a single line.
    let queue = match queued {
        0 => FRAME_ROWS,
        queued => rows(queued, area.height / 6),
    };
    let [first, second, third, fourth] = Layout::vertical([
        Constraint::Length(devices),
        Constraint::Fill(3),
        Constraint::Length(queue),
        Constraint::Fill(2),
    ])
    .areas(area);
    PANES
        .into_iter()
        .zip([first, second, third, fourth])
        .collect()
}

fn status_line(app: &App, clock: Clock, area: Rect, buffer: &mut Buffer) {
    let colours = app.colours;
    let mut spans = vec![Span::styled(
        " model-pool ",
        Style::new().add_modifier(Modifier::BOLD),
    )];
    if let Link::Lost { since, why } = &app.link {
        let ms = u64::try_from((clock.now - *since).num_milliseconds()).unwrap_or(0);
        let text = format!(
            " no connection for {}, trying again: {} ",
            milliseconds(ms / 1000 * 1000),
            clean_line(why)
        );
        spans.push(Span::styled(
            text,
            colours.style(Tint::Bad).add_modifier(Modifier::REVERSED),
        ));
        Line::from(spans).render(area, buffer);
        return;
    }
    let server = app
        .server
        .split_once("://")
        .map_or(app.server.as_str(), |(_, rest)| rest);
    let ready = app
        .view
        .models
        .iter()
        .filter(|model| model.state == LoadState::Ready)
        .count();
    let waiting = app.view.queue.waiting.len();
    let is_failing = |state: &LoadState| {
        matches!(
            state,
            LoadState::Cooling | LoadState::Quarantined | LoadState::Broken
        )
    };
    let failing = app
        .view
        .models
        .iter()
        .filter(|model| is_failing(&model.state))
        .count();
    let now = clock.time_of_day(&clock.now.to_rfc3339());
    spans.push(Span::styled("● live", colours.style(Tint::Good)));
    spans.push(Span::raw(format!(
        "  {now}  {ready} of {} ready",
        app.view.models.len()
    )));
    if waiting > 0 {
        spans.push(Span::styled(
            format!("  {waiting} waiting"),
            colours.style(Tint::Warning),
        ));
    }
    if failing > 0 {
        spans.push(Span::styled(
            format!("  {failing} failing"),
            colours.style(Tint::Bad),
        ));
    }
    match (
        &app.view.store.trouble,
        app.view.evening.is_evening,
        &app.view.evening.next_cleanup_at,
    ) {
        (Some(trouble), _, _) => spans.push(Span::styled(
            format!("  {}", clean_line(trouble)),
            colours.style(Tint::Bad),
        )),
        (None, true, _) => spans.push(Span::styled("  evening", colours.style(Tint::Warning))),
        (None, false, Some(at)) => {
            let at = clock.time_of_day(at);
            let at = at.get(..5).unwrap_or(&at);
            spans.push(Span::styled(format!("  cleanup {at}"), colours.faint()));
        }
        (None, false, None) => {}
    }
    spans.push(Span::styled(
        format!("  {}", clean_line(server)),
        colours.faint(),
    ));
    Line::from(spans).render(area, buffer);
}

fn bottom_line(app: &App, clock: Clock, area: Rect, buffer: &mut Buffer) {
    let line = if app.is_typing_filter {
        Line::from(vec![
            Span::styled(" /", app.colours.style(Tint::Warning)),
            Span::raw(clean_line(&app.filter)),
            Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
            Span::styled("   Enter keep   Esc clear the filter", app.colours.faint()),
        ])
    } else if let Some((text, is_bad)) = app.notice(clock.now) {
        let tint = if is_bad { Tint::Bad } else { Tint::Good };
        let text = fitted(text, usize::from(area.width.saturating_sub(2))).into_owned();
        Line::styled(format!(" {text}"), app.colours.style(tint))
    } else if let Some(dialog) = &app.dialog {
        Line::raw(format!(" {}", dialog.keys(&app.view)))
    } else {
        hints(app)
    };
    line.render(area, buffer);
}

fn hints(app: &App) -> Line<'static> {
    const KEYS: [(&str, &str); 9] = [
        ("l", "load"),
        ("u", "unload"),
        ("p", "plan"),
        ("w", "why"),
        ("L", "log"),
        ("/", "filter"),
        ("s", "sort"),
        ("?", "help"),
        ("q", "quit"),
    ];
    let key = if app.colours.0 {
        Style::new().fg(Color::Cyan)
    } else {
        Style::new().add_modifier(Modifier::BOLD)
    };
    let spans = KEYS.into_iter().flat_map(|(letter, what)| {
        [
            Span::styled(format!(" {letter} "), key),
            Span::raw(format!("{what} ")),
        ]
    });
    Line::from(spans.collect::<Vec<_>>())
}

fn draw_pane(app: &mut App, pane: Pane, clock: Clock, area: Rect, buffer: &mut Buffer) {
    let has_focus = app.pane == pane && app.dialog.is_none();
    let rows = app.rows(pane, clock);
    let colours = app.colours;
    let block = Block::bordered()
        .border_style(if has_focus {
            colours.focus()
        } else {
            colours.faint()
        })
        .title(title(app, pane, rows.len()));
    let inner = block.inner(area);
    block.render(area, buffer);
    if inner.height == 0 || inner.width < 4 {
        return;
    }
    let marked = app.marked(pane, &rows);
    let height = usize::from(inner.height.saturating_sub(1));
    let first = scrolled(app.firsts[pane as usize], marked, rows.len(), height);
    app.firsts[pane as usize] = first;
    app.areas.push((pane, inner, first));
    if app.pane == pane {
        app.page = height.max(1);
    }
    let columns = pane.columns();
    let sorted = (pane == Pane::Models).then_some((app.sort.column, app.sort.is_down));
    let [titles, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inner);
    if rows.is_empty() {
        let text = Span::styled(empty(app, pane), colours.faint());
        buffer.set_span(titles.x, titles.y, &text, titles.width);
        return;
    }
    header(columns, sorted, titles, buffer, colours);
    for (nth, entry) in rows.iter().enumerate().skip(first).take(height) {
        let y = body.y + u16::try_from(nth - first).unwrap_or(0);
        let line = Rect {
            y,
            height: 1,
            ..body
        };
        row(
            columns,
            entry,
            has_focus && nth == marked,
            line,
            buffer,
            colours,
        );
        if pane == Pane::Devices {
            bar(app, entry, line, buffer);
        }
    }
}

fn title(app: &App, pane: Pane, shown: usize) -> Line<'static> {
    let all = match pane {
        Pane::Devices => app.view.devices.len(),
        Pane::Models => app.view.models.len(),
        Pane::Queue => app.view.queue.waiting.len() + app.view.queue.orders.len(),
        Pane::Events => app.view.events.len(),
    };
    let number = pane as usize + 1;
    let mut text = format!(" {number} {} ", pane.title());
    match (pane, app.filter.is_empty()) {
        (Pane::Devices, _) | (_, true) => text.push_str(&format!("{all} ")),
        (_, false) => text.push_str(&format!(
            "{shown} of {all} with \"{}\" ",
            clean_line(&app.filter)
        )),
    }
    if pane == Pane::Models {
        text.push_str(&format!("by {} ", app.sort.title()));
    }
    Line::raw(text)
}

fn empty(app: &App, pane: Pane) -> &'static str {
    match pane {
        Pane::Devices => "The pool has no device.",
        _ if !app.filter.is_empty() => "No match. Esc clears the filter.",
        Pane::Models => "The catalogue is empty.",
        Pane::Queue => "No requests are waiting.",
        Pane::Events => "No events.",
    }
}

/// Draws the bar of a device over its column, with models' names where they fit.
fn bar(app: &App, row: &Row, line: Rect, buffer: &mut Buffer) {
    let found = places(Pane::Devices.columns(), line.width);
    let place = found.into_iter().find(|(nth, _, _)| *nth == BAR);
    let device = app
        .view
        .devices
        .iter()
        .find(|device| device.device == row.id);
    let (Some((_, left, width)), Some(device)) = (place, device) else {
        return;
    };
    let end = line.x + left + width;
    let mut x = line.x + left;
    for run in runs(device, usize::from(width), app.colours.0) {
        let cells = u16::try_from(run.cells)
            .unwrap_or(width)
            .min(end.saturating_sub(x));
        let text = bar_text(&run, usize::from(cells));
        let style = app.colours.style(run.tint);
        // The name has the colour of the background, on the model's colour.
        let style = if app.colours.0 && !run.model.is_empty() {
            style.add_modifier(Modifier::REVERSED)
        } else {
            style
        };
        buffer.set_stringn(x, line.y, &text, usize::from(cells), style);
        x += cells;
    }
}

fn bar_text(run: &Run, cells: usize) -> String {
    /// A shorter part of a name is useless.
    const NAME_MIN: usize = 6;
    let is_block = run.glyph == '█';
    let fill = if is_block { ' ' } else { run.glyph };
    let name = if run.model.is_empty() || cells < NAME_MIN {
        String::new()
    } else {
        format!(" {} ", fitted(&run.model, cells - 2))
    };
    let rest = cells.saturating_sub(crate::style::width(&name));
    name + &fill.to_string().repeat(rest)
}

fn draw_dialog(app: &mut App, clock: Clock, area: Rect, buffer: &mut Buffer) {
    const WIDTH_MAX: u16 = 110;
    let Some(dialog) = &app.dialog else {
        return;
    };
    let width = if dialog.is_log() {
        area.width
    } else {
        area.width.min(WIDTH_MAX)
    };
    let inner_width = usize::from(width.saturating_sub(4));
    let lines = dialog.lines(&app.view, inner_width, clock);
    let wanted = u16::try_from(lines.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let height = if dialog.is_log() {
        area.height
    } else {
        wanted.clamp(5, area.height.max(5)).min(area.height)
    };
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(place, buffer);
    let title = format!(" {} ", fitted(&dialog.title(), inner_width));
    let block = Block::bordered()
        .border_style(app.colours.focus())
        .title(title);
    let inner = block.inner(place);
    block.render(place, buffer);
    let rows = usize::from(inner.height);
    let scroll_max = lines.len().saturating_sub(rows);
    let scroll = dialog.scroll.min(scroll_max);
    let first = if dialog.is_log() {
        scroll_max - scroll
    } else {
        scroll
    };
    for (nth, line) in lines.iter().skip(first).take(rows).enumerate() {
        let y = inner.y + u16::try_from(nth).unwrap_or(0);
        let width = usize::from(inner.width.saturating_sub(1));
        buffer.set_stringn(inner.x + 1, y, line, width, Style::new());
    }
    (app.scroll_max, app.page) = (scroll_max, rows.max(1));
    if let Some(dialog) = &mut app.dialog {
        dialog.scroll = scroll;
    }
}
