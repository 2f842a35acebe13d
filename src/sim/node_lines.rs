//! Parses the lines about nodes in a story: they join, fall silent, leave, drain. Produces events; the pool decides what follows.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::args::{Options, bytes, number, span};
use super::story::StoryRunner;
use pool::{
    Command, DemandId, Event, GangReach, KindId, NodeId, NodeOutlook, NodeRoom, NodeShape, NodeUse,
    NodesSpent, Pool, ReplicaId, ShapeId, Share, Span, Time,
};

impl StoryRunner {
    /// `shape 1 SIZE x4 80GiB [cost 120] [most 2]`, `spent 2h [cents 300]`, `pending 1000 [waits|starts|stuck|never|at 2h] WORDS`, `refuses 1000 WORDS`,
    /// `closed 1 [room 2] WORDS`, `leased 3 1 1000`: node 3 is of size 1 and of the lease of request 1000. The id of a request is the time it was made, in milliseconds. `at` gives the expected start.
    pub(super) fn demand_event(&mut self, what: &str, rest: &[&str]) -> Result<Event, String> {
        if what == "spent" {
            let options = Options::from_args(&rest[1..])?;
            let day = NodeUse {
                gpu_seconds: span(rest.first().ok_or("how long?")?)?.0 / 1000,
                cents: options.number("cents")?.unwrap_or(0),
            };
            let spent = NodesSpent {
                day,
                ..NodesSpent::default()
            };
            return Ok(Event::NodesSpent { spent });
        }
        if what == "leased" {
            return Ok(Event::NodeSized {
                node: NodeId(number(rest.first())? as u32),
                shape: ShapeId(number(rest.get(1))? as u32),
                lease: Some(DemandId(number(rest.get(2))?)),
            });
        }
        if what == "closed" {
            let Some((shape, words)) = rest.split_first() else {
                let shapes = Vec::new();
                return Ok(Event::ShapesClosed { shapes });
            };
            let (nodes, words) = match words {
                ["room", nodes, words @ ..] => (number(Some(nodes))? as u32, words),
                words => (0, words),
            };
            let why = words.join(" ");
            let shape = ShapeId(number(Some(shape))? as u32);
            let shapes = vec![(shape, NodeRoom { nodes, why })];
            return Ok(Event::ShapesClosed { shapes });
        }
        if what != "shape" {
            let demand = DemandId(number(rest.first())?);
            let (outlook, words) = outlook(&rest[1..])?;
            let text = words.join(" ");
            return Ok(match what {
                "pending" => Event::NodePending {
                    demand,
                    reason: text,
                    outlook,
                },
                _ => Event::NodeRefused { demand, why: text },
            });
        }
        let count = rest.get(2).and_then(|word| word.strip_prefix('x'));
        let size = rest.get(3).ok_or("how large is a device?")?;
        let options = Options::from_args(&rest[4..])?;
        self.shapes.push(NodeShape {
            shape: ShapeId(number(rest.first())? as u32),
            name: (*rest.get(1).ok_or("which name?")?).to_owned(),
            devices: number(count.as_ref())? as u32,
            bytes_per_device: bytes(size)?,
            kind: KindId(options.number("kind")?.unwrap_or(0) as u32),
            nodes_max: options.number("most")?.map(|most| most as u32),
            cost_per_hour_cents: options.number("cost")?.map(|cents| cents as u32),
        });
        let shapes = self.shapes.clone();
        Ok(Event::ShapesSet { shapes })
    }

