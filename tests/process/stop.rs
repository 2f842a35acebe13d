//! The end of engines, by order or on their own, without any process left.

use std::path::Path;
use std::time::Duration;

use model_pool::engine::{connect, probe};
use model_pool::pool::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::replica::{RunningReplica, is_alive, kill, launch, now, pid_in, until_gone};
use crate::{shell, stub};

const LONG: Duration = Duration::from_secs(60);
/// Less than the grace period.
const AT_ONCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn an_engine_becomes_ready_and_exits_on_sigterm() {
    let mut engine = RunningReplica::start(stub(&["--allocate-mib", "64"]));
    let (pid, endpoint) = engine.started().await;
    engine.ready().await;
    let memory = engine.memory_above(Bytes(64 * Bytes::MIB)).await;
    assert!(memory.0 < 200 * Bytes::MIB, "{memory}");
    assert_eq!(probe(&endpoint, "/v1/models").await.unwrap().status, 200);
    let before = now();
    let exit = engine.stop(LONG).await;
    assert!(before.elapsed() < Duration::from_secs(5));
    assert!(exit.requested);
    assert_eq!(exit.status, "signal 15");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "reaped");
}

#[tokio::test]
async fn an_engine_that_ignores_sigterm_is_killed_after_the_grace() {
    let mut engine = RunningReplica::start(stub(&["--ignore-term"]));
    engine.ready().await;
    let grace = Duration::from_millis(300);
    let before = now();
    let exit = engine.stop(grace).await;
    assert!(before.elapsed() >= grace);
    assert!(before.elapsed() < Duration::from_secs(5));
    assert_eq!(exit.status, "signal 9");
}

#[tokio::test]
async fn a_frozen_engine_is_resumed_before_it_is_stopped() {
    let mut engine = RunningReplica::start(stub(&["--term-exit-code", "7"]));
    let (pid, _) = engine.started().await;
    engine.ready().await;
    kill(pid, nix::sys::signal::SIGSTOP);
    let exit = engine.stop(Duration::from_secs(10)).await;
    assert_eq!(exit.status, "exit status 7");
}

#[tokio::test]
async fn a_grandchild_does_not_survive_a_stop() {
    let mut engine = RunningReplica::start(stub(&["--spawn-grandchild"]));
    engine.ready().await;
    let grandchild = pid_in(&engine.line("grandchild ").await);
    assert!(is_alive(grandchild));
    engine.stop(LONG).await;
    assert!(!is_alive(grandchild));
}

#[tokio::test]
async fn a_grandchild_does_not_survive_a_crash_of_the_leader() {
    let mut engine = RunningReplica::start(stub(&["--spawn-grandchild", "--exit-after-ms", "50"]));
    let grandchild = pid_in(&engine.line("grandchild ").await);
    let exit = engine.exited().await;
    assert!(!exit.requested);
    assert!(!is_alive(grandchild));
}

#[tokio::test]
async fn a_grandchild_in_another_session_does_not_survive_a_stop() {
    let script = "setsid sleep 600 & echo grandchild $!; exec sleep 600";
    let mut engine = RunningReplica::start(shell(script));
    let grandchild = pid_in(&engine.line("grandchild ").await);
    let own_session = || {
        let pid = nix::unistd::Pid::from_raw(grandchild.cast_signed());
        nix::unistd::getsid(Some(pid)) == Ok(pid)
    };
    let begin = now();
    while !own_session() {
        assert!(
            begin.elapsed() < LONG,
            "process {grandchild} stays in the session"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    engine.stop(LONG).await;
    assert!(!is_alive(grandchild));
}

#[tokio::test]
async fn a_grandchild_without_environment_or_session_does_not_survive_a_stop() {
    // Without its environment and in another session, only its guardian knows the engine it belongs to.
    let script = "env -i setsid sh -c 'echo stray $$; exec sleep 600' & read never; ";
    let mut engine = RunningReplica::start(shell(&format!("{script} sleep 600")));
    let stray = pid_in(&engine.line("stray ").await);
    let before = now();
    engine.stop(LONG).await;
    assert!(before.elapsed() < AT_ONCE);
    assert!(!is_alive(stray));
}

#[tokio::test]
async fn a_kill_by_another_process_is_reported_as_its_signal() {
    let mut engine = RunningReplica::start(stub(&[]));
    let (pid, _) = engine.started().await;
    engine.ready().await;
    kill(pid, nix::sys::signal::SIGKILL);
    let exit = engine.exited().await;
    assert!(!exit.requested);
    assert_eq!(exit.status, "signal 9");
}

#[tokio::test]
async fn a_crash_mid_stream_ends_the_stream_without_an_end_mark() {
    let flags = ["--crash-mid-stream", "2", "--spawn-grandchild"];
    let mut engine = RunningReplica::start(stub(&flags));
    let (_, endpoint) = engine.started().await;
    engine.ready().await;
    let grandchild = pid_in(&engine.line("grandchild ").await);
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ";
    let request = format!("{head}{}\r\n\r\n{body}", body.len());
    let mut stream = connect(&endpoint).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    // The connection may close normally or be reset.
    let _ = stream.read_to_end(&mut response).await;
    let response = String::from_utf8_lossy(&response);
    assert!(response.contains("Hello"), "{response}");
    assert!(!response.contains("[DONE]"), "{response}");
    let exit = engine.exited().await;
    assert!(!exit.requested);
    assert_eq!(exit.status, "signal 6");
    assert!(!is_alive(grandchild));
}

#[tokio::test]
async fn a_stop_while_loading_kills_the_engine_immediately() {
    let mut engine = RunningReplica::start(stub(&["--ready-after-ms", "600000", "--ignore-term"]));
    engine.progress().await;
    let before = now();
    let exit = engine.stop(LONG).await;
    assert!(before.elapsed() < AT_ONCE);
    assert!(exit.requested);
    assert_eq!(exit.status, "signal 9");
}

#[tokio::test]
async fn a_stop_works_while_the_health_route_hangs() {
    let mut engine = RunningReplica::start(stub(&["--hang-health"]));
    engine.line("listening").await;
    let before = now();
    assert!(engine.stop(LONG).await.requested);
    assert!(before.elapsed() < AT_ONCE);
}

#[tokio::test]
async fn a_stop_before_the_launch_starts_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut engine = RunningReplica::prepare(launch(stub(&[]), home.path()), home);
    engine.order_stop(LONG);
    engine.go();
    let exit = engine.exited().await;
    assert!(exit.requested);
    assert_eq!(exit.status, "not started");
    assert_eq!(engine.seen.len(), 1);
}

#[tokio::test]
async fn an_engine_whose_handle_is_dropped_is_killed() {
    let mut engine = RunningReplica::start(stub(&["--ignore-term"]));
    engine.ready().await;
    engine.forget_stop();
    let exit = engine.exited().await;
    assert_eq!(exit.status, "signal 9");

    let mut engine = RunningReplica::start(stub(&["--ignore-term"]));
    let (pid, _) = engine.started().await;
    drop(engine);
    until_gone(pid).await;
}
