//! Nodes and their tokens as text. Pure.

use crate::render::fold::{indented, name};
use crate::render::quantity::{Clock, bytes};
use crate::render::table::{Column, Row, column, table};
use crate::responses::{DrainNodeResponse, NodeList, NodeShapeView, NodeTokenView, NodeUseView};
use crate::style::{Style, clean_line};
use terminal::row;

const NODES: [Column; 7] = [
    column("NODE"),
    column("STATE"),
    column("SINCE").leaves(1),
    column("ENDS").leaves(2),
    column("DEVICES").shortens_to(12),
    column("REPLICAS"),
    column("WHY").goes_below(),
];

const TOKENS: [Column; 5] = [
    column("TOKEN"),
    column("BEGINS"),
    column("STATE"),
    column("EXPIRES"),
    column("LAST USED").leaves(1),
];

const SIZES: [Column; 6] = [
    column("SIZE"),
    column("GPUS"),
    column("MEMORY").leaves(1),
    column("COST/H"),
    column("NODES"),
    column("NOT REQUESTED BECAUSE").goes_below(),
];

/// The nodes, followed by open requests, the sizes and the use of the cluster, and the valid tokens.
pub fn nodes(list: &NodeList, clock: Clock, style: Style) -> String {
    let stamp = |at: &Option<String>| at.as_deref().map(|at| clock.stamp(at));
    let rows = list.nodes.iter().map(|node| {
        row![
            &node.node,
            &node.state,
            stamp(&node.since),
            stamp(&node.ends_at),
            node.devices.join(", "),
            (!node.replicas.is_empty()).then(|| node.replicas.join(", ")),
            node.reason.as_deref().unwrap_or_default(),
        ]
    });
    let mut out = table(&NODES, rows, "No nodes.", style);
    for coming in &list.requested {
        let since = clock.stamp(&coming.since);
        let (shape, model) = (&coming.shape, &coming.model);
        let together = list.requested.iter();
        let together = together.filter(|other| coming.set.is_some() && other.set == coming.set);
        let line = match together.count() {
            0 => format!("one more node of size {shape} is requested for {model} since {since}"),
            count => format!(
                "one of {count} nodes of size {shape}, requested together for {model} since {since}"
            ),
        };
        let line = match coming.reason.as_str() {
            "" => line,
            reason => format!("{line}: {reason}"),
        };
        out.push_str(&lines(&line, style));
        if let Some(starts) = &coming.starts_at {
            let starts = format!("  the cluster expects it to start {}", clock.stamp(starts));
            out.push_str(&lines(&starts, style));
        }
    }
    if !list.shapes.is_empty() {
        out.push('\n');
        let rows = list.shapes.iter().map(|shape| size(shape, clock));
        out.push_str(&table(&SIZES, rows, "", style));
    }
    for used in &list.spent {
        out.push_str(&spent(used, style));
    }
    let is_open = |state: &str| ["valid", "not_yet_valid"].contains(&state);
    let valid = list.tokens.iter().filter(|token| is_open(&token.state));
    let row = |token: &NodeTokenView| {
        row![
            &token.id,
            format!("{}…", token.prefix),
            &token.state,
            clock.stamp(&token.expires_at),
            stamp(&token.used_at).unwrap_or_else(|| "never".to_owned()),
        ]
    };
    let rows: Vec<Row> = valid.map(row).collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(&TOKENS, rows, "", style));
    }
    out
}

fn size(shape: &NodeShapeView, clock: Clock) -> Row {
    let why = shape
        .unavailable
        .as_deref()
        .map(|why| match &shape.retry_at {
            Some(at) => format!("{why}; again {}", clock.stamp(at)),
            None => why.to_owned(),
        });
    row![
        &shape.shape,
        shape.gpus.to_string(),
        bytes(shape.bytes_per_gpu),
        shape.cost_per_hour.map(|cost| format!("{cost:.2}")),
        match shape.max_nodes {
            Some(most) => format!("{} of {most}", shape.held),
            None => shape.held.to_string(),
        },
        why.unwrap_or_default(),
    ]
}

/// A sentence, wrapped, with a bound for names and reasons of any length.
fn lines(text: &str, style: Style) -> String {
    const LINES_MAX: usize = 8;
    indented(&clean_line(text), 0, LINES_MAX, style)
}

/// One line, such as `this day: 3.5 of 8 GPU hours, cost 5.60`.
pub(super) fn spent(used: &NodeUseView, style: Style) -> String {
    let hours = match used.gpu_hours_max {
        Some(most) => format!("{} of {most}", used.gpu_hours),
        None => used.gpu_hours.to_string(),
    };
    let cost = match used.cost_max {
        Some(most) => format!("{:.2} of {most:.2}", used.cost),
        None => format!("{:.2}", used.cost),
    };
    let period = match used.period.as_str() {
        "batch_day" => "day for batches",
        period => period,
    };
    let line = format!("this {period}: {hours} GPU hours, cost {cost}");
    lines(&line, style)
}

/// The replicas that have left a draining node, and the replicas that have not.
pub fn drained(response: &DrainNodeResponse, style: Style) -> String {
    let node = name(&response.node, style);
    let left = match response.left.len() {
        0 => String::new(),
        _ => format!("; left: {}", response.left.join(", ")),
    };
    let draining = match response.draining.len() {
        0 => String::new(),
        _ => format!("; still there: {}", response.draining.join(", ")),
    };
    let drained = format!("{node} takes no new replicas{left}{draining}");
    let undrain = format!("`admin-client nodes undrain {node}` puts it back into service");
    lines(&drained, style) + &lines(&undrain, style)
}
