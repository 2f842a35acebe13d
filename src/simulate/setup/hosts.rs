//! The host memory for sleeping engines: that of this machine, or of the machine that `--host-memory` describes.

use std::collections::BTreeSet;

use super::devices::PlayedDevices;
use crate::args::SimulateArgs;
use config::Config;
use pool::{Bytes, HostReading, ModelSpec, NodeId};

/// The host memory of every node, with nothing else in use; empty if no model can sleep.
pub(super) fn of_pool(
    specs: &[ModelSpec],
    args: &SimulateArgs,
    config: &Config,
    devices: &PlayedDevices,
    machine: Option<Bytes>,
    notices: &mut Vec<String>,
) -> Result<Vec<(NodeId, HostReading)>, String> {
    let sleepers = specs.iter().filter(|spec| spec.parking.is_some()).count();
    if sleepers == 0 {
        return Ok(Vec::new());
    }
    let given = args.host_memory.as_deref().map(size).transpose()?;
    let total = given.or(machine).ok_or(
        "the memory of this machine is not known, and engines of the pool sleep in it; write it, such as --host-memory 512GiB",
    )?;
    // The nodes of one configuration share the memory of its machine, as in the service. `--host-memory` is that of each node.
    let sharing = match given {
        Some(_) => 1,
        None => devices.nodes_here,
    };
    // Nothing else is in use, as on the devices.
    let parking = &config.parking;
    let reading = parking.host_reading(total, total, sharing, devices.have_own_memory);
    notices.push(format!(
        "{sleepers} model{} can sleep, in up to {} of host memory on each node (parking.host_memory of {total}); --host-memory describes another machine",
        if sleepers == 1 { "" } else { "s" },
        reading.capacity,
    ));
    let nodes: BTreeSet<NodeId> = devices.all.iter().map(|(_, device)| device.node).collect();
    Ok(nodes.into_iter().map(|node| (node, reading)).collect())
}

fn size(text: &str) -> Result<Bytes, String> {
    let size: Option<bytesize::ByteSize> = text.parse().ok();
    size.map(|size| Bytes(size.as_u64()))
        .ok_or_else(|| format!("--host-memory `{text}` is not an amount of memory such as 512GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gib(amount: u64) -> Bytes {
        Bytes(amount * Bytes::GIB)
    }

    #[test]
    fn sleepers_get_their_share_of_host_memory_beyond_the_reserve() {
        let parking = Config::default().parking;
        let reading = |nodes: usize, has_room: bool| {
            parking.host_reading(gib(100), gib(100), nodes, has_room)
        };
        let own = reading(1, true);
        let expected = HostReading {
            capacity: gib(50),
            reserve: gib(10),
            available: gib(100),
            total: gib(100),
        };
        assert_eq!(own, expected);
        let shared = reading(2, true);
        assert_eq!((shared.capacity, shared.available), (gib(25), gib(50)));
        // A sleeping engine frees no memory of a device that shares the host memory.
        assert_eq!(reading(1, false).capacity, Bytes::ZERO);
        assert_eq!(size("512GiB"), Ok(gib(512)));
        assert!(size("plenty").is_err());
    }
}
