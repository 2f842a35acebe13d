//! Tests of nodes that are requested for batches (B8).

use alloc::string::String;
use alloc::vec::Vec;

use super::run::{DEVICE, Run, spec};
use super::{HOUR, two};
use crate::{
    Action, BatchNodes, Bytes, DemandId, Event, KindId, Limits, ModelId, ModelSpec, NodeAmounts,
    NodeId, NodeShape, NodeUse, NodesSpent, RecordKind, ShapeId, Span,
};

const GPU_HOUR: u64 = 3_600;

fn limits(nodes_max: u32) -> BatchNodes {
    BatchNodes {
        nodes_max,
        day: NodeAmounts {
            gpu_seconds: Some(GPU_HOUR),
            cents: None,
        },
    }
}

fn shape(number: u32, bytes: u64) -> NodeShape {
    NodeShape {
        shape: ShapeId(number),
        name: alloc::format!("size{number}"),
        devices: 1,
        bytes_per_device: Bytes(bytes),
        // A refusal keeps no other size from being requested.
        kind: KindId(number),
        cost_per_hour_cents: Some(100 * (number + 1)),
        nodes_max: None,
    }
}

/// Sets the limits of all nodes and of nodes for batches, and the sizes of a cluster.
fn set_up(run: &mut Run, nodes_max: Option<u32>, batch_nodes: Option<BatchNodes>, sizes: &[u64]) {
    let limits = Limits {
        nodes_max,
        batch_nodes,
        ..Limits::default()
    };
    let shapes = (0..)
        .zip(sizes)
        .map(|(number, bytes)| shape(number, *bytes));
    let shapes = shapes.collect();
    run.step([Event::LimitsSet { limits }, Event::ShapesSet { shapes }]);
}

fn spends(run: &mut Run, gpu_seconds: u64) {
    let spent = NodesSpent {
        batch_day: NodeUse {
            gpu_seconds,
            cents: 0,
        },
        ..NodesSpent::default()
    };
    run.step([Event::NodesSpent { spent }]);
}

/// Model 0 is in use on the only device, and batches wait for model 1.
fn waiting(nodes_max: Option<u32>, batch_nodes: Option<BatchNodes>, sizes: &[u64]) -> Run {
    let models: Vec<ModelSpec> = [8, 8, 8, 18].map(|bytes| spec(bytes, 0)).to_vec();
    let mut run = Run::new(1, &models);
    set_up(&mut run, nodes_max, batch_nodes, sizes);
    run.serves(0, true);
    run.batches(&[(1, 7, false)]);
    run
}

/// The same, with a node for the batches, on which model 1 is loaded.
fn on_a_node(nodes_max: Option<u32>, batch_nodes: BatchNodes, sizes: &[u64]) -> Run {
    let mut run = waiting(nodes_max, Some(batch_nodes), sizes);
    let (demand, _) = run.requested[0];
    run.node_joins(1, demand, DEVICE);
    run.settle();
    assert!(run.is_loaded(1), "{:?}", run.launched);
    run
}

fn obstacle(run: &Run, nth: usize) -> Option<String> {
    run.pool.view(run.now).models[nth].no_batch_node.clone()
}

#[test]
fn b8_batches_request_a_node_only_if_it_is_configured_and_nothing_else_holds_them() {
    let run = waiting(None, None, &[10]);
    assert_eq!(run.requested, []);
    assert_eq!(obstacle(&run, 1), None);

    let run = waiting(None, Some(limits(1)), &[10]);
    let [(demand, shape)] = run.requested[..] else {
        panic!("one request: {:?}", run.requested);
    };
    assert!(demand.is_for_batches());
    assert_eq!(shape, ShapeId(0));
    let records = run.actions.iter().filter_map(|action| match action {
        Action::Record(record) if record.kind == RecordKind::NodeRequested => Some(&record.reason),
        _ => None,
    });
    let records: Vec<&String> = records.collect();
    let expected = "one more node of size size0 is requested for batches (B8)";
    assert_eq!(records, [expected]);

    // The device has room.
    let mut run = two(0);
    set_up(&mut run, None, Some(limits(1)), &[10]);
    run.batches(&[(1, 7, false)]);
    assert_eq!(run.requested, []);
    // A model leaves for them in their hours.
    let mut run = two(0);
    set_up(&mut run, None, Some(limits(1)), &[10]);
    run.serves(0, false);
    run.after(HOUR);
    run.batches(&[(1, 7, true)]);
    run.settle();
    assert_eq!(run.requested, []);
    assert!(run.is_loaded(1));
}

