//! Tests of a standby over real sockets, with the test as leader.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Standby;
use config::Config;
use controller::Clock;
use edge::Edge;
use edge::listener::Listener;

const PATIENCE: Duration = Duration::from_secs(10);

struct Scene {
    standby: Standby,
    address: SocketAddr,
    leader: TcpListener,
    stop: CancellationToken,
    server: AbortOnDropHandle<()>,
}

#[expect(clippy::disallowed_methods, reason = "ends with the scene")]
fn start(work: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(work))
}

impl Scene {
    async fn new() -> Scene {
        let clock = Clock::start();
        let edge = Edge::open(&Config::default(), clock, None).expect("an edge");
        let standby = Standby::new(Arc::new(edge), clock, "/llm");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let leader = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let server = start(standby.clone().serve(Listener::Tcp(listener), stop.clone()));
        Scene {
            standby,
            address,
            leader,
            stop,
            server,
        }
    }

    fn follow(&self) {
        let address = format!("http://{}", self.leader.local_addr().expect("an address"));
        assert_eq!(self.standby.follow(&address, None), Ok(true));
        assert_eq!(self.standby.follow(&address, None), Ok(false));
    }

    async fn send(&self, head: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.expect("connected");
        let text = format!("{head}\r\nhost: 127.0.0.1\r\n\r\n");
        socket.write_all(text.as_bytes()).await.expect("sent");
        socket
    }

    async fn ask(&self, head: &str) -> String {
        let mut socket = self.send(&format!("{head}\r\nconnection: close")).await;
        let mut response = String::new();
        timeout(PATIENCE, socket.read_to_string(&mut response))
            .await
            .expect("a response")
            .expect("text");
        response
    }

    /// The next connection to the leader, with the first request on it.
    async fn at_leader(&self) -> (TcpStream, String) {
        let accepted = timeout(PATIENCE, self.leader.accept()).await;
        let (mut socket, _) = accepted.expect("in time").expect("a connection");
        let head = until(&mut socket, "\r\n\r\n").await;
        (socket, head)
    }
}

async fn until(socket: &mut TcpStream, end: &str) -> String {
    let reading = async {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            text.push(socket.read_u8().await.expect("a byte"));
        }
        String::from_utf8(text).expect("text")
    };
    timeout(PATIENCE, reading).await.expect("in time")
}

