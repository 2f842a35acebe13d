//! Dialogs of `top`: orders with their plans, decisions, logs, and keys while a dialog is open.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::super::app::Request;
use super::super::dialog::Kind;
use super::super::feed::News;
use super::super::jobs::{Job, Outcome};
use super::{GIB, app, frame, has, letters, press, read};
use crate::render::quantity::tests::noon;

#[test]
fn a_load_is_ordered_only_with_the_plan_that_was_shown() {
    let mut app = app();
    letters(&mut app, "jj");
    let asked = letters(&mut app, "l");
    let model = "tiny".to_owned();
    assert_eq!(asked, Some(Request::Start(Job::Plan { model }, 1)));
    assert_eq!(
        press(&mut app, KeyCode::Enter),
        None,
        "there is no plan yet"
    );
    let plan = |victim: &str| -> Value {
        json!({"model": "tiny", "feasible": true, "placement": [{"device": "gpu0", "bytes": GIB}],
            "victims": [{"replica": victim, "model": "org/small", "bytes": GIB, "reason": "P2"}]})
    };
    app.finish(1, Outcome::Plan(Box::new(read(plan("r2")))), noon().now);
    has(
        &frame(&mut app, 80, 24),
        &[
            "Load tiny?",
            "evict",
            "org/small",
            "Press Enter to load it.",
        ],
    );
    let Some(Request::Start(Job::Load { model, shown }, 1)) = press(&mut app, KeyCode::Enter)
    else {
        panic!("no order");
    };
    assert_eq!(
        (model.as_str(), press(&mut app, KeyCode::Enter)),
        ("tiny", None),
        "ordered once"
    );
    // It would evict another replica by now: nothing was ordered.
    app.finish(1, Outcome::Outdated(Box::new(read(plan("r9")))), noon().now);
    has(&frame(&mut app, 80, 24), &["The pool has changed", "r9"]);
    let again = press(&mut app, KeyCode::Enter);
    let Some(Request::Start(Job::Load { shown: newer, .. }, 1)) = again else {
        panic!("no order: {again:?}");
    };
    assert_ne!(newer, shown);
    app.finish(
        1,
        Outcome::Done("tiny is being loaded".to_owned()),
        noon().now,
    );
    assert!(app.dialog.is_none());
    has(&frame(&mut app, 80, 24), &["tiny is being loaded"]);
}

#[test]
fn a_plan_that_is_refused_cannot_be_confirmed() {
    let mut app = app();
    letters(&mut app, "l");
    let plan = json!({"model": "org/large", "feasible": false, "reason": "no room"});
    app.finish(1, Outcome::Plan(Box::new(read(plan))), noon().now);
    has(
        &frame(&mut app, 80, 24),
        &["cannot be loaded now", "no room"],
    );
    assert_eq!(press(&mut app, KeyCode::Enter), None);
    assert!(app.dialog.is_none());
}

#[test]
fn an_unload_dialog_shows_requests_in_flight_and_does_nothing_for_a_removed_model() {
    let mut app = app();
    letters(&mut app, "u");
    has(
        &frame(&mut app, 80, 24),
        &["Unload org/large?", "3 requests in flight may finish first"],
    );
    let model = "org/large".to_owned();
    assert_eq!(
        press(&mut app, KeyCode::Enter),
        Some(Request::Start(Job::Unload { model }, 1))
    );
    letters(&mut app, "u");
    app.take(
        News::Change(Box::new(read(json!({"models": {"gone": ["org/large"]}})))),
        noon().now,
    );
    has(&frame(&mut app, 80, 24), &["no longer in the catalogue"]);
    assert_eq!(press(&mut app, KeyCode::Enter), None);
}

#[test]
fn a_key_opens_the_decision_behind_an_event_or_a_models_last_decision() {
    let mut app = app();
    let of_model = letters(&mut app, "w");
    let model = "org/large".to_owned();
    assert_eq!(of_model, Some(Request::Start(Job::WhyModel { model }, 1)));
    press(&mut app, KeyCode::Esc);
    let of_event = letters(&mut app, "4w");
    let id = "2".to_owned();
    assert_eq!(of_event, Some(Request::Start(Job::WhyEvent { id }, 2)));
    let why =
        json!({"event": 2, "what": "evict", "model": "tiny", "words": ["org/small needs 20 GiB"]});
    // An answer to a dialog that is closed is left out.
    app.finish(
        1,
        Outcome::Why(Box::new(read(json!({"what": "stale"})))),
        noon().now,
    );
    app.finish(2, Outcome::Why(Box::new(read(why))), noon().now);
    let frame = frame(&mut app, 80, 24);
    has(&frame, &["evict tiny (event 2)", "org/small needs 20 GiB"]);
    assert!(!frame.contains("stale"));
}

#[test]
fn a_log_view_follows_new_lines_until_scrolled_and_reports_the_end() {
    let mut app = app();
    letters(&mut app, "L");
    let line = |n: usize| read(json!({"replica": "r1", "line": format!("line {n}")}));
    (0..100).for_each(|n| app.finish(1, Outcome::Log(line(n)), noon().now));
    has(&frame(&mut app, 80, 24), &["r1 | line 99"]);
    press(&mut app, KeyCode::PageUp);
    let shown = frame(&mut app, 80, 24);
    assert!(!shown.contains("line 99"), "{shown}");
    app.finish(1, Outcome::Log(line(100)), noon().now);
    assert_eq!(
        shown,
        frame(&mut app, 80, 24),
        "what is read stays in its place"
    );
    app.finish(1, Outcome::LogEnded, noon().now);
    press(&mut app, KeyCode::End);
    has(&frame(&mut app, 80, 24), &["line 100", "this log is over"]);
}

#[test]
fn a_row_without_a_model_explains_what_to_do() {
    let mut app = app();
    assert_eq!(letters(&mut app, "1l"), None);
    has(&frame(&mut app, 80, 24), &["press 2 for the models"]);
    press(&mut app, KeyCode::Enter);
    has(
        &frame(&mut app, 100, 30),
        &["Device gpu0", "r1 org/large", "free"],
    );
    assert!(matches!(
        app.dialog.as_ref().map(|dialog| &dialog.kind),
        Some(Kind::Device(_))
    ));
}

#[test]
fn control_c_and_q_exit_even_while_a_dialog_is_open() {
    let mut app = app();
    assert_eq!(letters(&mut app, "q"), Some(Request::Quit));
    letters(&mut app, "?");
    assert_eq!(letters(&mut app, "q"), None, "q closes the help first");
    letters(&mut app, "/");
    let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.input(&Event::Key(key), noon()), Some(Request::Quit));
}
