//! Checks the invariants after every step. Recounts everything from the replicas and trusts no ledger or index of the pool. Used by
//! stories, storms and tests.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::facts::state::Pool;
use crate::types::ids::{Bytes, DeviceId, ModelId, NodeId, ReplicaId, Ticket};
use crate::types::reason::LoadReason;
use crate::types::replica::{Phase, Replica};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// M3: reservations exceed what the device has.
    OverCommitted {
        device: DeviceId,
        reserved: Bytes,
        capacity: Bytes,
    },
    /// M3: the replicas that stay and the promises exceed what the device has.
    OverPromised {
        device: DeviceId,
        planned: Bytes,
        capacity: Bytes,
    },
    /// The device's ledger disagrees with the replicas.
    LedgerWrong {
        device: DeviceId,
        says: Bytes,
        counted: Bytes,
    },
    /// Q4: a ticket is in no queue, or in two places.
    TicketLost(Ticket),
    /// L1: a replica has seats in use although it cannot serve.
    SeatsWhileLaunching(ReplicaId),
    /// L1: two simultaneous loads without an order.
    LoadedTwice(ModelId),
    /// M5: a replica spread over nodes, or with the same device twice.
    BadPlacement(ReplicaId),
    /// M8: a replica continues although a process of it has ended.
    HalfGang(ReplicaId),
    /// M8: two replicas with the same leader's node meet at the same port.
    SharedPort(ReplicaId, ReplicaId),
    /// An index disagrees with what it indexes.
    IndexWrong(&'static str),
    /// A decision is due but missing from the agenda.
    Missed(String),
}

/// All violations.
pub fn check(pool: &Pool) -> Vec<Violation> {
    let mut found = Vec::new();
    memory(pool, &mut found);
    hosts(pool, &mut found);
    replicas(pool, &mut found);
    meeting_ports(pool, &mut found);
    queues(pool, &mut found);
    if !pool.devices.is_index_right() {
        found.push(Violation::IndexWrong("devices by their room"));
    }
    found.extend(pool.missed().map(Violation::Missed));
    found
}

fn memory(pool: &Pool, found: &mut Vec<Violation>) {
    let mut reserved: BTreeMap<DeviceId, u64> = BTreeMap::new();
    let mut later: BTreeMap<DeviceId, u64> = BTreeMap::new();
    for replica in pool.replicas.values() {
        for share in &replica.shares {
            *reserved.entry(share.device).or_default() += share.bytes.0;
            if !replica.is_leaving() {
                *later.entry(share.device).or_default() += share.bytes.0;
            }
        }
        for share in replica.keeps() {
            *later.entry(share.device).or_default() += share.bytes.0;
        }
    }
    for planned in pool.planned.values() {
        for share in &planned.shares {
            *later.entry(share.device).or_default() += share.bytes.0;
        }
    }
    for (&device, ledger) in pool.devices.iter() {
        let capacity = ledger.capacity();
        let counted = Bytes(reserved.get(&device).copied().unwrap_or(0));
        let planned = Bytes(later.get(&device).copied().unwrap_or(0));
        if counted > capacity {
            found.push(Violation::OverCommitted {
                device,
                reserved: counted,
                capacity,
            });
        }
        if planned > capacity {
            found.push(Violation::OverPromised {
                device,
                planned,
                capacity,
            });
        }
        if counted != ledger.reserved {
            found.push(Violation::LedgerWrong {
                device,
                says: ledger.reserved,
                counted,
            });
        }
        let staying = ledger.reserved.saturating_sub(ledger.leaving) + ledger.promised;
        if staying != planned {
            found.push(Violation::LedgerWrong {
                device,
                says: staying,
                counted: planned,
            });
        }
    }
}

/// The hosts' ledgers must agree with what the sleepers take.
fn hosts(pool: &Pool, found: &mut Vec<Violation>) {
    let mut held: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
    for (id, replica) in pool.replicas.iter() {
        let is_asleep = matches!(replica.phase, Phase::Asleep { .. });
        if is_asleep != pool.replicas.is_asleep(*id) || is_asleep && replica.parked.is_none() {
            found.push(Violation::IndexWrong("sleepers"));
        }
        let Some(parked) = &replica.parked else {
            continue;
        };
        let (all, returning) = held.entry(pool.node_of(replica)).or_default();
        *all += parked.host.0;
        if matches!(replica.phase, Phase::Stopping { .. }) {
            *returning += parked.host.0;
        }
    }
    for (node, host) in pool.nodes.hosts() {
        let counted = held.get(node).copied().unwrap_or_default();
        if counted != (host.held.0, host.returning.0) {
            found.push(Violation::IndexWrong("what sleepers take of a host"));
        }
    }
}