#[tokio::test]
async fn d4_a_standby_without_a_leader_returns_503_with_retry_after() {
    let scene = Scene::new().await;
    scene.standby.wait("the leader is gone");
    let response = scene.ask("GET /v1/models HTTP/1.1").await;
    assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    assert!(response.contains("retry-after: 5"), "{response}");
    assert!(response.contains("no_leader") && response.contains("the leader is gone"));
    let ready = scene.ask("GET /llm/ready HTTP/1.1").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    for path in ["/health", "/llm/health"] {
        let health = scene.ask(&format!("GET {path} HTTP/1.1")).await;
        assert!(health.starts_with("HTTP/1.1 200"), "{health}");
        assert!(
            health.contains(r#""role":"standby","leader":null"#),
            "{health}"
        );
    }
}

#[tokio::test]
async fn d4_a_standby_answers_health_checks_itself_and_names_the_leader_to_nodes() {
    let scene = Scene::new().await;
    scene.follow();
    let leader = scene.leader.local_addr().expect("an address").to_string();
    let ready = scene.ask("GET /llm/ready HTTP/1.1").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    let health = scene.ask("GET /llm/health HTTP/1.1").await;
    assert!(health.contains(&leader), "{health}");
    let metrics = scene.ask("GET /metrics HTTP/1.1").await;
    assert!(metrics.contains("\nmodel_pool_leader 0\n"), "{metrics}");
    let node = scene.ask("GET /llm/node/connect HTTP/1.1").await;
    assert!(node.starts_with("HTTP/1.1 503"), "{node}");
    assert!(
        node.contains(node_link::STANDBY_CODE) && node.contains(&leader),
        "{node}"
    );
}

#[tokio::test]
async fn d4_a_response_is_forwarded_in_pieces_and_ends_with_its_leader() {
    let scene = Scene::new().await;
    scene.follow();
    let mut client = scene.send("GET /llm/v1/stream HTTP/1.1").await;
    let (mut leader, head) = scene.at_leader().await;
    assert!(head.starts_with("GET /llm/v1/stream HTTP/1.1"), "{head}");
    assert!(head.contains("host: 127.0.0.1\r\n"), "{head}");
    let response =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    leader.write_all(response.as_bytes()).await.expect("sent");
    until(&mut client, "\r\n\r\n").await;
    for piece in ["one", "two"] {
        let chunk = format!("3\r\n{piece}\r\n");
        leader.write_all(chunk.as_bytes()).await.expect("sent");
        let arrived = until(&mut client, piece).await;
        assert!(
            arrived.contains(piece),
            "it arrives before the next is sent"
        );
    }
    // Another controller becomes the leader: the former leader's responses must not hang.
    scene.standby.leads();
    let rest = until(&mut client, "0\r\n\r\n").await;
    assert!(rest.contains("leader_lost"), "{rest}");
}

#[tokio::test]
async fn d4_a_client_that_disconnects_closes_the_connection_to_the_leader() {
    let scene = Scene::new().await;
    scene.follow();
    let client = scene.send("GET /llm/v1/slow HTTP/1.1").await;
    let (mut leader, _) = scene.at_leader().await;
    drop(client);
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, leader.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "its connection to the leader ends");
}

#[tokio::test]
async fn d4_a_request_body_is_read_only_as_fast_as_the_leader_reads_it() {
    let scene = Scene::new().await;
    scene.follow();
    let head = "POST /llm/v1/x HTTP/1.1\r\ncontent-length: 1073741824";
    let mut client = scene.send(head).await;
    let (_leader, head) = scene.at_leader().await;
    assert!(head.contains("content-length: 1073741824"), "{head}");
    // The leader reads nothing: data is sent until the sockets on the way are full.
    let chunk = vec![b'x'; 1 << 20];
    let mut sent = 0;
    while let Ok(written) = timeout(Duration::from_secs(1), client.write(&chunk)).await {
        sent += written.expect("the connection stays");
        assert!(sent < 256 << 20, "it is buffered somewhere");
    }
    assert!(sent > 0);
}

/// A response that keeps its connection open.
const REUSABLE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";

/// A process that dies closes its sockets one after another, the listener first. The sockets that are still open must not cost a
/// client a second request.
#[tokio::test]
async fn d4_a_dying_leader_loses_one_request_per_client_although_other_connections_are_open() {
    for begins in [false, true] {
        let scene = Scene::new().await;
        scene.follow();
        let asks = || scene.ask("GET /v1/models HTTP/1.1");
        let both = async {
            let (mut first, _) = scene.at_leader().await;
            let (mut second, _) = scene.at_leader().await;
            first.write_all(REUSABLE).await.expect("sent");
            second.write_all(REUSABLE).await.expect("sent");
            (first, second)
        };
        let (_, _, (mut first, mut second)) = tokio::join!(asks(), asks(), both);

        let Scene {
            standby: _standby,
            address,
            leader,
            stop: _stop,
            server: _server,
        } = scene;
        drop(leader);
        let ask = || async {
            let mut socket = TcpStream::connect(address).await.expect("connected");
            let text = "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
            socket.write_all(text.as_bytes()).await.expect("sent");
            let mut response = String::new();
            let read = timeout(PATIENCE, socket.read_to_string(&mut response)).await;
            read.expect("a response").expect("text");
            response
        };
        // Either connection may be reused; the other one stays open.
        let dies = async {
            let (mut used, idle) = tokio::select! {
                read = first.read_u8() => { read.expect("a request"); (first, second) }
                read = second.read_u8() => { read.expect("a request"); (second, first) }
            };
            until(&mut used, "\r\n\r\n").await;
            if begins {
                used.write_all(STREAM).await.expect("sent");
            }
            idle
        };
        let (cut, mut idle) = tokio::join!(ask(), dies);
        assert!(cut.contains("leader_lost"), "{cut}");
        let status = if begins { 200 } else { 502 };
        assert!(cut.starts_with(&format!("HTTP/1.1 {status}")), "{cut}");

        let next = ask().await;
        assert!(next.starts_with("HTTP/1.1 503"), "{next}");
        assert!(next.contains("cannot reach the leader"), "{next}");
        let mut rest = Vec::new();
        let closed = timeout(PATIENCE, idle.read_to_end(&mut rest)).await;
        closed.expect("it is closed").expect("closed");
        assert!(rest.is_empty(), "no request is sent on it");
    }
}

