//! Values of headers that are made for one answer, such as ids and numbers. Each is a piece of a block that many of them share,
//! so that a value takes no memory of its own.

use std::cell::RefCell;
use std::fmt::{Display, Write};

use axum::http::HeaderValue;
use bytes::BytesMut;

/// Small, because a long answer keeps the block that its id is in.
const BLOCK_BYTES: usize = 1 << 10;

thread_local! {
    static BLOCK: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(BLOCK_BYTES));
}

/// The text as a header; `?` where a header cannot have it.
pub(crate) fn header_text(text: impl Display) -> HeaderValue {
    let written = BLOCK.with_borrow_mut(|block| {
        block.clear();
        // A block grows, and a new one follows it.
        let _ = write!(block, "{text}");
        block.split().freeze()
    });
    HeaderValue::from_maybe_shared(written).unwrap_or(HeaderValue::from_static("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_keeps_its_text_while_others_are_written_into_its_block() {
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
