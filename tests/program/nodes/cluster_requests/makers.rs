//! Models that state the maker of their devices request only nodes with its GPUs (S2).

use std::thread;

use support::family::{chat, stub};
use support::service::Pool;

use super::{Cluster, wait_for_lease};

#[test]
fn s2_a_model_that_states_a_maker_requests_only_nodes_with_its_gpus() {
    let cluster = Cluster::new();
    let of_maker = |name: &str, maker: &str| {
        let (file, text) = stub(name, &[]);
        let keys = format!("accelerator: {maker}, memory_gib:");
        (file, text.replace("memory_gib:", &keys))
    };
    // The first size is larger and cheaper, and its GPUs are NVIDIA's.
    let shapes = "shapes: [{name: cheap, gpus: 8, memory: 80GiB, time_limit: 1h, cost_per_hour: 0.01}, \
                  {name: instinct, accelerator: amd, cost_per_hour: 9, ";
    let config = cluster.config().replace("shapes: [{name: one, ", shapes);
    let models = [of_maker("a", "amd"), of_maker("b", "intel")];
    let pool = Pool::with_devices(&models, &config);
    let (status, text) = pool.post("/v1/chat/completions", &chat("b", false));
    assert_eq!(status, 503, "{text}");
    let words = "may use none of the pool's devices, by pool_config.accelerator intel";
    assert!(text.contains(words), "{text}");
    assert_eq!(cluster.leases(), 0, "no size has GPUs of Intel");
    thread::scope(|scope| {
        let response = scope.spawn(|| pool.post("/v1/chat/completions", &chat("a", false)));
        wait_for_lease(&cluster, "vm-1", "pending");
        assert_eq!(cluster.lease("vm-1").unwrap()["shape"], "instinct");
        let machine = cluster.starts_with(&pool, "vm-1", "4GiB, accelerator: amd");
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", machine.log());
        assert_eq!(cluster.leases(), 1, "one is enough");
    });
}
