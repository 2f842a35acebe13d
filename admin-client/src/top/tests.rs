//! Frames of `top` as a terminal would get them, and what its keys do.

mod dialogs;

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use super::app::{App, Link, Request};
use super::colours::Colours;
use super::draw::draw;
use super::feed::News;
use super::jobs::{Job, Outcome};
use super::rows::Pane;
use super::view::View;
use crate::render::quantity::tests::noon;

const GIB: u64 = 1 << 30;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a response")
}

fn replica(name: &str, state: &str, gib: u64, in_flight: u64) -> Value {
    json!({"replica": name, "state": state, "in_flight": in_flight, "percent": 40,
        "devices": [{"device": "gpu0", "bytes": gib * GIB}], "expires_at": "2026-11-21T12:08:20Z"})
}

fn pool() -> Value {
    json!({
        "models": [
            {"model": "org/large", "state": "ready", "priority": 2, "always_hot": true, "replicas": [replica("r1", "ready", 40, 3)]},
            {"model": "org/small", "state": "loading", "priority": 0, "waiting": 4, "replicas": [replica("r2", "launching", 20, 0)]},
            {"model": "tiny", "state": "cold", "priority": 1, "last_used_at": "2026-11-21T11:00:00Z"}],
        "devices": [{"device": "gpu0", "node": "n0", "total_bytes": 100 * GIB, "reserved_bytes": 60 * GIB, "free_bytes": 40 * GIB,
            "utilisation_percent": 37, "temperature_celsius": 61,
            "owners": [{"replica": "r1", "model": "org/large", "bytes": 40 * GIB, "state": "ready"},
                {"replica": "r2", "model": "org/small", "bytes": 20 * GIB, "state": "launching"}]}],
        "queue": {"waiting": [{"ticket": "t1", "model": "org/small", "key": "ann", "position": 1, "waited_ms": 1500,
            "expected_ms": 9000, "stage": "loading"}], "orders": [{"order": "o5", "what": "load", "model": "tiny", "since_ms": 2000}]},
        "evening": {"is_evening": false, "next_cleanup_at": "2026-11-21T21:00:00Z"}})
}

fn app_of(view: Value, colours: bool) -> App {
    let mut app = App::new(read(view), "http://127.0.0.1:8080/llm", Colours(colours));
    let events = json!([
        {"id": 1, "at": "2026-11-21T11:58:00Z", "kind": "load", "model": "org/large", "reason": "always-hot (P4)"},
        {"id": 2, "at": "2026-11-21T11:59:00Z", "kind": "evict", "model": "tiny", "reason": "preempted by org/small"}]);
    app.view.add_events(read(events));
    app
}

fn app() -> App {
    app_of(pool(), false)
}

fn terminal_of(app: &mut App, columns: u16, rows: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    let drawn = terminal.draw(|frame| {
        let area = frame.area();
        draw(app, noon(), area, frame.buffer_mut());
    });
    drawn.expect("a frame");
    terminal
}

fn frame(app: &mut App, columns: u16, rows: u16) -> String {
    super::text(terminal_of(app, columns, rows).backend().buffer())
}

fn press(app: &mut App, code: KeyCode) -> Option<Request> {
    let key = KeyEvent::new(code, KeyModifiers::NONE);
    app.input(&Event::Key(key), noon())
}

fn letters(app: &mut App, text: &str) -> Option<Request> {
    let mut last = None;
    for letter in text.chars() {
        last = press(app, KeyCode::Char(letter));
    }
    last
}

fn mouse(app: &mut App, kind: MouseEventKind, column: u16, row: u16) {
    let event = MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    };
    app.input(&Event::Mouse(event), noon());
}

/// The position of a text in the frame.
fn place(frame: &str, text: &str) -> (u16, u16) {
    let found = frame.lines().enumerate().find_map(|(y, line)| {
        let x = line.find(text)?;
        Some((line[..x].chars().count(), y))
    });
    let (x, y) = found.unwrap_or_else(|| panic!("no {text:?} in\n{frame}"));
    (
        u16::try_from(x).expect("small"),
        u16::try_from(y).expect("small"),
    )
}

