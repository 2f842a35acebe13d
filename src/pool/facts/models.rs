//! The models by id, with the sets that follow from their settings. Reads like a map. Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use core::ops::Deref;

use crate::types::demand::Demand;
use crate::types::fetch::Fetch;
use crate::types::ids::{Bytes, KindId, ModelId, OrderId, Priority, ReplicaId, Span, Time};
use crate::types::load_times::LoadTimes;
use crate::types::model::{LoadWish, ModelSpec, Override};
use crate::types::occupancy::RequestTimes;
use crate::types::queue::Queue;
use crate::types::rent::Rent;
use crate::types::saves::SettingOrders;
use crate::types::tokens::TokenCosts;

/// The longest lease of an order. A lease that ends later was ordered, or is read, under a clock that is wrong by years.
const LEASE_MAX: Span = Span::from_secs(365 * 24 * 3600);

#[derive(Clone, Debug, Default)]
pub(crate) struct Models {
    all: BTreeMap<ModelId, Model>,
    /// Models of always-hot priority, protected now or not.
    hot: BTreeSet<ModelId>,
    /// Models with a part on the host.
    divided: BTreeSet<ModelId>,
    /// Models with wishes from before a restart.
    restoring: BTreeSet<ModelId>,
    /// Models whose weights are being fetched.
    fetching: BTreeSet<ModelId>,
    /// The ends of leases, by the machine's clock.
    leases: BTreeSet<(Time, ModelId)>,
    /// Models that have served a waiting request.
    used: BTreeSet<ModelId>,
}

impl Deref for Models {
    type Target = BTreeMap<ModelId, Model>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Models {
    /// Models of always-hot priority, protected now or not.
    pub fn hot(&self) -> &BTreeSet<ModelId> {
        &self.hot
    }

    /// Returns true if a model keeps a part on the host.
    pub fn any_divided(&self) -> bool {
        !self.divided.is_empty()
    }

    /// Models with wishes from before a restart.
    pub fn restoring(&self) -> impl Iterator<Item = &Model> {
        self.restoring.iter().filter_map(|id| self.all.get(id))
    }

    /// Models whose weights are being fetched.
    pub fn fetching(&self) -> &BTreeSet<ModelId> {
        &self.fetching
    }

    /// The number of models that have served a waiting request.
    pub fn in_use(&self) -> usize {
        self.used.len()
    }

    /// A waiting request for the model was served.
    pub fn has_served(&mut self, id: ModelId) {
        self.used.insert(id);
    }

    pub fn first_lease(&self) -> Option<(Time, ModelId)> {
        self.leases.first().copied()
    }

    pub fn insert(&mut self, id: ModelId, model: Model) {
        self.all.insert(id, model);
    }

    pub fn get_mut(&mut self, id: &ModelId) -> Option<&mut Model> {
        self.all.get_mut(id)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ModelId, &mut Model)> {
        self.all.iter_mut().map(|(&id, model)| (id, model))
    }

    /// Updates the sets that depend on the model's priority, lease and description.
    pub fn reindex(&mut self, id: ModelId) {
        self.leases.retain(|(_, model)| *model != id);
        self.hot.remove(&id);
        self.divided.remove(&id);
        if self.all.get(&id).is_none_or(|model| model.removed) {
            self.used.remove(&id);
        }
        if let Some(model) = self.all.get(&id).filter(|model| !model.removed) {
            if model.priority() >= Priority::ALWAYS_HOT {
                self.hot.insert(id);
            }
            if let Some(expires) = model.over.expires {
                self.leases.insert((expires, id));
            }
        }
        // Replicas of a removed model keep their parts until they end.
        if self
            .all
            .get(&id)
            .is_some_and(|model| model.spec.host_bytes > Bytes::ZERO)
        {
            self.divided.insert(id);
        }
    }

    /// Sets whether a wish from before a restart has still to be carried out.
    pub fn set_restoring(&mut self, id: ModelId, restoring: bool) {
        let Some(model) = self.all.get_mut(&id) else {
            return;
        };
        model.restoring = restoring;
        if restoring {
            self.restoring.insert(id);
        } else {
            self.restoring.remove(&id);
        }
    }

    /// Forgets the wishes of all models that do not outlive this.
    pub fn forget_wishes(&mut self, outlives: impl Fn(&LoadWish) -> bool) {
        for (id, model) in &mut self.all {
            if model.wish.as_ref().is_some_and(&outlives) {
                continue;
            }
            model.wish = None;
            model.wished_by = None;
            model.restoring = false;
            self.restoring.remove(id);
        }
    }

    pub fn begin_fetch(&mut self, id: ModelId, fetch: Fetch) {
        self.all.get_mut(&id).expect("wanted").fetch = Some(fetch);
        self.fetching.insert(id);
    }

    pub fn end_fetch(&mut self, id: ModelId) -> Option<Fetch> {
        let fetch = self.all.get_mut(&id)?.fetch.take()?;
        self.fetching.remove(&id);
        Some(fetch)
    }
}

/// A model: the catalogue's facts (`spec`), the administrators' settings (`over`, `wish`), and its history (the rest). They are
/// separate to rule out confusion.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) spec: ModelSpec,
    pub(crate) over: Override,
    pub(crate) set_by: SettingOrders,
    pub(crate) wish: Option<LoadWish>,
    /// The order that set the wish, while it may still revert it.
    pub(crate) wished_by: Option<OrderId>,
    /// A wish from before a restart that has not been carried out yet.
    restoring: bool,
    pub(crate) removed: bool,
    /// A replica came back from a silence or a restart. It may have been replaced, so surplus replicas leave (N8).
    pub(crate) has_returned: bool,
    /// The registration time. The older always-hot model wins (P4).
    pub(crate) since: Time,
    pub(crate) queue: Queue,
    pub(crate) replicas: BTreeSet<ReplicaId>,
    pub(crate) planned: BTreeSet<ReplicaId>,
    pub(crate) failures: u32,
    /// The time of the last failure, and of the last replica that became ready.
    pub(crate) failed_at: Option<Time>,
    pub(crate) ready_at: Option<Time>,
    /// The number of failures that were crashes of engines that had become ready.
    pub(crate) crashes: u32,
    /// The last failure was permanent, so waiting does not help (L3).
    pub(crate) permanent_failure: bool,
    pub(crate) last_failure: Option<String>,
    pub(crate) cooling_until: Option<Time>,
    pub(crate) demand: Demand,
    /// The measured memory per device, by number and kind of devices (M1).
    pub(crate) learned: BTreeMap<(u32, KindId), Bytes>,
    /// Its last load ran out of memory and has been planned again.
    pub(crate) retried_after_oom: bool,
    pub(crate) load_times: LoadTimes,
    /// The expected time of a load that was never measured, learned from other models.
    pub(crate) learned_load: Option<Span>,
    /// The time its replicas take to end once they are stopped.
    pub(crate) stop_takes: Span,
    /// The time the requests in flight took to end when a busy replica was drained.
    pub(crate) drain_takes: Span,
    pub(crate) request_times: RequestTimes,
    /// The measured cost of its tokens; without it, requests are charged for the time of their seats.
    pub(crate) token_costs: Option<TokenCosts>,
    /// The time for which its requests have waited since one was served (P3).
    pub(crate) rent: Rent,
    pub(crate) last_used: Option<Time>,
    pub(crate) seated: u64,
    /// The number of requests that got their seat from the queue, and their total waiting time.
    pub(crate) waits: u64,
    pub(crate) waits_took: Span,
    pub(crate) fetch: Option<Fetch>,
    /// The time its weights were fetched.
    pub(crate) fetched_at: Option<Time>,
}

