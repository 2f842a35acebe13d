//! Who holds the memory of a device, and who of them may leave for a load. A plan that finds no free memory looks at each
//! holder once, for the cheapest place and for what stands in the way. Reads only.

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
    /// What it holds of the device.
    pub held: Bytes,
    /// Whether it may leave for the load.
    pub leaves: Result<(), Protection>,
}

/// A device that can hold a part of the load and lacks memory for it now.
#[derive(Clone, Debug)]
pub(crate) struct FullDevice {
    pub device: DeviceId,
    pub needs: Bytes,
    /// What a plan may count on, and what must be freed before anything new fits: one of them is zero.
    pub free: Bytes,
    pub overrun: Bytes,
    pub holders: Vec<Holder>,
}

impl FullDevice {
    pub(crate) fn of(
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

    /// What it would have in addition if everything left that may leave; a bound, which is never too low.
    pub(crate) fn may_free(&self) -> Bytes {
        let leaving = self.holders.iter().filter(|it| it.leaves.is_ok());
        leaving.map(|it| it.held).sum()
    }
}

/// The holders of a device, in the order of their numbers.
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
        // A sleeper that is to wake has both.
        let promised = planned.map_or(Bytes::ZERO, |it| of(&it.shares));
        let reserved = replica.map_or(Bytes::ZERO, |it| of(&it.shares));
        let excess = ledger.excess_of.get(&id).copied().unwrap_or_default();
        Holder {
            replica: id,
            held: reserved + promised + excess,
            leaves: victims::leaves(pool, claim, id, planned, replica),
        }
    })
}