#[test]
fn b8_batches_get_the_cheapest_size_that_holds_them_and_wait_for_it() {
    let mut run = waiting(None, Some(limits(2)), &[5, 10, 20]);
    assert_eq!(run.requested.len(), 1);
    let (demand, shape) = run.requested[0];
    assert_eq!(shape, ShapeId(1));
    let outlook = crate::NodeOutlook::Waits { starts: None };
    let reason = "Priority".into();
    run.step([Event::NodePending {
        demand,
        reason,
        outlook,
    }]);
    run.after(HOUR);
    assert_eq!(run.requested.len(), 1, "no dearer size is requested");
    assert_eq!(run.cancelled, []);
    let why = "the quota is used up".into();
    run.step([Event::NodeRefused { demand, why }]);
    let shapes: Vec<ShapeId> = run.requested.iter().map(|(_, shape)| *shape).collect();
    assert_eq!(shapes, [ShapeId(1), ShapeId(2)]);
}

#[test]
fn b8_the_number_of_nodes_for_batches_is_limited() {
    let models: Vec<ModelSpec> = (0..4).map(|_| spec(8, 0)).collect();
    let mut run = Run::new(1, &models);
    set_up(&mut run, None, Some(limits(2)), &[10]);
    run.serves(0, true);
    run.batches(&[(1, 7, false), (2, 7, false), (3, 7, false)]);
    for nth in 1..=2 {
        assert_eq!(run.requested.len(), nth as usize, "one after another");
        let (demand, _) = run.requested[nth as usize - 1];
        run.node_joins(nth, demand, DEVICE);
        run.settle();
    }
    run.after(HOUR);
    assert_eq!(run.requested.len(), 2);
    let loaded = (1..4).filter(|nth| run.is_loaded(*nth)).count();
    assert_eq!(loaded, 2);
    let waits = (1..4).find(|nth| !run.is_loaded(*nth)).expect("one waits");
    let expected =
        "no node is requested: the limit of 2 nodes for batches is reached (batch.nodes.max)";
    assert_eq!(obstacle(&run, waits as usize).as_deref(), Some(expected));
}

#[test]
fn b8_a_node_is_given_back_when_its_batches_end() {
    let mut run = on_a_node(None, limits(1), &[10]);
    run.after(HOUR);
    assert_eq!(run.released, [], "its batches still run");
    run.batches(&[]);
    run.settle();
    assert!(!run.is_loaded(1), "keep-hot keeps nothing there");
    assert_eq!(run.released, [NodeId(1)]);
    let nodes = run.pool.view(run.now).nodes;
    let node = nodes.iter().find(|node| node.node == NodeId(1));
    let reason = &node.expect("still there").reason;
    assert!(reason.contains("its batches have ended"), "{reason}");
}

#[test]
fn b8_a_request_is_cancelled_when_the_batches_end_or_have_a_place() {
    for has_place in [false, true] {
        let mut run = waiting(None, Some(limits(1)), &[10]);
        let (demand, _) = run.requested[0];
        if has_place {
            let serving = run.replica(0).expect("in use");
            run.request_ends(serving);
            run.orders(super::run::unload(0));
            run.settle();
            assert!(run.is_loaded(1));
        } else {
            run.batches(&[]);
        }
        assert_eq!(run.cancelled, [demand], "{has_place}");
    }
}

