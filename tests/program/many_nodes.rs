//! A small version of the benchmark of a controller with a thousand nodes: twenty nodes and a hundred replicas.

#[path = "../../benches/nodes/mod.rs"]
mod nodes;

use std::time::Duration;

use nodes::Scale;

#[test]
fn simulated_nodes_use_the_real_protocol_and_two_of_them_are_lost() {
    let outcome = nodes::run(&Scale {
        nodes: 20,
        replicas: 100,
        seconds: 5,
        load: Duration::from_millis(200),
    });
    println!("{}", outcome.table());
    // The test build is not optimised, and other tests run at the same time.
    println!("missed: {:?}", outcome.missed());
    let closed = outcome.closed.expect("a closed connection is noticed");
    let silent = outcome.silent.expect("silence is noticed");
    assert!(closed < silent, "{closed:?} {silent:?}");
    assert!(outcome.cores > 0.0 && outcome.memory_bytes > 0);
    assert!(outcome.frames_a_second >= 20.0, "each beats once a second");
}
