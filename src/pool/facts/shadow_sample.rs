//! Selects the part of a large pool that the shadow policies simulate: nodes of each shape in the pool's proportions, and the same
//! fraction of the models. A sample of both has the same hit ratio as the entire pool (Waldspurger et al., "Efficient MRC
//! construction with SHARDS", FAST 2015). A node that joins or leaves changes little more of the sample than itself.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::ids::{Bytes, DeviceId, ModelId, NodeId};

/// With more devices than this only a part is simulated: every second node of a shape, every third, and so on.
const DEVICES_PLAYED: usize = 256;
/// The value of `share` that stands for all models.
const ALL: u32 = 1 << 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    devices: BTreeSet<DeviceId>,
    /// The sample's part of all device bytes, in units of 1/[`ALL`].
    share: u32,
}

/// The number of devices of a node, and their total bytes.
type Shape = (usize, Bytes);

impl Sample {
    /// Builds a sample from devices, their nodes and their capacities. Takes complete nodes, because a replica that spans several
    /// devices is on a single node.
    pub fn new(devices: impl IntoIterator<Item = (DeviceId, NodeId, Bytes)>) -> Sample {
        let mut nodes: BTreeMap<NodeId, Vec<(DeviceId, Bytes)>> = BTreeMap::new();
        let mut count = 0_usize;
        for (device, node, bytes) in devices {
            nodes.entry(node).or_default().push((device, bytes));
            count += 1;
        }
        let room = |on: &[(DeviceId, Bytes)]| on.iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
        let mut order: Vec<(Shape, u32, NodeId)> = nodes
            .iter()
            .map(|(&node, on)| ((on.len(), room(on)), mixed(node.0), node))
            .collect();
        order.sort_unstable();
        let one_in = count.div_ceil(DEVICES_PLAYED).max(1);
        let mut played: Vec<NodeId> = Vec::new();
        // Starts at half a step. The number for each shape is rounded, and the remainder carries over to the next shape.
        let mut before = one_in / 2;
        for shape in order.chunk_by(|one, other| one.0 == other.0) {
            let with = before + shape.len();
            let number = with / one_in - before / one_in;
            played.extend(shape.iter().take(number).map(|(_, _, node)| *node));
            before = with;
        }
        if played.is_empty() {
            played.extend(order.last().map(|(_, _, node)| *node));
        }
        let part: Bytes = played.iter().map(|node| room(&nodes[node])).sum();
        let whole: Bytes = order.iter().map(|((_, bytes), _, _)| *bytes).sum();
        Sample {
            devices: played
                .iter()
                .flat_map(|node| nodes[node].iter().map(|(device, _)| *device))
                .collect(),
            share: share_of(part, whole),
        }
    }

    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.devices.iter().copied()
    }

    pub fn has_device(&self, device: DeviceId) -> bool {
        self.devices.contains(&device)
    }

    pub fn has_model(&self, model: ModelId) -> bool {
        mixed(model.0) >> 16 < self.share
    }
}

fn share_of(part: Bytes, whole: Bytes) -> u32 {
    let share = (u128::from(part.0) * u128::from(ALL)).div_ceil(u128::from(whole.0.max(1)));
    match whole {
        Bytes::ZERO => ALL,
        _ => u32::try_from(share).unwrap_or(ALL),
    }
}

/// The finaliser of MurmurHash3, which scatters consecutive ids.
fn mixed(number: u32) -> u32 {
    let mut mixed = number ^ (number >> 16);
    mixed = mixed.wrapping_mul(0x85eb_ca6b);
    mixed ^= mixed >> 13;
    mixed = mixed.wrapping_mul(0xc2b2_ae35);
    mixed ^ (mixed >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: Bytes = Bytes(80 << 30);
    const SMALL: Bytes = Bytes(24 << 30);

    /// The devices of a node, with ids derived from the node's.
    fn node(number: u32, count: u32, each: Bytes) -> Vec<(DeviceId, NodeId, Bytes)> {
        let device = |nth| (DeviceId(number * 1_000 + nth), NodeId(number), each);
        (0..count).map(device).collect()
    }

    /// 400 nodes: every tenth has 16 large GPUs, and the others have a single small one.
    fn uneven() -> Vec<(DeviceId, NodeId, Bytes)> {
        let nodes = (0..400).flat_map(|number| match number % 10 {
            0 => node(number, 16, LARGE),
            _ => node(number, 1, SMALL),
        });
        nodes.collect()
    }

    fn numbers(sample: &Sample) -> BTreeSet<u32> {
        sample.devices().map(|device| device.0 / 1_000).collect()
    }

    #[test]
    fn a_small_pool_is_simulated_completely() {
        let devices: Vec<_> = (0..32).flat_map(|number| node(number, 8, LARGE)).collect();
        let sample = Sample::new(devices.clone());
        assert_eq!(sample.devices().count(), 256);
        assert!(
            devices
                .iter()
                .all(|(device, _, _)| sample.has_device(*device))
        );
        assert!((0..10_000).all(|model| sample.has_model(ModelId(model))));
        let none = Sample::new([]);
        assert_eq!(none.devices().count(), 0);
    }

    #[test]
    fn very_uneven_nodes_are_sampled_in_proportion() {
        // 1000 devices: every fourth is simulated.
        let sample = Sample::new(uneven());
        let numbers = numbers(&sample);
        let large = numbers.iter().filter(|number| *number % 10 == 0).count();
        assert_eq!((large, numbers.len() - large), (10, 90));
        let models = (0..10_000).filter(|id| sample.has_model(ModelId(*id)));
        let models = models.count();
        assert!((2_400..2_600).contains(&models), "{models}");
    }

    #[test]
    fn rare_shapes_are_sampled_together_at_the_common_rate() {
        // All devices differ.
        let devices = (0..600_u32).flat_map(|number| node(number, 1, Bytes(u64::from(number) + 1)));
        let sample = Sample::new(devices);
        assert_eq!(sample.devices().count(), 200);
        let upper = numbers(&sample)
            .iter()
            .filter(|number| **number >= 300)
            .count();
        assert_eq!(upper, 100, "the large as well as the small");
    }

    #[test]
    fn models_are_sampled_in_proportion_to_the_simulated_memory() {
        // The only node cannot be simulated in part.
        let sample = Sample::new(node(3, 600, LARGE));
        assert_eq!(sample.devices().count(), 600);
        assert!((0..10_000).all(|model| sample.has_model(ModelId(model))));
    }

    #[test]
    fn a_joining_node_hardly_changes_the_sample() {
        let before = numbers(&Sample::new(uneven()));
        let mut devices = uneven();
        // Still every fourth.
        devices.extend(node(401, 16, LARGE));
        let after = numbers(&Sample::new(devices));
        let changed = before.symmetric_difference(&after).count();
        assert!(changed <= 2, "{before:?} {after:?}");
    }
}
