//! The dialog over the panes of `top`: a plan, a decision, a log, a question, or the help. Its text is made on every draw, which
//! fits it to the window and the pool's current state. Pure.

use std::collections::VecDeque;

use super::jobs::Effect;
use super::rows::in_flight;
use super::view::View;
use crate::decisions::DecisionReport;
use crate::render::fold::wrapped;
use crate::render::quantity::{Clock, count, milliseconds};
use crate::render::{bars, events, models, plan as plan_text, why as why_text};
use crate::responses::{EventView, LogLine, Plan};
use crate::style::{Style, clean_line};

/// Limit of a log; older lines are dropped.
const LOG_LINES_MAX: usize = 2_000;
/// Limit of lines after wrapping one line of a log, or one reason.
const FOLDED_MAX: usize = 40;

#[derive(Debug)]
pub struct Dialog {
    /// Results for an older number are ignored.
    pub number: u64,
    pub kind: Kind,
    /// Lines scrolled away: from the top, or from the end in a log.
    pub scroll: usize,
}

#[derive(Debug)]
pub enum Kind {
    Help,
    Device(String),
    Model(String),
    Event(Box<EventView>),
    Plan {
        model: String,
        plan: Option<Box<Plan>>,
    },
    Load {
        model: String,
        plan: Option<Box<Plan>>,
        /// The plan differs from the confirmed plan.
        is_outdated: bool,
        is_ordered: bool,
    },
    Unload(String),
    Why(Option<Box<DecisionReport>>),
    Log {
        model: String,
        lines: VecDeque<LogLine>,
        is_over: bool,
    },
    Failed(String),
}

impl Dialog {
    pub fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Log { .. })
    }

    pub fn title(&self) -> String {
        match &self.kind {
            Kind::Help => "Help".to_owned(),
            Kind::Device(device) => format!("Device {}", clean_line(device)),
            Kind::Model(model) => clean_line(model),
            Kind::Event(_) => "Event".to_owned(),
            Kind::Plan { model, .. } => format!("Plan: {}", clean_line(model)),
            Kind::Load { model, .. } => format!("Load {}?", clean_line(model)),
            Kind::Unload(model) => format!("Unload {}?", clean_line(model)),
            Kind::Why(_) => "Why".to_owned(),
            Kind::Log { model, .. } => format!("Log of {}", clean_line(model)),
            Kind::Failed(_) => "Refused".to_owned(),
        }
    }

    /// The explanation of the keys in this dialog.
    pub fn keys(&self, view: &View) -> &'static str {
        match &self.kind {
            Kind::Load { .. } if self.load_effect(view).is_some() => "Enter load   Esc cancel",
            Kind::Unload(model) if view.model(model).is_some() => "Enter unload   Esc cancel",
            Kind::Log { .. } => "↑↓ scroll   End follow   Esc close",
            _ => "↑↓ scroll   Esc close",
        }
    }

    /// The model and the effect of the load to confirm; `None` if there is nothing to confirm.
    pub fn load_effect(&self, view: &View) -> Option<(String, Effect)> {
        match &self.kind {
            Kind::Load {
                model,
                plan: Some(plan),
                is_ordered: false,
                ..
            } if plan.feasible && !plan.already_loaded && view.model(model).is_some() => {
                Some((model.clone(), Effect::from_plan(plan)))
            }
            _ => None,
        }
    }

    pub fn add_line(&mut self, line: LogLine) {
        if let Kind::Log { lines, .. } = &mut self.kind {
            lines.push_back(line);
            if lines.len() > LOG_LINES_MAX {
                lines.pop_front();
            }
            // Keeps the lines in view in place.
            if self.scroll > 0 {
                self.scroll += 1;
            }
        }
    }

    pub fn lines(&self, view: &View, columns: usize, clock: Clock) -> Vec<String> {
        let style = Style {
            colour: false,
            terminal: true,
            columns,
            wide: false,
        };
        let text = match &self.kind {
            Kind::Help => HELP.to_owned(),
            Kind::Device(name) => {
                let found = view.devices.iter().find(|device| device.device == *name);
                match found {
                    Some(device) => bars::device(device, clock, style),
                    None => GONE_DEVICE.to_owned(),
                }
            }
            Kind::Model(model) => match view.model(model) {
                Some(model) => models::model(model, clock, style),
                None => GONE.to_owned(),
            },
            Kind::Event(event) => {
                events::event(event, clock, style) + "\n\nPress w for the decision behind it."
            }
            Kind::Plan { plan: None, .. } | Kind::Load { plan: None, .. } | Kind::Why(None) => {
                "Waiting for the server …".to_owned()
            }
            Kind::Plan {
                plan: Some(plan), ..
            } => plan_text::plan(plan, style),
            Kind::Load {
                model,
                plan: Some(plan),
                is_outdated,
                is_ordered,
            } => load(view, model, plan, (*is_outdated, *is_ordered), style),
            Kind::Unload(model) => unload(view, model),
            Kind::Why(Some(why)) => why_text::why(why, clock, style),
            Kind::Log {
                model,
                lines,
                is_over,
            } => return log(view, model, lines, *is_over, columns),
            Kind::Failed(text) => text.clone(),
        };
        folded(&text, columns)
    }
}

