//! Devices: bars of memory by owner on a terminal, otherwise a table of numbers. Pure.
//!
//! The segments of a bar: each owner, memory that is reserved but not yet owned, memory of foreign
//! processes, memory of replicas beyond their reservation, memory that ended processes have not yet
//! released, headroom, and free memory.

use crate::render::cordon::why;
use crate::render::fold::{fitted, painted, sentence};
use crate::render::quantity::{Clock, bytes};
use crate::render::table::{Column, Row, column, table};
use crate::responses::{DeviceList, DeviceView};
use crate::state::LoadState;
use crate::style::{Style, Tint, clean, clean_line, width};
use terminal::row;

const COLUMNS: [Column; 12] = [
    column("DEVICE").shortens_to(10),
    column("NODE").leaves(1),
    column("NAME").shortens_to(10).leaves(2),
    column("TOTAL").right(),
    column("RESERVED").right().leaves(7),
    column("FOREIGN").right().leaves(6),
    column("SETTLING").right().leaves(3),
    column("HEADROOM").right().leaves(4),
    column("FREE").right(),
    column("USED").right().leaves(5),
    column("OWNERS").goes_below(),
    column("CORDON").goes_below(),
];

struct Segment {
    bytes: u64,
    glyph: char,
    tint: Tint,
    legend: String,
}

/// All devices: bars on a terminal, a table otherwise.
pub fn devices(list: &DeviceList, clock: Clock, style: Style) -> String {
    if list.devices.is_empty() {
        return sentence(
            "The pool has no device. Check its log, and the inventory provider in `admin-client config`.",
            style,
        );
    }
    if style.terminal {
        return list
            .devices
            .iter()
            .map(|view| device(view, clock, style))
            .collect();
    }
    numbers(list, clock, style)
}

pub fn numbers(list: &DeviceList, clock: Clock, style: Style) -> String {
    let rows = list.devices.iter().map(|device| row(device, clock));
    table(&COLUMNS, rows, "", style)
}

fn row(device: &DeviceView, clock: Clock) -> Row {
    let owners: Vec<String> = device
        .owners
        .iter()
        .map(|owner| format!("{} {} {}", owner.replica, owner.model, bytes(owner.bytes)))
        .collect();
    row![
        &device.device,
        device.node.as_deref(),
        device.name.as_deref(),
        bytes(device.total_bytes),
        device.reserved_bytes.map(bytes),
        device.foreign_bytes.map(bytes),
        device.settling_bytes.map(bytes),
        device.headroom_bytes.map(bytes),
        device.free_bytes.map(bytes),
        device.used_bytes.map(bytes),
        (!owners.is_empty()).then(|| owners.join(", ")),
        device.cordon.as_ref().map(|cordon| why(cordon, clock)),
    ]
}

/// Column at which the text of a bar's legend begins.
const LEGEND_START: usize = 18;

/// One device with its bar and the owners of its memory.
pub fn device(device: &DeviceView, clock: Clock, style: Style) -> String {
    let segments = segments(device, style.colour);
    let width = style.columns.saturating_sub(4).clamp(10, 72);
    let mut out = heading(device, style);
    if let Some(cordon) = &device.cordon {
        let text = format!("  cordoned: {}", why(cordon, clock));
        out.push_str(&painted(&text, &[(Tint::Warning, "cordoned")], style));
    }
    if let Some(why) = &device.stale {
        let at = device.read_at.as_deref().map(|at| clock.ago(at));
        let at = at.map_or_else(String::new, |ago| format!("read {ago}, "));
        let text = format!("  stale figures: {at}{}", clean(why));
        out.push_str(&painted(&text, &[(Tint::Bad, "stale figures")], style));
    }
    out.push_str("  ");
    for (segment, cells) in segments.iter().zip(cells(&segments, width)) {
        let text: String = std::iter::repeat_n(segment.glyph, cells).collect();
        out.push_str(&style.paint(segment.tint, &text));
    }
    out.push('\n');
    for segment in segments.iter().filter(|segment| segment.bytes > 0) {
        let glyph = style.paint(segment.tint, &segment.glyph.to_string());
        let legend = match style.limit() {
            Some(limit) => fitted(&segment.legend, limit.saturating_sub(LEGEND_START)),
            None => segment.legend.as_str().into(),
        };
        out.push_str(&format!(
            "    {glyph} {:>10}  {legend}\n",
            bytes(segment.bytes)
        ));
    }
    out
}

/// A segment of a bar: the memory of one owner, or memory without an owner.
#[derive(Debug)]
pub struct Run {
    pub glyph: char,
    pub cells: usize,
    pub tint: Tint,
    /// The model; empty for memory without an owner.
    pub model: String,
}

/// The bar alone, `columns` wide.
pub fn runs(device: &DeviceView, columns: usize, colour: bool) -> Vec<Run> {
    let segments = segments(device, colour);
    let counts = cells(&segments, columns);
    let model = |nth: usize| device.owners.get(nth).map(|owner| clean_line(&owner.model));
    let runs = segments.iter().zip(counts).enumerate();
    runs.map(|(nth, (segment, cells))| Run {
        glyph: segment.glyph,
        cells,
        tint: segment.tint,
        model: model(nth).unwrap_or_default(),
    })
    .collect()
}

