//! Tests of `takeover.rs`: the exchange between two processes, and its failures.

use super::*;
use std::net::TcpListener;

#[tokio::test]
async fn a_listening_socket_is_handed_over_with_its_pending_connections() {
    let home = tempfile::tempdir().expect("a folder");
    let takeover_socket = TakeoverSocket::open(home.path()).expect("a socket");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let folder = home.path().to_owned();
    let new = tokio::task::spawn_blocking(move || try_take_over(&folder));
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
    let inherited = ask(home.path()).await.expect("no failure");
    assert!(inherited.is_none(), "the socket is closed");
}

#[tokio::test]
async fn a_successor_that_exits_before_it_serves_is_reported_as_a_failure() {
    let home = tempfile::tempdir().expect("a folder");
    let deep = home.path().join("deep".repeat(40));
    std::fs::create_dir(&deep).expect("a folder with a long name");
    let takeover_socket = TakeoverSocket::open(&deep).expect("a socket");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let new = tokio::task::spawn_blocking(move || try_take_over(&deep));
    let successor = takeover_socket.successor(&OwnedFd::from(listener)).await;
    let new = async { drop(new.await.expect("no panic").expect("an exchange")) };
    let (freed, ()) = tokio::join!(successor.free(), new);
    let message = freed.expect_err("a failure");
    assert!(message.contains("start model-pool again"), "{message}");
}
