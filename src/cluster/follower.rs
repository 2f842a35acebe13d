//! Carries out the pool's decisions about nodes, with one call to the cluster at a time, and reports the outcome. Polls the leases
//! while a request is open. Leases that the cluster does not report are unknown, never "gone".

mod lease_return;
mod leftover_leases;
mod messages;
mod open_request;
mod set_request;
mod silent_nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use lease_return::{LeaseReturn, LeaseSelector};
use leftover_leases::LeftoverLeases;
pub use messages::{ClusterNews, ClusterOrder};
use open_request::Open;
use silent_nodes::SilentNodes;

use super::{
    Cluster, ClusterError, LeaseId, LeaseState, NodeLease, Outlook, Release, ShapeRoom, Spending,
};
use config::ClusterSection;
use pool::DemandId;

/// Interval for polling the leases while a request or a release is open.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Interval while nodes with leases are joined. Their time limits may change, for example when a job is preempted.
const LOOK_AT_LIMITS_EVERY: Duration = Duration::from_secs(30);
/// Interval at which days and months are checked for their end.
const ROLL_EVERY: Duration = Duration::from_secs(60);
/// Time for which requests avoid a machine whose node did not join.
const HOST_EXCLUDED_FOR: Duration = Duration::from_secs(3600);
/// If nodes fail to join on more machines than this, the machines are not the cause.
const HOSTS_EXCLUDED_MAX: usize = 3;
/// Limit of leases to be given back.
const ENDING_MAX: usize = 4096;

/// The settings of a follower, and its memory of earlier runs.
#[derive(Default)]
pub struct FollowerSettings {
    pub section: ClusterSection,
    /// The id of this pool, which its requests carry.
    pub owner: Option<String>,
    pub spending: Spending,
}

pub struct Follower<C, N> {
    cluster: C,
    news: N,
    section: ClusterSection,
    spending: Spending,
    /// Leases of the pool's requests have a machine.
    spends: bool,
    /// The id of this pool. Leases of other pools are not touched.
    owner: Option<String>,
    /// Another pool's leases have been reported.
    warned: bool,
    /// Time limit for a running lease's node to join.
    join_within: Duration,
    /// Open requests. Each shape has at most one, and one set.
    open: Vec<Open>,
    /// Requests of sets that the cluster does not know, to be sent again.
    unsent: Vec<Open>,
    /// The last reported shapes of which the cluster can bring only some nodes.
    closed: BTreeMap<String, ShapeRoom>,
    ending: Vec<LeaseReturn>,
    /// Leases of several nodes whose nodes have been ordered to drain.
    drained: BTreeSet<LeaseId>,
    joined: BTreeSet<String>,
    /// The last reported end of each node with a lease, in seconds since 1970.
    ends: BTreeMap<String, u64>,
    /// Nodes whose shape has been reported.
    sized: BTreeSet<String>,
    /// True if a joined node's end is not known yet and its lease may still report it.
    lacks_ends: bool,
    /// Nodes that have left, while their leases are still listed.
    left: BTreeSet<String>,
    silent: SilentNodes,
    left_over: LeftoverLeases,
    /// False if the next poll has to search for left-over leases.
    has_looked: bool,
    excluded: Vec<(String, Instant)>,
    next_look: Instant,
}

impl<C: Cluster, N: Fn(ClusterNews)> Follower<C, N> {
    /// `news` is called with the progress of requests.
    pub fn new(cluster: C, settings: FollowerSettings, news: N) -> Follower<C, N> {
        let now = now();
        Follower {
            cluster,
            news,
            join_within: settings.section.join_within.duration(),
            section: settings.section,
            spending: settings.spending,
            spends: false,
            owner: settings.owner,
            warned: false,
            open: Vec::new(),
            unsent: Vec::new(),
            closed: BTreeMap::new(),
            ending: Vec::new(),
            drained: BTreeSet::new(),
            joined: BTreeSet::new(),
            ends: BTreeMap::new(),
            sized: BTreeSet::new(),
            lacks_ends: false,
            left: BTreeSet::new(),
            silent: SilentNodes::default(),
            left_over: LeftoverLeases::default(),
            has_looked: false,
            excluded: Vec::new(),
            next_look: now,
        }
    }

