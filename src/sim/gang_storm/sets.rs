//! Checks the requests for nodes in a storm of gangs (S2, M8): within the limits before the first of a set, one gang after another,
//! nothing placed before all nodes of a set are here, and no part of a set kept without the others.

use alloc::vec::Vec;

use super::{Due, Play};
use pool::{DemandId, ModelId, ModelView, NodeId, NodeSpan, Priority, ShapeId, Span, Time};

/// `cluster.patience`, the default.
const PATIENCE: Span = Span::from_secs(180);
/// The time for which as many nodes of a size are not requested again after a refusal (S2).
const NOT_AGAIN: Span = Span::from_secs(300);
/// The time within which the pool acts.
const SLACK: Span = Span::from_secs(2);

/// Requests that were made together.
#[derive(Clone, Debug)]
pub(super) struct SeenSet {
    model: ModelId,
    shape: ShapeId,
    members: Vec<Member>,
    /// The time at which a request of it failed, or was withdrawn, or its node ended.
    broken: Option<Time>,
    /// A node has less than its size promises, so the pool may see the set otherwise.
    is_odd: bool,
}

#[derive(Clone, Debug)]
struct Member {
    demand: DemandId,
    node: Option<NodeId>,
    joined: Time,
    /// Something was loaded on its node, or the node was given up.
    is_used: bool,
}

impl SeenSet {
    fn is_complete(&self) -> bool {
        self.members.iter().all(|member| member.node.is_some())
    }

    fn gathers(&self) -> bool {
        let some = self.members.iter().any(|member| member.node.is_some());
        self.broken.is_none() && !self.is_complete() && some
    }
}

impl Play {
    pub(super) fn check_requested(&mut self, at: Time, demands: &[DemandId], shape: ShapeId) {
        let view = self.world.pool.view(at);
        let pending = view.node_demands.iter();
        let pending = pending.filter(|pending| demands.contains(&pending.demand));
        let pending: Vec<_> = pending.cloned().collect();
        // A request may be withdrawn in the turn that made it.
        let Some(first) = pending.first() else {
            return;
        };
        let leased = view.nodes.iter().filter(|node| node.demand.is_some());
        let held = leased.clone().count() + self.leases.open.len() + demands.len();
        let of_size = leased.filter(|node| node.shape == Some(shape)).count();
        let open = self.leases.open.values();
        let of_size = of_size + open.filter(|open| open.shape == shape).count() + demands.len();
        let most = self.leases.limits.nodes_max.unwrap_or(u32::MAX) as usize;
        if held > most {
            self.breaks(format!(
                "S2: {held} nodes with {demands:?}, of at most {most}"
            ));
        }
        let most = self.leases.shapes[shape.0 as usize].nodes_max;
        let most = most.unwrap_or(u32::MAX) as usize;
        if of_size > most {
            self.breaks(format!(
                "S2: {of_size} nodes of {shape} with {demands:?}, of at most {most}"
            ));
        }
        let (model, set) = (first.model, first.set);
        let spans = match self.specs[&model].nodes {
            NodeSpan::Exactly(nodes) => nodes as usize,
            NodeSpan::One | NodeSpan::AsNeeded => 1,
        };
        if demands.len() > spans || set.is_some() != (spans > 1) {
            self.breaks(format!(
                "M8: {demands:?} for {model}, which spans {spans} nodes"
            ));
        }
        let refused = self.leases.refused.iter();
        let mut soon = refused.filter(|((of, count), refused)| {
            *of == shape && *count <= demands.len() && at < **refused + NOT_AGAIN
        });
        if let Some(((_, count), _)) = soon.next() {
            let text = format!("S2: {demands:?} of {shape} soon after a refusal of {count}");
            self.breaks(text);
        }
        if set.is_none() {
            let in_set = |demand: &DemandId| {
                let mut sets = self.leases.sets.iter();
                sets.any(|set| set.members.iter().any(|member| member.demand == *demand))
            };
            let mut open = self.leases.open.iter();
            let double = open.find(|(demand, open)| open.shape == shape && !in_set(demand));
            if let Some((other, _)) = double {
                let text = format!("S2: {demands:?} is requested while {other} of {shape} is open");
                self.breaks(text);
            }
            return;
        }
        self.report.sets += 1;
        let open = self.leases.sets.iter();
        let mut open = open.filter(|set| set.broken.is_none() && !set.is_complete());
        if let Some(other) = open.find(|other| other.shape == shape || other.model != model) {
            let text = format!("M8: {demands:?} for {model} while a set is open: {other:?}");
            self.breaks(text);
        }
        let member = |demand: &DemandId| Member {
            demand: *demand,
            node: None,
            joined: at,
            is_used: false,
        };
        self.leases.sets.push(SeenSet {
            model,
            shape,
            members: demands.iter().map(member).collect(),
            broken: None,
            is_odd: false,
        });
    }

