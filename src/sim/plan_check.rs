//! Compares plans with what their loads then do. In a copy of the world, a drawn load is planned, ordered and stored in one turn: its
//! verdict, places, victims and refusal must equal the plan's.

use alloc::string::String;
use alloc::vec::Vec;

use super::random::Random;
use super::world::World;
use pool::{
    Action, Command, Event, LoadOrder, ModelId, ModelView, OrderId, Outcome, Plan, Priority,
    Prospect, Record, RecordKind, ReplicaId, Span, StopReason,
};

/// The number of steps between two comparisons.
const EVERY: u64 = 25;
/// The number of steps between two forecasts. Each of them plays many steps.
const FORECAST_EVERY: u64 = 500;
/// The order in the copies.
const ORDER: OrderId = OrderId(u64::MAX - 2);

/// The number of compared plans, by what the load did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlansCompared {
    /// It got free memory.
    pub placed: u64,
    /// It got memory of replicas that leave.
    pub evicted: u64,
    /// It woke a sleeping engine.
    pub woken: u64,
    pub refused: u64,
    /// It waits for memory, for weights, or for a node.
    pub waits: u64,
    /// It waits for other loads from its disk.
    pub held: u64,
    /// There were enough replicas.
    pub loaded: u64,
}

impl PlansCompared {
    /// The number of comparisons.
    pub fn all(&self) -> u64 {
        let with_place = self.placed + self.evicted + self.woken;
        with_place + self.refused + self.waits + self.held + self.loaded
    }

    pub fn add(&mut self, other: &PlansCompared) {
        self.placed += other.placed;
        self.evicted += other.evicted;
        self.woken += other.woken;
        self.refused += other.refused;
        self.waits += other.waits;
        self.held += other.held;
        self.loaded += other.loaded;
    }

    /// Compares the plan of a drawn load with the load, in the state after this step of a storm. Returns the difference. With
    /// `is_forced`, the plan is that of a forced load and the load is not forced: a planted fault.
    pub(super) fn check(
        &mut self,
        world: &World,
        step: u64,
        models: u64,
        is_forced: bool,
    ) -> Option<String> {
        if !step.is_multiple_of(EVERY) {
            return None;
        }
        let mut random = Random::new(step ^ (world.now.0 << 16));
        let mut load = any_load(&mut random, models);
        load.force &= !is_forced;
        let planned = LoadOrder {
            force: load.force || is_forced,
            ..load.clone()
        };
        if step.is_multiple_of(FORECAST_EVERY)
            && let Some(unknown) = unknown_ticket(world)
        {
            return Some(unknown);
        }
        self.compare(world, &planned, load)
    }

    fn compare(&mut self, world: &World, planned: &LoadOrder, load: LoadOrder) -> Option<String> {
        let mut copy = world.clone();
        let now = copy.now;
        // Earlier orders are stored first, and the pool has read all gates.
        for order in copy.unsaved.take().unwrap_or_default() {
            copy.feed(now, Event::Saved { order });
        }
        copy.feed(now, Event::TimerFired);
        let preview = copy.pool.clone().preview_with_effect(now, planned)?;
        let plan = preview.plan;
        let view = copy.pool.view(now);
        let before = view.models.iter().find(|model| model.model == load.model)?;
        let waits = load.waits;
        // A plan shows the first replica alone. Later ones are refused if they evict more.
        let is_exact = load.replicas.is_none_or(|count| count == 1);
        let effect = preview.effect.filter(|_| is_exact);
        let command = Command::Load(load);
        let order = ORDER;
        let ordered = match effect {
            None => Event::OrderReceived { order, command },
            // Nothing has changed since the plan, so the order is not refused for that.
            Some(effect) => Event::PlannedOrderReceived {
                order,
                command,
                priority_max: None,
                effect,
            },
        };
        let actions = copy.feed(now, ordered);
        let done = Done::new(&actions);
        let difference = match done.refusal() {
            Some(refusal) => {
                self.refused += 1;
                (plan.refusal.as_ref() != Some(refusal)).then_some("another refusal")
            }
            None if plan.refusal.is_some() => self.waits_without_room(&plan, &done, before, waits),
            None => self.is_placed(&plan, &done),
        }?;
        Some(format!(
            "plan = load: at {now}, {planned:?}: {difference}; the plan: {plan:?}; the load: {done:?}"
        ))
    }

