//! HTTP/2 frames without a request.

use std::io::{Read, Write};
use std::net::TcpStream;

use support::net::{connect, h2, post, rest, runtime, stub, text};
use support::service::Pool;

use super::{assert_as_fast, median};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
/// Far more than permitted per connection.
const FRAMES: usize = 50_000;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Sends a frame many times; true if the service closes the connection.
fn is_closed(pool: &Pool, flood: &[u8]) -> bool {
    let mut socket = connect(pool);
    socket.write_all(PREFACE).unwrap();
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    let mut reader: TcpStream = socket.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        loop {
            match reader.read(&mut piece) {
                Ok(1..) => {}
                // Without a close, the read waits for its timeout.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
                Ok(0) | Err(_) => return true,
            }
        }
    });
    let many = flood.repeat(100);
    let _ = (0..FRAMES / 100).all(|_| socket.write_all(&many).is_ok());
    reading.join().unwrap()
}

#[test]
fn b1_a_flood_of_frames_ends_its_connection() {
    let pool = Pool::with_models(&[], "");
    let health = || {
        let (status, _, _) = pool.request("GET", "/llm/health", "", None);
        assert_eq!(status, 200);
    };
    let before = median(health);
    for (name, flood) in [
        ("WINDOW_UPDATE", frame(8, 0, 0, &1_u32.to_be_bytes())),
        ("PING", frame(6, 0, 0, &[0; 8])),
        ("answers to pings", frame(6, 1, 0, &[0; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 0, 7])),
        ("RST_STREAM", frame(3, 0, 1, &8_u32.to_be_bytes())),
        ("empty DATA", frame(0, 0, 1, &[])),
        ("CONTINUATION", frame(9, 0, 1, &[])),
        ("unknown frames", frame(0x42, 0, 0, &[])),
    ] {
        assert!(is_closed(&pool, &flood), "{name}");
        assert_as_fast(name, before, median(health));
    }
}

#[test]
fn long_streams_of_a_client_that_opens_its_window_per_piece_are_not_cut() {
    let pool = Pool::with_models(&[stub("talker", &["--tokens", "3000"])], "");
    runtime().block_on(async {
        let mut client = h2(&pool).await;
        for _ in 0..3 {
            let uri = "http://localhost/v1/chat/completions";
            let request = post(uri, &support::net::chat("talker", true));
            let response = client.send_request(request).await.unwrap();
            let events = text(response).await;
            assert!(events.ends_with("data: [DONE]\n\n"));
        }
    });
    let said = rest(&mut {
        let mut socket = connect(&pool);
        socket
            .write_all(b"GET /llm/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        socket
    });
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}