    /// All leases. Leaves out the leases of another pool with the same name.
    async fn leases(&mut self) -> Result<Vec<NodeLease>, ClusterError> {
        let mut leases = self.cluster.status().await?;
        let Some(own) = &self.owner else {
            return Ok(leases);
        };
        let is_other = |lease: &NodeLease| lease.owner.as_ref().is_some_and(|owner| owner != own);
        if let Some(lease) = leases.iter().find(|lease| is_other(lease))
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::error!(
                "another pool has the same cluster.name and has requested lease {} of size {}; give each pool of this account its own cluster.name",
                lease.id,
                lease.shape
            );
        }
        leases.retain(|lease| !is_other(lease));
        Ok(leases)
    }

    /// Runs until the sender of orders is dropped. Carries out all orders sent before.
    pub async fn run(mut self, mut orders: mpsc::UnboundedReceiver<ClusterOrder>) {
        if self.spending != Spending::default() {
            (self.news)(ClusterNews::Spent(self.spending.clone()));
        }
        loop {
            let is_due = self.is_busy()
                || self.spends
                || !self.ends.is_empty()
                || !self.has_looked
                || self.cluster.shows_room();
            // A new day begins at zero even if there is nothing to poll.
            let rolls = sleep_until(now() + ROLL_EVERY);
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(order) => self.carry_out(order).await,
                    None => return,
                },
                () = sleep_until(self.next_look), if is_due => self.look().await,
                () = rolls, if !self.spends => self.count(&[]),
            }
        }
    }

    fn is_busy(&self) -> bool {
        let is_open = !self.open.is_empty() || !self.ending.is_empty();
        let is_full = self.closed.values().any(|room| room.nodes == 0);
        is_open
            || is_full
            || !self.left_over.is_empty()
            || self.lacks_ends
            || !self.silent.is_empty()
    }

    async fn carry_out(&mut self, order: ClusterOrder) {
        match order {
            ClusterOrder::Request { demands, shape } => self.request(&demands, &shape).await,
            ClusterOrder::Cancel { demand } => {
                let Some(index) = self.open.iter().position(|open| open.demand == demand) else {
                    return;
                };
                let open = self.open.remove(index);
                // The cluster ends the nodes of a set together.
                self.open.retain(|other| !open.is_of_set_with(other));
                let which = open
                    .lease
                    .map_or(LeaseSelector::Demand(demand), LeaseSelector::Lease);
                let mut ending = LeaseReturn::new(which, Release::Now);
                ending.is_cancel = true;
                self.end(ending).await;
            }
            ClusterOrder::Release { node } => {
                self.end(LeaseReturn::new(LeaseSelector::Node(node), Release::Drain))
                    .await;
            }
            ClusterOrder::Joined { node } => {
                self.open.retain(|open| !open.is_met_by(&node));
                self.left_over.joined(&node);
                self.left.remove(&node);
                self.silent.remove(&node);
                self.joined.insert(node);
                self.lacks_ends = true;
                self.look().await;
            }
            ClusterOrder::Leaves { node } if self.ends.contains_key(&node) => self.look().await,
            ClusterOrder::Leaves { .. } => {}
            ClusterOrder::Silent { node } => {
                let is_ours = self.ends.contains_key(&node) || self.cluster.names_node(&node);
                self.silent.add(node, is_ours);
                // Several nodes may fall silent simultaneously; one poll serves all of them.
                self.next_look = now();
            }
            ClusterOrder::Gone { node } => {
                self.joined.remove(&node);
                self.silent.remove(&node);
                self.ends.remove(&node);
                self.sized.remove(&node);
                self.left.insert(node);
                // A cluster that has taken the node away may provide a replacement.
                self.has_looked = false;
                self.next_look = now();
            }
        }
    }

    /// Requests a node for each of `demands`, up to the first that the cluster refuses.
    async fn request(&mut self, demands: &[u64], shape: &str) {
        // The cluster may already be providing a node.
        self.has_looked = false;
        self.look().await;
        if demands.len() > 1 && self.request_set(demands, shape).await {
            self.look().await;
            return;
        }
        for demand in demands {
            let mut open = Open::new(*demand, shape);
            if let Some(lease) = self.left_over.take(shape, DemandId(*demand)) {
                tracing::info!(
                    "lease {}, which exists already, serves the request",
                    lease.id
                );
                open.name_node(lease.node, &self.news);
                open.lease = Some(lease.id);
                self.open.push(open);
            } else {
                let Some(open) = self.submitted(open).await else {
                    return;
                };
                self.open.push(open);
            }
        }
        self.look().await;
    }

    /// Machines on which a node has not joined; empty above `HOSTS_EXCLUDED_MAX`.
    fn hosts_to_avoid(&mut self) -> Vec<String> {
        let now = now();
        self.excluded.retain(|(_, until)| *until > now);
        if self.excluded.len() > HOSTS_EXCLUDED_MAX {
            return Vec::new();
        }
        self.excluded.iter().map(|(host, _)| host.clone()).collect()
    }

    /// Sends the request to the cluster. Returns `None` if the cluster refused it.
    async fn submitted(&mut self, mut open: Open) -> Option<Open> {
        let hosts = self.hosts_to_avoid();
        let (demand, shape) = (open.demand, open.shape.clone());
        open.begin();
        match self.cluster.request(&shape, Some(demand), &hosts).await {
            Ok(id) => {
                tracing::info!("lease {id}: a node of shape {shape} is requested");
                // Kubernetes reuses ids: the previous lease with this id has ended.
                self.ending.retain(
                    |ending| !matches!(&ending.which, LeaseSelector::Lease(old) if *old == id),
                );
                if let Some(node) = self.cluster.node_of(&id) {
                    open.name_node(node, &self.news);
                }
                open.lease = Some(id);
            }
            Err(error) if error.is_unknown() => {
                tracing::warn!(
                    "cannot tell whether the request for a node of shape {shape} was accepted: {error}"
                );
                open.unknown = Some(error.to_string());
            }
            Err(error) => {
                let why = error.to_string();
                (self.news)(ClusterNews::Refused { demand, why });
                return None;
            }
        }
        Some(open)
    }

    /// Polls the leases and acts on changes.
    async fn look(&mut self) {
        let pause = if self.is_busy() {
            LOOK_EVERY
        } else {
            LOOK_AT_LIMITS_EVERY
        };
        self.next_look = now() + pause;
        let leases = match self.leases().await {
            Ok(leases) => leases,
            Err(error) => {
                for open in &mut self.open {
                    open.report(error.to_string(), Outlook::Unknown, &self.news);
                }
                return;
            }
        };
        if !std::mem::replace(&mut self.has_looked, true) {
            self.find_left_over(&leases);
        }
        self.drained
            .retain(|id| leases.iter().any(|lease| lease.id == *id));
        self.left
            .retain(|node| leases.iter().any(|lease| lease.node == *node));
        let spent = self.left_over.look(&leases, &self.joined, self.join_within);
        for id in spent {
            tracing::info!("lease {id} is given back, because no request needs it");
            self.ending
                .push(LeaseReturn::new(LeaseSelector::Lease(id), Release::Now));
        }
        self.count(&leases);
        self.look_at_limits(&leases);
        for (node, why) in self.silent.look(&leases) {
            (self.news)(ClusterNews::Ended { node, why });
        }
        self.look_at_room().await;
        self.look_at_open(&leases).await;
        self.end_leases(&leases).await;
    }

    /// Reports shapes of which the cluster can bring only some nodes, if they have changed. Without a response the last report stays.
    async fn look_at_room(&mut self) {
        if !self.cluster.shows_room() {
            return;
        }
        match self.cluster.closed().await {
            Ok(closed) if closed != self.closed => {
                self.closed.clone_from(&closed);
                (self.news)(ClusterNews::Closed { shapes: closed });
            }
            Ok(_) => {}
            Err(error) => tracing::debug!("the cluster's free machines are unknown: {error}"),
        }
    }

    /// Adds the use since the last call.
    fn count(&mut self, leases: &[NodeLease]) {
        let holds = |lease: &NodeLease| {
            lease.demand.is_some() && matches!(lease.state, LeaseState::Running { .. })
        };
        self.spends = leases.iter().any(holds);
        if self
            .spending
            .count(leases, &self.section, chrono::Local::now())
        {
            (self.news)(ClusterNews::Spent(self.spending.clone()));
        }
    }

    fn look_at_limits(&mut self, leases: &[NodeLease]) {
        self.lacks_ends = false;
        for lease in leases.iter().filter(|lease| !lease.has_ended()) {
            if !self.joined.contains(&lease.node) {
                continue;
            }
            if lease.demand.is_some() && self.sized.insert(lease.node.clone()) {
                (self.news)(ClusterNews::Sized {
                    node: lease.node.clone(),
                    shape: lease.shape.clone(),
                    set: lease.set.map(|set| set.first),
                });
            }
            let Some(unix) = lease.ends_by() else {
                self.lacks_ends |= matches!(lease.state, LeaseState::Pending { .. });
                continue;
            };
            if self.ends.insert(lease.node.clone(), unix) != Some(unix) {
                let node = lease.node.clone();
                (self.news)(ClusterNews::Ends { node, unix });
            }
        }
    }
}

/// Current time. It is only compared with this follower's own deadlines.
#[expect(clippy::disallowed_methods, reason = "the one reading of the clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests;