#[test]
fn b8_a_used_up_budget_gives_the_node_back_until_the_next_day() {
    let mut run = on_a_node(None, limits(1), &[10]);
    spends(&mut run, GPU_HOUR - 1);
    run.settle();
    assert!(run.is_loaded(1));
    spends(&mut run, GPU_HOUR);
    run.settle();
    assert!(!run.is_loaded(1));
    assert_eq!(run.released, [NodeId(1)]);
    run.node_goes(1);
    run.after(HOUR);
    assert_eq!(run.requested.len(), 1);
    let expected = "no node is requested: batches have used 1.00 of 1.00 GPU hours of this day (batch.nodes.gpu_hours_per_day)";
    assert_eq!(obstacle(&run, 1).as_deref(), Some(expected));
    spends(&mut run, 0);
    assert_eq!(run.requested.len(), 2, "a new day");
    assert_eq!(obstacle(&run, 1), None);
    spends(&mut run, GPU_HOUR);
    let (demand, _) = run.requested[1];
    assert_eq!(
        run.cancelled,
        [demand],
        "the budget ends before it has started"
    );
}

#[test]
fn b8_a_request_of_a_person_goes_before_the_request_of_a_node_for_batches() {
    let mut run = waiting(None, None, &[10]);
    run.arrives(2);
    assert_eq!(run.requested.len(), 1);
    set_up(&mut run, None, Some(limits(1)), &[10]);
    run.after(Span::from_secs(1));
    let for_batches = run.requested.iter().filter(|(id, _)| id.is_for_batches());
    assert_eq!(for_batches.count(), 0, "{:?}", run.requested);
}

#[test]
fn b8_an_open_request_for_batches_is_cancelled_for_a_request_that_needs_its_place() {
    let mut run = waiting(Some(1), Some(limits(1)), &[10, 20]);
    let (demand, _) = run.requested[0];
    run.arrives(3);
    assert_eq!(run.cancelled, [demand]);
    let (other, shape) = run.requested[1];
    assert!(!other.is_for_batches());
    assert_eq!(shape, ShapeId(1));
    assert_eq!(run.requested.len(), 2);
}

#[test]
fn b8_a_node_for_batches_makes_place_for_a_request_that_needs_another_node() {
    let mut run = on_a_node(Some(1), limits(1), &[10, 20]);
    run.arrives(3);
    run.settle();
    assert!(!run.is_loaded(1));
    assert_eq!(run.released, [NodeId(1)]);
    assert_eq!(run.requested.len(), 1, "the node still counts");
    run.node_goes(1);
    let (other, shape) = run.requested[1];
    assert!(!other.is_for_batches());
    assert_eq!(shape, ShapeId(1));
}

#[test]
fn b8_a_request_takes_the_place_of_batches_on_their_node_and_no_other_node() {
    let mut run = on_a_node(None, limits(1), &[10]);
    run.arrives(2);
    run.settle();
    assert!(run.is_loaded(2) && !run.is_loaded(1));
    assert_eq!(run.requested.len(), 1, "B5: batches leave immediately");
    run.batches(&[]);
    run.after(HOUR);
    assert!(run.is_loaded(2));
    assert_eq!(run.released, [], "a request uses it");
}

#[test]
fn b8_nodes_of_an_earlier_controller_count_and_wait_for_its_batches() {
    let before = DemandId(500_000);
    for demand in [before, before.for_batches()] {
        let models = [8, 8].map(|bytes| spec(bytes, 0));
        let mut run = Run::new(1, &models);
        set_up(&mut run, None, Some(limits(1)), &[10]);
        run.serves(0, true);
        // It holds no model.
        run.node_joins(1, demand, Bytes(5));
        assert_eq!(run.released, [], "the batches are not known yet");
        run.batches(&[(1, 7, false)]);
        let is_for_batches = demand.is_for_batches();
        assert_eq!(run.requested.is_empty(), is_for_batches);
        assert_eq!(run.released.is_empty(), !is_for_batches);
    }
}

#[test]
fn b8_without_its_configuration_a_node_for_batches_is_given_back() {
    let mut run = on_a_node(None, limits(1), &[10]);
    set_up(&mut run, None, None, &[10]);
    run.settle();
    assert_eq!(run.released, [NodeId(1)]);
    let model = ModelId(1);
    assert!(run.pool.models[&model].replicas.is_empty());
}