    /// `joins 1 gpu-7 [running 1,2] [demand 1] [loopback|version 0.2.0]` with a version that runs no part of a gang, `expected 1 gpu-7`, `silent 1`, `gone 1 WORDS`, `weights 1 NAME,NAME`, `holds 1
    /// NAME`, `allows 1 NAME d0,d1|none`, and `ends 1 2h` and `leaves 1 10m` with the time in the story at which it must be gone.
    pub(super) fn node_event(&self, what: &str, rest: &[&str]) -> Result<Event, String> {
        let node = node(rest)?;
        Ok(match what {
            "joins" => {
                let name = (*rest.get(1).ok_or("which name?")?).to_owned();
                let options = Options::from_args(&rest[2..])?;
                let running = options.get("running").map(|all| {
                    let ids = all.split(',').map(|id| number(Some(&id)).map(ReplicaId));
                    ids.collect::<Result<Vec<_>, _>>()
                });
                Event::NodeJoined {
                    node,
                    name,
                    running: running.transpose()?.unwrap_or_default(),
                    demand: options.number("demand")?.map(DemandId),
                    reach: if options.has("loopback") {
                        GangReach::Machine
                    } else {
                        let version = options.get("version").map(ToOwned::to_owned);
                        version.map_or(GangReach::Network, |version| GangReach::Alone { version })
                    },
                }
            }
            "holds" => Event::Remembered {
                model: self.named(rest.get(1))?,
                numbers: Pool::remembered_places(&[node]),
            },
            "allows" => {
                let names = rest.get(2).ok_or("which devices?")?;
                let names = names.split(',').filter(|name| *name != "none");
                let allowed = names.map(|name| self.device_named(Some(&name)));
                let on = self
                    .devices
                    .values()
                    .filter(|(_, reading)| reading.node == node);
                Event::DevicesAllowed {
                    model: self.named(rest.get(1))?,
                    of: on.map(|(id, _)| *id).collect(),
                    allowed: allowed.collect::<Result<_, _>>()?,
                }
            }
            "expected" => Event::NodeExpected {
                node,
                name: (*rest.get(1).ok_or("which name?")?).to_owned(),
            },
            "silent" => Event::NodeSilent { node },
            "ends" | "leaves" => {
                let at = Time(span(rest.get(1).ok_or("when?")?)?.0);
                match what {
                    "ends" => Event::NodeEnds { node, at },
                    _ => Event::NodeLeaves { node, at },
                }
            }
            "weights" => {
                let names = rest.get(1).ok_or("of which models?")?;
                let models = names.split(',').map(|name| self.named(Some(&name)));
                Event::WeightsOn {
                    node,
                    models: models.collect::<Result<_, _>>()?,
                }
            }
            _ => Event::NodeGone {
                node,
                why: rest[1..].join(" "),
            },
        })
    }

    /// `adopts 1 NAME d0=30GiB,d1=30GiB`: a ready engine of an earlier controller.
    pub(super) fn adopts(&self, rest: &[&str]) -> Result<Event, String> {
        let shares = rest.get(2).ok_or("where is it, as in d0=30GiB?")?;
        let share = |text: &str| {
            let (device, size) = text.split_once('=').ok_or("how much is there?")?;
            Ok(Share {
                device: self.device_named(Some(&device))?,
                bytes: bytes(size)?,
            })
        };
        let placement: Result<Vec<Share>, String> = shares.split(',').map(share).collect();
        Ok(Event::ReplicaAdopted {
            replica: ReplicaId(number(rest.first())?),
            model: self.named(rest.get(1))?,
            placement: placement?,
            ready_for: Span::from_secs(60),
            in_flight: 0,
            last_end: None,
        })
    }

    /// `drain 1 [until 2h] [for WORD] [now]`, `undrain 1`.
    pub(super) fn node_command(&self, what: &str, rest: &[&str]) -> Result<Command, String> {
        let node = node(rest)?;
        if what == "undrain" {
            return Ok(Command::UndrainNode { node });
        }
        let options = Options::from_args(&rest[1..])?;
        let until = options.get("until").map(span).transpose()?;
        Ok(Command::DrainNode {
            node,
            reason: options.get("for").unwrap_or("maintenance").to_owned(),
            until: until.map(|until| Time(until.0)),
            now: options.has("now"),
        })
    }
}

/// The outlook of a request, and the words after it.
fn outlook<'a>(rest: &'a [&'a str]) -> Result<(NodeOutlook, &'a [&'a str]), String> {
    let outlook = match rest.first().copied() {
        Some("waits") => NodeOutlook::Waits { starts: None },
        Some("starts") => NodeOutlook::Starts,
        Some("stuck") => NodeOutlook::Stuck,
        Some("never") => NodeOutlook::Never,
        Some("at") => {
            let at = span(rest.get(1).ok_or("at which time?")?)?;
            let starts = Some(Time(at.0));
            return Ok((NodeOutlook::Waits { starts }, &rest[2..]));
        }
        _ => return Ok((NodeOutlook::Unknown, rest)),
    };
    Ok((outlook, &rest[1..]))
}

fn node(rest: &[&str]) -> Result<NodeId, String> {
    number(rest.first()).map(|id| NodeId(id as u32))
}
