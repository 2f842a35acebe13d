//! One direction between two sides that take and give as much as a test lets them, and a pair of real sockets whose events the test
//! delivers.

use super::*;
use std::net::TcpListener;

/// Gives and takes without a socket.
#[derive(Default)]
struct FakeSide {
    gives: Vec<u8>,
    has_ended: bool,
    room: usize,
    taken: Vec<u8>,
    /// Number of flushes that have to wait first.
    flushes_later: usize,
}

impl FakeSide {
    fn giving(bytes: usize) -> FakeSide {
        FakeSide {
            gives: (0..bytes).map(|index| index as u8).collect(),
            ..FakeSide::default()
        }
    }

    fn with_room(room: usize) -> FakeSide {
        FakeSide {
            room,
            ..FakeSide::default()
        }
    }
}

impl Read for FakeSide {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.gives.is_empty() && !self.has_ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        let bytes = self.gives.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&self.gives[..bytes]);
        self.gives.drain(..bytes);
        Ok(bytes)
    }
}

impl Write for FakeSide {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let bytes = piece.len().min(self.room);
        self.room -= bytes;
        self.taken.extend_from_slice(&piece[..bytes]);
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.flushes_later.checked_sub(1) {
            None => Ok(()),
            Some(left) => {
                self.flushes_later = left;
                Err(ErrorKind::WouldBlock.into())
            }
        }
    }
}

const BUFFER: usize = 64;

fn move_on(direction: &mut Direction, from: &mut FakeSide, to: &mut FakeSide) -> Step {
    let step = direction.move_on(from, to, &mut [0; BUFFER], None);
    step.expect("no fault")
}

#[test]
fn nothing_is_read_while_the_other_side_is_blocked_and_nothing_is_lost() {
    let (mut from, mut to) = (FakeSide::giving(10 * BUFFER), FakeSide::with_room(10));
    let all = from.gives.clone();
    let mut direction = Direction::default();
    for _ in 0..3 {
        assert_eq!(move_on(&mut direction, &mut from, &mut to), Step::Waits);
        assert_eq!((from.gives.len(), to.taken.len()), (9 * BUFFER, 10));
    }
    from.has_ended = true;
    for room in [1, BUFFER, usize::MAX] {
        to.room = room;
        let step = move_on(&mut direction, &mut from, &mut to);
        assert_eq!(step == Step::Ended, room == usize::MAX);
    }
    assert_eq!(to.taken, all);
}

#[test]
fn reading_stops_until_the_last_piece_is_flushed() {
    let (mut from, mut to) = (
        FakeSide::giving(2 * BUFFER),
        FakeSide::with_room(usize::MAX),
    );
    to.flushes_later = 2;
    let mut direction = Direction::default();
    for left in [BUFFER, BUFFER, 0] {
        assert_eq!(move_on(&mut direction, &mut from, &mut to), Step::Waits);
        assert_eq!(from.gives.len(), left);
    }
}

#[test]
fn a_direction_with_endless_data_yields_after_a_number_of_pieces() {
    let pieces = 2 * PIECES_A_TURN + 1;
    let (mut from, mut to) = (
        FakeSide::giving(pieces * BUFFER),
        FakeSide::with_room(usize::MAX),
    );
    let mut direction = Direction::default();
    for step in [Step::Again, Step::Again, Step::Waits] {
        assert_eq!(move_on(&mut direction, &mut from, &mut to), step);
    }
    assert_eq!(to.taken.len(), pieces * BUFFER);
}

#[test]
fn bytes_to_the_gateway_are_counted_as_they_are_written() {
    let (mut from, mut to) = (FakeSide::giving(BUFFER), FakeSide::with_room(10));
    let moved = AtomicU64::new(0);
    let mut direction = Direction::default();
    let mut buffer = [0; BUFFER];
    for sum in [10, BUFFER as u64] {
        let step = direction.move_on(&mut from, &mut to, &mut buffer, Some(&moved));
        step.expect("no fault");
        assert_eq!(moved.load(Ordering::Relaxed), sum);
        to.room = usize::MAX;
    }
}

/// A pair with its far ends.
fn pair() -> (Pair, std::net::TcpStream, std::os::unix::net::UnixStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let far_gateway = std::net::TcpStream::connect(address).expect("connected");
    let (gateway, _) = listener.accept().expect("one");
    let (engine, far_engine) = std::os::unix::net::UnixStream::pair().expect("two ends");
    gateway.set_nonblocking(true).expect("set");
    engine.set_nonblocking(true).expect("set");
    let gateway = Gateway::new(gateway, None);
    let pair = Pair::new(gateway, LocalSocket::Unix(engine), Arc::default());
    (pair, far_gateway, far_engine)
}

#[expect(clippy::disallowed_methods, reason = "any moment")]
fn start() -> Instant {
    Instant::now()
}

fn engine_event(pair: &mut Pair, is_readable: bool) {
    match &mut pair.engine {
        Engine::Unix(socket) => {
            (socket.is_readable, socket.is_closed) = (is_readable, is_readable);
        }
        Engine::Tcp(_) => panic!("it is a socket of this machine"),
    }
}