    /// The plan refuses, and the load has not been refused.
    fn waits_without_room(
        &mut self,
        plan: &Plan,
        done: &Done<'_>,
        before: &ModelView,
        waits: bool,
    ) -> Option<&'static str> {
        self.waits += 1;
        // A load of a model that has a replica ends when that one is ready, with the refusal for the others.
        let may_wait = !before.replicas.is_empty() || (waits && plan.prospect <= Prospect::Soon);
        match (done.load, may_wait) {
            (Some(_), _) => Some("a refused load is placed"),
            (None, false) => Some("a refused load is accepted"),
            (None, true) => None,
        }
    }

    /// The plan does not refuse.
    fn is_placed(&mut self, plan: &Plan, done: &Done<'_>) -> Option<&'static str> {
        let Some(record) = done.load else {
            let is_there = done.outcome.is_some() || plan.candidates.is_empty();
            if plan.node.is_some() || plan.fetches_for.is_some() {
                self.waits += 1;
            } else if is_there {
                self.loaded += 1;
            } else {
                self.held += 1;
            }
            return None;
        };
        let victims = plan.victims.iter().filter(|victim| !victim.planned);
        let mut victims: Vec<ReplicaId> = victims.map(|victim| victim.replica).collect();
        victims.sort();
        if plan.wakes.is_some() {
            self.woken += 1;
        } else if victims.is_empty() {
            self.placed += 1;
        } else {
            self.evicted += 1;
        }
        if record.placement != plan.placement {
            Some("another place")
        } else if plan.wakes.is_some() && plan.wakes != record.replica {
            Some("another sleeper")
        } else {
            (victims != done.victims).then_some("other victims")
        }
    }
}

/// The effects of the order in its turn.
#[derive(Debug)]
struct Done<'a> {
    /// The first load that was planned for it.
    load: Option<&'a Record>,
    victims: Vec<ReplicaId>,
    outcome: Option<&'a Outcome>,
}

impl<'a> Done<'a> {
    fn new(actions: &'a [Action]) -> Done<'a> {
        let mut done = Done {
            load: None,
            victims: Vec::new(),
            outcome: None,
        };
        for action in actions {
            match action {
                Action::Settle { order, outcome } if *order == ORDER => {
                    done.outcome = Some(outcome);
                }
                _ if done.load.is_some() => {}
                Action::Record(record) if record.kind == RecordKind::Load => {
                    if record.order == Some(ORDER) {
                        done.load = Some(record);
                    } else {
                        done.victims.clear();
                    }
                }
                Action::Record(record) if record.kind == RecordKind::Evict => {
                    done.victims.extend(record.replica);
                }
                Action::Stop {
                    replica,
                    reason: StopReason::SleeperDropped { .. },
                    ..
                } => done.victims.push(*replica),
                _ => {}
            }
        }
        done.victims.sort();
        done
    }

    /// The refusal of the load, or of the replicas that it lacks.
    fn refusal(&self) -> Option<&pool::Refusal> {
        match self.outcome? {
            Outcome::Refused { refusal, .. } => Some(refusal),
            Outcome::Loaded(result) => result.shortfall.as_ref(),
            _ => None,
        }
    }
}

/// Makes a forecast in any state that a storm reaches. Returns a difference if it has a request that does not wait.
fn unknown_ticket(world: &World) -> Option<String> {
    let seats = world.pool.clone().forecasts(world.now);
    let waiting = world.pool.view(world.now).waiting;
    let waits = |ticket| waiting.iter().any(|request| request.ticket == ticket);
    let unknown = seats.keys().find(|ticket| !waits(**ticket))?;
    Some(format!("a forecast of {unknown}, which does not wait"))
}

fn any_load(random: &mut Random, models: u64) -> LoadOrder {
    let some =
        |random: &mut Random, low, high| random.chance(400).then(|| random.between(low, high));
    LoadOrder {
        model: ModelId(random.below(models) as u32),
        replicas: some(random, 1, 3).map(|count| count as u32),
        devices: random.chance(200).then(|| random.between(1, 3) as u32),
        priority: some(random, 0, 3).map(|priority| Priority(priority as u32)),
        keep_hot: None,
        lease: some(random, 60_000, 900_000).map(Span),
        force: random.chance(150),
        waits: random.chance(500),
    }
}
