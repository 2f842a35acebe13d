//! The machines of a Ray cluster, and the state of its autoscaler.

use std::collections::BTreeMap;

use config::{ClusterSection, ShapeSection};
use serde_json::Value;

use super::submission::{labels, resources};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Machine {
    pub node_id: String,
    pub address: String,
    pub resources: BTreeMap<String, f64>,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Autoscaler {
    /// Ray reports nothing. It may be the second kind of autoscaler, which has no report here.
    Unknown,
    None,
    Idle,
    /// The autoscaler is starting these machines.
    Launching(String),
    Broken(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Machines {
    pub alive: Vec<Machine>,
    pub autoscaler: Autoscaler,
    /// GPUs that this pool's running jobs hold, by Ray's id of the node.
    pub held: BTreeMap<String, u32>,
}

impl Machine {
    pub fn gpus(&self) -> f64 {
        self.resources.get("GPU").copied().unwrap_or(0.0)
    }

    /// Returns true if a job of this shape fits on the empty machine. Ray decides; this only explains.
    pub fn fits(&self, section: &ClusterSection, shape: &ShapeSection) -> bool {
        let has = |name: &str, amount: f64| {
            self.resources.get(name).copied().unwrap_or(0.0) + 1e-9 >= amount
        };
        has("GPU", f64::from(shape.gpus))
            && has("CPU", f64::from(section.ray.cpus))
            && resources(section, shape)
                .iter()
                .all(|(name, amount)| has(name, *amount))
            && labels(section, shape).iter().all(|(name, wanted)| {
                is_selected(self.labels.get(name).map(String::as_str), wanted)
            })
    }
}

/// `wanted` is `big`, `!big`, `in(big, small)` or `!in(big, small)`.
fn is_selected(value: Option<&str>, wanted: &str) -> bool {
    let (is_negated, wanted) = match wanted.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, wanted),
    };
    let list = wanted
        .strip_prefix("in(")
        .and_then(|list| list.strip_suffix(')'));
    let mut values = list.unwrap_or(wanted).split(',').map(str::trim);
    let is_in = value.is_some_and(|value| values.any(|wanted| wanted == value));
    is_in != is_negated
}

impl Machines {
    pub fn fitting(&self, section: &ClusterSection, shape: &ShapeSection) -> usize {
        self.alive
            .iter()
            .filter(|machine| machine.fits(section, shape))
            .count()
    }

    /// Returns true if this pool's own jobs leave the shape no room on any machine. Other users' jobs do not count: they may end soon.
    pub fn are_held(&self, section: &ClusterSection, shape: &ShapeSection) -> bool {
        self.room(section, shape) == 0
    }

    /// The number of jobs of this shape for which this pool's own jobs leave room.
    pub fn room(&self, section: &ClusterSection, shape: &ShapeSection) -> u32 {
        let fitting = self.alive.iter();
        let fitting = fitting.filter(|machine| machine.fits(section, shape));
        let rooms = fitting.map(|machine| {
            let held = self.held.get(&machine.node_id).copied().unwrap_or(0);
            let free = machine.gpus() - f64::from(held);
            // A shape without GPUs has room wherever it fits.
            (free.max(0.0) as u32)
                .checked_div(shape.gpus)
                .unwrap_or(u32::MAX)
        });
        rooms.fold(0, u32::saturating_add)
    }

    /// The resources and labels that no machine has, for a shape that fits on none.
    pub fn lacking(&self, section: &ClusterSection, shape: &ShapeSection) -> String {
        let most = self.alive.iter().map(Machine::gpus).fold(0.0, f64::max);
        if f64::from(shape.gpus) > most {
            return format!("no node has {} GPUs, the largest has {most}", shape.gpus);
        }
        let resources = resources(section, shape);
        for (name, amount) in &resources {
            if !self
                .alive
                .iter()
                .any(|machine| machine.resources.get(name) >= Some(amount))
            {
                return format!("no node has the resource {name} ({amount})");
            }
        }
        for (name, wanted) in labels(section, shape) {
            let has = |machine: &Machine| {
                is_selected(machine.labels.get(&name).map(String::as_str), &wanted)
            };
            if !self.alive.iter().any(has) {
                return format!("no node has the label {name}: {wanted}");
            }
        }
        format!(
            "no node has all that the shape {} needs (GPUs, {} CPUs, resources and labels)",
            shape.name, section.ray.cpus
        )
    }
}

/// The machines that are alive, from `GET /api/v0/nodes?detail=1`.
///
/// # Errors
/// If the response has another form.
pub(super) fn of_nodes(response: &Value) -> Result<Vec<Machine>, String> {
    let list = response
        .pointer("/data/result/result")
        .and_then(Value::as_array);
    let Some(list) = list else {
        return Err("it has no list of nodes".to_owned());
    };
    let alive = list.iter().filter(|node| node["state"] == "ALIVE");
    let text = |node: &Value, key: &str| node[key].as_str().unwrap_or_default().to_owned();
    let machine = |node: &Value| Machine {
        node_id: text(node, "node_id"),
        address: text(node, "node_ip"),
        resources: entries(&node["resources_total"], Value::as_f64),
        labels: entries(&node["labels"], |label| label.as_str().map(str::to_owned)),
    };
    Ok(alive.map(machine).collect())
}

fn entries<T>(map: &Value, read: impl Fn(&Value) -> Option<T>) -> BTreeMap<String, T> {
    let entries = map.as_object().into_iter().flatten();
    let entries = entries.filter_map(|(key, value)| Some((key.clone(), read(value)?)));
    entries.collect()
}

/// From `GET /api/cluster_status`.
pub(super) fn of_status(response: &Value) -> Autoscaler {
    let data = &response["data"];
    if let Some(error) = data["autoscalingError"].as_str() {
        return Autoscaler::Broken(super::client::last_line(error));
    }
    let report = &data["clusterStatus"]["autoscalerReport"];
    let Some(types) = report["nodeTypeMapping"].as_object() else {
        return Autoscaler::Unknown;
    };
    // Without an autoscaler each node has its own type.
    let is_own =
        |(id, kind): (&String, &Value)| kind.as_str() == Some(format!("node_{id}").as_str());
    if !types.is_empty() && types.iter().all(is_own) {
        return Autoscaler::None;
    }
    let launches = report["pendingLaunches"].as_object().into_iter().flatten();
    let launches = launches.map(|(kind, count)| format!("{count} {kind}"));
    let nodes = report["pendingNodes"].as_array().into_iter().flatten();
    let nodes = nodes.filter_map(|node| node[1].as_str().map(|kind| format!("1 {kind}")));
    let all: Vec<String> = launches.chain(nodes).collect();
    if all.is_empty() {
        Autoscaler::Idle
    } else {
        Autoscaler::Launching(all.join(", "))
    }
}