/// The engine responds and closes while the pair handles a request that is still arriving.
fn refused(pair: &mut Pair, far_gateway: &mut std::net::TcpStream, now: Instant) {
    far_gateway.write_all(&[0; 2 * BUFFER]).expect("taken");
    while !pair.refused {
        pair.gateway.socket.is_readable = true;
        let turn = pair.turn(&mut [0; BUFFER], now);
        assert!(matches!(turn, Turn::Waits), "{turn:?}");
    }
    engine_event(pair, true);
}

#[test]
fn the_response_of_an_engine_that_closes_early_reaches_the_gateway() {
    let (mut pair, mut far_gateway, mut far_engine) = pair();
    let (mut buffer, now) = ([0; BUFFER], start());
    engine_event(&mut pair, false);
    far_engine.write_all(b"too large").expect("taken");
    drop(far_engine);
    refused(&mut pair, &mut far_gateway, now);
    let turn = pair.turn(&mut buffer, now);
    assert!(matches!(turn, Turn::WaitsUntil(_)), "{turn:?}");
    let mut response = Vec::new();
    far_gateway.read_to_end(&mut response).expect("and the end");
    assert_eq!(response, b"too large");
    // After the gateway has left, the pair ends.
    drop(far_gateway);
    let turn = loop {
        pair.gateway.socket.is_readable = true;
        match pair.turn(&mut buffer, now) {
            Turn::WaitsUntil(_) => std::thread::yield_now(),
            turn => break turn,
        }
    };
    assert!(matches!(turn, Turn::Ended(Ok(()))), "{turn:?}");
}

#[test]
fn data_from_a_gateway_after_its_engine_ended_is_discarded_and_the_response_is_delivered() {
    let (mut pair, mut far_gateway, mut far_engine) = pair();
    let (mut buffer, now) = ([0; BUFFER], start());
    engine_event(&mut pair, false);
    far_engine.write_all(b"too large").expect("taken");
    drop(far_engine);
    refused(&mut pair, &mut far_gateway, now);
    for _ in 0..3 {
        far_gateway.write_all(&[0; 2 * BUFFER]).expect("taken");
        pair.gateway.socket.is_readable = true;
        let turn = pair.turn(&mut buffer, now);
        let Turn::WaitsUntil(at) = turn else {
            panic!("{turn:?}");
        };
        assert_eq!(at, now + LINGERS_MAX);
    }
    let turn = pair.turn(&mut buffer, now + LINGERS_MAX);
    assert!(matches!(turn, Turn::Ended(Ok(()))), "{turn:?}");
    drop(pair);
    let mut response = Vec::new();
    far_gateway.read_to_end(&mut response).expect("and the end");
    assert_eq!(response, b"too large");
}

#[test]
fn an_ended_engine_does_not_wait_for_a_lingering_gateway() {
    let (mut pair, mut far_gateway, mut far_engine) = pair();
    far_engine.write_all(b"hello").expect("taken");
    far_engine
        .shutdown(std::net::Shutdown::Write)
        .expect("it has ended");
    engine_event(&mut pair, true);
    let turn = pair.turn(&mut [0; BUFFER], start());
    assert!(matches!(turn, Turn::WaitsUntil(_)), "{turn:?}");
    let within = Some(Duration::from_secs(10));
    far_engine.set_read_timeout(within).expect("set");
    let mut rest = Vec::new();
    let end = far_engine.read_to_end(&mut rest);
    assert_eq!(end.expect("the end, while the pair is still there"), 0);
    // The gateway has received everything, too.
    let mut response = Vec::new();
    far_gateway.read_to_end(&mut response).expect("and the end");
    assert_eq!(response, b"hello");
    drop(pair);
}

#[test]
fn a_pair_whose_gateway_disconnected_ends_even_if_its_engine_reads_nothing() {
    let (mut pair, mut far_gateway, _far_engine) = pair();
    let (mut buffer, now) = ([0; BUFFER], start());
    while !pair.up.holds() {
        far_gateway.write_all(&[0; BUFFER]).expect("taken");
        pair.gateway.socket.is_readable = true;
        pair.turn(&mut buffer, now);
    }
    let turn = pair.turn(&mut buffer, now);
    assert!(matches!(turn, Turn::Waits), "it may read on: {turn:?}");
    drop(far_gateway);
    (
        pair.gateway.socket.is_readable,
        pair.gateway.socket.is_closed,
    ) = (true, true);
    for later in [now, now + LEFT_MAX / 2] {
        let turn = pair.turn(&mut buffer, later);
        let Turn::WaitsUntil(at) = turn else {
            panic!("{turn:?}");
        };
        assert_eq!(at, now + LEFT_MAX);
    }
    let turn = pair.turn(&mut buffer, now + LEFT_MAX);
    assert!(matches!(turn, Turn::Ended(Err(_))), "{turn:?}");
}
