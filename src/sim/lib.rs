//! The simulator: the production pool under a virtual clock. Stories are scenarios as text. Storms are seeded random worlds with
//! faults, checked by a referee that trusts nothing the pool reports about itself. The crate reads no clock and does no I/O.

#![no_std]

#[macro_use]
extern crate alloc;

mod args;
mod gate_keys;
mod key_storm;
mod narration;
mod node_lines;
mod node_storm;
mod persistence;
mod random;
mod referee;
pub mod replay;
mod return_storm;
mod storm;
mod story;
mod story_setup;
mod world;

pub use key_storm::{KeyClients, KeyStorm, KeyStormReport};
pub use node_storm::{NodeFault, NodeStorm, NodeStormReport};
pub use persistence::{WishReport, WishStorm};
pub use random::Random;
pub use referee::Referee;
pub use return_storm::{ReturnFault, ReturnStorm, ReturnStormReport};
pub use storm::{Fault, Storm, StormReport};
pub use story::{StoryError, play};
pub use world::World;
#[cfg(test)]
mod tmp_stories {
    extern crate std;
    #[test]
    fn tmp_play() {
        for file in std::env::var("STORY_FILES")
            .unwrap_or_default()
            .split(',')
            .filter(|f| !f.is_empty())
        {
            let text = std::fs::read_to_string(file).unwrap();
            match crate::play(&text) {
                Ok(after) if after == text => std::println!("SAME {file}"),
                Ok(after) => {
                    std::println!("DIFF {file}");
                    std::fs::write(
                        std::format!(
                            "/tmp/bk/out/{}",
                            std::path::Path::new(file)
                                .file_name()
                                .unwrap()
                                .to_str()
                                .unwrap()
                        ),
                        after,
                    )
                    .unwrap();
                }
                Err(e) => std::println!("ERR {file}: {e}"),
            }
        }
    }
    #[test]
    fn tmp_storms() {
        let n: u64 = std::env::var("STORMS_N")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let f: u64 = std::env::var("STORMS_F")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let mut bad = 0;
        let mut all = (0, 0);
        for seed in f..f + n {
            let r = crate::NodeStorm::new(seed).run();
            all = (all.0 + r.requested, all.1 + r.given_back);
            if !r.broken.is_empty() {
                bad += 1;
                if bad < 12 {
                    std::println!("seed {seed}: {:?}", r.broken);
                }
            }
        }
        std::println!("bad {bad} of {n}, {all:?}");
    }
}
