//! Reasoning, tool calls and stored responses cost no more per token than plain text, in every API. `cargo bench --bench gateway --
//! --only dialects` measures this in detail.

#[path = "dialects/streams.rs"]
mod streams;

use streams::{APIS, KINDS, Kind, pool, printed, table};

const ROUNDS: usize = 3;
const STREAMS: usize = 60;
/// A clock tick is a tenth of the measured time, and the machine may be shared.
const TIMES_TEXT: f64 = 2.0;

#[test]
fn reasoning_calls_and_stored_responses_cost_as_much_as_plain_text() {
    let _alone = super::ALONE.blocking_lock();
    let pool = pool();
    let found = table(&pool, ROUNDS, STREAMS);
    let text = printed(&found);
    println!("{text}");
    for (api, row) in APIS.iter().zip(&found) {
        for (kind, cost) in KINDS.iter().zip(row) {
            let plain = row[0];
            assert!(
                *cost <= plain * TIMES_TEXT,
                "{} {kind:?}:\n{text}",
                api.name
            );
        }
    }
    let named = |name: &str| APIS.iter().position(|api| api.name == name).expect(name);
    let (passing, stored) = (
        found[named("Responses")],
        found[named("Responses, `store: true`")],
    );
    let at = KINDS
        .iter()
        .position(|kind| *kind == Kind::Text)
        .expect("it is one");
    assert!(stored[at] <= passing[at] * TIMES_TEXT, "{text}");
}
