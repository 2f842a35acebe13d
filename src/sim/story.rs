//! Stories: a scenario as text, played through the pool, with every decision written between its lines. A line of the story is
//! `TIME WHAT …`; a line of the transcript begins with `>`. The story plays the engines (`ready`, `exits`, `crash`); gates and the
//! store respond on their own.
//! One file because the lines of a story and what they do to the pool are one table.
//!
//! ```text
//! device d0 80GiB [node 1] [foreign 4GiB] [kind 1] [measured] [link d1,d2]
//! model NAME 40GiB [x4] [nodes 2|needed] [priority 1] [keep_hot 10m|until_needed] [scope device] [resident 10s] [turn 30s] [seats 8] [reload 20s] [queue 2]
//!       [timeout 60s] [deadline 5m] [grace 10s] [wider 2x40GiB,4x20GiB] [on d0,d1] [disk 1 reads 20s] [fixed]
//!       [sleeps 30GiB [keeps 1GiB] [wakes 2s]] [settings 2] [absent] [part 20GiB [mapped 10GiB]]
//! host 200GiB [node 1] [reserve 20GiB] [available 300GiB]
//! group NAME [weight 2] [in PARENT] [reserved 200] [keys 1,2]
//! 0s   ask 1 NAME [key 7] [class flex|priority] [tokens 500+200]        a request without a seat arrives
//! 0s   costs NAME 100+2000 / takes 1 500+200 / ungroup NAME       the cost of tokens in microseconds; tokens of request t1; a group is deleted
//! 0s   within 1 30s              the client of request t1 waits no longer than this
//! 3s   ready 1                   the engine of replica r1 is ready
//! 4s   end 1                     request t1 ends, however
//! 5s   load NAME [x2] [gpus 4] [priority 3] [lease 2h] [keep_hot 1h] [force] [nowait]
//! 6s   unload NAME [now] / set NAME priority 2 / change NAME keep_hot 1h|none / cleanup [idle] [begun 1m] / reopen / reset / shutdown
//! 6s   why NAME                  what was compared for the last record of the model that has it
//! 7s   crash 1 WORDS / hopeless 1 WORDS / unlucky 1 WORDS / oom 3 [needs 20GiB] / exits 1 / leave 2 / plan NAME / wait
//! 7s   member 1 on 2 exits / member 1 on 2 crash|unlucky WORDS     the process of replica r1 on node 2
//! 8s   foreign d0 10GiB / reading d0 [foreign 3GiB] [own 1=30GiB] / fails d0 [lost]: WORDS
//! 9s   fetched NAME / unfetched NAME WORDS / ungettable NAME WORDS / fetch_ends NAME / fetching NAME 20s
//! 9s   asleep 1 / insomnia 1 WORDS / unwoken 1 WORDS / memory 30GiB [node 1]    what the host has left
//! 9s   cordon d0 [until 2h] [for WORD] [now] / uncordon d0
//! 0s   store slow / store quick     from now on the transcript shows what it keeps; slow: these lines answer for it:
//! 9s   saved 1 / unsaved 1 WORDS     the order's number
//! 9s   joins 1 NAME [running 1,2] [demand 1] [loopback|version 0.2.0] / expected 1 NAME / silent 1 / gone 1 WORDS / weights 1 NAME,NAME    the node's number
//! 9s   holds 1 NAME / allows 1 NAME d0,d1|none / adopts 1 NAME d0=30GiB,d1=30GiB     after a restart; the replica's number
//! 9s   ends 1 2h / leaves 1 10m     when the node must be gone, in the story's time: its limit, or since it was ordered to end
//! 9s   shape 1 SIZE x4 80GiB [cost 120] [kind 1] [most 2] / pending 1000 [waits] WORDS / refuses 1000 WORDS / closed 1 [room 2] WORDS / leased 3 1 1000    nodes that may be requested
//! 9s   drain 1 [until 2h] [for WORD] [now] / undrain 1
//! 9s   limits [preempt 5s] [drain 1m] [asleep 10m] [renew 5m] [nodes 2] [gpu_hours 8] [cents 500] [consolidate no] [policy lru] [objective reload] [yields never] [targets 0=30s,1=10s]    the configuration was read again
//! 0s   batches NAME 100 [evict] [by 2h] [deadline_evicts]     the open requests of batches for a model
//! 9s   source 1 page-cache / measured NAME 30GiB [x2] [kind 1] / remove NAME
//! ```

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::args::{Options, bytes, number, span, target};
use super::group_lines::StoryGroups;
use super::narration::shares;
use super::world::World;
use pool::{
    Action, BatchDemand, CleanupScope, Command, DeviceId, DeviceReading, Event, Exit, Explanation,
    HostReading, IdleYields, KeyId, Limits, Link, LoadOrder, ModelId, NodeAmounts, NodeBudget,
    NodeId, NodeShape, Objective, OrderId, Override, OverrideChange, Policy, Pool, Priority,
    Remedy, ReplicaId, Span, Ticket, Tier, Time, check,
};

