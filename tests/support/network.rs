//! A private network with a path that can be cut: packets are then lost in both directions without an error. The test runs in a
//! network namespace, which requires root and `ip`.

use std::process::{Command, Stdio};

use crate::external_programs::skipped;

const INSIDE: &str = "MODEL_POOL_TEST_HAS_A_NETWORK";

/// Address of the listener, reachable from [`NEAR`] until [`cut`].
pub const FAR: &str = "10.9.0.1";
pub const NEAR: &str = "10.9.0.2";

/// Both addresses belong to this machine. Behind the local routes are routes through an interface to a neighbour that does not
/// exist.
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

/// Returns true inside the network, where the test continues. Outside, it runs the test inside and returns false once it has
/// passed, or if no network can be created.
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
        let why = "cannot create a network here; run the test as root, with `ip` of iproute2";
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

/// Drops all packets between the two addresses from now on.
pub fn cut() {
    for address in [FAR, NEAR] {
        let status = Command::new("ip")
            .args(["route", "del", "table", "local", "local", address])
            .status()
            .unwrap();
        assert!(status.success(), "{address} is still reached");
    }
}
