//! Lists the holders of a device's memory and whether each may leave for a load. A plan that finds no free memory reads each holder
//! once, both for the cheapest place and for the obstacles. Read-only.

use alloc::vec::Vec;

use crate::facts::device::Device;
use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::plan::victims;
use crate::types::ids::{Bytes, DeviceId, ReplicaId};
use crate::types::obstacle::Protection;
use crate::types::share::Share;

/// A replica with a share of a device, or a planned load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub replica: ReplicaId,
    /// The bytes it holds on the device.
    pub held: Bytes,
    /// `Ok` if it may leave for the load, otherwise the rule that protects it.
    pub leaves: Result<(), Protection>,
}

/// A device that can hold a part of the load and lacks memory for it now.
#[derive(Clone, Debug)]
pub(crate) struct FullDevice {
    pub device: DeviceId,
    pub needs: Bytes,
    /// `free` may be used by a plan; `overrun` must be freed before anything new fits. At least one is zero.
    pub free: Bytes,
    pub overrun: Bytes,
    pub holders: Vec<Holder>,
}

impl FullDevice {
    pub(crate) fn new(
        pool: &Pool,
        claim: &Claim,
        device: DeviceId,
        ledger: &Device,
        needs: Bytes,
    ) -> FullDevice {
        let (free, overrun) = pool.free_and_overrun(ledger);
        FullDevice {
            device,
            needs,
            free,
            overrun,
            holders: on(pool, claim, device, ledger).collect(),
        }
    }

    /// Upper bound of the additional memory that evictions could free here.
    pub(crate) fn may_free(&self) -> Bytes {
        let leaving = self.holders.iter().filter(|holder| holder.leaves.is_ok());
        leaving.map(|holder| holder.held).sum()
    }
}

/// The holders of a device, in the order of their ids.
pub(crate) fn on<'a>(
    pool: &'a Pool,
    claim: &'a Claim<'a>,
    device: DeviceId,
    ledger: &'a Device,
) -> impl Iterator<Item = Holder> + 'a {
    ledger.holders.iter().map(move |&id| {
        let (planned, replica) = (pool.planned.get(&id), pool.replicas.get(&id));
        let of = |shares: &[Share]| -> Bytes {
            let here = shares.iter().filter(|share| share.device == device);
            here.map(|share| share.bytes).sum()
        };
        // A sleeper that is to be woken has both.
        let promised = planned.map_or(Bytes::ZERO, |load| of(&load.shares));
        let reserved = replica.map_or(Bytes::ZERO, |replica| of(&replica.shares));
        let excess = ledger.excess_of.get(&id).copied().unwrap_or_default();
        Holder {
            replica: id,
            held: reserved + promised + excess,
            leaves: victims::leaves(pool, claim, id, planned, replica),
        }
    })
}
