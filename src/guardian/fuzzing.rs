//! Entry points for fuzzers: the messages of both sides of a guardian's socket.

use super::link::complete_messages;
use super::protocol::{News, Order};

/// Checks that bytes parse to the same messages in one piece and in several, and that each message round-trips.
pub fn messages(bytes: &[u8]) {
    let orders: Vec<Order> = complete_messages(&mut bytes.to_vec());
    let mut buffer = Vec::new();
    let mut in_pieces = Vec::<Order>::new();
    for piece in bytes.chunks(13) {
        buffer.extend_from_slice(piece);
        in_pieces.extend(complete_messages(&mut buffer));
    }
    assert!(!buffer.contains(&b'\n'), "a complete line was left behind");
    assert_eq!(orders.len(), in_pieces.len());
    for (one, other) in orders.iter().zip(&in_pieces) {
        let (one, other) = (serde_json::to_string(one), serde_json::to_string(other));
        let (one, other) = (one.expect("an order"), other.expect("an order"));
        assert_eq!(one, other);
        assert!(serde_json::from_str::<Order>(&one).is_ok(), "{one}");
    }
    let news: Vec<News> = complete_messages(&mut bytes.to_vec());
    for news in news {
        let text = serde_json::to_string(&news).expect("news");
        assert!(serde_json::from_str::<News>(&text).is_ok(), "{text}");
    }
}
