//! The path between two controllers silently drops every packet (D4): requests that wait for the leader time out, and merely quiet
//! ones do not.

use std::time::{Duration, SystemTime};

use support::family::{chat, stub};
use support::network::{self, FAR};
use support::postgres::Server;
use support::service::wait_for;

use super::scene::{controller, controller_with, health};

/// Time until the kernel drops a connection, with a margin for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

#[test]
fn d4_a_path_that_drops_every_packet_is_detected_and_a_quiet_stream_is_not_cut() {
    if !network::is_inside(
        "postgres::standby::dead_path::d4_a_path_that_drops_every_packet_is_detected_and_a_quiet_stream_is_not_cut",
    ) {
        return;
    }
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    // The pause between two tokens exceeds the time to detect a dead path.
    let models = [stub("slow", &["--tokens", "3", "--token-ms", "16000"])];
    let env = [
        (
            "MODEL_POOL__SERVER__TRUSTED_PROXIES",
            "[127.0.0.1, 10.9.0.2]",
        ),
        (
            "MODEL_POOL__INVENTORY__DEVICES",
            "[{name: here, memory: 4GiB}]",
        ),
    ];
    let first = controller_with(&models, &url, FAR, &env);
    let second = controller(&models, &url);
    assert_eq!(
        health(&second)["leader"],
        format!("http://{}", first.address())
    );

    let stream = second.stream("/v1/chat/completions", &chat("slow", true));
    wait_for("the stream to begin", || stream.text().contains("data: "));
    let began = SystemTime::now();
    wait_for("its first token", || stream.text().contains("Hello"));
    let quiet = began.elapsed().unwrap();
    assert!(quiet > Duration::from_secs(15), "{quiet:.1?}");
    // It leaves a pooled connection, which the next request uses.
    let list = || second.request("GET", "/v1/models", "", None);
    assert_eq!(list().0, 200);

    network::cut();
    let cut = SystemTime::now();
    let (status, text, _) = list();
    let sent = cut.elapsed().unwrap();
    assert_eq!(status, 502, "{text}");
    assert!(text.contains("leader_lost"), "{text}");
    let rest = stream.whole();
    let waited = cut.elapsed().unwrap();
    assert!(rest.contains("leader_lost"), "{rest}");
    println!(
        "a stream was quiet for {quiet:.1?}; after its path was cut a new request failed after {sent:.1?}, and the stream after {waited:.1?} at most"
    );
    assert!(waited <= NOTICED_WITHIN, "{sent:.1?} {waited:.1?}");
    // Attempts at new connections end soon.
    let (status, text, _) = list();
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("cannot reach the leader"), "{text}");
}
