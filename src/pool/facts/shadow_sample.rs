//! Which part of a large pool the shadows play: nodes of each shape in the proportion in which the pool has them, and the same
//! part of the models. A sample of both has the hit ratio of the whole (Waldspurger et al., "Efficient MRC construction with
//! SHARDS", FAST 2015). A node that comes or goes changes hardly more of it than itself.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::ids::{Bytes, DeviceId, ModelId, NodeId};

/// With more devices than this only a part is played: every second node of a shape, or every third, and so on.
const DEVICES_PLAYED: usize = 256;
/// The share of models that stands for all of them.
const ALL: u32 = 1 << 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    devices: BTreeSet<DeviceId>,
    /// Of the bytes of all devices, those of the sample, of [`ALL`].
    share: u32,
}

/// Devices, and their bytes together.
type Shape = (usize, Bytes);

impl Sample {
    /// Of devices with their nodes and what each of them has room for. Whole nodes: a replica over several devices is on one.
    pub fn of(devices: impl IntoIterator<Item = (DeviceId, NodeId, Bytes)>) -> Sample {
        let mut nodes: BTreeMap<NodeId, Vec<(DeviceId, Bytes)>> = BTreeMap::new();
        let mut count = 0_usize;
        for (device, node, bytes) in devices {
            nodes.entry(node).or_default().push((device, bytes));
            count += 1;
        }
        let room = |on: &[(DeviceId, Bytes)]| on.iter().map(|it| it.1).sum::<Bytes>();
        let mut order: Vec<(Shape, u32, NodeId)> = nodes
            .iter()
            .map(|(&node, on)| ((on.len(), room(on)), mixed(node.0), node))
            .collect();
        order.sort_unstable();
        let one_in = count.div_ceil(DEVICES_PLAYED).max(1);
        let mut played: Vec<NodeId> = Vec::new();
        // Half a step on: the number of each shape is rounded, and what one shape loses by it the next one gets.
        let mut before = one_in / 2;
        for shape in order.chunk_by(|one, other| one.0 == other.0) {
            let with = before + shape.len();
            let number = with / one_in - before / one_in;
            played.extend(shape.iter().take(number).map(|it| it.2));
            before = with;
        }
        if played.is_empty() {
            played.extend(order.last().map(|it| it.2));
        }
        let part: Bytes = played.iter().map(|it| room(&nodes[it])).sum();
        let whole: Bytes = order.iter().map(|it| it.0.1).sum();
        Sample {
            devices: played
                .iter()
                .flat_map(|it| nodes[it].iter().map(|on| on.0))
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

/// The finaliser of MurmurHash3: numbers that follow each other lie anywhere.
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

    /// Devices of a node, numbered after their node.
    fn node(number: u32, count: u32, each: Bytes) -> Vec<(DeviceId, NodeId, Bytes)> {
        let device = |nth| (DeviceId(number * 1_000 + nth), NodeId(number), each);
        (0..count).map(device).collect()
    }

    /// Of 400 nodes every tenth has 16 large GPUs, and the others have a small one.
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
    fn a_pool_that_is_not_large_is_played_as_it_is() {
        let devices: Vec<_> = (0..32).flat_map(|it| node(it, 8, LARGE)).collect();
        let sample = Sample::of(devices.clone());
        assert_eq!(sample.devices().count(), 256);
        assert!(devices.iter().all(|it| sample.has_device(it.0)));
        assert!((0..10_000).all(|model| sample.has_model(ModelId(model))));
        let none = Sample::of([]);
        assert_eq!(none.devices().count(), 0);
    }

    #[test]
    fn nodes_that_are_very_uneven_are_played_in_the_proportion_in_which_they_are_there() {
        // 1000 devices: one in four.
        let sample = Sample::of(uneven());
        let numbers = numbers(&sample);
        let large = numbers.iter().filter(|it| *it % 10 == 0).count();
        assert_eq!((large, numbers.len() - large), (10, 90));
        let models = (0..10_000).filter(|it| sample.has_model(ModelId(*it)));
        let models = models.count();
        assert!((2_400..2_600).contains(&models), "{models}");
    }

    #[test]
    fn shapes_that_are_rare_are_played_together_as_often_as_the_others() {
        // No two are alike.
        let devices = (0..600_u32).flat_map(|it| node(it, 1, Bytes(u64::from(it) + 1)));
        let sample = Sample::of(devices);
        assert_eq!(sample.devices().count(), 200);
        let upper = numbers(&sample).iter().filter(|it| **it >= 300).count();
        assert_eq!(upper, 100, "the large as well as the small");
    }

    #[test]
    fn models_are_played_in_the_proportion_of_the_memory_that_is_played() {
        // The one node that there is cannot be played in part.
        let sample = Sample::of(node(3, 600, LARGE));
        assert_eq!(sample.devices().count(), 600);
        assert!((0..10_000).all(|model| sample.has_model(ModelId(model))));
    }

    #[test]
    fn a_node_that_joins_changes_hardly_more_than_itself() {
        let before = numbers(&Sample::of(uneven()));
        let mut devices = uneven();
        // Still one in four.
        devices.extend(node(401, 16, LARGE));
        let after = numbers(&Sample::of(devices));
        let changed = before.symmetric_difference(&after).count();
        assert!(changed <= 2, "{before:?} {after:?}");
    }
}