/// The kernel accepts connections for a process that has ended until its listener is closed, and resets them then.
#[tokio::test]
async fn d4_after_a_broken_connection_no_request_is_sent_before_the_leader_reports_its_health() {
    let scene = Scene::new().await;
    scene.follow();
    let asks = || scene.ask("GET /v1/models HTTP/1.1");
    let breaks = async { drop(scene.at_leader().await) };
    let (lost, ()) = tokio::join!(asks(), breaks);
    assert!(lost.contains("leader_lost"), "{lost}");

    // The next connections are accepted and break, too.
    for _ in 0..3 {
        let probed = async { scene.at_leader().await.1 };
        let (refused, head) = tokio::join!(asks(), probed);
        assert!(head.starts_with("GET /health HTTP/1.1"), "{head}");
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.contains("no_leader"), "{refused}");
    }

    // The leader runs: requests are sent again, without another probe.
    let responds = async {
        let (mut probe, head) = scene.at_leader().await;
        assert!(head.starts_with("GET /health HTTP/1.1"), "{head}");
        probe.write_all(REUSABLE).await.expect("sent");
        for _ in 0..2 {
            let (mut leader, head) = scene.at_leader().await;
            assert!(head.starts_with("GET /v1/models HTTP/1.1"), "{head}");
            let response = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
            leader.write_all(response.as_bytes()).await.expect("sent");
        }
    };
    let twice = async { (asks().await, asks().await) };
    let ((first, second), ()) = tokio::join!(twice, responds);
    for response in [first, second] {
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
}

#[tokio::test]
async fn d4_a_lost_leader_and_a_forwarding_loop_are_reported() {
    let scene = Scene::new().await;
    scene.follow();
    let looped = scene
        .ask("GET /v1/models HTTP/1.1\r\nx-model-pool-passed-on: 1")
        .await;
    assert!(looped.contains("state.standby.advertise"), "{looped}");
    let broken = async {
        let (leader, _) = scene.at_leader().await;
        drop(leader);
    };
    let (response, ()) = tokio::join!(scene.ask("GET /v1/models HTTP/1.1"), broken);
    let status = StatusCode::BAD_GATEWAY.as_u16();
    assert!(
        response.starts_with(&format!("HTTP/1.1 {status}")),
        "{response}"
    );
    assert!(response.contains("leader_lost"), "{response}");
    let Scene {
        standby,
        address,
        leader,
        stop,
        server,
    } = scene;
    drop(leader);
    let mut socket = TcpStream::connect(address).await.expect("connected");
    let text = "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    socket.write_all(text.as_bytes()).await.expect("sent");
    let mut response = String::new();
    socket
        .read_to_string(&mut response)
        .await
        .expect("a response");
    assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    assert!(response.contains("cannot reach the leader"), "{response}");
    drop(standby);
    stop.cancel();
    let ended = timeout(PATIENCE, server).await;
    assert!(ended.is_ok(), "it ends when it is stopped");
}
