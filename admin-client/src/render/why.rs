//! The decision that `admin-client why` prints: who ordered it, the candidates, the choice, and the memory before and after. Pure.

use crate::decisions::DecisionReport;
use crate::render::fold::{painted, wrapped};
use crate::render::quantity::{Clock, bytes, seconds};
use crate::render::table::{Cell, Column, column, facts, table};
use crate::style::{Style, Tint, clean_line};
use terminal::row;

const COLUMNS: [Column; 8] = [
    column("DECIDED"),
    column("MODEL").shortens_to(14),
    column("REPLICA").leaves(2),
    column("DEVICE").leaves(3),
    column("PRIORITY").right(),
    column("IDLE").right(),
    column("RELOAD").right(),
    column("MEMORY").right(),
];

pub fn why(why: &DecisionReport, clock: Clock, style: Style) -> String {
    let model = why.model.as_deref().unwrap_or("the pool");
    let what = clean_line(&why.what);
    let heading = format!("{what} {} (event {})", clean_line(model), why.event);
    let mut text = painted(&heading, &[(Tint::Warning, &what)], style);
    let decided = why.decided_by.map(|event| format!("event {event}"));
    let member = why.virtual_choice.as_ref().map(|choice| {
        format!(
            "{} ({}) takes {} now: {}",
            choice.name, choice.kind, choice.member, choice.reason
        )
    });
    text.push_str(&facts(
        &[
            ("member", member),
            ("when", why.at.as_deref().map(|at| clock.stamp(at))),
            ("why", why.reason.clone()),
            ("asked by", why.asked_by.clone()),
            ("group", why.group.clone()),
            ("decided with", decided),
        ],
        style,
    ));
    if !why.candidates.is_empty() {
        text.push_str("\nCompared\n");
        let rows = why.candidates.iter().map(|candidate| {
            let mark = if candidate.chosen {
                Cell::tinted("left", Some(Tint::Bad))
            } else {
                Cell::from("stayed")
            };
            row![
                mark,
                &candidate.model,
                &candidate.replica,
                &candidate.device,
                candidate.priority,
                seconds(candidate.idle_seconds),
                seconds(candidate.reload_seconds),
                bytes(candidate.memory_bytes),
            ]
        });
        text.push_str(&table(&COLUMNS, rows, "Nothing.", style));
        text.push_str("\nIn words\n");
        for candidate in &why.candidates {
            let line = format!(
                "{} ({}): {}",
                candidate.model, candidate.replica, candidate.words
            );
            text.push_str(&item(&line, style));
        }
    }
    if !why.words.is_empty() {
        text.push_str("\nThe decision\n");
        why.words
            .iter()
            .for_each(|line| text.push_str(&item(&clock.stamps_in(line), style)));
    }
    if !why.memory.is_empty() {
        text.push_str("\nMemory in use or reserved\n");
        for memory in &why.memory {
            let line = format!(
                "{}: {} → {}",
                memory.device,
                bytes(memory.before_bytes),
                bytes(memory.after_bytes)
            );
            text.push_str(&item(&line, style));
        }
    }
    text
}

fn item(line: &str, style: Style) -> String {
    const LINES_MAX: usize = 6;
    let room = style.limit().map(|limit| limit.saturating_sub(4));
    let lines = wrapped(&clean_line(line), room, LINES_MAX);
    format!("  {}\n", lines.join("\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::quantity::tests::noon;
    use serde_json::json;

    #[test]
    fn a_decision_lists_evicted_and_kept_replicas_with_reasons() {
        let view: DecisionReport = serde_json::from_value(json!({
            "event": 118, "at": "2026-11-21T11:59:00Z", "model": "org/m", "what": "evict",
            "reason": "preempted by org/large: priority 1 over 0 (P2); 0 in flight", "asked_by": "ann", "group": "physics/lab", "decided_by": null,
            "candidates": [
                {"replica": "r1", "model": "org/m", "device": "gpu0", "priority": 0, "idle_seconds": 90.0, "reload_seconds": 20.0,
                    "memory_bytes": 4_u64 << 30, "chosen": true, "words": "leaves: priority 0"},
                {"replica": "r2", "model": "org/hot", "device": "gpu0", "priority": 2, "idle_seconds": 0.0, "reload_seconds": 9.0,
                    "memory_bytes": 1_u64 << 30, "chosen": false, "words": "stays, always-hot (P4): priority 2"}],
            "memory": [{"device": "gpu0", "before_bytes": 1_u64 << 30, "after_bytes": 0}],
            "words": ["org/large, priority 1, needs 4.0 GiB on 1 device; the least recently used leaves first since 2026-11-21T11:00:00.000Z: that"]}))
        .expect("a response");
        let text = why(&view, noon(), Style::PLAIN);
        for part in [
            "evict org/m (event 118)",
            "asked by",
            "physics/lab",
            "left     org/m",
            "stayed   org/hot",
            "org/hot (r2): stays, always-hot (P4)",
            "gpu0: 1.0 GiB → 0 B",
            "needs 4.0 GiB",
            "leaves first since 2026-11-21 11:00:00: that",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        for width in [40, 80] {
            let text = why(&view, noon(), Style::terminal(width));
            for line in text.lines() {
                assert!(crate::style::width(line) <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn an_empty_response_still_produces_text() {
        let view: DecisionReport = serde_json::from_value(json!({})).expect("a response");
        assert!(why(&view, noon(), Style::PLAIN).contains("the pool"));
    }
}
