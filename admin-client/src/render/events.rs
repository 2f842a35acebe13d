//! Events, one line each where the terminal is wide enough, and engine output. Pure.

use crate::render::fold::{fitted, name, wrapped};
use crate::render::quantity::{Clock, bytes_or_dash, label, milliseconds};
use crate::responses::{EventView, LogLine};
use crate::style::{Style, Tint, clean, clean_line, width};

/// Columns of a terminal that leave room for dates.
const DATED_FROM: usize = 60;
/// Spaces before the second line of an event.
const INDENT: usize = 4;
const REASON_LINES_MAX: usize = 4;

/// `2026-11-21 12:00:00  evicted  org/m r3  why  (3.2 s; gpu0 1.0 GiB → 0 B)`, without a line end. If that is too wide for the
/// terminal, the reason and the details follow on indented lines.
pub fn event(event: &EventView, clock: Clock, style: Style) -> String {
    let mut subject: Vec<String> = Vec::new();
    subject.extend(event.model.as_deref().map(clean_line));
    subject.extend(event.replica.as_deref().map(clean_line));
    subject.extend(
        event
            .order
            .as_deref()
            .map(|order| format!("[{}]", clean(order))),
    );
    let mut details = Vec::new();
    // The argument for `why`.
    let id = event.id.as_ref().filter(|id| !id.is_null());
    details.extend(id.map(|id| format!("event {}", clean_line(&label(id)))));
    details.extend(event.took_ms.map(milliseconds));
    for change in event.memory.iter().flatten() {
        details.push(format!(
            "{} {} → {}",
            clean_line(&change.device),
            bytes_or_dash(change.before_bytes),
            bytes_or_dash(change.after_bytes)
        ));
    }
    let narrow = style.limit().is_some_and(|limit| limit < DATED_FROM);
    let at = event.at.as_deref().map_or_else(String::new, |at| {
        if narrow {
            clock.time_of_day(at)
        } else {
            clock.stamp(at)
        }
    });
    let kind = if narrow {
        name(&event.kind, style)
    } else {
        format!("{:<12}", name(&event.kind, style))
    };
    let reason = event.reason.as_deref().unwrap_or_default();
    let reason = clean(reason).replace('\n', " | ").replace('\t', " ");
    let details = if details.is_empty() {
        String::new()
    } else {
        format!("({})", details.join("; "))
    };
    let subject = subject.join(" ");
    let plain = joined(&[&at, &kind, &subject, &reason, &details]);
    let painted = |subject: &str| {
        let at = style.paint(Tint::Faint, &at);
        let kind = style.paint(kind_tint(&event.kind), &kind);
        (at, kind, subject.to_owned())
    };
    match style.limit().filter(|limit| width(&plain) > *limit) {
        None => {
            let (at, kind, subject) = painted(&subject);
            let details = style.paint(Tint::Faint, &details);
            joined(&[&at, &kind, &subject, &reason, &details])
        }
        Some(limit) => {
            let before = width(&joined(&[&at, &kind, "x"])) - 1;
            let (at, kind, subject) = painted(&fitted(&subject, limit.saturating_sub(before)));
            let mut lines = vec![joined(&[&at, &kind, &subject])];
            let room = Some(limit - INDENT);
            let more = |text: &str, tint: Option<Tint>| -> Vec<String> {
                let lines = wrapped(text, room, REASON_LINES_MAX).into_iter();
                let shown = |line: String| match tint {
                    Some(tint) => style.paint(tint, &line),
                    None => line,
                };
                lines
                    .map(|line| format!("{:INDENT$}{}", "", shown(line)))
                    .collect()
            };
            lines.extend(more(&reason, None));
            lines.extend(more(&details, Some(Tint::Faint)));
            lines.join("\n")
        }
    }
}

/// Joins the non-empty parts, two spaces apart.
fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("  ").trim_end().to_owned()
}

pub fn kind_tint(kind: &str) -> Tint {
    let has = |word: &str| kind.contains(word);
    if has("fail") || has("refus") || has("crash") || has("quarantin") {
        Tint::Bad
    } else if has("evict") || has("unload") || has("drain") || has("stop") {
        Tint::Warning
    } else if has("ready") || has("load") {
        Tint::Good
    } else {
        Tint::Strong
    }
}

/// `r3 | text`, without a line end. The engine's standard error is faint.
pub fn log_line(line: &LogLine, style: Style) -> String {
    let text = clean(&line.line);
    let text = match line.stream.as_deref() {
        Some("stderr") => style.paint(Tint::Faint, &text),
        _ => text,
    };
    format!("{} | {text}", clean(&line.replica))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::quantity::tests::noon;
    use serde_json::json;

    #[test]
    fn an_event_is_one_line_with_its_reason_and_cost() {
        let view: EventView = serde_json::from_value(json!({
            "id": 7, "at": "2026-11-21T11:59:00Z", "kind": "evicted", "model": "org/m", "replica": "r3", "order": "o5",
            "reason": "room for big\n(priority 1)", "priority": 0, "placement": null, "candidates": [],
            "memory": [{"device": "gpu0", "before_bytes": 1u64 << 30, "after_bytes": 0}], "took_ms": 3200}))
        .expect("an event");
        assert_eq!(
            event(&view, noon(), Style::PLAIN),
            "2026-11-21 11:59:00  evicted       org/m r3 [o5]  room for big | (priority 1)  (event 7; 3.2 s; gpu0 1.0 GiB → 0 B)"
        );
    }

    #[test]
    fn on_a_narrow_terminal_the_reason_is_below_and_no_line_is_wider() {
        let view: EventView = serde_json::from_value(json!({
            "at": "2026-11-21T11:59:00Z", "kind": "evict", "model": "org/m", "replica": "r3",
            "reason": "preempted by org/large: priority 1 over 0 (P2); 0 in flight", "took_ms": 3200,
            "memory": [{"device": "gpu0", "before_bytes": 1u64 << 30, "after_bytes": 0}]}))
        .expect("an event");
        assert_eq!(
            event(&view, noon(), Style::terminal(80)),
            "2026-11-21 11:59:00  evict         org/m r3\n\
             \x20   preempted by org/large: priority 1 over 0 (P2); 0 in flight\n\
             \x20   (3.2 s; gpu0 1.0 GiB → 0 B)"
        );
        assert_eq!(
            event(&view, noon(), Style::terminal(40)),
            "11:59:00  evict  org/m r3\n\
             \x20   preempted by org/large: priority 1\n\
             \x20   over 0 (P2); 0 in flight\n\
             \x20   (3.2 s; gpu0 1.0 GiB → 0 B)"
        );
        assert_eq!(
            event(&view, noon(), Style::terminal(160)).lines().count(),
            1
        );
    }

    #[test]
    fn an_event_of_an_unknown_kind_is_still_printed() {
        let view: EventView = serde_json::from_value(json!({"kind": "novel"})).expect("an event");
        assert_eq!(event(&view, noon(), Style::PLAIN), "novel");
    }

    #[test]
    fn an_engines_colours_are_removed_from_its_lines() {
        let line: LogLine = serde_json::from_value(
            json!({"replica": "r1", "stream": "stderr", "line": "\u{1b}[32mINFO\u{1b}[0m up"}),
        )
        .expect("a line");
        assert_eq!(log_line(&line, Style::PLAIN), "r1 | INFO up");
    }
}
