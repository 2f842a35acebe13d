//! `Pool::step` is the complete interface of the core: it observes events, then plans and commits decisions until none is left.

use alloc::string::String;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::plan;
use crate::types::action::Answer;
use crate::types::decision::Decision;
use crate::types::event::Event;
use crate::types::ids::Time;

impl Pool {
    /// Processes one event and returns the resulting actions. Time never runs backwards: an earlier `now` counts as the latest one
    /// so far.
    pub fn step(&mut self, now: Time, event: Event) -> Answer {
        self.step_all(now, [event])
    }

    /// Processes several simultaneous events and observes all of them before it decides anything. The gates' counts must precede
    /// the event that needs a decision.
    pub fn step_all(&mut self, now: Time, events: impl IntoIterator<Item = Event>) -> Answer {
        self.step_until(now, events, |_, _| false).0
    }

    /// The same, up to the first decision that `ends` accepts, which is returned and not committed.
    pub(crate) fn step_until(
        &mut self,
        now: Time,
        events: impl IntoIterator<Item = Event>,
        ends: impl Fn(&Pool, &Decision) -> bool,
    ) -> (Answer, Option<Decision>) {
        self.now = self.now.max(now);
        let mut actions = Actions::default();
        self.read_rooms();
        self.time_passes();
        self.record_sums(&mut actions);
        for event in events {
            self.observe(event, &mut actions);
        }
        self.devices_of_demand(&mut actions);
        self.note_idle_nodes();
        self.scale();
        self.agenda.touch_replicas(self.replicas.leaving_later());
        self.retry_demands();
        self.note_movers();
        self.refresh_demands();
        self.devices.update_index();
        // Every decision uses up an item: a ticket, a phase, a step of an order, a planned load, a demand, or a replica that is
        // called for.
        let things =
            self.queues.len() + self.replicas.len() + self.planned.len() + self.orders.len();
        let fetches = self.models.fetching().len() + self.demand_index.to_fetch().len();
        let demand_index = self.demand_index.all().len();
        let replicas = self.replicas_called_for();
        let mut decisions_left = 64
            + 16 * (things
                + self.models.hot().len()
                + demand_index
                + fetches
                + self.devices.settling().len())
            + 16 * replicas
            + 2 * self.nodes.all_known().len();
        let mut last = None;
        while let Some(decision) = plan::next(self) {
            if ends(self, &decision) {
                last = Some(decision);
                break;
            }
            self.commit(decision, &mut actions);
            self.note_movers();
            self.refresh_demands();
            self.devices.update_index();
            decisions_left -= 1;
            assert!(decisions_left > 0, "the plan must reach a fixed point");
        }
        self.note_idle_nodes();
        self.agenda_done();
        let response = Answer {
            actions: actions.into_vec(),
            wake: plan::wake(self),
            // Batches take no memory from replicas that have just become idle.
            idle_matters: self.demand_index.before_batches().next().is_some(),
        };
        (response, last)
    }

    /// The number of replicas called for by administrators' loads, loads remembered from before a restart, and the requests of
    /// models that scale. All of them may be planned and launched in one step.
    fn replicas_called_for(&self) -> usize {
        let loads = self.orders.values().filter(|order| order.load().is_some());
        let ordered = loads.map(|order| order.replicas);
        let restoring = self.models.restoring();
        let wished = restoring.filter_map(|model| Some(model.wish.as_ref()?.replicas));
        let scaled = self.scalers.values().map(|scaler| scaler.wanted);
        let all = ordered.chain(wished).chain(scaled);
        all.map(|replicas| replicas as usize).sum()
    }

    /// Returns the first decision that is due although no change has scheduled it. Touches everything on a copy, and plans each
    /// blocked demand again on its own.
    pub(crate) fn missed(&self) -> Option<String> {
        let mut copy = self.clone();
        copy.touch_everything();
        copy.refresh_demands();
        loop {
            match plan::next(&copy)? {
                Decision::Block { demands } => copy.demand_index.block_all(demands),
                Decision::Defer { rank } => copy.demand_index.defer(rank),
                Decision::Postpone { rank, until } => copy.demand_index.postpone(rank, until),
                // The prospect of waiting is judged when a demand is new, not at every change.
                Decision::Refuse { .. }
                | Decision::Shorten { .. }
                | Decision::GiveUpWish { .. } => {
                    return None;
                }
                decision => return Some(format!("{decision:?}")),
            }
        }
    }

    /// Empties the agenda and sets the timers for decisions that become due later without an event.
    pub(crate) fn agenda_done(&mut self) {
        for replica in self.agenda.clear() {
            let at = plan::due_at(self, replica).filter(|at| *at > self.now);
            self.agenda.set_timer(replica, at);
        }
        self.demand_index.end_step();
        self.orders.end_step();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Action, Bytes, Command, DeviceId, DeviceReading, Limits, LoadOrder, LoadWish, ModelId,
        ModelSpec, OrderId, Override, ReplicaId,
    };

    const REPLICAS: u32 = 200;
    const MODEL: ModelId = ModelId(0);

    /// A large device and a small model.
    fn pool() -> Pool {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let reading = DeviceReading {
            name: "gpu0".into(),
            total: Bytes(1_000),
            ..DeviceReading::default()
        };
        let spec = ModelSpec {
            name: "small".into(),
            bytes_per_device: Bytes(1),
            ..ModelSpec::default()
        };
        let device = DeviceId(0);
        let model = MODEL;
        let events = [
            Event::DeviceRead { device, reading },
            Event::ModelSet { model, spec },
        ];
        pool.step_all(Time(1), events);
        pool
    }

    fn launches(response: &Answer) -> usize {
        let is_launch = |action: &&Action| matches!(action, Action::Launch { .. });
        response.actions.iter().filter(is_launch).count()
    }

    #[test]
    fn a_load_order_launches_all_its_replicas_in_one_step() {
        let mut pool = pool();
        let order = OrderId(1);
        let command = Command::Load(LoadOrder {
            model: MODEL,
            replicas: Some(REPLICAS),
            devices: None,
            priority: None,
            keep_hot: None,
            lease: None,
            force: false,
            waits: true,
        });
        pool.step(Time(1), Event::OrderReceived { order, command });
        let response = pool.step(Time(1), Event::Saved { order });
        assert_eq!(launches(&response), REPLICAS as usize);
    }

    #[test]
    fn a_restored_load_order_for_many_replicas_is_carried_out_in_one_step() {
        let mut pool = pool();
        let load = Some(LoadWish {
            replicas: REPLICAS,
            devices: None,
            since: Time(0),
        });
        let response = pool.step(
            Time(1),
            Event::WishesRestored {
                model: MODEL,
                over: Override::default(),
                load,
            },
        );
        assert_eq!(launches(&response), REPLICAS as usize);
    }
}
