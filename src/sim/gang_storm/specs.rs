//! The models of a storm of gangs, and the reach of its nodes.

use alloc::string::ToString;

use super::super::random::Random;
use pool::{Bytes, GangReach, ModelSpec, NodeSpan, Priority, Span};

pub(super) fn reach(random: &mut Random) -> GangReach {
    match random.below(10) {
        0..=1 => GangReach::Machine,
        2 => GangReach::Alone {
            version: "0.1.0".to_string(),
        },
        _ => GangReach::Network,
    }
}

/// The first models span two or three nodes.
pub(super) fn spec(random: &mut Random, nth: u64, per_node: u32) -> ModelSpec {
    let nodes = random.between(2, 3) as u32;
    let is_gang = nth < 2;
    ModelSpec {
        name: format!("model-{nth}"),
        priority: Priority([0, 0, 1, 2][random.below(if is_gang { 4 } else { 3 }) as usize]),
        devices_per_replica: if is_gang {
            nodes * random.between(1, u64::from(per_node)) as u32
        } else {
            1
        },
        nodes: if is_gang {
            NodeSpan::Exactly(nodes)
        } else {
            NodeSpan::One
        },
        bytes_per_device: Bytes(random.between(20, 70) * Bytes::GIB),
        keep_hot: Span::from_secs(random.between(60, 900)),
        seats_per_replica: random.between(1, 4) as u32,
        reload: Span::from_secs(random.between(1, 60)),
        queue_timeout: Span::from_secs(random.between(30, 300)),
        ..ModelSpec::default()
    }
}