    /// A request of a set fails, is withdrawn, or its node ends.
    pub(super) fn set_breaks(&mut self, at: Time, demand: DemandId) {
        for node in self.leases.leased_with(demand) {
            self.timeline.push(at, Due::Leaves(node));
        }
        let mut sets = self.leases.sets.iter_mut();
        let of = sets.find(|set| set.members.iter().any(|member| member.demand == demand));
        if let Some(set) = of.filter(|set| set.broken.is_none() && !set.is_complete()) {
            set.broken = Some(at);
            self.report.broken_sets += 1;
        }
    }

    /// The pool has given up the node. If it returns, it is idle like any other.
    pub(super) fn node_is_given_up(&mut self, node: NodeId) {
        let sets = self.leases.sets.iter_mut();
        for member in sets.flat_map(|set| &mut set.members) {
            member.is_used |= member.node == Some(node);
        }
    }

    /// The cluster refuses a request: as many nodes as have not joined are not requested again soon.
    pub(super) fn notes_refusal(&mut self, at: Time, demand: DemandId) {
        let Some(open) = self.leases.open.get(&demand).copied() else {
            return;
        };
        let mut sets = self.leases.sets.iter();
        let of = sets.find(|set| set.members.iter().any(|member| member.demand == demand));
        let missing = of.map_or(1, |set| {
            let missing = set.members.iter().filter(|member| member.node.is_none());
            missing.count()
        });
        self.leases.refused.insert((open.shape, missing), at);
    }

    pub(super) fn set_member_joins(
        &mut self,
        at: Time,
        demand: DemandId,
        node: NodeId,
        is_short: bool,
    ) {
        for set in &mut self.leases.sets {
            set.is_odd |= is_short;
            for member in &mut set.members {
                if member.demand == demand {
                    (member.node, member.joined) = (Some(node), at);
                }
            }
            if set.broken.is_none()
                && set.is_complete()
                && set.members.iter().any(|member| member.demand == demand)
            {
                self.report.complete_sets += 1;
            }
        }
    }

    /// Nothing is placed on a node before the other nodes of its set are here.
    pub(super) fn check_placed_on(&mut self, node: NodeId) {
        if self.leases.releasing.contains(&node) {
            self.breaks(format!(
                "S2: something is placed on {node}, which is given back"
            ));
        }
        let mut waits = Vec::new();
        for set in &mut self.leases.sets {
            let gathers = set.gathers() && !set.is_odd;
            for member in set
                .members
                .iter_mut()
                .filter(|member| member.node == Some(node))
            {
                member.is_used = true;
                if gathers {
                    waits.push(format!("M8: something is placed on {node} of an open set"));
                }
            }
        }
        self.report.broken.extend(waits);
    }

    /// After each event.
    pub(super) fn check_sets(&mut self, at: Time) {
        let gather = self
            .leases
            .sets
            .iter()
            .filter(|set| set.gathers() && !set.is_odd);
        let gather: Vec<SeenSet> = gather.cloned().collect();
        if gather.len() > 1 {
            self.breaks(format!("M8: two sets hold a part each: {gather:?}"));
        }
        for set in gather {
            let nodes = set.members.iter().filter_map(|member| member.node);
            let last = nodes.map(|node| self.links[&node].joined).max();
            let starts = |member: &&Member| {
                let open = self.leases.open.get(&member.demand);
                open.is_some_and(|open| open.starts)
            };
            let mut missing = set.members.iter().filter(|member| member.node.is_none());
            let is_late = last.is_some_and(|last| last + PATIENCE + SLACK < at);
            if is_late && !missing.all(|member| starts(&member)) {
                self.breaks(format!("M8: a part waits for too long at {at}: {set:?}"));
            }
        }
        self.note_places(at);
        let broken = self
            .leases
            .sets
            .iter()
            .filter(|set| set.broken.is_some() && !set.is_odd);
        let broken: Vec<SeenSet> = broken.cloned().collect();
        for set in broken {
            let since = set.broken.expect("broken");
            let is_left = |member: &Member| {
                let node = member
                    .node
                    .filter(|_| member.joined <= since && !member.is_used)?;
                let link = &self.links[&node];
                let since = since.max(link.joined);
                let is_reached = !link.is_cut && !self.leases.releasing.contains(&node);
                (is_reached && since + PATIENCE + SLACK < at).then_some(node)
            };
            let left = set.members.iter().find_map(is_left);
            if let Some(node) = left.filter(|node| !self.is_of_use(at, *node, set.shape)) {
                self.breaks(format!(
                    "M8: {node} is kept without the others at {at}: {set:?}"
                ));
            }
        }
        self.leases.sets.retain(|set| {
            let ended =
                |member: &Member| member.node.is_none_or(|node| self.links[&node].has_ended);
            set.broken.is_none() || !set.members.iter().all(ended)
        });
    }

