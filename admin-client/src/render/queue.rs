//! The waiting requests and the orders in progress as text. Pure.

use crate::render::quantity::{label, milliseconds};
use crate::render::table::{Column, column, table};
use crate::responses::{QueueView, Waiter};
use crate::style::Style;
use terminal::row;

const WAITING: [Column; 7] = [
    column("TICKET").leaves(2),
    column("MODEL").shortens_to(12),
    column("KEY").shortens_to(8).leaves(1),
    column("POSITION").leaves(4),
    column("WAITED"),
    column("EXPECTED").leaves(5),
    column("STAGE").shortens_to(10).leaves(3),
];

const ORDERS: [Column; 4] = [
    column("ORDER"),
    column("WHAT"),
    column("MODEL").shortens_to(8),
    column("SINCE"),
];

/// The expected time until the request gets its seat, or its range.
pub fn expected(waiter: &Waiter) -> Option<String> {
    match (waiter.expected_ms_min, waiter.expected_ms_max) {
        (Some(least), Some(most)) => {
            Some(format!("{} to {}", milliseconds(least), milliseconds(most)))
        }
        _ => waiter.expected_ms.map(milliseconds),
    }
}

/// The key after its groups, as in `physics/lab/ann`.
fn key_of(waiter: &Waiter) -> Option<String> {
    let key = waiter.key.clone()?;
    Some(match &waiter.group {
        Some(group) => format!("{group}/{key}"),
        None => key,
    })
}

/// The waiting requests, then the orders if there are any.
pub fn queue(view: &QueueView, style: Style) -> String {
    let waiting = view.waiting.iter().map(|waiter| {
        row![
            label(&waiter.ticket),
            &waiter.model,
            key_of(waiter),
            waiter.position,
            waiter.waited_ms.map(milliseconds),
            expected(waiter),
            waiter.stage.as_deref(),
        ]
    });
    let orders = view.orders.iter().map(|order| {
        row![
            &order.order,
            &order.what,
            order.model.as_deref(),
            order.since_ms.map(milliseconds),
        ]
    });
    let mut out = table(&WAITING, waiting, "No requests are waiting.", style);
    if !view.orders.is_empty() {
        out.push('\n');
        out.push_str(&table(&ORDERS, orders, "", style));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_uncertain_wait_is_shown_as_a_range_and_a_key_after_its_groups() {
        let view: QueueView = serde_json::from_value(
            json!({"waiting": [{"ticket": "t7", "model": "m", "key": "ann", "group": "physics/lab", "expected_ms": 80_000,
            "expected_ms_min": 40_000, "expected_ms_max": 160_000}]}),
        )
        .expect("a queue");
        let shown = queue(&view, Style::PLAIN);
        assert!(shown.contains("40.0 s to 2 min 40 s"), "{shown}");
        assert!(shown.contains(" physics/lab/ann "), "{shown}");
    }

    #[test]
    fn waiting_requests_and_orders_are_shown_in_separate_tables() {
        let view: QueueView = serde_json::from_value(json!({
            "waiting": [{"ticket": "t7", "model": "m", "key": "anonymous", "position": 1, "waited_ms": 1500,
                "expected_ms": null, "stage": "loading"}],
            "orders": [{"order": "o2", "what": "load", "model": "m", "since_ms": 61000}]}))
        .expect("a queue");
        assert_eq!(
            queue(&view, Style::PLAIN),
            "TICKET  MODEL  KEY        POSITION  WAITED  EXPECTED  STAGE\n\
             t7      m      anonymous  1         1.5 s   -         loading\n\
             \n\
             ORDER  WHAT  MODEL  SINCE\n\
             o2     load  m      1 min 1 s\n"
        );
    }

    #[test]
    fn an_empty_queue_is_reported_in_a_sentence() {
        assert_eq!(
            queue(&QueueView::default(), Style::PLAIN),
            "No requests are waiting.\n"
        );
    }
}