fn has(frame: &str, parts: &[&str]) {
    for part in parts {
        assert!(frame.contains(part), "no {part:?} in\n{frame}");
    }
}

#[test]
fn a_window_of_80_by_24_shows_devices_models_queue_and_events() {
    let frame = frame(&mut app(), 80, 24);
    assert_eq!(frame.lines().count(), 24);
    has(
        &frame,
        &[
            "● live  12:00:00  1 of 3 ready  1 waiting  cleanup 21:00",
            "1 Devices 1",
            "60.0 GiB / 100.0 GiB",
            "org/large",
            "loading 40 %",
            "2 Models 3 by model",
            "3 Queue 2",
            "order o5",
            "4 Events 2",
            "preempted by org/small",
            " l load",
            "q quit",
        ],
    );
}

#[test]
fn an_empty_queue_takes_one_line_and_leaves_its_space_to_the_other_panes() {
    let mut empty = pool();
    empty["queue"] = json!({"waiting": [], "orders": []});
    let shown = frame(&mut app_of(empty, false), 80, 24);
    let (_, queue) = place(&shown, "3 Queue 0");
    assert_eq!(place(&shown, "No requests are waiting.").1, queue + 1);
    assert_eq!(place(&shown, "4 Events").1, queue + 3);
}

#[test]
fn a_wide_window_shows_events_next_to_models_with_all_columns() {
    let frame = frame(&mut app(), 200, 50);
    has(
        &frame,
        &[
            "LAST USED",
            "REPL",
            "1 h ago",
            "LEAVES IN",
            "8 min 20 s",
            "37 %",
            "61°C",
        ],
    );
    assert_eq!(place(&frame, "1 Devices").1, place(&frame, "3 Queue").1);
}

#[test]
fn no_window_is_too_small_to_draw_in() {
    for columns in (0..30).chain([40, 79, 149, 150, 300]) {
        for rows in (0..12).chain([24, 60]) {
            let mut app = app();
            frame(&mut app, columns, rows);
            press(&mut app, KeyCode::Char('?'));
            frame(&mut app, columns, rows);
        }
    }
}

#[test]
fn only_the_sixteen_colours_are_used_and_without_colours_none() {
    for colours in [true, false] {
        let mut app = app_of(pool(), colours);
        let terminal = terminal_of(&mut app, 120, 30);
        let cells = terminal.backend().buffer().content();
        let is_named = |colour: Color| !matches!(colour, Color::Rgb(..) | Color::Indexed(_));
        assert!(
            cells
                .iter()
                .all(|cell| is_named(cell.fg) && is_named(cell.bg))
        );
        let is_coloured = cells
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        assert_eq!(is_coloured, colours);
    }
}

#[test]
fn the_filter_shows_only_rows_with_its_text_and_escape_ends_it() {
    let mut app = app();
    letters(&mut app, "/SMALL");
    has(
        &frame(&mut app, 80, 24),
        &["1 of 3 with \"SMALL\"", " /SMALL"],
    );
    press(&mut app, KeyCode::Enter);
    // Letters are keys again, for the row that is left.
    let asked = letters(&mut app, "p");
    let model = "org/small".to_owned();
    assert_eq!(asked, Some(Request::Start(Job::Plan { model }, 1)));
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Esc);
    has(&frame(&mut app, 80, 24), &["2 Models 3 by"]);
}

#[test]
fn the_selection_follows_its_model_when_the_list_changes() {
    let mut app = app();
    letters(&mut app, "j");
    frame(&mut app, 80, 24);
    let change = json!({"models": {"changed": [{"model": "a-new-one"}], "gone": ["org/large"]}});
    app.take(News::Change(Box::new(read(change))), noon().now);
    let model = "org/small".to_owned();
    assert_eq!(
        letters(&mut app, "p"),
        Some(Request::Start(Job::Plan { model }, 1))
    );
}