fn replicas(pool: &Pool, found: &mut Vec<Violation>) {
    for (&id, replica) in pool.replicas.iter() {
        if matches!(replica.phase, Phase::Launching { .. }) && replica.in_flight > 0 {
            found.push(Violation::SeatsWhileLaunching(id));
        }
        let mut devices: Vec<DeviceId> = replica.shares.iter().map(|share| share.device).collect();
        devices.sort();
        devices.dedup();
        let mut nodes: Vec<_> = devices
            .iter()
            .map(|device| pool.devices[device].node)
            .collect();
        nodes.sort();
        nodes.dedup();
        let gang = replica.gang.as_ref();
        let is_right = match gang {
            None => nodes.len() == 1,
            Some(gang) => {
                nodes.len() == gang.running()
                    && nodes.iter().all(|node| gang.rank_on(*node).is_some())
            }
        };
        if gang.is_some_and(|gang| gang.running() < gang.members.len())
            && !matches!(replica.phase, Phase::Stopping { .. })
        {
            found.push(Violation::HalfGang(id));
        }
        if devices.len() != replica.shares.len() || !is_right {
            found.push(Violation::BadPlacement(id));
        }
        if !pool.models[&replica.model].replicas.contains(&id) {
            found.push(Violation::IndexWrong("model's replicas"));
        }
    }
    for (&id, model) in pool.models.iter() {
        let by_itself = |why: &LoadReason| {
            matches!(
                why,
                LoadReason::Requests { .. }
                    | LoadReason::AlwaysHot { .. }
                    | LoadReason::Batch { .. }
            )
        };
        let loading = model.replicas.iter().filter(|id| {
            let replica = &pool.replicas[*id];
            matches!(replica.phase, Phase::Launching { .. })
                && by_itself(&replica.why)
                && !pool.is_silent(replica)
                && !returned(pool, replica)
        });
        let planned = model
            .planned
            .iter()
            .filter(|id| by_itself(&pool.planned[*id].why));
        if loading.count() + planned.count() > 1 {
            found.push(Violation::LoadedTwice(id));
        }
    }
}

fn meeting_ports(pool: &Pool, found: &mut Vec<Violation>) {
    let mut ports: BTreeMap<(NodeId, u64), ReplicaId> = BTreeMap::new();
    for (gang, leader) in pool.gangs() {
        if let Some(other) = ports.insert((leader, gang.meeting_place()), gang) {
            found.push(Violation::SharedPort(other, gang));
        }
    }
}

/// Its node fell silent while it was loading and has returned. The model was loaded on another node in the meantime (N2).
fn returned(pool: &Pool, replica: &Replica) -> bool {
    let mut nodes = pool.nodes_of(replica);
    nodes.any(|node| {
        let known = pool.nodes.known(node);
        known.is_some_and(|node| node.since > replica.launched)
    })
}

fn queues(pool: &Pool, found: &mut Vec<Violation>) {
    let mut queued = 0;
    for (&id, model) in pool.models.iter() {
        queued += model.queue.len();
        if model.queue.is_empty() == pool.queues.wait_for(id) {
            found.push(Violation::IndexWrong("models waited for"));
        }
        let lost = model.queue.by_arrival().filter(|ticket| {
            pool.queues
                .get(*ticket)
                .is_none_or(|waiting| waiting.model != id)
        });
        found.extend(lost.map(Violation::TicketLost));
    }
    if queued != pool.shares.waiting() || !pool.shares.is_index_right() {
        found.push(Violation::IndexWrong("shares"));
    }
    if queued != pool.queues.len() || !pool.queues.is_index_right() {
        found.push(Violation::IndexWrong("tickets"));
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::OverCommitted {
                device,
                reserved,
                capacity,
            } => {
                write!(f, "M3: {device} has {capacity} and {reserved} is reserved")
            }
            Violation::OverPromised {
                device,
                planned,
                capacity,
            } => {
                write!(
                    f,
                    "M3: {device} has {capacity} and {planned} is reserved or promised"
                )
            }
            Violation::LedgerWrong {
                device,
                says,
                counted,
            } => {
                write!(f, "the ledger of {device} says {says}, counted {counted}")
            }
            Violation::TicketLost(ticket) => write!(f, "Q4: {ticket} is lost"),
            Violation::SeatsWhileLaunching(replica) => {
                write!(f, "L1: {replica} has requests and is not ready")
            }
            Violation::LoadedTwice(model) => {
                write!(f, "L1: {model} is being loaded twice without an order")
            }
            Violation::BadPlacement(replica) => {
                write!(f, "M5: {replica} is not on distinct devices of its nodes")
            }
            Violation::HalfGang(replica) => {
                write!(f, "M8: {replica} continues without one of its processes")
            }
            Violation::SharedPort(one, other) => {
                write!(f, "M8: {one} and {other} meet at the same port")
            }
            Violation::Missed(decision) => write!(f, "a decision was missed: {decision}"),
            Violation::IndexWrong(what) => write!(f, "the index of {what} is wrong"),
        }
    }
}