fn heading(device: &DeviceView, style: Style) -> String {
    let mut parts = Vec::new();
    parts.extend(device.name.as_deref().map(clean_line));
    parts.extend(
        device
            .node
            .as_deref()
            .map(|node| format!("on {}", clean_line(node))),
    );
    parts.push(bytes(device.total_bytes));
    let shared = device.unified.then(|| "shared with the machine".to_owned());
    parts.extend(shared);
    parts.extend(device.mps.then(|| "CUDA MPS".to_owned()));
    parts.extend(
        device
            .used_bytes
            .map(|used| format!("{} measured in use", bytes(used))),
    );
    parts.extend(
        device
            .utilisation_percent
            .map(|percent| format!("{percent:.0} % busy")),
    );
    parts.extend(
        device
            .temperature_celsius
            .map(|celsius| format!("{celsius:.0} °C")),
    );
    let name = match style.limit() {
        Some(limit) => fitted(&clean_line(&device.device), limit / 2).into_owned(),
        None => clean_line(&device.device),
    };
    // Folded between the parts.
    let mut out = style.paint(Tint::Strong, &name);
    let mut used = width(&name);
    for (nth, part) in parts.iter().enumerate() {
        let mark = if nth == 0 { "  " } else { " · " };
        let fits = |limit: usize| used + width(mark) + width(part) <= limit;
        if style.limit().is_none_or(fits) {
            out.push_str(mark);
            used += width(mark);
        } else {
            out.push_str("\n  ");
            used = 2;
        }
        let shown = match style.limit() {
            Some(limit) => fitted(part, limit - used.min(limit)),
            None => part.as_str().into(),
        };
        out.push_str(&shown);
        used += width(&shown);
    }
    out.push('\n');
    out
}

/// The device's memory in the order of the bar. Without colours, letters distinguish the owners.
fn segments(device: &DeviceView, colour: bool) -> Vec<Segment> {
    let owned: u64 = device.owners.iter().map(|owner| owner.bytes).sum();
    let reserved = device.reserved_bytes.unwrap_or(owned).saturating_sub(owned);
    let foreign = device.foreign_bytes.unwrap_or(0);
    let excess = device.excess_bytes.unwrap_or(0);
    let settling = device.settling_bytes.unwrap_or(0);
    let headroom = device.headroom_bytes.unwrap_or(0);
    let rest = device
        .total_bytes
        .saturating_sub(owned)
        .saturating_sub(reserved)
        .saturating_sub(foreign)
        .saturating_sub(excess)
        .saturating_sub(settling)
        .saturating_sub(headroom);
    let mut segments: Vec<Segment> = device
        .owners
        .iter()
        .enumerate()
        .map(|(n, owner)| Segment {
            bytes: owner.bytes,
            glyph: if colour { '█' } else { letter(n) },
            tint: Tint::Owner(n),
            legend: match &owner.state {
                Some(state) if *state != LoadState::Ready => {
                    format!(
                        "{} {} ({})",
                        clean_line(&owner.replica),
                        clean_line(&owner.model),
                        clean_line(state.as_str())
                    )
                }
                _ => format!(
                    "{} {}",
                    clean_line(&owner.replica),
                    clean_line(&owner.model)
                ),
            },
        })
        .collect();
    let mut also = |bytes, glyph, tint, legend: &str| {
        segments.push(Segment {
            bytes,
            glyph,
            tint,
            legend: legend.to_owned(),
        });
    };
    also(reserved, '=', Tint::Warning, "reserved, not yet owned");
    also(foreign, '#', Tint::Bad, "foreign: outside the pool");
    also(excess, '+', Tint::Warning, "beyond the reservations");
    also(settling, '~', Tint::Warning, "not yet released");
    also(headroom, '-', Tint::Faint, "headroom, kept free");
    also(
        device.free_bytes.unwrap_or(rest).min(rest),
        '.',
        Tint::Faint,
        "free",
    );
    segments
}

fn letter(n: usize) -> char {
    char::from(b'A' + u8::try_from(n % 26).unwrap_or(0))
}

/// The cells of each segment: in proportion, at least one if it is not empty, and at most `width` in
/// total unless there are more segments than cells.
fn cells(segments: &[Segment], width: usize) -> Vec<usize> {
    let total: u128 = segments
        .iter()
        .map(|segment| u128::from(segment.bytes))
        .sum();
    if total == 0 {
        return vec![0; segments.len()];
    }
    let mut cells: Vec<usize> = segments
        .iter()
        .map(|segment| {
            let share = u128::from(segment.bytes) * width as u128 / total;
            usize::try_from(share)
                .unwrap_or(width)
                .max(usize::from(segment.bytes > 0))
        })
        .collect();
    // The largest segment absorbs the rounding, where it shows least.
    let sum: usize = cells.iter().sum();
    if let Some(largest) = cells.iter_mut().max() {
        *largest = (*largest + width).saturating_sub(sum).max(1);
    }
    cells
}

#[cfg(test)]
mod tests;
