//! The columns of the panes of `top`, and their rows, filtered and sorted. Pure.

use super::grid::Row;
use super::view::{View, event_id};
use crate::render::events::kind_tint;
use crate::render::models::{keep_hot_left, memory, replicas, state_tint};
use crate::render::progress::progress;
use crate::render::quantity::{Clock, bytes, label, milliseconds};
use crate::render::queue::expected;
use crate::render::table::{Cell, Column, column};
use crate::responses::{DeviceView, EventView, ModelView};
use crate::state::LoadState;
use crate::style::Tint;
use terminal::row;

/// The panes in the order of the Tab key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    Devices,
    Models,
    Queue,
    Events,
}

pub const PANES: [Pane; 4] = [Pane::Devices, Pane::Models, Pane::Queue, Pane::Events];

impl Pane {
    pub fn title(self) -> &'static str {
        match self {
            Pane::Devices => "Devices",
            Pane::Models => "Models",
            Pane::Queue => "Queue",
            Pane::Events => "Events",
        }
    }

    pub fn columns(self) -> &'static [Column] {
        match self {
            Pane::Devices => &DEVICES,
            Pane::Models => &MODELS,
            Pane::Queue => &QUEUE,
            Pane::Events => &EVENTS,
        }
    }
}

/// The column of a device that holds its bar.
pub const BAR: usize = 1;

const DEVICES: [Column; 6] = [
    column("DEVICE").shortens_to(10),
    column("MEMORY"),
    column("GIVEN OF TOTAL").shortens_to(20).right(),
    column("BUSY").shortens_to(5).right().leaves(2),
    column("TEMP").shortens_to(5).right().leaves(1),
    column("STATE").shortens_to(10).leaves(3),
];

const MODELS: [Column; 9] = [
    column("MODEL"),
    column("STATE").shortens_to(16),
    column("PRI").shortens_to(4).right(),
    column("REPL").shortens_to(5).right().leaves(2),
    column("MEMORY").shortens_to(10).right().leaves(3),
    column("BUSY").shortens_to(5).right().leaves(4),
    column("WAIT").shortens_to(5).right(),
    column("LEAVES IN").shortens_to(11).right().leaves(5),
    column("LAST USED").shortens_to(15).right().leaves(1),
];

const QUEUE: [Column; 6] = [
    column("MODEL"),
    column("KEY").shortens_to(14).leaves(2),
    column("POS").shortens_to(3).right().leaves(1),
    column("WAITED").shortens_to(10).right(),
    column("EXPECTED").shortens_to(10).right(),
    column("STAGE").shortens_to(16).leaves(3),
];

const EVENTS: [Column; 4] = [
    column("TIME").shortens_to(8),
    column("EVENT").shortens_to(11),
    column("MODEL").shortens_to(22).leaves(1),
    column("REASON"),
];

/// The column by which the models are sorted, and true if it is descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub column: usize,
    pub is_down: bool,
}

impl Sort {
    /// Sorts names and states ascending, figures descending.
    pub fn by(column: usize) -> Sort {
        Sort {
            column: column.min(MODELS.len() - 1),
            is_down: column > 1,
        }
    }

    pub fn next(self) -> Sort {
        Sort::by((self.column + 1) % MODELS.len())
    }

    pub fn title(self) -> String {
        MODELS[self.column].title.to_lowercase()
    }
}

/// The rows of a pane that contain the filter's text, ignoring case. Devices are not filtered.
pub fn rows(pane: Pane, view: &View, filter: &str, sort: Sort, clock: Clock) -> Vec<Row> {
    let mut rows = match pane {
        Pane::Devices => return view.devices.iter().map(device).collect(),
        Pane::Models => models(view, sort, clock),
        Pane::Queue => queue(view),
        Pane::Events => events(view, clock),
    };
    if !filter.is_empty() {
        let wanted = filter.to_lowercase();
        let has = |cell: &Cell| cell.text.to_lowercase().contains(&wanted);
        rows.retain(|row| row.cells.iter().any(has));
    }
    rows
}

fn count(n: u64) -> Cell {
    match n {
        0 => Cell::tinted("-", Some(Tint::Faint)),
        n => Cell::from(n),
    }
}

fn device(device: &DeviceView) -> Row {
    let given: u64 = device.owners.iter().map(|owner| owner.bytes).sum();
    let given = device.reserved_bytes.unwrap_or(given);
    let of = |figure: Option<f64>, unit: &str| {
        figure.map_or_else(String::new, |figure| format!("{figure:.0}{unit}"))
    };
    let state = match (&device.cordon, &device.stale) {
        (Some(cordon), _) if cordon.failed => Cell::tinted("failed", Some(Tint::Bad)),
        (Some(_), _) => Cell::tinted("cordoned", Some(Tint::Warning)),
        (None, Some(_)) => Cell::tinted("stale", Some(Tint::Bad)),
        (None, None) => Cell::from(""),
    };
    Row {
        id: device.device.clone(),
        model: None,
        cells: row![
            Cell::tinted(&device.device, Some(Tint::Strong)),
            "",
            format!("{} / {}", bytes(given), bytes(device.total_bytes)),
            of(device.utilisation_percent, " %"),
            of(device.temperature_celsius, "°C"),
            state,
        ],
    }
}

