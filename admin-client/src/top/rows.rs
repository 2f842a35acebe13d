//! The columns of the panes of `top`, and their rows, filtered and sorted. Pure.

use super::grid::{Column, Row, column};
use super::view::{View, event_id};
use crate::render::events::kind_tint;
use crate::render::models::{keep_hot_left, memory, replicas, state_tint};
use crate::render::progress::progress;
use crate::render::quantity::{Clock, bytes, label, milliseconds_or_dash};
use crate::responses::{DeviceView, ModelView};
use crate::state::LoadState;
use crate::style::{Tint, clean_line};

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
    column("DEVICE", 10),
    column("MEMORY", 0),
    column("GIVEN OF TOTAL", 20).right(),
    column("BUSY", 5).right().leaves(2),
    column("TEMP", 5).right().leaves(3),
    column("STATE", 10).leaves(1),
];

const MODELS: [Column; 9] = [
    column("MODEL", 0),
    column("STATE", 16),
    column("PRI", 4).right(),
    column("REPL", 5).right().leaves(4),
    column("MEMORY", 10).right().leaves(3),
    column("BUSY", 5).right().leaves(2),
    column("WAIT", 5).right(),
    column("LEAVES IN", 11).right().leaves(1),
    column("LAST USED", 15).right().leaves(5),
];

const QUEUE: [Column; 6] = [
    column("MODEL", 0),
    column("KEY", 14).leaves(2),
    column("POS", 3).right().leaves(3),
    column("WAITED", 10).right(),
    column("EXPECTED", 10).right(),
    column("STAGE", 16).leaves(1),
];

const EVENTS: [Column; 4] = [
    column("TIME", 8),
    column("EVENT", 11),
    column("MODEL", 22).leaves(1),
    column("REASON", 0),
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
        let has = |text: &str| clean_line(text).to_lowercase().contains(&wanted);
        rows.retain(|row| row.cells.iter().any(|(text, _)| has(text)));
    }
    rows
}

fn plain(text: impl Into<String>) -> (String, Option<Tint>) {
    (text.into(), None)
}

fn count(n: u64) -> (String, Option<Tint>) {
    match n {
        0 => ("-".to_owned(), Some(Tint::Faint)),
        n => plain(n.to_string()),
    }
}

fn device(device: &DeviceView) -> Row {
    let given: u64 = device.owners.iter().map(|owner| owner.bytes).sum();
    let given = device.reserved_bytes.unwrap_or(given);
    let of = |figure: Option<f64>, unit: &str| {
        figure.map_or_else(String::new, |figure| format!("{figure:.0}{unit}"))
    };
    let state = match (&device.cordon, &device.stale) {
        (Some(cordon), _) if cordon.failed => ("failed".to_owned(), Some(Tint::Bad)),
        (Some(_), _) => ("cordoned".to_owned(), Some(Tint::Warning)),
        (None, Some(_)) => ("stale".to_owned(), Some(Tint::Bad)),
        (None, None) => plain(""),
    };
    Row {
        id: device.device.clone(),
        model: None,
        cells: vec![
            (device.device.clone(), Some(Tint::Strong)),
            plain(""),
            plain(format!("{} / {}", bytes(given), bytes(device.total_bytes))),
            plain(of(device.utilisation_percent, " %")),
            plain(of(device.temperature_celsius, "°C")),
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
        cells: vec![
            plain(model.model.as_str()),
            (state(model), state_tint(&model.state)),
            (model.priority.to_string(), always_hot),
            plain(replicas(model)),
            plain(memory(model)),
            count(in_flight(model)),
            match model.waiting {
                0 => count(0),
                n => (n.to_string(), Some(Tint::Warning)),
            },
            plain(keep_hot_left(model, clock)),
            plain(
                model
                    .last_used_at
                    .as_deref()
                    .map_or_else(|| "-".to_owned(), |at| clock.ago(at)),
            ),
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
        cells: vec![
            plain(request.model.as_str()),
            plain(request.key.as_deref().unwrap_or("-")),
            plain(
                request
                    .position
                    .map_or_else(|| "-".to_owned(), |nth| nth.to_string()),
            ),
            plain(milliseconds_or_dash(request.waited_ms)),
            plain(milliseconds_or_dash(request.expected_ms)),
            plain(request.stage.as_deref().unwrap_or("-")),
        ],
    });
    let orders = view.queue.orders.iter().map(|order| Row {
        id: order.order.clone(),
        model: order.model.clone(),
        cells: vec![
            plain(order.model.as_deref().unwrap_or("all models")),
            (format!("order {}", order.order), Some(Tint::Faint)),
            plain(""),
            plain(milliseconds_or_dash(order.since_ms)),
            plain(""),
            (order.what.clone(), Some(Tint::Strong)),
        ],
    });
    waiting.chain(orders).collect()
}

fn events(view: &View, clock: Clock) -> Vec<Row> {
    let events = view.events.iter().map(|event| Row {
        id: event_id(event),
        model: event.model.clone(),
        cells: vec![
            (
                event
                    .at
                    .as_deref()
                    .map_or_else(String::new, |at| clock.time_of_day(at)),
                Some(Tint::Faint),
            ),
            (event.kind.clone(), Some(kind_tint(&event.kind))),
            plain(event.model.as_deref().unwrap_or("-")),
            plain(event.reason.as_deref().unwrap_or_default()),
        ],
    });
    events.collect()
}
