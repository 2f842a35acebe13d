//! Header values for single responses, such as ids and numbers. Each is a slice of a block shared by many values, which saves an
//! allocation per value.

use std::cell::RefCell;
use std::fmt::{Display, Write};

use axum::http::HeaderValue;
use bytes::BytesMut;

/// Small, because a long response keeps its block alive.
const BLOCK_BYTES: usize = 1 << 10;

thread_local! {
    static BLOCK: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(BLOCK_BYTES));
}

/// The text as a header value, or `?` if it is invalid.
pub fn header_text(text: impl Display) -> HeaderValue {
    let written = BLOCK.with_borrow_mut(|block| {
        block.clear();
        // A full block is replaced by a new one.
        let _ = write!(block, "{text}");
        block.split().freeze()
    });
    HeaderValue::from_maybe_shared(written).unwrap_or(HeaderValue::from_static("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_keep_their_text_while_others_share_their_buffer() {
        let values: Vec<(usize, HeaderValue)> =
            (0..1_000).map(|nth| (nth, header_text(nth))).collect();
        for (nth, value) in values {
            assert_eq!(value, nth.to_string().as_str());
        }
        let long = "x".repeat(3 * BLOCK_BYTES);
        assert_eq!(header_text(&long), long.as_str());
        assert_eq!(header_text("a\nb"), "?");
        assert_eq!(header_text(7), "7");
    }
}