const GONE: &str = "This model is no longer in the catalogue.";
const GONE_DEVICE: &str = "This device is no longer in the pool.";

fn folded(text: &str, columns: usize) -> Vec<String> {
    let lines = text.lines();
    lines
        .flat_map(|line| {
            if line.is_empty() {
                vec![String::new()]
            } else {
                wrapped(line, Some(columns), FOLDED_MAX)
            }
        })
        .collect()
}

fn load(
    view: &View,
    model: &str,
    plan: &Plan,
    (is_outdated, is_ordered): (bool, bool),
    style: Style,
) -> String {
    if view.model(model).is_none() {
        return GONE.to_owned();
    }
    let mut text = String::new();
    if is_outdated {
        text.push_str("The pool has changed. This is the new plan; no order was given yet.\n\n");
    }
    text.push_str(&plan_text::plan(plan, style));
    if is_ordered {
        text.push_str("\nSending the order …");
    } else if plan.feasible && !plan.already_loaded {
        text.push_str("\nPress Enter to load it.");
    }
    text
}

fn unload(view: &View, model: &str) -> String {
    let Some(model) = view.model(model) else {
        return GONE.to_owned();
    };
    if model.replicas.is_empty() {
        return "The model has no replica. An order to keep it loaded ends.\n\nPress Enter to unload it.".to_owned();
    }
    let mut text = format!(
        "{} will be unloaded.\n",
        count(model.replicas.len(), "replica")
    );
    match in_flight(model) {
        0 => text.push_str("No request is in flight.\n"),
        n => text.push_str(&format!(
            "{} in flight may finish first.\n",
            count(n as usize, "request")
        )),
    }
    if model.waiting > 0 {
        text.push_str(&format!(
            "{} waiting: they cause another load of the model.\n",
            count(model.waiting as usize, "request")
        ));
    }
    if let Some(ms) = model.load_ms_expected {
        text.push_str(&format!(
            "Loading it again takes about {}.\n",
            milliseconds(ms)
        ));
    }
    text + "\nPress Enter to unload it."
}

fn log(
    view: &View,
    model: &str,
    lines: &VecDeque<LogLine>,
    is_over: bool,
    columns: usize,
) -> Vec<String> {
    let plain = Style {
        colour: false,
        terminal: true,
        columns,
        wide: false,
    };
    let mut out = Vec::new();
    for line in lines {
        // A line of an engine may hold anything: tabs are columns, and everything else is left out.
        let text = events::log_line(line, plain).replace('\t', "    ");
        out.extend(wrapped(&clean_line(&text), Some(columns), FOLDED_MAX));
    }
    if lines.is_empty() && !is_over {
        out.push("No output yet.".to_owned());
    }
    if is_over {
        let has_engine = view
            .model(model)
            .is_some_and(|model| !model.replicas.is_empty());
        out.push(String::new());
        out.push(if has_engine {
            "(this log is over: press Esc, then L for the current engine)".to_owned()
        } else {
            "(the engine has ended)".to_owned()
        });
    }
    out
}

const HELP: &str = "\
Move
  ↑ ↓ or j k       one row            Tab or 1 2 3 4   next pane, this pane
  PgUp PgDn        a page             z                this pane alone
  Home End, g G    first, last        mouse            rows, titles, wheel
See
  Enter  details of the row           w    why: the decision behind it
  L      the log of its engines       p    plan: the effect of a load
  /      only rows with this text     Esc  clears the filter, closes this
  s S    sort by the next column, or reverse the order
Change
  l      load the model: first its plan, then Enter
  u      unload the model: first its replicas, then Enter
  q      exit, as does Ctrl-C

BUSY is the number of requests in flight, WAIT those in the queue, and LEAVES IN the time until keep-hot unloads the model. PRI 2 and above is always-hot. A bar shows the memory of a device to scale: what models hold, = reserved, # foreign, + beyond the reservation, ~ not yet released, - headroom and . free.";