impl Model {
    pub(crate) fn new(spec: ModelSpec, since: Time) -> Model {
        Model {
            spec,
            over: Override::default(),
            set_by: SettingOrders::default(),
            wish: None,
            wished_by: None,
            restoring: false,
            removed: false,
            has_returned: false,
            since,
            queue: Queue::default(),
            replicas: BTreeSet::new(),
            planned: BTreeSet::new(),
            failures: 0,
            failed_at: None,
            ready_at: None,
            crashes: 0,
            permanent_failure: false,
            last_failure: None,
            cooling_until: None,
            demand: Demand::default(),
            learned: BTreeMap::new(),
            retried_after_oom: false,
            load_times: LoadTimes::default(),
            learned_load: None,
            stop_takes: Span::ZERO,
            drain_takes: Span::ZERO,
            request_times: RequestTimes::default(),
            token_costs: None,
            rent: Rent::default(),
            last_used: None,
            seated: 0,
            waits: 0,
            waits_took: Span::ZERO,
            fetch: None,
            fetched_at: None,
        }
    }

    pub fn priority(&self) -> Priority {
        self.over.priority.unwrap_or(self.spec.priority)
    }

    /// The time until the model's lease ends (P7), by the machine's clock; `None` if no lease protects it.
    pub(crate) fn lease_left(&self, wall: Time) -> Option<Span> {
        let left = self.over.expires?.since(wall);
        (Span::ZERO < left && left <= LEASE_MAX).then_some(left)
    }

    /// The expected time of the next load.
    pub(crate) fn reload(&self) -> Span {
        let learned = self.load_times.expected().or(self.learned_load);
        learned.unwrap_or(self.spec.reload)
    }

    /// Returns true if a replica has become ready since the last failure and did not crash within `healthy_after`: the failures before
    /// it are no longer in a row (L3).
    pub(crate) fn has_served_since_failure(&self, now: Time, healthy_after: Span) -> bool {
        let healthy = self.ready_at.filter(|at| *at + healthy_after <= now);
        healthy.is_some() && healthy > self.failed_at
    }

    pub(crate) fn forget_failures(&mut self) {
        self.failures = 0;
        self.crashes = 0;
        self.permanent_failure = false;
        self.last_failure = None;
        self.cooling_until = None;
    }

    /// Returns true if an administrator unloaded the model. It returns by demand only, not on its own (P4).
    pub(crate) fn kept_away(&self) -> bool {
        self.wish.as_ref().is_some_and(|wish| wish.replicas == 0)
    }

    /// Returns true if a wish from before a restart has not been carried out yet.
    pub(crate) fn is_restoring(&self) -> bool {
        self.restoring
    }
}
