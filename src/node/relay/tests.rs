//! The traffic that the listener of a node carries, its time limits, and the start of a connection.

use super::*;
use crate::machine::EngineState;
use engine::{NodePlace, RelayAddress};
use node_link::KeptForm;
use pool::ReplicaId;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::oneshot;

const REPLICA: u64 = 7;

/// A node with one engine, played by a listener of the test.
struct Scene {
    relay: Relay,
    machine: Arc<Machine>,
    peers: Arc<PeerServer>,
    engine: TcpListener,
}

impl Scene {
    async fn new(is_plain: bool) -> Scene {
        let engine = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = engine.local_addr().expect("an address");
        let kept = KeptForm {
            placement: Vec::new(),
            arguments: String::new(),
            served_model_name: None,
            stop_grace_ms: 0,
            member: None,
        };
        let (stop, _) = oneshot::channel();
        let mut state = EngineState::new("m".to_owned(), kept, stop, Arc::default());
        state.endpoint = Some(Endpoint::Tcp(address));
        let machine = Arc::new(Machine::default());
        machine.lock().engines.insert(REPLICA, state);
        let any = "127.0.0.1:0".parse().expect("an address");
        let relay = Relay::open(any, is_plain).await.expect("a relay");
        let secret = relay.secret.clone();
        let peers = PeerServer::new(None, secret, 1, Arc::clone(&machine));
        Scene {
            relay,
            machine,
            peers: Arc::new(peers),
            engine,
        }
    }

    /// A gateway that connects to this replica.
    async fn connect(&self, replica: u64) -> io::Result<Stream> {
        let relay = RelayAddress {
            node: "node".to_owned(),
            address: self.relay.address,
            secret: self.relay.secret.clone(),
            fingerprint: self.relay.fingerprint,
        };
        let replica = ReplicaId(replica);
        let place = NodePlace { relay, replica };
        engine::connect(&Endpoint::Node(Arc::new(place))).await
    }

    /// Both ends of a connection that has carried a request and its response.
    async fn talk(&self) -> (Stream, TcpStream) {
        let (gateway, engine) = tokio::join!(self.connect(REPLICA), self.engine.accept());
        let (mut gateway, mut engine) = (gateway.expect("connected"), engine.expect("one").0);
        let mut piece = [0; 4];
        gateway.write_all(b"one?").await.expect("taken");
        gateway.flush().await.expect("sent");
        engine.read_exact(&mut piece).await.expect("a question");
        assert_eq!(&piece, b"one?");
        engine.write_all(b"two!").await.expect("taken");
        gateway.read_exact(&mut piece).await.expect("a response");
        assert_eq!(&piece, b"two!");
        (gateway, engine)
    }

    /// Runs a scenario while the listener serves.
    async fn serving<T>(&self, scenario: impl Future<Output = T>) -> T {
        let (machine, peers) = (Arc::clone(&self.machine), Arc::clone(&self.peers));
        tokio::select! {
            () = self.relay.serve(machine, peers) => panic!("it serves for ever"),
            done = scenario => done,
        }
    }
}

#[tokio::test]
async fn either_side_that_disconnects_ends_the_other_in_plain_and_over_tls() {
    for is_plain in [true, false] {
        let scene = Scene::new(is_plain).await;
        let leaving = async {
            let (gateway, mut engine) = scene.talk().await;
            drop(gateway);
            assert_eq!(engine.read(&mut [0]).await.expect("an end"), 0);
            let (mut gateway, engine) = scene.talk().await;
            drop(engine);
            assert_eq!(gateway.read(&mut [0]).await.expect("an end"), 0);
            let refused = scene
                .connect(REPLICA + 1)
                .await
                .expect_err("no such engine");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        };
        scene.serving(leaving).await;
    }
}

#[tokio::test]
async fn a_connection_waits_for_an_engine_that_may_still_be_adopted() {
    let scene = Scene::new(true).await;
    let state = scene.machine.lock().engines.remove(&REPLICA);
    scene.machine.lock().is_resolving = true;
    let adopting = async {
        let adopted = async {
            while scene.relay.connections().is_empty() {
                tokio::task::yield_now().await;
            }
            let state = state.expect("an engine");
            scene.machine.lock().engines.insert(REPLICA, state);
            scene.machine.adopted.notify_waiters();
        };
        let (gateway, engine, ()) =
            tokio::join!(scene.connect(REPLICA), scene.engine.accept(), adopted);
        assert!(gateway.is_ok() && engine.is_ok());
        let resolved = async { scene.machine.resolved() };
        let (refused, ()) = tokio::join!(scene.connect(REPLICA + 1), resolved);
        let refused = refused.expect_err("no such engine");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    };
    scene.serving(adopting).await;
}

async fn read(from: &mut (impl AsyncRead + Unpin), bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    from.read_exact(&mut all).await.expect("all of it");
    all
}

