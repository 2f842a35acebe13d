//! Limits HTTP/2 frames that carry no request. They cost the service more than their sender, and hyper does not limit most of them.

use std::sync::Arc;

use super::connection_watch::ConnectionWatch;
use pool::Time;

/// Frames that a connection may send without a request or a response.
const BURST: u64 = 1_000;
/// Frames added per second, up to the burst.
const PER_SECOND: u64 = 200;
/// Largest number of frames saved up from responses.
const EARNED_MAX: u64 = 100_000;
/// Shorter data counts as a frame, unless it ends its stream.
const SHORT_BYTES: u32 = 64;
const PREFACE_BYTES: u32 = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// Follows the frames of one connection in the bytes read from it.
pub(super) struct FrameBudget {
    watch: Arc<ConnectionWatch>,
    /// Bytes until the next frame begins.
    skipped: u32,
    head: [u8; HEAD_BYTES],
    known: usize,
    left: u64,
    refilled: Time,
}

impl FrameBudget {
    /// For a connection whose next bytes are the preface.
    pub fn new(watch: &Arc<ConnectionWatch>) -> FrameBudget {
        FrameBudget {
            watch: Arc::clone(watch),
            skipped: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            known: 0,
            left: BURST,
            refilled: watch.now(),
        }
    }

    /// Counts the frames that begin in these bytes. Returns false once there are too many.
    pub fn allows(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = bytes.len().min(self.skipped as usize);
            bytes = &bytes[skipped..];
            self.skipped -= skipped as u32;
            if bytes.is_empty() {
                return true;
            }
            let taken = bytes.len().min(HEAD_BYTES - self.known);
            self.head[self.known..self.known + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.known += taken;
            if self.known < HEAD_BYTES {
                return true;
            }
            self.known = 0;
            let [a, b, c, kind, flags, ..] = self.head;
            let length = u32::from_be_bytes([0, a, b, c]);
            self.skipped = length;
            if !self.pay(cost(kind, flags, length)) {
                return false;
            }
        }
    }

    fn pay(&mut self, cost: u64) -> bool {
        if self.left < cost {
            let now = self.watch.now();
            let passed = now.since(self.refilled).0;
            self.refilled = now;
            let refilled = (passed * PER_SECOND / 1_000).min(BURST);
            self.left += refilled + self.watch.earned().min(EARNED_MAX);
        }
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// The cost of a frame. Requests and data have other limits; settings count by their number.
fn cost(kind: u8, flags: u8, length: u32) -> u64 {
    match kind {
        HEADERS => 0,
        DATA if length >= SHORT_BYTES || flags & END_STREAM != 0 => 0,
        DATA | CONTINUATION => 1,
        _ => 1 + u64::from(length / SHORT_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_watch::IdleTimeouts;
    use controller::Clock;
    use std::time::Duration;

    const WINDOW_UPDATE: u8 = 8;

    fn watch() -> Arc<ConnectionWatch> {
        let minute = Duration::from_secs(60);
        let timeouts = IdleTimeouts {
            idle: minute,
            write: minute,
        };
        Arc::new(ConnectionWatch::new(Clock::start(), timeouts))
    }

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = (payload as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD_BYTES + payload, 0);
        frame
    }

    /// Sends frames in pieces of this size until one is refused, at most twice the burst, and counts them.
    fn passed(budget: &mut FrameBudget, frame: &[u8], piece: usize) -> u64 {
        (0..2 * BURST)
            .take_while(|_| frame.chunks(piece).all(|bytes| budget.allows(bytes)))
            .count() as u64
    }

    #[test]
    fn frames_without_a_request_are_bounded_for_any_read_size() {
        for kind in 2..=12 {
            for piece in [1, 4, 13, 100] {
                let mut budget = FrameBudget::new(&watch());
                assert!(budget.allows(&[0; PREFACE_BYTES as usize]));
                let count = passed(&mut budget, &frame(kind, 0, 4), piece);
                assert!((BURST..BURST + 100).contains(&count), "{kind}: {count}");
            }
        }
    }

    #[test]
    fn requests_and_their_data_are_free_and_empty_data_frames_count() {
        let mut budget = FrameBudget::new(&watch());
        assert!(budget.allows(&[0; PREFACE_BYTES as usize]));
        for free in [
            frame(HEADERS, 4, 30),
            frame(DATA, 0, 16 << 10),
            frame(DATA, END_STREAM, 0),
        ] {
            assert_eq!(passed(&mut budget, &free, 1 << 10), 2 * BURST);
        }
        assert!(passed(&mut budget, &frame(DATA, 0, 0), 9) < BURST + 100);
    }

    #[test]
    fn responses_earn_frames_for_the_client() {
        let watch = watch();
        let mut budget = FrameBudget::new(&watch);
        assert!(budget.allows(&[0; PREFACE_BYTES as usize]));
        let update = frame(WINDOW_UPDATE, 0, 4);
        let spent = passed(&mut budget, &update, 13);
        assert!(spent < BURST + 100);
        watch.earn(500);
        let more = passed(&mut budget, &update, 13);
        assert!((500..600).contains(&more), "{more}");
    }
}