/// An invalid line of a story.
#[derive(Debug, PartialEq, Eq)]
pub struct StoryError {
    /// Counts from 1.
    pub line: usize,
    pub message: String,
}

impl core::fmt::Display for StoryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl core::error::Error for StoryError {}

/// Plays the story and returns its text with the transcript inserted. Transcript lines of the input are ignored, so
/// the result can be played again.
pub fn play(text: &str) -> Result<String, StoryError> {
    let mut teller = StoryRunner::new();
    let mut transcript = String::new();
    for (nth, line) in text.lines().enumerate() {
        if line.starts_with('>') {
            continue;
        }
        transcript.push_str(line);
        transcript.push('\n');
        let args: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect();
        if !args.is_empty() {
            teller
                .line(&args, &mut transcript)
                .map_err(|message| StoryError {
                    line: nth + 1,
                    message,
                })?;
        }
    }
    Ok(transcript)
}

pub(super) struct StoryRunner {
    pub(super) world: World,
    pub(super) models: BTreeMap<String, ModelId>,
    pub(super) devices: BTreeMap<String, (DeviceId, DeviceReading)>,
    pub(super) links: Vec<(DeviceId, DeviceId, Link)>,
    pub(super) hosts: BTreeMap<NodeId, HostReading>,
    pub(super) shapes: Vec<NodeShape>,
    pub(super) groups: StoryGroups,
    pub(super) batches: BTreeMap<ModelId, BatchDemand>,
    order_next: u64,
    /// The transcript also shows what the store is ordered to write.
    pub(super) tells_store: bool,
    /// The explanations of the last records of models.
    pub(super) explained: BTreeMap<String, Arc<Explanation>>,
}

impl StoryRunner {
    fn new() -> StoryRunner {
        let world = World::new(Pool::new(Limits::default(), false, ReplicaId(1)));
        StoryRunner {
            world,
            models: BTreeMap::new(),
            devices: BTreeMap::new(),
            links: Vec::new(),
            hosts: BTreeMap::new(),
            shapes: Vec::new(),
            groups: StoryGroups::default(),
            batches: BTreeMap::new(),
            order_next: 1,
            tells_store: false,
            explained: BTreeMap::new(),
        }
    }

    fn line(&mut self, args: &[&str], transcript: &mut String) -> Result<(), String> {
        match args[0] {
            "device" => return self.device(args),
            "host" => return self.host(args),
            "group" => return self.group(args, transcript),
            "model" => return self.model(args, transcript),
            _ => {}
        }
        let at = Time(span(args[0])?.0);
        if at < self.world.now {
            return Err(format!("{} is earlier than the line before", args[0]));
        }
        self.wakes_until(at, transcript);
        let what = *args.get(1).ok_or("an event is missing after the time")?;
        let rest = &args[2..];
        if what == "plan" {
            return self.plan(at, rest, transcript);
        }
        if what == "ask" {
            return self.ask(at, rest, transcript);
        }
        if what == "why" {
            return self.why(rest, transcript);
        }
        if what == "store" {
            self.tells_store = true;
            self.world.unsaved = match rest {
                ["slow"] => Some(Vec::new()),
                ["quick"] => None,
                _ => return Err("write `store slow` or `store quick`".to_owned()),
            };
            return Ok(());
        }
        let event = self.event(at, what, rest)?;
        if let Some(event) = event {
            self.feed(at, event, transcript);
        }
        Ok(())
    }

    /// The pool's wake-ups up to `at`, each at its own time.
    fn wakes_until(&mut self, at: Time, transcript: &mut String) {
        while let Some(wake) = self.world.wake.filter(|wake| *wake <= at) {
            let before = transcript.len();
            self.feed(wake, Event::TimerFired, transcript);
            if transcript.len() > before {
                transcript.insert_str(before, &format!("> ({wake})\n"));
            }
        }
    }

    pub(super) fn feed(&mut self, at: Time, event: Event, transcript: &mut String) {
        self.feed_all(at, vec![event], transcript);
    }

