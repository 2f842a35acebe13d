//! The routing table of the hot path: maps a model's name to the gates of its replicas, and chooses the gate for a request. The
//! table is replaced atomically; reading it never waits for the loop.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use super::arrivals::Arrivals;
use super::first_tokens::FirstTokens;
use super::gate::{Gate, Lease};
use super::seat_user::SeatUser;
use super::token_meter::TokenMeter;
use catalog::{Catalog, Entry};
use pool::ModelId;

/// The destination of requests for one model.
#[derive(Debug)]
pub struct Route {
    pub model: ModelId,
    /// The entry's name, for work that outlives the route.
    pub name: Arc<str>,
    pub entry: Arc<Entry>,
    pub(crate) gates: ArcSwap<Vec<Arc<Gate>>>,
    pub(crate) arrivals: Arc<Arrivals>,
    pub first_tokens: Arc<FirstTokens>,
    pub tokens: Arc<TokenMeter>,
}

impl Route {
    /// Returns true if the model has more than one ready replica.
    pub fn has_several(&self) -> bool {
        self.gates.load().len() > 1
    }

    /// Names of the adapters that replicas have loaded.
    pub fn adapters(&self) -> Vec<String> {
        let gates = self.gates.load();
        gates
            .iter()
            .flat_map(|gate| gate.adapters.names())
            .collect()
    }

    /// Returns true if a replica accepts requests.
    pub fn is_ready(&self) -> bool {
        !self.gates.load().is_empty()
    }

    /// The use of its ready replicas: whether one has a free seat, and the requests in flight at the least loaded one. `None`
    /// without a ready replica.
    pub fn readiness(&self) -> Option<(bool, u64)> {
        let gates = self.gates.load();
        let open = gates.iter().filter(|gate| gate.is_open());
        let least = open.map(|gate| gate.load()).min()?;
        Some((gates.iter().any(|gate| gate.has_room()), least))
    }

    /// Returns true if interactive requests leave room for a batch request.
    pub fn has_batch_room(&self) -> bool {
        self.gates.load().iter().any(|gate| gate.has_batch_room())
    }

    /// Takes room for a batch request at the least loaded open gate that has some.
    pub(crate) fn enter_batch(&self, user: &SeatUser, cut: &CancellationToken) -> Option<Lease> {
        let gates = self.gates.load();
        let mut by_load: Vec<&Arc<Gate>> = gates.iter().collect();
        by_load.sort_by_key(|gate| gate.load());
        let mut gates = by_load.into_iter();
        gates.find_map(|gate| gate.try_enter_batch(user, cut.clone()))
    }

    /// Takes a seat at the least loaded open gate. All loads are known here, so there is no need to sample two. `conversation`
    /// prefers the replica that has computed the conversation's prefix, unless that replica is clearly busier.
    pub(crate) fn enter(
        &self,
        user: &SeatUser,
        conversation: Option<u64>,
        adapter: Option<&str>,
    ) -> Option<Lease> {
        let enter = |gate: &Arc<Gate>| gate.try_enter(user);
        let gates = self.gates.load();
        if let (Some(name), [_, _, ..]) = (adapter, gates.as_slice()) {
            let mut gates: Vec<&Arc<Gate>> = gates.iter().collect();
            // Prefers a replica that has the adapter, then one with room for it, then one that has to unload another adapter.
            gates.sort_by_key(|gate| {
                let adapters = &gate.adapters;
                (!adapters.has(name), adapters.counts().0, gate.load())
            });
            return gates.into_iter().find_map(enter);
        }
        match gates.as_slice() {
            [] => None,
            [gate] => enter(gate),
            several => {
                let mut by_load: Vec<&Arc<Gate>> = several.iter().collect();
                by_load.sort_by_key(|gate| gate.load());
                let least = by_load[0].load();
                let home = conversation.and_then(|conversation| {
                    let home = several
                        .iter()
                        .max_by_key(|gate| affinity(conversation, gate.replica.0))?;
                    let slack = 1 + u64::from(self.entry.seats_per_replica) / SLACK_PART;
                    (home.load() <= least + slack).then_some(home)
                });
                home.and_then(enter)
                    .or_else(|| by_load.into_iter().find_map(enter))
            }
        }
    }
}

/// Maximum number of trailing `:` parts of a requested name that may belong to an adapter.
const COLONS_MAX: usize = 2;

/// A conversation stays on its replica while that has at most `1 + seats / SLACK_PART` more requests than the least loaded one.
const SLACK_PART: u64 = 8;

/// The replica with the largest value is the conversation's home. When replicas come or go, most conversations keep their home
/// (rendezvous hashing, Thaler and Ravishankar 1998). The mixing function is SplitMix64's.
fn affinity(conversation: u64, replica: u64) -> u64 {
    let mut mixed = conversation ^ replica.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub catalog: Catalog,
    by_name: BTreeMap<String, Arc<Route>>,
    by_model: BTreeMap<ModelId, Arc<Route>>,
}

impl Routes {
    /// The model of this name, or the base model of an adapter of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Route>> {
        if let Some(route) = self.by_name.get(name) {
            return Some(Arc::clone(route));
        }
        // The base's own name may contain a colon, and an adapter's name adds one or two.
        let mut ends = name.rmatch_indices(':').take(COLONS_MAX);
        ends.find_map(|(end, _)| {
            let base = self.by_name.get(&name[..end])?;
            base.entry.adapter_id(name).map(|_| Arc::clone(base))
        })
    }

    /// The gates of all replicas.
    pub fn gates(&self) -> Vec<Arc<Gate>> {
        let routes = self.by_model.values();
        routes
            .flat_map(|route| route.gates.load().as_ref().clone())
            .collect()
    }

    pub fn route(&self, model: ModelId) -> Option<&Arc<Route>> {
        self.by_model.get(&model)
    }

    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.by_model
            .values()
            .map(|route| Arc::clone(&route.entry))
            .collect()
    }

    /// The table for a catalogue. Gates, arrivals and counts of models that stay are kept.
    pub fn of_catalog(catalog: Catalog, ids: &BTreeMap<String, ModelId>, old: &Routes) -> Routes {
        let mut routes = Routes {
            catalog,
            ..Routes::default()
        };
        for (name, entry) in routes.catalog.entries() {
            let model = ids[name];
            let before = old.route(model);
            let gates = before.map(|route| route.gates.load_full());
            let arrivals = before.map(|route| Arc::clone(&route.arrivals));
            let first_tokens = before.map(|route| Arc::clone(&route.first_tokens));
            let tokens = before.map(|route| Arc::clone(&route.tokens));
            let route = Arc::new(Route {
                model,
                name: name.as_str().into(),
                entry: Arc::new(entry.clone()),
                gates: ArcSwap::new(gates.unwrap_or_default()),
                arrivals: arrivals.unwrap_or_default(),
                first_tokens: first_tokens.unwrap_or_default(),
                tokens: tokens.unwrap_or_default(),
            });
            for alias in entry.aliases.iter().chain(&entry.adapters) {
                routes.by_name.insert(alias.clone(), Arc::clone(&route));
            }
            routes.by_name.insert(name.clone(), Arc::clone(&route));
            routes.by_model.insert(model, route);
        }
        routes
    }
}