    /// A planned load uses its nodes too.
    fn note_places(&mut self, at: Time) {
        if self.leases.sets.is_empty() {
            return;
        }
        let view = self.world.pool.view(at);
        let mut pending = view.node_demands.iter();
        let unknown = pending.find(|pending| {
            let is_open = self.leases.open.contains_key(&pending.demand);
            pending.joined.is_none() && !is_open
        });
        if let Some(pending) = unknown {
            let demand = pending.demand;
            self.breaks(format!("S2: the pool waits for {demand}, which has ended"));
        }
        let replicas = view.models.iter().flat_map(|model| &model.replicas);
        let places = replicas.flat_map(|replica| &replica.shares);
        for node in places.map(|share| self.devices[&share.device].node) {
            for member in self.leases.sets.iter_mut().flat_map(|set| &mut set.members) {
                member.is_used |= member.node == Some(node);
            }
        }
    }

    /// Returns true if a gang may use the node with others: its set is open, or enough nodes of its kind exist.
    fn is_of_use(&self, at: Time, node: NodeId, shape: ShapeId) -> bool {
        let mut sets = self.leases.sets.iter();
        if sets.any(|set| set.shape == shape && set.broken.is_none() && !set.is_complete()) {
            return true;
        }
        let view = self.world.pool.view(at);
        let lacks = |model: &&ModelView| {
            let waits = view
                .waiting
                .iter()
                .any(|waiting| waiting.model == model.model);
            // The only replica of an always-hot model may be on a silent node.
            waits || model.priority >= Priority(2)
        };
        let waiting = view.models.iter().filter(lacks).map(|model| model.model);
        let devices_on = |node: NodeId| {
            let devices = self.devices.values().filter(|device| device.node == node);
            let mut kinds: Vec<_> = devices.map(|device| device.kind).collect();
            kinds.sort();
            kinds
        };
        let alike = self.links.iter().filter(|(id, link)| {
            let is_same = link.reach == self.links[&node].reach;
            !link.is_cut && is_same && devices_on(**id) == devices_on(node)
        });
        let alike = alike.count();
        let mut spans = waiting.map(|model| match self.specs[&model].nodes {
            NodeSpan::Exactly(nodes) => nodes as usize,
            NodeSpan::One | NodeSpan::AsNeeded => 1,
        });
        spans.any(|nodes| nodes > 1 && nodes <= alike)
    }

    /// After a long peace no request is open, and no machine is held without use.
    pub(super) fn check_leases(&mut self) {
        let view = self.world.pool.view(self.world.now);
        // Always-hot models wait for memory without requests.
        let waits = |model: &ModelView| model.priority >= Priority(2) && model.replicas.is_empty();
        if view.models.iter().any(waits) {
            return;
        }
        if let Some(open) = self.leases.open.keys().next().copied() {
            self.breaks(format!("S2: {open} is still open, and no model waits"));
        }
        let held: Vec<NodeId> = self.leases.demands.keys().copied().collect();
        for node in held {
            // The nodes of a lease stay until none of them is used.
            let (demand, _) = self.leases.demands[&node];
            let mut with_it = self.leases.leased_with(demand);
            with_it.push(node);
            let is_free = !self.processes.keys().any(|(_, on)| with_it.contains(on));
            if is_free && !self.leases.releasing.contains(&node) {
                self.breaks(format!("S2: {node} is kept with nothing on it"));
            }
        }
    }
}