    pub(super) fn feed_all(&mut self, at: Time, events: Vec<Event>, transcript: &mut String) {
        let actions = self.world.feed_all(at, events);
        for action in &actions {
            if let Action::Record(record) = action
                && let (Some(model), Some(explanation)) = (&record.model, &record.explanation)
            {
                self.explained
                    .insert(model.clone(), Arc::clone(explanation));
            }
            if let Some(line) = self.describe(action) {
                let _ = writeln!(transcript, "> {line}");
            }
        }
        for violation in check(&self.world.pool) {
            let _ = writeln!(transcript, "> BROKEN: {violation}");
        }
    }

    fn event(&mut self, at: Time, what: &str, rest: &[&str]) -> Result<Option<Event>, String> {
        let replica = || number(rest.first()).map(ReplicaId);
        Ok(Some(match what {
            "wait" => Event::TimerFired,
            // A request for a ready model takes its seat at the gate, without the pool.
            "enter" => {
                let ticket = Ticket(number(rest.first())?);
                let replica = ReplicaId(number(rest.get(1))?);
                let options = Options::from_args(rest.get(2..).unwrap_or_default())?;
                let key = KeyId(options.number("key")?.unwrap_or(0));
                if !self.world.enter((ticket, key), replica, u32::MAX, at) {
                    return Err(format!("the gate of {replica} is not open"));
                }
                return Ok(None);
            }
            "within" => Event::RequestGivesUp {
                ticket: Ticket(number(rest.first())?),
                at: at + span(rest.get(1).copied().unwrap_or_default())?,
            },
            "leave" => Event::RequestLeft {
                ticket: Ticket(number(rest.first())?),
            },
            "end" => {
                let ticket = Ticket(number(rest.first())?);
                if !self.world.seats.contains_key(&ticket) {
                    return Err(format!("request {} has no seat", ticket.0));
                }
                self.world.end(ticket, at).unwrap_or(Event::TimerFired)
            }
            "ready" => Event::ReplicaReady {
                replica: replica()?,
            },
            "asleep" => Event::ReplicaAsleep {
                replica: replica()?,
            },
            "insomnia" => Event::SleepFailed {
                replica: replica()?,
                message: rest.get(1..).unwrap_or_default().join(" "),
            },
            "unwoken" => Event::WakeFailed {
                replica: replica()?,
                message: rest.get(1..).unwrap_or_default().join(" "),
            },
            "memory" => self.host_memory(rest)?,
            "fetched" | "unfetched" | "ungettable" | "fetch_ends" | "fetching" => {
                self.fetch(what, rest)?
            }
            "saved" | "unsaved" => {
                let order = OrderId(number(rest.first())?);
                let unsaved = self.world.unsaved.as_mut();
                let unsaved = unsaved.filter(|unsaved| unsaved.contains(&order));
                unsaved
                    .ok_or_else(|| format!("{order} is not being saved"))?
                    .retain(|saved| *saved != order);
                if what == "saved" {
                    Event::Saved { order }
                } else {
                    let message = rest[1..].join(" ");
                    Event::SaveFailed { order, message }
                }
            }
            "ungroup" => self.ungroup(rest)?,
            "batches" => self.batches(rest)?,
            "costs" => self.token_costs(rest)?,
            "takes" => self.takes(rest)?,
            "exits" => Event::ReplicaExited {
                replica: replica()?,
                exit: Exit::Requested,
            },
            "lost" => Event::ReplicaLost {
                replica: replica()?,
            },
            "member" => {
                let node = number(rest.get(2)).map(|node| NodeId(node as u32))?;
                let message = rest.get(4..).unwrap_or_default().join(" ");
                let failed = |remedy| Exit::Failed { message, remedy };
                let exit = match rest.get(3) {
                    Some(&"exits") => Exit::Requested,
                    Some(&"crash") => failed(Remedy::Time),
                    Some(&"unlucky") => failed(Remedy::Retry),
                    _ => return Err("how does it end, as in member 1 on 2 exits?".to_owned()),
                };
                Event::MemberExited {
                    replica: replica()?,
                    node,
                    exit,
                }
            }
            "crash" | "hopeless" | "unlucky" => {
                let message = rest.get(1..).unwrap_or_default().join(" ");
                let remedy = match what {
                    "hopeless" => Remedy::Change,
                    "unlucky" => Remedy::Retry,
                    _ => Remedy::Time,
                };
                Event::ReplicaExited {
                    replica: replica()?,
                    exit: Exit::Failed { message, remedy },
                }
            }
            "oom" => {
                let args = rest.get(1..).unwrap_or_default();
                let needed = match args {
                    ["needs", needed] => Some(bytes(needed)?),
                    [] => None,
                    _ => return Err("`oom 3`, or `oom 3 needs 20GiB`".to_owned()),
                };
                let message = "CUDA out of memory".to_owned();
                Event::ReplicaExited {
                    replica: replica()?,
                    exit: Exit::OutOfMemory { message, needed },
                }
            }
            "source" => {
                let name = *rest.get(1).ok_or("which source?")?;
                let tier = Tier::ALL.into_iter().find(|tier| tier.name() == name);
                Event::LoadsFrom {
                    replica: replica()?,
                    tier: tier.ok_or_else(|| format!("no source {name}"))?,
                }
            }
            "reading" => self.reading(at, rest)?,
            "fails" => self.trouble(rest)?,
            "joins" | "expected" | "holds" | "allows" | "silent" | "gone" | "weights" | "ends"
            | "leaves" => self.node_event(what, rest)?,
            "adopts" => self.adopts(rest)?,
            "shape" | "pending" | "refuses" | "spent" | "closed" | "leased" => {
                self.demand_event(what, rest)?
            }
            "measured" => self.measured(rest)?,
            "limits" => {
                let options = Options::from_args(rest)?;
                let or = |key: &str, default: Span| {
                    let given = options.get(key).map(span).transpose()?;
                    Ok::<_, String>(given.unwrap_or(default))
                };
                let usual = Limits::default();
                Event::LimitsSet {
                    limits: Limits {
                        preempt_drain: or("preempt", usual.preempt_drain)?,
                        unload_drain: or("drain", usual.unload_drain)?,
                        keep_asleep: or("asleep", usual.keep_asleep)?,
                        node_renew_before: options.get("renew").map(span).transpose()?,
                        nodes_max: options.number("nodes")?.map(|most| most as u32),
                        node_consolidates: options.get("consolidate") != Some("no"),
                        node_budget: NodeBudget {
                            day: NodeAmounts {
                                gpu_seconds: options.number("gpu_hours")?.map(|hours| hours * 3600),
                                cents: options.number("cents")?,
                            },
                            ..NodeBudget::default()
                        },
                        policy: match options.get("policy") {
                            Some("lru") => Policy::LRU,
                            Some(other) => return Err(format!("no policy {other}")),
                            None => usual.policy,
                        },
                        objective: match options.get("objective") {
                            Some("wait") => Objective::WAIT,
                            Some("balanced") => Objective::BALANCED,
                            Some("reload") => Objective::RELOAD,
                            Some(other) => return Err(format!("no objective {other}")),
                            None => usual.objective,
                        },
                        idle_yields: match options.get("yields") {
                            Some("auto") | None => usual.idle_yields,
                            Some("never") => IdleYields::Never,
                            Some(time) => IdleYields::After(span(time)?),
                        },
                        targets: match options.get("targets") {
                            Some(targets) => {
                                targets.split(',').map(target).collect::<Result<_, _>>()?
                            }
                            None => usual.targets,
                        },
                        ..usual
                    },
                }
            }
            "foreign" => {
                let name = *rest.first().ok_or("which device?")?;
                let (device, reading) = self
                    .devices
                    .get_mut(name)
                    .ok_or_else(|| format!("no device {name}"))?;
                reading.foreign = bytes(rest.get(1).ok_or("how much?")?)?;
                Event::DeviceRead {
                    device: *device,
                    reading: reading.clone(),
                }
            }
            "remove" => Event::ModelRemoved {
                model: self.named(rest.first())?,
            },
            _ => {
                let command = self.command(at, what, rest)?;
                let order = OrderId(self.order_next);
                self.order_next += 1;
                Event::OrderReceived { order, command }
            }
        }))
    }

