//! Pairs whose sides take and give as much as a test lets them, on a paused clock.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpListener;

/// The gateway's side of a pair.
struct FakeGateway {
    stream: DuplexStream,
    has_left: Arc<AtomicBool>,
}

impl AsyncRead for FakeGateway {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for FakeGateway {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, piece)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl GatewayStream for FakeGateway {
    fn has_left(&self) -> bool {
        self.has_left.load(Ordering::SeqCst)
    }
}

/// A running pair with its far ends. Each direction holds `room` bytes in addition to the pair's own buffer.
struct Scene {
    gateway: DuplexStream,
    engine: DuplexStream,
    has_left: Arc<AtomicBool>,
    moved: Arc<AtomicU64>,
    pair: tokio::task::JoinHandle<io::Result<()>>,
}

fn scene(room: usize) -> Scene {
    let (stream, gateway) = duplex(room);
    let (near_engine, engine) = duplex(room);
    let (has_left, moved) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let near_gateway = FakeGateway {
        stream,
        has_left: Arc::clone(&has_left),
    };
    let counted = Arc::clone(&moved);
    #[expect(clippy::disallowed_methods, reason = "the scene awaits it")]
    let pair = tokio::spawn(async move { relay(near_gateway, near_engine, &counted).await });
    Scene {
        gateway,
        engine,
        has_left,
        moved,
        pair,
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_the_other_side_is_blocked_and_nothing_is_lost() {
    let mut scene = scene(10);
    let all: Vec<u8> = (0..4 * BUFFER_BYTES).map(|index| index as u8).collect();
    let mut given = 0;
    // The paused clock advances only when no side can make progress.
    while let Ok(written) = timeout(LEFT_EVERY, scene.engine.write(&all[given..])).await {
        given += written.expect("taken");
    }
    let moved = || scene.moved.load(Ordering::Relaxed);
    assert_eq!(moved(), 10, "bytes count when the gateway takes them");
    assert!(given <= BUFFER_BYTES + 20, "{given} bytes were taken");
    let rest = async {
        scene.engine.write_all(&all[given..]).await.expect("taken");
        drop(scene.engine);
    };
    let mut response = Vec::new();
    let (_, read) = tokio::join!(rest, scene.gateway.read_to_end(&mut response));
    read.expect("a clean end");
    assert!(response == all, "{} bytes", response.len());
    assert_eq!(scene.moved.load(Ordering::Relaxed), all.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_stays_connected_after_its_engine_ended_is_closed_eventually() {
    let mut scene = scene(64);
    scene.engine.write_all(b"hello").await.expect("taken");
    scene.engine.shutdown().await.expect("ended");
    // The engine does not wait for the gateway.
    let end = scene.engine.read(&mut [0]).await;
    assert_eq!(end.expect("an end, while the gateway is there"), 0);
    let mut response = Vec::new();
    scene
        .gateway
        .read_to_end(&mut response)
        .await
        .expect("an end");
    assert_eq!(response, b"hello");
    assert!(!scene.pair.is_finished());
    let ended = timeout(2 * LINGERS_MAX, scene.pair).await;
    assert!(ended.expect("in time").expect("no panic").is_ok());
}

#[tokio::test(start_paused = true)]
async fn data_from_a_gateway_after_its_engine_ended_is_discarded() {
    let mut scene = scene(64);
    scene.engine.write_all(b"too large").await.expect("taken");
    drop(scene.engine);
    scene.gateway.write_all(&[0; 1024]).await.expect("taken");
    let mut response = [0; 9];
    scene.gateway.read_exact(&mut response).await.expect("read");
    assert_eq!(&response, b"too large");
    drop(scene.gateway);
    assert!(scene.pair.await.expect("no panic").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_pair_whose_gateway_left_ends_even_if_its_engine_reads_nothing() {
    let mut scene = scene(64);
    scene.gateway.write_all(&[0; 128]).await.expect("taken");
    let waiting = timeout(10 * LEFT_EVERY, &mut scene.pair).await;
    assert!(waiting.is_err(), "the engine may read later");
    scene.has_left.store(true, Ordering::SeqCst);
    let ended = timeout(2 * LEFT_EVERY, scene.pair).await;
    let error = ended
        .expect("in time")
        .expect("no panic")
        .expect_err("ended");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_socket_shows_that_its_peer_has_left_behind_unread_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut peer = TcpStream::connect(address).await.expect("connected");
    let (socket, _) = listener.accept().await.expect("one");
    peer.write_all(b"unread").await.expect("sent");
    socket.readable().await.expect("bytes");
    assert!(!socket.has_left());
    drop(peer);
    while !socket.has_left() {
        tokio::task::yield_now().await;
    }
}
