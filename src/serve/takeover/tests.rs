//! Tests of `takeover.rs`: the exchange between two processes, and its failures.

use super::*;
use std::net::TcpListener;
use std::os::fd::AsFd;

#[tokio::test]
async fn a_listening_socket_is_handed_over_with_its_pending_connections() {
    let home = tempfile::tempdir().expect("a folder");
    let takeover_socket = TakeoverSocket::open(home.path(), Role::Serve).expect("a socket");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let folder = home.path().to_owned();
    let new = tokio::task::spawn_blocking(move || try_take_over(&folder, Role::Serve));
    let successor = takeover_socket.successor(&OwnedFd::from(listener)).await;
    assert_eq!(successor.pid, std::process::id());
    let waits = std::net::TcpStream::connect(address).expect("not refused");
    let new = async {
        let inherited = new.await.expect("no panic").expect("an exchange");
        let inherited = inherited.expect("an old process");
        let listener = inherited.listener(&Listen::Address(address));
        let listener = listener.expect("a socket").expect("the same address");
        let listener =
            std::net::TcpListener::from(listener.as_fd().try_clone_to_owned().expect("a copy"));
        listener.set_nonblocking(false).expect("blocking");
        let (_, peer) = listener.accept().expect("the connection that waited");
        assert_eq!(peer, waits.local_addr().expect("an address"));
        inherited.serving();
    };
    let (freed, ()) = tokio::join!(successor.free(), new);
    assert_eq!(freed, Ok(()));
    drop(takeover_socket);
    let inherited = ask(home.path(), Role::Serve).await.expect("no failure");
    assert!(inherited.is_none(), "the socket is closed");
}

#[tokio::test]
async fn a_successor_that_exits_before_it_serves_is_reported_as_a_failure() {
    let home = tempfile::tempdir().expect("a folder");
    let deep = home.path().join("deep".repeat(40));
    std::fs::create_dir(&deep).expect("a folder with a long name");
    let takeover_socket = TakeoverSocket::open(&deep, Role::Serve).expect("a socket");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let new = tokio::task::spawn_blocking(move || try_take_over(&deep, Role::Serve));
    let successor = takeover_socket.successor(&OwnedFd::from(listener)).await;
    let new = async { drop(new.await.expect("no panic").expect("an exchange")) };
    let (freed, ()) = tokio::join!(successor.free(), new);
    let message = freed.expect_err("a failure");
    assert!(message.contains("start model-pool again"), "{message}");
}

#[tokio::test]
async fn a_node_and_a_service_do_not_take_over_from_each_other() {
    let own = serde_json::to_value(own_message(Role::Node)).expect("JSON");
    assert_eq!(own["role"], "node");
    let of_earlier_version: Message = serde_json::from_str(r#"{"version": 1}"#).expect("a message");
    assert_eq!(of_earlier_version.role, Role::Serve);
    let home = tempfile::tempdir().expect("a folder");
    let takeover_socket = TakeoverSocket::open(home.path(), Role::Serve).expect("a socket");
    let listener = OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a port"));
    let refused = async {
        let refused = ask(home.path(), Role::Node).await;
        refused.err().expect("a refusal")
    };
    tokio::select! {
        _ = takeover_socket.successor(&listener) => panic!("it was taken over"),
        why = refused => assert!(why.contains("is `model-pool serve`"), "{why}"),
    }
}
