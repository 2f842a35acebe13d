//! Assigns a model to each request of a trace that does not record it: models by popularity, and sessions that stay with a model.
//! Seeded, and the same for every policy.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;

/// The chance that a request is for the same model as the previous one, if sessions are not marked.
const STAYS: f64 = 0.8;

#[derive(Debug)]
pub struct Crowd {
    random: Pcg64Mcg,
    popularity: Zipf<f64>,
    /// Model numbers by popularity.
    ranks: Vec<u32>,
    sessions: BTreeMap<u64, u32>,
    last: u32,
}

impl Crowd {
    /// Draws from `models` models; the n-th has a popularity of one over n to the power of `skew`.
    pub fn new(models: u32, skew: f64, seed: u64) -> Crowd {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0xC0FF_EE00);
        let mut ranks: Vec<u32> = (0..models.max(1)).collect();
        for nth in (1..ranks.len()).rev() {
            ranks.swap(nth, random.random_range(0..=nth));
        }
        let count = ranks.len() as f64;
        let popularity = Zipf::new(count, skew).expect("a count above 0 and a positive skew");
        let last = ranks[0];
        Crowd {
            random,
            popularity,
            ranks,
            sessions: BTreeMap::new(),
            last,
        }
    }

    pub fn model(&mut self, session: Option<u64>) -> u32 {
        match session {
            Some(session) => {
                if let Some(&model) = self.sessions.get(&session) {
                    return model;
                }
                let model = self.draw();
                self.sessions.insert(session, model);
                model
            }
            None => {
                if self.random.random::<f64>() >= STAYS {
                    self.last = self.draw();
                }
                self.last
            }
        }
    }

    /// The duration of a request whose trace has none: exponential, with a mean of four seconds.
    pub fn service_ms(&mut self) -> u64 {
        let drawn: f64 = self.random.sample(rand_distr::Exp1);
        1 + (drawn * 4_000.0) as u64
    }

    fn draw(&mut self) -> u32 {
        let rank = self.popularity.sample(&mut self.random) as usize;
        self.ranks[rank.clamp(1, self.ranks.len()) - 1]
    }
}