    fn command(&self, at: Time, what: &str, rest: &[&str]) -> Result<Command, String> {
        let drain = Span::from_secs(600);
        Ok(match what {
            "load" => Command::Load(self.load(rest)?),
            "unload" => {
                let options = Options::from_args(&rest[1..])?;
                let replica = options.number("replica")?.map(ReplicaId);
                Command::Unload {
                    model: self.named(rest.first())?,
                    replica,
                    now: options.has("now"),
                }
            }
            "set" => {
                let options = Options::from_args(&rest[1..])?;
                let over = Override {
                    priority: options
                        .number("priority")?
                        .map(|priority| Priority(priority as u32)),
                    keep_hot: options.get("keep_hot").map(span).transpose()?,
                    expires: options
                        .get("lease")
                        .map(span)
                        .transpose()?
                        .map(|lease| at + lease),
                };
                Command::Set {
                    model: self.named(rest.first())?,
                    change: OverrideChange::replace_all(over),
                }
            }
            // Changes only the named fields, as `PATCH` does.
            "change" => {
                let options = Options::from_args(&rest[1..])?;
                let priority = match options.get("priority") {
                    Some("none") => Some(None),
                    _ => options
                        .number("priority")?
                        .map(|priority| Some(Priority(priority as u32))),
                };
                let keep_hot = match options.get("keep_hot") {
                    Some("none") => Some(None),
                    other => other.map(span).transpose()?.map(Some),
                };
                Command::Set {
                    model: self.named(rest.first())?,
                    change: OverrideChange {
                        priority,
                        keep_hot,
                        expires: None,
                    },
                }
            }
            "cleanup" => {
                let options = Options::from_args(rest)?;
                let scope = if options.has("idle") {
                    CleanupScope::Idle
                } else {
                    CleanupScope::All
                };
                let begun = options.get("begun").map(span).transpose()?;
                Command::Cleanup {
                    scope,
                    drain,
                    begun: begun.map(|begun| Time(begun.0)),
                }
            }
            "cordon" => {
                let options = Options::from_args(rest.get(1..).unwrap_or_default())?;
                let until = options.get("until").map(span).transpose()?;
                Command::Cordon {
                    device: self.device_named(rest.first())?,
                    reason: options.get("for").unwrap_or("maintenance").to_owned(),
                    until: until.map(|until| Time(until.0)),
                    now: options.has("now"),
                }
            }
            "uncordon" => Command::Uncordon {
                device: self.device_named(rest.first())?,
            },
            "drain" | "undrain" => self.node_command(what, rest)?,
            "reopen" => Command::Reopen,
            "reset" => Command::Reset,
            "shutdown" => Command::Shutdown { drain },
            _ => return Err(format!("unknown event `{what}`")),
        })
    }