#[test]
fn a_click_marks_a_row_and_a_click_on_a_title_sorts() {
    let mut app = app();
    let shown = frame(&mut app, 80, 24);
    let left = MouseEventKind::Down(MouseButton::Left);
    let (x, y) = place(&shown, "PRI");
    mouse(&mut app, left, x, y);
    has(&frame(&mut app, 80, 24), &["by pri", "PRI▼"]);
    mouse(&mut app, left, x, y);
    let shown = frame(&mut app, 80, 24);
    has(&shown, &["PRI▲"]);
    let (x, y) = place(&shown, "cold");
    mouse(&mut app, left, x, y);
    let model = "tiny".to_owned();
    assert_eq!(
        letters(&mut app, "p"),
        Some(Request::Start(Job::Plan { model }, 1))
    );
    press(&mut app, KeyCode::Esc);
    let (x, y) = place(&shown, "4 Events");
    mouse(&mut app, MouseEventKind::ScrollDown, x, y + 2);
    assert_eq!(app.pane, Pane::Events);
}

#[test]
fn a_lost_connection_and_its_end_are_shown_with_the_time() {
    let mut app = app();
    let before = noon().now - chrono::TimeDelta::seconds(12);
    app.take(News::Lost("connection refused".to_owned()), before);
    app.take(
        News::Lost("connection refused (111)".to_owned()),
        noon().now,
    );
    has(
        &frame(&mut app, 80, 24),
        &[
            "no connection for 12.0 s, trying again: connection refused (111)",
            "org/large",
        ],
    );
    app.take(News::View(Box::new(read::<View>(pool()))), noon().now);
    assert!(matches!(app.link, Link::Live));
    has(
        &frame(&mut app, 80, 24),
        &[
            "● live",
            "The connection is back.",
            "preempted by org/small",
        ],
    );
}

#[test]
fn nothing_in_a_name_or_a_log_controls_the_terminal() {
    for text in [
        "a\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\r\n\tb\u{202e}c\u{2028}END".to_owned(),
        "x".repeat(5_000),
        "模型".repeat(2_000),
        format!("e{}", "\u{301}".repeat(5_000)),
    ] {
        let view = json!({
            "models": [{"model": text, "state": text, "replicas": [replica("r1", &text, 1, 0)], "last_used_at": text}],
            "devices": [{"device": text, "total_bytes": GIB, "stale": text, "owners": [{"model": text, "bytes": GIB}]}],
            "queue": {"waiting": [{"ticket": "t1", "model": text, "key": text, "stage": text}], "orders": [{"order": text, "what": text}]},
            "store": {"trouble": text}});
        let mut app = app_of(view, true);
        app.view.add_events(read(
            json!([{"id": 9, "kind": text, "model": text, "reason": text}]),
        ));
        letters(&mut app, "L");
        app.finish(
            1,
            Outcome::Log(read(json!({"replica": text, "line": text}))),
            noon().now,
        );
        let mut shown = vec![frame(&mut app, 80, 24)];
        for keys in ["2p", "2u", "4w", "1", "4"] {
            press(&mut app, KeyCode::Esc);
            letters(&mut app, keys);
            press(&mut app, KeyCode::Enter);
            shown.push(frame(&mut app, 80, 24));
        }
        app.finish(9, Outcome::Failed(text.clone()), noon().now);
        app.take(News::Lost(text.clone()), noon().now);
        shown.push(frame(&mut app, 200, 50));
        for frame in shown {
            let harmful =
                |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{2028}'..='\u{202e}');
            assert!(!frame.contains(harmful), "{frame:?}");
        }
    }
}

#[test]
fn the_marked_row_is_shown_reversed_in_the_pane_with_the_keys() {
    let mut app = app();
    letters(&mut app, "j");
    let terminal = terminal_of(&mut app, 80, 24);
    let buffer = terminal.backend().buffer();
    let shown = super::text(buffer);
    let (x, y) = place(&shown, "loading 40 %");
    assert!(buffer[(x, y)].modifier.contains(Modifier::REVERSED));
    assert!(!buffer[(x, y + 1)].modifier.contains(Modifier::REVERSED));
}