#[tokio::test]
async fn data_is_relayed_in_both_directions_concurrently_in_plain_and_over_tls() {
    let much: Vec<u8> = (0..4u32 << 20).map(|index| (index / 7) as u8).collect();
    for is_plain in [true, false] {
        let scene = Scene::new(is_plain).await;
        let going = async {
            let (gateway, engine) = scene.talk().await;
            let (mut gateway_in, mut gateway_out) = tokio::io::split(gateway);
            let (mut engine_in, mut engine_out) = engine.into_split();
            let question = async {
                gateway_out.write_all(&much).await.expect("taken");
                gateway_out.flush().await.expect("sent");
            };
            let response = engine_out.write_all(&much);
            let (_, responded, to_engine, to_gateway) = tokio::join!(
                question,
                response,
                read(&mut engine_in, much.len()),
                read(&mut gateway_in, much.len()),
            );
            responded.expect("taken");
            assert!(
                to_engine == much && to_gateway == much,
                "the bytes are others"
            );
        };
        scene.serving(going).await;
        // The relay counts a piece after the gateway may have read it.
        let all = much.len() as u64 + 4;
        let counted = async {
            while scene.relay.moved.load(Ordering::Relaxed) < all {
                tokio::task::yield_now().await;
            }
        };
        let is_counted = tokio::time::timeout(Duration::from_secs(10), counted).await;
        let moved = scene.relay.moved.load(Ordering::Relaxed);
        assert!(is_counted.is_ok() && moved == all, "{moved} of {all} bytes");
    }
}

#[tokio::test]
async fn the_last_bytes_of_an_engine_on_a_socket_arrive_before_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("engine");
    let listener = UnixListener::bind(&path).expect("a socket");
    for is_plain in [true, false] {
        let scene = Scene::new(is_plain).await;
        if let Some(engine) = scene.machine.lock().engines.get_mut(&REPLICA) {
            engine.endpoint = Some(Endpoint::Unix(path.clone()));
        }
        let ending = async {
            let (gateway, engine) = tokio::join!(scene.connect(REPLICA), listener.accept());
            let (mut gateway, mut engine) = (gateway.expect("connected"), engine.expect("one").0);
            engine.write_all(b"the last").await.expect("taken");
            drop(engine);
            let mut all = Vec::new();
            gateway.read_to_end(&mut all).await.expect("a clean end");
            assert_eq!(all, b"the last");
        };
        scene.serving(ending).await;
    }
}

#[tokio::test]
async fn a_response_sent_before_the_request_was_read_is_delivered() {
    // More than the buffers on the way hold.
    let (request, response) = (vec![b'?'; 16 << 20], vec![b'!'; 32 << 10]);
    for is_plain in [true, false] {
        let scene = Scene::new(is_plain).await;
        let refusing = async {
            let (mut gateway, mut engine) = scene.talk().await;
            engine.write_all(&response).await.expect("taken");
            engine.shutdown().await.expect("ended");
            gateway.write_all(&request).await.expect("taken");
            gateway.flush().await.expect("sent");
            let mut all = Vec::new();
            gateway.read_to_end(&mut all).await.expect("a clean end");
            assert!(all == response, "{} bytes", all.len());
        };
        scene.serving(refusing).await;
    }
}

#[tokio::test]
async fn connecting_to_an_engine_that_accepts_no_connection_times_out() {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    let any = "127.0.0.1:0".parse().expect("an address");
    socket.bind(any).expect("a port");
    // The backlog is short, and further connections get no response.
    let listener = socket.listen(1).expect("a listener");
    let endpoint = Endpoint::Tcp(listener.local_addr().expect("an address"));
    let mut waiting = Vec::new();
    let error = loop {
        match connect(&endpoint, Duration::from_millis(200)).await {
            Ok(socket) => waiting.push(socket),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100, "all connections are made");
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn connections_continue_after_the_last_is_accepted_and_end_with_the_listener() {
    for is_plain in [true, false] {
        let scene = Scene::new(is_plain).await;
        let (mut gateway, mut engine) = scene.serving(scene.talk()).await;
        // From here on, another process accepts connections.
        engine.write_all(b"more").await.expect("taken");
        assert_eq!(read(&mut gateway, 4).await, b"more");
        drop(scene);
        assert_eq!(engine.read(&mut [0]).await.expect("an end"), 0);
        // Inside TLS, an end without a close notification is an error.
        assert_eq!(gateway.read(&mut [0]).await.unwrap_or(0), 0);
    }
}

#[test]
fn only_a_line_with_the_secret_selects_a_replica() {
    let secret = RelaySecret::parse(&"s".repeat(64)).expect("a secret");
    let line = |secret: &str| format!("{RELAY_MARK} {secret} 7").into_bytes();
    assert_eq!(replica_of(&line(secret.reveal()), &secret), Some(7));
    for wrong in [
        line(&"t".repeat(64)),
        line(""),
        b"GET / HTTP/1.1".to_vec(),
        b"\xff".to_vec(),
        [line(secret.reveal()), b" x".to_vec()].concat(),
    ] {
        assert_eq!(replica_of(&wrong, &secret), None);
    }
}

#[tokio::test]
async fn an_endless_line_is_read_only_up_to_its_limit() {
    let endless = vec![b'x'; 10 * RELAY_LINE_MAX];
    let mut from = &endless[..];
    assert!(read_line(&mut from).await.is_err());
    assert!(from.len() > 8 * RELAY_LINE_MAX);
}

#[tokio::test]
async fn an_http_request_is_recognized_by_its_method() {
    let mut from = &b"GET /weights/models--lab--small/ab HTTP/1.1\r\n"[..];
    let begun = read_line(&mut from).await.expect("it begins");
    assert_eq!(begun, HTTP_BEGINS);
    assert!(from.starts_with(b"/weights/"), "the rest stays to be read");
    let mut other = &b"GETTER x\n"[..];
    let line = read_line(&mut other).await.expect("a line");
    assert_eq!(line, b"GETTER x");
}