    fn load(&self, rest: &[&str]) -> Result<LoadOrder, String> {
        let model = self.named(rest.first())?;
        let options = Options::from_args(&rest[1..])?;
        Ok(LoadOrder {
            model,
            replicas: options.times,
            devices: options.number("gpus")?.map(|count| count as u32),
            priority: options
                .number("priority")?
                .map(|priority| Priority(priority as u32)),
            keep_hot: options.get("keep_hot").map(span).transpose()?,
            lease: options.get("lease").map(span).transpose()?,
            force: options.has("force"),
            waits: !options.has("nowait"),
        })
    }

    fn plan(&mut self, at: Time, rest: &[&str], transcript: &mut String) -> Result<(), String> {
        let load = self.load(rest)?;
        let pool = self.world.pool.clone();
        let plan = pool.preview(at, &load).ok_or("no such model")?;
        match (&plan.refusal, &plan.node) {
            (Some(refusal), _) => {
                let _ = writeln!(transcript, "> plan: refused, {refusal}");
            }
            (None, Some(node)) => {
                let verb = if node.is_open {
                    "waits for"
                } else {
                    "requests"
                };
                let what = match node.nodes {
                    1 => "a node".to_owned(),
                    nodes => format!("{nodes} nodes"),
                };
                let _ = writeln!(transcript, "> plan: {verb} {what} of size {}", node.shape);
            }
            (None, None) => {
                let victims: Vec<String> = plan
                    .victims
                    .iter()
                    .map(|victim| format!("{} ({})", victim.name, victim.replica))
                    .collect();
                let _ = writeln!(
                    transcript,
                    "> plan: on {}, evicts [{}]",
                    shares(&plan.placement),
                    victims.join(", ")
                );
            }
        }
        if let Some(length) = plan.fetches_for {
            let _ = writeln!(transcript, ">   fetched first, for about {length}");
        }
        for line in self.world.pool.candidates(&plan) {
            let _ = writeln!(transcript, ">   {line}");
        }
        Ok(())
    }

    pub(super) fn named(&self, name: Option<&&str>) -> Result<ModelId, String> {
        let name = *name.ok_or("which model?")?;
        self.models
            .get(name)
            .copied()
            .ok_or_else(|| format!("no model {name}"))
    }

    /// The model's name in the story.
    pub(super) fn name(&self, model: ModelId) -> &str {
        self.models
            .iter()
            .find(|(_, id)| **id == model)
            .map_or("?", |(name, _)| name)
    }
}
