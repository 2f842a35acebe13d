//! Chooses the tokens of one request from its rows of a step: one token, or several if tokens were drafted for it.

use super::guard::guarded;
use super::schedule::RequestId;
use super::write::Writer;
use super::write::client::RowOutcome;
use crate::api_error::ApiError;
use crate::tokenizer::ModelTokenizer;

/// A request's rows with logits, and the drafted tokens that the rows after the first were computed with.
pub(super) struct PendingDecision<'a> {
    pub request: RequestId,
    pub writer: &'a mut Writer,
    pub rows: Vec<&'a mut [f32]>,
    pub proposed: &'a [u32],
}

pub(super) struct Decision {
    pub request: RequestId,
    /// Number of proposed tokens that were chosen before `next`.
    pub accepted: usize,
    pub next: Result<RowOutcome, ApiError>,
}

impl PendingDecision<'_> {
    /// Chooses tokens row by row until one differs from the proposed token.
    pub fn decide(self, tokenizer: &ModelTokenizer) -> Decision {
        let Self {
            request,
            writer,
            rows,
            proposed,
        } = self;
        let mut accepted = 0;
        let next = guarded(|| {
            let mut next = RowOutcome::Wait;
            for row in rows {
                next = writer.row(row, tokenizer)?;
                let chosen = match &next {
                    RowOutcome::Wait => continue,
                    RowOutcome::GoOn(ways) => ways.first().map(|(_, token)| token),
                    RowOutcome::End => None,
                };
                if chosen.is_none() || chosen != proposed.get(accepted) {
                    break;
                }
                accepted += 1;
            }
            Ok(next)
        });
        Decision {
            request,
            accepted,
            next,
        }
    }
}

/// Returns how many leading rows, at most `count`, to take without splitting the rows of a request. A request whose own rows exceed
/// `count` is split.
pub(super) fn uncut(rows: &[(usize, RequestId)], count: usize) -> usize {
    let Some((_, next)) = rows.get(count) else {
        return count;
    };
    let before = rows[..count].iter().rev();
    let own = before.take_while(|(_, request)| request == next).count();
    if own < count { count - own } else { count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_request_share_a_logits_batch_if_they_fit() {
        let rows = [(0, 1), (1, 2), (2, 2), (3, 2), (4, 3)];
        let uncut = |count| uncut(&rows, count);
        assert_eq!([1, 2, 3, 4, 5].map(uncut), [1, 1, 1, 4, 5]);
        assert_eq!(super::uncut(&rows[1..], 2), 2, "its rows are more than fit");
    }
}
