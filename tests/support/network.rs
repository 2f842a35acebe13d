//! A network of a test's own with a path that can be cut: from then on packets are lost in both directions without an answer.
//! The test runs in a network namespace, which needs root and `ip`.

use std::process::{Command, Stdio};

use crate::required::skipped;

const INSIDE: &str = "MODEL_POOL_TEST_HAS_A_NETWORK";

/// What listens here is reached from [`NEAR`] until [`cut`].
pub const FAR: &str = "10.9.0.1";
pub const NEAR: &str = "10.9.0.2";

/// Both are addresses of this machine. Behind the routes within it lie others that lead out by an interface, to a neighbour
/// that is not there.
const BEGIN: &str = "set -e
ip link set lo up
ip link add out type veth peer name far-end
ip link set out up
ip link set far-end up
for address in 10.9.0.1 10.9.0.2; do
    ip neigh add $address lladdr 02:00:00:00:00:09 dev out nud permanent
    ip route add $address/32 dev out
    ip addr add $address/32 dev lo
done
ip route replace table local local 10.9.0.1 dev lo proto kernel scope host src 10.9.0.2
exec \"$@\"";

/// True inside of the network, where the test goes on. Outside it starts itself there, and returns false when that has
/// passed, or when no network can be made.
///
/// # Panics
/// If the test fails inside.
pub fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let inside = || {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", BEGIN, "sh"]);
        command
    };
    let tried = inside().arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        let why = "no network can be made here; run the test as root, with `ip` of iproute2";
        skipped("network", why);
        return false;
    }
    let status = inside()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "yes")
        .status()
        .unwrap();
    assert!(status.success(), "{test} has failed in its network");
    false
}

/// From now on no packet arrives between the two addresses.
pub fn cut() {
    for address in [FAR, NEAR] {
        let status = Command::new("ip")
            .args(["route", "del", "table", "local", "local", address])
            .status()
            .unwrap();
        assert!(status.success(), "{address} is still reached");
    }
}