fn models(view: &View, sort: Sort, clock: Clock) -> Vec<Row> {
    let mut models: Vec<&ModelView> = view.models.iter().collect();
    // Stable: equal models stay in the order of their names.
    models.sort_by(|a, b| {
        let order = match sort.column {
            0 => a.model.cmp(&b.model),
            1 => state_rank(&a.state).cmp(&state_rank(&b.state)),
            2 => a.priority.cmp(&b.priority),
            3 => a.replicas.len().cmp(&b.replicas.len()),
            4 => held(a).cmp(&held(b)),
            5 => in_flight(a).cmp(&in_flight(b)),
            6 => a.waiting.cmp(&b.waiting),
            7 => leaves_at(a).cmp(&leaves_at(b)),
            _ => a.last_used_at.cmp(&b.last_used_at),
        };
        if sort.is_down { order.reverse() } else { order }
    });
    models.into_iter().map(|view| model(view, clock)).collect()
}

fn model(model: &ModelView, clock: Clock) -> Row {
    let always_hot = model.always_hot.then_some(Tint::Strong);
    Row {
        id: model.model.clone(),
        model: Some(model.model.clone()),
        cells: row![
            &model.model,
            Cell::tinted(state(model), state_tint(&model.state)),
            Cell::tinted(model.priority.to_string(), always_hot),
            replicas(model),
            memory(model),
            count(in_flight(model)),
            match model.waiting {
                0 => count(0),
                n => Cell::tinted(n.to_string(), Some(Tint::Warning)),
            },
            keep_hot_left(model, clock),
            model.last_used_at.as_deref().map(|at| clock.ago(at)),
        ],
    }
}

/// The state, with the progress of a load.
fn state(model: &ModelView) -> String {
    let is_loading = model
        .replicas
        .iter()
        .any(|replica| replica.state == LoadState::Launching);
    if !is_loading {
        return model.state.to_string();
    }
    let figure = progress(model, model.wished_replicas.unwrap_or(1), 0).figure;
    match figure.as_str() {
        "" => "loading".to_owned(),
        figure if figure.ends_with('%') => format!("loading {figure}"),
        figure => figure.to_owned(),
    }
}

/// The rank of a state for sorting: changing states first, cold last.
fn state_rank(state: &LoadState) -> u32 {
    match state {
        LoadState::Loading => 0,
        LoadState::Waiting => 1,
        LoadState::Draining => 2,
        LoadState::Ready => 3,
        LoadState::Cold => 5,
        _ => 4,
    }
}

fn held(model: &ModelView) -> u64 {
    let devices = model.replicas.iter().flat_map(|replica| &replica.devices);
    devices.map(|share| share.bytes).sum()
}

pub fn in_flight(model: &ModelView) -> u64 {
    model.replicas.iter().map(|replica| replica.in_flight).sum()
}

fn leaves_at(model: &ModelView) -> Option<&str> {
    let times = model.replicas.iter();
    times
        .filter_map(|replica| replica.expires_at.as_deref())
        .max()
}

fn queue(view: &View) -> Vec<Row> {
    let waiting = view.queue.waiting.iter().map(|request| Row {
        id: label(&request.ticket),
        model: Some(request.model.clone()),
        cells: row![
            &request.model,
            request.key.as_deref(),
            request.position,
            request.waited_ms.map(milliseconds),
            expected(request),
            request.stage.as_deref(),
        ],
    });
    let orders = view.queue.orders.iter().map(|order| Row {
        id: order.order.clone(),
        model: order.model.clone(),
        cells: row![
            order.model.as_deref().unwrap_or("all models"),
            Cell::tinted(format!("order {}", order.order), Some(Tint::Faint)),
            "",
            order.since_ms.map(milliseconds),
            "",
            Cell::tinted(&order.what, Some(Tint::Strong)),
        ],
    });
    waiting.chain(orders).collect()
}

fn events(view: &View, clock: Clock) -> Vec<Row> {
    let time = |event: &EventView| {
        let at = event.at.as_deref();
        at.map_or_else(String::new, |at| clock.time_of_day(at))
    };
    let events = view.events.iter().map(|event| Row {
        id: event_id(event),
        model: event.model.clone(),
        cells: row![
            Cell::tinted(time(event), Some(Tint::Faint)),
            Cell::tinted(&event.kind, Some(kind_tint(&event.kind))),
            event.model.as_deref(),
            event.reason.as_deref().unwrap_or_default(),
        ],
    });
    events.collect()
}
